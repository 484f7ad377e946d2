"""How many edits a bridge between two judges needs: by simulation, and on recorded judges of the same items.

    python -m bench.bridge [--data FOLDER] [--repeats 200]

Each bridge is fitted on 50 to 400 edits and tested on others: the error that it states for 90 % of edits beside the
true one, the share of levels at which its band covers the truth, and the share of models whose mean by the old judge is
inside the interval of the mapped mean, with and without the part for differences between models.

With `--data`, also on the folder `viescore_ratings`, whose `judge_scores.csv` has item, judge, factor, score and guessed
(1: a random number, which is left out). The old and the new judge are every ordered pair of set-ups; bridges are fitted
on some items and tested on the items of all other images. Of such pairs, only those with a Spearman of .6 are counted.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from editjudge.stats.bridge import (
    SHARE,
    EditPairs,
    between_models,
    held_out_errors,
    knots,
    map_error,
    mapped,
)
from editjudge.stats.columns import Column, Ends, Floats

SIZES = (50, 100, 200, 400)
LIMIT = 0.75 / 6
"""Limit of a comparable factor, as a share of the scale."""
FEW = 15
"""Minimum number of tested edits of a level or model whose mean counts as the truth."""


@dataclass
class Results:
    """Figures of all bridges of one size."""

    stated: list[float] = field(default_factory=list)
    true: list[float] = field(default_factory=list)
    covered: list[bool] = field(default_factory=list)
    half: list[float] = field(default_factory=list)
    alone: list[bool] = field(default_factory=list)
    """Whether the interval of a mapped mean without the part for models has the truth."""
    together: list[bool] = field(default_factory=list)
    width: list[float] = field(default_factory=list)
    called: list[bool] = field(default_factory=list)
    """Whether the verdict on the limit is that of the tested edits."""

    def add(
        self, fitted: EditPairs, rest: EditPairs, scale: Ends, new_scale: Ends
    ) -> None:
        length = scale[1] - scale[0]
        errors = held_out_errors(fitted, scale, new_scale)
        mapping = knots(fitted, scale, new_scale)
        off = rest.old - mapped(mapping, rest.new)
        stated = quantile(errors) / length
        true = quantile(off) / length
        self.stated.append(stated)
        self.true.append(true)
        self.called.append((stated <= LIMIT) == (true <= LIMIT))
        for knot in mapping:
            same = rest.old[np.isclose(rest.new, knot.new)]
            if knot.n and len(same) >= FEW:
                # The mean of the tested edits has an error of its own.
                own = 1.96 * float(np.std(same, ddof=1)) / np.sqrt(len(same))
                gap = max(knot.lo - same.mean(), same.mean() - knot.hi, 0.0)
                margin = np.hypot((knot.hi - knot.lo) / 2, own)
                inside = abs(same.mean() - (knot.lo + knot.hi) / 2) <= margin
                self.covered.append(bool(gap == 0 or inside))
                self.half.append((knot.hi - knot.lo) / 2 / length)
        error = between_models(errors, fitted.model)
        models = len(fitted.model.labels)
        for name in rest.model.labels:
            rows = rest.model.where(name)
            if rows.sum() < FEW:
                continue
            new = rest.new[rows]
            miss = abs(float(off[rows].mean()))
            own = float(np.std(off[rows], ddof=1)) / np.sqrt(rows.sum())
            for part, inside in ((0.0, self.alone), (error, self.together)):
                added = map_error(mapping, new, part, models)
                half = added.half(0.025)
                inside.append(miss <= np.hypot(half, 1.96 * own))
            self.width.append(half / length)

    def line(self, size: int) -> str:
        cells = [
            f"{np.median(self.stated):.3f}",
            f"{np.median(self.true):.3f}",
            f"{np.mean(self.called):.2f}",
            f"{np.median(self.half):.3f}",
            f"{np.mean(self.covered):.2f}",
            f"{np.mean(self.alone):.2f}",
            f"{np.mean(self.together):.2f}",
            f"{np.median(self.width):.3f}",
        ]
        return f"| {size} | {' | '.join(cells)} |"


HEAD = """\
| edits | stated 90 % | true 90 % | same verdict | band ± | levels covered | means covered, map alone | with models | ± |
|---|---|---|---|---|---|---|---|---|"""


def quantile(errors: Floats) -> float:
    return float(np.quantile(np.abs(errors), SHARE, method="inverted_cdf"))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


# --- simulation -----------------------------------------------------------------------------------------------


def simulated(
    rng: np.random.Generator, images: int, shifts: Floats, noise: float, use: float
) -> EditPairs:
    """Edits of several models, judged from 1 to 7. The new judge uses the share `use` of the scale; `shifts` are the
    two judges' preferences for models (2 x models)."""
    models = shifts.shape[1]
    quality = rng.normal(4, 1.1, (images, 1)) + rng.normal(0, 0.7, (images, models))
    old = quality + shifts[0] + rng.normal(0, noise, quality.shape)
    new = 4 + use * (quality - 4) + shifts[1] + rng.normal(0, noise, quality.shape)
    old, new = (np.clip(np.round(side), 1, 7).ravel() for side in (old, new))
    group = Column.of(np.repeat(np.arange(images), models))
    model = Column.of(np.tile(np.arange(models), images))
    names = tuple(map(str, range(images * models)))
    return EditPairs(names, old, new, model, group, group)


