"""Chat completions: the body that is sent, and what is made of every kind of response."""

from __future__ import annotations

import base64
import email.utils
import json
import time
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editjudge.errors import UsageError
from editjudge.judgement import Usage
from editjudge.judges import openai, wire
from editjudge.judges.failures import CallFailed
from editjudge.judges.judge import Options
from editjudge.judges.wire import Conversation, RejectedTurn
from editjudge.media.image import EncodedImage
from editjudge.rubrics.prompt import ImagePart, TextPart
from tests.faults import raises, shows

PNG = base64.b64encode(b"\x89PNG not really")
JPEG = base64.b64encode(b"\xff\xd8 nor this")
SCHEMA = {
    "type": "object",
    "properties": {"z": {"type": "string"}, "a": {"type": "integer"}},
}
NOTHING_SET = Options()
QUESTION = Conversation(
    parts=(
        TextPart("Input:"),
        ImagePart("input"),
        TextPart("Edited:"),
        ImagePart("edited"),
        TextPart("Judge."),
    ),
    images={
        "input": EncodedImage("image/png", PNG),
        "edited": EncodedImage("image/jpeg", JPEG),
    },
)
texts = st.text(st.characters(exclude_categories=["Cs"]))


def sent(
    conversation: Conversation, parameters: Options = NOTHING_SET, **options: Any
) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(
        b"".join(openai.request(conversation, "m", parameters, **options).body)
    )
    return body


def answer(message: dict[str, Any], finish: str | None = "stop", **more: Any) -> bytes:
    return json.dumps(
        {"choices": [{"index": 0, "message": message, "finish_reason": finish}], **more}
    ).encode()


def problem(
    status: int, error: object = None, headers: dict[str, str] | None = None
) -> CallFailed:
    body = error if isinstance(error, bytes) else json.dumps({"error": error}).encode()
    with pytest.raises(CallFailed) as caught:
        openai.reply(status, headers or {}, body)
    return caught.value


# --- requests -------------------------------------------------------------------------------------------------


def test_parts_keep_their_order_and_pictures_become_data_urls() -> None:
    assert openai.request(QUESTION, "m", Options()).path == "chat/completions"
    assert sent(QUESTION) == {
        "model": "m",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Input:"},
                    {
                        "type": "image_url",
                        "image_url": {"url": f"data:image/png;base64,{PNG.decode()}"},
                    },
                    {"type": "text", "text": "Edited:"},
                    {
                        "type": "image_url",
                        "image_url": {"url": f"data:image/jpeg;base64,{JPEG.decode()}"},
                    },
                    {"type": "text", "text": "Judge."},
                ],
            }
        ],
    }


def test_a_picture_is_handed_on_and_never_copied() -> None:
    body = openai.request(QUESTION, "m", Options()).body
    assert [piece for piece in body if piece is PNG or piece is JPEG] == [PNG, JPEG]
    assert len(body) == 5


def test_turns_follow_the_question() -> None:
    asked = Conversation(
        QUESTION.parts,
        QUESTION.images,
        turns=(RejectedTurn("so so", "JSON, please"), RejectedTurn("", "again")),
    )
    assert sent(asked)["messages"][1:] == [
        {"role": "assistant", "content": "so so"},
        {"role": "user", "content": "JSON, please"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "again"},
    ]


def test_settings_are_sent_only_where_they_are_set() -> None:
    command = Options(
        temperature=0.0,
        seed=7,
        max_tokens=99,
        reasoning_effort="low",
        extra={"top_p": 0.5},
    )
    body = sent(QUESTION, command)
    assert {key: body[key] for key in body if key not in ("model", "messages")} == {
        "temperature": 0.0,
        "seed": 7,
        "max_completion_tokens": 99,
        "reasoning_effort": "low",
        "top_p": 0.5,
    }


def test_compatible_servers_get_the_older_name_of_the_token_limit() -> None:
    body = sent(QUESTION, Options(max_tokens=99), max_tokens_field="max_tokens")
    assert body["max_tokens"] == 99 and "max_completion_tokens" not in body


def test_a_schema_is_requested_under_a_name_that_servers_take() -> None:
    asked = Conversation(
        QUESTION.parts,
        QUESTION.images,
        schema=MappingProxyType(SCHEMA),
        schema_name="my rubric!",
    )
    expected = {
        "type": "json_schema",
        "json_schema": {"name": "my_rubric_", "strict": True, "schema": SCHEMA},
    }
    assert sent(asked)["response_format"] == expected


