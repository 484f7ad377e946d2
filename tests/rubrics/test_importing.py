"""Published prompts as rubrics: the given ones without a question, strangers' with the right one, none by a guess."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from editjudge.edit import Edit
from editjudge.errors import RubricError
from editjudge.rubrics import example_json as examples
from editjudge.rubrics import files
from editjudge.rubrics.answer import answer_schema, answer_shape, envelope
from editjudge.rubrics.contract import check
from editjudge.rubrics.example_json import values_of
from editjudge.rubrics.importing import (
    Hints,
    Imported,
    import_prompt,
    ranges_in,
    word_limits_in,
)
from editjudge.rubrics.lint import lint
from editjudge.rubrics.model import LAYOUTS, Rubric
from editjudge.rubrics.prompt import ImagePart, TextPart, ask
from editjudge.rubrics.scale import Scale
from editjudge.rubrics.verdict import Failure, Verdict
from tests.faults import raises
from tests.rubrics.replies import headings, reason

PROMPTS = Path(__file__).parents[3] / "shared" / "prompts"
GIVEN = ["preservation", "fidelity", "reference", "lighting", "compliance"]
given_prompts = pytest.mark.skipif(
    not PROMPTS.is_dir(), reason="the published prompts are not beside the repository"
)

EDIT = Edit(
    "7",
    instruction="Paint the gate green.",
    referring_expression="the gate on the left",
)
DIGESTS = {"input": "d1", "edited": "d2", "ground_truth": "d3"}


def done(result: Imported) -> Rubric:
    assert result.rubric, [str(one) for one in result.asks]
    assert not result.asks
    return result.rubric


def abouts(result: Imported) -> list[str]:
    assert result.rubric is None
    return [one.about for one in result.asks]


def reply(rubric: Rubric, identifier: str | None) -> str:
    """An answer as the imported prompt asks for it, with every factor at its best."""
    form = rubric.answer
    text = reason(rubric)
    inner: Any = {factor.key: factor.scale.best for factor in rubric.factors}
    if form.form == "entries":
        because = {form.reason_key: text} if form.reason_key else {}
        inner = {
            key: {**because, form.score_key: score} for key, score in inner.items()
        }
    elif form.form == "list":
        inner = list(inner.values())
    top: dict[str, Any] = {form.id_key: identifier} if form.id_key else {}
    top |= dict.fromkeys(form.texts, text)
    return headings(rubric) + json.dumps(
        top | ({form.envelope: inner} if form.envelope else inner)
    )


# --- the given prompts ----------------------------------------------------------------------------------------


@given_prompts
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("name", GIVEN)
def test_a_given_prompt_has_the_contract_of_its_builtin_sibling_without_a_question(
    name: str, newline: str
) -> None:
    text = (PROMPTS / f"{name}.txt").read_bytes().decode().replace("\n", newline)
    rubric = done(import_prompt(text, "mine"))
    sibling = files.load(name)
    assert rubric.contract() == {
        **sibling.contract(),
        "name": "mine",
        "hash": rubric.hash,
    }
    for form in ("id_key", "form", "texts", "sections", "words"):
        assert getattr(rubric.answer, form) == getattr(sibling.answer, form)
    if rubric.answer.form == "entries":
        assert (rubric.answer.score_key, rubric.answer.reason_key) == (
            sibling.answer.score_key,
            sibling.answer.reason_key,
        )
    assert rubric.consistency == sibling.consistency


@given_prompts
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("name", GIVEN)
def test_a_given_prompt_is_kept_byte_for_byte(
    tmp_path: Path, name: str, newline: str
) -> None:
    text = (PROMPTS / f"{name}.txt").read_bytes().decode().replace("\n", newline)
    rubric = done(import_prompt(text, "mine"))
    path = tmp_path / "mine.yaml"
    path.write_text(files.dump(rubric), "utf-8", newline="")
    again = files.load(str(path))
    assert again == rubric
    assert again.template and again.template.text == text
    assert lint(again) == []


@given_prompts
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", GIVEN)
def test_an_answer_to_the_builtin_sibling_is_an_answer_to_a_given_prompt(
    name: str, layout: Any
) -> None:
    rubric = done(import_prompt((PROMPTS / f"{name}.txt").read_text("utf-8"), "mine"))
    question = ask(rubric, EDIT, DIGESTS, layout)
    assert check(
        rubric, reply(rubric, question.identifier), identifier=question.identifier
    ) == check(
        files.load(name),
        reply(files.load(name), question.identifier),
        identifier=question.identifier,
    )
    assert isinstance(check(rubric, files.load(name).example), Verdict)


# --- strangers' prompts ---------------------------------------------------------------------------------------


FIVE = tuple(range(1, 6))
TEN = tuple(range(11))
INPUTS = "Before: [input image]\nAfter: [edited image]\nRequest: {instruction}\n"


@dataclass(frozen=True)
class Stranger:
    """A prompt in a shape that people publish, what has to be asked about it, and what then comes out."""

    text: str
    hints: Hints
    scores: dict[str, tuple[int, ...]]
    asks: tuple[str, ...] = ()
    images: tuple[str, ...] = ("input", "edited")
    texts: tuple[str, ...] = ("instruction",)
    envelope: str = ""
    form: str = "scores"
    keys: tuple[str, str] = ("", "")
    free: tuple[str, ...] = ()
    words: tuple[int, int] | None = None
    sections: tuple[str, ...] = ()


OUR_FORM = {
    "envelope": "factor_results",
    "form": "entries",
    "keys": ("score", "justification"),
}
"""Of a prompt that shows no answer which can be held: a form of ours is added."""


def stranger_of(case: dict[str, Any]) -> Stranger:
    """A case of strangers.yaml, where scores from 1 to 5 are written 1-5."""
    text = case.pop("text", None) or INPUTS + case.pop("below_inputs")
    hints = case.pop("hints", {})
    if case.pop("our_form", False):
        case = OUR_FORM | case
    return Stranger(text, Hints(**read_spans(hints)), **read_spans(case))


def read_spans(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: read_spans(item) for key, item in value.items()}
    if isinstance(value, str) and re.fullmatch(r"\d+-\d+", value):
        low, high = map(int, value.split("-"))
        return tuple(range(low, high + 1))
    return tuple(value) if isinstance(value, list) else value


CASES: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("strangers.yaml").read_text("utf-8")
)
STRANGERS = {name: stranger_of(case) for name, case in CASES.items()}

every_stranger = pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS)

OPTIONS: dict[str, str | tuple[str, ...]] = {
    "images": "--image",
    "texts": "--text",
    "factors": "--factor",
    "scale": "--scale",
    "words": "--words",
    "answer": ("--example", "--line"),
}


@every_stranger
def test_what_a_stranger_does_not_say_is_asked_for_by_name_and_option(
    stranger: Stranger,
) -> None:
    result = import_prompt(stranger.text, "mine")
    assert tuple(one.about for one in result.asks) == stranger.asks
    assert (result.rubric is None) == bool(stranger.asks)
    for one in result.asks:
        assert one.option.startswith(OPTIONS.get(one.about, "--slot"))
        assert (
            one.about in str(one) and one.reason in str(one) and one.option in str(one)
        )


@every_stranger
def test_with_what_was_asked_for_the_contract_is_the_right_one_and_a_reply_that_keeps_to_it_is_accepted(
    stranger: Stranger,
) -> None:
    rubric = done(import_prompt(stranger.text, "mine", stranger.hints))
    assert rubric.contract() == {
        "name": "mine",
        "hash": rubric.hash,
        "images": list(stranger.images),
        "texts": list(stranger.texts),
        "factors": [
            {"key": key, "values": list(values)}
            for key, values in stranger.scores.items()
        ],
        "envelope": stranger.envelope,
        "justification_words": list(stranger.words) if stranger.words else None,
        "sections": list(stranger.sections),
    }
    answer = rubric.answer
    assert (answer.form, answer.score_key, answer.reason_key) == (
        stranger.form,
        *stranger.keys,
    )
    assert answer.texts == stranger.free
    rubric = files.parse(files.dump(rubric))
    assert rubric.template and rubric.template.text == stranger.text
    assert rubric.template.adds_answer_format == (stranger.envelope == "factor_results")
    for layout in LAYOUTS:
        question = ask(rubric, EDIT, DIGESTS, layout)
        assert [
            part.role for part in question.parts if isinstance(part, ImagePart)
        ] == list(stranger.images)
        text = "".join(
            part.text for part in question.parts if isinstance(part, TextPart)
        )
        assert (EDIT.instruction in text) == ("instruction" in stranger.texts)
        assert ('"factor_results": {' in text) == rubric.template.adds_answer_format
        outcome = check(
            rubric, reply(rubric, question.identifier), identifier=question.identifier
        )
        assert isinstance(outcome, Verdict), outcome
        assert outcome.scores == {
            factor.key: factor.scale.best for factor in rubric.factors
        }
        assert isinstance(check(rubric, "{}"), Failure)


NESTED: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "scores at two levels": (
        '{"parts": {"fit": <1-5>, "finish": <1-5>}, "overall": <1-5>}',
        {
            "overall": ("overall", ""),
            "parts_fit": ("parts.fit", ""),
            "parts_finish": ("parts.finish", ""),
        },
    ),
    "two groups of scores": (
        '{"a": {"fit": <1-5>, "light": <1-5>}, "b": {"fit": <1-5>, "light": <1-5>}, "notes": "..."}',
        {
            f"{group}_{key}": (f"{group}.{key}", "")
            for group in "ab"
            for key in ("fit", "light")
        },
    ),
    "entries with keys of their own": (
        '{"fit": {"score": <1-5>, "reason": "."}, "finish": {"rating": <1-5>, "why": "."}}',
        {"fit": ("fit.score", "fit.reason"), "finish": ("finish.rating", "finish.why")},
    ),
    "entries and bare scores": (
        '{"image_id": "<id>", "fit": {"score": <1-5>, "reason": "."}, "finish": <1-5>}',
        {"finish": ("finish", ""), "fit": ("fit.score", "fit.reason")},
    ),
}


@pytest.mark.parametrize("case", NESTED.values(), ids=NESTED)
def test_scores_that_stand_at_several_places_make_a_nested_answer(
    case: tuple[str, dict[str, tuple[str, str]]],
) -> None:
    answer, paths = case
    rubric = files.parse(files.dump(done(import_prompt(INPUTS + answer, "mine"))))
    assert rubric.answer.form == "nested"
    assert {
        factor.key: (factor.path, factor.reason_path) for factor in rubric.factors
    } == paths
    assert {factor.scale.values for factor in rubric.factors} == {FIVE}
    question = ask(rubric, EDIT, DIGESTS, "published")
    scores = dict.fromkeys(paths, 4)
    document = envelope(
        rubric,
        question.identifier or "",
        scores,
        dict.fromkeys(paths, "The gate is green."),
        {},
    )
    outcome = check(rubric, json.dumps(document), identifier=question.identifier)
    assert isinstance(outcome, Verdict) and outcome.scores == scores


UNCLEAR_NESTED = '{"left": {"fit": <1-5>, "said": "<freely>"}, "right": {"fit": <1-5>, "said": "<freely>"}, "all": <1-5>}'


def test_a_nested_answer_with_a_value_that_may_be_either_is_asked_about_by_its_key() -> (
    None
):
    result = import_prompt(INPUTS + UNCLEAR_NESTED, "mine")
    assert abouts(result) == ["factors"]
    assert '"said"' in result.asks[0].reason
    rubric = done(
        import_prompt(INPUTS + UNCLEAR_NESTED, "mine", Hints(factors=("fit", "all")))
    )
    assert {factor.key: factor.path for factor in rubric.factors} == {
        "all": "all",
        "left_fit": "left.fit",
        "right_fit": "right.fit",
    }
    with raises(RubricError, "unknown_factor", "left_fit", "right_fit"):
        import_prompt(INPUTS + UNCLEAR_NESTED, "mine", Hints(factors=("fit",)))


def test_a_nested_answer_with_a_value_that_is_no_score_and_no_text_is_asked_about() -> (
    None
):
    text = INPUTS + '{"fit": {"score": <1-5>, "faults": ["..."]}, "finish": <1-5>}'
    assert abouts(import_prompt(text, "mine")) == ["answer"]


def test_a_heading_that_stands_twice_is_no_place_and_its_picture_comes_before_the_text() -> (
    None
):
    stranger = STRANGERS["headings that an example has as well"]
    result = import_prompt(stranger.text, "mine")
    question = str(ask(done(result), EDIT, DIGESTS, "published"))
    assert question.index("[image: edited]") < question.index("For example")
    assert any(line.startswith("place: beside the text") for line in result.inferred)


def test_braces_are_the_place_of_an_input_and_brackets_that_name_it_too_are_words() -> (
    None
):
    rubric = done(
        import_prompt(
            '[input image] [edited image] [instruction]: {instruction} {"score": <1-5>}',
            "mine",
        )
    )
    assert f"[instruction]: {EDIT.instruction} " in str(
        ask(rubric, EDIT, DIGESTS, "published")
    )


@pytest.mark.parametrize(
    "text",
    [
        INPUTS + "Say which edit is better: [[A]] or [[B]], or [[tie]].",
        INPUTS + "Conclude with [[A>B]] or [[B>A]].",
        INPUTS + "<verdict>A</verdict> or <verdict>B</verdict>",
        INPUTS + '{"winner": "A", "reason": "..."}',
    ],
    ids=["double brackets", "an order", "tags", "JSON"],
)
def test_a_prompt_that_compares_two_edits_is_said_to_be_no_rubric(text: str) -> None:
    result = import_prompt(text, "mine")
    assert abouts(result) == ["kind of prompt"]


LISTED = """\
List each difference under `## Differences` as allowed or as a change of content (not allowed), then add `## JSON`.
- Score = {best}
  only if all differences are allowed.
