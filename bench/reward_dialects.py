"""Rewards through each protocol, and a crowd: `python -m bench.reward_dialects [--edits 320] [--crowd 10000]`.

A server in a process of its own asks the stub in another. Each protocol is sent the same number of edits, always new
ones, in batches by several clients; in turn with it, a bare client asks the stub the same number of questions. Then a
crowd of 64 clients sends its edits at once, and comes back when it is told to (429). Prints JSON: edits a second, their
share of the bare rate, p50 and p99 of a batch, what was lost, and whether each edit had its own reward.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import pickle
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from bench.rewards import bare_rate, process, ready, rss_mb
from bench.throughput import make_edits

BATCH = 16
CLIENTS = 8
BOUNDARY = "a-boundary-that-no-picture-has"
DIALECTS = ("flow-factory", "unirl", "edit-r1", "flow-grpo", "/d/editscore")
Edits = list[dict[str, Any]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--edits", type=int, default=320, help="of each protocol")
    parser.add_argument(
        "--crowd", type=int, default=10_000, help="edits of 64 clients at once"
    )
    parser.add_argument(
        "--crowd-latency",
        type=float,
        default=0.2,
        help="seconds that the stub takes for an answer",
    )
    parser.add_argument(
        "--crowd-side", type=int, default=256, help="pixels of a picture's side"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument(
        "--serve", nargs=2, metavar=("STORE", "STUB"), help=argparse.SUPPRESS
    )
    arguments = parser.parse_args()
    if arguments.serve:
        serve(*arguments.serve)
    else:
        print(json.dumps(measured_protocols(arguments), indent=2))


def measured_protocols(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = (
            make_edits(folder, "jpeg", 64, arguments.crowd_side)
            .read_text()
            .splitlines()
        )
        pictures = [
            {
                r: (folder / json.loads(line)[r]).read_bytes()
                for r in ("input", "edited")
            }
            for line in lines
        ]
        with process(
            "tests.stub.server", "--latency", str(arguments.crowd_latency)
        ) as (
            _,
            stub,
        ):
            words = ("bench.reward_dialects", "--serve", str(folder / "s.db"), stub)
            with process(*words) as (server, port):
                return asyncio.run(
                    measure(
                        arguments,
                        pictures,
                        f"http://127.0.0.1:{port}",
                        stub,
                        server.pid,
                    )
                )


def serve(place: str, stub: str) -> None:
    """Prints its port, then serves until SIGTERM."""
    import socket

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as `editjudge serve` does
    from editjudge.judges.judge import Options
    from editjudge.rewards.protocol import Terms
    from editjudge.store.store import Store
    from editjudge.web.app import create
    from editjudge.web.connections import server
    from editjudge.web.site import Site

    terms = Terms(
        judge="openai-compatible/stub",
        options=Options(base_url=f"{stub}/v1"),
        rubrics=("fidelity",),
        more_rubrics=(),
        concurrency=64,
        dialects=DIALECTS,
    )
    with Store.open(place) as store, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(256)
        site = Site(store, settings={"rewards": terms})
        print(listener.getsockname()[1], flush=True)
        server(create(site), log_level="error").run(sockets=[listener])


# --- protocols ------------------------------------------------------------------------------------------------


def as_json(edits: Edits) -> bytes:
    return json.dumps(
        {"edits": [e | {r: text(e[r]) for r in ("input", "edited")} for e in edits]}
    ).encode()


def as_msgpack(edits: Edits) -> bytes:
    import msgpack  # type: ignore[import-untyped]

    packed: bytes = msgpack.packb({"edits": edits})
    return packed


def as_multipart(edits: Edits) -> bytes:
    texts = {"edits": [{"instruction": words} for words in instructions(edits)]}
    parts = [("request", json.dumps(texts).encode())]
    parts += [
        (f"edits.{n}.{role}", e[role])
        for n, e in enumerate(edits)
        for role in ("input", "edited")
    ]
    head = '--{}\r\nContent-Disposition: form-data; name="{}"; filename="{}"\r\n\r\n'
    written = [
        head.format(BOUNDARY, name, name).encode() + data + b"\r\n"
        for name, data in parts
    ]
    return b"".join(written) + f"--{BOUNDARY}--\r\n".encode()


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def flow_factory(edits: Edits) -> bytes:
    sources = [[text(e["input"])] for e in edits]
    outputs = [text(e["edited"]) for e in edits]
    return json.dumps(
        {"prompt": instructions(edits), "image": outputs, "condition_images": sources}
    ).encode()


def unirl(edits: Edits) -> bytes:
    def history(e: dict[str, Any]) -> Any:
        return [
            {"text": e["instruction"], "image_b64": text(e[role])}
            for role in ("input", "edited")
        ]

    requests = [
        {"history": history(e), "required_rewards": ["editjudge"]} for e in edits
    ]
    return json.dumps({"requests": requests}).encode()


def edit_r1(edits: Edits) -> bytes:
    pictures = {
        "ref_images": [e["input"] for e in edits],
        "images": [e["edited"] for e in edits],
    }
    return pickle.dumps({**pictures, "prompts": instructions(edits)})


def editscore(edits: Edits) -> bytes:
    described = [{"instruction": words} for words in instructions(edits)]
    pictures = {
        "input_images": [e["input"] for e in edits],
        "output_image": [e["edited"] for e in edits],
    }
    return pickle.dumps({**pictures, "meta_datas": described})


def instructions(edits: Edits) -> list[str]:
    return [e["instruction"] for e in edits]


def of_v1(data: bytes) -> list[float]:
    return [reward["reward"] for reward in json.loads(data)["rewards"]]


def of_pickle(name: str) -> Callable[[bytes], list[float]]:
    return lambda data: pickle.loads(data)[name]  # noqa: S301  (our own server's)


def of_unirl(data: bytes) -> list[float]:
    return [result["editjudge"]["reward"] for result in json.loads(data)["results"]]


PROTOCOLS: dict[
    str, tuple[str, str, Callable[[Edits], bytes], Callable[[bytes], list[float]]]
] = {
    "v1, JSON": ("/v1/reward", "application/json", as_json, of_v1),
    "v1, multipart": (
        "/v1/reward",
        f"multipart/form-data; boundary={BOUNDARY}",
        as_multipart,
        of_v1,
    ),
    "v1, msgpack": ("/v1/reward", "application/msgpack", as_msgpack, of_v1),
    "flow-factory": (
        "/compute",
        "application/json",
        flow_factory,
        lambda data: json.loads(data)["rewards"],
    ),
    "unirl": ("/score", "application/json", unirl, of_unirl),
    "edit-r1": ("/mode/x", "application/octet-stream", edit_r1, of_pickle("scores")),
    "flow-grpo": ("/", "application/octet-stream", edit_r1, of_pickle("scores")),
    "editscore": (
        "/d/editscore/",
        "application/octet-stream",
        editscore,
        of_pickle("rewards"),
    ),
}


# --- measuring ------------------------------------------------------------------------------------------------


def batch(pictures: list[dict[str, bytes]], first: int, count: int = BATCH) -> Edits:
    return [
        {**pictures[n % len(pictures)], "instruction": f"make car {n} blue"}
        for n in range(first, first + count)
    ]


async def measure(
    arguments: argparse.Namespace, pictures: Any, url: str, stub: str, pid: int
) -> dict[str, Any]:
    encoded = [{role: text(data) for role, data in one.items()} for one in pictures]
    figures: dict[str, Any] = {}
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(600)
    ) as session:
        await ready(session, url)
        # the first request opens the judge
        await ask(session, url, "v1, JSON", batch(pictures, 10**7))
        for number, name in enumerate(PROTOCOLS):
            passed = await through(
                session, url, name, pictures, arguments.edits, (number + 1) * 10**5
            )
            bare = await bare_rate(encoded, stub, arguments.edits)
            figures[name] = passed | {
                "bare_rate": round(bare, 1),
                "share_of_bare": round(passed["rate"] / bare, 3),
            }
        crowd = (
            await crowding(session, url, pictures, arguments.crowd, pid)
            if arguments.crowd
            else None
        )
    common = {
        "edits_of_each": arguments.edits,
        "edits_a_batch": BATCH,
        "clients": CLIENTS,
    }
    return {
        **common,
        "latency": arguments.crowd_latency,
        "picture_bytes": len(pictures[0]["edited"]),
        "protocols": figures,
        "crowd": crowd,
    }


async def ask(
    session: Any, url: str, name: str, edits: Edits
) -> tuple[list[float], int]:
    """The rewards, and how often the server was full."""
    path, kind, write, read = PROTOCOLS[name]
    data = write(edits)
    full = 0
    while True:
        async with session.post(
            url + path, data=data, headers={"content-type": kind}
        ) as response:
            answer = await response.read()
            if response.status == 200:
                return read(answer), full
            assert response.status == 429, answer[:300]
            full += 1
            wait = int(response.headers["retry-after"])
        await asyncio.sleep(wait)


async def through(
    session: Any, url: str, name: str, pictures: Any, count: int, first: int
) -> dict[str, Any]:
    starts = iter(range(first, first + count, BATCH))
    seconds: list[float] = []
    rewards: dict[int, list[float]] = {}

    async def client() -> None:
        for start in starts:
            begun = time.monotonic()
            rewards[start], _ = await ask(session, url, name, batch(pictures, start))
            seconds.append(time.monotonic() - begun)

    begun = time.monotonic()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    rate = count / (time.monotonic() - begun)
    # Each edit alone, by the plain protocol and from the store, has the reward that it had in its batch.
    start = max(rewards)
    alone = [
        (await ask(session, url, "v1, JSON", batch(pictures, start + n, 1)))[0][0]
        for n in range(BATCH)
    ]
    assert alone == rewards[start], name
    return {"rate": round(rate, 1), **quantiles(seconds)}


async def crowding(
    session: Any, url: str, pictures: Any, count: int, pid: int
) -> dict[str, Any]:
    """64 clients, who all send at once and again as soon as they are answered."""
    starts = iter(range(0, count, BATCH))
    seconds: list[float] = []
    rewards: dict[int, float] = {}
    full = 0

    async def client() -> None:
        nonlocal full
        for start in starts:
            begun = time.monotonic()
            numbers, waits = await ask(
                session, url, "v1, msgpack", batch(pictures, start)
            )
            full += waits
            seconds.append(time.monotonic() - begun)
            rewards.update({start + n: number for n, number in enumerate(numbers)})

    begun = time.monotonic()
    await asyncio.gather(*(client() for _ in range(64)))
    took = time.monotonic() - begun
    numbers = range(0, count, max(1, count // 50))
    alone = [
        (await ask(session, url, "v1, JSON", batch(pictures, n, 1)))[0][0]
        for n in numbers
    ]
    return {
        "clients": 64,
        "edits": count,
        "answered": len(rewards),
        "without_a_reward": sum(number is None for number in rewards.values()),
        "in_order": alone == [rewards[n] for n in numbers],
        "told_to_come_back": full,
        "rate": round(count / took, 1),
        **quantiles(seconds),
        "server_mb": rss_mb(pid),
    }


def quantiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        f"p{p}_s": round(ordered[min(len(ordered) - 1, len(ordered) * p // 100)], 3)
        for p in (50, 99)
    }


if __name__ == "__main__":
    main()
