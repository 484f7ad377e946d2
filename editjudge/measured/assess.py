"""One edit under one rubric: every factor gets a score with its reason, or the reason why it has none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from editjudge.errors import ImageError
from editjudge.measured import evidence, factors, reference
from editjudge.measured.calibration import Calibration
from editjudge.measured.degenerate import Degenerate, classify, worst
from editjudge.measured.factor_verdict import FactorVerdict, abstain, on_scale
from editjudge.measured.lettering import TextLine, TextReading, TextRequest, compare_all, read_lines, request
from editjudge.measured.measures import Measures, measure
from editjudge.measured.phrasing import mentions
from editjudge.measured.proof import prove, why_not
from editjudge.measured.relighting import differences
from editjudge.measured.scene import Array, compose, too_small
from editjudge.measured.sentences import bounded
from editjudge.rubrics.model import Rubric

_DONE = ("alignment", "completeness", "effect_score")
"""Factors that say whether something was done."""
_TARGETED = ("alignment", "completeness", "plausibility", "scale_realism", "spatial_relationship")
_UNDERSTOOD = {
    "scale_realism": "whether an object has the right size cannot be measured without a ground truth",
    "spatial_relationship": "whether an object is in the right place cannot be measured without a ground truth",
    "plausibility": "whether the result is plausible cannot be measured: a judge must understand what it shows",
}
_TINY = "the picture is too small to be measured: a side has fewer than 16 pixels, or would have at 512 on the other"

_DRAWN = re.compile(
    r"\b(?:add|insert|write|remov|delet|eras|replac|swap)(?:e|es|s|ed|d|ing|ping|ped|ten)?\b", re.IGNORECASE
)
"""What an instruction of this kind is about is another thing afterwards, or none: that is asked for."""

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
        measures = measure(compose(self.pictures["input"], self.pictures["edited"], self.pictures.get("mask")))
        drawn = _DRAWN.search(self.instruction) and measures.change.share <= _THING
        return replace(measures, values={**measures.values, "trust.thing": 0.0 if drawn else 1.0})

    @cached_property
    def offline(self) -> Measures:
        """The edited picture against the ground truth."""
        before, truth = self.pictures.get("input"), self.pictures["ground_truth"]
        mask = self.pictures.get("mask")
        region = reference.region_wanted(before, truth, mask) if before is not None else mask
        return measure(compose(truth, self.pictures["edited"], region))

    @cached_property
    def as_truth(self) -> bool:
        """Whether the edited picture shows what the ground truth shows."""
        truth, edited = self.pictures.get("ground_truth"), self.pictures["edited"]
        if truth is None or truth.shape != edited.shape:
            return False
        # Most differ by far, which is found at once.
        return (
            float(np.abs(truth[::4, ::4].astype(np.int16) - edited[::4, ::4]).mean()) < 4
            and self.offline.change.nothing
        )

    @cached_property
    def target(self) -> reference.Target | None:
        if "input" not in self.pictures:
            return None
        before, truth, edited = (self.pictures[role] for role in ("input", "ground_truth", "edited"))
        return reference.find_target(before, truth, edited, self.pictures.get("mask"))

    @cached_property
    def degenerate(self) -> Degenerate | None:
        """Why the edited picture is no edit at all, or may be none."""
        online = "input" in self.pictures
        before = self.pictures["input" if online else "ground_truth"]
        unchanged = None if self.tiny else (self.online if online else self.offline).change.nothing
        return classify(before, self.pictures["edited"], self.instruction, unchanged=unchanged)

    @cached_property
    def wishes(self) -> tuple[TextRequest, ...]:
        return request(self.instruction)

    @cached_property
    def reading(self) -> TextReading | None:
        """What the lettering proves; None where the instruction is not about lettering."""
        if not self.wishes:
            return None
        return compare_all(self.wishes, self.lines("input"), self.lines("edited"), self.online.scene.mask)

    def lines(self, role: str) -> list[TextLine]:
        if role not in self._lines:
            self._lines[role] = read_lines(self.pictures[role])
        return self._lines[role]


def assess(rubric: Rubric, subject: Subject, calibration: Calibration) -> Assessment:
    offline = "ground_truth" in rubric.images
    verdicts = {
        factor.key: abstain(f"a score of 1 to 7 cannot be converted to its scale: {factor.scale.words}")
        if factor.scale.share(0) is None
        else _find(factor.key, offline, subject, calibration)
        for factor in rubric.factors
    }
    scored = {key: verdict for key, verdict in verdicts.items() if verdict.score is not None}
    limits = rubric.answer.words
    filling = "" if subject.tiny else _filling(subject, offline)
    return Assessment(
        {key: on_scale(f.score, rubric.factor(key).scale) for key, f in scored.items() if f.score is not None},
        {key: bounded(verdict.reason, limits, filling) for key, verdict in scored.items()},
        {key: verdict.reason for key, verdict in verdicts.items() if verdict.score is None},
        _evidence(list(verdicts), offline, subject, calibration),
    )


def _find(factor: str, offline: bool, subject: Subject, calibration: Calibration) -> FactorVerdict:
    # What equals the ground truth is as it should be, blank or not.
    equal = offline and not subject.tiny and subject.offline.change.nothing
    if subject.degenerate and not equal and (spoilt := worst(subject.degenerate, factor)):
        return spoilt
    if subject.tiny:
        return _tiny(factor, offline, subject)
    if factor == "Contextual_Preservation":
        return _relit(subject)
    if factor in factors.MEASURED:
        return factors.score(factor, subject.offline if offline else subject.online, calibration)
    # Away from a ground truth there are many right sizes and places: on rated edits, the distance from the one that it
    # shows follows nothing that people see in the picture (rho with quality .02 and -.03). Equality with it is proof.
    if factor in _UNDERSTOOD and not offline:
        if subject.as_truth:
            return reference.judge_target(factor, subject.target, subject.offline, calibration)
    elif factor in _TARGETED and offline:
        undone = "input" in subject.pictures and subject.online.change.nothing
        if undone and factor in ("alignment", "completeness") and not subject.offline.change.nothing:
            proof = prove(subject.instruction, subject.online, None)
            return proof.finding(factor) if proof else why_not(subject.instruction, None)
        return reference.judge_target(factor, subject.target, subject.offline, calibration)
    if factor in _UNDERSTOOD:
        return abstain(_UNDERSTOOD[factor])
    if factor in _DONE:
        proof = prove(subject.instruction, subject.online, None)
        proof = proof or prove(subject.instruction, subject.online, subject.reading)
        return proof.finding(factor) if proof else why_not(subject.instruction, subject.reading)
    return abstain(f'no measure is known for "{factor}"')


def _tiny(factor: str, offline: bool, subject: Subject) -> FactorVerdict:
    """Of pictures without room for a measurement only equality can be said."""
    before = subject.pictures["ground_truth" if offline else "input"]
    if not np.array_equal(before, subject.pictures["edited"]):
        return abstain(_TINY)
    words = "Both pictures are identical in every pixel, over the whole picture, so nothing was changed anywhere."
    if factor in ("unchanged_regions", "global_consistency", "identity_preservation"):
        return FactorVerdict(7.0, words)
    if factor in _DONE:
        return FactorVerdict(7.0 if offline else 1.0, words)
    return (
        FactorVerdict(7.0, "No difference anywhere: allowed") if factor == "Contextual_Preservation" else abstain(_TINY)
    )


def _relit(subject: Subject) -> FactorVerdict:
    listed = differences(subject.online.scene, subject.online.change)
    kept = all(difference.mark in ("allowed", "ignored") for difference in listed)
    lines = [difference.line for difference in listed] or ["No difference that lighting would have to explain: allowed"]
    return FactorVerdict(7.0 if kept else 1.0, "\n".join(lines))


def _filling(subject: Subject, offline: bool) -> str:
    height, width = (subject.offline if offline else subject.online).scene.shape
    return f"measured over the whole picture at {width} by {height} pixels."


def _evidence(factors_asked: list[str], offline: bool, subject: Subject, calibration: Calibration) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if not subject.tiny:
        facts = evidence.numbers(subject.offline if offline else subject.online, calibration, factors_asked)
        facts["asked of the whole picture"] = mentions("about_whole_picture", subject.instruction)
    output = subject.degenerate
    if output and output.certain and not output.requested:
        facts["degenerate"] = {"kind": output.kind, "words": output.words}
    if subject._lines and {*factors_asked} & {*_DONE}:  # whichever rubric came first
        facts["lettering"] = evidence.lettering_evidence(subject.lines("input"), subject.lines("edited"))
    return facts
