"""Lighting edits: differences that light explains, and differences that it does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import cv2
import numpy as np

from editjudge.vision.measured.change import Change
from editjudge.vision.measured.factors import percent, position
from editjudge.vision.measured.scene import Array, Scene
from editjudge.vision.measured.structure import structure_map

LightDifference: TypeAlias = tuple[
    str, Literal["allowed", "not allowed", "unsure", "ignored"]
]
"""Description of a difference, and its mark."""

_BROKEN = 0.25
"""Correlation of local structure below which light alone cannot explain the difference."""
_DOUBTFUL = 0.5
_LEAST = 0.001
"""Share of the image from which an area with other structure is an object, not the edge of a highlight."""
_EVEN = 12.0
"""Variance of colour among neighbouring pixels below which they were painted and not photographed. JPEG leaves some."""


def differences(scene: Scene, change: Change) -> list[LightDifference]:
    """Return every difference that can be separated from the others, and whether light explains it."""
    listed: list[LightDifference] = []
    marks = np.zeros(scene.shape, np.uint8)
    for mark in _marks(scene):
        marks |= mark
        size = percent(float(mark.mean()))
        sentence = f"An instruction mark in the input, {position(mark)}, {size} of the picture, is gone"
        listed.append((sentence, "ignored"))
    listed += _content(scene, cv2.dilate(marks, np.ones((25, 25), np.uint8)) > 0)
    listed += _light(scene, change)
    if not listed and not change.nothing:
        changed = _region(change.visible > 1)
        listed.append((f"{changed} may differ by more than lighting", "unsure"))
    return listed


def _region(part: Array) -> str:
    return f"{percent(float(part.mean()))} of the picture, {position(part)},"


def _light(scene: Scene, change: Change) -> Iterator[LightDifference]:
    moved = scene.after.lightness - scene.before.lightness
    for name, lit in (("brighter", moved > 4), ("darker", moved < -4)):
        # if the share is very small, most of it could be noise
        part = lit if lit.mean() > 0.01 else lit & (change.visible > 1)
        if part.mean() > 0.002:
            by = float(np.abs(moved[part]).mean())
            yield f"{_region(part)} is {name} by {by:.0f} of 100", "allowed"
    if change.tint > 3:
        sentence = f"All colours shifted together by {change.tint:.0f} Lab units"
        yield sentence, "allowed"


def _content(scene: Scene, ignored: Array) -> Iterator[LightDifference]:
    """Yield areas whose structure changed or may have changed, and areas with a hue that lighting cannot explain."""
    likeness, weight = structure_map(scene, light=True)
    size = (likeness.shape[1], likeness.shape[0])
    valid = (scene.valid > 0) & ~ignored
    small = cv2.resize(valid.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST)
    strong = (small > 0) & (weight > 0.6)
    for part in _parts(strong & (likeness < _BROKEN), _LEAST):
        yield f"{_region(part)} has a different structure than before", "not allowed"
    doubtful = strong & (likeness >= _BROKEN) & (likeness < _DOUBTFUL)
    for part in _parts(doubtful, 8 * _LEAST):
        yield f"{_region(part)} may have a different structure than before", "unsure"
    for part in _parts(_foreign(scene) & valid, 4 * _LEAST):
        yield f"{_region(part)} has a hue that lighting cannot explain", "not allowed"


def _foreign(scene: Scene) -> Array:
    """Return the pixels where the surface itself changed colour: their hue rotated by much more than the rest of the
    image."""
    before, after = (
        cv2.GaussianBlur(v.lab, (0, 0), 3.0) for v in (scene.before, scene.after)
    )
    # More light on a surface scales its chroma like L + 16: both grow with the cube root of luminance.
    stronger = (after[..., :1] + 16) / (np.maximum(before[..., :1], 0) + 16)
    delta = after[..., 1:] - before[..., 1:] * stronger
    common = np.median(delta.reshape(-1, 2), axis=0)
    # coloured light shifts all surfaces by similar angles, within about 20 degrees
    turned = np.linalg.norm(delta - common, axis=-1) > 30.0
    # If one channel is clipped, orange turns yellow and yellow white; black had no hue.
    clipped = cv2.cvtColor(scene.after.lab, cv2.COLOR_Lab2RGB).max(axis=-1) > 0.98
    turned &= ~clipped & (np.minimum(before[..., 0], after[..., 0]) > 8)
    kernel = np.ones((5, 5), np.uint8)
    foreign: Array = cv2.morphologyEx(turned.astype(np.uint8), cv2.MORPH_OPEN, kernel)
    return foreign > 0


def _parts(changed: Array, least: float) -> list[Array]:
    """Return the largest connected parts, at most five, that cover at least this share of the image."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(
        changed.astype(np.uint8), connectivity=8
    )
    areas = stats[:, cv2.CC_STAT_AREA]
    large = [k for k in range(1, count) if areas[k] >= least * changed.size]
    return [labels == k for k in sorted(large, key=lambda k: -areas[k])[:5]]


def _marks(scene: Scene) -> Iterator[Array]:
    """Yield arrows and guides in the input that are gone: vivid, thin shapes of one colour that no longer stand out."""
    lab = scene.before.lab
    mean = cv2.blur(lab, (3, 3))
    spread = (cv2.blur(lab * lab, (3, 3)) - mean * mean).sum(axis=-1)
    drawn = (np.linalg.norm(lab[..., 1:], axis=-1) > 45) & (spread < _EVEN)
    count, labels, stats, _ = cv2.connectedComponentsWithStats(
        drawn.astype(np.uint8), connectivity=8
    )
    for k in range(1, count):
        share = stats[k, cv2.CC_STAT_AREA] / drawn.size
        if not 0.0008 < share < 0.06:  # a leaf or a lamp is smaller, an object larger
            continue
        part = labels == k
        one_colour = float(np.linalg.norm(lab[part].std(axis=0))) <= 5
        if one_colour and _fill(part) <= 0.72 and _is_gone(scene, part):
            yield part.astype(np.uint8)


def _is_gone(scene: Scene, part: Array) -> bool:
    """Whether the shape no longer differs from its surroundings, or no longer has one colour, whatever the light."""
    shape = part.astype(np.uint8)
    outer = cv2.dilate(shape, np.ones((15, 15), np.uint8))
    ring = (outer - cv2.dilate(shape, np.ones((7, 7), np.uint8))) > 0
    apart = []
    spread = []
    for lab in (scene.before.lab, scene.after.lab):
        difference = lab[part].mean(axis=0) - lab[ring].mean(axis=0)
        apart.append(float(np.linalg.norm(difference)))
        spread.append(float(np.linalg.norm(lab[part].std(axis=0))))
    # A mark is drawn to be visible, so fainter shapes are part of the scene.
    faded = apart[1] < 0.4 * apart[0] or spread[1] > 3 * spread[0] + 8
    return apart[0] > 25 and faded


def _fill(part: Array) -> float:
    """Return how much of its smallest box, upright or rotated, a shape fills; 0 for a line, whose box is thin."""
    points = np.argwhere(part)[:, ::-1].astype(np.float32)
    _, (width, height), _ = cv2.minAreaRect(points)
    thin = min(width, height) / max(1.0, width, height)
    return 0.0 if thin < 0.25 else float(part.sum() / max(1.0, width * height))
