"""A judge's answer to a task, with everything needed to trace and verify it.

A score exists only if the status is `ok`. Every other status is a failure or an abstention, which is counted and
explained but never becomes a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    TypedDict,
    get_args,
    get_type_hints,
)

from editjudge.rubrics.verdict import Remark, RemarkJson

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
"""Outcome of a judgement. `ok`: scored, although some factors may abstain. `abstained`: all factors abstain.
`refused`: the model declined. `invalid`: no reply followed the contract. `truncated`: every reply was cut off.
`unreachable`: the judge did not reply. `bad_image`: an image cannot be read. `missing_output`: the editing model
produced nothing. `missing_input`: the edit lacks an input that the rubric needs. `error`: an unexpected exception on
this edit, or a request that the server rejected.
"""

STATUSES: tuple[Status, ...] = get_args(Status)
DONE: tuple[Status, ...] = ("ok", "abstained")
"""Statuses of completed judgements, which are not retried and do not count as failed."""
FAILED: tuple[Status, ...] = tuple(status for status in STATUSES if status not in DONE)

SchemaMode = Literal["enforced", "requested", "prompt only"]
"""How the JSON schema is applied. `enforced`: the server guarantees it. `requested`: the server was asked to follow it.
`prompt only`: only the prompt describes it.
"""

Order = Literal["ab", "ba"]
"""Order of the outputs of a pair: `ab` if a was shown first, `ba` if b was."""

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
"""Type of a field's value. `text`: untrusted, any character. `code`: one of a fixed list. `integer`: signed, 64 bits.
`texts` and `numbers`: mappings from names. `counts`: a mapping from names to integers or None. `codes`: remarks that
a row reduces to their codes.
"""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a judgement's row, with its table and column in a store."""

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


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts that the server reported. Counts that it did not report are None."""

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
    """One reply from a judge, or the reason why there is none. Every exchange is stored, even if its reply was invalid."""

    text: str
    """The raw reply, byte for byte; empty if there was none."""
    outcome: str
    """`ok`, or the status that this exchange alone would give, or the error that its request ended with."""
    finish: str = "stop"
    usage: Usage = field(default_factory=Usage)
    model: str | None = None
    """Name of the model, as given in the server's reply."""
    request_id: str | None = None
    latency: float | None = None
    """Seconds from the first byte sent to the last received."""
    retries: int = 0
    """Number of earlier requests without a reply, because of rate limits, server errors or lost connections."""
    reasons: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judge's answer to a task. A failure has a status and reasons, but no scores.

    Raises `ValueError` if scores and status contradict each other.
    """

    key: str
    """Hash of everything that can change the answer. It is used as the primary key, for caching, and to resume a run.
    """
    status: Status
    judge: str
    rubric: str
    rubric_hash: str
    repeat: int = 0
    scores: Mapping[str, float] | None = None
    """Scores, keyed by factor. An integer stays an integer."""
    justifications: Mapping[str, str] | None = None
    abstained: Mapping[str, str] = field(default_factory=dict)
    """Reason for each factor without a score."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    violations: tuple[Remark, ...] = ()
    notes: tuple[Remark, ...] = ()
    reasons: tuple[Remark, ...] = ()
    """Reasons why there is no verdict."""
    exchanges: tuple[Exchange, ...] = ()
    schema_mode: SchemaMode | None = None
    prepared: Mapping[str, str] = field(default_factory=dict)
    """How each image was prepared, keyed by role: `as-is`, or the steps that were applied."""
    cost: float | None = None
    """Cost in US dollars; None if the price is unknown."""
    created: float = 0.0
    """Time when the judgement was made, in seconds since 1970."""
    choices: Mapping[str, str] | None = None
    """Choices, keyed by factor, if the rubric asks for choices instead of scores."""
    expected: Mapping[str, float] = field(default_factory=dict)
    """Expected score of each factor under the judge's token probabilities, if it returned them."""
    mass: Mapping[str, float] = field(default_factory=dict)
    """Total probability of the legal scores, keyed by factor."""
    order: Order | None = None
    """Order in which the outputs of a pair were shown. Scores and choices name the outputs as the manifest does, in
    either order.
    """

    def __post_init__(self) -> None:
        problem = inconsistency(
            self.status, self.scores, self.choices, self.expected, self.mass
        )
        if problem:
            raise ValueError(f"a judgement that is {self.status} {problem}")

    @property
    def attempts(self) -> int:
        """Number of requests sent to the judge."""
        return len(self.exchanges)

    @property
    def usage(self) -> Usage:
        """Token counts, summed over all attempts."""
        return sum((exchange.usage for exchange in self.exchanges), Usage())

    @property
    def server_model(self) -> str | None:
        """Name of the model that the server reported in its last reply."""
        return next((e.model for e in reversed(self.exchanges) if e.model), None)


