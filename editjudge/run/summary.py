"""What a run came to: means with their coverage, and what failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from editjudge.judgement import DONE

_LONGEST = 200
"""Characters of a reason: some are a server's words."""
_REASONS = 1_000
"""Different reasons of a status among which the commonest is looked for: each may name another file."""


def is_failure(status: str) -> bool:
    return status not in DONE and status != "pending"


@dataclass
class SummaryCell:
    """One factor of one model by one judge."""

    sum: float = 0
    ok: int = 0
    n: int = 0

    @property
    def mean(self) -> float | None:
        return self.sum / self.ok if self.ok else None


@dataclass
class FailureReason:
    """Why most tasks of a status failed."""

    status: str
    message: str
    count: int
    """Tasks with this reason, of all with the status."""
    item: str
    """The first of them."""


@dataclass
class Summary:
    statuses: Counter[str] = field(default_factory=Counter)
    cells: dict[tuple[str, str, str, str], SummaryCell] = field(default_factory=dict)
    """By judge, model, rubric and factor."""
    reasons: list[FailureReason] = field(default_factory=list)
    """The commonest for each status that is a failure."""

    @property
    def total(self) -> int:
        return self.statuses.total()

    @property
    def failed(self) -> int:
        return sum(n for status, n in self.statuses.items() if is_failure(status))

    def as_json(self) -> dict[str, Any]:
        factors = [
            {"judge": j, "model": m, "rubric": r, "factor": f, "mean": cell.mean, "ok": cell.ok, "n": cell.n}
            for (j, m, r, f), cell in self.cells.items()
        ]
        counts = {"statuses": dict(self.statuses), "total": self.total, "failed": self.failed}
        return {**counts, "factors": factors, "reasons": [asdict(reason) for reason in self.reasons]}

    @classmethod
    def of_json(cls, stored: Mapping[str, Any]) -> Summary:
        """Of what `as_json` returned for a run without failures."""
        cells = {}
        for entry in stored["factors"]:
            mean, ok = entry["mean"] or 0.0, entry["ok"]
            whole = round(mean * ok)  # sums of whole scores are restored exactly
            total = whole if ok and whole / ok == mean else mean * ok
            cells[entry["judge"], entry["model"], entry["rubric"], entry["factor"]] = SummaryCell(total, ok, entry["n"])
        return cls(Counter(stored["statuses"]), cells)


def summarise(rows: Iterable[Mapping[str, Any]], factors: Mapping[str, Sequence[str]]) -> Summary:
    """Coverage is over all tasks: what failed stays in `n`, and out of the mean."""
    summary = Summary()
    for row in rows:
        summary.statuses[row["status"]] += 1
        scores = row["scores"] or {}
        for factor in factors[row["rubric"]]:
            place = (row["judge"], row["model"] or "", row["rubric"], factor)
            cell = summary.cells.get(place) or summary.cells.setdefault(place, SummaryCell())
            cell.n += 1
            if factor in scores:
                cell.ok += 1
                cell.sum += scores[factor]
    return summary


def summary_of(
    counts: Iterable[Sequence[Any]], sums: Iterable[Sequence[Any]], factors: Mapping[str, Sequence[str]]
) -> Summary:
    """As `summarise`, from what `Store.score_sums` counted and added up."""
    summary = Summary()
    for judge, model, rubric, status, count in counts:
        summary.statuses[status or "pending"] += count
        for factor in factors[rubric]:
            summary.cells.setdefault((judge, model or "", rubric, factor), SummaryCell()).n += count
    for judge, model, rubric, factor, count, total in sums:
        if cell := summary.cells.get((judge, model or "", rubric, factor)):
            cell.ok += count
            cell.sum += total
    return summary


def commonest(rows: Iterable[Mapping[str, Any]]) -> list[FailureReason]:
    """Of tasks that failed, the reason that most of each status have; the earlier of two as common ones."""
    reasons: dict[str, dict[str, FailureReason]] = {}
    for row in rows:
        message = " ".join(row["reasons"][0]["message"].split()) if row["reasons"] else ""
        message = message if len(message) <= _LONGEST else f"{message[:_LONGEST]}..."
        mine = reasons.setdefault(row["status"], {})
        if message in mine:
            mine[message].count += 1
        elif len(mine) < _REASONS:
            mine[message] = FailureReason(row["status"], message, 1, row["item"])
    return [max(mine.values(), key=lambda reason: reason.count) for _, mine in sorted(reasons.items())]
