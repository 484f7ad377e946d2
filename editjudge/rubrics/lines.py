"""Answers that are no JSON: labelled lines (`Label: 4`), and replies that are one word or number.

Read to the letter: a line that begins with a label and a colon claims to be the answer, and whatever follows the colon
must be one number or word. A list mark before the label, and emphasis (`**Label:** 4`), are how models write, not what
they say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from editjudge.rubrics.strict_json import decode
from editjudge.rubrics.thoughts import mark_of, marks_in

CUT = "\0"
"""Stands where a thought was taken out, so that what stood on both sides of it is never read as one."""
MAX_LINES = 100_000
"""Lines of a reply that are looked at: an answer has some ten."""

_BREAK = re.compile(r"\r\n|\n|\r")
_FENCE = re.compile(r"[ \t]*(?:`{3,}|~{3,})[\w+-]*[ \t]*")
_LIST_MARK = re.compile(r"(?:[-*+\u2022]|#{1,6}|\d{1,2}[.)])[ \t]+")
_EMPHASIS = re.compile(r"\*{1,3}|_{1,3}|`")
_EMPHASISED = re.compile(r"(\*{1,3}|`)(.*)\1")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)


def without_thoughts(text: str) -> tuple[str, bool]:
    """A reply less its thoughts, and whether it ends inside one."""
    marks, kept, position = marks_in(text), 0, 0
    spoken: list[str] = []
    while match := marks.search(text, position):
        start, position = match.span()
        thought = mark_of(match)
        if thought is None:
            continue
        if not thought.opens:  # the opening mark stood in the prompt: all that came before was thought
            spoken, kept = [], position
            continue
        spoken.append(text[kept:start])
        end = thought.format.end(text, position)
        if end is None:
            return CUT.join(spoken), True
        kept = position = end
    spoken.append(text[kept:])
    return CUT.join(spoken), False


@dataclass
class LabelledLines:
    """What the lines of a reply say."""

    values: dict[str, list[str]] = field(default_factory=dict)
    """By label, what stands after its colon, as often as it stands there."""
    texts: dict[str, list[str]] = field(default_factory=dict)
    """By label of a text, the text, which goes on up to the next label."""
    prose: bool = False
    """Whether there are lines that belong to no label."""


class TooManyLines(ValueError):
    """More lines than any answer has."""


def read_lines(text: str, labels: Sequence[str], texts: Sequence[str], headings: Sequence[str] = ()) -> LabelledLines:
    """The labelled lines of a reply that is without its thoughts; with headings each is named `Heading > Label`."""
    found, heading = LabelledLines(), ""
    known = sorted({*labels, *texts}, key=len, reverse=True)
    open_text: list[str] | None = None
    for line in _split(text):
        if _FENCE.fullmatch(line):
            continue
        if below := _labelled(line, headings):
            heading, open_text = below[0], None
            continue
        match = _labelled(line, known)
        if match is None or (headings and not heading and match[0] in labels):
            if open_text is not None:
                open_text[-1] += f"\n{line}"
            elif line.strip(" \t" + CUT):
                found.prose = True
        elif match[0] in texts:
            open_text = found.texts.setdefault(match[0], [])
            open_text.append(match[1])
        else:
            open_text = None
            name = f"{heading} > {match[0]}" if headings else match[0]
            found.values.setdefault(name, []).append(match[1])
    return found


def _split(text: str) -> Iterator[str]:
    position = 0
    for count, match in enumerate(_BREAK.finditer(text)):
        if count >= MAX_LINES:
            raise TooManyLines
        yield text[position : match.start()]
        position = match.end()
    yield text[position:]


def _labelled(line: str, labels: Sequence[str]) -> tuple[str, str] | None:
    """The label that a line begins with, and what follows its colon."""
    rest = line.lstrip(" \t" + CUT)
    if mark := _LIST_MARK.match(rest):
        rest = rest[mark.end() :]
    emphasis = mark.group() if (mark := _EMPHASIS.match(rest)) else ""
    rest = rest[len(emphasis) :]
    label = next((label for label in labels if rest.startswith(label)), None)
    if label is None:
        return None
    rest = rest[len(label) :].lstrip(" \t")
    if emphasis and rest.startswith(emphasis):  # **Label**: 4
        rest, emphasis = rest[len(emphasis) :].lstrip(" \t"), ""
    if not rest.startswith((":", "\uff1a")):
        return None
    rest = rest[1:].lstrip(" \t")
    if emphasis and rest.startswith(emphasis):  # **Label:** 4
        rest, emphasis = rest[len(emphasis) :], ""
    elif emphasis and rest.rstrip(" \t").endswith(emphasis):  # **Label: 4**
        rest, emphasis = rest.rstrip(" \t")[: -len(emphasis)], ""
    return None if emphasis else (label, rest.strip(" \t"))


def value_of(text: str) -> Any:
    """A number as strict JSON reads it, or the words themselves."""
    if match := _EMPHASISED.fullmatch(text):
        text = match[2]
    return decode(text) if _NUMBER.fullmatch(text) else text
