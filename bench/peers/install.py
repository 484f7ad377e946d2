"""Make a venv for each peer: `python -m bench.peers.install [NAME ...]`.

Each gets .venvs/NAME with the newest version that pip finds, at low priority, since wheels unpack for minutes. None
needs PyTorch for a judge behind HTTP; one that would pull it in is left out rather than made to wait for gigabytes.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

from bench.peers import PEERS, VENVS, python_of, version

HEAVY = {"torch", "torchvision"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PEERS))
    names = parser.parse_args().names or list(PEERS)
    if unknown := [name for name in names if name not in PEERS]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(PEERS)}")
    print(json.dumps({name: install(name) for name in names}, indent=2))


def install(name: str) -> str:
    """The version that is there in the end, or why there is none."""
    if not python_of(name).exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENVS / name)], check=True)
    return into(python_of(name), PEERS[name].requirements) or version(name)


def into(python: Path, requirements: tuple[str, ...]) -> str:
    """Why they were not installed for that Python, or nothing."""
    pip = ["nice", "-n", "10", sys.executable, "-m", "pip", "--python", str(python), "install"]
    pip += ["--quiet", "--disable-pip-version-check"]
    # Without what they need at first: where it is PyTorch, even asking what that needs may fetch a gigabyte.
    for alone in (["--no-deps"], []):
        dry = [*pip, "--dry-run", "--report", "-", *alone, *requirements]
        plan = subprocess.run(dry, check=False, capture_output=True, text=True)
        if plan.returncode:
            return f"could not be installed: {(plan.stderr.strip().splitlines() or ['pip says nothing'])[-1]}"
        if heavy := HEAVY & planned(plan.stdout):
            return f"left out: it needs {', '.join(sorted(heavy))}"
    subprocess.run([*pip, *requirements], check=True, stderr=subprocess.DEVNULL)
    return ""


def planned(report: str) -> set[str]:
    """The distributions that pip would install, and those that they ask for without an extra, by its own report."""
    found = [item["metadata"] for item in json.loads(report)["install"]]
    asked = [need for item in found for need in item.get("requires_dist", []) if "extra ==" not in need]
    return {re.split(r"[^\w.-]", name)[0].lower() for name in (*(item["name"] for item in found), *asked)}


if __name__ == "__main__":
    main()
