"""What goes to a judge and what comes back, whatever the wire format between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from editjudge.judgement import Usage
from editjudge.rubrics.prompt import Part
from editjudge.rubrics.verdict import Finish


@dataclass(frozen=True, slots=True)
class EncodedPicture:
    """A picture as it is sent."""

    media_type: str
    base64: bytes
    """Encoded once per run, and spliced into every body that shows it."""


@dataclass(frozen=True, slots=True)
class Message:
    """A reply that was no answer, and what the judge was told about it."""

    reply: str
    message: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """One question and, after a reply that was refused, what was said since."""

    parts: tuple[Part, ...]
    pictures: Mapping[str, EncodedPicture]
    """By role; every image part has one."""
    turns: tuple[Message, ...] = ()
    schema: Mapping[str, Any] | None = None
    """The JSON schema to request; None where the answer is not JSON alone, or the server does not take one."""
    schema_name: str = "answer"
    top_logprobs: int | None = None
    """How many alternatives of each token are requested with their probabilities; None: none are."""
    choices: int = 1
    """Replies that one request brings, each of its own."""
    system: str = ""
    """A message that goes before the question."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """How a model is asked. None leaves a setting to the server."""

    temperature: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Passed through as they are (`-J key=value`)."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """An HTTP POST, less the host and the key."""

    path: str
    body: tuple[bytes, ...]
    """In pieces, so that a picture of megabytes is never copied into a body."""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """One token of a reply, and what the model might have written in its place."""

    data: bytes
    """As it stands in the reply; half of a character is bytes too."""
    logprob: float
    alternatives: tuple[tuple[bytes, float], ...] = ()
    """With their natural logarithms of probability, the token itself mostly among them."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered, in one form for all of them."""

    text: str
    finish: Finish = "stop"
    usage: Usage = field(default_factory=Usage)
    model: str | None = None
    request_id: str | None = None
    tokens: tuple[TokenChoice, ...] = ()
    """Where their probabilities were requested, and the server gave them."""
    others: tuple[Reply, ...] = ()
    """Further replies to the same request, where several were requested: `usage` is that of all of them."""


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
    """A request that brought no reply."""

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
        """`rate limit`, `server`, `timeout`, `connection`: worth another try. `request`: this question was refused as
        malformed. `key`, `model`: no question will fare better. `refusal`: declined before a model saw it.
        `schema`: the server does not take the JSON schema. `context`: the question does not fit. `image`: a picture
        was rejected. `grammar`: a reply was made, and the server refuses it for breaking the schema."""
        self.status = status
        self.retry_after = retry_after
        self.cut_off = cut_off
        """Whether the request was sent, and its answer broke off or never came."""
        self.words = words
        """The words of the server that the kind rests on; empty where it rests on a status or a named field."""

    @property
    def passing(self) -> bool:
        return self.kind in ("rate limit", "server", "timeout", "connection")

    @property
    def may_be_billed(self) -> bool:
        """Whether a model may have worked on it: a vendor bills what it made, also where nobody received it."""
        answered = self.status is not None and 200 <= self.status < 300
        return self.kind == "timeout" or self.cut_off or answered

    def saying(self, message: str) -> CallFailed:
        """The same in other words."""
        return self._with(self.kind, message)

    def not_from(self, text: str) -> CallFailed:
        """As its status alone says, where the words it rests on are quoted from this text, which was sent."""
        quoted = self.words and " ".join(self.words.split()).casefold() in " ".join(text.split()).casefold()
        return self._with(kind_of(self.status), str(self)) if quoted and self.status is not None else self

    def _with(self, kind: ProblemKind, message: str) -> CallFailed:
        words = self.words if kind == self.kind else ""
        return CallFailed(
            kind, message, status=self.status, retry_after=self.retry_after, cut_off=self.cut_off, words=words
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
    499: "server",  # a proxy says that we hung up, which we did not
    504: "timeout",
    524: "timeout",
}


def kind_of(status: int) -> ProblemKind:
    """What an HTTP status says of a request."""
    if status in _KINDS:
        return _KINDS[status]
    if 300 <= status < 400:
        return "model"  # redirects are not followed with a key in hand; the base URL is wrong
    return "request" if 400 <= status < 500 else "server"
