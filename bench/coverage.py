"""How often intervals hold the truth, verdicts are right and gates decide, simulated: the tables of docs/statistics.md.

    python bench/coverage.py [--runs N] [--only NAME...]

differences   coverage of the CI of a comparison, share studentised, median width over that of a cluster-robust t
means         the same of the CI of a mean
limits        least coverage and share studentised for other choices of `ENOUGH` and `SKEWNESS`
worst         the least coverage over all shares of two values, without simulation
family        false differences over a primary family of four scores
power         a difference of .3 standard deviations, judged by a panel of two, beside a t test of the panel's mean
detectable    how often a difference as large as a sample's MDE is found in another sample
gate          outcomes of `gate --baseline --max-drop` by the true drop
correlations, powered, strengths   coverage where an interval is given, and how often it is
ranks         how often some rank of three equal models is called certain

Prints one JSON document; every simulation has a fixed seed.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit
from scipy.stats import binom

from editjudge.report.selection import panel_mean
from editjudge.stats import inference
from editjudge.stats.calibration import powered_mean
from editjudge.stats.ceiling import Pairs, estimate, intervals
from editjudge.stats.columns import Scores
from editjudge.stats.compare import Difference, compare, corrected
from editjudge.stats.gate import gate
from editjudge.stats.inference import (
    ALPHA,
    Clusters,
    Studentised,
    holm,
    infer,
    mean_intervals,
)
from editjudge.stats.strengths import bradley_terry
from editjudge.stats.summary import rank

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Table = dict[str, Any]

IMAGES = (5, 10, 30, 100)
IMAGES_COMPARED = (6, 10, 15, 30, 60, 100, 300)
BATCH = 100
"""Simulations that `compare` takes at once, as so many factors: those with equally many images share their draws, as
they do in calls of their own, since draws have a fixed seed."""
DRAWS = 500
LIMIT_DRAWS = 999
GATE_DRAWS = 1_999
ORDINARY = (0.067, 0.117, 0.198, 0.236, 0.198, 0.117, 0.067)
TOP = (0.005, 0.01, 0.015, 0.02, 0.05, 0.2, 0.7)
SEVEN = (1.0, 7.0)
SHARE = (0.0, 1.0)
AROUND_ZERO = (-3, -2, -1, 0, 1, 2, 3)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--only", nargs="*", choices=sorted(PARTS))
    options = parser.parse_args()
    answer: Table = {"runs": options.runs}
    for name in options.only or PARTS:
        answer[name] = PARTS[name](options.runs)
    print(json.dumps(answer, indent=1, allow_nan=False))


# --- samples ----------------------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """Values of edits, NaN where a judgement failed, and the image of each."""

    values: Floats
    images: Ints


@dataclass(frozen=True)
class Family:
    """A way to draw samples of so many images, and the mean that they are drawn about."""

    draw: Callable[[np.random.Generator, int], Sample]
    truth: float
    scale: tuple[float, float] = SEVEN


def alike(
    rng: np.random.Generator,
    values: Sequence[float],
    chances: Sequence[float],
    sizes: Ints,
    share: float,
) -> Sample:
    """Draw values with these chances; `share` of the latent variance is between images."""
    images = np.repeat(np.arange(len(sizes)), sizes)
    between = rng.normal(0, math.sqrt(share), len(sizes))
    within = rng.normal(0, math.sqrt(1 - share), len(images))
    steps = np.searchsorted(ndtri(np.cumsum(chances)[:-1]), between[images] + within)
    return Sample(np.asarray(values, dtype=float)[steps], images)


def discrete(
    values: Sequence[float],
    chances: Sequence[float],
    size: int,
    share: float,
    scale: tuple[float, float] = SEVEN,
    failing: float = 0.0,
) -> Family:
    """Return a family with `size` edits an image; `failing` is the chance that a judgement fails."""

    def draw(rng: np.random.Generator, images: int) -> Sample:
        sample = alike(rng, values, chances, np.full(images, size), share)
        failed = rng.random(len(sample.values)) < failing
        return Sample(np.where(failed, np.nan, sample.values), sample.images)

    return Family(draw, float(np.dot(values, chances)), scale)


def sized(sizes: Callable[[int], Ints]) -> Family:
    """Return ordinary differences of images with these numbers of edits."""

    def draw(rng: np.random.Generator, images: int) -> Sample:
        return alike(rng, AROUND_ZERO, ORDINARY, sizes(images), 0.5)

    return Family(draw, 0.0)


def half_of_all(images: int) -> Ints:
    """One image has as many edits as the others together."""
    sizes = np.ones(images, dtype=np.int64)
    sizes[0] = images - 1
    return sizes


def falling_sizes(images: int) -> Ints:
    """The n-th image has an n-th of the edits of the first."""
    return np.maximum(1, images // np.arange(1, images + 1))


def rated(
    centre: float, between: float, shift: float, noise: float, own: float
) -> Family:
    """Return differences of two edits on a 7-point scale, of images with one to three edits each.

    `noise` is that of an edit; `own` is how far an image moves the second one alone.
    """

    def draw(rng: np.random.Generator, images: int) -> Sample:
        image = np.repeat(np.arange(images), rng.integers(1, 4, images))
        base = rng.normal(centre, between, images)[image]
        moved = base + shift + rng.normal(0, own, images)[image]
        before = on_seven(base + rng.normal(0, noise, len(image)))
        after = on_seven(moved + rng.normal(0, noise, len(image)))
        return Sample(after - before, image)

    truth = draw(np.random.default_rng(99), 1_000_000).values.mean()
    return Family(draw, float(truth))


def on_seven(values: Floats) -> Floats:
    clipped: Floats = np.clip(np.round(values), 1, 7)
    return clipped


def families() -> dict[str, Family]:
    """Return the families of differences."""
    return {
        "realistic": rated(5, 1.2, 0.2, 0.8, 0.4),
        "near the top": rated(7, 1.0, -0.1, 0.6, 0.0),
        "ordinary": discrete(AROUND_ZERO, ORDINARY, 3, 0.4),
        "mostly none": discrete((-1, 0, 1), (0.02, 0.97, 0.01), 2, 0.7),
        "lopsided": discrete((-5, 1), (1 / 6, 5 / 6), 1, 0.5),
        "rare large": discrete((-6, -1, 0, 1), (0.02, 0.05, 0.83, 0.1), 2, 0.7),
        "less rare large": discrete((-6, -1, 0, 1), (0.05, 0.1, 0.65, 0.2), 1, 0.5),
        "rare losses": discrete((-5, 0, 1), (0.02, 0.88, 0.1), 1, 0.5),
        "skewed": discrete((0, 1, 2, 4, 6), (0.7, 0.15, 0.08, 0.05, 0.02), 1, 0.5),
        "of shares": discrete((-1, 0, 1), (0.05, 0.85, 0.1), 1, 0.5, SHARE),
        "one dominant image": sized(half_of_all),
        "uneven sizes": sized(falling_sizes),
        "failing at random": discrete(AROUND_ZERO, ORDINARY, 3, 0.4, failing=0.5),
    }


MEANS: dict[str, Family] = {
    "ordinary 1-7": discrete(range(1, 8), ORDINARY, 5, 0.5),
    "near the top 1-7": discrete(range(1, 8), TOP, 5, 0.5),
    "near the top 1-7, half failed": discrete(range(1, 8), TOP, 5, 0.5, failing=0.5),
    "rare high 1, 2, 7": discrete((1, 2, 7), (0.5, 0.47, 0.03), 1, 0.5),
    "nearly constant 6, 7": discrete((6, 7), (0.03, 0.97), 2, 0.9),
    "constant 7": discrete((7, 7), (0.5, 0.5), 2, 0.5),
    "discrete 1, 3, 5": discrete((1, 3, 5), (0.05, 0.1, 0.85), 3, 0.5, (1.0, 5.0)),
    "share .5": discrete((0, 1), (0.5, 0.5), 5, 0.5, SHARE),
    "share .9": discrete((0, 1), (0.1, 0.9), 5, 0.5, SHARE),
    "share .98, whole images": discrete((0, 1), (0.02, 0.98), 5, 0.95, SHARE),
}


# --- comparisons ------------------------------------------------------------------------------------------------


def compared(
    samples: Sequence[Sample], scale: tuple[float, float] = SEVEN
) -> list[Difference]:
    """Compare each sample by itself, at 95 %."""
    differences: list[Difference] = []
    for start in range(0, len(samples), BATCH):
        batch = samples[start : start + BATCH]
        for d in compare_factors(batch, scale):
            differences += corrected([d])
    return differences


def compare_factors(
    samples: Sequence[Sample], scale: tuple[float, float] = SEVEN
) -> list[Difference]:
    """Compare samples as the factors of one call, corrected together."""
    names = [str(i) for i in range(len(samples))]
    factor = np.repeat(names, [len(sample.values) for sample in samples])
    item = np.concatenate([np.arange(len(sample.values)) for sample in samples])
    image = np.concatenate([sample.images for sample in samples])
    gap = np.concatenate([sample.values for sample in samples])
    before = Scores.of(item, factor, np.zeros(len(gap)), group=image)
    after = Scores.of(item, factor, gap, group=image)
    return compare(before, after, on="item", scales=dict.fromkeys(names, scale))


def by_images(
    kinds: Iterable[str],
    simulate: Callable[[str, int], Table],
    images: Sequence[int] = IMAGES,
) -> dict[str, Table]:
    return {kind: {str(n): simulate(kind, n) for n in images} for kind in kinds}


def drawn(family: Family, images: int, runs: int, seed: int = 0) -> list[Sample]:
    rng = np.random.default_rng([images, seed])
    return [family.draw(rng, images) for _ in range(runs)]


def differences(runs: int) -> Table:
    every = families()

    def simulate(name: str, images: int) -> Table:
        family = every[name]
        rows = compared(drawn(family, images, runs), family.scale)
        return coverage_of(rows, family.truth)

    return by_images(every, simulate, IMAGES_COMPARED)


def coverage_of(rows: Sequence[Difference], truth: float) -> Table:
    """Coverage of all intervals; widths over that of a cluster-robust t, of all and of the studentised ones."""
    hits = []
    ratios = []
    plain_hits = []
    studentised = []
    for d in rows:
        if d.ci is None:
            raise ValueError(f"no interval: {d.ci_reason}")
        reach = student_reach(d)
        center = d.difference or 0.0
        hits.append(holds(d.ci, truth))
        plain_hits.append(holds((center - reach, center + reach), truth))
        ratios.append((d.ci.hi - d.ci.lo) / (2 * reach) if reach > 0 else math.inf)
        studentised.append(d.method == "studentised")
    by_draws = [ratio for ratio, is_t in zip(ratios, studentised, strict=True) if is_t]
    return {
        "coverage": share_of(hits),
        "studentised": share_of(studentised),
        "width_to_t": median(ratios),
        "width_to_t_studentised": median(by_draws),
        "coverage_of_t": share_of(plain_hits),
    }


def student_reach(d: Difference) -> float:
    """Half the width of a cluster-robust t interval at the same level."""
    return float(stdtrit(d.groups - 1, (1 + d.level) / 2)) * (d.error or 0.0)


def holds(ci: tuple[float, float], truth: float) -> bool:
    return ci[0] <= truth + 1e-9 and truth - 1e-9 <= ci[1]


def share_of(hits: Sequence[bool]) -> float | None:
    return round(float(np.mean(hits)), 3) if len(hits) else None


def median(values: Sequence[float]) -> float | None:
    middle = float(np.median(values)) if len(values) else math.inf
    return round(middle, 3) if math.isfinite(middle) else None


def means(runs: int) -> Table:
    def simulate(name: str, images: int) -> Table:
        family = MEANS[name]
        rng = np.random.default_rng(images)
        values = []
        cells = []
        groups = []
        for cell in range(runs):
            sample = family.draw(rng, images)
            scored = np.isfinite(sample.values)
            values.append(sample.values[scored])
            groups.append(sample.images[scored])
            cells.append(np.full(int(scored.sum()), cell))
        limits = mean_intervals(
            np.concatenate(values),
            np.concatenate(cells),
            runs,
            np.concatenate(groups),
            images,
            [family.scale] * runs,
        )
        row = covered([limit.ci for limit in limits], family.truth)
        row["studentised"] = share_of(
            [limit.method == "studentised" for limit in limits]
        )
        return row

    return by_images(MEANS, simulate)


def covered(found: Sequence[tuple[float, float] | None], truth: float) -> Table:
    """Coverage and mean width of the intervals that there are."""
    present = [ci for ci in found if ci is not None]
    widths = [high - low for low, high in present]
    return {
        "coverage": share_of([holds(ci, truth) for ci in present]),
        "width": round(float(np.mean(widths)), 3) if present else None,
        "given": round(len(present) / len(found), 3),
    }


# --- the choice of the method -----------------------------------------------------------------------------------

CHOICES = ((0, 7), (0, 10), (1, 7), (2, 5), (2, 6), (2, 7), (2, 8), (2, 10), (4, 7))
"""Weights of skewness, and limits of the effective number of images."""


class Drawn(NamedTuple):
    """A sample with its bootstrap-t, whether or not it would be used."""

    kurtosis: float
    skewness: float
    even: float
    hit: bool

    def effective(self, weight: float) -> float:
        return min(1 / (self.kurtosis + weight * self.skewness), self.even)


def limits(runs: int) -> Table:
    """The guaranteed bound is taken to hold the truth."""
    table = {}
    for name, family in families().items():
        cells = {
            images: bootstrapped(family, images, runs) for images in IMAGES_COMPARED
        }
        table[name] = {
            f"skewness {weight}, enough {enough}": chosen(cells, weight, enough)
            for weight, enough in CHOICES
        }
    return table


def bootstrapped(family: Family, images: int, runs: int) -> list[Drawn | None]:
    """Draw samples with their bootstrap-t; None where nothing differs."""
    every: list[Drawn | None] = []
    for sample in drawn(family, images, runs):
        scored = np.isfinite(sample.values)
        clusters = Clusters.of(sample.values[scored], sample.images[scored])
        squares = float(np.sum(clusters.residuals**2))
        if squares == 0:
            every.append(None)
            continue
        (draws,) = inference._bootstrap_t([clusters], LIMIT_DRAWS)
        ci = Studentised(clusters, *draws).interval()
        kurtosis = float(np.sum(clusters.residuals**4)) / squares**2
        skewness = float(np.sum(clusters.residuals**3)) ** 2 / squares**3
        every.append(Drawn(kurtosis, skewness, clusters.even, holds(ci, family.truth)))
    return every


def chosen(cells: dict[int, list[Drawn | None]], weight: float, enough: float) -> Table:
    least = 1.0
    shares = {}
    for images, samples in cells.items():
        used = [
            sample
            for sample in samples
            if sample is not None and sample.effective(weight) >= enough
        ]
        missed = sum(not sample.hit for sample in used)
        least = min(least, 1 - missed / len(samples))
        shares[images] = len(used) / len(samples)
    return {
        "least_coverage": round(least, 3),
        "studentised": {str(n): round(shares[n], 3) for n in (30, 60, 100)},
    }


def worst(_: int) -> Table:
    """Only how many of each value there are counts, so that coverage needs no simulation."""
    kinds = {"-6 and 0": (-6.0, 0.0), "-1 and 5": (-1.0, 5.0), "-6 and 6": (-6.0, 6.0)}
    ends = (-6.0, 6.0)

    def search(name: str, images: int) -> Table:
        low, high = kinds[name]
        counts = np.arange(images + 1)
        shares = np.linspace(0.003, 0.997, 300)[:, None]
        truth = low + shares * (high - low)
        chance = binom.pmf(counts, images, shares)
        row = {}
        for rule, guaranteed in (("by the data", False), ("guaranteed", True)):
            found = []
            for count in counts:
                values = np.repeat((low, high), (images - count, count))
                clusters = Clusters.of(values, np.arange(images), ends)
                (result,) = infer([clusters], guaranteed=guaranteed)
                found.append(ends if result is None else result.interval())
            ci = np.array(found)
            hits = (ci[:, 0] <= truth + 1e-9) & (truth - 1e-9 <= ci[:, 1])
            row[rule] = round(float((chance * hits).sum(axis=1).min()), 3)
        return row

    return by_images(kinds, search)


# --- families of scores, panels and gates -----------------------------------------------------------------------

PRIMARY = ("preservation", "quality", "fidelity", "overall")
RESEMBLANCE = 0.5
"""Share of the noise that the scores of an edit have in common."""
NOISE = 0.567
"""Standard deviation of a score's noise: rounded to whole scores, a pair differs by .9 with it."""


