"""From measures to scores: cut points and weights, read from a data file that says where they come from."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from editjudge.judges.measured.measures import Values
from editjudge.judges.measured.scene import Array

FILE = Path(__file__).with_name("calibration.json")
Cuts: TypeAlias = tuple[tuple[float, float], ...]
"""A broken line, from left to right."""


@dataclass(frozen=True)
class Term:
    """Points taken off for one measure: nothing below the first cut point, linear between them."""

    measure: str
    cuts: Cuts
    trust: str = ""
    """The measure that says how far this one can be held against the edit."""

    def taken(self, values: Values) -> bool:
        """Whether its measure, and how far that can be trusted, could be measured."""
        return self.measure in values and (not self.trust or self.trust in values)

    def points(self, values: Values) -> float:
        value = values[self.measure] * (values[self.trust] if self.trust else 1.0)
        (x, y), *rest = self.cuts
        if value <= x:
            return y
        for right, above in rest:
            if value <= right:
                return y + (above - y) * (value - x) / (right - x)
            x, y = right, above
        return y


@dataclass(frozen=True)
class Forest:
    """Regression trees over measures, fitted to people's ratings: all nodes of all trees as parallel arrays."""

    measures: tuple[str, ...]
    roots: Array
    feature: Array
    """-1 at a leaf."""
    threshold: Array
    left: Array
    """The right branch is the node after it."""
    value: Array
    cuts: Cuts
    """From the trees' mean to points taken off."""
    offsets: Mapping[str, float]
    """Factors that share the answer. Each adds an offset of its own before it is rounded to a whole score: so the mean
    of the factors keeps what rounding takes from each of them."""

    def points(self, values: Values) -> float:
        row = np.array([values.get(name, 0.0) for name in self.measures])
        node = self.roots
        while (inner := self.feature[node] >= 0).any():
            branch = self.left[node] + (row[self.feature[node]] > self.threshold[node])
            node = np.where(inner, branch, node)
        return Term("", self.cuts).points({"": float(self.value[node].mean())})


@dataclass(frozen=True)
class Calibration:
    version: int
    factors: Mapping[str, tuple[Term, ...]]
    learnt: Forest | None
    """What people's ratings taught about quality as a whole."""
    provenance: Mapping[str, Any]
    digest: str

    def points(self, factor: str, values: Values) -> dict[str, float]:
        """Points taken off, by what they are taken off for; what could not be measured is not there."""
        taken = {term.measure: term.points(values) for term in self.factors[factor] if term.taken(values)}
        if self.learnt and factor in self.learnt.offsets:
            taken["learnt"] = self.learnt.points(values) + self.learnt.offsets[factor]
        return taken

    def score(self, factor: str, values: Values) -> float:
        """On 1 to 7, not yet rounded. Faults add up; what was learnt has seen them too, so the worse of both counts."""
        taken = self.points(factor, values)
        learnt = taken.pop("learnt", 0.0)
        return min(7.0, max(1.0, 7.0 - max(learnt, sum(taken.values()))))


@functools.lru_cache(maxsize=4)
def load(path: Path = FILE) -> Calibration:
    data = path.read_bytes()
    return calibration(json.loads(data), hashlib.sha256(data).hexdigest())


def calibration(content: Mapping[str, Any], digest: str = "") -> Calibration:
    """From the content of the file."""
    factors = {
        name: tuple(Term(term["measure"], _cuts(term["cuts"]), term.get("trust", "")) for term in terms)
        for name, terms in content["factors"].items()
    }
    learnt = _forest(content["learnt"]) if content.get("learnt") else None
    return Calibration(content["version"], factors, learnt, content.get("provenance", {}), digest)


def _forest(content: Mapping[str, Any]) -> Forest:
    nodes = {name: np.array(content[name]) for name in ("roots", "feature", "threshold", "left", "value")}
    return Forest(tuple(content["measures"]), cuts=_cuts(content["cuts"]), offsets=content["offsets"], **nodes)


def _cuts(pairs: Sequence[Sequence[float]]) -> Cuts:
    return tuple((float(x), float(y)) for x, y in pairs)
