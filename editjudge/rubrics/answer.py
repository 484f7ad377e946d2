"""The answer that a rubric asks for: its keys as a tree, from which everything else about an answer derives.

That is the JSON Schema, the shape that a question shows, and an answer filled in by a
program. The contract (`editjudge.rubrics.contract`) walks the same tree.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from editjudge.rubrics.model import AnswerFormat, Factor, Rubric


@dataclass(frozen=True)
class AnswerLeaf:
    """A value at the end of a path of an answer."""

    kind: Literal["score", "reason", "text", "id", "other"]
    factor: Factor | None = None
    json_type: str = "string"
    """JSON's kind of value, for a leaf that is not scored."""


@dataclass(frozen=True)
class AnswerObject:
    """An object of an answer."""

    members: Mapping[str, Any]
    """Keys to objects, lists of scores (list) and leaves, in the order in which an answer has them."""
    in_order: tuple[tuple[str, Any], ...]
    """The members in the order in which failures are named: that of an answer only where it is nested."""
    entry: Factor | None
    """The factor whose entry this is."""
    factors: Mapping[str, str]
    """Members of an object that is not an entry: the keys that name a factor, and the factors."""


_Paths = list[tuple[tuple[str, ...], Any]]
_ORDER = ("id", "text", "score", "reason", "other")


@functools.lru_cache(maxsize=64)
def answer_tree(rubric: Rubric) -> AnswerObject:
    """An answer that is JSON. Reasons stand before scores, or after them where the rubric says so."""
    answer = rubric.answer
    after = rubric.reason == "after"
    paths: _Paths = [((answer.id_key,), AnswerLeaf("id"))] if answer.id_key else []
    texts: _Paths = [
        (_split(text, answer), AnswerLeaf("text")) for text in answer.texts
    ]
    scores: _Paths = []
    for factor in rubric.factors:
        score, reason = _factor_paths(factor, answer)
        pair = [
            (score, AnswerLeaf("score", factor)),
            (reason, AnswerLeaf("reason", factor)),
        ]
        scores += [
            (path, leaf) for path, leaf in (pair if after else reversed(pair)) if path
        ]
    if answer.form == "list":
        scores = [((answer.envelope,), [leaf for _, leaf in scores])]
    paths += scores + texts if after else texts + scores
    for path, _, json_type in (other.partition(": ") for other in answer.others):
        paths.append((_split(path, answer), AnswerLeaf("other", json_type=json_type)))
    tree: dict[str, Any] = {}
    for (*parents, last), leaf in paths:
        inner = tree
        for key in parents:
            inner = inner.setdefault(key, {})
        inner[last] = leaf
    return _answer_object(tree, answer)


def _answer_object(tree: Mapping[str, Any], answer: AnswerFormat) -> AnswerObject:
    form = answer.form
    members = {
        key: _answer_object(part, answer) if isinstance(part, dict) else part
        for key, part in tree.items()
    }
    leaves = {
        key: leaf for key, leaf in members.items() if isinstance(leaf, AnswerLeaf)
    }
    entry = (
        next((leaf.factor for leaf in leaves.values() if leaf.factor), None)
        if form == "entries"
        else None
    )
    owners = {
        key: part.entry
        for key, part in members.items()
        if isinstance(part, AnswerObject)
    }
    owners |= {key: leaf.factor for key, leaf in leaves.items() if leaf.kind == "score"}
    factors = (
        {} if entry else {key: factor.key for key, factor in owners.items() if factor}
    )
    ordered = list(members.items())
    if form != "nested":
        ordered.sort(key=lambda member: _rank(member[1]))
    in_prompt_order = {key: members[key] for key in _sorted_keys(members, answer)}
    return AnswerObject(in_prompt_order, tuple(ordered), entry, factors)


def _rank(part: Any) -> int:
    return _ORDER.index(part.kind if isinstance(part, AnswerLeaf) else "score")


