"""The whole report as one HTML file: no script, no request to anywhere, bounded, the same for the same store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from editjudge.report import agreement
from editjudge.report.agreement import PEOPLE, AgreementReport
from editjudge.report.charts import (
    SERIES,
    THIN,
    Bar,
    BarChart,
    Dot,
    DotChart,
    HeatCell,
    HeatMap,
    Histograms,
)
from editjudge.report.comparison import (
    PairVerdict,
    compare_tables,
    forests,
    pair_verdicts,
)
from editjudge.report.edit_view import EditView
from editjudge.report.gallery import choices, sections
from editjudge.report.summary import (
    COMPARED,
    MOST_VALUES,
    SummaryReport,
    contradicted,
    not_scored,
    tables,
)
from editjudge.report.templating import ROWS, render
from editjudge.stats.summary import Cell
from editjudge.store.records import Item
from editjudge.store.store import Store

JUDGES = 4
"""Judges whose scores are drawn."""
_HEAT_ROWS = 40
"""Rows of a heat map."""
MOST_TICKS = 11
"""Scores that an axis has room for: 0 to 10."""

Ask = Callable[[Item, str], "str | None"]
"""The question that a rubric, by its hash, asks about an edit."""


def page(
    means: SummaryReport,
    store: Store,
    agreed: AgreementReport | None = None,
    unmatched: str = "",
) -> str:
    """A report of a run; `store` is read only for the edits that are shown. `unmatched` says which ratings belong to
    no factor of the run."""
    judged = means.judged
    view = EditView(judged.run, store)
    galleries = choices(judged)
    coverage, *scores = tables(means, full=True)
    charts, omitted = _charts(means)
    if len(judged.scores.model.present()) > COMPARED:
        omitted.append(
            f"paired differences of more than {COMPARED} models, which `editjudge compare` has"
        )
    if any(len(table.rows) > ROWS for table in (coverage, *scores)):
        omitted.append(f"rows of tables beyond the first {ROWS}")
    example = next((item for gallery in galleries for item in gallery.items), None)
    item = next(store.items(judged.run, example), None)
    verdicts = _by_judge(pair_verdicts(means.compared))
    plots = dict(forests(means.compared))
    return render(
        "report.html",
        run=judged.run,
        not_scored=not_scored(means),
        unjudged=judged.unjudged(),
        lead=judged.lead()[1:],
        facts=list(_facts(means)),
        coverage=coverage,
        charts=charts,
        scores=[
            replace(
                table, notes=tuple(n for n in table.notes if n not in means.formulas)
            )
            for table in scores
        ],
        formulas=[
            words
            for table in scores
            for words in table.notes
            if words in means.formulas
        ],
        compared=compare_tables(means.compared, "model"),
        verdicts=verdicts,
        forests=[(judge, plots.get(judge)) for judge in verdicts],
        unmatched=unmatched,
        people=[table for table in agreement.tables(agreed) if table.rows]
        if agreed
        else [],
        people_chart=_people_chart(agreed) if agreed else None,
        contradictions=_contradictions(means),
        galleries=sections(judged, store, view.picture, galleries),
        example=item.item if item else "",
        questions=list(
            _questions(judged.run.spec.get("rubrics", {}), item, view.question)
        ),
        omitted=omitted,
    )


def _by_judge(verdicts: Sequence[PairVerdict]) -> dict[str, list[PairVerdict]]:
    judges: dict[str, list[PairVerdict]] = {}
    for verdict in verdicts:
        judges.setdefault(verdict.within, []).append(verdict)
    return judges


# --- what was judged, by whom, how ----------------------------------------------------------------------------


def _facts(means: SummaryReport) -> Iterator[tuple[str, str]]:
    run = means.judged.run
    provenance = means.judged.provenance

    def about(prefix: str) -> dict[str, str]:
        return {
            name.removeprefix(prefix): value
            for name, value in provenance.items()
            if name.startswith(prefix) and value not in ("", "None", "{}")
        }

    def listed(values: Mapping[str, str]) -> str:
        return ", ".join(
            f"{name.replace('_', ' ')} {value}" for name, value in values.items()
        )

    # The file name alone: a report is sent to others, whom the folders of this machine do not concern.
    yield "edits from", Path(str(run.spec.get("manifest", ""))).name
    yield "judged", f"{_date(run.created)} to {_date(run.updated)}, {run.state}"
    server_models = about("server model of ")
    schemas = about("schema of ")
    for judge in run.spec.get("judges", ()):
        details = (
            [f"server ran {server_models[judge]}"] if judge in server_models else []
        )
        details += [f"schema {schemas[judge]}"] if judge in schemas else []
        yield "judge", "; ".join([judge, *details])
    yield "rubrics", listed(about("rubric "))
    yield "pictures sent", listed(about("preparation of "))
    yield (
        "settings",
        listed(
            {
                name: provenance[name]
                for name in ("layout", "repeats", "fuse")
                if name in provenance
            }
        ),
    )
    yield "options", listed(about("option "))
    yield "editjudge", run.version


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


# --- charts ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JudgeCharts:
    """Charts of one judge's scores."""

    judge: str
    leaderboard: HeatMap
    means: Sequence[DotChart]
    distributions: Sequence[Histograms]
    slices: Sequence[HeatMap]


