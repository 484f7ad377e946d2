"""Calibration that turns measures into scores. Its cut points and weights are read from a data file, which also
documents their origin."""

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
"""A piecewise linear function, given as points from left to right."""
_FAR = 4.0
"""Number of standard deviations at which a value is clipped, so that a single outlier does not decide."""


@dataclass(frozen=True)
class Deduction:
    """Points deducted for one measure. Nothing is deducted below the first cut point; between cut points the deduction
    is linear."""

    measure: str
    cuts: Cuts
    trust: str = ""
    """Name of the measure that says how much this measure counts against the edit."""

    def taken(self, values: Values) -> bool:
        """Whether both this measure and the one named in `trust` are available."""
        return self.measure in values and (not self.trust or self.trust in values)

    def points(self, values: Values) -> float:
        value = values[self.measure] * (values[self.trust] if self.trust else 1.0)
        return _along(self.cuts, value)


@dataclass(frozen=True)
class Regressor:
    """Ridge regression on one kind of evidence. It stores a weight for each feature, but no data of the edits to which
    it was fitted."""

    parts: tuple[str, ...]
    """Names of measures, or of kinds of network features."""
    mean: Array
    scale: Array
    weights: Array
    """Weights. The first is for the constant."""
    centre: float
    spread: float
    """Standard deviation of its predictions on edits that were not in the fit."""
    masked: bool = False
    """Whether it applies to edits with a mask. Otherwise it applies to edits without one."""

    def answers(self, rows: Array) -> Array:
        """Return the predicted human rating of each edit, as the number of standard deviations above the mean
        prediction."""
        answers: Array = features(rows, self.mean, self.scale) @ self.weights
        return (answers - self.centre) / self.spread


def features(rows: Array, mean: Array, scale: Array) -> Array:
    """Return rows in units of standard deviations, with a leading constant. Rows that differ much from those of rated
    edits are damped.

    This is the linear part of a Gaussian kernel whose width is the length of the rows. On unseen photographs it is as
    good as the kernel (correlation of .56 within editing models), while 2,048 random features of the kernel are worse
    (.53). Missing values are replaced by the mean.
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
    """Prediction of overall quality, fitted to people's ratings. It is the sum of several regressions, one for each
    kind of evidence.

    If there is a mask, only the network's features of a close view of the edit are used. On rated edits with a mask,
    other evidence hardly correlates with people's ratings.
    """

    edits: int
    """Number of rated edits to which it was fitted."""
    regressors: tuple[Regressor, ...]
    ranks: Cuts
    """Function that maps the sum to the share of rated edits that are worse."""
    masked_ranks: Cuts
    """The same function for edits with a mask, whose sum comes from other regressions. The share is also relative to
    all rated edits."""
    points: float
    """Points deducted from an edit that is worse than all rated edits."""
    offsets: Mapping[str, float]
    """Offsets of the factors that share the prediction. Each factor adds its own offset before it is rounded to an
    integer score. The mean over the factors then keeps the precision that rounding loses."""
    _ranks: WeakKeyDictionary[Measures, float] = field(
        default_factory=WeakKeyDictionary, repr=False, compare=False
    )

    def rank(self, measures: Measures) -> float:
        """Return the share of rated edits that are worse than this one. It is computed once for all factors."""
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
        """Return the points deducted from a factor for an edit of this rank."""
        return self.points * (1 - rank) + self.offsets[factor]


def gathered(parts: Sequence[str], values: Values, features: Features) -> Array:
    """Return the named measures and features as a single row, with NaN for missing values."""
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
        """Return the points deducted for each measure of a factor. Missing measures are left out."""
        return {
            term.measure: term.points(values)
            for term in self.factors[factor]
            if term.taken(values)
        }

    def rank(self, factor: str, measures: Measures) -> float | None:
        """Return the rank of the edit as predicted from people's ratings. Return None if there is no prediction for the
        factor, or if nothing was edited."""
        if (
            not self.learnt
            or factor not in self.learnt.offsets
            or measures.change.nothing
        ):
            return None
        return self.learnt.rank(measures)

    def score(self, factor: str, values: Values, rank: float | None = None) -> float:
        """Return a score from 1 to 7, not yet rounded.

        The deductions are summed. The prediction from people's ratings covers the same faults, so the larger of the sum
        and the predicted deduction is used.
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
    """Return the value of a piecewise linear function at x. It is constant beyond its ends."""
    knots = np.array(cuts)
    return float(np.interp(x, knots[:, 0], knots[:, 1]))
