"""Paired comparison of two models or judges on the same edits, or of the same edits at two times, with corrected
p-values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from editjudge.stats.columns import (
    ABSTAINED,
    Column,
    FailureBounds,
    Floats,
    Interval,
    Reason,
    Scales,
    Scores,
    ends_of,
    filled,
    item_means,
    number,
    worst_best,
)
from editjudge.stats.inference import (
    ALPHA,
    ENOUGH,
    FEW,
    TEST_DRAWS,
    AddedError,
    Clusters,
    Inference,
    Method,
    Widened,
    difference_ends,
    finite,
    holm,
    infer,
    wilcoxon,
)
from editjudge.stats.noise import within_variance

On = Literal["item", "pair"]
Verdict = Literal[
    "scores higher",
    "scores lower",
    "inconclusive: no evidence of a difference",
    "no difference",
    "cannot be compared",
    "cannot be decided",
]
UNPAIRED = Reason("never_paired")


@dataclass(frozen=True)
class DifferenceBounds(FailureBounds):
    """Bounds of a difference. At one bound, B's failures have the worst score and A's the best; at the other, vice
    versa."""

    p_worst: float | None
    p_best: float | None
    """P-values at the two bounds, over the edits that each side either scored or failed on."""


@dataclass(frozen=True)
class Difference:
    """Difference B minus A on one factor, over the edits that both sides scored."""

    factor: str
    a: str
    b: str
    n: int
    """Edits with a score on both sides."""
    groups: int
    only_a: int
    """Edits with a score on one side only. On the other side they failed, the judge abstained, or they were not run."""
    only_b: int
    failed_a: int
    """Failed judgements, which are not part of any mean. `bounds` shows how much they could change the result."""
    failed_b: int
    abstained_a: int
    """Abstentions. Bounds leave them out, since the claim is about edits that can be scored."""
    abstained_b: int
    mean_a: float | None
    mean_b: float | None
    difference: float | None
    ci: Interval | None
    """Confidence interval at `level`. It excludes 0 exactly when `p_holm` is below .05."""
    ci_reason: Reason | None
    level: float
    """Confidence level of `ci` and `detectable`: 95 %, or higher after Holm's correction."""
    method: Method | None
    """Method behind `p`, `ci`, `detectable` and the verdict; None if these are missing."""
    effective: float
    """Effective number of source images (see `inference.Clusters.effective`)."""
    p: float | None
    """Two-sided p-value, computed by `method`."""
    p_wilcoxon: float | None
    """P-value of Wilcoxon's signed-rank test on the groups' mean differences. It is robust against outliers."""
    p_holm: float | None
    """`p` after Holm's correction over all differences that are compared together."""
    effect: float | None
    """Effect size (Cohen's d for pairs): the mean difference divided by the standard deviation of the differences."""
    wins: int
    ties: int
    losses: int
    """Numbers of edits on which B scored higher, the same and lower."""
    error: float | None
    """Standard error of the difference, clustered on groups."""
    detectable: float | None
    """Minimum detectable difference (MDE) at 80 % power and `level`."""
    detectable_reason: Reason | None
    """Reason why there is no `detectable`."""
    detectable_without_noise: float | None
    """`detectable` without the judge's noise between repeats; None if there are no repeats."""
    bounds: DifferenceBounds | None
    """Bounds over the possible scores of failures; None if the scale is unknown or no edits can be paired."""
    bounds_reason: Reason | None
    overturnable: bool
    """Whether the verdict would change if failures had a score at an end of the scale. True if this is unknown."""
    verdict: Verdict
    notes: tuple[Reason, ...]
    inference: Inference | None = field(default=None, repr=False, compare=False)
    quiet: float = field(default=1.0, repr=False)
    """Share of `error` that is not due to the judge's noise."""

    @property
    def evident(self) -> bool:
        """Whether the difference is significant: Holm-corrected p < .05."""
        return self.p_holm is not None and self.p_holm < ALPHA

    @property
    def failed(self) -> int:
        return self.failed_a + self.failed_b


