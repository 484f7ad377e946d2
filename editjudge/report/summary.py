"""Report of a run: coverage first, then means with intervals, aggregates, pass rates, ranks and noise."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from editjudge.judgement import DONE
from editjudge.report.comparison import ComparisonReport, differences
from editjudge.report.run_data import FALLS_NOTE, SPEC, RunData
from editjudge.report.selection import Choice
from editjudge.report.tables import Cell as Shown
from editjudge.report.tables import Figure, Table, between, counted, covered, in_line
from editjudge.report.words import plain, words
from editjudge.stats.columns import OK, Column, FailureBounds, Interval
from editjudge.stats.inference import clopper_pearson, evenly
from editjudge.stats.noise import Noise, noise
from editjudge.stats.summary import (
    Aggregate,
    Cell,
    PassRate,
    Rank,
    pass_rates,
    rank,
    summarise,
)

FEW_VALUES = 3
"""A scale of so few values is a decision, and gets a pass rate: the share of its best value."""

MOST_VALUES = 21
"""A table of how often each score was given has no more columns: 0 to 10 in halves."""

COMPARED = 4
"""Models that a report compares pair by pair: of five, ten pairs of tables are nothing to read."""


@dataclass(frozen=True, eq=False)
class SummaryReport:
    """Everything that a report is made of."""

    judged: RunData
    factors: Sequence[Cell]
    slices: Mapping[str, Sequence[Cell]]
    """Slices by the column that was sliced by: factors and aggregates for each of its values."""
    aggregates: Sequence[Cell]
    formulas: Sequence[str]
    passes: Sequence[PassRate]
    ranks: Sequence[Rank]
    headline: frozenset[tuple[str, str]]
    """Judge and factor that stand for the rest where space is short."""
    noise: Sequence[Noise]
    width: float | None
    """The width of interval that somebody wishes for."""
    guaranteed: bool = False
    """Whether intervals allow for any score that was not seen."""

    @cached_property
    def own(self) -> frozenset[str]:
        """The factors of rubrics, without what is computed from them."""
        return frozenset(cell.factor for cell in self.factors)

    @cached_property
    def scales(self) -> Mapping[str, tuple[float, ...]]:
        """From the worst score to the best."""
        return self.judged.all_scales()

    @cached_property
    def compared(self) -> Sequence[ComparisonReport]:
        """Models pair by pair, as `compare` does it; only where a report shows it, since it takes a while."""
        models = self.judged.scores.model.present()
        return (
            differences(self.judged, choice=Choice(guaranteed=self.guaranteed))
            if 1 < len(models) <= COMPARED
            else ()
        )


def measure(
    judged: RunData,
    by: Sequence[str] = (),
    *,
    width: float | None = None,
    guaranteed: bool = False,
) -> SummaryReport:
    """Compute all figures of a run; `by` names columns to slice by beside the edit type."""
    scores = judged.scores
    every, added = judged.with_aggregates()
    scales = judged.all_scales()
    cells = summarise(every, scales=scales, guaranteed=guaranteed)
    names = {
        one.name for wanted in added.values() for one in wanted
    } | judged.set_scores
    sliced = [
        name
        for name in dict.fromkeys(["edit_type", *by])
        if len(scores.slices[name].present()) > 1
    ]
    few = {
        f: scale
        for f, scale in judged.scales.items()
        if len(scale) <= FEW_VALUES and f not in judged.continuous
    }
    rules = {
        f: min(scale) if f in judged.falling else max(scale) for f, scale in few.items()
    }
    present = scores.factor.present()
    return SummaryReport(
        judged,
        [cell for cell in cells if cell.factor not in names],
        {
            name: summarise(every, by=name, scales=scales, guaranteed=guaranteed)
            for name in sliced
        },
        [cell for cell in cells if cell.factor in names],
        list(
            dict.fromkeys(
                [
                    *_formulas(judged),
                    *(one.formula for wanted in added.values() for one in wanted),
                ]
            )
        ),
        pass_rates(scores, {f: best for f, best in rules.items() if f in present}),
        rank(every, falling=judged.falling, scales=scales, guaranteed=guaranteed)
        if len(scores.model.present()) > 1
        else [],
        _headlines(cells, added, judged.set_scores),
        noise(scores)
        if int(scores.repeat.max(initial=0)) or len(scores.judge.present()) > 1
        else [],
        width,
        guaranteed,
    )


def pooled_intervals(
    judged: RunData, by: str
) -> dict[tuple[str, str], Interval | None]:
    """The 95 % CI of each factor's mean by `model`, `judge` or `rubric`, over everything else."""
    scores = judged.scores
    names = {
        "judge": scores.slices[SPEC],
        "model": scores.model,
        "rubric": scores.slices["rubric"],
    }[by]
    pooled = dataclasses.replace(
        scores, judge=Column.constant("", len(scores)), model=names
    )
    return {
        (cell.model, cell.factor): cell.ci
        for cell in summarise(pooled, scales=judged.scales)
    }


