"""Models of a run as pages rank them: by strength where pairs were judged, else by their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from editjudge.report.pairwise import PairRun, load_pairs
from editjudge.report.run_data import RunData, load
from editjudge.run.sums import OVERALL
from editjudge.stats.pairwise import ModelRecord, PairwiseSummary
from editjudge.stats.summary import Cell, summarise
from editjudge.store.records import RunRecord
from editjudge.store.store import Store
from editjudge.web.background import BackgroundCache

_KEPT = 16
"""Leaderboards that are kept: each takes a second, and is looked at more often than its run changes."""


@dataclass(frozen=True)
class Board:
    """What one judge's verdicts on one factor say of the models."""

    judges: Sequence[str]
    factors: Sequence[str]
    judge: str
    factor: str
    summary: PairwiseSummary
    lead: Sequence[str]
    reach: float
    """Log odds at the ends of the axis."""

    def at(self, value: float) -> float:
        """Where a strength lies on the axis, in percent."""
        return 50 + 50 * max(-1.0, min(1.0, value / self.reach))

    def letters(self, model: ModelRecord) -> str:
        return ", ".join(map(str, model.groups))


@dataclass(frozen=True)
class ScoreBoard:
    """What one judge's scores say of the models: overall, and by rubric. A rubric of which no edit has all factors is
    shown by those factors that have scores."""

    judge: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell | None]]]
    """Models, the best overall first where all have one, else in alphabetical order."""


class Leaderboards:
    """Works them out once for each state of a run."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pairs, self._scores = BackgroundCache(_KEPT, fresh=3600), BackgroundCache(4 * _KEPT, fresh=3600)

    def of_pairs(self, run: RunRecord, judge: str, factor: str) -> Board:
        """Raises `NotReady` while it is worked out."""

        def make() -> Board:
            pairs = load_pairs(self._store, str(run.id))
            assert pairs is not None  # noqa: S101  (the page has looked)
            return _board(pairs, judge, factor)

        return self._pairs.get((run.id, judge, factor), (run,), make, 5.0)

    def of_scores(self, run: RunRecord, patience: float) -> list[ScoreBoard]:
        """One for each judge. Raises `NotReady` while they are worked out."""
        return self._scores.get(run.id, (run,), lambda: score_boards(load(self._store, str(run.id))), patience)


def score_boards(judged: RunData) -> list[ScoreBoard]:
    scores, sums = judged.with_aggregates()
    boards = []
    for judge in scores.judge.present():
        means = [one.name for one in sums.get(judge, ()) if one.how == "mean" and one.name != OVERALL]
        names = [*sorted(judged.set_scores), OVERALL, *means, *judged.scores.factor.present()]
        present = [name for name in names if name in scores.factor.present()]
        cells = summarise(scores.where(judge=judge, factor=present), scales=judged.all_scales())
        by_place = {(cell.model, cell.factor): cell for cell in cells if cell.mean is not None}
        scored = {factor for _, factor in by_place}
        whole = {factor for one in sums.get(judge, ()) if one.name in scored for factor in one.factors}
        columns = [name for name in dict.fromkeys(names) if name in scored - whole]
        models = sorted({cell.model for cell in cells})
        if columns and all((model, columns[0]) in by_place for model in models):
            models.sort(key=lambda model: -(by_place[model, columns[0]].mean or 0.0))
        rows = [(model, [by_place.get((model, name)) for name in columns]) for model in models]
        if columns:
            boards.append(ScoreBoard(judge, columns, rows))
    return boards


def _board(pairs: PairRun, judge: str, factor: str) -> Board:
    judge = judge if judge in pairs.judges else pairs.judges[0]
    factors = pairs.factors(judge)
    factor = factor if factor in factors else factors[0]
    summary = pairs.summary(judge, factor)
    ends = [
        abs(x) for one in summary.models if one.strength is not None for x in (one.strength, *(one.strength_ci or ()))
    ]
    useless = [f"This judge is useless here: {summary.useless}."] if summary.useless else []
    return Board(pairs.judges, factors, judge, factor, summary, [*useless, *pairs.lead()], max([1.0, *ends]) * 1.05)
