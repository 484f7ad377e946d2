"""A run that begins before its store is open writes what the store would have written."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from editjudge.errors import StoreError
from editjudge.judgement import Judgement
from editjudge.rubrics.files import resolve
from editjudge.store import Store, early, schema
from editjudge.store.early import SCHEMA, EarlyClaims, EarlyStore, open_early
from editjudge.store.records import Item

from .old_store import make_sqlite
from .samples import judgements, key, sample, task, texts

SPEC = {"manifest": "edits.jsonl", "rubrics": {"fidelity": "f"}}
DIGEST = {"size": 3, "mtime_ns": 5, "ctime_ns": 7, "inode": 9, "digest": "d", "info": {"format": "png"}, "problem": ""}
KEYS = [key(number) for number in range(5)]


def rows(path: Path) -> dict[str, list[dict[str, Any]]]:
    """All that a file holds, by table; of runs without their times."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            table: [
                {
                    name: value
                    for name, value in dict(row).items()
                    if table != "runs" or name not in ("created", "updated")
                }
                for row in connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2")  # noqa: S608
            ]
            for table in tables
        }


def described(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        made = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
        return [(name, " ".join(sql.replace("(", " ( ").replace(")", " ) ").split())) for name, sql in made]


def fill(store: Store | EarlyStore, edits: list[Item], answers: list[Judgement]) -> None:
    run = store.open_run("mine", SPEC)
    store.add_rubrics(resolve(["online"]))
    assert store.item_ids(run) == set()
    tasks = [task(number, item=edit.item) for number, edit in enumerate(edits)]
    assert store.add_batch(run.id, edits, 0, tasks, 0, {"/a.png": DIGEST}) == {}
    store.write(answers)


def test_the_tables_of_the_script_are_those_of_the_schema(tmp_path: Path) -> None:
    assert SCHEMA.read_text("utf-8") == schema.sqlite_script(), "python -m editjudge.store.schema writes it anew"
    Store.open(tmp_path / "whole.db").close()
    with EarlyStore(tmp_path / "early.db"):
        pass
    assert described(tmp_path / "early.db") == described(tmp_path / "whole.db")


_IMAGES = st.dictionaries(texts, st.fixed_dictionaries({"source": texts, "digest": st.none() | texts}), max_size=2)
_METADATA = st.dictionaries(texts, texts | st.lists(st.integers()), max_size=2)
_ITEMS = st.builds(Item, texts, *[st.none() | texts] * 3, texts, texts, _IMAGES, _METADATA)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(_ITEMS, max_size=3, unique_by=lambda edit: edit.item),
    st.lists(judgements(), max_size=3, unique_by=lambda judgement: judgement.key),
)
def test_the_rows_are_those_that_a_store_writes(edits: list[Item], answers: list[Judgement]) -> None:
    with TemporaryDirectory() as folder:
        path, other = Path(folder, "early.db"), Path(folder, "whole.db")
        with EarlyStore(path) as begun, Store.open(other) as store:
            fill(begun, edits, answers)
            assert begun._whole is None, "nothing was left to the whole store"
            fill(store, edits, answers)
        assert rows(path) == rows(other)


def test_a_run_that_is_there_is_resumed(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        fill(store, [Item("a")], [])
        store.mark(1, "interrupted")
    with EarlyStore(tmp_path / "s.db") as again:
        run = again.open_run("mine", SPEC)
        assert (run.id, run.state, again.item_ids(run)) == (1, "running", {"a"})
        with pytest.raises(StoreError, match="another spec"):
            again.open_run("mine", {"manifest": "other.jsonl"})


def test_another_process_that_planned_the_same_batch_first_is_no_obstacle(tmp_path: Path) -> None:
    with EarlyStore(tmp_path / "s.db") as begun, Store.open(tmp_path / "s.db") as other:
        run = begun.open_run("mine", SPEC)
        other.add_batch(run.id, [Item("a")], 0, [task(0, item="a")], 0, {})
        other.write([sample(0)])
        assert begun.add_batch(run.id, [Item("a")], 0, [task(0, item="a")], 0, {}) == {key(0): "ok"}
        assert begun.done([key(0), key(1)]) == {key(0): "ok"}


def test_a_judgement_that_is_done_stays(tmp_path: Path) -> None:
    with EarlyStore(tmp_path / "s.db") as begun, Store.open(tmp_path / "s.db") as other:
        other.write([sample(0)])
        begun.write([sample(0, "invalid"), sample(1)])
        assert begun.done([key(0), key(1)]) == {key(0): "ok", key(1): "ok"}


def test_a_key_is_claimed_by_one_owner_and_given_back(tmp_path: Path) -> None:
    with EarlyStore(tmp_path / "s.db") as one, EarlyStore(tmp_path / "s.db") as two:
        first, second = EarlyClaims(one), EarlyClaims(two)
        assert first.take(KEYS[:3]) == set(KEYS[:3])
        assert second.take(KEYS) == set(KEYS[3:])
        assert one._whole is None
        one.write([sample(0)])
        first.close()
        assert second.take(KEYS) == set(KEYS)
        second.close()
        assert rows(tmp_path / "s.db")["claims"] == []


def test_early_claims_are_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "BEAT", 0.01)
    with EarlyStore(tmp_path / "s.db") as store:
        claims = EarlyClaims(store)
        claims.take(KEYS)
        assert claims._renewal
        claims._renewal.join()
        assert claims.whole._thread and claims.whole._thread.is_alive()
        claims.close()


def test_what_is_no_store_of_this_version_is_opened_whole(tmp_path: Path) -> None:
    with open_early(str(make_sqlite(tmp_path / "old.db", tmp_path))) as migrated:
        assert isinstance(migrated, Store)
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE notes (text)")
    (tmp_path / "words.db").write_text("no database, and more than a header of words" * 10)
    for name, why in {"other.db": "not a store", "words.db": "no SQLite", "a/s.db": "no folder", "": "folder"}.items():
        with pytest.raises(StoreError, match=why):
            open_early(str(tmp_path / name))


def test_the_first_question_does_not_wait_for_sqlalchemy(tmp_path: Path) -> None:
    (tmp_path / "edits.jsonl").write_text('{"id": "a", "input": "a.png", "edited": "a.png", "instruction": "x"}\n')
    (tmp_path / "a.png").write_bytes(PNG)
    code = (
        "import os, sys; from editjudge.cli import main; from editjudge.judges.http import HttpTransport\n"
        "async def post(*_, **__): print('sqlalchemy' in sys.modules, flush=True); os._exit(0)\n"
        "HttpTransport.post = post; main()"
    )
    words = ["run", "edits.jsonl", "--judge", "openai-compatible/m", "--base-url", "http://127.0.0.1:9/v1"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.split() == ["False"]
    with closing(sqlite3.connect(tmp_path / "editjudge.db")) as connection:
        counts = [connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("tasks", "claims")]  # noqa: S608
    assert counts == [3, 3], "stored and claimed before they are asked"


PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c4944415408d763f8cfc000000301010018dd8db00000000049454e44ae426082"
)


def test_what_sqlite_refuses_to_read_is_read_by_the_store(tmp_path: Path) -> None:
    with EarlyStore(tmp_path / "s.db") as store:
        store.write([sample(1)])
        store._connection.close()  # from now on each statement raises
        assert store.done([key(1), key(2)]) == {key(1): "ok"}
        assert store.has_batches() is True  # perhaps: the store is asked