def _formulas(judged: RunData) -> list[str]:
    """Each score of a set in words, and how its edits without one came to be so."""
    scores = judged.scores
    out = []
    for formula in judged.formulas:
        known = formula.name in scores.factor.present()
        counts = Counter(scores.where(factor=formula.name).status if known else ())
        why = ", ".join(
            f"{n:,} {reason}" for reason, n in counts.most_common() if reason != OK
        )
        out.append(formula.words + (f"; undefined: {why}" if why else ""))
    return out


def not_scored(means: SummaryReport) -> str:
    """One line for the top: how much was judged, what has no score, and why."""
    judged = means.judged
    counts = Counter[str]()
    for (*_, status), n in judged.statuses.items():
        counts[status] += n
    edits = len(judged.scores.item.present())
    models = [model for model in judged.scores.model.present() if model]
    by = f" by {len(models)} models" if len(models) > 1 else ""
    unscored = [f"{n:,} {status}" for status, n in counts.most_common() if status != OK]
    parts = (
        [f"{', '.join(unscored)} of {counted(counts.total(), 'judgement')}"]
        if unscored
        else []
    )
    judged_edits = Counter[tuple[str, str]]()
    scored = Counter[tuple[str, str]]()
    for cell in means.factors:
        judged_edits[cell.judge, cell.factor] += cell.n
        scored[cell.judge, cell.factor] += cell.ok
    for judge in judged.scores.judge.present():
        shares = {
            factor: (n, judged_edits[name, factor])
            for (name, factor), n in scored.items()
            if name == judge
        }
        missing = [factor for factor, (n, _) in shares.items() if not n]
        few = [
            f"{factor} ({n:,} of {of:,})"
            for factor, (n, of) in shares.items()
            if 0 < 2 * n < of
        ]
        most = [of - n for n, of in shares.values() if n < of <= 2 * n]
        parts += [f"{judge} has no score on {', '.join(missing)}"] if missing else []
        parts += [f"{judge} has few scores on {', '.join(few)}"] if few else []
        parts += (
            [f"{judge} lacks up to {max(most):,} scores on {len(most)} other factors"]
            if most
            else []
        )
    what = (
        f"Not scored: {'; '.join(parts)}."
        if parts
        else "Everything that was asked has a score."
    )
    return (
        f"{counted(edits, 'edit')}{by}, {counted(counts.total(), 'judgement')}. {what}"
    )


def tables(means: SummaryReport, *, full: bool = False) -> list[Table]:
    """For people; `full` adds what is too long for a terminal: distributions, and every factor of every slice."""
    parts = [coverage(means.judged)]
    if means.aggregates:
        parts.append(
            _means(
                means.judged,
                means.aggregates,
                "Aggregates",
                notes=means.formulas,
                ranks=means.ranks,
            )
        )
    parts.append(_means(means.judged, means.factors, "Scores by factor"))
    parts += [_passes(means.passes)] if means.passes else []
    for name, cells in means.slices.items():
        chosen = (
            cells
            if full
            else [c for c in cells if (c.judge, c.factor) in means.headline]
        )
        parts.append(_means(means.judged, chosen, f"Scores by {name}", slice_name=name))
    parts += [_noise(means)] if means.noise else []
    parts += [contradicted(means.judged)] if means.judged.contradictions else []
    if full:
        parts += [_ranks(means.judged, means.ranks)] if means.ranks else []
        parts += _distributions(means.judged, means.factors)
    return parts


