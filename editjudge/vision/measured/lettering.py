"""Text edits: the text that an instruction requests, the lines read in the images, and what these lines prove."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from editjudge.vision.measured.phrasing import bare, first_match, mentions
from editjudge.vision.measured.scene import Array


@dataclass(frozen=True)
class TextRequest:
    """A request for lettering that an instruction spells out letter by letter."""

    act: Literal["write", "replace", "delete", "script"]
    """Kind of change. `script` means that all lettering of one script should disappear (`old`) or appear (`new`)."""
    old: str = ""
    new: str = ""
    where: str = ""
    """Words that describe its position, such as "in the upper left corner"."""


@dataclass(frozen=True)
class TextLine:
    text: str
    confidence: float
    box: tuple[float, ...]
    """Left, top, right, bottom, as shares of the image."""

    @cached_property
    def plain(self) -> str:
        return plain(self.text)

    def holds(self, text: str) -> bool:
        """Whether the line is part of the text, or the text is part of the line."""
        wanted = plain(text)
        return bool(self.plain) and (wanted in self.plain or self.plain in wanted)

    def is_on(self, side: str) -> bool:
        """Whether the line is on a side such as "upper left"."""
        x = (self.box[0] + self.box[2]) / 2 - 0.5
        y = (self.box[1] + self.box[3]) / 2 - 0.5
        off = {"left": x, "right": -x, "upper": y, "top": y, "lower": -y, "bottom": -y}
        return all(beyond <= _BEYOND for name, beyond in off.items() if name in side)

    def touches(self, mask: Array) -> bool:
        height, width = mask.shape
        left, top, right, bottom = self.box
        rows = slice(int(top * height), int(bottom * height) + 1)
        columns = slice(int(left * width), int(right * width) + 1)
        return bool(mask[rows, columns].any())

    def gap(self, other: TextLine) -> float:
        """Return the gap between the boxes of two lines as a share of the image's side."""
        across = max(self.box[0], other.box[0]) - min(self.box[2], other.box[2])
        down = max(self.box[1], other.box[1]) - min(self.box[3], other.box[3])
        return max(across, down)

    def as_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "confidence": round(self.confidence, 3),
            "box": [round(side, 4) for side in self.box],
        }


@dataclass(frozen=True)
class TextReading:
    """What the lines prove about a request: `done`, `blurred`, `misspelt`, `misplaced`, `undone`, or nothing."""

    outcome: Literal["done", "blurred", "misspelt", "misplaced", "undone"] | None
    finding: str
    degree: int = 0
    """Severity of a fault that has degrees, from 0 for the slightest."""


# --- requests -------------------------------------------------------------------------------------------------


def request(instruction: str) -> tuple[TextRequest, ...]:
    """Return the requested changes of lettering; empty unless the instruction requests these changes and nothing else."""
    text, quoted = bare(instruction) or ("", ())
    wishes, where = _wishes(text, quoted)
    # The words that describe the position may contain another request, about which lettering proves nothing.
    return () if mentions("second_wish", where) else tuple(wishes)


def _wishes(text: str, quoted: Sequence[str]) -> tuple[list[TextRequest], str]:
    """Return the requests, and the words that describe their position."""
    if not quoted:
        if match := first_match("lettering.into_script", text):
            return [TextRequest("script", new=match[1].lower())], ""
        if match := first_match("lettering.drop_script", text):
            return [TextRequest("script", old=match[1].lower())], match[2]
    if mentions("lettering_unknown", text):
        return [], ""
    if not quoted:
        if match := first_match("lettering.replace_number", text):
            where = match[3].strip()
            return [TextRequest("replace", match[1], match[2], where)], where
        if match := first_match("lettering.write_number", text):
            where = match[1].strip()
            return [TextRequest("write", new=match[2], where=where)], where
    for act in ("delete", "replace", "write"):
        match = first_match(f"lettering.{act}", text)
        if match is None:
            continue
        marks = [g for g in match.groups() if g.isdigit() or g.startswith("⟦")]
        where = "".join(g for g in match.groups() if g not in marks).strip()
        texts = [quoted[int(number)] for number in re.findall(r"\d+", " ".join(marks))]
        if act == "delete":
            return [TextRequest("delete", old, where=where) for old in texts], where
        if act == "write":
            return [TextRequest("write", new=new, where=where) for new in texts], where
        old, new = texts
        if not first_match("language", new):
            return [TextRequest("replace", old, new, where)], where
        break
    return [], ""


