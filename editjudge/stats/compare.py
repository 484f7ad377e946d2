"""Whether two things that made or judged the same edits differ: paired, clustered, corrected, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from editjudge.stats.columns import ABSTAINED, Column, Floats, Scores, ends_of, filled, item_means, worst_best
from editjudge.stats.correction import ALPHA, holm, holm_of, wilcoxon
from editjudge.stats.inference import (
    ENOUGH,
    FEW,
    TEST_DRAWS,
    Clusters,
    Inference,
    Method,
    difference_ends,
    finite,
    images_to_show_anything,
    infer_each,
    reason_for_none,
)
from editjudge.stats.spread import within_variance
from editjudge.stats.statistic import FailureBounds, Interval, Statistic, figure_text, number

On = Literal["item", "pair"]
UNPAIRED = "no edit was asked of both sides"
IDENTICAL = "both sides rest on the same answers: the difference is 0 by identity, and nothing is left to test"


@dataclass(frozen=True)
class DifferenceBounds(FailureBounds):
    """The failures of B at the worst score and those of A at the best, and the other way round."""

    p_worst: float | None
    p_best: float | None
    """As `p`, over the edits that have a score or failed on either side."""


@dataclass(frozen=True)
class Difference(Statistic):
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
    ci_reason: str | None
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
    detectable_reason: str | None
    """Why there is none."""
    detectable_without_noise: float | None
    """The same if the judge gave the same answer every time; None without repeats."""
    bounds: DifferenceBounds | None
    """None where the scale is not known, or nothing could be paired whatever the failures had said."""
    bounds_reason: str | None
    overturnable: bool
    """Whether the verdict is another one with the failures at an end of the scale; true where that is not known."""
    verdict: str
    notes: tuple[str, ...]
    inference: Inference | None = field(default=None, repr=False, compare=False)
    clusters: Clusters | None = field(default=None, repr=False, compare=False)
    quiet: float = field(default=1.0, repr=False)
    """The share of `error` that is not the judge's own noise."""

    @property
    def evident(self) -> bool:
        """The one rule of decision: Holm-corrected p < .05."""
        return self.p_holm is not None and self.p_holm < ALPHA


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
    known = scales or {}
    factors = [f for f in a.factor.present() if f in b.factor.present()]
    tests = [_PairedTest(f, a.where(factor=f), b.where(factor=f), on, known.get(f)) for f in factors]
    samples = [sample for test in tests for sample in test.samples]
    ends = [difference_ends(ends_of(test.scale)) for test in tests for _ in test.samples]
    found = iter(infer_each(samples, ends, shares=[False] * len(samples), guaranteed=guaranteed, draws=draws))
    differences = []
    for test in tests:
        inferences = [next(found) for _ in test.samples]
        differences.append(test.difference(names, inferences, guaranteed=guaranteed))
    return corrected(differences)


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
        row = replace(row, overturnable=_overturnable(row, lowest, highest))
        out.append(replace(row, verdict=_verdict(row)))
    return out


def _at_level(d: Difference, level: float) -> Difference:
    if d.inference is None or d.clusters is None:
        return replace(d, level=level)
    limit = d.inference.detectable(level)
    ci = finite(d.inference.interval(level))
    return replace(
        d,
        level=level,
        ci=ci,
        ci_reason=None if ci else FEW,
        detectable=limit,
        detectable_reason=None if limit is not None else _undetectable(d.clusters, 1 - level),
        detectable_without_noise=None if limit is None or math.isnan(d.quiet) else limit * d.quiet,
    )


def _undetectable(clusters: Clusters, alpha: float) -> str:
    """Say why no difference could be shown, or none with a known chance."""
    images = clusters.groups
    needed = images_to_show_anything(alpha)
    even = math.floor(clusters.even + 1e-9)
    if even < needed:
        uneven = "" if even == images else f", as uneven as {even} of one size,"
        return f"{images} source images{uneven} cannot show any difference at this level; {needed} can"
    moved = int(np.sum(np.abs(clusters.residuals + clusters.mean * clusters.sizes) > 1e-9))
    if moved < ENOUGH:
        return f"only {moved} of {images} source images differ"
    if clusters.effective == 0:
        return f"all {images} source images differ by the same amount, so nothing shows how much others would"
    if clusters.effective < ENOUGH:
        enough = math.ceil(images * ENOUGH / clusters.effective)
        few = f"the spread of {images} source images rests on about {clusters.effective:.1f} of them"
        return f"{few}: about {enough:,} like these would do without the guaranteed bound"
    return "a guaranteed bound has no detectable difference"


def _family(differences: Sequence[Difference]) -> tuple[Floats, Floats]:
    """The p of all tests, sorted, at their lowest and at their highest with the failures at either end.

    A judgement that failed may have failed for every factor: the others do not stay where they are when it is filled.
    """
    each = [[p for p in _every_p(d) if p is not None] for d in differences]
    return np.sort([min(ps) for ps in each if ps]), np.sort([max(ps) for ps in each if ps])


