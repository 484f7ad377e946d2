"""Planning of a run's tasks: edits x rubrics x judges x repeats. Each task has a key, made from everything that affects
its answer.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from editjudge import manifest
from editjudge.canonical import json_hash, text_hash
from editjudge.edit import (
    IMAGE_ROLES,
    OUTPUT_ROLES,
    TEXT_ROLES,
    Edit,
    ImageSource,
    column_of,
)
from editjudge.errors import ImageError, ManifestError, UsageError
from editjudge.judgement import DONE, Judgement, Status, Task
from editjudge.judges.judge import Judge, QuestionProblem, Work
from editjudge.matching import Content
from editjudge.media.cache import DigestCache, ImageReader, KnownImage
from editjudge.media.header import ImageInfo
from editjudge.media.image import plan
from editjudge.media.source import is_url, name_of
from editjudge.orders import ORDERS, read_choice
from editjudge.redaction import redacted_metadata, redacted_text
from editjudge.rubrics.evaluation import applies
from editjudge.rubrics.model import (
    EACH,
    EARLIER,
    STAGE_TEXT,
    Factor,
    Layout,
    Rubric,
)
from editjudge.rubrics.prompt import RENDERING, is_any_exact, layout_of, rewordings
from editjudge.rubrics.sets import earlier_rubrics, is_conditional, stages
from editjudge.rubrics.verdict import UNSCORED, Remark
from editjudge.running.asker import unexpected
from editjudge.running.images import (
    MEASURED,
    REGION_VERSION,
    ImageRegion,
    RegionMissing,
)
from editjudge.store.records import Item
from editjudge.store.sink import Sink

if TYPE_CHECKING:
    from editjudge.store.store import Store

BATCH = 200
"""Number of edits planned at a time, large enough for bulk lookups of keys."""
_FIRST_BATCH = 16
"""Number of edits in the first batch. It is small, so the first requests are sent early."""
_AHEAD = 8
"""Number of edits whose images are read in advance, since the disk may be slow."""
_REMEMBERED = 10_000
"""Number of images whose digests are remembered between batches, about 5 MB. Edits of many models share their
inputs.
"""
MAX_ELEMENTS = 100
"""Maximum number of list elements that a rubric asks about for one edit. A list of thousands would be a costly mistake.
"""

KEY_VERSION = 1

ImageLookup = Callable[[Edit, str], KnownImage | None]
"""Function that returns the digest and size of the edit's image with a given role, or None if the edit has no such
image. It raises `ImageError`, or `ImageMissing` if a named file does not exist.
"""
FindJudgement = Callable[[Work], Judgement | None]
"""Function that returns the stored judgement for a task, or None if it has not been answered yet."""


def _problem(status: Status, message: str, key_text: str = "") -> QuestionProblem:
    return QuestionProblem(status, Remark(status, message), key_text or message)


class ImageMissing(ImageError):
    """Raised when an image file that a manifest names does not exist."""


@dataclass(frozen=True)
class QuestionSettings:
    """Settings that determine the questions about every edit."""

    rubrics: Sequence[Rubric]
    repeats: int = 1
    layout: Layout | None = None
    """Layout of the questions; by default each rubric's own."""
    orders: tuple[str, ...] = ORDERS
    """Orders in which the outputs of a pair are shown."""

    def __post_init__(self) -> None:
        for rubric in self.rubrics:
            layout_of(rubric, self.layout)  # raises if the rubric does not have it
            for factor in rubric.factors if rubric.pairwise else ():
                _check_choices(rubric.name, factor)

    @property
    def is_exact(self) -> bool:
        """Whether a question has the layout `exact`."""
        return is_any_exact(self.rubrics, self.layout)

    @property
    def questions(self) -> int:
        """Number of questions to each judge about one edit, if no rubric has `for_each`."""
        return self.repeats * sum(
            rubric.samples * (len(self.orders) if rubric.pairwise else 1)
            for rubric in self.rubrics
        )

    @functools.cached_property
    def stages(self) -> list[list[Rubric]]:
        """Rubrics, grouped by stage. A rubric that uses another rubric's answer is in a later stage."""
        return stages(self.rubrics)

    def in_stage(self, stage: int | None) -> Sequence[Rubric]:
        """Return the rubrics of one stage, or all rubrics if `stage` is None."""
        return self.rubrics if stage is None else self.stages[stage]

    def named(self, name: str | None) -> Rubric:
        return next(rubric for rubric in self.rubrics if rubric.name == name)

    @functools.cached_property
    def earlier(self) -> Mapping[str, tuple[Rubric, ...]]:
        """Rubrics whose answers each rubric uses, keyed by its name."""
        names = [rubric.name for rubric in self.rubrics]
        return {
            rubric.name: tuple(map(self.named, earlier_rubrics(rubric, names)))
            for rubric in self.rubrics
        }

    @functools.cached_property
    def conditional(self) -> frozenset[str]:
        """Rubrics whose condition depends on earlier answers."""
        names = [rubric.name for rubric in self.rubrics]
        return frozenset(r.name for r in self.rubrics if is_conditional(r, names))


