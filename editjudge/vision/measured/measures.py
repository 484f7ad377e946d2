"""All measures of two images, by family and name: what scores, sentences and evidence are made from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

import cv2
import numpy as np

from editjudge.vision.measured.change import Change, find_change
from editjudge.vision.measured.network import Sight, look
from editjudge.vision.measured.scene import Array, Scene, View, area
from editjudge.vision.measured.structure import (
    damage,
    everywhere,
    find_detail,
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

_REACH = 8
"""Pixels looked at on both sides of the rim: the region is known to a few pixels only."""
_ALONG = 9
"""Pixels averaged along the rim: a seam runs along it, noise and texture do not."""
_SOFT = 1.6
"""Times the steps two pixels away: as much as a transition feathered by a Gaussian of two pixels has in its middle."""

_OUTLINE = 0.5
"""Share of the steps that were there before: a recoloured thing has as much more contrast at its outline."""
_LEAKED = 5.0
"""Times the share that changed beside the edit: from a fifth of the image on, rims are those of what leaked, and no seam."""
_SHORT = 400
"""Pixels: a shorter rim is that of a small thing, where its own outline and a seam cannot be told apart."""
_USUAL = 1.2
"""Multiple of the upper quartile that the largest of eleven steps in noise somewhat exceeds."""


def find_seam(scene: Scene, change: Change) -> dict[str, float]:
    """The step that runs along the rim, in colour units, beyond what stood there, a soft transition and noise."""
    profiles = _profiles(
        np.concatenate([scene.after.lab, change.expected], axis=2), change.region
    )
    if profiles is None:
        # no rim long enough to average along
        return {"step": math.nan, "sharp": math.nan, "length": 0.0}
    before = profiles[..., 3:]
    added = profiles[..., :3] - before
    steps = _steps(added)
    soft = (steps[:, :-4] + steps[:, 4:]) / 2
    # A thing recoloured up to its own outline has no seam.
    beyond = steps[:, 2:-2] - _SOFT * soft - _OUTLINE * _steps(before)[:, 2:-2]
    excess = np.maximum(
        0.0, beyond.max(axis=1) - _USUAL * np.quantile(steps, 0.75, axis=1)
    )
    excess = np.linalg.norm(excess, axis=1)
    return {
        "step": float(excess.mean())
        * min(1.0, len(profiles) / _SHORT, max(0.0, 1 - _LEAKED * _stray(change))),
        "sharp": float(
            (excess > 3.0).mean()
        ),  # a line of 3 colour units is just seen on an even surface
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
        inner = ((points > _REACH) & (points < (width - _REACH, height - _REACH))).all(
            axis=1
        )
        halves = (
            np.ascontiguousarray(planes[..., k : k + 3])
            for k in range(0, planes.shape[2], 3)
        )
        border = cv2.BORDER_REPLICATE
        sampled = [
            cv2.remap(half, at[..., 0], at[..., 1], cv2.INTER_LINEAR, borderMode=border)
            for half in halves
        ]
        profiles.append(_smooth(np.concatenate(sampled, axis=-1))[inner])
    total = np.concatenate(profiles) if profiles else np.zeros((0,))
    return total if len(total) >= 4 * _ALONG else None


def _smooth(values: Array) -> Array:
    """Averaged along a closed rim."""
    half = _ALONG // 2
    padded = np.concatenate([values[-half:], values, values[:half]])
    summed = np.cumsum(
        np.concatenate([np.zeros_like(padded[:1]), padded]), axis=0, dtype=np.float64
    )
    mean: Array = ((summed[_ALONG:] - summed[:-_ALONG]) / _ALONG).astype(np.float32)
    return mean


def outline(region: Array, valid: Array) -> Array:
    """Pixels of the region at its rim, but not at the picture's."""
    inner = cv2.erode(
        region, np.ones((3, 3), np.uint8), borderType=cv2.BORDER_CONSTANT, borderValue=1
    )
    rim: Array = (region > 0) & (inner == 0) & (valid > 0)
    return rim


# --- light and colour of the edit ---------------------------------------------------------------------------

_SIDE = 96
"""Longest side on which shading is seen; finer is texture."""


