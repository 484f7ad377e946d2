"""Lists of a run's edits. The database filters, sorts and paginates them.

A filter or a sort order needs a fact about every edit, such as the mean of a factor, a status or a disagreement. The
table `edit_scores` has these facts. It is filled when a run finishes, and again when a list is opened after a new
judgement or rating.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import sqlalchemy as sa

from editjudge import plugins
from editjudge.judgement import FAILED
from editjudge.store.database import MAX_ROWS, Query, Row, chunks
from editjudge.store.judgements import SAME_ITEM, SAME_KEY
from editjudge.store.ratings import counting_ratings, ratings_of
from editjudge.store.records import PENDING, Item, RunRecord
from editjudge.store.schema import (
    Column,
    as_json,
    edit_annotations,
    edit_score_fills,
    edit_scores,
    escaped,
    items,
    judgements,
    ratings,
    runs,
    scores,
    tasks,
    upsert,
)
from editjudge.store.scores import pair_answers, ranking_factor
from editjudge.store.store import ITEM_COLUMNS, Store

DISPUTED = 1 / 3
"""Minimum distance between the lowest and highest score for a factor to count as disputed, as a share of its scale: two
points on a scale from 1 to 7.
"""
OVERALL = "overall"
PEOPLE = "people:"
"""Prefix of the id of a column with people's ratings."""
_SPREAD = "spread"
_CONTRADICTED = "contradicted"
_STATUS = "status:"
_VIOLATION = "violation:"
_MODEL = "model:"
"""Prefix of the fact that a model made one of the outputs of a pair."""
_WINNER = "winner:"
"""Prefix of the fact that a judge prefers this model's output of a pair."""
_FLIPPED = "flipped"
_QUICK = 0.5
"""Number of seconds. A list that is filled faster than this is filled again after every new judgement."""
_SHARE = 20
"""A slower list is filled again only after this many times its filling time, so the database is not filling lists all
the time.
"""
_EQUAL = 1e-9
"""Tolerance for equal means: the mean of three times 0.7 is 0.7."""


@dataclass(frozen=True)
class FactorColumn:
    """A factor of a rubric that is a column of a list."""

    id: str
    rubric: str
    factor: str
    lowest: float
    highest: float
    """Highest score; infinite if the scale has no upper end."""
    direction: str = "up"

    @property
    def width(self) -> float:
        return self.highest - self.lowest

    def level(self, score: float) -> int | None:
        """Return one of seven levels, from worst (0) to best (6), to choose a colour. Return None if an end of the
        scale is open.
        """
        if not math.isfinite(self.width):
            return None
        share = min(1.0, max(0.0, (score - self.lowest) / self.width))
        return round(6 * (share if self.direction == "up" else 1 - share))


@dataclass(frozen=True)
class Columns:
    """The score columns of a list of edits."""

    factors: Sequence[FactorColumn]
    parts: Sequence[FactorColumn]
    """Columns whose mean is `overall`, as in a report."""
    people: Sequence[FactorColumn]

    @property
    def overall(self) -> FactorColumn | None:
        """Column with the mean of `parts`, for edits that have a score in all of them."""
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
    """All scores given by judges, keyed by column id."""
    people: dict[str, list[float]] = field(default_factory=dict)
    """All scores given by people, keyed by factor."""
    statuses: set[str] = field(default_factory=set)
    violations: dict[str, None] = field(default_factory=dict)

    def spread(self, columns: Iterable[FactorColumn]) -> float:
        """Return the largest disagreement on any factor among judges, repeats and people, as a share of the factor's
        scale.
        """
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
    """Filters and sort order of a list, as given in the query string of a table page."""

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
    winner: str = ""
    """Model whose output of a pair a judge prefers."""
    flipped: str = ""
    """Set for pairs whose verdict changed with the order of the outputs."""
    q: str = ""
    sort: str = ""
    """Column id, `model`, `edit_type`, `spread` or `position`. A leading minus sorts in descending order."""

    @property
    def plain(self) -> bool:
        """Whether the list contains all edits in the order of the manifest."""
        return replace(self, judge="") == type(self)()


