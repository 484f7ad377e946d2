"""`gate`: check a run against limits and a baseline. The outcome is pass, fail, or not enough evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from editjudge.errors import Option, UsageError, printable
from editjudge.report.answers import Answer
from editjudge.report.run_data import RunData, check_name, pair_runs, shared
from editjudge.report.selection import (
    ACROSS,
    SameRubrics,
    deciding_both,
    primary_scores,
    same_rubrics,
)
from editjudge.report.tables import Cell, Figure, Table, bounds_figure, column_decimals
from editjudge.report.words import check_reason, plain, rule_words
from editjudge.stats import gate as statistics
from editjudge.stats.gate import UNSURE, Gate
from editjudge.stats.summary import Aggregate, aggregate

MANY = 4
"""Minimum number of inconclusive checks for a single line to report all of them."""


@dataclass(frozen=True)
class GateLimits:
    """Thresholds that a run must meet."""

    minimum: Mapping[str, float] = field(default_factory=dict)
    maximum: Mapping[str, float] = field(default_factory=dict)
    max_drop: float | Mapping[str, float] = 0.0
    """A single limit for all primary scores, or limits keyed by score."""
    model: str | None = None
    judge: str | None = None
    alpha: float = 0.05
    max_failures: float = 0.0
    primary: Sequence[str] = ()
    guaranteed: bool = False


def gate(
    run: RunData,
    baseline: RunData | None,
    limits: GateLimits,
    *,
    across_rubrics: bool = False,
    if_unsure: Literal["pass", "fail"] | None = None,
) -> Answer:
    """Check a run's means against limits and a baseline. With a baseline, both runs must be loaded with `pairing`.

    With several judges their mean is checked, unless one judge is named. The primary scores are compared with the
    baseline, unless `max_drop` names others.
    """
    same = _same_rubrics(run, baseline, limits, across_rubrics)
    # Limits apply without a baseline too, so factors with another scale are removed from the baseline only.
    run, before, judges = deciding_both(run, same.b, limits.judge)
    if len(judges) > 1:
        # A judge that scores a factor under two rubrics counts as two judges.
        raise UsageError(
            f"run {run.run.name} has several judges: name one with --judge: {', '.join(judges)}",
            options=[Option("judge")],
        )
    [(judge, judge_before)] = judges.items()
    models = () if limits.model else run.scores.model.present()
    run = _of_model(run, limits.model)
    document = {"run": run.run.name, "baseline": None, "pending": run.pending}
    notes = []
    counts = {}
    if baseline is not None:
        if limits.model in before.scores.model.present():
            before = _of_model(before, limits.model)
        scores, scores_before, match = pair_runs(run, before, "task")
        run = replace(run, scores=scores)
        before = replace(before, scores=shared(scores_before))
        document["baseline"] = before.run.name
        document["pending_baseline"] = before.pending
        notes = match.describe(run.run.name, before.run.name)
        counts = {**match.counts(), **same.as_json()}
    result = _checked(run, before if baseline else None, judge, judge_before, limits)
    if judge_before != judge:
        notes.append(
            f"the baseline is judged by {judge_before}, a recorded file: check that it is the same judge"
        )
    if len(models) > 1:
        notes.append(
            f"{len(models)} models are pooled; name one to check it alone: {', '.join(models)}"
        )
    is_open = result.outcome != "fail" and if_unsure is None
    return Answer(
        {
            **document,
            **plain(result),
            **counts,
            "error": _undecidable(result, run, judge) if is_open else None,
        },
        [f"gate: {result.outcome}", *run.unjudged(), *run.lead(), *same.lead()],
        [_table(result, judge, notes)],
    )


def _same_rubrics(
    run: RunData, baseline: RunData | None, limits: GateLimits, across_rubrics: bool
) -> SameRubrics:
    if baseline is not None:
        drops = limits.max_drop if isinstance(limits.max_drop, Mapping) else ()
        return same_rubrics(run, baseline, across_rubrics=across_rubrics, factors=drops)
    if across_rubrics:
        raise UsageError(
            f"{ACROSS} needs a baseline: name one with --baseline",
            options=[ACROSS, Option("baseline")],
        )
    return SameRubrics(run, run)


def _of_model(run: RunData, model: str | None) -> RunData:
    if model is None:
        return run
    check_name("model", model, run.scores.model.present())
    scores = run.scores.where(model=model)
    return replace(run, scores=scores, side=run.side.of_model(model))


def _checked(
    run: RunData,
    before: RunData | None,
    judge: str,
    judge_before: str,
    limits: GateLimits,
) -> Gate:
    scores = run.scores.where(judge=judge)
    sums = run.aggregates[judge]
    primary, _ = primary_scores(run, limits.primary)
    # Without primary scores, as for metrics of different kinds, every factor is compared with the baseline.
    drops = limits.max_drop
    named = [*limits.minimum, *limits.maximum]
    if isinstance(drops, Mapping):
        named += drops
    else:
        drops = dict.fromkeys(primary or scores.factor.present(), drops)
    for factor in named:
        names = [*scores.factor.present(), *(mean.name for mean in sums)]
        check_name("factor", factor, names)
    for factor, most in limits.maximum.items():
        if factor not in run.falling:
            limit = Option("min", {factor: most}, "minimum")
            raise UsageError(
                f"{factor}: higher is better, so its limit is {limit}", options=[limit]
            )
        if factor in limits.minimum:
            raise UsageError(
                f"{factor} has two limits: --max and --min mean the same if lower is better; give one of them",
                options=[
                    Option("max", argument="maximum"),
                    Option("min", argument="minimum"),
                ],
            )
    minimum = {**limits.minimum, **limits.maximum}
    base = None
    compared: list[Aggregate] = []
    if before is not None:
        compared = [mean for mean in sums if mean.name in drops]
        same = [mean for mean in before.aggregates[judge_before] if mean in compared]
        base = aggregate(before.scores.where(judge=judge_before), same)
    added = [mean for mean in sums if mean.name in minimum or mean in compared]
    return statistics.gate(
        aggregate(scores, added),
        minimum,
        baseline=base,
        max_drop=drops,
        on="pair",
        scales=run.all_scales(),
        falling=run.falling,
        alpha=limits.alpha,
        max_failures=limits.max_failures,
        guaranteed=limits.guaranteed,
    )


def _undecidable(result: Gate, run: RunData, judge: str) -> str | None:
    """Return an error message if a check has no score on which to decide, else None."""
    empty = [check.rule for check in result.checks if check.n == 0]
    if not empty:
        return None
    names = ", ".join(map(rule_words, empty))
    message = f"nothing to decide on: no score for {names}"
    scores = run.scores.where(judge=judge)
    for mean in run.aggregates[judge]:
        if mean.name in {rule.factor for rule in empty}:
            unscored = ", ".join(
                name
                for name in mean.factors
                if not np.isfinite(scores.where(factor=name).score).any()
            )
            message += (
                f"; {mean.name} is a mean of factors, of which {judge} scored none of these: {unscored}"
                if unscored
                else f"; no edit has scores on all factors of {mean.name}"
            )
    return message


# --- for continuous integration --------------------------------------------------------------------------------


def junit(answer: Answer, *, fails_if_unsure: bool = False) -> str:
    """Return a gate's checks as JUnit XML. An inconclusive check counts as skipped, or as failed if it fails the gate."""
    from xml.etree import ElementTree

    name = printable(f"editjudge gate {answer['run']}")
    suite = ElementTree.Element("testsuite", name=name)
    counts = Counter[str]()

    def add(case: str, outcome: str, reason: str) -> None:
        test = ElementTree.SubElement(suite, "testcase", classname=name, name=case)
        kinds = {"fail": "failure", "error": "error", UNSURE: "skipped"}
        if fails_if_unsure:
            kinds[UNSURE] = "failure"
        counts["tests"] += 1
        if kind := kinds.get(outcome):
            counts[kind] += 1
            ElementTree.SubElement(test, kind, message=printable(reason))

    for check in answer["checks"]:
        add(printable(check["rule"]), check["outcome"], check["reason"] or "")
    for passport in answer.get("passports", ()):
        for quality, found in passport["required"].items():
            case = printable(f"passport of {passport['judge']}: {quality}")
            add(case, "pass" if found == "yes" else "fail", found)
    if failures := answer.get("failures"):
        share = (
            f"{failures['failed']:,} of {failures['judgements']:,} judgements failed"
        )
        add("failed judgements", "fail" if failures["too_many"] else "pass", share)
    if answer["error"]:
        add("evidence", "error", answer["error"])
    suite.set("tests", str(counts["tests"]))
    suite.set("failures", str(counts["failure"]))
    suite.set("errors", str(counts["error"]))
    suite.set("skipped", str(counts["skipped"]))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, "unicode", xml_declaration=True) + "\n"


