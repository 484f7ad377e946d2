"""The planning half of a run: edits become works that are not done yet, and what is planned is kept.

Whoever asks (the local engine, a provider's batches, a cluster) gets its works from here.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from editjudge import manifest
from editjudge.content import Content
from editjudge.edit import IMAGE_ROLES, Edit, ImageSource
from editjudge.judgement import DONE, Judgement
from editjudge.judges.budget import Shortfall
from editjudge.judges.judge import Judge, Work
from editjudge.judges.registry import is_local
from editjudge.media.cache import DigestCache, KnownImage
from editjudge.media.image import Fetch, is_url, name_of
from editjudge.run.plan import PictureMissing, QuestionSettings, works
from editjudge.store.claims import Claims
from editjudge.store.store import Item, Store

BATCH = 200
"""Edits planned at a time: large enough to look keys up in bulk, small enough to start at once."""

NOT_ASKED = ("missing_output", "missing_input", "bad_image")
"""Statuses of tasks that no judge was given."""

Ending = Literal["finished", "interrupted", "budget", "failed"]


@dataclass
class RunTally:
    """What has become of a run so far."""

    statuses: Counter[str] = field(default_factory=Counter)
    cached: int = 0
    """Judgements that were there already."""
    asked: int = 0
    """Tasks that a judge was given: not those whose pictures are missing."""
    replies: int = 0
    """Replies that were paid for."""
    cost: float = 0.0
    estimated: float = 0.0
    """Of the cost, that of requests which brought no answer and may be billed."""
    unpriced: int = 0
    """Judgements whose cost is unknown."""
    left_out: int = 0
    """Edits that an earlier run, named as a condition, does not have."""
    removed: int = 0
    """Edits that the run had and the manifest has no more."""
    started: float = field(default_factory=time.monotonic)

    @property
    def total(self) -> int:
        return self.statuses.total()

    @property
    def failed(self) -> int:
        return sum(count for status, count in self.statuses.items() if status not in DONE)

    def add(self, judgement: Judgement) -> None:
        self.statuses[judgement.status] += 1
        self.asked += judgement.status not in NOT_ASKED
        self.replies += sum(1 for exchange in judgement.exchanges if exchange.finish != "error")
        if judgement.cost is not None:
            self.cost += judgement.cost
        elif judgement.exchanges:
            self.unpriced += 1


@dataclass(frozen=True)
class PictureAccess:
    """Where pictures may come from."""

    root: Path | None = None
    fetch: Fetch | None = None
    rehash: bool = False


@dataclass
class RunControl:
    """How a run is stopped: politely, by letting what is in flight finish."""

    stopping: Ending | None = None
    error: BaseException | None = None
    short: Shortfall | None = None
    """Where the budget ends the run, what it was too little for."""
    waking: list[Callable[[], None]] = field(default_factory=list)
    """Called at the stop, for those who wait elsewhere."""
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def stopped(self) -> bool:
        return self.stopping is not None

    def stop(self, why: Ending, error: BaseException | None = None, short: Shortfall | None = None) -> None:
        if self.stopping is None:
            self.stopping, self.error, self.short = why, error, short
            self._stopped.set()
            for wake in self.waking:
                wake()

    async def rest(self, seconds: float) -> None:
        """Sleep, but not beyond the stop."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)


