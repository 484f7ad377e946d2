"""Colour and light of the edit against its surroundings and against what stood there."""

from __future__ import annotations

import math

import cv2
import numpy as np

from editjudge.measured.change import Change
from editjudge.measured.scene import Array, Scene

_SIDE = 96
"""Longest side on which shading is seen; finer is texture."""


def find_shading(scene: Scene, change: Change, likeness: Array) -> dict[str, float]:
    """The slope of light that the edit added, inside and outside, and how its colours stand to those around."""
    inside, outside, before, after = map(
        _small, (change.inside.astype(np.float32), change.outside.astype(np.float32), change.expected, scene.after.lab)
    )
    ratio = _log_light(after) - _log_light(before)
    # Where another thing stands now, light and surface cannot be told apart.
    same_thing = (
        inside * np.clip(cv2.resize(likeness, inside.shape[::-1], interpolation=cv2.INTER_AREA) - 0.4, 0, 0.4) / 0.4
    )
    ins, outs = _slope(ratio, same_thing), _slope(ratio, outside)
    return {
        "slope inside": float(np.hypot(*ins)),
        "slope outside": float(np.hypot(*outs)),
        "slope against": float(np.hypot(ins[0] - outs[0], ins[1] - outs[1])),
        **_colours(before, after, inside, outside),
    }


def _small(plane: Array) -> Array:
    height, width = plane.shape[:2]
    scale = min(1.0, _SIDE / max(height, width))
    size = (max(4, round(width * scale)), max(4, round(height * scale)))
    return cv2.resize(plane, size, interpolation=cv2.INTER_AREA)


def _log_light(lab: Array) -> Array:
    """Stops of light: L to luminance is about a cube; 6 keeps the black of both pictures from deciding."""
    light: Array = 3 * np.log2((np.maximum(lab[..., 0], 0) + 16.0) / 116.0 + 0.05)
    return light


def _slope(ratio: Array, weight: Array) -> tuple[float, float]:
    """Change in stops across the extent of the weighted part, right and down; NaN where there is next to none."""
    total = float(weight.sum())
    if total < 6:
        return math.nan, math.nan
    ys, xs = np.mgrid[: ratio.shape[0], : ratio.shape[1]].astype(np.float64)
    cx, cy = ((c * weight).sum() / total for c in (xs, ys))
    sx, sy = (max(1.0, float(np.sqrt(((c - m) ** 2 * weight).sum() / total))) for c, m in ((xs, cx), (ys, cy)))
    design = np.stack([np.ones_like(xs), (xs - cx) / sx, (ys - cy) / sy], -1).reshape(-1, 3)
    w = weight.reshape(-1, 1)
    plane = np.linalg.solve(design.T @ (design * w) + 1e-3 * np.eye(3), (design * w).T @ ratio.reshape(-1))
    # From one end of an even spread to the other are 3.5 of its standard deviations.
    return float(3.5 * plane[1]), float(3.5 * plane[2])


def _colours(before: Array, after: Array, inside: Array, outside: Array) -> dict[str, float]:
    """Whether colours inside the edit are ones that the picture has."""
    if inside.sum() < 2 or outside.sum() < 20:
        return dict.fromkeys(("light step", "vivid", "contrast"), math.nan)

    def mean(lab: Array, weight: Array) -> Array:
        return np.average(lab.reshape(-1, lab.shape[-1]), axis=0, weights=weight.reshape(-1))

    chroma = [np.linalg.norm(lab[..., 1:], axis=-1)[..., None] for lab in (before, after)]
    was, now = mean(before, inside), mean(after, inside)
    around = after[outside > 0.5]
    usual = float(np.quantile(np.linalg.norm(around[:, 1:], axis=1), 0.95)) if len(around) else 0.0
    spread = [float(np.sqrt(mean((lab[..., :1] - m[0]) ** 2, inside)[0])) for lab, m in ((before, was), (after, now))]
    return {
        "light step": float(abs(now[0] - was[0])),
        "vivid": max(0.0, float(mean(chroma[1], inside)[0]) - max(usual, float(mean(chroma[0], inside)[0]))),
        "contrast": float(np.log2((spread[1] + 2) / (spread[0] + 2))),
    }
