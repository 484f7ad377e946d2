"""What servers say when they answer with an error, and what it means: one table, with where each row comes from.

A row that looks at named fields (codes, types, parameters) is certain. One that looks at words is not, since servers
quote what they were sent: whoever reads a `ErrorMeaning` holds its words against the question.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from editjudge.judges.messages import ProblemKind

_REJECTED = frozenset({400, 413, 415, 422})
_BROKEN = frozenset({*range(500, 600)})


@dataclass(frozen=True, slots=True)
class ErrorRow:
    source: str
    kind: ProblemKind
    statuses: frozenset[int] = _REJECTED
    names: frozenset[str] = frozenset()
    """Values of the fields `code`, `type`, `status`, `reason` and `param`, up to the first dot or bracket."""
    words: str = "(?!)"
    """A pattern in the message, whatever the case."""
    pattern: re.Pattern[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", re.compile(self.words, re.IGNORECASE | re.DOTALL))


class ErrorMeaning(NamedTuple):
    """What an error means."""

    kind: ProblemKind
    words: str = ""
    """The words of the message that say so; empty where a field does."""


ROWS = (
    ErrorRow(
        "llama.cpp: the reply left its grammar, or cannot be parsed (common/chat.cpp, llama-grammar.cpp); LM Studio "
        "passes it on",
        "grammar",
        _BROKEN,
        words=r"output (?:that )?do(?:es|n't| not)\b.{0,20}\bmatch .{0,40}\b(?:grammar|format|schema)\b"
        r"|failed to parse (?:input|output) at pos|unexpected empty grammar stack|does not match the grammar",
    ),
    ErrorRow(
        "llama.cpp: HTTP 500 from a server that was started without a projector (tools/server, server-common.cpp)",
        "model",
        _REJECTED | _BROKEN,
        words=r"image input is not supported",
    ),
    ErrorRow(
        "llama.cpp: exceed_context_size_error; OpenAI, vLLM, Azure, OpenRouter: context_length_exceeded",
        "context",
        _REJECTED | _BROKEN,
        names=frozenset({"exceed_context_size_error", "context_length_exceeded"}),
    ),
    ErrorRow(
        "vLLM and OpenAI: maximum context length is N, longer than the maximum model length; SGLang: longer than the "
        "model's context length; llama.cpp: exceeds the available context size; Ollama: exceeds context length; LM "
        "Studio: greater than the context length; Anthropic: prompt is too long, exceed context limit; Google: exceeds "
        "the maximum number of tokens allowed",
        "context",
        _REJECTED | _BROKEN,
        words=r"maximum (?:context|model) length|longer than the (?:model's )?context length|available context size"
        r"|exceeds? (?:the )?(?:model's )?(?:maximum )?context (?:length|limit|window|size)|greater than the context "
        r"length|prompt is too long|exceeds the maximum number of tokens|context size has been exceeded",
    ),
    ErrorRow(
        "OpenAI: codes of pictures that cannot be read (openai-openapi, ImageErrorCode)",
        "image",
        names=frozenset(
            {
                *("invalid_image", "invalid_image_format", "invalid_base64_image", "invalid_image_url"),
                *("image_too_large", "image_too_small", "image_parse_error", "invalid_image_mode"),
                *("image_file_too_large", "unsupported_image_media_type", "empty_image_file"),
            }
        ),
    ),
    ErrorRow(
        "OpenAI: unsupported image; Anthropic: could not process image, image exceeds, image dimensions exceed, does "
        "not match the provided media type; Google: unable to process input image; vLLM and SGLang (Pillow): cannot "
        "identify image file; llama.cpp: failed to load image, failed to decode image; Ollama: invalid image input",
        "image",
        _REJECTED | _BROKEN,
        words=r"unsupported image|(?:could not|unable to) process (?:input )?image|cannot identify image file"
        r"|failed to (?:load|decode) image|invalid image|image exceeds|image dimensions exceed"
        r"|image does not match the provided media type|image: unknown format",
    ),
    ErrorRow("OpenAI: the parameter that it names", "schema", names=frozenset({"response_format"})),
    ErrorRow(
        "Anthropic: credit balance, spend limits; Google: API key not valid",
        "key",
        frozenset({400}),
        words=r"credit balance|spend limit|usage limits?\b.*\bregain access|API key",
    ),
    ErrorRow(
        "OpenAI, Azure, vLLM, SGLang: response_format, guided_json; Anthropic: output_config.format; Google: "
        "response_schema, responseMimeType, too many states; llama.cpp: failed to parse grammar",
        "schema",
        frozenset({400, 422}),
        words=r"response_?format|response_?(?:json_?)?schema|response_?mime_?type|json_?schema|structured[ _-]?output"
        r"|output_config\.format|output_format|guided_json|grammar|json mode|\bschema\b",
    ),
    ErrorRow(
        "OpenAI, Azure, Anthropic: usage and content policies",
        "refusal",
        frozenset({400, 422}),
        words=r"(?:content|usage|safety)[ _](?:management |filtering )?polic|ResponsibleAIPolicyViolation",
    ),
)


def read_error(status: int, names: Iterable[object], message: str) -> ErrorMeaning | None:
    """What the first row that fits makes of an error; fields are asked before words."""
    named = {re.split(r"[.\[]", name)[0] for name in names if isinstance(name, str)}
    rows = [row for row in ROWS if status in row.statuses]
    for row in rows:
        if row.names & named:
            return ErrorMeaning(row.kind)
    for row in rows:
        if match := row.pattern.search(message):
            return ErrorMeaning(row.kind, match[0])
    return None


_LIMIT = re.compile(
    r"(?:maximum (?:context|model) length (?:is|of)?|context size|context length(?: of(?: only)?)?|tokens allowed"
    r"|tokens >|n_ctx)\D{0,12}(\d[\d,]*)",
    re.IGNORECASE,
)


def context_limit(message: str) -> int | None:
    """How many tokens fit, where the server says so."""
    match = _LIMIT.search(message)
    return int(match[1].replace(",", "")[:12]) if match else None


_SETTINGS = {
    "llamacpp": "-c at the start of llama-server",
    "vllm": "--max-model-len of vllm serve",
    "sglang": "--context-length of the server",
    "ollama": "OLLAMA_CONTEXT_LENGTH, or num_ctx of the model",
    "lmstudio": "the context length with which LM Studio loads the model",
}


def context_advice(provider: str, message: str) -> str:
    """What to do about a context that is too small, with its size where the server says it."""
    limit = context_limit(message)
    size = f" of {limit:,} tokens" if limit else ""
    setting = _SETTINGS.get(provider, "the context length of the server, or take a model with a longer one")
    return f"the question does not fit into the context{size}: raise {setting} ({message})"
