"""Requests and replies that do not depend on the wire format, and JSON helpers that all wire formats use."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic_core import PydanticSerializationError, to_json

from editjudge.errors import UsageError
from editjudge.judgement import Usage
from editjudge.media.image import EncodedImage
from editjudge.rubrics.prompt import ImagePart, Part
from editjudge.rubrics.verdict import Finish


@dataclass(frozen=True, slots=True)
class RejectedTurn:
    """A reply that broke the contract, and the feedback that was sent to the judge."""

    reply: str
    feedback: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """A question, and the turns that follow it if replies are rejected."""

    parts: tuple[Part, ...]
    images: Mapping[str, EncodedImage]
    """Images, keyed by role, one for every image part."""
    turns: tuple[RejectedTurn, ...] = ()
    schema: Mapping[str, object] | None = None
    """JSON schema to request; None if the answer is not pure JSON, or the server does not support schemas."""
    schema_name: str = "answer"
    top_logprobs: int | None = None
    """Number of alternatives to request for each token, with their probabilities; None for no probabilities."""
    choices: int = 1
    """Number of independent replies to request."""
    system: str = ""
    """System message, sent before the question."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """An HTTP POST request, without the host and the API key."""

    path: str
    body: tuple[bytes, ...]
    """Body in pieces, which avoids copying megabytes of image data."""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """A token of a reply, and the model's alternatives to it."""

    data: bytes
    """Bytes in the reply. A token may be half of a character."""
    logprob: float
    alternatives: tuple[tuple[bytes, float], ...] = ()
    """Bytes and log probability of each alternative, usually including the token itself."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's answer."""

    text: str
    finish: Finish = "stop"
    usage: Usage = field(default_factory=Usage)
    model: str | None = None
    request_id: str | None = None
    tokens: tuple[TokenChoice, ...] = ()
    """Tokens of the text, if probabilities were requested and the server returned them."""
    others: tuple[Reply, ...] = ()
    """Additional replies, if several were requested. `usage` is the sum over all replies."""


# --- bodies ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spliced:
    """Placeholder for a JSON string that consists of `prefix` and base64 data. The data is not copied."""

    base64: bytes
    prefix: str = ""


def encoded(value: str | Mapping[str, object]) -> bytes:
    """Encode a long string or a schema as JSON bytes. `encode` inserts these bytes into a document unchanged.

    pydantic's encoder takes a seventh of the standard library's time for the text of a rubric, and writes the same
    bytes.
    """
    try:
        return to_json(value, fallback=dict)
    except PydanticSerializationError:
        return _utf8(json.dumps(value, ensure_ascii=False))


_PLACEHOLDER = secrets.token_hex(16)
"""String that marks a placeholder while a document is encoded. It is random, so no text can contain it."""


def encode(document: Mapping[str, object]) -> tuple[bytes, ...]:
    """Return a document as pieces of JSON. Every second piece is the base64 data of an image, which is not copied.

    Equal documents give equal bytes. Keys keep their order, which in a schema determines the order of the answer.
    """
    placeholders: list[Spliced | bytes] = []

    def plain(node: object) -> object:
        if isinstance(node, Spliced | bytes):
            placeholders.append(node)
            return _PLACEHOLDER
        if isinstance(node, Mapping):  # the encoder takes a dict alone
            return dict(node)
        raise TypeError(f"{type(node).__name__} has no form in JSON")

    try:
        text = json.dumps(
            document,
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
            default=plain,
        )
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"a request cannot be written as JSON: {error}", code="not_json"
        ) from None
    first, *others = _utf8(text).split(f'"{_PLACEHOLDER}"'.encode())
    pieces: list[bytes] = []
    around = [first]
    for placeholder, other in zip(placeholders, others, strict=True):
        if isinstance(placeholder, bytes):
            around += (placeholder, other)
        else:
            around.append(encoded(placeholder.prefix)[:-1])
            pieces += (b"".join(around), placeholder.base64)
            around = [b'"', other]
    return (*pieces, b"".join(around))


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        near = ascii(text[max(0, error.start - 20) : error.end + 20])
        raise UsageError(
            f"a request has an unpaired surrogate, which is not text: {near}",
            code="not_text",
        ) from None


def image_of(conversation: Conversation, part: ImagePart) -> EncodedImage:
    """Return the image that is shown by a part of the question."""
    try:
        return conversation.images[part.role]
    except KeyError:
        raise UsageError(
            f'the question shows the image "{part.role}", and no such image was given',
            code="missing_image",
        ) from None


def echoed(reply: str) -> str:
    """Return a reply in a form that can be sent back. Unpaired surrogates, which a model can produce, are replaced."""
    return reply.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def merged(
    body: Mapping[str, object], extra: Mapping[str, object], reserved: frozenset[str]
) -> dict[str, object]:
    """Return the body with the user's parameters added, sorted by name. Raise `UsageError` if one of them would replace
    a parameter that is set here.

    Objects are merged, so the user can add settings to an existing object.
    """
    result = dict(body)
    for key in sorted(extra):
        value = extra[key]
        present = result.get(key)
        if key in reserved:
            raise UsageError(
                f'the parameter "{key}" is written by editjudge itself and cannot be set',
                code="reserved_parameter",
            )
        if isinstance(present, Mapping) and isinstance(value, Mapping):
            result[key] = merged(present, value, frozenset())
        elif key in result:
            raise UsageError(
                f'the parameter "{key}" is set already; set it in one place only',
                code="parameter_set_twice",
            )
        else:
            result[key] = value
    return result


# --- responses ------------------------------------------------------------------------------------------------


def document(body: bytes) -> dict[str, object]:
    """Return the JSON object in a body, or an empty object if the body is not a JSON object."""
    try:
        # Ignore absurdly long numbers: `int` raises on 5,000 digits, although the rest of the body is valid.
        return mapping(
            json.loads(body, parse_int=lambda d: int(d) if len(d) < 20 else None)
        )
    except (ValueError, RecursionError):
        return {}


def mapping(value: object) -> dict[str, object]:
    """Return the value if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[dict[str, object]]:
    """Return the elements of a list, with an empty object for each element that is not an object. Return an empty list
    if the value is not a list.
    """
    return [mapping(element) for element in value] if isinstance(value, list) else []


def first(value: object) -> dict[str, object] | None:
    """Return the first element of a list, or None if that element is not an object."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return value[0]
    return None


def string(value: object) -> str:
    """Return the value if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


_MAX_COUNT = 1 << 53
"""Upper limit of token counts. Integers up to here are exact as floats, in JSON and in every database."""


def count(value: object) -> int | None:
    """Return a count that a server sent. Return None if it is negative, fractional, not a number or absurdly large."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= _MAX_COUNT else None


def total(*counts: int | None) -> int | None:
    """Return the sum of the counts that are not None, or None if all of them are None."""
    numbers = [number for number in counts if number is not None]
    return sum(numbers) if numbers else None


def header(headers: Mapping[str, str], *names: str) -> str | None:
    """Return the value of the first of these headers that is present, or None. Case is ignored."""
    lower = {key.lower(): value for key, value in headers.items()}
    return next((lower[name] for name in names if lower.get(name)), None)
