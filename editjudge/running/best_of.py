"""The best of several outputs for one instruction, found by comparing every pair of them.

This module does not call judges. A run, a reward service or a test obtains verdicts on `all_pairs` and passes them to
`rank`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TypeAlias

from editjudge.orders import Choice

Pair: TypeAlias = tuple[str, str]
Verdicts: TypeAlias = Mapping[Pair, Choice | None]
"""Verdict on each pair; None if the pair could not be judged."""
_POINTS = {"a": (1.0, 0.0), "b": (0.0, 1.0), "tie": (0.5, 0.5)}


@dataclass(frozen=True)
class RankedOutput:
    """An output with its points and rank."""

    id: str
    points: float
    """Number of comparisons won; a tie counts as half."""
    games: int
    failed: int
    """Number of comparisons without a verdict. They give no points and do not count as lost."""
    rank: int
    """Rank, 1 for the best. Outputs with equal points share a rank."""


@dataclass(frozen=True)
class GroupRanking:
    """Ranking of the outputs for one input and instruction, best first."""

    group: str
    candidates: tuple[RankedOutput, ...]
    best: str | None
    """Id of the best output. None if two are equal, or if a comparison without a verdict could change which one is
    best.
    """
    reason: str

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def all_pairs(groups: Mapping[str, Sequence[str]]) -> list[Pair]:
    """Return all pairs of outputs within each group: n (n - 1) / 2 pairs for n outputs."""
    return [pair for ids in groups.values() for pair in combinations(ids, 2)]


def rank(groups: Mapping[str, Sequence[str]], verdicts: Verdicts) -> list[GroupRanking]:
    """Rank the outputs of each group by the verdicts on its pairs."""
    return [_ranked(group, ids, verdicts) for group, ids in groups.items()]


def play(
    groups: Mapping[str, Sequence[str]], ask: Callable[[Sequence[Pair]], Verdicts]
) -> list[GroupRanking]:
    """Call `ask` for the verdicts on all pairs, and return the ranking of each group."""
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
