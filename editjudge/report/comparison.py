"""What `compare` and `drift` say: paired differences as tables, and in words."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from editjudge.edit import Match
from editjudge.errors import UsageError, near_miss
from editjudge.report.charts import Dot, DotChart
from editjudge.report.run_data import (
    FALLS,
    FALLS_NOTE,
    SPEC,
    RunData,
    aggregates,
    common_judges,
    pair_runs,
    shared,
)
from editjudge.report.tables import Cell, Figure, Table, between, in_line, noted, p_value
from editjudge.run.sums import OVERALL
from editjudge.stats.columns import Column, Scores
from editjudge.stats.compare import Difference, On, compare, corrected
from editjudge.stats.drift import Drift, corrected_together, drift
from editjudge.stats.statistic import Interval, plain

By = Literal["model", "judge", "rubric", "run"]


@dataclass(frozen=True)
class ComparisonReport:
    """One difference, and what both sides have in common: a judge, or a rubric."""

    within: str
    difference: Difference
    direction: Literal["up", "down"] = "up"
    """`down` where a lower score is the better one."""

    def as_json(self) -> dict[str, object]:
        return {"within": self.within, **self.difference.as_json(), "direction": self.direction}


def differences(
    judged: RunData,
    by: By = "model",
    a: str | None = None,
    b: str | None = None,
    *,
    factors: Sequence[str] = (),
) -> list[ComparisonReport]:
    """Both named: that pair. One named: it against each other. None: every pair. Corrected over all of them.

    The overall mean says in one number what the factors say already: it stands apart, after them, and is corrected
    with its like alone.
    """
    scores, scales = _chosen(judged, factors), judged.all_scales()
    names, within, on = _sides(scores, by)
    pairs = _pairs(names.present(), by, a, b)
    rows = []
    for context in within.present():
        for pair in pairs:
            a_side, b_side = (scores.take(names.where(name) & within.where(context)) for name in pair)
            if len(a_side) and len(b_side):
                rows += [(context, d) for d in compare(a_side, b_side, names=pair, on=on, scales=scales)]
    return _families(rows, judged)


def _families(rows: Sequence[tuple[str, Difference]], judged: RunData) -> list[ComparisonReport]:
    sums = judged.set_scores | {OVERALL}
    factors = [one for one in rows if one[1].factor not in sums]
    apart = [one for one in rows if one[1].factor in sums]
    return [
        _falling(context, d) if d.factor in judged.falling else ComparisonReport(context, d)
        for family in (factors, apart)
        for (context, _), d in zip(family, corrected([d for _, d in family]), strict=True)
    ]


def _falling(context: str, d: Difference) -> ComparisonReport:
    return ComparisonReport(context, replace(d, verdict=f"{d.verdict}; lower is better") if d.evident else d, "down")


def run_differences(a: RunData, b: RunData, *, factors: Sequence[str] = ()) -> tuple[list[ComparisonReport], Match]:
    """B minus A on what both had to edit. `overall` stands apart: it is not corrected for with the factors."""
    judges = common_judges(a, b)
    a_scores, b_scores, match = pair_runs(a, b, "task")
    a, b = replace(a, scores=shared(a_scores)), replace(b, scores=shared(b_scores))
    return _families(_between(a, b, judges, factors), b), match


def _between(a: RunData, b: RunData, judges: Mapping[str, str], factors: Sequence[str]) -> list[tuple[str, Difference]]:
    names = (a.run.name, b.run.name) if a.run.name != b.run.name else (f"{a.run.name} (a)", f"{b.run.name} (b)")
    x, y, scales = _chosen(a, factors), _chosen(b, factors), _common_scales(a, b)
    return [
        (mine, d)
        for mine, theirs in judges.items()
        for d in compare(x.where(judge=mine), y.where(judge=theirs), names=names, on="pair", scales=scales)
        # An overall mean of other factors, or another formula, is another figure.
        if _formula(a, d.factor) == _formula(b, d.factor)
        and (factors or d.factor != OVERALL or _overall(a, mine) == _overall(b, theirs))
    ]


def _common_scales(a: RunData, b: RunData) -> dict[str, tuple[float, ...]]:
    other = b.all_scales()
    return {factor: scale for factor, scale in a.all_scales().items() if other.get(factor) == scale}


def _formula(judged: RunData, factor: str) -> str:
    return next((one.words for one in judged.formulas if one.name == factor), "")


def _overall(judged: RunData, judge: str) -> tuple[str, ...]:
    """The factors that `overall` is made of; none where the judge has no such sum."""
    return next((tuple(one.factors) for one in aggregates(judged, judge) if one.name == OVERALL), ())


def _chosen(judged: RunData, factors: Sequence[str]) -> Scores:
    """The factors that were asked for, aggregates too; else all of them and their overall mean."""
    if not factors:
        return judged.with_aggregates((OVERALL,))[0]
    scores, _ = judged.with_aggregates()
    known = scores.factor.present()
    for name in factors:
        if name not in known:
            raise UsageError(f"the run has no factor {name!r}{near_miss(name, known)} It has {', '.join(known)}")
    return scores.where(factor=factors)


def _sides(scores: Scores, by: By) -> tuple[Column, Column, On]:
    if by == "model":
        return scores.model, scores.judge, "pair"
    if by == "judge":
        return scores.slices[SPEC], scores.slices["rubric"], "item"
    return scores.slices["rubric"], scores.slices[SPEC], "item"


def _pairs(names: Sequence[str], by: By, a: str | None, b: str | None) -> list[tuple[str, str]]:
    for name in (a, b):
        if name is not None and name not in names:
            raise UsageError(f"the run has no {by} {name!r}{near_miss(name, names)} It has {', '.join(names)}")
    if a is not None and a == b:
        raise UsageError(f"--a and --b are the same {by}")
    if len(names) < 2:
        which = f"one {by} ({names[0]})" if names and names[0] else f"no {by} named"
        raise UsageError(f"nothing to compare: the run has {which}; see --by")
    if a is not None and b is not None:
        return [(a, b)]
    if a is not None or b is not None:
        return [(a, n) if a is not None else (n, str(b)) for n in names if n not in (a, b)]
    return list(itertools.combinations(names, 2))


def compare_tables(comparisons: Sequence[ComparisonReport], by: By) -> list[Table]:
    """One table for each judge, or what else both sides share."""
    tables = []
    for context in dict.fromkeys(one.within for one in comparisons):
        here = [_marked(one) for one in comparisons if one.within == context]
        rows = [d for d in here if d.n or _failed(d)] or here
        falls = [FALLS_NOTE] if any(one.direction == "down" for one in comparisons if one.within == context) else []
        shared = {"model": "judge", "judge": "rubric", "rubric": "judge", "run": "judge"}[by]
        caption = f"Differences by {by}, b minus a, paired by edit; {shared} {context}"
        tests = _tests([one.difference for one in comparisons])
        tables.append(_table(rows, caption, (*falls, *_notes(here, tests)), tests))
    return tables


def comparison_document(judged: RunData, by: By, comparisons: Sequence[ComparisonReport]) -> dict[str, object]:
    """For programs: differences inside one run."""
    about = {"run": judged.run.name, "by": by, "of": judged.of, "pending": judged.pending}
    return {**about, "comparisons": [one.as_json() for one in comparisons]}


def runs_document(a: RunData, b: RunData, match: Match, comparisons: Sequence[ComparisonReport]) -> dict[str, object]:
    """For programs: one run's edits against another's."""
    names = {"run_a": a.run.name, "run_b": b.run.name, "by": "run", "of": a.of}
    pending = {"pending": a.pending + b.pending, "pending_a": a.pending, "pending_b": b.pending}
    return {**names, **match.counts(), **pending, "comparisons": [one.as_json() for one in comparisons]}


@dataclass(frozen=True)
class PairVerdict:
    """What one judge says of two models, runs, judges or rubrics, in words."""

    within: str
    a: str
    b: str
    claims: tuple[str, ...]
    """Each difference that is evident, with its size and 95 % CI."""
    doubts: tuple[str, ...]
    """Where there is no evidence, nothing to compare, or what failed could overturn a claim."""

    @property
    def lines(self) -> tuple[str, ...]:
        first, *others = (*self.claims, *self.doubts)
        return (first if self.claims else f"{self.a} and {self.b}: {first}", *others)


def conclusions(comparisons: Sequence[ComparisonReport]) -> list[str]:
    """A few lines for each pair, with the judge's name where there are several."""
    several = len({one.within for one in comparisons}) > 1
    verdicts = pair_verdicts(comparisons)
    return [f"{one.within}: {line}" if several else line for one in verdicts for line in one.lines]