def find_shading(scene: Scene, change: Change, likeness: Array) -> dict[str, float]:
    """The slope of light that the edit added, inside and outside, and how its colours stand to those around."""
    inside, outside, before, after = map(
        _small,
        (
            change.inside.astype(np.float32),
            change.outside.astype(np.float32),
            change.expected,
            scene.after.lab,
        ),
    )
    ratio = _log_light(after) - _log_light(before)
    # Where another thing stands now, light and surface cannot be told apart.
    same_thing = (
        inside
        * np.clip(
            area(likeness, inside.shape[::-1]) - 0.4,
            0,
            0.4,
        )
        / 0.4
    )
    ins = _slope(ratio, same_thing)
    outs = _slope(ratio, outside)
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
    return area(plane, size)


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
    sx, sy = (
        max(1.0, float(np.sqrt(((c - m) ** 2 * weight).sum() / total)))
        for c, m in ((xs, cx), (ys, cy))
    )
    design = np.stack([np.ones_like(xs), (xs - cx) / sx, (ys - cy) / sy], -1).reshape(
        -1, 3
    )
    w = weight.reshape(-1, 1)
    plane = np.linalg.solve(
        design.T @ (design * w) + 1e-3 * np.eye(3), (design * w).T @ ratio.reshape(-1)
    )
    # From one end of an even spread to the other are 3.5 of its standard deviations.
    return float(3.5 * plane[1]), float(3.5 * plane[2])


def _colours(
    before: Array, after: Array, inside: Array, outside: Array
) -> dict[str, float]:
    """Whether colours inside the edit are ones that the picture has."""
    if inside.sum() < 2 or outside.sum() < 20:
        return dict.fromkeys(("light step", "vivid", "contrast"), math.nan)

    def mean(lab: Array, weight: Array) -> Array:
        return np.average(
            lab.reshape(-1, lab.shape[-1]), axis=0, weights=weight.reshape(-1)
        )

    chroma = [
        np.linalg.norm(lab[..., 1:], axis=-1)[..., None] for lab in (before, after)
    ]
    was = mean(before, inside)
    now = mean(after, inside)
    around = after[outside > 0.5]
    usual = (
        float(np.quantile(np.linalg.norm(around[:, 1:], axis=1), 0.95))
        if len(around)
        else 0.0
    )
    spread = [
        float(np.sqrt(mean((lab[..., :1] - m[0]) ** 2, inside)[0]))
        for lab, m in ((before, was), (after, now))
    ]
    return {
        "light step": float(abs(now[0] - was[0])),
        "vivid": max(
            0.0,
            float(mean(chroma[1], inside)[0])
            - max(usual, float(mean(chroma[0], inside)[0])),
        ),
        "contrast": float(np.log2((spread[1] + 2) / (spread[0] + 2))),
    }


# --- look of the whole image --------------------------------------------------------------------------------

_GRAY = 2.0
"""Mean chroma of a picture without hues: what remains is noise, whose median turn says nothing."""


def find_style(scene: Scene, change: Change) -> dict[str, float]:
    """Shift of the palette, correlation of the layout, and change of the way edges are drawn."""
    before, after = (area(v.lab, (64, 64)) for v in (scene.before, scene.after))
    outside = area(change.outside.astype(np.float32), (64, 64)) > 0.5
    if outside.mean() < 0.15:
        outside = np.ones_like(outside)
    a = before[outside]
    b = after[outside]
    return {
        "palette": _palette(a, b),
        "shift": float(np.linalg.norm(np.median(b - a, axis=0))),
        **_transform(
            before,
            after,
            area(change.expected, (64, 64)),
            outside,
        ),
        "layout": _layout(before[..., 0], after[..., 0]),
        "drawing": _drawing(scene),
    }


def _transform(
    before: Array, after: Array, expected: Array, outside: Array
) -> dict[str, float]:
    """Measure what happened to all colours: a turn of hues (degrees), and what the turn leaves of it (colour units)."""
    was, now = (lab[..., 1] + 1j * lab[..., 2] for lab in (before, after))
    # The median by vividness: grays have no hue that could turn, and a stain is not the palette.
    coloured = float(np.abs(was)[outside].mean()) > _GRAY
    angle = (
        weighted_median(np.angle(now * was.conj())[outside], np.abs(was)[outside])
        if coloured
        else 0.0
    )
    hues = was * np.exp(1j * angle)
    rest = np.stack([before[..., 0], hues.real, hues.imag], axis=-1) - expected
    moved = float(np.linalg.norm(expected - before, axis=-1).mean())
    tinted = min(moved, float(np.linalg.norm(rest, axis=-1).mean()))
    return {
        "turned": abs(np.degrees(angle)) if coloured else math.nan,
        "tinted": tinted,
    }


