"""Filters of edits by the scores of earlier runs."""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from editjudge.edit import Edit, ImageSource
from editjudge.errors import ImageError, RubricError, UsageError, near_miss
from editjudge.media.cache import DigestCache
from editjudge.media.source import is_url
from editjudge.rubrics.evaluation import value_for_edit
from editjudge.rubrics.expression import Member, Term, names_in, parse, reduction
from editjudge.rubrics.scale import Scale
from editjudge.running.plan import BATCH, place_of
from editjudge.running.sums import run_sums
from editjudge.store.records import Item, RunRecord

if TYPE_CHECKING:
    from editjudge.store.store import Store

_NAMED = re.compile(r"\s*([^:<>=]+?)\s*(>=|<=|==|=|>|<)\s*(-?\d+(?:\.\d+)?)\s*")
_ANY_NUMBER = Scale(range=(None, None))


@dataclass(frozen=True)
class Condition:
    """`RUN:NAME>=VALUE`, or an expression such as `RUN:min(alignment, completeness) >= 4`.

    A name is a factor, a rubric (the mean of its factors), `overall`, or a set score. The figure is the mean over
    repeats and judges. A mean of factors is taken of each repeat of each judge that scored all of them: an edit with an
    unscored factor has none. What an edit without the figure means is for the caller: a later run judges it, since
    nothing speaks against it; an export leaves it out, since nobody said that it passes.
    """

    run: str
    names: tuple[str, ...]
    expression: str

    @classmethod
    def parse(cls, text: str, run: str | None = None) -> Condition:
        """Read a condition; if `run` is known, the text does not name it."""
        head, colon, condition = text.rpartition(":")
        if not _NAMED.fullmatch(condition):
            head, colon, condition = text.partition(":")
        if run is not None:
            condition = text
        name = head if run is None else run
        try:
            if run is None and not (colon and head):
                raise RubricError("it names no run")
            if simple := _NAMED.fullmatch(condition):
                factor, sign, value = simple.groups()
                sign = "==" if sign == "=" else sign
                return cls(name, (factor,), f"figure[{factor!r}] {sign} {value}")
            return cls(name, names_in(condition, "condition"), condition)
        except RubricError as error:
            form = "RUN:NAME>=VALUE" if run is None else "NAME>=VALUE"
            raise UsageError(
                f'--where "{text}": expected {form}, or <=, =, >, <, or an expression; {error}'
            ) from None

    @functools.cached_property
    def _term(self) -> Term:
        figures = Member("figure", dict.fromkeys(self.names, _ANY_NUMBER))
        return parse(self.expression, [figures], where="--where")

    def run_in(self, store: Store) -> RunRecord:
        """Return the run, which has figures of these names."""
        run = store.find_run(self.run)
        factors = sorted({*chain(*store.questions_of(run).factors.values())})
        set_scores = [*chain(*(s["score"] for s in run.spec.get("sets", {}).values()))]
        means = list(run_sums(store, run))
        names = [*factors, *means, *set_scores]
        for name in self.names:
            if name not in names:
                lists = {"factors": factors, "means of factors": means}
                lists["set scores"] = set_scores
                known = [f"{kind} {', '.join(v)}" for kind, v in lists.items() if v]
                hint = near_miss(name, names)
                raise UsageError(
                    f'--where: the run "{run.name}" has no "{name}"{hint} It has {"; ".join(known)}'
                )
        _ = self._term
        return run

    def holds(self, scores: Mapping[str, Sequence[float]]) -> bool | None:
        """Whether it holds for an edit with these scores; None if one that counts is missing."""
        figures = {
            ("figure", name): fmean(scores[name])
            for name in self.names
            if scores.get(name)
        }
        value = value_for_edit(self._term, figures)
        return None if value is None else bool(value)