def _check_choices(rubric: str, factor: Factor) -> None:
    listed = ", ".join(factor.scale.choices)
    choices = [read_choice(choice) for choice in factor.scale.choices]
    if not {"a", "b"} <= {*choices} or None in choices:
        raise UsageError(
            f"{rubric}: shows two outputs, and {factor.key} asks for {listed or factor.scale.words}; expected the "
            "choices a and b, and tie if it may be one",
            code="bad_choices",
        )
    if len({*choices}) < len(choices):
        raise UsageError(
            f"{rubric}: two choices of {factor.key} mean the same: {listed}; offer one of them"
        )


def nothing_to_ask(about: str) -> ManifestError:
    """Return the error for a run in which no rubric applies to any edit."""
    return ManifestError(
        f"{about}: nothing was asked: no edit meets the condition `when` of any rubric, or has an element in the list "
        "of its `for_each`; compare the conditions with the columns of the manifest"
    )


def named_inputs(
    rubrics: Iterable[Rubric], columns: manifest.Columns = ()
) -> manifest.NamedInputs:
    """Return the extra manifest columns that rubrics use."""
    rubrics = list(rubrics)
    images = {column_of(name) for rubric in rubrics for name in rubric.images}
    images -= {*IMAGE_ROLES}
    texts = {name for rubric in rubrics for name in rubric.texts if "." not in name}
    texts -= {*TEXT_ROLES, EACH, EARLIER}
    if both := sorted(images & texts):
        raise UsageError(
            f'"{both[0]}" is an image to one rubric and a text to another',
            code="image_and_text",
        )
    return manifest.NamedInputs(frozenset(images), frozenset(texts), columns)


# --- questions about one edit ---------------------------------------------------------------------------------


class EditVariant(NamedTuple):
    """An edit as it is shown in one question: with its outputs in one order, or with one element of its list."""

    name: str
    edit: Edit
    problem: QuestionProblem | None = None


def variants(
    rubric: Rubric, edit: Edit, settings: QuestionSettings
) -> list[EditVariant]:
    """Return the variants of an edit that a rubric asks about. The list is empty if the rubric, or one whose answers it
    uses, does not apply to the edit. A condition on earlier answers is decided later.
    """
    is_conditional = rubric.name in settings.conditional
    if rubric.when and not is_conditional and not applies(rubric.when, edit):
        return []
    if not all(variants(e, edit, settings) for e in settings.earlier[rubric.name]):
        return []
    if rubric.pairwise:
        swapped = edit.with_outputs_swapped()
        return [
            EditVariant(order, swapped if order == "ba" else edit)
            for order in settings.orders
        ]
    if not rubric.for_each:
        return [EditVariant("", edit)]
    elements = edit.listed(rubric.for_each)
    if elements is None or len(elements) > MAX_ELEMENTS:
        fault = "has no such list"
        if elements is not None:
            fault = f"has {len(elements):,} elements, at most {MAX_ELEMENTS}"
        message = f'the rubric is asked for each element of "{rubric.for_each}", and the edit {fault}'
        return [EditVariant("", edit, _problem("missing_input", message))]
    return [
        EditVariant(str(number), _with_metadata(edit, EACH, element))
        for number, element in enumerate(elements)
    ]


def _with_metadata(edit: Edit, name: str, value: object) -> Edit:
    return dataclasses.replace(edit, metadata={**edit.metadata, name: value})


_STAGE = 1 << 40
"""Number of task positions reserved for one stage. Tasks of later stages come after them, however many there are."""


class PlacedEdit(NamedTuple):
    """An edit with its position in the run and the positions of its tasks."""

    position: int
    edit: Edit
    tasks: Mapping[tuple[str, int, str], int]
    """Position of each task in all stages, keyed by rubric, repeat and variant."""


