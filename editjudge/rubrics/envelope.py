"""A verdict in the rubric's own answer format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from editjudge.rubrics.model import Rubric
from editjudge.rubrics.schema import answer_tree


def envelope(
    rubric: Rubric,
    identifier: str,
    scores: Mapping[str, float],
    justifications: Mapping[str, str],
    why_not: Mapping[str, str],
) -> dict[str, Any]:
    """What an answer would look like; a factor without a score is null, with the reason why."""
    answer = rubric.answer
    if answer.form == "nested":
        return _nested(answer_tree(rubric), identifier, scores, justifications, why_not)
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


def _nested(
    tree: Mapping[str, Any],
    identifier: str,
    scores: Mapping[str, float],
    justifications: Mapping[str, str],
    why_not: Mapping[str, str],
) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, part in tree.items():
        if isinstance(part, dict):
            document[key] = _nested(part, identifier, scores, justifications, why_not)
        elif part.kind == "score":
            document[key] = scores.get(part.factor.key)
        elif part.kind == "other":
            document[key] = None  # asked for, and not kept
        elif part.kind == "reason":
            document[key] = justifications.get(part.factor.key) or why_not.get(part.factor.key, "")
        else:
            reasons = dict.fromkeys([*justifications.values(), *why_not.values()])
            document[key] = identifier if part.kind == "id" else " ".join(filter(None, reasons))
    return document


def as_lines(
    rubric: Rubric, scores: Mapping[str, float], justifications: Mapping[str, str], why_not: Mapping[str, str]
) -> str:
    """An answer that is no JSON; a factor without a score has the reason in its place, in brackets."""
    values = {f.key: str(scores[f.key]) if f.key in scores else f"({why_not.get(f.key, '')})" for f in rubric.factors}
    if rubric.answer.form in ("token", "marked"):
        return values[rubric.factors[0].key]
    reason = " ".join(dict.fromkeys(justifications.values()))
    texts = [f"{text}: {reason}" for text in rubric.answer.texts]
    lines = [f"{f.label or f.key}: {values[f.key]}" for f in rubric.factors]
    headed = [f"{f.heading}:\n{line}" if f.heading else line for f, line in zip(rubric.factors, lines, strict=True)]
    return "\n".join([*texts, *headed])
