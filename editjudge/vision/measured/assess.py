"""Assessment of an edit or a pair: each factor of a rubric gets a score with its reason, or an abstention."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np

from editjudge.edit import PAIR_ROLES
from editjudge.errors import ImageError
from editjudge.orders import offers_tie
from editjudge.rubrics.files import load
from editjudge.rubrics.model import Rubric
from editjudge.vision.measured import factors
from editjudge.vision.measured.calibration import Calibration
from editjudge.vision.measured.degenerate import Degenerate, classify, worst
from editjudge.vision.measured.factors import (
    DONE,
    LIGHTING,
    PRESERVED,
    TARGETED,
    UNDERSTOOD,
    FactorVerdict,
    abstain,
    bounded,
    on_scale,
    position,
    unrounded,
)
from editjudge.vision.measured.lettering import (
    TextLine,
    TextReading,
    compare_images,
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
)
from editjudge.vision.measured.relighting import judge_light
from editjudge.vision.measured.scene import Array, compose, too_small

_TINY = "the picture is too small to be measured: a side has fewer than 16 pixels, or would have at 512 on the other"
_IDENTICAL = "Both pictures are identical in every pixel, over the whole picture, so nothing was changed anywhere."

_DRAWN = re.compile(
    r"\b(?:add|insert|write|remov|delet|eras|replac|swap)(?:e|es|s|ed|d|ing|ping|ped|ten)?\b",
    re.IGNORECASE,
)
"""Matches instructions to add, replace or remove an object."""
_THING = 0.6
"""Share of the image up to which the changed area may be the requested object. A larger area counts as the image
itself."""
_CLOSE = 4
"""Mean difference in levels above which two images certainly differ. A full measurement is then not needed."""


@dataclass(frozen=True)
class Assessment:
    """Fields of a judgement: the scores of one edit, or the choices between two outputs."""

    justifications: Mapping[str, str]
    abstained: Mapping[str, str]
    evidence: Mapping[str, Any]
    scores: Mapping[str, float] = field(default_factory=dict)
    expected: Mapping[str, float] = field(default_factory=dict)
    """Scores before they were rounded to the scale."""
    choices: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Subject:
    """The decoded images of one edit, measured once for all rubrics."""

    images: Mapping[str, Array]
    instruction: str = ""
    broken: Mapping[str, ImageError] = field(default_factory=dict)
    """Errors for images that cannot be read, keyed by role."""
    lines: dict[str, list[TextLine]] = field(default_factory=dict)
    """Lines of text, keyed by role, for the images in which text was read."""

    @cached_property
    def tiny(self) -> bool:
        return too_small(*self.images.values())

    @cached_property
    def vs_input(self) -> Measures:
        """Measures of the edited image relative to the input."""
        before = self.images["input"]
        mask = self.images.get("mask")
        measures = measure(compose(before, self.images["edited"], mask))
        drawn = _DRAWN.search(self.instruction) and measures.change.share <= _THING
        everywhere = mentions("shift_of_whole_picture", self.instruction)
        values = {
            **measures.values,
            "trust.thing": 0.0 if drawn else 1.0,
            "trust.shift": 0.0 if everywhere else 1.0,
        }
        return replace(measures, values=values)

    @cached_property
    def vs_truth(self) -> Measures:
        """Measures of the edited image relative to the ground truth."""
        before = self.images.get("input")
        truth = self.images["ground_truth"]
        mask = self.images.get("mask")
        region = mask if before is None else region_wanted(before, truth, mask)
        return measure(compose(truth, self.images["edited"], region))

    def measures(self, offline: bool) -> Measures:
        return self.vs_truth if offline else self.vs_input

    @cached_property
    def equals_truth(self) -> bool:
        """Whether the edited image looks the same as the ground truth."""
        truth = self.images.get("ground_truth")
        edited = self.images["edited"]
        if truth is None or truth.shape != edited.shape:
            return False
        difference = np.abs(truth[::4, ::4].astype(np.int16) - edited[::4, ::4])
        return float(difference.mean()) < _CLOSE and self.vs_truth.change.nothing

    @cached_property
    def target(self) -> Target | None:
        if "input" not in self.images:
            return None
        return find_target(
            self.images["input"],
            self.images["ground_truth"],
            self.images["edited"],
            self.images.get("mask"),
        )

    @cached_property
    def degenerate(self) -> Degenerate | None:
        """Reason why the edited image is or may be degenerate, or None if it is not."""
        offline = "input" not in self.images
        return classify(
            self.images["ground_truth" if offline else "input"],
            self.images["edited"],
            self.instruction,
            change=None if self.tiny else self.measures(offline).change,
        )

    @property
    def written(self) -> bool:
        """Whether lettering proves that the instruction was followed. On small print or a plain page, the lettering may
        be the only visible change."""
        return self.reading is not None and self.reading.outcome in ("done", "blurred")

    @cached_property
    def reading(self) -> TextReading | None:
        """Proof based on lettering; None if the instruction is not about lettering, or if the images are the same."""
        wishes = request(self.instruction)
        if not wishes or self.tiny:
            return None
        if np.array_equal(self.images["input"], self.images["edited"]):
            return None
        visible = self.vs_input.change.visible > 1
        mask = self.vs_input.scene.mask
        proof, lines = compare_images(wishes, self.images, mask, visible)
        self.lines.update(lines)
        return proof


def assess(rubric: Rubric, subject: Subject, calibration: Calibration) -> Assessment:
    offline = "ground_truth" in rubric.images
    filling = ""
    if not subject.tiny:
        height, width = subject.measures(offline).scene.shape
        filling = f"measured over the whole picture at {width} by {height} pixels."
    scores = {}
    expected = {}
    reasons = {}
    abstained = {}
    for factor in rubric.factors:
        if factor.scale.share(0) is None:
            abstained[factor.key] = (
                f"a score of 1 to 7 cannot be converted to its scale: {factor.scale.words}"
            )
            continue
        verdict = _verdict(factor.key, offline, subject, calibration)
        if verdict.score is None:
            abstained[factor.key] = verdict.reason
        else:
            scores[factor.key] = on_scale(verdict.score, factor.scale)
            expected[factor.key] = unrounded(verdict.score, factor.scale)
            reasons[factor.key] = bounded(verdict.reason, rubric.answer.words, filling)
    keys = [factor.key for factor in rubric.factors]
    evidence = _evidence(keys, offline, subject, calibration)
    return Assessment(reasons, abstained, evidence, scores, expected)


def _verdict(
    factor: str, offline: bool, subject: Subject, calibration: Calibration
) -> FactorVerdict:
    # An output that equals the ground truth is correct, even if it is blank.
    equal = offline and not subject.tiny and subject.vs_truth.change.nothing
    proven = factor in DONE and not offline and subject.written
    if subject.degenerate and not equal and not proven:
        spoilt = worst(subject.degenerate, factor)
        if spoilt:
            return spoilt
    if subject.tiny:
        return _tiny(factor, offline, subject)
    if factor == LIGHTING:
        return judge_light(
            subject.images, subject.vs_input.scene, subject.vs_input.change
        )
    if factor in factors.MEASURED:
        return factors.score(factor, subject.measures(offline), calibration)
    if factor in TARGETED and offline:
        undone = "input" in subject.images and subject.vs_input.change.nothing
        if undone and factor in DONE and not equal:
            return prove(factor, subject.instruction, subject.vs_input)
        return judge_target(factor, subject.target, subject.vs_truth, calibration)
    if factor in UNDERSTOOD:
        # If the output differs from the ground truth, many sizes and positions are correct: on rated edits, the distance
        # from the ground truth does not correlate with quality (rho .02 and -.03). But equality is proof.
        if not subject.equals_truth:
            return abstain(UNDERSTOOD[factor])
        return judge_target(factor, subject.target, subject.vs_truth, calibration)
    if factor in DONE:
        verdict = prove(factor, subject.instruction, subject.vs_input)
        if subject.reading and (verdict.score is None or subject.written):
            verdict = prove(
                factor, subject.instruction, subject.vs_input, subject.reading
            )
        return verdict
    return abstain(f'no measure is known for "{factor}"')


def _tiny(factor: str, offline: bool, subject: Subject) -> FactorVerdict:
    """Score images that are too small to measure. For these, it is only known whether they are exactly equal."""
    before = subject.images["ground_truth" if offline else "input"]
    if np.array_equal(before, subject.images["edited"]):
        if factor in PRESERVED:
            return FactorVerdict(7.0, _IDENTICAL)
        if factor in DONE:
            return FactorVerdict(7.0 if offline else 1.0, _IDENTICAL)
        if factor == LIGHTING:
            return FactorVerdict(7.0, "No difference anywhere: allowed")
    return abstain(_TINY)


# --- evidence -----------------------------------------------------------------------------------------------

_UNITS = {
    **dict.fromkeys(("change.share", "change.visible share", "change.differing", "overall.flat", "overall.clipped"),
                    "share of the picture"),
    **dict.fromkeys(("structure.lost inside", "structure.lost outside", "structure.lost"),
                    "share of recognisable structure"),
    **dict.fromkeys(("light.slope inside", "light.slope outside", "light.slope against"), "stops"),
    **dict.fromkeys(("change.visible outside", "change.shifted"), "share of what is outside the edit"),
    "style.layout": "correlation",
    "style.drawing": "octaves",
    "style.turned": "degrees of hue",
    "texture.noise": "levels of 255",
    "seam.sharp": "share of the boundary",
    "seam.length": "pixels",
}  # fmt: skip
_FAMILY_UNITS = {
    **dict.fromkeys(("change", "style", "light"), "colour difference"),
    **dict.fromkeys(("overall", "texture"), "octaves"),
    "seam": "lightness of 100",
}
"""Units of the measures in a family that are not listed by name."""


def _evidence(
    keys: Sequence[str], offline: bool, subject: Subject, calibration: Calibration
) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if not subject.tiny:
        facts = _numbers(subject.measures(offline), calibration, keys)
        facts["asked of the whole picture"] = mentions(
            "about_whole_picture", subject.instruction
        )
    output = subject.degenerate
    if output and output.certain and not output.requested:
        facts["degenerate"] = {"kind": output.kind, "words": output.words}
    if subject.lines and {*keys} & {*DONE}:  # in any rubric, whichever was asked first
        facts["lettering"] = {
            role: [line.as_json() for line in lines]
            for role, lines in subject.lines.items()
        }
    return facts


def _numbers(
    measures: Measures, calibration: Calibration, keys: Sequence[str]
) -> dict[str, Any]:
    """Return every measure with its unit, the position of the edit, and the points that each factor lost because of
    each measure."""
    values = {
        name: {"value": round(value, 4), "unit": unit}
        for name, value in measures.values.items()
        if (unit := _UNITS.get(name) or _FAMILY_UNITS.get(name.split(".")[0]))
    }
    points = {}
    for factor in keys:
        if factor in calibration.factors:
            taken = calibration.points(factor, measures.values)
            rank = calibration.rank(factor, measures)
            if rank is not None and calibration.learnt:
                taken["learnt"] = calibration.learnt.taken(factor, rank)
            points[factor] = {name: round(lost, 2) for name, lost in taken.items()}
    change = measures.change
    return {
        "measures": values,
        "points": points,
        "region": {
            "from": "change map" if measures.scene.mask is None else "mask",
            "place": position(change.region),
            "share": round(change.share, 4),
        },
        "nothing changed": change.nothing,
        "framing": dict(measures.scene.framing),
    }


# --- two outputs of one input -------------------------------------------------------------------------------

SCORED_BY: Mapping[str, tuple[str, ...]] = {
    "instruction": ("fidelity",),
    "preservation": ("preservation",),
    "quality": ("quality",),
    "overall": ("fidelity", "preservation", "quality"),
}
"""Rubrics whose scores decide each factor of `preference`."""
_EQUAL = 1e-9


def compare(
    rubric: Rubric, a: Subject, b: Subject, calibration: Calibration, order: str | None
) -> Assessment:
    """Compare two outputs by the mean of the factors that have a score for both. Abstain if there is no such factor.

    The result does not depend on the order of the outputs, since each is measured separately.
    """
    scores: dict[str, list[Mapping[str, float]]] = {}
    choices = {}
    reasons = {}
    abstained = {}
    for asked in rubric.factors:
        factor = asked.key
        rubrics = SCORED_BY.get(factor, ())
        if not rubrics:
            abstained[factor] = f'no measure is known for "{factor}"'
            continue
        for name in rubrics:
            if name not in scores:
                scores[name] = [
                    assess(load(name), subject, calibration).scores
                    for subject in (a, b)
                ]
        pairs = [
            (score, scores[name][1][key])
            for name in rubrics
            for key, score in scores[name][0].items()
            if key in scores[name][1]
        ]
        if not pairs:
            abstained[factor] = (
                f"no factor of {' or '.join(rubrics)} was measured of both outputs"
            )
            continue
        first = fmean(pair[0] for pair in pairs)
        second = fmean(pair[1] for pair in pairs)
        if abs(first - second) >= _EQUAL:
            choices[factor] = "a" if first > second else "b"
        elif offers_tie(asked.scale.choices):
            choices[factor] = "tie"
        else:
            abstained[factor] = (
                "both outputs measure the same, and a tie is not offered"
            )
            continue
        reasons[factor] = bounded(
            f"The mean of {len(pairs)} measured factors is {first:.2f} for A and {second:.2f} for B.",
            rubric.answer.words,
            "Each output was measured alone, on a scale of 1 to 7.",
        )
    roles = reversed(PAIR_ROLES) if order == "ba" else PAIR_ROLES
    by_output = {
        role: {name: dict(pair[at]) for name, pair in scores.items()}
        for at, role in enumerate(roles)
    }
    return Assessment(reasons, abstained, {"scores": by_output}, choices=choices)
