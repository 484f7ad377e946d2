"""generateContent: the body that is sent, and what is made of every kind of response."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editjudge.errors import UsageError
from editjudge.judgement import Usage
from editjudge.judges import google
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
    parts=(TextPart("Input:"), ImagePart("input"), TextPart("Judge.")),
    images={"input": EncodedImage("image/png", PNG)},
)
PARTS = [
    {"text": "Input:"},
    {"inlineData": {"mimeType": "image/png", "data": PNG.decode()}},
    {"text": "Judge."},
]


def sent(
    conversation: Conversation,
    parameters: Options = NOTHING_SET,
    model: str = "gemini-3-pro",
) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(
        b"".join(google.request(conversation, model, parameters).body)
    )
    return body


def answer(parts: object, finish: str = "STOP", **more: Any) -> bytes:
    candidate = {
        "index": 0,
        "finishReason": finish,
        "content": {"role": "model", "parts": parts},
    }
    return json.dumps({"candidates": [candidate], **more}).encode()


def problem(
    status: int, error: object = None, headers: dict[str, str] | None = None
) -> CallFailed:
    body = error if isinstance(error, bytes) else json.dumps({"error": error}).encode()
    with pytest.raises(CallFailed) as caught:
        google.reply(status, headers or {}, body)
    return caught.value


# --- requests -------------------------------------------------------------------------------------------------


def test_parts_keep_their_order_and_nothing_is_set_that_was_not_asked_for() -> None:
    assert sent(QUESTION) == {"contents": [{"role": "user", "parts": PARTS}]}


def test_a_picture_is_handed_on_and_never_copied() -> None:
    assert (
        sum(piece is PNG for piece in google.request(QUESTION, "m", Options()).body)
        == 1
    )


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-3-pro", "v1beta/models/gemini-3-pro:generateContent"),
        ("models/gemini-3-pro", "v1beta/models/gemini-3-pro:generateContent"),
        ("tunedModels/mine", "v1beta/tunedModels/mine:generateContent"),
        ("a?key=b#c", "v1beta/models/a%3Fkey%3Db%23c:generateContent"),
    ],
)
def test_the_model_stands_in_the_path(model: str, path: str) -> None:
    assert google.request(QUESTION, model, Options()).path == path


def test_settings_stand_in_the_generation_config() -> None:
    command = Conversation(QUESTION.parts, QUESTION.images, schema=SCHEMA)
    parameters = Options(
        temperature=0.0,
        seed=7,
        max_tokens=99,
        extra={"safetySettings": [], "generationConfig": {"topK": 1}},
    )
    assert sent(command, parameters) == {
        "contents": [{"role": "user", "parts": PARTS}],
        "generationConfig": {
            "temperature": 0.0,
            "seed": 7,
            "maxOutputTokens": 99,
            "responseMimeType": "application/json",
            "responseJsonSchema": SCHEMA,
            "topK": 1,
        },
        "safetySettings": [],
    }


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        ("gemini-3-pro", "low", {"thinkingLevel": "LOW"}),
        ("gemini-3.5-flash", "minimal", {"thinkingLevel": "MINIMAL"}),
        ("gemini-flash-latest", "high", {"thinkingLevel": "HIGH"}),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
        ("models/gemini-2.5-pro", "medium", {"thinkingBudget": 8192}),
    ],
)
def test_effort_is_a_level_or_in_older_models_a_budget(
    model: str, effort: str, thinking: dict[str, Any]
) -> None:
    config = sent(QUESTION, Options(reasoning_effort=effort), model)["generationConfig"]
    assert config == {"thinkingConfig": thinking}


@pytest.mark.parametrize(
    ("model", "effort"), [("gemini-3-pro", "none"), ("gemini-2.5-pro", "max")]
)
def test_an_effort_that_the_model_does_not_have_is_refused(
    model: str, effort: str
) -> None:
    with raises(UsageError, "unknown_effort", f'"{effort}"'):
        sent(QUESTION, Options(reasoning_effort=effort), model)


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ({"contents": []}, "reserved_parameter"),
        ({"generationConfig": {"seed": 1}}, "parameter_set_twice"),
    ],
)
def test_extra_parameters_cannot_replace_what_is_there(
    extra: dict[str, Any], code: str
) -> None:
    with raises(UsageError, code):
        sent(QUESTION, Options(seed=3, extra=extra))


def test_turns_follow_the_question_without_empty_parts() -> None:
    asked = Conversation(
        (TextPart("Judge."),),
        {},
        turns=(RejectedTurn("no", "JSON, please"), RejectedTurn("", "again")),
    )
    assert sent(asked)["contents"][1:] == [
        {"role": "model", "parts": [{"text": "no"}]},
        {"role": "user", "parts": [{"text": "JSON, please"}]},
        {"role": "user", "parts": [{"text": "again"}]},
    ]


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
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
    parts = [
        [part["text"] for part in content["parts"]] for content in body["contents"]
    ]
    assert parts == [texts, [texts[0]], [texts[-1]]]


# --- replies --------------------------------------------------------------------------------------------------


def test_an_answer_comes_with_its_usage_model_and_request() -> None:
    usage = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 30,
        "totalTokenCount": 150,
    }
    parts = [
        {"text": "hm", "thought": True},
        {"text": '{"a"'},
        {"text": ": 1}", "thoughtSignature": "x"},
    ]
    reply = google.reply(
        200,
        {},
        answer(parts, usageMetadata=usage, modelVersion="m-001", responseId="r1"),
    )
    assert (reply.text, reply.finish, reply.model, reply.request_id) == (
        '{"a": 1}',
        "stop",
        "m-001",
        "r1",
    )
    assert reply.usage == Usage(
        input_tokens=100, output_tokens=50, cached_tokens=60, reasoning_tokens=30
    )


def test_what_the_server_does_not_say_is_unknown() -> None:
    reply = google.reply(200, {}, b'{"candidates": [{"finishReason": "SAFETY"}]}')
    assert (reply.text, reply.finish, reply.model, reply.usage) == (
        "",
        "refusal",
        None,
        Usage(),
    )


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "refusal"),
        ("RECITATION", "refusal"),
        ("PROHIBITED_CONTENT", "refusal"),
        ("SPII", "refusal"),
        ("BLOCKLIST", "refusal"),
        ("MALFORMED_RESPONSE", "stop"),
    ],
)
def test_the_finish_is_one_of_three(reason: str, finish: str) -> None:
    assert google.reply(200, {}, answer([{"text": "x"}], reason)).finish == finish


def test_a_blocked_question_is_a_refusal_that_says_why() -> None:
    found = problem(200, b'{"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}')
    assert (found.kind, str(found)) == (
        "refusal",
        "the question was blocked: PROHIBITED_CONTENT",
    )


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"{}", b'{"candidates": []}', b'{"promptFeedback": {}}']
)
def test_a_success_without_an_answer_may_pass(body: bytes) -> None:
    assert problem(200, body).is_transient


def detail(kind: str, **fields: Any) -> dict[str, Any]:
    return {"@type": f"type.googleapis.com/google.rpc.{kind}", **fields}


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (
            400,
            {"status": "INVALID_ARGUMENT", "message": "Unable to process input image."},
            "image",
        ),
        (
            400,
            {
                "message": "no",
                "details": [detail("ErrorInfo", reason="API_KEY_INVALID")],
            },
            "key",
        ),
        (400, {"message": "API key not valid. Please pass a valid API key."}, "key"),
        (
            400,
            {
                "status": "FAILED_PRECONDITION",
                "message": "User location is not supported",
            },
            "key",
        ),
        (
            400,
            {"message": "Unknown name \"responseJsonSchema\" at 'generation_config'"},
            "schema",
        ),
        (
            400,
            {
                "message": "The specified schema produces a constraint that has too many states"
            },
            "schema",
        ),
        (400, {"message": "JSON mode is not enabled for this model"}, "schema"),
        (403, {"status": "PERMISSION_DENIED", "message": "no"}, "key"),
        (404, {"status": "NOT_FOUND", "message": "models/x is not found"}, "model"),
        (429, {"status": "RESOURCE_EXHAUSTED", "message": "quota"}, "rate limit"),
        (
            429,
            {
                "details": [
                    detail(
                        "QuotaFailure",
                        violations=[{"quotaId": "GenerateRequestsPerDay"}],
                    )
                ]
            },
            "key",
        ),
        (
            429,
            {
                "details": [
                    detail(
                        "QuotaFailure", violations=[{"quotaId": "GeneratePerMinute"}]
                    )
                ]
            },
            "rate limit",
        ),
        (500, {"status": "INTERNAL", "message": "oops"}, "server"),
        (503, {"status": "UNAVAILABLE", "message": "overloaded"}, "server"),
        (504, {"status": "DEADLINE_EXCEEDED", "message": "late"}, "timeout"),
    ],
)
def test_every_error_has_a_kind(status: int, error: object, kind: str) -> None:
    found = problem(status, error)
    assert (found.kind, found.status) == (kind, status)


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [
        ("34.074824224s", 34.074824224),
        ("0s", 0.0),
        ("9000s", 600.0),
        ("soon", 5.0),
        (None, 5.0),
    ],
)
def test_a_delay_among_the_details_goes_before_the_header(
    delay: str | None, seconds: float
) -> None:
    error = {
        "message": "quota",
        "details": [detail("Help"), detail("RetryInfo", retryDelay=delay), None],
    }
    assert problem(429, error, {"retry-after": "5"}).retry_after == seconds


@given(st.integers(100, 599), st.binary(max_size=100))
def test_any_response_is_a_reply_or_a_problem(status: int, body: bytes) -> None:
    with pytest.raises(CallFailed):
        google.reply(status, {}, body)
