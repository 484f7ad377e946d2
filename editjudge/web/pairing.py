"""Two runs, or two models of one run, edit by edit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import numpy as np

from editjudge.content import Content
from editjudge.errors import UsageError
from editjudge.store import browse
from editjudge.store.browse import FactorColumn
from editjudge.store.store import Item, RunRecord, Store
from editjudge.web.fields import whole_number
from editjudge.web.listing import PAGE, Array, Browser, Labels, Query, Unread, fitted

_PATIENCE = 0.1
"""Seconds that a page waits for each column of a run that is not read yet."""


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
    columns: list[FactorColumn]
    pairs: list[EditPair]
    total: int
    alone: tuple[int, int]
    """Edits of each side that the other has no counterpart of."""
    counts: list[tuple[int, int, int]]
    """By column: where A is higher, where both are equal, where B is higher."""
    sort: str
    page: int
    last: int
    ready: bool

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

    def page(self, a: RunRecord, b: RunRecord, parameters: Mapping[str, str]) -> RunComparison:
        models, sort = (parameters.get("a_model", ""), parameters.get("b_model", "")), parameters.get("sort", "")
        columns = [c for c in browse.columns_of(self._store, a) if c in browse.columns_of(self._store, b)]
        try:
            labels = [self._browser.labels(run, _PATIENCE) for run in (a, b)]
            orders = [self._order(run, model) for run, model in zip((a, b), models, strict=True)]
            means = [[self._browser.means(run, "", column, _PATIENCE) for column in columns] for run in (a, b)]
        except Unread:
            sides = (PairSide(a, models[0], []), PairSide(b, models[1], []))
            return RunComparison(sides, [], [], 0, (0, 0), [], sort, 1, 1, ready=False)
        sides = (PairSide(a, models[0], labels[0].models), PairSide(b, models[1], labels[1].models))
        if a.id == b.id and models[0] == models[1]:
            raise UsageError("Choose two runs, or two models of one run: here both sides are the same.")
        rows_a, rows_b = self._matched(sides, labels, orders)
        scores_a, scores_b = (
            np.array([fitted(mean, int(rows.max(initial=-1)) + 1, fill=np.nan)[rows] for mean in side]).reshape(
                len(columns), len(rows)
            )
            for side, rows in zip(means, (rows_a, rows_b), strict=True)
        )
        gap = scores_a - scores_b
        counts = [(int((g > 0).sum()), int((g == 0).sum()), int((g < 0).sum())) for g in gap]
        order = _sorted(gap, columns, sort)
        last = max(1, -(-len(order) // PAGE))
        page = min(last, max(1, whole_number(parameters.get("page", "")) or 1))
        here = order[PAGE * (page - 1) : PAGE * page]
        pairs = [
            EditPair((left, right), (scores_a[:, n].tolist(), scores_b[:, n].tolist()))
            for n, left, right in zip(here, self._edits(a, rows_a[here]), self._edits(b, rows_b[here]), strict=True)
        ]
        alone = (len(orders[0]) - len(rows_a), len(orders[1]) - len(rows_b))
        return RunComparison(sides, columns, pairs, len(order), alone, counts, sort, page, last, ready=True)

    def _order(self, run: RunRecord, model: str) -> Array:
        return self._browser.order(run, Query(model=model), browse.count_edits(self._store, run), _PATIENCE)

    def _edits(self, run: RunRecord, positions: Array) -> list[Item]:
        edits = browse.items_at(self._store, run, positions.tolist())
        return [edits[n][0] for n in positions.tolist()]

    def _matched(
        self, sides: tuple[PairSide, PairSide], labels: list[Labels], orders: list[Array]
    ) -> tuple[Array, Array]:
        """The positions of the edits of each pair, paired as `compare` does: by what was to be edited, within a model
        that both sides have."""
        a, b = sides
        what = (a.run.id, a.run.updated, a.model, len(orders[0]), b.run.id, b.run.updated, b.model, len(orders[1]))
        if self._last[0] != what:
            by_model = a.run.id != b.run.id and not (a.model or b.model)
            by_model = by_model and bool({*labels[0].models} & {*labels[1].models})
            keys = (self._keys(side.run, order, by_model) for side, order in zip(sides, orders, strict=True))
            self._last = (what, _matched(*keys))
        return self._last[1]

    def _keys(self, run: RunRecord, order: Array, by_model: bool) -> tuple[Array, Array]:
        """Each position, and 64 bits of what it is paired by."""
        wanted = np.zeros(int(order.max(initial=-1)) + 1, np.bool_)
        wanted[order] = True
        positions, keys = [], []
        for position, item in browse.item_rows(self._store, run):
            if position < len(wanted) and wanted[position]:
                content = Content.of(item)
                text = f"{content.key('task')} {content.model if by_model else ''}".encode("utf-8", "surrogatepass")
                positions.append(position)
                keys.append(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big", signed=True))
        return np.array(positions, np.int64), np.array(keys, np.int64)


def _matched(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
    """The rows that have the same key, in the order of the first; a key that comes twice is paired once."""
    _, at_a, at_b = np.intersect1d(a[1], b[1], return_indices=True)
    order = np.argsort(at_a)
    return a[0][at_a[order]], b[0][at_b[order]]


def _sorted(gap: Array, columns: list[FactorColumn], sort: str) -> Array:
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
