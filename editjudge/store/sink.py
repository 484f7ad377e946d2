"""The destination of a run's results: the extension point for storing judgements, and the writer that commits them in
groups.

A database is a sink, and so is the part of it that one worker of a cluster fills. A sink needs no base class. For
example, this one keeps everything in memory:

    class MemorySink:
        def __init__(self):
            self.items, self.tasks, self.judgements = {}, {}, {}

        def load_digests(self, paths):
            return {}  # none are remembered: each image is read again

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

`editjudge.running.plan.Planner` and `editjudge.running.engine.Engine` accept it instead of a store.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from editjudge.errors import StoreMoved
from editjudge.judgement import Judgement, Task

if TYPE_CHECKING:
    from editjudge.media.cache import KnownFiles
    from editjudge.store.records import Item


class Sink(Protocol):
    """Destination for the judgements of a run. A resumed run reads its earlier judgements from there."""

    def load_digests(self, paths: Sequence[str]) -> KnownFiles:
        """Return the digests of image files that are already known."""
        ...

    def add_batch(
        self,
        run: int,
        edits: Sequence[tuple[int, Item]],
        planned: Sequence[tuple[int, Task]],
        learnt: KnownFiles,
    ) -> Mapping[str, str]:
        """Store edits and tasks, each with its position in the run, and new digests of image files. Idempotent.

        Return the statuses of tasks that are known to have a judgement, keyed by task key. Other tasks are looked up
        later.
        """
        ...

    def done(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the status of each key that has a judgement."""
        ...

    def judgement(self, key: str) -> Judgement | None:
        """Return the stored judgement for a key, or None if the store has no judgement for it. A later question may
        depend on the judgement.
        """
        ...

    def write(self, batch: Sequence[Judgement]) -> None:
        """Store all of these judgements or none. Raise `ValueError` if the content of a judgement cannot be stored."""
        ...


class TaskClaims(Protocol):
    """One process's claims on the keys it works on. They keep other processes from asking the same questions."""

    def take(self, keys: Sequence[str]) -> set[str]:
        """Claim keys, and return the keys that this process now holds."""
        ...

    def held(self, keys: Sequence[str]) -> dict[str, bool]:
        """Return the keys that other processes have claimed, and for each whether its owner is alive."""
        ...

    def give_back(self, keys: Collection[str]) -> None:
        """Release the claims on these keys."""
        ...

    def close(self) -> None:
        """Release the claims on all keys."""
        ...


T = TypeVar("T")

_OF_ONE = (ValueError, TypeError, ArithmeticError, RecursionError, MemoryError)
"""Errors that are caused by the content of one judgement, such as a number out of range, or data that is too deep, too
large or not JSON. Other errors come from the store.
"""

_LONGEST = 0.1
"""Maximum number of seconds to wait for more judgements before a commit. If the process is killed in that time, their
questions are asked and paid for again.
"""


class Writer:
    """Group commit: judgements that arrive together are stored in one transaction. `put` returns once that transaction
    is committed.

    Create it inside a running event loop. A store has one writer at a time. After the store has failed, nothing more is
    written: waiting calls, later calls and `close` raise the same error. If the store failed because it has been moved
    to a copy, the judgements of these calls are written to the copy before the error is raised, because they have been
    paid for.
    """

    def __init__(self, store: Sink, *, linger: float = 0.0, batch: int = 512) -> None:
        """Create a writer. `linger` is the time that a commit waits for more judgements, as a share of the time that
        the latest answers took. The wait is at most 0.1 s. `batch` is the maximum number of judgements in one commit.

        Judgements that arrive during a commit always share the next one. If answers take no time, waiting would only
        delay the next ones: 32 callers that always had a judgement ready stored 4,200 a second without waiting, and 510
        with a wait of 50 ms.
        """
        self._store = store
        self._linger = linger
        self._batch = batch
        self._interval = 0.0
        # Needs no limit: it has one judgement for each waiting call, which keeps it in memory anyway.
        self._waiting: deque[tuple[Judgement, asyncio.Future[None]]] = deque()
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="editjudge-store"
        )
        self._error: Exception | None = None
        self._closing = False
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def put(self, judgement: Judgement) -> None:
        """Store a judgement, and return once it is committed. It is stored even if the waiting task is cancelled in the
        meantime.

        If a judgement's content cannot be stored, only this call raises an error. Other judgements are not affected.
        """
        if self._closing:
            raise RuntimeError("the writer is closed")
        if self._error and not isinstance(self._error, StoreMoved):
            raise self._error
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((judgement, committed))
        self._wake.set()
        await committed

    async def also(self, write: Callable[[], T]) -> T:
        """Call `write`, which writes something else to the store. The call is queued with the judgements, so they do
        not block each other.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, write)

    async def close(self) -> None:
        """Commit the judgements that have arrived. Then raise the store's error, if there was one."""
        self._closing = True
        self._wake.set()
        # Shielded, since a second interrupt must not drop answers that were paid for.
        await asyncio.shield(self._task)
        self._thread.shutdown()
        if self._error:
            raise self._error

    async def __aenter__(self) -> Writer:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _work(self) -> None:
        while await self._wake.wait() and (self._waiting or not self._closing):
            if not self._closing:
                await asyncio.sleep(self._interval)
            batch = [
                self._waiting.popleft()
                for _ in range(min(self._batch, len(self._waiting)))
            ]
            if not self._waiting and not self._closing:
                self._wake.clear()
            latencies = [
                exchange.latency or 0.0
                for judgement, _ in batch
                for exchange in judgement.exchanges
            ]
            latency = sum(latencies) / max(1, len(latencies))
            self._interval = min(_LONGEST, self._linger * latency)
            outcomes = await self._commit([judgement for judgement, _ in batch])
            for (_, committed), error in zip(batch, outcomes, strict=True):
                if committed.done():  # cancelled
                    continue
                if error:
                    committed.set_exception(error)
                else:
                    committed.set_result(None)

    async def _commit(self, batch: Sequence[Judgement]) -> Sequence[Exception | None]:
        """Commit judgements. Return an error for each one that failed, and None for each of the others."""
        if self._error is None or isinstance(self._error, StoreMoved):
            try:
                return await asyncio.get_running_loop().run_in_executor(
                    self._thread, self._write, batch
                )
            except Exception as error:
                # Raised in each waiting call and in all later ones.
                self._error = error
        return [self._error] * len(batch)

    def _write(self, batch: Sequence[Judgement]) -> Sequence[Exception | None]:
        try:
            self._store.write(batch)
        except StoreMoved:
            with suppress(StoreMoved):  # the copy may be older than this commit
                self._store.write(batch)
            raise
        except _OF_ONE:  # find the one that cannot be stored
            return [self._write_alone(judgement) for judgement in batch]
        return [None] * len(batch)

    def _write_alone(self, judgement: Judgement) -> Exception | None:
        try:
            self._store.write([judgement])
        except _OF_ONE as error:
            return error
        return None
