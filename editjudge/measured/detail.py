"""Fine detail, block by block: what was blurred, roughened or made noisy, inside the edit and everywhere."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np

from editjudge.measured.change import Change
from editjudge.measured.scene import Array, Scene
from editjudge.measured.structure import alike

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
    before, after = _bands(scene.before.fine), _bands(scene.after.fine)
    height, width = before[0].shape
    seen = change.inside & (scene.valid > 0)
    return Detail(
        fine=_ratio(before[0], after[0]),
        middle=_ratio(before[1], after[1]),
        contrast=_contrast(scene.after.lightness) - _contrast(scene.before.lightness),
        texture=before[0],
        texture_after=after[0],
        inside=cv2.resize(seen.astype(np.float32), (width, height), interpolation=cv2.INTER_AREA),
        outside=cv2.resize(change.outside.astype(np.float32), (width, height), interpolation=cv2.INTER_AREA),
        kept=cv2.resize(alike(likeness), (width, height), interpolation=cv2.INTER_AREA),
    )


def _bands(gray: Array) -> list[Array]:
    """Mean energy of two bands in each block."""
    soft = cv2.GaussianBlur(gray, (5, 5), 0.9)
    softer = cv2.GaussianBlur(soft, (9, 9), 2.0)
    size = (max(2, gray.shape[1] // _BLOCK), max(2, gray.shape[0] // _BLOCK))
    bands = (gray - soft, soft - softer)
    return [cv2.resize(cv2.multiply(b, b), size, interpolation=cv2.INTER_AREA) for b in bands]


def _contrast(lightness: Array) -> float:
    return float(np.log2(cv2.resize(lightness, (32, 32), interpolation=cv2.INTER_AREA).std() + 0.5))


def _ratio(before: Array, after: Array) -> Array:
    ratio: Array = 0.5 * np.log2((after + _SILENT) / (before + _SILENT))
    return ratio


def everywhere(detail: Detail) -> dict[str, float]:
    """What happened to the detail of the whole picture: medians, so that one patch does not decide."""
    around = detail.outside > 0.5
    if around.mean() < 0.15:  # the edit is nearly the whole picture
        around = np.ones_like(around)
    textured = around & (detail.texture > np.quantile(detail.texture[around], 0.4))
    smooth = around & (detail.texture <= max(_SMOOTH, float(np.quantile(detail.texture[around], 0.2))))
    if not textured.any():
        textured = around
    fine, middle = (float(np.median(r[textured])) for r in (detail.fine, detail.middle))
    contrast = min(0.0, detail.contrast)
    return {
        "fine": fine,
        "middle": middle,
        "blur": max(0.0, contrast - fine) / 2 + max(0.0, contrast - middle) / 2,
        "noise": max(0.0, float(np.median(detail.fine[smooth]))) if smooth.any() else math.nan,
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
    fine, middle = (r - _expected(detail, r, around) for r in (detail.fine, detail.middle))
    # Detail is lost where there was some; noise shows everywhere.
    had = kept * detail.texture / (detail.texture + _SMOOTH)
    lost = float(np.maximum(0.0, [-weighted_median(band, had) for band in (fine, middle)]).mean())
    added = detail.texture_after - detail.texture * 4.0 ** _expected(detail, detail.fine, around)
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
    """What happened elsewhere to blocks with as much texture: blur takes most where there is most."""
    texture = np.log2(detail.texture + _SILENT)
    if around.sum() < 24:
        return np.zeros_like(ratio)
    edges = np.quantile(texture[around], np.linspace(0, 1, 7))
    bins = np.clip(np.searchsorted(edges, texture[around]) - 1, 0, 5)
    medians = [float(np.median(ratio[around][bins == k])) if (bins == k).any() else 0.0 for k in range(6)]
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
        "blocks": max(_grid(columns), _grid(rows), key=lambda grid: -math.inf if math.isnan(grid) else grid),
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
