"""`compare`: paired differences as tables, charts and sentences."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from editjudge.errors import Option, UsageError
from editjudge.report.answers import Answer
from editjudge.report.bridge import Bridge
from editjudge.report.charts import Dot, DotChart
from editjudge.report.early import (
    STOPPED_EARLY,
    ClaimState,
    claim_states,
    claims_table,
    without_intervals,
)
from editjudge.report.run_data import (
    FALLS,
    FALLS_NOTE,
    SPEC,
    RunData,
    check_name,
    pair_runs,
    shared,
)
from editjudge.report.selection import (
    ACROSS,
    EVERYTHING,
    Choice,
    SameRubrics,
    deciding,
    deciding_both,
    primary_scores,
    same_rubrics,
    within_one_run,
)
from editjudge.report.tables import (
    Cell,
    Figure,
    Table,
    bounds_figure,
    column_decimals,
    figure_text,
    merge_notes,
    p_value,
)
from editjudge.report.words import plain, reason_text
from editjudge.running.sums import OVERALL
from editjudge.stats import compare as statistics
from editjudge.stats.columns import Column, Interval, Scores
from editjudge.stats.compare import Difference, On, corrected
from editjudge.stats.inference import AddedError

By = Literal["model", "judge", "rubric", "run"]
Family = Literal["primary", "exploratory"]
Direction = Literal["up", "down"]


@dataclass(frozen=True)
class PairedDifference:
    """A difference, and the judge or rubric that is the same on both sides."""

    within: str
    difference: Difference
    direction: Direction = "up"
    """`down` if a lower score is better."""
    family: Family = "exploratory"
    declared: bool = False
    """Whether the score was named as primary before the run (`run --primary`)."""

    @property
    def marked(self) -> Difference:
        """The difference, with its factor's label in tables."""
        d = self.difference
        return replace(d, factor=f"{d.factor} {FALLS}") if self.is_falling else d

    @property
    def is_falling(self) -> bool:
        return self.direction == "down"

    def as_json(self) -> dict[str, object]:
        document: dict[str, object] = {"within": self.within, **plain(self.difference)}
        if self.is_falling and self.difference.evident:
            document["verdict"] = f"{document['verdict']}; lower is better"
        return document | {
            "direction": self.direction,
            "family": self.family,
            "declared": self.declared,
        }


# --- the verbs ------------------------------------------------------------------------------------------------


def compare(
    run: RunData,
    by: By = "model",
    a: str | None = None,
    b: str | None = None,
    choice: Choice = EVERYTHING,
) -> Answer:
    """Compare models, judges or rubrics of one run."""
    same = within_one_run(run) if by == "rubric" else SameRubrics(run, run)
    run = same.a
    comparisons = differences(run, by, a, b, choice)
    document = {"run": run.run.name, "by": by, "of": run.of, "pending": run.pending}
    lead = [*same.lead(), *run.lead()]
    if not comparisons:
        same_thing = "rubric" if by == "judge" else "factor"
        lead.append(
            f"nothing to compare: no two {by}s have scores on the same {same_thing}"
        )
    claims = claim_states(run) if by == "model" else []
    return _answer(document, {}, comparisons, by, run.unjudged(), lead, claims)


def compare_runs(
    a: RunData,
    b: RunData,
    choice: Choice = EVERYTHING,
    *,
    across_rubrics: bool = False,
    through: Bridge | None = None,
) -> Answer:
    """Compare two runs (B minus A) on the tasks that both contain. Both runs must be loaded with `pairing`.

    With `through`, the scores of B are mapped to the scale of A's judge.
    """
    if through:
        same = _sides_of(through, a, b, choice, across_rubrics=across_rubrics)
    else:
        same = same_rubrics(a, b, across_rubrics=across_rubrics, factors=choice.factors)
    a_scores, b_scores, match = pair_runs(same.a, same.b, "task")
    first = replace(same.a, scores=shared(a_scores))
    second = replace(same.b, scores=shared(b_scores))
    crossing: dict[str, object] = {}
    bridged: list[str] = []
    if through:
        mapped = _mapped_differences(through, first, second, choice)
        comparisons = mapped.comparisons
        crossing = {"through": mapped.as_json(through)}
        bridged = mapped.lead(through, a.run.name, b.run.name)
    else:
        comparisons = _run_differences(first, second, choice)
    document = {
        "run_a": a.run.name,
        "run_b": b.run.name,
        "by": "run",
        "of": a.of,
        **match.counts(),
        "pending": a.pending + b.pending,
        "pending_a": a.pending,
        "pending_b": b.pending,
        **crossing,
    }
    before = [*b.unjudged(), *bridged, *same.lead()]
    lead = [*a.lead(), *b.lead(), *match.describe(a.run.name, b.run.name)]
    return _answer(document, same.as_json(), comparisons, "run", before, lead)