def document(means: SummaryReport) -> dict[str, Any]:
    """For programs, at full precision."""
    judged = means.judged
    statuses = [
        {"judge": judge, "rubric": rubric, "model": model, "status": status, "n": n}
        for (judge, rubric, model, status), n in judged.statuses.items()
    ]
    return {
        "run": judged.run.name,
        "id": judged.run.id,
        "state": judged.run.state,
        "pending": judged.pending,
        "of": judged.of,
        "judgements": statuses,
        "factors": plain(means.factors),
        "slices": plain(means.slices),
        "aggregates": plain(means.aggregates),
        "formulas": list(means.formulas),
        "pass_rates": plain(means.passes),
        "ranks": plain(means.ranks),
        "comparisons": [one.as_json() for one in means.compared],
        "contradictions": [
            dataclasses.asdict(count) for count in judged.contradictions
        ],
        "noise": [
            plain(one)
            | {"reliability": {str(k): one.reliability(k) for k in (1, 2, 3, 5, 10)}}
            | _needed(one, means.width)
            for one in means.noise
        ],
    }


def long(means: SummaryReport, slices: Container[str] | None = None) -> Table:
    """Return one row for each judge, model, factor or aggregate, and value of a slice, or of these slices."""
    cells = [*means.factors, *means.aggregates]
    rows: list[tuple[str, Cell]] = [("", cell) for cell in cells]
    rows += [(name, cell) for name, sliced in means.slices.items() for cell in sliced]
    kinds = sorted({kind for _, cell in rows for kind in cell.failed})
    if slices is not None:
        rows = [(name, cell) for name, cell in rows if name in slices]
    head = ("judge", "model", "factor", "slice_by", "slice", "n", "ok", "abstained")
    checks = _held(means.judged)
    records: list[tuple[Shown, ...]] = [
        (
            c.judge, c.model, c.factor, name, c.slice or "", c.n, c.ok, c.abstained,
            *(c.failed.get(kind, 0) for kind in kinds),
            c.worst_case, c.best_case, Figure(c.mean, c.ci), c.median, c.groups,
            *(checks.get((c.judge, c.model, c.factor), (None, None)) if not name else (None, None)),
        )
        for name, c in rows
    ]  # fmt: skip
    return Table.of(
        (*head, *(f"failed_{kind}" for kind in kinds), "worst_case", "best_case", "mean", "median", "groups",
         "checked", "contradicted"),
        records,
    )  # fmt: skip


def _held(judged: RunData) -> dict[tuple[str, str, str], tuple[int, int]]:
    """Checked and contradicted verdicts by judge, also where it is told apart by rubric, model and factor."""
    return {
        (judge, c.model, c.factor): (c.checked, c.contradicted)
        for c in judged.contradictions
        for judge in (c.judge, f"{c.judge}@{c.rubric}")
    }


def contradicted(judged: RunData) -> Table:
    """Which judge says what the measured evidence of the same pictures refutes, how often."""
    sums = judged.contradicted("judge", "rubric", "factor")
    rows: list[tuple[Shown, ...]] = []
    for place, (checked, n) in sums.items():
        images = _effective_images(judged, place, checked)
        ci = clopper_pearson(n / checked, images) if images >= 2 else None
        rows.append((*place, checked, n, Figure(n / checked, ci)))
    columns = ("judge", "rubric", "factor", "checked", "contradicted", "share")
    notes = (
        "checked: verdicts with a score that a rule speaks of, on pictures that were measured",
        "share: Clopper-Pearson's 95 % CI at the effective number of source images; none with fewer than two",
    )
    caption = (
        "Contradicted by what was measured: share of verdicts that could be checked"
    )
    return Table.of(columns, rows, caption, notes=notes, stub=3).folded(
        "judge", "rubric"
    )


def _effective_images(judged: RunData, place: tuple[str, ...], checked: int) -> float:
    """Kish's effective number of source images. Where only some verdicts were checked, the fewest images that they can
    be of: which ones is not recorded."""
    (judge, rubric, factor) = place
    scores = judged.scores
    spec = scores.slices[SPEC]
    rubrics = scores.slices["rubric"]
    if (
        judge not in spec.labels
        or rubric not in rubrics.labels
        or factor not in scores.factor.labels
    ):
        return 0.0
    here = (
        scores.ok
        & spec.where(judge)
        & rubrics.where(rubric)
        & scores.factor.where(factor)
    )
    sizes = np.bincount(scores.group.codes[here])
    return evenly(sizes) * min(1.0, checked / max(1, int(here.sum())))


