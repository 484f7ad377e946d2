"""Rows of text files: JSONL and CSV, line by line, each wrong one named."""

from __future__ import annotations

import csv
import functools
import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from editjudge.manifest.reader import Reader, Row, described
from editjudge.media import image as images

# Each of four pictures as a data: URL of the largest size, and the words beside them.
_MAX_LINE = 4 * images.BOUNDS.max_bytes * 4 // 3 + 2**20
_MAX_ARRAY = 256 * 2**20
"""Bytes of a JSON array: it is in memory as a whole, several times as large."""


def _lines(file: IO[bytes], reader: Reader) -> Iterator[tuple[int, bytes]]:
    """Lines as bytes, so that one with bad UTF-8 can be named; none so long that it fills memory."""
    for line, raw in enumerate(iter(functools.partial(file.readline, _MAX_LINE), b""), 1):
        if len(raw) == _MAX_LINE:
            raise reader.wrong(line, "", f"found a line of more than {_MAX_LINE:,} bytes")
        yield line, raw.removeprefix(b"\xef\xbb\xbf") if line == 1 else raw


def jsonl(path: Path, reader: Reader) -> Iterator[Row]:
    with path.open("rb") as file:
        for line, raw in _lines(file, reader):
            if raw.isspace() or not raw:
                continue
            try:
                yield line, _parsed(raw)
            except (ValueError, RecursionError) as error:
                yield line, reader.wrong(line, "", f"{_why_not_json(error)}; expected one JSON object a line")


def json_array(path: Path, reader: Reader) -> Iterator[Row]:
    """One array of objects; read at once, and so bounded. Rows are named by their place in the array."""
    reader.unit = "row"
    if (size := path.stat().st_size) > _MAX_ARRAY:
        raise reader.wrong(0, "", f"found {size:,} bytes of JSON, expected at most {_MAX_ARRAY:,}; write JSONL instead")
    try:
        rows = _DECODER.decode(path.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise reader.wrong(0, "", f"{_why_not_json(error)}; expected an array of objects") from None
    if not isinstance(rows, list):
        raise reader.wrong(0, "", f"found {described(rows)}, expected an array of objects, one for each edit")
    for number, row in enumerate(rows, 1):
        if isinstance(row, dict):
            yield number, row
        else:
            yield number, reader.wrong(number, "", f"found {described(row)}, expected an object")


def _parsed(raw: bytes) -> dict[str, Any]:
    text = raw.decode().strip(_JSON_SPACE)
    value, end = _DECODER.raw_decode(text)  # `decode` looks for white space twice more
    if end < len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    if type(value) is not dict:
        raise ValueError(f"found {described(value)}")
    if b"\\u" in raw:  # an escape can write half of a surrogate pair, which no file and no request can hold
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _why_not_json(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"found a byte that is not UTF-8 at column {error.start + 1}"
    if isinstance(error, UnicodeEncodeError):
        return "found half of a surrogate pair, which is not text"
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} at column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f'the key "{twice:.80}" stands twice in one object')
    return members


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.40} is not a finite number")
    return value


_JSON_SPACE = " \t\r\n"
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite)


def csv_rows(path: Path, reader: Reader) -> Iterator[Row]:
    # The limit is one for the process, and only ever raised here: pictures may stand in cells as data: URLs.
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_LINE))
    with path.open("rb") as file:
        records = _records(file, reader)
        _, names = next(records, (1, []))
        if not names or len(set(names)) < len(names) or not all(names):
            raise reader.wrong(1, "", f"found the columns {names!r:.200}; expected names, each once")
        if len(names) == 1 and (other := next((sign for sign in ";\t|" if sign in names[0]), None)):
            raise reader.wrong(
                1, "", f"found one column, {names[0]!r:.200}; expected commas between cells, not {other!r}"
            )
        for line, cells in records:
            if len(cells) == len(names):
                yield line, {name: cell or None for name, cell in zip(names, cells, strict=True)}
            elif any(cells):
                message = f"found {len(cells)} cells, expected {len(names)}; a cell with a comma needs quotes"
                yield line, reader.wrong(line, "", message)


def _records(file: IO[bytes], reader: Reader) -> Iterator[tuple[int, list[str]]]:
    """The cells of each record, with the line that it begins on: a quoted cell may go over several."""
    table = csv.reader(_decoded(file, reader), strict=True)
    while True:
        line = table.line_num + 1
        try:
            cells = next(table, None)
        except csv.Error as error:  # after it nothing is certain to be where it belongs
            raise reader.wrong(line, "", f"not CSV: {error}") from None
        if cells is None:
            return
        yield line, cells


def _decoded(file: IO[bytes], reader: Reader) -> Iterator[str]:
    for line, raw in _lines(file, reader):
        try:
            yield raw.decode()
        except UnicodeDecodeError as error:
            raise reader.wrong(line, "", f"{_why_not_json(error)}; expected UTF-8") from None
