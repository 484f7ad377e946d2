"""How two columns go together: rank and moment figures, once exactly and once for every bootstrap draw.

Every figure depends on the pairs only through a table of how often each pair of values occurs (ranks) or a few
sums (moments). Both are sums over groups, so a draw is a weighted sum of what each group contributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from editjudge.stats.bootstrap import DRAWS, FEWEST, FEWEST_MOMENTS, evenly, interval, weights
from editjudge.stats.columns import Floats, Ints
from editjudge.stats.statistic import Interval

LEVELS = 64
"""Values told apart when drawing; more are binned by rank. It changes the spread of a draw by far less than the
draws themselves vary, and the interval is moved onto the exact estimate."""
RANKS = ("spearman", "kendall")
MOMENTS = ("pearson", "qwk", "mae", "bias", "exact", "within_one")
FIGURES = (*RANKS, *MOMENTS)


@dataclass(frozen=True, eq=False)
class Pairs:
    """What is compared: a value on each side and the group of every item."""

    x: Floats
    y: Floats
    group: Ints
    step: float = 1.0
    """Distance between neighbouring values of the scale: what 'within one' means."""

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: NDArray[Any]) -> Pairs:
        return Pairs(self.x[rows], self.y[rows], self.group[rows], self.step)


def estimate(pairs: Pairs) -> dict[str, float]:
    """All figures, exactly; NaN where undefined (no pairs, or a column without spread)."""
    if len(pairs) == 0:
        return dict.fromkeys(FIGURES, np.nan)
    sums = _moments(pairs).sum(axis=0)[None]
    return {name: float(value[0]) for name, value in {**_moment_figures(sums), **_exact_ranks(pairs)}.items()}


def _exact_ranks(pairs: Pairs) -> dict[str, Floats]:
    (used_x, x), (used_y, y) = (np.unique(v, return_inverse=True) for v in (pairs.x, pairs.y))
    shape = len(used_x), len(used_y)
    if min(shape) < 2 or shape[0] * shape[1] <= 1_000_000:
        table = np.bincount(x * shape[1] + y, minlength=shape[0] * shape[1]).astype(float)
        return rank_figures(table.reshape(1, *shape))
    from scipy.stats import kendalltau, rankdata

    # Many levels: sorting beats an 8 MB table. The p-value is not used, and the exact one is slow.
    kendall = kendalltau(x, y, method="asymptotic").statistic
    return {
        "spearman": _row_pearson(rankdata(x)[None], rankdata(y)[None]),
        "kendall": np.array([kendall]),
    }


def averaged(strata: Sequence[Pairs], names: Sequence[str] = FIGURES) -> dict[str, float]:
    """Each figure as the plain mean over the strata in which it is defined."""
    each = [estimate(pairs) for pairs in strata]
    return {name: _mean_defined(np.array([[e[name]] for e in each]))[0] for name in names}


def intervals(
    strata: Sequence[Pairs],
    groups: int,
    names: Sequence[str] = FIGURES,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Interval]:
    """Clustered intervals of `averaged(strata)`; a figure without one is left out, `why_none` says why."""
    enough = carried(strata)
    drawn = averaged_draws(strata, groups, supported(names, enough), draws=draws, seed=seed)
    out = {}
    for name, values in drawn.items():
        limits = interval(values, int(enough))
        if limits is not None:
            out[name] = within_range(name, limits)
    return out


def supported(names: Sequence[str], enough: float) -> list[str]:
    """Return the figures that may have an interval where so many groups carry the spread."""
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
    """Return `averaged(strata)` in every draw of groups; a figure that is undefined is left out.

    Calls with the same number of groups, draws and seed see the same draws, so figures may be subtracted draw by draw.
    """
    parts = [_Drawable(pairs, names) for pairs in strata if len(pairs)]
    if not parts or not names:
        return {}
    rows: dict[str, list[Floats]] = {name: [] for name in names}
    for drawn in weights(groups, draws, seed):
        each = [part.figures(drawn) for part in parts]
        for name in names:
            rows[name].append(_mean_defined(np.stack([figures[name] for figures in each])))
    centre = averaged(strata, names)
    binned = averaged([part.binned for part in parts], [n for n in names if n in RANKS])
    out = {}
    for name in names:
        if np.isfinite(centre[name]):
            shift = centre[name] - binned.get(name, centre[name])
            out[name] = np.concatenate(rows[name]) + (0.0 if np.isnan(shift) else shift)
    return out


def carried(strata: Sequence[Pairs]) -> float:
    """How many groups carry the spread of the column that fewer carry."""
    parts = [pairs for pairs in strata if len(pairs)]
    if not parts:
        return 0.0
    group = np.concatenate([pairs.group for pairs in parts])
    # About each stratum's own median, since that is what its figure is about.
    columns = zip(*((pairs.x - np.median(pairs.x), pairs.y - np.median(pairs.y)) for pairs in parts), strict=True)
    return min(evenly(np.bincount(group, weights=np.abs(np.concatenate(off)))) for off in columns)


def why_none(strata: Sequence[Pairs]) -> str:
    """Why a figure of these has no interval."""
    parts = [pairs for pairs in strata if len(pairs)]
    if not parts:
        return "no item has both a score and a rating"
    needs = f"an interval needs {FEWEST} for rank correlations and {FEWEST_MOMENTS} for other figures"
    images = len(np.unique(np.concatenate([pairs.group for pairs in parts])))
    if images < FEWEST:
        return f"{images} source images: {needs}"
    carriers = carried(parts)
    if carriers < FEWEST_MOMENTS:
        return f"about {carriers:.0f} source images carry the spread of scores or of ratings: {needs}"
    return "undefined, or the same in all that was drawn"


def correlation_draws(x: Floats, y: Floats) -> dict[str, Floats]:
    """Spearman, Pearson and Kendall of row against row: short rows, such as models, in many draws."""

    def signs(values: Floats) -> Floats:
        return np.sign(values[:, :, None] - values[:, None, :])

    sx, sy = signs(x), signs(y)
    with np.errstate(invalid="ignore", divide="ignore"):
        kendall = (sx * sy).sum((1, 2)) / np.sqrt((sx**2).sum((1, 2)) * (sy**2).sum((1, 2)))
        return {
            "spearman": _row_pearson(sx.sum(2), sy.sum(2)),  # the sum of signs is a midrank up to shift and scale
            "pearson": _row_pearson(x, y),
            "kendall": kendall,
        }


def _row_pearson(x: Floats, y: Floats) -> Floats:
    x, y = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
    vx, vy = (x * x).sum(1), (y * y).sum(1)
    flat = (vx < 1e-12) | (vy < 1e-12)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(flat, np.nan, (x * y).sum(1) / np.sqrt(vx * vy))


class _Drawable:
    """Pairs prepared so that a block of draws is one product."""

    def __init__(self, pairs: Pairs, names: Sequence[str]) -> None:
        self.names = names
        # A model among many has few of the groups: the product with all others would be most of the work.
        self.used, group = np.unique(pairs.group, return_inverse=True)
        self.moments = np.zeros((len(self.used), 11))
        np.add.at(self.moments, group, _moments(pairs))
        x, y = _codes(pairs.x), _codes(pairs.y)
        self.shape = int(x.max()) + 1, int(y.max()) + 1
        self.binned = Pairs(x.astype(float), y.astype(float), pairs.group)
        if any(name in RANKS for name in names):
            from scipy.sparse import csr_array

            cells = (np.ones(len(pairs), np.float32), (x * self.shape[1] + y, group))
            self.table = csr_array(cells, shape=(self.shape[0] * self.shape[1], len(self.used)))

    def figures(self, drawn: NDArray[np.float32]) -> dict[str, Floats]:
        drawn = drawn[:, self.used]
        out = _moment_figures(drawn @ self.moments)
        if any(name in RANKS for name in self.names):
            # At most 4 million table entries (32 MB) at a time.
            rows = max(1, 4_000_000 // (self.shape[0] * self.shape[1]))
            parts = [self._ranks(drawn[i : i + rows]) for i in range(0, len(drawn), rows)]
            out |= {name: np.concatenate([part[name] for part in parts]) for name in RANKS}
        return out

    def _ranks(self, drawn: NDArray[np.float32]) -> dict[str, Floats]:
        tables = np.asarray(self.table @ drawn.T, dtype=np.float64).T.reshape(len(drawn), *self.shape)
        return rank_figures(tables, kendall="kendall" in self.names)


def rank_figures(tables: Floats, *, kendall: bool = True) -> dict[str, Floats]:
    """Spearman and Kendall's tau-b of joint tables (draws x levels x levels)."""
    x, y, n = tables.sum(2), tables.sum(1), tables.sum((1, 2))
    rx = np.cumsum(x, axis=1) - x / 2 - n[:, None] / 2
    ry = np.cumsum(y, axis=1) - y / 2 - n[:, None] / 2
    cov = np.einsum("bij,bi,bj->b", tables, rx, ry, optimize=True)
    out = {
        "spearman": _ratio(cov, (x * rx**2).sum(1) * (y * ry**2).sum(1)),
        "kendall": np.full(len(tables), np.nan),
    }
    if kendall:
        above = np.cumsum(tables, axis=1) - tables
        left = np.cumsum(above, axis=2) - above
        right = above.sum(2, keepdims=True) - left - above
        score = (tables * (left - right)).sum((1, 2))
        out["kendall"] = _ratio(2 * score, (n**2 - (x**2).sum(1)) * (n**2 - (y**2).sum(1)))
    return out


