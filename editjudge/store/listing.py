"""Lists of a run's edits, filtered, sorted and cut into pages by the database.

A filter or an order needs a fact about every edit: the mean of a factor, a status, a disagreement. They are in the
table `edit_scores`, which is filled when a list is first asked for, and again when something was judged since.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import sqlalchemy as sa

from editjudge.judgement import DONE, STATUSES
from editjudge.store.database import MAX_ROWS, chunks
from editjudge.store.people import rubrics_alike
from editjudge.store.records import PENDING, Item, RunRecord
from editjudge.store.rows import as_json, escaped
from editjudge.store.schema import (
    edit_annotations,
    edit_score_fills,
    edit_scores,
    items,
    judgements,
    ratings,
    runs,
    scores,
    tasks,
    upsert,
)
from editjudge.store.store import Store

DISPUTED = 1 / 3
"""Share of a scale between the lowest and the highest score of one factor: two points on 1 to 7."""
OVERALL = "overall"
PEOPLE = "people:"
"""Opens the id of a column of people's ratings."""
_SPREAD = "spread"
_CONTRADICTED = "contradicted"
_STATUS = "status:"
_VIOLATION = "violation:"
_QUICK = 0.5
"""Seconds: a list that is filled faster is filled again as soon as something was judged."""
_SHARE = 20
"""Another one is filled again after so many times as long as it takes, so that it is not always being filled."""
_EQUAL = 1e-9
"""Means are equal up to so much: the mean of three times 0.7 is 0.7."""


@dataclass(frozen=True)
class FactorColumn:
    """A factor of a rubric, as a column of a list."""

    id: str
    rubric: str
    factor: str
    lowest: float
    highest: float
    """Infinite if the scale is open at that end."""
    direction: str = "up"

    @property
    def width(self) -> float:
        return self.highest - self.lowest

    def level(self, score: float) -> int | None:
        """Return one of seven steps from the worst to the best, for a colour; None if an end is open."""
        if not math.isfinite(self.width):
            return None
        share = min(1.0, max(0.0, (score - self.lowest) / self.width))
        return round(6 * (share if self.direction == "up" else 1 - share))


@dataclass(frozen=True)
class Columns:
    """Columns of scores in a list."""

    factors: Sequence[FactorColumn]
    parts: Sequence[FactorColumn]
    """Columns whose mean is `overall`, as in a report."""
    people: Sequence[FactorColumn]

    @property
    def overall(self) -> FactorColumn | None:
        """The mean of `parts`, of edits that have a score in all of them."""
        if not self.parts:
            return None
        return replace(self.parts[0], id=OVERALL, rubric="", factor=OVERALL)

    def find(self, name: str) -> FactorColumn | None:
        columns = [*self.factors, *self.people]
        if self.overall:
            columns.append(self.overall)
        return next((column for column in columns if column.id == name), None)


@dataclass
class EditSummary:
    """Scores, statuses and violations of one edit."""

    scores: dict[str, list[float]] = field(default_factory=dict)
    """All scores of judges, by the id of a column."""
    people: dict[str, list[float]] = field(default_factory=dict)
    """All scores of people, by their factor."""
    statuses: set[str] = field(default_factory=set)
    violations: dict[str, None] = field(default_factory=dict)

    def spread(self, columns: Iterable[FactorColumn]) -> float:
        """Return the widest disagreement of any factor among judges, repeats and people, as a share of its scale."""
        widest = 0.0
        for column in columns:
            values = [*self.scores.get(column.id, ())]
            rated = self.people.get(column.factor, ())
            values += [x for x in rated if column.lowest <= x <= column.highest]
            if values:
                widest = max(widest, (max(values) - min(values)) / column.width)
        return widest


@dataclass(frozen=True)
class ListFilter:
    """Filters and order of a list, as the address of a table says them."""

    model: str = ""
    edit_type: str = ""
    judge: str = ""
    factor: str = ""
    least: str = ""
    most: str = ""
    status: str = ""
    violation: str = ""
    tag: str = ""
    contradicted: str = ""
    disputed: str = ""
    q: str = ""
    sort: str = ""
    """A column's id, `model`, `edit_type`, `spread`, `position`; a minus before it begins with the highest."""

    @property
    def plain(self) -> bool:
        """Whether every edit is wanted, in the order of the manifest."""
        return replace(self, judge="") == type(self)()


