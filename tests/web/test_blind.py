"""Pictures for raters: not a word about who made them, and not a pixel of a difference."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageOps, PngImagePlugin

from editjudge.web.images import blind

MARK = "SuperEditor-9000"


def photograph(mode: str) -> Image.Image:
    values = np.random.default_rng(1).integers(0, 256, (40, 60, 4), np.uint8)
    smooth = Image.fromarray(values, "RGBA").resize((90, 70), Image.Resampling.BICUBIC)
    return smooth.convert("RGB").quantize(32) if mode == "P" else smooth.convert(mode)


def signed(kind: str, mode: str, **more: Any) -> bytes:
    """A picture with its maker's name wherever a file has room for it."""
    exif = Image.Exif()
    exif[0x010E] = exif[0x0131] = exif[0x013B] = MARK
    texts = PngImagePlugin.PngInfo()
    texts.add_text("Software", MARK)
    texts.add_itxt("XML:com.adobe.xmp", f"<x>{MARK}</x>")
    texts.add_text("parameters", MARK, zip=True)
    profile = bytearray(
        ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    )
    profile[80:84] = MARK[:4].encode()
    xmp = f"<x>{MARK}</x>".encode()
    kinds: dict[str, dict[str, Any]] = {
        "PNG": {"pnginfo": texts},
        "JPEG": {"comment": MARK, "xmp": xmp, "quality": 90},
        "WEBP": {"xmp": xmp},
        "GIF": {"comment": MARK},
    }
    own = kinds[kind]
    out = io.BytesIO()
    if kind != "GIF":
        own |= {"exif": exif, "icc_profile": bytes(profile)}
    photograph(mode).save(out, kind, **own, **more)
    return out.getvalue()


def pixels(data: bytes, mode: str = "RGBA") -> Any:
    return np.asarray(Image.open(io.BytesIO(data)).convert(mode))


@pytest.mark.parametrize(
    ("kind", "mode", "more"),
    [
        ("PNG", "RGB", {}),
        ("PNG", "RGBA", {}),
        ("PNG", "L", {}),
        ("PNG", "P", {}),
        ("JPEG", "RGB", {}),
        ("JPEG", "L", {}),
        ("JPEG", "RGB", {"progressive": True}),
        ("JPEG", "RGB", {"restart_marker_blocks": 2}),
        ("WEBP", "RGB", {}),
        ("WEBP", "RGBA", {"lossless": True}),
        ("WEBP", "RGBA", {"quality": 60}),
        ("GIF", "P", {}),
    ],
)
def test_a_maker_s_name_is_cut_out_and_the_pixels_stay(
    kind: str, mode: str, more: dict[str, Any]
) -> None:
    data = signed(kind, mode, **more)
    shown, media_type = blind(data)
    assert MARK.encode() in data and MARK[:4].encode() not in shown
    assert media_type == ("image/png" if kind == "GIF" else f"image/{kind.lower()}")
    assert np.array_equal(pixels(shown), pixels(data))
    left = Image.open(io.BytesIO(shown))
    left.load()
    assert not dict(left.getexif()) and not {
        "comment",
        "xmp",
        "Software",
        "parameters",
    } & set(left.info)


def test_what_is_appended_to_a_picture_is_cut_off() -> None:
    for kind in ("JPEG", "PNG"):
        whole = signed(kind, "RGB")
        shown, _ = blind(whole + b"\xff\xd8\xff" + MARK.encode() + b"\xff\xd9")
        assert MARK.encode() not in shown and np.array_equal(
            pixels(shown), pixels(whole)
        )


def test_a_picture_that_lies_on_its_side_is_turned_and_carries_no_name_either() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x0131] = MARK
    out = io.BytesIO()
    photograph("RGB").save(out, "JPEG", exif=exif, comment=MARK)
    shown, media_type = blind(out.getvalue())
    assert Image.open(io.BytesIO(shown)).size == (70, 90) and MARK.encode() not in shown
    upright = ImageOps.exif_transpose(Image.open(out))
    assert media_type == "image/png" and np.array_equal(
        pixels(shown), np.asarray(upright.convert("RGBA"))
    )


def lut_profile(kind: bytes) -> bytes:
    """A profile whose colours come from a table: of 16 bits (version 2), or of parts at offsets (version 4)."""
    grid = 3
    points = [
        (r / 2, g / 2, b / 2) for r in range(3) for g in range(3) for b in range(3)
    ]
    values = struct.pack(
        f">{len(points) * 3}H",
        *(int(60_000 * v**1.5) for point in points for v in point),
    )
    if kind == b"mft2":
        identity = struct.pack(">9i", *(65536 if n % 4 == 0 else 0 for n in range(9)))
        curves = struct.pack(">2H", 0, 65535) * 3
        tag = (
            kind
            + bytes(4)
            + bytes((3, 3, grid, 0))
            + identity
            + struct.pack(">2H", 2, 2)
            + curves
            + values
            + curves
        )
    else:
        curve = b"para" + bytes(4) + struct.pack(">HHi", 0, 0, 65536)
        clut = bytes((grid,) * 3) + bytes(13) + bytes((2, 0, 0, 0)) + values
        clut += bytes(-len(clut) % 4)
        # a gap of 32 bytes before the first part
        offsets = struct.pack(">5I", 64, 0, 0, 64 + 48 + 48, 64 + 48)
        tag = (
            kind
            + bytes(4)
            + bytes((3, 3, 0, 0))
            + offsets
            + (MARK.encode() * 2)[:32]
            + curve * 6
            + clut
        )
    tags = {
        b"wtpt": b"XYZ " + bytes(4) + struct.pack(">3i", 0xF6D6, 0x10000, 0xD32D),
        b"A2B0": tag,
    }
    table = b""
    body = b""
    at = 132 + 24
    for name, content in tags.items():
        table += struct.pack(">4sII", name, at + len(body), len(content))
        body += content + bytes(-len(content) % 4)
    head = struct.pack(
        ">I4xI", at + len(body), 0x04000000 if kind == b"mAB " else 0x02400000
    )
    head += (
        b"scnrRGB Lab " + struct.pack(">6H", 2001, 2, 3, 4, 5, 6) + b"acsp" + bytes(28)
    )
    return (
        head
        + struct.pack(">3i", 0xF6D6, 0x10000, 0xD32D)
        + bytes(48)
        + struct.pack(">I", 2)
        + table
        + body
    )


@pytest.mark.parametrize("kind", [b"mft2", b"mAB "])
@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_colours_of_another_profile_are_shown_in_srgb_without_its_maker_s_name(
    kind: bytes, form: str
) -> None:
    profile = lut_profile(kind)
    profile = profile[:80] + MARK[:4].encode() + profile[84:]
    out = io.BytesIO()
    photograph("RGB").save(out, form, icc_profile=profile)
    data = out.getvalue()
    shown, media_type = blind(data)
    assert media_type == "image/png"
    assert MARK[:4].encode() not in shown
    image = Image.open(io.BytesIO(data)).convert("RGB")
    source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    srgb = ImageCms.createProfile("sRGB")
    expected = ImageCms.profileToProfile(image, source, srgb, outputMode="RGB")
    assert np.array_equal(pixels(shown, "RGB"), np.asarray(expected))
    assert "icc_profile" not in Image.open(io.BytesIO(shown)).info


def test_a_profile_that_is_damaged_is_left_out() -> None:
    out = io.BytesIO()
    photograph("RGB").save(out, "PNG", icc_profile=b"no profile" + MARK.encode())
    shown, _ = blind(out.getvalue())
    assert np.array_equal(pixels(shown), pixels(out.getvalue()))
    assert MARK.encode() not in shown
