"""What can be wrong with a rubric that still loads: each rule where it speaks and where it keeps silent."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from editjudge.rubrics import files
from editjudge.rubrics.lint import LintFinding, lint
from editjudge.rubrics.model import (
    Anchor,
    AnswerFormat,
    Factor,
    Rubric,
    Slot,
    Template,
)
from editjudge.rubrics.scale import Scale

FACTOR = Factor(
    "unity",
    Scale((1, 2, 3, 4, 5), {1: "none"}),
    definition="Whether it is one.",
    anchors=(Anchor((5,), ("It is.",)), Anchor((1,), ("It is not.",))),
)
CLEAN = Rubric(
    name="mine",
    images=("input", "edited"),
    texts=("instruction",),
    factors=(FACTOR,),
    answer=AnswerFormat(envelope="results", words=(5, 20)),
    role="You judge.",
    task="Score from 1 to 5.",
    steps=("Write 5 to 20 words.",),
)
PUBLISHED = dataclasses.replace(
    CLEAN,
    role="",
    task="",
    steps=(),
    factors=(Factor("unity", Scale((1, 2, 3, 4, 5))),),
    template=Template(
        "See {instruction}. Score from 1 to 5.", (Slot("{instruction}", "instruction"),)
    ),
)


def findings(rubric: Rubric, **changes: Any) -> list[tuple[str, str]]:
    return [
        (one.code, one.where) for one in lint(dataclasses.replace(rubric, **changes))
    ]


def with_factor(**changes: Any) -> dict[str, Any]:
    return {"factors": (dataclasses.replace(FACTOR, **changes),)}


def template(text: str, *slots: Slot, braces: Any = "literal") -> dict[str, Any]:
    return {"template": Template(text, slots, braces=braces)}


@pytest.mark.parametrize(
    "name", [*files.names(), *files.SETS, *files.PAIRWISE, *files.COMPUTED]
)
def test_the_builtins_are_clean(name: str) -> None:
    assert lint(files.load_one(name)) == []


def test_a_clean_rubric_is_clean() -> None:
    assert lint(CLEAN) == []
    assert lint(PUBLISHED) == []


# --- scale_contradicts ----------------------------------------------------------------------------------------

PLACES: dict[str, tuple[dict[str, Any], str]] = {
    "role": ({"role": "Score from 1 to 7."}, "role"),
    "task": ({"task": "Score between 0 and 10."}, "task"),
    "scope": ({"scope": ("fine", "Rate from 1 to 7.")}, "scope.1"),
    "allowed": ({"allowed": ("Rate from 1 to 7.",)}, "allowed.0"),
    "forbidden": ({"forbidden": ("Rate from 1 to 7.",)}, "forbidden.0"),
    "ignored": ({"ignored": ("Rate from 1 to 7.",)}, "ignored.0"),
    "steps": ({"steps": ("Settle on a score from 1 to 7.",)}, "steps.0"),
    "constraints": (
        {"constraints": ("Every score is an integer from 1 to 7.",)},
        "constraints.0",
    ),
    "title": (with_factor(title="Unity, a score from 1 to 7"), "factors.unity.title"),
    "definition": (
        with_factor(definition="Score from 1 to 7."),
        "factors.unity.definition",
    ),
    "excludes": (with_factor(excludes="Scores from 6 to 7."), "factors.unity.excludes"),
    "examine": (with_factor(examine=("Rate from 1 to 7.",)), "factors.unity.examine.0"),
    "consider": (
        with_factor(consider=("Rate from 1 to 7.",)),
        "factors.unity.consider.0",
    ),
    "anchors": (
        with_factor(anchors=(*FACTOR.anchors, Anchor((5,), ("Score from 6 to 7.",)))),
        "factors.unity.anchors.2",
    ),
    "labels": (
        with_factor(scale=Scale((1, 2, 3, 4, 5), {1: "score from 1 to 7"})),
        "factors.unity.scale.labels",
    ),
    "answer.reason": (
        {"answer": AnswerFormat(words=(5, 20), reason="a score from 1 to 7")},
        "answer.reason",
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_range_off_the_scale_is_found_wherever_a_judge_reads_it(place: str) -> None:
    changes, where = PLACES[place]
    assert findings(CLEAN, **changes) == [("scale_contradicts", where)]


def test_a_range_off_the_scale_is_found_in_a_published_text() -> None:
    slot = Slot("{instruction}", "instruction")
    changes = template("See {instruction}. Score from 1 to 7.", slot)
    assert findings(PUBLISHED, **changes) == [("scale_contradicts", "template.text")]


@pytest.mark.parametrize(
    "text",
    [
        "Score from 1 to 5.",
        "Scores from 4 to 5 in good cases.",
        "Score in between 6 and 7 sentences.",
        "Score 9.",
    ],
)
def test_a_range_on_the_scale_and_a_range_of_something_else_are_no_contradiction(
    text: str,
) -> None:
    assert findings(CLEAN, task=text) == []


def test_a_range_that_fits_one_of_several_scales_is_no_contradiction_unless_it_is_said_of_another() -> (
    None
):
    wide = dataclasses.replace(FACTOR, key="size", scale=Scale(tuple(range(11))))
    both = (FACTOR, wide)
    assert findings(CLEAN, factors=both, task="Score size from 0 to 10.") == []
    narrow = dataclasses.replace(FACTOR, definition="Score from 0 to 10.")
    assert findings(CLEAN, factors=(narrow, wide)) == [
        ("scale_contradicts", "factors.unity.definition")
    ]


def test_a_contradiction_says_what_was_found_and_what_the_scale_is() -> None:
    (finding,) = lint(dataclasses.replace(CLEAN, task="Score from 1 to 7."))
    assert finding == LintFinding(
        "scale_contradicts",
        "task",
        "the text says 1 to 7, the scale is an integer from 1 to 5",
    )


# --- words_contradict -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["Write 15-30 words.", "Write at most 30 words.", "Keep it to 5 to 19 words."],
)
def test_another_number_of_words_is_a_contradiction(text: str) -> None:
    assert findings(CLEAN, steps=(text,)) == [("words_contradict", "steps.0")]


def test_the_same_number_of_words_or_a_rubric_without_limits_is_none() -> None:
    assert findings(CLEAN, steps=("Write between 5 and 20 words.",)) == []
    assert findings(CLEAN, steps=("Write 15-30 words.",), answer=AnswerFormat()) == []


# --- no_anchors, no_definition --------------------------------------------------------------------------------


def test_a_factor_that_says_too_little_is_found() -> None:
    assert findings(CLEAN, **with_factor(anchors=())) == [
        ("no_anchors", "factors.unity")
    ]
    assert findings(CLEAN, **with_factor(definition="")) == [
        ("no_definition", "factors.unity")
    ]


def test_a_published_text_describes_its_factors_itself() -> None:
    assert not PUBLISHED.factors[0].definition
    assert findings(PUBLISHED) == []


# --- unfilled_placeholder -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mark", ["{instruction}", "{{instruction}}", "{{ style }}", "${style}"]
)
def test_a_placeholder_in_a_rubric_of_ours_is_filled_by_nobody(mark: str) -> None:
    assert findings(CLEAN, task=f"Do {mark}.") == [("unfilled_placeholder", "task")]


@pytest.mark.parametrize(
    "text", ["Use { and }.", "Reply {}.", 'Reply {"a": 1}.', "{a b}"]
)
def test_braces_that_hold_no_name_are_no_placeholder(text: str) -> None:
    assert findings(CLEAN, task=text) == []


SLOT = Slot("{instruction}", "instruction")
UNFILLED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no slot for a name": (template("{instruction} {style}", SLOT), ["template.text"]),
    "no slot for a name of str.format": (
        template("{instruction} {style} {{}}", SLOT, braces="format"),
        ["template.text"],
    ),
    "a name that str.format leaves": (
        template("{instruction} {{style}}", SLOT, braces="format"),
        ["template.text"],
    ),
    "a role that is not shown": (
        template("{instruction} {x}", SLOT, Slot("{x}", "ground_truth")),
        ["template.slots"],
    ),
    "a text that is not shown": (
        template("{instruction} {x}", SLOT, Slot("{x}", "referring_expression")),
        ["template.slots"],
    ),
    "a mark that does not occur": (
        template("{instruction}", SLOT, Slot("[input image]", "input")),
        ["template.slots"],
    ),
    "a heading inside a line": (
        template(
            "{instruction}, see Edited Image: below",
            SLOT,
            Slot("Edited Image:", "edited", keep=True),
        ),
        ["template.slots"],
    ),
}


@pytest.mark.parametrize("case", UNFILLED.values(), ids=UNFILLED)
def test_a_place_that_no_input_fills_is_found(
    case: tuple[dict[str, Any], list[str]],
) -> None:
    changes, where = case
    assert findings(PUBLISHED, **changes) == [
        ("unfilled_placeholder", place) for place in where
    ]


FILLED: dict[str, dict[str, Any]] = {
    "a name": template("{instruction}", SLOT),
    "a name of str.format": template(
        '{{{instruction}}} {{"a": 1}}', SLOT, braces="format"
    ),
    "a name of Jinja": template(
        "{{ instruction }}", Slot("{{ instruction }}", "instruction")
    ),
    "brackets": template(
        "[input image] {instruction}", SLOT, Slot("[input image]", "input")
    ),
    "a heading": template(
        "{instruction}\n Edited Image: \n",
        SLOT,
        Slot("Edited Image:", "edited", keep=True),
    ),
    "an unescaped example": template('{instruction} {"a": {"b": 1}}', SLOT),
}


@pytest.mark.parametrize("changes", FILLED.values(), ids=FILLED)
def test_a_place_that_an_input_fills_is_fine(changes: dict[str, Any]) -> None:
    assert findings(PUBLISHED, **changes) == []


# --- both_allowed_and_forbidden -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["allowed", "ignored"])
def test_a_difference_that_is_both_allowed_and_forbidden_is_found(kind: str) -> None:
    changes = {
        kind: ("fine", "The arrows in the image are removed."),
        "forbidden": ("Removing the arrows in an image",),
    }
    (finding,) = lint(dataclasses.replace(CLEAN, **changes))  # type: ignore[arg-type]
    assert (finding.code, finding.where) == ("both_allowed_and_forbidden", f"{kind}.1")
    assert "Removing the arrows" in finding.message


def test_differences_that_share_a_word_are_not_the_same() -> None:
    changes = {
        "allowed": ("A shadow moved.",),
        "forbidden": ("An object moved.", ""),
        "ignored": ("",),
    }
    assert findings(CLEAN, **changes) == []


# --- example_refused ------------------------------------------------------------------------------------------

GOOD = '{"results": {"unity": {"justification": "The roof and the wall are one", "score": 4}}}'


def test_an_example_that_the_contract_refuses_is_found_with_its_reason() -> None:
    (finding,) = lint(dataclasses.replace(CLEAN, example=GOOD.replace("4", "9")))
    assert (finding.code, finding.where) == ("example_refused", "example")
    assert (
        finding.message.startswith("score_out_of_scale: ")
        and '"unity"' in finding.message
    )


def test_an_example_that_breaks_a_rule_is_found_as_well() -> None:
    (finding,) = lint(
        dataclasses.replace(
            CLEAN, example=GOOD.replace("The roof and the wall are one", "Too short")
        )
    )
    assert finding.message.startswith("justification_too_short: ")
    (finding,) = lint(dataclasses.replace(CLEAN, example=f"Here it is: {GOOD}"))
    assert finding.message.startswith("prose: ")


def test_an_example_that_is_accepted_is_fine() -> None:
    assert findings(CLEAN, example=GOOD) == []


def test_everything_is_found_in_one_go() -> None:
    faults = dataclasses.replace(
        CLEAN,
        task="Score {x} from 1 to 7 in 9-10 words.",
        example="{}",
        factors=(Factor("unity", Scale((1, 2, 3, 4, 5))),),
    )
    assert [finding.code for finding in lint(faults)] == [
        "scale_contradicts",
        "words_contradict",
        "no_anchors",
        "no_definition",
        "unfilled_placeholder",
        "example_refused",
    ]
