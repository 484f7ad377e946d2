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


def on_scale(score: float, scale: Scale) -> int:
    """The value of the scale nearest to where the score lies between 1 and 7; the worse one of two."""
    values = sorted(scale.values)
    wanted = values[0] + (score - 1) / 6 * (values[-1] - values[0])
    return min(values, key=lambda value: (round(abs(value - wanted), 9), value))
