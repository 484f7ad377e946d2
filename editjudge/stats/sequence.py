"""Tests by betting (Waudby-Smith and Ramdas 2024): confidence limits for the mean of bounded values that stay valid
however often they are computed while values arrive.

Whoever bets against "the mean is at most m" multiplies their money by 1 + f * (x - m) / m for each value x in 0..1. If
the statement is true, the money exceeds 1 / alpha at any time with probability alpha at most. The money is spread over
fixed fractions f, so it does not depend on the order of the values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from editjudge.stats.columns import Ends, Floats, Interval

Relation = Literal[">", "!=", "~"]

_FRACTIONS = np.geomspace(0.01, 0.99, 20)
"""Fractions of the highest possible bet. Small ones find small differences, and large ones find a filter's rare errors.
"""
_STEPS = 40
"""Number of bisections for a limit, which is then exact to 1e-12 of the scale."""


@dataclass(frozen=True)
class SequentialTest:
    """State of a claim about a mean difference after some images."""

    decided: bool | None
    """Whether the claim is true; None if the images do not decide it."""
    images: int
    difference: float | None
    """Mean difference over these images."""
    e_value: float
    """Evidence for the direction that is closer to a decision. The claim is decided from 1 / alpha on."""
    sequence: Interval
    """The confidence sequence at its last image: it contains the mean difference at every image, with probability
    1 - alpha. For `>` each of its two limits does."""


def log_money(values: Floats, mean: float) -> Floats:
    """Return the logarithm of the money after each value of a bet that the mean is above `mean`. Values are in 0..1."""
    gains = np.clip(values / max(mean, 1e-12) - 1, -1, 1e12)
    total = np.full(len(values), -np.inf)
    for fraction in _FRACTIONS:
        total = np.logaddexp(total, np.cumsum(np.log1p(fraction * gains)))
    return np.asarray(total - math.log(len(_FRACTIONS)))


def evidence(values: Floats, mean: float) -> float:
    """Return the logarithm of the most money at any time in a bet that the mean is above `mean`."""
    return float(max(0.0, log_money(values, mean).max(initial=0.0)))


def lower_limit(values: Floats, alpha: float) -> float:
    """Return the lower confidence limit of the mean of values in 0..1, valid at any time."""
    enough = -math.log(alpha)
    low = 0.0
    high = 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if evidence(values, middle) >= enough:
            low = middle
        else:
            high = middle
    return low


def decide(
    differences: Floats,
    ends: Ends,
    relation: Relation,
    alpha: float,
    margin: float = 0.0,
) -> SequentialTest:
    """Decide a claim about the mean of differences that are between `ends`, in the order in which they were seen.

    `>`: the mean is above 0; decided false if it is below 0. `!=`: it is not 0, which cannot be decided false. `~`: it
    is closer to 0 than `margin`; decided false if it is farther away.
    """
    low, high = ends
    width = high - low
    rising = (differences - low) / width
    falling = 1 - rising
    share = alpha if relation == ">" else alpha / 2
    sequence = Interval(
        low + width * lower_limit(rising, share),
        high - width * lower_limit(falling, share),
    )

    def above(difference: float) -> float:
        return evidence(rising, (difference - low) / width)

    def below(difference: float) -> float:
        return evidence(falling, (high - difference) / width)

    if relation == "~":
        true = min(above(-margin), below(margin))
        false = max(above(margin), below(-margin))
    else:
        true = above(0.0)
        false = below(0.0)
    if relation == "!=":
        true = max(true, false)
        false = 0.0
    strongest = max(true, false)
    is_decided = strongest >= -math.log(share)
    e_value = math.exp(min(strongest, 700.0)) * share / alpha
    return SequentialTest(
        true >= false if is_decided else None,
        len(differences),
        float(differences.mean()) if len(differences) else None,
        e_value,
        sequence,
    )
