"""A real PostgreSQL for the tests: started once, on a port of its own, and thrown away with all that is in it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psycopg
import pytest

PASSWORD = "correct horse battery"
NOBODY = "nobody"
"""Who the server runs as where the tests run as root, which PostgreSQL refuses."""


@dataclass
class Server:
    """A cluster of databases; `url` names one of them."""

    folder: Path
    programs: Path
    port: int
    _numbers: Iterator[int] = field(default_factory=count)

    def url(
        self,
        database: str = "postgres",
        user: str = "postgres",
        password: str = PASSWORD,
    ) -> str:
        words = password.replace(" ", "%20")
        return f"postgresql://{user}:{words}@127.0.0.1:{self.port}/{database}"

    def new_place(self) -> str:
        """The URL of a place with nothing in it: a schema, since making and removing a database takes far longer."""
        name = f"made_{next(self._numbers)}"
        self.sql(f"CREATE SCHEMA {name}")
        return f"{self.url()}?options=-csearch_path%3D{name}"

    def sql(self, statement: str, url: str | None = None) -> list[tuple[object, ...]]:
        with psycopg.connect(url or self.url(), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def drop_connections(self) -> None:
        """As a server does that restarts, or a network that fails."""
        self.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'editjudge'"
        )

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        self._control("start", "-w", "-l", str(self.folder / "log"), "-o", options)

    def stop(self) -> None:
        self._control("stop", "-w", "-m", "immediate")

    def _control(self, *words: str) -> None:
        _as_nobody([self.programs / "pg_ctl", "-D", self.folder / "data", *words])


def _as_nobody(command: Sequence[str | Path]) -> None:
    user = NOBODY if os.geteuid() == 0 else None
    # No pipes: the server would inherit them, and reading to their end would wait for it.
    with tempfile.TemporaryFile() as said:
        done = subprocess.run(
            command,
            user=user,
            stdout=said,
            stderr=said,
            cwd="/",
            timeout=120,
            check=False,
        )
        said.seek(0)
        assert done.returncode == 0, said.read().decode(errors="replace")


def _programs(folder: Path) -> Path:
    """Those of the package `pgserver`, else of the system."""
    spec = importlib.util.find_spec("pgserver")
    if spec and spec.origin:
        bundled = Path(spec.origin).parent / "pginstall"
        try:
            _as_nobody([bundled / "bin" / "initdb", "--version"])
        except PermissionError:  # lies where only root may look
            bundled = Path(shutil.copytree(bundled, folder / "pginstall"))
        return bundled / "bin"
    found = [
        shutil.which("initdb"),
        *map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")),
    ]
    assert found[-1], (
        "no PostgreSQL: pip install pgserver, or install the one of the system"
    )
    return Path(found[-1]).parent


@contextmanager
def serving() -> Iterator[Server]:
    # Not pytest's own folder: nobody but its owner may enter that one.
    with tempfile.TemporaryDirectory(
        prefix="editjudge-pg-", ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        (folder / "password").write_text(PASSWORD)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            server = Server(folder, _programs(folder), free.getsockname()[1])
        if os.geteuid() == 0:
            shutil.chown(folder, NOBODY)
            shutil.chown(folder / "password", NOBODY)
        words = [
            "-U",
            "postgres",
            "-A",
            "scram-sha-256",
            "--pwfile",
            str(folder / "password"),
            "-E",
            "UTF8",
            "-N",
        ]
        _as_nobody(
            [server.programs / "initdb", "-D", folder / "data", "--locale=C", *words]
        )
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with serving() as server:
        yield server
