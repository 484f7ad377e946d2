"""The same edit gets the same seamlessness in every file format and size."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image
from skimage import data

from tests.measured.made import Picture, encoded, scores

PHOTOGRAPHS: Any = data
FILES: dict[str, dict[str, Any]] = {
    "PNG": {"kind": "PNG"},
    "JPEG 95, full colour": {"kind": "JPEG", "quality": 95, "subsampling": "4:4:4"},
    "JPEG 95": {"kind": "JPEG", "quality": 95, "subsampling": "4:2:0"},
    "JPEG 85": {"kind": "JPEG", "quality": 85, "subsampling": "4:2:0"},
    "JPEG 75, full colour": {"kind": "JPEG", "quality": 75, "subsampling": "4:4:4"},
    "JPEG 75": {"kind": "JPEG", "quality": 75, "subsampling": "4:2:0"},
    "WebP 90": {"kind": "WEBP", "quality": 90},
}
HALF_A_POINT = 0.5


def saved(picture: Picture, **options: Any) -> Picture:
    data = encoded(picture, **options)
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def sized(picture: Picture, side: int) -> Picture:
    height, width = picture.shape[:2]
    scale = side / max(height, width)
    size = (round(width * scale), round(height * scale))
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))


def edit(before: Picture, soft: float, *, colour: bool) -> Picture:
    """A thing in the middle that became lighter, or got another colour, with a sharp or a soft rim."""
    height, width = before.shape[:2]
    thing = np.zeros((height, width), np.float32)
    middle = (width // 2, height // 2)
    cv2.ellipse(thing, middle, (width // 5, height // 6), 20, 0, 360, 1.0, -1)
    if soft:
        thing = cv2.GaussianBlur(thing, (0, 0), soft)
    hsv = cv2.cvtColor(before, cv2.COLOR_RGB2HSV)
    hsv[..., 0] = (hsv[..., 0] + 60) % 180
    hue = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB).astype(np.float32)
    above = hue if colour else np.minimum(before + 32.0, 255.0)
    mixed = before * (1 - thing[..., None]) + above * thing[..., None]
    return mixed.round().astype(np.uint8)


def variants(before: Picture, after: Picture) -> Iterator[tuple[str, Picture, Picture]]:
    for name, options in FILES.items():
        yield f"{name}, 512", sized(before, 512), saved(sized(after, 512), **options)
    for side in (1024, 2048):
        for name in ("PNG", "JPEG 95", "JPEG 75"):
            output = saved(sized(after, side), **FILES[name])
            yield f"{name}, {side}", sized(before, side), output
    for name, options in FILES.items():
        yield f"{name}, 256", sized(before, 256), saved(sized(after, 256), **options)
    for name in ("PNG", "JPEG 85"):
        yield f"{name}, 256 to 1024", sized(before, 256), saved(after, **FILES[name])


@pytest.mark.parametrize(
    ("photograph", "soft", "colour"),
    [("astronaut", 0.0, True), ("coffee", 0.0, False), ("coffee", 5.0, True)],
)
def test_seamlessness_is_the_same_in_every_format_and_size(
    photograph: str, soft: float, colour: bool
) -> None:
    before = sized(getattr(PHOTOGRAPHS, photograph)(), 1024)
    after = edit(before, soft, colour=colour)
    by_file = {
        name: scores(*pair)["seamlessness"] for name, *pair in variants(before, after)
    }
    usual = by_file["PNG, 512"]
    apart = {name: score - usual for name, score in by_file.items()}
    assert max(map(abs, apart.values())) <= HALF_A_POINT, apart


def test_a_sharp_rim_costs_seamlessness_and_a_soft_one_does_not() -> None:
    before = sized(PHOTOGRAPHS.astronaut(), 1024)
    sharp, soft = (
        scores(before, edit(before, width, colour=False)) for width in (0.0, 5.0)
    )
    assert sharp["seamlessness"] <= 3.5
    assert soft["seamlessness"] >= 6
