"""`report`: coverage first, then means with intervals, aggregates, pass rates, ranks and noise."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from editjudge.judgement import DONE
from editjudge.report.answers import Answer
from editjudge.report.comparison import PairedDifference, conclusions, differences
from editjudge.report.early import (
    ClaimState,
    claim_states,
    claims_table,
    without_intervals,
)
from editjudge.report.run_data import FALLS_NOTE, SPEC, RunData
from editjudge.report.selection import Choice
from editjudge.report.tables import (
    Cell,
    Figure,
    Table,
    bounds_figure,
    column_decimals,
    counted,
    coverage_figure,
)
from editjudge.report.words import plain, reason_text
from editjudge.stats import summary as statistics
from editjudge.stats.columns import OK, Column, FailureBounds, Reason
from editjudge.stats.inference import clopper_pearson, evenly
from editjudge.stats.noise import Noise, noise
from editjudge.stats.summary import (
    PassRate,
    Rank,
    WeightedMean,
    aggregate,
    pass_rates,
    rank,
    summarise,
    weighted_means,
)

FEW_VALUES = 3
"""Maximum number of values on a scale for which a pass rate is reported. The pass rate is the share of the best value."""

MOST_VALUES = 21
"""Maximum number of columns in a table of score frequencies: enough for 0 to 10 in steps of a half."""

COMPARED = 4
"""Maximum number of models that a report compares pair by pair. Five models would need ten tables."""


@dataclass(frozen=True, eq=False)
class SummaryReport:
    """All statistics of a report."""

    run: RunData
    factors: Sequence[statistics.Cell]
    slices: Mapping[str, Sequence[statistics.Cell]]
    """Statistics of factors and aggregates for each value of a column, keyed by column."""
    aggregates: Sequence[statistics.Cell]
    formulas: Mapping[str, str]
    """Names of aggregates, keyed by formula as shown to people. Different judges may have different formulas for the
    same name."""
    passes: Sequence[PassRate]
    ranks: Sequence[Rank]
    headline: frozenset[tuple[str, str]]
    """Pairs of judge and factor to show when space is short."""
    noise: Sequence[Noise]
    width: float | None
    """Interval width for which the needed number of edits or repeats is estimated."""
    guaranteed: bool = False
    """Whether intervals allow for scores anywhere on the scale, even if none was observed."""
    of_run: Sequence[WeightedMean] = ()
    """Scores of the whole run that its sets define."""

    @cached_property
    def claims(self) -> Sequence[ClaimState]:
        """Claims that ended the run, and what the answers say about them."""
        return claim_states(self.run)

    @cached_property
    def compared(self) -> Sequence[PairedDifference]:
        """Pairwise comparison of models, as in `compare`. It is computed on demand, since it takes a while."""
        models = len(self.run.scores.model.present())
        if self.run.ends_by_claims or not 1 < models <= COMPARED:
            return ()
        return differences(self.run, choice=Choice(guaranteed=self.guaranteed))

    @property
    def conclusions(self) -> list[str]:
        """Sentences about the differences of models, or about the first rank if there are too many for all pairs."""
        if self.claims:
            return [state.line for state in self.claims]
        return conclusions(self.compared) or self._leaders()

    def _leaders(self) -> list[str]:
        rows: dict[tuple[str, str], list[Rank]] = {}
        for ranked in self.ranks:
            if (ranked.judge, ranked.factor) in self.headline:
                rows.setdefault((ranked.judge, ranked.factor), []).append(ranked)
        lines = []
        for (judge, factor), models in rows.items():
            first = [r.model for r in models if r.rank == 1]
            rivals = [
                r.model for r in models if r.rank > 1 and (r.ci or (1, 1))[0] == 1
            ]
            line = f"{judge}: {', '.join(first)} ranks first on {factor}"
            if rivals:
                line += f"; not shown to be behind: {', '.join(rivals)}"
            elif len(first) < len(models):
                line += "; all others are behind at 95 %, over all pairs together"
            lines.append(line)
        return lines


def measure(
    run: RunData,
    by: Sequence[str] = (),
    *,
    width: float | None = None,
    guaranteed: bool = False,
) -> SummaryReport:
    """Compute all statistics of a run. `by` names columns to slice by in addition to the edit type."""
    scores = run.scores
    every = run.with_aggregates()
    scales = run.all_scales()
    blank = partial(without_intervals, run)
    cells = [*map(blank, summarise(every, scales=scales, guaranteed=guaranteed))]
    names = {*run.sums, *run.set_scores}
    slices = {
        name: [
            *map(blank, summarise(every, by=name, scales=scales, guaranteed=guaranteed))
        ]
        for name in dict.fromkeys(["edit_type", *by])
        if len(scores.slices[name].present()) > 1
    }
    formulas = _set_formulas(run)
    for sums in (*run.aggregates.values(), *run.scored_means.values()):
        formulas |= {mean.formula: mean.name for mean in sums}
    present = scores.factor.present()
    best = {}
    for factor, scale in run.scales.items():
        is_decision = len(scale) <= FEW_VALUES and factor not in run.continuous
        if is_decision and factor in present:
            best[factor] = min(scale) if factor in run.falling else max(scale)
    ranks = []
    if len(scores.model.present()) > 1:
        ranks = rank(every, falling=run.falling, scales=scales, guaranteed=guaranteed)
    repeated = scores.repeat.max(initial=0) or len(scores.judge.present()) > 1
    return SummaryReport(
        run,
        [cell for cell in cells if cell.factor not in names],
        slices,
        [
            *(cell for cell in cells if cell.factor in names),
            *map(blank, _scored_means(run, guaranteed)),
        ],
        formulas,
        [*map(blank, pass_rates(scores, best))],
        [*map(blank, ranks)],
        _headlines(run, cells),
        noise(scores) if repeated else [],
        width,
        guaranteed,
        _of_run(run),
    )


def _scored_means(run: RunData, guaranteed: bool) -> Iterator[statistics.Cell]:
    """Yield the statistics of means over the factors that a judge usually scores."""
    for judge, means in run.scored_means.items():
        table = aggregate(run.scores.where(judge=judge), means)
        scores = table.where(factor=[mean.name for mean in means])
        all_scales = run.all_scales()
        scales = {mean.name: all_scales[mean.factors[0]] for mean in means}
        yield from summarise(scores, scales=scales, guaranteed=guaranteed)


def _of_run(run: RunData) -> list[WeightedMean]:
    results: list[WeightedMean] = []
    for name, each in run.run_scores.items():
        rows = run.scores.take(run.scores.factor.among((each.score,)))
        results += weighted_means(name, rows, each.by, each.weights)
    if run.ends_by_claims:
        stopped = Reason("stopped_early")
        results = [
            dataclasses.replace(each, ci=None, ci_reason=stopped, method=None)
            for each in results
        ]
    return results


def _run_table(run: RunData, results: Sequence[WeightedMean]) -> Table:
    """Return the table of the scores of the whole run."""
    rows: list[dict[str, Cell]] = [
        {
            "score": each.name,
            "judge": each.judge,
            "model": each.model,
            "ok/n": coverage_figure(each.ok, each.n),
            "mean": Figure(each.mean, each.ci),
            **{value: Figure(mean) for value, mean in each.means.items()},
        }
        for each in results
    ]
    notes = [
        f"{name} = mean of {each.score} by {each.by}, "
        + (
            "weighted " + ", ".join(f"{v} {w:g}" for v, w in each.weights.items())
            if each.weights
            else "all equally"
        )
        for name, each in run.run_scores.items()
    ]
    reasons = dict.fromkeys(each.ci_reason for each in results if each.ci_reason)
    notes += map(reason_text, reasons)
    table = Table.listing(
        rows, "Scores of the run: mean with 95 % CI", notes=notes, stub=3
    )
    return table.folded("judge", "model")


def pooled_cells(run: RunData, by: str) -> dict[tuple[str, str], statistics.Cell]:
    """Return the statistics of each factor for each `model`, `judge` or `rubric`, pooled over the other two."""
    scores = run.scores
    names = {
        "judge": scores.slices[SPEC],
        "model": scores.model,
        "rubric": scores.slices["rubric"],
    }[by]
    anyone = Column.constant("", len(scores))
    pooled = dataclasses.replace(scores, judge=anyone, model=names)
    cells = summarise(pooled, scales=run.scales)
    factors = {factor for names in run.rubrics.values() for factor in names}
    return {(c.model, c.factor): c for c in cells if c.factor in factors}


def _set_formulas(run: RunData) -> dict[str, str]:
    """Return the name of each set score, keyed by its formula as text. The text also says how many edits have no score,
    and why."""
    scores = run.scores
    lines = {}
    for formula in run.formulas:
        line = formula.words
        if formula.name in scores.factor.present():
            counts = Counter(scores.where(factor=formula.name).status)
            del counts[OK]
            if reasons := _counts(counts):
                line += f"; undefined: {reasons}"
        lines[line] = formula.name
    return lines


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{n:,} {status}" for status, n in counts.most_common())


def _coverage(
    cells: Sequence[statistics.Cell],
) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the number of scores and the number of questions for each judge and factor."""
    coverage: dict[tuple[str, str], tuple[int, int]] = {}
    for cell in cells:
        ok, n = coverage.get((cell.judge, cell.factor), (0, 0))
        coverage[cell.judge, cell.factor] = (ok + cell.ok, n + cell.n)
    return coverage


