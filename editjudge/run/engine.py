"""The local engine: tasks go to judges as fast as they take them, and an answer counts once it is committed."""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from editjudge.edit import IMAGE_ROLES, Edit
from editjudge.errors import EditjudgeError, ImageError
from editjudge.images import Fetch, name_of
from editjudge.judgement import DONE, Judgement
from editjudge.judges.work import Judge, Work
from editjudge.pictures import Digests, Known, Pictures
from editjudge.run.plan import Shape, works
from editjudge.run.single import judged
from editjudge.store.store import Item, Store
from editjudge.store.writer import Writer

BATCH = 200
"""Edits planned at a time: large enough to look keys up in bulk, small enough to start at once."""
LOOKAHEAD = 8
"""Tasks opened beyond those a judge takes, so that the next pictures are ready when a slot is."""

Ending = Literal["finished", "interrupted", "budget", "failed"]


@dataclass
class Tally:
    """What has become of a run so far."""

    statuses: Counter[str] = field(default_factory=Counter)
    cached: int = 0
    """Judgements that were there already."""
    asked: int = 0
    replies: int = 0
    """Replies that were paid for."""
    cost: float = 0.0
    unpriced: int = 0
    """Judgements whose cost is unknown."""
    started: float = field(default_factory=time.monotonic)

    @property
    def total(self) -> int:
        return self.statuses.total()

    @property
    def failed(self) -> int:
        return sum(count for status, count in self.statuses.items() if status not in DONE)

    def add(self, judgement: Judgement) -> None:
        self.statuses[judgement.status] += 1
        self.asked += 1
        self.replies += sum(1 for exchange in judgement.exchanges if exchange.finish != "error")
        if judgement.cost is not None:
            self.cost += judgement.cost
        elif judgement.exchanges:
            self.unpriced += 1


@dataclass(frozen=True)
class Access:
    """Where pictures may come from."""

    root: Path | None = None
    fetch: Fetch | None = None
    rehash: bool = False


@dataclass
class Control:
    """How a run is stopped: politely, by letting what is in flight finish."""

    stopping: Ending | None = None
    error: BaseException | None = None

    def stop(self, why: Ending, error: BaseException | None = None) -> None:
        if self.stopping is None:
            self.stopping, self.error = why, error


Reserve = Callable[[Work], float]
"""The most that a task can cost."""


