"""Text edits: the text that an instruction requests, the lines that are read in the images, and what these lines prove."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import cv2
import numpy as np

from editjudge.vision.measured.phrasing import bare, first_match, mentions
from editjudge.vision.measured.scene import Array


@dataclass(frozen=True)
class TextRequest:
    """A request for lettering that an instruction spells out letter by letter."""

    act: Literal["write", "replace", "delete", "script"]
    """Kind of change. `script` means that all lettering in one script should disappear (`old`) or appear (`new`)."""
    old: str = ""
    new: str = ""
    where: str = ""
    """Words that describe its position, such as "in the upper left corner"."""
    unnamed_old: bool = field(default=False, compare=False)
    """Whether the new text replaces a text that the instruction does not quote."""


@dataclass(frozen=True)
class TextLine:
    text: str
    confidence: float
    box: tuple[float, ...]
    """Left, top, right and bottom edge, as fractions of the image's width and height."""

    @cached_property
    def plain(self) -> str:
        return plain(self.text)

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        return tokens(self.text)

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
        return self.share_of(mask) > 0

    def share_of(self, mask: Array) -> float:
        """Return the share of the line's box that a mask covers."""
        height, width = mask.shape
        left, top, right, bottom = self.box
        rows = slice(max(0, int(top * height)), int(bottom * height) + 1)
        columns = slice(max(0, int(left * width)), int(right * width) + 1)
        part = mask[rows, columns] > 0
        return float(part.mean()) if part.size else 0.0

    def gap(self, other: TextLine) -> float:
        """Return the larger of the horizontal and vertical gap between the boxes of two lines, as a fraction of the
        image's width or height.
        """
        across = max(self.box[0], other.box[0]) - min(self.box[2], other.box[2])
        down = max(self.box[1], other.box[1]) - min(self.box[3], other.box[3])
        return max(across, down)

    def as_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "confidence": round(self.confidence, 3),
            "box": [round(side, 4) for side in self.box],
        }


Outcome: TypeAlias = Literal[
    "done", "blurred", "disturbed", "misplaced", "partial", "misspelt", "undone"
]
"""`disturbed` means as requested, except that other text changed too. `partial` means that entire words are missing."""


@dataclass(frozen=True)
class TextReading:
    """Proof about a request, based on the text that was read, or the reason why there is none."""

    outcome: Outcome | None
    finding: str
    degree: int = 0
    """Severity of a fault that comes in degrees, from 0 for the slightest."""


# --- requests -------------------------------------------------------------------------------------------------


def request(instruction: str) -> tuple[TextRequest, ...]:
    """Return the requested changes of lettering. The list is empty unless the instruction requests these changes and
    nothing else."""
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
            return [TextRequest("write", "", match[2], where, True)], where
    for act in ("delete", "replace", "write", "rewrite"):
        match = first_match(f"lettering.{act}", text)
        if match is None:
            continue
        marks = [g for g in match.groups() if g.isdigit() or g.startswith("⟦")]
        where = "".join(g for g in match.groups() if g not in marks).strip()
        texts = [quoted[int(number)] for number in re.findall(r"\d+", " ".join(marks))]
        if act == "delete":
            return [TextRequest("delete", old, where=where) for old in texts], where
        if act in ("write", "rewrite"):
            unnamed = act == "rewrite"
            return [
                TextRequest("write", "", new, where, unnamed) for new in texts
            ], where
        old, new = texts
        if not first_match("language", new):
            return [TextRequest("replace", old, new, where)], where
        break
    return [], ""


# --- lines ----------------------------------------------------------------------------------------------------

_ENGINES = threading.local()


def _reader() -> Any:
    """Return the OCR engine of this thread, with the weights included in its package. It is not shared between threads,
    because it keeps state between steps."""
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


_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_TOKENS = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")


def tokens(text: str) -> tuple[str, ...]:
    """Return the words of a text in lower case, without punctuation. In a script without spaces, each character is a
    word."""
    composed = unicodedata.normalize("NFC", text).casefold()
    # An apostrophe or a point between letters is often lost in reading.
    joined = re.sub(r"(?<=[^\W\d])['’`´.](?=[^\W\d])", "", composed)
    return tuple(_TOKENS.findall(joined))


