"""The batch engine: questions are handed in to the provider by the thousand, and their answers fetched when they are
there, by this process or by the next.

Nothing waits in memory for a day. What came back is kept, and a judge is asked by letting it go through what it was
told so far: at the end of that is a judgement, or the next question. So a conversation, its re-asks included, is the
same as a live one, whoever carries it on.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
import re
import secrets
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any, TypeVar

from editjudge.errors import BudgetReached, JudgeError, UsageError
from editjudge.judgement import Judgement
from editjudge.judges import batch as wire
from editjudge.judges.body import document
from editjudge.judges.budget import Budget, BudgetReservation, MaximumCost, Reservation
from editjudge.judges.chat import ChatJudge
from editjudge.judges.http import HttpTransport, Response
from editjudge.judges.judge import Judge, Work
from editjudge.judges.messages import CallFailed, ChatRequest
from editjudge.media.cache import Encoded
from editjudge.run.engine import Engine
from editjudge.run.feed import judged, keep
from editjudge.run.pace import Retry
from editjudge.run.plan import Planner
from editjudge.store import batches as stored_batches
from editjudge.store.batches import BatchRecord, Said
from editjudge.store.store import Store

T = TypeVar("T")

LOOK = (10.0, 300.0)
"""Seconds between two looks at a batch: at first, and after a while. Most batches take from minutes to a day."""
OPEN = 8
"""Batches of a judge that wait at a time: what is known of their works is in memory, and providers have limits too."""
TRIES = 3
"""Batches that a question goes into before it counts as unreachable: what expired once is likely to again."""
RETRY = Retry()
_TOGETHER = 64
"""Works whose pictures are read at a time."""
_MARK = 16
_ENOUGH_OF_A_KEY = 40
"""Hex digits; custom ids may have 64 characters, mark included."""
_NO_ANSWER = (504, b'{"error":{"message":"the batch ended without an answer to this"}}')


class BatchEngine(Engine):
    """One run over one store, by the batches of its judges' providers."""

    def __init__(
        self, store: Store, run_id: int, planner: Planner, budget: Budget, say: Callable[[str], None] = lambda _: None
    ) -> None:
        super().__init__(store, planner, budget, say)
        self.store, self.run_id = store, run_id

    async def _drive_stage(self, judge: Judge, batches: Iterator[list[Work]]) -> None:
        if not isinstance(judge, ChatJudge):
            raise UsageError(f"{judge.spec} has no batches")
        async with HttpTransport(timeout=900.0) as transport:  # 200 MB in a quarter of an hour
            counter = _BatchSubmitter(self, judge, transport)
            while self.control.stopping is None and (works := await self._next(batches)) is not None:
                await counter.take(works)
            await counter.finish()
            while self.planner.elsewhere(judge) and not self.control.stopped:
                await counter.take(await self.left_behind(judge))
                await counter.finish()

    async def keep(self, judgements: Sequence[Judgement]) -> None:
        """Commit; then the provider's answers are no longer needed."""
        judgements = await asyncio.gather(*(keep(self._writer.put, judgement) for judgement in judgements))
        await asyncio.to_thread(stored_batches.forget, self.store, [judgement.key for judgement in judgements])
        for judgement in judgements:
            self.planner.count(judgement)


