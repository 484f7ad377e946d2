"""A run's edits page by page: straight from the store by position, or by a listing where something else is asked."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import sqlalchemy as sa

from editjudge.content import Content
from editjudge.judgement import DONE
from editjudge.store.ratings import rubrics_alike
from editjudge.store.schema import items, ratings, tasks
from editjudge.store.store import Item, RunRecord, Store
from editjudge.web.listing import Array, Column, Listing, Query, build

T = TypeVar("T")

PAGE = 50
_KEPT = 4
"""Listings and searches held at a time."""
_PATIENCE = 0.1
"""Seconds that a page waits for a listing or a search before it shows what there is."""
_SMALL, _LONGER = 10_000, 3.0
"""A run of no more edits is waited for so long: its listing takes a tenth of that on a machine that is not busy."""
_SEARCHED = 20_000
"""Edits looked through at a time."""


@dataclass(frozen=True)
class Row:
    """An edit in a table."""

    item: Item
    scores: list[float]
    statuses: list[str]
    violations: list[str]
    contradicted: bool
    spread: float

    @property
    def abstained(self) -> str:
        """What was abstained from beside scores, in words."""
        silent = sum(map(math.isnan, self.scores))
        if "ok" not in self.statuses or not (silent or "abstained" in self.statuses):
            return ""
        if silent and set(self.statuses) <= set(DONE):  # else some have no score because something failed
            return f"{silent} factor{'' if silent == 1 else 's'} abstained"
        return "abstained in part" if "abstained" in self.statuses else ""


@dataclass(frozen=True)
class Page:
    rows: list[Row]
    columns: list[Column]
    total: int
    """Edits that the query wants, as far as they were looked through."""
    listing: Listing | None
    ready: float
    """How much of what the query needs has been looked through: 1 is all."""
    listed: float
    """How much of the run is listed: before that, there are no models and types to choose from."""


@dataclass(frozen=True)
class Neighbours:
    before: str | None = None
    after: str | None = None
    disagreement: str | None = None
    place: int | None = None
    total: int = 0


def lean(store: Store) -> None:
    """Bound what SQLite caches: a server has many connections, and the kernel's cache serves them all."""
    if store._dialect == "sqlite":

        @sa.event.listens_for(store._engine, "connect")
        def connected(connection: Any, _: Any) -> None:
            connection.execute("PRAGMA cache_size = -8192")

        store._engine.dispose()  # connections from before are opened again


