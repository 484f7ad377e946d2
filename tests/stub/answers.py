"""What a request to a vision judge asks and what the stub says to it: pure functions of the seed and the bytes.

The shapes below repeat the rubrics on purpose: a stand-in that read the project's own rubric files would agree
with whatever mistake is in them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Wire = Literal["openai", "anthropic", "google"]
Stop = Literal["stop", "length", "refusal", "filter"]
Json = dict[str, Any]

IDENTIFIER = r"edit-[0-9a-f]{16}"
_SNAPSHOT = "2026-01-01"
_CREATED = 1767225600
"""That day: the same seed and the same requests give the same bytes."""
_PICTURE_BYTES = 1024
"""Payloads from this size are lifted out before the JSON is parsed, which would cost more than all the rest."""

_PRESERVATION = ("unchanged_regions", "global_consistency", "identity_preservation")
_REALISM = ("scale_realism", "spatial_relationship", "texture_and_detail")
_QUALITY = (*_REALISM, "image_quality", "color_and_lighting", "seamlessness")
_FIDELITY = ("alignment", "completeness", "plausibility")
_TWELVE = (*_PRESERVATION, *_QUALITY, *_FIDELITY)


class Shape(NamedTuple):
    envelope: str
    factors: tuple[str, ...]
    values: tuple[Any, ...] = (1, 2, 3, 4, 5, 6, 7)


SHAPES = {
    "preservation": Shape("online_factor_results", _PRESERVATION),
    "quality": Shape("online_factor_results", _QUALITY),
    "fidelity": Shape("online_factor_results", _FIDELITY),
    "online": Shape("online_factor_results", _TWELVE),
    "reference": Shape("offline_factor_results", _TWELVE),
    "lighting": Shape("", ("Contextual_Preservation",), (0, 1)),
    "compliance": Shape("", ("effect_score",), (5, 3, 1)),
    "preference": Shape(
        "preference_results",
        ("instruction", "preservation", "quality", "overall"),
        ("a", "b", "tie"),
    ),
}
PAIR = "pair"
"""What a peer's metric for edits asks, in two questions: two scores from 0 to 10, without a name of the edit."""
SHAPES_OF_PEERS = {PAIR: Shape("", ("first", "second"), tuple(range(11)))}


