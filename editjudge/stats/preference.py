"""Judges against people who say which of two edits is better: accuracies, ties, and strengths of models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from editjudge.errors import UsageError
from editjudge.stats.bootstrap import DRAWS, folds_of, tail, weights
from editjudge.stats.columns import Column, Floats, Ints, Mask
from editjudge.stats.inference import mean_interval
from editjudge.stats.statistic import FailureBounds, Interval, Limits, Statistic

VOTES = ("A", "B", "tie")
RIDGE = 1e-6
"""Fixes the level that a maximum likelihood fit leaves open; a millionth of a game moves nothing else."""
FEWEST_GROUPS = 20
"""Source images below which strengths have no interval: at 10, those of lopsided models held the truth in 79 of 100."""


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
class Accuracy(Statistic):
    """A judge's votes against people's."""

    n: int
    answered: int
    failed: int
    accuracy: float | None
    """Three ways (A, B, tie) over the pairs that the judge answered."""
    ci: Interval | None
    """Clopper-Pearson's where each source image is wholly right or wrong; else that of a mean."""
    ci_reason: str | None
    strict: float | None
    """The same over all pairs, an answer that failed counting as wrong."""
    strict_ci: Interval | None
    without_ties: float | None
    """Over the pairs that neither people nor the judge called a tie."""
    without_ties_ci: Interval | None
    bounds: FailureBounds | None
    """The accuracy over all pairs if every answer that failed were wrong, and if every one were right."""
    overturnable: bool
    """Whether these bounds reach beyond the interval: what failed could then change what it says."""
    decided: int
    """How many pairs those are."""
    judge_ties: int
    human_ties: int
    first_share: float | None
    """How often the judge took A among its decided votes: far from people's share is a bias of position."""
    human_first_share: float | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class TieCalibrated(Statistic):
    """Accuracy of score differences when differences up to `epsilon` are called ties (Deutsch et al., 2023)."""

    n: int
    accuracy: float | None
    """With the epsilon that is best on these very pairs, as in the paper."""
    epsilon: float | None
    held_out: float | None
    """With epsilon chosen on other groups: what to expect of new pairs."""


@dataclass(frozen=True)
class Strength(Statistic):
    """Bradley-Terry: log odds of being preferred over the average model."""

    model: str
    games: int
    strength: float | None
    """None where it is infinite: the model won, or lost, against all that it can be compared with."""
    ci: Interval | None
    ci_reason: str | None
    scale: int
    """Strengths can be compared within one scale only: its models have all won and lost against each other, if by
    way of others. Scales are numbered from 1, those that won before those that lost to them."""
    notes: tuple[str, ...]


def accuracy(
    human: Sequence[str],
    judge: Sequence[str | None],
    *,
    group: Iterable[object] | None = None,
    draws: int = DRAWS,
) -> Accuracy:
    """Votes are A, B or tie; None is an answer that failed."""
    h, j = _votes(human), _votes(judge)
    groups = Column.of(range(len(h)) if group is None else group)
    answered = j >= 0
    decided = (h < 2) & (j < 2) & answered
    right = (h == j).astype(float)
    (acc, (ci, why, _)), (strict, (strict_ci, *_)), (without, (without_ci, *_)) = (
        _share(right, keep, groups, draws=draws) for keep in (answered, h >= 0, decided)
    )
    failed = int((~answered).sum())
    bounds = FailureBounds(float(right.mean()), float((right.sum() + failed) / len(h))) if len(h) else None
    own, theirs = answered & (j < 2), h < 2
    return Accuracy(
        n=len(h), answered=int(answered.sum()), failed=failed,
        accuracy=acc, ci=ci, ci_reason=why, strict=strict, strict_ci=strict_ci,
        without_ties=without, without_ties_ci=without_ci, decided=int(decided.sum()),
        bounds=bounds, overturnable=bool(failed) and (bounds is None or bounds.beyond(ci)),
        judge_ties=int((j == 2).sum()), human_ties=int((h == 2).sum()),
        first_share=float(np.mean(j[own] == 0)) if own.any() else None,
        human_first_share=float(np.mean(h[theirs] == 0)) if theirs.any() else None,
        notes=((why,) if why else ()) if answered.any() else ("the judge answered no pair",),
    )  # fmt: skip


