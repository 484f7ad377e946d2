"""What a judge said of a task, with everything needed to trace and to trust it.

A score exists only where the status is `ok`. Every other status is a failure or an abstention: counted, explained,
and never a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from editjudge.rubrics.contract import Remark

Status = Literal[
    "ok",
    "abstained",
    "refused",
    "invalid",
    "truncated",
    "unreachable",
    "bad_image",
    "missing_output",
    "missing_input",
    "error",
]
"""`ok`: scored, some factors may abstain. `abstained`: all do. `refused`: the model declined. `invalid`: no reply kept
the contract. `truncated`: every reply was cut off. `unreachable`: no reply came. `bad_image`: a picture cannot be read.
`missing_output`: the editing model produced nothing. `missing_input`: the rubric needs something that is not there.
`error`: an unexpected exception on this edit alone, or a request that the server rejected."""

STATUSES: tuple[Status, ...] = get_args(Status)
DONE: tuple[Status, ...] = ("ok", "abstained")
"""Not tried again, and not counted as failed."""

SchemaMode = Literal["enforced", "requested", "prompt only"]
"""Whether the server promises to keep the JSON schema, was asked to, or only read about it in the question."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server counted them; None where it did not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    """Of the input tokens, those that a prefix cache paid for."""
    reasoning_tokens: int | None = None

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(_sum(getattr(self, name), getattr(other, name)) for name in self.__slots__))

    def as_json(self) -> dict[str, int | None]:
        return {name: getattr(self, name) for name in self.__slots__}


def _sum(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b


@dataclass(frozen=True, slots=True)
class Exchange:
    """One reply of a judge, or the reason why none came: kept for good, whatever became of it."""

    text: str
    """The raw reply, byte for byte; empty where there was none."""
    outcome: str
    """`ok`, the status this exchange alone would have had, or what failed on the way."""
    finish: str = "stop"
    usage: Usage = field(default_factory=Usage)
    model: str | None = None
    """What the server says it ran."""
    request_id: str | None = None
    latency: float | None = None
    """Seconds from the first byte sent to the last received."""
    retries: int = 0
    """Requests before this one that brought no reply: rate limits, server errors, hang-ups."""
    reasons: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge said of a task; what failed has a status, reasons and no scores.

    Raises `ValueError` where scores and status contradict each other.
    """

    key: str
    """Of everything that can change the answer: primary key, cache key and resume mark."""
    status: Status
    judge: str
    rubric: str
    rubric_hash: str
    repeat: int = 0
    scores: Mapping[str, float] | None = None
    """Integers stay integers."""
    justifications: Mapping[str, str] | None = None
    abstained: Mapping[str, str] = field(default_factory=dict)
    """Factor to the reason why it has no score."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    violations: tuple[Remark, ...] = ()
    notes: tuple[Remark, ...] = ()
    reasons: tuple[Remark, ...] = ()
    """Why there is no verdict, where there is none."""
    exchanges: tuple[Exchange, ...] = ()
    schema_mode: SchemaMode | None = None
    prepared: Mapping[str, str] = field(default_factory=dict)
    """How each picture was prepared, by role: `as-is`, or the recipe."""
    cost: float | None = None
    """In US dollars; None where the price is unknown."""
    created: float = 0.0
    """Seconds since 1970."""

    def __post_init__(self) -> None:
        if (self.scores is not None) != (self.status == "ok"):
            raise ValueError(f"a judgement that is {self.status} has {'no ' if self.scores is None else ''}scores")

    @property
    def attempts(self) -> int:
        """How often the judge was asked."""
        return len(self.exchanges)

    @property
    def usage(self) -> Usage:
        """Tokens of all attempts."""
        return sum((exchange.usage for exchange in self.exchanges), Usage())

    @property
    def server_model(self) -> str | None:
        """What the server last said it ran."""
        return next((e.model for e in reversed(self.exchanges) if e.model), None)


@dataclass(frozen=True, slots=True)
class Task:
    """Edit x rubric x judge x repeat: what a run must have a judgement of."""

    item: str
    rubric: str
    judge: str
    repeat: int
    key: str


def row(judgement: Judgement, item: str, model: str | None, group: str | None) -> dict[str, Any]:
    """One judgement of one item as programs read it: `judge --json`, a line of an export."""
    return {
        "item": item,
        "model": model,
        "group": group,
        "repeat": judgement.repeat,
        "status": judgement.status,
        "scores": dict(judgement.scores) if judgement.scores is not None else None,
        "justifications": dict(judgement.justifications) if judgement.justifications is not None else None,
        "abstained": dict(judgement.abstained),
        "evidence": dict(judgement.evidence),
        "judge": judgement.judge,
        "rubric": judgement.rubric,
        "rubric_hash": judgement.rubric_hash,
        "key": judgement.key,
        "attempts": judgement.attempts,
        "usage": judgement.usage.as_json(),
        "violations": list(dict.fromkeys(remark.code for remark in judgement.violations)),
        "reasons": [remark.as_json() for remark in judgement.reasons],
        "notes": [remark.as_json() for remark in judgement.notes],
        "server_model": judgement.server_model,
        "schema_mode": judgement.schema_mode,
        "prepared": dict(judgement.prepared),
        "cost": judgement.cost,
        "created": judgement.created,
        "cached": False,  # a store says so of what an earlier run had asked
    }


LOOKING = frozenset({"measured", "metrics"})
"""Judges that look at pictures and read no instruction, but for the few phrasings of which `measured` has proof."""


def unread(judges: Iterable[str]) -> str | None:
    """What a summary says first where nobody looked at whether instructions were followed."""
    named = sorted({judge.partition("@")[0] for judge in judges})
    if not named or not set(named) <= LOOKING:
        return None
    return f"{' and '.join(named)} did not look at whether the instruction was followed"
