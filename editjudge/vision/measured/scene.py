"""The images of one edit in the same size and frame, since different sizes, crops and small shifts are not edits.

All measures take a `Scene`. Only this module handles the original sizes.
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
"""Longest side for measuring detail, noise and blocks. Finer detail is not visible at a glance, and would cost four
times as much."""
BASE = 512
"""Longest side for measuring colours and change, to which smaller images are enlarged. It is half of FINE, and the size
of most rated edits."""
LEAST = 16
"""Shortest side that can be measured: two blocks of eight pixels."""


@dataclass(frozen=True)
class View:
    """An image in the frame of the input, in the forms that measures use."""

    rgb: Array
    """0 to 255, longest side at most FINE."""
    fine: Array
    """Luma, 0 to 255, longest side at most FINE."""
    lab: Array
    """CIE Lab, with BASE as the longest side. The reach of every filter is therefore the same share of small and large
    images."""

    @cached_property
    def lightness(self) -> Array:
        return np.ascontiguousarray(self.lab[..., 0])


@dataclass(frozen=True)
class Scene:
    """The image before the edit (or the ground truth) and the image after it, aligned pixel by pixel."""

    before: View
    after: View
    valid: Array
    """Pixels that are present in both images, at base size; 0 or 1."""
    mask: Array | None = None
    """Pixels of the requested edit, at base size; 0 or 1."""
    framing: Mapping[str, float] = field(default_factory=dict)
    """The transform that aligns one image with the other."""

    @property
    def shape(self) -> tuple[int, int]:
        height, width = self.before.lab.shape[:2]
        return height, width


def too_small(*images: Array) -> bool:
    """Whether an image is too small for two blocks in each direction, after its long side is limited."""
    return any(min(_bounded(image.shape, BASE)) < LEAST for image in images)


def view(image: Array) -> View:
    """Return an image in its original frame."""
    fine = shrink(image, FINE)
    luma = cv2.cvtColor(fine, cv2.COLOR_RGB2GRAY).astype(np.float32)
    return View(fine, luma, to_lab(fit(fine, *_scaled(fine.shape, BASE))))


def to_lab(rgb: Array) -> Array:
    return cv2.cvtColor(rgb.astype(np.float32) / 255.0, cv2.COLOR_RGB2Lab)


def shrink(image: Array, side: int) -> Array:
    """Reduce an image to this longest side if it is larger."""
    size = _bounded(image.shape, side)
    return image if size == image.shape[1::-1] else area(image, size)


def _bounded(shape: tuple[int, ...], side: int) -> tuple[int, int]:
    """Return the width and height of an image after its longest side is limited."""
    height, width = shape[:2]
    return (width, height) if max(width, height) <= side else _scaled(shape, side)


def _scaled(shape: tuple[int, ...], side: int) -> tuple[int, int]:
    """Return the width and height of an image scaled to this longest side."""
    height, width = shape[:2]
    longest = max(width, height)
    return max(1, round(width * side / longest)), max(1, round(height * side / longest))


def area(plane: Array, size: tuple[int, int]) -> Array:
    """Resize to a width and height by averaging, which cancels noise and avoids aliasing."""
    return cv2.resize(plane, size, interpolation=cv2.INTER_AREA)


def fit(image: Array, width: int, height: int) -> Array:
    """Resize to exactly this size. Shrinking averages pixels; enlarging interpolates."""
    if image.shape[:2] == (height, width):
        return image
    smaller = image.shape[0] * image.shape[1] > width * height
    how = cv2.INTER_AREA if smaller else cv2.INTER_CUBIC
    return cv2.resize(image, (width, height), interpolation=how)


def compose(before: Array, after: Array, mask: Array | None = None) -> Scene:
    """Align two RGB images of any size in the frame of the first."""
    before = shrink(before, FINE)
    after, valid, framing = register(before, after)
    first = view(before)
    height, width = first.lab.shape[:2]
    small = cv2.resize(valid, (width, height), interpolation=cv2.INTER_NEAREST)
    if mask is not None:
        gray = cv2.cvtColor(mask, cv2.COLOR_RGB2GRAY) if mask.ndim == 3 else mask
        mask = (fit(gray, width, height) > 127).astype(np.uint8)
    return Scene(first, view(after), small, mask, framing)


# --- registration -------------------------------------------------------------------------------------------

_COARSE = 256
"""Longest side at which frames are compared. A shift by a thousandth of the image is still visible."""
_SAME_SHAPE = 0.02
"""Difference between aspect ratios that is caused by rounding sides to multiples of 8 or 16. It is removed by
stretching."""
_MOST_SHIFT = 0.06
"""Largest shift, as a share of the image's side. A larger shift counts as an edit and not as another framing."""
_MOST_SCALE = 0.12
"""Largest share of a side that a crop may remove or add. A larger change counts as another frame."""
_LEAST_SCALE = 0.002
"""Minimum change of scale that is reported. It is half a pixel at the edge of an image of 512 pixels."""
_NOISE = 1.5
"""Median difference in levels below which images are aligned as well as their encoding allows."""
_LEAST_GAIN = 0.12
"""Minimum share by which a shift must reduce the difference. Noise alone gains a few percent."""


