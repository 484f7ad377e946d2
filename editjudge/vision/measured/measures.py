"""All measures of two images, keyed by family and name. They are the basis of scores, reasons and evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

import cv2
import numpy as np

from editjudge.vision.measured.change import (
    Change,
    colour_difference,
    find_change,
)
from editjudge.vision.measured.network import Features, extract
from editjudge.vision.measured.scene import Array, Scene, View, area, fit
from editjudge.vision.measured.structure import (
    damage,
    everywhere,
    find_detail,
    find_drift,
    find_structure,
    in_edit,
    redrawn,
    share_kept,
    structure_map,
    trust,
    turned,
    weighted_median,
)

# --- boundary -----------------------------------------------------------------------------------------------

_RIM = 256
"""Longest side at which the contour of the edited region is measured, in lightness only. At this size, an image of 256
pixels shows as much as a larger one. In lightness, a JPEG that stores colour at half the resolution shows as much as
any other file."""
_LUMA = 100 / 255
"""Units of lightness per level of luma. Lightness itself would take in colour, which many files keep at half the size.
"""
_REACH = 8
"""Number of pixels examined on both sides of the contour, since the region is known only to within a few pixels."""
_ALONG = 5
"""Number of pixels averaged along the contour. A seam follows the contour; noise and texture do not."""
_WIDE = 3
"""Number of pixels on both sides within which a soft transition ends."""
_SOFT = (0.65, 0.85)
"""Share of the difference across such a transition that is within one pixel on both sides. From the first value to the
second, a step counts increasingly as sharp. A transition feathered by a Gaussian of one pixel has .62, and a sharp one
has .85 or more."""

_OUTLINE = 0.3
"""Share of the earlier step by which the contrast at an object's outline may grow when the object is recoloured."""
_LEAKED = 5.0
"""Factor by which visible changes outside the edit reduce the seam. If they cover a fifth of the image, no seam is
reported, since the contours belong to those changes."""
_SPECK = np.ones((9, 9), np.uint8)
"""Largest change outside the edit that is ignored: what JPEG at quality 75 leaves of a small image is less."""
_SHORT = 200
"""Length of the contour in pixels below which the seam is reduced. A shorter contour belongs to a small object, whose
outline cannot be distinguished from a seam."""
_USUAL = 0.6
"""Limit of the steps that noise and texture explain: this multiple of this quantile of the steps across the contour."""


def find_seam(scene: Scene, change: Change) -> dict[str, float]:
    """Measure the sharp step in lightness along the contour of the edited region. The step that was there before the
    edit, and noise, are subtracted."""
    height, width = scene.shape
    scale = _RIM / max(height, width)
    size = (max(4, round(width * scale)), max(4, round(height * scale)))
    # from the images themselves: a small one that was enlarged first would be blurred by it
    views = (scene.after, scene.before)
    after, before = (fit(view.fine, *size) * _LUMA for view in views)
    shift = area(change.expected[..., 0] - scene.before.lightness, size)
    region = area(change.region.astype(np.float32), size) > 0.5
    planes = np.dstack([after, before + shift])
    profiles = _profiles(planes, region.astype(np.uint8))
    if profiles is None:
        return {"step": math.nan, "sharp": math.nan, "length": 0.0}
    earlier = profiles[..., 1]
    added = profiles[..., 0] - earlier
    steps = _steps(added, 1)
    least, most = _SOFT
    within = steps / (_steps(added, _WIDE) + 1e-3)
    sharpness = np.clip((within - least) / (most - least), 0, 1)
    usual = _USUAL * np.quantile(steps, _USUAL, axis=1, keepdims=True)
    # An object recoloured up to its outline has no seam.
    beyond = np.maximum(0.0, steps - _OUTLINE * _steps(earlier, 1) - usual)
    excess = (beyond * sharpness).max(axis=1)
    beside = ((change.visible > 1) & (change.outside > 0)).astype(np.uint8)
    stray = float(cv2.morphologyEx(beside, cv2.MORPH_OPEN, _SPECK).mean())
    trusted = min(1.0, len(profiles) / _SHORT, max(0.0, 1 - _LEAKED * stray))
    return {
        "step": float(excess.mean()) * trusted,
        # a line of 3 units of lightness is just visible on an even surface
        "sharp": (excess > 3.0).mean(),
        "length": len(profiles),
    }


