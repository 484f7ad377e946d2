"""Agreement among people, and statistics of agreement between two columns (exact values and bootstrap draws).

Each statistic depends on the pairs only through a table that counts each pair of values (rank statistics) or through a
few sums (moments). Both are sums over groups, so a draw is a weighted sum of the groups' contributions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from editjudge.stats.columns import (
    Codes,
    Column,
    Floats,
    Interval,
    Ints,
    Ratings,
    Reason,
    number,
)
from editjudge.stats.inference import (
    DRAWS,
    FEWEST,
    FEWEST_MOMENTS,
    evenly,
    interval,
    weights,
)
from editjudge.stats.noise import crossed, mean_squares

LEVELS = 64
"""Maximum number of distinct values in bootstrap draws. If there are more, they are binned by rank. Binning changes a
draw little compared with the variation between draws, and the interval is shifted to the exact estimate."""
RANKS = ("spearman", "kendall")
MOMENTS = ("pearson", "qwk", "mae", "bias", "exact", "within_one")
FIGURES = (*RANKS, *MOMENTS)
UNDEFINED = Reason("undefined_or_constant")


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of values, one pair for each item, with the item's group."""

    x: Floats
    y: Floats
    group: Ints
    step: float = 1.0
    """Distance between neighbouring values of the scale, used for the share of pairs 'within one'."""

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: Codes) -> Pairs:
        return Pairs(self.x[rows], self.y[rows], self.group[rows], self.step)


def estimate(pairs: Pairs) -> dict[str, float]:
    """Return the exact value of every statistic, or NaN if it is undefined (no pairs, or a constant column)."""
    if len(pairs) == 0:
        return dict.fromkeys(FIGURES, np.nan)
    figures = _moment_figures(_moments(pairs).sum(axis=0)[None])
    used_x, x = np.unique(pairs.x, return_inverse=True)
    used_y, y = np.unique(pairs.y, return_inverse=True)
    shape = (len(used_x), len(used_y))
    size = shape[0] * shape[1]
    if min(shape) < 2 or size <= 1_000_000:
        table = np.bincount(x * shape[1] + y, minlength=size).astype(float)
        figures |= rank_figures(table.reshape(1, *shape))
    else:
        from scipy.stats import kendalltau, rankdata

        # With many levels, sorting is faster than an 8 MB table. SciPy would also compute a p-value, which is slow.
        figures["spearman"] = _row_pearson(rankdata(x)[None], rankdata(y)[None])
        kendall = kendalltau(x, y, method="asymptotic").statistic
        figures["kendall"] = np.array([kendall])
    return {name: float(value[0]) for name, value in figures.items()}


def averaged(
    strata: Sequence[Pairs], names: Sequence[str] = FIGURES
) -> dict[str, float]:
    """Return the unweighted mean of each statistic over the strata in which it is defined, or NaN if there are no such
    strata.
    """
    each = [estimate(pairs) for pairs in strata]
    return {
        name: float(_mean_defined(np.array([figures[name] for figures in each])))
        for name in names
    }


def intervals(
    strata: Sequence[Pairs],
    groups: int,
    names: Sequence[str] = FIGURES,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Interval]:
    """Return clustered intervals of `averaged(strata)`; statistics without an interval are left out (see `why_none`)."""
    enough = carried(strata)
    drawn = averaged_draws(
        strata, groups, supported(names, enough), draws=draws, seed=seed
    )
    return drawn_intervals(drawn, enough)


def drawn_intervals(drawn: Mapping[str, Floats], enough: float) -> dict[str, Interval]:
    """Return the intervals of the drawn statistics, leaving out statistics that have no interval. `enough` is the
    effective number of groups."""
    limits = {}
    for name, values in drawn.items():
        ci = interval(values, int(enough))
        if ci is not None:
            # clipped to the range of the statistic
            lo, hi = _RANGE.get(name, (-np.inf, np.inf))
            limits[name] = Interval(min(max(ci.lo, lo), hi), max(min(ci.hi, hi), lo))
    return limits


