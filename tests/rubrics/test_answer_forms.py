"""Answers that are labelled lines, nested objects, choices or one token: what is asked for, accepted and refused."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from editjudge.edit import Edit
from editjudge.errors import RubricError
from editjudge.judgement import Task
from editjudge.judges.judge import Work
from editjudge.rubrics.answer import answer_schema, as_lines, envelope
from editjudge.rubrics.contract import check
from editjudge.rubrics.files import dump, parse
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.prompt import ask, reask
from editjudge.rubrics.verdict import Failure, Verdict
from tests.faults import raises

LINES = parse("""
name: lines
images: [input, edited]
scale: {values: [1, 2, 3, 4, 5]}
factors:
  - {key: compliance, label: Prompt Compliance}
  - {key: seamless, label: Visual Seamlessness}
answer: {form: lines, texts: [Brief reasoning]}
""")
DECIMAL_LINES = parse("""
name: decimals
images: [edited]
scale: {range: [1, 4], step: 0.5, abstain: [N/A]}
factors: [{key: faith, label: Faithfulness}, {key: text, label: Text rendering}]
answer: {form: lines}
""")
NESTED = parse("""
name: nested
images: [edited]
scale: {values: [0, 1, 2]}
factors:
  - {key: pose, path: pose.result.score, reason_path: pose.result.reason}
  - {key: face, path: face.score}