def _headlines(
    run: RunData, cells: Sequence[statistics.Cell]
) -> frozenset[tuple[str, str]]:
    """Return the scores to show for each judge when space is short.

    They are the scores of its sets, and the mean over the largest number of factors that at least half of its edits
    have. If it has neither, they are all factors with scores.
    """
    coverage = _coverage(cells)
    headline: set[tuple[str, str]] = set()
    for judge, sums in run.aggregates.items():
        names = {mean.name for mean in sums}
        cells_of_judge = [key for key in coverage if key[0] == judge]
        widest = [key for key in cells_of_judge if key[1] in run.set_scores]
        half = []
        for mean in sums:
            ok, n = coverage.get((judge, mean.name), (0, 0))
            if mean.how == "mean" and 2 * ok >= n:
                half.append(mean)
        if half:
            widest.append((judge, max(half, key=lambda mean: len(mean.factors)).name))
        factors = [key for key in cells_of_judge if key[1] not in names]
        scored = [key for key in factors if coverage[key][0]]
        headline.update(widest or scored or factors)
    return frozenset(headline)


def not_scored(means: SummaryReport) -> str:
    """Return the first line of a report: how many judgements there are, how many have no score, and why."""
    run = means.run
    counts = run.status_counts
    total = counted(counts.total(), "judgement")
    edits = counted(len(run.scores.item.present()), "edit")
    models = [model for model in run.scores.model.present() if model]
    by = f" by {len(models)} models" if len(models) > 1 else ""
    del counts[OK]
    parts = [f"{_counts(counts)} of {total}"] if counts else []
    coverage = _coverage(means.factors)
    for judge in run.scores.judge.present():
        missing = []
        few = []
        lacking = []
        for (name, factor), (ok, n) in coverage.items():
            if name != judge:
                continue
            if not ok:
                missing.append(factor)
            elif 2 * ok < n:
                few.append(f"{factor} ({ok:,} of {n:,})")
            elif ok < n:
                lacking.append(n - ok)
        if missing:
            parts.append(f"{judge} has no score on {', '.join(missing)}")
        if few:
            parts.append(f"{judge} has few scores on {', '.join(few)}")
        if lacking:
            parts.append(
                f"{judge} lacks up to {max(lacking):,} scores on {len(lacking)} other factors"
            )
    rest = "Every question has a score."
    if parts:
        rest = f"Not scored: {'; '.join(parts)}."
    return f"{edits}{by}, {total}. {rest}"


