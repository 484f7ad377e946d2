"""Files: JSONL, paths that stay in a folder, complete writes, and cells that no spreadsheet runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from editjudge.canonical import read_json
from editjudge.errors import ManifestError


def default_store() -> str:
    """Return the store if none is named: EDITJUDGE_STORE, else a file of the working directory."""
    return os.environ.get("EDITJUDGE_STORE") or "editjudge.db"


def read_jsonl(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the value of each line that is not empty, with its number. A manifest's own reader is stricter."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.isspace():
                    continue
                try:
                    value = read_json(line)
                except (ValueError, RecursionError) as error:
                    raise ManifestError(f"{path}:{number}: not JSON: {error}") from None
                yield number, value
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path}: cannot be read: {error}") from None
    except OSError as error:
        reason = error.strerror or error
        raise ManifestError(f"{path}: cannot be read: {reason}") from None


class LeavesFolder(Exception):
    """A path that leads out of a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder


def resolve_inside(path: str | os.PathLike[str], folder: Path) -> str:
    """Return the path without links. Raises `LeavesFolder` if it leads out of the folder."""
    real = os.path.realpath(path)
    home = os.path.realpath(folder)
    if os.path.commonpath([real, home]) != home:
        raise LeavesFolder(folder)
    return real


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a file to write to, which replaces `path` once it is complete, and is removed if it never is."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?", re.ASCII)


def spreadsheet_safe(value: object) -> object:
    """Return text that a spreadsheet does not run, and that every program reads; numbers stay as they are."""
    if not isinstance(value, str):
        return "" if value is None else value
    # NUL ends the file for some readers; half a surrogate pair has no UTF-8.
    text = value.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()
    return "'" + text if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
