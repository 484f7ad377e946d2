"""JSON by the letter: what is not strict JSON is refused, and no number is changed by reading it."""

from __future__ import annotations

import json
import re
from typing import Any


class NotStrict(ValueError):
    """Why a text is not strict JSON."""

    def __init__(self, code: str, message: str, at_end: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.at_end = at_end
        """The text is right as far as it goes, and breaks off."""


class OtherNumber(str):
    """A number that is not a plain integer, as it was written: 6.0 and -0 are not what was asked for."""

    __slots__ = ()


def decode(text: str) -> Any:
    """The value of a JSON text; raises `NotStrict`."""
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise NotStrict("not_json", f"{error.msg} at character {error.pos}", _breaks_off(text, error)) from None
    if "\\u" in text:
        _refuse_surrogates(value)
    return value


# What an escape, a word or a number can be cut to.
_STUMP = re.compile(r"u[0-9a-fA-F]{0,4}|tr?u?|fa?l?s?|nu?l?|-|\.|[eE][-+]?")


def _breaks_off(text: str, error: json.JSONDecodeError) -> bool:
    rest = text[error.pos :].rstrip()
    return not rest or error.msg.startswith("Unterminated string") or bool(_STUMP.fullmatch(rest))


def _integer(text: str) -> int | OtherNumber:
    # 18 digits: no scale is wider, and Python refuses to convert thousands of them.
    return int(text) if len(text) <= 18 and text != "-0" else OtherNumber(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise NotStrict("duplicate_key", f'the key "{twice[:80]}" stands twice in one object')
    return members


def _constant(word: str) -> Any:
    raise NotStrict("not_json", f"{word} is not JSON")


def _refuse_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise NotStrict("not_json", "half of a surrogate pair is not text") from None


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=OtherNumber, parse_constant=_constant
)
