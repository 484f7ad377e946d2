"""The judgements in a store. They are written in groups, with their scores and raw replies, and read by key or by run."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

import sqlalchemy as sa

from editjudge.errors import did_you_mean
from editjudge.judgement import (
    DONE,
    EMPTY_ROW,
    FIELDS,
    PER_FACTOR,
    Exchange,
    Judgement,
    JudgementRow,
    Usage,
)
from editjudge.rubrics.verdict import Remark, RemarkJson
from editjudge.store.database import MAX_IN, Database, chunks
from editjudge.store.records import PENDING, RunRecord
from editjudge.store.schema import (
    Column,
    NewRow,
    as_json,
    claims,
    edit_score_fills,
    items,
    judgements,
    packed,
    replies,
    runs,
    scores,
    tasks,
    unpacked,
    upsert,
)

Values = dict[str, Any]
"""Values of a row, keyed by column."""
FactorValues = dict[str, Values]
"""Values of one judgement, keyed by field (such as `scores` or `choices`) and then by factor. Fields without values are
left out.
"""

SAME_KEY = judgements.c.key == tasks.c.key
SAME_ITEM = sa.and_(items.c.run_id == tasks.c.run_id, items.c.item == tasks.c.item)
JUDGED_TASKS = tasks.outerjoin(items, SAME_ITEM).outerjoin(judgements, SAME_KEY)
"""Every task with its edit and its judgement, if there is one."""

# --- rows -----------------------------------------------------------------------------------------------------

_COLUMNS = tuple(field.name for field in FIELDS if field.table == "judgements")
_OPTIONAL = {field.name for field in FIELDS if field.optional}
_EXCHANGE_COLUMNS = tuple(name for name in Exchange.__slots__ if name != "text")
_EXACT = 2.0**53
"""Largest power of two up to which a double represents every integer."""


def _score_rows(key: str, fields: Mapping[str, Values | None]) -> Iterator[Values]:
    """Yield the rows of the table `scores` for one judgement's per-factor fields."""
    columns = {column: fields.get(name) or {} for name, column in PER_FACTOR.items()}
    factors = dict.fromkeys(factor for values in columns.values() for factor in values)
    for position, factor in enumerate(factors):
        row: Values = {"key": key, "factor": factor, "position": position}
        for column, values in columns.items():
            value = values.get(factor)
            row[column] = value if isinstance(value, str | None) else float(value)
        yield row


def _reply_rows(judgement: Judgement) -> Iterator[Values]:
    for number, exchange in enumerate(judgement.exchanges):
        values = {name: getattr(exchange, name) for name in _EXCHANGE_COLUMNS}
        values["at"] = judgement.created
        # The number distinguishes a model that repeats its reply from a judgement that is written twice.
        content = as_json([number, exchange.text, values])
        mark = hashlib.blake2b(
            content.encode("utf-8", "surrogatepass"), digest_size=8
        ).digest()
        yield {
            **values,
            "key": judgement.key,
            "mark": int.from_bytes(mark, "big", signed=True),
            "text": packed(exchange.text),
        }


def _remarks(stored: Iterable[RemarkJson]) -> tuple[Remark, ...]:
    return tuple(Remark(**remark) for remark in stored)


def factor_fields(
    values: FactorValues, status: str, names: Iterable[str] = PER_FACTOR
) -> dict[str, Values | None]:
    """Return the `PER_FACTOR` fields of a judgement. A field without values is None or empty."""
    fields: dict[str, Values | None] = {
        name: values.get(name, None if name in _OPTIONAL else {}) for name in names
    }
    if status == "ok" and "scores" in fields and not {"scores", "choices"} & {*values}:
        fields["scores"] = {}  # each factor abstained
    return fields


def as_number(score: float) -> float:
    """Return a score for display. Whole numbers become integers, the form in which judges give them."""
    return int(score) if score.is_integer() and abs(score) <= _EXACT else score


