"""How far a run is, for callers in Python: a bar in a notebook or a terminal, else nothing."""

from __future__ import annotations

import html
import sys
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

from editjudge.run.summary import RunTally

_EVERY = 0.2
"""Seconds between drawings: more cannot be read."""


class NotebookBar:
    """A bar below the cell, which updates in place."""

    def __init__(self, display: Any) -> None:
        self._handle = display({"text/html": "", "text/plain": ""}, raw=True, display_id=True)

    def draw(self, done: int, total: int | None, words: str) -> None:
        bar = f'<progress value="{done}" max="{max(total or 0, done, 1)}"></progress> ' if total else ""
        self._handle.update({"text/html": f"{bar}{html.escape(words)}", "text/plain": words}, raw=True)

    def close(self) -> None:
        pass


class TerminalBar:
    """A bar on standard error."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (BarColumn(bar_width=20), TextColumn("{task.description}"))
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task("", total=None)
        self._progress.start()

    def draw(self, done: int, total: int | None, words: str) -> None:
        self._progress.update(self._task, completed=done, total=total, description=words)

    def close(self) -> None:
        self._progress.stop()


class Progress:
    """Draws a run's tally at most so often; the last state stays below a notebook's cell."""

    def __init__(self, bar: NotebookBar | TerminalBar) -> None:
        self.total: int | None = None
        self._bar, self._drawn, self._tally = bar, 0.0, RunTally()

    def __call__(self, tally: RunTally) -> None:
        self._tally = tally
        if time.monotonic() - self._drawn > _EVERY:
            self._draw()

    def close(self) -> None:
        self._draw()
        self._bar.close()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        self._bar.draw(self._tally.total, self.total, described(self._tally, self.total))


def described(tally: RunTally, total: int | None) -> str:
    """How many judgements, how long still, what it cost, what failed."""
    parts = [f"{tally.total:,}{f' of {max(total, tally.total):,}' if total else ''} judgements"]
    seconds = time.monotonic() - tally.started
    left = max((total or 0) - tally.total, 0)
    if left and tally.asked:
        parts.append(f"about {timedelta(seconds=round(left * seconds / tally.asked))} left")
    if tally.cached:
        parts.append(f"{tally.cached:,} from the store")
    if tally.cost:
        parts.append(f"${tally.cost:.2f}")
    failed = {status: n for status, n in tally.statuses.items() if status not in ("ok", "abstained")}
    parts.append("failed: " + ", ".join(f"{n:,} {status}" for status, n in failed.items()) if failed else "0 failed")
    return ", ".join(parts)


def progress_for(wanted: bool | None) -> Progress | None:
    """None where nothing is to be shown: `wanted` is False, or undecided outside a notebook and a terminal."""
    if wanted is False:
        return None
    if display := _notebook_display():
        return Progress(NotebookBar(display))
    return Progress(TerminalBar()) if wanted or sys.stderr.isatty() else None


def _notebook_display() -> Any:
    """IPython's `display` inside a kernel; None elsewhere. Nothing is imported that is not there already."""
    with suppress(Exception):  # whatever a half-installed IPython raises
        ipython = sys.modules["IPython"]
        if "IPKernelApp" in ipython.get_ipython().config:
            return ipython.display.display
    return None
