"""What the judge has to say of one factor: a score with its reason, or the reason for none."""

from __future__ import annotations

from dataclasses import dataclass

from editjudge.rubrics.model import Scale


@dataclass(frozen=True)
class Finding:
    """A score from 1 to 7 before it is put on the rubric's scale; None is an abstention."""

    score: float | None
    reason: str


def abstain(reason: str) -> Finding:
    return Finding(None, reason)


def on_scale(score: float, scale: Scale) -> float:
    """The score of the scale nearest to where this one lies between 1 and 7; the worse one of two.

    Raises `ValueError` for a scale with an open end, on which nothing lies between the ends.
    """
    worst, best = scale.worst, scale.best
    if worst is None or best is None:
        raise ValueError(f"no place on a scale with an open end: {scale.words}")
    wanted = worst + (score - 1) / 6 * (best - worst)
    return min(scale.steps or (wanted,), key=lambda value: (round(abs(value - wanted), 9), abs(value - worst)))
