"""How values are compared: the same manifest says the same in JSON and in CSV, and rounding decides nothing."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editjudge.edit import Edit
from editjudge.rubrics.evaluation import Quantity, Rows, applies, evaluate
from editjudge.rubrics.expression import Member, parse
from editjudge.rubrics.scale import Scale
from editjudge.values import compare, is_given, place_among, word_of


@pytest.mark.parametrize(
    ("value", "same", "others"),
    [
        (
            True,
            [True, "true", "True", "TRUE"],
            [1, "1", "yes", "tRUE", False, None, ""],
        ),
        (False, [False, "false", "False", "FALSE"], [0, "0", "", None, "no", []]),
        (
            3,
            [3.0, "3", "3.0", "3.00", "30e-1", 3],
            [True, "03", "3.", "+3", " 3", "three", 3.1, [3]],
        ),
        (0, [0.0, -0.0, "0", "-0", "0.0"], [False, "", None, "00"]),
        (2**53 + 1, [str(2**53 + 1)], [2**53, float(2**53)]),
        (0.1, ["0.1", "1e-1", 0.10], [0.1 + 1e-12, "0.10000000000000001"]),
        ("add", ["add"], ["Add", " add", "add "]),
        (None, [None, "", math.nan], [0, False, "null", " "]),
        ("007", ["007"], [7, "7"]),
    ],
)
def test_values_are_the_same_by_what_they_mean(
    value: Any, same: list[Any], others: list[Any]
) -> None:
    assert {word_of(other) for other in same} == {word_of(value)}
    assert word_of(value) not in {word_of(other) for other in others}


@pytest.mark.parametrize(
    "value", [None, "", "  \n", [], {}, False, "false", "False", "[]", "{}", math.nan]
)
def test_what_says_nothing_is_not_given(value: Any) -> None:
    assert not is_given(value)
    assert not applies("hint is given", Edit("e", metadata={"hint": value}))
    assert applies("hint is not given", Edit("e", metadata={"hint": value}))


@pytest.mark.parametrize(
    "value", [0, 0.0, "0", True, "no", "none", [None], {"a": None}, "-"]
)
def test_what_says_something_is_given(value: Any) -> None:
    assert is_given(value)
    assert applies("hint is given", Edit("e", metadata={"hint": value}))


def test_a_label_is_found_among_choices_to_the_letter_first() -> None:
    assert place_among("yes", ("no", "yes")) == 1
    assert place_among(True, ("true", "false")) == 0
    assert place_among(2.0, ("1", "2")) == 1
    assert place_among("1.0", ("1", "1.0")) == 1
    assert place_among("Yes", ("no", "yes")) is None
    assert place_among(True, ("yes", "no")) is None
    assert place_among(["yes"], ("yes", "no")) is None


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, 1.0, 2.5]),
    st.text("ab1.e-", max_size=3),
)
WORDS = ["true", "false", "0", "1", "2.5", "-3", "a", "ab", "1.0"]


def as_csv(value: Any) -> str | None:
    """A value as a spreadsheet writes it; an empty cell is none."""
    if isinstance(value, bool):
        return str(value).upper()
    return None if value in (None, "") else str(value)


def same_by_definition(value: Any, word: str) -> bool:
    """The rule in other words than those of the module."""
    if value is None or isinstance(value, bool):
        return value is not None and word == ("true" if value else "false")
    if isinstance(value, str):
        return value == word or (
            number(value) is not None and number(value) == number(word)
        )
    return number(word) == Fraction(value)


def number(text: str) -> Fraction | None:
    digits = text.removeprefix("-")
    whole = digits.partition("e")[0].partition(".")[0]
    if (
        text != text.strip()
        or not digits[:1].isdigit()
        or digits.endswith((".", "e", "-"))
        or ".e" in digits
    ):
        return None
    try:
        return None if whole != str(int(whole)) else Fraction(text)
    except ValueError:
        return None


@given(CELLS, st.sampled_from(WORDS))
def test_conditions_and_formulas_agree_in_json_and_in_csv(
    value: Any, word: str
) -> None:
    expected = same_by_definition(value, word)
    for cell in (value, as_csv(value)):
        edit = Edit("e", metadata={"kind": cell})
        assert applies(f"kind == {word}", edit) is expected
        assert applies(f'kind not in ["{word}"]', edit) is not expected
        assert formula(f'item.kind == "{word}"', cell) == expected
        assert formula(f'by(kind, {{"{word}": 1}}, 0)', cell) == expected
        assert formula("given(item.kind)", cell) == applies("kind is given", edit)


MEMBERS = (Member("sc", {"quality": Scale(range=(0, 1))}),)


def formula(text: str, cell: Any = None, quality: float = 0.0) -> float:
    rows = Rows({("sc", "quality"): [Quantity(quality, 0)]}, {"kind": cell})
    return float(evaluate(parse(text, MEMBERS), rows).value)


def test_numbers_are_compared_without_what_binary_fractions_add() -> None:
    assert sum([0.7] * 3) / 3 < 0.7
    for sign, expected in {"==": 1, ">=": 1, "<=": 1, "!=": 0, "<": 0, ">": 0}.items():
        assert compare(sum([0.7] * 3) / 3, sign, 0.7) == expected
        assert (
            formula(f"mean(quality, quality, quality) {sign} 0.7", quality=0.7)
            == expected
        )


def test_numbers_that_differ_are_told_apart() -> None:
    assert compare(1e-10, "<", 5e-10) and not compare(1e-10, "==", 5e-10)
    assert (
        compare(0.7, "<", 0.7 + 1e-6)
        and compare(-math.inf, "<", 0.0)
        and compare(math.inf, ">=", math.inf)
    )
    assert not any(
        compare(math.nan, sign, 1.0) for sign in ("==", "<", "<=", ">", ">=")
    )
