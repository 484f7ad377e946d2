"""Check a run against limits and a baseline: pass, fail, or not enough evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from editjudge.edit import Match
from editjudge.errors import UsageError, near_miss
from editjudge.report.comparison import Primary
from editjudge.report.panel import deciding
from editjudge.report.run_data import RunData, aggregates, common_judges, pair_runs, shared
from editjudge.report.tables import Figure, Table, between, in_line
from editjudge.stats.gate import UNSURE, Gate, gate
from editjudge.stats.summary import aggregate

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
        empty = [check.rule for check in self.gate.checks if check.n == 0]
        if not empty:
            return None
        return f"nothing to decide on: no score for {', '.join(empty)}{self._unscored_parts()}"

    def _unscored_parts(self) -> str:
        """Why a mean of several factors has no score: which of them nobody scored."""
        scores = self.judged.scores.where(judge=self.judge)
        scored = {name for name in scores.factor.present() if np.isfinite(scores.where(factor=name).score).any()}
        empty = {check.factor for check in self.gate.checks if check.n == 0}
        parts = {one.name: [f for f in one.factors if f not in scored] for one in aggregates(self.judged, self.judge)}
        return "".join(
            f"; {name} is a mean of factors, of which {self.judge} scored none of these: {', '.join(parts[name])}"
            if parts[name]
            else f"; no edit has scores on all factors of {name}"
            for name in parts
            if name in empty
        )

    def as_json(self) -> dict[str, Any]:
        before, names = self.before, {"run": self.judged.run.name}
        pending = {"pending_baseline": before.pending} if before else {}
        return {
            **names,
            "baseline": before and before.run.name,
            "pending": self.judged.pending,
            **pending,
            **self.gate.as_json(),
            **(self.match.counts() if self.match else {}),
        }

    def lead(self) -> list[str]:
        return [f"gate: {self.outcome}", *self.judged.unjudged(), *self.judged.lead()]

    def _paired(self) -> list[str]:
        return self.match.words(self.judged.run.name, self.before.run.name) if self.match and self.before else []

    def table(self) -> Table:
        gate, mine, theirs = self.gate, self.judge, self.baseline_judge
        rows = []
        for c in gate.checks:
            failed = c.failed + c.failed_baseline or None
            digits = max(2, in_line([c.ci]))
            bounds = between(c.bounds, digits, sign=c.is_drop) if failed else None
            estimate = Figure(c.estimate, c.ci, sign=c.is_drop, digits=digits)
            rows.append((c.outcome, c.rule, c.n, c.groups, failed, estimate, bounds, c.method))
        caption = f"Checks by {mine}: {100 * (1 - 2 * gate.alpha):.3g} % CI, each end at {100 * gate.alpha:.3g} %"
        notes = [*_failures(gate), *_notes(gate), *self._paired()]
        if gate.left_out:
            left = ", ".join(gate.left_out)
            notes.append(f"not compared with the baseline, since no edit has a score on both sides: {left}")
        if theirs != mine:
            notes.append(f"the baseline is judged by {theirs}, a recorded file: check that it is the same judge")
        if len(self.models) > 1:
            notes.append(f"{len(self.models)} models are pooled; --model names one: {', '.join(self.models)}")
        columns = ("outcome", "check", "scores", "images", "failed", "estimate", "bounds", "method")
        legend = {
            "bounds": "the estimate with all that failed at the worst and at the best of the scale",
            "method": "studentised: bootstrap-t over source images; guaranteed: allows for any score not seen; "
            "identity: the same answers as the baseline",
        }
        return Table.of(columns, rows, caption, notes=tuple(notes), legend=legend).trimmed("failed", "bounds")


def gate_run(
    judged: RunData,
    before: RunData | None = None,
    *,
    minimum: Mapping[str, float] | None = None,
    maximum: Mapping[str, float] | None = None,
    max_drop: float | dict[str, float] = 0.0,
    model: str | None = None,
    judge: str | None = None,
    alpha: float = 0.05,
    max_failures: float = 0.0,
    primary: Sequence[str] = (),
    guaranteed: bool = False,
) -> GateReport:
    """Check a run's means against limits and a baseline; load both with `pairing` where there is a baseline.

    Several judges decide by their mean, unless `judge` names one. The primary scores are compared with the baseline,
    unless `max_drop` names others.
    """
    common = common_judges(judged, before or judged)
    if judge is not None or len(common) > 1:
        judged = deciding(replace(judged, scores=judged.scores.where(judge=list(common))), judge)
        if before is not None:
            before = deciding(replace(before, scores=before.scores.where(judge=list(common.values()))), judge)
    mine, theirs = _judges(judged, before)
    models = () if model else judged.scores.model.present()
    judged, before = _of_model(judged, model), before and _of_model(before, model, optional=True)
    base, match = None, None
    if before is not None:
        scores, base, match = pair_runs(judged, before, "task")
        judged = replace(judged, scores=scores)
        before = replace(before, scores=shared(base))
    settings = {"alpha": alpha, "max_failures": max_failures, "guaranteed": guaranteed}
    checked = Primary.of(judged, primary).names
    result = _gate(
        judged, before, (mine, theirs), dict(minimum or {}), dict(maximum or {}), max_drop, checked, settings
    )
    return GateReport(judged, before, result, mine, theirs, models, match)


def _gate(
    judged: RunData,
    before: RunData | None,
    judges: tuple[str, str],
    minimum: dict[str, float],
    maximum: dict[str, float],
    drops: float | dict[str, float],
    primary: Sequence[str],
    settings: Mapping[str, Any],
) -> Gate:
    mine, theirs = judges
    scores = judged.scores.where(judge=mine)
    sums = aggregates(judged, mine)
    for factor in (*minimum, *maximum, *(drops if isinstance(drops, dict) else ())):
        _known("factor", factor, [*scores.factor.present(), *(one.name for one in sums)])
    for factor, most in maximum.items():
        if factor not in judged.falling:
            raise UsageError(f"{factor}: higher is better, so its limit is --min {factor}={most:g}")
        if factor in minimum:
            raise UsageError(f"{factor} has a limit already: --max and --min mean the same where lower is better")
    minimum = minimum | maximum
    if not isinstance(drops, dict):
        # Where nothing is primary, as with metrics of different kinds, every factor is compared with the baseline.
        drops = dict.fromkeys(primary or scores.factor.present(), drops)
    base = None
    if before is not None:
        wanted = [one for one in sums if one.name in drops]
        same = [one for one in aggregates(before, theirs) if one in wanted]
        base = aggregate(before.scores.where(judge=theirs), same)
    added = [one for one in sums if one.name in minimum or (before is not None and one.name in drops)]
    return gate(
        aggregate(scores, added),
        minimum,
        baseline=base,
        max_drop=drops,
        on="pair",
        scales=judged.all_scales(),
        falling=judged.falling,
        **settings,
    )


def _judges(judged: RunData, before: RunData | None) -> tuple[str, str]:
    """Return the judge whose scores decide, and what the baseline calls the same one."""
    same = common_judges(judged, before or judged)
    if len(same) > 1:
        # One judge scores a factor under two rubrics: its scores of either rubric decide.
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


def _failures(result: Gate) -> list[str]:
    """What failed, and which checks that could overturn."""
    lost, notes = result.failures, []
    if lost.failed:
        pending = f" ({lost.pending:,} of them pending)" if lost.pending else ""
        share = f"{lost.failed:,} of {lost.judgements:,} judgements failed{pending}"
        more = f"more than --max-failures {lost.allowed:g} allows, so the gate fails"
        notes.append(f"{share}, {more if lost.too_many else f'which --max-failures {lost.allowed:g} allows'}")
    doubtful = ", ".join(c.rule for c in result.checks if c.overturnable)
    if doubtful:
        notes.append(f"failed judgements at an end of the scale could overturn: {doubtful}")
    return notes


def _notes(result: Gate) -> list[str]:
    """Why each check did not pass; where many wait for more images, in one line, since the table has their figures."""
    waiting = [c for c in result.checks if c.outcome == UNSURE and c.ci]
    if len(waiting) < MANY:
        waiting = []
    notes = [f"{c.rule}: {c.reason}" for c in result.checks if c.outcome != "pass" and c not in waiting]
    if waiting:
        more = ", ".join(f"{c.rule} about {c.needed:,}" for c in waiting if c.needed)
        near = ", ".join(c.rule for c in waiting if not c.needed)
        parts = [f"source images that would decide: {more}"] if more else []
        parts += [f"inconclusive at any practical number: {near}"] if near else []
        notes.append(f"{len(waiting)} checks are inconclusive; {'; '.join(parts)}")
    return notes
