"""What review pages ask of a run, in SQL: what an edit has, and which edits fit a filter.

A whole run is read column by column: each function that ends in `_rows` streams (position, value) of every edit, and
a page holds numbers alone. What a page shows of its fifty edits is read by their ids.
"""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa

from editjudge.edit import Content
from editjudge.rubrics.model import Scale
from editjudge.store.ratings import rubrics_alike
from editjudge.store.records import PENDING, Item, RunRecord
from editjudge.store.rows import as_json, escaped, unescaped
from editjudge.store.schema import items, judgements, ratings, scores, tasks
from editjudge.store.set_scores import scorer_of
from editjudge.store.store import Store

_SAME_ITEM = sa.and_(items.c.run_id == tasks.c.run_id, items.c.item == tasks.c.item)
_JUDGED = tasks.join(items, _SAME_ITEM).outerjoin(judgements, judgements.c.key == tasks.c.key)
_HAS_SCORE = sa.and_(scores.c.key == tasks.c.key, scores.c.score.is_not(None))
_SCORED = tasks.join(items, _SAME_ITEM).join(scores, _HAS_SCORE)


@dataclass(frozen=True)
class FactorColumn:
    """A factor of a rubric."""

    id: str
    rubric: str
    factor: str
    lowest: float
    highest: float
    """Infinite where the scale is open at that end."""
    direction: str = "up"

    @property
    def width(self) -> float:
        return self.highest - self.lowest

    def level(self, score: float) -> int | None:
        """Seven steps from the worst to the best, for a colour; None where an end is open."""
        if not math.isfinite(self.width):
            return None
        share = min(1.0, max(0.0, (score - self.lowest) / self.width))
        return round(6 * (share if self.direction == "up" else 1 - share))


@dataclass
class EditSummary:
    """What a table shows of an edit."""

    scores: dict[str, list[float]] = field(default_factory=dict)
    """All scores of judges, by the id of a column."""
    people: dict[str, list[float]] = field(default_factory=dict)
    """All scores of people, by their factor."""
    statuses: set[str] = field(default_factory=set)
    violations: dict[str, None] = field(default_factory=dict)

    def spread(self, columns: Iterable[FactorColumn]) -> float:
        """The widest disagreement of any factor among judges, repeats and people, as a share of its scale."""
        widths = [0.0]
        for column in columns:
            rated = (x for x in self.people.get(column.factor, ()) if column.lowest <= x <= column.highest)
            values = [*self.scores.get(column.id, ()), *rated]
            widths += [(max(values) - min(values)) / column.width] if values else []
        return max(widths)


def columns_of(store: Store, run: RunRecord) -> list[FactorColumn]:
    """The factors of a run's rubrics; where two rubrics share one, its id says which."""
    rubrics, columns = store.rubrics(), []
    for name, hash_ in dict(run.spec.get("rubrics", {})).items():
        for factor in rubrics[hash_]["content"]["factors"] if hash_ in rubrics else ():
            scale = Scale.of(factor["scale"])
            if scale.choices:  # no scores, so nothing to filter or sort by
                continue
            low = -math.inf if scale.low is None else scale.low
            high = math.inf if scale.high is None else scale.high
            columns.append(FactorColumn(factor["key"], name, factor["key"], low, high, scale.direction))
    keys = [column.factor for column in columns]
    return [
        column if keys.count(column.factor) == 1 else replace(column, id=f"{column.id}@{column.rubric}")
        for column in columns
    ]


def overall_of(store: Store, run: RunRecord, columns: Sequence[FactorColumn]) -> list[FactorColumn]:
    """The factors whose mean is `overall`, as a report has it: those on the most common scale. None where fewer than
    two, or where two rubrics share a factor."""
    rubrics = store.rubrics()
    scorer = scorer_of(run.spec, rubrics)
    formulas = {key for formula in scorer.formulas for _, key in formula.refs} if scorer else set()
    hashes = dict(run.spec.get("rubrics", {}))
    own = [
        column
        for column in columns
        if not (column.factor in formulas or rubrics[hashes[column.rubric]]["content"].get("computed_by"))
        and math.isfinite(column.width)
    ]
    scales = Counter((column.lowest, column.highest) for column in own)
    alike = [c for c in own if (c.lowest, c.highest) == scales.most_common(1)[0][0] and c.direction == "up"]
    return alike if len(alike) > 1 and not any("@" in column.id for column in columns) else []


def keep_caches_small(store: Store) -> None:
    """Bound what SQLite caches: a server has many connections, and the kernel's cache serves them all."""
    if store._dialect == "sqlite":

        @sa.event.listens_for(store._engine, "connect")
        def connected(connection: Any, _: Any) -> None:
            connection.execute("PRAGMA cache_size = -8192")

        store._engine.dispose()  # connections from before are opened again


