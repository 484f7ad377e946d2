"""What a run has to do: edits x rubrics x a judge x repeats, each with the key of all that can change its answer, less
what is answered already. The local engine, a provider's batches and a cluster's workers take their tasks from here."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from editjudge import manifest
from editjudge.canonical import compact_json, json_text, text_hash
from editjudge.edit import OUTPUT_ROLES, TEXT_ROLES, Content, Edit
from editjudge.errors import ImageError, ManifestError, UsageError
from editjudge.judgement import DONE, Judgement, Status, Task
from editjudge.judges.judge import Judge, Work
from editjudge.media.cache import DigestCache, KnownImage, PictureReader
from editjudge.media.header import ImageInfo
from editjudge.media.image import is_url, name_of, plan
from editjudge.orders import ORDERS, read_choice
from editjudge.rubrics.conditions import applies
from editjudge.rubrics.model import EACH, EARLIER, Rubric
from editjudge.rubrics.prompt import RENDERING, Layout, layout_of, rewordings
from editjudge.rubrics.sets import stages
from editjudge.rubrics.verdict import Remark
from editjudge.run.feed import claim_tasks, item_of, unexpected
from editjudge.run.progress import RunTally
from editjudge.run.regions import MEASURED, PartMissing, PicturePart
from editjudge.run.regions import VERSION as REGION_VERSION
from editjudge.store.records import Item
from editjudge.store.sink import Sink

if TYPE_CHECKING:
    from editjudge.store.claims import Claims
    from editjudge.store.store import Store

BATCH = 200
"""Edits planned at a time: large enough to look keys up in bulk."""
_FIRST_BATCH = 16
"""Of the first batch, so that the first requests are sent while the next is planned."""

_AHEAD = 8
"""Edits whose pictures are read before their turn, where the disk is slow."""
_REMEMBERED = 10_000
"""Pictures whose digests a run remembers between batches, some 5 MB: edits of many models share their inputs."""

KEY_VERSION = 1

Look = Callable[[Edit, str], KnownImage | None]
"""What is known of a picture of an edit, by role; None where there is none. Raises `ImageError`, and
`PictureMissing` where there should be one."""


Problem = tuple[Status, Remark]
"""Why a question cannot be asked."""


def _problem(status: Status, message: str) -> Problem:
    return status, Remark(status, message)


class PictureMissing(ImageError):
    """A file that a manifest names, and that does not exist."""


@dataclass(frozen=True)
class QuestionSettings:
    """What a run asks of every edit."""

    rubrics: Sequence[Rubric]
    repeats: int = 1
    layout: Layout = "images-first"
    orders: tuple[str, ...] = ORDERS
    """In which pairs are shown."""
    _identities: dict[str, tuple[Mapping[str, Any], str]] = field(default_factory=dict, compare=False, repr=False)
    """By judge: the latest identity that it gave, and its JSON."""

    def __post_init__(self) -> None:
        for rubric in self.rubrics:
            if rubric.pairwise:
                _check_choices(rubric)

    def orders_of(self, rubric: Rubric) -> tuple[str, ...]:
        """The orders in which a rubric is asked: of one output there is one, without a name."""
        return self.orders if rubric.pairwise else ("",)

    @property
    def questions(self) -> int:
        """How many each judge is asked about an edit, where no rubric is asked for each element of a list."""
        return self.repeats * sum(rubric.samples * len(self.orders_of(rubric)) for rubric in self.rubrics)

    @functools.cached_property
    def stages(self) -> list[list[Rubric]]:
        """The rubrics in the order in which they can be asked: those that are told of an answer come after it."""
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

    @functools.cached_property
    def key_forms(self) -> dict[str, _KeyForm]:
        """What the keys of a rubric share, by its name."""
        return {rubric.name: _KeyForm.of(rubric, self.layout) for rubric in self.rubrics}

    def identity_json(self, judge: str, identity: Mapping[str, Any]) -> str:
        """Most judges give the same mapping for every question, and it is encoded once. The same is the same object:
        values that are equal, such as 0 and 0.0, may be written differently."""
        latest, text = self._identities.get(judge, (None, ""))
        if identity is not latest:
            text = compact_json(identity)
            self._identities[judge] = (identity, text)
        return text


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
            raise UsageError(f"{rubric.name}: two choices of {factor.key} mean the same: {words}; offer one of them")


class _KeyForm(NamedTuple):
    """What the keys of one rubric share, whichever edit it is asked about."""

    plain: bool
    """One question about each edit: no pair, no list, no condition, no earlier answer."""
    texts: tuple[str, ...]
    """Names, in the order of canonical JSON."""
    asking: str
    """The members of the JSON between the pictures and the texts, where nothing is wrong and there is no order."""

    @classmethod
    def of(cls, rubric: Rubric, layout: Layout) -> _KeyForm:
        plain = not (rubric.pairwise or rubric.for_each or rubric.when or rubric.after)
        return cls(plain, tuple(sorted({*rubric.texts})), _asking_json(rubric, layout))


def _asking_json(rubric: Rubric, layout: Layout, between: str = "") -> str:
    layout = layout_of(rubric, layout)
    return f'"layout":"{layout}",{between}"rendering":{RENDERING + rewordings(rubric)},"rubric":"{rubric.hash}"'


def nothing_to_ask(about: str) -> ManifestError:
    """Say that no rubric of a run is for any of its edits."""
    return ManifestError(
        f"{about}: nothing was asked: no edit meets the condition `when` of any rubric, or has an element in the list "
        "of its `for_each`; compare the conditions with the columns of the manifest"
    )


Answers = Callable[[Work], Judgement | None]
"""What is kept of a task; None where it is not answered yet."""


def works(
    edits: Iterable[Edit],
    settings: QuestionSettings,
    judge: Judge,
    look: Look,
    answers: Answers = lambda _: None,
    stage: int | None = None,
) -> Iterator[Work]:
    """Everything to be asked of one judge, edit by edit, so that what shares pictures stands together.

    `answers` knows what earlier stages were answered; a `stage` alone is for those who ask one after the other.
    """
    for edit in edits:
        yield from EditQuestions(edit, settings, judge, look, answers).works(stage)


class _AskedEdit(NamedTuple):
    """An edit as one question is about it: with an element of its list, where the rubric is asked for each."""

    variant: str
    edit: Edit
    problem: Problem | None = None


def _views(rubric: Rubric, edit: Edit, orders: Sequence[str]) -> list[_AskedEdit]:
    if rubric.when and not applies(rubric.when, edit):
        return []
    if rubric.pairwise:
        return [_AskedEdit(order, edit.with_outputs_swapped() if order == "ba" else edit) for order in orders]
    if not rubric.for_each:
        return [_AskedEdit("", edit)]
    elements = edit.listed(rubric.for_each)
    if elements is None or len(elements) > MAX_ELEMENTS:
        why = "has no such list" if elements is None else f"has {len(elements):,} elements, at most {MAX_ELEMENTS}"
        message = f'the rubric is asked for each element of "{rubric.for_each}", and the edit {why}'
        return [_AskedEdit("", edit, _problem("missing_input", message))]
    return [
        _AskedEdit(str(number), dataclasses.replace(edit, metadata={**edit.metadata, EACH: element}))
        for number, element in enumerate(elements)
    ]


MAX_ELEMENTS = 100
"""Questions that one rubric asks about one edit: a list of thousands is a mistake that would be paid for."""


def _variants(rubric: Rubric, edit: Edit, settings: QuestionSettings) -> list[str]:
    """The questions of a rubric about an edit; none where it is not for it, or comes after one that is not."""
    if settings.key_forms[rubric.name].plain:
        return [""]
    if rubric.after and not _variants(settings.named(rubric.after), edit, settings):
        return []
    return [view.variant for view in _views(rubric, edit, settings.orders)]


def task_places(edit: Edit, settings: QuestionSettings, stage: int) -> Iterator[tuple[str, int, str]]:
    """Yield rubric, repeat and variant of every question about an edit in one stage, in the order of `works`, also of
    those that cannot be asked before others are answered."""
    for rubric in settings.in_stage(stage):
        repeats = range(settings.repeats * rubric.samples)
        for variant in _variants(rubric, edit, settings):
            for repeat in repeats:
                yield rubric.name, repeat, variant


class EditQuestions:
    """What one judge is asked about one edit."""

    def __init__(
        self, edit: Edit, settings: QuestionSettings, judge: Judge, look: Look, answers: Answers = lambda _: None
    ) -> None:
        self._edit, self._settings, self._judge, self._look, self._answers = edit, settings, judge, look, answers
        self._whole = [_AskedEdit("", edit)]
        self._pictures: dict[tuple[tuple[str, ...], int, bool | str], _Pictures] = {}
        self._texts: dict[tuple[str, ...], str] = {}
        """JSON of the texts that rubrics show, by their names."""
        self._views: dict[str, list[_AskedEdit]] = {}
        self._earlier: dict[str, list[Work]] = {}
        """The works of rubrics that others are told of, by name."""

    def works(self, stage: int | None = None) -> list[Work]:
        return [work for rubric in self._settings.in_stage(stage) for work in self._of(rubric)]

    def not_applicable(self, stage: int | None = None) -> int:
        """How many rubrics are not asked about this edit, as it is none that they are for."""
        if not self._settings.conditional:
            return 0
        return sum(not self._applies(rubric) for rubric in self._settings.in_stage(stage))

    def _applies(self, rubric: Rubric) -> bool:
        return bool(self._views_of(rubric)) and (not rubric.after or self._applies(self._settings.named(rubric.after)))

    def _views_of(self, rubric: Rubric) -> list[_AskedEdit]:
        if self._settings.key_forms[rubric.name].plain:
            return self._whole
        if rubric.name not in self._views:
            self._views[rubric.name] = _views(rubric, self._edit, self._settings.orders)
        return self._views[rubric.name]

    def _of(self, rubric: Rubric) -> list[Work]:
        repeats = range(self._settings.repeats * rubric.samples)
        works: list[Work] = []
        for view in self._views_of(rubric):
            roles, needed = _roles(view.edit, rubric, self._judge)
            # Boxes are those of the element that this question is about.
            by_element = rubric.for_each and any("@" in role for role in roles)
            which = roles, needed, view.variant if by_element else view.variant == "ba"
            pictures = self._pictures.get(which)
            if pictures is None:
                pictures = self._pictures[which] = _look_up(view.edit, roles, needed, self._judge, self._look)
            for some, informed in self._informed(rubric, view, repeats) if rubric.after else ((repeats, view),):
                works += self._of_view(informed, rubric, pictures, some)
        return works

    def _of_view(self, view: _AskedEdit, rubric: Rubric, pictures: _Pictures, repeats: Iterable[int]) -> list[Work]:
        edit, settings, judge = view.edit, self._settings, self._judge
        problem = view.problem or pictures.problem
        if judge.limits is not None:
            problem = problem or _missing_text(edit, rubric)
        question = self._question_json(view, rubric, pictures.json, problem)
        shared = (edit, rubric, pictures.digests, pictures.recipes, pictures.sizes, settings.layout, problem)
        works = []
        for repeat in repeats:
            identity = settings.identity_json(judge.spec, judge.identity(edit, rubric, repeat))
            key = text_hash(f"[{question},{identity},{repeat}]")
            works.append(Work(Task(edit.id, rubric.name, judge.spec, repeat, key, view.variant), *shared))
        return works

    def _question_json(self, view: _AskedEdit, rubric: Rubric, images: str, problem: Problem | None) -> str:
        """What is asked, as canonical JSON: members in the order of their names. Written part by part, since most parts
        are the same for many keys: one encoder for all of it made a resumed run a fifth slower."""
        form, variant = self._settings.key_forms[rubric.name], ""
        asking = form.asking
        if problem or not form.plain:
            # B|A with B first shows what A|B with A second does, and names it otherwise.
            order = f'"order":{compact_json(view.variant)},' if rubric.pairwise else ""
            # A picture that cannot be read has no digest to tell it from one that is not there.
            wrong = f'"problem":{compact_json([problem[0], problem[1].message])},' if problem else ""
            asking = _asking_json(rubric, self._settings.layout, order + wrong)
            # Where no picture is looked at, elements may differ by their boxes alone.
            by_element = self._judge.limits is None and rubric.for_each
            variant = f'"variant":{compact_json(view.variant)},' if by_element else ""
        texts = self._texts_json(view.edit, form.texts)
        return f'{{"images":{images},{asking},"texts":{texts},{variant}"version":{KEY_VERSION}}}'

    def _texts_json(self, edit: Edit, names: tuple[str, ...]) -> str:
        """Encoded once for all rubrics that show the same texts of the edit itself."""
        text = self._texts.get(names) if edit is self._edit else None
        if text is None:
            text = ",".join([f"{json_text(name)}:{json_text(edit.text(name))}" for name in names])
            text = f"{{{text}}}"
            if edit is self._edit:
                self._texts[names] = text
        return text

    def _informed(self, rubric: Rubric, view: _AskedEdit, repeats: range) -> Iterator[tuple[range, _AskedEdit]]:
        """With the answers to the earlier question. A question is told of an answer of its own repeat of the run:
        samples take turns where one rubric has more of them. One whose answers are not there yet is left out."""
        earlier = self._settings.named(rubric.after)
        if earlier.name not in self._earlier:
            self._earlier[earlier.name] = self._of(earlier)
        same_list = bool(rubric.for_each) and rubric.for_each == earlier.for_each
        works = [w for w in self._earlier[earlier.name] if not same_list or w.task.variant in ("", view.variant)]
        for repeat in repeats:
            of_run, sample = divmod(repeat, rubric.samples)
            told_of = of_run * earlier.samples + sample % earlier.samples
            mine = [work for work in works if work.task.repeat == told_of]
            judgements = [self._answers(work) for work in mine]
            if mine and None not in judgements:
                yield range(repeat, repeat + 1), _telling(view, earlier, [j for j in judgements if j])


def _telling(view: _AskedEdit, earlier: Rubric, judgements: Sequence[Judgement]) -> _AskedEdit:
    for judgement in judgements:
        if judgement.status not in DONE:
            why = judgement.reasons[0].message if judgement.reasons else "no reason is known"
            message = f'"{earlier.name}", which this question is asked after, is {judgement.status}: {why}'
            return view._replace(problem=view.problem or _problem("missing_input", message))
    lines = [line for judgement in judgements for line in _answer_lines(earlier, judgement)]
    return view._replace(
        edit=dataclasses.replace(view.edit, metadata={**view.edit.metadata, EARLIER: "\n".join(lines)})
    )


def _answer_lines(rubric: Rubric, judgement: Judgement) -> Iterator[str]:
    for factor in rubric.factors:
        score = (judgement.scores or {}).get(factor.key, (judgement.choices or {}).get(factor.key))
        reason = (judgement.justifications or {}).get(factor.key) or judgement.abstained.get(factor.key, "")
        answer = "no answer" if score is None else str(score)
        yield f"{factor.title or factor.key}: {answer}{f' ({reason})' if reason else ''}"


class _Pictures(NamedTuple):
    """What is known of the pictures that some rubrics share."""

    digests: dict[str, str]
    recipes: dict[str, str]
    sizes: dict[str, tuple[int, int]]
    json: str
    """Digest and recipe of each role, absent ones included: their part of a key."""
    problem: Problem | None


def _look_up(edit: Edit, roles: tuple[str, ...], needed: int, judge: Judge, look: Look) -> _Pictures:
    pictures: dict[str, KnownImage] = {}
    problem: Problem | None = None
    parts: dict[str, str] = {}
    limits = judge.limits
    if limits is not None:
        problem = _find_pictures(edit, roles[:needed], look, pictures)
        _find_pictures(edit, roles[needed:], look, pictures)  # not shown by the rubric: broken, they are not there
        for role in roles[:needed]:
            if "@" in role and role in pictures:
                missing = _cut(edit, PicturePart.of(role), role, look, pictures, parts)
                problem = problem or missing
    digests: dict[str, str] = {}
    recipes: dict[str, str] = {}
    sizes: dict[str, tuple[int, int]] = {}
    entries: dict[str, str] = {}
    for role, known in pictures.items():
        recipe = "null"
        if known.info and limits:
            part = f"{parts[role]}, " if role in parts else ""
            recipes[role] = part + plan(known.info, limits)
            sizes[role] = known.info.shown
            recipe = json_text(recipes[role])
        elif role not in roles[:needed]:
            continue
        digests[role] = known.digest
        entries[role] = f"[{json_text(known.digest)},{recipe}]"
    members = [f"{name}:{entries.get(role, '[null,null]')}" for role, name in _member_names(roles)]
    return _Pictures(digests, recipes, sizes, f"{{{','.join(members)}}}", problem)


@functools.lru_cache
def _member_names(roles: tuple[str, ...]) -> list[tuple[str, str]]:
    """The roles in the order of canonical JSON, each with its name there."""
    return [(role, json_text(role)) for role in sorted({*roles})]


def _cut(
    edit: Edit, region: PicturePart, role: str, look: Look, pictures: dict[str, KnownImage], parts: dict[str, str]
) -> Problem | None:
    """Puts the part of a picture in the place of the whole, and says in words which part it is."""
    known = pictures[role]
    if known.info is None:
        return None
    if region.name in MEASURED:
        before: dict[str, KnownImage] = {}
        problem = _find_pictures(edit, ["input"], look, before)
        if "input" in before:
            parts[role] = f"{region.name} {REGION_VERSION} against {before['input'].digest[:16]}"
        return problem
    try:
        left, top, right, bottom = region.box(edit, *known.info.shown)
    except PartMissing as error:
        return _problem("missing_input", str(error))
    width, height = right - left, bottom - top
    pictures[role] = KnownImage(known.digest, ImageInfo("png", width, height, 3 * width * height))
    parts[role] = f"crop {left},{top},{right},{bottom}"
    return None


def _roles(edit: Edit, rubric: Rubric, judge: Judge) -> tuple[tuple[str, ...], int]:
    """The pictures that can change the answer: those that the rubric shows, and those that the judge looks at too; and
    how many of them the rubric shows."""
    roles, further = rubric.images, getattr(judge, "also", ())
    if not edit.pictures and not further:  # the usual case: no lists of pictures, none but what the rubric shows
        return roles, len(roles)
    own = dict.fromkeys(name for role in roles for name in edit.picture_names(role))
    also = (role for role in further if edit.picture(role) is not None)
    return tuple(dict.fromkeys((*own, *also))), len(own)


def _find_pictures(edit: Edit, roles: Iterable[str], look: Look, pictures: dict[str, KnownImage]) -> Problem | None:
    """Adds what is known of each picture; returns why the question cannot be asked, if it cannot."""
    problem: Problem | None = None
    for role in roles:
        gone = ""
        try:
            known = look(edit, role)
        except PictureMissing as error:
            known, gone = None, str(error)
        except ImageError as error:
            problem = problem or _problem("bad_image", str(error))
            continue
        except Exception as error:  # of this picture alone
            problem = problem or ("error", unexpected(error, f"the {role} of {edit.id}"))
            continue
        if known is None:
            # What the model never produced outweighs whatever else is wrong, but for paths that lead nowhere at all.
            nothing = role.partition("@")[0] in OUTPUT_ROLES
            absent = gone or f"the {role} is to be looked at, and there is none"
            problem = (
                _produced_nothing(edit, role, look, gone) if nothing else problem or _problem("missing_input", absent)
            )
            continue
        pictures[role] = known
        if known.info is None:
            problem = problem or _problem("bad_image", known.problem)
    return problem


def _produced_nothing(edit: Edit, role: str, look: Look, gone: str) -> Problem:
    if isinstance(edit.picture(role), Path) and isinstance(edit.input, Path):
        with suppress(Exception):  # what is wrong with the input is said where the input is looked at
            try:
                missing = "" if look(edit, "input") else "the input is not there"
            except PictureMissing as error:
                missing = str(error)
            if missing:
                return _problem("missing_input", f"{missing}, nor is the edited")
    return _problem("missing_output", gone or "the editing model produced no picture")


def _missing_text(edit: Edit, rubric: Rubric) -> Problem | None:
    for name in rubric.texts:
        if name == "instruction" and not edit.instruction.strip():
            return _problem("missing_input", "the rubric needs an instruction, and it is empty")
        if name not in TEXT_ROLES and not edit.text(name).strip():
            return _problem("missing_input", f'the rubric needs the text "{name}", and it is empty')
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


def _looking(digests: DigestCache) -> Look:
    """As `look_at`, for some edits: a file that they share is looked at once."""
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


def contents_of_manifest(path: Path, columns: manifest.Columns = ()) -> dict[str, str]:
    """Content keys of a manifest's edits, by id."""
    digests = DigestCache()
    named = manifest.NamedInputs(columns=columns)
    edits = manifest.read(path.absolute(), allow_outside=True, allow_urls=True, named=named)
    return {edit.id: Content.of(item_of(edit, digests_of(edit, digests))).key() for edit in edits}