def _answer(
    about: Mapping[str, object],
    rubrics: Mapping[str, object],
    comparisons: Sequence[PairedDifference],
    by: By,
    before: Sequence[str],
    after: Sequence[str],
    claims: Sequence[ClaimState] = (),
) -> Answer:
    tested = [p for p in comparisons if p.difference.ci_reason != STOPPED_EARLY]
    results = [state.line for state in claims]
    results += conclusions(tested)
    return Answer(
        {
            **about,
            "comparisons": [paired.as_json() for paired in comparisons],
            **({"until": [state.as_json() for state in claims]} if claims else {}),
            **rubrics,
        },
        [*before, *results, *after],
        [*([claims_table(claims)] if claims else []), *compare_tables(comparisons, by)],
        _all_figures(comparisons),
        results,
        list(forests(comparisons).values()),
    )


# --- differences ----------------------------------------------------------------------------------------------


def differences(
    run: RunData,
    by: By = "model",
    a: str | None = None,
    b: str | None = None,
    choice: Choice = EVERYTHING,
) -> list[PairedDifference]:
    """Compare two or more sides. If `a` and `b` are both named, they are compared. If only one is named, it is compared
    with all others. If none is named, every pair is compared.

    Models are compared by the panel's mean unless a judge is chosen. P-values are corrected over the primary scores
    and, separately, over the factors of each rubric.
    """
    judge = choice.judge
    if by == "judge" and judge is not None:
        raise UsageError(
            "--judge names the judge that decides; to compare judges, name them with --a and --b",
            options=[Option("judge"), Option("a"), Option("b")],
        )
    if by == "model" or judge is not None:
        run = deciding(run, judge)
    primary, declared = primary_scores(run, choice.primary)
    scores = _chosen(run, choice.factors, primary)
    names, within, on = _sides(scores, by)
    pairs = _pairs(names.present(), by, a, b)
    rows = []
    for context in within.present():
        for pair in pairs:
            sides = [
                scores.take(names.where(name) & within.where(context)) for name in pair
            ]
            if all(map(len, sides)):
                compared = statistics.compare(
                    *sides,
                    names=pair,
                    on=on,
                    scales=run.all_scales(),
                    guaranteed=choice.guaranteed,
                )
                rows += [(context, without_intervals(run, d)) for d in compared]
    return _corrected(rows, run, primary, declared)


def _run_differences(a: RunData, b: RunData, choice: Choice) -> list[PairedDifference]:
    a, b, judges = deciding_both(a, b, choice.judge)
    names = (a.run.name, b.run.name)
    if a.run.name == b.run.name:
        names = (f"{a.run.name} (a)", f"{b.run.name} (b)")
    primary, declared = primary_scores(b, choice.primary)
    scores_a = _chosen(a, choice.factors, primary)
    scores_b = _chosen(b, choice.factors, primary)
    rows = []
    for judge, judge_b in judges.items():
        compared = statistics.compare(
            scores_a.where(judge=judge),
            scores_b.where(judge=judge_b),
            names=names,
            on="pair",
            scales=common_scales(a, b),
            guaranteed=choice.guaranteed,
        )
        # Means over different factors cannot be compared.
        other = {
            mean.name for mean in {*a.aggregates[judge]} ^ {*b.aggregates[judge_b]}
        }
        rows += [
            (judge, without_intervals(a, without_intervals(b, d)))
            for d in compared
            if d.factor not in other
        ]
    return _corrected(rows, b, primary, declared)