Counts: TypeAlias = Mapping[str, int]


@dataclass(frozen=True)
class Choices:
    """The values that a table's filters offer, each with its number of edits in the whole run."""

    models: Counts
    edit_types: Counts
    statuses: Counts
    violations: Counts
    winners: Counts
    """Models whose output a judge prefers, with the number of these pairs."""
    marks: Counts
    """Number of edits that are disputed, contradicted or flipped."""
    tags: Counts


class Neighbours(NamedTuple):
    """The previous and next edit in the order of a list, and the rank of this edit."""

    before: str | None = None
    after: str | None = None
    disagreement: str | None = None
    rank: int | None = None
    total: int = 0


def columns_of(store: Store, run: RunRecord, overall: Collection[str] = ()) -> Columns:
    """Return the columns of a run's list: its factors, and the factors that people rated. `overall` names the factors
    whose mean is shown in the column `overall`.
    """
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
        if keys[column.factor] > 1:  # two rubrics share it
            factors[number] = replace(column, id=f"{column.id}@{column.rubric}")
        if column.factor in overall and len(keys) == len(factors):
            parts.append(column)
    ends = {column.factor: (column.lowest, column.highest) for column in factors}
    # Search from ratings to edits, since there are fewer ratings than edits.
    is_of_run = sa.exists().where(
        items.c.content == ratings.c.content, *counting_ratings(store, run)
    )
    rated = sa.select(ratings.c.factor).distinct()
    rated = rated.where(is_of_run, ratings.c.choice.is_(None))
    people = []
    for name in sorted(factor for (factor,) in store._read(rated)):
        low, high = ends.get(name, (-math.inf, math.inf))
        people.append(FactorColumn(PEOPLE + name, "people", name, low, high))
    return Columns(factors, parts, people)


def count_edits(store: Store, run: RunRecord) -> int:
    query = sa.select(sa.func.count()).where(items.c.run_id == run.id)
    ((number,),) = store._read(query)
    return int(number)


def items_at(store: Store, run: RunRecord, positions: Sequence[int]) -> list[Item]:
    """Return the edits at these positions, in the given order."""
    query = sa.select(items.c.position, *ITEM_COLUMNS).where(items.c.run_id == run.id)
    edits: dict[int, list[Item]] = {}
    for position, *values in store._read_among(query, items.c.position, positions):
        edits.setdefault(position, []).append(Item(*values))
    return [item for position in positions for item in edits.get(position, ())]


def models_of(store: Store, run: RunRecord) -> list[str]:
    """Return the names of a run's editing models, in sorted order."""
    query = sa.select(items.c.model).where(items.c.run_id == run.id).distinct()
    return sorted(model or "" for (model,) in store._read(query))


def tasks_by_position(
    store: Store, run: RunRecord, model: str = ""
) -> list[tuple[int, str, str]]:
    """Return the position, task (input and instruction) and model of each of a run's edits, in order. With `model`,
    return only that model's edits.
    """
    query = sa.select(items.c.position, items.c.task, items.c.model)
    query = query.where(items.c.run_id == run.id).order_by(items.c.position)
    if model:
        query = query.where(items.c.model == model)
    return [(position, task, name or "") for position, task, name in store._read(query)]


def means_by_position(
    store: Store, run: RunRecord, judge: str, column: FactorColumn
) -> dict[int, float]:
    """Return the mean scores in a column, keyed by the edit's position. Edits without a mean are left out. Call `fill`
    first.
    """
    facts = edit_scores.c
    query = sa.select(facts.position, facts.mean).where(
        facts.run_id == run.id, facts.judge == judge, _is_column(column)
    )
    return dict(map(tuple, store._read(query)))


def siblings_of(store: Store, run: RunRecord, item: Item, limit: int) -> list[Item]:
    """Return the edits with the same input and instruction, including this one, in the order of the manifest."""
    of_run = items.c.run_id == run.id
    task = sa.select(items.c.task).where(of_run, items.c.item == item.item)
    same = items.c.task == task.scalar_subquery()
    query = sa.select(*ITEM_COLUMNS).where(of_run, same).order_by(items.c.position)
    return [Item(*row) for row in store._read(query.limit(limit))]


