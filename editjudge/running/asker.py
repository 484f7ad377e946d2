"""One way from a task to its judgement, for runs, batches, rewards and single edits.

By its key a task is stored, in flight in this process, or claimed by another one; else its judge is asked, and the
answer is committed.
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
"""Tasks opened beyond those a judge takes, so that the next images are ready when a slot is."""
LOOK = 0.5
"""Seconds between two looks at what another process is asking."""


class Window:
    """Bounds how many tasks of a judge are open: as many as its pace allows, or all `questions` about each of the edits
    that it takes at once, and `LOOKAHEAD` more.

    A judge that measures counts edits, since the questions about one share a worker: with a bound of tasks, a set of
    twelve rubrics left every second worker without an edit.
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
    """The state of some tasks, by their keys."""

    statuses: Mapping[str, str]
    """Status of each task that is judged, by key."""
    open: Sequence[Work]
    """Tasks that the caller is to ask, claimed for it."""
    shared: Sequence[Work]
    """Tasks whose key was in flight here before."""
    answers: Mapping[str, asyncio.Future[Judgement | None]]
    """Answers of all tasks that are or were in flight, by key; None for one that is to be read from the store."""


class Asker:
    """Asks each key once. Make one inside a running event loop."""

    def __init__(
        self,
        store: Sink | None,
        claims: TaskClaims | None = None,
        *,
        linger: float = 0.0,
        lasting: bool = False,
    ) -> None:
        """`store`: destination of the answers; None to keep none. `claims`: of this process on keys that others may
        ask too. `linger`: as in `Writer`. `lasting`: a store that failed is written to again."""
        self._store = store
        self._claims = claims
        self._linger = linger
        self._lasting = lasting
        self._writer = Writer(store, linger=linger) if store else None
        self._in_flight: dict[str, asyncio.Future[Judgement | None]] = {}
        self._elsewhere: dict[str, Work] = {}
        """Tasks that another process is asking, by key."""
        self._releasing: set[asyncio.Future[None]] = set()
        """Claims of failed tasks that are being given back."""

    async def start(
        self, works: Iterable[Work], done: Mapping[str, str] | None = None
    ) -> Lookup:
        """Look tasks up, and claim those that are neither judged nor being asked. `done`: statuses that are known.

        Keys are in flight before the store is read, so that none is committed in between and asked again.
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
                # A claim that is being given back must not be taken before it is.
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
        """Return the statuses of tasks that are done, and the keys that are ours to ask. Reads and writes the store."""
        statuses = store.done(list(works))
        claimed = {key for key in works if statuses.get(key) not in DONE}
        paid = [key for key in works if key in claimed and is_paid(works[key])]
        if self._claims and paid:
            taken = self._claims.take(paid)
            # Another process may have answered between the look and the claim.
            statuses |= store.done(paid)
            answered = {key for key in paid if statuses.get(key) in DONE}
            self._claims.give_back(answered & taken)
            claimed -= {*paid} - taken | answered
        done = {key: statuses[key] for key in statuses if statuses[key] in DONE}
        return done, claimed

    def elsewhere(self, judge: Judge) -> int:
        """Return how many of a judge's tasks are being asked by other processes."""
        return sum(work.task.judge == judge.spec for work in self._elsewhere.values())

    async def look_again(self, judge: Judge) -> Lookup:
        """Look at what another process is asking: what it judged, also if that was a failure, and what it gave back or
        died with, which is ours now."""
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
        """Return the statuses of what was judged, and the keys that are ours now. Reads and writes the store."""
        held = claims.held(keys)
        free = [key for key in keys if not held.get(key)]
        taken = claims.take(free)
        statuses = store.done(free)
        # A failure counts if its claim went with it: an owner that died left the claim, and may have left an older one.
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
        """Judge a task that `start` or `look_again` left open, and commit the answer.

        What ends a run (`EditjudgeError`) is raised here and where the answer is awaited; the task stays to be judged.
        """
        try:
            return await self.commit(await judge_task(judge, work, images, load))
        except BaseException as error:
            self._settle(work.task.key, error)
            # What is cancelled is given back with all other claims, by `close`.
            if self._claims and isinstance(error, Exception) and is_paid(work):
                self._give_back(self._claims, work.task.key)
            raise

    def _give_back(self, claims: TaskClaims, key: str) -> None:
        """Give a claim back, in a thread: the run that ends with this task does not wait for it."""

        async def give_back() -> None:
            with suppress(StoreError):  # `close` gives it back, or it expires
                await asyncio.to_thread(claims.give_back, [key])

        releasing = asyncio.create_task(give_back())
        self._releasing.add(releasing)
        releasing.add_done_callback(self._releasing.discard)

    async def answer(self, judge: Judge, work: Work, images: ImageCache) -> Judgement:
        """Return the answer to a task of which nothing is stored: one that is in flight, or else by asking."""
        lookup = await self.start([work])
        if lookup.open:
            return await self.ask(judge, work, images)
        answer = await asyncio.shield(lookup.answers[work.task.key])
        assert answer is not None, work.name  # noqa: S101  (nothing is stored)
        return answer

    async def commit(self, judgement: Judgement) -> Judgement:
        """Store a judgement, and hand it to all that wait for its key. One whose content cannot be stored becomes an
        `error` that says why, with its cost."""
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
        """Write something else to the store, in turn with the judgements."""
        assert self._writer is not None  # noqa: S101  (only those with a store call it)
        return await self._writer.also(write)

    async def close(self) -> None:
        """Commit what has arrived, and release the claims: what was not asked is for others to ask."""
        try:
            if self._writer:
                await self._writer.close()
        finally:
            await asyncio.gather(*self._releasing, return_exceptions=True)
            if self._claims:
                await asyncio.to_thread(self._claims.close)


def is_paid(work: Work) -> bool:
    """Whether a request is sent: what this process answers itself may be answered twice."""
    return work.problem is None and not is_local(work.task.judge)


# --- judging one task -----------------------------------------------------------------------------------------


async def judge_task(
    judge: Judge, work: Work, images: ImageCache, load: Load | None = None
) -> Judgement:
    """Return the judgement of a task, or the reason why there is none.

    An unexpected exception is the failure of this edit, and the others go on; what ends a run (`EditjudgeError`) is
    raised. Images come from `load`, or else from the cache.
    """
    if work.problem:
        status, remark = work.problem
        return work.judgement(status, reasons=(remark,))

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
    source = edit.picture(role)
    if judge.limits is None:
        raise ImageError(f"{judge.spec} takes no images")
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
"""A full or read-only disk, and no more files to open: the next edit would fare no better."""

_logged: set[tuple[object, ...]] = set()
"""Origins of exceptions whose traceback is in the log: ten thousand edits with the same one need it once."""


def unexpected(error: Exception, about: str, judge: Judge | None = None) -> Remark:
    """Return the reason for the status `error`, with the exception's name; log the traceback.

    Raise `WorldError` if the exception is not of this edit alone. Neither reason nor log holds a key: none that the
    `judge` knows, nor what looks like one.
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