# --- the table ------------------------------------------------------------------------------------------------


def _table(result: Gate, judge: str, more: Sequence[str]) -> Table:
    rows: list[dict[str, Cell]] = []
    for check in result.checks:
        digits = max(2, column_decimals([check.ci]))
        failed = check.failed + check.failed_baseline
        sign = check.rule.is_drop
        bounds = bounds_figure(check.bounds, digits, sign=sign)
        rows.append(
            {
                "outcome": check.outcome,
                "check": rule_words(check.rule),
                "scores": check.n,
                "images": check.groups,
                "failed": failed or None,
                "estimate": Figure(check.estimate, check.ci, sign=sign, digits=digits),
                "bounds": bounds if failed else None,
                "method": check.method,
            }
        )
    confidence = f"{100 * (1 - 2 * result.alpha):.3g} % CI"
    caption = f"Checks by {judge}: {confidence}, each end at {100 * result.alpha:.3g} %"
    legend = {
        "bounds": "the estimate with all failed judgements at the worst and at the best score",
        "method": "studentised: bootstrap-t over source images; guaranteed: allows for unseen scores; "
        "identity: the same answers as the baseline",
    }
    notes = [*_failures(result), *_reasons(result), *more]
    table = Table.listing(rows, caption, notes=notes, legend=legend)
    return table.trimmed("failed", "bounds")


