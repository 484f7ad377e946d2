"""The passport of a judge at the command line: made, resumed, compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editjudge import plugins
from editjudge.plugins import Plugin
from tests.running.made import SPECS, editjudge, edits, stub

QUICK = ("probe", "--quick", "--rubric", "fidelity")
SPEC = "planted:saturation"
QUESTIONS = 28
"""Questions of the quick set for each photograph, with one rubric."""


@pytest.fixture(autouse=True)
def planted_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge `planted:FAULT`, as a package of somebody else would provide it."""
    known = plugins.providers("judges")
    added = {**known, "planted": Plugin("tests.probes.planted:open_planted")}
    real = plugins.providers

    def providers(kind: plugins.Kind) -> dict[str, Plugin]:
        return added if kind == "judges" else real(kind)

    monkeypatch.setattr(plugins, "providers", providers)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("passports")


def made(folder: Path, spec: str = SPEC, *more: object) -> Path:
    path = folder / f"{spec.replace(':', '-')}.json"
    if not path.exists():
        result = editjudge(*QUICK, "--judge", spec, "--store", folder / "s.db", "--passport", path, *more)  # fmt: skip
        assert result.code == 0, result.err
    return path


def test_a_quick_passport_is_written_and_names_the_planted_fault(folder: Path) -> None:
    page = folder / "p.html"
    passport = json.loads(made(folder, SPEC, "-o", page).read_text())
    assert passport["judge"] == SPEC and passport["set"] == "quick"
    qualities = passport["qualities"]
    faults = [name for name, q in qualities.items() if q["answer"] == "no"]
    assert faults == ["no_bias:saturation"]
    saturation = qualities["no_bias:saturation"]
    assert saturation["effect"] == 1 and saturation["sham"] == 0 and saturation["n"] == 12  # fmt: skip
    assert saturation["ci"][0] > 0 and saturation["p"] < 0.001
    assert {"answer", "effect", "ci", "sham", "n"} <= saturation.keys()
    assert passport["usd"] == 0 and passport["questions"] == 12 * QUESTIONS
    assert page.read_text().startswith("<!doctype html>")


def test_an_interrupted_passport_is_resumed_from_its_store(folder: Path) -> None:
    made(folder)
    again = editjudge(*QUICK, "--judge", SPEC, "--store", folder / "s.db", "--passport", folder / "again.json",
                      "--json")  # fmt: skip
    first = json.loads(made(folder).read_text())
    assert again.code == 0
    assert again.json["qualities"] == first["qualities"]
    runs = editjudge("runs", "list", "--store", folder / "s.db", "--json").json["runs"]
    assert {run["name"] for run in runs} >= {*first["runs"]}
    assert len(runs) <= 2 * len(first["runs"])


def test_an_issued_passport_belongs_to_a_run_of_the_same_judge(folder: Path) -> None:
    store = folder / "s.db"
    judged = editjudge("run", edits(folder, 2), "--judge", SPEC, "--rubric", "fidelity", "--name", "mine",
                       "--store", store, "--quiet")  # fmt: skip
    assert judged.code == 0, judged.err
    words = ("gate", "mine", "--store", store, "--passport", made(folder), "--require")
    assert editjudge(*words, "sees_instruction").code == 0
    assert editjudge(*words, "no_bias:saturation").code == 100


def test_two_passports_are_compared(folder: Path) -> None:
    honest = made(folder, "planted:honest")
    result = editjudge("probe", "--compare", made(folder), honest, "--json")
    assert result.code == 0
    assert result.json["differing"].keys() == {"no_bias:saturation"}
    assert result.json["changes"] == {"no -> yes": 1}


def test_a_dry_run_names_the_price_and_asks_nothing(tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    spec = SPECS["openai"]
    prices.write_text(
        f"as_of: 2026-01-01\nmodels:\n  {spec}: {{input: 10, output: 40}}\n"
    )
    with stub() as server:
        dry = editjudge(*QUICK, "--judge", spec, "--prices", prices, "--passport", tmp_path / "p.json",
                        "--store", tmp_path / "s.db", "--dry-run", "--json")  # fmt: skip
        assert server.ledger.paid == 0
    assert (
        dry.code == 0 and dry.json["calls"] == 12 * QUESTIONS and dry.json["price"] > 0
    )
    assert not (tmp_path / "p.json").exists() and not (tmp_path / "s.db").exists()


def test_a_spent_budget_gives_no_passport(tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    spec = SPECS["openai"]
    prices.write_text(
        f"as_of: 2026-01-01\nmodels:\n  {spec}: {{input: 10, output: 40}}\n"
    )
    with stub():
        told = editjudge(*QUICK, "--judge", spec, "--prices", prices, "--passport", tmp_path / "p.json",
                         "--store", tmp_path / "s.db", "--budget", "0", "--json")  # fmt: skip
    assert told.code == 4 and told.json["passport"] is None
    assert not (tmp_path / "p.json").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("--quick",),
        ("--passport", "p.json", "--photos", "7"),
        ("--passport", "p.json", "--rubric", "reference"),
        ("--passport", "p.json", "--rubric", "preference"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(words: tuple[str, ...]) -> None:
    assert editjudge("probe", "--judge", "planted:honest", *words).code == 2


def test_a_changed_passport_is_refused(folder: Path, tmp_path: Path) -> None:
    changed = json.loads(made(folder).read_text())
    changed["qualities"]["no_bias:saturation"]["answer"] = "yes"
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(changed))
    assert editjudge("probe", "--compare", made(folder), path).code == 1