def placed(
    edits: Iterable[Edit],
    settings: QuestionSettings,
    part: Callable[[Edit], bool] = lambda _: True,
) -> Iterator[PlacedEdit]:
    """Yield the edits in `part` with their positions in the whole run. Several processes thus store the same positions
    as a single process would.
    """
    following = [stage * _STAGE for stage in range(len(settings.stages))]
    for position, edit in enumerate(edits):
        tasks: dict[tuple[str, int, str], int] = {}
        for stage, rubrics in enumerate(settings.stages):
            for rubric in rubrics:
                for variant in variants(rubric, edit, settings):
                    for repeat in range(settings.repeats * rubric.samples):
                        tasks[rubric.name, repeat, variant.name] = following[stage]
                        following[stage] += 1
        if part(edit):
            yield PlacedEdit(position, edit, tasks)


def works(
    edits: Iterable[Edit],
    settings: QuestionSettings,
    judge: Judge,
    look: ImageLookup,
    answers: FindJudgement = lambda _: None,
    stage: int | None = None,
) -> Iterator[Work]:
    """Yield all work for one judge, edit by edit. Tasks that share images thus stay together.

    `answers` finds the answers from earlier stages. `stage` limits the work to one stage.
    """
    for edit in edits:
        yield from EditQuestions(edit, settings, judge, look, answers).works(stage)