def draw(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts alone."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    # 53 bits are what a float holds: more could round up to 1.
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


def expected_scores(seed: int, identifier: str, rubric: str) -> dict[str, Any]:
    """The right answer for an edit; where a rubric has no identifier, `identifier` is the content key."""
    _, factors, values = _shape(rubric)
    return {
        factor: values[int(draw(seed, identifier, factor) * len(values))]
        for factor in factors
    }


def _shape(rubric: str) -> Shape:
    return SHAPES.get(rubric) or SHAPES_OF_PEERS[rubric]


@dataclass(frozen=True, slots=True)
class Question:
    wire: Wire
    model: str
    rubric: str
    identifier: str | None
    content_key: str
    """The identifier, or for rubrics without one a hash of the texts and pictures of the first turn."""
    schema: str | None
    """The parameter that carries a schema, as the vendor calls it."""
    bare: bool
    """Whether JSON alone was asked for."""
    tool: str | None
    """The tool whose use is forced."""
    tokens: int
    allowed: int | None = None
    """Tokens that the answer may take, where the request says."""
    outputs: tuple[str, ...] = ()
    """Of a pair: digests of the two outputs, as base64, in the order shown; only of pictures that are lifted out."""


def wire_of(path: str) -> Wire | None:
    """By how a path ends, since Azure and gateways put prefixes before it."""
    if path.endswith("/chat/completions"):
        return "openai"
    if path.endswith("/messages"):
        return "anthropic"
    return "google" if path.endswith(":generateContent") else None


def read_question(
    wire: Wire, path: str, body: bytes, identifier: str | re.Pattern[str] = IDENTIFIER
) -> Question:
    """Raises ValueError where the body is no question that the stub knows."""
    small, pictures = _lift(wire, body)
    data = json.loads(small)
    turns = (
        data.get("contents" if wire == "google" else "messages")
        if isinstance(data, dict)
        else None
    )
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise ValueError("expected a JSON object with a list of messages")
    text = "\n".join(
        _strings(
            [data.get("system"), data.get("systemInstruction"), *_first_turns(turns)]
        )
    )
    if (rubric := find_rubric(text)) is None:
        raise ValueError("the stub finds the JSON keys of no rubric in this question")
    # Where the rubric echoes no identifier, one that occurs in an instruction means nothing.
    found = re.search(identifier, text) if _shape(rubric).envelope else None
    # Only the edited picture is in both questions of a pair, and it comes last.
    key = (
        found[0]
        if found
        else _content_key(
            *(("", pictures[-1:]) if rubric == PAIR else (text, pictures))
        )
    )
    tokens = len(text) // 4 + 1000 * len(pictures)
    echo = found[0] if found else None
    allowed = _allowed(wire, data)
    outputs = (
        tuple(hashlib.sha256(picture).hexdigest() for picture in pictures[-2:])
        if rubric == "preference"
        else ()
    )
    return Question(
        wire,
        _model(wire, path, data),
        rubric,
        echo,
        key,
        *_format(wire, data),
        tokens,
        allowed,
        outputs,
    )


def find_rubric(text: str) -> str | None:
    """By the quoted keys that the question asks for."""

    def asks(rubric: str) -> bool:
        return f'"{SHAPES[rubric].factors[0]}"' in text

    if '"online_factor_results"' in text:
        asked = [name for name in ("preservation", "quality", "fidelity") if asks(name)]
        return asked[0] if len(asked) == 1 else "online" if len(asked) == 3 else None
    if '"offline_factor_results"' in text:
        return "reference"
    if '"preference_results"' in text:
        return "preference"
    if "output score = [" in text:
        return PAIR
    return next((name for name in ("lighting", "compliance") if asks(name)), None)


def _lift(wire: Wire, body: bytes) -> tuple[bytes, list[memoryview]]:
    """The body without its large pictures, and the pictures as they came; only memchr reads their bytes."""
    marker = b";base64," if wire == "openai" else b'"data"'
    kept: list[bytes] = []
    pictures: list[memoryview] = []
    copied = at = 0
    while (at := body.find(marker, at)) >= 0:
        start = at + len(marker)
        if wire != "openai":
            start = body.find(b'"', start) + 1
        end = body.find(b'"', start)
        if start == 0 or end < 0:
            break
        if end - start >= _PICTURE_BYTES:
            kept += (body[copied:start], b"picture")
            pictures.append(memoryview(body)[start:end])
            copied = end
        at = end
    return b"".join((*kept, body[copied:])), pictures


def _first_turns(turns: list[Json]) -> Iterator[Json]:
    """Up to the first reply, so that asking again with the reasons is still the same question."""
    for turn in turns:
        if turn.get("role") in ("assistant", "model"):
            return
        yield turn


def _strings(node: object) -> list[str]:
    if isinstance(node, str):
        return [node]
    items = (
        node.values()
        if isinstance(node, dict)
        else node
        if isinstance(node, list)
        else ()
    )
    return [text for item in items for text in _strings(item)]


def _content_key(text: str, pictures: list[memoryview]) -> str:
    content = hashlib.sha256(text.encode())
    for picture in pictures:
        content.update(picture)
    return content.hexdigest()


def _model(wire: Wire, path: str, data: Json) -> str:
    if wire == "google":
        return path.rsplit("/", 1)[-1].removesuffix(":generateContent")
    return str(
        data.get("model") or path.removesuffix("/chat/completions").rsplit("/", 1)[-1]
    )


def _format(wire: Wire, data: Json) -> tuple[str | None, bool, str | None]:
    """The parameter with a schema, whether the reply is to be bare JSON, and the tool that is forced."""
    if wire == "openai":
        kind = (data.get("response_format") or {}).get("type")
        return (
            ("response_format" if kind == "json_schema" else None),
            kind in ("json_schema", "json_object"),
            None,
        )
    if wire == "anthropic":
        choice = data.get("tool_choice") or {}
        schema = (
            "output_config.format"
            if (data.get("output_config") or {}).get("format")
            else None
        )
        schema = "output_format" if data.get("output_format") else schema
        return (
            schema,
            schema is not None,
            choice.get("name") if choice.get("type") == "tool" else None,
        )
    config = data.get("generationConfig") or {}
    schema = next(
        (
            key
            for key in ("responseJsonSchema", "responseSchema", "responseFormat")
            if key in config
        ),
        None,
    )
    return (
        schema,
        schema is not None or config.get("responseMimeType") == "application/json",
        None,
    )


def _allowed(wire: Wire, data: Json) -> int | None:
    if wire == "google":
        return (data.get("generationConfig") or {}).get("maxOutputTokens")
    return data.get("max_completion_tokens") or data.get("max_tokens")


class Said(NamedTuple):
    text: str
    stop: Stop = "stop"
    whole: Json | None = None
    """Set where the text is one JSON object, which a forced tool can carry."""
    thoughts: int = 0
    """Tokens that the model took beside its text."""


_GARBAGE = (
    "The edit looks convincing and I rate it highly.",
    "<!DOCTYPE html><html><body>Welcome</body></html>",
)


def say(
    question: Question,
    scores: dict[str, Any],
    fault: str | None,
    fenced: bool,
    variant: float,
) -> Said:
    """What the model says, spoilt by a fault; `variant` in [0, 1) chooses among the kinds that a fault has."""
    _, factors, values = _shape(question.rubric)
    right = envelope(question.rubric, scores, question.identifier)
    match fault:
        case "garbage":
            broken = json.dumps(right).replace('": ', '" ', 1)
            return Said((*_GARBAGE, broken)[int(variant * 3)])
        case "length_stop":
            text = _compose(question, right, fenced)
            return Said(text[: len(text) // 2], "length")
        case "refusal":
            return (
                Said("", "refusal")
                if variant < 0.5
                else Said("I'm sorry, but I can't help with this image.")
            )
        case "content_filter":
            return Said("", "filter")
        case "empty":
            return Said("")
        case "two_answers":
            # The right one last: where a rubric asks for the last one, taking it is taking what was meant.
            moved = {
                factor: values[values.index(score) - 1]
                for factor, score in scores.items()
            }
            first = json.dumps(envelope(question.rubric, moved, question.identifier))
            return Said(f"{first}\n\n{_compose(question, right, fenced)}")
        case "wrong_id" if echo := question.identifier:
            right["image_id"] = echo[:-1] + ("1" if echo.endswith("0") else "0")
        case "decimal" if isinstance(values[0], int):
            right = envelope(
                question.rubric,
                {**scores, factors[0]: max(values) - 0.5},
                question.identifier,
            )
    return Said(_compose(question, right, fenced), whole=right)


def envelope(rubric: str, scores: Mapping[str, Any], identifier: str | None) -> Json:
    """An object that satisfies the rubric's contract; nineteen words a justification are within all limits."""
    if rubric == "lighting":
        kept = scores["Contextual_Preservation"]
        reason = (
            "Everything but the light stayed the same."
            if kept
            else "A chair was removed."
        )
        return {"Contextual_Preservation": {"reason": reason, "score": kept}}
    if rubric == "compliance":
        steps = "1. One change was asked for. 2. One is visible. 3. They were compared. 4. The score follows."
        return {"reasoning": steps, "effect_score": scores["effect_score"]}
    if rubric == PAIR:
        return {
            "reasoning": "The picture is as these scores say.",
            "score": list(scores.values()),
        }
    why = "Along the left edge and behind the main subject, {} shows in the edited picture as this score says."
    name = "choice" if rubric == "preference" else "score"
    factors = {
        f: {name: score, "justification": why.format(f)} for f, score in scores.items()
    }
    return {"image_id": identifier, SHAPES[rubric].envelope: factors}


def _compose(question: Question, content: Json, fenced: bool) -> str:
    # an indent would leave the C encoder, at 50 us an answer
    text = json.dumps(content)
    if question.bare:
        return text
    if fenced:
        text = f"```json\n{text}\n```"
    if question.rubric != "lighting":
        return text
    lines = "- The right wall is brighter: allowed\n- The arrow is gone: ignored"
    decision = "All are allowed."
    if not content["Contextual_Preservation"]["score"]:
        lines = lines + "\n- The chair was removed: not allowed"
        decision = "One is not allowed."
    return f"## Difference Analysis\n{lines}\n\n## CP Decision\n{decision}\n\n## JSON\n{text}"


class Usage(NamedTuple):
    prompt: int
    """With what was cached."""
    cached: int
    output: int


UNLIMITED = 32_768
"""Tokens that a model may take where the request names no limit."""


def limited(question: Question, said: Said, thinks: bool) -> Said:
    """Cut off at the limit of the request; one that `thinks` takes every token that it is allowed."""
    most = question.allowed or UNLIMITED
    length = _tokens(said.text)
    if length > most:
        return Said(said.text[: 4 * (most - 1)], "length")
    return said._replace(thoughts=most - length) if thinks else said


def _tokens(text: str) -> int:
    return len(text) // 4 + 1


def usage(question: Question, said: Said) -> Usage:
    """Half of every prompt counts as cached, so that a client that files cached tokens wrongly is found out."""
    return Usage(
        question.tokens, question.tokens // 2, _tokens(said.text) + said.thoughts
    )


_STOPS: dict[Wire, dict[Stop, str]] = {
    "openai": {
        "stop": "stop",
        "length": "length",
        "refusal": "stop",
        "filter": "content_filter",
    },
    "anthropic": {
        "stop": "end_turn",
        "length": "max_tokens",
        "refusal": "refusal",
        "filter": "refusal",
    },
    "google": {
        "stop": "STOP",
        "length": "MAX_TOKENS",
        "refusal": "SAFETY",
        "filter": "PROHIBITED_CONTENT",
    },
}


def answer_body(question: Question, said: Said, tag: str) -> Json:
    """A 200 as the vendor forms it; `tag` is unique to the request."""
    render = {"openai": _openai, "anthropic": _anthropic, "google": _google}[
        question.wire
    ]
    return render(question, said, tag, f"{question.model}-{_SNAPSHOT}")


def _openai(question: Question, said: Said, tag: str, model: str) -> Json:
    prompt, cached, output = usage(question, said)
    message: Json = {"role": "assistant", "content": said.text, "refusal": None}
    if said.stop == "refusal":
        message |= {"content": None, "refusal": "I can't assist with that."}
    stop = _STOPS["openai"][said.stop]
    tokens = {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
    }
    return {
        "id": f"chatcmpl-{tag}",
        "object": "chat.completion",
        "created": _CREATED,
        "model": model,
        "choices": [
            {"index": 0, "message": message, "logprobs": None, "finish_reason": stop}
        ],
        "usage": {**tokens, "prompt_tokens_details": {"cached_tokens": cached}},
    }


def _anthropic(question: Question, said: Said, tag: str, model: str) -> Json:
    prompt, cached, output = usage(question, said)
    stop = _STOPS["anthropic"][said.stop]
    content: list[Json] = [{"type": "text", "text": said.text}] if said.text else []
    if question.tool and said.whole:
        stop = "tool_use"
        content = [
            {
                "type": "tool_use",
                "id": f"toolu_{tag}",
                "name": question.tool,
                "input": said.whole,
            }
        ]
    # Here, unlike elsewhere, the input tokens leave out what was read from the cache.
    tokens = {
        "input_tokens": prompt - cached,
        "cache_read_input_tokens": cached,
        "output_tokens": output,
    }
    return {
        "id": f"msg_{tag}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {**tokens, "cache_creation_input_tokens": 0},
    }


def _google(question: Question, said: Said, tag: str, model: str) -> Json:
    prompt, cached, output = usage(question, said)
    candidate: Json = {"index": 0, "finishReason": _STOPS["google"][said.stop]}
    if said.stop in ("stop", "length"):
        candidate["content"] = {
            "role": "model",
            "parts": [{"text": said.text}] if said.text else [],
        }
    # A refused prompt and a refused answer look different; the last digit of the tag chooses.
    blocked = said.stop == "refusal" and int(tag[-1], 16) % 2 == 0
    tokens = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": output,
        "totalTokenCount": prompt + output,
    }
    return {
        **(
            {"promptFeedback": {"blockReason": "SAFETY"}}
            if blocked
            else {"candidates": [candidate]}
        ),
        "modelVersion": model,
        "responseId": tag,
        "usageMetadata": {**tokens, "cachedContentTokenCount": cached},
    }


_ANTHROPIC_ERRORS = {
    400: "invalid_request_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_GOOGLE_ERRORS = {
    400: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
_OPENAI_ERRORS = {
    400: ("invalid_request_error", None),
    429: ("requests", "rate_limit_exceeded"),
}


def error_body(
    wire: Wire, status: int, message: str, tag: str, param: str | None = None
) -> Json:
    """An error as the vendor forms it."""
    if wire == "anthropic":
        error = {"type": _ANTHROPIC_ERRORS.get(status, "api_error"), "message": message}
        return {"type": "error", "error": error, "request_id": f"req_{tag}"}
    if wire == "google":
        return {
            "error": {
                "code": status,
                "message": message,
                "status": _GOOGLE_ERRORS.get(status, "INTERNAL"),
            }
        }
    kind, code = _OPENAI_ERRORS.get(status, ("server_error", None))
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def schema_refusal(question: Question) -> str:
    """How the vendor says that it does not know the parameter."""
    if question.wire == "openai":
        return "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model."
    if question.wire == "anthropic":
        return f"{question.schema}: Extra inputs are not permitted"
    where = f"Unknown name \"{question.schema}\" at 'generation_config'"
    return f"Invalid JSON payload received. {where}: Cannot find field."
