"""A rubric set: a YAML file with several rubrics, the conditions under which they are asked, and formulas for scores.

Pass its path instead of a rubric's name::

    name: two_questions
    rubrics:
      - use: fidelity
        when: edit_type in [add, remove]
      - name: naturalness
        images: [edited]
        scale: {range: [0, 10]}
        factors: [{key: natural, definition: Whether the picture could be a photograph.}]
        answer: {form: scores}
        samples: 3
    score:
      overall: sqrt(min(fidelity.*) * naturalness)
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NotRequired, TypedDict, TypeVar

from editjudge.canonical import Json, json_hash
from editjudge.edit import Edit
from editjudge.errors import ManifestError, RubricError, UsageError, did_you_mean
from editjudge.rubrics.evaluation import applies
from editjudge.rubrics.expression import (
    EVERY,
    FUNCTIONS,
    Member,
    Ref,
    Term,
    condition_columns,
    parse,
)
from editjudge.rubrics.model import ASKING, Rubric
from editjudge.rubrics.scale import FileContent, refuse
from editjudge.values import column, place_among, word_of

T = TypeVar("T")
ScoreText = str | Mapping[str, str]
"""A formula, or a formula and its settings."""


class SetSpec(TypedDict):
    """The form in which a run stores a set."""

    hash: str
    rubrics: list[Json]
    """Name of each rubric, and the conditions under which its question is asked."""
    score: dict[str, ScoreText]
    run: NotRequired[dict[str, Json]]


@dataclass(frozen=True)
class RunScore(FileContent):
    """A score of a whole run: the mean of a score for each value of a column, and the weighted mean of these."""

    score: str
    """Name of the set's score, or of a factor."""
    by: str
    """Column of the manifest, such as a dimension."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weight of each value of the column; by default all are equal."""

    def __post_init__(self) -> None:
        refuse(
            (
                not all(0 < weight < math.inf for weight in self.weights.values()),
                "bad_weight",
                "weights: expected numbers above 0, one for each value of the column",
                "weights",
            ),
            (
                not re.fullmatch(r"[^\W\d][\w.-]*", self.by),
                "bad_column",
                f"by {self.by!r:.80}: expected a column of the manifest",
                "by",
            ),
        )


@dataclass(frozen=True)
class Label:
    """A value of an edit with which a formula compares an answer. It must be one of the choices."""

    rubric: str
    field: str
    """Column of the manifest, or field of a list element."""
    choices: tuple[str, ...]
    of_element: bool


@dataclass(frozen=True)
class Formula:
    """A named score that a rubric set defines by a formula over its factors."""

    name: str
    text: str
    term: Term
    repeats: Literal["after", "before"] = "after"
    """Order of formula and mean over repeats and samples. `before`: take the mean of each factor, then apply the
    formula. `after`: apply the formula to each repeat and sample, then take the mean.
    """
    direction: Literal["up", "down"] = "up"
    description: str = ""

    @property
    def refs(self) -> frozenset[Ref]:
        return frozenset(ref for term in self.term.walk() for ref in term.refs)

    @property
    def columns(self) -> frozenset[str]:
        """Manifest columns that the formula refers to."""
        ops = ("column", "by", "in", "given")
        return frozenset(str(t.value) for t in self.term.walk() if t.op in ops)

    @property
    def element_fields(self) -> frozenset[Ref]:
        """Fields of list elements that the formula refers to, each with the name of its `for_each` rubric."""
        labels = (label for label in self.labels if label.of_element)
        return frozenset((label.rubric, label.field) for label in labels)

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels with which the formula compares answers."""
        labels = []
        for term in self.term.walk():
            if term.op in ("==", "!="):
                answer, other = term.parts
                labels += [
                    Label(rubric, str(other.value), answer.choices, other.op == "each")
                    for rubric, _ in answer.refs
                    if other.op in ("each", "column")
                ]
        return tuple(dict.fromkeys(labels))

    @property
    def words(self) -> str:
        """The formula as shown below a table, such as `overall = sqrt(min SC x min PQ)`."""
        mean = ", of the means over repeats" if self.repeats == "before" else ""
        return f"{self.name} = {self.term}{mean}"


_SCORE_KEYS = {
    "formula": None,
    "repeats": ("after", "before"),
    "direction": ("up", "down"),
    "description": None,
}
"""Keys of a score that is written as a mapping, each with its legal values."""


class ScoreError(RubricError):
    """Raised when a score of a rubric set cannot be computed."""

    def __init__(self, name: str, message: str, code: str) -> None:
        super().__init__(message, code=code)
        self.name = name


class MemberError(RubricError):
    """Raised when a rubric of a set does not fit the others."""

    def __init__(self, rubric: str, key: str, message: str, code: str) -> None:
        super().__init__(message, code=code)
        self.rubric = rubric
        self.key = key


def formulas(
    scores: Mapping[str, ScoreText], members: Sequence[Member]
) -> list[Formula]:
    """Return a set's scores as formulas over factors and earlier scores. Raise `ScoreError` if one is invalid."""
    parsed: dict[str, Formula] = {}
    for name, entry in scores.items():
        terms = {earlier: formula.term for earlier, formula in parsed.items()}
        try:
            parsed[name] = _formula(name, entry, members, terms)
        except RubricError as error:
            raise ScoreError(name, str(error), error.code) from None
    return list(parsed.values())


