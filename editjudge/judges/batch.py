"""What the batch APIs of the providers have in common: many questions handed in together, answers fetched later."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol, cast

from editjudge.errors import UsageError
from editjudge.judges.body import mapping
from editjudge.judges.judge import is_local
from editjudge.judges.providers import split
from editjudge.judges.registry import GGUF

PROVIDERS = ("openai", "anthropic", "google")

Body = tuple[bytes, ...]
"""In pieces, as requests are."""


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """What became of one question: an HTTP response, though none was sent for it alone."""

    custom_id: str
    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A batch as the provider sees it."""

    ended: bool
    answered: int = 0
    results: tuple[str, ...] = ()
    """Paths of files with a line for each answer."""
    problem: str = ""
    """Why the whole batch was turned down, where it was."""


@dataclass(slots=True)
class BatchPart:
    """A batch in the making."""

    model: str
    mark: str
    """Ours, by which it can be found again."""
    lines: list[Body] = field(default_factory=list)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Those that one of its questions would have alone."""


@dataclass(frozen=True, slots=True)
class LostAnswer:
    """A batch that was handed in, perhaps, and that we have no id of."""

    mark: str
    since: float
    questions: int


@dataclass(frozen=True, slots=True)
class BatchSearch:
    """Whether a batch of ours is among those that the provider lists."""

    id: str | None = None
    sure: bool = True
    """Whether there is none, if none was found."""


class HttpCalls(Protocol):
    """Requests to a provider that are no questions; each raises `Problem` where there is no success."""

    async def post(self, path: str, body: Body, headers: Mapping[str, str] = {}) -> tuple[Any, Mapping[str, str]]:
        """The document and the headers of the response. Sent once: whether it may be sent again is the caller's."""
        ...

    async def get(self, path: str, headers: Mapping[str, str] = {}) -> Any: ...

    async def head_of(self, path: str, headers: Mapping[str, str] = {}) -> Any:
        """The first line of a file of JSON lines."""
        ...


class BatchClient(Protocol):
    """What the modules `batch_openai`, `batch_anthropic` and `batch_google` have in common."""

    MOST_QUESTIONS: int
    MOST_BYTES: int
    HEADERS: Mapping[str, str]

    def line(self, custom_id: str, body: Body) -> Body:
        """One question as part of a batch."""
        ...

    async def submit(self, calls: HttpCalls, part: BatchPart) -> str:
        """The provider's id of the new batch, which carries our mark where there is a place for it."""
        ...

    async def look(self, calls: HttpCalls, batch_id: str) -> BatchJob: ...

    def answer(self, line: Mapping[str, Any]) -> BatchAnswer: ...

    async def find(self, calls: HttpCalls, lost: LostAnswer) -> BatchSearch: ...


def batch_client(spec: str) -> BatchClient:
    """How the batches of a judge are spoken of; an error that says what to do where there are none."""
    name = "" if is_local(spec) or spec.startswith(GGUF) else split(spec)[0]
    if name not in PROVIDERS:
        raise UsageError(
            f"{spec} has no batches: --batch is for {', '.join(f'{p}/...' for p in PROVIDERS)}. "
            "Run it without --batch, in a run of its own where others have batches"
        )
    return cast(BatchClient, import_module(f"editjudge.judges.batch_{name}"))


def rows(value: object) -> list[dict[str, Any]]:
    """The objects of a list."""
    return [mapping(row) for row in value] if isinstance(value, list) else []


def seconds_of(text: object) -> float:
    """A moment in RFC 3339 as seconds since 1970; far in the future where it is none, so that nothing is missed."""
    try:
        return datetime.datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return float("inf")


PAGES = 1_000
"""Of a provider's list that are looked through; a server that never ends does not hold up a run for good."""
SLACK = 600.0
"""Seconds that our clock and a provider's may differ by when a batch is looked for."""
