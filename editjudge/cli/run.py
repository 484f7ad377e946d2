"""`editjudge run`: the main job."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editjudge import plugins
from editjudge.cli.options import (
    Finite,
    columns_option,
    default_judge,
    judging_options,
    open_store,
)
from editjudge.cli.output import emit, json_option, one_line, safe
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.cli.best_of import BestOf
    from editjudge.judges.cost import Shortfall
    from editjudge.report.tables import Table
    from editjudge.running.cost import Estimate
    from editjudge.running.job import Job, Outcome, RunOptions
    from editjudge.running.summary import FailureReason, Summary
    from editjudge.store.store import Store

EXIT = {"finished": 0, "failed": 1, "budget": 4, "interrupted": 130}
TOO_MANY_FAILED = 3


@click.command(
    epilog="\b\nExample: editjudge run edits.jsonl --judge openai/gpt-4.1 --name mine --budget 5"
)
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option(
    "--repeats",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Judgements per edit and rubric.",
)
@click.option(
    "--fuse",
    is_flag=True,
    help="Ask a set in one question instead of rubric by rubric.",
)
@click.option(
    "--order",
    type=click.Choice(["both", "given"]),
    default="both",
    show_default=True,
    help="For pairs: ask in both orders, or once in the manifest's order.",
)
@click.option(
    "--best-of",
    metavar="[all]",
    is_flag=False,
    flag_value="all",
    help="Rank edits of the same input and instruction by comparing every two of them. Rubric: preference, or another "
    "for pairs.",
)
@click.option("--name", help="Name of the run. Default: made from its contents.")
@click.option(
    "--rpm",
    "requests_per_minute",
    type=Finite(min=0, min_open=True),
    help="Maximum requests per minute, for each judge.",
)
@click.option(
    "--tpm",
    "tokens_per_minute",
    type=Finite(min=0, min_open=True),
    help="Maximum tokens per minute, for each judge.",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="Judge only edits of this model; repeatable.",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    help="Judge only the first N edits, of all --model together.",
)
@click.option(
    "--primary",
    multiple=True,
    metavar="NAME",
    help="Declare beforehand the scores that comparisons are about; repeatable. Default: the set's own scores, or the "
    "rubric means and overall.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", *plugins.BUILT_IN["engines"]]),
    default="local",
    show_default=True,
    help="local: this process. ray: a cluster, with a part of the edits for each worker.",
)
@click.option(
    "--ray-address",
    hidden=True,
    help="Cluster to join. Default: RAY_ADDRESS, else one on this machine.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="Workers of the cluster. Default: one for each of its CPUs.",
)
@click.option(
    "--part",
    metavar="I/N",
    help="Judge one of N parts of the edits, by their ids: N processes share a manifest.",
)
@click.option(
    "--where",
    metavar="RUN:NAME>=VALUE",
    multiple=True,
    help="Skip edits whose score in an earlier run of this store is too low; edits without a score are judged. "
    "Repeatable: all must hold.",
)
@click.option(
    "--batch",
    is_flag=True,
    help="Use the provider's batch API: half the price, within a day.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print what would be asked and its price; ask nothing.",
)
@click.option(
    "--rehash",
    is_flag=True,
    hidden=True,
    help="Read every picture again instead of trusting its size, times and inode.",
)
@columns_option
@click.option(
    "--allow-outside",
    is_flag=True,
    help="Allow pictures outside the manifest's folder.",
)
@click.option(
    "--allow-urls", is_flag=True, help="Fetch pictures from http(s) addresses."
)
@judging_options(several=True)
@json_option
def command(
    rubrics: tuple[str, ...],
    judges: tuple[str, ...],
    best_of: str | None,
    store_place: str,
    engine: str,
    ray_address: str | None,
    workers: int | None,
    part: str | None,
    dry_run: bool,
    max_failures: float,
    quiet: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Judge every edit of a manifest and store the judgements.

    Running the same command again resumes: finished judgements are not asked again, failed ones are. Ctrl-C waits for
    requests in flight; a second Ctrl-C stops at once.
    """
    from editjudge.judges.registry import default_rubrics
    from editjudge.running.job import Cluster, Job, Part, RunOptions, is_new

    if best_of not in (None, "all"):
        raise UsageError(
            f'--best-of "{best_of}" is not offered; use --best-of all, which compares every two candidates'
        )
    judges = default_judge(judges)
    rubrics = rubrics or (
        ("preference",) if best_of else default_rubrics(judges, given["options"])
    )
    run_options = RunOptions(
        part=Part.parse(part) if part else None,
        cluster=Cluster(ray_address, workers) if engine == "ray" else None,
        **{
            field.name: given.pop(field.name)
            for field in fields(RunOptions)
            if field.name in given
        },
    )
    job = Job(rubrics=rubrics, judges=judges, **given)
    if engine == "ray" and run_options.batch:
        raise UsageError(
            "--engine ray takes no --batch: a provider's batches need one machine"
        )
    if job.where and is_new(store_place):
        raise UsageError(
            f"--where {job.where[0]}: {store_place} is no store yet, so there is no earlier run"
        )
    if best_of and (dry_run or run_options.batch or engine == "ray" or part):
        raise UsageError(
            "--best-of takes neither --dry-run, --batch, --part nor --engine ray"
        )
    if dry_run:
        _dry_run(job, store_place, run_options, as_json)
        return
    with ExitStack() as stack:
        if best_of:
            from editjudge.cli.best_of import BestOf

            ranking = BestOf(job, lambda: stack.enter_context(open_store(store_place)))
            sys.exit(
                conduct(
                    ranking.job,
                    ranking.store,
                    run_options,
                    max_failures,
                    as_json,
                    quiet,
                    ranking,
                )
            )

        def opener() -> Store:
            return stack.enter_context(open_store(store_place))

        sys.exit(conduct(job, opener, run_options, max_failures, as_json, quiet))


