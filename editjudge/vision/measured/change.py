"""The difference between two images, as a map in perceptual colour units, and the region of the edit."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from editjudge.vision.measured.scene import Array, Scene, area

_VISIBLE = (12.0, 5.0, 3.5)
"""Thresholds for a visible colour difference at full, half and quarter of the base size. Averaging cancels the noise of
re-encoding, so fainter changes count at coarser scales. In photographs, JPEG at quality 75 stays below all three."""
_FLOOR = 2.2
"""Multiple of the median difference up to which a difference counts as part of the change that all pixels have."""
_MOST = (40.0, 14.0, 10.0)
"""Upper limits of the visibility threshold at the three scales. A larger difference is visible however much the rest
differs. The limit is highest at the finest scale, where most of the noise is."""
_STRONG = 0.35
"""Share of the strongest change below which a change counts as a side effect and not as the edit itself."""
_BESIDE = 0.3
"""Share of a shift of all colours below which an additional difference is not noticed."""
_COLLAPSED = 0.2
"""Minimum share of the spread of colours that a transform must preserve. About .6 remains at half the light. A
transform that turns a photograph into an even surface is neither new light nor a tint, and discounting it would leave
no difference."""
_EXPLAINED = 0.75
"""Share of the median difference between the images. If more than this share remains after a colour transform, the
transform explains nothing."""
SAME = 2.0
"""Colour difference that is invisible even side by side."""
_SPECK = 40.0
"""Difference in levels of 255, averaged over 5 x 5 pixels, above which a speck counts as an edit. Pages of text saved
as JPEG at quality 70 stay below 8, and below 27 if scaled down by a quarter and up again. A 4 that became a 5 in small
print has 74."""


@dataclass(frozen=True)
class Change:
    expected: Array
    """The image before the edit in Lab, after the colour transform that applies to the entire image."""
    difference: Array
    """Colour difference from `expected` at a quarter of the size, at which the noise of re-encoding cancels out."""
    visible: Array
    """Difference relative to the visibility threshold. Values above 1 are visible."""
    region: Array
    """Region of the edit, 0 or 1. It is the mask if there is one, otherwise the main connected change."""
    outside: Array
    """Valid pixels away from the region."""
    tint: float
    """Mean colour difference that a single colour transform of the entire image explains."""
    floor: float
    """Median difference, which re-encoding causes everywhere."""
    nothing: bool
    """Whether nothing visible changed."""
    located: bool
    """Whether the region is known, either from a mask or because the change is local."""

    @property
    def share(self) -> float:
        return float(self.region.mean())

    @property
    def inside(self) -> Array:
        """Part of the region that visibly changed, or the entire region if no part did."""
        visible_part = (self.region > 0) & (self.visible > 1)
        return visible_part if visible_part.mean() > 0.0005 else self.region > 0


def find_change(scene: Scene) -> Change:
    expected, tint = _recoloured(scene)
    scales = _differences(expected, scene.after.lab)
    seen = scene.valid > 0
    floors = [float(np.median(scale[seen])) if seen.any() else 0.0 for scale in scales]
    # If all colours shifted, the remaining difference is mostly the fitting error of the transform.
    levels = [
        min(most, max(low, _FLOOR * floor)) + _BESIDE * tint
        for low, floor, most in zip(_VISIBLE, floors, _MOST, strict=True)
    ]
    visible = np.max(
        [scale / level for scale, level in zip(scales, levels, strict=True)], axis=0
    )
    visible[~seen] = 0
    unseen = tint < SAME and not _blobs(visible > 1).any()
    region, located = _region(scene, visible)
    # The soft border of the region is part of the edit.
    rim = cv2.dilate(region, _disc(max(region.shape) * 0.015))
    return Change(
        expected=expected,
        difference=np.maximum(scales[2] - _BESIDE * tint, 0),
        visible=visible,
        region=region,
        outside=((rim == 0) & seen).astype(np.uint8),
        tint=tint,
        floor=floors[1],
        nothing=unseen and not _has_speck(scene),
        located=located,
    )


def changed_box(change: Change) -> tuple[float, float, float, float] | None:
    """Return the bounding box (left, top, right, bottom) of all visible changes, as fractions of the image's width and
    height. Return None if nothing changed visibly."""
    rows, columns = np.nonzero(_blobs(change.visible > 1))
    if change.nothing or not len(rows):
        return None
    height, width = change.visible.shape[:2]
    return (
        columns.min() / width,
        rows.min() / height,
        (columns.max() + 1) / width,
        (rows.max() + 1) / height,
    )


def _recoloured(scene: Scene) -> tuple[Array, float]:
    """Apply the colour transform that most pixels underwent to the image before the edit. Return the result, and how
    much it differs from the original."""
    before = scene.before.lab
    after = scene.after.lab
    spread, left = (float(cv2.meanStdDev(lab)[1].max()) for lab in (before, after))
    if left >= _COLLAPSED * spread:
        matrix = _colour_transform(before, after)
        if matrix is not None:
            moved = cv2.transform(_powers(before), matrix)
            if _is_plausible(before, moved, after):
                return moved, float(np.linalg.norm(moved - before, axis=2).mean())
    return before, 0.0


def _is_plausible(before: Array, moved: Array, after: Array) -> bool:
    """Whether new light or a tint explains the transform. If so, it preserves the order of light and dark, and makes
    the images agree.

    A negative is not explained in this way. Neither is painting over most of the image, for which a transform to a
    single colour would fit best.
    """
    a, m, b = (area(p, (64, 64)).reshape(-1, 3) for p in (before, moved, after))
    if float(m.std(axis=0).max()) < _COLLAPSED * float(a.std(axis=0).max()):
        return False
    was = a[:, 0]
    now = m[:, 0]
    if was.std() > SAME and np.mean((was - was.mean()) * (now - now.mean())) < 0:
        return False
    apart, left = (float(np.median(np.linalg.norm(b - p, axis=1))) for p in (a, m))
    return left < _EXPLAINED * apart


def _powers(lab: Array) -> Array:
    """Return colours with their squares and products. Colours are in hundreds, so that all values have similar
    magnitudes."""
    x = lab / 100.0
    light, a, b = (x[..., k] for k in range(3))
    return np.stack(
        [light, a, b, light * light, a * a, b * b, light * a, light * b, a * b], axis=-1
    )


def _colour_transform(before: Array, after: Array) -> Array | None:
    """Fit a quadratic in Lab, which approximates a tint or a rotation of hue. Return None if many pixels are unchanged.

    Tukey's weights exclude the edited pixels.
    """
    small, b = (
        area(lab, (64, 64)).reshape(-1, 3).astype(np.float64) for lab in (before, after)
    )
    if np.mean(np.linalg.norm(small - b, axis=1) < SAME) > 0.5:
        return None
    x = np.c_[_powers(small[:, None, :])[:, 0], np.ones(len(small))]
    identity = np.zeros((10, 3))
    identity[:3] = 100.0 * np.eye(3)
    # Regularisation towards the identity, strongest for the squares, which could fit anything.
    pull = len(x) * np.diag([2e-3] * 3 + [1e-2] * 6 + [2e-3])
    weights = np.ones(len(x))
    fitted = identity
    for _ in range(8):
        wx = x * weights[:, None]
        fitted = np.linalg.solve(wx.T @ x + pull, wx.T @ b + pull @ identity)
        misfit = np.linalg.norm(b - x @ fitted, axis=1)
        reach = max(6.0, 3.0 * float(np.median(misfit)))
        weights = np.where(misfit < reach, (1 - (misfit / reach) ** 2) ** 2, 0.0)
    return fitted.T.astype(np.float32)


def _differences(a: Array, b: Array) -> list[Array]:
    """Return the colour difference at three scales, with the chroma weight of CIE94. All maps have the base size."""
    height, width = a.shape[:2]
    scales = []
    for level in range(3):
        if level:
            a = cv2.pyrDown(a)
            b = cv2.pyrDown(b)
        difference = colour_difference(a, b)
        scales.append(
            cv2.resize(difference, (width, height), interpolation=cv2.INTER_LINEAR)
        )
    return scales


def colour_difference(a: Array, b: Array) -> Array:
    """Return the CIE94 colour difference of each pixel. The chroma weight is computed from `a`."""
    delta = a - b
    chroma = cv2.magnitude(a[..., 1], a[..., 2])
    colour = cv2.magnitude(delta[..., 1], delta[..., 2]) / (1 + 0.03 * chroma)
    return cv2.magnitude(delta[..., 0], colour)


def _has_speck(scene: Scene) -> bool:
    """Whether a few pixels differ by more than any encoding explains. Such an edit may be a single digit in a date."""
    difference = cv2.blur(scene.before.fine - scene.after.fine, (5, 5))
    return bool(np.abs(difference).max() > _SPECK)


def _blobs(changed: Array) -> Array:
    """Return the changed area with specks removed and gaps closed."""
    side = max(changed.shape)
    mask = changed.astype(np.uint8)
    opened = cv2.morphologyEx(mask, cv2.MORPH_OPEN, _disc(side * 0.005))
    return cv2.morphologyEx(opened, cv2.MORPH_CLOSE, _disc(side * 0.012))


def _disc(radius: float) -> Array:
    size = 2 * max(1, round(radius)) + 1
    return cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (size, size))


def _region(scene: Scene, visible: Array) -> tuple[Array, bool]:
    """Return the region of the edit, and whether it is local."""
    side = max(scene.shape)
    if scene.mask is not None and scene.mask.any():
        return cv2.dilate(scene.mask, _disc(side * 0.008)), True
    changed = visible > 1
    nowhere = np.zeros(scene.shape, np.uint8)
    if not changed.any():
        return nowhere, False
    strong = max(1.0, _STRONG * float(np.quantile(visible[changed], 0.97)))
    blobs = _blobs(visible > strong)
    count, labels = cv2.connectedComponents(blobs, connectivity=8)
    if count < 2:
        return nowhere, False
    energy = np.bincount(labels.ravel(), visible.ravel(), count)
    energy[0] = 0
    main = (labels == int(np.argmax(energy))).astype(np.uint8)
    # Parts next to the main change belong to it, such as the legs of an animal, and so does its soft border.
    near = cv2.dilate(main, _disc(side * 0.012)) > 0
    joined = np.isin(labels, np.unique(labels[near & (blobs > 0)])).astype(np.uint8)
    region = cv2.dilate(joined, _disc(side * 0.006))
    return region, bool(region.mean() < 0.9)
