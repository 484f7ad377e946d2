"""Batches that were submitted to providers, and answers to questions that have no judgement yet."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import sqlalchemy as sa

from editjudge.store.database import MAX_IN, chunks
from editjudge.store.schema import batch_lines, batches, packed, unpacked
from editjudge.store.store import Store

State = Literal["submitting", "open", "collected", "turned down"]
"""State of a batch. `submitting` means that it is unknown whether the provider received the batch; its list of batches
shows whether our mark is there.
"""

Reply = tuple[int, bytes]
"""HTTP status and body of an answer."""

_UNANSWERED = batch_lines.c.status.is_(None)


class BatchRecord(NamedTuple):
    id: int
    mark: str
    provider_id: str | None
    questions: int
    created: float


def begin(
    store: Store, run_id: int, judge: str, mark: str, keys: Sequence[str]
) -> BatchRecord:
    """Store a batch before it is submitted, so it can be found again after a crash, and return its record."""
    now = time.time()
    new = sa.insert(batches).values(
        run_id=run_id,
        judge=judge,
        mark=mark,
        state="submitting",
        questions=len(keys),
        created=now,
        updated=now,
    )
    with store._writing() as connection:
        added = connection.execute(new)
        (number,) = added.inserted_primary_key or (0,)
        connection.execute(
            sa.insert(batch_lines), [{"batch_id": number, "key": key} for key in keys]
        )
    return BatchRecord(number, mark, None, len(keys), now)


def submitted(store: Store, batch: BatchRecord, provider_id: str) -> BatchRecord:
    store._execute(_update(batch, state="open", provider_id=provider_id))
    return batch._replace(provider_id=provider_id)


def withdraw(store: Store, batch: BatchRecord) -> None:
    """Release the questions of a batch that the provider rejected or never received. They will be asked again."""
    with store._writing() as connection:
        connection.execute(
            sa.delete(batch_lines).where(
                batch_lines.c.batch_id == batch.id, _UNANSWERED
            )
        )
        connection.execute(_update(batch, state="turned down"))


def answered(
    store: Store, batch: BatchRecord, replies: Iterable[tuple[str, Reply]]
) -> None:
    """Store answers, each given with its question's key. If a question has several answers, the first is kept. Answers
    to unknown questions are ignored.
    """
    line = batch_lines.c
    statement = (
        sa.update(batch_lines)
        .where(line.batch_id == batch.id, line.key == sa.bindparam("k"), _UNANSWERED)
        .values(status=sa.bindparam("s"), answer=sa.bindparam("a"))
    )
    rows = [
        {"k": key, "s": status, "a": packed(body.decode("utf-8", "replace"))}
        for key, (status, body) in replies
    ]
    if rows:
        store._execute(statement, rows)


def collected(store: Store, batch: BatchRecord, otherwise: Reply) -> None:
    """Mark a batch as collected. Questions that got no answer are given the reply `otherwise`."""
    status, body = otherwise
    values = {"status": status, "answer": packed(body.decode())}
    with store._writing() as connection:
        of_batch = batch_lines.c.batch_id == batch.id
        connection.execute(
            sa.update(batch_lines).where(of_batch, _UNANSWERED).values(**values)
        )
        connection.execute(_update(batch, state="collected"))


def keys_of(store: Store, batch: BatchRecord) -> list[str]:
    query = sa.select(batch_lines.c.key).where(batch_lines.c.batch_id == batch.id)
    return [key for (key,) in store.stream(query)]


def awaited(store: Store, keys: Sequence[str]) -> dict[str, BatchRecord]:
    """Map each question that is waiting for an answer to its batch, which may belong to any run. Other questions are
    left out.
    """
    columns = [batches.c[name] for name in BatchRecord._fields]
    query = (
        sa.select(batch_lines.c.key, *columns)
        .join_from(batch_lines, batches)
        .where(_UNANSWERED)
    )
    return {
        key: BatchRecord(*values)
        for key, *values in store._read_among(query, batch_lines.c.key, keys)
    }


def replies_to(store: Store, keys: Sequence[str]) -> dict[str, list[Reply]]:
    """Return all stored answers to these questions, in the order of their batches."""
    line = batch_lines.c
    replies = dict[str, list[Reply]]()
    query = (
        sa.select(line.key, line.status, line.answer)
        .where(~_UNANSWERED)
        .order_by(line.batch_id)
    )
    for key, status, answer in store._read_among(query, line.key, keys):
        replies.setdefault(key, []).append((status, unpacked(answer).encode()))
    return replies


def forget(store: Store, keys: Sequence[str]) -> None:
    """Delete the answers to questions that now have a judgement, since the judgement contains them."""
    for chunk in chunks(keys, MAX_IN):
        store._execute(sa.delete(batch_lines).where(batch_lines.c.key.in_(chunk)))


def forget_errors(store: Store, judge: str) -> None:
    """Delete a judge's answers that are errors, so the questions are asked again."""
    of_judge = sa.select(batches.c.id).where(batches.c.judge == judge)
    errors = (batch_lines.c.batch_id.in_(of_judge), batch_lines.c.status >= 400)
    store._execute(sa.delete(batch_lines).where(*errors))


def _update(batch: BatchRecord, **values: object) -> sa.Update:
    return (
        sa.update(batches)
        .where(batches.c.id == batch.id)
        .values(updated=time.time(), **values)
    )