def tasks_of(store: Store, run: RunRecord, item: str) -> Sequence[Row]:
    """Return the rubric, judge, repeat, variant and key of every question about an edit."""
    names = ("rubric", "judge", "repeat", "variant", "key", "position")
    columns = [tasks.c[name] for name in names]
    query = sa.select(*columns).where(tasks.c.run_id == run.id, tasks.c.item == item)
    # Sorted here, since SQLite scans the whole run for ORDER BY position.
    return sorted(store._read(query), key=lambda row: (row.position, row.judge))


def summaries(
    store: Store,
    run: RunRecord,
    judge: str,
    names: Collection[str],
    columns: Columns,
) -> dict[str, EditSummary]:
    """Return the scores, statuses and violations of these edits, for one judge or for all judges."""
    edits = {name: EditSummary() for name in names}
    ids = {(column.rubric, column.factor): column.id for column in columns.factors}
    of_judge = {"judge": judge} if judge else {}
    fields = ("item", "rubric", "status", "violations", "scores")
    for row in store.judgements(run, fields=fields, item=names, **of_judge):
        edit = edits[row["item"]]
        edit.statuses.add(row["status"])
        edit.violations |= dict.fromkeys(row["violations"])
        for factor, score in (row["scores"] or {}).items():
            if column := ids.get((row["rubric"], factor)):
                edit.scores.setdefault(column, []).append(score)
    for rating in ratings_of(store, run, names):
        people = edits[rating.item].people
        people.setdefault(rating.factor, []).append(rating.score)
    return edits


# --- facts ----------------------------------------------------------------------------------------------------

_ASKED = tasks.join(items, SAME_ITEM)
_SCORED = sa.and_(scores.c.key == tasks.c.key, scores.c.score.is_not(None))
_RATED = items.join(ratings, ratings.c.content == items.c.content)


def fill(store: Store, run: RunRecord, judge: str, columns: Columns) -> None:
    """Fill the table `edit_scores` for a run, unless it is up to date. It is filled for one judge or for all judges."""
    if _is_filled(store, run, judge):
        return
    begun = time.monotonic()
    now = time.time()
    fact = {"run_id": run.id, "judge": judge, "rubric": "", "mean": 1, "low": 1, "high": 1}  # fmt: skip
    marks = [
        *_violations(store, run, judge),
        *_verdicts(store, run, judge),
        *((_CONTRADICTED, n) for n in _contradicted(store, run)),
    ]
    rows = [
        {**fact, "factor": name, "position": position}
        for name, position in dict.fromkeys(marks)
    ]
    of_list = _of_list(run, judge)
    names = ("run_id", "judge", "rubric", "factor", "position", "mean", "low", "high")
    text = edit_scores.c.judge.type
    queries = [
        *_judged_facts(run, judge),
        *_people_facts(store, run, columns),
        _overall_facts(of_list, columns),
        _spread_facts(store, run, of_list, columns),
    ]

    def work(connection: sa.Connection) -> None:
        connection.execute(sa.delete(edit_scores).where(*of_list))
        for query in queries:
            facts = query.subquery().c
            selected = sa.select(sa.literal(run.id), sa.literal(judge, text), *facts)
            connection.execute(sa.insert(edit_scores).from_select(names, selected))
        for chunk in chunks(rows, MAX_ROWS):
            connection.execute(sa.insert(edit_scores), chunk)
        filled = {
            "filled": now,
            "seconds": time.monotonic() - begun,
            "stale": False,
            "choices": _counted(connection, run, judge),
        }
        connection.execute(
            upsert(store._dialect, edit_score_fills, [*filled]),
            {"run_id": run.id, "judge": judge, **filled},
        )

    store._transact(work)


