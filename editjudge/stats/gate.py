"""Pass, fail, or not enough evidence: thresholds that only a difference beyond noise can break."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from editjudge.errors import UsageError, near_miss
from editjudge.stats.bootstrap import Ends
from editjudge.stats.columns import PENDING, Column, Floats, Mask, Scores, ends_of, filled, joined, worst_best
from editjudge.stats.compare import IDENTICAL, On, paired, same_answers
from editjudge.stats.inference import (
    FEW,
    TEST_DRAWS,
    Clusters,
    Inference,
    Method,
    difference_ends,
    finite,
    infer_each,
    reason_for_none,
)
from editjudge.stats.statistic import FailureBounds, Interval, Statistic

Outcome = Literal["pass", "fail", "not enough evidence"]
FAIL: Outcome = "fail"
UNSURE: Outcome = "not enough evidence"
MET: Outcome = "pass"
MOST_TIMES = 100
"""A mean that so many times as many images would not tell from its limit lies on it, for all that can be known."""


@dataclass(frozen=True)
class GateCheck(Statistic):
    """One threshold."""

    factor: str
    rule: str
    is_drop: bool
    """Whether the baseline's mean is subtracted."""
    outcome: Outcome
    estimate: float | None
    ci: Interval | None
    """Each end alone is wrong with a chance of the gate's alpha: a 90 % interval for an alpha of 5 %."""
    ci_reason: str | None
    method: Method | None
    n: int
    groups: int
    failed: int
    """Judgements that failed or are pending: they have no score and are not in the estimate."""
    failed_baseline: int
    bounds: FailureBounds | None
    """The estimate with every failure at an end of the scale; the baseline's at the other end."""
    bounds_reason: str | None
    overturnable: bool
    """Whether the outcome is another one at either end; true where that is not known."""
    needed: int | None
    """About how many source images would decide, if the mean stayed; None where it is decided, or none would."""
    reason: str


@dataclass(frozen=True)
class Failures(Statistic):
    """Of the judgements that the checks rest on; abstentions are no failures."""

    judgements: int
    failed: int
    """Those without an answer yet included."""
    pending: int
    allowed: float
    """The largest share that may fail."""

    @property
    def too_many(self) -> bool:
        return self.failed > self.allowed * self.judgements * (1 + 1e-12)

    def as_json(self) -> dict[str, Any]:
        return {**super().as_json(), "too_many": self.too_many}


@dataclass(frozen=True)
class Gate(Statistic):
    outcome: Outcome
    """Fail where any check fails or too many judgements did, else not enough evidence where any lacks it, else pass."""
    alpha: float
    """The promised chance that a run which breaks a threshold passes, and that one which meets all of them fails."""
    checks: tuple[GateCheck, ...]
    """The worst first."""
    left_out: tuple[str, ...]
    """Factors that are not held against the baseline: no edit has a score on both sides, and none failed."""
    failures: Failures


def gate(
    scores: Scores,
    minimum: Mapping[str, float] | None = None,
    *,
    baseline: Scores | None = None,
    max_drop: float | Mapping[str, float] = 0.0,
    on: On = "item",
    scales: Mapping[str, Sequence[float]] | None = None,
    falling: Container[str] = (),
    alpha: float = 0.05,
    max_failures: float = 0.0,
    guaranteed: bool = False,
    draws: int = TEST_DRAWS,
) -> Gate:
    """Check each factor's mean against `minimum`; with a baseline, its drop on the same edits against `max_drop`.

    Lower scores of the factors in `falling` are the better ones: their `minimum` is the highest mean that is good
    enough, and their drop is a rise.

    A check passes when its interval is wholly on the right side: one-sided at `alpha`, and not corrected, since every
    check has to pass. It fails when the mean is on the wrong side at `alpha` over the number of checks, since any one
    of them fails the gate. A larger share of failed judgements than `max_failures` fails the gate whatever the others
    scored.
    """
    known = scores.factor.present()
    minima = [
        _minimum(scores, f, least, known, (scales or {}).get(f), f in falling) for f, least in (minimum or {}).items()
    ]
    drops: list[_Sample] = []
    both = np.ones(len(scores), bool)
    if baseline is not None:
        allowed = max_drop if isinstance(max_drop, Mapping) else dict.fromkeys(known, max_drop)
        common = [f for f in known if f in baseline.factor.present() and f in allowed]
        # Only what both were asked can have dropped, or be missing from that.
        both = _shared(scores, baseline, on)
        after, before = scores.take(both), baseline.take(_shared(baseline, scores, on))
        drops = [_drop(after, before, f, allowed[f], on, (scales or {}).get(f), f in falling) for f in common]
    # Silence for lack of anything to say is left out; silence because the judging failed is not.
    # And a baseline that nothing can be held against is a mistake, not a pass.
    held = [one for one in drops if len(one.values) or one.failed] or drops
    wanted = minima + held
    if not wanted:
        raise UsageError("a gate needs a minimum for some factor, or a baseline that shares factors with the run")
    checks = _checks(wanted, alpha, guaranteed=guaranteed, draws=draws)
    checks.sort(key=lambda check: (FAIL, UNSURE, MET).index(check.outcome))
    floors, others = (scores.factor.where([one.factor for one in some]) for some in (minima, held))
    failures = _failures(scores.take(floors | (others & both)), max_failures)
    outcome = FAIL if failures.too_many else checks[0].outcome
    left_out = tuple(one.factor for one in drops if one not in held)
    return Gate(outcome, alpha, tuple(checks), left_out, failures)


