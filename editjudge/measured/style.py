"""The look of the whole picture: palette, layout and style, read from what most of the picture did."""

from __future__ import annotations

import math

import cv2
import numpy as np

from editjudge.measured.change import Change
from editjudge.measured.detail import weighted_median
from editjudge.measured.scene import Array, Scene

_GRAY = 2.0
"""Mean chroma of a picture without hues: what remains is noise, whose median turn says nothing."""


def find_style(scene: Scene, change: Change) -> dict[str, float]:
    """Shift of the palette, correlation of the layout, and change of the way edges are drawn."""
    before, after = (cv2.resize(v.lab, (64, 64), interpolation=cv2.INTER_AREA) for v in (scene.before, scene.after))
    outside = cv2.resize(change.outside.astype(np.float32), (64, 64), interpolation=cv2.INTER_AREA) > 0.5
    if outside.mean() < 0.15:
        outside = np.ones_like(outside)
    a, b = before[outside], after[outside]
    return {
        "palette": _palette(a, b),
        "shift": float(np.linalg.norm(np.median(b - a, axis=0))),
        **_transform(before, after, cv2.resize(change.expected, (64, 64), interpolation=cv2.INTER_AREA), outside),
        "layout": _layout(before[..., 0], after[..., 0]),
        "drawing": _drawing(scene),
    }


def _transform(before: Array, after: Array, expected: Array, outside: Array) -> dict[str, float]:
    """What happened to all colours: a turn of hues (degrees), and what the turn leaves of it (colour units)."""
    was, now = (lab[..., 1] + 1j * lab[..., 2] for lab in (before, after))
    # The median by vividness: grays have no hue that could turn, and a stain is not the palette.
    coloured = float(np.abs(was)[outside].mean()) > _GRAY
    angle = weighted_median(np.angle(now * was.conj())[outside], np.abs(was)[outside]) if coloured else 0.0
    hues = was * np.exp(1j * angle)
    rest = np.stack([before[..., 0], hues.real, hues.imag], axis=-1) - expected
    moved = float(np.linalg.norm(expected - before, axis=-1).mean())
    tinted = min(moved, float(np.linalg.norm(rest, axis=-1).mean()))
    return {"turned": abs(np.degrees(angle)) if coloured else math.nan, "tinted": tinted}


def _palette(a: Array, b: Array) -> float:
    """Distance of two clouds of colour (sliced Wasserstein over fixed directions), in colour units."""
    angles = np.linspace(0, np.pi, 6, endpoint=False)
    directions = [np.array([1.0, 0, 0]), *(np.array([0, np.cos(t), np.sin(t)]) for t in angles)]
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
        edges = cv2.magnitude(cv2.Sobel(soft, cv2.CV_32F, 1, 0), cv2.Sobel(soft, cv2.CV_32F, 0, 1))
        levels.append(np.log2(np.quantile(edges[::2, ::2], [0.5, 0.75, 0.9, 0.99]) + 1.0))
    return float(np.abs(levels[0] - levels[1]).mean())
