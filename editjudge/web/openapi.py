"""What the service says of itself: OpenAPI 3.1, made from the models that check the requests."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import models_json_schema

import editjudge
from editjudge.edit import IMAGE_ROLES
from editjudge.judgement import STATUSES
from editjudge.web.requests import Models
from editjudge.web.site import Site


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ProblemAnswer(_Answer):
    where: str
    what: str


class Refusal(_Answer):
    """Why a request was not answered as asked."""

    error: str
    problems: list[ProblemAnswer]


class RunAnswer(_Answer):
    """Where in the store the answers are kept."""

    id: int
    name: str


class ReasonAnswer(_Answer):
    rubric: str
    code: str
    factor: str | None
    message: str


class Reward(_Answer):
    id: str
    reward: float | None
    status: str
    scores: dict[str, int | float] | None
    abstained: dict[str, str]
    reasons: list[ReasonAnswer]
    keys: dict[str, str]
    cached: bool
    stored_as: str


class Rewards(_Answer):
    """One reward for each edit, in the order in which they were sent. A failure is null, never 0."""

    rewards: list[Reward]
    formula: str
    judge: str
    rubrics: dict[str, str]
    run: RunAnswer | None


class JudgementAnswer(BaseModel):
    """One judgement as `judge --json` and an export show it."""

    model_config = ConfigDict(extra="allow")
    id: str
    stored_as: str | None
    item: str
    model: str | None
    group: str | None
    repeat: int
    status: str
    scores: dict[str, int | float] | None
    justifications: dict[str, str] | None
    abstained: dict[str, str]
    evidence: dict[str, Any]
    judge: str
    rubric: str
    rubric_hash: str
    key: str | None
    attempts: int
    usage: dict[str, int | None]
    cached: bool


class Judgements(_Answer):
    """For each edit in the order in which they were sent, one judgement a rubric."""

    judgements: list[JudgementAnswer]
    judge: str
    rubrics: dict[str, str]
    run: RunAnswer | None


class Health(_Answer):
    status: str
    version: str
    waiting: int


_REFUSALS = {
    "408": "The body did not come in time.",
    "413": "Too many edits, or too many bytes.",
    "415": "Neither JSON nor multipart.",
    "422": "What is wrong with the request, and where.",
    "429": "As many edits as may wait are waiting: come back after the seconds of `Retry-After`.",
}


def document(site: Site, models: Models) -> dict[str, Any]:
    sent = [models.one, models.batch, models.reward, models.one_words, models.batch_words, models.reward_words]
    said = [Refusal, Rewards, Judgements, Health]
    pairs: Any = [(model, "validation") for model in sent] + [(model, "serialization") for model in said]
    _, schemas = models_json_schema(pairs, ref_template="#/components/schemas/{model}")
    parts: dict[str, Any] = schemas["$defs"]
    for name in ("Reward", "JudgementAnswer"):
        parts[name]["properties"]["status"]["enum"] = [*STATUSES, "pending"]
    judged = _operation("Judge edits", "judge", [_of("OneEdit"), _of("Batch")], "Judgements")
    judged["requestBody"]["content"] |= _multipart("OneEditWords", "BatchWords")
    rewarded = _operation("Reward edits", "reward", [_of("RewardBatch")], "Rewards")
    rewarded["requestBody"]["content"] |= _multipart("RewardBatchWords")
    health = {"200": _json("Ready.", "Health"), "503": _json("Being stopped.", "Health")}
    described = {"200": {"description": "This.", "content": {"application/json": {"schema": {"type": "object"}}}}}
    said_of_itself: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "editjudge", "version": editjudge.__version__, "summary": "Judges image edits."},
        "paths": {
            "/v1/judge": {"post": judged},
            "/v1/reward": {"post": rewarded},
            "/healthz": {
                "get": {"summary": "Whether requests are taken", "operationId": "health", "responses": health}
            },
            "/openapi.json": {"get": {"summary": "This", "operationId": "describe", "responses": described}},
        },
        "components": {"schemas": parts},
    }
    if site.token or site.service_token:
        said_of_itself["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        said_of_itself["security"] = [{"token": []}]
        for path in said_of_itself["paths"].values():
            for operation in path.values():
                operation["responses"]["401"] = {"description": "The token is missing or wrong."}
    return said_of_itself


def _operation(summary: str, name: str, bodies: list[dict[str, Any]], answer: str) -> dict[str, Any]:
    refusals = {status: _json(why, "Refusal") for status, why in _REFUSALS.items()}
    refusals["429"]["headers"] = {"Retry-After": {"required": True, "schema": {"type": "integer", "minimum": 1}}}
    unanswered = _json("With `strict`, that something failed; else that no judge or store is there.", "Refusal")
    unanswered["content"]["application/json"]["schema"] = {"anyOf": [_of(answer), _of("Refusal")]}
    schema = bodies[0] if len(bodies) == 1 else {"anyOf": bodies}
    return {
        "summary": summary,
        "operationId": name,
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {"200": _json("In the order in which edits were sent.", answer), **refusals, "503": unanswered},
    }


def _multipart(*words: str) -> dict[str, Any]:
    """The JSON without its pictures in the part `request`, and each picture as a part that is called as its field."""
    binary = {"type": "string", "format": "binary", "contentMediaType": "application/octet-stream"}
    roles = "|".join(IMAGE_ROLES)
    forms = [
        {
            "type": "object",
            "properties": {"request": _of(name)},
            "patternProperties": {f"^({roles})$" if name.startswith("One") else rf"^edits\.[0-9]\.({roles})$": binary},
            "required": ["request"],
            "additionalProperties": False,
        }
        for name in words
    ]
    schema = forms[0] if len(forms) == 1 else {"anyOf": forms}
    return {"multipart/form-data": {"schema": schema, "encoding": {"request": {"contentType": "application/json"}}}}


def _json(description: str, model: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": _of(model)}}}


def _of(model: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{model}"}
