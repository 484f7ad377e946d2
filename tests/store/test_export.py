"""A run as files that other programs read: nothing dropped, nothing half written, nothing that runs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from editjudge.judgement import row
from editjudge.rubrics.files import load
from editjudge.store import Store
from editjudge.store.export import export_run
from editjudge.store.records import Item, RunRecord

from .samples import JUDGE, RUBRIC, sample, task

NASTY = '=HYPERLINK("http://x")\0\ud83d 日本\u2028'
SCORED = sample(
    0,
    justifications={"alignment": NASTY},
    abstained={"harmony": "@cannot say"},
    evidence={"x": NASTY},
)


@pytest.fixture
def run(store: Store) -> RunRecord:
    """One task that is ok, one that failed, one that was not asked yet."""
    run = store.open_run("pilot", {"judges": [JUDGE]})
    store.add_items(
        run,
        [
            Item(f"edit-{n}", model="-m", edit_type="add", group="-12.5")
            for n in range(3)
        ],
    )
    store.add_tasks(run, [task(n) for n in range(3)])
    store.write([SCORED, sample(1, "invalid")])
    return run


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_line_has_the_fields_of_a_row_and_a_task_that_waits_has_a_line(
    store: Store, run: RunRecord, tmp_path: Path
) -> None:
    path, *others = export_run(store, run, tmp_path / "out")
    assert path == tmp_path / "out" / "judgements.jsonl"
    assert [other.name for other in others] == ["items.jsonl", "run.json"]
    lines = [json.loads(line) for line in path.read_text("ascii").splitlines()]
    assert lines[0] == row(SCORED, "edit-0", "-m", "-12.5") | {
        "cached": SCORED.created < run.created
    }
    assert [line["status"] for line in lines] == ["ok", "invalid", "pending"]
    assert {tuple(line) for line in lines} == {tuple(lines[0])}


def test_a_score_has_a_row_and_so_has_a_factor_without_one(
    store: Store, run: RunRecord, tmp_path: Path
) -> None:
    rows = table(export_run(store, run, tmp_path / "out", "csv")[0])
    assert [(r["item"], r["status"], r["factor"], r["score"]) for r in rows] == [
        ("edit-0", "ok", "alignment", "5"),
        ("edit-0", "ok", "harmony", ""),
        ("edit-1", "invalid", "", ""),
        ("edit-2", "pending", "", ""),
    ]
    columns = "item model group edit_type judge rubric repeat status factor score justification choice"
    assert list(rows[0]) == columns.split()


def test_where_the_rubric_is_known_a_failure_has_a_row_for_each_of_its_factors(
    store: Store, run: RunRecord, tmp_path: Path
) -> None:
    rubric = load(RUBRIC)
    store.add_rubrics([rubric])
    store.write([sample(1, "invalid", rubric_hash=rubric.hash)])
    rows = table(export_run(store, run, tmp_path / "out", "csv")[0])
    keys = [factor.key for factor in rubric.factors]
    for status in ("invalid", "pending"):
        assert [r["factor"] for r in rows if r["status"] == status] == keys


def test_no_cell_is_a_formula_and_numbers_stay_numbers(
    store: Store, run: RunRecord, tmp_path: Path
) -> None:
    store.write(
        [sample(2, scores={"alignment": -2}, justifications={"alignment": "\tcmd"})]
    )
    rows = table(export_run(store, run, tmp_path / "out", "csv")[0])
    assert rows[0]["justification"] == '\'=HYPERLINK("http://x")\\x00\\ud83d 日本\u2028'
    assert rows[1]["justification"] == "'@cannot say"
    assert rows[0]["model"] == "'-m"
    assert rows[0]["group"] == "-12.5"
    assert (rows[-1]["score"], rows[-1]["justification"]) == ("-2", "'\tcmd")


def test_run_json_says_where_it_came_from(
    store: Store, run: RunRecord, tmp_path: Path
) -> None:
    rubric = load(RUBRIC)
    store.add_rubrics([rubric, load("quality")])
    store.write([sample(1, rubric_hash=rubric.hash)])
    export_run(store, run, tmp_path / "out", "csv")
    said = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (
        said["name"] == "pilot"
        and said["spec"] == {"judges": [JUDGE]}
        and said["spec_hash"] == run.spec_hash
    )
    assert [(c["status"], c["count"]) for c in said["counts"]] == [
        ("ok", 2),
        ("pending", 1),
    ]
    assert list(said["rubrics"]) == [rubric.hash]


def test_an_export_that_fails_leaves_the_earlier_file_and_no_half_one(
    store: Store, run: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = export_run(store, run, tmp_path / "out")[0].read_bytes()

    def breaks(*_: object, **__: object) -> Iterator[dict[str, object]]:
        yield {
            "item": "edit-0",
            "judge": JUDGE,
            "rubric": RUBRIC,
            "rubric_hash": None,
            "status": "ok",
        }
        raise OSError("the disk is gone")

    monkeypatch.setattr(store, "judgements", breaks)
    with pytest.raises(OSError, match="gone"):
        export_run(store, run, tmp_path / "out")
    assert (tmp_path / "out" / "judgements.jsonl").read_bytes() == before
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "items.jsonl",
        "judgements.jsonl",
        "run.json",
    ]
