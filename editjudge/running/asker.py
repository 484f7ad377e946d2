"""Turns a task into its judgement, for runs, batches, rewards and single edits.

A task is first looked up by its key. Its answer may be in the store or on its way in this process, or another process
may have claimed it. Otherwise the task is passed to its judge, and the answer is committed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import logging
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from editjudge.errors import EditjudgeError, ImageError, StoreError, WorldError
from editjudge.judgement import DONE, Judgement
from editjudge.judges.failures import cleaned, without_keys
from editjudge.judges.judge import Judge, JudgingFailed, Load, Work, is_local
from editjudge.media.cache import ImageCache
from editjudge.media.image import EncodedImage
from editjudge.rubrics.verdict import Remark
from editjudge.running.images import MEASURED, ImageRegion, RegionMissing
from editjudge.store.sink import Sink, TaskClaims, Writer

T = TypeVar("T")

LOOKAHEAD = 8
"""Number of tasks that are opened beyond the judge's capacity, so their images are ready when a slot becomes free."""
LOOK = 0.5
"""Seconds between checks for answers from other processes."""


class Window:
    """Limits the number of a judge's open tasks to its capacity plus `LOOKAHEAD`.

    The capacity depends on `questions`, the number of questions about each edit. A judge that measures images has a
    capacity in edits, since all questions about one edit share a worker. With a limit on tasks instead, a set of twelve
    rubrics left every second worker without an edit.
    """

    def __init__(self, judge: Judge, questions: int) -> None:
        self._judge = judge
        self._questions = questions
        self._open = 0
        self._left = asyncio.Event()

    async def enter(self) -> None:
        while self._open >= self._judge.capacity(self._questions) + LOOKAHEAD:
            self._left.clear()
            await self._left.wait()
        self._open += 1

    def leave(self, _: object = None) -> None:
        self._open -= 1
        self._left.set()


# --- by key -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lookup:
    """The state of several tasks: judged, to be judged by the caller, or in flight."""

    statuses: Mapping[str, str]
    """Statuses of the tasks that have a judgement, keyed by task key."""
    open: Sequence[Work]
    """Tasks that the caller must pass to a judge. They are claimed for the caller."""
    shared: Sequence[Work]
    """Tasks whose key was already in flight in this process."""
    answers: Mapping[str, asyncio.Future[Judgement | None]]
    """Answers to all tasks that are or were in flight, keyed by task key. None means that the answer is in the store.
    """


