"""The reward protocol: requests to and responses from `/v1/judge` and `/v1/reward`, and the documents that describe
them.

A request cannot name a path or a URL. It contains its images, and can name only judges and rubrics from a fixed list.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    create_model,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import models_json_schema
from pydantic_core import PydanticCustomError

import editjudge
from editjudge.edit import IMAGE_ROLES, MAX_IMAGES, Edit
from editjudge.judgement import FIELDS, STATUSES
from editjudge.judges.judge import Options, is_local
from editjudge.rewards.reduction import (
    LEAST_WEIGHT,
    MOST_WEIGHT,
    NOT_JUDGED,
    Formula,
    Use,
)
from editjudge.store.import_run import ImportedJudgement

JsonSchema = dict[str, Any]
"""A JSON Schema or an OpenAPI document, whose parts have many types."""
PROTOCOL = 1
"""Version of the reward protocol (docs/reward-protocol.md), which increases with every incompatible change."""
BASE64 = r"^(data:image/[a-z0-9.+-]{1,40};base64,)?([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
"""Pattern for an image in JSON, used only in the OpenAPI document. The decoder below is as strict and much faster."""
_PREFIX = re.compile(r"data:image/[a-z0-9.+-]{1,40};base64,")
_MAX_TURN = 10**6


@dataclass(frozen=True)
class Terms:
    """Settings of the reward API: the judges and rubrics on offer, and the limits of a request."""

    judge: str = "measured"
    """Default judge."""
    judge_for: Mapping[str, str] = field(default_factory=dict)
    """Judges that replace the default judge for single rubrics, keyed by the name of the rubric or of a set."""
    options: Options = field(default_factory=Options)
    """Options of the judges."""
    judges: tuple[str, ...] = ()
    """Additional judges that a request may name."""
    rubrics: tuple[str, ...] = ("online",)
    """Default rubrics, rubric sets and rubric files."""
    more_rubrics: tuple[str, ...] = ("offline", "lighting", "compliance")
    """Additional rubrics that a request may name."""
    formula: str = "mean"
    """Default score: the name of a formula, or an expression."""
    weights: Mapping[str, float] = field(default_factory=dict)
    use: Use = "scores"
    """Default scores that a reward is computed from."""
    mixture: Mapping[str, float] = field(default_factory=dict)
    """Default mixture of judges, with the weights for averaging their rewards. If it is empty, `judge` alone is used."""
    degenerate: Literal["null", "worst"] = "null"
    """Reward of a degenerate output, which is not sent to a judge. It is null by default, and 0 with `worst`."""
    fresh: bool = False
    """Whether to ask again even if the store has the answer. The earlier answer is kept as well."""
    budget: float | None = None
    """Maximum US dollars that this server may spend on judges."""
    canary: float | None = None
    """Minutes between two questions about a known edit, which notice a judge whose answers move. None asks none."""
    max_samples: int = 16
    """Maximum number of answers to one question that a request may ask for."""
    dialects: tuple[str, ...] = ()
    """Dialects of trainers to serve: `NAME`, or `/d/NAME` for that path only."""
    max_edits: int = 64
    max_image: int = 16 * 2**20
    max_body: int = 128 * 2**20
    max_waiting: int = 512
    """Maximum number of accepted edits that are not judged yet. Further batches are refused until there is room."""
    max_held: int = 512 * 2**20
    """Maximum total size in bytes of the request bodies of accepted edits, which limits memory use."""
    deadline: float = 300.0
    """Longest deadline of a request in seconds. It is also the default."""
    drain: float = 30.0
    """Seconds in which accepted edits may be finished when the server stops."""
    concurrency: int | None = None
    """Maximum number of requests in flight to a judge. None adapts the number to the judge."""
    images: Path | None = None
    """Folder in which the images of requests are stored by digest, so that the review pages can show them."""
    max_images: int = 10 * 2**30
    """Maximum size of the folder `images` in bytes. Further images are judged but not stored."""

    def options_of(self, spec: str) -> Options:
        """Return the options for a judge. If there are other judges, a judge that only computes is not asked for token
        probabilities, which it does not have."""
        if is_local(spec) and (self.judge_for or spec != self.judge):
            return replace(self.options, read="text")
        return self.options

    @property
    def edits(self) -> int:
        """Maximum number of edits in one request, never more than `max_waiting`."""
        return min(self.max_edits, self.max_waiting)


# --- requests -------------------------------------------------------------------------------------------------


def decoded(value: object) -> object:
    """Return the bytes of strict base64, with or without the prefix of a `data:` URL. Values of other types are
    returned unchanged."""
    if not isinstance(value, str):
        return value
    head = _PREFIX.match(value)
    text = value[head.end() :] if head else value
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
        if len(text) != -(-len(data) // 3) * 4:
            # Python accepts excess padding, even in strict mode.
            raise ValueError("Excess padding")
        return data
    except (ValueError, UnicodeError) as error:
        what = "expected an image in base64 or a data:image/...;base64, URL, never a path or an address ({why})"
        raise PydanticCustomError("picture", what, {"why": str(error)}) from None


def _integer(value: object) -> object:
    """Return integral floats such as 2.0 as int, since JSON Schema counts them as integers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_IMAGE = {
    "type": "string",
    "contentEncoding": "base64",
    "contentMediaType": "image/*",
}
Image = Annotated[bytes, BeforeValidator(decoded), WithJsonSchema(_IMAGE)]
Name = Annotated[
    str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")
]
Turn = Annotated[int, Field(ge=0), BeforeValidator(_integer)]
Weight = Annotated[float, Field(ge=LEAST_WEIGHT, le=MOST_WEIGHT)]
Ranking = Literal["none", "scores", "pairs"]


_STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class SentEdit(BaseModel):
    """One edit, with its images: base64, with or without `data:image/...;base64,` before it; raw bytes in msgpack; a
    part of its own in multipart. Never a path or an address."""

    model_config = _STRICT

    id: Name | None = Field(
        None,
        description="Returned with the answer. Default: the number of the edit in the batch.",
    )
    instruction: str = Field("", max_length=20_000)
    referring_expression: str = Field("", max_length=2_000)
    model: Name | None = None
    edit_type: Name | None = None
    group: Name | None = Field(
        None,
        description="Edits that are compared: the outputs of one input and instruction.",
    )
    session: Name | None = Field(
        None, description="The conversation that the edit is a turn of."
    )
    turn: Turn | None = None
    metadata: dict[str, str] = Field(
        {}, max_length=32, description="Stored with the edit, such as a training step."
    )
    input: Image | None = Field(None, description="The image before the edit.")
    edited: Image | None = Field(
        description="The image to judge; null if the editing model produced nothing."
    )
    ground_truth: Image | None = None
    mask: Image | None = Field(None, description="White in the region to edit.")
    references: Annotated[list[Image], Field(max_length=MAX_IMAGES)] = Field(
        [], description="Further images, for rubrics that show them."
    )

    def edit(self, number: int) -> Edit:
        """Return the edit to judge. Without an id, it gets its number in the batch as id."""
        turn = {"session": self.session, "turn": self.turn}
        return Edit(
            self.id or str(number),
            self.input,
            self.edited,
            self.instruction,
            self.ground_truth,
            self.mask,
            self.referring_expression,
            self.model,
            self.edit_type,
            self.group,
            self.metadata | {k: v for k, v in turn.items() if v is not None},
            # The manifest's reader uses the same names for a list of images.
            {f"references[{n}]": data for n, data in enumerate(self.references, 1)},
        )


class RequestOptions(BaseModel):
    """Fields of every request beside its edits."""

    model_config = _STRICT

    # Not a Literal, because `true` would equal 1.
    protocol: Annotated[
        int, Field(ge=PROTOCOL, le=PROTOCOL), BeforeValidator(_integer)
    ] = Field(PROTOCOL, description="Version of the protocol that the client speaks.")
    judge: str | None = Field(
        None, description="A judge that the server offers. Default: the server's own."
    )
    rubrics: Annotated[list[str], Field(min_length=1)] | None = None
    strict: bool = Field(
        False, description="Answer 503, with the same body, if anything failed."
    )
    deadline: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Seconds. Edits that are not judged by then are `pending`."
    )
    fresh: bool = Field(
        False, description="Ask again even if the store has the answer."
    )


class OneEditRequest(SentEdit, RequestOptions):
    """A request to judge one edit."""

    @property
    def edits(self) -> Sequence[SentEdit]:
        return [self]


class JudgeRequest(RequestOptions):
    """A request to judge edits."""

    edits: Annotated[list[SentEdit], Field(min_length=1)]