def _counted(
    connection: sa.Connection, run: RunRecord, judge: str
) -> dict[str, Counts]:
    """Count a run's edits for each value that a filter offers. The facts must be filled."""

    def count(value: Column, *conditions: sa.ColumnElement[bool]) -> Counts:
        value = sa.func.coalesce(value, "")
        query = sa.select(value, sa.func.count()).where(*conditions).group_by(value)
        return dict(sorted(tuple(row) for row in connection.execute(query)))

    of_list = _of_list(run, judge)
    of_run = items.c.run_id == run.id
    facts = count(edit_scores.c.factor, *of_list, edit_scores.c.rubric == "")
    disputed = count(edit_scores.c.factor, *of_list, _IS_DISPUTED)

    def named(prefix: str) -> Counts:
        return {
            name.removeprefix(prefix): number
            for name, number in facts.items()
            if name.startswith(prefix)
        }

    return {
        "models": named(_MODEL) or count(items.c.model, of_run),
        "edit_types": count(items.c.edit_type, of_run),
        "statuses": named(_STATUS),
        "violations": named(_VIOLATION),
        "winners": named(_WINNER),
        "marks": {
            "disputed": disputed.get(_SPREAD, 0),
            "contradicted": facts.get(_CONTRADICTED, 0),
            "flipped": facts.get(_FLIPPED, 0),
        },
    }


def _is_filled(store: Store, run: RunRecord, judge: str) -> bool:
    fills = edit_score_fills.c
    latest = sa.select(sa.func.max(runs.c.updated)).scalar_subquery()
    query = sa.select(fills.filled, fills.seconds, fills.stale, fills.choices, latest)
    query = query.where(fills.run_id == run.id, fills.judge == judge)
    for filled, seconds, stale, choices, updated in store._read(query):
        if "marks" not in choices:  # filled by an earlier version
            return False
        # Another run over the same edits may have measured evidence that contradicts this run.
        if not stale and updated < filled:
            return True
        return bool(seconds > _QUICK and time.time() < filled + _SHARE * seconds)
    return False


# Each query selects rubric, factor, position, mean, low and high.


def _judged_facts(run: RunRecord, judge: str) -> Iterator[Query]:
    """Yield queries for the mean score of each factor and for the statuses."""
    conditions = (tasks.c.run_id == run.id, *_of_judge(judge))
    score = scores.c.score
    mean = sa.func.round(sa.cast(sa.func.avg(score), sa.Numeric), 9)
    by = (tasks.c.rubric, scores.c.factor, items.c.position)
    ends = (sa.func.min(score), sa.func.max(score))
    query = sa.select(*by, sa.cast(mean, sa.Double).label("mean"), *ends)
    yield (
        query.select_from(_ASKED.join(scores, _SCORED)).where(*conditions).group_by(*by)
    )
    status = sa.literal(_STATUS).concat(sa.func.coalesce(judgements.c.status, PENDING))
    query = sa.select(sa.literal(""), status, items.c.position, *_thrice(1.0))
    joined = _ASKED.outerjoin(judgements, SAME_KEY)
    yield query.select_from(joined).where(*conditions).distinct()


def _people_facts(store: Store, run: RunRecord, columns: Columns) -> Iterator[Query]:
    """Yield a query for the mean rating of each factor that people rate."""
    text = edit_scores.c.factor.type
    for column in columns.people:
        named = (sa.literal(""), sa.literal(column.id, text), items.c.position)
        mean = sa.func.avg(ratings.c.score)
        query = sa.select(*named, *_thrice(mean)).select_from(_RATED)
        rated = (*counting_ratings(store, run), ratings.c.factor == column.factor)
        yield query.where(*rated).group_by(items.c.position)


def _overall_facts(
    of_list: Sequence[sa.ColumnElement[bool]], columns: Columns
) -> Query:
    facts = edit_scores.c
    named = (sa.literal(""), sa.literal(OVERALL), facts.position)
    query = sa.select(*named, *_thrice(sa.func.avg(facts.mean)))
    query = query.where(*of_list, _among(columns.parts)).group_by(facts.position)
    return query.having(sa.func.count() == len(columns.parts))


