"""Make a venv for each peer: `python -m bench.peers.install [NAME ...]`.

Each gets .venvs/NAME with the newest version that pip finds. None needs PyTorch for a judge behind HTTP; one that would
pull it in is left out rather than made to wait for gigabytes.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

from bench.peers import PEERS, TOOLS, VENVS, python_of, version

HEAVY = {"torch", "torchvision"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TOOLS))
    names = parser.parse_args().names or TOOLS
    if unknown := [name for name in names if name not in TOOLS]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(TOOLS)}")
    print(json.dumps({name: install(name) for name in names}, indent=2))


def install(name: str) -> str:
    """The version that is there in the end, or why there is none."""
    python = python_of(name)
    wanted = PEERS[name].requirements
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENVS / name)], check=True)
    if refused := refusal(python, wanted):
        return refused
    subprocess.run([*pip(python), *wanted], check=True, stderr=subprocess.DEVNULL)
    return version(name)


def pip(python: Path) -> list[str]:
    into = [
        "--python",
        str(python),
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    return [sys.executable, "-m", "pip", *into]


def refusal(python: Path, wanted: tuple[str, ...]) -> str:
    """Why they are not to be installed for that Python, or nothing."""
    # Alone at first: where something asks for PyTorch, even finding out what that needs may fetch a gigabyte.
    for alone in (["--no-deps"], []):
        dry = [*pip(python), "--dry-run", "--report", "-", *alone, *wanted]
        plan = subprocess.run(dry, check=False, capture_output=True, text=True)
        if plan.returncode:
            return f"could not be installed: {(plan.stderr.strip().splitlines() or ['pip says nothing'])[-1]}"
        if heavy := HEAVY & planned(plan.stdout):
            return f"left out: it needs {', '.join(sorted(heavy))}"
    return ""


def planned(report: str) -> set[str]:
    """The distributions that pip would install, and those that they ask for without an extra, by its own report."""
    found = [item["metadata"] for item in json.loads(report)["install"]]
    asked = [
        need
        for item in found
        for need in item.get("requires_dist", [])
        if "extra ==" not in need
    ]
    return {
        re.split(r"[^\w.-]", name)[0].lower()
        for name in (*(item["name"] for item in found), *asked)
    }


if __name__ == "__main__":
    main()
