"""Records of a store as its users see them: runs and their edits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

State = Literal["running", "finished", "interrupted", "budget"]
"""`interrupted`: by the user. `budget`: the money ran out. Both resume."""

PENDING = "pending"
"""The status of a task that no judgement is kept of."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    id: int
    name: str
    spec: Mapping[str, Any]
    spec_hash: str
    state: State
    created: float
    updated: float
    summary: Mapping[str, Any] | None
    version: str
    """Version of the program that created it."""
    imported_from: str | None = None
    """Folder that the images of an imported run may be in."""


class Item(NamedTuple):
    """An edit as a run keeps it: its words, and where its pictures were."""

    item: str
    model: str | None = None
    edit_type: str | None = None
    group: str | None = None
    instruction: str = ""
    referring_expression: str = ""
    images: Mapping[str, Mapping[str, str | None]] = {}
    """Role to `source` and `digest`."""
    metadata: Mapping[str, Any] = {}


Refutation: TypeAlias = tuple[str, str, str]
"""Factor, what the verdict says, what was measured."""


@dataclass(frozen=True, slots=True)
class CheckedVerdict:
    """A verdict that was compared with measured evidence of the same images."""

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
    """Checked and contradicted verdicts of one judge, rubric, editing model and factor."""

    judge: str
    rubric: str
    model: str
    factor: str
    checked: int
    contradicted: int
