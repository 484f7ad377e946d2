"""What people reach among themselves: the ceiling that a judge is read against, and which raters to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from editjudge.stats.bootstrap import DRAWS
from editjudge.stats.columns import Column, Floats, Ints, Ratings
from editjudge.stats.concordance import Pairs, averaged, estimate, intervals
from editjudge.stats.spread import crossed, mean_squares
from editjudge.stats.statistic import Interval, Statistic, number

STRAIGHT = 0.95
"""A rater who gives one value at least this often, over at least 10 items, is said to straight-line."""


@dataclass(frozen=True)
class Rater(Statistic):
    """One person on one factor."""

    n: int
    mean: float
    sd: float
    commonest: float
    """The share of this rater's ratings that have the commonest value."""
    straight_lining: bool
    spearman_with_rest: float | None
    """Against the mean of the others on the same items."""
    alpha_without: float | None
    """Interval alpha of the others: above the alpha of all means that this rater lowers it."""


@dataclass(frozen=True)
class Variant(Statistic):
    """The ceiling once something was done to the ratings."""

    raters: int
    alpha_interval: float | None
    loo_spearman: float | None


@dataclass(frozen=True)
class Ceiling(Statistic):
    """Agreement of people on one factor. None is undefined, with the reason in `notes`."""

    raters: int
    items: int
    ratings: int
    alpha_nominal: float | None
    alpha_ordinal: float | None
    alpha_interval: float | None
    fleiss: float | None
    icc1: float | None
    icc2k: float | None
    loo_spearman: float | None
    loo_pearson: float | None
    ci: Mapping[str, Interval]
    top: float | None
    """The share of ratings at the highest value seen."""
    floor: float | None
    rater_quality: Mapping[str, Rater]
    variants: Mapping[str, Variant]
    notes: tuple[str, ...]


def ceiling(ratings: Ratings, *, group: Mapping[str, str] | None = None, draws: int = DRAWS) -> Ceiling:
    """Of the ratings of one factor; `group` names the source image of an item."""
    item, rater, x = ratings.item.compact(), ratings.rater.compact(), ratings.score
    codes = Column.of((group or {}).get(label, label) for label in item.labels)
    strata = _leave_one_out(item, rater, x, codes.codes.astype(np.int64))
    names = ("spearman", "pearson")
    loo = averaged(strata, names) if strata else dict.fromkeys(names, np.nan)
    limits = intervals(strata, len(codes.labels), names, draws=draws) if strata else {}
    quality = _rater_quality(item, rater, x, strata)
    return Ceiling(
        raters=len(rater.labels),
        items=len(item.labels),
        ratings=len(x),
        alpha_nominal=alpha_nominal(item.codes, x),
        alpha_ordinal=alpha_ordinal(item.codes, x),
        alpha_interval=alpha_interval(item.codes, x),
        fleiss=fleiss(item.codes, x),
        icc1=icc1(item.codes, x),
        icc2k=icc2k(item.codes, rater.codes, x),
        loo_spearman=number(loo["spearman"]),
        loo_pearson=number(loo["pearson"]),
        ci={f"loo_{name}": one for name, one in limits.items()},
        top=float(np.mean(x == x.max())) if len(x) else None,
        floor=float(np.mean(x == x.min())) if len(x) else None,
        rater_quality=quality,
        variants=_variants(item, rater, x, quality),
        notes=_notes(item, rater, x),
    )


def one_against_rest(ratings: Ratings) -> float | None:
    """The mean Spearman correlation of each rater with the mean of the others, on one factor."""
    every = np.ones(len(ratings), bool)
    return _variant(ratings.item, ratings.rater, ratings.score, every).loo_spearman


def alpha_interval(item: NDArray[Any], x: Floats) -> float | None:
    """Krippendorff's alpha with squared differences; any number of ratings an item."""
    item, x = _pairable(item, x)
    n = len(x)
    if n == 0:
        return None
    x = x - x.mean()
    m = np.bincount(item)
    within = m * np.bincount(item, weights=x * x) - np.bincount(item, weights=x) ** 2
    expected = (n * float(np.sum(x * x)) - float(np.sum(x)) ** 2) / (n - 1)
    return 1 - float(np.sum(within / (m - 1))) / expected if expected > 1e-12 else None


def alpha_ordinal(item: NDArray[Any], x: Floats) -> float | None:
    """Krippendorff's alpha on an ordinal scale: its metric is the squared difference of midranks."""
    from scipy.stats import rankdata

    item, x = _pairable(item, x)
    return alpha_interval(item, rankdata(x)) if len(x) else None


def alpha_nominal(item: NDArray[Any], x: Floats) -> float | None:
    """Krippendorff's alpha where values are only the same or not."""
    item, x = _pairable(item, x)
    n = len(x)
    if n == 0:
        return None
    values, code = np.unique(x, return_inverse=True)
    m = np.bincount(item)
    same = _same(item, code, len(values))
    totals = np.bincount(code)
    expected = (n * n - float(np.sum(totals**2))) / (n - 1)
    return 1 - float(np.sum((m * m - same) / (m - 1))) / expected if expected > 0 else None


def fleiss(item: NDArray[Any], x: Floats) -> float | None:
    """Fleiss' kappa over the items that have the commonest number of ratings (it knows one number only)."""
    m = np.bincount(item)
    m = m[m > 1]
    if len(m) == 0:
        return None
    size = int(np.argmax(np.bincount(m)))
    keep = np.bincount(item)[item] == size
    item, x = np.unique(item[keep], return_inverse=True)[1], x[keep]
    values, code = np.unique(x, return_inverse=True)
    observed = float(np.mean((_same(item, code, len(values)) - size) / (size * (size - 1))))
    chance = float(np.sum((np.bincount(code) / len(code)) ** 2))
    return (observed - chance) / (1 - chance) if len(values) > 1 else None


