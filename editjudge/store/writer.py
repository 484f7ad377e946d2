"""Group commit: judgements that arrive together are kept in one transaction, and nobody is told before it is."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from editjudge.errors import StoreMoved
from editjudge.judgement import Judgement
from editjudge.store.sink import Sink

T = TypeVar("T")

_OF_ONE = (ValueError, TypeError, ArithmeticError, RecursionError, MemoryError)
"""Errors that a judgement's content raises: not JSON, a number out of range, too deep, too large. Others are the store's."""

_LONGEST = 0.1
"""Seconds that a commit waits for company: what is lost to a kill meanwhile is asked and paid for again."""


def _mean_latency(batch: Iterable[Judgement]) -> float:
    latencies = [
        exchange.latency or 0.0
        for judgement in batch
        for exchange in judgement.exchanges
    ]
    return sum(latencies) / len(latencies) if latencies else 0.0


class Writer:
    """Make one inside a running event loop; one writes to a store at a time.

    After the store failed nothing more is written: who waits, who comes later, and `close` get the same error. Where
    the store moved to a copy they get it too, and what they bring is written there: it is paid for.
    """

    def __init__(self, store: Sink, *, linger: float = 0.0, batch: int = 512) -> None:
        """`linger`: how long a commit waits for company, as a share of the time that the latest answers took; 0.1 s at
        most. `batch`: judgements of one commit at most.

        Those who arrive during a commit share the next one in any case. Where answers take no time, waiting would only
        hold up the next ones: 32 callers with the next judgement ready at once kept 4,200 a second without it, and 510
        with 50 ms.
        """
        self._store = store
        self._linger = linger
        self._batch = batch
        self._interval = 0.0
        # Needs no bound of its own: it holds one judgement for each call that waits, and they hold it anyway.
        self._waiting: deque[tuple[Judgement, asyncio.Future[None]]] = deque()
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="editjudge-store"
        )
        self._error: Exception | None = None
        self._closing = False
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def put(self, judgement: Judgement) -> None:
        """Return once the judgement is committed. It is kept even if whoever waits is cancelled meanwhile.

        A judgement whose content cannot be stored raises, and does not touch the others.
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
        """Write something else to the store, in turn with the judgements rather than in their way."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, write)

    async def close(self) -> None:
        """Keep what has arrived; then raise what went wrong, if anything did."""
        self._closing = True
        self._wake.set()
        # Shielded: an impatient second interrupt must not drop answers that were paid for.
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
            self._interval = min(
                _LONGEST,
                self._linger * _mean_latency(judgement for judgement, _ in batch),
            )
            outcomes = await self._commit([judgement for judgement, _ in batch])
            for (_, committed), error in zip(batch, outcomes, strict=True):
                if committed.done():  # cancelled
                    continue
                if error:
                    committed.set_exception(error)
                else:
                    committed.set_result(None)

    async def _commit(self, batch: Sequence[Judgement]) -> Sequence[Exception | None]:
        """Return the outcome of each."""
        if self._error is None or isinstance(self._error, StoreMoved):
            try:
                return await asyncio.get_running_loop().run_in_executor(
                    self._thread, self._write, batch
                )
            except Exception as error:
                # told to each who waits for it, and to all who come later
                self._error = error
        return [self._error] * len(batch)

    def _write(self, batch: Sequence[Judgement]) -> Sequence[Exception | None]:
        try:
            self._store.write(batch)
        except StoreMoved:
            with suppress(StoreMoved):  # the copy may be older than this commit
                self._store.write(batch)
            raise
        except _OF_ONE:  # one of them cannot be stored, and nothing was: find it, so that it alone fails
            return [self._write_alone(judgement) for judgement in batch]
        return [None] * len(batch)

    def _write_alone(self, judgement: Judgement) -> Exception | None:
        try:
            self._store.write([judgement])
        except _OF_ONE as error:
            return error
        return None