class Engine:
    """One run over one store."""

    def __init__(
        self,
        store: Store,
        run_id: int,
        shape: Shape,
        *,
        access: Access | None = None,
        budget: float | None = None,
        reserve: Reserve = lambda _: 0.0,
        observe: Callable[[Tally], None] = lambda _: None,
    ) -> None:
        self.tally = Tally()
        self.control = Control()
        self._store, self._run, self._shape = store, run_id, shape
        self._access = access or Access()
        self._pictures = Pictures(root=self._access.root, fetch=self._access.fetch)
        self._budget, self._reserve, self._spent, self._dearer = budget, reserve, 0.0, 1.0
        self._reserved: dict[str, float] = {}
        """The most that each task in flight can cost, by key."""
        self._settled = asyncio.Event()
        self._observe = observe
        self._writer = Writer(store)
        self._window: set[str] = set()
        """Keys that are planned or in flight: an answer that two tasks share is paid for once."""

    async def run(self, edits: Callable[[], Iterable[Edit]], judges: Sequence[Judge]) -> Ending:
        """Judge everything; each judge goes through the edits at its own pace."""
        try:
            async with asyncio.TaskGroup() as group:
                for judge in judges:
                    group.create_task(self._drive(judge, edits()))
        except* EditjudgeError as errors:
            self.control.stop("failed", _first(errors))
        finally:
            await self._writer.close()
        return self.control.stopping or "finished"

    async def _drive(self, judge: Judge, edits: Iterable[Edit]) -> None:
        batches = self._batches(judge, iter(edits))
        ahead = asyncio.create_task(self._next(batches))
        async with asyncio.TaskGroup() as group:
            room = _Room(judge)
            while self.control.stopping is None and (planned := await ahead) is not None:
                ahead = asyncio.create_task(self._next(batches))
                for work in await self._not_done(planned):
                    await room.wait()
                    if not await self._affordable(work):
                        break
                    room.enter()
                    task = group.create_task(self._do(judge, work))
                    task.add_done_callback(room.leave)
        await ahead

    async def _next(self, batches: Iterator[list[Work]]) -> list[Work] | None:
        try:
            return await asyncio.to_thread(next, batches, None)
        except EditjudgeError as error:
            self.control.stop("failed", error)
            return None

    def _batches(self, judge: Judge, edits: Iterator[Edit]) -> Iterator[list[Work]]:
        """Planned in a thread: reading and hashing pictures must not hold up answers."""
        edits_before = tasks_before = 0
        while batch := list(itertools.islice(edits, BATCH)):
            digests = self._digests(batch)
            found = list(works(batch, self._shape, judge, functools.partial(known, digests)))
            shown = _shown(found, digests)
            self._store.save_digests(digests.dump())
            kept = (_item(edit, shown[edit.id]) for edit in batch)
            edits_before = self._store.add_items(self._run, kept, edits_before)
            tasks_before = self._store.add_tasks(self._run, (work.task for work in found), tasks_before)
            yield found

    def _digests(self, batch: list[Edit]) -> Digests:
        digests = Digests(rehash=self._access.rehash, root=self._access.root, fetch=self._access.fetch)
        paths = {os.path.abspath(s) for e in batch for role in IMAGE_ROLES if isinstance(s := getattr(e, role), Path)}
        digests.load(self._store.load_digests(sorted(paths)))
        return digests

    async def _not_done(self, planned: list[Work]) -> list[Work]:
        """What is neither answered nor about to be. Keys enter the window before the store is asked, so that none
        can be committed in between and asked again."""
        fresh: dict[str, Work] = {}
        for work in planned:
            if work.task.key not in self._window:
                fresh.setdefault(work.task.key, work)
        self._window.update(fresh)
        statuses = await asyncio.to_thread(self._store.done, list(fresh))
        done = {key for key, status in statuses.items() if status in DONE}
        self._window -= done
        for work in planned:
            if (status := statuses.get(work.task.key)) in DONE:
                self.tally.statuses[str(status)] += 1
                self.tally.cached += 1
            elif fresh.get(work.task.key) is not work:
                self.tally.cached += 1
        self._observe(self.tally)
        return [work for key, work in fresh.items() if key not in done]

    async def _affordable(self, work: Work) -> bool:
        """Whether the run goes on, and can pay for this if it comes to the worst, as it hardly ever does: before the
        budget counts as reached, what is in flight is waited for."""
        most = self._reserve(work) if self._budget is not None else 0.0
        while self.control.stopping is None:
            if self._budget is None or self._feared(most) <= self._budget:
                self._reserved[work.task.key] = most
                return True
            if not self._reserved:
                self.control.stop("budget")
                break
            self._settled.clear()
            await self._settled.wait()
        return False

    def _feared(self, most: float) -> float:
        return self._spent + self._dearer * (sum(self._reserved.values()) + most)

    async def _do(self, judge: Judge, work: Work) -> None:
        try:
            judgement = await judged(judge, work, self._pictures)
            await self._writer.put(judgement)
        except EditjudgeError as error:
            # The run ends as if the user had ended it: what is in flight is paid for, so it is let finish.
            self.control.stop("failed", error)
        else:
            self._window.discard(work.task.key)
            self.tally.add(judgement)
            self._pay(judgement, self._reserved[work.task.key])
        del self._reserved[work.task.key]
        self._settled.set()
        self._observe(self.tally)

    def _pay(self, judgement: Judgement, most: float) -> None:
        unknown = judgement.cost is None and judgement.exchanges
        cost = most if unknown else judgement.cost or 0.0
        self._spent += cost
        if most:  # an estimate that proved too low is corrected for all that follow
            self._dearer = max(self._dearer, cost / most)


def _first(errors: BaseExceptionGroup[EditjudgeError]) -> EditjudgeError:
    """The error itself, out of the groups that task groups wrap around it."""
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


class _Room:
    """How many tasks of a judge may be open: as many as it takes, and a few more."""

    def __init__(self, judge: Judge) -> None:
        self._pace = getattr(judge, "pace", None)
        self._open = 0
        self._left = asyncio.Event()

    async def wait(self) -> None:
        while self._open >= self._most():
            self._left.clear()
            await self._left.wait()

    def _most(self) -> int:
        return (int(self._pace.limit) if self._pace else 2) + LOOKAHEAD

    def enter(self) -> None:
        self._open += 1

    def leave(self, _: asyncio.Task[Any]) -> None:
        self._open -= 1
        self._left.set()


def known(digests: Digests, edit: Edit, role: str) -> Known | None:
    """What is known of a picture of an edit."""
    source = getattr(edit, role)
    return None if source is None else digests.known(source)


def _shown(found: Iterable[Work], digests: Digests) -> dict[str, dict[str, str]]:
    """Digests of each edit's pictures: those that its rubrics show, and the input, by which edits are grouped."""
    shown: dict[str, dict[str, str]] = {}
    for work in found:
        shown.setdefault(work.edit.id, {}).update(work.digests)
    for work in found:
        mine, source = shown[work.edit.id], work.edit.input
        if "input" not in mine and work.edit.group is None and isinstance(source, Path | bytes):
            with suppress(ImageError):
                mine |= {"input": digest} if (digest := digests.of(source)) else {}
    return shown


def _item(edit: Edit, digests: Mapping[str, str]) -> Item:
    images = {
        role: {"source": name_of(source), "digest": digests.get(role)}
        for role in IMAGE_ROLES
        if (source := getattr(edit, role)) is not None
    }
    return Item(
        edit.id,
        edit.model,
        edit.edit_type,
        edit.group or digests.get("input") or edit.id,
        edit.instruction,
        edit.referring_expression,
        images,
        edit.metadata,
    )