def _stream(lines: Sequence[TextLine]) -> list[str]:
    return [token for line in lines for token in line.tokens]


def _span(text: str, stream: Sequence[str]) -> int:
    """Return how many words at the start of a stream make up a text, or 0 if the stream does not start with the text.

    OCR may lose or add spaces, but a text begins and ends with a word.
    """
    joined = ""
    for count, token in enumerate(stream, 1):
        joined += token
        if joined == text:
            return count
        if not text.startswith(joined):
            break
    return 0


def _occurrences(wanted: Sequence[str], stream: Sequence[str]) -> int:
    text = "".join(wanted)
    return sum(_span(text, stream[at:]) > 0 for at in range(len(stream)))


def _substituted(
    stream: Sequence[str], old: Sequence[str], new: Sequence[str]
) -> list[str]:
    """Return the words with every occurrence of a text replaced."""
    text = "".join(old)
    result: list[str] = []
    at = 0
    while at < len(stream):
        count = _span(text, stream[at:])
        result += new if count else stream[at : at + 1]
        at += max(1, count)
    return result


def _count(text: str, lines: Sequence[TextLine]) -> int:
    return _occurrences(tokens(text), _stream(lines))


def _added(before: Sequence[TextLine], after: Sequence[TextLine]) -> list[TextLine]:
    earlier = {line.plain for line in before}
    return [line for line in after if line.plain not in earlier]


@dataclass(frozen=True)
class _Nearest:
    """The words in added lines that are closest to a wanted text."""

    text: str = ""
    wrong: int = 0
    """Number of letters to change, add or drop."""
    share: float = 0.0
    """Share of the wanted letters that match."""
    confidence: float = 0.0


def _nearest(wanted: str, lines: Sequence[TextLine]) -> _Nearest:
    text = "".join(tokens(wanted))
    size = max(1, len(text))
    best = _Nearest()
    for line in lines:
        count = len(line.tokens)
        for start in range(count):
            for stop in range(count, start, -1):
                candidate = "".join(line.tokens[start:stop])
                wrong = edit_distance(text, candidate)
                share = 1 - wrong / size
                if share > best.share:
                    read = " ".join(line.tokens[start:stop])
                    shown = line.text if stop - start == count else read
                    best = _Nearest(shown, wrong, share, line.confidence)
    return best


def edit_distance(a: str, b: str) -> int:
    """Return the number of letters to change, add or drop to turn one text into the other."""
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        above = row
        row = [i]
        for j, other in enumerate(b, 1):
            changed = above[j - 1] + (letter != other)
            row.append(min(above[j] + 1, row[j - 1] + 1, changed))
    return row[-1]


# --- proof ----------------------------------------------------------------------------------------------------

_LETTERS = {"chinese": "一-鿿", "english": "a-z", "latin": "a-z"}
_SURE = 0.85
"""OCR confidence above which letters count as well formed. Print in photographs is read with at least .95."""
_HALF_READ = (0.7, 0.55)
"""OCR confidences below which letters count as increasingly badly formed."""
_ALIKE = 0.6
"""Minimum share of matching letters for a text to be a misspelling and not a different text."""
_ORDER = ("undone", "misspelt", "partial", "misplaced", "disturbed", "blurred", "done")
_ALTERED = 0.003
"""Share of a line's box that visibly changes if one letter does. Re-encoding changes nothing visibly."""
_HALF = 0.4
"""Minimum share of the wanted letters, counted in complete words, for a text to be incomplete and not a different text.
"""
_LARGE = 1200
"""Longer side in pixels above which an image is read again at a smaller size instead of a larger one."""
_SHORT = 2
"""Number of letters up to which a stray word may be a leaf or a fold read as text."""
_LOOKALIKE = str.maketrans("0o1i|ıïîíìł", "oolllllllll")
"""Letters that OCR confuses. In print of three fonts, it reads naïve as naive, and l as 1."""


