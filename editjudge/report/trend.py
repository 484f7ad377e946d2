"""Scores over the steps of a training run: each step with its interval, and the steps that may be the best."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from editjudge.errors import InputError, Option, UsageError
from editjudge.judgement import DONE
from editjudge.report.answers import Answer, written
from editjudge.report.charts import LineChart, Point
from editjudge.report.run_data import (
    Of,
    RunData,
    check_name,
    load,
    unchanged_outputs,
)
from editjudge.report.selection import deciding, primary_scores, same_rubrics
from editjudge.report.tables import Cell as TableCell
from editjudge.report.tables import Figure, Table, counted
from editjudge.report.templating import render
from editjudge.report.words import plain, reason_text
from editjudge.running.job import step_pattern
from editjudge.stats.columns import Column, Scores, stacked
from editjudge.stats.summary import Cell, Rank, rank, summarise
from editjudge.store.store import Store

_STEP_FROM = Option("step-from")


@dataclass(frozen=True)
class TrendRun:
    """A run in a trend, with the ids of its edits that are copies of their input."""

    data: RunData
    unchanged: frozenset[str]


@dataclass(frozen=True)
class Step:
    """One step of a training run: the edits that a checkpoint made."""

    step: float
    run: str
    model: str
    edits: int
    failed: int
    """Judgements that failed."""
    judgements: int
    unchanged: int
    """Edits whose output is the same as the input."""

    @property
    def name(self) -> str:
        return f"{self.step:.15g}"


def load_step(store: Store, name: str, *, use: Of = "scores") -> TrendRun:
    """Load a run and find the edits that changed nothing. Their output file is a copy of the input, or was measured as
    `unchanged`."""
    data = load(store, name, of=use)
    unchanged = set()
    for item in store.items(data.run):
        digests = {
            (item.images.get(role) or {}).get("digest") for role in ("input", "edited")
        }
        if len(digests) == 1 and None not in digests:
            unchanged.add(item.item)
    unchanged |= unchanged_outputs(store, data.run)
    return TrendRun(data, frozenset(unchanged))


def trend(
    runs: Sequence[TrendRun],
    *,
    step_from: str | None = None,
    judge: str | None = None,
    model: str | None = None,
    guaranteed: bool = False,
) -> Answer:
    """Return the scores at each step, the best step, and the steps that cannot be told apart from it.

    `step_from` is a regular expression that extracts the step from a model's name. Without it, the step recorded with
    each run is used.
    """
    first = deciding(runs[0].data, judge)
    steps: dict[float, Step] = {}
    parts: list[Scores] = []
    left_out: list[str] = []
    for run in runs:
        data = run.data
        if data is not runs[0].data:
            same_rubrics(runs[0].data, data)
            _check_judges(first, deciding(data, judge))
        for number, name in _steps(data, step_from, model, left_out):
            if number in steps:
                raise UsageError(
                    f"step {number:g} is in run {steps[number].run} and in run {data.run.name}: "
                    "name one of them, or choose a model with --model"
                )
            scores = deciding(data, judge).scores.where(model=name)
            steps[number] = _step(run, number, name, judge)
            label = Column.constant(steps[number].name, len(scores))
            parts.append(replace(scores, model=label))
    ordered = sorted(steps.values(), key=lambda step: step.step)
    if not ordered:
        raise InputError(
            f"no model has a step in its name: {', '.join(left_out)}; give --step-from another pattern",
            options=[_STEP_FROM],
        )
    combined = replace(first, scores=stacked(parts))
    every = combined.with_aggregates()
    scales = combined.all_scales()
    cells = summarise(every, scales=scales, guaranteed=guaranteed)
    if not every.ok.any():
        raise InputError("no edit of these steps has a score", code="no_scores")
    ranks = rank(every, falling=combined.falling, scales=scales, guaranteed=guaranteed)
    return _answer(combined, ordered, cells, ranks, left_out)


def _check_judges(first: RunData, other: RunData) -> None:
    mine = first.scores.judge.present()
    theirs = other.scores.judge.present()
    if {*mine} != {*theirs}:
        raise UsageError(
            f"run {first.run.name} is judged by {', '.join(mine)}, run {other.run.name} by {', '.join(theirs)}: "
            "scores of different judges are not one trend. Choose a judge of both with --judge",
            options=[Option("judge")],
        )


def _steps(
    data: RunData, step_from: str | None, model: str | None, left_out: list[str]
) -> Iterator[tuple[float, str]]:
    """Yield the steps of a run, each with its model. Models without a step are added to `left_out`."""
    spec = data.run.spec
    models = data.scores.model.present()
    if model is not None:
        check_name("model", model, models)
        models = (model,)
    # A pattern in an imported run is somebody else's, and may take forever to match.
    stored = spec.get("step_from") if data.run.imported_from is None else None
    pattern = step_from or stored
    if pattern:
        for name in models:
            number = step_in(pattern, name)
            if number is None:
                left_out.append(name)
            else:
                yield number, name
        return
    if spec.get("step") is None:
        raise UsageError(
            f"run {data.run.name} has no step: run it with --step N, or read steps from the names of its models "
            r"with --step-from, such as --step-from 'ckpt-(\d+)'",
            options=[_STEP_FROM],
        )
    if len(models) != 1:
        names = ", ".join(data.scores.model.present())
        raise UsageError(
            f"run {data.run.name} has one step and {counted(len(models), 'model')}: choose one of {names} with --model",
            options=[Option("model")],
        )
    yield float(spec["step"]), models[0]


def step_in(pattern: str, name: str) -> float | None:
    """Return the number that a pattern finds in a name, or None if the pattern does not match. If the pattern has a
    group, the number is read from the first group."""
    match = step_pattern(pattern).search(name)
    if match is None:
        return None
    text = match[1] if match.re.groups else match[0]
    with suppress(TypeError, ValueError):
        if math.isfinite(number := float(text)):
            return number
    raise UsageError(
        f'--step-from: "{pattern}" finds "{text}" in "{name}", which is not a number',
        options=[_STEP_FROM],
    )


def _step(run: TrendRun, number: float, model: str, judge: str | None) -> Step:
    data = run.data
    specs = data.scores.judge.present() if judge is None else (judge,)
    counts = {
        key: n
        for key, n in data.statuses.items()
        if key[2] == model and any(spec.split("@")[0] == key[0] for spec in specs)
    }
    items = {*data.scores.where(model=model).item.present()}
    return Step(
        number,
        data.run.name,
        model,
        len(items),
        sum(n for (*_, status), n in counts.items() if status not in DONE),
        sum(counts.values()),
        len(items & run.unchanged),
    )


# --- answer ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Best:
    """The step with the best mean of a score, and the steps that cannot be told apart from it."""

    step: float
    mean: float
    ties: Sequence[float] | None
    """Steps that cannot be told apart from the best one. None if no steps can be told apart."""
    reason: str | None

    @property
    def open(self) -> frozenset[float]:
        return frozenset({self.step, *(self.ties or ())})


def _answer(
    run: RunData,
    steps: Sequence[Step],
    cells: Sequence[Cell],
    ranks: Sequence[Rank],
    left_out: Sequence[str],
) -> Answer:
    numbers = {step.name: step.step for step in steps}
    by_factor: dict[str, dict[float, Cell]] = {}
    for cell in cells:
        if cell.ok or cell.failed:
            by_factor.setdefault(cell.factor, {})[numbers[cell.model]] = cell
    best = _best(ranks, numbers)
    primary = [name for name in primary_scores(run)[0] if name in best]
    means = {
        name: [by_factor[name].get(step.step) for step in steps] for name in by_factor
    }
    shared = _shared(run, steps)
    unnamed = list(dict.fromkeys(left_out))
    document = {
        "runs": list(dict.fromkeys(step.run for step in steps)),
        "judges": list(run.scores.judge.present()),
        "of": run.of,
        "shared_edits": shared,
        "steps": [plain(step) for step in steps],
        "factors": {
            name: [
                {"step": step, **_figures(cell)}
                for step, cell in sorted(by_step.items())
            ]
            for name, by_step in by_factor.items()
        },
        "best": {
            name: {"step": top.step, "ties": top.ties, "reason": top.reason}
            for name, top in best.items()
        },
        "left_out": unnamed,
    }
    lead = _lead(
        best,
        primary or [*best],
        steps=len(steps),
        shared=shared,
        left_out=unnamed,
    )
    return Answer(
        document,
        [*run.unjudged(), *lead],
        [_step_table(steps, means, primary), _best_table(run, best, steps)],
        _rows(steps, by_factor),
        charts=[
            _chart(run, name, by_factor[name], best.get(name))
            for name in (*primary, *(n for n in by_factor if n not in primary))
            if any(cell.mean is not None for cell in by_factor[name].values())
        ],
    )


def _figures(cell: Cell) -> dict[str, object]:
    names = ("mean", "ci", "ci_reason", "method", "ok", "n")
    document = plain(cell)
    return {name: document[name] for name in names}


def _best(ranks: Sequence[Rank], numbers: Mapping[str, float]) -> dict[str, Best]:
    """Return the best step for each score, and the steps that may also be the best because no other is evidently
    better."""
    by_factor: dict[str, list[Rank]] = {}
    for ranked in ranks:
        by_factor.setdefault(ranked.factor, []).append(ranked)
    best = {}
    for factor, ordered in by_factor.items():
        top = ordered[0]
        reason = reason_text(top.ci_reason) if top.ci_reason else None
        ties = None
        if reason is None:
            ties = sorted(
                numbers[other.model]
                for other in ordered[1:]
                if other.ci and other.ci[0] == 1
            )
        best[factor] = Best(numbers[top.model], top.mean, ties, reason)
    return best


def _shared(run: RunData, steps: Sequence[Step]) -> int:
    """Return the number of edits that all steps have. Only these are compared pair by pair."""
    scores = run.scores
    pairs = [{*scores.where(model=step.name).pair.present()} for step in steps]
    return len(set.intersection(*pairs))


def _lead(
    best: Mapping[str, Best],
    shown: Sequence[str],
    *,
    steps: int,
    shared: int,
    left_out: Sequence[str],
) -> Iterator[str]:
    for name in shown:
        top = best[name]
        line = f"{name}: best at step {top.step:.15g} ({top.mean:.2f})"
        if steps == 1:
            yield f"{line}, the only step"
        elif top.reason:
            yield f"{line}; no step can be told from another: {top.reason}"
        elif top.ties:
            others = ", ".join(f"{step:.15g}" for step in top.ties)
            yield f"{line}, which cannot be told from {others}"
        else:
            yield f"{line}, evidently better than every other step"
    if not shared:
        yield "no edit is in every step (same input and instruction): steps are compared on what each two share"
    if left_out:
        yield f"left out, since the name has no step: {', '.join(left_out)}"


def _share(count: int, of: int) -> Figure:
    value = count / of if of else None
    return Figure(value, text=f"{count:,} of {of:,}")


def _step_table(
    steps: Sequence[Step],
    means: Mapping[str, Sequence[Cell | None]],
    primary: Sequence[str],
) -> Table:
    rows = []
    for number, step in enumerate(steps):
        row: dict[str, TableCell] = {"step": step.name, "run": step.run}
        for name in primary:
            cell = means[name][number]
            row[name] = Figure(cell.mean, cell.ci) if cell else None
        row["failed"] = _share(step.failed, step.judgements)
        row["unchanged"] = _share(step.unchanged, step.edits)
        rows.append(row)
    return Table.listing(rows, "Scores by step, with 95 % CI", stub=1, spare=("run",))


def _best_table(run: RunData, best: Mapping[str, Best], steps: Sequence[Step]) -> Table:
    rows: list[dict[str, TableCell]] = []
    for name, top in best.items():
        ties = "-" if top.ties is None else ", ".join(f"{t:.15g}" for t in top.ties)
        rows.append(
            {
                "score": run.label(name),
                "best step": f"{top.step:.15g}",
                "mean": Figure(top.mean),
                "cannot be told from": ties or "none",
            }
        )
    note = "a step stays if no other is better by the Holm-corrected paired comparisons of all steps"
    return Table.listing(rows, f"Best of {counted(len(steps), 'step')}", notes=[note])


def _rows(
    steps: Sequence[Step], by_factor: Mapping[str, Mapping[float, Cell]]
) -> Table:
    runs = {step.step: step for step in steps}
    rows: list[dict[str, TableCell]] = []
    for name, by_step in by_factor.items():
        for number, cell in sorted(by_step.items()):
            rows.append(
                {
                    "factor": name,
                    "step": number,
                    "run": runs[number].run,
                    "mean": Figure(cell.mean, cell.ci),
                    "ok": cell.ok,
                    "n": cell.n,
                }
            )
    return Table.listing(rows)


def _chart(
    run: RunData, name: str, by_step: Mapping[float, Cell], best: Best | None
) -> LineChart:
    points = [
        Point(step, cell.mean, cell.ci, best is not None and step not in best.open)
        for step, cell in sorted(by_step.items())
        if cell.mean is not None
    ]
    ends = [point.value for point in points]
    ends += [limit for point in points if point.ci for limit in point.ci]
    margin = (max(ends) - min(ends)) * 0.1 or 0.5
    return LineChart(run.label(name), points, min(ends) - margin, max(ends) + margin)


def trend_text(answer: Answer, form: str) -> str:
    """Return a trend as text in one of the report's formats."""
    title = f"Scores over {counted(len(answer['steps']), 'step')}"
    if form == "html":
        return render(
            "lines.html",
            kicker="trend",
            title=title,
            heading="Steps",
            lead=answer.lead,
            tables=answer.tables,
            charts=answer.charts,
            charts_heading="Each score over steps",
            note="Upright lines are 95 % confidence intervals; a hollow mark is a step that is evidently not the best.",
        )
    rows = answer.rows or Table.listing([])
    return written(form, title, answer.lead, answer.tables, rows, answer.document)
