"""Reports of `compare` and `drift`: paired differences as tables, and in words."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from editjudge.errors import Option, UsageError, near_miss
from editjudge.matching import Match
from editjudge.report.charts import Dot, DotChart
from editjudge.report.run_data import (
    FALLS,
    FALLS_NOTE,
    SPEC,
    RunData,
    aggregates,
    pair_runs,
    shared,
)
from editjudge.report.selection import (
    EVERYTHING,
    Choice,
    Primary,
    deciding,
    deciding_both,
)
from editjudge.report.tables import (
    Cell,
    Figure,
    Table,
    between,
    figure_text,
    in_line,
    noted,
    p_value,
)
from editjudge.report.words import changes, drift_verdict, plain, words
from editjudge.running.sums import OVERALL
from editjudge.stats.columns import Column, Interval, Scores
from editjudge.stats.compare import (
    Difference,
    Drift,
    On,
    compare,
    corrected,
    corrected_together,
    drift,
)

By = Literal["model", "judge", "rubric", "run"]
Family = Literal["primary", "exploratory"]


@dataclass(frozen=True)
class ComparisonReport:
    """One difference, and what both sides have in common: a judge, or a rubric."""

    within: str
    difference: Difference
    direction: Literal["up", "down"] = "up"
    """`down` where a lower score is the better one."""
    family: Family = "exploratory"
    declared: bool = False
    """Whether the score was named as primary before the run (`run --primary`)."""

    def as_json(self) -> dict[str, object]:
        document: dict[str, object] = {"within": self.within, **plain(self.difference)}
        if self.direction == "down" and self.difference.evident:
            document["verdict"] = f"{document['verdict']}; lower is better"
        return document | {
            "direction": self.direction,
            "family": self.family,
            "declared": self.declared,
        }


def differences(
    judged: RunData,
    by: By = "model",
    a: str | None = None,
    b: str | None = None,
    choice: Choice = EVERYTHING,
) -> list[ComparisonReport]:
    """Compare a pair (both named), one with each other (one named) or every pair (none named).

    Models are compared by the panel's mean unless a judge is chosen. Primary scores are corrected together, the
    factors of a rubric with each other.
    """
    judge = choice.judge
    if by == "judge" and judge is not None:
        raise UsageError(
            "--judge names the judge that decides; to compare judges, name them with --a and --b",
            options=[Option("judge"), Option("a"), Option("b")],
        )
    if by == "model" or judge is not None:
        judged = deciding(judged, judge)
    primary = Primary.of(judged, choice.primary)
    scores = _chosen(judged, choice.factors, primary)
    scales = judged.all_scales()
    names, within, on = _sides(scores, by)
    pairs = _pairs(names.present(), by, a, b)
    rows = []
    for context in within.present():
        for pair in pairs:
            a_side, b_side = (
                scores.take(names.where(name) & within.where(context)) for name in pair
            )
            if len(a_side) and len(b_side):
                compared = compare(
                    a_side,
                    b_side,
                    names=pair,
                    on=on,
                    scales=scales,
                    guaranteed=choice.guaranteed,
                )
                rows += [(context, d) for d in compared]
    return _families(rows, judged, primary)


def _families(
    rows: Sequence[tuple[str, Difference]], judged: RunData, primary: Primary
) -> list[ComparisonReport]:
    """Correct the primary scores together, and the factors of each rubric with each other."""
    rubric_of = {
        factor: rubric
        for rubric, factors in judged.rubrics.items()
        for factor in factors
    }
    families: dict[tuple[str, ...], list[tuple[str, Difference]]] = {("primary",): []}
    for context, d in rows:
        exploratory = ("exploratory", context, rubric_of.get(d.factor, ""))
        families.setdefault(
            ("primary",) if d.factor in primary.names else exploratory, []
        ).append((context, d))
    reports = []
    for key, family in families.items():
        for (context, _), d in zip(
            family, corrected([d for _, d in family]), strict=True
        ):
            falls = d.factor in judged.falling
            reports.append(
                ComparisonReport(
                    context,
                    d,
                    "down" if falls else "up",
                    "primary" if key == ("primary",) else "exploratory",
                    primary.how == "declared" and key == ("primary",),
                )
            )
    return reports


def run_differences(
    a: RunData, b: RunData, choice: Choice = EVERYTHING
) -> tuple[list[ComparisonReport], Match]:
    """Compare B with A on what both had to edit; `same_rubrics` returned both."""
    a_scores, b_scores, match = pair_runs(a, b, "task")
    a = replace(a, scores=shared(a_scores))
    b = replace(b, scores=shared(b_scores))
    a, b, judges = deciding_both(a, b, choice.judge)
    primary = Primary.of(b, choice.primary)
    names = (a.run.name, b.run.name)
    if a.run.name == b.run.name:
        names = (f"{a.run.name} (a)", f"{b.run.name} (b)")
    x = _chosen(a, choice.factors, primary)
    y = _chosen(b, choice.factors, primary)
    scales = _common_scales(a, b)
    rows = []
    for mine, theirs in judges.items():
        compared = compare(
            x.where(judge=mine),
            y.where(judge=theirs),
            names=names,
            on="pair",
            scales=scales,
            guaranteed=choice.guaranteed,
        )
        # A mean of other factors is another figure.
        other = set(aggregates(a, mine)) ^ set(aggregates(b, theirs))
        differing = {one.name for one in other}
        rows += [(mine, d) for d in compared if d.factor not in differing]
    return _families(rows, b, primary), match


def _common_scales(a: RunData, b: RunData) -> dict[str, tuple[float, ...]]:
    other = b.all_scales()
    return {
        factor: scale
        for factor, scale in a.all_scales().items()
        if other.get(factor) == scale
    }


def _chosen(judged: RunData, factors: Sequence[str], primary: Primary) -> Scores:
    """The scores that were asked for; else the primary ones and all factors."""
    if not factors:
        return judged.with_aggregates(primary.names)[0]
    scores, _ = judged.with_aggregates()
    known = scores.factor.present()
    for name in factors:
        if name not in known:
            raise UsageError(
                f"the run has no factor {name!r}{near_miss(name, known)} It has {', '.join(known)}"
            )
    return scores.where(factor=factors)


def _sides(scores: Scores, by: By) -> tuple[Column, Column, On]:
    if by == "model":
        return scores.model, scores.judge, "pair"
    if by == "judge":
        return scores.slices[SPEC], scores.slices["rubric"], "item"
    return scores.slices["rubric"], scores.slices[SPEC], "item"


def _pairs(
    names: Sequence[str], by: By, a: str | None, b: str | None
) -> list[tuple[str, str]]:
    for name in (a, b):
        if name is not None and name not in names:
            raise UsageError(
                f"the run has no {by} {name!r}{near_miss(name, names)} It has {', '.join(names)}"
            )
    if a is not None and a == b:
        raise UsageError(
            f"--a and --b are the same {by}", options=[Option("a"), Option("b")]
        )
    if len(names) < 2:
        which = f"one {by} ({names[0]})" if names and names[0] else f"no {by} named"
        raise UsageError(
            f"nothing to compare: the run has {which}; see --by", options=[Option("by")]
        )
    if a is not None and b is not None:
        return [(a, b)]
    if a is not None or b is not None:
        return [
            (a, n) if a is not None else (n, str(b)) for n in names if n not in (a, b)
        ]
    return list(itertools.combinations(names, 2))


def compare_tables(comparisons: Sequence[ComparisonReport], by: By) -> list[Table]:
    """Show primary scores first, then factors; a table for each judge, or what else both sides share."""
    tables = []
    shared = {"model": "judge", "judge": "rubric", "rubric": "judge", "run": "judge"}[
        by
    ]
    for family, title in (
        ("primary", "Primary scores"),
        ("exploratory", "Factors (exploratory)"),
    ):
        members = [one for one in comparisons if one.family == family]
        for context in dict.fromkeys(one.within for one in members):
            reports = [one for one in members if one.within == context]
            here = [_marked(one) for one in reports]
            rows = [d for d in here if d.n or _failed(d)] or here
            falls = (
                [FALLS_NOTE] if any(one.direction == "down" for one in reports) else []
            )
            caption = f"{title} by {by}, b minus a, paired by edit; {shared} {context}"
            tables.append(
                _table(
                    rows,
                    caption,
                    (*falls, *_notes(here, _corrected_over(members, context))),
                )
            )
    return tables


def _corrected_over(members: Sequence[ComparisonReport], context: str) -> str:
    """Say what p is corrected for."""
    tests = sum(one.difference.p is not None for one in members)
    if members[0].family == "primary":
        declared = "declared before the run" if members[0].declared else ""
        over = f"Holm-corrected over {tests} primary comparisons" if tests > 1 else ""
        return ", ".join(filter(None, (over, declared)))
    several = (
        sum(one.difference.p is not None for one in members if one.within == context)
        > 1
    )
    return (
        "Holm-corrected within each rubric; exploratory: the primary scores decide"
        if several
        else ""
    )


@dataclass(frozen=True)
class PairVerdict:
    """Verdict of one judge on two models, runs, judges or rubrics, in words."""

    within: str
    a: str
    b: str
    claims: tuple[str, ...]
    """Each difference that is evident, with its size and CI."""
    doubts: tuple[str, ...]
    """Cases without evidence, with nothing to compare, or where what failed could overturn a claim."""

    @property
    def lines(self) -> tuple[str, ...]:
        first, *others = (*self.claims, *self.doubts)
        return (first if self.claims else f"{self.a} and {self.b}: {first}", *others)


def conclusions(comparisons: Sequence[ComparisonReport]) -> list[str]:
    """A few lines for each pair, with the judge's name where there are several."""
    several = len({one.within for one in comparisons}) > 1
    verdicts = pair_verdicts(comparisons)
    return [
        f"{one.within}: {line}" if several else line
        for one in verdicts
        for line in one.lines
    ]


