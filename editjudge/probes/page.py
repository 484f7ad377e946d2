"""A result for people: tables for terminal and Markdown, and one page with a heat map of factors by defects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from editjudge.probes.result import ControlResult, DoseResponse, InjectionResult, ProbeResult, Sensitivity
from editjudge.report.charts import SlopeMap
from editjudge.report.tables import Cell, Figure, Table
from editjudge.report.templating import render
from editjudge.rubrics.files import SETS
from editjudge.stats.statistic import Interval, figure_text

_SHORT = {
    "unchanged_regions": "unchd", "global_consistency": "globl", "identity_preservation": "ident",
    "scale_realism": "scale", "spatial_relationship": "place", "texture_and_detail": "textr", "image_quality": "image",
    "color_and_lighting": "light", "seamlessness": "seams", "alignment": "align", "completeness": "compl",
    "plausibility": "plaus",
}  # fmt: skip
"""Names that a heat map has room for."""
_MAPS = {"against the input": SETS["online"], "against the ground truth": SETS["offline"]}


def lead(result: ProbeResult) -> list[str]:
    """What was asked and what became of it, in a line each."""
    statuses = ", ".join(f"{n:,} {status}" for status, n in Counter(result.statuses).most_common()) or "none"
    return [
        f"judge {result.judge}, probes of {result.made_from}: {sum(result.statuses.values()):,} judgements: {statuses}",
        f"controls: {_counted(result.controls, 'passed')}; injection attempts: {_counted(result.attempts, 'resisted')}",
    ]


def _counted(results: Sequence[ControlResult] | Sequence[InjectionResult], good: str) -> str:
    counts = Counter(str(one.outcome) for one in results)
    silent = [f"{counts[name]} {name}" for name in ("abstained", "not judged") if counts[name]]
    judged = counts.total() - counts["abstained"] - counts["not judged"]
    return ", ".join([f"{counts[good]} of {judged} {good}", *silent])


def tables(result: ProbeResult) -> list[Table]:
    sections = []
    for how, rubrics in _MAPS.items():
        names = (*rubrics, "compliance") if "input" in how else rubrics
        own = [s for s in result.sensitivities if s.own.rubric in names]
        sections += [_sensitivities(own, how), _heat(result, how)] if own else []
    sections += [_controls(result.controls)] if result.controls else []
    return [*sections, *([_attempts(result)] if result.attempts else [])]


def _sensitivities(sensitivities: Sequence[Sensitivity], how: str) -> Table:
    rows = [
        (
            s.own.family, s.own.factor, Figure(s.own.ok, text=f"{s.own.ok}/{s.own.n}"), s.own.abstained or None,
            s.own.failed or None, " ".join("-" if m is None else f"{round(m, 1):g}" for m in s.own.means),
            _two(s.own.slope, s.own.ci), _two(s.own.spearman, s.own.spearman_ci), Figure(s.own.within),
            Figure(s.off_ratio, s.off_ci, text=None if s.off_ratio is None else f"{s.off_ratio:.2f}"),
            s.off_target or "-",
        )
        for s in sensitivities
    ]  # fmt: skip
    columns = ("defect", "factor", "ok/n", "abst.", "failed", "by dose", "points a dose", "rho", "within", "off",
               "off target")  # fmt: skip
    notes = (
        "by dose: mean score of the clean edit, then of each dose; points a dose: slope with its 95 % CI, clustered by "
        "photograph; rho: Spearman correlation of score and dose over all photographs; within: its mean within each",
        "off: largest slope of a factor that should not react to the defect, divided by the slope of the factor that "
        "should; below 0.5 the judge tells this defect from others; - where the factor did not fall, or has no scores",
    )
    table = Table.of(columns, rows, f"Each defect and the factor that it must lower, {how}", notes=notes,
                     spare=("off target", "within", "abst."))  # fmt: skip
    return table.trimmed("abst.", "failed")


def _two(value: float | None, ci: Interval | None) -> Figure:
    """Two decimals, whatever the interval: of a few photographs it may have no width at all."""
    return Figure(value, ci, text="-" if value is None else figure_text(value, ci, digits=2))


def _heat(result: ProbeResult, how: str) -> Table:
    cells = {(m.family, m.factor): m for m in result.movements if m.rubric in _MAPS[how]}
    families, factors = (list(dict.fromkeys(place[n] for place in cells)) for n in (0, 1))
    rows: list[tuple[Cell, ...]] = [
        (family, *(_marked(cells[family, factor]) for factor in factors)) for family in families
    ]
    notes = ("[must lose points], (may lose points); 0: less than 0.05; negative: gained points; blank: no scores",)
    caption = f"Heat map, {how}: points that each factor loses per dose of each defect"
    return Table.of(("defect", *(_SHORT.get(factor, factor) for factor in factors)), rows, caption, notes=notes)


def _marked(m: DoseResponse) -> Figure:
    text = "" if m.slope is None else "0" if abs(m.slope) < 0.05 else f"{-m.slope:.1f}"
    return Figure(m.slope, text={"own": f"[{text or '-'}]", "also": f"({text})" if text else ""}.get(m.role, text))


def _controls(controls: Sequence[ControlResult]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name in dict.fromkeys(c.control for c in controls):
        here = [c for c in controls if c.control == name]
        wrong = [
            f"{c.factor} {c.score} for {_span(c)} ({c.item.partition('-')[0]})" for c in here if c.outcome == "missed"
        ]
        counts = [
            sum(c.outcome == outcome for c in here) for outcome in ("passed", "missed", "abstained", "not judged")
        ]
        rows.append((name, *counts, "; ".join(wrong)))
    columns = ("control", "passed", "missed", "abst.", "not judged", "said for expected")
    caption = "Controls: edits whose right answer is known"
    return Table.of(columns, rows, caption).trimmed("missed", "abst.", "not judged", "said for expected")


def _span(c: ControlResult) -> str:
    return f"{c.least}" if c.least == c.most else f"{c.least} to {c.most}"


def _attempts(result: ProbeResult) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name in dict.fromkeys(a.attempt for a in result.attempts):
        here = [a for a in result.attempts if a.attempt == name]
        counts = [
            sum(a.outcome == outcome for a in here) for outcome in ("resisted", "swayed", "abstained", "not judged")
        ]
        most = max((a for a in here if a.most is not None), key=lambda a: a.most or 0.0, default=None)
        rises = [a.rise for a in here if a.rise is not None]
        rows.append((name, *counts, Figure(sum(rises) / len(rises) if rises else None, sign=True),
                     "-" if most is None else f"{most.most_factor} {most.most:+.2f}"))  # fmt: skip
    columns = ("attempt", "resisted", "swayed", "abst.", "not judged", "rise", "largest rise")
    over = f"{_two(result.rise, result.rise_ci)}"
    notes = (f"rise: mean score with the attempt minus without it, as a share of the scale; all attempts: {over}",)
    table = Table.of(columns, rows, "Prompt injection: attempts to raise the score", notes=notes)
    return table.trimmed("swayed", "abst.", "not judged")


# --- one page -------------------------------------------------------------------------------------------------


def html(result: ProbeResult) -> str:
    """One file that needs no other: no script, no font, no address."""
    charts = []
    for how, rubrics in _MAPS.items():
        cells = {(m.family, m.factor): m for m in result.movements if m.rubric in rubrics}
        if cells:
            charts.append(SlopeMap(f"Points that each factor loses per dose of each defect, {how}", cells))
    sections = [table for table in tables(result) if not table.caption.startswith("Heat map")]
    title = f"Probes of {result.judge}"
    return render(
        "figures.html", kicker="editjudge probe", title=title, lead=lead(result), charts=charts, tables=sections
    )
