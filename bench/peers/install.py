"""Make a venv for each peer: `python -m bench.peers.install [NAME ...]`.

Each gets .venvs/NAME with the newest version that pip finds, at low priority, since wheels unpack for minutes. None
needs PyTorch for a judge behind HTTP; one that would pull it in is left out rather than made to wait for gigabytes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

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
    python = str(python_of(name))
    if not python_of(name).exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENVS / name)], check=True)
    pip = ["nice", "-n", "10", python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    dry = [*pip, "--dry-run", "--report", "-", *PEERS[name].requirements]
    plan = subprocess.run(dry, check=False, capture_output=True, text=True)
    if plan.returncode:
        return f"could not be installed: {(plan.stderr.strip().splitlines() or ['pip says nothing'])[-1]}"
    if heavy := HEAVY & planned(plan.stdout):
        return f"left out: it needs {', '.join(sorted(heavy))}"
    subprocess.run([*pip, *PEERS[name].requirements], check=True)
    return version(name)


def planned(report: str) -> set[str]:
    """The distributions that pip would install, by its own report."""
    return {item["metadata"]["name"].lower() for item in json.loads(report)["install"]}


if __name__ == "__main__":
    main()
