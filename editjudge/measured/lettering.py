"""Text edits: what the instruction wants written, what stands in the pictures, and what that proves."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from editjudge.measured.phrasing import bare
from editjudge.measured.scene import Array

Act = Literal["write", "replace", "delete", "script"]


@dataclass(frozen=True)
class TextRequest:
    """What an instruction asks of the lettering, where it says so letter by letter."""

    act: Act
    """`script`: all lettering of one script is to go (`old`) or to come (`new`)."""
    old: str = ""
    new: str = ""
    where: str = ""
    """The words that say where it is to be written, such as "in the upper left corner"."""


@dataclass(frozen=True)
class TextLine:
    text: str
    confidence: float
    box: tuple[float, float, float, float]
    """Left, top, right, bottom, as shares of the picture."""


@dataclass(frozen=True)
class TextReading:
    """What the pictures prove about a request: `done`, `blurred`, `misspelt`, `misplaced`, `undone`, or nothing."""

    outcome: Literal["done", "blurred", "misspelt", "misplaced", "undone"] | None
    words: str


# --- what is asked --------------------------------------------------------------------------------------------

_VERBS = (
    r"add|insert|put|place|write|print|type|paint|draw|make|turn|change|replace|swap|delete|remove|erase|take|get|move"
    r"|relocate|switch|scale|resize|enlarge|reduce|shrink|rotate|align|translate|recolou?r|colou?r|set|give|let|create"
)
_SECOND_WISH = re.compile(rf"\b(?:{_VERBS})\b", re.IGNORECASE)
"""In the words that say where: another wish stands there, of which the lettering proves nothing."""
_LOOK = re.compile(
    r"\b(?:sizes?|fonts?|colou?rs?|bold|italics?|position\w*|larger|smaller|bigger|horizontal\w*"
    r"|vertical\w*|number of)\b",
    re.IGNORECASE,
)
"""A wish about the look of the letters, or a count of things."""
_LANGUAGE = re.compile(
    r"(?:\w+ )?(?:chinese|english|french|german|spanish|japanese|korean|italian|russian|arabic"
    r"|portuguese|hindi|turkish)",
    re.IGNORECASE,
)
_QUOTE = r"⟦(\d+)⟧"
_QUOTES = r"((?:⟦\d+⟧(?:, and |,? and |, | )?)+)"
_KIND = (
    r"(?:texts?|words?|letters?|lettering|phrases?|sentences?|titles?|subtitles?|captions?|headlines?|headings?|slogans?"
    r"|labels?|numbers?|digits?|dates?|names?|lines?|characters?|inscriptions?|writing|message)"
)
_TEXT = rf"(?:(?:the|this|that|a|an|these|those) )?(?:\w+ ){{0,2}}?{_KIND}"
_CARRIER = (
    r"(?:sign|banner|poster|label|sticker|billboard|logo|plate|board|flag|bubble|note|tag|badge|watermark|shirt|t-shirt"
    r"|screen|cover|plaque|placard|signboard)"
)
_SAYS = r"(?:that (?:says|reads)|which (?:says|reads)|saying|reading|with the (?:words?|text|lettering|inscription))"
_WHERE = (
    r"((?: (?:in|on|onto|into|at|from|to|under|below|above|over|beside|near|next to|within|inside|across|of|between"
    r"|behind|along|by|as)\b[^,;.!?]*)?)"
)
_NUMBER = r"(\d[\d/.:,-]*\d|\d)"
_CHANGE = r"(?:change|replace|edit|modify|rewrite|rename|correct|translate|turn|update|convert)"
_ADD = r"(?:add|insert|put|place|include|write|print|type|paint|engrave|overlay|stamp)"
_DROP = r"(?:delete|remove|erase|get rid of|take out|take away)"
_SCRIPT = r"(Chinese|English|Latin)"


def _whole(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_DELETE = _whole(rf"{_DROP} (?:{_TEXT} |the )?{_QUOTES}{_WHERE}")
_REPLACE = (
    _whole(rf"{_CHANGE} (?:{_TEXT} (?:of )?)?{_QUOTE}{_WHERE} (?:to|with|by|into) (?:{_TEXT} )?{_QUOTE}{_WHERE}"),
    _whole(rf"swap (?:{_TEXT} )?{_QUOTE}{_WHERE} for (?:{_TEXT} )?{_QUOTE}{_WHERE}"),
    _whole(rf"change (?:{_TEXT}|the (?:\w+ )?{_CARRIER}){_WHERE} from {_QUOTE} to {_QUOTE}{_WHERE}"),
)
_PLAIN = _whole(rf"(?:change|replace) {_NUMBER} (?:to|with|by) {_NUMBER}{_WHERE}")
_WRITE = (
    _whole(rf"{_ADD} {_TEXT}(?: of| {_SAYS})?:? {_QUOTES}{_WHERE}"),
    _whole(rf"(?:write|print|type|spell|spell out|engrave) {_QUOTES}{_WHERE}"),
    _whole(rf"{_ADD} (?:a|an|the)(?: \w+){{0,2}} {_CARRIER} {_SAYS} {_QUOTES}{_WHERE}"),
    _whole(rf"(?:make|let|have) (?:the|this|that|his|her|its)(?: \w+){{1,4}} (?:say|read|spell) {_QUOTES}{_WHERE}"),
    _whole(rf"(?:change|set|update|edit|modify) {_TEXT}{_WHERE} to (?:say |read )?{_QUOTES}{_WHERE}"),
    _whole(rf"(?:change|set|update|edit|modify) the (?:\w+ )?{_CARRIER}{_WHERE} to (?:say|read) {_QUOTES}{_WHERE}"),
    _whole(rf"replace {_TEXT}{_WHERE} (?:with|by) {_QUOTES}{_WHERE}"),
)
_NUMBERED = (
    # "The number of cats" is a count and no lettering; the time of a clock may be its hands.
    _whole(
        rf"(?:change|set|update) the (?:year|date|price|score|(?:\w+ )?number)"
        rf"((?: (?:on|in|at) [^,;.]*?)?) to {_NUMBER}"
    ),
    _whole(rf"an? (?:photo|picture|image) of [^,;.]*()number {_NUMBER}"),
)
_INTO_SCRIPT = _whole(
    rf"(?:(?:translate|convert|change|turn|rewrite) {_TEXT}(?: [^,;.]*)?|translate [^,;.]*"
    rf"|let {_TEXT}(?: [^,;.]*)? be changed)"
    r" (?:to|into|in) (Chinese)"
)
_DROP_SCRIPT = _whole(
    rf"{_DROP} (?:(?:the|all|all the) )?{_SCRIPT}(?: (?:text|characters?|words?|letters?|writing))?{_WHERE}"
)
_LETTERS = {"chinese": "一-鿿", "english": "a-z", "latin": "a-z"}


def request(instruction: str) -> tuple[TextRequest, ...]:
    """What is to be written or removed, letter by letter; nothing where the instruction does not say exactly that."""
    text, quoted = bare(instruction) or ("", ())
    if _LOOK.search(text):
        return ()
    if not quoted:
        return _unquoted(text)
    if match := _DELETE.fullmatch(text):
        return _one_wish(match[2], *(TextRequest("delete", old=quoted[n]) for n in _numbers(match[1])))
    if match := next((m for p in _REPLACE if (m := p.fullmatch(text))), None):
        tails, marks = [g for g in match.groups() if not g.isdigit()], [int(g) for g in match.groups() if g.isdigit()]
        old, new = quoted[marks[0]], quoted[marks[1]]
        return () if _LANGUAGE.fullmatch(new) else _one_wish("".join(tails), TextRequest("replace", old, new))
    if match := next((m for p in _WRITE if (m := p.fullmatch(text))), None):
        *tails, where = [group for group in match.groups() if not group.startswith("⟦")]
        listed = next(group for group in match.groups() if group.startswith("⟦"))
        return _one_wish(
            "".join(tails) + where,
            *(TextRequest("write", new=quoted[n], where=where.strip()) for n in _numbers(listed)),
        )
    return ()


def _numbers(marks: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", marks)]


def _one_wish(tail: str, *wishes: TextRequest) -> tuple[TextRequest, ...]:
    return () if _SECOND_WISH.search(tail) else wishes


def _unquoted(text: str) -> tuple[TextRequest, ...]:
    """A number that something is to show, or a script that is to go or to come."""
    if plain := _PLAIN.fullmatch(text):
        return _one_wish(plain[3], TextRequest("replace", plain[1], plain[2]))
    if number := next((m for p in _NUMBERED if (m := p.fullmatch(text))), None):
        return _one_wish(number[1], TextRequest("write", new=number[2]))
    if into := _INTO_SCRIPT.fullmatch(text):
        return (TextRequest("script", new=into[1].lower()),)
    if script := _DROP_SCRIPT.fullmatch(text):
        return _one_wish(script[2], TextRequest("script", old=script[1].lower()))
    return ()


# --- what is there --------------------------------------------------------------------------------------------

_READING = threading.Lock()


@lru_cache(maxsize=1)
def _reader() -> Any:
    """The engine, with the weights that its package carries; one thread, because workers are the parallelism."""
    import logging

    from rapidocr import RapidOCR

    logging.getLogger("RapidOCR").setLevel(logging.ERROR)
    threads = {f"EngineConfig.onnxruntime.{name}_op_num_threads": 1 for name in ("intra", "inter")}
    return RapidOCR(params={"Global.log_level": "error", **threads})


def read_lines(picture: Array) -> list[TextLine]:
    """The lines of text in an RGB picture, from the top."""
    with _READING:  # the engine keeps state between its steps
        found = _reader()(np.ascontiguousarray(picture[..., ::-1]))
    if found.txts is None:
        return []
    height, width = picture.shape[:2]
    lines = []
    for box, text, confidence in zip(found.boxes, found.txts, found.scores, strict=True):
        xs, ys = np.asarray(box)[:, 0] / width, np.asarray(box)[:, 1] / height
        lines.append(
            TextLine(text, float(confidence), (float(xs.min()), float(ys.min()), float(xs.max()), float(ys.max())))
        )
    return lines


# --- what that proves -----------------------------------------------------------------------------------------

_SURE = 0.85
"""Confidence of the reader above which letters are well formed: print in photographs is read at .95 and more."""
_ALIKE = 0.6
"""Share of letters in place from which a text is a misspelling, and no other text."""


_ORDER = ("undone", "misspelt", "misplaced", "blurred", "done")


def compare_all(
    wishes: Sequence[TextRequest], before: Sequence[TextLine], after: Sequence[TextLine], mask: Array | None
) -> TextReading:
    """Of several wishes the worst outcome counts, where all are proven and none is missing beside one that is done."""
    found = [compare(wish, before, after, mask) for wish in wishes]
    outcomes = {reading.outcome for reading in found}
    if None in outcomes or outcomes >= {"done", "undone"}:
        return next((r for r in found if r.outcome is None), TextReading(None, "only a part of the text could be read"))
    return min(found, key=lambda reading: _ORDER.index(str(reading.outcome)))


def compare(
    wish: TextRequest, before: Sequence[TextLine], after: Sequence[TextLine], mask: Array | None
) -> TextReading:
    if wish.act == "script":
        return _scripted(wish, before, after)
    if wish.act == "delete":
        return _deleted(wish.old, before, after)
    count_before, count_after = (_count(wish.new, lines) for lines in (before, after))
    if count_after > count_before:
        return _written(wish.new, wish.where, before, after, mask)
    if count_after:
        return TextReading(None, f'"{wish.new}" stood in the input already')
    nearest, text, confidence = _nearest(wish.new, _added(before, after))
    if wish.act == "replace" and not _count(wish.old, before):
        return TextReading(None, f'"{wish.old}" could not be read in the input')
    if wish.act == "replace" and _count(wish.old, after) >= _count(wish.old, before):
        return TextReading(
            "undone", f'"{wish.old}" still stands in the edited picture, and "{wish.new}" cannot be read'
        )
    if nearest >= _ALIKE and confidence >= _SURE:
        return TextReading("misspelt", f'"{wish.new}" was asked for, and "{text}" is written')
    if not _added(before, after):
        return TextReading("undone", f'no text was added, and "{wish.new}" cannot be read anywhere')
    return TextReading(None, f'"{wish.new}" could not be read, and nothing else proves that it is missing')


def _written(
    new: str, where: str, before: Sequence[TextLine], after: Sequence[TextLine], mask: Array | None
) -> TextReading:
    lines = [line for line in _added(before, after) if _plain(line.text) and _shares(new, line.text)]
    sure = min((line.confidence for line in lines), default=1.0)
    if mask is not None and lines and not any(_covers(mask, line) for line in lines):
        return TextReading("misplaced", f'"{new}" is written, but outside the region that the edit was meant for')
    if mask is None and lines and not any(_stands(line, where) for line in lines):
        return TextReading("misplaced", f'"{new}" is written, but not {where}')
    if sure < _SURE:
        return TextReading("blurred", f'"{new}" can be read, but its letters are malformed (confidence {sure:.2f})')
    return TextReading("done", f'"{new}" can be read in the edited picture, spelt as asked (confidence {sure:.2f})')


def _scripted(wish: TextRequest, before: Sequence[TextLine], after: Sequence[TextLine]) -> TextReading:
    """Whether letters of a script went or came: that none came is proof, that some did proves no translation."""
    name = wish.old or wish.new
    was, now = (
        len(re.findall(f"[{_LETTERS[name]}]", "".join(line.text for line in lines if line.confidence > _SURE), re.I))
        for lines in (before, after)
    )
    if wish.new:
        # Unread writing may be there; only where all that was read still stands was nothing translated.
        still = before and {_plain(line.text) for line in before} <= {_plain(line.text) for line in after}
        if still and now <= was:
            return TextReading("undone", f"the lettering of the input still stands, and no {name.title()} was added")
        return TextReading(None, f"whether the {name.title()} lettering says what was asked takes understanding")
    if was < 2:
        return TextReading(None, f"no {name.title()} lettering could be read in the input")
    if now == 0:
        return TextReading("done", f"{was} {name.title()} letters stood in the input and none can be read any more")
    return TextReading("undone" if now >= was else None, f"{now} of {was} {name.title()} letters can still be read")


def _deleted(old: str, before: Sequence[TextLine], after: Sequence[TextLine]) -> TextReading:
    was, now = _count(old, before), _count(old, after)
    if not was:
        return TextReading(None, f'"{old}" could not be read in the input')
    if now >= was:
        return TextReading("undone", f'"{old}" still stands in the edited picture')
    if now:
        return TextReading(None, f'"{old}" stood {was} times in the input and can still be read {now} times')
    if _nearest(old, _added(before, after))[0] >= _ALIKE:
        return TextReading(None, f'something like "{old}" is still there')
    return TextReading("done", f'"{old}" stood in the input and is gone')


def _added(before: Sequence[TextLine], after: Sequence[TextLine]) -> list[TextLine]:
    there = {_plain(line.text) for line in before}
    return [line for line in after if _plain(line.text) not in there]


def _plain(text: str) -> str:
    """Letters and digits: readers lose spaces, and take a comma for a full stop."""
    return re.sub(r"[\W_]+", "", text).casefold()


def _count(text: str, lines: Sequence[TextLine]) -> int:
    wanted = _plain(text)
    if len(wanted) < 3:  # a letter or two occur within most words
        return sum(_plain(word) == wanted for line in lines for word in line.text.split()) if wanted else 0
    return "".join(_plain(line.text) for line in lines).count(wanted)


def _shares(wanted: str, found: str) -> bool:
    a, b = _plain(wanted), _plain(found)
    return a in b or b in a


_SIDE = re.compile(
    r"(?:in|at|on|to|into|onto) the (?:very )?((?:upper|top|lower|bottom|left|right)(?:[- ]?(?:left|right))?)"
    r"(?:[- ]hand)?"
    r"(?: (?:corner|side|edge|half|part))?(?: (?:of|in) the (?:picture|image|photo|photograph|page|frame))?",
    re.IGNORECASE,
)
_BEYOND = 0.1
"""Of the picture's side, over its middle: a line whose centre lies farther is on the other side for everybody."""


