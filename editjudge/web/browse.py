"""Pages of a run's edits straight from the store, by position: quick at any size, before anything is indexed."""

from __future__ import annotations

import sqlalchemy as sa

from editjudge.store.schema import items
from editjudge.store.store import Run, Store


def count(store: Store, run: Run) -> int:
    """How many edits a run has: one look into the index, since positions have no gaps."""
    query = sa.select(sa.func.max(items.c.position)).where(items.c.run_id == run.id)
    last = next(store._stream(query))[0]
    return 0 if last is None else last + 1
