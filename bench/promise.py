"""How often a filter that `export --good` promises keeps too few good edits, simulated.

    python -m bench.promise [--runs N]

Edits of one source image share a part of the quality that people see; the judge sees that quality with noise. Six cuts are
tested on rated source images drawn at random, and the chosen cut is checked on 20,000 other edits. Prints, for each
number of rated images and edits an image: the share of runs with a promise, the share with a false one, and the mean
share of edits kept.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
from numpy.typing import NDArray

from editjudge.stats.columns import Floats
from editjudge.stats.filtering import tested_cuts

PRECISION = 0.9
CONFIDENCE = 0.95
SHARES = (0.05, 0.15, 0.3, 0.5, 0.7, 0.9)
"""Shares of edits that the cuts keep."""


def edits(
    images: int, each: int, noise: float, seed: int
) -> tuple[Floats, NDArray[np.bool_], NDArray[np.int64]]:
    """Return the judge's score of each edit, whether it is good, and its image."""
    generator = np.random.default_rng(seed)
    shared = np.repeat(generator.normal(0, 0.7, images), each)
    quality = shared + generator.normal(0, 0.7, images * each)
    score = quality + generator.normal(0, noise, images * each)
    return score, quality > 0, np.repeat(np.arange(images), each)


def simulate(images: int, each: int, noise: float, runs: int) -> dict[str, float]:
    scores, good, _ = edits(20_000 // each, each, noise, 0)
    cuts = np.quantile(scores, [1 - share for share in SHARES])
    precisions = [float(good[scores >= cut].mean()) for cut in cuts]
    promised = 0
    false = 0
    kept = 0.0
    for seed in range(1, runs + 1):
        scores, good, group = edits(images, each, noise, seed)
        keeps = [scores >= cut for cut in cuts]
        tests = tested_cuts(keeps, good, group, PRECISION, CONFIDENCE)
        passed = [i for i, test in enumerate(tests) if test.passed]
        if passed:
            promised += 1
            false += any(precisions[i] < PRECISION for i in passed)
            kept += SHARES[max(passed)]
    return {
        "best": max(precisions),
        "promised": promised / runs,
        "false": false / runs,
        "kept": kept / max(promised, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    runs = parser.parse_args().runs
    rows = [
        {"images": images, "each": each, "noise": noise}
        | simulate(images, each, noise, runs)
        for noise in (0.3, 1.0)
        for each in (1, 3)
        for images in (50, 100, 300, 1_000)
    ]
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