def mark_lists_stale(
    connection: sa.Connection, *conditions: sa.ColumnElement[bool]
) -> None:
    """Mark the edit lists of runs as outdated. They are filled again when they are next opened."""
    fills = sa.update(edit_score_fills).where(~edit_score_fills.c.stale, *conditions)
    connection.execute(fills.values(stale=True))


# --- fields of a row ------------------------------------------------------------------------------------------

_EMPTY = {
    name: value for name, value in EMPTY_ROW.items() if isinstance(value, dict | list)
} | {"attempts": 0}
"""Field values of a pending task."""


def _field_columns() -> dict[str, Column]:
    """Return the column or expression for each field of a row."""
    # Fields of `PER_FACTOR` stay empty, since they are in a separate table.
    columns: dict[str, Column] = {f.name: sa.null() for f in FIELDS}
    for field in FIELDS:
        # Names come from the task: another run may have received the same answer for the same rubric under another
        # name.
        for table in (items if field.table == "items" else judgements, tasks):
            if field.name in table.c:
                columns[field.name] = table.c[field.name]
    begun = sa.select(runs.c.created).where(runs.c.id == tasks.c.run_id)
    before = judgements.c.created < begun.correlate(tasks).scalar_subquery()
    return {
        **columns,
        # An answer that is older than the run was paid for by an earlier run.
        "cached": sa.func.coalesce(before, sa.false()),
        "status": sa.func.coalesce(judgements.c.status, PENDING),
        "position": tasks.c.position,
        "edit_type": items.c.edit_type,
        "metadata": items.c.metadata,
    }


FIELD_COLUMNS = _field_columns()
"""Columns and expressions over `JUDGED_TASKS`, keyed by the field of a row."""


