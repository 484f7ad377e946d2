"""`ratings plan`: a probability sample of the edits of a run, for people to rate."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from editjudge.errors import ManifestError, UsageError
from editjudge.files import spreadsheet_safe
from editjudge.manifest import Reader, rows
from editjudge.report.run_data import RunData
from editjudge.stats.columns import Column, Floats, item_means
from editjudge.stats.sampling import draw, probabilities
from editjudge.store.store import Store


@dataclass(frozen=True)
class PlannedRating:
    """An edit that people should rate."""

    item: str
    probability: float
    """Probability with which it was chosen."""
    model: str
    group: str
    instruction: str
    input: str
    edited: str


def plan(store: Store, run: RunData, budget: int, seed: int) -> list[PlannedRating]:
    """Return a sample of the edits, denser where judges or repeats disagree."""
    items = list(store.items(run.run))
    spread = disagreement(run, [item.item for item in items])
    chances = probabilities(spread, budget)
    models = Column.of(item.model or "" for item in items).compact()
    chosen = draw(chances, models.codes.astype(np.int64), seed)
    return [
        PlannedRating(
            item.item,
            float(chances[i]),
            item.model or "",
            item.group,
            item.instruction or "",
            _source(item.images, "input"),
            _source(item.images, "edited"),
        )
        for i in chosen
        for item in [items[i]]
    ]


def _source(images: object, role: str) -> str:
    image = images.get(role) if isinstance(images, dict) else None
    return str(image["source"] or "") if image else ""


def disagreement(run: RunData, items: Sequence[str]) -> Floats:
    """Return the standard deviation of each edit's scores between judges and repeats, in shares of each factor's spread
    and averaged over factors; NaN for an edit with one score.
    """
    totals = np.zeros(len(items))
    counts = np.zeros(len(items))
    place = {item: i for i, item in enumerate(items)}
    for factor in run.scores.factor.present():
        scores = run.scores.where(factor=factor)
        scores = scores.take(scores.ok)
        spread = float(np.std(scores.score)) if len(scores) else 0.0
        if spread == 0:
            continue
        item = scores.item.compact()
        mean = item_means(item, scores.score)
        square = item_means(item, scores.score**2)
        several = np.bincount(item.codes, minlength=len(item.labels)) > 1
        for name, has, deviation in zip(
            item.labels, several, np.sqrt(np.maximum(square - mean**2, 0)), strict=True
        ):
            if has and name in place:
                totals[place[name]] += deviation / spread
                counts[place[name]] += 1
    means: Floats = np.full(len(items), math.nan)
    return np.divide(totals, counts, out=means, where=counts > 0)


def write_plan(
    path: Path, planned: Sequence[PlannedRating], factors: Sequence[str]
) -> None:
    """Write a plan as JSONL, as CSV with empty columns for rater, factor and score, or as tasks of Label Studio (.json)."""
    records = [asdict(each) for each in planned]
    if path.suffix == ".json":
        text = json.dumps([{"data": record} for record in records], indent=1) + "\n"
    elif path.suffix == ".csv":
        out = io.StringIO()
        names = ["item", "rater", "factor", "score", *[*records[0]][1:]]
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writeheader()
        for record in records:
            safe = {
                name: spreadsheet_safe(str(value)) for name, value in record.items()
            }
            for factor in factors:
                writer.writerow(safe | {"factor": spreadsheet_safe(factor)})
        text = out.getvalue()
    elif path.suffix == ".jsonl":
        text = "".join(json.dumps(record) + "\n" for record in records)
    else:
        raise UsageError(
            f"{path}: expected a name that ends in .jsonl, .csv or .json (tasks of Label Studio)"
        )
    path.write_text(text, "utf-8", newline="")


def planned_chances(path: Path) -> dict[str, float]:
    """Return the probability with which each edit of a plan was chosen to be rated."""
    chances = {}
    row: Any
    for line, row in rows(path, Reader(path)):
        try:
            record = row.get("data", row)  # a task of Label Studio
            chance = float(record["probability"])
            item = str(record["item"])
        except (AttributeError, KeyError, TypeError, ValueError):
            chance = math.nan
        if not 0 < chance <= 1:
            raise ManifestError(
                f"{path}:{line}: expected an item with its probability, above 0 and at most 1, as `ratings plan` writes them"
            )
        chances[item] = chance
    return chances
