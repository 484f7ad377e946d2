"""Output of `run`: counts, means, failures and costs when it ends, and a forecast before it starts."""

from __future__ import annotations

import dataclasses
import datetime
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from editjudge.cli.output import ExitCode, VerbReply, show
from editjudge.errors import one_line, printable
from editjudge.files import default_store
from editjudge.plugins import missing

if TYPE_CHECKING:
    from editjudge.judges.cost import Shortfall
    from editjudge.report.tables import Table
    from editjudge.running.forecast import Estimate, Todo
    from editjudge.running.job import Job, Outcome, RunOptions
    from editjudge.running.summary import FailureReason, Summary
    from editjudge.store.store import Store

EXIT_CODES = {
    "finished": ExitCode.DONE,
    "failed": ExitCode.ERROR,
    "budget": ExitCode.BUDGET,
    "interrupted": ExitCode.INTERRUPTED,
}
"""Exit code for each way that a run can end."""


def how_to_resume() -> str:
    """Return the command that resumes the run, as it was typed. If it contains a password, the command is left out."""
    typed = sys.argv[1:]
    if any(re.search(r"://[^/]*@", text) for text in typed):
        return "run the same command again to resume"
    command = printable(shlex.join(["editjudge", *typed]))
    return f"run the same command again to resume:\n  {command}"


def outcome_document(outcome: Outcome, seconds: float) -> dict[str, object]:
    """Return the document that `run --json` prints."""
    tally = outcome.tally
    document: dict[str, object] = {
        "run": outcome.name,
        "id": outcome.run_id,
        "ending": outcome.ending,
        "seconds": seconds,
        "asked": tally.asked,
        "cached": tally.cached,
        "replies": tally.replies,
        "cost_usd": None if tally.unpriced else tally.cost,
        "removed": tally.removed,
        "not_applicable": tally.not_applicable,
        "error": str(outcome.error) if outcome.error else None,
    }
    if tally.estimated:
        document["cost_estimated_usd"] = tally.estimated
    if models := {judge: dict(each) for judge, each in tally.models.items() if each}:
        document["models_reported"] = models
    if tally.left_out:
        document["left_out"] = tally.left_out
    if outcome.short:
        document["budget"] = outcome.short._asdict()
    return document | outcome.summary.as_json()


def early_answer(outcome: Outcome, store: Store) -> tuple[dict[str, object], list[str]]:
    """Return the state of the claims that end the run, and what they saved, as JSON and as lines."""
    run = store.find_run(outcome.run_id)
    if not run.spec.get("until") or not outcome.summary.total:
        return {}, []
    from editjudge.report.early import claim_states
    from editjudge.report.run_data import load

    states = claim_states(load(store, str(run.id)))
    document: dict[str, object] = {"until": [state.as_json() for state in states]}
    lines = [state.line for state in states]
    if (saved := outcome.saved) is not None:
        totals = store.totals()[run.id]
        answered = outcome.summary.total - outcome.summary.statuses["pending"]
        usd = None
        if not totals.unpriced and answered:
            usd = totals.cost / answered * saved
        document["saved"] = {"judgements": saved, "usd": usd}
        price = "" if usd is None else f", about ${usd:,.2f}"
        total = saved + outcome.summary.total
        lines.append(f"saved {saved:,} of {total:,} judgements{price}")
    return document, lines


def print_outcome(
    outcome: Outcome, store: Store, seconds: float, *, is_quiet: bool
) -> None:
    """Print tables and counts, and print the reason for an early end to standard error. If quiet, print only the
    reason."""
    summary = outcome.summary
    if outcome.ending == "interrupted" and not is_quiet:
        # Tables of an unfinished run mean little, and resuming it prints all of them.
        stored = summary.total - summary.statuses["pending"]
        click.echo(
            f"run {outcome.name} ({outcome.run_id}) interrupted: {stored:,} of {summary.total:,} judgements are "
            f"stored; {how_to_resume()}",
            err=True,
        )
        return
    if not is_quiet:
        if summary.total > summary.failed + summary.statuses["pending"]:
            from editjudge.judgement import instruction_warning

            warning = instruction_warning({judge for judge, *_ in summary.cells})
            tables = [*glances(summary), *_results(store, outcome.run_id)]
            show([warning] if warning else [], tables)
            click.echo()
        for line in _counts(outcome, seconds):
            click.echo(printable(line))
    for line in _changed_models(outcome.tally.models):
        click.echo(printable(line), err=True)
    if outcome.error:
        click.echo(f"editjudge: {printable(str(outcome.error))}", err=True)
    elif outcome.ending == "budget" and outcome.short:
        click.echo(f"stopped (budget): {_shortfall(outcome.short)}", err=True)
    elif outcome.ending != "finished":
        click.echo(f"stopped ({outcome.ending}); {how_to_resume()}", err=True)


