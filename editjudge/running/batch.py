"""The batch engine, which submits thousands of questions to a provider at once. The answers are fetched by this process
or a later one.

No conversation is kept in memory while a batch is processed, which may take a day. Instead, replies are stored. To
continue a conversation, the judge replays the stored replies, and then returns a judgement or asks its next question. A
conversation with its re-asks is therefore the same as a live one, whichever process continues it.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import tempfile
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, NoReturn, TypeVar

from editjudge.errors import BudgetReached, JudgeError, UsageError
from editjudge.judgement import Judgement
from editjudge.judges import batch as wire
from editjudge.judges.chat import ChatJudge
from editjudge.judges.cost import Budget, MaximumCost, Reservation
from editjudge.judges.failures import CallFailed
from editjudge.judges.http import HttpTransport, Response
from editjudge.judges.judge import Judge, Load, Work
from editjudge.judges.wire import document
from editjudge.media.image import EncodedImage
from editjudge.running.asker import judge_task
from editjudge.running.engine import Engine
from editjudge.running.pace import Retry
from editjudge.running.plan import PlannedBatch, Planner
from editjudge.store import batches as stored_batches
from editjudge.store.batches import BatchRecord, Reply
from editjudge.store.store import Store

T = TypeVar("T")

LOOK = (10.0, 300.0)
"""Seconds between checks of a batch, at first and later. Most batches take from minutes to a day."""
OPEN = 8
"""Maximum number of a judge's open batches. The tasks of open batches are in memory, and providers have limits too."""
TRIES = 3
"""Number of batches in which a question may be submitted before it counts as unreachable. A question that expired once
is likely to expire again.
"""
RETRY = Retry()
_TOGETHER = 64
"""Number of tasks whose images are read at the same time."""
_MARK = 16
_ENOUGH_OF_A_KEY = 40
"""Number of hexadecimal digits of a key that are used; custom ids may have 64 characters, including the mark."""
_NO_ANSWER = (504, b'{"error":{"message":"the batch ended without an answer to this"}}')


class BatchEngine(Engine):
    """Engine for a run whose questions go through the batch APIs of the judges' providers."""

    def __init__(
        self, store: Store, run_id: int, planner: Planner, budget: Budget, **named: Any
    ) -> None:
        super().__init__(store, planner, budget, **named)
        self.store = store
        self.run_id = run_id

    async def _drive_stage(self, judge: Judge, batches: Iterator[PlannedBatch]) -> None:
        if not isinstance(judge, ChatJudge):
            raise UsageError(f"{judge.spec} has no batches")
        # Allows 200 MB in a quarter of an hour.
        async with HttpTransport(timeout=900.0) as transport:
            submitter = _BatchSubmitter(self, judge, transport)
            while (
                self.control.stopping is None
                and (works := await self.next_works(batches)) is not None
            ):
                await submitter.take(works)
            await submitter.finish()
            while self.asker.elsewhere(judge) and not self.control.stopped:
                await submitter.take(await self.left_behind(judge))
                await submitter.finish()


