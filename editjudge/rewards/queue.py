"""The queue of the reward server. It has a bounded lane for each judge, and stores every answer.

Accepted edits are judged and stored even if the client has disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from editjudge import plugins
from editjudge.canonical import json_hash
from editjudge.edit import Edit, ImageSource
from editjudge.errors import BudgetReached, JudgeError, StoreError
from editjudge.judgement import DONE, Judgement, Task, row
from editjudge.judges.cost import Budget
from editjudge.judges.judge import Judge, Work
from editjudge.judges.registry import open_judge
from editjudge.media.cache import DigestCache, ImageCache, ImageReader, KnownImage
from editjudge.media.source import ImageBounds
from editjudge.rewards.protocol import Terms
from editjudge.rewards.requests import Refused, UploadFolder
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.prompt import layout_of_run
from editjudge.rubrics.verdict import Remark
from editjudge.running.asker import LOOK, Asker, Lookup, Window, unexpected
from editjudge.running.pace import Circuit, Pace, Retry
from editjudge.running.plan import (
    QuestionSettings,
    item_of,
    look_at,
    readable_images,
    works,
)
from editjudge.store.claims import Claims
from editjudge.store.records import Item, RunRecord
from editjudge.store.store import Store

T = TypeVar("T")

_PLANNING = 0.5
"""Seconds beyond the deadline that a request waits for its keys and its run. With these, its answers can be found
later."""
_SPANS = 8192
"""Number of judgements whose times are remembered. No request has as many."""
_TRIES = 6
"""Number of tries before a judge counts as unreachable. They take about ten seconds, because a client is waiting; a run
tries for minutes."""
_PENDING = Remark(
    "deadline",
    "not judged by the deadline; judging continues, and a later request finds the answer",
)


# --- faults of an edit ----------------------------------------------------------------------------------------


class Finding(NamedTuple):
    """A fault in an edit that is found before a judge is asked, such as a degenerate output."""

    status: str
    """Status of the reward if the edit is not judged."""
    code: str
    message: str
    set_aside: bool = True
    """Whether the edit is not sent to a judge. If false, the fault is only a flag on the answer."""


def screen(edit: Edit) -> Finding | None:
    """Return the first fault that the installed screens find, or None if there is none. If no screens are installed,
    only an output that is the same file as its input is found.

    An unexpected exception makes this edit fail, since its output may be degenerate.
    """
    if edit.edited is not None and edit.edited == edit.input:
        message = "degenerate output: the output is the same file as the input"
        return Finding("abstained", "unchanged", message)
    try:
        findings = [image for find in plugins.usable("screens") for image in find(edit)]
    except Exception as error:
        reason = unexpected(error, f"screening the output of {edit.id}")
        message = f"the output could not be screened: {reason.message}"
        return Finding("error", reason.code, message)
    for image in findings:
        if image.role == "edited":
            effect = "degenerate output" if image.set_aside else "flagged"
            message = f"{effect}: the output {image.words}"
            return Finding("abstained", image.kind, message, image.set_aside)
    return None


# --- a request ------------------------------------------------------------------------------------------------


class QueuedReply(NamedTuple):
    """A question about an edit, with its answer so far."""

    judgement: Judgement
    """Judgement, with the status `unreachable` while it is pending."""
    variant: str
    pending: bool
    cached: bool
    """Whether the answer was in the store before the request."""


@dataclass
class QueuedEdit:
    """An edit in the queue of one judge, with its tasks in the order of the rubrics, and the answers so far."""

    edit: Edit
    works: Sequence[Work]
    item: Item | None = None
    """The edit in the store, or None until it is stored. Its name consists of its id and a digest of its content, since
    clients reuse ids."""
    answers: dict[str, Judgement] = field(default_factory=dict)
    """Judgements keyed by task key."""

    @property
    def stored_as(self) -> str | None:
        return self.item.item if self.item else None

    def failure(self) -> str | None:
        """Return the status of the first failure. Otherwise return `pending` if a question has no answer yet, else
        None."""
        for work in self.works:
            judgement = self.answers.get(work.task.key)
            status = judgement.status if judgement else "pending"
            if status not in DONE:
                return status
        return None

    def replies(self, since: float) -> list[QueuedReply]:
        """Return the reply to each question. Answers from before `since` count as cached."""
        replies = []
        for work in self.works:
            judgement = self.answers.get(work.task.key)
            answer = judgement or work.judgement("unreachable", reasons=(_PENDING,))
            cached = judgement is not None and judgement.created < since
            replies.append(
                QueuedReply(answer, work.task.variant, judgement is None, cached)
            )
        return replies

    def rows(self, since: float) -> Iterator[dict[str, Any]]:
        """Yield the judgements as JSON objects."""
        edit = self.edit
        group = self.item.group if self.item else edit.group
        for judgement, variant, pending, cached in self.replies(since):
            values = row(judgement, edit.id, edit.model, group, variant)
            values["cached"] = cached
            if pending:
                values["status"] = "pending"
            names = {"id": edit.id, "stored_as": self.stored_as}
            yield {**names, **values, "key": judgement.key or None}


@dataclass
class RequestBatch:
    """The questions of a request, and its progress. Create it inside a running event loop."""

    edits: Sequence[Edit]
    questions: Mapping[str, Sequence[Rubric]]
    """Rubrics about which each judge is asked."""
    screened: bool = False
    """Whether edits with degenerate outputs are not sent to a judge."""
    samples: int = 1
    """Number of answers to each question."""
    fresh: bool = False
    """Whether to ask again even if the store has answers."""
    runs: dict[str, RunRecord] = field(default_factory=dict)
    """Run of each judge, once the edits are in the store."""
    started: float = field(default_factory=time.time)
    planned: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self.findings: list[Finding | None] = [None] * len(self.edits)
        self.queued = {spec: self._unplanned(spec) for spec in self.questions}
        """Queued edits, keyed by judge."""

    def _unplanned(self, spec: str) -> list[QueuedEdit]:
        return [
            QueuedEdit(
                edit,
                [
                    Work(Task(edit.id, rubric.name, spec, 0, ""), edit, rubric)
                    for rubric in self.questions[spec]
                ],
            )
            for edit in self.edits
        ]

    def queued_for(self, number: int) -> list[QueuedEdit]:
        """Return the edit with this number from the queue of each judge."""
        return [edits[number] for edits in self.queued.values()]

    @property
    def rubrics(self) -> list[Rubric]:
        by_name = {r.name: r for rubrics in self.questions.values() for r in rubrics}
        return list(by_name.values())

    @property
    def pairwise(self) -> bool:
        return any(rubric.pairwise for rubric in self.rubrics)

    @property
    def run(self) -> RunRecord | None:
        """The run of the first judge."""
        return self.runs.get(next(iter(self.queued)))

    def keys(self) -> set[str]:
        """Return the keys of all questions."""
        return {
            work.task.key
            for edits in self.queued.values()
            for edit in edits
            for work in edit.works
        }

    def note_run(self, spec: str, run: RunRecord) -> None:
        self.runs[spec] = run
        if len(self.runs) == len(self.queued):
            self.planned.set()

    def finish(self, task: asyncio.Task[None]) -> None:
        self.planned.set()
        # Retrieved to avoid a warning of asyncio: the client may have disconnected.
        _ = task.cancelled() or task.exception()

    async def wait(self, seconds: float) -> None:
        """Wait until all edits are judged, but at most `seconds`. If the keys are not known by then, wait a little
        longer for them."""
        # If the server is stopping, the current state is the answer.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({self.task}, timeout=max(0.0, seconds))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.planned.wait(), _PLANNING)
        if self.task.cancelled():
            raise Refused(503, "the server is shutting down: try again later")
        if self.task.done():
            self.task.result()


# --- the queue ------------------------------------------------------------------------------------------------


@dataclass
class JudgeLane:
    """An open judge, and the runs that its answers belong to."""

    judge: Judge
    pace: Pace
    window: Window
    runs: dict[bool, RunRecord] = field(default_factory=dict)
    """Runs of this judge: one for single edits (False), and one for pairs (True), which is reported as win rates."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Lock held by the next question, so that questions are asked in the order of arrival."""
    is_down: bool = False

    def try_again(self) -> None:
        """Allow requests to a judge that was marked as down."""
        if self.is_down:
            self.is_down = False
            self.pace.circuit = _circuit(self.judge.spec)


