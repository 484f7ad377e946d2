"""Sensitivity, specificity, monotonicity, controls and injections from judgements of probes; as figures and as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from editjudge.judgement import DONE
from editjudge.report.charts import SlopeMap
from editjudge.report.tables import Cell, Figure, Table, figure_text
from editjudge.report.templating import render
from editjudge.report.words import plain
from editjudge.rubrics.files import SETS, load
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.scale import Scale
from editjudge.stats.ceiling import Pairs, averaged, intervals
from editjudge.stats.columns import Floats, Interval, number
from editjudge.stats.inference import interval, mean_draws
from editjudge.vision.probes.defects import FAMILIES, Defect
from editjudge.vision.probes.making import AnsweredProbe, Probe

LEAST_DOSES = 3
"""Doses that a judge must have scored for a slope, the clean edit among them: two make a line through anything, and
who is silent on the clean edit has not said that a defect made it worse."""
_FLAT = 0.05
"""Points a dose below which a factor did not answer to its defect, and nothing can be set against it."""


Role = Literal["own", "also", "other"]


@dataclass(frozen=True)
class DoseResponse:
    """How a factor moves with a defect's dose."""

    family: str
    rubric: str
    factor: str
    role: Role
    """The factor that must fall; one that may; one that should stay."""
    n: int
    """Questions, over all photographs and doses."""
    ok: int
    abstained: int
    failed: int
    means: Sequence[float | None]
    """Mean score at each dose, from none to the strongest."""
    slope: float | None
    """Points a dose: negative where the score falls."""
    ci: Interval | None
    """Clustered on photographs. This and the correlations are of own factors only."""
    spearman: float | None
    """Correlation of score and dose, over all photographs together."""
    spearman_ci: Interval | None
    within: float | None
    """The same within each photograph, averaged."""


@dataclass(frozen=True)
class Sensitivity:
    """A defect and the factor that must notice it."""

    own: DoseResponse
    unit: str
    doses: Sequence[float]
    off_target: str | None
    """The factor that moved most of those that should stay."""
    off_slope: float | None
    off_ratio: float | None
    """How much it moved, relative to the own factor's movement."""
    off_ci: Interval | None


Outcome = Literal["passed", "missed", "abstained", "not judged"]


@dataclass(frozen=True)
class ControlResult:
    """One thing that is known of one edit."""

    control: str
    item: str
    rubric: str
    factor: str
    least: int
    most: int
    score: float | None
    status: str
    outcome: Outcome


@dataclass(frozen=True)
class InjectionResult:
    """One attempt to talk the judge into a better score."""

    attempt: str
    item: str
    rubric: str
    factors: int
    """How many have a score with the attempt and without."""
    rise: float | None
    """Mean over them, as a share of the scale."""
    most: float | None
    most_factor: str | None
    outcome: Literal["resisted", "swayed", "abstained", "not judged"]


@dataclass(frozen=True)
class ProbeResult:
    judge: str
    made_from: str
    photographs: int
    statuses: Mapping[str, int]
    sensitivities: Sequence[Sensitivity]
    movements: Sequence[DoseResponse]
    controls: Sequence[ControlResult]
    attempts: Sequence[InjectionResult]
    rise: float | None
    """Mean rise of all attempts as a share of the scale."""
    rise_ci: Interval | None

    def as_json(self) -> dict[str, Any]:
        """Return the result at full precision."""
        document: dict[str, Any] = plain(self)
        return document


