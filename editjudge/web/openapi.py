"""The OpenAPI 3.1 document of the service: `openapi.yaml`, and the models that check the requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic.json_schema import models_json_schema

import editjudge
from editjudge.judgement import STATUSES
from editjudge.web.requests import RequestModels
from editjudge.web.site import Site


def document(site: Site, models: RequestModels) -> dict[str, Any]:
    openapi: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_bytes())
    openapi["info"]["version"] = editjudge.__version__
    schemas = openapi["components"]["schemas"]
    for name in ("Reward", "Judgement"):
        schemas[name]["properties"]["status"]["enum"] = [*STATUSES, "pending"]
    _, requests = models_json_schema(
        [(model, "validation") for model in models.all], ref_template="#/components/schemas/{model}"
    )
    schemas |= requests["$defs"]
    if site.token or site.service_token:
        openapi["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        openapi["security"] = [{"token": []}]
        for path in openapi["paths"].values():
            for operation in path.values():
                operation["responses"]["401"] = {"description": "The token is missing or wrong."}
    return openapi