@dataclass(frozen=True)
class HumanAgreement(Statistic):
    """What people reach among themselves: one person's vote against another's on the same pair."""

    raters: int
    pairs: int
    """Pairs with votes of two people or more."""
    agreement: float | None
    """Three ways: the mean over pairs of the share of two people who say the same."""
    ci: Interval | None
    ci_reason: str | None
    without_ties: float | None
    """Over two people neither of whom calls it a tie."""


def human_agreement(
    votes: Mapping[str, Sequence[tuple[str, str]]], groups: Mapping[str, str], *, draws: int = DRAWS
) -> HumanAgreement:
    """`votes` are (rater, vote) by pair; `groups` the source image of each pair."""
    shares, decided, images = [], [], []
    for pair, given in votes.items():
        two = [(x, y) for i, (who, x) in enumerate(given) for other, y in given[i + 1 :] if who != other]
        if two:
            shares.append(float(np.mean([x == y for x, y in two])))
            images.append(groups.get(pair, pair))
            decided += [x == y for x, y in two if "tie" not in (x, y)]
    part = Column.of(images)
    limits = mean_interval(np.array(shares), part.codes, (0.0, 1.0), draws=draws, share=True)
    return HumanAgreement(
        raters=len({who for given in votes.values() for who, _ in given}),
        pairs=len(shares),
        agreement=float(np.mean(shares)) if shares else None,
        ci=limits.ci,
        ci_reason=limits.reason if shares else "no pair has votes of two people",
        without_ties=float(np.mean(decided)) if decided else None,
    )


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
    """Strongest first; a tie is half a win for each, a failed vote is left out.

    A maximum likelihood fit is finite, and unique up to its level, among models that have all won and lost against
    each other, if by way of others (Ford, 1957). Each such set is a scale of its own.
    """
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
    strengths: list[Strength] = []
    scales = connected_scales(total)
    for number, members in enumerate(scales, 1):
        inside = np.ix_(range(len(wins)), members, members)
        strength, limits = _strengths(wins[inside], draws, seed)
        alone = scale_notes(total, members, scales, names.labels)
        for i in np.argsort(-strength, kind="stable"):
            model = members[i]
            games = round(float(total[model].sum() + total[:, model].sum()))
            value = None if len(members) == 1 else float(strength[i])
            ends = limits[i] if len(members) > 1 else Limits(None, alone[0])
            strengths.append(Strength(names.labels[model], games, value, ends.ci, ends.reason, number, alone))
    return strengths


def connected_scales(total: Floats) -> list[list[int]]:
    """Models that a finite fit holds together, those that won first (Ford, 1957): its graph is strongly connected."""
    reach = _reachable(total[None] > 0)[0]
    together = reach & reach.T
    scales = [list(map(int, np.flatnonzero(row))) for row in np.unique(together, axis=0)]
    # Whoever reaches more others by wins stands before them.
    return sorted(scales, key=lambda members: (-int(reach[members[0]].sum()), members))


