"""The local engine: tasks go to judges as fast as they take them, and an answer counts once it is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from editjudge.edit import Edit
from editjudge.errors import BudgetReached, EditjudgeError, JudgeError
from editjudge.judges.budget import Budget
from editjudge.judges.judge import Judge, Work
from editjudge.media.cache import ImageCache
from editjudge.run.planner import Ending, Planner, RunControl, is_paid
from editjudge.run.single import judged, keep
from editjudge.store.batches import awaited
from editjudge.store.store import Store
from editjudge.store.writer import Writer

LOOKAHEAD = 8
"""Tasks opened beyond those a judge takes, so that the next pictures are ready when a slot is."""
LOOK = 0.5
"""Seconds between two looks at what another process is asking."""
_MOST_ELSEWHERE = 5_000
"""Tasks of another process that are kept in mind, before it is waited for."""


class Engine:
    """One run over one store."""

    def __init__(
        self, store: Store, planner: Planner, purse: Budget, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.control = RunControl()
        self._say, self._waiting = say, False
        self._planner, self._purse = planner, purse
        self._pictures = ImageCache(root=planner.access.root, fetch=planner.access.fetch)
        self._store, self._writer = store, Writer(store)

    async def run(self, edits: Callable[[], Iterable[Edit]], judges: Sequence[Judge]) -> Ending:
        """Judge everything; each judge goes through the edits at its own pace."""
        self.control.waking += [self._purse.stop, *(judge.pace.stop for judge in judges if hasattr(judge, "pace"))]
        try:
            async with asyncio.TaskGroup() as group:
                for judge in judges:
                    group.create_task(self._drive(judge, edits()))
        except* EditjudgeError as errors:
            self.control.stop("failed", first_of(errors))
        finally:
            try:
                await self._writer.close()
            finally:
                await asyncio.to_thread(self._planner.close)
        return self.control.stopping or "finished"

    async def _drive(self, judge: Judge, edits: Iterable[Edit]) -> None:
        batches = self._planner.batches(judge, iter(edits))
        ahead = asyncio.create_task(self._next(batches))
        async with asyncio.TaskGroup() as group:
            room = _InFlight(judge)
            while self.control.stopping is None and (planned := await ahead) is not None:
                ahead = asyncio.create_task(self._next(batches))
                await self._begin(judge, await self._planner.not_done(planned), group, room)
                while self._planner.elsewhere(judge) > _MOST_ELSEWHERE and not self.control.stopped:
                    await self._begin(judge, await self.left_behind(judge), group, room)
            while self._planner.elsewhere(judge) and not self.control.stopped:
                await self._begin(judge, await self.left_behind(judge), group, room)
        await ahead

    async def _leave_to_batches(self, judge: Judge, works: Sequence[Work]) -> None:
        """Stop before a question that was handed in already: the provider answers it whether or not anybody waits."""
        keys = [work.task.key for work in works if is_paid(work)]
        if waiting := await asyncio.to_thread(self.in_batches, keys):
            words = f"{len(waiting):,} questions wait for their answers in a batch, and would be paid for twice"
            self.control.stop("failed", JudgeError(f"{judge.spec}: {words}: collect them with --batch"))

    def in_batches(self, keys: Sequence[str]) -> Collection[str]:
        """Those of the keys whose answers a batch will bring."""
        return awaited(self._store, keys)

    async def left_behind(self, judge: Judge) -> list[Work]:
        """Tasks that another process gave back or died with; where there are none, after a pause."""
        works = await self._planner.left_behind(judge)
        if not works and (count := self._planner.elsewhere(judge)):
            if not self._waiting:
                self._waiting = True
                self._say(f"{judge.spec}: {count:,} tasks are being asked by another process; waiting for its answers")
            await self.control.rest(LOOK)
        return works

    async def _begin(self, judge: Judge, works: Sequence[Work], group: asyncio.TaskGroup, room: _InFlight) -> None:
        await self._leave_to_batches(judge, works)
        for work in works:
            await room.wait()
            if self.control.stopped:
                break
            room.enter()
            task = group.create_task(self._do(judge, work))
            task.add_done_callback(room.leave)

    async def _next(self, batches: Iterator[list[Work]]) -> list[Work] | None:
        try:
            return await asyncio.to_thread(next, batches, None)
        except EditjudgeError as error:
            self.control.stop("failed", error)
            return None

    async def _do(self, judge: Judge, work: Work) -> None:
        try:
            judgement = await keep(self._writer.put, await judged(judge, work, self._pictures))
        except BudgetReached as error:  # the task stays to be judged
            self._planner.tally.cost += error.spent
            self.control.stop("budget", short=self._purse.short)
        except EditjudgeError as error:
            self._planner.tally.cost += getattr(error, "spent", 0.0)
            # The run ends as if the user had ended it: what is in flight is paid for, so it is let finish.
            self.control.stop("failed", error)
        else:
            self._planner.count(judgement)
        finally:
            self._planner.tally.estimated = self._purse.estimated


def first_of(errors: BaseExceptionGroup[EditjudgeError]) -> EditjudgeError:
    """The error itself, out of the groups that task groups wrap around it."""
    error = errors.exceptions[0]
    return first_of(error) if isinstance(error, BaseExceptionGroup) else error


class _InFlight:
    """How many tasks of a judge may be open: as many as it takes, and a few more."""

    def __init__(self, judge: Judge) -> None:
        self._pace = getattr(judge, "pace", None)
        self._open = 0
        self._left = asyncio.Event()

    async def wait(self) -> None:
        while self._open >= self._most():
            self._left.clear()
            await self._left.wait()

    def _most(self) -> int:
        return (int(self._pace.limit) if self._pace else 2) + LOOKAHEAD

    def enter(self) -> None:
        self._open += 1

    def leave(self, _: asyncio.Task[Any]) -> None:
        self._open -= 1
        self._left.set()
