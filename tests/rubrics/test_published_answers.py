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


# --- values that are not scored, quotation marks, lists, prose ---------------------------------------------------

LISTED = """
name: listed
images: [input, edited]
factors:
  - {key: match, path: "scores[0]"}
  - {key: harm, path: "scores[1]"}
  - {key: first, path: "parts[0].grade", reason_path: "parts[0].why"}
scale: {range: [0, 10]}
answer:
  form: nested
  quoted: true
  prose: true
  others: ["seen: string[]", "notes: list", "extra: object"]
  keys: [extra, parts, why, grade, scores]
"""
LISTED_ANSWER = {
    "scores": ["7.5", 3],
    "parts": [{"why": "it is there", "grade": "4"}],
    "seen": ["a gate", "a cat"],
    "notes": [{"score": "9"}, None],
    "extra": {"scores": [1, 2]},
}


def listed(changes: dict[str, object]) -> Verdict | Failure:
    answer = json.dumps(LISTED_ANSWER | changes)
    return check(rubric(LISTED), f"First the gate.\n```json\n{answer}\n```")


def test_lists_and_objects_are_asked_for_and_not_scored() -> None:
    outcome = listed({})
    assert isinstance(outcome, Verdict) and not outcome.violations
    assert outcome.scores == {"match": 7.5, "harm": 3, "first": 4}
    assert outcome.justifications["first"] == "it is there"
    assert outcome.justifications["match"] == "First the gate."


@pytest.mark.parametrize(
    "change",
    [
        {"scores": ["7.5"]}, {"scores": ["7.5", "3", "1"]}, {"scores": ["7.5", "3/10"]}, {"scores": ["7.5", " 3"]},
        {"scores": ["7.5", "**3**"]}, {"scores": ["7.5", "11"]}, {"scores": ["7.5", ""]}, {"scores": ["7.5", None]},
        {"scores": "7.5, 3"}, {"parts": []}, {"parts": [{"grade": "4"}]}, {"parts": {"grade": "4", "why": "x"}},
        {"seen": ["a", 1]}, {"seen": "a"}, {"notes": "a"}, {"extra": []}, {"more": []}, {"scores": ["03", "3"]},
    ],
)  # fmt: skip
def test_lists_and_quoted_numbers_are_as_strict_as_other_answers(
    change: dict[str, object],
) -> None:
    assert isinstance(listed(change), Failure)


def test_a_quoted_number_needs_the_rubrics_permission() -> None:
    outcome = check(
        rubric(LISTED.replace("quoted: true", "quoted: false")),
        json.dumps(LISTED_ANSWER),
    )
    assert isinstance(outcome, Failure)
    assert [reason.code for reason in outcome.reasons] == ["score_string"] * 2


def test_prose_before_json_is_the_reason_and_prose_after_it_is_not_asked_for() -> None:
    answer = json.dumps(LISTED_ANSWER)
    after = check(rubric(LISTED), f"{answer}\nThat is all.")
    assert isinstance(after, Verdict)
    assert {v.code for v in after.violations} == {"prose", "justification_empty"}
    two = check(rubric(LISTED), f"{answer} or {answer.replace('7.5', '7')}")
    assert isinstance(two, Failure) and two.reasons[0].code == "ambiguous"


def test_no_schema_is_sent_for_prose_or_for_what_no_schema_describes() -> None:
    assert not rubric(LISTED).answer.has_schema
    strict = LISTED.replace("prose: true", "prose: false")
    assert not rubric(strict).answer.has_schema
    strict = strict.replace(', "notes: list", "extra: object"', "").replace(
        "extra, ", ""
    )
    assert rubric(strict).answer.has_schema
    schema = answer_schema(rubric(strict))
    assert list(schema["properties"]) == ["parts", "scores", "seen"]
    assert schema["properties"]["seen"] == {
        "type": "array",
        "items": {"type": "string"},
    }
    assert schema["properties"]["scores"]["items"]["type"] == "string"


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("scores[1]", "scores[2]", "bad_path"),
        ("scores[1]", "scores.harm", "bad_path"),
        ("scores[1]", "scores", "bad_path"),
        ("seen: string[]", "seen: list[]", "bad_others"),
        ("form: nested", "form: lines", "not_json_form"),
        ("prose: true", "prose: true\n  sections: [JSON]", "prose_and_sections"),
    ],
)
def test_a_path_or_kind_that_cannot_be_is_refused(
    old: str, new: str, code: str
) -> None:
    with raises(RubricError, code):
        rubric(LISTED.replace(old, new))


def test_a_form_with_an_envelope_has_values_that_are_not_scored_beside_it() -> None:
    text = """
name: beside
images: [input, edited]
scale: {values: [0, 1]}
factors: [{key: kept}, {key: done}]
answer: {form: list, envelope: scores, others: ["changes: string[]"], keys: [changes, scores]}
"""
    outcome = check(rubric(text), '{"scores": [1, 0], "changes": []}')
    assert isinstance(outcome, Verdict) and outcome.scores == {"kept": 1, "done": 0}
    assert list(answer_schema(rubric(text))["properties"]) == ["changes", "scores"]
    assert isinstance(check(rubric(text), '{"scores": [1, 0]}'), Failure)
