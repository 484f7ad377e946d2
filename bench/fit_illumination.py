"""Fit the forest of `editjudge/vision/measured/illumination.json`, by which lighting edits are judged.

    python -m bench.fit_illumination [--data ../shared/data] [--each 12] [-o FILE]

Draws the lighting battery on the photographs of the `develop` half, measures windows of every case, and fits boosted
trees to whether content changed in each. The two bounds are chosen on predictions for photographs that the trees were
not fitted to, so that 1 % of the cases of either kind are on the wrong side. The `report` half is not read.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from bench import lighting_cases
from bench.batteries import DATA
from editjudge.vision.measured import illumination
from editjudge.vision.measured.forest import Forest
from editjudge.vision.measured.illumination import local_evidence, smoothed
from editjudge.vision.measured.scene import Array

WRONG = 0.01
"""Share of either kind of case that may be on the wrong side of its bound."""
STEP = 2
"""Every so many windows along each side are fitted: neighbours are nearly the same."""
ROWS = 150_000
CHANGED = 15.0
"""Mean difference in levels from which the content of a window counts as changed."""
SAME = 1.0
FOLDS = 3


@dataclass(frozen=True)
class Measured:
    photograph: str
    preserved: bool
    evidence: Array
    changed: Array
    """1 if the content of the window changed, 0 if not, -1 if it is between."""


def measured(case: lighting_cases.LightCase) -> tuple[tuple[str, ...], Measured]:
    scene = illumination.unaligned(case.before, case.after)
    names, evidence = local_evidence(scene)
    size = (evidence.shape[1], evidence.shape[0])
    difference = np.abs(case.content.astype(np.float32) - case.before).max(axis=-1)
    windows = cv2.blur(cv2.resize(difference, size, interpolation=cv2.INTER_AREA), (7, 7))  # fmt: skip
    between = np.where(windows > CHANGED, 1, -1)
    changed = np.where(windows < SAME, 0, between).astype(np.int8)
    record = Measured(
        case.photograph, case.preserved, evidence.astype(np.float16), changed
    )
    return names, record


def fit(records: list[Measured], names: tuple[str, ...]) -> Forest:
    rows = []
    answers = []
    for record in records:
        part = record.evidence[::STEP, ::STEP].reshape(-1, len(names))
        answer = record.changed[::STEP, ::STEP].ravel()
        rows.append(part[answer >= 0])
        answers.append(answer[answer >= 0])
    x = np.concatenate(rows)
    y = np.concatenate(answers)
    chosen = np.random.default_rng(0).permutation(len(x))[:ROWS]
    falling = {name: -1 for name in names if name.endswith(".alike")}
    model = HistGradientBoostingClassifier(
        max_iter=80,
        max_leaf_nodes=8,
        learning_rate=0.15,
        min_samples_leaf=200,
        l2_regularization=5.0,
        monotonic_cst=[falling.get(name, 0) for name in names],
        early_stopping=False,
    )
    model.fit(x[chosen].astype(np.float32), y[chosen])
    return forest_of(model, names)


def forest_of(model: Any, names: tuple[str, ...]) -> Forest:
    """Return the trees of a fitted `HistGradientBoostingClassifier`, with bounds of 0 and 1."""
    trees = tuple(_tree(stage[0].nodes) for stage in model._predictors)
    start = float(model._baseline_prediction.ravel()[0])
    return Forest(names, start, trees, 0.0, 1.0)


def _tree(nodes: Any) -> Array:
    rows = []
    for node in nodes:
        if node["is_leaf"]:
            rows.append([-1, round(float(node["value"]), 5), 0, 0])
        else:
            bound = round(float(node["num_threshold"]), 5)
            following = [int(node["left"]), int(node["right"])]
            rows.append([int(node["feature_idx"]), bound, *following])
    return np.array(rows)


def bounds(records: list[Measured], names: tuple[str, ...]) -> tuple[float, float]:
    """Return both bounds, by the strongest window of each case when its photograph was not fitted."""
    folds = [
        hashlib.sha1(r.photograph.encode(), usedforsecurity=False).digest()[1] % FOLDS
        for r in records
    ]
    strongest: dict[bool, list[float]] = {True: [], False: []}
    for fold in range(FOLDS):
        parts: dict[bool, list[Measured]] = {True: [], False: []}
        for record, its_fold in zip(records, folds, strict=True):
            parts[its_fold == fold].append(record)
        forest = fit(parts[False], names)
        for record in parts[True]:
            chances = smoothed(forest.probability(record.evidence.astype(np.float32)))
            strongest[record.preserved].append(float(chances.max()))
    allowed = float(np.quantile(strongest[False], WRONG))
    changed = float(np.quantile(strongest[True], 1 - WRONG))
    passed = np.mean(np.array(strongest[True]) < allowed)
    caught = np.mean(np.array(strongest[False]) > changed)
    print(f"light allowed {passed:.2f}, content caught {caught:.2f}", file=sys.stderr)
    return allowed, changed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--each", type=int, default=12)
    parser.add_argument("-o", type=Path, default=illumination.FILE)
    options = parser.parse_args()
    cv2.setNumThreads(1)
    names: tuple[str, ...] = ()
    records = []
    for case in lighting_cases.cases(options.data, "develop", options.each):
        names, record = measured(case)
        records.append(record)
    allowed, changed = bounds(records, names)
    forest = fit(records, names)
    write(replace(forest, allowed=allowed, changed=changed), len(records), options.o)


def write(forest: Forest, cases: int, file: Path) -> None:
    content = {
        "measures": forest.measures,
        "start": round(forest.start, 5),
        "allowed": round(forest.allowed, 3),
        "changed": round(forest.changed, 3),
        "cases": cases,
        "trees": [tree.tolist() for tree in forest.trees],
    }
    file.write_text(json.dumps(content, separators=(",", ":")) + "\n", "utf-8")


if __name__ == "__main__":
    main()
