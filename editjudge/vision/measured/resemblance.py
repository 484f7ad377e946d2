"""Resemblance between output and input: unchanged, rotated, a part of it, or another image."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import cv2
import numpy as np

from editjudge.vision.measured.change import Change, find_change
from editjudge.vision.measured.network import see
from editjudge.vision.measured.scene import Array, area, compose, fit, shrink, to_lab

UNCHANGED = "shows no visible difference from the input anywhere"

_TURNS: dict[str, Callable[[Array], Array]] = {
    "mirrored left to right": np.fliplr,
    "mirrored top to bottom": np.flipud,
    "turned upside down": lambda p: np.rot90(p, 2),
    "turned to the left": np.rot90,
    "turned to the right": lambda p: np.rot90(p, -1),
    "mirrored and turned": lambda p: np.fliplr(np.rot90(p)),
    "mirrored and turned the other way": lambda p: np.flipud(np.rot90(p)),
}
_SAME = 0.95
"""Minimum correlation with the rotated input, or of a repeated part with itself."""
_OTHER = 0.85
"""Correlation with the input above which a symmetrical image may simply be unchanged."""
_SHAPE = 0.02
"""Difference between aspect ratios that rounding of the sides can cause."""
_CLOSE = 12
"""Mean difference between 64 x 64 cells, in levels, from which an output is certainly not the input."""
_SPECKS = 4.0
_LEVELS = 4.0
"""Limits of the maximum difference, averaged over 5 x 5 pixels: a multiple of its 99th percentile, and a number of
levels that is added. JPEG at quality 30 stays below 3.3 times; a new digit in unchanged surroundings has at least 28
levels."""
_ENCODED = 7.0
"""Maximum of the 99th percentile of the averaged difference, in levels. JPEG at quality 30 has up to 5.4; an upscaled
thumbnail of 96 pixels has at least 9."""
_PALETTE = 256
"""Maximum number of colours in a palette."""
_MISSED = 24.0
"""Maximum error in levels, for 99 % of the pixels, of a palette that was made for an image. The worst of 15 photographs
in 256 colours has 23. If an object in a drawing was painted in another colour, the palette misses the old colour by at
least 100."""
_STRONG = 40.0
"""Difference in levels above which a cell of a 64 x 64 grid shows something else. It corresponds to 15 units of
lightness. At most 10.6 units are invisible, and an encoder is off by less than 8 levels."""
_CERTAIN = 4
"""Number of cells with a difference above `_STRONG` from which an output was certainly not just re-encoded."""
_MANY = 24
"""Number of cells with a difference above `_STRONG` (.6 % of the image), above which an output is certainly not close
to the input.
"""
_CLEAR = 10.0
_SMALL = 0.0028
"""Colour difference that no encoder explains, and the minimum share of the image that must differ by more for an output
to count as an edit. A small sticker covers less."""
_DISTINCT = 14.0
_TRACE = 0.0003
"""Colour difference, apart from a shift of all colours, that the strongest part of an edit exceeds, and the minimum
share of the image that must do so. A tenth of an edit added to its input, and 15 % more contrast, stay below it in all
of 170 cases. Of 367 real edits that people call at least partly done, 11 (3.0 %) are called unchanged, by this or as a
blend."""
_TONE = {True: 5.0, False: 7.0}
"""Shift of all colours from which an output is an edit, by whether the instruction asks for one. A tenth of an edit
shifts them by at most 6.1, 15 % more contrast by at most 3.6."""
_FAINT = 16.0
"""Colour difference at a quarter of the size that is still faint. JPEG at quality 30 reaches 11 to 14."""
_REPEATS = 12
"""Maximum number of tiles along a side."""
_COARSE = 6
"""Number of tiles along a side up to which a fast test is made first. Fewer tiles need a wider blur."""
_LAID_OUT = 160
"""Side in pixels at which two images are compared, in patches of a fifth of the side."""
_EVIDENCE = {"patches": 16.8, "best patches": 6.8, "layout": 7.9, "palette": 9.5}
"""Rounded weights of a logistic regression, fitted to 700 random pairs and 1,459 real edits."""
_SHOWN = 0.3
"""Minimum mean energy of the contours in a patch that has content to match."""
_APART = 12.5
_DOUBTFUL = 14.0
"""Thresholds for the sum that is weighted by `_EVIDENCE`. 96 % of 500 random pairs and 25 of 1,463 real edits are below
the first; 98 % and 31 are below the second."""
_SAME_SUBJECT = 0.24
"""Cosine between the network's features of two images from which they may show the same subject, redrawn. 94 % of
random pairs are below it. All of 15 edits that were redrawn from a caption reach it, and every real edit below it shows
another scene."""


def gray(image: Array, side: int | None = None) -> Array:
    small = image if side is None else area(image, (side, side))
    return cv2.cvtColor(small, cv2.COLOR_RGB2GRAY).astype(np.float32)


def normalised(plane: Array) -> Array:
    """Return a plane minus its mean, scaled to unit length. The dot product of two such planes is their correlation."""
    off = plane - plane.mean()
    unit: Array = off / max(1e-6, float(np.sqrt(np.vdot(off, off))))
    return unit


def correlation(a: Array, b: Array) -> float:
    return float(np.vdot(normalised(a), normalised(b)))


# --- the same again -----------------------------------------------------------------------------------------


def unchanged(
    before: Array, edited: Array, change: Change | None, *, toned: bool, small: bool
) -> str | None:
    """Describe the fault if the output is the input, unchanged or nearly so, perhaps re-encoded or smaller. Otherwise
    return None.

    `change` is an earlier measurement. `toned` says whether the instruction may ask for other colours everywhere, and
    `small` whether it may ask for only a few letters.
    """
    if change and change.nothing:
        return UNCHANGED
    # Most edits differ so much that a fast test is enough.
    if float(np.abs(gray(before, 64) - gray(edited, 64)).mean()) >= _CLOSE:
        return None
    cells = _changed_cells(before, edited)
    if cells > _MANY:
        return None
    difference = change or find_change(compose(before, edited))
    if difference.nothing or (cells < _CERTAIN and _recoded(before, edited)):
        return UNCHANGED
    if small or difference.tint >= _TONE[toned]:
        return None
    height, width = difference.difference.shape
    frame = max(height, width) ** 2
    clear = int((difference.difference > _CLEAR).sum()) / frame
    distinct = int((difference.difference > _DISTINCT).sum()) / frame
    if clear >= _SMALL and distinct >= _TRACE:
        return None
    return (
        f"is nearly the input: {clear:.1%} of it differs by more than ten units of colour, beside a shift of all "
        f"colours by {difference.tint:.1f}"
    )


def _changed_cells(before: Array, edited: Array) -> int:
    """Count cells that differ by more than a shift, a crop or an encoder could explain.

    Each cell of the output is compared with the cells of the input around its position, within the largest shift that
    registration allows, 6 % of the side.
    """
    if _has_palette(edited):  # a palette may be off by any amount at a few pixels
        return 0
    a = gray(before, 64)
    b = gray(edited, 64)
    window = np.ones((9, 9), np.uint8)
    off = np.maximum(b - cv2.dilate(a, window), cv2.erode(a, window) - b)
    return int((off > _STRONG).sum())


def _has_palette(image: Array) -> bool:
    """Whether the image has few enough colours for a palette. If a sample already has too many, the remaining pixels
    are not counted."""
    samples = (image[::8, ::4], image)
    return all(len(_colours(sample)) <= _PALETTE for sample in samples)


def _colours(image: Array) -> Array:
    packed = image.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    distinct = np.unique(packed.ravel())
    return np.stack([distinct >> 16, (distinct >> 8) & 255, distinct & 255], axis=1)


def _recoded(before: Array, edited: Array) -> bool:
    """Whether the image was only re-encoded, which means that the difference is faint everywhere."""
    aspect = before.shape[1] * edited.shape[0] / (before.shape[0] * edited.shape[1])
    if abs(aspect - 1) > _SHAPE:
        return False
    height = min(before.shape[0], edited.shape[0])
    width = min(before.shape[1], edited.shape[1])
    a, b = (fit(image, width, height) for image in (before, edited))
    error = _palette_error(a, b)
    off = np.abs(cv2.blur(gray(a) - gray(b), (5, 5)))
    if error is not None:
        off = off - error
    usual = max(0.0, float(np.quantile(off, 0.99)))
    if usual > _ENCODED or float(off.max()) > _SPECKS * usual + _LEVELS:
        return False
    if error is not None:
        return True
    coarse = [cv2.pyrDown(cv2.pyrDown(to_lab(shrink(image, 512)))) for image in (a, b)]
    return float(np.linalg.norm(coarse[0] - coarse[1], axis=2).max()) < _FAINT


def _palette_error(image: Array, edited: Array) -> Array | None:
    """Return the distance between the edited image's palette and this image, if the palette was made for it. Otherwise
    return None."""
    # an image with few colours needs no other palette
    if not _has_palette(edited) or _has_palette(image):
        return None
    from scipy.spatial import KDTree

    colours = _colours(edited)
    _, nearest = KDTree(colours).query(image.reshape(-1, 3))
    reproduced = colours[nearest].reshape(image.shape).astype(np.float32)
    error = np.abs(reproduced - image).max(axis=2)
    around: Array = cv2.blur(error, (5, 5))
    if np.median(error) < _ENCODED and np.quantile(around, 0.99) < _MISSED:
        return around
    return None


# --- turned, or a part of it --------------------------------------------------------------------------------


def mirrored(before: Array, edited: Array) -> str | None:
    a, b = (normalised(gray(image, 96)) for image in (before, edited))
    if float(np.vdot(a, b)) > _OTHER:
        return None
    likeness = {name: float(np.vdot(turn(a), b)) for name, turn in _TURNS.items()}
    best = max(likeness, key=lambda name: likeness[name])
    return f"is the input {best}" if likeness[best] >= _SAME else None


def repeated(before: Array | None, edited: Array) -> str | None:
    if before is None:
        return None
    across, down = _repeats(edited)
    if across * down == 1 or _repeats(before) != (1, 1):
        return None
    return f"repeats one pattern {across} times across and {down} times down"


def _repeats(image: Array) -> tuple[int, int]:
    """Return the number of equal tiles in the image, across and down."""
    counts = [1, 1]
    # most counts share a size, and shrinking a large image costs more than the rest
    planes: dict[int, Array] = {}
    for n in range(2, _REPEATS + 1):
        side = n * max(16, 192 // n)
        if side not in planes:
            planes[side] = gray(image, side)
        if n <= _COARSE and not _may_repeat(planes[side], n):
            continue
        for axis, (energy, repeated) in enumerate(_repetition(planes[side], n)):
            if energy > 4 * side**2 and repeated > 0.8 * energy:
                counts[axis] = n
    return counts[1], counts[0]


def _may_repeat(plane: Array, n: int) -> bool:
    """Test quickly whether the image may consist of a repeated pattern. The test runs at half size, where a wide blur
    costs an eighth as much."""
    half = cv2.resize(plane, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    return any(repeated > 0.5 * energy for energy, repeated in _repetition(half, n))


def _repetition(plane: Array, n: int) -> Iterator[tuple[float, float]]:
    """Yield the energy of the detail, and how much of it repeats with a shift of 1/n of the side, first vertically and
    then horizontally."""
    side = len(plane)
    # Slow changes are removed: a horizon correlates with itself everywhere without repeating.
    border = cv2.BORDER_REPLICATE
    rough = plane - cv2.GaussianBlur(plane, (0, 0), side / n / 6, borderType=border)
    for axis in (0, 1):
        detail = rough - rough.mean(axis=axis, keepdims=True)  # with a mean of 0
        shifted = np.roll(detail, side // n, axis)
        yield float(np.vdot(detail, detail)), float(np.vdot(detail, shifted))


def enlarged_part(before: Array, edited: Array) -> str | None:
    full = gray(before, 128)
    part = gray(edited, 128)
    if correlation(full, part) > _OTHER:
        return None
    for share in np.arange(0.2, 0.72, 0.025):
        side = round(128 * float(share))
        small = area(part, (side, side))
        if small.std() <= 8:
            continue
        if cv2.matchTemplate(full, small, cv2.TM_CCOEFF_NORMED).max() > _SAME:
            return f"shows only a part of the input, {share:.0%} of each side, enlarged"
    return None


# --- another image ------------------------------------------------------------------------------------------


def unrelated(before: Array, edited: Array) -> tuple[str | None, bool]:
    """Return a description of the fault if the output may be another image, else None. Also return whether this is
    certain."""
    images = (before, edited)
    # colours on a grid of 8 x 8, and the share of quantised colours (six steps per channel) that both images have
    a, b = (area(to_lab(area(image, (64, 64))), (8, 8)) for image in images)
    bins = [
        cv2.calcHist([area(image, (128, 128))], [0, 1, 2], None, [6] * 3, [0, 256] * 3)
        / 128**2
        for image in images
    ]
    alike = {
        "layout": float(np.mean([correlation(a[..., k], b[..., k]) for k in range(3)])),
        "palette": float(np.minimum(*bins).sum()),
    }
    # patches can only increase the sum
    if sum(_EVIDENCE[name] * value for name, value in alike.items()) >= _DOUBTFUL:
        return None, False
    likeness = _patches(*(_contours(gray(image, _LAID_OUT)) for image in images))
    alike["patches"] = float(likeness.mean())
    alike["best patches"] = float(np.quantile(likeness, 0.75))
    evidence = sum(weight * alike[name] for name, weight in _EVIDENCE.items())
    if evidence >= _DOUBTFUL:
        return None, False
    certain = False
    if evidence < _APART:
        squares = (fit(image, 224, 224) for image in images)
        x, y = (see(square)["patches15"].mean(axis=(1, 2)) for square in squares)
        length = float(np.linalg.norm(x) * np.linalg.norm(y))
        certain = float(x @ y / max(1e-6, length)) < _SAME_SUBJECT
    clause = (
        f"{'is' if certain else 'may be'} a different picture than the input: contours correlate at "
        f"{alike['patches']:.2f}, layouts at {alike['layout']:.2f}, and {alike['palette']:.0%} of colours are shared"
    )
    return clause, certain


_CELL = _LAID_OUT // 5
_REACH = 6
"""Side of a patch, and the search distance around its position, in pixels."""


def _patches(a: Array, b: Array) -> Array:
    """Return how well the contours of each patch in the input match the output near the same position."""
    b = cv2.copyMakeBorder(b, _REACH, _REACH, _REACH, _REACH, cv2.BORDER_REFLECT)
    best = []
    starts = range(0, _LAID_OUT - _CELL + 1, _CELL // 2)
    for y, x in itertools.product(starts, starts):
        patch = np.ascontiguousarray(a[y : y + _CELL, x : x + _CELL])
        if (patch**2).sum(axis=2).mean() < _SHOWN:
            continue
        reach = _CELL + 2 * _REACH
        near = np.ascontiguousarray(b[y : y + reach, x : x + reach])
        best.append(float(cv2.matchTemplate(near, patch, cv2.TM_CCORR_NORMED).max()))
    return np.array(best or [0.0])


def _contours(plane: Array) -> Array:
    """Return gradients with doubled angle, relative to their surroundings. They are the same for light on dark as for
    dark on light."""
    smooth = cv2.GaussianBlur(plane, (0, 0), 1.2)
    dx = cv2.Sobel(smooth, cv2.CV_32F, 1, 0)
    dy = cv2.Sobel(smooth, cv2.CV_32F, 0, 1)
    size = np.hypot(dx, dy)
    relative = np.minimum(size / (cv2.GaussianBlur(size, (0, 0), 12) + 3), 3)
    angle = 2 * np.arctan2(dy, dx)
    contours = np.dstack([relative * np.cos(angle), relative * np.sin(angle)])
    return contours.astype(np.float32)
