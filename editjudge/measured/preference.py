"""Two outputs of one input, compared by the scores that each of them gets alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from editjudge.measured.assess import Assessment, Subject, assess
from editjudge.measured.calibration import Calibration
from editjudge.measured.sentences import bounded
from editjudge.rubrics.files import load
from editjudge.rubrics.model import Rubric

SCORED_BY: Mapping[str, tuple[str, ...]] = {
    "instruction": ("fidelity",),
    "preservation": ("preservation",),
    "quality": ("quality",),
    "overall": ("fidelity", "preservation", "quality"),
}
"""Each factor of `preference`, and the rubrics whose scores decide it."""
_EQUAL = 1e-9


@dataclass(frozen=True)
class Comparison:
    choices: Mapping[str, str]
    justifications: Mapping[str, str]
    abstained: Mapping[str, str]
    scores: Mapping[str, Sequence[Mapping[str, float]]]
    """Of each rubric, those of the first output and those of the second."""

    def scores_by(self, order: str | None) -> dict[str, dict[str, dict[str, float]]]:
        """By the names of the manifest, rubric and factor."""
        names = ("edited_b", "edited_a") if order == "ba" else ("edited_a", "edited_b")
        return {name: {rubric: dict(pair[at]) for rubric, pair in self.scores.items()} for at, name in enumerate(names)}


def compare(rubric: Rubric, a: Subject, b: Subject, calibration: Calibration) -> Comparison:
    """By the mean of the factors that both outputs have a score of; without any, an abstention."""
    names = [name for factor in rubric.factors for name in SCORED_BY.get(factor.key, ())]
    both = {name: [assess(load(name), subject, calibration) for subject in (a, b)] for name in dict.fromkeys(names)}
    choices, reasons, abstained = {}, {}, {}
    for factor in rubric.factors:
        wanted = SCORED_BY.get(factor.key, ())
        pairs = [pair for name in wanted for pair in _shared(*both[name])]
        if not wanted:
            abstained[factor.key] = f'no measure is known for "{factor.key}"'
        elif not pairs:
            abstained[factor.key] = f"no factor of {' or '.join(wanted)} was measured of both outputs"
        else:
            first, second = fmean(pair[0] for pair in pairs), fmean(pair[1] for pair in pairs)
            word = "tie" if abs(first - second) < _EQUAL else "a" if first > second else "b"
            choices[factor.key] = word
            text = f"The mean of {len(pairs)} measured factors is {first:.2f} for A and {second:.2f} for B."
            reasons[factor.key] = bounded(
                text, rubric.answer.words, "Each output was measured alone, on a scale of 1 to 7."
            )
    scores = {name: [one.scores for one in pair] for name, pair in both.items()}
    return Comparison(choices, reasons, abstained, scores)


def _shared(a: Assessment, b: Assessment) -> list[tuple[float, float]]:
    return [(score, b.scores[factor]) for factor, score in a.scores.items() if factor in b.scores]
