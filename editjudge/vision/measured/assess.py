"""Every factor of a rubric for one edit, with a score and its reason or the reason for none; and two outputs compared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np

from editjudge.errors import ImageError
from editjudge.rubrics.files import load
from editjudge.rubrics.model import Rubric
from editjudge.vision.measured import evidence, factors
from editjudge.vision.measured.calibration import Calibration
from editjudge.vision.measured.degenerate import Degenerate, classify, worst
from editjudge.vision.measured.factors import bounded
from editjudge.vision.measured.lettering import (
    TextLine,
    TextReading,
    TextRequest,
    compare_all,
    read_lines,
    request,
)
from editjudge.vision.measured.measures import Measures, measure
from editjudge.vision.measured.phrasing import mentions
from editjudge.vision.measured.proof import (
    Target,
    find_target,
    judge_target,
    prove,
    region_wanted,
    why_not,
)
from editjudge.vision.measured.relighting import differences
from editjudge.vision.measured.scene import Array, compose, too_small
from editjudge.vision.measured.verdict import (
    DONE,
    LIGHTING,
    PRESERVED,
    TARGETED,
    UNDERSTOOD,
    FactorVerdict,
    abstain,
    on_scale,
)

_TINY = "the picture is too small to be measured: a side has fewer than 16 pixels, or would have at 512 on the other"

_DRAWN = re.compile(
    r"\b(?:add|insert|write|remov|delet|eras|replac|swap)(?:e|es|s|ed|d|ing|ping|ped|ten)?\b",
    re.IGNORECASE,
)
"""Instructions after which a thing is another one, or gone, as requested."""

_THING = 0.6
"""Share of the picture up to which what changed may be the thing that was asked for; more is the picture itself."""


@dataclass(frozen=True)
class Assessment:
    scores: Mapping[str, float]
    justifications: Mapping[str, str]
    abstained: Mapping[str, str]
    evidence: Mapping[str, Any]


@dataclass
class Subject:
    """The decoded pictures of one edit, measured once however many rubrics ask."""

    pictures: Mapping[str, Array]
    instruction: str = ""
    broken: Mapping[str, ImageError] = field(default_factory=dict)
    """Pictures that cannot be read, by role."""
    _lines: dict[str, list[TextLine]] = field(default_factory=dict)

    @cached_property
    def tiny(self) -> bool:
        return too_small(*self.pictures.values())

    @cached_property
    def online(self) -> Measures:
        """The edited picture against the input."""
        measures = measure(
            compose(
                self.pictures["input"],
                self.pictures["edited"],
                self.pictures.get("mask"),
            )
        )
        drawn = _DRAWN.search(self.instruction) and measures.change.share <= _THING
        return replace(
            measures, values={**measures.values, "trust.thing": 0.0 if drawn else 1.0}
        )

    @cached_property
    def offline(self) -> Measures:
        """The edited picture against the ground truth."""
        before = self.pictures.get("input")
        truth = self.pictures["ground_truth"]
        mask = self.pictures.get("mask")
        region = region_wanted(before, truth, mask) if before is not None else mask
        return measure(compose(truth, self.pictures["edited"], region))

    @cached_property
    def as_truth(self) -> bool:
        """Whether the edited picture shows what the ground truth shows."""
        truth = self.pictures.get("ground_truth")
        edited = self.pictures["edited"]
        if truth is None or truth.shape != edited.shape:
            return False
        # Most differ by far, which is found at once.
        return (
            float(np.abs(truth[::4, ::4].astype(np.int16) - edited[::4, ::4]).mean())
            < 4
            and self.offline.change.nothing
        )

    @cached_property
    def target(self) -> Target | None:
        if "input" not in self.pictures:
            return None
        before, truth, edited = (
            self.pictures[role] for role in ("input", "ground_truth", "edited")
        )
        return find_target(before, truth, edited, self.pictures.get("mask"))

    @cached_property
    def degenerate(self) -> Degenerate | None:
        """Why the edited picture is no edit at all, or may be none."""
        online = "input" in self.pictures
        before = self.pictures["input" if online else "ground_truth"]
        unchanged = (
            None
            if self.tiny
            else (self.online if online else self.offline).change.nothing
        )
        return classify(
            before, self.pictures["edited"], self.instruction, unchanged=unchanged
        )

    @cached_property
    def wishes(self) -> tuple[TextRequest, ...]:
        return request(self.instruction)

    @cached_property
    def reading(self) -> TextReading | None:
        """Proof by lettering; None if the instruction is not about lettering."""
        if not self.wishes:
            return None
        return compare_all(
            self.wishes,
            self.lines("input"),
            self.lines("edited"),
            self.online.scene.mask,
        )

    def lines(self, role: str) -> list[TextLine]:
        if role not in self._lines:
            self._lines[role] = read_lines(self.pictures[role])
        return self._lines[role]


def assess(rubric: Rubric, subject: Subject, calibration: Calibration) -> Assessment:
    offline = "ground_truth" in rubric.images
    verdicts = {
        factor.key: abstain(
            f"a score of 1 to 7 cannot be converted to its scale: {factor.scale.words}"
        )
        if factor.scale.share(0) is None
        else _find(factor.key, offline, subject, calibration)
        for factor in rubric.factors
    }
    scored = {
        key: verdict for key, verdict in verdicts.items() if verdict.score is not None
    }
    limits = rubric.answer.words
    filling = "" if subject.tiny else _filling(subject, offline)
    return Assessment(
        {
            key: on_scale(f.score, rubric.factor(key).scale)
            for key, f in scored.items()
            if f.score is not None
        },
        {
            key: bounded(verdict.reason, limits, filling)
            for key, verdict in scored.items()
        },
        {
            key: verdict.reason
            for key, verdict in verdicts.items()
            if verdict.score is None
        },
        _evidence(list(verdicts), offline, subject, calibration),
    )


def _find(
    factor: str, offline: bool, subject: Subject, calibration: Calibration
) -> FactorVerdict:
    # What equals the ground truth is as it should be, blank or not.
    equal = offline and not subject.tiny and subject.offline.change.nothing
    if (
        subject.degenerate
        and not equal
        and (spoilt := worst(subject.degenerate, factor))
    ):
        return spoilt
    if subject.tiny:
        return _tiny(factor, offline, subject)
    if factor == LIGHTING:
        return _relit(subject)
    if factor in factors.MEASURED:
        return factors.score(
            factor, subject.offline if offline else subject.online, calibration
        )
    # Away from a ground truth there are many right sizes and places: on rated edits, the distance from the one that it
    # shows follows nothing that people see in the picture (rho with quality .02 and -.03). Equality with it is proof.
    if factor in UNDERSTOOD and not offline:
        if subject.as_truth:
            return judge_target(factor, subject.target, subject.offline, calibration)
    elif factor in TARGETED and offline:
        undone = "input" in subject.pictures and subject.online.change.nothing
        if undone and factor in DONE and not subject.offline.change.nothing:
            proof = prove(subject.instruction, subject.online, None)
            return (
                proof.finding(factor) if proof else why_not(subject.instruction, None)
            )
        return judge_target(factor, subject.target, subject.offline, calibration)
    if factor in UNDERSTOOD:
        return abstain(UNDERSTOOD[factor])
    if factor in DONE:
        proof = prove(subject.instruction, subject.online, None)
        proof = proof or prove(subject.instruction, subject.online, subject.reading)
        return (
            proof.finding(factor)
            if proof
            else why_not(subject.instruction, subject.reading)
        )
    return abstain(f'no measure is known for "{factor}"')


def _tiny(factor: str, offline: bool, subject: Subject) -> FactorVerdict:
    """Score images that are too small to measure: only exact equality is known."""
    before = subject.pictures["ground_truth" if offline else "input"]
    if not np.array_equal(before, subject.pictures["edited"]):
        return abstain(_TINY)
    words = "Both pictures are identical in every pixel, over the whole picture, so nothing was changed anywhere."
    if factor in PRESERVED:
        return FactorVerdict(7.0, words)
    if factor in DONE:
        return FactorVerdict(7.0 if offline else 1.0, words)
    return (
        FactorVerdict(7.0, "No difference anywhere: allowed")
        if factor == LIGHTING
        else abstain(_TINY)
    )


def _relit(subject: Subject) -> FactorVerdict:
    listed = differences(subject.online.scene, subject.online.change)
    kept = all(difference.mark in ("allowed", "ignored") for difference in listed)
    lines = [difference.line for difference in listed] or [
        "No difference that lighting would have to explain: allowed"
    ]
    return FactorVerdict(7.0 if kept else 1.0, "\n".join(lines))


def _filling(subject: Subject, offline: bool) -> str:
    height, width = (subject.offline if offline else subject.online).scene.shape
    return f"measured over the whole picture at {width} by {height} pixels."


def _evidence(
    factors_asked: list[str], offline: bool, subject: Subject, calibration: Calibration
) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if not subject.tiny:
        facts = evidence.numbers(
            subject.offline if offline else subject.online, calibration, factors_asked
        )
        facts["asked of the whole picture"] = mentions(
            "about_whole_picture", subject.instruction
        )
    output = subject.degenerate
    if output and output.certain and not output.requested:
        facts["degenerate"] = {"kind": output.kind, "words": output.words}
    if subject._lines and {*factors_asked} & {*DONE}:  # whichever rubric came first
        facts["lettering"] = evidence.lettering_evidence(
            subject.lines("input"), subject.lines("edited")
        )
    return facts


# --- two outputs of one input -------------------------------------------------------------------------------

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
    """Scores by rubric: those of the first output and those of the second."""

    def scores_by(self, order: str | None) -> dict[str, dict[str, dict[str, float]]]:
        """Return the scores by output, as the manifest names it, rubric and factor."""
        names = ("edited_b", "edited_a") if order == "ba" else ("edited_a", "edited_b")
        return {
            name: {rubric: dict(pair[at]) for rubric, pair in self.scores.items()}
            for at, name in enumerate(names)
        }


def compare(
    rubric: Rubric, a: Subject, b: Subject, calibration: Calibration
) -> Comparison:
    """Compare by the mean of the factors that both outputs have a score of; without any, abstain."""
    names = [
        name for factor in rubric.factors for name in SCORED_BY.get(factor.key, ())
    ]
    both = {
        name: [assess(load(name), subject, calibration) for subject in (a, b)]
        for name in dict.fromkeys(names)
    }
    choices = {}
    reasons = {}
    abstained = {}
    for factor in rubric.factors:
        wanted = SCORED_BY.get(factor.key, ())
        pairs = [pair for name in wanted for pair in _shared(*both[name])]
        if not wanted:
            abstained[factor.key] = f'no measure is known for "{factor.key}"'
        elif not pairs:
            abstained[factor.key] = (
                f"no factor of {' or '.join(wanted)} was measured of both outputs"
            )
        else:
            first = fmean(pair[0] for pair in pairs)
            second = fmean(pair[1] for pair in pairs)
            better = "a" if first > second else "b"
            choices[factor.key] = "tie" if abs(first - second) < _EQUAL else better
            text = f"The mean of {len(pairs)} measured factors is {first:.2f} for A and {second:.2f} for B."
            reasons[factor.key] = bounded(
                text,
                rubric.answer.words,
                "Each output was measured alone, on a scale of 1 to 7.",
            )
    scores = {name: [one.scores for one in pair] for name, pair in both.items()}
    return Comparison(choices, reasons, abstained, scores)


def _shared(a: Assessment, b: Assessment) -> list[tuple[float, float]]:
    return [
        (score, b.scores[factor])
        for factor, score in a.scores.items()
        if factor in b.scores
    ]