@dataclass(frozen=True)
class _Mapped:
    """Differences between a run and the mapped scores of another."""

    comparisons: list[PairedDifference]
    left_out: Mapping[str, str]
    """Scores that the bridge does not map, with the reason."""
    errors: Mapping[str, AddedError]
    beyond: int
    """Scores beyond the ends of the map."""

    def as_json(self, through: Bridge) -> dict[str, object]:
        factors = through.file.factors
        return {
            "bridge": through.name,
            "old": [*through.file.sides["old"].judges],
            "new": [*through.file.sides["new"].judges],
            "factors": {
                name: {"within": factors[name].within, "error": added.total}
                for name, added in self.errors.items()
            },
            "left_out": dict(self.left_out),
            "beyond": self.beyond,
        }

    def lead(self, through: Bridge, a: str, b: str) -> list[str]:
        sides = through.file.sides
        factors = through.file.factors
        edits = ", ".join(
            f"{name} ±{factors[name].within:.2f}"
            for name in dict.fromkeys(p.difference.factor for p in self.comparisons)
        )
        lines = [
            f"through {through.name}: scores of {b} ({', '.join(sides['new'].judges)}) are mapped to the scale of {a} "
            f"({', '.join(sides['old'].judges)}); 90 % of edits within {edits}; intervals include the error of the map"
        ]
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.left_out.items():
            by_reason.setdefault(reason, []).append(name)
        lines += [
            f"not compared, {', '.join(names)}: {reason}"
            for reason, names in by_reason.items()
        ]
        alone = [name for name in self.errors if factors[name].model_error is None]
        if alone:
            lines.append(
                f"{', '.join(alone)}: the bridge has edits of one model, so intervals lack the differences between models"
            )
        if self.beyond:
            lines.append(
                f"{self.beyond:,} scores of {b} are lower or higher than all in the bridge: the map only guesses them"
            )
        return lines


def _sides_of(
    through: Bridge, a: RunData, b: RunData, choice: Choice, *, across_rubrics: bool
) -> SameRubrics:
    if across_rubrics or choice.judge is not None:
        raise UsageError(
            "--through names the judges and rubrics of both sides: leave --judge and --across-rubrics out",
            options=[Option("through"), Option("judge"), ACROSS],
        )
    if "expected" in (a.of, b.of):
        raise UsageError(
            "a bridge maps the scores that judges wrote, not expected scores: leave --use out",
            options=[Option("use")],
        )
    return through.sides(a, b)


def _mapped_differences(
    through: Bridge, a: RunData, b: RunData, choice: Choice
) -> _Mapped:
    """Compare A with the scores of B on the scale of A's judge."""
    primary, declared = primary_scores(a, choice.primary)
    old = _chosen(a, choice.factors, primary)
    new = _chosen(b, choice.factors, primary)
    factors = [f for f in old.factor.present() if f in new.factor.present()]
    left_out = through.left_out(a, b, factors, choice.factors)
    kept = [factor for factor in factors if factor not in left_out]
    judge = ", ".join(through.file.sides["old"].judges)
    old = old.where(factor=kept)
    new = new.where(factor=kept)
    errors = through.errors(new)
    compared = statistics.compare(
        old,
        through.mapped(new),
        names=(a.run.name, b.run.name),
        on="pair",
        scales=a.all_scales(),
        guaranteed=choice.guaranteed,
        errors=errors,
    )
    rows = [(judge, difference) for difference in compared]
    comparisons = _corrected(rows, a, primary, declared)
    return _Mapped(comparisons, left_out, errors, through.beyond(new))


def common_scales(a: RunData, b: RunData) -> dict[str, tuple[float, ...]]:
    """Return the scales that are the same in both runs."""
    other = b.all_scales()
    scales = a.all_scales()
    return {f: scale for f, scale in scales.items() if other.get(f) == scale}


def _chosen(run: RunData, factors: Sequence[str], primary: Sequence[str]) -> Scores:
    """Return the scores of these factors. If none are named, return the primary scores and all factors."""
    if not factors:
        return run.with_aggregates(primary)
    scores = run.with_aggregates()
    for name in factors:
        check_name("factor", name, scores.factor.present())
    return scores.where(factor=factors)


