"""The rubric: factors with scales, the inputs that it shows, and the answer that it asks for.

Everything that depends on a range, a factor's name or a word limit (the question, the JSON schema, the
validator, a form in the browser, a column of a report) is derived from these objects.

To define your own rubric, write a YAML file with the fields of `Rubric` as keys, and pass its path as its name::

    name: sky
    description: Was the sky replaced, and nothing else?
    task: Judge how well the edited image follows the instruction about the sky.
    images: [input, edited]
    texts: [instruction]
    scale:
      values: [1, 2, 3]
    factors:
      - key: sky_replaced
        definition: Whether the sky is the one that the instruction asks for.
        anchors:
          - scores: [1]
            when: [The sky is as before.]
          - scores: [3]
            when: [The whole sky is the one asked for.]
    answer:
      envelope: results
      words: [5, 60]
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import itertools
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, assert_never

from editjudge.canonical import Json, json_hash
from editjudge.edit import IMAGE_ROLES, PAIR_ROLES, TEXT_ROLES, Edit
from editjudge.rubrics.expression import parse_when
from editjudge.rubrics.scale import (
    ADDED,
    FieldError,
    FileContent,
    Number,
    Scale,
    refuse,
)

Layout = Literal["images-first", "published", "exact"]
"""Form of a question. `images-first` lets rubrics and repeats of an edit share the long image prefix; `published`
keeps the order in which prompts are usually written; `exact` is a published prompt and nothing else.
"""

LAYOUTS: tuple[Layout, ...] = ("images-first", "published")
"""The layouts that every rubric has, in which our own words separate the inputs from the question."""

_ASKING = {"absent_at_default": True, "not_hashed": True}
"""Metadata of a field that selects edits or sets the number of questions. Such a field changes neither a question nor
its answer.
"""


@dataclass(frozen=True)
class Anchor(FileContent):
    """Description of when a factor deserves certain scores."""

    scores: tuple[Number, ...]
    when: tuple[str, ...]

    def __post_init__(self) -> None:
        refuse(
            (
                not self.scores,
                "no_scores",
                "an anchor names the scores it is for",
                "scores",
            )
        )


@dataclass(frozen=True)
class Factor(FileContent):
    """One aspect of an edit that is scored."""

    key: str
    """Exact name in the answer."""
    scale: Scale
    title: str = ""
    definition: str = ""
    examine: tuple[str, ...] = ()
    """Aspects to examine."""
    consider: tuple[str, ...] = ()
    """Rules for judging, such as expectations, or how to distinguish two cases."""
    excludes: str = ""
    """Aspects that do not belong to the factor."""
    anchors: tuple[Anchor, ...] = ()
    label: str = field(default="", metadata=ADDED)
    """Exact text before the colon in an answer of lines; by default the key."""
    heading: str = field(default="", metadata=ADDED)
    """Heading (`Heading:`) above the line in an answer of lines, if the same label occurs below several headings."""
    path: str = field(default="", metadata=ADDED)
    """Path of the score in a nested answer, as keys joined by dots; by default the key."""
    reason_path: str = field(default="", metadata=ADDED)
    """Path of the reason in a nested answer; empty if the factor shares a reason or has none."""

    def __post_init__(self) -> None:
        scores = itertools.chain(*(anchor.scores for anchor in self.anchors))
        self.scale.check_scores("anchors", scores)


OTHER_KINDS = ("integer", "number", "boolean", "string")
FREE_KINDS = ("list", "object")
"""Kinds of values that are asked for and not scored. A value of a free kind may hold anything."""


AnswerForm = Literal[
    "entries", "scores", "list", "nested", "lines", "token", "marked", "text"
]


@dataclass(frozen=True)
class AnswerFormat(FileContent):
    """Format of a reply: a JSON object, labelled lines, one word or a mark, and the text around it."""

    id_key: str | None = None
    """Key under which the answer repeats the identifier of the question."""
    envelope: str = ""
    """Key of the object with the factors; empty if they are at the top level."""
    form: AnswerForm = "entries"
    """Form of the answer. In JSON, each factor is an object with score and reason (`entries`), a bare score
    (`scores`), an item of one list (`list`), or a value at its `path` (`nested`). Without JSON, there is a line for
    each factor, `Label: 4` (`lines`), the score is the whole reply (`token`), or one of the choices, such as
    `[[A>B]]`, is anywhere in the reply (`marked`). A reply of the form `text` is a text for later rubrics, without
    any score.
    """
    score_key: str = "score"
    reason_key: str = "justification"
    """Key of the reason inside an entry; empty if no reason is asked for."""
    texts: tuple[str, ...] = ()
    """Keys of free texts. The first text is the reason for every factor without one."""
    others: tuple[str, ...] = field(default=(), metadata=ADDED)
    """Values of a JSON answer that are asked for but not scored, as key (or path) and kind: `confidence: number`,
    `changes: string[]`. A `list` or an `object` may hold anything, so a question that asks for one sends no schema.
    """
    quoted: bool = field(default=False, metadata=ADDED)
    """Whether numbers may be in quotation marks. What is between them must be the number alone."""
    prose: bool = field(default=False, metadata=ADDED)
    """Whether prose is asked for before the JSON. It is the reason for each factor without one."""
    words: tuple[int, int] | None = None
    """Minimum and maximum number of words of a reason."""
    reason: str = ""
    """Description of a reason, if it has no word limits."""
    sections: tuple[str, ...] = ()
    """Headings of the reasoning before the JSON, in order; the last one is above the JSON itself."""
    keys: tuple[str, ...] = field(default=(), metadata=ADDED)
    """Keys or labels of an answer in the order of the prompt; empty for the default order."""
    sends_schema: bool = field(default=False, metadata=ADDED)
    """Whether a JSON schema is requested in the layout `exact`, because the published program sends one."""

    def __post_init__(self) -> None:
        form = self.form
        least, most = self.words or (0, 0)
        kinds = {other.partition(": ")[2].removesuffix("[]") for other in self.others}
        free = [f"{kind}[]" for kind in FREE_KINDS]
        free = [other for other in self.others if other.endswith(tuple(free))]
        refuse(
            (
                form == "list" and not self.envelope,
                "no_envelope",
                "form list: expected an envelope, the key of the list",
                "envelope",
            ),
            (
                not self.is_json and (self.id_key or self.envelope or self.sections),
                "not_json_form",
                f"form {form}: id_key, envelope and sections are only for JSON; remove them",
                "form",
            ),
            (
                form in ("token", "text") and self.texts,
                "texts_of_token",
                f"form {form}: it is the whole reply; remove texts",
                "form",
            ),
            (
                not self.is_json and (self.others or self.quoted or self.prose),
                "not_json_form",
                f"form {form}: others, quoted and prose are only for JSON; remove them",
                "others",
                "quoted",
                "prose",
            ),
            (
                free or not kinds <= {*OTHER_KINDS, *FREE_KINDS},
                "bad_others",
                f"others {list(self.others)!r:.80}: expected KEY: KIND, the kind one of {', '.join(OTHER_KINDS)}, one "
                f"of these followed by [] (a list of them), or {' or '.join(FREE_KINDS)} (of anything)",
                "others",
            ),
            (
                self.prose and self.sections,
                "prose_and_sections",
                "prose: not for an answer with sections, which are prose with headings",
                "prose",
            ),
            (
                form == "nested" and self.envelope,
                "envelope_of_nested",
                "form nested: paths begin at the top level; remove the envelope",
                "form",
            ),
            (
                not 0 <= least <= most,
                "words_reversed",
                f"words {[least, most]}: expected the least number before the largest",
                "words",
            ),
        )

    @property
    def has_schema(self) -> bool:
        """Whether a JSON schema can describe the reply: it is nothing but JSON, without values of a free kind."""
        is_free = any(other.endswith(FREE_KINDS) for other in self.others)
        return self.is_json and not (self.sections or self.prose or is_free)

    @property
    def is_json(self) -> bool:
        match self.form:
            case "entries" | "scores" | "list" | "nested":
                return True
            case "lines" | "token" | "marked" | "text":
                return False
            case _:
                assert_never(self.form)


@dataclass(frozen=True)
class Consistency(FileContent):
    """A rule that the score must agree with a list. The marks at the ends of the list's lines determine the score."""

    section: str
    """Heading above the list."""
    passes: tuple[str, ...]
    fails: tuple[str, ...]
    """Failing marks. A single line with such a mark requires the failing score."""
    factor: str
    pass_score: int
    fail_score: int


