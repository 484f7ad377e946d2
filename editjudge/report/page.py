"""The whole report as one HTML file: no script, no request to anywhere, bounded, the same for the same store."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from editjudge.judgement import DONE
from editjudge.report import agreement, charts
from editjudge.report.agreement import PEOPLE, AgreementReport
from editjudge.report.charts import SERIES, Dot
from editjudge.report.comparison import compare_tables
from editjudge.report.gallery import Gallery, Look, choices, galleries
from editjudge.report.markup import ROWS, Child, Markup, clipped, table, tag
from editjudge.report.summary import COMPARED, MOST_VALUES, SummaryReport, contradicted, tables
from editjudge.report.tables import Table
from editjudge.stats.summary import Cell
from editjudge.store.store import Item, Store

JUDGES = 4
"""Judges whose scores are drawn."""
_FIELDS = 40
"""Rows of a heat map."""

Ask = Callable[[Item, str], "str | None"]
"""The question that a rubric, by its hash, asks about an edit."""


def page(
    means: SummaryReport, store: Store, look: Look, ask: Ask, agreed: AgreementReport | None = None, apart: str = ""
) -> str:
    """A report of a run; `store` is read only for the edits that are shown. `apart` tells of ratings that are not
    among what is agreed on."""
    judged = means.judged
    found = choices(judged, store)
    drawn, omitted = _charts(means)
    if len(judged.scores.model.present()) > COMPARED:
        omitted.append(f"paired differences of more than {COMPARED} models, which `editjudge compare` has")
    first, *rest = tables(means, full=True)
    people = _people(agreed, apart)
    sections: list[Child] = [
        _section("coverage", "Coverage and failures", table(first)),
        _section("scores", "Scores", drawn, [table(one) for one in rest[:2]], _folded(rest[2:], "More tables")),
        _differences(means),
        people,
        _contradictions(means),
        list(galleries(judged, store, look, found)),
        _questions(means, store, ask, found),
        _left_out(omitted, first, *rest),
    ]
    style = Path(__file__).with_name("page.css").read_text("utf-8")
    made = f"Made by editjudge from run {judged.run.id} of its store. Spec {judged.run.spec_hash[:12]}."
    top = _top(means, {choice.name: choice.title for choice in found}, bool(people))
    body = tag("body", top, tag("main", sections), tag("footer", made))
    return f"<!doctype html>\n{tag('html', _head(judged.run.name, style), body, lang='en')}\n"


def _head(name: str, style: str) -> Markup:
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; form-action 'none'; base-uri 'none'"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{clipped(name, 80)} – editjudge report"),
        tag("style", Markup(style)),
    )


# --- what was judged, by whom, how ----------------------------------------------------------------------------


def _top(means: SummaryReport, galleries: Mapping[str, str], people: bool) -> Markup:
    judged = means.judged
    links = ["coverage", "scores", *(["differences"] if means.compared else []), *(["people"] if people else []),
             *(["contradictions"] if judged.contradictions else []), *galleries, "questions", "left-out"]  # fmt: skip
    return tag(
        "header",
        tag("p", "editjudge report", class_="kicker"),
        tag("h1", clipped(judged.run.name, 120)),
        [tag("p", clipped(line, 300), class_="lead") for line in judged.lead()],
        _figures(means),
        tag("nav", tag("ul", [
            tag("li", tag("a", galleries.get(name) or name.replace("-", " ").capitalize(), href=f"#{name}"))
            for name in links
        ]), aria_label="Contents"),
        _section("how", "What was judged, by whom, how", tag("dl", [
            tag("div", tag("dt", name), tag("dd", clipped(value, 400))) for name, value in _facts(means) if value
        ], class_="facts")),
        class_="top",
    )  # fmt: skip


def _figures(means: SummaryReport) -> Markup:
    judged = means.judged
    total = sum(judged.statuses.values())
    failed = sum(n for (*_, status), n in judged.statuses.items() if status not in DONE)
    ok = sum(n for (*_, status), n in judged.statuses.items() if status == "ok")
    entries = [
        (f"{len(judged.scores.item.present()):,}", "edits", ""),
        (f"{total:,}", "judgements", ""),
        (f"{ok / total:.1%}" if total else "–", "scored", ""),
        (f"{failed:,}", "failed", "bad" if failed else ""),
        *([(f"{judged.pending:,}", "pending", "bad")] if judged.pending else []),
        (f"{len(judged.scores.model.present()):,}", "editing models", ""),
    ]
    return tag("ul", [tag("li", tag("strong", n), tag("span", name), class_=look or None) for n, name, look in entries],
               class_="figures")  # fmt: skip


def _facts(means: SummaryReport) -> Iterator[tuple[str, str]]:
    run, known = means.judged.run, means.judged.provenance

    def about(prefix: str) -> dict[str, str]:
        found = {name.removeprefix(prefix): value for name, value in known.items() if name.startswith(prefix)}
        return {name: value for name, value in found.items() if value not in ("", "None", "{}")}

    def listed(found: Mapping[str, str]) -> str:
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in found.items())

    # The name alone: a report is sent around, and where somebody keeps their files is nobody's business.
    yield "edits from", Path(str(run.spec.get("manifest", ""))).name
    yield "judged", f"{_date(run.created)} to {_date(run.updated)}, {run.state}"
    ran, schema = about("server model of "), about("schema of ")
    for judge in run.spec.get("judges", ()):
        told = [f"server ran {ran[judge]}"] if judge in ran else []
        told += [f"schema {schema[judge]}"] if judge in schema else []
        yield "judge", "; ".join([judge, *told])
    yield "rubrics", listed(about("rubric "))
    yield "pictures sent", listed(about("preparation of "))
    yield "settings", listed({name: known[name] for name in ("layout", "repeats", "fuse") if name in known})
    yield "options", listed(about("option "))
    yield "editjudge", run.version


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


# --- charts ---------------------------------------------------------------------------------------------------


def _charts(means: SummaryReport) -> tuple[list[Child], list[str]]:
    """For each judge its profiles, heat maps and distributions; and what there was no room for."""
    judges = means.judged.scores.judge.present()
    models = means.judged.scores.model.present()
    drawn: list[Child] = []
    omitted = [f"{len(judges) - JUDGES} more judges in charts"] if len(judges) > JUDGES else []
    omitted += [f"{len(models) - SERIES} more models in profiles and distributions"] if len(models) > SERIES else []
    for judge in judges[:JUDGES]:
        drawn.append(tag("h3", f"Judge {clipped(judge, 100)}") if len(judges) > 1 else None)
        for scale, cells in _by_scale(means, [c for c in means.factors if c.judge == judge]).items():
            drawn += _drawn(scale, cells)
            for name, sliced in means.slices.items():
                mine = [c for c in sliced if c.judge == judge and c.factor in {cell.factor for cell in cells}]
                fields = {
                    (f"{c.slice or '–'} · {c.model or '–'}", c.factor): c.mean
                    for c in sorted(mine, key=lambda c: (c.slice or "", c.model))
                    if c.mean is not None
                }
                rows = list(dict.fromkeys(row for row, _ in fields))
                omitted += [f"{len(rows) - _FIELDS} more rows of the heat map by {name}"] if len(rows) > _FIELDS else []
                kept = {place: mean for place, mean in fields.items() if place[0] in rows[:_FIELDS]}
                title = f"Mean by {name.replace('_', ' ')}, model and factor"
                drawn.append(_fold(title, charts.heat(title, kept, scale[0], scale[-1])) if kept else None)
    return drawn, omitted


def _by_scale(means: SummaryReport, cells: Sequence[Cell]) -> dict[tuple[float, ...], list[Cell]]:
    """Only factors of one scale share an axis; where none is known, nothing is drawn."""
    found: dict[tuple[float, ...], list[Cell]] = {}
    for cell in cells:
        scale = means.judged.scales.get(cell.factor, ())
        if len(scale) > 1 and cell.mean is not None:
            found.setdefault(scale, []).append(cell)
    return found


def _drawn(scale: tuple[float, ...], cells: Sequence[Cell]) -> list[Child]:
    low, high = scale[0], scale[-1]
    dots = [Dot(c.factor, c.model or "–", c.mean, c.ci) for c in cells if c.mean is not None]
    means = {(c.model or "–", c.factor): c.mean for c in cells if c.mean is not None}
    spread = {(c.factor, c.model or "–"): c.distribution for c in cells if len(c.distribution) <= MOST_VALUES}
    title = f"Distribution of scores {low:g} to {high:g}, left to right, as shares of verdicts"
    return [
        charts.dots(
            f"Mean by factor and model, scale {low:g} to {high:g}, with 95 % intervals", dots, low, high, scale
        ),
        charts.heat("Mean by model and factor", means, low, high),
        _fold(title, charts.histograms(title, spread)) if spread else None,
    ]


# --- sections -------------------------------------------------------------------------------------------------


def _section(name: str, title: str, *content: Child) -> Markup:
    return tag("section", tag("h2", title), content, id=name)


def _fold(title: str, content: Child) -> Markup:
    return tag("details", tag("summary", title), content)


def _folded(found: Sequence[Table], title: str) -> Markup | None:
    shown = [table(one) for one in found]
    return _fold(f"{title} ({len(shown)})", shown) if shown else None


def _differences(means: SummaryReport) -> Markup | None:
    shown = [table(one) for one in compare_tables(means.compared, "model")]
    return _section("differences", "Differences between models", shown) if shown else None


def _people(agreed: AgreementReport | None, apart: str) -> Markup | None:
    told = tag("p", clipped(apart, 500), class_="lead") if apart else None
    if agreed is None:
        return _section("people", "Judges against people", told) if told else None
    dots = [
        Dot(factor, PEOPLE, human.loo_spearman, human.ci.get("loo_spearman"))
        for factor, human in agreed.factors.humans.items()
        if human.loo_spearman is not None
    ]
    dots += [
        Dot(factor, judge, one.spearman, one.ci.get("spearman"))
        for factor, judges in agreed.factors.factors.items()
        for judge, one in judges.items()
        if one.spearman is not None
    ]
    low = -1.0 if any(min(d.value, d.ci.lo if d.ci else 1.0) < -0.25 for d in dots) else -0.25
    ticks = [-1, -0.5, 0, 0.5, 1] if low == -1.0 else [0, 0.25, 0.5, 0.75, 1]
    title = f"Spearman with people's mean rating; {PEOPLE} is each rater against the others"
    first, *rest = agreement.tables(agreed)
    return _section(
        "people",
        "Judges against people",
        told,
        charts.dots(title, dots, low, 1.0, ticks) if dots else None,
        table(first),
        _folded([one for one in rest if one.rows], "More about agreement"),
    )


def _contradictions(means: SummaryReport) -> Markup | None:
    if not means.judged.contradictions:
        return None
    sums = sorted(means.judged.contradicted("factor", "judge").items())
    bars = [(factor, judge, n, checked) for (factor, judge), (checked, n) in sums]
    return _section(
        "contradictions",
        "Contradictions",
        tag("p", "Verdicts that say what the measured evidence of the same pictures refutes.", class_="lead"),
        charts.shares("Share of checked verdicts that are contradicted", bars),
        table(contradicted(means.judged)),
    )


def _questions(means: SummaryReport, store: Store, ask: Ask, found: Sequence[Gallery]) -> Markup:
    run = means.judged.run
    chosen = next((item for choice in found for item in choice.items), None)
    item = next(store.items(run, chosen), None)
    asked: Mapping[str, str] = run.spec.get("rubrics", {})
    folded = [
        _fold(f"{name}, rubric {hash_[:12]}", [tag("p", tag("code", hash_), class_="small"), tag("pre", text)])
        for name, hash_ in asked.items()
        if item and (text := ask(item, hash_))
    ]
    told = "The rubrics of this run are not kept in the store."
    if item and folded:
        told = f"As asked about the edit {clipped(item.item, 80)}; others have their own words and identifier in it."
    return _section("questions", "The exact questions", tag("p", told, class_="lead"), folded)


def _left_out(omitted: Sequence[str], *shown: Table) -> Markup:
    rows = [f"rows of tables beyond the first {ROWS}"] if any(len(one.rows) > ROWS for one in shown) else []
    always = [
        "edits beyond those in the galleries, each of which says how many it left out",
        "pictures at full size: these are small copies, compressed anew",
        "raw replies, but for the last of failed judgements; the store has every one",
        "long texts beyond a few hundred characters, each of which says so",
    ]
    return _section("left-out", "What was left out", tag("ul", [tag("li", one) for one in [*omitted, *rows, *always]]))
