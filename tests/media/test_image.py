"""Pictures: what is refused, what a header says, what is done to them, and that it is done once."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import io
import os
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms, ImageFile, ImageOps, WebPImagePlugin

from editjudge.errors import ImageError
from editjudge.media import image as images
from editjudge.media.cache import (
    DigestCache,
    FileState,
    ImageCache,
    ImageReader,
    KnownImage,
    LoadedImage,
)
from editjudge.media.image import (
    AS_IS,
    EncodedImage,
    ImageLimits,
    decode,
    plan,
    prepare,
    probe,
)
from editjudge.media.source import ImageBounds, read, read_file
from editjudge.store import Store
from tests.faults import raises

UNLIMITED = ImageLimits()


def gradient(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """No two neighbours are equal, so that turning, cutting and scaling show."""
    image = Image.new("RGB", (width, height))
    image.putdata(
        [
            (x * 7 % 256, y * 11 % 256, (x + y) * 5 % 256)
            for y in range(height)
            for x in range(width)
        ]
    )
    return image if mode == "RGB" else image.convert(mode)


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
    width: int, height: int, bits: int, colour: int, rows: bytes, *extra: bytes
) -> bytes:
    """A PNG by hand, for what Pillow does not write."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n"
        + head
        + b"".join(extra)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def exif(orientation: int) -> bytes:
    tags = Image.Exif()
    tags[274] = orientation
    return tags.tobytes()