def _shared(scores: Scores, other: Scores, on: On) -> Mask:
    """The rows on what the other was asked too."""
    column: Column = getattr(scores, on)
    theirs = {*getattr(other, on).present()}
    return np.array([label in theirs for label in column.labels] or [False])[column.codes]


def _failures(part: Scores, allowed: float) -> Failures:
    """A judgement of several factors is one; an aggregate fails with the judgements that it is made of."""
    parts = [part.item, Column.of(part.repeat), *([part.slices["rubric"]] if "rubric" in part.slices else [])]
    unit = joined(*parts)
    failed, pending = (len(np.unique(unit.codes[rows])) for rows in (part.failed, part.having(PENDING)))
    return Failures(len(unit.labels), failed, pending, allowed)


@dataclass(frozen=True, eq=False)
class _Sample:
    """What one threshold is held against: scores, or differences from the baseline."""

    factor: str
    rule: str
    is_drop: bool
    limit: float
    falling: bool
    values: Floats
    group: Column
    ends: Ends | None
    failed: int
    failed_baseline: int = 0
    at_ends: tuple[_Sample, _Sample] | None = None
    """The same with what failed at the worst and at the best; None where nothing did, or the scale is not known."""
    identical: bool = False
    """Whether the baseline rests on the very same answers."""

    @property
    def clusters(self) -> Clusters:
        return Clusters.of(self.values, self.group.codes)


def _minimum(
    scores: Scores, factor: str, least: float, known: Sequence[str], scale: Sequence[float] | None, falling: bool
) -> _Sample:
    if factor not in known:
        raise UsageError(f"no factor {factor!r} in the run{near_miss(factor, known)}")
    ends, rule = ends_of(scale), f"{factor} {'<=' if falling else '>='} {least:g}"
    if scale and not min(scale) <= least <= max(scale):
        raise UsageError(f"{rule}: its scale goes from {min(scale):g} to {max(scale):g}")
    part = scores.where(factor=factor)

    def sample(part: Scores) -> _Sample:
        ok = part.take(part.ok)
        return _Sample(factor, rule, False, least, falling, ok.score, ok.group.compact(), ends, failed)

    failed = int(part.failed.sum())
    at_ends = None
    if failed and (fills := worst_best(scale)):
        at_ends = sample(filled(part, fills[0])), sample(filled(part, fills[1]))
    return replace(sample(part), at_ends=at_ends)


def _drop(
    scores: Scores, baseline: Scores, factor: str, most: float, on: On, scale: Sequence[float] | None, falling: bool
) -> _Sample:
    now, before = scores.where(factor=factor), baseline.where(factor=factor)
    limit = most if falling else -most
    ends = difference_ends(ends_of(scale))
    rule = f"{factor} {'rises' if falling else 'drops'} by at most {most:g}"

    def sample(before: Scores, now: Scores) -> _Sample:
        x, y, group, *_ = paired(before, now, on)
        return _Sample(factor, rule, True, limit, falling, np.round(y - x, 12), group, ends, *failed)

    failed = int(now.failed.sum()), int(before.failed.sum())
    plain = sample(before, now)
    if len(plain.values) and not plain.values.any() and same_answers(before, now, on):
        return replace(plain, identical=True)
    at_ends = None
    if any(failed) and (fills := worst_best(scale)):
        worst, best = (sample(filled(before, other), filled(now, end)) for end, other in (fills, fills[::-1]))
        at_ends = worst, best
    return replace(plain, at_ends=at_ends)


def _checks(samples: Sequence[_Sample], alpha: float, *, guaranteed: bool, draws: int) -> list[GateCheck]:
    every = [(part, part.clusters) for sample in samples for part in (sample, *(sample.at_ends or ()))]
    found = infer_each(
        [clusters for _, clusters in every],
        [part.ends for part, _ in every],
        shares=[part.ends == (0.0, 1.0) for part, _ in every],
        guaranteed=guaranteed,
        draws=draws,
    )
    decided = [
        _Decided(part, clusters, inference, alpha, alpha / len(samples))
        for (part, clusters), inference in zip(every, found, strict=True)
    ]
    remaining = iter(decided)
    checks = []
    for sample in samples:
        main = next(remaining)
        at_ends = [next(remaining) for _ in sample.at_ends or ()]
        checks.append(_check(main, at_ends, guaranteed=guaranteed))
    return checks


