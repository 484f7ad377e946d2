"""Google's generateContent format."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

from editjudge.errors import UsageError
from editjudge.judgement import Usage
from editjudge.judges import failures, wire
from editjudge.judges.failures import CallFailed, ProblemKind
from editjudge.judges.wire import (
    ChatRequest,
    Conversation,
    Parameters,
    Reply,
    Spliced,
    count,
    mapping,
    string,
)
from editjudge.rubrics.prompt import TextPart
from editjudge.rubrics.verdict import Finish

_RESERVED = frozenset({"contents", "model"})

_LEVELS = ("minimal", "low", "medium", "high")
_BUDGETS = {"none": 0, "minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576}
"""Tokens to think with, for models before Gemini 3: what Google's own OpenAI-compatible address makes of the words."""


def request(
    conversation: Conversation, model: str, parameters: Parameters
) -> ChatRequest:
    settings = {
        "temperature": parameters.temperature,
        "seed": parameters.seed,
        "maxOutputTokens": parameters.max_tokens,
        "thinkingConfig": _thinking(model, parameters.reasoning_effort),
        # Takes JSON Schema as it is; the older `responseSchema` takes a dialect of OpenAPI.
        "responseMimeType": None if conversation.schema is None else "application/json",
        "responseJsonSchema": conversation.schema,
    }
    config = {key: value for key, value in settings.items() if value is not None}
    body: dict[str, Any] = {"contents": list(_contents(conversation))}
    if conversation.system:
        body["systemInstruction"] = {"parts": [{"text": conversation.system}]}
    if config:
        body["generationConfig"] = config
    return ChatRequest(
        _path(model), wire.encode(wire.merged(body, parameters.extra, _RESERVED))
    )


def _path(model: str) -> str:
    name = model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"
    return f"v1beta/{urllib.parse.quote(name, safe='/')}:generateContent"


def _thinking(model: str, effort: str | None) -> dict[str, Any] | None:
    if effort is None:
        return None
    by_budget = re.match(r"(?:models/)?gemini-[12]\b", model)
    efforts = tuple(_BUDGETS) if by_budget else _LEVELS
    if effort not in efforts:
        raise UsageError(
            f'{model} has no reasoning effort "{effort}"; expected {", ".join(efforts)}'
        )
    return (
        {"thinkingBudget": _BUDGETS[effort]}
        if by_budget
        else {"thinkingLevel": effort.upper()}
    )


def _contents(conversation: Conversation) -> Iterator[dict[str, Any]]:
    yield {"role": "user", "parts": list(_parts(conversation))}
    for turn in conversation.turns:
        # A part without content is refused.
        if turn.reply:
            yield {"role": "model", "parts": [{"text": wire.echoed(turn.reply)}]}
        yield {"role": "user", "parts": [{"text": turn.feedback}]}


def _parts(conversation: Conversation) -> Iterator[dict[str, Any]]:
    for part in conversation.parts:
        if isinstance(part, TextPart):
            yield {"text": part.text}
        else:
            image = wire.image_of(conversation, part)
            yield {
                "inlineData": {
                    "mimeType": image.media_type,
                    "data": Spliced(image.data),
                }
            }


def reply(status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    """Return the reply in a response; raise `CallFailed` if there is none."""
    document = wire.document(body)
    if not 200 <= status < 300:
        raise _problem(status, headers, body, document)
    candidate = wire.first(document.get("candidates"))
    if candidate is None:
        if blocked := string(
            mapping(document.get("promptFeedback")).get("blockReason")
        ):
            raise CallFailed(
                "refusal",
                f"the question was blocked: {failures.cleaned(blocked)}",
                status=status,
            )
        raise failures.no_answer(body)
    parts = mapping(candidate.get("content")).get("parts")
    return Reply(
        text=_text(parts if isinstance(parts, list) else []),
        finish=_FINISHES.get(string(candidate.get("finishReason")), "stop"),
        usage=_usage(mapping(document.get("usageMetadata"))),
        model=string(document.get("modelVersion")) or None,
        request_id=string(document.get("responseId"))
        or wire.header(headers, "x-request-id"),
    )


_FINISHES: dict[str, Finish] = {
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal",
    "IMAGE_SAFETY": "refusal",
    "IMAGE_PROHIBITED_CONTENT": "refusal",
    "IMAGE_RECITATION": "refusal",
}
"""All others are ordinary ends: the contract checks the text."""


def _text(parts: list[Any]) -> str:
    """Return the text without the parts in which the model thinks."""
    return "".join(
        string(part.get("text"))
        for part in map(mapping, parts)
        if part.get("thought") is not True
    )


def _usage(usage: Mapping[str, Any]) -> Usage:
    """Return the usage; here, unlike elsewhere, the output leaves out the thoughts, which are paid for as output too."""
    thought = count(usage.get("thoughtsTokenCount"))
    return Usage(
        input_tokens=count(usage.get("promptTokenCount")),
        output_tokens=wire.total(count(usage.get("candidatesTokenCount")), thought),
        cached_tokens=count(usage.get("cachedContentTokenCount")),
        reasoning_tokens=thought,
    )


# --- errors ---------------------------------------------------------------------------------------------------


def _problem(
    status: int, headers: Mapping[str, str], body: bytes, document: Mapping[str, Any]
) -> CallFailed:
    error = mapping(document.get("error"))
    details = error.get("details")
    rows = [mapping(detail) for detail in details] if isinstance(details, list) else []
    message = string(error.get("message"))
    name = string(error.get("status"))
    reasons = [detail.get("reason") for detail in rows]
    kind = _kind(status, name, rows)
    names = [name, *reasons]
    return failures.failure(
        status, headers, body, message, kind=kind, names=names, retry_after=_delay(rows)
    )


def _kind(status: int, name: str, details: list[dict[str, Any]]) -> ProblemKind | None:
    reasons = {string(detail.get("reason")) for detail in details}
    if status == 400 and reasons & {"API_KEY_INVALID", "API_KEY_EXPIRED"}:
        return "key"
    if name == "FAILED_PRECONDITION":
        return (
            "key"  # no billing, or not from this country: the same for every question
        )
    if status == 429 and any("PerDay" in quota for quota in _quotas(details)):
        return "key"  # comes with a delay of seconds, but the day has to end first
    return None


def _quotas(details: list[dict[str, Any]]) -> Iterator[str]:
    for detail in details:
        violations = detail.get("violations")
        for violation in violations if isinstance(violations, list) else []:
            yield string(mapping(violation).get("quotaId"))


def _delay(details: list[dict[str, Any]]) -> float | None:
    """Return the seconds to wait, as `google.rpc.RetryInfo` says it: "34.07s"."""
    for detail in details:
        if match := re.fullmatch(
            r"(\d{1,9}(?:\.\d{1,9})?)s", string(detail.get("retryDelay"))
        ):
            return float(match[1])
    return None
