"""A worker of a cluster: judges splits of a manifest with the local engine, at the pace of the whole cluster."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

from editjudge.canonical import json_hash
from editjudge.cluster.coordinator import Grant, total
from editjudge.cluster.sinks import SplitSink, split_sinks
from editjudge.cluster.splits import Split, edits_of
from editjudge.edit import Edit
from editjudge.errors import BudgetReached, EditjudgeError, UsageError
from editjudge.judges.budget import Budget, MaximumCost, Reservation
from editjudge.judges.judge import Judge
from editjudge.judges.registry import open_judge
from editjudge.rubrics.model import Rubric
from editjudge.run.engine import Engine
from editjudge.run.job import Job
from editjudge.run.pace import JudgeDown, Persistence
from editjudge.run.plan import Planner
from editjudge.run.progress import RunTally
from editjudge.run.throttle import Permit
from editjudge.store.claims import Claims
from editjudge.store.records import RunRecord

HEARTBEAT = 1.0
"""Seconds between two signs of life."""


@dataclass(frozen=True)
class WorkerSettings:
    """What a driver tells its workers. Nothing secret is in it: each resolves its judges in its own environment."""

    job: Job
    run: RunRecord
    rubrics: Sequence[Rubric]
    identities: Mapping[str, str]
    """Of each judge, as it goes into keys: a worker that would make other keys is set up wrongly."""
    place: str
    """The store, without a password, or where shards go."""
    budget: float | None
    rehash: bool
    coordinator: Any


def identity(judge: Judge, rubrics: Sequence[Rubric]) -> str:
    """Of a judge, apart from what it is asked about."""
    return json_hash(judge.identity(Edit(""), rubrics[0], 0))


class Worker:
    """An actor that judges one split after another, a few at the same time."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings, self._id, self._coordinator = settings, uuid.uuid4().hex, settings.coordinator
        self._shape = settings.job.question_settings(settings.rubrics)
        self._budget = ClusterBudget(settings.budget, settings.coordinator, self._id)
        self._open_sink = split_sinks(settings.place, settings.run, self._shape)
        self._engines: dict[int, Engine] = {}
        self._past = RunTally()
        """Of the splits that are finished."""
        self._judges: asyncio.Task[list[Judge]] | None = None
        self._paces: list[ClusterPersistence] = []
        self._resources = AsyncExitStack()
        self._heartbeats: asyncio.Task[None] | None = None

    async def judge(self, split: Split) -> None:
        # Here and not before: this is the loop that judges live in.
        self._judges = self._judges or asyncio.create_task(self._open_judges())
        self._heartbeats = self._heartbeats or asyncio.create_task(self._send_heartbeats())
        await self._judge(split)

    async def _open_judges(self) -> list[Judge]:
        settings = self._settings
        judges = []
        for spec in settings.job.judges:
            judge = await open_judge(spec, settings.job.options, self._pacing, self._resources, funds=self._budget)
            if identity(judge, settings.rubrics) != settings.identities[spec]:
                raise UsageError(
                    f"{spec} is another judge on a node of the cluster than where the run was started: "
                    "give all nodes the same variables, such as OPENAI_BASE_URL, and the same version of editjudge"
                )
            judges.append(judge)
        return judges

    def _pacing(self, spec: str) -> ClusterPersistence:
        self._paces.append(ClusterPersistence(spec, self._coordinator, self._id))
        return self._paces[-1]

    async def _send_heartbeats(self) -> None:
        while True:
            heard = await self._coordinator.heartbeat.remote(self._id, self._tally())
            for engine in self._engines.values() if heard.stopping else ():
                engine.control.stop(heard.stopping)
            for pace in self._paces:
                if pace.judge in heard.down:
                    pace.over.set()
            await asyncio.sleep(HEARTBEAT)

    def _tally(self) -> RunTally:
        tally = total([self._past, *(engine.planner.tally for engine in self._engines.values())])
        tally.estimated = self._budget.estimated
        return tally

    async def _judge(self, split: Split) -> None:
        if not await self._coordinator.begin_split.remote(self._id, split.number):
            return
        try:
            judges = await asyncio.shield(cast("asyncio.Task[list[Judge]]", self._judges))
            sink = await asyncio.to_thread(self._open_sink, split)
            engine = self._engines[split.number] = self._engine(sink)
            job = self._settings.job
            chosen = job.chosen(sink.store, lambda: edits_of(split, job))
            try:
                ending = await engine.run(chosen, judges)
            finally:
                engine.planner.tally.left_out = chosen.absent
                del self._engines[split.number]
                self._past = total([self._past, engine.planner.tally])
                await asyncio.to_thread(sink.close)
            if ending == "failed":
                await self._coordinator.stop.remote("failed", str(engine.control.error))
        except EditjudgeError as error:
            await self._coordinator.stop.remote("failed", str(error))
        except (
            Exception
        ) as error:  # a full disk, or a mistake of ours: the run ends, and the log of the node has it all
            logging.getLogger(__name__).exception("split %s", split.number)
            await self._coordinator.stop.remote("failed", f"{type(error).__name__}: {error}")
        finally:
            await self._coordinator.finish_split.remote(self._id, split.number, self._tally())

    def _engine(self, sink: SplitSink) -> Engine:
        settings = self._settings
        claims = Claims(sink.store) if sink.store else None
        planner = Planner(
            sink, settings.run.id, self._shape, settings.job.reader(), claims=claims, rehash=settings.rehash
        )
        return Engine(sink, planner, self._budget, store=sink.store)


