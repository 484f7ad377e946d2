"""Degenerate outputs: blank, noise, another image, the input again, a tile, a thumbnail.

The embedded judge, the audit, the probes, rewards and contradictions share this one detector. It is a pure function of
two decoded images and the instruction. Its thresholds leave real edits alone, however bad: `bench/degenerate.py
--edits` lists every real edit that it reports.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, get_args

import cv2
import numpy as np

from editjudge.edit import DegenerateImage, Edit, ImageSource
from editjudge.errors import ImageError
from editjudge.media.image import Decoding, decode, probe
from editjudge.media.source import BOUNDS, name_of, read
from editjudge.vision.measured import resemblance
from editjudge.vision.measured.factors import LIGHTING, SPOILT, FactorVerdict, abstain
from editjudge.vision.measured.phrasing import matches
from editjudge.vision.measured.proof import COLOURS, named_colours, share_of
from editjudge.vision.measured.resemblance import correlation, gray
from editjudge.vision.measured.scene import Array, area, fit, shrink, to_lab, too_small

# --- without usable detail ----------------------------------------------------------------------------------

_GRAINY = 12.0
"""Levels of deviation from which grain is noise that hides the picture, and less is the grain of a blank sensor."""
_NEIGHBOURS = 0.3
"""Correlation of neighbouring pixels below which a picture is noise. Real edits have .81 and more at full size, .55 at
a quarter; pages of text .44 on a grid of 32; noise at four fifths over a photograph, saved as JPEG, has under .25."""
_STILL_SHOWN = 0.96
"""Correlation with the input on a grid of 64 from which grain is a way of printing: a photograph dithered to one bit
has .99, under noise at four fifths .91 and less."""
_COARSE = 64
"""Pixels of the longer side that hold all that a blown-up thumbnail shows."""
_FINER = 0.08
"""Deviation, as a share of the contrast, that is lost when a picture is reduced to that size and enlarged again.
Thumbnails of 32 pixels lose .01 to .07, however they were enlarged."""
_SOFTENED = 0.195
"""The loss as a share of the input's own. Thumbnails of 32 pixels have .05 to .19, a blur of 3 pixels .2 and more; of
1,459 real edits one is below, a field smeared all over."""
_BLOCKS = 128
"""Columns or rows at which blocks meet, at most: no thumbnail is larger."""
_SMALL = 0.25
"""Share of the input's longer side (at most 1024 pixels): a smaller output shows a thumbnail of an edit at best."""
_STRIP = 8.0
"""Times the input's ratio of sides: such an output is no frame of the same picture."""


def thumbnail(before: Array | None, edited: Array) -> str | None:
    """Words for an output that is far smaller than the input, or a strip."""
    height, width = edited.shape[:2]
    size = f"is only {width} x {height} pixels"
    if before is not None and too_small(before):  # no smaller than what it was made of
        return None
    if before is not None and max(height, width) < _SMALL * max(before.shape[:2]):
        return f"{size}, less than a quarter of the input's side: a thumbnail"
    ratio = (
        1.0
        if before is None
        else (width / height) / (before.shape[1] / before.shape[0])
    )
    if max(ratio, 1 / ratio) > _STRIP:
        return "is a strip of another shape than the input, too narrow to show the edit"
    return f"{size}: too small to show anything" if too_small(edited) else None


def noise(before: Array | None, edited: Array) -> str | None:
    """Words for noise, where the input is none."""
    alike = _least_neighbours(edited)
    if alike >= _NEIGHBOURS or (
        before is not None and _least_neighbours(before) < _NEIGHBOURS
    ):
        return None
    if (
        before is not None
        and correlation(gray(before, 64), gray(edited, 64)) > _STILL_SHOWN
    ):
        return None
    return f"is noise: neighbouring pixels correlate at {alike:.2f}, where pictures have 0.4 and more"


