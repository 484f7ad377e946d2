"""The best of several outputs of one instruction, found by asking about two at a time: all against all, or knock-out.

The questions are asked elsewhere: `tournament` yields the pairs of a round and is sent their verdicts, so that a run, a
reward service or a test can ask them in its own way.

    games = tournament({"g": ["x", "y", "z"]}, "knockout")
    pairs = next(games)                                  # [("x", "y")] and so on, by ids
    pairs = games.send({("x", "y"): "a"})                # until StopIteration, whose value is the rankings
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Literal, TypeAlias

from editjudge.orders import Choice

Method = Literal["all", "knockout"]
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


def tournament(
    groups: Mapping[str, Sequence[str]], method: Method
) -> Generator[list[Pair], Verdicts, list[GroupRanking]]:
    """Yields the pairs of each round over all groups; returns the ranking of each group.

    Knock-out asks n - 1 questions of n candidates where all against all asks n (n - 1) / 2. After a tie or a game that
    failed the earlier candidate goes on, and the ranking says so.
    """
    rankings = yield from (_all if method == "all" else _knockout)(groups)
    return rankings


def _all(groups: Mapping[str, Sequence[str]]) -> Generator[list[Pair], Verdicts, list[GroupRanking]]:
    games = {group: list(combinations(ids, 2)) for group, ids in groups.items()}
    verdicts = yield [pair for pairs in games.values() for pair in pairs]
    return [_ranked(group, ids, {pair: verdicts.get(pair) for pair in games[group]}) for group, ids in groups.items()]


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
    listed = tuple(RankedOutput(one, points[one], int(games[one]), int(failed[one]), ranks[one]) for one in order)
    best, reason = order[0], ""
    for other in order[1:]:
        if failed[other] and points[other] + failed[other] >= points[best]:
            return GroupRanking(group, listed, None, f"games that failed could put {other} before {best}")
        if points[other] == points[best]:
            return GroupRanking(group, listed, None, f"{best} and {other} are equal at {points[best]:g} points")
    return GroupRanking(group, listed, best, reason)


def _knockout(groups: Mapping[str, Sequence[str]]) -> Generator[list[Pair], Verdicts, list[GroupRanking]]:
    alive = {group: list(ids) for group, ids in groups.items()}
    played: dict[str, dict[Pair, Choice | None]] = {group: {} for group in groups}
    out: dict[str, list[list[str]]] = {group: [] for group in groups}
    """Who was beaten in each round, the first round first."""
    while any(len(ids) > 1 for ids in alive.values()):
        draw = {group: list(zip(ids[::2], ids[1::2], strict=False)) for group, ids in alive.items()}
        verdicts = yield [pair for pairs in draw.values() for pair in pairs]
        for group, pairs in draw.items():
            if not pairs:
                continue
            ids = alive[group]
            results = {pair: verdicts.get(pair) for pair in pairs}
            played[group] |= results
            beaten = [pair[0] if verdict == "b" else pair[1] for pair, verdict in results.items()]
            out[group].append(beaten)
            alive[group] = [one for one in ids if one not in beaten]
    return [_bracket(group, alive[group], out[group], played[group]) for group in groups]


def _bracket(group: str, alive: Sequence[str], out: Sequence[Sequence[str]], played: Verdicts) -> GroupRanking:
    """Whoever came further stands before; those who left in one round share a rank."""
    tiers = [list(alive), *(list(beaten) for beaten in reversed(out))]
    listed: list[RankedOutput] = []
    for tier in tiers:
        rank = len(listed) + 1
        for one in tier:
            mine = {pair: verdict for pair, verdict in played.items() if one in pair}
            won = sum(_POINTS[v] if pair[0] == one else 1 - _POINTS[v] for pair, v in mine.items() if v is not None)
            lost = sum(verdict is None for verdict in mine.values())
            listed.append(RankedOutput(one, won, len(mine) - lost, lost, rank))
    champion = alive[0]
    close = [pair for pair, verdict in played.items() if champion in pair and verdict in ("tie", None)]
    if close:
        other = close[0][1] if close[0][0] == champion else close[0][0]
        how = "is a tie" if played[close[0]] == "tie" else "failed"
        return GroupRanking(group, tuple(listed), None, f"the game of {champion} and {other} {how}")
    return GroupRanking(group, tuple(listed), champion, "")


def play(
    groups: Mapping[str, Sequence[str]], method: Method, ask: Callable[[Iterable[Pair]], Verdicts]
) -> list[GroupRanking]:
    """The rankings, `ask` being called with the pairs of each round."""
    games = tournament(groups, method)
    try:
        pairs = next(games)
        while True:
            pairs = games.send(ask(pairs) if pairs else {})
    except StopIteration as end:
        rankings: list[GroupRanking] = end.value
        return rankings
