"""A run's edits page by page: filtered, sorted and counted in milliseconds, however many there are.

A filter or a sort needs one column of the run: a value for each edit, read by one query in the background and
kept. Pages without either are read by position at once.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode

import numpy as np

from editjudge.edit import Content
from editjudge.judgement import DONE, STATUSES
from editjudge.run.contradicting import held_against_evidence
from editjudge.run.sums import OVERALL
from editjudge.store import browse
from editjudge.store.annotations import Annotation, annotations_of, tag_rows, tags_of
from editjudge.store.browse import EditSummary, FactorColumn
from editjudge.store.records import PENDING, Item, RunRecord
from editjudge.store.store import Store
from editjudge.values import compare
from editjudge.web.background import FRESH, BackgroundCache, NotReady
from editjudge.web.fields import whole_number

Array = np.ndarray[Any, Any]
T = TypeVar("T")

ALL_STATUSES = (*STATUSES, PENDING)
DISPUTED = 1 / 3
"""Of a scale's range between the lowest and the highest score of one factor: two points on 1 to 7."""
PAGE = 50
PEOPLE = "people:"
"""Opens the id of a column of people's ratings."""
_COLUMNS = 64
"""Columns held at a time; of a million edits, one takes 1 to 4 MB."""
_ORDERS = 8
"""Sorted results held at a time, so that turning a page does not sort again."""
PATIENCE = 0.1
"""Seconds that a page waits for a column before it shows what there is."""
_SMALL, _LONGER = 10_000, 3.0
"""A run of no more edits is waited for so long: its columns take a tenth of that on a machine that is not busy."""
_EXPORT = 300.0
"""Seconds that an export waits for each column."""


@dataclass(frozen=True)
class Query:
    """The filters, order and page of a run's table, as its address says them."""

    model: str = ""
    edit_type: str = ""
    judge: str = ""
    factor: str = ""
    least: str = ""
    most: str = ""
    status: str = ""
    violation: str = ""
    tag: str = ""
    contradicted: str = ""
    disputed: str = ""
    q: str = ""
    sort: str = ""
    """A column's id, `model`, `edit_type`, `spread`, `position`; a minus before it begins with the highest."""
    look: str = ""
    """`grid`: large pictures in the place of rows."""
    page: str = ""

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> Query:
        return cls(**{f.name: parameters[f.name][:300] for f in fields(cls) if f.name in parameters})

    @classmethod
    def parse(cls, address: str) -> Query:
        """Out of the query part of an address, with or without its question mark."""
        return cls.of(dict(parse_qsl(address.removeprefix("?"), max_num_fields=50, errors="replace")))

    def address(self, **changes: object) -> str:
        """The query part of the address, with its question mark; empty where nothing is asked."""
        values = {f.name: getattr(self, f.name) for f in fields(self)} | changes
        given = {name: str(value) for name, value in values.items() if value not in ("", None)}
        return "?" + urlencode(given, errors="surrogatepass") if given else ""

    def selection(self) -> dict[str, str]:
        """The filters alone, by name, without order, page and look."""
        apart = ("page", "sort", "look")
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in apart and getattr(self, f.name)}

    @property
    def number(self) -> int:
        return max(1, whole_number(self.page) or 1)

    @property
    def plain(self) -> bool:
        """Whether every edit is wanted, in the order of the manifest."""
        return not (self.sort or self.selection().keys() - {"judge"})


@dataclass(frozen=True)
class ListedEdit:
    """An edit in a table."""

    item: Item
    scores: list[float]
    """The mean of each column; NaN where there is no score."""
    overall: float
    people: list[float]
    """The mean of people's ratings by column."""
    statuses: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    contradicted: bool = False
    spread: float = 0.0
    annotation: Annotation = field(default_factory=Annotation)

    @property
    def scored_overall(self) -> bool:
        return not math.isnan(self.overall)

    @property
    def abstained(self) -> str:
        """Which factors have no score beside others that have one, in words."""
        unscored = sum(map(math.isnan, self.scores))
        if "ok" not in self.statuses or not (unscored or "abstained" in self.statuses):
            return ""
        if unscored and set(self.statuses) <= set(DONE):  # else some have no score because something failed
            return f"{unscored} factor{'' if unscored == 1 else 's'} abstained"
        return "abstained in part" if "abstained" in self.statuses else ""


