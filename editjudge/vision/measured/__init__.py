"""The embedded judge. It scores the factors that can be measured, abstains from the others, and has a worker for each
core.

Requires the extra `measured`. Heavy modules are imported when it measures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

from editjudge.edit import PAIR_ROLES, Edit, ImageSource
from editjudge.judgement import Judgement, Status
from editjudge.judges.judge import Judge, Load, Options, Work
from editjudge.judges.workers import (
    READABLE,
    Measurer,
    WorkerPool,
    cores,
    is_large,
    opened,
)
from editjudge.media.image import EncodedImage, decode
from editjudge.media.source import name_of, read
from editjudge.rubrics.model import Rubric

if TYPE_CHECKING:
    from editjudge.vision.measured.assess import Subject


VERSION = 5
"""Version of the scores. It is increased when the same images would get other scores under the same calibration."""


def open_measured(_: str, __: Options, resources: AsyncExitStack) -> Measured:
    """Open the judge `measured`. It is closed together with `resources`."""
    judge = Measured()
    resources.callback(judge.close)
    return judge


class Measured(Judge):
    """A judge that scores images without a model, so nothing is called or downloaded."""

    spec = "measured"
    limits = READABLE
    further_images = ("input", "mask", "ground_truth")

    def __init__(self, workers: int | None = None) -> None:
        from editjudge.vision.measured.calibration import load

        self._calibration = load()
        self._workers = WorkerPool(
            "editjudge.vision.measured:EditMeasurer", workers or cores()
        )

    def capacity(self, questions: int) -> int:
        """Return the number of concurrent tasks. It is enough for all questions about two edits per worker; questions
        about one edit share a worker."""
        return 2 * self._workers.size * questions

    def close(self) -> None:
        self._workers.close()

    def identity(self, edit: Edit, rubric: Rubric, repeat: int) -> Mapping[str, Any]:
        return {
            "judge": "measured",
            "version": VERSION,
            "calibration": self._calibration.digest,
            "instruction": edit.instruction,
        }

    async def judge(self, work: Work, load: Load) -> Judgement:
        """Pass the question to a worker and return its judgement. Questions about the same edit that arrive at about
        the same time share a measurement."""
        outputs = PAIR_ROLES if work.rubric.pairwise else ("edited",)
        roles = [_roles(work, output) for output in outputs]
        keys = tuple(
            (
                tuple(sorted((name, work.digests[role]) for role, name in names)),
                work.edit.instruction,
            )
            for names in roles
        )

        async def images() -> _Images:
            return {
                key: {name: await load(role) for role, name in names}
                for key, names in zip(keys, roles, strict=True)
            }

        status, fields = await self._workers.ask(
            tuple(sorted(keys)),
            (work.rubric, work.images, work.order, keys),
            images,
            large=is_large(work.sizes),
        )
        return work.judgement(status, **fields)


_Key: TypeAlias = tuple[tuple[tuple[str, str], ...], str]
"""Digests of an output's images, keyed by role, and its instruction."""
_Images: TypeAlias = dict[_Key, dict[str, EncodedImage]]
_Question: TypeAlias = tuple[Rubric, tuple[str, ...], str | None, tuple[_Key, ...]]
"""The rubric, its images and their order, and the keys of the outputs."""


def _roles(work: Work, output: str) -> list[tuple[str, str]]:
    """Return the images that concern an output, keyed by role. The other output of a pair is left out."""
    return [
        (role, "edited" if role == output else role)
        for role in work.digests
        if role == output or role not in PAIR_ROLES
    ]


class EditMeasurer(Measurer):
    """Answers rubrics about an edit inside a worker, and measures each of its outputs only once."""

    def __init__(self) -> None:
        import cv2

        from editjudge.vision.measured import assess, calibration

        cv2.setNumThreads(1)  # workers run in parallel, one for each core
        self._assess = assess
        self._calibration = calibration.load()
        self._subjects: dict[_Key, Subject] = {}

    def take(self, edit: _Images | None) -> None:
        self._subjects = {}
        for key, encoded in (edit or {}).items():
            # An unreadable image makes only the rubrics that show it fail.
            images, broken = opened(encoded)
            self._subjects[key] = self._assess.Subject(images, key[1], broken)

    def answer(self, question: _Question) -> tuple[Status, dict[str, Any]]:
        """Return the status and the other fields of a judgement."""
        rubric, images, order, keys = question
        subjects = [self._subjects[key] for key in keys]
        needed = ("input", "edited") if rubric.pairwise else images
        for subject, output in zip(subjects, PAIR_ROLES, strict=False):
            for role in needed:
                if role in subject.broken:
                    raise subject.broken[role]
                if rubric.pairwise and role not in subject.images:
                    name = output if role == "edited" else role
                    reason = f"the {name} is needed to measure, and is absent"
                    absent = {factor.key: reason for factor in rubric.factors}
                    return "abstained", {"abstained": absent}
        calibration = self._calibration
        if rubric.pairwise:
            a, b = subjects
            verdict = self._assess.compare(rubric, a, b, calibration, order)
        else:
            verdict = self._assess.assess(rubric, subjects[0], calibration)
        evidence = {"version": VERSION, **verdict.evidence}
        fields = {"abstained": verdict.abstained, "evidence": evidence}
        for name in ("scores", "choices"):
            if values := getattr(verdict, name):
                decided = {name: values, "justifications": verdict.justifications}
                return "ok", decided | fields | {"expected": verdict.expected}
        return "abstained", fields


def changed_region(
    before: ImageSource, edited: ImageSource
) -> tuple[int, int, int, int] | None:
    """Return the left, top, right and bottom edge of the visible change, in pixels of the edited image.

    Return None if nothing changed, or if an image is too small to be measured.
    """
    from editjudge.vision.measured.change import changed_box, find_change
    from editjudge.vision.measured.scene import compose, too_small

    first = _pixels(before)
    second = _pixels(edited)
    if too_small(first, second):
        return None
    # In the frame of the edited image.
    box = changed_box(find_change(compose(second, first)))
    if box is None:
        return None
    height, width = second.shape[:2]
    left, top, right, bottom = box
    return (
        int(left * width),
        int(top * height),
        math.ceil(right * width),
        math.ceil(bottom * height),
    )


def evidence_pictures(
    before: ImageSource,
    edited: ImageSource,
    mask: ImageSource | None = None,
    evidence: Mapping[str, Any] | None = None,
) -> dict[str, bytes]:
    """Return PNGs keyed by name: `change` over the edited image, `boundary` of the edit, and `lettering` if text was
    read.

    They are drawn on demand, so a store need not keep them. For the reference rubric, `before` is the ground truth. The
    result is empty if an image is too small to be measured. Raise `ImageError` if an image cannot be read.
    """
    from editjudge.vision.measured.evidence import draw
    from editjudge.vision.measured.measures import measure
    from editjudge.vision.measured.scene import compose, too_small

    images = [
        _pixels(source) for source in (before, edited, mask) if source is not None
    ]
    if too_small(*images):
        return {}
    lines = (evidence or {}).get("lettering", {}).get("edited", ())
    return draw(images[1], measure(compose(*images)), lines)


def _pixels(source: ImageSource) -> Any:
    import numpy as np

    return np.asarray(decode(read(source), name=name_of(source)))
