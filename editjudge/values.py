"""Values that conditions, formulas and filters compare: one rule for all of them.

A column of a manifest holds JSON or, in CSV, text, and a rubric names a value by a word. Both forms of a manifest must
say the same, so values are compared by what they mean:

- `true` and `false` are JSON's, and the texts true, True, TRUE, false, False, FALSE.
- A number equals every way to write it in JSON: 3, 3.0, "3" and "3.0" are one value. 007 is text.
- Other texts are compared to the letter.
- A list or an object equals no word.
- What is missing, null or NaN equals the empty text alone.

Scores and the numbers that they are held against are equal up to a billionth: the mean of three times 0.7 is 0.7.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

_TRUTH = {
    "true": "true",
    "True": "true",
    "TRUE": "true",
    "false": "false",
    "False": "false",
    "FALSE": "false",
}
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d{1,3})?", re.ASCII)
_NOTHING = ("", "false", "[]", "{}")
_RELATIVE = 1e-9
_ABSOLUTE = 1e-12


def word_of(value: Any) -> str:
    """Return the text by which a value is compared: equal for equal values, empty where there is none."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            if _NUMBER.fullmatch(value):
                return _number_word(value)
            return _TRUTH.get(value, value)
        case int() | float():
            if math.isnan(value):
                return ""
            text = repr(value)
            return _number_word(text) if _NUMBER.fullmatch(text) else text
        case Mapping() | list() | tuple():
            return json.dumps(value, sort_keys=True, default=str)
    return str(value)


def _number_word(text: str) -> str:
    """The digits without zeros at their end, and the power of ten: exact, however many digits there are."""
    sign, digits, power = Decimal(text).as_tuple()
    shortest = "".join(map(str, digits)).rstrip("0")
    if not shortest:
        return "0"
    exponent = int(power) + len(digits) - len(shortest)
    return f"{'-' if sign else ''}{shortest}e{exponent}"


def is_given(value: Any) -> bool:
    """Whether a column says anything: null, blank text, an empty list or object, and `false` say nothing."""
    return word_of(value).strip() not in _NOTHING


def place_among(value: Any, choices: Sequence[str]) -> int | None:
    """Return the place of the choice that a value names, as it is written or else as it is compared; None for none."""
    if value in choices:
        return choices.index(value)
    words = [word_of(choice) for choice in choices]
    word = word_of(value)
    return words.index(word) if word in words else None


def column(fields: Mapping[str, Any], name: str) -> Any:
    """Return what a column holds; inside an object by dots, as `scene.light`, which may also be the name of a column.
    None where there is nothing."""
    value: Any = fields
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return fields.get(name) if value is None else value


def listed(value: Any) -> list[Any] | None:
    """Return the list that a value is, in CSV as JSON; None where it is none."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    return value if isinstance(value, list) else None


def compare(a: Any, sign: str, b: Any) -> Any:
    """Whether two numbers, or arrays of them, compare so; numbers that differ by rounding alone are equal."""
    close = (a == b) | (abs(a - b) <= _ABSOLUTE + _RELATIVE * abs(b))
    match sign:
        case "==" | "=":
            return close
        case "!=":
            return close ^ True
        case ">=":
            return (a > b) | close
        case "<=":
            return (a < b) | close
        case ">":
            return (a > b) & (close ^ True)
        case "<":
            return (a < b) & (close ^ True)
    raise ValueError(f"{sign!r} compares no numbers")
