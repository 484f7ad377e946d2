"""A judge's answer to a task, with everything needed to trace and verify it.

A score exists only if the status is `ok`. Every other status is a failure or an abstention: counted, explained, and
never a number.
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
"""Outcome of a judgement. `ok`: scored, some factors may abstain. `abstained`: all factors abstain. `refused`: the model
declined. `invalid`: no reply followed the contract. `truncated`: every reply was cut off. `unreachable`: the judge did
not reply. `bad_image`: an image cannot be read. `missing_output`: the editing model produced nothing. `missing_input`:
the edit lacks an input that the rubric needs. `error`: an unexpected exception on this edit, or a request that the server
rejected."""

STATUSES: tuple[Status, ...] = get_args(Status)
DONE: tuple[Status, ...] = ("ok", "abstained")
"""Statuses of completed judgements, which are not retried and do not count as failed."""

SchemaMode = Literal["enforced", "requested", "prompt only"]
"""How the JSON schema reached the server: it guarantees the schema, it was asked to follow it, or only the prompt
describes it."""

Order = Literal["ab", "ba"]
"""Which of two outputs was shown first."""

Kind = Literal[
    "text",
    "code",
    "hash",
    "count",
    "integer",
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
"""Kind of a value. `text`: untrusted, any character. `code`: one of a fixed list. `integer`: 64 bits, signed. `texts` and
`numbers`: mappings from names. `counts`: mapping from names to integers or None. `codes`: remarks, of which a row has
only the codes."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a judgement's row, and its location in a store."""

    name: str
    kind: Kind
    optional: bool = False
    """Whether the value may be None."""
    table: Literal["judgements", "scores", "tasks", "items", "computed"] = "judgements"
    column: str = ""
    """Column of the table `scores`, which has one row per factor."""
    values: tuple[str, ...] = ()
    """Legal values of a `code`."""
    added: bool = False
    """Whether exports of version 0.1 lack the field."""


def _stored_as(kind: Kind, **options: Any) -> dict[str, Any]:
    """Declare how a field of `Judgement` is stored: SQL columns, the Arrow schema, import, the row and OpenAPI follow."""
    return {"kind": kind, **options}


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as counted by the server; None if it did not report them."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    """Input tokens that were read from a prefix cache."""
    reasoning_tokens: int | None = None

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            *(
                _sum(getattr(self, name), getattr(other, name))
                for name in self.__slots__
            )
        )

    def as_json(self) -> dict[str, int | None]:
        return {name: getattr(self, name) for name in self.__slots__}


def _sum(a: int | None, b: int | None) -> int | None:
    counts = [count for count in (a, b) if count is not None]
    return sum(counts) if counts else None


@dataclass(frozen=True, slots=True)
class Exchange:
    """One reply of a judge, or the reason why there is none. Always stored, whether or not it could be used."""

    text: str
    """The raw reply, byte for byte; empty if there was none."""
    outcome: str
    """`ok`, the status that this exchange alone would lead to, or the error of its request."""
    finish: str = "stop"
    usage: Usage = field(default_factory=Usage)
    model: str | None = None
    """Model that the server reported."""
    request_id: str | None = None
    latency: float | None = None
    """Seconds from the first byte sent to the last received."""
    retries: int = 0
    """Earlier requests without a reply: rate limits, server errors, lost connections."""
    reasons: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judge's answer to a task; a failure has a status, reasons and no scores.

    Raises `ValueError` if scores and status contradict each other.
    """

    key: str = field(metadata=_stored_as("hash"))
    """Hash of everything that can change the answer: primary key, cache key and resume key."""
    status: Status = field(metadata=_stored_as("code", values=STATUSES))
    judge: str = field(metadata=_stored_as("text"))
    rubric: str = field(metadata=_stored_as("text"))
    rubric_hash: str = field(metadata=_stored_as("hash"))
    repeat: int = field(default=0, metadata=_stored_as("count"))
    scores: Mapping[str, float] | None = field(
        default=None, metadata=_stored_as("numbers", table="scores", column="score")
    )
    """Scores by factor. Integers stay integers."""
    justifications: Mapping[str, str] | None = field(
        default=None, metadata=_stored_as("texts")
    )
    abstained: Mapping[str, str] = field(
        default_factory=dict, metadata=_stored_as("texts")
    )
    """Reasons why factors have no score."""
    evidence: Mapping[str, Any] = field(
        default_factory=dict, metadata=_stored_as("document")
    )
    violations: tuple[Remark, ...] = field(default=(), metadata=_stored_as("codes"))
    notes: tuple[Remark, ...] = field(default=(), metadata=_stored_as("remarks"))
    reasons: tuple[Remark, ...] = field(default=(), metadata=_stored_as("remarks"))
    """Reasons why there is no verdict."""
    exchanges: tuple[Exchange, ...] = ()
    schema_mode: SchemaMode | None = field(
        default=None, metadata=_stored_as("code", values=get_args(SchemaMode))
    )
    prepared: Mapping[str, str] = field(
        default_factory=dict, metadata=_stored_as("texts")
    )
    """Preparation of each image, by role: `as-is`, or the recipe."""
    cost: float | None = field(default=None, metadata=_stored_as("number"))
    """US dollars; None if the price is unknown."""
    created: float = field(default=0.0, metadata=_stored_as("time"))
    """Seconds since 1970."""
    choices: Mapping[str, str] | None = field(
        default=None,
        metadata=_stored_as("texts", table="scores", column="choice", added=True),
    )
    """Answers of a rubric that asks for choices instead of scores."""
    expected: Mapping[str, float] = field(
        default_factory=dict,
        metadata=_stored_as("numbers", table="scores", column="expected", added=True),
    )
    """Expected score of each factor under the judge's token probabilities, if it returned them."""
    mass: Mapping[str, float] = field(
        default_factory=dict,
        metadata=_stored_as("numbers", table="scores", column="mass", added=True),
    )
    """Total probability of the legal scores, by factor."""
    order: Order | None = field(
        default=None, metadata=_stored_as("code", values=get_args(Order), added=True)
    )
    """Output of a pair that was shown first. Scores and choices use the manifest's naming of the pair, whatever the order."""

    def __post_init__(self) -> None:
        if problem := inconsistency(self):
            raise ValueError(f"a judgement that is {self.status} {problem}")

    @property
    def attempts(self) -> int:
        """Number of times that the judge was asked."""
        return len(self.exchanges)

    @property
    def usage(self) -> Usage:
        """Tokens of all attempts."""
        return sum((exchange.usage for exchange in self.exchanges), Usage())

    @property
    def server_model(self) -> str | None:
        """Model that the server reported in the last reply."""
        return next((e.model for e in reversed(self.exchanges) if e.model), None)


