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


def _value(line: str, where: str) -> Any:
    try:
        return json.loads(line)
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
