"""The pictures of one edit, brought to one size and one frame.

Everything else measures on a `Scene`; nothing else knows how large the pictures were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

FINE = 1024
"""Longest side on which detail, noise and blocks are measured: finer is not seen at a glance, and costs fourfold."""
BASE = 512
"""Longest side on which colours and change are measured: half of FINE, and the size most rated edits have."""
LEAST = 16
"""Shortest side in which there is anything to measure: two blocks of eight pixels."""


@dataclass(frozen=True)
class View:
    """One picture as the measures see it, in the frame of the input."""

    rgb: Array
    """0 to 255, longest side at most FINE."""
    fine: Array
    """Luma, 0 to 255, longest side at most FINE."""
    lab: Array
    """CIE Lab, longest side at most BASE."""

    @cached_property
    def lightness(self) -> Array:
        return np.ascontiguousarray(self.lab[..., 0])


@dataclass(frozen=True)
class Scene:
    """The picture before (or the ground truth) and the picture after, pixel on pixel."""

    before: View
    after: View
    valid: Array
    """Where both pictures have something to show, at base size; 0 or 1."""
    mask: Array | None = None
    """Where the edit belongs, at base size; 0 or 1."""
    framing: Mapping[str, float] = field(default_factory=dict)
    """What had to be done to lay one picture on the other."""

    @property
    def shape(self) -> tuple[int, int]:
        height, width = self.before.lab.shape[:2]
        return height, width


def too_small(*pictures: Array) -> bool:
    """Whether a picture has no room for two blocks in each direction, also after its long side was bounded."""
    return any(min(_bounded(p.shape[1], p.shape[0], BASE)) < LEAST for p in pictures)


def view(picture: Array) -> View:
    """A picture in its own frame."""
    fine = shrink(picture, FINE)
    return View(
        fine,
        cv2.cvtColor(fine, cv2.COLOR_RGB2GRAY).astype(np.float32),
        to_lab(shrink(fine, BASE)),
    )


def to_lab(rgb: Array) -> Array:
    return cv2.cvtColor(rgb.astype(np.float32) / 255.0, cv2.COLOR_RGB2Lab)


def shrink(picture: Array, side: int) -> Array:
    height, width = picture.shape[:2]
    size = _bounded(width, height, side)
    return picture if size == (width, height) else cv2.resize(picture, size, interpolation=cv2.INTER_AREA)


def fit(picture: Array, width: int, height: int) -> Array:
    """The picture at exactly this size, averaged where it shrinks and interpolated where it grows."""
    if picture.shape[:2] == (height, width):
        return picture
    smaller = picture.shape[0] * picture.shape[1] > width * height
    return cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA if smaller else cv2.INTER_CUBIC)


def _bounded(width: int, height: int, side: int) -> tuple[int, int]:
    longest = max(width, height)
    if longest <= side:
        return width, height
    return max(1, round(width * side / longest)), max(1, round(height * side / longest))


def compose(before: Array, after: Array, mask: Array | None = None) -> Scene:
    """Both pictures, RGB of any size, in the frame of the first."""
    from editjudge.measured.registration import register

    before = shrink(before, FINE)
    after, valid, framing = register(before, after)
    seen = view(before)
    height, width = seen.lab.shape[:2]
    small = cv2.resize(valid, (width, height), interpolation=cv2.INTER_NEAREST)
    return Scene(seen, view(after), small, _mask(mask, width, height), framing)


def _mask(mask: Array | None, width: int, height: int) -> Array | None:
    if mask is None:
        return None
    gray = cv2.cvtColor(mask, cv2.COLOR_RGB2GRAY) if mask.ndim == 3 else mask
    return (fit(gray, width, height) > 127).astype(np.uint8)