def _palette(a: Array, b: Array) -> float:
    """Distance of two clouds of colour (sliced Wasserstein over fixed directions), in colour units."""
    angles = np.linspace(0, np.pi, 6, endpoint=False)
    directions = [
        np.array([1.0, 0, 0]),
        *(np.array([0, np.cos(t), np.sin(t)]) for t in angles),
    ]
    far = [np.mean(np.abs(np.sort(a @ d) - np.sort(b @ d))) for d in directions]
    return float(np.sqrt(far[0] ** 2 + max(far[1:]) ** 2))


def _layout(a: Array, b: Array) -> float:
    """Correlation of large light and dark shapes: 1 where the composition stayed, NaN where there are no shapes."""
    a, b = (cv2.GaussianBlur(p, (0, 0), 2.0).ravel() for p in (a, b))
    if a.std() < 0.5 or b.std() < 0.5:
        return math.nan
    return float(np.corrcoef(a, b)[0, 1])


def _drawing(scene: Scene) -> float:
    """How the histogram of edge strength moved, median to ninety-ninth percentile, in octaves."""
    levels = []
    for v in (scene.before, scene.after):
        soft = cv2.GaussianBlur(v.lightness, (0, 0), 1.5)
        edges = cv2.magnitude(
            cv2.Sobel(soft, cv2.CV_32F, 1, 0), cv2.Sobel(soft, cv2.CV_32F, 0, 1)
        )
        levels.append(
            np.log2(np.quantile(edges[::2, ::2], [0.5, 0.75, 0.9, 0.99]) + 1.0)
        )
    return float(np.abs(levels[0] - levels[1]).mean())


# --- statistics of photographs (BRISQUE's family) -----------------------------------------------------------


@lru_cache(maxsize=1)
def _shapes() -> tuple[Array, Array, Array]:
    """Shape parameters of the generalised Gaussian, with the moment ratio by which each is recognised."""
    from scipy.special import gamma

    alpha = np.arange(0.2, 10.0, 0.01)
    ratio = gamma(2 / alpha) ** 2 / (gamma(1 / alpha) * gamma(3 / alpha))
    spread = np.sqrt(gamma(1 / alpha) / gamma(3 / alpha))
    return alpha, ratio, spread * gamma(2 / alpha) / gamma(1 / alpha)


def normalised(lightness: Array) -> Array:
    """Each pixel less its neighbourhood's mean, over the neighbourhood's contrast."""
    mean = cv2.GaussianBlur(lightness, (7, 7), 7 / 6)
    variance = cv2.GaussianBlur(lightness * lightness, (7, 7), 7 / 6) - mean * mean
    contrast = np.sqrt(np.maximum(variance, 0))
    out: Array = (lightness - mean) / (contrast + 0.5)
    return out


def statistics(plane: Array) -> dict[str, float]:
    """Shape and spread of normalised lightness, and of its products with the four neighbours."""
    shape, left, right, _ = _asymmetric(plane)
    figures = {"shape": shape, "spread": (left + right) / 2}
    for name, (dy, dx) in {"h": (0, 1), "v": (1, 0), "d": (1, 1), "e": (1, -1)}.items():
        product = plane * np.roll(plane, (dy, dx), (0, 1))
        shape, left, right, mean = _asymmetric(product)
        figures |= {
            f"{name} shape": shape,
            f"{name} mean": mean,
            f"{name} left": left,
            f"{name} right": right,
        }
    return figures


def _asymmetric(values: Array) -> tuple[float, float, float, float]:
    """Generalised Gaussian with two spreads, by moments."""
    flat = values.ravel()
    negative = np.minimum(flat, 0)
    positive = np.maximum(flat, 0)
    n_neg = max(1, int(np.count_nonzero(flat < 0)))
    n_pos = max(1, int(np.count_nonzero(flat > 0)))
    left = float(np.sqrt(negative @ negative / n_neg)) + 1e-6
    right = float(np.sqrt(positive @ positive / n_pos)) + 1e-6
    absolute = float(np.abs(flat).mean())
    square = float(flat @ flat / len(flat)) + 1e-9
    balance = left / right
    r = absolute**2 / square * (balance**3 + 1) * (balance + 1) / (balance**2 + 1) ** 2
    alpha, ratio, factor = _shapes()
    # The ratio rises with the shape, so the shape is found by looking it up.
    k = min(int(np.searchsorted(ratio, r)), len(alpha) - 1)
    return float(alpha[k]), left, right, float((right - left) * factor[k])