def test_the_properties_of_a_schema_keep_their_order() -> None:
    command = Conversation(QUESTION.parts, QUESTION.images, schema=SCHEMA)
    assert b'"z"' in (tail := openai.request(command, "m", Options()).body[-1])
    assert tail.index(b'"z"') < tail.index(b'"a"')


@pytest.mark.parametrize("key", ["messages", "model", "stream", "n"])
def test_extra_parameters_cannot_replace_the_question(key: str) -> None:
    with raises(UsageError, "reserved_parameter", f'"{key}"'):
        sent(QUESTION, Options(extra={key: []}))


def test_extra_parameters_cannot_replace_a_setting() -> None:
    with raises(UsageError, "parameter_set_twice", "temperature"):
        sent(QUESTION, Options(temperature=0, extra={"temperature": 1}))


def test_equal_extras_are_equal_bytes() -> None:
    one = {"b": 1, "a": 2}
    other = {"a": 2, "b": 1}
    bodies = [
        openai.request(QUESTION, "m", Options(extra=extra)).body
        for extra in (one, other)
    ]
    assert bodies[0] == bodies[1]


def test_a_picture_that_is_missing_is_named() -> None:
    with raises(UsageError, "missing_image", "mask"):
        sent(Conversation((ImagePart("mask"),), {}))


@given(st.lists(texts, min_size=1, max_size=4), texts, texts)
def test_any_text_arrives_as_it_was(parts: list[str], said: str, told: str) -> None:
    shown = tuple(
        part for text in parts for part in (TextPart(text), ImagePart("input"))
    )
    body = sent(Conversation(shown, QUESTION.images, turns=(RejectedTurn(said, told),)))
    content = body["messages"][0]["content"]
    assert [part["text"] for part in content if part["type"] == "text"] == parts
    assert {
        part["image_url"]["url"] for part in content if part["type"] == "image_url"
    } == {f"data:image/png;base64,{PNG.decode()}"}
    assert [message["content"] for message in body["messages"][1:]] == [said, told]


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | texts,
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4)
        ),
    ),
    texts,
)
def test_a_document_in_pieces_is_the_document(node: Any, prefix: str) -> None:
    whole = {
        "before": node,
        "pictures": [node, {"it": wire.Spliced(PNG, prefix)}],
        "after": node,
    }
    plain = {
        "before": node,
        "pictures": [node, {"it": prefix + PNG.decode()}],
        "after": node,
    }
    joined = b"".join(wire.encode(whole))
    assert json.loads(joined) == plain
    assert (
        joined == json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()
    )


def test_half_a_surrogate_pair_is_refused_with_its_surroundings() -> None:
    with raises(UsageError, "not_text", r"blue \ud83d car"):
        sent(Conversation((TextPart("make the blue \ud83d car red"),), {}))


def test_half_a_surrogate_pair_that_a_model_wrote_does_not_keep_it_from_being_asked_again() -> (
    None
):
    asked = Conversation(
        (TextPart("Judge."),), {}, turns=(RejectedTurn("so \ud83d so 😀", "again"),)
    )
    assert sent(asked)["messages"][1]["content"] == "so � so 😀"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}])
def test_what_has_no_form_in_json_is_refused(value: object) -> None:
    with raises(UsageError, "not_json"):
        sent(QUESTION, Options(extra={"odd": value}))


# --- replies --------------------------------------------------------------------------------------------------


def test_an_answer_comes_with_its_usage_model_and_request() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 60},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    body = answer(
        {"role": "assistant", "content": "{}"},
        model="m-2026",
        usage=usage,
        id="chatcmpl-1",
    )
    reply = openai.reply(200, {"X-Request-ID": "req_1"}, body)
    assert (reply.text, reply.finish, reply.model, reply.request_id) == (
        "{}",
        "stop",
        "m-2026",
        "req_1",
    )
    assert reply.usage == Usage(100, 20, 60, 5)


