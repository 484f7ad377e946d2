"""The GitHub Action: its steps are run by bash, with a `gh` that writes down what it is called with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from .stores import Spec, made

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load(ROOT.joinpath("action.yml").read_text())
GATE, COMMENT, VERDICT = ACTION["runs"]["steps"]


class Workspace:
    """A checkout with a store, and the commands that the steps call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        commands = folder / "bin"
        commands.mkdir()
        self.comments = folder / "comments.txt"
        scripts = {
            "editjudge": f'exec {sys.executable} -m editjudge "$@"',
            "gh": f'echo "$@" >> {self.comments}; cat gate.md >> {self.comments}',
        }
        for name, script in scripts.items():
            commands.joinpath(name).write_text(f"#!/bin/sh\n{script}\n")
            commands.joinpath(name).chmod(0o755)
        made(folder / "editjudge.db", Spec(models=("good",), edits=60))

    def run(self, step: dict[str, Any], **values: str) -> int:
        """Run a step with these values in the place of its expressions, and return its exit code."""
        assert values.keys() == step["env"].keys() and step["shell"] == "bash"
        environment = {
            **os.environ,
            **values,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "GITHUB_OUTPUT": str(self.folder / "output.txt"),
        }
        command = ["bash", "-eo", "pipefail", "-c", step["run"]]
        return subprocess.run(
            command, cwd=self.folder, env=environment, check=False, timeout=300
        ).returncode

    def read(self, name: str) -> str:
        return self.folder.joinpath(name).read_text()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.mark.parametrize(
    ("limit", "outcome", "code"), [("4", "passed", 0), ("6.9", "failed", 1)]
)
def test_a_gate_is_posted_and_decides(
    limit: str, outcome: str, code: int, workspace: Workspace
) -> None:
    arguments = f"--min alignment={limit}"
    values = {"RUN": "r", "ARGUMENTS": arguments, "EDITJUDGE_STORE": "editjudge.db"}
    assert workspace.run(GATE, **values) == 0
    assert workspace.read("output.txt") == f"outcome={outcome}\n"
    summary = workspace.read("summary.md")
    assert summary == workspace.read("gate.md") and summary.startswith("# Gate of r")
    assert "<testcase" in workspace.read("gate.xml")
    place = {"GH_TOKEN": "t", "REPOSITORY": "me/mine"}
    assert workspace.run(COMMENT, COMMENT="true", PULL_REQUEST="7", **place) == 0
    assert workspace.comments.read_text().splitlines()[0].startswith("pr comment 7")
    assert summary in workspace.comments.read_text()
    assert workspace.run(VERDICT, OUTCOME=outcome) == code


def test_an_error_of_the_gate_ends_the_action(workspace: Workspace) -> None:
    values = {"RUN": "gone", "ARGUMENTS": "", "EDITJUDGE_STORE": "editjudge.db"}
    assert workspace.run(GATE, **values) not in (0, 100)
    assert not workspace.folder.joinpath("output.txt").exists()


def test_a_name_is_an_argument_and_not_a_command(workspace: Workspace) -> None:
    values = {
        "RUN": "$(touch hacked)",
        "ARGUMENTS": "--min alignment=4; touch hacked",
        "EDITJUDGE_STORE": "editjudge.db",
    }
    assert workspace.run(GATE, **values) != 0
    assert not workspace.folder.joinpath("hacked").exists()


def test_nothing_is_commented_without_a_pull_request(workspace: Workspace) -> None:
    place = {"GH_TOKEN": "t", "REPOSITORY": "me/mine"}
    assert workspace.run(COMMENT, COMMENT="true", PULL_REQUEST="", **place) == 0
    assert workspace.run(COMMENT, COMMENT="false", PULL_REQUEST="7", **place) == 0
    assert not workspace.comments.exists()
