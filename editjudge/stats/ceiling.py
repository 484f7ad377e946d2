"""What people reach among themselves: what a further rater would reach, and which raters to look at.

A judge is compared with the mean of an item's k raters. A rater left out is compared with a mean of k - 1, which is
noisier, and so looks worse than a further rater would. The step from one to the other is the Spearman-Brown relation:
raters who share the truth and err on their own, with correlation `c` between two of them, agree with a mean of k others
by `c * sqrt(k / (1 + (k - 1) * c))`. The observed correlation gives `c`, and `c` gives the one that is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from editjudge.stats.bootstrap import DRAWS, interval, weights
from editjudge.stats.columns import Column, Floats, Ints, Ratings
from editjudge.stats.concordance import (
    Pairs,
    averaged,
    averaged_draws,
    carried,
    estimate,
    intervals,
    supported,
    why_none,
    within_range,
)
from editjudge.stats.spread import crossed, mean_squares
from editjudge.stats.statistic import Interval, Statistic, number

STRAIGHT = 0.95
"""A rater who gives one value at least this often, over at least 10 items, is said to straight-line."""
FEWEST_SHARED = 10
"""Items that several people rated, source images of such items, and such items of a rater: with fewer, readers are
given no figure of agreement among people. An interval of a rank correlation needs as many; one item of nine moves a
correlation by .2 and more."""
SHOWN_RATERS = 12
"""Raters with an interval, those who agree least: whom to look at. A crowd has too many to draw for each."""
LEFT_OUT = ("spearman", "pearson")
"""Figures of a rater against the others. Kendall's has no such step from k - 1 raters to k."""


@dataclass(frozen=True)
class Rater(Statistic):
    """One person on one factor."""

    n: int
    shared: int
    """Items that somebody else rated, too."""
    mean: float
    sd: float
    commonest: float
    """The share of this rater's ratings that have the commonest value."""
    straight_lining: bool
    spearman_with_rest: float | None
    """Against the mean of the others on the same items."""
    ci: Interval | None
    """Of `spearman_with_rest`, for the `SHOWN_RATERS` who agree least."""
    alpha_without: float | None
    """Interval alpha of the others: above the alpha of all means that this rater lowers it."""


@dataclass(frozen=True)
class FurtherRater(Statistic):
    """What one more rater would reach against the mean of the raters that the items have, estimated."""

    spearman: float | None
    pearson: float | None
    raters: float | None
    """Raters of an item: the harmonic mean over items, since the error of a mean of k goes with 1 / k."""
    items: int
    """Items that two or more people rated."""
    images: int
    """Source images of these items."""
    ci: Mapping[str, Interval]
    reason: str | None
    """Why there is no figure, or no interval."""


@dataclass(frozen=True, eq=False)
class RaterDraws:
    """A further rater in every draw of source images, to be subtracted from a judge draw by draw."""

    figures: FurtherRater
    spearman: Floats | None
    """None where there is no interval."""
    left_out: Mapping[str, Floats]
    """Each rater against the others, averaged; empty where some rater has too few items to be drawn."""
    carried: float
    group: Mapping[str, int]
    """The code of the source image of each item."""
    groups: int


@dataclass(frozen=True)
class Variant(Statistic):
    """Agreement among people once something was done to the ratings."""

    raters: int
    alpha_interval: float | None
    loo_spearman: float | None


@dataclass(frozen=True)
class Ceiling(Statistic):
    """Agreement of people on one factor. None is undefined, with the reason in `notes`."""

    raters: int
    items: int
    shared: int
    """Items that two or more people rated: all that agreement among people rests on."""
    images: int
    """Source images of the shared items."""
    ratings: int
    alpha_nominal: float | None
    alpha_ordinal: float | None
    alpha_interval: float | None
    fleiss: float | None
    icc1: float | None
    icc2k: float | None
    loo_spearman: float | None
    """Each rater against the mean of the others, averaged: what was observed, of k - 1 raters."""
    loo_pearson: float | None
    further_rater: FurtherRater
    """The same of a further rater against the mean of all: what a judge may be compared with."""
    ci: Mapping[str, Interval]
    top: float | None
    """The share of ratings at the highest value seen."""
    floor: float | None
    rater_quality: Mapping[str, Rater]
    variants: Mapping[str, Variant]
    notes: tuple[str, ...]


