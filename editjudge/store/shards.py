"""A run as Parquet: four tables in shards, written and read in batches, and read in the place of a store.

FOLDER/run.json                         what was asked for and what became of it; written last
FOLDER/judgements/part-00000.parquet    one row a task, in the order of the run
FOLDER/scores/part-00000.parquet        one row a task and factor
FOLDER/items/part-00000.parquet         one row an edit
FOLDER/replies/part-00000.parquet       one row a raw reply, if they were wanted
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from editjudge.errors import ManifestError, UsageError
from editjudge.judgement import EMPTY_ROW, FIELDS, Field, Kind
from editjudge.store.contradictions import Count
from editjudge.store.export import about_run
from editjudge.store.records import PENDING, Item, RunRecord
from editjudge.store.rows import escaped, unescaped

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ModuleNotFoundError as error:
    raise UsageError("Parquet needs an extra: pip install 'editjudge[parquet]'") from error

_ROWS, _GROUP = 500_000, 10_000
"""Of a shard, and of a row group: what a writer holds in memory, some 20 MB of judgements."""
_READ = 4_096
"""Rows read at a time."""

WORDS, DOCUMENT = {b"editjudge": b"words"}, {b"editjudge": b"json"}
"""How a text column is meant: the words themselves, escaped as in a database where UTF-8 has no place for them, or
JSON in ASCII."""


def _words(*names: str) -> list[pa.Field]:
    return [pa.field(name, pa.string(), metadata=WORDS) for name in names]


def _json(*names: str) -> list[pa.Field]:
    return [pa.field(name, pa.string(), metadata=DOCUMENT) for name in names]


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
    *(_FIELDS[name] for name in ("judge", "rubric", "rubric_hash", "repeat", "variant", "status", "key")),
]
_OF_FACTOR = [
    pa.field(field.column, pa.float64()) if field.kind == "numbers" else _words(field.column)[0]
    for field in FIELDS
    if field.table == "scores"
]
TABLES: dict[str, pa.Schema] = {
    "judgements": pa.schema([*_FIELDS.values(), *_words("edit_type"), pa.field("position", pa.int64())]),
    "scores": pa.schema([*_TASK, *_words("factor"), *_OF_FACTOR, *_words("justification", "abstained")]),
    "items": pa.schema(
        [
            *_words("item", "model", "edit_type", "group", "instruction", "referring_expression"),
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
"""Columns of `judgements` that shards of earlier versions do not have, and what they would hold."""


# --- writing --------------------------------------------------------------------------------------------------


class ShardFolder:
    """Tables being written: they appear together once all are whole, in the place of those that were there."""

    def __init__(self, folder: Path, tables: Collection[str]) -> None:
        self._folder = folder
        self._tables = {name: _TableWriter(folder / name, TABLES[name]) for name in tables}

    def __enter__(self) -> ShardFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            for table in self._tables.values():
                table.close()
            if error is None:
                # Without it the folder is no run: nobody takes old shards and new ones for one.
                (self._folder / "run.json").unlink(missing_ok=True)
                for name in TABLES:
                    for old in (self._folder / name).glob("part-*.parquet"):
                        old.unlink()
                for table in self._tables.values():
                    table.publish()
        finally:
            for table in self._tables.values():
                table.discard()

    def add(self, table: str, row: Mapping[str, Any]) -> None:
        self._tables[table].add(row)


class _TableWriter:
    def __init__(self, folder: Path, kind: pa.Schema) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._schema, self._encode = folder, kind, _codec(kind, _ENCODERS)
        self._rows: list[dict[str, Any]] = []
        self._partial: list[Path] = []
        self._writer: Any = None
        self._written = 0
        self._next()  # a table without rows is one too: with its columns

    def add(self, row: Mapping[str, Any]) -> None:
        self._rows.append({name: row[name] for name in self._schema.names})
        if len(self._rows) == _GROUP:
            self._flush()

    def _flush(self) -> None:
        for row in self._rows:
            self._encode(row)
        self._writer.write_batch(pa.RecordBatch.from_pylist(self._rows, self._schema))
        self._written += len(self._rows)
        self._rows.clear()
        if self._written >= _ROWS:
            self._next()

    def _next(self) -> None:
        if self._writer:
            self._writer.close()
        self._partial.append(self._folder / f".part-{len(self._partial):05}.parquet.{os.getpid()}.partial")
        self._writer = pq.ParquetWriter(self._partial[-1], self._schema, compression="zstd")
        self._written = 0

    def close(self) -> None:
        if self._writer:
            if self._rows:
                self._flush()
            self._writer.close()
            self._writer = None

    def publish(self) -> None:
        for number, path in enumerate(self._partial):
            path.replace(self._folder / f"part-{number:05}.parquet")

    def discard(self) -> None:
        for path in self._partial:
            path.unlink(missing_ok=True)


# --- reading --------------------------------------------------------------------------------------------------


def parts_of(folder: Path, table: str) -> list[Path]:
    """The files of a table, in order."""
    return sorted((folder / table).glob("part-*.parquet"))


def row_counts(folder: Path, tables: Iterable[str]) -> dict[str, int]:
    """Return how many rows each file of these tables has, by its name in the folder."""
    counts = {}
    for table in tables:
        for path in parts_of(folder, table):
            counts[f"{table}/{path.name}"] = _row_count(path)
    return counts


def _row_count(path: Path) -> int:
    try:
        count: int = pq.read_metadata(path).num_rows
    except (pa.ArrowException, OSError) as error:
        raise ManifestError(f"{path}: not a Parquet file that can be read: {error}") from None
    return count


class Shards:
    """A run in shards, with the methods of a store that only reads: nothing is in memory but the rows asked for.

    Raises `ManifestError` where a table has other rows than run.json counts. Others may have written the same rows to
    other files, so that only `import-run` asks for the files themselves.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._about = about_run(folder)
        for table in ("judgements", "items"):
            self._check_rows(table)

    def _check_rows(self, table: str) -> None:
        files = self._about.get("files") or {}
        expected = [entry["rows"] for name, entry in files.items() if name.startswith(f"{table}/")]
        if not expected and table == "judgements":  # an earlier version, or another format beside this one
            expected = [entry["count"] for entry in self._about.get("counts") or ()]
        rows = sum(row_counts(self._folder, [table]).values())
        if expected and sum(expected) != rows:
            counted = f"found {rows:,} rows, and run.json counts {sum(expected):,}"
            raise ManifestError(f"{self._folder / table}: {counted}: some are missing or new; export the run again")

    def __enter__(self) -> Shards:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing is held open."""

    def find_run(self, _word: str | int) -> RunRecord:
        """The one that is here, whatever it is called."""
        return RunRecord(**{name: self._about[name] for name in RunRecord.__slots__ if name in self._about})

    def rubrics(self) -> dict[str, dict[str, Any]]:
        rubrics: dict[str, dict[str, Any]] = self._about["rubrics"]
        return rubrics

    def contradictions(self) -> list[Count]:
        return [Count(**count) for count in self._about["contradictions"]]

    def items(self, _run: RunRecord | int) -> Iterator[Item]:
        return (Item(**row) for _, row in read_table(self._folder, "items"))

    def judgements(self, run: RunRecord | int, *, fields: Collection[str] = ()) -> Iterator[dict[str, Any]]:
        """As of a store: `metadata` is the item's."""
        names = [name for name in (fields or (*TABLES["judgements"].names, "metadata")) if name != "metadata"]
        joined = not fields or "metadata" in fields
        metadata = {item.item: item.metadata for item in self.items(run)} if joined else {}
        for _, row in read_table(self._folder, "judgements", [*names, "item"]):
            if joined:
                row["metadata"] = metadata.get(row["item"], {})
            if fields and "item" not in fields:
                del row["item"]
            yield row
        if "expected" in self._about:
            models = Counter(item.model or "" for item in self.items(run))
            for row in not_planned(self._about, models):
                yield {name: row[name] for name in (fields or (*TABLES["judgements"].names, "metadata"))}


