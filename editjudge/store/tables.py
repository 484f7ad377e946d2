"""The files of an exported run: its tables, their columns, and how they are written and read.

FOLDER/run.json                         settings and outcome of the run; written last
FOLDER/judgements                       one row for each task, in the order of the run
FOLDER/scores                           one row for each task and factor: Parquet, and judgements.csv with fewer columns
FOLDER/items                            one row for each edit
FOLDER/replies                          one row for each raw reply, if requested

A table is one file in JSONL (judgements.jsonl), and a folder of files in Parquet (judgements/part-00000.parquet).
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, TextIO

from editjudge.errors import ManifestError, UsageError
from editjudge.files import read_jsonl, replacing, spreadsheet_safe
from editjudge.judgement import FIELDS, Field, Kind
from editjudge.store.schema import escaped, unescaped

Form = Literal["jsonl", "parquet", "csv"]
Row = Mapping[str, object]

# --- columns --------------------------------------------------------------------------------------------------


def _texts(*names: str, optional: bool = False) -> list[Field]:
    return [Field(name, "text", optional=optional) for name in names]


_EDIT_TYPE = Field("edit_type", "text", optional=True, added=True)
_BY_NAME = {field.name: field for field in FIELDS}
TABLES: dict[str, tuple[Field, ...]] = {
    "judgements": (
        *FIELDS,
        _EDIT_TYPE,
        Field("position", "integer", optional=True, added=True),
    ),
    "scores": (
        *(_BY_NAME[name] for name in ("item", "model", "group")),
        _EDIT_TYPE,
        *(
            _BY_NAME[name]
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
        *_texts("factor"),
        *(
            Field(field.column, "number" if field.kind == "numbers" else "text")
            for field in FIELDS
            if field.table == "scores"
        ),
        *_texts("justification", "abstained"),
    ),
    "items": (
        *_texts("item"),
        *_texts("model", "edit_type", "group", optional=True),
        *_texts("instruction", "referring_expression"),
        Field("images", "document"),
        Field("metadata", "document"),
    ),
    "replies": (
        Field("key", "hash"),
        Field("mark", "integer"),
        Field("at", "time"),
        *_texts("outcome", "finish", "text"),
        Field("usage", "counts"),
        *_texts("model", "request_id", optional=True),
        Field("latency", "number", optional=True),
        Field("retries", "count"),
        Field("reasons", "remarks"),
    ),
}
CSV_COLUMNS = (
    "item",
    "model",
    "group",
    "edit_type",
    "judge",
    "rubric",
    "repeat",
    "status",
    "factor",
    "score",
    "justification",
    "choice",
)
"""Columns of judgements.csv: the columns of `scores` that a spreadsheet needs."""

_ARROW_TYPES: Mapping[Kind, str] = {
    "count": "int32",
    "integer": "int64",
    "number": "float64",
    "time": "float64",
    "flag": "bool",
}
"""Arrow types of the kinds that are not strings. All other kinds are strings: text, escaped as in a database if it is
not valid UTF-8, or JSON in ASCII.
"""
_STRINGS = frozenset({"code", "hash"})
"""Kinds whose strings need no encoding."""


def _encode_json(value: object) -> str:
    # ASCII, since some readers treat U+2028 as the end of a line, and an unpaired surrogate cannot be encoded in
    # UTF-8.
    return json.dumps(value, allow_nan=False)


def _codecs(
    table: str, text: Callable[[str], str], other: Callable[[Any], Any]
) -> dict[str, Callable[[Any], Any]]:
    """Return the functions that encode or decode the columns of a Parquet table. Columns that are stored unchanged are
    left out.
    """
    return {
        field.name: text if field.kind == "text" else other
        for field in TABLES[table]
        if field.kind not in _ARROW_TYPES and field.kind not in _STRINGS
    }


def need_pyarrow(purpose: str) -> Any:
    """Import and return pyarrow. Raise `UsageError` if it is not installed."""
    try:
        import pyarrow
        import pyarrow.fs
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise UsageError(
            f"{purpose} needs an extra: pip install 'editjudge[parquet]'"
        ) from None
    return pyarrow


# --- writing --------------------------------------------------------------------------------------------------

_ROWS = 500_000
"""Maximum number of rows in a Parquet file."""
_OUTDATED: Mapping[Form, str] = {
    "parquet": "*/part-*.parquet",
    "jsonl": "replies.jsonl",
    "csv": "judgements.csv",
}
"""Files of an earlier export that a new export does not always overwrite."""
_GROUP = 10_000
"""Number of rows in a row group. A writer keeps one group in memory: about 20 MB of judgements."""


class _TextTable:
    """A table that is written as one JSONL or CSV file."""

    def __init__(self, folder: Path, table: str, form: Form, stack: ExitStack) -> None:
        self._name = "judgements.csv" if form == "csv" else f"{table}.jsonl"
        self._file = stack.enter_context(complete_file(folder / self._name))
        self._csv = csv.writer(self._file) if form == "csv" else None
        if self._csv:
            self._csv.writerow(CSV_COLUMNS)
        self.rows = {self._name: 0}
        """Number of rows in each file, keyed by its name in the folder."""

    def add(self, row: Row) -> None:
        if self._csv:
            reason = row["justification"] or row["abstained"]
            cells = {**row, "justification": reason}
            self._csv.writerow(spreadsheet_safe(cells[name]) for name in CSV_COLUMNS)
        else:
            self._file.write(_encode_json(row) + "\n")
        self.rows[self._name] += 1

    def flush(self) -> None:
        pass


class _ParquetTable:
    """A table that is written as a folder of Parquet files."""

    def __init__(self, folder: Path, table: str, form: Form, stack: ExitStack) -> None:
        self._arrow = need_pyarrow("Parquet")
        self._folder = folder
        self._table = table
        self._stack = stack
        self._schema = self._arrow.schema(
            [
                (field.name, _ARROW_TYPES.get(field.kind, "string"))
                for field in TABLES[table]
            ]
        )
        self._codecs = _codecs(table, escaped, _encode_json)
        self._waiting: list[dict[str, object]] = []
        self.rows: dict[str, int] = {}
        (folder / table).mkdir(parents=True, exist_ok=True)
        self._begin_file()  # a table without rows also has a file, with its columns

    def _begin_file(self) -> None:
        self._name = f"{self._table}/part-{len(self.rows):05}.parquet"
        self.rows[self._name] = 0
        partial = self._stack.enter_context(replacing(self._folder / self._name))
        self._writer = self._stack.enter_context(
            self._arrow.parquet.ParquetWriter(partial, self._schema, compression="zstd")
        )

    def add(self, row: Row) -> None:
        values = {name: row[name] for name in self._schema.names}
        for name, encode in self._codecs.items():
            if values[name] is not None:
                values[name] = encode(values[name])
        self._waiting.append(values)
        if len(self._waiting) == _GROUP:
            self.flush()
            if self.rows[self._name] >= _ROWS:
                self._writer.close()
                self._begin_file()

    def flush(self) -> None:
        if self._waiting:
            batch = self._arrow.RecordBatch.from_pylist(self._waiting, self._schema)
            self._writer.write_batch(batch)
            self.rows[self._name] += len(self._waiting)
            self._waiting.clear()


@contextmanager
def writing_tables(
    folder: Path, form: Form, names: Sequence[str]
) -> Iterator[Mapping[str, _TextTable | _ParquetTable]]:
    """Yield tables to which rows can be added. The files appear only when all of them are complete, and replace those
    of an earlier export. After an error the earlier files remain.
    """
    kind = _ParquetTable if form == "parquet" else _TextTable
    with ExitStack() as stack:
        tables = {name: kind(folder, name, form, stack) for name in names}
        yield tables
        for table in tables.values():
            table.flush()
        # Without run.json the folder is not an export, so old and new files are never read together.
        (folder / "run.json").unlink(missing_ok=True)
        for old in folder.glob(_OUTDATED[form]):
            old.unlink()


@contextmanager
def complete_file(path: Path) -> Iterator[TextIO]:
    """Yield a text file for writing. It appears at the path only when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        replacing(path) as partial,
        partial.open("w", encoding="utf-8", newline="") as file,
    ):
        yield file
        file.flush()
        os.fsync(file.fileno())