def scored_edits(
    rng: np.random.Generator, images: int, shift: float = 0.0
) -> tuple[Floats, Floats, Ints]:
    """Draw the primary scores of two versions of one to three edits an image (edits x scores), and the images.

    The last score is the mean of the others.
    """
    image = np.repeat(np.arange(images), rng.integers(1, 4, images))
    base = rng.normal(4.5, 1.0, (images, 1))[image]
    sides = []
    for moved in (0.0, shift):
        common = rng.normal(0, math.sqrt(RESEMBLANCE), (len(image), 1))
        own = rng.normal(0, math.sqrt(1 - RESEMBLANCE), (len(image), 3))
        scores = on_seven(base + moved + NOISE * (common + own))
        sides.append(np.column_stack([scores, scores.mean(axis=1)]))
    before, after = sides
    return before, after, image


def family(runs: int) -> Table:
    def simulate(name: str, images: int) -> Table:
        rng = np.random.default_rng(images)
        false = []
        for _ in range(runs):
            before, after, image = scored_edits(rng, images)
            gaps = [Sample(gap, image) for gap in (after - before).T]
            false.append(any(d.evident for d in compare_factors(gaps)))
        return {name: share_of(false)}

    return by_images(["false difference"], simulate, (15, 30, 60, 100))


def power(runs: int) -> Table:
    """Two judges see the same edits; a true difference is .3 standard deviations of the panel's mean difference."""
    images = 100
    rng = np.random.default_rng(1)
    table: Table = {}
    for name, scores in (("one score", 1), ("four scores, corrected", 4)):
        ours = []
        students = []
        for _ in range(runs):
            sides = panel_scores(rng, images, scores)
            rows = compare(
                *sides, on="item", scales={str(i): SEVEN for i in range(scores)}
            )
            ps = [
                2
                * float(
                    stdtr(d.groups - 1, -abs(d.difference or 0.0) / (d.error or 1.0))
                )
                for d in rows
            ]
            ours += [d.evident for d in rows]
            students += [p is not None and p < ALPHA for p in holm(ps)]
        table[name] = {"ours": share_of(ours), "t": share_of(students)}
    return table


