"""Check a run against limits and a baseline: pass, fail, or not enough evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from editjudge.errors import Option, UsageError, near_miss
from editjudge.matching import Match
from editjudge.report.run_data import (
    RunData,
    aggregates,
    pair_runs,
    shared,
)
from editjudge.report.selection import Primary, deciding_both
from editjudge.report.tables import Figure, Table, between, in_line
from editjudge.report.words import check_reason, plain, rule_words
from editjudge.stats.gate import UNSURE, Gate, gate
from editjudge.stats.summary import Aggregate, aggregate

MANY = 4
"""So many checks that are undecided in the same way are reported in one line."""


@dataclass(frozen=True)
class GateReport:
    """The checks of a gate, and what they rest on."""

    judged: RunData
    before: RunData | None
    gate: Gate
    judge: str
    baseline_judge: str
    models: Sequence[str]
    """Several are pooled."""
    match: Match | None

    @property
    def outcome(self) -> str:
        return self.gate.outcome

    @property
    def undecidable(self) -> str | None:
        """Why there is nothing to decide on; None where every check has a score."""
        empty = [rule_words(check.rule) for check in self.gate.checks if check.n == 0]
        if not empty:
            return None
        return f"nothing to decide on: no score for {', '.join(empty)}{self._unscored_parts()}"

    def _unscored_parts(self) -> str:
        """Why a mean of several factors has no score: which of them nobody scored."""
        scores = self.judged.scores.where(judge=self.judge)
        scored = {
            name
            for name in scores.factor.present()
            if np.isfinite(scores.where(factor=name).score).any()
        }
        empty = {check.rule.factor for check in self.gate.checks if check.n == 0}
        parts = {
            one.name: [f for f in one.factors if f not in scored]
            for one in aggregates(self.judged, self.judge)
        }
        return "".join(
            f"; {name} is a mean of factors, of which {self.judge} scored none of these: {', '.join(parts[name])}"
            if parts[name]
            else f"; no edit has scores on all factors of {name}"
            for name in parts
            if name in empty
        )

    def as_json(self) -> dict[str, Any]:
        before = self.before
        names = {"run": self.judged.run.name}
        pending = {"pending_baseline": before.pending} if before else {}
        return {
            **names,
            "baseline": before and before.run.name,
            "pending": self.judged.pending,
            **pending,
            **plain(self.gate),
            **(self.match.counts() if self.match else {}),
        }

    def lead(self) -> list[str]:
        return [f"gate: {self.outcome}", *self.judged.unjudged(), *self.judged.lead()]

    def _paired(self) -> list[str]:
        return (
            self.match.describe(self.judged.run.name, self.before.run.name)
            if self.match and self.before
            else []
        )

    def table(self) -> Table:
        gate = self.gate
        mine = self.judge
        theirs = self.baseline_judge
        rows = []
        for c in gate.checks:
            failed = c.failed + c.failed_baseline or None
            digits = max(2, in_line([c.ci]))
            bounds = between(c.bounds, digits, sign=c.rule.is_drop) if failed else None
            estimate = Figure(c.estimate, c.ci, sign=c.rule.is_drop, digits=digits)
            rows.append(
                (
                    c.outcome,
                    rule_words(c.rule),
                    c.n,
                    c.groups,
                    failed,
                    estimate,
                    bounds,
                    c.method,
                )
            )
        caption = f"Checks by {mine}: {100 * (1 - 2 * gate.alpha):.3g} % CI, each end at {100 * gate.alpha:.3g} %"
        notes = [*_failures(gate), *_notes(gate), *self._paired()]
        if gate.left_out:
            left = ", ".join(gate.left_out)
            notes.append(
                f"not compared with the baseline, since no edit has a score on both sides: {left}"
            )
        if theirs != mine:
            notes.append(
                f"the baseline is judged by {theirs}, a recorded file: check that it is the same judge"
            )
        if len(self.models) > 1:
            notes.append(
                f"{len(self.models)} models are pooled; name one to check it alone: {', '.join(self.models)}"
            )
        columns = (
            "outcome",
            "check",
            "scores",
            "images",
            "failed",
            "estimate",
            "bounds",
            "method",
        )
        legend = {
            "bounds": "the estimate with all that failed at the worst and at the best of the scale",
            "method": "studentised: bootstrap-t over source images; guaranteed: allows for any score not seen; "
            "identity: the same answers as the baseline",
        }
        return Table.of(
            columns, rows, caption, notes=tuple(notes), legend=legend
        ).trimmed("failed", "bounds")


@dataclass(frozen=True)
class GateLimits:
    """Thresholds that a run has to meet."""

    minimum: Mapping[str, float] = field(default_factory=dict)
    maximum: Mapping[str, float] = field(default_factory=dict)
    max_drop: float | Mapping[str, float] = 0.0
    """For all primary scores, or for these scores alone."""
    model: str | None = None
    judge: str | None = None
    alpha: float = 0.05
    max_failures: float = 0.0
    primary: Sequence[str] = ()
    guaranteed: bool = False


def gate_run(run: RunData, baseline: RunData | None, limits: GateLimits) -> GateReport:
    """Check a run's means against limits and a baseline; load both with `pairing` where there is a baseline.

    Several judges decide by their mean, unless a judge is named. The primary scores are compared with the baseline,
    unless `max_drop` names others.
    """
    run, before, judges = deciding_both(run, baseline or run, limits.judge)
    if len(judges) > 1:
        # One judge scores a factor under two rubrics: its scores of either rubric decide.
        raise UsageError(
            f"run {run.run.name} has several judges: name one with --judge: {', '.join(judges)}",
            options=[Option("judge")],
        )
    [(mine, theirs)] = judges.items()
    models = () if limits.model else run.scores.model.present()
    run = _of_model(run, limits.model)
    match = None
    if baseline is not None:
        before = _of_model(before, limits.model, optional=True)
        scores, base, match = pair_runs(run, before, "task")
        run = replace(run, scores=scores)
        baseline = replace(before, scores=shared(base))
    result = _gate(run, baseline, mine, theirs, limits)
    return GateReport(run, baseline, result, mine, theirs, models, match)


def _gate(
    run: RunData, before: RunData | None, mine: str, theirs: str, limits: GateLimits
) -> Gate:
    scores = run.scores.where(judge=mine)
    sums = aggregates(run, mine)
    primary = Primary.of(run, limits.primary).names
    named = [*limits.minimum, *limits.maximum]
    if isinstance(limits.max_drop, Mapping):
        drops = limits.max_drop
        named += drops
    else:
        # Where nothing is primary, as with metrics of different kinds, every factor is compared with the baseline.
        drops = dict.fromkeys(primary or scores.factor.present(), limits.max_drop)
    for factor in named:
        names = [*scores.factor.present(), *(one.name for one in sums)]
        _known("factor", factor, names)
    for factor, most in limits.maximum.items():
        if factor not in run.falling:
            limit = Option("min", {factor: most}, "minimum")
            raise UsageError(
                f"{factor}: higher is better, so its limit is {limit}", options=[limit]
            )
        if factor in limits.minimum:
            raise UsageError(
                f"{factor} has a limit already: --max and --min mean the same where lower is better",
                options=[
                    Option("max", argument="maximum"),
                    Option("min", argument="minimum"),
                ],
            )
    minimum = {**limits.minimum, **limits.maximum}
    base = None
    compared: list[Aggregate] = []
    if before is not None:
        compared = [one for one in sums if one.name in drops]
        same = [one for one in aggregates(before, theirs) if one in compared]
        base = aggregate(before.scores.where(judge=theirs), same)
    added = [one for one in sums if one.name in minimum or one in compared]
    return gate(
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


def _of_model(judged: RunData, model: str | None, *, optional: bool = False) -> RunData:
    models = judged.scores.model.present()
    if model is None or (optional and model not in models):
        return judged
    scores = judged.scores.where(model=_known("model", model, models))
    return replace(judged, scores=scores, side=judged.side.of_model(model))


def _known(kind: str, name: str, names: Sequence[str]) -> str:
    if name not in names:
        raise UsageError(
            f'the run has no {kind} "{name}"{near_miss(name, names)} It has {", ".join(names)}'
        )
    return name


def _failures(result: Gate) -> list[str]:
    """Return what failed, and which checks that could overturn."""
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


def _notes(result: Gate) -> list[str]:
    """Why each check did not pass; where many wait for more images, in one line, since the table has their figures."""
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
    return notes