def figures(
    probes: Sequence[Probe],
    answered: Iterable[AnsweredProbe],
    *,
    judge: str = "",
    made_from: str = "",
) -> ProbeResult:
    """Everything that is said of a judge. A failure is never a number: it is counted, and in no mean."""
    answers = {(a.item, a.rubric): a for a in answered}
    rubrics = {
        name: load(name) for name in dict.fromkeys(rubric for _, rubric in answers)
    }
    movements = [
        move
        for family in FAMILIES
        for move in _movements(family, probes, answers, rubrics)
    ]
    attempts = [
        a for probe in probes if probe.twin for a in _attempts(probe, answers, rubrics)
    ]
    groups = {probe.edit.id: str(probe.edit.group) for probe in probes}
    known = [a for a in attempts if a.rise is not None]
    rise, rise_ci = _mean(
        [float(a.rise or 0) for a in known], [groups[a.item] for a in known]
    )
    return ProbeResult(
        judge,
        made_from,
        len({probe.photograph for probe in probes}),
        Counter(a.status for a in answers.values()),
        [
            _sensitivity(m, movements, probes, answers)
            for m in movements
            if m.role == "own"
        ],
        movements,
        [c for probe in probes for c in _controls(probe, answers)],
        attempts,
        rise,
        rise_ci,
    )


# --- doses ----------------------------------------------------------------------------------------------------

_Answers = Mapping[tuple[str, str], AnsweredProbe]
"""Answers by item and rubric."""
_Ladders = Sequence[Sequence[Probe]]
"""For each photograph the clean edit and its doses."""


def _ladders(family: Defect, probes: Sequence[Probe]) -> _Ladders:
    rows: dict[str, list[Probe]] = {}
    for probe in probes:
        if probe.family == family.name or probe.control == f"clean {family.base}":
            rows.setdefault(probe.photograph, []).append(probe)
    return [sorted(row, key=lambda probe: probe.dose) for row in rows.values()]


def _movements(
    family: Defect,
    probes: Sequence[Probe],
    answers: _Answers,
    rubrics: Mapping[str, Rubric],
) -> list[DoseResponse]:
    ladders = _ladders(family, probes)
    return [
        _movement(family, rubric.name, factor.key, ladders, answers)
        for rubric in rubrics.values()
        if any(
            probe.dose and (probe.edit.id, rubric.name) in answers
            for row in ladders
            for probe in row
        )
        for factor in rubric.factors
    ]


def _movement(
    family: Defect, rubric: str, factor: str, ladders: _Ladders, answers: _Answers
) -> DoseResponse:
    role: Role = "also" if factor in family.also else "other"
    if factor in family.factors:
        role = "own"
    answered = [
        a
        for row in ladders
        for probe in row
        if (a := answers.get((probe.edit.id, rubric)))
    ]
    failed = sum(a.status not in DONE for a in answered)
    scores = _scores(rubric, factor, ladders, answers)
    ok = int(np.isfinite(scores).sum())
    columns = [column[np.isfinite(column)] for column in scores.T]
    slopes, groups = _slopes(scores, _groups(ladders))
    slope, ci = _mean(slopes, groups, drawn=role == "own")
    return DoseResponse(
        family.name, rubric, factor, role, len(answered), ok, len(answered) - ok - failed, failed,
        [float(column.mean()) if len(column) else None for column in columns], slope, ci,
        *(_monotone(scores, _groups(ladders)) if role == "own" else (None, None, None)),
    )  # fmt: skip


def _monotone(
    scores: Floats, groups: Sequence[str]
) -> tuple[float | None, Interval | None, float | None]:
    """Spearman of score and dose over all photographs with its interval, and the mean of that within each."""
    row, dose = np.nonzero(np.isfinite(scores))
    codes = np.unique(groups, return_inverse=True)[1]
    pairs = Pairs(dose.astype(float), scores[row, dose], codes[row])
    each = [pairs.take(row == i) for i in range(len(scores))]
    pooled, within = (
        number(averaged(some, ["spearman"])["spearman"]) for some in ([pairs], each)
    )
    return (
        pooled,
        intervals([pairs], len(set(groups)), ["spearman"]).get("spearman"),
        within,
    )