def other_profile() -> bytes:
    """sRGB with red and green swapped, under another name."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    profile = profile.replace("sRGB".encode("utf-16-be"), "test".encode("utf-16-be"))
    return (
        profile.replace(b"rXYZ", b"?XYZ")
        .replace(b"gXYZ", b"rXYZ")
        .replace(b"?XYZ", b"gXYZ")
    )


NOISE = Image.frombytes(
    "RGB", (64, 64), hashlib.shake_256(b"noise").digest(64 * 64 * 3)
)
FRAMES = [gradient(12, 9), gradient(12, 9).rotate(180)]
SAMPLES: dict[str, Callable[[int, int], bytes]] = {
    "jpeg": lambda w, h: encoded(gradient(w, h), "JPEG"),
    "jpeg gray": lambda w, h: encoded(gradient(w, h, "L"), "JPEG"),
    "jpeg cmyk": lambda w, h: encoded(gradient(w, h, "CMYK"), "JPEG"),
    "jpeg progressive": lambda w, h: encoded(
        gradient(w, h), "JPEG", progressive=True, quality=95, subsampling=0
    ),
    "jpeg profile": lambda w, h: encoded(
        gradient(w, h), "JPEG", icc_profile=other_profile()
    ),
    "jpeg turned": lambda w, h: encoded(gradient(w, h), "JPEG", exif=exif(6)),
    "png": lambda w, h: encoded(gradient(w, h), "PNG"),
    "png gray": lambda w, h: encoded(gradient(w, h, "L"), "PNG"),
    "png one bit": lambda w, h: encoded(gradient(w, h, "1"), "PNG"),
    "png 16 bits": lambda w, h: encoded(Image.new("I;16", (w, h), 40000), "PNG"),
    "png palette": lambda w, h: encoded(gradient(w, h, "P"), "PNG"),
    "png clear palette": lambda w, h: encoded(
        gradient(w, h, "P"), "PNG", transparency=3
    ),
    "png gray alpha": lambda w, h: encoded(gradient(w, h, "LA"), "PNG"),
    "png alpha": lambda w, h: encoded(gradient(w, h, "RGBA"), "PNG"),
    "png profile": lambda w, h: encoded(
        gradient(w, h), "PNG", icc_profile=other_profile()
    ),
    "png turned": lambda w, h: encoded(gradient(w, h), "PNG", exif=exif(8)),
    "webp": lambda w, h: encoded(gradient(w, h), "WEBP"),
    "webp alpha": lambda w, h: encoded(gradient(w, h, "RGBA"), "WEBP"),
    "webp lossless": lambda w, h: encoded(gradient(w, h), "WEBP", lossless=True),
    "webp lossless alpha": lambda w, h: encoded(
        Image.new("RGBA", (w, h), (9, 8, 7, 6)), "WEBP", lossless=True
    ),
    "webp turned": lambda w, h: encoded(
        gradient(w, h), "WEBP", exif=exif(3), icc_profile=other_profile()
    ),
    "gif": lambda w, h: encoded(gradient(w, h, "P"), "GIF"),
    "gif clear": lambda w, h: encoded(gradient(w, h, "P"), "GIF", transparency=5),
    "bmp": lambda w, h: encoded(gradient(w, h), "BMP"),
    "bmp gray": lambda w, h: encoded(gradient(w, h, "L"), "BMP"),
    "bmp palette": lambda w, h: encoded(gradient(w, h, "P"), "BMP"),
    "bmp one bit": lambda w, h: encoded(gradient(w, h, "1"), "BMP"),
    "bmp alpha": lambda w, h: encoded(gradient(w, h, "RGBA"), "BMP"),
    "tiff": lambda w, h: encoded(gradient(w, h), "TIFF"),
    "tiff turned": lambda w, h: encoded(gradient(w, h), "TIFF", tiffinfo={274: 6}),
    "tiff alpha": lambda w, h: encoded(
        gradient(w, h, "RGBA"), "TIFF", compression="tiff_lzw"
    ),
    "tiff cmyk": lambda w, h: encoded(gradient(w, h, "CMYK"), "TIFF"),
    "tiff 16 bits": lambda w, h: encoded(Image.new("I;16", (w, h), 40000), "TIFF"),
}
ANIMATED = {
    "gif animated": encoded(FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:]),
    "webp animated": encoded(
        FRAMES[0], "WEBP", save_all=True, append_images=FRAMES[1:]
    ),
    "webp animated lossless": encoded(
        FRAMES[0], "WEBP", save_all=True, append_images=FRAMES[1:], lossless=True
    ),
    "png animated": encoded(FRAMES[0], "PNG", save_all=True, append_images=FRAMES[1:]),
    "tiff pages": encoded(FRAMES[0], "TIFF", save_all=True, append_images=FRAMES[1:]),
}
sizes = st.tuples(st.integers(1, 40), st.integers(1, 40))
samples = st.one_of(
    st.builds(
        lambda kind, size: SAMPLES[kind](*size), st.sampled_from(sorted(SAMPLES)), sizes
    ),
    st.sampled_from(sorted(ANIMATED.values())),
)
limits = st.builds(
    ImageLimits,
    formats=st.sampled_from(
        [frozenset(f) for f in (["jpeg", "png", "webp", "gif"], ["jpeg"], ["png"])]
    ),
    max_side=st.none() | st.integers(1, 50),
    max_bytes=st.none() | st.integers(1500, 6000),
)


def by_hand(data: bytes) -> dict[str, Any]:
    info = probe(data)
    return {
        "format": info.format,
        "size": (info.width, info.height),
        "alpha": info.has_alpha,
        "orientation": info.orientation,
        "icc": info.has_icc,
        "animated": info.animated,
        "cmyk": info.mode == "cmyk",
        "deep": info.bits > 8,
    }


def by_pillow(data: bytes) -> dict[str, Any]:
    with Image.open(io.BytesIO(data)) as image:
        size = image.size
        orientation = image.getexif().get(274, 1)
        if image.format == "TIFF" and orientation >= 5:  # Pillow has turned it already
            size = size[::-1]
        return {
            "format": str(image.format).lower(),
            "size": size,
            "alpha": image.has_transparency_data,
            "orientation": orientation,
            "icc": bool(image.info.get("icc_profile")),
            "animated": bool(getattr(image, "is_animated", False)),
            "cmyk": image.mode == "CMYK",
            "deep": image.mode.startswith("I"),
        }


# --- what a header says ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(SAMPLES))
@settings(max_examples=8, deadline=None)
@given(size=sizes)
def test_a_header_read_by_hand_says_what_pillow_says(
    kind: str, size: tuple[int, int]
) -> None:
    data = SAMPLES[kind](*size)
    assert by_hand(data) == by_pillow(data)


@pytest.mark.parametrize("kind", sorted(ANIMATED))
def test_several_frames_or_pages_are_seen(kind: str) -> None:
    assert by_hand(ANIMATED[kind]) == by_pillow(ANIMATED[kind])


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("codec", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_every_orientation_is_turned_as_pillow_turns_it(
    codec: str, orientation: int
) -> None:
    options: dict[str, Any] = (
        {"tiffinfo": {274: orientation}}
        if codec == "TIFF"
        else {"exif": exif(orientation)}
    )
    data = encoded(gradient(7, 4), codec, **options)
    with Image.open(io.BytesIO(data)) as image:
        expected = ImageOps.exif_transpose(image).convert("RGB")
    info = probe(data)
    assert (info.orientation, info.display_size) == (orientation, expected.size)
    assert decode(data).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"Exif\0\0",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        b"Exif\0\0MM\0*\0\0\0\x08\0\x09\x01",
    ],
)
def test_damaged_exif_means_that_nobody_turned_the_picture(damage: bytes) -> None:
    data = encoded(gradient(5, 3), "JPEG")
    marked = (
        data[:2] + b"\xff\xe1" + struct.pack(">H", len(damage) + 2) + damage + data[2:]
    )
    assert probe(marked).orientation == 1
    assert decode(marked).size == (5, 3)


def test_a_first_frame_beyond_the_screen_of_a_gif_makes_it_larger() -> None:
    data = bytearray(encoded(gradient(8, 6, "P"), "GIF"))
    data[6:10] = struct.pack("<HH", 2, 2)
    assert by_hand(bytes(data)) == by_pillow(bytes(data))


def test_the_name_of_a_file_does_not_count_but_its_content_does(tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    path.write_bytes(encoded(gradient(4, 4), "JPEG"))
    assert probe(read(path)).format == "jpeg"


def test_heic_is_read_where_its_extra_is_installed() -> None:
    heif = pytest.importorskip("pillow_heif")
    out = io.BytesIO()
    heif.from_pillow(gradient(64, 48)).save(out, quality=90)
    info = probe(out.getvalue())
    assert (info.format, info.display_size, info.lossless) == ("heic", (64, 48), False)
    assert decode(out.getvalue()).size == (64, 48)
    assert prepare(out.getvalue(), info, UNLIMITED).media_type == "image/jpeg"


def test_heic_without_its_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with raises(ImageError, "missing_extra", "a.heic", "editjudge[heic]"):
        probe(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", name="a.heic")


def test_importing_the_module_imports_no_pillow() -> None:
    script = "import sys, editjudge.media.image, editjudge.manifest; print(sorted(m for m in sys.modules if 'PIL' in m))"
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


# --- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "code", "named"),
    [
        (b"", "not_an_image", "empty"),
        (b"%PDF-1.7 ...", "not_an_image", "PDF"),
        (b'<?xml version="1.0"?>\n<svg xmlns="...">', "not_an_image", "SVG"),
        (b"<!DOCTYPE html><html>", "not_an_image", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "not_an_image", "Git LFS"),
        (b"\0\0\0\x1cftypavif", "not_an_image", "avif"),
        (b"just text", "not_an_image", "b'just tex'"),
        (b"\x89PNG\r\n\x1a\n", "truncated", "PNG"),
        (b"\xff\xd8\xff\xd9", "truncated", "JPEG"),
        (b"BM" + bytes(60), "not_decodable", "BMP"),
        (b"RIFF\x04\0\0\0WEBP", "not_an_image", "WebP"),
        (b"GIF89a\1\0\1\0\0\0\0;", "not_decodable", "GIF"),
        (png(0, 5, 8, 2, b""), "no_pixels", "0 x 5"),
        (png(5, 5, 8, 7, b""), "not_an_image", "type 7"),
    ],
)
def test_what_is_no_picture_is_refused_by_name_with_the_reason(
    data: bytes, code: str, named: str
) -> None:
    with raises(ImageError, code, "x.png: ", named):
        probe(data, name="x.png")


def jpeg_that_claims(width: int, height: int) -> bytes:
    data = bytearray(encoded(gradient(8, 8), "JPEG"))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", height, width)
    return bytes(data)


BOMBS = {
    "png": png(60_000, 60_000, 8, 2, b""),
    "jpeg": jpeg_that_claims(65_500, 65_500),
    "gif": encoded(gradient(4, 4, "P"), "GIF").replace(
        b"GIF87a\4\0\4\0", b"GIF87a\xff\xff\xff\xff"
    ),
    # A pixel on a canvas that is filled with a transparent colour.
    "clear gif": b"GIF89a\xff\xff\xff\xff\x80\0\0"
    + bytes(6)
    + b"!\xf9\4\1\0\0\1\0,\0\0\0\0\1\0\1\0\0\2\2D\1\0;",
    "webp": b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + b"\xff\xff\x0f" * 2,
    "wide png": png(65_536, 1, 8, 2, b""),
}


@pytest.mark.parametrize("kind", sorted(BOMBS))
def test_a_picture_that_would_fill_memory_is_refused_before_it_is_decoded(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[str] = []
    for file in (ImageFile.ImageFile, WebPImagePlugin.WebPImageFile):
        monkeypatch.setattr(file, "load", lambda self: decoded.append(self.format))
    for look in (probe, decode):
        with raises(ImageError, "too_many_pixels", "bomb"):
            look(BOMBS[kind], name="bomb")
    assert decoded == []


def test_a_bmp_that_claims_more_pixels_than_it_has_is_refused() -> None:
    data = bytearray(encoded(gradient(4, 4), "BMP"))
    data[18:26] = struct.pack("<ii", 600, 600)
    with raises(ImageError, "not_decodable", "truncated"):
        probe(bytes(data))


@pytest.mark.parametrize(
    "kind", ["jpeg", "jpeg progressive", "png", "webp", "webp alpha", "gif", "bmp"]
)
@settings(max_examples=25, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_never_half_a_picture(kind: str, share: float) -> None:
    data = SAMPLES[kind](24, 18)
    with pytest.raises(ImageError):
        decode(data[: int(len(data) * share)])


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "gif"])
def test_something_else_after_the_end_is_refused_but_zeros_are_not(kind: str) -> None:
    data = SAMPLES[kind](9, 9)
    with raises(ImageError, "other_data", "11 bytes"):
        probe(data + b"hello world")
    assert probe(data + bytes(600)).width == 9


def test_what_phones_append_to_a_photograph_is_no_garbage() -> None:
    data = encoded(gradient(9, 9), "JPEG")
    assert probe(data + data).width == 9
    assert probe(data + b"\0\0\0\x18ftypmp42" + b"clip" * 9).width == 9
    assert probe(data + b"SEFH" + b"x" * 20 + b"SEFT").width == 9


@settings(max_examples=300, deadline=None)
@given(
    data=samples,
    flips=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=6
    ),
)
def test_damage_anywhere_is_a_picture_or_an_image_error_and_nothing_else(
    data: bytes, flips: list[tuple[float, int]]
) -> None:
    damaged = bytearray(data)
    for where, value in flips:
        damaged[int(where * len(data))] = value
    try:
        image = decode(bytes(damaged), bounds=ImageBounds(max_pixels=1_000_000))
    except ImageError:
        return
    assert image.mode == "RGB"


@settings(max_examples=200, deadline=None)
@given(
    start=st.sampled_from(
        [
            b"\xff\xd8\xff",
            b"\x89PNG\r\n\x1a\n",
            b"GIF89a",
            b"BM",
            b"RIFF\xff\0\0\0WEBP",
            b"II*\0",
            b"MM\0*",
        ]
    ),
    rest=st.binary(max_size=300),
)
def test_no_bytes_make_probing_fail_in_another_way(start: bytes, rest: bytes) -> None:
    with contextlib.suppress(ImageError):
        probe(start + rest)


def test_a_png_of_endless_tiny_chunks_is_refused_soon() -> None:
    data = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
        + bytes(12) * 200_000
    )
    with raises(ImageError, "too_complex", "100,000"):
        probe(data)


def test_a_file_larger_than_the_bound_is_refused_before_it_is_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "large.png"
    with path.open("wb") as file:
        file.truncate(65 * 2**20)
    with raises(ImageError, "too_many_bytes", "68,157,440", "67,108,864"):
        read(path)
    with raises(ImageError, "too_many_bytes", "10"):
        probe(bytes(11), bounds=ImageBounds(max_bytes=10))


# --- where it is read from ------------------------------------------------------------------------------------


def test_devices_pipes_and_folders_are_refused_without_waiting(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.png"
    os.mkfifo(pipe)
    for path, code in (
        (Path("/dev/zero"), "not_a_regular_file"),
        (pipe, "not_a_regular_file"),
        (tmp_path, "is_a_folder"),
    ):
        with raises(ImageError, code):
            read(path)
        with raises(ImageError, code):
            DigestCache().of(path)


def test_a_link_out_of_the_root_is_refused_and_one_inside_it_is_not(
    tmp_path: Path,
) -> None:
    root = tmp_path / "set"
    root.mkdir()
    (tmp_path / "secret.png").write_bytes(b"secret")
    (root / "a.png").write_bytes(b"picture")
    (root / "inside.png").symlink_to("a.png")
    (root / "outside.png").symlink_to("../secret.png")
    (root / "up").symlink_to("..")
    assert read(root / "inside.png", root=root) == b"picture"
    for leaves in ("outside.png", "../secret.png", "up/secret.png"):
        with raises(ImageError, "outside_folder"):
            read(root / leaves, root=root)
        assert read(root / leaves) == b"secret"


def test_a_name_with_a_newline_stays_on_one_line_of_the_message(tmp_path: Path) -> None:
    with pytest.raises(ImageError) as caught:
        read(tmp_path / "a\nb.png")
    assert "\n" not in str(caught.value) and "a\\nb.png" in str(caught.value)


def test_a_path_with_a_zero_byte_is_an_image_error() -> None:
    with raises(ImageError, "unreadable_file"):
        read("a\0b.png")
    with raises(ImageError, "unreadable_file"):
        DigestCache().of(Path("a\0b.png"))


def test_data_urls_are_read_by_the_letter() -> None:
    data = encoded(gradient(3, 3), "PNG")
    assert read("data:image/png;base64," + base64.b64encode(data).decode()) == data
    assert read("data:,%89PNG") == b"\x89PNG"
    for broken in (
        "data:image/png;base64",
        "data:image/png;base64,AAA",
        "data:;base64,AA*A",
        "data:;base64,AA\u00e4A",
    ):
        with pytest.raises(ImageError):
            read(broken)
    with raises(ImageError, "too_many_bytes", "8"):
        read("data:;base64," + "AAAA" * 20, bounds=ImageBounds(max_bytes=8))


def test_an_address_is_fetched_only_by_whoever_may(tmp_path: Path) -> None:
    with raises(ImageError, "address_not_fetched"):
        read("https://example.org/a.png")
    assert (
        read("https://example.org/a.png", fetch=lambda url: url.encode())
        == b"https://example.org/a.png"
    )


# --- decoding -------------------------------------------------------------------------------------------------


def test_sixteen_bits_become_eight_by_scaling_and_not_by_clipping() -> None:
    image = Image.new("I;16", (5, 1))
    image.putdata([0, 128, 257, 32768, 65535])
    for codec in ("PNG", "TIFF"):
        assert list(decode(encoded(image, codec)).getchannel("R").tobytes()) == [
            0,
            0,
            1,
            128,
            255,
        ]


def test_the_clear_colour_of_sixteen_bit_pictures_is_found() -> None:
    gray = png(
        2, 1, 16, 0, b"\0" + struct.pack(">HH", 0x8000, 0), chunk(b"tRNS", b"\x80\0")
    )
    colour = png(
        2,
        1,
        16,
        2,
        b"\0" + struct.pack(">HHHHHH", *[0x8000] * 3, 0, 0, 0),
        chunk(b"tRNS", b"\x80\0" * 3),
    )
    for data in (gray, colour):
        assert decode(data).tobytes() == b"\xff\xff\xff\0\0\0"


def test_alpha_goes_over_white() -> None:
    image = Image.new("RGBA", (2, 1))
    image.putdata([(200, 0, 0, 0), (0, 0, 0, 128)])
    assert list(decode(encoded(image, "PNG")).tobytes()) == [
        255,
        255,
        255,
        127,
        127,
        127,
    ]


def test_a_palette_with_transparency_goes_over_white() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putdata([0, 1])
    for codec in ("PNG", "GIF"):
        assert list(decode(encoded(image, codec, transparency=0)).tobytes()) == [
            255,
            255,
            255,
            0,
            0,
            255,
        ]


def test_a_profile_is_turned_into_srgb() -> None:
    red = Image.new("RGB", (1, 1), (255, 0, 0))
    seen = decode(encoded(red, "PNG", icc_profile=other_profile())).getpixel((0, 0))
    assert seen == (0, 255, 0)
    named_srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    assert decode(encoded(red, "PNG", icc_profile=named_srgb)).getpixel((0, 0)) == (
        255,
        0,
        0,
    )


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_a_useless_profile_is_ignored_as_viewers_do(mode: str) -> None:
    for profile in (b"nonsense", other_profile() if mode != "RGB" else b"x" * 200):
        data = encoded(gradient(6, 6, mode), "JPEG", icc_profile=profile)
        assert (
            decode(data).tobytes()
            == decode(encoded(gradient(6, 6, mode), "JPEG")).tobytes()
        )


def test_cmyk_is_seen_as_colours() -> None:
    cyan = Image.new("CMYK", (8, 8), (255, 0, 0, 0))
    red, green, blue = decode(encoded(cyan, "TIFF")).getpixel((0, 0))  # type: ignore[misc]
    assert red < 10 and green > 200 and blue > 200


@pytest.mark.parametrize("kind", sorted(ANIMATED))
def test_the_first_frame_is_the_picture(kind: str) -> None:
    first = decode(ANIMATED[kind])
    assert first.size == (12, 9)
    expected = FRAMES[0].tobytes()
    assert (
        sum(abs(a - b) for a, b in zip(first.tobytes(), expected, strict=True))
        / len(expected)
        < 40
    )


def test_float_pictures_have_no_white_and_are_refused() -> None:
    with raises(ImageError, "unknown_range", "32"):
        decode(encoded(Image.new("F", (3, 3), 0.5), "TIFF"))


@pytest.mark.parametrize("size", [(1, 1), (20_000, 2), (2, 20_000)])
def test_the_smallest_and_the_thinnest_pictures_work(size: tuple[int, int]) -> None:
    data = encoded(Image.new("RGB", size, "red"), "BMP")
    prepared = prepare(data, probe(data), ImageLimits(max_side=2048))
    assert decode(prepared.data).size == (prepared.width, prepared.height)
    assert (
        min(prepared.width, prepared.height) >= 1
        and max(prepared.width, prepared.height) <= 2048
    )


def test_decoding_leaves_no_trace_in_the_process() -> None:
    import warnings

    before = list(warnings.filters), Image.MAX_IMAGE_PIXELS
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(decode, [make(20, 20) for make in SAMPLES.values()] * 3))
    assert (list(warnings.filters), Image.MAX_IMAGE_PIXELS) == before


# --- preparing ------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(data=samples, limits=limits)
def test_the_plan_is_what_was_done_and_the_same_input_gives_the_same_bytes(
    data: bytes, limits: ImageLimits
) -> None:
    info = probe(data)
    first = prepare(data, info, limits)
    second = prepare(data, info, limits)
    assert first == second
    assert first.recipe == plan(info, limits)
    assert (first.recipe == AS_IS) == (first.data == data)


@settings(max_examples=200, deadline=None)
@given(data=samples, limits=limits)
def test_what_is_prepared_fits_the_provider(data: bytes, limits: ImageLimits) -> None:
    prepared = prepare(data, probe(data), limits)
    sent = probe(prepared.data)
    assert (
        sent.format in limits.formats and prepared.media_type == f"image/{sent.format}"
    )
    assert (sent.width, sent.height) == (prepared.width, prepared.height)
    assert limits.max_side is None or max(sent.display_size) <= limits.max_side
    assert limits.max_bytes is None or sent.size <= limits.max_bytes
    assert (
        sent.orientation == 1
        and not sent.animated
        and sent.bits <= 8
        and sent.mode != "cmyk"
    )


@settings(max_examples=100, deadline=None)
@given(data=samples)
def test_a_picture_that_is_prepared_without_loss_looks_the_same(data: bytes) -> None:
    prepared = prepare(data, probe(data), ImageLimits(formats=frozenset({"png"})))
    assert decode(prepared.data).tobytes() == decode(data).tobytes()


@pytest.mark.parametrize(
    ("data", "limits", "recipe"),
    [
        (SAMPLES["png alpha"](9, 9), UNLIMITED, "as-is"),
        (SAMPLES["jpeg profile"](9, 9), UNLIMITED, "as-is"),
        (SAMPLES["jpeg turned"](9, 9), UNLIMITED, "orient+jpeg95"),
        (SAMPLES["png 16 bits"](9, 9), UNLIMITED, "8bit+png"),
        (SAMPLES["jpeg cmyk"](9, 9), UNLIMITED, "srgb+jpeg95"),
        (SAMPLES["bmp"](9, 9), UNLIMITED, "png"),
        (
            SAMPLES["webp"](9, 9),
            ImageLimits(formats=frozenset({"jpeg", "png"})),
            "jpeg95",
        ),
        (
            SAMPLES["webp lossless"](9, 9),
            ImageLimits(formats=frozenset({"jpeg", "png"})),
            "png",
        ),
        (ANIMATED["gif animated"], UNLIMITED, "frame1+png"),
        (
            SAMPLES["webp turned"](90, 70),
            ImageLimits(max_side=64),
            "orient+srgb+side64+jpeg95",
        ),
        (SAMPLES["png alpha"](90, 70), ImageLimits(max_side=64), "white+side64+png"),
        (
            SAMPLES["png"](90, 70),
            ImageLimits(max_side=64, max_bytes=9000),
            "side64+png-else-jpeg95+max9000",
        ),
        (encoded(NOISE, "PNG"), ImageLimits(max_bytes=9000), "jpeg95+max9000"),
        (encoded(NOISE, "BMP"), ImageLimits(max_bytes=9000), "png-else-jpeg95+max9000"),
        (SAMPLES["jpeg"](90, 70), ImageLimits(max_bytes=500), "jpeg95+max500"),
    ],
)
def test_recipes_say_what_is_done(
    data: bytes, limits: ImageLimits, recipe: str
) -> None:
    assert plan(probe(data), limits) == recipe


def test_what_fits_goes_through_byte_for_byte() -> None:
    data = SAMPLES["jpeg profile"](40, 30)
    assert (
        prepare(data, probe(data), ImageLimits(max_side=40, max_bytes=len(data))).data
        is data
    )


def test_noise_is_the_worst_case_that_the_byte_bound_assumes() -> None:
    extreme = NOISE.point(lambda value: 255 if value > 127 else 0)
    for noise, codec in (
        (NOISE, "png"),
        (NOISE, "jpeg"),
        (extreme, "png"),
        (extreme, "jpeg"),
    ):
        assert (
            len(images._encode(noise, noise.size, codec))
            < 64 * 64 * images._WORST_BYTES + images._HEADERS
        )


def test_a_picture_that_is_too_heavy_shrinks_until_it_fits() -> None:
    data = encoded(NOISE, "PNG")
    prepared = prepare(data, probe(data), ImageLimits(max_bytes=9000))
    assert len(prepared.data) <= 9000 and 32 < prepared.width < 64


def test_limits_that_nothing_can_meet_are_refused() -> None:
    with pytest.raises(ValueError, match="JPEG or PNG"):
        ImageLimits(formats=frozenset({"webp"}))
    data = SAMPLES["bmp"](30, 30)
    with raises(ImageError, "no_size_fits", "20"):
        prepare(data, probe(data), ImageLimits(max_bytes=20), name="a")


# --- remembering ----------------------------------------------------------------------------------------------


def settled(path: Path, data: bytes, mtime: int = 1_000_000_000) -> Path:
    """A file that was written long ago."""
    path.write_bytes(data)
    os.utime(path, (mtime, mtime))
    return path


@pytest.fixture
def trusting_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are remembered as soon as they are written; nothing but waiting makes the time of change an old one."""
    monkeypatch.setattr(DigestCache, "_SETTLED_NS", -(10**12))


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are read from now on."""
    reads: list[str] = []

    def reading(path: Path, *options: Any) -> Any:
        reads.append(path.name)
        return read_file(path, *options)

    monkeypatch.setattr("editjudge.media.cache.read_file", reading)
    return reads


@pytest.mark.usefixtures("trusting_clock")
def test_a_file_that_stays_as_it_is_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settled(tmp_path / "a.png", b"one")
    digests = DigestCache()
    reads = counted(monkeypatch)
    assert [digests.of(path), digests.of(path)] == [images.digest(b"one")] * 2
    assert reads == ["a.png"]


@pytest.mark.usefixtures("trusting_clock")
@pytest.mark.parametrize(
    "change", ["replaced", "written over", "of another size", "of another time"]
)
def test_a_picture_that_is_another_one_is_hashed_again(
    change: str, tmp_path: Path
) -> None:
    path = settled(tmp_path / "a.png", b"one")
    digests = DigestCache()
    digests.of(path)
    before = path.stat()
    if change == "replaced":
        settled(tmp_path / "b.png", b"two").replace(path)
    else:
        content = b"three" if "size" in change else b"two"
        mtime = 1_000_000_000 + ("time" in change)
        # until the clock of the file system has moved
        while path.stat().st_ctime_ns == before.st_ctime_ns:
            settled(path, content, mtime)
    after = path.stat()
    same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    assert same is (change in ("replaced", "written over"))
    assert digests.of(path) == images.digest(path.read_bytes()) != images.digest(b"one")


def test_a_memory_without_inode_and_time_of_change_is_not_trusted(
    tmp_path: Path,
) -> None:
    path = settled(tmp_path / "a.png", b"two")
    digests = DigestCache()
    status = path.stat()
    of_0_1 = FileState(status.st_size, status.st_mtime_ns, None, None)
    digests.load({str(path): (of_0_1, KnownImage(images.digest(b"one"), None))})
    assert digests.of(path) == images.digest(b"two")


def test_a_file_written_this_moment_is_hashed_again(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    digests = DigestCache()
    for content in (b"one", b"two"):
        now = time.time_ns()
        path.write_bytes(content)
        os.utime(path, ns=(now // 10**9 * 10**9, now // 10**9 * 10**9))
        assert digests.of(path) == images.digest(content)


@pytest.mark.usefixtures("trusting_clock")
def test_what_is_remembered_survives_in_a_store_unless_distrusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settled(tmp_path / "a.png", SAMPLES["png turned"](6, 4))
    broken = settled(tmp_path / "b.png", b"text")
    first = DigestCache()
    names, problem = first.look_up(path), first.look_up(broken)
    with Store.open(tmp_path / "store.db") as store:
        store.add_batch(0, [], [], first.dump())
        stored = store.load_digests()
    reads = counted(monkeypatch)
    trusting = DigestCache()
    distrusting = DigestCache(rehash=True)
    trusting.load(stored)
    distrusting.load(stored)
    assert trusting.look_up(path) == names
    assert trusting.look_up(broken) == problem
    assert problem and problem.info is None and "begins with b'text'" in problem.problem
    assert reads == []
    assert distrusting.look_up(path) == names
    assert reads == ["a.png"]


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_files_of_a_slow_disk_are_read_at_the_same_time(
    seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local disk is read by one thread; a missing file and a broken one are what they are either way."""
    monkeypatch.setattr(
        "editjudge.media.cache._SLOW", 0.002 if seconds else float("inf")
    )
    at_once = [0, 0]

    def reading(path: Path, *options: Any) -> Any:
        at_once[0] += 1
        at_once[1] = max(at_once)
        time.sleep(seconds)
        at_once[0] -= 1
        return read_file(path, *options)

    monkeypatch.setattr("editjudge.media.cache.read_file", reading)
    paths = [
        settled(tmp_path / f"{number}.png", b"%d" % number) for number in range(12)
    ]
    paths[7] = tmp_path / "none.png"
    digests = DigestCache()
    seen = []
    for number, path in enumerate(paths):
        digests.look_ahead(paths[number : number + 4])
        seen.append(digests.of(path))
    assert seen == [None if n == 7 else images.digest(b"%d" % n) for n in range(12)]
    assert (at_once[1] > 1) is bool(seconds)


