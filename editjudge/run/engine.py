"""The local engine: tasks go to judges as fast as they take them, and an answer counts once it is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from editjudge.edit import Edit
from editjudge.errors import BudgetReached, EditjudgeError
from editjudge.judges.purse import Purse
from editjudge.judges.work import Judge, Work
from editjudge.pictures import Pictures
from editjudge.run.planning import Control, Ending, Planner
from editjudge.run.single import judged, keep
from editjudge.store.store import Store
from editjudge.store.writer import Writer

LOOKAHEAD = 8
"""Tasks opened beyond those a judge takes, so that the next pictures are ready when a slot is."""


class Engine:
    """One run over one store."""

    def __init__(self, store: Store, planner: Planner, purse: Purse) -> None:
        self.control = Control()
        self._planner, self._purse = planner, purse
        self._pictures = Pictures(root=planner.access.root, fetch=planner.access.fetch)
        self._writer = Writer(store)

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
            await self._writer.close()
        return self.control.stopping or "finished"

    async def _drive(self, judge: Judge, edits: Iterable[Edit]) -> None:
        batches = self._planner.batches(judge, iter(edits))
        ahead = asyncio.create_task(self._next(batches))
        async with asyncio.TaskGroup() as group:
            room = _Room(judge)
            while self.control.stopping is None and (planned := await ahead) is not None:
                ahead = asyncio.create_task(self._next(batches))
                for work in await self._planner.not_done(planned):
                    await room.wait()
                    if self.control.stopped:
                        break
                    room.enter()
                    task = group.create_task(self._do(judge, work))
                    task.add_done_callback(room.leave)
        await ahead

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
            self._planner.tally.estimated = self._purse.estimated
            self._planner.count(judgement)


def first_of(errors: BaseExceptionGroup[EditjudgeError]) -> EditjudgeError:
    """The error itself, out of the groups that task groups wrap around it."""
    error = errors.exceptions[0]
    return first_of(error) if isinstance(error, BaseExceptionGroup) else error


class _Room:
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
