"""The beginning of a run in a SQLite file, by SQL text: SQLAlchemy is imported while the first questions are asked.

Importing it and compiling its statements took a third of the time from the start of a run to its first request. Until
then a run writes only new rows: itself, its rubrics, the edits and tasks of its first batch, claims, and the answers
that come meanwhile. Where a row is there already, and for everything else, `Store` does it.
"""

from __future__ import annotations

import dataclasses
import operator
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import editjudge
from editjudge.canonical import json_hash
from editjudge.edit import Content
from editjudge.judgement import Judgement, Task
from editjudge.rubrics.model import Rubric
from editjudge.store.owner import BEAT, LEASE, new_owner
from editjudge.store.records import Item, RunRecord
from editjudge.store.rows import (
    JUDGEMENT_COLUMNS,
    REPLY_COLUMNS,
    SCORE_COLUMNS,
    as_json,
    escaped,
    factor_values,
    json_column,
    judgement_row,
    reply_rows,
    score_rows,
)
from editjudge.store.sqlite_file import address_of, check_path, connect

if TYPE_CHECKING:
    from editjudge.store.claims import Claims
    from editjudge.store.store import Store

SCHEMA = Path(__file__).with_name("schema.sql")
"""The tables of `editjudge.store.schema` and their version, as `python -m editjudge.store.schema` prints them."""
_TIMEOUT = 30.0
"""Seconds to wait for another process that writes, as in `Store.open`."""


def is_database(place: object) -> TypeGuard[Store | EarlyStore]:
    """Whether this is a store, and no shards or other sink. Asks the class: an early store would open for it."""
    return hasattr(type(place), "add_batch")


def open_early(place: str) -> Store | EarlyStore:
    """The store at a path or a URL; a SQLite file that is new or of this version is not opened whole yet."""
    if "://" not in place:
        with suppress(sqlite3.Error):  # `Store` says what to do about it
            return EarlyStore(Path(place))
    return _opened(place)


def whole_of(store: Store | EarlyStore) -> Store:
    return store.whole if isinstance(store, EarlyStore) else store


def _opened(place: str | Path) -> Store:
    from editjudge.store.store import Store

    return Store.open(place)


class _NotNew(Exception):
    """Not done: a row is there already, or SQLite refused. `Store` does it, or says what to do."""


