"""Start-up: importing, `--help`, and a whole process that judges one edit, beside peers in venvs of their own.

    python -m bench.startup [--calls 9]

The edit is judged by each contender's script of bench/throughput.py and bench/peers, from the start of Python to its
end, against a stub that answers at once. A peer is measured where `python -m bench.peers.install` has put it, and is
said to be absent elsewhere. Prints JSON: median wall milliseconds of calls in turn; bare Python's are among them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import peers


def milliseconds(command: list[str]) -> float:
    """In an empty folder, which is also its home: some write where they stand."""
    with tempfile.TemporaryDirectory() as home:
        given: dict[str, Any] = {"cwd": home, "env": peers.environment(home)}
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **given)
        return 1000 * (time.perf_counter() - started)


def median(values: list[float]) -> float:
    """Not the library's: a neighbour of this script is called statistics, too."""
    return sorted(values)[len(values) // 2]


def commands(present: list[str], manifest: Path, url: str) -> dict[str, dict[str, list[str]]]:
    """By contender, what is timed."""
    given = ["--manifest", str(manifest), "--url", url]
    python = Path(sys.executable)
    ours = [str(python), "-m", "bench.throughput", "--as", "editjudge", *given]
    found = {
        "python": {"import": [str(python), "-c", "pass"]},
        "editjudge": contender(python, "editjudge", "editjudge", ours),
    }
    for name in present:
        peer, its = peers.PEERS[name], peers.python_of(name)
        found[name] = contender(its, peers.tool(name), peer.command, [str(its), "-m", peer.module, *given])
    return found


def contender(python: Path, package: str, program: str | None, judging: list[str]) -> dict[str, list[str]]:
    helped = {"help": [str(python.with_name(program)), "--help"]} if program else {}
    return {"import": [str(python), "-c", f"import {package}"], **helped, "one_edit": judging}


def main() -> None:
    # Not above: bench.throughput is what the contenders import.
    from bench.throughput import make_edits, stub

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=9)
    calls = parser.parse_args().calls
    present, absent = peers.installed()
    with tempfile.TemporaryDirectory() as name, stub() as url:
        timed = commands(present, make_edits(Path(name), "jpeg", 1), url)
        times: dict[str, dict[str, list[float]]] = {who: {what: [] for what in each} for who, each in timed.items()}
        for _ in range(calls):
            for who, each in timed.items():
                for what, command in each.items():
                    times[who][what].append(milliseconds(command))
    told: dict[str, Any] = {
        who: {what: round(median(each), 1) for what, each in found.items()} for who, found in times.items()
    }
    print(json.dumps({"calls": calls, "absent": absent, "milliseconds": told}, indent=2))


if __name__ == "__main__":
    main()
