"""Boosted trees that were fitted elsewhere, read from a data file of thresholds and values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from editjudge.vision.measured.scene import Array


@dataclass(frozen=True)
class Forest:
    """Boosted trees. Each node has the index of a measure, a threshold, the next node for values up to the threshold,
    and the next node for larger values.

    An index of -1 marks a leaf, which has the value that it contributes in place of a threshold.
    """

    measures: tuple[str, ...]
    start: float
    trees: tuple[Array, ...]
    allowed: float
    """Probability up to which the answer is no."""
    changed: float
    """Probability above which the answer is yes. Between `allowed` and `changed`, the forest is unsure."""

    def probability(self, evidence: Array) -> Array:
        rows = evidence.reshape(-1, evidence.shape[-1])
        total = np.full(len(rows), self.start)
        every = np.arange(len(rows))
        for tree in self.trees:
            node = np.zeros(len(rows), np.intp)
            while (measure := tree[node, 0].astype(np.intp)).max() >= 0:
                above = rows[every, measure] > tree[node, 1]
                following = np.where(above, tree[node, 3], tree[node, 2])
                node = np.where(measure >= 0, following.astype(np.intp), node)
            total += tree[node, 1]
        chances: Array = 1 / (1 + np.exp(-np.clip(total, -30, 30)))
        return chances.reshape(evidence.shape[:-1]).astype(np.float32)


@cache
def load(file: Path) -> Forest:
    content = json.loads(file.read_text("utf-8"))
    return Forest(
        tuple(content["measures"]),
        content["start"],
        tuple(np.array(tree) for tree in content["trees"]),
        content["allowed"],
        content["changed"],
    )
