"""Blends of the input and an edit: contours of the input that remain inside the edit at one share of their contrast."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from editjudge.vision.measured.forest import load
from editjudge.vision.measured.scene import Array, area, fit, register

FILE = Path(__file__).with_name("blending.json")
"""A forest and its bound, fitted to blends of real edits by `python -m bench.fit_blending`."""

_SIDE = 256
"""Longest side at which contours are compared. Averaging to this size does not change the share of each image in a
blend."""
_WIDE = 3.0
_OFF = 5.0
_STRONG = 0.35
"""Width in pixels over which differences are averaged, and minimum difference inside an edit: a number of levels, and
a share of the edit's strongest difference. Both images of a blend differ by less, but in the same places."""
_CONTOUR = 1.5
"""Minimum slope of a contour, in levels per pixel."""
_LEAST = 20
"""Minimum number of pixels on contours of the input inside the edit."""
_POINTS = 3000
"""Maximum number of slopes from which the common share is found."""
_SHARES = np.arange(-0.4, 1.41, 0.05, dtype=np.float32)
"""Shares of the input's contours that are tried."""
_GONE = 8
_KEPT = 28
"""Positions in `_SHARES` of a share of 0 and of 1."""
_WINDOW = 16
"""Side in pixels of the windows in which the share is measured again."""
_FULL = 0.88
"""Share of their contrast from which contours simply stayed, perhaps in a poor JPEG."""
_BLURRED = 0.45
"""Share of their slope below which contours around the edit were blurred, with the whole image."""
_QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
_UNKNOWN = -9.0
"""Value in place of a measure that could not be taken."""

_FITTED = ("share", "rest", "beyond gone", "beyond kept", "beyond both", "slope", "likeness", "gain")  # fmt: skip
NAMES = (
    *("strongest", "extent", "mean"),
    *_FITTED,
    *(f"windows slope {q}" for q in _QUANTILES),
    *(f"windows likeness {q}" for q in _QUANTILES),
    "windows",
)


def blended(before: Array, edited: Array) -> float | None:
    """Return the share of contrast at which the input's contours remain inside the edit, if it is a blend of input and
    edit. Otherwise return None.

    In an edit, a contour is either kept or replaced by others that are unrelated to it. In a blend, all contours of
    the input remain at one share, among contours of something else.
    """
    remains, around = _remains(before, edited)
    if around < _BLURRED:
        return None
    forest = load(FILE)
    share = float(remains[NAMES.index("share")])
    if share == _UNKNOWN or share > _FULL:
        return None
    return max(0.0, share) if forest.probability(remains) > forest.changed else None


def find_remains(before: Array, edited: Array) -> Array:
    """Measure how much of the input's contours remains inside the edit, as a row in the order of `NAMES`."""
    return _remains(before, edited)[0]


def _remains(before: Array, edited: Array) -> tuple[Array, float]:
    """Return the row of `find_remains`, and how much of the contours remains around the edit, or 1 if nothing is."""
    height, width = before.shape[:2]
    scale = _SIDE / max(height, width)
    size = (max(32, round(width * scale)), max(32, round(height * scale)))
    first = fit(before, *size)
    second = register(first, fit(edited, *size))[0]
    apart = first.astype(np.float32) - second
    off = np.abs(cv2.GaussianBlur(apart, (0, 0), _WIDE)).max(axis=2)
    strongest = float(np.quantile(off, 0.97))
    inside = (off > max(_OFF, _STRONG * strongest)).astype(np.float32)
    extent = float(inside.mean())
    mean = float((off * inside).mean()) / max(extent, 1 / inside.size)
    a, b = (_slopes(image) for image in (first, second))
    edit = inside[:-1, :-1] > 0
    old, new, both = ((x * y).sum(axis=0) for x, y in ((a, a), (b, b), (a, b)))
    far = cv2.dilate(edit.astype(np.uint8), np.ones((9, 9))) == 0
    around = 1.0
    if far.sum() > _LEAST:
        around = float(both[far].sum() / (old[far].sum() + 1))
    row = [
        *(strongest, extent, mean),
        *_common(a, b, edit),
        *_windows(old, new, both, edit),
    ]
    return np.array(row, np.float32), around


def _slopes(image: Array) -> Array:
    """Return the slope of lightness to the right and down, in levels per pixel."""
    plane = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.float32)
    corner = plane[:-1, :-1]
    return np.stack([plane[:-1, 1:] - corner, plane[1:, :-1] - corner])


def _common(a: Array, b: Array, edit: Array) -> list[float]:
    """Find the share of the input's slopes that leaves the least behind if it is taken from the output.

    The remainder is measured by square roots, since contours are sparse: it is least where the contours of the input
    vanish, whatever else was drawn.
    """
    old = (a * a).sum(axis=0)
    contours = edit
    if edit.any():
        least = max(_CONTOUR**2, float(np.quantile(old[edit], 0.5)))
        contours = edit & (old > least)
    if contours.sum() < _LEAST:
        return [_UNKNOWN] * len(_FITTED)
    x = a[:, contours].ravel()
    y = b[:, contours].ravel()
    step = max(1, x.size // _POINTS)
    rest = np.sqrt(np.abs(y[::step] - _SHARES[:, None] * x[::step])).mean(axis=1)
    rest = rest / np.sqrt(np.abs(x[::step])).mean()
    best = int(np.argmin(rest))
    between = rest[_GONE + 3 : _KEPT - 2].min()
    xx, yy, xy = (float(p @ q) for p, q in ((x, x), (y, y), (x, y)))
    return [
        float(_SHARES[best]),
        rest[best],
        rest[_GONE] - rest[best],
        rest[_KEPT] - rest[best],
        min(rest[_GONE], rest[_KEPT]) - between,
        xy / xx,
        xy / float(np.sqrt(xx * yy + 1)),
        yy / xx,
    ]


def _windows(old: Array, new: Array, both: Array, edit: Array) -> list[float]:
    """Measure the share and the correlation of slopes window by window. In a blend, no window is without the input."""
    planes = (old, new, both, edit.astype(np.float32))
    size = (old.shape[1] // _WINDOW, old.shape[0] // _WINDOW)
    was, now, shared, covered = (
        area(plane[: size[1] * _WINDOW, : size[0] * _WINDOW], size) for plane in planes
    )
    usable = (covered > 0.8) & (was > 4)
    count = float(usable.sum())
    if count < 3:
        return [_UNKNOWN] * (2 * len(_QUANTILES)) + [count]
    was, now, shared = (plane[usable] for plane in (was, now, shared))
    slope = np.quantile(shared / was, _QUANTILES)
    likeness = np.quantile(shared / np.sqrt(was * now + 1), _QUANTILES)
    return [*slope.tolist(), *likeness.tolist(), count]
