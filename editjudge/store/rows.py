"""How values become rows: texts that every database stores, JSON, raw replies, and the rows of a judgement."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from editjudge.errors import StoreError
from editjudge.judgement import FIELDS, PER_FACTOR, Exchange, Judgement, Usage
from editjudge.rubrics.verdict import Remark

# --- values ---------------------------------------------------------------------------------------------------

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
    return (
        stored[1:].encode("ascii").decode("unicode_escape")
        if stored.startswith(_ESCAPED)
        else stored
    )


def json_column(value: Any) -> str:
    return escaped(as_json(value))


def from_json(stored: str) -> Any:
    return json.loads(unescaped(stored))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Usage | Remark):
        return value.as_json()
    raise TypeError(f"{value!r} is not JSON")


# One encoder for all values: json.dumps with options makes a new one at each call.
as_json = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
).encode

_RAW = b"\x00"
_ZLIB = b"\x01"


def packed(text: str) -> bytes:
    """A raw reply as bytes; the first one names the codec, so that another can be taken later."""
    data = text.encode("utf-8", "surrogatepass")
    small = zlib.compress(data)
    return _ZLIB + small if len(small) < len(data) else _RAW + data


def unpacked(stored: bytes) -> str:
    codec = stored[:1]
    data = stored[1:]
    if codec not in (_RAW, _ZLIB):
        raise StoreError(
            f"a reply is stored with the codec {codec!r}, which this version does not know: upgrade"
        )
    return (zlib.decompress(data) if codec == _ZLIB else data).decode(
        "utf-8", "surrogatepass"
    )


# --- a judgement ----------------------------------------------------------------------------------------------

Values = dict[str, Any]
"""A row, by column."""
FactorValues = dict[str, dict[str, Any]]
"""Values of one judgement by field, such as `scores` or `choices`, and factor; only fields that have some."""

JUDGEMENT_COLUMNS = tuple(field.name for field in FIELDS if field.table == "judgements")
_OPTIONAL = {field.name for field in FIELDS if field.optional}
_EXCHANGE_COLUMNS = tuple(name for name in Exchange.__slots__ if name != "text")
_EXACT = 2.0**53
"""Up to here a double holds every whole number."""


def judgement_row(judgement: Judgement) -> Values:
    return {name: getattr(judgement, name) for name in JUDGEMENT_COLUMNS}


def score_rows(key: str, given: Mapping[str, Mapping[str, Any] | None]) -> list[Values]:
    """Return the rows of `scores` for one judgement, of its fields per factor."""
    fields = {column: given.get(name) or {} for name, column in PER_FACTOR.items()}
    factors = dict.fromkeys(factor for values in fields.values() for factor in values)
    rows = []
    for position, factor in enumerate(factors):
        row: Values = {"key": key, "factor": factor, "position": position}
        for column, values in fields.items():
            value = values.get(factor)
            if value is not None and not isinstance(value, str):
                value = float(value)
            row[column] = value
        rows.append(row)
    return rows


def reply_rows(judgement: Judgement) -> Iterator[Values]:
    for number, exchange in enumerate(judgement.exchanges):
        values = {name: getattr(exchange, name) for name in _EXCHANGE_COLUMNS} | {
            "at": judgement.created
        }
        # The number tells a model that says the same twice from a judgement that is written twice.
        content = as_json([number, exchange.text, values])
        mark = hashlib.blake2b(
            content.encode("utf-8", "surrogatepass"), digest_size=8
        ).digest()
        yield {
            **values,
            "key": judgement.key,
            "mark": int.from_bytes(mark, "big", signed=True),
            "text": packed(exchange.text),
        }


def exchange_of(row: Any) -> Exchange:
    """Return the exchange that a row of `replies` holds."""
    values = {name: getattr(row, name) for name in _EXCHANGE_COLUMNS}
    values |= {"usage": Usage(**row.usage), "reasons": remarks_of(row.reasons)}
    return Exchange(text=unpacked(row.text), **values)


def remarks_of(stored: Iterable[Mapping[str, Any]]) -> tuple[Remark, ...]:
    return tuple(Remark(**remark) for remark in stored)


def of_factors(rows: Iterable[Sequence[Any]]) -> FactorValues:
    """Return values by field and factor, of rows of a factor and the columns of `PER_FACTOR` in order."""
    given: FactorValues = {}
    for factor, *values in rows:
        for name, value in zip(PER_FACTOR, values, strict=True):
            if value is not None:
                number = as_number(value) if name == "scores" else value
                given.setdefault(name, {})[factor] = number
    return given


def as_fields(
    given: FactorValues, status: str, names: Iterable[str] = PER_FACTOR
) -> dict[str, dict[str, Any] | None]:
    """Return the fields of `PER_FACTOR` of a judgement; a field without values is None or empty."""
    fields: dict[str, dict[str, Any] | None] = {}
    for name in names:
        fields[name] = given.get(name, None if name in _OPTIONAL else {})
    if status == "ok" and "scores" in fields and not {"scores", "choices"} & {*given}:
        fields["scores"] = {}  # each factor abstained
    return fields


def as_number(score: float) -> float:
    """Return a score as it is shown: whole numbers are integers, as judges give them."""
    return int(score) if score.is_integer() and abs(score) <= _EXACT else score