def _least_neighbours(picture: Array) -> float:
    """The least correlation of neighbours over five sizes; 1 where there is too little contrast for noise.

    Noise that was enlarged is smooth up close, and noise over a picture hides it only up close.
    """
    plane = gray(picture)
    if plane.std() < _GRAINY:
        return 1.0
    height, width = plane.shape
    sizes = [
        *((max(8, width // n), max(8, height // n)) for n in (2, 4)),
        (64, 64),
        (32, 32),
    ]
    reduced = (area(plane, size) for size in sizes)
    return min(_neighbours(plane), *map(_neighbours, reduced))


def _neighbours(plane: Array) -> float:
    g = plane - plane.mean()
    pairs = (g[:, 1:] * g[:, :-1]).mean() + (g[1:] * g[:-1]).mean()
    return float(pairs / 2 / max(1e-6, (g * g).mean()))


def upscaled(before: Array | None, edited: Array) -> str | None:
    """Words for a thumbnail blown up."""
    plane = gray(edited)
    if max(plane.shape) < 3 * _COARSE:
        return None
    own = None if before is None else gray(before)
    lost = _lost(plane)
    smooth = lost < _FINER and (own is None or lost < _SOFTENED * _lost(own))
    if not smooth and not (_blocks(plane) and (own is None or not _blocks(own))):
        return None
    return (
        f"is a thumbnail blown up: about {_COARSE} pixels a side hold all that it shows"
    )


def _blocks(plane: Array) -> bool:
    """Whether it changes at a few columns and rows alone."""
    for axis in (0, 1):
        steps = (np.diff(plane, axis=axis) ** 2).mean(axis=1 - axis)
        few = min(_BLOCKS, len(steps) // 4)
        if np.sort(steps)[:-few].sum() > 0.01 * steps.sum():
            return False
    return True


def _lost(plane: Array) -> float:
    height, width = plane.shape
    scale = _COARSE / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    small = area(plane, size)
    rest = plane - cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
    return float(rest.std()) / (float(plane.std()) + 1)


# --- blank, or blank in a large part ------------------------------------------------------------------------

_LEVELS = 4
"""Levels of 255, over all pixels but a few: what JPEG leaves of one colour."""
_STRAY = 8.0
"""Levels from a smooth background at which something shows. Sensor noise of 8 levels averages to less than 1."""
_EMPTY = 0.08
"""Share of a 64 x 64 grid that differs from a smooth background: a watermark or a logo is less. The emptiest real edit
has 0.17."""
_CELLS = 32
"""Cells a side in which a picture is searched for even surfaces, of 8 x 8 pixels each."""
_EVEN = 1.2
"""Levels of deviation of a cell that was filled, not photographed, also after it was saved as JPEG."""
_CONTENT = 4.0
"""Levels of deviation of a cell that showed something."""
_BLANK = 0.12
"""Share of the picture that had content and is one even surface now."""
_STRAIGHT = 0.9
"""Share of its bounding box that such a surface fills: lost data and paint have straight sides, backgrounds do not."""
_PLAIN = ("black", "white", "grey")
"""Tried first: a dark red is within the hues of three names."""


def flat(picture: Array) -> str | None:
    pixels = picture.reshape(-1, 3)
    # the first is fast
    if not _within_levels(pixels[::61], 1) or not _within_levels(pixels, 0.02):
        return None
    level = np.median(pixels, axis=0).astype(int)
    return f"is one flat colour, {_colour(level)}, over the whole picture: it shows nothing"


def same_colour(before: Array, edited: Array) -> bool:
    """Whether both pictures together are one flat colour."""
    return _within_levels(
        np.concatenate([before.reshape(-1, 3), edited.reshape(-1, 3)]), 0.02
    )


def _within_levels(pixels: Array, tail: float) -> bool:
    low, high = np.percentile(pixels, (tail, 100 - tail), axis=0)
    return float((high - low).max()) <= _LEVELS


def _colour(level: Array) -> str:
    lab = to_lab(np.asarray(level, np.uint8).reshape(1, 1, 3))
    name = next(
        (name for name in (*_PLAIN, *COLOURS) if share_of(name, lab)), "a colour"
    )
    return f"{name} ({', '.join(str(int(v)) for v in level)})"


def near_flat(before: Array | None, edited: Array) -> str | None:
    """Words for an output that is almost empty, where the input was not."""
    for share_of_detail, surface in (
        (_off_one_surface, "one smooth surface"),
        (_uneven, "even surfaces"),
    ):
        detail = share_of_detail(edited)
        # Beside a drawing or a product on white, little is left only where most of that little is gone.
        if detail <= _EMPTY and (
            before is None or share_of_detail(before) > max(_EMPTY, 2 * detail)
        ):
            return f"is almost empty: {1 - detail:.0%} of it is {surface} without any detail"
    return None


def is_near_flat(picture: Array) -> bool:
    return _off_one_surface(picture) <= _EMPTY


def _off_one_surface(picture: Array) -> float:
    """Return the share that stands out from one smooth surface: a quadratic in each channel, fitted to what is not far.

    A lower bound above twice `_EMPTY` is enough, and saves the fit for most photographs: along a row, four equally spaced
    values of a quadratic have no third difference; if each is off by `_STRAY` at most it is at most 8 times that. A
    quarter of the row apart, each cell is in one such row of four.
    """
    cells = area(picture, (64, 64))
    grid = cells.astype(np.float64).reshape(-1, 3)
    fours = grid.reshape(64, 4, 16, 3)
    third = fours[:, 3] - 3 * fours[:, 2] + 3 * fours[:, 1] - fours[:, 0]
    least = float((np.abs(third).max(axis=-1) > 8 * _STRAY).mean()) / 4
    if least > 2 * _EMPTY:
        return least
    y, x = np.mgrid[-1:1:64j, -1:1:64j].reshape(2, -1)
    terms = np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], axis=1)
    off = np.abs(grid - np.median(grid, axis=0)).max(axis=1)
    for _ in range(4):
        near = off <= max(_STRAY, float(np.quantile(off, 0.7)))
        fitted = np.linalg.lstsq(terms[near], grid[near], rcond=None)[0]
        off = np.abs(grid - terms @ fitted).max(axis=1)
    return float((off > _STRAY).mean())


def _uneven(picture: Array) -> float:
    """The share of cells that are no plane of colour."""
    tiles = _tiles(picture)
    y, x = np.mgrid[-1:1:8j, -1:1:8j].reshape(2, -1)
    terms = np.stack([np.ones_like(x), x, y], axis=1)
    rest = tiles - terms @ (np.linalg.pinv(terms) @ tiles)
    return float((rest.std(axis=1).max(axis=1) > _EVEN).mean())


def _tiles(picture: Array) -> Array:
    """Cells x pixels of a cell x channels."""
    side = 8 * _CELLS
    small = fit(picture, side, side).astype(np.float32)
    return (
        small.reshape(_CELLS, 8, _CELLS, 8, 3)
        .transpose(0, 2, 1, 3, 4)
        .reshape(_CELLS**2, 64, 3)
    )


def partly_blank(before: Array, edited: Array) -> str | None:
    """Words for a large part with straight sides that had content and is one even colour now."""
    now = _tiles(edited)
    even = now.std(axis=1).max(axis=1) < _EVEN
    colour = now.mean(axis=1)
    had = _tiles(before).std(axis=1).max(axis=1) > _CONTENT
    emptied = had & even
    if emptied.mean() < _BLANK:
        return None
    main = np.median(colour[emptied], axis=0)
    same = (even & (np.abs(colour - main).max(axis=1) < _LEVELS)).reshape(
        _CELLS, _CELLS
    )
    emptied = same & emptied.reshape(_CELLS, _CELLS)
    share = float(emptied.mean())
    if share < _BLANK or _filled_box(same, emptied) < _STRAIGHT:
        return None
    return f"is blank in a large part: {share:.0%} of the picture had content and is {_colour(main.astype(int))} now"


def _filled_box(surface: Array, part: Array) -> float:
    """Share of the bounding box of most of the part that the surface fills."""
    box = []
    for axis in (1, 0):
        lines = np.flatnonzero(part.sum(axis=axis) > 0.25 * part.sum(axis=axis).max())
        box.append(slice(lines[0], lines[-1] + 1))
    inside = surface[box[0], box[1]]
    # A background has more of the surface beside any box.
    return float(inside.mean()) * float(part[box[0], box[1]].sum() / part.sum())


# --- all kinds ----------------------------------------------------------------------------------------------

Kind = Literal[
    "flat",
    "near_flat",
    "partly_blank",
    "noise",
    "upscaled",
    "thumbnail",
    "unchanged",
    "mirrored",
    "tile",
    "unrelated",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
FLAGGED: frozenset[Kind] = frozenset({"unchanged", "mirrored"})
"""Kinds that still show what the input shows: they are judged as any edit, and the judgement carries the flag."""

_SIDE = 1024
"""Longest side that is looked at, as everywhere in this judge."""
_ROOM = Decoding(BOUNDS.max_pixels // 2)


@dataclass(frozen=True)
class Degenerate:
    """Why a picture is no edit."""

    kind: Kind
    words: str
    """A clause with the picture as its subject: "is one flat colour ..."."""
    certain: bool = True
    """False where it `may be another picture`: too little of the input is found again to say more."""
    requested: bool = False
    """The instruction as a whole asks for such an output. It is then no fault, but there is nothing to score."""

    @property
    def set_aside(self) -> bool:
        """Whether nothing in the output can be judged."""
        return self.kind not in FLAGGED


def find_degenerate(
    before: Array | None, edited: Array, instruction: str = ""
) -> Degenerate | None:
    """Return why the edited image, RGB of any size, is certainly degenerate without being asked for; None if it is not."""
    output = classify(before, edited, instruction)
    return output if output and output.certain and not output.requested else None


def classify(
    before: Array | None,
    edited: Array,
    instruction: str = "",
    *,
    unchanged: bool | None = None,
) -> Degenerate | None:
    """Classify as `find_degenerate` does, with doubtful and requested outputs. `unchanged`: what was measured already."""
    before = None if before is None else shrink(before, _SIDE)
    edited = shrink(edited, _SIDE)
    output = _classify(before, edited, unchanged)
    return output and replace(
        output, requested=_requested(output.kind, instruction, edited)
    )


def glance(source: ImageSource | None) -> Array | None:
    """A picture no larger than is looked at; None where it is absent or lies at an address. Raises `ImageError`."""
    if source is None or isinstance(source, str):
        return None
    data = read(source)
    info = probe(data, name=name_of(source))
    with _ROOM.room(info.width * info.height):
        return shrink(np.asarray(decode(data, name=name_of(source))), _SIDE)


def worst(output: Degenerate, factor: str) -> FactorVerdict | None:
    """The verdict on a factor where the picture itself is the fault; None where the factor is measured as ever."""
    if not output.set_aside:
        return None
    if output.requested:
        return abstain(
            f"the edited picture {output.words}, as the instruction asks: there is nothing to compare"
        )
    spoilt = factor in SPOILT[output.kind]
    if not output.certain:
        # What may be another picture may be a good one: only what it kept of the input is not known.
        return abstain(f"the edited picture {output.words}") if spoilt else None
    if not spoilt:
        return abstain(f"the edited picture {output.words}")
    end = ": not allowed" if factor == LIGHTING else "."
    return FactorVerdict(1.0, f"The edited picture {output.words}{end}")


def find_flat(picture: Array) -> str | None:
    """The words for a picture that shows nothing, also where it is the input."""
    return None if too_small(picture) else flat(shrink(picture, _SIDE))


def _classify(
    before: Array | None, edited: Array, unchanged: bool | None
) -> Degenerate | None:
    """The certain kinds come first: a black frame is also unrelated to the input, and is called black."""
    if words := thumbnail(before, edited):
        return Degenerate("thumbnail", words)
    if too_small(edited) or (before is not None and too_small(before)):
        return None
    if words := flat(edited):
        if before is not None and same_colour(before, edited):
            return Degenerate("unchanged", resemblance.UNCHANGED)
        return Degenerate("flat", words)
    if words := near_flat(before, edited):
        return Degenerate("near_flat", words)
    if before is not None and (words := resemblance.repeated(before, edited)):
        return Degenerate("tile", words)
    if words := noise(before, edited):
        return Degenerate("noise", words)
    if words := upscaled(before, edited):
        return Degenerate("upscaled", words)
    return None if before is None else _compare(before, edited, unchanged)


def _compare(before: Array, edited: Array, unchanged: bool | None) -> Degenerate | None:
    if unchanged or resemblance.unchanged(
        before, edited, measured=unchanged is not None
    ):
        return Degenerate("unchanged", resemblance.UNCHANGED)
    output = _difference(before, edited)
    # nothing in it could be found again
    if output and (flat(before) or is_near_flat(before)):
        return None
    return output


def _difference(before: Array, edited: Array) -> Degenerate | None:
    if words := partly_blank(before, edited):
        return Degenerate("partly_blank", words)
    if words := resemblance.mirrored(before, edited):
        return Degenerate("mirrored", words)
    if words := resemblance.enlarged_part(before, edited):
        return Degenerate("tile", words)
    words, certain = resemblance.unrelated(before, edited)
    return Degenerate("unrelated", words, certain) if words else None


def _requested(kind: Kind, instruction: str, edited: Array) -> bool:
    """Whether the instruction as a whole asks for such a picture. None asks for the input again."""
    if not matches(f"asked_for.{kind}", instruction):
        return False
    named = named_colours(instruction)
    # A frame of another colour than the one that was asked for is a failure as ever.
    return (
        kind not in ("flat", "near_flat")
        or not named
        or any(share_of(c, to_lab(edited)) > 0.5 for c in named)
    )


def screen(edit: Edit) -> list[DegenerateImage]:
    """Return the degenerate images of an edit: its outputs, and an input that shows nothing."""
    if all(edit.picture(role) is None for role in edit.outputs):
        return []
    findings: list[DegenerateImage] = []
    with suppress(ImageError):
        before = glance(edit.input)
        flat = None if before is None else find_flat(before)
        for role in edit.outputs:
            edited = glance(edit.picture(role))
            if edited is None:
                continue
            output = find_degenerate(before, edited, edit.instruction)
            if output:
                # An output that is its input again is not a good edit, however well everything is preserved.
                set_aside = output.set_aside or output.kind == "unchanged"
                findings.append(
                    DegenerateImage(output.kind, role, output.words, set_aside)
                )
        if flat:
            findings.insert(0, DegenerateImage("flat", "input", flat))
    return findings
