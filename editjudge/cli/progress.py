"""Progress of a run: a bar on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import csv
import json
import math
import os
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from editjudge.run.summary import RunTally

_EVERY = 10.0
"""Seconds between plain lines: a log of an hour stays readable."""


class Plain:
    """Lines on standard error."""

    def __init__(self, total: int | None, quiet: bool) -> None:
        self._total = total
        self._every = math.inf if quiet else _EVERY
        self._printed = time.monotonic()

    def __call__(self, tally: RunTally) -> None:
        if time.monotonic() - self._printed >= self._every:
            self._printed = time.monotonic()
            click.echo(describe(tally, self._total), err=True)

    def say(self, message: str) -> None:
        click.echo(message, err=True)

    def close(self) -> None:
        pass


class ProgressBar:
    """A Rich progress bar on standard error."""

    def __init__(self, total: int | None, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        # What is left comes from the same tally as the rate beside it: Rich's own column counts answers that were
        # there already as speed.
        self._total = total
        self._progress = Progress(
            TextColumn("judging"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=total, state="")
        self._progress.start()
        self._drawn = 0.0

    def __call__(self, tally: RunTally) -> None:
        if time.monotonic() - self._drawn > 0.1:  # a terminal shows no more, and each drawing costs a millisecond
            self._drawn = time.monotonic()
            self._progress.update(self._task, completed=tally.total, state=_state(tally, self._total))

    def say(self, message: str) -> None:
        self._progress.console.print(message, markup=False, highlight=False)

    def close(self) -> None:
        self._progress.stop()


def watcher(total: int | None, *, quiet: bool) -> Plain | ProgressBar:
    """A bar draws over itself, which takes escape sequences: not where NO_COLOR or TERM=dumb ask for none."""
    # Asked before Rich is imported, which takes longer than planning a hundred edits.
    if quiet or not (sys.stderr.isatty() or os.environ.get("FORCE_COLOR")):
        return Plain(total, quiet)
    from rich.console import Console

    console = Console(stderr=True)
    plain = console.no_color or console.is_dumb_terminal or not console.is_terminal
    return Plain(total, quiet) if plain else ProgressBar(total, console)


def describe(tally: RunTally, total: int | None) -> str:
    """One line: how many, how fast, how long still, what it cost, what failed."""
    return f"{tally.total:,}{f' of {total:,}' if total else ''} judged, {_state(tally, total)}"


def _state(tally: RunTally, total: int | None) -> str:
    rate = tally.asked / max(time.monotonic() - tally.started, 1e-9)
    parts = [f"{rate:.1f}/s"]
    if total and tally.asked:
        parts.append(f"{timedelta(seconds=round(max(total - tally.total, 0) / rate))} left")
    if tally.cached:
        parts.append(f"{tally.cached:,} cached")
    unpriced = "cost unknown" if not tally.cost else f"${tally.cost:.2f} + unknown"
    parts.append(unpriced if tally.unpriced else f"${tally.cost:.2f}")
    failed = {status: n for status, n in tally.statuses.items() if status not in ("ok", "abstained")}
    parts.append("failed: " + ", ".join(f"{n} {status}" for status, n in failed.items()) if failed else "0 failed")
    return ", ".join(parts)


_LARGEST = 256 * 2**20
"""Bytes of a manifest that is read for its models before a run begins: about two seconds."""


def edits_in(manifest: Path, models: Collection[str] = (), columns: Mapping[str, str] | None = None) -> int | None:
    """How many edits a manifest holds, of these models where they are named; None where that takes too long to tell."""
    suffix = manifest.suffix.lower()
    if suffix not in (".jsonl", ".ndjson", ".csv") or not manifest.is_file():
        return None
    with suppress(OSError, ValueError, csv.Error):
        if models:
            name = (columns or {}).get("model", "model")
            return _of_models(manifest, models, name) if manifest.stat().st_size <= _LARGEST else None
        with manifest.open("rb") as file:
            lines = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
        return lines - (suffix == ".csv")
    return None


def _of_models(manifest: Path, models: Collection[str], column: str) -> int:
    with manifest.open(encoding="utf-8-sig", newline="") as file:
        is_csv = manifest.suffix.lower() == ".csv"
        rows: Iterable[Any] = csv.DictReader(file) if is_csv else (json.loads(line) for line in file if line.strip())
        return sum(isinstance(row, dict) and row.get(column) in models for row in rows)