@dataclass(frozen=True)
class Slot(FileContent):
    """A position in a published prompt where an input is inserted."""

    mark: str
    """Exact text of the mark in the prompt."""
    role: str
    keep: bool = False
    """Whether the mark stays and the input follows it, as for a heading. A placeholder is replaced instead."""
    given: str = field(default="", metadata=ADDED)
    """Text in the place of the mark if the edit has the input. It may contain other marks."""
    missing: str = field(default="", metadata=ADDED)
    """Text in the place of the mark if the edit does not have the input. It may contain other marks."""

    @property
    def is_condition(self) -> bool:
        """Whether the mark is replaced by words that depend on the input, and not by the input itself."""
        return bool(self.given or self.missing)

    @property
    def is_image_part(self) -> bool:
        """Whether a recipe put an image here, between two texts. If so, the judge does not see the mark."""
        return self.mark == image_part_mark(self.role)


NEW_PART = Slot("<new part>", "")
"""Slot at which a published program begins another text part of its message."""


def image_part_mark(role: str) -> str:
    """Return the mark that represents an image between two prompt texts in a template."""
    return f"<picture: {role}>"


def text_part_mark(role: str) -> str:
    """Return the mark that represents an input text in a template, as a separate part between two prompt texts."""
    return f"<input: {role}>"