def pair_verdicts(comparisons: Sequence[ComparisonReport]) -> list[PairVerdict]:
    pairs: dict[tuple[str, str, str], list[ComparisonReport]] = {}
    for one in comparisons:
        pairs.setdefault((one.within, one.difference.a, one.difference.b), []).append(
            one
        )
    return [_pair_verdict(*pair, reports) for pair, reports in pairs.items()]


def _pair_verdict(
    within: str, a: str, b: str, reports: Sequence[ComparisonReport]
) -> PairVerdict:
    primary = [_marked(one) for one in reports if one.family == "primary"]
    never = [d.factor for d in primary if d.difference is None]
    decides = len(never) < len(primary)
    rows = sorted(
        primary if decides else map(_marked, reports), key=lambda d: d.factor != OVERALL
    )
    claims = _claims(a, b, rows)
    doubts = []
    if rows and all(d.method == "identity" for d in rows):
        doubts.append("the same answers on both sides: there is no difference to test")
    unclear = [
        d
        for d in rows
        if d.difference is not None and not d.evident and d.method != "identity"
    ]
    if unclear:
        doubts.append(f"no evidence of a difference on {_undecided(unclear)}")
    never = [d.factor for d in rows if d.difference is None]
    if never:
        doubts.append(
            f"not compared, because no input has a score for both: {', '.join(never)}"
        )
    overturnable = [
        d.factor for d in rows if d.overturnable and d.difference is not None
    ]
    if overturnable:
        doubts.append(
            f"failed judgements could overturn this on {', '.join(overturnable)}"
        )
    if decides:
        others = [
            _marked(one)
            for one in reports
            if one.family == "exploratory" and one.difference.evident
        ]
        doubts += [f"exploratory: {claim}" for claim in _claims(a, b, others)]
    return PairVerdict(within, a, b, tuple(claims), tuple(doubts))