def _charts(means: SummaryReport) -> tuple[list[JudgeCharts], list[str]]:
    """The charts of each judge, and what was left out."""
    judges = means.judged.scores.judge.present()
    models = means.judged.scores.model.present()
    omitted = (
        [f"{len(judges) - JUDGES} more judges in charts"]
        if len(judges) > JUDGES
        else []
    )
    omitted += (
        [f"{len(models) - SERIES} more models in means and distributions"]
        if len(models) > SERIES
        else []
    )
    charts = []
    for judge in judges[:JUDGES]:
        cells = [cell for cell in means.factors if cell.judge == judge]
        scales = _by_scale(means, cells).items()
        slices = []
        for name, sliced in means.slices.items():
            heat, left = _slice_heat(
                means,
                name,
                [c for c in sliced if c.judge == judge and c.factor in means.own],
            )
            slices += [heat] if heat.cells else []
            omitted += (
                [f"{left} more rows of the heat map by {name}"] if left > 0 else []
            )
        charts.append(
            JudgeCharts(
                judge,
                _leaderboard(means, judge),
                [_means_chart(scale, some) for scale, some in scales],
                [
                    chart
                    for scale, some in scales
                    if (chart := _distributions(means, scale, some)).cells
                ],
                slices,
            )
        )
    return charts, omitted


def _by_scale(
    means: SummaryReport, cells: Sequence[Cell]
) -> dict[tuple[float, ...], list[Cell]]:
    """Only factors of one scale share an axis; a factor without a known scale is not drawn."""
    groups: dict[tuple[float, ...], list[Cell]] = {}
    for cell in cells:
        scale = means.judged.scales.get(cell.factor, ())
        if len(scale) > 1 and cell.mean is not None:
            groups.setdefault(scale, []).append(cell)
    return groups


def _leaderboard(means: SummaryReport, judge: str) -> HeatMap:
    """Models by factors. They are in order only where one figure is known of all of them."""
    headline = sorted(
        factor
        for name, factor in means.headline
        if name == judge and factor not in means.own
    )
    cells = [
        c
        for c in (*means.aggregates, *means.factors)
        if c.judge == judge and c.factor in {*headline, *means.own}
    ]
    models = list(dict.fromkeys(cell.model for cell in cells))
    by = next((factor for factor in headline if _all_have(cells, factor, models)), None)
    note = (
        "Not in order: no single figure is known of all models."
        if len(models) > 1
        else ""
    )
    if by is not None and len(models) > 1:
        levels = {
            c.model: c.mean for c in cells if c.factor == by and c.mean is not None
        }
        models.sort(
            key=lambda model: levels[model], reverse=by not in means.judged.falling
        )
        note = f"In order of {by}."
    scored = [
        c
        for c in sorted(cells, key=lambda c: models.index(c.model))
        if c.ok or c.failed
    ]
    title = "Mean by model and factor, with 95 % CI and the number of edits"
    return HeatMap(
        title,
        {
            (c.model or "–", means.judged.label(c.factor)): _heat_cell(means, c)
            for c in scored
        },
        note,
    )


def _all_have(cells: Sequence[Cell], factor: str, models: Sequence[str]) -> bool:
    return {c.model for c in cells if c.factor == factor and c.mean is not None} == {
        *models
    }