class Task(NamedTuple):
    """One combination of edit, rubric, judge and repeat. A run needs a judgement for each task."""

    item: str
    rubric: str
    judge: str
    repeat: int
    key: str
    variant: str = ""
    """Distinguishes the questions of one rubric about one edit, such as the two orders of a pair."""


class JudgementRow(TypedDict):
    """A task with its judgement, both as a row of a store and as an object in JSON. The annotation of each field
    declares how it is stored. SQL columns, the Arrow schema, the import checks and the OpenAPI document are derived
    from it.

    If there is no judgement, the status is `pending`, and every field of the answer is None or empty.
    """

    item: Annotated[str, partial(Field, kind="text", table="tasks")]
    model: Annotated[str | None, partial(Field, kind="text", table="items")]
    group: Annotated[str | None, partial(Field, kind="text", table="items")]
    variant: Annotated[str, partial(Field, kind="text", table="tasks", added=True)]
    key: Annotated[str, partial(Field, kind="hash")]
    status: Annotated[
        Status | Literal["pending"], partial(Field, kind="code", values=STATUSES)
    ]
    judge: Annotated[str, partial(Field, kind="text")]
    rubric: Annotated[str, partial(Field, kind="text")]
    rubric_hash: Annotated[str, partial(Field, kind="hash")]
    repeat: Annotated[int, partial(Field, kind="count")]
    scores: Annotated[
        dict[str, float] | None,
        partial(Field, kind="numbers", table="scores", column="score"),
    ]
    justifications: Annotated[dict[str, str] | None, partial(Field, kind="texts")]
    abstained: Annotated[dict[str, str], partial(Field, kind="texts")]
    evidence: Annotated[dict[str, Any], partial(Field, kind="document")]
    violations: Annotated[list[str], partial(Field, kind="codes")]
    notes: Annotated[list[RemarkJson], partial(Field, kind="remarks")]
    reasons: Annotated[list[RemarkJson], partial(Field, kind="remarks")]
    schema_mode: Annotated[
        SchemaMode | None, partial(Field, kind="code", values=get_args(SchemaMode))
    ]
    prepared: Annotated[dict[str, str], partial(Field, kind="texts")]
    cost: Annotated[float | None, partial(Field, kind="number")]
    created: Annotated[float, partial(Field, kind="time")]
    choices: Annotated[
        dict[str, str] | None,
        partial(Field, kind="texts", table="scores", column="choice", added=True),
    ]
    expected: Annotated[
        dict[str, float],
        partial(Field, kind="numbers", table="scores", column="expected", added=True),
    ]
    mass: Annotated[
        dict[str, float],
        partial(Field, kind="numbers", table="scores", column="mass", added=True),
    ]
    order: Annotated[
        Order | None,
        partial(Field, kind="code", values=get_args(Order), added=True),
    ]
    attempts: Annotated[int, partial(Field, kind="count")]
    usage: Annotated[dict[str, int | None], partial(Field, kind="counts")]
    server_model: Annotated[str | None, partial(Field, kind="text")]
    cached: Annotated[bool, partial(Field, kind="flag", table="computed")]
    """Whether an earlier run asked the question."""
    position: NotRequired[int]
    """Position of the task in its run. Only rows from a store have this field and the following ones."""
    edit_type: NotRequired[str | None]
    metadata: NotRequired[dict[str, object]]