# --- answers --------------------------------------------------------------------------------------------------


def report(means: SummaryReport) -> Answer:
    """Return the statistics of a run for a terminal."""
    run = means.run
    results = means.conclusions
    return Answer(
        document(means),
        [*run.unjudged(), *run.lead(), *results],
        tables(means),
        long(means),
        results,
    )


def document(means: SummaryReport) -> dict[str, object]:
    """Return the statistics as JSON at full precision."""
    run = means.run
    passports = [passport.heading() for passport in run.passports]
    statuses = [
        {"judge": judge, "rubric": rubric, "model": model, "status": status, "n": n}
        for (judge, rubric, model, status), n in run.statuses.items()
    ]
    return {
        "run": run.run.name,
        "id": run.run.id,
        "state": run.run.state,
        "pending": run.pending,
        "of": run.of,
        "judgements": statuses,
        **({"passports": passports} if passports else {}),
        "factors": plain(means.factors),
        "slices": plain(means.slices),
        "aggregates": plain(means.aggregates),
        "formulas": list(means.formulas),
        **({"run_scores": plain(means.of_run)} if means.of_run else {}),
        "pass_rates": plain(means.passes),
        "ranks": plain(means.ranks),
        "comparisons": [paired.as_json() for paired in means.compared],
        **({"until": [s.as_json() for s in means.claims]} if means.claims else {}),
        "contradictions": plain(run.contradictions.counts),
        "noise": [
            plain(split)
            | {"reliability": {str(k): split.reliability(k) for k in (1, 2, 3, 5, 10)}}
            | _needed(split, means.width)
            for split in means.noise
        ],
    }


