"""Images of a run for browsers: confined to its folder, limited in size, and without metadata for raters.

Editors and models leave their names in EXIF, XMP, comments and colour profiles, so these are removed for raters. If
that is not possible, the image is converted to PNG: its first frame, upright, with 8 bits in sRGB. This concerns
uncommon formats, and images with a rotation in EXIF, more than 8 bits, several frames, or colours other than sRGB.
"""

from __future__ import annotations

import io
import re
import struct
import threading
from collections import OrderedDict
from dataclasses import dataclass

from editjudge import plugins
from editjudge.canonical import Json
from editjudge.edit import PAIR_ROLES
from editjudge.errors import ImageError
from editjudge.media.cache import DigestCache, ImageReader
from editjudge.media.header import MEDIA_TYPES
from editjudge.media.image import (
    AS_IS,
    EncodedImage,
    ImageLimits,
    decode,
    is_srgb,
    plan,
    prepare,
    probe,
)
from editjudge.media.source import name_of
from editjudge.running.images import image_of, image_path, root_of
from editjudge.store.records import Item, RunRecord
from editjudge.store.store import Store
from editjudge.web.values import edit_url

ROLES = {
    "input": "Input",
    "edited": "Edited",
    "edited_a": "Output A",
    "edited_b": "Output B",
    "ground_truth": "Ground truth",
    "mask": "Mask",
}
INERT = {
    "content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'"
}
"""Response headers for an image. They prevent scripts in it from running if it is opened by itself."""
_BROWSERS = ImageLimits(formats=frozenset({"jpeg", "png", "webp", "gif"}))
"""Formats that every browser can show. Other images are converted to one of them."""
_SIDES = {str(side): ImageLimits(_BROWSERS.formats, side) for side in (160, 480)}
"""Longest sides of thumbnails. There are only a few, so that clients cannot make the server scale images to arbitrary
sizes."""
_MAX_EVIDENCE = 24
"""Number of edits whose evidence is cached. Evidence takes a second to measure, and is viewed several times."""


def title_of(role: str) -> str:
    """Return the heading for an image or text of an edit."""
    return ROLES.get(role) or role.replace("_", " ").capitalize()


def entity_tag(run: RunRecord, item: Item, role: str, side: str) -> str:
    """Return an entity tag that changes with the file, computed without reading it."""
    try:
        status = image_path(run, item, role).stat()
    except OSError as error:
        name = name_of(str(item.images[role]["source"]))
        raise ImageError(f"{name}: {error.strerror}") from None
    size = side if side in _SIDES else ""
    return f'"{status.st_mtime_ns:x}-{status.st_size:x}-{size}"'


def browser_image(run: RunRecord, item: Item, role: str, side: str) -> EncodedImage:
    """Return an image for a browser. It is converted only if browsers cannot show it, and scaled down only for a
    thumbnail."""
    data = image_of(run, item, role)
    name = name_of(str(item.images[role]["source"]))
    limits = _SIDES.get(side, _BROWSERS)
    return prepare(data, probe(data, name=name), limits, name=name)


@dataclass(frozen=True)
class ShownImage:
    """An image of an edit on a page."""

    role: str
    label: str
    url: str
    problem: str = ""
    """Reason why the image cannot be shown."""
    size: tuple[int, int] | None = None
    changed: bool = False
    """Whether the file has changed since it was judged."""


def shown_images(store: Store, run: RunRecord, item: Item) -> list[ShownImage]:
    """Return the images of an edit in the usual order of roles."""
    digests = DigestCache(ImageReader(root=root_of(run)))
    sources = [str(image["source"]) for image in item.images.values()]
    digests.load(store.load_digests(sources))
    usual = [role for role in ROLES if role in item.images]
    further = [role for role in item.images if role not in ROLES]
    return [_on_page(digests, run, item, role) for role in usual + further]


def _on_page(digests: DigestCache, run: RunRecord, item: Item, role: str) -> ShownImage:
    label = title_of(role)
    # Reviewers may see which model made each output of a pair.
    if role in PAIR_ROLES and (model := item.metadata.get(f"model_{role[-1]}")):
        label = f"{label}, {model}"
    url = edit_url(item.item, run.id, f"images/{role}")
    try:
        image = digests.look_up(image_path(run, item, role))
    except ImageError as error:
        return ShownImage(role, label, url, str(error))
    if image is None:
        return ShownImage(role, label, url, "the file does not exist")
    size = image.info.display_size if image.info else None
    changed = item.images[role].get("digest") not in (None, image.digest)
    return ShownImage(role, label, url, image.problem, size, changed)


