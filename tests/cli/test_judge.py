"""`editjudge judge`: one edit, answered on the terminal."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import editjudge as ej
from editjudge.errors import ImageError
from editjudge.judgement import Judgement, row
from editjudge.rubrics.contract import check
from editjudge.rubrics.files import load, load_one, names
from editjudge.rubrics.verdict import Verdict
from tests.faults import check_error, raises
from tests.running.made import (
    SPECS,
    Told,
    canned,
    editjudge,
    environment,
    picture,
    stub,
    variables,
)
from tests.stub.answers import SHAPES, Question, Wire, _compose, envelope
from tests.stub.server import Behaviour

ROW = set(row(Judgement("k", "invalid", "j", "r", "h"), "i", None, None))
WIRE: Wire = "openai"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("before", "after", "truth"):
        (tmp_path / f"{name}.png").write_bytes(picture(name))
    return tmp_path


def said(rubric: str, item: str = "after", scores: dict[str, int] | None = None) -> str:
    """A reply as a model gives it."""
    right = scores or dict.fromkeys(SHAPES[rubric].factors, SHAPES[rubric].values[0])
    question = Question(WIRE, "m", rubric, item, item, None, False, None, 0)
    return _compose(question, envelope(rubric, right, item), fenced=True)


def replay(folder: Path, *lines: tuple[str, str], item: str = "after") -> str:
    path = folder / "replies.jsonl"
    path.write_text(
        "".join(
            json.dumps({"item": item, "rubric": r, "reply": text}) + "\n"
            for r, text in lines
        )
    )
    return f"replay:{path}"


def judge(folder: Path, spec: str, *words: object) -> Told:
    pictures = (
        "--input",
        folder / "before.png",
        "--edited",
        folder / "after.png",
        "--instruction",
        "Paint it red.",
    )
    return editjudge(
        "judge",
        *pictures,
        "--ground-truth",
        folder / "truth.png",
        "--judge",
        spec,
        *words,
    )


# --- answers --------------------------------------------------------------------------------------------------


def test_one_rubric_is_one_row(folder: Path) -> None:
    with stub() as server:
        told = judge(folder, SPECS["openai"], "--rubric", "fidelity", "--json")
    assert told.code == 0
    document = told.json
    assert document.keys() >= ROW
    assert (document["item"], document["status"], document["rubric"]) == (
        "after",
        "ok",
        "fidelity",
    )
    assert document["scores"] == server.ledger.answers[0].scores
    assert {name: document[name] for name in ROW} == document["judgements"][0]


def test_a_set_is_a_row_for_each_rubric(folder: Path) -> None:
    with stub() as server:
        told = judge(folder, SPECS["google"], "--json")
    assert list(told.json) == ["judgements"]
    rows = told.json["judgements"]
    assert [r["rubric"] for r in rows] == ["preservation", "quality", "fidelity"]
    assert [r["scores"] for r in rows] == [
        answer.scores for answer in server.ledger.answers
    ]


def test_people_see_scores_with_their_reasons(folder: Path) -> None:
    spec = replay(
        folder,
        (
            "fidelity",
            said(
                "fidelity",
                scores={"alignment": 6, "completeness": 5, "plausibility": 2},
            ),
        ),
    )
    told = judge(folder, spec, "--rubric", "fidelity")
    assert told.code == 0
    lines = told.out.splitlines()
    assert lines[0].startswith("fidelity by replay:") and lines[0].endswith(": ok")
    assert lines[1].startswith("  alignment     6 of 7  Along the left edge")
    assert any(line.startswith("  plausibility  2 of 7  ") for line in lines)
    assert max(map(len, lines[1:])) <= 100 and any(
        line.startswith(" " * 24) for line in lines
    ), "wrapped under its reason"


def test_a_strangers_escape_sequences_do_not_reach_the_terminal(folder: Path) -> None:
    spec = replay(
        folder,
        ("fidelity", said("fidelity").replace("Along", "\\u001b[2J\\u202eAlong")),
    )
    told = judge(folder, spec, "--rubric", "fidelity")
    assert "\x1b" not in told.out and "\u202e" not in told.out
    assert "Along" in told.out


# --- each rubric's own format ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rubric", names())
def test_the_envelope_is_an_answer_that_the_rubrics_own_contract_accepts(
    rubric: str, folder: Path
) -> None:
    spec = replay(folder, (rubric, said(rubric)))
    told = judge(folder, spec, "--rubric", rubric, "--envelope")
    assert told.code == 0, told.out + told.err
    verdict = check(load(rubric), told.out, identifier="after")
    assert isinstance(verdict, Verdict), verdict
    assert verdict.violations == ()
    assert verdict.scores == dict.fromkeys(
        SHAPES[rubric].factors, SHAPES[rubric].values[0]
    )
    asked = check(load(rubric), said(rubric), identifier="after")
    assert isinstance(asked, Verdict) and verdict.justifications == asked.justifications


def test_the_envelope_has_the_keys_that_were_asked_for(folder: Path) -> None:
    spec = replay(folder, ("preservation", said("preservation", "mine")), item="mine")
    told = judge(folder, spec, "--rubric", "preservation", "--envelope", "--id", "mine")
    assert told.json["image_id"] == "mine"
    assert list(told.json["online_factor_results"]) == list(
        SHAPES["preservation"].factors
    )


@pytest.mark.parametrize("rubric", names())
def test_a_factor_without_a_score_is_null_with_its_reason(
    rubric: str, folder: Path
) -> None:
    spec = replay(folder, (rubric, "It is very good."))
    told = judge(folder, spec, "--rubric", rubric, "--envelope")
    assert told.code == 3
    document = json.loads(told.out[told.out.index("{") :])
    assert "no_answer" in told.out
    assert set(numbers(document)) == {None}


def numbers(node: Any) -> list[Any]:
    """Every score, or where there is none, null."""
    if isinstance(node, dict):
        return [found for value in node.values() for found in numbers(value)]
    return [] if isinstance(node, str) else [node]


def test_a_set_prints_each_envelope(folder: Path) -> None:
    rubrics = ("preservation", "quality", "fidelity")
    told = judge(
        folder,
        replay(folder, *((rubric, said(rubric)) for rubric in rubrics)),
        "--envelope",
    )
    assert told.code == 0
    decoder = json.JSONDecoder()
    rest = told.out.strip()
    for rubric in rubrics:
        document, end = decoder.raw_decode(rest)
        assert list(document["online_factor_results"]) == list(SHAPES[rubric].factors)
        rest = rest[end:].strip()
    assert rest == ""
    assert load_one("online").factors


# --- failures -------------------------------------------------------------------------------------------------


def test_a_failure_exits_with_3_and_has_no_scores(folder: Path) -> None:
    with stub(Behaviour(garbage=1)):
        told = judge(folder, SPECS["openai"], "--rubric", "fidelity", "--json")
    assert told.code == 3
    assert (told.json["status"], told.json["scores"], told.json["attempts"]) == (
        "invalid",
        None,
        3,
    )


def test_a_picture_that_is_not_there_is_named(folder: Path) -> None:
    (folder / "after.png").unlink()
    with stub() as server:
        result = judge(folder, SPECS["openai"], "--rubric", "fidelity")
        with raises(ImageError, "missing_image", "after.png"):
            ej.judge(
                edited=folder / "after.png", instruction="x", judge=SPECS["openai"]
            )
        assert server.ledger.requests == 0
    assert (result.code, result.out) == (1, "")
    check_error(result.error, "missing_image", "after.png", "edited")


def test_a_refused_key_is_one_line_and_exit_1(folder: Path) -> None:
    with canned(lambda *_: (401, {}, b'{"error": {"message": "Wrong key"}}')):
        told = judge(folder, SPECS["openai"], "--rubric", "fidelity")
    assert (told.code, told.out) == (1, "")
    check_error(told.error, "call_failed", "openai/stub", "401", "Wrong key")
    assert told.err == f"editjudge: {told.error}\n"


def test_a_judge_that_is_down_is_unreachable_after_seconds(folder: Path) -> None:
    started = time.monotonic()
    with environment(variables("http://127.0.0.1:9")):
        told = judge(folder, SPECS["openai"], "--rubric", "fidelity", "--json")
    assert (told.code, told.json["status"]) == (3, "unreachable")
    assert "no connection to 127.0.0.1:9" in told.json["reasons"][0]["message"]
    assert time.monotonic() - started < 15


def test_two_judges_are_a_matter_for_run(folder: Path) -> None:
    told = judge(folder, "openai/a", "--judge", "openai/b")
    assert told.code == 2
    assert "editjudge run" in told.err


def test_no_key_says_which_variable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    told = judge(folder, "openai/gpt-4.1")
    assert (told.code, "OPENAI_API_KEY" in told.err) == (2, True)


def test_the_environment_names_a_judge(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "EDITJUDGE_JUDGE", replay(folder, ("compliance", said("compliance")))
    )
    pictures = (
        "--input",
        folder / "before.png",
        "--edited",
        folder / "after.png",
        "--instruction",
        "Paint.",
    )
    told = editjudge("judge", *pictures, "--rubric", "compliance", "--json")
    assert (told.code, told.json["status"]) == (0, "ok")
