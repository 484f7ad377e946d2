"""The probability that more than the light changed between two images, window by window.

Light scales the colours of a surface, or adds to them, but leaves its texture. The edges of the input are therefore
still present, even under the edge of a new shadow. New content has other edges than the input, lacks those of the
input, or has colours that the surroundings do not have. `local_evidence` measures this for each window. A small boosted
forest combines the measures into a probability. It was fitted by `bench/fit_illumination.py` to photographs under
simulated lights and with simulated changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from editjudge.vision.measured.forest import load
from editjudge.vision.measured.scene import BASE, Array, Scene, fit, view

FILE = Path(__file__).with_name("illumination.json")

_DARK = 0.02
"""Linear light that is added before taking logarithms. Below it, levels of 255 are too coarse to compare."""
_CELL = 4
"""Side in pixels of a cell, over which products of gradients are added up."""
_WINDOWS = {"near": 3, "wide": 7}
"""Side of each window in cells. A near window has 12 pixels, about an eye in a portrait; a wide one has 28, about the
face."""
_SURROUNDINGS = 11.0
"""Standard deviation, in cells, of the Gaussian that weights the surroundings of a window: about a tenth of the image."""
_FLAT = 1e-5
"""Squared gradient of an even surface after encoding. Windows with smaller gradients count as alike."""


def local_evidence(scene: Scene) -> tuple[tuple[str, ...], Array]:
    """Return the names of all measures, and their values for each window (rows x columns x measures)."""
    before = _planes(scene.before.lab)
    after = _planes(scene.after.lab)
    light = [before[0]], [after[0]]
    colour = before[1:3], after[1:3]
    maps: dict[str, Array] = {}
    for name, (old, new) in (("light", light), ("colour", colour)):
        sums = _products(old, new)
        for window, cells in _WINDOWS.items():
            maps |= _compared(f"{name}.{window}", *(_box(s, cells) for s in sums))
    ratios = [_cells(new - old) for old, new in zip(before[:3], after[:3], strict=True)]
    steps = [_box(r, 3) - cv2.GaussianBlur(r, (0, 0), _SURROUNDINGS) for r in ratios]
    maps["step.light"] = steps[0]
    maps["step.colour"] = cv2.magnitude(steps[1], steps[2])
    maps["bright"] = _box(_cells((after[3] > 0.98).astype(np.float32)), 7)
    maps["dark"] = _box(_cells((after[3] < 0.05).astype(np.float32)), 7)
    # A pattern of light is around the window too, new content mostly in it alone.
    for name in ("light.wide.apart", "colour.wide.apart"):
        around = cv2.GaussianBlur(maps[name], (0, 0), _SURROUNDINGS)
        maps[f"{name} beyond"] = maps[name] - around
    return tuple(maps), np.stack([*maps.values()], axis=-1)


def _planes(lab: Array) -> list[Array]:
    """Return the logarithm of the light, two logarithms of colour ratios, and the brightest channel, at base size."""
    scale = BASE / max(lab.shape[:2])
    if scale > 1:
        lab = cv2.resize(lab, None, fx=scale, fy=scale, interpolation=cv2.INTER_LINEAR)
    rgb = np.clip(cv2.cvtColor(lab, cv2.COLOR_Lab2RGB), 0, 1)
    red, green, blue = cv2.split(np.log(rgb**2.2 + _DARK))
    planes = (
        0.3 * red + 0.6 * green + 0.1 * blue,
        red - green,
        blue - (red + green) / 2,
    )
    return [*(cv2.GaussianBlur(p, (0, 0), 1.2) for p in planes), rgb.max(axis=-1)]


def _cells(plane: Array) -> Array:
    height, width = plane.shape
    size = (max(8, width // _CELL), max(8, height // _CELL))
    return cv2.resize(plane, size, interpolation=cv2.INTER_AREA)


def _box(plane: Array, cells: int) -> Array:
    return cv2.blur(plane, (cells, cells))


def _products(before: Sequence[Array], after: Sequence[Array]) -> tuple[Array, ...]:
    """Return, for each cell, the squared gradients before and after, and their product."""
    old, new, both = (np.zeros_like(before[0]) for _ in range(3))
    for a, b in zip(before, after, strict=True):
        for right, down in ((1, 0), (0, 1)):
            slope_a = cv2.Scharr(a, cv2.CV_32F, right, down) / 32
            slope_b = cv2.Scharr(b, cv2.CV_32F, right, down) / 32
            old += slope_a * slope_a
            new += slope_b * slope_b
            both += slope_a * slope_b
    return _cells(old), _cells(new), _cells(both)


def _compared(name: str, old: Array, new: Array, both: Array) -> dict[str, Array]:
    """Return how much of the old gradients is still present, how similar old and new gradients are, how strong each is,
    and how far apart they are."""
    old = np.maximum(old, 0)
    new = np.maximum(new, 0)
    apart = np.maximum(old + new - 2 * both, 0)
    return {
        f"{name}.again": np.clip((both + _FLAT) / (old + _FLAT), -1, 3),
        f"{name}.alike": (both + _FLAT) / (np.sqrt(old * new) + _FLAT),
        f"{name}.old": np.log(old + _FLAT),
        f"{name}.new": np.log(new + _FLAT),
        f"{name}.apart": np.log(apart + _FLAT),
    }


def unaligned(before: Array, after: Array) -> Scene:
    """Return both images without alignment, because new light can look like a shift by a few pixels."""
    first = view(before)
    height, width = first.rgb.shape[:2]
    second = view(fit(after, width, height))
    return Scene(first, second, np.ones(first.lab.shape[:2], np.uint8))


def content_chances(evidence: Array) -> Array:
    """Return, for each window, the probability that more than the light changed."""
    return smoothed(load(FILE).probability(evidence))


def smoothed(chances: Array) -> Array:
    """Return the mean over each window and its neighbours, because a change of content is larger than a window."""
    return cv2.blur(chances, (7, 7))
