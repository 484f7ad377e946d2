"""Pictures as raters get them: the same pixels, without what a file says about itself.

Editors and models sign their work in EXIF, XMP, comments and colour profiles. Those are cut out of the container, since
encoding again would be an edit; what is left of a profile is what colours are computed from.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator

from editjudge.errors import ImageError
from editjudge.media.image import ImageLimits, prepare, probe

_LIMITS = ImageLimits(formats=frozenset({"jpeg", "png", "webp"}))
"""What can be stripped; anything else that browsers show is made a PNG."""
_PROFILE = 2**24
"""Bytes of a colour profile that are unpacked; the largest ones of printers have two million."""


def blind(data: bytes) -> tuple[bytes, str]:
    """The picture without metadata, and its media type."""
    prepared = prepare(data, probe(data), _LIMITS)
    strip = {"image/jpeg": _jpeg, "image/png": _png, "image/webp": _webp}[prepared.media_type]
    try:
        return strip(prepared.data), prepared.media_type
    except (struct.error, IndexError, zlib.error, ValueError):
        raise ImageError("the picture cannot be read") from None


# --- JPEG -----------------------------------------------------------------------------------------------------

# Inside compressed data FF is followed by 00 or a restart mark.
_MARK = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")


def _jpeg(data: bytes) -> bytes:
    out, profile, at, scanning = [data[:2]], list[bytes](), 2, False
    icc_at = len(out)
    while (match := _MARK.search(data, at)) is not None:
        if scanning:
            out.append(data[at : match.start()])
        code, at = data[match.start() + 1], match.end()
        if code == 0xD9:
            out.append(b"\xff\xd9")  # and nothing of what cameras append
            break
        (length,) = struct.unpack_from(">H", data, at)
        payload, at = data[at + 2 : at + length], at + length
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
    kept = clean_profile(b"".join(profile))
    pieces = [kept[n : n + 65519] for n in range(0, len(kept), 65519)]
    marks = (b"ICC_PROFILE\0" + bytes((n, len(pieces))) + piece for n, piece in enumerate(pieces, 1))
    out[icc_at:icc_at] = [_segment(0xE2, mark) for mark in marks]
    return b"".join(out)


def _segment(code: int, payload: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, code, len(payload) + 2) + payload


# --- PNG and WebP ---------------------------------------------------------------------------------------------

_PNG_KEPT = {b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"sBIT", b"cICP"}


def _png(data: bytes) -> bytes:
    return data[:8] + b"".join(_png_chunks(data))


def _png_chunks(data: bytes) -> Iterator[bytes]:
    at, kind = 8, b""
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", data, at)
        payload, at = data[at + 8 : at + 8 + length], at + 12 + length
        if kind == b"iCCP":
            profile = clean_profile(zlib.decompressobj().decompress(payload.partition(b"\0")[2][1:], _PROFILE))
            payload = b"icc\0\0" + zlib.compress(profile)
            if not profile:
                continue
        elif kind not in _PNG_KEPT:
            continue
        yield struct.pack(">I", len(payload)) + kind + payload + struct.pack(">I", zlib.crc32(kind + payload))


_WEBP_KEPT = {b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM", b"ANMF", b"ICCP"}
_EXIF_AND_XMP = 0x0C


def _webp(data: bytes) -> bytes:
    end, at, out = 8 + int.from_bytes(data[4:8], "little"), 12, b""
    while at + 8 <= end:
        kind, length = struct.unpack_from("<4sI", data, at)
        payload, at = data[at + 8 : at + 8 + length], at + 8 + length + (length & 1)
        if kind == b"VP8X":
            payload = bytes((payload[0] & ~_EXIF_AND_XMP,)) + payload[1:]
        elif kind == b"ICCP":
            payload = clean_profile(payload)
        if kind in _WEBP_KEPT and payload:
            out += kind + struct.pack("<I", len(payload)) + payload + b"\0" * (len(payload) & 1)
    return b"RIFF" + struct.pack("<I", len(out) + 4) + b"WEBP" + out


# --- colour profiles ------------------------------------------------------------------------------------------

_TAGS = {
    *(b"wtpt", b"bkpt", b"chad", b"rXYZ", b"gXYZ", b"bXYZ", b"rTRC", b"gTRC", b"bTRC", b"kTRC", b"gamt", b"cicp"),
    *(b"A2B0", b"A2B1", b"A2B2", b"B2A0", b"B2A1", b"B2A2", b"D2B0", b"D2B1", b"D2B2", b"B2D0", b"B2D1", b"B2D2"),
}
"""What colours are computed from; the others are names, texts and measurements."""
_NAMELESS = b"desc" + bytes(4) + struct.pack(">I", 1) + bytes(1 + 78)


def clean_profile(profile: bytes) -> bytes:
    """An ICC profile without the names of its maker, device and program; nothing where it is none."""
    if len(profile) < 132 or profile[36:40] != b"acsp":
        return b""
    tags = {b"desc": _NAMELESS}
    for n in range(min(struct.unpack_from(">I", profile, 128)[0], 100)):
        name, start, length = struct.unpack_from(">4sII", profile, 132 + 12 * n)
        if name in _TAGS:
            tags[name] = profile[start : start + length]
    table, body, at = b"", b"", 132 + 12 * len(tags)
    for name, content in tags.items():
        table += struct.pack(">4sII", name, at + len(body), len(content))
        body += content + bytes(-len(content) % 4)
    header = bytearray(profile[:128])
    header[0:4] = struct.pack(">I", at + len(body))
    header[4:8] = bytes(4)  # the program that computes colours
    header[24:36] = struct.pack(">6H", 2000, 1, 1, 0, 0, 0)
    header[48:56] = bytes(8)  # device
    header[80:100] = bytes(20)  # maker, and a digest
    return bytes(header) + struct.pack(">I", len(tags)) + table + body