def _steps(profiles: Array, reach: int) -> Array:
    """Return differences between samples that are `reach` pixels away on both sides. They are returned for several
    positions, since the contour is known only to within a few pixels."""
    middle = profiles.shape[1] - 2 * _WIDE
    ahead = _WIDE + reach
    behind = _WIDE - reach
    steps: Array = np.abs(
        profiles[:, ahead : ahead + middle] - profiles[:, behind : behind + middle]
    )
    return steps


def _profiles(planes: Array, region: Array) -> Array | None:
    """Sample images across the contours of a region. Return an array of points along the contours x offsets x images,
    or None if no contour is long enough."""
    contours, _ = cv2.findContours(region, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    height, width = region.shape
    offsets = np.arange(-_REACH, _REACH + 1, dtype=np.float32)[:, None]
    profiles = []
    for contour in contours:
        points = contour[:, 0].astype(np.float32)
        if len(points) < 4 * _ALONG:
            continue
        tangent = _smooth(np.roll(points, -3, 0) - np.roll(points, 3, 0))
        normal = np.stack([-tangent[:, 1], tangent[:, 0]], 1)
        normal /= np.linalg.norm(normal, axis=1, keepdims=True) + 1e-6
        at = points[:, None] + offsets * normal[:, None]
        inner = (points > _REACH) & (points < (width - _REACH, height - _REACH))
        sampled = cv2.remap(planes, at[..., 0], at[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)  # fmt: skip
        profiles.append(_smooth(sampled)[inner.all(axis=1)])
    if sum(map(len, profiles)) < 4 * _ALONG:
        return None
    return np.concatenate(profiles)


def _smooth(values: Array) -> Array:
    """Smooth values along a closed contour with a moving average that wraps around."""
    half = _ALONG // 2
    padded = np.concatenate([values[-half:], values, values[:half]])
    summed = np.cumsum(
        np.concatenate([np.zeros_like(padded[:1]), padded]), axis=0, dtype=np.float64
    )
    mean: Array = ((summed[_ALONG:] - summed[:-_ALONG]) / _ALONG).astype(np.float32)
    return mean


# --- light and colour of the edit ---------------------------------------------------------------------------

_SIDE = 96
"""Longest side at which shading is measured. Finer detail counts as texture."""


def find_shading(scene: Scene, change: Change, likeness: Array) -> dict[str, float]:
    """Measure the light gradient that the edit added, inside and outside the edited region, and how well the region's
    colours fit its surroundings."""
    height, width = scene.shape
    scale = min(1.0, _SIDE / max(height, width))
    size = (max(4, round(width * scale)), max(4, round(height * scale)))
    inside = area(change.inside.astype(np.float32), size)
    outside = area(change.outside.astype(np.float32), size)
    before = area(change.expected, size)
    after = area(scene.after.lab, size)
    ratio = _log_light(after) - _log_light(before)
    # If the object is another one now, light and surface cannot be separated.
    same_thing = inside * np.clip(area(likeness, size) - 0.4, 0, 0.4) / 0.4
    within = _slope(ratio, same_thing)
    around = _slope(ratio, outside)
    return {
        "slope inside": np.hypot(*within),
        "slope outside": np.hypot(*around),
        "slope against": np.hypot(within[0] - around[0], within[1] - around[1]),
        **_colours(before, after, inside, outside),
    }


def _log_light(lab: Array) -> Array:
    """Return light in stops. Luminance is about the cube of L; adding 6 limits the influence of black."""
    light: Array = 3 * np.log2((np.maximum(lab[..., 0], 0) + 16.0) / 116.0 + 0.05)
    return light


def _slope(ratio: Array, weight: Array) -> tuple[float, float]:
    """Return the change in stops across the weighted part, to the right and down, or NaN if the part is too small."""
    total = float(weight.sum())
    if total < 6:
        return math.nan, math.nan
    ys, xs = np.mgrid[: ratio.shape[0], : ratio.shape[1]].astype(np.float64)
    columns = [np.ones_like(xs)]
    for plane in (xs, ys):
        centred = plane - (plane * weight).sum() / total
        spread = float(np.sqrt((centred**2 * weight).sum() / total))
        columns.append(centred / max(1.0, spread))
    design = np.stack(columns, -1).reshape(-1, 3)
    weighted = design * weight.reshape(-1, 1)
    fitted = np.linalg.solve(
        design.T @ weighted + 1e-3 * np.eye(3), weighted.T @ ratio.reshape(-1)
    )
    # The range of a uniform distribution is 3.5 of its standard deviations.
    return float(3.5 * fitted[1]), float(3.5 * fitted[2])


def _colours(
    before: Array, after: Array, inside: Array, outside: Array
) -> dict[str, float]:
    """Measure whether colours inside the edit also occur in the rest of the image."""
    if inside.sum() < 2 or outside.sum() < 20:
        return dict.fromkeys(("light step", "vivid", "contrast"), math.nan)

    def mean(plane: Array) -> Array:
        rows = plane.reshape(-1, plane.shape[-1])
        return np.average(rows, axis=0, weights=inside.reshape(-1))

    light = []
    chroma = []
    spread = []
    for lab in (before, after):
        light.append(mean(lab)[0])
        vivid = np.linalg.norm(lab[..., 1:], axis=-1)[..., None]
        chroma.append(float(mean(vivid)[0]))
        spread.append(float(np.sqrt(mean((lab[..., :1] - light[-1]) ** 2)[0])))
    around = after[outside > 0.5]
    usual = 0.0
    if len(around):
        usual = float(np.quantile(np.linalg.norm(around[:, 1:], axis=1), 0.95))
    return {
        "light step": abs(light[1] - light[0]),
        "vivid": max(0.0, chroma[1] - max(usual, chroma[0])),
        "contrast": np.log2((spread[1] + 2) / (spread[0] + 2)),
    }


# --- look of the whole image --------------------------------------------------------------------------------

_GRAY = 2.0
"""Mean chroma below which an image counts as gray. The remaining chroma is noise, and its median hue rotation has no
meaning."""


def find_style(scene: Scene, change: Change) -> dict[str, float]:
    """Measure the shift of the palette, the correlation of the layout, and the change in the style of edges."""
    size = (64, 64)
    before, after = (area(v.lab, size) for v in (scene.before, scene.after))
    outside = area(change.outside.astype(np.float32), size) > 0.5
    if outside.mean() < 0.15:
        outside = np.ones_like(outside)
    shift = np.median(after[outside] - before[outside], axis=0)
    expected = area(change.expected, size)
    edges = [_edge_levels(view.lightness) for view in (scene.before, scene.after)]
    return {
        "palette": _palette(before[outside], after[outside]),
        "shift": np.linalg.norm(shift),
        **_transform(before, after, expected, outside),
        "layout": _layout(before[..., 0], after[..., 0]),
        "drawing": np.abs(edges[0] - edges[1]).mean(),
    }


def _transform(
    before: Array, after: Array, expected: Array, outside: Array
) -> dict[str, float]:
    """Measure a global change of colour: the rotation of hues in degrees, and the difference that remains, in colour
    units."""
    was, now = (lab[..., 1] + 1j * lab[..., 2] for lab in (before, after))
    chroma = np.abs(was)[outside]
    turned = math.nan
    angle = 0.0
    # The median is weighted by chroma: grays have no hue that could rotate, and a stain is not the palette.
    if float(chroma.mean()) > _GRAY:
        angle = weighted_median(np.angle(now * was.conj())[outside], chroma)
        turned = abs(np.degrees(angle))
    hues = was * np.exp(1j * angle)
    rest = np.stack([before[..., 0], hues.real, hues.imag], axis=-1) - expected
    moved = float(np.linalg.norm(expected - before, axis=-1).mean())
    tinted = min(moved, float(np.linalg.norm(rest, axis=-1).mean()))
    return {"turned": turned, "tinted": tinted}


def _palette(a: Array, b: Array) -> float:
    """Return the distance between two colour distributions in colour units. It is a sliced Wasserstein distance over
    fixed directions."""
    angles = np.linspace(0, np.pi, 6, endpoint=False)
    hues = [np.array([0, np.cos(t), np.sin(t)]) for t in angles]
    light, *colours = (
        np.mean(np.abs(np.sort(a @ direction) - np.sort(b @ direction)))
        for direction in (np.array([1.0, 0, 0]), *hues)
    )
    return float(np.sqrt(light**2 + max(colours) ** 2))


def _layout(a: Array, b: Array) -> float:
    """Return the correlation of large light and dark shapes. It is 1 if the composition is the same, and NaN if there
    are no such shapes."""
    a, b = (cv2.GaussianBlur(plane, (0, 0), 2.0).ravel() for plane in (a, b))
    if a.std() < 0.5 or b.std() < 0.5:
        return math.nan
    return float(np.corrcoef(a, b)[0, 1])


def _edge_levels(lightness: Array) -> Array:
    """Return percentiles of the edge strength, from the median to the 99th, in octaves (log2)."""
    soft = cv2.GaussianBlur(lightness, (0, 0), 1.5)
    edges = cv2.magnitude(
        cv2.Sobel(soft, cv2.CV_32F, 1, 0), cv2.Sobel(soft, cv2.CV_32F, 0, 1)
    )
    levels: Array = np.log2(np.quantile(edges[::2, ::2], [0.5, 0.75, 0.9, 0.99]) + 1.0)
    return levels


# --- statistics of photographs (BRISQUE's family) -----------------------------------------------------------


@lru_cache(maxsize=1)
def _shapes() -> tuple[Array, Array, Array]:
    """Return shape parameters of the generalised Gaussian, with the moment ratio for each."""
    from scipy.special import gamma

    alpha = np.arange(0.2, 10.0, 0.01)
    ratio = gamma(2 / alpha) ** 2 / (gamma(1 / alpha) * gamma(3 / alpha))
    spread = np.sqrt(gamma(1 / alpha) / gamma(3 / alpha))
    return alpha, ratio, spread * gamma(2 / alpha) / gamma(1 / alpha)


def normalised(lightness: Array) -> Array:
    """Return each pixel minus the mean of its neighbourhood, divided by the neighbourhood's contrast."""
    mean = cv2.GaussianBlur(lightness, (7, 7), 7 / 6)
    variance = cv2.GaussianBlur(lightness * lightness, (7, 7), 7 / 6) - mean * mean
    contrast = np.sqrt(np.maximum(variance, 0))
    out: Array = (lightness - mean) / (contrast + 0.5)
    return out


def statistics(plane: Array) -> dict[str, float]:
    """Return shape and spread of normalised lightness, and of its products with four neighbours."""
    shape, left, right, _ = _asymmetric(plane)
    figures = {"shape": shape, "spread": (left + right) / 2}
    for name, step in {"h": (0, 1), "v": (1, 0), "d": (1, 1), "e": (1, -1)}.items():
        product = plane * np.roll(plane, step, (0, 1))
        shape, left, right, mean = _asymmetric(product)
        figures |= {
            f"{name} shape": shape,
            f"{name} mean": mean,
            f"{name} left": left,
            f"{name} right": right,
        }
    return figures


def _asymmetric(values: Array) -> tuple[float, float, float, float]:
    """Fit a generalised Gaussian with two spreads by moments, and return its shape, both spreads and its mean."""
    flat = values.ravel()
    left, right = (
        float(np.sqrt(half @ half / max(1, int(np.count_nonzero(half != 0))))) + 1e-6
        for half in (np.minimum(flat, 0), np.maximum(flat, 0))
    )
    absolute = float(np.abs(flat).mean())
    square = float(flat @ flat / len(flat)) + 1e-9
    balance = left / right
    r = absolute**2 / square * (balance**3 + 1) * (balance + 1) / (balance**2 + 1) ** 2
    alpha, ratio, factor = _shapes()
    # The ratio increases with the shape, so the shape can be looked up.
    k = min(int(np.searchsorted(ratio, r)), len(alpha) - 1)
    return float(alpha[k]), left, right, float((right - left) * factor[k])


def find_naturalness(view: View) -> dict[str, float]:
    """Return the statistics of a photograph at two scales."""
    figures: dict[str, float] = {}
    plane = view.lightness
    for scale in (1, 2):
        measured = statistics(normalised(plane))
        figures |= {f"{name} {scale}": value for name, value in measured.items()}
        plane = cv2.pyrDown(plane)
    return figures


def find_content(view: View) -> dict[str, float]:
    """Describe the kind of image by its light, colour and contrast at four scales."""
    plane = view.lightness
    chroma = cv2.magnitude(view.lab[..., 1], view.lab[..., 2])
    figures = {
        "light": float(plane.mean()),
        "range": float(plane.std()),
        "chroma": float(chroma.mean()),
        "chroma range": float(chroma.std()),
        "edges": float(np.log(cv2.Laplacian(plane, cv2.CV_32F).var() + 1)),
    }
    for scale in (1, 2, 4, 8):
        mean = cv2.GaussianBlur(plane, (11, 11), 1.5)
        spread = cv2.GaussianBlur(plane * plane, (11, 11), 1.5) - mean * mean
        contrast = np.sqrt(np.maximum(spread, 0)).mean()
        figures[f"contrast {scale}"] = float(np.log2(contrast + 0.4))
        plane = cv2.pyrDown(plane)
    return figures


# --- all of them --------------------------------------------------------------------------------------------

Values: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Measures:
    scene: Scene
    change: Change
    values: Values
    """Measures keyed by `family.name`. A measure that is not available is missing."""

    @cached_property
    def features(self) -> Features:
        """Features of the network, extracted on first use."""
        return extract(self.scene, self.change)


def measure(scene: Scene) -> Measures:
    change = find_change(scene)
    likeness, weight = structure_map(scene)
    # light that hides structure is a change of light, not a loss of structure
    lit, _ = structure_map(scene, light=True)
    detail = find_detail(scene, change, likeness)
    texture = in_edit(detail)
    structure = find_structure(scene, change, likeness, weight)
    lost = structure["lost outside"] if change.outside.any() else structure["lost"]
    families = {
        "change": _spread(change, scene.mask is not None) | find_shift(scene, change),
        "overall": everywhere(detail) | damage(scene),
        "texture": texture,
        "seam": find_seam(scene, change),
        "light": find_shading(scene, change, lit),
        "style": find_style(scene, change),
        "structure": structure,
        "trust": trust(texture["kept"], share_kept(lit, detail.inside), lost, float(change.inside.mean())),
        "redrawn": redrawn(scene),
        # If hardly any structure around the edit changed, none moved.
        "drift": find_drift(scene) if lost > 0.01 else {},
        "turned": turned(scene, change),
    }  # fmt: skip
    for family, find in (("natural", find_naturalness), ("content", find_content)):
        before = find(scene.before)
        after = find(scene.after)
        gains = {f"{name} gain": after[name] - before[name] for name in after}
        families[family] = before | gains
    values = {
        f"{family}.{name}": float(value)
        for family, measures in families.items()
        for name, value in measures.items()
        # A measure that could not be taken is missing, since this does not prove that nothing is wrong.
        if math.isfinite(value)
    }
    return Measures(scene, change, values)


def _spread(change: Change, masked: bool) -> dict[str, float]:
    outside = change.outside > 0
    visible = change.visible > 1
    stray = float((visible & outside).mean())
    if not masked:
        # A change of much of the image is larger than the target of an edit.
        stray += max(0.0, change.share - 0.25)
    elif not outside.any():
        stray = math.nan  # the mask covers everything that could have stayed the same
    return {
        "stray": stray,
        "share": change.share,
        "visible share": visible.mean(),
        "tint": change.tint,
        "floor": change.floor,
        "mean": change.difference.mean(),
        "mean inside": _mean(change.difference[change.inside]),
        "mean outside": _mean(change.difference[outside]),
        "visible outside": _mean(visible[outside]),
    }


def _mean(values: Array) -> float:
    return float(values.mean()) if values.size else math.nan


_CELLS = 16
"""Number of cells along a side over which colours are averaged. The effects of an encoder on single pixels cancel out
in a cell. JPEG at quality 75 shifts no cell by more than .1 units of colour, a blur of one pixel by .2, and two levels
of brightness by .8."""
_LARGE = 2.0
"""Colour difference (CIE94) from which a shift of a large area is visible. A smaller one is invisible even side by
side."""
_QUIET = 0.75
"""Minimum share of a cell that must be outside the edit and not visibly changed. Other cells are ignored."""


def find_shift(scene: Scene, change: Change) -> dict[str, float]:
    """Measure how far colours shifted outside all local changes, and in what share of the image the shift is visible."""
    size = (_CELLS, _CELLS)
    changed = change.visible > 1
    quiet = (change.outside > 0) & ~changed
    counted = area(quiet.astype(np.float32), size) > _QUIET
    differing = float(changed.mean())
    if not counted.any():
        return {"shift": math.nan, "shifted": math.nan, "differing": differing}
    before, after = (area(view.lab, size) for view in (scene.before, scene.after))
    moved = colour_difference(before, after)[counted]
    shifted = moved > _LARGE
    return {
        "shift": moved.mean(),
        "shifted": shifted.mean(),
        "differing": differing + shifted.sum() / _CELLS**2,
    }
