"""Marks in a list of differences: each line passes, fails or cannot be read.

A mark is read only if its line has one of a few clear forms: a description, a separator, the mark, and nothing that
could negate it. Any other line is unread: it neither passes nor fails. The vocabulary is in `tables/marks.yaml`.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from editjudge.rubrics.model import Consistency
from editjudge.rubrics.strict_yaml import load_table, word_list

MAX_LINES = 1_000
"""Maximum number of lines that are read; a judge lists about ten differences. Further lines count as unread."""
MAX_LINE = 2_000
"""Maximum length of a line that is read; a difference takes about 100 characters."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Number of lines in a list for each kind of mark."""

    failing: str | None = None
    """Text of the first failing mark."""
    passing: int = 0
    unread: int = 0
    """Number of listed lines without a readable mark."""
    prose: int = 0
    """Number of sentences outside the list, which may mention a difference that is not listed."""

    @property
    def all_pass(self) -> bool:
        return (
            self.passing > 0
            and self.failing is None
            and not self.unread
            and not self.prose
        )


class Mark(NamedTuple):
    passes: bool
    text: str


def read_marks(text: str, rule: Consistency) -> Marks:
    """Read the mark on every line of a list."""
    matches = list(itertools.islice(_LINE.finditer(text), MAX_LINES + 1))
    lines = _lines(matches[:MAX_LINES])
    marks = [
        read_mark(line.text, rule) if len(line.text) <= MAX_LINE else None
        for line in lines
    ]
    followers = [*lines[1:], None]
    kinds = [
        _kind(line, follower, mark)
        for line, follower, mark in zip(lines, followers, marks, strict=False)
    ]
    # In a list without bullets, every line is an item if one of them has a mark.
    if "item" not in kinds and any(marks):
        kinds = ["item" if kind == "prose" else kind for kind in kinds]
    listed = {"item", "title"} if "item" in kinds else set()
    return Marks(
        failing=next((mark.text for mark in marks if mark and not mark.passes), None),
        passing=sum(mark is not None and mark.passes for mark in marks),
        unread=sum(
            kind in listed and mark is None
            for kind, mark in zip(kinds, marks, strict=True)
        )
        + (len(matches) > MAX_LINES),
        prose=kinds.count("prose"),
    )


# --- lines ----------------------------------------------------------------------------------------------------

_LINE = re.compile(r"(?<![ \t\u00a0])([ \t\u00a0]*+)(\S[^\n\r\v\f\x85\u2028\u2029]*+)")
_BULLET = re.compile(
    r"(?:>\s*)?(?:[*_]{2})?(?:[-*+•·▪◦‣●○–—]|\(?\d{1,3}[.):]|\(?[A-Za-z][.)])(?:[*_]{2})?\s+"
)
_RULE = re.compile(r"[\W_]*")
_TITLE = re.compile(r"#{1,6}.*|(?:\*\*|__).*(?:\*\*|__)[.:]?|.*:[*_]*")
_NO_DIFFERENCE = re.compile(
    r"(?:none|nothing|no (?:\w+ ){0,3}(?:differences?|changes?)\b.*|n/a)[ .]*",
    re.IGNORECASE,
)


class _Line(NamedTuple):
    indent: int
    bullet: bool
    text: str
    heads_table: bool = False


def _lines(matches: Iterable[re.Match[str]]) -> list[_Line]:
    """Return the lines that contain text. An indented line without a bullet continues the bullet above it."""
    lines: list[_Line] = []
    end = rows = 0
    for match in matches:
        indent = len(match[1])
        line = match[2].strip()
        row = line.startswith("|")
        rule = _RULE.fullmatch(match[2][:MAX_LINE])
        bullet = _BULLET.match(match[2])
        previous = (
            lines[-1]
            if lines and match.string.count("\n", end, match.start()) <= 1
            else None
        )
        end = match.end()
        if row and rule and rows == 1 and previous:
            lines[-1] = previous._replace(heads_table=True)
        rows = rows + 1 if row else 0
        if rule and not bullet:
            continue
        if (
            previous
            and previous.bullet
            and not bullet
            and not row
            and indent > previous.indent
        ):
            lines[-1] = previous._replace(
                text=f"{previous.text} : {line}"[: MAX_LINE + 1]
            )
        elif bullet:
            lines.append(_Line(indent, True, match[2][bullet.end() :].strip()))
        else:
            lines.append(_Line(indent, row, line))
    return lines


