"""A store that is a file: how SQLite opens it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from editjudge.errors import StoreError


def check_path(path: Path, readonly: bool) -> None:
    if path.is_dir():
        raise StoreError(f"{path}: a folder; a store is one file, such as {path / 'editjudge.db'}")
    if path.exists() and not path.is_file():
        raise StoreError(f"{path}: not a regular file; a store is one: name another with --store")
    if readonly and not path.exists():
        raise StoreError(f"{path}: no such store; name it with --store, or make it with `editjudge run`")
    if not path.parent.is_dir():
        raise StoreError(f"{path}: there is no folder {path.parent}; make it, or name another store with --store")


def address_of(path: Path, readonly: bool) -> str:
    # As an address, whatever characters the path has: only so SQLite can be told not to make it.
    address = f"{path.absolute().as_uri()}?mode={'rw' if readonly else 'rwc'}"
    if readonly and not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists():
        # On read-only media SQLite cannot make the two files that it keeps beside a store. Nobody writes to this one
        # (a writer has made them), so it can be read without.
        address += "&immutable=1"
    return address


def looking_address(path: Path) -> str:
    """Return the address by which a file is read and nothing beside it is written, whoever it belongs to.

    Opened for writing, even a look may change a file: SQLite rolls back what a crash left in its journal, and writes
    its log back when the last reader leaves.
    """
    address = f"{path.absolute().as_uri()}?mode=ro"
    log = path.with_name(f"{path.name}-wal")
    has_log = log.exists() and log.stat().st_size > 0
    return address if has_log else f"{address}&immutable=1"


def connect(address: str, readonly: bool, timeout: float) -> sqlite3.Connection:
    # No isolation level: the driver would begin transactions at its own discretion. Threads: whoever shares a
    # connection sees to it that it has one user at a time.
    connection = sqlite3.connect(address, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False)
    try:
        _pragmas(connection, readonly)
    except BaseException:  # nobody else knows of it
        connection.close()
        raise
    return connection


def _pragmas(connection: sqlite3.Connection, readonly: bool) -> None:
    if readonly:
        # And not `mode=ro`: who leaves last takes the two files beside the store away, and may not do so then.
        connection.execute("PRAGMA query_only = ON")
    else:
        # Readers do not wait for the writer, nor it for them.
        connection.execute("PRAGMA journal_mode = WAL")
        # Safe against kill -9: what is committed is in the kernel's hands. Not against power loss, which may undo the
        # last transactions (never part of one): those edits are judged again. FULL costs an fsync a commit.
        connection.execute("PRAGMA synchronous = NORMAL")
        # Write back every 64 MiB instead of every 4: by then a page of an index has changed many times and is written
        # once. 150,000 judgements on a busy disk: 1.1 to 2.1 times as fast (measured).
        connection.execute("PRAGMA wal_autocheckpoint = 16384")
        connection.execute("PRAGMA foreign_keys = ON")
    # Keys are hashes, so the pages of their indexes are hit at random. 64 MiB hold those of some 190,000 judgements
    # (350 bytes each, measured); beyond that the kernel's cache has to help.
    connection.execute("PRAGMA cache_size = -65536")
