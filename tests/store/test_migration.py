"""A store that 0.1 wrote, with data in it, becomes one of this version without losing anything."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from editjudge.errors import StoreError
from editjudge.judgement import Judgement, Task
from editjudge.store import Store, migrations
from editjudge.store.ratings import ratings_of, read_ratings
from tests.faults import raises
from tests.postgres import Server
from tests.running.made import editjudge, environment

from .old_store import FROZEN, SCHEMA_7, make_postgresql, make_sqlite, write_edits


@pytest.fixture
def old(tmp_path: Path) -> Path:
    write_edits(tmp_path)
    return make_sqlite(tmp_path / "old.db", tmp_path)


@pytest.fixture(params=["sqlite", "postgresql"])
def old_place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return made(request, tmp_path, FROZEN)


@pytest.fixture(params=["sqlite", "postgresql"])
def place_of_schema_7(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return made(request, tmp_path, SCHEMA_7)


def made(request: pytest.FixtureRequest, folder: Path, frozen: Path) -> str:
    if request.param == "sqlite":
        return str(make_sqlite(folder / "old.db", folder, frozen))
    return make_postgresql(
        request.getfixturevalue("postgres").new_place(), folder, frozen
    )


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as raw:
        return list(raw.iterdump())


def version_of(path: Path) -> str:
    with closing(sqlite3.connect(path)) as raw:
        return str(
            raw.execute(
                "SELECT value FROM meta WHERE name = 'schema_version'"
            ).fetchone()[0]
        )


def copies(path: Path) -> list[str]:
    """All that lies beside a store, but for the two files that SQLite keeps there."""
    names = {file.name for file in path.parent.glob(f"{path.name}?*")}
    return sorted(names - {f"{path.name}-wal", f"{path.name}-shm"})


def test_the_frozen_store_is_the_one_that_0_1_wrote(old: Path) -> None:
    assert version_of(old) == "5"
    assert migrations.release_of(5) == "0.1"


def tables(place: str) -> dict[str, list[tuple[str, str, bool]]]:
    with Store.open(place) as store, store._reading() as connection:
        inspected = sa.inspect(connection)
        return {
            table: sorted(
                (c["name"], str(c["type"]), c["nullable"])
                for c in inspected.get_columns(table)
            )
            + sorted(
                (name, "key", False)
                for name in inspected.get_pk_constraint(table)["constrained_columns"]
            )
            + sorted(
                (str(index["name"]), "index", False)
                for index in inspected.get_indexes(table)
            )
            for table in inspected.get_table_names()
        }


def test_a_migrated_store_has_the_tables_of_a_new_one(
    old_place: str, place: str
) -> None:
    if ("://" in old_place) == ("://" in place):
        assert tables(old_place) == tables(place)


def test_a_store_of_schema_7_admits_choices_and_variants(
    place_of_schema_7: str, place: str
) -> None:
    with Store.open(place_of_schema_7) as store:
        run = store.find_run("cats")
        rows = list(store.judgements(run))
        assert [
            (row["status"], row["variant"], row["order"], row["choices"])
            for row in rows
        ] == [("ok", "", None, None)] * 3
        assert all(
            set(row["scores"] or ()) == {"alignment", "completeness", "plausibility"}
            for row in rows
        )
        first = rows[0]
        both = [
            Task(first["item"], "preference", "j", 0, order * 32, order)
            for order in ("ab", "ba")
        ]
        store.append(run, both)
        pair = Judgement(
            "ab" * 32,
            "ok",
            "j",
            "preference",
            "f" * 64,
            choices={"overall": "a"},
            order="ab",
        )
        store.write([pair])
        assert store.judgement(pair.key) == pair
        assert [
            (row["variant"], row["status"], row["choices"])
            for row in store.judgements(run, judge="j")
        ] == [
            ("ab", "ok", {"overall": "a"}),
            ("ba", "pending", None),
        ]
    if ("://" in place_of_schema_7) == ("://" in place):
        assert tables(place_of_schema_7) == tables(place)


def test_what_was_judged_is_all_there_after_the_migration(old_place: str) -> None:
    with Store.open(old_place) as store:
        assert [run.name for run in store.runs()] == ["cats", "dogs"]
        for run in store.runs():
            rows = list(store.judgements(run))
            assert [row["status"] for row in rows] == ["ok"] * 3
            assert all(
                set(row["scores"] or ())
                == {"alignment", "completeness", "plausibility"}
                for row in rows
            )
            assert all(len(store.replies(row["key"])) == 1 for row in rows)


def test_a_run_of_0_1_resumes_without_asking_again(old: Path, tmp_path: Path) -> None:
    nowhere = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:18427/v1"}
    with environment(nowhere):
        words = (
            "--rubric",
            "fidelity",
            "--judge",
            "openai/stub",
            "--name",
            "cats",
            "--store",
            str(old),
        )
        done = editjudge("run", tmp_path / "cats" / "edits.jsonl", *words)
    assert done.code == 0, done.err
    assert "0 asked, 3 cached" in done.out


def test_the_first_write_keeps_a_copy_of_what_was(old: Path) -> None:
    before = dump(old)
    Store.open(old).close()
    assert copies(old) == ["old.db.0.1"]
    assert dump(old.with_name("old.db.0.1")) == before
    assert version_of(old) == str(migrations.VERSION)
    Store.open(old).close()
    assert copies(old) == ["old.db.0.1"]


def test_what_is_still_in_the_log_is_in_the_copy(old: Path) -> None:
    with closing(sqlite3.connect(old)) as writer:
        writer.execute("UPDATE ratings SET score = 1.5 WHERE rater = 'bob'")
        writer.commit()
        assert old.with_name("old.db-wal").stat().st_size
        Store.open(old).close()
    assert any(
        "1.5" in line for line in dump(old.with_name("old.db.0.1")) if "ratings" in line
    )


def test_a_copy_that_is_there_is_never_overwritten(old: Path) -> None:
    old.with_name("old.db.0.1").write_text("mine")
    Store.open(old).close()
    assert old.with_name("old.db.0.1").read_text() == "mine"
    assert copies(old) == ["old.db.0.1", "old.db.0.1.2"]
    assert version_of(old.with_name("old.db.0.1.2")) == "5"


def test_a_migration_that_fails_leaves_store_and_folder_as_they_were(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dump(old)

    def breaks(connection: sa.Connection) -> None:
        connection.execute(sa.text("CREATE TABLE half (id INTEGER)"))
        raise StoreError("broken")

    monkeypatch.setitem(migrations.STEPS, 9, breaks)
    with pytest.raises(StoreError, match="broken"):
        Store.open(old)
    assert dump(old) == before
    assert copies(old) == []


def test_a_disk_that_is_full_leaves_the_store_untouched(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dump(old)

    connect = sqlite3.connect

    def small(name: str | Path, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(name, **options)
        if str(name).endswith(".partial"):
            # as on a disk that ends there
            connection.execute("PRAGMA max_page_count = 3")
        return connection

    monkeypatch.setattr(sqlite3, "connect", small)
    with raises(StoreError, "no_copy"):
        Store.open(old)
    assert dump(old) == before
    assert copies(old) == []


def test_who_only_reads_sees_an_old_store_and_leaves_it_alone(old: Path) -> None:
    before = old.read_bytes()
    with Store.open(old, readonly=True) as store:
        assert [row["status"] for row in store.judgements(store.find_run("dogs"))] == [
            "ok"
        ] * 3
        folder = store._temporary
        assert folder and Path(folder.name).exists()
        with raises(StoreError, "read_only"):
            store.mark(1, "finished")
    assert not Path(folder.name).exists()
    assert old.read_bytes() == before
    assert copies(old) == []


def test_the_verbs_that_read_take_an_old_store(old: Path) -> None:
    done = editjudge("report", "cats", "--store", old, "--json")
    assert done.code == 0, done.err
    assert done.json["run"] == "cats"
    assert version_of(old) == "5"


def test_an_old_store_on_a_server_is_read_once_it_was_migrated(
    postgres: Server, tmp_path: Path
) -> None:
    place = make_postgresql(postgres.new_place(), tmp_path)
    with raises(StoreError, "read_only", "0.1"):
        Store.open(place, readonly=True)
    Store.open(place).close()
    with Store.open(place, readonly=True) as store:
        assert len(store.runs()) == 2


def rated(place: str | Path, run: str) -> list[tuple[str, str, float]]:
    with Store.open(place) as store:
        found = store.find_run(run)
        return sorted(
            (row.item, row.rater, row.score) for row in ratings_of(store, found)
        )


def test_ratings_of_0_1_go_to_the_edits_that_they_are_of(old_place: str) -> None:
    of_cats = [
        ("line-2", "eve", 4.0),
        ("third-cat", "ann", 6.0),
        ("third-cat", "bob", 7.0),
        ("third-cat", "eve", 4.0),
    ]
    assert rated(old_place, "cats") == of_cats
    assert rated(old_place, "dogs") == []


def test_ratings_of_0_1_that_may_be_of_several_edits_are_kept_and_said(
    old_place: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Store.open(old_place) as store:
        unknown = [
            (row[0], row[1], row[3])
            for row in read_ratings(store)
            if row[4].startswith(migrations.LEGACY)
        ]
    assert unknown == [
        ("1", "ann", 3.0),
        ("2", "ann", 5.0),
        ("line-1", "ann", 3.0),
        ("nowhere", "ann", 2.0),
    ]
    assert "4 ratings" in caplog.text


def test_a_rating_that_another_study_overwrote_in_0_1_is_there_again(old: Path) -> None:
    # Eve rated the second dog too, under the same id
    with closing(sqlite3.connect(old)) as raw:
        raw.execute(
            "INSERT INTO studies SELECT 2, 'dogs', 2, rubrics, 1, 1, 0, 1, created FROM studies"
        )
        raw.execute("INSERT INTO assignments VALUES (2, 'eve', 1, 'line-2', 0)")
        raw.execute(
            "INSERT INTO answers VALUES (2, 'eve', 1, 'alignment', 1.0, '', 9e9)"
        )
        raw.execute(
            "UPDATE ratings SET score = 1.0, created = 9e9 WHERE item = 'line-2' AND rater = 'eve'"
        )
        raw.commit()
    assert rated(old, "dogs") == [("line-2", "eve", 1.0)]
    assert ("line-2", "eve", 4.0) in rated(old, "cats")


def test_what_old_ratings_are_of_can_be_said_later(old: Path, tmp_path: Path) -> None:
    file = tmp_path / "said.csv"
    file.write_text("item,rater,factor,score\nline-1,ann,alignment,3\n")
    done = editjudge("ratings", "import", file, "--run", "dogs", "--store", old)
    assert done.code == 0, done.err
    assert rated(old, "dogs") == [("line-1", "ann", 3.0)]
    with Store.open(old) as store:
        assert not [
            row for row in read_ratings(store) if row[4] == f"{migrations.LEGACY}line-1"
        ]


def test_scores_of_the_schema_before_move_to_their_table(
    old_place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(migrations, "VERSION", 6)
        with Store.open(old_place) as store, store._reading() as connection:
            assert "scores" in {
                column["name"]
                for column in sa.inspect(connection).get_columns("judgements")
            }
            rows = connection.execute(
                sa.text("SELECT key, scores FROM judgements ORDER BY key")
            ).all()
    with Store.open(old_place) as store, store._reading() as connection:
        assert "scores" not in {
            column["name"]
            for column in sa.inspect(connection).get_columns("judgements")
        }
        assert {key: json.loads(text) for key, text in rows} == store.scores(
            key for key, _ in rows
        )
        assert [list(store.scores([key])[key]) for key, _ in rows] == [
            list(json.loads(text)) for _, text in rows
        ]
