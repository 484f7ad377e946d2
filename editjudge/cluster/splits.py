"""A manifest in splits that workers read by themselves: a few rows of a Parquet file, wherever it lies.

Only where a split is goes through the cluster, so that memory does not grow with the manifest. What is no Parquet is
written as Parquet first, one column with the row as JSON.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from editjudge import manifest
from editjudge.edit import Edit
from editjudge.errors import ManifestError
from editjudge.run.job import Job

LARGEST = 512
"""Edits of a split, where rows hold no pictures. A shard that is not written yet dies with its node; what is gained by
more is fewer shards: 100 million edits are 200,000 of them."""


class _Sizing(NamedTuple):
    """How large splits are below `LARGEST`: so many for each worker, of no fewer edits than `least`."""

    per_worker: int
    least: int


_ASKING = _Sizing(8, 16)
"""A judge that is asked takes many questions at once: splits of 9 edits kept 54 questions of a worker under way, and
answers of 0.5 s took 2.5 times as long as by the local engine."""
_COMPUTING = _Sizing(64, 4)
"""A judge that computes leaves other workers idle at the end for as long as a split takes. A split costs 30 ms of CPU,
the measuring of an edit ten times as much."""
_ROW, _LINE = "__editjudge_row__", "__editjudge_line__"
_FIELDS: dict[str, Any] = {"input": None, "edited": None, "instruction": None}
"""Said of each row, so that one which has none of them is not taken for one that has them misspelt."""


@dataclass(frozen=True)
class Split:
    number: int
    path: str
    group: int
    """Row group of the file."""
    skip: int
    """Rows of the group that belong to earlier splits."""
    count: int
    position: int
    """Of its first edit in the manifest."""


def filesystem(place: str) -> tuple[Any, str]:
    """The file system of a path or URI, and the path in it."""
    from pyarrow import fs

    if "://" in place:
        opened: tuple[Any, str] = fs.FileSystem.from_uri(place)
        return opened
    return fs.LocalFileSystem(), str(Path(place).absolute())


class Source:
    """A job's manifest as Parquet files; `folder` is for what has to be written first."""

    def __init__(self, job: Job, folder: str) -> None:
        import pyarrow.parquet as pq

        self._groups: list[tuple[str, int, int]] = []
        """File, number and rows of each row group."""
        self._whole = False
        ids = _Ids(str(job.manifest))
        pictures = _reader(job, "row").pictures
        for path in _files(job.manifest) or [_converted(job, folder)]:
            system, inside = filesystem(path)
            with pq.ParquetFile(inside, filesystem=system) as file:
                counts = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
                self._groups += [(path, n, count) for n, count in enumerate(counts)]
                self._whole = self._whole or bool(_heavy(file) & {*pictures})
                ids.add(file)
        ids.check()
        total = sum(count for *_, count in self._groups)
        self._total = min(total, _rows_for(job) or total)

    def suitable(self, workers: int, *, computing: bool) -> int:
        """Edits of a split, for so many edits and workers."""
        sizing = _COMPUTING if computing else _ASKING
        return max(sizing.least, min(LARGEST, self._total // (workers * sizing.per_worker)))

    def splits(self, size: int) -> list[Split]:
        """Row groups with pictures in them stay whole: a part of one can only be reached by reading what is before."""
        splits: list[Split] = []
        position = 0
        for path, group, count in self._groups:
            step = count if self._whole else size
            for skip in range(0, count, max(step, 1)):
                some = min(step, count - skip, self._total - position)
                if some > 0:
                    splits.append(Split(len(splits), path, group, skip, some, position))
                    position += some
        return splits


class _Ids:
    """Finds an id that stands twice, which workers who each see some of them cannot: eight bytes an edit, 0.8 GB for
    100 million."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._hashes: list[Any] = []

    def add(self, file: Any) -> None:
        import numpy as np

        if "id" in file.schema_arrow.names:  # else they are made from the row's number
            for batch in file.iter_batches(columns=["id"]):
                self._hashes.append(np.array([hash(str(value)) for value in batch.column(0).to_pylist()], np.int64))

    def check(self) -> None:
        import numpy as np

        hashes = np.sort(np.concatenate(self._hashes)) if self._hashes else np.zeros(0)
        if (hashes[1:] == hashes[:-1]).any():
            raise ManifestError(f"{self._place}: an id stands twice: `editjudge audit` names it; expected unique ids")


def _files(path: Path) -> list[str]:
    """Those that are Parquet already."""
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    return [str(file) for file in files if file.suffix.lower() == ".parquet"]


def _rows_for(job: Job) -> int | None:
    """How many rows of Parquet hold the first edits, as many as are wanted; None: all of them."""
    import pyarrow.parquet as pq

    if not job.limit or not job.models:
        return job.limit
    wanted = rows = 0
    for path in _files(job.manifest):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=["model"]):
                for model in batch.column(0).to_pylist():
                    rows, wanted = rows + 1, wanted + job.is_about(model)
                    if wanted == job.limit:
                        return rows
    return None


def edits_of(split: Split, job: Job) -> Iterator[Edit]:
    """The edits of a split, as the manifest itself would give them."""
    import pyarrow.parquet as pq

    reader = _reader(job, "row" if _files(job.manifest) else "line")
    reader.notify = _silent  # the driver has said it
    if job.manifest.is_dir():
        reader.base = job.manifest
    system, inside = filesystem(split.path)
    with pq.ParquetFile(inside, filesystem=system) as file:
        heavy = _heavy(file)
        names = [name for name in file.schema_arrow.names if name not in heavy or name in reader.pictures]
        batches = file.iter_batches(batch_size=16 if heavy else LARGEST, row_groups=[split.group], columns=names)
        rows = (row for batch in batches for row in batch.to_pylist())
        for position, row in enumerate(islice(rows, split.skip, split.skip + split.count), split.position):
            if _ROW in row:
                yield reader.edit(row[_LINE], json.loads(row[_ROW]))
            elif job.is_about(row.get("model")):
                line, plain = manifest.plain_row(position + 1, row, reader)
                if isinstance(plain, ManifestError):
                    raise plain
                yield reader.edit(line, plain)


def _heavy(file: Any) -> set[str]:
    return {column.name for column in file.schema_arrow if manifest.columnar.holds_bytes(column.type)}


def _converted(job: Job, folder: str) -> str:
    """The manifest as Parquet. Each line is looked at as a run would, so that what is wrong is said before anybody is
    asked, and no id stands twice."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    reader = _reader(job, "line")
    schema = pa.schema([(_LINE, pa.int64()), (_ROW, pa.string())])
    system, inside = filesystem(folder)
    system.create_dir(inside, recursive=True)
    path = posixpath.join(inside, "edits.parquet")
    checked = (_checked(reader, line, row) for line, row in manifest.rows(job.manifest, reader))
    lines = islice((line for line in checked if job.is_about(line[1].get("model"))), job.limit)
    with system.open_output_stream(path) as out, pq.ParquetWriter(out, schema) as writer:
        while some := list(islice(lines, LARGEST)):
            columns = {_LINE: [line for line, _ in some], _ROW: [json.dumps(row) for _, row in some]}
            writer.write_table(pa.table(columns, schema))
    return posixpath.join(folder, "edits.parquet")


def _checked(
    reader: manifest.Reader, line: int, row: dict[str, Any] | manifest.LineError
) -> tuple[int, dict[str, Any]]:
    if isinstance(row, manifest.LineError):
        raise row
    reader.edit(line, dict(row))
    if any(isinstance(value, bytes | dict) for value in _flat(map(row.get, reader.pictures))):
        raise ManifestError(
            f"{reader.place}: holds pictures; a cluster reads them from Parquet: `to_parquet` writes it"
        )
    return line, _FIELDS | row


def _reader(job: Job, unit: str) -> manifest.Reader:
    return manifest.Reader(
        job.manifest,
        allow_outside=job.allow_outside,
        allow_urls=job.allow_urls,
        unit=unit,
        named=job.named_inputs(),
    )


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        yield from value if isinstance(value, list) else [value]


def _silent(_: str) -> None:
    pass