def _spread_facts(
    store: Store,
    run: RunRecord,
    of_list: Sequence[sa.ColumnElement[bool]],
    columns: Columns,
) -> Query:
    """Return a query for the largest disagreement on any factor among judges, repeats and people, as a share of the
    factor's scale.

    Imported ratings may be outside the scale; they are left out.
    """
    facts = edit_scores.c
    closed = [column for column in columns.factors if math.isfinite(column.width)]
    widths = [(_is_column(column), column.width) for column in closed]
    width = sa.case(*widths, else_=1.0) if widths else sa.literal(1.0)
    of_factor = (facts.position, facts.rubric, facts.factor, facts.low, facts.high)
    queries = [
        sa.select(*of_factor, width.label("width")).where(*of_list, _among(closed))
    ]
    rated = {column.factor for column in columns.people}
    for column in closed:
        if column.factor in rated:
            score = ratings.c.score
            rubric = sa.literal(column.rubric, facts.rubric.type)
            rated_factor = (items.c.position, rubric, ratings.c.factor, score, score)
            query = sa.select(*rated_factor, sa.literal(column.width))
            on_scale = score.between(column.lowest, column.highest)
            same = (*counting_ratings(store, run), ratings.c.factor == column.factor)
            queries.append(query.select_from(_RATED).where(*same, on_scale))
    ends = sa.union_all(*queries).subquery().c
    by_factor = (
        sa.select(
            ends.position,
            ((sa.func.max(ends.high) - sa.func.min(ends.low)) / sa.func.max(ends.width)).label("share"),
        )
        .group_by(ends.position, ends.rubric, ends.factor)
        .subquery()
        .c
    )  # fmt: skip
    named = (sa.literal(""), sa.literal(_SPREAD), by_factor.position)
    query = sa.select(*named, *_thrice(sa.func.max(by_factor.share)))
    return query.group_by(by_factor.position)


def _thrice(value: Column | float) -> list[Column]:
    """Return a value three times: as the mean, the lowest and the highest value."""
    element = sa.literal(value) if isinstance(value, float) else value
    return [element.label(name) for name in ("mean", "low", "high")]


def _violations(store: Store, run: RunRecord, judge: str) -> Iterator[tuple[str, int]]:
    query = (
        sa.select(judgements.c.violations, items.c.position)
        .select_from(_ASKED.join(judgements, SAME_KEY))
        .where(
            tasks.c.run_id == run.id, judgements.c.violations != [], *_of_judge(judge)
        )
    )
    for violations, position in store.stream(query):
        for remark in violations:
            yield _VIOLATION + remark["code"], position


def _verdicts(store: Store, run: RunRecord, judge: str) -> Iterator[tuple[str, int]]:
    """Yield labels of each pair, each with the pair's position: a label for each of its models, for the model that the
    judge prefers, and for a verdict that flipped when the order was swapped.
    """
    pairs = pair_answers(store, run)
    if not pairs:
        return
    query = sa.select(items.c.item, items.c.position, items.c.metadata)
    origins = {
        item: (position, metadata)
        for item, position, metadata in store._read(
            query.where(items.c.run_id == run.id)
        )
    }
    for pair in pairs:
        if judge and judge not in (pair.judge, pair.judge.rpartition("@")[0]):
            continue
        position, metadata = origins[pair.item]
        models = {side: str(metadata.get(f"model_{side}") or "") for side in "ab"}
        for model in filter(None, models.values()):
            yield _MODEL + model, position
        decision = pair.decision(ranking_factor([pair]))
        if decision.verdict in models:
            yield _WINNER + models[decision.verdict], position
        if decision.flipped:
            yield _FLIPPED, position


def _contradicted(store: Store, run: RunRecord) -> Iterator[int]:
    """Yield the positions of edits for which measured evidence contradicts a verdict."""
    for check in plugins.usable("contradictions"):
        for verdict in check(store, run, None):
            if verdict.refuted:
                yield verdict.position


def _of_list(run: RunRecord, judge: str) -> tuple[sa.ColumnElement[bool], ...]:
    return edit_scores.c.run_id == run.id, edit_scores.c.judge == judge


