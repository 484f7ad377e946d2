"""Pictures that clients sent, kept in a folder by their digests, so that review can show them."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

from editjudge.files import replacing
from editjudge.media.cache import KnownImage

_log = logging.getLogger(__name__)


class UploadFolder:
    """A folder that grows to so many bytes and then takes no more: what was rewarded last month is not thrown away
    for what is rewarded today."""

    def __init__(self, folder: Path, most: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._most = folder.resolve(), most
        self._size = sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())
        self._lock = threading.Lock()
        self._is_failing = False

    def keep(self, data: bytes, known: KnownImage) -> str | None:
        """Where the picture lies; None where it is none, there is no more room, or it cannot be written: an edit is
        judged whether or not its pictures are kept."""
        if known.info is None:
            return None
        path = self.folder / f"{known.digest}.{known.info.format}"
        with self._lock:
            if path.exists():
                return str(path)
            if self._size + len(data) > self._most:
                return None
            try:
                with replacing(path) as partial:
                    partial.write_bytes(data)
            except OSError as error:
                if not self._is_failing:
                    _log.error("%s: pictures are judged and not kept: %s", self.folder, error)
                self._is_failing = True
                return None
            self._is_failing = False
            self._size += len(data)
        return str(path)
