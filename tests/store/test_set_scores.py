"""The scores of rubric sets, from judgements as a store gives them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import pytest

from editjudge.errors import RubricError
from editjudge.judgement import JudgementRow
from editjudge.rubrics.expression import Member
from editjudge.rubrics.scale import Scale
from editjudge.rubrics.sets import formulas
from editjudge.store.scores import SetScore, SetScorer, by_item
from tests.faults import raises

TEN = Scale(tuple(range(11)))
MEMBERS = (
    Member("sc", {"success": TEN, "overedit": TEN}),
    Member("pq", {"natural": TEN}),
    Member("check", {"answer": Scale(choices=("yes", "no"))}, for_each=True),
)
CHOICES = {("check", "answer"): ("yes", "no")}


def row(
    item: str, rubric: str, status: str = "ok", repeat: int = 0, **values: Any
) -> dict[str, Any]:
    choices = {key: value for key, value in values.items() if isinstance(value, str)}
    scores = {key: value for key, value in values.items() if key not in choices}
    said = {
        "scores": scores or None,
        "choices": choices or None,
        "metadata": {"kind": f"kind of {item}"},
    }
    return {
        "item": item,
        "judge": "j",
        "rubric": rubric,
        "status": status,
        "repeat": repeat,
        **said,
    }


def add(scorer: SetScorer, values: dict[str, Any]) -> None:
    """Add a judgement with the fields that scores of sets need."""
    scorer.add(cast(JudgementRow, values))


def scored(texts: dict[str, Any], rows: list[dict[str, Any]]) -> list[SetScore]:
    scorer = SetScorer(formulas(texts, MEMBERS), CHOICES)
    for one in rows:
        add(scorer, one)
    return list(scorer.scores())


SQRT = {"overall": "sqrt(min(sc.*) * pq)"}


def test_each_repeat_has_a_score_and_their_mean_is_the_edits() -> None:
    rows = [
        row("a", "sc", success=9, overedit=4), row("a", "pq", natural=9),
        row("a", "sc", repeat=1, success=1, overedit=5), row("a", "pq", repeat=1, natural=4),
    ]  # fmt: skip
    found = scored(SQRT, rows)
    assert [(one.repeat, one.value) for one in found] == [(0, 6.0), (1, 2.0)]
    assert by_item(found) == {"a": {"j": {"overall": 4.0}}}
    before = scored(
        {"overall": {"formula": SQRT["overall"], "repeats": "before"}}, rows
    )
    assert [one.value for one in before] == [pytest.approx(math.sqrt(4.5 * 6.5))]


def test_a_rubric_that_is_asked_once_serves_every_repeat_of_the_others() -> None:
    rows = [
        row("a", "sc", success=9, overedit=4),
        row("a", "sc", repeat=1, success=1, overedit=5),
    ]
    found = scored(SQRT, [*rows, row("a", "pq", natural=4)])
    assert [one.value for one in found] == [4.0, 2.0]


def test_what_failed_says_why_there_is_no_score() -> None:
    found = scored(
        SQRT,
        [
            row("a", "sc", success=9, overedit=4), row("a", "pq", "refused"),
            row("b", "sc", "pending"), row("b", "pq", natural=4),
            row("c", "sc", success=9), row("c", "pq", natural=4),
        ],
    )  # fmt: skip
    assert [(one.item, one.value, one.reason) for one in found] == [
        ("a", None, "refused"),
        ("b", None, "pending"),
        ("c", None, "abstained"),
    ]
    assert by_item(found)["a"] == {"j": {"overall": None}}


def test_an_edit_that_no_rubric_of_a_score_was_put_to_has_none() -> None:
    rows = [row("a", "pq", natural=4), row("b", "sc", success=1, overedit=1)]
    assert [
        (one.item, one.value) for one in scored({"natural_only": "mean(pq)"}, rows)
    ] == [("a", 4.0)]


def test_choices_for_each_element_of_a_list() -> None:
    rows = [
        row("a", "check", answer=answer) | {"variant": f"{n}"}
        for n, answer in enumerate(("yes", "no", "yes"))
    ]
    assert [
        one.value for one in scored({"accuracy": 'mean(check == "yes")'}, rows)
    ] == [pytest.approx(2 / 3)]
    failed = [*rows, row("a", "check", "invalid") | {"variant": "3"}]
    assert [
        one.reason for one in scored({"accuracy": 'mean(check == "yes")'}, failed)
    ] == ["invalid"]


def test_each_answer_is_held_against_its_own_element() -> None:
    checks = [{"question": "?", "answer": answer} for answer in ("yes", "yes", "no")]
    rows = [
        row("a", "check", answer=answer)
        | {"variant": f"{n}", "metadata": {"checks": checks}}
        for n, answer in enumerate(("yes", "no", "no"))
    ]
    scorer = SetScorer(
        formulas({"accuracy": "mean(check == each.answer)"}, MEMBERS),
        CHOICES,
        {"check": "checks"},
    )
    for one in rows:
        add(scorer, one)
    assert [one.value for one in scorer.scores()] == [pytest.approx(2 / 3)]


def test_a_question_that_failed_for_want_of_its_list_is_no_answer_without_a_label() -> (
    None
):
    texts = {"both": "mean(check == each.answer, success > 5)"}
    scorer = SetScorer(formulas(texts, MEMBERS), CHOICES, {"check": "checks"})
    labelled = {"metadata": {"checks": [{"answer": "no"}, {"answer": None}]}}
    add(scorer, row("labelled", "sc", success=9, overedit=4) | labelled)
    add(scorer, row("labelled", "check", answer="yes") | {"variant": "0"} | labelled)
    add(scorer, row("labelled", "check", "invalid") | {"variant": "1"} | labelled)
    add(scorer, row("no list", "sc", success=9, overedit=4))
    add(scorer, row("no list", "check", "missing_input"))
    result = {one.item: (one.value, one.reason) for one in scorer.scores()}
    assert result == {"labelled": (0.5, "ok"), "no list": (None, "missing_input")}


def test_both_orders_of_a_pair_count_alike() -> None:
    members = (
        Member("pair", {"winner": Scale(choices=("Image A", "Image B", "Tie"))}),
    )
    choices = {("pair", "winner"): ("Image A", "Image B", "Tie")}
    scorer = SetScorer(formulas({"a_wins": 'winner == "Image A"'}, members), choices)
    for variant, choice in (("ab", "a"), ("ba", "tie")):
        add(scorer, row("p", "pair", winner=choice) | {"variant": variant})
    assert by_item(scorer.scores()) == {"p": {"j": {"a_wins": 0.5}}}


def test_an_answer_that_both_are_bad_is_told_from_a_tie() -> None:
    arguments = ("A", "B", "tie", "both_bad")
    members = (Member("pair", {"which": Scale(choices=arguments)}),)
    scorer = SetScorer(
        formulas({"bad": 'which == "both_bad"', "tie": 'which == "tie"'}, members),
        {("pair", "which"): arguments},
    )
    for variant, choice in (("ab", "both_bad"), ("ba", "tie")):
        add(scorer, row("p", "pair", which=choice) | {"variant": variant})
    assert by_item(scorer.scores()) == {"p": {"j": {"bad": 0.5, "tie": 0.5}}}


def test_a_sum_of_which_one_part_was_not_asked_is_undefined_and_counted() -> None:
    rows = [
        row("both", "sc", success=9, overedit=4), row("both", "pq", natural=4),
        row("left", "sc", success=9, overedit=4),
        row("right", "pq", natural=4),
        row("neither", "check", answer="yes") | {"variant": "0"},
    ]  # fmt: skip
    for text in (
        "success + natural",
        "max(0, success - natural)",
        "if(natural == 4, success, 0)",
    ):
        found = {
            one.item: (one.value is None, one.reason)
            for one in scored({"s": text}, rows)
        }
        assert found == {
            "both": (False, "ok"),
            "left": (True, "not_asked"),
            "right": (True, "not_asked"),
        }, text
    reduced = {
        one.item: one.value for one in scored({"s": "mean(success, natural)"}, rows)
    }
    assert reduced == {"both": 6.5, "left": 9.0, "right": 4.0}


def test_a_case_that_a_formula_does_not_name_has_no_score() -> None:
    rows = [row("a", "pq", natural=4), row("b", "pq", natural=4)]
    assert [
        one.item for one in scored({"s": 'by(kind, {"kind of a": natural})'}, rows)
    ] == ["a"]


def test_a_column_is_the_manifests_and_never_a_field_of_the_judgement() -> None:
    said = row("a", "pq", natural=4) | {
        "model": "m",
        "metadata": {"judge": "people", "status": "draft"},
    }
    for text in (
        'item.judge == "people"',
        'item.status == "draft"',
        'item.model == "m"',
        'item.id == "a"',
    ):
        assert [one.value for one in scored({"s": f"natural * ({text})"}, [said])] == [
            4.0
        ], text


def test_a_list_in_a_cell_of_csv_is_read_as_the_question_read_it() -> None:
    checks = '[{"answer": "yes"}, {"answer": "no"}]'
    scorer = SetScorer(
        formulas({"accuracy": "mean(check == each.answer)"}, MEMBERS),
        CHOICES,
        {"check": "checks"},
    )
    for number in range(2):
        add(
            scorer,
            row("a", "check", answer="yes")
            | {"variant": f"{number}", "metadata": {"checks": checks}},
        )
    assert [one.value for one in scorer.scores()] == [0.5]


@pytest.mark.parametrize("label", ["Yes", True, 1, ["yes"]])
def test_an_answer_held_against_what_nobody_can_answer_is_not_wrong_but_undefined(
    label: Any,
) -> None:
    scorer = SetScorer(
        formulas({"accuracy": "mean(check == each.answer)"}, MEMBERS),
        CHOICES,
        {"check": "checks"},
    )
    checks = [{"answer": "yes"}, {"answer": label}]
    for number in range(2):
        add(
            scorer,
            row("a", "check", answer="yes")
            | {"variant": f"{number}", "metadata": {"checks": checks}},
        )
    assert [(one.value, one.reason) for one in scorer.scores()] == [(None, "undefined")]


def test_columns_of_the_manifest_are_seen() -> None:
    text = 'by(kind, {"kind of a": natural}, 0)'
    rows = [row("a", "pq", natural=4), row("b", "pq", natural=4)]
    assert [one.value for one in scored({"s": text}, rows)] == [4.0, 0.0]


def test_words_have_no_mean_over_repeats() -> None:
    with raises(RubricError, "words_without_mean", "accuracy"):
        formulas(
            {"accuracy": {"formula": 'mean(check == "yes")', "repeats": "before"}},
            MEMBERS,
        )


# --- samples and repeats --------------------------------------------------------------------------------------


def answers(
    rubric: str, key: str, samples: int, repeats: int, values: Callable[[int], Any]
) -> list[dict[str, Any]]:
    """A rubric asked so often in each repeat, and what it says each time."""
    return [
        row("a", rubric, repeat=number, **{key: values(number)})
        for number in range(samples * repeats)
    ]


def scored_with(
    texts: dict[str, Any], samples: dict[str, int], rows: list[dict[str, Any]]
) -> list[SetScore]:
    scorer = SetScorer(formulas(texts, MEMBERS), CHOICES, samples=samples)
    for one in rows:
        add(scorer, one)
    return list(scorer.scores())


@pytest.mark.parametrize("means", ["after", "before"])
@pytest.mark.parametrize("repeats", [1, 2, 3])
@pytest.mark.parametrize(
    ("many", "few"), [(1, 1), (3, 1), (1, 3), (3, 3), (2, 3), (4, 2)]
)
def test_every_answer_counts_alike_however_often_its_rubric_is_asked(
    many: int, few: int, repeats: int, means: str
) -> None:
    rows = answers("sc", "success", many, repeats, float) + answers(
        "pq", "natural", few, repeats, float
    )
    texts = {
        "least": {"formula": "min(sc.success, natural + 100)", "repeats": means},
        "both": {"formula": "sc.success + natural", "repeats": means},
    }
    found = scored_with(texts, {"sc": many, "pq": few}, rows)
    assert {one.reason for one in found} == {"ok"}
    mean = {"sc": (many * repeats - 1) / 2, "pq": (few * repeats - 1) / 2}
    scores = by_item(found)["a"]["j"]
    assert scores["least"] == pytest.approx(mean["sc"])
    assert scores["both"] == pytest.approx(mean["sc"] + mean["pq"])


def test_rubrics_that_are_asked_equally_often_go_in_sample_by_sample() -> None:
    rows = answers("sc", "success", 2, 2, lambda n: (9, 1, 4, 16)[n]) + answers(
        "pq", "natural", 2, 2, lambda n: n
    )
    found = scored_with({"total": "sc.success * natural"}, {"sc": 2, "pq": 2}, rows)
    assert [(one.repeat, one.value) for one in found] == [
        (0, 0.0),
        (1, 1.0),
        (2, 8.0),
        (3, 48.0),
    ]


def test_words_that_are_asked_less_often_take_turns_and_are_never_averaged() -> None:
    members = (
        Member("sc", {"success": TEN}),
        Member("seen", {"what": Scale(choices=("cat", "dog", "cow"))}),
    )
    choices = {("seen", "what"): ("cat", "dog", "cow")}
    parsed = formulas({"total": 'success if what == "dog" else 0'}, members)
    scorer = SetScorer(parsed, choices, samples={"sc": 3, "seen": 2})
    for one in answers("sc", "success", 3, 1, lambda _: 6) + answers(
        "seen", "what", 2, 1, ("cat", "cow").__getitem__
    ):
        add(scorer, one)
    # the mean of cat and cow would be a dog
    assert by_item(scorer.scores()) == {"a": {"j": {"total": 0.0}}}


def test_one_order_of_a_pair_with_samples_has_a_score_for_each() -> None:
    members = (
        Member("pair", {"winner": Scale(choices=("Image A", "Image B"))}),
        Member("sc", {"success": TEN}),
    )
    parsed = formulas({"total": 'success * (winner == "Image A")'}, members)
    scorer = SetScorer(
        parsed, {("pair", "winner"): ("Image A", "Image B")}, samples={"pair": 2}
    )
    for one in [
        row("p", "pair", repeat=n, winner="a") | {"variant": "ab"} for n in range(4)
    ]:
        add(scorer, one)
    for one in [row("p", "sc", repeat=n, success=3) for n in range(2)]:
        add(scorer, one)
    assert [(one.value, one.reason) for one in scorer.scores()] == [(3.0, "ok")] * 4


def test_what_is_pending_outweighs_a_failure_and_every_other_repeat() -> None:
    rows = [
        row("a", "sc", "invalid"), row("a", "pq", "pending"),
        row("a", "sc", repeat=1, success=9, overedit=4), row("a", "pq", repeat=1, natural=9),
    ]  # fmt: skip
    for means in ("after", "before"):
        found = scored(
            {"overall": {"formula": SQRT["overall"], "repeats": means}}, rows
        )
        assert {(one.value, one.reason) for one in found} == {(None, "pending")}
        assert by_item(found) == {"a": {"j": {"overall": None}}}


def test_a_mean_of_which_an_answer_failed_is_undefined_with_the_status_of_the_failure() -> (
    None
):
    rows = [row("a", "sc", repeat=n, success=9, overedit=4) for n in range(3)]
    for at in range(3):
        some_failed = [
            *rows[:at],
            row("a", "sc", "unreachable", repeat=at),
            *rows[at + 1 :],
        ]
        before = scored(
            {"mine": {"formula": "success", "repeats": "before"}}, some_failed
        )
        assert [(one.value, one.reason) for one in before] == [(None, "unreachable")]


def test_a_failed_sample_of_a_rubric_that_is_asked_less_often_leaves_its_repeat_without_a_score() -> (
    None
):
    rows = answers("sc", "success", 3, 2, lambda _: 9)
    rows += [row("a", "pq", natural=2), row("a", "pq", "invalid", repeat=1)]
    rows += [row("a", "pq", repeat=2, natural=2), row("a", "pq", repeat=3, natural=4)]
    found = scored_with({"least": "min(success, natural)"}, {"sc": 3, "pq": 2}, rows)
    assert [(one.value, one.reason) for one in found] == [(None, "invalid")] * 3 + [
        (3.0, "ok")
    ] * 3


def test_an_abstention_among_repeats_leaves_the_mean_of_the_others() -> None:
    rows = [
        row("a", "sc", "abstained"),
        row("a", "sc", repeat=1, success=9),
        row("a", "sc", repeat=2, success=4),
    ]
    before = scored({"mine": {"formula": "success", "repeats": "before"}}, rows)
    assert [(one.value, one.reason) for one in before] == [(6.5, "ok")]


def test_repeats_that_nobody_asked_take_no_time() -> None:
    rows = [row("a", "sc", repeat=n, success=9, overedit=4) for n in (0, 10**12)]
    assert [one.value for one in scored({"mine": "success"}, rows)] == [9.0, 9.0]
