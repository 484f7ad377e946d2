"""Workers that measure: which worker takes which edit, and what becomes of an edit whose worker fails."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from editjudge.errors import ImageError
from editjudge.judgement import JudgementRow
from editjudge.judges import workers
from editjudge.judges.workers import FEW, Measurer, WorkerCrashed, WorkerPool
from editjudge.running.job import Job, RunOptions, execute
from editjudge.store.store import Store

from .made import encoded, photograph, recoloured

MANY = FEW + 8
MAKE = f"{__name__}:Echo"


class Unpicklable(Exception):
    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)


class Echo(Measurer):
    """Answers with the edit, the number of edits that it took, and the process that it runs in."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.edit = None
        self.taken = 0

    def take(self, edit: Any) -> None:
        self.edit = edit
        self.taken = self.taken + (edit is not None)

    def answer(self, question: str) -> tuple[str, str, int, int]:
        match question:
            case "crash" if os.environ.get("TEST_PARENT") != str(os.getpid()):
                os.kill(os.getpid(), signal.SIGKILL)
            case "print":
                os.write(1, b"a library says something\n")
            case "bad image":
                raise ImageError("no picture")
            case "unpicklable":
                raise Unpicklable(1, "cannot travel")
        return f"{self.prefix}{self.edit}", question, self.taken, os.getpid()


@contextmanager
def pool(size: int = 2, **given: Any) -> Iterator[WorkerPool]:
    opened = WorkerPool(MAKE, size, given)
    try:
        yield opened
    finally:
        opened.close()


def picture(name: str) -> Callable[[], Awaitable[str]]:
    async def load() -> str:
        return name

    return load


async def ask(
    to: WorkerPool, *asked: tuple[str, str], large: bool = False
) -> list[Any]:
    calls = (
        to.ask(edit, question, picture(edit), large=large) for edit, question in asked
    )
    return await asyncio.gather(*calls, return_exceptions=True)


def many(question: str = "q") -> list[tuple[str, str]]:
    return [(f"e{n}", question) for n in range(MANY)]


def test_a_few_edits_are_measured_in_this_process() -> None:
    with pool() as some:
        answers = asyncio.run(ask(some, ("a", "1"), ("b", "1")))
    assert [answer[:2] for answer in answers] == [("a", "1"), ("b", "1")]
    assert {answer[3] for answer in answers} == {os.getpid()}


def test_many_edits_are_measured_by_as_many_processes_as_there_are_workers() -> None:
    async def all_of_them() -> list[Any]:
        first = await ask(some, *many())
        while some._local:
            await asyncio.sleep(0.01)
        return first + await ask(some, *[(f"later {n}", "q") for n in range(40)])

    with pool(prefix="of ") as some:
        answers = asyncio.run(all_of_them())
        processes = [worker._process for worker in some._processes]
    assert [answer[0] for answer in answers[:MANY]] == [f"of e{n}" for n in range(MANY)]
    later = {answer[3] for answer in answers[MANY:]}
    assert (
        later <= {process.pid for process in processes}
        and os.getpid() not in later
        and len(processes) == 2
    )
    assert all(process.returncode is not None for process in processes)


def test_all_questions_about_an_edit_share_one_measurement() -> None:
    with pool(1) as some:
        answers = asyncio.run(
            ask(some, *[(edit, question) for edit in "abc" for question in "123"])
        )
        assert [answer[2] for answer in answers] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
        (again,) = asyncio.run(ask(some, ("c", "4")))
    assert again[2] == 3  # it still held the last one


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> Callable[[WorkerPool], Awaitable[None]]:
    """Waits until processes measure; in them alone the question `crash` is answered by a crash."""
    monkeypatch.setenv("TEST_PARENT", str(os.getpid()))

    async def started(some: WorkerPool) -> None:
        await ask(some, *many())
        while some._local:
            await asyncio.sleep(0.01)

    return started


def test_a_worker_that_crashes_fails_the_edit_that_it_was_at_and_no_other(
    ready: Any,
) -> None:
    async def measured() -> list[Any]:
        await ready(some)
        return await ask(
            some, ("x", "crash"), *[(f"after {n}", "q") for n in range(10)]
        )

    with pool() as some:
        crash, *others = asyncio.run(measured())
    assert isinstance(crash, WorkerCrashed) and "SIGKILL" in str(crash)
    assert [answer[0] for answer in others] == [f"after {n}" for n in range(10)]


