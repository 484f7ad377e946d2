"""The tasks of a run: edits x rubrics x a judge x repeats, each with the key of all that can change its answer."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from editjudge import manifest
from editjudge.canonical import json_hash, text_hash
from editjudge.edit import OUTPUT_ROLES, TEXT_ROLES, Edit, ImageSource
from editjudge.errors import ImageError, ManifestError, UsageError
from editjudge.judgement import DONE, Judgement, Status, Task
from editjudge.judges.judge import Judge, Work
from editjudge.matching import Content
from editjudge.media.cache import DigestCache, ImageReader, KnownImage
from editjudge.media.header import ImageInfo
from editjudge.media.image import plan
from editjudge.media.source import is_url, name_of
from editjudge.orders import ORDERS, read_choice
from editjudge.redaction import redacted_metadata, redacted_text
from editjudge.rubrics.evaluation import applies
from editjudge.rubrics.model import EACH, EARLIER, Rubric
from editjudge.rubrics.prompt import RENDERING, Layout, layout_of, rewordings
from editjudge.rubrics.sets import stages
from editjudge.rubrics.verdict import Remark
from editjudge.running.asker import unexpected
from editjudge.running.regions import MEASURED, PartMissing, PicturePart
from editjudge.running.regions import VERSION as REGION_VERSION
from editjudge.store.records import Item
from editjudge.store.sink import Sink

if TYPE_CHECKING:
    from editjudge.store.store import Store

BATCH = 200
"""Edits planned at a time: large enough to look keys up in bulk."""
_FIRST_BATCH = 16
"""Edits of the first batch, so that the first requests are sent while the next is planned."""
_AHEAD = 8
"""Edits whose images are read before their turn, since the disk may be slow."""
_REMEMBERED = 10_000
"""Images whose digests a run remembers between batches, some 5 MB: edits of many models share their inputs."""

KEY_VERSION = 1

ImageLookup = Callable[[Edit, str], KnownImage | None]
"""Digest and size of an image of an edit, by role; None if the edit has none. Raises `ImageError`, and `ImageMissing` if
there should be one."""
FindJudgement = Callable[[Work], Judgement | None]
"""Stored judgement of a task; None if it is not answered yet."""
Problem = tuple[Status, Remark]
"""Reason why a question cannot be asked."""


def _problem(status: Status, message: str) -> Problem:
    return status, Remark(status, message)


class ImageMissing(ImageError):
    """A file that a manifest names, and that does not exist."""


@dataclass(frozen=True)
class QuestionSettings:
    """The questions that a run asks about every edit."""

    rubrics: Sequence[Rubric]
    repeats: int = 1
    layout: Layout = "images-first"
    orders: tuple[str, ...] = ORDERS
    """Orders in which the outputs of a pair are shown."""

    def __post_init__(self) -> None:
        for rubric in self.rubrics:
            if rubric.pairwise:
                _check_choices(rubric)

    @property
    def questions(self) -> int:
        """Questions to each judge about an edit, if no rubric is asked for each element of a list."""
        return self.repeats * sum(
            rubric.samples * (len(self.orders) if rubric.pairwise else 1)
            for rubric in self.rubrics
        )

    @functools.cached_property
    def stages(self) -> list[list[Rubric]]:
        """The rubrics in the order in which they can be asked: one that is told of an answer comes after it."""
        return stages(self.rubrics)

    @functools.cached_property
    def conditional(self) -> bool:
        """Whether some rubric may not be asked about some edit."""
        return any(rubric.when or rubric.for_each for rubric in self.rubrics)

    def in_stage(self, stage: int | None) -> Sequence[Rubric]:
        """The rubrics of one stage, or all."""
        return self.rubrics if stage is None else self.stages[stage]

    def named(self, name: str | None) -> Rubric:
        return next(rubric for rubric in self.rubrics if rubric.name == name)


def _check_choices(rubric: Rubric) -> None:
    for factor in rubric.factors:
        choices = [read_choice(word) for word in factor.scale.choices]
        if not {"a", "b"} <= {*choices} or None in choices:
            words = ", ".join(factor.scale.choices) or factor.scale.words
            raise UsageError(
                f"{rubric.name}: shows two outputs, and {factor.key} asks for {words}; expected the choices a and b, "
                "and tie where it may be one"
            )
        if len({*choices}) < len(choices):
            words = ", ".join(factor.scale.choices)
            raise UsageError(
                f"{rubric.name}: two choices of {factor.key} mean the same: {words}; offer one of them"
            )


@dataclass(frozen=True)
class TaskKey:
    """All that can change the answer to a task. The key of the task is its hash."""

    rubric: Rubric
    layout: Layout
    texts: Mapping[str, str]
    images: Mapping[str, tuple[str | None, str | None]]
    """Digest and recipe of each image by role; None and None for one that is not there."""
    identity: Mapping[str, Any]
    """The judge's own."""
    repeat: int
    order: str | None = None
    """Order of a pair: B|A with B first shows what A|B with A second does, and names it otherwise."""
    problem: Problem | None = None
    """An image that cannot be read has no digest to tell it from one that is not there."""
    variant: str | None = None
    """Element of a list, if no image is looked at: elements may differ by their boxes alone."""

    def hash(self) -> str:
        """Return the key. Every byte of the JSON counts: answers are stored by it."""
        question: dict[str, Any] = {
            "version": KEY_VERSION,
            "rendering": RENDERING + rewordings(self.rubric),
            "rubric": self.rubric.hash,
            "layout": layout_of(self.rubric, self.layout),
            "texts": self.texts,
            "images": self.images,
        }
        if self.order is not None:
            question["order"] = self.order
        if self.problem:
            status, remark = self.problem
            question["problem"] = [status, remark.message]
        if self.variant is not None:
            question["variant"] = self.variant
        return json_hash([question, self.identity, self.repeat], "compact")


