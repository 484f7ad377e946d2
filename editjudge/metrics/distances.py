"""How two pictures of one size differ: L1, MSE, PSNR, SSIM and MS-SSIM, by the definitions that papers cite.

Pixels are RGB from 0 to 1. SSIM is that of Wang et al. (2004): Gaussian windows of 11 pixels, sigma 1.5, population
variances, without the border of 5 pixels where a window would leave the picture. scikit-image computes the same with
`gaussian_weights=True, use_sample_covariance=False`; torchmetrics counts the border too, with mirrored pixels. MS-SSIM,
which scikit-image lacks, is that of torchmetrics, whose last scale has the border. By hand here because four blurs by
OpenCV are faster (bench/metrics.py), and torch is not needed; the tests compare.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

WINDOW, SIGMA = 11, 1.5
BORDER = WINDOW // 2
C1, C2 = 0.01**2, 0.03**2
"""The constants of the paper, for pixels from 0 to 1."""
WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Of the five scales of MS-SSIM (Wang, Simoncelli and Bovik, 2003)."""
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
    """Of a mean squared error above 0, in decibels; of 0 there is none."""
    return -10 * math.log10(error)


def ssim_map(a: Array, b: Array) -> Array:
    """Local SSIM, the mean of all channels, at every pixel that has a whole window."""
    local: Array = sum(_inner(_similarity(a[..., n], b[..., n])[0]) for n in range(a.shape[2])) / a.shape[2]
    return local


def ssim(local: Array, where: Array | None = None) -> float:
    """The mean of local SSIM; a region is given at the size of the pictures."""
    inner = None if where is None else _inner(where)
    return min(1.0, float(_chosen(local, inner).mean()))  # rounding takes equal pictures past 1


def ms_ssim(a: Array, b: Array) -> float:
    """Contrast and structure at five scales, luminance at the last; negative correlation at a scale counts as none."""
    value = 1.0
    for scale, weight in enumerate(WEIGHTS):
        maps = [_similarity(a[..., n], b[..., n]) for n in range(a.shape[2])]
        last = scale == len(WEIGHTS) - 1
        means = [float((whole if last else _inner(contrast)).mean()) for whole, contrast in maps]
        value *= min(1.0, max(0.0, sum(means) / len(means))) ** weight
        a, b = _halved(a), _halved(b)
    return value


def _similarity(a: Array, b: Array) -> tuple[Array, Array]:
    """Local SSIM of one channel, and its part without luminance. Channel by channel takes a third of the memory."""
    mean_a, mean_b = _blurred(a), _blurred(b)
    product, squares = mean_a * mean_b, mean_a**2 + mean_b**2
    contrast = (2 * (_blurred(a * b) - product) + C2) / (_blurred(a**2 + b**2) - squares + C2)
    return (2 * product + C1) / (squares + C1) * contrast, contrast


def _chosen(values: Array, where: Array | None) -> Array:
    chosen: Array = values if where is None else values[where]
    return chosen


def _blurred(values: Array) -> Array:
    blurred: Array = cv2.GaussianBlur(values, (WINDOW, WINDOW), SIGMA, borderType=cv2.BORDER_REFLECT_101)
    return blurred


def _inner(values: Array) -> Array:
    """Without the border, at which a window leaves the picture."""
    return values[BORDER:-BORDER, BORDER:-BORDER]


def _halved(values: Array) -> Array:
    """The mean of each two by two pixels; an odd last row or column is left out."""
    height, width = (side // 2 * 2 for side in values.shape[:2])
    even = values[:height, :width]
    halved: Array = (even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2]) / 4
    return halved