class Planner:
    """The works of one run over one store."""

    def __init__(
        self,
        store: Store,
        run_id: int,
        shape: QuestionSettings,
        access: PictureAccess | None = None,
        observe: Callable[[RunTally], None] = lambda _: None,
        claims: Claims | None = None,
    ) -> None:
        self.tally = RunTally()
        self.observe = observe
        self.access = access or PictureAccess()
        self._store, self._run, self._shape = store, run_id, shape
        self._window: set[str] = set()
        """Keys that are planned or in flight: an answer that two tasks share is paid for once."""
        self._claims = claims
        self._elsewhere: dict[str, Work] = {}
        """Tasks that another process is asking, by key."""

    def batches(self, judge: Judge, edits: Iterator[Edit]) -> Iterator[list[Work]]:
        """All works of a judge, some edits at a time; items and tasks are kept before they are handed out.

        Meant for a thread: reading and hashing pictures must not hold up answers.
        """
        edits_before = tasks_before = 0
        while batch := list(itertools.islice(edits, BATCH)):
            digests = self._digests(batch)
            found = list(works(batch, self._shape, judge, functools.partial(known, digests, self.access.root)))
            shown = _shown(found, digests)
            self._store.save_digests(digests.dump())
            kept = (_item(edit, shown[edit.id]) for edit in batch)
            edits_before = self._store.add_items(self._run, kept, edits_before)
            tasks_before = self._store.add_tasks(self._run, (work.task for work in found), tasks_before)
            yield found

    def _digests(self, batch: list[Edit]) -> DigestCache:
        digests = DigestCache(rehash=self.access.rehash, root=self.access.root, fetch=self.access.fetch)
        paths = {os.path.abspath(s) for e in batch for role in IMAGE_ROLES if isinstance(s := getattr(e, role), Path)}
        digests.load(self._store.load_digests(sorted(paths)))
        return digests

    async def not_done(self, planned: list[Work]) -> list[Work]:
        """What is neither answered nor about to be, claimed for this process. Keys enter the window before the store is
        asked, so that none can be committed in between and asked again."""
        fresh: dict[str, Work] = {}
        for work in planned:
            if work.task.key not in self._window:
                fresh.setdefault(work.task.key, work)
        self._window.update(fresh)
        statuses = await asyncio.to_thread(self._store.done, list(fresh))
        todo = {key: work for key, work in fresh.items() if statuses.get(key) not in DONE}
        if self._claims and (paid := [key for key, work in todo.items() if is_paid(work)]):
            mine = await asyncio.to_thread(self._claims.take, paid)
            # Another may have answered between the look and the claim.
            statuses |= (later := await asyncio.to_thread(self._store.done, paid))
            answered = {key for key in paid if later.get(key) in DONE}
            await asyncio.to_thread(self._claims.give_back, answered & mine)
            elsewhere = {key: todo[key] for key in paid if key not in mine and key not in answered}
            self._elsewhere |= elsewhere
            todo = {key: work for key, work in todo.items() if key not in answered and key not in elsewhere}
        self._window -= {key for key in fresh if statuses.get(key) in DONE}
        for work in planned:
            if (status := statuses.get(work.task.key)) in DONE:
                self.tally.statuses[str(status)] += 1
                self.tally.cached += 1
            elif fresh.get(work.task.key) is not work:
                self.tally.cached += 1
        self.observe(self.tally)
        return list(todo.values())

    def elsewhere(self, judge: Judge) -> int:
        """How many tasks of a judge another process is asking."""
        return sum(work.task.judge == judge.spec for work in self._elsewhere.values())

    async def left_behind(self, judge: Judge) -> list[Work]:
        """Of what another process was asking, that which it gave back or died with. What it answered is counted, also
        where that was a failure: the next run tries it again."""
        waiting = {key: work for key, work in self._elsewhere.items() if work.task.judge == judge.spec}
        if self._claims is None or not waiting:
            return []
        held = await asyncio.to_thread(self._claims.held, list(waiting))
        free = [key for key in waiting if not held.get(key)]
        mine = await asyncio.to_thread(self._claims.take, free)
        statuses = await asyncio.to_thread(self._store.done, free)
        found: list[Work] = []
        for key in free:
            status = statuses.get(key)
            if status in DONE or (status is not None and key not in held):
                self.tally.statuses[status] += 1
                self.tally.cached += 1
                self._window.discard(key)
                del self._elsewhere[key]
            elif key in mine:
                found.append(self._elsewhere.pop(key))
        await asyncio.to_thread(self._claims.give_back, mine - {work.task.key for work in found})
        self.observe(self.tally)
        return found

    def close(self) -> None:
        """What is claimed and was not asked is for others to ask."""
        if self._claims:
            self._claims.close()

    def count(self, judgement: Judgement) -> None:
        """A judgement that is committed."""
        self._window.discard(judgement.key)
        self.tally.add(judgement)
        self.observe(self.tally)


def is_paid(work: Work) -> bool:
    """Whether somebody else is asked: what this machine answers itself may be answered twice."""
    return work.problem is None and not is_local(work.task.judge)


def known(digests: DigestCache, root: Path | None, edit: Edit, role: str) -> KnownImage | None:
    """What is known of a picture of an edit; a file that is not there is named as the manifest does."""
    source = getattr(edit, role)
    found = None if source is None else digests.known(source)
    if found is None and isinstance(source, Path):
        raise PictureMissing(f"{name_of(Path(os.path.relpath(source, root)) if root else source)} is not there")
    return found


def _shown(found: Iterable[Work], digests: DigestCache) -> dict[str, dict[str, str]]:
    """Digests of each edit's pictures, also of those that no rubric shows: they are what the edit is known by, to
    ratings and other runs. Addresses are fetched for who is to look at them alone."""
    shown: dict[str, dict[str, str]] = {}
    for work in found:
        shown.setdefault(work.edit.id, {}).update(work.digests)
    for work in found:
        _look_at(work.edit, digests, shown[work.edit.id])
    return shown


def contents_of_manifest(path: Path) -> dict[str, str]:
    """What the edits of a manifest are, by id."""
    digests, contents = DigestCache(), {}
    for edit in manifest.read(path.absolute(), allow_outside=True, allow_urls=True):
        known: dict[str, str] = {}
        _look_at(edit, digests, known)
        contents[edit.id] = Content.of(_item(edit, known)).key()
    return contents


def _look_at(edit: Edit, digests: DigestCache, known: dict[str, str]) -> None:
    """Add the digests that are not known yet."""
    for role in IMAGE_ROLES:
        source = getattr(edit, role)
        if role not in known and source is not None and not is_url(source):
            with suppress(Exception):  # a picture that nobody can read is known by its place
                known |= {role: digest} if (digest := digests.of(source)) else {}


def place_of(source: ImageSource) -> str:
    """Where a picture lies, as a store keeps it: absolute, since who looks later may do so from another folder."""
    return name_of(source.absolute() if isinstance(source, Path) else source)


def _place_digest(edit: Edit) -> str | None:
    """Stands for an input that nobody read: edits of one picture are one group, and models are paired on it."""
    return None if edit.input is None else hashlib.sha256(place_of(edit.input).encode()).hexdigest()


def _item(edit: Edit, digests: Mapping[str, str]) -> Item:
    images = {
        role: {
            "source": place_of(source),
            "digest": digests.get(role),
        }
        for role in IMAGE_ROLES
        if (source := getattr(edit, role)) is not None
    }
    return Item(
        edit.id,
        edit.model,
        edit.edit_type,
        edit.group or digests.get("input") or _place_digest(edit) or edit.id,
        edit.instruction,
        edit.referring_expression,
        images,
        edit.metadata,
    )
