"""The pieces that the three wire formats share: bodies with pictures spliced in as bytes, and failures in one form."""

from __future__ import annotations

import email.utils
import json
import math
import re
import secrets
import time
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from editjudge.errors import UsageError
from editjudge.judges.messages import CallFailed, Conversation, EncodedPicture, ProblemKind, kind_of
from editjudge.judges.server_errors import read_error
from editjudge.rubrics.prompt import ImagePart

# --- bodies ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spliced:
    """Stands in a document for a JSON string: `prefix`, and then base64 that is handed on without being copied."""

    base64: bytes
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class EncodedJson:
    """Stands in a document for a value that is JSON already."""

    json: bytes


def encoded(value: str | Mapping[str, Any]) -> EncodedJson:
    """A long text or a schema, for `encode`: pydantic's encoder takes a seventh of the standard library's time for the
    text of a rubric, and writes the same bytes."""
    try:
        return EncodedJson(to_json(value, fallback=dict))
    except PydanticSerializationError:
        return EncodedJson(_utf8(json.dumps(value, ensure_ascii=False)))


def encode(document: Mapping[str, Any]) -> tuple[bytes, ...]:
    """The document as JSON, in pieces: a picture's base64 is every second of them, the very object that came in.

    The same document is the same bytes. Keys keep their order, which in a schema says what is answered first.
    """
    parts: list[Spliced | EncodedJson] = []

    def plain(node: object) -> object:
        if isinstance(node, Spliced | EncodedJson):
            parts.append(node)
            return _PLACE
        if isinstance(node, Mapping):  # one that is not a dict, which the encoder does not know
            return dict(node)
        raise TypeError(f"{type(node).__name__} has no form in JSON")

    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=plain)
    except (TypeError, ValueError) as error:
        raise UsageError(f"a request cannot be written as JSON: {error}") from None
    first, *others = _utf8(text).split(f'"{_PLACE}"'.encode())
    pieces: list[bytes] = []
    around = [first]
    for part, other in zip(parts, others, strict=True):
        if isinstance(part, EncodedJson):
            around += (part.json, other)
        else:
            around.append(encoded(part.prefix).json[:-1])
            pieces += (b"".join(around), part.base64)
            around = [b'"', other]
    return (*pieces, b"".join(around))


_PLACE = secrets.token_hex(16)
"""Stands for a part while the text around it is written; nobody outside this process can know it."""


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        near = ascii(text[max(0, error.start - 20) : error.end + 20])
        raise UsageError(f"a request holds half of a surrogate pair, which is not text: {near}") from None


def picture_of(conversation: Conversation, part: ImagePart) -> EncodedPicture:
    try:
        return conversation.pictures[part.role]
    except KeyError:
        raise UsageError(f'the question shows the image "{part.role}", and no such picture was given') from None


def echoed(reply: str) -> str:
    """A reply of a model as it can be sent back. Half a surrogate pair, which a model can produce, cannot be."""
    return reply.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def merged(body: Mapping[str, Any], extra: Mapping[str, Any], reserved: frozenset[str]) -> dict[str, Any]:
    """The body with what the user adds to it, and nothing replaced by it. Sorted, so that equal extras are equal bytes.

    Objects are merged, so that one setting can be added to those that stand there already.
    """
    whole = dict(body)
    for key in sorted(extra):
        value, here = extra[key], whole.get(key)
        if key in reserved:
            raise UsageError(f'the parameter "{key}" is written by editjudge itself and cannot be set')
        if isinstance(here, Mapping) and isinstance(value, Mapping):
            whole[key] = merged(here, value, frozenset())
        elif key in whole:
            raise UsageError(f'the parameter "{key}" is set already; set it in one place only')
        else:
            whole[key] = value
    return whole


# --- responses ------------------------------------------------------------------------------------------------


def document(body: bytes) -> dict[str, Any]:
    """The JSON object in a body; empty where there is none."""
    try:
        return mapping(json.loads(body, parse_int=_integer))
    except (ValueError, RecursionError):
        return {}


def _integer(digits: str) -> int | None:
    """None beyond any number that a server means: `int` refuses 5,000 digits, and the rest of the body is sound."""
    return int(digits) if len(digits) < 20 else None


def mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def first(value: object) -> dict[str, Any] | None:
    """The first object of a list."""
    return value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else None


def string(value: object) -> str:
    return value if isinstance(value, str) else ""