def long(means: SummaryReport, slices: Container[str] | None = None) -> Table:
    """Return one row for each combination of judge, model, factor or aggregate, and value of a slice. `slices` names
    the slices to include."""
    every = {"": [*means.factors, *means.aggregates], **means.slices}
    kinds = sorted(
        {kind for sliced in every.values() for c in sliced for kind in c.failed}
    )
    # A judge that scores a factor under two rubrics is `SPEC@RUBRIC`.
    checks = {
        (judge, count.model, count.factor): count
        for count in means.run.contradictions.counts
        for judge in (count.judge, f"{count.judge}@{count.rubric}")
    }
    rows: list[dict[str, Cell]] = []
    for name, cells in every.items():
        for c in cells if slices is None or name in slices else ():
            check = None if name else checks.get((c.judge, c.model, c.factor))
            rows.append(
                {
                    "judge": c.judge,
                    "model": c.model,
                    "factor": c.factor,
                    "slice_by": name,
                    "slice": c.slice or "",
                    "n": c.n,
                    "ok": c.ok,
                    "abstained": c.abstained,
                    **{f"failed_{kind}": c.failed.get(kind, 0) for kind in kinds},
                    "worst_case": c.worst_case,
                    "best_case": c.best_case,
                    "mean": Figure(c.mean, c.ci),
                    "median": c.median,
                    "groups": c.groups,
                    "checked": check.checked if check else None,
                    "contradicted": check.contradicted if check else None,
                }
            )
    return Table.listing(rows)


# --- tables ---------------------------------------------------------------------------------------------------


def tables(means: SummaryReport, *, full: bool = False) -> list[Table]:
    """Return the tables of a report. `full` adds those that are too long for a terminal: distributions, and all factors
    of every slice."""
    run = means.run
    parts = [coverage(run)]
    if means.claims:
        parts.append(claims_table(means.claims))
    if means.aggregates:
        parts.append(
            _means(run, means.aggregates, "Aggregates", means.formulas, means.ranks)
        )
    if means.of_run:
        parts.append(_run_table(run, means.of_run))
    parts.append(_means(run, means.factors, "Scores by factor"))
    if means.passes:
        parts.append(_passes(means.passes))
    for name, cells in means.slices.items():
        headline = [c for c in cells if (c.judge, c.factor) in means.headline]
        sliced = cells if full else headline
        parts.append(_means(run, sliced, f"Scores by {name}", slice_name=name))
    if means.noise:
        parts.append(_noise(means))
    if run.contradictions.counts:
        parts.append(contradicted(run))
    if full and means.ranks:
        parts.append(_ranks(run, means.ranks))
    return [*parts, *(_distributions(means) if full else ())]


def set_scores(run: RunData) -> Table:
    """Return the table of the scores that the run's sets define."""
    scores = run.scores.where(factor=list(run.set_scores))
    cells = summarise(scores, scales=run.all_scales())
    return _means(run, cells, "Scores of the set", _set_formulas(run))


def coverage(run: RunData) -> Table:
    """Return the table with the number of judgements for each status."""
    counts: dict[tuple[str, str, str], Counter[str]] = {}
    for (judge, rubric, model, status), n in run.statuses.items():
        counts.setdefault((judge, rubric, model), Counter())[status] += n
    kinds = sorted({status for *_, status in run.statuses if status not in DONE})
    rows: list[dict[str, Cell]] = []
    for (judge, rubric, model), by_status in counts.items():
        n = by_status.total()
        share = by_status[OK] / n
        rows.append(
            {
                "judge": judge,
                "rubric": rubric,
                "model": model,
                "asked": n,
                "ok": by_status[OK],
                "ok %": Figure(share, text=f"{share:.0%}"),
                "abstained": by_status["abstained"],
                **{kind: by_status[kind] for kind in kinds},
            }
        )
    notes = [] if kinds else ["no judgement failed"]
    table = Table.listing(rows, "Judgements by status", notes=notes, stub=3)
    return table.folded("judge", "rubric", "model").trimmed("abstained")


