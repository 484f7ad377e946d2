"""Judges that are switched off or change: what doctor, a run and its report say of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.running.made import answered, canned, editjudge, edits, stub

RUN = ("run", "edits.jsonl", "--rubric", "quality", "--name", "one", "--judge")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    edits(tmp_path, 4)
    return tmp_path


def test_a_retired_judge_is_named_by_run_report_and_doctor(folder: Path) -> None:
    with stub():
        told = editjudge(*RUN, "openai/gpt-5-mini")
    assert told.code == 0
    assert "2026-12-11" in told.err
    assert editjudge("report", "one", "-o", "one.html").code == 0
    assert "2026-12-11" in (folder / "one.html").read_text()
    (line,) = editjudge("doctor", "--json").json["shutdowns"]
    assert line.startswith("openai/gpt-5-mini") and "2026-12-11" in line


def test_doctor_names_no_shutdown_of_other_judges(folder: Path) -> None:
    with stub():
        editjudge(*RUN, "openai/stub")
    assert editjudge("doctor", "--json").json["shutdowns"] == []


def test_a_server_that_changes_its_model_midway_is_told(folder: Path) -> None:
    number = itertools.count()

    def say(_: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        document = answered("/v1/chat/completions", body)
        document["model"] = "gpt-6-a" if next(number) < 2 else "gpt-6-b"
        return 200, {}, json.dumps(document).encode()

    with canned(say):
        told = editjudge(*RUN, "openai/gpt-6", "--json")
    assert told.code == 0
    assert told.json["models_reported"] == {
        "openai/gpt-6": {"gpt-6-a": 2, "gpt-6-b": 2}
    }
    assert "gpt-6-a (2), gpt-6-b (2)" in told.err
    assert editjudge("report", "one", "-o", "one.html").code == 0
    page = (folder / "one.html").read_text()
    assert "gpt-6-a" in page and "gpt-6-b" in page


def test_a_server_with_one_model_is_not_remarked_on(folder: Path) -> None:
    with stub():
        told = editjudge(*RUN, "openai/stub")
    assert "did not answer with one model" not in told.err
