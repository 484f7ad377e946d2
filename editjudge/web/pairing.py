"""Two runs, or two models of one run, by one judge: what the paired test says, and the edits side by side."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlencode

import numpy as np
from markupsafe import Markup

from editjudge.errors import EditjudgeError, UsageError
from editjudge.report.charts import draw
from editjudge.report.comparison import (
    ComparisonReport,
    compare_tables,
    conclusions,
    differences,
    forests,
    run_differences,
)
from editjudge.report.run_data import RunData, load
from editjudge.report.same_rubrics import same_rubrics
from editjudge.report.tables import Table
from editjudge.store import browse
from editjudge.store.browse import FactorColumn
from editjudge.store.records import Item, RunRecord
from editjudge.store.store import Store
from editjudge.web.background import BackgroundCache, NotReady
from editjudge.web.fields import whole_number
from editjudge.web.listing import PAGE, Array, Browser, Query, fitted

LARGEST = 50_000
"""Edits of a run that is tested here: reading more takes a minute and gigabytes, which the terminal may have."""


@dataclass(frozen=True)
class PairSide:
    run: RunRecord
    model: str
    models: list[str]

    @property
    def name(self) -> str:
        return f"{self.model} ({self.run.name})" if self.model else self.run.name


@dataclass(frozen=True)
class EditPair:
    items: tuple[Item, Item]
    scores: tuple[list[float], list[float]]


@dataclass(frozen=True)
class PairTest:
    """What `editjudge compare` says, by this judge."""

    command: str
    conclusions: Sequence[str] = ()
    charts: Sequence[Markup] = ()
    tables: Sequence[Table] = ()
    problem: str = ""
    ready: bool = True


@dataclass(frozen=True)
class RunComparison:
    sides: tuple[PairSide, PairSide]
    judges: list[str]
    judge: str
    columns: list[FactorColumn]
    pairs: list[EditPair]
    total: int
    alone: tuple[int, int]
    """Edits of each side that the other has no counterpart of."""
    test: PairTest
    sort: str
    page: int
    last: int
    ready: bool

    def address(self, **changes: object) -> str:
        a, b = self.sides
        values = {"a": a.run.id, "b": b.run.id, "a_model": a.model, "b_model": b.model, "judge": self.judge}
        values |= {"sort": self.sort, "page": self.page}
        return "/compare?" + urlencode({k: v for k, v in (values | changes).items() if v not in ("", None)})


class Pairing:
    def __init__(self, store: Store, browser: Browser) -> None:
        self._store, self._browser = store, browser
        self._tests = BackgroundCache(16, fresh=3600)

    def page(self, a: RunRecord, b: RunRecord, parameters: Mapping[str, str]) -> RunComparison:
        models, sort = (parameters.get("a_model", ""), parameters.get("b_model", "")), parameters.get("sort", "")
        if a.id == b.id and models[0] == models[1]:
            raise UsageError("Choose two runs, or two models of one run: here both sides are the same.")
        judges = [judge for judge in a.spec.get("judges", ()) if judge in b.spec.get("judges", ())]
        judge = next((name for name in (parameters.get("judge"), *judges) if name in judges), "")
        columns = self._columns(a, b)
        sides = (PairSide(a, models[0], []), PairSide(b, models[1], []))
        try:
            labels = [self._browser.labels(run) for run in (a, b)]
            totals = [browse.count_edits(self._store, run) for run in (a, b)]
            orders = [self._browser.order(r, Query(model=m), n) for r, m, n in zip((a, b), models, totals, strict=True)]
            means = [[self._browser.means(run, judge, column) for column in columns] for run in (a, b)]
            by_model = not any(models) and bool({*labels[0].models} & {*labels[1].models})
            keys = [self._keys(run, order, by_model) for run, order in zip((a, b), orders, strict=True)]
        except NotReady:
            return RunComparison(
                sides, judges, judge, [], [], 0, (0, 0), PairTest("", ready=False), sort, 1, 1, ready=False
            )
        sides = (replace(sides[0], models=labels[0].models), replace(sides[1], models=labels[1].models))
        rows_a, rows_b = _matched(orders, keys)
        scores_a, scores_b = (
            np.array([fitted(mean, int(rows.max(initial=-1)) + 1, fill=np.nan)[rows] for mean in side]).reshape(
                len(columns), len(rows)
            )
            for side, rows in zip(means, (rows_a, rows_b), strict=True)
        )
        order = _sorted(scores_a - scores_b, columns, sort)
        last = max(1, -(-len(order) // PAGE))
        page = min(last, max(1, whole_number(parameters.get("page", "")) or 1))
        here = order[PAGE * (page - 1) : PAGE * page]
        edits = (self._browser.items(a, rows_a[here]), self._browser.items(b, rows_b[here]))
        pairs = [
            EditPair((left, right), (scores_a[:, n].tolist(), scores_b[:, n].tolist()))
            for n, left, right in zip(here, *edits, strict=True)
        ]
        alone = (len(orders[0]) - len(rows_a), len(orders[1]) - len(rows_b))
        test = self.test(sides, judge)
        return RunComparison(
            sides, judges, judge, columns, pairs, len(order), alone, test, sort, page, last, ready=True
        )

    def _columns(self, a: RunRecord, b: RunRecord) -> list[FactorColumn]:
        mine, theirs = (self._browser.columns(run) for run in (a, b))
        same = {name for name, key in a.spec.get("rubrics", {}).items() if b.spec.get("rubrics", {}).get(name) == key}
        both = [column for column in mine.factors if column in theirs.factors and column.rubric in same]
        has_overall = mine.overall and mine.parts == theirs.parts and {part.rubric for part in mine.parts} <= same
        return both + ([mine.overall] if mine.overall and has_overall else [])

    def _keys(self, run: RunRecord, order: Array, by_model: bool) -> Array:
        """What each edit is paired by, as `compare` does: what was to be edited, within a model that both have."""
        keys = fitted(self._browser.task_keys(run), int(order.max(initial=-1)) + 1, fill=0)[order]
        if by_model:
            labels = self._browser.labels(run)
            marks = np.array([hash(name) for name in labels.models], np.int64)
            keys = keys ^ marks[labels.model[order]]
        return keys

    # --- the test -------------------------------------------------------------------------------------------------

    def test(self, sides: tuple[PairSide, PairSide], judge: str) -> PairTest:
        a, b = sides
        names = ["--a", a.model, "--b", b.model] if a.run.id == b.run.id else [b.run.name]
        if len(a.run.spec.get("judges", ())) > 1:
            names += ["--judge", judge]
        command = shlex.join(["editjudge", "compare", a.run.name, *names])
        if max(browse.count_edits(self._store, side.run) for side in sides) > LARGEST:
            return PairTest(command, problem=f"Runs of more than {LARGEST:,} edits are tested in the terminal.")
        key = (a.run.id, a.model, b.run.id, b.model, judge)
        try:
            reports = self._tests.get(key, (a.run, b.run), partial(self._compare, a, b, judge or None), 3.0)
        except NotReady:
            return PairTest(command, ready=False)
        except EditjudgeError as error:
            return PairTest(command, problem=f"No test: {error}")
        tables = compare_tables(reports, "model" if a.run.id == b.run.id else "run")
        charts = [Markup(draw(chart)) for _, chart in forests(reports)]  # noqa: S704  (a template escapes its values)
        problem = "" if reports else "No test: nothing was paired."
        return PairTest(command, conclusions(reports), charts, tables, problem)

    def _compare(self, a: PairSide, b: PairSide, judge: str | None) -> list[ComparisonReport]:
        if a.run.id == b.run.id:
            return differences(load(self._store, str(a.run.id)), "model", a.model, b.model, judge=judge)
        first, second = (_only(load(self._store, str(side.run.id), pairing=True), side.model) for side in (a, b))
        same = same_rubrics(first, second)
        return run_differences(same.a, same.b, judge=judge)[0]


def _only(judged: RunData, model: str) -> RunData:
    if not model:
        return judged
    return replace(judged, scores=judged.scores.where(model=model), side=judged.side.only(model))


def _matched(orders: Sequence[Array], keys: Sequence[Array]) -> tuple[Array, Array]:
    """The positions that have the same key, in the order of the first; a key that comes twice is paired once."""
    _, at_a, at_b = np.intersect1d(keys[0], keys[1], return_indices=True)
    order = np.argsort(at_a)
    return orders[0][at_a[order]], orders[1][at_b[order]]


def _sorted(gap: Array, columns: list[FactorColumn], sort: str) -> Array:
    """By the difference of one factor, the largest of A first, or with a minus of B; else by the largest of any."""
    if sort == "position":
        return np.arange(gap.shape[1])
    number = next((n for n, column in enumerate(columns) if column.id == sort.removeprefix("-")), None)
    if number is not None:
        value = gap[number] if sort.startswith("-") else -gap[number]
    else:
        ranges = np.array([[column.highest - column.lowest] for column in columns] or [[1]], np.float32)
        value = -np.nan_to_num(np.abs(gap) / ranges, nan=0).max(axis=0, initial=0)
    return np.argsort(value, kind="stable")
