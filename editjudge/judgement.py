"""What a judge said of a task, with everything needed to trace and to trust it.

A score exists only where the status is `ok`. Every other status is a failure or an abstention: counted, explained,
and never a number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from editjudge.rubrics.verdict import Remark

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

Order = Literal["ab", "ba"]
"""Which of two outputs was shown first."""

Kind = Literal[
    "text",
    "code",
    "hash",
    "count",
    "number",
    "time",
    "flag",
    "texts",
    "numbers",
    "document",
    "counts",
    "remarks",
    "codes",
]
"""What a value is. `text`: of others, any character. `code`: a word of our own. `texts` and `numbers`: by name.
`counts`: whole numbers by name, or None. `codes`: remarks, of which a row shows the codes alone."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a judgement's row, and where a store keeps it."""

    name: str
    kind: Kind
    optional: bool = False
    """May be None."""
    table: Literal["judgements", "scores", "tasks", "items", "computed"] = "judgements"
    column: str = ""
    """Of the table `scores`, which has one row a factor."""
    values: tuple[str, ...] = ()
    """Of a `code`."""
    added: bool = False
    """Exports of 0.1 do not have it."""


def _kept(kind: Kind, **options: Any) -> dict[str, Any]:
    """How a field of `Judgement` is kept: SQL columns, the Arrow schema, import, the row and OpenAPI follow it."""
    return {"kind": kind, **options}


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

    key: str = field(metadata=_kept("hash"))
    """Of everything that can change the answer: primary key, cache key and resume mark."""
    status: Status = field(metadata=_kept("code", values=STATUSES))
    judge: str = field(metadata=_kept("text"))
    rubric: str = field(metadata=_kept("text"))
    rubric_hash: str = field(metadata=_kept("hash"))
    repeat: int = field(default=0, metadata=_kept("count"))
    scores: Mapping[str, float] | None = field(default=None, metadata=_kept("numbers", table="scores", column="score"))
    """Integers stay integers."""
    justifications: Mapping[str, str] | None = field(default=None, metadata=_kept("texts"))
    abstained: Mapping[str, str] = field(default_factory=dict, metadata=_kept("texts"))
    """Factor to the reason why it has no score."""
    evidence: Mapping[str, Any] = field(default_factory=dict, metadata=_kept("document"))
    violations: tuple[Remark, ...] = field(default=(), metadata=_kept("codes"))
    notes: tuple[Remark, ...] = field(default=(), metadata=_kept("remarks"))
    reasons: tuple[Remark, ...] = field(default=(), metadata=_kept("remarks"))
    """Why there is no verdict, where there is none."""
    exchanges: tuple[Exchange, ...] = ()
    schema_mode: SchemaMode | None = field(default=None, metadata=_kept("code", values=get_args(SchemaMode)))
    prepared: Mapping[str, str] = field(default_factory=dict, metadata=_kept("texts"))
    """How each picture was prepared, by role: `as-is`, or the recipe."""
    cost: float | None = field(default=None, metadata=_kept("number"))
    """In US dollars; None where the price is unknown."""
    created: float = field(default=0.0, metadata=_kept("time"))
    """Seconds since 1970."""
    choices: Mapping[str, str] | None = field(
        default=None, metadata=_kept("texts", table="scores", column="choice", added=True)
    )
    """In the place of scores, where the rubric asks for choices."""
    expected: Mapping[str, float] = field(
        default_factory=dict, metadata=_kept("numbers", table="scores", column="expected", added=True)
    )
    """Factor to the mean over the judge's own probabilities of the scores, where it gave them."""
    mass: Mapping[str, float] = field(
        default_factory=dict, metadata=_kept("numbers", table="scores", column="mass", added=True)
    )
    """Factor to the probability that the judge gave to all legal scores together."""
    order: Order | None = field(default=None, metadata=_kept("code", values=get_args(Order), added=True))
    """Of a pair: which output was shown first. Scores and choices speak of the pair as the manifest names it."""

    def __post_init__(self) -> None:
        if problem := inconsistency(self):
            raise ValueError(f"a judgement that is {self.status} {problem}")

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


