"""A worker in a cluster. It runs the ordinary engine on one part of the manifest, with the driver's store.

The driver calls `exchange` repeatedly. Each call passes the results of earlier store calls to the worker, and returns
the store calls made since then. Plans and judgements are sent in batches, never one question at a time.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

from editjudge.canonical import json_hash
from editjudge.edit import Edit
from editjudge.errors import EditjudgeError, JudgeError, UsageError
from editjudge.judges.cost import Budget, Shortfall
from editjudge.judges.judge import Judge, Pacing
from editjudge.judges.registry import open_judge
from editjudge.rubrics.model import Rubric
from editjudge.running.engine import Ending, Engine
from editjudge.running.job import Job, RunOptions, pacing
from editjudge.running.plan import Planner
from editjudge.running.progress import RunTally
from editjudge.store.claims import is_alive
from editjudge.store.sink import Sink, TaskClaims

T = TypeVar("T")

HEARTBEAT = 0.5
"""Seconds after which `exchange` returns even if nothing has happened, so the driver can stop the worker."""
_GATHER = 0.01
"""Seconds that `exchange` waits for more calls after the first one, to send them in one batch."""


@dataclass(frozen=True)
class WorkerSettings:
    """Settings of a worker for one part of a run. They contain no secrets, since each worker finds API keys in its own
    environment.
    """

    job: Job
    run_id: int
    rubrics: Sequence[Rubric]
    options: RunOptions
    """Options of the run, with this part and its share of the limits and the budget."""
    driver: str
    """Id of the driver's process, in the form of `editjudge.store.claims`."""
    identities: Mapping[str, str]
    """Hash of each judge's identity. A worker with a different hash would create different keys, so it refuses to
    start.
    """
    chosen: frozenset[str] | None
    """Ids of the edits that meet the run's conditions; None if the run has no conditions."""


StoreCall = tuple[int, str, tuple[Any, ...]]
"""Number, method and arguments of a call to the driver's store or claims."""
StoreResult = tuple[int, Any, Exception | None]
"""Number of a call, and its result or the exception that it raised."""


class WorkerReport(NamedTuple):
    """State of a worker, and its store calls since the previous report."""

    calls: list[StoreCall]
    messages: list[str]
    tally: RunTally
    committed: float
    """US dollars that the worker has spent or reserved."""
    ending: Ending | None = None
    error: str = ""
    short: Shortfall | None = None


def identity_hash(judge: Judge, rubrics: Sequence[Rubric]) -> str:
    """Return the hash of a judge's identity for these rubrics. It does not depend on the edits."""
    return json_hash(judge.identity(Edit(""), rubrics[0], 0))


class RemoteStore:
    """Proxy for the driver's store (`Sink`) and claims (`TaskClaims`). The planner and the writer call it from their
    own threads. A call blocks until its result arrives.
    """

    def __init__(self) -> None:
        self.called = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count()
        self._unsent: list[StoreCall] = []
        self._pending: dict[int, Future[Any]] = {}

    def unsent(self) -> list[StoreCall]:
        """Return the calls that have not been sent yet, and mark them as sent."""
        self.called.clear()
        calls = self._unsent
        self._unsent = []
        return calls

    def resolve(self, results: Sequence[StoreResult]) -> None:
        """Complete the pending calls to which these results belong."""
        for number, value, error in results:
            future = self._pending.pop(number)
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

    def _call(self, method: str, *arguments: object) -> Any:
        future: Future[Any] = Future()

        def send() -> None:
            number = next(self._numbers)
            self._pending[number] = future
            self._unsent.append((number, method, arguments))
            self.called.set()

        self._loop.call_soon_threadsafe(send)
        return future.result()

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """Return a function that calls this method of the store or claims in the driver's process."""
        return functools.partial(self._call, method)

    def close(self) -> None:
        """Do nothing, since the driver releases the claims after the worker has ended."""


