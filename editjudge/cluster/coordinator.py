"""What the workers of a cluster share: one pace for each judge, one budget, one tally, and the signal to stop.

The coordinator is an actor of its own; it knows nothing of Ray. What a worker holds is released when no heartbeat has
come for a while, since a node that dies does not say so.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from editjudge.errors import BudgetReached
from editjudge.judges.budget import Budget, MaximumCost, Reservation, Shortfall
from editjudge.judges.messages import CallFailed
from editjudge.run.pace import Circuit, JudgeDown, Pace
from editjudge.run.progress import RunTally

if TYPE_CHECKING:  # 0.2 s to import, of which the coordinator needs nothing
    from editjudge.run.engine import Ending

HEARTBEAT_TIMEOUT = 15.0
"""Seconds without a heartbeat after which a worker counts as dead: one is sent every second, and a node may be busy."""

Problem = tuple[Any, ...]
"""A `CallFailed` as plain values: kind, message, status, retry after."""


class Grant(NamedTuple):
    """A slot or a send that a worker waited for, or why there will be none."""

    number: int = 0
    turn: int | None = None
    """The first send is allowed along with the slot where nothing else has to be known for it."""
    down: str = ""


class HeartbeatReply(NamedTuple):
    """What a worker is told in answer to its heartbeat."""

    stopping: Ending | None
    down: list[str]
    """Judges that nobody is to ask any more."""


class CoordinatorState(NamedTuple):
    """How the run is going, for the driver."""

    tally: RunTally
    messages: list[str]
    stopping: Ending | None
    why: str
    busy: int
    """Splits that workers are judging."""
    short: Shortfall | None = None
    """Where the budget ends the run, what it was too little for."""


@dataclass
class _WorkerState:
    """What one worker holds."""

    heard: float
    held: dict[int, tuple[AbstractAsyncContextManager[Any], Any]] = field(default_factory=dict)
    holds: dict[int, Reservation] = field(default_factory=dict)
    splits: set[int] = field(default_factory=set)


class Coordinator:
    def __init__(
        self,
        judges: Sequence[str],
        *,
        concurrency: int | None = None,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        budget: float | None = None,
        heartbeat_timeout: float = HEARTBEAT_TIMEOUT,
    ) -> None:
        self._messages: list[str] = []
        self._paces = {
            spec: Pace(
                spec,
                concurrency=concurrency,
                requests_per_minute=requests_per_minute,
                tokens_per_minute=tokens_per_minute,
                circuit=Circuit(spec, say=self._messages.append),
            )
            for spec in judges
        }
        self._unmetered = not (requests_per_minute or tokens_per_minute)
        self._budget = Budget(budget)
        self._heartbeat_timeout = heartbeat_timeout
        self._workers: dict[str, _WorkerState] = {}
        self._tallies: dict[str, RunTally] = {}
        """What each worker has done so far, dead ones included: what they asked was paid for."""
        self._numbers = itertools.count(1)
        self._stopping: Ending | None = None
        self._why = ""

    # --- pace -------------------------------------------------------------------------------------------------

    async def slot(self, worker: str, judge: str, has_reply: bool = False) -> Grant:
        """A place among those of the whole cluster who may ask now."""
        granted = await self._enter(worker, self._paces[judge].slot(has_reply=has_reply))
        if granted.down or not self._unmetered:
            return granted
        turn = await self.turn(worker, judge, 0)
        if turn.down:
            await self.release(worker, granted.number)
            return turn
        return granted._replace(turn=turn.number)

    async def turn(self, worker: str, judge: str, tokens: int) -> Grant:
        return await self._enter(worker, self._paces[judge].turn(tokens))

    async def _enter(self, worker: str, context: AbstractAsyncContextManager[Any]) -> Grant:
        try:
            inside = await context.__aenter__()
        except JudgeDown as error:
            return Grant(down=str(error))
        number = next(self._numbers)
        # A worker that died while it waited is released as one whose heartbeats stop now.
        self._worker_state(worker).held[number] = (context, inside)
        return Grant(number)

    async def report(self, worker: str, number: int, problem: Problem | None) -> Grant | bool:
        """Take the outcome of a send; returns whether the judge is down, or why it is not asked any more."""
        context, turn = self._worker_state(worker).held.pop(number, (None, None))
        if context is None or turn is None:
            return False
        if problem:
            kind, message, status, retry_after = problem
            turn.problem = CallFailed(kind, message, status=status, retry_after=retry_after)
        try:
            await context.__aexit__(None, None, None)
        except JudgeDown as error:
            return Grant(down=str(error))
        return bool(turn.down)

    async def release(self, worker: str, slot: int, answered: int | None = None, unused: int | None = None) -> None:
        """Release a slot. `answered`: the send that was answered; `unused`: one that was allowed and not made."""
        if answered is not None:
            await self.report(worker, answered, None)
        for number in (unused, slot):
            context, _ = self._worker_state(worker).held.pop(number or 0, (None, None))
            if context is not None:
                await _cancel(context)

    async def end(self, judge: str, why: str) -> str:
        return str(await self._paces[judge].end(why))

    # --- budget ------------------------------------------------------------------------------------------------

    async def reserve(self, worker: str, most: MaximumCost) -> tuple[int, int] | None:
        """Money for one request: its number, and the tokens that the answer may take. None: the budget is reached."""
        try:
            hold = await self._budget.hold(most)
        except BudgetReached:
            self._stop("budget")
            return None
        number = next(self._numbers)
        self._worker_state(worker).holds[number] = hold
        return number, hold.tokens

    async def settle(self, worker: str, number: int, cost: float | None) -> None:
        """`cost` None: unknown, so the most that was feared."""
        if hold := self._worker_state(worker).holds.pop(number, None):
            hold.settle(cost)

    # --- the run ----------------------------------------------------------------------------------------------

    async def begin_split(self, worker: str, split: int) -> bool:
        """Whether a split is to be judged at all: not any more when the run is stopping."""
        if self._stopping is None:
            self._worker_state(worker).splits.add(split)
        return self._stopping is None

    async def finish_split(self, worker: str, split: int, tally: RunTally) -> None:
        self._worker_state(worker).splits.discard(split)
        self._tallies[worker] = tally

    async def heartbeat(self, worker: str, tally: RunTally) -> HeartbeatReply:
        """A worker is alive, and did this so far; returns whether to stop."""
        self._worker_state(worker)
        self._tallies[worker] = tally
        return HeartbeatReply(self._stopping, [spec for spec, pace in self._paces.items() if pace.circuit.over])

    async def stop(self, ending: Ending, why: str = "") -> None:
        self._stop(ending, why)

    def _stop(self, ending: Ending, why: str = "") -> None:
        if self._stopping is None:
            self._stopping, self._why = ending, why
            for pace in self._paces.values():
                pace.stop()
            self._budget.stop()

    async def state(self) -> CoordinatorState:
        await self._release_dead()
        messages = self._messages[:]
        self._messages.clear()
        busy = sum(len(state.splits) for state in self._workers.values())
        short = self._budget.short if self._stopping == "budget" else None
        return CoordinatorState(total(self._tallies.values()), messages, self._stopping, self._why, busy, short)

    def _worker_state(self, worker: str) -> _WorkerState:
        state = self._workers.setdefault(worker, _WorkerState(0.0))
        state.heard = time.monotonic()
        return state

    async def _release_dead(self) -> None:
        """Release what dead workers held. What they had asked may have been paid for, so it counts as spent."""
        silent = time.monotonic() - self._heartbeat_timeout
        for worker in [name for name, state in self._workers.items() if state.heard < silent]:
            state = self._workers.pop(worker)
            for context, _ in reversed(state.held.values()):
                await _cancel(context)
            for hold in state.holds.values():
                hold.settle(None)


async def _cancel(context: AbstractAsyncContextManager[Any]) -> None:
    gone = asyncio.CancelledError()
    await context.__aexit__(type(gone), gone, None)


def total(tallies: Iterable[RunTally]) -> RunTally:
    """All of them in one."""
    whole = RunTally()
    for tally in tallies:
        whole.statuses.update(tally.statuses)
        for name in ("cached", "asked", "replies", "cost", "estimated", "unpriced", "left_out", "not_applicable"):
            setattr(whole, name, getattr(whole, name) + getattr(tally, name))
    return whole
