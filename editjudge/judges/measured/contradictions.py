"""Another judge's verdict held against the evidence: what it says, and what was measured instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Contradiction:
    factor: str
    says: str
    measured: str

    def as_json(self) -> dict[str, str]:
        return {"factor": self.factor, "says": self.says, "measured": self.measured}


@dataclass(frozen=True)
class _Rule:
    """A claim, by score, that a measure refutes. Thresholds leave no room for taste: each is far beyond visible."""

    factor: str
    claims: Callable[[float], bool]
    says: str
    measure: str
    refuted: Callable[[float], bool]
    measured: str


_RULES = (
    _Rule(
        "unchanged_regions",
        lambda score: score >= 6,
        "nothing outside the edit changed",
        "change.visible outside",
        lambda share: share >= 0.15,
        "{:.0%} of the picture outside the region did",
    ),
    _Rule(
        "unchanged_regions",
        lambda score: score <= 3,
        "much outside the edit changed",
        "change.visible share",
        lambda share: share < 0.002,
        "only {:.1%} of the whole picture visibly differs",
    ),
    _Rule(
        "global_consistency",
        lambda score: score >= 6,
        "the palette stayed",
        "change.tint",
        lambda units: units >= 15,
        "all colours moved by {:.0f} units",
    ),
    _Rule(
        "identity_preservation",
        lambda score: score >= 6,
        "everything is still recognisable",
        "structure.lost outside",
        lambda share: share >= 0.4,
        "{:.0%} of the recognisable structure outside the edit is gone",
    ),
    _Rule(
        "image_quality",
        lambda score: score >= 6,
        "the picture is technically sound",
        "overall.blur",
        lambda octaves: octaves >= 1.2,
        "the whole picture lost {:.1f} octaves of fine detail",
    ),
    _Rule(
        "image_quality",
        lambda score: score >= 6,
        "the picture is technically sound",
        "overall.noise",
        lambda octaves: octaves >= 2.5,
        "noise in smooth areas grew by {:.1f} octaves",
    ),
    _Rule(
        "seamlessness",
        lambda score: score >= 6,
        "no seam can be seen",
        "seam.step",
        lambda units: units >= 6,
        "colours step by {:.1f} units within a pixel along the rim",
    ),
)
_NOTHING_DONE = {"alignment": 4, "completeness": 4, "effect_score": 3}
"""Least score that claims something was done."""
FACTORS = frozenset({*(rule.factor for rule in _RULES), *_NOTHING_DONE})
"""Those that some rule speaks of."""
RULES = 1
"""Raised when the same verdict and evidence come to contradict each other in another way."""
_NOTHING_CHANGED = re.compile(
    r"\b(?:no|without|not any)\s+(?:visible\s+|detectable\s+)?(?:changes?|differences?)\b", re.IGNORECASE
)


def contradictions(
    scores: Mapping[str, float], justifications: Mapping[str, str], evidence: Mapping[str, Any]
) -> list[Contradiction]:
    """Every claim of a verdict that the measured evidence of the same edit refutes."""
    if not evidence.get("measures"):
        return []
    return [*_by_score(scores, evidence), *_by_words(scores, justifications, evidence)]


def _by_score(scores: Mapping[str, float], evidence: Mapping[str, Any]) -> Iterator[Contradiction]:
    for rule in _RULES:
        found = evidence["measures"].get(rule.measure)
        if rule.factor in scores and found and rule.claims(scores[rule.factor]) and rule.refuted(found["value"]):
            yield Contradiction(rule.factor, rule.says, rule.measured.format(found["value"]))
    if evidence.get("nothing changed"):
        for factor, least in _NOTHING_DONE.items():
            if scores.get(factor, 0) >= least:
                yield Contradiction(factor, "what was asked for was done", "nothing visible changed")


def _by_words(
    scores: Mapping[str, float], justifications: Mapping[str, str], evidence: Mapping[str, Any]
) -> Iterator[Contradiction]:
    """A reason that says nothing changed, about a picture in which much did."""
    share = evidence["measures"].get("change.visible share", {}).get("value", 0.0)
    for factor in ("alignment", "completeness", "effect_score"):
        if share >= 0.05 and scores.get(factor) == 1 and _NOTHING_CHANGED.search(justifications.get(factor, "")):
            yield Contradiction(factor, "nothing changed", f"{share:.0%} of the picture visibly did")
