"""What goes into a store comes out of it, once, whatever was tried before and whoever else is writing."""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from editjudge.errors import StoreError, UsageError
from editjudge.judgement import Judgement, Task, row
from editjudge.media.cache import FileState, KnownImage
from editjudge.media.header import ImageInfo
from editjudge.rubrics.files import load
from editjudge.running.summary import summary_of
from editjudge.store import Store
from editjudge.store.records import Item
from tests.faults import raises

from .samples import JUDGE, RUBRIC, judgements, key, sample, task, texts

SPEC = {"judges": [JUDGE], "repeats": 1, "sampling": {"temperature": 0, "seed": 1}}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    file = tmp_path_factory.mktemp("shared") / "store.db"
    with Store.open(
        file
        if request.param == "sqlite"
        else request.getfixturevalue("postgres").new_place()
    ) as opened:
        yield opened


# --- judgements and replies -----------------------------------------------------------------------------------


@settings(
    suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=50
)  # in each database
@given(judgements(), texts)
def test_whatever_a_judge_said_comes_back_the_same(
    shared: Store, said: Judgement, item: str
) -> None:
    run = shared.open_run("round trip", {})
    shared.add_items(run, [Item(item, model=item, group=item)])
    shared.add_tasks(run, [Task(item, said.rubric, said.judge, said.repeat, said.key)])
    shared.write([said])
    assert shared.judgement(said.key) == said
    assert shared.replies(said.key) == list(said.exchanges)
    (stored,) = shared.judgements(run)
    printed = dict(stored)
    extra = {name: printed.pop(name) for name in ("position", "edit_type", "metadata")}
    assert printed == row(said, item, item, item) | {
        "cached": said.created < run.created
    }
    assert list(printed) == list(row(said, item, item, item))
    assert extra == {"position": 0, "edit_type": None, "metadata": {}}
    shared.remove_run(run)
    assert shared.judgement(said.key) is None and shared.replies(said.key) == []


@pytest.mark.parametrize("status", ["ok", "invalid"])
def test_writing_the_same_twice_leaves_one_row_and_no_doubled_replies(
    store: Store, status: Any
) -> None:
    same_reply_twice = sample(1, status).exchanges * 2
    said = sample(1, status, exchanges=same_reply_twice)
    store.write([said, said])
    store.write([said])
    assert store.judgement(said.key) == said
    assert store.replies(said.key) == list(same_reply_twice)


def test_a_later_success_replaces_a_failure_and_keeps_its_replies(store: Store) -> None:
    failed = sample(1, "unreachable")
    ok = sample(1, created=2000.0)
    store.write([failed])
    store.write([ok])
    assert store.judgement(key(1)) == ok
    assert store.replies(key(1)) == [*failed.exchanges, *ok.exchanges]


@pytest.mark.parametrize("status", ["ok", "abstained"])
def test_what_is_done_is_never_overwritten_but_every_reply_is_kept(
    store: Store, status: Any
) -> None:
    done = sample(1, status)
    later = sample(1, "refused", created=2000.0)
    other_answer = sample(1, scores={"alignment": 1}, created=3000.0)
    store.write([done])
    store.write([later])
    store.write([other_answer])
    assert store.judgement(key(1)) == done
    assert len(store.replies(key(1))) == 3


def test_a_batch_is_kept_as_a_whole_or_not_at_all(store: Store) -> None:
    with pytest.raises(ValueError, match="can be stored"):
        store.write([sample(1), sample(2, evidence={"delta": float("nan")})])
    assert store.done([key(1), key(2)]) == {}


def test_done_answers_for_more_keys_than_one_statement_takes(store: Store) -> None:
    store.write([sample(n, "ok" if n % 2 else "invalid") for n in range(0, 4000, 2)])
    found = store.done([key(n) for n in range(4000)])
    assert len(found) == 2000 and set(found.values()) == {"invalid"}
    assert store.done([]) == {}


def test_an_unknown_key_has_no_judgement(store: Store) -> None:
    assert store.judgement(key(1)) is None


# --- runs -----------------------------------------------------------------------------------------------------


def test_the_same_name_and_spec_is_the_same_run(store: Store) -> None:
    first = store.open_run("pilot", SPEC)
    assert store.open_run("pilot", dict(reversed(SPEC.items()))) == first
    assert (first.state, first.spec, first.summary) == ("running", SPEC, None)