def pair_verdicts(comparisons: Sequence[ComparisonReport]) -> list[PairVerdict]:
    pairs: dict[tuple[str, str, str], list[Difference]] = {}
    for one in comparisons:
        pairs.setdefault((one.within, one.difference.a, one.difference.b), []).append(_marked(one))
    return [_pair_verdict(*pair, some) for pair, some in pairs.items()]


def _pair_verdict(within: str, a: str, b: str, rows: Sequence[Difference]) -> PairVerdict:
    rows = sorted(rows, key=lambda d: d.factor != OVERALL)
    claims = [
        f"{b} scores {side} than {a} on {', '.join(map(_sized, some))}"
        for side, sign in (("higher", 1), ("lower", -1))
        if (some := [d for d in rows if d.evident and sign * (d.difference or 0) > 0])
    ]
    unclear = [d for d in rows if d.difference is not None and not d.evident]
    sizes = sorted({d.n for d in unclear})
    names = ", ".join(
        f"{d.factor} ({'MDE ' + str(_mde(d, in_line([d.ci]))) if d.detectable else 'no MDE'})" for d in unclear
    )
    n = " to ".join(map(str, dict.fromkeys((*sizes[:1], *sizes[-1:]))))
    never = [d.factor for d in rows if d.difference is None]
    overturnable = [d.factor for d in rows if d.overturnable and d.difference is not None]
    doubts = [f"no evidence of a difference on {names}; n = {n}, MDE at 80 % power"] if unclear else []
    doubts += [f"not compared, because no input has a score for both: {', '.join(never)}"] if never else []
    doubts += [f"failed judgements could overturn this on {', '.join(overturnable)}"] if overturnable else []
    return PairVerdict(within, a, b, tuple(claims), tuple(doubts))


