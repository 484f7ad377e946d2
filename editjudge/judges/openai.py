"""OpenAI's chat completions format, which Azure, OpenRouter and self-hosted servers also use."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from editjudge.judgement import Usage
from editjudge.judges import failures, wire
from editjudge.judges.failures import CallFailed, ProblemKind
from editjudge.judges.judge import Options
from editjudge.judges.wire import (
    ChatRequest,
    Conversation,
    Reply,
    Spliced,
    TokenChoice,
    count,
    mapping,
    objects,
    string,
)
from editjudge.rubrics.prompt import TextPart
from editjudge.rubrics.verdict import Finish

MaxTokensField = Literal["max_completion_tokens", "max_tokens"]
"""Request field for the token limit. OpenAI's reasoning models refuse the older `max_tokens`, but many compatible
servers support only that.
"""

SchemaRequest = Literal["json_schema", "json_object", "guided_json"]
"""Request field for the schema: OpenAI's `response_format`, its older form with the type `json_object` in llama.cpp and
others, or the field of older vLLM versions.
"""

_RESERVED = frozenset({"model", "messages", "stream", "n"})


def request(
    conversation: Conversation,
    model: str,
    parameters: Options,
    *,
    max_tokens_field: MaxTokensField = "max_completion_tokens",
    schema_request: SchemaRequest = "json_schema",
) -> ChatRequest:
    """Return a POST request for a server whose base URL ends in `/v1`."""
    settings = {
        "temperature": parameters.temperature,
        "seed": parameters.seed,
        max_tokens_field: parameters.max_tokens,
        "reasoning_effort": parameters.reasoning_effort,
        "n": conversation.choices if conversation.choices > 1 else None,
        "logprobs": True if conversation.top_logprobs is not None else None,
        "top_logprobs": conversation.top_logprobs,
        # The user's parameters may be merged into the field of the schema.
        **_schema_fields(
            conversation, schema_request, keep_open=bool(parameters.extra)
        ),
    }
    body = {
        "model": model,
        "messages": list(_messages(conversation)),
        **{key: value for key, value in settings.items() if value is not None},
    }
    return ChatRequest(
        "chat/completions",
        wire.encode(wire.merged(body, parameters.extra, _RESERVED)),
    )


def _messages(conversation: Conversation) -> Iterator[dict[str, object]]:
    if conversation.system:
        yield {"role": "system", "content": conversation.system}
    yield {"role": "user", "content": list(_content(conversation))}
    for turn in conversation.turns:
        yield {"role": "assistant", "content": wire.echoed(turn.reply)}
        yield {"role": "user", "content": turn.feedback}


def _content(conversation: Conversation) -> Iterator[dict[str, object]]:
    for part in conversation.parts:
        if isinstance(part, TextPart):
            yield {"type": "text", "text": wire.encoded(part.text)}
        else:
            image = wire.image_of(conversation, part)
            url = Spliced(image.data, f"data:{image.media_type};base64,")
            yield {"type": "image_url", "image_url": {"url": url}}


def _schema_fields(
    conversation: Conversation, how: SchemaRequest, *, keep_open: bool
) -> dict[str, object]:
    if conversation.schema is None:
        return {}
    schema = conversation.schema if keep_open else wire.encoded(conversation.schema)
    if how == "guided_json":
        return {"guided_json": schema}
    if how == "json_object":
        return {"response_format": {"type": "json_object", "schema": schema}}
    # A rubric may have any name, but the characters of a schema's name are restricted.
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", conversation.schema_name)[:64] or "answer"
    described = {"name": name, "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": described}}


def reply(status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    """Return the reply in a response. Raise `CallFailed` if it has none."""
    document = wire.document(body)
    if not 200 <= status < 300:
        raise _problem(status, headers, body, document)
    choices = document.get("choices")
    choice = wire.first(choices)
    # OpenRouter has already sent status 200 when a model fails, and puts the error into the answer.
    failed = mapping(document.get("error")) or mapping(mapping(choice).get("error"))
    if failed:
        status = count(failed.get("code")) or 502
        raise _problem(status, headers, body, {"error": failed})
    if choice is None or not isinstance(choice.get("message"), dict):
        raise failures.no_answer(body)
    if _broken_off(choice):
        raise CallFailed("server", "the server broke the answer off", status=status)
    make = functools.partial(
        Reply,
        usage=_usage(mapping(document.get("usage"))),
        model=string(document.get("model")) or None,
        request_id=wire.header(headers, "x-request-id", "apim-request-id")
        or string(document.get("id"))
        or None,
    )
    others = objects(choices)[1:]
    replies = [_of_choice(other, make) for other in others if _is_reply(other)]
    return _of_choice(choice, make, tuple(replies))


def _is_reply(choice: Mapping[str, object]) -> bool:
    return (
        isinstance(choice.get("message"), dict)
        and not choice.get("error")
        and not _broken_off(choice)
    )


def _broken_off(choice: Mapping[str, object]) -> bool:
    return string(choice.get("finish_reason")) in ("error", "abort")


def _of_choice(
    choice: Mapping[str, object],
    make: Callable[..., Reply],
    others: tuple[Reply, ...] = (),
) -> Reply:
    message = mapping(choice.get("message"))
    refusal = string(message.get("refusal"))
    finish = _FINISHES.get(string(choice.get("finish_reason")), "stop")
    return make(
        text=_text(message.get("content")) or refusal,
        finish="refusal" if refusal else finish,
        tokens=_tokens(choice.get("logprobs")),
        others=others,
    )


_FINISHES: dict[str, Finish] = {
    "length": "length",
    "max_tokens": "length",
    "content_filter": "refusal",
}
"""Finish for each finish reason of the API. All other reasons are normal ends, and the contract checks the text."""


def _text(content: object) -> str:
    """Return the text of a reply, which may be a list of parts. Thoughts are in a separate field or in parts of another
    type, and are left out.
    """
    if not isinstance(content, list):
        return string(content)
    parts = [p for p in objects(content) if p.get("type") in ("text", "output_text")]
    return "".join(string(part.get("text")) for part in parts)


def _tokens(logprobs: object) -> tuple[TokenChoice, ...]:
    """Return all tokens, or none if one of them is malformed."""
    tokens = []
    for entry in objects(mapping(logprobs).get("content")):
        written = _written(entry)
        if written is None:
            return ()
        others = map(_written, objects(entry.get("top_logprobs")))
        alternatives = tuple(other for other in others if other)
        tokens.append(TokenChoice(*written, alternatives))
    return tuple(tokens)


def _written(entry: Mapping[str, object]) -> tuple[bytes, float] | None:
    """Return a token's bytes and the logarithm of its probability, or None if either is invalid."""
    logprob = entry.get("logprob")
    data = entry.get("bytes")
    if isinstance(logprob, bool) or not isinstance(logprob, int | float):
        return None
    if math.isnan(logprob):
        return None
    try:
        if not isinstance(data, list):
            data = string(entry.get("token")).encode()
        return bytes(data), float(logprob)
    except (TypeError, ValueError, OverflowError):
        # Invalid bytes, half of a surrogate pair, or a number that is too large.
        return None