def _kind(
    line: _Line, following: _Line | None, mark: Mark | None
) -> Literal["item", "title", "prose", "heading"]:
    """Return the kind of a line: an item of the list, a title that may hide a difference, prose, or a heading."""
    if mark:
        return "item" if line.bullet else "prose"
    opens = (
        following is not None and following.bullet and following.indent > line.indent
    )
    text = line.text.casefold()
    rest = _WORD.sub("", text).strip(" |:#*_&()/,.-")
    title_words = {*_WORD.findall(text)} - word_list("marks", "headings")
    is_title = not rest and all(map(str.isdigit, title_words))
    if is_title and (line.heads_table or opens or not line.bullet):
        return "heading"
    if _NO_DIFFERENCE.fullmatch(line.text.strip("*_ ")):
        return "prose"
    if line.bullet:
        return "item"
    return "title" if _TITLE.fullmatch(line.text) else "prose"


_WORD = re.compile(r"\w+")


# --- marks ----------------------------------------------------------------------------------------------------

_NOT = r"(?:not|never|isn't|is not|aren't|are not|cannot be|can't be)(?: an?)?"
_SEPARATOR = r"(?::|;|[-=]>|[→⇒—–|]|(?<=\s)-(?=\s))"
_CLEAN = re.compile(r"""[\w\s,.;:'"()/%°&+|—–→-]*""")
"""Pattern of a description before a passing mark; other symbols may negate the mark."""
_REMARK = re.compile(
    r"\s*(?:\(([^()]*)\)|\[([^\[\]]*)\]|[,;|](.*)|((?:because|since)\b.*))[\s.|]*"
)
_RULE_VERB = re.compile(
    r"\b(?:is|are|was|were|be|been|being|seems?|cannot|can't|isn't|aren't|whether)\b"
)


class _Patterns(NamedTuple):
    mark: re.Pattern[str]
    """A mark with its separator, as the group `passes`, `fails` or `synonym`."""
    answer: re.Pattern[str]
    """Answers such as `allowed: yes` and `allowed? no`."""
    emphasised: re.Pattern[str]
    """A failing mark in bold or italics, which separates it like quotation marks."""
    vocabulary: re.Pattern[str]
    """Any word that can be part of a mark."""
    denied: re.Pattern[str]
    doubtful: re.Pattern[str]


@functools.lru_cache(maxsize=64)
def _patterns(rule: Consistency) -> _Patterns:
    table = load_table("marks")

    def either(marks: Iterable[str]) -> str:
        return (
            "|".join(
                r"[\s-]?".join(map(re.escape, mark.casefold().split()))
                for mark in marks
            )
            or "(?!)"
        )

    negatable = either(mark for mark in rule.passes if f"not {mark}" in rule.fails)
    fails = rf"{either(rule.fails)}|{_NOT} (?:{negatable})(?: changes?| differences?)?|(?:dis|un|non)[\s-]?(?:{negatable})"
    synonyms = either(
        synonym for mark in rule.fails for synonym in table["synonyms"].get(mark, ())
    )
    passes = rf"(?:an )?(?:{either(rule.passes)})(?: changes?| differences?)?"
    lead = r"""["'(\[]?\s*(?:(?:this|that|it)(?:'s| is) |is |are |clearly )?"""
    apart = rf"""(?:(?P<separator>{_SEPARATOR})\s*{lead}|(?P<quote>["'(\[])\s*|(?P<stop>[.!])\s+|^)"""
    return _Patterns(
        re.compile(
            rf"""{apart}(?:(?:[❌✗✘✖🚫⛔👎×]\s*)?(?:(?P<fails>{fails})|(?P<synonym>{synonyms}))"""
            rf"""|(?:[✅✓✔☑]\s*)?(?P<passes>{passes}))(?![\w-])["')\]]?"""
        ),
        re.compile(
            rf"(?:^|{_SEPARATOR}|[.!])\s*(?:{negatable})\s*[?:]+\s*(?P<answer>yes|no|true|false)[\s.]*$"
        ),
        re.compile(rf"(\*\*|__|[*_`])({fails})\1"),
        re.compile(rf"\b(?:{either((*rule.fails, *rule.passes))}|{negatable})\b"),
        re.compile(rf"(?<!\w)(?:{'|'.join(table['denying_endings'])})[^\w']*$"),
        re.compile(rf"(?<!\w)(?:{'|'.join(table['doubtful_descriptions'])})(?!\w)|\?"),
    )


