"""What a rubric is: factors on scales, the inputs it shows, and the answer it asks for.

Everything that depends on a range, a factor's name or a word limit (the question, the JSON schema, the
validator, a form in the browser, a column of a report) derives from these objects.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

_FORBID_EXTRA: Any = {"extra": "forbid"}
"""Read by pydantic where a rubric file enters: a key that is not a field is an error, not a comment."""


@dataclass(frozen=True)
class Scale:
    """The legal scores of a factor."""

    __pydantic_config__: ClassVar[Any] = _FORBID_EXTRA

    values: tuple[int, ...]
    """In the order in which the question names them."""
    labels: Mapping[int, str] = field(default_factory=dict)
    """What single values mean, such as the seven Likert labels."""

    def __post_init__(self) -> None:
        if len(self.values) < 2:
            raise ValueError("a scale needs at least two values")
        if len(set(self.values)) != len(self.values):
            raise ValueError("a scale names each value once")
        if stray := sorted(set(self.labels) - set(self.values)):
            raise ValueError(f"labels for {stray}, which are not values of the scale {list(self.values)}")

    @property
    def worst(self) -> int:
        return min(self.values)

    @property
    def best(self) -> int:
        return max(self.values)

    def accepts(self, value: object) -> bool:
        """Whether this is one of the integers; a bool, a string or 6.0 never is."""
        return type(value) is int and value in self.values

    @property
    def words(self) -> str:
        """The scale as the question says it: 'an integer from 1 to 7', '5, 3 or 1'."""
        values = self.values
        if len(values) > 2 and list(values) == list(range(values[0], values[0] + len(values))):
            return f"an integer from {values[0]} to {values[-1]}"
        return ", ".join(map(str, values[:-1])) + f" or {values[-1]}"

    def json_schema(self) -> dict[str, Any]:
        return {"type": "integer", "enum": list(self.values)}


@dataclass(frozen=True)
class Anchor:
    """When a factor deserves certain scores."""

    __pydantic_config__: ClassVar[Any] = _FORBID_EXTRA

    scores: tuple[int, ...]
    when: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.scores:
            raise ValueError("an anchor names the scores it is for")


@dataclass(frozen=True)
class Factor:
    """One thing that is scored."""

    __pydantic_config__: ClassVar[Any] = _FORBID_EXTRA

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

    def __post_init__(self) -> None:
        for anchor in self.anchors:
            if stray := sorted(set(anchor.scores) - set(self.scale.values)):
                raise ValueError(f"anchors for {stray}, which are not on the scale: {self.scale.words}")


@dataclass(frozen=True)
class Answer:
    """The JSON object that a reply must hold, and what may stand around it."""

    __pydantic_config__: ClassVar[Any] = _FORBID_EXTRA

    id_key: str | None = None
    """The key that echoes the identifier of the question."""
    envelope: str = ""
    """The key under which the factors stand; empty where they stand at the top."""
    form: Literal["entries", "scores", "list"] = "entries"
    """Each factor as an object with score and reason, as a bare score, or all of them as one list of scores."""
    score_key: str = "score"
    reason_key: str = "justification"
    """Inside an entry, the key of the reason; empty where no reason is given."""
    texts: tuple[str, ...] = ()
    """Free text beside the factors; the first one is the reason for every factor that has none of its own."""
    words: tuple[int, int] | None = None
    """How many words a reason has, least and most."""
    reason: str = ""
    """What a reason must be, in words, where a number of words does not say it."""
    sections: tuple[str, ...] = ()
    """Headings of the reasoning before the JSON, in order; the last one heads the JSON itself."""

    def __post_init__(self) -> None:
        if self.form == "list" and not self.envelope:
            raise ValueError("a list of scores needs an envelope: the key under which the list stands")
        if self.words and not 0 <= self.words[0] <= self.words[1]:
            raise ValueError(f"words {list(self.words)}: the least comes before the most")


@dataclass(frozen=True)
class Consistency:
    """A decision that follows from a list: lines that end in a mark decide the score, so a program can check it."""

    __pydantic_config__: ClassVar[Any] = _FORBID_EXTRA

    section: str
    """The heading under which the lines stand."""
    passes: tuple[str, ...]
    fails: tuple[str, ...]
    """One line that ends in one of these is enough for the failing score."""
    factor: str
    pass_score: int
    fail_score: int


@dataclass(frozen=True)
class Slot:
    """A place in a published prompt that an input fills."""

    __pydantic_config__: ClassVar[Any] = _FORBID_EXTRA

    mark: str
    """The exact characters of the prompt."""
    role: str
    keep: bool = False
    """A heading stays and the input follows it; a placeholder is replaced."""


@dataclass(frozen=True)
class Template:
    """A published prompt, word for word, and where its inputs go."""

    __pydantic_config__: ClassVar[Any] = _FORBID_EXTRA

    text: str
    slots: tuple[Slot, ...] = ()
    braces: Literal["literal", "format"] = "literal"
    """`format`: literal braces are doubled, as Python's str.format wants them."""
    adds_answer_format: bool = False
    """The prompt itself asks for no JSON, so our description of the answer follows it."""


@dataclass(frozen=True)
class Rubric:
    """What a judge is shown and asked, and what counts as an answer."""

    __pydantic_config__: ClassVar[Any] = _FORBID_EXTRA

    name: str
    images: tuple[Literal["input", "edited", "ground_truth"], ...]
    factors: tuple[Factor, ...]
    answer: Answer
    texts: tuple[Literal["instruction", "referring_expression"], ...] = ()
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

    def __post_init__(self) -> None:
        keys = [factor.key for factor in self.factors]
        if not keys:
            raise ValueError("a rubric needs at least one factor")
        if len(set(keys)) != len(keys):
            raise ValueError(f"factor keys must differ: {keys}")
        if not self.images or len(set(self.images)) < len(self.images):
            raise ValueError("a rubric shows at least one image, and each once")
        beside = [*([self.answer.id_key] if self.answer.id_key else []), *self.answer.texts]
        beside += [self.answer.envelope] if self.answer.envelope else keys
        if len(set(beside)) < len(beside):
            raise ValueError(f"keys of the answer must differ: {beside}")
        if (rule := self.consistency) and rule.factor not in keys:
            raise ValueError(f"consistency names the factor {rule.factor!r}, which the rubric does not have")
        if rule and not {rule.pass_score, rule.fail_score} <= set(self.factor(rule.factor).scale.values):
            raise ValueError(f"consistency gives {rule.factor!r} a score that is not on its scale")

    def __hash__(self) -> int:
        return hash(self.hash)  # so that what derives from a rubric is derived once

    def factor(self, key: str) -> Factor:
        """The factor of this key; raises `StopIteration` where there is none."""
        return next(factor for factor in self.factors if factor.key == key)

    @functools.cached_property
    def hash(self) -> str:
        """Of all that can change the question or the verdict, so not of the name or the description."""
        content = dataclasses.asdict(self)
        for key in ("name", "description", "example"):
            del content[key]
        for member in content["members"]:
            for key in ("name", "description", "example"):
                del member[key]
        canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def contract(self) -> dict[str, Any]:
        """What goes in and what must come out, in the form that two rubrics are compared by."""
        return {
            "name": self.name,
            "hash": self.hash,
            "images": list(self.images),
            "texts": list(self.texts),
            "factors": [{"key": f.key, "values": list(f.scale.values)} for f in self.factors],
            "envelope": self.answer.envelope,
            "justification_words": list(self.answer.words) if self.answer.words else None,
            "sections": list(self.answer.sections),
        }