def test_a_file_that_is_not_there_has_no_digest(tmp_path: Path) -> None:
    assert DigestCache().of(tmp_path / "none.png") is None
    (tmp_path / "dangling.png").symlink_to("nowhere.png")
    assert DigestCache().of(tmp_path / "dangling.png") is None
    (tmp_path / "file").write_bytes(b"")
    assert DigestCache().of(tmp_path / "file" / "a.png") is None


def test_pictures_that_are_no_files_have_digests_too() -> None:
    digests = DigestCache(ImageReader(fetch=lambda _: b"fetched"))
    assert digests.of(b"abc") == images.digest(b"abc")
    assert digests.of("data:,abc") == images.digest(b"abc")
    assert digests.of("http://example.org/a") == images.digest(b"fetched")
    assert digests.dump() == {}


def test_what_was_planned_is_encoded_from_the_same_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settled(tmp_path / "a.png", SAMPLES["png"](6, 4))
    reads = counted(monkeypatch)
    reader = ImageReader()
    known = DigestCache(reader).of(path)
    settled(path, b"something else by now")
    (encoded,) = asyncio.run(
        gathered(ImageCache(reader).encoded(path, UNLIMITED, known))
    )
    assert (encoded.digest, encoded.width, reads) == (known, 6, ["a.png"])