def _sized(d: Difference) -> str:
    """The size of a difference, whatever its sign, with its 95 % CI."""
    sign = 1 if (d.difference or 0) > 0 else -1
    ci = Interval(*sorted((sign * d.ci.lo, sign * d.ci.hi))) if d.ci else None
    return f"{d.factor} by {Figure(sign * (d.difference or 0), ci, digits=in_line([ci]))}"


FOREST_PAIRS = 6
"""Pairs of models in one forest plot: more cannot be told apart."""


def forests(comparisons: Sequence[ComparisonReport]) -> Iterator[tuple[str, DotChart]]:
    """A forest plot for each judge: every paired difference that has a 95 % CI, on one axis around zero."""
    for context in dict.fromkeys(one.within for one in comparisons):
        here = [_marked(one) for one in comparisons if one.within == context and one.difference.ci is not None]
        pairs = list(dict.fromkeys((d.a, d.b) for d in here))[:FOREST_PAIRS]
        drawn = [d for d in here if (d.a, d.b) in pairs]
        if not drawn:
            continue
        ends = [abs(x) for d in drawn for x in (d.difference or 0.0, *((d.ci.lo, d.ci.hi) if d.ci else ()))]
        step = _step(max(ends))
        high = step * max(1, math.ceil(max(ends) / step))
        ticks = [step * n for n in range(-round(high / step), round(high / step) + 1)]
        dots = [Dot(d.factor, f"{d.b} − {d.a}", d.difference or 0.0, d.ci, not d.evident) for d in drawn]
        (a, b), *others = pairs
        higher = ("the second", "the first") if others else (a, b)
        sides = (f"\u2190\u00a0{higher[0]} scores higher", f"{higher[1]} scores higher\u00a0\u2192")
        note = "Filled: Holm-corrected p < .05, the CI excludes 0. Hollow: no evidence of a difference."
        yield context, DotChart("Paired differences with 95 % CI", dots, -high, high, ticks, note, sides)


