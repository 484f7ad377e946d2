"""Whether things are still the same things: local structure, whatever its colour and light."""

from __future__ import annotations

import math

import cv2
import numpy as np

from editjudge.measured.change import Change
from editjudge.measured.scene import Array, Scene

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
        likeness = likeness * (1 - _ramp(before, *_PRESENT) * (1 - _ramp(after, *_VANISHED)))
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

    ma, mb = mean(a), mean(b)
    va, vb = np.maximum(mean(a * a) - ma * ma, 0), np.maximum(mean(b * b) - mb * mb, 0)
    # The constant makes windows without contrast alike, as they are to the eye.
    likeness = (mean(a * b) - ma * mb + _CONTRAST) / (np.sqrt(va * vb) + _CONTRAST)
    return np.clip(likeness, -1, 1), va, vb


def alike(likeness: Array) -> Array:
    """Where the thing is still the same one, 0 to 1."""
    share: Array = np.clip((likeness - 0.55) / 0.35, 0, 1)
    return share


def share_kept(likeness: Array, inside: Array) -> float:
    """Of the edited region, the share in which things are still the same; NaN where there is no region."""
    same = cv2.resize(alike(likeness), inside.shape[::-1], interpolation=cv2.INTER_AREA)
    return float((inside * same).sum() / inside.sum()) if inside.any() else math.nan


def trust(same: float, kept_in_light: float, lost_outside: float, share: float) -> dict[str, float]:
    """How far measures that compare a thing with itself can be held against an edit, 0 to 1; NaN where not known.

    Defects alone leave nine tenths of a thing in place, and everything around it. Of rated edits three of four draw it
    anew and leave less than seven, many the whole picture too: what differs there is another drawing, not a fault.
    """
    edit, light = (float(np.clip((part - 0.7) / 0.2, 0, 1)) for part in (same, kept_in_light))
    return {
        "thing": 1.0,  # until the instruction says that the thing itself was to be drawn
        "edit": edit,
        "light": light * min(1.0, share / 0.02),  # on a small thing a slope of light is as likely a part of the thing
        "whole": float(np.clip((0.05 - lost_outside) / 0.03, 0, 1)),
    }


def redrawn(scene: Scene) -> dict[str, float]:
    """How much of the whole picture was drawn anew, at the scale of texture, of parts and of things."""
    shares = {}
    for name, side in (("texture", 512), ("parts", 256), ("things", 64)):
        likeness, before, after = _likeness(scene, side, 5)
        shares[name] = _average(np.clip((0.8 - likeness) / 0.8, 0, 1), _recognisable(before, after))
        shares[f"{name} worst"] = 1 - float(np.quantile(likeness, 0.1))
        shares[f"{name} typical"] = 1 - float(np.median(likeness))
    return shares


def turned(scene: Scene, change: Change) -> dict[str, float]:
    """How far the directions of edges moved, cell by cell: drawn anew counts, repainted or relit does not."""
    before, after = (_directions(_reduced(v.lightness, _SIDE)) for v in (scene.before, scene.after))
    moved = np.linalg.norm(before - after, axis=-1)
    inside, outside = (
        cv2.resize(part.astype(np.float32), (_CELLS, _CELLS), interpolation=cv2.INTER_AREA)
        for part in (change.inside, change.outside)
    )
    return {"all": float(moved.mean()), "inside": _average(moved, inside), "outside": _average(moved, outside)}


def _directions(plane: Array) -> Array:
    """Edge strength by direction in each cell, of unit length where there are edges."""
    strength, angle = cv2.cartToPolar(cv2.Sobel(plane, cv2.CV_32F, 1, 0), cv2.Sobel(plane, cv2.CV_32F, 0, 1))
    sector = (angle * (8 / np.pi)).astype(np.int32) % 8
    cells = [
        cv2.resize(np.where(sector == k, strength, np.float32(0)), (_CELLS, _CELLS), interpolation=cv2.INTER_AREA)
        for k in range(8)
    ]
    stacked = np.stack(cells, axis=-1)
    unit: Array = stacked / (np.linalg.norm(stacked, axis=-1, keepdims=True) + _FAINT)
    return unit


def find_structure(scene: Scene, change: Change, likeness: Array, weight: Array) -> dict[str, float]:
    size = likeness.shape[1], likeness.shape[0]
    inside, outside, valid = (
        cv2.resize(m.astype(np.float32), size, interpolation=cv2.INTER_AREA)
        for m in (change.inside, change.outside, scene.valid)
    )
    lost = np.clip((0.92 - likeness) / 0.92, 0, 1)  # above, it is the same thing, encoded again or slightly redrawn
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
    size = (max(8, round(plane.shape[1] * scale)), max(8, round(plane.shape[0] * scale)))
    small = cv2.resize(plane, size, interpolation=cv2.INTER_AREA)
    return small if side < 256 else cv2.GaussianBlur(small, (7, 7), 1.0)