def test_what_is_read_ahead_pushes_out_nothing_that_waits_to_be_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editjudge.media.cache._SLOW", -1.0)
    paths = [settled(tmp_path / f"{n}.png", b"x" * 1000) for n in range(60)]
    reads = counted(monkeypatch)
    reader = ImageReader(budget=16_000)
    digests = DigestCache(reader)
    for waiting in paths[:16]:
        digests.of(waiting)
    digests.look_ahead(paths[16:])
    reader.threads.shutdown()
    assert len(reads) == 16 + 16  # the budget at most
    assert all(
        reader.held(waiting, images.digest(b"x" * 1000)) for waiting in paths[:16]
    )


def test_the_judges_of_a_run_share_one_read_of_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settled(tmp_path / "a.png", SAMPLES["png"](6, 4))
    reads = counted(monkeypatch)
    reader = ImageReader(judges=2)
    pictures = ImageCache(reader)
    (first, second) = (DigestCache(reader).of(path) for _ in range(2))
    assert first == second
    limits = UNLIMITED, ImageLimits(max_side=5)
    sizes = [
        encoded.width
        for one in limits
        for encoded in asyncio.run(gathered(pictures.encoded(path, one, first)))
    ]
    assert (sizes, reads) == ([6, 5], ["a.png"])