class Evidence:
    """Images of the evidence measured by the embedded judge. They are drawn on request, for one edit at a time."""

    def __init__(self) -> None:
        self._drawn: OrderedDict[tuple[int, str], dict[str, bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, run: RunRecord, item: Item, evidence: Json) -> dict[str, bytes]:
        try:
            draw = plugins.load("evidence", "measured", "evidence")
        except plugins.MissingExtra as error:
            raise ImageError(str(error)) from None
        with self._lock:
            key = (run.id, item.item)
            if key not in self._drawn:
                mask = image_of(run, item, "mask") if "mask" in item.images else None
                self._drawn[key] = draw(
                    image_of(run, item, "input"),
                    image_of(run, item, "edited"),
                    mask,
                    evidence,
                )
                while len(self._drawn) > _MAX_EVIDENCE:
                    self._drawn.popitem(last=False)
            return self._drawn[key]


# --- for raters -----------------------------------------------------------------------------------------------

_STRIPPED = ImageLimits(formats=frozenset({"jpeg", "png", "webp"}))


def blind(data: bytes) -> tuple[bytes, str]:
    """Return the image without metadata, and its media type."""
    info = probe(data)
    if plan(info, _STRIPPED) != AS_IS or not is_srgb(data, info):
        image = decode(data)
        image.info.clear()
        out = io.BytesIO()
        image.save(out, "PNG")
        return out.getvalue(), "image/png"
    strip = {"jpeg": _jpeg, "png": _png, "webp": _webp}[info.format]
    try:
        return strip(data), MEDIA_TYPES[info.format]
    except (struct.error, IndexError, ValueError):
        raise ImageError("the image cannot be read") from None


# --- JPEG -----------------------------------------------------------------------------------------------------

# Inside compressed data FF is followed by 00 or a restart mark.
_MARK = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")


def _jpeg(data: bytes) -> bytes:
    out = [data[:2]]
    at = 2
    scanning = False
    while (match := _MARK.search(data, at)) is not None:
        if scanning:
            out.append(data[at : match.start()])
        code = data[match.start() + 1]
        at = match.end()
        if code == 0xD9:
            out.append(b"\xff\xd9")  # without the data that cameras append
            break
        (length,) = struct.unpack_from(">H", data, at)
        payload = data[at + 2 : at + length]
        at = at + length
        if code == 0xE0 and payload.startswith(b"JFIF\0"):
            out.append(_segment(code, payload[:12] + b"\0\0"))  # without its thumbnail
        elif code == 0xEE and payload.startswith(b"Adobe"):
            out.append(_segment(code, payload[:12]))  # colour coding
        elif not 0xE0 <= code <= 0xEF and code != 0xFE:
            out.append(_segment(code, payload))
            scanning = scanning or code == 0xDA
    return b"".join(out)


def _segment(code: int, payload: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, code, len(payload) + 2) + payload


# --- PNG and WebP ---------------------------------------------------------------------------------------------

_PNG_CHUNKS = {
    b"IHDR",
    b"PLTE",
    b"IDAT",
    b"IEND",
    b"tRNS",
    b"gAMA",
    b"cHRM",
    b"sRGB",
    b"sBIT",
    b"cICP",
}


def _png(data: bytes) -> bytes:
    out = data[:8]
    at = 8
    kind = b""
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 12 + length
        if kind in _PNG_CHUNKS:
            out += data[at:end]
        at = end
    return out


_WEBP_CHUNKS = {b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM", b"ANMF"}
_METADATA = 0x2C
"""Flags that mark a colour profile, EXIF and XMP."""


def _webp(data: bytes) -> bytes:
    end = 8 + int.from_bytes(data[4:8], "little")
    at = 12
    out = b""
    while at + 8 <= end:
        kind, length = struct.unpack_from("<4sI", data, at)
        following = at + 8 + length + (length & 1)
        if kind == b"VP8X":
            flags = bytes((data[at + 8] & ~_METADATA,))
            out += data[at : at + 8] + flags + data[at + 9 : following]
        elif kind in _WEBP_CHUNKS:
            out += data[at:following]
        at = following
    return b"RIFF" + struct.pack("<I", len(out) + 4) + b"WEBP" + out
