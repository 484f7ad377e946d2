"""The location of a store, which is a file or a server. This module connects to it, and describes failures and their
remedies.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import NullPool, QueuePool

from editjudge.errors import Option, StoreError
from editjudge.files import replacing


def engine_of(
    url_or_path: str | os.PathLike[str], readonly: bool, timeout: float
) -> tuple[sa.Engine, str]:
    """Return the engine for a location and the location's name. The name does not contain the password."""
    address = os.fspath(url_or_path)
    if "://" in address and not address.startswith("sqlite:"):
        return _server_engine(address)
    path = Path((sa.make_url(address).database or "") if "://" in address else address)
    check_path(path, readonly)
    return _sqlite_engine(path, readonly, timeout), str(path)


def may_pass(error: BaseException | None) -> bool:
    """Whether the same transaction may succeed if it is retried, for example after a server restart or a conflict."""
    if not isinstance(error, sa.exc.DBAPIError) or isinstance(
        error.orig, sqlite3.Error
    ):
        return False
    state = _sqlstate(error.orig)
    # There was no answer, or the connection was refused: only the driver's message distinguishes these.
    if state is None:
        unanswered = error.connection_invalidated or isinstance(
            error, sa.exc.OperationalError
        )
        return unanswered and not any(text in str(error.orig) for text in _REFUSALS)
    return state.startswith(("08", "40", "57P", _TOO_MANY, _SAME_KEY_AT_ONCE))


def _sqlstate(error: BaseException | None) -> str | None:
    return getattr(error, "sqlstate", None)


def code_of(error: BaseException | None) -> str:
    """Return the driver's code for a failure, such as `sqlite_full` or `42501`. Return `no_answer` if the server did
    not send a code.
    """
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorname", "sqlite").lower()
    if state := _sqlstate(error):
        return state
    is_refused = any(text in str(error) for text in _REFUSALS)
    return "refused" if is_refused else "no_answer"


def remedy(error: BaseException | None, timeout: float) -> str:
    """Return a description of a failure and its remedy."""
    # Only the first line, since the others quote the statement.
    reason = str(error).partition("\n")[0]
    if isinstance(error, sqlite3.Error):
        # The upper bits are subcodes of the same failure.
        advice = _OF_SQLITE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
    else:
        state = _sqlstate(error)
        advice = _OF_POSTGRESQL.get(state)
        for text, refusal in _REFUSALS.items() if state is None else ():
            if text in str(error):
                advice = refusal
    if advice is None:
        return f"the database says: {reason}"
    return f"{advice.format(timeout=timeout)} ({reason})"


# --- a server -------------------------------------------------------------------------------------------------

_PATIENCE = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
"""Timeouts in seconds and numbers of attempts. With these, an unreachable server is noticed within a minute instead of
two hours.
"""


def _server_engine(url: str) -> tuple[sa.Engine, str]:
    try:
        parsed = sa.make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        # If a password has an @ that is not written %40, half of the password would become the host, and be shown.
        if parsed.drivername != "postgresql+psycopg" or "@" in (parsed.host or ""):
            raise ValueError
        # Testing each connection before its use makes restarts of the server harmless.
        settings = {"application_name": "editjudge", **_PATIENCE}
        options = {
            name: value for name, value in settings.items() if name not in parsed.query
        }
        engine = sa.create_engine(parsed, connect_args=options, pool_pre_ping=True)
    except ModuleNotFoundError:
        raise StoreError(
            "PostgreSQL needs an extra: pip install 'editjudge[postgres]'",
            code="missing_extra",
        ) from None
    except (sa.exc.ArgumentError, ValueError):  # the message may hold the password
        expected = "a path, sqlite:///PATH or postgresql://USER:PASSWORD@HOST:PORT/DATABASE, an @ in it written %40"
        raise StoreError(
            f"a store is {expected}; found {url.partition('://')[0]}://.... To keep a run as files, use a database, then "
            "`editjudge export --format parquet`",
            code="not_a_store_url",
        ) from None
    name = parsed.set(drivername="postgresql", query={}).render_as_string(
        hide_password=True
    )
    return engine, name


_REFUSALS = {
    "password authentication failed": "the server rejects this user: check the user and the password in the "
    "URL, or leave the password out of it and set PGPASSWORD",
    "no password supplied": "the server requires a password: put it into the URL, or set PGPASSWORD",
    "no pg_hba.conf entry": "the server rejects this user from this machine: ask its administrator",
    '" does not exist': "the database or the user does not exist: create it with `createdb` or `createuser`, or correct "
    "the URL",
}
"""Messages of servers that refuse a connection, with remedies. The driver provides no error codes for them."""