@pytest.mark.parametrize("first", ["in advance", "at once"])
def test_a_picture_that_one_judge_is_reading_is_not_read_by_another(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the two begins: the second finds the read of the first, which takes as long as it needs."""
    monkeypatch.setattr("editjudge.media.cache._SLOW", -1.0)
    path = settled(tmp_path / "a.png", SAMPLES["png"](6, 4))
    begun = threading.Event()
    go_on = threading.Event()
    reads = []

    def reading(path: Path, *options: Any) -> Any:
        reads.append(path.name)
        begun.set()
        assert go_on.wait(60)
        return read_file(path, *options)

    monkeypatch.setattr("editjudge.media.cache.read_file", reading)
    reader = ImageReader(judges=2)
    judges = [DigestCache(reader), DigestCache(reader)]
    with ThreadPoolExecutor(2) as pool:
        if first == "at once":
            looks = [pool.submit(judges[0].of, path)]
            assert begun.wait(60)
            judges[1].look_ahead([path])
        else:
            judges[1].look_ahead([path])
            assert begun.wait(60)
            looks = [pool.submit(judges[0].of, path)]
        looks.append(pool.submit(judges[1].of, path))
        go_on.set()
        digests = {look.result(60) for look in looks}
    reader.threads.shutdown()
    assert (reads, digests) == (["a.png"], {images.digest(path.read_bytes())})


def test_a_shared_picture_that_is_another_one_by_now_is_read_again(
    tmp_path: Path,
) -> None:
    path = settled(tmp_path / "a.png", b"one")
    reader = ImageReader(judges=2)
    image = reader.look(path)
    assert isinstance(image, LoadedImage) and image.data == b"one"
    settled(tmp_path / "b.png", b"two").replace(path)
    image = reader.look(path)
    assert isinstance(image, LoadedImage) and image.data == b"two"
    assert reader.take(path, images.digest(b"two")).data == b"two"


async def gathered(*waiting: Awaitable[EncodedImage]) -> list[EncodedImage]:
    return await asyncio.gather(*waiting)


def test_pictures_that_are_read_and_not_encoded_yet_are_held_within_the_budget(
    tmp_path: Path,
) -> None:
    paths = [settled(tmp_path / f"{n}.png", SAMPLES["png"](6, 4 + n)) for n in range(9)]
    largest = max(path.stat().st_size for path in paths)
    reader = ImageReader(budget=3 * largest)
    for path in paths:
        reader.look(path)
        assert (
            sum(size for _, size in reader._held._values.values())
            == reader._held._used
            <= 3 * largest
        )
    assert reader.bytes_read == sum(path.stat().st_size for path in paths)
    assert reader.take(paths[-1]).identity.digest == images.digest(
        paths[-1].read_bytes()
    )


def test_a_judge_of_this_process_gets_the_file_itself_and_no_base64() -> None:
    data = SAMPLES["png"](6, 4)
    (encoded,) = asked(ImageCache(), data, limits=ImageLimits(base64=False))
    assert encoded.data == data


class Counting:
    """Fetches a picture, slowly, and counts how often."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.calls = 0

    def __call__(self, url: str) -> bytes:
        self.calls += 1
        time.sleep(0.02)
        return self.data


def test_tasks_that_want_the_same_picture_have_it_encoded_once() -> None:
    fetch = Counting(SAMPLES["png"](20, 10))
    pictures = ImageCache(ImageReader(fetch=fetch))

    async def ask_all() -> None:
        await asyncio.gather(
            *(
                pictures.encoded(f"http://example.org/{n % 2}", UNLIMITED)
                for n in range(50)
            )
        )
        await pictures.encoded("http://example.org/0", UNLIMITED)

    asyncio.run(ask_all())
    assert fetch.calls == 2


def test_a_task_that_gives_up_takes_nothing_from_the_others() -> None:
    fetch = Counting(SAMPLES["png"](20, 10))
    pictures = ImageCache(ImageReader(fetch=fetch))

    async def ask() -> EncodedImage:
        first = asyncio.create_task(pictures.encoded("http://example.org/a", UNLIMITED))
        second = asyncio.create_task(
            pictures.encoded("http://example.org/a", UNLIMITED)
        )
        await asyncio.sleep(0.005)
        first.cancel()
        return await second

    assert asyncio.run(ask()).width == 20
    assert fetch.calls == 1


def asked(
    pictures: ImageCache, *sources: Path | bytes | str, limits: ImageLimits = UNLIMITED
) -> list[EncodedImage]:
    """One after another, in one event loop."""

    async def ask() -> list[EncodedImage]:
        return [await pictures.encoded(source, limits) for source in sources]

    return asyncio.run(ask())


def test_different_limits_are_different_pictures() -> None:
    pictures = ImageCache()
    data = SAMPLES["png"](20, 10)
    (whole,) = asked(pictures, data)
    assert whole == EncodedImage(
        "image/png", base64.b64encode(data), images.digest(data), AS_IS, 20, 10
    )
    assert asked(pictures, data, limits=ImageLimits(max_side=10))[0].width == 10


def test_a_failure_reaches_everyone_and_is_not_kept(tmp_path: Path) -> None:
    pictures = ImageCache()
    path = tmp_path / "late.png"
    for _ in range(2):
        with raises(ImageError, "unreadable_file", "late.png"):
            asked(pictures, path)
    path.write_bytes(SAMPLES["png"](20, 10))
    assert asked(pictures, path)[0].height == 10


def test_what_was_used_longest_ago_makes_room() -> None:
    data = SAMPLES["png"](20, 10)
    fetch = Counting(data)
    pictures = ImageCache(
        ImageReader(fetch=fetch), budget=int(2.5 * len(base64.b64encode(data)))
    )
    # c pushes b out
    asked(pictures, *(f"http://example.org/{name}" for name in "abaca"))
    assert fetch.calls == 3
    asked(pictures, "http://example.org/b")
    assert fetch.calls == 4


def test_a_picture_larger_than_the_budget_pushes_nobody_out() -> None:
    small = SAMPLES["png"](20, 10)
    large = SAMPLES["bmp"](60, 40)
    fetch = Counting(small)
    pictures = ImageCache(ImageReader(fetch=fetch), budget=len(base64.b64encode(small)))
    (_, other, _) = asked(
        pictures, "http://example.org/a", large, "http://example.org/a"
    )
    assert other.width == 60 and len(other.data) > len(base64.b64encode(small))
    assert fetch.calls == 1
