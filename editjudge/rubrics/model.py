"""What a rubric is: factors on scales, the inputs it shows, and the answer it asks for.

Everything that depends on a range, a factor's name or a word limit (the question, the JSON schema, the
validator, a form in the browser, a column of a report) derives from these objects.

A rubric of your own is a YAML file; its keys are the fields of `Rubric`, and its path goes where a rubric's name goes::

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

import builtins
import dataclasses
import difflib
import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Literal

from editjudge.canonical import json_hash
from editjudge.edit import IMAGE_ROLES, PAIR_ROLES, TEXT_ROLES
from editjudge.rubrics.conditions import parse_when

Number = int | float


class WrittenNumber(str):
    """A number that is not a plain integer, as it was written: 6.0 and -0 are not what was asked for."""

    __slots__ = ()


class FileContent:
    """What is read from a file by pydantic: a key that is not a field is an error, not a comment."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}


_ADDED: Any = {"absent_at_default": True}
"""For a field that is younger than the hashes in stores: while it has its default, it is not part of the content."""


_ASKING: Any = {"absent_at_default": True, "not_hashed": True}
"""For a field that says which edits are asked about and how often: it changes neither a question nor its answer."""


@dataclass(frozen=True)
class Scale(FileContent):
    """The legal answers of a factor, of one kind: integers (`values`), decimals (`range`) or words (`choices`)."""

    values: tuple[int, ...] = ()
    """In the order in which the question names them."""
    labels: Mapping[int, str] = field(default_factory=dict)
    """What single values mean, such as the seven Likert labels."""
    range: tuple[Number | None, Number | None] | None = field(default=None, metadata=_ADDED)
    """The lowest and the highest decimal; None where that end is open, as for PSNR."""
    step: Number | None = field(default=None, metadata=_ADDED)
    """Distance between neighbouring decimals, counted from the lowest; None where any decimal is legal."""
    direction: Literal["up", "down"] = field(default="up", metadata=_ADDED)
    """`down`: lower is better, as for a distance."""
    choices: tuple[str, ...] = field(default=(), metadata=_ADDED)
    """Words to choose from, none of which is a number."""
    abstain: tuple[str, ...] = field(default=(), metadata=_ADDED)
    """Words such as N/A that may stand in the place of a score, and leave the factor without one."""
    boolean: bool = field(default=False, metadata=_ADDED)
    """The values are 0 and 1, and JSON says them as false and true."""

    def __post_init__(self) -> None:
        if [bool(self.values), self.range is not None, bool(self.choices)].count(True) != 1:
            raise ValueError("a scale has either values (integers), a range (decimals) or choices (words)")
        options, kind = (self.choices, "choice") if self.choices else (self.values, "value")
        if self.range is None and len(options) < 2:
            raise ValueError(f"a scale needs at least two {kind}s")
        if len(set(options)) != len(options):
            raise ValueError(f"a scale names each {kind} once")
        if self.range is None and self.step is not None:
            raise ValueError("step: only a range has one")
        if self.choices and self.direction == "down":
            raise ValueError("direction: choices have none")
        if len({*self.abstain, *self.choices}) < len(self.abstain) + len(self.choices) or "" in self.abstain:
            raise ValueError("abstain: each word once, and none that is a choice")
        if self.boolean and sorted(self.values) != [0, 1]:
            raise ValueError("boolean: its values are 0 and 1")
        if self.range is not None:
            self._check_range(self.range)
        if stray := sorted(label for label in self.labels if not self.has(label)):
            raise ValueError(f"labels for {stray}, which are not on the scale: {self.words}")

    def _check_range(self, ends: tuple[Number | None, Number | None]) -> None:
        # Whole numbers as integers, so that 1 and 1.0 are the same content.
        low, high = map(_plain_number, ends)
        object.__setattr__(self, "range", (low, high))
        object.__setattr__(self, "step", _plain_number(self.step))
        if low is not None and high is not None and low >= high:
            raise ValueError(f"range {list(ends)}: the lowest comes before the highest")
        if self.step is not None and self.step <= 0:
            raise ValueError("step: more than 0")
        if self.step is not None and high is not None and self.read(high) is None:
            raise ValueError(f"range {list(ends)}: steps of {self.step} from {low or 0} do not end at {high}")

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Scale:
        """From plain data, as a store keeps it: keys of labels are text there, and tuples are lists."""
        known = {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}
        return cls(**known | {"labels": {int(key): text for key, text in content.get("labels", {}).items()}})

    @property
    def low(self) -> Number | None:
        """The lowest score; None where that end is open, and for choices. So for the other ends."""
        return self.range[0] if self.range else min(self.values, default=None)

    @property
    def high(self) -> Number | None:
        return self.range[1] if self.range else max(self.values, default=None)

    @property
    def worst(self) -> Number | None:
        return self.low if self.direction == "up" else self.high

    @property
    def best(self) -> Number | None:
        return self.high if self.direction == "up" else self.low

    def share(self, score: float) -> float | None:
        """Where a score lies between the worst, 0, and the best, 1; None where an end is open."""
        worst, best = self.worst, self.best
        return None if worst is None or best is None else (score - worst) / (best - worst)

    @property
    def steps(self) -> tuple[Number, ...]:
        """Every legal score from the lowest on, where they can be counted: up to 101, as for a percentage."""
        if self.values:
            return tuple(sorted(self.values))
        low, high = self.low, self.high
        if self.step is None or low is None or high is None:
            return ()
        count = (_exact(high) - _exact(low)) / _exact(self.step)
        if count > 100:
            return ()
        values = (_exact(low) + n * _exact(self.step) for n in builtins.range(int(count) + 1))
        return tuple(int(value) if value == int(value) else float(value) for value in values)

    def accepts(self, value: object) -> bool:
        """Whether this is a legal score; a bool or a string never is, nor 6.0 where integers are asked for."""
        return self.read(value) is not None

    def has(self, score: Number) -> bool:
        """Whether a number is one of the scores, however an answer says it: 1 is, where answers say true."""
        return score in self.values if self.boolean else self.accepts(score)

    def in_answer(self, score: Number) -> str:
        """A score as an answer says it."""
        return str(bool(score)).lower() if self.boolean else str(score)

    def read(self, value: object) -> Number | None:
        """The score that a value of strict JSON stands for, or None: nothing is rounded to fit.

        A number that is no plain integer comes as it was written, so that 0.30000000000000001 is not 0.3.
        """
        if self.boolean and type(value) is bool:
            return int(value)
        if self.values:
            return value if type(value) is int and value in self.values and not self.boolean else None
        if self.range is None or type(value) not in (int, float, WrittenNumber) or len(str(value)) > _MAX_DIGITS:
            return None
        number = float(value)  # type: ignore[arg-type]  # one of the three types above
        if not math.isfinite(number) or (not number and re.search("[1-9]", str(value).lower().partition("e")[0])):
            return None  # no float has it: 1e999, 1e-999
        low, high = self.range
        written = Fraction(str(value))
        if (low is not None and written < _exact(low)) or (high is not None and written > _exact(high)):
            return None
        if self.step is not None and (written - _exact(low or 0)) % _exact(self.step):
            return None
        return value if type(value) is int else number + 0.0  # adding zero makes -0 a plain one

    @property
    def words(self) -> str:
        """The scale as the question says it: 'an integer from 1 to 7', '5, 3 or 1', 'a number from 0 to 1'."""
        otherwise = " or ".join(f'"{word}"' for word in self.abstain)
        return f"{self._words}, or {otherwise} where it does not apply" if otherwise else self._words

    @property
    def _words(self) -> str:
        if self.boolean:
            return "true or false"
        if self.choices:
            return " or ".join(", ".join(f'"{choice}"' for choice in self.choices).rsplit(", ", 1))
        better = "; lower is better" if self.direction == "down" else ""
        if self.range is not None:
            low, high = self.range
            steps = f" in steps of {self.step}" if self.step else ""
            if low is None or high is None:
                ends = f" of {low} or more" if low is not None else f" of {high} or less" if high is not None else ""
            else:
                ends = f" from {low} to {high}"
            return f"a number{ends}{steps}{better}"
        values = self.values
        if len(values) > 2 and list(values) == list(builtins.range(values[0], values[0] + len(values))):
            return f"an integer from {values[0]} to {values[-1]}{better}"
        return ", ".join(map(str, values[:-1])) + f" or {values[-1]}{better}"

    def json_schema(self) -> dict[str, Any]:
        """Without `minimum`, `maximum` and `multipleOf`, which some strict modes refuse: the words say the range."""
        if self.abstain:
            words = {"type": "string", "enum": list(self.abstain)}
            return {"anyOf": [dataclasses.replace(self, abstain=()).json_schema(), words]}
        if self.boolean:
            return {"type": "boolean"}
        if self.choices:
            return {"type": "string", "enum": list(self.choices)}
        if self.values:
            return {"type": "integer", "enum": list(self.values)}
        if self.steps:
            return {"type": "number", "enum": list(self.steps)}
        return {"type": "number", "description": self.words}

    def contract(self) -> dict[str, Any]:
        """What two factors are compared by."""
        also: dict[str, Any] = {"abstain": list(self.abstain)} if self.abstain else {}
        also |= {"boolean": True} if self.boolean else {}
        if self.choices:
            return {"choices": list(self.choices)} | also
        if self.range is not None:
            return {"range": list(self.range), "step": self.step, "direction": self.direction} | also
        return {"values": list(self.values)} | ({"direction": "down"} if self.direction == "down" else {}) | also


