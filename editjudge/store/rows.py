"""How values become rows: texts that every database stores, JSON, raw replies, and the rows of a judgement."""

from __future__ import annotations

import hashlib
import json
import operator
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from editjudge.errors import StoreError
from editjudge.judgement import FIELDS, PER_FACTOR, Exchange, Judgement

if TYPE_CHECKING:
    import sqlalchemy as sa

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


# --- rows of columns ------------------------------------------------------------------------------------------


class BulkInsert:
    """An INSERT of many rows, each a tuple in the order of `names`, compiled once.

    SQLAlchemy makes and sorts a dictionary for each row at each execution: of the time that it took to keep a batch of
    512 judgements, a third.
    """

    def __init__(self, dialect: sa.Dialect, statement: sa.Insert, names: Sequence[str]) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(names))
        self._sql, self._positional = str(compiled), compiled.positiontup is not None
        self._names = [*names, *(name for name in compiled.params if name not in names)]
        self._constants = tuple(compiled.params[name] for name in self._names[len(names) :])
        columns: Any = statement.table.columns
        self._encode = encoder([columns[name] for name in names])
        order = list(map(self._names.index, compiled.positiontup or self._names))
        self._in_order = operator.itemgetter(*order) if order != sorted(order) else None

    def encoded(self, rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """The rows as they are stored; raises where one holds what cannot be."""
        return list(map(self._encode, rows))

    def execute(self, connection: sa.Connection, encoded: Sequence[tuple[Any, ...]], *parameters: Any) -> int:
        """Insert rows that are encoded, with the statement's further parameters; returns how many were written."""
        if not encoded:
            return 0
        constants = parameters or self._constants
        values: Any = [row + constants for row in encoded] if constants else encoded
        if self._in_order:
            values = list(map(self._in_order, values))
        if not self._positional:
            values = [dict(zip(self._names, row, strict=True)) for row in values]
        return connection.exec_driver_sql(self._sql, values).rowcount


def encoder(columns: Iterable[sa.Column[Any]]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Makes a row of values one of what is stored."""
    given = ((at, getattr(column.type, "encode", None)) for at, column in enumerate(columns))
    encoders = [(at, encode) for at, encode in given if encode]

    def encoded(row: Sequence[Any]) -> tuple[Any, ...]:
        values = list(row)
        for at, encode in encoders:
            if (value := values[at]) is not None:
                values[at] = encode(value)
        return tuple(values)

    return encoded


def plain_encoder(columns: Sequence[sa.Column[Any]]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Makes a row of what is stored in these columns. Texts are taken as they are: where one is stored escaped, the two
    differ."""
    documents = [at for at, column in enumerate(columns) if getattr(column.type, "encode", None) is json_column]

    def encoded(row: tuple[Any, ...]) -> tuple[Any, ...]:
        plain = list(row)
        for at in documents:
            plain[at] = json_column(plain[at])
        return tuple(plain)

    return encoded


# --- a judgement ----------------------------------------------------------------------------------------------

JUDGEMENT_COLUMNS = tuple(field.name for field in FIELDS if field.table == "judgements")
judgement_row = operator.attrgetter(*JUDGEMENT_COLUMNS)
SCORE_COLUMNS = ("key", "factor", "position", *PER_FACTOR.values())


def score_rows(key: str, given: Mapping[str, Mapping[str, Any] | None]) -> Iterator[tuple[Any, ...]]:
    """Rows of `scores` for one judgement, in the order of `SCORE_COLUMNS`."""
    fields = [given.get(name) or {} for name in PER_FACTOR]
    for position, factor in enumerate(dict.fromkeys(factor for values in fields for factor in values)):
        values = (values.get(factor) for values in fields)
        yield key, factor, position, *(v if v is None or type(v) is str else float(v) for v in values)


def factor_values(batch: Iterable[Judgement]) -> dict[str, dict[str, Any]]:
    """What `score_rows` takes, by key: a score exists only in `ok`."""
    return {one.key: {name: getattr(one, name) for name in PER_FACTOR} for one in batch if one.status == "ok"}


EXCHANGE_COLUMNS = tuple(name for name in Exchange.__slots__ if name != "text")
REPLY_COLUMNS = ("key", "mark", "at", "text", *EXCHANGE_COLUMNS)


def reply_rows(judgement: Judgement) -> Iterator[dict[str, Any]]:
    for number, exchange in enumerate(judgement.exchanges):
        values = {name: getattr(exchange, name) for name in EXCHANGE_COLUMNS} | {"at": judgement.created}
        # The number tells a model that says the same twice from a judgement that is written twice.
        content = as_json([number, exchange.text, values])
        mark = hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        number_of_mark = int.from_bytes(mark, "big", signed=True)
        yield {**values, "key": judgement.key, "mark": number_of_mark, "text": packed(exchange.text)}