def _step(largest: float) -> float:
    """A round distance between ticks, at most five on each side."""
    power = 10.0 ** math.floor(math.log10(largest / 5)) if largest > 0 else 1.0
    return next((power * n for n in (1, 2, 5) if power * n * 5 >= largest), power * 10)


def _marked(one: ComparisonReport) -> Difference:
    """As tables name it."""
    d = one.difference
    return replace(d, factor=f"{d.factor} {FALLS}") if one.direction == "down" else d


def _table(shifts: Sequence[Difference], caption: str, notes: Sequence[str], tests: int) -> Table:
    columns = ("a", "b", "factor", "edits", "failed", "mean a", "mean b", "b - a", "bounds", "p", "d", "w/t/l", "MDE")
    digits = in_line(d.ci for d in shifts)  # all of them are told as the differences are
    own = {f: in_line(d.ci for d in shifts if d.factor == f) for f in {d.factor for d in shifts}}
    if max(own.values(), default=0) - min(own.values(), default=0) < 2:  # else they are on scales of different width
        own = {}
    rows: list[tuple[Cell, ...]] = [
        (
            d.a, d.b, d.factor, d.n, _failed(d),
            *(_rounded(mean, own.get(d.factor, digits)) for mean in (d.mean_a, d.mean_b)),
            Figure(d.difference, d.ci, sign=True, digits=own.get(d.factor)),
            between(d.bounds, own.get(d.factor, digits), sign=True) if _failed(d) else None,
            p_value(d.p_holm), Figure(d.effect, sign=True),
            _won(d), _mde(d, own.get(d.factor, digits)),
        )
        for d in shifts
    ]  # fmt: skip
    legend = {
        "d": "the difference over its standard deviation between edits",
        "w/t/l": "wins, ties, losses: edits on which b scores higher, the same, lower",
        "MDE": "minimum detectable effect at 80 % power" + (", after the correction" if tests > 1 else ""),
        "failed": "judgements of a and of b that failed",
        "bounds": "b - a with every failed judgement at the end of the scale against b, and in favour of b",
    }
    spare = ("d", ("mean a", "mean b"), "w/t/l")
    table = Table.of(columns, rows, caption, notes=tuple(notes), stub=3, spare=spare, legend=legend)
    return table.folded("a", "b", "edits").trimmed("failed", "bounds")


def _failed(d: Difference) -> str:
    return f"{d.failed_a}+{d.failed_b}" if d.failed_a + d.failed_b else ""


def _rounded(value: float | None, digits: int) -> Figure:
    return Figure(value, text=None if value is None else f"{value:.{digits}f}")


def _won(d: Difference) -> Figure:
    counts = (("wins", d.wins), ("ties", d.ties), ("losses", d.losses))
    return Figure(d.wins, text="/".join(str(n) for _, n in counts), parts=counts)


def _mde(d: Difference, digits: int) -> Figure:
    """With more decimals than its neighbours where it would be 0, which no number of edits can detect."""
    while d.detectable and round(d.detectable, digits) == 0:
        digits += 1
    return _rounded(d.detectable, digits)


def _tests(shifts: Sequence[Difference]) -> int:
    return sum(d.p is not None for d in shifts if d.factor != OVERALL)


