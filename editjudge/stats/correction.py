"""Holm's correction, and Wilcoxon's test over source images beside the comparison's own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from editjudge.stats.columns import Floats, Ints

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


def wilcoxon(values: Floats, groups: Ints) -> float | None:
    """Test two-sided, over groups as the independent units; groups without a difference say nothing."""
    from scipy.stats import wilcoxon as signed_ranks

    if len(values) == 0:
        return None
    means = np.bincount(groups, weights=values) / np.bincount(groups)
    means = np.round(means[np.abs(means) > 1e-12], 9)  # equal means must tie whatever the order of summing
    if len(means) == 0:
        return 1.0
    return _exact(means) if len(means) <= EXACT else float(signed_ranks(means).pvalue)


def _exact(means: Floats) -> float:
    from scipy.stats import rankdata

    ranks = rankdata(np.abs(means)) * np.sign(means)
    signs = 1 - 2 * ((np.arange(2 ** len(ranks))[:, None] >> np.arange(len(ranks))) & 1)
    observed = abs(float(ranks.sum())) * (1 - 1e-9)
    return float(np.mean(np.abs(signs @ ranks) >= observed))
