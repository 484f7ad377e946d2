"""Reader for manifests. It parses text files into rows, and rows into edits. Errors name the line and the field.

Images must be in the manifest's folder unless the caller allows others.
"""

from __future__ import annotations

import csv
import difflib
import functools
import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from editjudge.canonical import Json, read_json
from editjudge.edit import (
    IMAGE_ROLES,
    MAX_IMAGES,
    PAIR_ROLES,
    TEXT_ROLES,
    Edit,
    ImageSource,
)
from editjudge.errors import ImageError, ManifestError, Option
from editjudge.files import LeavesFolder, resolve_inside
from editjudge.media.source import (
    BOUNDS,
    EXPECTED,
    encode,
    from_data_url,
    is_decoded,
    is_url,
    name_of,
)
from editjudge.redaction import redacted_address

Notify = Callable[[str], None]
"""Function that is called with notices for the user. By default they are logged as warnings."""

LABELS = ("model", "edit_type", "group")
FIELDS = ("id", *IMAGE_ROLES, *TEXT_ROLES, *LABELS)
PAIR_LABELS = ("model_a", "model_b")
"""Fields for the models that made the outputs of a pair. They are stored as metadata."""

MAX_ID = 512
"""Maximum number of characters in an id, which becomes part of URLs and file names."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

# Names of these fields in other projects. They are considered only if the field itself never occurs.
_ALIASES = {
    "input": (
        "input_image input_img input_path source source_image source_img source_path src "
        "original original_image before image image_in image_path"
    ),
    "edited": (
        "edited_image edited_img edited_path edit output output_image output_path "
        "target target_image target_img result after image_out"
    ),
    "instruction": "edit_instruction editing_instruction instruction_text edit_prompt prompt",
    "ground_truth": "gt ground_truth_image gt_image",
    "mask": "mask_image edit_mask",
    "id": "item item_id edit_id uid key",
}
_WEAK_ALIASES = {"instruction": "caption text command request question"}
"""Names that may have another meaning. They are suggested, but never an error."""
_MUST_NOT_BE_MISSPELT = ("input", "edited", "instruction")


Columns = tuple[tuple[str, str], ...]
"""Pairs of a field and its column, for manifests that use other names."""


class NamedInputs(NamedTuple):
    """Extra columns that rubrics show to judges."""

    images: frozenset[str] = frozenset()
    """Columns with an image or a list of images."""
    texts: frozenset[str] = frozenset()
    columns: Columns = ()


class LineError(ManifestError):
    """Raised for an invalid line. It has fields that an audit lists in addition to the message."""

    def __init__(
        self,
        manifest: str,
        line: int,
        name: str,
        message: str,
        kind: str = "bad_line",
        options: Iterable[Option] = (),
        code: str = "",
    ) -> None:
        where = f"{manifest}:{line}" if line else manifest
        about = f'field "{name_of(name[:80])}": ' if name else ""
        super().__init__(
            f"{where}: {about}{message}", code=code or kind, options=options
        )
        self.line = line
        self.field = name
        self.kind = kind
        self.id = ""
        self.message = message


Row = tuple[int, dict[str, object] | LineError]


class Reader:
    """Converts rows to edits. It keeps state between lines, such as the ids that have occurred."""

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
        self.name = name_of(str(path))
        """Name of the manifest in messages."""
        self.base = Path(path).parent
        self.unit = unit
        """Unit of the row numbers: line, row or edit."""
        self.notify = notify or logging.getLogger(__name__).warning
        self._allow_outside = allow_outside
        self._allow_urls = allow_urls
        named = named or NamedInputs()
        self._texts = named.texts
        self._columns = dict(named.columns)
        self._further = sorted(named.images | {*PAIR_ROLES})
        images = {*IMAGE_ROLES, *self._further}
        self.image_columns = frozenset(
            images | {self._columns.get(f, f) for f in images}
        )
        """Columns with images."""
        self._ids: dict[bytes, int] = {}
        self._shapes: set[tuple[str, ...]] = set()
        self._seen: set[str] = set()
        self._notified: set[str] = set()
        self._left_out: tuple[str, ...] = ()
        self._folders: dict[str, Path] = {}

    def edits(self, rows: Iterable[Row]) -> Iterator[Edit]:
        """Yield the edits. Raise the `LineError` of the first invalid row."""
        for line, row in rows:
            if isinstance(row, LineError):
                raise row
            yield self.edit(line, row)

    def edit(self, line: int, row: dict[str, object]) -> Edit:
        """Return the edit that a row describes. The row is modified."""
        if self._columns:
            self._rename(line, row)
        shape = (*row, *self._left_out)
        if shape not in self._shapes:
            self._check_names(line, shape)
            # A million rows with different fields would fill the memory.
            if len(self._shapes) < 1000:
                self._shapes.add(shape)
        identifier = self._id(line, row.pop("id", None))
        try:
            values: Json = {
                role: self._image(line, role, row.pop(role, None))
                for role in IMAGE_ROLES
            }
            for name in TEXT_ROLES:
                values[name] = self._text(line, name, row.pop(name, None)) or ""
            for name in LABELS:
                values[name] = self._text(line, name, row.pop(name, None))
            further: dict[str, ImageSource] = {}
            for name in self._further:
                further |= self._images(line, name, row.pop(name, None))
            for name in self._texts:
                value = row.get(name)
                # Numbers are shown as they are written.
                if isinstance(value, bool) or not isinstance(
                    value, str | int | float | None
                ):
                    message = f"found {described(value)}, expected text, since a rubric shows it"
                    raise self.wrong(line, name, message, code="not_text")
        except LineError as error:
            error.id = identifier
            raise
        return Edit(identifier, **values, metadata=row, images=further)

    def wrong(
        self,
        line: int,
        name: str,
        message: str,
        kind: str = "bad_line",
        options: Iterable[Option] = (),
        code: str = "",
    ) -> LineError:
        return LineError(self.name, line, name, message, kind, options, code)

    def leave_out(self, column: str) -> None:
        """Report, only once, that an image column is not read because no rubric shows it. The name may still be a
        misspelling.
        """
        if column not in self._left_out:
            self._left_out += (column,)
            self.notify(
                f'{self.name}: "{column}" has images or bytes that no rubric shows; it is not read'
            )

    def _notify_once(self, topic: str, message: str) -> None:
        if topic not in self._notified:
            self._notified.add(topic)
            self.notify(message)

    # --- names of fields ------------------------------------------------------------------------------------------

    def _rename(self, line: int, row: dict[str, object]) -> None:
        """Move the value of each mapped column to its field."""
        renamed = {
            field: row.pop(column)
            for field, column in self._columns.items()
            if column in row
        }
        if not renamed and not self._seen:
            mapping = Option("column", self._columns)
            message = f"{mapping}: found the columns {', '.join(row)!r:.200}"
            raise self.wrong(
                line, "", message, options=[mapping], code="unknown_column"
            )
        for hidden in sorted(row.keys() & renamed.keys()):
            self._notify_once(
                hidden,
                f'{self.name}:{line}: the column "{hidden}" is not read, since --column names another',
            )
        row |= renamed

    def _check_names(self, line: int, shape: tuple[str, ...]) -> None:
        """Raise `LineError` if a field is misspelt. A misspelt `edited`, for example, would look like a model without
        any output.
        """
        self._seen.update(shape)
        fields = {*FIELDS, *PAIR_LABELS, *self.image_columns, *self._texts}
        others = [key for key in shape if key not in fields]
        absent = [name for name in FIELDS if name not in self._seen]
        misspelt: dict[str, str] = {}
        for name in _MUST_NOT_BE_MISSPELT:
            if name in absent and (column := _closest_alias(name, others)):
                misspelt[name] = column
        if misspelt:
            name, column = next(iter(misspelt.items()))
            guesses = {field: _weak(field, others) for field in absent}
            meant = {field: guess for field, guess in guesses.items() if guess}
            # Misspelt fields come first, and are not guessed again.
            mapping = Option("column", {**misspelt, **meant, **misspelt})
            message = (
                f'did you mean "{name}"? Map it with {mapping}, or add "{name}" as null'
            )
            raise self.wrong(
                line, column, message, options=[mapping], code="misspelt_field"
            )
        if others and len(absent) == len(FIELDS):  # e.g. a table of ratings
            mapping = Option("column", {"input": "NAME"})
            message = (
                f"found the fields {', '.join(others)!r:.200}; expected input, edited and instruction; map others "
                f"with {mapping}"
            )
            raise self.wrong(line, "", message, options=[mapping], code="no_fields")
        for name in absent:
            derived = [key for key in others if key.startswith(f"{name}_")]
            similar = (_closest_alias(name, others), *derived, _weak(name, others))
            if guess := next(filter(None, similar), None):
                hint = f'did you mean "{name}"? Map it with --column {name}={guess}'
                self._notify_once(
                    guess, f'{self.name}:{line}: "{guess}" is kept as metadata; {hint}'
                )

    # --- values ---------------------------------------------------------------------------------------------------

    def _id(self, line: int, value: object) -> str:
        # Ids are integers in Parquet and hand-written JSON; CSV and ratings files have the same digits as text.
        text = str(value) if type(value) is int else self._text(line, "id", value)
        if text is None:
            text = f"{self.unit}-{line}"
            self._notify_once(
                "id",
                f"{self.name}:{line}: no id; ids are made from the {self.unit}'s number, such as {text}",
            )
        if not 1 <= len(text) <= MAX_ID or _CONTROL.search(text):
            size = f"{len(text):,} characters" if len(text) > MAX_ID else repr(text)
            expected = f"expected 1 to {MAX_ID} characters without control characters"
            raise self.wrong(line, "id", f"found {size}, {expected}")
        # 16 bytes an id, so that a million ids fit into memory.
        digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
        first = self._ids.setdefault(digest, line)
        if first != line:
            message = f"{text!r} is on {self.unit} {first} and again on {self.unit} {line}; expected unique ids"
            error = self.wrong(line, "id", message, "duplicate_id")
            error.id = text
            raise error
        return text

    def _text(self, line: int, name: str, value: object) -> str | None:
        if value is None or isinstance(value, str):
            return value
        message = f"found {described(value)}, expected text"
        raise self.wrong(line, name, message, code="not_text")

    def _images(self, line: int, name: str, value: object) -> dict[str, ImageSource]:
        """Return an image, or the images in a list, keyed by name."""
        # A CSV cell may contain a list as JSON.
        if isinstance(value, str) and value.startswith("[") and value.endswith("]"):
            with suppress(ValueError, RecursionError):
                value = json.loads(value)
        if not isinstance(value, list):
            source = self._image(line, name, value)
            return {} if source is None else {name: source}
        if len(value) > MAX_IMAGES:
            raise self.wrong(
                line,
                name,
                f"found {len(value):,} images, expected at most {MAX_IMAGES}",
                code="too_many_images",
            )
        images: dict[str, ImageSource] = {}
        for number, element in enumerate(value, 1):
            source = self._image(line, name, element)
            if source is None:
                raise self.wrong(
                    line,
                    name,
                    "found a list with an empty element, expected an image in each",
                    code="empty_element",
                )
            images[f"{name}[{number}]"] = source
        return images

    def _image(self, line: int, name: str, value: object) -> ImageSource | None:
        # Hugging Face stores an image as bytes and path, one of which may be missing.
        if isinstance(value, dict) and value.keys() <= {"bytes", "path"}:
            inside = value.get("bytes")
            path = value.get("path")
            if isinstance(inside, bytes):
                value = inside
            elif inside is None and (path is None or isinstance(path, str)):
                value = path
        if value is None:
            return None
        if isinstance(value, str):
            return self._locate(line, name, value) if value else None
        if isinstance(value, bytes):
            if len(value) > BOUNDS.max_bytes:
                message = (
                    f"found {len(value):,} bytes, expected at most {BOUNDS.max_bytes:,}"
                )
                raise self.wrong(line, name, message)
            return value
        if not is_decoded(value):
            message = f"found {described(value)}, {EXPECTED}"
            raise self.wrong(line, name, message, code="not_an_image")
        try:
            return encode(value)
        except ImageError as error:
            raise self.wrong(line, name, str(error), code=error.code) from None

    # --- where an image is ----------------------------------------------------------------------------------------

    def _locate(self, line: int, name: str, text: str) -> ImageSource:
        if text.startswith("data:"):
            try:
                return from_data_url(text)
            except ImageError as error:
                raise self.wrong(line, name, str(error), code=error.code) from None
        scheme, is_address, _ = text.partition("://")
        if is_address and scheme.isalnum():
            return self._address(line, name, text)
        folder, _, file = text.replace(os.sep, "/").rpartition("/")
        if file in ("", ".", "..") or "\0" in text:
            raise self.wrong(
                line,
                name,
                f"found {text!r:.200}, expected the path of a file",
                code="not_a_path",
            )
        try:
            return self._confined("/" if text == f"/{file}" else folder, file)
        except LeavesFolder:
            allowing = Option("allow-outside", True)
            message = (
                f"{text!r:.200} is outside the manifest's folder; move the image there, or allow it with "
                f"{allowing}"
            )
            raise self.wrong(
                line, name, message, options=[allowing], code="outside_folder"
            ) from None

    def _address(self, line: int, name: str, text: str) -> str:
        address = redacted_address(text)[:200]
        if not is_url(text):
            message = (
                f"found {address!r}, expected a path, a data: URL or an http(s) address"
            )
        elif not self._allow_urls:
            message = f"found {address!r}: addresses are not fetched without --allow-urls; expected a path"
        elif not text.isprintable() or " " in text:
            message = f"found {address!r}: not an address; expected a path"
        else:
            return text
        raise self.wrong(
            line,
            name,
            message,
            options=[Option("allow-urls", True)],
            code="address_not_fetched",
        )

    def _confined(self, folder: str, file: str) -> Path:
        """Return the path of a file. Raise `LeavesFolder` if it leads out of the manifest's folder.

        A folder is resolved once for all its files. After that, only a file that is itself a link can lead elsewhere. A
        path with `..` is resolved every time, since its meaning changes if a folder in it is created or replaced by a
        link.
        """
        if self._allow_outside:
            return self.base / folder / file
        parent = self._folders.get(folder)
        if parent is None:
            parent = self.base / folder
            if ".." in folder.split("/"):
                resolve_inside(parent / file, self.base)
                return parent / file
            resolve_inside(parent, self.base)
            # If every edit has its own folder, a cache of all folders would not help.
            if len(self._folders) < 50_000:
                self._folders[folder] = parent
        path = parent / file
        if os.path.islink(path):
            resolve_inside(path, self.base)
        return path


def _closest_alias(name: str, others: Iterable[str]) -> str | None:
    """Return the column that was probably meant to be this field, or None if there is none."""
    for key in others:
        plain = key.strip().casefold().replace(" ", "_").replace("-", "_")
        if plain == name or plain in _ALIASES.get(name, "").split():
            return key
        # `edited_a` or `edited_at` describe the field, but are not the field itself.
        similar = difflib.SequenceMatcher(None, plain, name).ratio() >= 0.8
        if similar and not plain.startswith(f"{name}_"):
            return key
    return None


def _weak(name: str, others: Iterable[str]) -> str | None:
    aliases = _WEAK_ALIASES.get(name, "").split()
    return next((key for key in others if key.casefold() in aliases), None)


def described(value: object) -> str:
    """Return the type and the beginning of a value, for a message."""
    kinds = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
    }
    return f"{kinds.get(type(value), type(value).__name__)} ({value!r:.80})"


# --- text files -----------------------------------------------------------------------------------------------

# Enough for four images of the maximum size as data: URLs, and the texts beside them.
_MAX_LINE = 4 * BOUNDS.max_bytes * 4 // 3 + 2**20
_MAX_ARRAY = 256 * 2**20
"""Maximum size of a JSON array in bytes. It is kept in memory, where it is several times as large."""


def jsonl(path: Path, reader: Reader) -> Iterator[Row]:
    with path.open("rb") as file:
        for line, raw in _lines(file, reader):
            if raw.isspace() or not raw:
                continue
            try:
                value = read_json(raw)
                if not isinstance(value, dict):
                    raise ValueError(f"found {described(value)}")
                # An escape can represent an unpaired surrogate, which cannot be encoded in files and requests.
                if b"\\u" in raw:
                    json.dumps(value, ensure_ascii=False).encode()
                yield line, value
            except (ValueError, RecursionError) as error:
                message = f"{_why_not_json(error)}; expected one JSON object a line"
                yield line, reader.wrong(line, "", message, code="not_json")


def json_array(path: Path, reader: Reader) -> Iterator[Row]:
    """Yield the objects in a JSON array. The array is read at once, so its size is limited. Rows are numbered by
    position.
    """
    reader.unit = "row"
    if (size := path.stat().st_size) > _MAX_ARRAY:
        raise reader.wrong(
            0,
            "",
            f"found {size:,} bytes of JSON, expected at most {_MAX_ARRAY:,}; write JSONL instead",
        )
    try:
        rows = read_json(path.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        message = f"{_why_not_json(error)}; expected an array of objects"
        raise reader.wrong(0, "", message, code="not_json") from None
    if not isinstance(rows, list):
        message = (
            f"found {described(rows)}, expected an array of objects, one for each edit"
        )
        raise reader.wrong(0, "", message, code="not_a_list")
    for number, row in enumerate(rows, 1):
        if isinstance(row, dict):
            yield number, row
        else:
            message = f"found {described(row)}, expected an object"
            yield number, reader.wrong(number, "", message)


def csv_rows(path: Path, reader: Reader) -> Iterator[Row]:
    # This limit is global to the process, and only ever raised here: cells may contain images as data: URLs.
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_LINE))
    with path.open("rb") as file:
        records = _csv_records(file, reader)
        _, names = next(records, (1, []))
        if not names or len(set(names)) < len(names) or not all(names):
            message = f"found the columns {names!r:.200}; expected names, each once"
            raise reader.wrong(1, "", message, code="bad_columns")
        separators = [sign for sign in ";\t|" if sign in names[0]]
        if len(names) == 1 and separators:
            raise reader.wrong(
                1,
                "",
                f"found one column, {names[0]!r:.200}; expected commas between cells, not {separators[0]!r}",
                code="bad_separator",
            )
        for line, cells in records:
            if len(cells) == len(names):
                values = (cell or None for cell in cells)
                yield line, dict(zip(names, values, strict=True))
            elif any(cells):
                message = f"found {len(cells)} cells, expected {len(names)}; a cell with a comma needs quotes"
                yield line, reader.wrong(line, "", message, code="cell_count")


def _lines(file: IO[bytes], reader: Reader) -> Iterator[tuple[int, bytes]]:
    """Yield lines as bytes, so an error can name a line with invalid UTF-8. The length of a line is limited to save
    memory.
    """
    read_line = functools.partial(file.readline, _MAX_LINE)
    for line, raw in enumerate(iter(read_line, b""), 1):
        if len(raw) == _MAX_LINE:
            raise reader.wrong(
                line, "", f"found a line of more than {_MAX_LINE:,} bytes"
            )
        yield line, raw.removeprefix(b"\xef\xbb\xbf") if line == 1 else raw


def _why_not_json(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"found a byte that is not UTF-8 at column {error.start + 1}"
    if isinstance(error, UnicodeEncodeError):
        return "found an unpaired surrogate, which is not text"
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} at column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _csv_records(file: IO[bytes], reader: Reader) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each record and the number of its first line. A quoted cell may span several lines."""

    def decoded() -> Iterator[str]:
        for line, raw in _lines(file, reader):
            try:
                yield raw.decode()
            except UnicodeDecodeError as error:
                message = f"{_why_not_json(error)}; expected UTF-8"
                raise reader.wrong(line, "", message, code="not_utf8") from None

    table = csv.reader(decoded(), strict=True)
    line = 1
    try:
        for cells in table:
            yield line, cells
            line = table.line_num + 1
    except csv.Error as error:  # the position of all later cells is uncertain
        raise reader.wrong(line, "", f"not CSV: {error}", code="not_csv") from None