def _sides(scores: Scores, by: By) -> tuple[Column, Column, On]:
    """Return the column to compare, the column that is the same on both sides, and the name of the column by which rows
    are paired."""
    if by == "model":
        return scores.model, scores.judge, "pair"
    if by == "judge":
        return scores.slices[SPEC], scores.slices["rubric"], "item"
    return scores.slices["rubric"], scores.slices[SPEC], "item"


def _pairs(
    names: Sequence[str], by: By, a: str | None, b: str | None
) -> list[tuple[str, str]]:
    for name in (a, b):
        if name is not None:
            check_name(by, name, names)
    if a is not None and a == b:
        raise UsageError(
            f"--a and --b are the same {by}", options=[Option("a"), Option("b")]
        )
    if len(names) < 2:
        which = f"one {by} ({names[0]})" if names and names[0] else f"no {by} named"
        raise UsageError(
            f"nothing to compare: the run has {which}; see --by", options=[Option("by")]
        )
    if a is None and b is None:
        return list(itertools.combinations(names, 2))
    first = names if a is None else [a]
    second = names if b is None else [b]
    return [(x, y) for x in first for y in second if x != y]


def _corrected(
    rows: Sequence[tuple[str, Difference]],
    run: RunData,
    primary: Sequence[str],
    declared: bool,
) -> list[PairedDifference]:
    """Return the differences with p-values corrected over the primary scores and, separately, over the factors of each
    rubric.
    """
    rubrics = {f: rubric for rubric, factors in run.rubrics.items() for f in factors}
    families: dict[tuple[()] | tuple[str, str], list[tuple[str, Difference]]] = {(): []}
    for context, d in rows:
        exploratory = (context, rubrics.get(d.factor, ""))
        key = () if d.factor in primary else exploratory
        families.setdefault(key, []).append((context, d))
    comparisons = []
    for key, family in families.items():
        tested = corrected([d for _, d in family])
        for (context, _), d in zip(family, tested, strict=True):
            direction: Direction = "down" if d.factor in run.falling else "up"
            rest: Family = "exploratory" if key else "primary"
            comparisons.append(
                PairedDifference(context, d, direction, rest, declared and not key)
            )
    return comparisons


# --- tables ---------------------------------------------------------------------------------------------------


def compare_tables(comparisons: Sequence[PairedDifference], by: By) -> list[Table]:
    """Return tables of differences, one for each judge or other shared value. Primary scores precede factors."""
    tables = []
    shared_by = "rubric" if by == "judge" else "judge"
    titles = {"primary": "Primary scores", "exploratory": "Factors (exploratory)"}
    for family, title in titles.items():
        members = [paired for paired in comparisons if paired.family == family]
        for context in dict.fromkeys(paired.within for paired in members):
            here = [paired for paired in members if paired.within == context]
            notes = [FALLS_NOTE] if any(paired.is_falling for paired in here) else []
            marked = [paired.marked for paired in here]
            notes += difference_notes(marked, _correction(members, here))
            caption = (
                f"{title} by {by}, b minus a, paired by edit; {shared_by} {context}"
            )
            rows = [d for d in marked if d.n or d.failed]
            tables.append(difference_table(rows or marked, caption, notes))
    return tables


def _correction(
    members: Sequence[PairedDifference], here: Sequence[PairedDifference]
) -> str:
    """Return the note on the correction of p-values."""
    if members[0].family == "exploratory":
        several = sum(paired.difference.p is not None for paired in here) > 1
        rule = (
            "Holm-corrected within each rubric; exploratory: the primary scores decide"
        )
        return rule if several else ""
    tests = sum(paired.difference.p is not None for paired in members)
    over = f"Holm-corrected over {tests} primary comparisons" if tests > 1 else ""
    declared = "declared before the run" if members[0].declared else ""
    return ", ".join(filter(None, (over, declared)))


