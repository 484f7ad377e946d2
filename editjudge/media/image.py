"""Pictures: read them, bound them, know them by digest, and hand them on as they are or prepared by a recorded recipe.

The one place that imports Pillow, and only inside functions: keys and plans are computed from headers alone.
"""

from __future__ import annotations

import binascii
import ctypes
import hashlib
import importlib
import io
import os
import stat
import threading
import urllib.parse
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pybase64 import b64encode

from editjudge.edit import ImageSource
from editjudge.errors import ImageError
from editjudge.media.folders import FLAGS, ConfinedFolder, LeavesFolder
from editjudge.media.header import MEDIA_TYPES, Format, ImageInfo, Mode, Unreadable, format_of, header, refuse_garbage
from editjudge.redaction import address_secrets, redacted_address, without

if TYPE_CHECKING:
    from PIL.Image import Image

Fetch = Callable[[str], bytes]
"""Gets what an http(s) address holds; who allows addresses supplies it."""


@dataclass(frozen=True, slots=True)
class ImageBounds:
    """What is read at all, whatever a provider would take. Checked before a pixel is decoded."""

    max_bytes: int = 64 * 2**20
    max_pixels: int = 100_000_000
    max_side: int = 65_535


BOUNDS = ImageBounds()


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """What a provider takes."""

    formats: frozenset[Format] = frozenset({"jpeg", "png", "webp", "gif"})
    max_side: int | None = None
    max_bytes: int | None = None
    """Of the picture itself, before base64 makes four bytes of three."""
    base64: bool = True
    """Whether it goes into a request; judges in this process take the bytes."""

    def __post_init__(self) -> None:
        if not self.formats & {"jpeg", "png"}:
            raise ValueError("limits must accept JPEG or PNG: pictures are prepared as one of the two")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A picture as a provider gets it."""

    data: bytes
    media_type: str
    recipe: str
    width: int
    height: int


# --- reading --------------------------------------------------------------------------------------------------


def name_of(source: ImageSource) -> str:
    """What a message or a store calls a picture, on one line whatever the file is called; without secrets."""
    if isinstance(source, bytes):
        return "picture given as bytes"
    text = "data: URL" if isinstance(source, str) and source.startswith("data:") else str(source)
    if is_url(source):
        text = redacted_address(text)
    return text if text.isprintable() else repr(text)


def read(
    source: ImageSource,
    *,
    root: Path | ConfinedFolder | None = None,
    fetch: Fetch | None = None,
    bounds: ImageBounds = BOUNDS,
) -> bytes:
    """The encoded picture. With `root`, a file that lies elsewhere, also by way of a link, is refused."""
    if isinstance(source, bytes):
        data = source
    elif isinstance(source, str) and source.startswith("data:"):
        return from_data_url(source, bounds=bounds)
    elif is_url(source):
        if fetch is None:
            raise ImageError(f"{name_of(source)}: addresses are not fetched here; expected a file")
        data = fetch(str(source))
    else:
        return read_file(source, root, bounds)[0]
    _bound_bytes(len(data), name_of(source), bounds)
    return data


def fetch(url: str, bounds: ImageBounds = BOUNDS) -> bytes:
    """What an http(s) address holds, bounded in size and time; for runs that allow addresses."""
    import http.client
    import urllib.request

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        """The manifest says where a picture comes from, not a server."""

        def redirect_request(self, *args: object, **kwargs: object) -> None:
            return None

    if not is_url(url):
        raise ImageError(f"{redacted_address(url)[:80]}: only http and https addresses are fetched")
    try:
        address, headers = _with_login(url)
        request = urllib.request.Request(address, headers=headers)  # noqa: S310  (scheme checked above)
        with urllib.request.build_opener(NoRedirect).open(request, timeout=30.0) as response:
            data: bytes = response.read(bounds.max_bytes + 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = without(str(getattr(error, "reason", error)), address_secrets(url))
        raise ImageError(f"{redacted_address(url)[:80]}: cannot be fetched: {reason}") from None
    return data


def _with_login(url: str) -> tuple[str, dict[str, str]]:
    """The address without its user and password, and the headers that say them."""
    headers = {"User-Agent": "editjudge"}
    parts = urllib.parse.urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    if user:
        login = urllib.parse.unquote_to_bytes(user)
        headers["Authorization"] = f"Basic {b64encode(login).decode()}"
    return parts._replace(netloc=host).geturl(), headers


def is_url(source: ImageSource) -> bool:
    return isinstance(source, str) and source[:8].lower().startswith(("http://", "https://"))


def from_data_url(text: str, *, bounds: ImageBounds = BOUNDS) -> bytes:
    """The bytes in a `data:` URL; base64 by the letter, so that nothing is skipped silently."""
    name, (head, comma, body) = "data: URL", text.partition(",")
    if not comma:
        raise ImageError(f"{name}: no comma in it; expected data:image/png;base64,...")
    _bound_bytes(len(body) // 4 * 3 - 2, name, bounds)
    try:
        inline = head.lower().endswith(";base64")
        data = binascii.a2b_base64(body, strict_mode=True) if inline else urllib.parse.unquote_to_bytes(body)
    except ValueError as error:
        raise ImageError(f"{name}: not valid base64 ({error})") from None
    _bound_bytes(len(data), name, bounds)
    return data


def read_file(
    path: Path | str, root: Path | ConfinedFolder | None = None, bounds: ImageBounds = BOUNDS
) -> tuple[bytes, os.stat_result]:
    """The bytes of a file, and what the file system says of the very file that was read."""
    name = name_of(path)
    try:
        descriptor = _descriptor(path, root, bounds)
        try:
            status = os.fstat(descriptor)
            size = _regular(status, name, bounds)
            data = os.read(descriptor, size + 1)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ImageError(f"{name}: cannot be read: {why}") from error
    if len(data) != size:
        raise ImageError(f"{name}: changed while it was read; wait until it is written, and run again")
    return data, status


def _descriptor(path: Path | str, root: Path | ConfinedFolder | None, bounds: ImageBounds) -> int:
    if root is None:
        _regular(os.stat(path), name_of(path), bounds)  # opening a device may already do something
        return os.open(path, FLAGS)
    folder = root if isinstance(root, ConfinedFolder) else ConfinedFolder(root)
    try:
        return folder.open(path)
    except LeavesFolder:
        raise _outside(path, folder.root) from None


def confine(path: Path | str, root: Path) -> None:
    """Refuse a file that lies outside a folder, also by way of a link."""
    try:
        ConfinedFolder(root).resolved(path)
    except LeavesFolder:
        raise _outside(path, root) from None


def _outside(path: Path | str, root: Path) -> ImageError:
    return ImageError(f"{name_of(path)}: lies outside {name_of(root)}, perhaps by way of a link")


def _regular(status: os.stat_result, name: str, bounds: ImageBounds) -> int:
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a device, pipe or socket"
        raise ImageError(f"{name}: is {kind}; expected a file")
    _bound_bytes(status.st_size, name, bounds)
    return status.st_size


def _bound_bytes(size: int, name: str, bounds: ImageBounds) -> None:
    if size > bounds.max_bytes:
        raise ImageError(f"{name}: {size:,} bytes, more than the {bounds.max_bytes:,} that are read")


def base64_of(data: bytes) -> bytes:
    """The picture as a request holds it. The standard library takes 1.8 ms for a PNG of 1.5 MB; pybase64 takes 0.07."""
    return b64encode(data)


# --- what it is -----------------------------------------------------------------------------------------------


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal: what a picture is called in keys."""
    return hashlib.sha256(data).hexdigest()


