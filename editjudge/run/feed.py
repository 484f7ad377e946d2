"""What is in flight, the same for a run, a cluster's worker, a provider's batches and the reward server: how many tasks
are open, whose task it is to ask, what a store keeps of an edit, and what an unexpected exception becomes."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from editjudge.canonical import text_hash
from editjudge.edit import Edit, ImageSource
from editjudge.errors import EditjudgeError, ImageError, WorldError
from editjudge.judgement import DONE, Judgement
from editjudge.judges.body import cleaned, without_keys
from editjudge.judges.judge import Judge, JudgingFailed, Load, Work, is_local
from editjudge.media.cache import Encoded, ImageCache
from editjudge.media.image import name_of
from editjudge.redaction import redacted_metadata, redacted_text
from editjudge.rubrics.verdict import Remark
from editjudge.run.regions import MEASURED, PartMissing, PicturePart, cut_out
from editjudge.store.sink import Sink

if TYPE_CHECKING:
    from editjudge.store.claims import Claims
from editjudge.store.records import Item

LOOKAHEAD = 8
"""Tasks opened beyond those a judge takes, so that the next pictures are ready when a slot is."""
LOOK = 0.5
"""Seconds between two looks at what another process is asking."""


class Window:
    """Bounds how many tasks of a judge are open: as many as its pace allows, or all `questions` about each of the edits
    that it takes at once, and `LOOKAHEAD` more.

    A judge that measures counts edits, since the questions about one share a worker: with a bound of tasks, a set of
    twelve rubrics left every second worker without an edit.
    """

    def __init__(self, judge: Judge, questions: int) -> None:
        self._pace = getattr(judge, "pace", None)
        self._tasks = questions * getattr(judge, "edits_at_once", 0) or 2
        self._open = 0
        self._left = asyncio.Event()

    async def enter(self) -> None:
        while self._open >= (self._pace.window if self._pace else self._tasks) + LOOKAHEAD:
            self._left.clear()
            await self._left.wait()
        self._open += 1

    def leave(self, _: object = None) -> None:
        self._open -= 1
        self._left.set()


# --- whose task it is -----------------------------------------------------------------------------------------


class TaskStates(NamedTuple):
    """What became of some tasks, by key."""

    statuses: dict[str, str]
    """Of those that have a judgement."""
    mine: set[str]
    """To be asked by this process."""
    elsewhere: set[str]
    """Being asked by another one."""


def claim_tasks(store: Sink, claims: Claims | None, works: Mapping[str, Work]) -> TaskStates:
    """Look tasks up, and claim those that are not answered and cost money. Reads and writes the store."""
    statuses = store.done(list(works))
    mine = {key for key in works if statuses.get(key) not in DONE}
    paid = [key for key, work in works.items() if key in mine and is_paid(work)]
    if claims is None or not paid:
        return TaskStates(statuses, mine, set())
    claimed = claims.take(paid)
    statuses |= store.done(paid)  # another may have answered between the look and the claim
    answered = {key for key in paid if statuses.get(key) in DONE}
    claims.give_back(answered & claimed)
    elsewhere = {*paid} - claimed - answered
    return TaskStates(statuses, mine - answered - elsewhere, elsewhere)


def is_paid(work: Work) -> bool:
    """Whether a request is sent: what this process answers itself may be answered twice."""
    return work.problem is None and not is_local(work.task.judge)


# --- what a store keeps of an edit ----------------------------------------------------------------------------


def item_of(
    edit: Edit, digests: Mapping[str, str], *, name: str | None = None, places: Mapping[str, str] | None = None
) -> Item:
    """An edit as a store keeps it, as `name` if not by its id.

    `places` says where each picture is kept, if not where it came from. Edits of one input are one group; an input
    that nobody read is known by its place. Passwords and signatures of addresses are not kept.
    """
    name, group = name or edit.id, redacted_text(edit.group or "") or digests.get("input")
    if places is None:
        places = {role: place_of(source) for role, source in edit.all_pictures().items()}
        if not group and "input" in places:
            group = text_hash(places["input"])
    return Item(
        name,
        edit.model,
        edit.edit_type,
        group or name,
        edit.instruction,
        edit.referring_expression,
        {role: {"source": place, "digest": digests.get(role)} for role, place in places.items()},
        redacted_metadata(edit.metadata),
    )


def place_of(source: ImageSource) -> str:
    """Where a picture is, as a store keeps it: an absolute path, since the store may be read from another folder."""
    return name_of(source.absolute() if isinstance(source, Path) else source)


# --- judging one task -----------------------------------------------------------------------------------------


async def judged(judge: Judge, work: Work, pictures: ImageCache, load: Load | None = None) -> Judgement:
    """The judgement of a task, or the reason why there is none.

    An unexpected exception is the failure of this edit, and the others go on; what ends a run (`EditjudgeError`) is
    raised. Pictures come from `load`, or else from the cache.
    """
    if work.problem:
        status, remark = work.problem
        return work.judgement(status, reasons=(remark,))

    async def prepared(role: str) -> Encoded:
        if judge.limits is None:
            raise ImageError(f"{judge.spec} takes no pictures")
        source = work.edit.picture(role)
        if source is None:
            raise ImageError(f"{work.edit.id} has no {role}")
        if "@" in role:
            region = PicturePart.of(role)
            picture = await pictures.data(source, work.digests[role])
            first = work.edit.input if region.name in MEASURED else None
            before = None if first is None else await pictures.data(first)
            encoded = await asyncio.to_thread(cut_out, region, work.edit, picture, before, judge.limits)
        else:
            encoded = await pictures.encoded(source, judge.limits, work.digests[role])
        if encoded.digest != work.digests[role]:
            raise ImageError(f"the {role} of {work.edit.id} changed while it was being judged")
        return encoded

    try:
        return await judge.judge(work, load or prepared)
    except PartMissing as error:
        return work.judgement("missing_input", reasons=(Remark("missing_input", str(error)),))
    except ImageError as error:
        return work.judgement("bad_image", reasons=(Remark("bad_image", str(error)),))
    except JudgingFailed as failure:
        return work.judgement("error", reasons=(unexpected(failure.error, work.name, judge),), **failure.fields)
    except EditjudgeError:
        raise
    except Exception as error:
        return work.judgement("error", reasons=(unexpected(error, work.name, judge),))


async def keep(put: Callable[[Judgement], Awaitable[None]], judgement: Judgement) -> Judgement:
    """Commit a judgement. One whose content cannot be stored is kept as an `error` that says why, with its cost."""
    try:
        await put(judgement)
    except EditjudgeError:
        raise
    except Exception as error:
        reason = unexpected(error, f"{judgement.judge}, {judgement.rubric}, {judgement.key}")
        empty: dict[str, Any] = {"scores": None, "justifications": None, "abstained": {}, "evidence": {}}
        judgement = dataclasses.replace(
            judgement, status="error", reasons=(reason,), violations=(), notes=(), exchanges=(), **empty
        )
        await put(judgement)
    return judgement


_NOT_OF_ONE_EDIT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE})
"""A full or read-only disk, and no more files to open: the next edit would fare no better."""

_logged: set[tuple[str, str, int]] = set()
"""Where exceptions came from whose traceback is in the log: ten thousand edits with the same one need it once."""


def unexpected(error: Exception, about: str, judge: object = None) -> Remark:
    """The reason for the status `error`, with the exception's name; the traceback is logged.

    Raises `WorldError` if the exception is not of this edit alone. Neither reason nor log holds a key: none that the
    `judge` knows, nor what looks like one.
    """
    if isinstance(error, OSError) and error.errno in _NOT_OF_ONE_EDIT:
        raise WorldError(f"{about}: {type(error).__name__}: {error}") from error
    endpoint: Any = getattr(judge, "endpoint", None)
    name, message = type(error).__name__, cleaned(_redacted(endpoint, _message(error)))
    reason = f"{name}: {message}" if message else name
    origin = traceback.extract_tb(error.__traceback__)[-1:]
    place = (name, origin[0].filename, origin[0].lineno or 0) if origin else (name, "", 0)
    text = f"{about}: {reason}"
    if place not in _logged:
        _logged.add(place)
        text += "\n" + without_keys(_redacted(endpoint, "".join(traceback.format_exception(error))))
    logging.getLogger(__name__).error("%s", text)
    return Remark("unexpected_exception", reason)


def _redacted(endpoint: Any, text: str) -> str:
    return str(endpoint.redacted(text, error=True)) if endpoint else text


def _message(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # an exception of a plug-in may fail even at this
        return ""
