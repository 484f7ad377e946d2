"""Pictures for raters: not a word about who made them, and not a pixel of a difference."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms, PngImagePlugin

from editjudge.web.blind import blind, clean_profile

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
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
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
def test_a_maker_s_name_is_cut_out_and_the_pixels_stay(kind: str, mode: str, more: dict[str, Any]) -> None:
    data = signed(kind, mode, **more)
    shown, media_type = blind(data)
    assert MARK.encode() in data and MARK[:4].encode() not in shown
    assert media_type == ("image/png" if kind == "GIF" else f"image/{kind.lower()}")
    assert np.array_equal(pixels(shown), pixels(data))
    left = Image.open(io.BytesIO(shown))
    left.load()
    assert not dict(left.getexif()) and not {"comment", "xmp", "Software", "parameters"} & set(left.info)


def test_what_is_appended_to_a_picture_is_cut_off() -> None:
    for kind in ("JPEG", "PNG"):
        whole = signed(kind, "RGB")
        shown, _ = blind(whole + b"\xff\xd8\xff" + MARK.encode() + b"\xff\xd9")
        assert MARK.encode() not in shown and np.array_equal(pixels(shown), pixels(whole))


def test_a_profile_still_means_the_same_colours() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("XYZ")).tobytes()
    assert clean_profile(b"no profile") == b"" and clean_profile(profile[:100]) == b""
    lab, srgb = ImageCms.createProfile("LAB"), ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    cleaned = clean_profile(srgb)
    both = [
        ImageCms.profileToProfile(photograph("RGB"), ImageCms.ImageCmsProfile(io.BytesIO(p)), lab, outputMode="LAB")
        for p in (srgb, cleaned)
    ]
    assert len(cleaned) < len(srgb) and b"sRGB" not in cleaned
    assert np.array_equal(np.asarray(both[0]), np.asarray(both[1]))


def test_a_picture_that_lies_on_its_side_is_turned_and_carries_no_name_either() -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x0131] = 6, MARK
    out = io.BytesIO()
    photograph("RGB").save(out, "JPEG", exif=exif, comment=MARK)
    shown, _ = blind(out.getvalue())
    assert Image.open(io.BytesIO(shown)).size == (70, 90) and MARK.encode() not in shown
