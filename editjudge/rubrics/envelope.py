"""A verdict in the rubric's own answer format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from editjudge.rubrics.model import Rubric


def envelope(
    rubric: Rubric,
    identifier: str,
    scores: Mapping[str, float],
    justifications: Mapping[str, str],
    why_not: Mapping[str, str],
) -> dict[str, Any]:
    """What an answer would look like; a factor without a score is null, with the reason why."""
    answer = rubric.answer
    reasons = {factor.key: justifications.get(factor.key) or why_not.get(factor.key, "") for factor in rubric.factors}
    document: dict[str, Any] = {answer.id_key: identifier} if answer.id_key else {}
    document |= dict.fromkeys(answer.texts, " ".join(dict.fromkeys(reasons.values())))
    if answer.form == "list":
        return document | {answer.envelope: [scores.get(factor.key) for factor in rubric.factors]}
    inner: dict[str, Any] = {}
    for factor in rubric.factors:
        score = scores.get(factor.key)
        entry = {answer.reason_key: reasons[factor.key]} if answer.reason_key else {}
        inner[factor.key] = entry | {answer.score_key: score} if answer.form == "entries" else score
    return document | ({answer.envelope: inner} if answer.envelope else inner)
