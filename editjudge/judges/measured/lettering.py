"""Text edits: what the instruction wants written, what stands in the pictures, and what that proves."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from editjudge.judges.measured.scene import Array

Act = Literal["write", "replace", "delete", "script"]


@dataclass(frozen=True)
class Request:
    """What an instruction asks of the lettering, where it says so letter by letter."""

    act: Act
    """`script`: all lettering of one script is to go (`old`) or to come (`new`)."""
    old: str = ""
    new: str = ""


@dataclass(frozen=True)
class Line:
    text: str
    confidence: float
    box: tuple[float, float, float, float]
    """Left, top, right, bottom, as shares of the picture."""


@dataclass(frozen=True)
class Reading:
    """What the pictures prove about a request: `done`, `blurred`, `misspelt`, `misplaced`, `undone`, or nothing."""

    outcome: Literal["done", "blurred", "misspelt", "misplaced", "undone"] | None
    words: str


# --- what is asked --------------------------------------------------------------------------------------------

_QUOTED = re.compile(r"(?<!\w)(?:'([^'\n]+(?:'\w[^'\n]*)*)'|\"([^\"\n]+)\"|“([^”\n]+)”|‘([^’\n]+)’|「([^」\n]+)」)")
_OTHER_WISH = re.compile(
    r"\b(?:move|relocat\w*|switch|swap|scale|resiz\w*|enlarge|reduce|shrink|size|font|colou?r|bold|italic"
    r"|align\w*\b(?! inside)|position\w*|rotate|larger|smaller|bigger|horizontal|vertical)\b",
    re.IGNORECASE,
)
_REPLACE = re.compile(
    r"\b(?:change|replac\w*|translat\w*|turn|correct|edit|modif\w*|rewrit\w*|swap|rename)\b", re.IGNORECASE
)
_DELETE = re.compile(r"\b(?:delet\w*|remov\w*|eras\w*|take (?:out|away)|get rid of)\b", re.IGNORECASE)
_WRITE = re.compile(
    r"\b(?:add|insert|writ\w*|put|print|say\w*|read\w*|spell\w*|display\w*|with the (?:words?|text))\b", re.IGNORECASE
)
_NUMBER = r"(\d[\d/.:,-]*\d|\d)"
_PLAIN = re.compile(rf"\b(?:change|replace|turn)\s+{_NUMBER}\s+(?:to|with|into|by)\s+{_NUMBER}", re.IGNORECASE)
_NUMBERED = re.compile(
    rf"\b(?:change|set|update|make)\b[^.;]*\b(?:year|date|number|price|time|score)\b[^.;]*? (?:to|be) {_NUMBER}\s*\.?$"
    rf"|\b(?:number|no\.) {_NUMBER}\s*\.?$",
    re.IGNORECASE,
)
_BESIDE = re.compile(r"\b(?:below|under|above|over|beside|next to|between|before|after|in the middle of|from)\b", re.I)
"""What is quoted after these is where, not what."""
_SCRIPT = re.compile(
    r"\b(?:the |all |any )*(Chinese|English|Latin)(?: (?:text|characters?|words?|letters?|writing))?\b", re.I
)
_INTO_SCRIPT = re.compile(r"\b(?:translat\w*|chang\w*|turn\w*|rewrit\w*)\b.*\b(?:to|into|in) (Chinese)\s*\.?$", re.I)
_LETTERS = {"chinese": "一-鿿", "english": "a-z", "latin": "a-z"}


def request(instruction: str) -> tuple[Request, ...]:
    """What is to be written or removed, letter by letter; nothing where the instruction does not say exactly that."""
    if plain := _PLAIN.search(instruction):
        return (Request("replace", plain[1], plain[2]),)
    marks = list(_QUOTED.finditer(instruction))
    unquoted = _QUOTED.sub(" ", instruction)
    if _OTHER_WISH.search(unquoted.split(", keeping")[0].split(" while keeping")[0]):
        return ()
    if not marks:
        return _unquoted(instruction)
    quoted = [next(filter(None, mark.groups())) for mark in marks]
    if _DELETE.search(unquoted):
        return (Request("delete", old=quoted[0]),)
    if _REPLACE.search(unquoted):
        return (Request("replace", quoted[0], quoted[1]),) if len(quoted) == 2 else ()
    if _WRITE.search(unquoted):
        # "Write 'this' below 'that'": only the first is to be written.
        told = [
            text for text, mark in zip(quoted, marks, strict=True) if not _BESIDE.search(instruction[: mark.start()])
        ]
        return tuple(Request("write", new=text) for text in told)
    return ()


def _unquoted(instruction: str) -> tuple[Request, ...]:
    """A number that something is to show, or a script that is to go or to come."""
    if number := _NUMBERED.search(instruction):
        return (Request("write", new=number[1] or number[2]),)
    if into := _INTO_SCRIPT.search(instruction):
        return (Request("script", new=into[1].lower()),)
    script = _SCRIPT.search(instruction)
    if script and (verb := _DELETE.match(instruction)) and instruction[verb.end() : script.start()].strip() == "":
        return (Request("script", old=script[1].lower()),)
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


def read_lines(picture: Array) -> list[Line]:
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
            Line(text, float(confidence), (float(xs.min()), float(ys.min()), float(xs.max()), float(ys.max())))
        )
    return lines


# --- what that proves -----------------------------------------------------------------------------------------

_SURE = 0.85
"""Confidence of the reader above which letters are well formed: print in photographs is read at .95 and more."""
_ALIKE = 0.6
"""Share of letters in place from which a text is a misspelling, and no other text."""


_ORDER = ("undone", "misspelt", "misplaced", "blurred", "done")


def compare_all(
    wishes: Sequence[Request], before: Sequence[Line], after: Sequence[Line], mask: Array | None
) -> Reading:
    """Of several wishes the worst outcome counts, where all are proven and none is missing beside one that is done."""
    found = [compare(wish, before, after, mask) for wish in wishes]
    outcomes = {reading.outcome for reading in found}
    if None in outcomes or outcomes >= {"done", "undone"}:
        return next((r for r in found if r.outcome is None), Reading(None, "only a part of the text could be read"))
    return min(found, key=lambda reading: _ORDER.index(str(reading.outcome)))


def compare(wish: Request, before: Sequence[Line], after: Sequence[Line], mask: Array | None) -> Reading:
    if wish.act == "script":
        return _scripted(wish, before, after)
    if wish.act == "delete":
        return _deleted(wish.old, before, after)
    count_before, count_after = (_count(wish.new, lines) for lines in (before, after))
    if count_after > count_before:
        return _written(wish.new, before, after, mask)
    if count_after:
        return Reading(None, f'"{wish.new}" stood in the input already')
    nearest, text, confidence = _nearest(wish.new, _added(before, after))
    if wish.act == "replace" and not _count(wish.old, before):
        return Reading(None, f'"{wish.old}" could not be read in the input')
    if wish.act == "replace" and _count(wish.old, after) >= _count(wish.old, before):
        return Reading("undone", f'"{wish.old}" still stands in the edited picture, and "{wish.new}" cannot be read')
    if nearest >= _ALIKE and confidence >= _SURE:
        return Reading("misspelt", f'"{wish.new}" was asked for, and "{text}" is written')
    if not _added(before, after):
        return Reading("undone", f'no text was added, and "{wish.new}" cannot be read anywhere')
    return Reading(None, f'"{wish.new}" could not be read, and nothing else proves that it is missing')


def _written(new: str, before: Sequence[Line], after: Sequence[Line], mask: Array | None) -> Reading:
    lines = [line for line in _added(before, after) if _plain(line.text) and _shares(new, line.text)]
    sure = min((line.confidence for line in lines), default=1.0)
    if mask is not None and lines and not any(_covers(mask, line) for line in lines):
        return Reading("misplaced", f'"{new}" is written, but outside the region that the edit was meant for')
    if sure < _SURE:
        return Reading("blurred", f'"{new}" can be read, but its letters are malformed (confidence {sure:.2f})')
    return Reading("done", f'"{new}" can be read in the edited picture, spelt as asked (confidence {sure:.2f})')


def _scripted(wish: Request, before: Sequence[Line], after: Sequence[Line]) -> Reading:
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
            return Reading("undone", f"the lettering of the input still stands, and no {name.title()} was added")
        return Reading(None, f"whether the {name.title()} lettering says what was asked takes understanding")
    if was < 2:
        return Reading(None, f"no {name.title()} lettering could be read in the input")
    if now == 0:
        return Reading("done", f"{was} {name.title()} letters stood in the input and none can be read any more")
    return Reading("undone" if now >= was else None, f"{now} of {was} {name.title()} letters can still be read")


def _deleted(old: str, before: Sequence[Line], after: Sequence[Line]) -> Reading:
    was, now = _count(old, before), _count(old, after)
    if not was:
        return Reading(None, f'"{old}" could not be read in the input')
    if now >= was:
        return Reading("undone", f'"{old}" still stands in the edited picture')
    if _nearest(old, _added(before, after))[0] >= _ALIKE:
        return Reading(None, f'something like "{old}" is still there')
    return Reading("done", f'"{old}" stood in the input and is gone')


def _added(before: Sequence[Line], after: Sequence[Line]) -> list[Line]:
    there = {_plain(line.text) for line in before}
    return [line for line in after if _plain(line.text) not in there]


def _plain(text: str) -> str:
    """Letters and digits: readers lose spaces, and take a comma for a full stop."""
    return re.sub(r"[\W_]+", "", text).casefold()


def _count(text: str, lines: Sequence[Line]) -> int:
    return "".join(_plain(line.text) for line in lines).count(_plain(text)) if _plain(text) else 0


def _shares(wanted: str, found: str) -> bool:
    a, b = _plain(wanted), _plain(found)
    return a in b or b in a


def _covers(mask: Array, line: Line) -> bool:
    height, width = mask.shape
    left, top, right, bottom = line.box
    part = mask[int(top * height) : int(bottom * height) + 1, int(left * width) : int(right * width) + 1]
    return bool(part.any())


def _nearest(wanted: str, lines: Sequence[Line]) -> tuple[float, str, float]:
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
