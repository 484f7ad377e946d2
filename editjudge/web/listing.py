"""A run's edits as compact columns: filtered, sorted and counted in milliseconds, however many there are.

Some 60 bytes an edit; of a page as of a million, so that both are computed by the same lines.
"""

from __future__ import annotations

import functools
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any
from urllib.parse import urlencode

import numpy as np
import sqlalchemy as sa

from editjudge.judgement import STATUSES
from editjudge.rubrics.model import Scale
from editjudge.store.ratings import rubrics_alike
from editjudge.store.schema import contradictions, items, judgements, ratings, tasks, unescaped
from editjudge.store.store import PENDING, RunRecord, Store, _chunks
from editjudge.web.fields import whole_number

Array = np.ndarray[Any, Any]

ALL_STATUSES = (*STATUSES, PENDING)
DISPUTED = 1 / 3
"""Of a scale's range between the lowest and the highest score of one factor: two points on 1 to 7."""
_CHUNK = 20_000


@dataclass(frozen=True)
class Column:
    """A factor of a rubric."""

    id: str
    rubric: str
    factor: str
    lowest: float
    highest: float
    """Infinite where the scale is open at that end."""
    direction: str = "up"

    def level(self, score: float) -> int | None:
        """Seven steps from the worst to the best, for a colour; None where an end is open."""
        share = (score - self.lowest) / (self.highest - self.lowest)
        if not math.isfinite(self.highest - self.lowest):
            return None
        return round(6 * (share if self.direction == "up" else 1 - share))


@dataclass(frozen=True)
class Query:
    """What is to be seen of a run, as its address says it."""

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
    """A column's id, `model`, `edit_type`, `spread`; a minus before it begins with the highest."""
    page: str = ""

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> Query:
        return cls(**{f.name: parameters[f.name][:300] for f in fields(cls) if f.name in parameters})

    def address(self, **changes: object) -> str:
        """The query part that says this, with its question mark; nothing where nothing is asked."""
        values = {f.name: getattr(self, f.name) for f in fields(self)} | changes
        kept = {name: str(value) for name, value in values.items() if value not in ("", None)}
        return "?" + urlencode(kept, errors="surrogatepass") if kept else ""

    @property
    def number(self) -> int:
        return max(1, whole_number(self.page) or 1)

    @property
    def plain(self) -> bool:
        """Whether every edit is wanted, in the order of the manifest."""
        return not any(getattr(self, f.name) for f in fields(self) if f.name not in ("page", "judge"))


