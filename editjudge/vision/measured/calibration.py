"""Calibration from measures to scores: cut points and weights, read from a data file that documents their origin."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from editjudge.vision.measured.measures import Measures, Values
from editjudge.vision.measured.network import Features
from editjudge.vision.measured.scene import Array

FILE = Path(__file__).with_name("calibration.json")
Cuts: TypeAlias = tuple[tuple[float, float], ...]
"""A piecewise linear function, from left to right."""
_FAR = 4.0
"""Standard deviations at which a number is clipped: a single outlier must not decide."""


@dataclass(frozen=True)
class Deduction:
    """Points deducted for one measure: none below the first cut point, linear between them."""

    measure: str
    cuts: Cuts
    trust: str = ""
    """The measure of how much this one counts against the edit."""

    def taken(self, values: Values) -> bool:
        """Whether its measure, and the one for its trust, could be taken."""
        return self.measure in values and (not self.trust or self.trust in values)

    def points(self, values: Values) -> float:
        value = values[self.measure] * (values[self.trust] if self.trust else 1.0)
        return _along(self.cuts, value)


@dataclass(frozen=True)
class Regressor:
    """Ridge regression on one kind of evidence. It stores one weight per feature, and none of the rated edits that it
    was fitted to."""

    parts: tuple[str, ...]
    """Names of measures, or of kinds of network features."""
    mean: Array
    scale: Array
    weights: Array
    """Weights; the first is that of the constant."""
    centre: float
    spread: float
    """Spread of its predictions on edits that it was not fitted to."""
    masked: bool = False
    """Whether it applies to edits with a mask, or to those without one."""

    def answers(self, rows: Array) -> Array:
        """Return how far above other edits people would rate these, in standard deviations of such predictions."""
        answers: Array = features(rows, self.mean, self.scale) @ self.weights
        return (answers - self.centre) / self.spread


def features(rows: Array, mean: Array, scale: Array) -> Array:
    """Return rows in standard deviations, damped if they differ from rated edits, with a leading constant.

    This is the part of a Gaussian kernel (as wide as the rows are long) that is linear in the rows: on unseen
    photographs it is as good as the kernel (.56 within editing model), while 2,048 random features of the kernel are
    not (.53). Missing values are replaced by the mean.
    """
    distances = np.nan_to_num(
        np.clip((rows - mean) / scale, -_FAR, _FAR), nan=0.0
    ).astype(np.float64)
    width = rows.shape[-1]
    damping = np.exp(-(distances**2).sum(axis=-1, keepdims=True) / (2 * width))
    damped: Array = damping * np.concatenate(
        [np.ones_like(damping), distances / np.sqrt(width)], axis=-1
    )
    return damped


@dataclass(frozen=True)
class Learnt:
    """Overall quality, fitted to people's ratings: the sum of one regressor for each kind of evidence.

    If there is a mask, only the network's features of a close view of the edit decide: on rated edits with a mask the
    rest hardly correlates with people's ratings.
    """

    edits: int
    """Number of rated edits in the fit."""
    regressors: tuple[Regressor, ...]
    ranks: Cuts
    """From the sum to the share of rated edits that are worse."""
    masked_ranks: Cuts
    """Like `ranks`, for edits with a mask, by the regressors for them; relative to all rated edits too."""
    points: float
    """Points deducted from the worst edit."""
    offsets: Mapping[str, float]
    """Factors that share the prediction. Each adds a different offset before it is rounded to a whole score, so that
    the mean of the factors keeps the precision that rounding takes from each of them."""
    _ranks: WeakKeyDictionary[Measures, float] = field(
        default_factory=WeakKeyDictionary, repr=False, compare=False
    )

    def rank(self, measures: Measures) -> float:
        """Return the share of rated edits that are worse than this one, computed once for all factors."""
        if measures not in self._ranks:
            masked = measures.scene.mask is not None
            answers = (
                float(r.answers(gathered(r.parts, measures.values, measures.features)))
                for r in self.regressors
                if r.masked == masked
            )
            cuts = self.masked_ranks if masked else self.ranks
            self._ranks[measures] = _along(cuts, sum(answers))
        return self._ranks[measures]

    def taken(self, factor: str, rank: float) -> float:
        """Return the points deducted from a factor for the rank."""
        return self.points * (1 - rank) + self.offsets[factor]


def gathered(parts: Sequence[str], values: Values, features: Features) -> Array:
    """Return measures and kinds of features as one row; NaN for missing values."""
    return np.concatenate(
        [features.get(part, [values.get(part, np.nan)]) for part in parts]
    )


@dataclass(frozen=True)
class Calibration:
    version: int
    factors: Mapping[str, tuple[Deduction, ...]]
    learnt: Learnt | None
    provenance: Mapping[str, Any]
    digest: str

    def points(self, factor: str, values: Values) -> dict[str, float]:
        """Return the points deducted for each measure of a factor; missing measures are absent."""
        return {
            term.measure: term.points(values)
            for term in self.factors[factor]
            if term.taken(values)
        }

    def rank(self, factor: str, measures: Measures) -> float | None:
        """Return the learned rank of the edit; None for factors without one, and if there is no edit."""
        if (
            not self.learnt
            or factor not in self.learnt.offsets
            or measures.change.nothing
        ):
            return None
        return self.learnt.rank(measures)

    def score(self, factor: str, values: Values, rank: float | None = None) -> float:
        """Return a score on 1 to 7, not yet rounded.

        Deductions add up; the learned part includes the same faults, so the worse of both counts.
        """
        lost = sum(self.points(factor, values).values())
        if rank is not None and self.learnt:
            lost = max(lost, self.learnt.taken(factor, rank))
        return min(7.0, max(1.0, 7.0 - lost))


@functools.lru_cache(maxsize=4)
def load(path: Path = FILE) -> Calibration:
    data = path.read_bytes()
    return calibration(json.loads(data), hashlib.sha256(data).hexdigest())


def calibration(content: Mapping[str, Any], digest: str = "") -> Calibration:
    """Build a calibration from the content of the file."""
    factors = {
        name: tuple(Deduction(**term | {"cuts": _cuts(term["cuts"])}) for term in terms)
        for name, terms in content["factors"].items()
    }
    learnt = None
    if content.get("learnt"):
        fields = content["learnt"]
        learnt = Learnt(
            edits=fields["edits"],
            regressors=tuple(
                Regressor(
                    tuple(r["parts"]),
                    np.array(r["mean"]),
                    np.array(r["scale"]),
                    np.array(r["weights"]),
                    r["centre"],
                    r["spread"],
                    r["masked"],
                )
                for r in fields["regressors"]
            ),
            ranks=_cuts(fields["ranks"]),
            masked_ranks=_cuts(fields["masked ranks"]),
            points=fields["points"],
            offsets=fields["offsets"],
        )
    return Calibration(
        content["version"], factors, learnt, content.get("provenance", {}), digest
    )


def _cuts(pairs: Sequence[Sequence[float]]) -> Cuts:
    return tuple((float(x), float(y)) for x, y in pairs)


def _along(cuts: Cuts, x: float) -> float:
    """Return the value of a piecewise linear function at x; constant beyond its ends."""
    knots = np.array(cuts)
    return float(np.interp(x, knots[:, 0], knots[:, 1]))
