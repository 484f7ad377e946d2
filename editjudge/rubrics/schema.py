"""The answer of a rubric as JSON Schema, and as the shape that a question shows."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any, Literal

from editjudge.rubrics.model import Factor, Rubric


@dataclass(frozen=True)
class AnswerLeaf:
    """What stands at the end of a path of a nested answer."""

    kind: Literal["score", "reason", "text", "id", "other"]
    factor: Factor | None = None
    json_type: str = "string"
    """Of what is not scored: JSON's kind of value."""


@functools.lru_cache(maxsize=64)
def answer_tree(rubric: Rubric) -> dict[str, Any]:
    """A nested answer: keys to objects, and at the ends leaves."""
    answer = rubric.answer
    ends = [(answer.id_key, AnswerLeaf("id"))] if answer.id_key else []
    texts = [(text, AnswerLeaf("text")) for text in answer.texts]
    ends += texts if rubric.reason == "before" else []
    for factor in rubric.factors:
        reason = [(factor.reason_path, AnswerLeaf("reason", factor))] if factor.reason_path else []
        score = [(factor.path or factor.key, AnswerLeaf("score", factor))]
        ends += reason + score if rubric.reason == "before" else score + reason
    ends += texts if rubric.reason == "after" else []
    for path, _, json_type in (other.partition(": ") for other in answer.others):
        ends.append((path, AnswerLeaf("other", json_type=json_type)))
    tree: dict[str, Any] = {}
    for path, leaf in ends:
        *parents, last = path.split(".")
        inner = tree
        for key in parents:
            inner = inner.setdefault(key, {})
        inner[last] = leaf
    return tree