answer: {form: nested, texts: [summary]}
""")
TOKEN = parse("""
name: token
images: [edited]
scale: {values: [0, 1, 2, 3, 4, 5]}
factors: [{key: score}]
answer: {form: token}
""")
YES_NO = parse(
    "name: yes_no\nimages: [edited]\nscale: {choices: [yes, no]}\nfactors: [{key: holds}]\nanswer: {form: token}\n"
)
FORMS = (LINES, DECIMAL_LINES, NESTED, TOKEN, YES_NO)

GOOD: dict[str, tuple[Rubric, str, dict[str, Any]]] = {
    "lines": (
        LINES,
        "Brief reasoning: The car is red.\nPrompt Compliance: 5\nVisual Seamlessness: 4",
        {"compliance": 5, "seamless": 4},
    ),
    "lines with emphasis": (
        LINES,
        "**Brief reasoning:** Red.\n- **Prompt Compliance:** 5\n2. **Visual Seamlessness**: 4",
        {"compliance": 5, "seamless": 4},
    ),
    "lines in a fence, after a thought": (
        LINES,
        "<think>Prompt Compliance: 1</think>\n```text\nBrief reasoning: a\nPrompt Compliance: 3\r\n"
        "Visual Seamlessness: **2**\n```",
        {"compliance": 3, "seamless": 2},
    ),
    "decimals": (
        DECIMAL_LINES,
        "Faithfulness: 3.5\nText rendering: N/A",
        {"faith": 3.5},
    ),
    "nested": (
        NESTED,
        '{"summary": "s", "face": {"score": 2}, "pose": {"result": {"reason": "turned", "score": 1}}}',
        {"pose": 1, "face": 2},
    ),
    "token": (TOKEN, " 4\n", {"score": 4}),
    "token after a thought": (TOKEN, "<think>maybe 3</think>4", {"score": 4}),
    "a choice": (YES_NO, "no", {"holds": "no"}),
}


@pytest.mark.parametrize("case", GOOD)
def test_an_answer_of_the_form_is_accepted(case: str) -> None:
    rubric, reply, expected = GOOD[case]
    outcome = check(rubric, reply)
    assert isinstance(outcome, Verdict), outcome
    assert {**outcome.scores, **outcome.choices} == expected
    assert not outcome.violations


def test_text_lines_are_the_reason_of_every_factor_up_to_the_next_label() -> None:
    reply = "Brief reasoning: The car is red.\nIts shadow is not.\n\nPrompt Compliance: 5\nVisual Seamlessness: 4"
    outcome = check(LINES, reply)
    assert isinstance(outcome, Verdict)
    assert outcome.justifications == dict.fromkeys(
        ["compliance", "seamless"], "The car is red.\nIts shadow is not."
    )


def test_nested_reasons_belong_to_their_factor_and_a_text_to_those_without() -> None:
    outcome = check(NESTED, GOOD["nested"][1])
    assert isinstance(outcome, Verdict)
    assert outcome.justifications == {"pose": "turned", "face": "s"}


HEAD = "Brief reasoning: r\nPrompt Compliance: "
TAIL = "\nVisual Seamlessness: 4"
REFUSED = {
    "words after the number": (
        LINES,
        HEAD + "5 since it is red" + TAIL,
        "score_string",
    ),
    "a fraction": (LINES, HEAD + "5/5" + TAIL, "score_string"),
    "a decimal": (LINES, HEAD + "4.0" + TAIL, "score_decimal"),
    "a range": (LINES, HEAD + "4-5" + TAIL, "score_string"),
    "a sign": (LINES, HEAD + "+4" + TAIL, "score_string"),
    "a full stop": (LINES, HEAD + "4." + TAIL, "score_string"),
    "a word": (LINES, HEAD + "four" + TAIL, "score_string"),
    "out of scale": (LINES, HEAD + "6" + TAIL, "score_out_of_scale"),
    "nothing": (LINES, HEAD + TAIL, "score_string"),
    "the number on the next line": (LINES, HEAD + "\n4" + TAIL, "score_string"),
    "another script's digit": (LINES, HEAD + "\u0664" + TAIL, "score_string"),
    "a line separator": (LINES, HEAD + "4\u20285" + TAIL, "score_string"),
    "a thought inside the number": (
        LINES,
        HEAD + "4<think>x</think>" + TAIL,
        "score_string",
    ),
    "emphasis without an end": (
        LINES,
        "Brief reasoning: r\n_Prompt Compliance: 4" + TAIL,
        "missing_factor",
    ),
    "another label": (
        LINES,
        "Brief reasoning: r\nPrompt compliance: 4" + TAIL,
        "missing_factor",
    ),
    "a label inside a line": (
        LINES,
        "Brief reasoning: r\nThe Prompt Compliance: 4" + TAIL,
        "missing_factor",
    ),
    "a label that goes on": (
        LINES,
        "Brief reasoning: r\nPrompt Compliance score: 4" + TAIL,
        "missing_factor",
    ),
    "a factor twice": (LINES, HEAD + "4\nPrompt Compliance: 5" + TAIL, "ambiguous"),
    "the form itself": (
        LINES,
        HEAD + "<an integer from 1 to 5>" + TAIL,
        "score_string",
    ),
    "no reason": (LINES, "Prompt Compliance: 4" + TAIL, "missing_key"),
    "JSON": (LINES, '{"compliance": 5, "seamless": 4}', "no_answer"),
    "beside a step": (
        DECIMAL_LINES,
        "Faithfulness: 3.3\nText rendering: 1",
        "score_out_of_scale",
    ),
    "another word for N/A": (
        DECIMAL_LINES,
        "Faithfulness: n/a\nText rendering: 1",
        "score_string",
    ),
    "a key too many": (
        NESTED,
        GOOD["nested"][1].replace('"face": {', '"face": {"more": 1, '),
        "unknown_factor",
    ),
    "a key missing": (
        NESTED,
        GOOD["nested"][1].replace('"reason": "turned", ', ""),
        "missing_key",
    ),
    "a score for an object": (
        NESTED,
        GOOD["nested"][1].replace('{"score": 2}', "2"),
        "wrong_type",
    ),
    "a string for a score": (
        NESTED,
        GOOD["nested"][1].replace('"score": 1', '"score": "1"'),
        "score_string",
    ),
    "a score that is not nested": (
        NESTED,
        '{"summary": "s", "pose": 1, "face": 2}',
        "wrong_type",
    ),
    "a sentence for a token": (TOKEN, "The score is 4", "no_answer"),
    "two tokens": (TOKEN, "4 5", "no_answer"),
    "a token off the scale": (TOKEN, "7", "score_out_of_scale"),
    "a token with a decimal": (TOKEN, "4.0", "score_decimal"),
    "another case": (YES_NO, "No", "no_answer"),
    "a word too many": (YES_NO, "yes, it is", "no_answer"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_text_does_not_say_is_no_score(case: str) -> None:
    rubric, reply, code = REFUSED[case]
    outcome = check(rubric, reply)
    assert isinstance(outcome, Failure), outcome
    assert outcome.status == "invalid"
    assert code in [reason.code for reason in outcome.reasons]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("5/5", "a fraction"),
        ("4 out of 5", "a fraction"),
        ("80%", "a fraction"),
        ("5 since it is red", "a number with something beside it"),
        ("4.", "a number with something beside it"),
        ("four", "text that is no number"),
        ("", "left out"),
    ],
)
def test_the_reason_says_what_stands_in_the_place_of_a_score_on_a_line(
    content: str, kind: str
) -> None:
    outcome = check(LINES, HEAD + content + TAIL)
    assert isinstance(outcome, Failure)
    message = outcome.reasons[0].message
    assert f"is {kind}" in message
    assert "string" not in message


def test_endings_are_told_apart() -> None:
    assert check(TOKEN, "4", finish="length").status == "truncated"
    assert check(TOKEN, "<think>4").status == "truncated"
    assert check(TOKEN, "I'm sorry, I can't help with that.").status == "refused"
    assert check(LINES, "I cannot judge people.").status == "refused"
    assert check(LINES, "<think>x</think> ").status == "invalid"


def test_text_around_the_lines_and_a_line_twice_are_violations() -> None:
    outcome = check(
        DECIMAL_LINES, "Sure!\nFaithfulness: 3\nFaithfulness: 3\nText rendering: 2"
    )
    assert isinstance(outcome, Verdict)
    assert [remark.code for remark in outcome.violations] == [
        "repeated_answer",
        "prose",
    ]


def judged(rubric: Rubric, reply: str) -> Any:
    work = Work(Task("e", rubric.name, "j", 0, "k"), Edit("e"), rubric)
    return work.verdict(check(rubric, reply), ())


def test_a_factor_that_does_not_apply_abstains_and_has_no_number() -> None:
    some = judged(DECIMAL_LINES, "Faithfulness: 3\nText rendering: N/A")
    assert (some.status, some.scores) == ("ok", {"faith": 3})
    assert some.abstained == {"text": 'the judge answered "N/A"'}
    none = judged(DECIMAL_LINES, "Faithfulness: N/A\nText rendering: N/A")
    assert (none.status, none.scores, set(none.abstained)) == (
        "abstained",
        None,
        {"faith", "text"},
    )
    parsed = check(DECIMAL_LINES, "Faithfulness: N/A\nText rendering: N/A")
    assert (parsed.as_json()["status"], parsed.as_json()["scores"]) == (
        "abstained",
        None,
    )


def test_in_json_a_word_for_not_applicable_is_a_string() -> None:
    rubric = parse(dump(DECIMAL_LINES).replace("form: lines", "form: scores"))
    outcome = check(rubric, '{"faith": 1.5, "text": "N/A"}')
    assert isinstance(outcome, Verdict)
    assert (outcome.scores, outcome.abstained) == ({"faith": 1.5}, {"text": "N/A"})
    options = answer_schema(rubric)["properties"]["text"]["anyOf"]
    assert [option["type"] for option in options] == ["number", "string"]


# --- what is asked for ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rubric", FORMS, ids=lambda rubric: rubric.name)
def test_the_question_and_the_message_after_a_refusal_show_the_form(
    rubric: Rubric,
) -> None:
    question = ask(rubric, Edit("e"), {})
    failure = check(rubric, "nothing")
    assert isinstance(failure, Failure)
    for text in (str(question), reask(failure, question)):
        match rubric.answer.form:
            case "lines":
                assert all(
                    f"\n{rubric.label(factor)}: <" in text for factor in rubric.factors
                )
                assert "JSON" not in text
            case "token":
                assert "and nothing before or after it" in text
                assert "JSON" not in text
            case _:
                assert '"pose": {\n    "result": {' in text


@pytest.mark.parametrize("rubric", FORMS, ids=lambda rubric: rubric.name)
def test_a_file_of_it_reads_back_equal(rubric: Rubric) -> None:
    assert parse(dump(rubric)) == rubric


def test_a_prompt_with_a_format_of_its_own_gets_no_second_one() -> None:
    text = dump(LINES) + "template: {text: 'Write\n\n  Prompt Compliance: a number.'}\n"
    question = str(ask(parse(text), Edit("e"), {}))
    assert question.count("Prompt Compliance:") == 1


def test_the_schema_of_a_nested_answer_has_every_key_at_its_place() -> None:
    schema = answer_schema(NESTED)
    assert list(schema["properties"]) == ["summary", "pose", "face"]
    result = schema["properties"]["pose"]["properties"]["result"]
    assert result["required"] == ["reason", "score"]
    assert result["additionalProperties"] is False


def test_the_contract_says_the_form() -> None:
    assert NESTED.contract()["form"] == "nested"
    assert [factor["path"] for factor in NESTED.contract()["factors"]] == [
        "pose.result.score",
        "face.score",
    ]
    assert [factor["label"] for factor in LINES.contract()["factors"]] == [
        "Prompt Compliance",
        "Visual Seamlessness",
    ]
    assert DECIMAL_LINES.contract()["factors"][0]["abstain"] == ["N/A"]


def test_a_verdict_is_shown_in_the_rubrics_own_form() -> None:
    text = as_lines(
        LINES, {"compliance": 5}, {"compliance": "Red."}, {"seamless": "too small"}
    )
    assert text.splitlines() == [
        "Brief reasoning: Red.",
        "Prompt Compliance: 5",
        "Visual Seamlessness: (too small)",
    ]
    document = envelope(
        NESTED, "e", {"pose": 1}, {"pose": "turned"}, {"face": "hidden"}
    )
    assert document["pose"] == {"result": {"reason": "turned", "score": 1}}
    assert document["face"] == {"score": None}


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (
            "form: lines",
            "form: lines\n  envelope: x",
            "not_json_form",
        ),
        ("form: lines", "form: token", "texts_of_token"),
        ("label: Prompt Compliance", "label: 'Prompt: Compliance'", "bad_label"),
        ("label: Visual Seamlessness", "label: Prompt Compliance", "key_twice"),
    ],
)
def test_a_form_that_cannot_be_answered_is_refused(
    old: str, new: str, code: str
) -> None:
    with raises(RubricError, code):
        parse(dump(LINES).replace(old, new, 1))


def test_paths_lead_to_scores_and_not_through_them() -> None:
    with raises(RubricError, "bad_path"):
        parse(dump(NESTED).replace("path: face.score", "path: pose.result.score.more"))


# --- no score that the text does not say ----------------------------------------------------------------------

TYPED = "0175-.eN/A:*_`#> \n\r\t\0\u2028yesno"


def numbers_in(rubric: Rubric, reply: str) -> dict[str, set[str]]:
    """What is written for each factor, found by another way than the contract's."""
    if rubric.answer.form == "token":
        return {rubric.factors[0].key: {reply.strip(" \t\r\n\0").strip("*`")}}
    if rubric.answer.form == "nested":
        numbers: dict[str, set[str]] = {}
        for factor in rubric.factors:
            value: Any = json.loads(reply[reply.index("{") : reply.rindex("}") + 1])
            for part in factor.path.split("."):
                value = value[part]
            numbers[factor.key] = {str(value)}
        return numbers
    written: dict[str, set[str]] = {factor.key: set() for factor in rubric.factors}
    for line in re.split(r"[\r\n]", reply):
        for factor in rubric.factors:
            at = line.find(rubric.label(factor))
            if at >= 0 and not re.search(
                r"[^\W_]", re.sub(r"^\W*\d{1,2}[.)]", "", line[:at])
            ):
                written[factor.key].add(
                    line[at + len(rubric.label(factor)) :].strip(" \t\0:\uff1a*_`")
                )
    return written


