"""Edits a second, memory and the cost of a cluster: one process, two of them, and Ray, on the same edits in one run.

    python -m bench.scale [--edits 1000 10000] [--judge stub measured] [--resume 100000]
    python -m bench.scale --edits 60 --judge measured --manifest FOLDER/manifest.jsonl --rounds 3
    python -m bench.scale --edits 600 --judge stub --latency 0.2 --concurrency 32 --rounds 3

The stub answers after `--latency` seconds, at once by default, on the same machine, so that what is measured is what a
judgement costs besides its judge; `measured` is asked about pictures of 64 x 64, or about the first edits of
`--manifest`. Each contender is a process of its own, with what it starts: seconds and CPU are those after its start,
memory is the peak of each of its processes, added up. `judging_seconds` are those from the first to the last judgement,
apart from the start of a cluster before and its end after. Contenders take turns, `--rounds` times, and medians are
printed: on a machine that others use, ratios of CPU say more than those of seconds. `--resume` makes a store in which
that many keys are done, and runs again over it. Prints JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.resume import NOBODY, answers, make_manifest

ROOT = Path(__file__).parents[1]
CONTENDERS = ("local", "ray-1", "ray-2")
RATIOS = {
    "seconds": "seconds_to_local",
    "judging_seconds": "judging_to_local",
    "cpu_ms": "cpu_to_local",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--edits", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument(
        "--judge", nargs="+", choices=["stub", "measured"], default=["stub"]
    )
    parser.add_argument(
        "--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS)
    )
    parser.add_argument(
        "--manifest", type=Path, help="of edits of your own, in the place of made ones"
    )
    parser.add_argument(
        "--latency",
        type=float,
        default=0.0,
        help="seconds that the stub takes to answer",
    )
    parser.add_argument(
        "--concurrency",
        type=int,
        help="questions in flight, over all workers; default: as many as the judge takes",
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--resume",
        type=int,
        metavar="KEYS",
        help="also resume a run of that many finished keys",
    )
    parser.add_argument("--as", dest="contender", help=argparse.SUPPRESS)
    parser.add_argument("--in", dest="folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.contender:
        print(json.dumps(contend(asked)))
        return
    found: dict[str, Any] = {
        judge: [compare(judge, count, asked) for count in asked.edits]
        for judge in asked.judge
    }
    if asked.resume:
        found["resume"] = resume(asked)
    print(
        json.dumps(
            {"cores": os.cpu_count(), "load": os.getloadavg()[0]} | found, indent=2
        )
    )


def compare(judge: str, count: int, asked: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        manifest = (
            asked.manifest.absolute()
            if asked.manifest
            else make_manifest(Path(name), count)
        )
        rounds = [
            {
                contender: one(contender, judge, Path(name), asked, manifest, count)
                for contender in asked.contenders
            }
            for _ in range(asked.rounds)
        ]
    figures: dict[str, Any] = {"edits": count}
    for contender in asked.contenders:
        runs = [each[contender] for each in rounds]
        figures[contender] = {
            name: statistics.median(run[name] for run in runs) for name in runs[0]
        }
    if "local" in figures:
        for contender in asked.contenders:
            for name, ratio in RATIOS.items():
                figures[contender][ratio] = (
                    figures[contender][name] / figures["local"][name]
                )
    return _rounded(figures)


def resume(asked: argparse.Namespace) -> dict[str, Any]:
    """All keys are done: nothing may be asked, and nobody is there to be."""
    from editjudge.running.job import Job
    from editjudge.store.store import Store

    count = -(-asked.resume // 3)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = Job(
            make_manifest(folder, count),
            ("online",),
            ("openai-compatible/none",),
            options=NOBODY,
        )
        with Store.open(folder / "store.db") as store:
            said = asyncio.run(answers(job))
            for start in range(0, len(said), 1000):
                store.write(said[start : start + 1000])
        figures: dict[str, Any] = {"keys": len(said)}
        for contender in asked.contenders:
            for time_of in ("first", "again"):
                done = one(contender, "nobody", folder, asked, job.manifest)
                figures.setdefault(contender, {})[time_of] = done
    return _rounded(figures)


def one(
    contender: str,
    judge: str,
    folder: Path,
    asked: argparse.Namespace,
    manifest: Path,
    limit: int | None = None,
) -> dict[str, Any]:
    stub = [
        sys.executable,
        "-m",
        "tests.stub.server",
        "--port",
        "0",
        "--latency",
        str(asked.latency),
    ]
    server = (
        subprocess.Popen(stub, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        if judge == "stub"
        else None
    )
    try:
        url = (
            server.stdout.readline().strip()
            if server and server.stdout
            else "http://127.0.0.1:9"
        )
        command = [
            sys.executable,
            "-m",
            "bench.scale",
            "--as",
            contender,
            "--in",
            str(folder),
            "--url",
            url,
        ]
        command += [
            "--manifest",
            str(manifest),
            *(["--limit", str(limit)] if limit else []),
        ]
        command += ["--judge", "measured" if judge == "measured" else "stub"]
        if asked.concurrency:
            command += ["--concurrency", str(asked.concurrency)]
        environment = (
            os.environ | {"BENCH_SCALE_NOBODY": "1"} if judge == "nobody" else None
        )
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            cwd=ROOT,
            env=environment,
        )
        figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return figures
    finally:
        if server:
            server.terminate()
            server.wait()


def contend(asked: argparse.Namespace) -> dict[str, Any]:
    """Judge the manifest; figures of this process and of those it started."""
    from editjudge.judges.judge import Options
    from editjudge.running.job import Cluster, Job, RunOptions, execute
    from editjudge.store.store import Store

    nobody = bool(os.environ.get("BENCH_SCALE_NOBODY"))
    server = "openai-compatible/none" if nobody else "openai-compatible/stub"
    spec = "measured" if asked.judge == ["measured"] else server
    options = NOBODY if nobody else Options(base_url=f"{asked.url}/v1")
    job = Job(asked.manifest, ("online",), (spec,), limit=asked.limit, options=options)
    place = asked.folder / (
        "store.db" if nobody else f"{asked.contender}-{time.time_ns()}.db"
    )
    cluster = (
        Cluster(workers=int(asked.contender[-1]))
        if asked.contender != "local"
        else None
    )
    run_options = RunOptions(cluster=cluster, concurrency=asked.concurrency)
    memory = Memory()
    with Store.open(place) as store, memory:
        started = time.time()
        outcome = asyncio.run(execute(job, store, run_options))
        ended = time.time()
        created = [
            row["created"]
            for row in store.judgements(outcome.run_id, fields=("created",))
        ]
    assert outcome.ending == "finished" and not (nobody and outcome.tally.asked), (
        outcome
    )
    judged = outcome.summary.total
    seconds = ended - started
    first, last = (started, started) if nobody else (min(created), max(created))
    return {
        "seconds": seconds,
        "until_the_first": first - started,
        "judging_seconds": max(last - first, 1e-9),
        "after_the_last": ended - last,
        "edits_per_second": judged / 3 / seconds,
        "edits_per_second_judging": judged / 3 / max(last - first, 1e-9),
        "cpu_ms": 1000 * memory.cpu / judged,
        "peak_mb": memory.peak,
        "peak_mb_of_largest": memory.largest,
    }


class Memory:
    """Memory and CPU of a process and all that it started, looked at every quarter of a second."""

    peak = largest = cpu = 0.0

    def __enter__(self) -> Memory:
        self._over = threading.Event()
        self._spent: dict[int, float] = {}
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.cpu = sum(self._spent.values())

    def _watch(self) -> None:
        while not self._over.wait(0.25):
            family = _family(os.getpid())
            self._spent |= {pid: cpu for pid, (_, cpu) in family.items()}
            sizes = [size for size, _ in family.values()]
            self.peak, self.largest = (
                max(self.peak, sum(sizes)),
                max(self.largest, *sizes),
            )


def _family(root: int) -> dict[int, tuple[float, float]]:
    """Megabytes and CPU seconds of a process and of all that it started, those that they started included."""
    page = os.sysconf("SC_PAGE_SIZE") / 2**20
    tick = os.sysconf("SC_CLK_TCK")
    found: dict[int, tuple[int, float, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            words = path.read_text().rpartition(")")[2].split()
            cpu = (int(words[11]) + int(words[12])) / tick
            found[int(path.parent.name)] = (int(words[1]), int(words[21]) * page, cpu)
    mine = {root}
    while more := {pid for pid, (parent, *_) in found.items() if parent in mine} - mine:
        mine |= more
    return {pid: found[pid][1:] for pid in mine if pid in found}


def _rounded(figures: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _rounded(value)
        if isinstance(value, dict)
        else round(value, 3)
        if isinstance(value, float)
        else value
        for key, value in figures.items()
    }


if __name__ == "__main__":
    main()
