"""Fits the calibration of the embedded judge to people's ratings, and says how well it then agrees with them.

    python bench/fit_measured.py [--data ../shared/data] [--manifest M --ratings R]... [-o FILE]

Rated edits are manifests with a `ratings.csv` (`item, rater, factor, score`) of perceptual quality. Only parameters
are written: cut points, which are set by hand on known-answer edits and kept here with their reasons, and a small
forest that takes points off `image_quality`. Agreement is Spearman's rho of the mean of the quality scores, as shipped
(whole numbers), with the mean rating: pooled and within editing model, on input images that the forest has not seen
(grouped cross-validation), and on editing models that it has not seen. Intervals resample input images.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from scipy.stats import rankdata
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.model_selection import GroupKFold

from editjudge.images import decode
from editjudge.judges.measured.calibration import FILE, Calibration, calibration
from editjudge.judges.measured.measures import measure
from editjudge.judges.measured.scene import compose

Array = Any
QUALITY = ("texture_and_detail", "image_quality", "color_and_lighting", "seamlessness")
FACTOR = "PQ"
TREES, LEAF = 200, 6
"""Leaves of at least six edits: smaller ones learn single edits, larger ones blur (.48, .49, .48 for 3, 6, 10)."""
POINTS = 4.0
"""The most points that the forest takes off: with more, the other factors answer half as much to a thing replaced."""
OFFSETS = dict(zip(QUALITY, (-0.375, -0.125, 0.125, 0.375), strict=True))
"""Evenly over one step of the scale."""
OWN_MODEL = 0.8
"""Share of the difference between editing models' means that is learnt: what tells models apart is partly quality."""

CUTS: dict[str, list[tuple[str, list[tuple[float, float]]]]] = {
    # Points taken off at each value of a measure. First value: seen in clean edits and re-encoded copies. Last: the
    # strongest dose of the defect on photographs. Between them the doses are spread over the scale.
    "unchanged_regions": [
        ("change.stray", [(0.002, 0), (0.06, 1.5), (0.11, 2.7), (0.2, 4.2), (0.3, 5.2), (0.7, 6.0)]),
        ("change.mean outside", [(2.5, 0), (8, 1.2), (20, 3.0)]),
        ("change.tint", [(3, 0), (40, 1.0)]),
    ],
    "global_consistency": [
        ("style.turned", [(4, 0), (25, 0.8), (50, 1.8), (75, 3.0), (100, 4.2)]),
        ("style.tinted", [(1.5, 0), (5, 1.2), (10, 2.6), (15, 4.0), (20, 5.4)]),
    ],
    "identity_preservation": [
        ("structure.lost inside", [(0.04, 0), (0.25, 1.8), (0.6, 4.5), (0.9, 6.0)]),
        ("structure.lost outside", [(0.06, 0), (0.25, 1.5), (0.7, 4.5)]),
    ],
    "texture_and_detail": [
        ("texture.lost", [(0.2, 0), (0.55, 1.2), (0.9, 2.5), (1.15, 3.4), (1.4, 4.3), (2.0, 5.2), (2.8, 6.0)]),
        ("texture.noise", [(2.2, 0), (3.5, 1.2), (5.2, 2.4), (9.0, 3.8), (15.0, 5.5)]),
    ],
    "image_quality": [
        ("overall.blocks", [(0.25, 0), (0.45, 1.0), (0.8, 1.9), (1.3, 2.6), (2.0, 3.0)]),
        ("overall.flat", [(0.08, 0), (0.2, 0.9), (0.26, 1.7), (0.36, 2.6), (0.5, 3.0)]),
        ("overall.blur", [(0.3, 0), (0.7, 1.3), (1.25, 3.0), (1.7, 4.3), (2.4, 5.7)]),
        ("overall.noise", [(0.5, 0), (2.0, 2.0), (4.5, 6.0)]),
    ],
    "color_and_lighting": [("light.slope against", [(0.35, 0), (0.6, 1.1), (1.0, 2.4), (1.5, 3.9), (2.1, 5.5)])],
    "seamlessness": [("seam.step", [(0.8, 0), (1.6, 1.2), (3.0, 2.3), (6.0, 3.7), (10.0, 4.9), (15.0, 6.0)])],
    "reference alignment": [("target.agreement missing", [(0.08, 0), (0.5, 2.5), (1.0, 6.0)])],
    "reference completeness": [("target.coverage missing", [(0.05, 0), (0.5, 3.0), (0.95, 6.0)])],
    "reference scale_realism": [("target.size", [(0.15, 0), (1.0, 3.0), (2.5, 6.0)])],
    "reference spatial_relationship": [("target.offset", [(0.01, 0), (0.1, 3.0), (0.3, 6.0)])],
}
TRUST = {
    "structure.lost inside": "trust.thing",
    "texture_and_detail": "trust.edit",
    "seamlessness": "trust.edit",
    "color_and_lighting": "trust.light",
    "image_quality": "trust.whole",
}
"""Factors whose measures compare a thing with itself, and the measure that says whether it still is itself."""