def test_what_the_server_does_not_say_is_unknown() -> None:
    reply = openai.reply(
        200,
        {},
        answer(
            {"content": "{}"}, None, id="chatcmpl-1", usage={"prompt_tokens": "many"}
        ),
    )
    assert (reply.finish, reply.model, reply.request_id, reply.usage) == (
        "stop",
        None,
        "chatcmpl-1",
        Usage(),
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("yes", "yes"),
        (None, ""),
        (
            [
                {"type": "text", "text": "a"},
                {"type": "thinking", "text": "hm"},
                {"type": "text", "text": "b"},
            ],
            "ab",
        ),
        ([{"type": "text"}, None, 3], ""),
    ],
)
def test_content_may_be_text_nothing_or_parts(content: object, text: str) -> None:
    message = {
        "content": content,
        "reasoning_content": "let me think",
        "reasoning": "let me think",
    }
    assert openai.reply(200, {}, answer(message)).text == text


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "refusal"),
        ("tool_calls", "stop"),
        ("eos", "stop"),
    ],
)
def test_the_finish_is_one_of_three(reason: str, finish: str) -> None:
    assert openai.reply(200, {}, answer({"content": "x"}, reason)).finish == finish


def test_a_refusal_is_kept_as_what_was_said() -> None:
    reply = openai.reply(
        200, {}, answer({"content": None, "refusal": "I can't assist with that."})
    )
    assert (reply.text, reply.finish) == ("I can't assist with that.", "refusal")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<!DOCTYPE html><html><head><title>Welcome</title></head></html>",
        b'{"choices": [{"message": {"content": "tru',
        b'{"choices": []}',
        b'{"choices": [null]}',
        b'{"choices": [{"message": null}]}',
        b"[" * 100_000,
        b"[1]",
        b"\xff\xfe\x00",
    ],
)
def test_a_success_without_an_answer_may_pass(body: bytes) -> None:
    found = problem(200, body)
    assert found.kind == "server" and found.is_transient
    assert len(str(found)) < 400


def test_an_error_inside_a_success_is_an_error() -> None:
    body = json.dumps({"error": {"code": 429, "message": "slow down"}}).encode()
    assert problem(200, body, {"retry-after": "2"}).retry_after == 2
    inside = json.dumps(
        {"choices": [{"error": {"code": 502, "message": "upstream"}, "message": {}}]}
    ).encode()
    assert problem(200, inside).kind == "server"
    assert problem(200, answer({"content": "{"}, "error")).kind == "server"


