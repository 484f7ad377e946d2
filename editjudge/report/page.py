"""The report of a run in every output format. HTML is a single file of bounded size, makes no requests, contains no
scripts, and is identical for the same store."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from editjudge.judges.models import shutdown_of
from editjudge.report.agreement import stored_agreement
from editjudge.report.answers import Answer, written
from editjudge.report.charts import (
    SERIES,
    THIN,
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
from editjudge.report.gallery import EditView, choices, sections
from editjudge.report.run_data import RunData
from editjudge.report.summary import (
    COMPARED,
    MOST_VALUES,
    SummaryReport,
    contradicted,
    document,
    long,
    not_scored,
    tables,
)
from editjudge.report.tables import Table
from editjudge.report.templating import ROWS, render
from editjudge.stats.summary import Cell
from editjudge.store.store import Store

JUDGES = 4
"""Maximum number of judges with charts."""
_HEAT_ROWS = 40
"""Maximum number of rows in a heat map."""
MOST_TICKS = 11
"""Maximum number of scores on an axis: 0 to 10."""


def rendered(
    means: SummaryReport,
    form: str,
    store: Store | None = None,
    mappings: Sequence[str] = (),
) -> str:
    """Return a report as text in the given format. The HTML format also includes images, questions and ratings, which
    are read from the store."""
    run = means.run
    if form == "fragment":
        # An iframe isolates the style of the page from its surroundings.
        inside = html.escape(rendered(means, "html", store, mappings))
        name = html.escape(run.run.name)
        frame = f'<iframe title="Report of {name}" sandbox srcdoc="{inside}" style="width:100%;height:900px;border:0">'
        return f"{frame}</iframe>\n"
    if form == "html" and store is not None:
        return page(means, store, *stored_agreement(run, store, mappings))
    results = means.conclusions
    return written(
        form,
        f"Run {run.run.name}",
        [*run.unjudged(), *results, not_scored(means), *run.lead()],
        [*tables(means, full=True), *compare_tables(means.compared, "model")],
        long(means),
        document(means),
    )


def page(
    means: SummaryReport, store: Store, agreed: Answer | None, unmatched: str
) -> str:
    """Return the HTML report of a run. The store is read only for the edits on the page.

    `agreed` compares judges with people. `unmatched` is a sentence about ratings of other factors.
    """
    run = means.run
    view = EditView(run.run, store)
    galleries = choices(run)
    coverage, *scores = tables(means, full=True)
    drawing = _Drawing(means)
    charts = drawing.judges()
    omitted = drawing.omitted
    if len(run.scores.model.present()) > COMPARED:
        omitted.append(
            f"paired differences of more than {COMPARED} models, which `editjudge compare` has"
        )
    if any(len(table.rows) > ROWS for table in (coverage, *scores)):
        omitted.append(f"rows of tables beyond the first {ROWS}")
    example = next((item for gallery in galleries for item in gallery.items), None)
    item = next(store.items(run.run, example), None)
    rubrics: Mapping[str, str] = run.run.spec.get("rubrics", {}) if item else {}
    questions = (
        (name, rubric_hash, item and view.question(item, rubric_hash))
        for name, rubric_hash in rubrics.items()
    )
    verdicts: dict[str, list[PairVerdict]] = {}
    for verdict in pair_verdicts(means.compared):
        verdicts.setdefault(verdict.within, []).append(verdict)
    plots = forests(means.compared)
    notes = [note for table in scores for note in table.notes]
    return render(
        "report.html",
        run=run.run,
        not_scored=not_scored(means),
        unjudged=run.unjudged(),
        lead=[*([] if means.compared else means.conclusions), *run.lead()[1:]],
        facts=list(_facts(means)),
        coverage=coverage,
        charts=charts,
        scores=[
            replace(
                table, notes=tuple(n for n in table.notes if n not in means.formulas)
            )
            for table in scores
        ],
        formulas=[note for note in notes if note in means.formulas],
        compared=compare_tables(means.compared, "model"),
        verdicts=verdicts,
        forests=[(judge, plots.get(judge)) for judge in verdicts],
        unmatched=unmatched,
        people=[table for table in agreed.tables if table.rows] if agreed else [],
        people_charts=agreed.charts if agreed else [],
        contradictions=_contradictions(run),
        galleries=sections(run.run, store, view, galleries),
        example=item.item if item else "",
        questions=[question for question in questions if question[2]],
        omitted=omitted,
    )


# --- provenance -----------------------------------------------------------------------------------------------


def _facts(means: SummaryReport) -> Iterator[tuple[str, str]]:
    run = means.run.run
    provenance = means.run.provenance

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

    # Without the folder, because reports are shared with others.
    yield "edits from", Path(str(run.spec.get("manifest", ""))).name
    yield "judged", f"{_date(run.created)} to {_date(run.updated)}, {run.state}"
    server_models = about("server model of ")
    schemas = about("schema of ")
    for judge in run.spec.get("judges", ()):
        details = [judge]
        if judge in server_models:
            details.append(f"server ran {server_models[judge]}")
        if shutdown := shutdown_of(judge):
            details.append(f"switched off on {shutdown.date} ({shutdown.source})")
        if judge in schemas:
            details.append(f"schema {schemas[judge]}")
        details += [p.summary for p in means.run.passports if p.judge == judge]
        yield "judge", "; ".join(details)
    yield "rubrics", listed(about("rubric "))
    yield "pictures sent", listed(about("preparation of "))
    names = [name for name in ("layout", "repeats", "fuse") if name in provenance]
    yield "settings", listed({name: provenance[name] for name in names})
    if caution := provenance.get("caution"):
        yield "caution", caution
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


class _Drawing:
    """Draws the scores of a report, and records which judges and factors are left out."""

    def __init__(self, means: SummaryReport) -> None:
        self._means = means
        self._run = means.run
        self._scales = means.run.all_scales()
        self._factors = {cell.factor for cell in means.factors}
        self.omitted: list[str] = []

    def judges(self) -> list[JudgeCharts]:
        judges = self._run.scores.judge.present()
        models = self._run.scores.model.present()
        if len(judges) > JUDGES:
            self.omitted.append(f"{len(judges) - JUDGES} more judges in charts")
        if len(models) > SERIES:
            self.omitted.append(
                f"{len(models) - SERIES} more models in means and distributions"
            )
        return [self._judge(judge) for judge in judges[:JUDGES]]

    def _judge(self, judge: str) -> JudgeCharts:
        # Factors with the same scale share an axis. A factor without a known scale is not drawn.
        by_scale: dict[tuple[float, ...], list[Cell]] = {}
        for cell in self._means.factors:
            scale = self._run.scales.get(cell.factor, ())
            if cell.judge == judge and len(scale) > 1 and cell.mean is not None:
                by_scale.setdefault(scale, []).append(cell)
        histograms = [self._histograms(*group) for group in by_scale.items()]
        slices = [
            self._slices(name, [c for c in cells if c.judge == judge])
            for name, cells in self._means.slices.items()
        ]
        return JudgeCharts(
            judge,
            self._leaderboard(judge),
            [_means_chart(*group) for group in by_scale.items()],
            [chart for chart in histograms if chart.cells],
            [chart for chart in slices if chart.cells],
        )

    def _leaderboard(self, judge: str) -> HeatMap:
        """Return the heat map of models by factors. Models are sorted only if there is a single statistic that all of
        them have."""
        headline = {f for name, f in self._means.headline if name == judge}
        headline -= self._factors
        drawn = headline | self._factors
        cells = [
            c
            for c in (*self._means.aggregates, *self._means.factors)
            if c.judge == judge and c.factor in drawn
        ]
        models = list(dict.fromkeys(cell.model for cell in cells))
        note = ""
        if len(models) > 1:
            note = "Not in order: no single figure is known of all models."
            for factor in sorted(headline):
                levels = {
                    c.model: c.mean
                    for c in cells
                    if c.factor == factor and c.mean is not None
                }
                if len(levels) == len(models):
                    falls = factor in self._run.falling
                    models.sort(key=levels.__getitem__, reverse=not falls)
                    note = f"In order of {factor}."
                    break
        cells.sort(key=lambda c: models.index(c.model))
        return HeatMap(
            "Mean by model and factor, with 95 % CI and the number of edits",
            {
                (c.model or "–", self._run.label(c.factor)): self._heat_cell(c)
                for c in cells
                if c.ok or c.failed
            },
            note,
        )

    def _heat_cell(self, cell: Cell) -> HeatCell:
        scale = self._scales.get(cell.factor)
        ends = (scale[0], scale[-1]) if scale and scale[0] != scale[-1] else None
        return HeatCell(cell.mean, cell.ok, cell.ci, ends, cell.n)

    def _histograms(
        self, scale: tuple[float, ...], cells: Sequence[Cell]
    ) -> Histograms:
        stepped = [c for c in cells if c.factor not in self._run.continuous]
        enough = {
            c.factor
            for c in stepped
            if c.ok >= THIN and len(c.distribution) <= MOST_VALUES
        }
        return Histograms(
            f"Distribution of scores, {scale[0]:g} to {scale[-1]:g}",
            {
                (c.factor, c.model or "–"): c.distribution
                for c in stepped
                if c.factor in enough
            },
        )

    def _slices(self, name: str, cells: Sequence[Cell]) -> HeatMap:
        several = len({c.model for c in cells}) > 1
        drawn: dict[tuple[str, str], HeatCell] = {}
        rows: dict[str, None] = {}
        for c in sorted(cells, key=lambda c: (c.slice or "", c.model)):
            if c.ok and c.factor in self._factors:
                row = c.slice or "–"
                if several:
                    row = f"{row} · {c.model or '–'}"
                rows[row] = None
                if len(rows) <= _HEAT_ROWS:
                    cell = replace(self._heat_cell(c), ci=None)
                    drawn[row, self._run.label(c.factor)] = cell
        if len(rows) > _HEAT_ROWS:
            left_out = len(rows) - _HEAT_ROWS
            self.omitted.append(f"{left_out} more rows of the heat map by {name}")
        return HeatMap(
            f"Mean by {name.replace('_', ' ')}, model and factor",
            drawn,
            f"Faint: fewer than {THIN} edits, too few for any paired test to reach p < .05.",
        )


def _means_chart(scale: tuple[float, ...], cells: Sequence[Cell]) -> DotChart:
    low = scale[0]
    high = scale[-1]
    dots = [
        Dot(c.factor, c.model or "–", c.mean, c.ci) for c in cells if c.mean is not None
    ]
    ticks = scale if len(scale) <= MOST_TICKS else (low, (low + high) / 2, high)
    title = f"Mean by factor and model, scale {low:g} to {high:g}, with 95 % CI"
    return DotChart(title, dots, low, high, ticks)


def _contradictions(run: RunData) -> tuple[DotChart, Table] | None:
    """Return the chart and table of contradicted verdicts, or None if no verdict was checked."""
    if not run.contradictions.counts:
        return None
    dots = [
        Dot(factor, judge, n / checked, None)
        for (factor, judge), (checked, n) in sorted(
            run.contradicted("factor", "judge").items()
        )
    ]
    title = "Share of checked verdicts that are contradicted"
    ticks = (0, 0.25, 0.5, 0.75, 1)
    return DotChart(title, dots, 0, 1, ticks), contradicted(run)
