"""Made-up scores with known truths, for the tests of this folder."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from editjudge.report.words import plain, reason_text
from editjudge.stats.columns import Reason, Scores

CUTS = np.array([-1.5, -0.9, -0.3, 0.3, 0.9, 1.5])


def likert(latent: NDArray[Any]) -> NDArray[np.float64]:
    """A latent quality as a score of 1 to 7."""
    return np.searchsorted(CUTS, latent).astype(np.float64) + 1


def clustered(
    rng: np.random.Generator, groups: int, size: int, share: float = 0.5
) -> NDArray[np.float64]:
    """groups x size scores, `share` of the latent variance between groups."""
    between = rng.normal(0, np.sqrt(share), (groups, 1))
    return likert(between + rng.normal(0, np.sqrt(1 - share), (groups, size)))


def population_mean() -> float:
    """The mean of `clustered`, whatever the share."""
    from scipy.special import ndtr

    return float(1 + np.sum(1 - ndtr(CUTS)))


def scores_of(
    table: NDArray[np.float64], *, grouped: bool = True, **columns: Any
) -> Scores:
    """One factor, one row for each entry of a groups x size table."""
    groups, size = table.shape
    items = [f"i{n}" for n in range(groups * size)]
    group = np.repeat(np.arange(groups), size) if grouped else np.arange(groups * size)
    return Scores.of(
        items, ["f"] * len(items), table.ravel(), group=group, pair=items, **columns
    )


def valid_json(answer: object) -> str:
    return json.dumps(plain(answer), allow_nan=False)


def said(reason: Reason | None) -> str:
    """Return a reason in words."""
    return reason_text(reason) if reason else ""
