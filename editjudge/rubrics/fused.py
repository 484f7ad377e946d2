"""Several rubrics as one question: one envelope, all their factors, held to the same contract."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from editjudge.errors import RubricError
from editjudge.rubrics.model import Rubric

T = TypeVar("T")


def fuse(name: str, rubrics: Sequence[Rubric]) -> Rubric:
    """One rubric that asks what all of them ask; they must want the same form of answer."""
    first, *others = rubrics
    if not others:
        return replace(first, name=name)
    factors = tuple(factor for rubric in rubrics for factor in rubric.factors)
    for other in others:
        alone = (first.template, other.template, first.consistency, other.consistency)
        forms = [(rubric.answer, rubric.system, rubric.reason) for rubric in (first, other)]
        if forms[0] != forms[1] or any(alone):
            raise RubricError(
                f'"{first.name}" and "{other.name}" want answers of different form, so they cannot share one question'
            )
    if twice := [key for key, count in Counter(factor.key for factor in factors).items() if count > 1]:
        raise RubricError(f'"{name}" would score {", ".join(twice)} twice in one answer')
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
