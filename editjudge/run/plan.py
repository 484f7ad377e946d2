"""What a run has to do: edits x rubrics x a judge x repeats, each with the key of all that can change its answer, less
what is answered already. The local engine, a provider's batches and a cluster's workers take their tasks from here."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from editjudge import manifest
from editjudge.content import Content
from editjudge.edit import OUTPUT_ROLES, TEXT_ROLES, Edit
from editjudge.errors import ImageError, UsageError
from editjudge.judgement import DONE, Judgement, Status, Task
from editjudge.judges.judge import Judge, Work
from editjudge.media.cache import DigestCache, KnownImage, PictureReader
from editjudge.media.image import is_url, name_of, plan
from editjudge.rubrics.contract import Remark
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.prompt import RENDERING, Layout
from editjudge.run.feed import claim_tasks, item_of, unexpected
from editjudge.run.summary import RunTally
from editjudge.store.claims import Claims
from editjudge.store.store import Store

BATCH = 200
"""Edits planned at a time: large enough to look keys up in bulk, small enough to start at once."""

KEY_VERSION = 1

Look = Callable[[Edit, str], KnownImage | None]
"""What is known of a picture of an edit, by role; None where there is none. Raises `ImageError`, and
`PictureMissing` where there should be one."""


class PictureMissing(ImageError):
    """A file that a manifest names, and that does not exist."""


@dataclass(frozen=True)
class QuestionSettings:
    """What a run asks of every edit."""

    rubrics: Sequence[Rubric]
    repeats: int = 1
    layout: Layout = "images-first"

    def __post_init__(self) -> None:
        if words := [rubric.name for rubric in self.rubrics if rubric.chooses]:
            raise UsageError(f"{', '.join(words)}: asks for choices between outputs, which no run can ask for yet")


def works(edits: Iterable[Edit], shape: QuestionSettings, judge: Judge, look: Look) -> Iterator[Work]:
    """Everything to be asked of one judge, edit by edit, so that what shares pictures stands together."""
    for edit in edits:
        seen: dict[tuple[tuple[str, ...], int], _Seen] = {}
        for rubric in shape.rubrics:
            which = _roles(edit, rubric, judge)
            if which not in seen:
                seen[which] = _see(edit, *which, judge, look)
            yield from _of_one(edit, rubric, shape, judge, seen[which])


class _Seen(NamedTuple):
    """What is known of the pictures that some rubrics share."""

    digests: dict[str, str]
    recipes: dict[str, str]
    sizes: dict[str, tuple[int, int]]
    images: dict[str, list[str | None]]
    """Digest and recipe of each role, absent ones included: their part of a key."""
    problem: tuple[Status, Remark] | None


def _see(edit: Edit, roles: tuple[str, ...], needed: int, judge: Judge, look: Look) -> _Seen:
    shown: dict[str, KnownImage] = {}
    limits = judge.limits
    problem = None
    if limits is not None:
        problem = _pictures(edit, roles[:needed], look, shown)
        _pictures(edit, roles[needed:], look, shown)  # the rubric does not show these: broken, they are not there
    shown = {role: known for role, known in shown.items() if known.info or role in roles[:needed]}
    digests = {role: known.digest for role, known in shown.items()}
    recipes = {role: plan(known.info, limits) for role, known in shown.items() if known.info and limits}
    sizes = {role: known.info.shown for role, known in shown.items() if known.info}
    images = {role: [digests.get(role), recipes.get(role)] for role in roles}
    return _Seen(digests, recipes, sizes, images, problem)


def _of_one(edit: Edit, rubric: Rubric, shape: QuestionSettings, judge: Judge, seen: _Seen) -> Iterator[Work]:
    problem = seen.problem
    if judge.limits is not None:
        problem = problem or _texts(edit, rubric)
    question: dict[str, object] = {
        "version": KEY_VERSION,
        "rendering": RENDERING,
        "rubric": rubric.hash,
        "layout": shape.layout,
        "images": seen.images,
        "texts": {role: edit.text(role) for role in rubric.texts},
    }
    if problem:  # a picture that cannot be read has no digest to tell it from one that is not there
        question["problem"] = [problem[0], problem[1].message]
    for repeat in range(shape.repeats):
        key = _key(question, judge.identity(edit, rubric, repeat), repeat)
        task = Task(edit.id, rubric.name, judge.spec, repeat, key)
        yield Work(task, edit, rubric, seen.digests, seen.recipes, seen.sizes, shape.layout, problem)


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def _key(question: Mapping[str, object], identity: Mapping[str, object], repeat: int) -> str:
    return hashlib.sha256(_canonical([question, identity, repeat]).encode()).hexdigest()


def _roles(edit: Edit, rubric: Rubric, judge: Judge) -> tuple[tuple[str, ...], int]:
    """The pictures that can change the answer: those that the rubric shows, and those that the judge looks at too; and
    how many of them the rubric shows."""
    shown = dict.fromkeys(name for role in rubric.images for name in edit.picture_names(role))
    also = (role for role in getattr(judge, "also", ()) if edit.picture(role) is not None)
    return tuple(dict.fromkeys((*shown, *also))), len(shown)


def _pictures(
    edit: Edit, roles: Iterable[str], look: Look, shown: dict[str, KnownImage]
) -> tuple[Status, Remark] | None:
    """Fills in what is known of each picture that is looked at; says why it cannot be asked, if it cannot."""
    problem: tuple[Status, Remark] | None = None
    for role in roles:
        try:
            known, gone = _sought(edit, role, look)
        except ImageError as error:
            problem = problem or ("bad_image", Remark("bad_image", str(error)))
            continue
        except Exception as error:  # of this picture alone
            problem = problem or ("error", unexpected(error, f"the {role} of {edit.id}"))
            continue
        if known is None:
            # What the model never produced outweighs whatever else is wrong, but for paths that lead nowhere at all.
            nothing = role in OUTPUT_ROLES
            problem = _produced_nothing(edit, role, look, gone) if nothing else problem or _absent(role, gone)
            continue
        shown[role] = known
        if known.info is None:
            problem = problem or ("bad_image", Remark("bad_image", known.problem))
    return problem


def _sought(edit: Edit, role: str, look: Look) -> tuple[KnownImage | None, str]:
    """What is known of a picture, or which file is not there; neither where none is named."""
    try:
        return look(edit, role), ""
    except PictureMissing as error:
        return None, str(error)


def _produced_nothing(edit: Edit, role: str, look: Look, gone: str) -> tuple[Status, Remark]:
    if isinstance(edit.picture(role), Path) and isinstance(edit.input, Path):
        with suppress(Exception):  # what is wrong with the input is said where the input is looked at
            known, why = _sought(edit, "input", look)
            if known is None:
                return "missing_input", Remark("missing_input", f"{why or 'the input is not there'}, nor is the edited")
    return "missing_output", Remark("missing_output", gone or "the editing model produced no picture")


def _absent(role: str, gone: str) -> tuple[Status, Remark]:
    return "missing_input", Remark("missing_input", gone or f"the {role} is to be looked at, and there is none")


def _texts(edit: Edit, rubric: Rubric) -> tuple[Status, Remark] | None:
    if "instruction" in rubric.texts and not edit.instruction.strip():
        return "missing_input", Remark("missing_input", "the rubric needs an instruction, and it is empty")
    for role in rubric.texts:
        if role not in TEXT_ROLES and not edit.text(role).strip():
            return "missing_input", Remark("missing_input", f'the rubric needs the text "{role}", and it is empty')
    return None


# --- pictures -------------------------------------------------------------------------------------------------


def look_at(digests: DigestCache, edit: Edit, role: str) -> KnownImage | None:
    """What is known of a picture of an edit; a file that does not exist is named as the manifest names it."""
    source = edit.picture(role)
    known = None if source is None else digests.known(source)
    if known is None and isinstance(source, Path):
        root = digests.reader.root
        raise PictureMissing(f"{name_of(Path(os.path.relpath(source, root)) if root else source)} is not there")
    return known


def readable_pictures(edit: Edit, digests: DigestCache, skip: Iterable[str] = ()) -> dict[str, KnownImage]:
    """The pictures that can be read, also those that no rubric shows: by them an edit is known to ratings and other
    runs. Addresses are left out: they are fetched for a judge alone."""
    pictures: dict[str, KnownImage] = {}
    for role, source in edit.all_pictures().items():
        if role not in skip and not is_url(source):
            with suppress(Exception):  # a picture that cannot be read is known by its place
                if known := digests.known(source):
                    pictures[role] = known
    return pictures


def digests_of(edit: Edit, digests: DigestCache, known: Mapping[str, str] | None = None) -> dict[str, str]:
    """Digests of an edit's pictures, by role."""
    known = known or {}
    return {**known, **{role: one.digest for role, one in readable_pictures(edit, digests, known).items()}}


