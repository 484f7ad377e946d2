"""Judges with known strengths and a known position bias: are both recovered, and how many questions a ranking needs.

    python bench/pairs.py coverage [--runs N] [--bias B] [--kind share|odds]
    python bench/pairs.py active [--runs N] [--batch N]

`coverage`: five models, 60 source images, each pair asked in both orders. A share B of the answers names the first
output whatever it is (`--kind odds`: the first output gains log odds instead, which the fit does not assume); the
others follow Davidson's model with ties, with an effect of the source image on each model. Prints how often 95 %
intervals hold the strengths that the fit has with endless source images, the mean strengths, flips and ties beside
what they must be, and how often two equal models are told apart.

`active`: ten models, 100 source images. Questions that `pairs --next`, and a balanced sample, need until their ranking
is that of all 4,500 pairs and stays so: exactly, and in every two models that all pairs tell apart. Prints one JSON
document; every simulation has a fixed seed.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from editjudge.stats.pairwise import summarise
from editjudge.stats.strengths import next_games, posterior

Floats = NDArray[np.float64]
STRENGTHS = np.array([0.9, 0.4, 0.0, 0.0, -1.3])
TIE = 0.5
SPREAD = 0.5
SOURCES = 60
DRAWS = 200


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["coverage", "active"])
    parser.add_argument("--runs", type=int)
    parser.add_argument(
        "--bias",
        type=float,
        default=0.0,
        help="share of answers, or log odds; 1 is always the first",
    )
    parser.add_argument("--kind", choices=["share", "odds"], default="share")
    parser.add_argument("--batch", type=int, default=45, help="pairs chosen at a time")
    options = parser.parse_args()
    if options.what == "coverage":
        answer = coverage(options.runs or 400, options.bias, options.kind)
    else:
        answer = active(options.runs or 40, options.batch)
    print(json.dumps(answer, indent=1, allow_nan=False))


def chances(gap: Floats, bias: float, kind: str) -> Floats:
    """Of naming the first output, the second, or neither."""
    shift = bias if kind == "odds" else 0.0
    odds = np.stack(
        [
            np.exp((gap + shift) / 2),
            np.exp(-(gap + shift) / 2),
            np.full(gap.shape, TIE),
        ],
        axis=-1,
    )
    fair: Floats = odds / odds.sum(axis=-1, keepdims=True)
    return (
        fair if kind == "odds" else (1 - bias) * fair + bias * np.array([1.0, 0.0, 0.0])
    )


def answers(rng: np.random.Generator, bias: float, kind: str) -> dict[str, list[Any]]:
    """All pairs of all models on every source image, each in both orders, in the item's own naming."""
    m = len(STRENGTHS)
    level = STRENGTHS + rng.normal(0, SPREAD, (SOURCES, m))
    first, second = np.triu_indices(m, 1)
    turned = rng.random((SOURCES, len(first))) < 0.5
    a = np.where(turned, second, first)
    b = np.where(turned, first, second)
    rows = np.arange(SOURCES)[:, None]
    gap = level[rows, a] - level[rows, b]
    said = [drawn(rng, chances(gap, bias, kind)), drawn(rng, chances(-gap, bias, kind))]
    back = np.array([[0, 1, 2], [1, 0, 2]])
    names = np.array(["a", "b", "tie"])
    return {
        "model_a": [f"m{i}" for i in a.ravel()],
        "model_b": [f"m{i}" for i in b.ravel()],
        "ab": list(map(str, names[back[0][said[0]]].ravel())),
        "ba": list(map(str, names[back[1][said[1]]].ravel())),
        "group": list(map(int, np.repeat(np.arange(SOURCES), len(first)))),
    }


def drawn(rng: np.random.Generator, chance: Floats) -> NDArray[np.int64]:
    picked: NDArray[np.int64] = (
        rng.random(chance.shape[:-1])[..., None] > chance.cumsum(axis=-1)
    ).sum(axis=-1)
    return picked


def expected() -> tuple[Floats, float]:
    """Strengths and tie parameter that fit endless source images best, by another optimiser than the fit's own."""
    m = len(STRENGTHS)
    first, second = np.triu_indices(m, 1)
    effects = np.random.default_rng(0).normal(0, SPREAD * np.sqrt(2), 200_000)
    mean = np.array(
        [
            chances(STRENGTHS[i] - STRENGTHS[j] + effects, 0, "share").mean(axis=0)
            for i, j in zip(first, second, strict=True)
        ]
    )

    def loss(x: Floats) -> float:
        gap = x[first] - x[second]
        odds = np.stack(
            [np.exp(gap / 2), np.exp(-gap / 2), np.full(len(gap), np.exp(x[m]))], axis=1
        )
        return -float(
            (mean * np.log(odds / odds.sum(axis=1, keepdims=True))).sum()
        ) + 1e-9 * float(x @ x)

    best = minimize(loss, np.zeros(m + 1)).x
    return best[:m] - best[:m].mean(), float(np.exp(best[m]))


