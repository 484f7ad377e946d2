"""A run in the form in which experiment trackers record it: metrics by step, and images of the lowest scores."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from PIL import Image

from editjudge.errors import UsageError
from editjudge.judgement import DONE, STATUSES
from editjudge.report.gallery import EditView, choices
from editjudge.report.pairwise import load_pairs
from editjudge.report.run_data import RunData, load
from editjudge.report.trend import step_in
from editjudge.running.where import scores_of
from editjudge.stats.columns import Interval
from editjudge.stats.summary import summarise
from editjudge.store.records import PENDING, Item
from editjudge.store.store import Store


@dataclass(frozen=True)
class TrackedImage:
    """Input and output of an edit, side by side."""

    caption: str
    image: Image.Image


@dataclass(frozen=True)
class TrackedStep:
    """Metrics and images of one step. A score that does not exist has no metric."""

    step: int
    metrics: Mapping[str, float]
    worst: Sequence[TrackedImage]


@dataclass(frozen=True)
class TrackedRun:
    """A run as a tracker receives it. It contains no option of a judge, and thus no key."""

    name: str
    label: str
    """Name in which only letters, digits, dots, dashes and underscores are left, so it can be part of a path."""
    facts: Mapping[str, str]
    """Judges, rubrics, models, counts and version."""
    steps: Sequence[TrackedStep]
    """Steps in ascending order. A run without a step is step 0."""


def whole_step(step: float) -> int:
    """Return a step as an integer. Raise `UsageError` if it has decimals, since trackers count in integers."""
    if not float(step).is_integer():
        raise UsageError(
            f"--log: trackers count steps in whole numbers, and this one is {step:g}"
        )
    return int(step)


def tracked_run(store: Store, name_or_id: str) -> TrackedRun:
    """Return a run with the mean, the interval and the counts of each score, and the failures of each kind."""
    run = load(store, name_or_id)
    spec = run.run.spec
    steps = _models_by_step(run)
    metrics = _metrics(store, run, steps)
    worst = _worst(store, run)
    facts = {
        "run": run.run.name,
        "judges": ", ".join(spec.get("judges", ())),
        "rubrics": ", ".join(spec.get("rubrics", ())),
        "models": ", ".join(run.scores.model.present()),
        "edits": str(len(run.scores.item.present())),
        "judgements": str(run.status_counts.total()),
        "editjudge": run.run.version,
        "spec_hash": run.run.spec_hash,
    }
    return TrackedRun(
        run.run.name,
        label(run.run.name),
        facts,
        [
            TrackedStep(
                whole_step(step or 0),
                metrics[step],
                [image for item, image in worst if (item.model or "") in models],
            )
            for step, models in sorted(steps.items(), key=lambda pair: pair[0] or 0)
        ],
    )


def _models_by_step(run: RunData) -> dict[float | None, list[str]]:
    """Return the models of each step. Models without a step are under None."""
    spec = run.run.spec
    # A pattern in an imported run is somebody else's, and may take forever to match.
    pattern = spec.get("step_from") if run.run.imported_from is None else None
    steps: dict[float | None, list[str]] = {}
    for model in dict.fromkeys(model for _, _, model, _ in run.statuses):
        step = step_in(pattern, model) if pattern else spec.get("step")
        steps.setdefault(step, []).append(model)
    return steps


class _Names:
    """Names of metrics, such as `JUDGE/MODEL/FACTOR/mean`.

    A judge is part of a name if the run has several judges. A model is if its step has several models, or if it has no
    step and others have one. The same score thus has the same name at every step.
    """

    def __init__(
        self, run: RunData, steps: Mapping[float | None, Sequence[str]]
    ) -> None:
        self._steps = steps
        self._judges = {judge for judge, *_ in run.statuses}
        self._judges.update(run.scores.judge.present())
        self.step_of = {m: step for step, models in steps.items() for m in models}

    def prefix(self, judge: str, model: str) -> str:
        step = self.step_of[model]
        parts = [label(judge)] if len(self._judges) > 1 else []
        if len(self._steps[step]) > 1 or (step is None and len(self._steps) > 1):
            parts.append(label(model))
        return "".join(f"{part}/" for part in parts)


def _metrics(
    store: Store, run: RunData, steps: Mapping[float | None, Sequence[str]]
) -> dict[float | None, dict[str, float]]:
    """Return the metrics of each step."""
    names = _Names(run, steps)
    metrics: dict[float | None, dict[str, float]] = {step: {} for step in steps}
    for cell in summarise(run.with_aggregates(), scales=run.all_scales()):
        name = f"{names.prefix(cell.judge, cell.model)}{cell.factor}"
        of_step = metrics[names.step_of[cell.model]]
        of_step |= _interval(name, "mean", cell.mean, cell.ci)
        of_step |= {f"{name}/ok": cell.ok, f"{name}/n": cell.n}
    for (judge, _, model, status), count in run.statuses.items():
        of_step = metrics[names.step_of[model]]
        for kind in (*STATUSES, PENDING):
            group = "judgements" if kind in DONE else "failures"
            name = f"{names.prefix(judge, model)}{group}/{kind}"
            # Kinds without a failure are 0, so that a curve returns to 0.
            of_step[name] = of_step.get(name, 0) + (count if kind == status else 0)
    pairs = load_pairs(store, str(run.run.id))
    for judge, factor, summary in pairs.summaries if pairs else ():
        for record in summary.models:
            name = f"{names.prefix(judge, '')}{label(record.model)}/{factor}"
            of_step = metrics[names.step_of[""]]
            of_step |= _interval(name, "win_rate", record.win_rate, record.ci)
    return metrics


def _interval(
    name: str, figure: str, value: float | None, ci: Interval | None
) -> dict[str, float]:
    figures = {figure: value}
    if ci is not None:
        figures |= {"lo": ci.lo, "hi": ci.hi}
    return {f"{name}/{key}": x for key, x in figures.items() if x is not None}


def label(name: str) -> str:
    """Return a name that can be part of a path and of a metric. If characters had to be replaced, a digest keeps it
    distinct from similar names."""
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-.")
    if plain != name.replace("/", "-") or len(plain) > 80:
        mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
        plain = f"{plain[:80]}-{mark}"
    return plain or "-"


def _worst(store: Store, run: RunData) -> list[tuple[Item, TrackedImage]]:
    """Return the edits with the lowest scores, lowest first, with their images."""
    galleries = {gallery.name: gallery for gallery in choices(run)}
    if "worst" not in galleries:
        return []
    gallery = galleries["worst"]
    ids = list(gallery.items)
    items = {item.item: item for item in store.items(run.run) if item.item in ids}
    scores = scores_of(store, run.run, ids)
    view = EditView(run.run, store)
    worst = []
    for name in ids:
        item = items[name]
        figures = (f"{key} {fmean(x):g}" for key, x in scores[name].items() if x)
        caption = f"{gallery.title}: {name} ({item.model or '-'}), {', '.join(figures)}: {item.instruction}"
        if image := _side_by_side(view, item):
            worst.append((item, TrackedImage(caption, image)))
    return worst


def _side_by_side(view: EditView, item: Item) -> Image.Image | None:
    """Return the input and the output in one image, or None if neither can be shown."""
    thumbnails = (view.thumbnail(item, role) for role in ("input", "edited"))
    images = [
        Image.open(io.BytesIO(data)).convert("RGB")
        for data in thumbnails
        if isinstance(data, bytes)
    ]
    if not images:
        return None
    size = (sum(image.width for image in images), max(i.height for i in images))
    both = Image.new("RGB", size, "white")
    left = 0
    for image in images:
        both.paste(image, (left, 0))
        left += image.width
    return both
