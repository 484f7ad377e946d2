"""How well the estimate of a further rater holds, simulated.

Raters see a truth with noise of their own and round it to a scale; a judge sees it with noise, too.

    python bench/further_rater.py [--runs N]

The truth is the Spearman correlation of one more such rater with the mean of the others, over many items. Beside the
estimate stand the bias of each rater against the others, which is of a mean of one rater less, and the coverage of the
interval of judge minus further rater. Prints the tables of docs/statistics.md; every simulation has a fixed seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from editjudge.stats.agreement import standing
from editjudge.stats.ceiling import Pairs, further_rater, one_against_rest
from editjudge.stats.columns import Ratings

DRAWS = 400
SEEN = 200_000
"""Items that the truth is computed from."""
RATERS = (2, 3, 5)
JUDGE_NOISE = 0.6
Floats = NDArray[np.float64]


def seven(latent: Floats) -> Floats:
    return np.clip(np.rint(4 + 1.5 * latent), 1, 7)


def near_the_top(latent: Floats) -> Floats:
    return np.clip(np.rint(6.3 + 1.2 * latent), 1, 7)


def three(latent: Floats) -> Floats:
    return np.clip(np.rint(1 + 0.9 * latent), 0, 2) / 2


SCALES: dict[str, Callable[[Floats], Floats]] = {
    "1 to 7": seven,
    "1 to 7, near the top": near_the_top,
    "0, .5, 1": three,
}


@dataclass(frozen=True)
class Family:
    """How ratings come about."""

    scale: str = "1 to 7"
    noise: float = 0.7
    """Of a rating, in standard deviations of the truth."""
    images: int = 60
    size: int = 1
    """Edits an image, alike within it."""
    missing: float = 0.0
    """The share of ratings that were not given."""
    strict: float = 0.0
    """The standard deviation of raters' own levels."""
    uneven: float = 0.0
    """The standard deviation of the logarithm of raters' noise: some rate with more care."""

    def rating(self, truth: Floats, raters: int, rng: np.random.Generator) -> Floats:
        """Return items x raters; NaN where somebody did not rate."""
        noise = self.noise * np.exp(rng.normal(0, self.uneven, raters))
        level = rng.normal(0, self.strict, raters)
        latent = truth[:, None] + noise * rng.normal(size=(len(truth), raters)) + level
        rated = SCALES[self.scale](latent / np.sqrt(1 + self.noise**2))
        rated[rng.random(rated.shape) < self.missing] = np.nan
        return rated

    def truths(self, images: int, rng: np.random.Generator) -> Floats:
        """Return the truth of every edit, image by image."""
        share = 0.5 if self.size > 1 else 0.0
        between = np.repeat(rng.normal(size=images), self.size)
        truths: Floats = np.sqrt(share) * between + np.sqrt(1 - share) * rng.normal(
            size=images * self.size
        )
        return truths


@dataclass(frozen=True)
class Cell:
    """What one family came to."""

    truth: float
    left_out: float
    """The mean of each rater against the others."""
    estimate: float
    coverage: float
    difference_coverage: float
    """Of the interval of judge minus further rater."""
    given: float
    """The share of simulations with an interval."""


def judged(truth: Floats, rng: np.random.Generator) -> Floats:
    """Return a judge's scores, in halves."""
    return np.rint(2 * (truth + JUDGE_NOISE * rng.normal(size=len(truth)))) / 2


def spearman(x: Floats, y: Floats) -> float:
    return float(np.corrcoef(rankdata(x), rankdata(np.round(y, 9)))[0, 1])


def simulate(
    family: Family, raters: int, runs: int, *, draws: int = DRAWS, seed: int = 0
) -> Cell:
    rng = np.random.default_rng(seed)
    truth, judge_truth = _truths(family, raters, rng)
    found: list[tuple[float, float, bool, bool]] = []
    for _ in range(runs):
        latent = family.truths(family.images, rng)
        table = family.rating(latent, raters, rng)
        scores = judged(latent, rng)
        people = _ratings(table)
        group = {str(item): str(item // family.size) for item in range(len(latent))}
        further = further_rater(people, group=group, draws=draws)
        mean = _mean_of_given(table)
        rated = np.flatnonzero(np.isfinite(mean))
        pairs = Pairs(scores[rated], np.round(mean[rated], 9), rated)
        against = standing(pairs, [str(item) for item in rated], further, draws=draws)
        left_out = one_against_rest(people)
        estimate = further.spearman
        ci = further.ci.get("spearman")
        if estimate is None or ci is None or against.ci is None or left_out is None:
            continue
        holds = ci.lo <= truth <= ci.hi
        difference_holds = against.ci.lo <= judge_truth - truth <= against.ci.hi
        found.append((left_out, estimate, holds, difference_holds))
    left_out_mean, estimate_mean, coverage, difference_coverage = np.mean(
        np.array(found, float), axis=0
    ).tolist()
    return Cell(
        truth,
        left_out_mean,
        estimate_mean,
        coverage,
        difference_coverage,
        len(found) / runs,
    )


def _truths(
    family: Family, raters: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the correlation of a further rater, and of the judge, with the mean of so many raters.

    Where raters differ in care, the mean over many such panels.
    """
    panels = 40 if family.uneven else 1
    each = []
    for _ in range(panels):
        latent = family.truths(SEEN // panels // family.size, rng)
        table = family.rating(latent, raters + 1, rng)
        mean = _mean_of_given(table[:, :raters])
        further = table[:, raters]
        judge = judged(latent, rng)
        rated = np.isfinite(mean)
        both = rated & np.isfinite(further)
        each.append(
            (spearman(further[both], mean[both]), spearman(judge[rated], mean[rated]))
        )
    person, judge_value = np.mean(each, axis=0)
    return float(person), float(judge_value)


def _mean_of_given(table: Floats) -> Floats:
    given = np.isfinite(table)
    sums = np.where(given, table, 0.0).sum(axis=1)
    return np.where(given.any(axis=1), sums / np.maximum(given.sum(axis=1), 1), np.nan)


def _ratings(table: Floats) -> Ratings:
    item, rater = np.nonzero(np.isfinite(table))
    return Ratings.of(
        item, [f"r{r}" for r in rater], ["f"] * len(item), table[item, rater]
    )


FAMILIES = {
    "scale 1 to 7": (Family(), RATERS),
    "scale 0, .5, 1": (Family("0, .5, 1"), RATERS),
    "near the top of 1 to 7": (Family("1 to 7, near the top"), (3,)),
    "30 images": (Family(images=30), (3,)),
    "3 edits an image": (Family(images=40, size=3), (3,)),
    "a third of the ratings missing": (Family(images=80, missing=1 / 3), (3,)),
    "raters of different levels": (Family(strict=0.5), (3,)),
    "raters of different care": (Family(uneven=0.4), (3,)),
}


def rows(runs: int) -> Iterator[str]:
    """Yield the table, line by line."""
    yield "| | raters | truth | one against the rest | estimate | coverage | of the difference | with an interval |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, (family, numbers) in FAMILIES.items():
        for raters in numbers:
            cell = simulate(family, raters, runs)
            figures = (
                cell.truth,
                cell.left_out - cell.truth,
                cell.estimate - cell.truth,
                cell.coverage,
                cell.difference_coverage,
                cell.given,
            )
            signs = ("", "+", "+", "", "", "")
            shown = " | ".join(
                f"{value:{sign}.3f}" for value, sign in zip(figures, signs, strict=True)
            )
            yield f"| {name} | {raters} | {shown} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    for row in rows(parser.parse_args().runs):
        print(row, flush=True)


if __name__ == "__main__":
    main()
