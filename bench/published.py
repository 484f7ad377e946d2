"""Recompute published figures from the people's ratings and judges' scores that they were made of.

    python bench/published.py [--data DIR] [--draws N]

Prints one JSON document. The data are not part of this project; without them the script says so and ends.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from editjudge.ratings import VOTES
from editjudge.stats.agreement import agree
from editjudge.stats.ceiling import Pairs, alpha_ordinal, estimate, fleiss
from editjudge.stats.columns import Column, Ratings, Scores, number
from editjudge.stats.pairwise import accuracy

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

SAME_NAME = {
    "Text-To-Image": "Text-Guided_IG",
    "Multi-Subject_IG": "Multi-Concept_IC",
    "DALLE": "DALLE2",
    "PR": "PQ",
    "HumanEval": "O",
}
"""The published agreement cells call tasks, a model and aspects by other names than the ratings do."""

ORDERS = [
    *(
        (" ".join(str(i + 1) for i in order), order, 17)
        for order in itertools.permutations(range(3))
    ),
    ("any, equal means kept equal", (0, 1, 2), 9),
]
"""Square roots do not add up alike in every order, which makes equal means unequal and moves the overall column.
The released notebook adds raters as the file system lists them, an order that was not kept: so all are shown."""

Row = Mapping[str, str]
Table = dict[str, dict[str, dict[str, Any]]]
"""Task, model, item to a value."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=DATA, help="where the rated data sets lie"
    )
    parser.add_argument("--draws", type=int, default=2_000)
    options = parser.parse_args()
    if not (options.data / "viescore_ratings").is_dir():
        print(f"no data at {options.data}: nothing to recompute", file=sys.stderr)
        return
    ratings = list(rows(options.data / "viescore_ratings" / "ratings.csv"))
    answer = {
        "viescore_table": viescore_table(options.data / "viescore_ratings", ratings),
        "irr": irr(options.data / "viescore_ratings", ratings),
        **{
            name: reference(options.data / name, options.draws)
            for name in ("imagenhub_text", "imagenhub_mask")
        },
        "preference_pairs": preferences(
            options.data / "preference_pairs", options.draws
        ),
    }
    print(json.dumps(answer, indent=1, allow_nan=False))


def rows(path: Path) -> Iterable[Row]:
    with path.open(newline="") as file:
        yield from csv.DictReader(file)


def manifest(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (folder / "manifest.jsonl").read_text().splitlines()
    ]


def viescore_table(folder: Path, ratings: list[Row]) -> dict[str, Any]:
    """The published table, three ways: its own method, guesses left out, and a true Fisher average."""
    published = json.loads((folder / "published.json").read_text())["values"]
    human = human_means(ratings)
    judged: dict[str, list[Row]] = defaultdict(list)
    for row in rows(folder / "judge_scores.csv"):
        judged[row["judge"]].append(row)
    table: dict[str, Any] = {}
    for judge, values in published.items():
        every = judge_scores(judged[judge])
        said = judge_scores(judged[judge], guessed=False)
        table[judge] = {
            aspect: {
                "items": len(every[aspect]),
                "items_without_guesses": len(said[aspect]),
                "published": values[i],
                "same_method": task_average(every[aspect], human[aspect], fisher=False),
                "without_guesses": task_average(
                    said[aspect], human[aspect], fisher=False
                ),
                "fisher_without_guesses": task_average(
                    said[aspect], human[aspect], fisher=True
                ),
                "fisher_with_guesses": task_average(
                    every[aspect], human[aspect], fisher=True
                ),
            }
            for i, aspect in enumerate(("SC", "PQ", "O"))
        }
    cells = [cell for aspects in table.values() for cell in aspects.values()]
    scores = {judge: judge_scores(judged[judge])["O"] for judge in published}
    others = sum(round(c[aspect]["same_method"], 4) == c[aspect]["published"]
                 for c in table.values() for aspect in ("SC", "PQ"))  # fmt: skip
    off = [abs(cell["same_method"] - cell["published"]) for cell in cells]
    return {
        "cells": len(off),
        "exact_to_four_decimals": sum(
            round(c["same_method"], 4) == c["published"] for c in cells
        ),
        "exact_by_order_of_raters": {
            name: others
            + exact_overall(published, scores, human_means(ratings, order, digits)["O"])
            for name, order, digits in ORDERS
        },
        "largest_difference": max(off),
        "largest_change_without_guesses": max(
            abs(c["without_guesses"] - c["same_method"])
            for c in cells
            if c["without_guesses"] is not None
        ),
        "judges": table,
    }


