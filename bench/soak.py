"""Hours compressed into minutes: everything at once, for as long as told, and nothing may grow, hang, lie or leak.

    python -m bench.soak --minutes 20            (make soak MINUTES=20)

For three fifths of the time: the engine in a process of its own, run after run against a stub with every fault, each
score held against what the stub said; `editjudge serve` in another, with a hundred reviewers who look and rate and a
reward client that never stops. For the rest: Atheris on each target, two at a time. Memory, open handles, connections
and latency are sampled; after the warm-up, the last third must be as flat as the one before it. Prints a summary as
JSON, and exits with 1 where something failed.
"""

from __future__ import annotations

import argparse
import asyncio
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
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from bench.rewards import process, ready, rss_mb, sent
from bench.stub import expected_scores
from bench.throughput import make_edits

ROOT = Path(__file__).parents[1]
FAULTS = {"server_error": 0.03, "garbage": 0.05, "half_answer": 0.01, "refusal": 0.01,
          "empty": 0.01, "decimal": 0.02, "length_stop": 0.02, "hang_up": 0.01}  # fmt: skip
LIMIT = 200
"""Requests a second that the stub takes: 429s by chance, whatever the rate, would teach the pace a wrong one."""
EDITS = 200
"""Of one run of the engine."""
REVIEWERS = 100
BATCH = 4
EVERY = 2.0
"""Seconds between samples."""
PAUSE = (2.0, 8.0)
"""Seconds that a reviewer looks at a page."""
FUZZED = ("contract", "manifest", "picture", "prompt", "ratings", "rubric")
_SEED = 0
_SLACK = {"mb": (1.15, 96), "handles": (1.25, REVIEWERS), "connections": (1.25, REVIEWERS), "seconds": (2.5, 0.25)}
"""How far the last third may lie above the one before: times, plus. Each reviewer may keep a connection open. `serve`
took one step of 60 to 95 MB in the second minute of each trial and then stayed; what it is for is not known yet."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--engine", nargs=3, metavar=("MANIFEST", "STORE", "STUB"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engine:
        drive(*arguments.engine)
        return
    summary = soak(arguments.minutes * 60)
    print(json.dumps(summary, indent=2))
    sys.exit(1 if summary["failures"] else 0)


# --- the engine -----------------------------------------------------------------------------------------------


def drive(manifest: str, store: str, stub: str) -> None:
    """Runs without end; after each a line that says how many judgements there were, and how many were wrong."""
    import editjudge as ej

    folder = Path(manifest).parent
    lines = [json.loads(line) for line in Path(manifest).read_text().splitlines()]
    digests = {
        row[role]: hashlib.sha256((folder / row[role]).read_bytes()).hexdigest()
        for row in lines
        for role in ("input", "edited")
    }
    number = 0
    while True:
        rows = [
            {**lines[n % len(lines)], "id": f"e{n}", "instruction": f"make car {number * EDITS + n} blue"}
            for n in range(EDITS)
        ]
        for row in rows:
            row.update({role: str(folder / row[role]) for role in ("input", "edited")})
        done = ej.run(rows, rubrics=["online"], judges=["openai-compatible/stub"], store=store, name=f"soak-{number}",
                      base_url=f"{stub}/v1", allow_outside=True)  # fmt: skip
        counted: Counter[str] = Counter()
        wrong = 0
        instructions = {row["id"]: (row["instruction"], row["input"], row["edited"]) for row in rows}
        for row in done.judgements():
            counted[row["status"]] += 1
            said = instructions[row["item"]]
            if row["scores"] is not None and row["scores"] != _right(digests, folder, said, row["rubric"]):
                wrong += 1
        told = {"judgements": sum(counted.values()), "wrong": wrong, "missing": 3 * EDITS - sum(counted.values())}
        print(json.dumps({**told, "statuses": counted}), flush=True)
        number += 1


def _right(digests: dict[str, str], folder: Path, said: tuple[str, str, str], rubric: str) -> dict[str, int]:
    """What the stub says of it, worked out from the files."""
    instruction, before, after = said
    content = {
        role: digests[str(Path(path).relative_to(folder))] for role, path in (("input", before), ("edited", after))
    }
    canonical = json.dumps(content | {"instruction": instruction}, sort_keys=True)
    return expected_scores(_SEED, f"edit-{hashlib.sha256(canonical.encode()).hexdigest()[:16]}", rubric)


# --- everything at once ---------------------------------------------------------------------------------------


@dataclass
class Watch:
    """What was seen, and what went wrong."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def sample(self, name: str, value: float) -> None:
        self.samples.setdefault(name, []).append(value)

    def of(self, name: str, pid: int) -> None:
        handles = Path(f"/proc/{pid}/fd")
        links = [_link(handle) for handle in handles.iterdir()]
        self.sample(f"{name} mb", rss_mb(pid))
        self.sample(f"{name} handles", len(links))
        self.sample(f"{name} connections", sum(link.startswith("socket:") for link in links))

    def flat(self) -> None:
        for name, values in self.samples.items():
            times, plus = _SLACK[name.rsplit(" ", 1)[1]]
            if len(values) < 9:
                self.failures.append(f"{name}: {len(values)} samples are too few to tell")
                continue
            _, before, last = thirds(values)
            if last > before * times + plus:
                self.failures.append(f"{name} grew from {before:g} to {last:g}")