def _reachable(edges: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which nodes lead to which, by any number of edges (graphs x nodes x nodes)."""
    reach = edges | np.eye(edges.shape[1], dtype=bool)
    for _ in range(max(1, edges.shape[1] - 1).bit_length()):
        reach = np.matmul(reach, reach)
    return reach


def scale_notes(
    total: Floats, members: Sequence[int], scales: Sequence[Sequence[int]], labels: Sequence[str]
) -> tuple[str, ...]:
    """Why these are not on one scale with the others."""
    if len(scales) == 1:
        return ()
    met = (total + total.T)[members].sum(axis=0) > 0
    met[list(members)] = False
    won, lost = total[members].sum(axis=0)[met].sum() > 0, total[:, members].sum(axis=1)[met].sum() > 0
    subject = "it" if len(members) == 1 else f"the {len(members)} models of this scale"
    if not met.any():
        return (f"{subject} never met any other: strengths cannot be compared with theirs",)
    if won and lost:
        return (f"{subject} won all against some and lost all against others: how much stronger or weaker is unknown",)
    how = "never lost" if won else "never won"
    side = "high" if won else "low"
    some = ", ".join(label for label, other in zip(labels, met, strict=True) if other)
    return (f"{subject} {how} against {some}: strength is only known to be {side}, its estimate is infinite",)


def _strengths(wins: Floats, draws: int, seed: int) -> tuple[Floats, list[Limits]]:
    """Of models that hold together, about their mean, by groups x models x models of wins."""
    n, m = wins.shape[:2]
    strength = fit_strengths(wins.sum(axis=0)[None])[0]
    if m == 1:
        return strength, [Limits(None, None)]
    played = int(np.sum(wins.sum(axis=(1, 2)) > 0))
    if played < FEWEST_GROUPS:
        why = f"games on {played} source images: an interval of strengths needs {FEWEST_GROUPS}"
        return strength, [Limits(None, why)] * m
    flat, drawn = wins.reshape(n, -1), np.empty((draws, m))
    row = 0
    for w in weights(n, draws, seed, block=400_000):
        some = (w @ flat).reshape(-1, m, m)
        fitted = fit_strengths(some)
        # A draw in which some never lose has no finite fit: their strengths in it are beyond any limit.
        reach = _reachable(some > 0)
        above, below = reach.sum(axis=2), reach.sum(axis=1)
        loose = ~reach.all(axis=(1, 2))
        fitted[loose] = np.where(above >= below, np.inf, -np.inf)[loose]
        drawn[row : row + len(fitted)] = fitted
        row += len(fitted)
    return strength, [strength_limits(drawn[:, i], played) for i in range(m)]


def strength_limits(drawn: Floats, groups: int) -> Limits:
    p = tail(groups)
    lo, hi = np.quantile(drawn, [p, 1 - p], method="inverted_cdf")
    if not (np.isfinite(lo) and np.isfinite(hi)):
        share = float(np.mean(~np.isfinite(drawn)))
        return Limits(None, f"in {share:.0%} of drawn sets of images some model never loses: a limit is infinite")
    return Limits(Interval(float(lo), float(hi)), None)


def _votes(votes: Sequence[str | None]) -> Ints:
    for vote in votes:
        if vote is not None and vote not in VOTES:
            raise UsageError(f"a vote is 'A', 'B' or 'tie', or None where it failed; found {vote!r}")
    return np.array([-1 if vote is None else VOTES.index(vote) for vote in votes], dtype=np.int64)


def _share(right: Floats, keep: Mask, groups: Column, *, draws: int) -> tuple[float | None, Limits]:
    part, values = groups.take(keep).compact(), right[keep]
    limits = mean_interval(values, part.codes, (0.0, 1.0), draws=draws, share=True)
    return (float(values.mean()) if len(values) else None), limits


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


def fit_strengths(wins: Floats, ridge: float = RIDGE) -> Floats:
    """Newton's method on all draws at once; `wins[d, i, j]` is how often i beat j in draw d.

    `ridge` is the precision of a normal prior around the average model.
    """
    games, m = wins + wins.transpose(0, 2, 1), wins.shape[1]
    theta, eye = np.zeros(wins.shape[:2]), np.eye(m)
    for _ in range(60):
        p = 1 / (1 + np.exp(theta[:, None, :] - theta[:, :, None]))
        slope = (wins - games * p).sum(2) - ridge * theta
        curve = games * p * (1 - p)
        hessian = curve.sum(2)[:, :, None] * eye - curve + ridge * eye
        # A step of more than 2 log odds is where Newton overshoots on lopsided games.
        step = np.clip(np.linalg.solve(hessian, slope[:, :, None])[:, :, 0], -2, 2)
        theta = theta + step
        if np.abs(step).max(initial=0.0) < 1e-9:
            break
    centred: Floats = theta - theta.mean(axis=1, keepdims=True)
    return centred
