"""Rewards by comparing the edits of a group two at a time (`ranking: pairs`).

Every two edits of a group are shown to the judge in both orders with the rubric `preference`. The reward of an edit is
the share of its comparisons that it won by `overall`, a tie counting half. A comparison that failed is no number: both
of its edits are without a reward, the others of the group keep theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from editjudge.edit import Edit
from editjudge.orders import ORDERS, Decision, decide, majority
from editjudge.web.queue import PREFERENCE, InspectedEdit, QueuedEdit, RequestBatch
from editjudge.web.reduction import failure
from editjudge.web.requests import Refused
from editjudge.web.rewards import alone, blank_reward, compare_groups, flagged, judgement_row, set_aside

FACTOR = "overall"
FORMULA = (
    "share of the comparisons within the group that were won, a tie counting half (preference.overall, both orders)"
)
MAX_MEMBERS = 16
"""Of a group: 16 edits make 120 pairs, which are 240 questions."""


class Game(NamedTuple):
    """Two edits of a request that are compared, by their places in it."""

    a: int
    b: int


def check_groups(edits: Sequence[Edit], groups: Sequence[str | None], most: int) -> None:
    """That the edits of each group can be compared, in at most so many pairs. Raises `Refused`."""
    members: dict[str | None, list[int]] = {}
    for number, name in enumerate(groups):
        members.setdefault(name, []).append(number)
    if (count := sum(math.comb(len(numbers), 2) for numbers in members.values())) > most:
        raise Refused(413, f"{count:,} pairs: at most {most:,} are taken in one request; send fewer groups")
    for name, numbers in members.items():
        if len(numbers) > MAX_MEMBERS:
            what = f"{len(numbers)} edits in the group {str(name)[:80]}: at most {MAX_MEMBERS} are compared"
            raise Refused(413, what, [(f"edits.{numbers[MAX_MEMBERS]}.group", what)])
        first = edits[numbers[0]]
        for number in numbers:
            if (edits[number].input, edits[number].instruction) != (first.input, first.instruction):
                what = f"another input or instruction than edits.{numbers[0]} of the same group: pairs share both"
                raise Refused(422, "edits that cannot be compared", [(f"edits.{number}", what)])


def games_of(groups: Sequence[str | None], inspected: Sequence[InspectedEdit]) -> list[Game]:
    """Every two edits of a group that can be compared."""
    members: dict[str | None, list[int]] = {}
    for number, (name, one) in enumerate(zip(groups, inspected, strict=True)):
        if one.comparable:
            members.setdefault(name, []).append(number)
    return [Game(*pair) for numbers in members.values() for pair in combinations(numbers, 2)]


def pair_of(edits: Sequence[Edit], game: Game) -> Edit:
    """The two edits as one that shows both outputs, as `editjudge pairs` makes it."""
    a, b = edits[game.a], edits[game.b]
    models = {name: edit.model for name, edit in (("model_a", a), ("model_b", b)) if edit.model}
    outputs = {name: edit.edited for name, edit in (("edited_a", a), ("edited_b", b)) if edit.edited is not None}
    return Edit(f"{a.id}|{b.id}", a.input, None, a.instruction, group=a.group, metadata=models, pictures=outputs)


def pair_rewards(
    edits: Sequence[Edit],
    groups: Sequence[str | None],
    inspected: Sequence[InspectedEdit],
    games: Sequence[Game],
    batch: RequestBatch | None,
    weights: Mapping[str, float],
    *,
    worst: bool,
) -> list[dict[str, Any]]:
    """The reward of each edit, in their order."""
    parts = batch.parts if batch else []
    decisions = {p.spec: {g: _decision(queued) for g, queued in zip(games, p.edits, strict=True)} for p in parts}
    rewards = []
    for number, (edit, one) in enumerate(zip(edits, inspected, strict=True)):
        mine = [n for n, game in enumerate(games) if number in game]
        if one.problem:
            status, remark = one.problem
            reason = {"rubric": PREFERENCE.name, **remark.as_json()}
            rewards.append(blank_reward(edit) | {"status": status, "reasons": [reason]})
        elif one.output and one.output.set_aside:
            rewards.append(set_aside(edit, one.output, [PREFERENCE.name], worst=worst))
        elif not mine or batch is None:
            message = f"no other edit of the group {groups[number]} can be compared with it"
            rewards.append(blank_reward(edit) | {"reasons": [alone(PREFERENCE.name, message)]})
        else:
            flags = flagged(one.output, [PREFERENCE.name])
            won = {
                spec: math.fsum(_won(number, games[n], of_judge[games[n]]) for n in mine) / len(mine)
                for spec, of_judge in decisions.items()
            }
            rewards.append(blank_reward(edit) | _compared(number, mine, games, batch, won, weights, flags))
    compare_groups(groups, rewards, ranked=False)
    for number, reward in enumerate(rewards):
        verdicts = [d for of_judge in decisions.values() for game, d in of_judge.items() if number in game]
        reward["group"] |= {
            "reward": None,  # before the comparisons there was none
            "comparisons": {
                "asked": len(verdicts),
                "failed": sum(decision.verdict is None for decision in verdicts),
                "ties": sum(decision.verdict == "tie" for decision in verdicts),
                "flipped": sum(decision.flipped for decision in verdicts),
            },
        }
    return rewards


def _won(number: int, game: Game, decision: Decision) -> float:
    """What an edit won of a comparison; nothing where there is no verdict."""
    if decision.verdict == "tie":
        return 0.5
    return float(decision.verdict == ("a" if number == game.a else "b"))


def _decision(pair: QueuedEdit) -> Decision:
    """What the judge's answers in both orders come to; an answer that is missing leaves no verdict."""
    answers: dict[str, list[str | None]] = {order: [] for order in ORDERS}
    for work, judgement in zip(pair.works, pair.judgements, strict=True):
        choices = judgement.choices if judgement and judgement.status == "ok" else None
        answers[work.task.variant or ORDERS[0]].append(choices.get(FACTOR) if choices else None)
    whole = {order: majority(given) if given and None not in given else None for order, given in answers.items()}
    return decide(*(whole[order] for order in ORDERS))


