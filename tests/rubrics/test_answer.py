"""The schema asks servers for exactly what the contract accepts."""

from __future__ import annotations

import copy
import dataclasses
import json
import random
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from editjudge.edit import Edit
from editjudge.rubrics.answer import answer_schema, answer_shape
from editjudge.rubrics.contract import check
from editjudge.rubrics.files import load
from editjudge.rubrics.model import AnswerFormat, Rubric
from editjudge.rubrics.prompt import ask
from editjudge.rubrics.verdict import Verdict
from tests.faults import raises
from tests.rubrics.replies import (
    DUEL,
    ID,
    PAIR,
    RUBRICS,
    SHARE,
    answer,
    at,
    best,
    headings,
    objects,
    raw,
)

every_rubric = pytest.mark.parametrize(
    "rubric", RUBRICS, ids=lambda rubric: rubric.name
)


def valid(rubric: Rubric, value: Any) -> bool:
    return jsonschema.Draft202012Validator(answer_schema(rubric)).is_valid(value)


def accepted(rubric: Rubric, value: Any) -> bool:
    return isinstance(check(rubric, headings(rubric) + raw(value)), Verdict)


def object_schemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if schema["type"] == "object":
        yield schema
        for inner in schema["properties"].values():
            yield from object_schemas(inner)


@every_rubric
def test_the_schema_is_one(rubric: Rubric) -> None:
    jsonschema.Draft202012Validator.check_schema(answer_schema(rubric))
    json.dumps(answer_schema(rubric), allow_nan=False)


@every_rubric
def test_all_properties_are_required_and_no_others_allowed(rubric: Rubric) -> None:
    for schema in object_schemas(answer_schema(rubric)):
        assert schema["required"] == list(schema["properties"])
        assert schema["additionalProperties"] is False


@every_rubric
def test_a_reason_comes_before_its_score(rubric: Rubric) -> None:
    form = rubric.answer
    top = list(answer_schema(rubric)["properties"])
    scores_at = form.envelope or rubric.factors[0].key
    assert all(top.index(key) < top.index(scores_at) for key in form.texts)
    if form.form == "entries":
        entries = [
            schema
            for schema in object_schemas(answer_schema(rubric))
            if form.score_key in schema["properties"]
        ]
        expected = [[form.reason_key, form.score_key]] * len(rubric.factors)
        assert [list(schema["properties"]) for schema in entries] == expected


@every_rubric
def test_every_legal_score_is_valid_and_accepted(rubric: Rubric) -> None:
    for factor in rubric.factors:
        for value in factor.scale.values:
            whole = answer(rubric, {factor.key: value})
            assert valid(rubric, whole) and accepted(rubric, whole)


@every_rubric
@pytest.mark.parametrize("score", [12, -1, 6.5, "6", "6/7", True, None, [6], {}])
def test_what_is_no_score_is_neither_valid_nor_accepted(
    rubric: Rubric, score: Any
) -> None:
    for factor in rubric.factors:
        whole = answer(rubric, {factor.key: score})
        assert not valid(rubric, whole) and not accepted(rubric, whole)


@every_rubric
def test_a_key_that_is_missing_extra_or_misnamed_is_neither_valid_nor_accepted(
    rubric: Rubric,
) -> None:
    for path in objects(answer(rubric)):
        for key in (*at(answer(rubric), path), None):
            for extra in ("overall", None):
                whole = copy.deepcopy(answer(rubric))
                if key:
                    del at(whole, path)[key]
                if extra:
                    at(whole, path)[extra] = "x"
                assert (
                    valid(rubric, whole)
                    is accepted(rubric, whole)
                    is (key is None and extra is None)
                )


def _mangled(value: Any, rng: random.Random) -> Any:
    """An answer with something somewhere replaced, dropped or added."""
    junk = [
        None,
        True,
        0,
        1,
        5,
        8,
        -1,
        6.5,
        "",
        "5",
        "text",
        [],
        [5],
        {},
        {"score": 5},
        answer(PAIR),
    ]
    value = copy.deepcopy(value)
    place = at(value, rng.choice(list(objects(value))))
    key = rng.choice([*place, "score", "image_id", "reasoning", "x"])
    if rng.random() < 0.25:
        place.pop(key, None)
    else:
        place[key] = copy.deepcopy(rng.choice(junk))
    return value


