"""Write the golden files anew, or into another folder:

    python -m tests.golden.take [--wording] [FOLDER]

With --wording, only `wording/VERB.txt`: what each verb says to people. The other golden files hold results: one that
changes is a result that changes for users, so say why in the commit that changes it."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from . import wording
from .answers import PARTS, Answers, Folder, compact

HERE = Path(__file__).parent


def golden(answers: Answers) -> str:
    """Return the text of a golden file: an object with one answer a line."""
    lines = [f"{compact(name)}: {compact(answer)}" for name, answer in answers.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    """Ask everything and write what is answered."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--wording", action="store_true")
    parser.add_argument("folder", nargs="?", type=Path, default=HERE)
    arguments = parser.parse_args()
    if not arguments.wording:
        _write_results(arguments.folder)
    began = time.monotonic()
    target = arguments.folder / wording.HERE.name
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for verb, text in wording.spoken(Path(folder)).items():
            target.joinpath(f"{verb}.txt").write_text(text, "utf-8")
    sys.stdout.write(f"wording: {time.monotonic() - began:.1f} s\n")


def _write_results(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name, part in PARTS.items():
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            results = part(Folder(Path(folder)))
        for file, answers in results.items():
            target.joinpath(f"{file}.json").write_text(golden(answers), "utf-8")
        sys.stdout.write(f"{name}: {time.monotonic() - began:.1f} s\n")


if __name__ == "__main__":
    main()
