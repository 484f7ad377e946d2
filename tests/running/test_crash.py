"""Runs that are killed or interrupted, and go on as if nothing had happened."""

from __future__ import annotations

import contextlib
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import editjudge
from editjudge.running.asker import LOOKAHEAD
from editjudge.store.store import Store
from tests.faults import shows
from tests.stub.server import Behaviour, Stub

from .made import (
    SPECS,
    canned,
    edits,
    environment,
    expected,
    run,
    start,
    stub,
    until,
    variables,
)

OPENAI = SPECS["openai"]
CONCURRENCY = 16


@contextlib.contextmanager
def running(
    manifest: Path, store: Path, *words: object
) -> Iterator[subprocess.Popen[str]]:
    command = ("run", manifest, "--judge", OPENAI, "--store", store, *words)
    with start(*command, folder=manifest.parent) as process:
        try:
            yield process
        finally:
            process.kill()


def rows_in(store: Path) -> dict[tuple[str, str], dict[str, object]]:
    """What is kept, less when it was kept."""
    with Store.open(store, readonly=True) as kept:
        (found,) = kept.runs()
        rows = {(row["item"], row["rubric"]): {**row} for row in kept.judgements(found)}
    for row in rows.values():
        del row["created"]
    return rows


def is_sound(store: Path) -> bool:
    with contextlib.closing(sqlite3.connect(store)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


# --- kill -9 --------------------------------------------------------------------------------------------------


def kill_and_resume(folder: Path, count: int, kills: int, seed: int) -> None:
    manifest = edits(folder, count)
    store = folder / "killed.db"
    chance = random.Random(seed)
    with stub(Behaviour(latency=0.02, jitter=0.04)) as server:
        for _ in range(kills):
            with running(manifest, store, "--concurrency", CONCURRENCY) as process:
                somewhere(server, process, chance, most=max(2, 3 * count // kills))
                process.kill()
                process.communicate()
            assert not store.exists() or is_sound(store)
        with running(manifest, store, "--concurrency", CONCURRENCY) as process:
            _, said = process.communicate(timeout=600)
            assert process.returncode == 0, said
        paid = server.ledger.paid
        server.reset()
        run(manifest, folder / "undisturbed.db")
    assert rows_in(store) == rows_in(folder / "undisturbed.db")
    assert {place: row["scores"] for place, row in rows_in(store).items()} == expected(
        manifest
    )
    assert is_sound(store)
    assert 3 * count <= paid <= 3 * count + kills * (CONCURRENCY + LOOKAHEAD)


def somewhere(
    server: Stub, process: subprocess.Popen[str], chance: random.Random, most: int
) -> None:
    """Wait for a random instant: while it starts, or after a few more requests, and then a moment."""
    if chance.random() < 0.2:
        time.sleep(chance.uniform(0, 0.6))
        return
    enough = server.ledger.requests + chance.randrange(1, most + 1)
    until(lambda: server.ledger.requests >= enough or process.poll() is not None, 60)
    time.sleep(chance.uniform(0, 0.05))


def test_a_run_killed_at_any_instant_goes_on_and_ends_as_if_nothing_had_happened(
    tmp_path: Path,
) -> None:
    kill_and_resume(tmp_path, 80, 4, seed=1)


@pytest.mark.soak
def test_a_run_killed_a_hundred_times(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, 1_000, 100, seed=2)


# --- Ctrl-C ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listening", [False, True])
def test_who_only_waits_for_a_server_that_is_down_is_stopped_at_once(
    listening: bool, tmp_path: Path
) -> None:
    manifest = edits(tmp_path, 60)
    store = tmp_path / "s.db"
    nowhere = {} if listening else variables("http://127.0.0.1:9")
    with (
        canned(lambda *_: (503, {}, b"{}")),
        environment(nowhere),
        running(manifest, store) as process,
    ):
        assert (
            process.stderr
            and f"waiting up to {120 if listening else 15} s"
            in process.stderr.readline()
        )
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=300)
        assert process.returncode == 130, said
    assert {row["status"] for row in rows_in(store).values()} == {"pending"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_once_lets_what_is_in_flight_finish_and_the_run_goes_on_later(
    number: int, tmp_path: Path
) -> None:
    manifest = edits(tmp_path, 60)
    store = tmp_path / "s.db"
    with stub(Behaviour(latency=0.5)) as server:
        with running(manifest, store, "--concurrency", 4) as process:
            until(lambda: server.ledger.in_flight == 4)
            process.send_signal(number)
            out, text = process.communicate(timeout=120)
            assert process.returncode == 130, text
        assert "in flight" in text
        assert re.search(
            r"interrupted: \d+ of \d+ judgements .*same command",
            text,
        )
        assert out == "", "one message, and no table of a part of a run"
        stored = sum(row["status"] == "ok" for row in rows_in(store).values())
        assert 4 <= stored == server.ledger.paid <= 4 + 4 + LOOKAHEAD
        assert "gave_up" not in server.ledger.by_fault
        with Store.open(store, readonly=True) as interrupted:
            assert interrupted.runs()[0].state == "interrupted"
        server.behaviour = Behaviour()
        done = run(manifest, store)
        assert server.ledger.paid == 180
    assert done.statuses() == {"ok": 180}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_twice_stops_at_once_and_keeps_what_was_answered(
    number: int, tmp_path: Path
) -> None:
    manifest = edits(tmp_path, 20)
    store = tmp_path / "s.db"
    with stub() as server:
        run(manifest, store, limit=5, manner={"name": "before"})
        server.behaviour = Behaviour(latency=600)
        with running(manifest, store, "--name", "stopped") as process:
            until(lambda: server.ledger.in_flight == 8)
            process.send_signal(number)
            assert process.stderr and "finishing" in process.stderr.readline()
            process.send_signal(number)
            _, text = process.communicate(timeout=120)
    assert process.returncode == 130
    assert shows(text, "stopped at once", "same command")
    assert "Traceback" not in text
    assert is_sound(store)
    with Store.open(store, readonly=True) as stored:
        result = stored.find_run("stopped")
        assert result.state == "interrupted"
        statuses = [row["status"] for row in stored.judgements(result)]
    assert (statuses.count("ok"), statuses.count("pending")) == (15, 45)


NOTEBOOK_CELL = """
import asyncio, sys
import editjudge as ej

async def cell():
    manifest, judge, store = sys.argv[1:]
    ej.run(manifest, judges=judge, store=store)

asyncio.new_event_loop().run_until_complete(cell())  # as a kernel does, which leaves Ctrl-C to Python
"""


def test_a_run_inside_a_running_loop_stops_at_once_and_goes_on_later(
    tmp_path: Path,
) -> None:
    manifest = edits(tmp_path, 20)
    store = tmp_path / "s.db"
    with stub() as server:
        run(manifest, store, limit=5, manner={"name": "before"})
        server.behaviour = Behaviour(latency=600)
        words = [sys.executable, "-c", NOTEBOOK_CELL, str(manifest), OPENAI, str(store)]
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
            try:
                until(lambda: server.ledger.in_flight == 8)
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=300)
            finally:
                process.kill()
        assert errors.rstrip().endswith("KeyboardInterrupt")
        with Store.open(store, readonly=True) as interrupted:
            (stopped,) = (
                record for record in interrupted.runs() if record.name != "before"
            )
            statuses = Counter(row["status"] for row in interrupted.judgements(stopped))
        assert (stopped.state, statuses) == ("interrupted", {"ok": 15, "pending": 45})
        server.behaviour = Behaviour()
        again = editjudge.run(manifest, judges=OPENAI, store=store)
    assert (again.id, again.ending, again.summary.statuses) == (
        stopped.id,
        "finished",
        {"ok": 60},
    )
    assert server.ledger.paid == 60


def test_twice_stops_at_once_also_where_the_run_is_ending_anyway(
    tmp_path: Path,
) -> None:
    """One question is refused for its key while another is not answered."""
    release = threading.Event()
    lock = threading.Lock()
    numbers = iter(range(1000))

    def say(_: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        with lock:
            first = next(numbers) == 0
        if not first:
            return 401, {}, b'{"error": {"message": "No."}}'
        release.wait(600)
        return 200, {}, b"{}"

    manifest = edits(tmp_path, 20)
    store = tmp_path / "s.db"
    with canned(say) as asked:
        try:
            with running(manifest, store) as process:
                until(lambda: len(asked) >= 8)
                time.sleep(0.5)
                process.send_signal(signal.SIGINT)
                time.sleep(0.5)
                process.send_signal(signal.SIGINT)
                assert process.wait(timeout=120) == 130
        finally:
            release.set()