@dataclass(frozen=True)
class Labels:
    """The editing models and edit types of a run, in alphabetical order, and the number of each edit's in them."""

    models: list[str]
    model: Array
    edit_types: list[str]
    edit_type: Array


@dataclass(frozen=True)
class Choices:
    """What the filters of a table offer."""

    models: list[str]
    edit_types: list[str]
    violations: list[str]
    tags: list[str]


@dataclass(frozen=True)
class Columns:
    """What a table shows of each edit."""

    factors: list[FactorColumn]
    overall: FactorColumn | None
    """The mean of `parts`, where all of them have a score."""
    parts: list[FactorColumn]
    people: list[FactorColumn]

    def find(self, name: str) -> FactorColumn | None:
        every = (*self.factors, *self.people, *([self.overall] if self.overall else ()))
        return next((column for column in every if column.id == name), None)


@dataclass(frozen=True)
class Page:
    rows: list[ListedEdit]
    columns: Columns
    total: int
    """Edits that the query wants."""
    listing: Choices | None
    """None until they are read."""
    ready: bool
    """Whether the columns that the query needs are read; until then no edit is shown."""


@dataclass(frozen=True)
class Neighbours:
    before: str | None = None
    after: str | None = None
    disagreement: str | None = None
    place: int | None = None
    total: int = 0