def _every_p(d: Difference) -> tuple[float | None, ...]:
    return (d.p,) if d.bounds is None else (d.p, d.bounds.p_worst, d.bounds.p_best)


def _overturnable(d: Difference, *families: Floats) -> bool:
    if not d.failed_a + d.failed_b or d.method == "identity":
        return False
    if d.bounds is None:
        return d.bounds_reason != UNPAIRED
    mine = [p for p in _every_p(d) if p is not None]
    ends = [(d.bounds.worst, d.bounds.p_worst), (d.bounds.best, d.bounds.p_best)]
    at_ends = set()
    for family, own in zip(families, (min, max), strict=True):
        others = np.delete(family, np.searchsorted(family, own(mine))) if mine else family
        at_ends |= {_direction(value, None if p is None else holm_of(p, others)) for value, p in ends}
    return at_ends != {_direction(d.difference, d.p_holm)}


def _direction(difference: float | None, p: float | None) -> int | None:
    """1 for higher, -1 for lower, 0 for inconclusive, None where there is nothing to compare."""
    if difference is None or p is None:
        return None
    return int(np.sign(difference)) if p < ALPHA else 0


def paired(a: Scores, b: Scores, on: On) -> tuple[Floats, Floats, Column, int, int]:
    """The means of both sides on the edits that both scored, their groups, and how many only one scored."""
    key_a, mean_a, group_a = _edit_means(a, on)
    key_b, mean_b, _ = _edit_means(b, on)
    index = {key: i for i, key in enumerate(key_b)}
    rows = [(i, index[key]) for i, key in enumerate(key_a) if key in index]
    left, right = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    group = Column.of(group_a[i] for i in left)
    return mean_a[left], mean_b[right], group, len(key_a) - len(rows), len(key_b) - len(rows)


def _edit_means(scores: Scores, on: On) -> tuple[list[str], Floats, list[str]]:
    part = scores.take(scores.ok)
    key: Column = getattr(part, on).compact()
    group = np.zeros(len(key.labels), np.int64)
    group[key.codes] = part.group.codes
    return list(key.labels), item_means(key, part.score), [part.group.labels[i] for i in group]


class _PairedTest:
    """One factor of a comparison: the paired differences, and what they would be with the failures at either end."""

    def __init__(self, factor: str, a: Scores, b: Scores, on: On, scale: Sequence[float] | None) -> None:
        self.factor = factor
        self.a = a
        self.b = b
        self.scale = scale
        self.x, self.y, self.group, self.only_a, self.only_b = paired(a, b, on)
        self.gaps = _gaps(self.x, self.y)
        self.codes = self.group.codes.astype(np.int64)
        self.clusters = Clusters.of(self.gaps, self.codes)
        self.identical = len(self.gaps) > 0 and not self.gaps.any() and same_answers(a, b, on)
        self.failed_a = int(a.failed.sum())
        self.failed_b = int(b.failed.sum())
        self.at_ends: list[Clusters] = []
        fills = worst_best(scale)
        if self.failed_a + self.failed_b and fills is not None and not self.identical:
            worst, best = fills
            for fill_a, fill_b in ((best, worst), (worst, best)):
                x, y, group, *_ = paired(filled(a, fill_a), filled(b, fill_b), on)
                self.at_ends.append(Clusters.of(_gaps(x, y), group.codes.astype(np.int64)))

    @property
    def samples(self) -> list[Clusters]:
        """Whatever has to be inferred: the differences, then those with the failures at the ends of the scale."""
        return [] if self.identical else [self.clusters, *self.at_ends]

    def difference(
        self, names: tuple[str, str], inferences: Sequence[Inference | None], *, guaranteed: bool
    ) -> Difference:
        n = len(self.gaps)
        mean = float(self.gaps.mean()) if n else None
        inference = inferences[0] if inferences else None
        p = inference.p() if inference is not None else None
        bounds, unknown = self._bounds(mean, p, inferences)
        reason = self._reason(guaranteed=guaranteed)
        spread = float(np.std(self.gaps, ddof=1)) if n and np.ptp(self.gaps) else 0.0
        error = self.clusters.error if self.clusters.groups > 1 else None
        return Difference(
            self.factor,
            *names,
            n=n,
            groups=len(self.group.labels),
            only_a=self.only_a,
            only_b=self.only_b,
            failed_a=self.failed_a,
            failed_b=self.failed_b,
            abstained_a=int(self.a.having(ABSTAINED).sum()),
            abstained_b=int(self.b.having(ABSTAINED).sum()),
            mean_a=float(self.x.mean()) if n else None,
            mean_b=float(self.y.mean()) if n else None,
            difference=mean,
            ci=None,
            ci_reason=reason,
            level=1 - ALPHA,
            method=self._method(inference),
            effective=self.clusters.effective,
            p=p,
            p_wilcoxon=None if self.identical else wilcoxon(self.gaps, self.codes),
            p_holm=None,
            effect=number(mean / spread) if mean is not None and spread > 0 else None,
            wins=int(np.sum(self.gaps > 0)),
            ties=int(np.sum(self.gaps == 0)),
            losses=int(np.sum(self.gaps < 0)),
            error=error,
            detectable=None,
            detectable_reason=reason,
            detectable_without_noise=None,
            bounds=bounds,
            bounds_reason=unknown,
            overturnable=False,
            verdict="",
            notes=_pair_notes(n, self.only_a + self.only_b, reason),
            inference=inference,
            clusters=self.clusters,
            quiet=_quiet_share(error, self.a, self.b, n),
        )

    def _method(self, inference: Inference | None) -> Method | None:
        if self.identical:
            return "identity"
        return None if inference is None else inference.method

    def _reason(self, *, guaranteed: bool) -> str | None:
        """Why there is no interval; None if there is one."""
        if self.identical:
            return IDENTICAL
        return reason_for_none(self.clusters, difference_ends(ends_of(self.scale)), guaranteed=guaranteed)

    def _bounds(
        self, mean: float | None, p: float | None, inferences: Sequence[Inference | None]
    ) -> tuple[DifferenceBounds | None, str | None]:
        if not self.failed_a + self.failed_b or self.identical:
            return (DifferenceBounds(mean, mean, p, p) if mean is not None else None), None
        if not self.at_ends:
            return None, "the ends of the scale are not known: nothing bounds what failed judgements would have said"
        if self.at_ends[0].groups == 0:
            return None, UNPAIRED
        (worst, p_worst), (best, p_best) = (
            (sample.mean, None if inference is None else inference.p())
            for sample, inference in zip(self.at_ends, inferences[1:], strict=True)
        )
        return DifferenceBounds(worst, best, p_worst, p_best), None


