"""The answer that a rubric asks for, as a tree of its keys.

The JSON Schema, the shape that a question shows, and the answers that programs fill in are all derived from this tree.
The contract (`editjudge.rubrics.contract`) walks the same tree.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, assert_never

from editjudge.canonical import Json
from editjudge.rubrics.model import (
    AnswerFormat,
    Factor,
    Rubric,
    is_index,
    path_keys,
)

_ORDER = ("id", "text", "object", "list", "score", "reason", "other")
"""Order in which the faults of an answer are reported, given as kinds of nodes."""


@dataclass(frozen=True)
class AnswerNode:
    """A node of an answer: an object, a list, or a value."""

    kind: Literal["object", "list", "score", "reason", "text", "id", "other"]
    factor: Factor | None = None
    """Factor of a score or a reason, or of the object that contains both."""
    json_type: str = "string"
    """Kind of a value that is not scored: a JSON type, or one with [] for a list of such values."""
    members: Mapping[str, AnswerNode] = field(default_factory=dict)
    """Members of an object, keyed by name, in the order of the answer."""
    in_order: tuple[tuple[str, AnswerNode], ...] = ()
    """The same members in the order in which failures are reported."""
    items: tuple[AnswerNode, ...] = ()
    """Items of a list: the scores of an answer that is a list, or any nodes of a nested answer."""

    @functools.cached_property
    def factors(self) -> dict[str, str]:
        """Map each member's key to its factor key, for members that are factors. Empty if this object belongs to one
        factor.
        """
        return {
            key: part.factor.key
            for key, part in self.members.items()
            if part.factor and not self.factor and part.kind in ("object", "score")
        }

    def keys(self) -> Iterator[str]:
        """Yield every key at any level."""
        for key, part in self.members.items():
            yield key
            yield from part.keys()
        for item in self.items:
            yield from item.keys()


@functools.lru_cache(maxsize=64)
def answer_tree(rubric: Rubric) -> AnswerNode:
    """Return the tree of a JSON answer. Reasons come before scores, unless the rubric says otherwise."""
    answer = rubric.answer
    scores: list[tuple[tuple[str, ...], AnswerNode]] = []
    for factor in rubric.factors:
        score, reason = _factor_paths(factor, answer)
        pair = [
            (reason, AnswerNode("reason", factor)),
            (score, AnswerNode("score", factor)),
        ]
        scores += pair[::-1] if rubric.reason == "after" else pair
    if answer.form == "list":
        items = tuple(part for _, part in scores if part.kind == "score")
        scores = [((answer.envelope,), AnswerNode("list", items=items))]
    texts = [(_split(text, answer), AnswerNode("text")) for text in answer.texts]
    parts = scores + texts if rubric.reason == "after" else texts + scores
    others = (other.partition(": ") for other in answer.others)
    parts += [
        (_split(path, answer), AnswerNode("other", json_type=json_type))
        for path, _, json_type in others
    ]
    tree: dict[str, Any] = {answer.id_key: AnswerNode("id")} if answer.id_key else {}
    for path, part in parts:
        inner = tree
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        if path:
            inner[path[-1]] = part
    return _object(tree, answer)


def _object(tree: Mapping[str, Any], answer: AnswerFormat) -> AnswerNode:
    members: dict[str, AnswerNode] = {
        key: _object(part, answer) if isinstance(part, dict) else part
        for key, part in tree.items()
    }
    if answer.form == "nested" and members and all(map(is_index, members)):
        return AnswerNode(
            "list", items=tuple(members[f"[{i}]"] for i in range(len(members)))
        )
    entry = None
    in_order = list(members.items())
    if answer.form == "entries":
        values = [part for part in members.values() if part.kind != "object"]
        entry = next((part.factor for part in values if part.factor), None)
    if answer.form != "nested":
        in_order.sort(key=lambda member: _ORDER.index(member[1].kind))
    in_answer = {key: members[key] for key in _sorted_keys(members, answer)}
    return AnswerNode("object", entry, members=in_answer, in_order=tuple(in_order))


def _sorted_keys(keys: Iterable[str], answer: AnswerFormat) -> list[str]:
    """Return the keys in the order of the prompt, if the rubric stores that order. Keys that it does not list come
    last.
    """
    positions = {key: position for position, key in enumerate(answer.keys)}
    return sorted(keys, key=lambda key: positions.get(key, len(positions)))


def _factor_paths(
    factor: Factor, answer: AnswerFormat
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the paths of a factor's score and of its reason. A path is empty if the rubric does not ask for that
    value.
    """
    entry = (answer.envelope, factor.key) if answer.envelope else (factor.key,)
    match answer.form:
        case "nested":
            score = _split(factor.path or factor.key, answer)
            return score, _split(factor.reason_path, answer)
        case "entries":
            reason = (*entry, answer.reason_key) if answer.reason_key else ()
            return (*entry, answer.score_key), reason
        case "scores" | "list" | "lines" | "token" | "marked" | "text":
            return entry, ()
        case _:
            assert_never(answer.form)


