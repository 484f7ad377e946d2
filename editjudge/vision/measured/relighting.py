"""Lighting edits: differences that light explains, and differences that it does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

import cv2
import numpy as np

from editjudge.vision.measured.change import Change
from editjudge.vision.measured.factors import (
    FactorVerdict,
    abstain,
    percent,
    position,
)
from editjudge.vision.measured.forest import load
from editjudge.vision.measured.illumination import (
    FILE,
    content_chances,
    local_evidence,
    unaligned,
)
from editjudge.vision.measured.scene import Array, Scene

LightDifference: TypeAlias = tuple[
    str, Literal["allowed", "not allowed", "unsure", "ignored"]
]
"""Description of a difference, and its mark: whether light may cause it."""

_EVEN = 12.0
"""Variance of colour among neighbouring pixels below which they were painted rather than photographed. It is above 0
because of JPEG noise."""
_HUE = 0.25
"""Step in the logarithm of colour ratios from which a part is said to differ in colour. It is about a quarter more of
one colour."""
_BESIDE = 45
"""Number of pixels around an instruction mark, in both directions, that are affected by its disappearance. It is the
size of a window of evidence."""


def judge_light(
    images: Mapping[str, Array], scene: Scene, change: Change
) -> FactorVerdict:
    """Score a list of differences. Abstain if light may not explain some of them and no difference is certainly caused
    by something else."""
    as_they_are = None
    if "shift right (px)" in scene.framing:
        as_they_are = unaligned(images["input"], images["edited"])
    listed = differences(scene, change, as_they_are)
    marks = {mark for _, mark in listed}
    lines = [f"{difference}: {mark}" for difference, mark in listed] or [
        "No difference that lighting would have to explain: allowed"
    ]
    if "not allowed" in marks:
        return FactorVerdict(1.0, "\n".join(lines))
    if "unsure" in marks:
        doubt = "; ".join(text for text, mark in listed if mark == "unsure")
        return abstain(f"whether light alone changed is not certain: {doubt}")
    return FactorVerdict(7.0, "\n".join(lines))


def differences(
    scene: Scene, change: Change, unshifted: Scene | None = None
) -> list[LightDifference]:
    """Return every difference that can be separated from the others, and whether light explains it.

    `unshifted` has the same images without the shift that registration found, because new light can look like a shift.
    """
    listed: list[LightDifference] = []
    marks = np.zeros(scene.shape, np.uint8)
    for mark in _marks(scene):
        marks |= mark
        size = percent(float(mark.mean()))
        sentence = f"An instruction mark in the input, {position(mark)}, {size} of the picture, is gone"
        listed.append((sentence, "ignored"))
    ignored = cv2.dilate(marks, np.ones((_BESIDE, _BESIDE), np.uint8)) > 0
    listed += _content((scene, unshifted), ignored)
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


def _content(
    scenes: tuple[Scene, Scene | None], ignored: Array
) -> Iterator[LightDifference]:
    """Yield the parts whose difference light does not explain, or may not explain."""
    forest = load(FILE)
    maps = []
    for scene in filter(None, scenes):
        names, evidence = local_evidence(scene)
        chances = content_chances(evidence)
        size = chances.shape[::-1]
        seen = ((scene.valid > 0) & ~ignored).astype(np.uint8)
        chances *= cv2.resize(seen, size, interpolation=cv2.INTER_NEAREST)
        maps.append((float(chances.max()), chances, dict(zip(names, np.moveaxis(evidence, -1, 0), strict=True))))  # fmt: skip
    _, chances, measured = min(maps, key=lambda m: m[0])
    for part in _parts(chances > forest.allowed):
        colour = float(measured["step.colour"][part].mean()) > _HUE
        aspect = "colours" if colour else "structure"
        if float(chances[part].max()) > forest.changed:
            clause = f"{_region(part)} has other {aspect} than light explains"
            yield clause, "not allowed"
        else:
            clause = f"{_region(part)} may have other {aspect} than light explains"
            yield clause, "unsure"


def _parts(changed: Array) -> list[Array]:
    """Return the largest connected parts, at most five."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(
        changed.astype(np.uint8), connectivity=8
    )
    areas = stats[:, cv2.CC_STAT_AREA]
    return [labels == k for k in sorted(range(1, count), key=lambda k: -areas[k])[:5]]


def _marks(scene: Scene) -> Iterator[Array]:
    """Yield arrows and guides in the input that are gone. They are vivid, thin shapes of one colour that are no longer
    visible."""
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
    """Return how much of its smallest box, upright or rotated, a shape fills. It is 0 for a line, whose box is thin."""
    points = np.argwhere(part)[:, ::-1].astype(np.float32)
    _, (width, height), _ = cv2.minAreaRect(points)
    thin = min(width, height) / max(1.0, width, height)
    return 0.0 if thin < 0.25 else float(part.sum() / max(1.0, width * height))
