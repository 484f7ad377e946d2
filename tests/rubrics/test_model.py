"""What a rubric is: scales, factors and answers that hold together, and an identity made of what a judge reads."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from typing import Any

import pytest
from pydantic import TypeAdapter

from editjudge.rubrics import files, model
from editjudge.rubrics.contract import check
from editjudge.rubrics.importing import import_prompt
from editjudge.rubrics.lint import lint
from editjudge.rubrics.model import (
    ASKING,
    Anchor,
    AnswerFormat,
    Consistency,
    Factor,
    InputSettings,
    Rubric,
    Slot,
    Template,
)
from editjudge.rubrics.scale import Scale, WrittenNumber
from editjudge.rubrics.verdict import Verdict
from tests.faults import raises

PUBLISHED = """You see a picture before and after an edit: [input image] [edited image]
Instruction: {instruction}
Rate the edit on a scale from 1 to 5.
Answer with JSON: {"reasoning": "<text>", "score": <integer between 1-5>}
"""

SEVEN = Scale((1, 2, 3, 4, 5, 6, 7))

RUBRIC = Rubric(
    name="a",
    images=("input", "edited"),
    texts=("instruction",),
    factors=(
        Factor(
            "unity",
            Scale((0, 1, 2), {0: "none", 2: "all"}),
            title="Unity",
            definition="One piece.",
            examine=("the joins",),
            consider=("style",),
            excludes="craft",
            anchors=(Anchor((2,), ("it holds",)),),
        ),
    ),
    answer=AnswerFormat(
        id_key="image_id",
        envelope="results",
        words=(5, 9),
        reason="evidence",
        sections=("Notes", "JSON"),
    ),
    description="For people.",
    role="A judge.",
    task="Judge.",
    scope=("all of it",),
    allowed=("light",),
    forbidden=("shape",),
    ignored=("arrows",),
    steps=("look",),
    constraints=("be brief",),
    consistency=Consistency("Notes", ("fine",), ("bad",), "unity", 2, 0),
    example="{}",
    template=Template("See {instruction}", (Slot("{instruction}", "instruction"),)),
    members=(
        Rubric(
            name="b",
            images=("edited",),
            factors=(Factor("unity", SEVEN),),
            answer=AnswerFormat(),
        ),
    ),
)


def without(**changes: Any) -> Rubric:
    return dataclasses.replace(RUBRIC, **changes)


def factor_with(**changes: Any) -> Rubric:
    return without(factors=(dataclasses.replace(RUBRIC.factors[0], **changes),))


def answer_with(**changes: Any) -> Rubric:
    return without(answer=dataclasses.replace(RUBRIC.answer, **changes))


def consistency_with(**changes: Any) -> Rubric:
    assert RUBRIC.consistency
    return without(consistency=dataclasses.replace(RUBRIC.consistency, **changes))


def template_with(**changes: Any) -> Rubric:
    assert RUBRIC.template
    return without(template=dataclasses.replace(RUBRIC.template, **changes))


# --- scales ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((1, 2, 3, 4, 5, 6, 7), "an integer from 1 to 7"),
        ((0, 1, 2), "an integer from 0 to 2"),
        ((-1, 0, 1), "an integer from -1 to 1"),
        ((0, 1), "0 or 1"),
        ((5, 3, 1), "5, 3 or 1"),
        ((3, 2, 1), "3, 2 or 1"),
        ((1, 5), "1 or 5"),
    ],
)
def test_a_scale_says_itself_in_words(values: tuple[int, ...], words: str) -> None:
    assert Scale(values).words == words


@pytest.mark.parametrize(
    "value", [True, False, 1.0, "1", None, 0, 8, 6.5, [1], float("nan")]
)
def test_a_scale_accepts_no_other_type_and_no_other_number(value: object) -> None:
    assert not SEVEN.accepts(value)


def test_a_scale_accepts_its_values_and_knows_its_ends() -> None:
    scale = Scale((5, 3, 1))
    assert all(scale.accepts(value) for value in (5, 3, 1)) and not scale.accepts(4)
    assert (scale.worst, scale.best) == (1, 5)
    assert scale.json_schema() == {"type": "integer", "enum": [5, 3, 1]}


def test_a_decimal_scale_says_its_ends_its_steps_and_what_is_better() -> None:
    """Questions have these words, so that keys of answers depend on them."""
    scales = {
        "a number from 0 to 1": Scale(range=(0, 1)),
        "a number from 0 to 10 in steps of 0.5": Scale(range=(0, 10), step=0.5),
        "a number of 0 or more; lower is better": Scale(
            range=(0.0, None), direction="down"
        ),
        "a number of 2.5 or less": Scale(range=(None, 2.5)),
        "a number": Scale(range=(None, None)),
        "an integer from 0 to 2; lower is better": Scale((0, 1, 2), direction="down"),
    }
    assert [scale.words for scale in scales.values()] == list(scales)


@pytest.mark.parametrize(
    "value",
    [
        0,
        1,
        0.5,
        0.1,
        WrittenNumber("0.3"),
        WrittenNumber("3e-1"),
        WrittenNumber("-0"),
        1.0,
    ],
)
def test_a_decimal_scale_accepts_any_number_between_its_ends(value: object) -> None:
    assert Scale(range=(0, 1)).accepts(value)


@pytest.mark.parametrize(
    "value",
    [True, "0.5", None, -0.1, 1.01, float("nan"), float("inf"), WrittenNumber("1.0000000000000000000001"), [0.5],
     WrittenNumber("1e-999999999"), WrittenNumber("0." + "5" * 60)],
)  # fmt: skip
def test_a_decimal_scale_accepts_nothing_else(value: object) -> None:
    assert not Scale(range=(0, 1)).accepts(value)


@pytest.mark.parametrize(
    "value", [WrittenNumber("1e999"), float("inf"), WrittenNumber("9" * 400)]
)
def test_an_open_end_is_still_a_number(value: object) -> None:
    assert not Scale(range=(0, None)).accepts(value)


def test_a_step_is_kept_to_the_digit() -> None:
    tenths = Scale(range=(0, 1), step=0.1)
    assert all(tenths.accepts(WrittenNumber(text)) for text in ("0.3", "0.30", "7e-1"))
    assert all(tenths.accepts(value) for value in (0, 0.1, 0.2, 0.3, 0.7, 1))
    assert not any(
        map(tenths.accepts, (0.35, 0.1 + 0.2, WrittenNumber("0.30000000000000001")))
    )
    assert tenths.steps == (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)
    assert Scale(range=(1, 5), step=0.5).accepts(1.5) and not Scale(
        range=(1, 5), step=0.5
    ).accepts(1.25)


def test_a_direction_decides_which_end_is_the_best() -> None:
    distance = Scale(range=(0, 1), direction="down")
    likeness = Scale(range=(0, 1))
    assert (distance.worst, distance.best, distance.share(0.25)) == (1, 0, 0.75)
    assert (likeness.worst, likeness.best, likeness.share(0.25)) == (0, 1, 0.25)
    assert (
        Scale((1, 2, 3), direction="down").worst,
        Scale((1, 2, 3), direction="down").best,
    ) == (3, 1)


def test_an_open_end_is_neither_worst_nor_best() -> None:
    psnr = Scale(range=(0, None))
    assert (psnr.worst, psnr.best, psnr.share(30)) == (0, None, None)


def test_choices_are_words_without_a_best() -> None:
    scale = Scale(choices=("a", "b", "tie"))
    assert scale.words == '"a", "b" or "tie"'
    assert (scale.worst, scale.best, scale.steps) == (None, None, ())
    assert scale.json_schema() == {"type": "string", "enum": ["a", "b", "tie"]}
    assert not any(map(scale.accepts, ("a", 0, None)))


# --- what does not hold together ------------------------------------------------------------------------------


def test_a_scale_has_two_different_values_at_least() -> None:
    with raises(ValueError, "too_few_values"):
        Scale((1,))
    with raises(ValueError, "value_twice"):
        Scale((1, 2, 2))


@pytest.mark.parametrize(
    ("scale", "code"),
    [
        ({}, "not_one_kind"),
        ({"values": (1, 2), "range": (0, 1)}, "not_one_kind"),
        ({"range": (0, 1), "choices": ("a", "b")}, "not_one_kind"),
        ({"range": (1, 0)}, "range_reversed"),
        ({"range": (0, float("inf"))}, "infinite_range"),
        ({"range": (0, 1), "step": 0}, "bad_step"),
        ({"range": (0, 1), "step": 0.3}, "step_misses_end"),
        ({"values": (1, 2), "step": 1}, "step_without_range"),
        ({"choices": ("a",)}, "too_few_values"),
        ({"choices": ("a", "a")}, "value_twice"),
        ({"choices": ("a", "b"), "direction": "down"}, "direction_of_choices"),
    ],
)
def test_a_scale_is_of_one_kind_and_holds_together(
    scale: dict[str, Any], code: str
) -> None:
    with raises(ValueError, code):
        Scale(**scale)


def test_a_rubric_asks_for_scores_or_for_choices() -> None:
    with raises(ValueError, "scores_and_choices"):
        Rubric(
            "x",
            ("edited",),
            (Factor("a", SEVEN), Factor("b", Scale(choices=("a", "b")))),
            AnswerFormat(),
        )


def test_a_label_belongs_to_a_value_of_its_scale() -> None:
    with raises(ValueError, "off_the_scale", "labels", "[9]"):
        Scale((1, 2), {9: "splendid"})


def test_an_anchor_lies_on_the_scale() -> None:
    with raises(ValueError, "off_the_scale", "anchors", "[8]", "from 1 to 7"):
        Factor("a", SEVEN, anchors=(Anchor((7, 8), ("perfect",)),))


def test_a_rubric_has_factors_that_differ_and_a_picture() -> None:
    one = Factor("a", SEVEN)
    with raises(ValueError, "no_factors"):
        Rubric("x", ("edited",), (), AnswerFormat())
    with raises(ValueError, "factor_twice"):
        Rubric("x", ("edited",), (one, one), AnswerFormat())
    with raises(ValueError, "bad_images"):
        Rubric("x", (), (one,), AnswerFormat())


def test_a_consistency_rule_is_about_a_factor_of_the_rubric() -> None:
    with raises(ValueError, "unknown_factor", "'colour'"):
        consistency_with(factor="colour")


def test_a_list_of_scores_needs_a_key_to_stand_under() -> None:
    with raises(ValueError, "no_envelope"):
        AnswerFormat(form="list")


@pytest.mark.parametrize("words", [(30, 15), (-1, 5)])
def test_word_limits_are_least_and_most(words: tuple[int, int]) -> None:
    with raises(ValueError, "words_reversed"):
        AnswerFormat(words=words)


# --- identity -------------------------------------------------------------------------------------------------

FOR_PEOPLE: dict[str, Any] = {
    "name": "z",
    "description": "Other words.",
    "example": "[]",
}

READ_BY_A_JUDGE: dict[type, dict[str, Rubric]] = {
    Rubric: {
        "images": without(images=("edited", "input")),
        "factors": without(factors=(*RUBRIC.factors, Factor("more", SEVEN))),
        "answer": without(answer=AnswerFormat()),
        "texts": without(texts=()),
        "role": without(role=""),
        "task": without(task="Judge it."),
        "scope": without(scope=()),
        "allowed": without(allowed=("light", "")),
        "forbidden": without(forbidden=()),
        "ignored": without(ignored=("marks",)),
        "steps": without(steps=("look", "think")),
        "constraints": without(constraints=()),
        "consistency": without(consistency=None),
        "template": without(template=None),
        "members": without(members=()),
        "computed_by": without(computed_by="metrics"),
        "system": without(system="You judge pictures."),
        "layout": without(layout="published"),
        "inputs": without(inputs=(InputSettings("input", optional=True),)),
        "reason": without(
            reason="after", template=None, consistency=None, answer=AnswerFormat()
        ),
    },
    Factor: {
        "key": without(
            factors=(dataclasses.replace(RUBRIC.factors[0], key="union"),),
            consistency=None,
        ),
        "scale": factor_with(scale=Scale((2, 1, 0), {0: "none", 2: "all"})),
        "title": factor_with(title="unity"),
        "definition": factor_with(definition="One piece"),
        "examine": factor_with(examine=("the joins", "the rest")),
        "consider": factor_with(consider=()),
        "excludes": factor_with(excludes=""),
        "anchors": factor_with(anchors=()),
        "label": factor_with(label="Unity"),
        "heading": factor_with(heading="Unity"),
        "path": factor_with(path="unity.score"),
        "reason_path": factor_with(reason_path="unity.why"),
    },
    Scale: {
        "values": factor_with(scale=Scale((0, 1, 2, 3), {0: "none", 2: "all"})),
        "labels": factor_with(scale=Scale((0, 1, 2), {0: "none", 2: "ALL"})),
        "range": factor_with(scale=Scale(range=(0, 2))),
        "step": factor_with(scale=Scale(range=(0, 2), step=0.5)),
        "direction": factor_with(
            scale=Scale((0, 1, 2), {0: "none", 2: "all"}, direction="down")
        ),
        "abstain": factor_with(
            scale=Scale((0, 1, 2), {0: "none", 2: "all"}, abstain=("N/A",))
        ),
        "boolean": without(
            factors=(Factor("unity", Scale((0, 1), boolean=True)),), consistency=None
        ),
        "choices": without(
            factors=(Factor("unity", Scale(choices=("a", "b"))),),
            consistency=None,
        ),
    },
    Anchor: {
        "scores": factor_with(anchors=(Anchor((1, 2), ("it holds",)),)),
        "when": factor_with(anchors=(Anchor((2,), ("it holds ",)),)),
    },
    AnswerFormat: {
        "id_key": answer_with(id_key=None),
        "envelope": answer_with(envelope="result"),
        "form": answer_with(form="scores"),
        "score_key": answer_with(score_key="rating"),
        "reason_key": answer_with(reason_key="reason"),
        "texts": answer_with(texts=("summary",)),
        "others": without(
            answer=AnswerFormat(form="nested", others=("sure: number",)),
            consistency=None,
        ),
        "quoted": answer_with(quoted=True),
        "prose": without(
            answer=AnswerFormat(envelope="results", prose=True), consistency=None
        ),
        "words": answer_with(words=(5, 10)),
        "reason": answer_with(reason="why"),
        "sections": answer_with(sections=("JSON",)),
        "keys": answer_with(keys=("score", "justification")),
        "sends_schema": answer_with(sends_schema=True),
    },
    Consistency: {
        "section": consistency_with(section="JSON"),
        "passes": consistency_with(passes=("good",)),
        "fails": consistency_with(fails=()),
        "factor": without(
            consistency=None, factors=(Factor("unity", SEVEN), Factor("other", SEVEN))
        ),
        "pass_score": consistency_with(pass_score=1),
        "fail_score": consistency_with(fail_score=1),
    },
    Template: {
        "text": template_with(text="See  {instruction}"),
        "slots": template_with(slots=()),
        "braces": template_with(braces="format"),
        "adds_answer_format": template_with(adds_answer_format=True),
        "unmarked_images": template_with(unmarked_images="after"),
    },
    Slot: {
        "mark": template_with(slots=(Slot("{instruct}", "instruction"),)),
        "role": template_with(slots=(Slot("{instruction}", "referring_expression"),)),
        "keep": template_with(slots=(Slot("{instruction}", "instruction", keep=True),)),
        "given": template_with(
            slots=(Slot("{instruction}", "instruction", given="x"),)
        ),
        "missing": template_with(
            slots=(Slot("{instruction}", "instruction", missing="x"),)
        ),
    },
}


@pytest.mark.parametrize("part", READ_BY_A_JUDGE, ids=lambda part: part.__name__)
def test_every_field_is_known_to_count_or_not(part: type) -> None:
    fields = {field.name for field in dataclasses.fields(part)}
    assert fields - set(READ_BY_A_JUDGE[part]) == (
        {*FOR_PEOPLE, *ASKING} if part is Rubric else set()
    )


def test_of_which_edits_and_how_often_a_rubric_is_asked_does_not_change_the_hash() -> (
    None
):
    assert set(ASKING) == {"when", "for_each", "after", "samples"}
    assert without(when="edit_type == add", samples=3).hash == RUBRIC.hash


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(rubric, id=f"{part.__name__}.{name}")
        for part, fields in READ_BY_A_JUDGE.items()
        for name, rubric in fields.items()
    ],
)
def test_what_a_judge_reads_changes_the_hash(changed: Rubric) -> None:
    assert changed.hash != RUBRIC.hash


@pytest.mark.parametrize("name", FOR_PEOPLE)
def test_what_only_people_read_does_not_change_the_hash(name: str) -> None:
    assert without(**{name: FOR_PEOPLE[name]}).hash == RUBRIC.hash
    member = dataclasses.replace(RUBRIC.members[0], **{name: FOR_PEOPLE[name]})
    assert without(members=(member,)).hash == RUBRIC.hash


def test_the_order_of_labels_does_not_change_the_hash() -> None:
    assert (
        factor_with(scale=Scale((0, 1, 2), {2: "all", 0: "none"})).hash == RUBRIC.hash
    )


@pytest.mark.parametrize(
    ("name", "recorded"),
    [
        (
            "preservation",
            "25ee7b0699fffc39d1bc544fcf8733f91b239ee697a515cdf0dc1ed729d8af5b",
        ),
        ("quality", "518c41abd1bca1a6e5383a1b40acd984219a5f073a7f63e91f02fa729b9a0808"),
        (
            "fidelity",
            "56bdd26c2fa4bc2be8414cb59d1242d9c7895ed61503d8aac08942712c6c614d",
        ),
        (
            "reference",
            "a3da530188012975d276b2f010a4e05b771fba767089134e7863b8cc6af0c229",
        ),
        (
            "lighting",
            "d30f890ea00bf90fd9f8d88b80952558b05c3b6747d0e61c75f8ec25ea98e24b",
        ),
        (
            "compliance",
            "7b47e87e45e91dde5345440284cc160cd27073cd42c71188e8dc057f31ff8262",
        ),
        ("online", "edd41e518ecec382d57f996a7259098d0be4d7b15b4e51586644e59627369050"),
    ],
)
def test_the_rubrics_of_stores_that_exist_keep_their_hashes(
    name: str, recorded: str
) -> None:
    """A hash is part of every key: were it another, a store of 0.1 would ask everything again."""
    assert files.load_one(name).hash == recorded


def test_an_imported_rubric_keeps_its_hash() -> None:
    assert (
        RUBRIC.hash
        == "a47b8c514ddb2f98059f4fa993be7db5d3e8c9b06e81d9d0a7975ff8f3bba1a0"
    )
    imported = import_prompt(PUBLISHED, "mine").rubric
    assert (
        imported
        and imported.hash
        == "f7fb8bc960c0a9c4097afe7381ca9fd5bac55a38acb0051f78085c681de0fa29"
    )


def test_what_is_kept_of_a_rubric_reads_back_as_the_same() -> None:
    scale = Scale(range=(0, None), direction="down")
    rubric = Rubric(
        "x",
        ("edited",),
        (Factor("a", scale), Factor("b", SEVEN)),
        AnswerFormat(),
        computed_by="metrics",
    )
    text = json.dumps(rubric.content())
    content = json.loads(text)
    assert TypeAdapter(Rubric).validate_json(text, strict=True) == rubric
    assert content["factors"][1]["scale"] == {
        "values": [1, 2, 3, 4, 5, 6, 7],
        "labels": {},
    }


# --- contract -------------------------------------------------------------------------------------------------

LIKERT = [1, 2, 3, 4, 5, 6, 7]
ONLINE = {
    "preservation": [
        "unchanged_regions",
        "global_consistency",
        "identity_preservation",
    ],
    "quality": [
        "scale_realism",
        "spatial_relationship",
        "texture_and_detail",
        "image_quality",
        "color_and_lighting",
        "seamlessness",
    ],
    "fidelity": ["alignment", "completeness", "plausibility"],
}
TWELVE = [key for keys in ONLINE.values() for key in keys]


@pytest.mark.parametrize("name", ONLINE)
def test_the_online_rubrics_have_the_contract_of_the_table(name: str) -> None:
    rubric = files.load(name)
    assert rubric.contract() == {
        "name": name,
        "hash": rubric.hash,
        "images": ["input", "edited"],
        "texts": ["instruction"],
        "factors": [{"key": key, "values": LIKERT} for key in ONLINE[name]],
        "envelope": "online_factor_results",
        "justification_words": [15, 30],
        "sections": [],
    }
    assert rubric.answer.id_key == "image_id"


def test_the_reference_rubric_has_the_contract_of_the_table() -> None:
    rubric = files.load("reference")
    assert rubric.contract() == {
        "name": "reference",
        "hash": rubric.hash,
        "images": ["ground_truth", "edited"],
        "texts": ["instruction"],
        "factors": [{"key": key, "values": LIKERT} for key in TWELVE],
        "envelope": "offline_factor_results",
        "justification_words": [10, 25],
        "sections": [],
    }
    assert all(
        [anchor.scores for anchor in factor.anchors] == [(1,), (4,), (7,)]
        for factor in rubric.factors
    )


def test_the_lighting_rubric_has_the_contract_of_the_table() -> None:
    rubric = files.load("lighting")
    assert rubric.contract() == {
        "name": "lighting",
        "hash": rubric.hash,
        "images": ["input", "edited"],
        "texts": [],
        "factors": [{"key": "Contextual_Preservation", "values": [0, 1]}],
        "envelope": "",
        "justification_words": None,
        "sections": ["Difference Analysis", "CP Decision", "JSON"],
    }
    assert (rubric.answer.id_key, rubric.answer.reason_key) == (None, "reason")


def test_the_compliance_rubric_has_the_contract_of_the_table() -> None:
    rubric = files.load("compliance")
    assert rubric.contract() == {
        "name": "compliance",
        "hash": rubric.hash,
        "images": ["input", "edited"],
        "texts": ["instruction", "referring_expression"],
        "factors": [{"key": "effect_score", "values": [5, 3, 1]}],
        "envelope": "",
        "justification_words": None,
        "sections": [],
    }
    assert (rubric.answer.form, rubric.answer.texts) == ("scores", ("reasoning",))


def test_the_example_of_a_rubric_file_is_a_rubric_whose_answers_are_accepted() -> None:
    text = textwrap.dedent(str(model.__doc__).split("::\n\n", 1)[1])
    rubric = files.parse(text)
    assert lint(rubric) == []
    reply = {
        "results": {
            "sky_replaced": {
                "justification": "The sky is pink from edge to edge.",
                "score": 3,
            }
        }
    }
    verdict = check(rubric, json.dumps(reply))
    assert (
        isinstance(verdict, Verdict)
        and verdict.scores == {"sky_replaced": 3}
        and not verdict.violations
    )
