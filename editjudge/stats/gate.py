"""Checks a run against thresholds. The outcome is pass, fail or not enough evidence, so noise alone cannot fail a run."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from editjudge.errors import UsageError, did_you_mean
from editjudge.stats.columns import (
    PENDING,
    Column,
    FailureBounds,
    Interval,
    Reason,
    Scales,
    Scores,
    joined,
)
from editjudge.stats.compare import On, Sample, infer_samples
from editjudge.stats.inference import FEW, TEST_DRAWS, Inference, Method, finite

Outcome = Literal["pass", "fail", "not enough evidence"]
FAIL: Outcome = "fail"
UNSURE: Outcome = "not enough evidence"
MET: Outcome = "pass"
MOST_TIMES = 100
"""Maximum of `GateCheck.needed`, as a multiple of the number of images. A larger number is not reported, because the
mean is then practically equal to its limit."""


@dataclass(frozen=True)
class GateRule:
    """A threshold for one factor."""

    factor: str
    limit: float
    """Lowest mean that passes, or largest drop of the mean below the baseline's mean."""
    is_drop: bool = False
    """Whether the rule limits the drop from a baseline."""
    falling: bool = False
    """Whether lower scores are better. If so, `limit` is the highest mean that passes, or the largest rise."""

    @property
    def threshold(self) -> float:
        """Value that the estimate is compared with."""
        return -self.limit if self.is_drop and not self.falling else self.limit

    def met(self, ci: Interval) -> bool:
        """Whether the entire interval meets the threshold."""
        return ci.hi <= self.threshold if self.falling else ci.lo >= self.threshold

    def broken(self, ci: Interval) -> bool:
        """Whether the entire interval violates the threshold."""
        return ci.lo > self.threshold if self.falling else ci.hi < self.threshold


@dataclass(frozen=True)
class GateCheck:
    """One threshold, and the evidence for its outcome."""

    rule: GateRule
    outcome: Outcome
    estimate: float | None
    ci: Interval | None
    """Interval whose two limits each have the gate's alpha as error probability: a 90 % interval for an alpha of 5 %."""
    ci_reason: Reason | None
    method: Method | None
    n: int
    groups: int
    failed: int
    """Judgements that failed or are pending, which are not in the estimate."""
    failed_baseline: int
    bounds: FailureBounds | None
    """Estimates with every failure at one end of the scale, and every failure of the baseline at the other end."""
    bounds_reason: Reason | None
    overturnable: bool
    """Whether the outcome would change if failures had a score at an end of the scale. True if this is unknown."""
    needed: int | None
    """Estimated number of source images that would decide the check if the mean stayed the same. None if the check is
    already decided, or if no number of images would decide it."""
    alpha_fail: float
    """Level at which a check fails: alpha divided by the number of checks."""


@dataclass(frozen=True)
class Failures:
    """Number of failed judgements among the judgements that the checks use. Abstentions are not failures."""

    judgements: int
    failed: int
    """Failed judgements, including those without an answer yet."""
    pending: int
    allowed: float
    """Maximum share of judgements that may fail."""

    @property
    def too_many(self) -> bool:
        return self.failed > self.allowed * self.judgements * (1 + 1e-12)


@dataclass(frozen=True)
class Gate:
    """Outcome of all checks."""

    outcome: Outcome
    """"fail" if a check failed or too many judgements failed. Otherwise "not enough evidence" if any check has this
    outcome, else "pass"."""
    alpha: float
    """Maximum probability that a run passes although it violates a threshold, or fails although it meets all of them."""
    checks: tuple[GateCheck, ...]
    """Checks, worst outcome first."""
    left_out: tuple[str, ...]
    """Factors that are not compared with the baseline, because no edit has a score on both sides and none failed."""
    failures: Failures


def gate(
    scores: Scores,
    minimum: Mapping[str, float] | None = None,
    *,
    baseline: Scores | None = None,
    max_drop: float | Mapping[str, float] = 0.0,
    on: On = "item",
    scales: Scales | None = None,
    falling: Container[str] = (),
    alpha: float = 0.05,
    max_failures: float = 0.0,
    guaranteed: bool = False,
    draws: int = TEST_DRAWS,
) -> Gate:
    """Check each factor's mean against `minimum` and, with a baseline, its drop on the same edits against `max_drop`.

    For factors in `falling`, lower scores are better, and `minimum` is the highest mean that passes. A check passes if
    its entire interval meets the threshold. This test is one-sided at `alpha`, without correction, since every check
    has to pass. A check fails if the mean violates the threshold at `alpha` divided by the number of checks, since a
    single failed check fails the gate. A share of failed judgements above `max_failures` always fails the gate.
    """
    scales = scales or {}
    minima = _minima(scores, minimum or {}, scales, falling)
    both = np.ones(len(scores), bool)
    drops: dict[GateRule, Sample] = {}
    if baseline is not None:
        # Only edits in both runs can show a drop or count as missing.
        both = getattr(scores, on).among({*getattr(baseline, on).present()})
        shared = getattr(baseline, on).among({*getattr(scores, on).present()})
        sides = (baseline.take(shared), scores.take(both))
        limits = _drop_limits(scores, baseline, max_drop)
        for factor, most in limits.items():
            before, now = (side.where(factor=factor) for side in sides)
            rule = GateRule(factor, most, True, factor in falling)
            drops[rule] = Sample.of_pairs(before, now, on, scales.get(factor))
    # A factor without any scores to compare is left out, unless its judgements failed.
    # If nothing at all can be compared with the baseline, that is an error and not a pass.
    compared = {
        rule: sample
        for rule, sample in drops.items()
        if len(sample.values) or sample.failed
    } or drops
    rules = [*minima, *compared]
    if not rules:
        raise UsageError(
            "a gate needs a minimum for a factor, or a baseline that shares factors with the run",
            code="no_check",
        )
    samples = [*minima.values(), *compared.values()]
    samples = infer_samples(samples, guaranteed=guaranteed, draws=draws)
    each = zip(rules, samples, strict=True)
    checks = [_check(*pair, alpha, alpha / len(rules)) for pair in each]
    checks.sort(key=lambda check: (FAIL, UNSURE, MET).index(check.outcome))
    left_out = tuple(rule.factor for rule in drops if rule not in compared)
    floors, others = (
        scores.factor.among([rule.factor for rule in side])
        for side in (minima, compared)
    )
    failures = _failures(scores.take(floors | (others & both)), max_failures)
    outcome = FAIL if failures.too_many else checks[0].outcome
    return Gate(outcome, alpha, tuple(checks), left_out, failures)


