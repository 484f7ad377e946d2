"""People's ratings in a store: one for each item, rater and factor, whoever brings it last."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable, Iterator

import sqlalchemy as sa

from editjudge.store.export import harmless
from editjudge.store.schema import ratings, upsert
from editjudge.store.store import Store

Row = tuple[str, str, str, float]
"""Item, rater, factor and score."""


def add_ratings(store: Store, rows: Iterable[Row]) -> int:
    """Keep ratings; one that is there already takes the new score. Answers how many were brought."""
    now = time.time()
    values = (dict(zip(("item", "rater", "factor", "score"), row, strict=True)) | {"created": now} for row in rows)

    def unchanged(old: sa.Table, new: sa.ColumnCollection[str, sa.ColumnElement[float]]) -> sa.ColumnElement[bool]:
        return old.c.score == new["score"]

    return store._insert(upsert(store._dialect, ratings, ("score", "created"), unless=unchanged), values)


def read_ratings(store: Store) -> list[Row]:
    """Every rating, by item, rater and factor."""
    columns = [ratings.c[name] for name in ("item", "rater", "factor", "score")]
    return [tuple(row) for row in store._stream(sa.select(*columns).order_by(*columns[:3]))]


def count_ratings(store: Store) -> int:
    return int(next(store._stream(sa.select(sa.func.count()).select_from(ratings)))[0])


def csv_lines(rows: Iterable[Row]) -> Iterator[str]:
    """As `agree --ratings` and a spreadsheet read them."""
    for row in (("item", "rater", "factor", "score"), *rows):
        line = io.StringIO()
        csv.writer(line).writerow([harmless(f"{value:g}" if isinstance(value, float) else value) for value in row])
        yield line.getvalue()
