"""Rewards under load: concurrent batches from this process to a server in its own, which asks the stub in another.

    python -m bench.rewards [--clients 8] [--batch 16] [--batches 80] [--rounds 3] [--latency 0.5]

In turn with it, a bare aiohttp client asks the stub as many questions with as many requests in flight: what the stub
alone can do. Prints JSON: edits a second and their share of the bare rate, latencies of batches, the most edits that
were waiting beside the bound, memory of the server after each round, its CPU for an edit, and a pass that the store
answers. Then clients that hang up, a server that is stopped while it works, and what the store has of it. Last, each
encoding and each trainer's protocol beside the bare client, and 10,000 edits of 64 clients at once
(`bench.reward_dialects`).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from bench.throughput import RUBRIC_TEXT, make_edits

ROOT = Path(__file__).parents[1]
IN_FLIGHT = 64
PICTURES = 64
"""Distinct edits; beyond them the instruction makes another question of the same pictures."""


def main() -> None:
    from bench.reward_dialects import add_arguments

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--batches", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency", type=float, default=0.5)
    parser.add_argument(
        "--side", type=int, default=512, help="pixels of a picture's side"
    )
    add_arguments(parser)
    parser.add_argument(
        "--serve", nargs=2, metavar=("STORE", "STUB"), help=argparse.SUPPRESS
    )
    arguments = parser.parse_args()
    if arguments.serve:
        serve(*arguments.serve)
    else:
        print(json.dumps(measure(arguments), indent=2))


def serve(store_place: str, stub: str) -> None:
    """Prints its port, then serves until SIGTERM."""
    import socket

    import uvicorn

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as `editjudge serve` does
    from editjudge.judges.judge import Options
    from editjudge.rewards.protocol import Terms
    from editjudge.store.store import Store
    from editjudge.web.app import create
    from editjudge.web.site import Site

    terms = Terms(
        judge="openai-compatible/stub",
        options=Options(base_url=f"{stub}/v1"),
        rubrics=("fidelity",),
        more_rubrics=(),
        concurrency=IN_FLIGHT,
    )
    with Store.open(store_place) as store, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        site = Site(store, settings={"rewards": terms})
        config = uvicorn.Config(
            create(site),
            log_level="error",
            access_log=False,
            timeout_graceful_shutdown=20,
        )
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(config).run(sockets=[listener])


@contextmanager
def process(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of ours and the first line that it says."""
    with subprocess.Popen(
        [sys.executable, "-m", *words], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as started:
        try:
            assert started.stdout
            yield started, started.stdout.readline().strip()
        finally:
            started.terminate()


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    from bench.reward_dialects import measured_protocols

    figures = load_and_stop(arguments)
    return figures | {"protocols": measured_protocols(arguments)}


def load_and_stop(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = (
            make_edits(folder, "jpeg", PICTURES, arguments.side)
            .read_text()
            .splitlines()
        )
        edits = [sent(folder, json.loads(line)) for line in lines]
        with process("tests.stub.server", "--latency", str(arguments.latency)) as (
            _,
            stub,
        ):
            with process("bench.rewards", "--serve", str(folder / "s.db"), stub) as (
                server,
                port,
            ):
                figures = asyncio.run(
                    load(arguments, edits, f"http://127.0.0.1:{port}", stub, server.pid)
                )
            return figures | {
                "stopped_while_working": stopped(
                    arguments, edits, folder / "t.db", stub
                )
            }


def sent(folder: Path, edit: dict[str, Any]) -> dict[str, str]:
    return {
        role: base64.b64encode((folder / edit[role]).read_bytes()).decode()
        for role in ("input", "edited")
    }


def body(edits: list[dict[str, str]], first: int, count: int) -> bytes:
    chosen = [
        edits[n % len(edits)] | {"instruction": f"make car {n} blue"}
        for n in range(first, first + count)
    ]
    return json.dumps({"edits": chosen}).encode()


async def load(
    arguments: argparse.Namespace, edits: list[Any], url: str, stub: str, pid: int
) -> dict[str, Any]:
    """Everybody asks as soon as they are answered; in turn with the bare client, since the machine has its moods."""
    from editjudge.rewards.protocol import Terms

    count = arguments.batches * arguments.batch
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0)
    ) as session:
        await ready(session, url)
        # the first request opens the judge
        await post(session, url, body(edits, 10**6, arguments.batch))
        watching = asyncio.create_task(watch(session, url, most := [0]))
        memory = [rss_mb(pid)]
        cpu = cpu_seconds(pid)
        ours = []
        bare = []
        for number in range(arguments.rounds):
            ours.append(await passing(session, url, edits, arguments, number * count))
            memory.append(rss_mb(pid))
            used = cpu_seconds(pid) - cpu
            bare.append(await bare_rate(edits, stub, count))
        again = await passing(session, url, edits, arguments, 0)
        watching.cancel()
    shares = sorted(one["rate"] / other for one, other in zip(ours, bare, strict=True))
    return {
        "clients": arguments.clients,
        "edits_a_batch": arguments.batch,
        "edits_a_round": count,
        "picture_kb": round(len(edits[0]["edited"]) * 3 / 4 / 1024),
        "share_of_bare": {
            "median": round(shares[len(shares) // 2], 3),
            "all": [round(share, 3) for share in shares],
        },
        "bare_rates": [round(rate, 1) for rate in bare],
        "rounds": ours,
        "cpu_ms_an_edit": round(1000 * used / (count * arguments.rounds), 2),
        "server_mb_after_each_round": memory,
        "most_waiting": most[0],
        "bound_of_waiting": Terms().max_waiting,
        "from_the_store": again,
    }


async def watch(session: aiohttp.ClientSession, url: str, most: list[int]) -> None:
    while True:
        async with session.get(f"{url}/healthz") as response:
            most[0] = max(most[0], (await response.json())["waiting"])
        await asyncio.sleep(0.1)


async def passing(
    session: Any, url: str, edits: list[Any], arguments: Any, first: int
) -> dict[str, Any]:
    numbers = iter(range(arguments.batches))
    seconds: list[float] = []
    statuses: dict[str, int] = {}

    async def client() -> None:
        for number in numbers:
            started = time.monotonic()
            answer = await post(
                session,
                url,
                body(edits, first + number * arguments.batch, arguments.batch),
            )
            seconds.append(time.monotonic() - started)
            for reward in answer["rewards"]:
                statuses[reward["status"]] = statuses.get(reward["status"], 0) + 1

    started = time.monotonic()
    await asyncio.gather(*(client() for _ in range(arguments.clients)))
    rate = arguments.batches * arguments.batch / (time.monotonic() - started)
    ordered = sorted(seconds)
    quantiles = {
        f"p{p}": round(ordered[min(len(ordered) - 1, len(ordered) * p // 100)], 3)
        for p in (50, 95, 99)
    }
    return {"rate": round(rate, 1), "batch_seconds": quantiles, "statuses": statuses}


async def post(session: aiohttp.ClientSession, url: str, data: bytes) -> Any:
    headers = {"content-type": "application/json"}
    async with session.post(f"{url}/v1/reward", data=data, headers=headers) as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def ready(session: aiohttp.ClientSession, url: str) -> None:
    for _ in range(300):
        try:
            async with session.get(f"{url}/healthz"):
                return
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(0.1)


async def bare_rate(edits: list[Any], stub: str, count: int) -> float:
    """Answers a second of the stub, with as many requests in flight, to whoever keeps nothing."""
    gate = asyncio.Semaphore(IN_FLIGHT)

    async def ask(session: aiohttp.ClientSession, number: int) -> None:
        async with gate:
            edit = edits[number % len(edits)]
            content: list[dict[str, Any]] = []
            for role in ("input", "edited"):
                picture = {"url": f"data:image/jpeg;base64,{edit[role]}"}
                content += [
                    {"type": "text", "text": role},
                    {"type": "image_url", "image_url": picture},
                ]
            content.append(
                {
                    "type": "text",
                    "text": f"{RUBRIC_TEXT} edit-{number:016x} make car {number} blue",
                }
            )
            question = {
                "model": "stub",
                "messages": [{"role": "user", "content": content}],
            }
            async with session.post(
                f"{stub}/v1/chat/completions", json=question
            ) as response:
                assert "choices" in await response.json()

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0)
    ) as session:
        started = time.monotonic()
        await asyncio.gather(*(ask(session, number) for number in range(count)))
        return count / (time.monotonic() - started)


def stopped(
    arguments: argparse.Namespace, edits: list[Any], place: Path, stub: str
) -> dict[str, int]:
    """Half of the clients hang up, the server is told to stop: who stayed is answered, what was taken in is kept."""
    from editjudge.store.store import Store

    with process("bench.rewards", "--serve", str(place), stub) as (server, port):
        answered = asyncio.run(
            hang_up(arguments, edits, f"http://127.0.0.1:{port}", server.pid)
        )
        server.wait(60)
    with Store.open(place, readonly=True) as store:
        (run,) = store.runs()
        statuses = [row["status"] for row in store.judgements(run, fields=("status",))]
    judged = statuses.count("ok")
    return {
        "answered": answered,
        "taken_in": len(statuses),
        "judged": judged,
        "lost": len(statuses) - judged,
    }


async def hang_up(
    arguments: argparse.Namespace, edits: list[Any], url: str, pid: int
) -> int:
    """Edits of those who stayed, and were answered."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0)
    ) as session:
        await ready(session, url)
        await post(session, url, body(edits, 10**6, 1))
        bodies = [
            body(edits, number * arguments.batch, arguments.batch)
            for number in range(arguments.clients)
        ]
        requests = [asyncio.create_task(post(session, url, data)) for data in bodies]
        await asyncio.sleep(arguments.latency)
        for task in requests[::2]:
            task.cancel()
        os.kill(pid, signal.SIGTERM)
        answers = await asyncio.gather(*requests[1::2])
        return 1 + sum(
            int(reward["status"] == "ok")
            for answer in answers
            for reward in answer["rewards"]
        )


def rss_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return (
        int(
            next(
                line for line in status.splitlines() if line.startswith("VmRSS")
            ).split()[1]
        )
        // 1024
    )


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
