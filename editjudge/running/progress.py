"""Progress of a run: its counts, and the lines or bars that display them."""

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
"""Seconds between lines, so a log of an hour stays readable."""
_DRAWINGS = 0.1
"""Seconds between updates of a bar. A terminal does not show more, and each update costs a millisecond."""

NOT_ASKED = ("missing_output", "missing_input", "bad_image")
"""Statuses of tasks that were not passed to a judge."""


@dataclass
class RunTally:
    """Counts of what a run has done so far."""

    statuses: Counter[str] = field(default_factory=Counter)
    cached: int = 0
    """Number of judgements that already existed."""
    asked: int = 0
    """Number of tasks that were passed to a judge. Tasks with missing images are not counted."""
    replies: int = 0
    """Number of replies that were paid for."""
    cost: float = 0.0
    estimated: float = 0.0
    """Part of the cost that is for unanswered requests that may be billed."""
    unpriced: int = 0
    """Number of judgements whose cost is unknown."""
    left_out: int = 0
    """Number of edits left out because an earlier run, to which a condition refers, does not have them."""
    not_applicable: int = 0
    """Number of questions that do not apply to their edit: `when` is false, or the list is empty."""
    removed: int = 0
    """Number of edits that are no longer in the manifest."""
    expected: int | None = None
    """Number of judgements that the run was to have when it began; None if it is not known in advance."""
    ruled_out: int = 0
    """Number of these that earlier answers ruled out."""
    models: dict[str, Counter[str]] = field(default_factory=dict)
    """Number of replies by the model that the server named, for each judge."""
    started: float = field(default_factory=time.monotonic)

    @property
    def total(self) -> int:
        return self.statuses.total()

    @property
    def goal(self) -> int | None:
        """Number of judgements that the run will have, as far as is known."""
        if self.expected is None:
            return None
        return max(self.expected - self.ruled_out, self.total)

    @property
    def failed(self) -> int:
        return sum(n for status, n in self.statuses.items() if status not in DONE)

    def add(self, judgement: Judgement) -> None:
        self.statuses[judgement.status] += 1
        self.asked += judgement.status not in NOT_ASKED
        self.replies += sum(
            1 for exchange in judgement.exchanges if exchange.finish != "error"
        )
        reported = [each.model for each in judgement.exchanges if each.model]
        self.models.setdefault(judgement.judge, Counter()).update(reported)
        if judgement.cost is not None:
            self.cost += judgement.cost
        elif judgement.exchanges:
            self.unpriced += 1

    def merge(self, other: RunTally, *, paid_only: bool = False) -> None:
        """Add the counts of another part of the run. With `paid_only`, add only its requests and costs."""
        for judge, models in other.models.items():
            self.models.setdefault(judge, Counter()).update(models)
        if not paid_only:
            self.statuses.update(other.statuses)
            self.cached += other.cached
            self.not_applicable += other.not_applicable
            self.ruled_out += other.ruled_out
        self.asked += other.asked
        self.replies += other.replies
        self.cost += other.cost
        self.estimated += other.estimated
        self.unpriced += other.unpriced


def described(tally: RunTally) -> str:
    """Return one line with progress, rate, remaining time, cost and failures."""
    total = f" of {tally.goal:,}" if tally.goal else ""
    return f"{tally.total:,}{total} judged, {_state(tally)}"


def _state(tally: RunTally) -> str:
    rate = tally.asked / max(time.monotonic() - tally.started, 1e-9)
    parts = [f"{rate:.1f}/s"]
    if tally.goal and tally.asked:
        left = (tally.goal - tally.total) / rate
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
    """Shows progress as lines on standard error."""

    def __init__(self, every: float = LINES, *, at_once: bool = False) -> None:
        self._every = every
        self._drawn = -math.inf if at_once else time.monotonic()

    def __call__(self, tally: RunTally) -> None:
        if time.monotonic() - self._drawn >= self._every:
            self._drawn = time.monotonic()
            self.draw(tally)

    def draw(self, tally: RunTally) -> None:
        self.say(described(tally))

    def say(self, message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


class TerminalBar(ProgressLines):
    """Shows progress as a Rich progress bar on standard error."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        super().__init__(_DRAWINGS, at_once=True)
        # The remaining time comes from the same tally as the rate next to it. Rich's own column would count existing
        # answers as speed.
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
            self._task, completed=tally.total, total=tally.goal, state=_state(tally)
        )

    def say(self, message: str) -> None:
        self._progress.console.print(message, markup=False, highlight=False)

    def close(self) -> None:
        self._progress.stop()


class NotebookBar(ProgressLines):
    """Shows progress as a bar below the notebook cell, which is updated in place. Its last state remains."""

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
        if tally.goal:
            bar = f'<progress value="{tally.total}" max="{tally.goal}"></progress> '
        text = described(tally)
        self._handle.update(
            {"text/html": bar + html.escape(text), "text/plain": text}, raw=True
        )

    def close(self) -> None:
        self.draw(self._tally)


def bar_console() -> Console | None:
    """Return the console for a progress bar. Return None if standard error is not a terminal, or if NO_COLOR or
    TERM=dumb rules out the escape sequences that a bar needs.
    """
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
    """Return the progress display for a run that is started from Python. Return None if `wanted` is False. If `wanted`
    is None, there is a display only in a notebook or on a terminal.
    """
    if wanted is False:
        return None
    if display := _notebook_display():
        return NotebookBar(display)
    return progress_on_terminal(quiet=False) if wanted or sys.stderr.isatty() else None


def _notebook_display() -> Any:
    """Return IPython's `display` if this is a notebook kernel, else None. IPython is not imported to find out."""
    with suppress(Exception):  # whatever a half-installed IPython raises
        ipython = sys.modules["IPython"]
        if "IPKernelApp" in ipython.get_ipython().config:
            return ipython.display.display
    return None
