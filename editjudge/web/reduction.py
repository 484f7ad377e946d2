"""One number from the scores of an edit, by a formula that has a name."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from editjudge.errors import UsageError, near_miss
from editjudge.judgement import DONE, Judgement
from editjudge.rubrics.model import Factor, Rubric

Formula = Literal["mean", "min", "product", "geometric_mean"]
FORMULAS: tuple[Formula, ...] = get_args(Formula)
LEAST_WEIGHT = 1e-3
MOST_WEIGHT = 1e3


@dataclass(frozen=True)
class Reduction:
    """How scores become a reward. Each score is first brought to 0..1 by the range of its own scale."""

    formula: Formula = "mean"
    weights: Mapping[str, float] = field(default_factory=dict)
    """Factor (or `rubric.factor`) to weight. Those named must all be scored; where none is, whatever was scored counts
    alike."""

    def __post_init__(self) -> None:
        for name, weight in self.weights.items():
            if not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
                raise UsageError(
                    f"the weight of {name} is {weight:g}: expected a number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}"
                )

    def of(self, scores: Mapping[str, tuple[Factor, float]]) -> float | None:
        """None where a factor that is named has no score, or none has.

        A scale with an open end, as of PSNR, has no range to bring its scores to 0..1: they count for nothing."""
        shares = {name: factor.scale.share(score) for name, (factor, score) in scores.items()}
        values = {name: value for name, value in shares.items() if value is not None}
        if not values or any(name not in values for name in self.weights):
            return None
        weights = self.weights or dict.fromkeys(values, 1.0)
        values = {name: values[name] for name in weights}
        total = sum(weights.values())
        match self.formula:
            case "mean":
                return math.fsum(weights[name] * value for name, value in values.items()) / total
            case "min":
                return min(values.values())
            case "product":
                return math.prod(math.pow(value, weights[name]) for name, value in values.items())
            case "geometric_mean":
                return math.prod(math.pow(value, weights[name] / total) for name, value in values.items())

    def words(self) -> str:
        """The formula as it is named in every answer."""
        factors = ", ".join(f"{name} x {weight:g}" for name, weight in self.weights.items())
        return f"{self.formula} of (score - worst) / (best - worst) over {factors or 'the factors that were scored'}"


def names(rubrics: Sequence[Rubric]) -> dict[str, tuple[Rubric, Factor]]:
    """Every name that a factor of these rubrics goes by: its key, and `rubric.key`; a key that two share is that of
    the first."""
    by_name: dict[str, tuple[Rubric, Factor]] = {}
    for rubric in rubrics:
        for factor in rubric.factors:
            by_name.setdefault(factor.key, (rubric, factor))
            by_name[f"{rubric.name}.{factor.key}"] = (rubric, factor)
    return by_name


def check_weights(weights: Mapping[str, float], known: Mapping[str, tuple[Rubric, Factor]]) -> None:
    """Raise `UsageError` for a weight of a factor that no rubric has, and for two weights of one factor."""
    first_names: dict[tuple[str, str], str] = {}
    for name in weights:
        if name not in known:
            raise UsageError(f"a weight for {name}: no rubric has a factor {name}{near_miss(name, known)}")
        rubric, factor = known[name]
        first = first_names.setdefault((rubric.name, factor.key), name)
        if first != name:
            raise UsageError(f"{first} and {name} are the same factor: give it one weight")


def labelled(
    weights: Mapping[str, float], known: Mapping[str, tuple[Rubric, Factor]], called: Mapping[tuple[str, str], str]
) -> dict[str, float]:
    """Return the weights by what the factors are called in an answer."""
    check_weights(weights, known)
    return {called[known[name][0].name, known[name][1].key]: weight for name, weight in weights.items()}


def labels(rubrics: Sequence[Rubric]) -> dict[tuple[str, str], str]:
    """Rubric and factor to what the factor is called in an answer: its key, unless two rubrics share that."""
    count = Counter(factor.key for rubric in rubrics for factor in rubric.factors)
    return {
        (rubric.name, factor.key): factor.key if count[factor.key] == 1 else f"{rubric.name}.{factor.key}"
        for rubric in rubrics
        for factor in rubric.factors
    }


def failure(judgements: Iterable[Judgement | None]) -> str | None:
    """Why there can be no reward, if there cannot: the first status that is no answer; `pending` where none came."""
    statuses = (judgement.status if judgement else "pending" for judgement in judgements)
    return next((status for status in statuses if status not in DONE), None)
