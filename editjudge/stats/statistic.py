"""What comes out: frozen dataclasses that turn into plain JSON, None where a figure is undefined."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Z = 1.959963984540054
"""The 97.5 % point of the normal distribution."""


class Interval(NamedTuple):
    """A confidence interval; 95 % unless its holder says otherwise."""

    lo: float
    hi: float


class Limits(NamedTuple):
    """An interval and the method that made it, or the reason for none."""

    ci: Interval | None
    reason: str | None
    method: str | None = None


class Statistic:
    """Mixed into every result."""

    def as_json(self) -> dict[str, Any]:
        """At full precision; valid JSON, since nothing here is ever NaN or infinite."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]  # mixed into dataclasses only
        return {f.name: plain(getattr(self, f.name)) for f in fields if f.repr}


@dataclass(frozen=True)
class FailureBounds(Statistic):
    """A figure if every judgement that failed had scored at an end of the scale: it lies between the two."""

    worst: float | None
    best: float | None

    def beyond(self, ci: Interval | None) -> bool:
        """Whether they reach outside an interval, or there is none to stay inside of."""
        if self.worst is None or self.best is None or ci is None:
            return True
        lowest, highest = sorted((self.worst, self.best))
        return lowest < ci.lo or highest > ci.hi


def plain(value: Any) -> Any:
    if isinstance(value, Statistic):
        return value.as_json()
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(inner) for inner in value]
    return value


def number(value: float) -> float | None:
    """A float that JSON has, or None."""
    value = float(value)
    return value if math.isfinite(value) else None


def decimals(interval: Interval | None) -> int:
    """The decimals that an interval supports: its half-width to one digit, or two where that digit is 1 or 2."""
    width = 0.0 if interval is None else (interval.hi - interval.lo) / 2
    if width <= 0:
        return 2
    power = math.floor(math.log10(width))
    return min(4, max(0, (1 if width / 10.0**power < 3 else 0) - power))


def figure_text(
    value: float | None, interval: Interval | None = None, *, sign: bool = False, digits: int | None = None
) -> str:
    """A figure in a sentence: '5.31 [5.10, 5.52]', rounded to what the interval supports unless told to how much."""
    if value is None:
        return "undefined"
    digits, plus = decimals(interval) if digits is None else digits, "+" if sign else ""

    def rounded(one: float, digits: int) -> str:
        return f"{round(one, digits) + 0.0:{plus}.{digits}f}"  # adding zero makes -0.00 a plain one

    def limit(one: float) -> str:
        """With as many decimals as it takes to show on which side of 0 it is."""
        return rounded(one, next((n for n in range(digits, digits + 4) if not one or round(one, n)), digits))

    ends = "" if interval is None else f" [{limit(interval.lo)}, {limit(interval.hi)}]"
    return rounded(value, digits) + ends
