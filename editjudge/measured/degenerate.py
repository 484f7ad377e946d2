"""Outputs that are no edit at all: blank, noise, another picture, the input again, a tile, a thumbnail blown up.

One detector for the embedded judge, the audit, the probes, rewards and contradictions. It is a pure function of two
decoded pictures. Its thresholds leave real edits alone, however bad: each carries what was measured on 1,463 edits by
twenty editing models. What an instruction asks for in so many words, such as a mirrored picture, is not reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import cv2
import numpy as np

from editjudge.edit import Edit, ImageSource
from editjudge.errors import ImageError
from editjudge.measured.change import find_change
from editjudge.measured.colours import COLOURS, share_of
from editjudge.measured.factor_verdict import SPOILT, FactorVerdict, abstain
from editjudge.measured.scene import Array, compose, shrink, to_lab, too_small
from editjudge.media.image import BOUNDS, Decoding, decode, name_of, probe, read

Kind = Literal["flat", "near_flat", "noise", "upscaled", "unchanged", "mirrored", "tile", "unrelated"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SHOWN: frozenset[Kind] = frozenset({"unchanged", "mirrored"})
"""Kinds that still show what the input shows: what was preserved can be measured, and is."""


@dataclass(frozen=True)
class Degenerate:
    """Why a picture is no edit."""

    kind: Kind
    words: str
    """A clause with the picture as its subject: "is one flat colour ..."."""
    certain: bool = True
    """False where it `may be another picture`: too little of the input is found again to say more."""


def find_degenerate(
    before: Array | None, edited: Array, instruction: str = "", *, nothing: bool | None = None, doubts: bool = False
) -> Degenerate | None:
    """What makes the edited picture, RGB of any size, no edit of the picture before; None where nothing does.

    The certain kinds come first: a black frame is also unrelated to the input, and is called black. Who has measured
    already that `nothing` changed, or that something did, says so. With `doubts` what may be another picture is named.
    """
    if too_small(edited) or (before is not None and too_small(before)):
        return None
    output = _find(None if before is None else shrink(before, _SIDE), shrink(edited, _SIDE), nothing)
    if output is None or _wanted(output.kind, instruction, edited):
        return None
    return output if output.certain or doubts else None


def glance(source: ImageSource | None) -> Array | None:
    """A picture no larger than is looked at; None where it is absent or lies at an address. Raises `ImageError`."""
    if source is None or isinstance(source, str):
        return None
    data = read(source)
    info = probe(data, name=name_of(source))
    with _ROOM.room(info.width * info.height):
        return shrink(np.asarray(decode(data, name=name_of(source))), _SIDE)


def screen(edit: Edit) -> Degenerate | None:
    """Why the output of an edit is none, found before anybody is asked about it; None also where it cannot be read.

    The input returned or mirrored can be judged, and is left to the judge.
    """
    try:
        before, edited = glance(edit.input), glance(edit.edited)
    except ImageError:
        return None
    output = None if edited is None else find_degenerate(before, edited, edit.instruction, nothing=False)
    return None if output is None or output.kind in SHOWN else output


def worst(output: Degenerate, factor: str) -> FactorVerdict | None:
    """The finding on a factor where the picture itself is the fault; None where the factor is measured as ever."""
    if output.kind in SHOWN:
        return None
    if not output.certain and factor in SPOILT[output.kind]:
        return None
    if factor not in SPOILT[output.kind]:
        return abstain(f"the edited picture {output.words}")
    lighting = factor == "Contextual_Preservation"  # whose reasons are a list of differences, each with its mark
    return FactorVerdict(1.0, f"The edited picture {output.words}{': not allowed' if lighting else '.'}")


def find_flat(picture: Array) -> str | None:
    """The words for a picture that shows nothing, also where it is the input."""
    return None if too_small(picture) else _flat(shrink(picture, _SIDE))


_SIDE = 1024
"""Longest side that is looked at, as everywhere in this judge."""
_ROOM = Decoding(BOUNDS.max_pixels // 2)


_UNCHANGED = "shows no visible difference from the input anywhere"


def _find(before: Array | None, edited: Array, nothing: bool | None) -> Degenerate | None:
    if words := _flat(edited):
        if before is not None and _flat(np.concatenate([before.reshape(-1, 1, 3), edited.reshape(-1, 1, 3)])):
            return Degenerate("unchanged", _UNCHANGED)
        return Degenerate("flat", words)
    # What the input is already, no edit made of it.
    if (words := _noise(edited)) and (before is None or not _noise(before)):
        return Degenerate("noise", words)
    # Beside a drawing or a product on white, little is left only where most of that little is gone.
    if (words := _near_flat(edited)) and (before is None or _detail(before) > max(_EMPTY, 2 * _detail(edited))):
        return Degenerate("near_flat", words)
    if words := _upscaled(before, edited):
        return Degenerate("upscaled", words)
    return None if before is None else _beside(before, edited, nothing)


def _beside(before: Array, edited: Array, nothing: bool | None) -> Degenerate | None:
    if find_change(compose(before, edited)).nothing if nothing is None else nothing:
        return Degenerate("unchanged", _UNCHANGED)
    if _flat(before) or _near_flat(before):  # nothing in it could be found again
        return None
    if words := _turned(before, edited):
        return Degenerate("mirrored", words)
    if words := _tile(before, edited):
        return Degenerate("tile", words)
    words, certain = _unrelated(before, edited)
    return Degenerate("unrelated", words, certain) if words else None


# --- one picture alone ----------------------------------------------------------------------------------------

_LEVELS = 4
"""Of 255, over all pixels but a few: what JPEG leaves of one colour."""
_STRAY = 8.0
"""Levels from a smooth background at which something shows. Sensor noise of 8 levels averages to less than 1."""
_EMPTY = 0.08
"""Share of a 64 x 64 grid that differs from a smooth background: a watermark or a logo is less. The emptiest real edit
has 0.17."""
_GRAINY = 12.0
"""Levels of deviation from which grain is noise that hides the picture, and less is the grain of a blank sensor."""
_NEIGHBOURS = 0.3
"""Correlation of neighbouring pixels below which a picture is noise. Real edits have .81 and more at full size, .55 at
a quarter; pages of text .44 on a grid of 32; noise at four fifths over a photograph, saved as JPEG, has under .25."""
_COARSE = 64
"""Pixels of the longer side that hold all that a blown-up thumbnail shows."""
_FINER = 0.08
"""Deviation, as a share of the contrast, that is lost when a picture is reduced to that size and enlarged again.
Thumbnails of 32 pixels lose .01 to .07, however they were enlarged."""
_SOFTENED = 0.195
"""That loss as a share of the input's own. Thumbnails of 32 pixels have .05 to .19, a blur of 3 pixels .2 and more; of
1,459 real edits one is below, a field smeared all over."""
_BLOCKS = 128
"""Columns or rows at which blocks meet, at most: no thumbnail is larger."""


def _flat(picture: Array) -> str | None:
    some = picture.reshape(-1, 3)[::61]
    if float((np.percentile(some, 99, axis=0) - np.percentile(some, 1, axis=0)).max()) > _LEVELS:
        return None  # seen at a glance, of nearly every picture
    low, high = np.percentile(picture.reshape(-1, 3), (0.02, 99.98), axis=0)
    if float((high - low).max()) > _LEVELS:
        return None
    level = np.median(picture.reshape(-1, 3), axis=0).astype(int)
    return f"is one flat colour, {_colour(level)}, over the whole picture: it shows nothing"


def _colour(level: Array) -> str:
    lab = to_lab(np.asarray(level, np.uint8).reshape(1, 1, 3))
    name = next((name for name in (*_PLAIN, *COLOURS) if share_of(name, lab)), "a colour")
    return f"{name} ({', '.join(str(int(v)) for v in level)})"


_PLAIN = ("black", "white", "grey")
"""Tried first: a dark red is within the hues of three names."""


def _near_flat(picture: Array) -> str | None:
    if (share := _detail(picture)) > _EMPTY:
        return None
    return f"is almost empty: {1 - share:.0%} of it is one smooth surface without any detail"


def _detail(picture: Array) -> float:
    """The share that stands out from one smooth surface: a quadratic in each channel, fitted to what is not far."""
    grid = cv2.resize(picture, (64, 64), interpolation=cv2.INTER_AREA).reshape(-1, 3).astype(np.float64)
    y, x = np.mgrid[-1:1:64j, -1:1:64j].reshape(2, -1)
    terms = np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], axis=1)
    off = np.abs(grid - np.median(grid, axis=0)).max(axis=1)
    for _ in range(4):
        kept = off <= max(_STRAY, float(np.quantile(off, 0.7)))
        fitted = np.linalg.lstsq(terms[kept], grid[kept], rcond=None)[0]
        off = np.abs(grid - terms @ fitted).max(axis=1)
    return float((off > _STRAY).mean())


def _noise(picture: Array) -> str | None:
    gray = _gray(picture)
    if gray.std() < _GRAINY:
        return None
    height, width = gray.shape
    sizes = [*((max(8, width // n), max(8, height // n)) for n in (2, 4)), (64, 64), (32, 32)]
    # Noise that was enlarged is smooth up close, and noise over a picture hides it only up close.
    alike = min(
        _neighbours(gray), *(_neighbours(cv2.resize(gray, size, interpolation=cv2.INTER_AREA)) for size in sizes)
    )
    if alike >= _NEIGHBOURS:
        return None
    return f"is noise: neighbouring pixels correlate at {alike:.2f}, where pictures have 0.4 and more"


def _neighbours(gray: Array) -> float:
    g = gray - gray.mean()
    pairs = (g[:, 1:] * g[:, :-1]).mean() + (g[1:] * g[:-1]).mean()
    return float(pairs / 2 / max(1e-6, (g * g).mean()))


def _upscaled(before: Array | None, edited: Array) -> str | None:
    gray = _gray(edited)
    if max(gray.shape) < 3 * _COARSE:
        return None
    own, lost = None if before is None else _gray(before), _lost(gray)
    smooth = lost < _FINER and (own is None or lost < _SOFTENED * _lost(own))
    if not smooth and not (_blocks(gray) and (own is None or not _blocks(own))):
        return None
    return f"is a thumbnail blown up: about {_COARSE} pixels a side hold all that it shows"


def _blocks(gray: Array) -> bool:
    """Whether it changes at a few columns and rows alone."""
    for axis in (0, 1):
        steps = (np.diff(gray, axis=axis) ** 2).mean(axis=1 - axis)
        few = min(_BLOCKS, len(steps) // 4)
        if np.sort(steps)[:-few].sum() > 0.01 * steps.sum():
            return False
    return True


def _lost(gray: Array) -> float:
    height, width = gray.shape
    scale = _COARSE / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    small = cv2.resize(gray, size, interpolation=cv2.INTER_AREA)
    rest = gray - cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
    return float(rest.std()) / (float(gray.std()) + 1)


def _gray(picture: Array, side: int | None = None) -> Array:
    small = picture if side is None else cv2.resize(picture, (side, side), interpolation=cv2.INTER_AREA)
    return cv2.cvtColor(small, cv2.COLOR_RGB2GRAY).astype(np.float32)


# --- beside the input -----------------------------------------------------------------------------------------

_TURNS: dict[str, Callable[[Array], Array]] = {
    "mirrored left to right": np.fliplr,
    "mirrored top to bottom": np.flipud,
    "turned upside down": lambda p: np.rot90(p, 2),
    "turned to the left": np.rot90,
    "turned to the right": lambda p: np.rot90(p, -1),
    "mirrored and turned": lambda p: np.fliplr(np.rot90(p)),
    "mirrored and turned the other way": lambda p: np.flipud(np.rot90(p)),
}
_SAME = 0.95
"""Correlation with the turned input, or of a repeated part with itself."""
_OTHER = 0.85
"""Correlation with the input as it is, above which a symmetrical picture may just have been left alone."""
_REPEATS = 8
"""Tiles on a side that are looked for."""


def _correlation(a: Array, b: Array) -> float:
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).mean() / max(1e-6, float(a.std() * b.std())))


def _turned(before: Array, edited: Array) -> str | None:
    a, b = _gray(before, 96), _gray(edited, 96)
    likeness = {name: _correlation(turn(a), b) for name, turn in _TURNS.items()}
    best = max(likeness, key=lambda name: likeness[name])
    if likeness[best] < _SAME or _correlation(a, b) > _OTHER:
        return None
    return f"is the input {best}"


def _tile(before: Array, edited: Array) -> str | None:
    across, down = _repeats(edited)
    if across * down > 1 and _repeats(before) == (1, 1):
        return f"repeats one pattern {across} times across and {down} times down"
    if part := _part(before, edited):
        return f"shows only a part of the input, {part:.0%} of each side, enlarged"
    return None


def _repeats(picture: Array) -> tuple[int, int]:
    """Into how many equal pictures it falls, across and down."""
    counts = []
    for axis in (1, 0):
        best = 1
        for n in range(2, _REPEATS + 1):
            side = n * max(16, 192 // n)
            gray = _gray(picture, side)
            # Without its slow changes: a horizon is alike all the way, and repeats nothing.
            detail = gray - cv2.GaussianBlur(gray, (0, 0), side / n / 6, borderType=cv2.BORDER_REPLICATE)
            detail -= detail.mean(axis=axis, keepdims=True)
            if detail.std() > 2 and _correlation(detail, np.roll(detail, side // n, axis)) > 0.8:
                best = max(best, n)
        counts.append(best)
    return counts[0], counts[1]


def _part(before: Array, edited: Array) -> float | None:
    """The share of the input's side that fills the whole edited picture."""
    whole, shown = _gray(before, 128), _gray(edited, 128)
    if _correlation(whole, shown) > _OTHER:
        return None
    for share in np.arange(0.2, 0.72, 0.025):
        side = round(128 * float(share))
        part = cv2.resize(shown, (side, side), interpolation=cv2.INTER_AREA)
        if part.std() > 8 and cv2.matchTemplate(whole, part, cv2.TM_CCOEFF_NORMED).max() > _SAME:
            return float(share)
    return None


