"""Failed requests: the kinds of failure, and the classification of error responses.

Known server errors are rows of server_errors.yaml. A row that compares named fields (codes, types, parameters) is
reliable. A row that searches the message is not, since servers quote their input. In that case the failure records the
matched words, so that they can be compared with the question.
"""

from __future__ import annotations

import email.utils
import functools
import math
import re
import time
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from editjudge.judges import read_table
from editjudge.judges.wire import header

ProblemKind = Literal[
    "rate limit",
    "server",
    "timeout",
    "connection",
    "request",
    "context",
    "image",
    "grammar",
    "key",
    "model",
    "refusal",
    "schema",
]


class CallFailed(Exception):
    """Raised when a request gets no usable reply."""

    def __init__(
        self,
        kind: ProblemKind,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        cut_off: bool = False,
        words: str = "",
    ) -> None:
        super().__init__(message)
        self.kind = kind
        """Kind of failure. `rate limit`, `server`, `timeout`, `connection`: may succeed on a retry. `request`: this
        question was refused as malformed. `key`, `model`: every question will fail. `refusal`: declined before a
        model saw it. `schema`: the server does not accept the JSON schema. `context`: the question does not fit.
        `image`: an image was rejected. `grammar`: the server refuses its own reply because it breaks the schema.
        """
        self.status = status
        self.retry_after = retry_after
        self.cut_off = cut_off
        """Whether the request was sent, but the answer was cut off or never arrived."""
        self.words = words
        """Words of the message that determined the kind; empty if a status or a named field did."""

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in ("rate limit", "server", "timeout", "connection")

    @property
    def may_be_billed(self) -> bool:
        """Whether a model may have processed the request. Vendors bill generated tokens even if they are never
        received.
        """
        answered = self.status is not None and 200 <= self.status < 300
        return self.kind == "timeout" or self.cut_off or answered

    def with_message(self, message: str) -> CallFailed:
        """Return the same failure with another message."""
        return self._with(self.kind, message)

    def ignoring_quotes_of(self, text: str) -> CallFailed:
        """If the words by which this failure was classified also occur in `text`, return it reclassified by its HTTP
        status, since the server may have quoted them. Otherwise return it unchanged.
        """
        words = " ".join(self.words.split()).casefold()
        quoted = words and words in " ".join(text.split()).casefold()
        if not quoted or self.status is None:
            return self
        return self._with(kind_of(self.status), str(self))

    def _with(self, kind: ProblemKind, message: str) -> CallFailed:
        return CallFailed(
            kind,
            message,
            status=self.status,
            retry_after=self.retry_after,
            cut_off=self.cut_off,
            words=self.words if kind == self.kind else "",
        )


_KINDS: dict[int, ProblemKind] = {
    401: "key",
    402: "key",  # no credit left
    403: "key",
    404: "model",
    405: "model",  # nothing at this address takes questions
    408: "timeout",
    409: "server",
    425: "server",
    429: "rate limit",
    499: "server",  # a proxy reports that we hung up, which we did not
    504: "timeout",
    524: "timeout",
}


def kind_of(status: int) -> ProblemKind:
    """Return the kind of failure for an HTTP status."""
    if status in _KINDS:
        return _KINDS[status]
    if 300 <= status < 400:
        return "model"  # redirects are not followed with a key; the base URL is wrong
    return "request" if 400 <= status < 500 else "server"


# --- the table of errors --------------------------------------------------------------------------------------

_REJECTED = frozenset({400, 413, 415, 422})
_BROKEN = frozenset(range(500, 600))
_STATUSES = {"rejected": _REJECTED, "broken": _BROKEN, "any": _REJECTED | _BROKEN}


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """A row of server_errors.yaml."""

    source: str
    kind: ProblemKind
    statuses: frozenset[int]
    names: frozenset[str]
    pattern: re.Pattern[str] | None


@functools.cache
def error_rows() -> list[ErrorRow]:
    """Read the table of server errors."""
    return [_row(**row) for row in read_table("server_errors.yaml")]


def _row(
    source: str,
    kind: ProblemKind,
    statuses: str | list[int],
    names: Iterable[str] = (),
    words: str = "",
) -> ErrorRow:
    numbers = _STATUSES[statuses] if isinstance(statuses, str) else frozenset(statuses)
    pattern = re.compile(words, re.IGNORECASE | re.DOTALL) if words else None
    return ErrorRow(source, kind, numbers, frozenset(names), pattern)