class RewardRequest(JudgeRequest):
    """A request to reward edits."""

    judges: Annotated[dict[str, Weight], Field(min_length=1)] | None = Field(
        None,
        description="Judges with weights instead of `judge`: the reward is the weighted mean.",
    )
    judge_for: Annotated[dict[str, str], Field(min_length=1)] | None = Field(
        None,
        description="Judges of single rubrics: rubric to judge; `judge`, or the server's own, is asked about the others.",
    )
    samples: Annotated[int, Field(ge=1), BeforeValidator(_integer)] = Field(
        1, description="Answers to each question; the reward is their mean."
    )
    step: Annotated[float, Field(ge=0)] | None = Field(
        None,
        description="Training step at which the edits were made: the server watches their figures by step.",
    )
    ranking: Ranking = Field(
        "none",
        description="`scores`: the reward is the rank in the group, 1 for the best and 0 for the worst. `pairs`: the "
        "share of the comparisons with the other edits of the group that it won, a tie counting half.",
    )
    score: Annotated[str, Field(min_length=1, max_length=2_000)] | None = Field(
        None,
        description="How scores become one number: a formula by its name, a factor, a rubric, or an expression of "
        "them.",
    )
    formula: str | None = Field(None, description="How scores become one number.")
    weights: Annotated[dict[str, Weight], Field(min_length=1)] | None = Field(
        None,
        description="The factors that count, and how much; by default only their rubrics are asked.",
    )
    use: Use | None = Field(
        None,
        description="`expected`: the expected scores of judges that give them, in the place of the written ones.",
    )


class RequestModels:
    """Pydantic models of the requests that one server accepts, with its limits, judges, rubrics and factors."""

    def __init__(
        self,
        terms: Terms,
        judges: Iterable[str],
        rubrics: Iterable[str],
        factors: Iterable[str],
    ) -> None:
        judge: Any = Literal[tuple(judges)]
        rubric: Any = Literal[tuple(rubrics)]
        factor: Any = Literal[tuple(factors)]
        image = Annotated[
            Image,
            AfterValidator(_at_most(terms.max_image)),
            WithJsonSchema(_IMAGE | {"pattern": BASE64}),
        ]
        turn = Annotated[Turn, Field(le=_MAX_TURN)]
        samples = Annotated[int, Field(ge=1, le=terms.max_samples)]
        rubrics_asked = Annotated[list[rubric], Field(min_length=1, max_length=16)]
        mixture = Annotated[dict[judge, Weight], Field(min_length=1, max_length=8)]
        kinds: dict[str, Any] = {
            **dict.fromkeys(IMAGE_ROLES, image | None),
            "references": Annotated[list[image], Field(max_length=MAX_IMAGES)],
            "turn": turn | None,
            "judge": judge | None,
            "rubrics": rubrics_asked | None,
            "deadline": Annotated[float, Field(gt=0, le=terms.deadline)] | None,
            "judges": mixture | None,
            "judge_for": Annotated[dict[rubric, judge], Field(min_length=1)] | None,
            "samples": Annotated[samples, BeforeValidator(_integer)],
            "formula": Formula | None,
            "weights": Annotated[dict[factor, Weight], Field(min_length=1)] | None,
        }

        descriptions = {"edits": f"At most {terms.edits}."}

        def narrowed(name: str, base: type[BaseModel]) -> Any:
            """Return a subclass of `base` that accepts only what this server offers."""
            fields: dict[str, Any] = {}
            for column in kinds.keys() & base.model_fields.keys():
                wide = base.model_fields[column]
                text = wide.description or descriptions.get(column)
                fields[column] = kinds[column], Field(wide.default, description=text)
            return create_model(name, __base__=base, **fields)

        edit: Any = narrowed("Edit", SentEdit)
        self.one: type[OneEditRequest] = narrowed("OneEdit", OneEditRequest)
        kinds["edits"] = Annotated[list[edit], Field(min_length=1)]
        self.batch: type[JudgeRequest] = narrowed("Batch", JudgeRequest)
        self.reward: type[RewardRequest] = narrowed("RewardBatch", RewardRequest)


def _at_most(largest: int) -> Callable[[bytes], bytes]:
    def check(data: bytes) -> bytes:
        if len(data) > largest:
            sizes = {"size": f"{len(data):,}", "largest": f"{largest:,}"}
            raise PydanticCustomError(
                "too_large",
                "an image of {size} bytes: at most {largest} are accepted",
                sizes,
            )
        return data

    return check


# --- answers --------------------------------------------------------------------------------------------------

Number = Annotated[int | float, WithJsonSchema({"type": "number"})]
"""A score or a weight; integers stay integers."""
Count = Annotated[int, Field(ge=0)]


class Problem(BaseModel, frozen=True):
    where: str
    what: str


class Refusal(BaseModel, frozen=True):
    """The reason why a request was refused."""

    error: str
    problems: list[Problem]


