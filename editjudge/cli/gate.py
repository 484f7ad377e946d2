"""`editjudge gate`: pass, fail, or not enough evidence."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from editjudge.cli.completion import runs
from editjudge.cli.options import run_argument, store_option
from editjudge.cli.output import emit, json_option, safe
from editjudge.cli.reading import load_run, show
from editjudge.errors import UsageError, near_miss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editjudge.report.run_data import RunData
    from editjudge.stats.columns import Scores
    from editjudge.stats.gate import Gate

FAILED = 100
MANY = 4
"""So many checks that are undecided in the same way are told in one line."""


@click.command(epilog="\b\nExample: editjudge gate mine --min alignment=5 --baseline before --max-drop 0.2")
@run_argument
@click.option(
    "--min",
    "minima",
    multiple=True,
    metavar="FACTOR=VALUE",
    help="Least mean of a factor, or the highest where lower is better; repeatable.",
)
@click.option(
    "--max",
    "maxima",
    multiple=True,
    metavar="FACTOR=VALUE",
    help="Largest mean of a factor of which lower is better, such as l1; repeatable.",
)
@click.option(
    "--baseline",
    metavar="RUN",
    shell_complete=runs,
    help="A run over the same edits, by the same judge, to compare with.",
)
@click.option("--baseline-store", metavar="STORE", help="Where the baseline is kept, if elsewhere.")
@click.option(
    "--max-drop",
    "max_drops",
    multiple=True,
    metavar="[FACTOR=]VALUE",
    help="How far each factor, or this one alone, may get worse than the baseline [0]; repeatable.",
)
@click.option("--if-unsure", type=click.Choice(["pass", "fail"]), help="Exit as if passed [default] or failed.")
@click.option("--model", help="Only edits of this model.")
@click.option("--judge", help="Only scores of this judge; needed where the run has several.")
@click.option(
    "--alpha",
    type=click.FloatRange(0, 0.5, min_open=True),
    default=0.05,
    show_default=True,
    help="Chance that a run which exactly meets every threshold fails, over all checks.",
)
@click.option(
    "--max-failures",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="P",
    help="Largest share of failed judgements, of those that the checks rest on; more fail the gate.",
)
@store_option
@json_option
def command(
    run: str,
    minima: tuple[str, ...],
    maxima: tuple[str, ...],
    baseline: str | None,
    baseline_store: str | None,
    max_drops: tuple[str, ...],
    if_unsure: str | None,
    model: str | None,
    judge: str | None,
    alpha: float,
    max_failures: float,
    store_place: str,
    as_json: bool,
) -> None:
    """Exit with 100 where the evidence says worse, and not where noise does.

    Where lower is better (reports mark such factors), the limit is a ceiling, --max or --min, and a drop is a rise.

    A check fails only if its whole interval is on the wrong side, and passes only if it is on the right one. Anything
    else is not enough evidence, which exits as --if-unsure says. More failed judgements than --max-failures fail the
    gate, whatever the others scored; a check says what its failures could change at the ends of the scale. A check
    without a single score to decide on is an error, unless the gate fails or --if-unsure says what to make of it.
    Factors that no edit has a score of on both sides are not held against a baseline, and are named; those whose
    judging failed are.

    An edit is held against the baseline's edits of the same input and instruction (and ground truth and mask), whatever
    their ids: of the same model where both runs have one in common, else of whoever made them. How many have no
    counterpart is said; where none has one there is nothing to hold against, and that is an error.
    """
    drops = _drops(max_drops)
    if max_drops and baseline is None:
        raise UsageError("--max-drop needs a --baseline to drop from")
    judged = load_run(store_place, run, pairing=baseline is not None)
    before = None if baseline is None else load_run(baseline_store or store_place, baseline, pairing=True)
    mine, theirs = _judges(judged, before, judge)
    models = () if model else judged.scores.model.present()
    judged, before = _of_model(judged, model), before and _of_model(before, model, optional=True)
    base, match = None, None
    if before is not None:
        from editjudge.report.run_data import pair_runs, shared

        scores, base, match = pair_runs(judged, before, "task")
        judged, base = replace(judged, scores=scores), shared(base.where(judge=theirs))
    found = _gate(judged, base, mine, _limits("--min", minima), _limits("--max", maxima), drops, alpha, max_failures)
    worse = found.outcome == "fail" or (found.outcome != "pass" and if_unsure == "fail")
    empty = [check.rule for check in found.checks if check.n == 0]
    told = f"nothing to decide on: no score for {', '.join(empty)}; --if-unsure says what to make of that"
    error = told if empty and not worse and if_unsure is None else None
    if as_json:
        names = {"run": judged.run.name, "baseline": before and before.run.name, "pending": judged.pending}
        names |= {"pending_baseline": before.pending} if before else {}
        emit({**names, **found.as_json(), **(match.counts() if match else {}), "error": error})
    else:
        paired = match.words(judged.run.name, before.run.name) if match and before else []
        _tell(judged, found, mine, theirs, models, paired)
    if error:
        click.echo(f"editjudge: {safe(error)}", err=True)
        sys.exit(1)
    sys.exit(FAILED if worse else 0)


def _gate(
    judged: RunData,
    base: Scores | None,
    mine: str,
    minimum: dict[str, float],
    maximum: dict[str, float],
    drops: float | dict[str, float],
    alpha: float,
    max_failures: float,
) -> Gate:
    from editjudge.report.run_data import aggregates
    from editjudge.stats.gate import gate
    from editjudge.stats.summary import aggregate

    scores = judged.scores.where(judge=mine)
    known = aggregates(judged, mine)
    for factor in (*minimum, *maximum, *(drops if isinstance(drops, dict) else ())):
        _known("factor", factor, [*scores.factor.present(), *(one.name for one in known)])
    for factor, most in maximum.items():
        if factor not in judged.falling:
            raise UsageError(f"{factor}: higher is better, so its limit is --min {factor}={most:g}")
        if factor in minimum:
            raise UsageError(f"{factor} has a limit already: --max and --min mean the same where lower is better")
    minimum = minimum | maximum
    added = [one for one in known if one.name in minimum]
    return gate(
        aggregate(scores, added),
        minimum,
        baseline=base,
        max_drop=drops,
        on="pair",
        scales=judged.all_scales(),
        falling=judged.falling,
        alpha=alpha,
        max_failures=max_failures,
    )


def _judges(judged: RunData, before: RunData | None, named: str | None) -> tuple[str, str]:
    """The judge whose scores decide, and what the baseline calls the same one."""
    from editjudge.report.run_data import common_judges

    if named is not None:
        _known("judge", named, judged.scores.judge.present())
        judged = replace(judged, scores=judged.scores.where(judge=named))
    same = common_judges(judged, before or judged)
    if len(same) > 1:
        raise UsageError(f"run {judged.run.name} has several judges: name one with --judge: {', '.join(same)}")
    return next(iter(same.items()))


def _of_model(judged: RunData, model: str | None, *, optional: bool = False) -> RunData:
    models = judged.scores.model.present()
    if model is None or (optional and model not in models):
        return judged
    scores = judged.scores.where(model=_known("model", model, models))
    return replace(judged, scores=scores, side=judged.side.only(model))


def _known(kind: str, name: str, names: Sequence[str]) -> str:
    if name not in names:
        raise UsageError(f'the run has no {kind} "{name}"{near_miss(name, names)} It has {", ".join(names)}')
    return name


def _limits(option: str, given: tuple[str, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in given:
        factor, equals, value = text.rpartition("=")
        number = _number(value)
        if not factor or not equals or number is None:
            raise UsageError(f'{option} "{text}": expected FACTOR=VALUE, such as alignment=5')
        if factor in found:
            raise UsageError(f"{option} names {factor} twice")
        found[factor] = number
    return found


def _drops(given: tuple[str, ...]) -> float | dict[str, float]:
    """One value for every factor, or those of single factors, which are then all that is held against the baseline."""
    plain = [text for text in given if "=" not in text]
    if plain and len(given) > 1:
        raise UsageError("--max-drop: one VALUE for all factors, or FACTOR=VALUE for each that is meant")
    values = {text: _number(text) for text in plain} or _limits("--max-drop", given)
    for text, value in values.items():
        if value is None or value < 0:
            raise UsageError(f"--max-drop {text}: expected a number of 0 or more")
    numbers = {text: value for text, value in values.items() if value is not None}
    return numbers if numbers and not plain else sum(numbers.values())


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def _failures(found: Gate) -> list[str]:
    """What failed, and which checks that could overturn."""
    lost, notes = found.failures, []
    if lost.failed:
        pending = f" ({lost.pending:,} of them pending)" if lost.pending else ""
        share = f"{lost.failed:,} of {lost.judgements:,} judgements failed{pending}"
        more = f"more than --max-failures {lost.allowed:g} allows, so the gate fails"
        notes.append(f"{share}, {more if lost.too_many else f'which --max-failures {lost.allowed:g} allows'}")
    doubtful = ", ".join(c.rule for c in found.checks if c.overturnable)
    if doubtful:
        notes.append(f"failed judgements at an end of the scale could overturn: {doubtful}")
    return notes


def _notes(found: Gate) -> list[str]:
    """Why each check did not pass; where many wait for more images, in one line, since the table has their figures."""
    from editjudge.stats.gate import UNSURE

    waiting = [c for c in found.checks if c.outcome == UNSURE and c.ci]
    if len(waiting) < MANY:
        waiting = []
    notes = [f"{c.rule}: {c.reason}" for c in found.checks if c.outcome != "pass" and c not in waiting]
    if waiting:
        more = ", ".join(f"{c.rule} about {c.needed:,}" for c in waiting if c.needed)
        near = ", ".join(c.rule for c in waiting if not c.needed)
        told = [f"source images that would decide: {more}"] if more else []
        told += [f"inconclusive at any practical number: {near}"] if near else []
        notes.append(f"{len(waiting)} checks are inconclusive, their CI contains the limit; {'; '.join(told)}")
    return notes


def _tell(judged: RunData, found: Gate, mine: str, theirs: str, models: Sequence[str], paired: Sequence[str]) -> None:
    from editjudge.report.tables import Figure, Table, between, in_line

    rows = [
        (
            c.outcome, c.rule, c.n, c.groups, c.failed + c.failed_baseline or None,
            Figure(c.estimate, c.ci, sign="by at most" in c.rule),
            between(c.bounds, in_line([c.ci]), sign="by at most" in c.rule) if c.failed + c.failed_baseline else None,
        )
        for c in found.checks
    ]  # fmt: skip
    level = 1 - 2 * found.alpha / len(found.checks)
    limits = f"{100 * level:.3g} % intervals, false alarms at most {100 * found.alpha:.3g} % over all checks"
    caption = f"Checks by {mine}: {limits}"
    notes = [*_failures(found), *_notes(found), *paired]
    if found.left_out:
        left = ", ".join(found.left_out)
        notes.append(f"not held against the baseline, since no edit has a score on both sides: {left}")
    if theirs != mine:
        notes.append(f"the baseline is judged by {theirs}: whether that is the same judge is for you to know")
    if len(models) > 1:
        notes.append(f"{len(models)} models are pooled; --model names one: {', '.join(models)}")
    columns = ("outcome", "check", "scores", "images", "failed", "estimate", "bounds")
    legend = {"bounds": "the estimate with all that failed at the worst and at the best of the scale"}
    table = Table.of(columns, rows, caption, notes=tuple(notes), legend=legend).trimmed("failed", "bounds")
    show([f"gate: {found.outcome}", *judged.lead()], [table])