# --- lines ----------------------------------------------------------------------------------------------------

_ENGINES = threading.local()


def _reader() -> Any:
    """Return the OCR engine of this thread, with the weights included in its package. It is not shared between threads,
    because it keeps state between its steps."""
    if not hasattr(_ENGINES, "reader"):
        import logging

        from rapidocr import RapidOCR

        logging.getLogger("RapidOCR").setLevel(logging.ERROR)
        # One thread each, since there is a worker for each core.
        threads = {
            f"EngineConfig.onnxruntime.{name}_op_num_threads": 1
            for name in ("intra", "inter")
        }
        _ENGINES.reader = RapidOCR(params={"Global.log_level": "error", **threads})
    return _ENGINES.reader


def read_lines(image: Array) -> list[TextLine]:
    """Read the lines of text in an RGB image, from top to bottom."""
    result = _reader()(np.ascontiguousarray(image[..., ::-1]))
    if result.txts is None:
        return []
    height, width = image.shape[:2]
    lines = []
    for box, text, confidence in zip(
        result.boxes, result.txts, result.scores, strict=True
    ):
        left, top = np.min(box, axis=0)
        right, bottom = np.max(box, axis=0)
        sides = (left / width, top / height, right / width, bottom / height)
        lines.append(TextLine(text, float(confidence), tuple(map(float, sides))))
    return lines


def plain(text: str) -> str:
    """Return only the letters and digits of a text, since OCR loses spaces and confuses commas with full stops."""
    return re.sub(r"[\W_]+", "", text).casefold()


def _count(text: str, lines: Sequence[TextLine]) -> int:
    wanted = plain(text)
    if not wanted:
        return 0
    if len(wanted) < 3:  # one or two letters occur in most words
        return sum(
            plain(part) == wanted for line in lines for part in line.text.split()
        )
    return "".join(line.plain for line in lines).count(wanted)


def _added(before: Sequence[TextLine], after: Sequence[TextLine]) -> list[TextLine]:
    earlier = {line.plain for line in before}
    return [line for line in after if line.plain not in earlier]


def _nearest(wanted: str, lines: Sequence[TextLine]) -> tuple[float, str, float]:
    """Return the line closest by edit distance: its share of matching letters, its text and its confidence."""
    text = plain(wanted)
    size = max(1, len(text))
    candidates = [
        (1 - edit_distance(text, line.plain) / size, line.text, line.confidence)
        for line in lines
    ]
    return max(candidates, default=(0.0, "", 0.0))


def edit_distance(wanted: str, text: str) -> int:
    """Return the minimum number of edits that turn a part of the text into the wanted text."""
    row = [0] * (len(text) + 1)
    for i, a in enumerate(wanted, 1):
        above = row
        row = [i]
        for j, b in enumerate(text, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b)))
    return min(row)


# --- proof ----------------------------------------------------------------------------------------------------

_LETTERS = {"chinese": "一-鿿", "english": "a-z", "latin": "a-z"}
_SURE = 0.85
"""OCR confidence above which letters are well formed. Print in photographs is read with at least .95."""
_HALF_READ = (0.7, 0.55)
"""OCR confidences below which letters are increasingly badly formed."""
_ALIKE = 0.6
"""Share of matching letters from which a text is a misspelling instead of a different text."""
_ORDER = ("undone", "misspelt", "misplaced", "blurred", "done")


