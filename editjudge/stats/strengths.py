"""Strengths of models from games between them, fitted with Davidson's model. Without ties it is the Bradley-Terry
model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from editjudge.errors import UsageError
from editjudge.stats.columns import (
    Column,
    Floats,
    Interval,
    Ints,
    Limits,
    Mask,
    Reason,
)
from editjudge.stats.inference import DRAWS, tail, weights

RIDGE = 1e-6
"""Ridge penalty that fixes the mean level of the strengths, which maximum likelihood leaves undetermined. It is worth a
millionth of a game and has no other effect."""
FARTHEST = 12.0
"""Log odds beyond which a fitted strength counts as infinite: one upset in 160,000 games."""
FEWEST_GROUPS = 20
"""Minimum number of source images for intervals of strengths. With 10, intervals for very unequal models covered the
truth in only 79 of 100 simulations."""


VOTES = ("A", "B", "tie")


def vote_codes(votes: Sequence[str | None]) -> Ints:
    """Return the code of each vote: 0 for the first side, 1 for the second, 2 for a tie, -1 for a failed vote."""
    codes: dict[str | None, int] = {name: code for code, name in enumerate(VOTES)}
    codes[None] = -1
    for vote in votes:
        if vote not in codes:
            raise UsageError(
                f"a vote is 'A', 'B' or 'tie', or None if it failed; found {vote!r}",
                code="unknown_choice",
            )
    return np.array([codes[vote] for vote in votes], dtype=np.int64)


def points(votes: Ints) -> Floats:
    """Return the points of the first side: 1 for a win, 0 for a loss, .5 for a tie, NaN without a vote."""
    won: Floats = np.array([1.0, 0.0, 0.5, np.nan])[votes]
    return won


@dataclass(frozen=True)
class Games:
    """Results of games, indexed by draw, model and model."""

    wins: Floats
    """Wins of the row over the column."""
    ties: Floats
    games: Floats

    @classmethod
    def without_ties(cls, wins: Floats) -> Games:
        return cls(wins, np.zeros_like(wins), wins + wins.transpose(0, 2, 1))


class Fit(NamedTuple):
    """Fitted parameters, one row per draw."""

    strength: Floats
    """Strengths minus their mean; infinite if there is no finite fit."""
    nu: Floats
    """Weight of a tie."""
    first: Floats
    """Log odds of the first position."""


@dataclass(frozen=True)
class Strength:
    """Strength of one model (Bradley-Terry): log odds of being preferred over the average model."""

    model: str
    games: int
    strength: float | None
    """Log odds; None if infinite, because the model won or lost all games that connect it with others."""
    ci: Interval | None
    ci_reason: Reason | None
    scale: int
    """Number of the scale. Strengths can be compared only within a scale. Its models have all won and lost against each
    other, directly or through others. Scale 1 has the winners; the models of each later scale lost to models of earlier
    scales."""
    notes: tuple[Reason, ...]


def bradley_terry(
    first: Sequence[str],
    second: Sequence[str],
    vote: Sequence[str | None],
    *,
    group: Iterable[object] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> list[Strength]:
    """Fit strengths to games, strongest first. A tie is half a win for each side, and failed votes (None) are left out.

    A scale is a set of models that have all won and lost against each other, directly or through others. Within a scale
    a maximum likelihood fit is finite, and unique up to an additive constant (Ford, 1957).
    """
    won = points(vote_codes(vote))
    keep = np.isfinite(won)
    if not keep.any():
        return []
    names = Column.of([*first, *second])
    n = len(won)
    m = len(names.labels)
    a = names.codes[:n][keep]
    b = names.codes[n:][keep]
    groups = Column.of(range(n) if group is None else group).take(keep).compact()
    wins = np.zeros((len(groups.labels), m, m))
    np.add.at(wins, (groups.codes, a, b), won[keep])
    np.add.at(wins, (groups.codes, b, a), 1 - won[keep])

    def fit(members: Sequence[int]) -> tuple[Floats, Sequence[Limits]]:
        inside = wins[np.ix_(range(len(wins)), members, members)]
        shape = (-1, len(members), len(members))

        def draw(drawn: Floats) -> Floats:
            totals = (drawn @ inside.reshape(len(wins), -1)).reshape(shape)
            strength = davidson(Games.without_ties(totals)).strength
            # A model that never loses in a draw has no finite fit: its strength in that draw is infinite.
            reach = _reachable(totals > 0)
            above = reach.sum(axis=2) >= reach.sum(axis=1)
            loose = ~reach.all(axis=(1, 2))
            strength[loose] = np.where(above, np.inf, -np.inf)[loose]
            return strength

        played = inside.sum(axis=(1, 2)) > 0
        values, _, limits = bootstrap_strengths(draw, played, draws, seed)
        return values, limits

    return strengths_by_scale(names.labels, wins.sum(axis=0), fit)


def strengths_by_scale(
    labels: Sequence[str],
    total: Floats,
    fit: Callable[[Sequence[int]], tuple[Floats, Sequence[Limits]]],
) -> list[Strength]:
    """Return the strengths of all models. `fit` is called with the models of each scale. `total` holds the wins of rows
    over columns.

    Models form a scale if their graph of wins is strongly connected. Among them a maximum likelihood fit is finite
    (Ford, 1957).
    """
    reach = _reachable(total[None] > 0)[0]
    together = np.unique(reach & reach.T, axis=0)
    scales = [np.flatnonzero(row).tolist() for row in together]
    # Scales that reach more other scales by wins come first.
    scales.sort(key=lambda members: (-int(reach[members[0]].sum()), members))
    strengths = []
    for number, members in enumerate(scales, 1):
        notes = _scale_notes(total, members, scales, labels)
        values = np.full(1, np.nan)
        limits: Sequence[Limits] = [Limits(None, notes[0] if notes else None)]
        if len(members) > 1:
            values, limits = fit(members)
        for i in np.argsort(-values, kind="stable"):
            games = round(float(total[members[i]].sum() + total[:, members[i]].sum()))
            value = float(values[i]) if np.isfinite(values[i]) else None
            ci, reason, _ = limits[i]
            strengths.append(
                Strength(labels[members[i]], games, value, ci, reason, number, notes)
            )
    return strengths


def bootstrap_strengths(
    fit: Callable[[Floats], Floats], played: Mask, draws: int, seed: int
) -> tuple[Floats, Floats | None, list[Limits]]:
    """Return strengths, their bootstrap draws and their intervals. `fit` returns the strengths for given weights of
    source images.

    `played` marks the source images that have games. If there are too few of these images, there are no draws, and the
    reason is returned in place of each interval.
    """
    values = fit(np.ones((1, len(played))))[0]
    n = int(played.sum())
    if n < FEWEST_GROUPS:
        few = Reason.of("few_games", images=n, needed=FEWEST_GROUPS)
        return values, None, [Limits(None, few)] * len(values)
    blocks = weights(len(played), draws, seed, block=400_000)
    drawn = np.concatenate([fit(block.astype(float)) for block in blocks])
    p = tail(n)
    limits = []
    for column in drawn.T:
        lo, hi = np.quantile(column, [p, 1 - p], method="inverted_cdf")
        if np.isfinite(lo) and np.isfinite(hi):
            limits.append(Limits(Interval(float(lo), float(hi)), None))
        else:
            share = float(np.mean(~np.isfinite(column)))
            limits.append(Limits(None, Reason.of("infinite_limit", share=share)))
    return values, drawn, limits


def _reachable(edges: Mask) -> Mask:
    """Return the transitive closure of the edges (graphs x nodes x nodes)."""
    reach = edges | np.eye(edges.shape[1], dtype=bool)
    for _ in range(max(1, edges.shape[1] - 1).bit_length()):
        reach = np.matmul(reach, reach)
    return reach


def _scale_notes(
    total: Floats,
    members: Sequence[int],
    scales: Sequence[Sequence[int]],
    labels: Sequence[str],
) -> tuple[Reason, ...]:
    """Return the reasons why these models are not on the same scale as the other models."""
    if len(scales) == 1:
        return ()
    met = (total + total.T)[members].sum(axis=0) > 0
    met[list(members)] = False
    won = total[members].sum(axis=0)[met].sum() > 0
    lost = total[:, members].sum(axis=1)[met].sum() > 0
    n = len(members)
    if not met.any():
        return (Reason.of("never_met", members=n),)
    if won and lost:
        return (Reason.of("won_and_lost", members=n),)
    others = tuple(labels[int(i)] for i in np.flatnonzero(met))
    code = "never_lost" if won else "never_won"
    return (Reason.of(code, members=n, others=others),)


def davidson(total: Games, lean: Floats | None = None, ridge: float = RIDGE) -> Fit:
    """Fit strengths by Newton's method on all draws at once, until every draw has converged.

    With x the difference of strengths, the odds are exp(x/2) for i, exp(-x/2) for j, and nu for a tie. `lean` is passed
    if each pair was shown in both orders. The log odds of the first position are then added to x in one order and
    subtracted in the other. `ridge` is the precision of a normal prior around the average model. Strengths beyond
    `FARTHEST`, and those of draws without a finite fit, are infinite.
    """
    n, m = total.games.shape[:2]
    score = (total.wins + total.ties / 2).sum(axis=2)
    tied = total.ties.sum(axis=(1, 2)) / 2
    theta = np.zeros((n, m))
    log_nu = np.where(tied > 1e-9, 0.0, -40.0)
    first = np.zeros(n)
    last = np.zeros(n)
    at = np.arange(n)
    for _ in range(80):
        here = None if lean is None else lean[at]
        step = _newton(
            total.games[at],
            score[at],
            tied[at],
            here,
            theta[at],
            log_nu[at],
            first[at],
            ridge,
        )
        theta[at] += step[:, :m]
        log_nu[at] = np.clip(log_nu[at] + step[:, m], -40, 15)
        first[at] = np.clip(first[at] + step[:, m + 1], -20, 20)
        size = np.abs(step[:, :m]).max(axis=1, initial=0.0)
        reach = np.ptp(theta[at], axis=1)
        last[at] = size
        at = at[(size >= 1e-8) & (reach < 4 * FARTHEST)]
        if not len(at):
            break
    centred: Floats = theta - theta.mean(axis=1, keepdims=True)
    # An infinite strength makes the level of the others undefined, so the entire draw is lost.
    lost = (last > 1e-3) | (np.abs(centred).max(axis=1, initial=0.0) > FARTHEST)
    centred[lost] = np.where(centred[lost] >= 0, np.inf, -np.inf)
    return Fit(centred, np.where(tied > 1e-9, np.exp(log_nu), 0.0), first)


def _newton(
    games: Floats,
    score: Floats,
    tied: Floats,
    lean: Floats | None,
    theta: Floats,
    log_nu: Floats,
    first: Floats,
    ridge: float,
) -> Floats:
    """Return one Newton step for every draw: strengths, log of nu, and log odds of the first position."""
    n, m = theta.shape
    eye = np.eye(m)
    some_ties = tied > 1e-9
    gap = theta[:, :, None] - theta[:, None, :]
    nu = np.exp(log_nu)[:, None, None]
    up, up_tie, up_variance, up_shared = _chances(gap + first[:, None, None], nu)
    down, down_tie, down_variance, down_shared = (
        (up, up_tie, up_variance, up_shared)
        if lean is None
        else _chances(gap - first[:, None, None], nu)
    )
    expected = (up + down) / 2
    tie = (up_tie + down_tie) / 2
    variance = games * (up_variance + down_variance) / 2
    shared = games * (up_shared + down_shared) / 2
    slope = np.zeros((n, m + 2))
    slope[:, :m] = score - (games * expected).sum(axis=2) - ridge * theta
    slope[:, m] = np.where(
        some_ties, tied - (games * tie).sum(axis=(1, 2)) / 2 - ridge * log_nu, 0.0
    )
    hessian = np.zeros((n, m + 2, m + 2))
    hessian[:, :m, :m] = variance.sum(axis=2)[:, :, None] * eye - variance + ridge * eye
    hessian[:, :m, m] = hessian[:, m, :m] = np.where(
        some_ties[:, None], shared.sum(axis=2), 0.0
    )
    spread = games * (up_tie * (1 - up_tie) + down_tie * (1 - down_tie)) / 2
    hessian[:, m, m] = np.where(some_ties, spread.sum(axis=(1, 2)) / 2 + ridge, 1.0)
    hessian[:, m + 1, m + 1] = 1.0
    if lean is not None:
        half = games * np.triu(np.ones((m, m)), 1)
        slope[:, m + 1] = (
            lean - (half * (up - down)).sum(axis=(1, 2))
        ) / 2 - ridge * first
        hessian[:, m + 1, m + 1] = (half * (up_variance + down_variance)).sum(
            axis=(1, 2)
        ) / 2 + ridge
        crossed = (games * (up_variance - down_variance) / 2).sum(axis=2)
        hessian[:, :m, m + 1] = hessian[:, m + 1, :m] = crossed
        also = (half * (up_shared - down_shared)).sum(axis=(1, 2)) / 2
        hessian[:, m, m + 1] = hessian[:, m + 1, m] = np.where(some_ties, also, 0.0)
    # Limited to 2 log odds: Newton's method overshoots on lopsided games.
    step: Floats = np.clip(np.linalg.solve(hessian, slope[:, :, None])[:, :, 0], -2, 2)
    return step


def _chances(x: Floats, nu: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the expected points of i over j, the probability of a tie, the variance of the points, and their
    covariance with a tie."""
    half = np.clip(x / 2, -30, 30)
    up = np.exp(half)
    down = np.exp(-half)
    win = up / (up + down + nu)
    tie = nu / (up + down + nu)
    points = win + tie / 2
    return points, tie, win + tie / 4 - points**2, tie * (0.5 - points)