def _failures(result: Gate) -> list[str]:
    """Return notes on failed judgements, and on checks that the failures could overturn."""
    lost = result.failures
    notes = []
    if lost.failed:
        pending = f" ({lost.pending:,} of them pending)" if lost.pending else ""
        share = f"{lost.failed:,} of {lost.judgements:,} judgements failed{pending}"
        limit = f"the allowed share of {lost.allowed:g}"
        notes.append(
            f"{share}, more than {limit}, so the gate fails"
            if lost.too_many
            else f"{share}, within {limit}"
        )
    doubtful = ", ".join(rule_words(c.rule) for c in result.checks if c.overturnable)
    if doubtful:
        notes.append(
            f"failed judgements at an end of the scale could overturn: {doubtful}"
        )
    return notes


def _reasons(result: Gate) -> list[str]:
    """Return the reasons why checks did not pass. If many checks need more images, they share one line."""
    waiting = [c for c in result.checks if c.outcome == UNSURE and c.ci]
    if len(waiting) < MANY:
        waiting = []
    notes = [
        f"{rule_words(c.rule)}: {check_reason(c)}"
        for c in result.checks
        if c.outcome != "pass" and c not in waiting
    ]
    if waiting:
        more = ", ".join(
            f"{rule_words(c.rule)} about {c.needed:,}" for c in waiting if c.needed
        )
        near = ", ".join(rule_words(c.rule) for c in waiting if not c.needed)
        parts = [f"source images that would decide: {more}"] if more else []
        parts += [f"inconclusive at any practical number: {near}"] if near else []
        notes.append(f"{len(waiting)} checks are inconclusive; {'; '.join(parts)}")
    if result.left_out:
        left_out = ", ".join(result.left_out)
        notes.append(
            f"not compared with the baseline, since no edit has a score on both sides: {left_out}"
        )
    return notes
