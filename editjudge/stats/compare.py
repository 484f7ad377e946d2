"""Whether two things that made or judged the same edits differ: paired, clustered, corrected, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from editjudge.stats.bootstrap import DRAWS, Ends, difference_interval
from editjudge.stats.columns import ABSTAINED, Column, Floats, Ints, Scores, ends_of, filled, item_means, worst_best
from editjudge.stats.permutation import ALPHA, InvertedTest, holm, holm_of, sign_flip, wilcoxon
from editjudge.stats.spread import within_variance
from editjudge.stats.statistic import FailureBounds, Interval, Statistic, figure_text, number

POWER = 0.80
On = Literal["item", "pair"]
UNPAIRED = "no edit was asked of both sides"


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
    """95 % CI, which excludes 0 exactly where `p_holm` is below .05: the wider, at either end, of the inverted test,
    corrected as p is, and Gaffke's bound, which allows for scores that were not seen (see `agreeing_interval`)."""
    ci_reason: str | None
    p: float | None
    """Paired permutation test clustered by source image (sign flips of whole groups), two-sided."""
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
    """The minimum detectable difference (MDE) at 80 % power, at a level of 5 % over the number of comparisons, which is
    the level that Holm's correction has for the smallest p."""
    detectable_without_noise: float | None
    """The same if the judge gave the same answer every time; None without repeats."""
    bounds: DifferenceBounds | None
    """None where the scale is not known, or nothing could be paired whatever the failures had said."""
    bounds_reason: str | None
    overturnable: bool
    """Whether the verdict is another one with the failures at an end of the scale; true where that is not known."""
    verdict: str
    notes: tuple[str, ...]
    bound: Interval | None = field(default=None, repr=False)
    """Gaffke's bound at 95 %, or a bootstrap interval where the ends of the scale are not known."""
    test: InvertedTest | None = field(default=None, repr=False, compare=False)

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
    draws: int = DRAWS,
) -> list[Difference]:
    """Factor by factor, repeats averaged first. `on="pair"` for models, `"item"` for judges or runs.

    `scales` gives the legal values of a factor, or its two ends, from the worst to the best: without them nothing
    bounds what failed.
    """
    factors = [f for f in a.factor.present() if f in b.factor.present()]
    known = scales or {}
    differences = [
        _difference(f, a.where(factor=f), b.where(factor=f), names, on, known.get(f), draws=draws) for f in factors
    ]
    return corrected(differences)


def corrected(differences: Sequence[Difference]) -> list[Difference]:
    """With Holm's correction over all of these, and the verdict that follows from it."""
    tests = sum(d.p is not None for d in differences)
    judged = [
        replace(_among(d, tests), p_holm=p) for d, p in zip(differences, holm([d.p for d in differences]), strict=True)
    ]
    lowest, highest = _family(differences)
    level = ALPHA / max(1, tests - sum(d.evident for d in judged))
    judged = [
        replace(
            d,
            ci=agreeing_interval(d.bound, d.test, d.difference or 0.0, level, evident=d.evident) if d.test else None,
            overturnable=_overturnable(d, lowest, highest),
        )
        for d in judged
    ]
    return [replace(d, verdict=_verdict(d)) for d in judged]


def agreeing_interval(
    bound: Interval | None, test: InvertedTest, mean: float, level: float, *, evident: bool
) -> Interval | None:
    """The 95 % CI that says what the corrected p says.

    Of m tests of which Holm's correction rejects r, those rejected have p below ALPHA / (m - r) and the others have
    not: the test is inverted at that level. Gaffke's bound may reach further, but not across 0 against the test.
    """
    if bound is None:
        return None
    limits = test.limits(level)
    lo, hi = min(bound.lo, limits.lo), max(bound.hi, limits.hi)
    if not math.isfinite(lo + hi):  # too few images for any p to be below the level
        return Interval(min(bound.lo, 0.0), max(bound.hi, 0.0))
    crosses = evident and lo <= 0 <= hi
    return Interval(limits.lo if crosses and mean > 0 else lo, limits.hi if crosses and mean < 0 else hi)


def _family(differences: Sequence[Difference]) -> tuple[Floats, Floats]:
    """The p of all tests, sorted, at their lowest and at their highest with the failures at either end.

    A judgement that failed may have failed for every factor: the others do not stay where they are when it is filled.
    """
    each = [[p for p in _every_p(d) if p is not None] for d in differences]
    return np.sort([min(ps) for ps in each if ps]), np.sort([max(ps) for ps in each if ps])


def _every_p(d: Difference) -> tuple[float | None, ...]:
    return (d.p,) if d.bounds is None else (d.p, d.bounds.p_worst, d.bounds.p_best)


def _overturnable(d: Difference, *families: Floats) -> bool:
    if not d.failed_a + d.failed_b:
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


def _among(d: Difference, tests: int) -> Difference:
    """With what can be shown by one of so many tests."""
    limit, quiet = detectable(d.error or None, d.groups, tests), d.detectable_without_noise
    if limit and d.detectable and quiet is not None:
        quiet *= limit / d.detectable
    return replace(d, detectable=limit, detectable_without_noise=quiet)


def cluster_error(values: Floats, groups: Ints) -> float | None:
    """Standard error of the mean with whole groups as the unit."""
    n_groups = len(np.unique(groups))
    if n_groups < 2:
        return None
    if not np.ptp(values):  # the mean of equal decimals may be off by rounding
        return 0.0
    sums = np.bincount(groups, weights=values - values.mean())
    return math.sqrt(float(np.sum(sums**2)) * n_groups / (n_groups - 1)) / len(values)


