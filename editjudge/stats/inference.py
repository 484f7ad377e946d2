"""Inference about a mean over source images: p, confidence interval and detectable difference from one distribution.

Scores of one source image depend on each other, so images are the units. Two methods, and the data choose:

studentised  the symmetric bootstrap-t over images, where enough images carry the spread (`Clusters.effective`)
guaranteed   Gaffke's bound elsewhere: it allows for scores that were not seen, anywhere on the scale, and so assumes
             nothing but that images are independent; it is wide, and needs a scale whose ends are known

A share of images that are wholly right or wrong has the exact interval of Clopper and Pearson.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from editjudge.stats.bootstrap import DRAWS, Ends, clopper_pearson, evenly, group_notes, group_sums_in_turns, weights
from editjudge.stats.columns import Floats
from editjudge.stats.statistic import Interval, Limits

Method = Literal["studentised", "guaranteed", "exact", "identity"]
"""`identity`: both sides of a comparison rest on the very same answers."""

ENOUGH = 7.0
"""Effective images from which on the bootstrap-t decides. Chosen by `bench/coverage.py`: every simulated family is
covered in 93 of 100 draws, and rare large losses in 86 to 98; 10 gains little and leaves most comparisons of 30 images
to the bound."""
SKEWNESS = 2.0
"""Weight of skewness beside kurtosis in the effective number of images. Skewness is what a bootstrap cannot repair
where the long tail was not seen: without this term, +1 in 10 % and -5 in 2 % of 60 images is covered in 86 of 100."""
MANY = 2_000.0
"""Effective images from which on Student's t stands in for the draws: the two differ by less than two sets of draws
do, and a million edits take no time."""
TAIL_DRAWS = 50
"""Draws beyond which the tail of |t| is continued by Student's t, so that p is not bounded by the number of draws; a
twentieth of the draws if those are few."""
TEST_DRAWS = 4_999
"""Draws of a difference, whose limits may be asked for at the level that a correction leaves; a mean has `DRAWS`."""
POWER = 0.80


@dataclass(frozen=True, eq=False)
class Clusters:
    """A sample as source images: how far each deviates from the mean in sum, and how many values it has."""

    mean: float
    residuals: Floats
    sizes: Floats

    @classmethod
    def of(cls, values: Floats, groups: NDArray[Any]) -> Clusters:
        """Gather values by group code; codes without a value are left out."""
        sizes = np.bincount(groups).astype(float)
        mean = float(np.mean(values)) if len(values) else 0.0
        residuals = np.bincount(groups, weights=values - mean)
        used = sizes > 0
        return cls(mean, _without_rounding(residuals[used], values), sizes[used])

    @property
    def n(self) -> float:
        return float(self.sizes.sum())

    @property
    def groups(self) -> int:
        return len(self.sizes)

    @cached_property
    def error(self) -> float:
        """Cluster-robust standard error of the mean."""
        if self.groups < 2:
            return math.inf
        return math.sqrt(float(np.sum(self.residuals**2)) * self.groups / (self.groups - 1)) / self.n

    @cached_property
    def even(self) -> float:
        """Kish's effective number of images by size: one image with half of the edits leaves about four."""
        return evenly(self.sizes)

    @cached_property
    def effective(self) -> float:
        """How many images carry the spread, or the sizes if those are more uneven; 0 where there is no spread.

        A sample of n images has kurtosis n * sum(r^4) / sum(r^2)^2 and squared skewness n * sum(r^3)^2 / sum(r^2)^3:
        the terms of the error of a t interval to second order.
        """
        squares = float(np.sum(self.residuals**2))
        if squares == 0:
            return 0.0
        kurtosis = float(np.sum(self.residuals**4)) / squares**2
        skewness = float(np.sum(self.residuals**3)) ** 2 / squares**3
        return min(1 / (kurtosis + SKEWNESS * skewness), self.even)


