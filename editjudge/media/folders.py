"""Files below a folder, opened without leaving it by way of a link.

Resolving a path asks the file system about each part of it, which over a network takes milliseconds. So each folder is
resolved once and kept open, and a file is opened beneath it, where only the file itself can still be a link.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from pathlib import Path

# Should a path lead to a pipe, opening it does not wait for a writer.
FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_IS_LINK = (errno.ELOOP, errno.EMLINK)  # what systems answer to O_NOFOLLOW
_OPEN = 64
"""Folders that are kept open; a manifest goes through few at a time."""


class LeavesFolder(Exception):
    """A path that leads out of the folder."""


class _OpenFolder:
    """Closed when nobody uses it any more: a thread may be opening a file in a folder that another one drops."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        os.close(self.descriptor)


class ConfinedFolder:
    """Opens files that lie below a folder. Safe to use from several threads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._open: OrderedDict[str, _OpenFolder] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, path: str | os.PathLike[str]) -> int:
        """A descriptor for reading. Raises `LeavesFolder`, and `OSError` as `os.open` does."""
        if not _NO_LINK or os.open not in os.supports_dir_fd:  # Windows
            return os.open(self.resolved(path), FLAGS)
        # Not made shorter: what `..` means behind a link is for the file system to say.
        folder, name = os.path.split(os.path.join(os.getcwd(), path))
        if name in ("", ".", ".."):
            folder, name = os.path.split(self.resolved(path))
        try:
            return self._open_in(folder, name)
        except FileNotFoundError:
            with self._lock:
                known = self._open.pop(folder, None)
            if known is None:
                raise
            return self._open_in(folder, name)  # the folder may have been put in another one's place
        except LeavesFolder:
            pass  # a link elsewhere may still lead to a file below the root
        except OSError as error:
            if error.errno not in _IS_LINK:
                raise
        return self._open_in(*os.path.split(self.resolved(path)))

    def _open_in(self, folder: str, name: str) -> int:
        parent = self._folder(folder)  # held until the file is open: else another thread may close its descriptor
        return os.open(name, FLAGS | _NO_LINK, dir_fd=parent.descriptor)

    def _folder(self, path: str) -> _OpenFolder:
        with self._lock:
            if folder := self._open.get(path):
                self._open.move_to_end(path)
                return folder
        folder = self._walk(self.resolved(path))
        with self._lock:
            self._open[path] = folder
            while len(self._open) > _OPEN:
                self._open.popitem(last=False)
        return folder

    def _walk(self, real: str) -> _OpenFolder:
        """From the root downwards and through no link, whatever changes since the path was resolved."""
        home = os.path.realpath(self.root)
        folder = _OpenFolder(os.open(home, _FOLDER))
        for part in os.path.relpath(real, home).split(os.sep):
            if part != ".":
                folder = _OpenFolder(os.open(part, _FOLDER | _NO_LINK, dir_fd=folder.descriptor))
        return folder

    def resolved(self, path: str | os.PathLike[str]) -> str:
        """The path without links. Raises `LeavesFolder`."""
        real, home = os.path.realpath(path), os.path.realpath(self.root)
        if os.path.commonpath([real, home]) != home:
            raise LeavesFolder
        return real