@dataclass(frozen=True)
class Choices:
    """Values that the filters of a table offer."""

    models: list[str]
    edit_types: list[str]
    violations: list[str]
    tags: list[str]


class Neighbours(NamedTuple):
    """Edits around one in the order of a list, and its place there."""

    before: str | None = None
    after: str | None = None
    disagreement: str | None = None
    place: int | None = None
    total: int = 0


def columns_of(store: Store, run: RunRecord, overall: Collection[str] = ()) -> Columns:
    """Return the columns of a run's list: its factors, and what people rated. `overall` is the mean of these factors."""
    factors = []
    for rubric, scored in store.questions_of(run).scored.items():
        for factor in scored:
            low = -math.inf if factor.scale.low is None else factor.scale.low
            high = math.inf if factor.scale.high is None else factor.scale.high
            direction = factor.scale.direction
            factors.append(
                FactorColumn(factor.key, rubric, factor.key, low, high, direction)
            )
    keys = Counter(column.factor for column in factors)
    parts = []
    for number, column in enumerate(factors):
        if keys[column.factor] > 1:  # two rubrics share it: its id says which
            factors[number] = replace(column, id=f"{column.id}@{column.rubric}")
        if column.factor in overall and len(keys) == len(factors):
            parts.append(column)
    ends = {column.factor: (column.lowest, column.highest) for column in factors}
    people = []
    for name in _people_factors(store, run):
        low, high = ends.get(name, (-math.inf, math.inf))
        people.append(FactorColumn(PEOPLE + name, "people", name, low, high))
    return Columns(factors, parts, people)


def _people_factors(store: Store, run: RunRecord) -> list[str]:
    alike = ["", *rubrics_alike(store, run)]
    query = sa.select(ratings.c.factor).where(
        ratings.c.rubric.in_(alike),
        ratings.c.choice.is_(None),
        _is_of_run(run, ratings.c.content),
    )
    return sorted(factor for (factor,) in store._read(query.distinct()))


def _is_of_run(
    run: RunRecord, content: sa.ColumnElement[str]
) -> sa.ColumnElement[bool]:
    """Whether a run has an edit of this content: by the index, of ratings and notes, which are fewer than edits."""
    return sa.exists().where(items.c.run_id == run.id, items.c.content == content)


def count_edits(store: Store, run: RunRecord) -> int:
    query = sa.select(sa.func.count()).where(items.c.run_id == run.id)
    ((number,),) = store._read(query)
    return int(number)


def items_at(store: Store, run: RunRecord, positions: Sequence[int]) -> list[Item]:
    """Return the edits at these positions, in this order."""
    columns = [items.c[name] for name in Item._fields]
    query = sa.select(items.c.position, *columns).where(items.c.run_id == run.id)
    edits: dict[int, list[Item]] = {}
    for position, *values in store._read_among(query, items.c.position, positions):
        edits.setdefault(position, []).append(Item(*values))
    return [item for position in positions for item in edits.get(position, ())]


def models_of(store: Store, run: RunRecord) -> list[str]:
    """Return the editing models of a run, in alphabetical order."""
    query = sa.select(items.c.model).where(items.c.run_id == run.id).distinct()
    return sorted(model or "" for (model,) in store._read(query))


def tasks_by_position(
    store: Store, run: RunRecord, model: str = ""
) -> list[tuple[int, str, str]]:
    """Return position, task (what had to be done) and model of the edits of a run, or of one model, in order."""
    query = sa.select(items.c.position, items.c.task, items.c.model)
    query = query.where(items.c.run_id == run.id).order_by(items.c.position)
    if model:
        query = query.where(items.c.model == model)
    return [(position, task, name or "") for position, task, name in store._read(query)]