def _formula(
    name: str, entry: ScoreText, members: Sequence[Member], before: Mapping[str, Term]
) -> Formula:
    where = f"score {name}"
    content: Json = {"formula": entry} if isinstance(entry, str) else dict(entry)
    if "formula" not in content or content.keys() - _SCORE_KEYS:
        raise RubricError(
            f"{where}: expected a formula, or keys of {', '.join(_SCORE_KEYS)} with `formula`",
            code="not_a_formula",
        )
    for key, value in content.items():
        legal = _SCORE_KEYS[key]
        if legal and value not in legal:
            raise RubricError(
                f"{where}: {key} is `{'` or `'.join(legal)}`", code="bad_setting"
            )
    if not re.fullmatch(r"[^\W\d]\w*", name) or name in (*FUNCTIONS, EVERY):
        raise RubricError(
            f'score "{name}": expected letters, digits and _, beginning with a letter, and not the name of a function',
            code="bad_name",
        )
    if any(name in member.factors for member in members):
        raise RubricError(
            f'score "{name}": a factor has that name; rename the score',
            code="name_of_a_factor",
        )
    text = str(content.pop("formula"))
    formula = Formula(name, text, parse(text, members, before, where), **content)
    has_words = any(term.choices for term in formula.term.walk())
    if formula.repeats == "before" and has_words:
        raise RubricError(
            f"{where}: words have no mean; expected `repeats: after`",
            code="words_without_mean",
        )
    return formula


