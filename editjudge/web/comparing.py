"""Leaderboards of a run, and comparison of two runs, or of two models in a run, by one judge."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlencode

import numpy as np
from markupsafe import Markup

from editjudge.errors import EditjudgeError, UsageError
from editjudge.report.answers import Answer
from editjudge.report.charts import draw
from editjudge.report.comparison import compare, compare_runs
from editjudge.report.pairwise import PairRun, best_models, load_pairs
from editjudge.report.run_data import RunData, load
from editjudge.report.selection import Choice
from editjudge.report.summary import measure
from editjudge.report.tables import Table
from editjudge.running.sums import OVERALL
from editjudge.stats.columns import Floats, Ints
from editjudge.stats.pairwise import ModelRecord, PairwiseSummary
from editjudge.stats.summary import Cell, summarise
from editjudge.store.listing import (
    FactorColumn,
    count_edits,
    items_at,
    means_by_position,
    models_of,
    tasks_by_position,
)
from editjudge.store.records import Item, RunRecord
from editjudge.store.store import Store
from editjudge.web.background import BackgroundCache, NotReady
from editjudge.web.listing import PAGE, Browser
from editjudge.web.values import whole_number

# --- two sides ------------------------------------------------------------------------------------------------

LARGEST = 50_000
"""Maximum number of edits in a run that is tested here. Larger runs take a minute and gigabytes of memory, so they are
left to the command line."""


@dataclass(frozen=True)
class PairSide:
    """A run, or one model of a run."""

    run: RunRecord
    model: str
    models: list[str]

    @property
    def name(self) -> str:
        return f"{self.model} ({self.run.name})" if self.model else self.run.name


@dataclass(frozen=True)
class PairTest:
    """The result of `editjudge compare` for this judge."""

    command: str
    conclusions: Sequence[str] = ()
    charts: Sequence[Markup] = ()
    tables: Sequence[Table] = ()
    problem: str = ""
    ready: bool = True


@dataclass(frozen=True)
class RunComparison:
    """One page of a comparison of two sides, edit by edit."""

    sides: tuple[PairSide, PairSide]
    judges: list[str]
    judge: str
    columns: list[FactorColumn]
    pairs: list[tuple[Item, Item, list[tuple[float, float]]]]
    """Pairs of edits, each with the scores of both edits by column."""
    total: int
    alone: tuple[int, int]
    """Number of edits on each side that have no counterpart on the other."""
    test: PairTest
    sort: str
    page: int
    last: int

    def address(self, **changes: object) -> str:
        a, b = self.sides
        values: dict[str, object] = {
            "a": a.run.id,
            "b": b.run.id,
            "a_model": a.model,
            "b_model": b.model,
            "judge": self.judge,
            "sort": self.sort,
            "page": self.page,
        }
        values |= changes
        set_values = {name: v for name, v in values.items() if v not in ("", None)}
        return "/compare?" + urlencode(set_values)


class Pairing:
    """Pairs the edits of two sides, and tests their difference in the background."""

    def __init__(self, store: Store, browser: Browser) -> None:
        self._store = store
        self._browser = browser
        self._tests = BackgroundCache(16, fresh=3600)

    def page(
        self, a: RunRecord, b: RunRecord, parameters: Mapping[str, str]
    ) -> RunComparison:
        left = PairSide(a, parameters.get("a_model", ""), models_of(self._store, a))
        right = PairSide(b, parameters.get("b_model", ""), models_of(self._store, b))
        if a.id == b.id and left.model == right.model:
            raise UsageError(
                "Choose two runs, or two models of one run: here both sides are the same."
            )
        judges_b = b.spec.get("judges", ())
        judges = [judge for judge in a.spec.get("judges", ()) if judge in judges_b]
        wanted = (parameters.get("judge"), *judges)
        judge = next((name for name in wanted if name in judges), "")
        sort = parameters.get("sort", "")
        columns = self._columns(a, b)

        edits_a = tasks_by_position(self._store, a, left.model)
        edits_b = tasks_by_position(self._store, b, right.model)
        any_model = not left.model and not right.model
        by_model = any_model and bool({*left.models} & {*right.models})
        rows_a, rows_b = _matched(edits_a, edits_b, by_model)
        scores_a = self._scores(a, judge, columns, rows_a)
        scores_b = self._scores(b, judge, columns, rows_b)
        order = _sorted(scores_a - scores_b, columns, sort)

        last = max(1, -(-len(order) // PAGE))
        page = min(last, max(1, whole_number(parameters.get("page", "")) or 1))
        here = order[PAGE * (page - 1) : PAGE * page]
        items_a = items_at(self._store, a, [rows_a[n] for n in here])
        items_b = items_at(self._store, b, [rows_b[n] for n in here])
        pairs = [
            (
                x,
                y,
                [*zip(scores_a[:, n].tolist(), scores_b[:, n].tolist(), strict=True)],
            )
            for n, x, y in zip(here, items_a, items_b, strict=True)
        ]
        return RunComparison(
            (left, right),
            judges,
            judge,
            columns,
            pairs,
            total=len(order),
            alone=(len(edits_a) - len(rows_a), len(edits_b) - len(rows_b)),
            test=self._test(left, right, judge),
            sort=sort,
            page=page,
            last=last,
        )

    def _columns(self, a: RunRecord, b: RunRecord) -> list[FactorColumn]:
        """Return the factors of the rubrics that both runs have, and `overall` if it is computed from the same factors."""
        columns_a = self._browser.columns(a)
        columns_b = self._browser.columns(b)
        rubrics_b = b.spec.get("rubrics", {})
        rubrics_a = a.spec.get("rubrics", {})
        same = {name for name, key in rubrics_a.items() if rubrics_b.get(name) == key}
        columns = [
            column
            for column in columns_a.factors
            if column in columns_b.factors and column.rubric in same
        ]
        parts = {part.rubric for part in columns_a.parts}
        if columns_a.overall and columns_a.parts == columns_b.parts and parts <= same:
            columns.append(columns_a.overall)
        return columns

    def _scores(
        self,
        run: RunRecord,
        judge: str,
        columns: Sequence[FactorColumn],
        rows: Sequence[int],
    ) -> Floats:
        """Return the mean score of each edit for each column, or NaN if the edit has no score in the column."""
        self._browser.fill(run, judge, self._browser.columns(run))
        table = np.full((len(columns), len(rows)), np.nan)
        for number, column in enumerate(columns):
            means = means_by_position(self._store, run, judge, column)
            table[number] = [means.get(row, np.nan) for row in rows]
        return table

    def _test(self, a: PairSide, b: PairSide, judge: str) -> PairTest:
        options = [b.run.name]
        if a.run.id == b.run.id:
            options = ["--a", a.model, "--b", b.model]
        if len(a.run.spec.get("judges", ())) > 1:
            options += ["--judge", judge]
        command = shlex.join(["editjudge", "compare", a.run.name, *options])
        if max(count_edits(self._store, side.run) for side in (a, b)) > LARGEST:
            return PairTest(
                command,
                problem=f"Runs of more than {LARGEST:,} edits are compared on the command line.",
            )
        key = (a.run.id, a.model, b.run.id, b.model, judge)
        try:
            answer = self._tests.get(
                key, (a.run, b.run), partial(self._compare, a, b, judge or None), 3.0
            )
        except NotReady:
            return PairTest(command, ready=False)
        except EditjudgeError as error:
            return PairTest(command, problem=f"No test: {error}")
        charts = [Markup(draw(chart)) for chart in answer.charts]  # noqa: S704  (a template escapes its values)
        problem = "" if answer.tables else "No test: no edits could be paired."
        return PairTest(command, answer.conclusions, charts, answer.tables, problem)

    def _compare(self, a: PairSide, b: PairSide, judge: str | None) -> Answer:
        choice = Choice(judge=judge)
        if a.run.id == b.run.id:
            run = load(self._store, str(a.run.id))
            return compare(run, "model", a.model, b.model, choice)
        return compare_runs(self._loaded(a), self._loaded(b), choice)

    def _loaded(self, side: PairSide) -> RunData:
        run = load(self._store, str(side.run.id), pairing=True)
        if not side.model:
            return run
        scores = run.scores.where(model=side.model)
        return replace(run, scores=scores, side=run.side.of_model(side.model))


def _matched(
    a: Sequence[tuple[int, str, str]], b: Sequence[tuple[int, str, str]], by_model: bool
) -> tuple[list[int], list[int]]:
    """Return the positions of edits with the same task on both sides and, with `by_model`, the same model.

    They are paired as in `compare`, in the order of side A. If a side has several edits with the same task, only the
    first is paired.
    """
    firsts: list[dict[tuple[str, str], int]] = []
    for edits in (a, b):
        first: dict[tuple[str, str], int] = {}
        for position, task, model in edits:
            first.setdefault((task, model if by_model else ""), position)
        firsts.append(first)
    both = [key for key in firsts[0] if key in firsts[1]]
    return [firsts[0][key] for key in both], [firsts[1][key] for key in both]


def _sorted(gap: Floats, columns: list[FactorColumn], sort: str) -> Ints:
    """Return the order in which to show the pairs.

    If `sort` names a factor, pairs are sorted by its difference, with the largest lead of A first, or of B if `sort`
    begins with a minus. Otherwise they are sorted by the largest difference of any factor, or keep their order if
    `sort` is `position`.
    """
    if sort == "position":
        return np.arange(gap.shape[1])
    ids = [column.id for column in columns]
    if sort.removeprefix("-") in ids:
        row = gap[ids.index(sort.removeprefix("-"))]
        value = row if sort.startswith("-") else -row
    else:
        spans = [[column.highest - column.lowest] for column in columns] or [[1]]
        shares = np.abs(gap) / np.array(spans, np.float32)
        value = -np.nan_to_num(shares, nan=0).max(axis=0, initial=0)
    return np.argsort(value, kind="stable")


# --- leaderboards ---------------------------------------------------------------------------------------------

_MAX_BOARDS = 16
"""Number of cached leaderboards. Each takes a second to compute, and is viewed more often than its run changes."""


@dataclass(frozen=True)
class Board:
    """Models sorted by strength, computed from one judge's verdicts on one factor."""

    judges: Sequence[str]
    factors: Sequence[str]
    judge: str
    factor: str
    summary: PairwiseSummary
    lead: Sequence[str]
    reach: float
    """Log odds at the ends of the axis."""

    def at(self, value: float) -> float:
        """Return the position of a strength on the axis, in percent."""
        return 50 + 50 * max(-1.0, min(1.0, value / self.reach))

    def letters(self, model: ModelRecord) -> str:
        return ", ".join(map(str, model.groups))


