"""The images of one edit in one size and one frame: other sizes, crops and small shifts are not edits.

Everything else measures on a `Scene`; nothing else knows how large the images were.
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
    """Pixels that both images show, at base size; 0 or 1."""
    mask: Array | None = None
    """Pixels that the edit is meant for, at base size; 0 or 1."""
    framing: Mapping[str, float] = field(default_factory=dict)
    """The transform that lays one image on the other."""

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
    return picture if size == (width, height) else area(picture, size)


def area(plane: Array, size: tuple[int, int]) -> Array:
    """Scale to a width and height by averaging, which cancels noise and aliases nothing."""
    return cv2.resize(plane, size, interpolation=cv2.INTER_AREA)


def fit(picture: Array, width: int, height: int) -> Array:
    """The picture at exactly this size, averaged where it shrinks and interpolated where it grows."""
    if picture.shape[:2] == (height, width):
        return picture
    smaller = picture.shape[0] * picture.shape[1] > width * height
    return cv2.resize(
        picture,
        (width, height),
        interpolation=cv2.INTER_AREA if smaller else cv2.INTER_CUBIC,
    )


def _bounded(width: int, height: int, side: int) -> tuple[int, int]:
    longest = max(width, height)
    if longest <= side:
        return width, height
    return max(1, round(width * side / longest)), max(1, round(height * side / longest))


def compose(before: Array, after: Array, mask: Array | None = None) -> Scene:
    """Both pictures, RGB of any size, in the frame of the first."""
    from editjudge.vision.measured.scene import register

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


# --- registration -------------------------------------------------------------------------------------------

_COARSE = 256
"""Longest side on which frames are compared: a shift of a thousandth of the picture still shows."""
_SAME_SHAPE = 0.02
"""Aspect ratios closer than this come from rounding sides to multiples of 8 or 16, and are stretched away."""
_MOST_SHIFT = 0.06
"""Largest shift, as a share of the image's side. What moved farther was moved, not re-framed."""
_MOST_SCALE = 0.12
"""Share of a side that a crop may take away or add. What is enlarged by more shows another frame."""
_LEAST_SCALE = 0.002
"""Change of scale that is told: half a pixel at the rim of a picture of 512."""
_NOISE = 1.5
"""Median difference in levels, below which pictures lie on each other as well as encoding lets them."""
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
        middle = warp @ (width / 2, height / 2, 1) - (width / 2, height / 2)
        facts |= {
            "shift right (px)": round(float(middle[0]), 2),
            "shift down (px)": round(float(middle[1]), 2),
        }
        if abs(scale := float(np.sqrt(np.linalg.det(warp[:, :2]))) - 1) > _LEAST_SCALE:
            facts["scale"] = round(1 / (1 + scale), 4)
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
    options = [
        (stretched, everywhere),
        *(_centred(after, width, height, cover) for cover in (True, False)),
    ]
    likeness = [_likeness(before, picture, valid) for picture, valid in options]
    best = int(np.argmax(likeness))
    return *options[best], {"aspect ratio": round(aspect, 3), "placed by": float(best)}


def _centred(after: Array, width: int, height: int, cover: bool) -> tuple[Array, Array]:
    """Scaled without distortion, in the middle: covering the frame, or inside it."""
    ratios = (width / after.shape[1], height / after.shape[0])
    scale = max(ratios) if cover else min(ratios)
    scaled = fit(
        after,
        max(1, round(after.shape[1] * scale)),
        max(1, round(after.shape[0] * scale)),
    )
    placed = np.zeros((height, width, 3), np.uint8)
    valid = np.zeros((height, width), np.uint8)
    y = (height - scaled.shape[0]) // 2
    x = (width - scaled.shape[1]) // 2
    top = max(0, y)
    left = max(0, x)
    part = scaled[max(0, -y) : max(0, -y) + height, max(0, -x) : max(0, -x) + width]
    placed[top : top + part.shape[0], left : left + part.shape[1]] = part
    valid[top : top + part.shape[0], left : left + part.shape[1]] = 1
    return placed, valid


