"""Two runs, or two models of one run, edit by edit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

import numpy as np
import sqlalchemy as sa

from editjudge.content import Content
from editjudge.errors import UsageError
from editjudge.store.schema import items
from editjudge.store.store import Item, RunRecord, Store
from editjudge.web.browse import PAGE, Browser
from editjudge.web.fields import whole_number
from editjudge.web.listing import Array, Column, Listing, Query


@dataclass(frozen=True)
class PairSide:
    run: RunRecord
    model: str
    models: list[str]

    @property
    def name(self) -> str:
        return f"{self.model} ({self.run.name})" if self.model else self.run.name


@dataclass(frozen=True)
class EditPair:
    items: tuple[Item, Item]
    scores: tuple[list[float], list[float]]


@dataclass(frozen=True)
class RunComparison:
    sides: tuple[PairSide, PairSide]
    columns: list[Column]
    pairs: list[EditPair]
    total: int
    alone: tuple[int, int]
    """Edits of each side that the other has no counterpart of."""
    counts: list[tuple[int, int, int]]
    """By column: where A is higher, where both are equal, where B is higher."""
    sort: str
    page: int
    last: int
    ready: float

    def address(self, **changes: object) -> str:
        a, b = self.sides
        values = {"a": a.run.id, "b": b.run.id, "a_model": a.model, "b_model": b.model}
        values |= {"sort": self.sort, "page": self.page}
        return "/compare?" + urlencode({k: v for k, v in (values | changes).items() if v not in ("", None)})


class Pairing:
    def __init__(self, store: Store, browser: Browser) -> None:
        self._store, self._browser = store, browser
        self._last: tuple[Any, tuple[Array, Array]] = ((), (np.zeros(0), np.zeros(0)))
        """The pairs that were looked at last: turning a page does not pair again."""

    def page(self, a: RunRecord, b: RunRecord, asked: Mapping[str, str]) -> RunComparison:
        (left, first, ready), (right, second, other_ready) = (
            self._side(a, asked.get("a_model", "")),
            self._side(b, asked.get("b_model", "")),
        )
        sides = (
            PairSide(a, asked.get("a_model", ""), left.models if left else []),
            PairSide(b, asked.get("b_model", ""), right.models if right else []),
        )
        sort = asked.get("sort", "")
        if left is None or right is None:
            return RunComparison(sides, [], [], 0, (0, 0), [], sort, 1, 1, min(ready, other_ready))
        if a.id == b.id and sides[0].model == sides[1].model:
            raise UsageError("Choose two runs, or two models of one run: here both sides are the same.")
        columns = [column for column in left.columns if column in right.columns]
        what = (left, right, *(side.model for side in sides))
        if self._last[0] != what:
            # As `compare` pairs them: by what was to be edited, within a model that both sides have.
            by_model = a.id != b.id and not any(s.model for s in sides) and bool({*left.models} & {*right.models})
            keys = (self._keys(run, x, rows, by_model) for run, x, rows in ((a, left, first), (b, right, second)))
            self._last = (what, _matched(*keys))
        rows_a, rows_b = self._last[1]
        scores_a, scores_b = _picked(left, columns, rows_a), _picked(right, columns, rows_b)
        gap = scores_a - scores_b
        counts = [(int((g > 0).sum()), int((g == 0).sum()), int((g < 0).sum())) for g in gap]
        order = _sorted(gap, columns, sort)
        last = max(1, -(-len(order) // PAGE))
        page = min(last, max(1, whole_number(asked.get("page", "")) or 1))
        here = order[PAGE * (page - 1) : PAGE * page]
        pairs = self._pairs(a, b, left, right, columns, rows_a[here], rows_b[here])
        alone = (len(first) - len(rows_a), len(second) - len(rows_b))
        return RunComparison(sides, columns, pairs, len(order), alone, counts, sort, page, last, 1.0)

    def _side(self, run: RunRecord, model: str) -> tuple[Listing | None, Array, float]:
        return self._browser.order(run, replace(Query(), model=model))

    def _keys(self, run: RunRecord, listing: Listing, rows: Array, by_model: bool) -> tuple[Array, Array]:
        """Each row, and 64 bits of what it is paired by."""
        wanted = np.zeros(len(listing.there), np.bool_)
        wanted[rows] = True
        what = [items.c[name] for name in Item.__slots__]
        query = sa.select(items.c.position, *what).where(items.c.run_id == run.id).order_by(items.c.position)
        found, keys = [], []
        for position, *values in self._store._stream(query):
            item = Item(*values)
            row = listing.ids.get(item.item, position)
            if wanted[row]:
                found.append(row)
                content = Content.of(item)
                text = f"{content.key('task')} {content.model if by_model else ''}".encode("utf-8", "surrogatepass")
                keys.append(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big", signed=True))
        return np.array(found, np.int64), np.array(keys, np.int64)

    def _pairs(
        self,
        a: RunRecord,
        b: RunRecord,
        left: Listing,
        right: Listing,
        columns: list[Column],
        rows_a: Array,
        rows_b: Array,
    ) -> list[EditPair]:
        edits = [self._browser.rows(run, x, rows) for run, x, rows in ((a, left, rows_a), (b, right, rows_b))]
        both = [
            [[float(v) for v in scores] for scores in _picked(x, columns, rows).T]
            for x, rows in ((left, rows_a), (right, rows_b))
        ]
        return [
            EditPair(pair, said) for pair, said in zip(zip(*edits, strict=True), zip(*both, strict=True), strict=True)
        ]


def _matched(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
    """The rows that have the same key, in the order of the first; a key that comes twice is paired once."""
    _, at_a, at_b = np.intersect1d(a[1], b[1], return_indices=True)
    order = np.argsort(at_a)
    return a[0][at_a[order]], b[0][at_b[order]]


def _picked(listing: Listing, columns: list[Column], rows: Array) -> Array:
    numbers = np.array([listing.columns.index(column) for column in columns], np.int64)
    picked: Array = listing.mean[numbers][:, rows]
    return picked


def _sorted(gap: Array, columns: list[Column], sort: str) -> Array:
    """By the difference of one factor, the largest of A first, or with a minus of B; else by the largest of any."""
    if sort == "position":
        return np.arange(gap.shape[1])
    number = next((n for n, column in enumerate(columns) if column.id == sort.removeprefix("-")), None)
    if number is not None:
        value = gap[number] if sort.startswith("-") else -gap[number]
    else:
        ranges = np.array([[column.highest - column.lowest] for column in columns] or [[1]], np.float32)
        value = -np.nan_to_num(np.abs(gap) / ranges, nan=0).max(axis=0, initial=0)
    return np.argsort(value, kind="stable")