def _compared(
    number: int,
    mine: Sequence[int],
    games: Sequence[Game],
    batch: RequestBatch,
    won: Mapping[str, float],
    weights: Mapping[str, float],
    flags: list[dict[str, Any]],
) -> dict[str, Any]:
    """What the comparisons of one edit say of it."""
    rows: dict[str, dict[str, Any]] = {}
    failed = None
    for part in batch.parts:
        at = f"@{part.spec}" if len(batch.parts) > 1 else ""
        for place in mine:
            pair, game = part.edits[place], games[place]
            other = game.b if number == game.a else game.a
            failed = failed or failure(pair.judgements) or (_decision(pair).verdict is None and "abstained") or None
            rows |= {f"{name}{at}": row for name, row in _rows(pair, other, batch)}
    answer = {
        "status": failed or "ok",
        "reasons": [*flags, *({"rubric": PREFERENCE.name, **why} for row in rows.values() for why in row["reasons"])],
        "abstained": {f"{name}.{FACTOR}": why for name, row in rows.items() if (why := row["abstained"].get(FACTOR))},
        "keys": {name: row["key"] for name, row in rows.items() if row["key"]},
        "cached": all(row["cached"] for row in rows.values()),
    }
    if failed is None:
        total = math.fsum(weights[spec] for spec in won)
        answer |= {"reward": math.fsum(weights[spec] * value for spec, value in won.items()) / total, "scores": {}}
    return answer


def _rows(pair: QueuedEdit, other: int, batch: RequestBatch) -> Iterator[tuple[str, dict[str, Any]]]:
    """The judgements of a pair by name: the rubric, the place of the other edit, the order, and further samples."""
    seen: dict[str, int] = {}
    for number in range(len(pair.works)):
        row = judgement_row(pair, number, batch)
        name = f"{PREFERENCE.name}#{other}.{row['variant'] or ORDERS[0]}"
        seen[name] = seen.get(name, -1) + 1
        yield (f"{name}.{seen[name]}" if seen[name] else name), row