def exact_overall(
    published: Mapping[str, list[float]],
    scores: Mapping[str, Mapping[str, float]],
    human: Table,
) -> int:
    """How many of the overall cells come out exactly with these means of the raters."""
    found = {
        judge: task_average(scores[judge], human, fisher=False) for judge in published
    }
    return sum(
        value is not None and round(value, 4) == published[j][2]
        for j, value in found.items()
    )


def human_means(
    ratings: list[Row], order: tuple[int, ...] = (0, 1, 2), digits: int = 17
) -> dict[str, Table]:
    """SC and PQ as means over raters; O = sqrt(SC * PQ) of each rater, then the mean, summed in this order."""
    each: dict[tuple[str, str, str], dict[str, dict[str, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for row in ratings:
        each[row["task"], row["model"], row["item"]][row["rater"]][row["factor"]] = (
            float(row["score"])
        )
    out: dict[str, Table] = {
        a: defaultdict(lambda: defaultdict(dict)) for a in ("SC", "PQ", "O")
    }
    for (task, model, item), raters in each.items():
        for aspect in ("SC", "PQ"):
            out[aspect][task][model][item] = float(
                np.mean([r[aspect] for r in raters.values()])
            )
        roots = [math.sqrt(r["SC"] * r["PQ"]) for r in raters.values()]
        out["O"][task][model][item] = round(
            sum(roots[i] for i in order) / len(order), digits
        )
    return out


def judge_scores(
    judged: list[Row], *, guessed: bool = True
) -> dict[str, dict[str, float]]:
    """Scores on 0 to 1 of the items that have both aspects; a guess is a random number, not a score."""
    both: dict[str, dict[str, float]] = defaultdict(dict)
    for row in judged:
        if row["score"] and (guessed or row["guessed"] == "0"):
            both[row["item"]][row["factor"]] = min(
                1.0, max(0.0, int(float(row["score"])) / 10)
            )
    full = {item: s for item, s in both.items() if "SC" in s and "PQ" in s}
    return {
        "SC": {item: s["SC"] for item, s in full.items()},
        "PQ": {item: s["PQ"] for item, s in full.items()},
        "O": {item: math.sqrt(s["SC"] * s["PQ"]) for item, s in full.items()},
    }


def task_average(
    judge: Mapping[str, float], human: Table, *, fisher: bool
) -> float | None:
    """Spearman per model, averaged over models, then tasks.

    `fisher`: atanh, mean, tanh. Without it, as published: tanh of the plain mean, twice over.
    """
    tasks = []
    for models in human.values():
        found = []
        for items in models.values():
            both = [item for item in items if item in judge]
            x = np.array([judge[i] for i in both])
            y = np.array([items[i] for i in both])
            found.append(estimate(Pairs(x, y, np.arange(len(both))))["spearman"])
        tasks.append(
            average([value for value in found if math.isfinite(value)], fisher=fisher)
        )
    return average([value for value in tasks if value is not None], fisher=fisher)


def average(values: list[float], *, fisher: bool) -> float | None:
    if not values:
        return None
    # A correlation of exactly 1 has no atanh; such cells have a handful of items.
    inner = (
        [math.atanh(min(max(v, -0.999), 0.999)) for v in values] if fisher else values
    )
    return math.tanh(float(np.mean(inner)))


def irr(folder: Path, ratings: list[Row]) -> dict[str, Any]:
    """Published cells of Fleiss' kappa and ordinal Krippendorff's alpha, per task, model and aspect."""
    published = json.loads((folder / "irr_published.json").read_text())
    cells = rating_cells(ratings)
    exact = 0
    absent = []
    undefined = []
    off = {}
    for key, (value, _) in published.items():
        task, model, aspect, figure = key.split("/")
        cell = cells.get(
            (
                SAME_NAME.get(task, task),
                SAME_NAME.get(model, model),
                SAME_NAME.get(aspect, aspect),
            )
        )
        if cell is None:
            absent.append(key)
            continue
        item = Column.of(name for name, _ in cell)
        x = np.array([score for _, score in cell])
        found = (
            fleiss(item.codes, x)
            if figure == "fleiss"
            else alpha_ordinal(item.codes, x)
        )
        if found is None:
            undefined.append(
                {
                    "cell": key,
                    "published": number(value),
                    "values": sorted(set(x.tolist())),
                }
            )
        elif abs(round(found, 2) - value) < 1e-9:
            exact += 1
        else:
            off[key] = [number(value), found]
    return {
        "cells": len(published),
        "exact_to_two_decimals": exact,
        "undefined": undefined,
        "different": off,
        "ratings_not_in_the_data": absent,
    }


def rating_cells(
    ratings: list[Row],
) -> dict[tuple[str, str, str], list[tuple[str, float]]]:
    """Ratings by task, model and aspect; O is each rater's sqrt(SC * PQ)."""
    cells: dict[tuple[str, str, str], list[tuple[str, float]]] = defaultdict(list)
    both: dict[tuple[str, str, str, str], dict[str, float]] = defaultdict(dict)
    for row in ratings:
        where = row["task"].removeprefix("ImagenHub_"), row["model"]
        cells[(*where, row["factor"])].append((row["item"], float(row["score"])))
        both[(*where, row["item"], row["rater"])][row["factor"]] = float(row["score"])
    for (task, model, item, _), score in both.items():
        cells[task, model, "O"].append((item, math.sqrt(score["SC"] * score["PQ"])))
    return cells


def reference(folder: Path, draws: int) -> dict[str, Any]:
    """Judge against people, pooled and within model, beside one person against the others."""
    edits = {edit["id"]: edit for edit in manifest(folder)}
    people = list(rows(folder / "ratings.csv"))
    judged = list(rows(folder / "judge_scores.csv"))
    found = agree(
        Ratings.of(
            [row["item"] for row in people],
            [row["rater"] for row in people],
            [row["factor"] for row in people],
            [float(row["score"]) for row in people],
        ),
        Scores.of(
            [row["item"] for row in judged],
            [row["factor"] for row in judged],
            [float(row["score"]) if row["score"] else None for row in judged],
            judge=[row["judge"] for row in judged],
            model=[edits[row["item"]]["model"] for row in judged],
            group=[edits[row["item"]]["group"] for row in judged],
        ),
        draws=draws,
    )
    out: dict[str, Any] = {}
    for factor, judges in found.factors.items():
        human = found.humans[factor]
        out[factor] = {"one_person": [human.loo_spearman, human.ci.get("loo_spearman")]}
        for judge, figures in judges.items():
            out[factor][judge] = {
                "n": figures.n,
                "pooled": [figures.spearman, figures.ci.get("spearman")],
                "within_model": [
                    figures.within_model.spearman,
                    figures.within_model.ci.get("spearman"),
                ],
            }
    return out


def preferences(folder: Path, draws: int) -> dict[str, Any]:
    """Accuracy of stored votes; `strict` counts an answer that could not be read as wrong."""
    pairs = manifest(folder)
    human = [pair["human_preference"] for pair in pairs]
    groups = [pair["group"] for pair in pairs]
    out = {}
    for judge in pairs[0]["judge_votes"]:
        votes = [
            VOTES.get((pair["judge_votes"].get(judge) or "").casefold())
            for pair in pairs
        ]
        found = accuracy(human, votes, group=groups, draws=draws)
        out[judge] = {
            name: getattr(found, name)
            for name in (
                "n",
                "answered",
                "strict",
                "strict_ci",
                "accuracy",
                "without_ties",
                "decided",
                "judge_ties",
            )
        }
    return out


if __name__ == "__main__":
    main()
