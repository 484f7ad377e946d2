"""Judges that know what each view of a passport shows, with at most one fault, as a judge of the command line and as
rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import numpy as np

from editjudge.judgement import Judgement
from editjudge.judges.judge import Judge, Load, Options, Work
from editjudge.media.image import ImageLimits
from editjudge.rubrics.files import load
from editjudge.vision.probes import cues
from editjudge.vision.probes.defects import FAMILIES
from editjudge.vision.probes.demo import DemoSource
from editjudge.vision.probes.passport import (
    PAIRWISE,
    PassportAnswers,
    PassportScene,
    PassportSet,
)

Rule = Callable[[str, float], float | None]
"""View and honest score; returns what the judge says."""

_NOT_DONE = {"wrong", "nonsense", "empty", "swapped", "no_op", "noisy_copy"}
_WORST = {"other_output", "blank", "black", "noise"}
_LEVELS = {"clean": 6, "damage1": 5, "damage3": 2}
_DEFECTS = {
    f"{family.name}{dose}": (family.factors[0], dose)
    for family in FAMILIES
    for dose in (1, 2, 3)
}


def honest(view: str, rubric: str, factor: str) -> int:
    if view in _WORST or (view in _NOT_DONE and rubric == "fidelity"):
        return 1
    if view == "other_input" and rubric == "preservation":
        return 1
    if view in _DEFECTS:
        name, dose = _DEFECTS[view]
        return 6 - dose if factor == name else 6
    return 6 if view in _NOT_DONE | {"other_input"} else _LEVELS.get(view, 4)


_JPEG = {"jpg", "webp", *cues.TONES, *(n for c in cues.OVERLAYS for n in (c, f"{c}_sham"))}  # fmt: skip

FAULTS: Mapping[str, Rule] = {
    "honest": lambda _, score: score,
    "saturation": lambda view, score: score + (view == "saturation"),
    "instruction": lambda view, score: (
        6 if view in {"wrong", "nonsense", "empty"} else score
    ),
    "input": lambda view, score: 6 if view == "other_input" else score,
    "score_text": lambda view, score: 7 if view == "score_text" else score,
    "jpeg": lambda view, score: (
        score + random.choice((-3, 3)) if view in _JPEG else score
    ),
    "constant": lambda *_: 5,
    "noisy": lambda _, score: score + random.gauss(0, 1),
    "second": lambda _, score: score,
    "silent": lambda *_: None,
}


def said(fault: str, view: str, rubric: str) -> dict[str, int] | None:
    """The scores of a judge with this fault, or nothing."""
    scores = {}
    for factor in load(rubric).factors:
        score = FAULTS[fault](view, honest(view, rubric, factor.key))
        if score is None:
            return None
        scores[factor.key] = int(np.clip(round(score), 1, 7))
    return scores


def chosen(fault: str, order: str) -> dict[str, str]:
    """Which output the judge names, by the manifest's names: `a` is the clean one."""
    better = "a"
    if fault == "second":
        better = "b" if order == "ab" else "a"
    if fault == "constant":
        better = "tie"
    return dict.fromkeys((f.key for f in load(PAIRWISE).factors), better)


def planted_set(kind: str = "full", photographs: int = 24) -> PassportSet:
    """A set about images that nobody looks at."""
    image = np.full((64, 64, 3), 0.5, np.float32)
    mask = np.ones((64, 64, 1), np.float32)
    scenes = [
        PassportScene.of(DemoSource(f"p{n}", image, f"thing {n}", mask), n)
        for n in range(photographs)
    ]
    rubrics = [load(name) for name in ("preservation", "quality", "fidelity")]
    return PassportSet(kind, scenes, rubrics)


def planted_answers(made: PassportSet, fault: str) -> PassportAnswers:
    random.seed(1)
    return PassportAnswers(made, list(_rows(made, fault)))


def _rows(made: PassportSet, fault: str) -> Iterator[dict[str, Any]]:
    for scene in made.scenes:
        for view, (rubrics, repeats) in made.asked().items():
            item = f"{scene.index}-{scene.source.name}-{view}"
            for rubric in rubrics:
                if rubric == PAIRWISE:
                    for order in ("ab", "ba"):
                        choices = None if fault == "silent" else chosen(fault, order)
                        yield _row(item, rubric, 0, None, choices, order)
                    continue
                for repeat in range(repeats):
                    yield _row(item, rubric, repeat, said(fault, view, rubric))


def _row(
    item: str,
    rubric: str,
    repeat: int,
    scores: dict[str, int] | None,
    choices: dict[str, str] | None = None,
    order: str | None = None,
) -> dict[str, Any]:
    status = "ok" if scores or choices else "refused"
    return {"item": item, "rubric": rubric, "repeat": repeat, "status": status, "scores": scores, "choices": choices,
            "order": order, "cost": 0.001, "server_model": "planted-1", "evidence": {}}  # fmt: skip


class PlantedJudge(Judge):
    """A judge with one fault, which it reads from its name: `planted:saturation`."""

    limits = ImageLimits(base64=False)

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self._fault = spec.partition(":")[2]

    def identity(self, edit: Any, rubric: Any, repeat: int) -> dict[str, object]:
        # Two views may show the same images and the same words.
        return {"judge": self.spec, "view": edit.edit_type}

    async def judge(self, work: Work, load: Load) -> Judgement:
        for role in work.images:
            await load(role)
        view = work.edit.edit_type or ""
        if work.rubric.name == PAIRWISE:
            # The judge says `b` for the output that it was shown second.
            name = "b" if self._fault == "second" else {"ab": "a", "ba": "b"}[work.order or "ab"]  # fmt: skip
            choices = dict.fromkeys((f.key for f in work.rubric.factors), name)
            return work.judgement("ok", choices=choices, justifications=dict.fromkeys(choices, "so"))  # fmt: skip
        scores = said(self._fault, view, work.rubric.name)
        if scores is None:
            return work.judgement("refused")
        return work.judgement("ok", scores=scores, justifications=dict.fromkeys(scores, "so"))  # fmt: skip


def open_planted(spec: str, _: Options, __: AsyncExitStack) -> PlantedJudge:
    return PlantedJudge(spec)
