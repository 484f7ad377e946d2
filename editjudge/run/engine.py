"""The local engine: tasks go to judges as fast as they take them, and an answer counts once it is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from editjudge.edit import Edit
from editjudge.errors import BudgetReached, EditjudgeError, JudgeError
from editjudge.judges.budget import Budget, Shortfall
from editjudge.judges.judge import Judge, Work
from editjudge.media.cache import ImageCache
from editjudge.run.feed import LOOK, Window, is_paid, judged, keep
from editjudge.run.plan import Planner
from editjudge.store.sink import Sink
from editjudge.store.writer import Writer

if TYPE_CHECKING:
    from editjudge.store.store import Store

_LINGER = 0.1
"""Of the time that an answer takes, a commit waits for more. 512 answers, 128 a second and each after 500 ms, were kept
by 46 commits in place of 231, at 0.22 ms of CPU each in place of 0.72."""
_MOST_ELSEWHERE = 5_000
"""Tasks of another process that are remembered, before it is waited for."""

Ending = Literal["finished", "interrupted", "budget", "failed"]


@dataclass
class RunControl:
    """Stops a run: what is in flight is let finish."""

    stopping: Ending | None = None
    error: BaseException | None = None
    short: Shortfall | None = None
    """Where the budget ends the run, what it was too little for."""
    waking: list[Callable[[], None]] = field(default_factory=list)
    """Called when the run is stopped, to end waits elsewhere."""
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def stopped(self) -> bool:
        return self.stopping is not None

    def stop(self, why: Ending, error: BaseException | None = None, short: Shortfall | None = None) -> None:
        if self.stopping is None:
            self.stopping, self.error, self.short = why, error, short
            self._stopped.set()
            for wake in self.waking:
                wake()

    async def rest(self, seconds: float) -> None:
        """Sleep until the run is stopped, at most so long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)


class Engine:
    """One run into one sink."""

    def __init__(
        self,
        sink: Sink,
        planner: Planner,
        budget: Budget,
        say: Callable[[str], None] = lambda _: None,
        *,
        store: Store | None = None,
    ) -> None:
        """`store`: where questions may wait in a provider's batch; a sink that only this run writes to has none."""
        from editjudge.store.store import Store

        self.control = RunControl()
        self.say, self._waiting = say, False
        self.planner, self.budget = planner, budget
        self.pictures = ImageCache(planner.pictures)
        self._batches = sink if isinstance(sink, Store) else store
        self._writer = Writer(sink, linger=_LINGER)

    async def run(self, edits: Callable[[], Iterable[Edit]], judges: Sequence[Judge]) -> Ending:
        """Judge everything; each judge goes through the edits at its own pace."""
        self.control.waking += [self.budget.stop, *(judge.pace.stop for judge in judges if hasattr(judge, "pace"))]
        try:
            async with asyncio.TaskGroup() as group:
                for judge in judges:
                    group.create_task(self._drive(judge, edits))
        except* EditjudgeError as errors:
            self.control.stop("failed", first_of(errors))
        finally:
            try:
                await self._writer.close()
            finally:
                await asyncio.to_thread(self.planner.close)
        return self.control.stopping or "finished"

    async def _drive(self, judge: Judge, edits: Callable[[], Iterable[Edit]]) -> None:
        """Rubrics that are told of an answer wait for all answers of the stage before."""
        for stage in range(self.planner.stages):
            if self.control.stopping is None:
                await self._drive_stage(judge, self.planner.batches(judge, iter(edits()), stage))

    async def _drive_stage(self, judge: Judge, batches: Iterator[list[Work]]) -> None:
        ahead = asyncio.create_task(self._next(batches))
        async with asyncio.TaskGroup() as group:
            window = Window(judge, self.planner.questions)
            while self.control.stopping is None and (works := await ahead) is not None:
                ahead = asyncio.create_task(self._next(batches))
                await self._begin(judge, works, group, window)
                while self.planner.elsewhere(judge) > _MOST_ELSEWHERE and not self.control.stopped:
                    await self._begin(judge, await self.left_behind(judge), group, window)
            while self.planner.elsewhere(judge) and not self.control.stopped:
                await self._begin(judge, await self.left_behind(judge), group, window)
        await ahead

    async def _leave_to_batches(self, judge: Judge, works: Sequence[Work]) -> None:
        """Stop before a question that is part of an open batch: the provider answers and bills it in any case."""
        keys = [work.task.key for work in works if is_paid(work)]
        if waiting := await asyncio.to_thread(self.in_batches, keys):
            problem = f"{len(waiting):,} questions wait for their answers in a batch, and would be paid for twice"
            self.control.stop("failed", JudgeError(f"{judge.spec}: {problem}: collect them with --batch"))

    def in_batches(self, keys: Sequence[str]) -> Collection[str]:
        """Those of the keys whose answers a batch will bring."""
        if self._batches is None or not self._batches.has_batches():
            return ()
        from editjudge.store.batches import awaited

        return awaited(self._batches, keys)

    async def left_behind(self, judge: Judge) -> list[Work]:
        """Tasks that another process gave back or died with; where there are none, after a pause."""
        works = await self.planner.left_behind(judge)
        if not works and (count := self.planner.elsewhere(judge)):
            if not self._waiting:
                self._waiting = True
                self.say(f"{judge.spec}: {count:,} tasks are being asked by another process; waiting for its answers")
            await self.control.rest(LOOK)
        return works

    async def _begin(self, judge: Judge, works: Sequence[Work], group: asyncio.TaskGroup, window: Window) -> None:
        await self._leave_to_batches(judge, works)
        for work in works:
            await window.enter()
            if self.control.stopped:
                window.leave()
                break
            group.create_task(self._do(judge, work)).add_done_callback(window.leave)

    async def _next(self, batches: Iterator[list[Work]]) -> list[Work] | None:
        """The works of the next batch that are to be asked, claimed while those of the batch before are being asked."""
        try:
            planned = await asyncio.to_thread(next, batches, None)
            return None if planned is None else await self.planner.not_done(planned)
        except EditjudgeError as error:
            self.control.stop("failed", error)
            return None

    async def _do(self, judge: Judge, work: Work) -> None:
        try:
            judgement = await keep(self._writer.put, await judged(judge, work, self.pictures))
        except BudgetReached as error:  # the task stays to be judged
            self.planner.tally.cost += error.spent
            self.control.stop("budget", short=self.budget.short)
        except EditjudgeError as error:
            self.planner.tally.cost += getattr(error, "spent", 0.0)
            # The run ends as if the user had ended it: what is in flight is paid for, so it is let finish.
            self.control.stop("failed", error)
        else:
            self.planner.count(judgement)
        finally:
            self.planner.tally.estimated = self.budget.estimated


def first_of(errors: BaseExceptionGroup[EditjudgeError]) -> EditjudgeError:
    """The error itself, out of the groups that task groups wrap around it."""
    error = errors.exceptions[0]
    return first_of(error) if isinstance(error, BaseExceptionGroup) else error