class StoredRun(BaseModel, frozen=True):
    """The run in the store that has the answers."""

    id: int
    name: str


class RewardReason(BaseModel, frozen=True):
    rubric: str
    code: str
    factor: str | None
    message: str


class _SparsePart(BaseModel, frozen=True):
    """Part of a response in which a field with a default is present only if it was set."""

    @model_serializer(mode="wrap")
    def _without_defaults(
        self, dump: SerializerFunctionWrapHandler
    ) -> dict[str, object]:
        values = dump(self)
        return {name: values[name] for name in values if name in self.model_fields_set}


class Uncertainty(_SparsePart, frozen=True):
    """The uncertainty of a reward, as far as the judge's own answers show it."""

    source: Literal["samples", "logprobs"]
    samples: Annotated[int, Field(ge=1)]
    standard_error: float = Field(
        ge=0,
        description="Standard error of the mean of the samples; from `logprobs`, the standard deviation of the reward "
        "under the judge's own probabilities.",
    )
    expected: Annotated[
        float | None,
        Field(
            description="The reward of the expected scores, if the judge gave probabilities."
        ),
    ] = None


class Comparisons(BaseModel, frozen=True):
    """With `ranking: pairs`: how the edit was compared with the others of its group."""

    asked: Count
    failed: Count = Field(
        description="Comparisons without a verdict, because an answer in one order is missing. The reward is then null."
    )
    ties: Count
    flipped: Count = Field(
        description="Comparisons in which the judge chose the same position in both orders, which is a tie."
    )


class RewardGroup(_SparsePart, frozen=True):
    """The rank of a reward among the edits of its group in this request."""

    name: str
    size: Annotated[int, Field(ge=1)]
    scored: Count
    reward: float | None = Field(
        description="Reward before ranking; null if pairs were compared."
    )
    rank: float | None = Field(
        description="1 is the best; equal rewards share the mean of their ranks."
    )
    mean: float | None
    standard_deviation: float | None
    low_variance: bool
    comparisons: Comparisons | None = None


def _describe_reward(schema: JsonSchema) -> None:
    """Mark every field as required in the JSON Schema, and add the rules of `_check_failure`."""
    schema["required"] = list(schema["properties"])
    schema["if"] = {"properties": {"reward": {"type": "null"}}}
    failure = {"scores": {"type": "null"}, "status": {"not": {"const": "ok"}}}
    schema["then"] = {"properties": failure}
    success = {"scores": {"type": "object"}, "status": {"const": "ok"}}
    schema["else"] = {"properties": success}


class RewardedEdit(BaseModel, frozen=True):
    """The reward of one edit, or null with the reason why."""

    model_config = ConfigDict(json_schema_extra=_describe_reward)

    id: str
    reward: float | None = None
    status: str = "abstained"
    scores: dict[str, Number] | None = None
    uncertainty: Uncertainty | None = None
    abstained: dict[str, str] = {}
    reasons: list[RewardReason] = []
    keys: dict[str, str] = {}
    cached: bool = False
    stored_as: str | None = None
    group: RewardGroup | None = None

    @classmethod
    def not_taken(cls, edit: str, status: str, message: str) -> Self:
        """Return the result for an edit that is invalid as sent, and is therefore neither judged nor stored."""
        reason = RewardReason(
            rubric="-", code="not_taken", factor=None, message=message
        )
        return cls(id=edit, status=status, reasons=[reason])

    def explanation(self) -> str:
        """Return the reasons in one line, or an empty string if there are none."""
        messages = [reason.message for reason in self.reasons]
        messages += [f"{factor}: {text}" for factor, text in self.abstained.items()]
        return "; ".join(list(dict.fromkeys(messages))[:3])

    def changed(self, **fields: object) -> Self:
        return self.model_copy(update=fields)

    def with_number(
        self,
        reward: float,
        scores: Mapping[str, float],
        uncertainty: Uncertainty | None = None,
    ) -> Self:
        return self.changed(
            reward=reward, status="ok", scores=dict(scores), uncertainty=uncertainty
        )

    @model_validator(mode="after")
    def _check_failure(self) -> Self:
        """Raise `ValueError` if a failed edit has a reward or scores, or if a rewarded edit has no scores."""
        has_number = self.reward is not None
        if (self.scores is not None, self.status == "ok") != (has_number, has_number):
            raise ValueError(f"{self.id}: {self.status} with reward {self.reward}")
        return self


