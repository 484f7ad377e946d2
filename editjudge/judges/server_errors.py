"""What servers say when they answer with an error, and what it means: the table is server_errors.yaml.

A row that looks at named fields (codes, types, parameters) is certain. One that looks at words is not, since servers
quote what they were sent: whoever uses an `ErrorMeaning` compares its words with the question.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from editjudge.judges import read_table
from editjudge.judges.messages import ProblemKind

_REJECTED = frozenset({400, 413, 415, 422})
_BROKEN = frozenset(range(500, 600))
_STATUSES = {"rejected": _REJECTED, "broken": _BROKEN, "any": _REJECTED | _BROKEN}


@dataclass(frozen=True, slots=True)
class ErrorRow:
    source: str
    kind: ProblemKind
    statuses: frozenset[int]
    names: frozenset[str]
    pattern: re.Pattern[str] | None


class ErrorMeaning(NamedTuple):
    """What an error means."""

    kind: ProblemKind
    words: str = ""
    """The words of the message that say so; empty where a field does."""


@functools.cache
def error_rows() -> list[ErrorRow]:
    return [_row(**row) for row in read_table("server_errors.yaml")]


def _row(source: str, kind: Any, statuses: str | list[int], names: Iterable[str] = (), words: str = "") -> ErrorRow:
    numbers = _STATUSES[statuses] if isinstance(statuses, str) else frozenset(statuses)
    pattern = re.compile(words, re.IGNORECASE | re.DOTALL) if words else None
    return ErrorRow(source, kind, numbers, frozenset(names), pattern)


def read_error(status: int, names: Iterable[object], message: str) -> ErrorMeaning | None:
    """The meaning of the first row that fits; fields are compared before words."""
    fields = {re.split(r"[.\[]", name)[0] for name in names if isinstance(name, str)}
    rows = [row for row in error_rows() if status in row.statuses]
    for row in rows:
        if row.names & fields:
            return ErrorMeaning(row.kind)
    for row in rows:
        if row.pattern and (match := row.pattern.search(message)):
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


def context_advice(setting: str, message: str) -> str:
    """What to do about a context that is too small, with its size where the server says it."""
    limit = context_limit(message)
    size = f" of {limit:,} tokens" if limit else ""
    return f"the question does not fit into the context{size}: raise {setting} ({message})"
