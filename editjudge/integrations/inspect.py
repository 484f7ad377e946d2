"""Export of a run as logs for `inspect view`, and a scorer for Inspect tasks. Requires the extra `inspect`."""

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
from editjudge.judgement import DONE, Judgement, JudgementRow
from editjudge.store.records import Item, RunRecord
from editjudge.store.store import Store

"""A judgement as a store returns it."""


def export_inspect(store: Store, run: RunRecord, folder: Path) -> list[Path]:
    """Write a log for each editing model and judge. A log has a sample for each edit and repeat, with a score for each
    factor.

    A judgement without a score is marked as unscored, with its status as the reason, and is not part of any mean.
    """
    folder.mkdir(parents=True, exist_ok=True)
    items = {item.item: item for item in store.items(run)}
    factors = {
        key: [factor.key for factor in rubric.factors]
        for key, rubric in store.rubrics().items()
    }
    by_log: dict[tuple[str, str], list[JudgementRow]] = {}
    for row in store.judgements(run):
        by_log.setdefault((row["model"] or "", row["judge"]), []).append(row)
    paths = []
    for (model, judge), rows in sorted(by_log.items()):
        # The digest distinguishes models and judges whose names become equal in a path.
        mark = hashlib.sha256(f"{model}\0{judge}".encode()).hexdigest()[:8]
        name = "_".join((*map(_plain, (run.name, model, judge)), mark))
        key = operator.itemgetter("item", "repeat")
        samples = [
            _sample(items[item], repeat, list(group), factors)
            for (item, repeat), group in itertools.groupby(sorted(rows, key=key), key)
        ]
        path = folder / f"{name}.eval"
        write_eval_log(_log(run, model, judge, samples), path)
        paths.append(path)
    return paths


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).strip("-.")[:60] or "any"


def _log(run: RunRecord, model: str, judge: str, samples: list[EvalSample]) -> EvalLog:
    ids = list(dict.fromkeys(sample.id for sample in samples))
    created = datetime.datetime.fromtimestamp(run.created, datetime.UTC)
    return EvalLog(
        status="success" if run.state == "finished" else "cancelled",
        eval=EvalSpec(
            created=created.isoformat(timespec="seconds"),
            task=f"editjudge/{run.name}",
            model=model or "unnamed model",
            # The run of a server has no manifest, and other fields may be missing too.
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
    rows: list[JudgementRow],
    factors: Mapping[str, list[str]],
) -> EvalSample:
    scores: dict[str, Score] = {}
    for row in rows:
        answered = [*(row["scores"] or {}), *(row["abstained"] or {})]
        for factor in factors.get(row["rubric_hash"]) or answered:
            scores[f"{row['rubric']}.{factor}"] = _score(row, factor)
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


def _score(row: JudgementRow, factor: str) -> Score:
    about = {
        "key": row["key"],
        "rubric_hash": row["rubric_hash"],
        "status": row["status"],
    }
    if row["scores"] and factor in row["scores"]:
        text = (row["justifications"] or {}).get(factor)
        return Score(value=row["scores"][factor], explanation=text, metadata=about)
    reasons = "; ".join(reason["message"] for reason in row["reasons"] or ())
    status = "abstained" if row["status"] in DONE else row["status"]
    return Score.unscored(
        reason=status,
        explanation=(row["abstained"] or {}).get(factor) or reasons,
        metadata=about,
    )


def _results(samples: Iterable[EvalSample]) -> Iterable[EvalScore]:
    """Yield the mean of each factor with the number of edits. Scores are averaged over repeats first, then over edits."""
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


@scorer(metrics={"*": [mean(), stderr()]})
def edit_scorer(
    rubrics: str | list[str] = "online", judge: str | None = None, **options: Any
) -> Scorer:
    """Return a scorer that judges the image in a model's answer as an edit of the image in the sample.

    The input is the first image in the sample, and the edited image is the last one in the answer. `metadata` may name
    other files as `input`, `edited`, `mask` and `ground_truth`. The instruction is the sample's text.
    """

    async def score(state: TaskState, target: Target) -> Score:  # noqa: ARG001  (Inspect passes it by name)
        files = state.metadata
        inputs = _images(state.messages[:1])
        outputs = _images([state.output.message])
        edited = files.get("edited") or next(reversed(outputs), None)
        if edited is None:
            return Score.unscored(
                reason="missing_output",
                explanation="the answer of the model has no image",
            )
        further = {
            role: files[role] for role in ("mask", "ground_truth") if role in files
        }
        judgements = await asyncio.to_thread(
            judge_one,
            input=files.get("input") or next(iter(inputs), None),
            edited=edited,
            instruction=state.input_text,
            id=str(state.sample_id),
            rubrics=rubrics,
            judge=judge,
            **further,
            **options,
        )
        return _verdict(judgements)

    return score


def _images(messages: Iterable[Any]) -> list[str]:
    return [
        part.image
        for message in messages
        for part in message.content
        if isinstance(part, ContentImage)
    ]


def _verdict(judgements: Mapping[str, Judgement]) -> Score:
    scores: dict[str, float] = {}
    explanations: list[str] = []
    about: dict[str, Any] = {}
    for name, judgement in judgements.items():
        for factor, score in (judgement.scores or {}).items():
            scores[f"{name}.{factor}"] = score
        for factor, text in (judgement.justifications or {}).items():
            explanations.append(f"{factor}: {text}")
        about[name] = {
            "status": judgement.status,
            "key": judgement.key,
            "abstained": dict(judgement.abstained),
        }
    explanation = "\n".join(explanations)
    if scores:
        return Score(value=scores, explanation=explanation, metadata=about)
    failed = (j.status for j in judgements.values() if j.status not in DONE)
    return Score.unscored(
        reason=next(failed, "abstained"), explanation=explanation, metadata=about
    )