class DriverPacing:
    """Pacing for a judge. It sends no requests after the driver has died, since their answers could not be stored.

    Ray takes a second to end the workers of a killed driver. On other machines the driver's process cannot be checked,
    so there only Ray stops the worker.
    """

    def __init__(self, pace: Pacing, driver: str) -> None:
        self._pace = pace
        self._driver = driver
        self.slot = pace.slot
        self.stop = pace.stop
        self.spread = pace.spread

    @property
    def window(self) -> int:
        return self._pace.window

    async def send_with_retries(
        self, send: Callable[..., Awaitable[T]], tokens: int = 0
    ) -> tuple[T, int]:
        if not is_alive(self._driver):
            raise JudgeError(
                "the process that started the run has ended, so that the answer could not be stored"
            )
        return await self._pace.send_with_retries(send, tokens)


class Worker:
    """Actor that judges one part of a run."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._budget = Budget(settings.options.budget)
        self._messages: list[str] = []
        self._stopping: Ending | None = None
        self._store: RemoteStore | None = None
        self._engine: Engine | None = None
        self._running: asyncio.Task[Ending] | None = None

    async def exchange(
        self, results: Sequence[StoreResult], stopping: Ending | None
    ) -> WorkerReport:
        """Accept the results of store calls, and report everything that has happened since the last call. If `stopping`
        is set, stop the run.
        """
        # Created here and not in the constructor, since the event loop of the judges runs only here.
        self._store = self._store or RemoteStore()
        self._store.resolve(results)
        if stopping:
            self._stopping = stopping
            if self._engine:
                self._engine.control.stop(stopping)
        if self._running is None:
            self._running = asyncio.create_task(self._judge(self._store))
            self._running.add_done_callback(lambda _: self._wake())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._store.called.wait(), HEARTBEAT)
            await asyncio.sleep(_GATHER)
        return self._report(self._store, self._running)

    def _wake(self) -> None:
        if self._store:
            self._store.called.set()

    def _report(
        self, store: RemoteStore, running: asyncio.Task[Ending]
    ) -> WorkerReport:
        messages = self._messages
        self._messages = []
        report = WorkerReport(
            store.unsent(),
            messages,
            self._engine.tally if self._engine else RunTally(),
            self._budget.spent + self._budget.reserved,
        )
        if not running.done():
            return report
        error = running.exception()
        if error is None:
            control = self._engine.control if self._engine else None
            message = str(control.error) if control and control.error else ""
            return report._replace(
                ending=running.result(), error=message, short=self._budget.short
            )
        message = str(error)
        if not isinstance(error, EditjudgeError):
            logging.getLogger(__name__).error(
                "a part of the run failed", exc_info=error
            )
            message = f"{type(error).__name__}: {error}"
        return report._replace(ending="failed", error=message)

    async def _judge(self, store: RemoteStore) -> Ending:
        job = self._settings.job
        options = self._settings.options
        rubrics = self._settings.rubrics

        def pace(spec: str) -> Pacing:
            return DriverPacing(pacing(options)(spec), self._settings.driver)

        async with AsyncExitStack() as resources:
            judges = []
            for spec in job.judges:
                judge = await open_judge(
                    spec, job.options, pace, resources, funds=self._budget
                )
                if identity_hash(judge, rubrics) != self._settings.identities[spec]:
                    raise UsageError(
                        f"the judge {spec} is configured differently on a node of the cluster than where the run started: "
                        "give all nodes the same variables, such as OPENAI_BASE_URL, and the same version of editjudge"
                    )
                judges.append(judge)
            sink = cast("Sink", store)
            planner = Planner(
                sink,
                self._settings.run_id,
                job.question_settings(rubrics),
                job.reader(),
                rehash=options.rehash,
                part=options.part.holds if options.part else lambda _: True,
            )
            self._engine = Engine(
                sink,
                planner,
                self._budget,
                self._messages.append,
                claims=cast("TaskClaims", store),
            )
            if self._stopping:
                self._engine.control.stop(self._stopping)
            chosen = self._settings.chosen
            return await self._engine.run(
                [lambda: (e for e in job.edits() if chosen is None or e.id in chosen)],
                judges,
            )
