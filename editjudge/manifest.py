"""Manifests in, edits out, one at a time: JSONL, CSV, Parquet, or a folder.

A folder is read as a manifest when it is laid out like this, pictures belonging together by name without extension:

    ROOT/input/NAME.png             what was edited
    ROOT/MODEL/NAME.png             one folder a model; where a picture is missing, the model produced nothing
    ROOT/ground_truth/NAME.png      optional, like ROOT/mask/
    ROOT/instructions.csv, .jsonl   `name`, `instruction` and, as in any manifest, whatever else is known

Without an instructions file every instruction is empty; with one, each picture in `input` must have its own.
"""

from __future__ import annotations

import csv
import datetime
import decimal
import difflib
import functools
import hashlib
import importlib
import json
import math
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from editjudge import images
from editjudge.edit import IMAGE_ROLES, TEXT_ROLES, Edit, ImageSource
from editjudge.errors import ImageError, ManifestError

if TYPE_CHECKING:
    pass

Notify = Callable[[str], None]
"""Takes what a user should hear that is no error; by default a warning in the log."""

LABELS = ("model", "edit_type", "group")
FIELDS = ("id", *IMAGE_ROLES, *TEXT_ROLES, *LABELS)
_TEXTS = (*TEXT_ROLES, *LABELS)

# Each of four pictures as a data: URL of the largest size, and the words beside them.
_MAX_LINE = 4 * images.BOUNDS.max_bytes * 4 // 3 + 2**20
_MAX_ID = 512
_blake = hashlib.blake2b
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

# What other projects call these fields. Only looked at where the field itself never occurs.
_ALIASES = {
    "input": ("input_image", "source_image", "original_image", "original", "before", "image_in", "src"),
    "edited": ("edited_image", "output_image", "output", "edit", "result", "after", "image_out", "edited_path"),
    "instruction": ("edit_instruction", "editing_instruction", "instruction_text", "edit_prompt", "prompt"),
    "ground_truth": ("gt", "ground_truth_image", "gt_image"),
    "mask": ("mask_image", "edit_mask"),
    "id": ("item", "item_id", "edit_id", "uid", "key"),
}
_MUST_NOT_BE_MISSPELT = ("input", "edited", "instruction")


class LineError(ManifestError):
    """A line that cannot be understood, with what an audit lists beside the message."""

    def __init__(self, place: str, line: int, name: str, message: str, kind: str = "bad_line") -> None:
        about = f'field "{images.name_of(name[:80])}": ' if name else ""
        super().__init__(f"{place}:{line}: {about}{message}" if line else f"{place}: {about}{message}")
        self.line, self.field, self.kind, self.id = line, name, kind, ""


Row = tuple[int, dict[str, Any] | LineError]


def read(
    path: str | Path,
    *,
    allow_outside: bool = False,
    allow_urls: bool = False,
    limit: int | None = None,
    notify: Notify | None = None,
) -> Iterator[Edit]:
    """The edits of a manifest, in its order. Raises `ManifestError` at the first line that is wrong."""
    reader = Reader(path, allow_outside=allow_outside, allow_urls=allow_urls, notify=notify)
    return islice(_raising(reader, rows(path, reader)), limit)


def from_rows(
    rows: Iterable[Mapping[str, Any]],
    *,
    name: str = "rows",
    root: str | Path = ".",
    allow_outside: bool = False,
    allow_urls: bool = False,
    notify: Notify | None = None,
) -> Iterator[Edit]:
    """The edits of rows that are in memory already, such as a Hugging Face dataset; paths are relative to `root`."""
    reader = Reader(name, allow_outside=allow_outside, allow_urls=allow_urls, notify=notify, unit="row")
    reader.base = Path(root)
    return _raising(reader, (_plain_row(number, row, reader) for number, row in enumerate(rows, 1)))


def _raising(reader: Reader, rows: Iterable[Row]) -> Iterator[Edit]:
    for line, row in rows:
        if isinstance(row, LineError):
            raise row
        yield reader.edit(line, row)


def rows(path: str | Path, reader: Reader) -> Iterator[Row]:
    path = Path(path)
    if path.is_dir():
        reader.unit, reader.base = "edit", path
        return _folder(path, reader)
    try:
        regular = stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError) as error:
        raise ManifestError(f"{reader.place}: cannot be read: {error}") from None
    if not regular:
        raise ManifestError(f"{reader.place}: is a device or pipe; expected a file or a folder")
    formats = {".jsonl": _jsonl, ".ndjson": _jsonl, ".csv": _csv, ".parquet": _parquet}
    if path.suffix.lower() not in formats:
        known = ", ".join(formats)
        raise ManifestError(f'{reader.place}: found "{path.suffix}"; expected {known}, or a folder with one per model')
    return formats[path.suffix.lower()](path, reader)