def read_mark(line: str, rule: Consistency) -> Mark | None:
    """Return the mark on a line, or None if the line does not have a clear form."""
    patterns = _patterns(rule)
    text = _plain(line, patterns)
    answer = patterns.answer.search(text)
    marks = list(patterns.mark.finditer(text))
    match = answer or (marks[-1] if marks else None)
    if match is None and "not allowed" in rule.fails and not _RULE_VERB.search(text):
        # "dis-allowed" at the end needs no separator, unless the line is a sentence, which may restate a rule.
        match = re.search(r"\sdis-?allowed[\s.]*$", text)
    if match is None:
        return None
    description = text[: match.start()]
    mark = Mark(False, "disallowed")
    if answer:
        mark = Mark(answer["answer"] in ("yes", "true"), answer[0].strip(" :;.!|"))
    elif marks:
        passes = match["passes"] is not None
        mark = Mark(passes, match["passes"] or match["fails"] or match["synonym"])
        if not _stands_apart(match, description):
            return None
        if not _is_clean_remark(text[match.end() :], description, passes=passes):
            return None
    is_clean = _is_clean(description, patterns, passes=mark.passes)
    return mark if is_clean else None


def _stands_apart(match: re.Match[str], description: str) -> bool:
    """Whether a mark is separate from the description before it, and is not a quotation of text in the image."""
    if match["passes"] is not None and not match["separator"]:
        return False
    text = match[0].replace("n't", "")
    is_quoted = '"' in text or "'" in text or match["synonym"]
    described = set(_WORD.findall(description))
    return bool(described) and not (
        is_quoted and word_list("marks", "lettering") & described
    )


_ONE_SPELLING = str.maketrans("‘’´“”«»„", '\'\'\'"""""', "\ufe0f")
_NO_EMPHASIS = str.maketrans("", "", "*_`")
_JOINED = re.compile(r"(?<=\w)_(?=\w)")


def _plain(line: str, patterns: _Patterns) -> str:
    """Return a line in lower case, without emphasis, and with uniform quotation marks."""
    text = unicodedata.normalize("NFKC", line).casefold().translate(_ONE_SPELLING)
    if "*" in text or "_" in text or "`" in text:
        text = _JOINED.sub(" ", patterns.emphasised.sub(r'"\2"', text)).translate(
            _NO_EMPHASIS
        )
    return " ".join(text.split()).strip(" |")


def _is_clean(description: str, patterns: _Patterns, *, passes: bool) -> bool:
    """Whether the description before a mark contains nothing that could negate the mark."""
    if "?" in description or "~" in description:
        return False
    if patterns.denied.search(description) or patterns.vocabulary.search(description):
        return False
    return not passes or bool(
        _CLEAN.fullmatch(description) and not patterns.doubtful.search(description)
    )


def _is_clean_remark(remark: str, description: str, *, passes: bool) -> bool:
    """Whether the text after a mark only explains the mark."""
    if not remark.strip(" .|"):
        return True
    match = _REMARK.fullmatch(remark)
    text = next(filter(None, match.groups()), "").strip(" .") if match else ""
    reasons = (
        word_list("marks", "passing_remarks")
        if passes
        else word_list("marks", "failing_remarks") | set(_WORD.findall(description))
    )
    parts = re.findall(r"[^\W\d]+", text)
    return (
        bool(parts)
        and re.fullmatch(r"[^\W\d_][^\W\d_ ,]*(?:,? [^\W\d_]+)*", text) is not None
        and set(parts) <= reasons
    )
