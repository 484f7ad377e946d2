"""Judges against people who say which of two edits is better: accuracies, ties, and strengths of models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from editjudge.errors import UsageError

from .answer import Answer, Interval
from .bootstrap import DRAWS, folds_of, group_notes, interval, mean_draws, weights
from .columns import Column, Floats, Ints

VOTES = ("A", "B", "tie")
RIDGE = 1e-3
"""Keeps the strength of a model that won (or lost) everything finite; a thousandth of a game moves nothing else."""


@dataclass(frozen=True, slots=True)
class Preference:
    """Which of two edits one person prefers, and which of them judges do."""

    pair: tuple[str, str]
    """The ids of the edits or, where no run knows them, the models that made them."""
    human: str
    group: str
    """The source image; empty where it was not told."""
    votes: Mapping[str, str | None]


@dataclass(frozen=True)
class Accuracy(Answer):
    """A judge's votes against people's."""

    n: int
    answered: int
    failed: int
    accuracy: float | None
    """Three ways (A, B, tie) over the pairs that the judge answered."""
    ci: Interval | None
    strict: float | None
    """The same over all pairs, an answer that failed counting as wrong."""
    strict_ci: Interval | None
    without_ties: float | None
    """Over the pairs that neither people nor the judge called a tie."""
    without_ties_ci: Interval | None
    decided: int
    """How many pairs those are."""
    judge_ties: int
    human_ties: int
    first_share: float | None
    """How often the judge took A among its decided votes: far from people's share is a bias of position."""
    human_first_share: float | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class TieCalibrated(Answer):
    """Accuracy of score differences when differences up to `epsilon` are called ties (Deutsch et al., 2023)."""

    n: int
    accuracy: float | None
    """With the epsilon that is best on these very pairs, as in the paper."""
    epsilon: float | None
    held_out: float | None
    """With epsilon chosen on other groups: what to expect of new pairs."""


@dataclass(frozen=True)
class Strength(Answer):
    """Bradley-Terry: log odds of being preferred over the average model."""

    model: str
    games: int
    strength: float
    ci: Interval | None
    notes: tuple[str, ...]


