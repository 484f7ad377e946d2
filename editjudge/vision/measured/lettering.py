"""Text edits: what the instruction wants written, what stands in the pictures, and what that proves."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from editjudge.vision.measured.phrasing import bare, first_match, mentions
from editjudge.vision.measured.scene import Array

Act = Literal["write", "replace", "delete", "script"]


@dataclass(frozen=True)
class TextRequest:
    """A wish about lettering that an instruction spells out letter by letter."""

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
    """Proof about a request from what was read: `done`, `blurred`, `misspelt`, `misplaced`, `undone`, or nothing."""

    outcome: Literal["done", "blurred", "misspelt", "misplaced", "undone"] | None
    words: str
    degree: int = 0
    """Steps beyond the least, of a fault that comes in degrees."""


# --- what is asked --------------------------------------------------------------------------------------------

_LETTERS = {"chinese": "一-鿿", "english": "a-z", "latin": "a-z"}


def request(instruction: str) -> tuple[TextRequest, ...]:
    """Return what is to be written or removed, letter by letter; nothing if the instruction does not say exactly that."""
    text, quoted = bare(instruction) or ("", ())
    if not quoted and (wishes := _scripts(text)):
        return wishes
    if mentions("lettering_unknown", text):
        return ()
    return _quoted(text, quoted) if quoted else _numbers(text)


def _quoted(text: str, quoted: Sequence[str]) -> tuple[TextRequest, ...]:
    if match := first_match("lettering.delete", text):
        return _one_wish(
            match[2],
            *(
                TextRequest("delete", quoted[n], where=match[2].strip())
                for n in _marks(match[1])
            ),
        )
    if match := first_match("lettering.replace", text):
        tails = [g for g in match.groups() if not g.isdigit()]
        marks = [int(g) for g in match.groups() if g.isdigit()]
        old = quoted[marks[0]]
        new = quoted[marks[1]]
        language = first_match("language", new)
        return (
            ()
            if language
            else _one_wish(
                "".join(tails), TextRequest("replace", old, new, "".join(tails).strip())
            )
        )
    if match := first_match("lettering.write", text):
        tails = [group for group in match.groups() if not group.startswith("⟦")]
        listed = next(group for group in match.groups() if group.startswith("⟦"))
        where = "".join(tails).strip()
        return _one_wish(
            where,
            *(TextRequest("write", new=quoted[n], where=where) for n in _marks(listed)),
        )
    return ()


def _marks(marks: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", marks)]


def _one_wish(tail: str, *wishes: TextRequest) -> tuple[TextRequest, ...]:
    """None where the words that say where hold another wish, of which the lettering proves nothing."""
    return () if mentions("second_wish", tail) else wishes


def _numbers(text: str) -> tuple[TextRequest, ...]:
    """A number that something is to show."""
    if match := first_match("lettering.replace_number", text):
        return _one_wish(
            match[3], TextRequest("replace", match[1], match[2], match[3].strip())
        )
    if match := first_match("lettering.write_number", text):
        return _one_wish(
            match[1], TextRequest("write", new=match[2], where=match[1].strip())
        )
    return ()


def _scripts(text: str) -> tuple[TextRequest, ...]:
    """A script that is to go or to come."""
    if match := first_match("lettering.into_script", text):
        return (TextRequest("script", new=match[1].lower()),)
    if match := first_match("lettering.drop_script", text):
        return _one_wish(match[2], TextRequest("script", old=match[1].lower()))
    return ()


# --- what is there --------------------------------------------------------------------------------------------

_ENGINES = threading.local()


def _reader() -> Any:
    """The engine, with the weights that its package carries. It keeps state between its steps, so each worker has its
    own; with one thread, because workers are the parallelism."""
    if not hasattr(_ENGINES, "reader"):
        _ENGINES.reader = _new_reader()
    return _ENGINES.reader


def _new_reader() -> Any:
    import logging

    from rapidocr import RapidOCR

    logging.getLogger("RapidOCR").setLevel(logging.ERROR)
    threads = {
        f"EngineConfig.onnxruntime.{name}_op_num_threads": 1
        for name in ("intra", "inter")
    }
    return RapidOCR(params={"Global.log_level": "error", **threads})


def read_lines(picture: Array) -> list[TextLine]:
    """The lines of text in an RGB picture, from the top."""
    result = _reader()(np.ascontiguousarray(picture[..., ::-1]))
    if result.txts is None:
        return []
    height, width = picture.shape[:2]
    lines = []
    for box, text, confidence in zip(
        result.boxes, result.txts, result.scores, strict=True
    ):
        xs = np.asarray(box)[:, 0] / width
        ys = np.asarray(box)[:, 1] / height
        lines.append(
            TextLine(
                text,
                float(confidence),
                (float(xs.min()), float(ys.min()), float(xs.max()), float(ys.max())),
            )
        )
    return lines


# --- what that proves -----------------------------------------------------------------------------------------

_SURE = 0.85
"""Confidence of the reader above which letters are well formed: print in photographs is read at .95 and more."""
_HALF_READ = (0.7, 0.55)
"""Confidence below which letters are worse formed, step by step."""
_ALIKE = 0.6
"""Share of letters in place from which a text is a misspelling, and no other text."""


_ORDER = ("undone", "misspelt", "misplaced", "blurred", "done")


def compare_all(
    wishes: Sequence[TextRequest],
    before: Sequence[TextLine],
    after: Sequence[TextLine],
    mask: Array | None,
) -> TextReading:
    """Return the worst outcome of several wishes, if all are proven and none is missing beside one that is done."""
    readings = [compare(wish, before, after, mask) for wish in wishes]
    outcomes = {reading.outcome for reading in readings}
    if None in outcomes or outcomes >= {"done", "undone"}:
        return next(
            (r for r in readings if r.outcome is None),
            TextReading(None, "only a part of the text could be read"),
        )
    return min(
        readings,
        key=lambda reading: (_ORDER.index(str(reading.outcome)), -reading.degree),
    )


def compare(
    wish: TextRequest,
    before: Sequence[TextLine],
    after: Sequence[TextLine],
    mask: Array | None,
) -> TextReading:
    if wish.act == "script":
        return _scripted(wish, before, after)
    if wish.act == "delete":
        return _deleted(wish, before, after)
    old_before, old_after = (_count_old(wish, lines) for lines in (before, after))
    if wish.act == "replace" and not old_before:
        return TextReading(None, f'"{wish.old}" could not be read in the input')
    new_before, new_after = (_count(wish.new, lines) for lines in (before, after))
    if new_after > new_before:
        if wish.act == "write":
            return _written(wish, before, after, mask)
        if old_before > 1 and wish.where:
            return TextReading(
                None,
                f'"{wish.old}" occurs {old_before} times in the input: which one is meant?',
            )
        if old_after:
            return TextReading(
                None,
                f'"{wish.new}" was written, but "{wish.old}" still occurs {old_after} times',
            )
        return _replaced(wish, before, after)
    if new_after:
        return TextReading(None, f'"{wish.new}" was already in the input')
    if wish.act == "replace" and old_after >= old_before:
        return TextReading(
            "undone",
            f'"{wish.old}" is still in the edited picture, and "{wish.new}" cannot be read',
        )
    nearest, text, confidence = _nearest(wish.new, _added(before, after))
    if nearest >= _ALIKE and confidence >= _SURE:
        wrong = _distance(_plain(wish.new), _plain(text))
        letters = f"{wrong} letter{'s' * (wrong > 1)} wrong"
        return TextReading(
            "misspelt",
            f'"{wish.new}" was asked for, but "{text}" is written, {letters}',
            wrong - 1,
        )
    if not _added(before, after):
        return TextReading(
            "undone", f'no text was added, and "{wish.new}" cannot be read anywhere'
        )
    return TextReading(
        None,
        f'"{wish.new}" could not be read, and nothing else proves that it is missing',
    )


def _count_old(wish: TextRequest, lines: Sequence[TextLine]) -> int:
    """How often the old text stands there, apart from where it is a part of the new one."""
    if not wish.old:
        return 0
    return _count(wish.old, lines) - _count(wish.new, lines) * _plain(wish.new).count(
        _plain(wish.old)
    )


def _new_lines(
    text: str, before: Sequence[TextLine], after: Sequence[TextLine]
) -> list[TextLine]:
    return [
        line
        for line in _added(before, after)
        if _plain(line.text) and _shares(text, line.text)
    ]


def _written(
    wish: TextRequest,
    before: Sequence[TextLine],
    after: Sequence[TextLine],
    mask: Array | None,
) -> TextReading:
    new, where, lines = wish.new, wish.where, _new_lines(wish.new, before, after)
    if mask is not None and lines and not any(_covers(mask, line) for line in lines):
        return TextReading(
            "misplaced",
            f'"{new}" is written, but outside the region that the edit was meant for',
        )
    if mask is None and lines and not any(_stands(line, where) for line in lines):
        return TextReading("misplaced", f'"{new}" is written, but not {where}')
    if (
        mask is None
        and where
        and not (_SIDE.fullmatch(where) or _ANYWHERE.fullmatch(where))
    ):
        return TextReading(
            None, f'"{new}" is written; whether that is {where} cannot be measured'
        )
    return _legible(new, lines)


def _replaced(
    wish: TextRequest, before: Sequence[TextLine], after: Sequence[TextLine]
) -> TextReading:
    """The new text must stand where the old one stood."""
    lines = _new_lines(wish.new, before, after)
    places = [
        line for line in before if _plain(line.text) and _shares(wish.old, line.text)
    ]
    if (
        lines
        and places
        and not any(
            _apart(line, place) <= _BESIDE for line in lines for place in places
        )
    ):
        return TextReading(
            None, f'"{wish.new}" is written, but not where "{wish.old}" was'
        )
    return _legible(wish.new, lines)


def _legible(new: str, lines: Sequence[TextLine]) -> TextReading:
    sure = min((line.confidence for line in lines), default=1.0)
    if sure < _SURE:
        degree = sum(sure < limit for limit in _HALF_READ)
        words = f'"{new}" can be read, but its letters are malformed (confidence {sure:.2f})'
        return TextReading("blurred", words, degree)
    return TextReading(
        "done",
        f'"{new}" can be read in the edited picture, spelt as asked (confidence {sure:.2f})',
    )


def _apart(a: TextLine, b: TextLine) -> float:
    """The gap between two boxes, as a share of the picture's side."""
    across = max(a.box[0], b.box[0]) - min(a.box[2], b.box[2])
    down = max(a.box[1], b.box[1]) - min(a.box[3], b.box[3])
    return max(across, down)


