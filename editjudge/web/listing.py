"""A run's edits page by page: filtered, sorted and counted in milliseconds, however many there are.

A filter or a sort needs one column of the run: a value for each edit, read by one query in the background and
kept. Pages without either are read by position at once.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import urlencode

import numpy as np

from editjudge.judgement import DONE, STATUSES
from editjudge.run.contradicting import held_against_evidence
from editjudge.store import browse
from editjudge.store.browse import EditSummary, FactorColumn
from editjudge.store.store import PENDING, Item, RunRecord, Store
from editjudge.web.fields import whole_number

Array = np.ndarray[Any, Any]

ALL_STATUSES = (*STATUSES, PENDING)
DISPUTED = 1 / 3
"""Of a scale's range between the lowest and the highest score of one factor: two points on 1 to 7."""
PAGE = 50
_KEPT = 64
"""Columns held at a time; of a million edits, one takes 1 to 4 MB."""
_ORDERS = 8
"""Sorted results held at a time, so that turning a page does not sort again."""
_FRESH = 5.0
"""Seconds after which what was read is read again: people may have rated meanwhile."""
_PATIENCE = 0.1
"""Seconds that a page waits for a column before it shows what there is."""
_SMALL, _LONGER = 10_000, 3.0
"""A run of no more edits is waited for so long: its columns take a tenth of that on a machine that is not busy."""


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
    contradicted: str = ""
    disputed: str = ""
    q: str = ""
    sort: str = ""
    """A column's id, `model`, `edit_type`, `spread`, `position`; a minus before it begins with the highest."""
    page: str = ""

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> Query:
        return cls(**{f.name: parameters[f.name][:300] for f in fields(cls) if f.name in parameters})

    def address(self, **changes: object) -> str:
        """The query part of the address, with its question mark; empty where nothing is asked."""
        values = {f.name: getattr(self, f.name) for f in fields(self)} | changes
        given = {name: str(value) for name, value in values.items() if value not in ("", None)}
        return "?" + urlencode(given, errors="surrogatepass") if given else ""

    @property
    def number(self) -> int:
        return max(1, whole_number(self.page) or 1)

    @property
    def plain(self) -> bool:
        """Whether every edit is wanted, in the order of the manifest."""
        return not any(getattr(self, f.name) for f in fields(self) if f.name not in ("page", "judge"))


@dataclass(frozen=True)
class ListedEdit:
    """An edit in a table."""

    item: Item
    scores: list[float]
    """The mean of each column; NaN where there is no score."""
    statuses: list[str]
    violations: list[str]
    contradicted: bool
    spread: float

    @classmethod
    def of(cls, item: Item, summary: EditSummary, columns: list[FactorColumn], contradicted: bool) -> ListedEdit:
        values = [summary.scores.get(column.id) for column in columns]
        means = [math.fsum(scores) / len(scores) if scores else math.nan for scores in values]
        statuses = [status for status in ALL_STATUSES if status in summary.statuses]
        return cls(item, means, statuses, [*summary.violations], contradicted, summary.spread(columns))

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


@dataclass(frozen=True)
class Page:
    rows: list[ListedEdit]
    columns: list[FactorColumn]
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


class Unread(Exception):
    """A column that a page needs is not read yet."""