def assert_said(rubric: Rubric, reply: str) -> bool:
    outcome = check(rubric, reply)
    if isinstance(outcome, Failure):
        return False
    written = numbers_in(rubric, reply)
    for key, value in {
        **outcome.scores,
        **outcome.choices,
        **outcome.abstained,
    }.items():
        assert str(value) in written[key] or any(
            _same(value, text) for text in written[key]
        ), (reply, key, value)
    return True


def _same(value: object, text: str) -> bool:
    return (
        isinstance(value, int | float)
        and bool(re.fullmatch(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", text))
        and (float(text) == value)
    )


def scrambled(source: random.Random, text: str) -> str:
    for _ in range(source.randint(1, 3)):
        at = source.randrange(len(text) + 1)
        match source.randrange(4):
            case 0:
                text = text[:at] + text[at + 1 :]
            case 1:
                text = text[:at] + source.choice(TYPED) + text[at:]
            case 2:
                text = text[:at] + source.choice(TYPED) + text[at + 1 :]
            case _:
                lines = text.split("\n")
                source.shuffle(lines)
                text = "\n".join(lines)
    return text


def scramble_all(count: int, seed: int) -> int:
    source = random.Random(seed)
    # half a mark of a thought has tests of its own
    cases = [case for case in GOOD.values() if "<think>" not in case[1]]
    return sum(
        assert_said(rubric, scrambled(source, reply))
        for rubric, reply, _ in source.choices(cases, k=count)
    )


def test_scrambled_replies_have_no_score_but_what_is_written() -> None:
    assert scramble_all(4_000, 7) > 400


@pytest.mark.soak
def test_a_hundred_thousand_scrambled_replies_have_no_score_but_what_is_written() -> (
    None
):
    assert scramble_all(100_000, 11) > 10_000


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(FORMS), st.text(max_size=200))
def test_any_text_is_a_verdict_or_a_failure(rubric: Rubric, text: str) -> None:
    assert isinstance(check(rubric, text), Verdict | Failure)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(2, 8), st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
)
def test_every_legal_score_comes_through_with_any_reason(
    twice: int, reason: str
) -> None:
    score = twice / 2
    written = int(score) if score == int(score) else score
    outcome = check(DECIMAL_LINES, f"Faithfulness: {written}\nText rendering: 1")
    assert isinstance(outcome, Verdict)
    assert outcome.scores == {"faith": score, "text": 1}
    document = {
        "summary": reason,
        "pose": {"result": {"reason": reason, "score": 1}},
        "face": {"score": 0},
    }
    nested = check(NESTED, json.dumps(document, ensure_ascii=False))
    assert isinstance(nested, Verdict)
    assert nested.scores == {"pose": 1, "face": 0}


def test_megabytes_of_labels_and_marks_end_soon() -> None:
    for text in (
        "Prompt Compliance: " * 100_000,
        "**" * 500_000,
        "Brief reasoning:\n" * 90_000,
        "\n" * 2_000_000,
    ):
        assert isinstance(check(LINES, text), Failure)
