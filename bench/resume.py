"""Running a finished run again: keys looked up a second, with no request made.

    python -m bench.resume [--edits 33334]

Makes a manifest of small pictures with three rubrics an edit, writes an answer for every key straight into the store,
and runs the job: it must ask nothing (its judge's address refuses connections). Prints JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from editjudge.judgement import Judgement
from editjudge.judges.judge import Options
from editjudge.judges.registry import open_judge
from editjudge.media.cache import DigestCache, ImageReader
from editjudge.running.job import Job, RunOptions, execute
from editjudge.running.pace import Pace
from editjudge.running.plan import QuestionSettings, look_at, works
from editjudge.store.store import Store

NOBODY = Options(base_url="http://127.0.0.1:9/v1")


def make_manifest(folder: Path, edits: int) -> Path:
    from PIL import Image

    for number in range(100):
        Image.new("RGB", (64, 64), (number, 0, 0)).save(folder / f"{number}.png")
    manifest = folder / "edits.jsonl"
    with manifest.open("w") as file:
        for number in range(edits):
            edit = {
                "id": f"e{number}",
                "input": f"{number % 100}.png",
                "edited": f"{(number + 1) % 100}.png",
            }
            file.write(
                json.dumps(
                    edit
                    | {"instruction": f"make {number} blue", "model": f"m{number % 5}"}
                )
                + "\n"
            )
    return manifest


async def answers(job: Job) -> list[Judgement]:
    """An accepted answer for every key that the job will ask."""
    shape = QuestionSettings(job.load_rubrics(), job.repeats, job.layout)
    async with AsyncExitStack() as resources:
        judge = await open_judge(job.judges[0], job.options, Pace, resources)
        root = job.manifest.parent
        look = functools.partial(look_at, DigestCache(ImageReader(root=root)))
        return [
            work.judgement(
                "ok",
                scores={factor.key: 4 for factor in work.rubric.factors},
                justifications={
                    factor.key: "as good as any" for factor in work.rubric.factors
                },
            )
            for work in works(job.edits(), shape, judge, look)
        ]


def measure(edits: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = Job(
            make_manifest(folder, edits),
            ("online",),
            ("openai-compatible/none",),
            options=NOBODY,
        )
        with Store.open(folder / "store.db") as store:
            for some in _chunks(asyncio.run(answers(job)), 1000):
                store.write(some)
            (first, _), *again = [_run(job, store) for _ in range(4)]
        seconds, cpu_seconds = (min(values) for values in zip(*again, strict=True))
        return {
            "judgements": 3 * edits,
            "first_seconds": round(first, 2),
            "again_seconds": round(seconds, 2),
            "keys_per_second": round(3 * edits / seconds),
            "keys_per_cpu_second": round(3 * edits / cpu_seconds),
        }


def _run(job: Job, store: Store) -> tuple[float, float]:
    """Seconds on the clock, and of CPU time."""
    started = time.monotonic()
    cpu_started = time.process_time()
    outcome = asyncio.run(execute(job, store, RunOptions()))
    assert outcome.ending == "finished" and outcome.tally.asked == 0, outcome.ending
    return time.monotonic() - started, time.process_time() - cpu_started


def _chunks(values: list[Judgement], size: int) -> Iterator[list[Judgement]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--edits", type=int, default=33_334)
    print(json.dumps(measure(parser.parse_args().edits), indent=2))