class Task(NamedTuple):
    """Edit x rubric x judge x repeat: what a run must have a judgement of."""

    item: str
    rubric: str
    judge: str
    repeat: int
    key: str
    variant: str = ""
    """Which of several questions of one rubric about one edit: a pair's order, the index of an element."""


FIELDS: tuple[Field, ...] = (
    Field("item", "text", table="tasks"),
    Field("model", "text", optional=True, table="items"),
    Field("group", "text", optional=True, table="items"),
    Field("variant", "text", table="tasks", added=True),
    *(
        Field(field.name, optional=str(field.type).endswith("| None"), **field.metadata)
        for field in dataclasses.fields(Judgement)
        if field.metadata
    ),
    Field("attempts", "count"),
    Field("usage", "counts"),
    Field("server_model", "text", optional=True),
    Field("cached", "flag", table="computed"),
)
"""The one table of a judgement's fields, in the order of a row. To add one, add it to `Judgement`."""

PER_FACTOR: Mapping[str, str] = {field.name: field.column for field in FIELDS if field.table == "scores"}
"""Fields that have a value for each factor, and their columns in the table `scores`."""


def inconsistency(judgement: Any) -> str | None:
    """What contradicts the status: a number where there is no verdict, or a verdict without any."""
    is_answered = judgement.scores is not None or judgement.choices is not None
    if is_answered != (judgement.status == "ok"):
        return "has scores" if is_answered else "has no scores"
    if judgement.choices is not None and not judgement.choices:
        return "has no choices: expected None in their place"
    if not is_answered and (judgement.expected or judgement.mass):
        return "has probabilities of scores"
    return None


def row(judgement: Judgement, item: str, model: str | None, group: str | None, variant: str = "") -> dict[str, Any]:
    """One judgement of one item as programs read it: `judge --json`, a line of an export."""
    about: dict[str, Any] = {"item": item, "model": model, "group": group, "variant": variant}
    about["cached"] = False  # a store says so of what an earlier run had asked
    return {
        field.name: about[field.name] if field.name in about else _plain(field.kind, getattr(judgement, field.name))
        for field in FIELDS
    }


def _plain(kind: Kind, value: Any) -> Any:
    if kind == "codes":
        return list(dict.fromkeys(remark.code for remark in value))
    if kind == "remarks":
        return [remark.as_json() for remark in value]
    if kind == "counts":
        return value.as_json()
    return dict(value) if isinstance(value, Mapping) else value


def from_row(row: Mapping[str, Any]) -> Judgement:
    """The judgement of a row, without its replies; of a violation a row has the code alone."""
    values: dict[str, Any] = {}
    for declared in FIELDS:
        if declared.name in Judgement.__slots__:
            value = row[declared.name]
            if declared.kind in ("codes", "remarks"):
                value = tuple(Remark(one, "") if isinstance(one, str) else Remark(**one) for one in value)
            values[declared.name] = value
    return Judgement(**values)


EMPTY_ROW: Mapping[str, Any] = row(Judgement("", "invalid", "", "", ""), "", None, None)
"""What a row has where nothing was said; those fields that an export of 0.1 does not have hold this."""


def factor_values(row: Mapping[str, Any], factor: str) -> dict[str, Any]:
    """What a row says of one factor, by the names of the columns of a table with a row for each factor."""
    values = {column: (row[name] or {}).get(factor) for name, column in PER_FACTOR.items()}
    return values | {
        "justification": (row["justifications"] or {}).get(factor),
        "abstained": row["abstained"].get(factor),
    }


LOOKING = frozenset({"measured", "metrics"})
"""Judges that look at pictures and read no instruction, but for the few phrasings of which `measured` has proof."""


def unread(judges: Iterable[str]) -> str | None:
    """Return the first line of a summary if no judge looks at whether instructions were followed; else None."""
    named = sorted({judge.partition("@")[0] for judge in judges})
    if not named or not set(named) <= LOOKING:
        return None
    does = "does" if len(named) == 1 else "do"
    return (
        f"not judged: whether the instruction was followed. {' and '.join(named)} {does} not look at that, so a model "
        "that does less of what was asked can score higher"
    )