def _minima(
    scores: Scores,
    minimum: Mapping[str, float],
    scales: Scales,
    falling: Container[str],
) -> dict[GateRule, Sample]:
    factors = scores.factor.present()
    minima = {}
    for factor, least in minimum.items():
        if factor not in factors:
            raise UsageError(
                f"no factor {factor!r} in the run{did_you_mean(factor, factors)}",
                code="unknown_factor",
            )
        scale = scales.get(factor)
        if scale and not min(scale) <= least <= max(scale):
            raise UsageError(
                f"{factor}: the limit {least:g} is not on its scale, which goes from {min(scale):g} to {max(scale):g}",
                code="off_the_scale",
            )
        rule = GateRule(factor, least, falling=factor in falling)
        minima[rule] = Sample.of_scores(scores.where(factor=factor), scale)
    return minima


def _drop_limits(
    scores: Scores, baseline: Scores, max_drop: float | Mapping[str, float]
) -> dict[str, float]:
    """Return the maximum drop of each factor that both sides have."""
    common = [f for f in scores.factor.present() if f in baseline.factor.present()]
    if not isinstance(max_drop, Mapping):
        return dict.fromkeys(common, max_drop)
    return {factor: max_drop[factor] for factor in common if factor in max_drop}


def _failures(rows: Scores, allowed: float) -> Failures:
    """Count failed judgements. A judgement counts once, even if several of its factors and their aggregates failed."""
    rubric = [rows.slices["rubric"]] if "rubric" in rows.slices else []
    unit = joined(rows.item, Column.of(rows.repeat), *rubric)
    failed, pending = (
        len(np.unique(unit.codes[mask]))
        for mask in (rows.failed, rows.status.among((PENDING,)))
    )
    return Failures(len(unit.labels), failed, pending, allowed)


def _check(
    rule: GateRule, sample: Sample, alpha: float, alpha_fail: float
) -> GateCheck:
    def outcome_of(inference: Inference | None) -> Outcome:
        if inference is None:
            return UNSURE
        if rule.met(inference.one_sided(alpha)):
            return MET
        return FAIL if rule.broken(inference.one_sided(alpha_fail)) else UNSURE

    inference = sample.inference
    outcome = MET if sample.identical else outcome_of(inference)
    ci = finite(inference.one_sided(alpha)) if inference else None
    mean = sample.mean
    bounds = FailureBounds(mean, mean) if mean is not None else None
    bounds_reason = None
    overturnable = False
    if sample.at_ends:
        bounds = FailureBounds(*(c.mean if c.groups else None for c in sample.at_ends))
        at_ends = {outcome_of(end) for end in sample.inferences_at_ends}
        overturnable = at_ends != {outcome}
    elif sample.failed + sample.failed_before and not sample.identical:
        bounds = None
        bounds_reason = Reason("ends_unknown")
        overturnable = True
    needed = None
    if inference and ci and mean is not None and outcome == UNSURE:
        # The interval that must exclude the limit. It depends on which side of the limit the mean is.
        worse = not rule.met(Interval(mean, mean))
        deciding = finite(inference.one_sided(alpha_fail)) if worse else ci
        needed = _needed(sample, mean, rule.threshold, deciding) if deciding else None
    return GateCheck(
        rule,
        outcome,
        mean,
        ci,
        FEW if sample.reason is None and ci is None else sample.reason,
        sample.method,
        len(sample.values),
        len(sample.group.labels),
        sample.failed,
        sample.failed_before,
        bounds,
        bounds_reason,
        overturnable,
        needed,
        alpha_fail,
    )


def _needed(sample: Sample, mean: float, limit: float, ci: Interval) -> int | None:
    """Estimate the number of images that would decide the check.

    The width of an interval is proportional to 1 / sqrt(images), or to `1 - p ** (1 / images)` if all scores are equal.
    """
    gap = abs(mean - limit)
    reach = ci.hi - mean if mean < limit else mean - ci.lo
    if gap < 1e-12:
        return None
    times = (reach / gap) ** 2
    ends = sample.clusters.ends
    if ends and np.ptp(sample.values) < 1e-12:
        room = ends[1] - mean if mean < limit else mean - ends[0]
        times = math.log1p(-reach / room) / math.log1p(-gap / room)
    return math.ceil(len(sample.group.labels) * times) if times <= MOST_TIMES else None