class Asker:
    """Passes each task to its judge once. Create it inside a running event loop."""

    def __init__(
        self,
        store: Sink | None,
        claims: TaskClaims | None = None,
        *,
        linger: float = 0.0,
        lasting: bool = False,
    ) -> None:
        """Create an asker. `store` receives the answers; with None they are not stored. `claims` are this process's
        claims on tasks that other processes may work on too. `linger` is passed to `Writer`. With `lasting`, writing is
        tried again after the store has failed.
        """
        self._store = store
        self._claims = claims
        self._linger = linger
        self._lasting = lasting
        self._writer = Writer(store, linger=linger) if store else None
        self._in_flight: dict[str, asyncio.Future[Judgement | None]] = {}
        self._elsewhere: dict[str, Work] = {}
        """Tasks that another process is working on, keyed by task key."""
        self._releasing: set[asyncio.Future[None]] = set()
        """Claims of failed tasks that are being released."""

    async def start(
        self, works: Iterable[Work], done: Mapping[str, str] | None = None
    ) -> Lookup:
        """Look up tasks, and claim the tasks that have no judgement and are not in progress. `done` contains statuses
        that are already known, keyed by task key.

        Keys are registered as in flight before the store is read. Otherwise an answer could be committed in between,
        and its question asked again.
        """
        statuses = dict(done or {})
        fresh: dict[str, Work] = {}
        shared: list[Work] = []
        for work in works:
            key = work.task.key
            if key in self._in_flight or key in fresh:
                shared.append(work)
            elif key not in statuses:
                fresh[key] = work
        loop = asyncio.get_running_loop()
        self._in_flight |= {key: loop.create_future() for key in fresh}
        keys = [*fresh, *(work.task.key for work in shared)]
        answers = {key: self._in_flight[key] for key in keys}
        claimed = {*fresh}
        if fresh and self._store:
            try:
                # A claim that is being released must not be taken before that.
                await asyncio.gather(*self._releasing)
                stored, claimed = await asyncio.to_thread(
                    self._claim, self._store, fresh
                )
            except BaseException as error:
                for key in fresh:
                    self._settle(key, error)
                raise
            statuses |= stored
        for key, work in fresh.items():
            if key in statuses:
                self._settle(key, None)
            elif key not in claimed:
                self._elsewhere[key] = work
        works = [work for key, work in fresh.items() if key in claimed]
        return Lookup(statuses, works, shared, answers)

    def _claim(
        self, store: Sink, works: Mapping[str, Work]
    ) -> tuple[dict[str, str], set[str]]:
        """Return the statuses of completed tasks, and the keys of the tasks that this process must work on. Reads and
        writes the store.
        """
        statuses = store.done(list(works))
        claimed = {key for key in works if statuses.get(key) not in DONE}
        paid = [key for key in works if key in claimed and is_paid(works[key])]
        if self._claims and paid:
            taken = self._claims.take(paid)
            # Another process may have answered between the lookup and the claim.
            statuses |= store.done(paid)
            answered = {key for key in paid if statuses.get(key) in DONE}
            self._claims.give_back(answered & taken)
            claimed -= {*paid} - taken | answered
        done = {key: statuses[key] for key in statuses if statuses[key] in DONE}
        return done, claimed

    def elsewhere(self, judge: Judge) -> int:
        """Return how many of a judge's tasks are in progress in other processes."""
        return sum(work.task.judge == judge.spec for work in self._elsewhere.values())

    async def look_again(self, judge: Judge) -> Lookup:
        """Look up a judge's tasks that were in progress in other processes. Return the statuses of the tasks that now
        have a judgement, failed or not, and claim the tasks that were released or whose owner died.
        """
        works = {
            key: work
            for key, work in self._elsewhere.items()
            if work.task.judge == judge.spec
        }
        if not works or self._claims is None or self._store is None:
            return Lookup({}, [], [], {})
        statuses, taken = await asyncio.to_thread(
            self._take_over, self._store, self._claims, list(works)
        )
        for key in statuses:
            self._settle(key, None)
        for key in (*statuses, *taken):
            del self._elsewhere[key]
        return Lookup(statuses, [works[key] for key in taken], [], {})

    def _take_over(
        self, store: Sink, claims: TaskClaims, keys: Sequence[str]
    ) -> tuple[dict[str, str], list[str]]:
        """Return the statuses of tasks that have a judgement, and the keys that this process now owns. Reads and writes
        the store.
        """
        held = claims.held(keys)
        free = [key for key in keys if not held.get(key)]
        taken = claims.take(free)
        statuses = store.done(free)
        # A failure counts if its claim was released with it. A dead owner leaves its claim, and possibly an older
        # failure.
        answered = {
            key: status
            for key, status in statuses.items()
            if status in DONE or key not in held
        }
        claims.give_back(taken & {*answered})
        return answered, [key for key in free if key in taken and key not in answered]

    async def ask(
        self, judge: Judge, work: Work, images: ImageCache, load: Load | None = None
    ) -> Judgement:
        """Judge a task that `start` or `look_again` returned as open, and commit the answer.

        An error that ends the run (`EditjudgeError`) is raised here and in all calls that await the answer. The task
        then stays pending.
        """
        try:
            return await self.commit(await judge_task(judge, work, images, load))
        except BaseException as error:
            self._settle(work.task.key, error)
            # `close` releases the claims of cancelled tasks, together with all others.
            if self._claims and isinstance(error, Exception) and is_paid(work):
                self._give_back(self._claims, work.task.key)
            raise

    def _give_back(self, claims: TaskClaims, key: str) -> None:
        """Release a claim in a separate thread. A run that ends with this task does not wait for it."""

        async def give_back() -> None:
            with suppress(StoreError):  # `close` gives it back, or it expires
                await asyncio.to_thread(claims.give_back, [key])

        releasing = asyncio.create_task(give_back())
        self._releasing.add(releasing)
        releasing.add_done_callback(self._releasing.discard)

    async def answer(self, judge: Judge, work: Work, images: ImageCache) -> Judgement:
        """Return the answer to a task whose answer is not stored yet. If the answer is already on its way, wait for it;
        otherwise ask the judge.
        """
        lookup = await self.start([work])
        if lookup.open:
            return await self.ask(judge, work, images)
        answer = await asyncio.shield(lookup.answers[work.task.key])
        assert answer is not None, work.name  # noqa: S101  (nothing is stored)
        return answer

    async def commit(self, judgement: Judgement) -> Judgement:
        """Store a judgement, pass it to all calls that wait for its key, and return it. If its content cannot be
        stored, store and return an `error` judgement with the reason and the cost instead.
        """
        try:
            await self._put(judgement)
        except EditjudgeError:
            raise
        except Exception as error:
            about = f"{judgement.judge}, {judgement.rubric}, {judgement.key}"
            judgement = dataclasses.replace(
                judgement,
                status="error",
                reasons=(unexpected(error, about),),
                scores=None,
                justifications=None,
                abstained={},
                evidence={},
                violations=(),
                notes=(),
                exchanges=(),
            )
            await self._put(judgement)
        self._settle(judgement.key, judgement)
        return judgement

    async def _put(self, judgement: Judgement) -> None:
        writer = self._writer
        if writer is None:
            return
        try:
            await writer.put(judgement)
        except StoreError:
            if self._lasting and self._store and writer is self._writer:
                self._writer = Writer(self._store, linger=self._linger)
                with suppress(StoreError):
                    await writer.close()
            raise

    def _settle(self, key: str, answer: Judgement | BaseException | None) -> None:
        future = self._in_flight.pop(key, None)
        if future is None or future.done():
            return
        if isinstance(answer, asyncio.CancelledError):
            future.cancel()
        elif isinstance(answer, BaseException):
            future.set_exception(answer)
            future.exception()  # retrieved: perhaps no task awaits it
        else:
            future.set_result(answer)

    async def write(self, write: Callable[[], T]) -> T:
        """Call `write`, which writes something else to the store. The call is queued with the judgements."""
        assert self._writer is not None  # noqa: S101  (only those with a store call it)
        return await self._writer.also(write)

    async def close(self) -> None:
        """Commit the judgements that have arrived, and release the claims. Other processes can then work on the
        remaining tasks.
        """
        try:
            if self._writer:
                await self._writer.close()
        finally:
            await asyncio.gather(*self._releasing, return_exceptions=True)
            if self._claims:
                await asyncio.to_thread(self._claims.close)


