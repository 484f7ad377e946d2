"""Pictures that show nothing, or nothing any more in a large part."""

from __future__ import annotations

import cv2
import numpy as np

from editjudge.measured.colours import COLOURS, share_of
from editjudge.measured.scene import Array, fit, to_lab

_LEVELS = 4
"""Of 255, over all pixels but a few: what JPEG leaves of one colour."""
_STRAY = 8.0
"""Levels from a smooth background at which something shows. Sensor noise of 8 levels averages to less than 1."""
_EMPTY = 0.08
"""Share of a 64 x 64 grid that differs from a smooth background: a watermark or a logo is less. The emptiest real edit
has 0.17."""
_CELLS = 32
"""Cells a side in which a picture is searched for even surfaces, of 8 x 8 pixels each."""
_EVEN = 1.2
"""Levels of deviation of a cell that was filled, not photographed, also after it was saved as JPEG."""
_CONTENT = 4.0
"""Levels of deviation of a cell that showed something."""
_BLANK = 0.12
"""Share of the picture that had content and is one even surface now."""
_STRAIGHT = 0.9
"""Share of its bounding box that such a surface fills: lost data and paint have straight sides, backgrounds do not."""
_PLAIN = ("black", "white", "grey")
"""Tried first: a dark red is within the hues of three names."""


def flat(picture: Array) -> str | None:
    pixels = picture.reshape(-1, 3)
    if not _within_levels(pixels[::61], 1) or not _within_levels(pixels, 0.02):  # the first is fast
        return None
    level = np.median(pixels, axis=0).astype(int)
    return f"is one flat colour, {_colour(level)}, over the whole picture: it shows nothing"


def same_colour(before: Array, edited: Array) -> bool:
    """Whether both pictures together are one flat colour."""
    return _within_levels(np.concatenate([before.reshape(-1, 3), edited.reshape(-1, 3)]), 0.02)


def _within_levels(pixels: Array, tail: float) -> bool:
    low, high = np.percentile(pixels, (tail, 100 - tail), axis=0)
    return float((high - low).max()) <= _LEVELS


def _colour(level: Array) -> str:
    lab = to_lab(np.asarray(level, np.uint8).reshape(1, 1, 3))
    name = next((name for name in (*_PLAIN, *COLOURS) if share_of(name, lab)), "a colour")
    return f"{name} ({', '.join(str(int(v)) for v in level)})"


def near_flat(before: Array | None, edited: Array) -> str | None:
    """Words for an output that is almost empty, where the input was not."""
    for shows_detail, share_of_detail, surface in (
        (_surely_off_one_surface, _off_one_surface, "one smooth surface"),
        (_surely_uneven, _uneven, "even surfaces"),
    ):
        if shows_detail(edited):
            continue
        detail = share_of_detail(edited)
        # Beside a drawing or a product on white, little is left only where most of that little is gone.
        if detail <= _EMPTY and (before is None or share_of_detail(before) > max(_EMPTY, 2 * detail)):
            return f"is almost empty: {1 - detail:.0%} of it is {surface} without any detail"
    return None


def is_near_flat(picture: Array) -> bool:
    return not _surely_off_one_surface(picture) and _off_one_surface(picture) <= _EMPTY


def _surely_off_one_surface(picture: Array) -> bool:
    """A fast proof that `_off_one_surface` is above `_EMPTY`, which most photographs give.

    Along a row, four equally spaced values of a quadratic have no third difference; where each is off by `_STRAY` at
    most it is at most 8 times that. A quarter of the row apart, each cell is in one such row of four.
    """
    fours = _grid(picture).reshape(64, 4, 16, 3)
    third = fours[:, 3] - 3 * fours[:, 2] + 3 * fours[:, 1] - fours[:, 0]
    return float((np.abs(third).max(axis=-1) > 8 * _STRAY).mean()) > 4 * _EMPTY


def _grid(picture: Array) -> Array:
    return cv2.resize(picture, (64, 64), interpolation=cv2.INTER_AREA).astype(np.float64)