def _claims(a: str, b: str, rows: Sequence[Difference]) -> list[str]:
    claims = []
    for side, sign in (("higher", 1), ("lower", -1)):
        evident = [d for d in rows if d.evident and sign * (d.difference or 0) > 0]
        if evident:
            n = _span([d.n for d in evident])
            sizes = ", ".join(map(_sized, evident))
            claims.append(
                f"{b} scores {side} than {a} on {sizes} ({_levels(evident)} CI, n = {n})"
            )
    return claims


def _undecided(rows: Sequence[Difference]) -> str:
    """Name the scores, and what they could have shown."""
    parts = []
    for d in rows:
        limit = (
            f"MDE {_mde(d, max(FEWEST_DECIMALS, in_line([d.ci])))}"
            if d.detectable is not None
            else ""
        )
        parts.append(f"{d.factor} ({limit})" if limit else d.factor)
    reasons = dict.fromkeys(
        words(d.detectable_reason)
        for d in rows
        if d.detectable is None and d.detectable_reason
    )
    why = f"; {'; '.join(reasons)}" if reasons else ""
    power = (
        f", MDE at 80 % power and {_level(rows[0].level)}"
        if any(d.detectable is not None for d in rows)
        else ""
    )
    return f"{', '.join(parts)}; n = {_span([d.n for d in rows])}{power}{why}"