def supported(names: Sequence[str], enough: float) -> list[str]:
    """Return the names of the statistics for which there are enough groups to compute an interval. `enough` is the
    effective number of groups.
    """
    if enough >= FEWEST_MOMENTS:
        return list(names)
    return [name for name in names if name in RANKS and enough >= FEWEST]


def averaged_draws(
    strata: Sequence[Pairs],
    groups: int,
    names: Sequence[str] = FIGURES,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Floats]:
    """Return `averaged(strata)` for every draw of groups, leaving out undefined statistics.

    Calls with the same number of groups, draws and seed use the same draws, so their results can be subtracted draw by
    draw.
    """
    drawables = [_Drawable(pairs, names) for pairs in strata if len(pairs)]
    if not drawables or not names:
        return {}
    rows: dict[str, list[Floats]] = {name: [] for name in names}
    for drawn in weights(groups, draws, seed):
        each = [drawable.figures(drawn) for drawable in drawables]
        for name in names:
            rows[name].append(
                _mean_defined(np.stack([figures[name] for figures in each]))
            )
    centre = averaged(strata, names)
    binned = averaged(
        [drawable.binned for drawable in drawables], [n for n in names if n in RANKS]
    )
    figures = {}
    for name in names:
        if np.isfinite(centre[name]):
            shift = centre[name] - binned.get(name, centre[name])
            figures[name] = np.concatenate(rows[name]) + (
                0.0 if np.isnan(shift) else shift
            )
    return figures


def carried(strata: Sequence[Pairs]) -> float:
    """Return the effective number of groups. It is computed for each of the two columns, and the smaller value is
    returned."""
    parts = [pairs for pairs in strata if len(pairs)]
    if not parts:
        return 0.0
    group = np.concatenate([pairs.group for pairs in parts])
    # Deviations are from the median of each stratum, since statistics are computed for each stratum.
    x = np.concatenate([pairs.x - np.median(pairs.x) for pairs in parts])
    y = np.concatenate([pairs.y - np.median(pairs.y) for pairs in parts])
    return min(evenly(np.bincount(group, weights=np.abs(column))) for column in (x, y))


def why_none(strata: Sequence[Pairs]) -> Reason:
    """Return the reason why statistics over these strata have no interval."""
    parts = [pairs for pairs in strata if len(pairs)]
    if not parts:
        return Reason("nothing_in_common")
    images = len(np.unique(np.concatenate([pairs.group for pairs in parts])))
    needed = {"ranks": FEWEST, "others": FEWEST_MOMENTS}
    if images < FEWEST:
        return Reason.of("few_images", images=images, **needed)
    carriers = carried(parts)
    if carriers < FEWEST_MOMENTS:
        return Reason.of("few_images_carry", images=carriers, **needed)
    return UNDEFINED


def correlation_draws(x: Floats, y: Floats) -> dict[str, Floats]:
    """Return Spearman, Pearson and Kendall correlations between the rows of x and y. It is fast for many draws of short
    rows."""
    sx = np.sign(x[:, :, None] - x[:, None, :])
    sy = np.sign(y[:, :, None] - y[:, None, :])
    with np.errstate(invalid="ignore", divide="ignore"):
        kendall = (sx * sy).sum((1, 2)) / np.sqrt(
            (sx**2).sum((1, 2)) * (sy**2).sum((1, 2))
        )
        return {
            "spearman": _row_pearson(
                sx.sum(2), sy.sum(2)
            ),  # sums of signs are midranks up to a shift and a factor
            "pearson": _row_pearson(x, y),
            "kendall": kendall,
        }


def _row_pearson(x: Floats, y: Floats) -> Floats:
    x = x - x.mean(1, keepdims=True)
    y = y - y.mean(1, keepdims=True)
    vx = (x * x).sum(1)
    vy = (y * y).sum(1)
    flat = (vx < 1e-12) | (vy < 1e-12)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(flat, np.nan, (x * y).sum(1) / np.sqrt(vx * vy))