# --- single edits ---------------------------------------------------------------------------------------------


def count_edits(store: Store, run: RunRecord) -> int:
    """How many edits a run has: one look into the index, since positions have no gaps."""
    query = sa.select(sa.func.max(items.c.position)).where(items.c.run_id == run.id)
    last = next(store._stream(query))[0]
    return 0 if last is None else last + 1


def position_of(store: Store, run: RunRecord, item: str) -> int | None:
    query = sa.select(items.c.position).where(items.c.run_id == run.id, items.c.item == item)
    return next((row[0] for row in store._stream(query)), None)


def items_at(store: Store, run: RunRecord, positions: Iterable[int]) -> dict[int, list[Item]]:
    """The edits at these positions: one each, except in a run whose manifest changed and that was not resumed."""
    columns = [items.c[name] for name in Item._fields]
    here = sa.and_(items.c.run_id == run.id, items.c.position.in_(list(positions)))
    edits: dict[int, list[Item]] = {}
    # Sorted here: asked for this order, SQLite may walk through the whole run in it.
    for position, *values in sorted(store._stream(sa.select(items.c.position, *columns).where(here)), key=_place):
        edits.setdefault(position, []).append(Item(*values))
    return edits


def _place(row: Any) -> tuple[int, str]:
    return row.position, row.item


def tasks_of(store: Store, run: RunRecord, item: str) -> list[Any]:
    """Rubric, judge, repeat, variant and key of everything that was asked about an edit."""
    columns = [tasks.c[name] for name in ("rubric", "judge", "repeat", "variant", "key")]
    mine = sa.select(*columns, tasks.c.position).where(tasks.c.run_id == run.id, tasks.c.item == item)
    # Sorted here: asked for an order by position, SQLite walks through the whole run in it.
    return sorted(store._stream(mine), key=lambda row: (row.position, row.judge))


def ratings_of(store: Store, run: RunRecord, item: Item) -> list[Any]:
    """Rater, factor and score of everyone who rated an edit of a run."""
    columns = [ratings.c[name] for name in ("rater", "factor", "score")]
    same_question = ratings.c.rubric.in_(["", *rubrics_alike(store, run)])
    query = sa.select(*columns).where(ratings.c.content == Content.of(item).key(), same_question)
    return list(store._stream(query.order_by(*columns[:2])))


def summaries(
    store: Store, run: RunRecord, judge: str, names: Collection[str], columns: Sequence[FactorColumn]
) -> dict[str, EditSummary]:
    """What a table shows of each of these edits, by one judge or by all."""
    edits = {name: EditSummary() for name in names}
    by_factor: dict[str, list[FactorColumn]] = {}
    for column in columns:
        by_factor.setdefault(column.factor, []).append(column)
    mine = [tasks.c.run_id == run.id, tasks.c.item.in_(list(names)), *_of_judge(judge)]
    # Text, not values: most are like one that was read before.
    violations = sa.type_coerce(judgements.c.violations, sa.Text)
    query = sa.select(tasks.c.item, judgements.c.status, violations).select_from(
        tasks.outerjoin(judgements, judgements.c.key == tasks.c.key)
    )
    for item, status, text in store._stream(query.where(*mine)):
        edits[item].statuses.add(status or PENDING)
        edits[item].violations |= dict.fromkeys(_codes(text))
    query = sa.select(tasks.c.item, tasks.c.rubric, scores.c.factor, scores.c.score)
    for item, rubric, factor, score in store._stream(query.select_from(tasks.join(scores, _HAS_SCORE)).where(*mine)):
        for column in by_factor.get(factor, ()):
            if column.rubric == rubric:
                edits[item].scores.setdefault(column.id, []).append(score)
    query = sa.select(items.c.item, ratings.c.factor, ratings.c.score).select_from(_rated())
    for item, factor, score in store._stream(query.where(*_ratings(store, run), items.c.item.in_(list(names)))):
        edits[item].people.setdefault(factor, []).append(score)
    return edits


# --- a whole run ----------------------------------------------------------------------------------------------

Rows = Iterator[tuple[Any, ...]]


def label_rows(store: Store, run: RunRecord) -> Rows:
    """Position, editing model and edit type."""
    columns = (items.c.position, items.c.model, items.c.edit_type)
    return _rows(store, sa.select(*columns).where(items.c.run_id == run.id))


def item_rows(store: Store, run: RunRecord) -> Iterator[tuple[int, Item]]:
    columns = [items.c[name] for name in Item._fields]
    query = sa.select(items.c.position, *columns).where(items.c.run_id == run.id).order_by(items.c.position)
    return ((position, Item(*values)) for position, *values in store._stream(query))


