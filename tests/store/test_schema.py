"""What columns hold, which versions are taken, and that PostgreSQL would understand it all."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from editjudge.errors import StoreError
from editjudge.store import Store, migrations, schema
from tests.faults import raises

from .samples import sample, texts


@given(texts)
def test_a_text_comes_back_to_the_character_and_is_stored_as_text_without_nul(
    text: str,
) -> None:
    stored = schema.escaped(text)
    assert schema.unescaped(stored) == text
    assert b"\0" not in stored.encode()


@pytest.mark.parametrize("text", ["plain", "日本語 😀", "back\\slash", ""])
def test_a_plain_text_is_stored_as_it_is(text: str) -> None:
    assert schema.escaped(text) == text


def test_two_halves_of_a_pair_are_not_made_one_character() -> None:
    halves = "\ud83d" + "\ude00"
    assert schema.unescaped(schema.escaped(halves)) == halves != "😀"
    assert schema.unpacked(schema.packed(halves)) == halves


@given(texts)
def test_a_packed_reply_comes_back_to_the_character(text: str) -> None:
    assert schema.unpacked(schema.packed(text)) == text


def test_a_long_reply_is_compressed_and_a_short_one_is_not() -> None:
    assert len(schema.packed("the same words " * 100)) < 100
    assert schema.packed("no") == b"\x00no"


def test_a_codec_of_a_later_version_is_refused() -> None:
    with raises(StoreError, "unknown_codec"):
        schema.unpacked(b"\x07...")


def test_sqlite_itself_refuses_a_score_that_is_not_ok(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        store.write([sample(1), sample(2, "invalid")])
    with sqlite3.connect(tmp_path / "s.db") as raw:
        raw.execute("pragma foreign_keys = on")
        insert = "insert into scores (key, factor, position, score, status) values (?, 'alignment', 0, 1, ?)"
        for status, reason in (
            ("ok", "FOREIGN KEY"),
            ("invalid", "a_score_exists_only_in_ok"),
        ):
            with pytest.raises(sqlite3.IntegrityError, match=reason):
                raw.execute(insert, (sample(2).key, status))
        with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
            raw.execute("update judgements set status = 'invalid' where status = 'ok'")
    raw.close()


def test_every_statement_can_be_said_to_postgresql() -> None:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    for table in schema.metadata.sorted_tables:
        assert "CREATE TABLE" in str(CreateTable(table).compile(dialect=dialect))
        for index in table.indexes:
            assert "INDEX" in str(CreateIndex(index).compile(dialect=dialect))
    statement = schema.upsert("postgresql", schema.digests, ["digest"])
    assert "ON CONFLICT (path) DO UPDATE SET digest = excluded.digest" in str(
        statement.compile(dialect=dialect)
    )


# --- versions -------------------------------------------------------------------------------------------------


def make_first_version(path: Path) -> None:
    """A store whose version is the first that can be migrated."""
    with Store.open(path) as store:
        store.write([sample(1)])
    set_version(path, migrations.FIRST)


def set_version(path: Path, version: int) -> None:
    with sqlite3.connect(path) as raw:
        raw.execute("update meta set value = ?", (str(version),))
    raw.close()


def stored_version(path: Path) -> int:
    with sqlite3.connect(path) as raw:
        value = raw.execute(
            "select value from meta where name = 'schema_version'"
        ).fetchone()[0]
    raw.close()
    return int(value)


def statements(texts: dict[int, list[str]]) -> Callable[[int, str], list[str]]:
    return lambda version, _: texts.get(version, [])


ADD_TABLE = "create table remarks (text text)"
FILL_TABLE = "insert into remarks select key from judgements"


def test_an_old_file_goes_through_the_migrations_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    make_first_version(path)
    monkeypatch.setattr(migrations, "STEPS", {})
    steps = {migrations.FIRST + 1: [ADD_TABLE], migrations.VERSION: [FILL_TABLE]}
    monkeypatch.setattr(migrations, "_statements", statements(steps))
    for _ in range(2):  # a second time there is nothing to do
        with Store.open(path) as store:
            assert store.judgement(sample(1).key) == sample(1)
    with sqlite3.connect(path) as raw:
        assert raw.execute("select text from remarks").fetchall() == [(sample(1).key,)]
    raw.close()
    assert stored_version(path) == migrations.VERSION


def test_a_migration_that_fails_has_not_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    make_first_version(path)
    monkeypatch.setattr(migrations, "STEPS", {})
    steps = {migrations.FIRST + 1: [ADD_TABLE, ADD_TABLE]}
    monkeypatch.setattr(migrations, "_statements", statements(steps))
    with pytest.raises(StoreError, match="already exists"):
        Store.open(path)
    assert stored_version(path) == migrations.FIRST
    monkeypatch.setattr(migrations, "_statements", statements({}))
    with Store.open(path) as store:
        assert store.judgement(sample(1).key) == sample(1)


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (99, "too_new"),
        (4, "too_old"),
    ],
)
def test_a_file_of_another_version_is_refused_with_what_to_do(
    tmp_path: Path, version: int, code: str
) -> None:
    path = tmp_path / "s.db"
    make_first_version(path)
    set_version(path, version)
    with raises(StoreError, code, f"schema {version}"):
        Store.open(path)
