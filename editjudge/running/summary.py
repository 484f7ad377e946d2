"""Summary of a run: means and their coverage, and failures and their reasons."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from editjudge.judgement import FAILED

_LONGEST = 200
"""Maximum number of characters in a reason, since some reasons are messages from a server."""
_REASONS = 1_000
"""Maximum number of different reasons that are counted for a status, since each may name another file."""


@dataclass
class SummaryCell:
    """Sum and count of the scores for one factor, model and judge."""

    sum: float = 0
    ok: int = 0
    n: int = 0
    ci: ClassVar[None] = None
    """Always None, since a summary has only sums and therefore no confidence interval."""

    @property
    def mean(self) -> float | None:
        return self.sum / self.ok if self.ok else None

    def add(self, other: SummaryCell) -> None:
        """Add the scores of another cell."""
        self.sum += other.sum
        self.ok += other.ok
        self.n += other.n


@dataclass
class FailureReason:
    """The most common reason for a status."""

    status: str
    message: str
    count: int
    """Number of tasks with this reason."""
    item: str
    """Id of the first edit with this reason."""


@dataclass
class Summary:
    """Counts and means of a run."""

    statuses: Counter[str] = field(default_factory=Counter)
    cells: dict[tuple[str, str, str, str], SummaryCell] = field(default_factory=dict)
    """Statistics, keyed by judge, model, rubric and factor."""
    reasons: list[FailureReason] = field(default_factory=list)
    """Most common reason for each failure status."""

    @property
    def total(self) -> int:
        return self.statuses.total()

    @property
    def failed(self) -> int:
        return sum(n for status, n in self.statuses.items() if status in FAILED)

    def pooled(self, by: str) -> dict[tuple[str, str], SummaryCell]:
        """Return the statistics, pooled and keyed by factor and by one of `judge`, `model` or `rubric`."""
        position = ("judge", "model", "rubric").index(by)
        cells: defaultdict[tuple[str, str], SummaryCell] = defaultdict(SummaryCell)
        for key, cell in self.cells.items():
            cells[key[position], key[3]].add(cell)
        return cells

    def as_json(self) -> dict[str, Any]:
        factors = []
        for (judge, model, rubric, factor), cell in self.cells.items():
            names = {"judge": judge, "model": model, "rubric": rubric, "factor": factor}
            figures = {"mean": cell.mean, "ok": cell.ok, "n": cell.n}
            factors.append(names | figures)
        return {
            "statuses": dict(self.statuses),
            "total": self.total,
            "failed": self.failed,
            "factors": factors,
            "reasons": [asdict(reason) for reason in self.reasons],
        }

    @classmethod
    def of_json(cls, stored: Mapping[str, Any]) -> Summary:
        """Recreate a summary from the result of `as_json`, for a run without failures."""
        cells = {}
        for entry in stored["factors"]:
            ok = entry["ok"]
            total = (entry["mean"] or 0.0) * ok
            # Sums of whole scores are restored exactly.
            if ok and round(total) / ok == entry["mean"]:
                total = round(total)
            key = (entry["judge"], entry["model"], entry["rubric"], entry["factor"])
            cells[key] = SummaryCell(total, ok, entry["n"])
        return cls(Counter(stored["statuses"]), cells)


def summary_of(
    counts: Iterable[Sequence[Any]],
    sums: Iterable[Sequence[Any]],
    factors: Mapping[str, Sequence[str]],
) -> Summary:
    """Return the summary computed from the results of `Store.score_sums`. Coverage is over all tasks: a failure counts
    in `n`, but not in the mean.
    """
    summary = Summary()
    for judge, model, rubric, status, count in counts:
        summary.statuses[status or "pending"] += count
        for factor in factors[rubric]:
            key = (judge, model or "", rubric, factor)
            summary.cells.setdefault(key, SummaryCell()).n += count
    for judge, model, rubric, factor, count, total in sums:
        if cell := summary.cells.get((judge, model or "", rubric, factor)):
            cell.ok += count
            cell.sum += total
    return summary


def commonest(rows: Iterable[Mapping[str, Any]]) -> list[FailureReason]:
    """Return the most common reason for each status. If two are equally common, return the one that occurs first."""
    reasons: dict[str, dict[str, FailureReason]] = {}
    for row in rows:
        text = row["reasons"][0]["message"] if row["reasons"] else ""
        message = " ".join(text.split())
        if len(message) > _LONGEST:
            message = f"{message[:_LONGEST]}..."
        of_status = reasons.setdefault(row["status"], {})
        if message in of_status:
            of_status[message].count += 1
        elif len(of_status) < _REASONS:
            of_status[message] = FailureReason(row["status"], message, 1, row["item"])
    return [
        max(of_status.values(), key=lambda reason: reason.count)
        for _, of_status in sorted(reasons.items())
    ]
