"""Write the golden files anew, or into another folder:

    python -m tests.golden.take [FOLDER]

A golden file that changes is a result that changes for users: say why in the commit that changes it."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from .answers import PARTS, Answers, Folder, compact

HERE = Path(__file__).parent


def golden(answers: Answers) -> str:
    """Return the text of a golden file: an object with one answer a line."""
    lines = [f"{compact(name)}: {compact(answer)}" for name, answer in answers.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    """Ask everything and write what is answered."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    target.mkdir(parents=True, exist_ok=True)
    for name, part in PARTS.items():
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            found = part(Folder(Path(folder)))
        for file, answers in found.items():
            target.joinpath(f"{file}.json").write_text(golden(answers), "utf-8")
        sys.stdout.write(f"{name}: {time.monotonic() - began:.1f} s\n")


if __name__ == "__main__":
    main()
