"""The whole report as one HTML file: no script, no request to anywhere, bounded, the same for the same store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from editjudge.judgement import DONE
from editjudge.report import agreement
from editjudge.report.agreement import PEOPLE, AgreementReport
from editjudge.report.charts import SERIES, Bar, BarChart, Chart, Dot, DotChart, HeatMap, Histograms
from editjudge.report.comparison import compare_tables, conclusions, forests
from editjudge.report.gallery import Look, choices, sections
from editjudge.report.summary import COMPARED, MOST_VALUES, SummaryReport, contradicted, tables
from editjudge.report.templating import ROWS, render
from editjudge.stats.summary import Cell
from editjudge.store.store import Item, Store

JUDGES = 4
"""Judges whose scores are drawn."""
_HEAT_ROWS = 40
"""Rows of a heat map."""

Ask = Callable[[Item, str], "str | None"]
"""The question that a rubric, by its hash, asks about an edit."""
Drawing = tuple[Chart, bool]
"""A chart, and whether it is folded away."""


def page(
    means: SummaryReport,
    store: Store,
    look: Look,
    ask: Ask,
    agreed: AgreementReport | None = None,
    unmatched: str = "",
) -> str:
    """A report of a run; `store` is read only for the edits that are shown. `unmatched` says which ratings belong to
    no factor of the run."""
    judged = means.judged
    galleries = choices(judged)
    coverage, *scores = tables(means, full=True)
    charts, omitted = _charts(means)
    if len(judged.scores.model.present()) > COMPARED:
        omitted.append(f"paired differences of more than {COMPARED} models, which `editjudge compare` has")
    if any(len(table.rows) > ROWS for table in (coverage, *scores)):
        omitted.append(f"rows of tables beyond the first {ROWS}")
    example = next((item for gallery in galleries for item in gallery.items), None)
    item = next(store.items(judged.run, example), None)
    return render(
        "report.html",
        run=judged.run,
        lead=judged.lead(),
        counts=_counts(means),
        facts=list(_facts(means)),
        coverage=coverage,
        charts=charts,
        scores=scores,
        compared=compare_tables(means.compared, "model"),
        conclusions=conclusions(means.compared, sizes=True),
        forests=list(forests(means.compared)),
        unmatched=unmatched,
        people=[table for table in agreement.tables(agreed) if table.rows] if agreed else [],
        people_chart=_people_chart(agreed) if agreed else None,
        contradictions=_contradictions(means),
        galleries=sections(judged, store, look, galleries),
        example=item.item if item else "",
        questions=list(_questions(judged.run.spec.get("rubrics", {}), item, ask)),
        omitted=omitted,
    )


# --- what was judged, by whom, how ----------------------------------------------------------------------------


def _counts(means: SummaryReport) -> list[tuple[str, str, bool]]:
    """The figures at the top: number, name, and whether it is bad news."""
    judged = means.judged
    total = sum(judged.statuses.values())
    failed = sum(n for (*_, status), n in judged.statuses.items() if status not in DONE) - judged.pending
    ok = sum(n for (*_, status), n in judged.statuses.items() if status == "ok")
    return [
        (f"{len(judged.scores.item.present()):,}", "edits", False),
        (f"{total:,}", "judgements", False),
        (f"{ok / total:.1%}" if total else "–", "scored", False),
        (f"{failed:,}", "failed", failed > 0),
        *([(f"{judged.pending:,}", "pending", True)] if judged.pending else []),
        (f"{len(judged.scores.model.present()):,}", "editing models", False),
    ]


def _facts(means: SummaryReport) -> Iterator[tuple[str, str]]:
    run, provenance = means.judged.run, means.judged.provenance

    def about(prefix: str) -> dict[str, str]:
        return {
            name.removeprefix(prefix): value
            for name, value in provenance.items()
            if name.startswith(prefix) and value not in ("", "None", "{}")
        }

    def listed(values: Mapping[str, str]) -> str:
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())

    # The file name alone: a report is sent to others, whom the folders of this machine do not concern.
    yield "edits from", Path(str(run.spec.get("manifest", ""))).name
    yield "judged", f"{_date(run.created)} to {_date(run.updated)}, {run.state}"
    server_models, schemas = about("server model of "), about("schema of ")
    for judge in run.spec.get("judges", ()):
        details = [f"server ran {server_models[judge]}"] if judge in server_models else []
        details += [f"schema {schemas[judge]}"] if judge in schemas else []
        yield "judge", "; ".join([judge, *details])
    yield "rubrics", listed(about("rubric "))
    yield "pictures sent", listed(about("preparation of "))
    yield "settings", listed({name: provenance[name] for name in ("layout", "repeats", "fuse") if name in provenance})
    yield "options", listed(about("option "))
    yield "editjudge", run.version


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


# --- charts ---------------------------------------------------------------------------------------------------


def _charts(means: SummaryReport) -> tuple[list[tuple[str, list[Drawing]]], list[str]]:
    """The charts of each judge, who is named where there are several; and what was left out."""
    judges, models = means.judged.scores.judge.present(), means.judged.scores.model.present()
    omitted = [f"{len(judges) - JUDGES} more judges in charts"] if len(judges) > JUDGES else []
    omitted += [f"{len(models) - SERIES} more models in profiles and distributions"] if len(models) > SERIES else []
    charts = []
    for judge in judges[:JUDGES]:
        drawings: list[Drawing] = []
        for scale, cells in _by_scale(means, [c for c in means.factors if c.judge == judge]).items():
            drawings += _profiles(scale, cells)
            factors = {cell.factor for cell in cells}
            for name, sliced in means.slices.items():
                heat, left = _slice_heat(name, scale, [c for c in sliced if c.judge == judge and c.factor in factors])
                drawings += [(heat, True)] if heat.cells else []
                omitted += [f"{left} more rows of the heat map by {name}"] if left > 0 else []
        charts.append((judge if len(judges) > 1 else "", drawings))
    return charts, omitted


def _by_scale(means: SummaryReport, cells: Sequence[Cell]) -> dict[tuple[float, ...], list[Cell]]:
    """Only factors of one scale share an axis; a factor without a known scale is not drawn."""
    groups: dict[tuple[float, ...], list[Cell]] = {}
    for cell in cells:
        scale = means.judged.scales.get(cell.factor, ())
        if len(scale) > 1 and cell.mean is not None:
            groups.setdefault(scale, []).append(cell)
    return groups


def _profiles(scale: tuple[float, ...], cells: Sequence[Cell]) -> Iterator[Drawing]:
    low, high = scale[0], scale[-1]
    dots = [Dot(c.factor, c.model or "–", c.mean, c.ci) for c in cells if c.mean is not None]
    yield (
        DotChart(f"Mean by factor and model, scale {low:g} to {high:g}, with 95 % CI", dots, low, high, scale),
        False,
    )
    means = {(c.model or "–", c.factor): c.mean for c in cells if c.mean is not None}
    yield HeatMap("Mean by model and factor", means, low, high), False
    counts = {(c.factor, c.model or "–"): c.distribution for c in cells if len(c.distribution) <= MOST_VALUES}
    if counts:
        title = f"Distribution of scores {low:g} to {high:g}, left to right, as shares of verdicts"
        yield Histograms(title, counts), True


def _slice_heat(name: str, scale: tuple[float, ...], cells: Sequence[Cell]) -> tuple[HeatMap, int]:
    means = {
        (f"{c.slice or '–'} · {c.model or '–'}", c.factor): c.mean
        for c in sorted(cells, key=lambda c: (c.slice or "", c.model))
        if c.mean is not None
    }
    rows = list(dict.fromkeys(row for row, _ in means))
    drawn = {place: mean for place, mean in means.items() if place[0] in rows[:_HEAT_ROWS]}
    title = f"Mean by {name.replace('_', ' ')}, model and factor"
    return HeatMap(title, drawn, scale[0], scale[-1]), len(rows) - _HEAT_ROWS


def _people_chart(agreed: AgreementReport) -> DotChart | None:
    dots = [
        Dot(factor, PEOPLE, human.loo_spearman, human.ci.get("loo_spearman"))
        for factor, human in agreed.factors.humans.items()
        if human.loo_spearman is not None
    ]
    dots += [
        Dot(factor, judge, figures.spearman, figures.ci.get("spearman"))
        for factor, judges in agreed.factors.factors.items()
        for judge, figures in judges.items()
        if figures.spearman is not None
    ]
    low = -1.0 if any(min(d.value, d.ci.lo if d.ci else 1.0) < -0.25 for d in dots) else -0.25
    ticks = [-1, -0.5, 0, 0.5, 1] if low == -1.0 else [0, 0.25, 0.5, 0.75, 1]
    title = f"Spearman correlation with people's mean rating; {PEOPLE}: each rater against the others"
    return DotChart(title, dots, low, 1.0, ticks) if dots else None


def _contradictions(means: SummaryReport) -> tuple[Any, ...]:
    """The chart and the table, where any verdict was checked."""
    if not means.judged.contradictions:
        return ()
    counts = sorted(means.judged.contradicted("factor", "judge").items())
    bars = [Bar(factor, judge, n, checked) for (factor, judge), (checked, n) in counts]
    return BarChart("Share of checked verdicts that are contradicted", bars), contradicted(means.judged)


def _questions(rubrics: Mapping[str, str], item: Item | None, ask: Ask) -> Iterator[tuple[str, str, str]]:
    for name, rubric_hash in rubrics.items():
        if item and (text := ask(item, rubric_hash)):
            yield name, rubric_hash, text