def panel_scores(rng: np.random.Generator, images: int, scores: int) -> list[Scores]:
    """Return the panel's means of both sides, one edit an image."""
    image = np.arange(images)
    base = rng.normal(4.5, 1.0, (images, 1))
    # The mean of two judges has half of a judge's own variance: a pair differs by 2 * (.36 + .32 / 2), and by a twelfth
    # more for rounding on either side.
    shift = 0.3 * math.sqrt(2 * (0.36 + 0.32 / 2) + 1 / 12)
    sides = []
    for moved in (0.0, shift):
        quality = base + moved + rng.normal(0, 0.6, (len(image), scores))
        judges = [
            on_seven(quality + rng.normal(0, math.sqrt(0.32), quality.shape))
            for _ in range(2)
        ]
        sides.append(panel_mean(judged_table(judges, image)))
    return sides


def judged_table(judges: Sequence[Floats], image: Ints) -> Scores:
    """One row a judge, edit and score."""
    edits, scores = judges[0].shape
    item = np.tile(np.repeat(np.arange(edits), scores), len(judges))
    factor = np.tile(np.arange(scores), edits * len(judges))
    judge = np.repeat([f"judge {i}" for i in range(len(judges))], edits * scores)
    return Scores.of(
        item,
        factor,
        np.concatenate([table.ravel() for table in judges]),
        judge=judge,
        group=image[item],
        slices={"spec": judge, "rubric": ["rubric"] * len(item)},
    )