def means_by_position(
    store: Store, run: RunRecord, judge: str, column: FactorColumn
) -> dict[int, float]:
    """Return the mean score of each edit that has one in a column. Fill the facts first."""
    facts = edit_scores.c
    query = sa.select(facts.position, facts.mean).where(
        facts.run_id == run.id, facts.judge == judge, _is_column(column)
    )
    return dict(map(tuple, store._read(query)))


def siblings_of(store: Store, run: RunRecord, item: Item, limit: int) -> list[Item]:
    """Return the edits of the same input and instruction, this one too, in the order of the manifest."""
    here = (items.c.run_id == run.id, items.c.item == item.item)
    task = sa.select(items.c.task).where(*here).scalar_subquery()
    columns = [items.c[name] for name in Item._fields]
    query = sa.select(*columns).where(items.c.run_id == run.id, items.c.task == task)
    return [
        Item(*row) for row in store._read(query.order_by(items.c.position).limit(limit))
    ]


def tasks_of(store: Store, run: RunRecord, item: str) -> list[Any]:
    """Return rubric, judge, repeat, variant and key of everything that was asked about an edit."""
    names = ("rubric", "judge", "repeat", "variant", "key", "position")
    columns = [tasks.c[name] for name in names]
    query = sa.select(*columns).where(tasks.c.run_id == run.id, tasks.c.item == item)
    # Sorted here: asked for an order by position, SQLite walks through the whole run in it.
    return sorted(store._read(query), key=lambda row: (row.position, row.judge))


def summaries(
    store: Store,
    run: RunRecord,
    judge: str,
    names: Collection[str],
    columns: Columns,
) -> dict[str, EditSummary]:
    """Return the scores, statuses and violations of these edits, by one judge or by all."""
    edits = {name: EditSummary() for name in names}
    ids = {(column.rubric, column.factor): column.id for column in columns.factors}
    asked = [tasks.c.run_id == run.id, tasks.c.item.in_(names), *_of_judge(judge)]
    query = sa.select(
        tasks.c.item, judgements.c.status, judgements.c.violations
    ).select_from(_JUDGED)
    for item, status, violations in store._read(query.where(*asked)):
        edits[item].statuses.add(status or PENDING)
        for remark in violations or ():
            edits[item].violations[remark["code"]] = None
    scored = sa.select(tasks.c.item, tasks.c.rubric, scores.c.factor, scores.c.score)
    scored = scored.join_from(tasks, scores, _SCORED).where(*asked)
    for item, rubric, factor, score in store._read(scored):
        if column := ids.get((rubric, factor)):
            edits[item].scores.setdefault(column, []).append(score)
    rated = (
        sa.select(items.c.item, ratings.c.factor, ratings.c.score)
        .join_from(items, ratings, _RATED)
        .where(*_ratings_of(store, run), items.c.item.in_(names))
    )
    for item, factor, score in store._read(rated):
        edits[item].people.setdefault(factor, []).append(score)
    return edits


# --- facts ----------------------------------------------------------------------------------------------------

_JUDGED = tasks.outerjoin(judgements, judgements.c.key == tasks.c.key)
_SAME_ITEM = sa.and_(items.c.run_id == tasks.c.run_id, items.c.item == tasks.c.item)
_SCORED = sa.and_(scores.c.key == tasks.c.key, scores.c.score.is_not(None))
_RATED = ratings.c.content == items.c.content
_FACT = ("run_id", "judge", "rubric", "factor", "position", "mean", "low", "high")


