"""How values become columns: texts that every database stores, JSON, and raw replies."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from editjudge.errors import StoreError

_ESCAPED = "\x01"
"""Opens a text that is stored escaped. It may be any character that PostgreSQL stores and people do not write."""


def escaped(text: str) -> str:
    """A text as every database stores it: PostgreSQL has no NUL, and half a surrogate pair is no UTF-8."""
    if "\0" not in text and not text.startswith(_ESCAPED):
        if text.isascii():
            return text
        try:
            text.encode()
        except UnicodeEncodeError:
            pass
        else:
            return text
    # Not JSON's escapes: JSON makes one character of two halves that stand side by side.
    return _ESCAPED + text.encode("unicode_escape").decode("ascii")


def unescaped(stored: str) -> str:
    return stored[1:].encode("ascii").decode("unicode_escape") if stored.startswith(_ESCAPED) else stored


def json_column(value: Any) -> str:
    # Half of all values are empty, and an encoder takes as long to say so as to write ten words.
    return (not value and _EMPTY.get(type(value))) or escaped(as_json(value))


_EMPTY: dict[type, str] = {dict: "{}", list: "[]", tuple: "[]"}


def from_json(stored: str) -> Any:
    """What a column of JSON holds. Half of all values are empty: a parser takes longer to find that out."""
    return {} if stored == "{}" else [] if stored == "[]" else _parse(unescaped(stored))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "as_json"):  # usage, remarks
        return value.as_json()
    raise TypeError(f"{value!r} is no JSON")


# One encoder for all values: json.dumps with options makes a new one at each call.
as_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode
_parse = json.JSONDecoder().decode

_RAW, _ZLIB = b"\x00", b"\x01"


def packed(text: str) -> bytes:
    """A raw reply as bytes; the first one names the codec, so that another can be taken later."""
    data = text.encode("utf-8", "surrogatepass")
    small = zlib.compress(data)
    return _ZLIB + small if len(small) < len(data) else _RAW + data


def unpacked(stored: bytes) -> str:
    codec, data = stored[:1], stored[1:]
    if codec not in (_RAW, _ZLIB):
        raise StoreError(f"a reply is stored with the codec {codec!r}, which this version does not know: upgrade")
    return (zlib.decompress(data) if codec == _ZLIB else data).decode("utf-8", "surrogatepass")
