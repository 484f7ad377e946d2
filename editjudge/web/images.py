"""Images of a run as browsers get them: confined to its folder and bounded for reviewers, without metadata for raters.

Editors and models sign their work in EXIF, XMP, comments and colour profiles. For raters these are cut out of the file,
and a colour profile is written anew from its numbers. A file that cannot be served so (another format, a rotation in
EXIF, more than 8 bits, several frames) becomes a PNG: the same pixels, upright, in 8 bits, the first frame.
"""

from __future__ import annotations

import math
import re
import struct
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from editjudge import plugins
from editjudge.edit import PAIR_ROLES
from editjudge.errors import ImageError
from editjudge.media.cache import DigestCache, ImageReader
from editjudge.media.image import AS_IS, EncodedImage, ImageLimits, plan, prepare, probe
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
"""Headers of an image: opened by itself, it can run nothing."""
_BROWSERS = ImageLimits(formats=frozenset({"jpeg", "png", "webp", "gif"}))
"""Formats that every browser shows; any other image is prepared as one of them."""
_SIDES = {str(side): ImageLimits(_BROWSERS.formats, side) for side in (160, 480)}
"""Longest sides of thumbnails: few, so that nobody makes the server scale at will."""
_MAX_EVIDENCE = 24
"""Edits whose evidence is cached: it takes a second to measure, and is looked at several times."""


def title_of(role: str) -> str:
    """Return the heading of an image or a text of an edit."""
    return ROLES.get(role) or role.replace("_", " ").capitalize()


def entity_tag(run: RunRecord, item: Item, role: str, side: str) -> str:
    """Return a tag that changes when the file does, without reading it."""
    try:
        status = image_path(run, item, role).stat()
    except OSError as error:
        name = name_of(str(item.images[role]["source"]))
        raise ImageError(f"{name}: {error.strerror}") from None
    size = side if side in _SIDES else ""
    return f'"{status.st_mtime_ns:x}-{status.st_size:x}-{size}"'


def browser_image(run: RunRecord, item: Item, role: str, side: str) -> EncodedImage:
    """Return an image untouched if browsers can show it, else encoded again; smaller if a thumbnail is wanted."""
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
    """Reason why it cannot be shown."""
    size: tuple[int, int] | None = None
    changed: bool = False
    """Whether the file changed since it was judged."""


def shown_images(store: Store, run: RunRecord, item: Item) -> list[ShownImage]:
    """Return each image that the edit names, the usual ones first."""
    digests = DigestCache(ImageReader(root=root_of(run)))
    sources = [str(image["source"]) for image in item.images.values()]
    digests.load(store.load_digests(sources))
    usual = [role for role in ROLES if role in item.images]
    further = [role for role in item.images if role not in ROLES]
    return [_shown(digests, run, item, role) for role in usual + further]


def _shown(digests: DigestCache, run: RunRecord, item: Item, role: str) -> ShownImage:
    label = title_of(role)
    # Reviewers may know which model made an output of a pair.
    if role in PAIR_ROLES and (model := item.metadata.get(f"model_{role[-1]}")):
        label = f"{label}, {model}"
    url = edit_url(item.item, run.id, f"images/{role}")
    try:
        known = digests.known(image_path(run, item, role))
    except ImageError as error:
        return ShownImage(role, label, url, str(error))
    if known is None:
        return ShownImage(role, label, url, "the file is not there")
    size = known.info.shown if known.info else None
    changed = item.images[role].get("digest") not in (None, known.digest)
    return ShownImage(role, label, url, known.problem, size, changed)