def fill(
    store: Store,
    run: RunRecord,
    judge: str,
    columns: Columns,
    contradicted: Callable[[], Iterable[int]],
) -> None:
    """Fill the table of facts of a run by one judge, or by all, unless it is up to date.

    `contradicted` returns the positions of the edits with a contradicted verdict.
    """
    if _is_filled(store, run, judge):
        return
    begun = time.monotonic()
    now = time.time()
    marks = [(_CONTRADICTED, position) for position in {*contradicted()}]
    marks += _violations(store, run, judge)
    rows = [
        dict(zip(_FACT, (run.id, judge, "", name, position, 1, 1, 1), strict=True))
        for name, position in dict.fromkeys(marks)
    ]
    of_run = (edit_scores.c.run_id == run.id, edit_scores.c.judge == judge)
    labels = sa.select(items.c.model, items.c.edit_type).distinct()
    pairs = store._read(labels.where(items.c.run_id == run.id))
    codes = {name.removeprefix(_VIOLATION) for name, _ in marks} - {_CONTRADICTED}
    choices = {
        "models": sorted({model or "" for model, _ in pairs}),
        "edit_types": sorted({edit_type or "" for _, edit_type in pairs}),
        "violations": sorted(codes),
    }

    def work(connection: sa.Connection) -> None:
        connection.execute(sa.delete(edit_scores).where(*of_run))
        for facts in (
            _factor_facts(run, judge),
            _status_facts(run, judge),
            _overall_facts(of_run, columns.parts),
            _spread_facts(of_run, columns.factors),
        ):
            connection.execute(sa.insert(edit_scores).from_select(_FACT, facts))
        for chunk in chunks(rows, MAX_ROWS):
            connection.execute(sa.insert(edit_scores), chunk)
        seconds = time.monotonic() - begun
        filled = {"run_id": run.id, "judge": judge, "filled": now, "seconds": seconds}
        filled |= {"stale": False, "choices": choices}
        names = ("filled", "seconds", "stale", "choices")
        connection.execute(upsert(store._dialect, edit_score_fills, names), filled)

    store._transact(work)


def _is_filled(store: Store, run: RunRecord, judge: str) -> bool:
    fills = edit_score_fills.c
    latest = sa.select(sa.func.max(runs.c.updated)).scalar_subquery()
    query = sa.select(fills.filled, fills.seconds, fills.stale, latest)
    query = query.where(fills.run_id == run.id, fills.judge == judge)
    for filled, seconds, stale, updated in store._read(query):
        # Another run over the same edits may have measured what contradicts this one.
        if not stale and updated < filled:
            return True
        return bool(seconds > _QUICK and time.time() < filled + _SHARE * seconds)
    return False


def _factor_facts(run: RunRecord, judge: str) -> sa.Select[Any]:
    mean = sa.func.round(sa.cast(sa.func.avg(scores.c.score), sa.Numeric), 9)
    by = (tasks.c.rubric, scores.c.factor, items.c.position)
    return (
        sa.select(
            *_text(run, judge),
            *by,
            sa.cast(mean, sa.Double),
            sa.func.min(scores.c.score),
            sa.func.max(scores.c.score),
        )
        .select_from(tasks.join(items, _SAME_ITEM).join(scores, _SCORED))
        .where(tasks.c.run_id == run.id, *_of_judge(judge))
        .group_by(*by)
    )


def _status_facts(run: RunRecord, judge: str) -> sa.Select[Any]:
    status = sa.literal(_STATUS).concat(sa.func.coalesce(judgements.c.status, PENDING))
    one = sa.literal(1.0)
    return (
        sa.select(*_text(run, judge), sa.literal(""), status, items.c.position, one, one, one)
        .select_from(tasks.join(items, _SAME_ITEM).outerjoin(judgements, judgements.c.key == tasks.c.key))
        .where(tasks.c.run_id == run.id, *_of_judge(judge))
        .distinct()
    )  # fmt: skip


def _text(run: RunRecord, judge: str) -> tuple[sa.ColumnElement[Any], ...]:
    return sa.literal(run.id), sa.literal(judge, edit_scores.c.judge.type)


def _overall_facts(
    of_run: tuple[sa.ColumnElement[bool], ...], parts: Sequence[FactorColumn]
) -> sa.Select[Any]:
    facts = edit_scores.c
    mean = sa.func.avg(facts.mean)
    return (
        sa.select(
            facts.run_id, facts.judge, sa.literal(""), sa.literal(OVERALL), facts.position, mean, mean, mean
        )
        .where(*of_run, _among(parts))
        .group_by(facts.run_id, facts.judge, facts.position)
        .having(sa.func.count() == len(parts))
    )  # fmt: skip