def coverage(runs: int, bias: float, kind: str) -> dict[str, Any]:
    truth, nu = expected()
    hits = given = equal = useless = 0
    strengths = []
    flips = []
    positions = []
    ties = []
    for seed in range(runs):
        found = summarise(
            **answers(np.random.default_rng(seed), bias, kind), draws=DRAWS, seed=seed
        )
        useless += found.useless is not None
        flips.append(found.flips.share or 0.0)
        positions.append(found.position.share or 0.0)
        by_name = {one.model: one for one in found.models}
        if found.tie_rate_of_equals is not None:
            ties.append(found.tie_rate_of_equals)
        if all(one.strength is not None for one in found.models):
            strengths.append(
                [by_name[f"m{i}"].strength or 0.0 for i in range(len(truth))]
            )
        for i, value in enumerate(truth):
            ci = by_name[f"m{i}"].strength_ci
            given += ci is not None
            hits += ci is not None and ci.lo <= value <= ci.hi
        equal += bool(found.groups) and not set(by_name["m2"].groups) & set(
            by_name["m3"].groups
        )
    return {
        "runs": runs, "kind": kind, "bias": bias, "sources": SOURCES, "truth": truth.round(3).tolist(),
        "mean_strengths": np.mean(strengths, axis=0).round(3).tolist() if strengths else None,
        "with_interval": given / runs / len(truth), "coverage": hits / given if given else None,
        "equal_models_told_apart": equal / runs, "mean_flips": float(np.mean(flips)),
        "mean_position": float(np.mean(positions)), "useless": useless / runs,
        "tie_rate_of_equals": float(np.mean(ties)) if ties else None, "tie_rate_truth": nu / (2 + nu),
    }  # fmt: skip


def active(runs: int, batch: int) -> dict[str, Any]:
    """Strengths are drawn anew in each run; a game is a verdict over both orders, or half a win each."""
    m = 10
    sources = 100
    first, second = np.triu_indices(m, 1)
    needed: dict[str, list[int]] = {
        f"{how}, {goal}": []
        for how in ("next", "sample")
        for goal in ("told apart", "exact")
    }
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        level = rng.normal(0, 1, m) + rng.normal(0, SPREAD, (sources, m))
        gap = level[:, first] - level[:, second]
        answered = [
            drawn(rng, chances(gap, 0.1, "share")),
            drawn(rng, chances(-gap, 0.1, "share")),
        ]
        points = (
            np.array([1, 0, 0.5])[answered[0]] / 2
            + np.array([0, 1, 0.5])[answered[1]] / 2
        )
        final, covariance = posterior(
            table(points, np.full(len(first), sources), first, second, m)
        )
        difference = final[first] - final[second]
        error = np.sqrt(
            covariance[first, first]
            + covariance[second, second]
            - 2 * covariance[first, second]
        )
        goals = {
            "told apart": np.abs(difference) > 1.96 * error,
            "exact": np.full(len(first), True),
        }
        for how in ("next", "sample"):
            used = np.zeros(len(first), np.int64)
            right: dict[str, list[bool]] = {goal: [] for goal in goals}
            order = rng.permuted(
                np.tile(np.arange(sources)[:, None], (1, len(first))), axis=0
            )
            shuffled = np.take_along_axis(points, order, axis=0)
            while used.sum() < sources * len(first):
                if how == "next":
                    left = np.zeros((m, m), np.int64)
                    left[first, second] = sources - used
                    for i, j in next_games(
                        table(shuffled, used, first, second, m), left, batch, rng=rng
                    ):
                        used[(first == i) & (second == j)] += 1
                else:
                    used[rng.permutation(np.flatnonzero(used < sources))[:batch]] += 1
                now = posterior(table(shuffled, used, first, second, m))[0]
                alike = (now[first] > now[second]) == (difference > 0)
                for goal, of in goals.items():
                    right[goal].append(bool(alike[of].all()))
            for goal, rounds in right.items():
                last_wrong = max(
                    (i for i, same in enumerate(rounds) if not same), default=-1
                )
                needed[f"{how}, {goal}"].append(
                    min((last_wrong + 2) * batch, sources * len(first))
                )
    pairs = sources * len(first)
    return {
        "runs": runs, "models": m, "sources": sources, "all_pairs": pairs, "batch": batch,
        "pairs_until_the_ranking_stays": {how: summary(x) for how, x in needed.items()},
        "fewer_than_all": {how: 1 - float(np.median(x)) / pairs for how, x in needed.items()},
    }  # fmt: skip


def summary(counts: list[Any]) -> dict[str, float]:
    return {
        "median": float(np.median(counts)),
        "mean": float(np.mean(counts)),
        "p90": float(np.quantile(counts, 0.9)),
    }


def table(
    points: Floats, used: NDArray[np.int64], first: Any, second: Any, m: int
) -> Floats:
    """Wins of models x models over the first so many source images of each pair."""
    seen = np.arange(len(points))[:, None] < used
    wins = np.zeros((m, m))
    wins[first, second] = np.where(seen, points, 0).sum(axis=0)
    wins[second, first] = used - wins[first, second]
    return wins


if __name__ == "__main__":
    main()
