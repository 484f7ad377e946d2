"""What a planned sample of ratings and judges as proxies save, on real ratings.

    python -m bench.ratings_plan [--runs N] [--share S]

The cells are the models of ImagenHub's text-guided and mask-guided edits (data that are not part of the project) by two
factors, with three judges. A share of all edits is rated, drawn by `ratings plan` or by a simple random sample, and people's
mean over all edits of a model is estimated. Prints, over the cells: the bias of planned estimates in standard errors, the
squared error of planned samples over that of simple ones (which is the share of ratings that a planned sample needs for the
same width), both with the panel of judges, and the width of the interval with the panel over that with ratings alone.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from pathlib import Path

import numpy as np

from editjudge.stats.calibration import powered_mean
from editjudge.stats.columns import Floats
from editjudge.stats.sampling import draw, probabilities

DATA = Path("../shared/data")
JUDGES = ("gpt4o_0shot", "gpt4v_0shot", "gemini_0shot")


class Table:
    """Ratings and scores of the edits of one folder that every judge scored."""

    def __init__(self, folder: Path) -> None:
        ratings: dict[tuple[str, str], list[float]] = defaultdict(list)
        scores: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        with (folder / "ratings.csv").open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                ratings[row["item"], row["factor"]].append(float(row["score"]))
        with (folder / "judge_scores.csv").open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["score"] and row["judge"] in JUDGES:
                    score = float(row["score"])
                    scores[row["item"], row["factor"]][row["judge"]] = score
        self.factors = sorted({factor for _, factor in ratings})
        complete = [
            item
            for item in {item for item, _ in ratings}
            if all(len(scores[item, factor]) == len(JUDGES) for factor in self.factors)
        ]
        self.items = sorted(complete)
        self.group = [item.partition("__")[0] for item in self.items]
        self.model = np.array([item.partition("__")[2] for item in self.items])
        self.people = {
            factor: np.array([np.mean(ratings[item, factor]) for item in self.items])
            for factor in self.factors
        }
        by_judge = {
            factor: np.array(
                [
                    [scores[item, factor][judge] for judge in JUDGES]
                    for item in self.items
                ]
            )
            for factor in self.factors
        }
        self.panel = {factor: each.mean(axis=1) for factor, each in by_judge.items()}
        spreads = [each.std(axis=1) / each.std() for each in by_judge.values()]
        self.disagreement: Floats = np.mean(spreads, axis=0)


def cells(table: Table, share: float, runs: int) -> list[dict[str, float]]:
    budget = int(share * len(table.items))
    planned = probabilities(table.disagreement, budget)
    simple = np.full(len(planned), budget / len(planned))
    stratum = np.unique(table.model, return_inverse=True)[1]
    found: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for seed in range(runs):
        for number, chances in enumerate((planned, simple)):
            rated = np.zeros(len(planned), dtype=bool)
            rated[draw(chances, stratum, seed)] = True
            for factor in table.factors:
                for model in np.unique(table.model):
                    here = table.model == model
                    people = np.where(rated, table.people[factor], np.nan)[here]
                    group = [
                        g
                        for g, is_here in zip(table.group, here, strict=True)
                        if is_here
                    ]
                    estimate = powered_mean(
                        table.panel[factor][here],
                        people,
                        group=group,
                        probability=chances[here],
                    )
                    truth = table.people[factor][here].mean()
                    width = np.nan
                    if estimate.ci and estimate.human_ci:
                        alone = estimate.human_ci.hi - estimate.human_ci.lo
                        width = (estimate.ci.hi - estimate.ci.lo) / alone
                    error = np.nan if estimate.mean is None else estimate.mean - truth
                    found[factor, model].append([number, error, width])
    rows = []
    for results in found.values():
        columns = np.array(results)
        errors = [columns[columns[:, 0] == number, 1] for number in (0, 1)]
        if not errors[1].any():
            continue
        rows.append(
            {
                "bias": float(errors[0].mean() / (errors[0].std() / np.sqrt(runs))),
                "relative bias": float(errors[0].mean() / errors[0].std()),
                "squared error": float(
                    np.mean(errors[0] ** 2) / np.mean(errors[1] ** 2)
                ),
                "width": float(np.nanmedian(columns[columns[:, 0] == 0, 2])),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--share", type=float, default=0.4)
    arguments = parser.parse_args()
    if not DATA.is_dir():
        raise SystemExit(f"{DATA}: the data are not here")
    rows = []
    for name in ("imagenhub_text", "imagenhub_mask"):
        rows += cells(Table(DATA / name), arguments.share, arguments.runs)
    together = {
        figure: [
            round(float(x), 3)
            for x in np.nanquantile([row[figure] for row in rows], [0, 0.5, 1])
        ]
        for figure in rows[0]
    }
    print(json.dumps({"cells": len(rows), "least, median, most": together}, indent=1))


if __name__ == "__main__":
    main()