def same_answers(a: Scores, b: Scores, on: On) -> bool:
    """Whether both sides are the very same answers; never where answers are not known."""
    totals = []
    for side in (a, b):
        if not side.answer.all():
            return False
        column: Column = getattr(side, on).compact()
        total = np.zeros(len(column.labels), np.uint64)
        np.add.at(total, column.codes, side.answer)
        totals.append(dict(zip(column.labels, total.tolist(), strict=True)))
    return totals[0] == totals[1]


def _gaps(x: Floats, y: Floats) -> Floats:
    """Differences that rounding alone keeps apart are equal: .3 - .2 and .2 - .1, or two means of the same repeats."""
    gaps: Floats = np.round(y - x, 12) + 0.0
    return gaps


def _quiet_share(error: float | None, a: Scores, b: Scores, n: int) -> float:
    """The share of the standard error that repeats would not average away; NaN without repeats."""
    noises = []
    for side in (a, b):
        answered = side.take(side.ok)
        noises.append(within_variance(answered.item.compact().codes, answered.score))
    if not error or any(variance is None for variance, _ in noises):
        return math.nan
    noise = sum((variance or 0.0) / repeats for variance, repeats in noises) / n
    return math.sqrt(max(error**2 - noise, 0.0)) / error


def _pair_notes(n: int, unpaired: int, reason: str | None) -> tuple[str, ...]:
    if n == 0:
        return ("no edit has a score on both sides",)
    notes = [reason] if reason else []
    if unpaired:
        they = "edit has" if unpaired == 1 else "edits have"
        notes.append(f"{unpaired} {they} a score on one side only and {'is' if unpaired == 1 else 'are'} not compared")
    return tuple(notes)


def _verdict(d: Difference) -> str:
    failed = d.failed_a + d.failed_b
    doubt = f"; {failed} failed judgements could overturn this" if d.overturnable else ""
    if d.overturnable and d.bounds is not None:
        doubt += f" (from {d.bounds.worst:+.2f} to {d.bounds.best:+.2f})"
    if d.method == "identity":
        return f"no difference: {IDENTICAL}"
    if d.difference is None:
        return f"cannot be compared: no edit has a score on both sides{doubt}"
    if d.p_holm is None:
        return f"cannot be decided: {d.ci_reason}{doubt}"
    p = f"p = {d.p_holm:.2g}"
    if d.p_holm >= ALPHA:
        limit = f"MDE {d.detectable:.2g}" if d.detectable is not None else str(d.detectable_reason)
        return f"inconclusive: no evidence of a difference ({p} over {d.n} edits; {limit}){doubt}"
    word = "higher" if d.difference > 0 else "lower"
    return f"{d.b} scores {word} than {d.a} by {figure_text(abs(d.difference), _ahead(d))} ({p}){doubt}"


def _ahead(d: Difference) -> Interval | None:
    if d.ci is None or (d.difference or 0) > 0:
        return d.ci
    return Interval(-d.ci.hi, -d.ci.lo)


def provenance_changes(a: Mapping[str, object], b: Mapping[str, object]) -> tuple[str, ...]:
    """What is not the same about how two runs were made, in words: rubric hash, server model, preparation."""
    return tuple(
        f"{key}: {a.get(key, 'not recorded')} -> {b.get(key, 'not recorded')}"
        for key in sorted({*a, *b})
        if a.get(key) != b.get(key)
    )
