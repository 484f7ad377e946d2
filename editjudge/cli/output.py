"""Output of the verbs: JSON for programs, text and tables for people. Escape sequences from untrusted input are never
printed."""

from __future__ import annotations

import enum
import json
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from editjudge.errors import InputError, UsageError, printable

if TYPE_CHECKING:
    from editjudge.report.answers import Answer
    from editjudge.report.tables import Table


class ExitCode(enum.IntEnum):
    """Exit codes of the command."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    TOO_MANY_FAILED = 3
    BUDGET = 4
    GATE_FAILED = 100
    INTERRUPTED = 130


class VerbReply(NamedTuple):
    """The answer of a verb."""

    document: object
    """Document printed with `--json`."""
    lines: Iterable[str] = ()
    """Lines printed without `--json`, before the tables."""
    tables: Iterable[Table] = ()
    code: int = ExitCode.DONE

    @classmethod
    def of(cls, answer: Answer, code: int = ExitCode.DONE) -> VerbReply:
        return cls(answer.document, answer.lead, answer.tables, code)

    def print(self, *, as_json: bool) -> None:
        """Print the document for programs, or lines and tables for people."""
        tables = list(self.tables)
        if as_json:
            emit(self.document)
        elif tables:
            show(self.lines, tables)
        else:
            for line in self.lines:
                click.echo(printable(line))


def emit(document: object) -> None:
    """Print a document as ASCII, so the output does not depend on the terminal's encoding."""
    click.echo(json.dumps(document, indent=2, allow_nan=False))


def show(lead: Iterable[str], tables: Iterable[Table]) -> None:
    """Print leading lines, then tables separated by empty lines.

    On a terminal, tables fit its width and are coloured unless NO_COLOR is set. In a pipe they are plain and have every
    column.
    """
    from rich.console import Console

    from editjudge.report.tables import WIDTH, Table

    console = Console(highlight=False)
    is_terminal = sys.stdout.isatty()
    # A terminal of unknown size counts as 80 columns wide, as in Rich, so that cells are not broken.
    columns = shutil.get_terminal_size((80 if is_terminal else WIDTH, 24)).columns
    fixed = max(60, min(WIDTH, columns))
    is_fixed = is_terminal or "COLUMNS" in os.environ
    lines = [Table((), (), line) for line in lead]
    for number, table in enumerate([*lines, *tables]):
        if number >= max(1, len(lines)):
            click.echo()
        width = fixed if is_fixed else max(WIDTH, table.width())
        if is_terminal and not (console.no_color or console.is_dumb_terminal):
            console.print(table.renderable(width), width=width)
        else:
            click.echo(table.text(width))


def count(number: int, noun: str) -> str:
    """Return a number and its noun, such as `1 run` or `2 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def read_text(path: str, limit: int) -> str:
    """Return the content of a UTF-8 text file, or of standard input for `-`, up to a size limit."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(limit + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(limit + 1)
        if len(data) > limit:
            raise InputError(f"{path}: larger than {limit:,} bytes")
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}") from None
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}", code="unreadable_file"
        ) from None


def confirmed(question: str) -> bool:
    """Ask the user for confirmation, and return whether it was given."""
    try:
        return click.confirm(printable(question), err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise UsageError(
            "no terminal to confirm on, so nothing was removed: repeat the command with --yes"
        ) from None
