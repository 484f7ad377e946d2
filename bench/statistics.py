"""Time a clustered summary of a million judgements beside the plain loop and SciPy, in one run.

    python bench/statistics.py [--judgements N] [--draws N] [--loop-draws N]

A judgement scores 12 factors; 10 models edit the same source images. The plain loop draws groups, gathers their
rows and averages, as one would write it; it is timed on a few draws and scaled to all. SciPy's `bootstrap` knows
no groups, so it gets one cell and its own resampling of rows. Imports are not timed. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.special  # imported here because what is timed imports it on first use
import scipy.stats
from numpy.typing import NDArray

from editjudge.stats.agreement import agree
from editjudge.stats.columns import Column, Ratings, Scores
from editjudge.stats.summary import summarise

FACTORS = 12
MODELS = 10
PER_GROUP = 5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--judgements", type=int, default=1_000_000)
    parser.add_argument("--draws", type=int, default=2_000)
    parser.add_argument(
        "--loop-draws",
        type=int,
        default=5,
        help="draws of the plain loop that are timed",
    )
    options = parser.parse_args()
    scores = made_up(options.judgements)
    before = peak()
    ours, cells = timed(lambda: summarise(scores, draws=options.draws))
    used = peak() - before
    loop = plain_loop(scores, options.loop_draws) / options.loop_draws * options.draws
    slices = {
        name: beside_scipy(part, options.draws)
        for name, part in one_cell(scores).items()
    }
    rated, agreement = million_ratings(options.draws)
    answer = {
        "judgements": options.judgements,
        "scores": len(scores),
        "groups": len(scores.group.labels),
        "cells": len(cells),
        "draws": options.draws,
        "seconds": ours,
        "extra_memory_mb": used,
        "plain_loop_seconds_scaled": loop,
        "plain_loop_draws_timed": options.loop_draws,
        "ratio_plain_loop": loop / ours,
        **slices,
        "agreement": {"ratings": rated, "seconds": agreement},
    }
    print(json.dumps(answer, indent=1, allow_nan=False))


def made_up(judgements: int) -> Scores:
    """Scores of 1 to 7 with an effect of the source image, one failure in fifty."""
    rng = np.random.default_rng(0)
    edits = max(1, judgements // MODELS)
    groups = max(1, edits // PER_GROUP)
    edit = np.repeat(np.arange(edits), MODELS)
    model = np.tile(np.arange(MODELS), edits)
    group = edit % groups
    effect = rng.normal(0, 1, groups)
    level = 4 + effect[group] + 0.1 * model
    score = np.clip(
        np.rint(level[:, None] + rng.normal(0, 1, (len(edit), FACTORS))), 1, 7
    )
    failed = rng.random(score.shape) < 0.02
    score[failed] = np.nan
    n = score.size
    return Scores(
        item=column(np.repeat(np.arange(len(edit)), FACTORS), len(edit), "item"),
        factor=column(np.tile(np.arange(FACTORS), len(edit)), FACTORS, "factor"),
        score=score.ravel(),
        answer=np.zeros(n, np.uint64),
        status=Column(failed.ravel().astype(np.int32), ("ok", "invalid")),
        judge=Column.constant("judge", n),
        model=column(np.repeat(model, FACTORS), MODELS, "model"),
        group=column(np.repeat(group, FACTORS), groups, "group"),
        pair=column(np.repeat(edit, FACTORS), edits, "edit"),
        repeat=np.zeros(n, np.int32),
    )


def column(codes: NDArray[Any], n: int, name: str) -> Column:
    return Column(codes.astype(np.int32), tuple(f"{name}{i}" for i in range(n)))


def plain_loop(scores: Scores, draws: int) -> float:
    """Seconds for so many draws: pick groups, gather their rows, average every model and factor."""
    rng = np.random.default_rng(0)
    ok = scores.take(scores.ok)
    cell = ok.model.codes.astype(np.int64) * FACTORS + ok.factor.codes
    order = np.argsort(ok.group.codes, kind="stable")
    sizes = np.bincount(ok.group.codes, minlength=len(ok.group.labels))
    members = np.split(order, np.cumsum(sizes)[:-1])
    start = time.perf_counter()
    for _ in range(draws):
        picks = rng.integers(0, len(members), len(members))
        rows = np.concatenate([members[i] for i in picks])
        np.bincount(cell[rows], weights=ok.score[rows]) / np.bincount(cell[rows])
    return time.perf_counter() - start


def one_cell(scores: Scores) -> dict[str, Scores]:
    """One model and factor of at most 20,000 edits: SciPy keeps all its resamples in memory."""
    part = scores.where(model="model0", factor="factor0")
    part = part.take(np.arange(min(20_000, len(part))))
    decimals = replace(
        part, score=part.score + np.random.default_rng(2).uniform(-0.5, 0.5, len(part))
    )
    groups = -(-len(part) // PER_GROUP)
    clustered = replace(
        decimals, group=column(np.arange(len(part)) % groups, groups, "group")
    )
    return {
        "slice": part,
        "slice_of_decimals": decimals,
        "slice_of_clustered_decimals": clustered,
    }


def beside_scipy(part: Scores, draws: int, rounds: int = 7) -> dict[str, float]:
    """CPU time, in turns, and the median of each: what else runs on the machine then counts little."""
    values = part.score[part.ok]

    def theirs() -> None:
        scipy.stats.bootstrap(
            (values,), np.mean, n_resamples=draws, method="percentile", batch=100, rng=0
        )

    spent = [
        [cpu(lambda: summarise(part, draws=draws)), cpu(theirs)] for _ in range(rounds)
    ]
    own, other = np.median(spent, axis=0)
    return {
        "rows": len(values),
        "groups": len(part.group.compact().labels),
        "cpu_seconds": float(own),
        "scipy_bootstrap_cpu_seconds": float(other),
        "ratio_scipy": float(other / own),
    }


def cpu(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def million_ratings(draws: int) -> tuple[int, float]:
    """Three people and a judge on 333,334 edits of one factor."""
    rng = np.random.default_rng(1)
    n = 333_334
    truth = rng.normal(4, 1.5, n)
    people = np.clip(np.rint(truth[:, None] + rng.normal(0, 1, (n, 3))), 1, 7)
    judge = np.clip(np.rint(truth + rng.normal(0, 1.5, n)), 1, 7)
    item = column(np.arange(n), n, "item")
    ratings = Ratings(
        item=Column(np.repeat(item.codes, 3), item.labels),
        rater=column(np.tile(np.arange(3), n), 3, "rater"),
        factor=Column.constant("alignment", 3 * n),
        score=people.ravel(),
    )
    scores = Scores(
        item=item,
        factor=Column.constant("alignment", n),
        score=judge,
        answer=np.zeros(n, np.uint64),
        status=Column.constant("ok", n),
        judge=Column.constant("judge", n),
        model=column(np.arange(n) % MODELS, MODELS, "model"),
        group=column(np.arange(n) // 50, n // 50 + 1, "group"),
        pair=item,
        repeat=np.zeros(n, np.int32),
    )
    seconds, _ = timed(lambda: agree(ratings, scores, draws=draws))
    return len(ratings), seconds


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def peak() -> float:
    """Highest resident memory so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