def compare_all(
    wishes: Sequence[TextRequest],
    before: Sequence[TextLine],
    after: Sequence[TextLine],
    mask: Array | None,
) -> TextReading:
    """Return the worst outcome of several requests. There is no outcome if a request has none, or if only some are
    done."""
    readings = [compare(wish, before, after, mask) for wish in wishes]
    for reading in readings:
        if reading.outcome is None:
            return reading
    if {reading.outcome for reading in readings} >= {"done", "undone"}:
        return TextReading(None, "only a part of the text could be read")
    return min(readings, key=lambda r: (_ORDER.index(str(r.outcome)), -r.degree))


def compare(
    wish: TextRequest,
    before: Sequence[TextLine],
    after: Sequence[TextLine],
    mask: Array | None,
) -> TextReading:
    if wish.act == "script":
        return _scripted(wish, before, after)
    if wish.act == "delete":
        return _deleted(wish.old, wish.where, before, after)
    if _count(wish.new, after) > _count(wish.new, before):
        if wish.act == "write":
            return _written(wish, before, after, mask)
        return _replaced(wish, before, after)
    old_before = _count_old(wish, before)
    if wish.act == "replace" and not old_before:
        return TextReading(None, f'"{wish.old}" could not be read in the input')
    if _count(wish.new, after):
        return TextReading(None, f'"{wish.new}" was already in the input')
    if wish.act == "replace" and _count_old(wish, after) >= old_before:
        return TextReading(
            "undone",
            f'"{wish.old}" is still in the edited picture, and "{wish.new}" cannot be read',
        )
    added = _added(before, after)
    nearest, text, confidence = _nearest(wish.new, added)
    if nearest >= _ALIKE and confidence >= _SURE:
        wrong = edit_distance(plain(wish.new), plain(text))
        letters = f"{wrong} letter{'s' * (wrong > 1)} wrong"
        return TextReading(
            "misspelt",
            f'"{wish.new}" was asked for, but "{text}" is written, {letters}',
            wrong - 1,
        )
    if not added:
        return TextReading(
            "undone", f'no text was added, and "{wish.new}" cannot be read anywhere'
        )
    return TextReading(
        None,
        f'"{wish.new}" could not be read, and nothing else proves that it is missing',
    )


def _count_old(wish: TextRequest, lines: Sequence[TextLine]) -> int:
    """Count the occurrences of the old text, except as part of the new one."""
    if not wish.old:
        return 0
    within = plain(wish.new).count(plain(wish.old))
    return _count(wish.old, lines) - _count(wish.new, lines) * within


def _written(
    wish: TextRequest,
    before: Sequence[TextLine],
    after: Sequence[TextLine],
    mask: Array | None,
) -> TextReading:
    new = wish.new
    where = wish.where
    lines = [line for line in _added(before, after) if line.holds(new)]
    if mask is not None:
        if lines and not any(line.touches(mask) for line in lines):
            return TextReading(
                "misplaced",
                f'"{new}" is written, but outside the region that the edit was meant for',
            )
    elif side := _SIDE.fullmatch(where):
        if lines and not any(line.is_on(side[1].lower()) for line in lines):
            return TextReading("misplaced", f'"{new}" is written, but not {where}')
    elif where and not _ANYWHERE.fullmatch(where):
        return TextReading(
            None, f'"{new}" is written; whether that is {where} cannot be measured'
        )
    return _legible(new, lines)