_MAX_DIGITS = 40
"""Characters of a number: longer ones are no score, and exact arithmetic on a megabyte of digits never ends."""


def _plain_number(value: Number | None) -> Number | None:
    if value is None:
        return None
    if not math.isfinite(value):
        raise ValueError("range and step are finite; an end that is open is null")
    return int(value) if value == int(value) else float(value)


def _exact(value: Number) -> Fraction:
    return Fraction(str(value))


@dataclass(frozen=True)
class Anchor(FileContent):
    """When a factor deserves certain scores."""

    scores: tuple[Number, ...]
    when: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.scores:
            raise ValueError("an anchor names the scores it is for")


@dataclass(frozen=True)
class Factor(FileContent):
    """One thing that is scored."""

    key: str
    """Its name in the answer, to the letter."""
    scale: Scale
    title: str = ""
    definition: str = ""
    examine: tuple[str, ...] = ()
    """What to look at."""
    consider: tuple[str, ...] = ()
    """Rules of reading: what is expected, what counts, how cases are told apart."""
    excludes: str = ""
    """What the factor is not about."""
    anchors: tuple[Anchor, ...] = ()
    label: str = field(default="", metadata=_ADDED)
    """In an answer of lines, what stands before the colon, to the letter; the key where it is empty."""
    heading: str = field(default="", metadata=_ADDED)
    """In an answer of lines, the heading (`Heading:`) above its line, where one label stands below several of them."""
    path: str = field(default="", metadata=_ADDED)
    """In a nested answer, the keys that lead to the score, with dots between them; the key where it is empty."""
    reason_path: str = field(default="", metadata=_ADDED)
    """In a nested answer, the keys that lead to the reason; empty where none of its own is given."""

    def __post_init__(self) -> None:
        for anchor in self.anchors:
            if stray := sorted(score for score in anchor.scores if not self.scale.has(score)):
                raise ValueError(f"anchors for {stray}, which are not on the scale: {self.scale.words}")


