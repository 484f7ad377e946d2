"""Identification of images by header and digest, decoding, and preparation for a provider in recorded steps.

No other module imports Pillow for decoding. It is imported only inside functions, since keys and plans are computed
from headers alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import io
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from editjudge.errors import ImageError
from editjudge.media.header import (
    MEDIA_TYPES,
    Format,
    ImageInfo,
    Mode,
    Unreadable,
    format_of,
    header,
    refuse_garbage,
)
from editjudge.media.source import BOUNDS, ImageBounds, base64_of

if TYPE_CHECKING:
    from PIL import ImageCms
    from PIL.Image import Image


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """A provider's limits for images."""

    formats: frozenset[Format] = frozenset({"jpeg", "png", "webp", "gif"})
    max_side: int | None = None
    max_bytes: int | None = None
    """Maximum size in bytes before base64 encoding, which adds a third."""
    base64: bool = True
    """Whether images are sent as base64 in a request. Judges in this process receive the bytes."""

    def __post_init__(self) -> None:
        if not self.formats & {"jpeg", "png"}:
            raise ValueError(
                "limits must accept JPEG or PNG: images are prepared as one of the two"
            )


AS_IS = "as-is"


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """An image prepared for a judge."""

    media_type: str
    data: bytes
    """The image's bytes: as base64 for the JSON of a request, or unencoded for judges in this process."""
    digest: str = ""
    """Digest of the source at the time it was read. It shows whether a file has changed since it was planned."""
    recipe: str = AS_IS
    width: int = 0
    height: int = 0

    def for_judge(self, digest: str, limits: ImageLimits) -> EncodedImage:
        """Return the prepared image in the form that the judge accepts, with the digest of its source."""
        data = base64_of(self.data) if limits.base64 else self.data
        return replace(self, data=data, digest=digest)


# --- identifying ----------------------------------------------------------------------------------------------


def digest(data: bytes) -> str:
    """Return the SHA-256 of the data in hexadecimal, which identifies an image in keys."""
    return hashlib.sha256(data).hexdigest()


def probe(
    data: bytes, *, name: str = "image", bounds: ImageBounds = BOUNDS
) -> ImageInfo:
    """Return the header of an image. Raise `ImageError` if the data is not an image, is truncated, or would be too
    large when decoded.
    """
    bounds.check_bytes(len(data), name)
    try:
        kind = format_of(data)
        info = header(data, kind) or _pillow_header(data, kind, name, bounds)
        bounds.check_sides(info.width, info.height, name)
        if kind in ("gif", "bmp"):
            _check_complete(data, info, name)
    except Unreadable as error:
        raise ImageError(f"{name}: {error}", code=error.code) from None
    return info


_PILLOW_MODES: dict[str, Mode] = {
    "1": "gray",
    "L": "gray",
    "I;16": "gray",
    "P": "palette",
    "RGB": "rgb",
    "CMYK": "cmyk",
}


def _pillow_header(
    data: bytes, kind: Format, name: str, bounds: ImageBounds
) -> ImageInfo:
    """Return the header of an image in another format, as read by Pillow without decoding pixels."""
    with _pillow(name, kind):
        image = _open(data, kind)
        tags = image.tag_v2 if kind == "tiff" else {}
        # Checked before looking for a second frame, for which Pillow decodes the first frame of a GIF.
        bounds.check_sides(image.width, image.height, name)
        bits = tags.get(258, 8)
        orientation = tags.get(274, 1)
        mode = image.mode[:4].removesuffix("A")
        return ImageInfo(
            kind,
            # Pillow swaps the sides of a TIFF that is rotated by its orientation; the tags have the stored sides.
            tags.get(256, image.width),
            tags.get(257, image.height),
            len(data),
            mode=_PILLOW_MODES.get(mode, "other"),
            bits=max(bits) if isinstance(bits, tuple) else bits,
            has_alpha=image.mode.endswith("A") or "transparency" in image.info,
            orientation=orientation if orientation in range(1, 9) else 1,
            has_icc=bool(image.info.get("icc_profile")),
            animated=_has_second(image),
            lossless=kind != "heic" and tags.get(259) not in (6, 7),
        )


