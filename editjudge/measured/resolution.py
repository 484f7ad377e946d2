"""Outputs without usable detail: noise, a thumbnail, a thumbnail blown up."""

from __future__ import annotations

import cv2
import numpy as np

from editjudge.measured.scene import Array, too_small

_GRAINY = 12.0
"""Levels of deviation from which grain is noise that hides the picture, and less is the grain of a blank sensor."""
_NEIGHBOURS = 0.3
"""Correlation of neighbouring pixels below which a picture is noise. Real edits have .81 and more at full size, .55 at
a quarter; pages of text .44 on a grid of 32; noise at four fifths over a photograph, saved as JPEG, has under .25."""
_STILL_SHOWN = 0.96
"""Correlation with the input on a grid of 64 from which grain is a way of printing: a photograph dithered to one bit
has .99, under noise at four fifths .91 and less."""
_COARSE = 64
"""Pixels of the longer side that hold all that a blown-up thumbnail shows."""
_FINER = 0.08
"""Deviation, as a share of the contrast, that is lost when a picture is reduced to that size and enlarged again.
Thumbnails of 32 pixels lose .01 to .07, however they were enlarged."""
_SOFTENED = 0.195
"""That loss as a share of the input's own. Thumbnails of 32 pixels have .05 to .19, a blur of 3 pixels .2 and more; of
1,459 real edits one is below, a field smeared all over."""
_BLOCKS = 128
"""Columns or rows at which blocks meet, at most: no thumbnail is larger."""
_SMALL = 0.25
"""Of the input's longer side (at most 1024 pixels): a smaller output shows a thumbnail of an edit at best."""
_STRIP = 8.0
"""Times the input's ratio of sides: such an output is no frame of the same picture."""


def thumbnail(before: Array | None, edited: Array) -> str | None:
    """Words for an output that is far smaller than the input, or a strip."""
    height, width = edited.shape[:2]
    size = f"is only {width} x {height} pixels"
    if before is not None and too_small(before):  # no smaller than what it was made of
        return None
    if before is not None and max(height, width) < _SMALL * max(before.shape[:2]):
        return f"{size}, less than a quarter of the input's side: a thumbnail"
    ratio = 1.0 if before is None else (width / height) / (before.shape[1] / before.shape[0])
    if max(ratio, 1 / ratio) > _STRIP:
        return "is a strip of another shape than the input, too narrow to show the edit"
    return f"{size}: too small to show anything" if too_small(edited) else None


def noise(before: Array | None, edited: Array) -> str | None:
    """Words for noise, where the input is none."""
    alike = _least_neighbours(edited)
    if alike >= _NEIGHBOURS or (before is not None and _least_neighbours(before) < _NEIGHBOURS):
        return None
    if before is not None and correlation(gray(before, 64), gray(edited, 64)) > _STILL_SHOWN:
        return None
    return f"is noise: neighbouring pixels correlate at {alike:.2f}, where pictures have 0.4 and more"


def _least_neighbours(picture: Array) -> float:
    """The least correlation of neighbours over five sizes; 1 where there is too little contrast for noise.

    Noise that was enlarged is smooth up close, and noise over a picture hides it only up close.
    """
    plane = gray(picture)
    if plane.std() < _GRAINY:
        return 1.0
    height, width = plane.shape
    sizes = [*((max(8, width // n), max(8, height // n)) for n in (2, 4)), (64, 64), (32, 32)]
    reduced = (cv2.resize(plane, size, interpolation=cv2.INTER_AREA) for size in sizes)
    return min(_neighbours(plane), *map(_neighbours, reduced))


def _neighbours(plane: Array) -> float:
    g = plane - plane.mean()
    pairs = (g[:, 1:] * g[:, :-1]).mean() + (g[1:] * g[:-1]).mean()
    return float(pairs / 2 / max(1e-6, (g * g).mean()))


def upscaled(before: Array | None, edited: Array) -> str | None:
    """Words for a thumbnail blown up."""
    plane = gray(edited)
    if max(plane.shape) < 3 * _COARSE:
        return None
    own, lost = None if before is None else gray(before), _lost(plane)
    smooth = lost < _FINER and (own is None or lost < _SOFTENED * _lost(own))
    if not smooth and not (_blocks(plane) and (own is None or not _blocks(own))):
        return None
    return f"is a thumbnail blown up: about {_COARSE} pixels a side hold all that it shows"


def _blocks(plane: Array) -> bool:
    """Whether it changes at a few columns and rows alone."""
    for axis in (0, 1):
        steps = (np.diff(plane, axis=axis) ** 2).mean(axis=1 - axis)
        few = min(_BLOCKS, len(steps) // 4)
        if np.sort(steps)[:-few].sum() > 0.01 * steps.sum():
            return False
    return True


def _lost(plane: Array) -> float:
    height, width = plane.shape
    scale = _COARSE / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    small = cv2.resize(plane, size, interpolation=cv2.INTER_AREA)
    rest = plane - cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
    return float(rest.std()) / (float(plane.std()) + 1)


def gray(picture: Array, side: int | None = None) -> Array:
    small = picture if side is None else cv2.resize(picture, (side, side), interpolation=cv2.INTER_AREA)
    return cv2.cvtColor(small, cv2.COLOR_RGB2GRAY).astype(np.float32)


def normalised(plane: Array) -> Array:
    """Less its mean, and of length 1: the product of two of them is their correlation."""
    off = plane - plane.mean()
    unit: Array = off / max(1e-6, float(np.sqrt(np.vdot(off, off))))
    return unit


def correlation(a: Array, b: Array) -> float:
    return float(np.vdot(normalised(a), normalised(b)))
