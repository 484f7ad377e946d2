"""What a run came to, at a glance: means with their coverage, and what failed. `stats` says what they mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from editjudge.judgement import DONE


@dataclass
class Cell:
    """One factor of one model by one judge."""

    sum: int = 0
    ok: int = 0
    n: int = 0

    @property
    def mean(self) -> float | None:
        return self.sum / self.ok if self.ok else None


@dataclass
class Summary:
    statuses: Counter[str] = field(default_factory=Counter)
    cells: dict[tuple[str, str, str, str], Cell] = field(default_factory=dict)
    """By judge, model, rubric and factor."""

    @property
    def total(self) -> int:
        return self.statuses.total()

    @property
    def failed(self) -> int:
        return sum(n for status, n in self.statuses.items() if status not in DONE and status != "pending")

    def as_json(self) -> dict[str, Any]:
        factors = [
            {"judge": j, "model": m, "rubric": r, "factor": f, "mean": cell.mean, "ok": cell.ok, "n": cell.n}
            for (j, m, r, f), cell in self.cells.items()
        ]
        return {"statuses": dict(self.statuses), "total": self.total, "failed": self.failed, "factors": factors}


def summarise(rows: Iterable[Mapping[str, Any]], factors: Mapping[str, Sequence[str]]) -> Summary:
    """Coverage is over all tasks: what failed stays in `n`, and out of the mean."""
    summary = Summary()
    for row in rows:
        summary.statuses[row["status"]] += 1
        scores = row["scores"] or {}
        for factor in factors[row["rubric"]]:
            place = (row["judge"], row["model"] or "", row["rubric"], factor)
            cell = summary.cells.get(place) or summary.cells.setdefault(place, Cell())
            cell.n += 1
            if factor in scores:
                cell.ok += 1
                cell.sum += scores[factor]
    return summary
