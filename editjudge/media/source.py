"""Reading an image from any source: a file, an address, a `data:` URL, or a Python object.

Files may be confined to a folder. Resolving a path queries the file system about each part of it, which takes
milliseconds over a network. Therefore each folder is resolved once and kept open, and its files are opened relative to
it. Only the file itself can then still be a link.

A Python object is a PIL image, or an array or tensor of one image with 1, 3 or 4 channels:

- Values are `uint8` from 0 to 255, `bool` (a mask), or floating point from 0 to 1. Anything else, including -1 to 1, is
an error: nothing is guessed from values.

- The shape is height x width, height x width x channels or channels x height x width, whichever axis has 1, 3 or 4
entries. If both have, a NumPy array is height x width x channels and a tensor channels x height x width, as usual in
their libraries.

Objects are encoded as PNG. A PIL image is turned upright by its EXIF orientation.
"""

from __future__ import annotations

import binascii
import errno
import io
import os
import stat
import sys
import threading
import urllib.parse
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from pybase64 import b64encode

from editjudge.edit import ImageSource
from editjudge.errors import ImageError
from editjudge.files import LeavesFolder, resolve_inside
from editjudge.redaction import address_secrets, redacted_address, without

if TYPE_CHECKING:
    import numpy
    from PIL.Image import Image as PILImage

Pixels: TypeAlias = "numpy.ndarray[Any, Any]"
"""An array, height x width (x channels)."""

Fetch = Callable[[str], bytes]
"""Function that fetches an http(s) address. It is supplied by callers that allow addresses."""

EXPECTED = (
    "expected a path, a data: URL or bytes, in Python also a PIL image or an array"
)


@dataclass(frozen=True, slots=True)
class ImageBounds:
    """Limits for all images, whatever the provider. They are checked before any pixel is decoded."""

    max_bytes: int = 64 * 2**20
    max_pixels: int = 100_000_000
    max_side: int = 65_535

    def check_bytes(self, size: int, name: str) -> None:
        if size > self.max_bytes:
            raise ImageError(
                f"{name}: found {size:,} bytes, expected at most {self.max_bytes:,}",
                code="too_many_bytes",
            )

    def check_sides(self, width: int, height: int, name: str) -> None:
        claim = f"{name}: claims {width:,} x {height:,} pixels"
        if not (width and height):
            raise ImageError(f"{claim}; expected at least 1 x 1", code="no_pixels")
        if max(width, height) > self.max_side:
            raise ImageError(
                f"{claim}; expected at most {self.max_side:,} on a side",
                code="too_many_pixels",
            )
        if width * height > self.max_pixels:
            raise ImageError(
                f"{claim}; expected at most {self.max_pixels:,} in all",
                code="too_many_pixels",
            )


BOUNDS = ImageBounds()


BYTES = "picture given as bytes"
DATA_URL = "data: URL"
"""Names of images that are not files. Stores contain these names in place of a path, so they never change."""


def name_of(source: ImageSource) -> str:
    """Return the name of an image for messages and stores. It is on one line and contains no secrets."""
    if isinstance(source, bytes):
        return BYTES
    text = DATA_URL if _is_data_url(source) else str(source)
    if is_url(source):
        text = redacted_address(text)
    return text if text.isprintable() else repr(text)


def is_url(source: ImageSource) -> bool:
    return isinstance(source, str) and source[:8].lower().startswith(
        ("http://", "https://")
    )


def is_file(source: ImageSource) -> TypeGuard[Path | str]:
    """Whether the source is a path, as opposed to bytes, an address or a `data:` URL."""
    if isinstance(source, str):
        return not is_url(source) and not _is_data_url(source)
    return isinstance(source, Path)


def _is_data_url(source: ImageSource) -> bool:
    return isinstance(source, str) and source.startswith("data:")