_LAID_OUT = 160
"""Pixels a side on which two pictures are held against each other, patch by patch of a fifth."""
_EVIDENCE = {"patches": 16.8, "best patches": 6.8, "layout": 7.9, "palette": 9.5}
_APART = 12.5
"""A logistic fit on 700 random pairs and 1,459 real edits, rounded. Of the random pairs 98 % are below this sum. Of the
real edits 25 are: eight show another scene, fifteen were drawn anew from a caption by one model, two were relit before
another background."""
_DOUBTFUL = 14.0
"""Below it are 99.3 % of the random pairs and six further edits, of which four keep parts of the place."""


def _unrelated(before: Array, edited: Array) -> tuple[str | None, bool]:
    """The words for another picture, where it may be one, and whether that is certain."""
    patches = _patches(before, edited)
    alike = {
        "patches": float(patches.mean()),
        "best patches": float(np.quantile(patches, 0.75)),
        "layout": _layout(before, edited),
        "palette": _palette(before, edited),
    }
    evidence = sum(weight * alike[name] for name, weight in _EVIDENCE.items())
    if evidence >= _DOUBTFUL:
        return None, False
    words = (
        f"is another picture than the input: its contours correlate at {alike['patches']:.2f}, its layout at "
        f"{alike['layout']:.2f}, and {alike['palette']:.0%} of its colours are shared"
    )
    return words if evidence < _APART else words.replace("is another", "may be another"), evidence < _APART