- Score = {worst}
  if any is not.
{{"score": 0}}
"""


def test_a_decision_that_follows_from_a_list_is_held_to_it() -> None:
    rubric = done(
        import_prompt(
            "[input image] [edited image]\n" + LISTED.format(best=1, worst=0), "mine"
        )
    )
    listed = "## Differences\n- A new cat: not allowed\n## JSON\n"
    assert isinstance(check(rubric, listed + '{"score": 0}'), Verdict)
    assert isinstance(check(rubric, listed + '{"score": 1}'), Failure)


def test_a_decision_of_the_opposite_sense_is_not() -> None:
    rubric = done(
        import_prompt(
            "[input image] [edited image]\n" + LISTED.format(best=0, worst=1), "mine"
        )
    )
    assert rubric.consistency is None


def test_every_question_is_asked_at_once() -> None:
    text = 'See {extra}. Was the instruction met in about 20 words? {"score": 3, "reason": "."}'
    assert abouts(import_prompt(text, "mine")) == [
        "placeholder {extra}",
        "images",
        "texts",
        "scale",
        "words",
    ]


def test_every_inference_is_told_with_its_source() -> None:
    result = import_prompt(
        INPUTS + '{"score": <1-5>, "reason": "<at most 9 words>"}', "mine"
    )
    assert result.inferred == (
        "images: input, edited (from [input image], [edited image])",
        "texts: instruction (from {instruction})",
        "factors: score (from JSON example)",
        "envelope: (top level) (from JSON example)",
        "free text: reason (from JSON example)",
        "scale: an integer from 1 to 5 (from example, text or --scale)",
        "words: 1 to 9 (from text)",
    )


# --- what the prompt itself answers ---------------------------------------------------------------------------

REFUSED_ANSWERS: dict[str, tuple[str, Hints]] = {
    "a score off the scale that was said": (
        'Score it. {"score": 8, "why": "..."}',
        Hints(scale=FIVE),
    ),
    "a list off the scale that was said": (
        '{"score": [5, 10]}',
        Hints(factors=("a", "b"), scale=FIVE),
    ),
    "a score off the scale in a second example": (
        '{"score": <1-5>, "why": "..."} {"score": 9, "why": "All is there."}',
        Hints(scale=FIVE),
    ),
    "an example like the one that was chosen": (
        '{"a": 1} {"score": <1-5>} {"score": 7}',
        Hints(example=2, scale=FIVE),
    ),
    "a decimal": ('{"score": 3.5}', Hints(scale=FIVE)),
    "a number in quotation marks": (
        '{"score": "4", "why": "..."}',
        Hints(factors=("score",), scale=FIVE),
    ),
    "a boolean": ('{"met": true, "why": "..."}', Hints(factors=("met",), scale=(0, 1))),
    "a word": ('{"met": "Yes", "why": "..."}', Hints(factors=("met",), scale=(0, 1))),
    "a longer list in a second example": (
        '{"score": [4, 5]} or {"score": [4, 5, 3]}',
        Hints(factors=("a", "b"), scale=FIVE),
    ),
    "a score out of a total": (
        '{"score": "8/10"}',
        Hints(factors=("score",), scale=TEN),
    ),
    "lines with a total": (
        "Output format:\nFit: X/5\nFinish: X/5",
        Hints(lines=("Fit", "Finish"), scale=FIVE),
    ),
    "a line by way of example": (
        "Such as\n**Fit:** 7\nOutput format:\nFit: X",
        Hints(scale=FIVE),
    ),
}


@pytest.mark.parametrize("case", REFUSED_ANSWERS.values(), ids=REFUSED_ANSWERS)
def test_a_contract_that_refuses_what_its_own_prompt_answers_is_not_made(
    case: tuple[str, Hints],
) -> None:
    text, hints = case
    result = import_prompt(INPUTS + text, "mine", hints)
    assert abouts(result) == ["answer"]
    assert "would be refused" in result.asks[0].reason


def test_a_prompt_that_answers_within_its_scale_is_imported() -> None:
    text = INPUTS + "Such as\n**Fit:** 4\nOutput format:\nFit: X"
    assert done(import_prompt(text, "mine", Hints(scale=FIVE))).answer.form == "lines"


def listing(shown: str) -> str:
    return f'{INPUTS}From 0 to 10 a score each, so that score = [score1, score2]. {{"score": {shown}, "why": "..."}}'


@pytest.mark.parametrize("shown", ["[...]", ""], ids=["dots", "nothing"])
def test_several_scores_that_the_text_names_are_never_one_integer(shown: str) -> None:
    result = import_prompt(listing(shown), "mine", Hints(factors=("score",), scale=TEN))
    assert abouts(result) == ["factors"]
    assert "2 scores" in result.asks[0].reason


@pytest.mark.parametrize(
    "shown", ["[score1, score2]", "[5, 10]"], ids=["names", "numbers"]
)
def test_several_scores_that_the_example_shows_are_never_one_integer(
    shown: str,
) -> None:
    with raises(RubricError, "several_scores", "score", "2"):
        import_prompt(listing(shown), "mine", Hints(factors=("score",), scale=TEN))


def test_a_list_of_one_score_is_a_list() -> None:
    rubric = done(
        import_prompt(
            INPUTS + 'From 0 to 10. {"score": [...]}', "mine", Hints(factors=("score",))
        )
    )
    assert (rubric.answer.form, rubric.answer.envelope) == ("list", "score")
    assert isinstance(check(rubric, '{"score": [7]}'), Verdict)


def test_scores_with_a_reason_each_keep_each_its_own() -> None:
    text = (
        INPUTS
        + """Score from 1 to 5.
    {
    "deed_score": X,
    "deed_reasoning": 1. What differs 2. What was wanted
    "sense_score": X,
    "sense_reasoning": 1. What follows 2. What is shown
    }"""
    )
    rubric = files.parse(files.dump(done(import_prompt(text, "mine"))))
    answer = {
        "deed_score": 2,
        "deed_reasoning": "No.",
        "sense_score": 5,
        "sense_reasoning": "Yes.",
    }
    outcome = check(rubric, json.dumps(answer))
    assert isinstance(outcome, Verdict)
    assert outcome.scores == {"deed_score": 2, "sense_score": 5}
    assert outcome.justifications == {"deed_score": "No.", "sense_score": "Yes."}
    assert list(answer_schema(rubric)["properties"]) == list(answer)


def test_reasons_that_stand_under_the_keys_of_the_scores_keep_each_its_own() -> None:
    text = (
        INPUTS
        + '{"why": {"fit": "...", "light": "..."}, "score": {"fit": <1-5>, "light": <1-5>}}'
    )
    rubric = done(import_prompt(text, "mine"))
    outcome = check(
        rubric,
        '{"why": {"fit": "No.", "light": "Yes."}, "score": {"fit": 1, "light": 5}}',
    )
    assert isinstance(outcome, Verdict)
    assert outcome.justifications == {"score_fit": "No.", "score_light": "Yes."}


def test_a_score_that_may_be_left_open_abstains() -> None:
    rubric = done(
        import_prompt(INPUTS + '{"fit": <1-5>, "lettering": <1-5 or "N/A">}', "mine")
    )
    outcome = check(rubric, '{"fit": 4, "lettering": "N/A"}')
    assert isinstance(outcome, Verdict)
    assert (outcome.scores, outcome.abstained) == ({"fit": 4}, {"lettering": "N/A"})
    assert isinstance(check(rubric, '{"fit": "N/A", "lettering": 4}'), Failure)


def test_a_word_for_what_does_not_apply_that_prose_mentions_is_asked_about() -> None:
    text = INPUTS + '{"lettering": <1-5>} Use N/A where there is no lettering.'
    result = import_prompt(text, "mine")
    assert abouts(result) == ["scale"]
    assert "or N/A" in result.asks[0].option
    scale = Scale(FIVE, abstain=("N/A",))
    assert (
        done(import_prompt(text, "mine", Hints(scale=scale))).factors[0].scale == scale
    )


ORDERS = [
    '{"score": <1-5>, "why": "..."}',
    '{"why": "...", "score": <1-5>}',
    '{"score": [a, b], "why": "..."}',
    '{"fit": {"score": <1-5>, "why": "..."}, "finish": {"score": <1-5>, "why": "..."}}',
    '{"fit": {"why": "...", "score": <1-5>}, "image_id": "<id>"}',
    '{"fit": <1-5>, "notes": "...", "finish": <1-5>, "summary": "..."}',
    '{"a": {"fit": <1-5>, "light": <1-5>}, "notes": "...", "b": {"fit": <1-5>, "light": <1-5>}}',
]


@pytest.mark.parametrize("shown", ORDERS)
def test_schema_and_envelope_have_the_keys_in_the_order_of_the_prompt(
    shown: str,
) -> None:
    hints = Hints(factors=("a", "b"), scale=FIVE) if "[a, b]" in shown else None
    rubric = files.parse(files.dump(done(import_prompt(INPUTS + shown, "mine", hints))))
    expected = re.findall(r'"(\w+)":', shown)

    def keys(schema: Any) -> list[str]:
        return [
            key
            for name, inner in schema.get("properties", {}).items()
            for key in (name, *keys(inner))
        ]

    assert keys(answer_schema(rubric)) == expected
    scores = {factor.key: 4 for factor in rubric.factors}
    document = json.dumps(envelope(rubric, "7", scores, {}, {}))
    assert re.findall(r'"(\w+)":', document) == expected
    assert re.findall(r'"(\w+)":', answer_shape(rubric, "7")) == expected


# --- what the importing person says ---------------------------------------------------------------------------

WRONG_HINTS: dict[str, tuple[str, Hints, str, str]] = {
    "an absent placeholder": ('{"score": <1-5>}', Hints(slots={"instructoin": "-"}), "unknown_placeholder", '"instruction"'),
    "an unknown role": ('{x} {"score": <1-5>}', Hints(slots={"x": "instuction"}), "unknown_input", '"instruction"'),
    "a text for a picture": ('{"score": <1-5>}', Hints(images=("instruction",)), "bad_images", "input, edited"),
    "a picture twice": ('{"score": <1-5>}', Hints(images=("edited", "edited")), "bad_images", "edited edited"),
    "a picture for a text": ('{"score": <1-5>}', Hints(texts=("edited",)), "bad_texts", "edited"),
    "a factor that the example lacks": ('{"score": <1-5>}', Hints(factors=("fit",)), "unknown_factor", "score"),
    "too few names for a list": ('{"score": [a, b]} 1-5 scale', Hints(factors=("a",)), "several_scores", '"score" has 2'),
    "an example that is not there": ('{"score": <1-5>}', Hints(example=2), "unknown_example", "1"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_HINTS.values(), ids=WRONG_HINTS)
def test_an_option_that_cannot_be_meant_is_refused(
    case: tuple[str, Hints, str, str],
) -> None:
    text, hints, code, named = case
    with raises(RubricError, code, named):
        import_prompt(INPUTS + text, "mine", hints)


def test_a_scale_that_is_given_wins_over_what_the_text_says() -> None:
    rubric = done(
        import_prompt(
            INPUTS + '{"a": <1-5>, "b": <1-5>}',
            "mine",
            Hints(scale=(0, 1), scales={"b": TEN}),
        )
    )
    assert [factor.scale.values for factor in rubric.factors] == [(0, 1), TEN]


def test_a_heading_that_is_no_place_for_an_input_can_be_passed_over() -> None:
    text = (
        'Instruction:\nCompare the two.\n[input image] [edited image]\n{"score": <1-5>}'
    )
    assert done(import_prompt(text, "mine")).texts == ("instruction",)
    assert (
        done(import_prompt(text, "mine", Hints(slots={"Instruction:": "-"}))).texts
        == ()
    )


def test_a_role_that_is_given_wins_over_what_the_name_says() -> None:
    hints = Hints(slots={"edited_image": "input", "other": "edited"})
    rubric = done(
        import_prompt('{edited_image} {other}\n{"score": <1-5>}', "mine", hints)
    )
    assert rubric.images == ("input", "edited")


# --- reading words --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("described", "values"),
    [
        ("<integer between 1-7>", (1, 2, 3, 4, 5, 6, 7)),
        ("integer_1_to_3", (1, 2, 3)),
        ("1–3", (1, 2, 3)),
        ("between 0 and 2", (0, 1, 2)),
        ("5, 3, or 1", (5, 3, 1)),
        ("0 | 1 | 2", (0, 1, 2)),
        ("0/1", (0, 1)),
        ("1/2/3", (1, 2, 3)),
        ("-1, 0 or 1", (-1, 0, 1)),
        ("1, 0, -1", (1, 0, -1)),
        ("-2 to 2", (-2, -1, 0, 1, 2)),
        ("1-3, 3 being best", (1, 2, 3)),
        ("0..2", (0, 1, 2)),
        ("8/10", ()),
        ("4", ()),
        ("5, 5", ()),
        ("7 to 1", ()),
        ("0.0 to 1.0", ()),
        ("1.0-5.0", ()),
        ("0, 0.5 or 1", ()),
        ("1, 2, ..., 10", ()),
        ("1, 2, 3, ..., 10", ()),
        ("1-5 or 0", ()),
        ("15-30 words", ()),
        ("2 to 3 sentences", ()),
        ("1 to 100000", ()),
        (f"1 to {'9' * 5000}", ()),
        ("v1-2", ()),
        ("", ()),
    ],
)
def test_a_described_scale_is_read_whole_or_not_at_all(
    described: str, values: tuple[int, ...]
) -> None:
    assert values_of(described) == values


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("Give a score from 1 to 5.", [FIVE]),
        ("Rate it between 0 and 10, please.", [TEN]),
        ("On a scale of 1–5, how good is it?", [FIVE]),
        ("Use a 1-5 scale.", [FIVE]),
        ("Rating range: 0-10", [TEN]),
        ("A number from 1 to 5.", [FIVE]),
        ("The score is from 1 to 5 inclusive.", [FIVE]),
        ("Score high (6-7) when it is right.", []),
        ("Children from 3 to 5 years old.", []),
        ("Write a score and between 2 and 3 sentences.", []),
        ("Rate the scene with from 2 to 4 dogs.", []),
        ("It was taken between 1 and 5.", []),
        ("Score from 0.0 to 1.0.", []),
        ("Score from 5 to 1.", []),
    ],
)
def test_a_range_in_a_text_is_a_scale_only_where_it_is_said_of_scores(
    text: str, ranges: list[tuple[int, ...]]
) -> None:
    assert list(ranges_in(text)) == ranges


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("15-30 words", [(15, 30)]),
        ("between 10 and 25 words", [(10, 25)]),
        ("10 – 25 words", [(10, 25)]),
        ("at most 20 words", [(1, 20)]),
        ("no more than 20 words", [(1, 20)]),
        ("no longer than 20 words", [(1, 20)]),
        ("must not exceed 20 words", [(1, 20)]),
        ("20 words or fewer", [(1, 20)]),
        ("20 words max", [(1, 20)]),
        ("fewer than 20 words", [(1, 19)]),
        ("under 20 words", [(1, 19)]),
        ("about 20 words", []),
        ("20 sentences", []),
    ],
)
def test_limits_of_words_are_read_in_the_ways_people_write_them(
    text: str, limits: list[tuple[int, int]]
) -> None:
    assert list(word_limits_in(text)) == limits


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("{score: 3}", "score is not a quoted key"),
        ('{"a": 1, ...}', "... is not a quoted key"),
        ('{"a": [{"b": 1}]}', "a list of objects"),
        ('{"a": 1, "a": 2}', "occurs twice"),
        ("{" * 20 + '"a": 1' + "}" * 20, "not a quoted key"),
        ('{"a": ' * 20 + "1" + "}" * 20, "breaks off"),
    ],
)
def test_a_block_that_is_no_example_says_why(block: str, why: str) -> None:
    with pytest.raises(examples.Ask, match=why):
        examples.read(block)


# --- anything at all ------------------------------------------------------------------------------------------

SCRAPS = [
    "[input image]", "[edited image]", "<image>", "{instruction}", "{{instruction}}", "{{{instruct}}}", "{x}", "{",
    "}", "{{", "}}", '"score"', ": ", "<1-5>", "[5, 3, or 1]", "...", '{"score": <1-5>, "reason": "..."}',
    '{{"score": 3}}', "'", '"', "from 1 to 5", "score", "Score = 1\n", "Score = 0\n", "15-30 words",
    "- ## Notes\n", "`## JSON`", "Instruction:\n", "Edited Image:\n", "IMAGE 1 (Input Image):\n", "<instruction>",
    "</instruction>", "\n", " ", "\r\n", "//", "#", "\\", "true", "0.5", "the instruction", "two images",
    "(allowed)", "(not allowed)", "99999999999999999999", "\x00", "\u2028",
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    text=st.lists(st.sampled_from(SCRAPS) | st.text(max_size=5), max_size=25).map(
        "".join
    )
)
@example(text="{{x}} {a:>9} [input image][edited image]" + '{{"score": <1-5>}}')
@example(text="5, 5 [edited image]" + '{"score": <5, 5>}')
def test_whatever_is_imported_gives_a_rubric_that_works_or_a_question(
    text: str,
) -> None:
    hints = Hints(
        images=("input", "edited"), texts=("instruction",), scale=FIVE, no_words=True
    )
    for given_hints in (
        None,
        hints,
        dataclasses.replace(hints, factors=("fit",), example=0),
    ):
        result = import_prompt(text, "mine", given_hints)
        if result.rubric is None:
            assert result.asks and all(one.option for one in result.asks)
            continue
        rubric = files.parse(files.dump(result.rubric))
        assert rubric == result.rubric
        for layout in LAYOUTS:
            question = ask(rubric, EDIT, DIGESTS, layout)
            roles = [
                part.role for part in question.parts if isinstance(part, ImagePart)
            ]
            assert sorted(roles) == sorted(rubric.images)
            assert isinstance(
                check(
                    rubric,
                    reply(rubric, question.identifier),
                    identifier=question.identifier,
                ),
                Verdict,
            )


def test_more_braces_than_any_prompt_has_are_refused() -> None:
    with raises(RubricError, "too_complex"):
        import_prompt("{}" * 200_000, "mine")
