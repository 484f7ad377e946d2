"""Lays the edited picture on the input: other sizes, crops and small shifts are not edits."""

from __future__ import annotations

import cv2
import numpy as np

from editjudge.measured.scene import Array, fit

_COARSE = 256
"""Longest side on which frames are compared: a shift of a thousandth of the picture still shows."""
_SAME_SHAPE = 0.02
"""Aspect ratios closer than this come from rounding sides to multiples of 8 or 16, and are stretched away."""
_MOST_SHIFT = 0.06
"""Of the picture's side. What moved farther was moved, not re-framed."""
_LEAST_GAIN = 0.12
"""How much smaller the difference must become for a shift to count: noise alone gains a few percent."""


def register(before: Array, after: Array) -> tuple[Array, Array, dict[str, float]]:
    """The picture after in the frame of the picture before, where it is valid, and what was done."""
    height, width = before.shape[:2]
    facts = {"size ratio": round(after.shape[1] * after.shape[0] / (width * height), 3)}
    placed, valid, how = _placed(before, after)
    facts |= how
    if after.shape[:2] == (height, width) and np.array_equal(before, placed):
        return placed, valid, facts
    warp = _small_motion(before, placed)
    if warp is not None:
        placed, valid = _move(placed, valid, warp)
        facts |= {"shift right (px)": round(float(warp[0, 2]), 2), "shift down (px)": round(float(warp[1, 2]), 2)}
    # Where the edited picture shows nothing, nothing changed: filters must not see an edge there.
    return np.where(valid[..., None] > 0, placed, before), valid, facts


def _placed(before: Array, after: Array) -> tuple[Array, Array, dict[str, float]]:
    """Stretched; or, where shapes differ, cropped or padded if the structure then fits better."""
    height, width = before.shape[:2]
    stretched = fit(after, width, height)
    everywhere = np.ones((height, width), np.uint8)
    aspect = (after.shape[1] / after.shape[0]) / (width / height)
    if abs(aspect - 1) < _SAME_SHAPE:
        return stretched, everywhere, {}
    options = [(stretched, everywhere), *(_centred(after, width, height, cover) for cover in (True, False))]
    likeness = [_likeness(before, picture, valid) for picture, valid in options]
    best = int(np.argmax(likeness))
    return *options[best], {"aspect ratio": round(aspect, 3), "placed by": float(best)}


def _centred(after: Array, width: int, height: int, cover: bool) -> tuple[Array, Array]:
    """Scaled without distortion, in the middle: covering the frame, or inside it."""
    ratios = (width / after.shape[1], height / after.shape[0])
    scale = max(ratios) if cover else min(ratios)
    scaled = fit(after, max(1, round(after.shape[1] * scale)), max(1, round(after.shape[0] * scale)))
    placed = np.zeros((height, width, 3), np.uint8)
    valid = np.zeros((height, width), np.uint8)
    y, x = (height - scaled.shape[0]) // 2, (width - scaled.shape[1]) // 2
    top, left = max(0, y), max(0, x)
    part = scaled[max(0, -y) : max(0, -y) + height, max(0, -x) : max(0, -x) + width]
    placed[top : top + part.shape[0], left : left + part.shape[1]] = part
    valid[top : top + part.shape[0], left : left + part.shape[1]] = 1
    return placed, valid


def _likeness(before: Array, after: Array, valid: Array) -> float:
    """Correlation of edges, discounted by what the frame cuts off."""
    size = (96, 96)
    seen = cv2.resize(valid, size, interpolation=cv2.INTER_NEAREST) > 0
    a, b = (_edges(cv2.resize(p, size, interpolation=cv2.INTER_AREA))[seen] for p in (before, after))
    if a.size < 100 or a.std() == 0 or b.std() == 0:
        return -1.0
    return float(np.corrcoef(a, b)[0, 1] * seen.mean() ** 0.25)


def _edges(picture: Array) -> Array:
    gray = cv2.GaussianBlur(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY).astype(np.float32), (0, 0), 1.0)
    return cv2.magnitude(cv2.Sobel(gray, cv2.CV_32F, 1, 0), cv2.Sobel(gray, cv2.CV_32F, 0, 1))


def _small_motion(before: Array, after: Array) -> Array | None:
    """The shift, in pixels of the frame, that makes the pictures agree better; None where none does."""
    height, width = before.shape[:2]
    scale = min(1.0, _COARSE / max(height, width))
    size = (max(32, round(width * scale)), max(32, round(height * scale)))
    a, b = (_gray(p, size) for p in (before, after))
    window = cv2.createHanningWindow(size, cv2.CV_32F)
    (dx, dy), _ = cv2.phaseCorrelate(a, b, window)
    if not (0.15 < float(np.hypot(dx, dy)) < _MOST_SHIFT * max(size)):
        return None
    warp = np.array([[1, 0, dx], [0, 1, dy]], np.float32)
    moved = cv2.warpAffine(
        b, warp, size, flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, borderMode=cv2.BORDER_REPLICATE
    )
    # The median: what was edited differs either way.
    still, shifted = (float(np.median(np.abs(_flat(a) - _flat(p)))) for p in (b, moved))
    if shifted > (1 - _LEAST_GAIN) * still:
        return None
    return np.array([[1, 0, dx * width / size[0]], [0, 1, dy * height / size[1]]], np.float32)


def _gray(picture: Array, size: tuple[int, int]) -> Array:
    return cv2.cvtColor(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY).astype(np.float32)


def _flat(gray: Array) -> Array:
    """Without slow changes of brightness, which relighting makes."""
    return gray - cv2.blur(gray, (15, 15))


def _move(picture: Array, valid: Array, warp: Array) -> tuple[Array, Array]:
    height, width = valid.shape
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    moved = cv2.warpAffine(picture, warp, (width, height), flags=flags, borderMode=cv2.BORDER_REPLICATE)
    shown = cv2.warpAffine(valid, warp, (width, height), flags=cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP)
    return moved, shown
