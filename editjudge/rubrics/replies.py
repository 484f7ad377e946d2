"""Parsing of replies to any rubric. Thoughts are removed, then JSON objects and labelled lines are found.

A reply is untrusted and may be megabytes of brackets, so each reader is a single pass without recursion. Only strict
JSON is accepted, and numbers keep their exact value.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from editjudge.rubrics.scale import WrittenNumber
from editjudge.rubrics.strict_yaml import load_table

MAX_TOKENS = 100_000
"""Maximum number of strings, brackets and commas in a reply. The largest built-in answer has about 100."""
MAX_DEPTH = 32
"""Nesting limit, higher than any contract needs. It bounds the recursion of the JSON decoder."""
MAX_LINES = 100_000
"""Maximum number of lines in a reply. An answer has about ten."""


class NoAnswer(ValueError):
    """Raised when a reply has no valid answer, or a text is not strict JSON."""

    def __init__(
        self,
        code: str,
        message: str,
        status: Literal["refused", "invalid", "truncated"] = "invalid",
        *,
        at_end: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.at_end = at_end
        """Whether the text is valid as far as it goes, but ends too early."""


def too_complex() -> NoAnswer:
    message = "the reply has more braces, lines or headings than any answer"
    return NoAnswer("too_complex", message)


# --- thoughts -------------------------------------------------------------------------------------------------

# A name has a part that means thinking: `think`, `seed:think`, `thought_start`, `chain-of-thought`. The lookaheads
# reject most positions early: the first one reduces 5 MB of `<a>` from 1.7 s to .3 s, the second one 5 MB of
# `[a_a_a_a_a_a]` from .6 s to .3 s.
_TAG = (
    r"(?=[a-z0-9:_./ -]{3,64}+[^a-z0-9:_./ <[-])/?\s?(?:[a-z0-9]{1,16}[:_.-]){0,3}?"
    r"(?=[a-z]{3})(?:chain[ _-]of[ _-]thoughts?|inner[ _-]monologue|internal[ _-](?:reasoning|thoughts?)"
    r"|[a-z]{0,8}?th(?:ink(?:ing)?|oughts?)|reason(?:s|ing)?|analysis|scratch[ _-]?pad|reflections?|cot)"
    r"(?:[ _-]process)?(?:[:_.-][a-z0-9]{1,16}){0,3}"
)
_NEVER = "(?!)"
_CLOSES = re.compile(
    r"^(?:\W|&lt;|\\u003c)*/|(?<![a-z])(?:end|close|stop)(?![a-z])", re.IGNORECASE
)


@dataclass(frozen=True)
class ThoughtFormat:
    """A syntax for thoughts in replies. `tables/thoughts.yaml` lists all of these and explains the fields."""

    source: str
    example: tuple[str, str]
    starts: str
    hints: tuple[str, ...]
    opening: str = _NEVER
    closing: str = _NEVER
    mark: str = _NEVER
    nested: str | None = None
    preopened: bool = True

    @functools.cached_property
    def inner_marks(self) -> re.Pattern[str]:
        """Pattern of the marks inside a thought."""
        nested = self.opening if self.nested is None else self.nested or _NEVER
        return re.compile(
            rf"(?P<closing>{self.closing})|(?P<opening>{nested})|(?P<mark>{self.mark})",
            re.IGNORECASE,
        )

    def end(self, text: str, position: int) -> int | None:
        """Return the end of the thought that was opened before `position`, or None if it never ends."""
        depth = 1
        for match in self.inner_marks.finditer(text, position):
            depth += 1 if _opens(match) else -1
            if depth == 0:
                return match.end()
        return None


def _opens(match: re.Match[str]) -> bool:
    role = match.lastgroup or ""
    return (
        not _CLOSES.search(match[0])
        if role.startswith("mark")
        else role.startswith("opening")
    )


@functools.cache
def thought_formats() -> tuple[ThoughtFormat, ...]:
    """Return all thought formats that are listed in `tables/thoughts.yaml`."""
    formats = []
    for row in load_table("thoughts"):
        lists = {name: tuple(row[name]) for name in ("example", "hints")}
        mark = row.get("mark", _NEVER).replace("TAG", _TAG)
        formats.append(ThoughtFormat(**row | lists | {"mark": mark}))
    return tuple(formats)


def marks_in(text: str) -> re.Pattern[str]:
    """Return a pattern for braces and for the marks of every format whose hints occur in the text.

    Hints are checked first because few texts contain any mark, and trying all marks at millions of positions takes
    seconds.
    """
    lowered = text.lower()
    # Searching for a hint takes a pass over the text, so each hint is searched for only once.
    return _marks_pattern(frozenset(hint for hint in _hints() if hint in lowered))


@functools.cache
def _hints() -> frozenset[str]:
    return frozenset(hint for form in thought_formats() for hint in form.hints)


@functools.lru_cache(maxsize=64)
def _marks_pattern(hints: frozenset[str]) -> re.Pattern[str]:
    forms = [
        (number, form)
        for number, form in enumerate(thought_formats())
        if not hints.isdisjoint(form.hints)
    ]
    # A group's name is the kind of mark and the number of the format. Patterns that never match are left out, since
    # they cost as much as others.
    marks = [
        f"|(?P<{role}{number}>{getattr(form, role)})"
        for number, form in forms
        for role in ("closing", "opening", "mark")
        if getattr(form, role) != _NEVER and (role != "closing" or form.preopened)
    ]
    starts = re.escape("".join(form.starts for _, form in forms))
    return re.compile(
        rf"(?=[{{{starts}])(?:(?P<brace>\{{){''.join(marks)})", re.IGNORECASE
    )


# --- positions of JSON ----------------------------------------------------------------------------------------

# Possessive, and an unfinished string or escape extends to the end of the text, so that no position is tried twice.
_INSIDE = re.compile(r'"[^"\\]*+(?:\\(?:.|\Z)[^"\\]*+)*+(?:"|\Z)|[][{},]', re.DOTALL)
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[\w+-]*[ \t]*\r?$", re.MULTILINE)


@dataclass(frozen=True)
class Candidate:
    """An outermost `{...}` that contains a key of the answer, or that is cut off within its first key."""

    text: str
    closed: bool
    depth: int
    start: int = 0
    """Position of the first character in the scanned text."""


@dataclass(frozen=True)
class Scan:
    """Candidates for the answer in a reply, and the prose around them."""

    candidates: tuple[Candidate, ...]
    before: str
    """Text outside thoughts and candidates, up to the last candidate. If there are no candidates, all text outside
    thoughts.
    """
    after: str
    """Text after the last candidate."""
    ends_in_thought: bool = False
    """Whether the last thought is never closed, in which case no answer can follow it."""
    prose: tuple[tuple[int, int], ...] = ()
    """Start and end of each piece of prose in the scanned text."""


def scan(text: str, keys: Collection[str] = (), joint: str = "\n") -> Scan:
    """Remove thoughts and find the objects that contain one of the keys. Thoughts are not searched for answers.

    `joint` separates the pieces of prose.
    """
    key_pattern = _any_of(tuple(keys))
    marks = marks_in(text)
    candidates: list[Candidate] = []
    prose: list[tuple[int, int]] = []
    prose_before = begin = position = plain = tokens = 0
    ends_in_thought = False
    while match := marks.search(text, position):
        start, position = match.span()
        name = match.lastgroup or ""
        if name == "brace":
            # Braces before `plain` are prose, but a thought may still begin or end there.
            if start < plain or not keys:
                continue
            end, closed, depth, tokens = _object_end(text, start, tokens)
            # An object that breaks off in its first key is the beginning of an answer.
            beginning = text[start + 1 : end].lstrip()
            is_cut = not closed and any(f'"{k}'.startswith(beginning) for k in keys)
            if not is_cut and not key_pattern.search(text, start, end):
                plain = end
                continue
            prose.append((begin, start))
            prose_before = len(prose)
            candidates.append(Candidate(text[start:end], closed, depth, start))
            begin = position = end
        elif not _opens(match):
            # The opening mark was in the prompt, so all text so far is a thought.
            candidates = []
            prose = []
            prose_before = 0
            begin = position
        else:
            prose.append((begin, start))
            thought_end = thought_formats()[int(name.lstrip("openigmark"))].end(
                text, position
            )
            if ends_in_thought := thought_end is None:
                break
            begin = position = thought_end or 0
    if not ends_in_thought:
        prose.append((begin, len(text)))
    split = prose_before if candidates else len(prose)
    pieces = [text[start:end] for start, end in prose]
    before = joint.join(pieces[:split])
    after = joint.join(pieces[split:])
    return Scan(tuple(candidates), before, after, ends_in_thought, tuple(prose))


def blocks(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of every closed outermost `{...}`."""
    position = tokens = 0
    while (start := text.find("{", position)) >= 0:
        position, closed, _, tokens = _object_end(text, start, tokens)
        if closed:
            yield start, position


