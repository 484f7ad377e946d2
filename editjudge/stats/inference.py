"""Inference about a mean over source images: p, confidence interval and detectable difference from one distribution.

Scores of one source image depend on each other, so images are the units. Two methods, and the data choose:

studentised  the symmetric bootstrap-t over images, where enough images carry the spread (`Clusters.effective`)
guaranteed   Gaffke's bound elsewhere: it allows for scores that were not seen, anywhere on the scale, and so assumes
             nothing but that images are independent; it is wide, and needs a scale whose ends are known

A share of images that are wholly right or wrong has the exact interval of Clopper and Pearson.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from editjudge.stats.columns import Ends, Floats, Interval, Ints, Limits, Reason

DRAWS = 1_999
"""Enough that the Monte-Carlo error of a 95 % limit is about a twentieth of the interval's half-width."""
BLOCK = 2_000_000
"""Entries of a block of weights: 8 MB as float32, near what a core's caches hold."""
CELLS = 24_000_000
"""Entries of group sums held at once (96 MB); more cells are done in turns with the same draws."""
PICKS = 16_384
"""Groups that are picked at once: they stay in the cache. Counting over a whole block takes up to six times as long,
and a call for each draw of few groups takes longer than its work."""

FEWEST = 10
FEWEST_MOMENTS = 12
"""Groups that must carry the spread, about the median, for an interval of anything but a mean; as many less one are
its degrees of freedom. With 8, rank correlations of a share of .9 held the truth in 75 of 100, Pearson and
kappa of scores near the top in 91 and 84."""