def violation_codes(store: Store, run: RunRecord, judge: str) -> list[str]:
    """The codes of violations that the run has."""
    text = sa.type_coerce(judgements.c.violations, sa.Text)
    mine = [tasks.c.run_id == run.id, text != "[]", *_of_judge(judge)]
    query = sa.select(text).select_from(tasks.join(judgements, judgements.c.key == tasks.c.key)).where(*mine)
    return list(dict.fromkeys(code for (stored,) in store._stream(query.distinct()) for code in _codes(stored)))


def status_rows(store: Store, run: RunRecord, judge: str, statuses: Collection[str]) -> Rows:
    """Positions of the edits of which a judgement has one of these statuses."""
    status = sa.func.coalesce(judgements.c.status, PENDING)
    query = sa.select(items.c.position).select_from(_JUDGED)
    return _rows(store, query.where(tasks.c.run_id == run.id, status.in_(list(statuses)), *_of_judge(judge)))


def violation_rows(store: Store, run: RunRecord, judge: str, code: str) -> Rows:
    """Positions of the edits of which a judgement violated the contract in this way."""
    text = sa.type_coerce(judgements.c.violations, sa.Text)
    entry = escaped(as_json({"code": code})[1:-1])  # quotes inside a string are escaped: this is a code alone
    query = sa.select(items.c.position).select_from(_JUDGED)
    return _rows(store, query.where(tasks.c.run_id == run.id, text.contains(entry, autoescape=True), *_of_judge(judge)))


def search_rows(store: Store, run: RunRecord, words: str) -> Rows:
    """Positions of the edits whose instruction or id has these words in it."""
    has = sa.or_(*(items.c[name].icontains(words, autoescape=True) for name in ("instruction", "item")))
    return _rows(store, sa.select(items.c.position).where(items.c.run_id == run.id, has))


def score_rows(store: Store, run: RunRecord, judge: str, column: FactorColumn) -> Rows:
    """Position and score of every judgement that scored the factor."""
    return _rows(store, _scores(run, judge, column))


def width_rows(store: Store, run: RunRecord, judge: str, column: FactorColumn) -> Rows:
    """Position, and the difference of the highest and the lowest score of the factor, where there is one.

    People's scores count where they are on the scale of the column."""
    rated = sa.select(items.c.position, ratings.c.score).select_from(_rated())
    on_scale = ratings.c.score.between(column.lowest, column.highest)
    rated = rated.where(*_ratings(store, run), ratings.c.factor == column.factor, on_scale)
    every = sa.union_all(_scores(run, judge, column), rated).subquery()
    low, high = sa.func.min(every.c.score), sa.func.max(every.c.score)
    return _rows(store, sa.select(every.c.position, high - low).group_by(every.c.position).having(high > low))


def _scores(run: RunRecord, judge: str, column: FactorColumn) -> sa.Select[Any]:
    query = sa.select(items.c.position, scores.c.score).select_from(_SCORED)
    # Not by the index of factors, which has the scores of all runs.
    factor = scores.c.factor.concat("") == column.factor
    return query.where(tasks.c.run_id == run.id, tasks.c.rubric == column.rubric, factor, *_of_judge(judge))


def people_factors(store: Store, run: RunRecord) -> list[str]:
    """The factors on which people rated edits of the run, in alphabetical order."""
    query = sa.select(ratings.c.factor).select_from(_rated()).where(*_ratings(store, run), ratings.c.choice.is_(None))
    return sorted(factor for (factor,) in store._stream(query.distinct()))


def people_rows(store: Store, run: RunRecord, factor: str) -> Rows:
    """Position and score of every rating of the factor."""
    query = sa.select(items.c.position, ratings.c.score).select_from(_rated())
    return _rows(store, query.where(*_ratings(store, run), ratings.c.factor == factor))


def _rows(store: Store, query: Any) -> Rows:
    return (tuple(row) for row in store._stream(query))


def _of_judge(judge: str) -> list[sa.ColumnElement[bool]]:
    return [tasks.c.judge == judge] if judge else []


def _rated() -> sa.Join:
    return items.join(ratings, ratings.c.content == items.c.content)


def _ratings(store: Store, run: RunRecord) -> list[sa.ColumnElement[bool]]:
    return [items.c.run_id == run.id, ratings.c.rubric.in_(["", *rubrics_alike(store, run)])]


@functools.lru_cache(maxsize=4096)
def _codes(text: str | None) -> tuple[str, ...]:
    remarks = json.loads(unescaped(text)) if text not in (None, "[]") else ()
    return tuple(dict.fromkeys(remark["code"] for remark in remarks))