def compare_images(
    wishes: Sequence[TextRequest],
    images: Mapping[str, Array],
    mask: Array | None,
    visible: Array,
) -> tuple[TextReading, dict[str, list[TextLine]]]:
    """Read both images and compare them. Return the proof, and the lines keyed by role.

    A proof must be confirmed by a second reading, at another size and with more contrast, because a misread word is
    rarely misread in the same way twice.
    """
    lines = {role: read_lines(images[role]) for role in ("input", "edited")}
    first = compare_all(wishes, lines["input"], lines["edited"], mask, visible)
    if first.outcome is None:
        return first, lines
    again = [read_lines(_enhanced(images[role])) for role in ("input", "edited")]
    second = compare_all(wishes, again[0], again[1], mask, visible)
    legible = {"done", "blurred"}
    if first.outcome == second.outcome or {first.outcome, second.outcome} == legible:
        return first, lines
    finding = f"two readings differ: {first.finding}; {second.finding}"
    return TextReading(None, finding), lines


def _enhanced(image: Array) -> Array:
    """Return the image at another size, with more local contrast."""
    lab = cv2.cvtColor(image, cv2.COLOR_RGB2LAB)
    lab[..., 0] = cv2.createCLAHE(2.0, (8, 8)).apply(lab[..., 0])
    scale = 1.5 if max(image.shape) <= _LARGE else 0.75
    contrasted = cv2.cvtColor(lab, cv2.COLOR_LAB2RGB)
    how = cv2.INTER_CUBIC if scale > 1 else cv2.INTER_AREA
    return cv2.resize(contrasted, None, fx=scale, fy=scale, interpolation=how)


def compare_all(
    wishes: Sequence[TextRequest],
    before: Sequence[TextLine],
    after: Sequence[TextLine],
    mask: Array | None,
    visible: Array | None = None,
) -> TextReading:
    """Return the worst outcome of several requests. Nothing is proven if any request is unproven, or if one is done and
    another is not.

    `visible` marks the pixels that visibly changed. Text elsewhere is the same, however it is read.
    """
    readings = [compare(wish, before, after, mask) for wish in wishes]
    for reading in readings:
        if reading.outcome is None:
            return reading
    if {reading.outcome for reading in readings} >= {"done", "undone"}:
        return TextReading(None, "only a part of the text could be read")
    worst = min(readings, key=lambda r: (_ORDER.index(str(r.outcome)), -r.degree))
    if worst.outcome in ("done", "blurred"):
        return _other_text(wishes, before, after, visible) or worst
    return worst


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
        if not _same_case(wish.new, after):
            return TextReading(
                None, f'"{wish.new}" is written, in other capitals than asked for'
            )
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
    return _differently_written(wish.new, _added(before, after))


def _differently_written(new: str, added: Sequence[TextLine]) -> TextReading:
    """Describe how the added text differs from the requested text."""
    if not added:
        return TextReading(
            "undone", f'no text was added, and "{new}" cannot be read anywhere'
        )
    wanted = tokens(new)
    nearest = _nearest(new, added)
    read = tokens(nearest.text)
    if folded(read) == folded(wanted):
        clause = (
            f'"{nearest.text}" is read, which may be "{new}" in letters that look alike'
        )
        return TextReading(None, clause)
    stream = _stream([line for line in added if line.confidence >= _SURE])
    absent = [token for token in wanted if token not in stream]
    present = sum(map(len, wanted)) - sum(map(len, absent))
    if not Counter(read) - Counter(wanted) and present >= _HALF * len("".join(wanted)):
        clause = f'of "{new}", "{" ".join(absent)}" is missing'
        return TextReading("partial", clause)
    if nearest.share >= _ALIKE and nearest.confidence >= _SURE:
        letters = f"{nearest.wrong} letter{'s' * (nearest.wrong > 1)} wrong"
        return TextReading(
            "misspelt",
            f'"{new}" was asked for, but "{nearest.text}" is written, {letters}',
            nearest.wrong - 1,
        )
    return TextReading(
        None, f'"{new}" could not be read, and nothing else proves that it is missing'
    )