def conduct(
    job: Job,
    store: Store | Callable[[], Store],
    run_options: RunOptions,
    max_failures: float,
    as_json: bool,
    quiet: bool,
    best_of: BestOf | None = None,
) -> int:
    """Run with progress and a summary; the exit code."""
    started = time.monotonic()
    quiet = quiet or (as_json and not sys.stderr.isatty())
    outcome = watched(job, store, run_options, quiet=quiet)
    if outcome is None:
        if as_json:
            emit({"ending": "interrupted", "error": "stopped at once"})
        return EXIT["interrupted"]
    ranked = best_of if outcome.ending == "finished" else None
    if ranked:
        ranked.rank(outcome.run_id)
    _tell_outcome(
        outcome, time.monotonic() - started, as_json, ranked.as_json() if ranked else {}
    )
    if ranked and not as_json:
        ranked.tell()
    if outcome.ending != "finished":
        return EXIT[outcome.ending]
    share = outcome.summary.failed / max(outcome.summary.total, 1)
    return TOO_MANY_FAILED if share > max_failures else 0


def watched(
    job: Job,
    store: Store | Callable[[], Store],
    run_options: RunOptions,
    *,
    quiet: bool,
) -> Outcome | None:
    """Run with progress; None where it was stopped at once."""
    import dataclasses

    from editjudge.running.job import execute
    from editjudge.running.progress import progress_on_terminal

    progress = progress_on_terminal(quiet=quiet)
    run_options = dataclasses.replace(
        run_options,
        say=progress.say,
        observe=progress,
        control=lambda c: _on_interrupt(c, progress.say),
    )
    try:
        return asyncio.run(execute(job, store, run_options))
    except (KeyboardInterrupt, asyncio.CancelledError):
        progress.close()
        click.echo(f"stopped at once; {how_to_go_on()}", err=True)
        return None
    finally:
        progress.close()


def how_to_go_on() -> str:
    """The command as it was typed, which resumes; a password in it is not repeated."""
    words = sys.argv[1:]
    typed = (
        ""
        if any(re.search(r"://[^/]*@", word) for word in words)
        else shlex.join(["editjudge", *words])
    )
    return "run the same command again to go on" + (
        f":\n  {safe(typed)}" if typed else ""
    )