def _tree_schema(rubric: Rubric, tree: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for key, part in tree.items():
        if isinstance(part, dict):
            properties[key] = _tree_schema(rubric, part)
        elif part.kind == "score":
            properties[key] = part.factor.scale.json_schema()
        elif part.kind == "other":
            properties[key] = {"type": part.json_type}
        else:
            described = {} if part.kind == "id" else {"description": reason_words(rubric)}
            properties[key] = {"type": "string"} | described
    return _object(properties)


def _tree_shape(rubric: Rubric, tree: dict[str, Any], identifier: str | None) -> list[list[str]]:
    members: list[list[str]] = []
    for key, part in tree.items():
        if isinstance(part, dict):
            members.append([f"{_quoted(key)}: {{", *_joined(_tree_shape(rubric, part, identifier)), "}"])
        elif part.kind == "score":
            members.append([f"{_quoted(key)}: <{part.factor.scale.words}>"])
        elif part.kind == "other":
            members.append([f"{_quoted(key)}: <{part.json_type}>"])
        else:
            words = identifier if part.kind == "id" else f"<{reason_words(rubric)}>"
            members.append([f'{_quoted(key)}: "{words}"'])
    return members


@functools.lru_cache(maxsize=64)
def answer_schema(rubric: Rubric) -> dict[str, Any]:
    """In the subset that strict structured-output modes take: all properties required, no others allowed.

    Servers fill in properties in order: reasons stand before scores, or after them where the rubric says so.
    """
    answer = rubric.answer
    if not answer.is_json:
        raise ValueError(f"{rubric.name}: an answer of the form {answer.form} is no JSON")
    if answer.form == "nested":
        return _tree_schema(rubric, answer_tree(rubric))
    factors = {factor.key: _factor_schema(rubric, factor) for factor in rubric.factors}
    texts = {key: {"type": "string", "description": reason_words(rubric)} for key in answer.texts}
    scores: dict[str, Any] = factors
    if answer.form == "list":
        scores = {answer.envelope: {"type": "array", "items": _item_schema(rubric)}}
    elif answer.envelope:
        scores = {answer.envelope: _object(factors)}
    identity = {answer.id_key: {"type": "string"}} if answer.id_key else {}
    return _object(identity | (scores | texts if rubric.reason == "after" else texts | scores))


def answer_shape(rubric: Rubric, identifier: str | None) -> str:
    """What a question shows of the answer: keys and labels to the letter, values described."""
    answer = rubric.answer
    if answer.form == "nested":
        return "\n".join(["{", *_joined(_tree_shape(rubric, answer_tree(rubric), identifier)), "}"])
    if answer.form == "lines":
        return _lines_shape(rubric)
    if answer.form in ("token", "marked"):
        return f"<{plain_words(rubric.factors[0])}>"
    lines = ["{"]
    members: list[list[str]] = []
    if answer.id_key:
        members.append([f'{_quoted(answer.id_key)}: "{identifier}"'])
    texts = [[f'{_quoted(key)}: "<{reason_words(rubric)}>"'] for key in answer.texts]
    members += texts if rubric.reason == "before" else []
    inner = [_factor_shape(rubric, factor) for factor in rubric.factors]
    if answer.form == "list":
        scores = ", ".join(f"<{factor.key}: {factor.scale.words}>" for factor in rubric.factors)
        members.append([f"{_quoted(answer.envelope)}: [{scores}]"])
    elif answer.envelope:
        members.append([f"{_quoted(answer.envelope)}: {{", *_joined(inner), "}"])
    else:
        members += inner
    members += texts if rubric.reason == "after" else []
    return "\n".join([*lines, *_joined(members), "}"])


def _lines_shape(rubric: Rubric) -> str:
    texts = [f"{text}: <{reason_words(rubric)}>" for text in rubric.answer.texts]
    scores = [f"{factor.label or factor.key}: <{plain_words(factor)}>" for factor in rubric.factors]
    headings = [f"{factor.heading}:\n" if factor.heading else "" for factor in rubric.factors]
    scores = [heading + score for heading, score in zip(headings, scores, strict=True)]
    return "\n".join(scores + texts if rubric.reason == "after" else texts + scores)


def reason_words(rubric: Rubric) -> str:
    """What a reason must be, in words."""
    answer = rubric.answer
    if answer.words:
        return f"{answer.words[0]} to {answer.words[1]} words of visible evidence"
    return answer.reason or "the reason for the score"


def plain_words(factor: Factor) -> str:
    """A scale in words, where answers have no quotation marks."""
    return factor.scale.words.replace('"', "")


def _item_schema(rubric: Rubric) -> dict[str, Any]:
    """Of every score of a list: a schema cannot say which factor an item is of, so it allows what any of them does."""
    schemas = [factor.scale.json_schema() for factor in rubric.factors]
    if any("anyOf" in schema for schema in schemas):
        return {"anyOf": [schema for factor in rubric.factors for schema in _options(factor)]}
    if any("enum" not in schema for schema in schemas):
        return {"type": "number"}
    options = list(dict.fromkeys(value for schema in schemas for value in schema["enum"]))
    kinds = {schema["type"] for schema in schemas}
    return {
        "type": kinds.pop() if len(kinds) == 1 else "number",
        "enum": options if rubric.chooses else sorted(options),
    }


def _options(factor: Factor) -> list[dict[str, Any]]:
    schema = factor.scale.json_schema()
    return list(schema.get("anyOf", [schema]))


def _factor_schema(rubric: Rubric, factor: Factor) -> dict[str, Any]:
    answer = rubric.answer
    if answer.form != "entries":
        return factor.scale.json_schema()
    reason = {answer.reason_key: {"type": "string", "description": reason_words(rubric)}} if answer.reason_key else {}
    score = {answer.score_key: factor.scale.json_schema()}
    return _object(score | reason if rubric.reason == "after" else reason | score)


def _factor_shape(rubric: Rubric, factor: Factor) -> list[str]:
    answer = rubric.answer
    score = f"<{factor.scale.words}>"
    if answer.form != "entries":
        return [f"{_quoted(factor.key)}: {score}"]
    entry = [[f'{_quoted(answer.reason_key)}: "<{reason_words(rubric)}>"']] if answer.reason_key else []
    entry.insert(len(entry) if rubric.reason == "before" else 0, [f"{_quoted(answer.score_key)}: {score}"])
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