# --- one row --------------------------------------------------------------------------------------------------


class Reader:
    """Turns rows into edits; holds what must be remembered from one line to the next."""

    def __init__(
        self,
        path: str | Path,
        *,
        allow_outside: bool = False,
        allow_urls: bool = False,
        notify: Notify | None = None,
        unit: str = "line",
    ) -> None:
        self.place = images.name_of(str(path))
        self.base = Path(path).parent
        self.unit = unit
        """What the numbers count."""
        self.notify = notify or _log
        self._allow_outside, self._allow_urls = allow_outside, allow_urls
        self._ids: dict[bytes, int] = {}
        self._shapes: set[tuple[str, ...]] = set()
        self._seen: set[str] = set()
        self._told: set[str] = set()
        self._folders: dict[str, _Folder] = {}
        self._recent: dict[str, Path] = {}
        """Several models edit one input, and their lines stand together."""

    @functools.cached_property
    def _root(self) -> str:
        return os.path.realpath(self.base)

    def edit(self, line: int, row: dict[str, Any]) -> Edit:
        shape = tuple(row)
        if shape not in self._shapes:
            self._look_at_names(line, shape)
        take = row.pop
        identifier = self._id(line, take("id", None))
        try:
            pictures = [
                None if (value := take(role, None)) is None else self._image(line, role, value) for role in IMAGE_ROLES
            ]
            texts = [
                value if (value := take(name, None)) is None or type(value) is str else self._text(line, name, value)
                for name in _TEXTS
            ]
        except LineError as error:
            error.id = identifier
            raise
        source, edited, ground_truth, mask = pictures
        instruction, referring, model, edit_type, group = texts
        return Edit(
            identifier,
            source,
            edited,
            instruction or "",
            ground_truth,
            mask,
            referring or "",
            model,
            edit_type,
            group,
            row,
        )

    def wrong(self, line: int, name: str, message: str, kind: str = "bad_line") -> LineError:
        return LineError(self.place, line, name, message, kind)

    def _look_at_names(self, line: int, shape: tuple[str, ...]) -> None:
        """A misspelt `edited` would be a model that produced nothing, a thousand times over."""
        self._seen.update(shape)
        others = [key for key in shape if key not in FIELDS]
        absent = [name for name in FIELDS if name not in self._seen]
        for name in absent:
            if name in _MUST_NOT_BE_MISSPELT and (wrote := _meant(name, others)):
                raise self.wrong(line, wrote, f'did you mean "{name}"? Rename it, or add "{name}", if only as null')
        for name in absent:
            wrote = _meant(name, others) or next((key for key in others if key.startswith(f"{name}_")), None)
            if wrote and wrote not in self._told:
                self._told.add(wrote)
                self.notify(f'{self.place}:{line}: "{wrote}" is kept as metadata; did you mean "{name}"?')
        if len(self._shapes) > 1000:  # rows that are all different: stop remembering, keep looking
            self._shapes.clear()
        self._shapes.add(shape)

    def _id(self, line: int, value: Any) -> str:
        # A whole number is an id in Parquet and in hand-written JSON; CSV and ratings files name it by the same digits.
        text = str(value) if type(value) is int else self._text(line, "id", value)
        if text is None:
            text = f"{self.unit}-{line}"
            if "id" not in self._told:
                self._told.add("id")
                self.notify(f"{self.place}:{line}: no id; ids are made from the {self.unit}'s number, such as {text}")
        if not text or len(text) > _MAX_ID or (not text.isprintable() and _CONTROL.search(text)):
            found = f"{len(text):,} characters" if text and len(text) > _MAX_ID else repr(text)
            expected = f"expected 1 to {_MAX_ID} characters without control characters"
            raise self.wrong(line, "id", f"found {found}, {expected}")
        # Sixteen bytes an id, so that a million of them fit into memory.
        first = self._ids.setdefault(_blake(text.encode(), digest_size=16).digest(), line)
        if first != line:
            message = f"{text!r} stands on {self.unit} {first} and again on {self.unit} {line}; expected unique ids"
            error = self.wrong(line, "id", message, "duplicate_id")
            error.id = text
            raise error
        return text

    def _text(self, line: int, name: str, value: Any) -> str | None:
        if value is None or type(value) is str:
            return value
        raise self.wrong(line, name, f"found {_described(value)}, expected text")

    def _image(self, line: int, name: str, value: Any) -> ImageSource | None:
        if type(value) is str:
            return self._recent.get(value) or (self._locate(line, name, value) if value else None)
        if value is None:
            return None
        if isinstance(value, dict) and value.keys() <= {"bytes", "path"}:  # as Hugging Face writes pictures
            inside, path = value.get("bytes"), value.get("path")
            if inside is None and (path is None or isinstance(path, str)):
                return self._image(line, name, path)
            value = inside if isinstance(inside, bytes) else value
        if isinstance(value, bytes):
            if len(value) > images.BOUNDS.max_bytes:
                message = f"found {len(value):,} bytes, expected at most {images.BOUNDS.max_bytes:,}"
                raise self.wrong(line, name, message)
            return value
        advice = "; load it undecoded: cast_column(..., datasets.Image(decode=False))" if hasattr(value, "save") else ""
        raise self.wrong(line, name, f"found {_described(value)}, expected a path, a data: URL or bytes{advice}")

    # --- where a picture lies -----------------------------------------------------------------------------

    def _locate(self, line: int, name: str, text: str) -> ImageSource:
        if ":" in text and (source := self._address(line, name, text)) is not None:
            return source
        if os.sep != "/":
            text = text.replace(os.sep, "/")
        cut = text.rfind("/") + 1
        file = text[cut:]
        if file in ("", ".", "..") or "\0" in text:
            raise self.wrong(line, name, f"found {text!r:.200}, expected the path of a file")
        try:
            folder = self._folders.get(text[:cut]) or self._folder(text[:cut])
            if not self._allow_outside and folder.has_link(file):
                self._confine(folder.text + file)
        except _OutsideError:
            advice = "move the picture there, or allow paths outside"
            raise self.wrong(line, name, f"{text!r:.200} lies outside the manifest's folder; {advice}") from None
        if len(self._recent) > 500:
            self._recent.clear()
        path = self._recent[text] = folder.path.joinpath(file)
        return path

    def _address(self, line: int, name: str, text: str) -> ImageSource | None:
        if text.startswith("data:"):
            try:
                return images.from_data_url(text)
            except ImageError as error:
                raise self.wrong(line, name, str(error)) from None
        if images.is_url(text):
            if self._allow_urls and text.isprintable() and " " not in text:
                return text
            why = "not an address" if self._allow_urls else "addresses are not fetched unless that is allowed"
            raise self.wrong(line, name, f"found {text[:200]!r}: {why}; expected a path")
        scheme = text.partition("://")[0]
        if scheme != text and scheme.isalnum():
            raise self.wrong(line, name, f"found {text[:200]!r}, expected a path, a data: URL or an http(s) address")
        return None

    def _folder(self, prefix: str) -> _Folder:
        """The folder of a path; confined once, however many files lie in it."""
        folder = _Folder(os.path.join(self.base, prefix), crooked=".." in prefix.split("/"))
        if prefix and not self._allow_outside and self._may_lead_out(prefix):
            self._confine(folder.text)
        if len(self._folders) > 50_000:  # one folder an edit: remembering them all helps nobody
            self._folders.clear()
        self._folders[prefix] = folder
        return folder

    def _may_lead_out(self, prefix: str) -> bool:
        if prefix.startswith("/") or ".." in prefix.split("/"):
            return True
        # Its parent is inside, so that only a link can lead out: a fifth of what resolving all of it costs.
        parent, slash, name = prefix.rstrip("/").rpartition("/")
        return (self._folders.get(parent + slash) or self._folder(parent + slash)).has_link(name)

    def _confine(self, path: str) -> None:
        real = os.path.realpath(path)
        if real != self._root and not real.startswith(self._root.rstrip(os.sep) + os.sep):
            raise _OutsideError


