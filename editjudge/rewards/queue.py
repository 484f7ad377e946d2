"""The queue of the reward server: a bounded lane before each judge, and every answer stored.

What was taken in is judged and kept whether or not its client still waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
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
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from editjudge.canonical import json_hash
from editjudge.edit import Edit, ImageSource
from editjudge.errors import BudgetReached, JudgeError, StoreError
from editjudge.judgement import DONE, Judgement, Task
from editjudge.judges.cost import Budget
from editjudge.judges.judge import Judge, Work
from editjudge.judges.registry import open_judge
from editjudge.media.cache import DigestCache, ImageCache, ImageReader, KnownImage
from editjudge.media.source import ImageBounds
from editjudge.rewards.audit import RewardAudit
from editjudge.rewards.protocol import RewardSite
from editjudge.rewards.requests import Refused, UploadFolder
from editjudge.rewards.screening import NoEdit
from editjudge.rewards.screening import screened as screened_output
from editjudge.rubrics.files import load
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.verdict import Remark
from editjudge.running.asker import LOOK, Asker, Window
from editjudge.running.pace import Circuit, Pace, Retry
from editjudge.running.plan import (
    QuestionSettings,
    item_of,
    look_at,
    readable_pictures,
    works,
)
from editjudge.store.claims import Claims
from editjudge.store.records import Item, RunRecord

T = TypeVar("T")

_PLANNING = 0.5
"""Seconds beyond a deadline that a request waits for its keys and its run, so that they can be looked up later."""
PREFERENCE = load("preference")
"""Rubric that compares two edits of a group."""
_SPANS = 8192
"""Judgings of which it is remembered when they were made: more than any request has."""
_TRIES = 6
"""Somebody waits: a judge that is down is unreachable after some ten seconds, where a run gives it minutes."""


class InspectedEdit(NamedTuple):
    """An edit before it is compared with others."""

    output: NoEdit | None = None
    problem: tuple[str, Remark] | None = None
    """Status and reason: why it cannot be compared."""

    @property
    def comparable(self) -> bool:
        return self.problem is None and not (self.output and self.output.set_aside)


@dataclass
class QueuedEdit:
    """One edit of a request: its tasks in the order of the rubrics, and what has come of them so far."""

    edit: Edit
    works: Sequence[Work]
    stored_as: str
    """The item that it is in the run: its id, and a digest of all that was sent, since clients use ids again."""
    item: Item
    answers: dict[str, Judgement] = field(default_factory=dict)
    """Keyed by task key."""
    degenerate: NoEdit | None = None

    @property
    def judgements(self) -> list[Judgement | None]:
        return [self.answers.get(work.task.key) for work in self.works]


@dataclass
class JudgeLane:
    """One judge, opened once, the run that its answers are part of, and those who wait for it."""

    judge: Judge
    pace: Pace
    questions: int
    """About each edit."""
    runs: dict[bool, RunRecord] = field(default_factory=dict)
    """Run of edits (False) and of pairs (True): a run of pairs is reported by win rates."""
    waiting: asyncio.Queue[Work] = field(default_factory=asyncio.Queue)
    down: bool = False

    def __post_init__(self) -> None:
        self.window = Window(self.judge, self.questions)

    def try_again(self) -> None:
        """A judge that had given up on its server is asked again by whoever comes next."""
        if self.down:
            self.down, self.pace.circuit = False, _circuit(self.judge.spec)


class JudgingQueue:
    """Made by `open_queue`, inside the loop of the server."""

    def __init__(
        self, site: RewardSite, rubrics: Sequence[Rubric], resources: AsyncExitStack
    ) -> None:
        self.edits = self.held = 0
        """Taken in and not judged yet: edits, and bytes of the bodies they came in."""
        self.closing = False
        # Separate pools: reading a request never waits for images that are hashed or screened, or for the store.
        self._readers = ThreadPoolExecutor(2, "editjudge-requests")
        self._screens = ThreadPoolExecutor(2, "editjudge-pictures")
        self.terms = site.terms
        self._site = site
        self._rubrics = rubrics
        self._resources = resources
        self._reader = ImageReader(bounds=ImageBounds(max_bytes=site.terms.max_picture))
        self._pictures = ImageCache(self._reader)
        self._album = (
            UploadFolder(site.terms.pictures, site.terms.max_pictures)
            if site.terms.pictures
            else None
        )
        self._asker = Asker(site.store, Claims(site.store), lasting=True)
        self._lines: dict[str, asyncio.Task[JudgeLane]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._batches: set[asyncio.Task[Any]] = set()
        self._rate = 0.0
        """Edits a second, lately."""
        self._judged_at = time.monotonic()
        self.budget = Budget(site.terms.budget)
        self.audit = RewardAudit()
        self.spans: dict[str, tuple[float, float]] = {}
        """Begin and end of the latest judgings, by key."""

    # --- taking in ------------------------------------------------------------------------------------------

    def threaded(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Read a request in a thread."""
        return asyncio.get_running_loop().run_in_executor(self._readers, work)

    def _on_pictures(
        self, work: Callable[..., T], *arguments: Any
    ) -> asyncio.Future[T]:
        """Hash or screen pictures in a thread."""
        return asyncio.get_running_loop().run_in_executor(
            self._screens, work, *arguments
        )

    async def inspected(self, edits: Sequence[Edit]) -> list[InspectedEdit]:
        """Return what is wrong with the edits themselves, before they are compared."""
        return await asyncio.gather(
            *(self._on_pictures(self._inspect, edit) for edit in edits)
        )

    def _inspect(self, edit: Edit) -> InspectedEdit:
        """Meant for a thread."""
        digests = DigestCache(self._reader)
        for role, status in (("edited", "missing_output"), ("input", "missing_input")):
            known = look_at(digests, edit, role)
            if known is None:
                return InspectedEdit(
                    problem=(status, Remark(status, f"there is no {role} picture"))
                )
            if known.info is None:
                return InspectedEdit(
                    problem=(
                        "bad_image",
                        Remark("bad_image", f"{role}: {known.problem}"),
                    )
                )
        return InspectedEdit(screened_output(edit))

    @contextlib.contextmanager
    def admitted(self, announced: int) -> Iterator[_Hold]:
        """Holds a body's bytes, as they come, while it is read and judged; refuses it before it is read where there is
        no room for what it announces."""
        if self.closing:
            raise Refused(503, "the server is being stopped")
        hold = _Hold(self)
        hold.check(announced)
        try:
            yield hold
        finally:
            if not hold.passed_on:
                hold.release()

    def full(self) -> Refused:
        seconds = math.ceil(self.edits / self._rate) if self._rate else 1
        return Refused(
            429,
            f"{self.edits} edits are waiting already",
            wait=min(60, max(1, seconds)),
        )

    def take(
        self,
        edits: Sequence[Edit],
        rubrics: Sequence[Rubric],
        specs: Sequence[str],
        hold: _Hold,
        *,
        screened: bool = False,
        samples: int = 1,
        fresh: bool = False,
    ) -> RequestBatch:
        """Begin to judge; `RequestBatch.wait` waits for the result. `screened` sets outputs aside that are no edit;
        `samples` answers are asked for to each question, and `fresh` ones beside those that the store has."""
        if self.closing:
            raise Refused(503, "the server is being stopped")
        if self.edits + len(edits) > self._site.terms.max_waiting:
            raise self.full()
        self.edits += len(edits)
        hold.edits = len(edits)
        hold.passed_on = True
        batch = RequestBatch(
            [JudgedEdits(spec, _unplanned(edits, rubrics, spec)) for spec in specs]
        )
        planning = _Planning(rubrics, samples, fresh or self.terms.fresh)
        batch.task = self._start(
            self._serve(batch, edits, planning, screened), self._batches
        )
        batch.task.add_done_callback(lambda _: hold.release())
        batch.task.add_done_callback(batch.finish)
        return batch

    async def _serve(
        self,
        batch: RequestBatch,
        edits: Sequence[Edit],
        planning: _Planning,
        screened: bool,
    ) -> None:
        outputs = asyncio.gather(
            *(self._on_pictures(screened_output, edit) for edit in edits if screened)
        )
        parts = [
            self._serve_judge(batch, part, edits, planning, outputs)
            for part in batch.parts
        ]
        try:
            await _all(parts)
        finally:
            self._note_rate(len(edits))

    async def _serve_judge(
        self,
        batch: RequestBatch,
        part: JudgedEdits,
        edits: Sequence[Edit],
        planning: _Planning,
        outputs: asyncio.Future[list[NoEdit | None]],
    ) -> None:
        line = await self._line(part.spec)
        line.try_again()
        planned = await self._on_pictures(self._plan, line, edits, planning)
        # none where nothing is screened
        for one, output in zip(planned, await outputs, strict=False):
            one.degenerate = output
        part.edits = planned
        judged_edits = [
            one
            for one in planned
            if one.degenerate is None or not one.degenerate.set_aside
        ]
        questions = [(one, work) for one in judged_edits for work in one.works]
        tasks = [work.task._replace(item=one.stored_as) for one, work in questions]
        pairs = any(rubric.pairwise for rubric in planning.rubrics)
        part.run = await self._keep(
            line, [one.item for one in planned], tasks, pairs=pairs
        )
        batch.note_planned(part)
        lookup = await self._asker.start(work for _, work in questions)
        for work in lookup.open:
            line.waiting.put_nowait(work)
        await _all(
            self._answer(line, one, work, lookup.answers[work.task.key])
            for one, work in questions
        )

    def _plan(
        self, line: JudgeLane, edits: Sequence[Edit], planning: _Planning
    ) -> list[QueuedEdit]:
        """Meant for a thread: pictures are hashed here."""
        digests = _RequestDigests(self._reader)
        settings = QuestionSettings(planning.rubrics, planning.samples)
        planned = [self._planned(line.judge, edit, settings, digests) for edit in edits]
        return (
            [self._unanswered(line.judge, one, planning, digests) for one in planned]
            if planning.fresh
            else planned
        )

    def _unanswered(
        self,
        judge: Judge,
        queued: QueuedEdit,
        planning: _Planning,
        digests: DigestCache,
    ) -> QueuedEdit:
        """The same questions, as repeats that the store has no answer to yet."""
        repeats = planning.samples
        while True:
            # Twice as many repeats each time: few edits are asked about more than a handful of times.
            repeats *= 2
            again = self._planned(
                judge, queued.edit, QuestionSettings(planning.rubrics, repeats), digests
            ).works
            statuses = self._site.store.done([work.task.key for work in again])
            open_works = [
                work for work in again if statuses.get(work.task.key) not in DONE
            ]
            by_rubric = (
                [w for w in open_works if w.rubric is rubric]
                for rubric in planning.rubrics
            )
            chosen = [work for some in by_rubric for work in some[: planning.samples]]
            if len(chosen) == planning.samples * len(planning.rubrics):
                return dataclasses.replace(queued, works=chosen)

    def _planned(
        self, judge: Judge, edit: Edit, settings: QuestionSettings, digests: DigestCache
    ) -> QueuedEdit:
        pictures = readable_pictures(edit, digests)

        def look(edit: Edit, role: str) -> KnownImage | None:
            return pictures.get(role) or look_at(digests, edit, role)

        planned = list(works([edit], settings, judge, look))
        digests_of = {role: known.digest for role, known in pictures.items()}
        labels = (
            edit.model,
            edit.edit_type,
            edit.group,
            edit.instruction,
            edit.referring_expression,
            edit.metadata,
        )
        content = json_hash([digests_of, *labels])
        stored_as = f"{edit.id}-{content[:12]}"
        album: Any = self._album
        uploads = {
            role: album and album.keep(edit.picture(role), known)
            for role, known in pictures.items()
        }
        places = {role: path or "sent, and not kept" for role, path in uploads.items()}
        return QueuedEdit(
            edit,
            planned,
            stored_as,
            item_of(edit, digests_of, name=stored_as, places=places),
        )

    async def _keep(
        self, line: JudgeLane, items: list[Item], tasks: list[Task], *, pairs: bool
    ) -> RunRecord:
        store = self._site.store

        def keep() -> RunRecord:
            # `runs rm` may have taken the run away since it was last written to.
            run = line.runs.get(pairs)
            if run is None or store.run_of(run.id) is None:
                run = line.runs[pairs] = self._run(
                    line.judge.spec, [PREFERENCE] if pairs else self._rubrics
                )
            store.append(run, items)
            if tasks:  # none where no output is an edit
                store.append(run, tasks)
            return run

        return await self._asker.write(keep)

    # --- asking ---------------------------------------------------------------------------------------------

    async def _line(self, spec: str) -> JudgeLane:
        opening = self._lines.get(spec) or asyncio.create_task(self._opened(spec))
        self._lines[spec] = opening
        try:
            return await asyncio.shield(opening)
        except BaseException:
            # not only this caller was cancelled
            if opening.done() and self._lines.get(spec) is opening:
                del self._lines[spec]  # the next one tries again
            raise

    async def _opened(self, spec: str) -> JudgeLane:
        pace = Pace(
            spec,
            concurrency=self._site.terms.concurrency,
            retry=Retry(tries=_TRIES),
            circuit=_circuit(spec),
        )
        judge = await open_judge(
            spec, self._site.options, lambda _: pace, self._resources, funds=self.budget
        )
        line = JudgeLane(judge, pace, len(self._rubrics))
        self._start(self._drive(line), self._tasks)
        self._start(self._look_again(line), self._tasks)
        return line

    def _run(self, spec: str, rubrics: Sequence[Rubric]) -> RunRecord:
        """The same for the same judge, options and rubrics, so that a server that starts again goes on with it."""
        hashes = {rubric.name: rubric.hash for rubric in rubrics}
        frozen = {"service": "v1", "judges": [spec], "rubrics": hashes, "repeats": 1}
        frozen |= {
            "layout": QuestionSettings(()).layout,
            "options": self._site.options.frozen(),
        }
        if self._album:
            frozen["manifest"] = str(self._album.folder)  # where the run's pictures are
        self._site.store.add_rubrics(rubrics)
        return self._site.store.open_run(f"rewards-{json_hash(frozen)[:8]}", frozen)

    async def _answer(
        self,
        line: JudgeLane,
        queued: QueuedEdit,
        work: Work,
        answer: asyncio.Future[Judgement | None],
    ) -> None:
        """Note the answer to a question when it is there, or why there is none."""
        key = work.task.key
        try:
            judgement = await asyncio.shield(answer)
        except JudgeError as error:  # nobody was asked, so there is nothing to keep: the task stays to be judged
            line.down = True
            code = "budget" if isinstance(error, BudgetReached) else "judge_down"
            reason = Remark(code, str(error))
            judgement = work.judgement("unreachable", reasons=(reason,))
        if judgement is None:
            judgement = await asyncio.to_thread(self._site.store.judgement, key)
        if judgement is not None:
            queued.answers[key] = judgement

    async def _drive(self, line: JudgeLane) -> None:
        while True:
            work = await line.waiting.get()
            await line.window.enter()
            self._start(self._ask(line, work), self._tasks)

    async def _look_again(self, line: JudgeLane) -> None:
        """Ask what a run beside this server left unanswered."""
        while True:
            await asyncio.sleep(LOOK)
            with contextlib.suppress(StoreError):  # it may do better the next time
                lookup = await self._asker.look_again(line.judge)
                for work in lookup.open:
                    line.waiting.put_nowait(work)

    async def _ask(self, line: JudgeLane, work: Work) -> None:
        begun = time.monotonic()
        # An error is raised in the requests that wait for the answer.
        with contextlib.suppress(Exception):
            await self._asker.ask(line.judge, work, self._pictures)
            self.spans[work.task.key] = begun, time.monotonic()
            if len(self.spans) > _SPANS:
                del self.spans[next(iter(self.spans))]
        line.window.leave()

    # --- the end --------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Nothing more is taken in; what was is judged, for as long as the terms allow, and kept."""
        self.closing = True
        if self._batches:
            await asyncio.wait(self._batches, timeout=self._site.terms.drain)
        left = [*self._batches, *self._tasks]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for pool in (self._readers, self._screens):
            pool.shutdown(wait=False, cancel_futures=True)
        await self._asker.close()

    def _start(
        self, work: Coroutine[Any, Any, None], among: set[asyncio.Task[Any]]
    ) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        among.add(task)
        task.add_done_callback(among.discard)
        return task

    def _note_rate(self, edits: int) -> None:
        now = time.monotonic()
        rate = edits / max(now - self._judged_at, 1e-3)
        self._judged_at = now
        self._rate += (rate - self._rate) * 0.2 if self._rate else rate


