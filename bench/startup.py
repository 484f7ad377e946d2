"""Start-up: `import editjudge` and `editjudge --help` beside bare Python, and beside peers in venvs of their own.

    python bench/startup.py [--venvs .venvs]

A peer is measured where `VENVS/NAME/bin/python` exists, and is said to be absent elsewhere. Prints JSON: median wall
milliseconds of 15 calls in turn, and how many that is over bare Python in the same run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CALLS = 15
PEERS = {"deepeval": "import deepeval", "inspect_ai": "import inspect_ai", "evalscope": "import evalscope"}


def milliseconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return 1000 * (time.perf_counter() - started)


def median(values: list[float]) -> float:
    """Not the library's: a neighbour of this script is called statistics, too."""
    return sorted(values)[len(values) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venvs", type=Path, default=Path(".venvs"))
    venvs = parser.parse_args().venvs
    python = sys.executable
    commands = {
        "python -c pass": [python, "-c", "pass"],
        "import editjudge": [python, "-c", "import editjudge"],
        "editjudge --help": [str(Path(python).with_name("editjudge")), "--help"],
        "import click": [python, "-c", "import click"],
    }
    absent = []
    for name, statement in PEERS.items():
        peer = venvs / name / "bin" / "python"
        if peer.exists():
            commands[f"{name}: import"] = [str(peer), "-c", statement]
        else:
            absent.append(name)
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(CALLS):
        for name, command in commands.items():
            times[name].append(milliseconds(command))
    bare = median(times["python -c pass"])
    told: dict[str, Any] = {
        name: {"ms": round(median(t), 1), "over_python_ms": round(median(t) - bare, 1)} for name, t in times.items()
    }
    print(json.dumps(told | {"absent": absent}, indent=2))


if __name__ == "__main__":
    main()