def _log(message: str) -> None:
    import logging

    logging.getLogger(__name__).warning(message)


class _OutsideError(Exception):
    """A path that leaves the manifest's folder."""


class _Folder:
    """A folder with pictures, and whether entries of it are links: the only ones that can lead elsewhere."""

    __slots__ = ("_asked", "_crooked", "_linkless", "path", "text")

    def __init__(self, text: str, crooked: bool) -> None:
        self.text = os.path.join(text, "")
        self.path = Path(text)
        self._asked = 0
        self._crooked = crooked
        """`x/../y` is nowhere while x is no folder, and may be anywhere once it is: each such path is resolved."""
        self._linkless = False

    def has_link(self, name: str) -> bool:
        if self._linkless or self._crooked:
            return self._crooked
        self._asked += 1
        try:
            # Asking about one entry takes 2 us, going through all 0.4 us each: worth it where many are wanted.
            if self._asked == 200:
                with os.scandir(self.text) as entries:
                    self._linkless = not any(entry.is_symlink() for entry in entries)
            return stat.S_ISLNK(os.lstat(self.text + name).st_mode)
        except OSError:
            return False  # not there: nothing that could be read


def _meant(name: str, others: Iterable[str]) -> str | None:
    """The key that somebody wrote for this field, if one looks like it."""
    for key in others:
        plain = key.strip().casefold().replace(" ", "_").replace("-", "_")
        if plain == name or plain in _ALIASES.get(name, ()):
            return key
        # `edited_a`, `edited_at`: something about the field, and not the field.
        alike = difflib.SequenceMatcher(None, plain, name).ratio() >= 0.8
        if alike and not plain.startswith(f"{name}_"):
            return key
    return None


