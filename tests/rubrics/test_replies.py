"""Where in a reply the answer stands, and JSON by the letter."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editjudge.rubrics import replies
from editjudge.rubrics.replies import (
    NoAnswer,
    blocks,
    decode,
    scan,
    without_fences,
)
from editjudge.rubrics.scale import WrittenNumber
from tests.faults import raises

KEYS = ["score", "image_id"]


def candidate_texts(text: str) -> list[str]:
    return [candidate.text for candidate in scan(text, KEYS).candidates]


@pytest.mark.parametrize(
    ("text", "candidates"),
    [
        ('{"score": 1}', ['{"score": 1}']),
        ('a {"score": 1} b {"image_id": 2} c', ['{"score": 1}', '{"image_id": 2}']),
        ('{"a": {"score": 1}}', ['{"a": {"score": 1}}']),
        ("{'score': 1}", ["{'score': 1}"]),
        ('{"a": "}", "score": 1}', ['{"a": "}", "score": 1}']),
        ('{"a": "\\"}", "score": 1}', ['{"a": "\\"}", "score": 1}']),
        ('{"a": "\\\\"} "score"', []),
        ('{"\\u0073core": 1}', ['{"\\u0073core": 1}']),
        ('{"scor\\u0065": 1}', ['{"scor\\u0065": 1}']),
        ("{score: 1} {1} {}", []),
        ('"score": 1', []),
        ('{"scores": 1}', []),
        ('{"Score": 1}', []),
        ("", []),
    ],
)
def test_a_candidate_is_an_outermost_object_that_holds_a_quoted_key(
    text: str, candidates: list[str]
) -> None:
    assert candidate_texts(text) == candidates
    assert all(candidate.closed for candidate in scan(text, KEYS).candidates)


@pytest.mark.parametrize(
    "text",
    [
        '{"score": 1',
        '{"score"',
        '{"sco',
        '{"',
        "{",
        "{ \n",
        '{ "image_i',
        '{"a": {"score": 1}',
    ],
)
def test_a_candidate_may_break_off(text: str) -> None:
    scanned = scan(f"Here: {text}", KEYS)
    assert [(candidate.text, candidate.closed) for candidate in scanned.candidates] == [
        (text, False)
    ]


@pytest.mark.parametrize(
    "text", ["{x", '{"x', '{"scores', "{'sco", '{"score_of', "{}", "{ }", "{ 1 }"]
)
def test_other_braces_are_prose(text: str) -> None:
    scanned = scan(text, KEYS)
    assert (scanned.candidates, scanned.before, scanned.after) == ((), text, "")


def test_prose_is_kept_as_it_stands_before_and_after_the_last_candidate() -> None:
    scanned = scan('one {two} three {"score": 1} four {"score": 2} five {six}', KEYS)
    assert scanned.before.splitlines() == ["one {two} three ", " four "]
    assert scanned.after == " five {six}"


@pytest.mark.parametrize(
    ("text", "candidates", "ends_in_thought"),
    [
        ('<think>{"score": 1}</think>{"score": 2}', ['{"score": 2}'], False),
        ('{"score": 1}</think>{"score": 2}', ['{"score": 2}'], False),
        ('<think>{</think>{"score": 2}', ['{"score": 2}'], False),
        (
            '<think><think></think>{"score": 1}</think>{"score": 2}',
            ['{"score": 2}'],
            False,
        ),
        ('<Thinking>{"score": 1}</THINK>{"score": 2}', ['{"score": 2}'], False),
        ('{"score": 1} {</think>} {"score": 2}', ['{"score": 2}'], False),
        ('{"score": 1} { </think> 2', [], False),
        ('{"score": "</think>"}', ['{"score": "</think>"}'], False),
        ('{"score": "<think>"}', ['{"score": "<think>"}'], False),
        ('{"score": 1}<think>{"score": 2}</think>', ['{"score": 1}'], False),
        ('<think>{"score": 1}', [], True),
        ('{"score": 1}<think>', ['{"score": 1}'], True),
        ('<think><think></think>{"score": 1}', [], True),
        ('{<think>}{"score": 1}', [], True),
        ("<thinker>", [], False),
    ],
)
def test_thoughts_are_set_aside(
    text: str, candidates: list[str], ends_in_thought: bool
) -> None:
    assert candidate_texts(text) == candidates
    assert scan(text, KEYS).ends_in_thought is ends_in_thought


def test_thoughts_are_no_prose() -> None:
    scanned = scan('a</think>b<think>c</think>d{"score": 1}e<think>f</think>g', KEYS)
    assert (scanned.before, scanned.after) == ("b\nd", "e\ng")


@pytest.mark.parametrize(
    ("value", "depth"), [("[" * 40 + "]" * 40, 41), ('"' + "[" * 40 + '"', 1)]
)
def test_nesting_is_measured_outside_strings(value: str, depth: int) -> None:
    assert scan(f'{{"score": {value}}}', KEYS).candidates[0].depth == depth


@pytest.mark.parametrize("piece", ["{", "{}", '{"score": 1}', '{"score": ["', "{[,,,"])
def test_more_brackets_than_any_answer_has_are_given_up(piece: str) -> None:
    with raises(NoAnswer, "too_complex"):
        scan(piece * (replies.MAX_TOKENS + 1), KEYS)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("```json\n```", ""),
        ("```\n\n~~~\n", ""),
        ("  ```json  \r\n", ""),
        ("````c++\n", ""),
        ("``", "``"),
        ("Here:\n```json\n", "Here:"),
        ("```json of mine", "```json of mine"),
        ("a ```", "a ```"),
    ],
)
def test_fences_are_no_prose(text: str, rest: str) -> None:
    assert without_fences(text) == rest


def test_blocks_are_the_closed_objects() -> None:
    text = 'a {b} {c {d}} "{" {e'
    assert [text[start:end] for start, end in blocks(text)] == ["{b}", "{c {d}}"]


@given(st.text(alphabet='{}[]"\\<>/think sco re\n', max_size=60))
def test_what_is_found_stands_in_the_text_in_order(text: str) -> None:
    position = 0
    for candidate in scan(text, KEYS).candidates:
        position = text.index(candidate.text, position) + len(candidate.text)
        assert candidate.text.startswith("{")
        assert not candidate.closed or candidate.text.endswith("}")


# --- strict JSON ----------------------------------------------------------------------------------------------


def why_not(text: str) -> NoAnswer:
    with pytest.raises(NoAnswer) as caught:
        decode(text)
    return caught.value


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17) + 1, 10**18 - 1)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("ab\u00e4\U0001f600", max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(values, st.booleans())
def test_what_json_writes_is_read_back(value: Any, ascii_only: bool) -> None:
    assert decode(json.dumps(value, ensure_ascii=ascii_only)) == value


@given(st.floats())
def test_no_float_is_ever_read_as_an_integer(number: float) -> None:
    if math.isfinite(number):
        read = decode(json.dumps(number))
        assert isinstance(read, WrittenNumber) and read == json.dumps(number)
    else:
        assert why_not(json.dumps(number)).code == "not_json"


@pytest.mark.parametrize(
    "text",
    [
        "6.0",
        "-0",
        "-0.0",
        "6e0",
        "1E400",
        "1e-400",
        "9" * 19,
        "-" + "9" * 18,
        "9" * 100_000,
    ],
)
def test_a_number_that_is_no_plain_integer_is_kept_as_written(text: str) -> None:
    read = decode(text)
    assert isinstance(read, WrittenNumber) and read == text


@pytest.mark.parametrize("text", ["0", "7", "-1", "9" * 18])
def test_a_plain_integer_is_one(text: str) -> None:
    read = decode(text)
    assert type(read) is int and str(read) == text


@pytest.mark.parametrize(
    "text",
    [
        *[
            "NaN",
            "Infinity",
            "-Infinity",
            "01",
            "+1",
            "1.",
            ".5",
            "0x1",
            "1_0",
            "\uff16",
            "\u0661",
            "True",
            "None",
        ],
        *[
            "{'a': 1}",
            "{a: 1}",
            '{"a": 1,}',
            "[1,]",
            "[1 2]",
            '{"a" 1}',
            '{"a": 1} {"a": 1}',
            "{1: 2}",
            "/**/1",
            "",
        ],
        *[
            '"\n"',
            '"\t"',
            '"\\x"',
            '"\\u12"',
            '"\\ud800"',
            '"\\udc00\\ud800"',
            '{"\\ud800": 1}',
            '"a',
            "[[",
            '{"a":',
        ],
    ],
)
def test_what_is_not_strict_json_is_refused(text: str) -> None:
    assert why_not(text).code == "not_json"


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 1}', '[{"b": {"a": 1, "\\u0061": 2}}]', '{"": 1, "": 2}']
)
def test_a_duplicate_key_is_refused_at_any_depth(text: str) -> None:
    assert why_not(text).code == "duplicate_key"


def test_the_same_key_in_two_objects_is_no_duplicate() -> None:
    assert decode('{"a": {"a": 1}, "b": {"a": 2}}') == {"a": {"a": 1}, "b": {"a": 2}}


def test_a_whole_surrogate_pair_is_text() -> None:
    assert decode(r'"\ud83d\ude00"') == "\U0001f600"


def test_a_text_that_breaks_off_is_told_from_one_that_is_wrong() -> None:
    text = '{"a": "x\\ud83d\\ude00 \\n\\\\", "b": true, "c": -1.5e+3, "d": null, "e": [1, {"f": false}]}'
    decode(text)
    for cut in range(1, len(text)):
        assert why_not(text[:cut]).at_end, text[:cut]


@pytest.mark.parametrize(
    "text", ['{"a": 1,}', '{"a": nule}', '{"a": "\\u00zz"}', "{'a': 1", '{"a": NaN']
)
def test_a_text_that_is_wrong_before_its_end_does_not_count_as_breaking_off(
    text: str,
) -> None:
    assert not why_not(text).at_end
