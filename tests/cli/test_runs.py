"""`editjudge runs`: what was run, and doing it again."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path

import pytest

from editjudge.judges.judge import Options
from editjudge.rubrics.files import dump, load
from editjudge.store.store import Store
from tests.faults import check_error, shows
from tests.running.made import SPECS, Told, editjudge, edits, run, stub
from tests.stub.server import Behaviour


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two runs of the same edits, the second with one rubric of the first."""
    manifest = edits(tmp_path, 3)
    with stub():
        run(manifest, tmp_path / "s.db", manner={"name": "first"})
        run(
            manifest,
            tmp_path / "s.db",
            rubrics=("fidelity",),
            manner={"name": "second"},
        )
    return tmp_path / "s.db"


def runs(store: Path, *words: object) -> Told:
    return editjudge("runs", *words, "--store", store)


def test_list_shows_judges_models_counts_and_cost(store: Path) -> None:
    first, second = runs(store, "list", "--json").json["runs"]
    assert (first["id"], first["name"], first["state"]) == (1, "first", "finished")
    assert (first["edits"], first["statuses"]) == (3, {"ok": 9})
    assert (second["edits"], second["statuses"]) == (3, {"ok": 3})
    assert first["models"] == {"m0": 2, "m1": 1}
    assert first["cost_usd"] is None
    lines = runs(store, "list").out.splitlines()
    row = re.split(r"\s{2,}", lines[2])
    expected = ["1", "first", "finished", SPECS["openai"], "m0, m1", "3", "9", "0"]
    assert row[:9] == [*expected, "unknown"] and len(lines) == 4


def test_list_of_an_empty_store_says_how_to_begin(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db"):
        pass
    done = runs(tmp_path / "s.db", "list")
    assert (done.code, done.out.count("\n")) == (0, 1) and "editjudge run" in done.out


def test_show_has_the_frozen_spec_and_the_counts(store: Path, tmp_path: Path) -> None:
    document = runs(store, "show", "first", "--json").json
    assert document["spec"]["manifest"] == str((tmp_path / "edits.jsonl").resolve())
    assert set(document["spec"]["rubrics"]) == {"preservation", "quality", "fidelity"}
    assert document["spec"]["judges"] == [SPECS["openai"]]
    assert len(document["spec_hash"]) == 64
    assert sorted((c["rubric"], c["status"], c["n"]) for c in document["counts"]) == [
        ("fidelity", "ok", 3),
        ("preservation", "ok", 3),
        ("quality", "ok", 3),
    ]
    assert document["summary"]["statuses"] == {"ok": 9}


def test_show_is_lines_that_people_read(store: Path, tmp_path: Path) -> None:
    printed = runs(store, "show", "1").out
    assert "first (1): finished" in printed
    text = dict(line.strip().split("  ", 1) for line in printed.splitlines()[1:-3])
    assert text["manifest"].strip() == str((tmp_path / "edits.jsonl").resolve())
    assert text["asked_for"].strip() == "online"
    assert (text["fuse"].strip(), text["rubrics quality"].strip()) == (
        "no",
        load("quality").hash,
    )
    assert not re.search(r"[\[{']|None|False|True", printed)
    assert shows(printed, "3 ok", "quality by openai/stub")


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_runs_alone_lists_them(words: tuple[str, ...], store: Path) -> None:
    alone = runs(store, *words)
    assert (alone.code, alone.out) == (0, runs(store, "list", *words).out)


def test_rm_removes_what_only_this_run_has(store: Path) -> None:
    assert runs(store, "rm", "second", "--yes").out == "removed second\n"
    with Store.open(store, readonly=True) as kept:
        (left,) = kept.runs()
        assert {row["status"] for row in kept.judgements(left)} == {"ok"}
    assert runs(store, "rm", "first", "--json").json == {"removed": "first"}
    assert runs(store, "list", "--json").json == {"runs": []}


@pytest.mark.parametrize(
    ("answer", "left", "code", "says"),
    [
        ("n\n", 2, 1, "kept second"),
        ("", 2, 2, "with --yes"),
        ("y\n", 1, 0, "Remove run second"),
    ],
)
def test_rm_asks_before_it_removes(
    answer: str,
    left: int,
    code: int,
    says: str,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    told = runs(store, "rm", "second")
    assert told.code == code and says in told.err
    with Store.open(store, readonly=True) as kept:
        assert len(kept.runs()) == left


def test_again_asks_what_failed_and_not_what_is_done(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 4)
    store = tmp_path / "s.db"
    with stub(Behaviour(garbage=0.9, sticky=frozenset({"garbage"}))) as server:
        options = Options(temperature=0.5, extra={"top_p": 0.9}, strict=True)
        first = run(
            manifest, store, options=options, repeats=2, manner={"name": "mine"}
        )
        server.behaviour = Behaviour()
        server.reset()
        result = runs(store, "again", "mine", "--json")
        assert server.ledger.paid == first.outcome.summary.failed > 0
    assert (result.code, result.json["statuses"]) == (0, {"ok": 24})
    assert result.json["run"] == "mine"


def test_again_with_a_changed_rubric_is_an_error(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 1)
    store = tmp_path / "s.db"
    file = tmp_path / "mine.yaml"
    rubric = dataclasses.replace(load("fidelity"), name="mine")
    file.write_text(dump(rubric))
    with stub() as server:
        run(manifest, store, rubrics=(str(file),), manner={"name": "r"})
        file.write_text(dump(dataclasses.replace(rubric, task="Something else.")))
        server.reset()
        result = runs(store, "again", "r")
        assert server.ledger.requests == 0
    assert result.code == 1
    check_error(result.error, "changed_rubric", "mine")


def test_again_exits_as_run_does(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 2)
    store = tmp_path / "s.db"
    with stub(Behaviour(empty=1)):
        run(manifest, store, rubrics=("fidelity",), manner={"name": "r"})
        assert runs(store, "again", "r").code == 3
        assert runs(store, "again", "r", "--max-failures", "1").code == 0


@pytest.mark.parametrize("verb", ["show", "again", "rm"])
def test_a_run_that_is_not_there_is_an_error_with_a_guess(
    verb: str, store: Path
) -> None:
    told = runs(store, verb, "frist", *(["--yes"] if verb == "rm" else []))
    assert told.code == 2
    assert 'did you mean "first"?' in told.err


def test_the_environment_names_the_store(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITJUDGE_STORE", str(store))
    assert len(editjudge("runs", "list", "--json").json["runs"]) == 2
