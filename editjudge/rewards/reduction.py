"""One number from the scores of an edit: by a formula that has a name, or by an expression."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from editjudge.errors import RubricError, UsageError, near_miss
from editjudge.judgement import DONE, Judgement
from editjudge.rubrics.evaluation import value_for_edit
from editjudge.rubrics.expression import Ref, Term, parse, share
from editjudge.rubrics.model import Factor, Rubric
from editjudge.rubrics.sets import member

Formula = Literal["mean", "min", "product", "geometric_mean"]
FORMULAS: tuple[Formula, ...] = get_args(Formula)
LEAST_WEIGHT = 1e-3
MOST_WEIGHT = 1e3


@dataclass(frozen=True)
class Reduction:
    """The way from scores to a reward. Each score is first brought to 0..1 by the range of its own scale."""

    formula: Formula = "mean"
    weights: Mapping[str, float] = field(default_factory=dict)
    """Factor (or `rubric.factor`) to weight. Those named must all be scored; where none is, whatever was scored counts
    alike."""
    expression: str = ""
    term: Term | None = None
    """The expression, read; it takes the place of formula and weights."""
    labels: Mapping[Ref, str] = field(default_factory=dict)
    """Names that the factors of the expression have among the scores."""

    def __post_init__(self) -> None:
        for name, weight in self.weights.items():
            if not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
                raise UsageError(
                    f"the weight of {name} is {weight:g}: expected a number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}"
                )

    @classmethod
    def read(
        cls,
        score: str,
        rubrics: Sequence[Rubric],
        set_scores: Mapping[str, Term] | None = None,
    ) -> Reduction:
        """Return what a request's `score` asks for: a formula by its name, a score of a set, or an expression."""
        if score in FORMULAS:
            return cls(score)
        try:
            members = [member(rubric) for rubric in rubrics]
            term = parse(score, members, set_scores, "score")
        except RubricError as error:
            raise UsageError(str(error)) from None
        if term.ends is None or term.ends[0] == term.ends[1]:
            raise UsageError(
                f"score {score!r:.120}: its lowest and highest value are not known, so that it cannot be brought to 0..1"
            )
        return cls(expression=score, term=term, labels=labels(rubrics))

    def of(self, scores: Mapping[str, tuple[Factor, float]]) -> float | None:
        """Return the reward of these scores; None if a factor that is named has no score, or none has.

        A scale with an open end, as of PSNR, has no range to bring its scores to 0..1: they count for nothing."""
        if self.term:
            return self._value(self.term, scores)
        factors = {
            name: factor
            for name, (factor, _) in scores.items()
            if factor.scale.share(0) is not None
        }
        names = self.weights or factors
        if not factors or any(name not in factors for name in names):
            return None
        shares = [share(("", name), factors[name].scale) for name in names]
        values = {("", name): score for name, (_, score) in scores.items()}
        return value_for_edit(self._term(shares, list(self.weights.values())), values)

    def _value(
        self, term: Term, scores: Mapping[str, tuple[Factor, float]]
    ) -> float | None:
        """Return the value of the expression, brought to 0..1 by its lowest and highest value if it can leave that."""
        low, high = term.ends or (0.0, 1.0)
        values = {
            ref: scores[label][1]
            for ref, label in self.labels.items()
            if label in scores
        }
        value = value_for_edit(term, values)
        if value is None or (low >= 0 and high <= 1):
            return value
        return (value - low) / (high - low)

    def _term(self, shares: Sequence[Term], weights: Sequence[float]) -> Term:
        """Return the formula over factors that are brought to 0..1."""
        numbers = weights or [1.0] * len(shares)
        total = sum(numbers)
        pairs = list(zip(shares, numbers, strict=True))
        match self.formula:
            case "mean":
                parts = [Term("*", (_number(weight), part)) for part, weight in pairs]
                return Term("/", (Term("sum", tuple(parts)), _number(total)))
            case "min":
                return Term("min", tuple(shares))
            case "product":
                exponents = numbers
            case "geometric_mean":
                exponents = [weight / total for weight in numbers]
        powers = zip(shares, map(_number, exponents), strict=True)
        return Term("product", tuple(Term("power", pair) for pair in powers))

    def words(self) -> str:
        """Return the formula as it is named in every answer."""
        if self.term:
            return self.expression
        factors = ", ".join(
            f"{name} x {weight:g}" for name, weight in self.weights.items()
        )
        return f"{self.formula} of (score - worst) / (best - worst) over {factors or 'the factors that were scored'}"


def _number(value: float) -> Term:
    return Term("number", value=value)


def names(rubrics: Sequence[Rubric]) -> dict[str, tuple[Rubric, Factor]]:
    """Every name that a factor of these rubrics goes by: its key, and `rubric.key`; a key that two share is that of
    the first."""
    by_name: dict[str, tuple[Rubric, Factor]] = {}
    for rubric in rubrics:
        for factor in rubric.factors:
            by_name.setdefault(factor.key, (rubric, factor))
            by_name[f"{rubric.name}.{factor.key}"] = (rubric, factor)
    return by_name


def check_weights(
    weights: Mapping[str, float], known: Mapping[str, tuple[Rubric, Factor]]
) -> None:
    """Raise `UsageError` for a weight of a factor that no rubric has, and for two weights of one factor."""
    first_names: dict[tuple[str, str], str] = {}
    for name in weights:
        if name not in known:
            raise UsageError(
                f"a weight for {name}: no rubric has a factor {name}{near_miss(name, known)}"
            )
        rubric, factor = known[name]
        first = first_names.setdefault((rubric.name, factor.key), name)
        if first != name:
            raise UsageError(
                f"{first} and {name} are the same factor: give it one weight"
            )


def labelled(
    weights: Mapping[str, float],
    known: Mapping[str, tuple[Rubric, Factor]],
    called: Mapping[tuple[str, str], str],
) -> dict[str, float]:
    """Return the weights by what the factors are called in an answer."""
    check_weights(weights, known)
    return {
        called[known[name][0].name, known[name][1].key]: weight
        for name, weight in weights.items()
    }


def labels(rubrics: Sequence[Rubric]) -> dict[tuple[str, str], str]:
    """Rubric and factor to what the factor is called in an answer: its key, unless two rubrics share that."""
    count = Counter(factor.key for rubric in rubrics for factor in rubric.factors)
    return {
        (rubric.name, factor.key): factor.key
        if count[factor.key] == 1
        else f"{rubric.name}.{factor.key}"
        for rubric in rubrics
        for factor in rubric.factors
    }


def failure(judgements: Iterable[Judgement | None]) -> str | None:
    """Why there can be no reward, if there cannot: the first status that is no answer; `pending` where none came."""
    statuses = (
        judgement.status if judgement else "pending" for judgement in judgements
    )
    return next((status for status in statuses if status not in DONE), None)
