"""The questions of a run: the rubrics that its judges were asked, as the store keeps them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter

from editjudge.rubrics.model import Factor, Rubric


@functools.lru_cache(maxsize=256)
def parse_rubric(text: str) -> Rubric:
    """Return the rubric of a stored JSON text; pages ask for the same few again and again."""
    return TypeAdapter(Rubric).validate_json(text)


@dataclass(frozen=True)
class RunQuestions:
    """The rubrics of a run, by the names that the run gives them. A rubric that the store lacks is left out."""

    rubrics: Mapping[str, Rubric]

    @functools.cached_property
    def factors(self) -> dict[str, tuple[str, ...]]:
        """Keys of all factors, by rubric."""
        return {
            name: tuple(factor.key for factor in rubric.factors)
            for name, rubric in self.rubrics.items()
        }

    @functools.cached_property
    def scored(self) -> dict[str, tuple[Factor, ...]]:
        """Factors that have numbers, by rubric: no mean is formed of choices."""
        return {
            name: () if rubric.chooses else rubric.factors
            for name, rubric in self.rubrics.items()
        }

    @functools.cached_property
    def pair_factors(self) -> dict[str, tuple[str, ...]]:
        """Keys of the factors of each rubric that compares two outputs."""
        return {
            name: self.factors[name]
            for name, rubric in self.rubrics.items()
            if rubric.pairwise
        }

    @functools.cached_property
    def computed(self) -> frozenset[str]:
        """Factors that a program computes: figures of different kinds, which add up to nothing."""
        return frozenset(
            key
            for name, rubric in self.rubrics.items()
            if rubric.computed_by
            for key in self.factors[name]
        )