@dataclass(frozen=True)
class RubricSet:
    """Rubrics that are used together, and the scores that are computed from their factors."""

    name: str
    rubrics: tuple[Rubric, ...]
    score: Mapping[str, ScoreText] = field(default_factory=dict)
    """Formulas, keyed by the name of the score. A value may also be a mapping with `formula` and other fields of
    `Formula`.
    """
    description: str = ""
    run: Mapping[str, RunScore] = field(default_factory=dict)
    """Scores of a whole run, keyed by name."""

    def __post_init__(self) -> None:
        if not self.rubrics:
            raise RubricError(
                f"{self.name}: a set needs at least one rubric", code="empty_set"
            )
        names: list[str] = []
        for rubric in self.rubrics:
            if rubric.name in names:
                raise RubricError(
                    f'{self.name}: two rubrics are called "{rubric.name}": give one of them another name',
                    code="two_of_one_name",
                )
            self._check_earlier(rubric, names)
            names.append(rubric.name)
        _ = self.formulas
        factors = [factor.key for rubric in self.rubrics for factor in rubric.factors]
        known = [*self.score, *factors]
        for name, run_score in self.run.items():
            if run_score.score not in known:
                hint = did_you_mean(run_score.score, known)
                raise ScoreError(
                    name,
                    f'run {name}: no score is called "{run_score.score}"{hint}',
                    "unknown_score",
                )

    def _check_earlier(self, rubric: Rubric, before: Sequence[str]) -> None:
        """Raise `MemberError` if a rubric uses a later rubric, or a value that the answers of another do not have."""
        rubrics = {each.name: each for each in self.rubrics}
        for key, used in _uses(rubric).items():
            for name in used:
                stage, _, value = name.partition(".")
                if (stage in rubrics or key == "after") and stage not in before:
                    raise MemberError(
                        rubric.name,
                        key,
                        f'{self.name}: {rubric.name} is asked after "{stage}", which must come before',
                        "after_a_later_rubric",
                    )
                if stage in before and value and value not in rubrics[stage].values:
                    values = rubrics[stage].values
                    raise MemberError(
                        rubric.name,
                        key,
                        f'{self.name}: {rubric.name}: {key}: answers of {stage} have no "{value}"'
                        f"{did_you_mean(value, values)} They have {', '.join(values)}",
                        "unknown_value",
                    )

    @functools.cached_property
    def formulas(self) -> list[Formula]:
        """The set's scores, as formulas. Raises `RubricError` if one is invalid."""
        return formulas(self.score, [member(rubric) for rubric in self.rubrics])

    @functools.cached_property
    def hash(self) -> str:
        """Hash of everything that can change a question, the conditions under which it is asked, or a score."""
        rubrics = [
            {"name": rubric.name, "hash": rubric.hash} | asking(rubric)
            for rubric in self.rubrics
        ]
        content: list[object] = [
            rubrics,
            {name: _plain(score) for name, score in self.score.items()},
        ]
        content += [self._run_content()] if self.run else []
        return json_hash(content, "compact")

    @functools.cached_property
    def labels(self) -> tuple[Label, ...]:
        """The labels with which the set's scores compare answers."""
        return tuple(
            dict.fromkeys(
                label for formula in self.formulas for label in formula.labels
            )
        )

    def check_labels(self, edit: Edit) -> None:
        """Raise `ManifestError` if a score would compare an answer with a label of this edit that is not one of the
        choices.
        """
        rubrics = {rubric.name: rubric for rubric in self.rubrics}
        for label in self.labels:
            rubric = rubrics[label.rubric]
            if not applies(rubric.when, edit):
                continue
            source = label.field
            values = [edit.value(label.field)]
            if label.of_element:
                source = f"{rubric.for_each}[].{label.field}"
                elements = edit.listed(rubric.for_each) or []
                fields = (element for element in elements if isinstance(element, dict))
                values = [column(element, label.field) for element in fields]
            for value in values:
                if word_of(value) != "" and place_among(value, label.choices) is None:
                    text = json.dumps(value, ensure_ascii=False, default=str)
                    raise ManifestError(
                        f'edit "{edit.id}": found {text:.80} in {source}, which answers of {rubric.name} are compared '
                        f"with; expected one of its choices: {', '.join(label.choices)}"
                    )

    def contract(self) -> Json:
        """Return the contract of each rubric and the names of the scores."""
        return {
            "name": self.name,
            "hash": self.hash,
            "members": [rubric.contract() | asking(rubric) for rubric in self.rubrics],
            "scores": list(self.score),
        }

    def _run_content(self) -> dict[str, Json]:
        return {name: dataclasses.asdict(each) for name, each in self.run.items()}

    def spec(self) -> SetSpec:
        """Return the set in the form in which a run stores it."""
        spec: SetSpec = {
            "hash": self.hash,
            "rubrics": [
                {"name": rubric.name} | asking(rubric) for rubric in self.rubrics
            ],
            "score": {name: _plain(score) for name, score in self.score.items()},
        }
        if self.run:
            spec["run"] = self._run_content()
        return spec


def member(rubric: Rubric) -> Member:
    """Return a rubric with its factors, for use in formulas."""
    return Member(
        rubric.name,
        {factor.key: factor.scale for factor in rubric.factors},
        bool(rubric.for_each),
    )