def coverage(judged: RunData) -> Table:
    """Show what became of every judgement that was asked for."""
    places = dict.fromkeys(place[:3] for place in judged.statuses)
    kinds = sorted({status for *_, status in judged.statuses if status not in DONE})
    rows: list[tuple[Shown, ...]] = []
    for place in places:
        counts = {
            status: n
            for (*where, status), n in judged.statuses.items()
            if tuple(where) == place
        }
        n = sum(counts.values())
        ok = counts.get("ok", 0)
        share = Figure(ok / n, text=f"{ok / n:.0%}")
        rows.append(
            (
                *place,
                n,
                ok,
                share,
                counts.get("abstained", 0),
                *(counts.get(kind, 0) for kind in kinds),
            )
        )
    columns = ("judge", "rubric", "model", "asked", "ok", "ok %", "abstained", *kinds)
    notes = [] if kinds else ["no judgement failed"]
    table = Table.of(columns, rows, "Judgements by status", notes=tuple(notes), stub=3)
    return table.folded("judge", "rubric", "model").trimmed("abstained")


def _means(
    judged: RunData,
    cells: Sequence[Cell],
    caption: str,
    *,
    notes: Sequence[str] = (),
    ranks: Sequence[Rank] = (),
    slice_name: str = "slice",
) -> Table:
    silent = {c.factor for c in cells} - {c.factor for c in cells if c.ok or c.failed}
    if silent and (scored := [c for c in cells if c.factor not in silent]):
        names = ", ".join(
            f for f in dict.fromkeys(c.factor for c in cells) if f in silent
        )
        cells = scored
        notes = (
            *(n for n in notes if n.partition(" = ")[0] not in silent),
            f"no score of any: {names}",
        )
    places = {(r.judge, r.factor, r.model): r for r in ranks}
    digits = in_line(c.ci for c in cells)
    own = {f: in_line(c.ci for c in cells if c.factor == f) for f in judged.continuous}
    notes = (
        *notes,
        *([FALLS_NOTE] if any(c.factor in judged.falling for c in cells) else []),
    )
    rows = [
        (
            judged.label(c.factor), c.slice or "", c.judge, c.model, covered(c.ok, c.n), c.abstained or None,
            sum(c.failed.values()) or None, _bounds(c, own.get(c.factor, digits)),
            Figure(c.mean, c.ci, digits=own.get(c.factor)), _half(c.repeat_sd, 2), _half(c.median, own.get(c.factor)),
            _rank(places.get((c.judge, c.factor, c.model))),
        )
        for c in _ordered(cells)
    ]  # fmt: skip
    columns = ("factor", slice_name, "judge", "model", "ok/n", "abst.", "failed", "bounds", "mean", "repeat SD",
               "median", "rank")  # fmt: skip
    table = Table.of(
        columns,
        rows,
        f"{caption}: mean with 95 % CI",
        notes=_notes(cells, notes),
        stub=4,
        spare=("median",),
    )
    return table.folded("judge", "model", slice_name).trimmed(
        "abst.", "failed", "bounds", "repeat SD", "rank"
    )


def _ordered(cells: Sequence[Cell]) -> list[Cell]:
    """Factor by factor, so that what is compared stands together."""
    factors = list(dict.fromkeys(cell.factor for cell in cells))
    return sorted(cells, key=lambda c: (factors.index(c.factor), c.slice or ""))


def _bounds(c: Cell, digits: int) -> Figure:
    """The mean if all failures were worst, and if all were best."""
    if not c.failed or c.worst_case is None or c.best_case is None:
        return Figure(None)
    return between(FailureBounds(c.worst_case, c.best_case), digits)


def _half(median: float | None, digits: int | None = None) -> Figure:
    if digits is not None:
        return Figure(median, digits=digits)
    if median is None:
        return Figure(None)
    # A root of whole numbers may be off by rounding.
    short = math.isclose(median, round(median, 2))
    return Figure(median, text=f"{median:g}" if short else None)


def _rank(place: Rank | None) -> Figure:
    if place is None:
        return Figure(None)
    span = f" [{place.ci[0]}, {place.ci[1]}]" if place.ci else ""
    return Figure(place.rank, text=f"{place.rank}{span}")


def _notes(cells: Sequence[Cell], more: Sequence[str]) -> tuple[str, ...]:
    """Return each note once, with the number of rows that it is about."""
    counts = Counter(note for cell in cells for note in cell.notes)
    lines = []
    if any(cell.failed for cell in cells):
        lines.append(
            "bounds: the mean if every failed judgement had the worst score of the scale, and the best"
        )
    for note, n in counts.items():
        rows = f" ({n} of {len(cells)} rows)" if n < len(cells) else ""
        lines.append(words(note) + rows)
    return (*more, *lines)


