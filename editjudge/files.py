"""Files that are read line by line, and files that are whole or not there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from editjudge.errors import ManifestError


def read_jsonl(path: Path) -> Iterator[tuple[int, Any]]:
    """The value of each line that is not empty, with its number. A manifest's own reader is stricter."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if not line.isspace():
                    yield number, _value(line, f"{path}:{number}")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def read_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; a name that stands twice in one object, NaN and Infinity are a `ValueError`."""
    return json.loads(text, object_pairs_hook=_members, parse_constant=_refuse_constant)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r:.80} stands twice in one object")
    return members


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


def _value(line: str, where: str) -> Any:
    try:
        return read_json(line)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{where}: not JSON: {error}") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write to, which takes the place of `path` once it is complete, and is removed where it never is."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