def compare(
    a: Scores,
    b: Scores,
    *,
    names: tuple[str, str] = ("A", "B"),
    on: On = "pair",
    scales: Scales | None = None,
    guaranteed: bool = False,
    errors: Mapping[str, AddedError] | None = None,
    draws: int = TEST_DRAWS,
) -> list[Difference]:
    """Compare two sides factor by factor, after averaging repeats. Use `on="pair"` for models, `"item"` for judges or
    runs.

    Without `scales`, there are no bounds over failures, and no interval if there are few images. With `guaranteed`, the
    interval is a bound that assumes nothing about the distribution of scores. `errors`, one for each factor, widen the
    intervals if the scores of one side were mapped from another judge's scale.
    """
    factors = [f for f in a.factor.present() if f in b.factor.present()]
    sides = [(a.where(factor=f), b.where(factor=f)) for f in factors]
    samples = infer_samples(
        (
            Sample.of_pairs(*side, on, (scales or {}).get(f))
            for f, side in zip(factors, sides, strict=True)
        ),
        guaranteed=guaranteed,
        draws=draws,
    )
    if errors:
        samples = [
            sample.widened(errors[factor])
            for factor, sample in zip(factors, samples, strict=True)
        ]
    return corrected(
        [
            _difference(factor, names, *side, sample)
            for factor, side, sample in zip(factors, sides, samples, strict=True)
        ]
    )


def paired(
    a: Scores, b: Scores, on: On
) -> tuple[Floats, Floats, Column, tuple[int, int]]:
    """Return both sides' means on the edits that both scored, the groups of these edits, and the numbers of edits that
    only A or only B scored."""
    key_a, mean_a, group_a = _edit_means(a, on)
    key_b, mean_b, _ = _edit_means(b, on)
    index = {key: i for i, key in enumerate(key_b)}
    rows = [(i, index[key]) for i, key in enumerate(key_a) if key in index]
    left, right = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    group = Column.of(group_a[i] for i in left)
    alone = (len(key_a) - len(rows), len(key_b) - len(rows))
    return mean_a[left], mean_b[right], group, alone


def _edit_means(scores: Scores, on: On) -> tuple[tuple[str, ...], Floats, list[str]]:
    answered = scores.take(scores.ok)
    key: Column = getattr(answered, on).compact()
    group = np.zeros(len(key.labels), np.int64)
    group[key.codes] = answered.group.codes
    labels = [answered.group.labels[i] for i in group]
    return key.labels, item_means(key, answered.score), labels


@dataclass(frozen=True, eq=False)
class Sample:
    """Values whose mean is inferred, and the same values with all failures placed at one end of the scale."""

    values: Floats
    group: Column
    clusters: Clusters
    failed: int
    failed_before: int = 0
    """Number of failures on the side that is subtracted."""
    at_ends: Sequence[Clusters] = ()
    """Samples with failures at the worst and at the best score; empty if nothing failed or the scale is unknown."""
    sides: tuple[Floats, Floats] | None = None
    """Means of A and means of B; their differences are `values`."""
    alone: tuple[int, int] = (0, 0)
    """Number of edits that only A scored, and number that only B scored."""
    identical: bool = False
    """Whether both sides are the same stored answers."""
    inference: Inference | None = None
    inferences_at_ends: Sequence[Inference | None] = ()
    reason: Reason | None = None
    """Reason why there is no inference."""

    @classmethod
    def of_scores(cls, scores: Scores, scale: Sequence[float] | None) -> Sample:
        """Make a sample of the scores themselves."""
        ends = ends_of(scale)
        failed = int(scores.failed.sum())
        every = [scores]
        if failed:
            every += [filled(scores, fill) for fill in worst_best(scale) or ()]
        answered = [each.take(each.ok) for each in every]
        clusters, *at_ends = (
            Clusters.of(each.score, each.group.codes, ends) for each in answered
        )
        score = answered[0].score
        group = answered[0].group.compact()
        return cls(score, group, clusters, failed, at_ends=at_ends)

    @classmethod
    def of_pairs(
        cls, a: Scores, b: Scores, on: On, scale: Sequence[float] | None
    ) -> Sample:
        """Make a sample of the differences of paired edits, B minus A."""
        ends = difference_ends(ends_of(scale))

        def differences(a: Scores, b: Scores) -> Sample:
            mean_a, mean_b, group, alone = paired(a, b, on)
            # Rounded so that differences such as .3 - .2 and .2 - .1 are equal.
            gaps: Floats = np.round(mean_b - mean_a, 12) + 0.0
            clusters = Clusters.of(gaps, group.codes, ends)
            return cls(gaps, group, clusters, 0, sides=(mean_a, mean_b), alone=alone)

        sample = differences(a, b)
        failed_a = int(a.failed.sum())
        failed_b = int(b.failed.sum())
        gaps = sample.values
        identical = len(gaps) > 0 and not gaps.any() and _same(a, b, on)
        at_ends: list[Clusters] = []
        fills = worst_best(scale)
        if failed_a + failed_b and fills and not identical:
            worst, best = fills
            at_ends = [
                differences(filled(a, best), filled(b, worst)).clusters,
                differences(filled(a, worst), filled(b, best)).clusters,
            ]
        return replace(
            sample,
            failed=failed_b,
            failed_before=failed_a,
            at_ends=at_ends,
            identical=identical,
        )

    def widened(self, added: AddedError) -> Sample:
        """Return the sample with an error added to each of its inferences."""
        inferences = [
            base and Widened(base.clusters, base, added)
            for base in (self.inference, *self.inferences_at_ends)
        ]
        return replace(self, inference=inferences[0], inferences_at_ends=inferences[1:])

    @property
    def mean(self) -> float | None:
        return float(self.values.mean()) if len(self.values) else None

    @property
    def method(self) -> Method | None:
        if self.identical:
            return "identity"
        return self.inference.method if self.inference else None


