"""Rows of text files, and what becomes of a row: one edit, or the reason why not. Pictures stay in the manifest's
folder."""

from __future__ import annotations

import csv
import difflib
import functools
import hashlib
import json
import math
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from editjudge.edit import IMAGE_ROLES, MAX_PICTURES, PAIR_ROLES, TEXT_ROLES, Edit, ImageSource
from editjudge.errors import ImageError, ManifestError
from editjudge.media import image as images
from editjudge.media.pixels import EXPECTED, encode, is_decoded
from editjudge.redaction import redacted_address

Notify = Callable[[str], None]
"""Called with a notice for the user; by default it is logged as a warning."""

LABELS = ("model", "edit_type", "group")
FIELDS = ("id", *IMAGE_ROLES, *TEXT_ROLES, *LABELS)
PAIR_LABELS = ("model_a", "model_b")
"""Whose the two outputs of a pair are; kept as metadata."""
_TEXTS = (*TEXT_ROLES, *LABELS)

_MAX_ID = 512
_blake = hashlib.blake2b
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

# What other projects call these fields. Only looked at where the field itself never occurs.
_ALIASES = {
    "input": (
        *("input_image", "input_img", "input_path", "source", "source_image", "source_img", "source_path", "src"),
        *("original", "original_image", "before", "image", "image_in", "image_path"),
    ),
    "edited": (
        *("edited_image", "edited_img", "edited_path", "edit", "output", "output_image", "output_path"),
        *("target", "target_image", "target_img", "result", "after", "image_out"),
    ),
    "instruction": ("edit_instruction", "editing_instruction", "instruction_text", "edit_prompt", "prompt"),
    "ground_truth": ("gt", "ground_truth_image", "gt_image"),
    "mask": ("mask_image", "edit_mask"),
    "id": ("item", "item_id", "edit_id", "uid", "key"),
}
_MUST_NOT_BE_MISSPELT = ("input", "edited", "instruction")
_PERHAPS = {"instruction": ("caption", "text", "command", "request", "question")}
"""Names that may as well be something else: suggested, and never refused."""


Columns = tuple[tuple[str, str], ...]
"""Fields and the columns that hold them, where a manifest has other names."""


class NamedInputs(NamedTuple):
    """The further columns that are shown to judges."""

    pictures: frozenset[str] = frozenset()
    """Each a picture or a list of pictures."""
    texts: frozenset[str] = frozenset()
    columns: Columns = ()


class LineError(ManifestError):
    """A line that cannot be understood, with what an audit lists beside the message."""

    def __init__(self, place: str, line: int, name: str, message: str, kind: str = "bad_line") -> None:
        about = f'field "{images.name_of(name[:80])}": ' if name else ""
        super().__init__(f"{place}:{line}: {about}{message}" if line else f"{place}: {about}{message}")
        self.line, self.field, self.kind, self.id, self.message = line, name, kind, "", message


