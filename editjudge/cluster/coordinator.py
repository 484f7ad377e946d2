"""What the workers of a cluster share: one pace for each judge, one budget, one count, and the word to stop.

One of these lives in an actor of its own; it knows nothing of Ray. Whatever a worker holds here is given back when it
has not been heard of for a while, since a node that dies says no goodbye.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from editjudge.errors import BudgetReached
from editjudge.judges.budget import Budget, MaximumCost, Reservation, Shortfall
from editjudge.judges.messages import CallFailed
from editjudge.run.engine import Ending
from editjudge.run.pace import Circuit, JudgeDown, Pace
from editjudge.run.progress import RunTally

SILENCE = 15.0
"""Seconds without a beat after which a worker counts as dead: it beats every second, and a busy node is no dead one."""

Problem = tuple[Any, ...]
"""A `CallFailed` as plain values: kind, message, status, retry after."""


class BudgetGrant(NamedTuple):
    """What somebody waited for, or why it will never come."""

    number: int = 0
    turn: int | None = None
    """The first send is allowed along with the slot where nothing else has to be known for it."""
    down: str = ""


class WorkerReport(NamedTuple):
    """What a worker is told when it beats."""

    stopping: Ending | None
    down: list[str]
    """Judges that nobody is to ask any more."""


class CoordinatorState(NamedTuple):
    """What the driver wants to know every moment."""

    tally: RunTally
    messages: list[str]
    stopping: Ending | None
    why: str
    busy: int
    """Pieces that somebody is at."""
    short: Shortfall | None = None
    """Where the budget ends the run, what it was too little for."""


@dataclass
class _WorkerState:
    """What one worker holds."""

    heard: float
    held: dict[int, tuple[AbstractAsyncContextManager[Any], Any]] = field(default_factory=dict)
    holds: dict[int, Reservation] = field(default_factory=dict)
    pieces: set[int] = field(default_factory=set)


class Coordinator:
    def __init__(
        self,
        judges: Sequence[str],
        *,
        concurrency: int | None = None,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        budget: float | None = None,
        silence: float = SILENCE,
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
        self._silence = silence
        self._members: dict[str, _WorkerState] = {}
        self._tallies: dict[str, RunTally] = {}
        """What each worker has done so far, the dead included: what they asked was paid for."""
        self._numbers = itertools.count(1)
        self._stopping: Ending | None = None
        self._why = ""

    # --- pace -------------------------------------------------------------------------------------------------

    async def slot(self, worker: str, judge: str, has_reply: bool = False) -> BudgetGrant:
        """A place among those of the whole cluster who may ask now."""
        granted = await self._enter(worker, self._paces[judge].slot(has_reply=has_reply))
        if granted.down or not self._unmetered:
            return granted
        turn = await self.turn(worker, judge, 0)
        if turn.down:
            await self.leave(worker, granted.number)
            return turn
        return granted._replace(turn=turn.number)

    async def turn(self, worker: str, judge: str, tokens: int) -> BudgetGrant:
        return await self._enter(worker, self._paces[judge].turn(tokens))

    async def _enter(self, worker: str, context: AbstractAsyncContextManager[Any]) -> BudgetGrant:
        try:
            inside = await context.__aenter__()
        except JudgeDown as error:
            return BudgetGrant(down=str(error))
        number = next(self._numbers)
        # Who died while it waited is as one whose beats stop now.
        self._member(worker).held[number] = (context, inside)
        return BudgetGrant(number)

    async def heard(self, worker: str, number: int, problem: Problem | None) -> BudgetGrant | bool:
        """What became of a send; whether the judge counts as down since, or why nobody is asked any more."""
        context, turn = self._member(worker).held.pop(number, (None, None))
        if context is None or turn is None:
            return False
        if problem:
            kind, message, status, retry_after = problem
            turn.problem = CallFailed(kind, message, status=status, retry_after=retry_after)
        try:
            await context.__aexit__(None, None, None)
        except JudgeDown as error:
            return BudgetGrant(down=str(error))
        return bool(turn.down)

    async def leave(self, worker: str, slot: int, answered: int | None = None, unused: int | None = None) -> None:
        """Give a slot back; say which send was answered, and which was allowed and never came to an end."""
        if answered is not None:
            await self.heard(worker, answered, None)
        for number in (unused, slot):
            context, _ = self._member(worker).held.pop(number or 0, (None, None))
            if context is not None:
                await _abandon(context)

    async def end(self, judge: str, why: str) -> str:
        return str(await self._paces[judge].end(why))

    # --- budget ------------------------------------------------------------------------------------------------

    async def hold(self, worker: str, most: MaximumCost) -> tuple[int, int] | None:
        """Money for one request: its number, and the tokens that the answer may take. None: the budget is reached."""
        try:
            hold = await self._budget.hold(most)
        except BudgetReached:
            self.halt("budget")
            return None
        number = next(self._numbers)
        self._member(worker).holds[number] = hold
        return number, hold.tokens

    async def settle(self, worker: str, number: int, cost: float | None) -> None:
        """`cost` None: unknown, so the most that was feared."""
        if hold := self._member(worker).holds.pop(number, None):
            hold.settle(cost)

    # --- the run ----------------------------------------------------------------------------------------------

    async def begin(self, worker: str, piece: int) -> bool:
        """Whether a piece is to be judged at all: not any more when the run is stopping."""
        if self._stopping is None:
            self._member(worker).pieces.add(piece)
        return self._stopping is None

    async def finish(self, worker: str, piece: int, tally: RunTally) -> None:
        self._member(worker).pieces.discard(piece)
        self._tallies[worker] = tally

    async def beat(self, worker: str, tally: RunTally) -> WorkerReport:
        """I am alive, and this is what I did; whether to stop."""
        self._member(worker)
        self._tallies[worker] = tally
        return WorkerReport(self._stopping, [spec for spec, pace in self._paces.items() if pace.circuit.over])

    async def stop(self, ending: Ending, why: str = "") -> None:
        self.halt(ending, why)

    def halt(self, ending: Ending, why: str = "") -> None:
        if self._stopping is None:
            self._stopping, self._why = ending, why
            for pace in self._paces.values():
                pace.stop()
            self._budget.stop()

    async def news(self) -> CoordinatorState:
        await self._bury()
        messages = self._messages[:]
        self._messages.clear()
        busy = sum(len(member.pieces) for member in self._members.values())
        short = self._budget.short if self._stopping == "budget" else None
        return CoordinatorState(total(self._tallies.values()), messages, self._stopping, self._why, busy, short)

    def _member(self, worker: str) -> _WorkerState:
        member = self._members.setdefault(worker, _WorkerState(0.0))
        member.heard = time.monotonic()
        return member

    async def _bury(self) -> None:
        """Take back what the dead held. What they had asked may have been paid for, so it counts as spent."""
        silent = time.monotonic() - self._silence
        for worker in [name for name, member in self._members.items() if member.heard < silent]:
            member = self._members.pop(worker)
            for context, _ in reversed(member.held.values()):
                await _abandon(context)
            for hold in member.holds.values():
                hold.settle(None)


async def _abandon(context: AbstractAsyncContextManager[Any]) -> None:
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
