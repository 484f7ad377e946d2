"""Forms of answers that published protocols ask for: marks in prose, lines below headings, truth values, other keys."""

from __future__ import annotations

import json

import pytest

from editjudge.errors import RubricError
from editjudge.rubrics.answer import answer_schema
from editjudge.rubrics.contract import check
from editjudge.rubrics.files import parse
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.verdict import Failure, Verdict
from tests.faults import raises

MARKED = """
name: marked
images: [input, edited]
scale: {choices: ["[[yes]]", "[[no]]"]}
factors: [{key: verdict}]
answer: {form: marked}
"""
HEADED = """
name: headed
images: [input, edited]
factors:
  - {key: words, heading: The words, label: Grade}
  - {key: looks, heading: The looks, label: Grade, scale: {range: [1, 4], abstain: [N/A]}}
scale: {range: [1, 4]}
answer: {form: lines}
"""
NESTED = """
name: nested
images: [input, edited]
factors:
  - {key: turn, path: turn.grade, reason_path: turn.why}
  - {key: turn_needed, path: turn.needed, scale: {values: [0, 1], boolean: true}}
scale: {values: [0, 1]}
answer: {form: nested, others: ["sure: number", "tags.seen: boolean", "count: integer", "by: string"]}
"""


def rubric(text: str) -> Rubric:
    return parse(text)


@pytest.mark.parametrize(
    ("reply", "choice"),
    [
        ("Fine.\n[[yes]]", "[[yes]]"),
        ("[[no]]", "[[no]]"),
        ("<think>[[no]]</think> [[yes]], [[yes]].", "[[yes]]"),
    ],
)
def test_a_mark_is_read_wherever_it_stands(reply: str, choice: str) -> None:
    outcome = check(rubric(MARKED), reply)
    assert isinstance(outcome, Verdict)
    assert outcome.choices == {"verdict": choice}


@pytest.mark.parametrize(
    "reply",
    ["yes", "[yes]", "[[Yes]]", "[[yes]] or [[no]]", "", "I cannot help with that."],
)
def test_no_mark_or_two_are_no_answer(reply: str) -> None:
    assert isinstance(check(rubric(MARKED), reply), Failure)


def test_the_contract_names_the_form_of_marks() -> None:
    assert rubric(MARKED).contract()["form"] == "marked"


def test_marks_can_be_told_from_words_and_from_each_other() -> None:
    with raises(RubricError, "bad_marks"):
        rubric(MARKED.replace('"[[yes]]", "[[no]]"', "yes, no"))
    with raises(RubricError, "mark_in_mark"):
        rubric(MARKED.replace('"[[yes]]"', '"[[no]]!"').replace("[[no]]!", "([[no]])"))


def test_one_label_below_several_headings() -> None:
    reply = "# Thoughts\n1. The words:\n## Why: good\n## Grade: 3.5\n2. **The looks:**\n- **Grade:** N/A\n# End: done"
    outcome = check(rubric(HEADED), reply)
    assert isinstance(outcome, Verdict)
    assert outcome.scores == {"words": 3.5}
    assert outcome.violations == ()


@pytest.mark.parametrize(
    "reply",
    [
        "Grade: 3\nGrade: 2",
        "The words:\nGrade: 3",
        "The words:\nGrade: 3\nGrade: 2\nThe looks:\nGrade: 2",
        "The words:\nGrade: N/A\nThe looks:\nGrade: 2",
        "The words:\nGrade: 3/4\nThe looks:\nGrade: 2",
        "The looks:\nGrade: 5\nThe words:\nGrade: 3",
    ],
)
def test_lines_below_the_wrong_heading_are_no_answer(reply: str) -> None:
    assert isinstance(check(rubric(HEADED), reply), Failure)


GOOD = {
    "turn": {"needed": True, "why": "it turned", "grade": 1},
    "sure": 0.5,
    "tags": {"seen": False},
    "count": 2,
    "by": "me",
}


def test_truth_values_count_as_0_and_1_and_other_keys_are_asked_for_and_not_scored() -> (
    None
):
    outcome = check(rubric(NESTED), json.dumps(GOOD))
    assert isinstance(outcome, Verdict)
    assert outcome.scores == {"turn": 1, "turn_needed": 1}
    assert outcome.justifications["turn"] == "it turned"
    schema = answer_schema(rubric(NESTED))["properties"]
    assert schema["turn"]["properties"]["needed"] == {"type": "boolean"}
    assert schema["sure"] == {"type": "number"}


@pytest.mark.parametrize(
    "change",
    [
        {"sure": "0.5"}, {"sure": True}, {"count": 2.0}, {"count": "2"}, {"by": 3}, {"tags": {"seen": 1}}, {"tags": {}},
        {"turn": {"needed": 1, "why": "x", "grade": 1}}, {"turn": {"needed": True, "why": "x", "grade": True}},
        {"turn": {"needed": None, "why": "x", "grade": 1}}, {"more": 1},
    ],
)  # fmt: skip
def test_a_value_of_another_kind_is_no_answer(change: dict[str, object]) -> None:
    assert isinstance(check(rubric(NESTED), json.dumps(GOOD | change)), Failure)


@pytest.mark.parametrize(
    "change",
    [
        ("others: [", 'others: ["x: thing", '),
        ("boolean: true", "boolean: maybe"),
        ("values: [0, 1], boolean", "values: [0, 2], boolean"),
    ],
)
def test_what_a_file_may_say(change: tuple[str, str]) -> None:
    assert change[0] in NESTED
    with pytest.raises(RubricError):
        rubric(NESTED.replace(*change))
