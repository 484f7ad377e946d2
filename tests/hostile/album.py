"""Pictures that mean harm, or only look as if they did."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from PIL import Image, ImageCms

SIDE = 96
"""Large enough to be measured."""


def plain() -> Image.Image:
    """Few colours, so that a palette holds them all."""
    image = Image.new("RGB", (SIDE, SIDE), (90, 140, 60))
    image.paste((200, 40, 30), (20, 20, 60, 60))
    image.paste((20, 60, 200), (50, 40, 85, 80))
    return image


def encoded(image: Image.Image, codec: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, codec, **options)
    return out.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    return (
        struct.pack(">I", len(body))
        + kind
        + body
        + struct.pack(">I", zlib.crc32(kind + body))
    )


def png(
    width: int,
    height: int,
    packed: bytes,
    *extra: bytes,
    bits: int = 8,
    colour: int = 2,
) -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n"
        + head
        + b"".join(extra)
        + chunk(b"IDAT", packed)
        + chunk(b"IEND", b"")
    )


def tiff(*tags: tuple[int, int, int, int], then: int = 0, body: bytes = b"") -> bytes:
    """One directory of (tag, type, count, value), and where it says that the next one lies."""
    entries = b"".join(struct.pack("<HHII", *tag) for tag in sorted(tags))
    return (
        b"II*\0"
        + struct.pack("<IH", 8, len(tags))
        + entries
        + struct.pack("<I", then)
        + body
    )


def grey_tiff(width: int, height: int, strip: int = 4096, then: int = 0) -> bytes:
    tags = ((256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1),
            (273, 4, 1, 200), (278, 4, 1, height), (279, 4, 1, strip))  # fmt: skip
    return tiff(*tags, then=then).ljust(200, b"\0") + b"\x80" * strip


def sixteen_bits() -> bytes:
    rows = [b"\0" + bytes(v for p in row for v in (p, p)) for row in _rows(plain())]
    return png(SIDE, SIDE, zlib.compress(b"".join(rows)), bits=16)


def _rows(image: Image.Image) -> list[bytes]:
    data = image.tobytes()
    width = image.width * 3
    return [data[at : at + width] for at in range(0, len(data), width)]


def text_bomb(kind: bytes, head: bytes) -> bytes:
    """A sound picture with a chunk of half a megabyte that unpacks to half a gigabyte."""
    packer = zlib.compressobj(9)
    bomb = b"".join(packer.compress(b"\0" * 2**20) for _ in range(512)) + packer.flush()
    packed = zlib.compress(b"".join(b"\0" + row for row in _rows(plain())))
    return png(SIDE, SIDE, packed, chunk(kind, head + bomb))


def orientation(value: int) -> bytes:
    tags = Image.Exif()
    tags[274] = value
    return tags.tobytes()


def endless_exif() -> bytes:
    """A directory of EXIF whose next one is itself."""
    return b"Exif\0\0" + tiff((274, 3, 1, 1), (34665, 4, 1, 8), then=8)


def srgb() -> bytes:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


FRAMES = [plain().quantize(16).rotate(90 * turn) for turn in range(4)]

SAME: Mapping[str, Callable[[], bytes]] = {
    "alpha that hides nothing": lambda: encoded(plain().convert("RGBA"), "PNG"),
    "palette": lambda: encoded(plain().quantize(16), "PNG"),
    "16 bits": sixteen_bits,
    "bmp": lambda: encoded(plain(), "BMP"),
    "tiff": lambda: encoded(plain(), "TIFF", compression="tiff_lzw"),
    "webp": lambda: encoded(plain(), "WEBP", lossless=True, exact=True),
    "zeros after the end": lambda: encoded(plain(), "PNG") + b"\0" * 4096,
    "exif that turns by 9": lambda: encoded(plain(), "PNG", exif=orientation(9)),
    "exif without an end": lambda: encoded(plain(), "PNG", exif=endless_exif()),
    "profile of zeros": lambda: encoded(plain(), "PNG", icc_profile=b"\0" * 4096),
    "profile cut off": lambda: encoded(plain(), "PNG", icc_profile=srgb()[:100]),
    "profile of its own name": lambda: encoded(plain(), "PNG", icc_profile=srgb()),
}
"""The plain picture in another dress: whoever judges it must see the same pixels."""

SEEN: Mapping[str, Callable[[], bytes]] = {
    "one pixel": lambda: encoded(Image.new("RGB", (1, 1), "red"), "PNG"),
    "65,535 wide": lambda: encoded(Image.new("RGB", (65_535, 1), "red"), "PNG"),
    "65,535 high": lambda: encoded(Image.new("RGB", (1, 65_535), "red"), "BMP"),
    "cmyk": lambda: encoded(plain().convert("CMYK"), "JPEG", quality=95),
    "clear all over": lambda: encoded(Image.new("RGBA", (SIDE, SIDE), (9, 9, 9, 0)), "PNG"),
    "gif of a thousand frames": lambda: encoded(FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:] * 333),
    "lying on its side": lambda: encoded(plain(), "JPEG", exif=orientation(6), quality=95),
}  # fmt: skip
"""Odd, and pictures all the same."""

BAD: Mapping[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "svg": lambda: b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)" width="9" height="9"></svg>',
    "html": lambda: b"<html><script>alert(1)</script>",
    "png bomb": lambda: png(60_000, 60_000, zlib.compress(b"\0" * 10**7, 9), bits=1, colour=0),
    "png without a width": lambda: png(0, 96, zlib.compress(b"\0" * 96)),
    "png with 2**31 rows": lambda: png(1, 2**31 - 1, zlib.compress(b"\0" * 10**6)),
    "png text bomb": lambda: text_bomb(b"zTXt", b"a\0\0"),
    "png profile bomb": lambda: text_bomb(b"iCCP", b"a\0\0"),
    "png without its pixels": lambda: png(SIDE, SIDE, zlib.compress(b"\0" * 50)),
    "webp bomb": lambda: _riff(b"VP8L", b"\x2f" + struct.pack("<I", 16_382 | 16_382 << 14) + b"\0" * 64),
    "webp canvas bomb": lambda: _riff(b"VP8X", b"\x02\0\0\0" + (2**24 - 1).to_bytes(3, "little") * 2),
    "tiff bomb": lambda: grey_tiff(60_000, 60_000),
    "tiff of itself": lambda: grey_tiff(60_000, 60_000, then=8),
    "tiff that promises 16 gigabytes": lambda: tiff((256, 4, 2**32 - 1, 8), (257, 4, 1, 9), (273, 4, 2**32 - 1, 8)),
    "gif bomb": lambda: _gif(65_535, 65_535),
    "bmp bomb": lambda: b"BM" + struct.pack("<IIIIiiHHIIiiII", 54, 0, 54, 40, 60_000, 60_000, 1, 24, 0, 0, 0, 0, 0, 0),
    "jpeg cut off": lambda: encoded(plain(), "JPEG")[:-200],
    "png cut off": lambda: encoded(plain(), "PNG")[:-40],
    "webp cut off": lambda: encoded(plain(), "WEBP")[:-40],
    "gif cut off": lambda: encoded(plain(), "GIF")[:-40],
    "zip after the end": lambda: encoded(plain(), "PNG") + b"PK\3\4" + b"evil" * 99,
    "script after the end": lambda: encoded(plain(), "GIF") + b"<script>alert(1)</script>",
    "jpeg that says it is png": lambda: b"\x89PNG\r\n\x1a\n" + encoded(plain(), "JPEG"),
    "float": lambda: encoded(Image.new("F", (SIDE, SIDE), 0.5), "TIFF"),
}  # fmt: skip
"""No pictures: every one is refused, with its name and the reason."""


def _riff(kind: bytes, body: bytes) -> bytes:
    inner = b"WEBP" + kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(inner)) + inner


def _gif(width: int, height: int) -> bytes:
    screen = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + b"\0" * 6
    return (
        screen
        + b","
        + struct.pack("<HHHHB", 0, 0, width, height, 0)
        + b"\x08\x04\0\0\0\0\0\0;"
    )


def no_files(folder: Path) -> dict[str, Path]:
    """What lies in a folder and is no file of it; a manifest must not lead to any of them."""
    places = {
        name: folder / f"{name}.png"
        for name in ("pipe", "folder", "device", "elsewhere", "round", "proc")
    }
    os.mkfifo(places["pipe"])
    places["folder"].mkdir()
    places["device"].symlink_to("/dev/zero")
    places["proc"].symlink_to("/proc/self/environ")
    outside = folder.parent / "outside.png"
    outside.write_bytes(encoded(plain(), "PNG"))
    places["elsewhere"].symlink_to(outside)
    places["round"].symlink_to(places["round"].name)
    return places