@dataclass(eq=False)
class Listing:
    """The columns; row numbers are positions, but for edits whose position another has too: they come at the end."""

    columns: list[Column]
    ids: dict[str, int]
    """Rows of the edits that have no position of their own, or of all where few were asked for."""
    there: Array
    models: list[str]
    model: Array
    edit_types: list[str]
    edit_type: Array
    mean: Array
    """Columns by rows; NaN where there is no score."""
    spread: Array
    """The widest disagreement of any factor among judges, repeats and people, as a share of its scale."""
    statuses: Array
    """A bit for each of ALL_STATUSES."""
    violations: list[str] = field(default_factory=list)
    violated: Array = field(default_factory=lambda: np.zeros(0, np.uint64))
    """A bit for each of `violations`, the last of which stands for all that follow."""
    contradicted: Array = field(default_factory=lambda: np.zeros(0, np.bool_))
    _orders: OrderedDict[Any, Array] = field(default_factory=OrderedDict)

    def order(self, query: Query, found: Array | None = None) -> Array:
        """The rows that are wanted, in the order in which they are; `found` has those that a search found."""
        key = (query.address(page=None), None if found is None else int(found.sum()))
        order = self._orders.get(key)
        if order is None:
            rows = np.flatnonzero(self._wanted(query) if found is None else self._wanted(query) & found)
            order = self._orders[key] = self._sorted(rows, query.sort).astype(np.int32)
            if len(self._orders) > 4:
                self._orders.popitem(last=False)
        return order

    def _wanted(self, query: Query) -> Array:
        wanted = self.there.copy()
        if query.model:
            wanted &= self.model == _code(self.models, query.model)
        if query.edit_type:
            wanted &= self.edit_type == _code(self.edit_types, query.edit_type)
        if query.status:
            chosen = [n for n, name in enumerate(ALL_STATUSES) if _matches(name, query.status)]
            wanted &= (self.statuses & np.uint16(sum(1 << n for n in chosen))) > 0
        if query.violation:
            code = _code(self.violations, query.violation)
            wanted &= (self.violated & np.uint64(1 << code if code >= 0 else 0)) > 0
        if query.contradicted:
            wanted &= self.contradicted
        if query.disputed:
            wanted &= self.spread >= DISPUTED
        if query.factor or query.least or query.most:
            wanted &= self._scored(query)
        return wanted

    def _scored(self, query: Query) -> Array:
        """By one factor, or by any."""
        rows = [n for n, column in enumerate(self.columns) if query.factor in ("", column.id)]
        low, high = _float(query.least, -np.inf), _float(query.most, np.inf)
        fits = np.zeros(len(self.there), np.bool_)
        for row in rows:
            fits |= (self.mean[row] >= low) & (self.mean[row] <= high)
        return fits

    def _sorted(self, rows: Array, sort: str) -> Array:
        name = sort.removeprefix("-")
        by = {"model": self.model, "edit_type": self.edit_type, "spread": self.spread}.get(name)
        if by is None:
            by = next((self.mean[n] for n, column in enumerate(self.columns) if column.id == name), None)
        if by is None:
            return rows[::-1] if name == "position" and sort != name else rows
        values = by[rows].astype(np.float32)
        # What has no score comes last both ways, and ties stay in the order of the manifest.
        return rows[np.argsort(-values if sort.startswith("-") else values, kind="stable")]

    def disagreements(self, order: Array) -> Array:
        """The places in an order where judges, repeats or people disagree, or evidence contradicts."""
        return np.flatnonzero((self.spread[order] >= DISPUTED) | self.contradicted[order])

    def scores(self, row: int) -> list[float]:
        return [float(value) for value in self.mean[:, row]]

    def statuses_of(self, row: int) -> list[str]:
        return [name for n, name in enumerate(ALL_STATUSES) if int(self.statuses[row]) >> n & 1]

    def violations_of(self, row: int) -> list[str]:
        return [code for n, code in enumerate(self.violations) if int(self.violated[row]) >> n & 1]


def _matches(status: str, wanted: str) -> bool:
    return status == wanted or (wanted == "failed" and status not in ("ok", "abstained", PENDING))


def _code(names: list[str], name: str) -> int:
    return names.index(name) if name in names else -1


def _float(text: str, default: float) -> float:
    try:
        return float(text)
    except ValueError:
        return default


# --- made from the store --------------------------------------------------------------------------------------


def columns_of(store: Store, run: RunRecord) -> list[Column]:
    """The factors of a run's rubrics; where two rubrics share one, its id says which."""
    kept, found = store.rubrics(), []
    for name, hash_ in dict(run.spec.get("rubrics", {})).items():
        for factor in kept[hash_]["content"]["factors"] if hash_ in kept else ():
            scale = Scale.of(factor["scale"])
            low = -math.inf if scale.low is None else scale.low
            high = math.inf if scale.high is None else scale.high
            found.append(Column(factor["key"], name, factor["key"], low, high, scale.direction))
    keys = [column.factor for column in found]
    return [
        column if keys.count(column.factor) == 1 else replace(column, id=f"{column.id}@{column.rubric}")
        for column in found
    ]


