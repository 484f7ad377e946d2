"""Which edits a second run is about: those that earlier ones did not rule out."""

from __future__ import annotations

import itertools
import operator
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from editjudge.edit import Edit, ImageSource
from editjudge.errors import ImageError, UsageError, near_miss
from editjudge.media.cache import DigestCache
from editjudge.media.image import is_url
from editjudge.run.feed import place_of
from editjudge.run.plan import BATCH
from editjudge.store.store import Item, RunRecord, Store

_SIGNS = {">=": operator.ge, "<=": operator.le, "==": operator.eq, "=": operator.eq, ">": operator.gt, "<": operator.lt}
_FORM = re.compile(rf"(?:(.+):)?\s*([^:<>=]+?)\s*({'|'.join(_SIGNS)})\s*(-?\d+(?:\.\d+)?)\s*")


@dataclass(frozen=True)
class Condition:
    """`RUN:FACTOR>=VALUE`, of the mean over repeats and judges.

    What has no score, since its judge abstained or failed, stays in: nothing speaks against it.
    """

    run: str
    factor: str
    sign: str
    value: float

    @classmethod
    def parse(cls, text: str, run: str | None = None) -> Condition:
        """Without its RUN where that is known."""
        found = _FORM.fullmatch(text)
        if not found or (found[1] is None) is (run is None):
            form = "RUN:FACTOR>=VALUE" if run is None else "FACTOR>=VALUE"
            raise UsageError(f'--where "{text}": expected {form}, or <=, =, >, <')
        return cls(run or found[1], found[2], found[3], float(found[4]))

    def run_in(self, store: Store) -> RunRecord:
        run = store.find_run(self.run)
        asked = set(run.spec.get("rubrics", {}).values())
        contents = [rubric["content"] for key, rubric in store.rubrics().items() if key in asked or not asked]
        factors = sorted({factor["key"] for content in contents for factor in content["factors"]})
        factors += [name for one in run.spec.get("sets", {}).values() for name in one["score"]]
        if self.factor not in factors:
            hint = near_miss(self.factor, factors)
            raise UsageError(
                f'--where: the run "{run.name}" has no factor "{self.factor}"{hint} It has {", ".join(factors)}'
            )
        return run

    def holds(self, scores: Sequence[float]) -> bool:
        return not scores or bool(_SIGNS[self.sign](sum(scores) / len(scores), self.value))


class EditFilter:
    """Conditions over one store that must all hold."""

    def __init__(self, texts: Iterable[str], store: Store) -> None:
        self._store = store
        self._conditions = [(where, where.run_in(store)) for where in map(Condition.parse, texts)]

    def through(self, edits: list[Edit]) -> tuple[list[Edit], int]:
        """Those that nothing speaks against, and how many of the others an earlier run does not have at all."""
        absent = 0
        for where, run in self._conditions:
            same = self._same(run, edits)
            said = {item: s for item, s in scores_of(self._store, run, list(same)).items() if item in same}
            absent += sum(edit.id not in said for edit in edits)
            edits = [edit for edit in edits if edit.id in said and where.holds(said[edit.id].get(where.factor, ()))]
        return edits, absent

    def _same(self, run: RunRecord, edits: list[Edit]) -> set[str]:
        """The ids that are the same edits in the earlier run: one of another manifest may have called others so."""
        digests = DigestCache()
        paths = {os.path.abspath(s) for e in edits for s in (e.input, e.edited) if isinstance(s, Path)}
        digests.load(self._store.load_digests(sorted(paths)))
        earlier = {item.item: item for item in self._store.items(run, [edit.id for edit in edits])}
        return {edit.id for edit in edits if edit.id in earlier and _is(edit, earlier[edit.id], digests)}


def _is(edit: Edit, item: Item, digests: DigestCache) -> bool:
    """Whether words and pictures are the same. Where either side was never read, the place of a picture decides."""
    if edit.instruction != item.instruction:
        return False
    for role in ("input", "edited"):
        source, entry = getattr(edit, role), item.images.get(role)
        if source is None or entry is None:
            if source is not entry and item.images:  # of a run that was made without pictures nothing is known
                return False
        elif (digest := _digest(source, digests)) and entry["digest"]:
            if digest != entry["digest"]:
                return False
        elif entry["source"] != place_of(source):
            return False
    return True


def _digest(source: ImageSource, digests: DigestCache) -> str | None:
    with suppress(ImageError):
        return None if is_url(source) else digests.of(source)
    return None


def scores_of(store: Store, run: RunRecord, items: Sequence[str]) -> dict[str, dict[str, list[float]]]:
    """By edit and factor, from all repeats and judges; of an edit that the run does not have, nothing."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in store.judgements(run, fields=("item", "scores"), item=items):
        said = found.setdefault(row["item"], {})
        for factor, score in (row["scores"] or {}).items():
            said.setdefault(factor, []).append(score)
    if run.spec.get("sets"):
        from editjudge.store.set_scores import run_set_scores  # numpy, which only formulas need here

        for item, judges in (run_set_scores(store, run, items) or {}).items():
            for name, value in ((name, value) for scores in judges.values() for name, value in scores.items()):
                if value is not None:
                    found.setdefault(item, {}).setdefault(name, []).append(value)
    return found


class Selected:
    """The edits that a run is about; each judge goes through them anew."""

    def __init__(self, edits: Callable[[], Iterator[Edit]], sieve: EditFilter | None) -> None:
        self._edits, self._sieve = edits, sieve
        self.absent = 0
        """Edits left out since an earlier run does not have them, in the pass that has come furthest."""

    def __call__(self) -> Iterator[Edit]:
        return self._sifted(self._sieve) if self._sieve else self._edits()

    def _sifted(self, sieve: EditFilter) -> Iterator[Edit]:
        edits, absent = self._edits(), 0
        while some := list(itertools.islice(edits, BATCH)):
            kept, unknown = sieve.through(some)
            absent += unknown
            self.absent = max(self.absent, absent)
            yield from kept