def infer_samples(
    samples: Iterable[Sample], *, guaranteed: bool, draws: int
) -> list[Sample]:
    """Return the samples with an inference about their means. The inference is repeated with all failures placed at
    each end of the scale.
    """
    samples = list(samples)
    tested = [sample for sample in samples if not sample.identical]
    clusters = [each for s in tested for each in (s.clusters, *s.at_ends)]
    inferences = iter(infer(clusters, guaranteed=guaranteed, draws=draws))
    return [
        replace(sample, reason=Reason("identical"))
        if sample.identical
        else replace(
            sample,
            inference=next(inferences),
            inferences_at_ends=[next(inferences) for _ in sample.at_ends],
            reason=sample.clusters.reason_for_none(guaranteed=guaranteed),
        )
        for sample in samples
    ]


def _difference(
    factor: str, names: tuple[str, str], a: Scores, b: Scores, sample: Sample
) -> Difference:
    """Return a difference without correction for multiple tests; `corrected` applies it."""
    gaps = sample.values
    n = len(gaps)
    clusters = sample.clusters
    p = sample.inference.p() if sample.inference else None
    bounds, bounds_reason = _bounds(sample, p)
    error = clusters.error if clusters.groups > 1 else None
    mean_a, mean_b = (
        float(side.mean()) if n else None for side in sample.sides or (gaps, gaps)
    )
    effect = None
    if n and np.ptp(gaps):
        effect = number(float(gaps.mean()) / float(np.std(gaps, ddof=1)))
    notes = [sample.reason] if sample.reason else []
    if unpaired := sum(sample.alone):
        code = "one_unpaired" if unpaired == 1 else "unpaired"
        notes.append(Reason.of(code, n=unpaired))
    return Difference(
        factor,
        *names,
        n=n,
        groups=len(sample.group.labels),
        only_a=sample.alone[0],
        only_b=sample.alone[1],
        failed_a=sample.failed_before,
        failed_b=sample.failed,
        abstained_a=int(a.status.among((ABSTAINED,)).sum()),
        abstained_b=int(b.status.among((ABSTAINED,)).sum()),
        mean_a=mean_a,
        mean_b=mean_b,
        difference=sample.mean,
        ci=None,
        ci_reason=sample.reason,
        level=1 - ALPHA,
        method=sample.method,
        effective=clusters.effective,
        p=p,
        p_wilcoxon=None if sample.identical else wilcoxon(gaps, sample.group.codes),
        p_holm=None,
        effect=effect,
        wins=int(np.sum(gaps > 0)),
        ties=int(np.sum(gaps == 0)),
        losses=int(np.sum(gaps < 0)),
        error=error,
        detectable=None,
        detectable_reason=sample.reason,
        detectable_without_noise=None,
        bounds=bounds,
        bounds_reason=bounds_reason,
        overturnable=False,
        verdict="cannot be decided",
        notes=tuple(notes) if n else (Reason("no_pairs"),),
        inference=sample.inference,
        quiet=_quiet_share(error, a, b, n),
    )