def write_lines(path: Path, rows: Iterable[Row]) -> None:
    """Write a line of JSON for each row."""
    with complete_file(path) as file:
        for row in rows:
            file.write(_encode_json(row) + "\n")


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- reading --------------------------------------------------------------------------------------------------

_READ = 4_096
"""Number of rows of a Parquet file that are read at a time."""


def table_files(folder: Path, table: str, names: Iterable[str] | None) -> list[str]:
    """Return the names of a table's files: the files listed in run.json or, if it lists none, the files in the folder."""
    if names is None:
        paths = [*folder.glob(f"{table}/part-*.parquet")]
        paths = paths or [*folder.glob(f"{table}.jsonl")]
        names = [path.relative_to(folder).as_posix() for path in paths]
    return sorted(
        name for name in names if name.startswith((f"{table}/", f"{table}.jsonl"))
    )


def read_file(path: Path, table: str) -> Iterator[tuple[int, Any]]:
    """Yield the rows of one of a table's files, each with its number, counted from 1."""
    return _read_parquet(path, table) if path.suffix == ".parquet" else read_jsonl(path)


def _read_parquet(path: Path, table: str) -> Iterator[tuple[int, dict[str, Any]]]:
    arrow = need_pyarrow("Parquet")
    codecs = _codecs(table, unescaped, json.loads)
    number = 0
    try:
        with arrow.parquet.ParquetFile(path) as file:
            present = file.schema_arrow.names
            names = [field.name for field in TABLES[table] if field.name in present]
            # Read each group separately, since Arrow would keep most of the file in memory otherwise.
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(
                    _READ, row_groups=[group], columns=names
                ):
                    for row in batch.to_pylist():
                        number += 1
                        # The row's model rejects types other than strings.
                        for name in codecs.keys() & row.keys():
                            if isinstance(row[name], str):
                                row[name] = codecs[name](row[name])
                        yield number, row
    except (arrow.ArrowException, OSError) as error:
        raise ManifestError(
            f"{path}: not a Parquet file that can be read: {error}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ManifestError(
            f"{path}:{number}: a value cannot be read: {error}"
        ) from None