def read(
    source: ImageSource,
    *,
    root: Path | ConfinedFolder | None = None,
    fetch: Fetch | None = None,
    bounds: ImageBounds = BOUNDS,
) -> bytes:
    """Return the encoded image. If `root` is set, raise `ImageError` for a file outside that folder, even if it is
    reached through a link.
    """
    if is_file(source):
        return read_file(source, root, bounds)[0]
    if isinstance(source, str) and _is_data_url(source):
        return from_data_url(source, bounds=bounds)
    if isinstance(source, bytes):
        data = source
    elif fetch is None:
        raise ImageError(
            f"{name_of(source)}: addresses are not fetched here; expected a file",
            code="address_not_fetched",
        )
    else:
        data = fetch(str(source))
    bounds.check_bytes(len(data), name_of(source))
    return data


def base64_of(data: bytes) -> bytes:
    """Encode an image as base64 for a request. pybase64 takes 0.07 ms for 1.5 MB, the standard library 1.8 ms."""
    return b64encode(data)


# --- addresses ------------------------------------------------------------------------------------------------


def fetch(url: str, bounds: ImageBounds = BOUNDS) -> bytes:
    """Return the content of an http(s) address, with limits on size and time. Runs that allow addresses use it."""
    import http.client
    import urllib.error
    import urllib.request

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        """Refuses redirects, since the manifest and not a server decides where an image comes from."""

        def redirect_request(self, *args: object, **kwargs: object) -> None:
            return None

    name = redacted_address(url)[:80]
    if not is_url(url):
        raise ImageError(f"{name}: only http and https addresses are fetched")
    try:
        address, headers = _with_login(url)
        request = urllib.request.Request(address, headers=headers)  # noqa: S310  (scheme checked above)
        with urllib.request.build_opener(NoRedirect).open(
            request, timeout=30.0
        ) as response:
            data: bytes = response.read(bounds.max_bytes + 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        message = without(str(reason), address_secrets(url))
        raise ImageError(f"{name}: cannot be fetched: {message}") from None
    return data


def _with_login(url: str) -> tuple[str, dict[str, str]]:
    """Return the address without its user name and password, and headers that contain them."""
    headers = {"User-Agent": "editjudge"}
    parts = urllib.parse.urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    if user:
        login = urllib.parse.unquote_to_bytes(user)
        headers["Authorization"] = f"Basic {b64encode(login).decode()}"
    return parts._replace(netloc=host).geturl(), headers


def from_data_url(text: str, *, bounds: ImageBounds = BOUNDS) -> bytes:
    """Return the bytes of a `data:` URL. Base64 is decoded strictly, so nothing is skipped silently."""
    name = DATA_URL
    head, comma, body = text.partition(",")
    if not comma:
        raise ImageError(f"{name}: no comma in it; expected data:image/png;base64,...")
    bounds.check_bytes(len(body) // 4 * 3 - 2, name)
    try:
        if head.lower().endswith(";base64"):
            data = binascii.a2b_base64(body, strict_mode=True)
        else:
            data = urllib.parse.unquote_to_bytes(body)
    except ValueError as error:
        raise ImageError(f"{name}: not valid base64 ({error})") from None
    bounds.check_bytes(len(data), name)
    return data


# --- files ----------------------------------------------------------------------------------------------------

# If the path is a pipe, opening it must not wait for a writer.
if sys.platform == "win32":
    _FLAGS = os.O_RDONLY | os.O_BINARY
else:
    _FLAGS = os.O_RDONLY | os.O_NONBLOCK
    # On Linux, a folder with execute but without read permission can be opened only with O_PATH.
    _FOLDER = os.O_DIRECTORY | (os.O_PATH if sys.platform == "linux" else os.O_RDONLY)
_IS_LINK = (errno.ELOOP, errno.EMLINK)  # errors of O_NOFOLLOW
_OPEN = 64
"""Maximum number of folders kept open; a manifest uses few at a time."""


def read_file(
    path: Path | str,
    root: Path | ConfinedFolder | None = None,
    bounds: ImageBounds = BOUNDS,
) -> tuple[bytes, os.stat_result]:
    """Return the bytes of a file, and the status of the opened file."""
    name = name_of(path)
    try:
        if root is None:
            # Checked before opening, since opening a device may already have an effect.
            _check_regular(os.stat(path), name, bounds)
            descriptor = os.open(path, _FLAGS)
        else:
            folder = root if isinstance(root, ConfinedFolder) else ConfinedFolder(root)
            descriptor = folder.open(path)
        try:
            status = os.fstat(descriptor)
            _check_regular(status, name, bounds)
            data = os.read(descriptor, status.st_size + 1)
        finally:
            os.close(descriptor)
    except LeavesFolder as error:
        raise _outside(path, error.folder) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise ImageError(
            f"{name}: cannot be read: {reason}", code="unreadable_file"
        ) from error
    except ValueError as error:
        raise ImageError(
            f"{name}: cannot be read: {error}", code="unreadable_file"
        ) from error
    if len(data) != status.st_size:
        raise ImageError(
            f"{name}: changed while it was read; wait until it is written, and run again"
        )
    return data, status


def confine(path: Path | str, root: Path) -> None:
    """Raise `ImageError` for a file outside a folder, even if it is reached through a link."""
    try:
        resolve_inside(path, root)
    except LeavesFolder:
        raise _outside(path, root) from None


def _outside(path: Path | str, root: Path) -> ImageError:
    return ImageError(
        f"{name_of(path)}: is outside {name_of(root)}, perhaps through a link",
        code="outside_folder",
    )


def _check_regular(status: os.stat_result, name: str, bounds: ImageBounds) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ImageError(f"{name}: is a folder; expected a file", code="is_a_folder")
    if not stat.S_ISREG(status.st_mode):
        raise ImageError(
            f"{name}: is a device, pipe or socket; expected a file",
            code="not_a_regular_file",
        )
    bounds.check_bytes(status.st_size, name)


class _OpenFolder:
    """Descriptor of an open folder. It stays open as long as something refers to it, since another thread may still be
    opening a file in the folder.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        os.close(self.descriptor)


class ConfinedFolder:
    """Opens files below a folder. Safe to use from several threads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._open: OrderedDict[str, _OpenFolder] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, path: str | os.PathLike[str]) -> int:
        """Return a file descriptor for reading. Raises `LeavesFolder` if the path leads out of the folder, and
        `OSError` as `os.open` does.
        """
        if sys.platform == "win32":
            return os.open(resolve_inside(path, self.root), _FLAGS)
        # Not normalised, since the file system decides the meaning of `..` behind a link.
        folder, name = os.path.split(os.path.join(os.getcwd(), path))
        if name in ("", ".", ".."):
            folder, name = os.path.split(resolve_inside(path, self.root))
        try:
            return self._open_in(folder, name)
        except FileNotFoundError:
            with self._lock:
                stale = self._open.pop(folder, None)
            if stale is None:
                raise
            # The folder may have been replaced.
            return self._open_in(folder, name)
        except LeavesFolder:
            pass  # a link elsewhere may still lead to a file below the root
        except OSError as error:
            if error.errno not in _IS_LINK:
                raise
        return self._open_in(*os.path.split(resolve_inside(path, self.root)))

    if sys.platform != "win32":

        def _open_in(self, folder: str, name: str) -> int:
            # Keeps a reference, since another thread might close the descriptor otherwise.
            parent = self._folder(folder)
            return os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=parent.descriptor)

        def _folder(self, path: str) -> _OpenFolder:
            with self._lock:
                if folder := self._open.get(path):
                    self._open.move_to_end(path)
                    return folder
            folder = self._walk(resolve_inside(path, self.root))
            with self._lock:
                self._open[path] = folder
                while len(self._open) > _OPEN:
                    self._open.popitem(last=False)
            return folder

        def _walk(self, real: str) -> _OpenFolder:
            """Open a folder from the root downwards without following links. A link that appeared after the folder was
            resolved is not followed either.
            """
            home = os.path.realpath(self.root)
            folder = _OpenFolder(os.open(home, _FOLDER))
            for name in Path(os.path.relpath(real, home)).parts:
                descriptor = os.open(
                    name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder.descriptor
                )
                folder = _OpenFolder(descriptor)
            return folder


