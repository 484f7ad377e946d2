"""What the judge has to say of one factor: a score with its reason, or the reason for none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from editjudge.rubrics.model import Scale

_PRESERVED = frozenset({"unchanged_regions", "global_consistency", "identity_preservation", "Contextual_Preservation"})
_MADE = frozenset({"texture_and_detail", "image_quality", "color_and_lighting", "seamlessness"})
_DONE = frozenset({"alignment", "completeness", "effect_score"})
SPOILT: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("flat", "near_flat", "noise"), _PRESERVED | _MADE | _DONE),
    # What was asked may have been done in a tile, a thumbnail or the part that is left.
    **dict.fromkeys(("tile", "upscaled", "thumbnail", "partly_blank"), _PRESERVED | _MADE),
    # A picture that has nothing to do with the input may be a good one.
    "unrelated": _PRESERVED,
}
"""By what makes an output no edit, the factors that it gets the worst score on; the others are not scored."""


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
    worst, best = scale.worst, scale.best
    if worst is None or best is None:
        raise ValueError(f"no place on a scale with an open end: {scale.words}")
    wanted = worst + (score - 1) / 6 * (best - worst)
    return min(scale.steps or (wanted,), key=lambda value: (round(abs(value - wanted), 9), abs(value - worst)))