def not_planned(about: Mapping[str, Any], models: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """The tasks that a run was to come to and that no part has yet, as pending. Of their edits the model alone is
    known; `models` says how many edits of each the parts have."""
    expected = about.get("expected", {"edits": {}, "questions": []})
    nothing = {**EMPTY_ROW, "status": PENDING, "edit_type": None, "position": None, "metadata": {}}
    for model, count in expected["edits"].items():
        for number in range(models.get(model, 0), count):
            item = f"not planned: {model} {number}"
            for judge in about["spec"]["judges"]:
                for rubric, repeat, variant in expected["questions"]:
                    task = {"judge": judge, "rubric": rubric, "repeat": repeat, "variant": variant}
                    yield nothing | task | {"item": item, "model": model or None}


Place = tuple[Path, int]
"""File and row, counted from one."""


def read_table(
    folder: Path, table: str, columns: Collection[str] | None = None
) -> Iterator[tuple[Place, dict[str, Any]]]:
    """The rows of a table in order, each with its place; only these columns are read."""
    wanted = TABLES[table].names if columns is None else [n for n in TABLES[table].names if n in columns]
    decode = _codec(pa.schema([TABLES[table].field(name) for name in wanted]), _DECODERS)
    for path in parts_of(folder, table):
        for number, row in enumerate(_read_shard(path, TABLES[table], wanted), 1):
            try:
                decode(row)
            except (ValueError, RecursionError) as error:
                raise ManifestError(f"{path}:{number}: not what it claims to be: {error}") from None
            yield (path, number), row if len(row) == len(wanted) else {n: row.get(n, _ADDED.get(n)) for n in wanted}


def _read_shard(path: Path, expected: pa.Schema, wanted: list[str]) -> Iterator[dict[str, Any]]:
    try:
        with pq.ParquetFile(path) as shard:
            _check_types(path, shard.schema_arrow, expected)
            wanted = [name for name in wanted if name in shard.schema_arrow.names]
            for group in range(shard.num_row_groups):  # asked for all of them, Arrow holds on to most of the file
                for batch in shard.iter_batches(batch_size=_READ, row_groups=[group], columns=wanted):
                    yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise ManifestError(f"{path}: not a Parquet file that can be read: {error}") from None


def _check_types(path: Path, stored: pa.Schema, expected: pa.Schema) -> None:
    for field in expected:
        index = stored.get_field_index(field.name)
        if index < 0 and field.name in _ADDED:
            continue
        if index < 0 or stored.field(index).type not in _alike(field.type):
            has = "no such column" if index < 0 else str(stored.field(index).type)
            raise ManifestError(f'{path}: column "{field.name}": found {has}, expected {field.type}')


def _alike(kind: pa.DataType) -> tuple[pa.DataType, ...]:
    """What other programs make of a column when they write it again."""
    if kind == pa.string():
        return pa.string(), pa.large_string(), pa.string_view(), pa.null()
    if kind == pa.float64():  # scores were integers alone in exports of 0.1
        return pa.float64(), pa.int64(), pa.null()
    return (pa.int32(), pa.int64()) if kind in (pa.int32(), pa.int64()) else (kind, pa.null())


def encoded(table: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as a part of a table, for those who write one themselves."""
    kind, encode = TABLES[table], _codec(TABLES[table], _ENCODERS)
    plain = [{name: row[name] for name in kind.names} for row in rows]
    for row in plain:
        encode(row)
    return pa.Table.from_pylist(plain, kind)


def decoded(table: str, part: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a part of a table, or of some of its columns."""
    decode = _codec(pa.schema([TABLES[table].field(name) for name in part.schema.names]), _DECODERS)
    rows: list[dict[str, Any]] = part.to_pylist()
    for row in rows:
        decode(row)
    return rows


def with_added(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `judgements` with the columns that an earlier version did not write."""
    return {**_ADDED, **row}


# --- text columns ---------------------------------------------------------------------------------------------

Codec = Callable[[Any], Any]


def _as_json(value: Any) -> str:
    # ASCII: half a surrogate pair has no UTF-8.
    return json.dumps(value, allow_nan=False)


_ENCODERS: dict[bytes, Codec] = {b"words": escaped, b"json": _as_json}
_DECODERS: dict[bytes, Codec] = {b"words": unescaped, b"json": json.loads}


def _codec(kind: pa.Schema, codec_of: Mapping[bytes, Codec]) -> Callable[[dict[str, Any]], None]:
    """Changes a row in place; what is absent stays so."""
    codecs = [(field.name, codec_of[field.metadata[b"editjudge"]]) for field in kind if field.metadata]

    def change(row: dict[str, Any]) -> None:
        for name, codec in codecs:
            if (value := row.get(name)) is not None:
                row[name] = codec(value)

    return change
