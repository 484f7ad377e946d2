"""Hours compressed into minutes: everything at once, for as long as told, and nothing may grow, hang, lie or leak.

    python -m bench.soak --minutes 20            (make soak MINUTES=20)

For three fifths of the time: the engine in a process of its own, run after run against a stub with every fault, each
score held against what the stub said; `editjudge serve` in another, with a hundred reviewers (bench/reviewers.py) who
filter, page, look at edits, pictures and evidence, and rate, every answer checked, and a reward client that never
stops, each reward worked out a second time. For the rest: Atheris on each target, two at a time. Memory, open handles,
connections and latency are sampled once everything was touched; of what was sampled the first third is the warm-up,
and the last must be as flat as the one before it. Prints a summary as JSON, and exits with 1 where something failed.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import hashlib
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

import editjudge as ej
from bench.reviewers import MODELS, Reviewer, Wrong
from bench.rewards import cpu_seconds, process, rss_mb, sent
from bench.throughput import make_edits
from editjudge.store.store import Store
from editjudge.store.studies import create_study, filled_in, find_study
from fuzz.targets import TARGETS
from tests.stub.server import expected_scores

ROOT = Path(__file__).parents[1]
FAULTS = {"server_error": 0.03, "garbage": 0.05, "half_answer": 0.01, "refusal": 0.01,
          "empty": 0.01, "decimal": 0.02, "length_stop": 0.02, "hang_up": 0.01}  # fmt: skip
LIMIT = 200
"""Requests a second that the stub takes: 429s by chance, whatever the rate, would teach the pace a wrong one."""
EDITS = 200
"""Of one run of the engine."""
REVIEWERS = 100
BATCH = 4
GALLERY = 120
"""Edits that reviewers look at and rate: three pages of a table."""
QUOTA = 8
OVERLAP = 10
"""Edits for each rater, and raters for each edit: enough for everybody."""
EVERY = 2.0
"""Seconds between samples."""
PAUSE = (2.0, 8.0)
"""Seconds, from and to, that a reviewer looks at a page."""
_SEED = 0
_SLACK = {
    "mb": (1.1, 24),
    "handles": (1.1, 16),
    "connections": (1.1, 16),
    "ms": (1.25, 1),
    "seconds": (1.5, 0.25),
}
"""How far the last third may lie above the one before: times, plus.

All that `serve` may have open is there after the warm-up: a connection of each reviewer, kept alive while they look,
one of the reward client, some 16 to the judge, and three files for each of 5 to 15 connections to the store, the pool's
own bounds. Memory goes on a little as the caches of those connections fill, 8 MB each at most.
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument(
        "--engine",
        nargs=4,
        metavar=("MANIFEST", "STORE", "STUB", "EDITS"),
        help=argparse.SUPPRESS,
    )
    arguments = parser.parse_args()
    if arguments.engine:
        drive(*arguments.engine)
        return
    summary = soak(arguments.minutes * 60)
    print(json.dumps(summary, indent=2))
    sys.exit(1 if summary["failures"] else 0)


# --- the engine -----------------------------------------------------------------------------------------------


def drive(manifest: str, store: str, stub: str, edits: str) -> None:
    """Runs without end; after each a line that says how many judgements there were, and how many were wrong."""
    folder = Path(manifest).parent
    count = int(edits)
    lines = [json.loads(line) for line in Path(manifest).read_text().splitlines()]
    digests = {
        row[role]: hashlib.sha256((folder / row[role]).read_bytes()).hexdigest()
        for row in lines
        for role in ("input", "edited")
    }
    number = 0
    while True:
        rows = [
            {
                **lines[n % len(lines)],
                "id": f"e{n}",
                "instruction": f"make car {number * count + n} blue",
            }
            for n in range(count)
        ]
        for row in rows:
            row.update({role: str(folder / row[role]) for role in ("input", "edited")})
        done = ej.run(rows, rubrics=["online"], judges=["openai-compatible/stub"], store=store, name=f"soak-{number}",
                      base_url=f"{stub}/v1", allow_outside=True)  # fmt: skip
        counted: Counter[str] = Counter()
        wrong = 0
        instructions = {
            row["id"]: (row["instruction"], row["input"], row["edited"]) for row in rows
        }
        for judgement in done.judgements():
            counted[judgement["status"]] += 1
            said = instructions[judgement["item"]]
            scores = judgement["scores"]
            if scores is not None and scores != _right(
                digests, folder, said, judgement["rubric"]
            ):
                wrong += 1
        told = {
            "judgements": sum(counted.values()),
            "wrong": wrong,
            "missing": 3 * count - sum(counted.values()),
        }
        print(json.dumps({**told, "statuses": counted}), flush=True)
        number += 1


