"""What `compare` and `drift` say: paired differences as tables, and in words."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from editjudge.content import Match
from editjudge.errors import UsageError, near_miss
from editjudge.report.charts import Dot, DotChart
from editjudge.report.run_data import (
    FALLS,
    FALLS_NOTE,
    OVERALL,
    SPEC,
    RunData,
    aggregates,
    common_judges,
    pair_runs,
    shared,
)
from editjudge.report.tables import Cell, Figure, Table, between, in_line, noted, p_value
from editjudge.stats.columns import Column, Scores
from editjudge.stats.compare import Difference, On, compare, corrected
from editjudge.stats.drift import Drift, corrected_together, drift
from editjudge.stats.permutation import ALPHA
from editjudge.stats.statistic import plain

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
    found = []
    for context in within.present():
        for pair in pairs:
            a_side, b_side = (scores.take(names.where(name) & within.where(context)) for name in pair)
            if len(a_side) and len(b_side):
                found += [(context, d) for d in compare(a_side, b_side, names=pair, on=on, scales=scales)]
    return _families(found, judged)


def _families(found: Sequence[tuple[str, Difference]], judged: RunData) -> list[ComparisonReport]:
    sums = judged.set_scores | {OVERALL}
    factors = [one for one in found if one[1].factor not in sums]
    apart = [one for one in found if one[1].factor in sums]
    return [
        _falling(context, d) if d.factor in judged.falling else ComparisonReport(context, d)
        for family in (factors, apart)
        for (context, _), d in zip(family, corrected([d for _, d in family]), strict=True)
    ]


def _falling(context: str, d: Difference) -> ComparisonReport:
    return ComparisonReport(context, replace(d, verdict=f"{d.verdict}; lower is better") if _evident(d) else d, "down")


def run_differences(a: RunData, b: RunData, *, factors: Sequence[str] = ()) -> tuple[list[ComparisonReport], Match]:
    """B minus A on what both had to edit. `overall` stands apart: it is not corrected for with the factors."""
    judges = common_judges(a, b)
    a_scores, b_scores, found = pair_runs(a, b, "task")
    a, b = replace(a, scores=shared(a_scores)), replace(b, scores=shared(b_scores))
    return _families(_between(a, b, judges, factors), b), found


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


def compare_tables(found: Sequence[ComparisonReport], by: By) -> list[Table]:
    """One table for each judge, or what else both sides share."""
    tables = []
    for context in dict.fromkeys(one.within for one in found):
        here = [_marked(one) for one in found if one.within == context]
        falls = [FALLS_NOTE] if any(one.direction == "down" for one in found if one.within == context) else []
        shared = {"model": "judge", "judge": "rubric", "rubric": "judge", "run": "judge"}[by]
        caption = f"Differences by {by}, b minus a, paired by edit; {shared} {context}"
        tests = _tests([one.difference for one in found])
        tables.append(_table(here, caption, (*falls, *_notes(here, tests)), tests))
    return tables


def comparison_document(judged: RunData, by: By, found: Sequence[ComparisonReport]) -> dict[str, object]:
    """For programs: differences inside one run."""
    about = {"run": judged.run.name, "by": by, "of": judged.of, "pending": judged.pending}
    return {**about, "comparisons": [one.as_json() for one in found]}


def runs_document(a: RunData, b: RunData, match: Match, found: Sequence[ComparisonReport]) -> dict[str, object]:
    """For programs: one run's edits against another's."""
    names = {"run_a": a.run.name, "run_b": b.run.name, "by": "run", "of": a.of}
    pending = {"pending": a.pending + b.pending, "pending_a": a.pending, "pending_b": b.pending}
    return {**names, **match.counts(), **pending, "comparisons": [one.as_json() for one in found]}


def conclusions(found: Sequence[ComparisonReport], *, sizes: bool = False) -> list[str]:
    """What each pair differs in, in words; `sizes` adds by how much, and which difference could have been shown."""
    contexts = list(dict.fromkeys(one.within for one in found))
    return [
        f"{context}: {verdict}" if len(contexts) > 1 else verdict
        for context in contexts
        for verdict in _verdicts([_marked(one) for one in found if one.within == context], sizes)
    ]


FOREST_PAIRS = 6
"""Pairs of models in one forest plot: more cannot be told apart."""


def forests(found: Sequence[ComparisonReport]) -> Iterator[tuple[str, DotChart]]:
    """A forest plot for each judge: every paired difference with its 95 % CI, on one axis around zero."""
    for context in dict.fromkeys(one.within for one in found):
        here = [_marked(one) for one in found if one.within == context and one.difference.difference is not None]
        pairs = list(dict.fromkeys((d.a, d.b) for d in here))[:FOREST_PAIRS]
        drawn = [d for d in here if (d.a, d.b) in pairs]
        if not drawn:
            continue
        ends = [abs(x) for d in drawn for x in (d.difference or 0.0, *((d.ci.lo, d.ci.hi) if d.ci else ()))]
        step = _step(max(ends))
        high = step * max(1, math.ceil(max(ends) / step))
        ticks = [step * n for n in range(-round(high / step), round(high / step) + 1)]
        dots = [Dot(d.factor, f"{d.b} − {d.a}", d.difference or 0.0, d.ci) for d in drawn]
        title = "Paired differences with 95 % CI; right of 0: the first one scores higher"
        yield context, DotChart(title, dots, -high, high, ticks)


def _step(largest: float) -> float:
    """A round distance between ticks, at most five on each side."""
    power = 10.0 ** math.floor(math.log10(largest / 5)) if largest > 0 else 1.0
    return next((power * n for n in (1, 2, 5) if power * n * 5 >= largest), power * 10)


def _marked(one: ComparisonReport) -> Difference:
    """As tables name it."""
    d = one.difference
    return replace(d, factor=f"{d.factor} {FALLS}") if one.direction == "down" else d


def _table(found: Sequence[Difference], caption: str, notes: Sequence[str], tests: int) -> Table:
    columns = ("a", "b", "factor", "edits", "failed", "mean a", "mean b", "b - a", "bounds", "p", "d", "w/t/l", "MDE")
    digits = in_line(d.ci for d in found)  # all of them are told as the differences are
    own = {f: in_line(d.ci for d in found if d.factor == f) for f in {d.factor for d in found}}
    if max(own.values(), default=0) - min(own.values(), default=0) < 2:  # else they are on scales of different width
        own = {}
    rows: list[tuple[Cell, ...]] = [
        (
            d.a, d.b, d.factor, d.n, _failed(d),
            *(_rounded(mean, own.get(d.factor, digits)) for mean in (d.mean_a, d.mean_b)),
            Figure(d.difference, d.ci, sign=True, digits=own.get(d.factor)),
            between(d.bounds, own.get(d.factor, digits), sign=True) if _failed(d) else None,
            p_value(d.p_holm), Figure(d.effect, sign=True),
            Figure(d.wins, text=f"{d.wins}/{d.ties}/{d.losses}"), _rounded(d.detectable, own.get(d.factor, digits)),
        )
        for d in found
    ]  # fmt: skip
    legend = {
        "d": "the difference over its standard deviation between edits",
        "w/t/l": "edits on which b scores higher, the same, lower",
        "MDE": "minimum detectable effect at 80 % power" + (", after the correction" if tests > 1 else ""),
        "failed": "judgements of a and of b that failed",
        "bounds": "b - a with all that failed at the ends of the scale, against b and for it",
    }
    spare = ("d", ("mean a", "mean b"), "w/t/l")
    table = Table.of(columns, rows, caption, notes=tuple(notes), stub=3, spare=spare, legend=legend)
    return table.folded("a", "b", "edits").trimmed("failed", "bounds")


def _failed(d: Difference) -> str:
    return f"{d.failed_a}+{d.failed_b}" if d.failed_a + d.failed_b else ""


def _rounded(value: float | None, digits: int) -> Figure:
    return Figure(value, text=None if value is None else f"{value:.{digits}f}")


def _sized(d: Difference) -> str:
    if d.difference is None:
        return d.factor
    digits = in_line([d.ci])
    # The CI holds for any distribution and is wider than the test: where it includes 0, p is what the claim rests on.
    excludes = d.ci is not None and not d.ci.lo <= 0 <= d.ci.hi
    certain = f" [{_low(d):.{digits}f}, {_high(d):.{digits}f}]" if excludes else f" (p {p_value(d.p_holm)})"
    return f"{d.factor} by {abs(d.difference):.{digits}f}{certain}"


def _low(d: Difference) -> float:
    """Of the size of a difference, whatever its sign."""
    return 0.0 if d.ci is None else d.ci.lo if (d.difference or 0) > 0 else -d.ci.hi


def _high(d: Difference) -> float:
    return 0.0 if d.ci is None else d.ci.hi if (d.difference or 0) > 0 else -d.ci.lo


def _shown(d: Difference) -> str:
    return f"{d.factor} ({d.n} edits could show {d.detectable:.2g})" if d.detectable is not None else d.factor


def _verdicts(found: Sequence[Difference], sizes: bool = False) -> list[str]:
    """For each pair: what is higher, what is lower, and where there is no evidence."""
    told = []
    for a, b in dict.fromkeys((d.a, d.b) for d in found):
        here = [d for d in found if (d.a, d.b) == (a, b)]
        size, could = (_sized, _shown) if sizes else (_factor, _factor)
        higher = [size(d) for d in here if _evident(d) and (d.difference or 0) > 0]
        lower = [size(d) for d in here if _evident(d) and (d.difference or 0) < 0]
        never = [d.factor for d in here if d.difference is None]
        unclear = [could(d) for d in here if not _evident(d) and d.difference is not None]
        words = {"scores higher than": higher, "scores lower than": lower}
        parts = [f"{b} {word} {a} on {', '.join(factors)}" for word, factors in words.items() if factors]
        parts += [f"inconclusive, no evidence of a difference on {', '.join(unclear)}"] if unclear else []
        parts += [f"cannot be compared on {', '.join(never)}"] if never else []
        doubtful = [d.factor for d in here if d.overturnable]
        parts += [f"what failed could overturn this on {', '.join(doubtful)}"] if doubtful else []
        told.append(f"{a} and {b}: {'; '.join(parts)}" if len(parts) > 1 or not (higher or lower) else parts[0])
    return told


def _factor(d: Difference) -> str:
    return d.factor


def _evident(d: Difference) -> bool:
    return d.p_holm is not None and d.p_holm < ALPHA


def _tests(found: Sequence[Difference]) -> int:
    return sum(d.p is not None for d in found if d.factor != OVERALL)


def _notes(found: Sequence[Difference], tests: int) -> list[str]:
    """`tests` are those that p is corrected for: of every table, if there are several."""
    pairs = {(d.a, d.b) for d in found}
    about = {d.factor if len(pairs) == 1 else f"{d.factor} of {d.a} and {d.b}": d.notes for d in found}
    test = "p: paired permutation test clustered by source image"
    limits = "b - a: 95 % CI (Gaffke's bound), each for one comparison alone"
    lost = {d.abstained_a + d.abstained_b for d in found}
    silent = ["bounds leave out what was abstained from: they are about edits that can be scored"]
    notes = [*noted(about), *(silent if max(lost) and any(map(_failed, found)) else [])]
    if tests < 2:
        return [*notes, test, limits]
    apart = f"; {OVERALL} stands apart" if any(d.factor == OVERALL for d in found) else ""
    return [
        *notes,
        f"{test}, Holm-corrected for all {tests} that are compared here{apart}",
        f"{limits}; the verdict follows the Holm-corrected p, not the CI",
    ]


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
            lines.append(f"{share}: they were not asked again and cannot have moved")
        return lines + [f"{self.who(judge)}: {found.verdict}" for judge, found in self.judges.items()]

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
    after, before, found = pair_runs(now, then, "edit")
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
    return DriftReport(now.run.name, then.run.name, changed, same, len(now.keys), pending, judges, dict(pairs), found)


def drift_tables(found: DriftReport) -> list[Table]:
    tables = []
    for judge, one in found.judges.items():
        lost = [f"{factor}: {found.against} alone has it" for factor in one.only_then]
        lost += [f"{factor}: {found.run} alone has it" for factor in one.only_now]
        caption = f"Shift from {found.against} (a) to {found.run} (b); judge {found.who(judge)}"
        tests = _tests([shift for each in found.judges.values() for shift in each.shifts])
        tables.append(_table(one.shifts, caption, (*_notes(one.shifts, tests), *lost), tests))
    return tables