def _is_column(column: FactorColumn) -> sa.ColumnElement[bool]:
    facts = edit_scores.c
    if column.id.startswith(PEOPLE):
        return sa.and_(facts.rubric == "", facts.factor == column.id)
    return sa.and_(facts.rubric == column.rubric, facts.factor == column.factor)


def _among(columns: Iterable[FactorColumn]) -> sa.ColumnElement[bool]:
    return sa.or_(sa.false(), *map(_is_column, columns))


def _of_judge(judge: str) -> list[sa.ColumnElement[bool]]:
    return [tasks.c.judge == judge] if judge else []


# --- lists ----------------------------------------------------------------------------------------------------


class EditList:
    """The edits of a run that match a filter, in its sort order. Call `fill` first."""

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
        """Return the positions of `number` edits, starting with the edit at index `first`."""
        query = self._select(items.c.position).order_by(*self._order())
        rows = self._store._read(query.offset(first).limit(number))
        return [position for (position,) in rows]

    def neighbours(self, item: str) -> Neighbours:
        """Return the edits before and after an edit in this list."""
        plain = self._wanted.plain
        number: sa.ColumnElement[int] = items.c.position
        if not plain:  # otherwise the index is used, however long the run is
            number = sa.func.row_number().over(order_by=self._order())
        numbered = (items.c.item, items.c.position, number.label("number"))
        table = self._select(*numbered).subquery()
        here = self._store._read(sa.select(table.c.number).where(table.c.item == item))
        total = self.total()
        if not here:
            return Neighbours(total=total)
        ((at,),) = here
        rank = at
        if plain:
            until = (items.c.run_id == self._run.id, items.c.position <= at)
            query = sa.select(sa.func.count()).where(*until)
            ((rank,),) = self._store._read(query)
        names = sa.select(table.c.item)
        later = names.where(table.c.number > at).order_by(table.c.number)
        earlier = names.where(table.c.number < at).order_by(table.c.number.desc())
        facts = edit_scores.c
        disputed = self._marked(
            sa.or_(_IS_DISPUTED, facts.factor == _CONTRADICTED), facts.rubric == ""
        )
        queries = (earlier, later, later.where(table.c.position.in_(disputed)))
        rows = [self._store._read(query.limit(1)) for query in queries]
        before, after, disagreement = (row[0][0] if row else None for row in rows)
        return Neighbours(before, after, disagreement, rank, total)

    def choices(self) -> Choices:
        """Return the values that the filters offer for the whole run."""
        fills = edit_score_fills.c
        query = sa.select(fills.choices).where(
            fills.run_id == self._run.id, fills.judge == self._wanted.judge
        )
        ((choices,),) = self._store._read(query)
        same = items.c.content == edit_annotations.c.content
        # Search from annotations to edits, since there are fewer annotations than edits.
        is_of_run = sa.exists().where(items.c.run_id == self._run.id, same)
        tags = sa.select(edit_annotations.c.tags).where(is_of_run)
        every = Counter(
            tag for (of_edit,) in self._store._read(tags) for tag in of_edit
        )
        return Choices(**choices, tags=dict(sorted(every.items())))

    def _marked(self, *conditions: sa.ColumnElement[bool]) -> Query:
        """Return a query for the positions of edits with a matching fact."""
        of_list = _of_list(self._run, self._wanted.judge)
        return sa.select(edit_scores.c.position).where(*of_list, *conditions)

    def _has(self, *names: str) -> sa.ColumnElement[bool]:
        facts = edit_scores.c
        marked = self._marked(facts.rubric == "", facts.factor.in_(names))
        return items.c.position.in_(marked)

    def _conditions(self) -> list[sa.ColumnElement[bool]]:
        wanted = self._wanted
        conditions: list[sa.ColumnElement[bool]] = [items.c.run_id == self._run.id]
        if wanted.model:
            is_of_model = items.c.model == wanted.model
            conditions.append(sa.or_(is_of_model, self._has(_MODEL + wanted.model)))
        if wanted.edit_type:
            conditions.append(items.c.edit_type == wanted.edit_type)
        if self._models:
            conditions.append(items.c.model.in_(self._models))
        if wanted.status == "failed":
            conditions.append(self._has(*(_STATUS + status for status in FAILED)))
        elif wanted.status:
            conditions.append(self._has(_STATUS + wanted.status))
        marks = {
            _VIOLATION + wanted.violation: wanted.violation,
            _WINNER + wanted.winner: wanted.winner,
            _CONTRADICTED: wanted.contradicted,
            _FLIPPED: wanted.flipped,
        }
        conditions += [
            self._has(name) for name, is_wanted in marks.items() if is_wanted
        ]
        if wanted.disputed:
            disputed = self._marked(edit_scores.c.rubric == "", _IS_DISPUTED)
            conditions.append(items.c.position.in_(disputed))
        if wanted.q:
            texts = (items.c.instruction, items.c.item)
            conditions.append(
                sa.or_(*(text.icontains(wanted.q, autoescape=True) for text in texts))
            )
        if wanted.tag:
            # Compared as text: quotation marks inside a JSON string are escaped, so only a complete tag matches.
            tags = sa.type_coerce(edit_annotations.c.tags, sa.Text)
            tag = escaped(as_json(wanted.tag))
            tagged = sa.select(edit_annotations.c.content).where(
                tags.contains(tag, autoescape=True)
            )
            conditions.append(items.c.content.in_(tagged))
        if wanted.factor or wanted.least or wanted.most:
            conditions.append(items.c.position.in_(self._in_range()))
        return conditions

    def _in_range(self) -> Query:
        """Return a query for the positions of edits with a score in a given range, for one factor or for any."""
        chosen = self._columns.factors
        if self._wanted.factor:
            named = self._columns.find(self._wanted.factor)
            chosen = [named] if named else []
        bounds = [_among(chosen)]
        with suppress(ValueError):
            low = float(self._wanted.least)
            bounds.append(edit_scores.c.mean >= low - _EQUAL * max(1, abs(low)))
        with suppress(ValueError):
            high = float(self._wanted.most)
            bounds.append(edit_scores.c.mean <= high + _EQUAL * max(1, abs(high)))
        return self._marked(*bounds)

    def _sort_fact(self) -> sa.ColumnElement[bool] | None:
        """Return the condition for the fact by which the list is sorted, or None if it is not sorted by a fact."""
        name = self._wanted.sort.removeprefix("-")
        if name == _SPREAD:
            return sa.and_(edit_scores.c.rubric == "", edit_scores.c.factor == _SPREAD)
        column = self._columns.find(name)
        return None if column is None else _is_column(column)

    def _select(self, *columns: Column) -> Query:
        """Return a query for these columns of the matching edits, joined with the fact by which they are sorted."""
        query = sa.select(*columns).where(*self._conditions())
        fact = self._sort_fact()
        if fact is None:
            return query.select_from(items)
        same = edit_scores.c.position == items.c.position
        of_list = _of_list(self._run, self._wanted.judge)
        joined = items.outerjoin(edit_scores, sa.and_(same, *of_list, fact))
        return query.select_from(joined)

    def _order(self) -> list[Column]:
        """Return the sort order. In both directions, edits without a score come last. Ties are in the order of the
        manifest.
        """
        name = self._wanted.sort.removeprefix("-")
        key: Column = items.c.position
        if name == _SPREAD:
            key = sa.func.coalesce(edit_scores.c.mean, 0.0)
        elif self._sort_fact() is not None:
            key = edit_scores.c.mean
        elif name in ("model", "edit_type"):
            key = sa.func.coalesce(items.c[name], "")
        falling = self._wanted.sort.startswith("-")
        order = [key.desc() if falling else key, items.c.position]
        return [key.is_(None), *order] if key is edit_scores.c.mean else order


_IS_DISPUTED = sa.and_(edit_scores.c.factor == _SPREAD, edit_scores.c.mean >= DISPUTED)