def _sorted_keys(keys: Iterable[str], answer: AnswerFormat) -> list[str]:
    """Keys in the order of the prompt, where the rubric says it; those it does not name stay behind the others."""
    places = {key: place for place, key in enumerate(answer.keys)}
    return sorted(keys, key=lambda key: places.get(key, len(places)))


def _factor_paths(
    factor: Factor, answer: AnswerFormat
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the paths of the score and the reason of a factor; an empty path for what is not asked for."""
    if answer.form == "nested":
        return _split(factor.path or factor.key, answer), _split(
            factor.reason_path, answer
        )
    entry = (answer.envelope, factor.key) if answer.envelope else (factor.key,)
    if answer.form != "entries":
        return entry, ()
    return (*entry, answer.score_key), (
        *entry,
        answer.reason_key,
    ) if answer.reason_key else ()


def _split(path: str, answer: AnswerFormat) -> tuple[str, ...]:
    if not path:
        return ()
    return tuple(path.split(".")) if answer.form == "nested" else (path,)


@functools.lru_cache(maxsize=64)
def answer_keys(rubric: Rubric) -> tuple[str, ...]:
    """Every key that an answer has at any level; an object with one of them claims to be the answer."""
    factors = (
        ()
        if rubric.answer.form == "nested"
        else (factor.key for factor in rubric.factors)
    )
    return tuple(dict.fromkeys([*_keys(answer_tree(rubric)), *factors]))


def _keys(part: AnswerObject) -> Iterator[str]:
    for key, inner in part.members.items():
        yield key
        if isinstance(inner, AnswerObject):
            yield from _keys(inner)


# --- as JSON Schema -------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def answer_schema(rubric: Rubric) -> dict[str, Any]:
    """Return the JSON Schema in the subset that strict modes take: all properties required, no others allowed.

    Servers fill in properties in order.
    """
    if not rubric.answer.is_json:
        raise ValueError(
            f"{rubric.name}: an answer of the form {rubric.answer.form} is no JSON"
        )
    return _schema(rubric, answer_tree(rubric))


def _schema(rubric: Rubric, part: Any) -> dict[str, Any]:
    if isinstance(part, AnswerObject):
        properties = {
            key: _schema(rubric, inner) for key, inner in part.members.items()
        }
        required = {"required": list(properties), "additionalProperties": False}
        return {"type": "object", "properties": properties} | required
    if isinstance(part, list):
        return {"type": "array", "items": _item_schema(rubric)}
    if part.kind == "score":
        return dict(part.factor.scale.json_schema())
    described = (
        {"description": reason_words(rubric)} if part.kind in ("reason", "text") else {}
    )
    return {"type": part.json_type} | described


def _item_schema(rubric: Rubric) -> dict[str, Any]:
    """Return the schema of the items of a list: a schema cannot say which factor an item is of, so it allows any of them."""
    schemas = [factor.scale.json_schema() for factor in rubric.factors]
    if any("anyOf" in schema for schema in schemas):
        return {
            "anyOf": [
                option for schema in schemas for option in schema.get("anyOf", [schema])
            ]
        }
    if any("enum" not in schema for schema in schemas):
        return {"type": "number"}
    options = list(
        dict.fromkeys(value for schema in schemas for value in schema["enum"])
    )
    kinds = {schema["type"] for schema in schemas}
    kind = kinds.pop() if len(kinds) == 1 else "number"
    return {"type": kind, "enum": options if rubric.chooses else sorted(options)}


# --- in words -------------------------------------------------------------------------------------------------


def answer_shape(rubric: Rubric, identifier: str | None) -> str:
    """Return the answer as a question shows it: keys and labels to the letter, values described."""
    if rubric.answer.form == "lines":
        values = {factor.key: f"<{plain_words(factor)}>" for factor in rubric.factors}
        return _as_lines(rubric, values, f"<{reason_words(rubric)}>")
    if not rubric.answer.is_json:
        return f"<{plain_words(rubric.factors[0])}>"
    return "\n".join(_shape(rubric, answer_tree(rubric), identifier))


def _shape(rubric: Rubric, part: Any, identifier: str | None) -> list[str]:
    if isinstance(part, AnswerObject):
        members = []
        for key, inner in part.members.items():
            first, *rest = _shape(rubric, inner, identifier)
            members.append([f"{json.dumps(key, ensure_ascii=False)}: {first}", *rest])
        for member in members[:-1]:
            member[-1] += ","
        return ["{", *(f"  {line}" for member in members for line in member), "}"]
    if isinstance(part, list):
        return [
            f"[{', '.join(f'<{leaf.factor.key}: {leaf.factor.scale.words}>' for leaf in part)}]"
        ]
    if part.kind in ("score", "other"):
        return [
            f"<{part.factor.scale.words if part.kind == 'score' else part.json_type}>"
        ]
    return [f'"{identifier}"' if part.kind == "id" else f'"<{reason_words(rubric)}>"']


def _as_lines(rubric: Rubric, values: Mapping[str, str], reason: str) -> str:
    texts = {text: f"{text}: {reason}" for text in rubric.answer.texts}
    scores = {}
    for factor in rubric.factors:
        line = f"{factor.label or factor.key}: {values[factor.key]}"
        scores[rubric.label(factor)] = (
            f"{factor.heading}:\n{line}" if factor.heading else line
        )
    lines = scores | texts if rubric.reason == "after" else texts | scores
    return "\n".join(lines[label] for label in _sorted_keys(lines, rubric.answer))


def reason_words(rubric: Rubric) -> str:
    """Return in words what a reason must be."""
    if words := rubric.answer.words:
        return f"{words[0]} to {words[1]} words of visible evidence"
    return rubric.answer.reason or "the reason for the score"


def plain_words(factor: Factor) -> str:
    """A scale in words, where answers have no quotation marks."""
    return factor.scale.words.replace('"', "")


# --- filled in ------------------------------------------------------------------------------------------------


def envelope(
    rubric: Rubric,
    identifier: str,
    scores: Mapping[str, float],
    justifications: Mapping[str, str],
    why_not: Mapping[str, str],
) -> dict[str, Any]:
    """A verdict in the rubric's own form of JSON; a factor without a score is null, with the reason why."""
    reasons = {
        factor.key: justifications.get(factor.key) or why_not.get(factor.key, "")
        for factor in rubric.factors
    }
    fill: Mapping[str, Callable[[AnswerLeaf], Any]] = {
        "id": lambda _: identifier,
        "text": lambda _: " ".join(filter(None, dict.fromkeys(reasons.values()))),
        "score": lambda leaf: scores.get(leaf.factor.key) if leaf.factor else None,
        "reason": lambda leaf: reasons[leaf.factor.key] if leaf.factor else None,
        "other": lambda _: None,  # asked for, and not kept
    }

    def filled(part: Any) -> Any:
        if isinstance(part, AnswerObject):
            return {key: filled(inner) for key, inner in part.members.items()}
        return (
            list(map(filled, part)) if isinstance(part, list) else fill[part.kind](part)
        )

    document: dict[str, Any] = filled(answer_tree(rubric))
    return document


def as_lines(
    rubric: Rubric,
    scores: Mapping[str, float],
    justifications: Mapping[str, str],
    why_not: Mapping[str, str],
) -> str:
    """An answer that is no JSON; a factor without a score has the reason in its place, in brackets."""
    values = {
        f.key: str(scores[f.key]) if f.key in scores else f"({why_not.get(f.key, '')})"
        for f in rubric.factors
    }
    if rubric.answer.form in ("token", "marked"):
        return values[rubric.factors[0].key]
    return _as_lines(rubric, values, " ".join(dict.fromkeys(justifications.values())))