@dataclass
class _Hold:
    """Room that a request takes up until its last edit is judged."""

    queue: JudgingQueue
    size: int = 0
    """Bytes that came."""
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
    """Digests of the pictures of one request, each made once: 16 edits of a group are shown in 120 pairs."""

    def __init__(self, reader: ImageReader) -> None:
        super().__init__(reader)
        self._pictures: dict[int, tuple[ImageSource, KnownImage | None]] = {}
        """Images by identity; each is held, so that no other one can have its address."""

    def known(self, source: ImageSource) -> KnownImage | None:
        if id(source) not in self._pictures:
            self._pictures[id(source)] = source, super().known(source)
        return self._pictures[id(source)][1]


class _Planning(NamedTuple):
    """Questions about each edit of a request."""

    rubrics: Sequence[Rubric]
    samples: int
    fresh: bool


@dataclass
class JudgedEdits:
    """The edits of a request before one judge."""

    spec: str
    edits: list[QueuedEdit]
    run: RunRecord | None = None
    """None until they are kept."""


class RequestBatch:
    """Progress of a request."""

    def __init__(self, parts: list[JudgedEdits]) -> None:
        self.parts = parts
        """One for each judge."""
        self.started = time.time()
        self.planned = asyncio.Event()
        self.task: asyncio.Task[None]
        self._unplanned = {part.spec for part in parts}

    def note_planned(self, part: JudgedEdits) -> None:
        self._unplanned.discard(part.spec)
        if not self._unplanned:
            self.planned.set()

    def finish(self, task: asyncio.Task[None]) -> None:
        self.planned.set()
        # retrieved: perhaps nobody waits any more
        _ = task.cancelled() or task.exception()

    async def wait(self, seconds: float) -> None:
        """Wait until all is judged, at most so long, and a moment more if the keys are not known yet."""
        # the server has no more time: what there is now is answered
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({self.task}, timeout=max(0.0, seconds))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.planned.wait(), _PLANNING)
        if self.task.cancelled():
            raise Refused(503, "the server is being stopped")
        if self.task.done():
            self.task.result()


def _unplanned(
    edits: Sequence[Edit], rubrics: Sequence[Rubric], spec: str
) -> list[QueuedEdit]:
    """Return the edits of a request before anything was planned."""

    def work(edit: Edit, rubric: Rubric) -> Work:
        return Work(Task(edit.id, rubric.name, spec, 0, ""), edit, rubric)

    return [
        QueuedEdit(
            e, [work(e, rubric) for rubric in rubrics], "", Item(e.id, group=e.group)
        )
        for e in edits
    ]


async def _all(works: Iterable[Awaitable[Any]]) -> None:
    """Wait until all have ended; then raise the first error."""
    for result in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _circuit(spec: str) -> Circuit:
    """Never opens by itself: each question is answered or unreachable within its tries, and then the next is asked."""
    return Circuit(spec, threshold=sys.maxsize, absence=math.inf)


@asynccontextmanager
async def open_queue(
    site: RewardSite, rubrics: Sequence[Rubric]
) -> AsyncIterator[JudgingQueue]:
    async with AsyncExitStack() as resources:
        opened = JudgingQueue(site, rubrics, resources)
        try:
            yield opened
        finally:
            await opened.close()