def test_a_run_that_is_resumed_is_running_and_keeps_its_number_and_summary(
    store: Store,
) -> None:
    first = store.open_run("pilot", SPEC)
    store.mark(first, "interrupted", {"spent": 5.0})
    resumed = store.open_run("pilot", SPEC)
    assert resumed == store.find_run("pilot")
    assert (resumed.id, resumed.state, resumed.summary) == (
        first.id,
        "running",
        {"spent": 5.0},
    )
    assert store.open_run("next", SPEC).id == first.id + 1


def test_the_same_name_with_another_spec_is_an_error_that_names_the_keys(
    store: Store,
) -> None:
    store.open_run("pilot", SPEC)
    other = {
        "judges": [JUDGE],
        "repeats": 3,
        "sampling": {"temperature": 0, "seed": 2},
        "limit": None,
    }
    with raises(StoreError, "another_spec", "limit, repeats, sampling.seed") as caught:
        store.open_run("pilot", other)
    assert "judges" not in str(caught.value)


def test_a_run_is_found_by_name_then_by_id(store: Store) -> None:
    first = store.open_run("pilot", SPEC)
    named_like_an_id = store.open_run("1", SPEC)
    assert store.find_run("pilot") == first
    assert store.find_run("1") == named_like_an_id
    assert store.find_run("2") == store.find_run(2) == named_like_an_id
    assert store.runs() == [first, named_like_an_id]


def test_a_mistyped_run_brings_a_suggestion(store: Store) -> None:
    with raises(UsageError, "unknown_run"):
        store.find_run("pilot")
    store.open_run("pilot", SPEC)
    with raises(UsageError, "unknown_run", "pilto", '"pilot"'):
        store.find_run("pilto")


def test_a_run_says_what_became_of_it(store: Store) -> None:
    run = store.open_run("pilot", SPEC)
    store.mark(run, "budget", {"spent": 5.0})
    after = store.find_run("pilot")
    assert (after.state, after.summary) == ("budget", {"spent": 5.0})
    assert after.updated >= run.updated


def test_removing_a_run_keeps_what_another_run_refers_to(store: Store) -> None:
    mine = store.open_run("mine", SPEC)
    other = store.open_run("other", SPEC)
    store.add_items(mine, [Item("edit-1")])
    store.add_tasks(mine, [task(1), task(2)])
    store.add_tasks(other, [task(2), task(3)])
    store.write([sample(n) for n in (1, 2, 3)])
    store.remove_run(mine)
    assert store.done([key(n) for n in (1, 2, 3)]) == {key(2): "ok", key(3): "ok"}
    assert [len(store.replies(key(n))) for n in (1, 2, 3)] == [0, 1, 1]
    assert store.runs() == [other]
    assert list(store.judgements(mine)) == []
    assert list(store.items(mine)) == []


def test_a_run_larger_than_a_transaction_is_removed_whole(store: Store) -> None:
    run = store.open_run("pilot", SPEC)
    store.add_tasks(run, (task(n) for n in range(12_000)))
    store.write([sample(n) for n in (0, 9_999, 10_000, 11_999)])
    store.remove_run(run)
    assert store.done([key(n) for n in range(12_000)]) == {}
    assert list(store.judgements(run)) == []
    assert store.runs() == []


def test_the_number_of_a_removed_run_is_not_given_to_another(store: Store) -> None:
    removed = store.open_run("first", SPEC)
    store.remove_run(removed)
    assert store.open_run("second", SPEC).id > removed.id


# --- items and tasks ------------------------------------------------------------------------------------------


def test_tasks_come_in_order_and_without_a_judgement_they_are_pending(
    store: Store,
) -> None:
    run = store.open_run("pilot", SPEC)
    assert store.add_items(run, [Item(f"edit-{n}", model="a") for n in (3, 1, 2)]) == 3
    assert store.add_tasks(run, [task(3), task(1)]) == 2
    assert store.add_tasks(run, [task(2, repeat=4)], start=2) == 3
    store.write([sample(1), sample(2, "invalid")])
    shown = list(store.judgements(run))
    assert [(r["item"], r["position"], r["status"]) for r in shown] == [
        ("edit-3", 0, "pending"),
        ("edit-1", 1, "ok"),
        ("edit-2", 2, "invalid"),
    ]
    pending = shown[0]
    assert (
        pending["scores"] is None
        and pending["attempts"] == 0
        and pending["reasons"] == []
    )
    assert (
        pending["judge"] == JUDGE
        and pending["key"] == key(3)
        and pending["usage"]["input_tokens"] is None
    )
    assert shown[2]["repeat"] == 4, "of the task, not of the judgement that it shares"
    assert store.counts(run) == {
        (JUDGE, RUBRIC, status): 1 for status in ("pending", "ok", "invalid")
    }