# --- errors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (
            429,
            {"message": "Rate limit reached", "code": "rate_limit_exceeded"},
            "rate limit",
        ),
        (
            429,
            {"message": "You exceeded your quota", "code": "insufficient_quota"},
            "key",
        ),
        (
            429,
            {
                "message": "You exceeded your quota",
                "type": "insufficient_quota",
                "code": None,
            },
            "key",
        ),
        (
            400,
            {"message": "Billing hard limit", "code": "billing_hard_limit_reached"},
            "key",
        ),
        (408, None, "timeout"),
        (409, None, "server"),
        (425, None, "server"),
        (500, {"message": "oops"}, "server"),
        (502, None, "server"),
        (503, None, "server"),
        (504, None, "timeout"),
        (529, None, "server"),
        (401, {"message": "no"}, "key"),
        (402, {"message": "Insufficient credits"}, "key"),
        (403, {"message": "no"}, "key"),
        (404, {"message": "no such model"}, "model"),
        (400, {"message": "invalid model ID", "code": "model_not_found"}, "model"),
        (301, None, "model"),
        (400, {"message": "bad temperature", "param": "temperature"}, "request"),
        (413, None, "request"),
        (422, {"message": "bad"}, "request"),
        (
            400,
            {"message": "Invalid parameter: 'response_format' of type 'json_schema'"},
            "schema",
        ),
        (400, {"message": "nope", "param": "response_format"}, "schema"),
        (422, {"message": "This model does not support structured outputs."}, "schema"),
        (400, {"message": "Failed to compile the grammar"}, "schema"),
        (500, {"message": "response_format worker died"}, "server"),
        (400, {"message": "flagged", "code": "content_policy_violation"}, "refusal"),
        (
            400,
            {"message": "The response was filtered", "code": "content_filter"},
            "refusal",
        ),
        (
            400,
            {"message": "triggering Azure OpenAI's content management policy."},
            "refusal",
        ),
        (
            400,
            {"message": "Your prompt was flagged", "code": "invalid_prompt"},
            "refusal",
        ),
        (
            403,
            {
                "message": "flagged",
                "metadata": {"reasons": ["violence"], "flagged_input": "..."},
            },
            "refusal",
        ),
        (400, "a bare string about nothing", "request"),
    ],
)
def test_every_error_has_a_kind(status: int, error: object, kind: str) -> None:
    found = problem(status, error)
    assert (found.kind, found.status) == (kind, status)
    assert str(found).startswith(f"HTTP {status}: ")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "3"}, 3.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "-4"}, 0.0),
        ({"retry-after": "86400"}, 600.0),
        ({"retry-after": "inf"}, 600.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        (
            {
                "retry-after": "Sun, 15 Nov 2026 12:00:30 GMT",
                "Date": "Sun, 15 Nov 2026 12:00:00 GMT",
            },
            30.0,
        ),
        ({"retry-after": "Sun, 15 Nov 2020 12:00:30 GMT"}, 0.0),
    ],
)
def test_a_server_says_how_long_to_wait(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert problem(429, {"message": "slow down"}, headers).retry_after == seconds


def test_a_date_without_a_clock_is_held_against_our_own() -> None:
    wait = problem(
        503,
        None,
        {"retry-after": email.utils.formatdate(time.time() + 60, usegmt=True)},
    ).retry_after
    assert wait is not None and 50 < wait <= 60


def test_what_will_not_pass_is_not_waited_for() -> None:
    assert problem(401, {"message": "no"}, {"retry-after": "3"}).retry_after is None


@pytest.mark.parametrize(
    ("message", "secret"),
    [
        (
            "Incorrect API key provided: sk-proj-abc***********wxyz. You can find",
            "wxyz",
        ),
        ("Incorrect API key provided: hunter2. You can find", "hunter2"),
        ("key sk-ant-api03-AbC_d-e refused", "AbC"),
        ("bad key AIzaSyA-1234567890_abcdefghijklmnopqrstu", "SyA"),
        ("got header Authorization: Bearer abc.def-ghi", "abc.def"),
        ("calling https://host/v1?key=s3cret&x=1", "s3cret"),
        ("Access denied for 0123456789abcdef0123456789abcdef today", "456789abc"),
        ('{"x-api-key": "topsecret"}', "topsecret"),
    ],
)
def test_messages_never_repeat_a_key(message: str, secret: str) -> None:
    shown = str(problem(401, {"message": message}))
    assert secret not in shown and "[key]" in shown


def test_words_that_are_no_keys_stay() -> None:
    message = "This task-oriented model on the basic plan needs a bearer token; API key not valid."
    assert str(problem(401, {"message": message})) == f"HTTP 401: {message}"


@pytest.mark.parametrize(
    "body",
    [
        {
            "object": "error",
            "message": "no such model",
            "type": "NotFoundError",
            "code": 404,
        },  # older vLLM
        {"error": "no such model"},  # Ollama
        {"detail": "no such model"},  # FastAPI
    ],
)
def test_errors_are_read_in_the_forms_of_several_servers(body: dict[str, Any]) -> None:
    found = problem(404, json.dumps(body).encode())
    assert (found.kind, str(found)) == ("model", "HTTP 404: no such model")


def test_messages_are_one_short_line() -> None:
    shown = str(
        problem(400, {"message": "first\x1b[31m\r\nsecond\u202e\x00 " + "long " * 1000})
    )
    assert shown.startswith("HTTP 400: first [31m second long") and shown.endswith("…")
    assert len(shown) <= 320 and shown.isprintable()


def test_the_page_of_a_proxy_is_reduced_to_its_words() -> None:
    page = b"<html><head><style>a{}</style><title>502 Bad Gateway</title></head><body>nginx</body></html>"
    message = str(problem(502, page))
    assert shows(message, "HTTP 502", "502 Bad Gateway", "nginx") and "<" not in message


@given(
    st.integers(100, 599),
    st.binary(max_size=200)
    | st.text().map(lambda text: json.dumps({"error": text}).encode()),
)
def test_any_response_is_a_reply_or_a_problem(status: int, body: bytes) -> None:
    with pytest.raises(CallFailed):
        openai.reply(status, {}, body)
