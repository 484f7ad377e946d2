"""Scales: a factor's legal answers, with their description, JSON schema and validation."""

from __future__ import annotations

import builtins
import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar, Literal

from editjudge.canonical import Json

Number = int | float


class WrittenNumber(str):
    """A number in its original spelling, for numbers that are not plain integers, such as 6.0 or -0."""

    __slots__ = ()


class FileContent:
    """Base class for file content that pydantic validates. An unknown key is an error."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}


class FieldError(ValueError):
    """Raised when the content of a file breaks a rule. The error is reported at the first of `keys` that the file has."""

    def __init__(self, message: str, *keys: str, code: str = "") -> None:
        super().__init__(message)
        self.keys = keys
        self.code = code


def refuse(*rules: tuple[object, str, str, *tuple[str, ...]]) -> None:
    """Raise `FieldError` for the first broken rule. Each rule is a tuple: whether it is broken, its code, the message,
    and the keys at which to report it.
    """
    for is_broken, code, message, *keys in rules:
        if is_broken:
            raise FieldError(message, *keys, code=code)


ADDED = {"absent_at_default": True}
"""Metadata of a field that is newer than stored hashes. It is left out of the content if it has its default."""


@dataclass(frozen=True)
class Scale(FileContent):
    """The legal answers of a factor: integers (`values`), decimals (`range`) or words (`choices`)."""

    values: tuple[int, ...] = ()
    """Legal integers, in the order in which the question lists them."""
    labels: Mapping[int, str] = field(default_factory=dict)
    """Meanings of individual values, such as the seven Likert labels."""
    range: tuple[Number | None, Number | None] | None = field(
        default=None, metadata=ADDED
    )
    """Lowest and highest decimal; None for an open end, as for PSNR."""
    step: Number | None = field(default=None, metadata=ADDED)
    """Distance between legal decimals, counted from the lowest; None if any decimal is legal."""
    direction: Literal["up", "down"] = field(default="up", metadata=ADDED)
    """`down` if lower is better, as for a distance."""
    choices: tuple[str, ...] = field(default=(), metadata=ADDED)
    """Words to choose from instead of numbers."""
    abstain: tuple[str, ...] = field(default=(), metadata=ADDED)
    """Words such as N/A that an answer may have in place of a score. The factor then has no score."""
    boolean: bool = field(default=False, metadata=ADDED)
    """Whether answers have false and true for the values 0 and 1."""

    def __post_init__(self) -> None:
        kinds = [bool(self.values), self.range is not None, bool(self.choices)]
        kind = "choice" if self.choices else "value"
        options = self.choices or self.values
        texts = [*self.abstain, *self.choices]
        refuse(
            (
                kinds.count(True) != 1,
                "not_one_kind",
                "a scale has either values (integers), a range (decimals) or choices (words)",
                "values",
                "range",
                "choices",
            ),
            (
                len(options) == 1,
                "too_few_values",
                f"a scale needs at least two {kind}s",
                f"{kind}s",
            ),
            (
                len(set(options)) < len(options),
                "value_twice",
                f"a scale names each {kind} once",
                f"{kind}s",
            ),
            (
                self.range is None and self.step is not None,
                "step_without_range",
                "step: only for a range",
                "step",
            ),
            (
                self.choices and self.direction == "down",
                "direction_of_choices",
                "direction: not for choices",
                "direction",
            ),
            (
                len({"", *texts}) <= len(texts),
                "bad_abstain",
                "abstain: expected each word once, and not one of the choices",
                "abstain",
            ),
            (
                self.boolean and sorted(self.values) != [0, 1],
                "bad_boolean",
                "boolean: expected the values 0 and 1",
                "boolean",
            ),
        )
        if self.range is not None:
            self._check_range(self.range)
        self.check_scores("labels", self.labels)

    def check_scores(self, subject: str, scores: Iterable[Number]) -> None:
        """Raise `FieldError` if any of the scores, which come from labels or anchors, is not on the scale."""
        stray = sorted({score for score in scores if not self.has(score)})
        message = f"{subject} for {stray}, which are not on the scale: {self.words}"
        refuse((stray, "off_the_scale", message, subject))

    def _check_range(self, ends: tuple[Number | None, Number | None]) -> None:
        # Whole numbers become integers, so that 1 and 1.0 have the same hash.
        low, high = map(_plain_number, ends)
        step = _plain_number(self.step)
        object.__setattr__(self, "range", (low, high))
        object.__setattr__(self, "step", step)
        in_order = low is None or high is None or low < high
        refuse(
            (
                not in_order,
                "range_reversed",
                f"range {list(ends)}: expected the lowest before the highest",
                "range",
            ),
            (
                step is not None and step <= 0,
                "bad_step",
                "step: expected a number above 0",
                "step",
            ),
        )
        off_step = step is not None and high is not None and self.read(high) is None
        message = (
            f"range {list(ends)}: steps of {step} from {low or 0} do not end at {high}"
        )
        refuse((off_step, "step_misses_end", message, "range"))

    @property
    def low(self) -> Number | None:
        """Lowest score; None if that end is open or the scale has choices. The same applies to `high`, `worst` and
        `best`.
        """
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
        """Rescale a score to the range from 0 (worst) to 1 (best). Return None if an end of the scale is open."""
        worst = self.worst
        best = self.best
        return (
            None if worst is None or best is None else (score - worst) / (best - worst)
        )

    @property
    def steps(self) -> tuple[Number, ...]:
        """All legal scores in ascending order. Empty if there are more than 101, the number of whole percentages."""
        if self.values:
            return tuple(sorted(self.values))
        low = self.low
        high = self.high
        if self.step is None or low is None or high is None:
            return ()
        count = (_exact(high) - _exact(low)) / _exact(self.step)
        if count > 100:
            return ()
        values = (
            _exact(low) + n * _exact(self.step) for n in builtins.range(int(count) + 1)
        )
        return tuple(
            int(value) if value == int(value) else float(value) for value in values
        )

    def accepts(self, value: object) -> bool:
        """Whether a JSON value is a legal score. Strings are not, and neither is 6.0 on a scale of integers."""
        return self.read(value) is not None

    def has(self, score: Number) -> bool:
        """Whether a number is on the scale, even if answers spell it differently, such as true for 1."""
        return score in self.values if self.boolean else self.accepts(score)

    def in_answer(self, score: Number) -> str:
        """Return a score as it is written in an answer."""
        return str(bool(score)).lower() if self.boolean else str(score)

    def read(self, value: object) -> Number | None:
        """Return the score that a strict JSON value represents, or None if it is not legal. Nothing is rounded.

        A number that is not a plain integer is passed as a `WrittenNumber`, so that 0.30000000000000001 does not
        equal 0.3.
        """
        if self.boolean:
            return int(value) if isinstance(value, bool) else None
        if self.values:
            return value if type(value) is int and value in self.values else None
        if self.range is None or type(value) not in (int, float, WrittenNumber):
            return None
        text = str(value)
        if len(text) > _MAX_DIGITS:
            return None
        number = float(text)
        is_lost = not number and re.search("[1-9]", text.lower().partition("e")[0])
        if is_lost or not math.isfinite(number):
            return None  # outside the range of floats: 1e999, 1e-999
        low, high = self.range
        written = Fraction(text)
        if (
            (low is not None and written < _exact(low))
            or (high is not None and written > _exact(high))
            or (self.step and (written - _exact(low or 0)) % _exact(self.step))
        ):
            return None
        # Adding 0.0 turns -0.0 into 0.0.
        return value if type(value) is int else number + 0.0

    @property
    def words(self) -> str:
        """Description of the scale in a question: 'an integer from 1 to 7', '5, 3 or 1', 'a number from 0 to 1'."""
        better = "; lower is better" if self.direction == "down" else ""
        values = self.values
        if self.boolean:
            text = "true or false"
        elif self.choices:
            text = _alternatives(f'"{choice}"' for choice in self.choices)
        elif self.range is not None:
            text = f"a number{self._bounds}{better}"
        elif len(values) > 2 and values == (
            *builtins.range(values[0], values[-1] + 1),
        ):
            text = f"an integer from {values[0]} to {values[-1]}{better}"
        else:
            text = f"{_alternatives(map(str, values))}{better}"
        if self.abstain:
            abstentions = " or ".join(f'"{text}"' for text in self.abstain)
            text += f", or {abstentions} where it does not apply"
        return text

    @property
    def _bounds(self) -> str:
        low, high = self.range or (None, None)
        steps = f" in steps of {self.step}" if self.step else ""
        if low is None and high is None:
            return steps
        if high is None:
            return f" of {low} or more{steps}"
        if low is None:
            return f" of {high} or less{steps}"
        return f" from {low} to {high}{steps}"

    def json_schema(self) -> Json:
        """Return the JSON Schema of an answer. It does not use `minimum`, `maximum` or `multipleOf`, which some strict
        modes refuse. A description states the range instead.
        """
        if self.abstain:
            abstentions = {"type": "string", "enum": list(self.abstain)}
            return {
                "anyOf": [
                    dataclasses.replace(self, abstain=()).json_schema(),
                    abstentions,
                ]
            }
        if self.boolean:
            return {"type": "boolean"}
        if self.choices:
            return {"type": "string", "enum": list(self.choices)}
        if self.values:
            return {"type": "integer", "enum": list(self.values)}
        if self.steps:
            return {"type": "number", "enum": list(self.steps)}
        return {"type": "number", "description": self.words}

    def contract(self) -> Json:
        """Return the properties by which the scales of two factors are compared."""
        contract: Json = {"values": list(self.values)}
        if self.choices:
            contract = {"choices": list(self.choices)}
        elif self.range is not None:
            contract = {"range": list(self.range), "step": self.step}
        if self.range is not None or self.direction == "down":
            contract["direction"] = self.direction
        if self.abstain:
            contract["abstain"] = list(self.abstain)
        if self.boolean:
            contract["boolean"] = True
        return contract


_MAX_DIGITS = 40
"""Maximum length of a number, since exact arithmetic on a megabyte of digits takes too long."""


def _plain_number(value: Number | None) -> Number | None:
    if value is None:
        return None
    if not math.isfinite(value):
        message = "range and step: expected finite numbers; an open end is null"
        raise FieldError(message, "range", "step", code="infinite_range")
    return int(value) if value == int(value) else float(value)


def _alternatives(texts: Iterable[str]) -> str:
    return " or ".join(", ".join(texts).rsplit(", ", 1))


def _exact(value: Number) -> Fraction:
    return Fraction(str(value))