def test_what_is_appended_follows_without_gaps_and_what_is_there_stays_at_its_place(
    shared: Store,
) -> None:
    run = shared.open_run("appended", SPEC)
    for numbers in ((0, 1, 0), (1, 2), (0, 3)):
        shared.append(run, [Item(f"edit-{n}", model=str(numbers)) for n in numbers])
        shared.append(run, [task(n) for n in numbers])
    shown = [(r["item"], r["position"], r["model"]) for r in shared.judgements(run)]
    said = ("(0, 3)", "(1, 2)", "(1, 2)", "(0, 3)")
    assert shown == [(f"edit-{n}", n, model) for n, model in enumerate(said)], (
        "and is as it was said last"
    )
    assert [item.item for item in shared.items(run)] == [f"edit-{n}" for n in range(4)]


def test_an_answer_that_an_earlier_run_had_is_marked_as_cached(store: Store) -> None:
    earlier = store.open_run("earlier", {})
    later = store.open_run("later", {"again": True})
    store.write([sample(1, created=(earlier.created + later.created) / 2)])
    for run in (earlier, later):
        store.add_tasks(run, [task(1), task(2)])
    assert [shown["cached"] for shown in store.judgements(earlier)] == [False, False]
    assert [shown["cached"] for shown in store.judgements(later)] == [True, False]


def test_rows_are_picked_by_field(store: Store) -> None:
    run = store.open_run("pilot", SPEC)
    store.add_items(
        run,
        [
            Item(f"edit-{n}", model="ab"[n % 2], group=None if n else "g")
            for n in range(6)
        ],
    )
    store.add_tasks(run, [task(n) for n in range(6)])
    store.write([sample(0), sample(1, "invalid"), sample(2, "refused")])

    def numbers(**where: Any) -> list[int]:
        return [printed["position"] for printed in store.judgements(run, **where)]

    assert numbers(status="pending") == [3, 4, 5]
    assert numbers(status=["invalid", "refused"]) == [1, 2]
    assert numbers(model="a", status="pending") == [4]
    assert numbers(item="edit-5") == [5]
    assert numbers(group=None) == [1, 2, 3, 4, 5]
    assert dict(next(store.judgements(run, fields=["scores", "item"]))) == {
        "item": "edit-0",
        "scores": {"alignment": 5},
    }
    with pytest.raises(TypeError, match='did you mean "model"'):
        numbers(modle="a")


def test_adding_twice_is_adding_once(store: Store) -> None:
    run = store.open_run("pilot", SPEC)
    edits = [Item(f"edit-{n}", metadata={"n": n}) for n in range(5)]
    for _ in range(2):
        store.add_items(run, edits)
        store.add_tasks(run, [task(n) for n in range(5)])
    assert list(store.items(run)) == edits
    assert list(store.items(run, "edit-3")) == [edits[3]]
    assert len(list(store.judgements(run))) == 5


def test_a_picture_that_was_replaced_gives_its_task_another_key(store: Store) -> None:
    run = store.open_run("pilot", SPEC)
    store.add_tasks(run, [task(1)])
    store.write([sample(1)])
    store.add_tasks(run, [task(1, key=key(2))])
    assert [(shown["key"], shown["status"]) for shown in store.judgements(run)] == [
        (key(2), "pending")
    ]


def test_a_run_larger_than_a_transaction_is_taken_from_a_generator(
    store: Store,
) -> None:
    run = store.open_run("pilot", SPEC)
    assert store.add_tasks(run, (task(n) for n in range(25_000))) == 25_000
    assert sum(store.counts(run).values()) == 25_000


def test_tasks_of_a_run_that_is_not_there_are_refused(store: Store) -> None:
    with pytest.raises(StoreError, match=r"(?i)foreign key"):
        store.add_tasks(7, [task(1)])


def test_a_rubric_is_kept_under_its_hash(store: Store) -> None:
    rubric = load("fidelity")
    store.add_rubrics([rubric])
    store.add_rubrics([rubric, dataclasses.replace(rubric, name="renamed")])
    assert store.rubrics() == {rubric.hash: rubric}


