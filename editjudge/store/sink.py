"""What a run writes to: the extension point for places that judgements go to.

A database, Parquet shards and the part of either that one worker of a cluster fills are sinks. None needs a base class.
This one keeps everything in memory:

    class MemorySink:
        def __init__(self):
            self.items, self.tasks, self.judgements = {}, {}, {}

        def load_digests(self, paths):
            return {}  # none are remembered: each picture is read again

        def save_digests(self, remembered):
            pass

        def add_items(self, run, rows, start=0):
            added = dict(enumerate(rows, start))
            self.items |= added
            return start + len(added)

        def add_tasks(self, run, added, start=0):
            tasks = dict(enumerate(added, start))
            self.tasks |= tasks
            return start + len(tasks)

        def done(self, keys):
            return {key: self.judgements[key].status for key in keys if key in self.judgements}

        def judgement(self, key):
            return self.judgements.get(key)

        def write(self, batch):
            self.judgements |= {judgement.key: judgement for judgement in batch}

`editjudge.run.plan.Planner` and `editjudge.run.engine.Engine` take it in the place of a store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from editjudge.judgement import Judgement, Task
from editjudge.rubrics.model import Rubric

if TYPE_CHECKING:
    from editjudge.store.records import Item, RunRecord, State


class Sink(Protocol):
    """What a run writes to, and reads back to resume."""

    def load_digests(self, paths: Sequence[str]) -> Mapping[str, Any]:
        """What is remembered of picture files."""
        ...

    def save_digests(self, remembered: Mapping[str, Any]) -> None: ...

    def add_items(self, run: int, rows: Iterable[Item], start: int = 0) -> int:
        """Keep edits at the positions from `start` on; returns the next position. Adding twice is adding once."""
        ...

    def add_tasks(self, run: int, added: Iterable[Task], start: int = 0) -> int:
        """Keep tasks as `add_items` keeps edits."""
        ...

    def done(self, keys: Sequence[str]) -> dict[str, str]:
        """The status of each key that has a judgement."""
        ...

    def judgement(self, key: str) -> Judgement | None:
        """What is kept of a key: a later question may depend on it."""
        ...

    def write(self, batch: Sequence[Judgement]) -> None:
        """Keep judgements, all or none. One whose content cannot be kept raises a `ValueError`."""
        ...


class RunPlace(Protocol):
    """Where a run is begun, marked and summed up: a store, or a folder of shards."""

    @property
    def place(self) -> str: ...

    def open_run(self, name: str, spec: Mapping[str, Any]) -> RunRecord: ...

    def add_rubrics(self, added: Sequence[Rubric]) -> None: ...

    def mark(self, run: RunRecord, state: State, summary: Mapping[str, Any] | None = None) -> None: ...

    def judgements(
        self, run: RunRecord, *, fields: Collection[str], status: Collection[str] | None = None
    ) -> Iterator[dict[str, Any]]: ...
