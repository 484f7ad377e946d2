"""The rim of the edit: colours that step there within two pixels, where the picture itself has no step."""

from __future__ import annotations

import math

import cv2
import numpy as np

from editjudge.measured.change import Change
from editjudge.measured.scene import Array, Scene

_REACH = 8
"""Pixels looked at on both sides of the rim: the region is known to a few pixels only."""
_ALONG = 9
"""Pixels averaged along the rim: a seam runs along it, noise and texture do not."""
_SOFT = 1.6
"""Times the steps two pixels away: as much as a transition feathered by a Gaussian of two pixels has in its middle."""

_OUTLINE = 0.5
"""Of the steps that stood there before: a recoloured thing has as much more contrast at its outline."""
_LEAKED = 5.0
"""Where a fifth of the picture changed beside the edit, rims are those of what leaked, and say nothing of a seam."""
_SHORT = 400
"""Pixels: a shorter rim is that of a small thing, where its own outline and a seam cannot be told apart."""
_USUAL = 1.2
"""Of eleven steps in noise, the largest is somewhat more than this many times the upper quartile."""


def find_seam(scene: Scene, change: Change) -> dict[str, float]:
    """The step that runs along the rim, in colour units, beyond what stood there, a soft transition and noise."""
    profiles = _profiles(np.concatenate([scene.after.lab, change.expected], axis=2), change.region)
    if profiles is None:
        return {"step": math.nan, "sharp": math.nan, "length": 0.0}  # no rim long enough to average along
    before = profiles[..., 3:]
    added = profiles[..., :3] - before
    steps = _steps(added)
    soft = (steps[:, :-4] + steps[:, 4:]) / 2
    # A thing recoloured up to its own outline has no seam.
    beyond = steps[:, 2:-2] - _SOFT * soft - _OUTLINE * _steps(before)[:, 2:-2]
    excess = np.maximum(0.0, beyond.max(axis=1) - _USUAL * np.quantile(steps, 0.75, axis=1))
    excess = np.linalg.norm(excess, axis=1)
    return {
        "step": float(excess.mean()) * min(1.0, len(profiles) / _SHORT, max(0.0, 1 - _LEAKED * _stray(change))),
        "sharp": float((excess > 3.0).mean()),  # a line of 3 colour units is just seen on an even surface
        "length": float(len(profiles)),
    }


def _stray(change: Change) -> float:
    return float(((change.visible > 1) & (change.outside > 0)).mean())


def _steps(profiles: Array) -> Array:
    """Colour steps over two pixels, since the rim is drawn on a grid."""
    steps: Array = np.abs(profiles[:, 2:] - profiles[:, :-2])
    return steps


def _profiles(planes: Array, region: Array) -> Array | None:
    """Pictures sampled across the rim: points along it x offsets x channels."""
    contours, _ = cv2.findContours(region, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    height, width = region.shape
    profiles = []
    for contour in contours:
        points = contour[:, 0].astype(np.float32)
        if len(points) < 4 * _ALONG:
            continue
        tangent = _smooth(np.roll(points, -3, 0) - np.roll(points, 3, 0))
        normal = np.stack([-tangent[:, 1], tangent[:, 0]], 1)
        normal /= np.linalg.norm(normal, axis=1, keepdims=True) + 1e-6
        offsets = np.arange(-_REACH, _REACH + 1, dtype=np.float32)
        at = points[:, None] + offsets[:, None] * normal[:, None]
        inner = ((points > _REACH) & (points < (width - _REACH, height - _REACH))).all(axis=1)
        halves = (np.ascontiguousarray(planes[..., k : k + 3]) for k in range(0, planes.shape[2], 3))
        border = cv2.BORDER_REPLICATE
        sampled = [cv2.remap(half, at[..., 0], at[..., 1], cv2.INTER_LINEAR, borderMode=border) for half in halves]
        profiles.append(_smooth(np.concatenate(sampled, axis=-1))[inner])
    total = np.concatenate(profiles) if profiles else np.zeros((0,))
    return total if len(total) >= 4 * _ALONG else None


def _smooth(values: Array) -> Array:
    """Averaged along a closed rim."""
    half = _ALONG // 2
    padded = np.concatenate([values[-half:], values, values[:half]])
    summed = np.cumsum(np.concatenate([np.zeros_like(padded[:1]), padded]), axis=0, dtype=np.float64)
    mean: Array = ((summed[_ALONG:] - summed[:-_ALONG]) / _ALONG).astype(np.float32)
    return mean


def outline(region: Array, valid: Array) -> Array:
    """Pixels of the region at its rim, but not at the picture's."""
    inner = cv2.erode(region, np.ones((3, 3), np.uint8), borderType=cv2.BORDER_CONSTANT, borderValue=1)
    rim: Array = (region > 0) & (inner == 0) & (valid > 0)
    return rim