def folded(parts: Sequence[str]) -> str:
    """Return a text without spaces. Letters that look alike are replaced by one of them, and all accents by one accent."""
    text = unicodedata.normalize("NFD", "".join(parts).translate(_LOOKALIKE))
    return re.sub(r"[\u0300-\u036f]", "\u0301", text)


_ONE_SHAPE = "cijkopsuvwxyz"
"""Letters whose capital has the same shape but is larger."""


def _same_case(text: str, lines: Sequence[TextLine]) -> bool:
    """Whether a text that was read has the requested capitals, as far as the shapes of the letters show."""
    alike = str.maketrans(_ONE_SHAPE.upper(), _ONE_SHAPE)
    pages = (text, *("".join(line.text for line in lines),))
    wanted, read = (
        re.sub(r"[\W_]+", "", unicodedata.normalize("NFC", page)).translate(alike)
        for page in pages
    )
    return wanted in read


def _other_text(
    wishes: Sequence[TextRequest],
    before: Sequence[TextLine],
    after: Sequence[TextLine],
    visible: Array | None,
) -> TextReading | None:
    """Compare all text with the text that the input would have if the requests were carried out. Return None if nothing
    else changed."""
    if any(wish.act == "script" for wish in wishes):
        return None
    stream = _stream(before)
    for wish in wishes:
        new = tokens(wish.new)
        old = tokens(wish.old)
        stream = _substituted(stream, old, new) if old else [*stream, *new]
    expected = Counter(stream)
    read = Counter(_stream(after))
    lost = [*(expected - read).elements()]
    gained = [*(read - expected).elements()]
    # Words may be joined or divided in reading, and letters that look alike confused.
    if sorted(folded(lost)) == sorted(folded(gained)):
        return None
    missing = _in_changed_lines(lost, before, visible)
    extra = _in_changed_lines(gained, after, visible)
    if any(wish.unnamed_old for wish in wishes):
        missing = {}
    if not missing and not extra:
        return None
    clauses = [
        f'"{" ".join(parts)}" {verb}'
        for parts, verb in ((missing, "is missing"), (extra, "was added"))
        if parts
    ]
    finding = f"the requested text is as asked for, but of other text, {' and '.join(clauses)}"
    if any(_count_old(wish, before) > 1 for wish in wishes):
        return TextReading(None, f"{finding}, and which text is meant is not certain")
    certain = [
        word
        for word, confidence in (*missing.items(), *extra.items())
        if len(word) > _SHORT and confidence >= _SURE
    ]
    if not certain:
        return TextReading(None, f"{finding}, which is too short or faint to be sure")
    return TextReading("disturbed", finding, len(certain) > 1)


def _in_changed_lines(
    words: Sequence[str], lines: Sequence[TextLine], visible: Array | None
) -> dict[str, float]:
    """Return the words that occur in visibly changed lines, with the confidence at which they were read."""
    changed = [
        line for line in lines if visible is None or line.share_of(visible) >= _ALTERED
    ]
    return {
        word: max(line.confidence for line in changed if word in line.tokens)
        for word in words
        if any(word in line.tokens for line in changed)
    }


def _count_old(wish: TextRequest, lines: Sequence[TextLine]) -> int:
    """Count the occurrences of the old text that are not part of the new text."""
    if not wish.old:
        return 0
    within = _occurrences(tokens(wish.old), tokens(wish.new))
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
    """Check that the new text is at the position of the old text, and that the old text is gone."""
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
    """Check whether letters of a script disappeared or appeared. If none appeared, nothing was translated. Letters that
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
    if _nearest(old, _added(before, after)).share >= _ALIKE or len(plain(old)) == 1:
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
"""Largest gap between the boxes of two lines that count as being at the same position, as a share of the image's side."""
_BEYOND = 0.1
"""Distance beyond the middle, as a share of the image's side, above which a line is clearly on the other side."""
