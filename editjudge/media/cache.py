"""The image cache of a run. One read of a file gives its digest, header and encoded form. If the digest is cached, the
file need not be read.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from editjudge.edit import ImageSource
from editjudge.errors import ImageError
from editjudge.media.header import ImageInfo
from editjudge.media.image import (
    AS_IS,
    EncodedImage,
    ImageLimits,
    digest,
    plan,
    prepare,
    probe,
)
from editjudge.media.source import (
    BOUNDS,
    ConfinedFolder,
    Fetch,
    ImageBounds,
    is_file,
    name_of,
    read,
    read_file,
)

T = TypeVar("T")

_READ_AT_ONCE = 16
"""Number of files that are read at the same time. With 16, a latency of 30 ms for each image does not slow down a judge
of 128 edits a second.
"""
_SLOW = 0.002
"""Seconds of waiting for a file above which a disk counts as slow. Local disks take a tenth of that."""


@dataclass(frozen=True, slots=True)
class KnownImage:
    """Digest and header of an image. They are cached, so a run without new questions reads no image."""

    digest: str
    info: ImageInfo | None
    """Header of the image. None if it cannot be read; `problem` then says why."""
    problem: str = ""

    def as_json(self) -> dict[str, object]:
        """Return the fields as plain values. `dataclasses.asdict` takes ten times as long."""
        info = self.info and self.info.as_json()
        return {"digest": self.digest, "info": info, "problem": self.problem}


class FileState(NamedTuple):
    """State of a file. It changes if the file is replaced. Fields that an older store does not have are None."""

    size: int | None
    mtime_ns: int | None
    ctime_ns: int | None
    inode: int | None

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        # Some file systems use 64 bits for inodes, but databases need one of them for the sign.
        inode = status.st_ino & (2**63 - 1)
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, inode)


KnownFiles: TypeAlias = Mapping[str, tuple[FileState, KnownImage]]
"""Image files, keyed by path. Each has the state that it had when it was read."""


class LoadedImage(NamedTuple):
    """An image with its bytes."""

    data: bytes
    identity: KnownImage
    file: FileState | None = None
    """State of the file that was read; None if the source is not a file."""

    def info(self) -> ImageInfo:
        """Return the header. Raise `ImageError` if the image cannot be read."""
        if self.identity.info is None:
            raise ImageError(self.identity.problem)
        return self.identity.info


class _ByteCache(Generic[T]):
    """Cache of at most `limit` bytes. It evicts the least recently used values. Safe to use from several threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._values: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> T | None:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def drop(self, key: Hashable) -> None:
        with self._lock:
            self._used -= self._values.pop(key, (None, 0))[1]

    def put(self, key: Hashable, value: T, size: int) -> None:
        """Store a value. A value that is larger than the whole cache is not stored, and nothing is evicted for it."""
        with self._lock:
            self._used -= self._values.pop(key, (None, 0))[1]
            if size > self._limit:
                return
            self._values[key] = (value, size)
            self._used += size
            while self._used > self._limit:
                self._used -= self._values.popitem(last=False)[1][1]