@dataclass(frozen=True, eq=False)
class _Decided:
    """A sample with what can be inferred of it."""

    sample: _Sample
    clusters: Clusters
    inference: Inference | None
    alpha: float
    alpha_fail: float
    """Level at which a check fails: alpha over the number of checks."""

    @property
    def mean(self) -> float | None:
        return self.clusters.mean if self.clusters.groups else None

    @property
    def ci(self) -> Interval | None:
        if self.sample.identical or self.inference is None:
            return None
        return finite(self.inference.one_sided(self.alpha))

    @property
    def deciding(self) -> Interval | None:
        """The interval that has to leave out the limit, on whichever side of it the mean is."""
        if self.ci is None or self.inference is None:
            return None
        worse = (
            self.clusters.mean > self.sample.limit if self.sample.falling else self.clusters.mean < self.sample.limit
        )
        return finite(self.inference.one_sided(self.alpha_fail)) if worse else self.ci

    @property
    def outcome(self) -> Outcome:
        sample = self.sample
        if sample.identical:
            return MET
        if self.inference is None:
            return UNSURE
        passing = self.inference.one_sided(self.alpha)
        failing = self.inference.one_sided(self.alpha_fail)
        if sample.falling:
            met = passing.hi <= sample.limit
            broken = failing.lo > sample.limit
        else:
            met = passing.lo >= sample.limit
            broken = failing.hi < sample.limit
        if met:
            return MET
        return FAIL if broken else UNSURE


def _check(decided: _Decided, at_ends: Sequence[_Decided], *, guaranteed: bool) -> GateCheck:
    sample = decided.sample
    mean = decided.mean
    ci = decided.ci
    deciding = decided.deciding
    outcome = decided.outcome
    reason = IDENTICAL if sample.identical else reason_for_none(decided.clusters, sample.ends, guaranteed=guaranteed)
    if reason is None and ci is None:
        reason = FEW
    method: Method | None = decided.inference.method if decided.inference is not None else None
    if sample.identical:
        method = "identity"
    bounds = FailureBounds(mean, mean) if mean is not None else None
    unknown = None
    overturnable = False
    if at_ends:
        bounds = FailureBounds(*(end.mean for end in at_ends))
        overturnable = {end.outcome for end in at_ends} != {outcome}
    elif sample.failed + sample.failed_baseline and not sample.identical:
        bounds = None
        unknown = "the ends of the scale are not known"
        overturnable = True
    check = GateCheck(
        sample.factor,
        sample.rule,
        sample.is_drop,
        outcome,
        mean,
        ci,
        reason,
        method,
        len(sample.values),
        len(sample.group.labels),
        sample.failed,
        sample.failed_baseline,
        bounds,
        unknown,
        overturnable,
        _needed(sample, deciding) if deciding and outcome == UNSURE else None,
        "",
    )
    return replace(check, reason=_reason(check, sample, decided.alpha_fail))


def _needed(one: _Sample, ci: Interval) -> int | None:
    """An interval shrinks with the root of the number of images; one of equal scores by `1 - p ** (1 / images)`."""
    mean = float(one.values.mean())
    gap = abs(mean - one.limit)
    reach = ci.hi - mean if mean < one.limit else mean - ci.lo
    if gap < 1e-12:
        return None
    times = (reach / gap) ** 2
    if one.ends and np.ptp(one.values) < 1e-12:
        room = one.ends[1] - mean if mean < one.limit else mean - one.ends[0]
        times = math.log1p(-reach / room) / math.log1p(-gap / room)
    return math.ceil(len(one.group.labels) * times) if times <= MOST_TIMES else None


def _reason(check: GateCheck, one: _Sample, alpha_fail: float) -> str:
    limit, sides = one.limit, ("above", "below") if one.falling else ("below", "above")
    mean, ci, outcome, needed = check.estimate, check.ci, check.outcome, check.needed
    lost = _lost(check)
    if mean is None:
        return f"no scores to decide on{lost}"
    if check.method == "identity":
        return IDENTICAL
    if ci is None:
        return f"{mean:.3f} over {check.n} scores, without an interval: {check.ci_reason}{lost}"
    more = f"about {needed:,} source images would decide" if needed else "inconclusive at any practical number"
    where = {
        FAIL: f"wholly {sides[0]} {limit:g}",
        MET: f"wholly at or {sides[1]} {limit:g}",
        UNSURE: f"which contains {limit:g}: {more}",
    }
    if outcome == UNSURE and not ci.lo <= limit <= ci.hi:
        where[UNSURE] = (
            f"{where[FAIL]}, but not at the {100 * alpha_fail:.3g} % at which one of several checks fails: {more}"
        )
    return f"{mean:.3f} over {check.n} scores, interval [{ci.lo:.3f}, {ci.hi:.3f}], {where[outcome]}{lost}"


def _lost(check: GateCheck) -> str:
    """What failed, and what it could have changed."""
    failed = check.failed + check.failed_baseline
    if not failed:
        return ""
    base = f" ({check.failed_baseline} of the baseline)" if check.failed_baseline else ""
    words = f"; {failed} failed judgements{base} are not in it"
    if check.bounds is None or check.bounds.worst is None or check.bounds.best is None:
        return f"{words}, and could overturn this: {check.bounds_reason or 'nothing bounds them'}"
    words += f": from {check.bounds.worst:.3f} to {check.bounds.best:.3f} with them at the ends of the scale"
    return f"{words}, which could overturn this" if check.overturnable else words