@every_rubric
def test_the_schema_and_the_contract_agree_on_mangled_answers(rubric: Rubric) -> None:
    rng = random.Random(rubric.name)
    schema = jsonschema.Draft202012Validator(answer_schema(rubric))
    both = 0
    for _ in range(150):
        whole = _mangled(answer(rubric), rng)
        if (
            rubric is PAIR
            and isinstance(whole.get("score"), list)
            and len(whole["score"]) != len(rubric.factors)
        ):
            continue  # a list's length is no part of the subset that servers take
        assert schema.is_valid(whole) is accepted(rubric, whole), whole
        both += schema.is_valid(whole)
    assert both > 1


@every_rubric
def test_the_shape_that_a_question_shows_becomes_an_answer_when_it_is_filled_in(
    rubric: Rubric,
) -> None:
    shape = answer_shape(rubric, ID)
    for factor in rubric.factors:
        for described in (
            f"<{factor.key}: {factor.scale.words}>",
            f"<{factor.scale.words}>",
        ):
            shape = shape.replace(described, str(factor.scale.best))
    outcome = check(
        rubric,
        headings(rubric) + shape,
        identifier=ID if rubric.answer.id_key else None,
    )
    assert isinstance(outcome, Verdict), outcome
    assert outcome.scores == best(rubric)


@every_rubric
def test_the_shape_itself_is_never_taken_for_an_answer(rubric: Rubric) -> None:
    assert not isinstance(
        check(rubric, headings(rubric) + answer_shape(rubric, ID)), Verdict
    )


def test_the_schema_of_decimals_and_choices_takes_what_the_contract_accepts() -> None:
    entry = {"justification": "Seen.", "score": 0.25}
    good = {"results": {"likeness": entry, "harm": {**entry, "score": 9.5}}}
    off_step = {"results": {"likeness": entry, "harm": entry}}
    assert valid(SHARE, good) and accepted(SHARE, good)
    assert not valid(SHARE, off_step) and not accepted(SHARE, off_step)
    choice = {"justification": "Seen.", "choice": "tie"}
    assert valid(DUEL, {"quality": choice, "overall": choice})
    assert not valid(DUEL, {"quality": choice, "overall": {**choice, "choice": "TIE"}})


def test_a_list_of_decimals_is_a_list_of_numbers() -> None:
    listed = dataclasses.replace(
        SHARE, answer=AnswerFormat(envelope="scores", form="list")
    )
    assert valid(listed, {"scores": [0.25, 9.5]}) and accepted(
        listed, {"scores": [0.25, 9.5]}
    )
    assert not valid(listed, {"scores": ["0.25", 9.5]})


def test_the_question_says_what_a_decimal_or_a_choice_must_be() -> None:
    edit = Edit("1", instruction="Paint it.")
    questions = {
        rubric.name: str(ask(rubric, edit, {})) for rubric in (SHARE, DUEL, PAIR)
    }
    assert (
        "a number from 0 to 10 in steps of 0.5; lower is better" in questions["share"]
    )
    assert "Scores are bare numbers without quotation marks" in questions["share"]
    assert (
        '<"a", "b" or "tie">' in questions["duel"]
        and "integers" not in questions["duel"]
    )
    assert (
        "Scores are bare integers: no decimals, no quotation marks."
        in questions["pair"]
    )


@pytest.mark.parametrize("name", ["fidelity", "compliance"])
def test_a_reason_is_asked_for_before_its_score_or_after_it_as_the_rubric_says(
    name: str,
) -> None:
    before = load(name)
    assert before.reason == "before"
    after = dataclasses.replace(before, reason="after")
    assert after.hash != before.hash
    first = before.answer.reason_key or before.answer.texts[0]
    score = before.answer.score_key or before.factors[0].key
    for rubric, wanted in ((before, [first, score]), (after, [score, first])):
        shape = answer_shape(rubric, "edit-1")
        schema = json.dumps(answer_schema(rubric))
        assert sorted(wanted, key=lambda key: shape.index(f'"{key}"')) == wanted
        assert sorted(wanted, key=lambda key: schema.index(f'"{key}": {{')) == wanted


def test_a_question_whose_order_is_its_own_takes_no_other() -> None:
    with raises(ValueError, "sections_order"):
        dataclasses.replace(load("lighting"), reason="after")