def _changed_models(models: Mapping[str, Counter[str]]) -> Iterator[str]:
    """Yield a line for each judge whose server did not name the same model in all of its replies."""
    for judge, replies in models.items():
        if len(replies) > 1:
            named = ", ".join(f"{one_line(m)[:80]} ({n:,})" for m, n in replies.items())
            yield (
                f"{judge}: the server did not answer with one model in this run: {named}. Scores of two models are not "
                "comparable as they are; name a dated model, and see drift and bridge"
            )


def _results(store: Store, run_id: int) -> list[Table]:
    """Return the tables of what a run was made for, if that is not the mean of each factor: the win rates of pairs, or
    the scores of a set."""
    run = store.find_run(run_id)
    is_of_pairs = bool(store.questions_of(run).pair_factors)
    sets = run.spec.get("sets") or {}
    if missing("stats") or not (is_of_pairs or any(s["score"] for s in sets.values())):
        return []
    from editjudge.report.pairwise import load_pairs, win_rates
    from editjudge.report.run_data import load
    from editjudge.report.summary import set_scores

    if not is_of_pairs:
        return [set_scores(load(store, str(run_id)))]
    pairs = load_pairs(store, str(run_id))
    return win_rates(pairs) if pairs else []


def _shortfall(short: Shortfall) -> str:
    """Describe why the budget ended the run. Since every start may spend the full budget, resuming is suggested if the
    budget covers at least one question."""
    price = f"the next question may cost up to ${short.next:.4f}"
    if short.next > short.budget:
        return f"{price}; --budget {short.budget:g} is too little for it: give more"
    return (
        f"${short.spent:.4f} of --budget {short.budget:g} is spent, and {price}; "
        f"each start may spend the budget again: {how_to_resume()}"
    )


def _counts(outcome: Outcome, seconds: float) -> Iterator[str]:
    from editjudge.judgement import DONE

    tally = outcome.tally
    summary = outcome.summary
    failed = [
        f"{n:,} {status}"
        for status, n in sorted(summary.statuses.items())
        if status not in DONE
    ]
    price = "cost unknown" if tally.unpriced else f"${tally.cost:.4f}"
    if tally.estimated:
        price += (
            f" (${tally.estimated:.4f} of it estimated, for requests without an answer)"
        )
    requests = "no requests"
    if tally.asked or tally.cached or tally.cost:
        requests = f"{tally.asked:,} asked, {tally.cached:,} cached, {tally.replies:,} replies, {price}"
    yield (
        f"run {outcome.name} ({outcome.run_id}): {summary.total:,} judgements, "
        f"{', '.join(failed) or 'none failed'}; {requests}, {seconds:.1f} s"
    )
    if tally.not_applicable:
        questions = _number(tally.not_applicable, "question was", "questions were")
        yield f"{questions} skipped: the rubric does not apply to those edits"
    if tally.removed:
        edits = _number(tally.removed, "edit is", "edits are")
        yield f"{edits} no longer in the manifest and left out; the store keeps their judgements"
    yield from _left_out(tally.left_out)
    for reason in summary.reasons:
        yield f"  {_reason(reason, summary.statuses[reason.status])}"
    if summary.failed:
        command = ["editjudge", "export", outcome.name, "-o", outcome.name]
        if outcome.store != default_store():
            command += ["--store", outcome.store]
        yield f"list every failed edit with its reasons: {shlex.join(command)}"
    elif outcome.ending == "finished" and summary.total > summary.statuses["pending"]:
        yield f"next: {'; '.join(_next(outcome))}"


def _next(outcome: Outcome) -> Iterator[str]:
    """Yield the commands to run next: test differences, write a report, and browse the edits."""
    at = []
    if outcome.store != default_store():
        at = ["--store", outcome.store]
    name = outcome.name
    models = {model for _, model, *_ in outcome.summary.cells}
    if len(models) > 1:
        yield shlex.join(["editjudge", "compare", name, *at])
    yield shlex.join(["editjudge", "report", name, "-o", f"{name}.html", *at])
    yield shlex.join(["editjudge", "serve", *at])


def _number(count: int, singular: str, plural: str) -> str:
    return f"{count:,} {singular if count == 1 else plural}"


def _left_out(count: int) -> Iterator[str]:
    if count:
        edits = _number(count, "edit is", "edits are")
        yield f"{edits} not in the run of --where and left out"


def _reason(reason: FailureReason, count: int) -> str:
    """Return a line such as `3 missing_output: out/cta.png does not exist (0002)`."""
    share = f", {reason.count:,} of them" if reason.count < count else ""
    message = one_line(reason.message) or "no reason was stored"
    return f"{count:,} {reason.status}{share}: {message} ({one_line(reason.item)[:80]})"


