"""The JSON example of a published prompt, read for its shape.

Such examples are not JSON: values are described (`<integer between 1-7>`, `[5, 3, or 1]`) instead of given. This
reader is only for prompts; replies are held to strict JSON.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|<[^<>]*>|[{}\[\]:,]|[^\s"{}\[\]:,<>]+', re.DOTALL)


@dataclass(frozen=True)
class Leaf:
    """A value that is described or given."""

    text: str
    quoted: bool


@dataclass(frozen=True)
class Choice:
    """A bracketed list: either several values, or the choice between them."""

    items: tuple[str, ...]
    text: str


Example: TypeAlias = "dict[str, Example] | Leaf | Choice"


class NotAnExample(ValueError):
    """A block of braces that does not describe an object."""


def read(block: str) -> dict[str, Example]:
    """The keys of an example and what stands for their values."""
    tokens = _TOKEN.findall(block)
    value, end = _value(tokens, 0, depth=0)
    if not isinstance(value, dict) or not value or end != len(tokens):
        raise NotAnExample(block[:60])
    return value


def _value(tokens: list[str], at: int, depth: int) -> tuple[Example, int]:
    if at >= len(tokens) or depth > 8:
        raise NotAnExample("breaks off")
    if tokens[at] == "{":
        return _members(tokens, at + 1, depth)
    if tokens[at] == "[":
        return _choice(tokens, at + 1)
    words = []
    while at < len(tokens) and tokens[at] not in ",}":
        words.append(tokens[at])
        at += 1
    if len(words) == 1 and words[0].startswith('"'):
        return Leaf(words[0][1:-1], quoted=True), at
    return Leaf(" ".join(words), quoted=False), at


def _members(tokens: list[str], at: int, depth: int) -> tuple[dict[str, Example], int]:
    members: dict[str, Example] = {}
    while at < len(tokens) and tokens[at] != "}":
        key = tokens[at]
        if not key.startswith('"') or tokens[at + 1 : at + 2] != [":"]:
            raise NotAnExample(f"{key} is not a quoted key")
        members[key[1:-1]], at = _value(tokens, at + 2, depth + 1)
        if tokens[at : at + 1] == [","]:
            at += 1
    if at >= len(tokens):
        raise NotAnExample("breaks off")
    return members, at + 1


def _choice(tokens: list[str], at: int) -> tuple[Choice, int]:
    words = []
    while at < len(tokens) and tokens[at] != "]":
        if tokens[at] in "{[":
            raise NotAnExample("a list of objects")
        words.append(tokens[at])
        at += 1
    text = " ".join(words)
    return Choice(tuple(item.strip() for item in text.split(",") if item.strip()), text), at + 1
