"""What a store has seen, for plans of what comes next."""

from __future__ import annotations

import sqlalchemy as sa

from editjudge.store.schema import judgements, replies
from editjudge.store.store import Store


def mean_latency(store: Store, judge: str) -> float | None:
    """Seconds that a judge took to reply, on average; None where it was never asked live."""
    query = sa.select(sa.func.avg(replies.c.latency)).join(judgements, judgements.c.key == replies.c.key)
    (row,) = store._stream(query.where(judgements.c.judge == judge))
    return None if row[0] is None else float(row[0])