class ClusterBudget(Budget):
    """The budget of the whole cluster, as one worker sees it: asked before each request, where there is one."""

    def __init__(self, budget: float | None, coordinator: Any, worker: str) -> None:
        super().__init__()
        self.bounded = budget is not None
        self._coordinator, self._worker = coordinator, worker

    async def hold(self, most: MaximumCost) -> Reservation:
        if not self.bounded:
            return await super().hold(most)
        granted = await self._coordinator.reserve.remote(self._worker, most)
        if granted is None:
            raise BudgetReached("the budget of the run may not pay for the next question")
        number, tokens = granted
        return _ClusterReservation(self, number, tokens, most)

    def pay(self, number: int, cost: float | None) -> None:
        """Nobody waits for it to be heard."""
        self._coordinator.settle.remote(self._worker, number, cost)


@dataclass
class _ClusterReservation:
    budget: ClusterBudget
    number: int
    tokens: int
    most: MaximumCost

    def settle(self, cost: float | None) -> None:
        self.budget.pay(self.number, cost)

    def lost(self) -> float:
        amount = self.most.of(self.tokens)
        self.budget.estimated += amount
        self.settle(None)
        return amount


@dataclass
class _Held:
    """A slot of the cluster, with the send that was allowed along with it and the one that was answered last."""

    slot: int
    turn: int | None
    answered: int | None = None


_HELD: ContextVar[_Held] = ContextVar("held")


class ClusterPersistence(Persistence):
    """The pace of the whole cluster, as one worker sees it: it asks twice for a question that is answered at once."""

    def __init__(self, judge: str, coordinator: Any, worker: str) -> None:
        super().__init__(judge)
        self._coordinator, self._worker = coordinator, worker
        self.window = 0
        """Slots held here: the engine prepares a few tasks more, so that a worker that is given slots asks for more."""
        self.over = asyncio.Event()
        """Nobody is asked any more, or the run is stopping."""
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True
        self.over.set()

    @asynccontextmanager
    async def slot(self, *, has_reply: bool = False) -> AsyncIterator[None]:
        granted = _granted(await self._coordinator.slot.remote(self._worker, self.judge, has_reply))
        held = _Held(granted.number, granted.turn)
        _HELD.set(held)
        self.window += 1
        try:
            yield
        finally:
            self.window -= 1
            # Nobody waits for it to be heard.
            self._coordinator.release.remote(self._worker, held.slot, held.answered, held.turn)

    @asynccontextmanager
    async def turn(self, tokens: int) -> AsyncIterator[Permit]:
        held = _HELD.get()
        if held.turn is None:
            held.turn = _granted(await self._coordinator.turn.remote(self._worker, self.judge, tokens)).number
        turn = Permit(0.0)
        yield turn
        number, held.turn = held.turn, None
        if turn.problem is None and held.answered is None:
            held.answered = number  # told together with the end of the slot, which is near
            return
        problem = turn.problem
        plain = problem and (problem.kind, str(problem), problem.status, problem.retry_after)
        heard = await self._coordinator.report.remote(self._worker, number, plain)
        turn.down = heard if isinstance(heard, bool) else bool(_granted(heard))

    async def rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.over.wait(), seconds)
        if self._stopped:
            raise JudgeDown("the run was stopped")

    async def end(self, why: str) -> JudgeDown:
        return JudgeDown(await self._coordinator.end.remote(self.judge, why))


def _granted(grant: Grant) -> Grant:
    if grant.down:
        raise JudgeDown(grant.down)
    return grant
