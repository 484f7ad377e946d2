"""A store of runs, with their edits, tasks and judgements. Runs share judgements."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING

import sqlalchemy as sa

import editjudge
from editjudge.canonical import json_hash
from editjudge.errors import StoreError, UsageError, did_you_mean
from editjudge.judgement import Task
from editjudge.matching import Content, is_unread
from editjudge.rubrics.model import Rubric
from editjudge.store import schema
from editjudge.store.database import MAX_IN, MAX_ROWS, Row, chunks
from editjudge.store.judgements import (
    FIELD_COLUMNS,
    JUDGED_TASKS,
    SAME_ITEM,
    SAME_KEY,
    JudgementStore,
    Values,
    insert,
    mark_lists_stale,
    run_id,
)
from editjudge.store.records import (
    Item,
    RunQuestions,
    RunRecord,
    RunTotals,
    State,
    parse_rubric,
)
from editjudge.store.schema import (
    NewRow,
    batch_lines,
    digests,
    edit_annotations,
    edit_score_fills,
    edit_scores,
    items,
    json_column,
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

if TYPE_CHECKING:
    from editjudge.media.cache import KnownFiles


class Store(JudgementStore):
    """Runs and their judgements in SQLite or PostgreSQL. `with Store.open(path) as store` opens a store;
    `store.judgements(run)` yields the rows of a run.
    """

    # --- runs -------------------------------------------------------------------------------------------------

    def open_run(self, name: str, spec: Mapping[str, object]) -> RunRecord:
        """Return the run with this name. It is created if it does not exist; otherwise it must have the same spec.

        A run can grow: a higher `limit` replaces the stored one. A lower one has no effect, since edits that were
        judged stay in the run. The address of its servers may change, too.
        """
        now = time.time()
        spec = self._grown(name, spec)
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

    def _grown(self, name: str, spec: Mapping[str, object]) -> Mapping[str, object]:
        """Return the spec with the higher of two limits: its own and the stored run's. The stored run is updated if its
        limit grows.
        """

        def work(connection: sa.Connection) -> Mapping[str, object]:
            query = sa.select(runs).where(runs.c.name == name)
            row = connection.execute(query).one_or_none()
            if row is None or not {"limit"} <= row.spec.keys() & spec.keys():
                return spec
            limits = (row.spec["limit"], spec["limit"])
            grown = {**spec, "limit": None if None in limits else max(limits)}
            before = {**row.spec, "limit": grown["limit"]}
            options = grown.get("options")
            if isinstance(options, Mapping) and "options" in before:
                moved = {"base_url": options.get("base_url")}
                before["options"] = {**before["options"], **moved}
            if json_hash(before) == json_hash(grown) != row.spec_hash:
                values = {"spec": grown, "spec_hash": json_hash(grown)}
                connection.execute(update_run(row.id, **values))
            return grown

        return self._transact(work)

    def import_record(self, new: Values) -> RunRecord:
        """Return the run that has the name in `new`, or create it from these values. Raise `StoreError` if an existing
        run has a different spec.
        """

        def work(connection: sa.Connection) -> RunRecord:
            here = sa.select(runs).where(runs.c.name == new["name"])
            # Select first, since on a server an insertion uses up an id even if the row exists.
            if (row := connection.execute(here).one_or_none()) is None:
                connection.execute(upsert(self._dialect, runs), new)
                row = connection.execute(here).one()
            return RunRecord(**row._asdict())

        run = self._transact(work)
        if run.spec_hash != new["spec_hash"]:
            spec = json.loads(json.dumps(new["spec"]))
            raise StoreError(
                f'{self._name}: there is a run "{run.name}" with another spec; what differs: '
                f"{', '.join(_differences(run.spec, spec))}. "
                "Give this run another name, or run with the same options to resume",
                code="another_spec",
            )
        return run

    def mark(
        self,
        run: RunRecord | int,
        state: State,
        summary: Mapping[str, object] | None = None,
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
        """Return the run with this id, or None if there is none."""
        return next(iter(self._runs(runs.c.id == number)), None)

    def find_run(self, name_or_id: str | int) -> RunRecord:
        """Return the run with this name or, if there is none, with this id. Raise `UsageError` if neither exists."""
        name = str(name_or_id)
        matches = self._runs(runs.c.name == name)
        if not matches and name.isascii() and name.isdecimal() and len(name) < 10:
            matches = self._runs(runs.c.id == int(name))
        if matches:
            return matches[0]
        names = [run.name for run in self.runs()]
        hint = ": it has none yet."
        if names:
            hint = f"{did_you_mean(name, names)} The latest: {', '.join(reversed(names[-5:]))}"
        raise UsageError(f'{self._name}: no run "{name}"{hint}', code="unknown_run")

    def remove_run(self, run: RunRecord | int) -> None:
        """Delete a run, and the judgements and replies that no other run refers to.

        Several transactions are used, so other writers need not wait for long. The run itself is deleted last. If the
        removal is interrupted, call this again to complete it.
        """
        number = run_id(run)
        of_run = tasks.c.run_id == number
        first = sa.select(sa.func.min(tasks.c.position)).where(of_run).scalar_subquery()
        chunk = of_run & (tasks.c.position < first + MAX_ROWS)
        other = tasks.alias("other")
        shared = sa.exists().where(other.c.key == tasks.c.key, other.c.run_id != number)
        keys = sa.select(tasks.c.key).where(chunk, ~shared)

        def remove_tasks(connection: sa.Connection) -> int:
            if self._dialect == "postgresql":
                # As in SQLite, no process may add a task that shares a key in the meantime.
                connection.execute(
                    sa.text("LOCK TABLE tasks IN SHARE ROW EXCLUSIVE MODE")
                )
            for table in (replies, scores, judgements):
                connection.execute(sa.delete(table).where(table.c.key.in_(keys)))
            return connection.execute(sa.delete(tasks).where(chunk)).rowcount

        def remove_rest(connection: sa.Connection) -> None:
            for table in (edit_scores, edit_score_fills, items):
                connection.execute(sa.delete(table).where(table.c.run_id == number))
            connection.execute(sa.delete(meta).where(meta.c.name == _outline_name(run)))
            connection.execute(sa.delete(runs).where(runs.c.id == number))

        while self._transact(remove_tasks):
            pass
        self._transact(remove_rest)

    def counts(self, run: RunRecord | int) -> dict[tuple[str, str, str], int]:
        """Count a run's tasks for each (judge, rubric, status)."""
        by = (tasks.c.judge, tasks.c.rubric, FIELD_COLUMNS["status"])
        query = sa.select(*by, sa.func.count()).select_from(JUDGED_TASKS)
        query = query.where(tasks.c.run_id == run_id(run)).group_by(*by)
        return dict(sorted((tuple(cell), n) for *cell, n in self._read(query)))

    def totals(self) -> dict[int, RunTotals]:
        """Return the totals (edits, judgements and cost) of each run that has edits, keyed by run id."""
        totals: defaultdict[int, RunTotals] = defaultdict(RunTotals)
        of_model = (items.c.run_id, items.c.model)
        edits = (
            sa.select(*of_model, sa.func.count())
            .group_by(*of_model)
            .order_by(sa.func.min(items.c.position))
        )
        for run, model, number in self._read(edits):
            totals[run].models[model or ""] = number
        by = (tasks.c.run_id, FIELD_COLUMNS["status"])
        is_unpriced = sa.and_(judgements.c.cost.is_(None), judgements.c.attempts > 0)
        answers = (
            sa.select(
                *by,
                sa.func.count(),
                sa.func.sum(judgements.c.cost),
                sa.func.count().filter(is_unpriced),
            )
            .select_from(tasks.outerjoin(judgements, SAME_KEY))
            .group_by(*by)
        )
        for run, status, number, cost, unpriced in self._read(answers):
            totals[run].statuses[status] = number
            totals[run].cost += cost or 0.0
            totals[run].unpriced += unpriced
        return totals

    def score_sums(self, run: RunRecord | int) -> tuple[Sequence[Row], Sequence[Row]]:
        """Return the counts and sums for a summary as two tables: (judge, model, rubric, status, number of tasks) in
        the order of their first tasks, and (judge, model, rubric, factor, number of scores, sum of scores).
        """
        by = (tasks.c.judge, items.c.model, tasks.c.rubric)
        of_run = tasks.c.run_id == run_id(run)
        counts = (
            sa.select(*by, judgements.c.status, sa.func.count())
            .select_from(JUDGED_TASKS)
            .where(of_run)
            .group_by(*by, judgements.c.status)
            .order_by(sa.func.min(tasks.c.position))
        )
        of_factor = (scores.c.factor, sa.func.count(), sa.func.sum(scores.c.score))
        scored = tasks.outerjoin(items, SAME_ITEM).join(
            scores, scores.c.key == tasks.c.key
        )
        sums = (
            sa.select(*by, *of_factor)
            .select_from(scored)
            .where(of_run, scores.c.score.is_not(None))
            .group_by(*by, scores.c.factor)
        )
        return self._read(counts), self._read(sums)

    # --- what a run asks --------------------------------------------------------------------------------------

    def add_rubrics(self, added: Iterable[Rubric]) -> None:
        """Store rubrics, so each score can be traced to its question."""
        rows = [{"hash": r.hash, "name": r.name, "content": r.content()} for r in added]
        self._insert(upsert(self._dialect, rubrics), rows)

    def rubrics(self, hashes: Collection[str] | None = None) -> dict[str, Rubric]:
        """Return the stored rubrics with these hashes, or all of them, keyed by hash."""
        text = sa.type_coerce(rubrics.c.content, schema.EscapedText)
        query = sa.select(rubrics.c.hash, text)
        if hashes is not None:
            query = query.where(rubrics.c.hash.in_(hashes))
        rows = self._read(query.order_by(rubrics.c.name, rubrics.c.hash))
        return {key: parse_rubric(content) for key, content in rows}

    def questions_of(self, run: RunRecord) -> RunQuestions:
        """Return a run's rubrics, keyed by their names in the run."""
        hashes: dict[str, str] = dict(run.spec.get("rubrics", {}))
        if not hashes:  # an imported run may not name them
            query = (
                sa.select(tasks.c.rubric, judgements.c.rubric_hash)
                .join(judgements, SAME_KEY)
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
        """Store edits of a run at consecutive positions from `start`, and return the next position. Idempotent."""
        for chunk in chunks(rows, MAX_ROWS):
            self.add_batch(run, list(enumerate(chunk, start)), [], {})
            start += len(chunk)
        return start

    def add_tasks(
        self, run: RunRecord | int, added: Iterable[Task], start: int = 0
    ) -> int:
        """Store tasks of a run at consecutive positions from `start`, and return the next position. Idempotent."""
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
        """Store edits whose images have not been read, and all their tasks for these judges, before any task is
        planned. Each comes with its position. Existing rows of the run are not changed.

        If the run is `resumed`, tasks of these edits that are not in `planned` are removed from the run, and an edit
        that the manifest now describes differently becomes pending again. Judgements stay in the store.
        """
        number = run_id(run)
        edits = {item.item: item for _, item in placed}
        changed: set[str] = set()
        gone: list[Values] = []
        if resumed:
            query = sa.select(*ITEM_COLUMNS).where(items.c.run_id == number)
            stored = (Item(*r) for r in self._read_among(query, items.c.item, edits))
            changed = {
                item.item
                for item in stored
                if not _is_described_alike(item, edits[item.item])
            }
            wanted = {_key_in_run(task) for _, task in planned}
            query = sa.select(*_TASK_COLUMNS).where(tasks.c.run_id == number)
            for row in self._read_among(query, tasks.c.item, edits):
                key = _key_in_run(Task(*row))
                is_outdated = row.judge in judges and key not in wanted
                if row.item in changed or is_outdated:
                    names = (f"of_{name}" for name in _TASK_KEY)
                    gone.append(
                        {"of_run": number, **dict(zip(names, key, strict=True))}
                    )
        new_items = [_table_row(number, position, item) for position, item in placed]
        new_tasks = [_table_row(number, position, task) for position, task in planned]
        changed_items = [row for row in new_items if row["item"] in changed]

        def work(connection: sa.Connection) -> None:
            if gone:
                connection.execute(_DROP_TASK, gone)
            insert(connection, _refresh(self._dialect, items), changed_items)
            added = insert(connection, upsert(self._dialect, items), new_items)
            added += insert(connection, upsert(self._dialect, tasks), new_tasks)
            if gone or changed_items or added:
                _forget_derived(connection, number)

        self._transact(work)

    def drop_tasks(self, run: RunRecord | int, planned: Iterable[Task]) -> None:
        """Remove tasks from a run, whatever their keys are. Their judgements stay in the store."""
        names = [f"of_{name}" for name in _TASK_KEY]
        gone: list[Values] = [
            {"of_run": run_id(run), **dict(zip(names, _key_in_run(task), strict=True))}
            for task in planned
        ]

        def work(connection: sa.Connection) -> None:
            if connection.execute(_DROP_TASK, gone).rowcount:
                _forget_derived(connection, run_id(run))

        self._transact(work)

    def has_items(self, run: RunRecord | int) -> bool:
        query = sa.select(items.c.item).where(items.c.run_id == run_id(run)).limit(1)
        return bool(self._read(query))

    def outline_of(self, run: RunRecord | int) -> tuple[str, int] | None:
        """Return the mark of the manifest for which all edits and tasks of a run were stored, and the number of tasks.
        Return None if they were not all stored.
        """
        query = sa.select(meta.c.value).where(meta.c.name == _outline_name(run))
        for (value,) in self._read(query):
            mark, _, expected = value.rpartition(" ")
            return mark, int(expected)
        return None

    def mark_outline(self, run: RunRecord | int, mark: str, expected: int) -> None:
        """Record that all edits and tasks of a run are stored. `mark` identifies the manifest."""
        row = {"name": _outline_name(run), "value": f"{mark} {expected}"}
        self._execute(upsert(self._dialect, meta, ["value"]), row)

    def add_batch(
        self,
        run: RunRecord | int,
        edits: Sequence[tuple[int, Item]],
        planned: Sequence[tuple[int, Task]],
        learnt: KnownFiles,
    ) -> dict[str, str]:
        """Store edits, tasks and digests in one transaction. Edits and tasks are given with their positions and sorted
        by them. Return the statuses of tasks that the run already had and that have a judgement, keyed by task key.

        Only rows that differ from the stored ones are written. A resumed run therefore writes none, and reading is far
        cheaper than writing.
        """
        number = run_id(run)
        stored_edits = self._stored_edits(number, edits)
        new_edits = [
            (position, item)
            for position, item in edits
            if position not in stored_edits or stored_edits[position][1] != item
        ]
        stored_tasks = self._stored_tasks(number, planned)
        new_tasks = [
            _table_row(number, position, task)
            for position, task in planned
            if (position, task) not in stored_tasks
        ]
        new_items = [_table_row(number, position, item) for position, item in new_edits]
        new_digests = [
            {"path": path, **file._asdict(), **image.as_json()}
            for path, (file, image) in learnt.items()
        ]

        def work(connection: sa.Connection) -> None:
            changed = insert(connection, _refresh(self._dialect, items), new_items)
            changed += insert(connection, _refresh(self._dialect, tasks), new_tasks)
            insert(connection, _refresh(self._dialect, digests), new_digests)
            if changed:
                _forget_derived(connection, number)
            before = {item.item: content for content, item in stored_edits.values()}
            moves = {
                before[item.item]: item for _, item in new_edits if item.item in before
            }
            self._move_opinions(connection, number, moves)

        if new_items or new_tasks or new_digests:
            self._transact(work)
        wanted = {task.key for _, task in planned}
        return {
            task.key: status
            for (_, task), status in stored_tasks.items()
            if status and task.key in wanted
        }

    def _stored_edits(
        self, number: int, edits: Sequence[tuple[int, Item]]
    ) -> dict[int, tuple[str, Item]]:
        """Return the content keys and descriptions of a run's edits at these positions."""
        if not edits:
            return {}
        query = sa.select(items.c.position, items.c.content, *ITEM_COLUMNS).where(
            items.c.run_id == number,
            items.c.position.between(edits[0][0], edits[-1][0]),
        )
        return {
            position: (content, Item(*values))
            for position, content, *values in self._read(query)
        }

    def _stored_tasks(
        self, number: int, planned: Sequence[tuple[int, Task]]
    ) -> dict[tuple[int, Task], str | None]:
        """Return the status of each of a run's tasks at these positions. Each judge has its own positions."""
        if not planned:
            return {}
        query = (
            sa.select(tasks.c.position, judgements.c.status, *_TASK_COLUMNS)
            .select_from(tasks.outerjoin(judgements, SAME_KEY))
            .where(
                tasks.c.run_id == number,
                tasks.c.position.between(planned[0][0], planned[-1][0]),
                tasks.c.judge.in_({task.judge for _, task in planned}),
            )
        )
        return {
            (position, Task(*values)): status
            for position, status, *values in self._read(query)
        }

    def _move_opinions(
        self, connection: sa.Connection, number: int, moves: Mapping[str, Item]
    ) -> None:
        """Move the ratings and notes of edits whose images had not been read, so that they belong to the current
        content of these edits. Existing ratings and notes are not changed.

        Edits whose output was missing are left out, since opinions about a missing output do not apply to an image that
        is made later.
        """
        unread = sorted(content for content in moves if is_unread(content))
        if not unread:
            return
        # Lock before reading, so that no rating is written to the old content in between.
        lock_ratings(connection)
        for table in (ratings, edit_annotations):
            rows: list[Row] = []
            for chunk in chunks(unread, MAX_IN):
                among = sa.select(table).where(table.c.content.in_(chunk))
                rows += connection.execute(among)
            missing = {
                item
                for item in {moves[row.content].item for row in rows}
                if connection.scalar(_MISSES_OUTPUT, {"run": number, "item": item})
            }
            for row in rows:
                content = Content.of(moves[row.content]).key()
                if moves[row.content].item not in missing and content != row.content:
                    moved = row._asdict() | {"content": content}
                    connection.execute(upsert(self._dialect, table), moved)
                    connection.execute(
                        sa.delete(table).where(table.c.content == row.content)
                    )

    def append(
        self, run: RunRecord | int, rows: Sequence[Item] | Sequence[Task]
    ) -> None:
        """Append edits or tasks to a run. Existing ones keep their positions.

        Positions stay contiguous, since a gap would be shown as an empty row.
        """
        number = run_id(run)
        table = items if isinstance(rows[0], Item) else tasks
        of_run = table.c.run_id == number
        keys = [column for column in table.primary_key if column is not table.c.run_id]
        present = sa.select(table.c.position, *keys).where(
            of_run, table.c.item.in_({row.item for row in rows})
        )

        def work(connection: sa.Connection) -> None:
            last = connection.scalar(
                sa.select(sa.func.max(table.c.position)).where(of_run)
            )
            following = count(0 if last is None else last + 1)
            positions = {
                tuple(key): position for position, *key in connection.execute(present)
            }
            new = []
            for key, row in {_key_in_run(row): row for row in rows}.items():
                position = positions[key] if key in positions else next(following)
                new.append(_table_row(number, position, row))
            connection.execute(_refresh(self._dialect, table), new)
            _forget_derived(connection, number)

        self._transact(work)

    def items(
        self, run: RunRecord | int, item: str | Collection[str] | None = None
    ) -> Iterator[Item]:
        """Yield a run's edits in order, or only the edits with these ids."""
        query = sa.select(*ITEM_COLUMNS).where(items.c.run_id == run_id(run))
        if item is not None:
            ids = [item] if isinstance(item, str) else item
            query = query.where(items.c.item.in_(ids))
        return (Item(*row) for row in self.stream(query.order_by(items.c.position)))

    def item_ids(self, run: RunRecord | int) -> set[str]:
        query = sa.select(items.c.item).where(items.c.run_id == run_id(run))
        return {item for (item,) in self.stream(query)}

    def drop_items(self, run: RunRecord | int, ids: Collection[str]) -> None:
        """Remove edits from a run. Their judgements stay in the store, and are used again if the edits are added again."""
        for chunk in chunks(sorted(ids), MAX_IN):

            def drop(connection: sa.Connection, chunk: list[str] = chunk) -> None:
                for table in (tasks, items):
                    here = (table.c.run_id == run_id(run), table.c.item.in_(chunk))
                    connection.execute(sa.delete(table).where(*here))
                _forget_derived(connection, run_id(run))

            self._transact(drop)

    def has_batches(self) -> bool:
        """Whether questions may be waiting for answers from a provider's batch API."""
        return bool(self._read(sa.select(batch_lines.c.key).limit(1)))

    def load_digests(self, paths: Sequence[str] | None = None) -> KnownFiles:
        """Return the digests of these files, or of all files, in the form that `editjudge.media.cache.DigestCache.load`
        takes.
        """
        from editjudge.media.cache import FileState, KnownImage
        from editjudge.media.header import ImageInfo

        query = sa.select(digests)
        rows: Iterable[Row] = (
            self._read(query)
            if paths is None
            else self._read_among(query, digests.c.path, paths)
        )
        known = {}
        for row in rows:
            file = FileState(row.size, row.mtime_ns, row.ctime_ns, row.inode)
            info = ImageInfo(**row.info) if row.info else None
            known[row.path] = (file, KnownImage(row.digest, info, row.problem))
        return known

    def _insert(self, statement: sa.Insert, rows: Iterable[Values]) -> None:
        for chunk in chunks(rows, MAX_ROWS):
            self._execute(statement, chunk)


# --- statements -----------------------------------------------------------------------------------------------

ITEM_COLUMNS = [items.c[name] for name in Item._fields]
_TASK_COLUMNS = [tasks.c[name] for name in Task._fields]
_TASK_KEY = ("item", "rubric", "judge", "repeat", "variant")
_DROP_TASK = sa.delete(tasks).where(
    tasks.c.run_id == sa.bindparam("of_run"),
    *(tasks.c[name] == sa.bindparam(f"of_{name}") for name in _TASK_KEY),
)
_MISSES_OUTPUT = (
    sa.select(tasks.c.key)
    .join(judgements, SAME_KEY)
    .where(
        tasks.c.run_id == sa.bindparam("run"),
        tasks.c.item == sa.bindparam("item"),
        judgements.c.status == "missing_output",
    )
    .limit(1)
)


def update_run(run: RunRecord | int, **values: object) -> sa.Update:
    return sa.update(runs).where(runs.c.id == run_id(run)).values(**values)


@functools.cache
def _refresh(dialect: str, table: sa.Table) -> sa.Insert:
    """Return a statement that updates the changed rows of a resumed run. For example, the key of a task changes if an
    image is replaced.
    """
    names = [column.key for column in table.columns if not column.primary_key]

    def unchanged(old: sa.Table, new: NewRow) -> sa.ColumnElement[bool]:
        return sa.and_(*(old.c[name].is_not_distinct_from(new[name]) for name in names))

    return upsert(dialect, table, names, unless=unchanged)


def _forget_derived(connection: sa.Connection, number: int) -> None:
    """Delete the summary of a run whose edits or tasks changed, and mark its lists as outdated."""
    has_summary = runs.c.summary.is_not(None)
    connection.execute(update_run(number, summary=None).where(has_summary))
    mark_lists_stale(connection, edit_score_fills.c.run_id == number)


def lock_ratings(connection: sa.Connection) -> None:
    """Lock the ratings until the transaction ends, so an edit's content does not change between reading and rating.
    SQLite needs no lock, since it has only one writer.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("LOCK TABLE ratings IN SHARE ROW EXCLUSIVE MODE"))


# --- rows -----------------------------------------------------------------------------------------------------


def _key_in_run(row: Item | Task) -> tuple[str | int, ...]:
    """Return the primary key of a row, without the run."""
    if isinstance(row, Item):
        return (row.item,)
    return tuple(getattr(row, name) for name in _TASK_KEY)


def _table_row(number: int, position: int, row: Item | Task) -> Values:
    """Return an edit or a task of a run as a row of its table."""
    values = {"run_id": number, "position": position, **row._asdict()}
    if isinstance(row, Item):
        content = Content.of(row)
        values |= {"content": content.key(), "task": content.key("task")}
    return values


def _outline_name(run: RunRecord | int) -> str:
    return f"outline of run {run_id(run)}"


def _is_described_alike(stored: Item, now: Item) -> bool:
    """Whether the manifest describes an edit in the same way as the store. Group and most digests are not compared,
    since they may depend on images that have not been read yet.
    """
    if stored.images.keys() != now.images.keys():
        return False
    for role, image in now.images.items():
        earlier = stored.images[role]
        if earlier.get("source") != image.get("source"):
            return False
        digests_of_role = {earlier.get("digest"), image.get("digest")} - {None, ""}
        if len(digests_of_role) > 1:
            return False
    texts = ("model", "edit_type", "instruction", "referring_expression")
    same = all(getattr(stored, name) == getattr(now, name) for name in texts)
    return same and json_column(stored.metadata) == json_column(now.metadata)


def _differences(
    old: Mapping[str, object], new: Mapping[str, object], prefix: str = ""
) -> Iterator[str]:
    """Yield the keys whose values differ. Nested keys are joined by dots, as in `sampling.temperature`."""
    for key in sorted({*old, *new}):
        before = old.get(key)
        after = new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(before, after, f"{prefix}{key}.")
        elif (
            key not in old or key not in new or json.dumps(before) != json.dumps(after)
        ):
            yield prefix + key