def is_paid(work: Work) -> bool:
    """Whether a task needs a request to a server. A task that this process computes itself costs nothing, so computing
    it twice does no harm.
    """
    return work.problem is None and not is_local(work.task.judge)


# --- judging one task -----------------------------------------------------------------------------------------


async def judge_task(
    judge: Judge, work: Work, images: ImageCache, load: Load | None = None
) -> Judgement:
    """Return the judgement for a task. A failure is a judgement too.

    An unexpected exception counts as a failure of this edit only. An error that ends the run (`EditjudgeError`) is
    raised. Images come from `load` if it is given, otherwise from the cache.
    """
    if work.problem:
        return work.judgement(work.problem.status, reasons=(work.problem.remark,))

    try:
        judgement = await judge.judge(work, load or partial(_load, judge, work, images))
        return work.checked(judgement)
    except RegionMissing as error:
        return work.judgement(
            "missing_input", reasons=(Remark("missing_input", str(error)),)
        )
    except ImageError as error:
        return work.judgement("bad_image", reasons=(Remark("bad_image", str(error)),))
    except JudgingFailed as failure:
        return work.judgement(
            "error",
            reasons=(unexpected(failure.error, work.name, judge),),
            **failure.fields,
        )
    except EditjudgeError:
        raise
    except Exception as error:
        return work.judgement("error", reasons=(unexpected(error, work.name, judge),))


async def _load(
    judge: Judge, work: Work, images: ImageCache, role: str
) -> EncodedImage:
    edit = work.edit
    source = edit.image(role)
    if judge.limits is None:
        raise ImageError(f"{judge.spec} does not accept images")
    if source is None:
        raise ImageError(f"{edit.id} has no {role}")
    digest = work.digests[role]
    if "@" in role:
        region = ImageRegion.of(role)
        image = await images.data(source, digest)
        before = None
        if region.name in MEASURED and edit.input is not None:
            before = await images.data(edit.input)
        encoded = await asyncio.to_thread(
            region.cut_out, edit, image, before, judge.limits
        )
    else:
        encoded = await images.encoded(source, judge.limits, digest)
    if encoded.digest != digest:
        raise ImageError(f"the {role} of {edit.id} changed while it was being judged")
    return encoded


_NOT_OF_ONE_EDIT = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE}
)
"""Errors that affect all edits: a full or read-only disk, or too many open files."""

_logged: set[tuple[object, ...]] = set()
"""Places in the code whose exceptions have been logged with a traceback. Ten thousand edits with the same exception
need only one traceback.
"""


def unexpected(error: Exception, about: str, judge: Judge | None = None) -> Remark:
    """Log an unexpected exception, and return it as the reason for the status `error`.

    Raise `WorldError` if the exception affects other edits too. The reason and the log are redacted: they contain
    neither the judge's API keys nor text that looks like an API key.
    """
    if isinstance(error, OSError) and error.errno in _NOT_OF_ONE_EDIT:
        raise WorldError(f"{about}: {type(error).__name__}: {error}") from error
    redacted: Callable[[str], str] = judge.redacted if judge else str
    reason = type(error).__name__
    with suppress(Exception):  # an exception of a plug-in may have no text
        if message := cleaned(redacted(str(error))):
            reason = f"{reason}: {message}"
    text = f"{about}: {reason}"
    frames = traceback.extract_tb(error.__traceback__)
    origin = (type(error).__name__, *[(f.filename, f.lineno) for f in frames[-1:]])
    if origin not in _logged:
        _logged.add(origin)
        trace = "".join(traceback.format_exception(error))
        text = f"{text}\n{without_keys(redacted(trace))}"
    logging.getLogger(__name__).error("%s", text)
    return Remark("unexpected_exception", reason)
