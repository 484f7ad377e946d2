"""A run as rows for a data frame: one for each score, or one for each edit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import fmean
from typing import Any

from editjudge.judgement import DONE
from editjudge.running.sums import run_sums
from editjudge.running.where import scores_of
from editjudge.store.database import chunks
from editjudge.store.records import RunRecord
from editjudge.store.store import Store

_AT_ONCE = 500
"""Number of edits whose scores are read by one query."""


def score_rows(store: Store, run: RunRecord) -> list[dict[str, Any]]:
    """Return a row for each factor of each judgement."""
    questions = store.questions_of(run)
    fields = ("item", "model", "judge", "rubric", "repeat", "status", "scores", "choices", "abstained")  # fmt: skip
    rows = []
    for judgement in store.judgements(run, fields=fields):
        scores = judgement["scores"] or {}
        choices = judgement["choices"] or {}
        answered = {**scores, **choices, **judgement["abstained"]}
        for factor in questions.factors.get(judgement["rubric"], tuple(answered)):
            is_abstained = factor in judgement["abstained"]
            row = {
                "item": judgement["item"],
                "model": judgement["model"],
                "judge": judgement["judge"],
                "rubric": judgement["rubric"],
                "factor": factor,
                "repeat": judgement["repeat"],
                "score": scores.get(factor),
                "status": "abstained" if is_abstained else judgement["status"],
            }
            if questions.pair_factors:
                row["choice"] = choices.get(factor)
            rows.append(row)
    return rows


def edit_rows(store: Store, run: RunRecord) -> list[dict[str, Any]]:
    """Return a row for each edit, with the mean of each score over judges and repeats."""
    judgements = Counter[str]()
    failed = Counter[str]()
    for row in store.judgements(run, fields=("item", "status")):
        judgements[row["item"]] += 1
        failed[row["item"]] += row["status"] not in DONE
    names = list(_score_names(store, run))
    rows = []
    for items in chunks(store.items(run), _AT_ONCE):
        scores = scores_of(store, run, [item.item for item in items])
        for item in items:
            figures = scores.get(item.item, {})
            means = {
                name: fmean(figures[name]) if figures.get(name) else None
                for name in names
            }
            rows.append(
                {
                    "item": item.item,
                    "model": item.model,
                    "edit_type": item.edit_type,
                    "group": item.group,
                    "instruction": item.instruction,
                    **{
                        role: image.get("source") for role, image in item.images.items()
                    },
                    **item.metadata,
                    "judgements": judgements[item.item],
                    "failed": failed[item.item],
                    **means,
                }
            )
    return rows


def _score_names(store: Store, run: RunRecord) -> Iterator[str]:
    """Yield the names of all scores, each once: factors with scores, means of factors, and scores of sets."""
    names = [
        f.key for scored in store.questions_of(run).scored.values() for f in scored
    ]
    names += run_sums(store, run)
    names += [
        name for each in run.spec.get("sets", {}).values() for name in each["score"]
    ]
    yield from dict.fromkeys(names)
