"""Manifests in, edits out, one at a time: JSONL, a JSON array, CSV, Parquet, a Hugging Face dataset, or a folder.

A folder is read as a manifest when it is laid out like this, pictures belonging together by name without extension:

    ROOT/input/NAME.png             what was edited
    ROOT/MODEL/NAME.png             one folder a model; where a picture is missing, the model produced nothing
    ROOT/ground_truth/NAME.png      optional, like ROOT/mask/
    ROOT/instructions.csv, .jsonl   `name`, `instruction` and, as in any manifest, whatever else is known

Without an instructions file every instruction is empty; with one, each picture in `input` must have its own.
A folder of Parquet files is one manifest, its files in the order of their names, and so is what `save_to_disk` wrote.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from editjudge.edit import Edit
from editjudge.errors import ManifestError, near_miss
from editjudge.manifest import columnar
from editjudge.manifest.columnar import records
from editjudge.manifest.folder import folder_rows
from editjudge.manifest.reader import (
    FIELDS,
    LABELS,
    PAIR_LABELS,
    Columns,
    LineError,
    NamedInputs,
    Notify,
    Reader,
    Row,
    csv_rows,
    json_array,
    jsonl,
)

__all__ = [
    "FIELDS",
    "LABELS",
    "PAIR_LABELS",
    "Columns",
    "LineError",
    "NamedInputs",
    "Notify",
    "Reader",
    "Row",
    "from_rows",
    "plain_row",
    "read",
    "records",
    "rows",
]


def read(
    path: str | Path,
    *,
    allow_outside: bool = False,
    allow_urls: bool = False,
    limit: int | None = None,
    notify: Notify | None = None,
    named: NamedInputs | None = None,
) -> Iterator[Edit]:
    """The edits of a manifest, in its order. Raises `ManifestError` at the first line that is wrong."""
    reader = Reader(path, allow_outside=allow_outside, allow_urls=allow_urls, notify=notify, named=named)
    return islice(reader.edits(rows(path, reader)), limit)


def from_rows(
    rows: Iterable[Mapping[str, Any]],
    *,
    name: str = "rows",
    root: str | Path = ".",
    allow_outside: bool = False,
    allow_urls: bool = False,
    notify: Notify | None = None,
    named: NamedInputs | None = None,
) -> Iterator[Edit]:
    """The edits of rows in memory, of a data frame or of a Hugging Face dataset; paths are relative to `root`."""
    reader = Reader(name, allow_outside=allow_outside, allow_urls=allow_urls, notify=notify, unit="row", named=named)
    reader.base = Path(root)
    source = columnar.undecoded(records(rows))
    return reader.edits(plain_row(number, row, reader) for number, row in enumerate(source, 1))


def rows(path: str | Path, reader: Reader) -> Iterator[Row]:
    path = Path(path)
    if path.is_dir():
        return _folder(path, reader)
    formats = {".jsonl": jsonl, ".ndjson": jsonl, ".json": json_array, ".csv": csv_rows, ".parquet": _columnar}
    try:
        regular = stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError) as error:
        why, hint = getattr(error, "strerror", None) or error, ""
        if isinstance(error, FileNotFoundError) and os.access(path.parent, os.R_OK):
            hint = near_miss(path.name, (p.name for p in path.parent.iterdir() if p.suffix.lower() in formats))
        raise ManifestError(f"{reader.place}: cannot be read: {why}{hint.rstrip('.')}") from None
    if not regular:
        raise ManifestError(f"{reader.place}: is a device or pipe; expected a file or a folder")
    if path.suffix.lower() not in formats:
        known = ", ".join(formats)
        raise ManifestError(f'{reader.place}: found "{path.suffix}"; expected {known}, or a folder with one per model')
    return formats[path.suffix.lower()](path, reader)


def _folder(path: Path, reader: Reader) -> Iterator[Row]:
    reader.base = path
    if columnar.holds(path):
        return _columnar(path, reader)
    reader.unit = "edit"
    return folder_rows(path, reader)


def _columnar(path: Path, reader: Reader) -> Iterator[Row]:
    reader.unit = "row"
    for number, row in enumerate(columnar.read(path, reader.place, reader.leave_out, reader.pictures), 1):
        yield plain_row(number, row, reader)


def plain_row(number: int, row: Mapping[str, Any], reader: Reader) -> Row:
    """A row of typed columns with the values that JSON has; pictures as they are."""
    try:
        return number, columnar.plain(row, reader.pictures, reader.leave_out)
    except ValueError as error:
        return number, reader.wrong(number, "", str(error))