def _describe_rewards(schema: JsonSchema) -> None:
    """Mark every field except `judged_by` as required in the JSON Schema."""
    schema["required"] = [name for name in schema["properties"] if name != "judged_by"]


class Rewards(BaseModel, frozen=True):
    """One reward for each edit, in the order in which they were sent. A failure is null, never 0."""

    protocol: Literal[1] = 1
    rewards: list[RewardedEdit]
    formula: str
    judge: str
    rubrics: dict[str, str]
    run: StoredRun | None
    judges: dict[str, Number]
    judged_by: Annotated[
        dict[str, str] | None,
        Field(
            description="Factor to the judge that was asked about it, where rubrics have different judges."
        ),
    ] = None

    model_config = ConfigDict(json_schema_extra=_describe_rewards)


# --- documents ------------------------------------------------------------------------------------------------

_PUBLIC = {
    "RewardedEdit": "Reward",
    "RewardGroup": "Group",
    "RewardReason": "Reason",
    "RewardRequest": "Request",
    "SentEdit": "Edit",
    "StoredRun": "Run",
}
"""Names of models in the published documents, if they differ from the class names."""


_MULTIPART = {
    "Edit": "EditTexts",
    "OneEdit": "OneEditWords",
    "Batch": "BatchWords",
    "RewardBatch": "RewardBatchWords",
}
"""Names of the requests without images. They are for multipart bodies, in which images are separate parts."""


def _schemas(models: Sequence[type[BaseModel]], at: str) -> JsonSchema:
    """Return the JSON schemas of models and of their nested models, keyed by name. `at` is the prefix of references."""
    _, made = models_json_schema(
        [(model, "validation") for model in models], ref_template=f"{at}{{model}}"
    )
    text = json.dumps(made["$defs"])
    for name, called in _PUBLIC.items():
        text = re.sub(rf'(["/]){name}"', rf'\1{called}"', text)
    schemas: JsonSchema = json.loads(text)
    return schemas


def _without_images(schema: JsonSchema) -> JsonSchema:
    text = json.dumps(schema).replace('schemas/Edit"', 'schemas/EditTexts"')
    texts: JsonSchema = json.loads(text)
    for role in (*IMAGE_ROLES, "references"):
        texts["properties"].pop(role, None)
    texts["required"] = [
        name for name in texts.get("required", ()) if name in texts["properties"]
    ]
    return texts


def schema() -> JsonSchema:
    """Return the protocol's JSON Schema for any server. It does not contain the judges, rubrics and limits of this one."""
    kinds = _schemas((RewardRequest, Rewards, Refusal), "#/$defs/")
    roots = ("Request", "Rewards", "Refusal")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:editjudge:reward-protocol:{PROTOCOL}",
        "title": f"Rewards for image edits, version {PROTOCOL}",
        "description": "A request to POST /v1/reward is a `Request`; its answer is `Rewards`, or `Refusal` with a "
        "status of 4xx or 5xx. `editjudge docs reward-protocol` says what the fields mean.",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in roots],
        "$defs": kinds,
    }


def openapi(models: RequestModels, *, secured: bool) -> JsonSchema:
    """Return a server's OpenAPI 3.1 document: `openapi.yaml` with the models of requests and responses."""
    document: JsonSchema = yaml.safe_load(
        Path(__file__).with_name("openapi.yaml").read_bytes()
    )
    document["info"]["version"] = editjudge.__version__
    requests = (models.one, models.batch, models.reward)
    answers = (Rewards, Refusal, ImportedJudgement)
    schemas = document["components"]["schemas"]
    schemas |= _schemas((*requests, *answers), "#/components/schemas/")
    for name, texts in _MULTIPART.items():
        schemas[texts] = _without_images(schemas[name])
    schemas["Reward"]["properties"]["status"]["enum"] = [
        *STATUSES,
        "pending",
        NOT_JUDGED,
        "undefined",
    ]
    columns = schemas.pop(ImportedJudgement.__name__)["properties"]
    fields = {column.name: columns[column.name] for column in FIELDS}
    # A question that was never asked has no key.
    fields["key"] = {"anyOf": [fields["key"], {"type": "null"}]}
    schemas["Judgement"]["properties"] |= fields
    schemas["Judgement"]["required"] += fields
    if secured:
        scheme = {"token": {"type": "http", "scheme": "bearer"}}
        document["components"]["securitySchemes"] = scheme
        document["security"] = [{"token": []}]
        unauthorized = {"description": "The token is missing or wrong."}
        for path in document["paths"].values():
            for operation in path.values():
                operation["responses"]["401"] = unauthorized
    return document
