"""Which pairs of models to ask about next, so that a ranking needs few questions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from editjudge.stats.columns import Floats
from editjudge.stats.preference import fit_strengths

PRIOR = 0.25
"""Precision of what is assumed before any game: a model is within 4 log odds of the average in 19 of 20 cases."""


def next_games(
    wins: Floats, available: NDArray[np.int64], wanted: int, *, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Pairs of models, most telling first.

    `wins[i, j]` is how often i beat j, a tie being half a win for each; `available[i, j]` (symmetric) is how many edits
    of both can still be asked about. Each step takes the pair whose order is most in doubt and whose answer narrows it
    most, as if the answers so far chosen were known to come: chance of the wrong order x information of a game x
    variance of the difference.
    """
    strength, covariance = posterior(wins)
    left = np.triu(available, 1).astype(np.int64)
    first, second = np.triu_indices(len(wins), 1)
    gap = strength[first] - strength[second]
    chance = 1 / (1 + np.exp(-gap))
    information = chance * (1 - chance)
    noise = rng.random(len(first)) * 1e-9  # equal pairs by chance, not by their place
    chosen: list[tuple[int, int]] = []
    while len(chosen) < wanted:
        variance = covariance[first, first] + covariance[second, second] - 2 * covariance[first, second]
        worth = _wrong(gap, variance) * information * variance + noise
        worth[left[first, second] <= 0] = -1.0
        best = int(np.argmax(worth))
        if worth[best] < 0:
            break
        i, j = int(first[best]), int(second[best])
        chosen.append((i, j))
        left[i, j] -= 1
        # One more game is one more rank-one term of information (Sherman and Morrison).
        column = covariance[:, i] - covariance[:, j]
        covariance = covariance - information[best] * np.outer(column, column) / (
            1 + information[best] * variance[best]
        )
    return chosen


def _wrong(gap: Floats, variance: Floats) -> Floats:
    """The chance that the weaker of two is the stronger one."""
    from scipy.special import ndtr

    chance: Floats = ndtr(-np.abs(gap) / np.sqrt(np.maximum(variance, 1e-12)))
    return chance


def posterior(wins: Floats) -> tuple[Floats, Floats]:
    """Bradley-Terry's strengths under a normal prior, finite with any number of games, and their covariance."""
    theta = fit_strengths(wins[None], PRIOR)[0]
    p = 1 / (1 + np.exp(theta[None, :] - theta[:, None]))
    curve = (wins + wins.T) * p * (1 - p)
    hessian = np.diag(curve.sum(axis=1)) - curve + PRIOR * np.eye(len(wins))
    return theta, np.asarray(np.linalg.inv(hessian), np.float64)