def _span(numbers: Sequence[int]) -> str:
    low = min(numbers)
    high = max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _levels(rows: Sequence[Difference]) -> str:
    levels = [d.level for d in rows]
    return " to ".join(dict.fromkeys(_level(one) for one in (min(levels), max(levels))))


def _level(level: float) -> str:
    """A level of confidence as text: 95 %, or 98.3 %."""
    return f"{100 * level:.3g} %"


def _sized(d: Difference) -> str:
    """The size of a difference as the table shows it, whatever its sign, with its CI."""
    sign = 1 if (d.difference or 0) > 0 else -1
    ci = Interval(*sorted((sign * d.ci.lo, sign * d.ci.hi))) if d.ci else None
    digits = max(FEWEST_DECIMALS, in_line([ci]))
    return f"{d.factor} by {figure_text(abs(_shown_gap(d, digits)), ci, digits=digits)}"


FOREST_PAIRS = 6
"""Pairs of models in one forest plot: more cannot be told apart."""


def forests(comparisons: Sequence[ComparisonReport]) -> Iterator[tuple[str, DotChart]]:
    """A forest plot for each judge: every paired difference that has a CI, on one axis around zero."""
    for context in dict.fromkeys(one.within for one in comparisons):
        here = [
            _marked(one)
            for one in comparisons
            if one.within == context and one.difference.ci is not None
        ]
        pairs = list(dict.fromkeys((d.a, d.b) for d in here))[:FOREST_PAIRS]
        drawn = [d for d in here if (d.a, d.b) in pairs]
        if not drawn:
            continue
        ends = [
            abs(x)
            for d in drawn
            for x in (d.difference or 0.0, *((d.ci.lo, d.ci.hi) if d.ci else ()))
        ]
        step = _step(max(ends))
        high = step * max(1, math.ceil(max(ends) / step))
        ticks = [step * n for n in range(-round(high / step), round(high / step) + 1)]
        dots = [
            Dot(d.factor, f"{d.b} − {d.a}", d.difference or 0.0, d.ci, not d.evident)
            for d in drawn
        ]
        (a, b), *others = pairs
        higher = ("the second", "the first") if others else (a, b)
        sides = (
            f"\u2190\u00a0{higher[0]} scores higher",
            f"{higher[1]} scores higher\u00a0\u2192",
        )
        note = "Filled: Holm-corrected p < .05, the CI excludes 0. Hollow: no evidence of a difference."
        bounded = [d.factor for d in drawn if d.method == "guaranteed"]
        if bounded:
            note += f" Guaranteed bounds, wider than a bootstrap: {', '.join(dict.fromkeys(bounded))}."
        yield (
            context,
            DotChart(
                f"Paired differences with {_levels(drawn)} CI",
                dots,
                -high,
                high,
                ticks,
                note,
                sides,
            ),
        )