def ceiling(
    ratings: Ratings,
    *,
    group: Mapping[str, str] | None = None,
    draws: int = DRAWS,
    further: RaterDraws | None = None,
) -> Ceiling:
    """Return how people agree on one factor; `group` names the source image of an item.

    `further` is what `further_rater` returned for the same ratings, groups and draws, where it is at hand.
    """
    further = further or further_rater(ratings, group=group, draws=draws)
    item = ratings.item.compact()
    rater = ratings.rater.compact()
    x = ratings.score
    codes = np.array([further.group[label] for label in item.labels], np.int64)
    strata = _leave_one_out(item, rater, x, codes)
    loo = averaged(strata, LEFT_OUT) if strata else dict.fromkeys(LEFT_OUT, np.nan)
    quality = _rater_quality(item, rater, x, strata, further.groups, draws)
    return Ceiling(
        raters=len(rater.labels),
        items=len(item.labels),
        shared=further.figures.items,
        images=further.figures.images,
        ratings=len(x),
        alpha_nominal=alpha_nominal(item.codes, x),
        alpha_ordinal=alpha_ordinal(item.codes, x),
        alpha_interval=alpha_interval(item.codes, x),
        fleiss=fleiss(item.codes, x),
        icc1=icc1(item.codes, x),
        icc2k=icc2k(item.codes, rater.codes, x),
        loo_spearman=number(loo["spearman"]),
        loo_pearson=number(loo["pearson"]),
        further_rater=further.figures,
        ci=_limits(further, strata, _RatingSums.of(item.codes, x, codes, further.groups), draws),
        top=float(np.mean(x == x.max())) if len(x) else None,
        floor=float(np.mean(x == x.min())) if len(x) else None,
        rater_quality=quality,
        variants=_variants(item, rater, x, quality),
        notes=_notes(item, rater, x),
    )


def further_rater(ratings: Ratings, *, group: Mapping[str, str] | None = None, draws: int = DRAWS) -> RaterDraws:
    """Return what a further rater of one factor would reach; `group` names the source image of an item.

    Raters who share fewer than `FEWEST_SHARED` items with others count in the means, but are not left out in turn. The
    interval is over source images: the raters are those who rated, and their number is not drawn again.
    """
    item = ratings.item.compact()
    rater = ratings.rater.compact()
    sources = [(group or {}).get(label, label) for label in item.labels]
    # Sorted, so that draws do not depend on the order of the ratings.
    code_of_source = {source: code for code, source in enumerate(sorted(set(sources)))}
    codes = np.array([code_of_source[source] for source in sources], np.int64)
    strata = _leave_one_out(item, rater, ratings.score, codes)
    shared = _shared(item.codes, rater.codes)
    images = len(np.unique(codes[shared]))
    group_of_item = dict(zip(item.labels, codes.tolist(), strict=True))
    able = [pairs for pairs in strata if len(pairs) >= FEWEST_SHARED]
    enough = carried(able)
    observed = averaged(able, LEFT_OUT) if able else dict.fromkeys(LEFT_OUT, np.nan)
    reason = _no_further_rater(len(rater.labels), len(shared), images, able, observed["spearman"])
    if reason is not None:
        none = FurtherRater(None, None, None, len(shared), images, {}, reason)
        return RaterDraws(
            none, None, {}, enough, dict(zip(item.labels, codes.tolist(), strict=True)), len(code_of_source)
        )
    ratings_of_item = np.bincount(item.codes)
    others = _others(item.codes, rater.codes, ratings_of_item)
    raters = _harmonic_mean(ratings_of_item)
    drawn = averaged_draws(able, len(code_of_source), supported(LEFT_OUT, enough), draws=draws)
    stepped = {name: stepped_up(values, others, raters) for name, values in drawn.items()}
    ci = {}
    for name, values in stepped.items():
        limits = interval(values, int(enough))
        if limits is not None:
            ci[name] = within_range(name, limits)
    estimates = {name: stepped_up(np.array(value), others, raters) for name, value in observed.items()}
    figures = FurtherRater(
        number(float(estimates["spearman"])),
        number(float(estimates["pearson"])),
        raters,
        len(shared),
        images,
        ci,
        None if "spearman" in ci else why_none(able),
    )
    return RaterDraws(
        figures,
        stepped["spearman"] if "spearman" in ci else None,
        drawn if len(able) == len(strata) else {},
        enough,
        group_of_item,
        len(code_of_source),
    )


def stepped_up(r: Floats, others: float, raters: float) -> Floats:
    """Return a rater's correlation with the mean of so many raters, from that with the mean of so many others."""
    squared = r * r
    between = squared * (others - 1)
    single = (between + np.sqrt(between * between + 4 * others * squared)) / (2 * others)
    stepped: Floats = np.sign(r) * single * np.sqrt(raters / (1 + (raters - 1) * single))
    return stepped


def _no_further_rater(raters: int, shared: int, images: int, able: list[Pairs], observed: float) -> str | None:
    """Return why nothing can be said of a further rater."""
    if raters < 2:
        return "one rater: nobody else to compare with"
    if shared == 0:
        return "no item was rated by two people"
    if shared < FEWEST_SHARED or images < FEWEST_SHARED:
        needs = f"a figure needs {FEWEST_SHARED} of each"
        return f"{shared} items of {images} source images were rated by two or more people: {needs}"
    if not able:
        return f"no rater shares {FEWEST_SHARED} items with others"
    if np.isnan(observed):
        return "no rater's ratings vary together with the others': correlations are undefined"
    return None


def _shared(item: NDArray[Any], rater: NDArray[Any]) -> Ints:
    """Return the codes of items that two or more people rated."""
    pairs = np.unique(np.column_stack([item, rater]), axis=0)
    shared: Ints = np.flatnonzero(np.bincount(pairs[:, 0]) > 1)
    return shared