def glances(summary: Summary) -> list[Table]:
    """Return a table for each judge with factors as rows and models as columns. If that is too wide, each mean has its
    own row."""
    from editjudge.report.tables import WIDTH, Figure, Table

    by_judge: dict[str, dict[tuple[str, str], Figure]] = {}
    for (judge, model, rubric, factor), cell in summary.cells.items():
        text = f"{_mean(cell.mean)} {cell.ok}/{cell.n}"
        cells = by_judge.setdefault(judge, {})
        cells[f"{rubric}.{factor}", model] = Figure(cell.mean, text=text)
    tables = []
    for judge, cells in by_judge.items():
        models = list(dict.fromkeys(model for _, model in cells))
        factors = list(dict.fromkeys(factor for factor, _ in cells))
        caption = f"mean and ok/n by {judge}"
        table = Table.of(
            ("factor", *(model or "mean" for model in models)),
            [(f, *(cells.get((f, model)) for model in models)) for f in factors],
            caption,
        )
        if table.width() > WIDTH:
            long = sorted(cells.items(), key=lambda cell: factors.index(cell[0][0]))
            rows = [(factor, model, figure) for (factor, model), figure in long]
            table = Table.of(("factor", "model", "mean"), rows, caption, stub=2)
        tables.append(table)
    return tables


def _mean(mean: float | None) -> str:
    """Format a mean. Decimals below .1, such as a pixel error, get more digits, since two digits would show 0.00."""
    if mean is None:
        return "-"
    return f"{mean:.2f}" if abs(mean) >= 0.1 or not mean else f"{mean:.2g}"


# --- before a run ---------------------------------------------------------------------------------------------


def dry_run_reply(job: Job, store: str, run_options: RunOptions) -> VerbReply:
    """Return the questions that a run would ask, and their price."""
    from editjudge.running.forecast import forecast

    estimates, todo = forecast(job, store, run_options)
    counts = dataclasses.asdict(todo) | {"cannot_be_asked": todo.problems}
    del counts["problems"]
    document = {
        "judges": [estimate.as_json() for estimate in estimates],
        "total": _total(estimates),
        **counts,
    }
    return VerbReply(document, _forecast_lines(job, estimates, todo))


def _forecast_lines(job: Job, estimates: list[Estimate], todo: Todo) -> Iterator[str]:
    from editjudge.judges.cost import near_price
    from editjudge.judges.models import shutdown_of

    problems = sum(todo.problems.values())
    yield f"{todo.tasks:,} tasks, {todo.done:,} of them done, {problems:,} cannot be asked"
    if todo.sampled:
        yield (
            f"from a sample of {todo.sampled:,} of {todo.edits:,} edits, with 95 % intervals; "
            "images that edits share are counted more than once, so this is an upper estimate"
        )
    for status, count in todo.problems.items():
        yield f"  {count:,} {status}"
    if todo.not_applicable:
        yield f"{todo.not_applicable:,} more are not asked: the rubric does not apply to those edits"
    yield from _left_out(todo.left_out)
    for estimate in estimates:
        hint = ""
        if estimate.price is None:
            hint = near_price(estimate.judge, job.options).rstrip(".")
        yield (
            f"{estimate.judge}: {estimate.calls:,} calls, {estimate.images:,} images, about {estimate.input_tokens:,} "
            f"tokens in and {estimate.output_tokens:,} out, {_price(estimate.price, estimate.interval.get('price'))}"
            f"{hint} (list prices of {estimate.as_of or 'genai-prices'})"
        )
        if shutdown := shutdown_of(estimate.judge):
            yield from filter(None, [shutdown.message(datetime.date.today())])
        if estimate.thinking_tokens:
            each = estimate.thinking_tokens // estimate.calls
            yield (
                f"  {estimate.thinking_tokens:,} of the tokens out are thinking: assumed {each:,} a question, not "
                "measured; --reasoning-effort changes it"
            )
        if estimate.batch_price:
            interval = estimate.interval.get("batch_price")
            yield f"  by --batch {_price(estimate.batch_price, interval)}"
        if estimate.seconds is not None:
            yield f"  {_duration(estimate.seconds)} at the given rates"
    if len(estimates) > 1:
        total = _total(estimates)
        yield f"all judges: {total['calls']:,.0f} calls, {_price(total['price'], None)}"
    yield f"about {todo.stored_bytes / 1e6:,.1f} MB in the store"


def _total(estimates: Sequence[Estimate]) -> dict[str, float | None]:
    """Return the sums over all judges. The price is None if any judge's price is unknown."""
    known = [estimate.price for estimate in estimates if estimate.price is not None]
    return {
        "calls": sum(estimate.calls for estimate in estimates),
        "input_tokens": sum(estimate.input_tokens for estimate in estimates),
        "output_tokens": sum(estimate.output_tokens for estimate in estimates),
        "price": sum(known) if len(known) == len(estimates) else None,
    }


def _price(price: float | None, interval: tuple[float, float] | None) -> str:
    if price is None:
        return "unknown price"
    ends = f" (${interval[0]:,.0f} to ${interval[1]:,.0f})" if interval else ""
    return f"about ${price:,.2f}{ends}"


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.0f} seconds"
