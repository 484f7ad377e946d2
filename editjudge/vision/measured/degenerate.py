"""Degenerate outputs: blank, noise, another image, the unchanged input, a tile, a thumbnail.

The embedded judge, the audit, the probes, rewards and contradictions share this one detector. It is a pure function of
two decoded images and the instruction. Its thresholds are set so that it does not report real edits, however bad.
`bench/degenerate.py --edits` lists the exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from editjudge.vision.measured.blending import blended
from editjudge.vision.measured.change import Change
from editjudge.vision.measured.factors import LIGHTING, SPOILT, FactorVerdict, abstain
from editjudge.vision.measured.lettering import request
from editjudge.vision.measured.phrasing import matches, mentions, quotations
from editjudge.vision.measured.proof import COLOURS, named_colours, share_of
from editjudge.vision.measured.resemblance import correlation, gray
from editjudge.vision.measured.scene import Array, area, fit, shrink, to_lab, too_small

# --- without usable detail ----------------------------------------------------------------------------------

_GRAINY = 12.0
"""Standard deviation in levels from which grain counts as noise that hides the image. A blank sensor has less."""
_NEIGHBOURS = 0.3
"""Correlation between neighbouring pixels below which an image counts as noise. Real edits have at least .81 at full
size and .55 at a quarter; pages of text have .44 on a grid of 32. A photograph under four fifths of noise, saved as
JPEG, has less than .25."""
_STILL_SHOWN = 0.96
"""Correlation with the input, on a grid of 64, above which grain counts as a printing technique. A photograph dithered
to one bit has .99; under four fifths of noise it has at most .91."""
_COARSE = 64
"""Longer side in pixels at which an upscaled thumbnail keeps all its detail."""
_FINER = 0.08
"""Share of the contrast that an image loses when it is reduced to `_COARSE` pixels and enlarged again. If it loses
less, it may be an upscaled thumbnail. Thumbnails of 32 pixels lose .01 to .07, whatever the upscaling method."""
_SOFTENED = 0.195
"""Loss of contrast as for `_FINER`, relative to the input's loss. Thumbnails of 32 pixels have .05 to .19, and a blur
of 3 pixels has .2 or more. Of 1,459 real edits only one is below, a field that is smeared all over."""
_BLOCKS = 128
"""Maximum number of columns or rows at which blocks meet. No thumbnail has more."""
_SMALL = 0.25
"""Share of the input's longer side, of which at most 1024 pixels count. An output below this size shows at best a
thumbnail of an edit."""
_STRIP = 8.0
"""Factor between the aspect ratios of output and input from which the output is a strip and not a frame of the same
image."""


def thumbnail(before: Array | None, edited: Array) -> str | None:
    """Describe the fault if the output is far smaller than the input, or is a strip. Otherwise return None."""
    height, width = edited.shape[:2]
    size = f"is only {width} x {height} pixels"
    if before is not None:
        if too_small(before):  # then the output is not smaller than its input
            return None
        if max(height, width) < _SMALL * max(before.shape[:2]):
            return f"{size}, less than a quarter of the input's side: a thumbnail"
        ratio = (width / height) / (before.shape[1] / before.shape[0])
        if max(ratio, 1 / ratio) > _STRIP:
            return "is a strip of another shape than the input, too narrow to show the edit"
    return f"{size}: too small to show anything" if too_small(edited) else None


def noise(before: Array | None, edited: Array) -> str | None:
    """Describe the fault if the output is noise and the input is not. Otherwise return None."""
    alike = _least_neighbours(edited)
    if alike >= _NEIGHBOURS:
        return None
    if before is not None:
        visible = correlation(gray(before, 64), gray(edited, 64)) > _STILL_SHOWN
        if visible or _least_neighbours(before) < _NEIGHBOURS:
            return None
    return f"is noise: neighbouring pixels correlate at {alike:.2f}, where pictures have 0.4 and more"


def _least_neighbours(image: Array) -> float:
    """Return the lowest correlation between neighbouring pixels over five sizes, or 1 if the contrast is too low for
    noise.

    Several sizes are needed, because enlarged noise is smooth at full size, while noise over an image hides it only at
    full size.
    """
    plane = gray(image)
    if plane.std() < _GRAINY:
        return 1.0
    height, width = plane.shape
    halved = ((max(8, width // n), max(8, height // n)) for n in (2, 4))
    reduced = (area(plane, size) for size in (*halved, (64, 64), (32, 32)))
    return min(map(_neighbours, (plane, *reduced)))


def _neighbours(plane: Array) -> float:
    g = plane - plane.mean()
    pairs = (g[:, 1:] * g[:, :-1]).mean() + (g[1:] * g[:-1]).mean()
    return float(pairs / 2 / max(1e-6, (g * g).mean()))


def upscaled(before: Array | None, edited: Array) -> str | None:
    """Describe the fault if the output is an upscaled thumbnail and the input is not. Otherwise return None."""
    plane = gray(edited)
    if max(plane.shape) < 3 * _COARSE:
        return None
    smooth = _lost(plane) < _FINER
    blocky = _has_blocks(plane)
    if before is not None and (smooth or blocky):
        original = gray(before)
        smooth = smooth and _lost(plane) < _SOFTENED * _lost(original)
        blocky = blocky and not _has_blocks(original)
    if not smooth and not blocky:
        return None
    return (
        f"is a thumbnail blown up: about {_COARSE} pixels a side hold all that it shows"
    )


def _has_blocks(plane: Array) -> bool:
    """Whether the image changes only at a few columns and rows, as an enlarged thumbnail does."""
    for axis in (0, 1):
        steps = (np.diff(plane, axis=axis) ** 2).mean(axis=1 - axis)
        few = min(_BLOCKS, len(steps) // 4)
        if np.sort(steps)[:-few].sum() > 0.01 * steps.sum():
            return False
    return True


def _lost(plane: Array) -> float:
    """Return the share of the contrast that is lost when the image is reduced and enlarged again."""
    height, width = plane.shape
    scale = _COARSE / max(height, width)
    small = area(plane, (max(1, round(width * scale)), max(1, round(height * scale))))
    rest = plane - cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
    return float(rest.std()) / (float(plane.std()) + 1)


# --- blank, or blank in a large part ------------------------------------------------------------------------

_LEVELS = 4
"""Range in levels of 255 that contains nearly all pixels of a single colour after JPEG compression."""
_STRAY = 8.0
"""Difference in levels from a smooth background at which something is visible. Sensor noise of 8 levels averages to
less than 1."""
_EMPTY = 0.08
"""Share of a 64 x 64 grid up to which cells may differ from a smooth background in an image that counts as empty. A
watermark or a logo has less; the emptiest real edit has .17."""
_CELLS = 32
"""Number of cells along a side in which an image is searched for even surfaces. A cell has 8 x 8 pixels."""
_EVEN = 1.2
"""Standard deviation in levels up to which a cell was filled rather than photographed, even after JPEG compression."""
_CONTENT = 4.0
"""Standard deviation in levels from which a cell has content."""
_BLANK = 0.12
"""Minimum share of the image that had content and is now one even surface, for this to count as a fault."""
_STRAIGHT = 0.9
"""Share of its bounding box that such a surface must fill. Lost data and paint have straight sides; backgrounds do not."""
_PLAIN = ("black", "white", "grey")
"""Colours that are tested first. Otherwise dark colours would get the name of a hue: a dark red is within the hues of
three names."""


def flat(image: Array) -> str | None:
    pixels = image.reshape(-1, 3)
    # the first test is fast
    if not _within_levels(pixels[::61], 1) or not _within_levels(pixels, 0.02):
        return None
    level = np.median(pixels, axis=0).astype(int)
    return f"is one flat colour, {_colour(level)}, over the whole picture: it shows nothing"


def _within_levels(pixels: Array, tail: float) -> bool:
    low, high = np.percentile(pixels, (tail, 100 - tail), axis=0)
    return float((high - low).max()) <= _LEVELS


def _colour(level: Array) -> str:
    lab = to_lab(np.asarray(level, np.uint8).reshape(1, 1, 3))
    names = (name for name in (*_PLAIN, *COLOURS) if share_of(name, lab))
    return f"{next(names, 'a colour')} ({', '.join(str(int(v)) for v in level)})"


def near_flat(before: Array | None, edited: Array) -> str | None:
    """Describe the fault if the output is almost empty and the input was not. Otherwise return None."""
    for share_of_detail, surface in (
        (_off_one_surface, "one smooth surface"),
        (_uneven, "even surfaces"),
    ):
        detail = share_of_detail(edited)
        # If the input is a drawing or a product on white, the output is empty only if most of that content is gone.
        if detail <= _EMPTY and (
            before is None or share_of_detail(before) > max(_EMPTY, 2 * detail)
        ):
            return f"is almost empty: {1 - detail:.0%} of it is {surface} without any detail"
    return None


def _off_one_surface(image: Array) -> float:
    """Return the share of cells that differ from one smooth surface, which is a quadratic in each channel, fitted
    robustly.

    The fit is skipped if a cheap lower bound on the share already exceeds twice `_EMPTY`, as it does for most
    photographs. The bound uses third differences. Four equally spaced values of a quadratic have a third difference of
    0. If each value is off by at most `_STRAY`, the third difference is at most 8 times that. With a spacing of a
    quarter of the row, each cell is in one such group of four.
    """
    grid = area(image, (64, 64)).astype(np.float64).reshape(-1, 3)
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


def _uneven(image: Array) -> float:
    """Return the share of cells whose colours are not those of an even or linearly shaded surface."""
    tiles = _tiles(image)
    y, x = np.mgrid[-1:1:8j, -1:1:8j].reshape(2, -1)
    terms = np.stack([np.ones_like(x), x, y], axis=1)
    rest = tiles - terms @ (np.linalg.pinv(terms) @ tiles)
    return float((_deviation(rest) > _EVEN).mean())


def _tiles(image: Array) -> Array:
    """Return an array of cells x pixels of a cell x channels."""
    side = 8 * _CELLS
    small = fit(image, side, side).astype(np.float32)
    cells = small.reshape(_CELLS, 8, _CELLS, 8, 3).transpose(0, 2, 1, 3, 4)
    return cells.reshape(_CELLS**2, 64, 3)


def _deviation(tiles: Array) -> Array:
    deviation: Array = tiles.std(axis=1).max(axis=1)
    return deviation


def partly_blank(before: Array, edited: Array) -> str | None:
    """Describe the fault if a large area with straight sides had content and is now one even colour. Otherwise return
    None."""
    now = _tiles(edited)
    even = _deviation(now) < _EVEN
    emptied = even & (_deviation(_tiles(before)) > _CONTENT)
    if emptied.mean() < _BLANK:
        return None
    colour = now.mean(axis=1)
    main = np.median(colour[emptied], axis=0)
    surface = even & (np.abs(colour - main).max(axis=1) < _LEVELS)
    share = float((surface & emptied).mean())
    square = (_CELLS, _CELLS)
    if (
        share < _BLANK
        or _filled_box(surface.reshape(square), (surface & emptied).reshape(square))
        < _STRAIGHT
    ):
        return None
    return f"is blank in a large part: {share:.0%} of the picture had content and is {_colour(main.astype(int))} now"


def _filled_box(surface: Array, part: Array) -> float:
    """Return the share of the main area's bounding box that the surface fills."""
    box = []
    for axis in (1, 0):
        counts = part.sum(axis=axis)
        lines = np.flatnonzero(counts > 0.25 * counts.max())
        box.append(slice(lines[0], lines[-1] + 1))
    rows, columns = box
    inside = float(surface[rows, columns].mean())
    # A background continues beside any box.
    return inside * float(part[rows, columns].sum() / part.sum())


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
"""Kinds of output that still show the content of the input. They are judged like any edit, and the judgement has a
flag."""