def paired(a: Scores, b: Scores, on: On) -> tuple[Floats, Floats, Column, int, int]:
    """The means of both sides on the edits that both scored, their groups, and how many only one scored."""
    (key_a, mean_a, group_a), (key_b, mean_b, _) = _edit_means(a, on), _edit_means(b, on)
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


def _difference(
    factor: str, a: Scores, b: Scores, names: tuple[str, str], on: On, scale: Sequence[float] | None, *, draws: int
) -> Difference:
    x, y, group, only_a, only_b = paired(a, b, on)
    delta, codes = _gaps(x, y), group.codes.astype(np.int64)
    groups, n = len(group.labels), len(delta)
    ci, why = difference_interval(delta, codes, ends_of(scale), draws=draws)
    spread = float(np.std(delta, ddof=1)) if n and np.ptp(delta) else 0.0
    error = cluster_error(delta, codes) if n else None
    quiet = _quiet_error(error, a, b, n)
    failed_a, failed_b = int(a.failed.sum()), int(b.failed.sum())
    mean, p = float(delta.mean()) if n else None, sign_flip(delta, codes)
    bounds, unknown = DifferenceBounds(mean, mean, p, p) if n else None, None
    if failed_a + failed_b:
        bounds, unknown = _bounds(a, b, on, worst_best(scale))
    return Difference(
        factor, *names, n=n, groups=groups, only_a=only_a, only_b=only_b,
        failed_a=failed_a, failed_b=failed_b,
        abstained_a=int(a.having(ABSTAINED).sum()), abstained_b=int(b.having(ABSTAINED).sum()),
        mean_a=float(x.mean()) if n else None,
        mean_b=float(y.mean()) if n else None,
        difference=mean,
        ci=ci,
        ci_reason=why,
        p=p,
        p_wilcoxon=wilcoxon(delta, codes),
        p_holm=None,
        effect=number(mean / spread) if mean is not None and spread > 0 else None,
        wins=int(np.sum(delta > 0)), ties=int(np.sum(delta == 0)), losses=int(np.sum(delta < 0)),
        error=error,
        detectable=detectable(error or None, groups),
        detectable_without_noise=detectable(quiet, groups),
        bounds=bounds,
        bounds_reason=unknown,
        overturnable=False,
        verdict="",
        notes=_pair_notes(n, spread, only_a + only_b, why),
        bound=ci,
        test=InvertedTest(delta, codes) if n else None,
    )  # fmt: skip


def _gaps(x: Floats, y: Floats) -> Floats:
    """Differences that rounding alone keeps apart are equal: .3 - .2 and .2 - .1, or two means of the same repeats."""
    gaps: Floats = np.round(y - x, 12) + 0.0
    return gaps


def _bounds(a: Scores, b: Scores, on: On, ends: Ends | None) -> tuple[DifferenceBounds | None, str | None]:
    if ends is None:
        return None, "the ends of the scale are not known: nothing bounds what failed judgements would have said"
    at_ends = []
    for end, other in (ends, ends[::-1]):
        x, y, group, *_ = paired(filled(a, other), filled(b, end), on)
        delta = _gaps(x, y)
        at_ends.append((float(delta.mean()) if len(delta) else None, sign_flip(delta, group.codes.astype(np.int64))))
    (worst, p_worst), (best, p_best) = at_ends
    if worst is None:
        return None, UNPAIRED
    return DifferenceBounds(worst, best, p_worst, p_best), None


def detectable(error: float | None, groups: int, tests: int = 1) -> float | None:
    """The difference that a two-sided 5 % test, one of so many, finds with 80 % power, from its standard error."""
    from scipy.special import stdtrit

    if error is None or groups < 2:
        return None
    return float(stdtrit(groups - 1, 1 - ALPHA / max(1, tests) / 2) + stdtrit(groups - 1, POWER)) * error


def _quiet_error(error: float | None, a: Scores, b: Scores, n: int) -> float | None:
    """The standard error without the judge's own noise, which repeats would average away."""
    noises = [within_variance(part.item.compact().codes, part.score) for part in (x.take(x.ok) for x in (a, b))]
    if error is None or any(variance is None for variance, _ in noises):
        return None
    noise = sum((variance or 0.0) / repeats for variance, repeats in noises) / n
    return math.sqrt(max(error**2 - noise, 0.0))


def _pair_notes(n: int, spread: float, unpaired: int, why: str | None) -> tuple[str, ...]:
    if n == 0:
        return ("no edit has a score on both sides",)
    notes = [why] if why else []
    if n > 1 and spread == 0:
        notes.append("every edit shows the same difference: effect size and detectable difference are undefined")
    if unpaired:
        they = "edit has" if unpaired == 1 else "edits have"
        notes.append(f"{unpaired} {they} a score on one side only and {'is' if unpaired == 1 else 'are'} not compared")
    return tuple(notes)


def _verdict(d: Difference) -> str:
    failed = d.failed_a + d.failed_b
    doubt = f"; {failed} failed judgements could overturn this" if d.overturnable else ""
    if d.overturnable and d.bounds is not None:
        doubt += f" (from {d.bounds.worst:+.2f} to {d.bounds.best:+.2f})"
    if d.difference is None or d.p_holm is None:
        return f"cannot be compared: no edit has a score on both sides{doubt}"
    p = f"Holm-corrected p = {d.p_holm:.2g}"
    if d.p_holm >= ALPHA:
        limit = f", MDE at 80 % power {d.detectable:.2g}" if d.detectable else ""
        return f"inconclusive: no evidence of a difference ({p} over {d.n} edits{limit}){doubt}"
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