FEWEST_DECIMALS = 2
"""Minimum number of decimals in tables of differences, since differences of .1 to .4 matter."""
_LEGEND = {
    "d": "the difference over its standard deviation between edits",
    "w/t/l": "wins, ties, losses: edits on which b scores higher, the same, lower",
    "MDE": "minimum detectable effect, the smallest difference that is detected with 80 % power",
    "failed": "judgements of a and of b that failed",
    "bounds": "b - a with every failed judgement at the end of the scale against b, and in favour of b",
}


def difference_table(
    shifts: Sequence[Difference], caption: str, notes: Sequence[str]
) -> Table:
    """Return a table of differences, with one row each."""
    digits = _digits(shifts)
    guaranteed = any(d.method != "studentised" for d in shifts)
    rows = []
    for d in shifts:
        decimals = digits[d.factor]
        gap = figure_text(_gap(d, decimals), d.ci, sign=True, digits=decimals)
        bounds = bounds_figure(d.bounds, decimals, sign=True)
        row: dict[str, Cell] = {
            "a": d.a,
            "b": d.b,
            "factor": d.factor,
            "edits": d.n,
            "failed": f"{d.failed_a}+{d.failed_b}" if d.failed else "",
            "mean a": Figure(d.mean_a, digits=decimals),
            "mean b": Figure(d.mean_b, digits=decimals),
            "b - a": None
            if d.difference is None
            else Figure(d.difference, d.ci, sign=True, text=gap),
            "bounds": bounds if d.failed else None,
            "p": p_value(d.p_holm),
            "d": Figure(d.effect, sign=True),
            "w/t/l": _won(d),
            "MDE": _mde(d, decimals),
            "method": d.method if guaranteed else None,
        }
        rows.append(row)
    spare = ("d", ("mean a", "mean b"), "w/t/l")
    table = Table.listing(
        rows, caption, notes=notes, stub=3, spare=spare, legend=_LEGEND
    )
    return table.folded("a", "b", "edits").trimmed("failed", "bounds", "method", "MDE")


def _all_figures(comparisons: Sequence[PairedDifference]) -> Table:
    """Return every difference in one table at full precision, for a data frame."""
    return Table.listing(
        {
            "within": paired.within,
            "family": paired.family,
            "a": d.a,
            "b": d.b,
            "factor": d.factor,
            "edits": d.n,
            "images": d.groups,
            "mean a": d.mean_a,
            "mean b": d.mean_b,
            "b - a": Figure(d.difference, d.ci, sign=True),
            "p": d.p,
            "p_holm": d.p_holm,
            "level": d.level,
            "method": d.method,
            "d": d.effect,
            "w/t/l": _won(d),
            "MDE": d.detectable,
        }
        for paired in comparisons
        for d in [paired.difference]
    )


def _digits(shifts: Sequence[Difference]) -> dict[str, int]:
    """Return the number of decimals for each factor. It is the same for all factors, unless their scales have different
    widths."""
    digits = {
        factor: column_decimals(d.ci for d in shifts if d.factor == factor)
        for factor in {d.factor for d in shifts}
    }
    if max(digits.values(), default=0) - min(digits.values(), default=0) < 2:
        digits = dict.fromkeys(digits, column_decimals(d.ci for d in shifts))
    return {factor: max(FEWEST_DECIMALS, n) for factor, n in digits.items()}


def _gap(d: Difference, digits: int) -> float:
    """Return the difference of the two rounded means, so that the row adds up as printed."""
    return round(d.mean_b or 0.0, digits) - round(d.mean_a or 0.0, digits)


def _won(d: Difference) -> Figure:
    counts = (("wins", d.wins), ("ties", d.ties), ("losses", d.losses))
    return Figure(d.wins, text=f"{d.wins}/{d.ties}/{d.losses}", parts=counts)


def _mde(d: Difference, digits: int) -> Figure:
    """Return the minimum detectable effect, with more decimals than other cells if it would be rounded to 0."""
    while d.detectable and round(d.detectable, digits) == 0:
        digits += 1
    return Figure(d.detectable, digits=digits)


_METHODS = {
    "studentised": "bootstrap-t over source images",
    "bridged": "bridged: the bootstrap or bound of the mapped scores, widened by the error of the map",
    "guaranteed": "guaranteed: a bound that allows for unseen scores anywhere on the scale",
    "identity": "identity: both sides are the same answers",
}


