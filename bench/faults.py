"""What becomes of edits when the server misbehaves: ours beside other tools, in one run against the stub.

    python -m bench.faults [--edits 200] [--seed 0]

Of all requests 2 % are hung up on, 20 % get 429, 10 % an error of the server, 10 % garbage and 5 % half an answer with
a length stop, each among those that the faults before it let through. For ours, for each peer of bench/peers that is
installed, and for each of those once more, told to be as patient as its documented settings allow, the shares of edits
are printed as JSON:

    right      all scores are those that the server said for that edit
    made_up    a score is one that the server never said for that edit
    missing    no score, or not all

and the answers paid for each edit that is right. `paid_to_least` compares them with the least that could have been: one
for each question of an edit that is right, and all that the stub spoilt. A question is asked seven times at most by
ours, so one edit in 600,000 is expected to meet only unreadable replies: `statuses` says how each of ours ended. No
peer's scorer here makes anything up by itself; one that turns an unreadable reply into a number does, and would be
counted. `times_bare` compares the seconds with those of a bare aiohttp client with eight retries in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from bench import peers
from bench.throughput import CONCURRENCY, ROOT, careful_body, make_edits, stub

MIX = {
    "hang_up": 0.02,
    "rate_limited": 0.20,
    "server_error": 0.10,
    "garbage": 0.10,
    "length_stop": 0.05,
}
LATENCY = 0.5
SIDE = 64
"""Of the pictures: how large they are does not matter here."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--edits", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        help="contenders by the names they have in the output",
    )
    parser.add_argument("--as-ours", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--manifest", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_ours:
        print(json.dumps(ours(options.manifest, options.url)))
    else:
        print(
            json.dumps(
                compare(options.edits, options.seed, options.only),
                indent=2,
                allow_nan=False,
            )
        )


def compare(edits: int, seed: int, only: list[str] | None = None) -> dict[str, Any]:
    """Every contender, one after the other, each with a server that has forgotten the others."""
    present, absent = peers.installed()
    contenders = {"bare": ("bare", False), "editjudge": ("editjudge", False)}
    for name in present:
        contenders |= {name: (name, False), f"{name}, patient": (name, True)}
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        manifest = make_edits(Path(folder), "jpeg", edits, SIDE)
        for shown, (name, patient) in contenders.items():
            if only is None or shown in only:
                with server(seed) as url:
                    questions = (
                        peers.PEERS[name].questions if name in peers.PEERS else 1
                    )
                    results[shown] = shares(
                        run(name, manifest, url, patient), edits, questions
                    )
    if "bare" in results:
        bare = results["bare"]["seconds"]
        for result in results.values():
            if "seconds" in result:
                result["times_bare"] = round(result["seconds"] / bare, 2)
    return {
        "edits": edits,
        "seed": seed,
        "in_flight": CONCURRENCY,
        "faults": MIX,
        "versions": versions(present),
        "absent": absent,
        "patient": {name: peers.PEERS[name].patience for name in present},
        "contenders": results,
    }


def versions(present: list[str]) -> dict[str, str]:
    import editjudge

    own = {"python": platform.python_version(), "editjudge": editjudge.__version__}
    return own | {name: peers.version(name) for name in present}


def server(seed: int) -> AbstractContextManager[str]:
    faults = [
        word for name, share in MIX.items() for word in ("--fault", f"{name}={share}")
    ]
    return stub("--latency", str(LATENCY), "--seed", str(seed), *faults)


def run(name: str, manifest: Path, url: str, patient: bool) -> dict[str, Any]:
    if name in peers.PEERS:
        return peers.run(name, manifest, url, patient=patient)
    if name == "bare":
        return bare_client(manifest, url)
    command = [
        sys.executable,
        "-m",
        "bench.faults",
        "--as-ours",
        "--manifest",
        str(manifest),
        "--url",
        url,
    ]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=peers.LONGEST,
    )
    return peers.outcome(done.returncode, done.stdout, done.stderr)


