"""Reduction of an edit's scores to a reward from 0 to 1, using the request's score expression."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from editjudge.errors import RubricError, UsageError, did_you_mean
from editjudge.judgement import Judgement
from editjudge.rubrics.evaluation import (
    UNDEFINED,
    quantity_for_edit,
    value_for_edit,
)
from editjudge.rubrics.expression import Member, Ref, Term, parse, share
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.scale import Scale
from editjudge.rubrics.sets import Formula as SetScore
from editjudge.rubrics.sets import member
from editjudge.rubrics.verdict import Remark

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


INSTRUCTION = "fidelity"
"""Rubric that asks whether the instruction was followed."""
NOT_JUDGED = "instruction_not_judged"
"""Status of a reward whose score includes that rubric although none of the rubric's factors has a score."""
INSTRUCTION_NOT_JUDGED = Remark(
    NOT_JUDGED,
    "whether the instruction was followed was not judged, so that doing less would pay: ask a judge that understands "
    "images, or name the rubrics that the reward is about",
)
Use = Literal["scores", "expected"]
"""Scores that a reward uses: written scores, or expected scores if the judge gave them (from token probabilities, or
before rounding)."""


class Reduced(NamedTuple):
    """The reward that results from an edit's scores, or the reason why there is none."""

    reward: float | None
    status: str = "ok"
    reason: Remark | None = None
    """Reason why there is no reward. It is None if the judge abstained, since its reasons are in the judgement."""
    rubric: str = "-"
    """Rubric to which the reason applies."""


@dataclass(frozen=True)
class Reduction:
    """A formula that computes a reward from scores."""

    formula: str
    """Description of the formula, included in every response."""
    term: Term
    worst: float = 0.0
    """Value of the term at which the reward is 0."""
    best: float = 1.0
    extrapolates: bool = False
    """Whether the formula accepts scores beyond the ends of their scales, as a mean does."""

    @functools.cached_property
    def refs(self) -> frozenset[Ref]:
        """Factors in the formula."""
        return frozenset(ref for part in self.term.walk() for ref in part.refs)

    @property
    def rubrics(self) -> set[str]:
        """Rubrics in the formula, each of which must be judged."""
        return {rubric for rubric, _ in self.refs}

    def of(self, scores: Mapping[Ref, float]) -> float | None:
        """Return the value of the formula, or None if a required score is missing. It is from 0 to 1 unless the formula
        extrapolates."""
        value = value_for_edit(self.term, scores)
        if value is None:
            return None
        return (value - self.worst) / (self.best - self.worst)

    def reduced(self, scores: Mapping[Ref, float]) -> Reduced:
        """Return the reward for these scores. It is defined only if every rubric in the formula was judged."""
        missing = self.rubrics - {rubric for rubric, _ in self.refs & scores.keys()}
        if INSTRUCTION in missing:
            return Reduced(None, NOT_JUDGED, INSTRUCTION_NOT_JUDGED, INSTRUCTION)
        if missing:
            rubric = min(missing)
            message = f"no factor of {rubric} that the score names has a score"
            remark = Remark("rubric_not_judged", message)
            return Reduced(None, "abstained", remark, rubric)
        reward = self.of(scores)
        if reward is not None:
            # Rounding may leave the ends by a last digit.
            return Reduced(min(1.0, max(0.0, reward)))
        if quantity_for_edit(self.term, scores).code == UNDEFINED:
            message = f"the score {self.formula!r:.120} has no value for these scores, as in a root of less than 0"
            return Reduced(None, "undefined", Remark("undefined", message))
        return Reduced(None, "abstained")


def scores_of(judgements: Iterable[Judgement], use: Use = "scores") -> dict[Ref, float]:
    """Return all scores in these judgements, keyed by rubric and factor. With `expected`, a factor has its expected
    score, or its written score if the judge gives no expected scores."""
    scores: dict[Ref, float] = {}
    for judgement in judgements:
        written = judgement.scores or {}
        values = {**written, **judgement.expected} if use == "expected" else written
        for key, score in values.items():
            # A factor may abstain from its expected score alone, such as one of improbable tokens.
            if use == "scores" or key not in judgement.abstained:
                scores[judgement.rubric, key] = score
    return scores


def scales(rubrics: Sequence[Rubric]) -> dict[Ref, Scale]:
    """Return the scale of each factor."""
    return {
        (rubric.name, factor.key): factor.scale
        for rubric in rubrics
        for factor in rubric.factors
    }


def names(rubrics: Sequence[Rubric]) -> dict[str, Ref]:
    """Return the factors keyed by name (`key` and `rubric.key`). If several rubrics have a factor with the same key,
    the key refers to the first."""
    by_name: dict[str, Ref] = {}
    for rubric, key in scales(rubrics):
        by_name.setdefault(key, (rubric, key))
        by_name[f"{rubric}.{key}"] = rubric, key
    return by_name


def labels(rubrics: Sequence[Rubric]) -> dict[Ref, str]:
    """Return the name of each factor in a response. It is the factor's key, or `rubric.key` if several rubrics have the
    key."""
    refs = list(scales(rubrics))
    count = Counter(key for _, key in refs)
    return {
        (rubric, key): key if count[key] == 1 else f"{rubric}.{key}"
        for rubric, key in refs
    }


def checked_weights(
    weights: Mapping[str, float], factors: Mapping[str, Ref]
) -> dict[Ref, float]:
    """Return the weights keyed by factor. Raise `UsageError` if a factor is unknown or has two weights, or if a weight
    is out of range."""
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
    """Return the reduction for a score. The score is a named formula with or without weights, a factor, a score of a
    rubric set, or an expression. Raise `UsageError` if it cannot be a reward."""
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
        members = [member(rubric) for rubric in rubrics]
        term = parse(score, members, terms, "score", _rubric_means(rubrics))
    except RubricError as error:
        ended = "" if str(error).endswith((".", "?")) else "."
        raise UsageError(
            f"{error}{ended} Named formulas: {', '.join(FORMULAS)}",
            code="invalid_formula",
        ) from None
    if term.ends is None or not _is_width(term.ends[1] - term.ends[0]):
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


def _is_width(number: float) -> bool:
    return math.isfinite(number) and number > 0


def _rubric_means(rubrics: Sequence[Rubric]) -> dict[str, Term]:
    """Return the value that each rubric's name has in an expression. It is the mean over the rubric's scored factors,
    each as a share of its scale. Shares from 0 to 1 can be multiplied: if one rubric has the worst value, the product
    is 0."""
    return {
        rubric.name: _over_all("mean", [rubric])
        for rubric in rubrics
        if any(_is_closed(factor.scale) for factor in rubric.factors)
    }


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
    """Return the formula over the weighted factors. All of them must be scored."""
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
    """Whether scores can be mapped to 0..1, which requires a scale with two ends. PSNR, for example, has no upper end."""
    return scale.share(0) is not None


def _number(value: float) -> Term:
    return Term("number", value=value)