def difference_notes(shifts: Sequence[Difference], correction: str) -> list[str]:
    """Return the notes under a table of differences."""
    one_pair = len({(d.a, d.b) for d in shifts}) == 1
    about = {}
    for d in shifts:
        reasons = [*d.notes]
        if d.n and d.detectable_reason:
            reasons.append(d.detectable_reason)
        name = d.factor if one_pair else f"{d.factor} of {d.a} and {d.b}"
        about[name] = [reason_text(reason) for reason in dict.fromkeys(reasons)]
    notes = merge_notes(about)
    abstained = any(d.abstained_a + d.abstained_b for d in shifts)
    if abstained and any(d.failed for d in shifts):
        notes.append(
            "bounds exclude abstentions: they are about edits that can be scored"
        )
    tested = [d for d in shifts if d.ci is not None]
    if tested:
        methods = dict.fromkeys(
            _METHODS[d.method] for d in shifts if d.method in _METHODS
        )
        parts = [f"p, CI and MDE by {', or '.join(methods)}", correction]
        parts += [f"CI and MDE at {_levels(tested)}", "a CI excludes 0 if p < .05"]
        notes.append("; ".join(filter(None, parts)))
    return notes


# --- sentences ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairVerdict:
    """Verdict of one judge on two models, runs, judges or rubrics, in sentences."""

    within: str
    a: str
    b: str
    claims: Sequence[str]
    """Evident differences, each with its size and confidence interval."""
    doubts: Sequence[str]
    """Scores without evidence of a difference, scores with nothing to compare, and claims that failed judgements could
    overturn."""

    @property
    def lines(self) -> Sequence[str]:
        first, *others = (*self.claims, *self.doubts)
        return (first if self.claims else f"{self.a} and {self.b}: {first}", *others)


def conclusions(comparisons: Sequence[PairedDifference]) -> list[str]:
    """Return a few lines for each pair. They name the judge if there are several judges."""
    several = len({paired.within for paired in comparisons}) > 1
    return [
        f"{verdict.within}: {line}" if several else line
        for verdict in pair_verdicts(comparisons)
        for line in verdict.lines
    ]


def pair_verdicts(comparisons: Sequence[PairedDifference]) -> list[PairVerdict]:
    pairs: dict[tuple[str, str, str], list[PairedDifference]] = {}
    for paired in comparisons:
        pair = (paired.within, paired.difference.a, paired.difference.b)
        pairs.setdefault(pair, []).append(paired)
    return [_pair_verdict(*pair, members) for pair, members in pairs.items()]


def _pair_verdict(
    within: str, a: str, b: str, comparisons: Sequence[PairedDifference]
) -> PairVerdict:
    primary = [paired.marked for paired in comparisons if paired.family == "primary"]
    decides = any(d.difference is not None for d in primary)
    rows = primary if decides else [paired.marked for paired in comparisons]
    rows = sorted(rows, key=lambda d: d.factor != OVERALL)
    doubts = []
    if rows and all(d.method == "identity" for d in rows):
        doubts.append("the same answers on both sides: there is no difference to test")
    compared = [d for d in rows if d.difference is not None]
    unclear = [d for d in compared if not d.evident and d.method != "identity"]
    if unclear:
        doubts.append(f"no evidence of a difference on {_undecided(unclear)}")
    if len(compared) < len(rows):
        never = ", ".join(d.factor for d in rows if d.difference is None)
        doubts.append(f"not compared, because no input has a score for both: {never}")
    if overturnable := ", ".join(d.factor for d in compared if d.overturnable):
        doubts.append(f"failed judgements could overturn this on {overturnable}")
    if decides:
        others = [
            paired.marked for paired in comparisons if paired.family == "exploratory"
        ]
        doubts += [f"exploratory: {claim}" for claim in _claims(a, b, others)]
    return PairVerdict(within, a, b, _claims(a, b, rows), doubts)