def _described(value: Any) -> str:
    kinds = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return f"{kinds.get(type(value), type(value).__name__)} ({value!r:.80})"


# --- files ----------------------------------------------------------------------------------------------------


def _lines(file: IO[bytes], reader: Reader) -> Iterator[tuple[int, bytes]]:
    """Lines as bytes, so that one with bad UTF-8 can be named; none so long that it fills memory."""
    for line, raw in enumerate(iter(functools.partial(file.readline, _MAX_LINE), b""), 1):
        if len(raw) == _MAX_LINE:
            raise reader.wrong(line, "", f"found a line of more than {_MAX_LINE:,} bytes")
        yield line, raw.removeprefix(b"\xef\xbb\xbf") if line == 1 else raw


def _jsonl(path: Path, reader: Reader) -> Iterator[Row]:
    with path.open("rb") as file:
        for line, raw in _lines(file, reader):
            if raw.isspace() or not raw:
                continue
            try:
                yield line, _parsed(raw)
            except (ValueError, RecursionError) as error:
                yield line, reader.wrong(line, "", f"{_why_not_json(error)}; expected one JSON object a line")


def _parsed(raw: bytes) -> dict[str, Any]:
    text = raw.decode().strip(_JSON_SPACE)
    value, end = _DECODER.raw_decode(text)  # `decode` looks for white space twice more
    if end < len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    if type(value) is not dict:
        raise ValueError(f"found {_described(value)}")
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


def _csv(path: Path, reader: Reader) -> Iterator[Row]:
    # The limit is one for the process, and only ever raised here: pictures may stand in cells as data: URLs.
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_LINE))
    with path.open("rb") as file:
        records = _records(file, reader)
        _, names = next(records, (1, []))
        if not names or len(set(names)) < len(names) or not all(names):
            raise reader.wrong(1, "", f"found the columns {names!r:.200}; expected names, each once")
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


def _parquet(path: Path, reader: Reader) -> Iterator[Row]:
    reader.unit = "row"
    try:
        parquet = importlib.import_module("pyarrow.parquet")
        types = importlib.import_module("pyarrow.types")
        arrow_error = importlib.import_module("pyarrow").ArrowException
    except ImportError:
        message = f"{reader.place}: Parquet needs an extra: pip install 'editjudge[parquet]'"
        raise ManifestError(message) from None
    try:
        with parquet.ParquetFile(path) as file:
            heavy = {column.name for column in file.schema_arrow if _holds_bytes(column.type, types)}
            for name in sorted(heavy - {*IMAGE_ROLES}):
                reader.notify(f'{reader.place}: "{name}" holds bytes and is none of the pictures; it is left out')
            wanted = [name for name in file.schema_arrow.names if name not in heavy or name in IMAGE_ROLES]
            # Pictures of a few megabytes each: a handful of rows at a time.
            batches = file.iter_batches(batch_size=16 if heavy else 4096, columns=wanted)
            rows = (row for batch in batches for row in batch.to_pylist())
            for number, row in enumerate(rows, 1):
                yield _plain_row(number, row, reader)
    except arrow_error as error:
        raise ManifestError(f"{reader.place}: not a Parquet file that can be read: {error}") from None


