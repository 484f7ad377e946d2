"""Requests a second, client CPU and memory: the whole engine beside bare HTTP clients, in one run against the stub.

    python -m bench.throughput [--edits 400] [--rounds 3] [--pictures jpeg png] [--peers]

The stub answers each request after 500 ms; 64 requests are in flight, so 128 a second is the ideal. Every contender
reads two 1024 x 1024 pictures an edit, asks one question and reads the scores; ours also checks the contract and
commits every judgement. Each runs in a process of its own; medians over the rounds are printed as JSON, with ratios to
the bare aiohttp client. With --peers, the other tools of bench/peers take part that are installed.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import peers

ROOT = Path(__file__).parents[1]
LATENCY = 0.5
CONCURRENCY = 64
SIDE = 1024
IMPORTS = {
    "bare-aiohttp": ["aiohttp"],
    "bare-httpx2": ["httpx2"],
    "editjudge": ["editjudge.run.job", "editjudge.judges.chat", "editjudge.rubrics.files", "pydantic", "yaml"],
}
CONTENDERS = tuple(IMPORTS)


def median(values: list[float]) -> float:
    """Not the library's: a neighbour of this script is called statistics, too."""
    return sorted(values)[len(values) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pictures", nargs="+", default=["jpeg", "png"], choices=["jpeg", "png"])
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS))
    parser.add_argument("--peers", action="store_true", help="also those that bench/peers/install.py installed")
    parser.add_argument("--as", dest="contender", help=argparse.SUPPRESS)
    parser.add_argument("--manifest", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contender:
        print(json.dumps(contend(arguments.contender, arguments.manifest, arguments.url)))
    else:
        print(json.dumps(compare(arguments), indent=2))


def compare(arguments: argparse.Namespace) -> dict[str, Any]:
    """Every contender in every round, one after the other."""
    results: dict[str, Any] = {
        "ideal_rate": CONCURRENCY / LATENCY,
        "edits": arguments.edits,
        "rounds": arguments.rounds,
    }
    contenders = list(arguments.contenders)
    if arguments.peers:
        present, results["absent"] = peers.installed()
        results["versions"] = {name: peers.version(name) for name in present}
        contenders += present
    for kind in arguments.pictures:
        with tempfile.TemporaryDirectory() as folder:
            manifest = make_edits(Path(folder), kind, arguments.edits)
            runs: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
            for _ in range(arguments.rounds):
                for name in contenders:
                    runs[name].append(one_round(name, manifest))
            medians = {name: _medians(rounds) for name, rounds in runs.items()}
            results[kind] = _with_ratios(medians)
    return results


def _medians(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    if failed := next((r for r in rounds if "could_not_be_run" in r), None):
        return failed
    return {key: round(median([r[key] for r in rounds]), 3) for key in rounds[0]}


def _with_ratios(medians: dict[str, dict[str, Any]]) -> dict[str, Any]:
    bare = medians.get("bare-aiohttp")
    for figures in medians.values():
        if bare and "rate" in figures:
            figures["cpu_to_bare"] = round(figures["cpu_ms"] / bare["cpu_ms"], 2)
            figures["memory_to_bare"] = round(figures["peak_mb"] / bare["peak_mb"], 2)
            figures["rate_to_bare"] = round(figures["rate"] / bare["rate"], 3)
    return dict(medians)


def one_round(contender: str, manifest: Path) -> dict[str, Any]:
    with stub("--latency", str(LATENCY)) as url:
        if contender in peers.PEERS:
            return peers.run(contender, manifest, url)
        given = ["--as", contender, "--manifest", str(manifest), "--url", url]
        command = [sys.executable, "-m", "bench.throughput", *given]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return figures


@contextmanager
def stub(*options: str) -> Iterator[str]:
    """The URL of a server in a process of its own."""
    command = [sys.executable, "-m", "bench.stub", "--port", "0", *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert server.stdout
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        server.wait()


def make_edits(folder: Path, kind: str, count: int, side: int = SIDE) -> Path:
    """Pictures of photographic weight: about 250 KB as JPEG and 1.5 MB as PNG."""
    import numpy as np
    from PIL import Image

    noise = np.random.default_rng(0)
    base = np.linspace(0, 255, side)[None, :, None] * np.ones((side, 1, 3))
    lines = []
    for number in range(count):
        for role in ("input", "edited"):
            spread = 14 if kind == "jpeg" else 5
            pixels = np.clip(base + noise.normal(0, spread, base.shape), 0, 255).astype("uint8")
            if role == "edited":  # a visible change: an output that is its input again is not rewarded
                pixels[side // 4 : side // 2, side // 4 : side // 2, 1:] //= 3
            if kind == "jpeg":
                Image.fromarray(pixels).save(folder / f"{number}-{role}.jpg", quality=84)
            else:
                # Noise in half of the lines brings PNG to the weight of a photograph.
                pixels[:330] = pixels[:1]
                Image.fromarray(pixels).save(folder / f"{number}-{role}.png", compress_level=1)
        end = "jpg" if kind == "jpeg" else "png"
        line = {"id": str(number), "input": f"{number}-input.{end}", "edited": f"{number}-edited.{end}"}
        lines.append(json.dumps(line | {"instruction": f"make car {number} blue", "model": "m"}))
    manifest = folder / "edits.jsonl"
    manifest.write_text("\n".join(lines) + "\n")
    return manifest


def contend(name: str, manifest: Path, url: str) -> dict[str, float]:
    """Judge the manifest; figures of this process."""
    runner = {"bare-aiohttp": bare_aiohttp, "bare-httpx2": bare_httpx2, "editjudge": ours}[name]
    for module in IMPORTS[name]:  # start-up is measured by bench/startup.py
        importlib.import_module(module)
    started, cpu = time.monotonic(), time.process_time()
    answered = runner(manifest, url)
    seconds, used = time.monotonic() - started, time.process_time() - cpu
    return {
        "rate": answered / seconds,
        "cpu_ms": 1000 * used / answered,
        "peak_mb": peak_mb(),
        "answered": answered,
    }


def peak_mb() -> float:
    """Of this process alone: getrusage would count the parent's size at the fork."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def question(folder: Path, line: str) -> bytes:
    """What a careful script sends: the same text and pictures as ours, through json.dumps."""
    edit = json.loads(line)
    content: list[dict[str, Any]] = []
    for role in ("input", "edited"):
        data = (folder / edit[role]).read_bytes()
        kind = "jpeg" if edit[role].endswith("jpg") else "png"
        picture = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
        content += [{"type": "text", "text": role}, {"type": "image_url", "image_url": {"url": picture}}]
    identifier = f"edit-{int(edit['id']):016x}"
    content.append({"type": "text", "text": f"{RUBRIC_TEXT} {identifier} {edit['instruction']}"})
    return json.dumps({"model": "stub", "messages": [{"role": "user", "content": content}]}).encode()


RUBRIC_TEXT = 'Answer as {"image_id", "online_factor_results": {"alignment", "completeness", "plausibility"}}. ' * 60


def bare_aiohttp(manifest: Path, url: str) -> int:
    import aiohttp

    async def ask(session: aiohttp.ClientSession, gate: asyncio.Semaphore, line: str) -> int:
        async with gate:
            body = question(manifest.parent, line)
            headers = {"content-type": "application/json"}
            async with session.post(f"{url}/v1/chat/completions", data=body, headers=headers) as response:
                return _answered(await response.json())

    async def all_of_them() -> int:
        gate = asyncio.Semaphore(CONCURRENCY)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            return sum(await asyncio.gather(*(ask(session, gate, line) for line in _lines(manifest))))

    return asyncio.run(all_of_them())


def bare_httpx2(manifest: Path, url: str) -> int:
    import httpx2

    async def ask(client: Any, gate: asyncio.Semaphore, line: str) -> int:
        async with gate:
            body = question(manifest.parent, line)
            headers = {"content-type": "application/json"}
            response = await client.post(f"{url}/v1/chat/completions", content=body, headers=headers)
            return _answered(response.json())

    async def all_of_them() -> int:
        gate = asyncio.Semaphore(CONCURRENCY)
        limits = httpx2.Limits(max_connections=CONCURRENCY, max_keepalive_connections=CONCURRENCY)
        async with httpx2.AsyncClient(timeout=60, limits=limits) as client:
            return sum(await asyncio.gather(*(ask(client, gate, line) for line in _lines(manifest))))

    return asyncio.run(all_of_them())


def ours(manifest: Path, url: str) -> int:
    from editjudge.judges.registry import Options
    from editjudge.run.job import Job, RunOptions, execute
    from editjudge.store.store import Store

    os.environ.pop("EDITJUDGE_STORE", None)
    options = Options(base_url=f"{url}/v1")
    job = Job(manifest, ("fidelity",), ("openai-compatible/stub",), options=options)
    with Store.open(manifest.parent / f"{time.time_ns()}.db") as store:
        outcome = asyncio.run(execute(job, store, RunOptions(concurrency=CONCURRENCY)))
    assert outcome.ending == "finished" and outcome.summary.failed == 0, outcome
    return outcome.summary.total


def _answered(document: dict[str, Any]) -> int:
    text = document["choices"][0]["message"]["content"]
    return int('"score"' in text)


def _lines(manifest: Path) -> list[str]:
    return manifest.read_text().splitlines()


if __name__ == "__main__":
    main()