def _spread_facts(
    of_run: tuple[sa.ColumnElement[bool], ...], factors: Sequence[FactorColumn]
) -> sa.Select[Any]:
    """Select the widest disagreement among judges and repeats alone: people rate at any time."""
    facts = edit_scores.c
    closed = [column for column in factors if math.isfinite(column.width)]
    widths = [(_is_column(column), column.width) for column in closed]
    share = (facts.high - facts.low) / sa.case(*widths, else_=1.0) if widths else 0.0
    widest = sa.func.max(share)
    return (
        sa.select(
            facts.run_id, facts.judge, sa.literal(""), sa.literal(_SPREAD), facts.position, widest, widest, widest
        )
        .where(*of_run, _among(closed))
        .group_by(facts.run_id, facts.judge, facts.position)
    )  # fmt: skip


def _violations(store: Store, run: RunRecord, judge: str) -> Iterator[tuple[str, int]]:
    query = (
        sa.select(judgements.c.violations, items.c.position)
        .select_from(tasks.join(items, _SAME_ITEM).join(judgements, judgements.c.key == tasks.c.key))
        .where(tasks.c.run_id == run.id, judgements.c.violations != [], *_of_judge(judge))
    )  # fmt: skip
    for violations, position in store._stream(query):
        for remark in violations:
            yield _VIOLATION + remark["code"], position


def _is_column(column: FactorColumn) -> sa.ColumnElement[bool]:
    facts = edit_scores.c
    return sa.and_(facts.rubric == column.rubric, facts.factor == column.factor)


def _among(columns: Sequence[FactorColumn]) -> sa.ColumnElement[bool]:
    return sa.or_(sa.false(), *map(_is_column, columns))


def _of_judge(judge: str) -> list[sa.ColumnElement[bool]]:
    return [tasks.c.judge == judge] if judge else []


def _ratings_of(store: Store, run: RunRecord) -> list[sa.ColumnElement[bool]]:
    alike = ["", *rubrics_alike(store, run)]
    return [items.c.run_id == run.id, ratings.c.rubric.in_(alike)]


# --- lists ----------------------------------------------------------------------------------------------------


