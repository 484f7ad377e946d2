"""Reads and writes a store: runs, their items and tasks, and what judges said, whichever run asked first.

One thread writes, any number read, in this process and in others; on a server any number write.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import operator
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, groupby, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import sqlalchemy as sa

import editjudge
from editjudge.canonical import json_hash
from editjudge.edit import UNREAD, Content, is_unread
from editjudge.errors import StoreError, StoreMoved, UsageError, near_miss
from editjudge.judgement import DONE, EMPTY_ROW, FIELDS, PER_FACTOR, Exchange, Judgement, Task, Usage
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.verdict import Remark
from editjudge.store import location as places
from editjudge.store import schema
from editjudge.store.records import PENDING, Item, RunRecord, State
from editjudge.store.rows import (
    EXCHANGE_COLUMNS,
    JUDGEMENT_COLUMNS,
    REPLY_COLUMNS,
    SCORE_COLUMNS,
    BulkInsert,
    encoder,
    factor_values,
    json_column,
    judgement_row,
    plain_encoder,
    reply_rows,
    score_rows,
    unpacked,
)
from editjudge.store.schema import (
    FactorValues,
    as_fields,
    batch_lines,
    claims,
    digests,
    edit_annotations,
    items,
    judgements,
    meta,
    of_factors,
    ratings,
    replies,
    rubrics,
    runs,
    scores,
    scores_as_json,
    scores_from_json,
    tasks,
    upsert,
    views,
)

T = TypeVar("T")
Row: TypeAlias = Any
"""Of a query; what SQLAlchemy calls it has another number of parameters in each of its versions."""


R = TypeVar("R", Item, Task)


class Store:
    """Open one with `Store.open`; it is a context manager."""

    def __init__(self, engine: sa.Engine, place: str, readonly: bool, timeout: float) -> None:
        self._engine, self._place, self._readonly, self._timeout = engine, place, readonly, timeout
        self._write_engine = engine.execution_options(writes=True)
        self._dialect = engine.dialect.name
        self._patience = 0.0
        """Seconds: none for a server that was never there."""
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._held: places.HeldFile | None = None
        self._moving = threading.Lock()
        self._moved = ""
        """Message for every writer once the file has lost its name; empty before."""

    @classmethod
    def open(cls, url_or_path: str | os.PathLike[str], readonly: bool = False, timeout: float = 30.0) -> Store:
        """Open the store at a path or a URL, and make it unless `readonly`.

        `timeout` is how long to wait, in seconds, for another process that writes: a group of judgements takes
        milliseconds, 10,000 rows of a plan or of a run that is removed some seconds on a busy disk. It is also how
        long a server that was there once may be gone.
        """
        engine, place = places.engine_of(url_or_path, readonly, timeout)
        store = cls(engine, place, readonly, timeout)
        try:
            store._prepare()
            if engine.dialect.name == "sqlite" and not readonly:
                store._held = places.HeldFile(Path(place), timeout)
        except BaseException:  # nobody else knows of it
            store.close()
            raise
        return store

    def _prepare(self) -> None:
        if self._dialect == "sqlite" and os.path.exists(self._place) and os.path.getsize(self._place):
            # Opening it would already change it: what is not a store stays as it is, to the byte.
            with self._explaining(), places.looking(self._place, self._timeout) as connection:
                schema.found(connection, self._place)
        with self._reading() as connection:
            stored = schema.found(connection, self._place)
        if stored != schema.version():
            if not self._readonly:
                self._bring_up_to_date()
            elif stored is not None and self._dialect == "sqlite":
                self._read_migrated_copy()
            else:
                what = "is empty" if stored is None else f"was written by editjudge {schema.release_of(stored)}"
                raise StoreError(f"{self._place}: {what} and is opened for reading only: open it once for writing")
        self._patience = self._timeout

    def _bring_up_to_date(self) -> None:
        """Make the tables, or migrate them; a file is copied first, and the copy is left beside it."""
        copy = None
        try:
            with self._writing() as connection:
                # Looked at again now that nobody else writes: another process may have migrated it meanwhile.
                stored = schema.found(connection, self._place)
                if stored not in (None, schema.version()) and self._dialect == "sqlite":
                    with self._reading() as reading:
                        copy = places.keep_copy(reading, self._place, schema.release_of(stored or 0))
                schema.bring_up_to_date(connection, self._place)
        except Exception:
            if copy:  # nothing was migrated, so that it is the copy of nothing
                copy.unlink(missing_ok=True)
            raise
        if copy:
            logging.getLogger(__name__).warning("%s: migrated; as it was before it is kept as %s", self._place, copy)

    def _read_migrated_copy(self) -> None:
        """Reading does not write, so an older file is migrated in a temporary copy, which is what is read."""
        self._temporary = tempfile.TemporaryDirectory(prefix="editjudge-")
        path = os.path.join(self._temporary.name, "store.db")
        with self._reading() as connection:
            places.copy_file(connection, path)
        copied, _ = places.engine_of(path, readonly=False, timeout=self._timeout)
        with self._explaining(), copied.execution_options(writes=True).begin() as connection:
            schema.bring_up_to_date(connection, self._place)
        copied.dispose()
        self._engine.dispose()
        self._engine, _ = places.engine_of(path, readonly=True, timeout=self._timeout)

    @property
    def place(self) -> str:
        """What to call it: the path, or the address without its password."""
        return self._place

    def close(self) -> None:
        self._engine.dispose()
        if self._held:
            self._held.close()
        if self._temporary:
            self._temporary.cleanup()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with self._patiently(self._connected) as connection, self._explaining():
            yield connection

    def _connected(self) -> sa.Connection:
        self._follow_file()
        with self._explaining():
            return self._engine.connect()

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        if self._readonly:
            raise StoreError(f"{self._place}: opened for reading only, so nothing can be written")
        self._follow_file()
        with self._explaining(), self._write_engine.begin() as connection:
            yield connection
        self._follow_file()
        if self._moved:
            raise StoreMoved(self._moved)

    def _follow_file(self) -> None:
        """Go on in a copy where the file was deleted, renamed or replaced meanwhile: what is on its way is kept there,
        and whoever writes is told."""
        held = self._held
        if held is None or held.has_its_names():
            return
        with self._moving:
            if self._held is held:  # no other thread was faster
                self._go_on_in_copy_of(held)

    def _go_on_in_copy_of(self, held: places.HeldFile) -> None:
        problem = f"{self._place}: the file, its -wal or its -shm was deleted, renamed or replaced during this run"
        try:
            copy = held.save_copy()
            engine, _ = places.engine_of(copy, readonly=False, timeout=self._timeout)
            held_copy = places.HeldFile(copy, self._timeout)
        except (OSError, sqlite3.Error, StoreError) as error:
            self._moved = f"{problem}, and what was kept in it could not be copied: {error}"
            self._held = None
            return
        self._moved = (
            f"{problem}. All answers, those that came after it included, are in {copy}: rename it to {self._place}, or "
            f"give it with --store, and run again, which resumes"
        )
        self._engine.dispose()
        self._engine = engine
        self._write_engine = engine.execution_options(writes=True)
        self._place = str(copy)
        self._held = held_copy
        held.close()

    def _transact(self, work: Callable[[sa.Connection], T]) -> T:
        """Work in one transaction, and once more where the server broke off before it said that it was kept: each row
        has its key, so that writing it twice is writing it once."""

        def once() -> T:
            with self._writing() as connection:
                return work(connection)

        return self._patiently(once)

    def _patiently(self, work: Callable[[], T]) -> T:
        """Try again what a server may do in a moment: one that restarts is back in seconds."""
        pause, end = 0.05, time.monotonic() + self._patience
        while True:
            try:
                return work()
            except StoreError as error:
                if not places.may_pass(error.__cause__) or time.monotonic() + pause > end:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DataError as error:  # a value that the database does not take, such as a number out of range
            raise ValueError(f"{self._place}: not a value that can be stored: {error.orig}") from error
        except sa.exc.DBAPIError as error:
            raise StoreError(f"{self._place}: {places.remedy(error.orig, self._timeout)}") from error
        except sa.exc.StatementError as error:  # a value that could not be made a column, before the database saw it
            raise ValueError(f"{self._place}: not a value that can be stored: {error.orig}") from error

    # --- runs -------------------------------------------------------------------------------------------------

    def open_run(self, name: str, spec: Mapping[str, Any]) -> RunRecord:
        """The run of this name: a new one, or the one that is there if it has the same spec."""
        spec_hash, now = json_hash(spec), time.time()
        new = {"name": name, "spec": dict(spec), "spec_hash": spec_hash, "state": "running", "created": now}
        run = self._open_run({**new, "updated": now, "summary": None, "version": editjudge.__version__})
        if run.state == "running":
            return run
        resumed = dataclasses.replace(run, state="running", updated=now)
        values = {"state": resumed.state, "updated": resumed.updated}
        self._transact(lambda connection: connection.execute(_at_run(run).values(values)))
        return resumed

    def _open_run(self, new: Mapping[str, Any]) -> RunRecord:
        def work(connection: sa.Connection) -> RunRecord:
            here = sa.select(runs).where(runs.c.name == new["name"])
            # Not the insertion alone: on a server one that finds the row there uses up a number all the same.
            if (row := connection.execute(here).one_or_none()) is None:
                connection.execute(upsert(self._dialect, runs), new)
                row = connection.execute(here).one()
            run = _run(row)
            if run.spec_hash != new["spec_hash"]:
                differ = ", ".join(_differences(run.spec, json.loads(json.dumps(new["spec"]))))
                raise StoreError(
                    f'{self._place}: there is a run "{run.name}" with another spec; what differs: {differ}. '
                    "Give this run another name, or run with the same options to resume"
                )
            return run

        return self._transact(work)

    def mark(self, run: RunRecord | int, state: State, summary: Mapping[str, Any] | None = None) -> None:
        """Say what became of a run."""
        values = {"state": state, "updated": time.time(), "summary": None if summary is None else dict(summary)}
        self._transact(lambda connection: connection.execute(_at_run(run).values(values)))

    def runs(self) -> list[RunRecord]:
        return [_run(row) for row in self._read(sa.select(runs).order_by(runs.c.id))]

    def run_of(self, number: int) -> RunRecord | None:
        """The run of this id."""
        return next((_run(row) for row in self._read(sa.select(runs).where(runs.c.id == number))), None)

    def find_run(self, word: str | int) -> RunRecord:
        """The run of this name, else the one of this id."""
        known = self.runs()
        for run in (*(r for r in known if r.name == word), *(r for r in known if str(r.id) == str(word))):
            return run
        names = [run.name for run in known]
        latest = f" The latest: {', '.join(names[:-6:-1])}"
        hint = near_miss(str(word), names) + latest if known else ": it has none yet."
        raise UsageError(f'{self._place}: no run "{word}"{hint}')

    def remove_run(self, run: RunRecord | int) -> None:
        """Delete a run, and the judgements and replies that no other run refers to.

        In several transactions, so that others who write need not wait; the run goes last, so what was interrupted is
        finished by doing it again.
        """
        mine = tasks.c.run_id == _id(run)
        first = sa.select(sa.func.min(tasks.c.position)).where(mine).scalar_subquery()
        some = mine & (tasks.c.position < first + _ROWS)
        other = tasks.alias("other")
        shared = sa.exists().where(other.c.key == tasks.c.key, other.c.run_id != _id(run))
        keys = sa.select(tasks.c.key).where(some, ~shared)

        def remove_some(connection: sa.Connection) -> int:
            if self._dialect == "postgresql":  # as in SQLite: nobody adds a task that shares a key meanwhile
                connection.execute(sa.text("LOCK TABLE tasks IN SHARE ROW EXCLUSIVE MODE"))
            for table in (replies, scores, judgements):
                connection.execute(sa.delete(table).where(table.c.key.in_(keys)))
            return connection.execute(sa.delete(tasks).where(some)).rowcount

        def remove_rest(connection: sa.Connection) -> None:
            for table in (views, items):
                connection.execute(sa.delete(table).where(table.c.run_id == _id(run)))
            connection.execute(sa.delete(meta).where(meta.c.name == _outline_name(run)))
            connection.execute(sa.delete(runs).where(runs.c.id == _id(run)))

        while self._transact(remove_some):
            pass
        self._transact(remove_rest)

    def counts(self, run: RunRecord | int) -> dict[tuple[str, str, str], int]:
        """How many tasks of a run have which status, by (judge, rubric, status)."""
        by = (tasks.c.judge, tasks.c.rubric, judgements.c.status)
        query = sa.select(*by, sa.func.count()).select_from(tasks.outerjoin(judgements, _SAME_KEY & _FROM_INDEX))
        rows = self._read(query.where(tasks.c.run_id == _id(run)).group_by(*by))
        return dict(sorted(((judge, rubric, status or PENDING), count) for judge, rubric, status, count in rows))

    def score_sums(self, run: RunRecord | int) -> tuple[Sequence[Row], Sequence[Row]]:
        """For a summary: judge, model, rubric, status and the number of tasks, in the order in which the tasks come
        first; and judge, model, rubric, factor, the number of scores and their sum."""
        place = (tasks.c.judge, items.c.model, tasks.c.rubric)
        of_run, first = tasks.c.run_id == _id(run), sa.func.min(tasks.c.position)
        counts = sa.select(*place, judgements.c.status, sa.func.count()).select_from(_STATUS_ALONE).where(of_run)
        factors = tasks.outerjoin(items, _SAME_ITEM).join(scores, scores.c.key == tasks.c.key)
        given = (scores.c.factor, sa.func.count(), sa.func.sum(scores.c.score))
        sums = sa.select(*place, *given).select_from(factors).where(of_run, scores.c.score.is_not(None))
        return (
            self._read(counts.group_by(*place, judgements.c.status).order_by(first)),
            self._read(sums.group_by(*place, scores.c.factor)),
        )

    # --- what a run asks --------------------------------------------------------------------------------------

    def add_rubrics(self, added: Iterable[Rubric]) -> None:
        """Keep the questions, so that each score can be traced to its own."""
        rows = [{"hash": r.hash, "name": r.name, "content": r.content()} for r in added]
        self._insert(upsert(self._dialect, rubrics), rows)

    def rubrics(self) -> dict[str, dict[str, Any]]:
        """Hash to name and content."""
        rows = self._read(sa.select(rubrics).order_by(rubrics.c.name, rubrics.c.hash))
        return {row.hash: {"name": row.name, "content": row.content} for row in rows}

    def add_items(self, run: RunRecord | int, rows: Iterable[Item], start: int = 0) -> int:
        """Keep edits of a run at the positions from `start` on; returns the next position. Idempotent."""
        for some in _chunks(rows, _ROWS):
            self.add_batch(run, some, start, [], 0, {})
            start += len(some)
        return start

    def add_tasks(self, run: RunRecord | int, added: Iterable[Task], start: int = 0) -> int:
        """Keep tasks of a run at the positions from `start` on; returns the next position. Idempotent."""
        for some in _chunks(added, _ROWS):
            self.add_batch(run, [], 0, some, start, {})
            start += len(some)
        return start

    def add_outline(
        self,
        run: RunRecord | int,
        edits: Sequence[Item],
        first_edit: int,
        planned: Sequence[tuple[int, Task]],
        judges: Sequence[str],
        *,
        resumed: bool,
    ) -> None:
        """Keep edits whose pictures were not read yet and all of their tasks by these judges, each with its position,
        before any is planned. What the run has already stays.

        On a run that is `resumed`, tasks of these edits that are not among `planned` leave the run's view, and an edit
        that the manifest describes otherwise by now is pending again. What was judged stays in the store.
        """
        run_id = _id(run)
        changed: set[str] = set()
        gone: list[dict[str, Any]] = []
        if resumed:
            changed = self._changed_edits(run_id, edits)
            gone = self._tasks_without(run_id, edits, changed, judges, {_place(task) for _, task in planned})
        numbered = list(enumerate(edits, first_edit))
        new_items = [(run_id, position, *item, Content.of(item).key()) for position, item in numbered]
        encoded_items = self._bulk_inserts[items].encoded(new_items)
        encoded_tasks = self._bulk_inserts[tasks].encoded((run_id, position, *task) for position, task in planned)
        changed_items = [row for row, item in zip(encoded_items, edits, strict=True) if item.item in changed]

        def work(connection: sa.Connection) -> None:
            if gone:
                connection.execute(_DROP_TASK, gone)
            self._bulk_inserts[items].execute(connection, changed_items)
            added = self._outline_inserts[items].execute(connection, encoded_items)
            added += self._outline_inserts[tasks].execute(connection, encoded_tasks)
            if gone or changed_items or added:
                connection.execute(_FORGET_SUMMARY, {"run": run_id})

        self._transact(work)

    def _changed_edits(self, run_id: int, edits: Sequence[Item]) -> set[str]:
        """The ids of the edits that the run has and that are not the same any more, as far as a manifest says it."""
        query = sa.select(*_ITEM_COLUMNS).where(items.c.run_id == run_id)
        now = {item.item: item for item in edits}
        stored = (Item(*row) for row in self._read_among(query, items.c.item, now))
        return {item.item for item in stored if not _is_described_alike(item, now[item.item])}

    def _tasks_without(
        self,
        run_id: int,
        edits: Sequence[Item],
        changed: Collection[str],
        judges: Collection[str],
        planned: Collection[tuple[str | int, ...]],
    ) -> list[dict[str, Any]]:
        """The tasks of edits that changed, and those by these judges that are not planned."""
        query = sa.select(*_TASK_COLUMNS).where(tasks.c.run_id == run_id)
        stored = (Task(*row) for row in self._read_among(query, tasks.c.item, [item.item for item in edits]))
        gone = [
            task for task in stored if task.item in changed or (task.judge in judges and _place(task) not in planned)
        ]
        return [{"of_run": run_id, **{f"of_{name}": getattr(task, name) for name in _PLACE}} for task in gone]

    @functools.cached_property
    def _outline_inserts(self) -> dict[sa.Table, BulkInsert]:
        """Statements like `_bulk_inserts` that leave an existing row as it is."""
        names = {items: ("run_id", "position", *Item._fields, "content"), tasks: ("run_id", "position", *Task._fields)}
        return {
            table: BulkInsert(self._engine.dialect, upsert(self._dialect, table), columns)
            for table, columns in names.items()
        }

    def has_items(self, run: RunRecord | int) -> bool:
        return bool(self._read(sa.select(items.c.item).where(items.c.run_id == _id(run)).limit(1)))

    def outline_of(self, run: RunRecord | int) -> tuple[str, int] | None:
        """The mark of the outline that was kept of a run, and its number of tasks; None where none is complete."""
        rows = self._read(sa.select(meta.c.value).where(meta.c.name == _outline_name(run)))
        if not rows:
            return None
        mark, _, expected = rows[0].value.rpartition(" ")
        return mark, int(expected)

    def mark_outline(self, run: RunRecord | int, mark: str, expected: int) -> None:
        """Say that all edits and tasks of a run are kept, as of a manifest known by this mark."""
        row = {"name": _outline_name(run), "value": f"{mark} {expected}"}
        statement = upsert(self._dialect, meta, ["value"])
        self._transact(lambda connection: connection.execute(statement, row))

    def add_batch(
        self,
        run: RunRecord | int,
        edits: Sequence[Item],
        first_edit: int,
        planned: Sequence[Task],
        first_task: int,
        learnt: Mapping[str, Mapping[str, Any]],
    ) -> dict[str, str]:
        """Keep edits, tasks and digests in one transaction: what a run plans at a time. Returns the status of each task
        that the run had already and that is judged, by key.

        Writes only what is not stored just so: on a run that is resumed nothing, and reading is far cheaper."""
        new_edits, stored_edits = self._changes(items, _id(run), edits, first_edit)
        new_tasks, stored_tasks = self._changes(tasks, _id(run), planned, first_task)
        rows: dict[sa.Table, list[tuple[Any, ...]]] = {
            items: [(_id(run), position, *item, Content.of(item).key()) for position, item in new_edits],
            tasks: [(_id(run), position, *task) for position, task in new_tasks],
            digests: list(_digest_rows(learnt)),
        }
        moves: Callable[[], dict[str, _Move]] | None = None
        if new_edits and stored_edits:
            moves = functools.partial(_read_at_last, stored_edits, [item for _, item in new_edits])
        self._insert_together(rows, changed_run=_id(run) if new_edits or new_tasks else None, moves=moves)
        wanted = {task.key for task in planned}
        return {row[_TASK_KEY]: row[-1] for row in stored_tasks if row[-1] and row[_TASK_KEY] in wanted}

    def _changes(
        self, table: sa.Table, run_id: int, rows: Sequence[R], start: int
    ) -> tuple[list[tuple[int, R]], list[tuple[Any, ...]]]:
        """The rows that are not stored just so at their positions, and what is stored there."""
        if not rows:
            return [], []
        place: dict[str, Any] = {"run": run_id, "first": start, "last": start + len(rows) - 1}
        if isinstance(rows[0], Task):  # each judge has positions of its own
            place["judges"] = sorted({row[_TASK_JUDGE] for row in rows})
        stored = self._plain_rows(_AT_POSITIONS[table], place)
        width = len(rows[0])
        if [row[:width] for row in stored] == [_PLAIN[table](row) for row in rows]:
            return [], stored
        by_position = {row[width]: row[:width] for row in stored}
        encode = _ENCODE[table]
        numbered = enumerate(rows, start)
        return [(at, row) for at, row in numbered if by_position.get(at) != encode(row)], stored

    def _insert_together(
        self,
        rows: Mapping[sa.Table, Sequence[tuple[Any, ...]]],
        changed_run: int | None = None,
        moves: Callable[[], dict[str, _Move]] | None = None,
    ) -> None:
        """Insert or refresh rows in one transaction. The summary of a run goes with what it summed up, and ratings move
        from one content to another with their edits."""
        encoded = {table: self._bulk_inserts[table].encoded(some) for table, some in rows.items() if some}

        def work(connection: sa.Connection) -> None:
            for table, some in encoded.items():
                self._bulk_inserts[table].execute(connection, some)
            if changed_run is not None:
                connection.execute(_FORGET_SUMMARY, {"run": changed_run})
            if moves is not None and changed_run is not None:
                self._move_opinions(connection, changed_run, moves)

        if encoded:
            self._transact(work)

    def _move_opinions(
        self, connection: sa.Connection, run_id: int, find_moves: Callable[[], dict[str, _Move]]
    ) -> None:
        """Move ratings and notes of edits whose images nobody had read to the edits as they are now.

        An output that was missing was not unread: what people said of it is not about an image made later. The lock
        comes before the look, so that no rating is written to the old content in between."""
        lock_ratings(connection)
        if not any(_has_unread(connection, table.c.content) for table in (ratings, edit_annotations)):
            return
        moves = find_moves()
        rated = _present(connection, ratings.c.content, moves)
        noted = _present(connection, edit_annotations.c.content, moves)
        about = {moves[old].item for old in (*rated, *noted)}
        query = sa.select(tasks.c.item).join(judgements, _SAME_KEY).distinct()
        query = query.where(tasks.c.run_id == run_id, judgements.c.status == "missing_output")
        missing: set[str] = set()
        for some in _chunks(sorted(about), _IN):
            missing.update(connection.scalars(query.where(tasks.c.item.in_(some))))
        for old in rated:
            if moves[old].item not in missing:
                _move_ratings(connection, self._dialect, old, moves[old].content)
        for old in noted:
            if moves[old].item not in missing:
                _move_annotation(connection, self._dialect, old, moves[old].content)

    def append(self, run: RunRecord | int, rows: Sequence[Item] | Sequence[Task]) -> None:
        """Keep edits or tasks after all that the run has; those that it has stay at their positions, so that a run
        without a manifest has no gaps either, which would be rows in whoever lists it."""
        table = items if isinstance(rows[0], Item) else tasks
        mine = table.c.run_id == _id(run)
        where = [column for column in table.primary_key if column is not table.c.run_id]
        known = sa.select(table.c.position, *where).where(mine, table.c.item.in_({row.item for row in rows}))

        def work(connection: sa.Connection) -> None:
            last = connection.scalar(sa.select(sa.func.max(table.c.position)).where(mine))
            following = count(0 if last is None else last + 1)
            positions = {tuple(place): position for position, *place in connection.execute(known)}
            by_place = {_place(row): row for row in rows}
            at = {place: positions[place] if place in positions else next(following) for place in by_place}
            new = [_at(_id(run), at[place], row) for place, row in by_place.items()]
            connection.execute(_refresh(self._dialect, table), new)
            connection.execute(_FORGET_SUMMARY, {"run": _id(run)})

        self._transact(work)

    def items(self, run: RunRecord | int, item: str | Collection[str] | None = None) -> Iterator[Item]:
        """The edits of a run in order, or those of these ids."""
        columns = [items.c[name] for name in Item._fields]
        query = sa.select(*columns).where(items.c.run_id == _id(run)).order_by(items.c.position)
        if item is not None:
            query = query.where(items.c.item.in_([item] if isinstance(item, str) else item))
        for row in self._stream(query):
            yield Item(*row)

    def item_ids(self, run: RunRecord | int) -> set[str]:
        return {item for (item,) in self._stream(sa.select(items.c.item).where(items.c.run_id == _id(run)))}

    def drop_items(self, run: RunRecord | int, ids: Collection[str]) -> None:
        """Take edits out of a run's view. What was judged of them stays, and is there again if they come back."""
        for some in _chunks(sorted(ids), _IN):

            def drop(connection: sa.Connection, some: list[str] = some) -> None:
                for table in (tasks, items):
                    connection.execute(sa.delete(table).where(table.c.run_id == _id(run), table.c.item.in_(some)))
                connection.execute(_FORGET_SUMMARY, {"run": _id(run)})

            self._transact(drop)

    # --- what judges said -------------------------------------------------------------------------------------

    def done(self, keys: Sequence[str]) -> dict[str, str]:
        """The status of each key that a judgement is kept of."""
        # In the order of the index, so that each of its pages is read once.
        return dict(map(tuple, self._read_among(_STATUSES, judgements.c.key, sorted(keys))))

    def write(self, batch: Sequence[Judgement]) -> None:
        """Keep judgements, all or none. A later one replaces a failure, never what is done; replies only add up."""
        # In the order of keys, so that two who write the same ones wait for each other and not in a circle.
        in_order = sorted(batch, key=lambda judgement: judgement.key)
        exchanges = [reply for judgement in in_order for reply in reply_rows(judgement)]
        self._write(list(map(judgement_row, in_order)), factor_values(in_order), exchanges)

    def _write(
        self,
        rows: Sequence[tuple[Any, ...]],
        given: Mapping[str, Mapping[str, Mapping[str, Any] | None]],
        exchanges: Sequence[dict[str, Any]],
    ) -> None:
        """Keep rows of `judgements`, the values of their factors by key, and rows of `replies`."""
        into_judgements, into_scores, into_replies = (self._bulk_inserts[t] for t in (judgements, scores, replies))
        try:
            new_judgements = into_judgements.encoded(rows)
            new_scores = into_scores.encoded(row for key, fields in given.items() for row in score_rows(key, fields))
            new_replies = into_replies.encoded(map(operator.itemgetter(*REPLY_COLUMNS), exchanges))
        except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
            raise ValueError(f"{self._place}: not a value that can be stored: {error}") from error

        def work(connection: sa.Connection) -> None:
            if into_judgements.execute(connection, new_judgements) == len(rows):
                into_scores.execute(connection, new_scores)
            else:  # one that was done before stays as it was, and so do its scores
                ours = _written(connection, rows)
                into_scores.execute(connection, [row for row in new_scores if row[0] in ours])
            # What is answered is claimed by nobody: in the same transaction, so that nobody asks it in between.
            for some in _chunks((row[_KEY] for row in rows), _IN):
                connection.execute(_UNCLAIM, {"keys": some})
            into_replies.execute(connection, new_replies)

        self._transact(work)

    @functools.cached_property
    def _bulk_inserts(self) -> dict[sa.Table, BulkInsert]:
        """By table: rows are tuples of the columns named here."""
        name = self._dialect
        statements = {
            judgements: (upsert(name, judgements, JUDGEMENT_COLUMNS[1:], unless=_is_done), JUDGEMENT_COLUMNS),
            scores: (upsert(name, scores), SCORE_COLUMNS),
            replies: (upsert(name, replies), REPLY_COLUMNS),
            digests: (upsert(name, digests, _DIGEST_COLUMNS[1:]), _DIGEST_COLUMNS),
            items: (_refresh(name, items), ("run_id", "position", *Item._fields, "content")),
            tasks: (_refresh(name, tasks), ("run_id", "position", *Task._fields)),
        }
        return {
            table: BulkInsert(self._engine.dialect, statement, columns)
            for table, (statement, columns) in statements.items()
        }

    def judgement(self, key: str) -> Judgement | None:
        """What is kept of a key, with the exchanges of that try alone."""
        rows = self._read(sa.select(judgements).where(judgements.c.key == key))
        if not rows:
            return None
        values = rows[0]._asdict()
        for name in ("attempts", "usage", "server_model"):  # they follow from the exchanges
            del values[name]
        for name in ("violations", "notes", "reasons"):
            values[name] = _remarks(values[name])
        values |= as_fields(self.factor_values([key]).get(key, {}), values["status"])
        return Judgement(exchanges=tuple(self.replies(key, at=values["created"])), **values)

    def scores(self, keys: Iterable[str]) -> dict[str, dict[str, float]]:
        """The scores of each of these judgements that has some, by factor."""
        given = self.factor_values(keys)
        return {key: fields["scores"] for key, fields in given.items() if "scores" in fields}

    def factor_values(self, keys: Iterable[str]) -> dict[str, FactorValues]:
        """What each of these judgements says of its factors: by field, such as `scores` or `choices`, and factor."""
        rows = self._read_among(_SCORES, scores.c.key, keys)
        return {key: of_factors(v for _, *v in some) for key, some in groupby(rows, operator.itemgetter(0))}

    def replies(self, key: str, at: float | None = None) -> list[Exchange]:
        """Every exchange ever had for a key, also those of tries that failed; or those of the judgement made `at`."""
        query = sa.select(replies).where(replies.c.key == key).order_by(replies.c.id)
        return [_exchange(row) for row in self._read(query if at is None else query.where(replies.c.at == at))]

    def judgements(
        self, run: RunRecord | int, *, fields: Collection[str] = (), **where: str | int | Collection[str] | None
    ) -> Iterator[dict[str, Any]]:
        """The tasks of a run in order, each with what is kept of it; without a judgement its status is `pending`.

        A row has the fields of `editjudge.judgement.row`, then `position`, `edit_type` and `metadata`; or only
        `fields`, which is several times faster where scores are all that is wanted. `where` picks rows by any field
        that holds a plain value, such as `judge="measured"` or `status=["invalid", "refused"]`.
        """
        if unknown := [name for name in (*fields, *where) if name not in _FIELDS]:
            raise TypeError(f"judgements have no field {unknown[0]!r}{near_miss(unknown[0], _FIELDS)}")
        names = [name for name in _FIELDS if name in (fields or _FIELDS)]
        per_factor = [name for name in names if name in PER_FACTOR]
        columns = {name: _FIELDS[name] for name in names}
        texts = [scores_as_json(self._dialect, tasks.c.key)] if per_factor else []
        query = sa.select(*map(schema.stored, columns.values()), *texts, tasks.c.key, _FIELDS["status"])
        query = query.select_from(_EVERYTHING if {*names, *where} - _IN_INDEX else _STATUS_ALONE)
        query = query.where(tasks.c.run_id == _id(run)).order_by(tasks.c.position)
        for name, value in where.items():
            column = _FIELDS[name]
            query = query.where(column == value if isinstance(value, str | int | None) else column.in_(list(value)))
        decoders = [(name, decode) for name, column in columns.items() if (decode := schema.decoder(column))]
        for some in _chunks(self._stream(query), _IN):
            given = self._factor_values_of(some) if per_factor else {}
            for row in some:
                values = dict(zip(columns, row, strict=False))
                for name, decode in decoders:
                    if (value := values[name]) is not None:
                        values[name] = decode(value)
                if per_factor:
                    values |= as_fields(given.get(row[-2]) or {}, row[-1], per_factor)
                yield _shown(values, row[-1])

    def _factor_values_of(self, rows: Iterable[Row]) -> dict[str, FactorValues | None]:
        """By key, from rows that end in the text of `scores_as_json`, the key and the status."""
        given = {row[-2]: scores_from_json(row[-3]) for row in rows if row[-1] == "ok"}
        return {**given, **self.factor_values([key for key, values in given.items() if values is None])}

    def has_batches(self) -> bool:
        """Whether questions may wait for their answers at a provider."""
        return bool(self._read(sa.select(batch_lines.c.key).limit(1)))

    # --- digests of picture files -----------------------------------------------------------------------------

    def save_digests(self, remembered: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep what `editjudge.media.image.Digests.dump` answers."""
        self._insert_together({digests: list(_digest_rows(remembered))})

    def load_digests(self, paths: Sequence[str] | None = None) -> dict[str, dict[str, Any]]:
        """What `editjudge.media.image.Digests.load` takes: of these files, or of all."""
        query = sa.select(digests)
        rows = self._read(query) if paths is None else self._read_among(query, digests.c.path, paths)
        entries = [row._asdict() for row in rows]
        return {entry.pop("path"): entry for entry in entries}

    # --- statements -------------------------------------------------------------------------------------------

    def _insert(self, statement: sa.Insert, rows: Iterable[dict[str, Any]]) -> int:
        count = 0
        for some in _chunks(rows, _ROWS):
            self._transact(functools.partial(sa.Connection.execute, statement=statement, parameters=some))
            count += len(some)
        return count

    def _read(self, query: sa.Select[Any], values: Mapping[str, Any] | None = None) -> Sequence[Row]:
        """What fits into memory."""

        def once() -> Sequence[Row]:
            with self._reading() as connection:
                return connection.execute(query, values).all()

        return self._patiently(once)

    def _read_among(self, query: sa.Select[Any], column: sa.Column[str], values: Iterable[str]) -> Iterator[Row]:
        """The rows of which the column has one of these values, however many."""
        among = query.where(schema.stored(column).in_(sa.bindparam("among", expanding=True)))
        for some in _chunks(map(getattr(column.type, "encode", str), values), _IN):
            yield from self._read(among, {"among": some})

    def _plain_rows(self, query: sa.Select[Any], values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """As the driver gives them: for columns that need no decoding, in half the time."""

        def once() -> list[tuple[Any, ...]]:
            with self._reading() as connection, connection.execute(query, values) as result:
                return list(result.cursor.fetchall())

        return self._patiently(once)

    def _stream(self, query: sa.Select[Any]) -> Iterator[Row]:
        with (
            self._reading() as connection,
            connection.execution_options(yield_per=_FETCH).execute(query) as rows,
        ):
            yield from rows


_IN = 900
"""Values of one IN: below 999, the usual limit of older SQLites. 300 and 5,000 were no faster beyond noise."""
_ROWS = 10_000
"""Rows of one transaction when a run is planned or removed: judgements of other runs wait their turn meanwhile."""
_FETCH = 1_000
"""Rows fetched at a time: what a reader of a million rows holds in memory."""

_SAME_KEY = judgements.c.key == tasks.c.key
_SAME_ITEM = sa.and_(items.c.run_id == tasks.c.run_id, items.c.item == tasks.c.item)
_EVERYTHING = tasks.outerjoin(items, _SAME_ITEM).outerjoin(judgements, _SAME_KEY)
# Always true, and not for nothing: with it SQLite takes the index that has the status too. Without, it takes that of
# the primary key and reads a page of the table for each: half as fast with all in memory.
_FROM_INDEX = judgements.c.status >= ""
_STATUS_ALONE = tasks.outerjoin(items, _SAME_ITEM).outerjoin(judgements, _SAME_KEY & _FROM_INDEX)
_STATUSES = sa.select(judgements.c.key, judgements.c.status).where(_FROM_INDEX)
_SCORES = sa.select(scores.c.key, scores.c.factor, *(scores.c[column] for column in PER_FACTOR.values())).order_by(
    scores.c.key, scores.c.position
)

# Edits and tasks of a run as they are stored, with their positions; of tasks the status too.
_ITEM_COLUMNS, _TASK_COLUMNS = [items.c[name] for name in Item._fields], [tasks.c[name] for name in Task._fields]
_TASK_KEY, _TASK_JUDGE = map(Task._fields.index, ("key", "judge"))


def _at_positions(table: sa.Table, columns: Sequence[sa.Column[Any]], *more: sa.ColumnElement[Any]) -> sa.Select[Any]:
    between = table.c.position.between(sa.bindparam("first"), sa.bindparam("last"))
    query = sa.select(*map(schema.stored, columns), table.c.position, *more)
    return query.where(table.c.run_id == sa.bindparam("run"), between).order_by(table.c.position)


_AT_POSITIONS = {
    items: _at_positions(items, _ITEM_COLUMNS),
    tasks: _at_positions(tasks, _TASK_COLUMNS, judgements.c.status)
    .select_from(tasks.outerjoin(judgements, _SAME_KEY & _FROM_INDEX))
    .where(tasks.c.judge.in_(sa.bindparam("judges", expanding=True))),
}
_PLAIN: dict[sa.Table, Callable[[Any], Any]] = {items: plain_encoder(_ITEM_COLUMNS), tasks: tuple}
_ENCODE = {items: encoder(_ITEM_COLUMNS), tasks: encoder(_TASK_COLUMNS)}
_DIGEST_COLUMNS = tuple(column.key for column in digests.columns)


def _decoded_item(row: Sequence[Any]) -> Item:
    decoders = map(schema.decoder, _ITEM_COLUMNS)
    return Item(*(v if v is None or not decode else decode(v) for v, decode in zip(row, decoders, strict=False)))


def _digest_rows(remembered: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[Any, ...]]:
    return ((path, *(entry[name] for name in _DIGEST_COLUMNS[1:])) for path, entry in remembered.items())


_UNCLAIM = sa.delete(claims).where(claims.c.key.in_(sa.bindparam("keys", expanding=True)))

_FORGET_SUMMARY = (
    sa.update(runs).where(runs.c.id == sa.bindparam("run"), runs.c.summary.is_not(None)).values(summary=None)
)

ROW_FIELDS = tuple(EMPTY_ROW)
"""The fields of `editjudge.judgement.row`, in its order."""

# An answer that was there before the run was: it was paid for by an earlier one.
_BEGUN = sa.select(runs.c.created).where(runs.c.id == tasks.c.run_id).correlate(tasks).scalar_subquery()
_COMPUTED: dict[str, sa.ColumnElement[Any]] = {
    "cached": sa.func.coalesce(judgements.c.created < _BEGUN, sa.false()),
    "status": sa.func.coalesce(judgements.c.status, PENDING),
    **dict.fromkeys(PER_FACTOR, sa.null()),  # in a table of their own
}


def _column(name: str, table: str) -> sa.ColumnElement[Any]:
    if name in _COMPUTED:
        return _COMPUTED[name]
    if name in tasks.c:
        # Names are the task's: another run may have had the same answer from the same rubric under another name.
        return tasks.c[name]
    return items.c[name] if table == "items" else judgements.c[name]


_FIELDS: dict[str, sa.ColumnElement[Any]] = {
    **{field.name: _column(field.name, field.table) for field in FIELDS},
    "position": tasks.c.position,
    "edit_type": items.c.edit_type,
    "metadata": items.c.metadata,
}
_IN_INDEX = {name for name, column in _FIELDS.items() if getattr(column, "table", None) in (tasks, items)} | {
    *("status", *PER_FACTOR)
}
"""Fields that are read without a page of the table `judgements` for each row."""
_NOTHING_SAID = {name: value for name, value in EMPTY_ROW.items() if isinstance(value, dict | list)} | {"attempts": 0}


def _shown(values: dict[str, Any], status: str) -> dict[str, Any]:
    if status == PENDING:
        return {name: _NOTHING_SAID.get(name, value) for name, value in values.items()}
    if violations := values.get("violations"):
        values["violations"] = list(dict.fromkeys(remark["code"] for remark in violations))
    return values


def _written(connection: sa.Connection, rows: Sequence[tuple[Any, ...]]) -> set[str]:
    """Of the keys of these judgements, those that the store has this very judgement of."""
    status, created = JUDGEMENT_COLUMNS.index("status"), JUDGEMENT_COLUMNS.index("created")
    made = {row[_KEY]: (row[status], row[created]) for row in rows}
    columns = (judgements.c.key, judgements.c.status, judgements.c.created)
    return {
        key
        for some in _chunks(made, _IN)
        for key, *stored in connection.execute(sa.select(*columns).where(judgements.c.key.in_(some)))
        if made[key] == tuple(stored)
    }


def _is_done(table: sa.Table, _new: Any) -> sa.ColumnElement[bool]:
    return sa.or_(*(table.c.status == status for status in DONE))


@functools.cache
def _refresh(dialect: str, table: sa.Table) -> sa.Insert:
    """A run that resumes says of each row what is so now: a picture that was replaced has another key since."""
    names = [column.key for column in table.columns if not column.primary_key]

    def unchanged(old: sa.Table, new: Any) -> sa.ColumnElement[bool]:
        return sa.and_(*(old.c[name].is_not_distinct_from(new[name]) for name in names))

    return upsert(dialect, table, names, unless=unchanged)


# --- rows -----------------------------------------------------------------------------------------------------


def _id(run: RunRecord | int) -> int:
    return run.id if isinstance(run, RunRecord) else run


def _at_run(run: RunRecord | int) -> sa.Update:
    return sa.update(runs).where(runs.c.id == _id(run))


def _run(row: Row) -> RunRecord:
    return RunRecord(**row._asdict())


def _place(row: Item | Task) -> tuple[str | int, ...]:
    return (row.item,) if isinstance(row, Item) else (row.item, row.rubric, row.judge, row.repeat, row.variant)


_PLACE = ("item", "rubric", "judge", "repeat", "variant")
_DROP_TASK = sa.delete(tasks).where(
    tasks.c.run_id == sa.bindparam("of_run"), *(tasks.c[name] == sa.bindparam(f"of_{name}") for name in _PLACE)
)


def _outline_name(run: RunRecord | int) -> str:
    return f"outline of run {_id(run)}"


def _is_described_alike(stored: Item, now: Item) -> bool:
    """Whether a manifest says the same of an edit. Its group may follow from pictures that were not read yet, and so do
    most digests."""
    if {role: entry.get("source") for role, entry in stored.images.items()} != {
        role: entry.get("source") for role, entry in now.images.items()
    }:
        return False
    read = {role: entry["digest"] for role, entry in now.images.items() if entry.get("digest")}
    if any(stored.images[role].get("digest") not in (None, digest) for role, digest in read.items()):
        return False
    texts = ("model", "edit_type", "instruction", "referring_expression")
    same = all(getattr(stored, name) == getattr(now, name) for name in texts)
    return same and json_column(stored.metadata) == json_column(now.metadata)


def _at(run_id: int, position: int, row: Item | Task) -> dict[str, Any]:
    values = {"run_id": run_id, "position": position, **row._asdict()}
    return values | ({"content": Content.of(row).key()} if isinstance(row, Item) else {})


def lock_ratings(connection: sa.Connection) -> None:
    """Let nobody else write ratings before this transaction ends, so that what an edit is known by stays so from the
    look to the rating. SQLite has one writer in any case."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("LOCK TABLE ratings IN SHARE ROW EXCLUSIVE MODE"))


class _Move(NamedTuple):
    """An edit whose images were read at last, and its content since then."""

    item: str
    content: str


def _has_unread(connection: sa.Connection, content: sa.Column[str]) -> bool:
    """Whether people said something of an edit that nobody has read: in most runs nobody did."""
    after = UNREAD[:-1] + chr(ord(UNREAD[-1]) + 1)
    query = sa.select(content).where(content >= UNREAD, content < after).limit(1)
    return connection.execute(query).first() is not None


def _read_at_last(stored: Iterable[Any], new: Sequence[Item]) -> dict[str, _Move]:
    """Return the contents of edits whose images nobody had read, each with the edit as it is now."""
    before = {item.item: item for item in map(_decoded_item, stored)}
    moves: dict[str, _Move] = {}
    for item in new:
        earlier = before.get(item.item)
        if earlier is None:
            continue
        old = Content.of(earlier).key()
        content = Content.of(item).key()
        if is_unread(old) and old != content:
            moves[old] = _Move(item.item, content)
    return moves


def _present(connection: sa.Connection, column: sa.Column[Any], values: Iterable[str]) -> list[str]:
    """Return those of the values that occur in a column, in order."""
    found: set[str] = set()
    for some in _chunks(sorted(values), _IN):
        found.update(connection.scalars(sa.select(column).where(column.in_(some)).distinct()))
    return sorted(found)


def _move_ratings(connection: sa.Connection, dialect: str, old: str, new: str) -> None:
    rows = connection.execute(sa.select(ratings).where(ratings.c.content == old)).all()
    if rows:
        connection.execute(upsert(dialect, ratings), [{**row._asdict(), "content": new} for row in rows])
    connection.execute(sa.delete(ratings).where(ratings.c.content == old))


def _move_annotation(connection: sa.Connection, dialect: str, old: str, new: str) -> None:
    """Tags and note of an edit follow it, unless it has some where it is known by its pictures."""
    here = edit_annotations.c.content == old
    row = connection.execute(sa.select(edit_annotations).where(here)).one_or_none()
    if row:  # another process may have moved it
        connection.execute(upsert(dialect, edit_annotations), {**row._asdict(), "content": new})
        connection.execute(sa.delete(edit_annotations).where(here))


_KEY = JUDGEMENT_COLUMNS.index("key")


def kept_replies(store: Store, run: RunRecord) -> Iterator[dict[str, Any]]:
    """Every raw reply to what a run asks, by key, with the mark that it is kept under."""
    keys = sa.select(tasks.c.key).where(tasks.c.run_id == run.id)
    query = sa.select(replies).where(replies.c.key.in_(keys)).order_by(replies.c.key, replies.c.id)
    for row in store._stream(query):
        yield {name: value for name, value in row._asdict().items() if name != "id"} | {"text": unpacked(row.text)}


def mean_latency(store: Store, judge: str) -> float | None:
    """Seconds that a judge took to reply, on average; None where it was never asked live."""
    query = sa.select(sa.func.avg(replies.c.latency)).join(judgements, judgements.c.key == replies.c.key)
    ((latency,),) = store._read(query.where(judgements.c.judge == judge))
    return None if latency is None else float(latency)


def _exchange(row: Row) -> Exchange:
    values = {name: getattr(row, name) for name in EXCHANGE_COLUMNS}
    values |= {"usage": Usage(**row.usage), "reasons": _remarks(row.reasons)}
    return Exchange(text=unpacked(row.text), **values)


def _remarks(stored: list[dict[str, Any]]) -> tuple[Remark, ...]:
    return tuple(Remark(**remark) for remark in stored)


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The keys whose values differ; inside objects, the keys there, as in `sampling.temperature`."""
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(before, after, f"{prefix}{key}.")
        elif key not in old or key not in new or json.dumps(before) != json.dumps(after):
            yield prefix + key


def _chunks(values: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(values)
    while some := list(islice(iterator, size)):
        yield some