def _on_interrupt(control: Any, say: Any) -> None:
    """Ctrl-C once stops feeding, twice cancels, also where the run was stopping for another reason."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    times = itertools.count()

    def interrupted() -> None:
        if next(times) and task:
            task.cancel()
            return
        control.stop("interrupted")
        say("finishing what is in flight; Ctrl-C again stops at once")

    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, interrupted)


def _tell_outcome(
    outcome: Outcome, seconds: float, as_json: bool, more: dict[str, Any]
) -> None:
    if outcome.ending == "interrupted" and not as_json:
        _tell_interrupted(outcome)
        return
    tally = outcome.tally
    summary = outcome.summary
    cost = None if tally.unpriced else tally.cost
    if as_json:
        document = {
            "run": outcome.name,
            "id": outcome.run_id,
            "ending": outcome.ending,
            "seconds": seconds,
        }
        document |= {
            "asked": tally.asked,
            "cached": tally.cached,
            "replies": tally.replies,
            "cost_usd": cost,
        }
        document |= {"cost_estimated_usd": tally.estimated} if tally.estimated else {}
        document |= {"removed": tally.removed, "not_applicable": tally.not_applicable}
        document |= {"left_out": tally.left_out} if tally.left_out else {}
        document |= {"budget": outcome.short._asdict()} if outcome.short else {}
        document |= {"error": str(outcome.error) if outcome.error else None}
        emit(document | summary.as_json() | more)
    else:
        _tell_people(outcome, seconds, cost)
        for reason in summary.reasons:
            click.echo(f"  {_why(reason, summary.statuses[reason.status])}")
        if summary.failed:
            click.echo(
                f"list every failed edit with its reasons: {_lists(outcome.name, outcome.store)}"
            )
    if outcome.error:
        click.echo(f"editjudge: {safe(str(outcome.error))}", err=True)
    elif outcome.ending == "budget" and outcome.short:
        click.echo(f"stopped (budget): {_short(outcome.short)}", err=True)
    elif outcome.ending != "finished":
        click.echo(f"stopped ({outcome.ending}); {how_to_go_on()}", err=True)


def _tell_interrupted(outcome: Outcome) -> None:
    """One message: tables of half a run say nothing yet, and a command away there are all of them."""
    summary, pending = outcome.summary, outcome.summary.statuses["pending"]
    stored = f"{summary.total - pending:,} of {summary.total:,} judgements are stored"
    click.echo(
        f"run {outcome.name} ({outcome.run_id}) interrupted: {stored}; {how_to_go_on()}",
        err=True,
    )


def _short(short: Shortfall) -> str:
    """Each start of a command has the whole budget, which helps where that is enough for a question."""
    feared = f"the next question may cost up to ${short.next:.4f}"
    if short.next > short.budget:
        return f"{feared}; --budget {short.budget:g} is too little for it: give more"
    return (
        f"${short.spent:.4f} of --budget {short.budget:g} is spent, and {feared}; "
        f"each start may spend the budget again: {how_to_go_on()}"
    )


def _tell_people(outcome: Outcome, seconds: float, cost: float | None) -> None:
    from editjudge.cli.reading import show
    from editjudge.judgement import instruction_warning

    tally = outcome.tally
    summary = outcome.summary
    if summary.total > summary.failed + summary.statuses["pending"]:
        words = instruction_warning({place[0] for place in summary.cells})
        show([words] if words else [], glances(summary))
        click.echo()
    failed = [
        f"{n:,} {status}"
        for status, n in sorted(summary.statuses.items())
        if status not in ("ok", "abstained")
    ]
    price = "cost unknown" if cost is None else f"${cost:.4f}"
    if tally.estimated:
        price += f" (${tally.estimated:.4f} of it estimated, for requests that brought no answer)"
    requests = f"{tally.asked:,} asked, {tally.cached:,} cached, {tally.replies:,} replies, {price}"
    click.echo(
        f"run {outcome.name} ({outcome.run_id}): {summary.total:,} judgements, "
        f"{', '.join(failed) if failed else 'none failed'}; "
        f"{requests if tally.asked or tally.cached or tally.cost else 'no requests'}, {seconds:.1f} s"
    )
    if tally.not_applicable:
        they = "question was" if tally.not_applicable == 1 else "questions were"
        click.echo(
            f"{tally.not_applicable:,} {they} not asked: the rubric is not for that edit"
        )
    if tally.removed:
        they = "edit is" if tally.removed == 1 else "edits are"
        click.echo(
            f"{tally.removed:,} {they} no longer in the manifest and left out; the store keeps their judgements"
        )
    _tell_left_out(tally.left_out)


def _tell_left_out(count: int) -> None:
    if count:
        click.echo(
            f"{count:,} {'edit is' if count == 1 else 'edits are'} not in the run of --where and left out"
        )


def _why(reason: FailureReason, n: int) -> str:
    """`3 missing_output: out/cta.png is not there (0002)`"""
    some = f"{n:,} {reason.status}" + (
        f", {reason.count:,} of them" if reason.count < n else ""
    )
    return f"{some}: {one_line(reason.message) or 'no reason was kept'} ({one_line(reason.item)[:80]})"


def _lists(name: str, place: str) -> str:
    """The command that writes every judgement with its reasons."""
    elsewhere = (
        ()
        if place == os.environ.get("EDITJUDGE_STORE", "editjudge.db")
        else ("--store", place)
    )
    return safe(shlex.join(["editjudge", "export", name, "-o", name, *elsewhere]))


def _glance(mean: float) -> str:
    """A mean of decimals below .1, such as an error of pixels, would be 0.00."""
    return f"{mean:.2f}" if abs(mean) >= 0.1 or not mean else f"{mean:.2g}"


def glances(summary: Summary) -> list[Table]:
    """A table for each judge: a row for each factor, a column for each model, or long where that is too wide."""
    from editjudge.report.tables import WIDTH, Figure, Table

    tables = []
    for judge in dict.fromkeys(place[0] for place in summary.cells):
        cells = {
            place[1:]: Figure(
                c.mean,
                text=f"{'-' if c.mean is None else _glance(c.mean)} {c.ok}/{c.n}",
            )
            for place, c in summary.cells.items()
            if place[0] == judge
        }
        models = list(dict.fromkeys(model for model, *_ in cells))
        factors = list(dict.fromkeys(place[1:] for place in cells))
        caption = f"mean and ok/n by {judge}"
        rows = [
            (f"{r}.{f}", *(cells.get((m, r, f)) for m in models)) for r, f in factors
        ]
        table = Table.of(
            ("factor", *(model or "mean" for model in models)), rows, caption
        )
        if table.width() > WIDTH:
            long = [
                (f"{r}.{f}", m, cells[m, r, f])
                for r, f in factors
                for m in models
                if (m, r, f) in cells
            ]
            table = Table.of(("factor", "model", "mean"), long, caption, stub=2)
        tables.append(table)
    return tables


def _dry_run(
    job: Job, store_place: str, run_options: RunOptions, as_json: bool
) -> None:
    import dataclasses

    from editjudge.running.cost import meant
    from editjudge.running.forecast import Rates, forecast

    rates = Rates(
        run_options.requests_per_minute,
        run_options.tokens_per_minute,
        run_options.concurrency,
    )
    estimates, todo = forecast(job, store_place, rates)
    if as_json:
        counts = dataclasses.asdict(todo) | {"cannot_be_asked": todo.problems}
        del counts["problems"]
        emit({"judges": [e.as_json() for e in estimates], **counts})
        return
    click.echo(
        f"{todo.tasks:,} tasks, {todo.done:,} of them done, {sum(todo.problems.values()):,} cannot be asked"
    )
    if todo.sampled:
        click.echo(
            f"from a sample of {todo.sampled:,} of {todo.edits:,} edits, with 95 % intervals; "
            "pictures that edits share are counted more than once, so this is an upper estimate"
        )
    for status, count in todo.problems.items():
        click.echo(f"  {count:,} {status}")
    if todo.not_applicable:
        click.echo(
            f"{todo.not_applicable:,} more are not asked: the rubric is not for that edit"
        )
    _tell_left_out(todo.left_out)
    for e in estimates:
        hint = meant(e.judge, job.options).rstrip(".") if e.price is None else ""
        click.echo(
            f"{safe(e.judge)}: {e.calls:,} calls, {e.images:,} images, about {e.input_tokens:,} tokens in and "
            f"{e.output_tokens:,} out, {_price(e, 'price')}{hint} (list prices of {e.as_of})"
        )
        if e.batch_price:
            click.echo(f"  by --batch {_price(e, 'batch_price')}")
        if e.seconds is not None:
            click.echo(f"  {_time(e.seconds)} at the given rates")
    click.echo(f"about {todo.stored_bytes / 1e6:,.1f} MB in the store")


def _price(estimate: Estimate, name: str) -> str:
    price: float | None = getattr(estimate, name)
    if price is None:
        return "unknown price"
    low_high = estimate.interval.get(name)
    return f"about ${price:,.2f}" + (
        f" (${low_high[0]:,.0f} to ${low_high[1]:,.0f})" if low_high else ""
    )


def _time(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.0f} seconds"