class Browser:
    """Pages of the runs of one store; columns are read in the background, one at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._columns: OrderedDict[tuple[object, ...], _Background] = OrderedDict()
        self._orders: OrderedDict[tuple[object, ...], tuple[Array, float]] = OrderedDict()

    def page(self, run: RunRecord, query: Query) -> Page:
        total, first = browse.count_edits(self._store, run), PAGE * (query.number - 1)
        patience = _LONGER if total <= _SMALL else _PATIENCE
        columns, ready, edits = browse.columns_of(self._store, run), True, list[Item]()
        try:
            order = self.order(run, query, total, patience)
            total = len(order)
            edits = self.items(run, order[first : first + PAGE])
        except Unread:
            total, ready = 0, False
        names = [item.item for item in edits]
        summaries = browse.summaries(self._store, run, query.judge, names, columns)
        contradicted = {verdict.item for verdict, held in held_against_evidence(self._store, run, names) if held}
        rows = [ListedEdit.of(i, summaries[i.item], columns, i.item in contradicted) for i in edits]
        return Page(rows, columns, total, self._choices(run, query.judge, patience), ready)

    def neighbours(self, run: RunRecord, query: Query, item: str) -> Neighbours:
        """What comes before and after an edit in the order that is looked at."""
        position, total = browse.position_of(self._store, run, item), browse.count_edits(self._store, run)
        try:
            order = self.order(run, query, total, _PATIENCE)
        except Unread:
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

    def order(self, run: RunRecord, query: Query, total: int, patience: float) -> Array:
        """The positions of the edits that are wanted, in order. Raises `Unread` where a column has to be read first."""
        if query.plain:
            return np.arange(total)
        key = (run.id, run.updated, total, query.address(page=None))
        with self._lock:
            order, made = self._orders.get(key, (None, 0.0))
        if order is not None and time.monotonic() < made + _FRESH:
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
        rows = rows.astype(np.int32)
        with self._lock:
            self._orders[key] = rows, time.monotonic()
            while len(self._orders) > _ORDERS:
                self._orders.popitem(last=False)
        return rows

    def items(self, run: RunRecord, positions: Array) -> list[Item]:
        edits = browse.items_at(self._store, run, [int(n) for n in positions])
        return [item for n in positions for item in edits.get(int(n), ())]

    # --- columns --------------------------------------------------------------------------------------------------

    def labels(self, run: RunRecord, patience: float) -> Labels:
        def read() -> Labels:
            rows = list(browse.label_rows(self._store, run))
            at = np.array([row[0] for row in rows], np.int64)
            models, kinds = ([row[n] or "" for row in rows] for n in (1, 2))
            return Labels(*_numbered(at, models), *_numbered(at, kinds))

        labels: Labels = self._read((run.id, "labels"), run, read, patience)
        return labels

    def means(self, run: RunRecord, judge: str, column: FactorColumn, patience: float) -> Array:
        """The mean score of each edit; NaN where there is none."""

        def read() -> Array:
            at, values = _arrays(browse.score_rows(self._store, run, judge, column))
            count = np.bincount(at)
            with np.errstate(invalid="ignore"):
                means: Array = (np.bincount(at, values) / count).astype(np.float32)
            return means

        means: Array = self._read((run.id, judge, "mean", column.id), run, read, patience)
        return means

    def spread(self, run: RunRecord, judge: str, patience: float) -> Array:
        """The widest disagreement of any factor among judges, repeats and people, as a share of its scale."""

        def read() -> Array:
            spread = np.zeros(browse.count_edits(self._store, run), np.float32)
            for column in browse.columns_of(self._store, run):
                at, widths = _arrays(browse.width_rows(self._store, run, judge, column))
                known = at < len(spread)  # the run may go on
                np.maximum.at(spread, at[known], (widths[known] / column.width).astype(np.float32))
            return spread

        spread: Array = self._read((run.id, judge, "spread"), run, read, patience)
        return spread

    def _mask(
        self, run: RunRecord, key: tuple[object, ...], rows: Callable[[], Iterable[tuple[Any, ...]]], patience: float
    ) -> Array:
        def read() -> Array:
            at = np.fromiter((row[0] for row in rows()), np.int64)
            mask = np.zeros(int(at.max(initial=-1)) + 1, np.bool_)
            mask[at] = True
            return mask

        mask: Array = self._read((run.id, *key), run, read, patience)
        return mask

    def _contradicted(self, run: RunRecord, patience: float) -> Array:
        def rows() -> Iterable[tuple[Any, ...]]:
            return ((verdict.position,) for verdict, held in held_against_evidence(self._store, run) if held)

        return self._mask(run, ("contradicted",), rows, patience)

    def _filters(self, run: RunRecord, query: Query, patience: float) -> list[Array]:
        """A mark for each edit, for each condition of the query."""
        store, judge, masks = self._store, query.judge, list[Array]()
        if query.model or query.edit_type:
            labels = self.labels(run, patience)
            if query.model:
                masks.append(labels.model == _index(labels.models, query.model))
            if query.edit_type:
                masks.append(labels.edit_type == _index(labels.edit_types, query.edit_type))
        if query.status:
            failed = [status for status in STATUSES if status not in DONE]
            statuses = failed if query.status == "failed" else [query.status]
            rows = lambda: browse.status_rows(store, run, judge, statuses)  # noqa: E731
            masks.append(self._mask(run, (judge, "status", query.status), rows, patience))
        if query.violation:
            violated = lambda: browse.violation_rows(store, run, judge, query.violation)  # noqa: E731
            masks.append(self._mask(run, (judge, "violation", query.violation), violated, patience))
        if query.q:
            matching = lambda: browse.search_rows(store, run, query.q)  # noqa: E731
            masks.append(self._mask(run, ("q", query.q), matching, patience))
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
        columns = [c for c in browse.columns_of(self._store, run) if query.factor in ("", c.id)]
        means = [self.means(run, query.judge, column, patience) for column in columns]
        total = max(map(len, means), default=0)
        fits = [fitted((mean >= low) & (mean <= high), total, fill=False) for mean in means]
        mask: Array = np.logical_or.reduce(fits) if fits else np.zeros(0, np.bool_)
        return mask

    def _sort_values(self, run: RunRecord, query: Query, patience: float) -> Array | None:
        name = query.sort.removeprefix("-")
        if name in ("model", "edit_type"):
            labels = self.labels(run, patience)
            return (labels.model if name == "model" else labels.edit_type).astype(np.float32)
        if name == "spread":
            return self.spread(run, query.judge, patience)
        columns = [column for column in browse.columns_of(self._store, run) if column.id == name]
        return self.means(run, query.judge, columns[0], patience) if columns else None

    def _disagreement(self, run: RunRecord, judge: str, order: Array, place: int) -> int | None:
        """The next place in an order where judges, repeats or people disagree, or evidence contradicts."""
        try:
            spread, contradicted = self.spread(run, judge, _PATIENCE), self._contradicted(run, _PATIENCE)
        except Unread:
            return None
        total = max(len(spread), len(contradicted), int(order.max(initial=-1)) + 1)
        disputed = fitted(spread >= DISPUTED, total, fill=False) | fitted(contradicted, total, fill=False)
        later = np.flatnonzero(disputed[order[place + 1 :]])
        return place + 1 + int(later[0]) if len(later) else None

    def _choices(self, run: RunRecord, judge: str, patience: float) -> Choices | None:
        try:
            labels = self.labels(run, patience)
            codes = lambda: browse.violation_codes(self._store, run, judge)  # noqa: E731
            return Choices(labels.models, labels.edit_types, self._read((run.id, judge, "codes"), run, codes, patience))
        except Unread:
            return None

    def _read(self, key: tuple[object, ...], run: RunRecord, read: Callable[[], Any], patience: float) -> Any:
        with self._lock:
            column = self._columns.get(key)
            if column is None or column.stale(run):
                column = self._columns[key] = _Background(read, run, column)
            self._columns.move_to_end(key)
            while len(self._columns) > _KEPT:
                self._columns.popitem(last=False)
        return column.wait(patience)


_TURN = threading.Lock()
"""Columns are read one after the other: two at once would only be slower."""


class _Background:
    """A value that is being read in a thread; until then, the value from before."""

    def __init__(self, read: Callable[[], Any], run: RunRecord, earlier: _Background | None) -> None:
        self._read, self._updated, self._begun = read, run.updated, time.monotonic()
        self._seconds = 0.0
        self._value: Any = earlier._value if earlier else None
        self._error: Exception | None = None
        self._done = threading.Event()
        threading.Thread(target=self._work, name="editjudge-listing", daemon=True).start()

    def _work(self) -> None:
        try:
            with _TURN:
                begun = time.monotonic()
                self._value = self._read()
                self._seconds = time.monotonic() - begun
        except Exception as error:  # raised in the thread of the request that waits
            self._error = error
        finally:
            self._done.set()

    def wait(self, seconds: float) -> Any:
        self._done.wait(seconds if self._value is None else 0)
        if self._error:
            raise self._error
        if self._value is None:
            raise Unread
        return self._value

    def stale(self, run: RunRecord) -> bool:
        """Whether the run may have gone on, or people rated. Reading again takes a twentieth of the time at most."""
        if not self._done.is_set():
            return False
        age = time.monotonic() - self._begun
        changed = run.updated != self._updated or self._error is not None
        return age > 20 * self._seconds and (changed or age > _FRESH)


def _arrays(rows: Iterable[tuple[Any, ...]]) -> tuple[Array, Array]:
    pairs = np.fromiter(rows, np.dtype([("at", np.int64), ("value", np.float64)]))
    return pairs["at"], pairs["value"]


def _numbered(at: Array, names: list[str]) -> tuple[list[str], Array]:
    """The names in alphabetical order, and by position the number of each, so that sorting by it is sorting by name."""
    ordered = sorted(set(names))
    place = {name: n for n, name in enumerate(ordered)}
    numbers = np.full(int(at.max(initial=-1)) + 1, -1, np.int32)
    numbers[at] = [place[name] for name in names]
    return ordered, numbers


def fitted(values: Array, total: int, *, fill: Any) -> Array:
    """As long as the run is now: an edit that came since has no value yet."""
    if len(values) >= total:
        return values[:total] if len(values) > total else values
    return np.concatenate([values, np.full(total - len(values), fill, values.dtype)])


def _index(names: list[str], name: str) -> int:
    return names.index(name) if name in names else -2


def _float(text: str, default: float) -> float:
    try:
        return float(text)
    except ValueError:
        return default