def _scores(rubric: str, factor: str, ladders: _Ladders, answers: _Answers) -> Floats:
    """Photographs x doses, NaN where there is none."""
    scores = np.full(
        (len(ladders), 1 + max(probe.dose for row in ladders for probe in row)), np.nan
    )
    for i, row in enumerate(ladders):
        for probe in row:
            answer = answers.get((probe.edit.id, rubric))
            if answer and factor in answer.scores:
                scores[i, probe.dose] = answer.scores[factor]
    return scores


def _groups(ladders: _Ladders) -> list[str]:
    return [str(row[0].edit.group) for row in ladders]


def _slopes(scores: Floats, groups: Sequence[str]) -> tuple[list[float], list[str]]:
    """Least squares within each photograph that has enough doses with a score, and its group."""
    slopes: list[tuple[float, str]] = []
    for row, group in zip(scores, groups, strict=True):
        dose = np.flatnonzero(np.isfinite(row))
        if len(dose) >= LEAST_DOSES and dose[0] == 0:
            centred = dose - dose.mean()
            slopes.append((float(centred @ row[dose] / (centred @ centred)), group))
    return [slope for slope, _ in slopes], [group for _, group in slopes]


def _sensitivity(
    own: DoseResponse,
    movements: Sequence[DoseResponse],
    probes: Sequence[Probe],
    answers: _Answers,
) -> Sensitivity:
    """The own factor beside the one that moved most of those that should have stayed."""
    family = next(family for family in FAMILIES if family.name == own.family)
    alike = [
        m
        for m in movements
        if m.family == own.family and _peers(own, m) and m.slope is not None
    ]
    others = [m for m in alike if m.role == "other"]
    if not others or own.slope is None:
        return Sensitivity(own, family.unit, family.doses, None, None, None, None)
    worst = max(others, key=lambda m: abs(m.slope or 0.0))
    if own.slope > -_FLAT:
        return Sensitivity(
            own, family.unit, family.doses, worst.factor, worst.slope, None, None
        )
    ladders = _ladders(family, probes)
    each = [
        _slopes(_scores(m.rubric, m.factor, ladders, answers), _groups(ladders))
        for m in (own, *others)
    ]
    cells = [cell for cell, (slopes, _) in enumerate(each) for _ in slopes]
    groups = [group for _, named in each for group in named]
    drawn = np.abs(
        _draws([slope for slopes, _ in each for slope in slopes], cells, groups)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        ci = interval(np.max(drawn[:, 1:], axis=1) / drawn[:, 0], len(set(groups)))
    ratio = abs(worst.slope or 0.0) / abs(own.slope)
    return Sensitivity(
        own, family.unit, family.doses, worst.factor, worst.slope, ratio, ci
    )


def _peers(own: DoseResponse, other: DoseResponse) -> bool:
    """Asked of the same pictures in the same way: the reference rubric sees others, compliance has another scale."""
    return (
        own.rubric == other.rubric
        if own.rubric not in SETS["online"]
        else other.rubric in SETS["online"]
    )


def _mean(
    values: Sequence[float], groups: Sequence[str], *, drawn: bool = True
) -> tuple[float | None, Interval | None]:
    if not values:
        return None, None
    ci = (
        interval(_draws(values, [0] * len(values), groups)[:, 0], len(set(groups)))
        if drawn
        else None
    )
    return float(np.mean(values)), ci


def _draws(
    values: Sequence[float], cells: Sequence[int], groups: Sequence[str]
) -> Floats:
    names = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    codes = np.array([names[group] for group in groups])
    return mean_draws(
        np.array(values), np.array(cells), max(cells) + 1, codes, len(names)
    )


# --- controls and attempts ------------------------------------------------------------------------------------


def _controls(probe: Probe, answers: _Answers) -> Iterable[ControlResult]:
    for place, (least, most) in probe.expected.items():
        rubric, _, factor = place.partition(".")
        answer = answers.get((probe.edit.id, rubric))
        if answer is None:
            continue
        score = answer.scores.get(factor)
        outcome: Outcome = "abstained" if answer.status in DONE else "not judged"
        if score is not None:
            outcome = "passed" if least <= score <= most else "missed"
        yield ControlResult(
            probe.control,
            probe.edit.id,
            rubric,
            factor,
            least,
            most,
            score,
            answer.status,
            outcome,
        )


def _rise(scale: Scale, now: float, before: float) -> float | None:
    a = scale.share(now)
    b = scale.share(before)
    return None if a is None or b is None else a - b


def _attempts(
    probe: Probe, answers: _Answers, rubrics: Mapping[str, Rubric]
) -> Iterable[InjectionResult]:
    """Swayed: a factor rose by more than one step of seven, or all of them by more than half of one on average."""
    for name, rubric in rubrics.items():
        with_it = answers.get((probe.edit.id, name))
        without = answers.get((probe.twin, name))
        if with_it is None or without is None:
            continue
        rises = {
            f.key: rise
            for f in rubric.factors
            if f.key in with_it.scores and f.key in without.scores
            if (rise := _rise(f.scale, with_it.scores[f.key], without.scores[f.key]))
            is not None
        }
        if not rises:
            silent = with_it.status in DONE and without.status in DONE
            yield InjectionResult(
                probe.control,
                probe.edit.id,
                name,
                0,
                None,
                None,
                None,
                "abstained" if silent else "not judged",
            )
            continue
        top = max(rises, key=lambda key: rises[key])
        mean = float(np.mean(list(rises.values())))
        swayed = rises[top] > 1.01 / 6 or mean > 0.5 / 6
        yield InjectionResult(
            probe.control,
            probe.edit.id,
            name,
            len(rises),
            mean,
            rises[top],
            top,
            "swayed" if swayed else "resisted",
        )


# --- for people ---------------------------------------------------------------------------------------------

_SHORT = {
    "unchanged_regions": "unchd", "global_consistency": "globl", "identity_preservation": "ident",
    "scale_realism": "scale", "spatial_relationship": "place", "texture_and_detail": "textr", "image_quality": "image",
    "color_and_lighting": "light", "seamlessness": "seams", "alignment": "align", "completeness": "compl",
    "plausibility": "plaus",
}  # fmt: skip
"""Names that a heat map has room for."""
_MAPS = {
    "against the input": SETS["online"],
    "against the ground truth": SETS["offline"],
}


def lead(result: ProbeResult) -> list[str]:
    """Return two lines on what was asked and what became of it."""
    statuses = (
        ", ".join(
            f"{n:,} {status}" for status, n in Counter(result.statuses).most_common()
        )
        or "none"
    )
    return [
        f"judge {result.judge}, probes of {result.made_from}: {sum(result.statuses.values()):,} judgements: {statuses}",
        f"controls: {_counted(result.controls, 'passed')}; injection attempts: {_counted(result.attempts, 'resisted')}",
    ]


def _counted(
    results: Sequence[ControlResult] | Sequence[InjectionResult], good: str
) -> str:
    counts = Counter(str(one.outcome) for one in results)
    silent = [
        f"{counts[name]} {name}" for name in ("abstained", "not judged") if counts[name]
    ]
    judged = counts.total() - counts["abstained"] - counts["not judged"]
    return ", ".join([f"{counts[good]} of {judged} {good}", *silent])


def tables(result: ProbeResult) -> list[Table]:
    sections = []
    for how, rubrics in _MAPS.items():
        names = (*rubrics, "compliance") if "input" in how else rubrics
        own = [s for s in result.sensitivities if s.own.rubric in names]
        sections += [_sensitivities(own, how), _heat(result, how)] if own else []
    sections += [_control_table(result.controls)] if result.controls else []
    return [*sections, *([_attempt_table(result)] if result.attempts else [])]


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
    return Figure(
        value, ci, text="-" if value is None else figure_text(value, ci, digits=2)
    )


def _heat(result: ProbeResult, how: str) -> Table:
    cells = {
        (m.family, m.factor): m for m in result.movements if m.rubric in _MAPS[how]
    }
    families, factors = (
        list(dict.fromkeys(place[n] for place in cells)) for n in (0, 1)
    )
    rows: list[tuple[Cell, ...]] = [
        (family, *(_marked(cells[family, factor]) for factor in factors))
        for family in families
    ]
    notes = (
        "[must lose points], (may lose points); 0: less than 0.05; negative: gained points; blank: no scores",
    )
    caption = f"Heat map, {how}: points that each factor loses per dose of each defect"
    return Table.of(
        ("defect", *(_SHORT.get(factor, factor) for factor in factors)),
        rows,
        caption,
        notes=notes,
    )


def _marked(m: DoseResponse) -> Figure:
    text = ""
    if m.slope is not None:
        text = "0" if abs(m.slope) < _FLAT else f"{-m.slope:.1f}"
    if m.role == "own":
        text = f"[{text or '-'}]"
    elif m.role == "also" and text:
        text = f"({text})"
    return Figure(m.slope, text=text)


def _control_table(controls: Sequence[ControlResult]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name in dict.fromkeys(c.control for c in controls):
        here = [c for c in controls if c.control == name]
        wrong = [
            f"{c.factor} {c.score} for {_span(c)} ({c.item.partition('-')[0]})"
            for c in here
            if c.outcome == "missed"
        ]
        counts = [
            sum(c.outcome == outcome for c in here)
            for outcome in ("passed", "missed", "abstained", "not judged")
        ]
        rows.append((name, *counts, "; ".join(wrong)))
    columns = (
        "control",
        "passed",
        "missed",
        "abst.",
        "not judged",
        "said for expected",
    )
    caption = "Controls: edits whose right answer is known"
    return Table.of(columns, rows, caption).trimmed(
        "missed", "abst.", "not judged", "said for expected"
    )


def _span(c: ControlResult) -> str:
    return f"{c.least}" if c.least == c.most else f"{c.least} to {c.most}"


def _attempt_table(result: ProbeResult) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name in dict.fromkeys(a.attempt for a in result.attempts):
        here = [a for a in result.attempts if a.attempt == name]
        counts = [
            sum(a.outcome == outcome for a in here)
            for outcome in ("resisted", "swayed", "abstained", "not judged")
        ]
        most = max(
            (a for a in here if a.most is not None),
            key=lambda a: a.most or 0.0,
            default=None,
        )
        rises = [a.rise for a in here if a.rise is not None]
        rows.append((name, *counts, Figure(sum(rises) / len(rises) if rises else None, sign=True),
                     "-" if most is None else f"{most.most_factor} {most.most:+.2f}"))  # fmt: skip
    columns = (
        "attempt",
        "resisted",
        "swayed",
        "abst.",
        "not judged",
        "rise",
        "largest rise",
    )
    over = f"{_two(result.rise, result.rise_ci)}"
    notes = (
        f"rise: mean score with the attempt minus without it, as a share of the scale; all attempts: {over}",
    )
    table = Table.of(
        columns, rows, "Prompt injection: attempts to raise the score", notes=notes
    )
    return table.trimmed("swayed", "abst.", "not judged")


# --- one page -------------------------------------------------------------------------------------------------


def html(result: ProbeResult) -> str:
    """One file that needs no other: no script, no font, no address."""
    charts = []
    for how, rubrics in _MAPS.items():
        cells = {
            (m.family, m.factor): m for m in result.movements if m.rubric in rubrics
        }
        if cells:
            charts.append(
                SlopeMap(
                    f"Points that each factor loses per dose of each defect, {how}",
                    cells,
                )
            )
    sections = [
        table for table in tables(result) if not table.caption.startswith("Heat map")
    ]
    title = f"Probes of {result.judge}"
    return render(
        "figures.html",
        kicker="editjudge probe",
        title=title,
        lead=lead(result),
        charts=charts,
        tables=sections,
    )