def _notes(shifts: Sequence[Difference], tests: int) -> list[str]:
    """`tests` are those that p is corrected for: of every table, if there are several."""
    pairs = {(d.a, d.b) for d in shifts}
    about = {d.factor if len(pairs) == 1 else f"{d.factor} of {d.a} and {d.b}": d.notes for d in shifts}
    test, agree = "p and 95 % CI: paired permutation test clustered by source image", "a CI excludes 0 where p < .05"
    lost = {d.abstained_a + d.abstained_b for d in shifts}
    silent = ["bounds exclude abstentions: they are about edits that can be scored"]
    notes = [*noted(about), *(silent if max(lost) and any(map(_failed, shifts)) else [])]
    if tests < 2:
        return [*notes, f"{test}; {agree}"]
    apart = f"; {OVERALL} stands apart" if any(d.factor == OVERALL for d in shifts) else ""
    return [*notes, f"{test}, Holm-corrected for all {tests} that are compared here{apart}; {agree}"]


# --- drift ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DriftReport:
    """What moved between two runs, judge by judge."""

    run: str
    against: str
    changed: tuple[str, ...]
    same_answers: int
    """Judgements that are the very same stored answer in both: nothing was asked again for them."""
    judgements: int
    pending: int
    """Judgements of either run without an answer yet."""
    judges: dict[str, Drift]
    earlier: dict[str, str]
    """What the judge of the earlier run is called, for each of these."""
    match: Match
    """Of `run` (a) and `against` (b)."""

    def as_json(self) -> dict[str, object]:
        return {
            "run": self.run,
            "against": self.against,
            "changed": list(self.changed),
            "same_answers": self.same_answers,
            "judgements": self.judgements,
            "pending": self.pending,
            "judges": plain(self.judges),
            "earlier_judges": self.earlier,
            **self.match.counts(),
        }

    def lead(self) -> list[str]:
        lines = [f"changed: {one}" for one in self.changed] or ["nothing recorded about the judging changed"]
        lines += self.match.words(self.run, self.against)
        if self.same_answers:
            share = f"{self.same_answers:,} of {self.judgements:,} judgements are the same stored answers in both runs"
            lines.append(f"{share}: they were not asked again, so they show no drift")
        return lines + [f"{self.who(judge)}: {drift.verdict}" for judge, drift in self.judges.items()]

    def who(self, judge: str) -> str:
        return judge if self.earlier[judge] == judge else f"{judge} (b) against {self.earlier[judge]} (a)"


def drifted(now: RunData, then: RunData) -> DriftReport:
    """The same edits at another time. One judge on each side is compared whatever the two are called."""
    mine, theirs = now.scores.judge.present(), then.scores.judge.present()
    pairs = [(judge, judge) for judge in mine if judge in theirs]
    if not pairs and len(mine) == len(theirs) == 1:
        pairs = [(mine[0], theirs[0])]
    if not pairs:
        raise UsageError(
            f"no judge is in both runs: {', '.join(mine) or 'none'} now, {', '.join(theirs) or 'none'} then"
        )
    after, before, match = pair_runs(now, then, "edit")
    drifts = [
        drift(
            shared(before.where(judge=old)),
            shared(after.where(judge=new)),
            provenance=(then.provenance, now.provenance),
            on="pair",
            scales=_common_scales(now, then),
        )
        for new, old in pairs
    ]
    judges = {new: one for (new, _), one in zip(pairs, corrected_together(drifts), strict=True)}
    changed = next(iter(judges.values())).changed
    same = len(now.keys & then.keys)
    pending = now.pending + then.pending
    return DriftReport(now.run.name, then.run.name, changed, same, len(now.keys), pending, judges, dict(pairs), match)


def drift_tables(report: DriftReport) -> list[Table]:
    tables = []
    for judge, one in report.judges.items():
        lost = [f"{factor}: only {report.against} has it" for factor in one.only_then]
        lost += [f"{factor}: only {report.run} has it" for factor in one.only_now]
        caption = f"Shift from {report.against} (a) to {report.run} (b); judge {report.who(judge)}"
        tests = _tests([shift for each in report.judges.values() for shift in each.shifts])
        tables.append(_table(one.shifts, caption, (*_notes(one.shifts, tests), *lost), tests))
    return tables