_SIDE = 1024
"""Longest side in pixels at which images are measured, the same as elsewhere in this judge."""
_ROOM = Decoding(BOUNDS.max_pixels // 2)


@dataclass(frozen=True)
class Degenerate:
    """Reason why an image is degenerate."""

    kind: Kind
    words: str
    """A clause whose subject is the image: "is one flat colour ..."."""
    certain: bool = True
    """Whether this is certain. It is uncertain if too little of the input is recognised, so that the output may be
    another image."""
    nearly: bool = False
    """Whether it is nearly of its kind: it changed next to nothing, which a judge of the instruction can still judge."""
    requested: bool = False
    """Whether the instruction asks for an output of this kind. If so it is not a fault, but there is nothing to score.
    """

    @property
    def set_aside(self) -> bool:
        """Whether nothing in the output can be judged."""
        return self.kind not in FLAGGED


def find_degenerate(
    before: Array | None, edited: Array, instruction: str = ""
) -> Degenerate | None:
    """Return the reason why the edited image (RGB of any size) is degenerate. Return None if it is not, if that is
    uncertain, or if the instruction asks for such an image."""
    output = classify(before, edited, instruction)
    return output if output and output.certain and not output.requested else None


def classify(
    before: Array | None,
    edited: Array,
    instruction: str = "",
    *,
    change: Change | None = None,
) -> Degenerate | None:
    """Return the reason why the edited image is degenerate, including uncertain and requested cases, or None if it is
    not degenerate. `change` is an earlier measurement."""
    before = None if before is None else shrink(before, _SIDE)
    edited = shrink(edited, _SIDE)
    output = _classify(before, edited, instruction, change)
    return output and replace(
        output, requested=_requested(output.kind, instruction, edited)
    )


def glance(source: ImageSource | None) -> Array | None:
    """Read an image at the size that is needed, or return None if it is missing or at a URL. Raises `ImageError`."""
    if source is None or isinstance(source, str):
        return None
    data = read(source)
    info = probe(data, name=name_of(source))
    with _ROOM.room(info.width * info.height):
        return shrink(np.asarray(decode(data, name=name_of(source))), _SIDE)


def worst(output: Degenerate, factor: str) -> FactorVerdict | None:
    """Return the verdict on a factor if the image itself is the fault. Return None if the factor should be measured as
    usual."""
    if not output.set_aside:
        return None
    if output.requested:
        return abstain(
            f"the edited picture {output.words}, as the instruction asks: there is nothing to compare"
        )
    spoilt = factor in SPOILT[output.kind]
    if output.certain and spoilt:
        end = ": not allowed" if factor == LIGHTING else "."
        return FactorVerdict(1.0, f"The edited picture {output.words}{end}")
    # An image that may be unrelated may also be good, so only its preservation of the input is unknown.
    if output.certain or spoilt:
        return abstain(f"the edited picture {output.words}")
    return None


def find_flat(image: Array) -> str | None:
    """Describe the fault if an image shows nothing, else return None. The image may also be an input."""
    return None if too_small(image) else flat(shrink(image, _SIDE))


_BY_ITSELF: Sequence[tuple[Kind, Callable[[Array | None, Array], str | None]]] = (
    ("near_flat", near_flat),
    ("tile", resemblance.repeated),
    ("noise", noise),
    ("upscaled", upscaled),
)
_BESIDE_INPUT: Sequence[tuple[Kind, Callable[[Array, Array], str | None]]] = (
    ("partly_blank", partly_blank),
    ("mirrored", resemblance.mirrored),
    ("tile", resemblance.enlarged_part),
)


def _classify(
    before: Array | None, edited: Array, instruction: str, change: Change | None
) -> Degenerate | None:
    """Return the first kind of degenerate output that applies, or None. Certain kinds come first. For example, a black
    frame is also unrelated to the input, but it is reported as black."""
    if clause := thumbnail(before, edited):
        return Degenerate("thumbnail", clause)
    if too_small(edited) or (before is not None and too_small(before)):
        return None
    same = Degenerate("unchanged", resemblance.UNCHANGED)
    if clause := flat(edited):
        images = [
            image.reshape(-1, 3) for image in (before, edited) if image is not None
        ]
        if before is not None and _within_levels(np.concatenate(images), 0.02):
            return same
        return Degenerate("flat", clause)
    for kind, find in _BY_ITSELF:
        if clause := find(before, edited):
            return Degenerate(kind, clause)
    if before is None:
        return None
    toned = mentions("shift_of_whole_picture", instruction)
    small = bool(quotations(instruction) or request(instruction))
    if clause := resemblance.unchanged(
        before, edited, change, toned=toned, small=small
    ):
        return Degenerate("unchanged", clause, nearly=clause != resemblance.UNCHANGED)
    output = _beside_input(before, edited)
    if output and (flat(before) or _off_one_surface(before) <= _EMPTY):
        return None  # nothing in the input can be recognised
    if toned or (output and output.certain):
        return output
    share = blended(before, edited)
    if share is None:
        return output
    clause = f"is the input blended with an edit: inside the edit its contours remain at {share:.0%} of their contrast"
    return Degenerate("unchanged", clause, nearly=True)


def _beside_input(before: Array, edited: Array) -> Degenerate | None:
    for kind, find in _BESIDE_INPUT:
        if clause := find(before, edited):
            return Degenerate(kind, clause)
    clause, certain = resemblance.unrelated(before, edited)
    return Degenerate("unrelated", clause, certain) if clause else None


def _requested(kind: Kind, instruction: str, edited: Array) -> bool:
    """Whether the instruction as a whole asks for such an image. No instruction asks for the unchanged input."""
    if not matches(f"asked_for.{kind}", instruction):
        return False
    named = named_colours(instruction)
    if kind not in ("flat", "near_flat") or not named:
        return True
    # A frame in another colour than the requested one is still a fault.
    return any(share_of(colour, to_lab(edited)) > 0.5 for colour in named)


def screen(edit: Edit) -> list[DegenerateImage]:
    """Return the degenerate images of an edit: its outputs, and an input that shows nothing."""
    if all(edit.image(role) is None for role in edit.outputs):
        return []
    findings: list[DegenerateImage] = []
    with suppress(ImageError):
        before = glance(edit.input)
        nothing_shown = None if before is None else find_flat(before)
        for role in edit.outputs:
            edited = glance(edit.image(role))
            if edited is None:
                continue
            if output := find_degenerate(before, edited, edit.instruction):
                # An unchanged input is not a good edit, although everything is preserved. One that is nearly
                # unchanged may be a small edit, which a judge of the instruction decides.
                unchanged = output.kind == "unchanged" and not output.nearly
                set_aside = output.set_aside or unchanged
                findings.append(
                    DegenerateImage(output.kind, role, output.words, set_aside)
                )
        if nothing_shown:
            findings.insert(0, DegenerateImage("flat", "input", nothing_shown))
    return findings