def _moments(pairs: Pairs) -> Floats:
    """Sums about the overall means (so that nothing cancels), and what each pair adds to the plain shares."""
    x, y = pairs.x - pairs.x.mean(), pairs.y - pairs.y.mean()
    d = pairs.x - pairs.y
    off, edge = np.abs(d), 1e-9 * pairs.step
    exact, near = off < pairs.step / 2 - edge, off <= pairs.step + edge
    return np.column_stack([np.ones(len(x)), x, y, x * x, y * y, x * y, d, d * d, off, exact, near])


def _moment_figures(m: Floats) -> dict[str, Floats]:
    n = np.maximum(m[:, 0], 1e-12)
    x, y, xx, yy, xy, d, dd, off, exact, near = (m[:, i] / n for i in range(1, 11))
    vx, vy = xx - x * x, yy - y * y
    # Quadratic weights make kappa a function of moments alone: chance agreement is what independent columns
    # with these means and variances would have. On item means it is Lin's concordance coefficient.
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
    """Mean over the first axis of what is defined, without a warning where nothing is."""
    good = np.isfinite(values)
    n = good.sum(axis=0)
    return np.where(n > 0, np.where(good, values, 0.0).sum(axis=0) / np.maximum(n, 1), np.nan)


_RANGE: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("spearman", "kendall", "pearson", "qwk"), (-1.0, 1.0)),
    **dict.fromkeys(("exact", "within_one"), (0.0, 1.0)),
}


def within_range(name: str, limits: Interval) -> Interval:
    """Return an interval without what lies beyond the values that a figure can have."""
    lo, hi = _RANGE.get(name, (-np.inf, np.inf))
    return Interval(min(max(limits.lo, lo), hi), max(min(limits.hi, hi), lo))