def _split(path: str, answer: AnswerFormat) -> tuple[str, ...]:
    if not path:
        return ()
    return path_keys(path) if answer.form == "nested" else (path,)


@functools.lru_cache(maxsize=64)
def answer_keys(rubric: Rubric) -> tuple[str, ...]:
    """Return all keys of an answer, at any level. An object in a reply that has one of these keys may be the answer."""
    keys = [*answer_tree(rubric).keys()]
    if rubric.answer.form != "nested":
        keys += [factor.key for factor in rubric.factors]
    return tuple(dict.fromkeys(keys))


# --- as JSON Schema -------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def answer_schema(rubric: Rubric) -> Json:
    """Return the JSON Schema of an answer in the subset that strict modes accept: every property is required, and no
    others are allowed.

    Servers fill in the properties in the order of the schema.
    """
    if not rubric.answer.is_json:
        raise ValueError(
            f"{rubric.name}: an answer of the form {rubric.answer.form} is not JSON"
        )
    return _schema(rubric, answer_tree(rubric))


def _schema(rubric: Rubric, part: AnswerNode) -> Json:
    match part.kind:
        case "object":
            properties = {
                key: _schema(rubric, inner) for key, inner in part.members.items()
            }
            required = {"required": list(properties), "additionalProperties": False}
            return {"type": "object", "properties": properties} | required
        case "list":
            items = _item_schema(rubric)
            if rubric.answer.form == "nested":
                schemas = [_schema(rubric, item) for item in part.items]
                unique = [s for n, s in enumerate(schemas) if s not in schemas[:n]]
                items = unique[0] if len(unique) == 1 else {"anyOf": unique}
            return {"type": "array", "items": items}
        case "score" if part.factor:
            return _score_schema(rubric, part.factor)
        case "reason" | "text":
            return {"type": "string", "description": reason_words(rubric)}
    if part.json_type.endswith("[]"):
        items = {"type": part.json_type.removesuffix("[]")}
        return {"type": "array", "items": items}
    return {"type": "array" if part.json_type == "list" else part.json_type}


def _score_schema(rubric: Rubric, factor: Factor) -> Json:
    """Return the schema of a score. A number in quotation marks is a string; its scale is in the description."""
    scale = factor.scale
    if not rubric.answer.quoted or scale.choices or scale.boolean:
        return dict(scale.json_schema())
    if not scale.steps:
        return {"type": "string", "description": scale.words}
    return {"type": "string", "enum": [*map(str, scale.steps), *scale.abstain]}


def _item_schema(rubric: Rubric) -> Json:
    """Return the schema of a list item. It allows the scores of all factors, since a schema cannot distinguish
    items.
    """
    schemas = [_score_schema(rubric, factor) for factor in rubric.factors]
    options: list[object] = []
    if any("anyOf" in schema for schema in schemas):
        for schema in schemas:
            options += schema.get("anyOf", [schema])
        return {"anyOf": options}
    if any("enum" not in schema for schema in schemas):
        return {"type": "string" if rubric.answer.quoted else "number"}
    for schema in schemas:
        options += schema["enum"]
    options = list(dict.fromkeys(options))
    kinds = {schema["type"] for schema in schemas}
    kind = kinds.pop() if len(kinds) == 1 else "number"
    in_order = rubric.chooses or rubric.answer.quoted
    return {"type": kind, "enum": options if in_order else sorted(options)}


# --- in words -------------------------------------------------------------------------------------------------


def answer_shape(rubric: Rubric, identifier: str | None) -> str:
    """Return the answer's shape as shown in the question: exact keys and labels, with descriptions in place of values."""
    if rubric.answer.form == "lines":
        values = {factor.key: f"<{plain_words(factor)}>" for factor in rubric.factors}
        return _as_lines(rubric, values, f"<{reason_words(rubric)}>")
    if rubric.answer.form == "text":
        return f"<{reason_words(rubric)}>"
    if not rubric.answer.is_json:
        return f"<{plain_words(rubric.factors[0])}>"
    return "\n".join(_shape(rubric, answer_tree(rubric), identifier))


