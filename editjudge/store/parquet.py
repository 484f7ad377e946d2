"""A run as Parquet: four tables, each a folder of files, written and read in batches.

FOLDER/run.json                         what was asked for and what became of it; written last
FOLDER/judgements/part-00000.parquet    one row a task, in the order of the run
FOLDER/scores/part-00000.parquet        one row a task and factor
FOLDER/items/part-00000.parquet         one row an edit
FOLDER/replies/part-00000.parquet       one row a raw reply, if they were wanted
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from editjudge.errors import ManifestError, UsageError
from editjudge.judgement import EMPTY_ROW, FIELDS, Field, Kind
from editjudge.store.rows import escaped, unescaped

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ModuleNotFoundError as error:
    raise UsageError(
        "Parquet needs an extra: pip install 'editjudge[parquet]'"
    ) from error

_ROWS = 500_000
"""Rows of a file."""
_GROUP = 10_000
"""Rows of a row group: what a writer holds in memory, some 20 MB of judgements."""
_READ = 4_096
"""Rows read at a time."""

Row = dict[str, Any]
Codec = Callable[[Any], Any]


def _encode_json(value: Any) -> str:
    # ASCII: half a surrogate pair has no UTF-8.
    return json.dumps(value, allow_nan=False)


_CODECS: dict[bytes, tuple[Codec, Codec]] = {
    b"words": (escaped, unescaped),
    b"json": (_encode_json, json.loads),
}
"""Writes and reads a text column, by its metadata: the words themselves, escaped as in a database if UTF-8 cannot
hold them, or JSON in ASCII."""


def _texts(kind: bytes, *names: str) -> list[pa.Field]:
    metadata = {b"editjudge": kind}
    return [pa.field(name, pa.string(), metadata=metadata) for name in names]


_words = partial(_texts, b"words")
_json = partial(_texts, b"json")

_PLAIN: dict[Kind, pa.DataType] = {
    "code": pa.string(),
    "hash": pa.string(),
    "count": pa.int32(),
    "number": pa.float64(),
    "time": pa.float64(),
    "flag": pa.bool_(),
}


def _arrow(field: Field) -> pa.Field:
    if field.kind in _PLAIN:
        return pa.field(field.name, _PLAIN[field.kind])
    return (_words if field.kind == "text" else _json)(field.name)[0]


_FIELDS = {field.name: _arrow(field) for field in FIELDS}
_TASK = [
    *(_FIELDS[name] for name in ("item", "model", "group")),
    *_words("edit_type"),
    *(
        _FIELDS[name]
        for name in (
            "judge",
            "rubric",
            "rubric_hash",
            "repeat",
            "variant",
            "status",
            "key",
        )
    ),
]
_OF_FACTOR = [
    pa.field(field.column, pa.float64())
    if field.kind == "numbers"
    else _words(field.column)[0]
    for field in FIELDS
    if field.table == "scores"
]
TABLES: dict[str, pa.Schema] = {
    "judgements": pa.schema(
        [*_FIELDS.values(), *_words("edit_type"), pa.field("position", pa.int64())]
    ),
    "scores": pa.schema(
        [*_TASK, *_words("factor"), *_OF_FACTOR, *_words("justification", "abstained")]
    ),
    "items": pa.schema(
        [
            *_words(
                "item",
                "model",
                "edit_type",
                "group",
                "instruction",
                "referring_expression",
            ),
            *_json("images", "metadata"),
        ]
    ),
    "replies": pa.schema(
        [
            pa.field("key", pa.string()),
            pa.field("mark", pa.int64()),
            pa.field("at", pa.float64()),
            *_words("outcome", "finish", "text"),
            *_json("usage"),
            *_words("model", "request_id"),
            pa.field("latency", pa.float64()),
            pa.field("retries", pa.int32()),
            *_json("reasons"),
        ]
    ),
}

_ADDED = {field.name: EMPTY_ROW[field.name] for field in FIELDS if field.added}
"""Columns of `judgements` that files of earlier versions do not have, and what they would hold."""


# --- writing --------------------------------------------------------------------------------------------------


class ParquetTables:
    """Tables being written: they appear together once all are complete, in the place of those that were there."""

    def __init__(self, folder: Path, tables: Collection[str]) -> None:
        self._folder = folder
        self._tables = {
            name: _TableWriter(folder / name, TABLES[name]) for name in tables
        }

    def __enter__(self) -> ParquetTables:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            for table in self._tables.values():
                table.close()
            if error is None:
                # Without run.json the folder is not a run: old and new files are never read as one.
                (self._folder / "run.json").unlink(missing_ok=True)
                for old in self._folder.glob("*/part-*.parquet"):
                    old.unlink()
                for table in self._tables.values():
                    table.publish()
        finally:
            for table in self._tables.values():
                table.discard()

    def add(self, table: str, row: Mapping[str, Any]) -> None:
        self._tables[table].add(row)


class _TableWriter:
    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._schema = schema
        self._encode = _recoder(schema, 0)
        self._rows: list[Row] = []
        self._partial: list[Path] = []
        self._begin_file()  # a table without rows has a file too, with its columns

    def _begin_file(self) -> None:
        name = f".part-{len(self._partial):05}.parquet.{os.getpid()}.partial"
        self._partial.append(self._folder / name)
        self._writer = pq.ParquetWriter(
            self._partial[-1], self._schema, compression="zstd"
        )
        self._written = 0

    def add(self, row: Mapping[str, Any]) -> None:
        self._rows.append({name: row[name] for name in self._schema.names})
        if len(self._rows) == _GROUP:
            self._flush()
            if self._written >= _ROWS:
                self._writer.close()
                self._begin_file()

    def _flush(self) -> None:
        for row in self._rows:
            self._encode(row)
        self._writer.write_batch(pa.RecordBatch.from_pylist(self._rows, self._schema))
        self._written += len(self._rows)
        self._rows.clear()

    def close(self) -> None:
        if self._rows:
            self._flush()
        self._writer.close()

    def publish(self) -> None:
        for number, path in enumerate(self._partial):
            path.replace(self._folder / f"part-{number:05}.parquet")

    def discard(self) -> None:
        for path in self._partial:
            path.unlink(missing_ok=True)


# --- reading --------------------------------------------------------------------------------------------------


def row_counts(folder: Path, tables: Iterable[str]) -> dict[str, int]:
    """Return how many rows each file of these tables has, by its name in the folder."""
    return {
        path.relative_to(folder).as_posix(): pq.read_metadata(path).num_rows
        for table in tables
        for path in _parts_of(folder, table)
    }


def _parts_of(folder: Path, table: str) -> list[Path]:
    return sorted((folder / table).glob("part-*.parquet"))


def read_table(folder: Path, table: str) -> Iterator[tuple[tuple[Path, int], Row]]:
    """Read the rows of a table in order, each with its file and number, counted from one."""
    schema = TABLES[table]
    decode = _recoder(schema, 1)
    for path in _parts_of(folder, table):
        try:
            for number, row in enumerate(_read_file(path, schema), 1):
                try:
                    decode(row)
                except (ValueError, RecursionError) as error:
                    raise ManifestError(
                        f"{path}:{number}: not what it claims to be: {error}"
                    ) from None
                yield (
                    (path, number),
                    {name: row.get(name, _ADDED.get(name)) for name in schema.names},
                )
        except (pa.ArrowException, OSError) as error:
            raise ManifestError(
                f"{path}: not a Parquet file that can be read: {error}"
            ) from None


def _read_file(path: Path, schema: pa.Schema) -> Iterator[Row]:
    with pq.ParquetFile(path) as file:
        _check_types(path, file.schema_arrow, schema)
        names = [name for name in schema.names if name in file.schema_arrow.names]
        # Group by group: asked for all of them, Arrow holds on to most of the file.
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(_READ, row_groups=[group], columns=names):
                yield from batch.to_pylist()


def _check_types(path: Path, stored: pa.Schema, expected: pa.Schema) -> None:
    for field in expected:
        index = stored.get_field_index(field.name)
        if index < 0 and field.name in _ADDED:
            continue
        if index < 0 or stored.field(index).type not in _alike(field.type):
            has = "no such column" if index < 0 else str(stored.field(index).type)
            raise ManifestError(
                f'{path}: column "{field.name}": found {has}, expected {field.type}'
            )


def _alike(kind: pa.DataType) -> tuple[pa.DataType, ...]:
    """Column types that other programs write for ours."""
    if kind == pa.string():
        return pa.string(), pa.large_string(), pa.string_view(), pa.null()
    if kind == pa.float64():  # scores were integers alone in exports of 0.1
        return pa.float64(), pa.int64(), pa.null()
    return (
        (pa.int32(), pa.int64())
        if kind in (pa.int32(), pa.int64())
        else (kind, pa.null())
    )


def _recoder(schema: pa.Schema, direction: int) -> Callable[[Row], None]:
    """Return what encodes (0) or decodes (1) the text columns of a row in place; None stays None."""
    codecs = [
        (field.name, _CODECS[field.metadata[b"editjudge"]][direction])
        for field in schema
        if field.metadata
    ]

    def recode(row: Row) -> None:
        for name, codec in codecs:
            if (value := row.get(name)) is not None:
                row[name] = codec(value)

    return recode