def probe(data: bytes, *, name: str = "picture", bounds: ImageBounds = BOUNDS) -> ImageInfo:
    """What the picture is, from its header; refuses what is none, ends early, or would be too large decoded."""
    _bound_bytes(len(data), name, bounds)
    try:
        kind = format_of(data)
        info = header(data, kind) or _lazily(data, kind, name, bounds)
    except Unreadable as error:
        raise ImageError(f"{name}: {error}") from None
    _bound_sides(info.width, info.height, name, bounds)
    if kind in ("gif", "bmp"):
        _check_whole(data, info, name)
    return info


def _bound_sides(width: int, height: int, name: str, bounds: ImageBounds) -> None:
    claim = f"{name}: claims {width:,} x {height:,} pixels"
    if not (width and height):
        raise ImageError(f"{claim}: nothing to see")
    if max(width, height) > bounds.max_side:
        raise ImageError(f"{claim}; expected at most {bounds.max_side:,} on a side")
    if width * height > bounds.max_pixels:
        raise ImageError(f"{claim}; expected at most {bounds.max_pixels:,} in all")


_PILLOW_MODES: dict[str, Mode] = {"1": "gray", "L": "gray", "P": "palette", "RGB": "rgb", "CMYK": "cmyk"}


def _lazily(data: bytes, kind: Format, name: str, bounds: ImageBounds) -> ImageInfo:
    """The other formats as Pillow sees them, without pixels."""
    with _pillow(name, kind):
        image = _open(data, kind)
        tags = getattr(image, "tag_v2", {})
        # Before a second frame is looked for, since Pillow decodes the first of a GIF on the way.
        _bound_sides(image.width, image.height, name, bounds)
        bits = tags.get(258, 8)
        mode = image.mode.removesuffix("A") if image.mode != "CMYK" else image.mode
        return ImageInfo(
            kind,
            # Pillow swaps the sides of a TIFF that lies on its side; the tags have them as stored.
            tags.get(256, image.width),
            tags.get(257, image.height),
            len(data),
            mode="gray" if mode.startswith("I;16") else _PILLOW_MODES.get(mode, "other"),
            bits=max(bits) if isinstance(bits, tuple) else bits,
            has_alpha=image.mode.endswith("A") or "transparency" in image.info,
            orientation=tags.get(274, 1) if tags.get(274, 1) in range(1, 9) else 1,
            has_icc=bool(image.info.get("icc_profile")),
            animated=_has_second(image),
            lossless=kind != "heic" and tags.get(259) not in (6, 7),
        )


