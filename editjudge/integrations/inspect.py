"""Inspect: a run as logs that `inspect view` opens, and a scorer for tasks of its own. Needs the extra `inspect`."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import itertools
import operator
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalLog,
    EvalMetric,
    EvalResults,
    EvalSample,
    EvalScore,
    EvalSpec,
    write_eval_log,
)
from inspect_ai.model import ContentImage
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

import editjudge
from editjudge.api import judge as judge_one
from editjudge.judgement import DONE, Judgement
from editjudge.store.records import Item, RunRecord
from editjudge.store.store import Store


def export_inspect(store: Store, run: RunRecord, folder: Path) -> list[Path]:
    """One log for each editing model and judge: a sample for each edit and repeat, a score for each factor.

    What has no score is unscored in Inspect's own sense, with its status for a reason, and so in no mean.
    """
    folder.mkdir(parents=True, exist_ok=True)
    items = {item.item: item for item in store.items(run)}
    factors = {
        key: [factor.key for factor in rubric.factors]
        for key, rubric in store.rubrics().items()
    }
    by_log: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in store.judgements(run):
        by_log.setdefault((row["model"] or "", row["judge"]), []).append(row)
    written = []
    for (model, judge), rows in sorted(by_log.items()):
        # Names are made from words that strangers chose; the digest keeps two that look alike apart.
        mark = hashlib.sha256(f"{model}\0{judge}".encode()).hexdigest()[:8]
        path = (
            folder / f"{_plain(run.name)}_{_plain(model)}_{_plain(judge)}_{mark}.eval"
        )
        write_eval_log(_log(run, model, judge, rows, items, factors), path)
        written.append(path)
    return written


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).strip("-.")[:60] or "any"


def _log(
    run: RunRecord,
    model: str,
    judge: str,
    rows: list[dict[str, Any]],
    items: Mapping[str, Item],
    factors: Mapping[str, list[str]],
) -> EvalLog:
    key = operator.itemgetter("item", "repeat")
    grouped = itertools.groupby(sorted(rows, key=key), key)
    samples = [
        _sample(items[item], repeat, list(some), factors)
        for (item, repeat), some in grouped
    ]
    ids = list(dict.fromkeys(sample.id for sample in samples))
    return EvalLog(
        status="success" if run.state == "finished" else "cancelled",
        eval=EvalSpec(
            created=_when(run.created),
            task=f"editjudge/{run.name}",
            model=model or "unnamed model",
            # What was asked over HTTP has no manifest, and other fields may be absent as well.
            dataset=EvalDataset(
                name=Path(str(run.spec.get("manifest", ""))).name,
                samples=len(ids),
                sample_ids=ids,
            ),
            config=EvalConfig(epochs=run.spec.get("repeats", 1)),
            packages={"editjudge": editjudge.__version__},
            metadata={
                "judge": judge,
                "rubrics": run.spec.get("rubrics", {}),
                "spec_hash": run.spec_hash,
            },
        ),
        results=EvalResults(
            total_samples=len(samples),
            completed_samples=len(samples),
            scores=list(_results(samples)),
        ),
        samples=samples,
    )


def _sample(
    item: Item,
    repeat: int,
    rows: list[dict[str, Any]],
    factors: Mapping[str, list[str]],
) -> EvalSample:
    scores = {
        f"{row['rubric']}.{factor}": _score(row, factor)
        for row in rows
        for factor in factors.get(row["rubric_hash"])
        or [*(row["scores"] or {}), *(row["abstained"] or {})]
    }
    sources = {role: image["source"] for role, image in item.images.items()}
    return EvalSample(
        id=item.item,
        epoch=repeat + 1,
        input=item.instruction,
        target="",
        scores=scores,
        metadata={
            "edit_type": item.edit_type,
            "group": item.group,
            "images": sources,
            **item.metadata,
        },
    )


def _score(row: Mapping[str, Any], factor: str) -> Score:
    about = {
        "key": row["key"],
        "rubric_hash": row["rubric_hash"],
        "status": row["status"],
    }
    if row["scores"] and factor in row["scores"]:
        why = (row["justifications"] or {}).get(factor)
        return Score(value=row["scores"][factor], explanation=why, metadata=about)
    reasons = "; ".join(reason["message"] for reason in row["reasons"] or ())
    status = "abstained" if row["status"] in DONE else row["status"]
    return Score.unscored(
        reason=status,
        explanation=(row["abstained"] or {}).get(factor) or reasons,
        metadata=about,
    )


def _results(samples: Iterable[EvalSample]) -> Iterable[EvalScore]:
    """Means with how many samples they rest on: over repeats first, then over edits."""
    by_name: dict[str, dict[int | str, list[float]]] = {}
    for sample in samples:
        for name, score in (sample.scores or {}).items():
            values = by_name.setdefault(name, {}).setdefault(sample.id, [])
            values += [score.as_float()] if score.reason is None else []
    for name, by_edit in by_name.items():
        means = [sum(values) / len(values) for values in by_edit.values() if values]
        metrics = (
            {"mean": EvalMetric(name="mean", value=sum(means) / len(means))}
            if means
            else {}
        )
        counts: dict[str, Any] = {
            "scored_samples": len(means),
            "unscored_samples": len(by_edit) - len(means),
        }
        yield EvalScore(name=name, scorer="editjudge", metrics=metrics, **counts)


def _when(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(
        timespec="seconds"
    )


@scorer(metrics={"*": [mean(), stderr()]})
def edit_scorer(
    rubrics: str | list[str] = "online", judge: str | None = None, **options: Any
) -> Scorer:
    """Judge the picture that a task's model answered with against the one that it was given.

    The input is the first picture of the sample, the edit the last one of the output; `metadata` may name other files
    as `input`, `edited`, `mask` and `ground_truth`. The instruction is the sample's text.
    """

    async def score(state: TaskState, target: Target) -> Score:  # noqa: ARG001  (Inspect passes it by name)
        given = state.metadata
        pictures: dict[str, Any] = {
            "input": given.get("input")
            or next(iter(_pictures(state.messages[:1])), None),
            "edited": given.get("edited")
            or next(iter(reversed(_pictures([state.output.message]))), None),
            **{role: given[role] for role in ("mask", "ground_truth") if role in given},
        }
        if pictures["edited"] is None:
            return Score.unscored(
                reason="missing_output",
                explanation="the model answered without a picture",
            )
        edit = pictures | {"instruction": state.input_text, "id": str(state.sample_id)}
        return _verdict(
            await asyncio.to_thread(
                judge_one, **edit, rubrics=rubrics, judge=judge, **options
            )
        )

    return score


def _pictures(messages: Iterable[Any]) -> list[str]:
    contents = [m.content for m in messages if not isinstance(m.content, str)]
    return [
        part.image
        for content in contents
        for part in content
        if isinstance(part, ContentImage)
    ]


def _verdict(judgements: Mapping[str, Judgement]) -> Score:
    scores = {
        f"{name}.{factor}": score
        for name, j in judgements.items()
        for factor, score in (j.scores or {}).items()
    }
    about = {
        name: {"status": j.status, "key": j.key, "abstained": dict(j.abstained)}
        for name, j in judgements.items()
    }
    why = "\n".join(
        f"{f}: {text}"
        for j in judgements.values()
        for f, text in (j.justifications or {}).items()
    )
    if not scores:
        status = next(
            (j.status for j in judgements.values() if j.status not in DONE), "abstained"
        )
        return Score.unscored(reason=status, explanation=why, metadata=about)
    return Score(value=scores, explanation=why, metadata=about)