def _scripted(
    wish: TextRequest, before: Sequence[TextLine], after: Sequence[TextLine]
) -> TextReading:
    """Whether letters of a script went or came: that none came is proof, that some did proves no translation."""
    name = wish.old or wish.new
    was, now = (
        len(
            re.findall(
                f"[{_LETTERS[name]}]",
                "".join(line.text for line in lines if line.confidence > _SURE),
                re.I,
            )
        )
        for lines in (before, after)
    )
    if wish.new:
        # Unread writing may be there; only where all that was read still stands was nothing translated.
        still = before and {_plain(line.text) for line in before} <= {
            _plain(line.text) for line in after
        }
        if still and now <= was:
            return TextReading(
                "undone",
                f"the text of the input is still there, and no {name.title()} was added",
            )
        return TextReading(
            None,
            f"whether the {name.title()} text says what was asked for cannot be measured",
        )
    if was < 2:
        return TextReading(None, f"no {name.title()} text could be read in the input")
    if now == 0:
        return TextReading(
            "done",
            f"of {was} {name.title()} letters in the input, none can be read any more",
        )
    return TextReading(
        "undone" if now >= was else None,
        f"{now} of {was} {name.title()} letters can still be read",
    )


def _deleted(
    wish: TextRequest, before: Sequence[TextLine], after: Sequence[TextLine]
) -> TextReading:
    old, was, now = wish.old, _count(wish.old, before), _count(wish.old, after)
    if not was:
        return TextReading(None, f'"{old}" could not be read in the input')
    if now >= was:
        return TextReading("undone", f'"{old}" is still in the edited picture')
    if now or (was > 1 and wish.where):
        return TextReading(
            None,
            f'"{old}" occurs {was} times in the input and can still be read {now} times',
        )
    if _nearest(old, _added(before, after))[0] >= _ALIKE:
        return TextReading(None, f'something like "{old}" is still there')
    return TextReading("done", f'"{old}" was in the input and is gone')


