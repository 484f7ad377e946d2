"""The hash of a value: of its JSON with sorted keys. By it judgements, edits, specs and rubrics are told apart.

What was hashed once stays as it is, so there are three spellings of the same JSON.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

Spelling = Literal["spaced", "compact", "compact_utf8"]
"""`spaced`: of edits and specs. `compact`: of tasks and rubric sets. `compact_utf8`: of rubrics."""

_COMPACT: Any = {"sort_keys": True, "allow_nan": False, "separators": (",", ":")}
# One encoder each: json.dumps with options makes a new one at each call.
_ENCODE = {
    "spaced": json.JSONEncoder(sort_keys=True, allow_nan=False).encode,
    "compact": json.JSONEncoder(**_COMPACT).encode,
    "compact_utf8": json.JSONEncoder(**_COMPACT, ensure_ascii=False).encode,
}


def json_hash(value: Any, spelling: Spelling = "spaced") -> str:
    """SHA-256, in hexadecimal; `ValueError` where a number is not finite."""
    return text_hash(_ENCODE[spelling](value))


def text_hash(text: str) -> str:
    """The hash of a value whose JSON is written already: put together from parts that `compact_json` wrote."""
    return hashlib.sha256(text.encode()).hexdigest()


compact_json = _ENCODE["compact"]
"""A value as `json_hash(value, "compact")` spells it."""
json_text = json.encoder.encode_basestring_ascii
"""A text as `compact_json` spells it, in a third of the time."""