def _check_whole(data: bytes, info: ImageInfo, name: str) -> None:
    """Decodes a GIF or BMP, which are rare: only so does Pillow notice that one ends early."""
    with _DECODING.room(info.width * info.height), _pillow(name):
        _open(data, info.format).load()
        if info.format == "gif" and not data.rstrip(b"\0").endswith(b";"):
            try:
                refuse_garbage(data, data.rfind(b";") + 1)
            except Unreadable as error:
                raise ImageError(f"{name}: {error}") from None


def _has_second(image: Any) -> bool:
    """Whether there is another frame or page, without counting them all."""
    if image.format not in ("TIFF", "GIF"):
        return bool(getattr(image, "is_animated", False))
    try:
        image.seek(1)
    except EOFError:
        return False
    return True


# --- decoding -------------------------------------------------------------------------------------------------


class Decoding:
    """Bounds the pixels that threads decode at a time: a megabyte can hold a picture that takes 400 of them."""

    def __init__(self, most: int) -> None:
        self._most, self._pixels = most, 0
        self._changed = threading.Condition()

    @contextmanager
    def room(self, pixels: int) -> Iterator[None]:
        """Wait until so many fit beside the others; more than there is room for are decoded alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._pixels or self._pixels + pixels <= self._most)
            self._pixels += pixels
        try:
            yield
        finally:
            with self._changed:
                self._pixels -= pixels
                self._changed.notify_all()
            if pixels > self._most // 5:
                release_memory()


_DECODING = Decoding(BOUNDS.max_pixels // 2)


def release_memory() -> None:
    """Give back to the system what was freed: glibc keeps it for the next picture, some 500 MB after one of a hundred
    megapixels (measured)."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def decode(data: bytes, *, name: str = "picture", bounds: ImageBounds = BOUNDS) -> Image:
    """The pixels as people see them: RGB in sRGB, upright, the first frame, on white."""
    return _pixels(data, probe(data, name=name, bounds=bounds), name)


def _pixels(data: bytes, info: ImageInfo, name: str) -> Image:
    import PIL.Image

    if info.bits > 16:
        raise ImageError(f"{name}: {info.bits} bits a channel, of which none is white; expected 8 or 16")
    with _pillow(name, info.format):
        image: Image = _open(data, info.format)
        if info.format == "tiff":
            image.load()
    with _pillow(name):
        image.load()
        # Taken before conversions, of which some drop it.
        profile = image.info.get("icc_profile") if info.has_icc else None
        colours, alpha = _without_alpha(_eight_bits(image, info))
        colours = _to_srgb(colours, profile)
        if alpha is not None:
            colours = PIL.Image.composite(colours, PIL.Image.new("RGB", colours.size, "white"), alpha)
        return _upright(colours, info)


