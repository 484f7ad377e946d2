"""Local structure and fine detail: whether objects are still the same, and which areas became blurred or noisy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np

from editjudge.vision.measured.change import Change
from editjudge.vision.measured.scene import Array, Scene, area

_SIDE = 256
"""Longest side at which structure is compared. Parts of objects remain visible, but texture and noise do not."""
_WINDOW = 9
"""Size of the window in pixels at that size, about an eye in a portrait. Of the sizes 5 to 25, this one and 5 agree
best with people."""
_CONTRAST = 9.0
"""Variance of lightness below which a window shows nothing recognisable."""

_VANISHED = (2.25, 9.0)
"""Two variances of lightness: below the first, structure is completely gone; above the second, it is still visible."""
_PRESENT = (9.0, 36.0)
"""Two variances of lightness: above the first, structure was present; above the second, it was clearly present."""

_CELLS = 24
"""Number of cells along each side, of about ten pixels each, in which edges are counted by direction."""
_FAINT = 4.0
"""Mean edge strength below which a cell shows almost nothing."""


def structure_map(scene: Scene, *, light: bool = False) -> tuple[Array, Array]:
    """Return maps, at a small size, of the correlation of lightness before and after, and of the amount of structure.

    Structure that disappeared has a correlation of 0, unless `light` may have hidden it.
    """
    likeness, before, after = _likeness(scene, _SIDE, _WINDOW)
    if not light:
        present = _ramp(before, *_PRESENT)
        likeness = likeness * (1 - present * (1 - _ramp(after, *_VANISHED)))
    return likeness, _recognisable(before, after)


def _ramp(values: Array, low: float, high: float) -> Array:
    ramp: Array = np.clip((values - low) / (high - low), 0, 1)
    return ramp


def _recognisable(before: Array, after: Array) -> Array:
    variance = np.maximum(before, after)
    return variance / (variance + _CONTRAST)


def _likeness(scene: Scene, side: int, window: int) -> tuple[Array, Array, Array]:
    """Return the local correlation of lightness, and the local variance before and after."""
    a, b = (_reduced(v.lightness, side) for v in (scene.before, scene.after))

    def mean(plane: Array) -> Array:
        return cv2.boxFilter(plane, cv2.CV_32F, (window, window))

    mean_a = mean(a)
    mean_b = mean(b)
    variance_a = np.maximum(mean(a * a) - mean_a * mean_a, 0)
    variance_b = np.maximum(mean(b * b) - mean_b * mean_b, 0)
    # The constant makes windows without contrast similar, as they are to the eye.
    shared = mean(a * b) - mean_a * mean_b + _CONTRAST
    likeness = shared / (np.sqrt(variance_a * variance_b) + _CONTRAST)
    return np.clip(likeness, -1, 1), variance_a, variance_b


def alike(likeness: Array) -> Array:
    """Return how far each window still shows the same object, from 0 to 1."""
    share: Array = np.clip((likeness - 0.55) / 0.35, 0, 1)
    return share


def share_kept(likeness: Array, inside: Array) -> float:
    """Return the share of the edited region in which objects are still the same, or NaN if there is no region."""
    same = area(alike(likeness), inside.shape[::-1])
    return float((inside * same).sum() / inside.sum()) if inside.any() else math.nan


def trust(
    same: float, kept_in_light: float, lost_outside: float, share: float
) -> dict[str, float]:
    """Return weights, from 0 to 1, for measures that compare an object with itself, or NaN if unknown. With a low
    weight, a difference hardly counts against the edit.

    A mere defect leaves nine tenths of an object as it was, and everything around it. But three of four rated edits
    redraw the object, leaving less than seven tenths, and many redraw the entire image. In such edits, a difference
    means another drawing and not a fault.
    """
    edit, light = (
        float(np.clip((part - 0.7) / 0.2, 0, 1)) for part in (same, kept_in_light)
    )
    return {
        "thing": 1.0,  # unless the instruction asks to redraw the object itself
        "edit": edit,
        # on a small object, a gradient of light may be part of the object itself
        "light": light * min(1.0, share / 0.02),
        "whole": np.clip((0.05 - lost_outside) / 0.03, 0, 1),
    }


def redrawn(scene: Scene) -> dict[str, float]:
    """Measure how much of the image was redrawn, at the scales of texture, of parts and of objects."""
    shares = {}
    for name, side in (("texture", 512), ("parts", 256), ("things", 64)):
        likeness, before, after = _likeness(scene, side, 5)
        anew = np.clip((0.8 - likeness) / 0.8, 0, 1)
        shares[name] = _average(anew, _recognisable(before, after))
        shares[f"{name} worst"] = 1 - float(np.quantile(likeness, 0.1))
        shares[f"{name} typical"] = 1 - float(np.median(likeness))
    return shares


def turned(scene: Scene, change: Change) -> dict[str, float]:
    """Measure how much edge directions changed, cell by cell. Redrawing changes them; recolouring and relighting do
    not."""
    before, after = (_directions(v.lightness) for v in (scene.before, scene.after))
    moved = np.linalg.norm(before - after, axis=-1)
    cells = (_CELLS, _CELLS)
    return {
        "all": moved.mean(),
        "inside": _average(moved, area(change.inside.astype(np.float32), cells)),
        "outside": _average(moved, area(change.outside.astype(np.float32), cells)),
    }


def _directions(lightness: Array) -> Array:
    """Return a histogram of edge directions for each cell, weighted by strength. It has unit length if there are edges."""
    plane = _reduced(lightness, _SIDE)
    strength, angle = cv2.cartToPolar(
        cv2.Sobel(plane, cv2.CV_32F, 1, 0), cv2.Sobel(plane, cv2.CV_32F, 0, 1)
    )
    sector = (angle * (8 / np.pi)).astype(np.int32) % 8
    cells = [
        area(np.where(sector == k, strength, np.float32(0)), (_CELLS, _CELLS))
        for k in range(8)
    ]
    stacked = np.stack(cells, axis=-1)
    unit: Array = stacked / (np.linalg.norm(stacked, axis=-1, keepdims=True) + _FAINT)
    return unit


def find_structure(
    scene: Scene, change: Change, likeness: Array, weight: Array
) -> dict[str, float]:
    size = likeness.shape[1], likeness.shape[0]
    inside, outside, valid = (
        weight * area(part.astype(np.float32), size)
        for part in (change.inside, change.outside, scene.valid)
    )
    # above this, it is the same object, re-encoded or slightly redrawn
    lost = np.clip((0.92 - likeness) / 0.92, 0, 1)
    return {
        "lost inside": _average(lost, inside),
        "lost outside": _average(lost, outside),
        "lost": _average(lost, valid),
        "lost share": (lost * valid > 0.5).mean(),
        "recognisable": valid.mean(),
    }


def _average(values: Array, weight: Array) -> float:
    """Return the weighted mean, or NaN if all weights are zero."""
    total = float(weight.sum())
    return float((values * weight).sum() / total) if total > 1.0 else math.nan


def _reduced(plane: Array, side: int) -> Array:
    scale = min(1.0, side / max(plane.shape))
    height, width = (max(8, round(length * scale)) for length in plane.shape)
    small = area(plane, (width, height))
    return small if side < 256 else cv2.GaussianBlur(small, (7, 7), 1.0)


# --- drift --------------------------------------------------------------------------------------------------

_TILE = 32
_REACH = 6
"""Side of a tile, and the distance that it may have moved, in pixels at base size."""
_CONTENT = 3.0
"""Minimum standard deviation of lightness in a tile, without which it cannot be recognised elsewhere."""
_IN_PLACE = 0.8
_FOUND = 0.85
"""Correlation with the same position below which a tile differs, and correlation with another position above which it
has moved there."""


def find_drift(scene: Scene) -> dict[str, float]:
    """Measure what share of the image moved by a few pixels, and what share of the differences this movement explains."""
    before, after = (view.lightness for view in (scene.before, scene.after))
    height, width = before.shape
    tiles = 0
    changed = []
    for y in range(_REACH, height - _TILE - _REACH + 1, _TILE):
        for x in range(_REACH, width - _TILE - _REACH + 1, _TILE):
            tile = before[y : y + _TILE, x : x + _TILE]
            if tile.std() < _CONTENT:
                continue
            tiles += 1
            place = after[y : y + _TILE, x : x + _TILE]
            if cv2.matchTemplate(place, tile, cv2.TM_CCOEFF_NORMED)[0, 0] < _IN_PLACE:
                changed.append((y, x))
    if not changed:
        return {"moved": 0.0, "explained": 0.0}
    moved = 0
    for y, x in changed:
        tile = before[y : y + _TILE, x : x + _TILE]
        around = after[y - _REACH : y + _TILE + _REACH, x - _REACH : x + _TILE + _REACH]
        moved += cv2.matchTemplate(around, tile, cv2.TM_CCOEFF_NORMED).max() > _FOUND
    return {"moved": moved / tiles, "explained": moved / len(changed)}


# --- fine detail, block by block ----------------------------------------------------------------------------

_BLOCK = 16
"""Side of a block in pixels at fine size. It is four periods of the coarsest band that is measured."""
_SILENT = 0.6
"""Energy that results from rounding to integer gray levels and from faint compression. Below it, ratios are only ratios
of noise."""
_SMOOTH = 4.0
"""Energy up to which a block has no visible texture. Noise on such a block is visible."""


@dataclass(frozen=True)
class Detail:
    fine: Array
    """Log2 ratio of the energy in the finest octave, after to before, for each block."""
    middle: Array
    """Log2 ratio of the energy in the next coarser octave, after to before, for each block."""
    contrast: float
    """Log2 ratio of the contrast of large shapes. Haze over the image lowers all bands by this much."""
    texture: Array
    """Energy before the edit, for each block. If it is small, there was no detail to lose."""
    texture_after: Array
    inside: Array
    """Share of each block that the edit visibly covers."""
    outside: Array
    sameness: Array
    """How far each block still shows the same object, from 0 to 1."""


def find_detail(scene: Scene, change: Change, likeness: Array) -> Detail:
    before = _bands(scene.before.fine)
    after = _bands(scene.after.fine)
    fine, middle = (
        0.5 * np.log2((new + _SILENT) / (old + _SILENT))
        for old, new in zip(before, after, strict=True)
    )
    size = before[0].shape[::-1]
    seen = change.inside & (scene.valid > 0)
    was, now = (
        float(np.log2(area(view.lightness, (32, 32)).std() + 0.5))
        for view in (scene.before, scene.after)
    )
    return Detail(
        fine=fine,
        middle=middle,
        contrast=now - was,
        texture=before[0],
        texture_after=after[0],
        inside=area(seen.astype(np.float32), size),
        outside=area(change.outside.astype(np.float32), size),
        sameness=area(alike(likeness), size),
    )


def _bands(gray: Array) -> list[Array]:
    """Return the mean energy of two frequency bands in each block."""
    soft = cv2.GaussianBlur(gray, (5, 5), 0.9)
    softer = cv2.GaussianBlur(soft, (9, 9), 2.0)
    size = (max(2, gray.shape[1] // _BLOCK), max(2, gray.shape[0] // _BLOCK))
    return [area(cv2.multiply(b, b), size) for b in (gray - soft, soft - softer)]


def everywhere(detail: Detail) -> dict[str, float]:
    """Measure the detail of the entire image with medians, so that a single area does not decide."""
    around = detail.outside > 0.5
    if around.mean() < 0.15:  # the edit covers nearly the entire image
        around = np.ones_like(around)
    texture = detail.texture
    textured = around & (texture > np.quantile(texture[around], 0.4))
    low = float(np.quantile(texture[around], 0.2))
    smooth = around & (texture <= max(_SMOOTH, low))
    if not textured.any():
        textured = around
    fine = float(np.median(detail.fine[textured]))
    middle = float(np.median(detail.middle[textured]))
    contrast = min(0.0, detail.contrast)
    noise = math.nan
    if smooth.any():
        noise = max(0.0, float(np.median(detail.fine[smooth])))
    return {
        "fine": fine,
        "middle": middle,
        "blur": max(0.0, contrast - fine) / 2 + max(0.0, contrast - middle) / 2,
        "noise": noise,
    }


def in_edit(detail: Detail) -> dict[str, float]:
    """Compare the detail inside the edited region before and after the edit, and subtract the change of similar blocks
    elsewhere.

    Blocks that now show another object are compared only with their surroundings.
    """
    weights = detail.inside * detail.sameness
    around = detail.outside > 0.5
    figures = dict.fromkeys(("lost", "noise", "odd", "kept"), math.nan)
    if detail.inside.any():
        figures["kept"] = float(weights.sum() / detail.inside.sum())
    if detail.inside.sum() >= 0.5 and around.sum() >= 5:
        # how far the edit's mean detail is outside the range of most of the image, in octaves
        level = 0.5 * np.log2(detail.texture_after + _SILENT)
        mean = float(np.average(level, weights=detail.inside))
        low, high = np.quantile(level[around], [0.1, 0.9])
        figures["odd"] = max(0.0, low - mean, mean - high)
    if weights.sum() >= 0.5:
        # Detail can be lost only in blocks that had some; noise is visible everywhere.
        had = weights * detail.texture / (detail.texture + _SMOOTH)
        elsewhere = _expected(detail, detail.fine, around)
        fine = detail.fine - elsewhere
        middle = detail.middle - _expected(detail, detail.middle, around)
        lost = [-weighted_median(band, had) for band in (fine, middle)]
        figures["lost"] = float(np.maximum(0.0, lost).mean())
        added = detail.texture_after - detail.texture * 4.0**elsewhere
        figures["noise"] = np.sqrt(np.maximum(0.0, weighted_median(added, weights)))
    return figures


def weighted_median(values: Array, weights: Array) -> float:
    """Return the weighted median, which a line along the contour hardly affects, or NaN if all weights are zero."""
    order = np.argsort(values, axis=None)
    heap = np.cumsum(weights.ravel()[order])
    if not heap[-1] > 0:
        return math.nan
    return float(values.ravel()[order][int(np.searchsorted(heap, heap[-1] / 2))])


def _expected(detail: Detail, ratio: Array, around: Array) -> Array:
    """Return the change of other blocks that have as much texture. Blur removes most from the blocks with the most
    texture."""
    texture = np.log2(detail.texture + _SILENT)
    if around.sum() < 24:
        return np.zeros_like(ratio)
    edges = np.quantile(texture[around], np.linspace(0, 1, 7))
    bins = np.clip(np.searchsorted(edges, texture[around]) - 1, 0, 5)
    medians = [
        float(np.median(ratio[around][bins == k])) if (bins == k).any() else 0.0
        for k in range(6)
    ]
    expected: Array = np.interp(texture, (edges[:-1] + edges[1:]) / 2, medians)
    return expected


def damage(scene: Scene) -> dict[str, float]:
    """Measure artefacts of coding and of the value range, after minus before: 8 x 8 blocks, flat steps, and clipped
    lights and shadows."""
    before, after = (_traces(v.fine) for v in (scene.before, scene.after))
    return {name: after[name] - before[name] for name in after}


def _traces(gray: Array) -> dict[str, float]:
    steps = np.abs(np.diff(gray, axis=1))
    grids = []
    for profile in (steps.mean(axis=0), np.abs(np.diff(gray, axis=0)).mean(axis=1)):
        usable = len(profile) // 8 * 8
        if usable >= 16:
            # how much larger steps are on every eighth line, as a logarithm
            logarithms = np.log2(profile[:usable].reshape(-1, 8) + 1e-3)
            by_phase = logarithms.mean(axis=0)
            grids.append(float(by_phase.max() - np.median(by_phase)))
    return {
        "blocks": max(grids, default=math.nan),
        "flat": float((steps < 0.5).mean()),
        "clipped": float(((gray <= 2) | (gray >= 253)).mean()),
    }