def _heat_cell(means: SummaryReport, cell: Cell) -> HeatCell:
    scale = means.scales.get(cell.factor)
    ends = (scale[0], scale[-1]) if scale and scale[0] != scale[-1] else None
    return HeatCell(cell.mean, cell.ok, cell.ci, ends, cell.n)


def _means_chart(scale: tuple[float, ...], cells: Sequence[Cell]) -> DotChart:
    dots = [
        Dot(c.factor, c.model or "–", c.mean, c.ci) for c in cells if c.mean is not None
    ]
    ticks = (
        scale
        if len(scale) <= MOST_TICKS
        else (scale[0], (scale[0] + scale[-1]) / 2, scale[-1])
    )
    title = (
        f"Mean by factor and model, scale {scale[0]:g} to {scale[-1]:g}, with 95 % CI"
    )
    return DotChart(title, dots, scale[0], scale[-1], ticks)


def _distributions(
    means: SummaryReport, scale: tuple[float, ...], cells: Sequence[Cell]
) -> Histograms:
    stepped = [cell for cell in cells if cell.factor not in means.judged.continuous]
    enough = {
        cell.factor
        for cell in stepped
        if cell.ok >= THIN and len(cell.distribution) <= MOST_VALUES
    }
    counts = {
        (c.factor, c.model or "–"): c.distribution
        for c in stepped
        if c.factor in enough
    }
    return Histograms(f"Distribution of scores, {scale[0]:g} to {scale[-1]:g}", counts)


def _slice_heat(
    means: SummaryReport, name: str, cells: Sequence[Cell]
) -> tuple[HeatMap, int]:
    models = {cell.model for cell in cells}
    drawn: dict[tuple[str, str], HeatCell] = {}
    for c in sorted(cells, key=lambda c: (c.slice or "", c.model)):
        if c.ok:
            row = (
                f"{c.slice or '–'} · {c.model or '–'}"
                if len(models) > 1
                else c.slice or "–"
            )
            drawn[row, means.judged.label(c.factor)] = replace(
                _heat_cell(means, c), ci=None
            )
    rows = list(dict.fromkeys(row for row, _ in drawn))
    visible = {
        place: cell for place, cell in drawn.items() if place[0] in rows[:_HEAT_ROWS]
    }
    note = (
        f"Faint: fewer than {THIN} edits, too few for any paired test to reach p < .05."
    )
    return HeatMap(
        f"Mean by {name.replace('_', ' ')}, model and factor", visible, note
    ), len(rows) - _HEAT_ROWS


def _people_chart(agreed: AgreementReport) -> DotChart | None:
    dots = [
        Dot(factor, PEOPLE, person.spearman, ci)
        for factor, human in agreed.factors.humans.items()
        if (ci := (person := human.further_rater).ci.get("spearman"))
        and person.spearman is not None
    ]
    dots += [
        Dot(factor, judge, figures.spearman, ci)
        for factor, judges in agreed.factors.factors.items()
        for judge, figures in judges.items()
        if (ci := figures.ci.get("spearman")) and figures.spearman is not None
    ]
    low = (
        -1.0
        if any(min(d.value, d.ci.lo if d.ci else 1.0) < -0.25 for d in dots)
        else -0.25
    )
    ticks = [-1, -0.5, 0, 0.5, 1] if low == -1.0 else [0, 0.25, 0.5, 0.75, 1]
    title = f"Spearman correlation with people's mean rating; {PEOPLE}: what one more person would reach"
    return DotChart(title, dots, low, 1.0, ticks) if dots else None


def _contradictions(means: SummaryReport) -> tuple[Any, ...]:
    """The chart and the table, where any verdict was checked."""
    if not means.judged.contradictions:
        return ()
    counts = sorted(means.judged.contradicted("factor", "judge").items())
    bars = [Bar(factor, judge, n, checked) for (factor, judge), (checked, n) in counts]
    return BarChart(
        "Share of checked verdicts that are contradicted", bars
    ), contradicted(means.judged)


def _questions(
    rubrics: Mapping[str, str], item: Item | None, ask: Ask
) -> Iterator[tuple[str, str, str]]:
    for name, rubric_hash in rubrics.items():
        if item and (text := ask(item, rubric_hash)):
            yield name, rubric_hash, text
