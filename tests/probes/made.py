"""A small probe set, and judges that answer it by a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from editjudge.rubrics.files import load
from editjudge.vision.probes.defects import FAMILIES
from editjudge.vision.probes.making import AnsweredProbe, Probe, probes

Rule = Callable[[Probe, str, str], int | None]
"""A score for a probe, a rubric and a factor; None abstains."""

FAMILY = {family.name: family for family in FAMILIES}


@lru_cache(maxsize=1)
def one_photograph() -> tuple[Probe, ...]:
    return tuple(probes(1))


def several(photographs: int = 6) -> list[Probe]:
    """The set of one photograph under several names: rules do not look at pictures."""
    return [
        replace(
            probe,
            photograph=f"p{n}",
            twin=probe.twin and f"p{n}-{probe.twin}",
            edit=replace(probe.edit, id=f"p{n}-{probe.edit.id}", group=f"p{n}"),
        )
        for n in range(photographs)
        for probe in one_photograph()
    ]


def answers(made: Sequence[Probe], rule: Rule) -> Iterator[AnsweredProbe]:
    for probe in made:
        for rubric in probe.rubrics:
            scores = {f.key: rule(probe, rubric, f.key) for f in load(rubric).factors}
            said = {key: score for key, score in scores.items() if score is not None}
            yield AnsweredProbe(
                probe.edit.id, rubric, "ok" if said else "abstained", said
            )


def perfect(probe: Probe, rubric: str, factor: str) -> int:
    """Falls with its own defects alone, and knows every control."""
    best = max(load(rubric).factor(factor).scale.values)
    worst = min(load(rubric).factor(factor).scale.values)
    if (place := f"{rubric}.{factor}") in probe.expected:
        return probe.expected[place][1]
    if probe.family == "injection":
        return worst
    if probe.dose and factor in FAMILY[probe.family].factors:
        return {7: 7 - probe.dose, 5: (5, 3, 3, 1, 1)[probe.dose], 1: 0}[best]
    return best
