"""A store as version 0.1.0 wrote it, in both databases, and the pictures that it is about.

Two runs, `cats` and `dogs`, of three edits each, judged by a stub. Ids are those of lines, but for `third-cat`. Ann and
Bob rated by a file, Eve in a study of `cats`.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
import zlib
from contextlib import closing
from pathlib import Path

import psycopg

FROZEN = Path(__file__).parent / "version_0_1"
SCHEMA_7 = Path(__file__).parent / "version_7"
"""The same store in the schema before choices, probabilities and variants."""


def picture(value: int) -> bytes:
    """The same bytes with every version of every library."""
    rows = b"".join(
        b"\0" + bytes((value, value // 2, 255 - value)) * 8 for _ in range(8)
    )
    length = struct.pack("<HH", len(rows), len(rows) ^ 0xFFFF)
    stored = b"\x78\x01\x01" + length + rows + struct.pack(">I", zlib.adler32(rows))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data))
            + kind
            + data
            + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", stored)
        + chunk(b"IEND", b"")
    )


def write_edits(folder: Path) -> None:
    """The two manifests and their pictures."""
    for number, name in enumerate(("cats", "dogs")):
        lines = []
        (folder / name).mkdir(parents=True)
        for n in range(3):
            for role, shift in (("input", 0), ("edited", 5)):
                (folder / name / f"{role}-{n}.png").write_bytes(
                    picture(100 * number + 20 * n + shift)
                )
            line = {
                "input": f"input-{n}.png",
                "edited": f"edited-{n}.png",
                "instruction": "Paint it blue.",
            }
            lines.append(
                line
                | {"model": "m"}
                | ({"id": "third-cat"} if (name, n) == ("cats", 2) else {})
            )
        (folder / name / "edits.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in lines)
        )


def make_sqlite(path: Path, folder: Path, frozen: Path = FROZEN) -> Path:
    """As it would be if its manifests had been in this folder."""
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA journal_mode = WAL")
        raw.executescript(
            (frozen / "sqlite.sql").read_text().replace("@FOLDER@", str(folder))
        )
        for number, spec in raw.execute("SELECT id, spec FROM runs").fetchall():
            canonical = json.dumps(json.loads(spec), sort_keys=True)
            values = (hashlib.sha256(canonical.encode()).hexdigest(), number)
            raw.execute("UPDATE runs SET spec_hash = ? WHERE id = ?", values)
        raw.commit()
    return path


def make_postgresql(url: str, folder: Path, frozen: Path = FROZEN) -> str:
    """The same rows in the tables that this version made on a server."""
    make_sqlite(folder / "rows.db", folder, frozen)
    with (
        closing(sqlite3.connect(folder / "rows.db")) as raw,
        psycopg.connect(url) as connection,
    ):
        connection.execute((frozen / "postgresql.sql").read_bytes())
        tables = connection.execute(
            "SELECT table_name, array_agg(column_name || ':' || data_type) FROM information_schema.columns "
            "WHERE table_schema = current_schema GROUP BY table_name"
        ).fetchall()
        # in any order, whatever refers to what
        connection.execute("SET session_replication_role = replica")
        for table, columns in tables:
            types = dict(column.split(":") for column in columns)
            rows = raw.execute(f"SELECT {', '.join(types)} FROM {table}").fetchall()  # noqa: S608  (frozen names)
            marks = ", ".join(
                "%s::int::boolean" if kind == "boolean" else "%s"
                for kind in types.values()
            )
            for row in rows:
                statement = f"INSERT INTO {table} ({', '.join(types)}) VALUES ({marks})"  # noqa: S608
                connection.execute(statement.encode(), row)
        for table in ("runs", "batches", "studies", "replies"):
            next_id = f"SELECT setval('{table}_id_seq', coalesce(max(id), 0) + 1, false) FROM {table}"  # noqa: S608
            connection.execute(next_id.encode())
    return url
