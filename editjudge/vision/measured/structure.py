"""Local structure and fine detail: whether things are still the same things, and what was blurred or made noisy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np

from editjudge.vision.measured.change import Change
from editjudge.vision.measured.scene import Array, Scene, area

_SIDE = 256
"""Structure is compared at this size: parts of things remain, texture and noise do not."""
_WINDOW = 9
"""Pixels at that size: about the extent of an eye in a portrait; of 5 to 25, this and 5 agree best with people."""
_CONTRAST = 9.0
"""Variance of lightness below which a window shows nothing that could be recognised."""

_VANISHED = (2.25, 9.0)
"""Variance of lightness at which structure is gone altogether, and from which it is still seen."""
_PRESENT = (9.0, 36.0)
"""Variance from which structure was there, and was plainly there."""

_CELLS = 24
"""Cells along each side in which edges are counted by direction: about ten pixels each."""
_FAINT = 4.0
"""Mean edge strength of a cell that shows next to nothing."""


def structure_map(scene: Scene, *, light: bool = False) -> tuple[Array, Array]:
    """Local correlation of lightness before and after, and how much there was to recognise, at a small size.

    Structure that was there and is gone has no likeness left, unless `light` may have drowned it.
    """
    likeness, before, after = _likeness(scene, _SIDE, _WINDOW)
    if not light:
        likeness = likeness * (
            1 - _ramp(before, *_PRESENT) * (1 - _ramp(after, *_VANISHED))
        )
    return likeness, _recognisable(before, after)


def _ramp(values: Array, low: float, high: float) -> Array:
    ramp: Array = np.clip((values - low) / (high - low), 0, 1)
    return ramp


def _recognisable(before: Array, after: Array) -> Array:
    variance = np.maximum(before, after)
    return variance / (variance + _CONTRAST)


def _likeness(scene: Scene, side: int, window: int) -> tuple[Array, Array, Array]:
    """Local correlation of lightness, and the local variance before and after."""
    a, b = (_reduced(v.lightness, side) for v in (scene.before, scene.after))

    def mean(plane: Array) -> Array:
        return cv2.boxFilter(plane, cv2.CV_32F, (window, window))

    ma = mean(a)
    mb = mean(b)
    va = np.maximum(mean(a * a) - ma * ma, 0)
    vb = np.maximum(mean(b * b) - mb * mb, 0)
    # The constant makes windows without contrast alike, as they are to the eye.
    likeness = (mean(a * b) - ma * mb + _CONTRAST) / (np.sqrt(va * vb) + _CONTRAST)
    return np.clip(likeness, -1, 1), va, vb


def alike(likeness: Array) -> Array:
    """Return how far each window still shows the same thing, 0 to 1."""
    share: Array = np.clip((likeness - 0.55) / 0.35, 0, 1)
    return share


def share_kept(likeness: Array, inside: Array) -> float:
    """Return the share of the edited region in which things are still the same; NaN if there is no region."""
    same = area(alike(likeness), inside.shape[::-1])
    return float((inside * same).sum() / inside.sum()) if inside.any() else math.nan


def trust(
    same: float, kept_in_light: float, lost_outside: float, share: float
) -> dict[str, float]:
    """How far measures that compare a thing with itself can be held against an edit, 0 to 1; NaN where not known.

    Defects alone leave nine tenths of a thing in place, and everything around it. Of rated edits three of four draw it
    anew and leave less than seven, many the whole picture too: what differs there is another drawing, not a fault.
    """
    edit, light = (
        float(np.clip((part - 0.7) / 0.2, 0, 1)) for part in (same, kept_in_light)
    )
    return {
        "thing": 1.0,  # until the instruction says that the thing itself was to be drawn
        "edit": edit,
        "light": light
        * min(
            1.0, share / 0.02
        ),  # on a small thing a slope of light is as likely a part of the thing
        "whole": float(np.clip((0.05 - lost_outside) / 0.03, 0, 1)),
    }


def redrawn(scene: Scene) -> dict[str, float]:
    """How much of the whole picture was drawn anew, at the scale of texture, of parts and of things."""
    shares = {}
    for name, side in (("texture", 512), ("parts", 256), ("things", 64)):
        likeness, before, after = _likeness(scene, side, 5)
        shares[name] = _average(
            np.clip((0.8 - likeness) / 0.8, 0, 1), _recognisable(before, after)
        )
        shares[f"{name} worst"] = 1 - float(np.quantile(likeness, 0.1))
        shares[f"{name} typical"] = 1 - float(np.median(likeness))
    return shares


def turned(scene: Scene, change: Change) -> dict[str, float]:
    """How far the directions of edges moved, cell by cell: drawn anew counts, repainted or relit does not."""
    before, after = (
        _directions(_reduced(v.lightness, _SIDE)) for v in (scene.before, scene.after)
    )
    moved = np.linalg.norm(before - after, axis=-1)
    inside, outside = (
        area(part.astype(np.float32), (_CELLS, _CELLS))
        for part in (change.inside, change.outside)
    )
    return {
        "all": float(moved.mean()),
        "inside": _average(moved, inside),
        "outside": _average(moved, outside),
    }


def _directions(plane: Array) -> Array:
    """Edge strength by direction in each cell, of unit length where there are edges."""
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
        area(m.astype(np.float32), size)
        for m in (change.inside, change.outside, scene.valid)
    )
    # above, it is the same thing, encoded again or slightly redrawn
    lost = np.clip((0.92 - likeness) / 0.92, 0, 1)
    return {
        "lost inside": _average(lost, weight * inside),
        "lost outside": _average(lost, weight * outside),
        "lost": _average(lost, weight * valid),
        "lost share": float((lost * weight * valid > 0.5).mean()),
        "recognisable": float((weight * valid).mean()),
    }


def _average(values: Array, weight: Array) -> float:
    """NaN where there is nothing to average over."""
    total = float(weight.sum())
    return float((values * weight).sum() / total) if total > 1.0 else math.nan


def _reduced(plane: Array, side: int) -> Array:
    scale = min(1.0, side / max(plane.shape))
    size = (
        max(8, round(plane.shape[1] * scale)),
        max(8, round(plane.shape[0] * scale)),
    )
    small = area(plane, size)
    return small if side < 256 else cv2.GaussianBlur(small, (7, 7), 1.0)


# --- fine detail, block by block ----------------------------------------------------------------------------

_BLOCK = 16
"""Pixels at fine size: four periods of the coarsest band that is measured."""
_SILENT = 0.6
"""Energy of rounding to whole gray levels and of faint compression; ratios below it are ratios of noise."""
_SMOOTH = 4.0
"""Energy of a block in which the eye sees no texture, and therefore sees noise."""


@dataclass(frozen=True)
class Detail:
    fine: Array
    """Log2 ratio of energy in the finest octave, after over before, by block."""
    middle: Array
    """The same an octave coarser."""
    contrast: float
    """Log2 ratio of the contrast of large shapes: a veil over the picture lowers all bands by it."""
    texture: Array
    """Energy before, by block: where it is small there was no detail to lose."""
    texture_after: Array
    inside: Array
    """Share of each block that the edit visibly covers."""
    outside: Array
    kept: Array
    """How far each block still shows the same thing, 0 to 1."""


def find_detail(scene: Scene, change: Change, likeness: Array) -> Detail:
    before = _bands(scene.before.fine)
    after = _bands(scene.after.fine)
    height, width = before[0].shape
    seen = change.inside & (scene.valid > 0)
    return Detail(
        fine=_ratio(before[0], after[0]),
        middle=_ratio(before[1], after[1]),
        contrast=_contrast(scene.after.lightness) - _contrast(scene.before.lightness),
        texture=before[0],
        texture_after=after[0],
        inside=area(seen.astype(np.float32), (width, height)),
        outside=area(change.outside.astype(np.float32), (width, height)),
        kept=area(alike(likeness), (width, height)),
    )


def _bands(gray: Array) -> list[Array]:
    """Mean energy of two bands in each block."""
    soft = cv2.GaussianBlur(gray, (5, 5), 0.9)
    softer = cv2.GaussianBlur(soft, (9, 9), 2.0)
    size = (max(2, gray.shape[1] // _BLOCK), max(2, gray.shape[0] // _BLOCK))
    bands = (gray - soft, soft - softer)
    return [area(cv2.multiply(b, b), size) for b in bands]


def _contrast(lightness: Array) -> float:
    return float(np.log2(area(lightness, (32, 32)).std() + 0.5))


def _ratio(before: Array, after: Array) -> Array:
    ratio: Array = 0.5 * np.log2((after + _SILENT) / (before + _SILENT))
    return ratio


def everywhere(detail: Detail) -> dict[str, float]:
    """Measure the detail of the whole image by medians, so that one patch does not decide."""
    around = detail.outside > 0.5
    if around.mean() < 0.15:  # the edit is nearly the whole picture
        around = np.ones_like(around)
    textured = around & (detail.texture > np.quantile(detail.texture[around], 0.4))
    smooth = around & (
        detail.texture <= max(_SMOOTH, float(np.quantile(detail.texture[around], 0.2)))
    )
    if not textured.any():
        textured = around
    fine, middle = (float(np.median(r[textured])) for r in (detail.fine, detail.middle))
    contrast = min(0.0, detail.contrast)
    return {
        "fine": fine,
        "middle": middle,
        "blur": max(0.0, contrast - fine) / 2 + max(0.0, contrast - middle) / 2,
        "noise": max(0.0, float(np.median(detail.fine[smooth])))
        if smooth.any()
        else math.nan,
    }


def in_edit(detail: Detail) -> dict[str, float]:
    """Detail inside the edit against what it was, less what happened to blocks of like texture elsewhere.

    Blocks that show another thing now are no measure of its detail: those are only held against the surroundings.
    """
    kept = detail.inside * detail.kept
    around = detail.outside > 0.5
    odd = _odd(detail, around)
    share = float(kept.sum() / detail.inside.sum()) if detail.inside.any() else math.nan
    if kept.sum() < 0.5:
        return {"lost": math.nan, "noise": math.nan, "odd": odd, "kept": share}
    fine, middle = (
        r - _expected(detail, r, around) for r in (detail.fine, detail.middle)
    )
    # Detail is lost where there was some; noise shows everywhere.
    had = kept * detail.texture / (detail.texture + _SMOOTH)
    lost = float(
        np.maximum(0.0, [-weighted_median(band, had) for band in (fine, middle)]).mean()
    )
    added = detail.texture_after - detail.texture * 4.0 ** _expected(
        detail, detail.fine, around
    )
    noise = float(np.sqrt(np.maximum(0.0, weighted_median(added, kept))))
    return {"lost": lost, "noise": noise, "odd": odd, "kept": share}


def weighted_median(values: Array, weights: Array) -> float:
    """The weighted median, which a line along the rim does not move; NaN without any weight."""
    order = np.argsort(values, axis=None)
    heap = np.cumsum(weights.ravel()[order])
    if not heap[-1] > 0:
        return math.nan
    return float(values.ravel()[order][int(np.searchsorted(heap, heap[-1] / 2))])


def _expected(detail: Detail, ratio: Array, around: Array) -> Array:
    """Return what happened elsewhere to blocks with as much texture: blur takes most where there is most."""
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


def _odd(detail: Detail, around: Array) -> float:
    """How far the edit's mean detail lies outside what most of the picture has, in octaves."""
    if detail.inside.sum() < 0.5 or around.sum() < 5:
        return math.nan
    level = 0.5 * np.log2(detail.texture_after + _SILENT)
    mine = float(np.average(level, weights=detail.inside))
    low, high = np.quantile(level[around], [0.1, 0.9])
    return float(max(0.0, low - mine, mine - high))


def damage(scene: Scene) -> dict[str, float]:
    """Traces of coding and of range: 8 x 8 blocks, flat steps, clipped lights and shadows; after less before."""
    before, after = (_traces(v.fine) for v in (scene.before, scene.after))
    return {name: after[name] - before[name] for name in after}


def _traces(gray: Array) -> dict[str, float]:
    steps = np.abs(np.diff(gray, axis=1))
    columns = steps.mean(axis=0) + 1e-3
    rows = np.abs(np.diff(gray, axis=0)).mean(axis=1) + 1e-3
    return {
        "blocks": max(
            _grid(columns),
            _grid(rows),
            key=lambda grid: -math.inf if math.isnan(grid) else grid,
        ),
        "flat": float((steps < 0.5).mean()),
        "clipped": float(((gray <= 2) | (gray >= 253)).mean()),
    }


def _grid(profile: Array) -> float:
    """How much larger steps are on every eighth line, as a logarithm."""
    usable = len(profile) // 8 * 8
    if usable < 16:
        return math.nan
    by_phase = np.log2(profile[:usable].reshape(-1, 8)).mean(axis=0)
    return float(by_phase.max() - np.median(by_phase))
