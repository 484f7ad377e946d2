"""The marks of a list: which of its lines are marked as passing or failing, and which cannot be read.

Marks are read tolerantly, and only where there is no doubt. A line that hedges, says two things, or says it in words of
its own is unread, and never counts as passing.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from editjudge.rubrics.model import Consistency

MAX_LINES = 1_000
"""Lines that are read; a judge lists about ten differences. Those beyond count as unread."""
MAX_LINE = 2_000
"""Characters of a line that is read; a difference takes about 100."""

Mark = Literal["passes", "fails"]


@dataclass(frozen=True, slots=True)
class Marks:
    """What the lines of a list say."""

    failing: str | None = None
    """The words of the first failing mark."""
    passing: int = 0
    unread: int = 0
    """Listed lines without a mark that can be read."""
    prose: int = 0
    """Other lines, which may mention a difference that the list does not."""

    @property
    def all_pass(self) -> bool:
        return self.passing > 0 and self.failing is None and not self.unread and not self.prose


def read_marks(text: str, rule: Consistency) -> Marks:
    raw = list(itertools.islice(_LINE.finditer(text), MAX_LINES + 1))
    lines = list(_lines(raw[:MAX_LINES]))
    readings = [_reading(line, next(iter(lines[n + 1 : n + 2]), None), rule) for n, line in enumerate(lines)]
    # Without bullets every line is one of the list, if there is one at all.
    bulleted = any(reading.kind == "item" for reading in readings)
    listed = "item" if bulleted or not any(reading.mark for reading in readings) else "prose"
    marks = [reading.mark for reading in readings if reading.kind == listed]
    return Marks(
        failing=next((reading.words for reading in readings if reading.mark == "fails"), None),
        passing=marks.count("passes"),
        unread=marks.count(None) + (len(raw) > MAX_LINES),
        prose=sum(reading.kind == "prose" != listed and reading.mark is None for reading in readings),
    )


# --- lines ----------------------------------------------------------------------------------------------------

_LINE = re.compile(r"(?<![ \t\u00a0])([ \t\u00a0]*+)(\S[^\n\r\v\f\x85\u2028\u2029]*+)")
_BULLET = re.compile(r"(?:>\s*)?(?:[*_]{2})?(?:[-*+•·▪◦‣●○–—]|\(?\d{1,3}[.):]|\(?[A-Za-z][.)])(?:[*_]{2})?\s+")
_RULE = re.compile(r"[\W_]*")
_TITLE = re.compile(r"#{1,6}\s.*|(?:\*\*|__)[^*_]*(?:\*\*|__):?")
_NO_DIFFERENCE = re.compile(r"(?:none|nothing|no (?:\w+ ){0,3}(?:differences?|changes?)\b.*|n/a)[ .]*")


class _Line(NamedTuple):
    indent: int
    bullet: bool
    text: str


def _lines(matches: Sequence[re.Match[str]]) -> Iterator[_Line]:
    """The lines with words in them; what is indented below a bullet and has none of its own belongs to it."""
    item: _Line | None = None
    end = 0
    for match in matches:
        indent, words = len(match[1]), match[2]
        bullet = _BULLET.match(words)
        adjacent = match.string.count("\n", end, match.start()) <= 1
        end = match.end()
        if item and not bullet and adjacent and indent > item.indent and not words.startswith("|"):
            item = item._replace(text=f"{item.text} : {words}"[: MAX_LINE + 1])
            continue
        if item:
            yield item
            item = None
        if bullet:
            item = _Line(indent, True, words[bullet.end() :])
        elif not _RULE.fullmatch(words[:MAX_LINE]) or words.startswith("|"):
            yield _Line(indent, words.startswith("|"), words)
    if item:
        yield item


class _MarkReading(NamedTuple):
    kind: Literal["item", "prose", "heading"]
    mark: Mark | None = None
    words: str = ""


def _reading(line: _Line, following: _Line | None, rule: Consistency) -> _MarkReading:
    text = line.text.strip()
    kind: Literal["item", "prose"] = "item" if line.bullet else "prose"
    if len(text) > MAX_LINE:
        return _MarkReading(kind)
    mark, words = _mark(text, rule, bare=line.bullet)
    # A mark and nothing else, or a line that ends in a colon, heads what follows.
    heads = not re.sub(r"\W", "", _plain(text).replace(words, "")) if words else text.rstrip("*_ ").endswith(":")
    opens = following is not None and following.bullet and following.indent > line.indent
    if _is_table_frame(text, following) or (heads and (opens or not line.bullet)):
        return _MarkReading("heading")
    if mark is None and not line.bullet and _TITLE.fullmatch(text):
        return _MarkReading("heading")
    if mark is None and _NO_DIFFERENCE.fullmatch(_plain(text)):
        return _MarkReading("prose")
    return _MarkReading(kind, mark, words)


def _is_table_frame(text: str, following: _Line | None) -> bool:
    """Whether a row of a table is its rule, or the head above it."""
    rows = [text, following.text if following else ""]
    return text.startswith("|") and any(row.startswith("|") and _RULE.fullmatch(row[:MAX_LINE]) for row in rows)


def _plain(text: str) -> str:
    """In lower case, without emphasis, quotation marks and symbols, every mark of separation a colon."""
    text = unicodedata.normalize("NFKC", text).casefold().replace("’", "'").replace("‘", "'").strip(" |")
    text = re.sub("[❌✗✘✖🚫⛔👎×]", " ✗ ", text)
    text = re.sub(r"[-=]>|[→⇒—–|=]|(?<!\w)-|-(?!\w)", ":", text)
    text = re.sub(r"(?<!\w)'|'(?!\w)|[^\w\s:;,.!?()\[\]/'✗-]|_", " ", text)
    return " ".join(text.split())


def _bracketed(text: str) -> str:
    """With brackets for quotation marks and emphasis, which set a mark apart as well as a colon does."""
    return re.sub(r"""(\*\*|__|[*_`"“”«])(?=\S)([^*_`"“”«»]{1,80}?)(?:\1|[”»])""", r"(\2)", text)


# --- marks ----------------------------------------------------------------------------------------------------

_SYNONYMS = {
    "not allowed": ("forbidden", "prohibited", "not permitted", "impermissible"),
    "unsure": ("not sure", "uncertain"),
}
"""Other words for a failing mark. There are none for a passing one: what is not the word asked for is unread."""
_NOT = r"(?:not|never|isn't|is not|aren't|are not|cannot be|can't be)(?: an?)?"
_NEGATED = re.compile(r"(?:\b(?:not|never|no|non|un|dis|nor|neither|hardly|barely)|n't)\W*$")
_VERB = re.compile(r"\b(?:is|are|was|were|be|been|being|seems?|cannot|can't|isn't|aren't|whether)\b")
_DOUBT = (
    r"\b(?:but|however|unless|except|although|though|if|or|actually|maybe|perhaps|possibly|would|could|should|any"
    r"|none|nothing|n/a|false|wrong|incorrect)\b|\?"
)
_NEGATION = r"\b(?:no|not|never|without|cannot|unrelated|probably|likely|mostly|partly|almost|borderline)\b|n't|✗"


class _Patterns(NamedTuple):
    mark: re.Pattern[str]
    """A mark after a separation and before the end or a remark, in the group `passes` or `fails`."""
    word: re.Pattern[str]
    """Any word that marks are made of."""
    answer: re.Pattern[str]
    """`allowed: yes` and `allowed? no`."""
    doubt: re.Pattern[str]
    """In a remark in brackets after a failing mark."""
    strict_doubt: re.Pattern[str]
    """In every other remark."""
    ending: re.Pattern[str]
    """A failing mark at the end of a line that nothing sets apart."""


@functools.lru_cache(maxsize=64)
def _patterns(rule: Consistency) -> _Patterns:
    def spelled(words: str) -> str:
        return r"[\s-]?".join(map(re.escape, words.casefold().split()))

    fails = [spelled(word) for mark in rule.fails for word in (mark, *_SYNONYMS.get(mark, ()))]
    negatable = [mark for mark in rule.passes if f"not {mark}" in rule.fails]
    for mark in map(spelled, negatable):
        fails += [rf"{_NOT} {mark}(?: changes?| differences?)?", rf"(?:dis|un|non)[\s-]?{mark}"]
    passes = [rf"(?:an )?{spelled(mark)}(?: changes?| differences?)?" for mark in rule.passes]
    lead = r"(?:^|[:;.!(\[])\s*(?:✗ )?(?:(?:this|that|it)(?:'s| is) |is |are |clearly )?"
    mark = rf"{lead}(?:(?P<fails>{'|'.join(fails) or '(?!)'})|(?P<passes>{'|'.join(passes) or '(?!)'}))"
    words = "|".join(spelled(mark) for mark in (*rule.fails, *rule.passes)) or "(?!)"
    yes = rf"\b(?:{'|'.join(map(spelled, negatable)) or '(?!)'})\s*[?:]+\s*(?P<answer>yes|no|true|false)\b"
    return _Patterns(
        re.compile(rf"{mark}(?=\s*(?:[)\].,;:!(\[]|$|because\b|since\b))"),
        re.compile(words),
        re.compile(yes),
        re.compile(f"{_DOUBT}|{words}"),
        re.compile(f"{_DOUBT}|{_NEGATION}|{words}"),
        re.compile(rf"[\s,](?:{'|'.join(fails) or '(?!)'})[\s.;!)\]]*$"),
    )


def _mark(text: str, rule: Consistency, *, bare: bool = False) -> tuple[Mark | None, str]:
    """The mark of a line, and its words; `bare` also takes a failing mark that ends the line with nothing before it
    to set it apart, unless it is the end of a sentence, which may be a rule that is restated."""
    plain, patterns = _plain(text), _patterns(rule)
    if "~~" in text:  # struck out
        return None, ""
    if answers := list(patterns.answer.finditer(plain)):
        return _answered(plain, answers[-1], patterns)
    for form in (plain, _plain(_bracketed(text))):
        if marks := list(patterns.mark.finditer(form)):
            return _marked(form, marks[-1], patterns)
    ending = patterns.ending.search(plain) if bare else None
    if ending and not patterns.strict_doubt.search(plain[: ending.start()]) and not _VERB.search(plain):
        return "fails", ending[0].strip(" ,.;!)]")
    return None, ""


def _answered(text: str, answer: re.Match[str], patterns: _Patterns) -> tuple[Mark | None, str]:
    before, after = text[: answer.start()], text[answer.end() :]
    if _NEGATED.search(before) or patterns.strict_doubt.search(after):
        return None, ""
    if answer["answer"] in ("no", "false"):
        return "fails", answer[0]
    return (None, "") if patterns.word.search(before) else ("passes", answer[0])


def _marked(text: str, mark: re.Match[str], patterns: _Patterns) -> tuple[Mark | None, str]:
    """The last mark of a line, unless the words around it leave a doubt."""
    group = mark.lastgroup or ""
    before, after = text[: mark.start(group)], text[mark.end() :]
    brackets = re.fullmatch(r"\s*[(\[][^()\[\]]*[)\]]?[\s.;]*", after)
    if group == "fails":
        doubt = patterns.doubt if brackets else patterns.strict_doubt
        return (None, "") if doubt.search(after) else ("fails", mark[group])
    label = after.lstrip(" )]").startswith(":") and (before.strip(" ([") or len(after.split()) < 3)
    if label or "✗" in text or _NEGATED.search(before) or patterns.word.search(before):
        return None, ""
    return (None, "") if patterns.strict_doubt.search(after) else ("passes", mark[group])