def test_digests_are_remembered_also_of_files_whose_names_are_no_text(
    store: Store,
) -> None:
    odd = os.fsdecode(b"/pictures/\xff\xfe.png")
    file = FileState(
        2**40, 1_800_000_000_000_000_001, 1_800_000_000_000_000_002, 2**63 - 1
    )
    image = KnownImage("d" * 64, ImageInfo("png", 3, 2, 70))
    broken = KnownImage("d" * 64, None, "no picture")
    first = {odd: (file._replace(size=1), image), "b.png": (file, broken)}
    store.add_batch(0, [], [], first)
    store.add_batch(0, [], [], {odd: (file, image)})
    assert store.load_digests() == {odd: (file, image), "b.png": (file, broken)}
    assert store.load_digests([odd, "unknown"]) == {odd: (file, image)}


# --- opening, and what can go wrong ---------------------------------------------------------------------------


def test_a_path_of_any_characters_and_an_sqlite_url_open_the_same_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a b?c#d%20é.db"
    with Store.open(path) as store:
        store.write([sample(1)])
    assert path.exists()
    with Store.open(str(path), readonly=True) as store:
        assert store.done([key(1)]) == {key(1): "ok"}
    with Store.open(f"sqlite:///{tmp_path}/plain.db"):
        assert (tmp_path / "plain.db").exists()


def test_a_store_that_is_not_there_is_not_made_by_who_only_reads(
    tmp_path: Path,
) -> None:
    with raises(StoreError, "no_store", "s.db"):
        Store.open(tmp_path / "s.db", readonly=True)
    assert not list(tmp_path.iterdir())


def test_who_only_reads_cannot_write(tmp_path: Path) -> None:
    Store.open(tmp_path / "s.db").close()
    with Store.open(tmp_path / "s.db", readonly=True) as store:
        assert store.runs() == []
        with raises(StoreError, "read_only"):
            store.write([sample(1)])


def test_on_read_only_media_a_store_is_read_without_the_files_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(tmp_path / "s.db") as store:
        store.write([sample(1)])
    # root may write where permissions say no
    monkeypatch.setattr("os.access", lambda *_: False)
    with Store.open(tmp_path / "s.db", readonly=True) as store:
        assert store.done([key(1)]) == {key(1): "ok"}
        assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


def test_what_a_writer_has_not_put_into_the_file_yet_is_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    with Store.open(tmp_path / "s.db") as writer:
        writer.write([sample(1)])
        with Store.open(tmp_path / "s.db", readonly=True) as store:
            assert store.done([key(1)]) == {key(1): "ok"}


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ("", "is_a_folder"),
        ("no/folder/s.db", "no_folder"),
        ("postgresql+nosuch://host/db", "not_a_store_url"),
    ],
)
def test_a_place_that_cannot_be_a_store_is_explained(
    tmp_path: Path, where: str, code: str
) -> None:
    with raises(StoreError, code):
        Store.open(where if "://" in where else tmp_path / where)


def test_a_file_that_is_no_database_is_explained_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_bytes(garbage := b"not a database " * 100)
    with raises(StoreError, "sqlite_notadb", "--store"):
        Store.open(tmp_path / "s.db")
    assert (tmp_path / "s.db").read_bytes() == garbage


