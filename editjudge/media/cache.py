"""Pictures of one run: digest, header and encoded form from one read, and no read where a digest is remembered."""

from __future__ import annotations

import asyncio
import base64
import os
import threading
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


class LoadedPicture(NamedTuple):
    data: bytes
    known: KnownImage


class PictureReader:
    """Reads pictures from where a run may read them, and holds the latest ones until they are encoded.

    Safe to use from several threads.
    """

    def __init__(
        self,
        *,
        root: Path | None = None,
        fetch: Fetch | None = None,
        bounds: ImageBounds = BOUNDS,
        budget: int = 64 * 2**20,
    ) -> None:
        """`budget`: bytes of pictures that are held at most."""
        self.root, self.budget = root, budget
        self.bytes_read = 0
        """So far, in all."""
        self._fetch, self._bounds = fetch, bounds
        self._held = 0
        self._recent: OrderedDict[str, LoadedPicture] = OrderedDict()
        self._lock = threading.Lock()

    def look(self, source: ImageSource) -> KnownImage:
        """Read a picture now, and hold it for `take`."""
        picture = self._load(source)
        if not isinstance(source, bytes):
            with self._lock:
                self.bytes_read += len(picture.data)
                self._forget(str(source))
                self._recent[str(source)] = picture
                self._held += len(picture.data)
                while self._held > self.budget:
                    self._forget(next(iter(self._recent)))
        return picture.known

    def take(self, source: ImageSource, known: str | None = None) -> LoadedPicture:
        """A picture that is still held, and that nobody takes a second time, or else read now."""
        with self._lock:
            picture = None if isinstance(source, bytes) else self._forget(str(source))
        return picture if picture and picture.known.digest == known else self._load(source, known)

    def _forget(self, name: str) -> LoadedPicture | None:
        if picture := self._recent.pop(name, None):
            self._held -= len(picture.data)
        return picture

    def _load(self, source: ImageSource, known: str | None = None) -> LoadedPicture:
        data = read(source, root=self.root, fetch=self._fetch, bounds=self._bounds)
        mark = known if known and isinstance(source, bytes) else digest(data)  # bytes are what they were
        try:
            return LoadedPicture(data, KnownImage(mark, probe(data, name=name_of(source), bounds=self._bounds)))
        except ImageError as error:
            return LoadedPicture(data, KnownImage(mark, None, str(error)))


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

    def __init__(self, reader: PictureReader | None = None, *, rehash: bool = False) -> None:
        self.reader, self._rehash = reader or PictureReader(), rehash
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
            return self.reader.look(source)
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
            known = self.reader.look(source)
            if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > self._SETTLED_NS:
                self._seen[path] = (file, known)
                self._learnt.add(path)
        return known


def _is_remote(source: ImageSource) -> bool:
    """Whether the picture is no file: an address, or itself written as one."""
    return isinstance(source, str) and (is_url(source) or source.startswith("data:"))


@dataclass(frozen=True, slots=True)
class Encoded:
    """A picture prepared for a judge."""

    digest: str
    """Of the source, as it was read now; a file that was changed since it was planned shows here."""
    media_type: str
    recipe: str
    width: int
    height: int
    data: bytes
    """In base64, as it goes into a request's JSON; as it is for the judges of this process."""


class ImageCache:
    """Pictures of one run: each is read and encoded once, however many tasks ask for it."""

    def __init__(self, reader: PictureReader | None = None, *, budget: int = 32 * 2**20) -> None:
        self._reader, self._budget = reader or PictureReader(), budget
        self._used = 0
        self._held: OrderedDict[Any, asyncio.Task[Encoded]] = OrderedDict()

    async def data(self, source: ImageSource, known: str | None = None) -> bytes:
        """The picture as it is encoded, read by a thread; `known` is its digest as it was planned."""
        picture = await asyncio.to_thread(self._reader.take, source, known)
        if picture.known.info is None:
            raise ImageError(picture.known.problem)
        return picture.data

    async def encoded(self, source: ImageSource, limits: ImageLimits, known: str | None = None) -> Encoded:
        """The picture prepared for a judge, by a thread; `known` is its digest as it was planned."""
        key = (known or (digest(source) if isinstance(source, bytes) else str(source)), limits)
        if key not in self._held:
            self._held[key] = asyncio.create_task(self._encoding(key, source, limits, known))
        self._held.move_to_end(key)
        # A caller that is cancelled must not cancel what others wait for.
        return await asyncio.shield(self._held[key])

    async def _encoding(self, key: Any, source: ImageSource, limits: ImageLimits, known: str | None) -> Encoded:
        try:
            encoded = await asyncio.to_thread(self._encode, source, limits, known)
        except BaseException:  # cancelled too: whoever asks next begins anew
            del self._held[key]
            raise
        size = len(encoded.data)
        if size > self._budget:  # alone too large to keep: it pushes nobody else out
            del self._held[key]
            return encoded
        self._used += size
        for other in [other for other, task in self._held.items() if task.done()]:
            if self._used <= self._budget:
                break
            self._used -= len(self._held.pop(other).result().data)
        return encoded

    def _encode(self, source: ImageSource, limits: ImageLimits, known: str | None) -> Encoded:
        picture = self._reader.take(source, known)
        if picture.known.info is None:
            raise ImageError(picture.known.problem)
        prepared = prepare(picture.data, picture.known.info, limits, name=name_of(source))
        data = base64.b64encode(prepared.data) if limits.base64 else prepared.data
        return Encoded(
            picture.known.digest, prepared.media_type, prepared.recipe, prepared.width, prepared.height, data
        )