def without_fences(text: str) -> str:
    """Return prose without the lines that open or close a code block."""
    return _FENCE.sub("", text).strip()


@functools.lru_cache(maxsize=64)
def _any_of(keys: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern that matches any of the keys in quotation marks. Each character may be plain or a JSON escape."""
    spelled = [
        "".join(rf"(?:{re.escape(mark)}|\\u(?i:{ord(mark):04x}))" for mark in key)
        for key in keys
    ]
    return re.compile("""["'](?:{})["']""".format("|".join(spelled)))


def _object_end(text: str, start: int, tokens: int) -> tuple[int, bool, int, int]:
    """Return the end of the object at `start`, whether it is closed, its nesting depth, and the number of tokens read
    so far.
    """
    braces = nesting = deepest = 0
    for match in _INSIDE.finditer(text, start):
        tokens += 1
        if tokens > MAX_TOKENS:
            raise too_complex()
        mark = match.group()
        if mark in "{[":
            nesting += 1
            deepest = max(deepest, nesting)
            braces += mark == "{"
        elif mark in "}]":
            nesting -= 1
            braces -= mark == "}"
            if mark == "}" and braces == 0:
                return match.end(), True, deepest, tokens
    return len(text), False, deepest, tokens


def is_unicode(text: str) -> bool:
    """Whether a string is valid Unicode, without unpaired surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- strict JSON ----------------------------------------------------------------------------------------------


def decode(text: str) -> Any:
    """Parse strict JSON. Raise `NoAnswer` if it is invalid."""
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        rest = text[error.pos :].rstrip()
        is_cut = error.msg.startswith("Unterminated string") or _STUMP.fullmatch(rest)
        message = f"{error.msg} at character {error.pos}"
        raise NoAnswer("not_json", message, at_end=bool(is_cut)) from None
    if "\\u" in text and not is_unicode(json.dumps(value, ensure_ascii=False)):
        raise NoAnswer("not_json", "half of a surrogate pair is not text")
    return value


# Beginning of an escape, a word or a number.
_STUMP = re.compile(r"(?:u[0-9a-fA-F]{0,4}|tr?u?|fa?l?s?|nu?l?|-|\.|[eE][-+]?)?")


def _integer(text: str) -> int | WrittenNumber:
    # 18 digits: wider than any scale, and Python refuses to convert thousands of digits.
    return int(text) if len(text) <= 18 and text != "-0" else WrittenNumber(text)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        raise NoAnswer(
            "duplicate_key", f'the key "{twice[:80]}" stands twice in one object'
        )
    return members


def _constant(name: str) -> NoReturn:
    raise NoAnswer("not_json", f"{name} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=WrittenNumber,
    parse_constant=_constant,
)


# --- labelled lines -------------------------------------------------------------------------------------------

CUT = "\0"
"""Character that replaces a removed thought, so the texts before and after it are not read as one."""

AROUND = " \t\r\n" + CUT
"""Characters that may surround an answer that is the whole reply."""
_BREAK = re.compile(r"\r\n|\n|\r")
_FENCE_LINE = re.compile(r"[ \t]*(?:`{3,}|~{3,})[\w+-]*[ \t]*")
_LIST_MARK = re.compile(r"\A(?:[-*+\u2022]|#{1,6}|\d{1,2}[.)])[ \t]+")
_EMPHASIS = re.compile(r"\*{1,3}|_{1,3}|`")
_EMPHASISED = re.compile(r"(\*{1,3}|`)(.*)\1")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)


@dataclass
class LabelledLines:
    """The labelled lines of a reply."""

    values: dict[str, list[str]] = field(default_factory=dict)
    """Values after the colon, keyed by label. A label may occur several times."""
    texts: dict[str, list[str]] = field(default_factory=dict)
    """Free texts, keyed by label. Each continues up to the next label."""
    prose: bool = False
    """Whether there are lines without a label."""


def read_lines(
    text: str, labels: Sequence[str], texts: Sequence[str], headings: Sequence[str] = ()
) -> LabelledLines:
    """Return the labelled lines of a reply whose thoughts have been removed. The key of a line below a heading is
    `Heading > Label`.

    A line that begins with a label and a colon is part of the answer. A list mark before the label and emphasis
    (`**Label:** 4`) are ignored.
    """
    result = LabelledLines()
    heading = ""
    all_labels = sorted({*labels, *texts}, key=len, reverse=True)
    open_text: list[str] | None = None
    for count, line in enumerate(_BREAK.split(text, MAX_LINES + 1)):
        if count > MAX_LINES:
            raise too_complex()
        if _FENCE_LINE.fullmatch(line):
            continue
        title, _ = _split_label(line, headings)
        label, content = _split_label(line, all_labels)
        if title:
            heading = title
            open_text = None
        elif not label or (headings and not heading and label in labels):
            if open_text is not None:
                open_text[-1] += f"\n{line}"
            elif line.strip(" \t" + CUT):
                result.prose = True
        elif label in texts:
            open_text = result.texts.setdefault(label, [])
            open_text.append(content)
        else:
            open_text = None
            name = f"{heading} > {label}" if headings else label
            result.values.setdefault(name, []).append(content)
    return result


def _split_label(line: str, labels: Sequence[str]) -> tuple[str, str]:
    """Return the label at the start of a line and the text after its colon, or two empty strings if there is no label."""
    rest = _LIST_MARK.sub("", line.lstrip(" \t" + CUT), count=1)
    match = _EMPHASIS.match(rest)
    emphasis = match.group() if match else ""
    rest = rest.removeprefix(emphasis)
    label = next(filter(rest.startswith, labels), "")
    rest = rest.removeprefix(label).lstrip(" \t")
    if emphasis and rest.startswith(emphasis):  # **Label**: 4
        rest = rest.removeprefix(emphasis).lstrip(" \t")
        emphasis = ""
    if not label or not rest.startswith((":", "\uff1a")):
        return "", ""
    content = rest[1:].strip(" \t")
    if content.startswith(emphasis):  # **Label:** 4
        return label, content.removeprefix(emphasis).strip(" \t")
    if content.endswith(emphasis):  # **Label: 4**
        return label, content.removesuffix(emphasis).strip(" \t")
    return "", ""


def value_of(text: str) -> object:
    """Return the number that a string represents in strict JSON. If it does not represent one, return the string
    itself.
    """
    match = _EMPHASISED.fullmatch(text)
    return number_of(match[2] if match else text)


def number_of(text: str) -> object:
    """Return the number that is the whole text, spelled as in strict JSON. If it is not one, return the text."""
    return decode(text) if _NUMBER.fullmatch(text) else text


def lone_number(reply: str) -> tuple[int, int] | None:
    """Return the start and end of the number that is the whole reply, ignoring thoughts. Return None if there is other
    text.
    """
    scanned = scan(reply)
    pieces = [(start, reply[start:end]) for start, end in scanned.prose]
    pieces = [(start, piece) for start, piece in pieces if piece.strip(AROUND)]
    if scanned.ends_in_thought or len(pieces) != 1:
        return None
    start, piece = pieces[0]
    start += len(piece) - len(piece.lstrip(AROUND))
    piece = piece.strip(AROUND)
    if match := _EMPHASISED.fullmatch(piece):
        start += match.start(2)
        piece = match[2]
    return (start, start + len(piece)) if _NUMBER.fullmatch(piece) else None
