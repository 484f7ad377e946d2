"""Destination of a run: the extension point for places that judgements go to.

A database and the part of it that one worker of a cluster fills are sinks. None needs a base class.
This one keeps everything in memory:

    class MemorySink:
        def __init__(self):
            self.items, self.tasks, self.judgements = {}, {}, {}

        def load_digests(self, paths):
            return {}  # none are remembered: each picture is read again

        def add_batch(self, run, edits, planned, learnt):
            self.items |= dict(edits)
            self.tasks |= dict(planned)
            return {}

        def done(self, keys):
            return {key: self.judgements[key].status for key in keys if key in self.judgements}

        def judgement(self, key):
            return self.judgements.get(key)

        def write(self, batch):
            self.judgements |= {judgement.key: judgement for judgement in batch}

`editjudge.running.plan.Planner` and `editjudge.running.engine.Engine` take it in the place of a store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from editjudge.judgement import Judgement, Task

if TYPE_CHECKING:
    from editjudge.store.records import Item


class Sink(Protocol):
    """Destination of a run's judgements, read back to resume."""

    def load_digests(self, paths: Sequence[str]) -> Mapping[str, Any]:
        """Remembered digests of image files."""
        ...

    def add_batch(
        self,
        run: int,
        edits: Sequence[tuple[int, Item]],
        planned: Sequence[tuple[int, Task]],
        learnt: Mapping[str, Mapping[str, Any]],
    ) -> Mapping[str, str]:
        """Keep edits and tasks, each with its position in the run, and what was learnt of picture files. Adding twice
        is adding once. Returns the statuses, by key, of tasks that are known to be judged; the others are looked up."""
        ...

    def done(self, keys: Sequence[str]) -> dict[str, str]:
        """The status of each key that has a judgement."""
        ...

    def judgement(self, key: str) -> Judgement | None:
        """Return the stored judgement of a key: a later question may depend on it."""
        ...

    def write(self, batch: Sequence[Judgement]) -> None:
        """Keep judgements, all or none. One whose content cannot be kept raises a `ValueError`."""
        ...


class TaskClaims(Protocol):
    """Claims of one process on the keys that it asks, so that no other process asks them too."""

    def take(self, keys: Sequence[str]) -> set[str]:
        """Claim keys; return those that are ours now."""
        ...

    def held(self, keys: Sequence[str]) -> dict[str, bool]:
        """Return the keys that others have claimed, and whether each owner is alive."""
        ...

    def give_back(self, keys: Collection[str]) -> None:
        """Release keys."""
        ...

    def close(self) -> None:
        """Release all keys."""
        ...
