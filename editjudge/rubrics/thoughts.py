"""Thoughts that models write before an answer: which marks open and close them (`tables/thoughts.yaml`).

A thought is never searched for an answer. What follows a thought that never ends is part of it.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from editjudge.rubrics.tables import load_table

# A name has parts, one of which tells of thinking: `think`, `seed:think`, `thought_start`, `chain-of-thought`. The
# lookahead rules out most places sooner than the name does: 5 MB of `<a>` take .6 s, and not 1.7.
_TAG = (
    r"(?=[a-z0-9:_./ -]{3,64}+[^a-z0-9:_./ <[-])/?\s?(?:[a-z0-9]{1,16}[:_.-]){0,3}?"
    r"(?:chain[ _-]of[ _-]thoughts?|inner[ _-]monologue|internal[ _-](?:reasoning|thoughts?)"
    r"|[a-z]{0,8}?th(?:ink(?:ing)?|oughts?)|reason(?:s|ing)?|analysis|scratch[ _-]?pad|reflections?|cot)"
    r"(?:[ _-]process)?(?:[:_.-][a-z0-9]{1,16}){0,3}"
)
_CLOSES = re.compile(r"^(?:\W|&lt;|\\u003c)*/|(?<![a-z])(?:end|close|stop)(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class ThoughtFormat:
    """One way to mark a thought; the table explains the fields."""

    source: str
    example: tuple[str, str]
    starts: str
    hints: tuple[str, ...]
    opening: str = "(?!)"
    closing: str = "(?!)"
    mark: str = "(?!)"
    nested: str | None = None
    preopened: bool = True

    @functools.cached_property
    def inner_marks(self) -> re.Pattern[str]:
        """The marks that count inside a thought of this format."""
        nested = self.opening if self.nested is None else self.nested or "(?!)"
        return re.compile(rf"(?P<closing>{self.closing})|(?P<opening>{nested})|(?P<mark>{self.mark})", re.IGNORECASE)

    def end(self, text: str, position: int) -> int | None:
        """Where the thought that was opened before `position` ends; None if it never does."""
        depth = 1
        for match in self.inner_marks.finditer(text, position):
            depth += 1 if _opens(match) else -1
            if depth == 0:
                return match.end()
        return None


def _opens(match: re.Match[str]) -> bool:
    role = match.lastgroup or ""
    return not _CLOSES.search(match[0]) if role.startswith("mark") else role.startswith("opening")


@functools.cache
def formats() -> tuple[ThoughtFormat, ...]:
    """Every format of the table."""
    rows: list[dict[str, Any]] = load_table("thoughts")
    for row in rows:
        row |= {"example": tuple(row["example"]), "hints": tuple(row["hints"])}
        if "mark" in row:
            row["mark"] = row["mark"].replace("TAG", _TAG)
    return tuple(ThoughtFormat(**row) for row in rows)


class ThoughtMark(NamedTuple):
    format: ThoughtFormat
    opens: bool


def marks_in(text: str) -> re.Pattern[str]:
    """A pattern for a brace and for the marks of every format that the text hints at.

    Few texts hold any, and to look for all of them at each of millions of places takes seconds.
    """
    lowered = text.lower()
    return _pattern(tuple(n for n, form in enumerate(formats()) if any(hint in lowered for hint in form.hints)))


@functools.lru_cache(maxsize=64)
def _pattern(numbers: tuple[int, ...]) -> re.Pattern[str]:
    # A group's name says which mark of which format it is.
    roles = {
        n: [role for role in ("closing", "opening", "mark") if role != "closing" or formats()[n].preopened]
        for n in numbers
    }
    marks = (f"|(?P<{role}{n}>{getattr(formats()[n], role)})" for n in numbers for role in roles[n])
    starts = re.escape("".join(formats()[n].starts for n in numbers))
    return re.compile(rf"(?=[{{{starts}])(?:(?P<brace>\{{){''.join(marks)})", re.IGNORECASE)


def mark_of(match: re.Match[str]) -> ThoughtMark | None:
    """Which format a match of `marks_in` belongs to, and whether it opens a thought; None for a brace."""
    name = match.lastgroup or ""
    return None if name == "brace" else ThoughtMark(formats()[int(name.lstrip("closingmarkpe"))], _opens(match))
