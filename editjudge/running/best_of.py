"""The best of several outputs of one instruction, found by asking about every two of them.

The questions are asked elsewhere: a run, a reward service or a test asks about `all_pairs` in its own way, and hands
the verdicts to `rank`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, TypeAlias

from editjudge.orders import Choice

Pair: TypeAlias = tuple[str, str]
Verdicts: TypeAlias = Mapping[Pair, Choice | None]
"""None where a pair could not be judged."""
_POINTS = {"a": 1.0, "b": 0.0, "tie": 0.5}


@dataclass(frozen=True)
class RankedOutput:
    id: str
    points: float
    """Games won, a tie being half of one."""
    games: int
    failed: int
    """Games without a verdict: no points, and no defeat."""
    rank: int
    """1 for the best; those with equal claims share a rank."""


@dataclass(frozen=True)
class GroupRanking:
    """The candidates of one input and instruction, best first."""

    group: str
    candidates: tuple[RankedOutput, ...]
    best: str | None
    """None where two are equally good, or where a game that failed could change who is best."""
    reason: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def all_pairs(groups: Mapping[str, Sequence[str]]) -> list[Pair]:
    """Return every two candidates of each group: n (n - 1) / 2 pairs of n candidates."""
    return [pair for ids in groups.values() for pair in combinations(ids, 2)]


def rank(groups: Mapping[str, Sequence[str]], verdicts: Verdicts) -> list[GroupRanking]:
    """Return the ranking of each group by the verdicts on its pairs."""
    rankings = []
    for group, ids in groups.items():
        games = {pair: verdicts.get(pair) for pair in combinations(ids, 2)}
        rankings.append(_ranked(group, ids, games))
    return rankings


def play(
    groups: Mapping[str, Sequence[str]], ask: Callable[[Sequence[Pair]], Verdicts]
) -> list[GroupRanking]:
    """Return the ranking of each group, with the verdicts that `ask` gives for all pairs."""
    return rank(groups, ask(all_pairs(groups)))


def _ranked(group: str, ids: Sequence[str], verdicts: Verdicts) -> GroupRanking:
    points, games, failed = (dict.fromkeys(ids, 0.0) for _ in range(3))
    for (a, b), verdict in verdicts.items():
        for one in (a, b):
            games[one] += verdict is not None
            failed[one] += verdict is None
        if verdict is not None:
            points[a] += _POINTS[verdict]
            points[b] += 1 - _POINTS[verdict]
    order = sorted(ids, key=lambda one: -points[one])
    ranks = {one: 1 + sum(points[other] > points[one] for other in ids) for one in ids}
    listed = tuple(
        RankedOutput(one, points[one], int(games[one]), int(failed[one]), ranks[one])
        for one in order
    )
    best = order[0]
    for other in order[1:]:
        if failed[other] and points[other] + failed[other] >= points[best]:
            return GroupRanking(
                group,
                listed,
                None,
                f"games that failed could put {other} before {best}",
            )
        if points[other] == points[best]:
            return GroupRanking(
                group,
                listed,
                None,
                f"{best} and {other} are equal at {points[best]:g} points",
            )
    return GroupRanking(group, listed, best, "")