class Browser:
    """Of one store; listings are made in the background, one at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._listings: OrderedDict[tuple[object, ...], _Making] = OrderedDict()
        self._searches: OrderedDict[tuple[object, ...], _Search] = OrderedDict()

    def page(self, run: RunRecord, query: Query) -> Page:
        making, total = self._making(run, query.judge), count(self._store, run)
        listing = making.wait(_LONGER if total <= _SMALL else _PATIENCE)
        first = PAGE * (query.number - 1)
        if query.plain or listing is None:
            found = self._at(run, range(first, first + PAGE)) if query.plain else []
            ready = 1.0 if query.plain else making.progress
        else:
            order, ready = self._order(run, query, listing)
            total = len(order)
            found = self.rows(run, listing, order[first : first + PAGE])
        small = build(self._store, run, query.judge, only=[item.item for item in found])
        rows = [_row(small, item) for item in found]
        return Page(rows, small.columns, total if query.plain or listing else 0, listing, ready, making.progress)

    def order(self, run: RunRecord, query: Query) -> tuple[Listing | None, Array, float]:
        """The whole of what is wanted, for those who compare."""
        making = self._making(run, query.judge)
        listing = making.wait(_PATIENCE)
        if listing is None:
            return None, np.zeros(0, np.int32), making.progress
        return listing, *self._order(run, query, listing)

    def neighbours(self, run: RunRecord, query: Query, item: str) -> Neighbours:
        """What comes before and after an edit in the order that is looked at."""
        position = _position(self._store, run, item)
        listing = self._making(run, query.judge).wait(_PATIENCE)
        if listing is None:
            if position is None or not query.plain:
                return Neighbours()
            near = {row: edit.item for row, edit in self._by_position(run, (position - 1, position + 1))}
            total = count(self._store, run)
            return Neighbours(near.get(position - 1), near.get(position + 1), None, position + 1, total)
        order, _ = self._order(run, query, listing)
        here = np.flatnonzero(order == listing.ids.get(item, -1 if position is None else position))
        if not len(here):
            return Neighbours(total=len(order))
        place = int(here[0])
        later = listing.disagreements(order)
        later = later[np.searchsorted(later, place, "right") :]

        def named(n: int) -> str | None:
            return self.rows(run, listing, order[n : n + 1])[0].item if 0 <= n < len(order) else None

        disputed = named(int(later[0])) if len(later) else None
        return Neighbours(named(place - 1), named(place + 1), disputed, place + 1, len(order))

    # --- rows -----------------------------------------------------------------------------------------------------

    def _order(self, run: RunRecord, query: Query, listing: Listing) -> tuple[Array, float]:
        if not query.q:
            return listing.order(query), 1.0
        key = (run.id, run.updated, query.q)
        search = self._kept(self._searches, key, lambda: _Search(self._store, run, query.q))
        found = search.advance(listing, _PATIENCE)
        return listing.order(query, found), search.progress

    def rows(self, run: RunRecord, listing: Listing, rows: Array) -> list[Item]:
        crowded = {row: item for item, row in listing.ids.items()}
        places = [int(row) for row in rows if int(row) not in crowded]
        found = {row: edit for row, edit in self._by_position(run, places) if edit.item not in listing.ids}
        for row in rows:
            if int(row) in crowded:
                found |= {int(row): edit for edit in self._store.items(run, crowded[int(row)])}
        return [found[int(row)] for row in rows if int(row) in found]

    def _at(self, run: RunRecord, places: range) -> list[Item]:
        return [edit for _, edit in self._by_position(run, places)]

    def _by_position(self, run: RunRecord, places: Any) -> list[tuple[int, Item]]:
        columns = [items.c[name] for name in Item.__slots__]
        here = sa.and_(items.c.run_id == run.id, items.c.position.in_(list(places)))
        # Sorted here: asked for this order, SQLite may walk through the whole run in it.
        query = sa.select(items.c.position, *columns).where(here)
        found = ((row[0], Item(*row[1:])) for row in self._store._stream(query))
        return sorted(found, key=lambda pair: (pair[0], pair[1].item))

    # --- what is kept ---------------------------------------------------------------------------------------------

    def _making(self, run: RunRecord, judge: str) -> _Making:
        with self._lock:
            known = self._listings.get((run.id, judge))
            if known is not None and known.stale(run):
                self._listings[run.id, judge] = _Making(self._store, run, judge, known)
        return self._kept(self._listings, (run.id, judge), lambda: _Making(self._store, run, judge, None))

    def _kept(self, kept: OrderedDict[tuple[object, ...], T], key: tuple[object, ...], make: Callable[[], T]) -> T:
        with self._lock:
            value = kept[key] if key in kept else kept.setdefault(key, make())
            kept.move_to_end(key)
            while len(kept) > _KEPT:
                kept.popitem(last=False)
            return value


_TURN = threading.Lock()
"""Listings take turns: two at once would only be slower."""


class _Making:
    """A listing that is being made, or is; what an earlier one knew is shown until then."""

    def __init__(self, store: Store, run: RunRecord, judge: str, earlier: _Making | None) -> None:
        self._store, self._run, self._judge = store, run, judge
        self.progress, self._seconds, self._begun = 0.0, 0.0, time.monotonic()
        self._listing: Listing | None = earlier._listing if earlier else None
        self._error: Exception | None = None
        self._done = threading.Event()
        threading.Thread(target=self._make, name="editjudge-listing", daemon=True).start()

    def _make(self) -> None:
        try:
            with _TURN:
                begun = time.monotonic()
                self._listing = build(self._store, self._run, self._judge, progress=self._advance)
                self._seconds = time.monotonic() - begun
        except Exception as error:  # told to whoever waits, in the request's own thread
            self._error = error
        finally:
            self.progress = 1.0
            self._done.set()

    def _advance(self, share: float) -> None:
        self.progress = share

    def wait(self, seconds: float) -> Listing | None:
        self._done.wait(seconds if self._listing is None else 0)
        if self._error:
            raise self._error
        return self._listing

    def stale(self, run: RunRecord) -> bool:
        """Whether the run may have gone on, or people rated. A run that goes on all the time, as one of rewards does,
        is looked at again all the time, which takes a twentieth of it at most."""
        if not self._done.is_set():
            return False
        age = time.monotonic() - self._begun
        changed = run.updated != self._run.updated or self._error is not None
        return age > 20 * self._seconds and (changed or age > 5.0)


class _Search:
    """Edits whose instruction or id has some words in it; goes on where it stopped when it is looked at again, be it
    for want of time or because the run had no more edits yet."""

    def __init__(self, store: Store, run: RunRecord, words: str) -> None:
        self._store, self._run, self._words = store, run, words
        self._next, self.progress = 0, 0.0
        self._found: list[tuple[int, str]] = []
        self._lock = threading.Lock()

    def advance(self, listing: Listing, seconds: float) -> Array:
        """Rows found so far."""
        until, total = time.monotonic() + seconds, len(listing.there)
        places = total - len(listing.ids)
        mine = items.c.run_id == self._run.id
        has = sa.or_(*(items.c[name].icontains(self._words, autoescape=True) for name in ("instruction", "item")))
        query = sa.select(items.c.position, items.c.item).where(mine, has)
        with self._lock:
            while self._next < places and time.monotonic() < until:
                end = min(self._next + _SEARCHED, places)
                some = items.c.position.between(self._next, end - 1)
                self._found += [(place, item) for place, item in self._store._stream(query.where(some))]
                self._next = end
            self.progress = min(1.0, self._next / places) if places else 1.0
            mask = np.zeros(total, np.bool_)
            rows = [listing.ids.get(item, place) for place, item in self._found]
            mask[[row for row in rows if row < total]] = True
        return mask


def _row(listing: Listing, item: Item) -> Row:
    row = listing.ids[item.item]
    return Row(
        item,
        listing.scores(row),
        listing.statuses_of(row),
        listing.violations_of(row),
        bool(listing.contradicted[row]),
        float(listing.spread[row]),
    )


def count(store: Store, run: RunRecord) -> int:
    """How many edits a run has: one look into the index, since positions have no gaps."""
    query = sa.select(sa.func.max(items.c.position)).where(items.c.run_id == run.id)
    last = next(store._stream(query))[0]
    return 0 if last is None else last + 1


def _position(store: Store, run: RunRecord, item: str) -> int | None:
    query = sa.select(items.c.position).where(items.c.run_id == run.id, items.c.item == item)
    return next((row[0] for row in store._stream(query)), None)


def tasks_of(store: Store, run: RunRecord, item: str) -> list[Any]:
    """Rubric, judge, repeat and key of everything that was asked of an edit."""
    columns = [tasks.c[name] for name in ("rubric", "judge", "repeat", "key")]
    mine = sa.select(*columns, tasks.c.position).where(tasks.c.run_id == run.id, tasks.c.item == item)
    # Sorted here: asked for an order by position, SQLite walks through the whole run in it.
    return sorted(store._stream(mine), key=lambda row: (row.position, row.judge))


def ratings_of(store: Store, run: RunRecord, item: Item) -> list[Any]:
    """Rater, factor and score of everyone who rated an edit of a run."""
    columns = [ratings.c[name] for name in ("rater", "factor", "score")]
    asked = ratings.c.rubric.in_(["", *rubrics_alike(store, run)])
    query = sa.select(*columns).where(ratings.c.content == Content.of(item).key(), asked)
    return list(store._stream(query.order_by(*columns[:2])))