class JudgementStore(Database):
    """The judgements of a store."""

    def done(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the status of each key that has a judgement."""
        query = sa.select(judgements.c.key, judgements.c.status)
        # In the order of the index, so that each of its pages is read once.
        rows = self._read_among(query, judgements.c.key, sorted(keys))
        return dict(map(tuple, rows))

    # --- writing ----------------------------------------------------------------------------------------------

    def write(self, batch: Sequence[Judgement]) -> None:
        """Store all of these judgements or none. A new judgement replaces a failure, but never a completed judgement.
        Replies accumulate.
        """
        # Sorted by key, so that two processes that write the same keys do not deadlock.
        in_order = sorted(batch, key=lambda judgement: judgement.key)
        self.write_rows(
            [
                {name: getattr(judgement, name) for name in _COLUMNS}
                for judgement in in_order
            ],
            {
                judgement.key: {name: getattr(judgement, name) for name in PER_FACTOR}
                for judgement in in_order
                if judgement.status == "ok"
            },
            [reply for judgement in in_order for reply in _reply_rows(judgement)],
        )

    def write_rows(
        self,
        rows: Sequence[Values],
        values: Mapping[str, Mapping[str, Values | None]],
        exchanges: Sequence[Values],
    ) -> None:
        """Store rows of `judgements` and of `replies`. `values` has the per-factor values, keyed by judgement key and
        field.
        """
        keys = [row["key"] for row in rows]
        try:
            new_scores = [
                row
                for key, fields in values.items()
                for row in _score_rows(key, fields)
            ]
        except (ValueError, TypeError, ArithmeticError) as error:
            raise ValueError(
                f"{self._name}: not a value that can be stored: {error}"
            ) from error

        def work(connection: sa.Connection) -> None:
            written = new_scores
            if insert(connection, _replace_failures(self._dialect), rows) < len(rows):
                # An already completed judgement keeps its content and its scores.
                ours = _just_written(connection, rows)
                written = [row for row in new_scores if row["key"] in ours]
            insert(connection, upsert(self._dialect, scores), written)
            # A key with an answer needs no claim. It is released in the same transaction, so that no other process
            # asks it in between.
            for chunk in chunks(keys, MAX_IN):
                connection.execute(sa.delete(claims).where(claims.c.key.in_(chunk)))
            insert(connection, upsert(self._dialect, replies), exchanges)
            # Few stores have an up-to-date list during a run.
            fresh = sa.select(edit_score_fills.c.run_id).where(
                ~edit_score_fills.c.stale
            )
            if connection.execute(fresh.limit(1)).first():
                for chunk in chunks(keys, MAX_IN):
                    asking = sa.select(tasks.c.run_id).where(tasks.c.key.in_(chunk))
                    mark_lists_stale(connection, edit_score_fills.c.run_id.in_(asking))

        self._transact(work)

    # --- reading ----------------------------------------------------------------------------------------------

    def judgement(self, key: str) -> Judgement | None:
        """Return the stored judgement for a key, or None if the store has no judgement for it. It has only the
        exchanges of its own attempt.
        """
        rows = self._read(sa.select(judgements).where(judgements.c.key == key))
        if not rows:
            return None
        values = rows[0]._asdict()
        for name in ("attempts", "usage", "server_model"):
            del values[name]  # derived from the exchanges
        for name in ("violations", "notes", "reasons"):
            values[name] = _remarks(values[name])
        of_factors = self.factor_values([key]).get(key, {})
        values |= factor_fields(of_factors, values["status"])
        exchanges = tuple(self.replies(key, at=values["created"]))
        return Judgement(exchanges=exchanges, **values)

    def scores(self, keys: Iterable[str]) -> dict[str, dict[str, float]]:
        """Return the scores of these judgements, keyed by judgement key and factor. Judgements without scores are left
        out.
        """
        values = self.factor_values(keys)
        return {
            key: fields["scores"]
            for key, fields in values.items()
            if "scores" in fields
        }

    def factor_values(self, keys: Iterable[str]) -> dict[str, FactorValues]:
        """Return the per-factor values of these judgements, keyed by judgement key, field (such as `scores`) and
        factor.
        """
        columns = (scores.c[column] for column in PER_FACTOR.values())
        query = sa.select(scores.c.key, scores.c.factor, *columns)
        query = query.order_by(scores.c.key, scores.c.position)
        values: dict[str, FactorValues] = {}
        rows = self._read_among(query, scores.c.key, keys)
        for key, group in groupby(rows, itemgetter(0)):
            fields = values[key] = {}
            for _, factor, *cells in group:
                for name, cell in zip(PER_FACTOR, cells, strict=True):
                    if cell is not None:
                        number = as_number(cell) if name == "scores" else cell
                        fields.setdefault(name, {})[factor] = number
        return values

    def replies(self, key: str, at: float | None = None) -> list[Exchange]:
        """Return all exchanges for a key, including those of failed attempts. With `at`, return only the exchanges of
        the judgement made at that time.
        """
        query = sa.select(replies).where(replies.c.key == key).order_by(replies.c.id)
        if at is not None:
            query = query.where(replies.c.at == at)
        exchanges = []
        for row in self._read(query):
            values = {name: getattr(row, name) for name in _EXCHANGE_COLUMNS}
            values |= {"usage": Usage(**row.usage), "reasons": _remarks(row.reasons)}
            exchanges.append(Exchange(text=unpacked(row.text), **values))
        return exchanges

    def replies_of(self, run: RunRecord) -> Iterator[Values]:
        """Yield every raw reply to a run's questions, ordered by key."""
        keys = sa.select(tasks.c.key).where(tasks.c.run_id == run.id)
        columns = [column for column in replies.columns if column is not replies.c.id]
        query = sa.select(*columns).where(replies.c.key.in_(keys))
        for row in self.stream(query.order_by(replies.c.key, replies.c.id)):
            yield row._asdict() | {"text": unpacked(row.text)}

    def judgements(
        self,
        run: RunRecord | int,
        *,
        fields: Collection[str] = (),
        **where: str | int | Collection[str] | None,
    ) -> Iterator[JudgementRow]:
        """Yield the tasks of a run in order, each with its judgement. A task without a judgement has the status
        `pending`.

        A row has the fields of `editjudge.judgement.row`, then `position`, `edit_type` and `metadata`. If `fields` is
        given, it has only these, which is several times faster if only scores are needed. `where` selects rows by any
        field with a plain value, such as `judge="measured"` or `status=["invalid", "refused"]`.
        """
        if unknown := [name for name in (*fields, *where) if name not in FIELD_COLUMNS]:
            raise TypeError(
                f"judgements have no field {unknown[0]!r}{did_you_mean(unknown[0], FIELD_COLUMNS)}"
            )
        names = [name for name in FIELD_COLUMNS if name in (fields or FIELD_COLUMNS)]
        per_factor = [name for name in names if name in PER_FACTOR]
        columns = [FIELD_COLUMNS[name].label(f"field_{name}") for name in names]
        marks = (tasks.c.position, tasks.c.key, FIELD_COLUMNS["status"])
        query = sa.select(*columns, *marks).select_from(JUDGED_TASKS)
        query = query.where(tasks.c.run_id == run_id(run))
        for name, value in where.items():
            column = FIELD_COLUMNS[name]
            if isinstance(value, str | int | None):
                query = query.where(column == value)
            else:
                query = query.where(column.in_(list(value)))
        if "item" in where:
            # Sorted here, since SQLite scans the whole run for ORDER BY position.
            rows = iter(sorted(self._read(query), key=lambda row: row.position))
        else:
            rows = self.stream(query.order_by(tasks.c.position))
        for chunk in chunks(rows, MAX_IN):
            answers: dict[str, FactorValues] = {}
            if per_factor:
                answers = self.factor_values(
                    row[-2] for row in chunk if row[-1] == "ok"
                )
            for *cells, _, key, status in chunk:
                row = dict(zip(names, cells, strict=True))
                row |= factor_fields(answers.get(key, {}), status, per_factor)
                if status == PENDING:
                    row |= {name: _EMPTY[name] for name in names if name in _EMPTY}
                elif row.get("violations"):
                    codes = (remark["code"] for remark in row["violations"])
                    row["violations"] = list(dict.fromkeys(codes))
                yield cast("JudgementRow", row)

    def mean_latency(self, judge: str) -> float | None:
        """Return the mean number of seconds that a judge took to reply, or None if the store has no live replies from
        it.
        """
        query = sa.select(sa.func.avg(replies.c.latency)).join(
            judgements, judgements.c.key == replies.c.key
        )
        ((latency,),) = self._read(query.where(judgements.c.judge == judge))
        return None if latency is None else float(latency)


@functools.cache
def _replace_failures(dialect: str) -> sa.Insert:
    """Return the statement that writes judgements. It replaces existing ones only if they are not completed."""

    def is_done(table: sa.Table, _new: NewRow) -> sa.ColumnElement[bool]:
        return sa.or_(*(table.c.status == status for status in DONE))

    return upsert(dialect, judgements, _COLUMNS[1:], unless=is_done)


def run_id(run: RunRecord | int) -> int:
    return run.id if isinstance(run, RunRecord) else run


def insert(
    connection: sa.Connection, statement: sa.Insert, rows: Sequence[Values]
) -> int:
    """Insert rows, and return how many were written."""
    if not rows:
        return 0
    # Not an option of the statement: that would be a copy, whose cache key is made again.
    counted = {"preserve_rowcount": True}
    return connection.execute(statement, rows, execution_options=counted).rowcount


def _just_written(connection: sa.Connection, rows: Sequence[Values]) -> set[str]:
    """Return the keys for which the stored judgement is exactly the one in these rows."""
    made = {row["key"]: (row["status"], row["created"]) for row in rows}
    query = sa.select(judgements.c.key, judgements.c.status, judgements.c.created)
    keys = set()
    for chunk in chunks(made, MAX_IN):
        among = query.where(judgements.c.key.in_(chunk))
        for key, *stored in connection.execute(among):
            if made[key] == tuple(stored):
                keys.add(key)
    return keys