def _fields() -> Iterator[Field]:
    for name, hint in get_type_hints(JudgementRow, include_extras=True).items():
        for declare in getattr(hint, "__metadata__", ()):
            yield declare(name, optional=type(None) in get_args(hint.__origin__))


FIELDS = tuple(_fields())
"""Fields of a judgement, in the order of a row."""

PER_FACTOR: Mapping[str, str] = {
    field.name: field.column for field in FIELDS if field.table == "scores"
}
"""Fields with a value for each factor, and their columns in the table `scores`."""


def inconsistency(
    status: str,
    scores: Mapping[str, float] | None,
    choices: Mapping[str, str] | None,
    *probabilities: Mapping[str, float],
) -> str | None:
    """Return a description of how scores and status contradict each other, such as a score without a verdict. Return
    None if they agree.
    """
    is_answered = scores is not None or choices is not None
    if is_answered != (status == "ok"):
        return "has scores" if is_answered else "has no scores"
    if choices is not None and not choices:
        return "has no choices: expected None in their place"
    if not is_answered and any(probabilities):
        return "has probabilities of scores"
    return None


def row(
    judgement: Judgement,
    item: str,
    model: str | None,
    group: str | None,
    variant: str = "",
) -> JudgementRow:
    """Return a judgement as a dict for JSON, as in the output of `judge --json` or a line of an export."""
    return {
        "item": item,
        "model": model,
        "group": group,
        "variant": variant,
        "key": judgement.key,
        "status": judgement.status,
        "judge": judgement.judge,
        "rubric": judgement.rubric,
        "rubric_hash": judgement.rubric_hash,
        "repeat": judgement.repeat,
        "scores": None if judgement.scores is None else dict(judgement.scores),
        "justifications": (
            None if judgement.justifications is None else dict(judgement.justifications)
        ),
        "abstained": dict(judgement.abstained),
        "evidence": dict(judgement.evidence),
        "violations": list(dict.fromkeys(r.code for r in judgement.violations)),
        "notes": [remark.as_json() for remark in judgement.notes],
        "reasons": [remark.as_json() for remark in judgement.reasons],
        "schema_mode": judgement.schema_mode,
        "prepared": dict(judgement.prepared),
        "cost": judgement.cost,
        "created": judgement.created,
        "choices": None if judgement.choices is None else dict(judgement.choices),
        "expected": dict(judgement.expected),
        "mass": dict(judgement.mass),
        "order": judgement.order,
        "attempts": judgement.attempts,
        "usage": judgement.usage.as_json(),
        "server_model": judgement.server_model,
        "cached": False,  # a store sets it for answers of earlier runs
    }


EMPTY_ROW = row(Judgement("", "invalid", "", "", ""), "", None, None)
"""Row without an answer. It has the defaults of fields that are missing in exports of version 0.1."""


def factor_values(row: JudgementRow, factor: str) -> dict[str, float | str | None]:
    """Return the values that a row has for one factor, keyed by their columns in the table `scores`."""
    return {
        "score": (row["scores"] or {}).get(factor),
        "choice": (row["choices"] or {}).get(factor),
        "expected": row["expected"].get(factor),
        "mass": row["mass"].get(factor),
        "justification": (row["justifications"] or {}).get(factor),
        "abstained": row["abstained"].get(factor),
    }


PIXEL_JUDGES = frozenset({"measured", "metrics"})
"""Judges that compare pixels. They do not read the instruction, except for a few phrasings that `measured` can
verify.
"""


def instruction_warning(judges: Iterable[str]) -> str | None:
    """Return a warning if none of the judges checks whether the instruction was followed, else None."""
    named = sorted({judge.partition("@")[0] for judge in judges})
    if not named or not set(named) <= PIXEL_JUDGES:
        return None
    does = "does" if len(named) == 1 else "do"
    return (
        f"not judged: whether the instruction was followed. {' and '.join(named)} {does} not look at that, so a model "
        "that does less of what was asked can score higher"
    )
