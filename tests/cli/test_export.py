"""`editjudge export`: a run's judgements as files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from editjudge.judgement import Judgement, row
from tests.faults import check_error, shows
from tests.running.made import (
    SPECS,
    editjudge,
    edits,
    expected,
    picture,
    rows_of,
    run,
    stub,
)

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
    told = editjudge(
        "export", "mine", "-o", tmp_path / "out", "--store", store, "--json"
    )
    assert told.code == 0
    written = tmp_path / "out" / "judgements.jsonl"
    rows = [json.loads(line) for line in written.read_text().splitlines()]
    assert [r["item"] for r in rows] == ["e0", "e1", "e2", "e3"]
    assert [r["status"] for r in rows] == ["ok", "ok", "ok", "missing_output"]
    assert all(r.keys() == FIELDS for r in rows)
    said = expected(tmp_path / "edits.jsonl")
    assert [r["scores"] for r in rows] == [
        *(said[f"e{n}", "fidelity"] for n in range(3)),
        None,
    ]


def test_csv_has_a_row_for_every_factor_and_no_score_where_there_is_none(
    store: Path, tmp_path: Path
) -> None:
    told = editjudge(
        "export", "1", "-o", tmp_path / "out", "--format", "csv", "--store", store
    )
    assert told.code == 0
    with (tmp_path / "out" / "judgements.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["item"], r["factor"]) for r in rows[:3]] == [
        ("e0", factor) for factor in ("alignment", "completeness", "plausibility")
    ]
    assert [(r["status"], r["score"]) for r in rows[9:]] == [("missing_output", "")] * 3


@pytest.mark.parametrize(
    "words", [(), ("--replies",), ("--format", "parquet"), ("--format", "csv")]
)
def test_all_that_was_written_is_named(
    words: tuple[str, ...], store: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    told = editjudge("export", "mine", "-o", out, *words, "--store", store, "--json")
    assert sorted(told.json["written"]) == sorted(map(str, out.iterdir()))
    told = editjudge("export", "mine", "-o", out, *words, "--store", store)
    assert told.code == 0, "an earlier export of the same run is replaced"
    assert all(str(path) in told.out for path in out.iterdir())


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
@pytest.mark.parametrize(
    "there", ["items.jsonl", "judgements", "run.json", "another run"]
)
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
        (out / there).mkdir() if there == "judgements" else (out / there).write_text(
            "{}"
        )
    before = {path: path.read_bytes() for path in out.iterdir() if path.is_file()}
    words = ("export", "mine", "-o", out, "--format", form, "--store", store)
    told = editjudge(*words)
    assert told.code == 2 and "--force" in told.err and str(out) in told.err
    assert {
        path: path.read_bytes() for path in out.iterdir() if path.is_file()
    } == before
    assert editjudge(*words, "--force").code == 0


def test_other_files_of_a_folder_stay_as_they_are(store: Path, tmp_path: Path) -> None:
    assert editjudge("export", "mine", "-o", tmp_path, "--store", store).code == 0
    assert store.exists() and (tmp_path / "edits.jsonl").exists()


def test_where_it_came_from_lies_beside_it(store: Path, tmp_path: Path) -> None:
    editjudge("export", "mine", "-o", tmp_path / "out", "--store", store)
    about = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (about["name"], about["state"], about["spec"]["judges"]) == (
        "mine",
        "finished",
        [SPECS["openai"]],
    )
    (rubric,) = about["rubrics"].values()
    assert rubric["name"] == "fidelity"


def test_a_run_that_is_not_there_is_an_error_with_a_guess(
    store: Path, tmp_path: Path
) -> None:
    told = editjudge("export", "mime", "-o", tmp_path / "out", "--store", store)
    assert told.code == 2
    assert 'did you mean "mine"?' in told.err
    assert not (tmp_path / "out").exists()


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    told = editjudge(
        "export", "mine", "-o", tmp_path / "out", "--store", tmp_path / "gone.db"
    )
    assert told.code == 1
    assert "gone.db" in told.err
    assert list(tmp_path.iterdir()) == []


# --- a data set, filtered -------------------------------------------------------------------------------------


def test_where_writes_a_manifest_of_what_passes_and_what_has_no_score_does_not(
    store: Path, tmp_path: Path
) -> None:
    manifest = tmp_path / "edits.jsonl"
    # the fourth was never produced
    said = [expected(manifest)[f"e{n}", "fidelity"] for n in range(3)]
    least = max(scores["alignment"] for scores in said)
    words = (
        "--where",
        f"alignment>={least}",
        "--where",
        "completeness>=1",
        "--store",
        store,
        "--json",
    )
    told = editjudge("export", "mine", "-o", tmp_path, *words)
    passing = [n for n in range(3) if said[n]["alignment"] >= least]
    assert told.json == {
        "run": "mine",
        "written": [str(tmp_path / "kept.jsonl")],
        "kept": len(passing),
        "edits": 4,
        "unscored": 1,
        "outside": False,
    }
    kept = [
        {name: row[name] for name in row if name != "group"}
        for row in rows_of(tmp_path / "kept.jsonl")
    ]
    assert 0 < len(passing) < 3 and kept == [rows_of(manifest)[n] for n in passing]


def test_all_conditions_of_where_must_hold(store: Path, tmp_path: Path) -> None:
    arguments = ("--where", "alignment>=1", "--where", "alignment<1", "--store", store)
    result = editjudge("export", "mine", "-o", tmp_path / "out", *arguments)
    assert result.code == 0 and shows(result.out, "0 of 4 edits", "alignment: 1")
    assert (tmp_path / "out" / "kept.jsonl").read_text() == ""


def test_a_kept_manifest_in_another_folder_says_that_its_pictures_are_outside(
    store: Path, tmp_path: Path
) -> None:
    result = editjudge(
        "export",
        "mine",
        "-o",
        tmp_path / "out",
        "--where",
        "alignment>=1",
        "--store",
        store,
    )
    assert shows(result.out, "3 of 4 edits", "alignment: 1", "--allow-outside")
    stored = tmp_path / "out" / "kept.jsonl"
    assert all(
        (stored.parent / row[role]).exists()
        for row in rows_of(stored)
        for role in ("input", "edited")
    )
    again = editjudge(
        "export",
        "mine",
        "-o",
        tmp_path / "out",
        "--where",
        "alignment>=7",
        "--store",
        store,
    )
    assert again.code == 2 and "--force" in again.err and len(rows_of(stored)) == 3


@pytest.mark.parametrize(
    ("words", "expect"),
    [
        (("--where", "alignmnt>=4"), 'did you mean "alignment"'),
        (("--where", "mine:alignment>=4"), "expected NAME>=VALUE"),
        (("--where", "alignment>=4", "--format", "csv"), "--where writes a manifest"),
        (("--where", "alignment>=4", "--replies"), "--where writes a manifest"),
    ],
)
def test_a_where_that_cannot_be_meant_writes_nothing(
    words: tuple[str, ...], expect: str, store: Path, tmp_path: Path
) -> None:
    told = editjudge("export", "mine", "-o", tmp_path / "out", *words, "--store", store)
    assert (
        told.code == 2
        and expect.lower() in told.err.lower()
        and not (tmp_path / "out").exists()
    )


def test_pictures_that_are_no_files_cannot_be_named_by_a_manifest(
    tmp_path: Path,
) -> None:
    import base64

    data = f"data:image/png;base64,{base64.b64encode(picture(1)).decode()}"
    manifest = edits(tmp_path, 1, edited=data)
    with stub():
        run(manifest, tmp_path / "s.db", rubrics=("fidelity",), manner={"name": "mine"})
    arguments = ("--where", "alignment>=1", "--store", tmp_path / "s.db")
    result = editjudge("export", "mine", "-o", tmp_path / "out", *arguments)
    assert result.code == 2
    check_error(result.error, "not_a_file", "edit e0", "edited")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_folder_that_is_called_like_a_run_does_not_hide_it(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    editjudge("export", "mine", "-o", "mine", "--format", "parquet", "--store", store)
    edits(tmp_path, 5)
    with stub():
        run(
            tmp_path / "edits.jsonl",
            store,
            rubrics=("fidelity",),
            manner={"name": "mine"},
        )

    assert editjudge("report", "mine", "--store", store).out.count("5 judgements")
    monkeypatch.setenv("EDITJUDGE_STORE", str(store))
    assert editjudge("report", "mine").out.count("5 judgements")
    refused = editjudge("report", "./mine", "--store", store)
    assert refused.code == 2 and "editjudge import-run" in refused.err