def _stands(line: TextLine, where: str) -> bool:
    """Whether a line is on the side that was named; what is said of another place decides nothing."""
    if not (side := _SIDE.fullmatch(where)):
        return True
    x, y = (line.box[0] + line.box[2]) / 2 - 0.5, (line.box[1] + line.box[3]) / 2 - 0.5
    off = {"left": x, "right": -x, "upper": y, "top": y, "lower": -y, "bottom": -y}
    return all(beyond <= _BEYOND for name, beyond in off.items() if name in side[1].lower())


def _covers(mask: Array, line: TextLine) -> bool:
    height, width = mask.shape
    left, top, right, bottom = line.box
    part = mask[int(top * height) : int(bottom * height) + 1, int(left * width) : int(right * width) + 1]
    return bool(part.any())


def _nearest(wanted: str, lines: Sequence[TextLine]) -> tuple[float, str, float]:
    """The line that comes closest, by edit distance over the length of what was wanted."""
    best = (0.0, "", 0.0)
    for line in lines:
        near = 1 - _distance(_plain(wanted), _plain(line.text)) / max(1, len(_plain(wanted)))
        best = max(best, (near, line.text, line.confidence))
    return best


def _distance(wanted: str, text: str) -> int:
    """Edits that turn some part of the text into what was wanted."""
    row = [0] * (len(text) + 1)
    for i, a in enumerate(wanted, 1):
        above, row = row, [i]
        for j, b in enumerate(text, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b)))
    return min(row)