def asking(rubric: Rubric) -> Json:
    """Return the settings that decide when a rubric's question is asked, such as `when` and `samples`, except those
    with default values.
    """
    defaults = Rubric.__dataclass_fields__
    return {
        name: value
        for name in ASKING
        if (value := getattr(rubric, name)) != defaults[name].default
    }


def check_unconditional(
    rubrics: Sequence[Rubric], who: str, allowed: Sequence[str] = ()
) -> None:
    """Raise `UsageError` if a rubric has conditions other than the allowed ones."""
    for rubric in rubrics:
        if conditions := [name for name in asking(rubric) if name not in allowed]:
            raise UsageError(
                f"{rubric.name}: has `{conditions[0]}`, and {who}: use `editjudge run` on one machine",
                code="asked_by_a_run_alone",
            )


def _uses(rubric: Rubric) -> dict[str, list[str]]:
    """Return the names by which a rubric may refer to earlier ones, keyed by the field that has them: `look`, or
    `look.found`.
    """
    in_condition = [str(term.value) for term in condition_columns(rubric.when)]
    return {
        "after": list(rubric.told),
        "when": [name for name in in_condition if "." in name],
        "texts": [name for name in rubric.texts if "." in name],
    }


def earlier_rubrics(rubric: Rubric, names: Collection[str]) -> tuple[str, ...]:
    """Return the rubrics among `names` whose answers a rubric uses: they are told to it (`after`), or a condition or a
    text refers to them.
    """
    used = itertools.chain(*_uses(rubric).values())
    stages_used = (name.partition(".")[0] for name in used)
    return tuple(
        dict.fromkeys(n for n in stages_used if n in names and n != rubric.name)
    )


def is_conditional(rubric: Rubric, names: Collection[str]) -> bool:
    """Whether earlier answers decide if a rubric's question is asked."""
    return any(name.partition(".")[0] in names for name in _uses(rubric)["when"])


def stages(rubrics: Sequence[Rubric]) -> list[list[Rubric]]:
    """Group rubrics into stages. A rubric comes in a later stage than the rubrics whose answers it uses."""
    by_stage: list[list[Rubric]] = [[]]
    names = {rubric.name for rubric in rubrics}
    numbers: dict[str, int] = {}
    for rubric in rubrics:
        if missing := [name for name in rubric.told if name not in names]:
            raise RubricError(
                f'{rubric.name} is asked after "{missing[0]}", which is not asked: run the whole set'
            )
        earlier = earlier_rubrics(rubric, names)
        number = max((numbers[name] + 1 for name in earlier), default=0)
        numbers[rubric.name] = number
        by_stage += [[]] if number == len(by_stage) else []
        by_stage[number].append(rubric)
    return by_stage


def fuse(name: str, rubrics: Sequence[Rubric]) -> Rubric:
    """Return one rubric that asks the questions of several rubrics with the same answer format."""
    first, *others = rubrics
    if not others:
        return replace(first, name=name)
    for other in others:
        forms = {(r.answer, r.system, r.reason) for r in (first, other)}
        if len(forms) > 1 or any(r.template or r.consistency for r in (first, other)):
            raise RubricError(
                f'"{first.name}" and "{other.name}" have different forms of answer, so they cannot share one question',
                code="different_forms",
            )
    factors = tuple(factor for rubric in rubrics for factor in rubric.factors)
    counts = Counter(factor.key for factor in factors)
    if twice := [key for key, count in counts.items() if count > 1]:
        raise RubricError(
            f'"{name}" would score {", ".join(twice)} twice in one answer',
            code="scored_twice",
        )
    return Rubric(
        name=name,
        images=_union(rubric.images for rubric in rubrics),
        texts=_union(rubric.texts for rubric in rubrics),
        factors=factors,
        answer=first.answer,
        description="; ".join(rubric.description for rubric in rubrics),
        steps=_union(rubric.steps for rubric in rubrics),
        constraints=_union(rubric.constraints for rubric in rubrics),
        members=tuple(rubrics),
        system=first.system,
        reason=first.reason,
    )


def _union(groups: Iterable[Iterable[T]]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(item for group in groups for item in group))


def _plain(score: ScoreText) -> ScoreText:
    return score if isinstance(score, str) else dict(score)