@dataclass(frozen=True)
class Template(FileContent):
    """Exact text of a published prompt, with the slots for its inputs."""

    text: str
    slots: tuple[Slot, ...] = ()
    braces: Literal["literal", "format"] = "literal"
    """`format`: literal braces are doubled, as in Python's str.format."""
    adds_answer_format: bool = False
    """Whether our description of the answer is appended, since the prompt does not ask for JSON."""
    unmarked_images: Literal["before", "after"] = field(
        default="before", metadata=ADDED
    )
    """Place of images without a mark in the layout `exact`: before the text or after it."""


@dataclass(frozen=True)
class InputSettings(FileContent):
    """How an input is shown that needs more than its name."""

    name: str
    optional: bool = False
    """Whether the question is asked without the input if the edit does not have it."""
    caption: str = field(default="", metadata=ADDED)
    """Text before each image, in which `{n}` is its number in the list."""


@dataclass(frozen=True)
class Rubric(FileContent):
    """A question for a judge, with its inputs and the rules for its answer."""

    name: str
    images: tuple[str, ...]
    """Images or lists of images, given by their names in the manifest."""
    factors: tuple[Factor, ...]
    answer: AnswerFormat
    texts: tuple[str, ...] = ()
    """Input texts, given by their names in the manifest. An empty text counts as missing, unless it is a referring
    expression.
    """
    inputs: tuple[InputSettings, ...] = field(default=(), metadata=ADDED)
    """Settings of images and texts, such as `{name: references, optional: true}`."""
    description: str = ""
    """One line for users who choose a rubric. Judges do not see it."""
    role: str = ""
    task: str = ""
    scope: tuple[str, ...] = ()
    """Aspects that are, or are not, to be judged."""
    allowed: tuple[str, ...] = ()
    """Differences that do not lower the score."""
    forbidden: tuple[str, ...] = ()
    """Differences that fail the edit."""
    ignored: tuple[str, ...] = ()
    """Differences that are not judged."""
    steps: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    consistency: Consistency | None = None
    example: str = ""
    """An answer that the contract accepts, for users. Judges do not see it, since they would anchor on its scores."""
    template: Template | None = None
    """Prompt of an imported rubric. Its text is the question."""
    members: tuple[Rubric, ...] = ()
    """Rubrics of a fused set, which are combined in one question."""
    computed_by: str = field(default="", metadata=ADDED)
    """The only judge that answers the rubric: a program that computes the factors. The factors are different kinds of
    quantities, so people do not rate them and they are not averaged.
    """
    system: str = field(default="", metadata=ADDED)
    """System message before the question."""
    layout: Layout | None = field(default=None, metadata=ADDED)
    """Layout of the question, unless a run sets one."""
    reason: Literal["before", "after"] = field(default="before", metadata=ADDED)
    """Whether the reason is asked for before or after the score. Models write in this order."""
    when: str = field(default="", metadata=_ASKING)
    """Condition (see `editjudge.rubrics.expression`) that selects the edits to ask about."""
    for_each: str = field(default="", metadata=_ASKING)
    """Column with a list. The question is asked once for each element, named `each`, with fields such as
    `each.question`.
    """
    after: str | tuple[str, ...] = field(default="", metadata=_ASKING)
    """Earlier rubrics of the set, whose answers are available as the text `earlier`."""
    samples: int = field(default=1, metadata=_ASKING)
    """Number of questions in each repeat of a run."""

    def __post_init__(self) -> None:
        scales = {factor.key: factor.scale for factor in self.factors}
        keys = [factor.key for factor in self.factors]
        refuse(
            (
                not keys and not self.values,
                "no_factors",
                "a rubric needs at least one factor, or an answer for later rubrics (form text, texts or others)",
                "factors",
            ),
            (
                keys and self.answer.form == "text",
                "factors_of_text",
                "form text: a text has no scores; remove the factors, or choose another form",
                "factors",
            ),
            (
                len(scales) < len(keys),
                "factor_twice",
                f"factor keys must differ: {keys}",
                "factors",
            ),
            (
                len({bool(scale.choices) for scale in scales.values()}) > 1,
                "scores_and_choices",
                "some factors have choices and others do not: expected scores for all factors, or choices for all",
                "factors",
            ),
            (
                not self.images or len({*self.images}) < len(self.images),
                "bad_images",
                "a rubric needs at least one image, and each only once",
                "images",
            ),
        )
        _check_names("images", self.images, IMAGE_ROLES, TEXT_ROLES)
        _check_names("texts", self.texts, TEXT_ROLES, IMAGE_ROLES)
        self._check_asking()
        refuse(
            (
                self.reason == "after" and self.template,
                "template_order",
                "reason: after: not for an imported prompt, which has its own order",
                "reason",
            ),
            (
                self.reason == "after" and self.answer.sections,
                "sections_order",
                "reason: after: not for an answer with sections, which puts the reasoning first",
                "reason",
            ),
        )
        names = self._answer_names()
        refuse(
            (
                len({*names}) < len(names),
                "key_twice",
                f"keys of the answer must differ: {names}",
                "answer",
            )
        )
        self._check_form(names)
        self._check_keys(names)
        self._check_parts()
        if self.layout == "exact" and (fault := self.fault_of_exact):
            code, message = fault
            raise FieldError(message, "layout", code=code)
        if self.consistency:
            self._check_consistency(self.consistency, scales)

    @staticmethod
    def _check_consistency(rule: Consistency, scales: Mapping[str, Scale]) -> None:
        refuse(
            (
                rule.factor not in scales,
                "unknown_factor",
                f"consistency names the factor {rule.factor!r}, which the rubric does not have",
                "consistency",
            )
        )
        scores = (rule.pass_score, rule.fail_score)
        refuse(
            (
                not all(map(scales[rule.factor].has, scores)),
                "off_the_scale",
                f"consistency gives {rule.factor!r} a score that is not on its scale",
                "consistency",
            )
        )

    def _answer_names(self) -> list[str]:
        """Return the top-level keys of an answer, the labels of its lines, or the paths of a nested answer."""
        answer = self.answer
        names = [answer.id_key or "", *answer.texts]
        if answer.form == "nested":
            names += [factor.path or factor.key for factor in self.factors]
            names += [factor.reason_path for factor in self.factors]
        elif answer.envelope:
            names.append(answer.envelope)
        else:
            names += map(self.label, self.factors)
        names += [other.partition(":")[0] for other in answer.others]
        return [name for name in names if name]

    def label(self, factor: Factor) -> str:
        """Return the name that a factor has in an answer."""
        if self.answer.form != "lines":
            return factor.key
        label = factor.label or factor.key
        return f"{factor.heading} > {label}" if factor.heading else label

    def _check_form(self, names: list[str]) -> None:
        form = self.answer.form
        refuse(
            (
                not self.factors and form in ("list", "lines", "token", "marked"),
                "no_factors",
                f"form {form}: a rubric needs at least one factor",
                "factors",
            )
        )
        split = {name: path_keys(name) for name in names}
        prefixes = {keys[:n] for keys in split.values() for n in range(len(keys))}
        paths = [n for n, keys in split.items() if keys in prefixes or "" in keys]
        paths += [
            n
            for n, keys in split.items()
            if _leaves_gap(keys, prefixes | {*split.values()})
        ]
        labels = [
            n for n in names if n != n.strip(" \t") or not n.isprintable() or ":" in n
        ]
        refuse(
            (
                form in ("token", "marked") and len(self.factors) > 1,
                "several_factors",
                f"form {form}: one reply is one score, so the rubric has one factor",
                "factors",
            ),
            (
                len({bool(factor.heading) for factor in self.factors}) > 1,
                "some_headings",
                "heading: expected for all factors or for none",
                "factors",
            ),
            (
                not self.answer.is_json and self.consistency,
                "differences_not_json",
                f"form {form}: consistency needs sections, which are only for JSON",
            ),
            (
                form == "lines" and labels,
                "bad_label",
                f"label {labels[:1]!r:.80}: expected one line without a colon or space at its ends",
            ),
            (
                form == "nested" and paths,
                "bad_path",
                f"path {paths[:1]!r:.80}: expected keys with dots between them, none of them a score; the items of a "
                "list are LIST[0], LIST[1] and so on, without a gap",
            ),
        )
        if form == "marked":
            choices = self.factors[0].scale.choices
            ends = "".join(choice[:1] + choice[-1:] for choice in choices)
            refuse(
                (
                    not choices or any(map(str.isalnum, ends)),
                    "bad_marks",
                    "form marked: expected choices such as [[A>B]], without a letter or digit at their ends",
                ),
                (
                    any(a in b for a, b in itertools.permutations(choices, 2)),
                    "mark_in_mark",
                    "form marked: expected choices that do not contain each other",
                ),
            )

    def _check_keys(self, names: list[str]) -> None:
        """Raise `FieldError` if `answer.keys` has a duplicate, or a name that is not a key of the answer."""
        answer = self.answer
        keys = {*names}
        if answer.form == "nested":
            keys = {key for name in names for key in path_keys(name)}
        if answer.form in ("entries", "scores"):
            keys |= {factor.key for factor in self.factors}
        if answer.form == "entries":
            keys |= {answer.score_key, answer.reason_key}
        wrong = [
            key for key in answer.keys if key not in keys or answer.keys.count(key) > 1
        ]
        refuse(
            (
                wrong,
                "unknown_key",
                f"keys list {wrong}; expected keys of the answer, each once",
                "answer",
            ),
        )

    def _check_parts(self) -> None:
        """Raise `FieldError` if the template has an input that the rubric does not show. The judge would see a
        placeholder in its place.
        """
        names = [settings.name for settings in self.inputs]
        listed = {*self.images, *self.texts}
        unknown = [name for name in names if name not in listed]
        captions = {settings.name for settings in self.inputs if settings.caption}
        refuse(
            (
                unknown or len({*names}) < len(names),
                "unknown_input",
                f"inputs: found {', '.join(unknown or names)}; expected names of images or texts of the rubric, each "
                f"once: {', '.join(sorted(listed))}",
                "inputs",
            ),
            (
                captions & {*self.texts},
                "caption_of_a_text",
                "inputs: caption: only for images",
                "inputs",
            ),
        )
        for slot in self.template.slots if self.template else ():
            refuse(
                (
                    slot.is_condition and slot.role not in listed,
                    "input_not_listed",
                    f"template: {slot.mark} depends on {slot.role}, which neither `images` nor `texts` lists",
                    "template",
                ),
                (
                    slot.is_image_part and slot.role not in self.images,
                    "image_not_listed",
                    f"template: {slot.mark} is an image that `images` does not list",
                    "template",
                ),
                (
                    slot.mark == text_part_mark(slot.role)
                    and slot.role not in self.texts,
                    "text_not_listed",
                    f"template: {slot.mark} is a text that `texts` does not list",
                    "template",
                ),
            )

    @functools.cached_property
    def fault_of_exact(self) -> tuple[str, str] | None:
        """Code and message of the reason why there is no question in the layout `exact`; None if there is one."""
        template = self.template
        if template is None:
            return (
                "no_template",
                f"{self.name} has no published text: the layout exact needs `template`",
            )
        if template.adds_answer_format:
            return (
                "adds_answer_format",
                f"{self.name}: the layout exact appends no answer format; remove adds_answer_format",
            )
        roles = {slot.role for slot in template.slots if not slot.is_condition}
        if lost := [text for text in self.texts if text not in {*roles, EARLIER}]:
            return (
                "text_without_slot",
                f"{self.name}: the layout exact shows a text only at a slot, and {', '.join(lost)} has none; it has "
                f"slots for {', '.join(sorted(roles)) or 'nothing'}",
            )
        return None

    def _check_asking(self) -> None:
        if self.when:
            parse_when(self.when)
        if self.told and EARLIER not in self.texts:
            object.__setattr__(self, "texts", (*self.texts, EARLIER))
        texts, images = (
            [n for n in names if n.split(".")[0].rpartition("@")[2] == EACH]
            for names in (self.texts, self.images)
        )
        kind = "texts" if texts else "images"
        of_element = texts + images
        refuse(
            (
                self.for_each and not _DOTTED.fullmatch(self.for_each),
                "bad_column",
                f"for_each {self.for_each!r:.80}: expected a column of the manifest, such as checks",
                "for_each",
            ),
            (
                not 1 <= self.samples <= MAX_SAMPLES,
                "bad_samples",
                f"samples: expected 1 to {MAX_SAMPLES}",
                "samples",
            ),
            (
                EARLIER in self.texts and not self.told,
                "no_earlier_rubric",
                f"texts list {EARLIER}, the answer of another rubric: name it with `after`",
                "texts",
            ),
            (
                self.for_each and not of_element,
                "element_not_shown",
                f"for_each: nothing of an element is shown; list {EACH} or {EACH}.FIELD under texts",
                "for_each",
            ),
            (
                of_element and not self.for_each,
                "no_for_each",
                f"{kind} list {', '.join(of_element)}, a part of an element: name the list with `for_each`",
                kind,
            ),
            (
                self.for_each and self.pairwise,
                "element_of_a_pair",
                "for_each: a pair is asked about as a whole, in both orders",
                "for_each",
            ),
        )

    def __hash__(self) -> int:
        return hash(self.hash)  # makes functions of a rubric cacheable

    def factor(self, key: str) -> Factor:
        """Return the factor with this key. Raise `StopIteration` if there is none."""
        return next(factor for factor in self.factors if factor.key == key)

    @functools.cached_property
    def optional(self) -> frozenset[str]:
        """Names of the inputs that an edit need not have."""
        return frozenset(each.name for each in self.inputs if each.optional)

    @functools.cached_property
    def captions(self) -> Mapping[str, str]:
        """Texts before images, keyed by the images' names."""
        return {each.name: each.caption for each in self.inputs if each.caption}

    def image_names(self, edit: Edit) -> tuple[str, ...]:
        """Return the names of an edit's images that the rubric shows. Each image of a list has its own name, and
        optional images that the edit does not have are left out.
        """
        names: list[str] = []
        for role in self.images:
            of_role = edit.image_names(role)
            has_any = any(edit.image(name) is not None for name in of_role)
            names += of_role if has_any or role not in self.optional else ()
        return tuple(names)

    @property
    def told(self) -> tuple[str, ...]:
        """Names of the earlier rubrics whose answers are the text `earlier`."""
        if not self.after:
            return ()
        return self.after if isinstance(self.after, tuple) else (self.after,)

    @property
    def values(self) -> tuple[str, ...]:
        """Names of the values in an answer that later rubrics may use: factors, texts and values without a score."""
        others = (other.partition(":")[0] for other in self.answer.others)
        text = (STAGE_TEXT,) if self.answer.form == "text" else ()
        return (
            *(factor.key for factor in self.factors),
            *self.answer.texts,
            *others,
            *text,
        )

    @property
    def pairwise(self) -> bool:
        """Whether the rubric shows two outputs and asks which is better."""
        return {*PAIR_ROLES} <= {*self.images}

    @property
    def chooses(self) -> bool:
        """Whether answers are choices instead of scores."""
        return bool(self.factors and self.factors[0].scale.choices)

    def content(self) -> Json:
        """Return the rubric as plain data, in the form that is stored and hashed."""
        return dict(
            plain_content(
                self,
                lambda f, item: (
                    f.metadata.get("absent_at_default") and item == f.default
                ),
            )
        )

    @functools.cached_property
    def hash(self) -> str:
        """Hash of everything that can change the question or the verdict. Name and description are not included."""
        content = self.content()
        for part in (content, *content["members"]):
            for key in ("name", "description", "example", *ASKING):
                part.pop(key, None)
        return json_hash(content, "compact_utf8")

    def contract(self) -> Json:
        """Return a description of the inputs and the answer, for comparing rubrics."""
        location = {"nested": "path", "lines": "label"}.get(self.answer.form)
        factors = [
            {"key": f.key}
            | f.scale.contract()
            | ({location: getattr(f, location) or f.key} if location else {})
            for f in self.factors
        ]
        answer = self.answer
        contract: Json = {
            "name": self.name,
            "hash": self.hash,
            "images": list(self.images),
            "texts": list(self.texts),
            "factors": factors,
            "envelope": answer.envelope,
            "justification_words": list(answer.words) if answer.words else None,
            "sections": list(answer.sections),
        }
        if answer.form == "nested" or not answer.is_json:
            contract["form"] = answer.form
        if self.system:
            contract["system"] = self.system
        unscored = {
            "others": list(answer.others),
            "quoted": answer.quoted,
            "prose": answer.prose,
        }
        contract |= {name: value for name, value in unscored.items() if value}
        return contract