# --- Python objects -------------------------------------------------------------------------------------------

_CHANNELS = (1, 3, 4)
_PNG_MODES = ("1", "L", "LA", "I;16", "P", "RGB", "RGBA")
_ROUNDING = 1e-3
"""Rounding error by which a decoder's floats may be outside 0 to 1. It is less than one step of 8 bits."""


def encode(image: object, where: str = "an image") -> bytes | Path | None:
    """Return an image as encoded bytes or a path. None is returned unchanged. Raise `ImageError`, with a message that
    begins with `where`, if it is not a valid image.
    """
    if image is None or isinstance(image, bytes):
        return image
    if isinstance(image, str | os.PathLike):
        text = os.fspath(image)
        return from_data_url(text) if text.startswith("data:") else Path(text)
    if is_pil(image):
        return _png(image, where)
    if not (_is_tensor(image) or _is_array(image)):
        raise ImageError(
            f"{where}: found {type(image).__name__}, {EXPECTED}", code="not_an_image"
        )
    from PIL import Image

    return _png(Image.fromarray(pixels(image, where)), where)


def is_pil(value: object) -> TypeGuard[PILImage]:
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(value, pillow.Image)


def _is_tensor(value: object) -> bool:
    return hasattr(value, "detach")


def _is_array(value: object) -> bool:
    return hasattr(value, "__array__")


