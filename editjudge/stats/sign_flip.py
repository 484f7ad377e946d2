"""Inference about a judge from paired differences, one for each photograph, by the sign-flip test; and the decisions
about its qualities.

The test assumes only that differences are symmetric around their mean. Flipping the signs of a subset of differences
around a mean m gives a statistic as extreme as the observed one exactly if the mean of the subset is beyond m. The means
of all subsets therefore give both the p-value and the interval (Hartigan's typical values).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from editjudge.stats.columns import Floats, Interval
from editjudge.stats.inference import ALPHA, clopper_pearson, holm

EXACT_UP_TO = 14
"""Maximum number of photographs for which all subsets are enumerated; beyond, they are drawn at random."""
SUBSETS = 19_999
"""Number of random subsets. With it, p can be as small as 1e-4, which Holm's correction over 30 qualities needs."""
MARGIN = 0.2
"""Largest effect, in points of seven, that counts as none."""
LEAST_FALL = 0.5
"""Smallest fall, in points of seven, of a judge that reacts to a wrong edit."""
MOST_NOISE = 0.5
"""Largest standard deviation of a score between identical questions, in points of seven."""
MOST_FLIPS = 0.2
"""Largest share of pairs whose verdict flips with the order."""
ROUNDING = 0.5
"""Points that whole scores can hide. Equal differences do not show that the effect is certain: it may differ by this
much in the share of photographs that n photographs can miss."""

Rule = Literal["falls", "unmoved", "unpaid"]
"""`falls`: the score must fall. `unmoved`: it must not move. `unpaid`: it must not rise."""
Decision = Literal["yes", "no", "not_shown"]


@dataclass(frozen=True)
class PairedEffect:
    """Mean of differences over photographs."""

    mean: float | None
    ci: Interval | None
    p: float | None
    """Two-sided p-value of no effect; None without a difference."""
    n: int


@lru_cache(maxsize=8)
def _subsets(n: int) -> Floats:
    """Return the weights of the members of each subset that is not empty (subsets x n)."""
    if n <= EXACT_UP_TO:
        numbers = np.arange(1, 2**n)
        members = (numbers[:, None] >> np.arange(n)) & 1
    else:
        members = np.random.default_rng(n).integers(0, 2, (SUBSETS, n))
        members[members.sum(axis=1) == 0, 0] = 1
    weights: Floats = members / members.sum(axis=1, keepdims=True)
    return weights


def paired_effect(differences: Sequence[float] | Floats) -> PairedEffect:
    """Return the mean difference with its 95 % interval and p-value. There is no interval below six photographs."""
    values = np.asarray(differences, float)
    n = len(values)
    if n == 0:
        return PairedEffect(None, None, None, 0)
    mean = float(values.mean())
    means = _subsets(n) @ values
    # Rounding errors would break ties with 0 at random.
    means[np.abs(means) < 1e-9] = 0.0
    flips = len(means) + 1
    below = 1 + int(np.count_nonzero(means <= 0))
    above = 1 + int(np.count_nonzero(means >= 0))
    p = min(1.0, 2 * min(below, above) / flips)
    # Sampled subsets are a part of all of them, so that the rank is rounded down.
    rank = math.floor(ALPHA / 2 * flips)
    if rank == 0:
        return PairedEffect(mean, None, p, n)
    hidden = ROUNDING * (1 - (ALPHA / 2) ** (1 / n))
    means.partition((rank - 1, len(means) - rank))
    lo = min(float(means[rank - 1]), mean - hidden)
    hi = max(float(means[-rank]), mean + hidden)
    return PairedEffect(mean, Interval(lo, hi), p, n)


def decide(rules: Sequence[Rule], effects: Sequence[PairedEffect]) -> list[Decision]:
    """Decide about qualities together: faults among those that must not move or rise are corrected by Holm."""
    faulty = holm(
        [
            None if rule == "falls" else effect.p
            for rule, effect in zip(rules, effects, strict=True)
        ]
    )
    return [
        _falls(effect) if rule == "falls" else _stays(rule, effect, p)
        for rule, effect, p in zip(rules, effects, faulty, strict=True)
    ]


def _falls(effect: PairedEffect) -> Decision:
    if effect.ci is None:
        return "not_shown"
    if effect.ci.lo > -LEAST_FALL:
        return "no"
    return "yes" if effect.ci.hi < 0 else "not_shown"


def _stays(rule: Rule, effect: PairedEffect, p: float | None) -> Decision:
    if effect.ci is None or effect.mean is None or p is None:
        return "not_shown"
    size = effect.mean if rule == "unpaid" else abs(effect.mean)
    if p < ALPHA and size > MARGIN:
        return "no"
    largest = effect.ci.hi
    if rule == "unmoved":
        largest = max(largest, -effect.ci.lo)
    return "yes" if largest <= MARGIN else "not_shown"


@dataclass(frozen=True)
class BoundedEffect:
    """A statistic that must not exceed a limit."""

    value: float | None
    ci: Interval | None
    n: int
    decision: Decision


def noise_effect(variances: Sequence[float]) -> BoundedEffect:
    """Return the standard deviation of a score between identical questions, from one variance for each photograph. Each
    counts as one degree of freedom, since the factors of an answer depend on each other."""
    from scipy.stats import chi2

    n = len(variances)
    if n < 2:
        return BoundedEffect(None, None, n, "not_shown")
    total = float(np.sum(variances))
    lo, hi = np.sqrt(total / chi2.ppf([1 - ALPHA / 2, ALPHA / 2], n))
    ci = Interval(float(lo), float(hi))
    return _bounded(math.sqrt(total / n), ci, n, MOST_NOISE)


def flip_effect(flipped: int, n: int) -> BoundedEffect:
    """Return the share of pairs whose verdict flipped with their order."""
    if n == 0:
        return BoundedEffect(None, None, 0, "not_shown")
    return _bounded(flipped / n, clopper_pearson(flipped / n, n), n, MOST_FLIPS)


def _bounded(value: float, ci: Interval, n: int, limit: float) -> BoundedEffect:
    decision: Decision = "not_shown"
    if ci.hi <= limit:
        decision = "yes"
    elif ci.lo > limit:
        decision = "no"
    return BoundedEffect(value, ci, n, decision)
