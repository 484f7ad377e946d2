"""What the verbs say to people: the golden files `wording/VERB.txt`.

Each situation is its name, its command line, how it exits, and what it prints. What varies from one machine, version
or hour to the next is replaced by a mark."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from unittest import mock

from click.testing import CliRunner

import editjudge
from editjudge import cli

from . import made
from .situations import BEFORE, SITUATIONS, write_broken

HERE = Path(__file__).parent / "wording"
MARKS = {
    r"\b\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?)?\b": "<date>",
    r"(?<=\w-)[0-9a-f]{8}\b|(?<=spec )[0-9a-f]{16}\b": "<digest>",
    r"\b[\d.,]+/s\b": "<rate>",
    r"\b\d+:\d\d:\d\d\b": "<duration>",
    r"\b\d+(\.\d+)? s\b": "<seconds>",
    r"(?<=EDITJUDGE_TOKEN=)\S+": "<token>",
    rf"(?<=genai-prices )[\d.]+\d|\b{re.escape(editjudge.__version__)}\b": "<version>",
}
"""Patterns of what varies, and the marks that replace it."""


def spoken(folder: Path) -> dict[str, str]:
    """Return the text of every golden file, by verb."""
    made.write_all(folder)
    write_broken(folder)
    return {
        verb: "\n".join(
            _situation(folder, name, line) for name, line in situations.items()
        )
        for verb, situations in _prepared(folder).items()
    }


def difference(verb: str, text: str) -> Iterator[str]:
    """Return the lines in which a verb's wording differs from its golden file."""
    before = (HERE / f"{verb}.txt").read_text("utf-8").splitlines()
    return difflib.unified_diff(before, text.splitlines(), f"{verb}.txt", "now", n=4)


def _prepared(folder: Path) -> dict[str, dict[str, str]]:
    for line in BEFORE:
        code, out, err = _call(folder, line)
        assert code == 0, f"{line}: exit {code}\n{out}{err}"
        if line.startswith("pairs "):
            pairs = made.read_rows(folder / "pairs.jsonl")
            made.write_pair_replies(folder, "votes.jsonl", pairs)
    exported = folder / "exported"
    shutil.copytree(exported, folder / "unfinished")
    (folder / "unfinished" / "run.json").unlink()
    shutil.copytree(exported, folder / "changed")
    (folder / "changed" / "judgements.jsonl").write_text("", "utf-8")
    return SITUATIONS


def _situation(folder: Path, name: str, line: str) -> str:
    code, out, err = _call(folder, line)
    parts = [f"## {name}", f"$ editjudge {line}", f"exit {code}"]
    for stream, text in (("stdout", out), ("stderr", err)):
        if text:
            parts.append(f"{stream}:")
            parts += [f"  {row}".rstrip() for row in _marked(text, folder).splitlines()]
    return "\n".join(parts) + "\n"


def _call(folder: Path, line: str) -> tuple[int, str, str]:
    """Run a command line as the console script does; return its exit code and what it printed."""
    environment: dict[str, str | None] = {
        name: None for name in os.environ if name.endswith(("_API_KEY", "_BASE_URL"))
    }
    environment |= {"EDITJUDGE_STORE": "store.db", "COLUMNS": "100", "TERM": "dumb"}
    with (
        chdir(folder),
        CliRunner(env=environment).isolation() as (out, err, _),
        mock.patch.object(sys, "argv", ["editjudge", *shlex.split(line)]),
    ):
        try:
            cli.main()
        except SystemExit as left:
            code = left.code or 0
        return int(code), out.getvalue().decode(), err.getvalue().decode()


def _marked(text: str, folder: Path) -> str:
    text = text.replace(str(folder.resolve()), "<folder>")
    for pattern, mark in MARKS.items():
        text = re.sub(pattern, mark, text)
    return text