class _Drawable:
    """Pairs prepared so that a block of draws is one matrix product."""

    def __init__(self, pairs: Pairs, names: Sequence[str]) -> None:
        self.names = names
        # One of many models has few of the groups, and multiplying by all the others would take most of the time.
        self.used, group = np.unique(pairs.group, return_inverse=True)
        self.moments = np.zeros((len(self.used), 11))
        np.add.at(self.moments, group, _moments(pairs))
        x = _codes(pairs.x)
        y = _codes(pairs.y)
        self.shape = int(x.max()) + 1, int(y.max()) + 1
        self.binned = Pairs(x.astype(float), y.astype(float), pairs.group)
        if any(name in RANKS for name in names):
            from scipy.sparse import csr_array

            cells = (np.ones(len(pairs), np.float32), (x * self.shape[1] + y, group))
            self.table = csr_array(
                cells, shape=(self.shape[0] * self.shape[1], len(self.used))
            )

    def figures(self, drawn: NDArray[np.float32]) -> dict[str, Floats]:
        drawn = drawn[:, self.used]
        out = _moment_figures(drawn @ self.moments)
        if any(name in RANKS for name in self.names):
            # At most 4 million table entries (32 MB) at a time.
            rows = max(1, 4_000_000 // (self.shape[0] * self.shape[1]))
            parts = [
                self._ranks(drawn[i : i + rows]) for i in range(0, len(drawn), rows)
            ]
            out |= {
                name: np.concatenate([part[name] for part in parts]) for name in RANKS
            }
        return out

    def _ranks(self, drawn: NDArray[np.float32]) -> dict[str, Floats]:
        tables = np.asarray(self.table @ drawn.T, dtype=np.float64).T.reshape(
            len(drawn), *self.shape
        )
        return rank_figures(tables, kendall="kendall" in self.names)


def rank_figures(tables: Floats, *, kendall: bool = True) -> dict[str, Floats]:
    """Return Spearman's rho and Kendall's tau-b for joint tables (draws x levels x levels)."""
    x = tables.sum(2)
    y = tables.sum(1)
    n = tables.sum((1, 2))
    rx = np.cumsum(x, axis=1) - x / 2 - n[:, None] / 2
    ry = np.cumsum(y, axis=1) - y / 2 - n[:, None] / 2
    cov = np.einsum("bij,bi,bj->b", tables, rx, ry, optimize=True)
    figures = {
        "spearman": _ratio(cov, (x * rx**2).sum(1) * (y * ry**2).sum(1)),
        "kendall": np.full(len(tables), np.nan),
    }
    if kendall:
        above = np.cumsum(tables, axis=1) - tables
        left = np.cumsum(above, axis=2) - above
        right = above.sum(2, keepdims=True) - left - above
        score = (tables * (left - right)).sum((1, 2))
        figures["kendall"] = _ratio(
            2 * score, (n**2 - (x**2).sum(1)) * (n**2 - (y**2).sum(1))
        )
    return figures


def _moments(pairs: Pairs) -> Floats:
    """Return what each pair adds to the sums: moments about the overall means, which avoid cancellation, and shares."""
    x = pairs.x - pairs.x.mean()
    y = pairs.y - pairs.y.mean()
    d = pairs.x - pairs.y
    off = np.abs(d)
    edge = 1e-9 * pairs.step
    exact = off < pairs.step / 2 - edge
    near = off <= pairs.step + edge
    return np.column_stack(
        [np.ones(len(x)), x, y, x * x, y * y, x * y, d, d * d, off, exact, near]
    )


def _moment_figures(m: Floats) -> dict[str, Floats]:
    n = np.maximum(m[:, 0], 1e-12)
    x, y, xx, yy, xy, d, dd, off, exact, near = (m[:, i] / n for i in range(1, 11))
    vx = xx - x * x
    vy = yy - y * y
    # With quadratic weights kappa depends on moments alone: chance agreement is that of independent columns
    # with these means and variances. On item means it is Lin's concordance coefficient.
    chance = vx + vy + d * d
    return {
        "pearson": _ratio(xy - x * y, vx * vy),
        "qwk": np.where(chance > 1e-12, 1 - dd / np.maximum(chance, 1e-12), np.nan),
        "mae": off,
        "bias": d,
        "exact": exact,
        "within_one": near,
    }


def _ratio(top: Floats, squared_bottom: Floats) -> Floats:
    good = squared_bottom > 1e-12
    return np.where(good, top / np.sqrt(np.where(good, squared_bottom, 1.0)), np.nan)


def _codes(values: Floats) -> Ints:
    from scipy.stats import rankdata

    used, codes = np.unique(values, return_inverse=True)
    if len(used) <= LEVELS:
        return codes
    bins = np.floor((rankdata(values) - 0.5) / len(values) * LEVELS)
    return np.unique(bins, return_inverse=True)[1]


def _mean_defined(values: Floats) -> Floats:
    """Return the mean of the defined values over the first axis. NumPy would warn if no value is defined; this function
    does not."""
    good = np.isfinite(values)
    n = good.sum(axis=0)
    return np.where(
        n > 0, np.where(good, values, 0.0).sum(axis=0) / np.maximum(n, 1), np.nan
    )


_RANGE: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("spearman", "kendall", "pearson", "qwk"), (-1.0, 1.0)),
    **dict.fromkeys(("exact", "within_one"), (0.0, 1.0)),
}


