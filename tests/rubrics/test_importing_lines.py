"""Prompts that dictate lines, decimals or inputs of their own: read off where they say it, asked for where not."""

from __future__ import annotations

from editjudge.errors import RubricError
from editjudge.rubrics.importing import Hints, import_prompt
from editjudge.rubrics.scale import Scale
from tests.faults import raises

LINES = """Grade the change that {instruction} asks for. Before: {input_image} After: {edited_image}

Example Response Format:
Reasoning: a few words on what you saw.
Deed: A number from 1 to 5.
Light & Shadow: A number from 1 to 5.
the wish was as above.
"""


def options_asked_for(text: str, hints: Hints | None = None) -> dict[str, str]:
    return {ask.about: ask.option for ask in import_prompt(text, "x", hints).asks}


def test_lines_that_are_shown_are_the_answer_and_no_second_form_is_added() -> None:
    rubric = import_prompt(LINES, "x", Hints(no_words=True)).rubric
    assert rubric
    assert rubric.answer.form == "lines"
    assert rubric.answer.texts == ("Reasoning",)
    assert [(factor.key, factor.scale.values) for factor in rubric.factors] == [
        ("Deed", (1, 2, 3, 4, 5)),
        ("Light & Shadow", (1, 2, 3, 4, 5)),
    ]
    assert rubric.template
    assert not rubric.template.adds_answer_format


def test_a_bold_line_with_a_range_or_an_x() -> None:
    text = "See {edited_image}. Conclude with the score, formatted as:\n\n**Final Score:** **1-5**\n"
    rubric = import_prompt(text, "x").rubric
    assert rubric
    assert [(factor.key, factor.scale.values) for factor in rubric.factors] == [
        ("Final Score", (1, 2, 3, 4, 5))
    ]
    open_scale = text.replace("**1-5**", "**X**")
    assert "scale" in options_asked_for(open_scale)
    assert import_prompt(open_scale, "x", Hints(scale=(0, 1))).rubric


def test_a_line_that_may_be_either_is_asked_about() -> None:
    text = LINES.replace(
        "Light & Shadow: A number from 1 to 5.", "Light & Shadow: good or bad"
    )
    assert "--line" in options_asked_for(text, Hints(no_words=True))["answer"]
    assert import_prompt(
        text, "x", Hints(lines=("Deed", "Light & Shadow"), scale=(1, 2), no_words=True)
    ).rubric
    with raises(RubricError, "unknown_line", "Dead"):
        import_prompt(text, "x", Hints(lines=("Dead",)))


def test_a_dictated_form_that_is_not_understood_gets_no_second_one_unasked() -> None:
    text = "Score {edited_image} from 0 to 5. Response format (only the number): 0-5"
    hints = Hints(factors=("score",), scale=(0, 1, 2, 3, 4, 5))
    assert "--add-format" in options_asked_for(text, hints)["answer"]
    rubric = import_prompt(
        text, "x", Hints(factors=("score",), scale=(0, 1), add_format=True)
    ).rubric
    assert rubric
    assert rubric.template
    assert rubric.template.adds_answer_format


def test_inputs_may_be_columns_of_the_manifest() -> None:
    text = 'Compare {refs} with {out}. It should be: {wish}. {"grade": <1-5>, "why": "..."}'
    hints = Hints(
        images=("references", "edited"),
        slots={"refs": "references", "out": "edited", "wish": "explanation"},
    )
    rubric = import_prompt(text, "x", hints).rubric
    assert rubric
    assert rubric.images == ("references", "edited")
    assert rubric.texts == ("explanation",)
    with raises(RubricError, "unknown_input", "edited"):
        import_prompt(text, "x", Hints(images=("editd",)))


def test_decimals_are_never_taken_for_integers() -> None:
    text = 'See {edited_image}. Score 1: good. Score 0.5: half. Score 0: bad. {"grade": <0 or 1>, "why": "..."}'
    assert "scale" in options_asked_for(text)
    rubric = import_prompt(text, "x", Hints(scale=Scale(range=(0, 1), step=0.5))).rubric
    assert rubric
    assert rubric.factors[0].scale.steps == (0, 0.5, 1)


HEADED = """Grade {edited_image}. Output format:
1. Deed:
## Score: [ a number ]
2. Light:
## Score: [ a number ]
"""


def test_a_label_below_several_headings_is_never_one_score() -> None:
    hints = Hints(lines=("Score",), scale=(1, 2, 3))
    assert options_asked_for(HEADED, hints)["answer"].startswith("--add-format")
    assert import_prompt(HEADED.partition("2.")[0], "x", hints).rubric


def test_lines_that_give_each_score_by_way_of_example_are_one_line() -> None:
    text = "Grade {edited_image}. Output format: one line, either\n\nScore: 0\n\nor\n\nScore: 1\n"
    rubric = import_prompt(text, "x", Hints(lines=("Score",), scale=(0, 1))).rubric
    assert rubric
    assert [factor.key for factor in rubric.factors] == ["Score"]


def test_lines_below_other_words_about_a_form_get_no_second_form_unasked() -> None:
    text = "Grade {edited_image} from 1 to 5. Use the format below:\n\nDeed Score (1-5): X\nLight Score (1-5): Y\n"
    assert options_asked_for(text, Hints(factors=("deed", "light"), scale=(1, 2, 3)))[
        "answer"
    ].startswith("--line")
