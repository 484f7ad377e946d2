"""One thing to judge: the pictures before and after, and what was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

ImageSource: TypeAlias = Path | bytes | str
"""A file, the encoded picture itself, or an http(s) address."""

IMAGE_ROLES = ("input", "edited", "ground_truth", "mask")
"""The pictures an edit can carry, by the names that manifests and rubrics use."""

TEXT_ROLES = ("instruction", "referring_expression")
"""The words an edit can carry, by the same names."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit: its pictures, its words, and whose it is."""

    id: str
    input: ImageSource | None = None
    edited: ImageSource | None = None
    """None: the model produced nothing."""
    instruction: str = ""
    ground_truth: ImageSource | None = None
    mask: ImageSource | None = None
    """White where the edit belongs."""
    referring_expression: str = ""
    """Which object is meant, where the instruction alone does not say."""
    model: str | None = None
    edit_type: str | None = None
    group: str | None = None
    """The source image that several edits share; statistics are clustered on it."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