@dataclass(frozen=True)
class Rated:
    """Edits with what was measured and what people said."""

    names: list[str]
    values: Array
    rating: Array
    model: Array
    group: Array

    def part(self, chosen: Array) -> Rated:
        return Rated(self.names, self.values[chosen], self.rating[chosen], self.model[chosen], self.group[chosen])


# --- measuring ------------------------------------------------------------------------------------------------


def read_rated(manifest: Path, ratings: Path, cache: Path | None) -> Rated:
    said: dict[str, list[float]] = defaultdict(list)
    with ratings.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["factor"] == FACTOR:
                said[row["item"]].append(float(row["score"]))
    edits = [edit for edit in map(json.loads, manifest.read_text("utf-8").splitlines()) if edit["id"] in said]
    measured = _measured(manifest, edits, cache)
    names = list(measured[0])
    return Rated(
        names,
        np.array([[values[name] for name in names] for values in measured]),
        np.array([np.mean(said[edit["id"]]) for edit in edits]),
        np.array([str(edit.get("model")) for edit in edits]),
        np.array([str(edit.get("group") or edit["input"]) for edit in edits]),
    )


def _measured(manifest: Path, edits: list[dict[str, Any]], cache: Path | None) -> list[dict[str, float]]:
    if cache and cache.exists():
        found: list[dict[str, float]] = json.loads(cache.read_text())
        return found
    with ProcessPoolExecutor() as pool:
        found = list(pool.map(partial(_measure, manifest.parent), edits, chunksize=8))
    if cache:
        cache.write_text(json.dumps(found))
    return found


def _measure(root: Path, edit: dict[str, Any]) -> dict[str, float]:
    cv2.setNumThreads(1)
    roles = [edit["input"], edit["edited"], *([edit["mask"]] if edit.get("mask") else [])]
    pictures = [np.asarray(decode((root / role).read_bytes(), name=role)) for role in roles]
    return dict(measure(compose(*pictures)).values)


# --- fitting --------------------------------------------------------------------------------------------------


def target(rated: Rated) -> Array:
    """Ratings with part of the difference between editing models taken out, so that edits decide more than makers."""
    wanted = rated.rating.copy()
    for model in np.unique(rated.model):
        mine = rated.model == model
        wanted[mine] -= (1 - OWN_MODEL) * (rated.rating[mine].mean() - rated.rating.mean())
    return wanted


def learn(rated: Rated) -> dict[str, Any]:
    """Trees as plain lists, and cut points that spread their answers over the points taken off."""
    fitted = _trees().fit(rated.values, target(rated))
    # Spread by what it says of images it has not seen: of those it has seen it says too much.
    said = np.zeros(len(rated.rating))
    for train, test in GroupKFold(4).split(rated.values, rated.rating, rated.group):
        said[test] = _trees(50).fit(rated.values[train], target(rated.part(train))).predict(rated.values[test])
    # Evenly over the points: a rank keeps what rounding to whole scores would lose.
    shares = np.linspace(0.02, 0.98, 13)
    cuts = [[round(float(np.quantile(said, q)), 4), round(POINTS * (0.98 - q) / 0.96, 3)] for q in shares]
    return _nodes(fitted) | {"measures": rated.names, "cuts": cuts, "offsets": OFFSETS}


def _trees(count: int = TREES) -> Any:
    return ExtraTreesRegressor(count, min_samples_leaf=LEAF, max_features=1.0, random_state=0)


def _nodes(fitted: Any) -> dict[str, Any]:
    """All trees in one list of nodes, each node's two branches side by side."""
    found: dict[str, list[Any]] = {name: [] for name in ("roots", "feature", "threshold", "left", "value")}
    for tree in (one.tree_ for one in fitted.estimators_):
        found["roots"].append(len(found["feature"]))
        queue, start = [0], len(found["feature"])
        for node in queue:  # grows while it is walked, level by level
            leaf = tree.feature[node] < 0
            found["feature"].append(-1 if leaf else int(tree.feature[node]))
            found["threshold"].append(0 if leaf else float(f"{tree.threshold[node]:.5g}"))
            found["left"].append(0 if leaf else start + len(queue))
            found["value"].append(round(float(tree.value[node, 0, 0]), 3) if leaf else 0)
            if not leaf:
                queue += [int(tree.children_left[node]), int(tree.children_right[node])]
    return found


def content(learnt: dict[str, Any] | None) -> dict[str, Any]:
    """What the file holds."""
    factors = {
        name: [
            {"measure": measure, "cuts": cuts, "trust": TRUST.get(measure, TRUST.get(name, ""))}
            for measure, cuts in terms
        ]
        for name, terms in CUTS.items()
    }
    return {"version": 1, "factors": factors, "learnt": learnt}


