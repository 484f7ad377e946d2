"""Models of a run of pairs by strength, as a page shows them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from editjudge.report.pairwise import PairRun, load_pairs
from editjudge.stats.pairwise import ModelRecord, PairwiseSummary
from editjudge.store.store import RunRecord, Store

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


class Leaderboards:
    """Works them out once for each state of a run."""

    def __init__(self) -> None:
        self._boards: dict[tuple[object, ...], Board] = {}
        self._lock = threading.Lock()

    def of(self, store: Store, run: RunRecord, judge: str, factor: str) -> Board:
        key = (run.id, run.updated, run.state, judge, factor)
        with self._lock:
            if key not in self._boards:
                pairs = load_pairs(store, str(run.id))
                assert pairs is not None  # noqa: S101  (the page has looked)
                while len(self._boards) >= _KEPT:
                    del self._boards[next(iter(self._boards))]
                board = _board(pairs, judge, factor)
                if run.state == "running":  # its verdicts grow
                    return board
                self._boards[key] = board
            return self._boards[key]


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