class EditQuestions:
    """The questions to one judge about one edit."""

    def __init__(
        self,
        edit: Edit,
        settings: QuestionSettings,
        judge: Judge,
        look: ImageLookup,
        answers: FindJudgement = lambda _: None,
    ) -> None:
        self._settings = settings
        self._judge = judge
        self._look = look
        self._answers = answers
        self._variants = {
            rubric.name: variants(rubric, edit, settings) for rubric in settings.rubrics
        }
        self._images: dict[tuple[tuple[str, ...], int, str], _QuestionImages] = {}
        """Images, keyed by roles, the number of roles that the rubric shows, and the variant (if it changes them)."""
        self._earlier: dict[str, list[Work]] = {}
        """Work of rubrics after which other rubrics are asked, keyed by rubric name."""
        self.not_asked: set[tuple[str, int, str]] = set()
        """Tasks that earlier answers ruled out, as rubric, repeat and variant."""

    def works(self, stage: int | None = None) -> list[Work]:
        rubrics = self._settings.in_stage(stage)
        return [work for rubric in rubrics for work in self._plan_rubric(rubric)]

    def not_applicable(self, stage: int | None = None) -> int:
        """Return the number of rubrics that do not apply to this edit."""
        rubrics = self._settings.in_stage(stage)
        return sum(not self._variants[rubric.name] for rubric in rubrics)

    def _plan_rubric(self, rubric: Rubric) -> list[Work]:
        repeats = range(self._settings.repeats * rubric.samples)
        works: list[Work] = []
        for variant in self._variants[rubric.name]:
            images = self._images_of(variant, rubric)
            if not self._settings.earlier[rubric.name]:
                works += self._plan_variant(variant, rubric, images, repeats)
                continue
            for repeat in repeats:
                informed = self._with_earlier_answers(rubric, variant, repeat)
                if informed:
                    works += self._plan_variant(informed, rubric, images, [repeat])
        return works

    def _images_of(self, variant: EditVariant, rubric: Rubric) -> _QuestionImages:
        edit = variant.edit
        roles = rubric.images
        needed = len(roles)
        # Otherwise, as usual, the edit has no lists of images, and only the rubric's images are used.
        if edit.images or self._judge.further_images or rubric.optional:
            names = [*rubric.image_names(edit)]
            needed = len({*names})
            further = self._judge.further_images
            names += [role for role in further if edit.image(role) is not None]
            roles = tuple(dict.fromkeys(names))
        differs = variant.name == "ba"
        if rubric.for_each:
            # Boxes belong to the element that this question is about.
            differs = any("@" in role for role in roles)
        key = (roles, needed, variant.name if differs else "")
        if key not in self._images:
            self._images[key] = _QuestionImages(
                edit, roles, needed, self._judge, self._look
            )
        return self._images[key]

    def _plan_variant(
        self,
        variant: EditVariant,
        rubric: Rubric,
        images: _QuestionImages,
        repeats: Iterable[int],
    ) -> list[Work]:
        edit = variant.edit
        judge = self._judge
        layout = self._settings.layout
        problem = variant.problem or images.problem
        if judge.limits is not None:
            problem = problem or self._missing_text(edit, rubric)
        question = key_of_question(
            rubric,
            layout,
            {name: edit.text(name) for name in rubric.texts},
            {r: (images.digests.get(r), images.recipes.get(r)) for r in images.roles},
        )
        # B|A with B shown first looks like A|B with A shown second, but names the outputs differently.
        if rubric.pairwise:
            question["order"] = variant.name
        # An image that cannot be read has no digest, and would look like a missing image.
        if problem:
            question["problem"] = [problem.status, problem.key_text]
        # If no image is looked at, elements of a list may differ only in their boxes.
        if rubric.for_each and judge.limits is None:
            question["variant"] = variant.name
        works = []
        for repeat in repeats:
            identity = judge.identity(edit, rubric, repeat)
            key = json_hash([question, identity, repeat], "compact")
            task = Task(edit.id, rubric.name, judge.spec, repeat, key, variant.name)
            works.append(
                Work(
                    task,
                    edit,
                    rubric,
                    images.digests,
                    images.recipes,
                    images.sizes,
                    layout,
                    problem,
                )
            )
        return works

    def _missing_text(self, edit: Edit, rubric: Rubric) -> QuestionProblem | None:
        # A text from an earlier answer may be empty: a list of differences, if there are none.
        stages = {stage.name for stage in self._settings.earlier[rubric.name]}
        for name in rubric.texts:
            if name in rubric.optional:
                continue
            if name == "instruction" and not edit.instruction.strip():
                return _problem(
                    "missing_input",
                    "the rubric needs an instruction, and it is empty",
                )
            is_own = name not in TEXT_ROLES and name.partition(".")[0] not in stages
            if is_own and not edit.text(name).strip():
                return _problem(
                    "missing_input",
                    f'the rubric needs the text "{name}", and it is empty',
                )
        return None

    def _with_earlier_answers(
        self, rubric: Rubric, variant: EditVariant, repeat: int
    ) -> EditVariant | None:
        """Return the variant with the answers to earlier questions added. Return None if they are not available yet, or
        if they rule out the question.
        """
        told: list[str] = []
        values: dict[str, object] = {}
        problem: QuestionProblem | None = None
        is_assumed = False
        for earlier in self._settings.earlier[rubric.name]:
            works = self._earlier_works(earlier, rubric, variant, repeat)
            answers = [(work, self._answers(work)) for work in works]
            if not works:
                self.not_asked.add((rubric.name, repeat, variant.name))
            if not works or any(judgement is None for _, judgement in answers):
                return None
            of_stage = []
            for work, judgement in answers:
                assert judgement is not None  # noqa: S101  (checked above)
                problem = problem or _failure_of(earlier, judgement)
                is_assumed = is_assumed or judgement.key == ASSUMED
                if earlier.name in rubric.told:
                    told += _answer_lines(earlier, judgement)
                if not rubric.pairwise or work.task.variant == variant.name:
                    of_stage.append(_answer_values(earlier, judgement))
            values[earlier.name] = of_stage[0] if len(of_stage) == 1 else of_stage
        if problem:
            return variant._replace(problem=variant.problem or problem)
        metadata = {**variant.edit.metadata, **values}
        if told:
            metadata[EARLIER] = "\n".join(told)
        edit = dataclasses.replace(variant.edit, metadata=metadata)
        is_decided = rubric.name in self._settings.conditional and not is_assumed
        if is_decided and not applies(rubric.when, edit):
            self.not_asked.add((rubric.name, repeat, variant.name))
            return None
        return variant._replace(edit=edit)

    def _earlier_works(
        self, earlier: Rubric, rubric: Rubric, variant: EditVariant, repeat: int
    ) -> list[Work]:
        """Return the earlier questions whose answers a question uses: those of the same repeat of the run, and of the
        same list element if both rubrics have the list. If a rubric has more samples than the earlier one, the earlier
        samples are used in turn.
        """
        if earlier.name not in self._earlier:
            self._earlier[earlier.name] = self._plan_rubric(earlier)
        run_repeat, sample = divmod(repeat, rubric.samples)
        earlier_repeat = run_repeat * earlier.samples + sample % earlier.samples
        same_list = bool(rubric.for_each) and rubric.for_each == earlier.for_each
        return [
            work
            for work in self._earlier[earlier.name]
            if work.task.repeat == earlier_repeat
            and not (same_list and work.task.variant not in ("", variant.name))
        ]


ASSUMED = ""
"""Key of a judgement that a forecast made up. It decides no condition, so that a forecast counts every question."""


