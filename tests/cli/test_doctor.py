"""`editjudge doctor`: what is there, said without a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import shows
from tests.running.made import editjudge, edits, stub

CANARY = "sk-canary-0f1e2d3c4b5a"


def told(tmp_path: Path) -> dict[str, dict[str, object]]:
    answer = editjudge("doctor", "--store", tmp_path / "s.db", "--json")
    assert answer.code == 0
    return {judge["judge"]: judge for judge in answer.json["judges"]}


def test_a_judge_with_a_key_at_an_address_that_answers_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stub() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", CANARY)
        judge = told(tmp_path)["openai/MODEL"]
    assert judge["ready"] is True
    assert judge["key"] == "OPENAI_API_KEY"


def test_a_judge_without_a_key_or_a_server_is_not_ready_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("VLLM_BASE_URL", "http://127.0.0.1:9/v1")
    judges = told(tmp_path)
    assert judges["anthropic/MODEL"]["ready"] is False
    assert "ANTHROPIC_API_KEY" in str(judges["anthropic/MODEL"]["says"])
    assert judges["vllm/MODEL"] == {
        "judge": "vllm/MODEL",
        "key": None,
        "ready": False,
        "says": "127.0.0.1:9 does not answer",
    }


def test_an_address_that_is_missing_is_asked_for_by_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_COMPATIBLE_BASE_URL", raising=False)
    judge = told(tmp_path)["openai-compatible/MODEL"]
    assert shows(str(judge["says"]), "address", "OPENAI_COMPATIBLE_BASE_URL")


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_no_key_is_ever_shown(
    form: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "GOOGLE_API_KEY",
        "OPENROUTER_API_KEY",
        "AZURE_OPENAI_API_KEY",
    ):
        monkeypatch.setenv(name, CANARY)
    for name in (
        "OPENAI_BASE_URL",
        "ANTHROPIC_BASE_URL",
        "GOOGLE_GEMINI_BASE_URL",
        "OPENROUTER_BASE_URL",
    ):
        monkeypatch.setenv(name, "http://127.0.0.1:9/v1")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "http://127.0.0.1:9")
    answer = editjudge("doctor", "--store", tmp_path / "s.db", *form)
    assert "OPENAI_API_KEY" in answer.out
    assert CANARY not in answer.out + answer.err


def test_the_store_is_counted_and_not_made(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    assert (
        editjudge("doctor", "--store", store, "--json").json["store"]["ready"] is False
    )
    assert not store.exists()
    (tmp_path / "e").mkdir()
    editjudge(
        "run",
        edits(tmp_path / "e", 1),
        "--judge",
        "measured",
        "--rubric",
        "quality",
        "--store",
        store,
    )
    assert (
        editjudge("doctor", "--store", store, "--json")
        .json["store"]["says"]
        .endswith("s.db: 1 run")
    )


def test_people_see_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from editjudge.cli import doctor

    installed = doctor._installed
    monkeypatch.setattr(
        doctor, "_installed", lambda name: name != "ray" and installed(name)
    )
    text = editjudge("doctor", "--store", tmp_path / "s.db").out
    assert shows(text, "measured installed")
    assert shows(text, "needs ray", "editjudge[ray]")