def find_naturalness(view: View) -> dict[str, float]:
    """The statistics at two scales."""
    figures: dict[str, float] = {}
    plane = view.lightness
    for scale in ("1", "2"):
        figures |= {
            f"{name} {scale}": value
            for name, value in statistics(normalised(plane)).items()
        }
        plane = cv2.pyrDown(plane)
    return figures


def find_content(view: View) -> dict[str, float]:
    """Describe the kind of image: light, colour and contrast at four scales."""
    chroma = cv2.magnitude(view.lab[..., 1], view.lab[..., 2])
    figures = {
        "light": float(view.lightness.mean()),
        "range": float(view.lightness.std()),
        "chroma": float(chroma.mean()),
        "chroma range": float(chroma.std()),
        "edges": float(np.log(cv2.Laplacian(view.lightness, cv2.CV_32F).var() + 1)),
    }
    plane = view.lightness
    for scale in ("1", "2", "4", "8"):
        mean = cv2.GaussianBlur(plane, (11, 11), 1.5)
        spread = cv2.GaussianBlur(plane * plane, (11, 11), 1.5) - mean * mean
        figures[f"contrast {scale}"] = float(
            np.log2(np.sqrt(np.maximum(spread, 0)).mean() + 0.4)
        )
        plane = cv2.pyrDown(plane)
    return figures


# --- all of them --------------------------------------------------------------------------------------------

Values: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Measures:
    scene: Scene
    change: Change
    values: Values
    """Each measure as `family.name`; one that could not be taken is absent."""

    @cached_property
    def sight(self) -> Sight:
        """Features of the network, extracted when they are first needed."""
        return look(self.scene, self.change)


def measure(scene: Scene) -> Measures:
    change = find_change(scene)
    likeness, weight = structure_map(scene)
    # light that drowns structure is light, and no loss of structure
    lit, _ = structure_map(scene, light=True)
    detail = find_detail(scene, change, likeness)
    overall = everywhere(detail)
    texture = in_edit(detail)
    structure = find_structure(scene, change, likeness, weight)
    lost = structure["lost outside"] if change.outside.any() else structure["lost"]
    natural = _both(find_naturalness, scene)
    content = _both(find_content, scene)
    families = {
        "change": _spread(change, scene.mask is not None),
        "overall": overall | damage(scene),
        "texture": texture,
        "seam": find_seam(scene, change),
        "light": find_shading(scene, change, lit),
        "style": find_style(scene, change),
        "structure": structure,
        "trust": trust(
            texture["kept"],
            share_kept(lit, detail.inside),
            lost,
            float(change.inside.mean()),
        ),
        "redrawn": redrawn(scene),
        "turned": turned(scene, change),
        "natural": natural,
        "content": content,
    }
    values = {
        f"{family}.{name}": float(v)
        for family, family_values in families.items()
        for name, v in family_values.items()
    }
    # What could not be measured is absent: it is no evidence that nothing is wrong.
    return Measures(
        scene, change, {name: v for name, v in values.items() if math.isfinite(v)}
    )


def _both(find: Callable[[View], dict[str, float]], scene: Scene) -> dict[str, float]:
    """Return the figures of the image before, and what the edit added to them."""
    before = find(scene.before)
    after = find(scene.after)
    return before | {
        f"{name} gain": value - before[name] for name, value in after.items()
    }


def _spread(change: Change, masked: bool) -> dict[str, float]:
    outside = change.outside > 0
    visible = change.visible > 1
    stray = float((visible & outside).mean())
    if not masked:
        # A change over much of the picture is more than one edit's target.
        stray += max(0.0, change.share - 0.25)
    elif not outside.any():
        stray = math.nan  # the mask leaves nothing that should have stayed
    return {
        "stray": stray,
        "share": change.share,
        "visible share": float(visible.mean()),
        "tint": change.tint,
        "floor": change.floor,
        "mean": float(change.difference.mean()),
        "mean inside": _mean(change.difference[change.inside]),
        "mean outside": _mean(change.difference[outside]),
        "visible outside": _mean(visible[outside]),
    }


def _mean(values: Array) -> float:
    return float(values.mean()) if values.size else math.nan