def _off_one_surface(picture: Array) -> float:
    """The share that stands out from one smooth surface: a quadratic in each channel, fitted to what is not far."""
    grid = _grid(picture).reshape(-1, 3)
    y, x = np.mgrid[-1:1:64j, -1:1:64j].reshape(2, -1)
    terms = np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], axis=1)
    off = np.abs(grid - np.median(grid, axis=0)).max(axis=1)
    for _ in range(4):
        near = off <= max(_STRAY, float(np.quantile(off, 0.7)))
        fitted = np.linalg.lstsq(terms[near], grid[near], rcond=None)[0]
        off = np.abs(grid - terms @ fitted).max(axis=1)
    return float((off > _STRAY).mean())


def _uneven(picture: Array) -> float:
    """The share of cells that are no plane of colour."""
    return float(_is_uneven(_tiles(picture)).mean())


def _surely_uneven(picture: Array) -> bool:
    """A fast proof that `_uneven` is above `_EMPTY`: a quarter of the cells is enough of them in most photographs."""
    return int(_is_uneven(_tiles(picture)[::4]).sum()) > _EMPTY * _CELLS**2


def _is_uneven(tiles: Array) -> Array:
    y, x = np.mgrid[-1:1:8j, -1:1:8j].reshape(2, -1)
    terms = np.stack([np.ones_like(x), x, y], axis=1)
    rest = tiles - terms @ (np.linalg.pinv(terms) @ tiles)
    uneven: Array = rest.std(axis=1).max(axis=1) > _EVEN
    return uneven


def _tiles(picture: Array) -> Array:
    """Cells x pixels of a cell x channels."""
    side = 8 * _CELLS
    small = fit(picture, side, side).astype(np.float32)
    return small.reshape(_CELLS, 8, _CELLS, 8, 3).transpose(0, 2, 1, 3, 4).reshape(_CELLS**2, 64, 3)


def partly_blank(before: Array, edited: Array) -> str | None:
    """Words for a large part with straight sides that had content and is one even colour now."""
    if _share_even(edited) < _BLANK:  # as of most photographs
        return None
    now = _tiles(edited)
    even, colour = now.std(axis=1).max(axis=1) < _EVEN, now.mean(axis=1)
    had = _tiles(before).std(axis=1).max(axis=1) > _CONTENT
    emptied = had & even
    if emptied.mean() < _BLANK:
        return None
    main = np.median(colour[emptied], axis=0)
    same = (even & (np.abs(colour - main).max(axis=1) < _LEVELS)).reshape(_CELLS, _CELLS)
    emptied = same & emptied.reshape(_CELLS, _CELLS)
    share = float(emptied.mean())
    if share < _BLANK or _filled_box(same, emptied) < _STRAIGHT:
        return None
    return f"is blank in a large part: {share:.0%} of the picture had content and is {_colour(main.astype(int))} now"


def _share_even(picture: Array) -> float:
    """A fast look at the share of even cells, rather too high: variances of 32 bits are off by less than 0.5."""
    size, small = (_CELLS, _CELLS), fit(picture, 8 * _CELLS, 8 * _CELLS).astype(np.float32)
    mean, square = (cv2.resize(p, size, interpolation=cv2.INTER_AREA) for p in (small, cv2.multiply(small, small)))
    return float(((square - mean * mean).max(axis=2) < _EVEN**2 + 0.5).mean())


def _filled_box(surface: Array, part: Array) -> float:
    """Share of the bounding box of most of the part that the surface fills."""
    box = []
    for axis in (1, 0):
        lines = np.flatnonzero(part.sum(axis=axis) > 0.25 * part.sum(axis=axis).max())
        box.append(slice(lines[0], lines[-1] + 1))
    inside = surface[box[0], box[1]]
    # A background has more of the surface beside any box.
    return float(inside.mean()) * float(part[box[0], box[1]].sum() / part.sum())
