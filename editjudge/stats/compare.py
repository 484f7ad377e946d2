"""Whether two things that made or judged the same edits differ, or one at two times: paired, clustered, corrected."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from editjudge.stats.columns import (
    ABSTAINED,
    Column,
    Ends,
    FailureBounds,
    Floats,
    Interval,
    Reason,
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
    Clusters,
    Inference,
    Method,
    difference_ends,
    finite,
    holm,
    holm_of,
    images_to_show_anything,
    infer_each,
    reason_for_none,
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
IDENTICAL = Reason("identical")
NO_ENDS = Reason("unbounded")


@dataclass(frozen=True)
class DifferenceBounds(FailureBounds):
    """The failures of B at the worst score and those of A at the best, and the other way round."""

    p_worst: float | None
    p_best: float | None
    """Values of `p` over the edits that have a score or failed on either side."""


@dataclass(frozen=True)
class Difference:
    """B minus A on one factor, over the edits that both have."""

    factor: str
    a: str
    b: str
    n: int
    """Edits with a score on both sides."""
    groups: int
    only_a: int
    """Edits with a score on this side alone: on the other they failed, were abstained from, or were not run."""
    only_b: int
    failed_a: int
    """Judgements that failed: no score is in any mean, and `bounds` say what they could have changed."""
    failed_b: int
    abstained_a: int
    """Judgements that abstained, which bounds leave out: the claim is about edits that can be scored."""
    abstained_b: int
    mean_a: float | None
    mean_b: float | None
    difference: float | None
    ci: Interval | None
    """At `level`; it excludes 0 exactly where `p_holm` is below .05."""
    ci_reason: Reason | None
    level: float
    """Confidence of `ci` and `detectable`: 95 %, or what Holm's correction leaves."""
    method: Method | None
    """Source of p, `ci`, `detectable` and verdict; None if there are none."""
    effective: float
    """Source images that carry the spread of the differences (see `inference.Clusters.effective`)."""
    p: float | None
    """Two-sided, by `method`."""
    p_wilcoxon: float | None
    """Wilcoxon's signed ranks of the groups' mean differences: the alternative that few outliers move less."""
    p_holm: float | None
    """`p` corrected over all that is compared together."""
    effect: float | None
    """Mean difference over the standard deviation of the differences (Cohen's d of pairs)."""
    wins: int
    ties: int
    losses: int
    """Edits on which B scored higher, the same, lower."""
    error: float | None
    """The standard error of the difference, with whole groups as the unit."""
    detectable: float | None
    """The minimum detectable difference (MDE) at 80 % power and `level`."""
    detectable_reason: Reason | None
    """Why there is none."""
    detectable_without_noise: float | None
    """The same if the judge gave the same answer every time; None without repeats."""
    bounds: DifferenceBounds | None
    """None if the scale is not known, or nothing could be paired whatever the failures had scored."""
    bounds_reason: Reason | None
    overturnable: bool
    """Whether the verdict is another one with the failures at an end of the scale; true if that is not known."""
    verdict: Verdict
    notes: tuple[Reason, ...]
    inference: Inference | None = field(default=None, repr=False, compare=False)
    clusters: Clusters | None = field(default=None, repr=False, compare=False)
    quiet: float = field(default=1.0, repr=False)
    """The share of `error` that is not the judge's own noise."""

    @property
    def evident(self) -> bool:
        """The one rule of decision: Holm-corrected p < .05."""
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
    scales: Mapping[str, Sequence[float]] | None = None,
    guaranteed: bool = False,
    draws: int = TEST_DRAWS,
) -> list[Difference]:
    """Compare factor by factor, repeats averaged first. `on="pair"` for models, `"item"` for judges or runs.

    `scales` gives the legal values of a factor, or its two ends, from the worst to the best: without them nothing
    bounds what failed, and few images have no interval. `guaranteed` asks for the bound that assumes nothing.
    """
    factors = [f for f in a.factor.present() if f in b.factor.present()]
    sides = [(a.where(factor=f), b.where(factor=f)) for f in factors]
    samples = [
        Sample.of_pairs(before, after, on, (scales or {}).get(f))
        for f, (before, after) in zip(factors, sides, strict=True)
    ]
    inferences = infer_samples(samples, guaranteed=guaranteed, draws=draws)
    return corrected(
        [
            _difference(factor, names, *side, sample, each, guaranteed=guaranteed)
            for factor, side, sample, each in zip(
                factors, sides, samples, inferences, strict=True
            )
        ]
    )


