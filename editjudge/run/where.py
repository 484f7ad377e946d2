"""Which edits a second run is about: those that an earlier one did not rule out."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from editjudge.edit import Edit
from editjudge.errors import UsageError
from editjudge.run.planning import BATCH
from editjudge.store.store import Store

_SIGNS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


@dataclass(frozen=True)
class Where:
    """`RUN:FACTOR>=VALUE`, of the mean over repeats and judges.

    What has no score, since its judge abstained or failed, stays in: nothing speaks against it.
    """

    run: str
    factor: str
    sign: str
    value: float

    @classmethod
    def parse(cls, text: str) -> Where:
        found = re.fullmatch(r"(.+):([^:<>=]+)(>=|<=|>|<)(-?\d+(?:\.\d+)?)", text)
        if not found:
            raise UsageError(f'--where "{text}": expected RUN:FACTOR>=VALUE, or <=, >, <')
        run, factor, sign, value = found.groups()
        return cls(run, factor, sign, float(value))

    def kept(self, store: Store, edits: Iterable[Edit]) -> Iterator[Edit]:
        run, edits = store.find_run(self.run), iter(edits)
        scored = {factor["key"] for rubric in store.rubrics().values() for factor in rubric["content"]["factors"]}
        if self.factor not in scored:
            raise UsageError(f'--where: no rubric of this store has a factor "{self.factor}"')
        while some := list(itertools.islice(edits, BATCH)):
            scores: dict[str, list[int]] = {edit.id: [] for edit in some}
            for row in store.judgements(run, fields=("item", "scores"), item=list(scores)):
                if self.factor in (row["scores"] or {}):
                    scores[row["item"]].append(row["scores"][self.factor])
            yield from (edit for edit in some if self._holds(scores[edit.id]))

    def _holds(self, scores: list[int]) -> bool:
        return not scores or bool(_SIGNS[self.sign](sum(scores) / len(scores), self.value))