_TOO_MANY = "53300"
_SAME_KEY_AT_ONCE = "23505"
"""Error code if two writers insert the same new key at the same time. ON CONFLICT names only the primary key, and
PostgreSQL checks the other unique index of `judgements` first. On a retry the row exists and ON CONFLICT applies.
"""
_OF_POSTGRESQL: dict[str | None, str] = {
    None: "the server does not answer: check that it runs and can be reached from here, then run again to resume",
    "08006": "the connection was lost: run again to resume",
    "25006": "the server is read-only: name the primary server instead of its replica",
    "42P01": "a table of the store is missing: restore a copy, or name another store with --store, and run again",
    "42501": "the user may not do this: GRANT CREATE on the schema for the first time, then SELECT, INSERT, UPDATE and "
    "DELETE on all its tables and USAGE on its sequences; to read, SELECT is enough",
    "53100": "the disk of the server is full: free some space and run again; stored answers are not asked for "
    "again",
    _TOO_MANY: "the server has no connection left: raise its max_connections, or run fewer runs at the same time",
    "54000": "an id, a name or a path is longer than PostgreSQL can index (2,700 bytes): shorten it",
    "57P01": "the server was shut down: run again once it is back to resume",
    "57P03": "the server is starting: run again in a moment to resume",
}

# --- a file ---------------------------------------------------------------------------------------------------


def check_path(path: Path, readonly: bool) -> None:
    """Raise `StoreError` if this path cannot be used for a store."""
    if path.is_dir():
        code = "is_a_folder"
        problem = (
            f"a folder; a store is one file, such as {path / 'editjudge.db'}: use a database, then "
            "`editjudge export --format parquet`"
        )
    elif path.exists() and not path.is_file():
        code = "not_a_regular_file"
        problem = "not a regular file; a store is one: name another with --store"
    elif readonly and not path.exists():
        code = "no_store"
        problem = "no such store; name it with --store, or make it with `editjudge run`"
    elif not path.parent.is_dir():
        code = "no_folder"
        problem = f"there is no folder {path.parent}; make it, or name another store with --store"
    else:
        return
    raise StoreError(f"{path}: {problem}", code=code, options=[Option("store")])


def address_of(path: Path, readonly: bool) -> str:
    # As a URI, so that the path may have any characters and SQLite can be prevented from creating the file.
    address = f"{path.absolute().as_uri()}?mode={'rw' if readonly else 'rwc'}"
    if (
        readonly
        and not os.access(path.parent, os.W_OK)
        and not path.with_name(f"{path.name}-wal").exists()
    ):
        # On read-only media SQLite cannot create the two files that it keeps beside a store. No process is writing (a
        # writer would have created them), so the store can be read without them.
        address += "&immutable=1"
    return address


def looking_address(path: Path) -> str:
    """Return a URI with which any SQLite file, even another program's, can be read without writing anything.

    If a file is opened for writing, even reading may change it. SQLite rolls back the journal of a crashed process, and
    writes its log back when the last reader disconnects.
    """
    address = f"{path.absolute().as_uri()}?mode=ro"
    log = path.with_name(f"{path.name}-wal")
    has_log = log.exists() and log.stat().st_size > 0
    return address if has_log else f"{address}&immutable=1"