def _headlines(
    cells: Sequence[Cell],
    added: Mapping[str, Sequence[Aggregate]],
    published: frozenset[str] = frozenset(),
) -> frozenset[tuple[str, str]]:
    """For each judge the published scores of its sets, or the mean of most factors that half of its edits have, or else
    every factor that has scores."""
    counts = Counter[tuple[str, str]]()
    ok = Counter[tuple[str, str]]()
    for cell in cells:
        counts[cell.judge, cell.factor] += cell.n
        ok[cell.judge, cell.factor] += cell.ok
    headline = set()
    for judge, wanted in added.items():
        means = [
            one
            for one in wanted
            if one.how == "mean" and 2 * ok[judge, one.name] >= counts[judge, one.name]
        ]
        names = {one.name for one in wanted}
        factors = [
            place for place in counts if place[0] == judge and place[1] not in names
        ]
        widest = (
            [(judge, max(means, key=lambda one: len(one.factors)).name)]
            if means
            else []
        )
        widest += [
            place for place in counts if place[0] == judge and place[1] in published
        ]
        headline.update(widest or [place for place in factors if ok[place]] or factors)
    return frozenset(headline)


def _passes(rates: Sequence[PassRate]) -> Table:
    rows = [
        (p.rule, p.judge, p.model, covered(p.ok, p.n), p.passed, Figure(p.rate, p.ci))
        for p in rates
    ]
    columns = ("rule", "judge", "model", "ok/n", "passed", "rate")
    table = Table.of(
        columns,
        rows,
        "Pass rates: share of ok judgements, 95 % CI clustered by source image",
        stub=3,
    )
    return table.folded("judge", "model")


def _ranks(judged: RunData, ranks: Sequence[Rank]) -> Table:
    rows = [(judged.label(r.factor), r.judge, r.model, r.mean, _rank(r)) for r in ranks]
    caption = "Ranks: 1 is best; 95 % CI from comparisons of all pairs of models, Holm-corrected"
    notes = (FALLS_NOTE,) if any(r.factor in judged.falling for r in ranks) else ()
    return Table.of(
        ("factor", "judge", "model", "mean", "rank"), rows, caption, notes=notes, stub=3
    ).folded("judge")


def _distributions(judged: RunData, cells: Sequence[Cell]) -> list[Table]:
    """One table for each scale: how many judgements gave each score. Of decimals each occurs about once."""
    scales: dict[tuple[str, ...], list[Cell]] = {}
    for cell in _ordered(cells):
        if cell.factor in judged.continuous or len(cell.distribution) > MOST_VALUES:
            continue
        scales.setdefault(tuple(cell.distribution), []).append(cell)
    parts = []
    for values, alike in scales.items():
        rows: list[tuple[Shown, ...]] = [
            (c.factor, c.judge, c.model, *c.distribution.values()) for c in alike
        ]
        caption = "Distribution: ok judgements with each score"
        table = Table.of(("factor", "judge", "model", *values), rows, caption, stub=3)
        parts.append(table.folded("judge", "model"))
    return parts


def _noise(means: SummaryReport) -> Table:
    rows = [
        (
            one.factor, one.edits, one.judges, Figure(one.repeats, text=f"{one.repeats:.3g}"),
            one.same_answer, one.edit_variance, one.judge_variance, one.repeat_variance, one.reliability(1),
            one.reliability(3), *_needed(one, means.width).values(),
        )
        for one in means.noise
    ]  # fmt: skip
    needs = ("want edits", "want repeats") if means.width else ()
    columns = ("factor", "edits", "judges", "repeats", "same answer", "var edits", "var judges", "var repeats",
               "reliab. 1", "reliab. 3", *needs)  # fmt: skip
    notes = list(
        dict.fromkeys(words(note) for one in means.noise for note in one.notes)
    )
    if any(one.repeat_variance is not None for one in means.noise):
        notes.append(
            "reliab. k: share of the variance of a mean of k repeats that is not the judge's own noise"
        )
    if means.width:
        notes.append(
            f"want: how many make the 95 % interval of a mean {means.width:g} wide; - where no number can"
        )
    table = Table.of(columns, rows, "Noise: where the variance of scores comes from", notes=tuple(notes),
                     spare=("reliab. 3", "var judges", "same answer"))  # fmt: skip
    empty = ("same answer", "var judges", "var repeats", "reliab. 1", "reliab. 3")
    return table.folded("edits", "judges", "repeats").trimmed(*empty)


def _needed(one: Noise, width: float | None) -> dict[str, int | None]:
    if width is None:
        return {}
    return {
        "needed_edits": one.needed_edits(width),
        "needed_repeats": one.needed_repeats(width),
    }
