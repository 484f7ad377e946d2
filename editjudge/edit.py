"""One thing to judge: the pictures before and after, and what was asked for.

The usual names (`input`, `edited`, `instruction` ...) are fields. A rubric may name any further column of a manifest as
a picture, a list of pictures or a text: the pictures are in `pictures`, the texts in `metadata`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

ImageSource: TypeAlias = Path | bytes | str
"""A file, the encoded picture itself, or an http(s) address."""

IMAGE_ROLES = ("input", "edited", "ground_truth", "mask")
"""The pictures an edit usually carries, by the names that manifests and rubrics use."""

TEXT_ROLES = ("instruction", "referring_expression")
"""The words an edit usually carries, by the same names."""

OUTPUT_ROLES = ("edited", "edited_a", "edited_b")
"""Pictures that an editing model made: where one is missing, the model produced nothing."""

PAIR_ROLES = ("edited_a", "edited_b")
"""The two outputs of a pair."""

MAX_PICTURES = 16
"""Pictures of one list: more than any published protocol shows, and few enough to fit into one request."""

_NAMED = frozenset((*TEXT_ROLES, "model", "edit_type", "group"))
"""The fields that hold words."""
_NUMBERED = re.compile(r"\[\d+\]$")


def column_of(name: str) -> str:
    """The manifest's column that a picture is of: `references` for `references[2]` and for `references@box`."""
    return _NUMBERED.sub("", name.partition("@")[0])


def named_pictures(given: Mapping[str, ImageSource | list[ImageSource]]) -> dict[str, ImageSource]:
    """Pictures and lists of pictures by the names that an edit has them by."""
    pictures: dict[str, ImageSource] = {}
    for name, sources in given.items():
        if isinstance(sources, list):
            pictures |= {f"{name}[{number}]": source for number, source in enumerate(sources, 1)}
        else:
            pictures[name] = sources
    return pictures


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
    pictures: Mapping[str, ImageSource] = field(default_factory=dict)
    """Further pictures that a rubric names, those of a list as `references[1]`, `references[2]` ..."""

    def picture(self, name: str) -> ImageSource | None:
        """The picture of this name, whole where the name is that of a part; None where there is none."""
        name = name.partition("@")[0]
        source: ImageSource | None = getattr(self, name) if name in IMAGE_ROLES else self.pictures.get(name)
        return source

    def picture_names(self, role: str) -> tuple[str, ...]:
        """The names of the pictures that a rubric calls `role`: itself, or one for each picture of a list."""
        role, mark, part = role.partition("@")
        if role in IMAGE_ROLES or role in self.pictures:
            return (f"{role}{mark}{part}",)
        names = [name for name in self.pictures if name != role and column_of(name) == role] or [role]
        return tuple(f"{name}{mark}{part}" for name in names)

    def all_pictures(self) -> dict[str, ImageSource]:
        """Every picture that there is, by name."""
        usual = zip(IMAGE_ROLES, (self.input, self.edited, self.ground_truth, self.mask), strict=True)
        return {**{role: source for role, source in usual if source is not None}, **self.pictures}

    def value(self, name: str) -> Any:
        """What a column holds; inside an object by dots, as `scene.light`. None where there is nothing."""
        first, *rest = name.split(".")
        value = getattr(self, first) if first in _NAMED else self.metadata.get(first)
        for part in rest:
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def with_outputs_swapped(self) -> Edit:
        """The same pair with b in the place of a."""
        a, b = PAIR_ROLES
        others = {name: source for name, source in self.pictures.items() if name not in PAIR_ROLES}
        turned = {a: self.pictures.get(b), b: self.pictures.get(a)}
        return replace(self, pictures=others | {name: source for name, source in turned.items() if source is not None})

    def text(self, name: str) -> str:
        """The text of this name; empty where there is none."""
        value = self.value(name)
        return str(value) if isinstance(value, str | int | float) else ""

    def listed(self, name: str) -> list[Any] | None:
        """The list that a column holds, in CSV as JSON; None where it holds none."""
        value = self.value(name)
        if isinstance(value, str):
            with suppress(ValueError, RecursionError):
                value = json.loads(value)
        return value if isinstance(value, list) else None

    def has(self, name: str) -> bool:
        """Whether there is a picture or a value of this name; an empty text or list is none."""
        if any(self.picture(one) is not None for one in self.picture_names(name)):
            return True
        return self.value(name) not in (None, "", [], {})