def detectable(runs: int) -> Table:
    """The MDE of a studentised sample is the true difference of the next one, which may be studentised too or not."""
    every = families()

    def simulate(name: str, images: int) -> Table:
        source = every[name]
        pilots = compared(drawn(source, images, runs), source.scale)
        targets = [d.detectable for d in pilots]
        repeats = []
        for sample, target in zip(
            drawn(source, images, runs, seed=1), targets, strict=True
        ):
            if target is not None:
                repeats.append(
                    Sample(sample.values - source.truth + target, sample.images)
                )
        rows = compared(repeats, source.scale)
        such = [d for d in rows if d.method == "studentised"]
        return {
            "found": share_of([d.evident for d in such]),
            "found_guaranteed_too": share_of([d.evident for d in rows]),
            "with_mde": round(len(rows) / runs, 3),
        }

    return by_images(
        ["realistic", "near the top", "ordinary"], simulate, (30, 60, 100, 300)
    )


DROPS = (0.0, 0.1, 0.2, 0.3, 0.5)


def gates(runs: int) -> Table:
    """Four primary scores drop by the same amount."""

    def simulate(name: str, images: int) -> Table:
        allowed = float(name)
        row = {}
        for drop in DROPS:
            rng = np.random.default_rng(images)
            outcomes = [gate_outcome(rng, images, drop, allowed) for _ in range(runs)]
            row[f"drop {drop:g}"] = {
                outcome: round(outcomes.count(outcome) / runs, 3)
                for outcome in ("pass", "fail", "not enough evidence")
            }
        return row

    return by_images(["0", "0.3"], simulate, (30, 60, 120, 300))