Row = tuple[int, dict[str, Any] | LineError]


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
        named: NamedInputs | None = None,
    ) -> None:
        self.place = images.name_of(str(path))
        self.base = Path(path).parent
        self.unit = unit
        """What the numbers count."""
        self.notify = notify or _log
        self._allow_outside, self._allow_urls = allow_outside, allow_urls
        named = named or NamedInputs()
        self._named = named._replace(pictures=named.pictures | {*PAIR_ROLES})
        pictures = {*IMAGE_ROLES, *self._named.pictures}
        self._columns = dict(self._named.columns)
        self.pictures = frozenset(pictures | {column for field, column in self._columns.items() if field in pictures})
        """Columns that hold pictures."""
        self._further = sorted(self._named.pictures)
        self._ids: dict[bytes, int] = {}
        self._shapes: set[tuple[str, ...]] = set()
        self._seen: set[str] = set()
        self._notified: set[str] = set()
        self._left_out: tuple[str, ...] = ()
        self._folders: dict[str, _Folder] = {}
        self._recent: dict[str, Path] = {}
        """Several models edit one input, and their lines stand together."""

    @functools.cached_property
    def _root(self) -> str:
        return os.path.realpath(self.base)

    def edits(self, rows: Iterable[Row]) -> Iterator[Edit]:
        """Raises the `LineError` of the first row that is wrong."""
        for line, row in rows:
            if isinstance(row, LineError):
                raise row
            yield self.edit(line, row)

    def edit(self, line: int, row: dict[str, Any]) -> Edit:
        if self._columns:
            self._rename(line, row)
        shape = (*row, *self._left_out)
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
            further: dict[str, ImageSource] = {}
            for name in self._further:
                if (value := take(name, None)) is not None:
                    further |= self._images(line, name, value)
            for name in self._named.texts:
                self._word(line, name, row.get(name))
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
            further,
        )

    def _rename(self, line: int, row: dict[str, Any]) -> None:
        """Each mapped column under its field's name. A column that a row lacks is a field that it lacks."""
        renamed = {field: row.pop(column) for field, column in self._columns.items() if column in row}
        if not renamed and not self._seen:
            columns = ", ".join(f"--column {field}={column}" for field, column in self._columns.items())
            raise self.wrong(line, "", f"{columns}: found the columns {', '.join(row)!r:.200}")
        if hidden := sorted(row.keys() & renamed.keys() - self._notified):
            self._notified.update(hidden)
            self.notify(f'{self.place}:{line}: the column "{hidden[0]}" is not read, since --column names another')
        row |= renamed

    def leave_out(self, column: str) -> None:
        """Say once that a column of pictures that no rubric shows is not read; its name may still be a misspelling."""
        if column not in self._left_out:
            self._left_out += (column,)
            self.notify(f'{self.place}: "{column}" holds pictures or bytes that no rubric shows; it is left out')

    def wrong(self, line: int, name: str, message: str, kind: str = "bad_line") -> LineError:
        return LineError(self.place, line, name, message, kind)

    def _look_at_names(self, line: int, shape: tuple[str, ...]) -> None:
        """A misspelt `edited` would be a model that produced nothing, a thousand times over."""
        self._seen.update(shape)
        known = {*FIELDS, *PAIR_LABELS, *self.pictures, *self._named.texts}
        others = [key for key in shape if key not in known]
        absent = [name for name in FIELDS if name not in self._seen]
        columns = {name: _meant(name, others) for name in absent if name in _MUST_NOT_BE_MISSPELT}
        if mapped := {name: column for name, column in columns.items() if column}:
            name, column = next(iter(mapped.items()))
            mapped |= {field: other for field in absent if field not in mapped and (other := _perhaps(field, others))}
            mapping = " ".join(f"--column {field}={column}" for field, column in mapped.items())
            raise self.wrong(line, column, f'did you mean "{name}"? Map it with {mapping}, or add "{name}" as null')
        if others and len(absent) == len(FIELDS):  # ratings, say, or another table
            expected = "expected input, edited and instruction; map others with --column input=NAME"
            raise self.wrong(line, "", f"found the fields {', '.join(others)!r:.200}; {expected}")
        for name in absent:
            other = _meant(name, others) or next((key for key in others if key.startswith(f"{name}_")), None)
            other = other or _perhaps(name, others)
            if other and other not in self._notified:
                self._notified.add(other)
                hint = f'did you mean "{name}"? Map it with --column {name}={other}'
                self.notify(f'{self.place}:{line}: "{other}" is kept as metadata; {hint}')
        if len(self._shapes) > 1000:  # rows that are all different: stop remembering, keep looking
            self._shapes.clear()
        self._shapes.add(shape)

    def _id(self, line: int, value: Any) -> str:
        # A whole number is an id in Parquet and in hand-written JSON; CSV and ratings files name it by the same digits.
        text = str(value) if type(value) is int else self._text(line, "id", value)
        if text is None:
            text = f"{self.unit}-{line}"
            if "id" not in self._notified:
                self._notified.add("id")
                self.notify(f"{self.place}:{line}: no id; ids are made from the {self.unit}'s number, such as {text}")
        if not text or len(text) > _MAX_ID or (not text.isprintable() and _CONTROL.search(text)):
            size = f"{len(text):,} characters" if len(text) > _MAX_ID else repr(text)
            expected = f"expected 1 to {_MAX_ID} characters without control characters"
            raise self.wrong(line, "id", f"found {size}, {expected}")
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
        raise self.wrong(line, name, f"found {described(value)}, expected text")

    def _word(self, line: int, name: str, value: Any) -> None:
        """A text that a rubric shows; a number is shown as it is written."""
        if isinstance(value, bool) or not isinstance(value, str | int | float | None):
            raise self.wrong(line, name, f"found {described(value)}, expected text, since a rubric shows it")

    def _images(self, line: int, name: str, value: Any) -> dict[str, ImageSource]:
        """A picture, or a list of them, by name."""
        if type(value) is str and value.startswith("[") and value.endswith("]"):  # a list in a cell of CSV
            with suppress(ValueError, RecursionError):
                value = json.loads(value)
        if not isinstance(value, list):
            source = self._image(line, name, value)
            return {} if source is None else {name: source}
        if len(value) > MAX_PICTURES:
            raise self.wrong(line, name, f"found {len(value):,} pictures, expected at most {MAX_PICTURES}")
        sources = {f"{name}[{at}]": self._image(line, name, part) for at, part in enumerate(value, 1)}
        if None in sources.values():
            raise self.wrong(line, name, "found a list with an empty place, expected a picture in each")
        return {at: source for at, source in sources.items() if source is not None}

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
        if not is_decoded(value):
            raise self.wrong(line, name, f"found {described(value)}, {EXPECTED}")
        try:
            return encode(value)
        except ImageError as error:
            raise self.wrong(line, name, str(error)) from None

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
            advice = "move the picture there, or allow it with --allow-outside"
            raise self.wrong(line, name, f"{text!r:.200} lies outside the manifest's folder; {advice}") from None
        if len(self._recent) > 500:
            self._recent.clear()
        path = self._recent[text] = folder.path / file
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
            why = "not an address" if self._allow_urls else "addresses are not fetched without --allow-urls"
            raise self.wrong(line, name, f"found {redacted_address(text)[:200]!r}: {why}; expected a path")
        scheme = text.partition("://")[0]
        if scheme != text and scheme.isalnum():
            found = redacted_address(text)[:200]
            raise self.wrong(line, name, f"found {found!r}, expected a path, a data: URL or an http(s) address")
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

    __slots__ = ("_crooked", "_linkless", "_lookups", "path", "text")

    def __init__(self, text: str, crooked: bool) -> None:
        self.text = os.path.join(text, "")
        self.path = Path(text)
        self._lookups = 0
        self._crooked = crooked
        """`x/../y` is nowhere while x is no folder, and may be anywhere once it is: each such path is resolved."""
        self._linkless = False

    def has_link(self, name: str) -> bool:
        if self._linkless or self._crooked:
            return self._crooked
        self._lookups += 1
        try:
            # Asking about one entry takes 2 us, going through all 0.4 us each: worth it where many are wanted.
            if self._lookups == 200:
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


def _perhaps(name: str, others: Iterable[str]) -> str | None:
    return next((key for key in others if key.casefold() in _PERHAPS.get(name, ())), None)


def described(value: Any) -> str:
    kinds = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return f"{kinds.get(type(value), type(value).__name__)} ({value!r:.80})"


# --- text files ---------------------------------------------------------------------------------------------

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