PRIOR = 0.25
"""Precision of the normal prior, with which 19 of 20 models are within 4 log odds of the average."""


def next_games(
    wins: Floats, available: NDArray[np.int64], wanted: int, *, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Return the pairs of models to compare next, most informative first.

    `wins[i, j]` is the number of wins of i over j, with a tie as half a win for each. `available[i, j]` (symmetric) is
    the number of pairs of their edits that have not been judged yet. Each step picks the pair with the largest product
    of three terms: the probability that the present order is wrong, the information of a game, and the variance of the
    difference. It assumes that all pairs picked so far are answered.
    """
    from scipy.special import ndtr

    strength, covariance = posterior(wins)
    left = np.triu(available, 1).astype(np.int64)
    first, second = np.triu_indices(len(wins), 1)
    gap = strength[first] - strength[second]
    chance = 1 / (1 + np.exp(-gap))
    information = chance * (1 - chance)
    noise = rng.random(len(first)) * 1e-9  # breaks ties at random
    chosen: list[tuple[int, int]] = []
    while len(chosen) < wanted:
        variance = (
            covariance[first, first]
            + covariance[second, second]
            - 2 * covariance[first, second]
        )
        error = np.sqrt(np.maximum(variance, 1e-12))
        # Probability that the model with the lower estimate is the stronger one.
        wrong = ndtr(-np.abs(gap) / error)
        worth = wrong * information * variance + noise
        worth[left[first, second] <= 0] = -1.0
        best = int(np.argmax(worth))
        if worth[best] < 0:
            break
        i = int(first[best])
        j = int(second[best])
        chosen.append((i, j))
        left[i, j] -= 1
        # One more game adds a rank-one term to the information (Sherman and Morrison).
        column = covariance[:, i] - covariance[:, j]
        covariance = covariance - information[best] * np.outer(column, column) / (
            1 + information[best] * variance[best]
        )
    return chosen


def posterior(wins: Floats) -> tuple[Floats, Floats]:
    """Return strengths under a normal prior and their covariance. They are finite for any number of games."""
    theta = davidson(Games.without_ties(wins[None]), ridge=PRIOR).strength[0]
    p = 1 / (1 + np.exp(theta[None, :] - theta[:, None]))
    curve = (wins + wins.T) * p * (1 - p)
    hessian = np.diag(curve.sum(axis=1)) - curve + PRIOR * np.eye(len(wins))
    return theta, np.asarray(np.linalg.inv(hessian), np.float64)