def weights(
    groups: int,
    draws: int = DRAWS,
    seed: int = 0,
    block: int = BLOCK,
    *,
    bayesian: bool = False,
) -> Iterator[NDArray[np.float32]]:
    """Yield how often each group occurs in each draw, block by block; float32 holds such counts exactly.

    The weights of the Bayesian bootstrap are exponential, and their shares uniform over all that add up to one.
    """
    rng = np.random.default_rng(seed)
    rows = max(1, min(draws, block // max(groups, 1)))
    for start in range(0, draws, rows):
        n = min(rows, draws - start)
        yield (
            rng.standard_exponential((n, groups), dtype=np.float32)
            if bayesian
            else _picked(n, groups, rng)
        )


def _picked(draws: int, groups: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Count how often each group is picked when each draw picks as many as there are."""
    drawn = np.empty((draws, groups), np.float32)
    step = max(1, PICKS // max(groups, 1))
    for start in range(0, draws, step):
        part = drawn[start : start + step]
        picks = rng.integers(0, groups, (len(part), groups))
        picks += groups * np.arange(len(part))[:, None]
        part[:] = np.bincount(picks.ravel(), minlength=part.size).reshape(part.shape)
    return drawn


def mean_draws(
    values: Floats,
    cells: NDArray[Any],
    n_cells: int,
    groups: NDArray[Any],
    n_groups: int,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> Floats:
    """Return the mean of every cell in every draw (draws x cells); NaN where a draw has none of a cell."""
    parts = [np.empty((draws, 0))]
    for sums, counts, centre in group_sums_in_turns(
        values, cells, n_cells, groups, n_groups
    ):
        means = []
        for drawn in weights(n_groups, draws, seed):
            with np.errstate(invalid="ignore", divide="ignore"):
                means.append(centre + (drawn @ sums) / (drawn @ counts))
        parts.append(np.concatenate(means))
    return np.concatenate(parts, axis=1)


def group_sums_in_turns(
    values: Floats,
    cells: NDArray[Any],
    n_cells: int,
    groups: NDArray[Any],
    n_groups: int,
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32], Floats]]:
    """Yield the `_group_sums` of as many cells at once as memory is meant for."""
    step = max(1, CELLS // max(2 * n_groups, 1))
    for start in range(0, n_cells, step):
        stop = min(start + step, n_cells)
        here = slice(None) if step >= n_cells else (cells >= start) & (cells < stop)
        yield _group_sums(
            values[here], cells[here] - start, stop - start, groups[here], n_groups
        )


def _group_sums(
    values: Floats,
    cells: NDArray[Any],
    n_cells: int,
    groups: NDArray[Any],
    n_groups: int,
) -> tuple[NDArray[np.float32], NDArray[np.float32], Floats]:
    """Sums about each cell's mean: small, so float32 loses nothing and a constant cell stays constant."""
    key = groups.astype(np.int64) * n_cells + cells
    counts = np.bincount(key, minlength=n_groups * n_cells).reshape(n_groups, n_cells)
    # An empty count comes back as integers whatever its weights.
    sums = (
        np.bincount(key, weights=values, minlength=n_groups * n_cells)
        .astype(float)
        .reshape(n_groups, n_cells)
    )
    totals = counts.sum(axis=0)
    centre = np.divide(
        sums.sum(axis=0), totals, out=np.zeros(n_cells), where=totals > 0
    )
    sums -= counts * centre
    sums[np.abs(sums) < 1e-9] = 0.0  # what rounding leaves of a constant cell
    return sums.astype(np.float32), counts.astype(np.float32), centre


def tail(groups: int, level: float = 0.95) -> float:
    """The tail probability to read off, widened for few groups (Hesterberg's expanded percentile).

    The plain percentile interval is too narrow by sqrt((G - 1) / G) and uses the normal where the t belongs.
    """
    from scipy.special import ndtr, stdtrit

    if groups < 2:
        return 0.0
    quantile = stdtrit(groups - 1, (1 + level) / 2)
    return float(ndtr(-math.sqrt(groups / (groups - 1)) * quantile))


def interval(
    draws: Floats, groups: int, level: float = 0.95, shift: float = 0.0
) -> Interval | None:
    """From draws of one figure; None with one group, where most draws leave it undefined, or where none differs."""
    good = draws[np.isfinite(draws)]
    if groups < 2 or len(good) < max(2, len(draws) / 2):
        return None
    p = tail(groups, level)
    lo, hi = np.quantile(good, [p, 1 - p])
    # Draws that are all alike have not shown that the figure is certain.
    return Interval(float(lo) + shift, float(hi) + shift) if hi - lo > 1e-9 else None


def evenly(size: NDArray[Any]) -> float:
    """Kish's effective number: so many of one size would weigh as evenly as these do."""
    # not by BLAS, whose threads take longer to meet than to multiply
    squared = float(np.sum(np.square(size)))
    return float(size.sum()) ** 2 / squared if squared > 0 else 0.0


def carrying(values: Floats, groups: NDArray[Any]) -> float:
    """How many groups carry the spread of a column about its median: few where it is nearly the same everywhere."""
    return (
        evenly(np.bincount(groups, weights=np.abs(values - np.median(values))))
        if len(values)
        else 0.0
    )


def clopper_pearson(
    share: float, n: float, level: float = 0.95, ends: Ends = (0.0, 1.0)
) -> Interval:
    """The exact interval of a share of `n`, which need not be whole; by hand since SciPy's takes whole numbers."""
    from scipy.special import betaincinv

    p = (1 - level) / 2
    k = min(max(share, 0.0), 1.0) * n
    lo, hi = ends
    low = betaincinv(k, n - k + 1, p) if k > 1e-9 else 0.0
    high = betaincinv(k + 1, n - k, 1 - p) if n - k > 1e-9 else 1.0
    return Interval(lo + float(low) * (hi - lo), lo + float(high) * (hi - lo))


def few_groups(groups: int) -> Reason | None:
    """Return why so few source images have no interval."""
    if groups > 1:
        return None
    return Reason("one_image" if groups else "no_scores")


def folds_of(groups: NDArray[Any], folds: int = 5) -> Ints:
    """A fold for every row, whole groups at random, so that no source image is on both sides."""
    used, code = np.unique(groups, return_inverse=True)
    order = np.random.default_rng(0).permutation(len(used))
    assigned: Ints = (order % max(1, min(folds, len(used))))[code]
    return assigned


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
        return (
            math.sqrt(
                float(np.sum(self.residuals**2)) * self.groups / (self.groups - 1)
            )
            / self.n
        )

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
        return _within(
            self.ends, self.clusters.mean - reach, self.clusters.mean + reach
        )

    def one_sided(self, alpha: float) -> Interval:
        last = _last_rejected(alpha, len(self._signed))
        if last < 0:
            return _within(self.ends, -math.inf, math.inf)
        highest = max(float(self._signed[-1 - last]), 0.0) * self.clusters.error
        lowest = min(float(self._signed[last]), 0.0) * self.clusters.error
        return _within(
            self.ends, self.clusters.mean - highest, self.clusters.mean - lowest
        )

    def detectable(self, level: float = 0.95) -> float | None:
        # A true difference is found in a draw if (deviation + difference) / error exceeds the critical value.
        critical = self._critical(1 - level)
        return (
            float(np.quantile(critical * self.errors - self.deviations, POWER))
            if math.isfinite(critical)
            else None
        )

    @cached_property
    def _signed(self) -> Floats:
        """Draws of (mean - truth) / error, the lowest first; infinite where a draw has no spread."""
        with np.errstate(divide="ignore", invalid="ignore"):
            signed = self.deviations / self.errors
        ordered: Floats = np.sort(
            np.nan_to_num(signed, nan=0.0, posinf=math.inf, neginf=-math.inf)
        )
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

        return float(
            2
            * stdtr(
                self.clusters.groups - 1,
                -abs(self.clusters.mean - null) / self.clusters.error,
            )
        )

    def interval(self, level: float = 0.95) -> Interval:
        return self.one_sided((1 - level) / 2)

    def one_sided(self, alpha: float) -> Interval:
        reach = self._quantile(1 - alpha) * self.clusters.error
        return _within(
            self.ends, self.clusters.mean - reach, self.clusters.mean + reach
        )

    def detectable(self, level: float = 0.95) -> float | None:
        return (
            self._quantile((1 + level) / 2) + self._quantile(POWER)
        ) * self.clusters.error

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
        at_most = (
            1 - float(betainc(passed + 1, n - passed, share)) if passed < n else 1.0
        )
        return min(1.0, 2 * min(at_least, at_most))

    def interval(self, level: float = 0.95) -> Interval:
        low, high = self.ends
        return clopper_pearson(
            (self.clusters.mean - low) / (high - low),
            self.clusters.even,
            level,
            self.ends,
        )

    def one_sided(self, alpha: float) -> Interval:
        return self.interval(1 - 2 * alpha)

    def detectable(self, level: float = 0.95) -> float | None:
        return None


SAME = Reason("same_scores")
FEW = Reason("few_carry")


def reason_for_none(
    clusters: Clusters, ends: Ends | None, *, guaranteed: bool = False
) -> Reason | None:
    """Return why nothing can be inferred; None if something can."""
    if clusters.groups < 2:
        return few_groups(clusters.groups)
    if ends is not None:
        return None
    if guaranteed:
        return Reason("no_ends")
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
    return infer_each(
        [clusters], [ends], shares=[share], guaranteed=guaranteed, draws=draws
    )[0]


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
            for i, (deviations, errors) in zip(
                members, _bootstrap_t(several, draws), strict=True
            ):
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
    inference = infer_each(
        [clusters], [ends], shares=[share], guaranteed=guaranteed, draws=draws
    )[0]
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
    for sums, counts, centre in group_sums_in_turns(
        values, cells, n_cells, groups, n_groups
    ):
        samples = []
        for i, mean in enumerate(centre):
            used = counts[:, i] > 0
            samples.append(
                Clusters(
                    float(mean),
                    sums[used, i].astype(float),
                    counts[used, i].astype(float),
                )
            )
        here = ends[len(intervals) : len(intervals) + len(samples)]
        shares = [limits == (0.0, 1.0) for limits in here]
        found = infer_each(
            samples, here, shares=shares, guaranteed=guaranteed, draws=draws
        )
        for sample, limits, inference in zip(samples, here, found, strict=True):
            intervals.append(
                _interval(inference, sample, limits, level, guaranteed=guaranteed)
            )
    return intervals


def finite(ci: Interval) -> Interval | None:
    """Return an interval that says something: too many draws without spread leave a limit open."""
    return ci if math.isfinite(ci.lo + ci.hi) else None


def images_to_show_anything(alpha: float) -> int:
    """Return how many images a guaranteed bound needs to exclude 0 when each differs by the whole scale."""
    return math.floor(math.log2(2 / alpha)) + 1


def _interval(
    inference: Inference | None,
    clusters: Clusters,
    ends: Ends | None,
    level: float,
    *,
    guaranteed: bool,
) -> Limits:
    if inference is None:
        return Limits(
            None, reason_for_none(clusters, ends, guaranteed=guaranteed), None
        )
    ci = finite(inference.interval(level))
    return Limits(ci, None if ci else FEW, inference.method if ci else None)


def _within(ends: Ends | None, low: float, high: float) -> Interval:
    return (
        Interval(low, high)
        if ends is None
        else Interval(max(low, ends[0]), min(high, ends[1]))
    )


def _without_rounding(residuals: NDArray[Any], values: Floats) -> Floats:
    """Set residuals to 0 that only rounding keeps apart from it."""
    largest = float(np.max(np.abs(values), initial=0.0))
    cleaned: Floats = np.where(
        np.abs(residuals) > 1e-9 * max(largest, 1e-300), residuals, 0.0
    )
    return cleaned


def _all_or_nothing(sample: Clusters, ends: Ends) -> bool:
    low, high = ends
    means = sample.mean + sample.residuals / sample.sizes
    tolerance = 1e-6 * (high - low)
    return bool(
        np.all((np.abs(means - low) < tolerance) | (np.abs(means - high) < tolerance))
    )


def _last_rejected(alpha: float, draws: int) -> int:
    """The largest k for which (1 + k) / (1 + draws) is below alpha; -1 or less where there is none."""
    return math.ceil(alpha * (draws + 1) - 1e-9) - 2


def _bootstrap_t(
    samples: Sequence[Clusters], draws: int
) -> Iterable[tuple[Floats, Floats]]:
    """Yield each sample's deviations and errors over draws of whole images; all have equally many images."""
    # samples x 5 x images
    moments = np.stack(
        [
            (s.sizes, s.residuals, s.residuals**2, s.residuals * s.sizes, s.sizes**2)
            for s in samples
        ]
    )
    groups = samples[0].groups
    columns = moments.reshape(-1, groups).T
    totals = np.concatenate([drawn @ columns for drawn in weights(groups, draws)])
    for n, deviation, squares, product, sizes in totals.reshape(
        draws, len(samples), 5
    ).transpose(1, 2, 0):
        shift = deviation / n
        # The residuals of a draw are about its own mean.
        spread = squares - 2 * shift * product + shift**2 * sizes
        variance = np.maximum(spread, 0.0) * groups / (groups - 1)
        yield shift, np.sqrt(variance) / n


def _bayesian_means(samples: Sequence[Clusters], draws: int) -> Iterable[Floats]:
    """Yield each sample's mean in draws of the Bayesian bootstrap over images."""
    groups = samples[0].groups
    columns = np.column_stack(
        [column for s in samples for column in (s.residuals, s.sizes)]
    )
    totals = np.concatenate(
        [drawn @ columns for drawn in weights(groups, draws, bayesian=True)]
    )
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


EXACT = 14
"""Up to 2**14 = 16,384 patterns of signs are enumerated: SciPy takes a second over ties among so few."""
ALPHA = 0.05


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Correct p-values step by step (Holm), which SciPy does not; undefined p-values are not counted as tests."""
    order = sorted((p, i) for i, p in enumerate(ps) if p is not None)
    out: list[float | None] = [None] * len(ps)
    highest = 0.0
    for step, (p, i) in enumerate(order):
        highest = max(highest, min(1.0, p * (len(order) - step)))
        out[i] = highest
    return out


def holm_of(p: float, others: Floats) -> float:
    """Correct one p beside these sorted others."""
    tests = len(others) + 1
    below = int(np.searchsorted(others, p))
    steps = others[:below] * (tests - np.arange(below))
    return min(1.0, max(float(steps.max(initial=0.0)), p * (tests - below)))


def wilcoxon(values: Floats, groups: NDArray[Any]) -> float | None:
    """Test two-sided, over groups as the independent units; groups without a difference say nothing."""
    from scipy.stats import wilcoxon as signed_ranks

    if len(values) == 0:
        return None
    means = np.bincount(groups, weights=values) / np.bincount(groups)
    # equal means must tie whatever the order of summing
    means = np.round(means[np.abs(means) > 1e-12], 9)
    if len(means) == 0:
        return 1.0
    return _exact(means) if len(means) <= EXACT else float(signed_ranks(means).pvalue)


def _exact(means: Floats) -> float:
    from scipy.stats import rankdata

    ranks = rankdata(np.abs(means)) * np.sign(means)
    signs = 1 - 2 * ((np.arange(2 ** len(ranks))[:, None] >> np.arange(len(ranks))) & 1)
    observed = abs(float(ranks.sum())) * (1 - 1e-9)
    return float(np.mean(np.abs(signs @ ranks) >= observed))
