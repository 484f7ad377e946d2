"""Pictures of one run: digest, header and encoded form from one read, and no read where a digest is remembered."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from editjudge.edit import ImageSource
from editjudge.errors import ImageError
from editjudge.media.folders import ConfinedFolder
from editjudge.media.header import ImageInfo
from editjudge.media.image import (
    AS_IS,
    BOUNDS,
    Fetch,
    ImageBounds,
    ImageLimits,
    base64_of,
    digest,
    is_url,
    name_of,
    plan,
    prepare,
    probe,
    read,
    read_file,
)


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


_READ_AT_ONCE = 16
"""Files that are read at the same time: 16 hide 30 ms a picture from a judge of 128 edits a second."""


class LoadedPicture(NamedTuple):
    data: bytes
    known: KnownImage
    file: _File | None = None
    """That it was read from; None where it is no file."""


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
        budget: int = 32 * 2**20,
        shared_by: int = 1,
    ) -> None:
        """`budget`: bytes of pictures that are held at most. A run of 1024 x 1024 JPEGs took 165 MB with this, 185 with
        twice as much and 145 with half; with less, batches of large pictures are so small that planning them costs a
        tenth more CPU. `shared_by`: judges of a run, each
        of which plans and encodes the same pictures; each has a budget of its own, since they do not keep step."""
        self.root, self.budget, self._shared_by = root, budget, shared_by
        self.bytes_read = self._reads = 0
        """So far, in all."""
        self._folder = ConfinedFolder(root) if root else None
        self._fetch, self._bounds = fetch, bounds
        self._held = self._ahead = 0
        self._recent: OrderedDict[str, LoadedPicture] = OrderedDict()
        self._taken: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._reading = tuple(threading.Lock() for _ in range(_READ_AT_ONCE))

    @functools.cached_property
    def threads(self) -> ThreadPoolExecutor:
        """To read at the same time where a disk is slow."""
        return ThreadPoolExecutor(_READ_AT_ONCE, "editjudge-pictures")

    @property
    def mean_size(self) -> float:
        return self.bytes_read / self._reads if self._reads else self.budget

    def count_ahead(self, change: int) -> None:
        """Note how many more files are read before they are asked for. They are held beside the others, lest they push
        out what is not encoded yet and would have to be read again."""
        with self._lock:
            self._ahead += change

    def look(self, source: ImageSource) -> LoadedPicture:
        """Read a picture now, and hold it for `take`. A file that another judge of the run has read, and that is still
        held and unchanged, is not read again."""
        if self._shared_by == 1 or not isinstance(source, Path):
            return self._hold(source, self._load(source))
        with self._reading[hash(source) % _READ_AT_ONCE]:  # so that the second judge finds what the first has read
            picture = self._recent.get(str(source))
            if picture and picture.file == _File.of(os.stat(source)):
                return picture
            return self._hold(source, self._load(source))

    def _hold(self, source: ImageSource, picture: LoadedPicture) -> LoadedPicture:
        # What came as bytes is known by its digest; a path may hold another picture later.
        name = picture.known.digest if isinstance(source, bytes) else str(source)
        with self._lock:
            self.bytes_read += len(picture.data)
            self._reads += 1
            self._forget(name)
            self._recent[name] = picture
            self._held += len(picture.data)
            while self._held > self.budget * self._shared_by + self._ahead * self.mean_size:
                self._forget(next(iter(self._recent)))
        return picture

    def held(self, source: ImageSource, known: str) -> LoadedPicture | None:
        """The picture of this digest, if it is held; no judge takes it a second time."""
        name = known if isinstance(source, bytes) else str(source)
        with self._lock:
            if picture := self._recent.get(name):
                self._taken[name] += 1
                if self._taken[name] >= self._shared_by:
                    self._forget(name)
        return picture if picture and picture.known.digest == known else None

    def take(self, source: ImageSource, known: str | None = None) -> LoadedPicture:
        """A picture that is still held, or else read now."""
        return (self.held(source, known) if known else None) or self._load(source, known)

    def _forget(self, name: str) -> None:
        self._taken.pop(name, None)
        if picture := self._recent.pop(name, None):
            self._held -= len(picture.data)

    def _load(self, source: ImageSource, known: str | None = None) -> LoadedPicture:
        file = None
        if _is_file(source):
            data, status = read_file(source, self._folder, self._bounds)
            file = _File.of(status)
        else:
            data = read(source, fetch=self._fetch, bounds=self._bounds)
        mark = known if known and isinstance(source, bytes) else digest(data)  # bytes are what they were
        try:
            return LoadedPicture(data, KnownImage(mark, probe(data, name=name_of(source), bounds=self._bounds)), file)
        except ImageError as error:
            return LoadedPicture(data, KnownImage(mark, None, str(error)), file)


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
        self._ahead: dict[str, Future[LoadedPicture | KnownImage]] = {}
        """By path, what is being read before it is asked for."""
        self.bytes_asked = 0
        """Of the pictures that were asked for and are held, so far and in all."""
        self._wait = 0.0
        """Seconds that a file makes us wait, as a running mean."""

    def __len__(self) -> int:
        return len(self._seen)

    def unknown(self, sources: Iterable[ImageSource]) -> set[str]:
        """The paths of those files that nothing is remembered of."""
        return {_absolute(source) for source in sources if isinstance(source, Path)} - self._seen.keys()

    def load(self, remembered: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over what an earlier `dump` held, unless everything is to be hashed again."""
        for path, entry in {} if self._rehash else remembered.items():
            info = ImageInfo(**entry["info"]) if entry["info"] else None
            known = KnownImage(entry["digest"], info, entry["problem"])
            self._seen[path] = (_File(*(entry.get(name) for name in _File._fields)), known)

    def dump(self) -> dict[str, dict[str, Any]]:
        """What was learnt since the last call, as plain values for a store."""
        learnt, self._learnt = self._learnt, set()
        return {path: {**file._asdict(), **_plain(known)} for path in learnt for file, known in [self._seen[path]]}

    def of(self, source: ImageSource) -> str | None:
        """The digest, or None where there is no such file."""
        known = self.known(source)
        return known.digest if known else None

    def known(self, source: ImageSource) -> KnownImage | None:
        """Digest and header, or None where there is no such file. What cannot be read raises `ImageError`."""
        if not isinstance(source, Path) and not _is_file(source):
            picture = self.reader.look(source)
            self.bytes_asked += len(picture.data)
            return picture.known
        path = _absolute(source)
        try:
            if ahead := self._ahead.pop(path, None):
                self.reader.count_ahead(-1)
            seen = ahead.result() if ahead else self._timed(source, path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ImageError(f"{name_of(source)}: cannot be read: {error}") from error
        except ImageError as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                return None
            raise
        if isinstance(seen, KnownImage):
            return seen
        picture, file = seen, seen.file
        self.bytes_asked += len(picture.data)
        if file and time.time_ns() - max(file.mtime_ns or 0, file.ctime_ns or 0) > self._SETTLED_NS:
            self._seen[path] = (file, picture.known)
            self._learnt.add(path)
        return picture.known

    def look_ahead(self, sources: Iterable[ImageSource]) -> None:
        """Begin to read files that are asked for next, where the disk has been slow: a network's takes milliseconds for
        each, and a local one less than handing them to other threads does."""
        for source in sources if self._wait > _SLOW else ():
            if len(self._ahead) * self.reader.mean_size >= 2 * self.reader.budget:
                return
            if isinstance(source, Path) and (path := _absolute(source)) not in self._ahead:
                self.reader.count_ahead(1)
                self._ahead[path] = self.reader.threads.submit(self._read, source, path)

    def _timed(self, source: Path | str, path: str) -> LoadedPicture | KnownImage:
        start = time.monotonic() - time.thread_time()
        try:
            return self._read(source, path)
        finally:
            self._wait += 0.1 * (time.monotonic() - time.thread_time() - start - self._wait)

    def _read(self, source: Path | str, path: str) -> LoadedPicture | KnownImage:
        """What is remembered of a file, if it is still the same, or else the file."""
        remembered = self._seen.get(path)
        if remembered and remembered[0] == _File.of(os.stat(path)):
            return remembered[1]
        return self.reader.look(source)


_SLOW = 0.002
"""Seconds of waiting for a file: local disks take a tenth of it."""


def _plain(known: KnownImage) -> dict[str, Any]:
    """As `asdict`, which takes ten times as long."""
    info = known.info and {name: getattr(known.info, name) for name in ImageInfo.__slots__}
    return {"digest": known.digest, "info": info, "problem": known.problem}


def _absolute(source: Path | str) -> str:
    """As `os.path.abspath`, which takes ten times as long where there is nothing to do: a `Path` holds no empty part
    and no single dot."""
    path = str(source)
    return path if path[:1] == "/" and ".." not in path and isinstance(source, Path) else os.path.abspath(path)


def _is_file(source: ImageSource) -> TypeGuard[Path | str]:
    """Whether the picture is neither bytes, nor an address, nor itself written as one."""
    return isinstance(source, Path) or (
        isinstance(source, str) and not source.startswith("data:") and not is_url(source)
    )


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
        self._encoded: OrderedDict[Any, Encoded] = OrderedDict()
        self._encoding: dict[Any, asyncio.Task[Encoded]] = {}

    async def data(self, source: ImageSource, known: str | None = None) -> bytes:
        """The picture as it is encoded, read by a thread; `known` is its digest as it was planned."""
        picture = await asyncio.to_thread(self._reader.take, source, known)
        if picture.known.info is None:
            raise ImageError(picture.known.problem)
        return picture.data

    async def encoded(self, source: ImageSource, limits: ImageLimits, known: str | None = None) -> Encoded:
        """The picture prepared for a judge; `known` is its digest as it was planned.

        A picture that is in memory and goes out as it is takes no thread: base64 would hold the interpreter's lock
        there too, and handing it over costs as much as encoding it.
        """
        key = (known or (digest(source) if isinstance(source, bytes) else str(source)), limits)
        if encoded := self._encoded.get(key):
            self._encoded.move_to_end(key)
            return encoded
        if key not in self._encoding:
            picture = self._reader.held(source, known) if known else None
            if picture and picture.known.info and plan(picture.known.info, limits) == AS_IS:
                return self._keep(key, _encode(picture, source, limits))
            self._encoding[key] = asyncio.create_task(self._in_thread(key, source, limits, known, picture))
        # A caller that is cancelled must not cancel what others wait for.
        return await asyncio.shield(self._encoding[key])

    async def _in_thread(
        self, key: Any, source: ImageSource, limits: ImageLimits, known: str | None, picture: LoadedPicture | None
    ) -> Encoded:
        def encode() -> Encoded:
            return _encode(picture or self._reader.take(source, known), source, limits)

        try:
            return self._keep(key, await asyncio.to_thread(encode))
        finally:  # where it failed or was cancelled, whoever asks next begins anew
            del self._encoding[key]

    def _keep(self, key: Any, encoded: Encoded) -> Encoded:
        if len(encoded.data) <= self._budget:  # else alone too large to keep: it pushes nobody else out
            self._encoded[key] = encoded
            self._used += len(encoded.data)
            while self._used > self._budget:
                self._used -= len(self._encoded.popitem(last=False)[1].data)
        return encoded


def _encode(picture: LoadedPicture, source: ImageSource, limits: ImageLimits) -> Encoded:
    if picture.known.info is None:
        raise ImageError(picture.known.problem)
    prepared = prepare(picture.data, picture.known.info, limits, name=name_of(source))
    data = base64_of(prepared.data) if limits.base64 else prepared.data
    return Encoded(picture.known.digest, prepared.media_type, prepared.recipe, prepared.width, prepared.height, data)