def _holds_bytes(kind: Any, types: Any) -> bool:
    if types.is_struct(kind):
        return any(_holds_bytes(part.type, types) for part in kind)
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _plain_row(number: int, row: Mapping[str, Any], reader: Reader) -> Row:
    try:
        return number, {key: value if key in IMAGE_ROLES else _plain(value) for key, value in row.items()}
    except ValueError as error:
        return number, reader.wrong(number, "", str(error))


def _plain(value: Any) -> Any:
    """Values that JSON has, out of those that Parquet has."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"found {value}, expected a finite number or null")
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value) if isinstance(value, decimal.Decimal | datetime.timedelta) else value


# --- a folder with one folder a model -------------------------------------------------------------------------

_PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".heic", ".heif")
_BESIDE = ("input", "ground_truth", "mask")


def _folder(root: Path, reader: Reader) -> Iterator[Row]:
    beside = {role: _named(root / role) for role in _BESIDE if (root / role).is_dir()}
    folders = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith((".", "_")))
    models = {name: _named(root / name) for name in folders if name not in _BESIDE}
    inputs = beside.get("input", {})
    if not inputs or not models:
        expected = 'expected "input" with pictures in it, and a folder for each model'
        raise ManifestError(f"{reader.place}: found the folders {folders!r:.200}; {expected}")
    for name, pictures in {**models, **beside}.items():
        for strange in sorted(pictures.keys() - inputs.keys()):
            message = f"{name}/{pictures[strange]} has no picture of that name in input"
            yield 0, reader.wrong(0, "input", message)
    about = _Instructions(root, reader, inputs)
    yield from about.problems
    for number, (name, model) in enumerate(((name, model) for name in sorted(inputs) for model in models), 1):
        row = {"id": f"{model}/{name}", "model": model, "edited": None, **about.rows.get(name, {})}
        row |= {role: f"{role}/{files[name]}" for role, files in beside.items() if name in files}
        if name in models[model]:
            row["edited"] = f"{model}/{models[model][name]}"
        yield number, row


def _named(folder: Path) -> dict[str, str]:
    """The pictures of a folder, by name without extension."""
    found: dict[str, str] = {}
    for file in sorted(os.listdir(folder)):
        name, suffix = os.path.splitext(file)
        if suffix.lower() in _PICTURES and not name.startswith("."):
            if name in found:
                raise ManifestError(f"{folder}: found {found[name]} and {file}; expected one picture a name")
            found[name] = file
    return found


class _Instructions:
    """What the instructions file of a folder says, by name, and what is wrong with it."""

    def __init__(self, root: Path, reader: Reader, pictures: Mapping[str, str]) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.problems: list[Row] = []
        self._pictures = pictures
        files = [path for path in (root / "instructions.csv", root / "instructions.jsonl") if path.exists()]
        if not files:
            reader.notify(f"{reader.place}: no instructions.csv or instructions.jsonl; every instruction is empty")
        elif len(files) == 2:
            raise ManifestError(f"{reader.place}: found instructions.csv and instructions.jsonl; expected one of them")
        else:
            self._read(files[0])

    def _read(self, path: Path) -> None:
        reader = Reader(path)
        for line, row in rows(path, reader):
            try:
                if isinstance(row, LineError):
                    raise row
                self._take(line, row, reader)
            except LineError as error:
                self.problems.append((line, error))
        for name in sorted(self._pictures.keys() - self.rows.keys()):
            self.problems.append((0, reader.wrong(0, "name", f"no line for input/{self._pictures[name]}")))

    def _take(self, line: int, row: dict[str, Any], reader: Reader) -> None:
        given = str(row.pop("name", None) or "")
        name = given if given in self._pictures else os.path.splitext(given)[0]
        if name not in self._pictures:
            raise reader.wrong(line, "name", f"found {given!r}, expected the name of a picture in input")
        if name in self.rows:
            raise reader.wrong(line, "name", f"found {given!r} a second time, expected one line a picture")
        if taken := row.keys() & {"id", "model", *IMAGE_ROLES}:
            raise reader.wrong(line, min(taken), "the folders say this; leave the field out")
        if not isinstance(row.get("instruction"), str):
            raise reader.wrong(line, "instruction", f"found {row.get('instruction')!r:.80}, expected text")
        self.rows[name] = row