def _patches(before: Array, edited: Array) -> Array:
    """How well the contours of each patch of the input are found again near its place."""
    cell, reach = _LAID_OUT // 5, 6
    a, b = (_contours(_gray(p, _LAID_OUT)) for p in (before, edited))
    b = cv2.copyMakeBorder(b, reach, reach, reach, reach, cv2.BORDER_REFLECT)
    best = []
    for y in range(0, _LAID_OUT - cell + 1, cell // 2):
        for x in range(0, _LAID_OUT - cell + 1, cell // 2):
            patch = np.ascontiguousarray(a[y : y + cell, x : x + cell])
            if (patch**2).sum(axis=2).mean() < 0.3:  # nothing there to be found again
                continue
            near = np.ascontiguousarray(b[y : y + cell + 2 * reach, x : x + cell + 2 * reach])
            best.append(float(cv2.matchTemplate(near, patch, cv2.TM_CCORR_NORMED).max()))
    return np.array(best or [0.0])


def _contours(gray: Array) -> Array:
    """Gradients with their angle doubled, in terms of those around: the same for light on dark and dark on light."""
    smooth = cv2.GaussianBlur(gray, (0, 0), 1.2)
    dx, dy = cv2.Sobel(smooth, cv2.CV_32F, 1, 0), cv2.Sobel(smooth, cv2.CV_32F, 0, 1)
    size = np.hypot(dx, dy)
    relative = np.minimum(size / (cv2.GaussianBlur(size, (0, 0), 12) + 3), 3)
    angle = 2 * np.arctan2(dy, dx)
    return np.dstack([relative * np.cos(angle), relative * np.sin(angle)]).astype(np.float32)


def _layout(before: Array, edited: Array) -> float:
    """Correlation of colours on a grid of 8 x 8, over lightness and both opponent colours."""
    a, b = (
        cv2.resize(to_lab(cv2.resize(p, (64, 64), interpolation=cv2.INTER_AREA)), (8, 8), interpolation=cv2.INTER_AREA)
        for p in (before, edited)
    )
    return float(np.mean([_correlation(a[..., k], b[..., k]) for k in range(3)]))


def _palette(before: Array, edited: Array) -> float:
    """Share of colours, six steps a channel, that both have."""
    small = [cv2.resize(p, (128, 128), interpolation=cv2.INTER_AREA) for p in (before, edited)]
    a, b = (cv2.calcHist([p], [0, 1, 2], None, [6] * 3, [0, 256] * 3) / 128**2 for p in small)
    return float(np.minimum(a, b).sum())


# --- what was asked for ---------------------------------------------------------------------------------------

_TONES = "|".join(COLOURS)
_EMPTIED = (
    rf"\b(?:(?:solid|plain|uniform|single|flat|pure|one)[- ](?:colou?r|{_TONES})|(?:all|entirely|completely|fully"
    rf"|totally|pitch)[- ](?:{_TONES}|dark)|(?:blank|empty|{_TONES}) (?:canvas|screen|frame|picture|image|page|square)"
    r"|(?:erase|remove|delete) everything|gradient|fade to)\b"
)
_WANTED: dict[Kind, str] = {
    "flat": _EMPTIED,
    "near_flat": rf"{_EMPTIED}|\b(?:night|dark\w*|dim\w*|silhouette)\b",
    "noise": r"\b(?:noise|noisy|grain|grainy|static|stipple|dither\w*|scrambl\w*)\b",
    "upscaled": r"\b(?:blur\w*|pixel\w*|mosaic|low[- ]res\w*|thumbnail|8[- ]?bit|defocus\w*|out of focus"
    r"|censor\w*|fog\w*)\b",
    "mirrored": r"\b(?:mirror\w*|flip\w*|rotat\w*|upside[- ]down|revers\w*|turn (?:it|the (?:picture|image|photo))"
    r" (?:to|by|around|left|right|\d)|invert\w*)\b",
    "tile": r"\b(?:til(?:e|es|ed|ing)|repeat\w*|pattern|collage|grid|copies|duplicat\w*|zoom\w*|crop\w*|close[- ]?up"
    r"|enlarg\w*|magnif\w*|checker\w*|kaleidoscop\w*)\b",
    "unrelated": r"\b(?:another|different|new|entire|whole) (?:picture|image|photo|scene)\b|\b(?:generate|relight)\b",
}
"""Phrases in which an instruction asks for such a picture. None ask for the input again."""


def _wanted(kind: Kind, instruction: str, edited: Array) -> bool:
    pattern = _WANTED.get(kind)
    if pattern is None or not re.search(pattern, instruction, re.IGNORECASE):
        return False
    named = re.findall(rf"\b(?:{_TONES})\b", instruction.lower())
    # A frame of another colour than the one that was asked for is a failure as ever.
    return kind not in ("flat", "near_flat") or not named or any(share_of(c, to_lab(edited)) > 0.5 for c in named)
