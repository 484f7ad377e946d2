"""Rows with typed columns, from Parquet files and from Hugging Face datasets on disk or in memory. Only a few images
are in memory at a time.
"""

from __future__ import annotations

import datetime
import decimal
import importlib
import json
import math
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from editjudge.errors import ManifestError
from editjudge.manifest.reader import Reader, Row
from editjudge.media.source import is_decoded

_WITH_IMAGES = 16
_WITHOUT_IMAGES = 4096
"""Number of rows that are read at a time, with and without images. An image may have several megabytes."""


def is_dataset(folder: Path) -> bool:
    """Whether a folder is a dataset, as opposed to a folder with a subfolder for each model."""
    marks = ("state.json", "dataset_dict.json")
    saved = any((folder / name).is_file() for name in marks)
    return saved or any(folder.glob("*.parquet"))


def typed_rows(path: Path, reader: Reader) -> Iterator[Row]:
    """Yield the rows of a Parquet file, a folder of Parquet files, or a dataset written by `save_to_disk`."""
    reader.unit = "row"
    if (path / "dataset_dict.json").is_file():
        path = _only_split(path, reader.name)
    if (path / "state.json").is_file():
        rows = _saved(path, reader)
    else:
        files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        rows = _parquet(files, reader)
    for number, row in enumerate(rows, 1):
        yield plain_row(number, row, reader)


def _parquet(files: Iterable[Path], reader: Reader) -> Iterator[dict[str, object]]:
    parquet = _needed("pyarrow.parquet", "Parquet", "parquet", reader.name)
    arrow = importlib.import_module("pyarrow")
    for path in files:
        try:
            # With a buffer, pages are read one by one: this took 390 MB instead of 580 for a row group of 200 MB.
            with parquet.ParquetFile(path, buffer_size=2**20) as file:
                columns, size = _wanted(file.schema_arrow, reader)
                # Read each group separately, since Arrow would keep most of the file in memory otherwise.
                for group in range(file.num_row_groups):
                    for batch in file.iter_batches(
                        batch_size=size, row_groups=[group], columns=columns
                    ):
                        yield from batch.to_pylist()
        # OSError: a damaged page; ValueError: invalid text; OverflowError: a date out of range.
        except (arrow.ArrowException, OSError, ValueError, OverflowError) as error:
            manifest = reader.name
            where = manifest if path.name in manifest else f"{manifest}: {path.name}"
            raise ManifestError(
                f"{where}: not a Parquet file that can be read: {error}",
                code="not_parquet",
            ) from None


def _saved(path: Path, reader: Reader) -> Iterator[dict[str, object]]:
    datasets = _needed("datasets", "a Hugging Face dataset", "hf", reader.name)
    try:
        dataset = datasets.load_from_disk(str(path))
    except Exception as error:  # a damaged dataset can raise any exception
        raise ManifestError(
            f"{reader.name}: not a dataset that can be read: {error}",
            code="not_a_dataset",
        ) from None
    columns, size = _wanted(dataset.data.schema, reader)
    # In Arrow format, images stay encoded and are read from the mapped file on demand.
    arrow = dataset.select_columns(columns).with_format("arrow")
    for table in arrow.iter(batch_size=size):
        yield from table.to_pylist()


def _only_split(path: Path, manifest: str) -> Path:
    try:
        names = json.loads((path / "dataset_dict.json").read_bytes())["splits"]
        splits = [Path(name).name for name in names]
    except (ValueError, KeyError, TypeError) as error:
        raise ManifestError(
            f"{manifest}: dataset_dict.json cannot be read: {error!r}"
        ) from None
    if len(splits) != 1:
        raise ManifestError(
            f"{manifest}: has the splits {', '.join(splits)}; name one of these folders",
            code="several_splits",
        )
    return path / splits[0]


def _wanted(schema: Any, reader: Reader) -> tuple[list[str], int]:
    """Return the columns to read, and the number of rows to read at a time."""
    heavy = {column.name for column in schema if _holds_bytes(column.type)}
    for name in sorted(heavy - reader.image_columns):
        reader.leave_out(name)
    columns = [n for n in schema.names if n not in heavy or n in reader.image_columns]
    return columns, _WITHOUT_IMAGES if heavy.isdisjoint(columns) else _WITH_IMAGES


def _holds_bytes(kind: Any) -> bool:
    types = importlib.import_module("pyarrow.types")
    if types.is_nested(kind):
        return any(_holds_bytes(kind.field(n).type) for n in range(kind.num_fields))
    tests = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary)
    return any(test(kind) for test in tests)


def _needed(module: str, what: str, extra: str, manifest: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ManifestError(
            f"{manifest}: {what} needs an extra: pip install 'editjudge[{extra}]'",
            code="missing_extra",
        ) from None


def records(rows: Any) -> Iterable[Mapping[str, object]]:
    """Return the rows of a data frame (pandas, polars) or an Arrow table. Other rows are returned unchanged. A data
    frame's missing values become None.
    """
    table: Iterable[Mapping[str, object]] = rows
    if hasattr(rows, "to_dicts"):  # polars
        table = rows.to_dicts()
    elif hasattr(rows, "to_pylist"):  # Arrow
        table = rows.to_pylist()
    elif hasattr(rows, "notna"):  # pandas
        table = rows.astype(object).where(rows.notna(), None).to_dict("records")
    return table


def undecoded(rows: Any) -> Iterable[Mapping[str, object]]:
    """Return a dataset whose images are still encoded, since decoding and encoding them again would change them."""
    features = getattr(rows, "features", None) or {}
    for name, feature in features.items():
        inner = getattr(feature, "feature", feature)  # for a list of images
        if type(inner).__name__ == "Image" and inner.decode:
            plain = type(inner)(decode=False)
            new = plain if inner is feature else type(feature)(plain)
            rows = rows.cast_column(name, new)
    table: Iterable[Mapping[str, object]] = rows
    return table


def plain_row(number: int, row: Mapping[str, object], reader: Reader) -> Row:
    """Return a row with values that JSON can represent. Images are kept in image columns, and removed from other
    columns.
    """
    values = {}
    try:
        for key, value in row.items():
            if key in reader.image_columns:
                values[key] = value
            elif isinstance(value, bytes | bytearray) or is_decoded(value):
                reader.leave_out(str(key))
            else:
                values[str(key)] = _plain(value, key)
    except ValueError as error:
        return number, reader.wrong(number, "", str(error))
    return number, values


def _plain(value: object, key: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(
            f'field "{key}": found {value}, expected a finite number or null'
        )
    match value:
        case None | str() | bool() | int() | float():
            return value
        case list() | tuple():
            return [_plain(part, key) for part in value]
        case Mapping():
            return {str(name): _plain(part, key) for name, part in value.items()}
        case datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal() | datetime.timedelta() | uuid.UUID() | Path():
            return str(value)
    if hasattr(value, "tolist"):  # NumPy
        return _plain(value.tolist(), key)
    raise ValueError(
        f'field "{key}": found {type(value).__name__}, expected text, a number, a list or an object'
    )