def _shape(rubric: Rubric, part: AnswerNode, identifier: str | None) -> list[str]:
    match part.kind:
        case "object":
            lines = ["{"]
            for key, inner in part.members.items():
                first, *rest = _shape(rubric, inner, identifier)
                first = f"{json.dumps(key, ensure_ascii=False)}: {first}"
                lines += [f"  {line}" for line in (first, *rest)]
                lines[-1] += ","
            return [*lines[:-1], lines[-1].removesuffix(","), "}"]
        case "list" if rubric.answer.form == "nested":
            items = (_shape(rubric, item, identifier) for item in part.items)
            return [
                f"[{', '.join(' '.join(map(str.strip, lines)) for lines in items)}]"
            ]
        case "list":
            factors = [leaf.factor for leaf in part.items if leaf.factor]
            scores = (f"<{factor.key}: {factor.scale.words}>" for factor in factors)
            return [f"[{', '.join(scores)}]"]
        case "score" if part.factor:
            mark = '"' if rubric.answer.quoted and not rubric.chooses else ""
            return [f"{mark}<{part.factor.scale.words}>{mark}"]
        case "other":
            return [f"<{_kind_words(part.json_type)}>"]
        case "id":
            return [f'"{identifier}"']
    return [f'"<{reason_words(rubric)}>"']


def _kind_words(kind: str) -> str:
    return f"list of {kind.removesuffix('[]')}s" if kind.endswith("[]") else kind


def _as_lines(rubric: Rubric, values: Mapping[str, str], reason: str) -> str:
    texts = {text: f"{text}: {reason}" for text in rubric.answer.texts}
    scores = {}
    for factor in rubric.factors:
        heading = f"{factor.heading}:\n" if factor.heading else ""
        line = f"{factor.label or factor.key}: {values[factor.key]}"
        scores[rubric.label(factor)] = f"{heading}{line}"
    lines = scores | texts if rubric.reason == "after" else texts | scores
    return "\n".join(lines[label] for label in _sorted_keys(lines, rubric.answer))


def reason_words(rubric: Rubric) -> str:
    """Return the phrase by which the question describes a reason."""
    if limits := rubric.answer.words:
        return f"{limits[0]} to {limits[1]} words of visible evidence"
    default = "the reason for the score" if rubric.factors else "your text"
    return rubric.answer.reason or default


def plain_words(factor: Factor) -> str:
    """Return the description of a factor's scale, without quotation marks."""
    return factor.scale.words.replace('"', "")


# --- filled in ------------------------------------------------------------------------------------------------


def envelope(
    rubric: Rubric,
    identifier: str,
    scores: Mapping[str, float],
    justifications: Mapping[str, str],
    why_not: Mapping[str, str],
) -> Json:
    """Return a verdict as the JSON that the rubric asks for. A factor without a score is null, and its reason says why
    there is no score.
    """
    reasons = {
        factor.key: justifications.get(factor.key) or why_not.get(factor.key, "")
        for factor in rubric.factors
    }

    def filled(part: AnswerNode) -> object:
        key = part.factor.key if part.factor else ""
        match part.kind:
            case "score" if rubric.answer.quoted and key in scores:
                return str(scores[key])
            case "object":
                return {name: filled(inner) for name, inner in part.members.items()}
            case "list":
                return [filled(item) for item in part.items]
            case "id":
                return identifier
            case "text":
                return " ".join(filter(None, dict.fromkeys(reasons.values())))
            case "score":
                return scores.get(key)
            case "reason":
                return reasons[key]
        return None  # other values are asked for, and not stored

    members = answer_tree(rubric).members
    return {name: filled(part) for name, part in members.items()}


def as_lines(
    rubric: Rubric,
    scores: Mapping[str, float],
    justifications: Mapping[str, str],
    why_not: Mapping[str, str],
) -> str:
    """Return a verdict as an answer that is not JSON. For a factor without a score, the reason for that is given in
    brackets.
    """
    values = {
        f.key: str(scores[f.key]) if f.key in scores else f"({why_not.get(f.key, '')})"
        for f in rubric.factors
    }
    if rubric.answer.form in ("token", "marked"):
        return values[rubric.factors[0].key]
    return _as_lines(rubric, values, " ".join(dict.fromkeys(justifications.values())))