STRAIGHT = 0.95
"""Minimum share of a rater's ratings with one value, over at least 10 items, for the rater to count as straight-lining.
"""
FEWEST_SHARED = 10
"""Minimum number of items rated by several people, of their source images, and of such items per rater. With fewer,
agreement among people is not reported, because a single item out of nine can change a correlation by .2 or more."""
SHOWN_RATERS = 12
"""Number of raters for whom an interval is computed: those who agree least. Computing it for every rater of a crowd
takes too long."""
LEFT_OUT = ("spearman", "pearson")
"""Correlations that measure a rater's agreement with the other raters. Kendall's tau is missing, because there is no
formula to extrapolate it from k - 1 raters to k."""


@dataclass(frozen=True)
class Rater:
    """Statistics of one rater on one factor."""

    n: int
    shared: int
    """Items that other raters rated too."""
    mean: float
    sd: float
    commonest: float
    """Share of this rater's ratings that have the rater's most common value."""
    straight_lining: bool
    spearman_with_rest: float | None
    """Spearman correlation with the mean of the other raters on the same items."""
    ci: Interval | None
    """Interval of `spearman_with_rest`, for the `SHOWN_RATERS` who agree least."""
    alpha_without: float | None
    """Interval alpha without this rater. If it exceeds the alpha of all raters, this rater lowers the agreement."""


@dataclass(frozen=True)
class FurtherRater:
    """Estimated agreement of one additional rater with the mean of the existing raters.

    Fields without a repr hold a value for each bootstrap draw of source images, for comparison with a judge draw by
    draw.
    """

    spearman: float | None = None
    pearson: float | None = None
    raters: float | None = None
    """Harmonic mean of the number of ratings per item. It is harmonic because the error variance of a mean of k ratings
    is proportional to 1 / k."""
    items: int = 0
    """Items that two or more people rated."""
    images: int = 0
    """Source images of these items."""
    ci: Mapping[str, Interval] = field(default_factory=dict)
    reason: Reason | None = None
    """Reason why there is no correlation, or no interval."""
    drawn: Mapping[str, Floats] = field(default_factory=dict, repr=False, compare=False)
    """Estimate in each draw; empty if there is no interval."""
    left_out: Mapping[str, Floats] = field(
        default_factory=dict, repr=False, compare=False
    )
    """Mean correlation of each rater with the others in each draw; empty if a rater has too few items."""
    carried: float = field(default=0.0, repr=False)
    group: Mapping[str, int] = field(default_factory=dict, repr=False)
    """Code of the source image of each item."""
    groups: int = field(default=0, repr=False)


@dataclass(frozen=True)
class Variant:
    """Agreement among raters, computed on all ratings or on a modified set of them, such as centred ratings."""

    raters: int
    alpha_interval: float | None
    loo_spearman: float | None


