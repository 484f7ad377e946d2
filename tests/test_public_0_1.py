"""Everything public in 0.1 still works: names, verbs, options, exit codes, JSON fields, HTTP routes and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import public_interface

OLD: dict[str, Any] = json.loads(
    Path(__file__).with_name("public_0_1.json").read_text("utf-8")
)
CATCH_ALLS = {"arguments", "named", "options"}
"""Parameters of 0.1 that took anything; what they stood for has names of its own now."""
BREAKS = {"gate, failures": 100}
"""Exit codes that changed on purpose, as the changelog says: `gate` fails on failed judgements."""


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        return public_interface.interface(tmp_path_factory.mktemp("public"), patch)


@pytest.mark.parametrize("name", OLD["names"])
def test_a_public_name_keeps_its_parameters(now: dict[str, Any], name: str) -> None:
    old = OLD["names"][name]
    new = now["names"][name]
    old = [parameter for parameter in old if parameter not in CATCH_ALLS]
    assert [parameter for parameter in new if parameter in old] == old


@pytest.mark.parametrize("name", ["judge", "run", "arun"])
def test_every_option_of_0_1_is_a_parameter_with_a_name(
    now: dict[str, Any], name: str
) -> None:
    options = "temperature seed max_tokens reasoning_effort extra base_url schema strict reasks timeout prices".split()
    run = [] if name == "judge" else OLD["names"]["arun"][:-1]
    assert {*options, *run} <= {*now["names"][name]}


@pytest.mark.parametrize("verb", OLD["verbs"])
def test_a_verb_keeps_its_arguments_options_and_choices(
    now: dict[str, Any], verb: str
) -> None:
    old = OLD["verbs"][verb]
    new = now["verbs"][verb]
    assert len(new["arguments"]) >= len(old["arguments"])
    assert set(old["options"]) <= set(new["options"])
    for option, choices in old["options"].items():
        assert choices is None or set(choices) <= set(
            new["options"][option] or choices
        ), option


@pytest.mark.parametrize("command", OLD["answers"])
def test_an_answer_keeps_its_exit_code_and_fields(
    now: dict[str, Any], command: str
) -> None:
    old = OLD["answers"][command]
    new = now["answers"][command]
    assert new["exit"] == BREAKS.get(command, old["exit"])
    assert set(old["keys"]) <= set(new["keys"])


@pytest.mark.parametrize("file", OLD["files"])
def test_an_exported_file_keeps_its_columns(now: dict[str, Any], file: str) -> None:
    assert set(OLD["files"][file]) <= set(now["files"][file])


def test_routes_keep_their_methods_and_answers_their_fields(
    now: dict[str, Any],
) -> None:
    old = OLD["http"]
    new = now["http"]
    assert {
        path: set(methods) - set(new["routes"].get(path, ()))
        for path, methods in old["routes"].items()
    } == {path: set() for path in old["routes"]}
    for verb in ("judge", "reward"):
        assert new[verb]["status"] == old[verb]["status"] and set(
            old[verb]["keys"]
        ) <= set(new[verb]["keys"])
    for name in ("refused", "healthz", "openapi"):
        assert set(old[name]) <= set(new[name]), name
