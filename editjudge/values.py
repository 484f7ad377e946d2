"""Comparison of values in conditions, formulas and filters.

A manifest's column contains JSON values or, in CSV, strings. A rubric writes a value as a string. Both forms of a
manifest must give the same results, so values are compared by meaning:

- `true` and `false` equal the strings true, True, TRUE, false, False, FALSE.
- A number equals all its spellings in JSON: 3, 3.0, "3" and "3.0" are one value. 007 is a string.
- Other strings are compared exactly.
- A list or an object does not equal any string in a rubric.
- A missing value, null and NaN equal only the empty string.

Scores and limits are equal up to a relative error of 1e-9: the mean of three times 0.7 is 0.7.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, TypeAlias

Number: TypeAlias = Any
"""A float, or a NumPy array with a value for each edit. Codes (integers) and booleans have the same two forms."""

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


def word_of(value: object) -> str:
    """Return the string that represents a value in comparisons. Equal values give the same string, and a missing value
    gives an empty string.
    """
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
    """Return a number as its digits without trailing zeros, and a power of ten. This is exact for any number of digits."""
    sign, digits, power = Decimal(text).as_tuple()
    shortest = "".join(map(str, digits)).rstrip("0")
    if not shortest:
        return "0"
    exponent = int(power) + len(digits) - len(shortest)
    return f"{'-' if sign else ''}{shortest}e{exponent}"


def is_given(value: object) -> bool:
    """Whether a value is something other than null, a blank string, an empty list or object, or `false`."""
    return word_of(value).strip() not in _NOTHING


def place_among(value: object, choices: Sequence[str]) -> int | None:
    """Return the index of the choice that equals a value, or None if there is none. An exact match is preferred to a
    match by meaning.
    """
    if isinstance(value, str) and value in choices:
        return choices.index(value)
    keys = [word_of(choice) for choice in choices]
    key = word_of(value)
    return keys.index(key) if key in keys else None


def column(fields: Mapping[str, object], name: str) -> object:
    """Return the value of a column, or None if there is none. `scene.light` is a member of the object `scene` or, if
    there is no such member, the column with that name.
    """
    value: object = fields
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return fields.get(name) if value is None else value


def listed(value: object) -> list[object] | None:
    """Return a list unchanged. A string is parsed as a JSON list, as in a CSV cell. Return None for any other value."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    return value if isinstance(value, list) else None


def compare(a: Number, sign: str, b: Number) -> Number:
    """Return whether a comparison of two numbers or arrays is true. Numbers that differ only by rounding count as
    equal.
    """
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
    raise ValueError(f"{sign!r} is not a comparison of numbers")