def bare_client(manifest: Path, url: str) -> dict[str, Any]:
    """What one writes in an hour: aiohttp, a semaphore, eight retries that double their pause and heed Retry-After. A
    reply that cannot be read is asked for again without a pause."""
    import aiohttp

    names = identifiers(manifest)
    given: dict[str, Any] = {}

    async def post(
        session: aiohttp.ClientSession, body: bytes
    ) -> dict[str, Any] | float | None:
        """Scores, or the pause before the next try; None where that is up to the client."""
        headers = {"content-type": "application/json"}
        async with session.post(
            f"{url}/v1/chat/completions", data=body, headers=headers
        ) as response:
            if response.status != 200:
                wait = response.headers.get("retry-after")
                return float(wait) if wait else None
            choice = (await response.json())["choices"][0]
        if choice["finish_reason"] == "length":
            return 0.0
        try:
            text = (
                choice["message"]["content"]
                .strip()
                .removeprefix("```json")
                .removesuffix("```")
            )
            results = json.loads(text)["online_factor_results"]
            return {factor: result["score"] for factor, result in results.items()}
        except (ValueError, TypeError, KeyError, AttributeError):
            return 0.0

    async def ask(
        session: aiohttp.ClientSession, gate: asyncio.Semaphore, line: str
    ) -> None:
        body = careful_body(manifest.parent, line)
        name = names[json.loads(line)["id"]]
        body = body.replace(
            f"edit-{int(json.loads(line)['id']):016x}".encode(), name.encode()
        )
        async with gate:
            for attempt in range(9):
                try:
                    outcome = await post(session, body)
                except (aiohttp.ClientError, ValueError):
                    outcome = None
                if isinstance(outcome, dict):
                    given[name] = outcome
                    return
                await asyncio.sleep(0.5 * 2**attempt if outcome is None else outcome)

    async def ask_all() -> None:
        gate = asyncio.Semaphore(CONCURRENCY)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0)
        ) as session:
            await asyncio.gather(
                *(
                    ask(session, gate, line)
                    for line in manifest.read_text().splitlines()
                )
            )

    started = time.monotonic()
    asyncio.run(ask_all())
    seconds = time.monotonic() - started
    counts = peers.account(names.values(), given, peers.ledger(url))
    return {"answered": len(given), "seconds": seconds, **counts}


def ours(manifest: Path, url: str) -> dict[str, Any]:
    from editjudge.judges.judge import Options
    from editjudge.running.job import Job, RunOptions, execute
    from editjudge.store.store import Store

    os.environ.pop("EDITJUDGE_STORE", None)
    job = Job(
        manifest,
        ("fidelity",),
        ("openai-compatible/stub",),
        options=Options(base_url=f"{url}/v1"),
    )
    names = identifiers(manifest)
    started = time.monotonic()
    with Store.open(manifest.parent / f"{time.time_ns()}.db") as store:
        done = asyncio.run(execute(job, store, RunOptions(concurrency=CONCURRENCY)))
        rows = list(
            store.judgements(
                store.find_run(done.name), fields=("item", "status", "scores")
            )
        )
        given = {names[row["item"]]: row["scores"] for row in rows if row["scores"]}
    seconds = time.monotonic() - started
    counts = peers.account(names.values(), given, peers.ledger(url))
    return {
        "answered": len(given),
        "seconds": seconds,
        **counts,
        "statuses": Counter(row["status"] for row in rows),
    }


def identifiers(manifest: Path) -> dict[str, str]:
    """By item, what the server is asked to echo: worked out from the files, not by the code that is measured."""
    found = {}
    for line in manifest.read_text().splitlines():
        edit = json.loads(line)
        content = {
            role: hashlib.sha256(
                (manifest.parent / edit[role]).read_bytes()
            ).hexdigest()
            for role in ("input", "edited")
        }
        canonical = json.dumps(
            content | {"instruction": edit["instruction"]}, sort_keys=True
        )
        found[edit["id"]] = (
            f"edit-{hashlib.sha256(canonical.encode()).hexdigest()[:16]}"
        )
    return found


def shares(
    figures: Mapping[str, Any], edits: int, questions: int = 1
) -> dict[str, Any]:
    if "could_not_be_run" in figures:
        return dict(figures)
    right = figures["right"]
    paid = figures["paid"]
    return {
        "right": round(right / edits, 4),
        "made_up": round(figures["fabricated"] / edits, 4),
        "missing": round(figures["missing"] / edits, 4),
        "paid_per_answer": round(paid / right, 3) if right else None,
        "paid_to_least": round(paid / (questions * right + figures["spoilt"]), 3)
        if right
        else None,
        "paid": paid,
        "requests": figures["requests"],
        "seconds": round(figures["seconds"], 1),
        **({"statuses": figures["statuses"]} if "statuses" in figures else {}),
    }


if __name__ == "__main__":
    main()