def _replaced(
    wish: TextRequest, before: Sequence[TextLine], after: Sequence[TextLine]
) -> TextReading:
    """Check that the new text is at the position of the old one, and that the old one is gone."""
    old_before = _count_old(wish, before)
    old_after = _count_old(wish, after)
    problem = ""
    if not old_before:
        problem = f'"{wish.old}" could not be read in the input'
    elif old_before > 1 and wish.where:
        problem = (
            f'"{wish.old}" occurs {old_before} times in the input: which one is meant?'
        )
    elif old_after:
        problem = (
            f'"{wish.new}" was written, but "{wish.old}" still occurs {old_after} times'
        )
    if problem:
        return TextReading(None, problem)
    lines = [line for line in _added(before, after) if line.holds(wish.new)]
    gaps = [
        line.gap(earlier)
        for line in lines
        for earlier in before
        if earlier.holds(wish.old)
    ]
    if gaps and min(gaps) > _BESIDE:
        return TextReading(
            None, f'"{wish.new}" is written, but not where "{wish.old}" was'
        )
    return _legible(wish.new, lines)


def _legible(new: str, lines: Sequence[TextLine]) -> TextReading:
    sure = min((line.confidence for line in lines), default=1.0)
    if sure < _SURE:
        degree = sum(sure < limit for limit in _HALF_READ)
        clause = f'"{new}" can be read, but its letters are malformed (confidence {sure:.2f})'
        return TextReading("blurred", clause, degree)
    return TextReading(
        "done",
        f'"{new}" can be read in the edited picture, spelt as asked (confidence {sure:.2f})',
    )


def _scripted(
    wish: TextRequest, before: Sequence[TextLine], after: Sequence[TextLine]
) -> TextReading:
    """Check whether letters of a script disappeared or appeared. If none appeared, nothing was translated; letters that
    did appear do not prove a translation."""
    script = wish.old or wish.new
    name = script.title()
    was, now = (
        len(re.findall(f"[{_LETTERS[script]}]", text, re.I))
        for text in (
            "".join(line.text for line in lines if line.confidence > _SURE)
            for lines in (before, after)
        )
    )
    if wish.new:
        # Some writing may be unread. Only if all lines that were read are still there, nothing was translated.
        still = before and {b.plain for b in before} <= {a.plain for a in after}
        if still and now <= was:
            return TextReading(
                "undone",
                f"the text of the input is still there, and no {name} was added",
            )
        return TextReading(
            None, f"whether the {name} text says what was asked for cannot be measured"
        )
    if was < 2:
        return TextReading(None, f"no {name} text could be read in the input")
    if now == 0:
        return TextReading(
            "done", f"of {was} {name} letters in the input, none can be read any more"
        )
    return TextReading(
        "undone" if now >= was else None,
        f"{now} of {was} {name} letters can still be read",
    )


def _deleted(
    old: str, where: str, before: Sequence[TextLine], after: Sequence[TextLine]
) -> TextReading:
    was = _count(old, before)
    now = _count(old, after)
    if not was:
        return TextReading(None, f'"{old}" could not be read in the input')
    if now >= was:
        return TextReading("undone", f'"{old}" is still in the edited picture')
    if now or (was > 1 and where):
        return TextReading(
            None,
            f'"{old}" occurs {was} times in the input and can still be read {now} times',
        )
    if _nearest(old, _added(before, after))[0] >= _ALIKE:
        return TextReading(None, f'something like "{old}" is still there')
    return TextReading("done", f'"{old}" was in the input and is gone')


# --- position of a line ---------------------------------------------------------------------------------------

_SIDE = re.compile(
    r"(?:in|at|on|to|into|onto) the (?:very )?((?:upper|top|lower|bottom|left|right)(?:[- ]?(?:left|right))?)"
    r"(?:[- ]hand)?"
    r"(?: (?:corner|side|edge|half|part))?(?: (?:of|in) the (?:picture|image|photo|photograph|page|frame))?",
    re.IGNORECASE,
)
_ANYWHERE = re.compile(
    r"(?:in|on|to|onto|into|at) (?:the|this) (?:picture|image|photo|photograph)",
    re.IGNORECASE,
)
_BESIDE = 0.05
"""Largest gap between the boxes of two lines that count as the same position, as a share of the image's side."""
_BEYOND = 0.1
"""Distance beyond the middle, as a share of the image's side, from which a line is clearly on the other side."""