class _BatchSubmitter:
    """Submits one judge's questions and fetches their answers."""

    def __init__(
        self, engine: BatchEngine, judge: ChatJudge, transport: HttpTransport
    ) -> None:
        self._engine = engine
        self._judge = judge
        self._store = engine.store
        self._budget = engine.budget
        self._control = engine.control
        self._say = engine.say
        self._client = wire.batch_client(judge.spec)
        self._calls = wire.BatchCalls(judge, transport)
        self._works: dict[str, Work] = {}
        """Tasks that are waiting for an answer, keyed by task key."""
        self._holds: dict[str, dict[int, Reservation]] = {}
        """Money reserved for questions that are waiting for an answer, keyed by task key and question number."""
        self._unpaid: list[Work] = []
        """Tasks whose next question the budget did not cover."""
        self._open: dict[int, BatchRecord] = {}
        self._most_open = OPEN
        self._pause = LOOK[0]
        self._handing = list[Work]()
        self._begin_part()

    def _begin_part(self) -> None:
        mark = secrets.token_hex(_MARK // 2)
        self._part = wire.BatchPart(self._judge.endpoint.model, mark)
        self._handing = []
        self._size = 0

    async def _stored(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function on the store in a thread, and return its result."""
        return await asyncio.to_thread(function, self._store, *arguments)

    # --- works ------------------------------------------------------------------------------------------------

    async def take(self, works: Sequence[Work]) -> None:
        """Add tasks that have no judgement yet. Tasks that have been waiting for an answer since an earlier run keep
        waiting. The others advance to their next question.
        """
        keys = [work.task.key for work in works]
        waiting = await self._stored(stored_batches.awaited, keys)
        for work in works:
            if batch := waiting.get(work.task.key):
                self._works[work.task.key] = work
                self._open.setdefault(batch.id, batch)
        await self._carry_on([work for work in works if work.task.key not in waiting])
        await self._pay_backlog()

    async def _carry_on(self, works: Sequence[Work]) -> None:
        keys = [work.task.key for work in works]
        replies = await self._stored(stored_batches.replies_to, keys)
        for chunk in _chunks(works, _TOGETHER):
            if self._control.stopping is None:
                await self._advance(chunk, replies)

    async def _advance(
        self, works: Sequence[Work], replies: Mapping[str, list[Reply]]
    ) -> None:
        try:
            steps = await asyncio.gather(
                *(self._step(work, replies.get(work.task.key, [])) for work in works)
            )
        except JudgeError:
            # No question will succeed until the user fixes this; then all are asked again.
            await self._stored(stored_batches.forget_errors, self._judge.spec)
            raise
        await self._keep([step for step in steps if isinstance(step, Judgement)])
        for work, step in zip(works, steps, strict=True):
            if step is None:
                self._unpaid.append(work)
            elif isinstance(step, UnansweredQuestion):
                await self._add(work, step)

    async def _pay_backlog(self) -> None:
        """Submit questions that the budget did not cover before, if earlier questions turned out to be cheaper than
        their upper bound.
        """
        while self._unpaid and self._control.stopping is None:
            works = self._unpaid
            self._unpaid = []
            await self._carry_on(works)
            if len(self._unpaid) >= len(works):
                await self._wait_for_money()

    async def _keep(self, judgements: Sequence[Judgement]) -> None:
        """Commit judgements, and then delete the provider's answers to their questions, which are no longer needed."""
        for judgement in judgements:  # nothing more is asked
            for hold in self._holds.pop(judgement.key, {}).values():
                hold.settle(0.0)
        judgements = await asyncio.gather(*map(self._engine.asker.commit, judgements))
        keys = [judgement.key for judgement in judgements]
        await self._stored(stored_batches.forget, keys)
        for judgement in judgements:
            self._engine.count(judgement)

    async def _wait_for_money(self) -> None:
        """Wait for questions in progress before the budget counts as reached, since they may free money."""
        if self._handing:
            await self._submit()
        elif self._open:
            await self._look()
        elif self._budget.open:  # for another judge
            await self._control.rest(self._pause)
        else:
            self._control.stop("budget", short=self._budget.short)

    async def _step(
        self, work: Work, replies: list[Reply]
    ) -> Judgement | UnansweredQuestion | None:
        """Return the judgement that follows from the replies, or the next question. Return None if the budget does not
        cover that question.
        """
        if replies:
            # Only the next question needs the images.
            step = await self._converse(work, replies, _no_image)
            if not isinstance(step, UnansweredQuestion):
                return step
        return await self._converse(work, replies)

    async def _converse(
        self, work: Work, replies: list[Reply], load: Load | None = None
    ) -> Judgement | UnansweredQuestion | None:
        """Replay a task's conversation until the judge returns a judgement, or asks a question that has no stored
        reply.

        Return the judgement or the question, or None if the budget does not cover the question.
        """
        holds = self._holds.setdefault(work.task.key, {})
        talk = ReplayedTalk(replies, self._budget, holds)
        judge = self._judge.with_transport(talk, talk, talk)
        judging = asyncio.create_task(
            judge_task(judge, work, self._engine.images, load)
        )
        ends: list[asyncio.Future[Any]] = [judging, talk.end]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not judging.done():
            judging.cancel()
            await asyncio.wait({judging})
            return talk.end.result()
        try:
            return judging.result()
        except BudgetReached:
            return None

    async def finish(self) -> None:
        while self._control.stopping is None and (self._handing or self._open):
            await (self._submit() if self._handing else self._look())
            await self._pay_backlog()
        if self._open:
            self._say(
                f"{self._judge.spec}: {_batches(len(self._open))} with "
                f"{sum(b.questions for b in self._open.values()):,} questions are still being processed; "
                "run the same command again to collect the answers"
            )

    # --- handing in -------------------------------------------------------------------------------------------

    async def _add(self, work: Work, question: UnansweredQuestion) -> None:
        line = self._line(work, question)
        size = sum(map(len, line))
        if (
            len(self._handing) >= self._client.max_questions
            or self._size + size > self._client.max_bytes
        ):
            await self._submit()
            line = self._line(work, question)  # under the mark of the next
        self._handing.append(work)
        self._part.lines.append(line)
        self._size += size
        self._part.headers = question.headers

    def _line(self, work: Work, question: UnansweredQuestion) -> wire.Body:
        return self._client.line(
            f"{self._part.mark}-{work.task.key[:_ENOUGH_OF_A_KEY]}", question.body
        )

    async def _submit(self) -> None:
        while len(self._open) >= self._most_open and self._control.stopping is None:
            await self._look()
        if self._control.stopping is not None:
            return
        part = self._part
        works = self._handing
        self._begin_part()
        keys = [work.task.key for work in works]
        run_id = self._engine.run_id
        batch = await self._stored(
            stored_batches.begin, run_id, self._judge.spec, part.mark, keys
        )
        batch = await self._hand_in(batch, part)
        self._open[batch.id] = batch
        self._works.update(zip(keys, works, strict=True))
        self._pause = LOOK[0]
        if batch.provider_id:
            self._say(
                f"{self._judge.spec}: batch {batch.provider_id} with {len(keys):,} questions was submitted"
            )

    async def _hand_in(self, batch: BatchRecord, part: wire.BatchPart) -> BatchRecord:
        """Submit a batch. If an attempt was not confirmed, the batch may still have arrived. The provider's list is
        then searched before the batch is sent again.
        """
        for failures in itertools.count(1):
            try:
                id_ = await self._client.submit(self._calls, part)
                if not id_:
                    raise CallFailed("server", "the provider gave the batch no id")
            except CallFailed as problem:
                if not problem.is_transient:
                    await self._stored(stored_batches.withdraw, batch)
                if not problem.is_transient or failures >= RETRY.tries:
                    raise JudgeError(
                        f"{self._judge.spec}: the batch could not be submitted: {problem}"
                    ) from None
                await self._control.rest(RETRY.pause(problem, failures))
                batch_id: str | None = None
                while batch_id is None:
                    if self._control.stopping is not None:
                        return batch  # the next run looks for it
                    batch_id = await self._find(batch)
                    await self._control.rest(LOOK[0] if batch_id is None else 0.0)
                id_ = batch_id
            if id_:
                return await self._stored(stored_batches.submitted, batch, id_)
        raise AssertionError

    async def _find(self, batch: BatchRecord) -> str | None:
        """Return the provider's id for a batch, an empty string if the provider does not have the batch, or None if
        that is not known yet.
        """
        return await self._persist(
            lambda: self._client.find(
                self._calls, batch.mark, batch.created, batch.questions
            )
        )

    # --- fetching ---------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Check all open batches, and wait a while if none has ended."""
        answered = 0
        ended = False
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
                f"{self._judge.spec}: {_batches(len(self._open))} at work, {answered:,} of "
                f"{waiting:,} questions answered; looking again in {self._pause:.0f} s"
            )
            await self._control.rest(self._pause)
            self._pause = min(1.5 * self._pause, LOOK[1])

    async def _job(self, batch: BatchRecord) -> wire.BatchJob:
        if batch.provider_id is None:  # an earlier process died while it handed this in
            batch_id = await self._find(batch)
            if not batch_id:
                problem = "" if batch_id is None else "it never arrived"
                return wire.BatchJob(bool(problem), problem=problem)
            batch = await self._stored(stored_batches.submitted, batch, batch_id)
            self._open[batch.id] = batch
        # Providers delete batches with their answers after some weeks.
        return await self._persist(
            lambda: self._client.look(self._calls, str(batch.provider_id)),
            gone=wire.BatchJob(True),
        )

    async def _fetch(self, batch: BatchRecord, job: wire.BatchJob) -> None:
        listed = await self._stored(stored_batches.keys_of, batch)
        keys = {key[:_ENOUGH_OF_A_KEY]: key for key in listed}
        if job.problem:
            await self._turned_down(batch, job.problem)
        else:
            strangers = 0
            for path in job.results:
                strangers += await self._keep_answers(batch, path, keys)
            await self._stored(stored_batches.collected, batch, _NO_ANSWER)
            if strangers:
                self._say(
                    f"{self._judge.spec}: {strangers:,} answers of {batch.provider_id} do not belong to any of our questions"
                )
        del self._open[batch.id]
        works = (self._works.pop(key, None) for key in listed)
        await self._carry_on([work for work in works if work])

    async def _turned_down(self, batch: BatchRecord, reason: str) -> None:
        """Withdraw a batch that was rejected as a whole, and therefore not billed. If other batches are open, it is
        sent again after they have ended. Otherwise raise `JudgeError`.
        """
        others = sum(other.provider_id is not None for other in self._open.values()) - 1
        await self._stored(stored_batches.withdraw, batch)
        if batch.provider_id is None:
            return
        if others <= 0:
            raise JudgeError(
                f"{self._judge.spec}: batch {batch.provider_id} was rejected: {reason}"
            )
        self._most_open = others
        self._say(
            f"{self._judge.spec}: a batch was rejected ({reason}); it is submitted again when others have ended"
        )

    async def _keep_answers(
        self, batch: BatchRecord, path: str, keys: Mapping[str, str]
    ) -> int:
        """Store the answers from a result file, and return how many belong to none of our questions."""
        strangers = 0
        with tempfile.TemporaryFile() as file:
            await self._persist(
                lambda: self._calls.download(path, file, self._client.headers), gone=0
            )
            file.seek(0)
            for lines in _chunks(file, 500):
                answers: list[tuple[str, Reply]] = []
                for line in filter(bytes.strip, lines):
                    custom_id, status, body = self._client.answer(document(line))
                    key = keys.get(custom_id.removeprefix(f"{batch.mark}-"))
                    if key is None:
                        strangers += 1
                    else:
                        body = self._judge.endpoint.redacted_body(body)
                        answers.append((key, (status, body)))
                await self._stored(stored_batches.answered, batch, answers)
        return strangers

    async def _persist(
        self, send: Callable[[], Awaitable[T]], gone: T | None = None
    ) -> T:
        """Send a read-only request with retries. If the resource no longer exists and `gone` is given, return `gone`."""
        for failures in itertools.count(1):
            try:
                return await send()
            except CallFailed as problem:
                if problem.status == 404 and gone is not None:
                    return gone
                if not problem.is_transient or failures >= RETRY.tries:
                    raise JudgeError(
                        f"{self._judge.spec}: {problem}. Nothing is lost: run the same command again to resume."
                    ) from None
                await self._control.rest(RETRY.pause(problem, failures))
        raise AssertionError


class UnansweredQuestion(NamedTuple):
    """A question that has no answer yet."""

    headers: Mapping[str, str]
    body: tuple[bytes, ...]


class ReplayedTalk:
    """Transport, pace and budget for a single task. The task's conversation is replayed from the start for each new
    answer.

    Questions receive the stored replies in order, and the cost of an answered question is settled when it is first
    replayed. The first question without a reply ends the conversation. Money for it is reserved until it is answered.
    """

    window = 1

    def __init__(
        self,
        replies: Sequence[Reply],
        budget: Budget,
        holds: dict[int, Reservation],
        tries: int = TRIES,
    ) -> None:
        self._tries = tries
        self.bounded = budget.bounded
        self.end: asyncio.Future[UnansweredQuestion | None] = (
            asyncio.get_running_loop().create_future()
        )
        """The next question, or None if there is currently no money for it."""
        self._replies = iter(replies)
        self._answered = len(replies)
        self._budget = budget
        self._holds = holds
        self._number = itertools.count()

    async def hold(self, most: MaximumCost) -> Reservation:
        number = next(self._number)
        if number < self._answered:
            # If there is no reservation here, an earlier process had it.
            hold = self._holds.pop(number, None) or _settled(0)
            hold.tokens = most.max_tokens
            # Providers do not bill questions that a batch did not answer.
            hold.refunded = True
            return hold
        if number not in self._holds:
            waiting = self._budget.try_hold(most)
            if waiting is None:
                return await self._suspend(None)
            self._holds[number] = waiting
        # It is settled when the answer arrives, not when the conversation is suspended.
        return _settled(self._holds[number].tokens)

    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: tuple[bytes, ...],
        patience: float = 1.0,
    ) -> Response:
        for status, answer in self._replies:
            return Response(status, {}, answer, None)
        return await self._suspend(UnansweredQuestion(headers, body))

    async def _suspend(self, end: UnansweredQuestion | None) -> NoReturn:
        """Stop the conversation here; `_converse` cancels it."""
        self.end.set_result(end)
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    @asynccontextmanager
    async def slot(self, *, has_reply: bool = False) -> AsyncIterator[None]:
        yield

    def spread(self, urls: Sequence[str]) -> None:
        """Do nothing, since no request is sent."""

    async def send_with_retries(
        self, send: Callable[..., Awaitable[T]], tokens: int = 0
    ) -> tuple[T, int]:
        for retries in range(self._tries):
            try:
                return await send(), retries
            except CallFailed as problem:
                if not problem.is_transient or retries == self._tries - 1:
                    raise
        raise AssertionError

    def stop(self) -> None:
        """Do nothing, since no request is in flight."""


def _settled(tokens: int) -> Reservation:
    """Return a reservation that holds no money."""
    return Reservation(Budget(), 0.0, tokens)


async def _no_image(_: str) -> EncodedImage:
    return EncodedImage("", b"")


def _chunks(values: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(values)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


def _batches(number: int) -> str:
    return "1 batch" if number == 1 else f"{number:,} batches"
