"""JSON by the letter."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editjudge.rubrics.replies import NotStrict, WrittenNumber, decode


def why_not(text: str) -> NotStrict:
    with pytest.raises(NotStrict) as caught:
        decode(text)
    return caught.value


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17) + 1, 10**18 - 1)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("ab\u00e4\U0001f600", max_size=3), inner, max_size=4)
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
    "text", ["6.0", "-0", "-0.0", "6e0", "1E400", "1e-400", "9" * 19, "-" + "9" * 18, "9" * 100_000]
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
        *["NaN", "Infinity", "-Infinity", "01", "+1", "1.", ".5", "0x1", "1_0", "\uff16", "\u0661", "True", "None"],
        *["{'a': 1}", "{a: 1}", '{"a": 1,}', "[1,]", "[1 2]", '{"a" 1}', '{"a": 1} {"a": 1}', "{1: 2}", "/**/1", ""],
        *['"\n"', '"\t"', '"\\x"', '"\\u12"', '"\\ud800"', '"\\udc00\\ud800"', '{"\\ud800": 1}', '"a', "[[", '{"a":'],
    ],
)
def test_what_is_not_strict_json_is_refused(text: str) -> None:
    assert why_not(text).code == "not_json"


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '[{"b": {"a": 1, "\\u0061": 2}}]', '{"": 1, "": 2}'])
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


@pytest.mark.parametrize("text", ['{"a": 1,}', '{"a": nule}', '{"a": "\\u00zz"}', "{'a': 1", '{"a": NaN'])
def test_a_text_that_is_wrong_before_its_end_does_not_count_as_breaking_off(text: str) -> None:
    assert not why_not(text).at_end
