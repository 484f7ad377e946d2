"""What an installation weighs: the wheel with each extra, and each peer, in an empty venv of its own.

    python -m bench.sizes [--only NAME ...]

Builds the wheel. Megabytes are the bytes of all files that pip put there, compiled ones included, without pip itself;
milliseconds are medians of seven imports in a fresh process, over bare Python in the same venv in turn. A peer comes
with what it needs for a judge behind an OpenAI-compatible URL. What needs PyTorch is not installed. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from bench import peers
from bench.peers.install import pip, refusal
from bench.startup import median, milliseconds

CALLS = 7
OURS = {
    "core": "editjudge.api",
    "parquet": "editjudge.store.tables, pyarrow.parquet",
    "heic": "pillow_heif",
    "stats": "editjudge.stats.compare",
    "measured": "editjudge.vision.measured",
    "probes": "editjudge.vision.probes.making",
    "web": "editjudge.web.app",
    "postgres": "psycopg",
    "ray": "editjudge.cluster.driver, ray",
    "hf": "datasets",
    "inspect": "editjudge.integrations.inspect",
    "all": "editjudge.web.app",
}
"""Each extra, and what is imported where it is used."""
ELSEWHERE = ("lmms-eval", "vlmeval", "viescore", "editscore")
"""What else judges edits, asked for by name."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", default=[*OURS, *peers.TOOLS, *ELSEWHERE]
    )
    only = parser.parse_args().only
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        wheel = built(folder)
        asked: dict[str, tuple[str, ...]] = {
            extra: (f"{wheel}[{extra}]" if extra != "core" else str(wheel),)
            for extra in OURS
        }
        asked |= {peer: peers.PEERS[peer].requirements for peer in peers.TOOLS}
        asked |= {other: (other,) for other in ELSEWHERE}
        modules = OURS | {peer: peer for peer in peers.TOOLS}
        found = {}
        for name in (name for name in asked if name in only):
            print(name, file=sys.stderr, flush=True)
            found[name] = weighed(folder, asked[name], modules.get(name, ""))
        print(
            json.dumps(
                {"wheel_kb": round(wheel.stat().st_size / 1000), **found}, indent=2
            )
        )


def built(folder: Path) -> Path:
    wheel = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
    ]
    subprocess.run(
        [*wheel, "-w", str(folder), str(peers.ROOT)],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    (made,) = folder.glob("editjudge-*.whl")
    return made


def weighed(
    folder: Path, requirements: tuple[str, ...], modules: str
) -> dict[str, Any]:
    """One venv at a time: together they would be gigabytes."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", place], check=True
        )
        before = size(Path(place))
        python = Path(place, "bin", "python")
        if ".whl" not in requirements[0] and (refused := refusal(python, requirements)):
            return {"could_not_be_run": refused}
        (packages,) = Path(place).glob("lib/python*/site-packages")
        subprocess.run(
            [*pip(python), "--no-compile", *requirements],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        # What pip does on one core; templates among the files are no Python, so that it may well complain.
        compiled = [str(python), "-m", "compileall", "-q", "-j", "0", str(packages)]
        subprocess.run(compiled, check=False, stdout=subprocess.DEVNULL)
        names = sorted(path.name.split("-")[0] for path in packages.glob("*.dist-info"))
        figures = {
            "mb": round((size(Path(place)) - before) / 1e6, 1),
            "packages": len(names),
        }
        ours = {"editjudge": "editjudge"} if "editjudge" in names else {}
        return {
            **figures,
            **imports(python, ours | {"used": modules}),
            "needs": needs(requirements),
        }


def size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def imports(python: Path, modules: dict[str, str]) -> dict[str, float]:
    codes = {"": "pass"} | {
        name: f"import {module}" for name, module in modules.items()
    }
    times: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(CALLS + 1):
        for name, code in codes.items():
            # Isolated: what the path leads to is not what was installed.
            times[name].append(milliseconds([str(python), "-I", "-c", code]))
    # The first of each reads the disk.
    bare, *rest = (median(each[1:]) for each in times.values())
    return {
        f"import_{name}_ms": round(took - bare, 1)
        for name, took in zip(modules, rest, strict=True)
    }


def needs(requirements: tuple[str, ...]) -> list[str]:
    """What is asked for by name: an extra's own list, or the distributions of a peer."""
    if ".whl" not in requirements[0]:
        return list(requirements)
    project = tomllib.loads((peers.ROOT / "pyproject.toml").read_text())["project"]
    extra = requirements[0].partition("[")[2].rstrip("]")
    return list(
        project["optional-dependencies"][extra] if extra else project["dependencies"]
    )


if __name__ == "__main__":
    main()
