"""A judgement as rows of the tables `judgements`, `scores` and `replies`."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from editjudge.judgement import FIELDS, PER_FACTOR, Exchange, Judgement
from editjudge.store.values import as_json, packed

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
