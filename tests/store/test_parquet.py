"""A run as Parquet: what others read of it, how it is cut, and that it is whole or not there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pandas
import polars
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

import editjudge as ej
from editjudge.errors import ManifestError, UsageError
from editjudge.judgement import Judgement, JudgementRow, Task
from editjudge.rubrics.files import load
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.scale import Scale
from editjudge.store import Store, tables
from editjudge.store.export import export_run
from editjudge.store.import_run import check_run, import_run
from editjudge.store.records import Item, RunRecord
from tests.faults import raises
from tests.running.made import SPECS, edits, expected, rows_of, stub

from .samples import JUDGE, RUBRIC, judgements, sample, task, texts

NASTY = "\0\ud83d 日本\u2028\x01"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store.db") as opened:
        yield opened


@pytest.fixture
def run(store: Store) -> RunRecord:
    """One task that is ok, one that failed, one that was not asked yet."""
    rubric = load(RUBRIC)
    store.add_rubrics([rubric])
    run = store.open_run("pilot", {"judges": [JUDGE], "rubrics": {RUBRIC: rubric.hash}})
    store.add_items(
        run,
        [
            Item(f"edit-{n}", "m", "add", f"g{n}", NASTY, metadata={"n": n})
            for n in range(3)
        ],
    )
    store.add_tasks(run, [task(n) for n in range(3)])
    ok = sample(
        0, justifications={"alignment": NASTY}, abstained={"completeness": "cannot say"}
    )
    store.write([ok, sample(1, "invalid")])
    return run


SCORES = [
    (item, status, factor, 5 if (item, factor) == ("edit-0", "alignment") else None)
    for item, status in (("edit-0", "ok"), ("edit-1", "invalid"), ("edit-2", "pending"))
    for factor in ("alignment", "completeness", "plausibility")
]
COLUMNS = ["item", "status", "factor", "score"]


def test_pandas_reads_each_table(store: Store, run: RunRecord, tmp_path: Path) -> None:
    export_run(store, run, tmp_path / "out", "parquet")
    scores = pandas.read_parquet(tmp_path / "out" / "scores")
    assert scores[COLUMNS].astype(object).where(
        scores[COLUMNS].notna(), None
    ).values.tolist() == [*map(list, SCORES)]
    whole = pandas.read_parquet(tmp_path / "out" / "judgements")
    assert whole["status"].tolist() == ["ok", "invalid", "pending"]
    assert json.loads(whole["scores"][0]) == {"alignment": 5}
    assert pandas.read_parquet(tmp_path / "out" / "items")["item"].tolist() == [
        "edit-0",
        "edit-1",
        "edit-2",
    ]


def test_polars_reads_each_table(store: Store, run: RunRecord, tmp_path: Path) -> None:
    export_run(store, run, tmp_path / "out", "parquet")
    scores = polars.read_parquet(tmp_path / "out" / "scores" / "*.parquet")
    assert scores.select(COLUMNS).rows() == SCORES
    lazily = polars.scan_parquet(tmp_path / "out" / "judgements" / "*.parquet").filter(
        polars.col("status") == "ok"
    )
    assert lazily.select("item").collect().rows() == [("edit-0",)]


def test_datasets_reads_each_table(
    store: Store, run: RunRecord, tmp_path: Path
) -> None:
    export_run(store, run, tmp_path / "out", "parquet", replies=True)
    for table, columns in tables.TABLES.items():
        for streaming in (False, True):
            files = str(tmp_path / "out" / table / "*.parquet")
            found = datasets.load_dataset(
                "parquet",
                data_files=files,
                split="train",
                streaming=streaming,
                cache_dir=str(tmp_path / "cache"),
            )
            rows = list(found)
            assert list(rows[0]) == [column.name for column in columns]
            if table == "scores":
                assert [tuple(row[name] for name in COLUMNS) for row in rows] == SCORES


def test_a_dataset_goes_through_a_run_and_comes_out_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    manifest = edits(tmp_path, 4)
    rows = [
        row | {role: str(tmp_path / row[role]) for role in ("input", "edited")}
        for row in rows_of(manifest)
    ]
    made = datasets.Dataset.from_list(rows)
    for role in ("input", "edited"):
        made = made.cast_column(role, datasets.Image())
    files = str(tmp_path / "edits.parquet")
    made.to_parquet(files)  # which takes the pictures in
    made = datasets.load_dataset(
        "parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache")
    )
    with stub():
        run = ej.run(
            made, rubrics="fidelity", judges=SPECS["openai"], store=tmp_path / "s.db"
        )
        again = ej.run(
            made, rubrics="fidelity", judges=SPECS["openai"], store=tmp_path / "s.db"
        )
        plain = ej.run(
            rows,
            rubrics="fidelity",
            judges=SPECS["openai"],
            store=tmp_path / "t.db",
            name="rows",
            allow_outside=True,
        )
    assert (again.id, again.name) == (run.id, run.name)
    with Store.open(tmp_path / "s.db", readonly=True) as store:
        export_run(store, store.find_run(run.name), tmp_path / "out", "parquet")
    files = str(tmp_path / "out" / "judgements" / "*.parquet")
    judged = datasets.load_dataset(
        "parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache")
    )
    said = {(row["item"], row["rubric"]): json.loads(row["scores"]) for row in judged}
    assert said == {
        place: scores
        for place, scores in expected(manifest).items()
        if place[1] == "fidelity"
    }
    assert {row["key"] for row in judged} == {
        row["key"] for row in plain.judgements()
    }, "the same pictures, untouched"


def test_rows_that_cannot_be_read_twice_are_refused() -> None:
    with raises(UsageError, "rows_read_once"):
        ej.run(row for row in [{"input": "a.png"}])


# --- how it is cut --------------------------------------------------------------------------------------------


def test_a_long_run_is_cut_into_files_and_row_groups(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_ROWS", 40)
    monkeypatch.setattr(tables, "_GROUP", 10)
    run = store.open_run("long", {})
    store.add_tasks(run, [task(n) for n in range(95)])
    export_run(store, run, tmp_path / "out", "parquet")
    files = sorted((tmp_path / "out" / "judgements").iterdir())
    assert [file.name for file in files] == [f"part-0000{n}.parquet" for n in range(3)]
    assert [pq.ParquetFile(file).metadata.num_row_groups for file in files] == [4, 4, 2]
    rows = [row for file in files for _, row in tables.read_file(file, "judgements")]
    assert [row["key"] for row in rows] == [task(n).key for n in range(95)]


def test_a_later_export_takes_the_place_of_the_earlier_and_of_nothing_else(
    store: Store, run: RunRecord, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    export_run(store, run, out, "parquet", replies=True)
    (out / "items" / "holiday.png").write_bytes(b"mine")
    (out / "judgements" / "part-00001.parquet").write_bytes(b"of a longer run")
    export_run(store, run, out, "parquet")
    (file,) = (out / "judgements").iterdir()
    assert len(list(tables.read_file(file, "judgements"))) == 3
    assert (out / "items" / "holiday.png").exists()
    assert not list((out / "replies").iterdir())


def test_an_export_that_fails_leaves_the_earlier_one(
    store: Store, run: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    export_run(store, run, out, "parquet")
    before = {path: path.read_bytes() for path in out.rglob("*.*")}

    first = next(store.judgements(run))

    def breaks(*_: object, **__: object) -> Iterator[JudgementRow]:
        yield first
        raise OSError("the disk is gone")

    monkeypatch.setattr(store, "judgements", breaks)
    with pytest.raises(OSError, match="gone"):
        export_run(store, run, out, "parquet")
    assert {path: path.read_bytes() for path in out.rglob("*.*")} == before


def test_tables_without_run_json_are_not_a_run(
    store: Store, run: RunRecord, tmp_path: Path
) -> None:
    export_run(store, run, tmp_path / "out", "parquet")
    (tmp_path / "out" / "run.json").unlink()
    with raises(ManifestError, "unfinished_export"):
        check_run(tmp_path / "out")


# --- and back -------------------------------------------------------------------------------------------------


DECIMALS = replace(
    load("fidelity"),
    factors=tuple(
        replace(f, scale=Scale(range=(None, None))) for f in load("fidelity").factors
    ),
)
"""Any number is a score of it."""


def _of(rubric: Rubric, said: Judgement) -> Judgement:
    """The judgement by this rubric, on whose factors its numbers are."""
    keys = [factor.key for factor in rubric.factors]
    changes: dict[str, Any] = {"rubric": rubric.name, "rubric_hash": rubric.hash}
    if said.status == "ok":
        drawn = [*(said.scores or {}).values(), 1, 2.5, 3]
        changes["scores"] = {
            key: value % 2**31 for key, value in zip(keys, drawn, strict=False)
        }
        changes |= {
            "choices": None,
            "expected": {keys[0]: 1.25},
            "mass": {keys[0]: 0.5},
        }
    return replace(said, **changes)


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=25,
)
@given(judgements(), texts.filter(bool))
def test_whatever_a_judge_said_goes_out_and_comes_back(
    store: Store, tmp_path: Path, said: Judgement, item: str
) -> None:
    said = _of(DECIMALS, said)
    run = store.open_run("round trip", {})
    store.add_rubrics([DECIMALS])
    store.add_items(run, [Item(item, model=item, group=item, metadata={item: item})])
    store.add_tasks(run, [Task(item, said.rubric, said.judge, said.repeat, said.key)])
    store.write([said])
    export_run(store, run, tmp_path / "out", "parquet", replies=True)
    before = (
        list(store.judgements(run)),
        list(store.items(run)),
        store.replies(said.key),
    )
    store.remove_run(run)
    back, _ = import_run(store, check_run(tmp_path / "out", store), tmp_path / "out")
    assert (
        list(store.judgements(back)),
        list(store.items(back)),
        store.replies(said.key),
    ) == before
    store.remove_run(back)
