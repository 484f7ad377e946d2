"""`--log`: the trackers that a run is logged to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from editjudge import plugins
from editjudge.errors import Option, UsageError, did_you_mean, one_line, printable
from editjudge.redaction import environment_secrets, redacted_text, without

if TYPE_CHECKING:
    from editjudge.report.tracking import TrackedRun
    from editjudge.store.store import Store


class Tracker(NamedTuple):
    """A tracker, and the place in it that `--log NAME:WHERE` names."""

    name: str
    where: str
    log: Callable[[TrackedRun, str], str]

    @classmethod
    def of(cls, text: str) -> Tracker:
        """Return the tracker that a command names. Raise `UsageError` if it is unknown or its extra is missing."""
        name, _, where = text.partition(":")
        names = plugins.providers("trackers")
        if name not in names:
            raise UsageError(
                f'--log "{name}": no such tracker{did_you_mean(name, names)} There are {", ".join(names)}',
                options=[Option("log")],
                code="unknown_tracker",
            )
        plugins.need_extra("stats", f"--log {name}")
        return cls(name, where, plugins.load("trackers", name, f"--log {name}"))


def log_run(
    store: Store, run_id: int, trackers: Sequence[Tracker]
) -> list[dict[str, str | None]]:
    """Log a run to each tracker, and say where it is or why it could not be logged."""
    from editjudge.report.tracking import tracked_run

    logged: list[dict[str, str | None]] = []
    for tracker in trackers:
        place = None
        problem = None
        try:
            place = tracker.log(tracked_run(store, str(run_id)), tracker.where)
            line = f"logged to {tracker.name}: {place}"
        # A tracker is other people's code, and the run is stored whatever it does.
        except (Exception, SystemExit) as error:
            text = redacted_text(one_line(f"{type(error).__name__}: {error}"))
            problem = without(text, environment_secrets())
            line = (
                f"editjudge: not logged to {tracker.name}: {problem}\n"
                "the run is stored and its exit code is unchanged; run the same command again to log it"
            )
        click.echo(printable(line), err=True)
        logged.append({"tracker": tracker.name, "place": place, "error": problem})
    return logged