def is_decoded(value: object) -> bool:
    """Whether the value is a PIL image, an array or a tensor. NumPy scalars do not count."""
    return is_pil(value) or (_is_array(value) and getattr(value, "ndim", 0) >= 2)


def split(images: Any) -> Sequence[Any]:
    """Return the images in a list or in a batch (N x ...)."""
    return [images[n] for n in range(len(images))]


def pixels(image: object, where: str = "an image") -> Pixels:
    """Return an image as a contiguous `uint8` array, height x width (x channels)."""
    import numpy as np

    array = _numpy(image)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or not array.size:
        raise ImageError(
            f"{where}: found the shape {array.shape}, expected one image of two or three axes",
            code="bad_shape",
        )
    first = array.shape[0] in _CHANNELS
    last = array.shape[2] in _CHANNELS
    if not first and not last:
        raise ImageError(
            f"{where}: no axis of the shape {array.shape} has 1, 3 or 4 channels",
            code="bad_channels",
        )
    if first and (_is_tensor(image) or not last):
        array = array.transpose(1, 2, 0)
    array = _eight_bits(array, where)
    return np.ascontiguousarray(array[..., 0] if array.shape[2] == 1 else array)


def _numpy(image: Any) -> Pixels:
    import numpy as np

    if not _is_tensor(image):
        return np.asarray(image)
    tensor = image.detach()
    # NumPy has no bfloat16, but single precision represents all its values.
    if tensor.is_floating_point():
        tensor = tensor.float()
    array: Pixels = tensor.cpu().numpy()
    return array


def _eight_bits(array: Pixels, where: str) -> Pixels:
    import numpy as np

    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array * np.uint8(255)
    if not np.issubdtype(array.dtype, np.floating):
        raise ImageError(
            f"{where}: expected uint8, bool or floating point values, not {array.dtype}",
            code="bad_dtype",
        )
    low = float(array.min())
    high = float(array.max())
    if not (low >= -_ROUNDING and high <= 1 + _ROUNDING):  # also if one is NaN
        raise ImageError(
            f"{where}: found floating point values from {low:g} to {high:g}, expected 0 to 1; for 0 to 255 "
            "convert them with .astype('uint8')",
            code="bad_range",
        )
    return (array * 255).round().clip(0, 255).astype(np.uint8)


def _png(image: PILImage, where: str) -> bytes:
    from PIL import ImageOps

    data = io.BytesIO()
    try:
        upright = ImageOps.exif_transpose(image)
        # Of the modes that PNG lacks, CMYK, YCbCr, HSV and LAB are colours; 32-bit greys have no standard range.
        if upright.mode in ("I", "F"):
            raise ImageError(
                f"{where}: found the mode {upright.mode}, whose range is unknown; expected 8 bits a channel",
                code="unknown_range",
            )
        if upright.mode not in _PNG_MODES:
            upright = upright.convert("RGBA" if "a" in upright.mode else "RGB")
        # Fast rather than small, since the image is sent once, usually to this machine.
        upright.save(data, "PNG", compress_level=1)
    except (OSError, ValueError, SyntaxError) as error:  # Pillow opens files lazily
        raise ImageError(f"{where}: cannot be read: {error}") from None
    return data.getvalue()
