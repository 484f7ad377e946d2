"""Filters that select edits by their scores in earlier runs."""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from editjudge.edit import Edit, ImageSource
from editjudge.errors import (
    ImageError,
    Option,
    RubricError,
    UsageError,
    did_you_mean,
)
from editjudge.media.cache import DigestCache
from editjudge.media.source import is_url
from editjudge.rubrics.evaluation import value_for_edit
from editjudge.rubrics.expression import (
    Member,
    Term,
    names_in,
    parse,
    reduction,
    stricter,
)
from editjudge.rubrics.scale import Scale
from editjudge.running.plan import BATCH, place_of
from editjudge.running.sums import run_sums
from editjudge.store.records import Item, RunRecord

if TYPE_CHECKING:
    from editjudge.store.store import Store

Scores = Mapping[str, Sequence[float]]
"""Scores of one edit from all repeats and judges, keyed by name."""

_COMPARISON = re.compile(r"\s*([^:<>=]+?)\s*(>=|<=|==|=|>|<)\s*(-?\d+(?:\.\d+)?)\s*")
"""Comparison of a name, which need not be an identifier, with a number."""
_ANY_NUMBER = Scale(range=(None, None))
_WHERE = Option("where")


@dataclass(frozen=True)
class Condition:
    """A condition such as `RUN:NAME>=VALUE`, or an expression such as `RUN:min(alignment, completeness) >= 4`.

    A name is a factor, a rubric (the mean of its factors), `overall`, or a set score. Its value is the mean over
    repeats and judges. A mean of factors is computed for each repeat of each judge that scored all of them, so an edit
    with an unscored factor has no such mean. The caller decides what to do with an edit without the value. A later run
    judges the edit, since nothing excludes it. An export leaves it out, since it did not pass.
    """

    run: str
    names: tuple[str, ...]
    expression: str
    stricter: float = 0.0
    """Number by which the comparisons are harder to meet than they are written."""
    option: Option = _WHERE
    """The option that the condition is the value of, for messages."""

    @classmethod
    def parse(
        cls, text: str, run: str | None = None, option: Option = _WHERE
    ) -> Condition:
        """Parse a condition. If `run` is given, the text contains no run name."""
        form = "NAME>=VALUE"
        condition = text
        try:
            if run is None:
                form = f"RUN:{form}"
                run, colon, condition = text.rpartition(":")
                if not _COMPARISON.fullmatch(condition):
                    run, colon, condition = text.partition(":")
                if not run or not colon:
                    raise RubricError("it does not name a run")
            if match := _COMPARISON.fullmatch(condition):
                name, sign, value = match.groups()
                sign = "==" if sign == "=" else sign
                expression = f"figure[{name!r}] {sign} {value}"
                return cls(run, (name,), expression, option=option)
            return cls(run, names_in(condition, "condition"), condition, option=option)
        except RubricError as error:
            raise UsageError(
                f'{option} "{text}": expected {form}, or <=, =, >, <, or an expression; {error}',
                code="bad_condition",
            ) from None

    @functools.cached_property
    def _term(self) -> Term:
        figures = Member("figure", dict.fromkeys(self.names, _ANY_NUMBER))
        return stricter(
            parse(self.expression, [figures], where=str(self.option)), self.stricter
        )

    @property
    def words(self) -> str:
        """The condition as text."""
        return str(self._term).replace("figure.", "")

    def run_in(self, store: Store) -> RunRecord:
        """Return the run to which the condition refers. Raise `UsageError` if that run does not have all the scores
        that the condition names.
        """
        run = store.find_run(self.run)
        sets = run.spec.get("sets", {}).values()
        factors = store.questions_of(run).factors.values()
        figures = {
            "factors": sorted({key for keys in factors for key in keys}),
            "means of factors": list(run_sums(store, run)),
            "set scores": [name for each in sets for name in each["score"]],
        }
        names = [name for listed in figures.values() for name in listed]
        for name in self.names:
            if name not in names:
                present = [f"{k} {', '.join(v)}" for k, v in figures.items() if v]
                raise UsageError(
                    f'{self.option}: the run "{run.name}" has no "{name}"{did_you_mean(name, names)} '
                    f"It has {'; '.join(present)}",
                    code="unknown_score",
                )
        _ = self._term  # raises if the expression cannot be read
        return run

    def holds(self, scores: Scores) -> bool | None:
        """Return whether the condition is true for an edit with these scores, or None if a score that it needs is
        missing.
        """
        figures = {
            ("figure", name): fmean(scores[name])
            for name in self.names
            if scores.get(name)
        }
        value = value_for_edit(self._term, figures)
        return None if value is None else bool(value)