OTHER_KINDS = ("integer", "number", "boolean", "string")


@dataclass(frozen=True)
class AnswerFormat(FileContent):
    """What a reply must hold: a JSON object, labelled lines, or one word; and what may stand around it."""

    id_key: str | None = None
    """The key that echoes the identifier of the question."""
    envelope: str = ""
    """The key under which the factors stand; empty where they stand at the top."""
    form: Literal["entries", "scores", "list", "nested", "lines", "token", "marked"] = "entries"
    """In JSON: each factor as an object with score and reason (`entries`), as a bare score (`scores`), all of them as
    one list, or each where its `path` leads (`nested`). Without JSON: a line for each, `Label: 4` (`lines`), or the one
    score as the whole reply (`token`), or one of its choices, such as
    `[[A>B]]`, anywhere in it (`marked`)."""
    score_key: str = "score"
    reason_key: str = "justification"
    """Inside an entry, the key of the reason; empty where no reason is given."""
    texts: tuple[str, ...] = ()
    """Free text beside the factors; the first one is the reason for every factor that has none of its own."""
    others: tuple[str, ...] = field(default=(), metadata=_ADDED)
    """In a nested answer, what is asked for and not scored: `confidence: number`, by path and JSON's kind of value."""
    words: tuple[int, int] | None = None
    """How many words a reason has, least and most."""
    reason: str = ""
    """What a reason must be, in words, where a number of words does not say it."""
    sections: tuple[str, ...] = ()
    """Headings of the reasoning before the JSON, in order; the last one heads the JSON itself."""
    keys: tuple[str, ...] = field(default=(), metadata=_ADDED)
    """The keys (labels of lines) of an answer in the order in which a prompt shows them; empty for the usual order."""

    def __post_init__(self) -> None:
        if self.form == "list" and not self.envelope:
            raise ValueError("a list of scores needs an envelope: the key under which the list stands")
        if not self.is_json and (self.id_key or self.envelope or self.sections):
            raise ValueError(f"form {self.form}: has neither id_key, envelope nor sections, which are of JSON")
        if self.form == "token" and self.texts:
            raise ValueError("form token: the score is the whole reply, so that there are no texts")
        if self.others and self.form != "nested":
            raise ValueError("others: only a nested answer has them")
        for other in self.others:
            if other.partition(": ")[2] not in OTHER_KINDS:
                raise ValueError(f"others {other!r:.80}: expected PATH: KIND, the kind one of {', '.join(OTHER_KINDS)}")
        if self.form == "nested" and self.envelope:
            raise ValueError("form nested: paths begin at the top, so that there is no envelope")
        if self.words and not 0 <= self.words[0] <= self.words[1]:
            raise ValueError(f"words {list(self.words)}: the least comes before the most")

    @property
    def is_json(self) -> bool:
        return self.form not in ("lines", "token", "marked")