class Evidence:
    """Images of what the embedded judge measures, drawn when they are looked at, one edit at a time."""

    def __init__(self) -> None:
        self._drawn: OrderedDict[tuple[int, str], dict[str, bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def of(
        self, run: RunRecord, item: Item, evidence: dict[str, Any]
    ) -> dict[str, bytes]:
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
_ENCODED = ImageLimits(formats=frozenset({"png"}))
_PROFILE = 2**24
"""Bytes of a colour profile that are unpacked; the largest profiles of printers have two million."""


def blind(data: bytes) -> tuple[bytes, str]:
    """Return the image without metadata, and its media type."""
    info = probe(data)
    limits = _STRIPPED if plan(info, _STRIPPED) == AS_IS else _ENCODED
    prepared = prepare(data, info, limits)
    strippers = {"image/jpeg": _jpeg, "image/png": _png, "image/webp": _webp}
    strip = strippers[prepared.media_type]
    try:
        return strip(prepared.data), prepared.media_type
    except (struct.error, IndexError, zlib.error, ValueError):
        raise ImageError("the picture cannot be read") from None


# --- JPEG -----------------------------------------------------------------------------------------------------

# Inside compressed data FF is followed by 00 or a restart mark.
_MARK = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")


def _jpeg(data: bytes) -> bytes:
    out = [data[:2]]
    profile = list[bytes]()
    at = 2
    scanning = False
    icc_at = len(out)
    while (match := _MARK.search(data, at)) is not None:
        if scanning:
            out.append(data[at : match.start()])
        code = data[match.start() + 1]
        at = match.end()
        if code == 0xD9:
            out.append(b"\xff\xd9")  # and nothing of what cameras append
            break
        (length,) = struct.unpack_from(">H", data, at)
        payload = data[at + 2 : at + length]
        at = at + length
        if code == 0xE0 and payload.startswith(b"JFIF\0"):
            out.append(_segment(code, payload[:12] + b"\0\0"))  # without its thumbnail
            icc_at = len(out)
        elif code == 0xE2 and payload.startswith(b"ICC_PROFILE\0"):
            profile.append(payload[14:])
        elif code == 0xEE and payload.startswith(b"Adobe"):
            out.append(_segment(code, payload[:12]))  # how colours are coded
        elif not 0xE0 <= code <= 0xEF and code != 0xFE:
            out.append(_segment(code, payload))
            scanning = scanning or code == 0xDA
    clean = clean_profile(b"".join(profile))
    pieces = [clean[n : n + 65519] for n in range(0, len(clean), 65519)]
    payloads = (
        b"ICC_PROFILE\0" + bytes((n, len(pieces))) + piece
        for n, piece in enumerate(pieces, 1)
    )
    out[icc_at:icc_at] = [_segment(0xE2, payload) for payload in payloads]
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
    return data[:8] + b"".join(_png_chunks(data))


def _png_chunks(data: bytes) -> Iterator[bytes]:
    at = 8
    kind = b""
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", data, at)
        payload = data[at + 8 : at + 8 + length]
        at = at + 12 + length
        if kind == b"iCCP":
            profile = clean_profile(
                zlib.decompressobj().decompress(
                    payload.partition(b"\0")[2][1:], _PROFILE
                )
            )
            payload = b"icc\0\0" + zlib.compress(profile)
            if not profile:
                continue
        elif kind not in _PNG_CHUNKS:
            continue
        yield (
            struct.pack(">I", len(payload))
            + kind
            + payload
            + struct.pack(">I", zlib.crc32(kind + payload))
        )


_WEBP_CHUNKS = {b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM", b"ANMF", b"ICCP"}
_EXIF_AND_XMP = 0x0C


def _webp(data: bytes) -> bytes:
    end = 8 + int.from_bytes(data[4:8], "little")
    at = 12
    out = b""
    while at + 8 <= end:
        kind, length = struct.unpack_from("<4sI", data, at)
        payload = data[at + 8 : at + 8 + length]
        at = at + 8 + length + (length & 1)
        if kind == b"VP8X":
            payload = bytes((payload[0] & ~_EXIF_AND_XMP,)) + payload[1:]
        elif kind == b"ICCP":
            payload = clean_profile(payload)
        if kind in _WEBP_CHUNKS and payload:
            out += (
                kind
                + struct.pack("<I", len(payload))
                + payload
                + b"\0" * (len(payload) & 1)
            )
    return b"RIFF" + struct.pack("<I", len(out) + 4) + b"WEBP" + out


# --- colour profiles ------------------------------------------------------------------------------------------

_CLASSES = (b"mntr", b"scnr", b"prtr", b"spac")
_SPACES = (b"RGB ", b"GRAY", b"CMYK")
_CONNECTION_SPACES = (b"XYZ ", b"Lab ")
_D50 = struct.pack(">3i", 0xF6D6, 0x10000, 0xD32D)
"""The illuminant of every connection space, as 16.16 fixed-point numbers."""
_TAGS = {
    *(
        b"wtpt",
        b"chad",
        b"rXYZ",
        b"gXYZ",
        b"bXYZ",
        b"rTRC",
        b"gTRC",
        b"bTRC",
        b"kTRC",
        b"cicp",
    ),
    *(b"A2B0", b"A2B1", b"A2B2"),
}
"""Tags that a browser computes colours from. The others are texts, measurements, or for printing."""
_NAMELESS = b"desc" + bytes(4) + struct.pack(">I", 1) + bytes(1 + 78)
_PARAMETERS = (1, 3, 4, 5, 7)
"""Number of parameters of a parametric curve, by its function."""


def clean_profile(profile: bytes) -> bytes:
    """Write an ICC profile anew from the tags that colours are computed from; empty if it is not a profile."""
    if len(profile) < 132 or profile[36:40] != b"acsp":
        return b""
    kind = profile[12:16]
    space = profile[16:20]
    connection = profile[20:24]
    if (
        kind not in _CLASSES
        or space not in _SPACES
        or connection not in _CONNECTION_SPACES
    ):
        return b""
    tags = {b"desc": _NAMELESS}
    for n in range(min(struct.unpack_from(">I", profile, 128)[0], 100)):
        name, start, length = struct.unpack_from(">4sII", profile, 132 + 12 * n)
        if name in _TAGS and (content := _clean_tag(profile[start : start + length])):
            tags[name] = content
    table = b""
    body = b""
    at = 132 + 12 * len(tags)
    for name, content in tags.items():
        table += struct.pack(">4sII", name, at + len(body), len(content))
        body += content + bytes(-len(content) % 4)
    version = bytes((min(profile[8], 5), profile[9] & 0xF0, 0, 0))
    intent = profile[67] & 3
    header = struct.pack(
        ">I4x4s4s4s4s", at + len(body), version, kind, space, connection
    )
    header += (
        struct.pack(">6H4s24xI", 2000, 1, 1, 0, 0, 0, b"acsp", intent)
        + _D50
        + bytes(48)
    )
    return header + struct.pack(">I", len(tags)) + table + body


def _clean_tag(tag: bytes) -> bytes:
    """Return the values of a tag, without reserved bytes and without what follows them; empty for types that browsers do
    not read."""
    kind = tag[:4]
    if kind == b"mAB ":
        return _clean_table(tag)
    if kind in (b"mft1", b"mft2"):
        size = _lut_size(tag)
        return kind + bytes(4) + tag[8:11] + bytes(1) + tag[12:size]
    size = {b"XYZ ": 20, b"sf32": 44, b"cicp": 12}.get(kind, 0) or _curve_size(tag)
    if kind == b"para":
        return kind + bytes(4) + tag[8:10] + bytes(2) + tag[12:size]
    return kind + bytes(4) + tag[8:size]


def _curve_size(tag: bytes) -> int:
    if tag[:4] == b"curv":
        return 12 + 2 * int(struct.unpack_from(">I", tag, 8)[0])
    if tag[:4] == b"para":
        return 12 + 4 * _PARAMETERS[struct.unpack_from(">H", tag, 8)[0]]
    return 0


def _lut_size(tag: bytes) -> int:
    """Return the size of a table of 8 or 16 bits: a matrix, input curves, a grid, output curves."""
    inputs, outputs, grid = tag[8:11]
    if tag[:4] == b"mft1":
        return 48 + 256 * (inputs + outputs) + int(grid**inputs) * outputs
    entries = struct.unpack_from(">2H", tag, 48)
    return int(
        52 + 2 * (entries[0] * inputs + grid**inputs * outputs + entries[1] * outputs)
    )


def _clean_table(tag: bytes) -> bytes:
    """Write a table of version 4 anew: its parts may be anywhere in the tag, and are written one after the other."""
    inputs, outputs = tag[8:10]
    starts = struct.unpack_from(">5I", tag, 12)
    offsets = []
    body = b""
    for start, part in zip(starts, ("B", "matrix", "M", "grid", "A"), strict=True):
        offsets.append(32 + len(body) if start else 0)
        if part == "matrix" and start:
            body += tag[start : start + 48]
        elif part == "grid" and start:
            points = math.prod(tag[start : start + inputs]) * outputs
            width = 2 if tag[start + 16] == 2 else 1
            values = tag[start + 20 : start + 20 + points * width]
            grid = (
                tag[start : start + inputs]
                + bytes(16 - inputs)
                + bytes((width,))
                + bytes(3)
                + values
            )
            body += grid + bytes(-len(grid) % 4)
        elif start:
            body += _clean_curves(tag[start:], inputs if part == "A" else outputs)
    return (
        b"mAB " + bytes(4) + tag[8:10] + bytes(2) + struct.pack(">5I", *offsets) + body
    )


def _clean_curves(curves: bytes, count: int) -> bytes:
    clean = b""
    at = 0
    for _ in range(count):
        size = _curve_size(curves[at : at + 12])
        clean += _clean_tag(curves[at : at + size]) + bytes(-size % 4)
        at += size + (-size % 4)
    return clean
