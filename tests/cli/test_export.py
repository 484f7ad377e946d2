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
    written = Path(told.json["written"])
    assert written == tmp_path / "out" / "judgements.jsonl"
    rows = [json.loads(line) for line in written.read_text().splitlines()]
    assert [r["item"] for r in rows] == ["e0", "e1", "e2", "e3"]
    assert [r["status"] for r in rows] == ["ok", "ok", "ok", "missing_output"]
    assert all(r.keys() == FIELDS for r in rows)
    said = expected(tmp_path / "edits.jsonl")
    assert [r["scores"] for r in rows] == [*(said[f"e{n}", "fidelity"] for n in range(3)), None]


def test_csv_has_a_row_for_every_factor_and_no_score_where_there_is_none(store: Path, tmp_path: Path) -> None:
    told = editjudge("export", "1", "-o", tmp_path / "out", "--format", "csv", "--store", store)
    assert (told.code, told.out) == (0, f"wrote {tmp_path / 'out' / 'judgements.csv'}\n")
    with (tmp_path / "out" / "judgements.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["item"], r["factor"]) for r in rows[:3]] == [
        ("e0", factor) for factor in ("alignment", "completeness", "plausibility")
    ]
    assert [(r["status"], r["score"]) for r in rows[9:]] == [("missing_output", "")] * 3


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
