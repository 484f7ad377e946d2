"""The offer of a reward server: its rubrics, the scores that requests may use as reward, and the judges for each
rubric."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from editjudge.edit import IMAGE_ROLES, TEXT_ROLES
from editjudge.errors import UsageError, did_you_mean
from editjudge.judgement import PIXEL_JUDGES
from editjudge.judges.registry import check_answers
from editjudge.rewards import reduction
from editjudge.rewards.protocol import RewardRequest, Terms
from editjudge.rewards.reduction import EXPRESSIONS, INSTRUCTION, Reduction
from editjudge.rewards.requests import Refused
from editjudge.rubrics.expression import Ref
from editjudge.rubrics.files import SETS, load_set, resolve
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.sets import Formula, check_unconditional

T = TypeVar("T")

_ABOUT_LOOKS = frozenset({"preservation", "quality"})
"""Built-in rubrics that an output fully meets if it equals its input."""


@dataclass(frozen=True)
class JudgePanel:
    """The judges for a request. Either several judges each judge every rubric, or each rubric has one judge."""

    weights: Mapping[str, float]
    """Weights of judges that each judge every rubric. The reward is the weighted mean of their rewards."""
    by_rubric: Mapping[str, str] = field(default_factory=dict)
    """Judges for single rubrics, keyed by rubric. The first judge in `weights` judges the other rubrics."""

    def questions(self, rubrics: Sequence[Rubric]) -> dict[str, list[Rubric]]:
        """Return the rubrics that each judge is asked about."""
        if not self.by_rubric:
            return {spec: list(rubrics) for spec in self.weights}
        by_judge: dict[str, list[Rubric]] = {}
        for rubric in rubrics:
            by_judge.setdefault(self.judge_of(rubric.name), []).append(rubric)
        return by_judge

    def judge_of(self, rubric: str) -> str:
        """Return the judge for a rubric that has one judge."""
        return self.by_rubric.get(rubric) or next(iter(self.weights))

    def members(self, by_judge: Mapping[str, T]) -> dict[str, list[T]]:
        """Return the judges' values, grouped by the reward to which they contribute. Judges of single rubrics
        contribute to one common reward; otherwise each judge has its own."""
        if self.by_rubric:
            return {"": list(by_judge.values())}
        return {spec: [value] for spec, value in by_judge.items()}

    def shares(self, members: Iterable[str]) -> list[float]:
        """Return the weights of these members, scaled to a sum of 1."""
        weights = [self.weights.get(spec, 1.0) for spec in members]
        total = math.fsum(weights)
        return [weight / total for weight in weights]


@dataclass(frozen=True)
class Offer:
    """Rubrics, scores and judges that requests may name, and the defaults."""

    terms: Terms
    rubrics: Sequence[Rubric]
    """All rubrics that a request may name."""
    sets: Mapping[str, Sequence[str]]
    """Rubrics for each name that the operator passed. Requests name the rubric in a file by the rubric's own name."""
    set_scores: Mapping[str, Formula]
    names: Mapping[str, Ref]
    """Factors keyed by name."""

    @classmethod
    def of(cls, terms: Terms) -> Offer:
        """Return the offer that results from these terms. Raise `UsageError` if they contradict each other."""
        passed = list(dict.fromkeys((*terms.rubrics, *terms.more_rubrics)))
        rubrics = resolve(passed)
        sets = {name: [rubric.name for rubric in resolve([name])] for name in passed}
        rubric_sets = filter(None, map(load_set, passed))
        set_scores = {f.name: f for s in rubric_sets for f in s.formulas}
        offer = cls(terms, rubrics, sets, set_scores, reduction.names(rubrics))
        offer._check_judges()
        return offer

    def _check_judges(self) -> None:
        terms = self.terms
        if terms.mixture and terms.judge_for:
            raise UsageError(
                "-J mix asks every judge about every rubric, and --judge-for one judge about each: give one of them",
                code="judges_and_judge_for",
            )
        for name in terms.judge_for:
            if name not in self.askable():
                raise UsageError(
                    f'--judge-for: no rubric of the server is called "{name}"{did_you_mean(name, self.askable())} '
                    f"It has {', '.join(self.askable())}",
                    code="unknown_rubric",
                )
        check_answers(list(terms.mixture), self.rubrics)
        for spec, rubrics in self.panel().questions(self.rubrics).items():
            check_answers([spec], rubrics)

    def check_rubrics(self) -> None:
        """Raise `UsageError` for a rubric that a server cannot ask about."""
        check_unconditional(
            self.rubrics, "a server asks every rubric once about every edit"
        )
        carried = {*IMAGE_ROLES, *TEXT_ROLES, "references"}
        for rubric in self.rubrics:
            for name in (*rubric.images, *rubric.texts):
                if name not in carried:
                    raise UsageError(
                        f"{rubric.name}: shows {name}, which a request cannot carry: use `editjudge run`",
                        code="input_not_sent",
                    )

    def askable(self) -> list[str]:
        """Return the names of rubrics and sets that a request may use."""
        sets = [name for name in self.sets if name in SETS]
        return list(dict.fromkeys([*sets, *(rubric.name for rubric in self.rubrics)]))

    # --- judges -----------------------------------------------------------------------------------------------

    def judges(self) -> list[str]:
        """Return the default judges."""
        terms = self.terms
        specs = (terms.judge, *terms.mixture, *terms.judge_for.values())
        return list(dict.fromkeys(specs))

    def panel(
        self, judge: str | None = None, judge_for: Mapping[str, str] | None = None
    ) -> JudgePanel:
        """Return the panel of judges for a request. Judges that the request names replace the default judges. A
        request's `judge` judges every rubric for which the request names no other judge."""
        defaults = {} if judge else self.terms.judge_for
        by_rubric = {
            rubric: spec
            for name, spec in {**defaults, **(judge_for or {})}.items()
            for rubric in self.sets.get(name, [name])
        }
        return JudgePanel({judge or self.terms.judge: 1.0}, by_rubric)

    def panel_of(self, options: RewardRequest) -> JudgePanel:
        """Return the judges for a request. Raise `Refused` if it has both a mixture and judges for single rubrics."""
        if options.judges:
            if options.judge_for:
                what = "judges is a mixture that is asked about every rubric: send only one of judges and judge_for"
                raise Refused.at("judge_for", what)
            return JudgePanel(options.judges)
        if self.terms.mixture and not (options.judge or options.judge_for):
            return JudgePanel(self.terms.mixture)
        return self.panel(options.judge, options.judge_for)

    def default_questions(self) -> dict[str, list[Rubric]]:
        """Return the rubrics that the default reward asks each judge about."""
        _, rubrics = self.read_score(self.terms.formula, self.terms.weights)
        panel = JudgePanel(self.terms.mixture) if self.terms.mixture else self.panel()
        return panel.questions(rubrics)

    # --- scores -----------------------------------------------------------------------------------------------

    def score_of(self, options: RewardRequest) -> tuple[Reduction, list[Rubric]]:
        """Return a request's reduction and the rubrics that it needs. Raise `Refused` if the score cannot be computed."""
        terms = self.terms
        score = options.score or options.formula
        weights = options.weights
        if score is None:
            # The server's default score applies only to its default rubrics.
            other = options.rubrics or options.weights
            is_named = terms.formula in EXPRESSIONS
            score = terms.formula if is_named or not other else "mean"
        if weights is None and score in EXPRESSIONS and not options.rubrics:
            weights = dict(terms.weights)
        try:
            if options.score and options.formula:
                raise UsageError(
                    "score and formula mean the same: send only one of them"
                )
            return self.read_score(score, weights or {}, options.rubrics or ())
        except UsageError as error:
            where = "weights" if options.weights else "score"
            raise Refused.at(where, str(error)) from None

    def read_score(
        self,
        score: str,
        weights: Mapping[str, float],
        names_of_rubrics: Sequence[str] = (),
    ) -> tuple[Reduction, list[Rubric]]:
        """Return the reduction for a score, and its rubrics: the named rubrics, and the rubrics of the factors in the
        score."""
        factor = [score] if score in self.names else []
        by_factor = reduction.checked_weights(weights, self.names)
        rubrics = self.rubrics_of(names_of_rubrics, [*weights, *factor])
        reduced = reduction.read_score(score, rubrics, by_factor, self.set_scores)
        if score not in EXPRESSIONS:
            wanted = reduced.rubrics
            if names_of_rubrics:
                wanted |= {rubric.name for rubric in rubrics}
            rubrics = [rubric for rubric in self.rubrics if rubric.name in wanted]
        return reduced, rubrics

    def rubrics_of(
        self, rubrics: Sequence[str], factors: Sequence[str] = ()
    ) -> list[Rubric]:
        """Return the named rubrics and the rubrics of the named factors, in the server's order. If nothing is named,
        return the default rubrics."""
        wanted = {self.names[name][0] for name in factors}
        for name in rubrics or (() if wanted else self.terms.rubrics):
            wanted.update(self.sets.get(name, [name]))
        return [rubric for rubric in self.rubrics if rubric.name in wanted]

    # --- limits of the default reward -------------------------------------------------------------------------

    def blind_judge(self) -> str | None:
        """Return the judge that is asked whether the instruction was followed but compares only pixels, or None if
        there is none. With such a judge, edits have no default reward."""
        reduced, rubrics = self.read_score(self.terms.formula, self.terms.weights)
        if INSTRUCTION not in reduced.rubrics:
            return None
        panel = JudgePanel(self.terms.mixture) if self.terms.mixture else self.panel()
        by_judge = panel.questions(rubrics)
        asked_about = (
            spec
            for spec, questions in by_judge.items()
            if spec in PIXEL_JUDGES
            and any(rubric.name == INSTRUCTION for rubric in questions)
        )
        return next(asked_about, None)

    def ignores_instruction(self) -> bool:
        """Whether the default score is only about preservation and quality. If so, an edit that does less than the
        instruction asks may have a higher reward."""
        reduced, _ = self.read_score(self.terms.formula, self.terms.weights)
        return bool(reduced.rubrics) and reduced.rubrics <= _ABOUT_LOOKS
