"""Several processes that ask at once: each question is paid for once, and each has the whole run at the end."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from editjudge.edit import Edit
from editjudge.judgement import Task
from editjudge.judges.judge import Judge, Work
from editjudge.rubrics.files import load
from editjudge.running import batch as batches
from editjudge.running.asker import Asker
from editjudge.store.claims import Claims
from editjudge.store.store import Store
from tests.stub.server import Behaviour, Stub

from .made import SPECS, edits, environment, run, start, stub, until, variables
from .test_budget import INPUT, OUTPUT, billed

OPENAI = SPECS["openai"]


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "s.db")
    url: str = request.getfixturevalue("postgres").new_place()
    return url


@contextmanager
def running(
    manifest: Path, place: str, *words: object
) -> Iterator[subprocess.Popen[str]]:
    command = (
        "run",
        manifest,
        "--judge",
        OPENAI,
        "--store",
        place,
        "--json",
        "--quiet",
        *words,
    )
    with start(*command, folder=manifest.parent) as process:
        try:
            yield process
        finally:
            process.kill()


def outcome(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=120)
    assert process.returncode in (0, 4), err
    told: dict[str, Any] = json.loads(out)
    return told


def at_once(
    server: Stub, manifest: Path, place: str, *each: tuple[object, ...]
) -> list[dict[str, Any]]:
    with Store.open(place), environment(variables(server.url)), ExitStack() as stack:
        processes = [
            stack.enter_context(running(manifest, place, *words)) for words in each
        ]
        return [outcome(process) for process in processes]


@pytest.mark.parametrize(
    "names", [("one", "one"), ("one", "other")], ids=["one run", "two runs"]
)
def test_two_processes_pay_once_for_each_question_and_both_see_all_answers(
    names: tuple[str, str], place: str, tmp_path: Path
) -> None:
    manifest = edits(tmp_path, 120)
    with stub(Behaviour(latency=0.05)) as server:
        told = at_once(
            server,
            manifest,
            place,
            *(("--name", name, "--concurrency", 8) for name in names),
        )
        assert server.ledger.paid == server.ledger.least_paid == 360
    assert [one["statuses"] for one in told] == [{"ok": 360}] * 2
    assert sum(one["asked"] for one in told) == 360


def test_what_another_process_answered_is_counted_and_what_it_left_is_asked(
    place: str,
) -> None:
    judge = cast(Judge, SimpleNamespace(spec=OPENAI))
    works = [
        Work(
            Task(f"e{n}", "fidelity", OPENAI, 0, f"key-{n}"),
            Edit(f"e{n}"),
            load("fidelity"),
        )
        for n in range(4)
    ]

    async def use(store: Store) -> None:
        one, other = (Asker(store, Claims(store)) for _ in range(2))
        assert (await one.start(works)).open == works
        assert (await other.start(works)).open == []
        assert other.elsewhere(judge) == 4
        assert (await other.look_again(judge)).open == []
        scored = works[0].judgement("ok", scores={"alignment": 5}, justifications={})
        store.write([scored, works[1].judgement("refused")])
        lookup = await other.look_again(judge)
        assert lookup.statuses == {"key-0": "ok", "key-1": "refused"}
        assert (lookup.open, other.elsewhere(judge)) == ([], 2)
        await one.close()
        assert (await other.look_again(judge)).open == works[2:]
        assert other.elsewhere(judge) == 0
        await other.close()

    with Store.open(place) as store:
        asyncio.run(use(store))


def test_each_of_two_processes_keeps_its_own_budget(place: str, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(
        f"as_of: 2026-01-01\nmodels:\n  {OPENAI}: {{input: {INPUT}, output: {OUTPUT}}}\n"
    )
    manifest = edits(tmp_path, 60)
    words = ("--budget", 1.0, "--prices", prices, "--concurrency", 64)
    with stub(Behaviour(latency=0.02, thinks=True)) as server:
        told = at_once(server, manifest, place, words, words)
        assert 0 < billed(server.ledger) <= 2.0
        assert server.ledger.paid == server.ledger.least_paid
    assert all(one["cost_usd"] <= 1.0 for one in told)
    assert sum(one["cost_usd"] for one in told) == pytest.approx(billed(server.ledger))


def test_what_a_killed_process_was_asking_is_taken_over_at_once(
    place: str, tmp_path: Path
) -> None:
    manifest = edits(tmp_path, 60)
    with (
        stub(Behaviour(latency=0.3)) as server,
        Store.open(place),
        environment(variables(server.url)),
    ):
        with running(manifest, place, "--concurrency", 8) as first:
            until(lambda: server.ledger.paid > 8)
            with running(manifest, place, "--concurrency", 8) as second:
                first.send_signal(signal.SIGKILL)
                told = outcome(second)
        assert server.ledger.paid <= 180 + 8, (
            "what was in flight at the kill is asked again, and nothing else"
        )
    assert told["statuses"] == {"ok": 180}


def test_two_processes_by_batches_hand_each_question_in_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "LOOK", (0.05, 0.1))
    manifest = edits(tmp_path, 10)
    place = tmp_path / "s.db"
    with (
        stub(Behaviour(latency=0.05)) as server,
        environment(variables(server.url)),
        Store.open(place),
    ):
        with running(manifest, str(place), "--concurrency", 2) as live:
            until(lambda: server.ledger.paid > 0)
            done = run(manifest, place, manner={"batch": True, "name": "batch"})
            assert outcome(live)["statuses"] == {"ok": 30}
        assert server.ledger.paid == 30
    assert done.statuses() == {"ok": 30}