@dataclass(frozen=True)
class Consistency(FileContent):
    """A decision that follows from a list: lines that end in a mark decide the score, so a program can check it."""

    section: str
    """The heading under which the lines stand."""
    passes: tuple[str, ...]
    fails: tuple[str, ...]
    """One line that ends in one of these is enough for the failing score."""
    factor: str
    pass_score: int
    fail_score: int


@dataclass(frozen=True)
class Slot(FileContent):
    """A place in a published prompt that an input fills."""

    mark: str
    """The exact characters of the prompt."""
    role: str
    keep: bool = False
    """A heading stays and the input follows it; a placeholder is replaced."""

    @property
    def is_image_part(self) -> bool:
        """Whether an image stands here between two texts, put there by a recipe: the mark means nothing to a judge."""
        return self.mark == image_part_mark(self.role)


def image_part_mark(role: str) -> str:
    """What stands in a template for an image between two texts."""
    return f"<picture: {role}>"


def text_part_mark(role: str) -> str:
    """What stands in a template for a text of the edit between two texts of the prompt."""
    return f"<input: {role}>"


@dataclass(frozen=True)
class Template(FileContent):
    """A published prompt, word for word, and where its inputs go."""

    text: str
    slots: tuple[Slot, ...] = ()
    braces: Literal["literal", "format"] = "literal"
    """`format`: literal braces are doubled, as Python's str.format wants them."""
    adds_answer_format: bool = False
    """The prompt itself asks for no JSON, so our description of the answer follows it."""