class _BatchSubmitter:
    """Where the questions of one judge are handed in and its answers fetched."""

    def __init__(self, engine: BatchEngine, judge: ChatJudge, transport: HttpTransport) -> None:
        self._engine, self._judge = engine, judge
        self._store, self._budget, self._control, self._say = engine.store, engine.budget, engine.control, engine.say
        self._client = wire.batch_client(judge.spec)
        self._calls = _Calls(judge, transport)
        self._works: dict[str, Work] = {}
        """Those that wait for an answer, by key."""
        self._holds: dict[str, dict[int, BudgetReservation]] = {}
        """Money for questions that wait for an answer, by key and number of the question."""
        self._unpaid: list[Work] = []
        """Those whose next question there was no money for."""
        self._open: dict[int, BatchRecord] = {}
        self._most_open = OPEN
        self._pause = LOOK[0]
        self._part, self._handing, self._size = self._new_part(), list[Work](), 0

    def _new_part(self) -> wire.BatchPart:
        return wire.BatchPart(self._judge.endpoint.model, secrets.token_hex(_MARK // 2))

    # --- works ------------------------------------------------------------------------------------------------

    async def take(self, works: Sequence[Work]) -> None:
        """Works that are not judged yet: some wait for an answer since an earlier run, the others are carried on."""
        keys = [work.task.key for work in works]
        waiting = await asyncio.to_thread(stored_batches.awaited, self._store, keys)
        for work in works:
            if batch := waiting.get(work.task.key):
                self._works[work.task.key] = work
                self._open.setdefault(batch.id, batch)
        await self._carry_on([work for work in works if work.task.key not in waiting])
        await self._pay_backlog()

    async def _carry_on(self, works: Sequence[Work]) -> None:
        replies = await asyncio.to_thread(stored_batches.said_of, self._store, [work.task.key for work in works])
        for some in _chunks(works, _TOGETHER):
            if self._control.stopping is None:
                await self._advance(some, replies)

    async def _advance(self, works: Sequence[Work], replies: Mapping[str, list[Said]]) -> None:
        try:
            steps = await asyncio.gather(*(self._step(work, replies.get(work.task.key, [])) for work in works))
        except JudgeError:  # no question will fare better, until somebody mends it; then all are asked again
            await asyncio.to_thread(stored_batches.forget_errors, self._store, self._judge.spec)
            raise
        await self._keep([step for step in steps if isinstance(step, Judgement)])
        self._unpaid += [work for work, step in zip(works, steps, strict=True) if step is None]
        for work, step in zip(works, steps, strict=True):
            if isinstance(step, _QuestionAsked):
                await self._add(work, step)

    async def _pay_backlog(self) -> None:
        """Ask what there was no money for, as what is under way comes back cheaper than was feared."""
        while self._unpaid and self._control.stopping is None:
            works, self._unpaid = self._unpaid, []
            await self._carry_on(works)
            if len(self._unpaid) >= len(works):
                await self._wait_for_money()

    async def _keep(self, judgements: Sequence[Judgement]) -> None:
        for judgement in judgements:  # nothing more is asked
            for hold in self._holds.pop(judgement.key, {}).values():
                hold.settle(0.0)
        await self._engine.keep(judgements)

    async def _wait_for_money(self) -> None:
        """Before the budget counts as reached, what is under way is waited for."""
        if self._handing:
            await self._submit()
        elif self._open:
            await self._look()
        elif self._budget.open:  # for another judge
            await self._control.rest(self._pause)
        else:
            self._control.stop("budget", short=self._budget.short)

    async def _step(self, work: Work, replies: list[Said]) -> Judgement | _QuestionAsked | None:
        """The judgement that what was said leads to, or else the next question; None where there is no money for it."""
        try:
            if replies:
                with suppress(_QuestionAsked):  # pictures are needed for the next question alone
                    return await judged(self._through(work, replies), work, self._engine.pictures, _unseen)
            return await judged(self._through(work, replies), work, self._engine.pictures)
        except _QuestionAsked as question:
            return question
        except (_BudgetShort, BudgetReached):
            return None

    def _through(self, work: Work, replies: list[Said]) -> ChatJudge:
        transport = _BatchReplies(replies)
        funds = _BatchFunds(self._budget, self._holds.setdefault(work.task.key, {}), len(replies))
        return self._judge.through(transport, transport, funds)

    async def finish(self) -> None:
        while self._control.stopping is None and (self._handing or self._open):
            await (self._submit() if self._handing else self._look())
            await self._pay_backlog()
        if self._open:
            self._say(
                f"{self._judge.spec}: {_count(len(self._open), 'batch', 'batches')} with "
                f"{sum(b.questions for b in self._open.values()):,} questions go on without us; "
                "run the same command again to collect the answers"
            )

    # --- handing in -------------------------------------------------------------------------------------------

    async def _add(self, work: Work, question: _QuestionAsked) -> None:
        line = self._line(work, question)
        size = sum(map(len, line))
        if len(self._handing) >= self._client.MOST_QUESTIONS or self._size + size > self._client.MOST_BYTES:
            await self._submit()
            line = self._line(work, question)  # under the mark of the next
        self._handing.append(work)
        self._part.lines.append(line)
        self._size += size
        self._part.headers = question.headers

    def _line(self, work: Work, question: _QuestionAsked) -> wire.Body:
        return self._client.line(f"{self._part.mark}-{work.task.key[:_ENOUGH_OF_A_KEY]}", question.body)

    async def _submit(self) -> None:
        while len(self._open) >= self._most_open and self._control.stopping is None:
            await self._look()
        if self._control.stopping is not None:
            return
        part, works = self._part, self._handing
        self._part, self._handing, self._size = self._new_part(), [], 0
        keys = [work.task.key for work in works]
        batch = await asyncio.to_thread(
            stored_batches.begin, self._store, self._engine.run_id, self._judge.spec, part.mark, keys
        )
        batch = await self._hand_in(batch, part)
        self._open[batch.id] = batch
        self._works.update(zip(keys, works, strict=True))
        self._pause = LOOK[0]
        if batch.provider_id:
            self._say(f"{self._judge.spec}: batch {batch.provider_id} with {len(keys):,} questions is handed in")

    async def _hand_in(self, batch: BatchRecord, part: wire.BatchPart) -> BatchRecord:
        """A batch whose arrival nobody confirmed may have arrived: it is looked for before it is sent again."""
        chance = random.Random()  # noqa: S311  (spreads retries, guards nothing)
        for failures in itertools.count(1):
            try:
                id_ = await self._client.submit(self._calls, part)
                if not id_:
                    raise CallFailed("server", "the provider gave the batch no id")
            except CallFailed as problem:
                if not problem.passing:
                    await asyncio.to_thread(stored_batches.withdraw, self._store, batch)
                if not problem.passing or failures >= RETRY.tries:
                    raise JudgeError(f"{self._judge.spec}: no batch can be handed in: {problem}") from None
                await self._control.rest(RETRY.pause(problem, failures, chance))
                sought = wire.BatchSearch(sure=False)
                while sought.id is None and not sought.sure:
                    if self._control.stopping is not None:
                        return batch  # the next run looks for it
                    sought = await self._seek(batch)
                    await self._control.rest(0.0 if sought.sure else LOOK[0])
                if sought.id is None:
                    continue
                id_ = sought.id
            return await asyncio.to_thread(stored_batches.submitted, self._store, batch, id_)
        raise AssertionError

    async def _seek(self, batch: BatchRecord) -> wire.BatchSearch:
        lost = wire.LostAnswer(batch.mark, batch.created, batch.questions)
        return await self._persist(lambda: self._client.find(self._calls, lost))

    # --- fetching ---------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """At every batch that waits; where none has ended, a pause before the next look."""
        answered, ended = 0, False
        for batch in list(self._open.values()):
            if self._control.stopping is not None:
                return
            if batch.id not in self._open:  # fetched meanwhile, to make room
                continue
            job = await self._job(batch)
            answered += job.answered
            if job.ended:
                ended = True
                await self._fetch(self._open[batch.id], job)
        if ended:
            self._pause = LOOK[0]
        elif self._control.stopping is None:
            waiting = sum(batch.questions for batch in self._open.values())
            self._say(
                f"{self._judge.spec}: {_count(len(self._open), 'batch', 'batches')} at work, {answered:,} of "
                f"{waiting:,} questions answered; looking again in {self._pause:.0f} s"
            )
            await self._control.rest(self._pause)
            self._pause = min(1.5 * self._pause, LOOK[1])

    async def _job(self, batch: BatchRecord) -> wire.BatchJob:
        if batch.provider_id is None:  # an earlier process died while it handed this in
            sought = await self._seek(batch)
            if sought.id is None:
                return wire.BatchJob(sought.sure, problem="it never arrived" if sought.sure else "")
            batch = self._open[batch.id] = await asyncio.to_thread(
                stored_batches.submitted, self._store, batch, sought.id
            )
        # What is gone is gone with all its answers, as they are some weeks later.
        return await self._persist(
            lambda: self._client.look(self._calls, str(batch.provider_id)), gone=wire.BatchJob(True)
        )

    async def _fetch(self, batch: BatchRecord, job: wire.BatchJob) -> None:
        keys = {
            key[:_ENOUGH_OF_A_KEY]: key for key in await asyncio.to_thread(stored_batches.keys_of, self._store, batch)
        }
        if job.problem:
            await self._turned_down(batch, job.problem)
        else:
            strangers = 0
            for path in job.results:
                strangers += await self._keep_answers(batch, path, keys)
            await asyncio.to_thread(stored_batches.collected, self._store, batch, _NO_ANSWER)
            if strangers:
                self._say(f"{self._judge.spec}: {strangers:,} answers of {batch.provider_id} are to nothing we asked")
        del self._open[batch.id]
        await self._carry_on([work for key in keys.values() if (work := self._works.pop(key, None))])

    async def _turned_down(self, batch: BatchRecord, why: str) -> None:
        """As a whole, so that nothing was paid. With others under way it may be one too many, and waits for them."""
        others = sum(other.provider_id is not None for other in self._open.values()) - 1
        await asyncio.to_thread(stored_batches.withdraw, self._store, batch)
        if batch.provider_id is None:
            return
        if others <= 0:
            raise JudgeError(f"{self._judge.spec}: batch {batch.provider_id} was turned down: {why}")
        self._most_open = others
        self._say(f"{self._judge.spec}: a batch was turned down ({why}); it goes again when others have ended")

    async def _keep_answers(self, batch: BatchRecord, path: str, keys: Mapping[str, str]) -> int:
        """Into the store; how many were answers to something else."""
        strangers = 0
        with tempfile.TemporaryFile() as file:
            await self._persist(lambda: self._calls.download(path, file, self._client.HEADERS), gone=0)
            file.seek(0)
            for some in _chunks(file, 500):
                answers = [self._client.answer(document(line)) for line in some if line.strip()]
                known = [
                    (keys[end], (answer.status, self._judge.endpoint.redacted_body(answer.body)))
                    for answer in answers
                    if (end := answer.custom_id.removeprefix(f"{batch.mark}-")) in keys
                ]
                strangers += len(answers) - len(known)
                await asyncio.to_thread(stored_batches.answered, self._store, batch, known)
        return strangers

    async def _persist(self, send: Callable[[], Awaitable[T]], gone: T | None = None) -> T:
        """What only reads may be sent as often as it takes; `gone` is the answer where it is not there any more."""
        chance = random.Random()  # noqa: S311  (spreads retries, keeps no secret)
        for failures in itertools.count(1):
            try:
                return await send()
            except CallFailed as problem:
                if problem.status == 404 and gone is not None:
                    return gone
                if not problem.passing or failures >= RETRY.tries:
                    raise JudgeError(
                        f"{self._judge.spec}: {problem}. Nothing is lost: run the same command again to go on."
                    ) from None
                await self._control.rest(RETRY.pause(problem, failures, chance))
        raise AssertionError


class _QuestionAsked(BaseException):
    """A question that nothing was said to yet: no failure, so that nothing on the way takes it for one."""

    def __init__(self, headers: Mapping[str, str], body: tuple[bytes, ...]) -> None:
        super().__init__()
        self.headers, self.body = headers, body


class _BudgetShort(BaseException):
    """A question that there is no money for now: no failure, so that nothing on the way takes it for one."""


class _BatchFunds:
    """Money for the questions of one task. It is gone through anew with each answer: those that were answered are
    settled the first time, and the next one has its money held until it is."""

    def __init__(self, budget: Budget, holds: dict[int, BudgetReservation], answered: int) -> None:
        self.bounded = budget.bounded
        self._budget, self._holds, self._answered = budget, holds, answered
        self._number = itertools.count()

    async def hold(self, most: MaximumCost) -> Reservation:
        number = next(self._number)
        if number < self._answered:  # without money of ours, an earlier process held it
            return _BatchHold(self._holds.pop(number, None), most.tokens)
        if number not in self._holds:
            if (hold := self._budget.try_hold(most)) is None:
                raise _BudgetShort
            self._holds[number] = hold
        return self._holds[number]


@dataclass
class _BatchHold:
    """Money for a question that was answered. What a batch brings no answer to is not billed."""

    held: BudgetReservation | None
    tokens: int

    def settle(self, cost: float | None) -> None:
        if self.held:
            self.held.settle(cost)

    def lost(self) -> float:
        self.settle(0.0)
        return 0.0


class _BatchReplies:
    """Stands for the server: says what it said before, in that order, and raises the question that comes next."""

    def __init__(self, replies: Iterable[Said]) -> None:
        self._replies = iter(replies)

    async def post(
        self, url: str, headers: Mapping[str, str], body: tuple[bytes, ...], patience: float = 1.0
    ) -> Response:
        for status, answer in self._replies:
            return Response(status, {}, answer, None)
        raise _QuestionAsked(headers, body)

    @asynccontextmanager
    async def slot(self, *, has_reply: bool = False) -> AsyncIterator[None]:
        yield

    async def persist(self, send: Callable[[], Awaitable[T]], tokens: int = 0) -> tuple[T, int]:
        for retries in range(TRIES):
            try:
                return await send(), retries
            except CallFailed as problem:
                if not problem.passing or retries == TRIES - 1:
                    raise
        raise AssertionError


async def _unseen(_: str) -> Encoded:
    """In place of a picture, where only what was said to it matters."""
    return Encoded("", "", "", 0, 0, b"")


class _Calls:
    """Requests to a provider, with the judge's address, key and way of reading errors."""

    def __init__(self, judge: ChatJudge, transport: HttpTransport) -> None:
        self._judge, self._transport = judge, transport

    async def post(
        self, path: str, body: wire.Body, headers: Mapping[str, str] = {}
    ) -> tuple[dict[str, Any], Mapping[str, str]]:
        response = self._checked(await self._transport.post(*self._address(path, headers), body))
        return document(response.body), response.headers

    async def get(self, path: str, headers: Mapping[str, str] = {}) -> dict[str, Any]:
        answer = document(self._checked(await self._transport.get(*self._address(path, headers))).body)
        if not answer:
            raise CallFailed("server", "the server sent no JSON", status=200)
        return answer

    async def head_of(self, path: str, headers: Mapping[str, str] = {}) -> dict[str, Any]:
        with tempfile.TemporaryFile() as file:
            await self.download(path, file, headers)
            file.seek(0)
            return document(file.readline())

    async def download(self, path: str, into: IO[bytes], headers: Mapping[str, str]) -> int:
        self._checked(await self._transport.get(*self._address(path, headers), into))
        return into.tell()

    def _address(self, path: str, headers: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        if ".." in path or not re.fullmatch(r"[\x21-\x7e]+", path):  # ids in it are a server's words
            raise CallFailed("server", "the provider named something that cannot be an id")
        return self._judge.endpoint.address(ChatRequest(path, (), headers))

    def _checked(self, response: Response) -> Response:
        if not 200 <= response.status < 300:
            self._judge.heard(response)  # raises what it says, without the key
            raise CallFailed("server", f"HTTP {response.status}", status=response.status)
        return dataclasses.replace(response, body=self._judge.endpoint.redacted_body(response.body))


def _chunks(values: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(values)
    while some := list(itertools.islice(iterator, size)):
        yield some


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