_MOST = 1 << 53
"""Beyond any count of tokens; a whole number up to here is the same as a float, in JSON and in every database."""


def count(value: object) -> int | None:
    """A count that a server gives; None where it is none: negative, a fraction, a word, or beyond all measure."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST else None


def total(*counts: int | None) -> int | None:
    known = [number for number in counts if number is not None]
    return sum(known) if known else None


def header(headers: Mapping[str, str], *names: str) -> str | None:
    """The first of these headers that is there, however it is spelled."""
    lower = {key.lower(): value for key, value in headers.items()}
    return next((lower[name] for name in names if lower.get(name)), None)


# --- failures -------------------------------------------------------------------------------------------------

MAX_WAIT = 600.0
"""Seconds. Whoever asks for more has a quota by the hour or the day: asking once every ten minutes bothers nobody,
and an absurd number cannot stop a run."""
MAX_MESSAGE = 300
_READ = 4_000
"""Characters of an error that are looked at; a page of HTML says nothing more after them."""


def failure(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    message: str,
    *,
    kind: ProblemKind | None = None,
    names: Iterable[object] = (),
    retry_after: float | None = None,
) -> CallFailed:
    """An HTTP error as a problem. The kind is the one given, or else what the table of errors makes of its named fields
    and words, or else that of the status."""
    reading = None if kind else read_error(status, names, message or _page(body))
    kind = kind or (reading.kind if reading else kind_of(status))
    why = cleaned(message or _page(body)) or "no reason given"
    wait = bounded(retry_after) if retry_after is not None else retry_after_of(headers)
    worth_waiting = kind in ("rate limit", "server", "timeout")
    words = reading.words if reading else ""
    message = f"HTTP {status}: {why}"
    return CallFailed(kind, message, status=status, retry_after=wait if worth_waiting else None, words=words)


def no_answer(body: bytes) -> CallFailed:
    """A success that is none: a proxy's page, a cut body, JSON of another kind."""
    text = cleaned(_page(body))
    return CallFailed(
        "server", f"the server sent no answer: {text}" if text else "the server sent no answer", status=200
    )


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait."""
    if (milliseconds := _number(header(headers, "retry-after-ms"))) is not None:
        return bounded(milliseconds / 1000)
    wait = header(headers, "retry-after")
    if (seconds := _number(wait)) is not None:
        return bounded(seconds)
    if (until := _timestamp(wait)) is None:
        return None
    # By the server's own clock where it tells the time: ours may be wrong.
    now = _timestamp(header(headers, "date"))
    return bounded(until - (time.time() if now is None else now))


def bounded(seconds: float) -> float | None:
    return None if math.isnan(seconds) else min(max(seconds, 0.0), MAX_WAIT)


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _timestamp(text: str | None) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(text).timestamp() if text else None
    except (ValueError, OverflowError):
        return None


def _page(body: bytes) -> str:
    """The words of a body that is not what was expected, say the page of a proxy."""
    text = body[:_READ].decode("utf-8", "replace")
    text = re.sub(r"(?is)<(script|style)\b.*?(</\1>|\Z)", " ", text)
    return re.sub(r"<[^>]*>?", " ", text)


# Providers repeat the key they refuse, whole or with its middle starred out.
_KEYS = re.compile(
    r"""(?ix)
    (?<![a-z0-9]) (?: sk|rk|pk|gsk|hf|xai ) [-_] [\w.*…-]+          # OpenAI, Anthropic, OpenRouter and their like
    | AIza [\w*.…-]+ | \bAQ\.[\w*.…-]+ | \bya29\.[\w.-]+             # Google
    | \bbearer \s+ (?!token|auth) [\w.~+/=*…-]+ | \bbasic \s+ [\w+/=]{16,}
    | \b(?:x-)?(?:goog-)?api[-_ ]?key["']? \s* (?: provided \s*)? [:=] \s* ["']? [^\s"',;]+
    | [?&] (?:key|api[-_]key|access_token|token) = [^\s&"']+
    | (?<![a-z0-9]) (?=[a-z]*\d) [a-z0-9]{32,} (?![a-z0-9])           # Azure, and whatever else looks like it
    """
)


def cleaned(message: str) -> str:
    """A server's words as a terminal may show them: one short line, no control characters, no key."""
    line = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in message[:_READ])
    line = without_keys(" ".join(line.split()))
    return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE - 1]}…"


def without_keys(text: str) -> str:
    """The text with what looks like a provider's key taken out."""
    return _KEYS.sub("[key]", text)