FOREIGN = {
    "plain": "CREATE TABLE photographs (id)",
    "in WAL mode": "PRAGMA journal_mode = WAL; CREATE TABLE photographs (id)",
    "a meta of other columns": "CREATE TABLE meta (key, content); INSERT INTO meta VALUES ('schema_version', '3')",
    "a version that is no number": "CREATE TABLE meta (name, value); INSERT INTO meta VALUES ('schema_version', 'v2')",
    "a version like ours": "CREATE TABLE meta (name, value); INSERT INTO meta VALUES ('schema_version', '3')",
    "a meta with nothing in it": "CREATE TABLE meta (name, value)",
}


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if not path.name.endswith("-shm")
    }


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("script", FOREIGN.values(), ids=FOREIGN)
def test_a_database_of_another_program_is_left_alone_to_the_byte(
    tmp_path: Path, script: str, readonly: bool
) -> None:
    with closing(sqlite3.connect(tmp_path / "s.db")) as raw:
        raw.executescript(f"PRAGMA page_size = 512; {script}")
    before = bytes_in(tmp_path)
    with raises(StoreError, "another_program"):
        Store.open(tmp_path / "s.db", readonly=readonly)
    assert bytes_in(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


_CRASHING = """
import os, sqlite3, sys
raw = sqlite3.connect(sys.argv[1], isolation_level=None)
raw.execute("CREATE TABLE photographs (id)")
raw.execute("INSERT INTO photographs VALUES (1)")
raw.execute(f"PRAGMA journal_mode = {sys.argv[2]}")
raw.execute("PRAGMA cache_size = 1")
raw.execute("BEGIN IMMEDIATE")
raw.execute("UPDATE photographs SET id = 2")
raw.execute("CREATE TABLE more (id)")
raw.executemany("INSERT INTO more VALUES (?)", [("x" * 3000,)] * 200)  # beyond the cache: written before the commit
if sys.argv[2] == "WAL":
    raw.execute("COMMIT")
os._exit(0)
"""


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_what_another_program_left_behind_when_it_crashed_is_left_to_it(
    tmp_path: Path, mode: str, readonly: bool
) -> None:
    subprocess.run(
        [sys.executable, "-c", _CRASHING, str(tmp_path / "s.db"), mode], check=True
    )
    before = bytes_in(tmp_path)
    assert {"s.db-wal", "s.db-journal"} & before.keys()
    with pytest.raises(StoreError):
        Store.open(tmp_path / "s.db", readonly=readonly)
    assert bytes_in(tmp_path) == before


def test_another_program_that_is_at_work_is_not_disturbed(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute("CREATE TABLE photographs (id)")
        raw.execute("BEGIN IMMEDIATE")
        before = bytes_in(tmp_path)
        for readonly in (False, True):
            with raises(StoreError, "another_program"):
                Store.open(tmp_path / "s.db", readonly=readonly, timeout=0.1)
        assert bytes_in(tmp_path) == before


def test_a_few_bytes_are_no_store_and_stay(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_bytes(b"abc")
    with raises(StoreError, "sqlite_notadb"):
        Store.open(tmp_path / "s.db")
    assert bytes_in(tmp_path) == {"s.db": b"abc"}


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "s.db")
    with raises(StoreError, "not_a_regular_file"):
        Store.open(tmp_path / "s.db")


def test_a_store_whose_log_alone_has_its_tables_is_opened(tmp_path: Path) -> None:
    with (
        Store.open(tmp_path / "s.db") as writer,
        Store.open(tmp_path / "s.db") as other,
    ):
        writer.write([sample(1)])
        assert (tmp_path / "s.db-wal").stat().st_size
        assert other.done([key(1)]) == {key(1): "ok"}


def test_a_file_that_may_not_be_written_is_explained(sqlite_store: Store) -> None:
    store = sqlite_store
    with store._engine.connect() as connection:
        # root may write where permissions say no
        connection.exec_driver_sql("PRAGMA query_only = ON")
    with raises(StoreError, "sqlite_readonly"):
        store.write([sample(1)])


def test_a_full_disk_is_explained_and_loses_nothing(sqlite_store: Store) -> None:
    store = sqlite_store
    store.write([sample(1)])
    with store._engine.connect() as connection:
        # SQLite takes the size it has now
        connection.exec_driver_sql("PRAGMA max_page_count = 1")
    with raises(StoreError, "sqlite_full"):
        store.write([sample(n) for n in range(2, 500)])
    assert store.done([key(n) for n in range(500)]) == {key(1): "ok"}


def test_a_lock_that_another_holds_too_long_is_explained(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db", timeout=0.05) as store:
        other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
        other.execute("begin immediate")
        with raises(StoreError, "sqlite_busy", "0.05 seconds"):
            store.write([sample(1)])
        assert store.runs() == [], "readers do not wait"
        other.execute("rollback")
        other.close()
        store.write([sample(1)])


def test_readers_in_other_threads_see_whole_batches_while_one_writes(
    store: Store,
) -> None:
    run = store.open_run("pilot", SPEC)
    store.add_tasks(run, [task(n) for n in range(1000)])
    finished = threading.Event()
    odd = []

    def read() -> None:
        while not finished.is_set():
            count = sum(
                shown["status"] == "ok"
                for shown in store.judgements(run, fields=["status"])
            )
            odd.extend([count] if count % 50 else [])

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for start in range(0, 1000, 50):
        store.write([sample(n) for n in range(start, start + 50)])
    finished.set()
    for reader in readers:
        reader.join()
    assert odd == []
    assert store.counts(run) == {(JUDGE, RUBRIC, "ok"): 1000}


def test_an_unfinished_reading_gives_its_connection_back(store: Store) -> None:
    run = store.open_run("pilot", SPEC)
    store.add_tasks(run, [task(n) for n in range(10)])
    for _ in range(40):  # more than the pool has
        rows = store.judgements(run)
        next(rows)
        rows.close()  # type: ignore[attr-defined]
    assert store.replies(key(1)) == []


def test_what_is_done_keeps_its_scores_and_gets_none_of_a_later_answer(
    store: Store,
) -> None:
    store.write([sample(1), sample(2, "abstained")])
    store.write(
        [
            sample(n, scores={"alignment": 1, "completeness": 2}, created=9e9)
            for n in (1, 2, 3)
        ]
    )
    assert store.scores([key(n) for n in (1, 2, 3)]) == {
        key(1): {"alignment": 5},
        key(3): {"alignment": 1, "completeness": 2},
    }


def test_scores_come_back_to_the_last_digit_and_whole_ones_as_integers(
    store: Store,
) -> None:
    values = {"z": 5, "a": 0.1 + 0.2, "whole": 7.0, "large": 1e300, "small": -5e-324}
    store.write([sample(1, scores=values)])
    run = store.open_run("r", {})
    store.add_items(run, [Item("edit-1")])
    store.add_tasks(run, [task(1)])
    (row,) = store.judgements(run, fields=["scores"])
    for scores in (row["scores"] or {}, store.scores([key(1)])[key(1)]):
        assert list(scores.items()) == list(values.items())
        assert [type(score) for score in scores.values()] == [
            int,
            float,
            int,
            float,
            float,
        ]


# --- what a resumed run reads ---------------------------------------------------------------------------------


def test_tasks_that_a_run_has_just_so_come_with_their_statuses(store: Store) -> None:
    run = store.open_run("r", SPEC)
    planned = [task(1), task(2, variant="ab"), task(3, item="\0")]

    def statuses(tasks: list[Task], start: int = 0) -> dict[str, str]:
        return store.add_batch(run, [], list(enumerate(tasks, start)), {})

    assert statuses(planned) == {}
    store.write([sample(1), sample(2, "refused")])
    assert (
        statuses(planned[:2]) == statuses(planned) == {key(1): "ok", key(2): "refused"}
    )
    assert statuses(planned[1:2], 1) == {key(2): "refused"}
    assert statuses([task(1, key=key(9))]) == {}  # another answer is wanted by now
    assert statuses([task(1, key=key(9))]) == {}
    assert statuses([task(1)]) == {} and statuses([task(1)]) == {key(1): "ok"}
    other = [task(1, judge="another"), task(2, judge="another")]
    assert statuses(other) == {} and statuses(other) == {
        key(1): "ok",
        key(2): "refused",
    }
    assert [row["key"] for row in store.judgements(run, judge="another")] == [
        key(1),
        key(2),
    ]


def test_a_summary_that_the_database_adds_up_is_that_of_its_rows(store: Store) -> None:
    run = store.open_run("r", SPEC)
    models = ["b", "a", None, "b", "\0", "a"]
    store.add_items(run, [Item(f"edit-{n}", model) for n, model in enumerate(models)])
    store.add_tasks(
        run,
        [
            task(n, repeat=repeat, key=key(2 * n + repeat))
            for n in range(6)
            for repeat in (0, 1)
        ],
    )
    scored = [
        {"alignment": 5, "quality": 2},
        {"quality": 0.1},
        {"alignment": 0.7},
        {"unknown": 4},
    ]
    statuses: list[Any] = [
        "refused",
        "ok",
        "ok",
        "abstained",
        "ok",
        "invalid",
        "ok",
        "ok",
        "missing_output",
    ]
    store.write(
        [
            sample(n, one, **({"scores": scored[n % 4]} if one == "ok" else {}))
            for n, one in enumerate(statuses)
        ]
    )
    factors = {RUBRIC: ["quality", "alignment"]}
    summary = summary_of(*store.score_sums(run), factors)
    for factor in factors[RUBRIC]:
        scores = [
            row["scores"][factor]
            for row in store.judgements(run)
            if row["scores"] and factor in row["scores"]
        ]
        cells = [cell for key, cell in summary.cells.items() if key[3] == factor]
        assert sum(cell.n for cell in cells) == 12
        assert sum(cell.ok for cell in cells) == len(scores)
        assert sum(cell.sum for cell in cells) == sum(scores)
    assert summary.statuses == {
        "ok": 5,
        "refused": 1,
        "abstained": 1,
        "invalid": 1,
        "missing_output": 1,
        "pending": 3,
    }
    assert (
        summary_of(*store.score_sums(store.open_run("empty", SPEC)), factors).as_json()[
            "factors"
        ]
        == []
    )