def register(before: Array, after: Array) -> tuple[Array, Array, dict[str, float]]:
    """Return the image after the edit in the frame of the image before it, its valid pixels, and the transform."""
    height, width = before.shape[:2]
    facts = {"size ratio": round(after.shape[1] * after.shape[0] / (width * height), 3)}
    placed, valid, how = _placed(before, after)
    facts |= how
    if after.shape[:2] == (height, width) and np.array_equal(before, placed):
        return placed, valid, facts
    warp = _small_motion(before, placed)
    if warp is not None:
        placed = _moved(placed, warp, cv2.INTER_LINEAR, cv2.BORDER_REPLICATE)
        valid = _moved(valid, warp, cv2.INTER_NEAREST, cv2.BORDER_CONSTANT)
        right, down = _shift_of_middle(warp, width, height).tolist()
        facts |= {
            "shift right (px)": round(right, 2),
            "shift down (px)": round(down, 2),
        }
        if abs(scale := float(np.sqrt(np.linalg.det(warp[:, :2]))) - 1) > _LEAST_SCALE:
            facts["scale"] = round(1 / (1 + scale), 4)
    # Pixels that the edited image does not have count as unchanged, so that filters see no edge there.
    return np.where(valid[..., None] > 0, placed, before), valid, facts


def _moved(plane: Array, warp: Array, how: int, border: int) -> Array:
    flags = how | cv2.WARP_INVERSE_MAP
    size = plane.shape[1::-1]
    return cv2.warpAffine(plane, warp, size, flags=flags, borderMode=border)


def _shift_of_middle(warp: Array, width: float, height: float) -> Array:
    shift: Array = warp @ (width / 2, height / 2, 1) - (width / 2, height / 2)
    return shift


def _placed(before: Array, after: Array) -> tuple[Array, Array, dict[str, float]]:
    """Stretch the image after the edit to the frame. If aspect ratios differ and the structure fits better that way,
    crop or pad it instead. Return the image, the mask of its valid pixels, and what was done."""
    height, width = before.shape[:2]
    stretched = (fit(after, width, height), np.ones((height, width), np.uint8))
    aspect = (after.shape[1] / after.shape[0]) / (width / height)
    if abs(aspect - 1) < _SAME_SHAPE:
        return *stretched, {}
    ratios = (width / after.shape[1], height / after.shape[0])
    scales = (max(ratios), min(ratios))  # covering the frame, or fitting inside it
    options = [stretched, *(_centred(after, width, height, s) for s in scales)]
    best = int(np.argmax([_likeness(before, *option) for option in options]))
    return *options[best], {"aspect ratio": round(aspect, 3), "placed by": float(best)}


def _centred(
    after: Array, width: int, height: int, scale: float
) -> tuple[Array, Array]:
    """Scale the image without distortion and centre it in the frame. Return it with its valid pixels."""
    size = (max(1, round(side * scale)) for side in after.shape[1::-1])
    scaled = fit(after, *size)
    placed = np.zeros((height, width, 3), np.uint8)
    valid = np.zeros((height, width), np.uint8)
    y = (height - scaled.shape[0]) // 2
    x = (width - scaled.shape[1]) // 2
    part = scaled[max(0, -y) : max(0, -y) + height, max(0, -x) : max(0, -x) + width]
    rows = slice(max(0, y), max(0, y) + part.shape[0])
    columns = slice(max(0, x), max(0, x) + part.shape[1])
    placed[rows, columns] = part
    valid[rows, columns] = 1
    return placed, valid


def _likeness(before: Array, after: Array, valid: Array) -> float:
    """Return the correlation of edges, reduced according to the area that the frame cuts off."""
    size = (96, 96)
    seen = cv2.resize(valid, size, interpolation=cv2.INTER_NEAREST) > 0
    edges = []
    for image in (before, after):
        soft = cv2.GaussianBlur(_gray(image, size), (0, 0), 1.0)
        dx = cv2.Sobel(soft, cv2.CV_32F, 1, 0)
        dy = cv2.Sobel(soft, cv2.CV_32F, 0, 1)
        edges.append(cv2.magnitude(dx, dy)[seen])
    a, b = edges
    if a.size < 100 or a.std() == 0 or b.std() == 0:
        return -1.0
    return float(np.corrcoef(a, b)[0, 1] * seen.mean() ** 0.25)


def _small_motion(before: Array, after: Array) -> Array | None:
    """Return the shift or small crop that makes the images agree better, as a map of the frame. Return None if no such
    motion is found."""
    height, width = before.shape[:2]
    scale = min(1.0, _COARSE / max(height, width))
    size = (max(32, round(width * scale)), max(32, round(height * scale)))
    a, b = (_gray(image, size) for image in (before, after))

    def apart(plane: Array) -> float:
        """Return the median difference without slow changes of brightness. The edit itself contributes little to it."""
        flat_a, flat_b = (p - cv2.blur(p, (15, 15)) for p in (a, plane))
        return float(np.median(np.abs(flat_a - flat_b)))

    still = apart(b)
    best = None
    least = (1 - _LEAST_GAIN) * still
    for warp in (_shift(a, b), _crop(a, b) if still > _NOISE else None):
        if warp is None:
            continue
        rest = apart(_moved(b, warp, cv2.INTER_LINEAR, cv2.BORDER_REPLICATE))
        if rest <= least:
            best = warp
            least = (1 - _LEAST_GAIN) * rest
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
    """Fit a change of scale by a few percent, without rotation."""
    start = np.eye(2, 3, dtype=np.float32)
    stop = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 40, 1e-4)
    try:
        fitted = cv2.findTransformECC(a, b, start, cv2.MOTION_AFFINE, stop)[1]
    except cv2.error:  # the images have too little in common
        return None
    warp: Array = np.asarray(fitted, np.float32)
    turned = max(abs(float(warp[0, 1])), abs(float(warp[1, 0]))) > 0.01
    if turned or np.abs(np.diag(warp[:, :2]) - 1).max() > _MOST_SCALE:
        return None
    height, width = a.shape
    shift = np.abs(_shift_of_middle(warp, width, height)).max()
    return warp if shift < _MOST_SHIFT * max(a.shape) else None


def _gray(image: Array, size: tuple[int, int]) -> Array:
    return cv2.cvtColor(area(image, size), cv2.COLOR_RGB2GRAY).astype(np.float32)
