"""What a run has to do: edits x rubrics x a judge x repeats, each with the key of all that can change its answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from editjudge.edit import Edit
from editjudge.errors import ImageError, UsageError
from editjudge.judgement import Status, Task
from editjudge.judges.judge import Judge, Work
from editjudge.judges.unexpected import unexpected
from editjudge.media.cache import KnownImage
from editjudge.media.image import plan
from editjudge.rubrics.contract import Remark
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.prompt import RENDERING, Layout

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
            which = _roles(edit, rubric, judge), len(rubric.images)
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
        "texts": {role: getattr(edit, role) for role in rubric.texts},
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


def _roles(edit: Edit, rubric: Rubric, judge: Judge) -> tuple[str, ...]:
    """The pictures that can change the answer: those that the rubric shows, and those that the judge looks at too."""
    also = (role for role in getattr(judge, "also", ()) if getattr(edit, role) is not None)
    return tuple(dict.fromkeys((*rubric.images, *also)))


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
            problem = _produced_nothing(edit, look, gone) if role == "edited" else problem or _absent(role, gone)
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


def _produced_nothing(edit: Edit, look: Look, gone: str) -> tuple[Status, Remark]:
    if isinstance(edit.edited, Path) and isinstance(edit.input, Path):
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
    return None
