"""Anthropic's Messages format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from editjudge.errors import UsageError
from editjudge.judgement import Usage
from editjudge.judges import failures, wire
from editjudge.judges.failures import CallFailed
from editjudge.judges.judge import Options
from editjudge.judges.wire import (
    ChatRequest,
    Conversation,
    Reply,
    Spliced,
    count,
    mapping,
    objects,
    string,
)
from editjudge.rubrics.prompt import TextPart
from editjudge.rubrics.verdict import Finish

VERSION = "2026-10-21"
SAMPLING_VERSION = "2023-06-01"
"""Older API version, which accepts sampling parameters. The current version refuses requests that contain any."""
_SAMPLING = ("temperature", "top_p", "top_k")

DEFAULT_MAX_TOKENS = 16_384
"""Token limit, since the format has no default. Twelve factors with reasons take about 1,500 tokens; the rest is for
thinking, and is billed only if it is used.
"""

EFFORTS = ("low", "medium", "high", "xhigh", "max")
_RESERVED = frozenset({"model", "messages", "stream"})


def request(conversation: Conversation, model: str, parameters: Options) -> ChatRequest:
    body = {
        "model": model,
        "max_tokens": parameters.max_tokens or DEFAULT_MAX_TOKENS,
        "messages": list(_messages(conversation)),
        **_settings(conversation, parameters),
    }
    body = wire.merged(body, parameters.extra, _RESERVED)
    version = SAMPLING_VERSION if any(key in body for key in _SAMPLING) else VERSION
    return ChatRequest("v1/messages", wire.encode(body), {"anthropic-version": version})


def _settings(conversation: Conversation, parameters: Options) -> dict[str, object]:
    """Return the optional fields of a request. This format has no seed."""
    settings: dict[str, object] = (
        {"system": conversation.system} if conversation.system else {}
    )
    output: dict[str, object] = {}
    if parameters.temperature is not None:
        settings["temperature"] = parameters.temperature
    match parameters.reasoning_effort:
        case None:
            pass
        case "none":
            settings["thinking"] = {"type": "disabled"}
        case effort if effort in EFFORTS:
            output["effort"] = effort
        case effort:
            raise UsageError(
                f'Anthropic has no reasoning effort "{effort}"; expected none, {", ".join(EFFORTS)}',
                code="unknown_effort",
            )
    if conversation.schema is not None:
        # Current form of structured outputs: `output_config.format`, without a beta header. The vendor's client has
        # dropped the older `output_format` with `structured-outputs-2025-11-13`.
        output["format"] = {"type": "json_schema", "schema": conversation.schema}
    return settings | ({"output_config": output} if output else {})


def _messages(conversation: Conversation) -> Iterator[dict[str, object]]:
    yield {"role": "user", "content": list(_content(conversation))}
    for turn in conversation.turns:
        # The API refuses blank content, and reads two user messages in a row as one.
        if turn.reply.strip():
            yield {"role": "assistant", "content": wire.echoed(turn.reply)}
        yield {"role": "user", "content": turn.feedback}


def _content(conversation: Conversation) -> Iterator[dict[str, object]]:
    for part in conversation.parts:
        if not isinstance(part, TextPart):
            image = wire.image_of(conversation, part)
            source = {"media_type": image.media_type, "data": Spliced(image.data)}
            yield {"type": "image", "source": {"type": "base64", **source}}
        elif part.text.strip():
            yield {"type": "text", "text": part.text}


def reply(status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    """Return the reply in a response. Raise `CallFailed` if it has none."""
    document = wire.document(body)
    if not 200 <= status < 300:
        raise _problem(status, headers, body, document)
    if document.get("type") == "error":  # gateways pass errors on as successes
        kind = string(mapping(document.get("error")).get("type"))
        raise _problem(_STATUSES.get(kind, 502), headers, body, document)
    if not isinstance(document.get("content"), list):
        raise failures.no_answer(body)
    finish = _FINISHES.get(string(document.get("stop_reason")), "stop")
    # Leave out the blocks with the model's thoughts.
    blocks = [b for b in objects(document["content"]) if b.get("type") == "text"]
    text = "".join(string(block.get("text")) for block in blocks)
    if finish == "refusal" and not text:
        text = string(mapping(document.get("stop_details")).get("explanation"))
    return Reply(
        text=text,
        finish=finish,
        usage=_usage(mapping(document.get("usage"))),
        model=string(document.get("model")) or None,
        request_id=wire.header(headers, "request-id", "x-request-id")
        or string(document.get("id"))
        or None,
    )


_FINISHES: dict[str, Finish] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "refusal": "refusal",
}
"""Finish for each stop reason. All other reasons are normal ends, and the contract checks the text."""


def _usage(usage: Mapping[str, object]) -> Usage:
    """Return the token usage. Unlike other APIs, this one does not include cached tokens in the number of input tokens."""
    cached = count(usage.get("cache_read_input_tokens"))
    written = count(usage.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=wire.total(count(usage.get("input_tokens")), written, cached),
        output_tokens=count(usage.get("output_tokens")),
        cached_tokens=cached,
        reasoning_tokens=count(
            mapping(usage.get("output_tokens_details")).get("thinking_tokens")
        ),
    )


# --- errors ---------------------------------------------------------------------------------------------------

_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


def _problem(
    status: int, headers: Mapping[str, str], body: bytes, document: Mapping[str, object]
) -> CallFailed:
    error = mapping(document.get("error"))
    # The status is 429, but the limit is reset only at the end of the month.
    code = mapping(error.get("details")).get("error_code")
    return failures.failure(
        status,
        headers,
        body,
        string(error.get("message")),
        kind="key" if code == "enforced_spend_limit_reached" else None,
        names=[error.get("type")],
    )
