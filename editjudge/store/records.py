"""What a store holds, as its users see it: runs and their edits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

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
    """Of the program that created it."""
    imported_from: str | None = None
    """Of a run that others made, the folder that its pictures may lie in."""


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
