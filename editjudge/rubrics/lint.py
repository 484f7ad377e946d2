"""Checks that find problems in a valid rubric: texts that contradict its data, and gaps that a judge would have to
fill.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from editjudge.edit import IMAGE_ROLES
from editjudge.rubrics.contract import check
from editjudge.rubrics.importing import placeholders_in, ranges_in, word_limits_in
from editjudge.rubrics.model import Factor, Rubric
from editjudge.rubrics.prompt import pieces
from editjudge.rubrics.verdict import Failure


@dataclass(frozen=True)
class LintFinding:
    code: str
    where: str
    message: str


def lint(rubric: Rubric) -> list[LintFinding]:
    """Return all findings without duplicates."""
    findings = [
        *_wrong_numbers(rubric),
        *_undescribed(rubric),
        *_unfilled(rubric),
        *_contradictions(rubric),
        *_refusals(rubric),
    ]
    return [LintFinding(*finding) for finding in dict.fromkeys(findings)]


_Findings = Iterator[tuple[str, str, str]]
"""Code, path in the file and message of each finding."""


def _texts(rubric: Rubric) -> Iterator[tuple[str, str]]:
    """Yield the path in the file and the content of every text that a judge reads."""
    lists = ("scope", "allowed", "forbidden", "ignored", "steps", "constraints")
    yield from _fields("", rubric, ("role", "task", *lists))
    for factor in rubric.factors:
        prefix = f"factors.{factor.key}."
        fields = ("title", "definition", "excludes", "examine", "consider")
        yield from _fields(prefix, factor, fields)
        for index, anchor in enumerate(factor.anchors):
            yield f"{prefix}anchors.{index}", "\n".join(anchor.when)
        yield f"{prefix}scale.labels", "\n".join(factor.scale.labels.values())
    yield "answer.reason", rubric.answer.reason
    if rubric.template:
        yield "template.text", rubric.template.text


def _fields(
    prefix: str, owner: Rubric | Factor, names: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    for name in names:
        value = getattr(owner, name)
        if isinstance(value, str):
            yield f"{prefix}{name}", value
        else:
            for index, text in enumerate(value):
                yield f"{prefix}{name}.{index}", text


def _wrong_numbers(rubric: Rubric) -> _Findings:
    limits = rubric.answer.words
    for where, text in _texts(rubric):
        factors = [f for f in rubric.factors if where.startswith(f"factors.{f.key}.")]
        scales = [factor.scale for factor in factors or rubric.factors]
        for values in ranges_in(text):
            if not any(all(map(scale.accepts, values)) for scale in scales):
                legal = " / ".join(dict.fromkeys(scale.words for scale in scales))
                message = (
                    f"the text says {values[0]} to {values[-1]}, the scale is {legal}"
                )
                yield "scale_contradicts", where, message
        for low, high in word_limits_in(text):
            if limits and (low, high) != limits:
                message = f"the text says {low} to {high} words, answer.words is {limits[0]} to {limits[1]}"
                yield "words_contradict", where, message


def _undescribed(rubric: Rubric) -> _Findings:
    # An imported prompt describes its factors in its own text, and no judge is asked for computed factors.
    for factor in () if rubric.template or rubric.computed_by else rubric.factors:
        where = f"factors.{factor.key}"
        if not factor.anchors and not factor.scale.choices:
            yield (
                "no_anchors",
                where,
                "has no anchors: say which score is deserved when",
            )
        if not factor.definition:
            yield "no_definition", where, "has no definition: say what is judged"


def _unfilled(rubric: Rubric) -> _Findings:
    code = "unfilled_placeholder"
    template = rubric.template
    placed = list(pieces(template)) if template else []
    for where, text in _texts(rubric):
        literal = [piece for piece in placed if isinstance(piece, str)]
        for piece in literal if where == "template.text" else [text]:
            for mark in placeholders_in(piece):
                yield code, where, f"no input fills {mark}"
    slots = template.slots if template else ()
    for slot in slots:
        if slot.role and slot.role not in (*rubric.images, *rubric.texts):
            kind = "images" if slot.role in IMAGE_ROLES else "texts"
            message = (
                f"{slot.mark} is filled with {slot.role}, which {kind} does not list"
            )
            yield code, "template.slots", message
        inside = [f"{other.given}{other.missing}" for other in slots]
        if slot not in placed and not any(slot.mark in text for text in inside):
            message = f"{slot.mark} is not in the text"
            yield code, "template.slots", message


_STOP = frozenset(
    "a an and any are as at be by do for from in is it its not of on or such than that the to where with".split()
)


def _stems(text: str) -> frozenset[str]:
    tokens = {*re.findall(r"[a-z]+", text.lower())} - _STOP
    return frozenset(re.sub(r"(?:ings?|ed|e?s)$", "", token) for token in tokens)


_SAME = 0.6
"""Minimum share of common words (Jaccard index) for two lines to describe the same difference."""


def _contradictions(rubric: Rubric) -> _Findings:
    tolerated = _fields("", rubric, ("allowed", "ignored"))
    for where, text in tolerated:
        for other in rubric.forbidden:
            stems = _stems(text)
            others = _stems(other)
            if stems and others and len(stems & others) / len(stems | others) >= _SAME:
                message = f"also forbidden: {other[:80]}"
                yield "both_allowed_and_forbidden", where, message


def _refusals(rubric: Rubric) -> _Findings:
    if rubric.example:
        result = check(rubric, rubric.example)
        remarks = result.reasons if isinstance(result, Failure) else result.violations
        for remark in remarks:
            yield "example_refused", "example", f"{remark.code}: {remark.message}"