def _usage(usage: Mapping[str, object]) -> Usage:
    input_details = mapping(usage.get("prompt_tokens_details"))
    output_details = mapping(usage.get("completion_tokens_details"))
    return Usage(
        input_tokens=count(usage.get("prompt_tokens")),
        output_tokens=count(usage.get("completion_tokens")),
        cached_tokens=count(input_details.get("cached_tokens")),
        reasoning_tokens=count(output_details.get("reasoning_tokens")),
    )


# --- errors ---------------------------------------------------------------------------------------------------

_CODES: dict[str, ProblemKind] = {
    "insufficient_quota": "key",  # a 429 by status, but no waiting helps against an empty account
    "billing_hard_limit_reached": "key",
    "billing_not_active": "key",
    "invalid_api_key": "key",
    "model_not_found": "model",
    "DeploymentNotFound": "model",
    "content_filter": "refusal",  # Azure
    "content_policy_violation": "refusal",
    "image_content_policy_violation": "refusal",
    "moderation_blocked": "refusal",
    "invalid_prompt": "refusal",  # OpenAI of a prompt that it holds against its usage policy
}


def _problem(
    status: int, headers: Mapping[str, str], body: bytes, document: Mapping[str, object]
) -> CallFailed:
    error = document.get("error", document)
    # vLLM and FastAPI put the message at the top level, Ollama sends {"error": "..."}.
    if isinstance(error, str):
        error = {"message": error}
    error = mapping(error)
    message = string(error.get("message")) or string(error.get("detail"))
    names = [error.get(name) for name in ("code", "type", "param")]
    return failures.failure(
        status, headers, body, message, kind=_kind(status, error), names=names
    )


def _kind(status: int, error: Mapping[str, object]) -> ProblemKind | None:
    for field in (error.get("code"), error.get("type")):
        if isinstance(field, str) and field in _CODES:
            return _CODES[field]
    if status == 403 and mapping(error.get("metadata")).get("reasons"):
        return "refusal"  # OpenRouter's moderation, which names what it flagged
    return None