@dataclass(frozen=True)
class Ceiling:
    """Agreement among people on one factor. An undefined statistic is None, with the reason in `notes`."""

    raters: int
    items: int
    shared: int
    """Items that two or more people rated, on which all statistics of agreement are based."""
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
    """Mean Spearman correlation of each rater with the mean of the other raters (leave one out)."""
    loo_pearson: float | None
    further_rater: FurtherRater
    """Estimated correlation of an additional rater with the mean of all raters. Judges are compared with it."""
    ci: Mapping[str, Interval]
    top: float | None
    """Share of ratings equal to the highest rating that occurs."""
    floor: float | None
    rater_quality: Mapping[str, Rater]
    variants: Mapping[str, Variant]
    notes: tuple[Reason, ...]


def ceiling(
    ratings: Ratings,
    *,
    group: Mapping[str, str] | None = None,
    draws: int = DRAWS,
    further: FurtherRater | None = None,
) -> Ceiling:
    """Return the agreement among people on one factor. `group` maps an item to its source image.

    `further` is the result of `further_rater` for the same ratings, groups and draws, if it was already computed.
    """
    further = further or further_rater(ratings, group=group, draws=draws)
    item = ratings.item.compact()
    rater = ratings.rater.compact()
    x = ratings.score
    codes = np.array([further.group[label] for label in item.labels], np.int64)
    strata = _leave_one_out(item, rater, x, codes)
    loo = averaged(strata, LEFT_OUT)
    quality = _rater_quality(item, rater, x, strata, further.groups, draws)
    return Ceiling(
        raters=len(rater.labels),
        items=len(item.labels),
        shared=further.items,
        images=further.images,
        ratings=len(x),
        alpha_nominal=alpha_nominal(item.codes, x),
        alpha_ordinal=alpha_ordinal(item.codes, x),
        alpha_interval=alpha_interval(item.codes, x),
        fleiss=fleiss(item.codes, x),
        icc1=icc1(item.codes, x),
        icc2k=icc2k(item.codes, rater.codes, x),
        loo_spearman=number(loo["spearman"]),
        loo_pearson=number(loo["pearson"]),
        further_rater=further,
        ci=_limits(
            further, strata, _RatingSums.of(item.codes, x, codes, further.groups), draws
        ),
        top=float(np.mean(x == x.max())) if len(x) else None,
        floor=float(np.mean(x == x.min())) if len(x) else None,
        rater_quality=quality,
        variants=_variants(item, rater, x, quality),
        notes=_notes(item, rater, x),
    )


def further_rater(
    ratings: Ratings, *, group: Mapping[str, str] | None = None, draws: int = DRAWS
) -> FurtherRater:
    """Estimate the agreement of an additional rater on one factor. `group` maps an item to its source image.

    Raters who share fewer than `FEWEST_SHARED` items with others contribute to the others' means, but are not compared
    with them. The bootstrap resamples source images, not raters.
    """
    item = ratings.item.compact()
    rater = ratings.rater.compact()
    sources = [(group or {}).get(label, label) for label in item.labels]
    # Sorted, so that draws do not depend on the order of the ratings.
    code_of_source = {source: code for code, source in enumerate(sorted(set(sources)))}
    codes = np.array([code_of_source[source] for source in sources], np.int64)
    strata = _leave_one_out(item, rater, ratings.score, codes)
    # One row for each item and rater.
    by_rater, counts = np.unique(
        np.column_stack([item.codes, rater.codes]), axis=0, return_counts=True
    )
    shared = np.flatnonzero(np.bincount(by_rater[:, 0]) > 1)
    images = len(np.unique(codes[shared]))
    able = [pairs for pairs in strata if len(pairs) >= FEWEST_SHARED]
    enough = carried(able)
    observed = averaged(able, LEFT_OUT)
    reason = _no_further_rater(
        len(rater.labels), len(shared), images, able, observed["spearman"]
    )
    figures = FurtherRater(
        items=len(shared),
        images=images,
        reason=reason,
        carried=enough,
        group=dict(zip(item.labels, codes.tolist(), strict=True)),
        groups=len(code_of_source),
    )
    if reason is not None:
        return figures
    ratings_of_item = np.bincount(item.codes)
    # Number of other raters that a rater is compared with.
    rest = ratings_of_item[by_rater[:, 0]] - counts
    others = _harmonic_mean(rest[rest > 0])
    raters = _harmonic_mean(ratings_of_item)
    names = supported(LEFT_OUT, enough)
    drawn = averaged_draws(able, figures.groups, names, draws=draws)
    stepped = {name: stepped_up(r, others, raters) for name, r in drawn.items()}
    ci = drawn_intervals(stepped, enough)
    spearman, pearson = (
        number(float(stepped_up(np.array(observed[name]), others, raters)))
        for name in LEFT_OUT
    )
    return replace(
        figures,
        spearman=spearman,
        pearson=pearson,
        raters=raters,
        ci=ci,
        reason=None if "spearman" in ci else why_none(able),
        drawn=stepped if "spearman" in ci else {},
        left_out=drawn if len(able) == len(strata) else {},
    )