def nothing_to_ask(about: str) -> ManifestError:
    """Say that no rubric of a run is for any of its edits."""
    return ManifestError(
        f"{about}: nothing was asked: no edit meets the condition `when` of any rubric, or has an element in the list "
        "of its `for_each`; compare the conditions with the columns of the manifest"
    )


def works(
    edits: Iterable[Edit],
    settings: QuestionSettings,
    judge: Judge,
    look: ImageLookup,
    answers: FindJudgement = lambda _: None,
    stage: int | None = None,
) -> Iterator[Work]:
    """Yield everything to be asked of one judge, edit by edit, so that tasks that share images come together.

    `answers` finds the answers of earlier stages; `stage`: one stage alone.
    """
    for edit in edits:
        yield from EditQuestions(edit, settings, judge, look, answers).works(stage)


class _EditVariant(NamedTuple):
    """An edit as one question is about it: in one order, or with an element of its list."""

    name: str
    edit: Edit
    problem: Problem | None = None


def _variants(
    rubric: Rubric, edit: Edit, settings: QuestionSettings
) -> list[_EditVariant]:
    """Return the variants of an edit that a rubric is asked about; none if it is not for this edit, or is asked after
    one that is not."""
    if rubric.when and not applies(rubric.when, edit):
        return []
    if rubric.after and not _variants(settings.named(rubric.after), edit, settings):
        return []
    if rubric.pairwise:
        return [
            _EditVariant(order, edit.with_outputs_swapped() if order == "ba" else edit)
            for order in settings.orders
        ]
    if not rubric.for_each:
        return [_EditVariant("", edit)]
    elements = edit.listed(rubric.for_each)
    if elements is None or len(elements) > MAX_ELEMENTS:
        why = "has no such list"
        if elements is not None:
            why = f"has {len(elements):,} elements, at most {MAX_ELEMENTS}"
        message = f'the rubric is asked for each element of "{rubric.for_each}", and the edit {why}'
        return [_EditVariant("", edit, _problem("missing_input", message))]
    return [
        _EditVariant(
            str(number),
            dataclasses.replace(edit, metadata={**edit.metadata, EACH: element}),
        )
        for number, element in enumerate(elements)
    ]


MAX_ELEMENTS = 100
"""Questions that one rubric asks about one edit: a list of thousands is a mistake that would be paid for."""


def task_places(
    edit: Edit, settings: QuestionSettings, stage: int
) -> Iterator[tuple[str, int, str]]:
    """Yield rubric, repeat and variant of every question about an edit in one stage, in the order of `works`, also of
    those that cannot be asked before others are answered."""
    for rubric in settings.stages[stage]:
        for variant in _variants(rubric, edit, settings):
            for repeat in range(settings.repeats * rubric.samples):
                yield rubric.name, repeat, variant.name