def _means(
    run: RunData,
    cells: Sequence[statistics.Cell],
    caption: str,
    formulas: Mapping[str, str] = {},
    ranks: Sequence[Rank] = (),
    slice_name: str = "slice",
) -> Table:
    notes = list(formulas)
    silent = dict.fromkeys(c.factor for c in cells)
    for c in cells:
        if c.ok or c.failed:
            silent.pop(c.factor, None)
    if silent and (scored := [c for c in cells if c.factor not in silent]):
        cells = scored
        notes = [note for note, name in formulas.items() if name not in silent]
        notes.append(f"without any score: {', '.join(silent)}")
    if any(c.factor in run.falling for c in cells):
        notes.append(FALLS_NOTE)
    if any(c.failed for c in cells):
        notes.append(
            "bounds: the mean if every failed judgement had the worst score of the scale, and the best"
        )
    for note, n in Counter(note for c in cells for note in c.notes).items():
        count = f" ({n} of {len(cells)} rows)" if n < len(cells) else ""
        notes.append(reason_text(note) + count)
    places = {(r.judge, r.factor, r.model): r for r in ranks}
    digits = column_decimals(c.ci for c in cells)
    rows: list[dict[str, Cell]] = []
    for c in _ordered(cells):
        decimals = None
        if c.factor in run.continuous:
            decimals = column_decimals(o.ci for o in cells if o.factor == c.factor)
        bounds = FailureBounds(c.worst_case, c.best_case) if c.failed else None
        rows.append(
            {
                "factor": run.label(c.factor),
                slice_name: c.slice or "",
                "judge": c.judge,
                "model": c.model,
                "ok/n": coverage_figure(c.ok, c.n),
                "abst.": c.abstained or None,
                "failed": sum(c.failed.values()) or None,
                "bounds": bounds_figure(
                    bounds, digits if decimals is None else decimals
                ),
                "mean": Figure(c.mean, c.ci, digits=decimals),
                "repeat SD": Figure(c.repeat_sd, digits=2),
                "median": _median(c.median, decimals),
                "rank": _rank(places.get((c.judge, c.factor, c.model))),
            }
        )
    table = Table.listing(
        rows, f"{caption}: mean with 95 % CI", notes=notes, stub=4, spare=("median",)
    )
    table = table.folded("judge", "model", slice_name)
    return table.trimmed("abst.", "failed", "bounds", "repeat SD", "rank")


def _ordered(cells: Sequence[statistics.Cell]) -> list[statistics.Cell]:
    """Return cells ordered by factor, so that statistics to compare are next to each other."""
    factors = list(dict.fromkeys(cell.factor for cell in cells))
    return sorted(cells, key=lambda c: (factors.index(c.factor), c.slice or ""))


def _median(median: float | None, digits: int | None) -> Figure:
    # The square root of an integer may have a rounding error.
    if digits is None and median is not None and math.isclose(median, round(median, 2)):
        return Figure(median, text=f"{median:g}")
    return Figure(median, digits=digits)


def _rank(ranked: Rank | None) -> Figure:
    if ranked is None:
        return Figure(None)
    span = f" [{ranked.ci[0]}, {ranked.ci[1]}]" if ranked.ci else ""
    return Figure(ranked.rank, text=f"{ranked.rank}{span}")


def _passes(rates: Sequence[PassRate]) -> Table:
    return Table.listing(
        (
            {
                "rule": p.rule,
                "judge": p.judge,
                "model": p.model,
                "ok/n": coverage_figure(p.ok, p.n),
                "passed": p.passed,
                "rate": Figure(p.rate, p.ci),
            }
            for p in rates
        ),
        "Pass rates: share of ok judgements, 95 % CI clustered by source image",
        stub=3,
    ).folded("judge", "model")