def _eight_bits(image: Image, info: ImageInfo) -> Image:
    if info.bits <= 8:
        return image
    clear = image.info.pop("transparency", None)  # the one colour that is see-through, still in 16 bits
    if image.mode.startswith("I"):
        # Converting directly clips: every value over 255 of 65,535 becomes white.
        scale = 255 / (2**info.bits - 1)
        image = image.convert("I").point(lambda value: value * scale + 0.5).convert("L")
    if isinstance(clear, int):
        image.info["transparency"] = round(clear / 257)
    elif isinstance(clear, tuple):
        image.info["transparency"] = tuple(value >> 8 for value in clear)  # Pillow keeps the upper byte of RGB
    return image


def _without_alpha(image: Image) -> tuple[Image, Image | None]:
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return image.convert("RGB"), image.getchannel("A")
    return (image.convert("RGB") if image.mode in ("P", "1", "YCbCr", "RGBX") else image), None


def _to_srgb(image: Image, profile: bytes | None) -> Image:
    from PIL import ImageCms

    if profile:
        try:
            source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            called = ImageCms.getProfileDescription(source).lower()
            if "srgb" not in called or "linear" in called:  # from sRGB to sRGB, rounding would move values by one
                target = ImageCms.createProfile("sRGB")
                converted = ImageCms.profileToProfile(image, source, target, outputMode="RGB")
                return converted or image
        except (ImageCms.PyCMSError, OSError):
            pass  # A profile that is damaged, or of another colour model than the picture: viewers ignore it too.
    return image if image.mode == "RGB" else image.convert("RGB")


def _upright(image: Image, info: ImageInfo) -> Image:
    from PIL.Image import Transpose

    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    if info.orientation == 1 or info.format == "tiff":  # Pillow turns TIFF, and only TIFF, while loading
        return image
    return image.transpose(turns[info.orientation])


def _open(data: bytes, kind: Format) -> Any:
    """Pillow's reader for exactly this format.

    `Image.open` would ask every plugin, and hold the picture against a limit that is global to the process.
    """
    if kind == "heic":
        try:
            heif = importlib.import_module("pillow_heif")
        except ImportError:
            raise Unreadable("is HEIC, which needs an extra: pip install 'editjudge[heic]'") from None
        return heif.HeifImageFile(io.BytesIO(data))
    stem = "WebP" if kind == "webp" else kind.capitalize()
    return getattr(importlib.import_module(f"PIL.{stem}ImagePlugin"), f"{stem}ImageFile")(io.BytesIO(data))


_FILTERING = threading.Lock()


@contextmanager
def _pillow(name: str, opening: Format | None = None) -> Iterator[None]:
    """Whatever Pillow raises, and what it warns of while opening, is an `ImageError` that names the picture."""
    try:
        if opening is None:
            yield
            return
        # Filters belong to the process: hence one at a time, and for Pillow's own modules only.
        with _FILTERING, warnings.catch_warnings():
            warnings.filterwarnings("error", module=r"PIL\.")
            if opening != "tiff":
                # EXIF is read by the TIFF module. Photographs often have it damaged; their pixels are sound.
                warnings.filterwarnings("ignore", module=r"PIL\.TiffImagePlugin")
            yield
    except (ImageError, Unreadable, MemoryError):
        raise
    except Exception as error:  # plugins raise OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error
        raise ImageError(f"{name}: cannot be decoded or encoded: {error}") from error


# --- preparing ------------------------------------------------------------------------------------------------

AS_IS = "as-is"
# The most that a pixel can take: noise of pure black and white, the worst there is, takes 2.9 bytes as JPEG
# (quality 95, 4:4:4) and 3.01 as PNG.
_WORST_BYTES = 4
_HEADERS = 1024  # a JPEG of one pixel has 629 bytes, nearly all of them tables
# Steps of a fifth: a file that is a little too large keeps most of its pixels.
_SHRINK = 0.8
_CODECS = {"png": ("png",), "jpeg95": ("jpeg",), "png-else-jpeg95": ("png", "jpeg")}


