"""Checks of a rubric that loads: texts that contradict its data, and gaps that a judge would have to fill."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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
    """Everything that looks wrong, once each, in the order of the file."""
    findings = [
        *_scales(rubric),
        *_words(rubric),
        *_factors(rubric),
        *_placeholders(rubric),
        *_contradictions(rubric),
        *_example(rubric),
    ]
    return list(dict.fromkeys(findings))


def _texts(rubric: Rubric) -> Iterator[tuple[str, str]]:
    """Every text that a judge reads, and where in the file it stands."""
    for name in ("role", "task"):
        yield name, getattr(rubric, name)
    yield from _listed(
        "", rubric, ("scope", "allowed", "forbidden", "ignored", "steps", "constraints")
    )
    for factor in rubric.factors:
        place = f"factors.{factor.key}."
        for name in ("title", "definition", "excludes"):
            yield f"{place}{name}", getattr(factor, name)
        yield from _listed(place, factor, ("examine", "consider"))
        for index, anchor in enumerate(factor.anchors):
            yield f"{place}anchors.{index}", "\n".join(anchor.when)
        yield f"{place}scale.labels", "\n".join(factor.scale.labels.values())
    yield "answer.reason", rubric.answer.reason
    if rubric.template:
        yield "template.text", rubric.template.text


def _listed(
    place: str, owner: Rubric | Factor, names: Sequence[str]
) -> Iterator[tuple[str, str]]:
    for name in names:
        for index, text in enumerate(getattr(owner, name)):
            yield f"{place}{name}.{index}", text


def _scales(rubric: Rubric) -> Iterator[LintFinding]:
    for where, text in _texts(rubric):
        factors = [
            f for f in rubric.factors if where.startswith(f"factors.{f.key}.")
        ] or rubric.factors
        for values in ranges_in(text):
            if not any(all(map(factor.scale.accepts, values)) for factor in factors):
                words = " / ".join(
                    dict.fromkeys(factor.scale.words for factor in factors)
                )
                message = (
                    f"the text says {values[0]} to {values[-1]}, the scale is {words}"
                )
                yield LintFinding("scale_contradicts", where, message)


def _words(rubric: Rubric) -> Iterator[LintFinding]:
    for where, text in _texts(rubric):
        for limits in word_limits_in(text):
            if rubric.answer.words and limits != rubric.answer.words:
                low, high = rubric.answer.words
                message = f"the text says {limits[0]} to {limits[1]} words, answer.words is {low} to {high}"
                yield LintFinding("words_contradict", where, message)


def _factors(rubric: Rubric) -> Iterator[LintFinding]:
    if rubric.template or rubric.computed_by:
        return  # its own text describes the factors, or nobody is asked
    for factor in rubric.factors:
        if not factor.anchors and not factor.scale.choices:
            yield LintFinding(
                "no_anchors",
                f"factors.{factor.key}",
                "says nowhere which score is deserved when",
            )
        if not factor.definition:
            yield LintFinding(
                "no_definition", f"factors.{factor.key}", "says nowhere what is judged"
            )


def _placeholders(rubric: Rubric) -> Iterator[LintFinding]:
    template = list(pieces(rubric.template)) if rubric.template else []
    words = [("template.text", piece) for piece in template if isinstance(piece, str)]
    for where, text in [
        pair for pair in _texts(rubric) if pair[0] != "template.text"
    ] + words:
        for mark in placeholders_in(text):
            yield LintFinding("unfilled_placeholder", where, f"no input fills {mark}")
    inputs = {*rubric.images, *rubric.texts}
    for slot in rubric.template.slots if rubric.template else ():
        if slot.role not in inputs:
            kind = "images" if slot.role in IMAGE_ROLES else "texts"
            message = f"{slot.mark} wants {slot.role}, which {kind} does not list"
            yield LintFinding("unfilled_placeholder", "template.slots", message)
        if slot not in template:
            yield LintFinding(
                "unfilled_placeholder",
                "template.slots",
                f"{slot.mark} has no place in the text",
            )


_STOP = frozenset(
    "a an and any are as at be by do for from in is it its not of on or such than that the to where with".split()
)


def _stems(text: str) -> frozenset[str]:
    words = (word for word in re.findall(r"[a-z]+", text.lower()) if word not in _STOP)
    return frozenset(re.sub(r"(?:ings?|ed|e?s)$", "", word) for word in words)


_SAME = 0.6
"""Share of content words (Jaccard) from which two lines are taken for the same difference."""


def _contradictions(rubric: Rubric) -> Iterator[LintFinding]:
    for kind in ("allowed", "ignored"):
        for index, text in enumerate(getattr(rubric, kind)):
            for other in rubric.forbidden:
                mine = _stems(text)
                theirs = _stems(other)
                if mine and theirs and len(mine & theirs) / len(mine | theirs) >= _SAME:
                    yield LintFinding(
                        "both_allowed_and_forbidden",
                        f"{kind}.{index}",
                        f"also forbidden: {other[:80]}",
                    )


def _example(rubric: Rubric) -> Iterator[LintFinding]:
    if not rubric.example:
        return
    outcome = check(rubric, rubric.example)
    remarks = outcome.reasons if isinstance(outcome, Failure) else outcome.violations
    for remark in remarks:
        yield LintFinding(
            "example_refused", "example", f"{remark.code}: {remark.message}"
        )