def accuracy(
    human: Sequence[str],
    judge: Sequence[str | None],
    *,
    group: Iterable[object] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Accuracy:
    """Votes are A, B or tie; None is an answer that failed."""
    h, j = _votes(human), _votes(judge)
    groups = Column.of(range(len(h)) if group is None else group)
    answered = j >= 0
    decided = (h < 2) & (j < 2) & answered
    right = (h == j).astype(float)
    (acc, ci), (strict, strict_ci), (without, without_ci) = (
        _share(right, keep, groups, draws=draws, seed=seed) for keep in (answered, h >= 0, decided)
    )
    own, theirs = answered & (j < 2), h < 2
    return Accuracy(
        n=len(h), answered=int(answered.sum()), failed=int((~answered).sum()),
        accuracy=acc, ci=ci, strict=strict, strict_ci=strict_ci,
        without_ties=without, without_ties_ci=without_ci, decided=int(decided.sum()),
        judge_ties=int((j == 2).sum()), human_ties=int((h == 2).sum()),
        first_share=float(np.mean(j[own] == 0)) if own.any() else None,
        human_first_share=float(np.mean(h[theirs] == 0)) if theirs.any() else None,
        notes=group_notes(len(groups.labels)) if answered.any() else ("the judge answered no pair",),
    )  # fmt: skip


def tie_calibrated(
    human: Sequence[str], difference: Sequence[float], *, group: Iterable[object] | None = None, folds: int = 5
) -> TieCalibrated:
    """`difference` is the judge's score of A minus that of B."""
    h, d = _votes(human), np.asarray(difference, dtype=float)
    keep = np.isfinite(d) & (h >= 0)
    groups = Column.of(range(len(h)) if group is None else group).codes[keep]
    h, d = h[keep], d[keep]
    if len(h) == 0:
        return TieCalibrated(0, None, None, None)
    epsilon = _best_epsilon(h, d)
    fold = folds_of(groups, folds)
    right = np.full(len(h), np.nan)
    for k in range(int(fold.max()) + 1):
        test = fold == k
        if not test.all():
            right[test] = _called(d[test], _best_epsilon(h[~test], d[~test])) == h[test]
    held_out = float(right.mean()) if np.isfinite(right).all() else None
    return TieCalibrated(len(h), float(np.mean(_called(d, epsilon) == h)), epsilon, held_out)


def bradley_terry(
    first: Sequence[str],
    second: Sequence[str],
    vote: Sequence[str | None],
    *,
    group: Iterable[object] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> list[Strength]:
    """Strongest first; a tie is half a win for each, a failed vote is left out."""
    v = _votes(vote)
    keep = v >= 0
    names = Column.of([*first, *second])
    n, m = len(v), len(names.labels)
    a, b = names.codes[:n][keep].astype(np.int64), names.codes[n:][keep].astype(np.int64)
    groups = Column.of(range(n) if group is None else group).take(keep).compact()
    if m == 0 or not keep.any():
        return []
    wins = np.zeros((len(groups.labels), m, m))
    share = np.array([1.0, 0.0, 0.5])[v[keep]]
    np.add.at(wins, (groups.codes, a, b), share)
    np.add.at(wins, (groups.codes, b, a), 1 - share)
    total = wins.sum(axis=0)
    strength = _fit(total[None])[0]
    flat = wins.reshape(len(wins), -1)
    drawn = np.concatenate([_fit((w @ flat).reshape(-1, m, m)) for w in weights(len(wins), draws, seed, block=400_000)])
    return [
        Strength(
            names.labels[i], int(total[i].sum() + total[:, i].sum()), float(strength[i]),
            interval(drawn[:, i], len(wins)), _strength_notes(total, i),
        )
        for i in np.argsort(-strength, kind="stable")
    ]  # fmt: skip


def _votes(votes: Sequence[str | None]) -> Ints:
    for vote in votes:
        if vote is not None and vote not in VOTES:
            raise UsageError(f"a vote is 'A', 'B' or 'tie', or None where it failed; found {vote!r}")
    return np.array([-1 if vote is None else VOTES.index(vote) for vote in votes], dtype=np.int64)


def _share(
    right: Floats, keep: np.ndarray[tuple[int], np.dtype[np.bool_]], groups: Column, *, draws: int, seed: int
) -> tuple[float | None, Interval | None]:
    if not keep.any():
        return None, None
    part, values = groups.take(keep).compact(), right[keep]
    n = len(part.labels)
    drawn = mean_draws(values, np.zeros(len(values), np.int64), 1, part.codes, n, draws=draws, seed=seed)
    return float(values.mean()), interval(drawn[:, 0], n)


def _called(difference: Floats, epsilon: float) -> Ints:
    return np.where(np.abs(difference) <= epsilon, 2, np.where(difference > 0, 0, 1))


def _best_epsilon(h: Ints, d: Floats) -> float:
    """Of all thresholds that call different pairs ties, the smallest among the best."""
    sizes, code = np.unique(np.abs(d), return_inverse=True)
    order_right = np.where(d > 0, 0, 1) == h
    gain = np.bincount(code, weights=(h == 2).astype(float) - order_right, minlength=len(sizes))
    best = np.r_[0.0, np.cumsum(gain)]
    # Epsilon below the smallest difference calls no ties at all; -1 says so where a difference is zero.
    return float(np.r_[-1.0, sizes][int(np.argmax(np.round(best, 9)))])


def _fit(wins: Floats) -> Floats:
    """Newton's method on all draws at once; `wins[d, i, j]` is how often i beat j in draw d."""
    games, m = wins + wins.transpose(0, 2, 1), wins.shape[1]
    theta, eye = np.zeros(wins.shape[:2]), np.eye(m)
    for _ in range(60):
        p = 1 / (1 + np.exp(theta[:, None, :] - theta[:, :, None]))
        slope = (wins - games * p).sum(2) - RIDGE * theta
        curve = games * p * (1 - p)
        hessian = curve.sum(2)[:, :, None] * eye - curve + RIDGE * eye
        # A step of more than 2 log odds is where Newton overshoots on lopsided games.
        step = np.clip(np.linalg.solve(hessian, slope[:, :, None])[:, :, 0], -2, 2)
        theta = theta + step
        if np.abs(step).max(initial=0.0) < 1e-9:
            break
    centred: Floats = theta - theta.mean(axis=1, keepdims=True)
    return centred


def _strength_notes(total: Floats, i: int) -> tuple[str, ...]:
    if total[i].sum() == 0:
        return ("never won: its strength is only known to be low",)
    if total[:, i].sum() == 0:
        return ("never lost: its strength is only known to be high",)
    return ()