def stepped_up(r: Floats, others: float, raters: float) -> Floats:
    """Extrapolate a rater's correlation with the mean of `others` raters to the correlation with the mean of `raters`
    raters."""
    squared = r * r
    between = squared * (others - 1)
    root = np.sqrt(between * between + 4 * others * squared)
    single = (between + root) / (2 * others)
    step = np.sqrt(raters / (1 + (raters - 1) * single))
    stepped: Floats = np.sign(r) * single * step
    return stepped


def _no_further_rater(
    raters: int, shared: int, images: int, able: list[Pairs], observed: float
) -> Reason | None:
    """Return the reason why the agreement of an additional rater cannot be estimated, or None if it can."""
    if raters < 2:
        return Reason("one_rater")
    if shared == 0:
        return Reason("no_shared_item")
    if shared < FEWEST_SHARED or images < FEWEST_SHARED:
        return Reason.of(
            "few_shared", items=shared, images=images, needed=FEWEST_SHARED
        )
    if not able:
        return Reason.of("no_rater_shares", needed=FEWEST_SHARED)
    if np.isnan(observed):
        return Reason("no_rater_varies")
    return None


def _harmonic_mean(counts: Ints) -> float:
    return len(counts) / float(np.sum(1 / counts))


def _limits(
    further: FurtherRater, strata: list[Pairs], sums: _RatingSums, draws: int
) -> dict[str, Interval]:
    """Return the intervals of the observed agreement among people."""
    if further.left_out:
        loo = drawn_intervals(further.left_out, further.carried)
    else:
        loo = intervals(strata, further.groups, LEFT_OUT, draws=draws)
    limits = {f"loo_{name}": ends for name, ends in loo.items()}
    enough = carried(strata)
    for name in supported(("alpha_interval", "icc1"), enough):
        ends = interval(sums.draws(name, draws), int(enough))
        if ends is not None:
            limits[name] = Interval(max(ends.lo, -1.0), min(ends.hi, 1.0))
    return limits


@dataclass(frozen=True, eq=False)
class _RatingSums:
    """Sums over the items of each source image, from which interval alpha and ICC(1) are computed."""

    groups: int
    columns: Mapping[str, Floats]

    @classmethod
    def of(cls, item: Codes, x: Floats, group: Ints, groups: int) -> _RatingSums:
        """Compute the sums from the ratings `x` of the items. `group` is the code of each item's source image."""
        counts = np.bincount(item, minlength=len(group)).astype(float)
        off = x - x.mean() if len(x) else x
        total = np.bincount(item, weights=off, minlength=len(group))
        squares = np.bincount(item, weights=off * off, minlength=len(group))
        pairable = counts > 1
        spread = np.where(
            pairable, (counts * squares - total**2) / np.maximum(counts - 1, 1), 0.0
        )
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
        sums = {
            name: np.bincount(group, weights=v, minlength=groups).astype(float)
            for name, v in each.items()
        }
        return cls(groups, sums)

    def draws(self, name: str, draws: int) -> Floats:
        """Return the value of a statistic for each draw of source images."""
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
    """Return the mean Spearman correlation of each rater with the mean of the other raters, on one factor."""
    return _variant(ratings.item, ratings.rater, ratings.score).loo_spearman


