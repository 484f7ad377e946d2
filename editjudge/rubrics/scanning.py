"""Where in a reply the answer stands: thoughts set aside, candidate objects found, the rest kept as prose.

One pass over the text without recursion: a reply is untrusted, and may be megabytes of brackets.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from editjudge.rubrics.thoughts import mark_of, marks_in

MAX_TOKENS = 100_000
"""Strings, brackets and commas looked at before a reply is given up; the largest built-in answer has about 100."""
MAX_DEPTH = 32
"""Deeper than any contract; beyond it the JSON decoder would recurse."""

# Possessive, and an unfinished string or escape runs to the end of the text: no start is tried twice.
_INSIDE = re.compile(r'"[^"\\]*+(?:\\(?:.|\Z)[^"\\]*+)*+(?:"|\Z)|[][{},]', re.DOTALL)
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[\w+-]*[ \t]*\r?$", re.MULTILINE)


@dataclass(frozen=True)
class Candidate:
    """An outermost `{...}` that holds a key of the envelope, or breaks off in its first."""

    text: str
    closed: bool
    depth: int


@dataclass(frozen=True)
class Scan:
    candidates: tuple[Candidate, ...]
    before: str
    """What stands outside thoughts and candidates, before the last candidate (all of it where there is none)."""
    after: str
    """What stands after the last candidate."""
    ends_in_thought: bool = False
    """A thought was opened and never closed, so no answer can follow it."""


class TooComplex(ValueError):
    """More braces than any answer has."""


def scan(text: str, keys: Collection[str]) -> Scan:
    """The candidates of a reply, and the prose around them."""
    key, marks = _any_of(tuple(keys)), marks_in(text)
    found: list[Candidate] = []
    prose: list[str] = []
    prose_before = kept = position = plain = tokens = 0
    while match := marks.search(text, position):
        start, position = match.span()
        thought = mark_of(match)
        if thought is None:
            # Before `plain` braces are known to be prose, but a thought may still open or close among them.
            if start < plain:
                continue
            end, closed, depth, tokens = _object_end(text, start, tokens)
            if not key.search(text, start, end) and (closed or not _cut_in_key(text[start:end], keys)):
                plain = end
                continue
            prose.append(text[kept:start])
            prose_before = len(prose)
            found.append(Candidate(text[start:end], closed, depth))
            kept = position = end
        elif not thought.opens:
            # The opening mark stood in the prompt: all that came before was thought.
            found, prose, prose_before = [], [], 0
            kept = position
        else:
            prose.append(text[kept:start])
            end_or_none = thought.format.end(text, position)
            if end_or_none is None:
                return _result(found, prose, prose_before, ends_in_thought=True)
            kept = position = end_or_none
    prose.append(text[kept:])
    return _result(found, prose, prose_before)


def blocks(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of every closed outermost `{...}`."""
    position = tokens = 0
    while (start := text.find("{", position)) >= 0:
        position, closed, _, tokens = _object_end(text, start, tokens)
        if closed:
            yield start, position


def without_fences(text: str) -> str:
    """Prose less the lines that only open or close a code block."""
    return _FENCE.sub("", text).strip()


def _result(found: list[Candidate], prose: list[str], prose_before: int, ends_in_thought: bool = False) -> Scan:
    split = prose_before if found else len(prose)
    return Scan(tuple(found), "\n".join(prose[:split]), "\n".join(prose[split:]), ends_in_thought)


@functools.lru_cache(maxsize=64)
def _any_of(keys: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("""["'](?:{})["']""".format("|".join(map(_spelled, keys))))


def _spelled(key: str) -> str:
    """A pattern for a key, each character plain or as the escape that JSON reads as the same."""
    return "".join(rf"(?:{re.escape(mark)}|\\u(?i:{ord(mark):04x}))" for mark in key)


def _cut_in_key(block: str, keys: Collection[str]) -> bool:
    """Whether an object breaks off before its first key is out: too early to hold one, and yet an answer begun."""
    said = block[1:].lstrip()
    return any(f'"{key}'.startswith(said) for key in keys)


def _object_end(text: str, start: int, tokens: int) -> tuple[int, bool, int, int]:
    """Where the object that opens at `start` ends, whether it is closed, how deep it nests, tokens seen."""
    braces = nesting = deepest = 0
    for match in _INSIDE.finditer(text, start):
        tokens += 1
        if tokens > MAX_TOKENS:
            raise TooComplex
        mark = match.group()
        if mark == "{":
            braces += 1
            nesting += 1
        elif mark == "}":
            braces -= 1
            nesting -= 1
            if braces == 0:
                return match.end(), True, deepest, tokens
        elif mark == "[":
            nesting += 1
        elif mark == "]":
            nesting -= 1
        deepest = max(deepest, nesting)
    return len(text), False, deepest, tokens