_STAGE = 1 << 40
"""Positions of tasks in one stage: tasks of later stages come after them, however many there are."""


class PlacedEdit(NamedTuple):
    """An edit with its position, and those of the tasks about it, in the run."""

    position: int
    edit: Edit
    tasks: Sequence[Mapping[tuple[str, int, str], int]]
    """Position of the task by rubric, repeat and variant, for each stage."""


def placed(
    edits: Iterable[Edit],
    settings: QuestionSettings,
    part: Callable[[Edit], bool] = lambda _: True,
) -> Iterator[PlacedEdit]:
    """Yield the edits that are in `part`, placed as in the run of all of them: processes that each take a part of one
    manifest store the same positions as one that takes all of it."""
    following = [stage * _STAGE for stage in range(len(settings.stages))]
    for position, edit in enumerate(edits):
        tasks = []
        for stage, first in enumerate(following):
            places = task_places(edit, settings, stage)
            tasks.append({place: at for at, place in enumerate(places, first)})
            following[stage] += len(tasks[-1])
        if part(edit):
            yield PlacedEdit(position, edit, tasks)


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
            rubric.name: _variants(rubric, edit, settings)
            for rubric in settings.rubrics
        }
        self._images: dict[tuple[tuple[str, ...], int, str], _Images] = {}
        """Images by roles, how many of them are needed, and variant, if that changes them."""
        self._earlier: dict[str, list[Work]] = {}
        """Works of rubrics that others are asked after, by name."""

    def works(self, stage: int | None = None) -> list[Work]:
        rubrics = self._settings.in_stage(stage)
        return [work for rubric in rubrics for work in self._plan_rubric(rubric)]

    def not_applicable(self, stage: int | None = None) -> int:
        """Return how many rubrics are not for this edit."""
        rubrics = self._settings.in_stage(stage)
        return sum(not self._variants[rubric.name] for rubric in rubrics)

    def _plan_rubric(self, rubric: Rubric) -> list[Work]:
        repeats = range(self._settings.repeats * rubric.samples)
        works: list[Work] = []
        for variant in self._variants[rubric.name]:
            images = self._images_of(variant, rubric)
            if not rubric.after:
                works += self._plan_variant(variant, rubric, images, repeats)
                continue
            for repeat in repeats:
                informed = self._with_earlier_answers(rubric, variant, repeat)
                if informed:
                    works += self._plan_variant(informed, rubric, images, [repeat])
        return works

    def _images_of(self, variant: _EditVariant, rubric: Rubric) -> _Images:
        roles, needed = _roles(variant.edit, rubric, self._judge)
        differs = variant.name == "ba"
        if rubric.for_each:
            # Boxes are those of the element that this question is about.
            differs = any("@" in role for role in roles)
        place = (roles, needed, variant.name if differs else "")
        if place not in self._images:
            self._images[place] = _find_images(
                variant.edit, roles, needed, self._judge, self._look
            )
        return self._images[place]

    def _plan_variant(
        self,
        variant: _EditVariant,
        rubric: Rubric,
        images: _Images,
        repeats: Iterable[int],
    ) -> list[Work]:
        edit = variant.edit
        judge = self._judge
        layout = self._settings.layout
        problem = variant.problem or images.problem
        if judge.limits is not None:
            problem = problem or _missing_text(edit, rubric)
        texts = {name: edit.text(name) for name in rubric.texts}
        works = []
        for repeat in repeats:
            key = TaskKey(
                rubric,
                layout,
                texts,
                images.in_key,
                judge.identity(edit, rubric, repeat),
                repeat,
                order=variant.name if rubric.pairwise else None,
                problem=problem,
                variant=variant.name
                if rubric.for_each and judge.limits is None
                else None,
            ).hash()
            works.append(
                Work(
                    Task(edit.id, rubric.name, judge.spec, repeat, key, variant.name),
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

    def _with_earlier_answers(
        self, rubric: Rubric, variant: _EditVariant, repeat: int
    ) -> _EditVariant | None:
        """Return the variant with the answers to the earlier question; None if they are not there yet.

        A question is told of an answer of its own repeat of the run: samples take turns if one rubric has more of them.
        """
        earlier = self._settings.named(rubric.after)
        if earlier.name not in self._earlier:
            self._earlier[earlier.name] = self._plan_rubric(earlier)
        run_repeat, sample = divmod(repeat, rubric.samples)
        earlier_repeat = run_repeat * earlier.samples + sample % earlier.samples
        same_list = bool(rubric.for_each) and rubric.for_each == earlier.for_each
        judgements = []
        for work in self._earlier[earlier.name]:
            if work.task.repeat != earlier_repeat:
                continue
            if same_list and work.task.variant not in ("", variant.name):
                continue
            judgement = self._answers(work)
            if judgement is None:
                return None
            judgements.append(judgement)
        return _add_earlier_answers(variant, earlier, judgements)


def _add_earlier_answers(
    variant: _EditVariant, earlier: Rubric, judgements: Sequence[Judgement]
) -> _EditVariant | None:
    if not judgements:
        return None
    for judgement in judgements:
        if judgement.status not in DONE:
            why = "no reason is known"
            if judgement.reasons:
                why = judgement.reasons[0].message
            message = f'"{earlier.name}", which this question is asked after, is {judgement.status}: {why}'
            problem = variant.problem or _problem("missing_input", message)
            return variant._replace(problem=problem)
    lines = [
        line for judgement in judgements for line in _answer_lines(earlier, judgement)
    ]
    metadata = {**variant.edit.metadata, EARLIER: "\n".join(lines)}
    return variant._replace(edit=dataclasses.replace(variant.edit, metadata=metadata))


def _answer_lines(rubric: Rubric, judgement: Judgement) -> Iterator[str]:
    answers = {**(judgement.choices or {}), **(judgement.scores or {})}
    reasons = judgement.justifications or {}
    for factor in rubric.factors:
        answer = answers.get(factor.key)
        reason = reasons.get(factor.key) or judgement.abstained.get(factor.key)
        line = f"{factor.title or factor.key}: "
        line += "no answer" if answer is None else str(answer)
        yield f"{line} ({reason})" if reason else line


class _Images(NamedTuple):
    """Images that some rubrics share, by role."""

    digests: dict[str, str]
    recipes: dict[str, str]
    sizes: dict[str, tuple[int, int]]
    in_key: dict[str, tuple[str | None, str | None]]
    problem: Problem | None


def _find_images(
    edit: Edit, roles: tuple[str, ...], needed: int, judge: Judge, look: ImageLookup
) -> _Images:
    """Look images up; the first `needed` roles are those that the rubric shows."""
    images: dict[str, KnownImage] = {}
    parts: dict[str, str] = {}
    problem: Problem | None = None
    if judge.limits is not None:
        problem = _find_pictures(edit, roles[:needed], look, images)
        # Images that the rubric does not show are as good as absent if they are broken.
        _find_pictures(edit, roles[needed:], look, images)
        for role in roles[:needed]:
            if "@" in role and role in images:
                missing = _cut(edit, PicturePart.of(role), role, look, images, parts)
                problem = problem or missing
    digests: dict[str, str] = {}
    recipes: dict[str, str] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for role, known in images.items():
        if known.info and judge.limits:
            part = f"{parts[role]}, " if role in parts else ""
            recipes[role] = part + plan(known.info, judge.limits)
            sizes[role] = known.info.shown
        elif role not in roles[:needed]:
            continue
        digests[role] = known.digest
    in_key = {role: (digests.get(role), recipes.get(role)) for role in roles}
    return _Images(digests, recipes, sizes, in_key, problem)


def _cut(
    edit: Edit,
    region: PicturePart,
    role: str,
    look: ImageLookup,
    pictures: dict[str, KnownImage],
    parts: dict[str, str],
) -> Problem | None:
    """Puts the part of a picture in the place of the whole, and says in words which part it is."""
    known = pictures[role]
    if known.info is None:
        return None
    if region.name in MEASURED:
        before: dict[str, KnownImage] = {}
        problem = _find_pictures(edit, ["input"], look, before)
        if "input" in before:
            parts[role] = (
                f"{region.name} {REGION_VERSION} against {before['input'].digest[:16]}"
            )
        return problem
    try:
        left, top, right, bottom = region.box(edit, *known.info.shown)
    except PartMissing as error:
        return _problem("missing_input", str(error))
    width = right - left
    height = bottom - top
    pictures[role] = KnownImage(
        known.digest, ImageInfo("png", width, height, 3 * width * height)
    )
    parts[role] = f"crop {left},{top},{right},{bottom}"
    return None


def _roles(edit: Edit, rubric: Rubric, judge: Judge) -> tuple[tuple[str, ...], int]:
    """The pictures that can change the answer: those that the rubric shows, and those that the judge looks at too; and
    how many of them the rubric shows."""
    roles = rubric.images
    further = judge.further_images
    # the usual case: no lists of pictures, none but what the rubric shows
    if not edit.pictures and not further:
        return roles, len(roles)
    own = dict.fromkeys(name for role in roles for name in edit.picture_names(role))
    also = (role for role in further if edit.picture(role) is not None)
    return tuple(dict.fromkeys((*own, *also))), len(own)


def _find_pictures(
    edit: Edit, roles: Iterable[str], look: ImageLookup, pictures: dict[str, KnownImage]
) -> Problem | None:
    """Adds what is known of each picture; returns why the question cannot be asked, if it cannot."""
    problem: Problem | None = None
    for role in roles:
        gone = ""
        try:
            known = look(edit, role)
        except ImageMissing as error:
            known = None
            gone = str(error)
        except ImageError as error:
            problem = problem or _problem("bad_image", str(error))
            continue
        except Exception as error:  # of this picture alone
            problem = problem or (
                "error",
                unexpected(error, f"the {role} of {edit.id}"),
            )
            continue
        if known is None:
            # What the model never produced outweighs whatever else is wrong, but for paths that lead nowhere at all.
            nothing = role.partition("@")[0] in OUTPUT_ROLES
            absent = gone or f"the {role} is to be looked at, and there is none"
            problem = (
                _produced_nothing(edit, role, look, gone)
                if nothing
                else problem or _problem("missing_input", absent)
            )
            continue
        pictures[role] = known
        if known.info is None:
            problem = problem or _problem("bad_image", known.problem)
    return problem


def _produced_nothing(edit: Edit, role: str, look: ImageLookup, gone: str) -> Problem:
    if isinstance(edit.picture(role), Path) and isinstance(edit.input, Path):
        # what is wrong with the input is said where the input is looked at
        with suppress(Exception):
            try:
                missing = "" if look(edit, "input") else "the input is not there"
            except ImageMissing as error:
                missing = str(error)
            if missing:
                return _problem("missing_input", f"{missing}, nor is the edited")
    return _problem("missing_output", gone or "the editing model produced no picture")


def _missing_text(edit: Edit, rubric: Rubric) -> Problem | None:
    for name in rubric.texts:
        if name == "instruction" and not edit.instruction.strip():
            return _problem(
                "missing_input", "the rubric needs an instruction, and it is empty"
            )
        if name not in TEXT_ROLES and not edit.text(name).strip():
            return _problem(
                "missing_input", f'the rubric needs the text "{name}", and it is empty'
            )
    return None


# --- pictures -------------------------------------------------------------------------------------------------


def look_at(digests: DigestCache, edit: Edit, role: str) -> KnownImage | None:
    """Return digest and size of an image of an edit. Raise `ImageMissing`, with the name in the manifest, if its file does
    not exist."""
    source = edit.picture(role)
    known = None if source is None else digests.known(source)
    if known is None and isinstance(source, Path):
        root = digests.reader.root
        raise ImageMissing(
            f"{name_of(Path(os.path.relpath(source, root)) if root else source)} is not there"
        )
    return known


def _memoised_lookup(digests: DigestCache) -> ImageLookup:
    """Return `look_at` for some edits: a file that they share is looked at once."""
    seen: dict[str, KnownImage] = {}

    def look(edit: Edit, role: str) -> KnownImage | None:
        source = edit.picture(role)
        if not isinstance(source, Path):
            return look_at(digests, edit, role)
        path = str(source)
        if path not in seen:
            known = look_at(digests, edit, role)
            if known is None:
                return None
            seen[path] = known
        return seen[path]

    return look


def readable_pictures(
    edit: Edit, digests: DigestCache, skip: Iterable[str] = ()
) -> dict[str, KnownImage]:
    """The pictures that can be read, also those that no rubric shows: by them an edit is known to ratings and other
    runs. Addresses are left out: they are fetched for a judge alone."""
    pictures: dict[str, KnownImage] = {}
    for role, source in edit.all_pictures().items():
        if role not in skip and not is_url(source):
            # a picture that cannot be read is known by its place
            with suppress(Exception):
                if known := digests.known(source):
                    pictures[role] = known
    return pictures


def digests_of(
    edit: Edit, digests: DigestCache, known: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Digests of an edit's pictures, by role."""
    known = known or {}
    return {
        **known,
        **{
            role: one.digest
            for role, one in readable_pictures(edit, digests, known).items()
        },
    }


def contents_of_manifest(path: Path, columns: manifest.Columns = ()) -> dict[str, str]:
    """Content keys of a manifest's edits, by id."""
    digests = DigestCache()
    named = manifest.NamedInputs(columns=columns)
    edits = manifest.read(
        path.absolute(), allow_outside=True, allow_urls=True, named=named
    )
    return {
        edit.id: Content.of(item_of(edit, digests_of(edit, digests))).key()
        for edit in edits
    }


def item_of(
    edit: Edit,
    digests: Mapping[str, str],
    *,
    name: str | None = None,
    places: Mapping[str, str] | None = None,
) -> Item:
    """An edit as a store keeps it, as `name` if not by its id.

    `places` says where each picture is kept, if not where it came from. Edits of one input are one group; an input
    that nobody read is known by its place. Passwords and signatures of addresses are not kept.
    """
    name = name or edit.id
    group = redacted_text(edit.group or "") or digests.get("input")
    if places is None:
        places = {
            role: place_of(source) for role, source in edit.all_pictures().items()
        }
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
            role: {"source": place, "digest": digests.get(role)}
            for role, place in places.items()
        },
        redacted_metadata(edit.metadata),
    )


def place_of(source: ImageSource) -> str:
    """Return the address of an image as stored: an absolute path, since the store may be read from another folder."""
    return name_of(source.absolute() if isinstance(source, Path) else source)


# --- all tasks of a run -----------------------------------------------------------------------------------------

_OUTLINED = 1_000
"""Edits of one transaction, when a run begins."""


class Outline:
    """All edits and tasks that a run is to come to, kept before the first is planned: whenever a run is stopped, what
    was not judged is pending and counted.

    No picture is read for it, so that a task has a key of its own which no answer has; planning gives it the right one.
    On a run that is resumed, tasks leave the run's view that the manifest has no more.
    """

    def __init__(
        self,
        store: Store,
        run_id: int,
        judges: Sequence[str],
        *,
        resumed: bool,
    ) -> None:
        self._store = store
        self._run = run_id
        self._judges = judges
        self._resumed = resumed
        self.expected = 0
        """Tasks so far."""

    def add(self, edits: Iterable[PlacedEdit]) -> None:
        """Keep edits, some at a time; pictures that they hold are let go one by one."""
        edits = iter(edits)
        while some := [
            (edit.position, _outlined(edit.edit), self._tasks(edit))
            for edit in itertools.islice(edits, _OUTLINED)
        ]:
            items = [(position, item) for position, item, _ in some]
            tasks = [task for *_, of_edit in some for task in of_edit]
            self._store.add_outline(
                self._run, items, tasks, self._judges, resumed=self._resumed
            )
            self.expected += len(tasks)

    def _tasks(self, placed: PlacedEdit) -> list[tuple[int, Task]]:
        tasks = []
        for (rubric, repeat, variant), position in itertools.chain.from_iterable(
            stage.items() for stage in placed.tasks
        ):
            for judge in self._judges:
                place = (placed.edit.id, rubric, judge, repeat, variant)
                key = json_hash(["not planned", *place], "compact")
                task = Task(placed.edit.id, rubric, judge, repeat, key, variant)
                tasks.append((position, task))
        return tasks


def _outlined(edit: Edit) -> Item:
    """An edit as a store keeps it before its files are read. Pictures that it holds itself have no place to be known
    by, only their content."""
    known: dict[str, str] = {}
    for role, source in edit.all_pictures().items():
        if isinstance(source, bytes) or str(source).startswith("data:"):
            # one that cannot be read is said to be so when it is asked about
            with suppress(Exception):
                known[role] = DigestCache().of(source) or ""
    return item_of(edit, known)


class PlannedBatch(NamedTuple):
    """Works of some edits, and the statuses of those that are known to be done, by key."""

    works: list[Work]
    done: Mapping[str, str]


class Planner:
    """The tasks of one run over one store."""

    def __init__(
        self,
        store: Sink,
        run_id: int,
        settings: QuestionSettings,
        pictures: ImageReader | None = None,
        *,
        rehash: bool = False,
        outlining: bool = False,
        part: Callable[[Edit], bool] = lambda _: True,
    ) -> None:
        """`outlining`: the edits are a stream, whose outline is kept batch by batch as it is read. `part`: whether an
        edit of the run is planned here, or by another process."""
        self.pictures = pictures or ImageReader()
        self.stages = len(settings.stages)
        self.questions = settings.questions
        self.planned = 0
        """Tasks of all judges that were planned."""
        self.not_applicable = 0
        """Questions of a rubric that is not for that edit."""
        self._store = store
        self._run = run_id
        self._settings = settings
        self._rehash = rehash
        self._outlining = outlining
        self._part = part

    def batches(
        self, judge: Judge, edits: Iterator[Edit], stage: int = 0
    ) -> Iterator[PlannedBatch]:
        """Yield all works of a judge in one stage, some edits at a time; items and tasks are stored before.

        A batch ends early where its pictures fill three eighths of what the reader holds, so that each is still in
        memory when it is encoded: there are two batches at a time, and each may be an edit too large. Meant for a
        thread: reading and hashing pictures must not hold up answers.
        """
        digests = DigestCache(self.pictures, rehash=self._rehash)
        sizes = itertools.chain((_FIRST_BATCH,), itertools.repeat(BATCH))
        outline = self._outline(judge) if self._outlining and stage == 0 else None
        waiting = placed(edits, self._settings, self._part)
        while batch := list(itertools.islice(waiting, next(sizes))):
            if outline:
                outline.add(batch)
            if len(digests) > _REMEMBERED:
                digests = DigestCache(self.pictures, rehash=self._rehash)
            if unknown := digests.unknown(
                source for each in batch for source in each.edit.all_pictures().values()
            ):
                digests.load(self._store.load_digests(sorted(unknown)))
            while batch:
                count, planned = self._plan(judge, batch, digests, stage)
                done = self._keep(batch[:count], stage, planned, digests)
                batch = batch[count:]
                yield PlannedBatch(planned, done)

    def _outline(self, judge: Judge) -> Outline:
        return Outline(
            cast("Store", self._store), self._run, [judge.spec], resumed=True
        )

    def _keep(
        self,
        edits: Sequence[PlacedEdit],
        stage: int,
        planned: Sequence[Work],
        digests: DigestCache,
    ) -> dict[str, str]:
        """Store edits and tasks at their positions; return the statuses of tasks that are done, as far as known."""
        by_role: dict[str, dict[str, str]] = {each.edit.id: {} for each in edits}
        latest: Mapping[str, str] | None = None
        for work in planned:
            if work.digests is not latest or work.order:
                by_role[work.edit.id].update(work.by_own_name(work.digests))
                latest = work.digests
        items = []
        for position, edit, _ in edits:
            item = item_of(edit, digests_of(edit, digests, by_role[edit.id]))
            items.append((position, item))
        positions = {each.edit.id: each.tasks[stage] for each in edits}
        tasks = []
        for work in planned:
            task = work.task
            place = (task.rubric, task.repeat, task.variant)
            tasks.append((positions[task.item][place], task))
        self.planned += len(tasks)
        statuses = self._store.add_batch(self._run, items, tasks, digests.dump())
        return {key: status for key, status in statuses.items() if status in DONE}

    def _plan(
        self,
        judge: Judge,
        edits: Sequence[PlacedEdit],
        digests: DigestCache,
        stage: int,
    ) -> tuple[int, list[Work]]:
        """Plan the first edits; return how many, and their works."""
        look = _memoised_lookup(digests)
        planned: list[Work] = []
        before = digests.bytes_asked
        for count, (_, edit, _) in enumerate(edits, 1):
            digests.look_ahead(
                source
                for later in edits[: count + _AHEAD][count - 1 :]
                for source in later.edit.all_pictures().values()
            )
            questions = EditQuestions(edit, self._settings, judge, look, self._answer)
            planned += questions.works(stage)
            self.not_applicable += questions.not_applicable(stage)
            if digests.bytes_asked - before > 3 * self.pictures.budget // 8:
                return count, planned
        return len(edits), planned

    def _answer(self, work: Work) -> Judgement | None:
        return self._store.judgement(work.task.key)