def _added(before: Sequence[TextLine], after: Sequence[TextLine]) -> list[TextLine]:
    there = {_plain(line.text) for line in before}
    return [line for line in after if _plain(line.text) not in there]


def _plain(text: str) -> str:
    """Letters and digits: readers lose spaces, and take a comma for a full stop."""
    return re.sub(r"[\W_]+", "", text).casefold()


def _count(text: str, lines: Sequence[TextLine]) -> int:
    wanted = _plain(text)
    if len(wanted) < 3:  # a letter or two occur within most words
        return (
            sum(_plain(word) == wanted for line in lines for word in line.text.split())
            if wanted
            else 0
        )
    return "".join(_plain(line.text) for line in lines).count(wanted)


def _shares(wanted: str, text: str) -> bool:
    a = _plain(wanted)
    b = _plain(text)
    return a in b or b in a


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
"""Largest gap between the boxes of two lines at one place, as a share of the image's side."""
_BEYOND = 0.1
"""Distance beyond the middle, as a share of the image's side: farther
out, a line is on the other side for everybody."""


def _stands(line: TextLine, where: str) -> bool:
    """Whether a line is on the side that was named; what is said of another place decides nothing."""
    if not (side := _SIDE.fullmatch(where)):
        return True
    x = (line.box[0] + line.box[2]) / 2 - 0.5
    y = (line.box[1] + line.box[3]) / 2 - 0.5
    off = {"left": x, "right": -x, "upper": y, "top": y, "lower": -y, "bottom": -y}
    return all(
        beyond <= _BEYOND for name, beyond in off.items() if name in side[1].lower()
    )


def _covers(mask: Array, line: TextLine) -> bool:
    height, width = mask.shape
    left, top, right, bottom = line.box
    part = mask[
        int(top * height) : int(bottom * height) + 1,
        int(left * width) : int(right * width) + 1,
    ]
    return bool(part.any())


def _nearest(wanted: str, lines: Sequence[TextLine]) -> tuple[float, str, float]:
    """The line that comes closest, by edit distance over the length of what was wanted."""
    best = (0.0, "", 0.0)
    for line in lines:
        near = 1 - _distance(_plain(wanted), _plain(line.text)) / max(
            1, len(_plain(wanted))
        )
        best = max(best, (near, line.text, line.confidence))
    return best


def _distance(wanted: str, text: str) -> int:
    """Edits that turn some part of the text into what was wanted."""
    row = [0] * (len(text) + 1)
    for i, a in enumerate(wanted, 1):
        above = row
        row = [i]
        for j, b in enumerate(text, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b)))
    return min(row)
