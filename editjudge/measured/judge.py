"""The embedded judge: measures what can be measured, with one worker a core, and abstains from the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from editjudge.edit import PAIR_ROLES, Edit, ImageSource
from editjudge.judgement import Judgement, Status
from editjudge.judges.judge import Load, Work
from editjudge.judges.pixels import READABLE, cores, is_large, opened
from editjudge.measured.workers import WorkerPool
from editjudge.media.cache import Encoded
from editjudge.media.image import ImageLimits, decode, name_of, read
from editjudge.rubrics.model import Rubric

if TYPE_CHECKING:
    from editjudge.measured.assess import Subject

VERSION = 3
"""Raised whenever the same pictures would get another score under the same calibration."""


class Measured:
    """Scores from pictures alone: no model is called, nothing is downloaded."""

    spec = "measured"
    limits: ImageLimits | None = READABLE
    also = ("input", "mask", "ground_truth")
    """Pictures it looks at where the edit has them, whether or not the rubric shows them."""

    def __init__(self, workers: int | None = None) -> None:
        from editjudge.measured.calibration import load

        self._calibration = load()
        self._workers = WorkerPool("editjudge.measured.judge:EditMeasurer", workers or cores())
        self.edits_at_once = 2 * self._workers.size

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
        """The rubrics that ask about the same edit at about the same time share one measurement."""
        roles = PAIR_ROLES if work.rubric.pairwise else ("edited",)
        keys = tuple(_key(work, output) for output in roles)

        async def pictures() -> _Pictures:
            return {
                key: ({name: await load(role) for role, name in _roles(work, output).items()}, work.edit.instruction)
                for key, output in zip(keys, roles, strict=True)
            }

        question = (work.rubric, work.images, work.order, keys)
        status, fields = await self._workers.ask(tuple(sorted(keys)), question, pictures, large=is_large(work.sizes))
        return work.judgement(status, **fields)


_Key: TypeAlias = tuple[Any, ...]
_Pictures: TypeAlias = dict[_Key, tuple[dict[str, Encoded], str]]
"""Of each output: its pictures by what they are to it, and the instruction."""
_Answer: TypeAlias = tuple[Status, dict[str, Any]]
"""Status and further fields of a judgement."""


def _roles(work: Work, output: str) -> dict[str, str]:
    """The pictures of one output, and what they are to it: the other output of a pair is not among them."""
    others = {*PAIR_ROLES} - {output} if output in PAIR_ROLES else set()
    return {role: "edited" if role == output else role for role in work.digests if role not in others}


def _key(work: Work, output: str) -> _Key:
    pictures = {name: work.digests[role] for role, name in _roles(work, output).items()}
    return tuple(sorted(pictures.items())), work.edit.instruction


class EditMeasurer:
    """What a worker does: measures the outputs of one edit once, and answers rubrics about them."""

    def __init__(self) -> None:
        import cv2

        from editjudge.measured import assess, calibration, preference

        cv2.setNumThreads(1)  # workers are the parallelism: two of them use two cores
        self._assess, self._compare, self._calibration = assess.assess, preference.compare, calibration.load()
        self._subject = assess.Subject
        self._subjects: dict[_Key, Subject] = {}

    def take(self, edit: _Pictures | None) -> None:
        self._subjects = {}
        for key, (encoded, instruction) in (edit or {}).items():
            pictures, broken = opened(encoded)  # a broken one counts against the rubrics that show it, and no other
            self._subjects[key] = self._subject(pictures, instruction, broken)

    def answer(self, question: tuple[Rubric, tuple[str, ...], str | None, tuple[_Key, ...]]) -> _Answer:
        rubric, images, order, keys = question
        subjects = [self._subjects[key] for key in keys]
        if rubric.pairwise:
            return self._compared(rubric, order, *subjects)
        (subject,) = subjects
        for role in images:
            if role in subject.broken:
                raise subject.broken[role]
        verdict = self._assess(rubric, subject, self._calibration)
        fields = {"abstained": verdict.abstained, "evidence": verdict.evidence}
        if not verdict.scores:
            return "abstained", fields
        return "ok", {"scores": verdict.scores, "justifications": verdict.justifications, **fields}

    def _compared(self, rubric: Rubric, order: str | None, a: Subject, b: Subject) -> _Answer:
        """Which of two outputs has the better scores; the same in both orders, since each is measured alone."""
        for subject, output in zip((a, b), PAIR_ROLES, strict=True):
            for role in ("input", "edited"):
                if role in subject.broken:
                    raise subject.broken[role]
                if role not in subject.pictures:
                    reason = f"the {output if role == 'edited' else role} is needed to measure, and is absent"
                    return "abstained", {"abstained": {factor.key: reason for factor in rubric.factors}}
        comparison = self._compare(rubric, a, b, self._calibration)
        fields = {"abstained": comparison.abstained, "evidence": {"scores": comparison.scores_by(order)}}
        if not comparison.choices:
            return "abstained", fields
        return "ok", {"choices": comparison.choices, "justifications": comparison.justifications, **fields}


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
