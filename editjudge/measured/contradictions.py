"""Another judge's verdict held against the evidence: what it says, and what was measured instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from editjudge.measured.factor_verdict import SPOILT
from editjudge.measured.phrasing import first_match
from editjudge.rubrics.model import Scale


@dataclass(frozen=True)
class Contradiction:
    factor: str
    says: str
    measured: str

    def as_json(self) -> dict[str, str]:
        return {"factor": self.factor, "says": self.says, "measured": self.measured}


class _Rule(NamedTuple):
    """A claim, by score, that a measure refutes. Limits leave no room for taste: each is far beyond visible."""

    factor: str
    claims: Callable[[float], bool]
    says: str
    measure: str
    limit: float
    """From which on the measure refutes praise; one that is below it refutes blame."""
    measured: str

    def refuted(self, value: float) -> bool:
        return value >= self.limit if self.claims is _praises else value < self.limit


def _praises(share: float) -> bool:
    """6 and 7 of 7, and the best of any short scale."""
    return share >= 5 / 6 - 1e-9


def _condemns(share: float) -> bool:
    """1 to 3 of 7."""
    return share <= 2 / 6 + 1e-9


def _half(share: float) -> bool:
    """4 of 7, 3 of 5/3/1, 1 of 0/1."""
    return share >= 0.5


_RULES = (
    _Rule("unchanged_regions", _praises, "nothing outside the edit changed",
          "change.visible outside", 0.15, "{:.0%} of the picture outside the region did"),
    _Rule("unchanged_regions", _condemns, "much outside the edit changed",
          "change.visible share", 0.002, "only {:.1%} of the whole picture visibly differs"),
    _Rule("global_consistency", _praises, "the palette stayed",
          "change.tint", 15, "all colours shifted by {:.0f} Lab units"),
    _Rule("identity_preservation", _praises, "everything is still recognisable",
          "structure.lost outside", 0.4, "{:.0%} of the recognisable structure outside the edit is gone"),
    _Rule("image_quality", _praises, "the picture is technically sound",
          "overall.blur", 1.2, "the whole picture lost {:.1f} octaves of fine detail"),
    _Rule("image_quality", _praises, "the picture is technically sound",
          "overall.noise", 2.5, "noise in smooth areas grew by {:.1f} octaves"),
    _Rule("seamlessness", _praises, "no seam can be seen",
          "seam.step", 6, "colours jump by {:.1f} Lab units within a pixel along the boundary"),
)  # fmt: skip
_DONE = ("alignment", "completeness", "effect_score")
"""Those that claim that something was done."""
FACTORS = frozenset({*(rule.factor for rule in _RULES), *_DONE, *(f for some in SPOILT.values() for f in some)})
"""Those that some rule speaks of."""
_LIKERT = Scale(tuple(range(1, 8)))
_USUAL = {"effect_score": Scale((5, 3, 1)), "Contextual_Preservation": Scale((0, 1))}
"""Scales of the built-in rubrics, for verdicts that come without their own."""
_ELSEWHERE = re.compile(r"\b(?:instead|but|however|except|only|although|though|elsewhere|other)\b", re.IGNORECASE)


def contradictions(
    scores: Mapping[str, float],
    justifications: Mapping[str, str],
    evidence: Mapping[str, Any],
    scales: Mapping[str, Scale] | None = None,
) -> list[Contradiction]:
    """Every claim of a verdict that the measured evidence of the same edit refutes.

    `scales` are those of the verdict's rubric, by factor; without them those of the built-in rubrics are meant.
    """
    known = {**_USUAL, **(scales or {})}
    placed = {factor: known.get(factor, _LIKERT).share(score) for factor, score in scores.items()}
    shares = {factor: share for factor, share in placed.items() if share is not None}
    output = evidence.get("degenerate") or {}
    if output.get("kind") in SPOILT:  # nothing but its own fault was measured, so that nothing refutes who finds fault
        return _by_output(shares, output)
    if not evidence.get("measures"):
        return []
    return [*_by_score(shares, evidence), *_by_words(shares, justifications, evidence)]


def _by_output(shares: Mapping[str, float], output: Mapping[str, str]) -> list[Contradiction]:
    """Praise of a picture that is no edit at all."""
    praised = [factor for factor, share in shares.items() if factor in SPOILT[output["kind"]] and _half(share)]
    return [Contradiction(factor, "it is at least half good", f"the output {output['words']}") for factor in praised]


def _by_score(shares: Mapping[str, float], evidence: Mapping[str, Any]) -> Iterator[Contradiction]:
    for rule in _RULES:
        measure = evidence["measures"].get(rule.measure)
        claimed = rule.factor in shares and rule.claims(shares[rule.factor])
        if evidence.get("asked of the whole picture") and rule.claims is _praises:
            continue  # what differs everywhere may be what was asked for
        if claimed and measure and rule.refuted(measure["value"]):
            yield Contradiction(rule.factor, rule.says, rule.measured.format(measure["value"]))
    output = evidence.get("degenerate") or {}
    if output.get("kind") == "mirrored" and _praises(shares.get("unchanged_regions", 0.0)):
        yield Contradiction("unchanged_regions", "nothing outside the edit changed", f"the output {output['words']}")
    if evidence.get("nothing changed"):
        for factor in _DONE:
            if _half(shares.get(factor, 0.0)):
                yield Contradiction(factor, "what was asked for was done", "nothing visible changed")


def _by_words(
    shares: Mapping[str, float], justifications: Mapping[str, str], evidence: Mapping[str, Any]
) -> Iterator[Contradiction]:
    """A reason that says nothing changed, about a picture in which much did."""
    share = evidence["measures"].get("change.visible share", {}).get("value", 0.0)
    for factor in _DONE:
        if share >= 0.05 and shares.get(factor) == 0 and _says_nothing_changed(justifications.get(factor, "")):
            yield Contradiction(factor, "nothing changed", f"{share:.0%} of the picture visibly did")


def _says_nothing_changed(reason: str) -> bool:
    """Whether a sentence says so of the whole picture: "no change was made to the car" leaves the sky open."""
    sentences = (sentence.strip() for sentence in re.split(r"[.;!?\n]+", reason))
    return not _ELSEWHERE.search(reason) and any(first_match("nothing_changed", sentence) for sentence in sentences)