def alpha_interval(item: Codes, x: Floats) -> float | None:
    """Return Krippendorff's alpha with squared differences, or None if it is undefined. Items may have any number of
    ratings.
    """
    item, x = _pairable(item, x)
    n = len(x)
    if n == 0:
        return None
    x = x - x.mean()
    m = np.bincount(item)
    within = m * np.bincount(item, weights=x * x) - np.bincount(item, weights=x) ** 2
    expected = (n * float(np.sum(x * x)) - float(np.sum(x)) ** 2) / (n - 1)
    return 1 - float(np.sum(within / (m - 1))) / expected if expected > 1e-12 else None


def alpha_ordinal(item: Codes, x: Floats) -> float | None:
    """Return Krippendorff's alpha on an ordinal scale, or None if it is undefined. The distance between two values is
    the squared difference of their midranks."""
    from scipy.stats import rankdata

    item, x = _pairable(item, x)
    return alpha_interval(item, rankdata(x)) if len(x) else None


def alpha_nominal(item: Codes, x: Floats) -> float | None:
    """Return Krippendorff's alpha on a nominal scale, where values are either equal or different. Return None if it is
    undefined.
    """
    item, x = _pairable(item, x)
    n = len(x)
    if n == 0:
        return None
    values, code = np.unique(x, return_inverse=True)
    m = np.bincount(item)
    same = _same(item, code, len(values))
    totals = np.bincount(code)
    expected = (n * n - float(np.sum(totals**2))) / (n - 1)
    return (
        1 - float(np.sum((m * m - same) / (m - 1))) / expected if expected > 0 else None
    )


def fleiss(item: Codes, x: Floats) -> float | None:
    """Return Fleiss' kappa over the items with the most common number of ratings, since it requires the same number for
    each item. Return None if it is undefined."""
    m = np.bincount(item)
    m = m[m > 1]
    if len(m) == 0:
        return None
    size = int(np.argmax(np.bincount(m)))
    keep = np.bincount(item)[item] == size
    item = np.unique(item[keep], return_inverse=True)[1]
    x = x[keep]
    values, code = np.unique(x, return_inverse=True)
    observed = float(
        np.mean((_same(item, code, len(values)) - size) / (size * (size - 1)))
    )
    chance = float(np.sum((np.bincount(code) / len(code)) ** 2))
    return (observed - chance) / (1 - chance) if len(values) > 1 else None


def icc1(item: Codes, x: Floats) -> float | None:
    """Return ICC(1), the reliability of a single rating (one-way random effects), or None if it is undefined. Items may
    have different numbers of ratings."""
    item = np.unique(item, return_inverse=True)[1]
    m = np.bincount(item) if len(item) else np.zeros(0, np.int64)
    n = len(x)
    k = len(m)
    if k < 2 or n <= k:
        return None
    means = np.bincount(item, weights=x) / m
    between = float(np.sum(m * (means - x.mean()) ** 2)) / (k - 1)
    within = float(np.sum((x - means[item]) ** 2)) / (n - k)
    size = (n - float(np.sum(m**2)) / n) / (k - 1)
    bottom = between + (size - 1) * within
    return (between - within) / bottom if bottom > 1e-12 else None


def icc2k(item: Codes, rater: Codes, x: Floats) -> float | None:
    """Return ICC(2,k), the reliability of the mean rating (two-way random effects), over the items that all raters
    rated. Return None if it is undefined."""
    table = crossed(item, rater, x)
    n, k = table.shape
    if n < 2 or k < 2:
        return None
    ms_rows, ms_columns, ms_rest = mean_squares(table)
    bottom = ms_rows + (ms_columns - ms_rest) / n
    return (ms_rows - ms_rest) / bottom if bottom > 1e-12 else None


def _pairable(item: Codes, x: Floats) -> tuple[Ints, Floats]:
    keep = np.bincount(item)[item] > 1 if len(item) else np.zeros(0, bool)
    return np.unique(item[keep], return_inverse=True)[1], x[keep]


