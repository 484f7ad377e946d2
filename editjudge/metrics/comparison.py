"""Two pictures of an edit brought to one size, and every metric of them: a number, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import cv2
import numpy as np

from editjudge.measured import network as eyes
from editjudge.measured.scene import fit
from editjudge.metrics import distances
from editjudge.metrics.distances import Array

SEEN = 512
"""Pixels a side at which the network looks, as the embedded judge has it."""

ASPECT = 0.02
"""Difference of aspect ratios above which an output was cropped or padded: pixels no longer lie over each other."""

MOST_PIXELS = 2048 * 2048
"""Larger pictures are reduced to so many pixels: SSIM holds about 120 bytes for each, half a gigabyte a worker."""

Value = float | str
"""A number, or the reason why there is none."""


@dataclass(eq=False)
class MetricPair:
    """An output against a reference, at the size of the reference."""

    reference: Array
    edited: Array
    mask: Array | None = None
    """White where the edit belongs."""
    notes: dict[str, str] = field(default_factory=dict)

    def values(self, wanted: Mapping[str, str]) -> Iterator[tuple[str, Value]]:
        """For each factor the metric that it names."""
        for factor, metric in wanted.items():
            yield factor, self.problem or _METRICS[metric](self)

    @cached_property
    def problem(self) -> str | None:
        """Why nothing can be compared, if nothing can."""
        (height, width), (h, w) = self.reference.shape[:2], self.edited.shape[:2]
        if abs(w * height / (h * width) - 1) > ASPECT:
            return f"the shapes differ: {w} x {h} pixels against {width} x {height}; no pixel has a counterpart"
        return None

    @cached_property
    def size(self) -> tuple[int, int]:
        """Height and width at which everything is compared."""
        height, width = self.reference.shape[:2]
        share = min(1.0, (MOST_PIXELS / (height * width)) ** 0.5)
        return max(1, int(height * share)), max(1, int(width * share))

    @cached_property
    def pair(self) -> tuple[Array, Array]:
        return self._fitted("reference", self.reference), self._fitted("edited", self.edited)

    def _fitted(self, name: str, picture: Array) -> Array:
        (height, width), (h, w) = self.size, picture.shape[:2]
        if (h, w) != (height, width):
            how, words = (cv2.INTER_AREA, "area") if h * w > height * width else (cv2.INTER_CUBIC, "cubic")
            self.notes[f"{name} resized"] = f"from {w} x {h} to {width} x {height} pixels, {words}"
            picture = cv2.resize(picture, (width, height), interpolation=how)
        return distances.unit(picture)

    @cached_property
    def local(self) -> Array:
        """SSIM at every pixel that has a whole window."""
        return distances.ssim_map(*self.pair)

    @cached_property
    def inside(self) -> Array | None:
        if self.mask is None:
            return None
        height, width = self.size
        gray = self.mask.mean(axis=2, dtype=np.float32)
        inside: Array = cv2.resize(gray, (width, height), interpolation=cv2.INTER_NEAREST) > 127
        return inside

    @cached_property
    def seen(self) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
        """What EfficientNet-Lite0 makes of both pictures, by layer."""
        reference, edited = (eyes.see(fit(x, SEEN, SEEN)) for x in (self.reference, self.edited))
        return reference, edited

    def region(self, name: str) -> Array | str | None:
        """The pixels of a region, None for the whole picture, or why there are none."""
        if name == "whole":
            return None
        if self.inside is None:
            return "the edit has no mask"
        where = self.inside if name == "inside" else ~self.inside
        return where if where.any() else f"nothing is {name} the mask"


def _l1(c: MetricPair, where: Array | None) -> Value:
    return distances.l1(*c.pair, where)


def _mse(c: MetricPair, where: Array | None) -> Value:
    return distances.mse(*c.pair, where)


def _psnr(c: MetricPair, where: Array | None) -> Value:
    error = distances.mse(*c.pair, where)
    return distances.psnr(error) if error else "no pixel differs: PSNR is infinite, which is no number"


def _ssim(c: MetricPair, where: Array | None) -> Value:
    if min(c.size) < distances.LEAST_SIDE:
        return f"a side has fewer than {distances.LEAST_SIDE} pixels, the window of SSIM"
    border = distances.BORDER
    if where is not None and not where[border:-border, border:-border].any():
        return "no window of SSIM is centred in that region"
    return distances.ssim(c.local, where)


def _ms_ssim(c: MetricPair) -> Value:
    least = distances.LEAST_SIDE_MS
    if min(c.size) < least:
        return f"a side has fewer than {least} pixels, which the five scales of MS-SSIM need"
    return distances.ms_ssim(*c.pair)


def _perceptual(c: MetricPair) -> Value:
    """LPIPS without its learnt weights: squared distances of channels of length one, over patches and layers."""
    far = []
    for layer in eyes.LAYERS:
        a, b = (x[f"patches{layer}"] for x in c.seen)
        a, b = (x / (np.linalg.norm(x, axis=0) + 1e-6) for x in (a, b))
        far.append(float(((a - b) ** 2).sum(axis=0).mean()))
    return sum(far) / len(far)


def _feature(c: MetricPair) -> Value:
    """One minus the cosine of what the last layer sees of each picture as a whole; its channels are never negative."""
    a, b = (x[f"patches{eyes.LAYERS[-1]}"].mean(axis=(1, 2)) for x in c.seen)
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    if not length:
        return "the network sees nothing in one of the pictures"
    return min(1.0, max(0.0, 1 - float(a @ b) / length))


def _of(measure: Callable[[MetricPair, Array | None], Value], name: str) -> Callable[[MetricPair], Value]:
    def value(comparison: MetricPair) -> Value:
        region = comparison.region(name)
        return region if isinstance(region, str) else measure(comparison, region)

    return value


_METRICS: dict[str, Callable[[MetricPair], Value]] = {
    **{
        metric if region == "whole" else f"{metric}_{region}": _of(measure, region)
        for metric, measure in {"l1": _l1, "mse": _mse, "psnr": _psnr, "ssim": _ssim}.items()
        for region in ("whole", "inside", "outside")
    },
    "ms_ssim": _ms_ssim,
    "perceptual_lite0": _perceptual,
    "feature_lite0": _feature,
}
METRICS = tuple(_METRICS)
