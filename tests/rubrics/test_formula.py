"""Formulas over factors: what is read, what is refused, and what comes out, against plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from editjudge.errors import RubricError
from editjudge.rubrics.evaluation import (
    ABSTAINED,
    FAILED,
    LEFT_OUT,
    NOT_ASKED,
    OK,
    SINGLE,
    UNDEFINED,
    Quantity,
    Rows,
    column_rows,
    evaluate,
)
from editjudge.rubrics.evaluation import columns as column_arithmetic
from editjudge.rubrics.expression import Member, parse
from editjudge.rubrics.scale import Scale
from editjudge.rubrics.sets import Formula, formulas
from tests.faults import raises

TEN = Scale(tuple(range(11)))
MEMBERS = (
    Member("sc", {"success": TEN, "Over-editing": TEN}),
    Member("pq", {"natural": TEN, "clean": TEN}),
    Member("cons", {"score": Scale((1, 2, 3, 4, 5))}),
    Member("check", {"answer": Scale(choices=("yes", "no"))}, for_each=True),
    Member(
        "arm",
        {
            "left": Scale(choices=("MATCH", "MISMATCH")),
            "right": Scale(choices=("MATCH", "MISMATCH")),
        },
    ),
    Member("grade", {"grade": Scale(choices=("5 - good", "-2.5 (bad)", "0"))}),
)


def value(
    text: str,
    factors: dict[tuple[str, str], Any],
    columns: dict[str, Any] | None = None,
) -> float | int:
    """Of one edit: a number, or the negative code of the reason; a list is a factor of many values."""
    cells = {}
    for ref, content in factors.items():
        row = content if isinstance(content, list) else [content]
        cells[ref] = [
            Quantity(math.nan, -one)
            if isinstance(one, int) and one < 0
            else Quantity(float(one), OK)
            for one in row
        ]
    term = parse(text, MEMBERS)
    result = evaluate(term, Rows(cells, columns or {}))
    arrays = {
        ref: [Quantity(np.array([one.value]), np.array([one.code])) for one in row]
        for ref, row in cells.items()
    }
    of_columns = {name: [cell] for name, cell in (columns or {}).items()}
    in_columns = evaluate(term, column_rows(1, arrays, of_columns))
    assert in_columns.code[0] == result.code
    if not result.code:
        assert in_columns.value[0] == pytest.approx(result.value, rel=1e-12)
    return -int(result.code) if result.code else float(result.value)


SC = {("sc", "success"): 9, ("sc", "Over-editing"): 4}
PQ = {("pq", "natural"): 8, ("pq", "clean"): 6}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sqrt(min(sc.*) * min(pq.*))", math.sqrt(4 * 6)),
        ('min(success, sc["Over-editing"])', 4),
        ('mean(factor("sc", "*"))', 6.5),
        ("geomean(sc.*)", 6),
        ("weights({success: .5, natural: .3, clean: .2})", 0.5 * 9 + 0.3 * 8 + 0.2 * 6),
        ("weights({success: 2, natural: 1})", 26 / 3),
        ("mean(success, min(natural, success), min(clean, success))", 23 / 3),
        ("full(success)", 0),
        ("share(natural)", 0.8),
        ("mean(share(sc.*))", 0.65),
        ("if(success > 5, natural, 0)", 8),
        ("natural if (success < 5) else -1", -1),
        ("1 < clean <= 6 and not natural == 7", 1),
        ("2.*clean - (1 - 2)", 13),
        ("count(sc.*, pq.*)", 4),
        ("any(sc.* == 4) + all(sc.* == 4)", 1),
        ("mean(sc.* + 1)", 7.5),
        ("abs(clean - success)", 3),
        ("max(\n  clean,\n  natural)", 8),
        ("clean ^ 2 * 2 - -success ^ .5", 6**2 * 2 + 3),
        ("2 ^ 3 ^ 2", 512),
    ],
)
def test_a_formula_has_the_value_that_plain_python_gives(
    text: str, expected: float
) -> None:
    assert value(text, SC | PQ) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("text", "factors", "expected"),
    [
        ("number(grade)", {("grade", "grade"): 1}, -2.5),
        ('mean(number(check, {"yes": 10, "no": 4}))', {("check", "answer"): [0, 1]}, 7),
        ('number(check, {"yes": 1, "no": 0})', {("check", "answer"): [-FAILED]}, None),
    ],
)
def test_a_choice_has_the_number_that_its_text_or_the_formula_gives_it(
    text: str, factors: dict[tuple[str, str], Any], expected: float | None
) -> None:
    text = text if expected is not None else f"sum({text})"
    assert value(text, factors) == (-FAILED if expected is None else expected)
    low, high = parse("number(grade)", MEMBERS).ends or (0, 0)
    assert (low, high) == (-2.5, 5)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("sum(number(check))", "choice_without_number"),
        ('sum(number(check, {"yes": 1}))', "choice_without_number"),
        (
            'sum(number(check, {"yes": 1, "no": 0, "maybe": 2}))',
            "choice_without_number",
        ),
        ("number(success)", "not_a_choice"),
        ('number(grade, {"0": success})', "invalid_formula"),
    ],
)
def test_a_choice_without_a_number_is_refused(text: str, code: str) -> None:
    with raises(RubricError, code):
        parse(text, MEMBERS)


def test_what_failed_or_abstained_makes_the_score_undefined_with_its_reason() -> None:
    failed = {**SC, ("pq", "natural"): -FAILED, ("pq", "clean"): -ABSTAINED}
    assert value("sqrt(min(sc.*) * min(pq.*))", failed) == -FAILED
    assert value("mean(success, clean)", failed) == -ABSTAINED
    assert value("success", failed) == 9


def test_arithmetic_without_a_result_is_undefined() -> None:
    zero = {("sc", "success"): 0, ("pq", "clean"): 2}
    assert value("success / success", zero) == -UNDEFINED
    assert value("clean / success", zero) == -UNDEFINED
    assert value("sqrt(success - clean)", zero) == -UNDEFINED
    assert value("geomean(success - clean, clean)", zero) == -UNDEFINED


@pytest.mark.parametrize("score", [0.01, 1.0, 1e6])
def test_the_geometric_mean_of_a_long_list_is_that_of_a_short_one(score: float) -> None:
    long = {("sc", "success"): [score] * 400}
    assert value("geomean(success)", long) == pytest.approx(score)


def test_the_geometric_mean_of_a_long_list_with_a_zero_is_zero() -> None:
    assert value("geomean(success)", {("sc", "success"): [0.01] * 400 + [0.0]}) == 0


def test_a_rubric_that_was_not_asked_is_left_out_of_functions_over_many_and_undefined_elsewhere() -> (
    None
):
    assert value("mean(sc.*, cons)", SC) == 6.5
    assert value("success + cons", SC) == -NOT_ASKED
    assert value("mean(cons)", SC) == -NOT_ASKED
    assert value("if(asked(cons), .3 * cons + .7 * success, success)", SC) == 9
    assert value("weights({success: .8, cons: .2})", SC) == pytest.approx(9)
    assert value("count(cons)", SC) == 0


def test_a_constant_stands_in_for_no_answer() -> None:
    for text in (
        "max(0, cons)",
        "min(5, cons)",
        "mean(3, cons)",
        "sum(1, cons)",
        "max(0, success - cons)",
    ):
        assert value(text, SC) == -NOT_ASKED, text
    assert value('all(item.kind == "x", cons == 5)', SC, {"kind": "x"}) == -NOT_ASKED
    assert value("max(0, success)", SC) == 9
    assert value("min(5, cons, success)", SC) == 5
    assert value("max(0, applies(cons))", {("cons", "score"): -ABSTAINED}) == -LEFT_OUT


def test_whether_a_column_says_anything_is_asked_by_name() -> None:
    text = "if(given(item.free), success, natural)"
    columns: list[Any] = [True, "yes", 0, False, None, "", []]
    assert [value(text, SC | PQ, {"free": column}) for column in columns] == [
        9,
        9,
        9,
        8,
        8,
        8,
        8,
    ]
    assert value(text, SC | PQ) == 8
    with raises(RubricError, "not_a_column"):
        parse("given(success)", MEMBERS)


@pytest.mark.parametrize("name", ["instruction", "input", "edited", "mask", "group"])
def test_a_field_that_a_run_does_not_keep_as_a_column_is_refused(name: str) -> None:
    for text in (
        f'item.{name} == "x"',
        f'by({name}, {{"x": success}}, 0)',
        f"given(item.{name})",
    ):
        with raises(RubricError, "column_in_formula", name):
            parse(text, MEMBERS)


def test_values_of_a_column_that_are_the_same_are_one_case() -> None:
    assert value('by(turn, {"3": success}, natural)', SC | PQ, {"turn": 3.0}) == 9
    with raises(RubricError, "bad_cases"):
        parse('by(turn, {"3": success, "3.0": natural})', MEMBERS)


@pytest.mark.parametrize("weight", ["1e-10", "1e-300", "0", "-1"])
def test_a_weight_that_weighs_nothing_is_refused(weight: str) -> None:
    with raises(RubricError, "bad_weight"):
        parse(f"weights({{success: {weight}, natural: {weight}}})", MEMBERS)


def test_the_least_weights_give_a_weighted_mean() -> None:
    assert value("weights({success: 1e-6, natural: 1e-6})", SC | PQ) == pytest.approx(
        8.5
    )
    assert value("weights({success: 1e-6, cons: 1})", SC) == pytest.approx(9)


def test_one_factor_under_two_names_has_no_two_weights() -> None:
    with raises(RubricError, "two_weights"):
        parse("weights({success: .5, sc.success: .3, natural: .2})", MEMBERS)


def test_a_number_that_is_not_finite_is_undefined() -> None:
    for number, code in {math.inf: UNDEFINED, math.nan: UNDEFINED, 1.0: OK}.items():
        assert SINGLE.cell(number).code == code
        assert column_arithmetic().cell(np.array([number])).code.tolist() == [code]


def test_a_label_that_is_none_of_the_choices_has_no_right_answer() -> None:
    answers = {("check", "answer"): [0, 1]}
    for label, expected in {"yes": 0.5, "Yes": -UNDEFINED, "": -NOT_ASKED}.items():
        assert value("mean(check == item.label)", answers, {"label": label}) == expected
    assert value("mean(check == item.label)", {}, {"label": "Yes"}) == -NOT_ASKED
    assert value("mean(check == item.label)", answers, {"label": True}) == -UNDEFINED


def test_an_abstention_is_left_out_only_inside_applies() -> None:
    factors = {("arm", "left"): 0, ("arm", "right"): -ABSTAINED}
    assert value('mean(arm.* == "MATCH")', factors) == -ABSTAINED
    assert value('mean(applies(arm.* == "MATCH"))', factors) == 1
    neither = dict.fromkeys(factors, -ABSTAINED)
    assert value('mean(applies(arm.* == "MATCH"))', neither) == -LEFT_OUT
    # A protocol that gives 0 to what does not apply says so.
    assert (
        value(
            'if(count(applies(arm.* == "MATCH")) == 0, 0, mean(applies(arm.* == "MATCH")))',
            neither,
        )
        == 0
    )
    assert value("scored(arm.left)", neither) == 0
    assert value("scored(arm.left)", {("arm", "left"): -FAILED}) == -FAILED


def test_a_rubric_asked_for_each_element_has_many_values() -> None:
    factors = {("check", "answer"): [0, 1, 0, -NOT_ASKED]}
    assert value('mean(check == "yes")', factors) == pytest.approx(2 / 3)
    assert value('all(check == "yes")', factors) == 0
    assert value('mean(check == "yes")', {("check", "answer"): [0, -FAILED]}) == -FAILED
    with raises(RubricError, "many_values"):
        parse('check == "yes"', MEMBERS)


def test_columns_of_the_manifest_choose_a_formula() -> None:
    text = 'by(edit_type, {"add": success, "x-y": natural}, clean)'
    assert [
        value(text, SC | PQ, {"edit_type": kind}) for kind in ("add", "x-y", "z")
    ] == [9, 8, 6]
    assert (
        value('by(edit_type, {"add": success})', SC, {"edit_type": "z"}) == -NOT_ASKED
    )
    assert (
        value('if(item.category == "logic", success, 0)', SC, {"category": "logic"})
        == 9
    )
    one = formulas({"s": text, "t": 'if(item.category == "logic", s, 0)'}, MEMBERS)[1]
    assert one.columns == {"edit_type", "category"}


def test_words_are_compared_with_what_the_manifest_expects() -> None:
    assert (
        value("arm.left == item.truth", {("arm", "left"): 1}, {"truth": "MISMATCH"})
        == 1
    )
    assert (
        value("arm.left == item.truth", {("arm", "left"): 0}, {"truth": "MISMATCH"})
        == 0
    )
    assert (
        value("arm.left == item.truth", {("arm", "left"): 0}, {"truth": ""})
        == -NOT_ASKED
    )
    term = parse("mean(check == each.answer)", MEMBERS)
    answers = [
        Quantity(np.array([0.0, 1.0]), np.array([OK, OK])),
        Quantity(np.array([1.0, np.nan]), np.array([OK, FAILED])),
        Quantity(np.array([np.nan, np.nan]), np.array([NOT_ASKED, NOT_ASKED])),
    ]
    elements = {("check", "answer"): [["yes", "no"], ["yes", "no"], ["", ""]]}
    rows = column_rows(2, {("check", "answer"): answers}, elements=elements)
    result = evaluate(term, rows)
    assert result.value[0] == 0.5
    assert result.code.tolist() == [OK, FAILED]
    assert formulas({"s": "mean(check == each.answer)"}, MEMBERS)[0].element_fields == {
        ("check", "answer")
    }


def test_scores_may_name_those_before_them() -> None:
    semantics, quality, overall = formulas(
        {
            "SC": "min(sc.*)",
            "PQ": "min(pq.*)",
            "overall": {"formula": "sqrt(SC * PQ)", "repeats": "before"},
        },
        MEMBERS,
    )
    assert overall.refs == semantics.refs | quality.refs
    assert overall.repeats == "before"
    with raises(RubricError, "unknown_factor", "score a", '"b"'):
        formulas({"a": "b + 1", "b": "success"}, MEMBERS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sqrt(min(sc.*) * min(pq.*))", "sqrt(min sc x min pq)"),
        ("if(asked(cons), .3 * cons, success)", "0.3 x cons if cons was asked, else success"),
        ("weights({success: .5, clean: .5})", "0.5 x success + 0.5 x clean"),
        ("full(sc)", "full marks in sc"),
        ("number(grade) ^ 2", "power(number of grade (5 for 5 - good, -2.5 for -2.5 (bad), 0 for 0), 2)"),
        ("success - (natural - clean)", "success - (natural - clean)"),
        ('mean(check == "yes")', 'mean(check = "yes")'),
        ('by(edit_type, {"add": success}, 0)', 'by edit_type: success for "add", 0 for others'),
    ],
)  # fmt: skip
def test_a_formula_is_said_in_words(text: str, words: str) -> None:
    assert Formula("s", text, parse(text, MEMBERS)).words == f"s = {words}"


@pytest.mark.parametrize(
    "text",
    [
        "", "success +", "__import__('os')", "success.real", "sc.success.real", "unknown", "sc", "sc.unknown", "sc.*",
        "check", 'check == "maybe"', 'success == "yes"', "[success]", "lambda: 1", "success ^", "exec(1)",
        "sqrt(1, 2)", "1 / 0", "abs(" * 40 + "1" + ")" * 40, "-" * 1_000 + "1", "1" * 2_001, "success # note", "'a'",
        "True", "None", "1j", "1e99", "success if clean", "weights({success: 0})", "weights({success: -1})", "{}",
        "f'{success}'", "success\x00", "full(success + 1)", "full(check)", "success is clean", "a := 1", "(yield)",
        "sc.* + pq.*", "mean()", "if(check, 1, 0)", "sqrt(success", "success; clean", "mean(*sc)", "mean(x=1)",
        'sc["success"]["x"]', "min(sc.*, key=1)", "print(success)", "by(edit_type, {})",
        "weights({**sc})", "\ud800", "1 if 1 else", 'item.edit_type', 'item.edit_type + 1', "share(1)",
        "arm.left == each.answer", "each.answer", "success == item.truth",
    ],
)  # fmt: skip
def test_whatever_is_not_the_language_is_refused(text: str) -> None:
    with pytest.raises(RubricError):
        parse(text, MEMBERS)


@pytest.mark.parametrize("name", ["min", "success", "1st", "a b", "", "_every_"])
def test_a_score_has_a_name_of_its_own(name: str) -> None:
    code = "name_of_a_factor" if name == "success" else "bad_name"
    with raises(RubricError, code, f'score "{name}"'):
        formulas({name: "1"}, MEMBERS)


def test_scores_that_name_each_other_stay_bounded() -> None:
    doubling = {"s0": "success"} | {
        f"s{n}": f"s{n - 1} + s{n - 1}" for n in range(1, 40)
    }
    with raises(RubricError, "too_complex", "1,000"):
        formulas(doubling, MEMBERS)


# against plain Python

NAMES = [("sc", "success"), ("pq", "natural"), ("pq", "clean"), ("cons", "score")]
Number = float | None
"""None: there is none."""


def _divide(a: float, b: float) -> Number:
    return a / b if b else None


BINARY: dict[str, Callable[[float, float], Number]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divide,
    "<": lambda a, b: float(a < b),
    "==": lambda a, b: float(a == b),
    ">=": lambda a, b: float(a >= b),
    "and": lambda a, b: float(bool(a and b)),
    "or": lambda a, b: float(bool(a or b)),
}
MANY: dict[str, Callable[[list[float]], Number]] = {
    "min": min,
    "max": max,
    "sum": lambda some: float(sum(some)),
    "mean": lambda some: sum(some) / len(some),
    "all": lambda some: float(all(some)),
    "any": lambda some: float(any(some)),
    "count": lambda some: float(len(some)),
    "geomean": lambda some: (
        None if min(some) < 0 else math.prod(some) ** (1 / len(some))
    ),
}

leaves = st.one_of(
    st.sampled_from(NAMES),
    st.sampled_from([0.0, 1.0, 2.5, 3.0]).map(lambda number: ("number", number)),
)


def _grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.tuples(st.just("binary"), st.sampled_from(sorted(BINARY)), inner, inner),
        st.tuples(
            st.just("many"),
            st.sampled_from(sorted(MANY)),
            st.lists(inner, min_size=1, max_size=3),
        ),
        st.tuples(st.just("if"), inner, inner, inner),
        st.tuples(st.just("sqrt"), inner),
    )


trees = st.recursive(leaves, _grow, max_leaves=8)


def written(tree: Any) -> str:
    match tree:
        case ("number", number):
            return repr(number)
        case ("binary", sign, a, b):
            return f"({written(a)} {sign} {written(b)})"
        case ("many", name, some):
            return f"{name}({', '.join(map(written, some))})"
        case ("if", test, yes, no):
            return f"if({written(test)}, {written(yes)}, {written(no)})"
        case ("sqrt", inner):
            return f"sqrt({written(inner)})"
        case (member, key):
            return f"{member}.{key}"
    raise AssertionError(tree)


def plain(tree: Any, row: dict[tuple[str, str], Number]) -> Number:
    match tree:
        case ("number", number):
            return float(number)
        case ("binary", sign, a, b):
            left = plain(a, row)
            right = plain(b, row)
            return None if left is None or right is None else BINARY[sign](left, right)
        case ("many", name, some):
            values = [plain(one, row) for one in some]
            return (
                None
                if None in values
                else MANY[name]([v for v in values if v is not None])
            )
        case ("if", test, yes, no):
            decided = plain(test, row)
            return None if decided is None else plain(yes if decided else no, row)
        case ("sqrt", inner):
            number = plain(inner, row)
            return None if number is None or number < 0 else math.sqrt(number)
    return row[tree]


rows_of_scores = st.lists(
    st.fixed_dictionaries(
        {name: st.one_of(st.none(), st.integers(1, 5).map(float)) for name in NAMES}
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=300, deadline=None)
@given(trees, rows_of_scores)
def test_formulas_agree_with_plain_python(
    tree: Any, table: list[dict[tuple[str, str], Number]]
) -> None:
    text = written(tree)
    assume("/ 0.0)" not in text)  # refused without any score
    term = parse(text, MEMBERS)
    cells = {
        name: [
            Quantity(
                np.array(
                    [math.nan if row[name] is None else row[name] for row in table]
                ),
                np.array([FAILED if row[name] is None else OK for row in table]),
            )
        ]
        for name in NAMES
    }
    result = evaluate(term, column_rows(len(table), cells))
    for row, number, code in zip(table, result.value, result.code, strict=True):
        expected = plain(tree, row)
        if expected is None:
            assert code != OK
            assert np.isnan(number)
        else:
            assert code == OK
            assert number == pytest.approx(expected, rel=1e-12, abs=1e-12)
            if term.ends:
                assert term.ends[0] - 1e-9 <= number <= term.ends[1] + 1e-9, text