def _step(largest: float) -> float:
    """A round distance between ticks, at most five on each side."""
    power = 10.0 ** math.floor(math.log10(largest / 5)) if largest > 0 else 1.0
    return next((power * n for n in (1, 2, 5) if power * n * 5 >= largest), power * 10)


def _marked(one: ComparisonReport) -> Difference:
    """Return a difference with its factor as tables name it."""
    d = one.difference
    return replace(d, factor=f"{d.factor} {FALLS}") if one.direction == "down" else d


_LEGEND = {
    "d": "the difference over its standard deviation between edits",
    "w/t/l": "wins, ties, losses: edits on which b scores higher, the same, lower",
    "MDE": "minimum detectable effect, the smallest difference that is found with 80 % power",
    "failed": "judgements of a and of b that failed",
    "bounds": "b - a with every failed judgement at the end of the scale against b, and in favour of b",
}


def _table(shifts: Sequence[Difference], caption: str, notes: Sequence[str]) -> Table:
    columns = (
        "a", "b", "factor", "edits", "failed", "mean a", "mean b", "b - a", "bounds", "p", "d", "w/t/l", "MDE", "method"
    )  # fmt: skip
    digits = _digits(shifts)
    guaranteed = any(d.method != "studentised" for d in shifts)
    rows: list[tuple[Cell, ...]] = []
    for d in shifts:
        own = digits[d.factor]
        rows.append(
            (
                d.a,
                d.b,
                d.factor,
                d.n,
                _failed(d),
                _rounded(d.mean_a, own),
                _rounded(d.mean_b, own),
                Figure(d.difference, d.ci, sign=True, text=_gap_text(d, own)),
                between(d.bounds, own, sign=True) if _failed(d) else None,
                p_value(d.p_holm),
                Figure(d.effect, sign=True),
                _won(d),
                _mde(d, own),
                d.method if guaranteed else None,
            )
        )
    spare = ("d", ("mean a", "mean b"), "w/t/l")
    table = Table.of(
        columns, rows, caption, notes=tuple(notes), stub=3, spare=spare, legend=_LEGEND
    )
    return table.folded("a", "b", "edits").trimmed("failed", "bounds", "method", "MDE")


