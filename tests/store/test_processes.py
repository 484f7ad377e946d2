"""Several processes on one store: one writes while another reads, one is killed, many open it at once."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from editjudge.store import Store

from .samples import key, sample, task

FOLDER = Path(__file__).parent

# Says a number once the judgement of that number is committed.
WRITING = """
import asyncio, sys
from samples import sample
from editjudge.store import Store
from editjudge.store.sink import Writer

async def main(path, count):
    with Store.open(path) as store:
        async with Writer(store) as writer:
            async def one(numbers):
                for number in numbers:
                    await writer.put(sample(number))
                    print(number, flush=True)
            await asyncio.gather(*(one(range(start, count, 20)) for start in range(20)))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""

OPENING = """
import sys
from samples import sample
from editjudge.store import Store
with Store.open(sys.argv[1]) as store:
    store.write([sample(int(sys.argv[2]))])
"""


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(FOLDER)},
    )


def test_a_second_process_reads_while_the_first_writes(place: str) -> None:
    count = 3000
    with Store.open(place) as store:
        run = store.open_run("pilot", {})
        store.add_tasks(run, (task(number) for number in range(count)))
    seen: list[int] = []
    with (
        start(WRITING, place, count) as writing,
        Store.open(place, readonly=True) as reader,
    ):
        assert writing.stdout
        for line in writing.stdout:  # what was said to be committed is there for others
            if int(line) % 100 == 0:
                assert reader.done([key(int(line))]) == {key(int(line)): "ok"}
                seen.append(
                    sum(
                        n
                        for (_, _, status), n in reader.counts(run).items()
                        if status == "ok"
                    )
                )
    assert writing.returncode == 0
    assert seen == sorted(seen) and 0 < seen[0] < count


@pytest.mark.parametrize("round_", range(3))
def test_a_killed_writer_leaves_a_sound_file_with_all_that_it_acknowledged(
    tmp_path: Path, round_: int
) -> None:
    path = tmp_path / "s.db"
    with start(WRITING, path, 1_000_000) as writing:
        assert writing.stdout
        said = [int(writing.stdout.readline())]
        time.sleep(random.random())
        writing.send_signal(signal.SIGKILL)
        said += [int(line) for line in writing.stdout if line.endswith("\n")]
    raw = sqlite3.connect(path)
    assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    raw.close()
    with Store.open(path) as store:
        assert store.done([key(number) for number in said]) == {
            key(number): "ok" for number in said
        }
        assert all(
            store.judgement(key(number)) == sample(number) for number in said[-50:]
        )
        store.write([sample(-1)])


def test_processes_that_make_the_same_store_at_once_all_succeed(place: str) -> None:
    started = [start(OPENING, place, number) for number in range(6)]
    for process in started:
        process.communicate()
    assert [process.returncode for process in started] == [0] * 6
    with Store.open(place) as store:
        assert len(store.done([key(number) for number in range(6)])) == 6
