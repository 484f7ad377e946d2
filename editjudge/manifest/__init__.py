"""Reading of edits from a manifest, which is JSONL, a JSON array, CSV, Parquet, a Hugging Face dataset, or a folder.

A folder with this layout is a manifest. Images with the same name, ignoring the extension, belong together:

    ROOT/input/NAME.png             the images before the edit
    ROOT/MODEL/NAME.png             one folder for each model; a missing image is a model without an output
    ROOT/ground_truth/NAME.png      optional, like ROOT/mask/
    ROOT/instructions.csv, .jsonl   `name`, `instruction` and, as in any manifest, further columns

Without an instructions file every instruction is empty; with one, each image in `input` must have an instruction.
A folder of Parquet files is one manifest, its files in the order of their names, and so is a dataset saved to disk.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from editjudge.edit import Edit
from editjudge.errors import ManifestError, near_miss
from editjudge.manifest.folders import folder_rows
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
from editjudge.manifest.tables import (
    is_dataset,
    plain_row,
    records,
    typed_rows,
    undecoded,
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
    "read",
    "records",
    "rows",
]

_FORMATS = {
    ".jsonl": jsonl,
    ".ndjson": jsonl,
    ".json": json_array,
    ".csv": csv_rows,
    ".parquet": typed_rows,
}


def read(
    path: str | Path,
    *,
    allow_outside: bool = False,
    allow_urls: bool = False,
    limit: int | None = None,
    notify: Notify | None = None,
    named: NamedInputs | None = None,
) -> Iterator[Edit]:
    """Yield the edits of a manifest in order. Raise `ManifestError` at the first invalid line."""
    reader = Reader(
        path,
        allow_outside=allow_outside,
        allow_urls=allow_urls,
        notify=notify,
        named=named,
    )
    return islice(reader.edits(rows(path, reader)), limit)


def from_rows(
    rows: Iterable[Mapping[str, object]],
    *,
    name: str = "rows",
    root: str | Path = ".",
    allow_outside: bool = False,
    allow_urls: bool = False,
    notify: Notify | None = None,
    named: NamedInputs | None = None,
) -> Iterator[Edit]:
    """Yield the edits in rows in memory, which may be a data frame or a Hugging Face dataset. Paths are relative to
    `root`.
    """
    reader = Reader(
        name,
        allow_outside=allow_outside,
        allow_urls=allow_urls,
        notify=notify,
        unit="row",
        named=named,
    )
    reader.base = Path(root)
    source = undecoded(records(rows))
    return reader.edits(
        plain_row(number, row, reader) for number, row in enumerate(source, 1)
    )


def rows(path: str | Path, reader: Reader) -> Iterator[Row]:
    """Yield the rows of a manifest in any format."""
    path = Path(path)
    if path.is_dir():
        reader.base = path
        if is_dataset(path):
            return typed_rows(path, reader)
        reader.unit = "edit"
        return folder_rows(path, reader)
    try:
        regular = stat.S_ISREG(path.stat().st_mode)
    except OSError as error:
        message = f"{reader.name}: cannot be read: {error.strerror or error}"
        raise ManifestError(
            message + _similar(path, error), code="missing_manifest"
        ) from None
    except ValueError as error:
        raise ManifestError(f"{reader.name}: cannot be read: {error}") from None
    if not regular:
        raise ManifestError(
            f"{reader.name}: is a device or pipe; expected a file or a folder",
            code="not_a_regular_file",
        )
    if path.suffix.lower() not in _FORMATS:
        expected = f"expected {', '.join(_FORMATS)}, or a folder with one per model"
        raise ManifestError(
            f'{reader.name}: found "{path.suffix}"; {expected}', code="unknown_ending"
        )
    return _FORMATS[path.suffix.lower()](path, reader)


def _similar(path: Path, error: OSError) -> str:
    """Return a hint that suggests a manifest with a similar name in the same folder. Return an empty string if there is
    none.
    """
    if not isinstance(error, FileNotFoundError) or not os.access(path.parent, os.R_OK):
        return ""
    beside = (p.name for p in path.parent.iterdir() if p.suffix.lower() in _FORMATS)
    close = near_miss(path.name, beside)
    return f'; did you mean "{close}"?' if close else ""
