"""Start-up: importing, `--help`, and a whole process that judges one edit, beside peers in venvs of their own.

    python -m bench.startup [--calls 9] [--first-request]

With `--first-request` only this: wall and CPU time from the start of `editjudge run` on a manifest of 100 lines to its
first request, beside a bare process that imports aiohttp and sends one, another that imports SQLAlchemy too, and the
ratios to the first.

The edit is judged by each contender's script of bench/throughput.py and bench/peers, from the start of Python to its
end, against a stub that answers at once. A peer is measured where `python -m bench.peers.install` has put it, and is
said to be absent elsewhere. Prints JSON: median wall milliseconds of calls in turn; bare Python's are among them.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import peers


def milliseconds(command: list[str]) -> float:
    """In an empty folder, which is also its home: some write where they stand."""
    with tempfile.TemporaryDirectory() as home:
        given: dict[str, Any] = {"cwd": home, "env": peers.environment(home)}
        started = time.perf_counter()
        subprocess.run(
            command,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **given,
        )
        return 1000 * (time.perf_counter() - started)


def median(values: list[float]) -> float:
    """Not the library's: a neighbour of this script is called statistics, too."""
    return sorted(values)[len(values) // 2]


def commands(
    present: list[str], manifest: Path, url: str
) -> dict[str, dict[str, list[str]]]:
    """By contender, what is timed."""
    given = ["--manifest", str(manifest), "--url", url]
    python = Path(sys.executable)
    ours = [str(python), "-m", "bench.throughput", "--as", "editjudge", *given]
    found = {
        "python": {"import": [str(python), "-c", "pass"]},
        "editjudge": contender(python, "editjudge", "editjudge", ours),
    }
    for name in present:
        peer = peers.PEERS[name]
        its = peers.python_of(name)
        found[name] = contender(
            its, peers.tool(name), peer.command, [str(its), "-m", peer.module, *given]
        )
    return found


def contender(
    python: Path, package: str, program: str | None, judging: list[str]
) -> dict[str, list[str]]:
    helped = {"help": [str(python.with_name(program)), "--help"]} if program else {}
    return {
        "import": [str(python), "-c", f"import {package}"],
        **helped,
        "one_edit": judging,
    }


BARE = """
import asyncio, sys, aiohttp
async def send():
    async with aiohttp.ClientSession() as session, session.post(sys.argv[1], json={}):
        pass
asyncio.run(send())
"""


def until_first_request(command: Callable[[str], list[str]]) -> dict[str, float]:
    """Milliseconds, wall and CPU, until a process that is given an address sends a request there; it is ended then."""
    # Compiled modules are used, as they are wherever a package is installed.
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONDONTWRITEBYTECODE"
    }
    # A server for each: what another process has sent besides would be taken for the first request of this one.
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        tempfile.TemporaryFile() as errors,
    ):
        server.settimeout(60)
        words = command(f"http://127.0.0.1:{server.getsockname()[1]}/v1")
        started = time.perf_counter()
        process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=errors, env=environment
        )
        try:
            client, _ = server.accept()
            with client:
                assert client.recv(4) == b"POST"
                wall = 1000 * (time.perf_counter() - started)
        except TimeoutError:
            errors.seek(0)
            raise SystemExit(
                f"{words[0]} sent nothing: {errors.read().decode()}"
            ) from None
        finally:
            process.kill()
            _, process.returncode, usage = os.wait4(process.pid, 0)
        return {"wall": wall, "cpu": 1000 * (usage.ru_utime + usage.ru_stime)}


def first_requests(calls: int) -> dict[str, Any]:
    """Medians, in turn, so that a busy machine slows all alike; the first call of each compiles modules."""
    from bench.resume import make_manifest

    with tempfile.TemporaryDirectory() as name:
        run = [
            str(Path(sys.executable).with_name("editjudge")),
            "run",
            str(make_manifest(Path(name), 100)),
        ]
        run += ["--judge", "openai-compatible/stub"]
        stores = (str(Path(name, f"{call}.db")) for call in range(calls + 1))
        contenders: dict[str, Callable[[str], list[str]]] = {
            "bare": lambda url: [sys.executable, "-c", BARE, url],
            "bare_with_sqlalchemy": lambda url: [
                sys.executable,
                "-c",
                f"import sqlalchemy{BARE}",
                url,
            ],
            "editjudge": lambda url: [*run, "--store", next(stores), "--base-url", url],
        }
        times = [
            {who: until_first_request(command) for who, command in contenders.items()}
            for _ in range(calls + 1)
        ]
    medians = {
        kind: {
            who: round(median([one[who][kind] for one in times[1:]]), 1)
            for who in contenders
        }
        for kind in ("wall", "cpu")
    }
    ratios = {
        kind: {who: round(of[who] / of["bare"], 2) for who in of}
        for kind, of in medians.items()
    }
    return {"milliseconds": medians, "ratio": ratios}


def main() -> None:
    # Not above: bench.throughput is what the contenders import.
    from bench.throughput import make_edits, stub

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=9)
    parser.add_argument("--first-request", action="store_true")
    options = parser.parse_args()
    calls = options.calls
    if options.first_request:
        print(
            json.dumps(
                {"calls": calls, "load": os.getloadavg()[0], **first_requests(calls)},
                indent=2,
            )
        )
        return
    present, absent = peers.installed()
    with tempfile.TemporaryDirectory() as name, stub() as url:
        timed = commands(present, make_edits(Path(name), "jpeg", 1), url)
        times: dict[str, dict[str, list[float]]] = {
            who: {what: [] for what in each} for who, each in timed.items()
        }
        for _ in range(calls):
            for who, each in timed.items():
                for what, command in each.items():
                    times[who][what].append(milliseconds(command))
    told: dict[str, Any] = {
        who: {what: round(median(each), 1) for what, each in found.items()}
        for who, found in times.items()
    }
    print(
        json.dumps({"calls": calls, "absent": absent, "milliseconds": told}, indent=2)
    )


if __name__ == "__main__":
    main()