def _others(item: NDArray[Any], rater: NDArray[Any], ratings_of_item: Ints) -> float:
    """Return how many ratings by others a left-out rater is compared with: the harmonic mean."""
    own, counts = np.unique(np.column_stack([item, rater]), axis=0, return_counts=True)
    rest = ratings_of_item[own[:, 0]] - counts
    return _harmonic_mean(rest[rest > 0])


def _harmonic_mean(counts: Ints) -> float:
    return len(counts) / float(np.sum(1 / counts))


def _limits(further: RaterDraws, strata: list[Pairs], sums: _RatingSums, draws: int) -> dict[str, Interval]:
    """Return the intervals of what was observed among people."""
    if further.left_out:
        drawn = {name: interval(values, int(further.carried)) for name, values in further.left_out.items()}
        loo = {name: within_range(name, limits) for name, limits in drawn.items() if limits is not None}
    else:
        loo = intervals(strata, further.groups, LEFT_OUT, draws=draws) if strata else {}
    limits = {f"loo_{name}": ends for name, ends in loo.items()}
    enough = carried(strata)
    for name in supported(("alpha_interval", "icc1"), enough):
        ends = interval(sums.draws(name, draws), int(enough))
        if ends is not None:
            limits[name] = Interval(max(ends.lo, -1.0), min(ends.hi, 1.0))
    return limits


@dataclass(frozen=True, eq=False)
class _RatingSums:
    """All that alpha (interval) and ICC(1) depend on: sums over items, here for each source image."""

    groups: int
    columns: Mapping[str, Floats]

    @classmethod
    def of(cls, item: NDArray[Any], x: Floats, group: Ints, groups: int) -> _RatingSums:
        """Return the sums; `group` is the code of the source image of each item."""
        counts = np.bincount(item, minlength=len(group)).astype(float)
        off = x - x.mean() if len(x) else x
        total = np.bincount(item, weights=off, minlength=len(group))
        squares = np.bincount(item, weights=off * off, minlength=len(group))
        pairable = counts > 1
        spread = np.where(pairable, (counts * squares - total**2) / np.maximum(counts - 1, 1), 0.0)
        each = {
            "items": np.ones(len(group)),
            "ratings": counts,
            "ratings_squared": counts**2,
            "total": total,
            "squares": squares,
            "explained": total**2 / np.maximum(counts, 1),
            "pairable": counts * pairable,
            "pairable_total": total * pairable,
            "pairable_squares": squares * pairable,
            "spread": spread,
        }
        sums = {name: np.bincount(group, weights=v, minlength=groups).astype(float) for name, v in each.items()}
        return cls(groups, sums)

    def draws(self, name: str, draws: int) -> Floats:
        """Return a figure in every draw of source images."""
        figure = {"alpha_interval": _drawn_alpha, "icc1": _drawn_icc}[name]
        with np.errstate(invalid="ignore", divide="ignore"):
            parts = [
                figure({column: drawn @ sums for column, sums in self.columns.items()})
                for drawn in weights(self.groups, draws)
            ]
        return np.concatenate(parts)


def _drawn_alpha(sums: Mapping[str, Floats]) -> Floats:
    n = sums["pairable"]
    expected = (n * sums["pairable_squares"] - sums["pairable_total"] ** 2) / (n - 1)
    return np.where(expected > 1e-12, 1 - sums["spread"] / expected, np.nan)


def _drawn_icc(sums: Mapping[str, Floats]) -> Floats:
    n = sums["ratings"]
    items = sums["items"]
    between = (sums["explained"] - sums["total"] ** 2 / n) / (items - 1)
    within = (sums["squares"] - sums["explained"]) / (n - items)
    size = (n - sums["ratings_squared"] / n) / (items - 1)
    bottom = between + (size - 1) * within
    return np.where(bottom > 1e-12, (between - within) / bottom, np.nan)


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


def _rater_quality(
    item: Column, rater: Column, x: Floats, strata: list[Pairs], groups: int, draws: int
) -> dict[str, Rater]:
    correlations = [number(estimate(pairs)["spearman"]) for pairs in strata]
    known = [code for code, value in enumerate(correlations) if value is not None]
    least = sorted(known, key=lambda code: correlations[code] or 0.0)[:SHOWN_RATERS]
    limits = {code: intervals([strata[code]], groups, ("spearman",), draws=draws) for code in least}
    out = {}
    for code, name in enumerate(rater.labels):
        rows = rater.codes == code
        mine, others = x[rows], ~rows
        commonest = float(np.max(np.unique(mine, return_counts=True)[1])) / len(mine)
        out[name] = Rater(
            n=len(mine),
            shared=len(strata[code]) if strata else 0,
            mean=float(mine.mean()),
            sd=float(mine.std()),
            commonest=commonest,
            straight_lining=commonest >= STRAIGHT and len(mine) >= 10,
            spearman_with_rest=correlations[code] if strata else None,
            ci=limits.get(code, {}).get("spearman"),
            alpha_without=alpha_interval(item.codes[others], x[others]),
        )
    return out


def _variants(item: Column, rater: Column, x: Floats, quality: Mapping[str, Rater]) -> dict[str, Variant]:
    """What centring raters, and leaving out those who straight-line, does to agreement among people."""
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