def _right(
    digests: dict[str, str], folder: Path, said: tuple[str, str, str], rubric: str
) -> dict[str, int]:
    """What the stub says of it, worked out from the files."""
    instruction, *paths = said
    names = (str(Path(path).relative_to(folder)) for path in paths)
    return _expected(instruction, [digests[name] for name in names], rubric)


def _expected(instruction: str, pictures: Sequence[str], rubric: str) -> dict[str, int]:
    """What the stub says of an instruction and two pictures of these digests."""
    content = dict(zip(("input", "edited"), pictures, strict=True)) | {
        "instruction": instruction
    }
    canonical = json.dumps(content, sort_keys=True)
    return expected_scores(
        _SEED, f"edit-{hashlib.sha256(canonical.encode()).hexdigest()[:16]}", rubric
    )


# --- everything at once ---------------------------------------------------------------------------------------


@dataclass
class Watch:
    """What was seen, and what went wrong."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    _before: tuple[int, float] | None = None
    """Requests and CPU at the last look."""

    def sample(self, name: str, value: float) -> None:
        self.samples.setdefault(name, []).append(value)

    def seen(self, what: str, seconds: float) -> None:
        self.counts[what] += 1
        self.sample(f"{what} seconds", seconds)

    def of(self, name: str, pid: int) -> None:
        handles = Path(f"/proc/{pid}/fd")
        links = [_link(handle) for handle in handles.iterdir()]
        self.sample(f"{name} mb", rss_mb(pid))
        self.sample(f"{name} handles", len(links))
        self.sample(
            f"{name} connections", sum(link.startswith("socket:") for link in links)
        )

    def cost(self, pid: int) -> None:
        """Milliseconds of CPU for each request since the last look: in these the rest of the machine has no say."""
        asked = sum(
            self.counts[what] for what in ("page", "picture", "evidence", "rewards")
        )
        used = cpu_seconds(pid) * 1000
        if self._before and asked > self._before[0]:
            self.sample(
                "serve ms", (used - self._before[1]) / (asked - self._before[0])
            )
        self._before = (asked, used)

    def flat(self) -> None:
        for name, values in self.samples.items():
            times, plus = _SLACK[name.rsplit(" ", 1)[1]]
            if len(values) < 9:
                self.failures.append(
                    f"{name}: {len(values)} samples are too few to tell"
                )
                continue
            _, before, last = thirds(values)
            if last > before * times + plus:
                self.failures.append(f"{name} grew from {before:g} to {last:g}")


def thirds(values: list[float]) -> list[float]:
    """The median of the warm-up, of the middle and of the end."""
    third = max(1, len(values) // 3)
    return [
        statistics.median(part)
        for part in (
            values[:third],
            values[third : 2 * third] or values,
            values[-third:],
        )
    ]


def _link(handle: Path) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(handle)
    return ""


def soak(seconds: float, reviewers: int = REVIEWERS) -> dict[str, Any]:
    watch = Watch()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        load(watch, folder, seconds * 0.6, reviewers)
        watch.flat()
        fuzzed = _fuzz(
            watch, folder, (seconds - (time.monotonic() - started)) * 2 / len(TARGETS)
        )
    shown = {
        name: [round(third, 3) for third in thirds(values)]
        for name, values in watch.samples.items()
    }
    return {
        "seconds": round(time.monotonic() - started),
        "counts": dict(watch.counts),
        "medians_of_thirds": shown,
        "fuzzed": fuzzed,
        "failures": watch.failures,
    }


def load(watch: Watch, folder: Path, seconds: float, reviewers: int) -> None:
    """Everything but fuzzing; what reviewers sent is looked for in the store at the end."""
    manifest = make_edits(folder, "jpeg", 16, 192)
    _gallery(folder, [json.loads(line) for line in manifest.read_text().splitlines()])
    faults = [
        word
        for fault, share in FAULTS.items()
        for word in ("--fault", f"{fault}={share}")
    ]
    words = ("tests.stub.server", "--seed", str(_SEED), "--retry-after", "0.1", *faults)
    # One each: sharing a limit, the engine would take all of it, and the latency of rewards be a matter of pace.
    with (
        process(*words, "--limit-rps", str(LIMIT)) as (_, url),
        process(*words) as (_, other),
    ):
        rated = asyncio.run(
            _load(watch, folder, manifest, (url, other), seconds, reviewers)
        )
    with Store.open(folder / "served.db", readonly=True) as store:
        kept = {
            place: filled.score
            for place, filled in filled_in(store, find_study(store, 1)).items()
        }
    watch.counts["ratings"] = len(kept)
    if kept != rated:
        watch.failures.append(
            f"of {len(rated)} ratings that were sent, {len(rated.items() - kept.items())} are not kept"
        )


def _gallery(folder: Path, lines: list[dict[str, Any]]) -> None:
    """Run 1 of the store that is served, judged by measuring, and a study of it."""
    rows = [
        {
            **lines[n // 2 % len(lines)],
            "id": f"g{n}",
            "instruction": f"make car {n // 2} blue",
            "model": MODELS[n % 2],
        }
        for n in range(GALLERY)
    ]
    manifest = folder / "gallery.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ej.run(
        manifest,
        rubrics=["online"],
        judges=["measured"],
        store=folder / "served.db",
        name="gallery",
    )
    with Store.open(folder / "served.db") as store:
        hashes = store.find_run("gallery").spec["rubrics"].values()
        create_study(
            store, "study", 1, list(hashes), overlap=OVERLAP, quota=QUOTA, controls=2
        )


@contextlib.contextmanager
def _served(folder: Path, stub: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    words = [
        "serve",
        "--store",
        str(folder / "served.db"),
        "--port",
        "0",
        "--timeout",
        "30",
    ]
    words += ["--keep-pictures", str(folder / "kept")]
    judge = ["--judge", "openai-compatible/stub", "--base-url", f"{stub}/v1"]
    with subprocess.Popen(
        [sys.executable, "-m", "editjudge", *words, *judge],
        stderr=subprocess.PIPE,
        text=True,
    ) as served:
        try:
            assert served.stderr
            found = re.search(r"http://\S+", served.stderr.readline())
            assert found
            yield served, found[0].rstrip("/")
        finally:
            served.terminate()


async def _load(
    watch: Watch,
    folder: Path,
    manifest: Path,
    stubs: tuple[str, str],
    seconds: float,
    reviewers: int,
) -> dict[tuple[str, int, str], float | None]:
    """What was rated."""
    edits = [
        sent(folder, json.loads(line)) for line in manifest.read_text().splitlines()
    ]
    words = (str(manifest), str(folder / "engine.db"), stubs[0], str(EDITS))
    async with contextlib.AsyncExitStack() as stack:
        engine = stack.enter_context(process_lines("bench.soak", "--engine", *words))
        served, url = stack.enter_context(_served(folder, stubs[1]))
        client = _Client(
            watch, await stack.enter_async_context(aiohttp.ClientSession()), url, edits
        )
        await client.ask(range(BATCH))
        people = [
            await _reviewer(watch, stack, url, n, client.digests)
            for n in range(reviewers)
        ]
        await people[0].tour()
        end = time.monotonic() + seconds
        tasks = [
            asyncio.create_task(client.go_on(end)),
            asyncio.create_task(_engine(watch, engine, end)),
            *(asyncio.create_task(person.work(end, PAUSE)) for person in people),
        ]
        while (
            time.monotonic() < end and engine.poll() is None and served.poll() is None
        ):
            for name, one in (("engine", engine), ("serve", served)):
                watch.of(name, one.pid)
            watch.cost(served.pid)
            await asyncio.sleep(EVERY)
        for name, one in (("engine", engine), ("serve", served)):
            if one.poll() is not None:
                watch.failures.append(f"{name} ended with {one.returncode}")
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        watch.failures += [
            f"{type(e).__name__}: {e}" for e in ended if isinstance(e, Exception)
        ][:10]
    for what in ("judgements", "rewards", "page", "picture", "evidence"):
        if not watch.counts[what]:
            watch.failures.append(f"no {what} in all this time")
    return {place: score for person in people for place, score in person.sent.items()}


async def _reviewer(
    watch: Watch,
    stack: contextlib.AsyncExitStack,
    url: str,
    number: int,
    known: Collection[str],
) -> Reviewer:
    session = await stack.enter_async_context(
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
    )
    return Reviewer(
        session, url, f"reviewer {number}", random.Random(number), known, watch.seen
    )


@contextlib.contextmanager
def process_lines(*words: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", *words], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as started:
        try:
            yield started
        finally:
            started.terminate()


async def _engine(watch: Watch, engine: subprocess.Popen[str], end: float) -> None:
    """Takes down what it says of each run; the first is waited for a while longer."""
    assert engine.stdout
    while (
        left := end - time.monotonic() + (0 if watch.counts["judgements"] else 60)
    ) > 0:
        try:
            line = await asyncio.wait_for(
                asyncio.to_thread(engine.stdout.readline), left
            )
        except TimeoutError:
            return
        if not line:
            return
        told = json.loads(line)
        watch.counts["judgements"] += told["judgements"]
        watch.counts.update(
            {f"judged {status}": count for status, count in told["statuses"].items()}
        )
        if told["wrong"] or told["missing"]:
            watch.failures.append(
                f"of a run {told['wrong']} scores are wrong and {told['missing']} judgements missing"
            )


@dataclass
class _Client:
    """Asks for rewards without a pause; each is worked out a second time from what the stub says by design."""

    watch: Watch
    session: aiohttp.ClientSession
    url: str
    edits: list[dict[str, str]]

    def __post_init__(self) -> None:
        self._digests = [
            [
                hashlib.sha256(base64.b64decode(edit[role])).hexdigest()
                for role in ("input", "edited")
            ]
            for edit in self.edits
        ]
        self.digests = {digest for pair in self._digests for digest in pair}

    async def go_on(self, end: float) -> None:
        rng = random.Random(_SEED)
        first = BATCH
        while time.monotonic() < end:
            await self.ask(range(first, first + BATCH))
            # what was asked before is answered from the store, and judged again where it failed
            if rng.random() < 0.2:
                await self.ask(range(again := rng.randrange(first), again + BATCH))
            first += BATCH

    async def ask(self, numbers: Sequence[int]) -> None:
        chosen = [
            self.edits[n % len(self.edits)]
            | {"id": f"p{n}", "instruction": f"paint car {n}", "model": MODELS[n % 2]}
            for n in numbers
        ]
        started = time.monotonic()
        async with self.session.post(
            f"{self.url}/v1/reward", json={"edits": chosen}
        ) as response:
            answer = await response.json()
        self.watch.sample("reward seconds", time.monotonic() - started)
        if response.status != 200 or [reward["id"] for reward in answer["rewards"]] != [
            f"p{n}" for n in numbers
        ]:
            raise Wrong(f"/v1/reward: {response.status} {answer}")
        for number, reward in zip(numbers, answer["rewards"], strict=True):
            self._check(number, reward)

    def _check(self, number: int, reward: dict[str, Any]) -> None:
        self.watch.counts["rewards"] += 1
        self.watch.counts["rewards without a number"] += reward["reward"] is None
        right: dict[str, int] = {}
        for rubric in reward["keys"]:
            right |= _expected(
                f"paint car {number}", self._digests[number % len(self.edits)], rubric
            )
        if reward["status"] != "ok":
            wrong = reward["reward"] is not None or reward["scores"] is not None
        else:
            mean = sum((score - 1) / 6 for score in right.values()) / len(right)
            wrong = reward["scores"] != right or abs(reward["reward"] - mean) > 1e-9
        if wrong:
            raise Wrong(f"p{number}: {reward}, where the stub said {right}")


def _fuzz(watch: Watch, folder: Path, seconds: float) -> dict[str, Any]:
    """Each target for so long, two at a time; what was found is said in full."""
    try:
        import atheris  # noqa: F401  (is it there?)
    except ImportError:
        return {"not run": "pip install 'editjudge[fuzz]'"}
    from concurrent.futures import ThreadPoolExecutor

    def one(target: str) -> tuple[str, dict[str, Any]]:
        words = [
            sys.executable,
            "-m",
            "fuzz.run",
            target,
            "--seconds",
            str(max(1, int(seconds))),
            "--found",
            str(folder),
        ]
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=ROOT,
            check=False,
        )
        tried = re.search(r"stat::number_of_executed_units: (\d+)", done.stderr)
        if done.returncode:
            watch.failures.append(
                f"fuzzing {target}: {done.stdout[-1500:]} {done.stderr[-1500:]}"
            )
        return target, {
            "executions": int(tried[1]) if tried else None,
            "found": int(done.returncode != 0),
        }

    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(one, TARGETS))


if __name__ == "__main__":
    main()
