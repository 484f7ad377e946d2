"""All benchmarks into one file of figures and one page: docs/benchmarks.json and docs/benchmarks.md.

    python -m bench.benchmarks                              every section but `million`, each on a machine left alone
    python -m bench.benchmarks throughput faults            these again; the others keep their figures and dates
    python -m bench.benchmarks resume --with="--edits 100"  one section with options of its own
    python -m bench.benchmarks million --from FILE          figures that the section's command printed before
    python -m bench.benchmarks --page                       only the page, from the figures that are there

A section is what one benchmark printed, with its command, date, machine and versions. One that fails keeps what it had.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench import benchmarks_page, peers

DOCS = peers.ROOT / "docs"
COMMANDS = {
    "throughput": "bench.throughput --peers",
    "faults": "bench.faults",
    "startup": "bench.startup",
    "sizes": "bench.sizes",
    "resume": "bench.resume",
    "store": "bench.store",
    "rewards": "bench.rewards",
    "web": "bench.web --million",
    "scale": "bench.scale --resume 100000",
    "statistics": "bench.statistics",
    "measured": "bench.measured",
    "million": "bench.scale --edits 3334 333334 --judge stub --contenders local",
}
"""The order is that of the page."""
LONG = {"million"}
"""Half an hour and more: only when asked for."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=", ".join(COMMANDS)
    )
    parser.add_argument(
        "--with",
        dest="options",
        metavar="OPTIONS",
        help="in place of the section's own",
    )
    parser.add_argument(
        "--from", dest="printed", type=Path, metavar="FILE", help="read, not run"
    )
    parser.add_argument(
        "--into",
        type=Path,
        default=DOCS / "benchmarks.json",
        help="the page stands beside it",
    )
    parser.add_argument("--page", action="store_true", help="run nothing")
    asked = parser.parse_args()
    names = asked.sections or [
        name for name in COMMANDS if name not in LONG and not asked.page
    ]
    if unknown := [name for name in names if name not in COMMANDS]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(COMMANDS)}")
    if (asked.printed or asked.options is not None) and len(names) != 1:
        parser.error("--with and --from go with one section")
    failed = 0
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            section = (
                read(name, asked.printed, asked.options)
                if asked.printed
                else run(name, asked.options)
            )
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            print(
                f"{name} failed and keeps the figures that it had: {error}",
                file=sys.stderr,
            )
            failed = 1
        else:
            keep(asked.into, name, section)
    asked.into.with_suffix(".md").write_text(
        benchmarks_page.page(kept(asked.into)), "utf-8"
    )
    return failed


def run(name: str, options: str | None = None) -> dict[str, Any]:
    words = _words(name, options)
    load = os.getloadavg()[0]
    started = time.monotonic()
    command = [sys.executable, "-m", *words]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, cwd=peers.ROOT
    )
    stamp = {
        "command": shlex.join(["python", "-m", *words]),
        "date": today(time.time()),
    }
    took = {
        "minutes": round((time.monotonic() - started) / 60, 1),
        "load_before": round(load, 2),
    }
    return {
        **stamp,
        **took,
        "machine": machine(),
        "versions": versions(),
        "found": json.loads(done.stdout),
    }


def _words(name: str, options: str | None) -> list[str]:
    words = COMMANDS[name].split()
    return words if options is None else [words[0], *shlex.split(options)]


def read(name: str, printed: Path, options: str | None = None) -> dict[str, Any]:
    """On this machine, by this version and with these options: that is for who calls it to know."""
    stamp = {
        "command": shlex.join(["python", "-m", *_words(name, options)]),
        "date": today(printed.stat().st_mtime),
    }
    found = json.loads(printed.read_text("utf-8"))
    return {**stamp, "machine": machine(), "versions": versions(), "found": found}


def today(moment: float) -> str:
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).date().isoformat()


def machine() -> dict[str, Any]:
    chips = [
        line
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    processor = chips[0].partition(": ")[2] if chips else platform.machine()
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "memory_gb": round(memory),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
    }


def versions() -> dict[str, str]:
    from bench.faults import versions as found

    return found(peers.installed()[0])


def kept(place: Path) -> dict[str, Any]:
    sections: dict[str, Any] = (
        json.loads(place.read_text("utf-8")) if place.exists() else {}
    )
    return sections


def keep(place: Path, name: str, section: dict[str, Any]) -> None:
    """After each section, so that the last one's failure costs nothing but itself."""
    sections = kept(place) | {name: section}
    ordered = {known: sections[known] for known in COMMANDS if known in sections}
    place.write_text(json.dumps(ordered, indent=1, allow_nan=False) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