class Browser:
    """Pages of the runs of one store; columns are read in the background, one at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache = BackgroundCache(_COLUMNS)
        self._orders: OrderedDict[tuple[object, ...], tuple[Array, float]] = OrderedDict()

    def page(self, run: RunRecord, query: Query, size: int = PAGE) -> Page:
        total, first = browse.count_edits(self._store, run), size * (query.number - 1)
        patience, ready, edits = _patience(total), True, list[Item]()
        try:
            order = self.order(run, query, total, patience)
            total = len(order)
            edits = self.items(run, order[first : first + size])
        except NotReady:
            total, ready = 0, False
        columns = self.columns(run, patience)
        return Page(self._rows(run, query, edits, columns), columns, total, self._choices(run, query, patience), ready)

    def every(self, run: RunRecord, query: Query) -> tuple[Columns, Iterator[ListedEdit]]:
        """All edits of a query, however many, for an export."""
        columns = self.columns(run, _EXPORT)
        order = self.order(run, query, browse.count_edits(self._store, run), _EXPORT)
        some = (self.items(run, order[first : first + 500]) for first in range(0, len(order), 500))
        return columns, (row for edits in some for row in self._rows(run, query, edits, columns))

    def neighbours(self, run: RunRecord, query: Query, item: str) -> Neighbours:
        """What comes before and after an edit in the order that is looked at."""
        position, total = browse.position_of(self._store, run, item), browse.count_edits(self._store, run)
        try:
            order = self.order(run, query, total, PATIENCE)
        except NotReady:
            return Neighbours()
        here = np.flatnonzero(order == (-1 if position is None else position))
        if not len(here):
            return Neighbours(total=len(order))
        place = int(here[0])
        places = [place - 1, place + 1, self._disagreement(run, query.judge, order, place)]
        positions = [int(order[n]) if n is not None and 0 <= n < len(order) else None for n in places]
        edits = browse.items_at(self._store, run, {n for n in positions if n is not None})
        before, after, later = (edits[n][0].item if n in edits else None for n in positions)
        return Neighbours(before, after, later, place + 1, len(order))

    def siblings(self, run: RunRecord, item: Item) -> list[Item]:
        """The edits of the same input and instruction, this one too, in the order of the manifest; none where they are
        not known yet."""
        position, total = browse.position_of(self._store, run, item.item), browse.count_edits(self._store, run)
        try:
            keys = self.task_keys(run, _patience(total))
        except NotReady:
            return []
        if position is None or position >= len(keys):
            return []
        return self.items(run, np.flatnonzero(keys == keys[position])[:PAGE])

    def order(self, run: RunRecord, query: Query, total: int, patience: float = PATIENCE) -> Array:
        """The positions of the edits that are wanted, in order. Raises `NotReady` where a column has to be read."""
        if query.plain:
            return np.arange(total)
        key = (run.id, run.updated, total, query.address(page=None, look=None))
        order, made = self._orders.get(key, (None, 0.0))
        if order is not None and time.monotonic() < made + FRESH:
            return order
        masks = [fitted(mask, total, fill=False) for mask in self._filters(run, query, patience)]
        values = self._sort_values(run, query, patience)
        rows = np.flatnonzero(np.logical_and.reduce(masks)) if masks else np.arange(total)
        if values is not None:
            keys = fitted(values, total, fill=np.nan)[rows]
            # What has no score comes last both ways, and ties stay in the order of the manifest.
            rows = rows[np.argsort(-keys if query.sort.startswith("-") else keys, kind="stable")]
        elif query.sort == "-position":
            rows = rows[::-1]
        self._orders[key] = rows.astype(np.int32), time.monotonic()
        while len(self._orders) > _ORDERS:
            self._orders.popitem(last=False)
        return rows

    def items(self, run: RunRecord, positions: Array) -> list[Item]:
        edits = browse.items_at(self._store, run, [int(n) for n in positions])
        return [item for n in positions for item in edits.get(int(n), ())]

    def _rows(self, run: RunRecord, query: Query, edits: Sequence[Item], columns: Columns) -> list[ListedEdit]:
        names = [item.item for item in edits]
        summaries = browse.summaries(self._store, run, query.judge, names, columns.factors)
        contradicted = {verdict.item for verdict, held in held_against_evidence(self._store, run, names) if held}
        annotated = annotations_of(self._store, run, names)
        return [
            _listed(item, summaries[item.item], columns, item.item in contradicted, annotated.get(item.item))
            for item in edits
        ]

    # --- columns --------------------------------------------------------------------------------------------------

    def columns(self, run: RunRecord, patience: float = PATIENCE) -> Columns:
        factors = browse.columns_of(self._store, run)
        parts = browse.overall_of(self._store, run, factors)
        overall = replace(parts[0], id=OVERALL, rubric="", factor=OVERALL) if parts else None
        try:
            rated = self._read(run, ("people",), partial(browse.people_factors, self._store, run), patience)
        except NotReady:
            rated = []
        ends = {column.factor: (column.lowest, column.highest) for column in factors}
        people = [FactorColumn(PEOPLE + name, "people", name, *ends.get(name, (-math.inf, math.inf))) for name in rated]
        return Columns(factors, overall, parts, people)

    def labels(self, run: RunRecord, patience: float = PATIENCE) -> Labels:
        def read() -> Labels:
            rows = list(browse.label_rows(self._store, run))
            at = np.array([row[0] for row in rows], np.int64)
            models, kinds = ([row[n] or "" for row in rows] for n in (1, 2))
            return Labels(*_numbered(at, models), *_numbered(at, kinds))

        return self._read(run, ("labels",), read, patience)

    def task_keys(self, run: RunRecord, patience: float = PATIENCE) -> Array:
        """64 bits of what each edit had to do: input, instruction, ground truth and mask."""

        def read() -> Array:
            keys = np.zeros(browse.count_edits(self._store, run), np.int64)
            for position, item in browse.item_rows(self._store, run):
                if position < len(keys):  # the run may go on
                    text = Content.of(item).key("task").encode("utf-8", "surrogatepass")
                    digest = hashlib.blake2b(text, digest_size=8).digest()
                    keys[position] = int.from_bytes(digest, "big", signed=True)
            return keys

        return self._read(run, ("tasks",), read, patience)

    def means(self, run: RunRecord, judge: str, column: FactorColumn, patience: float = PATIENCE) -> Array:
        """The mean score of each edit; NaN where there is none."""
        if column.id == OVERALL:
            parts = [self.means(run, judge, part, patience) for part in self.columns(run, patience).parts]
            total = max(map(len, parts))
            overall: Array = np.mean([fitted(part, total, fill=np.nan) for part in parts], axis=0)
            return overall
        if column.id.startswith(PEOPLE):
            rows = partial(browse.people_rows, self._store, run, column.factor)
            judge = ""
        else:
            rows = partial(browse.score_rows, self._store, run, judge, column)

        def read() -> Array:
            at, values = _arrays(rows())
            count = np.bincount(at)
            with np.errstate(invalid="ignore"):
                means: Array = (np.bincount(at, values) / count).astype(np.float32)
            return means

        return self._read(run, (judge, "mean", column.id), read, patience)

    def spread(self, run: RunRecord, judge: str, patience: float) -> Array:
        """The widest disagreement of any factor among judges, repeats and people, as a share of its scale."""

        def read() -> Array:
            spread = np.zeros(browse.count_edits(self._store, run), np.float32)
            for column in browse.columns_of(self._store, run):
                at, widths = _arrays(browse.width_rows(self._store, run, judge, column))
                known = at < len(spread)  # the run may go on
                np.maximum.at(spread, at[known], (widths[known] / column.width).astype(np.float32))
            return spread

        return self._read(run, (judge, "spread"), read, patience)

    def _mask(
        self, run: RunRecord, key: tuple[str, ...], rows: Callable[[], Iterable[tuple[Any, ...]]], patience: float
    ) -> Array:
        def read() -> Array:
            at = np.fromiter((row[0] for row in rows()), np.int64)
            mask = np.zeros(int(at.max(initial=-1)) + 1, np.bool_)
            mask[at] = True
            return mask

        return self._read(run, key, read, patience)

    def _contradicted(self, run: RunRecord, patience: float) -> Array:
        held = partial(held_against_evidence, self._store, run)
        return self._mask(
            run, ("contradicted",), lambda: ((verdict.position,) for verdict, against in held() if against), patience
        )

    def _filters(self, run: RunRecord, query: Query, patience: float) -> list[Array]:
        """A mark for each edit, for each condition of the query."""
        store, judge, masks = self._store, query.judge, list[Array]()
        if query.model or query.edit_type:
            labels = self.labels(run, patience)
            pairs = [(labels.model, labels.models, query.model), (labels.edit_type, labels.edit_types, query.edit_type)]
            masks += [numbers == (names.index(name) if name in names else -2) for numbers, names, name in pairs if name]
        statuses = [s for s in STATUSES if s not in DONE] if query.status == "failed" else [query.status]
        rows = {
            (judge, "status", query.status): partial(browse.status_rows, store, run, judge, statuses),
            (judge, "violation", query.violation): partial(browse.violation_rows, store, run, judge, query.violation),
            ("", "q", query.q): partial(browse.search_rows, store, run, query.q),
            ("", "tag", query.tag): partial(tag_rows, store, run, query.tag),
        }
        masks += [self._mask(run, key, read, patience) for key, read in rows.items() if key[-1]]
        if query.contradicted:
            masks.append(self._contradicted(run, patience))
        if query.disputed:
            masks.append(self.spread(run, judge, patience) >= DISPUTED)
        if query.factor or query.least or query.most:
            masks.append(self._scored(run, query, patience))
        return masks

    def _scored(self, run: RunRecord, query: Query, patience: float) -> Array:
        """Edits whose score of one factor, or of any, is in a range."""
        low, high = _float(query.least, -np.inf), _float(query.most, np.inf)
        columns = self.columns(run, patience)
        named = columns.find(query.factor)
        chosen = columns.factors if not query.factor else [named] if named else []
        means = [self.means(run, query.judge, column, patience) for column in chosen]
        total = max(map(len, means), default=0)
        fits = [fitted(compare(mean, ">=", low) & compare(mean, "<=", high), total, fill=False) for mean in means]
        mask: Array = np.logical_or.reduce(fits) if fits else np.zeros(0, np.bool_)
        return mask

    def _sort_values(self, run: RunRecord, query: Query, patience: float) -> Array | None:
        name = query.sort.removeprefix("-")
        if name in ("model", "edit_type"):
            labels = self.labels(run, patience)
            return (labels.model if name == "model" else labels.edit_type).astype(np.float32)
        if name == "spread":
            return self.spread(run, query.judge, patience)
        column = self.columns(run, patience).find(name)
        return self.means(run, query.judge, column, patience) if column else None

    def _disagreement(self, run: RunRecord, judge: str, order: Array, place: int) -> int | None:
        """The next place in an order where judges, repeats or people disagree, or evidence contradicts."""
        try:
            spread, contradicted = self.spread(run, judge, PATIENCE), self._contradicted(run, PATIENCE)
        except NotReady:
            return None
        total = max(len(spread), len(contradicted), int(order.max(initial=-1)) + 1)
        disputed = fitted(spread >= DISPUTED, total, fill=False) | fitted(contradicted, total, fill=False)
        later = np.flatnonzero(disputed[order[place + 1 :]])
        return place + 1 + int(later[0]) if len(later) else None

    def _choices(self, run: RunRecord, query: Query, patience: float) -> Choices | None:
        codes = partial(browse.violation_codes, self._store, run, query.judge)
        try:
            labels = self.labels(run, patience)
            return Choices(
                labels.models,
                labels.edit_types,
                self._read(run, (query.judge, "codes"), codes, patience),
                self._read(run, ("tags",), partial(tags_of, self._store, run), patience),
            )
        except NotReady:
            return None

    def _read(self, run: RunRecord, key: tuple[str, ...], read: Callable[[], T], patience: float) -> T:
        return self._cache.get((run.id, *key), (run,), read, patience)


def _patience(total: int) -> float:
    return _LONGER if total <= _SMALL else PATIENCE


def _listed(
    item: Item, summary: EditSummary, columns: Columns, contradicted: bool, annotation: Annotation | None
) -> ListedEdit:
    means = {column.id: _mean(summary.scores.get(column.id)) for column in columns.factors}
    return ListedEdit(
        item,
        list(means.values()),
        _mean([means[part.id] for part in columns.parts]),
        [_mean(summary.people.get(column.factor)) for column in columns.people],
        [status for status in ALL_STATUSES if status in summary.statuses],
        [*summary.violations],
        contradicted,
        summary.spread(columns.factors),
        annotation or Annotation(),
    )


def _mean(values: Sequence[float] | None) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _arrays(rows: Iterable[tuple[Any, ...]]) -> tuple[Array, Array]:
    pairs = np.fromiter(rows, np.dtype([("at", np.int64), ("value", np.float64)]))
    return pairs["at"], pairs["value"]


def _numbered(at: Array, names: list[str]) -> tuple[list[str], Array]:
    """The names in alphabetical order, and by position the number of each, so that sorting by it is sorting by name."""
    ordered = sorted(set(names))
    numbers = np.full(int(at.max(initial=-1)) + 1, -1, np.int32)
    numbers[at] = list(map({name: n for n, name in enumerate(ordered)}.__getitem__, names))
    return ordered, numbers


def fitted(values: Array, total: int, *, fill: Any) -> Array:
    """As long as the run is now: an edit that came since has no value yet."""
    if len(values) >= total:
        return values[:total] if len(values) > total else values
    return np.concatenate([values, np.full(total - len(values), fill, values.dtype)])


def _float(text: str, default: float) -> float:
    with suppress(ValueError):
        return float(text)
    return default