class PairedMeans(NamedTuple):
    """The means of both sides on the edits that both scored."""

    a: Floats
    b: Floats
    group: Column
    only_a: int
    """Edits that only A scored."""
    only_b: int

    @property
    def gaps(self) -> Floats:
        """B minus A. Differences that rounding alone keeps apart are equal: .3 - .2 and .2 - .1."""
        gaps: Floats = np.round(self.b - self.a, 12) + 0.0
        return gaps

    @property
    def clusters(self) -> Clusters:
        return Clusters.of(self.gaps, self.group.codes)


NO_PAIRS = PairedMeans(np.zeros(0), np.zeros(0), Column.of(()), 0, 0)


def paired(a: Scores, b: Scores, on: On) -> PairedMeans:
    """Pair the edits that both sides scored."""
    key_a, mean_a, group_a = _edit_means(a, on)
    key_b, mean_b, _ = _edit_means(b, on)
    index = {key: i for i, key in enumerate(key_b)}
    rows = [(i, index[key]) for i, key in enumerate(key_a) if key in index]
    left, right = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    group = Column.of(group_a[i] for i in left)
    only_a = len(key_a) - len(rows)
    only_b = len(key_b) - len(rows)
    return PairedMeans(mean_a[left], mean_b[right], group, only_a, only_b)


def _edit_means(scores: Scores, on: On) -> tuple[list[str], Floats, list[str]]:
    part = scores.take(scores.ok)
    key: Column = getattr(part, on).compact()
    group = np.zeros(len(key.labels), np.int64)
    group[key.codes] = part.group.codes
    labels = [part.group.labels[i] for i in group]
    return list(key.labels), item_means(key, part.score), labels


@dataclass(frozen=True, eq=False)
class Sample:
    """Values to infer the mean of, and the same with every failure at either end of the scale."""

    values: Floats
    group: Column
    ends: Ends | None
    failed: int
    failed_before: int = 0
    """Failures of the side that is subtracted."""
    at_ends: tuple[Clusters, ...] = ()
    """Failures at the worst and at the best; empty if nothing failed, or the scale is not known."""
    pairing: PairedMeans = NO_PAIRS
    identical: bool = False
    """Whether both sides of a pairing are the very same answers."""

    @classmethod
    def of_scores(cls, scores: Scores, scale: Sequence[float] | None) -> Sample:
        """Take the scores themselves."""
        ok = scores.take(scores.ok)
        failed = int(scores.failed.sum())
        at_ends: tuple[Clusters, ...] = ()
        if failed and (fills := worst_best(scale)):
            each = [filled(scores, fill) for fill in fills]
            parts = [part.take(part.ok) for part in each]
            at_ends = tuple(Clusters.of(p.score, p.group.codes) for p in parts)
        return cls(ok.score, ok.group.compact(), ends_of(scale), failed, 0, at_ends)

    @classmethod
    def of_pairs(
        cls, a: Scores, b: Scores, on: On, scale: Sequence[float] | None
    ) -> Sample:
        """Take the differences of paired edits, B minus A."""
        pairing = paired(a, b, on)
        gaps = pairing.gaps
        failed_a = int(a.failed.sum())
        failed_b = int(b.failed.sum())
        identical = len(gaps) > 0 and not gaps.any() and same_answers(a, b, on)
        at_ends: tuple[Clusters, ...] = ()
        fills = worst_best(scale)
        if failed_a + failed_b and fills and not identical:
            worst, best = fills
            at_ends = (
                paired(filled(a, best), filled(b, worst), on).clusters,
                paired(filled(a, worst), filled(b, best), on).clusters,
            )
        ends = difference_ends(ends_of(scale))
        group = pairing.group
        return cls(gaps, group, ends, failed_b, failed_a, at_ends, pairing, identical)

    @cached_property
    def clusters(self) -> Clusters:
        return Clusters.of(self.values, self.group.codes)

    @property
    def to_infer(self) -> tuple[Clusters, ...]:
        return () if self.identical else (self.clusters, *self.at_ends)

    @property
    def mean(self) -> float | None:
        return float(self.values.mean()) if len(self.values) else None

    def method(self, inference: Inference | None) -> Method | None:
        if self.identical:
            return "identity"
        return inference.method if inference else None

    def reason(self, *, guaranteed: bool) -> Reason | None:
        """Return why there is no interval; None if there is one."""
        if self.identical:
            return IDENTICAL
        return reason_for_none(self.clusters, self.ends, guaranteed=guaranteed)


