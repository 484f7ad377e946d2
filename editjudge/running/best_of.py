"""The best of several outputs of one instruction, found by asking about every two of them.

The questions are asked elsewhere: a run, a reward service or a test asks about `all_pairs` in its own way, and hands
the verdicts to `rank`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, TypeAlias

from editjudge.orders import Choice

Pair: TypeAlias = tuple[str, str]
Verdicts: TypeAlias = Mapping[Pair, Choice | None]
"""None if a pair could not be judged."""
_POINTS = {"a": (1.0, 0.0), "b": (0.0, 1.0), "tie": (0.5, 0.5)}


@dataclass(frozen=True)
class RankedOutput:
    """A candidate with its result."""

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
    """None if two are equally good, or if a game that failed could change which is best."""
    reason: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def all_pairs(groups: Mapping[str, Sequence[str]]) -> list[Pair]:
    """Return every two candidates of each group: n (n - 1) / 2 pairs of n candidates."""
    return [pair for ids in groups.values() for pair in combinations(ids, 2)]


def rank(groups: Mapping[str, Sequence[str]], verdicts: Verdicts) -> list[GroupRanking]:
    """Return the ranking of each group by the verdicts on its pairs."""
    return [_ranked(group, ids, verdicts) for group, ids in groups.items()]


def play(
    groups: Mapping[str, Sequence[str]], ask: Callable[[Sequence[Pair]], Verdicts]
) -> list[GroupRanking]:
    """Return the ranking of each group, with the verdicts that `ask` gives for all pairs."""
    return rank(groups, ask(all_pairs(groups)))


def _ranked(group: str, ids: Sequence[str], verdicts: Verdicts) -> GroupRanking:
    points = dict.fromkeys(ids, 0.0)
    games: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for pair in combinations(ids, 2):
        verdict = verdicts.get(pair)
        if verdict is None:
            failed.update(pair)
            continue
        games.update(pair)
        for output, share in zip(pair, _POINTS[verdict], strict=True):
            points[output] += share
    order = sorted(ids, key=lambda output: -points[output])
    candidates = tuple(
        RankedOutput(
            output,
            points[output],
            games[output],
            failed[output],
            1 + sum(points[other] > points[output] for other in ids),
        )
        for output in order
    )
    best = order[0]
    for other in order[1:]:
        reason = ""
        if failed[other] and points[other] + failed[other] >= points[best]:
            reason = f"games that failed could put {other} before {best}"
        elif points[other] == points[best]:
            reason = f"{best} and {other} are equal at {points[best]:g} points"
        if reason:
            return GroupRanking(group, candidates, None, reason)
    return GroupRanking(group, candidates, best, "")
