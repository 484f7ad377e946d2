"""How far a run is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

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
        self._said = time.monotonic()

    def __call__(self, tally: RunTally) -> None:
        if time.monotonic() - self._said >= self._every:
            self._said = time.monotonic()
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
            TextColumn("{task.fields[told]}"),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=total, told="")
        self._progress.start()
        self._drawn = 0.0

    def __call__(self, tally: RunTally) -> None:
        if time.monotonic() - self._drawn > 0.1:  # a terminal shows no more, and each drawing costs a millisecond
            self._drawn = time.monotonic()
            self._progress.update(self._task, completed=tally.total, told=_told(tally, self._total))

    def say(self, message: str) -> None:
        self._progress.console.print(message, markup=False, highlight=False)

    def close(self) -> None:
        self._progress.stop()


def watcher(total: int | None, *, quiet: bool) -> Plain | ProgressBar:
    """A bar draws over itself, which takes escape sequences: not where NO_COLOR or TERM=dumb ask for none."""
    from rich.console import Console

    console = Console(stderr=True)  # minds FORCE_COLOR
    plain = quiet or console.no_color or console.is_dumb_terminal or not console.is_terminal
    return Plain(total, quiet) if plain else ProgressBar(total, console)


def describe(tally: RunTally, total: int | None) -> str:
    """One line: how many, how fast, how long still, what it cost, what failed."""
    return f"{tally.total:,}{f' of {total:,}' if total else ''} judged, {_told(tally, total)}"


def _told(tally: RunTally, total: int | None) -> str:
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


def edits_in(manifest: Path) -> int | None:
    """About how many edits a manifest holds, from its size alone; None where that takes reading it."""
    if manifest.suffix.lower() in (".jsonl", ".ndjson", ".csv") and manifest.is_file():
        with suppress(OSError), manifest.open("rb") as file:
            lines = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
            return lines - (manifest.suffix.lower() == ".csv")
    return None