class ImageReader:
    """Reads images from the sources that a run allows. The latest images are kept in memory until they are encoded.

    Safe to use from several threads.
    """

    def __init__(
        self,
        *,
        root: Path | None = None,
        fetch: Fetch | None = None,
        bounds: ImageBounds = BOUNDS,
        budget: int = 32 * 2**20,
        judges: int = 1,
    ) -> None:
        """Create a reader. `budget` is the maximum size in bytes of the images kept for each judge of a run. Each judge
        has its own, since judges plan and encode the same images at different times.

        A run of 1024 x 1024 JPEGs took 165 MB with this budget, 185 MB with twice as much and 145 MB with half. With
        less, batches of large images are so small that planning them costs a tenth more CPU.
        """
        self.root = root
        self.budget = budget
        self.bytes_read = 0
        self.files_read = 0
        self._folder = ConfinedFolder(root) if root else None
        self._fetch = fetch
        self._bounds = bounds
        self._held = _ByteCache[LoadedImage](budget * judges)
        self._shared = judges > 1
        self.pending: dict[ImageSource, Future[LoadedImage | KnownImage]] = {}
        """Reads that have been started. The judges of a run share them."""

    @functools.cached_property
    def threads(self) -> ThreadPoolExecutor:
        """Threads that read in parallel if the disk is slow."""
        return ThreadPoolExecutor(_READ_AT_ONCE, "editjudge-images")

    def look(self, source: ImageSource) -> LoadedImage | KnownImage:
        """Read an image and keep it for `take`. If a read has already been started, return its result."""
        read = Future[LoadedImage | KnownImage]()
        pending = self.pending.setdefault(source, read)
        try:
            if pending is read:
                self._finish(read, self.load, source)
            image = pending.result()
            if isinstance(image, LoadedImage):
                self.hold(source, image)
        finally:
            # Removed only now, so that a judge that asks meanwhile finds this read instead of starting a second one.
            self.pending.pop(source, None)
            # A failed read holds its exception, whose traceback holds this frame: the cycle would keep sockets open.
            del read, pending
        return image

    def start(
        self,
        source: ImageSource,
        load: Callable[[ImageSource], LoadedImage | KnownImage],
    ) -> None:
        """Start to read an image in another thread, unless that was done already. The image is kept only once it is
        requested, so it does not evict images that are waiting to be encoded.
        """
        read = Future[LoadedImage | KnownImage]()
        if self.pending.setdefault(source, read) is read:
            self.threads.submit(self._finish, read, load, source)

    @staticmethod
    def _finish(
        read: Future[LoadedImage | KnownImage],
        load: Callable[[ImageSource], LoadedImage | KnownImage],
        source: ImageSource,
    ) -> None:
        try:
            image = load(source)
        except BaseException as error:
            read.set_exception(error)
        else:
            read.set_result(image)
        finally:
            del read

    def load(self, source: ImageSource) -> LoadedImage:
        """Return the image that is kept in memory if its file has not changed. Otherwise read it."""
        if isinstance(source, Path):
            image = self._held.get(str(source))
            if image and image.file == FileState.of(os.stat(source)):
                return image
        return self._read(source)

    def hold(self, source: ImageSource, image: LoadedImage) -> None:
        key = _key(source, image.identity.digest)
        self._held.put(key, image, len(image.data))

    def held(self, source: ImageSource, image_digest: str) -> LoadedImage | None:
        """Return the image with this digest if it is kept in memory, else None."""
        image = self._held.get(_key(source, image_digest))
        return image if image and image.identity.digest == image_digest else None

    def release(self, source: ImageSource, image_digest: str) -> None:
        """Stop keeping an image that has been encoded, unless another judge of the run still has to encode it."""
        if not self._shared:
            self._held.drop(_key(source, image_digest))

    def take(self, source: ImageSource, image_digest: str | None = None) -> LoadedImage:
        """Return the image with this digest if it is kept in memory. Otherwise read it."""
        return (
            self.held(source, image_digest) if image_digest else None
        ) or self._read(source)

    def _read(self, source: ImageSource) -> LoadedImage:
        file = None
        if is_file(source):
            data, status = read_file(source, self._folder, self._bounds)
            file = FileState.of(status)
        else:
            data = read(source, fetch=self._fetch, bounds=self._bounds)
        self.bytes_read += len(data)
        self.files_read += 1
        try:
            info = probe(data, name=name_of(source), bounds=self._bounds)
            identity = KnownImage(digest(data), info)
        except ImageError as error:
            identity = KnownImage(digest(data), None, str(error))
        return LoadedImage(data, identity, file)


def _key(source: ImageSource, image_digest: str) -> str:
    """Return the cache key of an image: the digest for bytes, or the path for a file, whose content may change later."""
    return image_digest if isinstance(source, bytes) else str(source)