def _failure_of(earlier: Rubric, judgement: Judgement) -> QuestionProblem | None:
    """Return the reason why a question cannot be asked after this answer, or None if it can."""
    if judgement.status in DONE:
        return None
    reasons = [reason.message for reason in judgement.reasons]
    message = (
        f'"{earlier.name}", which this question is asked after, is {judgement.status}: '
    )
    message += (reasons or ["no reason is known"])[0]
    return _problem("missing_input", message)


def key_of_question(
    rubric: Rubric,
    layout: Layout | None,
    texts: Mapping[str, str],
    images: Mapping[str, tuple[str | None, str | None]],
) -> dict[str, object]:
    """Return the part of a task's key that describes its question. Answers are stored under the hash of this JSON, so
    no byte of it may change. `images` maps each role to its digest and recipe, or to None and None if the image is
    missing.
    """
    return {
        "version": KEY_VERSION,
        "rendering": RENDERING + rewordings(rubric),
        "rubric": rubric.hash,
        "layout": layout_of(rubric, layout),
        "texts": texts,
        "images": images,
    }


def _answer_values(rubric: Rubric, judgement: Judgement) -> dict[str, object]:
    """Return the values of an answer by name, for the conditions and texts of later rubrics."""
    unscored = judgement.evidence.get(UNSCORED, {})
    values: dict[str, object] = {
        name: _as_text(value) for name, value in unscored.items()
    }
    if rubric.answer.texts:
        # The first text is stored as the reason of the factors.
        reasons = judgement.justifications or {}
        values.setdefault(rubric.answer.texts[0], next(iter(reasons.values()), ""))
    values |= judgement.choices or {}
    values |= judgement.scores or {}
    return values


