"""Lighting edits: differences that light explains, against those that it does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np

from editjudge.vision.measured.change import Change
from editjudge.vision.measured.factors import percent, place
from editjudge.vision.measured.scene import Array, Scene
from editjudge.vision.measured.structure import structure_map

Mark = Literal["allowed", "not allowed", "unsure", "ignored"]


@dataclass(frozen=True)
class LightDifference:
    what: str
    mark: Mark

    @property
    def line(self) -> str:
        return f"{self.what}: {self.mark}"


_BROKEN = 0.25
"""Correlation of local structure below which no light makes the one out of the other."""
_DOUBTFUL = 0.5
_LEAST = 0.001
"""Share of the picture from which a place with another structure is an object, not a highlight's edge."""


_EVEN = 12.0
"""Variance of colour among neighbours below which they were painted, not photographed; JPEG leaves some."""


def differences(scene: Scene, change: Change) -> list[LightDifference]:
    """Every difference that can be told apart, with whether light explains it."""
    drawn = list(_marks(scene))
    marks = np.zeros(scene.shape, np.uint8)
    for _, where in drawn:
        marks |= where
    out = [difference for difference, _ in drawn]
    out += _content(scene, cv2.dilate(marks, np.ones((25, 25), np.uint8)))
    out += _light(scene, change)
    if not out and not change.nothing:
        seen = change.visible > 1
        words = f"{percent(float(seen.mean()))} of the picture, {place(seen)}, may differ by more than lighting"
        out.append(LightDifference(words, "unsure"))
    return out


def _light(scene: Scene, change: Change) -> Iterator[LightDifference]:
    moved = scene.after.lightness - scene.before.lightness
    for name, all_of_it in (("brighter", moved > 4), ("darker", moved < -4)):
        # Of very little, noise could be most.
        part = (
            all_of_it if all_of_it.mean() > 0.01 else all_of_it & (change.visible > 1)
        )
        if (share := float(part.mean())) > 0.002:
            by = float(np.abs(moved[part]).mean())
            yield LightDifference(
                f"{percent(share)} of the picture, {place(part)}, is {name} by {by:.0f} of 100",
                "allowed",
            )
    if change.tint > 3:
        yield LightDifference(
            f"All colours shifted together by {change.tint:.0f} Lab units", "allowed"
        )


def _content(scene: Scene, ignored: Array) -> Iterator[LightDifference]:
    """Places whose structure changed, or that hold colours which light does not make."""
    likeness, weight = structure_map(scene, light=True)
    size = (likeness.shape[1], likeness.shape[0])
    seen = (
        cv2.resize(scene.valid * (ignored == 0), size, interpolation=cv2.INTER_NEAREST)
        > 0
    )
    strong = seen & (weight > 0.6)
    yield from _places(
        strong & (likeness < _BROKEN),
        "has a different structure than before",
        "not allowed",
        _LEAST,
    )
    doubtful = strong & (likeness >= _BROKEN) & (likeness < _DOUBTFUL)
    yield from _places(
        doubtful, "may have a different structure than before", "unsure", 8 * _LEAST
    )
    foreign = (_foreign(scene) > 0) & (ignored == 0) & (scene.valid > 0)
    yield from _places(
        foreign, "has a hue that lighting cannot explain", "not allowed", 4 * _LEAST
    )


def _foreign(scene: Scene) -> Array:
    """Find where the colour of the surface itself changed: hue turned by a lot while the rest of the picture did not."""
    before, after = (
        cv2.GaussianBlur(v.lab, (0, 0), 3.0) for v in (scene.before, scene.after)
    )
    # More light on a surface scales its chroma as it scales L + 16: both go by the cube root of luminance.
    stronger = (after[..., :1] + 16) / (np.maximum(before[..., :1], 0) + 16)
    delta = after[..., 1:] - before[..., 1:] * stronger
    common = np.median(delta.reshape(-1, 2), axis=0)
    # coloured light moves surfaces alike, within about 20
    turned = np.linalg.norm(delta - common, axis=-1) > 30.0
    # Where one channel is clipped, orange turns yellow and yellow white; in black there was no hue.
    clipped = cv2.cvtColor(scene.after.lab, cv2.COLOR_Lab2RGB).max(axis=-1) > 0.98
    turned &= ~clipped & (np.minimum(before[..., 0], after[..., 0]) > 8)
    return cv2.morphologyEx(
        turned.astype(np.uint8), cv2.MORPH_OPEN, np.ones((5, 5), np.uint8)
    )


def _places(
    part: Array, what: str, mark: Mark, least: float
) -> Iterator[LightDifference]:
    count, labels, stats, _ = cv2.connectedComponentsWithStats(
        part.astype(np.uint8), connectivity=8
    )
    large = [
        k for k in range(1, count) if stats[k, cv2.CC_STAT_AREA] >= least * part.size
    ]
    for k in sorted(large, key=lambda k: -stats[k, cv2.CC_STAT_AREA])[:5]:
        share = percent(stats[k, cv2.CC_STAT_AREA] / part.size)
        yield LightDifference(
            f"{share} of the picture, {place(labels == k)}, {what}", mark
        )


def _marks(scene: Scene) -> Iterator[tuple[LightDifference, Array]]:
    """Arrows and guides in the input: vivid, thin shapes of one colour that no longer stand out."""
    lab = scene.before.lab
    mean = cv2.blur(lab, (3, 3))
    spread = (cv2.blur(lab * lab, (3, 3)) - mean * mean).sum(axis=-1)
    drawn = (np.linalg.norm(lab[..., 1:], axis=-1) > 45) & (spread < _EVEN)
    count, labels, stats, _ = cv2.connectedComponentsWithStats(
        drawn.astype(np.uint8), connectivity=8
    )
    for k in range(1, count):
        share = stats[k, cv2.CC_STAT_AREA] / drawn.size
        if not 0.0008 < share < 0.06:  # smaller is a leaf or a lamp, larger a thing
            continue
        part = (labels == k).astype(np.uint8)
        if (
            float(np.linalg.norm(lab[part > 0].std(axis=0))) > 5
            or _fill(part > 0) > 0.72
            or not _gone(scene, part)
        ):
            continue
        words = f"An instruction mark in the input, {place(part)}, {percent(share)} of the picture, is gone"
        yield LightDifference(words, "ignored"), part


def _gone(scene: Scene, part: Array) -> bool:
    """Whether the shape no longer differs from what is around it, or no longer has one colour, whatever the light."""
    ring = cv2.dilate(part, np.ones((15, 15), np.uint8)) - cv2.dilate(
        part, np.ones((7, 7), np.uint8)
    )
    views = (scene.before.lab, scene.after.lab)
    apart = [
        float(np.linalg.norm(lab[part > 0].mean(axis=0) - lab[ring > 0].mean(axis=0)))
        for lab in views
    ]
    spread = [float(np.linalg.norm(lab[part > 0].std(axis=0))) for lab in views]
    # Fainter shapes are parts of the scene: a mark is drawn to be seen.
    return apart[0] > 25 and (
        apart[1] < 0.4 * apart[0] or spread[1] > 3 * spread[0] + 8
    )


def _fill(part: Array) -> float:
    """How much of its tightest upright-or-tilted box a shape fills: a line nearly all of it, but the box is thin."""
    points = np.argwhere(part)[:, ::-1].astype(np.float32)
    (_, (w, h), _) = cv2.minAreaRect(points)
    thin = min(w, h) / max(1.0, w, h)
    return 0.0 if thin < 0.25 else float(part.sum() / max(1.0, w * h))