@dataclass(frozen=True)
class Rubric(FileContent):
    """What a judge is shown and asked, and what counts as an answer."""

    name: str
    images: tuple[str, ...]
    """Pictures, or lists of pictures, by their names in the manifest."""
    factors: tuple[Factor, ...]
    answer: AnswerFormat
    texts: tuple[str, ...] = ()
    """By their names in the manifest. One that is empty is a missing input, but for a referring expression."""
    description: str = ""
    """One line for people who choose a rubric; no judge sees it."""
    role: str = ""
    task: str = ""
    scope: tuple[str, ...] = ()
    """What the rubric looks at and what it leaves aside."""
    allowed: tuple[str, ...] = ()
    """Differences that cost nothing."""
    forbidden: tuple[str, ...] = ()
    """Differences that decide against the edit."""
    ignored: tuple[str, ...] = ()
    """Differences that are not part of what is judged."""
    steps: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    consistency: Consistency | None = None
    example: str = ""
    """An answer that the contract accepts, for people; no judge sees it, lest it anchor on its scores."""
    template: Template | None = None
    """Set for an imported prompt: its own words are the question."""
    members: tuple[Rubric, ...] = ()
    """Set for a fused set: the rubrics that are asked in one question."""
    computed_by: str = field(default="", metadata=_ADDED)
    """The one judge that answers it: its factors are figures that a program computes, each of its own kind, so that
    nobody is asked for them and no mean is formed of them."""
    system: str = field(default="", metadata=_ADDED)
    """A system message that goes before the question."""
    reason: Literal["before", "after"] = field(default="before", metadata=_ADDED)
    """Whether the answer gives a reason before or after the score that it is for. Models write in this order."""
    when: str = field(default="", metadata=_ASKING)
    """A condition (`editjudge.rubrics.conditions`): other edits are not asked about."""
    for_each: str = field(default="", metadata=_ASKING)
    """A column that holds a list: asked once for each element, which is `each` (its fields: `each.question`)."""
    after: str = field(default="", metadata=_ASKING)
    """A rubric of the same set, asked before: its scores and reasons are the text `earlier`."""
    samples: int = field(default=1, metadata=_ASKING)
    """How often it is asked in each repeat of a run."""

    def __post_init__(self) -> None:
        keys = [factor.key for factor in self.factors]
        if not keys:
            raise ValueError("a rubric needs at least one factor")
        if len(set(keys)) != len(keys):
            raise ValueError(f"factor keys must differ: {keys}")
        if len({bool(factor.scale.choices) for factor in self.factors}) > 1:
            raise ValueError("a rubric asks for scores or for choices: some factors have choices, others none")
        if not self.images or len(set(self.images)) < len(self.images):
            raise ValueError("a rubric shows at least one image, and each once")
        _check_names("images", self.images, IMAGE_ROLES, TEXT_ROLES)
        _check_names("texts", self.texts, TEXT_ROLES, IMAGE_ROLES)
        self._check_asking()
        if self.reason == "after" and (self.template or self.answer.sections):
            why = "an imported prompt has its own order" if self.template else "its sections put the reasoning first"
            raise ValueError(f"reason: after: {why}")
        beside = [*([self.answer.id_key] if self.answer.id_key else []), *self.answer.texts]
        if self.answer.form == "nested":
            beside += [path for f in self.factors for path in (f.path or f.key, f.reason_path) if path]
            beside += [other.partition(":")[0] for other in self.answer.others]
        else:
            beside += [self.answer.envelope] if self.answer.envelope else [self.label(f) for f in self.factors]
        if len(set(beside)) < len(beside):
            raise ValueError(f"keys of the answer must differ: {beside}")
        self._check_form(beside)
        self._check_keys(beside)
        self._check_parts()
        if (rule := self.consistency) and rule.factor not in keys:
            raise ValueError(f"consistency names the factor {rule.factor!r}, which the rubric does not have")
        scores = (rule.pass_score, rule.fail_score) if rule else ()
        if rule and not all(map(self.factor(rule.factor).scale.has, scores)):
            raise ValueError(f"consistency gives {rule.factor!r} a score that is not on its scale")

    def label(self, factor: Factor) -> str:
        """What an answer calls a factor."""
        if self.answer.form != "lines":
            return factor.key
        label = factor.label or factor.key
        return f"{factor.heading} > {label}" if factor.heading else label

    def _check_form(self, names: list[str]) -> None:
        form = self.answer.form
        if form in ("token", "marked") and len(self.factors) > 1:
            raise ValueError(f"form {form}: one reply is one score, so the rubric has one factor")
        if form == "marked":
            _check_marks(self.factors[0].scale.choices)
        if len({bool(factor.heading) for factor in self.factors}) > 1:
            raise ValueError("heading: all factors stand below one, or none does")
        if not self.answer.is_json and self.consistency:
            raise ValueError(f"form {form}: a list of differences needs sections, which are of JSON")
        if form == "lines" and (odd := [n for n in names if n != n.strip(" \t") or not n.isprintable() or ":" in n]):
            raise ValueError(f"label {odd[0]!r:.80}: expected one line without a colon or space at its ends")
        if form == "nested":
            for name in names:
                parts = name.split(".")
                if "" in parts or any(".".join(parts[:n]) in names for n in range(1, len(parts))):
                    raise ValueError(f"path {name!r:.80}: expected keys with dots between them, none of them a score")

    def _check_keys(self, beside: list[str]) -> None:
        """Refuse an order of keys that the answer does not have."""
        answer = self.answer
        names = {part for name in beside for part in (name.split(".") if answer.form == "nested" else [name])}
        if answer.form in ("entries", "scores"):
            names |= {factor.key for factor in self.factors}
        if answer.form == "entries":
            names |= {answer.score_key, answer.reason_key}
        for key in answer.keys:
            if key not in names or answer.keys.count(key) > 1:
                raise ValueError(f"keys list {key!r:.80}; expected keys of the answer, each once")

    def _check_parts(self) -> None:
        """Refuse a template with a part that the rubric does not show: its mark would reach the judge."""
        for slot in self.template.slots if self.template else ():
            if slot.is_image_part and slot.role not in self.images:
                raise ValueError(f"template: {slot.mark} stands for an image that `images` does not list")
            if slot.mark == text_part_mark(slot.role) and slot.role not in self.texts:
                raise ValueError(f"template: {slot.mark} stands for a text that `texts` does not list")

    def _check_asking(self) -> None:
        if self.when:
            parse_when(self.when)
        if self.for_each and not _DOTTED.fullmatch(self.for_each):
            raise ValueError(f"for_each {self.for_each!r:.80}: expected a column of the manifest, such as checks")
        if not 1 <= self.samples <= MAX_SAMPLES:
            raise ValueError(f"samples: expected 1 to {MAX_SAMPLES}")
        if self.after and EARLIER not in self.texts:
            object.__setattr__(self, "texts", (*self.texts, EARLIER))
        if EARLIER in self.texts and not self.after:
            raise ValueError(f"texts list {EARLIER}, the answer of another rubric: name it with `after`")
        of_element = [name for name in (*self.texts, *self.images) if name.split(".")[0].rpartition("@")[2] == EACH]
        if self.for_each and not of_element:
            raise ValueError(f"for_each: nothing of an element is shown; list {EACH} or {EACH}.FIELD under texts")
        if not self.for_each and of_element:
            kind = "texts" if of_element[0] in self.texts else "images"
            raise ValueError(f"{kind} list {of_element[0]}, a part of an element: name the list with `for_each`")
        if self.for_each and self.pairwise:
            raise ValueError("for_each: a pair is asked about as a whole, in both orders")

    def __hash__(self) -> int:
        return hash(self.hash)  # so that what derives from a rubric is derived once

    def factor(self, key: str) -> Factor:
        """The factor of this key; raises `StopIteration` where there is none."""
        return next(factor for factor in self.factors if factor.key == key)

    @property
    def pairwise(self) -> bool:
        """Whether it shows two outputs and asks which of them is better."""
        return {*PAIR_ROLES} <= {*self.images}

    @property
    def chooses(self) -> bool:
        """Whether an answer holds choices in the place of scores."""
        return bool(self.factors[0].scale.choices)

    def content(self) -> dict[str, Any]:
        """As plain data, the way it is kept and hashed."""
        return dict(plain_content(self, lambda f, item: f.metadata.get("absent_at_default") and item == f.default))

    @functools.cached_property
    def hash(self) -> str:
        """Of all that can change the question or the verdict, so not of the name or the description."""
        content = self.content()
        for one in (content, *content["members"]):
            for key in ("name", "description", "example", *ASKING):
                one.pop(key, None)
        return json_hash(content, "compact_utf8")

    def contract(self) -> dict[str, Any]:
        """What goes in and what must come out, in the form that two rubrics are compared by."""
        place = {"nested": "path", "lines": "label"}.get(self.answer.form)
        factors = [
            {"key": f.key} | f.scale.contract() | ({place: getattr(f, place) or f.key} if place else {})
            for f in self.factors
        ]
        contract = {
            "name": self.name,
            "hash": self.hash,
            "images": list(self.images),
            "texts": list(self.texts),
            "factors": factors,
            "envelope": self.answer.envelope,
            "justification_words": list(self.answer.words) if self.answer.words else None,
            "sections": list(self.answer.sections),
        }
        contract |= {"form": self.answer.form} if self.answer.form in ("nested", "lines", "token") else {}
        return contract | ({"system": self.system} if self.system else {})