class EarlyStore:
    """A store that is opened whole when more is asked of it than new rows. Safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        check_path(path, readonly=False)
        self._path = path
        self._connection = connect(address_of(path, readonly=False), readonly=False, timeout=_TIMEOUT)
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._whole: Store | None = None
        self._planned = True
        """Whether the run may have edits: not before the first batch of one that is new."""
        try:
            self._make_tables()
        except BaseException:  # nobody else knows of it
            self._connection.close()
            raise

    def _make_tables(self) -> None:
        script = SCHEMA.read_text("utf-8")
        if not self._rows("SELECT 1 FROM sqlite_master LIMIT 1"):
            self._connection.executescript(f"BEGIN IMMEDIATE;\n{script}COMMIT;")
        stored = self._rows("SELECT value FROM meta WHERE name = 'schema_version'")
        if not stored or f"('schema_version', '{stored[0][0]}')" not in script:
            raise sqlite3.DatabaseError("no store, or one of another version")

    @property
    def place(self) -> str:
        return str(self._path)

    @property
    def whole(self) -> Store:
        with self._opening:
            if self._whole is None:
                self._whole = _opened(self._path)
            return self._whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)

    def __enter__(self) -> EarlyStore:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()
        if self._whole:
            self._whole.close()

    # --- what a run writes first, and reads ---------------------------------------------------------------------

    def open_run(self, name: str, spec: Mapping[str, Any]) -> RunRecord:
        now = time.time()
        run = RunRecord(0, name, dict(spec), json_hash(spec), "running", now, now, None, editjudge.__version__)
        names = [field for field in RunRecord.__slots__ if field != "id"]
        with suppress(_NotNew), self._writing():
            self._insert("runs", names, [[getattr(run, field) for field in names]])
            ((number,),) = self._connection.execute("SELECT last_insert_rowid()")
            self._planned = False
            return dataclasses.replace(run, id=number)
        return self.whole.open_run(name, spec)

    def add_rubrics(self, added: Iterable[Rubric]) -> None:
        rows = [(rubric.hash, rubric.name, rubric.content()) for rubric in added]
        with suppress(_NotNew), self._writing():
            self._insert("rubrics", ("hash", "name", "content"), rows, "OR IGNORE")
            return
        self.whole.add_rubrics(added)

    def item_ids(self, run: RunRecord) -> set[str]:
        return self.whole.item_ids(run) if self._planned else set()

    def load_digests(self, paths: Sequence[str]) -> dict[str, dict[str, Any]]:
        """None for the first batch: its pictures are read anyway, to be shown."""
        return self.whole.load_digests(paths) if self._planned else {}

    def add_batch(
        self,
        run: int,
        edits: Sequence[Item],
        first_edit: int,
        planned: Sequence[Task],
        first_task: int,
        learnt: Mapping[str, Mapping[str, Any]],
    ) -> dict[str, str]:
        """As `Store.add_batch`; a run that is new has no task that is judged already."""
        is_first, self._planned = not self._planned, True
        items = [(run, position, *edit, Content.of(edit).key()) for position, edit in enumerate(edits, first_edit)]
        tasks = [(run, position, *task) for position, task in enumerate(planned, first_task)]
        digests = [(path, *entry.values()) for path, entry in learnt.items()]
        names = ("group_" if name == "group" else name for name in Item._fields)
        with suppress(_NotNew), self._writing(is_first):
            self._insert("items", ("run_id", "position", *names, "content"), items)
            self._insert("tasks", ("run_id", "position", *Task._fields), tasks)
            if learnt:
                self._insert("digests", ("path", *next(iter(learnt.values()))), digests, "OR REPLACE")
            return {}
        return self.whole.add_batch(run, edits, first_edit, planned, first_task, learnt)

    def done(self, keys: Sequence[str]) -> dict[str, str]:
        among = "SELECT key, status FROM judgements WHERE key IN (SELECT value FROM json_each(?))"
        if self._whole is None:
            with suppress(sqlite3.Error):  # `Store` tries again, and says what to do
                return dict(self._rows(among, as_json(keys)))
        return self.whole.done(keys)

    def has_batches(self) -> bool:
        """Whether there may be questions in batches."""
        with suppress(sqlite3.Error):
            return bool(self._rows("SELECT 1 FROM batch_lines LIMIT 1"))
        return True

    def claim(self, keys: Sequence[str], owner: str, until: float) -> bool:
        """Whether all of them are this owner's now; where somebody has one, none is."""
        with suppress(_NotNew), self._writing():
            self._insert("claims", ("key", "owner", "until"), [(key, owner, until) for key in keys])
            return True
        return False

    def write(self, batch: Sequence[Judgement]) -> None:
        """As `Store.write`: an answer that comes while the store is being opened is kept at once."""
        batch = sorted(batch, key=lambda judgement: judgement.key)
        with suppress(_NotNew), self._writing():
            self._insert("judgements", JUDGEMENT_COLUMNS, map(judgement_row, batch))
            scores = (row for key, given in factor_values(batch).items() for row in score_rows(key, given))
            self._insert("scores", SCORE_COLUMNS, scores)
            replies = (reply for judgement in batch for reply in reply_rows(judgement))
            self._insert("replies", REPLY_COLUMNS, map(operator.itemgetter(*REPLY_COLUMNS), replies))
            self._connection.executemany("DELETE FROM claims WHERE key = ?", [(one.key,) for one in batch])
            return
        self.whole.write(batch)

    # --- statements ---------------------------------------------------------------------------------------------

    def _rows(self, sql: str, *values: Any) -> list[Any]:
        with self._lock:
            return self._connection.execute(sql, values).fetchall()

    @contextmanager
    def _writing(self, early: bool = True) -> Iterator[None]:
        """One transaction. Raises `_NotNew` where it did not happen, as where `Store` is open already."""
        if not early or self._whole:
            raise _NotNew
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except Exception as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise _NotNew from error

    def _insert(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], otherwise: str = "") -> None:
        places = ", ".join("?" * len(columns))
        names = ", ".join(f'"{column}"' for column in columns)
        sql = f"INSERT {otherwise} INTO {table} ({names}) VALUES ({places})"  # noqa: S608  (the names are the schema's own)
        self._connection.executemany(sql, (tuple(map(_stored, row)) for row in rows))


def _stored(value: Any) -> Any:
    """As the types of the schema store it: texts escaped, objects as JSON."""
    if isinstance(value, str):
        return escaped(value)
    return value if value is None or isinstance(value, int | float | bytes) else json_column(value)


class EarlyClaims:
    """The claims of a run in an early store: the first by SQL text, all others by `Claims`, for the same owner."""

    def __init__(self, store: EarlyStore) -> None:
        self._store, self._owner = store, new_owner()
        self._whole: Claims | None = None
        self._renewal: threading.Timer | None = None

    @property
    def whole(self) -> Claims:
        from editjudge.store.claims import Claims

        store = self._store.whole
        self._whole = self._whole or Claims(store, owner=self._owner)
        return self._whole

    def take(self, keys: Sequence[str]) -> set[str]:
        if self._whole or not self._store.claim(keys, self._owner, time.time() + LEASE):
            return self.whole.take(keys)
        if self._renewal is None:
            self._renewal = threading.Timer(BEAT, self._renew)
            self._renewal.daemon = True
            self._renewal.start()
        return {*keys}

    def _renew(self) -> None:
        self.whole.start()

    def held(self, keys: Sequence[str]) -> dict[str, bool]:
        return self.whole.held(keys)

    def give_back(self, keys: Collection[str]) -> None:
        if keys:
            self.whole.give_back(keys)

    def close(self) -> None:
        if self._renewal:
            self._renewal.cancel()
            self.whole.start()
        if self._whole:
            self._whole.close()