def infer_samples(
    samples: Sequence[Sample], *, guaranteed: bool, draws: int
) -> Iterator[list[Inference | None]]:
    """Yield the inference of each sample, followed by those with its failures at either end of the scale."""
    every = [
        (clusters, sample.ends) for sample in samples for clusters in sample.to_infer
    ]
    inferences = iter(
        infer_each(
            [clusters for clusters, _ in every],
            [ends for _, ends in every],
            shares=[ends == (0.0, 1.0) for _, ends in every],
            guaranteed=guaranteed,
            draws=draws,
        )
    )
    for sample in samples:
        yield [next(inferences) for _ in sample.to_infer] or [None]


def _difference(
    factor: str,
    names: tuple[str, str],
    a: Scores,
    b: Scores,
    sample: Sample,
    inferences: Sequence[Inference | None],
    *,
    guaranteed: bool,
) -> Difference:
    """State a difference as if it were the only one: `corrected` states it among others."""
    gaps = sample.values
    n = len(gaps)
    pairing = sample.pairing
    inference = inferences[0]
    p = inference.p() if inference else None
    reason = sample.reason(guaranteed=guaranteed)
    bounds, bounds_reason = _bounds(sample, p, inferences[1:])
    error = sample.clusters.error if sample.clusters.groups > 1 else None
    return Difference(
        factor,
        *names,
        n=n,
        groups=len(sample.group.labels),
        only_a=pairing.only_a,
        only_b=pairing.only_b,
        failed_a=sample.failed_before,
        failed_b=sample.failed,
        abstained_a=int(a.having(ABSTAINED).sum()),
        abstained_b=int(b.having(ABSTAINED).sum()),
        mean_a=float(pairing.a.mean()) if n else None,
        mean_b=float(pairing.b.mean()) if n else None,
        difference=sample.mean,
        ci=None,
        ci_reason=reason,
        level=1 - ALPHA,
        method=sample.method(inference),
        effective=sample.clusters.effective,
        p=p,
        p_wilcoxon=None if sample.identical else wilcoxon(gaps, sample.group.codes),
        p_holm=None,
        effect=_effect(gaps),
        wins=int(np.sum(gaps > 0)),
        ties=int(np.sum(gaps == 0)),
        losses=int(np.sum(gaps < 0)),
        error=error,
        detectable=None,
        detectable_reason=reason,
        detectable_without_noise=None,
        bounds=bounds,
        bounds_reason=bounds_reason,
        overturnable=False,
        verdict="cannot be decided",
        notes=_pair_notes(n, pairing.only_a + pairing.only_b, reason),
        inference=inference,
        clusters=sample.clusters,
        quiet=_quiet_share(error, a, b, n),
    )


def _effect(gaps: Floats) -> float | None:
    """Return the mean over the standard deviation; None without a spread."""
    if not len(gaps) or not np.ptp(gaps):
        return None
    return number(float(gaps.mean()) / float(np.std(gaps, ddof=1)))


def _bounds(
    sample: Sample, p: float | None, at_ends: Sequence[Inference | None]
) -> tuple[DifferenceBounds | None, Reason | None]:
    mean = sample.mean
    if sample.identical or not sample.failed + sample.failed_before:
        return DifferenceBounds(mean, mean, p, p) if mean is not None else None, None
    if not sample.at_ends:
        return None, NO_ENDS
    if sample.at_ends[0].groups == 0:
        return None, UNPAIRED
    worst, best = (clusters.mean for clusters in sample.at_ends)
    p_worst, p_best = (each.p() if each else None for each in at_ends)
    return DifferenceBounds(worst, best, p_worst, p_best), None


def _pair_notes(n: int, unpaired: int, reason: Reason | None) -> tuple[Reason, ...]:
    if n == 0:
        return (Reason("no_pairs"),)
    notes = [reason] if reason else []
    if unpaired:
        code = "one_unpaired" if unpaired == 1 else "unpaired"
        notes.append(Reason.of(code, n=unpaired))
    return tuple(notes)


