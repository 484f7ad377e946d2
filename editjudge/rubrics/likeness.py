"""Variants: a rubric that is `like` an earlier one has its keys, except those that it names itself."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from editjudge.errors import RubricError, did_you_mean, one_line

LIKE = "like"


def variant(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a rubric with changes. Mappings are merged key by key, null removes a key, and everything else
    replaces it.
    """
    merged: dict[str, Any] = copy.deepcopy(dict(base))
    for key, value in changes.items():
        old = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(old, Mapping):
            merged[key] = variant(old, value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def with_likes(entries: Iterable[Any], source: str) -> tuple[Any, ...]:
    """Return the rubrics of a file with the keys of those that they are like. Raise `RubricError` if one is like none of
    those before it.
    """
    full: dict[str, Any] = {}
    result = []
    for entry in entries:
        content = entry
        if isinstance(entry, Mapping) and LIKE in entry:
            changes = dict(entry)
            name = changes.pop(LIKE)
            if name not in full or "name" not in changes:
                hint = did_you_mean(str(name), full)
                raise RubricError(
                    f"{source}: like: {one_line(str(name))}{hint} Expected the name of a rubric before it in the file, "
                    f"and a `name` of its own; there are {', '.join(full) or 'none'}",
                    code="like_unknown",
                )
            content = variant(full[name], changes)
        if isinstance(content, Mapping) and isinstance(content.get("name"), str):
            full[content["name"]] = content
        result.append(content)
    return tuple(result)
