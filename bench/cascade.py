"""What a cascade saves and costs: a cheap judge first, the dear one only where the cheap one did not rule an edit out.

    editjudge run DATA/manifest.jsonl --rubric preservation --judge measured --store S --name cheap --max-failures 1
    python -m bench.cascade DATA --store S --run cheap [--dear gpt4o_0shot] [--draws 1000]

DATA holds `manifest.jsonl`, `ratings.csv` (people) and `judge_scores.csv` (stored answers of judges). An edit that the
cheap judge scores below the cut is ruled out: it gets the lowest score there is. One without a cheap score goes to
the dear judge. Prints JSON: for each cheap judge and each score to cut at (as `run --where RUN:FACTOR>=CUT` does), the
share of dear calls saved, Spearman with the mean rating of people, how
much of it the cascade costs against the dear judge alone, and the share of the edits that people rate highest (the
best possible mean) which the cascade keeps. Intervals: 95 %, bootstrap over source images.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, rankdata

from editjudge.store.records import PENDING
from editjudge.store.store import Store

Floats = NDArray[np.float64]


def means(
    path: Path, name: str, factor: str, who: str | None = None
) -> dict[str, float]:
    """The mean score of each item, of one judge or of everybody."""
    found: dict[str, list[float]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["factor"] == factor and who in (None, row[name]) and row["score"]:
                found.setdefault(row["item"], []).append(float(row["score"]))
    return {item: sum(scores) / len(scores) for item, scores in found.items()}


def measured(store: Path, run: str) -> dict[str, dict[str, float]]:
    """By factor, what an earlier run scored; not a number where it abstained."""
    found: dict[str, dict[str, float]] = {}
    with Store.open(store, readonly=True) as opened:
        rows = opened.judgements(
            opened.find_run(run), fields=("item", "status", "scores", "abstained")
        )
        for row in (row for row in rows if row["status"] != PENDING):
            for factor, score in (row["scores"] or {}).items():
                found.setdefault(factor, {})[row["item"]] = score
            for factor in row["abstained"]:
                found.setdefault(factor, {})[row["item"]] = np.nan
    return {
        factor: scores
        for factor, scores in found.items()
        if not np.isnan([*scores.values()]).all()
    }


def spearman(a: Floats, b: Floats) -> float:
    # not a number where one of them is always the same
    with np.errstate(invalid="ignore"):
        return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def cascade(
    cheap: Floats, dear: Floats, cut: float
) -> tuple[Floats, NDArray[np.bool_]]:
    """Final scores, and which edits the dear judge saw."""
    asked = np.isnan(cheap) | (cheap >= cut)
    return np.where(asked, dear, dear.min() - 1), asked


def interval(values: list[float]) -> list[float]:
    low, high = np.nanquantile(values, [0.025, 0.975])
    return [round(float(low), 3), round(float(high), 3)]


def with_chance(found: list[float], kept: int, of: int) -> list[float]:
    """No resampling sees what a small count may have missed: at least as wide as the exact binomial interval."""
    exact = binomtest(kept, of).proportion_ci()
    return [round(min(found[0], exact.low), 3), round(max(found[1], exact.high), 3)]


def told(
    cheap: Floats,
    dear: Floats,
    people: Floats,
    groups: NDArray[np.int64],
    cut: float,
    draws: int,
) -> Any:
    final, asked = cascade(cheap, dear, cut)
    best = people >= people.max() - 1e-9
    members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    chance = np.random.default_rng(0)
    drawn: dict[str, list[float]] = {
        "spearman": [],
        "cost": [],
        "kept": [],
        "saved": [],
    }
    for _ in range(draws):
        some = np.concatenate(
            [members[i] for i in chance.integers(0, len(members), len(members))]
        )
        there = spearman(final[some], people[some])
        drawn["spearman"].append(there)
        drawn["cost"].append(spearman(dear[some], people[some]) - there)
        drawn["kept"].append(
            float(asked[some][best[some]].mean()) if best[some].any() else np.nan
        )
        drawn["saved"].append(float(1 - asked[some].mean()))
    whole = spearman(final, people)
    return {
        "cut": cut,
        "saved": round(float(1 - asked.mean()), 3),
        "saved_ci": interval(drawn["saved"]),
        "spearman": round(whole, 3),
        "spearman_ci": interval(drawn["spearman"]),
        "agreement_lost": round(spearman(dear, people) - whole, 3),
        "agreement_lost_ci": interval(drawn["cost"]),
        "best_edits_kept": round(float(asked[best].mean()), 3),
        "best_edits_kept_ci": with_chance(
            interval(drawn["kept"]), int(asked[best].sum()), int(best.sum())
        ),
    }


def compared(
    cheap: Mapping[str, float],
    dear: Mapping[str, float],
    people: Mapping[str, float],
    group: Mapping[str, str],
    draws: int,
) -> dict[str, Any]:
    items = sorted(set(cheap) & set(dear) & set(people))
    ours, theirs, rated = (
        np.array([source[item] for item in items]) for source in (cheap, dear, people)
    )
    _, groups = np.unique([group[item] for item in items], return_inverse=True)
    seen = ~np.isnan(ours)
    return {
        "n": len(items),
        "groups": int(groups.max()) + 1,
        "scored_by_the_cheap_judge": int(seen.sum()),
        "best_edits": int((rated >= rated.max() - 1e-9).sum()),
        "dear_alone": round(spearman(theirs, rated), 3),
        "cheap_alone": round(spearman(ours[seen], rated[seen]), 3),
        "cascades": [
            told(ours, theirs, rated, groups, float(cut), draws)
            for cut in np.unique(ours[seen])[1:]
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--run")
    parser.add_argument(
        "--measured",
        action="append",
        default=[],
        help="Factors of the run; all of them without it.",
    )
    parser.add_argument("--dear", default="gpt4o_0shot")
    parser.add_argument(
        "--cheap", action="append", default=[], help="Judges of judge_scores.csv."
    )
    parser.add_argument("--factor", default="SC", help="As people rated it.")
    parser.add_argument("--draws", type=int, default=1000)
    given = parser.parse_args()
    rows = [
        json.loads(line)
        for line in (given.data / "manifest.jsonl").read_text().splitlines()
    ]
    group = {row["id"]: str(row.get("group", row["id"])) for row in rows}
    people = means(given.data / "ratings.csv", "rater", given.factor)
    scores = given.data / "judge_scores.csv"
    cheap = {
        judge: means(scores, "judge", given.factor, judge) for judge in given.cheap
    }
    if given.run:
        found = measured(given.store, given.run)
        cheap |= {
            f"measured {factor}": found[factor] for factor in given.measured or found
        }
    dear = means(scores, "judge", given.factor, given.dear)
    told_of = {
        name: compared(one, dear, people, group, given.draws)
        for name, one in cheap.items()
    }
    print(
        json.dumps(
            {"dear": given.dear, "factor": given.factor, "cheap": told_of}, indent=2
        )
    )


if __name__ == "__main__":
    main()
