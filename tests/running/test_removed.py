"""Edits that leave the manifest leave the run's view, and nothing that was judged is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editjudge.store.store import Store
from tests.faults import shows

from .made import Told, editjudge, edits, rows_of, stub, write_manifest


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def judge(manifest: Path, store: Path, *words: object) -> Told:
    name = (
        "--rubric",
        "fidelity",
        "--judge",
        "openai/stub",
        "--name",
        "mine",
        "--store",
        store,
    )
    return editjudge("run", manifest, *name, *words)


def items(store: Path) -> list[str]:
    with Store.open(store, readonly=True) as kept:
        run = kept.find_run("mine")
        assert [row["item"] for row in kept.judgements(run)] == [
            item.item for item in kept.items(run)
        ]
        return [item.item for item in kept.items(run)]


def test_an_edit_that_left_the_manifest_is_left_out_and_counted(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 4)
    with stub():
        assert judge(manifest, store, "--json").json["removed"] == 0
        write_manifest(tmp_path, [rows_of(manifest)[n] for n in (0, 3)])
        done = judge(manifest, store, "--json")
    assert (done.json["removed"], done.json["total"]) == (2, 2)
    assert items(store) == ["e0", "e3"]


def test_it_is_said_in_words_once(tmp_path: Path, store: Path) -> None:
    manifest = edits(tmp_path, 4)
    with stub():
        judge(manifest, store)
        write_manifest(tmp_path, rows_of(manifest)[:3])
        assert shows(judge(manifest, store).out, "1 edit is no longer")
        assert "no longer" not in judge(manifest, store).out


def test_an_edit_that_comes_back_is_not_paid_for_again(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 4)
    whole = rows_of(manifest)
    with stub() as server:
        judge(manifest, store)
        write_manifest(tmp_path, whole[:1])
        judge(manifest, store)
        write_manifest(tmp_path, whole)
        assert judge(manifest, store, "--json").json["cached"] == 4
        assert server.ledger.paid == 4
    assert items(store) == ["e0", "e1", "e2", "e3"]


@pytest.mark.parametrize("words", [("--limit", "2"), ("--model", "m0")])
def test_what_limit_and_model_leave_out_is_not_removed(
    words: tuple[str, str], tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 4)
    with stub():
        judge(manifest, store, *words)
        before = items(store)
        first = {**rows_of(manifest)[0], "id": "new"}
        write_manifest(tmp_path, [first, *rows_of(manifest)])
        done = judge(manifest, store, *words, "--json")
    assert done.json["removed"] == 0
    assert set(before) < set(items(store))


def test_a_condition_looks_at_the_same_edit_and_not_at_the_same_id(
    tmp_path: Path, store: Path
) -> None:
    for name in ("cats", "dogs"):
        folder = tmp_path / name
        folder.mkdir()
        manifest = edits(folder, 4)
        if name == "dogs":
            (folder / "edits.jsonl").write_text(
                "".join(
                    json.dumps({**row, "instruction": "Bark."}) + "\n"
                    for row in rows_of(manifest)
                )
            )
    judging = (
        "--rubric",
        "fidelity",
        "--judge",
        "openai/stub",
        "--store",
        store,
        "--max-failures",
        1,
        "--json",
    )
    where = ("--where", "cats:alignment>=1")
    with stub():
        editjudge("run", tmp_path / "cats" / "edits.jsonl", "--name", "cats", *judging)
        same = editjudge(
            "run",
            tmp_path / "cats" / "edits.jsonl",
            "--name",
            "again",
            *judging,
            *where,
        )
        other = editjudge(
            "run", tmp_path / "dogs" / "edits.jsonl", "--name", "dogs", *judging, *where
        )
    assert same.json["total"] == 4
    assert (other.json["total"], other.json["left_out"]) == (0, 4)


def test_a_run_again_gives_the_same_summary_until_the_manifest_changes(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 3)
    with stub():
        first = judge(manifest, store, "--json").json["factors"]
        assert judge(manifest, store, "--json").json["factors"] == first
        write_manifest(
            tmp_path,
            [row | {"model": f"model {n}"} for n, row in enumerate(rows_of(manifest))],
        )
        renamed = judge(manifest, store, "--json").json["factors"]
    assert {entry["model"] for entry in renamed} == {"model 0", "model 1", "model 2"}
    assert sum(entry["n"] for entry in renamed) == sum(entry["n"] for entry in first)