@dataclass(frozen=True)
class ScoreBoard:
    """Models with one judge's scores, overall and by rubric. If no edit has all factors of a rubric, the factors that
    have scores are shown instead."""

    judge: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell | None]]]
    """Models with their cells, from best to worst overall, or in alphabetical order if a model has no overall score."""


class Leaderboards:
    """Leaderboards, computed once for each state of a run."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pairs = BackgroundCache(_MAX_BOARDS, fresh=3600)
        self._scores = BackgroundCache(4 * _MAX_BOARDS, fresh=3600)

    def of_pairs(
        self, run: RunRecord, judge: str, factor: str, patience: float = 5.0
    ) -> Board:
        """Return the leaderboard of a pairwise run. Raise `NotReady` while it is being computed."""

        def make() -> Board:
            pairs = load_pairs(self._store, str(run.id))
            assert pairs is not None  # noqa: S101  (the page has looked)
            return _board(pairs, judge, factor)

        return self._pairs.get((run.id, judge, factor), (run,), make, patience)

    def of_scores(
        self, run: RunRecord, patience: float
    ) -> tuple[list[ScoreBoard], list[str]]:
        """Return a leaderboard for each judge, and the conclusion about the run's models with its warning; none if the
        models were not compared. Raise `NotReady` while the leaderboards are being computed."""

        def make() -> tuple[list[ScoreBoard], list[str]]:
            data = load(self._store, str(run.id))
            verdict = [*measure(data).conclusions[:1], *data.unjudged()]
            return score_boards(data), verdict

        return self._scores.get(run.id, (run,), make, patience)


def score_boards(run: RunData) -> list[ScoreBoard]:
    """Return a leaderboard for each judge that has scores."""
    scores = run.with_aggregates()
    present = scores.factor.present()
    boards = []
    for judge in scores.judge.present():
        aggregates = run.aggregates.get(judge, ())
        rubrics = [a for a in aggregates if a.how == "mean" and a.name != OVERALL]
        means = [a.name for a in aggregates if a.how == "mean"]
        names = [*sorted(run.set_scores), OVERALL, *means, *run.scores.factor.present()]
        names = list(dict.fromkeys(names))
        part = scores.where(judge=judge, factor=[n for n in names if n in present])
        cells = summarise(part, scales=run.all_scales())
        scored = {(c.model, c.factor): c for c in cells if c.mean is not None}
        factors = {factor for _, factor in scored}
        columns = factors.copy()
        for aggregate in aggregates:
            # The factors of a single rubric are shown beside their mean.
            if aggregate.name in factors and len(rubrics) > 1:
                columns.difference_update(aggregate.factors)
        ordered = [name for name in names if name in columns]
        if not ordered:
            continue
        models = sorted({cell.model for cell in cells})
        first = [scored.get((model, ordered[0])) for model in models]
        if all(first):
            means_of = {cell.model: cell.mean or 0.0 for cell in first if cell}
            models.sort(key=lambda model: -means_of[model])
        rows = [(m, [scored.get((m, name)) for name in ordered]) for m in models]
        boards.append(ScoreBoard(judge, ordered, rows))
    return boards


def _board(pairs: PairRun, judge: str, factor: str) -> Board:
    judge = judge if judge in pairs.judges else pairs.judges[0]
    factors = pairs.factors(judge)
    factor = factor if factor in factors else factors[0]
    summary = pairs.summary(judge, factor)
    reach = 1.0
    for model in summary.models:
        if model.strength is not None:
            ends = (model.strength, *(model.strength_ci or ()))
            reach = max(reach, *map(abs, ends))
    lead = [f"{judge}, {factor}: {best_models(summary)}.", *pairs.lead()]
    return Board(pairs.judges, factors, judge, factor, summary, lead, reach * 1.05)