def _same(item: Codes, code: Ints, values: int) -> Ints:
    """Return, for each item, the sum of the squared counts of its values."""
    cells, counts = np.unique(item.astype(np.int64) * values + code, return_counts=True)
    return np.bincount(cells // values, weights=counts**2).astype(np.int64)


def _leave_one_out(item: Column, rater: Column, x: Floats, group: Ints) -> list[Pairs]:
    """Return each rater's ratings paired with the mean of the other raters, over the items that other raters also
    rated.
    """
    if len(rater.labels) < 2:
        return []
    counts = np.bincount(item.codes)
    sums = np.bincount(item.codes, weights=x)
    strata = []
    for code in range(len(rater.labels)):
        rows = rater.codes == code
        n = np.bincount(item.codes[rows], minlength=len(counts))
        total = np.bincount(item.codes[rows], weights=x[rows], minlength=len(counts))
        both = np.flatnonzero((n > 0) & (counts > n))
        rest: Floats = (sums[both] - total[both]) / (counts[both] - n[both])
        # Sums of thirds are not exact: without rounding, equal means would get different ranks.
        strata.append(Pairs(total[both] / n[both], np.round(rest, 9), group[both]))
    return strata


def _rater_quality(
    item: Column, rater: Column, x: Floats, strata: list[Pairs], groups: int, draws: int
) -> dict[str, Rater]:
    correlations = [number(estimate(pairs)["spearman"]) for pairs in strata]
    defined = sorted((r, code) for code, r in enumerate(correlations) if r is not None)
    least = {code for _, code in defined[:SHOWN_RATERS]}
    raters = {}
    for code, name in enumerate(rater.labels):
        rows = rater.codes == code
        values = x[rows]
        commonest = float(np.unique(values, return_counts=True)[1].max()) / len(values)
        ci: Mapping[str, Interval] = {}
        if code in least:
            ci = intervals([strata[code]], groups, ("spearman",), draws=draws)
        raters[name] = Rater(
            n=len(values),
            shared=len(strata[code]) if strata else 0,
            mean=float(values.mean()),
            sd=float(values.std()),
            commonest=commonest,
            straight_lining=commonest >= STRAIGHT and len(values) >= 10,
            spearman_with_rest=correlations[code] if strata else None,
            ci=ci.get("spearman"),
            alpha_without=alpha_interval(item.codes[~rows], x[~rows]),
        )
    return raters


def _variants(
    item: Column, rater: Column, x: Floats, quality: Mapping[str, Rater]
) -> dict[str, Variant]:
    """Return the agreement among people after centring each rater, and without straight-lining raters."""
    if len(x) == 0:
        return {}
    levels = np.array([each.mean for each in quality.values()])
    centred = np.round(x - levels[rater.codes] + x.mean(), 9)
    straight = [name for name, each in quality.items() if each.straight_lining]
    varied = ~rater.among(straight)
    return {
        "all": _variant(item, rater, x),
        "rater_centred": _variant(item, rater, centred),
        "without_straight_liners": _variant(
            item.take(varied), rater.take(varied), x[varied]
        ),
    }


def _variant(item: Column, rater: Column, x: Floats) -> Variant:
    item = item.compact()
    rater = rater.compact()
    strata = _leave_one_out(item, rater, x, np.arange(len(item.labels)))
    loo = averaged(strata, ("spearman",))["spearman"]
    return Variant(len(rater.labels), alpha_interval(item.codes, x), number(loo))


def _notes(item: Column, rater: Column, x: Floats) -> tuple[Reason, ...]:
    notes = []
    m = np.bincount(item.codes)
    if len(rater.labels) == 1:
        notes.append(Reason("one_rater_alone"))
    elif not np.any(m > 1):
        notes.append(Reason("no_item_twice"))
    elif np.ptp(x) == 0:
        notes.append(Reason("same_ratings"))
    if len(set(m[m > 1])) > 1:
        notes.append(Reason("uneven_ratings"))
    if len(rater.labels) > 1 and len(crossed(item.codes, rater.codes, x)) < 2:
        notes.append(Reason("few_items_of_all"))
    return tuple(notes)