def thirds(values: list[float]) -> list[float]:
    """The median of the warm-up, of the middle and of the end."""
    third = max(1, len(values) // 3)
    return [statistics.median(part) for part in (values[:third], values[third : 2 * third] or values, values[-third:])]


def _link(handle: Path) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(handle)
    return ""


def soak(seconds: float) -> dict[str, Any]:
    watch, started = Watch(), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        manifest = make_edits(folder, "jpeg", 16, 128)
        faults = [word for fault, share in FAULTS.items() for word in ("--fault", f"{fault}={share}")]
        words = ("bench.stub", "--seed", str(_SEED), "--retry-after", "0.1", *faults)
        # One each: sharing a limit, the engine would take all of it, and the latency of rewards be a matter of pace.
        with process(*words, "--limit-rps", str(LIMIT)) as (_, url), process(*words) as (_, other):
            asyncio.run(_load(watch, folder, manifest, (url, other), seconds * 0.6))
        watch.flat()
        fuzzed = _fuzz(watch, folder, (seconds - (time.monotonic() - started)) * 2 / len(FUZZED))
    shown = {name: [round(third, 3) for third in thirds(values)] for name, values in watch.samples.items()}
    return {
        "seconds": round(time.monotonic() - started),
        "counts": dict(watch.counts),
        "medians_of_thirds": shown,
        "fuzzed": fuzzed,
        "failures": watch.failures,
    }


@contextlib.contextmanager
def _served(folder: Path, stub: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    words = ["serve", "--store", str(folder / "served.db"), "--create", "--port", "0", "--timeout", "30"]
    judge = ["--judge", "openai-compatible/stub", "--base-url", f"{stub}/v1"]
    with subprocess.Popen(
        [sys.executable, "-m", "editjudge", *words, *judge], stderr=subprocess.PIPE, text=True
    ) as served:
        try:
            assert served.stderr
            found = re.search(r"http://\S+", served.stderr.readline())
            assert found
            yield served, found[0].rstrip("/")
        finally:
            served.terminate()


async def _load(watch: Watch, folder: Path, manifest: Path, stubs: tuple[str, str], seconds: float) -> None:
    edits = [sent(folder, json.loads(line)) for line in manifest.read_text().splitlines()]
    words = (str(manifest), str(folder / "engine.db"), stubs[0])
    with process_lines("bench.soak", "--engine", *words) as engine, _served(folder, stubs[1]) as (served, url):
        end = time.monotonic() + seconds
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            await ready(session, url)
            first = await _reward(session, url, edits, 0)
            watch.counts["rewards"] += len(first)
            tasks = [
                asyncio.create_task(_rewards(watch, session, url, edits, end)),
                asyncio.create_task(_engine(watch, engine, end)),
                *(asyncio.create_task(_reviewer(watch, session, url, n, end)) for n in range(REVIEWERS)),
            ]
            while time.monotonic() < end and engine.poll() is None and served.poll() is None:
                for name, one in (("engine", engine), ("serve", served)):
                    watch.of(name, one.pid)
                await asyncio.sleep(EVERY)
            for name, one in (("engine", engine), ("serve", served)):
                if one.poll() is not None:
                    watch.failures.append(f"{name} ended with {one.returncode}")
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            watch.failures += [f"{type(e).__name__}: {e}" for e in ended if isinstance(e, Exception)][:10]
    if not watch.counts["judgements"]:
        watch.failures.append("the engine finished no run")


@contextlib.contextmanager
def process_lines(*words: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.PIPE, text=True, cwd=ROOT) as started:
        try:
            yield started
        finally:
            started.terminate()


async def _engine(watch: Watch, engine: subprocess.Popen[str], end: float) -> None:
    assert engine.stdout
    while time.monotonic() < end:
        try:
            line = await asyncio.wait_for(asyncio.to_thread(engine.stdout.readline), max(0.1, end - time.monotonic()))
        except TimeoutError:
            return
        if not line:
            return
        told = json.loads(line)
        watch.counts["judgements"] += told["judgements"]
        watch.counts.update({f"judged {status}": count for status, count in told["statuses"].items()})
        if told["wrong"] or told["missing"]:
            watch.failures.append(f"of a run {told['wrong']} scores are wrong and {told['missing']} judgements missing")


async def _reward(session: aiohttp.ClientSession, url: str, edits: list[Any], number: int) -> list[dict[str, Any]]:
    chosen = [edits[n % len(edits)] | {"instruction": f"paint {n}"} for n in range(number, number + BATCH)]
    async with session.post(f"{url}/v1/reward", json={"edits": chosen}) as response:
        answer = await response.json()
        assert response.status == 200, answer
        rewards: list[dict[str, Any]] = answer["rewards"]
        return rewards


async def _rewards(watch: Watch, session: aiohttp.ClientSession, url: str, edits: list[Any], end: float) -> None:
    number = BATCH
    while time.monotonic() < end:
        started = time.monotonic()
        rewards = await _reward(session, url, edits, number)
        watch.sample("reward seconds", time.monotonic() - started)
        watch.counts["rewards"] += len(rewards)
        watch.counts["rewards without a number"] += sum(reward["reward"] is None for reward in rewards)
        if any((reward["reward"] is None) != (reward["status"] != "ok") for reward in rewards):
            watch.failures.append(f"a failure is a number, or the other way round: {rewards}")
        number += BATCH


async def _reviewer(watch: Watch, session: aiohttp.ClientSession, url: str, number: int, end: float) -> None:
    """Looks at pages, follows links into edits and pictures, and now and then sends a form that is wrong."""
    rng = random.Random(number)
    await asyncio.sleep(rng.uniform(0, PAUSE[1]))
    known = ["/", "/runs/1", "/rate", "/runs/1?sort=worst&page=2"]
    while time.monotonic() < end:
        path = rng.choice(known)
        started = time.monotonic()
        async with session.get(url + path) as response:
            text = await response.text() if "html" in response.headers["content-type"] else str(await response.read())
        watch.sample("page seconds", time.monotonic() - started)
        watch.counts["pages"] += 1
        if response.status >= 500:
            watch.failures.append(f"{path} answered {response.status}")
        links = re.findall(r'href="(/runs/1/edits/[^"]+)"|src="(/runs/1/images/[^"]+)"', text)
        known = [*known[:4], *(a or b for a, b in rng.sample(links, min(3, len(links))))]
        async with session.post(
            f"{url}/rate/name", data={"name": f"reviewer {number}"}, allow_redirects=False
        ) as response:
            if response.status >= 500:
                watch.failures.append(f"/rate/name answered {response.status}")
        await asyncio.sleep(rng.uniform(*PAUSE))


def _fuzz(watch: Watch, folder: Path, seconds: float) -> dict[str, Any]:
    """Each target for so long, two at a time; what was found is said in full."""
    try:
        import atheris  # noqa: F401
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
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", cwd=ROOT, check=False)
        tried = re.search(r"stat::number_of_executed_units: (\d+)", done.stderr)
        if done.returncode:
            watch.failures.append(f"fuzzing {target}: {done.stdout[-1500:]} {done.stderr[-1500:]}")
        return target, {"executions": int(tried[1]) if tried else None, "found": int(done.returncode != 0)}

    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(one, FUZZED))


if __name__ == "__main__":
    main()