def gate_outcome(
    rng: np.random.Generator, images: int, drop: float, allowed: float
) -> str:
    before, after, image = scored_edits(rng, images, -drop)
    item = np.repeat(np.arange(len(image)), len(PRIMARY))
    factor = np.tile(PRIMARY, len(image))
    tables = [
        Scores.of(item, factor, scores.ravel(), group=image[item])
        for scores in (after, before)
    ]
    result = gate(
        tables[0],
        baseline=tables[1],
        max_drop=allowed,
        scales=dict.fromkeys(PRIMARY, SEVEN),
        draws=GATE_DRAWS,
    )
    return result.outcome


# --- other figures ----------------------------------------------------------------------------------------------


def correlations(runs: int) -> Table:
    kinds = {
        "ordinary": ORDINARY,
        "near the top": TOP,
        "share .9": (0.1, 0.9),
        "nearly constant": (0.03, 0.97),
    }
    names = ("spearman", "kendall", "pearson", "qwk")

    def latent(rng: np.random.Generator, images: int) -> Floats:
        between = rng.normal(0, math.sqrt(0.3), (images, 1))
        return between + rng.normal(0, math.sqrt(0.7), (images, 2))

    def pairs(rng: np.random.Generator, chances: Sequence[float], images: int) -> Pairs:
        cuts = ndtri(np.cumsum(chances)[:-1])
        common = latent(rng, images)
        sides = []
        for _ in range(2):
            mixed = math.sqrt(0.5) * (common + latent(rng, images))
            sides.append(np.searchsorted(cuts, mixed).ravel().astype(float))
        return Pairs(sides[0], sides[1], np.repeat(np.arange(images), 2))

    def simulate(name: str, images: int) -> Table:
        truth = estimate(pairs(np.random.default_rng(9), kinds[name], 100_000))
        rng = np.random.default_rng(images)
        found = [
            intervals([pairs(rng, kinds[name], images)], images, names, draws=DRAWS)
            for _ in range(runs)
        ]
        return {
            figure: covered([each.get(figure) for each in found], truth[figure])
            for figure in names
        }

    return by_images(kinds, simulate)