def build(
    store: Store,
    run: RunRecord,
    judge: str = "",
    only: Collection[str] | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> Listing:
    """The listing of a run, by one judge or by all; of all its edits, or of `only` these."""
    made = _Making(store, run, judge, only)
    made.add_items(progress)
    made.add_judgements(progress)
    made.add_ratings()
    made.add_contradictions()
    return made.finished()


class _Making:
    """Rows are added in chunks; what is held beside the columns is one chunk."""

    def __init__(self, store: Store, run: RunRecord, judge: str, only: Collection[str] | None) -> None:
        self._store, self._run, self._judge, self._only = store, run, judge, only
        self._columns = columns_of(store, run)
        self._by_rubric: dict[str, dict[str, int]] = {}
        for number, column in enumerate(self._columns):
            self._by_rubric.setdefault(column.rubric, {})[column.factor] = number
        self._ids: dict[str, int] = {}
        self._last: int | None = None
        """The last position when it was begun: a run of rewards goes on meanwhile, and what comes later is left out."""

    def _select(self, *what: Any) -> sa.Select[Any]:
        query = sa.select(*what).where(items.c.run_id == self._run.id)
        if self._only is not None:
            return query.where(items.c.item.in_(list(self._only)))
        return query if self._last is None else query.where(items.c.position <= self._last)

    def add_items(self, progress: Callable[[float], None]) -> None:
        place = items.c.position
        counted = self._select(sa.func.max(place), sa.func.count(), sa.func.count(place.distinct()))
        last, count, distinct = next(self._store._stream(counted))
        self._last = last = last or 0
        total = count if self._only is not None else last + 1 + count - distinct
        self._there, model, kind = (np.zeros(total, dtype) for dtype in (np.bool_, np.uint16, np.uint16))
        models: dict[str, int] = {}
        kinds: dict[str, int] = {}
        before, done = -1, 0
        query = self._select(place, items.c.item, items.c.model, items.c.edit_type)
        if self._only is None:  # of a few edits in this order, SQLite would walk through the whole run
            query = query.order_by(place, items.c.item)
        for some in _chunks(self._store._stream(query), _CHUNK):
            rows = []
            for position, item, *_ in some:
                if self._only is not None:
                    self._ids[item] = len(self._ids)
                elif position == before:  # two edits at one place: the manifest was changed since
                    self._ids[item] = last + 1 + len(self._ids)
                before = position
                rows.append(self._row(item, position))
            self._there[rows] = True
            model[rows] = [_coded(models, row[2]) for row in some]
            kind[rows] = [_coded(kinds, row[3]) for row in some]
            done += len(some)
            progress(0.3 * done / count)
        self._model, self._models = _alphabetical(model, models)
        self._kind, self._kinds = _alphabetical(kind, kinds)
        shape = (len(self._columns), total)
        self._sum, self._count = np.zeros(shape, np.float32), np.zeros(shape, np.uint16)
        self._low, self._high = np.full(shape, np.inf, np.float16), np.full(shape, -np.inf, np.float16)
        self._statuses, self._violated = np.zeros(total, np.uint16), np.zeros(total, np.uint64)
        self._violations: dict[str, int] = {}

    def _row(self, item: str, position: int) -> int:
        return self._ids.get(item, position) if self._ids else position

    def add_judgements(self, progress: Callable[[float], None]) -> None:
        same = sa.and_(items.c.run_id == tasks.c.run_id, items.c.item == tasks.c.item)
        # Text, not values: most are like one that was read before.
        violated = sa.type_coerce(judgements.c.violations, sa.Text)
        columns = (items.c.position, items.c.item, tasks.c.rubric, judgements.c.status, tasks.c.key, violated)
        query = self._select(*columns).select_from(
            tasks.join(items, same).outerjoin(judgements, judgements.c.key == tasks.c.key)
        )
        query = query.where(tasks.c.run_id == self._run.id)
        if self._judge:
            query = query.where(tasks.c.judge == self._judge)
        bits = {status: 1 << n for n, status in enumerate(ALL_STATUSES)}
        seen = 0
        for some in _chunks(self._store._stream(query), _CHUNK):
            rows = [self._row(item, position) for position, item, *_ in some]
            np.bitwise_or.at(self._statuses, rows, np.array([bits[row[3] or PENDING] for row in some], np.uint16))
            scored: dict[int, tuple[list[int], list[float]]] = {}
            scores = self._store.scores(key for *_, status, key, _ in some if status == "ok")
            for row, (_, _, rubric, _, key, violations) in zip(rows, some, strict=True):
                if key in scores:
                    known = self._by_rubric.get(rubric, {})
                    for factor, score in scores[key].items():
                        if (column := known.get(factor)) is not None:
                            at, values = scored.setdefault(column, ([], []))
                            at.append(row)
                            values.append(score)
                if violations not in (None, "[]"):
                    for remark in _parsed(violations):
                        bit = self._violations.setdefault(remark["code"], min(len(self._violations), 63))
                        self._violated[row] |= np.uint64(1 << bit)
            for column, (at, values) in scored.items():
                self._add(column, np.array(at), np.array(values, np.float32))
            seen += len(some)
            progress(0.3 + 0.65 * min(1.0, seen / max(1, len(self._there) * len(self._by_rubric))))

    def _add(self, column: int, rows: Array, values: Array) -> None:
        np.add.at(self._sum[column], rows, values)
        np.add.at(self._count[column], rows, 1)
        self._widen(column, rows, values)

    def _widen(self, column: int, rows: Array, values: Array) -> None:
        values = np.clip(values, -65_000, 65_000).astype(np.float16)  # an imported score may lie far off its scale
        np.minimum.at(self._low[column], rows, values)
        np.maximum.at(self._high[column], rows, values)

    def add_ratings(self) -> None:
        """People's scores count for disagreement where they are on the factor's own scale, never for the mean.

        The store is asked for the widest of each edit: an edit that a hundred people rated costs no more than of two.
        """
        scales: dict[tuple[float, float], dict[str, list[int]]] = {}
        for number, column in enumerate(self._columns):
            scales.setdefault((column.lowest, column.highest), {}).setdefault(column.factor, []).append(number)
        extremes = sa.func.min(ratings.c.score), sa.func.max(ratings.c.score)
        query = self._select(items.c.position, items.c.item, ratings.c.factor, *extremes)
        query = query.select_from(items.join(ratings, ratings.c.content == items.c.content))
        query = query.where(ratings.c.rubric.in_(["", *rubrics_alike(self._store, self._run)]))
        query = query.group_by(items.c.position, items.c.item, ratings.c.factor)
        for scale, factors in scales.items():
            mine = query.where(ratings.c.factor.in_(list(factors)), ratings.c.score.between(*scale))
            for some in _chunks(self._store._stream(mine), _CHUNK):
                rated: dict[str, list[tuple[int, float, float]]] = {}
                for position, item, factor, low, high in some:
                    rated.setdefault(factor, []).append((self._row(item, position), low, high))
                for factor, said in rated.items():
                    rows, low, high = (np.array(values) for values in zip(*said, strict=True))
                    for number in factors[factor]:
                        self._widen(number, rows, low)
                        self._widen(number, rows, high)

    def add_contradictions(self) -> None:
        self._contradicted = np.zeros(len(self._there), np.bool_)
        same = sa.and_(items.c.run_id == tasks.c.run_id, items.c.item == tasks.c.item)
        query = self._select(items.c.position, items.c.item).distinct()
        query = query.select_from(contradictions.join(tasks, tasks.c.key == contradictions.c.key).join(items, same))
        for position, item in self._store._stream(query):
            self._contradicted[self._row(item, position)] = True

    def finished(self) -> Listing:
        spread = np.zeros(len(self._there), np.float16)
        for number, column in enumerate(self._columns):
            told = self._high[number] >= self._low[number]
            width = np.where(told, self._high[number] - np.where(told, self._low[number], 0), 0)
            np.maximum(spread, width / np.float16(column.highest - column.lowest), out=spread)
        with np.errstate(invalid="ignore"):
            mean = np.divide(self._sum, self._count, out=self._sum)
        return Listing(
            self._columns, self._ids, self._there, self._models, self._model, self._kinds, self._kind, mean, spread,
            self._statuses, list(self._violations)[:64], self._violated, self._contradicted,
        )  # fmt: skip


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> Any:
    return json.loads(unescaped(text))


def _coded(names: dict[str, int], name: str | None) -> int:
    return names.setdefault(name or "", min(len(names), 65_535))


def _alphabetical(codes: Array, names: dict[str, int]) -> tuple[Array, list[str]]:
    """Codes whose order is that of the names, so that sorting by one is sorting by the other."""
    ordered = sorted(names)
    place = np.zeros(len(names) + 1, np.uint16)
    for new, name in enumerate(ordered):
        place[names[name]] = new
    return place[codes], ordered