def _bounds(
    sample: Sample, p: float | None
) -> tuple[DifferenceBounds | None, Reason | None]:
    mean = sample.mean
    if sample.identical or not sample.failed + sample.failed_before:
        return DifferenceBounds(mean, mean, p, p) if mean is not None else None, None
    if not sample.at_ends:
        return None, Reason("unbounded")
    if sample.at_ends[0].groups == 0:
        return None, UNPAIRED
    means = [clusters.mean for clusters in sample.at_ends]
    ps = [each.p() if each else None for each in sample.inferences_at_ends]
    return DifferenceBounds(*means, *ps), None


def corrected(differences: Sequence[Difference]) -> list[Difference]:
    """Apply Holm's correction over all differences, and set interval, detectable difference and verdict at the
    corrected level.

    If the correction rejects r of m tests, exactly the rejected tests have p below ALPHA / (m - r). At that level an
    interval excludes 0 exactly when the corrected p is below ALPHA.
    """
    tests = sum(d.p is not None for d in differences)
    adjusted = holm([d.p for d in differences])
    rejected = sum(p is not None and p < ALPHA for p in adjusted)
    level = 1 - ALPHA / max(1, tests - rejected)
    # A judgement may have failed for every factor, so that filling it in changes the other tests too. Each test is
    # therefore corrected twice: with the other tests at their lowest p, and at their highest.
    families = [
        [extreme(_every_p(d), default=None) for d in differences]
        for extreme in (min, max)
    ]
    stated = []
    for i, (d, p) in enumerate(zip(differences, adjusted, strict=True)):
        row = replace(_at_level(d, level), p_holm=p)
        others = [family[:i] + family[i + 1 :] for family in families]
        overturnable = _overturnable(row, others)
        stated.append(replace(row, overturnable=overturnable, verdict=_verdict(row)))
    return stated


def _at_level(d: Difference, level: float) -> Difference:
    if d.inference is None:
        return replace(d, level=level)
    limit = d.inference.detectable(level)
    ci = finite(d.inference.interval(level))
    return replace(
        d,
        level=level,
        ci=ci,
        ci_reason=None if ci else FEW,
        detectable=limit,
        detectable_reason=_undetectable(d.inference.clusters, 1 - level)
        if limit is None
        else None,
        detectable_without_noise=number(limit * d.quiet) if limit is not None else None,
    )


def _undetectable(clusters: Clusters, alpha: float) -> Reason:
    """Return the reason why there is no minimum detectable difference."""
    images = clusters.groups
    # Number of images with which a guaranteed bound excludes 0 if every image differs by the full range of the scale.
    needed = math.floor(math.log2(2 / alpha)) + 1
    even = math.floor(clusters.even + 1e-9)
    if even < needed:
        code = "too_few_images" if even == images else "too_uneven_images"
        return Reason.of(code, images=images, even=even, needed=needed)
    totals = clusters.residuals + clusters.mean * clusters.sizes
    moved = int(np.sum(np.abs(totals) > 1e-9))
    if moved < ENOUGH:
        return Reason.of("few_differ", moved=moved, images=images)
    if clusters.effective == 0:
        return Reason.of("all_differ_alike", images=images)
    if clusters.effective < ENOUGH:
        return Reason.of(
            "few_carry_spread",
            images=images,
            effective=clusters.effective,
            enough=math.ceil(images * ENOUGH / clusters.effective),
        )
    return Reason("guaranteed_bound")


def _every_p(d: Difference) -> list[float]:
    """Return the p-values of a difference: without failures, and with all failures placed at each end of the scale."""
    each = (d.p,) if d.bounds is None else (d.p, d.bounds.p_worst, d.bounds.p_best)
    return [p for p in each if p is not None]


