"""How often 95 % intervals hold the truth, simulated for scores that are ordinary, skewed, discrete, nearly constant,
constant or failing, at 5, 10, 30 and 100 source images, beside the method of 0.1 (expanded percentiles).

    python bench/coverage.py [--runs N] [--only NAME...]

Means, shares and differences: coverage and mean width, ours and 0.1's; of differences also of Gaffke's bound alone,
and the worst case. Correlations, prediction-powered means and Bradley-Terry strengths: coverage where an interval is
given, and how often it is. Gate: false alarms of a run whose mean is exactly its threshold. Ranks: how often some rank
of three equal models is called certain. Prints one JSON document; every simulation has a fixed seed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from editjudge.stats.permutation import ALPHA, InvertedTest, sign_flip
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import binom

from editjudge.stats.bootstrap import difference_interval, interval, mean_draws, mean_interval
from editjudge.stats.calibration import powered_mean
from editjudge.stats.columns import Scores
from editjudge.stats.compare import agreeing_interval
from editjudge.stats.concordance import Pairs, estimate, intervals
from editjudge.stats.gate import gate
from editjudge.stats.preference import bradley_terry
from editjudge.stats.summary import rank

IMAGES = (5, 10, 30, 100)
WORST_DROP = {5: 0.235, 10: 0.14, 30: 0.052, 100: 0.016}
"""Shares at which an interval that ends at half the scale raised most false alarms: 20 to 25 %."""
DRAWS = 500
FLIPS = 1_999
"""A tenth of what `compare` draws, and the level of the test is still met exactly."""
Floats = NDArray[np.float64]
ORDINARY = (0.067, 0.117, 0.198, 0.236, 0.198, 0.117, 0.067)
TOP = (0.005, 0.01, 0.015, 0.02, 0.05, 0.2, 0.7)

# Values, their chances, edits an image, share of the latent variance between images, ends of the scale.
MEANS: dict[str, tuple[Sequence[float], Sequence[float], int, float, tuple[float, float]]] = {
    "ordinary 1-7": (range(1, 8), ORDINARY, 5, 0.5, (1, 7)),
    "near the top 1-7": (range(1, 8), TOP, 5, 0.5, (1, 7)),
    "near the top 1-7, half failed": (range(1, 8), TOP, 5, 0.5, (1, 7)),
    "rare high 1, 2, 7": ((1, 2, 7), (0.5, 0.47, 0.03), 1, 0.5, (1, 7)),
    "nearly constant 6, 7": ((6, 7), (0.03, 0.97), 2, 0.9, (1, 7)),
    "constant 7": ((7, 7), (0.5, 0.5), 2, 0.5, (1, 7)),
    "discrete 1, 3, 5": ((1, 3, 5), (0.05, 0.1, 0.85), 3, 0.5, (1, 5)),
    "share .5": ((0, 1), (0.5, 0.5), 5, 0.5, (0, 1)),
    "share .9": ((0, 1), (0.1, 0.9), 5, 0.5, (0, 1)),
    "share .98, whole images": ((0, 1), (0.02, 0.98), 5, 0.95, (0, 1)),
}
DIFFERENCES: dict[str, tuple[Sequence[float], Sequence[float], int, float]] = {
    "ordinary": ((-3, -2, -1, 0, 1, 2, 3), ORDINARY, 3, 0.4),
    "mostly none": ((-1, 0, 1), (0.02, 0.97, 0.01), 2, 0.7),
    "rare large": ((-6, -1, 0, 1), (0.02, 0.05, 0.83, 0.1), 2, 0.7),
    "skewed": ((0, 1, 2, 4, 6), (0.7, 0.15, 0.08, 0.05, 0.02), 1, 0.5),
    "of shares": ((-1, 0, 1), (0.05, 0.85, 0.1), 1, 0.5),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--only", nargs="*", choices=sorted(PARTS))
    options = parser.parse_args()
    parts = {name: part(options.runs) for name, part in PARTS.items() if not options.only or name in options.only}
    print(json.dumps({"runs": options.runs, "draws": DRAWS, **parts}, indent=1, allow_nan=False))


def clustered(
    rng: np.random.Generator, values: Sequence[float], chances: Sequence[float], images: int, size: int, share: float
) -> Floats:
    """Images x size scores with these chances, alike within an image."""
    latent = rng.normal(0, np.sqrt(share), (images, 1)) + rng.normal(0, np.sqrt(1 - share), (images, size))
    return np.asarray(values, dtype=float)[np.searchsorted(ndtri(np.cumsum(chances)[:-1]), latent)]


def means(runs: int) -> dict[str, Any]:
    def simulate(name: str, images: int) -> dict[str, Any]:
        values, chances, size, share, ends = MEANS[name]
        rng, truth = np.random.default_rng(images), float(np.dot(values, chances))
        rows = []
        for _ in range(runs):
            table = clustered(rng, values, chances, images, size, share)
            keep = rng.random(table.shape) < (0.5 if "failed" in name else 1.1)
            keep[:, 0] = True
            score, group = table[keep], np.nonzero(keep)[0]
            rows.append((mean_interval(score, group, ends, draws=DRAWS).ci, _before(score, group, images)))
        return _both(rows, truth)

    return _table(MEANS, simulate)


def differences(runs: int) -> dict[str, Any]:
    def simulate(name: str, images: int) -> dict[str, Any]:
        values, chances, size, share = DIFFERENCES[name]
        scale = (0.0, 1.0) if name == "of shares" else (1.0, 7.0)
        rng, truth, rows = np.random.default_rng(images), float(np.dot(values, chances)), []
        for _ in range(runs):
            score = clustered(rng, values, chances, images, size, share).ravel()
            group = np.repeat(np.arange(images), size)
            rows.append((*_compared(score, group, scale), _before(score, group, images)))
        ours, bound, before = (_given(some, truth) for some in zip(*rows, strict=True))
        return {"ours": ours, "gaffke": bound, "0.1": before}

    return _table(DIFFERENCES, simulate)


def worst(_: int) -> dict[str, Any]:
    """The least coverage over all shares of the first of two differences, exact: only how many of each counts."""
    kinds = {"-6 and 0": (-6.0, 0.0), "-1 and 5": (-1.0, 5.0), "-6 and 6": (-6.0, 6.0)}

    def search(name: str, images: int) -> dict[str, Any]:
        values, seen = kinds[name], np.arange(images + 1)
        found = [_compared(np.repeat(values, [images - k, k]), np.arange(images), (1.0, 7.0)) for k in seen]
        shares = np.linspace(0.003, 0.997, 300)[:, None]
        truth, chance = values[0] + shares * (values[1] - values[0]), binom.pmf(seen, images, shares)

        def least(limits: Sequence[Any]) -> float:
            ci = np.array(limits, dtype=float)
            return float((chance * ((ci[:, 0] <= truth + 1e-9) & (truth - 1e-9 <= ci[:, 1]))).sum(axis=1).min())

        ours, bound = zip(*found, strict=True)
        return {"coverage": least(ours), "gaffke": least(bound)}

    return _table(kinds, search)


def correlations(runs: int) -> dict[str, Any]:
    kinds = {"ordinary": ORDINARY, "near the top": TOP, "share .9": (0.1, 0.9), "nearly constant": (0.03, 0.97)}
    names = ("spearman", "kendall", "pearson", "qwk")

    def pairs(rng: np.random.Generator, chances: Sequence[float], images: int) -> Pairs:
        cuts, half = ndtri(np.cumsum(chances)[:-1]), np.sqrt(0.5)
        common, *own = (rng.normal(0, np.sqrt(0.3), (images, 1)) + rng.normal(0, np.sqrt(0.7), (images, 2))
                        for _ in range(3))  # fmt: skip
        x, y = (np.searchsorted(cuts, half * (common + one)).ravel().astype(float) for one in own)
        return Pairs(x, y, np.repeat(np.arange(images), 2))

    def simulate(name: str, images: int) -> dict[str, Any]:
        truth = estimate(pairs(np.random.default_rng(9), kinds[name], 100_000))
        rng = np.random.default_rng(images)
        drawn = [intervals([pairs(rng, kinds[name], images)], images, names, draws=DRAWS) for _ in range(runs // 2)]
        return {figure: _given([one.get(figure) for one in drawn], truth[figure]) for figure in names}

    return _table(kinds, simulate)


def powered(runs: int) -> dict[str, Any]:
    kinds = {"ordinary": ORDINARY, "near the top": TOP, "nearly constant": (0.03, 0.97)}

    def simulate(name: str, images: int) -> dict[str, Any]:
        chances, rng = kinds[name], np.random.default_rng(images)
        cuts, truth, rows = ndtri(np.cumsum(chances)[:-1]), float(np.dot(range(len(chances)), chances)), []
        for _ in range(runs):
            latent = rng.normal(size=300)
            human, judge = (
                np.searchsorted(cuts, z).astype(float) for z in (latent, 0.7 * latent + 0.714 * rng.normal(size=300))
            )
            human[images:] = np.nan
            rows.append(powered_mean(judge, human, ends=(0, len(chances) - 1)))
        return {
            "people alone": _given([one.human_ci for one in rows], truth),
            "with the judge": _given([one.ci for one in rows], truth),
        }

    return _table(kinds, simulate)


def strengths(runs: int) -> dict[str, Any]:
    kinds = {"even": (-0.3, 0.0, 0.3), "lopsided": (-1.5, 0.0, 1.5)}

    def simulate(name: str, images: int) -> dict[str, Any]:
        truth, rng, rows = np.array(kinds[name]), np.random.default_rng(images), []
        first, second = np.tile([0, 0, 1], images), np.tile([1, 2, 2], images)
        chance = 1 / (1 + np.exp(truth[second] - truth[first]))
        for _ in range(runs // 5):
            vote = np.where(rng.random(3 * images) < chance, "A", "B").tolist()
            group = np.repeat(np.arange(images), 3)
            found = bradley_terry(first.astype(str).tolist(), second.astype(str).tolist(), vote, group=group, draws=300)
            rows += [(one.ci, truth[int(one.model)]) for one in found]
        given = [ci.lo <= value <= ci.hi for ci, value in rows if ci]
        return {"given": len(given) / len(rows), "coverage": float(np.mean(given)) if given else None}

    return _table(kinds, simulate)


def gates(runs: int) -> dict[str, Any]:
    """Mostly the lowest scores and a share of the highest; and a drop from a baseline that is skewed the same way."""
    kinds = {
        "share .02 at 7": 0.02,
        "share .1 at 7": 0.1,
        "share .3 at 7": 0.3,
        "drop, share .1": -0.1,
        "drop, worst share": 0.0,
    }

    def simulate(name: str, images: int) -> dict[str, Any]:
        share = abs(kinds[name]) or WORST_DROP[images]
        rng, alarms = np.random.default_rng(images), 0
        mean, items = 7 * share + 1.5 * (1 - share), [str(n) for n in range(images)]
        for _ in range(runs):
            now = np.where(rng.random(images) < share, 7.0, rng.integers(1, 3, images))
            scores = Scores.of(items, ["f"] * images, now)
            if kinds[name] > 0:
                found = gate(scores, {"f": mean}, scales={"f": range(1, 8)}, draws=DRAWS)
            else:
                base = Scores.of(items, ["f"] * images, [4.0] * images)
                found = gate(scores, baseline=base, max_drop=4 - mean, scales={"f": range(1, 8)}, draws=DRAWS)
            alarms += found.outcome == "fail"
        return {"false_alarms": alarms / runs}

    return _table(kinds, simulate)


def ranks(runs: int) -> dict[str, Any]:
    def simulate(name: str, images: int) -> dict[str, Any]:
        rng, certain = np.random.default_rng(images), 0
        for _ in range(runs // 2):
            scores = Scores.of(
                range(3 * images), ["f"] * 3 * images, rng.integers(1, 8, 3 * images).astype(float),
                model=np.repeat(list("abc"), images), group=np.tile(np.arange(images), 3),
            )  # fmt: skip
            certain += any(one.ci != (1, 3) for one in rank(scores))
        return {name: certain / (runs // 2)}

    return _table(["narrowed"], simulate)


PARTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "means": means,
    "differences": differences,
    "worst": worst,
    "correlations": correlations,
    "powered": powered,
    "strengths": strengths,
    "gate": gates,
    "ranks": ranks,
}


def _table(kinds: Iterable[str], simulate: Callable[[str, int], dict[str, Any]]) -> dict[str, Any]:
    return {kind: {str(images): simulate(kind, images) for images in IMAGES} for kind in kinds}


def _compared(score: Floats, group: NDArray[Any], scale: tuple[float, float]) -> tuple[Any, Any]:
    """The CI of a comparison with these differences, and Gaffke's bound alone."""
    bound, p = difference_interval(score, group, scale, draws=DRAWS).ci, sign_flip(score, group, flips=FLIPS)
    evident, test = p is not None and p < ALPHA, InvertedTest(score, group, FLIPS)
    return agreeing_interval(bound, test, float(score.mean()), ALPHA, evident=evident), bound


def _before(score: Floats, group: NDArray[Any], images: int) -> Any:
    """The interval of 0.1, no width where draws do not differ."""
    drawn = mean_draws(score, np.zeros(len(score), np.int64), 1, group, images, draws=DRAWS)[:, 0]
    return interval(drawn, images) or (float(score.mean()), float(score.mean()))


def _both(rows: Sequence[tuple[Any, Any]], truth: float) -> dict[str, Any]:
    ours, before = zip(*rows, strict=True)
    return {"ours": _given(ours, truth), "0.1": _given(before, truth)}


def _given(found: Iterable[Any], truth: float) -> dict[str, Any]:
    every = list(found)
    ci = np.array([one for one in every if one is not None], dtype=float).reshape(-1, 2)
    hits = (ci[:, 0] <= truth + 1e-9) & (truth - 1e-9 <= ci[:, 1])
    some = len(ci) > 0
    return {
        "coverage": round(float(hits.mean()), 3) if some else None,
        "width": round(float(np.mean(ci[:, 1] - ci[:, 0])), 3) if some else None,
        "given": round(len(ci) / len(every), 3),
    }


if __name__ == "__main__":
    main()