class DigestCache:
    """Digests and headers of images, cached for each path and state of the file.

    The state includes the inode and the change time. Size and modification time may stay the same if an image is
    replaced by `cp -p` or `rsync -t`, or by extracting an archive again.
    """

    # Recently written files are not cached: a file that is written twice within the clock's resolution looks
    # unchanged.
    _SETTLED_NS = 2_000_000_000

    def __init__(
        self, reader: ImageReader | None = None, *, rehash: bool = False
    ) -> None:
        self.reader = reader or ImageReader()
        self._rehash = rehash
        self._seen: dict[str, tuple[FileState, KnownImage]] = {}
        self._learnt: set[str] = set()
        self.bytes_asked = 0
        """Number of bytes of all images requested and read so far."""
        self._wait = 0.0
        """Running mean of the number of seconds spent waiting for a file."""

    def __len__(self) -> int:
        return len(self._seen)

    def unknown(self, sources: Iterable[ImageSource]) -> set[str]:
        """Return the paths of the files that are not in the cache."""
        paths = {os.path.abspath(s) for s in sources if isinstance(s, Path)}
        return paths - self._seen.keys()

    def load(self, remembered: KnownFiles) -> None:
        """Add the result of an earlier `dump`, unless all files are to be hashed again."""
        if not self._rehash:
            self._seen.update(remembered)

    def dump(self) -> KnownFiles:
        """Return the entries that have been added since the last call."""
        entries = {path: self._seen[path] for path in self._learnt}
        self._learnt = set()
        return entries

    def of(self, source: ImageSource) -> str | None:
        """Return the digest of an image, or None if the file does not exist."""
        identity = self.look_up(source)
        return identity.digest if identity else None

    def look_up(self, source: ImageSource) -> KnownImage | None:
        """Return the digest and header of an image, or None if the file does not exist. Raise `ImageError` if it cannot
        be read.
        """
        try:
            image = self._look(source)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ImageError(f"{name_of(source)}: cannot be read: {error}") from error
        except ImageError as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                return None
            raise
        if isinstance(image, KnownImage):
            return image
        self.bytes_asked += len(image.data)
        if is_file(source) and image.file:
            changed = max(image.file.mtime_ns or 0, image.file.ctime_ns or 0)
            if time.time_ns() - changed > self._SETTLED_NS:
                path = os.path.abspath(source)
                self._seen[path] = (image.file, image.identity)
                self._learnt.add(path)
        return image.identity

    def look_ahead(self, sources: Iterable[ImageSource]) -> None:
        """Start to read files in advance if the disk is slow. A network disk takes milliseconds for each file. For a
        local disk, passing the file to another thread would take longer than reading it.
        """
        if self._wait <= _SLOW:
            return
        mean_size = self.reader.bytes_read / max(1, self.reader.files_read)

        def load(source: ImageSource) -> LoadedImage | KnownImage:
            path = os.path.abspath(str(source))
            return self._remembered(path) or self.reader.load(source)

        for source in sources:
            if len(self.reader.pending) * mean_size >= self.reader.budget:
                return
            if isinstance(source, Path):
                self.reader.start(source, load)

    def _look(self, source: ImageSource) -> LoadedImage | KnownImage:
        if not is_file(source) or source in self.reader.pending:
            return self.reader.look(source)
        start = time.monotonic() - time.thread_time()
        try:
            return self._remembered(os.path.abspath(source)) or self.reader.look(source)
        finally:
            waited = time.monotonic() - time.thread_time() - start
            self._wait += 0.1 * (waited - self._wait)

    def _remembered(self, path: str) -> KnownImage | None:
        """Return the cached entry for a file, or None if the file has changed."""
        remembered = self._seen.get(path)
        if remembered and remembered[0] == FileState.of(os.stat(path)):
            return remembered[1]
        return None


class ImageCache:
    """The images of one run. Each is read and encoded once, however many tasks request it."""

    def __init__(
        self, reader: ImageReader | None = None, *, budget: int = 32 * 2**20
    ) -> None:
        self._reader = reader or ImageReader()
        self._encoded = _ByteCache[EncodedImage](budget)
        self._encoding: dict[Hashable, asyncio.Task[EncodedImage]] = {}

    async def data(self, source: ImageSource, image_digest: str | None = None) -> bytes:
        """Read an image in a thread and return its encoded bytes. `image_digest` is the digest that it had when it was
        planned.
        """
        image = await asyncio.to_thread(self._reader.take, source, image_digest)
        image.info()
        return image.data

    async def encoded(
        self, source: ImageSource, limits: ImageLimits, image_digest: str | None = None
    ) -> EncodedImage:
        """Return the image prepared for a judge. `image_digest` is the digest that it had when it was planned.

        No thread is used for an image that is in memory and sent unchanged. Base64 encoding would hold the
        interpreter's lock there too, and passing the image to a thread costs as much as encoding it.
        """
        if image_digest is None and isinstance(source, bytes):
            image_digest = digest(source)
        key = (image_digest or str(source), limits)
        if encoded := self._encoded.get(key):
            return encoded
        if key not in self._encoding:
            image = self._reader.held(source, image_digest) if image_digest else None
            if (
                image
                and image.identity.info
                and plan(image.identity.info, limits) == AS_IS
            ):
                return self._encode(key, image, source, limits)
            self._encoding[key] = asyncio.create_task(
                self._in_thread(key, source, limits, image_digest)
            )
        # A cancelled caller must not cancel the task that others wait for.
        return await asyncio.shield(self._encoding[key])

    async def _in_thread(
        self,
        key: Hashable,
        source: ImageSource,
        limits: ImageLimits,
        image_digest: str | None,
    ) -> EncodedImage:
        def encode() -> EncodedImage:
            return self._encode(
                key, self._reader.take(source, image_digest), source, limits
            )

        try:
            return await asyncio.to_thread(encode)
        finally:  # after a failure or cancellation, the next caller starts again
            del self._encoding[key]

    def _encode(
        self,
        key: Hashable,
        image: LoadedImage,
        source: ImageSource,
        limits: ImageLimits,
    ) -> EncodedImage:
        prepared = prepare(image.data, image.info(), limits, name=name_of(source))
        encoded = prepared.for_judge(image.identity.digest, limits)
        self._encoded.put(key, encoded, len(encoded.data))
        self._reader.release(source, image.identity.digest)
        return encoded
