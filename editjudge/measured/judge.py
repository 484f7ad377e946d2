"""The embedded judge: measures what can be measured, in threads of its own, and abstains from the rest."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from editjudge.edit import PAIR_ROLES, Edit, ImageSource
from editjudge.judgement import Judgement
from editjudge.judges.judge import Load, Work
from editjudge.judges.pixels import READABLE, cores, opened
from editjudge.media.cache import Encoded
from editjudge.media.image import ImageLimits, decode, name_of, read, release_memory
from editjudge.rubrics.model import Rubric

if TYPE_CHECKING:
    from editjudge.measured.assess import Subject

VERSION = 3
"""Raised whenever the same pictures would get another score under the same calibration."""
_KEPT = 6
"""Edits whose measures are kept: the rubrics of one edit are asked one after the other, by a few workers."""
_LARGE = 40_000_000
"""Pixels of one edit's pictures, from which on edits are measured one at a time, and let go when no more questions are
open about them: a pixel takes seven bytes while it is decoded, and three as long as it is kept."""


class Measured:
    """Scores from pictures alone: no model is called, nothing is downloaded."""

    spec = "measured"
    limits: ImageLimits | None = READABLE
    also = ("input", "mask", "ground_truth")
    """Pictures it looks at where the edit has them, whether or not the rubric shows them."""

    def __init__(self, workers: int | None = None) -> None:
        import cv2

        from editjudge.measured.calibration import load

        cv2.setNumThreads(1)  # workers are the parallelism: two of them use two cores
        self._calibration = load()
        self._pool = ThreadPoolExecutor(workers or cores(), "measured")
        self._subjects: OrderedDict[Any, asyncio.Future[Subject]] = OrderedDict()
        self._wanted: Counter[Any] = Counter()
        """Questions that are open about each."""
        self._large = asyncio.Lock()

    def identity(self, edit: Edit, rubric: Rubric, repeat: int) -> Mapping[str, Any]:
        return {
            "judge": "measured",
            "version": VERSION,
            "calibration": self._calibration.digest,
            "instruction": edit.instruction,
        }

    async def judge(self, work: Work, load: Load) -> Judgement:
        if work.rubric.pairwise:
            return await self._compared(work, load)
        key, pixels = _key(work), sum(width * height for width, height in work.sizes.values())
        self._wanted[key] += 1
        try:
            async with self._large if pixels > _LARGE else nullcontext():
                return await self._assessed(work, load)
        finally:
            self._wanted[key] -= 1
            if pixels > _LARGE and not self._wanted[key]:
                self._subjects.pop(key, None)
                self._pool.submit(release_memory)
            self._wanted += Counter()  # without those that nobody asks about any more

    async def _assessed(self, work: Work, load: Load) -> Judgement:
        from editjudge.measured.assess import assess

        loop = asyncio.get_running_loop()
        subject = await self._subject(work, load)
        for role in work.images:
            if role in subject.broken:
                raise subject.broken[role]
        found = await loop.run_in_executor(self._pool, assess, work.rubric, subject, self._calibration)
        said = {"abstained": found.abstained, "evidence": found.evidence}
        if not found.scores:
            return work.judgement("abstained", **said)
        return work.judgement("ok", scores=found.scores, justifications=found.justifications, **said)

    async def _compared(self, work: Work, load: Load) -> Judgement:
        """Which of two outputs has the better scores; the same in both orders, since each is measured alone."""
        from editjudge.measured.preference import compare

        a, b = [await self._subject(work, load, role) for role in PAIR_ROLES]
        for subject, role in zip((a, b), PAIR_ROLES, strict=True):
            for shown in ("input", "edited"):
                if shown in subject.broken:
                    raise subject.broken[shown]
            if not {"input", "edited"} <= subject.pictures.keys():
                absent = role if "input" in subject.pictures else "input"
                reason = f"the {absent} is needed to measure, and is absent"
                return work.judgement("abstained", abstained={f.key: reason for f in work.rubric.factors})
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._pool, compare, work.rubric, a, b, self._calibration)
        kept = {"abstained": found.abstained, "evidence": {"scores": found.scores_by(work.order)}}
        if not found.choices:
            return work.judgement("abstained", **kept)
        return work.judgement("ok", choices=found.choices, justifications=found.justifications, **kept)

    async def _subject(self, work: Work, load: Load, output: str = "edited") -> Subject:
        """The measured pictures, once for all rubrics that ask about the same edit at about the same time."""
        key = _key(work, output)
        if key not in self._subjects:
            self._subjects[key] = asyncio.ensure_future(self._measure(work, load, output))
            while len(self._subjects) > _KEPT:
                self._subjects.popitem(last=False)
        # A caller that is cancelled must not cancel what others wait for.
        return await asyncio.shield(self._subjects[key])

    async def _measure(self, work: Work, load: Load, output: str) -> Subject:
        encoded = {name: await load(role) for role, name in _roles(work, output).items()}
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, _decoded, encoded, work.edit.instruction)


def _roles(work: Work, output: str) -> dict[str, str]:
    """The pictures of one output, and what they are to it: the others of a pair are none of its business."""
    others = {*PAIR_ROLES} - {output} if output in PAIR_ROLES else set()
    return {role: "edited" if role == output else role for role in work.digests if role not in others}


def _key(work: Work, output: str = "edited") -> tuple[Any, ...]:
    pictures = {name: work.digests[role] for role, name in _roles(work, output).items()}
    return tuple(sorted(pictures.items())), work.edit.instruction


def _decoded(encoded: Mapping[str, Encoded], instruction: str) -> Subject:
    """Decodes, and does the part of the measurement that every rubric needs."""
    from editjudge.measured.assess import Subject

    pictures, broken = opened(encoded)  # a broken one counts against the rubrics that show it, and no other
    subject = Subject(pictures, instruction, broken)
    if {"input", "edited"} <= set(pictures) and not subject.tiny:
        _ = subject.online
    return subject


def changed_region(before: ImageSource, edited: ImageSource) -> tuple[int, int, int, int] | None:
    """In pixels of the edited picture: left, top, right and bottom of what visibly changed; None where nothing did, or
    a picture is too small to be measured."""
    import numpy as np

    from editjudge.measured.change import changed_box, find_change
    from editjudge.measured.scene import compose, too_small

    first, second = (np.asarray(decode(read(source), name=name_of(source))) for source in (before, edited))
    box = (
        None if too_small(first, second) else changed_box(find_change(compose(second, first)))
    )  # in the edited's frame
    if box is None:
        return None
    height, width = second.shape[:2]
    left, top, right, bottom = box
    return int(left * width), int(top * height), math.ceil(right * width), math.ceil(bottom * height)


def draw(
    before: ImageSource, edited: ImageSource, mask: ImageSource | None, evidence: Mapping[str, Any]
) -> dict[str, bytes]:
    """The evidence as pictures; none where they are too small to be measured."""
    import numpy as np

    from editjudge.measured.evidence import pictures
    from editjudge.measured.measures import measure
    from editjudge.measured.scene import compose, too_small

    opened = [np.asarray(decode(read(s), name=name_of(s))) for s in (before, edited, mask) if s is not None]
    if too_small(*opened):
        return {}
    return pictures(opened[1], measure(compose(*opened)), evidence.get("lettering", {}).get("edited", ()))