def _as_text(value: object) -> str:
    """Return a value of an answer as text. A list of texts has a line for each."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "".join(f"\n- {item}" for item in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _answer_lines(rubric: Rubric, judgement: Judgement) -> Iterator[str]:
    for name, value in judgement.evidence.get(UNSCORED, {}).items():
        text = _as_text(value) or "none"
        yield text if name == STAGE_TEXT else f"{name}: {text}"
    answers = {**(judgement.choices or {}), **(judgement.scores or {})}
    justifications = judgement.justifications or {}
    for factor in rubric.factors:
        reason = justifications.get(factor.key) or judgement.abstained.get(factor.key)
        line = f"{factor.title or factor.key}: {answers.get(factor.key, 'no answer')}"
        yield f"{line} ({reason})" if reason else line


# --- images of a question -------------------------------------------------------------------------------------


class _QuestionImages:
    """Images of an edit that several questions share, keyed by role. The rubric shows the first `needed` of them. The
    others are used only by the judge.
    """

    def __init__(
        self,
        edit: Edit,
        roles: tuple[str, ...],
        needed: int,
        judge: Judge,
        look: ImageLookup,
    ) -> None:
        self.roles = roles
        self.digests: dict[str, str] = {}
        self.recipes: dict[str, str] = {}
        self.sizes: dict[str, tuple[int, int]] = {}
        self.problem: QuestionProblem | None = None
        self._edit = edit
        self._look = look
        if judge.limits is None:
            # Recorded replies need no images, but a reply about a pair says nothing about a single edit.
            for role in filter(_is_output, roles[:needed]):
                if self._other_outputs(role):
                    self._note(self._missing_output(role))
            return
        images = self._find(roles[:needed])
        # Images that the rubric does not show are ignored if they are broken.
        problem = self.problem
        further = self._find(roles[needed:])
        self.problem = problem
        images |= {role: image for role, image in further.items() if image.info}
        for role, image in images.items():
            self.digests[role] = image.digest
            info = image.info
            if info is None:
                continue
            region = ""
            if "@" in role:
                info, region = self._cut(role, info)
            self.recipes[role] = region + plan(info, judge.limits)
            self.sizes[role] = info.display_size

    def _find(self, roles: Iterable[str]) -> dict[str, KnownImage]:
        """Look up images and return them, keyed by role. Record the first problem, or a missing output."""
        images: dict[str, KnownImage] = {}
        for role in roles:
            missing = ""
            try:
                image = self._look(self._edit, role)
            except ImageMissing as error:
                image = None
                missing = str(error)
            except ImageError as error:
                self._note(_problem("bad_image", str(error)))
                continue
            except Exception as error:  # of this image alone
                about = f"the {role} of {self._edit.id}"
                remark = unexpected(error, about)
                self._note(QuestionProblem("error", remark, remark.message))
                continue
            if image is None:
                self._note_missing(role, missing)
                continue
            images[role] = image
            if image.info is None:
                self._note(_problem("bad_image", image.problem))
        return images

    def _note(self, problem: QuestionProblem) -> None:
        self.problem = self.problem or problem

    def _note_missing(self, role: str, reason: str) -> None:
        """Record a missing image. `reason` names its file; it is empty if the edit names none.

        A missing output overrides other problems, unless the input file is missing as well.
        """
        if not _is_output(role):
            message = (
                f"the rubric needs the image {role!r}, which the edit does not have"
            )
            key_text = f"the {role} is to be looked at, and there is none"
            problem = _problem("missing_input", reason or message, reason or key_text)
            self._note(problem)
            return
        self.problem = self._missing_output(role, reason)
        edit = self._edit
        if isinstance(edit.image(role), Path) and isinstance(edit.input, Path):
            # Other faults of the input are recorded when the input itself is looked up.
            with suppress(Exception):
                gone = ""
                try:
                    if self._look(edit, "input") is None:
                        gone = "the input is not there"
                except ImageMissing as error:
                    gone = str(error)
                if gone:
                    self.problem = _problem(
                        "missing_input",
                        f"{gone}, and neither is the edited image",
                        key_text=f"{gone}, nor is the edited",
                    )

    def _missing_output(self, role: str, reason: str = "") -> QuestionProblem:
        message = "the editing model produced no image"
        if others := self._other_outputs(role):
            message = (
                f"the rubric shows {role}, and the edit has {' and '.join(others)}: rubrics of pairs need pairs "
                "(`editjudge pairs`), the others single edits"
            )
        key_text = reason or "the editing model produced no picture"
        return _problem("missing_output", reason or message, key_text)

    def _other_outputs(self, role: str) -> list[str]:
        """Return the outputs that the edit has instead of this one: both outputs of a pair, or the output of a single
        edit.
        """
        edit = self._edit
        if edit.image(role) is not None or role.partition("@")[0] in edit.outputs:
            return []
        return [name for name in edit.outputs if edit.image(name) is not None]

    def _cut(self, role: str, info: ImageInfo) -> tuple[ImageInfo, str]:
        """Return the header of the region that is shown in place of an image, and a description of the region."""
        region = ImageRegion.of(role)
        if region.name in MEASURED:
            before = self._find(["input"]).get("input")
            against = f"{region.name} {REGION_VERSION} against "
            return info, f"{against}{before.digest[:16]}, " if before else ""
        try:
            left, top, right, bottom = region.box(self._edit, *info.display_size)
        except RegionMissing as error:
            self._note(_problem("missing_input", str(error)))
            return info, ""
        width = right - left
        height = bottom - top
        cropped = ImageInfo("png", width, height, 3 * width * height)
        return cropped, f"crop {left},{top},{right},{bottom}, "


def _is_output(role: str) -> bool:
    return role.partition("@")[0] in OUTPUT_ROLES


def look_at(digests: DigestCache, edit: Edit, role: str) -> KnownImage | None:
    """Return the digest and size of an edit's image, or None if the edit has no such image. Raise `ImageMissing` if the
    file does not exist. The error names the file as the manifest does.
    """
    source = edit.image(role)
    image = None if source is None else digests.look_up(source)
    if image is None and isinstance(source, Path):
        root = digests.reader.root
        name = name_of(Path(os.path.relpath(source, root)) if root else source)
        raise ImageMissing(f"{name} is not there")
    return image


def _memoised_lookup(digests: DigestCache) -> ImageLookup:
    """Return a version of `look_at` that looks up each file once, even if several edits share it."""
    seen: dict[str, KnownImage] = {}

    def look(edit: Edit, role: str) -> KnownImage | None:
        source = edit.image(role)
        path = str(source) if isinstance(source, Path) else ""
        if path in seen:
            return seen[path]
        image = look_at(digests, edit, role)
        if path and image:
            seen[path] = image
        return image

    return look


def readable_images(
    edit: Edit, digests: DigestCache, skip: Iterable[str] = ()
) -> dict[str, KnownImage]:
    """Return all readable images, including those that no rubric shows, since ratings and other runs identify an edit
    by its images. Images at URLs are left out, since they are fetched only for a judge.
    """
    images: dict[str, KnownImage] = {}
    for role, source in edit.all_images().items():
        if role not in skip and not is_url(source):
            # An image that cannot be read is identified by its path.
            with suppress(Exception):
                if image := digests.look_up(source):
                    images[role] = image
    return images


def digests_of(
    edit: Edit, digests: DigestCache, looked_up: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the digests of an edit's images, keyed by role. `looked_up` contains digests that are already known."""
    by_role = dict(looked_up or {})
    further = readable_images(edit, digests, [*by_role])
    return by_role | {role: image.digest for role, image in further.items()}


