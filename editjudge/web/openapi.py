"""The OpenAPI 3.1 document of the service: `openapi.yaml`, and the models that check the requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from pydantic.json_schema import models_json_schema

import editjudge
from editjudge.judgement import FIELDS, STATUSES
from editjudge.store.import_run import JudgementRow
from editjudge.web.requests import RequestModels
from editjudge.web.site import Site

SCHEMA = Path(__file__).with_name("reward-protocol.schema.json")
"""The reward protocol, for any server: no judge, rubric or bound of this one is in it."""
_ANSWERS = ("Comparisons", "Group", "Problem", "Reason", "Refusal", "Reward", "Rewards", "Run", "Uncertainty")


def document(site: Site, models: RequestModels) -> dict[str, Any]:
    openapi: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_bytes())
    openapi["info"]["version"] = editjudge.__version__
    schemas = openapi["components"]["schemas"]
    protocol = json.loads(SCHEMA.read_text("utf-8").replace("#/$defs/", "#/components/schemas/"))["$defs"]
    schemas |= {name: protocol[name] for name in _ANSWERS}
    schemas["Reward"]["properties"]["status"]["enum"] = [*STATUSES, "pending"]
    _, derived = models_json_schema(
        [(model, "validation") for model in (*models.all, JudgementRow)], ref_template="#/components/schemas/{model}"
    )
    schemas |= derived["$defs"]
    of_row = schemas.pop(JudgementRow.__name__)["properties"]
    fields = {field.name: of_row[field.name] for field in FIELDS}
    fields["key"] = {"anyOf": [fields["key"], {"type": "null"}]}  # what was never asked has none
    schemas["Judgement"]["properties"] |= fields
    schemas["Judgement"]["required"] += fields
    if site.token or site.service_token:
        openapi["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        openapi["security"] = [{"token": []}]
        for path in openapi["paths"].values():
            for operation in path.values():
                operation["responses"]["401"] = {"description": "The token is missing or wrong."}
    return openapi