class EditFilter:
    """Conditions over one store that must all hold."""

    def __init__(self, texts: Iterable[str], store: Store) -> None:
        self._store = store
        self._conditions = [
            (where, where.run_in(store)) for where in map(Condition.parse, texts)
        ]

    def through(self, edits: list[Edit]) -> tuple[list[Edit], int]:
        """Return the edits that nothing speaks against, and how many of the others an earlier run does not have at all."""
        absent = 0
        for where, run in self._conditions:
            same = self._same(run, edits)
            scores = {
                item: s
                for item, s in scores_of(self._store, run, list(same)).items()
                if item in same
            }
            absent += sum(edit.id not in scores for edit in edits)
            edits = [
                edit
                for edit in edits
                if edit.id in scores and where.holds(scores[edit.id]) is not False
            ]
        return edits, absent

    def _same(self, run: RunRecord, edits: list[Edit]) -> set[str]:
        """Return the ids that are the same edits in the earlier run: another manifest may use them for other edits."""
        digests = DigestCache()
        paths = {
            os.path.abspath(s)
            for e in edits
            for s in (e.input, e.edited)
            if isinstance(s, Path)
        }
        digests.load(self._store.load_digests(sorted(paths)))
        earlier = {
            item.item: item
            for item in self._store.items(run, [edit.id for edit in edits])
        }
        return {
            edit.id
            for edit in edits
            if edit.id in earlier and _is(edit, earlier[edit.id], digests)
        }


def _is(edit: Edit, item: Item, digests: DigestCache) -> bool:
    """Whether instruction and images are the same. If an image was never read by one side, its path decides."""
    if edit.instruction != item.instruction:
        return False
    for role in ("input", "edited"):
        source = getattr(edit, role)
        entry = item.images.get(role)
        if source is None or entry is None:
            # of a run that was made without pictures nothing is known
            if source is not entry and item.images:
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


def scores_of(
    store: Store, run: RunRecord, items: Sequence[str]
) -> dict[str, dict[str, list[float]]]:
    """Return the scores of all repeats and judges by edit and name: a factor, a mean of factors or a set score. An edit
    that the run does not have is absent."""
    scores: dict[str, dict[str, list[float]]] = {}
    verdicts: dict[tuple[str, str, int], dict[str, list[float]]] = {}
    for row in store.judgements(
        run, fields=("item", "scores", "judge", "repeat"), item=items
    ):
        of_item = scores.setdefault(row["item"], {})
        verdict = verdicts.setdefault((row["item"], row["judge"], row["repeat"]), {})
        for factor, score in (row["scores"] or {}).items():
            of_item.setdefault(factor, []).append(score)
            verdict.setdefault(factor, []).append(score)
    means = {
        name: reduction("mean", [("", factor) for factor in factors])
        for name, factors in run_sums(store, run).items()
    }
    for (item, _, _), verdict in verdicts.items():
        answers = {("", factor): fmean(values) for factor, values in verdict.items()}
        for name, term in means.items():
            if (mean := value_for_edit(term, answers)) is not None:
                scores[item].setdefault(name, []).append(mean)
    if run.spec.get("sets"):
        # NumPy, which only scores of sets need here.
        from editjudge.store.set_scores import run_set_scores

        for item, judges in (run_set_scores(store, run, items) or {}).items():
            for values in judges.values():
                for name, value in values.items():
                    if value is not None:
                        scores.setdefault(item, {}).setdefault(name, []).append(value)
    return scores


class Selected:
    """The edits of a run; each judge iterates over them anew."""

    def __init__(
        self, edits: Callable[[], Iterator[Edit]], sieve: EditFilter | None
    ) -> None:
        self._edits = edits
        self._sieve = sieve
        self.absent = 0
        """Edits left out since an earlier run does not have them, in the pass that has come furthest."""

    def __call__(self) -> Iterator[Edit]:
        return self._sifted(self._sieve) if self._sieve else self._edits()

    def _sifted(self, sieve: EditFilter) -> Iterator[Edit]:
        edits = self._edits()
        absent = 0
        while some := list(itertools.islice(edits, BATCH)):
            passed, unknown = sieve.through(some)
            absent += unknown
            self.absent = max(self.absent, absent)
            yield from passed
