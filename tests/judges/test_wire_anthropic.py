"""Messages: the body that is sent, and what is made of every kind of response."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editjudge.errors import UsageError
from editjudge.judgement import Usage
from editjudge.judges import anthropic
from editjudge.judges.failures import CallFailed
from editjudge.judges.judge import Options
from editjudge.judges.wire import Conversation, RejectedTurn
from editjudge.media.image import EncodedImage
from editjudge.rubrics.prompt import ImagePart, TextPart
from tests.faults import raises

PNG = base64.b64encode(b"\x89PNG not really")
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
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
        "edited": EncodedImage("image/webp", PNG),
    },
)


def sent(
    conversation: Conversation, parameters: Options = NOTHING_SET, **options: Any
) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(
        b"".join(anthropic.request(conversation, "m", parameters, **options).body)
    )
    return body


def version(parameters: Options) -> str:
    return anthropic.request(QUESTION, "m", parameters).headers["anthropic-version"]


def answer(content: object, stop: str = "end_turn", **more: Any) -> bytes:
    return json.dumps(
        {"type": "message", "content": content, "stop_reason": stop, **more}
    ).encode()


def problem(
    status: int, error: object = None, headers: dict[str, str] | None = None
) -> CallFailed:
    body = (
        error
        if isinstance(error, bytes)
        else json.dumps({"type": "error", "error": error}).encode()
    )
    with pytest.raises(CallFailed) as caught:
        anthropic.reply(status, headers or {}, body)
    return caught.value


# --- requests -------------------------------------------------------------------------------------------------


def image(media_type: str) -> dict[str, Any]:
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": media_type, "data": PNG.decode()},
    }


def test_parts_keep_their_order_and_pictures_become_blocks() -> None:
    assert anthropic.request(QUESTION, "m", Options()).path == "v1/messages"
    assert sent(QUESTION) == {
        "model": "m",
        "max_tokens": anthropic.DEFAULT_MAX_TOKENS,
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Input:"},
                    image("image/png"),
                    {"type": "text", "text": "Edited:"},
                    image("image/webp"),
                    {"type": "text", "text": "Judge."},
                ],
            }
        ],
    }


def test_a_picture_is_handed_on_and_never_copied() -> None:
    assert (
        sum(piece is PNG for piece in anthropic.request(QUESTION, "m", Options()).body)
        == 2
    )


def test_the_token_limit_is_always_there() -> None:
    assert sent(QUESTION, Options(max_tokens=5))["max_tokens"] == 5
    assert sent(QUESTION)["max_tokens"] == 16_384


def test_schema_and_effort_stand_in_the_output_config() -> None:
    command = Conversation(QUESTION.parts, QUESTION.images, schema=SCHEMA)
    assert sent(command, Options(reasoning_effort="low", seed=3)) == {
        **sent(QUESTION),
        "output_config": {
            "effort": "low",
            "format": {"type": "json_schema", "schema": SCHEMA},
        },
    }


def test_no_effort_turns_thinking_off() -> None:
    assert sent(QUESTION, Options(reasoning_effort="none"))["thinking"] == {
        "type": "disabled"
    }


def test_an_effort_that_the_vendor_does_not_have_is_refused() -> None:
    with raises(UsageError, "unknown_effort", "minimal"):
        sent(QUESTION, Options(reasoning_effort="minimal"))


@pytest.mark.parametrize(
    "parameters", [Options(temperature=0.0), Options(extra={"top_p": 0.9})]
)
def test_sampling_parameters_need_the_version_that_has_them(
    parameters: Options,
) -> None:
    assert version(parameters) == "2023-06-01"
    assert version(Options()) == "2026-10-21"


def test_blank_turns_and_texts_are_left_out_since_the_server_refuses_them() -> None:
    asked = Conversation(
        (TextPart("Judge."), TextPart(" \n")),
        {},
        turns=(RejectedTurn("no", "JSON, please"), RejectedTurn(" ", "again")),
    )
    assert sent(asked)["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Judge."}]},
        {"role": "assistant", "content": "no"},
        {"role": "user", "content": "JSON, please"},
        {"role": "user", "content": "again"},
    ]


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("messages", "reserved_parameter"),
        ("model", "reserved_parameter"),
        ("stream", "reserved_parameter"),
        ("max_tokens", "parameter_set_twice"),
    ],
)
def test_extra_parameters_cannot_replace_the_question(key: str, code: str) -> None:
    with raises(UsageError, code, f'"{key}"'):
        sent(QUESTION, Options(extra={key: 1}))


def test_extra_parameters_join_an_object_that_is_there() -> None:
    command = Conversation(QUESTION.parts, QUESTION.images, schema=SCHEMA)
    body = sent(command, Options(extra={"output_config": {"effort": "max"}}))
    assert body["output_config"] == {
        "format": {"type": "json_schema", "schema": SCHEMA},
        "effort": "max",
    }
    with raises(UsageError, "parameter_set_twice", "format"):
        sent(command, Options(extra={"output_config": {"format": None}}))


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"])).filter(str.strip),
        min_size=1,
        max_size=4,
    )
)
def test_any_text_arrives_as_it_was(texts: list[str]) -> None:
    body = sent(
        Conversation(
            tuple(map(TextPart, texts)), {}, turns=(RejectedTurn(texts[0], texts[-1]),)
        )
    )
    assert [part["text"] for part in body["messages"][0]["content"]] == texts
    assert [message["content"] for message in body["messages"][1:]] == [
        texts[0],
        texts[-1],
    ]


# --- replies --------------------------------------------------------------------------------------------------


def test_an_answer_comes_with_its_usage_model_and_request() -> None:
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 70,
        "cache_creation_input_tokens": 20,
        "output_tokens": 30,
        "output_tokens_details": {"thinking_tokens": 12},
    }
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": '{"a"'},
        {"type": "text", "text": ": 1}"},
    ]
    reply = anthropic.reply(
        200, {"Request-Id": "req_1"}, answer(content, model="m-1", usage=usage)
    )
    assert (reply.text, reply.finish, reply.model, reply.request_id) == (
        '{"a": 1}',
        "stop",
        "m-1",
        "req_1",
    )
    assert reply.usage == Usage(
        input_tokens=100, output_tokens=30, cached_tokens=70, reasoning_tokens=12
    )


def test_what_the_server_does_not_say_is_unknown() -> None:
    reply = anthropic.reply(200, {}, answer([], id="msg_1"))
    assert (reply.text, reply.model, reply.request_id, reply.usage) == (
        "",
        None,
        "msg_1",
        Usage(),
    )


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
    ],
)
def test_the_finish_is_one_of_three(stop: str, finish: str) -> None:
    assert (
        anthropic.reply(200, {}, answer([{"type": "text", "text": "x"}], stop)).finish
        == finish
    )


def test_the_explanation_of_a_refusal_is_what_was_said() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "Not this."}
    assert (
        anthropic.reply(200, {}, answer([], "refusal", stop_details=details)).text
        == "Not this."
    )


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b'{"type": "message"}', b'{"content": "text"}']
)
def test_a_success_without_an_answer_may_pass(body: bytes) -> None:
    assert problem(200, body).is_transient


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (
            400,
            {"type": "invalid_request_error", "message": "max_tokens: too large"},
            "request",
        ),
        (
            400,
            {
                "type": "invalid_request_error",
                "message": "output_config.effort: not for this model",
            },
            "request",
        ),
        (
            400,
            {
                "type": "invalid_request_error",
                "message": "Your credit balance is too low",
            },
            "key",
        ),
        (
            400,
            {"message": "output_config.format: Extra inputs are not permitted"},
            "schema",
        ),
        (400, {"message": "output_format: Extra inputs are not permitted"}, "schema"),
        (400, {"message": "Schema is too complex for compilation"}, "schema"),
        (400, {"message": "Output blocked by content filtering policy"}, "refusal"),
        (401, {"type": "authentication_error", "message": "invalid x-api-key"}, "key"),
        (402, {"type": "billing_error", "message": "pay"}, "key"),
        (403, {"type": "permission_error", "message": "no"}, "key"),
        (404, {"type": "not_found_error", "message": "model: claude-x"}, "model"),
        (413, {"type": "request_too_large", "message": "large"}, "request"),
        (429, {"type": "rate_limit_error", "message": "slow down"}, "rate limit"),
        (
            429,
            {
                "message": "month",
                "details": {"error_code": "enforced_spend_limit_reached"},
            },
            "key",
        ),
        (500, {"type": "api_error", "message": "oops"}, "server"),
        (504, {"type": "timeout_error", "message": "late"}, "timeout"),
        (529, {"type": "overloaded_error", "message": "Overloaded"}, "server"),
        (529, None, "server"),
    ],
)
def test_every_error_has_a_kind(status: int, error: object, kind: str) -> None:
    found = problem(status, error)
    assert (found.kind, found.status) == (kind, status)


def test_an_error_inside_a_success_is_an_error() -> None:
    assert (
        problem(200, {"type": "overloaded_error", "message": "Overloaded"}).status
        == 529
    )
    assert problem(200, {"type": "something_new", "message": "?"}).kind == "server"


def test_an_overloaded_server_says_how_long_to_wait() -> None:
    assert problem(529, None, {"retry-after": "7"}).retry_after == 7


@given(st.integers(100, 599), st.binary(max_size=100))
def test_any_response_is_a_reply_or_a_problem(status: int, body: bytes) -> None:
    with pytest.raises(CallFailed):
        anthropic.reply(status, {}, body)
