"""Which edits a second run is about: those that earlier ones did not rule out."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from editjudge.edit import Edit, ImageSource
from editjudge.errors import ImageError, UsageError, near_miss
from editjudge.media.cache import DigestCache
from editjudge.media.image import is_url
from editjudge.run.feed import place_of
from editjudge.run.plan import BATCH
from editjudge.run.sums import run_sums
from editjudge.store.records import Item, RunRecord
from editjudge.values import compare

if TYPE_CHECKING:
    from editjudge.store.store import Store

_SIGNS = (">=", "<=", "==", "=", ">", "<")
_FORM = re.compile(rf"(?:(.+):)?\s*([^:<>=]+?)\s*({'|'.join(_SIGNS)})\s*(-?\d+(?:\.\d+)?)\s*")


@dataclass(frozen=True)
class Condition:
    """`RUN:NAME>=VALUE`: a factor, the mean of a rubric's factors by the rubric's name, `overall`, or a set score.

    The figure is the mean over repeats and judges. A mean of factors is taken of each repeat of each judge that scored
    all of them: an edit with an unscored factor has none. What an edit without the figure means is for the caller: a
    later run judges it, since nothing speaks against it; an export leaves it out, since nobody said that it passes.
    """

    run: str
    factor: str
    sign: str
    value: float

    @classmethod
    def parse(cls, text: str, run: str | None = None) -> Condition:
        """Without its RUN where that is known."""
        match = _FORM.fullmatch(text)
        if not match or (match[1] is None) is (run is None):
            form = "RUN:NAME>=VALUE" if run is None else "NAME>=VALUE"
            raise UsageError(f'--where "{text}": expected {form}, or <=, =, >, <')
        return cls(run or match[1], match[2], match[3], float(match[4]))

    def run_in(self, store: Store) -> RunRecord:
        """The run, where it has a figure of this name."""
        run = store.find_run(self.run)
        hashes = set(run.spec.get("rubrics", {}).values())
        contents = [rubric["content"] for key, rubric in store.rubrics().items() if key in hashes or not hashes]
        factors = sorted({factor["key"] for content in contents for factor in content["factors"]})
        set_scores = [name for one in run.spec.get("sets", {}).values() for name in one["score"]]
        sums = run_sums(store, run)
        names = [*factors, *sums, *set_scores]
        if self.factor not in names:
            lists = [f"factors {', '.join(factors)}"]
            lists += [f"means of factors {', '.join(sums)}"] if sums else []
            lists += [f"set scores {', '.join(set_scores)}"] if set_scores else []
            hint = near_miss(self.factor, names)
            raise UsageError(f'--where: the run "{run.name}" has no "{self.factor}"{hint} It has {"; ".join(lists)}')
        return run

    def holds(self, scores: Sequence[float]) -> bool:
        return not scores or bool(compare(fmean(scores), self.sign, self.value))


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
            scores = {item: s for item, s in scores_of(self._store, run, list(same)).items() if item in same}
            absent += sum(edit.id not in scores for edit in edits)
            edits = [edit for edit in edits if edit.id in scores and where.holds(scores[edit.id].get(where.factor, ()))]
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
    """By edit and factor, mean of factors or set score, from all repeats and judges; of an edit that the run does not
    have, nothing."""
    scores: dict[str, dict[str, list[float]]] = {}
    verdicts: dict[tuple[str, str, int], dict[str, list[float]]] = {}
    for row in store.judgements(run, fields=("item", "scores", "judge", "repeat"), item=items):
        mine = scores.setdefault(row["item"], {})
        verdict = verdicts.setdefault((row["item"], row["judge"], row["repeat"]), {})
        for factor, score in (row["scores"] or {}).items():
            mine.setdefault(factor, []).append(score)
            verdict.setdefault(factor, []).append(score)
    sums = run_sums(store, run)
    for (item, _, _), verdict in verdicts.items():
        for name, factors in sums.items():
            if all(factor in verdict for factor in factors):
                mean = fmean(fmean(verdict[factor]) for factor in factors)
                scores[item].setdefault(name, []).append(mean)
    if run.spec.get("sets"):
        from editjudge.store.set_scores import run_set_scores  # numpy, which only formulas need here

        for item, judges in (run_set_scores(store, run, items) or {}).items():
            for name, value in ((name, value) for values in judges.values() for name, value in values.items()):
                if value is not None:
                    scores.setdefault(item, {}).setdefault(name, []).append(value)
    return scores


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
            passed, unknown = sieve.through(some)
            absent += unknown
            self.absent = max(self.absent, absent)
            yield from passed