# --- how well -------------------------------------------------------------------------------------------------


def quality(found: Calibration, rated: Rated, factors: tuple[str, ...] = QUALITY) -> Array:
    """The mean of the scores as they are shipped."""
    rows = (dict(zip(rated.names, row, strict=True)) for row in rated.values)
    return np.array([np.mean([round(found.score(factor, row)) for factor in factors]) for row in rows])


def spearman(a: Array, b: Array) -> float:
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def agreement(said: Array, rated: Rated) -> dict[str, float]:
    models = np.unique(rated.model)
    within = [spearman(said[rated.model == m], rated.rating[rated.model == m]) for m in models]
    return {"within": float(np.nanmean(within)), "pooled": spearman(said, rated.rating)}


def with_intervals(said: Array, rated: Rated, times: int = 1000) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    groups = np.unique(rated.group)
    members = {group: np.flatnonzero(rated.group == group) for group in groups}
    drawn = defaultdict(list)
    for _ in range(times):
        rows = np.concatenate([members[g] for g in rng.choice(groups, len(groups))])
        for key, value in agreement(said[rows], rated.part(rows)).items():
            drawn[key].append(value)
    return {
        key: {"rho": round(value, 3), "ci95": [round(float(q), 3) for q in np.nanquantile(drawn[key], [0.025, 0.975])]}
        for key, value in agreement(said, rated).items()
    }


def unseen_images(rated: Rated, folds: int = 6) -> Iterator[tuple[Array, Array]]:
    yield from GroupKFold(folds).split(rated.values, rated.rating, rated.group)


def unseen_models(rated: Rated) -> Iterator[tuple[Array, Array]]:
    for model in np.unique(rated.model):
        yield np.flatnonzero(rated.model != model), np.flatnonzero(rated.model == model)


def held_out(rated: Rated, splits: Iterator[tuple[Array, Array]]) -> Array:
    said = np.zeros(len(rated.rating))
    for train, test in splits:
        found = calibration(content(learn(rated.part(train))))
        said[test] = quality(found, rated.part(test))
    return said


def on_other(train: Rated, other: Rated) -> Array:
    """On another set with the same input images: each part judged by a forest that did not see its images."""
    said = np.zeros(len(other.rating))
    for seen, test in unseen_images(train):
        held = np.isin(other.group, np.unique(train.group[test]))
        found = calibration(content(learn(train.part(seen))))
        said[held] = quality(found, other.part(held))
    return said


def report(text: Rated, mask: Rated | None) -> dict[str, Any]:
    bare = calibration(content(None))
    found: dict[str, Any] = {
        "edits": len(text.rating),
        "quality, grouped by input": with_intervals(held_out(text, unseen_images(text)), text),
        "quality, leaving one editing model out": with_intervals(held_out(text, unseen_models(text)), text),
        "without the forest, by factor": {
            factor: {k: round(v, 3) for k, v in agreement(quality(bare, text, (factor,)), text).items()}
            for factor in CUTS
            if not factor.startswith("reference ")
        },
    }
    if mask is not None:
        found["mask edits, grouped by input"] = with_intervals(on_other(text, mask), mask)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--manifest", type=Path, help="rated edits of your own, instead of --data")
    parser.add_argument("--ratings", type=Path)
    parser.add_argument("--cache", type=Path, help="folder in which measures are kept between calls")
    parser.add_argument("-o", "--output", type=Path, default=FILE)
    parser.add_argument("--dry-run", action="store_true", help="report, and write nothing")
    given = parser.parse_args()
    text_folder, mask_folder = given.data / "imagenhub_text", given.data / "imagenhub_mask"
    manifest = given.manifest or text_folder / "manifest.jsonl"
    if not manifest.exists():
        raise SystemExit(f"{manifest}: not there; name rated edits with --manifest and --ratings")
    cached = (lambda name: given.cache / f"{name}.json") if given.cache else (lambda _: None)
    text = read_rated(manifest, given.ratings or manifest.with_name("ratings.csv"), cached("rated"))
    own = given.manifest or not (mask_folder / "manifest.jsonl").exists()
    mask = None if own else read_rated(mask_folder / "manifest.jsonl", mask_folder / "ratings.csv", cached("mask"))
    found = report(text, mask)
    print(json.dumps(found, indent=2))
    if not given.dry_run:
        given.output.write_text(json.dumps(_file(text, found, manifest), indent=None, separators=(",", ":")) + "\n")


def _file(text: Rated, found: dict[str, Any], manifest: Path) -> dict[str, Any]:
    return content(learn(text)) | {
        "provenance": {
            "made by": "bench/fit_measured.py",
            "ratings": f"{manifest.parent.name}: mean of people's {FACTOR}, {len(text.rating)} edits, "
            f"{len(np.unique(text.group))} input images, {len(np.unique(text.model))} editing models",
            "made on": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "agreement": found,
        }
    }


if __name__ == "__main__":
    main()
