"""Reduction of an edit's scores to a reward from 0 to 1, by the score expression of a request."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

from editjudge.errors import RubricError, UsageError, did_you_mean
from editjudge.judgement import Judgement
from editjudge.rubrics.evaluation import value_for_edit
from editjudge.rubrics.expression import Member, Ref, Term, parse, share
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.scale import Scale
from editjudge.rubrics.sets import Formula as SetScore
from editjudge.rubrics.sets import member

Formula = Literal["mean", "min", "product", "geometric_mean"]
FORMULAS: tuple[Formula, ...] = get_args(Formula)
EXPRESSIONS: Mapping[str, str] = {
    "mean": "mean(applies(share(*)))",
    "min": "min(applies(share(*)))",
    "product": "product(applies(share(*)))",
    # Equal to geomean(applies(share(*))), but with the rounding of earlier versions.
    "geometric_mean": "product(power(applies(share(*)), 1 / count(applies(share(*)))))",
}
"""Expressions of the named formulas, over all scored factors."""
LEAST_WEIGHT = 1e-3
MOST_WEIGHT = 1e3


@dataclass(frozen=True)
class Reduction:
    """A formula that computes a reward from scores."""

    formula: str
    """Description of the formula in every answer."""
    term: Term
    worst: float = 0.0
    """Value of the term for which the reward is 0."""
    best: float = 1.0
    extrapolates: bool = False
    """Whether the formula accepts scores beyond the ends of their scales, as a mean does."""

    @property
    def refs(self) -> set[Ref]:
        """Factors that the formula uses."""
        return {ref for part in self.term.walk() for ref in part.refs}

    def of(self, scores: Mapping[Ref, float]) -> float | None:
        """Return the reward of these scores; None if a required score is missing."""
        value = value_for_edit(self.term, scores)
        if value is None:
            return None
        return (value - self.worst) / (self.best - self.worst)


def scores_of(judgements: Iterable[Judgement]) -> dict[Ref, float]:
    """Return all scores of these judgements, by rubric and factor."""
    return {
        (judgement.rubric, key): score
        for judgement in judgements
        for key, score in (judgement.scores or {}).items()
    }


def scales(rubrics: Sequence[Rubric]) -> dict[Ref, Scale]:
    """Return the scale of each factor."""
    return {
        (rubric.name, factor.key): factor.scale
        for rubric in rubrics
        for factor in rubric.factors
    }


def names(rubrics: Sequence[Rubric]) -> dict[str, Ref]:
    """Return the factors keyed by name: `key` and `rubric.key`. A key that several rubrics have belongs to the first."""
    by_name: dict[str, Ref] = {}
    for rubric, key in scales(rubrics):
        by_name.setdefault(key, (rubric, key))
        by_name[f"{rubric}.{key}"] = rubric, key
    return by_name


def labels(rubrics: Sequence[Rubric]) -> dict[Ref, str]:
    """Return the name of each factor in an answer: its key, or `rubric.key` if several rubrics have the key."""
    refs = list(scales(rubrics))
    count = Counter(key for _, key in refs)
    return {
        (rubric, key): key if count[key] == 1 else f"{rubric}.{key}"
        for rubric, key in refs
    }


def checked_weights(
    weights: Mapping[str, float], factors: Mapping[str, Ref]
) -> dict[Ref, float]:
    """Return the weights keyed by factor. Raise `UsageError` for an unknown factor, for two weights of one factor, and
    for a weight out of range."""
    first_names: dict[Ref, str] = {}
    for name, weight in weights.items():
        if name not in factors:
            raise UsageError(
                f"there is a weight for {name}, but no rubric has a factor {name}{did_you_mean(name, factors)}"
            )
        first = first_names.setdefault(factors[name], name)
        if first != name:
            raise UsageError(
                f"{first} and {name} are the same factor: give it one weight",
                code="two_weights",
            )
        if not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
            raise UsageError(
                f"the weight of {name} is {weight:g}: expected a number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}",
                code="bad_weight",
            )
    return {factors[name]: weight for name, weight in weights.items()}


def read_score(
    score: str,
    rubrics: Sequence[Rubric],
    weights: Mapping[Ref, float] | None = None,
    set_scores: Mapping[str, SetScore] = MappingProxyType({}),
) -> Reduction:
    """Return the reduction of a score, which is a named formula with or without weights, a factor, a score of a rubric
    set, or an expression. Raise `UsageError` if it cannot be a reward."""
    if score in EXPRESSIONS:
        return _named(score, rubrics, weights or {})
    if weights:
        raise UsageError(
            f"score {score!r:.120}: weights cannot be combined with an expression, which names its factors: leave them out",
            code="weights_with_expression",
        )
    ref = names(rubrics).get(score)
    if ref and _is_closed(scales(rubrics)[ref]):
        return Reduction(score, share(ref, scales(rubrics)[ref]))
    try:
        terms = {name: set_score.term for name, set_score in set_scores.items()}
        term = parse(score, [member(rubric) for rubric in rubrics], terms, "score")
    except RubricError as error:
        formulas = ", ".join(FORMULAS)
        raise UsageError(
            f"{error}. Named formulas: {formulas}", code="invalid_formula"
        ) from None
    if term.ends is None or term.ends[0] == term.ends[1]:
        raise UsageError(
            f"score {score!r:.120}: it has no lowest or highest value, so that it cannot be mapped to 0..1",
            code="unbounded_score",
        )
    if columns := sorted(SetScore(score, score, term).columns):
        raise UsageError(
            f"score {score!r:.120}: a request has no column {columns[0]}: use only names of factors",
            code="column_in_formula",
        )
    low, high = term.ends
    if score in set_scores and set_scores[score].direction == "down":
        return Reduction(score, term, high, low)
    if low >= 0 and high <= 1:
        return Reduction(score, term)
    return Reduction(score, term, low, high)


def _named(
    formula: str, rubrics: Sequence[Rubric], weights: Mapping[Ref, float]
) -> Reduction:
    called = labels(rubrics)
    weighted = (f"{called[ref]} x {weight:g}" for ref, weight in weights.items())
    counted = ", ".join(weighted) or "the factors that were scored"
    text = f"{formula} of (score - worst) / (best - worst) over {counted}"
    term = (
        _weighted(formula, rubrics, weights) if weights else _over_all(formula, rubrics)
    )
    return Reduction(text, term, extrapolates=formula == "mean")


def _over_all(formula: str, rubrics: Sequence[Rubric]) -> Term:
    """Return the formula over all factors with a closed scale, ignoring the others."""
    members = [
        Member(
            rubric.name,
            {f.key: f.scale for f in rubric.factors if _is_closed(f.scale)},
        )
        for rubric in rubrics
    ]
    if not any(rubric.factors for rubric in members):
        return _number(math.nan)
    return parse(EXPRESSIONS[formula], members)


def _weighted(
    formula: str, rubrics: Sequence[Rubric], weights: Mapping[Ref, float]
) -> Term:
    """Return the formula over the factors with a weight, all of which must be scored."""
    by_ref = scales(rubrics)
    if not all(_is_closed(by_ref[ref]) for ref in weights):
        return _number(math.nan)
    shares = [share(ref, by_ref[ref]) for ref in weights]
    total = sum(weights.values())
    numbers = list(weights.values())
    if formula == "min":
        return Term("min", tuple(shares))
    if formula == "mean":
        pairs = zip(map(_number, numbers), shares, strict=True)
        parts = tuple(Term("*", pair) for pair in pairs)
        return Term("/", (Term("sum", parts), _number(total)))
    if formula == "geometric_mean":
        numbers = [weight / total for weight in numbers]
    powers = zip(shares, map(_number, numbers), strict=True)
    return Term("product", tuple(Term("power", pair) for pair in powers))


def _is_closed(scale: Scale) -> bool:
    """Whether scores can be mapped to 0..1, which requires two ends. PSNR, for example, has no upper end."""
    return scale.share(0) is not None


def _number(value: float) -> Term:
    return Term("number", value=value)