def plan(info: ImageInfo, limits: ImageLimits) -> str:
    """What `prepare` will do to such a picture, from its header alone: part of a task's key.

    `as-is`, or steps joined by `+`: `orient` (EXIF), `frame1` (of several), `8bit`, `srgb` (profile, CMYK), `white`
    (behind alpha), `sideN` (longest side, Lanczos), then the codec: `png`, `jpeg95` (4:4:4), or `png-else-jpeg95`, with
    `maxN` where that may exceed N bytes: PNG gives way to JPEG, then sides shrink by a fifth until it fits.
    """
    small = limits.max_side is None or max(info.width, info.height) <= limits.max_side
    light = limits.max_bytes is None or info.size <= limits.max_bytes
    upright = info.orientation == 1 and not info.animated
    # Servers that decode with Pillow clip 16-bit gray to white, and few know what Adobe's CMYK means.
    plain = info.bits <= 8 and info.mode not in ("cmyk", "other")
    if info.format in limits.formats and small and light and upright and plain:
        return AS_IS
    steps = {
        "orient": info.orientation != 1,
        "frame1": info.animated,
        "8bit": info.bits > 8,
        "srgb": info.has_icc or info.mode in ("cmyk", "other"),
        "white": info.has_alpha,
        f"side{limits.max_side}": not small,
    }
    return "+".join([*(step for step, needed in steps.items() if needed), *_codec(info, limits, small and plain)])


def _codec(info: ImageInfo, limits: ImageLimits, same_pixels: bool) -> list[str]:
    width, height = _within(info.shown, limits.max_side)
    surely = limits.max_bytes is None or width * height * _WORST_BYTES + _HEADERS <= limits.max_bytes
    bound = [] if surely else [f"max{limits.max_bytes}"]
    # What was compressed without loss and is too heavy stays too heavy when that is done again.
    heavy = not surely and same_pixels and info.size > (limits.max_bytes or 0)
    hopeless = heavy and info.format in ("png", "webp", "gif")
    if "jpeg" not in limits.formats:
        return ["png", *bound]
    if "png" not in limits.formats or not info.lossless or hopeless:
        return ["jpeg95", *bound]
    return ["png", *bound] if surely else ["png-else-jpeg95", *bound]


def prepare(data: bytes, info: ImageInfo, limits: ImageLimits, *, name: str = "picture") -> Prepared:
    """The picture as the provider takes it: untouched where it fits, since encoding again is itself an edit."""
    recipe = plan(info, limits)
    if recipe == AS_IS:
        return Prepared(data, MEDIA_TYPES[info.format], recipe, info.width, info.height)
    with _DECODING.room(info.width * info.height):
        return _prepared(data, info, limits, recipe, name)


def _prepared(data: bytes, info: ImageInfo, limits: ImageLimits, recipe: str, name: str) -> Prepared:
    image = _pixels(data, info, name)
    codecs = next(_CODECS[step] for step in recipe.split("+") if step in _CODECS)
    size = _within(image.size, limits.max_side)
    with _pillow(name):
        while True:
            for codec in codecs:
                encoded = _encode(_resized(image, size), codec)
                if limits.max_bytes is None or len(encoded) <= limits.max_bytes:
                    return Prepared(encoded, f"image/{codec}", recipe, *size)
            if max(size) < 16:  # headers alone are larger than this provider takes
                raise ImageError(f"{name}: no size fits into {limits.max_bytes:,} bytes")
            codecs, size = codecs[-1:], _within(size, int(max(size) * _SHRINK))


def _within(size: tuple[int, int], side: int | None) -> tuple[int, int]:
    longest = max(size)
    if side is None or longest <= side:
        return size
    return max(1, round(size[0] * side / longest)), max(1, round(size[1] * side / longest))


def _resized(image: Image, size: tuple[int, int]) -> Image:
    from PIL.Image import Resampling

    return image if image.size == size else image.resize(size, Resampling.LANCZOS)


def _encode(image: Image, codec: str) -> bytes:
    out = io.BytesIO()
    if codec == "png":
        # Level 3 of 9: for 3 megapixels 0.26 s and 2.7 MB; the usual 6 takes 0.62 s for 2.4 MB.
        image.save(out, "PNG", compress_level=3)
    else:
        image.save(out, "JPEG", quality=95, subsampling=0)
    return out.getvalue()
