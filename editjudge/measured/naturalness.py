"""Statistics by which photographs differ from what generators make of them (BRISQUE's family)."""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np

from editjudge.measured.scene import Array, View


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
        figures |= {f"{name} shape": shape, f"{name} mean": mean, f"{name} left": left, f"{name} right": right}
    return figures


def _asymmetric(values: Array) -> tuple[float, float, float, float]:
    """Generalised Gaussian with two spreads, by moments."""
    flat = values.ravel()
    negative, positive = np.minimum(flat, 0), np.maximum(flat, 0)
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
        figures |= {f"{name} {scale}": value for name, value in statistics(normalised(plane)).items()}
        plane = cv2.pyrDown(plane)
    return figures


def find_content(view: View) -> dict[str, float]:
    """What kind of picture it is: light, colour and contrast at four scales."""
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
        figures[f"contrast {scale}"] = float(np.log2(np.sqrt(np.maximum(spread, 0)).mean() + 0.4))
        plane = cv2.pyrDown(plane)
    return figures