# --- tasks that are not answered yet --------------------------------------------------------------------------

_OUTLINED = 1_000
"""Edits of one transaction, when a run begins."""
_STAGE = 1 << 40
"""Positions of tasks in one stage: tasks of later stages come after them, however many there are."""


class Outline:
    """All edits and tasks that a run is to come to, kept before the first is planned: whenever a run is stopped, what
    was not judged is pending and counted.

    No picture is read for it, so that a task has a key of its own which no answer has; planning gives it the right one.
    On a run that is resumed, tasks leave the run's view that the manifest has no more.
    """

    def __init__(
        self, store: Store, run_id: int, settings: QuestionSettings, judges: Sequence[str], *, resumed: bool
    ) -> None:
        self._store = store
        self._run = run_id
        self._settings = settings
        self._judges = judges
        self._resumed = resumed
        self._edits = 0
        self._tasks = [stage * _STAGE for stage in range(len(settings.stages))]
        """The next position in each stage; each judge has positions of its own."""
        self.expected = 0
        """Tasks so far."""

    def add(self, edits: Iterable[Edit]) -> None:
        """Keep edits after those that were added before, some at a time; pictures that they hold are let go one by
        one."""
        items: list[Item] = []
        tasks: list[tuple[int, Task]] = []
        for edit in edits:
            items.append(_outlined(edit))
            tasks += self._tasks_of(edit)
            if len(items) == _OUTLINED:
                self._keep(items, tasks)
                items, tasks = [], []
        self._keep(items, tasks)

    def _keep(self, items: Sequence[Item], tasks: Sequence[tuple[int, Task]]) -> None:
        if items:
            self._store.add_outline(self._run, items, self._edits, tasks, self._judges, resumed=self._resumed)
            self._edits += len(items)
            self.expected += len(tasks)

    def _tasks_of(self, edit: Edit) -> Iterator[tuple[int, Task]]:
        for stage in range(len(self._tasks)):
            for rubric, repeat, variant in task_places(edit, self._settings, stage):
                for judge in self._judges:
                    place = (edit.id, rubric, judge, repeat, variant)
                    key = text_hash(compact_json(["not planned", *place]))
                    yield self._tasks[stage], Task(edit.id, rubric, judge, repeat, key, variant)
                self._tasks[stage] += 1