def _check_complete(data: bytes, info: ImageInfo, name: str) -> None:
    """Decode a GIF or BMP to check that it is complete, since Pillow notices only then that a file is truncated. These
    formats are rare.
    """
    with _DECODING.room(info.width * info.height), _pillow(name):
        _open(data, info.format).load()
    if info.format == "gif" and not data.rstrip(b"\0").endswith(b";"):
        refuse_garbage(data, data.rfind(b";") + 1)


def _has_second(image: Image) -> bool:
    """Whether there is a second frame or page. Further frames are not counted."""
    try:
        image.seek(1)
    except EOFError:
        return False
    return True


# --- decoding -------------------------------------------------------------------------------------------------


class Decoding:
    """Limits the number of pixels that threads decode at the same time. A file of 1 MB can take 400 MB when decoded."""

    def __init__(self, max_pixels: int) -> None:
        self._max_pixels = max_pixels
        self._pixels = 0
        self._changed = threading.Condition()

    @contextmanager
    def room(self, pixels: int) -> Iterator[None]:
        """Wait until there is room for this many pixels. An image that exceeds the limit is decoded alone."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self._pixels or self._pixels + pixels <= self._max_pixels
            )
            self._pixels += pixels
        try:
            yield
        finally:
            with self._changed:
                self._pixels -= pixels
                self._changed.notify_all()
            if pixels > self._max_pixels // 5:
                release_memory()


_DECODING = Decoding(BOUNDS.max_pixels // 2)


def release_memory() -> None:
    """Return freed memory to the system. glibc would keep it for the next image: about 500 MB after an image of a
    hundred megapixels (measured).
    """
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def decode(data: bytes, *, name: str = "image", bounds: ImageBounds = BOUNDS) -> Image:
    """Return the pixels for display: RGB in sRGB, upright, first frame, on a white background."""
    return _pixels(data, probe(data, name=name, bounds=bounds), name)


def _pixels(data: bytes, info: ImageInfo, name: str) -> Image:
    import PIL.Image

    if info.bits > 16:
        raise ImageError(
            f"{name}: {info.bits} bits a channel, an unknown range; expected 8 or 16",
            code="unknown_range",
        )
    with _pillow(name, info.format):
        image: Image = _open(data, info.format)
        if info.format == "tiff":
            image.load()
    with _pillow(name):
        image.load()
        # Read before conversions, some of which drop the profile.
        profile = image.info.get("icc_profile") if info.has_icc else None
        colours, alpha = _without_alpha(_eight_bits(image, info))
        colours = _to_srgb(colours, profile)
        if alpha is not None:
            white = PIL.Image.new("RGB", colours.size, "white")
            colours = PIL.Image.composite(colours, white, alpha)
        # Pillow applies the orientation while loading only for TIFF.
        return colours if info.format == "tiff" else _upright(colours, info.orientation)


def _eight_bits(image: Image, info: ImageInfo) -> Image:
    if info.bits <= 8:
        return image
    # The transparent colour still has 16 bits.
    clear = image.info.pop("transparency", None)
    if image.mode.startswith("I"):
        # A direct conversion clips: every value over 255 of 65,535 becomes white.
        scale = 255 / (2**info.bits - 1)
        image = image.convert("I").point(lambda value: value * scale + 0.5).convert("L")
    if isinstance(clear, int):
        image.info["transparency"] = round(clear / 257)
    elif isinstance(clear, tuple):
        # For RGB, Pillow keeps the upper byte.
        image.info["transparency"] = tuple(value >> 8 for value in clear)
    return image


def _without_alpha(image: Image) -> tuple[Image, Image | None]:
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return image.convert("RGB"), image.getchannel("A")
    if image.mode in ("P", "1", "YCbCr", "RGBX"):
        image = image.convert("RGB")
    return image, None


def is_srgb(data: bytes, info: ImageInfo, *, name: str = "image") -> bool:
    """Whether the pixel values are sRGB, because the image has no colour profile or an sRGB profile."""
    if not info.has_icc:
        return True
    with _pillow(name, info.format):
        return _profile(_open(data, info.format).info.get("icc_profile")) is None


def _profile(data: bytes | None) -> ImageCms.ImageCmsProfile | None:
    """Return the colour profile, or None if it is sRGB or there is none. A damaged profile is ignored, as it is by
    image viewers.
    """
    from PIL import ImageCms

    if not data:
        return None
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(data))
        title = ImageCms.getProfileDescription(profile).lower()
    except (ImageCms.PyCMSError, OSError):
        return None
    # A conversion from sRGB to sRGB would change values by rounding.
    return None if "srgb" in title and "linear" not in title else profile


def _to_srgb(image: Image, profile: bytes | None) -> Image:
    from PIL import ImageCms

    if source := _profile(profile):
        target = ImageCms.createProfile("sRGB")
        # The profile may belong to another colour model than the image.
        with contextlib.suppress(ImageCms.PyCMSError, OSError):
            converted = ImageCms.profileToProfile(
                image, source, target, outputMode="RGB"
            )
            return converted or image
    return image if image.mode == "RGB" else image.convert("RGB")


def _upright(image: Image, orientation: int) -> Image:
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
    turn = turns.get(orientation)
    return image if turn is None else image.transpose(turn)


def _open(data: bytes, kind: Format) -> Any:
    """Open the data with Pillow's reader for exactly this format.

    `Image.open` would try every plugin, and apply a limit that is global to the process.
    """
    if kind == "heic":
        try:
            heif = importlib.import_module("pillow_heif")
        except ImportError:
            raise Unreadable(
                "is HEIC, which needs an extra: pip install 'editjudge[heic]'",
                "missing_extra",
            ) from None
        return heif.HeifImageFile(io.BytesIO(data))
    stem = "WebP" if kind == "webp" else kind.capitalize()
    plugin = importlib.import_module(f"PIL.{stem}ImagePlugin")
    return getattr(plugin, f"{stem}ImageFile")(io.BytesIO(data))


_FILTERING = threading.Lock()


@contextmanager
def _pillow(name: str, opening: Format | None = None) -> Iterator[None]:
    """Turn every error of Pillow, and warnings while opening, into an `ImageError` that names the image."""
    try:
        if opening is None:
            yield
            return
        # Warning filters are global to the process, so only one thread sets them at a time, and only for Pillow's
        # modules.
        with _FILTERING, warnings.catch_warnings():
            warnings.filterwarnings("error", module=r"PIL\.")
            if opening != "tiff":
                # The TIFF module reads EXIF, which is often damaged in photographs whose pixels are fine.
                warnings.filterwarnings("ignore", module=r"PIL\.TiffImagePlugin")
            yield
    except (ImageError, Unreadable, MemoryError):
        raise
    except Exception as error:  # plugins raise OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error
        raise ImageError(
            f"{name}: cannot be decoded or encoded: {error}", code="not_decodable"
        ) from error


# --- preparing ------------------------------------------------------------------------------------------------

# Maximum bytes per pixel: noise of pure black and white, the worst case, takes 2.9 bytes as JPEG (quality 95, 4:4:4)
# and 3.01 as PNG.
_WORST_BYTES = 4
_HEADERS = 1024  # a JPEG of one pixel has 629 bytes, nearly all of them tables
# Steps of a fifth, so that a file that is slightly too large keeps most of its pixels.
_SHRINK = 0.8
_CODECS = {"png": ("png",), "jpeg95": ("jpeg",), "png-else-jpeg95": ("png", "jpeg")}


def plan(info: ImageInfo, limits: ImageLimits) -> str:
    """Return the recipe by which `prepare` will change an image. It depends only on the image's header and the limits,
    and is part of a task's key.

    A recipe is `as-is`, or steps joined by `+`: `orient` (EXIF), `frame1` (of several), `8bit`, `srgb` (profile, CMYK),
    `white` (behind alpha), `sideN` (longest side, Lanczos), then the codec: `png`, `jpeg95` (4:4:4) or
    `png-else-jpeg95`. `maxN` follows if the result may exceed N bytes. In that case JPEG replaces PNG, and the sides
    shrink by a fifth until the image fits.
    """
    small = limits.max_side is None or max(info.width, info.height) <= limits.max_side
    light = limits.max_bytes is None or info.size <= limits.max_bytes
    upright = info.orientation == 1 and not info.animated
    # Servers that decode with Pillow clip 16-bit gray to white, and few support Adobe's CMYK.
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
    needed = [step for step, is_needed in steps.items() if is_needed]
    return "+".join(needed + _codec(info, limits, small and plain))


def _codec(info: ImageInfo, limits: ImageLimits, same_pixels: bool) -> list[str]:
    width, height = _within(info.display_size, limits.max_side)
    largest = width * height * _WORST_BYTES + _HEADERS
    fits = limits.max_bytes is None or largest <= limits.max_bytes
    bound = [] if fits else [f"max{limits.max_bytes}"]
    if "jpeg" not in limits.formats:
        return ["png", *bound]
    # Data that is too large after lossless compression would be too large again.
    too_large = not fits and same_pixels and info.size > (limits.max_bytes or 0)
    hopeless = too_large and info.format in ("png", "webp", "gif")
    if "png" not in limits.formats or not info.lossless or hopeless:
        return ["jpeg95", *bound]
    return ["png" if fits else "png-else-jpeg95", *bound]


def prepare(
    data: bytes, info: ImageInfo, limits: ImageLimits, *, name: str = "image"
) -> EncodedImage:
    """Return an image that the provider accepts. The image is left unchanged if possible, since encoding it again is
    itself an edit.
    """
    recipe = plan(info, limits)
    if recipe == AS_IS:
        media_type = MEDIA_TYPES[info.format]
        return EncodedImage(media_type, data, "", recipe, info.width, info.height)
    codecs = next(_CODECS[step] for step in recipe.split("+") if step in _CODECS)
    with _DECODING.room(info.width * info.height), _pillow(name):
        image = _pixels(data, info, name)
        size = _within(image.size, limits.max_side)
        while True:
            for codec in codecs:
                encoded = _encode(image, size, codec)
                if limits.max_bytes is None or len(encoded) <= limits.max_bytes:
                    return EncodedImage(f"image/{codec}", encoded, "", recipe, *size)
            if max(size) < 16:  # the headers alone exceed the provider's limit
                raise ImageError(
                    f"{name}: no size fits into {limits.max_bytes:,} bytes",
                    code="no_size_fits",
                )
            codecs = codecs[-1:]
            size = _within(size, int(max(size) * _SHRINK))


def _within(size: tuple[int, int], side: int | None) -> tuple[int, int]:
    longest = max(size)
    if side is None or longest <= side:
        return size
    width, height = (max(1, round(length * side / longest)) for length in size)
    return width, height


def _encode(image: Image, size: tuple[int, int], codec: str) -> bytes:
    from PIL.Image import Resampling

    if image.size != size:
        image = image.resize(size, Resampling.LANCZOS)
    file = io.BytesIO()
    if codec == "png":
        # Level 3 of 9: 0.26 s and 2.7 MB for 3 megapixels; the usual level 6 takes 0.62 s for 2.4 MB.
        image.save(file, "PNG", compress_level=3)
    else:
        image.save(file, "JPEG", quality=95, subsampling=0)
    return file.getvalue()