def contents_of_manifest(path: Path) -> dict[str, str]:
    """Content keys of a manifest's edits, by id."""
    digests = DigestCache()
    edits = manifest.read(path.absolute(), allow_outside=True, allow_urls=True)
    return {edit.id: Content.of(item_of(edit, digests_of(edit, digests))).key() for edit in edits}


# --- tasks that are not answered yet --------------------------------------------------------------------------


class Planner:
    """The tasks of one run over one store."""

    def __init__(
        self,
        store: Store,
        run_id: int,
        settings: QuestionSettings,
        pictures: PictureReader | None = None,
        observe: Callable[[RunTally], None] = lambda _: None,
        claims: Claims | None = None,
        *,
        rehash: bool = False,
    ) -> None:
        self.tally = RunTally()
        self.observe = observe
        self.pictures = pictures or PictureReader()
        self._store, self._run, self._settings, self._rehash = store, run_id, settings, rehash
        self._in_flight: set[str] = set()
        """Keys that are planned or being asked: an answer that two tasks share is paid for once."""
        self._claims = claims
        self._elsewhere: dict[str, Work] = {}
        """Tasks that another process is asking, by key."""

    def batches(self, judge: Judge, edits: Iterator[Edit]) -> Iterator[list[Work]]:
        """All works of a judge, some edits at a time; items and tasks are stored before they are handed out.

        A batch ends early where its pictures fill half of what the reader holds, so that each is still in memory when
        it is encoded. Meant for a thread: reading and hashing pictures must not hold up answers.
        """
        edits_before = tasks_before = 0
        while batch := list(itertools.islice(edits, BATCH)):
            digests = self._digests(batch)
            while batch:
                planned, count = self._plan(judge, batch, digests)
                some, batch = batch[:count], batch[count:]
                shown: dict[str, dict[str, str]] = {edit.id: {} for edit in some}
                for work in planned:
                    shown[work.edit.id].update(work.digests)
                items = [item_of(edit, digests_of(edit, digests, shown[edit.id])) for edit in some]
                self._store.save_digests(digests.dump())
                edits_before = self._store.add_items(self._run, items, edits_before)
                tasks_before = self._store.add_tasks(self._run, (work.task for work in planned), tasks_before)
                yield planned

    def _plan(self, judge: Judge, edits: Sequence[Edit], digests: DigestCache) -> tuple[list[Work], int]:
        """The works of the first edits, and of how many."""
        look = functools.partial(look_at, digests)
        planned: list[Work] = []
        before = self.pictures.bytes_read
        for count, edit in enumerate(edits, 1):
            planned += works([edit], self._settings, judge, look)
            if self.pictures.bytes_read - before > self.pictures.budget // 2:
                return planned, count
        return planned, len(edits)

    def _digests(self, batch: list[Edit]) -> DigestCache:
        digests = DigestCache(self.pictures, rehash=self._rehash)
        paths = {os.path.abspath(s) for edit in batch for s in edit.all_pictures().values() if isinstance(s, Path)}
        digests.load(self._store.load_digests(sorted(paths)))
        return digests

    async def not_done(self, planned: list[Work]) -> list[Work]:
        """What is neither answered nor being asked, claimed for this process. Keys count as in flight before the store
        is read, so that none can be committed in between and asked again."""
        fresh: dict[str, Work] = {}
        for work in planned:
            if work.task.key not in self._in_flight:
                fresh.setdefault(work.task.key, work)
        self._in_flight.update(fresh)
        states = await asyncio.to_thread(claim_tasks, self._store, self._claims, fresh)
        self._elsewhere |= {key: work for key, work in fresh.items() if key in states.elsewhere}
        self._in_flight -= {key for key in fresh if states.statuses.get(key) in DONE}
        for work in planned:
            if (status := states.statuses.get(work.task.key)) in DONE:
                self.tally.statuses[str(status)] += 1
                self.tally.cached += 1
            elif fresh.get(work.task.key) is not work:
                self.tally.cached += 1
        self.observe(self.tally)
        return [work for key, work in fresh.items() if key in states.mine]

    def elsewhere(self, judge: Judge) -> int:
        """How many tasks of a judge another process is asking."""
        return sum(work.task.judge == judge.spec for work in self._elsewhere.values())

    async def left_behind(self, judge: Judge) -> list[Work]:
        """Of what another process was asking, that which it gave back or died with. What it answered is counted, also
        where that was a failure: the next run tries it again."""
        waiting = [key for key, work in self._elsewhere.items() if work.task.judge == judge.spec]
        if self._claims is None or not waiting:
            return []
        held, mine, statuses = await asyncio.to_thread(self._take_over, self._claims, waiting)
        works: list[Work] = []
        for key in (key for key in waiting if not held.get(key)):
            status = statuses.get(key)
            if status in DONE or (status is not None and key not in held):
                self.tally.statuses[status] += 1
                self.tally.cached += 1
                self._in_flight.discard(key)
                del self._elsewhere[key]
            elif key in mine:
                works.append(self._elsewhere.pop(key))
        await asyncio.to_thread(self._claims.give_back, mine - {work.task.key for work in works})
        self.observe(self.tally)
        return works

    def _take_over(self, claims: Claims, keys: Sequence[str]) -> tuple[dict[str, bool], set[str], dict[str, str]]:
        """Which keys somebody holds, which of the others are ours now, and their statuses."""
        held = claims.held(keys)
        free = [key for key in keys if not held.get(key)]
        return held, claims.take(free), self._store.done(free)

    def close(self) -> None:
        """Release the claims: what was not asked is for others to ask."""
        if self._claims:
            self._claims.close()

    def count(self, judgement: Judgement) -> None:
        """Add a judgement that is committed."""
        self._in_flight.discard(judgement.key)
        self.tally.add(judgement)
        self.observe(self.tally)