class Task(NamedTuple):
    """One combination of edit, rubric, judge and repeat. A run needs one judgement of each task."""

    item: str
    rubric: str
    judge: str
    repeat: int
    key: str
    variant: str = ""
    """Distinguishes several questions of one rubric about one edit, such as the two orders of a pair."""


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
"""Fields of a judgement, in the order of a row. To add a field, add it to `Judgement`."""

PER_FACTOR: Mapping[str, str] = {
    field.name: field.column for field in FIELDS if field.table == "scores"
}
"""Fields that have a value for each factor, and their columns in the table `scores`."""


def inconsistency(judgement: Any) -> str | None:
    """Return what contradicts the status (a score without a verdict, or a verdict without a score); None if nothing
    does."""
    is_answered = judgement.scores is not None or judgement.choices is not None
    if is_answered != (judgement.status == "ok"):
        return "has scores" if is_answered else "has no scores"
    if judgement.choices is not None and not judgement.choices:
        return "has no choices: expected None in their place"
    if not is_answered and (judgement.expected or judgement.mass):
        return "has probabilities of scores"
    return None


def row(
    judgement: Judgement,
    item: str,
    model: str | None,
    group: str | None,
    variant: str = "",
) -> dict[str, Any]:
    """Return a judgement of an item as a dict for JSON: `judge --json`, or a line of an export."""
    values: dict[str, Any] = {
        "item": item,
        "model": model,
        "group": group,
        "variant": variant,
        "cached": False,  # a store sets it for answers of earlier runs
    }
    for declared in FIELDS:
        if declared.name not in values:
            value = getattr(judgement, declared.name)
            values[declared.name] = _plain(declared.kind, value)
    return {declared.name: values[declared.name] for declared in FIELDS}


def _plain(kind: Kind, value: Any) -> Any:
    if kind == "codes":
        return list(dict.fromkeys(remark.code for remark in value))
    if kind == "remarks":
        return [remark.as_json() for remark in value]
    if kind == "counts":
        return value.as_json()
    return dict(value) if isinstance(value, Mapping) else value


EMPTY_ROW: Mapping[str, Any] = row(Judgement("", "invalid", "", "", ""), "", None, None)
"""Row without an answer; provides defaults for the fields that an export of 0.1 lacks."""


def factor_values(row: Mapping[str, Any], factor: str) -> dict[str, Any]:
    """Return the values of one factor in a row, by column of the table `scores`."""
    values = {
        column: (row[name] or {}).get(factor) for name, column in PER_FACTOR.items()
    }
    return values | {
        "justification": (row["justifications"] or {}).get(factor),
        "abstained": row["abstained"].get(factor),
    }


PIXEL_JUDGES = frozenset({"measured", "metrics"})
"""Judges that compare pixels and do not read the instruction, except for a few phrasings that `measured` can verify."""


def instruction_warning(judges: Iterable[str]) -> str | None:
    """Return a warning if none of the judges can check whether the instruction was followed; else None."""
    named = sorted({judge.partition("@")[0] for judge in judges})
    if not named or not set(named) <= PIXEL_JUDGES:
        return None
    does = "does" if len(named) == 1 else "do"
    return (
        f"not judged: whether the instruction was followed. {' and '.join(named)} {does} not look at that, so a model "
        "that does less of what was asked can score higher"
    )
