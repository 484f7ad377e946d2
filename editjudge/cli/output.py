"""Output of the verbs: JSON for programs, text for people, without escape sequences from untrusted input."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import click

from editjudge.errors import InputError, UsageError

json_option = click.option(
    "--json", "as_json", is_flag=True, help="One JSON document on standard output."
)

# Everything that moves the cursor, recolours or reorders a line, but for newline and tab.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def emit(document: Any) -> None:
    """ASCII, so that it does not depend on the terminal's encoding."""
    click.echo(json.dumps(document, indent=2, allow_nan=False))


def tell(as_json: bool, document: Any, words: str) -> None:
    """The document for programs, or one line for people."""
    if as_json:
        emit(document)
    else:
        click.echo(safe(words))


def safe(text: str) -> str:
    """Untrusted text as it may be shown on a terminal."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


def one_line(text: str) -> str:
    """Untrusted text on one line, so that it cannot imitate a line of ours."""
    return safe(" ".join(text.split()))


def read_text(path: str, most: int) -> str:
    """A text file or, for `-`, standard input: UTF-8, bounded."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(most + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(most + 1)
        if len(data) > most:
            raise InputError(f"{safe(path)}: larger than {most:,} bytes")
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{safe(path)}: not UTF-8 at byte {error.start}") from None
    except OSError as error:
        raise InputError(f"{safe(path)}: cannot be read: {error.strerror}") from None


def agreed(question: str) -> bool:
    """Ask for confirmation."""
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise UsageError(
            "no terminal to confirm on, so nothing was removed: repeat the command with --yes"
        ) from None
