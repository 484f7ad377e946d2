"""Rows of typed columns: Parquet files, and datasets of Hugging Face on disk or in memory; a few pictures at a time."""

from __future__ import annotations

import datetime
import decimal
import importlib
import json
import math
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from editjudge.errors import ManifestError
from editjudge.media.pixels import is_decoded

_FEW, _MANY = 16, 4096
"""Rows at a time: with pictures of some megabytes each, and without."""

LeaveOut = Callable[[str], None]
"""Told the name of a column with pictures or bytes that no rubric shows."""


def holds(folder: Path) -> bool:
    """Whether a folder is a dataset, and not one with a folder a model."""
    saved = any((folder / name).is_file() for name in ("state.json", "dataset_dict.json"))
    return saved or any(folder.glob("*.parquet"))


def read(path: Path, place: str, leave_out: LeaveOut, pictures: Collection[str]) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file, of a folder of them, or of what `save_to_disk` wrote; `pictures` are the columns that
    may hold bytes."""
    if (path / "dataset_dict.json").is_file():
        path = _only_split(path, place)
    if (path / "state.json").is_file():
        return _saved(path, place, leave_out, pictures)
    return _parquet(sorted(path.glob("*.parquet")) if path.is_dir() else [path], place, leave_out, pictures)


def _parquet(
    files: Iterable[Path], place: str, leave_out: LeaveOut, pictures: Collection[str]
) -> Iterator[dict[str, Any]]:
    parquet = _needed("pyarrow.parquet", "Parquet", "parquet", place)
    for path in files:
        try:
            # With a buffer, pages are read one by one: of a row group of 200 MB it held 390 MB instead of 580.
            with parquet.ParquetFile(path, buffer_size=2**20) as file:
                wanted, heavy = _wanted(file.schema_arrow, leave_out, pictures)
                for group in range(file.num_row_groups):  # asked for all of them, Arrow holds on to most of the file
                    few = _FEW if heavy else _MANY
                    for batch in file.iter_batches(batch_size=few, row_groups=[group], columns=wanted):
                        yield from batch.to_pylist()
        # OSError: a damaged page; ValueError: text that is none; OverflowError: a date that no calendar has.
        except (importlib.import_module("pyarrow").ArrowException, OSError, ValueError, OverflowError) as error:
            where = place if path.name in place else f"{place}: {path.name}"
            raise ManifestError(f"{where}: not a Parquet file that can be read: {error}") from None


def _saved(path: Path, place: str, leave_out: LeaveOut, pictures: Collection[str]) -> Iterator[dict[str, Any]]:
    datasets = _needed("datasets", "a Hugging Face dataset", "hf", place)
    try:
        dataset = datasets.load_from_disk(str(path))
    except Exception as error:  # whatever the library makes of a file that is no dataset
        raise ManifestError(f"{place}: not a dataset that can be read: {error}") from None
    wanted, heavy = _wanted(dataset.data.schema, leave_out, pictures)
    # As Arrow has them: pictures stay encoded, and come from the mapped file as they are needed.
    for table in dataset.select_columns(wanted).with_format("arrow").iter(batch_size=_FEW if heavy else _MANY):
        yield from table.to_pylist()


def _only_split(path: Path, place: str) -> Path:
    try:
        splits = [Path(name).name for name in json.loads((path / "dataset_dict.json").read_bytes())["splits"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ManifestError(f"{place}: dataset_dict.json cannot be read: {error!r}") from None
    if len(splits) != 1:
        raise ManifestError(f"{place}: has the splits {', '.join(splits)}; name one of these folders")
    return path / splits[0]


def records(rows: Any) -> Iterable[Mapping[str, Any]]:
    """The rows of a data frame (pandas, polars), of an Arrow table, or rows as they are. What a frame marks as missing
    is None."""
    table: Iterable[Mapping[str, Any]] = rows
    if hasattr(rows, "to_dicts"):  # polars
        table = rows.to_dicts()
    elif hasattr(rows, "to_pylist"):  # Arrow
        table = rows.to_pylist()
    elif hasattr(rows, "notna"):  # pandas
        table = rows.astype(object).where(rows.notna(), None).to_dict("records")
    return table


def undecoded(rows: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    """A dataset with its pictures as they were encoded: decoding and encoding them again would be an edit."""
    for name, feature in (getattr(rows, "features", None) or {}).items():
        inner = getattr(feature, "feature", feature)  # of a list of pictures
        if type(inner).__name__ == "Image" and inner.decode:
            plain = type(inner)(decode=False)
            rows = rows.cast_column(  # type: ignore[attr-defined]  # a dataset's
                name, plain if inner is feature else type(feature)(plain)
            )
    return rows


def _wanted(schema: Any, leave_out: LeaveOut, pictures: Collection[str]) -> tuple[list[str], bool]:
    """The columns that are read, and whether pictures are among them."""
    heavy = {column.name for column in schema if holds_bytes(column.type)}
    for name in sorted(heavy.difference(pictures)):
        leave_out(name)
    return [n for n in schema.names if n not in heavy or n in pictures], not heavy.isdisjoint(pictures)


def holds_bytes(kind: Any) -> bool:
    types = importlib.import_module("pyarrow.types")
    if types.is_nested(kind):
        return any(holds_bytes(kind.field(index).type) for index in range(kind.num_fields))
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def plain(row: Mapping[str, Any], pictures: Collection[str], leave_out: LeaveOut) -> dict[str, Any]:
    """A row with the values that JSON has; pictures as they are, and those in other columns left out."""
    values = {}
    for key, value in row.items():
        if key in pictures:
            values[key] = value
        elif isinstance(value, bytes | bytearray) or is_decoded(value):
            leave_out(str(key))
        else:
            values[str(key)] = _plain(value, key)
    return values


def _plain(value: Any, key: object) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f'field "{key}": found {value}, expected a finite number or null')
        return value
    if isinstance(value, list | tuple):
        return [_plain(part, key) for part in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(part, key) for name, part in value.items()}
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | datetime.timedelta | uuid.UUID | Path):
        return str(value)
    if hasattr(value, "tolist"):  # NumPy
        return _plain(value.tolist(), key)
    raise ValueError(f'field "{key}": found {type(value).__name__}, expected text, a number, a list or an object')


def _needed(module: str, what: str, extra: str, place: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ManifestError(f"{place}: {what} needs an extra: pip install 'editjudge[{extra}]'") from None
