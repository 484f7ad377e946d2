"""Reads and writes a store: runs, their items and tasks, and what judges said, whichever run asked first."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count, groupby
from operator import itemgetter
from typing import Any, NamedTuple

import sqlalchemy as sa

import editjudge
from editjudge.canonical import json_hash
from editjudge.errors import StoreError, UsageError, near_miss
from editjudge.judgement import (
    DONE,
    EMPTY_ROW,
    FIELDS,
    PER_FACTOR,
    Exchange,
    Judgement,
    Task,
)
from editjudge.matching import Content, is_unread
from editjudge.rubrics.model import Rubric
from editjudge.store import schema
from editjudge.store.database import MAX_IN, MAX_ROWS, Database, Row, chunks
from editjudge.store.questions import RunQuestions, parse_rubric
from editjudge.store.records import PENDING, Item, RunRecord, State
from editjudge.store.rows import (
    JUDGEMENT_COLUMNS,
    FactorValues,
    Values,
    as_fields,
    exchange_of,
    json_column,
    judgement_row,
    of_factors,
    remarks_of,
    reply_rows,
    score_rows,
    unpacked,
)
from editjudge.store.schema import (
    batch_lines,
    claims,
    digests,
    edit_annotations,
    edit_score_fills,
    edit_scores,
    items,
    judgements,
    meta,
    ratings,
    replies,
    rubrics,
    runs,
    scores,
    tasks,
    upsert,
)


class Store(Database):
    """Open one with `Store.open`; it is a context manager."""

    # --- runs -------------------------------------------------------------------------------------------------

    def open_run(self, name: str, spec: Mapping[str, Any]) -> RunRecord:
        """Return the run of this name: a new one, or the one that is there if it has the same spec."""
        now = time.time()
        run = self.import_record(
            {
                "name": name,
                "spec": dict(spec),
                "spec_hash": json_hash(spec),
                "state": "running",
                "created": now,
                "updated": now,
                "summary": None,
                "version": editjudge.__version__,
            }
        )
        if run.state == "running":
            return run
        self._execute(update_run(run, state="running", updated=now))
        return dataclasses.replace(run, state="running", updated=now)

    def import_record(self, new: Values) -> RunRecord:
        """Return the run of this name, made of these values if there is none. Raise `StoreError` for another spec."""

        def work(connection: sa.Connection) -> RunRecord:
            here = sa.select(runs).where(runs.c.name == new["name"])
            # Not the insertion alone: on a server one that finds the row there uses up a number all the same.
            if (row := connection.execute(here).one_or_none()) is None:
                connection.execute(upsert(self._dialect, runs), new)
                row = connection.execute(here).one()
            return RunRecord(**row._asdict())

        run = self._transact(work)
        if run.spec_hash != new["spec_hash"]:
            spec = json.loads(json.dumps(new["spec"]))
            raise StoreError(
                f'{self._place}: there is a run "{run.name}" with another spec; what differs: '
                f"{', '.join(_differences(run.spec, spec))}. "
                "Give this run another name, or run with the same options to resume"
            )
        return run

    def mark(
        self,
        run: RunRecord | int,
        state: State,
        summary: Mapping[str, Any] | None = None,
    ) -> None:
        """Set the state and the summary of a run."""
        summary = None if summary is None else dict(summary)
        self._execute(
            update_run(run, state=state, updated=time.time(), summary=summary)
        )

    def runs(self) -> list[RunRecord]:
        return self._runs(sa.true())

    def _runs(self, condition: sa.ColumnElement[bool]) -> list[RunRecord]:
        query = sa.select(runs).where(condition).order_by(runs.c.id)
        return [RunRecord(**row._asdict()) for row in self._read(query)]

    def run_of(self, number: int) -> RunRecord | None:
        """Return the run of this id, if there is one."""
        return next(iter(self._runs(runs.c.id == number)), None)

    def find_run(self, name_or_id: str | int) -> RunRecord:
        """Return the run of this name, else the one of this id. Raise `UsageError` if there is none."""
        name = str(name_or_id)
        for run in self._runs(runs.c.name == name):
            return run
        if name.isascii() and name.isdecimal() and len(name) < 10:
            for run in self._runs(runs.c.id == int(name)):
                return run
        names = [run.name for run in self.runs()]
        hint = ": it has none yet."
        if names:
            hint = f"{near_miss(name, names)} The latest: {', '.join(reversed(names[-5:]))}"
        raise UsageError(f'{self._place}: no run "{name}"{hint}')

    def remove_run(self, run: RunRecord | int) -> None:
        """Delete a run, and the judgements and replies that no other run refers to.

        In several transactions, so that other writers need not wait; the run goes last, so what was interrupted is
        finished by doing it again.
        """
        of_run = tasks.c.run_id == _id(run)
        first = sa.select(sa.func.min(tasks.c.position)).where(of_run).scalar_subquery()
        chunk = of_run & (tasks.c.position < first + MAX_ROWS)
        other = tasks.alias("other")
        shared = sa.exists().where(
            other.c.key == tasks.c.key, other.c.run_id != _id(run)
        )
        keys = sa.select(tasks.c.key).where(chunk, ~shared)

        def remove_tasks(connection: sa.Connection) -> int:
            if self._dialect == "postgresql":
                # As in SQLite: nobody adds a task that shares a key meanwhile.
                connection.execute(
                    sa.text("LOCK TABLE tasks IN SHARE ROW EXCLUSIVE MODE")
                )
            for table in (replies, scores, judgements):
                connection.execute(sa.delete(table).where(table.c.key.in_(keys)))
            return connection.execute(sa.delete(tasks).where(chunk)).rowcount

        def remove_rest(connection: sa.Connection) -> None:
            for table in (edit_scores, edit_score_fills, items):
                connection.execute(sa.delete(table).where(table.c.run_id == _id(run)))
            connection.execute(sa.delete(meta).where(meta.c.name == _outline_name(run)))
            connection.execute(sa.delete(runs).where(runs.c.id == _id(run)))

        while self._transact(remove_tasks):
            pass
        self._transact(remove_rest)

    def counts(self, run: RunRecord | int) -> dict[tuple[str, str, str], int]:
        """Count the tasks of a run by (judge, rubric, status)."""
        by = (tasks.c.judge, tasks.c.rubric, judgements.c.status)
        query = (
            sa.select(*by, sa.func.count())
            .select_from(tasks.outerjoin(judgements, _SAME_KEY))
            .where(tasks.c.run_id == _id(run))
            .group_by(*by)
        )
        return dict(
            sorted(
                ((judge, rubric, status or PENDING), number)
                for judge, rubric, status, number in self._read(query)
            )
        )

    def score_sums(self, run: RunRecord | int) -> tuple[Sequence[Row], Sequence[Row]]:
        """Return what a summary needs: judge, model, rubric, status and the number of tasks, in the order in which the
        tasks come first; and judge, model, rubric, factor, the number of scores and their sum."""
        by = (tasks.c.judge, items.c.model, tasks.c.rubric)
        of_run = tasks.c.run_id == _id(run)
        counts = (
            sa.select(*by, judgements.c.status, sa.func.count())
            .select_from(_EVERYTHING)
            .where(of_run)
            .group_by(*by, judgements.c.status)
            .order_by(sa.func.min(tasks.c.position))
        )
        of_factor = (scores.c.factor, sa.func.count(), sa.func.sum(scores.c.score))
        sums = (
            sa.select(*by, *of_factor)
            .select_from(
                tasks.outerjoin(items, _SAME_ITEM).join(
                    scores, scores.c.key == tasks.c.key
                )
            )
            .where(of_run, scores.c.score.is_not(None))
            .group_by(*by, scores.c.factor)
        )
        return self._read(counts), self._read(sums)

    # --- what a run asks --------------------------------------------------------------------------------------

    def add_rubrics(self, added: Iterable[Rubric]) -> None:
        """Keep the questions, so that each score can be traced to its own."""
        rows = [{"hash": r.hash, "name": r.name, "content": r.content()} for r in added]
        self._insert(upsert(self._dialect, rubrics), rows)

    def rubrics(self, hashes: Collection[str] | None = None) -> dict[str, Rubric]:
        """Return the rubrics of these hashes that are stored, or all of them, by hash."""
        text = sa.type_coerce(rubrics.c.content, schema.EscapedText)
        query = sa.select(rubrics.c.hash, text)
        if hashes is not None:
            query = query.where(rubrics.c.hash.in_(hashes))
        rows = self._read(query.order_by(rubrics.c.name, rubrics.c.hash))
        return {key: parse_rubric(content) for key, content in rows}

    def questions_of(self, run: RunRecord) -> RunQuestions:
        """Return the rubrics of a run, by the names that it gives them."""
        hashes: dict[str, str] = dict(run.spec.get("rubrics", {}))
        if not hashes:  # an imported run may not name them
            query = (
                sa.select(tasks.c.rubric, judgements.c.rubric_hash)
                .join(judgements, _SAME_KEY)
                .where(tasks.c.run_id == run.id)
                .group_by(tasks.c.rubric, judgements.c.rubric_hash)
                .order_by(sa.func.min(tasks.c.position))
            )
            hashes = dict(map(tuple, self._read(query)))
        stored = self.rubrics(hashes.values())
        return RunQuestions(
            {name: stored[key] for name, key in hashes.items() if key in stored}
        )

    def add_items(
        self, run: RunRecord | int, rows: Iterable[Item], start: int = 0
    ) -> int:
        """Keep edits of a run at the positions from `start` on; returns the next position. Idempotent."""
        for chunk in chunks(rows, MAX_ROWS):
            self.add_batch(run, list(enumerate(chunk, start)), [], {})
            start += len(chunk)
        return start

    def add_tasks(
        self, run: RunRecord | int, added: Iterable[Task], start: int = 0
    ) -> int:
        """Keep tasks of a run at the positions from `start` on; returns the next position. Idempotent."""
        for chunk in chunks(added, MAX_ROWS):
            self.add_batch(run, [], list(enumerate(chunk, start)), {})
            start += len(chunk)
        return start

    def add_outline(
        self,
        run: RunRecord | int,
        placed: Sequence[tuple[int, Item]],
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
        edits = [item for _, item in placed]
        changed: set[str] = set()
        gone: list[Values] = []
        if resumed:
            changed = self._changed_edits(run_id, edits)
            places = {_place(task) for _, task in planned}
            gone = [
                {"of_run": run_id, **{f"of_{n}": getattr(task, n) for n in _PLACE}}
                for task in self._tasks_about(run_id, edits)
                if task.item in changed
                or (task.judge in judges and _place(task) not in places)
            ]
        new_items = [_placed(run_id, position, item) for position, item in placed]
        new_tasks = [_placed(run_id, position, task) for position, task in planned]
        changed_items = [row for row in new_items if row["item"] in changed]

        def work(connection: sa.Connection) -> None:
            if gone:
                connection.execute(_DROP_TASK, gone)
            _insert(connection, _refresh(self._dialect, items), changed_items)
            added = _insert(connection, upsert(self._dialect, items), new_items)
            added += _insert(connection, upsert(self._dialect, tasks), new_tasks)
            if gone or changed_items or added:
                _forget_derived(connection, run_id)

        self._transact(work)

    def _changed_edits(self, run_id: int, edits: Sequence[Item]) -> set[str]:
        """Return the ids of the edits that the run has and that are not the same any more, as far as a manifest says
        it."""
        query = sa.select(*_ITEM_COLUMNS).where(items.c.run_id == run_id)
        now = {item.item: item for item in edits}
        stored = (Item(*row) for row in self._read_among(query, items.c.item, now))
        return {
            item.item
            for item in stored
            if not _is_described_alike(item, now[item.item])
        }

    def _tasks_about(self, run_id: int, edits: Sequence[Item]) -> Iterator[Task]:
        query = sa.select(*_TASK_COLUMNS).where(tasks.c.run_id == run_id)
        ids = [item.item for item in edits]
        return (Task(*row) for row in self._read_among(query, tasks.c.item, ids))

    def has_items(self, run: RunRecord | int) -> bool:
        query = sa.select(items.c.item).where(items.c.run_id == _id(run)).limit(1)
        return bool(self._read(query))

    def outline_of(self, run: RunRecord | int) -> tuple[str, int] | None:
        """Return the mark of the outline that was kept of a run, and its number of tasks; None if none is complete."""
        query = sa.select(meta.c.value).where(meta.c.name == _outline_name(run))
        for (value,) in self._read(query):
            mark, _, expected = value.rpartition(" ")
            return mark, int(expected)
        return None

    def mark_outline(self, run: RunRecord | int, mark: str, expected: int) -> None:
        """Note that all edits and tasks of a run are kept, as of a manifest known by this mark."""
        row = {"name": _outline_name(run), "value": f"{mark} {expected}"}
        self._execute(upsert(self._dialect, meta, ["value"]), row)

    def add_batch(
        self,
        run: RunRecord | int,
        edits: Sequence[tuple[int, Item]],
        planned: Sequence[tuple[int, Task]],
        learnt: Mapping[str, Mapping[str, Any]],
    ) -> dict[str, str]:
        """Keep edits and tasks, each with its position and in that order, and digests in one transaction: what a run
        plans at a time. Returns the status of each task that the run had already and that is judged, by key.

        Writes only what is not stored just so: on a run that is resumed nothing, and reading is far cheaper."""
        run_id = _id(run)
        stored_edits = self._stored_edits(run_id, edits)
        new_edits = [
            (position, item)
            for position, item in edits
            if stored_edits.get(position) != item
        ]
        stored_tasks = self._stored_tasks(run_id, planned)
        new_tasks = [
            _placed(run_id, position, task)
            for position, task in planned
            if (position, task) not in stored_tasks
        ]
        new_items = [_placed(run_id, position, item) for position, item in new_edits]
        new_digests = [{"path": path, **entry} for path, entry in learnt.items()]

        def work(connection: sa.Connection) -> None:
            changed = _insert(connection, _refresh(self._dialect, items), new_items)
            changed += _insert(connection, _refresh(self._dialect, tasks), new_tasks)
            _insert(connection, self._remember_digests, new_digests)
            if changed:
                _forget_derived(connection, run_id)
            if new_edits and stored_edits:
                moves = _read_at_last(
                    stored_edits.values(), [item for _, item in new_edits]
                )
                self._move_opinions(connection, run_id, moves)

        if new_items or new_tasks or new_digests:
            self._transact(work)
        wanted = {task.key for _, task in planned}
        return {
            task.key: status
            for (_, task), status in stored_tasks.items()
            if status and task.key in wanted
        }

    def _stored_edits(
        self, run_id: int, edits: Sequence[tuple[int, Item]]
    ) -> dict[int, Item]:
        """Return the edits that a run has at these positions."""
        if not edits:
            return {}
        query = sa.select(items.c.position, *_ITEM_COLUMNS).where(
            items.c.run_id == run_id,
            items.c.position.between(edits[0][0], edits[-1][0]),
        )
        return {position: Item(*values) for position, *values in self._read(query)}

    def _stored_tasks(
        self, run_id: int, planned: Sequence[tuple[int, Task]]
    ) -> dict[tuple[int, Task], str | None]:
        """Return the status of each task that a run has at these positions; each judge has positions of its own."""
        if not planned:
            return {}
        query = (
            sa.select(tasks.c.position, judgements.c.status, *_TASK_COLUMNS)
            .select_from(tasks.outerjoin(judgements, _SAME_KEY))
            .where(
                tasks.c.run_id == run_id,
                tasks.c.position.between(planned[0][0], planned[-1][0]),
                tasks.c.judge.in_({task.judge for _, task in planned}),
            )
        )
        return {
            (position, Task(*values)): status
            for position, status, *values in self._read(query)
        }

    def _move_opinions(
        self, connection: sa.Connection, run_id: int, moves: Mapping[str, _Move]
    ) -> None:
        """Move ratings and notes of edits whose images nobody had read to the edits as they are now.

        An output that was missing was not unread: what people said of it is not about an image made later. The lock
        comes before the look, so that no rating is written to the old content in between."""
        if not moves:
            return
        lock_ratings(connection)
        rated = _present(connection, ratings.c.content, moves)
        noted = _present(connection, edit_annotations.c.content, moves)
        about = {moves[old].item for old in (*rated, *noted)}
        query = sa.select(tasks.c.item).join(judgements, _SAME_KEY).distinct()
        query = query.where(
            tasks.c.run_id == run_id, judgements.c.status == "missing_output"
        )
        missing = _present(connection, tasks.c.item, about, query)
        for table, contents in ((ratings, rated), (edit_annotations, noted)):
            for old in contents:
                if moves[old].item not in missing:
                    _move_rows(connection, self._dialect, table, old, moves[old])

    def append(
        self, run: RunRecord | int, rows: Sequence[Item] | Sequence[Task]
    ) -> None:
        """Keep edits or tasks after all that the run has; those that it has stay at their positions, so that a run
        without a manifest has no gaps either, which would be rows in a list of it."""
        table = items if isinstance(rows[0], Item) else tasks
        of_run = table.c.run_id == _id(run)
        where = [column for column in table.primary_key if column is not table.c.run_id]
        present = sa.select(table.c.position, *where).where(
            of_run, table.c.item.in_({row.item for row in rows})
        )

        def work(connection: sa.Connection) -> None:
            last = connection.scalar(
                sa.select(sa.func.max(table.c.position)).where(of_run)
            )
            following = count(0 if last is None else last + 1)
            positions = {
                tuple(place): position
                for position, *place in connection.execute(present)
            }
            new = []
            for place, row in {_place(row): row for row in rows}.items():
                position = positions[place] if place in positions else next(following)
                new.append(_placed(_id(run), position, row))
            connection.execute(_refresh(self._dialect, table), new)
            _forget_derived(connection, _id(run))

        self._transact(work)

    def items(
        self, run: RunRecord | int, item: str | Collection[str] | None = None
    ) -> Iterator[Item]:
        """Read the edits of a run in order, or those of these ids."""
        query = (
            sa.select(*_ITEM_COLUMNS)
            .where(items.c.run_id == _id(run))
            .order_by(items.c.position)
        )
        if item is not None:
            ids = [item] if isinstance(item, str) else item
            query = query.where(items.c.item.in_(ids))
        return (Item(*row) for row in self._stream(query))

    def item_ids(self, run: RunRecord | int) -> set[str]:
        query = sa.select(items.c.item).where(items.c.run_id == _id(run))
        return {item for (item,) in self._stream(query)}

    def drop_items(self, run: RunRecord | int, ids: Collection[str]) -> None:
        """Take edits out of a run's view. What was judged of them stays, and is there again if they come back."""
        for chunk in chunks(sorted(ids), MAX_IN):

            def drop(connection: sa.Connection, chunk: list[str] = chunk) -> None:
                for table in (tasks, items):
                    here = (table.c.run_id == _id(run), table.c.item.in_(chunk))
                    connection.execute(sa.delete(table).where(*here))
                _forget_derived(connection, _id(run))

            self._transact(drop)

    # --- what judges said -------------------------------------------------------------------------------------

    def done(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the status of each key that has a judgement."""
        query = sa.select(judgements.c.key, judgements.c.status)
        # In the order of the index, so that each of its pages is read once.
        rows = self._read_among(query, judgements.c.key, sorted(keys))
        return dict(map(tuple, rows))

    def write(self, batch: Sequence[Judgement]) -> None:
        """Keep judgements, all or none. A later one replaces a failure, never what is done; replies only add up."""
        # In the order of keys, so that two who write the same ones wait for each other and not in a circle.
        in_order = sorted(batch, key=lambda judgement: judgement.key)
        self.write_rows(
            [judgement_row(judgement) for judgement in in_order],
            {
                judgement.key: {name: getattr(judgement, name) for name in PER_FACTOR}
                for judgement in in_order
                if judgement.status == "ok"
            },
            [reply for judgement in in_order for reply in reply_rows(judgement)],
        )

    def write_rows(
        self,
        rows: Sequence[Values],
        given: Mapping[str, Mapping[str, Mapping[str, Any] | None]],
        exchanges: Sequence[Values],
    ) -> None:
        """Keep rows of `judgements`, the values of their factors by key, and rows of `replies`."""
        keys = [row["key"] for row in rows]
        try:
            new_scores = [
                row for key, fields in given.items() for row in score_rows(key, fields)
            ]
        except (ValueError, TypeError, ArithmeticError) as error:
            raise ValueError(
                f"{self._place}: not a value that can be stored: {error}"
            ) from error

        def work(connection: sa.Connection) -> None:
            written = new_scores
            if _insert(connection, self._replace_failures, rows) < len(rows):
                # One that was done before stays as it was, and so do its scores.
                ours = _just_written(connection, rows)
                written = [row for row in new_scores if row["key"] in ours]
            _insert(connection, upsert(self._dialect, scores), written)
            # An answered key is claimed by nobody: in the same transaction, so that nobody asks it in between.
            for chunk in chunks(keys, MAX_IN):
                connection.execute(sa.delete(claims).where(claims.c.key.in_(chunk)))
            _insert(connection, upsert(self._dialect, replies), exchanges)
            _mark_stale(connection, keys)

        self._transact(work)

    @property
    def _replace_failures(self) -> sa.Insert:
        def is_done(table: sa.Table, _new: Any) -> sa.ColumnElement[bool]:
            return sa.or_(*(table.c.status == status for status in DONE))

        return upsert(self._dialect, judgements, JUDGEMENT_COLUMNS[1:], unless=is_done)

    def judgement(self, key: str) -> Judgement | None:
        """Return what is kept of a key, with the exchanges of that try alone."""
        rows = self._read(sa.select(judgements).where(judgements.c.key == key))
        if not rows:
            return None
        values = rows[0]._asdict()
        for name in ("attempts", "usage", "server_model"):
            del values[name]  # they follow from the exchanges
        for name in ("violations", "notes", "reasons"):
            values[name] = remarks_of(values[name])
        values |= as_fields(self.factor_values([key]).get(key, {}), values["status"])
        exchanges = tuple(self.replies(key, at=values["created"]))
        return Judgement(exchanges=exchanges, **values)

    def scores(self, keys: Iterable[str]) -> dict[str, dict[str, float]]:
        """Return the scores of each of these judgements that has some, by factor."""
        given = self.factor_values(keys)
        return {
            key: fields["scores"] for key, fields in given.items() if "scores" in fields
        }

    def factor_values(self, keys: Iterable[str]) -> dict[str, FactorValues]:
        """Return what each of these judgements says of its factors, by field, such as `scores`, and factor."""
        rows = self._read_among(_SCORES, scores.c.key, keys)
        return {
            key: of_factors(values for _, *values in group)
            for key, group in groupby(rows, itemgetter(0))
        }

    def replies(self, key: str, at: float | None = None) -> list[Exchange]:
        """Return every exchange ever had for a key, also those of tries that failed; or those of the judgement made
        `at`."""
        query = sa.select(replies).where(replies.c.key == key).order_by(replies.c.id)
        if at is not None:
            query = query.where(replies.c.at == at)
        return [exchange_of(row) for row in self._read(query)]

    def replies_of(self, run: RunRecord) -> Iterator[Values]:
        """Read every raw reply to what a run asks, by key, with the mark that it is kept under."""
        keys = sa.select(tasks.c.key).where(tasks.c.run_id == run.id)
        columns = [column for column in replies.columns if column is not replies.c.id]
        query = (
            sa.select(*columns)
            .where(replies.c.key.in_(keys))
            .order_by(replies.c.key, replies.c.id)
        )
        for row in self._stream(query):
            yield row._asdict() | {"text": unpacked(row.text)}

    def judgements(
        self,
        run: RunRecord | int,
        *,
        fields: Collection[str] = (),
        **where: str | int | Collection[str] | None,
    ) -> Iterator[dict[str, Any]]:
        """Read the tasks of a run in order, each with what is kept of it; without a judgement its status is `pending`.

        A row has the fields of `editjudge.judgement.row`, then `position`, `edit_type` and `metadata`; or only
        `fields`, which is several times faster if scores are all that is wanted. `where` picks rows by any field
        that holds a plain value, such as `judge="measured"` or `status=["invalid", "refused"]`.
        """
        if unknown := [name for name in (*fields, *where) if name not in _FIELDS]:
            raise TypeError(
                f"judgements have no field {unknown[0]!r}{near_miss(unknown[0], _FIELDS)}"
            )
        names = [name for name in _FIELDS if name in (fields or _FIELDS)]
        per_factor = [name for name in names if name in PER_FACTOR]
        columns = [_FIELDS[name].label(f"field_{name}") for name in names]
        query = (
            sa.select(*columns, tasks.c.key, _FIELDS["status"])
            .select_from(_EVERYTHING)
            .where(tasks.c.run_id == _id(run))
            .order_by(tasks.c.position)
        )
        for name, value in where.items():
            column = _FIELDS[name]
            if isinstance(value, str | int | None):
                query = query.where(column == value)
            else:
                query = query.where(column.in_(list(value)))
        for chunk in chunks(self._stream(query), MAX_IN):
            given: dict[str, FactorValues] = {}
            if per_factor:
                given = self.factor_values(row[-2] for row in chunk if row[-1] == "ok")
            for *row, key, status in chunk:
                values = dict(zip(names, row, strict=True))
                values |= as_fields(given.get(key, {}), status, per_factor)
                yield _public_row(values, status)

    def has_batches(self) -> bool:
        """Whether questions may wait for their answers at a provider."""
        return bool(self._read(sa.select(batch_lines.c.key).limit(1)))

    def mean_latency(self, judge: str) -> float | None:
        """Return the seconds that a judge took to reply, on average; None if it was never asked live."""
        query = sa.select(sa.func.avg(replies.c.latency)).join(
            judgements, judgements.c.key == replies.c.key
        )
        ((latency,),) = self._read(query.where(judgements.c.judge == judge))
        return None if latency is None else float(latency)

    # --- digests of picture files -----------------------------------------------------------------------------

    @property
    def _remember_digests(self) -> sa.Insert:
        columns = [column.key for column in digests.columns if not column.primary_key]
        return upsert(self._dialect, digests, columns)

    def load_digests(
        self, paths: Sequence[str] | None = None
    ) -> dict[str, dict[str, Any]]:
        """Return what `editjudge.media.image.Digests.load` takes: of these files, or of all."""
        query = sa.select(digests)
        rows: Iterable[Row] = (
            self._read(query)
            if paths is None
            else self._read_among(query, digests.c.path, paths)
        )
        entries = [row._asdict() for row in rows]
        return {entry.pop("path"): entry for entry in entries}

    def _insert(self, statement: sa.Insert, rows: Iterable[Values]) -> None:
        for chunk in chunks(rows, MAX_ROWS):
            self._execute(statement, chunk)


_SAME_KEY = judgements.c.key == tasks.c.key
_SAME_ITEM = sa.and_(items.c.run_id == tasks.c.run_id, items.c.item == tasks.c.item)
_EVERYTHING = tasks.outerjoin(items, _SAME_ITEM).outerjoin(judgements, _SAME_KEY)
_SCORES = sa.select(
    scores.c.key, scores.c.factor, *(scores.c[column] for column in PER_FACTOR.values())
).order_by(scores.c.key, scores.c.position)
_ITEM_COLUMNS = [items.c[name] for name in Item._fields]
_TASK_COLUMNS = [tasks.c[name] for name in Task._fields]

ROW_FIELDS = tuple(EMPTY_ROW)
"""The fields of `editjudge.judgement.row`, in its order."""

# An answer that was there before the run was: it was paid for by an earlier one.
_BEGUN = (
    sa.select(runs.c.created)
    .where(runs.c.id == tasks.c.run_id)
    .correlate(tasks)
    .scalar_subquery()
)
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
_EMPTY = {
    name: value for name, value in EMPTY_ROW.items() if isinstance(value, dict | list)
} | {"attempts": 0}
"""Fields of a task that is pending."""


def _public_row(values: dict[str, Any], status: str) -> dict[str, Any]:
    if status == PENDING:
        return {name: _EMPTY.get(name, value) for name, value in values.items()}
    if violations := values.get("violations"):
        codes = dict.fromkeys(remark["code"] for remark in violations)
        values["violations"] = list(codes)
    return values


# --- statements -----------------------------------------------------------------------------------------------


def _insert(
    connection: sa.Connection, statement: sa.Insert, rows: Sequence[Values]
) -> int:
    """Insert rows, and return how many were written."""
    if not rows:
        return 0
    counted = statement.execution_options(preserve_rowcount=True)
    return connection.execute(counted, rows).rowcount


def _just_written(connection: sa.Connection, rows: Sequence[Values]) -> set[str]:
    """Return the keys of these judgements of which the store has this very judgement."""
    made = {row["key"]: (row["status"], row["created"]) for row in rows}
    query = sa.select(judgements.c.key, judgements.c.status, judgements.c.created)
    keys = set()
    for chunk in chunks(made, MAX_IN):
        for key, *stored in connection.execute(
            query.where(judgements.c.key.in_(chunk))
        ):
            if made[key] == tuple(stored):
                keys.add(key)
    return keys


def _refresh(dialect: str, table: sa.Table) -> sa.Insert:
    """Return the statement by which a resumed run says of each row what is so now: a picture that was replaced has
    another key since."""
    names = [column.key for column in table.columns if not column.primary_key]

    def unchanged(old: sa.Table, new: Any) -> sa.ColumnElement[bool]:
        return sa.and_(*(old.c[name].is_not_distinct_from(new[name]) for name in names))

    return upsert(dialect, table, names, unless=unchanged)


def _forget_derived(connection: sa.Connection, run_id: int) -> None:
    """Forget the summary of a run whose edits or tasks changed, and have its lists filled again."""
    connection.execute(
        sa.update(runs)
        .where(runs.c.id == run_id, runs.c.summary.is_not(None))
        .values(summary=None)
    )
    mark_lists_stale(connection, edit_score_fills.c.run_id == run_id)


def mark_lists_stale(
    connection: sa.Connection, *conditions: sa.ColumnElement[bool]
) -> None:
    """Have the lists of runs filled again when they are opened."""
    fills = sa.update(edit_score_fills).where(~edit_score_fills.c.stale, *conditions)
    connection.execute(fills.values(stale=True))


def _mark_stale(connection: sa.Connection, keys: Sequence[str]) -> None:
    """Have the lists of all runs filled again that ask for these keys. Most stores have none while a run works."""
    fresh = sa.select(edit_score_fills.c.run_id).where(~edit_score_fills.c.stale)
    listed = list(connection.scalars(fresh.distinct()))
    if not listed:
        return
    for chunk in chunks(keys, MAX_IN):
        asking = sa.select(tasks.c.run_id).where(tasks.c.key.in_(chunk))
        mark_lists_stale(connection, edit_score_fills.c.run_id.in_(asking))


# --- rows -----------------------------------------------------------------------------------------------------


def _id(run: RunRecord | int) -> int:
    return run.id if isinstance(run, RunRecord) else run


def update_run(run: RunRecord | int, **values: object) -> sa.Update:
    return sa.update(runs).where(runs.c.id == _id(run)).values(**values)


_PLACE = ("item", "rubric", "judge", "repeat", "variant")
_DROP_TASK = sa.delete(tasks).where(
    tasks.c.run_id == sa.bindparam("of_run"),
    *(tasks.c[name] == sa.bindparam(f"of_{name}") for name in _PLACE),
)


def _place(row: Item | Task) -> tuple[str | int, ...]:
    """Return the primary key of a row within its run."""
    if isinstance(row, Item):
        return (row.item,)
    return row.item, row.rubric, row.judge, row.repeat, row.variant


def _placed(run_id: int, position: int, row: Item | Task) -> Values:
    """Return an edit or a task of a run as a row of its table."""
    values = {"run_id": run_id, "position": position, **row._asdict()}
    if isinstance(row, Item):
        content = Content.of(row)
        values |= {"content": content.key(), "task": content.key("task")}
    return values


def _outline_name(run: RunRecord | int) -> str:
    return f"outline of run {_id(run)}"


def _is_described_alike(stored: Item, now: Item) -> bool:
    """Whether a manifest says the same of an edit. Its group may follow from pictures that were not read yet, and so do
    most digests."""
    if {role: entry.get("source") for role, entry in stored.images.items()} != {
        role: entry.get("source") for role, entry in now.images.items()
    }:
        return False
    read = {
        role: entry["digest"]
        for role, entry in now.images.items()
        if entry.get("digest")
    }
    if any(
        stored.images[role].get("digest") not in (None, digest)
        for role, digest in read.items()
    ):
        return False
    texts = ("model", "edit_type", "instruction", "referring_expression")
    same = all(getattr(stored, name) == getattr(now, name) for name in texts)
    return same and json_column(stored.metadata) == json_column(now.metadata)


def lock_ratings(connection: sa.Connection) -> None:
    """Let nobody else write ratings before this transaction ends, so that the content of an edit stays the same from
    the look to the rating. SQLite has one writer in any case."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("LOCK TABLE ratings IN SHARE ROW EXCLUSIVE MODE"))


class _Move(NamedTuple):
    """An edit whose images were read at last, and its content since then."""

    item: str
    content: str


def _read_at_last(stored: Iterable[Item], new: Sequence[Item]) -> dict[str, _Move]:
    """Return the contents of edits whose images nobody had read, each with the edit as it is now."""
    before = {item.item: item for item in stored}
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


def _present(
    connection: sa.Connection,
    column: sa.Column[Any],
    values: Iterable[str],
    query: sa.Select[Any] | None = None,
) -> list[str]:
    """Return those of the values that occur in a column, or in a query of it, in order."""
    query = sa.select(column).distinct() if query is None else query
    present: set[str] = set()
    for chunk in chunks(sorted(values), MAX_IN):
        present.update(connection.scalars(query.where(column.in_(chunk))))
    return sorted(present)


def _move_rows(
    connection: sa.Connection, dialect: str, table: sa.Table, old: str, move: _Move
) -> None:
    """Move ratings or an annotation to another content; what is there already stays."""
    here = table.c.content == old
    rows = connection.execute(sa.select(table).where(here)).all()
    moved = [{**row._asdict(), "content": move.content} for row in rows]
    _insert(connection, upsert(dialect, table), moved)
    connection.execute(sa.delete(table).where(here))


def _differences(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> Iterator[str]:
    """The keys whose values differ; inside objects, the keys there, as in `sampling.temperature`."""
    for key in sorted({*old, *new}):
        before = old.get(key)
        after = new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(before, after, f"{prefix}{key}.")
        elif (
            key not in old or key not in new or json.dumps(before) != json.dumps(after)
        ):
            yield prefix + key
