"""The question as it was sent, from the rubric that the store keeps."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Any, cast

from pydantic import TypeAdapter

from editjudge.edit import IMAGE_ROLES, Edit
from editjudge.rubrics.model import EACH, EARLIER, Rubric
from editjudge.rubrics.prompt import LAYOUTS, Layout, ask
from editjudge.store.records import Item, RunRecord


def rubric_of(content: Mapping[str, Any]) -> Rubric:
    """The rubric out of its stored content."""
    return _read(json.dumps(content, sort_keys=True))


@functools.lru_cache(maxsize=32)
def _read(text: str) -> Rubric:
    return TypeAdapter(Rubric).validate_json(text, strict=True)


def sent(rubric: Rubric, run: RunRecord, item: Item) -> str:
    """In words, pictures as [image: role]; of a rubric that is asked for each element of a list, the first one's."""
    edit = Edit(
        item.item,
        instruction=item.instruction,
        referring_expression=item.referring_expression,
        edit_type=item.edit_type,
        metadata=item.metadata,
        pictures={name: str(image["source"]) for name, image in item.images.items() if name not in IMAGE_ROLES},
    )
    elements = (edit.listed(rubric.for_each) if rubric.for_each else None) or ["(an element of the list)"]
    placeholders = {EACH: elements[0], EARLIER: "(what was answered before)"}
    edit = dataclasses.replace(edit, metadata={**edit.metadata, **placeholders})
    digests = {role: image["digest"] for role, image in item.images.items() if image.get("digest")}
    layout = run.spec.get("layout", LAYOUTS[0])
    return str(ask(rubric, edit, cast(dict[str, str], digests), cast(Layout, layout)))
