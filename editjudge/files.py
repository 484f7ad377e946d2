"""File helpers that read JSONL, confine paths to a folder, write atomically and escape text for spreadsheets."""

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
    """Return the default store: the one that EDITJUDGE_STORE names, or else a file in the working directory."""
    return os.environ.get("EDITJUDGE_STORE") or "editjudge.db"


def read_jsonl(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the line number and the value of each line that is not blank. Manifests have their own, stricter reader."""
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
        raise ManifestError(
            f"{path}: cannot be read: {error}", code="unreadable_file"
        ) from None
    except OSError as error:
        reason = error.strerror or error
        raise ManifestError(
            f"{path}: cannot be read: {reason}", code="unreadable_file"
        ) from None


class LeavesFolder(Exception):
    """Raised when a path leads out of its folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder


def resolve_inside(path: str | os.PathLike[str], folder: Path) -> str:
    """Return a path with symbolic links resolved. Raise `LeavesFolder` if it leads out of the folder."""
    real = os.path.realpath(path)
    home = os.path.realpath(folder)
    if os.path.commonpath([real, home]) != home:
        raise LeavesFolder(folder)
    return real


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path. It replaces `path` when the block ends, or is removed if the block raises an exception."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?", re.ASCII)


def spreadsheet_safe(value: object) -> object:
    """Return a string escaped so that spreadsheets do not interpret it as a formula. Other values are returned
    unchanged.
    """
    if not isinstance(value, str):
        return "" if value is None else value
    # NUL ends the file for some readers; a lone surrogate cannot be encoded as UTF-8.
    text = value.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()
    return "'" + text if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
