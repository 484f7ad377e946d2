"""Progress of a run: its counts, and the lines or the bar that show them."""

from __future__ import annotations

import html
import math
import os
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from editjudge.judgement import DONE, Judgement

if TYPE_CHECKING:
    from rich.console import Console

LINES = 10.0
"""Seconds between lines: a log of an hour stays readable."""
_DRAWINGS = 0.1
"""Seconds between drawings of a bar: a terminal shows no more, and each costs a millisecond."""

NOT_ASKED = ("missing_output", "missing_input", "bad_image")
"""Statuses of tasks that no judge was given."""


@dataclass
class RunTally:
    """Counts of a run so far."""

    statuses: Counter[str] = field(default_factory=Counter)
    cached: int = 0
    """Judgements that were there already."""
    asked: int = 0
    """Tasks that a judge was given: not those whose images are missing."""
    replies: int = 0
    """Replies that were paid for."""
    cost: float = 0.0
    estimated: float = 0.0
    """Part of the cost for requests that brought no answer and may be billed."""
    unpriced: int = 0
    """Judgements whose cost is unknown."""
    left_out: int = 0
    """Edits that an earlier run, named as a condition, does not have."""
    not_applicable: int = 0
    """Questions of a rubric that is not for that edit: `when` does not hold, or the list is empty."""
    removed: int = 0
    """Edits that the run had and the manifest no longer has."""
    expected: int | None = None
    """Judgements of the run; None if that is not known beforehand."""
    started: float = field(default_factory=time.monotonic)

    @property
    def total(self) -> int:
        return self.statuses.total()

    @property
    def failed(self) -> int:
        return sum(n for status, n in self.statuses.items() if status not in DONE)

    def add(self, judgement: Judgement) -> None:
        self.statuses[judgement.status] += 1
        self.asked += judgement.status not in NOT_ASKED
        self.replies += sum(
            1 for exchange in judgement.exchanges if exchange.finish != "error"
        )
        if judgement.cost is not None:
            self.cost += judgement.cost
        elif judgement.exchanges:
            self.unpriced += 1

    def merge(self, other: RunTally, *, paid_only: bool = False) -> None:
        """Add the counts of another part of the run, or only what its judges were asked and paid."""
        if not paid_only:
            self.statuses.update(other.statuses)
            self.cached += other.cached
            self.not_applicable += other.not_applicable
        self.asked += other.asked
        self.replies += other.replies
        self.cost += other.cost
        self.estimated += other.estimated
        self.unpriced += other.unpriced


def described(tally: RunTally) -> str:
    """Return one line: how many, how fast, how long still, what it cost, what failed."""
    total = f" of {max(tally.expected, tally.total):,}" if tally.expected else ""
    return f"{tally.total:,}{total} judged, {_state(tally)}"


def _state(tally: RunTally) -> str:
    rate = tally.asked / max(time.monotonic() - tally.started, 1e-9)
    parts = [f"{rate:.1f}/s"]
    if tally.expected and tally.asked:
        left = max(tally.expected - tally.total, 0) / rate
        parts.append(f"{timedelta(seconds=round(left))} left")
    if tally.cached:
        parts.append(f"{tally.cached:,} cached")
    cost = f"${tally.cost:.2f}"
    if tally.unpriced:
        cost = f"{cost} + unknown" if tally.cost else "cost unknown"
    counts = tally.statuses.items()
    failed = ", ".join(f"{n} {status}" for status, n in counts if status not in DONE)
    parts += [cost, f"failed: {failed}" if failed else "0 failed"]
    return ", ".join(parts)


class ProgressLines:
    """Lines on standard error."""

    def __init__(self, every: float = LINES, *, at_once: bool = False) -> None:
        self._every = every
        self._shown = -math.inf if at_once else time.monotonic()

    def __call__(self, tally: RunTally) -> None:
        if time.monotonic() - self._shown >= self._every:
            self._shown = time.monotonic()
            self.draw(tally)

    def draw(self, tally: RunTally) -> None:
        self.say(described(tally))

    def say(self, message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


class TerminalBar(ProgressLines):
    """A Rich progress bar on standard error."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        super().__init__(_DRAWINGS, at_once=True)
        # What is left comes from the same tally as the rate beside it: Rich's own column counts answers that were
        # there already as speed.
        self._progress = Progress(
            TextColumn("judging"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, state="")
        self._progress.start()

    def draw(self, tally: RunTally) -> None:
        self._progress.update(
            self._task, completed=tally.total, total=tally.expected, state=_state(tally)
        )

    def say(self, message: str) -> None:
        self._progress.console.print(message, markup=False, highlight=False)

    def close(self) -> None:
        self._progress.stop()


class NotebookBar(ProgressLines):
    """A bar below the cell, which updates in place; the last state stays."""

    def __init__(self, display: Any) -> None:
        super().__init__(2 * _DRAWINGS, at_once=True)
        self._handle = display(
            {"text/html": "", "text/plain": ""}, raw=True, display_id=True
        )
        self._tally = RunTally()

    def __call__(self, tally: RunTally) -> None:
        self._tally = tally
        super().__call__(tally)

    def draw(self, tally: RunTally) -> None:
        bar = ""
        if tally.expected:
            largest = max(tally.expected, tally.total)
            bar = f'<progress value="{tally.total}" max="{largest}"></progress> '
        text = described(tally)
        self._handle.update(
            {"text/html": bar + html.escape(text), "text/plain": text}, raw=True
        )

    def close(self) -> None:
        self.draw(self._tally)


def bar_console() -> Console | None:
    """Return the console of a bar; None if NO_COLOR or TERM=dumb ask for no escape sequences, with which it draws over
    itself."""
    # Checked before Rich is imported, which takes longer than planning a hundred edits.
    if not (sys.stderr.isatty() or os.environ.get("FORCE_COLOR")):
        return None
    from rich.console import Console

    console = Console(stderr=True)
    plain = console.no_color or console.is_dumb_terminal or not console.is_terminal
    return None if plain else console


def progress_on_terminal(*, quiet: bool) -> ProgressLines:
    if quiet:
        return ProgressLines(math.inf)
    console = bar_console()
    return TerminalBar(console) if console else ProgressLines()


def progress_for(wanted: bool | None) -> ProgressLines | None:
    """Return the progress of a run that is called from Python. None if nothing is to be shown: `wanted` is False, or
    undecided outside a notebook and a terminal."""
    if wanted is False:
        return None
    if display := _notebook_display():
        return NotebookBar(display)
    return progress_on_terminal(quiet=False) if wanted or sys.stderr.isatty() else None


def _notebook_display() -> Any:
    """Return IPython's `display` inside a kernel; None elsewhere. Nothing is imported that is not there already."""
    with suppress(Exception):  # whatever a half-installed IPython raises
        ipython = sys.modules["IPython"]
        if "IPKernelApp" in ipython.get_ipython().config:
            return ipython.display.display
    return None
