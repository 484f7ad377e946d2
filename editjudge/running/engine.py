"""The local engine. It passes tasks to judges as fast as they accept them, and counts answers once they are committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from editjudge.edit import Edit
from editjudge.errors import BudgetReached, EditjudgeError, JudgeError
from editjudge.judgement import DONE, Judgement
from editjudge.judges.cost import Budget, Shortfall
from editjudge.judges.judge import Judge, QuestionWritten, Work
from editjudge.media.cache import ImageCache
from editjudge.running.asker import LOOK, Asker, Window, is_paid
from editjudge.running.plan import PlannedBatch, Planner
from editjudge.running.progress import RunTally
from editjudge.store.sink import Sink, TaskClaims

_LINGER = 0.1
"""Waiting time before a commit, as a share of the time that an answer takes. For 512 answers, at 128 a second and 500
ms each, there were 46 commits instead of 231, and each answer took 0.22 ms of CPU instead of 0.72.
"""
_MOST_ELSEWHERE = 5_000
"""Maximum number of other processes' tasks to remember before waiting for those processes."""

Ending = Literal["finished", "interrupted", "budget", "failed"]


@dataclass
class RunControl:
    """Stops a run. Requests that are in flight may finish."""

    stopping: Ending | None = None
    error: BaseException | None = None
    short: Shortfall | None = None
    """The request that the budget did not cover, if it ended the run."""
    waking: list[Callable[[], None]] = field(default_factory=list)
    """Functions that are called when the run is stopped, to end waits elsewhere."""
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def stopped(self) -> bool:
        return self.stopping is not None

    def stop(
        self,
        ending: Ending,
        error: BaseException | None = None,
        short: Shortfall | None = None,
    ) -> None:
        if self.stopping is None:
            self.stopping = ending
            self.error = error
            self.short = short
            self._stopped.set()
            for wake in self.waking:
                wake()

    async def rest(self, seconds: float) -> None:
        """Sleep for this many seconds, or until the run is stopped."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)


class Engine:
    """Executes one run with one store."""

    def __init__(
        self,
        sink: Sink,
        planner: Planner,
        budget: Budget,
        say: Callable[[str], None] = lambda _: None,
        *,
        claims: TaskClaims | None = None,
        observe: Callable[[RunTally], None] = lambda _: None,
    ) -> None:
        """Create an engine. `observe` is called whenever the tally changes."""
        from editjudge.store.store import Store

        self.control = RunControl()
        self.tally = RunTally()
        self.say = say
        self.planner = planner
        self.budget = budget
        self.images = ImageCache(planner.reader)
        self.asker = Asker(sink, claims, linger=_LINGER)
        self._observe = observe
        self._batches = sink if isinstance(sink, Store) else None
        """Store in which questions may be waiting for a provider's batch."""
        self._waiting = False
        self._failed: set[str] = set()
        """Keys of tasks that failed in this run. The next run tries them again."""

    async def run(
        self,
        rounds: Iterable[Callable[[], Iterable[Edit]]],
        judges: Sequence[Judge],
    ) -> Ending:
        """Judge all edits, and return how the run ended. In a round, each judge works through the edits at its own pace;
        the next round is requested when the answers of the last one are committed.
        """
        self.control.waking += [
            self.budget.stop,
            *(judge.stop for judge in judges),
        ]
        following = iter(rounds)
        try:
            while not self.control.stopped and (
                edits := await asyncio.to_thread(next, following, None)
            ):
                async with asyncio.TaskGroup() as group:
                    for judge in judges:
                        group.create_task(self._drive(judge, edits))
        except* EditjudgeError as errors:
            self.control.stop("failed", first_of(errors))
        finally:
            await self.asker.close()
        return self.control.stopping or "finished"

    async def _drive(self, judge: Judge, edits: Callable[[], Iterable[Edit]]) -> None:
        """Judge stage by stage. A rubric that uses earlier answers waits for all answers of the previous stage."""
        for stage in range(len(self.planner.settings.stages)):
            if self.control.stopping is None:
                await self._drive_stage(
                    judge, self.planner.batches(judge, iter(edits()), stage)
                )

    async def _drive_stage(self, judge: Judge, batches: Iterator[PlannedBatch]) -> None:
        ahead = asyncio.create_task(self.next_works(batches))
        async with asyncio.TaskGroup() as group:
            window = Window(judge, self.planner.settings.questions)
            while self.control.stopping is None and (works := await ahead) is not None:
                ahead = asyncio.create_task(self.next_works(batches))
                await self._begin(judge, works, group, window)
                await self._wait_for_others(judge, group, window, _MOST_ELSEWHERE)
            await self._wait_for_others(judge, group, window, 0)
        await ahead

    async def _wait_for_others(
        self, judge: Judge, group: asyncio.TaskGroup, window: Window, most: int
    ) -> None:
        """Wait until at most `most` tasks are in progress in other processes, and work on the tasks that they release."""
        while self.asker.elsewhere(judge) > most and not self.control.stopped:
            await self._begin(judge, await self.left_behind(judge), group, window)

    async def next_works(self, batches: Iterator[PlannedBatch]) -> list[Work] | None:
        """Return the tasks of the next batch that must be passed to a judge, or None at the end. They are claimed while
        the previous batch is in progress.
        """
        try:
            batch = await asyncio.to_thread(next, batches, None)
            if batch is None:
                return None
            works = [work for work in batch.works if work.task.key not in self._failed]
            lookup = await self.asker.start(works, batch.done)
        except EditjudgeError as error:
            self.control.stop("failed", error)
            return None
        self.tally.cached += len(batch.works) - len(works)
        for work in works:
            if status := lookup.statuses.get(work.task.key):
                self.tally.statuses[status] += 1
                self.tally.cached += 1
        self.tally.cached += sum(
            work.task.key not in lookup.statuses for work in lookup.shared
        )
        self._note()
        return list(lookup.open)

    async def left_behind(self, judge: Judge) -> list[Work]:
        """Return tasks that another process released, or left unfinished when it died. Wait a while if there are no
        such tasks.
        """
        lookup = await self.asker.look_again(judge)
        self.tally.statuses.update(lookup.statuses.values())
        self.tally.cached += len(lookup.statuses)
        self._note()
        if not lookup.open and (count := self.asker.elsewhere(judge)):
            if not self._waiting:
                self._waiting = True
                self.say(
                    f"{judge.spec}: {count:,} tasks are being asked by another process; waiting for its answers"
                )
            await self.control.rest(LOOK)
        return list(lookup.open)

    async def _begin(
        self,
        judge: Judge,
        works: Sequence[Work],
        group: asyncio.TaskGroup,
        window: Window,
    ) -> None:
        await self._leave_to_batches(judge, works)
        for work in works:
            await window.enter()
            if self.control.stopped:
                window.leave()
                break
            group.create_task(self._ask(judge, work)).add_done_callback(window.leave)

    async def _leave_to_batches(self, judge: Judge, works: Sequence[Work]) -> None:
        """Stop the run before it asks a question that is in an open batch, since the provider will answer and bill that
        question in any case.
        """
        if self._batches is None or not self._batches.has_batches():
            return
        from editjudge.store.batches import awaited

        keys = [work.task.key for work in works if is_paid(work)]
        if waiting := await asyncio.to_thread(awaited, self._batches, keys):
            problem = f"{len(waiting):,} questions wait for their answers in a batch, and would be paid for twice"
            self.control.stop(
                "failed",
                JudgeError(f"{judge.spec}: {problem}: collect them with --batch"),
            )

    async def _ask(self, judge: Judge, work: Work) -> None:
        try:
            judgement = await self.asker.ask(judge, work, self.images)
        except QuestionWritten:  # the task stays to be judged
            pass
        # The run ends as if the user had stopped it: requests in flight are paid for, so they may finish.
        except BudgetReached as error:  # the task stays to be judged
            self.tally.cost += error.spent
            self.control.stop("budget", short=self.budget.short)
        except JudgeError as error:
            self.tally.cost += error.spent
            self.control.stop("failed", error)
        except EditjudgeError as error:
            self.control.stop("failed", error)
        else:
            self.count(judgement)
        finally:
            self.tally.estimated = self.budget.estimated

    def count(self, judgement: Judgement) -> None:
        """Add a committed judgement to the tally."""
        if judgement.status not in DONE:
            self._failed.add(judgement.key)
        self.tally.add(judgement)
        self._note()

    def _note(self) -> None:
        self.tally.not_applicable = self.planner.not_applicable
        self.tally.ruled_out = self.planner.ruled_out
        self._observe(self.tally)


def first_of(errors: BaseExceptionGroup[EditjudgeError]) -> EditjudgeError:
    """Return the first error in the exception groups that task groups raise."""
    error = errors.exceptions[0]
    return first_of(error) if isinstance(error, BaseExceptionGroup) else error
