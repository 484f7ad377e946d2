"""Where spread lies: within cells, and between the rows and columns of a crossed table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from editjudge.stats.columns import Floats


def within_variance(cell: NDArray[Any], x: Floats) -> tuple[float | None, float]:
    """The pooled variance within cells, None where none has two values; and how many they have (harmonic mean)."""
    counts = np.bincount(cell)
    if len(counts) == 0:
        return None, 1.0
    off = x - (np.bincount(cell, weights=x) / counts)[cell]
    freedom = int(np.sum(counts - 1))
    return (float(np.sum(off**2)) / freedom if freedom else None), len(counts) / float(np.sum(1 / counts))


def crossed(row: NDArray[Any], column: NDArray[Any], x: Floats) -> Floats:
    """The mean of every cell, over the rows that have a value in every column that occurs."""
    if len(x) == 0:
        return np.empty((0, 0))
    shape = int(row.max()) + 1, int(column.max()) + 1
    key = row.astype(np.int64) * shape[1] + column
    counts = np.bincount(key, minlength=shape[0] * shape[1])
    sums = np.bincount(key, weights=x, minlength=len(counts))
    seen = counts.reshape(shape) > 0
    used = seen.any(axis=0)
    means: Floats = (sums / np.maximum(counts, 1)).reshape(shape)
    return means[seen[:, used].all(axis=1)][:, used]


def mean_squares(table: Floats) -> tuple[float, float, float]:
    """Of rows, columns and what is left, in a table of at least two by two."""
    (n, k), grand = table.shape, table.mean()
    rows, columns = table.mean(1), table.mean(0)
    rest = table - rows[:, None] - columns[None, :] + grand
    return (
        k * float(np.sum((rows - grand) ** 2)) / (n - 1),
        n * float(np.sum((columns - grand) ** 2)) / (k - 1),
        float(np.sum(rest**2)) / ((n - 1) * (k - 1)),
    )
