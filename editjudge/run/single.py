"""One edit, judged now, without a store."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from editjudge.edit import IMAGE_ROLES, Edit
from editjudge.errors import EditjudgeError, ImageError
from editjudge.judgement import Judgement
from editjudge.judges.judge import Judge, Work
from editjudge.judges.registry import Options, check_answers, open_judge
from editjudge.judges.unexpected import unexpected
from editjudge.media.cache import DigestCache, Encoded, ImageCache, KnownImage
from editjudge.media.image import name_of
from editjudge.rubrics.contract import Remark
from editjudge.rubrics.model import Rubric
from editjudge.run.pace import Circuit, Pace, Retry
from editjudge.run.plan import QuestionSettings, works


async def judge_edit(edit: Edit, rubrics: Sequence[Rubric], spec: str, options: Options) -> list[Judgement]:
    """A judgement for each rubric, in their order."""
    digests = DigestCache()

    def look(edit: Edit, role: str) -> KnownImage | None:
        source = getattr(edit, role)
        return None if source is None else digests.known(source)

    check_answers([spec], rubrics)
    async with AsyncExitStack() as resources:
        judge = await open_judge(spec, options, _soon, resources)
        if judge.limits is not None:
            _check_paths(edit)
        planned = list(works([edit], QuestionSettings(rubrics), judge, look))
        pictures = ImageCache()
        return [await judged(judge, work, pictures) for work in planned]


def _check_paths(edit: Edit) -> None:
    """Who names one picture by hand and mistypes it does not say that a model produced nothing."""
    for role in IMAGE_ROLES:
        if isinstance(source := getattr(edit, role), Path) and not source.exists():
            raise ImageError(f"{name_of(source)}: no such file, for the {role}")


def _soon(spec: str) -> Pace:
    """Somebody waits for this edit, and there is no manifest that could burn: a judge that is down is unreachable
    after seconds, where a run gives it minutes."""
    return Pace(spec, retry=Retry(tries=5), circuit=Circuit(spec, threshold=sys.maxsize, absence=math.inf))


async def judged(judge: Judge, work: Work, pictures: ImageCache) -> Judgement:
    """What the judge says, or why it cannot be asked.

    The one place for a run, a cluster, a batch and the server: an exception that nobody expected is the failure of
    this edit, and the others go on. What ends a run (`EditjudgeError`) is raised.
    """
    if work.problem:
        status, remark = work.problem
        return work.judgement(status, reasons=(remark,))

    async def load(role: str) -> Encoded:
        source = getattr(work.edit, role)
        if judge.limits is None:
            raise ImageError(f"{judge.spec} takes no pictures")
        encoded = await pictures.encoded(source, judge.limits)
        if encoded.digest != work.digests[role]:
            raise ImageError(f"the {role} of {work.edit.id} changed while it was being judged")
        return encoded

    try:
        return await judge.judge(work, load)
    except ImageError as error:
        return work.judgement("bad_image", reasons=(Remark("bad_image", str(error)),))
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
