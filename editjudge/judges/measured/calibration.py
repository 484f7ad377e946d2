"""From measures to scores: cut points and weights, read from a data file that says where they come from."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editjudge.judges.measured.measures import Values

FILE = Path(__file__).with_name("calibration.json")


@dataclass(frozen=True)
class Term:
    """Points taken off for one measure: nothing below the first cut point, linear between them."""

    measure: str
    cuts: tuple[tuple[float, float], ...]

    def points(self, values: Values) -> float:
        value = values.get(self.measure, 0.0)
        (x, y), *rest = self.cuts
        if value <= x:
            return y
        for right, above in rest:
            if value <= right:
                return y + (above - y) * (value - x) / (right - x)
            x, y = right, above
        return y


@dataclass(frozen=True)
class Tree:
    """A regression tree as parallel lists: feature (-1 at a leaf), threshold, left, right, value."""

    feature: Sequence[int]
    threshold: Sequence[float]
    left: Sequence[int]
    right: Sequence[int]
    value: Sequence[float]

    def predict(self, row: Sequence[float]) -> float:
        node = 0
        while self.feature[node] >= 0:
            branch = self.left if row[self.feature[node]] <= self.threshold[node] else self.right
            node = branch[node]
        return self.value[node]


@dataclass(frozen=True)
class Learnt:
    """A small forest over measures, fitted to people's ratings; its answer is in points taken off."""

    measures: tuple[str, ...]
    trees: tuple[Tree, ...]
    cuts: tuple[tuple[float, float], ...]
    """From the forest's mean to points."""

    def points(self, values: Values) -> float:
        row = [values.get(name, 0.0) for name in self.measures]
        mean = sum(tree.predict(row) for tree in self.trees) / len(self.trees)
        return Term("", self.cuts).points({"": mean})


@dataclass(frozen=True)
class Calibration:
    version: int
    factors: Mapping[str, tuple[Term, ...]]
    learnt: Mapping[str, Learnt | Term]
    """What people's ratings taught: a forest where several measures must be weighed, a term where one decides."""
    provenance: Mapping[str, Any]
    digest: str

    def points(self, factor: str, values: Values) -> dict[str, float]:
        """Points taken off, by what they are taken off for."""
        taken = {term.measure: term.points(values) for term in self.factors[factor]}
        if factor in self.learnt:
            taken["learnt"] = self.learnt[factor].points(values)
        return taken

    def score(self, factor: str, values: Values) -> float:
        """On 1 to 7, not yet rounded. Faults add up; what was learnt has seen them too, so the worse of both counts."""
        taken = self.points(factor, values)
        learnt = taken.pop("learnt", 0.0)
        return min(7.0, max(1.0, 7.0 - max(learnt, sum(taken.values()))))


@functools.lru_cache(maxsize=4)
def load(path: Path = FILE) -> Calibration:
    data = path.read_bytes()
    content = json.loads(data)
    return Calibration(
        content["version"],
        {name: tuple(_term(t) for t in terms) for name, terms in content["factors"].items()},
        {name: learnt(model) for name, model in content.get("learnt", {}).items()},
        content["provenance"],
        hashlib.sha256(data).hexdigest(),
    )


def _term(content: Mapping[str, Any]) -> Term:
    return Term(content["measure"], _cuts(content["cuts"]))


def learnt(content: Mapping[str, Any]) -> Learnt | Term:
    if "trees" not in content:
        return _term(content)
    trees = tuple(Tree(**tree) for tree in content["trees"])
    return Learnt(tuple(content["measures"]), trees, _cuts(content["cuts"]))


def _cuts(pairs: Sequence[Sequence[float]]) -> tuple[tuple[float, float], ...]:
    return tuple((float(x), float(y)) for x, y in pairs)
