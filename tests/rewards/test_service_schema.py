"""The OpenAPI document is true: Schemathesis sends what it allows and what it forbids, and finds nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema.validators import Draft202012Validator

from tests.web.served import Served, edit, serving

# The one server error that can be asked for: `strict` answers 503.
PATHS = {
    "/v1/judge",
    "/v1/reward",
    "/v1/reward/schema",
    "/metrics",
    "/healthz",
    "/openapi.json",
}
CONFIG = """
[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "503"]
# Two names of one factor may not both have a weight, which no schema says that the generator can follow.
positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422", "5xx"]
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("schema") / "s.db", "measured") as running:
        yield running


def torment(served: Served, folder: Path, examples: int) -> None:
    (folder / "schemathesis.toml").write_text(CONFIG)
    command = [
        str(Path(sys.executable).parent / "schemathesis"),
        "run",
        f"{served.url}/openapi.json",
        "--seed",
        "1",
    ]
    options = ["--max-examples", str(examples), "--workers", "2", "--no-color"]
    done = subprocess.run(
        [*command, *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "POST /v1/reward" in done.stdout or "No issues found" in done.stdout, (
        done.stdout[-2000:]
    )


def test_schemathesis_finds_nothing(served: Served, tmp_path: Path) -> None:
    torment(served, tmp_path, 8)


@pytest.mark.soak
def test_schemathesis_finds_nothing_in_a_thousand(
    served: Served, tmp_path: Path
) -> None:
    torment(served, tmp_path, 1000)


def test_the_document_is_openapi_and_names_what_this_server_allows(
    served: Served,
) -> None:
    document = served.client.get(f"{served.url}/openapi.json").json()
    assert document["openapi"].startswith("3.1") and set(document["paths"]) == PATHS
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    batch = document["components"]["schemas"]["RewardBatch"]["properties"]
    assert "At most 64" in str(batch["edits"]) and "measured" in str(batch["judge"])
    assert served.post("reward", {"edits": [edit(0)]}).status_code == 200
