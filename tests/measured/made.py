"""Photographs in the public domain, and edits of them whose faults are known."""

from __future__ import annotations

import io
from typing import Any

import cv2
import numpy as np
from PIL import Image
from skimage import data

from editjudge.vision.measured.calibration import load
from editjudge.vision.measured.measures import measure
from editjudge.vision.measured.scene import compose

Picture = Any
BOX = (150, 110, 270, 240)
"""Left, top, right, bottom of the thing that is edited."""


def photograph(seed: int = 0) -> Picture:
    """A photograph of 420 by 340 with something in its middle: a cup, a cat, an astronaut."""
    photographs: Any = data  # scikit-image has no types for them
    coffee = photographs.coffee()
    cat = photographs.chelsea()
    astronaut = photographs.astronaut()
    taken = (coffee[40:380, 90:510], cat, astronaut[0:340, 20:440])[seed % 3]
    return cv2.resize(taken, (420, 340), interpolation=cv2.INTER_AREA)


def region(shape: tuple[int, ...], soft: float = 2.0) -> Picture:
    """1 on the thing, 0 elsewhere, feathered."""
    left, top, right, bottom = BOX
    mask = np.zeros(shape[:2], np.float32)
    middle = ((left + right) // 2, (top + bottom) // 2)
    axes = ((right - left) // 2, (bottom - top) // 2)
    cv2.ellipse(mask, middle, axes, 0, 0, 360, 1.0, -1)
    return cv2.GaussianBlur(mask, (0, 0), soft)[..., None] if soft else mask[..., None]


def mix(below: Picture, above: Picture, share: Picture) -> Picture:
    return np.clip(below * (1 - share) + above * share, 0, 255).astype(np.uint8)


def recoloured(picture: Picture) -> Picture:
    """The clean edit: the thing in another colour, everything else untouched."""
    hsv = cv2.cvtColor(picture, cv2.COLOR_RGB2HSV).astype(np.float32)
    hsv[..., 0] = (hsv[..., 0] + 70) % 180
    return mix(
        picture,
        cv2.cvtColor(hsv.astype(np.uint8), cv2.COLOR_HSV2RGB),
        region(picture.shape),
    )


def jpeg(picture: Picture, quality: int) -> Picture:
    return np.asarray(Image.open(io.BytesIO(encoded(picture, "JPEG", quality=quality))))


def encoded(picture: Picture, kind: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(picture).save(out, kind, **options)
    return out.getvalue()


def scores(
    before: Picture, after: Picture, mask: Picture | None = None
) -> dict[str, float]:
    """Of every factor that compares two pictures, not yet rounded."""
    found = measure(compose(before, after, mask))
    names = [name for name in load().factors if not name.startswith("reference ")]
    return {
        name: load().score(name, found.values, load().rank(name, found))
        for name in names
    }
