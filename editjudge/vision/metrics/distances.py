"""Published metrics of an output against an input or a ground truth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from editjudge.vision.measured import network as eyes
from editjudge.vision.measured.scene import fit

Array: TypeAlias = NDArray[Any]

WINDOW = 11
SIGMA = 1.5
BORDER = WINDOW // 2
C1 = 0.01**2
C2 = 0.03**2
"""The constants of the paper, for pixels from 0 to 1."""
WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Weights of the five scales of MS-SSIM (Wang, Simoncelli and Bovik, 2003)."""
LEAST_SIDE = WINDOW
LEAST_SIDE_MS = WINDOW * 2 ** (len(WEIGHTS) - 1)
"""176 pixels: so that a window fits into the smallest of the scales."""


def unit(picture: Array) -> Array:
    """8 bits a channel as numbers from 0 to 1."""
    scaled: Array = picture.astype(np.float64) / 255
    return scaled


def l1(a: Array, b: Array, where: Array | None = None) -> float:
    """Mean absolute difference, over the pixels of a region if one is given."""
    return float(_chosen(np.abs(a - b), where).mean())


def mse(a: Array, b: Array, where: Array | None = None) -> float:
    """Mean squared difference, over the pixels of a region if one is given."""
    return float(_chosen((a - b) ** 2, where).mean())


def psnr(error: float) -> float:
    """Return the PSNR of a mean squared error above 0, in decibels; 0 has none."""
    return -10 * math.log10(error)


def ssim_map(a: Array, b: Array) -> Array:
    """Local SSIM, the mean of all channels, at every pixel that has a whole window."""
    local: Array = (
        sum(_inner(_similarity(a[..., n], b[..., n])[0]) for n in range(a.shape[2]))
        / a.shape[2]
    )
    return local


def ssim(local: Array, where: Array | None = None) -> float:
    """The mean of local SSIM; a region is given at the size of the pictures."""
    inner = None if where is None else _inner(where)
    # rounding takes equal pictures past 1
    return min(1.0, float(_chosen(local, inner).mean()))


def ms_ssim(a: Array, b: Array) -> float:
    """Contrast and structure at five scales, luminance at the last; negative correlation at a scale counts as none."""
    value = 1.0
    for scale, weight in enumerate(WEIGHTS):
        maps = [_similarity(a[..., n], b[..., n]) for n in range(a.shape[2])]
        last = scale == len(WEIGHTS) - 1
        means = [
            float((whole if last else _inner(contrast)).mean())
            for whole, contrast in maps
        ]
        value *= min(1.0, max(0.0, sum(means) / len(means))) ** weight
        a = _halved(a)
        b = _halved(b)
    return value


def _similarity(a: Array, b: Array) -> tuple[Array, Array]:
    """Local SSIM of one channel, and its part without luminance. Channel by channel takes a third of the memory."""
    mean_a = _blurred(a)
    mean_b = _blurred(b)
    product = mean_a * mean_b
    squares = mean_a**2 + mean_b**2
    contrast = (2 * (_blurred(a * b) - product) + C2) / (
        _blurred(a**2 + b**2) - squares + C2
    )
    return (2 * product + C1) / (squares + C1) * contrast, contrast


def _chosen(values: Array, where: Array | None) -> Array:
    chosen: Array = values if where is None else values[where]
    return chosen


def _blurred(values: Array) -> Array:
    blurred: Array = cv2.GaussianBlur(
        values, (WINDOW, WINDOW), SIGMA, borderType=cv2.BORDER_REFLECT_101
    )
    return blurred


def _inner(values: Array) -> Array:
    """Without the border, at which a window leaves the picture."""
    return values[BORDER:-BORDER, BORDER:-BORDER]


def _halved(values: Array) -> Array:
    """The mean of each two by two pixels; an odd last row or column is left out."""
    height, width = (side // 2 * 2 for side in values.shape[:2])
    even = values[:height, :width]
    halved: Array = (
        even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2]
    ) / 4
    return halved


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
        (height, width) = self.reference.shape[:2]
        (h, w) = self.edited.shape[:2]
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
        return self._fitted("reference", self.reference), self._fitted(
            "edited", self.edited
        )

    def _fitted(self, name: str, picture: Array) -> Array:
        (height, width) = self.size
        (h, w) = picture.shape[:2]
        if (h, w) != (height, width):
            how, words = (
                (cv2.INTER_AREA, "area")
                if h * w > height * width
                else (cv2.INTER_CUBIC, "cubic")
            )
            self.notes[f"{name} resized"] = (
                f"from {w} x {h} to {width} x {height} pixels, {words}"
            )
            picture = cv2.resize(picture, (width, height), interpolation=how)
        return unit(picture)

    @cached_property
    def local(self) -> Array:
        """SSIM at every pixel that has a whole window."""
        return ssim_map(*self.pair)

    @cached_property
    def inside(self) -> Array | None:
        if self.mask is None:
            return None
        height, width = self.size
        gray = self.mask.mean(axis=2, dtype=np.float32)
        inside: Array = (
            cv2.resize(gray, (width, height), interpolation=cv2.INTER_NEAREST) > 127
        )
        return inside

    @cached_property
    def seen(self) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
        """Outputs of EfficientNet-Lite0 for both images, by layer."""
        reference, edited = (
            eyes.see(fit(x, SEEN, SEEN)) for x in (self.reference, self.edited)
        )
        return reference, edited

    def region(self, name: str) -> Array | str | None:
        """The pixels of a region, None for the whole picture, or why there are none."""
        if name == "whole":
            return None
        if self.inside is None:
            return "the edit has no mask"
        where = self.inside if name == "inside" else ~self.inside
        return where if where.any() else f"nothing is {name} the mask"


def _psnr(c: MetricPair, where: Array | None) -> Value:
    error = mse(*c.pair, where)
    return (
        psnr(error)
        if error
        else "no pixel differs: PSNR is infinite, which is no number"
    )


def _ssim(c: MetricPair, where: Array | None) -> Value:
    if min(c.size) < LEAST_SIDE:
        return f"a side has fewer than {LEAST_SIDE} pixels, the window of SSIM"
    if where is not None and not _inner(where).any():
        return "no window of SSIM is centred in that region"
    return ssim(c.local, where)


def _ms_ssim(c: MetricPair) -> Value:
    if min(c.size) < LEAST_SIDE_MS:
        return f"a side has fewer than {LEAST_SIDE_MS} pixels, which the five scales of MS-SSIM need"
    return ms_ssim(*c.pair)


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


def _of(
    measure: Callable[[MetricPair, Array | None], Value], name: str
) -> Callable[[MetricPair], Value]:
    def value(comparison: MetricPair) -> Value:
        region = comparison.region(name)
        return region if isinstance(region, str) else measure(comparison, region)

    return value


_BY_REGION: dict[str, Callable[[MetricPair, Array | None], Value]] = {
    "l1": lambda c, where: l1(*c.pair, where),
    "mse": lambda c, where: mse(*c.pair, where),
    "psnr": _psnr,
    "ssim": _ssim,
}
_METRICS: dict[str, Callable[[MetricPair], Value]] = {
    **{
        metric if region == "whole" else f"{metric}_{region}": _of(measure, region)
        for metric, measure in _BY_REGION.items()
        for region in ("whole", "inside", "outside")
    },
    "ms_ssim": _ms_ssim,
    "perceptual_lite0": _perceptual,
    "feature_lite0": _feature,
}
METRICS = tuple(_METRICS)
