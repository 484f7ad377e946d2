"""Recorded replies. They are checked by the same contract as live ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from editjudge.canonical import json_hash
from editjudge.edit import Edit
from editjudge.errors import ManifestError
from editjudge.files import read_jsonl
from editjudge.judgement import Exchange, Judgement
from editjudge.judges.judge import Judge, Load, Work
from editjudge.orders import ORDERS
from editjudge.rubrics.contract import check
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.verdict import Failure, Remark, Verdict

_Place = tuple[str, str, int]
_ANY = ""
"""Order of a line that does not state one."""


class Replay(Judge):
    """Replays recorded replies from a file of `{"item", "rubric", "reply", "repeat"?, "order"?, "variant"?}` lines.

    Another line for the same item, rubric, repeat and order is the next attempt. The order of a pair is `ab` (the
    default) or `ba`; a reply names the outputs in the order in which they were shown. If a rubric's question is asked
    for each element of a list, the variant is the index of the element, from 0.
    """

    limits = None

    def __init__(self, path: str, *, strict: bool = False) -> None:
        self.spec = f"replay:{path}"
        self._strict = strict
        self._replies: dict[_Place, dict[str, list[str]]] = {}
        """Replies, keyed by item, rubric and repeat, and then by order."""
        for number, row in read_jsonl(Path(path)):
            question, order, reply = _reply(row, f"{path}:{number}")
            by_order = self._replies.setdefault(question, {})
            by_order.setdefault(order, []).append(reply)

    def identity(self, edit: Edit, rubric: Rubric, repeat: int) -> Mapping[str, object]:
        by_order = self._replies.get((edit.id, rubric.name, repeat), {})
        replies: object = sorted(by_order.items())
        if by_order.keys() <= {_ANY}:
            replies = by_order.get(_ANY, [])
        # A recorded answer must repeat the item's id, so here the id can change the verdict.
        return {
            "judge": "replay",
            "item": edit.id,
            "replies": json_hash(replies),
            "strict": self._strict,
        }

    async def judge(self, work: Work, load: Load) -> Judgement:
        by_order = self._replies.get(
            (work.edit.id, work.task.rubric, work.task.repeat), {}
        )
        variant = work.task.variant
        replies = by_order.get(variant or _ANY)
        if not replies and work.order == "ab":
            replies = by_order.get(_ANY)
        if not replies:
            kind = "order" if work.order else "variant"
            which = f", {kind} {variant}" if variant else ""
            message = f'no reply is recorded for "{work.edit.id}" and {work.task.rubric}{which}'
            reason = Remark("no_recorded_reply", message)
            return work.judgement("unreachable", reasons=(reason,))
        exchanges: list[Exchange] = []
        identifier = None if work.is_exact else work.edit.id
        for reply in replies:
            outcome = check(
                work.rubric, reply, identifier=identifier, strict=self._strict
            )
            reasons = outcome.reasons if isinstance(outcome, Failure) else ()
            exchanges.append(Exchange(reply, outcome.status, reasons=reasons))
            if isinstance(outcome, Verdict):
                break
        return work.verdict(outcome, exchanges)


def _reply(row: object, where: str) -> tuple[_Place, str, str]:
    if not isinstance(row, dict):
        raise ManifestError(f"{where}: expected an object with item, rubric and reply")
    for name in ("item", "rubric", "reply"):
        if not isinstance(row.get(name), str):
            raise ManifestError(
                f'{where}: "{name}" must be text, found {row.get(name)!r:.60}'
            )
    repeat = row.get("repeat", 0)
    if type(repeat) is not int or repeat < 0:
        raise ManifestError(
            f'{where}: "repeat" must be a whole number from 0, found {repeat!r:.60}'
        )
    order = row.get("order") or _ANY
    if order not in (_ANY, *ORDERS):
        raise ManifestError(
            f'{where}: "order" must be ab or ba, found {order!r:.60}', code="bad_reply"
        )
    variant = row.get("variant")
    if variant is not None and (
        order or not isinstance(variant, str | int) or not str(variant).isdecimal()
    ):
        raise ManifestError(
            f'{where}: "variant" must be the number of an element, without an order: {variant!r:.60}'
        )
    return (
        (row["item"], row["rubric"], repeat),
        order if variant is None else str(variant),
        row["reply"],
    )