class EditList:
    """The edits of a run that a filter wants, in its order. Fill the facts first, unless the filter is plain."""

    def __init__(
        self,
        store: Store,
        run: RunRecord,
        wanted: ListFilter,
        columns: Columns,
        models: Sequence[str] = (),
    ) -> None:
        self._store = store
        self._models = models
        self._run = run
        self._wanted = wanted
        self._columns = columns

    def total(self) -> int:
        query = sa.select(sa.func.count()).select_from(items).where(*self._conditions())
        ((number,),) = self._store._read(query)
        return int(number)

    def positions(self, first: int = 0, number: int | None = None) -> list[int]:
        """Return the positions of the edits from the first on."""
        query = self._ordered(sa.select(items.c.position)).offset(first).limit(number)
        return [position for (position,) in self._store._read(query)]

    def neighbours(self, item: str) -> Neighbours:
        """Return what comes before and after an edit in this order."""
        of_run = items.c.run_id == self._run.id
        number: sa.ColumnElement[int] = sa.func.row_number().over(
            order_by=self._order()
        )
        if self._wanted.plain:  # by the index, however long the run is
            number = items.c.position
        listed = self._joined(
            sa.select(items.c.item, items.c.position, number.label("number"))
        )
        table = listed.where(*self._conditions()).subquery()
        here = sa.select(table.c.number).where(table.c.item == item)
        at = next((number for (number,) in self._store._read(here)), None)
        total = self.total()
        if at is None:
            return Neighbours(total=total)
        place = at
        if self._wanted.plain:
            until = sa.select(sa.func.count()).where(of_run, items.c.position <= at)
            ((place,),) = self._store._read(until)
        names = sa.select(table.c.item)
        later = names.where(table.c.number > at).order_by(table.c.number)
        earlier = names.where(table.c.number < at).order_by(table.c.number.desc())
        queries = (earlier, later, later.where(self._is_disputed(table.c.position)))
        found = [self._store._read(query.limit(1)) for query in queries]
        before, after, disputed = (rows[0][0] if rows else None for rows in found)
        return Neighbours(before, after, disputed, place, total)

    def choices(self) -> Choices:
        """Return what the filters of the whole run offer."""
        fills = edit_score_fills.c
        query = sa.select(fills.choices).where(
            fills.run_id == self._run.id, fills.judge == self._wanted.judge
        )
        ((choices,),) = self._store._read(query)
        tags = sa.select(edit_annotations.c.tags).where(
            _is_of_run(self._run, edit_annotations.c.content)
        )
        every = {tag for (of_edit,) in self._store._read(tags) for tag in of_edit}
        return Choices(**choices, tags=sorted(every))

    # --- conditions -------------------------------------------------------------------------------------------

    def _facts(self) -> tuple[sa.ColumnElement[bool], ...]:
        facts = edit_scores.c
        return facts.run_id == self._run.id, facts.judge == self._wanted.judge

    def _has(
        self, names: Sequence[str], position: sa.ColumnElement[int] = items.c.position
    ) -> sa.ColumnElement[bool]:
        facts = edit_scores.c
        marked = sa.select(facts.position).where(
            *self._facts(), facts.rubric == "", facts.factor.in_(names)
        )
        return position.in_(marked)

    def _conditions(self) -> list[sa.ColumnElement[bool]]:
        wanted = self._wanted
        conditions: list[sa.ColumnElement[bool]] = [items.c.run_id == self._run.id]
        if wanted.model:
            conditions.append(items.c.model == wanted.model)
        if wanted.edit_type:
            conditions.append(items.c.edit_type == wanted.edit_type)
        if self._models:
            conditions.append(items.c.model.in_(self._models))
        if wanted.status:
            failed = [status for status in STATUSES if status not in DONE]
            statuses = failed if wanted.status == "failed" else [wanted.status]
            conditions.append(self._has([_STATUS + status for status in statuses]))
        if wanted.violation:
            conditions.append(self._has([_VIOLATION + wanted.violation]))
        if wanted.contradicted:
            conditions.append(self._has([_CONTRADICTED]))
        if wanted.disputed:
            conditions.append(items.c.position.in_(self._disputed()))
        if wanted.q:
            texts = (items.c.instruction, items.c.item)
            conditions.append(
                sa.or_(*(text.icontains(wanted.q, autoescape=True) for text in texts))
            )
        if wanted.tag:
            # As text: inside a string of the JSON a quotation mark is escaped, so only a whole tag looks like this.
            tags = sa.type_coerce(edit_annotations.c.tags, sa.Text)
            tag = escaped(as_json(wanted.tag))
            tagged = sa.select(edit_annotations.c.content).where(
                tags.contains(tag, autoescape=True)
            )
            conditions.append(items.c.content.in_(tagged))
        if wanted.factor or wanted.least or wanted.most:
            conditions.append(self._is_scored())
        return conditions

    def _is_scored(self) -> sa.ColumnElement[bool]:
        """Whether the score of one factor, or of any, is in a range."""
        low = _number(self._wanted.least, -math.inf)
        high = _number(self._wanted.most, math.inf)
        chosen = [*self._columns.factors]
        if self._wanted.factor:
            named = self._columns.find(self._wanted.factor)
            chosen = [named] if named else []
        conditions: list[sa.ColumnElement[bool]] = [sa.false()]
        for column in chosen:
            means = self._means(column)
            bounds = []
            if low > -math.inf:
                bounds.append(means.c.mean >= low - _EQUAL * max(1, abs(low)))
            if high < math.inf:
                bounds.append(means.c.mean <= high + _EQUAL * max(1, abs(high)))
            within = sa.select(means.c.position).where(*bounds)
            conditions.append(items.c.position.in_(within))
        return sa.or_(*conditions)

    def _means(self, column: FactorColumn) -> sa.Subquery:
        """Return position and mean of the edits that have a score in a column."""
        if not column.id.startswith(PEOPLE):
            facts = edit_scores.c
            here = (*self._facts(), _is_column(column))
            return sa.select(facts.position, facts.mean).where(*here).subquery()
        return (
            sa.select(items.c.position, sa.func.avg(ratings.c.score).label("mean"))
            .join_from(items, ratings, _RATED)
            .where(
                *_ratings_of(self._store, self._run), ratings.c.factor == column.factor
            )
            .group_by(items.c.position)
            .subquery()
        )

    def _spreads(self) -> sa.Subquery:
        """Return position and disagreement of the edits: judges' and, of edits that people rated, theirs too."""
        facts = edit_scores.c
        stored = sa.select(facts.position, facts.mean).where(
            *self._facts(), facts.rubric == "", facts.factor == _SPREAD
        )
        rated = {column.factor for column in self._columns.people}
        with_people = [
            self._spread_with_people(column)
            for column in self._columns.factors
            if column.factor in rated
        ]
        if not with_people:
            return stored.subquery()
        every = sa.union_all(stored, *with_people).subquery()
        widest = sa.func.max(every.c.mean).label("mean")
        return sa.select(every.c.position, widest).group_by(every.c.position).subquery()

    def _spread_with_people(self, column: FactorColumn) -> sa.Select[Any]:
        facts = edit_scores.c
        on_scale = [ratings.c.factor == column.factor]
        if column.lowest > -math.inf:
            on_scale.append(ratings.c.score >= column.lowest)
        if column.highest < math.inf:
            on_scale.append(ratings.c.score <= column.highest)
        of_people = (
            sa.select(items.c.position, ratings.c.score.label("low"), ratings.c.score.label("high"))
            .join_from(items, ratings, _RATED)
            .where(*_ratings_of(self._store, self._run), *on_scale)
        )  # fmt: skip
        of_judges = sa.select(facts.position, facts.low, facts.high).where(
            *self._facts(), _is_column(column)
        )
        every = sa.union_all(of_judges, of_people).subquery()
        share = (sa.func.max(every.c.high) - sa.func.min(every.c.low)) / column.width
        if not math.isfinite(column.width):
            share = sa.literal(0.0)
        return sa.select(every.c.position, share.label("mean")).group_by(
            every.c.position
        )

    def _disputed(self) -> sa.Select[Any]:
        spreads = self._spreads()
        return sa.select(spreads.c.position).where(spreads.c.mean >= DISPUTED)

    def _is_disputed(self, position: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
        """Whether judges, repeats or people disagree on an edit, or evidence contradicts a verdict."""
        return sa.or_(
            position.in_(self._disputed()), self._has([_CONTRADICTED], position)
        )

    # --- order ------------------------------------------------------------------------------------------------

    def _sorted_by(self) -> sa.Subquery | None:
        name = self._wanted.sort.removeprefix("-")
        if name == _SPREAD:
            return self._spreads()
        column = self._columns.find(name)
        return self._means(column) if column else None

    def _joined(self, query: sa.Select[Any]) -> sa.Select[Any]:
        if self._values is None:
            return query.select_from(items)
        here = self._values.c.position == items.c.position
        return query.select_from(items.outerjoin(self._values, here))

    def _order(self) -> list[sa.ColumnElement[Any]]:
        """Return what the list is sorted by: edits without a score come last both ways, ties as in the manifest."""
        self._values = self._sorted_by()
        name = self._wanted.sort.removeprefix("-")
        falling = self._wanted.sort.startswith("-")
        keys: list[sa.ColumnElement[Any]] = []
        if name == _SPREAD and self._values is not None:
            keys = [sa.func.coalesce(self._values.c.mean, 0.0)]
        elif self._values is not None:
            keys = [self._values.c.mean]
        elif name in ("model", "edit_type"):
            keys = [sa.func.coalesce(items.c[name], "")]
        elif name == "position":
            keys = [items.c.position]
        order = [key.desc() if falling else key for key in keys]
        if self._values is not None:
            order.insert(0, keys[0].is_(None))
        return [*order, items.c.position]

    def _ordered(self, query: sa.Select[Any]) -> sa.Select[Any]:
        order = self._order()
        return self._joined(query).where(*self._conditions()).order_by(*order)


def _number(text: str, default: float) -> float:
    with suppress(ValueError):
        return float(text)
    return default
