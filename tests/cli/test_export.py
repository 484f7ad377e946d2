"""`editjudge export`: a run's judgements as files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from run.made import SPECS, editjudge, edits, expected, run, stub

from editjudge.judgement import Judgement, row

FIELDS = set(row(Judgement("k", "invalid", "j", "r", "h"), "i", None, None))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Four edits, of which one was never produced."""
    manifest = edits(tmp_path, 4)
    (tmp_path / "edited-3.png").rename(tmp_path / "kept.png")
    with stub():
        run(manifest, tmp_path / "s.db", rubrics=("fidelity",), manner={"name": "mine"})
    (tmp_path / "kept.png").rename(tmp_path / "edited-3.png")
    return tmp_path / "s.db"


def test_jsonl_has_a_line_for_every_task(store: Path, tmp_path: Path) -> None:
    told = editjudge("export", "mine", "-o", tmp_path / "out", "--store", store, "--json")
    assert told.code == 0
    written = tmp_path / "out" / "judgements.jsonl"
    rows = [json.loads(line) for line in written.read_text().splitlines()]
    assert [r["item"] for r in rows] == ["e0", "e1", "e2", "e3"]
    assert [r["status"] for r in rows] == ["ok", "ok", "ok", "missing_output"]
    assert all(r.keys() == FIELDS for r in rows)
    said = expected(tmp_path / "edits.jsonl")
    assert [r["scores"] for r in rows] == [*(said[f"e{n}", "fidelity"] for n in range(3)), None]


def test_csv_has_a_row_for_every_factor_and_no_score_where_there_is_none(store: Path, tmp_path: Path) -> None:
    told = editjudge("export", "1", "-o", tmp_path / "out", "--format", "csv", "--store", store)
    assert told.code == 0
    with (tmp_path / "out" / "judgements.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["item"], r["factor"]) for r in rows[:3]] == [
        ("e0", factor) for factor in ("alignment", "completeness", "plausibility")
    ]
    assert [(r["status"], r["score"]) for r in rows[9:]] == [("missing_output", "")] * 3


@pytest.mark.parametrize("words", [(), ("--replies",), ("--format", "parquet"), ("--format", "csv")])
def test_all_that_was_written_is_named(words: tuple[str, ...], store: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    told = editjudge("export", "mine", "-o", out, *words, "--store", store, "--json")
    assert sorted(told.json["written"]) == sorted(map(str, out.iterdir()))
    told = editjudge("export", "mine", "-o", out, *words, "--store", store)
    assert told.code == 0, "an earlier export of the same run is replaced"
    assert all(str(path) in told.out for path in out.iterdir())


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
@pytest.mark.parametrize("there", ["items.jsonl", "judgements", "run.json", "another run"])
def test_what_is_not_an_export_of_this_run_is_replaced_only_when_told_so(
    form: str, there: str, store: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    if there == "another run":
        editjudge("export", "mine", "-o", out, "--store", store)
        about = json.loads((out / "run.json").read_text())
        (out / "run.json").write_text(json.dumps(about | {"spec_hash": "0" * 64}))
    else:
        out.mkdir()
        (out / there).mkdir() if there == "judgements" else (out / there).write_text("{}")
    before = {path: path.read_bytes() for path in out.iterdir() if path.is_file()}
    words = ("export", "mine", "-o", out, "--format", form, "--store", store)
    told = editjudge(*words)
    assert told.code == 2 and "--force" in told.err and str(out) in told.err
    assert {path: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    assert editjudge(*words, "--force").code == 0


def test_other_files_of_a_folder_stay_as_they_are(store: Path, tmp_path: Path) -> None:
    assert editjudge("export", "mine", "-o", tmp_path, "--store", store).code == 0
    assert store.exists() and (tmp_path / "edits.jsonl").exists()


def test_where_it_came_from_lies_beside_it(store: Path, tmp_path: Path) -> None:
    editjudge("export", "mine", "-o", tmp_path / "out", "--store", store)
    about = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (about["name"], about["state"], about["spec"]["judges"]) == ("mine", "finished", [SPECS["openai"]])
    (rubric,) = about["rubrics"].values()
    assert rubric["name"] == "fidelity"


def test_a_run_that_is_not_there_is_an_error_with_a_guess(store: Path, tmp_path: Path) -> None:
    told = editjudge("export", "mime", "-o", tmp_path / "out", "--store", store)
    assert told.code == 2
    assert 'did you mean "mine"?' in told.err
    assert not (tmp_path / "out").exists()


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    told = editjudge("export", "mine", "-o", tmp_path / "out", "--store", tmp_path / "gone.db")
    assert told.code == 1
    assert "gone.db" in told.err
    assert list(tmp_path.iterdir()) == []