def _claims(a: str, b: str, rows: Sequence[Difference]) -> list[str]:
    claims = []
    for side, sign in (("higher", 1), ("lower", -1)):
        evident = [d for d in rows if d.evident and sign * (d.difference or 0) > 0]
        sizes = []
        for d in evident:
            ci = Interval(*sorted((sign * d.ci.lo, sign * d.ci.hi))) if d.ci else None
            digits = max(FEWEST_DECIMALS, column_decimals([ci]))
            size = figure_text(abs(_gap(d, digits)), ci, digits=digits)
            sizes.append(f"{d.factor} by {size}")
        if evident:
            claims.append(
                f"{b} scores {side} than {a} on {', '.join(sizes)} ({_levels(evident)} CI, n = {_span(evident)})"
            )
    return claims


def _undecided(rows: Sequence[Difference]) -> str:
    """Return a sentence that lists these scores and their detectable differences."""
    parts = []
    reasons: dict[str, None] = {}
    for d in rows:
        digits = max(FEWEST_DECIMALS, column_decimals([d.ci]))
        if d.detectable is not None:
            parts.append(f"{d.factor} (MDE {_mde(d, digits)})")
        else:
            parts.append(d.factor)
            if d.detectable_reason:
                reasons[reason_text(d.detectable_reason)] = None
    text = f"{', '.join(parts)}; n = {_span(rows)}"
    if any(d.detectable is not None for d in rows):
        text += f", MDE at 80 % power and {_levels(rows[:1])}"
    return "; ".join([text, *reasons])


def _span(rows: Sequence[Difference]) -> str:
    """Return the range of the numbers of edits as text."""
    numbers = [d.n for d in rows]
    return " to ".join(dict.fromkeys(map(str, (min(numbers), max(numbers)))))


def _levels(rows: Sequence[Difference]) -> str:
    """Return the range of confidence levels as text, such as `95 %` or `95 % to 98.3 %`."""
    levels = [d.level for d in rows]
    ends = (min(levels), max(levels))
    return " to ".join(dict.fromkeys(f"{100 * level:.3g} %" for level in ends))


# --- charts ---------------------------------------------------------------------------------------------------

FOREST_PAIRS = 6
"""Maximum number of pairs of models in one forest plot; more cannot be distinguished."""


def forests(comparisons: Sequence[PairedDifference]) -> dict[str, DotChart]:
    """Return a forest plot for each judge. It shows every paired difference that has a confidence interval, on one axis
    around zero."""
    charts = {}
    for context in dict.fromkeys(paired.within for paired in comparisons):
        here = [paired.marked for paired in comparisons if paired.within == context]
        here = [d for d in here if d.ci is not None]
        pairs = list(dict.fromkeys((d.a, d.b) for d in here))[:FOREST_PAIRS]
        if pairs:
            drawn = [d for d in here if (d.a, d.b) in pairs]
            charts[context] = _forest(drawn, pairs)
    return charts


def _forest(drawn: Sequence[Difference], pairs: Sequence[tuple[str, str]]) -> DotChart:
    dots = [
        Dot(d.factor, f"{d.b} − {d.a}", d.difference or 0.0, d.ci, not d.evident)
        for d in drawn
    ]
    largest = max(abs(end) for dot in dots for end in (dot.value, *(dot.ci or ())))
    step = _step(largest)
    steps = max(1, math.ceil(largest / step))
    high = step * steps
    ticks = [step * n for n in range(-steps, steps + 1)]
    a, b = ("the second", "the first") if len(pairs) > 1 else pairs[0]
    sides = (f"\u2190\u00a0{a} scores higher", f"{b} scores higher\u00a0\u2192")
    note = "Filled: Holm-corrected p < .05, the CI excludes 0. Hollow: no evidence of a difference."
    bounded = dict.fromkeys(d.factor for d in drawn if d.method == "guaranteed")
    if bounded:
        note += f" Guaranteed bounds, wider than a bootstrap: {', '.join(bounded)}."
    title = f"Paired differences with {_levels(drawn)} CI"
    return DotChart(title, dots, -high, high, ticks, note, sides)


def _step(largest: float) -> float:
    """Return a round distance between ticks that gives at most five ticks on each side."""
    power = 10.0 ** math.floor(math.log10(largest / 5)) if largest > 0 else 1.0
    return next((power * n for n in (1, 2, 5) if power * n * 5 >= largest), power * 10)
