"""Rubric sets as files, and the conditions on which their rubrics are asked."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editjudge.edit import Edit
from editjudge.errors import RubricError
from editjudge.rubrics import sets
from editjudge.rubrics.evaluation import applies
from editjudge.rubrics.expression import parse_when
from editjudge.rubrics.files import load, load_one, load_set, parse_any, resolve
from editjudge.rubrics.prompt import ask
from editjudge.rubrics.sets import RubricSet, stages
from tests.faults import raises

SET = """
name: pair
rubrics:
  - use: fidelity
    when: edit_type in [add, remove]
  - name: natural
    system: You judge photographs.
    images: [edited]
    scale: {values: [0, 1, 2]}
    factors: [{key: light, definition: Light.}, {key: texture, definition: Texture.}]
    answer: {form: scores}
    samples: 2
  - name: verdict
    after: natural
    images: [edited]
    scale: {values: [0, 1]}
    factors: [{key: passes, definition: Whether it passes.}]
    answer: {form: scores}
score:
  overall: mean(fidelity.*) + min(natural.*)
"""


def parsed(text: str = SET) -> RubricSet:
    loaded = parse_any(text, "pair.yaml")
    assert isinstance(loaded, RubricSet)
    return loaded


def test_a_set_goes_where_the_name_of_a_rubric_goes(tmp_path: Path) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(SET)
    assert [rubric.name for rubric in resolve([str(path)])] == [
        "fidelity",
        "natural",
        "verdict",
    ]
    assert load(f"{path}#natural").name == "natural"
    assert load_one(f"{path}#natural").samples == 2
    with raises(RubricError, "is_a_set", "pair.yaml#fidelity"):
        load(str(path))
    with raises(RubricError, "unknown_rubric", "naturall", '"natural"'):
        load(f"{path}#naturall")


def test_the_example_of_a_set_is_a_set_with_a_score() -> None:
    example = parsed(textwrap.dedent(str(sets.__doc__).split("::\n\n", 1)[1]))
    assert [rubric.name for rubric in example.rubrics] == ["fidelity", "naturalness"]
    assert [formula.words for formula in example.formulas] == [
        "overall = sqrt(min fidelity x naturalness)"
    ]


def test_a_built_in_rubric_in_a_set_is_the_rubric_it_was() -> None:
    used = parsed().rubrics[0]
    assert used.when == "edit_type in [add, remove]"
    assert used.hash == load("fidelity").hash


def test_the_contract_has_the_members_and_the_names_of_the_scores() -> None:
    contract = parsed().contract()
    assert contract["scores"] == ["overall"]
    assert [member["name"] for member in contract["members"]] == [
        "fidelity",
        "natural",
        "verdict",
    ]
    assert contract["members"][1]["samples"] == 2
    assert contract["members"][2]["texts"] == ["earlier"]
    assert set(contract) == {"name", "hash", "members", "scores"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[add, remove]", "[add]"),
        ("samples: 2", "samples: 3"),
        ("after: natural", "after: fidelity"),
        ("You judge photographs.", "You judge pictures."),
        ("min(natural.*)", "max(natural.*)"),
        ("overall:", "total:"),
    ],
)
def test_all_that_a_set_says_changes_its_hash(old: str, new: str) -> None:
    assert parsed(SET.replace(old, new)).hash != parsed().hash
    assert (
        parsed(SET.replace("name: pair", "name: other\ndescription: words")).hash
        == parsed().hash
    )


@pytest.mark.parametrize(
    ("old", "new", "code", "named"),
    [
        (
            "score:",
            "scores:",
            "unexpected_keyword_argument",
            '"score"',
        ),
        (
            "use: fidelity",
            "use: fidelty",
            "not_a_member",
            "pair.yaml:4: use",
        ),
        (
            "use: fidelity",
            "use: ../fidelity.yaml",
            "not_a_member",
            "pair.yaml:4: use",
        ),
        (
            "in [add, remove]",
            "inside [add]",
            "invalid_formula",
            "'inside'",
        ),
        ("    when:", "    wen:", "unknown_key", '"wen"'),
        (
            "samples: 2",
            "samples: 0",
            "bad_samples",
            "pair.yaml:12: samples",
        ),
        (
            "samples: 2",
            "sample: 2",
            "unexpected_keyword_argument",
            '"samples"',
        ),
        (
            "after: natural",
            "after: nature",
            "after_a_later_rubric",
            '"nature"',
        ),
        ("name: verdict", "name: natural", "two_of_one_name", '"natural"'),
        ("min(natural.*)", "min(nature.*)", "unknown_rubric", "pair.yaml:20: "),
        (
            "  overall: mean(fidelity.*) + min(natural.*)",
            "  overall: 5",
            "not_a_formula",
            "overall",
        ),
        (
            "form: scores}\n    samples",
            "form: scors}\n    samples",
            "literal_error",
            "pair.yaml:11: answer.form",
        ),
    ],
)
def test_what_is_wrong_in_a_set_is_named_with_its_line(
    old: str, new: str, code: str, named: str
) -> None:
    with raises(RubricError, code, named):
        parsed(SET.replace(old, new, 1))


def test_a_set_uses_files_of_its_own_folder(tmp_path: Path) -> None:
    rubric = "name: own\nimages: [edited]\nscale: {values: [0, 1]}\nfactors: [{key: a}]\nanswer: {}\n"
    (tmp_path / "own.yaml").write_text(rubric)
    (tmp_path / "set.yaml").write_text(
        "name: s\nrubrics:\n  - own.yaml\n  - {use: own.yaml, name: again, samples: 2}\n"
    )
    rubric_set = load_set(str(tmp_path / "set.yaml"))
    assert rubric_set
    assert [(one.name, one.samples) for one in rubric_set.rubrics] == [
        ("own", 1),
        ("again", 2),
    ]


def test_a_rubric_alone_may_have_a_condition_and_nothing_before_it() -> None:
    text = "name: own\nimages: [edited]\nscale: {values: [0, 1]}\nfactors: [{key: a}]\nanswer: {}\n"
    rubric = parse_any(f"{text}when: mask is given\n")
    assert not isinstance(rubric, RubricSet)
    assert rubric.when == "mask is given"
    with raises(RubricError, "after_outside_a_set", "rubric:6"):
        parse_any(f"{text}after: other\n")
    with raises(RubricError, "element_not_shown"):
        parse_any(f"{text}for_each: checks\n")
    with raises(RubricError, "no_for_each"):
        parse_any(f"{text}texts: [each.question]\n")


def test_what_is_asked_after_another_comes_in_a_later_stage() -> None:
    text = SET.replace("score:", "  - {use: quality, after: verdict}\nscore:")
    assert [[r.name for r in some] for some in stages(parsed(text).rubrics)] == [
        ["fidelity", "natural"],
        ["verdict"],
        ["quality"],
    ]


def test_a_system_message_goes_before_the_question_and_into_the_hash() -> None:
    natural = parsed().rubrics[1]
    question = ask(natural, Edit("e"), {})
    assert question.system == "You judge photographs."
    assert str(question).startswith("You judge photographs.\n\n")
    assert (
        parsed(SET.replace("    system: You judge photographs.\n", "")).rubrics[1].hash
        != natural.hash
    )


# --- conditions -----------------------------------------------------------------------------------------------

EDIT = Edit(
    "e",
    input=Path("a.png"),
    instruction="Do it.",
    edit_type="add",
    metadata={"scene": {"light": "low key"}, "turn": 2, "checks": [], "hint": ""},
)


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("edit_type in [add, remove]", True),
        ("edit_type in [remove]", False),
        ("edit_type not in [remove]", True),
        ("edit_type == add", True),
        ("edit_type == Add", False),
        ("edit_type != add", False),
        ('scene.light == "low key"', True),
        ("scene.light == 'low key' and turn == 2", True),
        ("input is given", True),
        ("edited is given", False),
        ("edited is not given", True),
        ("checks is given or hint is given", False),
        ("colour == red", False),
        ("colour != red", True),
        ("colour is given", False),
        ("not colour is given", True),
        ("not (edit_type == add and turn == 3)", True),
        ("edit_type == remove and turn == 3 or turn == 2", True),
        ("edit_type == remove and (turn == 3 or turn == 2)", False),
        ("", True),
    ],
)
def test_a_condition_holds_or_not(when: str, expected: bool) -> None:
    assert applies(when, EDIT) is expected


@pytest.mark.parametrize(
    "when",
    [
        "edit_type",
        "edit_type in add",
        "edit_type in []",
        "edit_type in [add",
        "edit_type = add",
        "edit_type == add extra",
        "and",
        "not",
        "edit_type is",
        "edit_type is add",
        "(edit_type == add",
        "5 == 5",
        "__import__('os')",
        "edit_type == add; turn == 2",
        "(" * 500,
        "not " * 500 + "turn == 2",
        "x" * 3_000,
    ],
)
def test_what_is_no_condition_is_refused(when: str) -> None:
    with pytest.raises(ValueError, match="when"):
        parse_when(when)


@given(st.text(alphabet="abt_.[](),=! \"'notandriginve", max_size=60))
def test_any_text_is_a_condition_or_a_value_error(text: str) -> None:
    try:
        parse_when(text)
    except ValueError:
        return
    assert applies(text, EDIT) in (True, False)


@st.composite
def _conditions(draw: Any, depth: int = 3) -> tuple[str, bool]:
    if depth == 0 or draw(st.booleans()):
        value = draw(st.sampled_from(["add", "remove"]))
        sign = draw(st.sampled_from(["==", "!="]))
        return f"edit_type {sign} {value}", (value == "add") is (sign == "==")
    (left, a) = draw(_conditions(depth - 1))
    (right, b) = draw(_conditions(depth - 1))
    match draw(st.sampled_from(["and", "or", "not"])):
        case "and":
            return f"({left}) and ({right})", a and b
        case "or":
            return f"({left}) or ({right})", a or b
    return f"not ({left})", not a


@given(_conditions())
def test_a_condition_means_what_logic_says(case: tuple[str, bool]) -> None:
    assert applies(case[0], EDIT) is case[1]