def contents_of_manifest(path: Path, columns: manifest.Columns = ()) -> dict[str, str]:
    """Map the ids of a manifest's edits to their content keys."""
    digests = DigestCache()
    named = manifest.NamedInputs(columns=columns)
    edits = manifest.read(
        path.absolute(), allow_outside=True, allow_urls=True, named=named
    )
    return {
        edit.id: Content.of(item_of(edit, digests_of(edit, digests))).key()
        for edit in edits
    }


# --- a run in its store -----------------------------------------------------------------------------------------


def item_of(
    edit: Edit,
    digests: Mapping[str, str],
    *,
    name: str | None = None,
    places: Mapping[str, str] | None = None,
) -> Item:
    """Return an edit in the form that a store keeps. Its name is `name` or, by default, its id.

    `places` maps each role to the location where its image is kept, if that differs from its source. Edits with the
    same input form a group. If the input has not been read, it is identified by its path. Passwords and signatures in
    URLs are removed.
    """
    name = name or edit.id
    group = redacted_text(edit.group or "") or digests.get("input")
    if places is None:
        places = {role: place_of(source) for role, source in edit.all_images().items()}
        if not group and "input" in places:
            group = text_hash(places["input"])
    return Item(
        name,
        edit.model,
        edit.edit_type,
        group or name,
        edit.instruction,
        edit.referring_expression,
        {
            role: {"source": source, "digest": digests.get(role)}
            for role, source in places.items()
        },
        redacted_metadata(edit.metadata),
    )


def place_of(source: ImageSource) -> str:
    """Return the location of an image for the store. Paths are made absolute, since the store may be read from another
    folder.
    """
    return name_of(source.absolute() if isinstance(source, Path) else source)


_OUTLINED = 1_000
"""Number of edits in one transaction when a run begins."""


def add_outline(
    store: Store,
    run_id: int,
    judges: Sequence[str],
    edits: Iterable[PlacedEdit],
    *,
    resumed: bool,
) -> int:
    """Store all edits and tasks of a run before any of them is planned, and return the number of tasks. If the run is
    stopped at any time, tasks without a judgement then count as pending.

    No image file is read, so each task gets a provisional key, which has no answer. Planning replaces it. If the run is
    resumed, tasks of these edits that are no longer needed are removed from the run.
    """
    expected = 0
    edits = iter(edits)
    while True:
        items: list[tuple[int, Item]] = []
        tasks: list[tuple[int, Task]] = []
        for position, edit, places in itertools.islice(edits, _OUTLINED):
            items.append((position, _outlined(edit)))
            for (rubric, repeat, variant), at in places.items():
                for judge in judges:
                    named = (edit.id, rubric, judge, repeat)
                    key = json_hash(["not planned", *named, variant], "compact")
                    tasks.append((at, Task(*named, key, variant)))
        if not items:
            return expected
        store.add_outline(run_id, items, tasks, judges, resumed=resumed)
        expected += len(tasks)


def _outlined(edit: Edit) -> Item:
    """Return an edit in the form that a store keeps before its files are read. Inline images have no path, so they are
    identified by their content.
    """
    digests: dict[str, str] = {}
    for role, source in edit.all_images().items():
        if isinstance(source, bytes) or str(source).startswith("data:"):
            # An image that cannot be read is reported when a question about it is planned.
            with suppress(Exception):
                digests[role] = DigestCache().of(source) or ""
    return item_of(edit, digests)


class PlannedBatch(NamedTuple):
    """Work on several edits, and the statuses of tasks that are known to be done, keyed by task key."""

    works: list[Work]
    done: Mapping[str, str]


