"""A gate, a report and a server that demand a passport."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from editjudge.judges.judge import Options
from editjudge.report.passport import Binding, Passport, Quality, settings_of
from editjudge.rubrics.files import resolve
from editjudge.stats.sign_flip import Decision
from tests.running.made import editjudge, edits

ONLINE = resolve(["online"])
PASSPORT = Passport(
    judge="measured",
    model_reported=None,
    date="2026-01-02T03:04:05+00:00",
    questions=10,
    usd=0.0,
    set="full",
    photographs=24,
    statuses={"ok": 10},
    binding=Binding(
        {rubric.name: rubric.hash for rubric in ONLINE},
        settings_of("images-first", Options()),
        "0123",
    ),
    runs=["passport-1"],
    qualities={},
)
ANSWERS: Mapping[str, Decision] = {
    "sees_input": "yes",
    "no_bias:saturation": "no",
    "sees_instruction": "not_shown",
}


def write(path: Path, **changes: Any) -> Path:
    qualities = {
        name: Quality(answer, 0.5, None, 0.0, 24) for name, answer in ANSWERS.items()
    }
    passport = replace(PASSPORT, qualities=qualities, **changes)
    path.write_text(json.dumps(passport.as_json()))
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    path = folder / "s.db"
    result = editjudge("run", edits(folder, 2), "--judge", "measured", "--rubric", "quality", "--name", "mine",
                       "--store", path, "--quiet")  # fmt: skip
    assert result.code == 0, result.err
    return path


def test_a_gate_passes_if_every_required_line_is_yes(
    store: Path, tmp_path: Path
) -> None:
    passport = write(tmp_path / "p.json")
    words = ("gate", "mine", "--store", store, "--passport", passport)
    met = editjudge(*words, "--require", "sees_input", "--json")
    assert met.code == 0 and met.json["outcome"] == "pass"
    assert met.json["passports"][0]["required"] == {"sees_input": "yes"}
    for line in ("no_bias:saturation", "sees_instruction"):
        failed = editjudge(*words, "--require", f"sees_input,{line}", "--json")
        assert failed.code == 100 and failed.json["outcome"] == "fail"
        assert failed.json["passports"][0]["met"] is False


def test_an_unmet_passport_fails_a_gate_whose_scores_pass(
    store: Path, tmp_path: Path
) -> None:
    passport = write(tmp_path / "p.json")
    words = ("gate", "mine", "--store", store, "--min", "seamlessness=1", "--if-unsure", "pass")  # fmt: skip
    assert editjudge(*words).code == 0
    demand = ("--passport", passport, "--require", "sees_instruction")
    junit = tmp_path / "checks.xml"
    failed = editjudge(*words, *demand, "--junit", junit, "--json")
    assert failed.code == 100 and failed.json["outcome"] == "fail"
    assert failed.json["checks"]
    assert 'failures="1"' in junit.read_text()


def test_a_passport_of_other_questions_is_refused(store: Path, tmp_path: Path) -> None:
    others: list[dict[str, Any]] = [
        {"judge": "openai/gpt-4.1"},
        {"binding": replace(PASSPORT.binding, rubrics={"quality": "0" * 64})},
        {"binding": replace(PASSPORT.binding, settings="0" * 64)},
        {"model_reported": "version 1"},
    ]
    for number, changes in enumerate(others):
        passport = write(tmp_path / f"{number}.json", **changes)
        refused = editjudge("gate", "mine", "--store", store, "--passport", passport, "--require", "sees_input")  # fmt: skip
        assert refused.code == 2, (changes, refused.out)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"judge": 3}', "\x00\xff", '{"qualities": {}}']
)
def test_a_file_that_is_no_passport_is_refused(
    content: str, store: Path, tmp_path: Path
) -> None:
    path = tmp_path / "p.json"
    path.write_text(content)
    refused = editjudge("gate", "mine", "--store", store, "--passport", path, "--require", "sees_input")  # fmt: skip
    assert refused.code == 1 and "p.json" in refused.err


def test_options_that_need_each_other_and_unknown_lines_are_refused(
    store: Path, tmp_path: Path
) -> None:
    passport = write(tmp_path / "p.json")
    words = ("gate", "mine", "--store", store)
    assert editjudge(*words, "--passport", passport).code == 2
    assert editjudge(*words, "--require", "sees_input").code == 2
    unknown = editjudge(*words, "--passport", passport, "--require", "sees_imput")
    assert unknown.code == 2 and "sees_input" in unknown.err


def test_a_report_prints_a_line_about_the_passport_of_each_judge(
    store: Path, tmp_path: Path
) -> None:
    passport = write(tmp_path / "p.json")
    page = tmp_path / "r.html"
    words = ("report", "mine", "--store", store, "--passport", passport)
    text = editjudge(*words)
    assert text.code == 0 and "1 yes, 1 no, 1 not shown" in text.out
    document = editjudge(*words, "--json").json
    assert document["passports"][0]["faults"] == ["no_bias:saturation"]
    assert editjudge(*words, "-o", page).code == 0
    assert "passport of measured" in page.read_text()
    other = write(tmp_path / "o.json", judge="openai/gpt-4.1")
    assert editjudge("report", "mine", "--store", store, "--passport", other).code == 2


def test_a_server_does_not_start_with_a_judge_that_lacks_a_required_line(
    tmp_path: Path,
) -> None:
    passport = write(tmp_path / "p.json")
    words = ("serve", "--create", "--store", tmp_path / "s.db", "--judge", "measured", "--rubric", "quality",
             "--port", "0")  # fmt: skip
    failed = editjudge(*words, "--passport", passport, "--require", "no_bias:saturation")  # fmt: skip
    assert failed.code == 100 and "no_bias:saturation" in failed.err
    other = write(tmp_path / "o.json", judge="openai/gpt-4.1")
    refused = editjudge(*words, "--passport", other, "--require", "sees_input")
    assert refused.code == 2