ASKING = tuple(
    f.name for f in dataclasses.fields(Rubric) if f.metadata.get("not_hashed")
)
"""Fields that determine for which edits, how often and after which other rubric a rubric is asked."""
EACH = "each"
EARLIER = "earlier"
"""Name of the current list element, and name of the answer to an earlier rubric."""
STAGE_TEXT = "text"
"""Name of the text that is the whole reply of a rubric without scores."""
MAX_SAMPLES = 100
_INPUT_NAME = re.compile(
    r"[^\W\d][\w-]{0,63}(?:\[[1-9]\d?\])?(?:@[^\W\d][\w.-]{0,99})?"
)
_DOTTED = re.compile(r"[^\W\d][\w-]{0,63}(?:\.[\w-]{1,64}){0,4}")
_IDENTITY = ("id", "model", "model_a", "model_b", "group")
"""Columns that identify an edit, which a judge must not see."""


def path_keys(path: str) -> tuple[str, ...]:
    """Return the keys of a path in a nested answer. The items of a list have the keys `[0]`, `[1]` and so on."""
    return tuple(_INDEX.sub(r".[\1]", path).split("."))


_INDEX = re.compile(r"(?<!\.)\[(0|[1-9]\d?)\]")


def is_index(key: str) -> bool:
    """Whether a key of a path is an item of a list."""
    return bool(_INDEX.fullmatch(key))


