"""Outputs that are no edit at all: blank, noise, another picture, the input again, a tile, a thumbnail.

The embedded judge, the audit, the probes, rewards and contradictions share this one detector. It is a pure function of
two decoded pictures and the instruction. Its thresholds leave real edits alone, however bad: `bench/degenerate.py
--edits` lists every real edit that it reports.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from editjudge.edit import Edit, ImageSource
from editjudge.errors import ImageError
from editjudge.measured import blank, resemblance, resolution
from editjudge.measured.colours import COLOURS, share_of
from editjudge.measured.factor_verdict import SPOILT, FactorVerdict, abstain
from editjudge.measured.phrasing import matches
from editjudge.measured.scene import Array, shrink, to_lab, too_small
from editjudge.media.image import BOUNDS, Decoding, decode, name_of, probe, read

Kind = Literal[
    "flat", "near_flat", "partly_blank", "noise", "upscaled", "thumbnail", "unchanged", "mirrored", "tile", "unrelated"
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


def find_degenerate(before: Array | None, edited: Array, instruction: str = "") -> Degenerate | None:
    """What makes the edited picture, RGB of any size, certainly no edit, and was not asked for; None where nothing."""
    output = classify(before, edited, instruction)
    return output if output and output.certain and not output.requested else None


def classify(
    before: Array | None, edited: Array, instruction: str = "", *, unchanged: bool | None = None
) -> Degenerate | None:
    """As `find_degenerate`, with doubtful and requested outputs. `unchanged`: what was measured already."""
    before, edited = None if before is None else shrink(before, _SIDE), shrink(edited, _SIDE)
    output = _classify(before, edited, unchanged)
    return output and replace(output, requested=_requested(output.kind, instruction, edited))


def glance(source: ImageSource | None) -> Array | None:
    """A picture no larger than is looked at; None where it is absent or lies at an address. Raises `ImageError`."""
    if source is None or isinstance(source, str):
        return None
    data = read(source)
    info = probe(data, name=name_of(source))
    with _ROOM.room(info.width * info.height):
        return shrink(np.asarray(decode(data, name=name_of(source))), _SIDE)


def screen(edit: Edit) -> Degenerate | None:
    """Why the output of an edit is none, before a judge is asked; None also where a picture cannot be read.

    An output that is not `set_aside` can be judged; its kind is then a flag on the judgement.
    """
    try:
        before, edited = glance(edit.input), glance(edit.edited)
    except ImageError:
        return None
    return None if edited is None else find_degenerate(before, edited, edit.instruction)


def worst(output: Degenerate, factor: str) -> FactorVerdict | None:
    """The verdict on a factor where the picture itself is the fault; None where the factor is measured as ever."""
    if not output.set_aside:
        return None
    if output.requested:
        return abstain(f"the edited picture {output.words}, as the instruction asks: there is nothing to compare")
    spoilt = factor in SPOILT[output.kind]
    if not output.certain:
        # What may be another picture may be a good one: only what it kept of the input is not known.
        return abstain(f"the edited picture {output.words}") if spoilt else None
    if not spoilt:
        return abstain(f"the edited picture {output.words}")
    lighting = factor == "Contextual_Preservation"  # whose reasons are a list of differences, each with its mark
    return FactorVerdict(1.0, f"The edited picture {output.words}{': not allowed' if lighting else '.'}")


def find_flat(picture: Array) -> str | None:
    """The words for a picture that shows nothing, also where it is the input."""
    return None if too_small(picture) else blank.flat(shrink(picture, _SIDE))


def _classify(before: Array | None, edited: Array, unchanged: bool | None) -> Degenerate | None:
    """The certain kinds come first: a black frame is also unrelated to the input, and is called black."""
    if words := resolution.thumbnail(before, edited):
        return Degenerate("thumbnail", words)
    if too_small(edited) or (before is not None and too_small(before)):
        return None
    if words := blank.flat(edited):
        if before is not None and blank.same_colour(before, edited):
            return Degenerate("unchanged", resemblance.UNCHANGED)
        return Degenerate("flat", words)
    if words := blank.near_flat(before, edited):
        return Degenerate("near_flat", words)
    if before is not None and (words := resemblance.repeated(before, edited)):
        return Degenerate("tile", words)
    if words := resolution.noise(before, edited):
        return Degenerate("noise", words)
    if words := resolution.upscaled(before, edited):
        return Degenerate("upscaled", words)
    return None if before is None else _compare(before, edited, unchanged)


def _compare(before: Array, edited: Array, unchanged: bool | None) -> Degenerate | None:
    if unchanged or resemblance.unchanged(before, edited, measured=unchanged is not None):
        return Degenerate("unchanged", resemblance.UNCHANGED)
    output = _difference(before, edited)
    if output and (blank.flat(before) or blank.is_near_flat(before)):  # nothing in it could be found again
        return None
    return output


def _difference(before: Array, edited: Array) -> Degenerate | None:
    if words := blank.partly_blank(before, edited):
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
    named = re.findall(rf"\b(?:{'|'.join(COLOURS)})\b", instruction.lower())
    # A frame of another colour than the one that was asked for is a failure as ever.
    return kind not in ("flat", "near_flat") or not named or any(share_of(c, to_lab(edited)) > 0.5 for c in named)