def comparison_rows(comparisons: Sequence[ComparisonReport]) -> Table:
    """Every difference in one table at full precision, for a data frame."""
    columns = (
        "within", "family", "a", "b", "factor", "edits", "images", "mean a", "mean b", "b - a", "p", "p_holm", "level",
        "method", "d", "w/t/l", "MDE",
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for one in comparisons:
        d = one.difference
        gap = Figure(d.difference, d.ci, sign=True)
        about = (one.within, one.family, d.a, d.b, d.factor, d.n, d.groups)
        rows.append(
            (
                *about,
                d.mean_a,
                d.mean_b,
                gap,
                d.p,
                d.p_holm,
                d.level,
                d.method,
                d.effect,
                _won(d),
                d.detectable,
            )
        )
    return Table.of(columns, rows)


FEWEST_DECIMALS = 2
"""Differences of .1 to .4 decide: with one decimal, means of 6.4 and 6.6 would be 6 and 7 and their difference 0."""


def _digits(shifts: Sequence[Difference]) -> dict[str, int]:
    """Decimals by factor: the same for all, unless factors are on scales of different width."""
    own = {
        f: in_line(d.ci for d in shifts if d.factor == f)
        for f in {d.factor for d in shifts}
    }
    if max(own.values(), default=0) - min(own.values(), default=0) < 2:
        own = dict.fromkeys(own, in_line(d.ci for d in shifts))
    return {factor: max(FEWEST_DECIMALS, digits) for factor, digits in own.items()}


def _gap_text(d: Difference, digits: int) -> str:
    """The difference of the two means as they are shown, so that the row adds up, with its interval."""
    return (
        "-"
        if d.difference is None
        else figure_text(_shown_gap(d, digits), d.ci, sign=True, digits=digits)
    )


def _shown_gap(d: Difference, digits: int) -> float:
    return round(d.mean_b or 0.0, digits) - round(d.mean_a or 0.0, digits)


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


_METHODS = {
    "studentised": "bootstrap-t over source images",
    "guaranteed": "guaranteed: a bound that allows for any score of the scale that was not seen",
    "identity": "identity: both sides are the same answers",
}


def _notes(shifts: Sequence[Difference], correction: str = "") -> list[str]:
    pairs = {(d.a, d.b) for d in shifts}
    about = {
        d.factor if len(pairs) == 1 else f"{d.factor} of {d.a} and {d.b}": _own_notes(d)
        for d in shifts
    }
    notes = [*noted(about)]
    abstained = any(d.abstained_a + d.abstained_b for d in shifts)
    if abstained and any(map(_failed, shifts)):
        notes.append(
            "bounds exclude abstentions: they are about edits that can be scored"
        )
    methods = dict.fromkeys(_METHODS[d.method] for d in shifts if d.method in _METHODS)
    tested = [d for d in shifts if d.ci is not None]
    if not tested:
        return notes
    how = f"p, CI and MDE by {', or '.join(methods)}"
    notes.append(
        "; ".join(
            filter(
                None,
                (
                    how,
                    correction,
                    f"CI and MDE at {_levels(tested)}",
                    "a CI excludes 0 where p < .05",
                ),
            )
        )
    )
    return notes


def _own_notes(d: Difference) -> tuple[str, ...]:
    reasons = dict.fromkeys(d.notes)
    if d.n and d.detectable_reason:
        reasons[d.detectable_reason] = None
    return tuple(map(words, reasons))


# --- drift ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DriftReport:
    """Shifts between two runs, judge by judge."""

    run: str
    against: str
    changed: Sequence[str]
    same_answers: int
    """Judgements that are the very same stored answer in both: nothing was asked again for them."""
    judgements: int
    pending: int
    """Judgements of either run without an answer yet."""
    judges: dict[str, Drift]
    earlier: dict[str, str]
    """Name of the judge of the earlier run, for each of these."""
    match: Match
    """Pairing of `run` (a) and `against` (b)."""

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
        lines = [f"changed: {one}" for one in self.changed] or [
            "nothing recorded about the judging changed"
        ]
        lines += self.match.describe(self.run, self.against)
        if self.same_answers:
            share = f"{self.same_answers:,} of {self.judgements:,} judgements are the same stored answers in both runs"
            lines.append(f"{share}: they were not asked again, so they show no drift")
        return lines + [
            f"{self.who(judge)}: {drift_verdict(drift)}"
            for judge, drift in self.judges.items()
        ]

    def who(self, judge: str) -> str:
        return (
            judge
            if self.earlier[judge] == judge
            else f"{judge} (b) against {self.earlier[judge]} (a)"
        )


def drifted(now: RunData, then: RunData) -> DriftReport:
    """The same edits at another time. One judge on each side is compared whatever the two are called."""
    mine = now.scores.judge.present()
    theirs = then.scores.judge.present()
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
    judges = {
        new: one
        for (new, _), one in zip(pairs, corrected_together(drifts), strict=True)
    }
    changed = changes(next(iter(judges.values())))
    same = len(now.keys & then.keys)
    pending = now.pending + then.pending
    return DriftReport(
        now.run.name,
        then.run.name,
        changed,
        same,
        len(now.keys),
        pending,
        judges,
        dict(pairs),
        match,
    )


def drift_tables(report: DriftReport) -> list[Table]:
    tables = []
    for judge, one in report.judges.items():
        lost = [f"{factor}: only {report.against} has it" for factor in one.only_then]
        lost += [f"{factor}: only {report.run} has it" for factor in one.only_now]
        caption = f"Shift from {report.against} (a) to {report.run} (b); judge {report.who(judge)}"
        tests = sum(
            shift.p is not None
            for each in report.judges.values()
            for shift in each.shifts
        )
        correction = f"Holm-corrected over {tests} comparisons" if tests > 1 else ""
        tables.append(
            _table(one.shifts, caption, (*_notes(one.shifts, correction), *lost))
        )
    return tables
