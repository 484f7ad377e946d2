"""Where in an accepted reply the scores stand: the characters of each factor's number."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

from editjudge.rubrics.contract import envelope_keys
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.scanning import scan

# Strings are skipped, so that what is left of digits are numbers, in the order in which a decoder meets them.
_NUMBER = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|(-?\d[\d.eE+-]*+)', re.DOTALL)


def score_places(rubric: Rubric, reply: str) -> dict[str, tuple[int, int]]:
    """Start and end of each score that is a number, by factor; of answers in labelled lines none. The reply is one that
    the contract accepted."""
    if rubric.answer.form == "token":
        number = re.search(r"-?\d[\d.eE+-]*", reply)
        return {rubric.factors[0].key: number.span()} if number else {}
    if rubric.answer.form not in ("entries", "scores", "list", "nested"):
        return {}
    candidates = scan(reply.removeprefix("\ufeff"), envelope_keys(rubric)).candidates
    text = candidates[-1].text
    start = reply.rfind(text)
    spans = [match.span(1) for match in _NUMBER.finditer(text) if match[1]]
    ordinals = itertools.count()
    document = json.loads(text, parse_int=lambda _: next(ordinals), parse_float=lambda _: next(ordinals))
    places = {}
    for key, ordinal in _scores(rubric, document).items():
        if type(ordinal) is int and ordinal < len(spans):
            begin, end = spans[ordinal]
            places[key] = (start + begin, start + end)
    return places


def _scores(rubric: Rubric, document: dict[str, Any]) -> dict[str, Any]:
    """What stands in the place of each factor's score."""
    answer = rubric.answer
    if answer.form == "nested":
        return {factor.key: _at(document, factor.path or factor.key) for factor in rubric.factors}
    inner = document[answer.envelope] if answer.envelope else document
    if answer.form == "list":
        return dict(zip((factor.key for factor in rubric.factors), inner, strict=True))
    entries = {factor.key: inner[factor.key] for factor in rubric.factors}
    if answer.form != "entries":
        return entries
    return {key: entry[answer.score_key] for key, entry in entries.items() if isinstance(entry, dict)}


def _at(document: Any, path: str) -> Any:
    for key in path.split("."):
        document = document.get(key) if isinstance(document, dict) else None
    return document
