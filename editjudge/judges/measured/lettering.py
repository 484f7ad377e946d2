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

Act = Literal["write", "replace", "delete"]


@dataclass(frozen=True)
class Request:
    """What an instruction asks of the lettering, where it says it in quotation marks."""

    act: Act
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
_PLAIN = re.compile(
    r"\b(?:change|replace|turn)\s+([\d][\d/.:,-]*)\s+(?:to|with|into|by)\s+([\d][\d/.:,-]*\d|\d)", re.IGNORECASE
)


def request(instruction: str) -> Request | None:
    """What is to be written or removed, letter by letter; None where the instruction does not say exactly that."""
    if plain := _PLAIN.search(instruction):
        return Request("replace", plain[1].rstrip(".,"), plain[2].rstrip(".,"))
    quoted = [next(filter(None, m.groups())) for m in _QUOTED.finditer(instruction)]
    unquoted = _QUOTED.sub(" ", instruction)
    if not quoted or _OTHER_WISH.search(unquoted.split(", keeping")[0].split(" while keeping")[0]):
        return None
    if _DELETE.search(unquoted):
        return Request("delete", old=quoted[0])
    if _REPLACE.search(unquoted):
        return Request("replace", quoted[0], quoted[1]) if len(quoted) == 2 else None
    if _WRITE.search(unquoted) and len(quoted) == 1:
        return Request("write", new=quoted[0])
    return None


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


def compare(wish: Request, before: Sequence[Line], after: Sequence[Line], mask: Array | None) -> Reading:
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
