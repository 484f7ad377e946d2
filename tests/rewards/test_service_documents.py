"""What docs/rewards.md shows works as it stands."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from editjudge.rewards.protocol import Terms
from tests.running.made import picture, stub
from tests.test_documents import ROOT, blocks
from tests.web.served import Served, serving

DOCUMENT = ROOT / "docs" / "rewards.md"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(picture(name))
    with stub(), serving(tmp_path / "s.db") as running:
        yield running


def here(text: str, served: Served) -> str:
    return text.replace("http://127.0.0.1:8427", served.url)


def test_the_python_of_the_guide_runs(served: Served, tmp_path: Path) -> None:
    (code,) = blocks(DOCUMENT, "python")
    words = [sys.executable, "-c", here(code, served)]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    first, second = done.stdout.splitlines()
    assert (
        first.startswith("a 0.")
        and first.endswith(" ok")
        and second == "b None missing_output"
    ), done.stderr


def test_the_commands_of_the_guide_run(served: Served, tmp_path: Path) -> None:
    serve, asking = blocks(DOCUMENT, "sh")
    assert serve.startswith("editjudge serve --create")
    answers = []
    for command in here(asking, served).splitlines():
        done = subprocess.run(
            shlex.split(command),
            cwd=tmp_path,
            capture_output=True,
            check=True,
            timeout=300,
        )
        answers.append(json.loads(done.stdout))
    judged, rewarded, health, document = answers
    assert (
        {row["status"] for row in judged["judgements"]}
        == {rewarded["rewards"][0]["status"]}
        == {"ok"}
    )
    assert health["status"] == "ok" and "/v1/reward" in document["paths"]


def test_the_limits_of_the_guide_are_those_of_the_code() -> None:
    text = DOCUMENT.read_text("utf-8")
    terms = Terms()
    for said in (
        f"| edits in a request | {terms.max_edits} |",
        f"| bytes of an image | {terms.max_image // 2**20} MiB |",
        f"| bytes of a request | {terms.max_body // 2**20} MiB |",
        f"(`-J max_waiting`) | {terms.max_waiting} |",
        f"requests that wait | {terms.max_held // 2**20} MiB |",
        f"(`-J deadline`) | {terms.deadline:g} s |",
        f"{terms.drain:g} seconds (`-J drain`)",
        f"most {terms.max_images // 2**30} GiB",
    ):
        assert said in text