def _ranks(run: RunData, ranks: Sequence[Rank]) -> Table:
    falls = any(r.factor in run.falling for r in ranks)
    return Table.listing(
        (
            {
                "factor": run.label(r.factor),
                "judge": r.judge,
                "model": r.model,
                "mean": r.mean,
                "rank": _rank(r),
            }
            for r in ranks
        ),
        "Ranks: 1 is best; 95 % CI from comparisons of all pairs of models, Holm-corrected",
        notes=[FALLS_NOTE] if falls else [],
        stub=3,
    ).folded("judge")


def _distributions(means: SummaryReport) -> list[Table]:
    """Return tables of score frequencies, one for each scale. Decimal scores are left out, since few are equal."""
    scales: dict[tuple[str, ...], list[dict[str, Cell]]] = {}
    for c in _ordered(means.factors):
        values = c.distribution
        if c.factor not in means.run.continuous and len(values) <= MOST_VALUES:
            names = {"factor": c.factor, "judge": c.judge, "model": c.model}
            scales.setdefault(tuple(values), []).append({**names, **values})
    caption = "Distribution: ok judgements with each score"
    return [
        Table.listing(rows, caption, stub=3).folded("judge", "model")
        for rows in scales.values()
    ]


def _noise(means: SummaryReport) -> Table:
    notes = [reason_text(note) for split in means.noise for note in split.notes]
    if any(split.repeat_variance is not None for split in means.noise):
        notes.append(
            "reliab. k: share of the variance of a mean of k repeats that is not the judge's own noise"
        )
    if means.width:
        notes.append(
            f"want: number needed for a 95 % interval of the mean that is {means.width:g} wide; - if no number suffices"
        )
    table = Table.listing(
        (
            {
                "factor": split.factor,
                "edits": split.edits,
                "judges": split.judges,
                "repeats": Figure(split.repeats, text=f"{split.repeats:.3g}"),
                "same answer": split.same_answer,
                "var edits": split.edit_variance,
                "var judges": split.judge_variance,
                "var repeats": split.repeat_variance,
                "reliab. 1": split.reliability(1),
                "reliab. 3": split.reliability(3),
                **{
                    name.replace("needed_", "want "): n
                    for name, n in _needed(split, means.width).items()
                },
            }
            for split in means.noise
        ),
        "Noise: where the variance of scores comes from",
        notes=dict.fromkeys(notes),
        spare=("reliab. 3", "var judges", "same answer"),
    )
    empty = ("same answer", "var judges", "var repeats", "reliab. 1", "reliab. 3")
    return table.folded("edits", "judges", "repeats").trimmed(*empty)


def _needed(split: Noise, width: float | None) -> dict[str, int | None]:
    if width is None:
        return {}
    return {
        "needed_edits": split.needed_edits(width),
        "needed_repeats": split.needed_repeats(width),
    }


def contradicted(run: RunData) -> Table:
    """Return the table of each judge's verdicts that are contradicted by measured evidence from the same images."""
    rows: list[dict[str, Cell]] = []
    for (judge, rubric, factor), (checked, n) in run.contradicted(
        "judge", "rubric", "factor"
    ).items():
        images = _effective_images(run, judge, rubric, factor, checked)
        ci = clopper_pearson(n / checked, images) if images >= 2 else None
        rows.append(
            {
                "judge": judge,
                "rubric": rubric,
                "factor": factor,
                "checked": checked,
                "contradicted": n,
                "share": Figure(n / checked, ci),
            }
        )
    notes = (
        "checked: verdicts with a score that a rule covers, on images that were measured",
        "share: Clopper-Pearson's 95 % CI at the effective number of source images; none with fewer than two",
    )
    caption = (
        "Contradicted by measured evidence: share of the verdicts that could be checked"
    )
    table = Table.listing(rows, caption, notes=notes, stub=3)
    return table.folded("judge", "rubric")


def _effective_images(
    run: RunData, judge: str, rubric: str, factor: str, checked: int
) -> float:
    """Return Kish's effective number of source images.

    If only some verdicts were checked, it is unknown which images they belong to. The result is then the smallest
    number of images that is possible.
    """
    scores = run.scores
    here = scores.ok
    for column, name in (
        (scores.slices[SPEC], judge),
        (scores.slices["rubric"], rubric),
        (scores.factor, factor),
    ):
        here &= column.among((name,))
    sizes = np.bincount(scores.group.codes[here])
    return evenly(sizes) * min(1.0, checked / max(1, int(here.sum())))
