"""Checks of a rubric that loads: texts that contradict its data, and gaps that a judge would have to fill."""

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
    """Return everything that looks wrong, once each."""
    findings = [
        *_wrong_numbers(rubric),
        *_undescribed(rubric),
        *_unfilled(rubric),
        *_contradictions(rubric),
        *_refusals(rubric),
    ]
    return [LintFinding(*finding) for finding in dict.fromkeys(findings)]


_Findings = Iterator[tuple[str, str, str]]
"""Code, place and message of each finding."""


def _texts(rubric: Rubric) -> Iterator[tuple[str, str]]:
    """Yield every text that a judge reads, after its place in the file."""
    lists = ("scope", "allowed", "forbidden", "ignored", "steps", "constraints")
    yield from _fields("", rubric, ("role", "task", *lists))
    for factor in rubric.factors:
        place = f"factors.{factor.key}."
        fields = ("title", "definition", "excludes", "examine", "consider")
        yield from _fields(place, factor, fields)
        for index, anchor in enumerate(factor.anchors):
            yield f"{place}anchors.{index}", "\n".join(anchor.when)
        yield f"{place}scale.labels", "\n".join(factor.scale.labels.values())
    yield "answer.reason", rubric.answer.reason
    if rubric.template:
        yield "template.text", rubric.template.text


def _fields(
    place: str, owner: Rubric | Factor, names: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    for name in names:
        value = getattr(owner, name)
        if isinstance(value, str):
            yield f"{place}{name}", value
        else:
            for index, text in enumerate(value):
                yield f"{place}{name}.{index}", text


def _wrong_numbers(rubric: Rubric) -> _Findings:
    limits = rubric.answer.words
    for where, text in _texts(rubric):
        own = [f for f in rubric.factors if where.startswith(f"factors.{f.key}.")]
        scales = [factor.scale for factor in own or rubric.factors]
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
    # The text of a prompt describes the factors itself, and of computed ones no judge is asked.
    for factor in () if rubric.template or rubric.computed_by else rubric.factors:
        where = f"factors.{factor.key}"
        if not factor.anchors and not factor.scale.choices:
            yield "no_anchors", where, "says nowhere which score is deserved when"
        if not factor.definition:
            yield "no_definition", where, "says nowhere what is judged"


def _unfilled(rubric: Rubric) -> _Findings:
    code = "unfilled_placeholder"
    template = rubric.template
    placed = list(pieces(template)) if template else []
    for where, text in _texts(rubric):
        literal = [piece for piece in placed if isinstance(piece, str)]
        for piece in literal if where == "template.text" else [text]:
            for mark in placeholders_in(piece):
                yield code, where, f"no input fills {mark}"
    for slot in template.slots if template else ():
        if slot.role not in (*rubric.images, *rubric.texts):
            kind = "images" if slot.role in IMAGE_ROLES else "texts"
            message = f"{slot.mark} wants {slot.role}, which {kind} does not list"
            yield code, "template.slots", message
        if slot not in placed:
            message = f"{slot.mark} has no place in the text"
            yield code, "template.slots", message


_STOP = frozenset(
    "a an and any are as at be by do for from in is it its not of on or such than that the to where with".split()
)


def _stems(text: str) -> frozenset[str]:
    words = {*re.findall(r"[a-z]+", text.lower())} - _STOP
    return frozenset(re.sub(r"(?:ings?|ed|e?s)$", "", word) for word in words)


_SAME = 0.6
"""Share of content words (Jaccard) from which two lines are taken for the same difference."""


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
