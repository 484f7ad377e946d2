"""How fast `--judge metrics` computes all that it says of a pair, beside scikit-image's SSIM of the same definition.

python -m bench.metrics [--side 1024] [--pairs 5]
"""

from __future__ import annotations

import argparse
import json

import cv2
from skimage import metrics

from bench.measured import Picture, cpu_ms, pair
from editjudge.vision.metrics import MetricPair

PIXELS = ("l1", "mse", "psnr", "ssim", "ms_ssim")
WHOLE = (*PIXELS, "perceptual_lite0", "feature_lite0")


def compute(pair: MetricPair, names: tuple[str, ...]) -> None:
    for name in names:
        pair.value(name)


def ours(before: Picture, after: Picture) -> None:
    compute(MetricPair(before, after), WHOLE)


def ours_pixels(before: Picture, after: Picture) -> None:
    compute(MetricPair(before, after), PIXELS)


def ours_ssim(before: Picture, after: Picture) -> None:
    MetricPair(before, after).value("ssim")


def theirs(before: Picture, after: Picture) -> None:
    metrics.structural_similarity(
        before,
        after,
        channel_axis=2,
        gaussian_weights=True,
        use_sample_covariance=False,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--side", type=int, default=1024)
    given = parser.parse_args()
    cv2.setNumThreads(1)
    pictures = pair(given.side)
    calls = (ours, ours_pixels, ours_ssim, theirs)
    every, pixels, ssim, other = (cpu_ms(call, pictures, given.pairs) for call in calls)
    figures = {
        "metrics_cpu_ms": every,
        "pixels_cpu_ms": pixels,
        "ssim_cpu_ms": ssim,
        "skimage_ssim_cpu_ms": other,
    }
    answer = {"side": given.side} | {
        name: round(value, 1) for name, value in figures.items()
    }
    print(
        json.dumps(
            answer
            | {"ratio_ssim": round(ssim / other, 3), "ratio": round(every / other, 3)},
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