def connect(address: str, readonly: bool, timeout: float) -> sqlite3.Connection:
    # Without an isolation level, the driver does not begin transactions by itself. Threads share a connection, but
    # only one uses it at a time.
    connection = sqlite3.connect(
        address,
        uri=True,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        _pragmas(connection, readonly)
    except BaseException:  # the caller has no object to close
        connection.close()
        raise
    return connection


def _pragmas(connection: sqlite3.Connection, readonly: bool) -> None:
    if readonly:
        # Not `mode=ro`, which fails when the last reader has to remove the two files beside the store.
        connection.execute("PRAGMA query_only = ON")
    else:
        # Readers and the writer do not block each other.
        connection.execute("PRAGMA journal_mode = WAL")
        # Safe against kill -9, since the kernel has all committed data. A power loss may undo the last transactions
        # (never part of one), whose edits are judged again. FULL would cost an fsync for each commit.
        connection.execute("PRAGMA synchronous = NORMAL")
        # Write back every 64 MiB instead of every 4: by then, a page of an index has changed many times and is
        # written once. This was 1.1 to 2.1 times as fast for 150,000 judgements on a busy disk.
        connection.execute("PRAGMA wal_autocheckpoint = 16384")
        connection.execute("PRAGMA foreign_keys = ON")
    # Keys are hashes, so the pages of their indexes are accessed at random. 64 MiB hold those of about 190,000
    # judgements (350 bytes each, measured); beyond that the kernel's cache has to help.
    connection.execute("PRAGMA cache_size = -65536")


def _sqlite_engine(path: Path, readonly: bool, timeout: float) -> sa.Engine:
    creator = partial(connect, address_of(path, readonly), readonly, timeout)
    engine = sa.create_engine("sqlite://", creator=creator, poolclass=QueuePool)

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # A transaction that reads first and writes later fails immediately if another one wrote in between. With
        # BEGIN IMMEDIATE it waits for the other one.
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def looking_engine(path: Path, timeout: float) -> sa.Engine:
    """Return an engine that reads a file without changing it, even if the file belongs to another program."""
    address = looking_address(path)
    creator = partial(sqlite3.connect, address, uri=True, timeout=timeout)
    return sa.create_engine("sqlite://", creator=creator, poolclass=NullPool)


def copy_file(source: Any, path: str | os.PathLike[str]) -> None:
    """Copy the current content of a connection's file, including its log. If copying fails, the incomplete copy is
    removed.
    """
    with closing(sqlite3.connect(path)) as target:
        try:
            source.backup(target)
        except sqlite3.Error as error:
            Path(path).unlink(missing_ok=True)
            raise StoreError(
                f"{path}: a copy of the store could not be written: {remedy(error, 0)}",
                code="no_copy",
            ) from error


def copy_to_free_name(source: Any, path: Path) -> Path:
    """Copy a connection's file to this path. If the path exists, a number is added to it.

    The copy appears only when it is complete. The caller must hold the lock of the store.
    """
    names = chain([path], (Path(f"{path}.{number}") for number in count(2)))
    free = next(name for name in names if not name.exists())
    with replacing(free) as partial:
        copy_file(source, partial)
    return free


class HeldFile:
    """A store's file that is open for writing. A separate connection keeps it open until the store is closed.

    SQLite continues to commit into a file even if the file or its log was deleted or renamed. A process that later
    opens the store by its name does not see these commits, but the connection that is still open can copy all of them.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        self._path = path.absolute()
        self._connection = connect(
            address_of(path, readonly=False), readonly=False, timeout=timeout
        )
        # This also opens the log.
        self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        files = [
            self._path,
            *(self._path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm")),
        ]
        self._identities = {file: _identity(file) for file in files if file.exists()}

    def has_its_names(self) -> bool:
        """Whether the files into which commits go still have the store's name."""
        try:
            return all(
                _identity(file) == identity
                for file, identity in self._identities.items()
            )
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            # A folder without read permission reveals nothing about its content.
            return True

    def save_copy(self) -> Path:
        """Copy everything that was committed to a file beside the store. If that fails, copy it to the temporary
        folder.
        """
        try:
            return self._save_in(self._path.parent)
        except (OSError, sqlite3.Error, StoreError):
            return self._save_in(Path(tempfile.gettempdir()))

    def _save_in(self, folder: Path) -> Path:
        paths = (
            folder / f"{self._path.name}.unsaved-{number}.db" for number in count(1)
        )
        path = next(path for path in paths if not path.exists())
        with replacing(path) as partial:
            copy_file(self._connection, partial)
        return path

    def close(self) -> None:
        self._connection.close()


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


_OF_SQLITE = {
    sqlite3.SQLITE_BUSY: "another process has been writing to it for more than {timeout:g} seconds: wait until it is "
    "done, or give this run its own store with --store",
    sqlite3.SQLITE_READONLY: "it cannot be written: give yourself write permission on the file and its folder, or name "
    "another store with --store",
    sqlite3.SQLITE_IOERR: "the disk failed to read or write: check the disk, and that it is not a network share",
    sqlite3.SQLITE_CORRUPT: "it is damaged: recover it with `sqlite3 FILE .recover`, or restore a copy",
    sqlite3.SQLITE_FULL: "the disk is full: free some space and run again; stored answers are not asked for again",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: give yourself read and write permission on the file and its folder "
    "(SQLite keeps two files beside it), or copy it to another folder",
    sqlite3.SQLITE_NOTADB: "it is not a SQLite database: name another store with --store",
}
