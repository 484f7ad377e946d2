"""A result for people: tables for terminal and Markdown, and one page with a heat map of factors by defects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

from editjudge.report.tables import Figure, Table
from editjudge.rubrics.files import SETS

from .defects import FAMILIES
from .result import Movement, Result, Sensitivity

_SHORT = {
    "unchanged_regions": "unchanged", "global_consistency": "global", "identity_preservation": "identity",
    "scale_realism": "scale", "spatial_relationship": "spatial", "texture_and_detail": "texture",
    "image_quality": "image", "color_and_lighting": "light", "seamlessness": "seams", "alignment": "align",
    "completeness": "complete", "plausibility": "plausible", "effect_score": "effect",
}  # fmt: skip


def lead(result: Result) -> list[str]:
    """What was asked, what became of it, and the result in one line each."""
    told = ", ".join(f"{n:,} {status}" for status, n in Counter(result.statuses).most_common()) or "none"
    outcomes = Counter(c.outcome for c in result.controls)
    attempts = Counter(a.outcome for a in result.attempts)
    return [
        f"judge {result.judge}, probes {result.made_from}: {sum(result.statuses.values()):,} judgements: {told}",
        f"controls: {_counted(outcomes, 'passed')}; injection attempts: {_counted(attempts, 'resisted')}",
    ]


def _counted(outcomes: Counter[str], good: str) -> str:
    judged = outcomes.total() - outcomes["abstained"] - outcomes["not judged"]
    rest = [f"{outcomes[name]} {name}" for name in ("abstained", "not judged") if outcomes[name]]
    return ", ".join([f"{outcomes[good]} of {judged} {good}", *rest])


def tables(result: Result) -> list[Table]:
    found = [
        _sensitivities([s for s in result.sensitivities if s.own.rubric != "reference"], "Defects and their factors")
    ]
    offline = [s for s in result.sensitivities if s.own.rubric == "reference"]
    found += [_sensitivities(offline, "The same against the ground truth")] if offline else []
    found += [heat(result, online) for online in (True, False) if any(_online(m) == online for m in result.movements)]
    return [*found, *_controls(result), *_attempts(result)]


def _sensitivities(found: Sequence[Sensitivity], caption: str) -> Table:
    rows = [
        (
            s.own.family, f"{s.own.rubric}.{s.own.factor}", Figure(s.own.ok, text=f"{s.own.ok}/{s.own.n}"),
            s.own.abstained or None, s.own.failed or None, _trail(s.own), Figure(s.own.slope, s.own.ci, sign=True),
            Figure(s.own.spearman, s.own.spearman_ci), Figure(s.own.within), s.off_target or "-", Figure(s.off_ratio),
        )
        for s in found
    ]  # fmt: skip
    columns = ("defect", "factor", "ok/n", "abst.", "failed", "means by dose", "points a dose", "rho", "rho within",
               "most off target", "ratio")  # fmt: skip
    notes = (
        "points a dose: slope of the score over doses 0 to 4 with its 95 % interval over photographs; rho: Spearman of "
        "score and dose over all photographs, and within each; ratio: movement of the factor that should have stayed "
        "and moved most, relative to the own factor's; - where the own factor did not move or nothing was scored",
    )
    table = Table.of(columns, rows, caption, notes=notes, spare=("rho within", "most off target"))
    return table.trimmed("abst.", "failed")


def _trail(own: Movement) -> str:
    return " ".join("-" if mean is None else f"{mean:.1f}" for mean in own.means)


def _online(m: Movement) -> bool:
    return m.rubric in SETS["online"]


def heat(result: Result, online: bool = True) -> Table:
    """Points a dose, defect by factor; own factors in brackets, those that may fall too in parentheses."""
    cells = {(m.family, m.factor): m for m in result.movements if _online(m) == online}
    factors = list(dict.fromkeys(factor for _, factor in cells))
    rows = [
        (family.name, *(Figure(None if m is None else m.slope, text=_marked(m)) for f in factors
                        for m in [cells.get((family.name, f))]))
        for family in FAMILIES if any((family.name, f) in cells for f in factors)
    ]  # fmt: skip
    caption = "Heat map: points a dose" if online else "Heat map against the ground truth, and compliance"
    notes = ("[own factor], (may fall too); blank: abstained or not asked",)
    return Table.of(("defect", *(_SHORT.get(f, f) for f in factors)), rows, caption, notes=notes)


def _marked(m: Movement | None) -> str:
    if m is None or m.slope is None:
        return "[ ]" if m is not None and m.role == "own" else ""
    text = f"{round(m.slope, 1) + 0.0:+.1f}" if abs(m.slope) >= 0.05 else "0"
    return f"[{text}]" if m.role == "own" else f"({text})" if m.role == "also" else text


def _controls(result: Result) -> Iterable[Table]:
    if not result.controls:
        return
    rows = []
    for place in dict.fromkeys((c.control, c.rubric, c.factor, c.least, c.most) for c in result.controls):
        here = [c for c in result.controls if (c.control, c.rubric, c.factor, c.least, c.most) == place]
        counts = Counter(c.outcome for c in here)
        wanted = f"{place[3]}" if place[3] == place[4] else f"{place[3]} to {place[4]}"
        said = " ".join("-" if c.score is None else str(c.score) for c in here)
        rows.append((place[0], f"{place[1]}.{place[2]}", wanted, said, counts["passed"], counts["missed"] or None,
                     counts["abstained"] or None, counts["not judged"] or None))  # fmt: skip
    columns = ("control", "factor", "expected", "said, by photograph", "passed", "missed", "abst.", "not judged")
    table = Table.of(columns, rows, "Controls: edits whose right answer is known", stub=1)
    yield table.trimmed("missed", "abst.", "not judged")


def _attempts(result: Result) -> Iterable[Table]:
    if not result.attempts:
        return
    rows = []
    for attempt, rubric in dict.fromkeys((a.attempt, a.rubric) for a in result.attempts):
        here = [a for a in result.attempts if (a.attempt, a.rubric) == (attempt, rubric)]
        counts, rises = Counter(a.outcome for a in here), [a.rise for a in here if a.rise is not None]
        most = max((a for a in here if a.most is not None), key=lambda a: a.most or 0.0, default=None)
        share = Figure(sum(rises) / len(rises) if rises else None, sign=True)
        rows.append((attempt, rubric, len(here), counts["resisted"], counts["swayed"] or None,
                     counts["abstained"] or None, counts["not judged"] or None, share,
                     "-" if most is None else f"{most.most_factor} {most.most:+.2f}"))  # fmt: skip
    columns = ("attempt", "rubric", "n", "resisted", "swayed", "abst.", "not judged", "rise", "largest rise")
    note = f"rise: with the attempt less without it, as a share of the scale; over all {Figure(result.rise, result.rise_ci, sign=True)}"
    table = Table.of(columns, rows, "Injection: attempts to talk the judge into a better score", notes=(note,), stub=1)
    yield table.trimmed("swayed", "abst.", "not judged")


# --- one page -------------------------------------------------------------------------------------------------

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#1b1f24;background:#fff}"
    "table{border-collapse:collapse;margin:.5rem 0 1.5rem;font-size:13px;font-variant-numeric:tabular-nums}"
    "caption{text-align:left;font-weight:600;padding:.3rem 0}th,td{border-bottom:1px solid #d5d9de;padding:.2rem .5rem;"
    "text-align:left;vertical-align:top}svg{max-width:100%;height:auto}.scroll{overflow-x:auto}p{margin:.3rem 0}"
)


def html(result: Result) -> str:
    """One file that needs no other: no script, no font, no address."""
    title = f"Probes of {result.judge}"
    maps = [_svg(result, online) for online in (True, False) if any(_online(m) == online for m in result.movements)]
    parts = [f"<p>{escape(line)}</p>" for line in lead(result)] + maps
    parts += [_html_table(table) for table in tables(result) if not table.caption.startswith("Heat map")]
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'{head}<meta name="viewport" content="width=device-width"><h1>{escape(title)}</h1>{"".join(parts)}</html>\n'


def _html_table(table: Table) -> str:
    def line(cells: Iterable[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape('' if c is None else str(c))}</{tag}>" for c in cells) + "</tr>"

    rows = "".join(line(row, "td") for row in table.rows)
    notes = "".join(f"<p>{escape(note)}</p>" for note in table.notes)
    caption = f"<caption>{escape(table.caption)}</caption>"
    return f'<div class="scroll"><table>{caption}{line(table.columns, "th")}{rows}</table></div>{notes}'


def _svg(result: Result, online: bool) -> str:
    """Red where a score falls with the dose, blue where it rises; the own factor has a thick rim."""
    cells = {(m.family, m.factor): m for m in result.movements if _online(m) == online}
    factors, families = list(dict.fromkeys(f for _, f in cells)), list(dict.fromkeys(f for f, _ in cells))
    wide, tall, left, top = 46, 24, 110, 130
    parts = [
        f'<text x="{left - 6}" y="{top + tall * (i + 0.68):.0f}" text-anchor="end">{escape(family)}</text>'
        for i, family in enumerate(families)
    ] + [
        f'<text transform="translate({left + wide * (j + 0.6):.0f},{top - 6}) rotate(-50)">{escape(factor)}</text>'
        for j, factor in enumerate(factors)
    ]
    for (family, factor), m in cells.items():
        x, y = left + wide * factors.index(factor), top + tall * families.index(family)
        parts.append(_cell(m, x, y, wide, tall))
    size = f"{left + wide * len(factors) + 90} {top + tall * len(families) + 4}"
    label = "Heat map: points a dose by defect and factor" + (
        "" if online else ", against the ground truth and compliance"
    )
    return (
        f"<h2>{label}</h2><p>Red falls with the dose; a thick rim is the factor that must fall, a dashed one may; grey "
        f'abstained.</p><svg viewBox="0 0 {size}" width="{size.split(maxsplit=1)[0]}" role="img" aria-label="{label}" '
        f'font-size="12" font-family="system-ui,sans-serif">{"".join(parts)}</svg>'
    )


def _cell(m: Movement, x: float, y: float, wide: float, tall: float) -> str:
    if m.slope is None:
        fill, text = "#e3e6e9", ""
    else:
        strength = min(1.0, abs(m.slope) / 1.5)  # six points over four doses
        weak = round(255 - 175 * strength)
        fill = f"rgb(255,{weak},{weak})" if m.slope < 0 else f"rgb({weak},{weak},255)"
        text = f"{m.slope:+.1f}" if abs(m.slope) >= 0.05 else "0"
    rim = {"own": 'stroke="#111" stroke-width="2.5"', "also": 'stroke="#666" stroke-dasharray="3 2"'}
    return (
        f'<rect x="{x + 2}" y="{y + 2}" width="{wide - 4}" height="{tall - 4}" fill="{fill}" {rim.get(m.role, "")}>'
        f"<title>{escape(f'{m.family}: {m.rubric}.{m.factor}, {m.ok} of {m.n} scored')}</title></rect>"
        f'<text x="{x + wide / 2}" y="{y + tall * 0.68:.0f}" text-anchor="middle">{text}</text>'
    )
