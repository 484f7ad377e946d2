"""Records in a store: runs, a run's questions, edits, and verdicts that were checked against evidence."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict

from pydantic import TypeAdapter

from editjudge.rubrics.model import Factor, Layout, Rubric
from editjudge.rubrics.sets import SetSpec

State = Literal["running", "finished", "interrupted", "budget"]
"""State of a run. `interrupted`: stopped by the user. `budget`: the budget is spent. Both can be resumed."""

PENDING = "pending"
"""Status of a task without a judgement."""


class UntilSpec(TypedDict):
    """Claims that end a run once they are decided."""

    claims: list[str]
    alpha: float
    margin: float | None
    seed: int


class RunSpec(TypedDict, total=False):
    """Settings of a run, in the form in which they are stored. Runs over HTTP have no manifest, and other programs may
    add fields.
    """

    manifest: str
    rubrics: dict[str, str]
    """Hashes of the rubrics, keyed by rubric name."""
    sets: dict[str, SetSpec]
    asked_for: list[str]
    """Rubrics and sets that the command named."""
    judges: list[str]
    repeats: int
    layout: Layout | None
    """None if each rubric has its own."""
    fuse: bool
    limit: int | None
    allow_outside: bool
    allow_urls: bool
    options: dict[str, object]
    order: Literal["both", "given"]
    models: list[str]
    columns: dict[str, str]
    primary: list[str]
    where: str | list[str]
    best_of: str
    step: float
    """Training step at which the edits were made."""
    step_from: str
    """Regular expression that reads the step from a model's name."""
    until: UntilSpec


@dataclass(frozen=True, slots=True)
class RunRecord:
    id: int
    name: str
    spec: RunSpec
    spec_hash: str
    state: State
    created: float
    updated: float
    summary: Mapping[str, Any] | None
    version: str
    """Version of editjudge that created the run."""
    imported_from: str | None = None
    """Folder in which the images of an imported run may be."""


@dataclass
class RunTotals:
    """Totals of a run, as shown in a list of runs: its edits, judgements and cost."""

    models: dict[str, int] = field(default_factory=dict)
    """Number of edits of each model. Edits without a model are counted under an empty name."""
    statuses: Counter[str] = field(default_factory=Counter)
    cost: float = 0.0
    unpriced: int = 0
    """Number of judgements whose cost is unknown."""

    @property
    def edits(self) -> int:
        return sum(self.models.values())

    def as_json(self) -> dict[str, object]:
        return {
            "edits": self.edits,
            "models": self.models,
            "statuses": dict(self.statuses),
            "cost_usd": None if self.unpriced else self.cost,
        }


@functools.lru_cache(maxsize=256)
def parse_rubric(text: str) -> Rubric:
    """Parse the stored JSON of a rubric. Results are cached, since pages request the same few rubrics repeatedly."""
    return TypeAdapter(Rubric).validate_json(text)


@dataclass(frozen=True)
class RunQuestions:
    """The rubrics of a run, keyed by their names in the run. Rubrics that are not in the store are left out."""

    rubrics: Mapping[str, Rubric]

    @functools.cached_property
    def factors(self) -> dict[str, tuple[str, ...]]:
        """Map each rubric's name to the keys of its factors."""
        return {
            name: tuple(factor.key for factor in rubric.factors)
            for name, rubric in self.rubrics.items()
        }

    @functools.cached_property
    def scored(self) -> dict[str, tuple[Factor, ...]]:
        """Factors with numeric scores, keyed by rubric. Choices are left out, since they have no mean."""
        return {
            name: () if rubric.chooses else rubric.factors
            for name, rubric in self.rubrics.items()
        }

    @functools.cached_property
    def pair_factors(self) -> dict[str, tuple[str, ...]]:
        """Factor keys of each rubric that compares two outputs."""
        return {
            name: self.factors[name]
            for name, rubric in self.rubrics.items()
            if rubric.pairwise
        }

    @functools.cached_property
    def computed(self) -> frozenset[str]:
        """Factors that a program computes. They are different kinds of quantities, so they have no common mean."""
        return frozenset(
            key
            for name, rubric in self.rubrics.items()
            if rubric.computed_by
            for key in self.factors[name]
        )


class Item(NamedTuple):
    """An edit in the form in which a run stores it: its texts, and the sources of its images."""

    item: str
    model: str | None = None
    edit_type: str | None = None
    group: str | None = None
    instruction: str = ""
    referring_expression: str = ""
    images: Mapping[str, Mapping[str, str | None]] = {}
    """`source` and `digest` of each image, keyed by role."""
    metadata: Mapping[str, object] = {}


Refutation: TypeAlias = tuple[str, str, str]
"""A factor, the verdict's claim about it, and the evidence against that claim."""


@dataclass(frozen=True, slots=True)
class CheckedVerdict:
    """A verdict that was checked against evidence measured on the same images."""

    item: str
    position: int
    """Position of the edit in its run."""
    judge: str
    rubric: str
    model: str
    key: str
    factors: Sequence[str]
    """Factors that could be checked."""
    refuted: Sequence[Refutation]


@dataclass(frozen=True, slots=True)
class Count:
    """Number of checked and contradicted verdicts for one judge, rubric, editing model and factor."""

    judge: str
    rubric: str
    model: str
    factor: str
    checked: int
    contradicted: int
