"""Export of a run for Hugging Face: a dataset with images, and the Hub's files of evaluation results."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from editjudge.errors import ImageError, Option, UsageError, one_line
from editjudge.media.source import name_of
from editjudge.report.gallery import EditView
from editjudge.report.run_data import load
from editjudge.report.tracking import label
from editjudge.stats.summary import Cell, summarise
from editjudge.store.export import edits_with_scores
from editjudge.store.records import RunRecord
from editjudge.store.store import Store

_TEXTS = ("item", "model", "edit_type", "group", "instruction", "referring_expression")
_SCORE_TEXTS = (
    "judge", "rubric", "factor", "status", "choice", "order", "justification", "abstained",
)  # fmt: skip
_SCORE_NUMBERS = ("score", "expected", "mass")


def export_datasets(store: Store, run: RunRecord, folder: Path) -> list[Path]:
    """Write a dataset that `datasets.load_from_disk` opens, with a row for each edit.

    Images are the files that were judged, byte for byte. `scores` has an element for each judgement and factor; a failed
    one has its status and no score. An image that cannot be read is null, and `image_problems` says why.
    """
    import datasets

    roles = list(dict.fromkeys(r for item in store.items(run) for r in item.images))
    view = EditView(run, store)
    text = datasets.Value("string")
    score = {
        **dict.fromkeys(_SCORE_TEXTS, text),
        "repeat": datasets.Value("int64"),
        **dict.fromkeys(_SCORE_NUMBERS, datasets.Value("float64")),
    }
    features = datasets.Features(
        {
            **dict.fromkeys((*_TEXTS, "metadata"), text),
            **{role: datasets.Image() for role in roles},
            "image_problems": datasets.List(text),
            "scores": datasets.List(score),
        }
    )

    def rows() -> Iterator[dict[str, object]]:
        for item, scores in edits_with_scores(store, run):
            images: dict[str, object] = {}
            problems = []
            for role, image in item.images.items():
                try:
                    path = name_of(str(image["source"]))
                    images[role] = {"bytes": view.read(item, role), "path": path}
                except ImageError as error:
                    problems.append(f"{role}: {error}")
            yield {
                **{name: getattr(item, name) for name in _TEXTS},
                "metadata": json.dumps(item.metadata),
                **dict.fromkeys(roles),
                **images,
                "image_problems": problems,
                "scores": [{name: row[name] for name in score} for row in scores],
            }

    datasets.disable_progress_bars()
    with TemporaryDirectory() as cache:
        # A fingerprint of its own, since the generator cannot be pickled to compute one.
        made = datasets.Dataset.from_generator(
            rows, features=features, cache_dir=cache, fingerprint=run.spec_hash[:16]
        )
        made.save_to_disk(str(folder))
    return [folder]


def export_eval_results(
    store: Store, run: RunRecord, folder: Path, dataset: str = ""
) -> list[Path]:
    """Write `MODEL/.eval_results/*.yaml` for the repository of each model: a file for each judge, an entry for each score.

    `dataset` is the benchmark on the Hub, and a score's name is its task. A score that no edit has is a comment, since
    an entry needs a value.
    """
    if not dataset:
        raise UsageError(
            "--format eval-results needs the benchmark on the Hub that the edits belong to: --dataset ORG/NAME",
            options=[Option("dataset")],
        )
    data = load(store, str(run.id))
    files: dict[Path, list[Cell]] = {}
    for cell in summarise(data.with_aggregates(), scales=data.all_scales()):
        repository = folder / label(cell.model) if cell.model else folder
        path = repository / ".eval_results" / f"editjudge_{label(cell.judge)}.yaml"
        files.setdefault(path, []).append(cell)
    date = datetime.datetime.fromtimestamp(run.created, datetime.UTC)
    for path, cells in files.items():
        # As `huggingface_hub.EvalResultEntry` writes them; older versions that `datasets` accepts do not have it.
        entries = [
            {
                "dataset": {"id": dataset, "task_id": cell.factor},
                "value": cell.mean,
                "date": date.date().isoformat(),
                "notes": _notes(cell, run, is_falling=cell.factor in data.falling),
            }
            for cell in cells
            if cell.mean is not None
        ]
        missing = "".join(
            f"# {one_line(cell.factor)}: no value; {_counts(cell)}\n"
            for cell in cells
            if cell.mean is None
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(missing + yaml.safe_dump(entries, sort_keys=False), "utf-8")
    return list(files)


def _notes(cell: Cell, run: RunRecord, *, is_falling: bool) -> str:
    interval = ""
    if cell.ci:
        interval = f", 95 % CI {cell.ci.lo:.3g} to {cell.ci.hi:.3g}"
    direction = ", lower is better" if is_falling else ""
    return f"mean by judge {cell.judge}{interval}{direction}; {_counts(cell)}; editjudge {run.version}"


def _counts(cell: Cell) -> str:
    kinds = [f"{n} {kind}" for kind, n in cell.failed.items()]
    if cell.abstained:
        kinds.append(f"{cell.abstained} abstained")
    return ", ".join([f"{cell.ok} of {cell.n} judgements scored", *kinds])
