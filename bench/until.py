"""How often `run --until` decides falsely, and how many answers it saves, on replayed differences of real scores.

    python -m bench.until [--runs N] [--images N]

The differences are those of two models' scores of the same source image, in data that are not part of the project. Their
signs are drawn at random, so their true mean is 0, and a shift of a number of standard deviations is added and cut off
at the ends of the scale. A run looks after every image. Beside it stands a one-sided z-test that looks once, after the
number of images at which it finds that shift with the same power; whoever plans it has to know the shift beforehand.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.special import ndtri

from editjudge.stats.columns import Floats
from editjudge.stats.sequence import log_money

DATA = Path("../shared/data")
SHIFTS = (0.0, 0.1, 0.3, 0.5, 1.0)
ALPHA = 0.05
SETS = {
    "imagenhub_text": ("gpt4o_0shot", "gpt4v_0shot", "gemini_0shot"),
    "imagenhub_mask": ("gpt4o_0shot", "gpt4v_0shot", "gemini_0shot"),
}
WIDTH = 10.0
"""Length of the scale of these scores, 0 to 10."""


def differences(folder: Path, judges: tuple[str, ...]) -> dict[str, Floats]:
    """Return the differences between every two models, as shares of the scale, keyed by judge and factor."""
    scores: dict[tuple[str, str], dict[tuple[str, str], float]] = defaultdict(dict)
    with (folder / "judge_scores.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["score"] and row["judge"] in judges:
                image, _, model = row["item"].partition("__")
                scores[row["judge"], row["factor"]][image, model] = float(row["score"])
    by_name = {}
    for (judge, factor), values in scores.items():
        models = sorted({model for _, model in values})
        gaps = [
            values[image, a] - values[image, b]
            for image, a in values
            for b in models
            if a < b and (image, b) in values
        ]
        by_name[f"{folder.name} {judge} {factor}"] = np.array(gaps) / WIDTH
    return by_name


def simulate(gaps: Floats, shift: float, runs: int, images: int) -> dict[str, float]:
    """Return the share of runs that decide for and against `A > B`, and the mean number of images."""
    generator = np.random.default_rng(7)
    sd = float(np.sqrt(np.mean(gaps**2)))
    enough = -math.log(ALPHA)
    taken = np.empty(runs)
    true = 0
    false = 0
    means = np.empty(runs)
    for run in range(runs):
        drawn = generator.choice(gaps, images) * generator.choice([-1, 1], images)
        drawn = np.clip(drawn + shift * sd, -1, 1)
        means[run] = drawn.mean()
        rising = np.nonzero(log_money((drawn + 1) / 2, 0.5) >= enough)[0]
        falling = np.nonzero(log_money((1 - drawn) / 2, 0.5) >= enough)[0]
        first_true = rising[0] + 1 if len(rising) else images + 1
        first_false = falling[0] + 1 if len(falling) else images + 1
        true += first_true < first_false
        false += first_false < first_true
        taken[run] = min(first_true, first_false, images)
    power = true / runs
    fixed = 0.0
    if shift and power > 0:
        z = ndtri(1 - ALPHA) + ndtri(min(power, 1 - 0.5 / runs))
        fixed = math.ceil((z * sd / means.mean()) ** 2)
    return {
        "true": power,
        "false": false / runs,
        "images": float(taken.mean()),
        "saved": 1 - float(taken.mean()) / images,
        "fixed": fixed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--images", type=int, default=400)
    arguments = parser.parse_args()
    if not DATA.is_dir():
        raise SystemExit(f"{DATA}: the data are not here")
    cells = {}
    for name, judges in SETS.items():
        for cell, gaps in differences(DATA / name, judges).items():
            cells[cell] = {
                shift: simulate(gaps, shift, arguments.runs, arguments.images)
                for shift in SHIFTS
            }
    together = {
        shift: {
            figure: [round(x, 3) for x in np.quantile(column, [0, 0.5, 1])]
            for figure in ("true", "false", "images", "saved", "fixed")
            for column in [[cell[shift][figure] for cell in cells.values()]]
        }
        for shift in SHIFTS
    }
    print(json.dumps({"cells": len(cells), "least, median, most": together}, indent=1))


if __name__ == "__main__":
    main()
