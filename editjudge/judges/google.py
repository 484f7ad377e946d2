"""Google's generateContent format."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator, Mapping

from editjudge.errors import UsageError
from editjudge.judgement import Usage
from editjudge.judges import failures, wire
from editjudge.judges.failures import CallFailed, ProblemKind
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

_RESERVED = frozenset({"contents", "model"})

_LEVELS = ("minimal", "low", "medium", "high")
_BUDGETS = {"none": 0, "minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576}
"""Thinking tokens for models before Gemini 3, with the values of Google's own OpenAI-compatible API."""


def request(conversation: Conversation, model: str, parameters: Options) -> ChatRequest:
    settings = {
        "temperature": parameters.temperature,
        "seed": parameters.seed,
        "maxOutputTokens": parameters.max_tokens,
        "thinkingConfig": _thinking(model, parameters.reasoning_effort),
        # `responseJsonSchema` accepts plain JSON Schema; the older `responseSchema` needs a dialect of OpenAPI.
        "responseMimeType": None if conversation.schema is None else "application/json",
        "responseJsonSchema": conversation.schema,
    }
    config = {key: value for key, value in settings.items() if value is not None}
    body: dict[str, object] = {"contents": list(_contents(conversation))}
    if conversation.system:
        body["systemInstruction"] = {"parts": [{"text": conversation.system}]}
    if config:
        body["generationConfig"] = config
    path = f"{model_path(model)}:generateContent"
    return ChatRequest(
        path, wire.encode(wire.merged(body, parameters.extra, _RESERVED))
    )


def model_path(model: str) -> str:
    """Return the path of a model. The model may be named with or without its collection."""
    name = model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"
    return f"v1beta/{urllib.parse.quote(name, safe='/')}"


def _thinking(model: str, effort: str | None) -> dict[str, object] | None:
    if effort is None:
        return None
    by_budget = re.match(r"(?:models/)?gemini-[12]\b", model)
    efforts = tuple(_BUDGETS) if by_budget else _LEVELS
    if effort not in efforts:
        raise UsageError(
            f'{model} has no reasoning effort "{effort}"; expected {", ".join(efforts)}',
            code="unknown_effort",
        )
    if by_budget:
        return {"thinkingBudget": _BUDGETS[effort]}
    return {"thinkingLevel": effort.upper()}


def _contents(conversation: Conversation) -> Iterator[dict[str, object]]:
    yield {"role": "user", "parts": list(_parts(conversation))}
    for turn in conversation.turns:
        # The API refuses a part without content.
        if turn.reply:
            yield {"role": "model", "parts": [{"text": wire.echoed(turn.reply)}]}
        yield {"role": "user", "parts": [{"text": turn.feedback}]}


def _parts(conversation: Conversation) -> Iterator[dict[str, object]]:
    for part in conversation.parts:
        if isinstance(part, TextPart):
            yield {"text": part.text}
        else:
            image = wire.image_of(conversation, part)
            data = {"mimeType": image.media_type, "data": Spliced(image.data)}
            yield {"inlineData": data}


def reply(status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    """Return the reply in a response. Raise `CallFailed` if it has none."""
    document = wire.document(body)
    if not 200 <= status < 300:
        raise _problem(status, headers, body, document)
    candidate = wire.first(document.get("candidates"))
    if candidate is None:
        blocked = string(mapping(document.get("promptFeedback")).get("blockReason"))
        if blocked:
            message = f"the question was blocked: {failures.cleaned(blocked)}"
            raise CallFailed("refusal", message, status=status)
        raise failures.no_answer(body)
    parts = objects(mapping(candidate.get("content")).get("parts"))
    spoken = [part for part in parts if part.get("thought") is not True]
    return Reply(
        text="".join(string(part.get("text")) for part in spoken),
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
"""Finish for each finish reason of the API. All other reasons are normal ends, and the contract checks the text."""


def _usage(usage: Mapping[str, object]) -> Usage:
    """Return the token usage. Unlike other APIs, this one does not include thoughts in its output tokens, although they
    are billed as output.
    """
    thought = count(usage.get("thoughtsTokenCount"))
    return Usage(
        input_tokens=count(usage.get("promptTokenCount")),
        output_tokens=wire.total(count(usage.get("candidatesTokenCount")), thought),
        cached_tokens=count(usage.get("cachedContentTokenCount")),
        reasoning_tokens=thought,
    )


# --- errors ---------------------------------------------------------------------------------------------------


def _problem(
    status: int, headers: Mapping[str, str], body: bytes, document: Mapping[str, object]
) -> CallFailed:
    error = mapping(document.get("error"))
    details = objects(error.get("details"))
    name = string(error.get("status"))
    return failures.failure(
        status,
        headers,
        body,
        string(error.get("message")),
        kind=_kind(status, name, details),
        names=[name, *(detail.get("reason") for detail in details)],
        retry_after=_delay(details),
    )


def _kind(
    status: int, name: str, details: list[dict[str, object]]
) -> ProblemKind | None:
    reasons = {string(detail.get("reason")) for detail in details}
    if status == 400 and reasons & {"API_KEY_INVALID", "API_KEY_EXPIRED"}:
        return "key"
    if name == "FAILED_PRECONDITION":
        # No billing account, or a country that is not supported: every question will fail.
        return "key"
    violations = [v for d in details for v in objects(d.get("violations"))]
    if status == 429 and any("PerDay" in string(v.get("quotaId")) for v in violations):
        return "key"  # comes with a delay of seconds, but the day has to end first
    return None


def _delay(details: list[dict[str, object]]) -> float | None:
    """Return the number of seconds to wait before a retry, which `google.rpc.RetryInfo` writes as "34.07s". Return None
    if it is not stated.
    """
    for detail in details:
        if match := re.fullmatch(
            r"(\d{1,9}(?:\.\d{1,9})?)s", string(detail.get("retryDelay"))
        ):
            return float(match[1])
    return None