class JudgingQueue:
    """The queue of a server, which accepts batches, asks the judges and stores the answers. It is created by
    `open_queue`."""

    def __init__(
        self,
        store: Store,
        terms: Terms,
        rubrics: Sequence[Rubric],
        resources: AsyncExitStack,
    ) -> None:
        self.terms = terms
        self.edits = 0
        """Number of accepted edits that are not judged yet."""
        self.held = 0
        """Total size in bytes of the request bodies of these edits."""
        self.closing = False
        self.budget = Budget(terms.budget)
        self.spans: dict[str, tuple[float, float]] = {}
        """Start and end times of the latest judgements, keyed by task key."""
        # Separate pools, so that reading a request does not wait for the screening of images or for the store.
        self._readers = ThreadPoolExecutor(2, "editjudge-requests")
        self._screens = ThreadPoolExecutor(2, "editjudge-images")
        self._store = store
        self._rubrics = rubrics
        self._resources = resources
        self._reader = ImageReader(bounds=ImageBounds(max_bytes=terms.max_image))
        self._images = ImageCache(self._reader)
        self._uploads = (
            UploadFolder(terms.images, terms.max_images) if terms.images else None
        )
        self._asker = Asker(store, Claims(store), lasting=True)
        self._lanes: dict[str, asyncio.Task[JudgeLane]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._batches: set[asyncio.Task[None]] = set()
        self._rate = 0.0
        """Recent throughput in edits per second."""
        self._judged_at = time.monotonic()

    # --- accepting ------------------------------------------------------------------------------------------

    def read(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Start a function that reads a request in the pool of reading threads, and return its future."""
        return asyncio.get_running_loop().run_in_executor(self._readers, work)

    def _look(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Start a function that hashes or screens images in the pool of screening threads, and return its future."""
        return asyncio.get_running_loop().run_in_executor(self._screens, work)

    async def inspect(self, edits: Sequence[Edit]) -> list[Finding | None]:
        """Return the faults in edits that are to be compared, including missing and unreadable images."""
        looks = (self._look(partial(self._inspect, edit)) for edit in edits)
        return await asyncio.gather(*looks)

    def _inspect(self, edit: Edit) -> Finding | None:
        digests = DigestCache(self._reader)
        for role, status in (("edited", "missing_output"), ("input", "missing_input")):
            image = look_at(digests, edit, role)
            if image is None:
                return Finding(status, status, f"there is no {role} image")
            if image.info is None:
                return Finding("bad_image", "bad_image", f"{role}: {image.problem}")
        return screen(edit)

    @contextlib.contextmanager
    def admitted(self, announced: int) -> Iterator[_Hold]:
        """Reserve room for a body while it is read and judged. Raise `Refused` before the body is read if there is no
        room for its announced size."""
        if self.closing:
            raise Refused(503, "the server is shutting down: try again later")
        hold = _Hold(self)
        hold.check(announced)
        try:
            yield hold
        finally:
            if not hold.passed_on:
                hold.release()

    def full(self) -> Refused:
        seconds = math.ceil(self.edits / self._rate) if self._rate else 1
        message = f"the server is full: {self.edits} edits are waiting"
        return Refused(429, message, wait=min(60, max(1, seconds)))

    def take(self, batch: RequestBatch, hold: _Hold) -> None:
        """Start judging a batch. `RequestBatch.wait` waits until it is judged."""
        if self.closing:
            raise Refused(503, "the server is shutting down: try again later")
        count = len(batch.edits)
        if self.edits + count > self.terms.max_waiting:
            raise self.full()
        self.edits += count
        hold.edits = count
        hold.passed_on = True
        batch.task = self._start(self._judge(batch), self._batches)
        batch.task.add_done_callback(lambda _: hold.release())
        batch.task.add_done_callback(batch.finish)

    async def _judge(self, batch: RequestBatch) -> None:
        try:
            if batch.screened:
                looks = (self._look(partial(screen, edit)) for edit in batch.edits)
                batch.findings = await asyncio.gather(*looks)
            await _all(self._judge_by(spec, batch) for spec in batch.queued)
        finally:
            now = time.monotonic()
            rate = len(batch.edits) / max(now - self._judged_at, 1e-3)
            self._judged_at = now
            self._rate += (rate - self._rate) * 0.2 if self._rate else rate

    async def _judge_by(self, spec: str, batch: RequestBatch) -> None:
        lane = await self._lane(spec)
        lane.try_again()
        queued = batch.queued[spec]
        plans = await self._look(partial(self._plans, lane.judge, spec, batch))
        tasks: list[Task] = []
        questions: list[tuple[QueuedEdit, Work]] = []
        for edit, finding, plan in zip(queued, batch.findings, plans, strict=True):
            edit.works, edit.item = plan
            if finding is None or not finding.set_aside:
                questions += [(edit, work) for work in edit.works]
                tasks += [w.task._replace(item=edit.item.item) for w in edit.works]
        items = [item for _, item in plans]
        run = await self._asker.write(lambda: self._keep(lane, batch, items, tasks))
        batch.note_run(spec, run)
        lookup = await self._asker.start(work for _, work in questions)
        self._ask_all(lane, lookup)
        await _all(
            self._answer(lane, edit, work, lookup.answers[work.task.key])
            for edit, work in questions
        )

    # --- planning and storing, in threads -------------------------------------------------------------------

    def _plans(
        self, judge: Judge, spec: str, batch: RequestBatch
    ) -> list[tuple[list[Work], Item]]:
        """Return the tasks for each edit, and the edit in the form in which it is stored. This hashes the images."""
        digests = _RequestDigests(self._reader)
        plans = []
        rubrics = batch.questions[spec]
        for edit in batch.edits:
            images = readable_images(edit, digests)

            def look(edit: Edit, role: str) -> KnownImage | None:
                return images.get(role) or look_at(digests, edit, role)  # noqa: B023  (called only in this iteration)

            plans.append(
                (
                    self._works(judge, edit, rubrics, batch, look),
                    self._item(edit, images),
                )
            )
        return plans

    def _works(
        self,
        judge: Judge,
        edit: Edit,
        rubrics: Sequence[Rubric],
        batch: RequestBatch,
        look: Callable[[Edit, str], KnownImage | None],
    ) -> list[Work]:
        """Return the questions to ask about an edit. If the batch or the terms request fresh answers, the questions are
        new repeats, which have no stored answer yet."""
        repeats = batch.samples
        while True:
            settings = QuestionSettings(rubrics, repeats)
            planned = list(works([edit], settings, judge, look))
            if not (batch.fresh or self.terms.fresh):
                return planned
            statuses = self._store.done([work.task.key for work in planned])
            unanswered: dict[tuple[str, str], list[Work]] = {}
            for work in planned:
                name = work.task.rubric, work.task.variant
                repeated = unanswered.setdefault(name, [])
                if statuses.get(work.task.key) not in DONE:
                    repeated.append(work)
            if all(len(group) >= batch.samples for group in unanswered.values()):
                return [
                    w for group in unanswered.values() for w in group[: batch.samples]
                ]
            # Doubled each time, because few edits have more than a handful of repeats.
            repeats *= 2

    def _item(self, edit: Edit, images: dict[str, KnownImage]) -> Item:
        digests = {role: image.digest for role, image in images.items()}
        content = [
            digests,
            edit.model,
            edit.edit_type,
            edit.group,
            edit.instruction,
            edit.referring_expression,
            edit.metadata,
        ]
        places = dict.fromkeys(images, "sent, and not kept")
        if self._uploads:
            for role, image in images.items():
                data: Any = edit.image(role)
                places[role] = self._uploads.keep(data, image) or places[role]
        name = f"{edit.id}-{json_hash(content)[:12]}"
        return item_of(edit, digests, name=name, places=places)

    def _keep(
        self,
        lane: JudgeLane,
        batch: RequestBatch,
        items: Sequence[Item],
        tasks: Sequence[Task],
    ) -> RunRecord:
        """Store these edits and tasks in a judge's run, and return the run."""
        run = lane.runs.get(batch.pairwise)
        # `runs rm` may have removed the run since it was last written to.
        if run is None or self._store.run_of(run.id) is None:
            rubrics = batch.rubrics if batch.pairwise else self._rubrics
            run = lane.runs[batch.pairwise] = self._run(lane.judge.spec, rubrics)
        self._store.append(run, items)
        if tasks:
            self._store.append(run, tasks)
        return run

    def _run(self, spec: str, rubrics: Sequence[Rubric]) -> RunRecord:
        """Return a judge's run. A server that is restarted with the same options and rubrics continues the same run."""
        frozen = {
            "service": "v1",
            "judges": [spec],
            "rubrics": {rubric.name: rubric.hash for rubric in rubrics},
            "repeats": 1,
            "layout": layout_of_run(rubrics),
            "options": self.terms.options.frozen(),
        }
        if self._uploads:
            # The review pages look for the run's images in this folder.
            frozen["manifest"] = str(self._uploads.folder)
        self._store.add_rubrics(rubrics)
        return self._store.open_run(f"rewards-{json_hash(frozen)[:8]}", frozen)

    # --- asking ---------------------------------------------------------------------------------------------

    async def _lane(self, spec: str) -> JudgeLane:
        opening = self._lanes.get(spec) or asyncio.create_task(self._opened(spec))
        self._lanes[spec] = opening
        try:
            return await asyncio.shield(opening)
        except BaseException:
            # The next request reopens the judge, unless only this request was cancelled.
            if opening.done() and self._lanes.get(spec) is opening:
                del self._lanes[spec]
            raise

    async def _opened(self, spec: str) -> JudgeLane:
        pace = Pace(
            spec,
            concurrency=self.terms.concurrency,
            retry=Retry(tries=_TRIES),
            circuit=_circuit(spec),
        )
        judge = await open_judge(
            spec,
            self.terms.options_of(spec),
            lambda _: pace,
            self._resources,
            funds=self.budget,
        )
        lane = JudgeLane(judge, pace, Window(judge, len(self._rubrics)))
        self._start(self._look_again(lane), self._tasks)
        return lane

    async def _answer(
        self,
        lane: JudgeLane,
        edit: QueuedEdit,
        work: Work,
        answer: asyncio.Future[Judgement | None],
    ) -> None:
        """Wait for the answer to a question and record it, or the reason why there is none."""
        key = work.task.key
        try:
            judgement = await asyncio.shield(answer)
        except JudgeError as error:
            # The judge was not asked, so nothing is stored and the task remains pending.
            lane.is_down = True
            code = "budget" if isinstance(error, BudgetReached) else "judge_down"
            reason = Remark(code, str(error))
            judgement = work.judgement("unreachable", reasons=(reason,))
        if judgement is None:
            judgement = await asyncio.to_thread(self._store.judgement, key)
        if judgement is not None:
            edit.answers[key] = judgement

    def _ask_all(self, lane: JudgeLane, lookup: Lookup) -> None:
        for work in lookup.open:
            self._start(self._ask(lane, work), self._tasks)

    async def _ask(self, lane: JudgeLane, work: Work) -> None:
        async with lane.turn:
            await lane.window.enter()
        begun = time.monotonic()
        # Errors are raised in the requests that wait for the answer.
        with contextlib.suppress(Exception):
            await self._asker.ask(lane.judge, work, self._images)
            self.spans[work.task.key] = begun, time.monotonic()
            if len(self.spans) > _SPANS:
                del self.spans[next(iter(self.spans))]
        lane.window.leave()

    async def _look_again(self, lane: JudgeLane) -> None:
        """Periodically ask questions that a concurrent run claimed but did not answer."""
        while True:
            await asyncio.sleep(LOOK)
            # The store may work again next time.
            with contextlib.suppress(StoreError):
                self._ask_all(lane, await self._asker.look_again(lane.judge))

    # --- closing --------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop accepting requests, and finish the accepted edits within the time set in the terms."""
        self.closing = True
        if self._batches:
            await asyncio.wait(self._batches, timeout=self.terms.drain)
        left = [*self._batches, *self._tasks]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for pool in (self._readers, self._screens):
            pool.shutdown(wait=False, cancel_futures=True)
        await self._asker.close()

    def _start(
        self, work: Coroutine[None, None, None], among: set[asyncio.Task[None]]
    ) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        among.add(task)
        task.add_done_callback(among.discard)
        return task


@dataclass
class _Hold:
    """Capacity reserved by a request until its last edit is judged."""

    queue: JudgingQueue
    size: int = 0
    """Bytes received so far."""
    edits: int = 0
    passed_on: bool = False

    def check(self, more: int) -> None:
        if self.queue.held + more > self.queue.terms.max_held:
            raise self.queue.full()

    def add(self, more: int) -> None:
        self.check(more)
        self.queue.held += more
        self.size += more

    def release(self) -> None:
        self.queue.held -= self.size
        self.queue.edits -= self.edits


class _RequestDigests(DigestCache):
    """Cache for the image digests in one request. The 16 edits of a group are in 120 pairs, but each image is hashed
    only once."""

    def __init__(self, reader: ImageReader) -> None:
        super().__init__(reader)
        self._images: dict[int, tuple[ImageSource, KnownImage | None]] = {}
        """Images keyed by `id()`. The reference keeps the object alive, so its id is not reused."""

    def look_up(self, source: ImageSource) -> KnownImage | None:
        if id(source) not in self._images:
            self._images[id(source)] = source, super().look_up(source)
        return self._images[id(source)][1]


async def _all(works: Iterable[Awaitable[object]]) -> None:
    """Wait until all awaitables have ended, then raise the first error."""
    for result in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _circuit(spec: str) -> Circuit:
    """Return a circuit breaker that never opens. The queue does not need a real one, since each question is answered or
    counts as unreachable after a few tries."""
    return Circuit(spec, threshold=sys.maxsize, absence=math.inf)


@asynccontextmanager
async def open_queue(
    store: Store, terms: Terms, rubrics: Sequence[Rubric]
) -> AsyncIterator[JudgingQueue]:
    """Open the queue of a server whose requests may name these rubrics."""
    async with AsyncExitStack() as resources:
        queue = JudgingQueue(store, terms, rubrics, resources)
        try:
            yield queue
        finally:
            await queue.close()