class Inference(Protocol):
    """The distribution behind a mean: an interval excludes a value exactly if its p is below the level."""

    @property
    def method(self) -> Method: ...

    def p(self, null: float = 0.0) -> float:
        """Two-sided."""

    def interval(self, level: float = 0.95) -> Interval: ...

    def one_sided(self, alpha: float) -> Interval:
        """Each end alone is wrong with a chance of alpha."""

    def detectable(self, level: float = 0.95) -> float | None:
        """The smallest true difference from 0 that such a sample shows with 80 % power; None where none is shown."""


@dataclass(frozen=True, eq=False)
class Studentised:
    """The bootstrap-t: |mean - truth| / error is distributed as in draws of whole images."""

    clusters: Clusters
    ends: Ends | None
    deviations: Floats
    """The mean of each draw less the mean of the sample."""
    errors: Floats
    method: Method = "studentised"

    def p(self, null: float = 0.0) -> float:
        t = abs(self.clusters.mean - null) / self.clusters.error
        reached = int(np.searchsorted(-self._falling, -t, side="right"))
        if reached >= self._beyond or not math.isfinite(self._edge):
            return (1 + reached) / (len(self._falling) + 1)
        share = self._student_tail(t) / self._student_tail(self._edge)
        return (1 + self._beyond) / (len(self._falling) + 1) * share

    def interval(self, level: float = 0.95) -> Interval:
        reach = self._critical(1 - level) * self.clusters.error
        return _within(self.ends, self.clusters.mean - reach, self.clusters.mean + reach)

    def one_sided(self, alpha: float) -> Interval:
        last = _last_rejected(alpha, len(self._signed))
        if last < 0:
            return _within(self.ends, -math.inf, math.inf)
        highest = max(float(self._signed[-1 - last]), 0.0) * self.clusters.error
        lowest = min(float(self._signed[last]), 0.0) * self.clusters.error
        return _within(self.ends, self.clusters.mean - highest, self.clusters.mean - lowest)

    def detectable(self, level: float = 0.95) -> float | None:
        # A true difference is found in a draw if (deviation + difference) / error exceeds the critical value.
        critical = self._critical(1 - level)
        return float(np.quantile(critical * self.errors - self.deviations, POWER)) if math.isfinite(critical) else None

    @cached_property
    def _signed(self) -> Floats:
        """Draws of (mean - truth) / error, the lowest first; infinite where a draw has no spread."""
        with np.errstate(divide="ignore", invalid="ignore"):
            signed = self.deviations / self.errors
        ordered: Floats = np.sort(np.nan_to_num(signed, nan=0.0, posinf=math.inf, neginf=-math.inf))
        return ordered

    @cached_property
    def _falling(self) -> Floats:
        """The draws' |t|, the largest first."""
        return np.sort(np.abs(self._signed))[::-1]

    @property
    def _beyond(self) -> int:
        """How many draws are beyond the edge."""
        return max(1, min(TAIL_DRAWS, len(self._falling) // 20))

    @property
    def _edge(self) -> float:
        """The |t| beyond which Student's t continues the tail."""
        return float(self._falling[self._beyond - 1])

    def _student_tail(self, t: float) -> float:
        from scipy.special import stdtr

        return float(stdtr(self.clusters.groups - 1, -t))

    def _critical(self, alpha: float) -> float:
        """Return the |t| that is exceeded with this chance: the inverse of `p`."""
        from scipy.special import stdtrit

        draws = len(self._falling)
        last = _last_rejected(alpha, draws)
        if last >= self._beyond - 1 or not math.isfinite(self._edge):
            return float(self._falling[last]) if last >= 0 else math.inf
        tail = alpha * (draws + 1) / (1 + self._beyond) * self._student_tail(self._edge)
        return max(self._edge, float(-stdtrit(self.clusters.groups - 1, tail)))


@dataclass(frozen=True, eq=False)
class Student:
    """Student's t in the place of draws, for so many images that the two are the same."""

    clusters: Clusters
    ends: Ends | None
    method: Method = "studentised"

    def p(self, null: float = 0.0) -> float:
        from scipy.special import stdtr

        return float(2 * stdtr(self.clusters.groups - 1, -abs(self.clusters.mean - null) / self.clusters.error))

    def interval(self, level: float = 0.95) -> Interval:
        return self.one_sided((1 - level) / 2)

    def one_sided(self, alpha: float) -> Interval:
        reach = self._quantile(1 - alpha) * self.clusters.error
        return _within(self.ends, self.clusters.mean - reach, self.clusters.mean + reach)

    def detectable(self, level: float = 0.95) -> float | None:
        return (self._quantile((1 + level) / 2) + self._quantile(POWER)) * self.clusters.error

    def _quantile(self, share: float) -> float:
        from scipy.special import stdtrit

        return float(stdtrit(self.clusters.groups - 1, share))


@dataclass(frozen=True, eq=False)
class Guaranteed:
    """Gaffke's bound (2005; Phan, Thomas and Learned-Miller 2021): one more image, at an end of the scale."""

    clusters: Clusters
    ends: Ends
    low: Floats
    """Draws of the mean with the further image at the lowest score, sorted."""
    high: Floats
    """The same with it at the highest score."""
    method: Method = "guaranteed"

    def p(self, null: float = 0.0) -> float:
        draws = len(self.low)
        below = int(np.searchsorted(self.low, null, side="right"))
        above = draws - int(np.searchsorted(self.high, null, side="left"))
        return min(1.0, 2 * (1 + min(below, above)) / (draws + 1))

    def interval(self, level: float = 0.95) -> Interval:
        return self.one_sided((1 - level) / 2)

    def one_sided(self, alpha: float) -> Interval:
        last = _last_rejected(alpha, len(self.low))
        if last < 0:
            return Interval(*self.ends)
        # The mean lies within its interval; rounding alone could put it outside where scores are nearly equal.
        low = min(float(self.low[last]), self.clusters.mean)
        high = max(float(self.high[len(self.high) - 1 - last]), self.clusters.mean)
        return Interval(low, high)

    def detectable(self, level: float = 0.95) -> float | None:
        return None


@dataclass(frozen=True, eq=False)
class Exact:
    """Clopper and Pearson's interval of a share, at the effective number of images."""

    clusters: Clusters
    ends: Ends
    method: Method = "exact"

    def p(self, null: float = 0.0) -> float:
        from scipy.special import betainc

        low, high = self.ends
        n = self.clusters.even
        passed = n * (self.clusters.mean - low) / (high - low)
        share = min(max((null - low) / (high - low), 0.0), 1.0)
        at_least = float(betainc(passed, n - passed + 1, share)) if passed > 0 else 1.0
        at_most = 1 - float(betainc(passed + 1, n - passed, share)) if passed < n else 1.0
        return min(1.0, 2 * min(at_least, at_most))

    def interval(self, level: float = 0.95) -> Interval:
        low, high = self.ends
        return clopper_pearson((self.clusters.mean - low) / (high - low), self.clusters.even, level, self.ends)

    def one_sided(self, alpha: float) -> Interval:
        return self.interval(1 - 2 * alpha)

    def detectable(self, level: float = 0.95) -> float | None:
        return None


SAME = "all scores are equal and the ends of their scale are not known"
FEW = "too few source images carry the spread for a bootstrap, and the ends of the scale are not known"


def reason_for_none(clusters: Clusters, ends: Ends | None, *, guaranteed: bool = False) -> str | None:
    """Why nothing can be inferred; None if something can."""
    if clusters.groups < 2:
        return group_notes(clusters.groups)[0]
    if ends is not None:
        return None
    if guaranteed:
        return "a guaranteed interval needs a scale whose ends are known"
    if clusters.effective == 0:
        return SAME
    return FEW if clusters.effective < ENOUGH else None


def infer(
    values: Floats,
    groups: NDArray[Any],
    ends: Ends | None,
    *,
    share: bool = False,
    guaranteed: bool = False,
    draws: int = TEST_DRAWS,
) -> Inference | None:
    """Infer the mean of `values`, which lie between `ends`; None where `reason_for_none` says why.

    `share`: values are shares of an image that is right, and may have the exact interval.
    """
    clusters = Clusters.of(values, groups)
    return infer_each([clusters], [ends], shares=[share], guaranteed=guaranteed, draws=draws)[0]


def infer_each(
    samples: Sequence[Clusters],
    ends: Sequence[Ends | None],
    *,
    shares: Sequence[bool],
    guaranteed: bool = False,
    draws: int = DRAWS,
) -> list[Inference | None]:
    """Infer several means at once; those with equally many images share their draws, since nothing compares them."""
    found: list[Inference | None] = [None] * len(samples)
    drawn: dict[tuple[int, bool], list[int]] = {}
    for i, sample in enumerate(samples):
        limits = ends[i]
        if reason_for_none(sample, limits, guaranteed=guaranteed):
            continue
        if limits is not None and shares[i] and _all_or_nothing(sample, limits):
            found[i] = Exact(sample, limits)
        elif not guaranteed and sample.effective >= MANY:
            found[i] = Student(sample, limits)
        else:
            studentise = not guaranteed and sample.effective >= ENOUGH
            drawn.setdefault((sample.groups, studentise), []).append(i)
    for (_, studentise), members in drawn.items():
        several = [samples[i] for i in members]
        if studentise:
            for i, (deviations, errors) in zip(members, _bootstrap_t(several, draws), strict=True):
                found[i] = Studentised(samples[i], ends[i], deviations, errors)
        else:
            for i, means in zip(members, _bayesian_means(several, draws), strict=True):
                found[i] = _gaffke(samples[i], ends[i] or (0.0, 0.0), means)
    return found


def mean_interval(
    values: Floats,
    groups: NDArray[Any],
    ends: Ends | None,
    *,
    level: float = 0.95,
    draws: int = DRAWS,
    share: bool = False,
    guaranteed: bool = False,
) -> Limits:
    """Return the interval of one mean; `groups` are codes from 0."""
    clusters = Clusters.of(values, groups)
    inference = infer_each([clusters], [ends], shares=[share], guaranteed=guaranteed, draws=draws)[0]
    return _interval(inference, clusters, ends, level, guaranteed=guaranteed)


def difference_ends(scale: Ends | None) -> Ends | None:
    """The smallest and the largest difference between two scores of a scale."""
    if scale is None:
        return None
    length = abs(scale[1] - scale[0])
    return -length, length


def mean_intervals(
    values: Floats,
    cells: NDArray[Any],
    n_cells: int,
    groups: NDArray[Any],
    n_groups: int,
    ends: Sequence[Ends | None],
    *,
    level: float = 0.95,
    draws: int = DRAWS,
    guaranteed: bool = False,
) -> list[Limits]:
    """Return the interval of the mean of every cell."""
    intervals: list[Limits] = []
    for sums, counts, centre in group_sums_in_turns(values, cells, n_cells, groups, n_groups):
        samples = []
        for i, mean in enumerate(centre):
            used = counts[:, i] > 0
            samples.append(Clusters(float(mean), sums[used, i].astype(float), counts[used, i].astype(float)))
        here = ends[len(intervals) : len(intervals) + len(samples)]
        shares = [limits == (0.0, 1.0) for limits in here]
        found = infer_each(samples, here, shares=shares, guaranteed=guaranteed, draws=draws)
        for sample, limits, inference in zip(samples, here, found, strict=True):
            intervals.append(_interval(inference, sample, limits, level, guaranteed=guaranteed))
    return intervals


def finite(ci: Interval) -> Interval | None:
    """Return an interval that says something: too many draws without spread leave a limit open."""
    return ci if math.isfinite(ci.lo + ci.hi) else None


def images_to_show_anything(alpha: float) -> int:
    """Return how many images a guaranteed bound needs to exclude 0 when each differs by the whole scale."""
    return math.floor(math.log2(2 / alpha)) + 1


def _interval(
    inference: Inference | None, clusters: Clusters, ends: Ends | None, level: float, *, guaranteed: bool
) -> Limits:
    if inference is None:
        return Limits(None, reason_for_none(clusters, ends, guaranteed=guaranteed), None)
    ci = finite(inference.interval(level))
    return Limits(ci, None if ci else FEW, inference.method if ci else None)


def _within(ends: Ends | None, low: float, high: float) -> Interval:
    return Interval(low, high) if ends is None else Interval(max(low, ends[0]), min(high, ends[1]))


def _without_rounding(residuals: NDArray[Any], values: Floats) -> Floats:
    """Set residuals to 0 that only rounding keeps apart from it."""
    largest = float(np.max(np.abs(values), initial=0.0))
    cleaned: Floats = np.where(np.abs(residuals) > 1e-9 * max(largest, 1e-300), residuals, 0.0)
    return cleaned


def _all_or_nothing(sample: Clusters, ends: Ends) -> bool:
    low, high = ends
    means = sample.mean + sample.residuals / sample.sizes
    tolerance = 1e-6 * (high - low)
    return bool(np.all((np.abs(means - low) < tolerance) | (np.abs(means - high) < tolerance)))


def _last_rejected(alpha: float, draws: int) -> int:
    """The largest k for which (1 + k) / (1 + draws) is below alpha; -1 or less where there is none."""
    return math.ceil(alpha * (draws + 1) - 1e-9) - 2


def _bootstrap_t(samples: Sequence[Clusters], draws: int) -> Iterable[tuple[Floats, Floats]]:
    """Yield each sample's deviations and errors over draws of whole images; all have equally many images."""
    moments = np.stack(
        [(s.sizes, s.residuals, s.residuals**2, s.residuals * s.sizes, s.sizes**2) for s in samples]
    )  # samples x 5 x images
    groups = samples[0].groups
    columns = moments.reshape(-1, groups).T
    totals = np.concatenate([drawn @ columns for drawn in weights(groups, draws)])
    for n, deviation, squares, product, sizes in totals.reshape(draws, len(samples), 5).transpose(1, 2, 0):
        shift = deviation / n
        # The residuals of a draw are about its own mean.
        spread = squares - 2 * shift * product + shift**2 * sizes
        variance = np.maximum(spread, 0.0) * groups / (groups - 1)
        yield shift, np.sqrt(variance) / n


def _bayesian_means(samples: Sequence[Clusters], draws: int) -> Iterable[Floats]:
    """Yield each sample's mean in draws of the Bayesian bootstrap over images."""
    groups = samples[0].groups
    columns = np.column_stack([column for s in samples for column in (s.residuals, s.sizes)])
    totals = np.concatenate([drawn @ columns for drawn in weights(groups, draws, bayesian=True)])
    for i, sample in enumerate(samples):
        yield sample.mean + totals[:, 2 * i] / totals[:, 2 * i + 1]


def _gaffke(sample: Clusters, ends: Ends, means: Floats) -> Guaranteed:
    """Lay the image at the end of the scale over Bayesian bootstrap means.

    Its weight is independent of the other weights (a Dirichlet distribution is neutral), so it is stratified: equal
    scores have an exact limit.
    """
    draws = len(means)
    strata = (np.random.default_rng(1).permutation(draws) + 0.5) / draws
    unseen = 1 - strata ** (1 / sample.even)
    low, high = (np.sort(means + unseen * (end - means)) for end in ends)
    return Guaranteed(sample, ends, low, high)
