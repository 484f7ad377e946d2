"""Features from a network trained on photographs: differences between patches, channels and classes before and after an
edit.

EfficientNet-Lite0 (`efficientnet_lite0.onnx`, made by bench/make_backbone.py) processes both full images and a close
view of the edit. Scores are computed elsewhere, by a calibration fitted to people's ratings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from editjudge.vision.measured.change import Change
from editjudge.vision.measured.scene import Array, Scene, area, fit

FILE = Path(__file__).with_name("efficientnet_lite0.onnx")
DIGEST = "861a93a491d5a5f1dbeaafb91faf018468fb8dd7f63e9c8010ecfbe1e2dba836"
"""SHA-256 of the file. The calibration was fitted to these weights; others would give other features."""
LAYERS = (2, 4, 10, 15, 16)
"""Layers whose outputs are used, from fine texture to the features that distinguish classes."""
_WHOLE = 512
_NEAR = 224
"""Side in pixels to which the full image is resized (16 x 16 patches), and the side of the close view of the edit."""
_MARGIN = 0.15
"""Margin around the edit, as a share of its extent."""
_LEAST = 0.2
"""Minimum share of the image's side that the close view shows. A smaller area would be mostly interpolation."""

_ALL = (0.0, 1.0, 0.0, 1.0)
"""Top, bottom, left and right edge of the full image, as fractions of its height and width."""

Features: TypeAlias = Mapping[str, Array]
"""Kinds of features, each as a row of numbers; NaN if there is nothing to compare."""


@lru_cache(maxsize=1)
def _session() -> Any:
    """Open the network with one thread. There is already a worker for each core, and a fixed order of additions makes
    results reproducible."""
    import onnxruntime

    data = FILE.read_bytes()
    if (digest := hashlib.sha256(data).hexdigest()) != DIGEST:
        raise RuntimeError(
            f"{FILE}: digest {digest[:12]} instead of {DIGEST[:12]}; install editjudge again"
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        data, options, providers=["CPUExecutionProvider"]
    )


def extract(scene: Scene, change: Change) -> Features:
    """Compare the full image and the close view of the edit, before and after."""
    inside = change.inside & (scene.valid > 0)
    features: dict[str, Array] = {}
    near = edit_box(inside)
    for name, side, box in (("whole", _WHOLE, _ALL), ("near", _NEAR, near)):
        was, now = (
            see(fit(_cut(view.rgb, *box), side, side))
            for view in (scene.before, scene.after)
        )
        parts = [_cut(part, *box) for part in (inside, change.outside > 0)]
        features |= {f"{name} {kind}": row for kind, row in _compared(was, now, *parts)}
    return features


def see(image: Array) -> dict[str, Array]:
    """Return the output of each layer for a square RGB image."""
    scaled = (image.astype(np.float32) - 127) / 128
    session = _session()
    planes = np.ascontiguousarray(scaled.transpose(2, 0, 1))[None]
    outputs = session.run(None, {"picture": planes})
    return {
        output.name: row[0]
        for output, row in zip(session.get_outputs(), outputs, strict=True)
    }


def edit_box(inside: Array) -> tuple[float, float, float, float]:
    """Return the top, bottom, left and right edge of the edit and its surroundings, as fractions of the image's height
    and width. If nothing was edited, return the edges of the full image."""
    if not inside.any():
        return _ALL
    bounds: list[float] = []
    for axis in (1, 0):
        at = np.flatnonzero(inside.any(axis=axis))
        size = inside.shape[1 - axis]
        low = at[0] / size
        high = (at[-1] + 1) / size
        half = max(_LEAST, (high - low) * (1 + 2 * _MARGIN)) / 2
        middle = min(max((low + high) / 2, half), 1 - half) if half < 0.5 else 0.5
        bounds += [max(0.0, middle - half), min(1.0, middle + half)]
    return bounds[0], bounds[1], bounds[2], bounds[3]


def _cut(image: Array, top: float, bottom: float, left: float, right: float) -> Array:
    height, width = image.shape[:2]
    return image[
        round(top * height) : round(bottom * height),
        round(left * width) : round(right * width),
    ]


def _compared(
    before: Mapping[str, Array],
    after: Mapping[str, Array],
    inside: Array,
    outside: Array,
) -> Iterator[tuple[str, Array]]:
    for layer in LAYERS:
        patches = f"patches{layer}"
        far = _distances(before[patches], after[patches], inside, outside)
        yield f"distance {layer}", far
        channels = []  # mean and standard deviation of each channel
        for outputs in (before, after):
            mean = outputs[patches].mean(axis=(1, 2))
            variance = np.maximum(0.0, outputs[f"squares{layer}"] - mean * mean)
            channels.append(np.concatenate([mean, np.sqrt(variance)]))
        yield f"channels {layer}", channels[1]
        yield f"gains {layer}", channels[1] - channels[0]
    yield "classes", _classes(before["classes"], after["classes"])


def _distances(before: Array, after: Array, inside: Array, outside: Array) -> Array:
    """Return one minus the cosine between each patch's channels before and after, averaged over the image, inside the
    edit and outside it."""
    a, b = (x / (np.linalg.norm(x, axis=0) + 1e-6) for x in (before, after))
    far = np.maximum(0.0, 1 - (a * b).sum(axis=0))
    size = far.shape[1], far.shape[0]
    figures = [far.mean(), *np.quantile(far, [0.25, 0.5, 0.75, 0.9, 1.0])]
    weights = [area(part.astype(np.float32), size) for part in (inside, outside)]
    for weight in weights:
        total = weight.sum()
        figures.append(float((far * weight).sum() / total) if total > 0.5 else np.nan)
    stray = far[weights[1] > 0.5]
    figures.append(float(np.quantile(stray, 0.9)) if len(stray) else np.nan)
    row: Array = np.sqrt(np.array(figures))
    return row


def _classes(before: Array, after: Array) -> Array:
    """Return the network's confidence before and after, and the Jensen-Shannon divergence between the two predictions."""
    p, q = (np.exp(x - x.max()) / np.exp(x - x.max()).sum() for x in (before, after))
    was, now, both = (
        float(-(x * np.log(x + 1e-12)).sum()) for x in (p, q, (p + q) / 2)
    )
    diverged = both - (was + now) / 2
    shared = float((p * q).sum() ** 0.5)
    return np.array([was, now, now - was, diverged, p.max(), q.max(), shared])