def _leaves_gap(keys: tuple[str, ...], known: Collection[tuple[str, ...]]) -> bool:
    """Whether a path has an item of a list without the item before it, or an item beside a key."""
    for n, key in enumerate(keys):
        parent = keys[:n]
        siblings = {k[n] for k in known if len(k) > n and k[:n] == parent}
        if is_index(key) and siblings != {f"[{i}]" for i in range(len(siblings))}:
            return True
    return False


def _check_names(
    kind: str, wanted: tuple[str, ...], usual: tuple[str, ...], others: tuple[str, ...]
) -> None:
    form = _INPUT_NAME if kind == "images" else _DOTTED
    other_kind = "texts" if kind == "images" else "images"
    for wanted_name in wanted:
        name = wanted_name if kind == "texts" else wanted_name.partition("@")[0]
        # `edited_a` and `inputs` may be other columns; `edite` is a typo.
        meant = [
            role
            for role in difflib.get_close_matches(name, usual, 1, cutoff=0.8)
            if not name.startswith(role)
        ]
        refuse(
            (
                not form.fullmatch(wanted_name),
                "bad_column",
                f"{kind} list {wanted_name!r:.80}; expected a column of the manifest, such as references",
                kind,
            ),
            (
                name in others,
                "wrong_list",
                f'{kind} list "{name}", which belongs under {other_kind}',
                kind,
            ),
            (
                name in _IDENTITY,
                "identity_shown",
                f'{kind} list "{name}": it identifies the edit, which a judge must not know',
                kind,
            ),
            (
                meant,
                "mistyped_input",
                f'{kind} list "{name}"; did you mean "{"".join(meant)}"?',
                kind,
            ),
        )


def plain_content(
    value: object, hidden: Callable[[dataclasses.Field[object], object], object]
) -> Any:
    """Return a value as plain data: tuples become lists, and fields for which `hidden` is true are left out. Callers
    hide newer fields that have their default, so hashes of older content stay the same.
    """
    if dataclasses.is_dataclass(value):
        content = {}
        for f in dataclasses.fields(value):
            item = getattr(value, f.name)
            if not hidden(f, item):
                content[f.name] = plain_content(item, hidden)
        return content
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return [plain_content(item, hidden) for item in value]
    return value