def test_an_exception_comes_back_as_what_it_was_and_what_is_printed_disturbs_nothing(
    ready: Any,
) -> None:
    async def measured() -> list[Any]:
        await ready(some)
        return await ask(some, ("a", "bad image"), ("a", "unpicklable"), ("a", "print"))

    with pool() as some:
        bad, foreign, printed = asyncio.run(measured())
    assert (
        isinstance(bad, ImageError)
        and str(bad) == "no picture"
        and "in answer" in bad.__notes__[0]
    )
    assert isinstance(foreign, RuntimeError) and "Unpicklable: cannot travel" in str(
        foreign
    )
    assert printed[:2] == ("a", "print")


def test_where_no_process_can_be_started_this_one_measures_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pool() as some:
        answers = asyncio.run(ask(some, *many()))
    assert {answer[3] for answer in answers} == {os.getpid()}


def test_very_large_edits_are_measured_one_at_a_time_and_let_go(
    ready: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once: Counter[str] = Counter()
    work = WorkerPool._work

    async def watched(self: WorkerPool, worker: Any, key: Any) -> None:
        at_once["now"] += 1
        at_once["most"] = max(at_once["most"], at_once["now"])
        await work(self, worker, key)
        at_once["now"] -= 1

    async def measured() -> list[Any]:
        await ready(some)
        monkeypatch.setattr(WorkerPool, "_work", watched)
        answers = await ask(some, *many(), large=True)
        while some._busy:
            await asyncio.sleep(0.01)
        return answers

    with pool() as some:
        answers = asyncio.run(measured())
        assert len(answers) == MANY and at_once["most"] == 1
        assert (
            all(worker.key is None for worker in some._processes)
            and not some._large
            and not some._open
        )


def test_a_picture_that_cannot_be_loaded_fails_its_edit_alone() -> None:
    async def broken() -> str:
        raise ImageError("the file is gone")

    async def both() -> list[Any]:
        calls = some.ask("a", "q", broken), some.ask("b", "q", picture("b"))
        return list(await asyncio.gather(*calls, return_exceptions=True))

    with pool() as some:
        failed, sound = asyncio.run(both())
    assert isinstance(failed, ImageError) and sound[0] == "b"


@pytest.mark.parametrize(
    ("judge", "rubric"), [("measured", "online"), ("metrics", "metrics")]
)
def test_however_many_questions_there_are_about_an_edit_each_worker_has_one_and_the_next(
    judge: str, rubric: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = photographs(tmp_path, 12)
    edits: set[Any] = set()

    async def ask(
        self: WorkerPool, key: Any, question: Any, load: Any, **_: Any
    ) -> Any:
        edits.add(key)
        async with asyncio.timeout(30):
            while len(edits) < 2 * self.size:
                await asyncio.sleep(0.01)
        return {"measured": ("abstained", {}), "metrics": ({"l1": "not computed"}, {})}[
            judge
        ]

    monkeypatch.setattr(f"editjudge.vision.{judge}.cores", lambda: 4)
    monkeypatch.setattr(WorkerPool, "ask", ask)
    with Store.open(tmp_path / "s.db") as store:
        outcome = asyncio.run(
            execute(Job(manifest, (rubric,), (judge,), repeats=24), store, RunOptions())
        )
    assert set(outcome.summary.statuses) == {"abstained"}


def photographs(folder: Path, count: int) -> Path:
    """A manifest of edits of one photograph, no two alike."""
    (folder / "a.png").write_bytes(encoded(photograph()))
    lines = []
    for n in range(count):
        name = f"{n}.png"
        (folder / name).write_bytes(encoded(recoloured(photograph())[n:, n:]))
        lines.append(
            {
                "id": f"e{n}",
                "input": "a.png",
                "edited": name,
                "instruction": "recolour it",
            }
        )
    (folder / "m.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder / "m.jsonl"


@pytest.mark.parametrize(
    ("judge", "rubrics", "questions"),
    [("measured", ("online",), 3), ("metrics", ("metrics", "metrics_truth"), 2)],
)
def test_a_run_gets_the_same_judgements_from_processes_as_from_a_thread(
    judge: str,
    rubrics: tuple[str, ...],
    questions: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest = photographs(tmp_path, FEW + 4)
    fields = (
        "item",
        "rubric",
        "status",
        "scores",
        "justifications",
        "abstained",
        "evidence",
    )

    def run(count: int) -> list[JudgementRow]:
        monkeypatch.setattr(f"editjudge.vision.{judge}.cores", lambda: count)
        with Store.open(tmp_path / f"{count}.db") as store:
            asyncio.run(execute(Job(manifest, rubrics, (judge,)), store, RunOptions()))
            rows = list(store.judgements(store.runs()[0].id, fields=fields))
        return sorted(rows, key=lambda row: (row["item"], row["rubric"]))

    monkeypatch.setattr(workers, "FEW", 0)
    one = run(1)
    two = run(2)
    assert len(one) == questions * (FEW + 4) and one == two
