"""Clustered bootstrap: whole groups are drawn, never single rows, and no draw ever touches the rows again.

A mean over drawn groups needs only each group's sum and count, so 2,000 draws are one matrix of how often
each group was drawn times the matrix of sums. Weights come in blocks, from a seed, so that memory stays bounded
and every figure of one call (means, differences, ranks) sees the same draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .answer import Interval
from .columns import Floats, Ints

DRAWS = 2_000
"""Enough that the Monte-Carlo error of a 95 % limit is about a twentieth of the interval's half-width."""
BLOCK = 2_000_000
"""Entries of a block of weights: 8 MB as float32, near what a core's caches hold."""
CELLS = 24_000_000
"""Entries of group sums held at once (96 MB); more cells are done in turns with the same draws."""
FEW_GROUPS = 10
"""Below this an interval from drawn groups is a rough guide, and is said to be."""


def weights(groups: int, draws: int = DRAWS, seed: int = 0, block: int = BLOCK) -> Iterator[NDArray[np.float32]]:
    """How often each group occurs in each draw, block by block; float32 holds such counts exactly."""
    rng = np.random.default_rng(seed)
    rows = max(1, min(draws, block // max(groups, 1)))
    kind = np.uint16 if groups <= 1 << 16 else np.uint32
    for start in range(0, draws, rows):
        n = min(rows, draws - start)
        picks = rng.integers(0, groups, size=(n, groups), dtype=kind)
        drawn = np.empty((n, groups), np.float32)
        for i in range(n):
            # Row by row stays in the cache; one count over the whole block is half again to six times slower.
            drawn[i] = np.bincount(picks[i], minlength=groups)
        yield drawn


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
    """The mean of every cell in every draw (draws x cells); NaN where a draw has none of a cell."""
    step = max(1, CELLS // max(2 * n_groups, 1))
    out = np.empty((draws, n_cells))
    for start in range(0, n_cells, step):
        stop = min(start + step, n_cells)
        here = slice(None) if step >= n_cells else (cells >= start) & (cells < stop)
        sums, counts, centre = _group_sums(values[here], cells[here] - start, stop - start, groups[here], n_groups)
        row = 0
        for drawn in weights(n_groups, draws, seed):
            n = drawn @ counts
            with np.errstate(invalid="ignore", divide="ignore"):
                out[row : row + len(drawn), start:stop] = centre + (drawn @ sums) / n
            row += len(drawn)
    return out


def _group_sums(
    values: Floats, cells: NDArray[Any], n_cells: int, groups: NDArray[Any], n_groups: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], Floats]:
    """Sums about each cell's mean: small, so float32 loses nothing and a constant cell stays constant."""
    key = groups.astype(np.int64) * n_cells + cells
    counts = np.bincount(key, minlength=n_groups * n_cells).reshape(n_groups, n_cells)
    # An empty count comes back as integers whatever its weights.
    sums = np.bincount(key, weights=values, minlength=n_groups * n_cells).astype(float).reshape(n_groups, n_cells)
    totals = counts.sum(axis=0)
    centre = np.divide(sums.sum(axis=0), totals, out=np.zeros(n_cells), where=totals > 0)
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


def interval(draws: Floats, groups: int, level: float = 0.95, shift: float = 0.0) -> Interval | None:
    """From draws of one figure; None with one group, or where most draws leave the figure undefined."""
    good = draws[np.isfinite(draws)]
    if groups < 2 or len(good) < max(2, len(draws) / 2):
        return None
    p = tail(groups, level)
    lo, hi = np.quantile(good, [p, 1 - p])
    return Interval(float(lo) + shift, float(hi) + shift)


def group_notes(groups: int) -> tuple[str, ...]:
    if groups == 0:
        return ("no scores: nothing to estimate",)
    if groups == 1:
        return ("one group (source image): its spread over images cannot be estimated, so there is no interval",)
    if groups < FEW_GROUPS:
        return (f"only {groups} groups (source images): the interval is a rough guide",)
    return ()


def folds_of(groups: NDArray[Any], folds: int = 5) -> Ints:
    """A fold for every row, whole groups at random, so that no source image is on both sides."""
    used, code = np.unique(groups, return_inverse=True)
    order = np.random.default_rng(0).permutation(len(used))
    assigned: Ints = (order % max(1, min(folds, len(used))))[code]
    return assigned
