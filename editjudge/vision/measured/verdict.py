"""Verdicts on single factors, and which factors there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from editjudge.rubrics.scale import Scale

PRESERVED = ("unchanged_regions", "global_consistency", "identity_preservation")
"""Factors of what should have stayed."""
LIGHTING = "Contextual_Preservation"
"""The factor of lighting edits. Its reasons are a list of differences, each with its mark."""
MADE = ("texture_and_detail", "image_quality", "color_and_lighting", "seamlessness")
"""Factors of how well the edit was made."""
DONE = ("alignment", "completeness", "effect_score")
"""Factors of whether the instruction was followed."""
UNDERSTOOD = {
    "scale_realism": "whether an object has the right size cannot be measured without a ground truth",
    "spatial_relationship": "whether an object is in the right place cannot be measured without a ground truth",
    "plausibility": "whether the result is plausible cannot be measured: a judge must understand what it shows",
}
"""Factors that need understanding or a ground truth, each with the reason for abstaining without one."""
TARGETED = ("alignment", "completeness", *UNDERSTOOD)
"""Factors that a ground truth decides."""

_LOOKS = frozenset({*PRESERVED, LIGHTING, *MADE})
SPOILT: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("flat", "near_flat", "noise"), _LOOKS | {*DONE}),
    # What was asked may have been done in a tile, a thumbnail or the part that is left.
    **dict.fromkeys(("tile", "upscaled", "thumbnail", "partly_blank"), _LOOKS),
    # An image that has nothing to do with the input may be a good one.
    "unrelated": frozenset({*PRESERVED, LIGHTING}),
}
"""Factors that get the worst score, by the kind of a degenerate output; the others are not scored."""


@dataclass(frozen=True)
class FactorVerdict:
    """A score from 1 to 7 before it is put on the rubric's scale; None is an abstention."""

    score: float | None
    reason: str


def abstain(reason: str) -> FactorVerdict:
    return FactorVerdict(None, reason)


def on_scale(score: float, scale: Scale) -> float:
    """The score of the scale nearest to where this one lies between 1 and 7; the worse one of two.

    Raises `ValueError` for a scale with an open end, on which nothing lies between the ends.
    """
    worst = scale.worst
    best = scale.best
    if worst is None or best is None:
        raise ValueError(f"no place on a scale with an open end: {scale.words}")
    wanted = worst + (score - 1) / 6 * (best - worst)
    return min(
        scale.steps or (wanted,),
        key=lambda value: (round(abs(value - wanted), 9), abs(value - worst)),
    )