def powered(runs: int) -> Table:
    kinds = {"ordinary": ORDINARY, "near the top": TOP, "nearly constant": (0.03, 0.97)}
    edits = 300

    def simulate(name: str, images: int) -> Table:
        chances = kinds[name]
        rng = np.random.default_rng(images)
        cuts = ndtri(np.cumsum(chances)[:-1])
        truth = float(np.dot(range(len(chances)), chances))
        rows = []
        for _ in range(runs):
            latent = rng.normal(size=edits)
            human = np.searchsorted(cuts, latent).astype(float)
            judge = np.searchsorted(
                cuts, 0.7 * latent + 0.714 * rng.normal(size=edits)
            ).astype(float)
            human[images:] = np.nan
            rows.append(powered_mean(judge, human, ends=(0, len(chances) - 1)))
        return {
            "people alone": covered([row.human_ci for row in rows], truth),
            "with the judge": covered([row.ci for row in rows], truth),
        }

    return by_images(kinds, simulate)


def strengths(runs: int) -> Table:
    kinds = {"even": (-0.3, 0.0, 0.3), "lopsided": (-1.5, 0.0, 1.5)}

    def simulate(name: str, images: int) -> Table:
        truth = np.array(kinds[name])
        rng = np.random.default_rng(images)
        first = np.tile([0, 0, 1], images)
        second = np.tile([1, 2, 2], images)
        group = np.repeat(np.arange(images), 3)
        chance = 1 / (1 + np.exp(truth[second] - truth[first]))
        hits = []
        fitted = 0
        for _ in range(runs // 2):
            vote = np.where(rng.random(3 * images) < chance, "A", "B").tolist()
            models = bradley_terry(
                first.astype(str).tolist(),
                second.astype(str).tolist(),
                vote,
                group=group,
                draws=300,
            )
            fitted += len(models)
            hits += [
                holds(model.ci, truth[int(model.model)]) for model in models if model.ci
            ]
        return {"given": round(len(hits) / fitted, 3), "coverage": share_of(hits)}

    return by_images(kinds, simulate)


def ranks(runs: int) -> Table:
    def simulate(name: str, images: int) -> Table:
        rng = np.random.default_rng(images)
        narrowed = []
        for _ in range(runs):
            scores = Scores.of(
                range(3 * images),
                ["f"] * 3 * images,
                rng.integers(1, 8, 3 * images).astype(float),
                model=np.repeat(list("abc"), images),
                group=np.tile(np.arange(images), 3),
            )
            narrowed.append(
                any(model.ci != (1, 3) for model in rank(scores, scales={"f": SEVEN}))
            )
        return {name: share_of(narrowed)}

    return by_images(["narrowed"], simulate)


PARTS: dict[str, Callable[[int], Table]] = {
    "differences": differences,
    "means": means,
    "limits": limits,
    "worst": worst,
    "family": family,
    "power": power,
    "detectable": detectable,
    "gate": gates,
    "correlations": correlations,
    "powered": powered,
    "strengths": strengths,
    "ranks": ranks,
}


if __name__ == "__main__":
    main()
