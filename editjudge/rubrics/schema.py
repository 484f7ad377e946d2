"""The answer of a rubric as JSON Schema, and as the shape that a question shows."""

from __future__ import annotations

import functools
import json
from typing import Any

from editjudge.rubrics.model import Factor, Rubric


@functools.lru_cache(maxsize=64)
def answer_schema(rubric: Rubric) -> dict[str, Any]:
    """In the subset that strict structured-output modes take: all properties required, no others allowed.

    Reasons stand before scores, since servers fill in properties in order, and a score that follows its reason
    is the better one.
    """
    answer = rubric.answer
    factors = {factor.key: _factor_schema(rubric, factor) for factor in rubric.factors}
    properties: dict[str, Any] = {}
    if answer.id_key:
        properties[answer.id_key] = {"type": "string"}
    for key in answer.texts:
        properties[key] = {"type": "string", "description": reason_words(rubric)}
    if answer.form == "list":
        properties[answer.envelope] = {"type": "array", "items": _item_schema(rubric)}
    elif answer.envelope:
        properties[answer.envelope] = _object(factors)
    else:
        properties |= factors
    return _object(properties)


def answer_shape(rubric: Rubric, identifier: str | None) -> str:
    """The JSON that a question shows: keys to the letter, values described."""
    answer = rubric.answer
    lines = ["{"]
    members: list[list[str]] = []
    if answer.id_key:
        members.append([f'{_quoted(answer.id_key)}: "{identifier}"'])
    members += [[f'{_quoted(key)}: "<{reason_words(rubric)}>"'] for key in answer.texts]
    inner = [_factor_shape(rubric, factor) for factor in rubric.factors]
    if answer.form == "list":
        scores = ", ".join(f"<{factor.key}: {factor.scale.words}>" for factor in rubric.factors)
        members.append([f"{_quoted(answer.envelope)}: [{scores}]"])
    elif answer.envelope:
        members.append([f"{_quoted(answer.envelope)}: {{", *_joined(inner), "}"])
    else:
        members += inner
    return "\n".join([*lines, *_joined(members), "}"])


def reason_words(rubric: Rubric) -> str:
    """What a reason must be, in words."""
    answer = rubric.answer
    if answer.words:
        return f"{answer.words[0]} to {answer.words[1]} words of visible evidence"
    return answer.reason or "the reason for the score"


def _item_schema(rubric: Rubric) -> dict[str, Any]:
    """Of every score of a list: a schema cannot say which factor an item is of, so it allows what any of them does."""
    schemas = [factor.scale.json_schema() for factor in rubric.factors]
    if any("enum" not in schema for schema in schemas):
        return {"type": "number"}
    options = list(dict.fromkeys(value for schema in schemas for value in schema["enum"]))
    kinds = {schema["type"] for schema in schemas}
    return {
        "type": kinds.pop() if len(kinds) == 1 else "number",
        "enum": options if rubric.chooses else sorted(options),
    }


def _factor_schema(rubric: Rubric, factor: Factor) -> dict[str, Any]:
    answer = rubric.answer
    if answer.form != "entries":
        return factor.scale.json_schema()
    properties: dict[str, Any] = {}
    if answer.reason_key:
        properties[answer.reason_key] = {"type": "string", "description": reason_words(rubric)}
    properties[answer.score_key] = factor.scale.json_schema()
    return _object(properties)


def _factor_shape(rubric: Rubric, factor: Factor) -> list[str]:
    answer = rubric.answer
    score = f"<{factor.scale.words}>"
    if answer.form != "entries":
        return [f"{_quoted(factor.key)}: {score}"]
    entry = [[f'{_quoted(answer.reason_key)}: "<{reason_words(rubric)}>"']] if answer.reason_key else []
    entry.append([f"{_quoted(answer.score_key)}: {score}"])
    return [f"{_quoted(factor.key)}: {{", *_joined(entry), "}"]


def _quoted(key: str) -> str:
    return json.dumps(key, ensure_ascii=False)


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _joined(members: list[list[str]]) -> list[str]:
    """Members of an object, indented, with commas between them."""
    lines = []
    for index, member in enumerate(members):
        comma = "," if index < len(members) - 1 else ""
        lines += [f"  {line}" for line in member[:-1]] + [f"  {member[-1]}{comma}"]
    return lines