def _overturnable(d: Difference, others: Sequence[Sequence[float | None]]) -> bool:
    """Whether the verdict changes if failures have a score at an end of the scale. `others` holds the p-values of the
    other tests."""
    if not d.failed or d.method == "identity":
        return False
    if d.bounds is None:
        return d.bounds_reason != UNPAIRED
    ends = [(d.bounds.worst, d.bounds.p_worst), (d.bounds.best, d.bounds.p_best)]
    at_ends = {
        _direction(value, holm([p, *family])[0])
        for family in others
        for value, p in ends
    }
    return at_ends != {_direction(d.difference, d.p_holm)}


def _direction(difference: float | None, p: float | None) -> int | None:
    """Return 1 if B is significantly higher, -1 if it is lower, 0 if this is inconclusive, and None if there is nothing
    to compare."""
    if difference is None or p is None:
        return None
    return int(np.sign(difference)) if p < ALPHA else 0


def _verdict(d: Difference) -> Verdict:
    if d.method == "identity":
        return "no difference"
    if d.difference is None:
        return "cannot be compared"
    if d.p_holm is None:
        return "cannot be decided"
    if not d.evident:
        return "inconclusive: no evidence of a difference"
    return "scores higher" if d.difference > 0 else "scores lower"


def _same(a: Scores, b: Scores, on: On) -> bool:
    """Whether both sides consist of the same stored answers. False if the ids of the answers are unknown."""
    totals = []
    for side in (a, b):
        if not side.answer.all():
            return False
        column: Column = getattr(side, on).compact()
        total = np.zeros(len(column.labels), np.uint64)
        np.add.at(total, column.codes, side.answer)
        totals.append(dict(zip(column.labels, total.tolist(), strict=True)))
    return totals[0] == totals[1]


def _quiet_share(error: float | None, a: Scores, b: Scores, n: int) -> float:
    """Return the share of the standard error that more repeats would not reduce, or NaN without repeats."""
    noise = 0.0
    for side in (a, b):
        answered = side.take(side.ok)
        codes = answered.item.compact().codes
        variance, repeats = within_variance(codes, answered.score)
        if variance is None or not error:
            return math.nan
        noise += variance / repeats
    return math.sqrt(max((error or 0.0) ** 2 - noise / n, 0.0)) / (error or 1.0)


@dataclass(frozen=True)
class Drift:
    """Comparison of the same edits judged at two times, with changed settings and shifts of the scores."""

    changed: tuple[tuple[str, object, object], ...]
    """Changed settings with their earlier and current values, which may explain a shift."""
    shifts: tuple[Difference, ...]
    """Difference of each factor: current minus earlier score."""
    only_then: tuple[str, ...]
    only_now: tuple[str, ...]
    """Factors that only the earlier side or only the current side has."""


def drift(
    then: Scores,
    now: Scores,
    *,
    provenance: tuple[Mapping[str, object], Mapping[str, object]] = ({}, {}),
    on: On = "item",
    scales: Scales | None = None,
    draws: int = TEST_DRAWS,
) -> Drift:
    """Compare scores from two times. `provenance` has the settings at both times, such as rubric hash and reported
    model."""
    first, second = provenance
    shifts = compare(
        then, now, names=("then", "now"), on=on, scales=scales, draws=draws
    )
    before = then.factor.present()
    after = now.factor.present()
    return Drift(
        tuple(
            (key, first.get(key, "not recorded"), second.get(key, "not recorded"))
            for key in sorted({*first, *second})
            if first.get(key) != second.get(key)
        ),
        tuple(shifts),
        tuple(f for f in before if f not in after),
        tuple(f for f in after if f not in before),
    )


def corrected_together(drifts: Sequence[Drift]) -> list[Drift]:
    """Apply Holm's correction over the shifts of all drifts, such as those of several judges."""
    shifts = iter(corrected([shift for drift in drifts for shift in drift.shifts]))
    return [
        replace(drift, shifts=tuple(next(shifts) for _ in drift.shifts))
        for drift in drifts
    ]