def _outlined(edit: Edit) -> Item:
    """An edit as a store keeps it before its files are read. Pictures that it holds itself have no place to be known
    by, only their content."""
    known: dict[str, str] = {}
    for role, source in edit.all_pictures().items():
        if isinstance(source, bytes) or str(source).startswith("data:"):
            with suppress(Exception):  # one that cannot be read is said to be so when it is asked about
                known[role] = DigestCache().of(source) or ""
    return item_of(edit, known)


class Planner:
    """The tasks of one run over one store."""

    def __init__(
        self,
        store: Sink,
        run_id: int,
        settings: QuestionSettings,
        pictures: PictureReader | None = None,
        observe: Callable[[RunTally], None] = lambda _: None,
        claims: Claims | None = None,
        *,
        rehash: bool = False,
        outlining: bool = False,
    ) -> None:
        """`outlining`: the edits are a stream, whose outline is kept batch by batch as it is read."""
        self.tally = RunTally()
        self.observe = observe
        self.pictures = pictures or PictureReader()
        self._store, self._run, self._settings, self._rehash = store, run_id, settings, rehash
        self._in_flight: set[str] = set()
        """Keys that are planned or being asked: an answer that two tasks share is paid for once."""
        self._claims = claims
        self.stages, self.questions = len(settings.stages), settings.questions
        self._outlining = outlining
        self._positions: dict[tuple[str, int], int] = {}
        """Position of the next task, by judge and stage."""
        self._done: dict[str, str] = {}
        """Statuses of planned tasks that are done already. What is done stays so: it is not looked up again."""
        self._elsewhere: dict[str, Work] = {}
        """Tasks that another process is asking, by key."""

    def batches(self, judge: Judge, edits: Iterator[Edit], stage: int = 0) -> Iterator[list[Work]]:
        """All works of a judge in one stage, some edits at a time; items and tasks are stored before they are handed
        out.

        A batch ends early where its pictures fill three eighths of what the reader holds, so that each is still in
        memory when it is encoded: there are two batches at a time, and each may be an edit too large. Meant for a
        thread: reading and hashing pictures must not hold up answers.
        """
        edits_before = 0
        digests = DigestCache(self.pictures, rehash=self._rehash)
        sizes = itertools.chain((_FIRST_BATCH,), itertools.repeat(BATCH))
        outline = self._outline(judge) if self._outlining and stage == 0 else None
        while batch := list(itertools.islice(edits, next(sizes))):
            if outline:
                outline.add(batch)
            if len(digests) > _REMEMBERED:
                digests = DigestCache(self.pictures, rehash=self._rehash)
            if unknown := digests.unknown(source for edit in batch for source in edit.all_pictures().values()):
                digests.load(self._store.load_digests(sorted(unknown)))
            while batch:
                planned, count = self._plan(judge, batch, digests, stage)
                some, batch = batch[:count], batch[count:]
                known: dict[str, dict[str, str]] = {edit.id: {} for edit in some}
                latest: Mapping[str, str] | None = None
                for work in planned:
                    if work.digests is not latest or work.order:
                        known[work.edit.id].update(work.by_own_name(work.digests))
                        latest = work.digests
                items = [item_of(edit, digests_of(edit, digests, known[edit.id])) for edit in some]
                self._keep(judge, stage, items, edits_before, [work.task for work in planned], digests.dump())
                edits_before += len(items)
                yield planned

    def _outline(self, judge: Judge) -> Outline:
        return Outline(cast("Store", self._store), self._run, self._settings, [judge.spec], resumed=True)

    def _keep(
        self,
        judge: Judge,
        stage: int,
        items: list[Item],
        first: int,
        tasks: list[Task],
        learnt: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """A store keeps all in one transaction, and says of the tasks that it has already which are done."""
        from editjudge.store.store import Store

        tasks_before = self._positions.get((judge.spec, stage), stage * _STAGE)
        self._positions[judge.spec, stage] = tasks_before + len(tasks)
        if isinstance(self._store, Store):
            statuses = self._store.add_batch(self._run, items, first, tasks, tasks_before, learnt)
            self._done |= {key: status for key, status in statuses.items() if status in DONE}
        else:
            self._store.save_digests(learnt)
            self._store.add_items(self._run, items, first)
            self._store.add_tasks(self._run, tasks, tasks_before)

    def _plan(self, judge: Judge, edits: Sequence[Edit], digests: DigestCache, stage: int) -> tuple[list[Work], int]:
        """The works of the first edits, and of how many."""
        look = _looking(digests)
        planned: list[Work] = []
        before = digests.bytes_asked
        for count, edit in enumerate(edits, 1):
            digests.look_ahead(
                source for later in edits[: count + _AHEAD][count - 1 :] for source in later.all_pictures().values()
            )
            questions = EditQuestions(edit, self._settings, judge, look, self._answer)
            planned += questions.works(stage)
            self.tally.not_applicable += questions.not_applicable(stage)
            if digests.bytes_asked - before > 3 * self.pictures.budget // 8:
                return planned, count
        return planned, len(edits)

    def _answer(self, work: Work) -> Judgement | None:
        return self._store.judgement(work.task.key)

    @property
    def planned(self) -> int:
        """How many tasks of all judges were planned."""
        return sum(self._positions.values())

    async def not_done(self, planned: list[Work]) -> list[Work]:
        """What is neither answered nor being asked, claimed for this process. Keys count as in flight before the store
        is read, so that none can be committed in between and asked again."""
        keys = {work.task.key for work in planned}
        statuses = {key: status for key in keys if (status := self._done.pop(key, None))}
        fresh: dict[str, Work] = {}
        for work in planned if len(statuses) < len(keys) else ():
            if work.task.key not in self._in_flight and work.task.key not in statuses:
                fresh.setdefault(work.task.key, work)
        mine: set[str] = set()
        if fresh:
            self._in_flight.update(fresh)
            states = await asyncio.to_thread(claim_tasks, self._store, self._claims, fresh)
            mine, statuses = states.mine, statuses | states.statuses
            self._elsewhere |= {key: work for key, work in fresh.items() if key in states.elsewhere}
            self._in_flight -= {key for key in fresh if statuses.get(key) in DONE}
        for work in planned:
            if (status := statuses.get(work.task.key)) in DONE:
                self.tally.statuses[str(status)] += 1
                self.tally.cached += 1
            elif fresh.get(work.task.key) is not work:
                self.tally.cached += 1
        self.observe(self.tally)
        return [work for key, work in fresh.items() if key in mine]

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