def corrected(differences: Sequence[Difference]) -> list[Difference]:
    """Apply Holm's correction over all of these, and state interval, detectable difference and verdict at its level.

    Of m tests of which the correction rejects r, those rejected have p below ALPHA / (m - r) and the others have not:
    at that level an interval excludes 0 exactly where the corrected p is below ALPHA.
    """
    tests = sum(d.p is not None for d in differences)
    adjusted = holm([d.p for d in differences])
    rejected = sum(p is not None and p < ALPHA for p in adjusted)
    level = 1 - ALPHA / max(1, tests - rejected)
    lowest, highest = _family(differences)
    out = []
    for d, p in zip(differences, adjusted, strict=True):
        row = _at_level(replace(d, p_holm=p), level)
        overturnable = _overturnable(row, lowest, highest)
        out.append(replace(row, overturnable=overturnable, verdict=_verdict(row)))
    return out


def _at_level(d: Difference, level: float) -> Difference:
    if d.inference is None or d.clusters is None:
        return replace(d, level=level)
    limit = d.inference.detectable(level)
    reason = _undetectable(d.clusters, 1 - level) if limit is None else None
    noiseless = None
    if limit is not None and not math.isnan(d.quiet):
        noiseless = limit * d.quiet
    ci = finite(d.inference.interval(level))
    return replace(
        d,
        level=level,
        ci=ci,
        ci_reason=None if ci else FEW,
        detectable=limit,
        detectable_reason=reason,
        detectable_without_noise=noiseless,
    )


def _undetectable(clusters: Clusters, alpha: float) -> Reason:
    """Return why no difference could be shown, or none with a known chance."""
    images = clusters.groups
    needed = images_to_show_anything(alpha)
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
        enough = math.ceil(images * ENOUGH / clusters.effective)
        effective = clusters.effective
        return Reason.of(
            "few_carry_spread", images=images, effective=effective, enough=enough
        )
    return Reason("guaranteed_bound")


def _family(differences: Sequence[Difference]) -> tuple[Floats, Floats]:
    """Return the p of all tests, sorted, at their lowest and at their highest with the failures at either end.

    A judgement that failed may have failed for every factor: the others do not stay where they are when it is filled.
    """
    each = [ps for d in differences if (ps := _every_p(d))]
    return np.sort([min(ps) for ps in each]), np.sort([max(ps) for ps in each])


def _every_p(d: Difference) -> list[float]:
    each = (d.p,) if d.bounds is None else (d.p, d.bounds.p_worst, d.bounds.p_best)
    return [p for p in each if p is not None]


def _overturnable(d: Difference, *families: Floats) -> bool:
    if not d.failed or d.method == "identity":
        return False
    if d.bounds is None:
        return d.bounds_reason != UNPAIRED
    mine = _every_p(d)
    ends = [(d.bounds.worst, d.bounds.p_worst), (d.bounds.best, d.bounds.p_best)]
    at_ends = set()
    for family, extreme in zip(families, (min, max), strict=True):
        others = family
        if mine:
            others = np.delete(family, np.searchsorted(family, extreme(mine)))
        for value, p in ends:
            at_ends.add(_direction(value, None if p is None else holm_of(p, others)))
    return at_ends != {_direction(d.difference, d.p_holm)}


def _direction(difference: float | None, p: float | None) -> int | None:
    """Return 1 for higher, -1 for lower, 0 for inconclusive, None if there is nothing to compare."""
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


def same_answers(a: Scores, b: Scores, on: On) -> bool:
    """Whether both sides are the very same answers; never if answers are not known."""
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
    """Return the share of the standard error that repeats would not average away; NaN without repeats."""
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
    """The same edits judged at another time: what changed about the judging, and what moved."""

    changed: tuple[tuple[str, object, object], ...]
    """Setting, then and now: a shift after such a change is no surprise."""
    shifts: tuple[Difference, ...]
    """Now minus then, factor by factor."""
    only_then: tuple[str, ...]
    only_now: tuple[str, ...]
    """Factors that one side alone has."""


def drift(
    then: Scores,
    now: Scores,
    *,
    provenance: tuple[Mapping[str, object], Mapping[str, object]] = ({}, {}),
    on: On = "item",
    scales: Mapping[str, Sequence[float]] | None = None,
    draws: int = TEST_DRAWS,
) -> Drift:
    """Compare two times. `provenance` of then and now: rubric hash, the model that the server named ..."""
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
    """Apply Holm's correction over all shifts of all of these, such as those of several judges."""
    shifts = iter(corrected([shift for one in drifts for shift in one.shifts]))
    return [
        replace(one, shifts=tuple(next(shifts) for _ in one.shifts)) for one in drifts
    ]