class EditFilter:
    """Conditions on runs of one store. All of them must be true."""

    def __init__(self, texts: Iterable[str], store: Store) -> None:
        self._store = store
        self._conditions = [
            (condition, condition.run_in(store))
            for condition in map(Condition.parse, texts)
        ]

    def through(self, edits: list[Edit]) -> tuple[list[Edit], int]:
        """Return the edits that no condition excludes, and the number of edits left out because an earlier run does not
        have them.
        """
        absent = 0
        for condition, run in self._conditions:
            present = self._present(run, edits)
            scores = scores_of(self._store, run, [edit.id for edit in present])
            present = [edit for edit in present if edit.id in scores]
            absent += len(edits) - len(present)
            edits = [e for e in present if condition.holds(scores[e.id]) is not False]
        return edits, absent

    def _present(self, run: RunRecord, edits: list[Edit]) -> list[Edit]:
        """Return the edits that the earlier run also has. Ids are not enough, since another manifest may use the same
        ids for other edits.
        """
        digests = DigestCache()
        images = (image for edit in edits for image in (edit.input, edit.edited))
        paths = {os.path.abspath(image) for image in images if isinstance(image, Path)}
        digests.load(self._store.load_digests(sorted(paths)))
        stored = self._store.items(run, [edit.id for edit in edits])
        items = {item.item: item for item in stored}
        return [e for e in edits if e.id in items and _is(e, items[e.id], digests)]


def _is(edit: Edit, item: Item, digests: DigestCache) -> bool:
    """Whether an edit has the same instruction and images as a stored item. If an image was never read on one side, its
    path is compared instead.
    """
    if edit.instruction != item.instruction:
        return False
    for role, source in (("input", edit.input), ("edited", edit.edited)):
        entry = item.images.get(role)
        if source is None or entry is None:
            # A run that was made without images has nothing to compare.
            if item.images and (source is None) != (entry is None):
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
    """Return the scores of all repeats and judges, keyed by edit id and then by name. A name refers to a factor, a mean
    of factors or a set score. Edits that are not in the run are left out.
    """
    scores: dict[str, dict[str, list[float]]] = {}
    verdicts: dict[tuple[str, str, int], dict[str, list[float]]] = {}
    fields = ("item", "scores", "judge", "repeat")
    for row in store.judgements(run, fields=fields, item=items):
        of_item = scores.setdefault(row["item"], defaultdict(list))
        verdict = verdicts.setdefault(
            (row["item"], row["judge"], row["repeat"]), defaultdict(list)
        )
        for factor, score in (row["scores"] or {}).items():
            of_item[factor].append(score)
            verdict[factor].append(score)
    means = {
        name: reduction("mean", [("", factor) for factor in factors])
        for name, factors in run_sums(store, run).items()
    }
    for (item, _, _), verdict in verdicts.items():
        answers = {("", factor): fmean(values) for factor, values in verdict.items()}
        for name, term in means.items():
            if (mean := value_for_edit(term, answers)) is not None:
                scores[item][name].append(mean)
    if run.spec.get("sets"):
        # Imports NumPy, which only scores of sets need here.
        from editjudge.store.scores import run_set_scores

        for item, judges in (run_set_scores(store, run, items) or {}).items():
            of_item = scores.setdefault(item, defaultdict(list))
            for values in judges.values():
                for name, value in values.items():
                    if value is not None:
                        of_item[name].append(value)
    return scores


class Selected:
    """The edits that a run selects. Each judge iterates over them separately."""

    def __init__(
        self, edits: Callable[[], Iterator[Edit]], conditions: EditFilter | None
    ) -> None:
        self._edits = edits
        self._conditions = conditions
        self.absent = 0
        """Number of edits left out because an earlier run does not have them, as counted by the iteration that is
        furthest along.
        """

    def __call__(self) -> Iterator[Edit]:
        edits = self._edits()
        return self._filtered(edits, self._conditions) if self._conditions else edits

    def _filtered(
        self, edits: Iterator[Edit], conditions: EditFilter
    ) -> Iterator[Edit]:
        absent = 0
        while batch := list(itertools.islice(edits, BATCH)):
            passed, unknown = conditions.through(batch)
            absent += unknown
            self.absent = max(self.absent, absent)
            yield from passed
