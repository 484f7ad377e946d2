"""Outcome of a reply: a `Verdict` or a `Failure`, with remarks.

This module is separate from the contract module, which compiles its patterns only when the first reply arrives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypedDict

Finish = Literal["stop", "length", "refusal"]
"""How a reply ended, as reported by the provider."""


UNSCORED = "unscored"
"""Key in a judgement's evidence under which the values are stored that were asked for and not scored."""


class RemarkJson(TypedDict):
    """A remark as JSON."""

    code: str
    factor: str | None
    message: str


@dataclass(frozen=True)
class Remark:
    """A finding about a reply, with its code, message and factor."""

    code: str
    message: str
    factor: str | None = None

    def as_json(self) -> RemarkJson:
        return {"code": self.code, "factor": self.factor, "message": self.message}


@dataclass(frozen=True)
class Verdict:
    """An accepted reply."""

    status: ClassVar[Literal["ok"]] = "ok"

    scores: Mapping[str, float]
    """Scores, keyed by factor; integers stay integers. Empty if the rubric asks for choices."""
    justifications: Mapping[str, str]
    violations: tuple[Remark, ...] = ()
    """Broken rules that do not affect the scores."""
    notes: tuple[Remark, ...] = ()
    choices: Mapping[str, str] = field(default_factory=dict)
    """Choices, keyed by factor, if the rubric asks for choices instead of scores."""
    abstained: Mapping[str, str] = field(default_factory=dict)
    """Factors that do not apply according to the reply, each with the word that the reply used for that."""
    unscored: Mapping[str, object] = field(default_factory=dict, repr=False)
    """Texts and values that were asked for and not scored, by name; without those that are reasons."""

    def as_json(self) -> dict[str, object]:
        """Return the document that `editjudge parse --json` prints."""
        nothing = self.abstained and not self.scores and not self.choices
        document = {
            "status": "abstained" if nothing else self.status,
            "scores": None if nothing or self.choices else dict(self.scores),
            "justifications": dict(self.justifications),
        } | _remarks_as_json(self)
        document |= {"choices": dict(self.choices)} if self.choices else {}
        document |= {"unscored": dict(self.unscored)} if self.unscored else {}
        return document | (
            {"abstained": dict(self.abstained)} if self.abstained else {}
        )


@dataclass(frozen=True)
class Failure:
    """A reply without a valid answer."""

    status: Literal["refused", "invalid", "truncated"]
    """`refused`: the model declined. `invalid`: the reply broke the contract. `truncated`: the reply was cut off."""
    reasons: tuple[Remark, ...]
    violations: tuple[Remark, ...] = ()
    notes: tuple[Remark, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Return the document that `editjudge parse --json` prints."""
        return {
            "status": self.status,
            "scores": None,
            "justifications": None,
        } | _remarks_as_json(self, self.reasons)


def _remarks_as_json(
    outcome: Verdict | Failure, reasons: Sequence[Remark] = ()
) -> dict[str, object]:
    return {
        "violations": list(dict.fromkeys(remark.code for remark in outcome.violations)),
        "reasons": [remark.as_json() for remark in reasons],
        "details": [remark.as_json() for remark in outcome.violations],
        "notes": [remark.as_json() for remark in outcome.notes],
    }