def icc1(item: NDArray[Any], x: Floats) -> float | None:
    """ICC(1): one rating drawn from anyone, one-way random effects; unequal numbers of ratings allowed."""
    item = np.unique(item, return_inverse=True)[1]
    m = np.bincount(item) if len(item) else np.zeros(0, np.int64)
    n, k = len(x), len(m)
    if k < 2 or n <= k:
        return None
    means = np.bincount(item, weights=x) / m
    between = float(np.sum(m * (means - x.mean()) ** 2)) / (k - 1)
    within = float(np.sum((x - means[item]) ** 2)) / (n - k)
    size = (n - float(np.sum(m**2)) / n) / (k - 1)
    bottom = between + (size - 1) * within
    return (between - within) / bottom if bottom > 1e-12 else None


def icc2k(item: NDArray[Any], rater: NDArray[Any], x: Floats) -> float | None:
    """ICC(2,k): the mean of all raters, two-way random effects; over the items that every rater rated."""
    table = crossed(item, rater, x)
    n, k = table.shape
    if n < 2 or k < 2:
        return None
    ms_rows, ms_columns, ms_rest = mean_squares(table)
    bottom = ms_rows + (ms_columns - ms_rest) / n
    return (ms_rows - ms_rest) / bottom if bottom > 1e-12 else None


def _pairable(item: NDArray[Any], x: Floats) -> tuple[Ints, Floats]:
    keep = np.bincount(item)[item] > 1 if len(item) else np.zeros(0, bool)
    return np.unique(item[keep], return_inverse=True)[1], x[keep]


def _same(item: NDArray[Any], code: Ints, values: int) -> Ints:
    """For each item the sum of squared counts of its values."""
    cells, counts = np.unique(item.astype(np.int64) * values + code, return_counts=True)
    return np.bincount(cells // values, weights=counts**2).astype(np.int64)


def _leave_one_out(item: Column, rater: Column, x: Floats, group: Ints) -> list[Pairs]:
    """For each rater: their ratings against the mean of the others, over the items that someone else rated too."""
    counts, sums = np.bincount(item.codes), np.bincount(item.codes, weights=x)
    out = []
    for code in range(len(rater.labels)):
        mine = np.flatnonzero(rater.codes == code)
        n = np.bincount(item.codes[mine], minlength=len(counts))
        own = np.bincount(item.codes[mine], weights=x[mine], minlength=len(counts))
        both = np.flatnonzero((n > 0) & (counts > n))
        rest: Floats = (sums[both] - own[both]) / (counts[both] - n[both])
        # Thirds do not add up exactly; unrounded, equal means would get different ranks.
        out.append(Pairs(own[both] / n[both], np.round(rest, 9).astype(np.float64), group[both]))
    return out if len(rater.labels) > 1 else []


def _rater_quality(item: Column, rater: Column, x: Floats, strata: list[Pairs]) -> dict[str, Rater]:
    out = {}
    for code, name in enumerate(rater.labels):
        rows = rater.codes == code
        mine, others = x[rows], ~rows
        commonest = float(np.max(np.unique(mine, return_counts=True)[1])) / len(mine)
        out[name] = Rater(
            n=len(mine),
            mean=float(mine.mean()),
            sd=float(mine.std()),
            commonest=commonest,
            straight_lining=commonest >= STRAIGHT and len(mine) >= 10,
            spearman_with_rest=number(estimate(strata[code])["spearman"]) if strata else None,
            alpha_without=alpha_interval(item.codes[others], x[others]),
        )
    return out


def _variants(item: Column, rater: Column, x: Floats, quality: Mapping[str, Rater]) -> dict[str, Variant]:
    """What centring raters, and leaving out those who straight-line, does to the ceiling."""
    if len(x) == 0:
        return {}
    own = np.array([one.mean for one in quality.values()])
    centred = np.round(x - own[rater.codes] + x.mean(), 9)
    varied = np.array([not one.straight_lining for one in quality.values()])[rater.codes]
    every = np.ones(len(x), bool)
    choices = {"all": (x, every), "rater_centred": (centred, every), "without_straight_liners": (x, varied)}
    return {name: _variant(item, rater, values, keep) for name, (values, keep) in choices.items()}


def _variant(item: Column, rater: Column, x: Floats, keep: NDArray[np.bool_]) -> Variant:
    item, rater, x = item.take(keep).compact(), rater.take(keep).compact(), x[keep]
    strata = _leave_one_out(item, rater, x, np.arange(len(item.labels)))
    loo = averaged(strata, ("spearman",))["spearman"] if strata else np.nan
    return Variant(len(rater.labels), alpha_interval(item.codes, x), number(loo))


def _notes(item: Column, rater: Column, x: Floats) -> tuple[str, ...]:
    notes = []
    m = np.bincount(item.codes) if len(item) else np.zeros(1, np.int64)
    if len(rater.labels) == 1:
        notes.append("one rater: agreement among people is undefined")
    elif not np.any(m > 1):
        notes.append("no item was rated twice: agreement among people is undefined")
    elif np.ptp(x) == 0:
        notes.append("every rating is the same: chance-corrected agreement is undefined")
    if np.any(m > 1) and len(set(m[m > 1])) > 1:
        notes.append("items differ in the number of ratings: Fleiss' kappa uses those with the commonest number")
    if len(rater.labels) > 1 and len(crossed(item.codes, rater.codes, x)) < 2:
        notes.append("fewer than two items were rated by every rater: ICC(2,k) is undefined")
    return tuple(notes)
