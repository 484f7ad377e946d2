"""Pictures of one run: known by digest without being read again, and read and encoded once however many ask."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from editjudge.edit import ImageSource
from editjudge.errors import ImageError
from editjudge.media.header import ImageInfo
from editjudge.media.image import BOUNDS, Fetch, ImageBounds, ImageLimits, digest, is_url, name_of, prepare, probe, read


@dataclass(frozen=True, slots=True)
class KnownImage:
    """What is remembered of a picture, so that a run that asks nothing new reads no picture."""

    digest: str
    info: ImageInfo | None
    """None: it is no picture that can be read, and `problem` says why."""
    problem: str = ""


class _File(NamedTuple):
    """What tells a file from one that was put in its place; None where an older store did not say."""

    size: int | None
    mtime_ns: int | None
    ctime_ns: int | None
    inode: int | None

    @classmethod
    def of(cls, status: os.stat_result) -> _File:
        # Some file systems number files with 64 bits; databases have one of them for the sign.
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino & (2**63 - 1))


class DigestCache:
    """Digests and headers, remembered by path and by what the file system says of the file.

    Size and time of modification alone can be made the same by whoever replaces a picture (`cp -p`, `rsync -t`, an
    archive that is unpacked again); the inode and the time of change cannot.
    """

    # A file written twice within the clock's grain looks the same: what is younger is not remembered.
    _SETTLED_NS = 2_000_000_000

    def __init__(
        self,
        *,
        rehash: bool = False,
        root: Path | None = None,
        fetch: Fetch | None = None,
        bounds: ImageBounds = BOUNDS,
    ) -> None:
        self._rehash, self._root, self._fetch, self._bounds = rehash, root, fetch, bounds
        self._seen: dict[str, tuple[_File, KnownImage]] = {}
        self._learnt: set[str] = set()

    def load(self, remembered: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over what an earlier `dump` held, unless everything is to be hashed again."""
        for path, entry in {} if self._rehash else remembered.items():
            info = ImageInfo(**entry["info"]) if entry["info"] else None
            known = KnownImage(entry["digest"], info, entry["problem"])
            self._seen[path] = (_File(*(entry.get(name) for name in _File._fields)), known)

    def dump(self) -> dict[str, dict[str, Any]]:
        """What was learnt since `load`, as plain values for a store."""
        learnt = {path: self._seen[path] for path in self._learnt}
        return {path: {**file._asdict(), **asdict(known)} for path, (file, known) in learnt.items()}

    def of(self, source: ImageSource) -> str | None:
        """The digest, or None where there is no such file."""
        known = self.known(source)
        return known.digest if known else None

    def known(self, source: ImageSource) -> KnownImage | None:
        """Digest and header, or None where there is no such file. What cannot be read raises `ImageError`."""
        if isinstance(source, bytes) or _is_remote(source):
            return self._look(source)
        path = os.path.abspath(source)
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise ImageError(f"{name_of(source)}: cannot be read: {error}") from error
        file = _File.of(status)
        remembered, known = self._seen.get(path, (None, None))
        if known is None or remembered != file:
            known = self._look(source)
            if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > self._SETTLED_NS:
                self._seen[path] = (file, known)
                self._learnt.add(path)
        return known

    def _look(self, source: ImageSource) -> KnownImage:
        data = read(source, root=self._root, fetch=self._fetch, bounds=self._bounds)
        try:
            return KnownImage(digest(data), probe(data, name=name_of(source), bounds=self._bounds))
        except ImageError as error:
            return KnownImage(digest(data), None, str(error))


def _is_remote(source: ImageSource) -> bool:
    """Whether the picture is no file: an address, or itself written as one."""
    return isinstance(source, str) and (is_url(source) or source.startswith("data:"))


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prepared picture in base64: bytes that go into a request's JSON as they are."""

    digest: str
    """Of the source, as it was read now; a file that was changed since it was planned shows here."""
    media_type: str
    recipe: str
    width: int
    height: int
    base64: bytes


class ImageCache:
    """Pictures of one run: each is read and encoded once, however many tasks ask for it."""

    def __init__(
        self,
        *,
        budget: int = 32 * 2**20,
        root: Path | None = None,
        fetch: Fetch | None = None,
        bounds: ImageBounds = BOUNDS,
    ) -> None:
        self._budget, self._root, self._fetch, self._bounds = budget, root, fetch, bounds
        self._used = 0
        self._held: OrderedDict[Any, asyncio.Task[Encoded]] = OrderedDict()

    async def encoded(self, source: ImageSource, limits: ImageLimits) -> Encoded:
        """The picture prepared for a provider, by a thread."""
        key = (_identity(source), limits)
        if key not in self._held:
            self._held[key] = asyncio.create_task(self._encoding(key, source, limits))
        self._held.move_to_end(key)
        # A caller that is cancelled must not cancel what others wait for.
        return await asyncio.shield(self._held[key])

    async def _encoding(self, key: Any, source: ImageSource, limits: ImageLimits) -> Encoded:
        try:
            encoded = await asyncio.to_thread(self._encode, source, limits)
        except BaseException:  # cancelled too: whoever asks next begins anew
            del self._held[key]
            raise
        size = len(encoded.base64)
        if size > self._budget:  # alone too large to keep: it pushes nobody else out
            del self._held[key]
            return encoded
        self._used += size
        for other in [other for other, task in self._held.items() if task.done()]:
            if self._used <= self._budget:
                break
            self._used -= len(self._held.pop(other).result().base64)
        return encoded

    def _encode(self, source: ImageSource, limits: ImageLimits) -> Encoded:
        data, name = read(source, root=self._root, fetch=self._fetch, bounds=self._bounds), name_of(source)
        prepared = prepare(data, probe(data, name=name, bounds=self._bounds), limits, name=name)
        return Encoded(
            digest(data),
            prepared.media_type,
            prepared.recipe,
            prepared.width,
            prepared.height,
            base64.b64encode(prepared.data),
        )


def _identity(source: ImageSource) -> str:
    return digest(source) if isinstance(source, bytes) else str(source)