class Planner:
    """Plans the tasks of one run in one store."""

    def __init__(
        self,
        store: Sink,
        run_id: int,
        settings: QuestionSettings,
        reader: ImageReader | None = None,
        *,
        rehash: bool = False,
        outlining: bool = False,
        part: Callable[[Edit], bool] = lambda _: True,
        places: Mapping[str, PlacedEdit] | None = None,
    ) -> None:
        """Create a planner. With `outlining`, the edits are a stream, and the edits and tasks of each batch are stored
        as soon as it is read. `part` says whether this process plans an edit. `places` has the positions of edits that
        are planned in several rounds, keyed by id.
        """
        self.reader = reader or ImageReader()
        self.settings = settings
        self.planned = 0
        """Number of tasks planned so far, for all judges."""
        self.not_applicable = 0
        """Number of questions that do not apply to their edit."""
        self.ruled_out = 0
        """Number of tasks that earlier answers ruled out."""
        self._ruled_out: list[Task] = []
        self._store = store
        self._run = run_id
        self._rehash = rehash
        self._outlining = outlining
        self._part = part
        self._places = places

    def batches(
        self, judge: Judge, edits: Iterator[Edit], stage: int = 0
    ) -> Iterator[PlannedBatch]:
        """Yield the work for a judge in one stage, in batches of edits whose items and tasks are already stored.

        A batch ends early when its images fill three eighths of the reader's memory, so they are still in memory when
        they are encoded. Two batches exist at a time, and each may exceed its limit by one edit. Call this in a thread,
        since reading and hashing images must not delay answers.
        """
        digests = DigestCache(self.reader, rehash=self._rehash)
        sizes = itertools.chain((_FIRST_BATCH,), itertools.repeat(BATCH))
        waiting = (
            placed(edits, self.settings, self._part)
            if self._places is None
            else (self._places[edit.id] for edit in edits)
        )
        while batch := list(itertools.islice(waiting, next(sizes))):
            if self._outlining and stage == 0:
                store = cast("Store", self._store)
                add_outline(store, self._run, [judge.spec], batch, resumed=True)
            if len(digests) > _REMEMBERED:
                digests = DigestCache(self.reader, rehash=self._rehash)
            if unknown := digests.unknown(
                source for each in batch for source in each.edit.all_images().values()
            ):
                digests.load(self._store.load_digests(sorted(unknown)))
            while batch:
                count, planned = self._plan(judge, batch, digests, stage)
                done = self._keep(batch[:count], planned, digests)
                batch = batch[count:]
                yield PlannedBatch(planned, done)

    def _keep(
        self,
        edits: Sequence[PlacedEdit],
        planned: Sequence[Work],
        digests: DigestCache,
    ) -> dict[str, str]:
        """Store edits and tasks at their positions, and return the statuses of tasks that are known to be done."""
        by_role: dict[str, dict[str, str]] = {each.edit.id: {} for each in edits}
        positions = {each.edit.id: each.tasks for each in edits}
        latest: Mapping[str, str] | None = None
        tasks = []
        for work in planned:
            task = work.task
            at = positions[task.item][task.rubric, task.repeat, task.variant]
            tasks.append((at, task))
            # Tasks of one edit mostly share their images.
            if work.digests is not latest or work.order:
                by_role[task.item].update(work.by_own_name(work.digests))
                latest = work.digests
        items = []
        for position, edit, _ in edits:
            item = item_of(edit, digests_of(edit, digests, by_role[edit.id]))
            items.append((position, item))
        self.planned += len(tasks)
        if self._ruled_out:
            cast("Store", self._store).drop_tasks(self._run, self._ruled_out)
            self.ruled_out += len(self._ruled_out)
            self.not_applicable += len(self._ruled_out)
            self._ruled_out = []
        statuses = self._store.add_batch(self._run, items, tasks, digests.dump())
        return {key: status for key, status in statuses.items() if status in DONE}

    def _plan(
        self,
        judge: Judge,
        edits: Sequence[PlacedEdit],
        digests: DigestCache,
        stage: int,
    ) -> tuple[int, list[Work]]:
        """Plan edits until their images fill a batch's share of the memory. Return the number of planned edits and the
        work on them.
        """
        look = _memoised_lookup(digests)
        planned: list[Work] = []
        before = digests.bytes_asked
        for count, (_, edit, _) in enumerate(edits, 1):
            # Those between were looked at in the turns before.
            first_ahead = 0 if count == 1 else count + _AHEAD - 1
            digests.look_ahead(
                source
                for later in edits[first_ahead : count + _AHEAD]
                for source in later.edit.all_images().values()
            )
            questions = EditQuestions(edit, self.settings, judge, look, self._answer)
            planned += questions.works(stage)
            self.not_applicable += questions.not_applicable(stage)
            self._ruled_out += [
                Task(edit.id, rubric, judge.spec, repeat, "", variant)
                for rubric, repeat, variant in questions.not_asked
            ]
            if digests.bytes_asked - before > 3 * self.reader.budget // 8:
                return count, planned
        return len(edits), planned

    def _answer(self, work: Work) -> Judgement | None:
        return self._store.judgement(work.task.key)