def _likeness(before: Array, after: Array, valid: Array) -> float:
    """Correlation of edges, discounted by what the frame cuts off."""
    size = (96, 96)
    seen = cv2.resize(valid, size, interpolation=cv2.INTER_NEAREST) > 0
    a, b = (_edges(area(p, size))[seen] for p in (before, after))
    if a.size < 100 or a.std() == 0 or b.std() == 0:
        return -1.0
    return float(np.corrcoef(a, b)[0, 1] * seen.mean() ** 0.25)


def _edges(picture: Array) -> Array:
    gray = cv2.GaussianBlur(
        cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY).astype(np.float32), (0, 0), 1.0
    )
    return cv2.magnitude(
        cv2.Sobel(gray, cv2.CV_32F, 1, 0), cv2.Sobel(gray, cv2.CV_32F, 0, 1)
    )


def _small_motion(before: Array, after: Array) -> Array | None:
    """The shift or small crop, as a map of the frame, that makes the pictures agree better; None where none does."""
    height, width = before.shape[:2]
    scale = min(1.0, _COARSE / max(height, width))
    size = (max(32, round(width * scale)), max(32, round(height * scale)))
    a, b = (_gray(p, size) for p in (before, after))
    # The median: what was edited differs either way.
    still = float(np.median(np.abs(_flat(a) - _flat(b))))
    best = None
    least = (1 - _LEAST_GAIN) * still
    for warp in (_shift(a, b), _crop(a, b) if still > _NOISE else None):
        if warp is None:
            continue
        moved = cv2.warpAffine(
            b,
            warp,
            size,
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
            borderMode=cv2.BORDER_REPLICATE,
        )
        if (left := float(np.median(np.abs(_flat(a) - _flat(moved))))) <= least:
            best = warp
            least = (1 - _LEAST_GAIN) * left
    if best is None:
        return None
    to_full = np.diag([width / size[0], height / size[1]])
    linear = to_full @ best[:, :2] @ np.linalg.inv(to_full)
    return np.hstack([linear, to_full @ best[:, 2:]]).astype(np.float32)


def _shift(a: Array, b: Array) -> Array | None:
    size = a.shape[::-1]
    (dx, dy), _ = cv2.phaseCorrelate(a, b, cv2.createHanningWindow(size, cv2.CV_32F))
    if not (0.15 < float(np.hypot(dx, dy)) < _MOST_SHIFT * max(size)):
        return None
    return np.array([[1, 0, dx], [0, 1, dy]], np.float32)


def _crop(a: Array, b: Array) -> Array | None:
    """Sides of another length by a few percent, without a turn."""
    warp: Array = np.eye(2, 3, dtype=np.float32)
    stop = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 40, 1e-4)
    try:
        warp = np.asarray(
            cv2.findTransformECC(a, b, warp, cv2.MOTION_AFFINE, stop)[1], np.float32
        )
    except cv2.error:  # the pictures have too little in common
        return None
    linear = warp[:, :2]
    turned = max(abs(float(linear[0, 1])), abs(float(linear[1, 0]))) > 0.01
    if turned or np.abs(np.diag(linear) - 1).max() > _MOST_SCALE:
        return None
    height, width = a.shape
    middle = warp @ (width / 2, height / 2, 1) - (width / 2, height / 2)
    return warp if np.abs(middle).max() < _MOST_SHIFT * max(a.shape) else None


def _gray(picture: Array, size: tuple[int, int]) -> Array:
    return cv2.cvtColor(area(picture, size), cv2.COLOR_RGB2GRAY).astype(np.float32)


def _flat(gray: Array) -> Array:
    """Without slow changes of brightness, which relighting makes."""
    return gray - cv2.blur(gray, (15, 15))


def _move(picture: Array, valid: Array, warp: Array) -> tuple[Array, Array]:
    height, width = valid.shape
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    moved = cv2.warpAffine(
        picture, warp, (width, height), flags=flags, borderMode=cv2.BORDER_REPLICATE
    )
    visible = cv2.warpAffine(
        valid, warp, (width, height), flags=cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP
    )
    return moved, visible