def simulation(repeats: int) -> None:
    cases = {
        "close judges (noise .2), 5 models": (0.2, 0.9, 0.0, 5),
        "other use of the scale (noise .5), 5 models": (0.5, 0.6, 0.0, 5),
        "the same, judges prefer models differently (SD .3), 2 models": (
            0.5,
            0.6,
            0.3,
            2,
        ),
        "the same with 5 models": (0.5, 0.6, 0.3, 5),
        "the same with 10 models": (0.5, 0.6, 0.3, 10),
    }
    for name, (noise, use, taste, models) in cases.items():
        say(f"\nSimulation, {name}\n\n{HEAD}")
        for size in SIZES:
            results = Results()
            for seed in range(repeats):
                rng = np.random.default_rng([seed, size])
                shifts = rng.normal(0, taste, (2, models + 3))
                shifts[1] *= use
                fitted = simulated(rng, size // models, shifts[:, :models], noise, use)
                # Three models that the bridge has not seen.
                rest = simulated(rng, 700, shifts[:, models:], noise, use)
                results.add(fitted, rest, (1.0, 7.0), (1.0, 7.0))
            say(results.line(size))


# --- recorded judges ------------------------------------------------------------------------------------------

Item = str
TEN = (0.0, 10.0)


def recorded(folder: Path) -> Mapping[str, Mapping[str, Mapping[Item, float]]]:
    """Return the scores of every factor and judge that were not guessed."""
    scores: dict[str, dict[str, dict[Item, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    with (folder / "judge_scores.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["guessed"] == "0" and row["score"]:
                scores[row["factor"]][row["judge"]][row["item"]] = float(row["score"])
    return scores


def common(old: Mapping[Item, float], new: Mapping[Item, float]) -> EditPairs:
    items = tuple(item for item in old if item in new)
    parts = [item.split("/") for item in items]
    group = Column.of(f"{task}/{name}" for task, _, name in parts)
    return EditPairs(
        items,
        np.array([old[item] for item in items]),
        np.array([new[item] for item in items]),
        Column.of(f"{task}/{model}" for task, model, _ in parts),
        group,
        group,
    )


def split(
    pairs: EditPairs, size: int, rng: np.random.Generator
) -> tuple[EditPairs, EditPairs]:
    """Return about `size` edits of some images, and the edits of the others."""
    counts = np.bincount(pairs.group.codes)
    order = rng.permutation(len(counts))
    images = order[: int(np.searchsorted(np.cumsum(counts[order]), size)) + 1]
    rows = np.isin(pairs.group.codes, images)
    return pairs.take(rows), pairs.take(~rows)


def alike(
    scores: Mapping[str, Mapping[Item, float]], *, family: bool
) -> Iterator[tuple[str, str, EditPairs]]:
    """Yield pairs of set-ups of the same model (`family`) or of different ones that rank items alike."""
    for old, new in itertools.permutations(scores, 2):
        if (old.split("_")[0] == new.split("_")[0]) != family:
            continue
        pairs = common(scores[old], scores[new])
        if len(pairs) < 2 * SIZES[-1] or not np.ptp(pairs.old) or not np.ptp(pairs.new):
            continue
        if spearmanr(pairs.old, pairs.new).statistic >= 0.6:
            yield old, new, pairs


def on_recorded(folder: Path, repeats: int) -> None:
    scores = recorded(folder)
    for family in (True, False):
        chosen = [
            (factor, *pair)
            for factor, by_judge in scores.items()
            for pair in alike(by_judge, family=family)
        ]
        which = "two prompts of one model" if family else "different models"
        say(f"\nRecorded, {which}: {len(chosen)} pairs of set-ups\n\n{HEAD}")
        for size in SIZES:
            results = Results()
            for number, (*_, pairs) in enumerate(chosen):
                for seed in range(repeats):
                    rng = np.random.default_rng([seed, number, size])
                    results.add(*split(pairs, size, rng), TEN, TEN)
            if chosen:
                say(results.line(size))
        say("")
        for factor, old, new, pairs in chosen:
            errors = held_out_errors(pairs, TEN, TEN)
            rank = spearmanr(pairs.old, pairs.new).statistic
            share = float(np.mean(np.abs(errors) <= LIMIT * 10))
            say(
                f"  {factor} {new} -> {old}: {len(pairs):,} items, Spearman {rank:.2f}, 90 % within "
                f"{quantile(errors):.2f} of 10, {share:.0%} within {LIMIT * 10:.2f}"
            )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the simulation and, with `--data`, the recorded judges."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--repeats", type=int, default=200)
    chosen = parser.parse_args(arguments)
    simulation(chosen.repeats)
    if chosen.data:
        on_recorded(chosen.data, max(1, chosen.repeats // 10))


if __name__ == "__main__":
    main()