def read_error(
    status: int, names: Iterable[object], message: str
) -> tuple[ProblemKind, str] | None:
    """Return the kind of failure given by the first matching row of the table, and the matched words of the message.
    Named fields are compared before words. If a named field matches, the matched words are empty. Return None if no row
    matches.
    """
    fields = {re.split(r"[.\[]", name)[0] for name in names if isinstance(name, str)}
    rows = [row for row in error_rows() if status in row.statuses]
    for row in rows:
        if row.names & fields:
            return row.kind, ""
    for row in rows:
        if row.pattern and (match := row.pattern.search(message)):
            return row.kind, match[0]
    return None


_LIMIT = re.compile(
    r"(?:maximum (?:context|model) length (?:is|of)?|context size|context length(?: of(?: only)?)?|tokens allowed"
    r"|tokens >|n_ctx)\D{0,12}(\d[\d,]*)",
    re.IGNORECASE,
)


def context_limit(message: str) -> int | None:
    """Return the context length in tokens, or None if the server's message does not state it."""
    match = _LIMIT.search(message)
    return int(match[1].replace(",", "")[:12]) if match else None


def context_advice(setting: str, message: str) -> str:
    """Return advice for a context that is too small. It includes the context's size if the server states it."""
    limit = context_limit(message)
    size = f" of {limit:,} tokens" if limit else ""
    return (
        f"the question does not fit into the context{size}: raise {setting} ({message})"
    )


# --- responses ------------------------------------------------------------------------------------------------

MAX_WAIT = 600.0
"""Maximum wait in seconds. A server that asks for more has an hourly or daily quota: asking every ten minutes does no
harm, and an absurd number cannot stop a run.
"""
MAX_MESSAGE = 300
_MAX_READ = 4_000
"""Number of characters of an error that are read; an HTML page has nothing useful after them."""


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
    """Return the failure for an HTTP error. Its kind is `kind`, if given. Otherwise it comes from the table of errors
    or, if no row matches, from the status.
    """
    reason = message or _page(body)
    words = ""
    if kind is None:
        kind, words = read_error(status, names, reason) or (kind_of(status), "")
    wait = retry_after_of(headers) if retry_after is None else bounded(retry_after)
    return CallFailed(
        kind,
        f"HTTP {status}: {cleaned(reason) or 'no reason given'}",
        status=status,
        retry_after=wait if kind in ("rate limit", "server", "timeout") else None,
        words=words,
    )


def no_answer(body: bytes) -> CallFailed:
    """Return the failure for a successful response without an answer, such as a proxy's page, a truncated body or
    unrelated JSON.
    """
    text = cleaned(_page(body))
    message = "the server sent no answer"
    return CallFailed("server", f"{message}: {text}" if text else message, status=200)


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Return the number of seconds that the server asks us to wait, or None if it does not ask."""
    milliseconds = _number(header(headers, "retry-after-ms"))
    if milliseconds is not None:
        return bounded(milliseconds / 1000)
    wait = header(headers, "retry-after")
    seconds = _number(wait)
    until = _timestamp(wait)
    if seconds is None and until is not None:
        # Use the server's clock if it sends the time, since ours may be wrong.
        now = _timestamp(header(headers, "date"))
        seconds = until - (time.time() if now is None else now)
    return None if seconds is None else bounded(seconds)


def bounded(seconds: float) -> float | None:
    """Return a waiting time, limited to `MAX_WAIT`, or None if it is not a number."""
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
    """Return the text of an unexpected body, such as a proxy's HTML page."""
    text = body[:_MAX_READ].decode("utf-8", "replace")
    text = re.sub(r"(?is)<(script|style)\b.*?(</\1>|\Z)", " ", text)
    return re.sub(r"<[^>]*>?", " ", text)


# Providers repeat the key that they refuse, in full or with asterisks in the middle.
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
    """Return a server's message for display: one short line, without control characters and API keys."""
    line = "".join(
        " " if unicodedata.category(c)[0] in "CZ" else c for c in message[:_MAX_READ]
    )
    line = without_keys(" ".join(line.split()))
    return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE - 1]}…"


def without_keys(text: str) -> str:
    """Return a text in which everything that looks like a provider's API key is replaced."""
    return _KEYS.sub("[key]", text)
