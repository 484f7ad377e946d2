"""How fast the store keeps and finds judgements, and how much room one takes, as JSON.

python -m bench.store                        100,000 judgements in SQLite, and as Parquet
python -m bench.store --million              1,000,000
python -m bench.store --server postgresql:// 100,000 on a server, in a database with nothing in it
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from editjudge.judgement import Exchange, Judgement, Task, Usage
from editjudge.rubrics.verdict import Remark
from editjudge.store.export import export_run
from editjudge.store.records import Item
from editjudge.store.sink import Writer
from editjudge.store.store import Store
from editjudge.store.tables import read_file

FACTORS = ("alignment", "faithfulness", "completeness")
WORDS = Path(__file__).with_name("store.py").read_text().split()
BATCH = 512


def reply(rng: random.Random) -> str:
    """As long as real ones: three reasons of some 40 words. Random words, so that they do not compress too well."""
    reasons = {factor: " ".join(rng.choices(WORDS, k=40)) for factor in FACTORS}
    return json.dumps(
        {
            "results": {
                f: {"score": rng.randint(1, 7), "justification": reasons[f]}
                for f in FACTORS
            }
        }
    )


def judgements(count: int) -> Iterator[Judgement]:
    rng = random.Random(1)
    for number in range(count):
        text = reply(rng)
        entries = json.loads(text)["results"]
        usage = Usage(1800 + number % 100, 220, 0, None)
        yield Judgement(
            key(number),
            "ok",
            "openai/some-model",
            "fidelity",
            "f" * 64,
            scores={factor: entry["score"] for factor, entry in entries.items()},
            justifications={
                factor: entry["justification"] for factor, entry in entries.items()
            },
            violations=(
                Remark(
                    "justification_too_long",
                    "the reason has 40 words; asked were 10 to 30",
                    FACTORS[0],
                ),
            ),
            exchanges=(
                Exchange(
                    text,
                    "ok",
                    usage=usage,
                    model="some-model-2026",
                    request_id=f"req_{number:020}",
                ),
            ),
            schema_mode="enforced",
            prepared={"input": "as-is", "edited": "as-is"},
            cost=0.0123,
            created=1.8e9 + number,
        )


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def planning(store: Store, count: int) -> dict[str, float]:
    run = store.open_run("bench", {"count": count})
    pictures = {
        role: {"source": f"pictures/{role}.png", "digest": "d" * 64}
        for role in ("input", "edited")
    }
    edits = (
        Item(
            f"edit-{n:07}", "model", "add", f"g{n % 500}", "make it blue", "", pictures
        )
        for n in range(count)
    )
    tasks = (
        Task(f"edit-{n:07}", "fidelity", "openai/some-model", 0, key(n))
        for n in range(count)
    )
    started = time.perf_counter()
    store.add_items(run, edits)
    between = time.perf_counter()
    store.add_tasks(run, tasks)
    return {
        "items_per_s": count / (between - started),
        "tasks_per_s": count / (time.perf_counter() - between),
    }


def writing(store: Store, count: int) -> float:
    source = judgements(count)
    spent = 0.0
    while batch := list(islice(source, BATCH)):
        started = time.perf_counter()
        store.write(batch)
        spent += time.perf_counter() - started
    return count / spent


def finding(store: Store, count: int) -> float:
    keys = [key(number) for number in range(2 * count)]  # half of them are there
    random.Random(2).shuffle(keys)
    started = time.perf_counter()
    found = store.done(keys)
    spent = time.perf_counter() - started
    assert len(found) == count
    return len(keys) / spent


def reading(store: Store, count: int) -> dict[str, float]:
    run = store.find_run("bench")
    speeds = {}
    for name, fields in {
        "rows_read_per_s": (),
        "score_rows_read_per_s": ("item", "judge", "scores"),
    }.items():
        started = time.perf_counter()
        assert sum(1 for _ in store.judgements(run, fields=fields)) == count
        speeds[name] = count / (time.perf_counter() - started)
    started = time.perf_counter()
    store.counts(run)
    return {**speeds, "counts_s": time.perf_counter() - started}


async def committing(
    store: Store, callers: int, linger: float, count: int = 20_000
) -> float:
    """Puts a second when each of so many callers has the next judgement ready at once."""
    source = iter(list(judgements(count)))

    async def caller(writer: Writer) -> None:
        for judgement in source:
            await writer.put(judgement)

    started = time.perf_counter()
    async with Writer(store, linger=linger) as writer, asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(caller(writer))
    return count / (time.perf_counter() - started)


def writer_speeds(folder: Path) -> dict[str, float]:
    speeds = {}
    for linger in (0.0, 0.1):
        for callers in (32, 512):
            with Store.open(folder / f"writer-{linger}-{callers}.db") as store:
                speeds[f"linger_{linger}_{callers}_callers"] = asyncio.run(
                    committing(store, callers, linger)
                )
    return speeds


def measure(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.db"
        with Store.open(path) as store:
            planned = planning(store, count)
            store.close()
            before = path.stat().st_size
            writes = writing(store, count)
            store.close()
            figures = {
                "judgements": count,
                **planned,
                "writes_per_s": writes,
                "done_lookups_per_s": finding(store, count),
                **reading(store, count),
                **tables(store, count, Path(folder) / "tables"),
                "bytes_per_item_and_task": before / count,
                "bytes_per_judgement": (path.stat().st_size - before) / count,
            }
        return {
            **figures,
            "writer_puts_per_s": writer_speeds(Path(folder)),
            "sqlite": sqlite3.sqlite_version,
        }


def tables(store: Store, count: int, folder: Path) -> dict[str, float]:
    """Out as Parquet, and read in the place of a store."""
    run = store.find_run("bench")
    started = time.perf_counter()
    export_run(store, run, folder, "parquet")
    between = time.perf_counter()
    files = (folder / "judgements").iterdir()
    assert count == sum(1 for file in files for _ in read_file(file, "judgements"))
    size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
    return {
        "parquet_rows_written_per_s": count / (between - started),
        "parquet_rows_read_per_s": count / (time.perf_counter() - between),
        "parquet_bytes_per_judgement": size / count,
    }


def measure_server(url: str, count: int) -> dict[str, Any]:
    with Store.open(url) as store:
        figures = {
            "judgements": count,
            **planning(store, count),
            "writes_per_s": writing(store, count),
        }
        figures |= {
            "done_lookups_per_s": finding(store, count),
            **reading(store, count),
        }
        started = time.perf_counter()
        store.remove_run(store.find_run("bench"))
        return {**figures, "removed_per_s": count / (time.perf_counter() - started)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--server", metavar="URL")
    given = parser.parse_args()
    count = 1_000_000 if given.million else 100_000
    figures = measure_server(given.server, count) if given.server else measure(count)
    rounded = json.loads(
        json.dumps(figures), parse_float=lambda text: round(float(text), 2)
    )
    print(json.dumps(rounded, indent=2))


if __name__ == "__main__":
    main()