def _check_marks(choices: tuple[str, ...]) -> None:
    """Marks can be told from the words around them, and from each other."""
    if not choices or any(choice[:1].isalnum() or choice[-1:].isalnum() for choice in choices):
        raise ValueError("form marked: its choices are marks such as [[A>B]], with no letter or digit at their ends")
    if any(a in b for a in choices for b in choices if a != b):
        raise ValueError("form marked: no choice is a part of another one")


ASKING = tuple(f.name for f in dataclasses.fields(Rubric) if f.metadata.get("not_hashed"))
"""The fields that say of which edits, how often and after what a rubric is asked."""
EACH, EARLIER = "each", "earlier"
"""The names of the element of a list, and of what an earlier rubric was answered."""
MAX_SAMPLES = 100
_INPUT_NAME = re.compile(r"[^\W\d][\w-]{0,63}(?:\[[1-9]\d?\])?(?:@[^\W\d][\w.-]{0,99})?")
_DOTTED = re.compile(r"[^\W\d][\w-]{0,63}(?:\.[\w-]{1,64}){0,4}")
_IDENTITY = ("id", "model", "model_a", "model_b", "group")
"""Columns that say whose an edit is, which a judge must not know."""


def _check_names(kind: str, wanted: tuple[str, ...], usual: tuple[str, ...], others: tuple[str, ...]) -> None:
    for wanted_name in wanted:
        name = wanted_name if kind == "texts" else wanted_name.partition("@")[0]
        if not (_INPUT_NAME if kind == "images" else _DOTTED).fullmatch(wanted_name):
            raise ValueError(f"{kind} list {wanted_name!r:.80}; expected a column of the manifest, such as references")
        if name in others:
            raise ValueError(f'{kind} list "{name}", which belongs under {"texts" if kind == "images" else "images"}')
        if name in _IDENTITY:
            raise ValueError(f'{kind} list "{name}": whose the edit is, which a judge must not know')
        meant = difflib.get_close_matches(name, usual, 1, cutoff=0.8)
        # `edited_a` and `inputs` are names of their own; `edite` is a typing error that no edit would have.
        if meant and not name.startswith(meant[0]):
            raise ValueError(f'{kind} list "{name}"; did you mean "{meant[0]}"?')


def plain_content(value: Any, hidden: Callable[[dataclasses.Field[Any], Any], Any]) -> Any:
    """As `dataclasses.asdict`, with lists for tuples and without hidden fields: younger ones that have their default,
    so that the hash of what lacks them stays, or all that have it."""
    if dataclasses.is_dataclass(value):
        items = {field: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {f.name: plain_content(item, hidden) for f, item in items.items() if not hidden(f, item)}
    if isinstance(value, Mapping):
        return dict(value)
    return [plain_content(item, hidden) for item in value] if isinstance(value, tuple) else value
