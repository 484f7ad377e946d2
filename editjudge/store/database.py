"""Connection to a store. It opens or migrates the store, reads and writes in transactions, and retries after temporary
failures.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

import sqlalchemy as sa

from editjudge.errors import StoreError, StoreMoved
from editjudge.store import location, migrations
from editjudge.store.schema import Column

T = TypeVar("T")
Row: TypeAlias = Any
"""A row of a query's result. SQLAlchemy's own type has a different number of parameters in each version."""
Query: TypeAlias = sa.Select[Any]
"""A query; its columns are found by name."""
Parameters: TypeAlias = Mapping[str, object] | Sequence[Mapping[str, object]] | None
"""Parameters of a statement, either a single set or one for each row."""

MAX_IN = 900
"""Maximum number of values in an IN clause. It is below 999, the limit of older SQLite versions. Neither 300 nor 5,000
was faster.
"""
MAX_ROWS = 10_000
"""Number of rows in one transaction when a run is planned or removed. Writers of other runs wait for the transaction.
"""
_FETCH = 1_000
"""Number of rows fetched at a time, which limits the memory needed to read a million rows."""


class Database:
    """Connection to a store. Open one with `open`; it is a context manager.

    With SQLite, one thread at a time can write while any number read, in this process and in others. With a server, any
    number can write.
    """

    def __init__(
        self, engine: sa.Engine, name: str, readonly: bool, timeout: float
    ) -> None:
        self._engine = engine
        self._name = name
        self._readonly = readonly
        self._timeout = timeout
        self._dialect = engine.dialect.name
        self._patience = 0.0
        """Seconds to keep retrying; 0 until the server has been reached once."""
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._held: location.HeldFile | None = None
        self._moving = threading.Lock()
        self._moved = ""
        """Error message for all writers after the file was deleted or replaced; empty until then."""

    @classmethod
    def open(
        cls,
        url_or_path: str | os.PathLike[str],
        readonly: bool = False,
        timeout: float = 30.0,
    ) -> Self:
        """Open the store at a path or a URL. Unless `readonly`, create it if it does not exist.

        `timeout` is the number of seconds to wait while another process writes. A group of judgements takes
        milliseconds, but planning or removing 10,000 rows takes seconds on a busy disk. It is also the time for which a
        server may be unavailable after it was reached once.
        """
        engine, name = location.engine_of(url_or_path, readonly, timeout)
        store = cls(engine, name, readonly, timeout)
        try:
            store._prepare()
            if engine.dialect.name == "sqlite" and not readonly:
                store._held = location.HeldFile(Path(name), timeout)
        except BaseException:  # the caller has no object to close
            store.close()
            raise
        return store

    def _prepare(self) -> None:
        path = Path(self._name)
        if self._dialect == "sqlite" and path.exists() and path.stat().st_size:
            # Opening a file for writing already changes it, and a file of another program must stay unchanged to the
            # byte.
            look = location.looking_engine(path, self._timeout)
            with self._translate_errors(), look.connect() as connection:
                migrations.version_of(connection, self._name)
        with self._reading() as connection:
            stored = migrations.version_of(connection, self._name)
        if stored != migrations.VERSION:
            if not self._readonly:
                self._bring_up_to_date()
            elif stored is not None and self._dialect == "sqlite":
                self._read_migrated_copy()
            else:
                problem = "is empty"
                if stored is not None:
                    release = migrations.release_of(stored)
                    problem = f"was written by editjudge {release}"
                raise StoreError(
                    f"{self._name}: {problem} and is opened for reading only: open it once for writing",
                    code="read_only",
                )
        self._patience = self._timeout

    def _bring_up_to_date(self) -> None:
        """Create the tables, or migrate them. A file is copied before its migration, and the copy is kept beside it."""
        copy = None
        try:
            with self._writing() as connection:
                # Read again now that no other process can write, since another process may have migrated the store.
                stored = migrations.version_of(connection, self._name)
                is_old = stored is not None and stored != migrations.VERSION
                if stored is not None and is_old and self._dialect == "sqlite":
                    name = f"{self._name}.{migrations.release_of(stored)}"
                    with self._reading() as reading:
                        file = reading.connection.driver_connection
                        copy = location.copy_to_free_name(file, Path(name))
                migrations.bring_up_to_date(connection, self._name)
        except Exception:
            if copy:  # nothing was migrated
                copy.unlink(missing_ok=True)
            raise
        if copy:
            logging.getLogger(__name__).warning(
                "%s: migrated; a copy of the earlier version is %s", self._name, copy
            )

    def _read_migrated_copy(self) -> None:
        """Migrate a temporary copy of an older file and read that copy, since a read-only store must not be written to."""
        self._temporary = tempfile.TemporaryDirectory(prefix="editjudge-")
        path = os.path.join(self._temporary.name, "store.db")
        with self._reading() as connection:
            location.copy_file(connection.connection.driver_connection, path)
        copied, _ = location.engine_of(path, readonly=False, timeout=self._timeout)
        begin = copied.execution_options(writes=True).begin
        with self._translate_errors(), begin() as connection:
            migrations.bring_up_to_date(connection, self._name)
        copied.dispose()
        self._engine.dispose()
        self._engine, _ = location.engine_of(path, readonly=True, timeout=self._timeout)

    @property
    def name(self) -> str:
        """Path of the store, or its address without the password."""
        return self._name

    def close(self) -> None:
        self._engine.dispose()
        if self._held:
            self._held.close()
        if self._temporary:
            self._temporary.cleanup()

    def keep_caches_small(self) -> None:
        """Limit SQLite's page caches. A web server has many connections, and the kernel's cache serves them all."""
        if self._dialect == "sqlite":
            sa.event.listen(
                self._engine,
                "connect",
                lambda connection, _: connection.execute("PRAGMA cache_size = -8192"),
            )
            self._engine.dispose()  # existing connections are opened again

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- transactions -----------------------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with self._with_retry(self._connect) as connection, self._translate_errors():
            yield connection

    def _connect(self) -> sa.Connection:
        self._follow_file()
        with self._translate_errors():
            return self._engine.connect()

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        if self._readonly:
            raise StoreError(
                f"{self._name}: opened for reading only, so nothing can be written",
                code="read_only",
            )
        self._follow_file()
        begin = self._engine.execution_options(writes=True).begin
        with self._translate_errors(), begin() as connection:
            yield connection
        self._follow_file()
        if self._moved:
            raise StoreMoved(self._moved)

    def _transact(self, work: Callable[[sa.Connection], T]) -> T:
        """Run a transaction and return its result. If the server disconnects before acknowledging the transaction, run
        it again. Every row has a key, so writing a row twice has no effect.
        """

        def once() -> T:
            with self._writing() as connection:
                return work(connection)

        return self._with_retry(once)

    def _execute(self, statement: sa.Executable, rows: Parameters = None) -> int:
        """Execute a statement in its own transaction, and return the number of rows that it changed."""
        return self._transact(
            lambda connection: connection.execute(statement, rows).rowcount
        )

    def _with_retry(self, work: Callable[[], T]) -> T:
        """Call `work` and return its result. Retry after temporary failures of a server, which takes seconds to
        restart.
        """
        pause = 0.05
        end = time.monotonic() + self._patience
        while True:
            try:
                return work()
            except StoreError as error:
                late = time.monotonic() + pause > end
                if late or not location.may_pass(error.__cause__):
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.StatementError as error:
            is_of_database = isinstance(error, sa.exc.DBAPIError)
            if is_of_database and not isinstance(error, sa.exc.DataError):
                raise StoreError(
                    f"{self._name}: {location.remedy(error.orig, self._timeout)}",
                    code=location.code_of(error.orig),
                ) from error
            # A value that cannot be converted, or that the database rejects, such as a number out of range.
            raise ValueError(
                f"{self._name}: not a value that can be stored: {error.orig}"
            ) from error

    def _read(self, query: Query, values: Parameters = None) -> Sequence[Row]:
        """Return all rows of a query. The result must fit into memory."""

        def once() -> Sequence[Row]:
            with self._reading() as connection:
                return connection.execute(query, values).all()

        return self._with_retry(once)

    def _read_among(
        self, query: Query, column: Column, values: Iterable[str | int]
    ) -> Iterator[Row]:
        """Yield the rows in which the column has one of these values. There may be any number of rows."""
        among = query.where(column.in_(sa.bindparam("among", expanding=True)))
        for chunk in chunks(values, MAX_IN):
            yield from self._read(among, {"among": chunk})

    def stream(self, query: Query) -> Iterator[Row]:
        """Yield the rows of a query on the tables of `editjudge.store.schema`. There may be any number of rows.
        Plug-ins may use this method.
        """
        with (
            self._reading() as connection,
            connection.execution_options(yield_per=_FETCH).execute(query) as rows,
        ):
            yield from rows

    # --- a file that lost its name ----------------------------------------------------------------------------

    def _follow_file(self) -> None:
        """If the file was deleted, renamed or replaced, continue in a copy. Pending writes go to the copy, and every
        writer gets an error.
        """
        held = self._held
        if held is None or held.has_its_names():
            return
        with self._moving:
            if self._held is held:  # no other thread did it first
                self._go_on_in_copy_of(held)

    def _go_on_in_copy_of(self, held: location.HeldFile) -> None:
        problem = f"{self._name}: the file, its -wal or its -shm was deleted, renamed or replaced during this run"
        try:
            copy = held.save_copy()
            engine, _ = location.engine_of(copy, readonly=False, timeout=self._timeout)
            held_copy = location.HeldFile(copy, self._timeout)
        except (OSError, sqlite3.Error, StoreError) as error:
            self._moved = f"{problem}, and its content could not be copied: {error}"
            self._held = None
            return
        self._moved = (
            f"{problem}. All answers, including later ones, are in {copy}: rename it to {self._name}, or "
            f"give it with --store, and run again, which resumes"
        )
        self._engine.dispose()
        self._engine = engine
        self._name = str(copy)
        self._held = held_copy
        held.close()


def chunks(values: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(values)
    while chunk := list(islice(iterator, size)):
        yield chunk
