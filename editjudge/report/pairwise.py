"""What a run of pairs says: win rates, ties, flips and strengths of models."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from editjudge.judgement import unread
from editjudge.report.charts import Dot, DotChart
from editjudge.report.tables import PROSE, Cell, Figure, Table, covered, noted
from editjudge.stats.pairwise import ModelRecord, PairwiseSummary, Share, summarise
from editjudge.stats.statistic import plain
from editjudge.store.pairs import PairAnswers, pair_answers, ranking_factor
from editjudge.store.records import PENDING, RunRecord
from editjudge.store.store import Store

if TYPE_CHECKING:
    from editjudge.store.shards import Shards


@dataclass(frozen=True)
class PairOrigin:
    """Whose the two outputs of a pair are, and which source image they share."""

    model_a: str
    model_b: str
    group: str


@dataclass(frozen=True)
class PairRun:
    """A run of pairs, read once."""

    run: RunRecord
    answers: Sequence[PairAnswers]
    origins: Mapping[str, PairOrigin]
    """By the id of the pair."""

    @property
    def judges(self) -> list[str]:
        return list(dict.fromkeys(pair.judge for pair in self.answers))

    def factors(self, judge: str) -> list[str]:
        """The one that ranks first."""
        mine = [pair for pair in self.answers if pair.judge == judge]
        keys = list(dict.fromkeys(factor for pair in mine for factor in pair.answers))
        lead = ranking_factor(mine)
        return [lead, *(key for key in keys if key != lead)]

    def summary(self, judge: str, factor: str) -> PairwiseSummary:
        mine = [pair for pair in self.answers if pair.judge == judge and factor in pair.answers]
        origins = [self.origins[pair.item] for pair in mine]
        both = any(len(pair.orders) > 1 for pair in mine)
        first = [pair.answers[factor].get("ab" if both else pair.orders[0]) for pair in mine]
        return summarise(
            [one.model_a for one in origins],
            [one.model_b for one in origins],
            first,
            [pair.answers[factor].get("ba") for pair in mine] if both else None,
            group=[one.group for one in origins],
        )

    def lead(self) -> list[str]:
        """The run's judgements by status, before any figure."""
        counts = Counter(status for pair in self.answers for some in pair.statuses.values() for status in some)
        outcome = ", ".join(f"{n:,} {status}" for status, n in counts.most_common()) or "none"
        run = self.run
        sizes = f"{len(self.origins):,} pairs, {counts.total():,} judgements"
        lines = [f"run {run.name} ({run.id}), {run.state}: {sizes}: {outcome}"]
        if counts[PENDING]:
            again = f"editjudge runs again {shlex.quote(run.name)}"
            lines.append(
                f"{counts[PENDING]:,} judgements are pending: their pairs have no verdict; finish with `{again}`"
            )
        if words := unread(pair.judge for pair in self.answers):
            lines.append(words)
        return lines


def load_pairs(store: Store | Shards, word: str) -> PairRun | None:
    """The run of this name or id; None where it asked about no pairs."""
    run = store.find_run(word)
    answers = pair_answers(store, run)
    if not answers:
        return None
    origins = {
        item.item: PairOrigin(
            str(item.metadata.get("model_a") or ""), str(item.metadata.get("model_b") or ""), item.group or item.item
        )
        for item in store.items(run)
    }
    return PairRun(run, answers, origins)


@dataclass(frozen=True)
class PairReport:
    """The figures of every judge and factor."""

    pairs: PairRun
    summaries: Mapping[str, Mapping[str, PairwiseSummary]]
    """By judge and factor, the one that ranks first."""

    def lead(self) -> list[str]:
        """A judge whose verdicts say nothing is said before anything else."""
        useless = [
            f"judge {judge} is useless here ({factor}): {why}"
            for judge, factors in self.summaries.items()
            for factor, summary in list(factors.items())[:1]
            if (why := summary.useless)
        ]
        return [*useless, *self.pairs.lead()]

    def as_json(self) -> dict[str, Any]:
        judges = {
            judge: {factor: plain(summary) for factor, summary in factors.items()}
            for judge, factors in self.summaries.items()
        }
        return {"run": self.pairs.run.name, "kind": "pairs", "lead": self.lead(), "judges": judges}


def measure_pairs(pairs: PairRun) -> PairReport:
    return PairReport(
        pairs,
        {judge: {factor: pairs.summary(judge, factor) for factor in pairs.factors(judge)} for judge in pairs.judges},
    )


# --- tables ---------------------------------------------------------------------------------------------------


def tables(report: PairReport, *, full: bool = False) -> list[Table]:
    """Flips first, since they say what the rest is worth; then models, and two by two. `full`: of every factor."""
    parts = [_verdicts(report)]
    for judge, factors in report.summaries.items():
        for factor, summary in list(factors.items())[: None if full else 1]:
            parts.append(_strengths(judge, factor, summary))
            parts.append(_matrix(judge, factor, summary))
    return [table for table in parts if table.rows]


def _verdicts(report: PairReport) -> Table:
    rows: list[tuple[Cell, ...]] = []
    notes: dict[str, tuple[str, ...]] = {}
    for judge, factors in report.summaries.items():
        for factor, one in factors.items():
            rows.append((
                judge, factor, covered(one.n - one.failed, one.n), one.decided, one.ties, one.half, one.flipped,
                _figure(one.flips), _figure(one.position, sign=True),
            ))  # fmt: skip
            lines = (*one.notes, *((f"useless: {one.useless}",) if one.useless else ()))
            notes[f"{factor} by {judge}"] = lines
    columns = ("judge", "factor", "verdicts", "decided", "ties", "half", "flipped", "flip rate", "first place")
    legend = {
        "verdicts": "pairs with an answer in every order that was asked, of all",
        "ties": "called a tie in both orders, half ties and flips together",
        "half": "a tie in one order alone",
        "flipped": "another output in each order: a tie that the place decided",
        "first place": "answers for the output shown first less those for the second, as a share of all answers",
    }
    return Table.of(
        columns, rows, "Verdicts over both orders, 95 % CI", notes=tuple(noted(notes)), stub=2, legend=legend,
        spare=("half", "ties"),
    ).folded("judge")  # fmt: skip


def _figure(share: Share, *, sign: bool = False) -> Figure:
    return Figure(share.share, share.ci, sign=sign)


def _strengths(judge: str, factor: str, one: PairwiseSummary) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            model.rank, model.model or "-", _letters(model), model.n, f"{model.wins}/{model.ties}/{model.losses}",
            Figure(model.win_rate, model.ci), model.scale, Figure(model.strength, model.strength_ci, sign=True),
        )
        for model in one.models
    ]  # fmt: skip
    columns = ("", "model", "group", "n", "won/tied/lost", "win rate", "scale", "strength")
    reasons = {
        model.model: tuple(dict.fromkeys(filter(None, (*model.notes, model.strength_ci_reason, model.ci_reason))))
        for model in one.models
    }
    legend = {
        "group": "models with a letter in common cannot be told apart at 95 %, all comparisons together",
        "win rate": "a tie is half a win; clustered on the source image",
        "strength": "log odds of being preferred over the average model, ties and position bias fitted (Davidson)",
        "scale": "strengths can be compared within one scale only",
    }
    table = Table.of(
        columns, rows, f"Models by {judge}, {factor}, 95 % CI", notes=tuple(noted(reasons)), stub=2,
        legend=legend, spare=("n", "won/tied/lost"),
    )  # fmt: skip
    return table if any(model.scale > 1 for model in one.models) else table.without("scale")


def _letters(model: ModelRecord) -> str:
    return "".join(chr(ord("a") + number - 1) if number <= 26 else f"({number})" for number in model.groups) or "-"


def _matrix(judge: str, factor: str, one: PairwiseSummary) -> Table:
    """Win rates of the row against the column; of many models a list of pairs."""
    names = [model.model for model in one.models]
    rates: dict[tuple[str, str], Figure] = {}
    for pair in one.pairs:
        back = None if pair.a_win_rate is None else 1 - pair.a_win_rate
        rates[pair.a, pair.b] = Figure(pair.a_win_rate, text=_rate(pair.a_win_rate, pair.n))
        rates[pair.b, pair.a] = Figure(back, text=_rate(back, pair.n))
    caption = f"Win rate of the row over the column and pairs with a verdict, by {judge}, {factor}"
    if len(names) <= 8:
        rows = [(name or "-", *(rates.get((name, other)) for other in names)) for name in names]
        return Table.of(("", *(name or "-" for name in names)), rows, caption, stub=1)
    listed: list[tuple[Cell, ...]] = [
        (pair.a, pair.b, pair.n, pair.a_wins, pair.ties, pair.b_wins, pair.flips, Figure(pair.a_win_rate, pair.ci))
        for pair in one.pairs
    ]
    columns = ("a", "b", "n", "a won", "tied", "b won", "flips", "win rate of a")
    return Table.of(columns, listed, f"Two by two, by {judge}, {factor}, 95 % CI", stub=2)


def _rate(rate: float | None, n: int) -> str:
    return f"{rate:.2f} ({n})" if rate is not None else "-"


def long_table(report: PairReport) -> Table:
    """One row for each judge, factor and model: what CSV has."""
    columns = (
        "judge", "factor", "model", "rank", "n", "wins", "ties", "losses", "failed", "win_rate", "win_rate_lo",
        "win_rate_hi", "strength", "strength_lo", "strength_hi", "scale", "groups",
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for judge, factors in report.summaries.items():
        for factor, summary in factors.items():
            for m in summary.models:
                (lo, hi), (low, high) = (m.ci or (None, None)), (m.strength_ci or (None, None))
                rows.append((
                    judge, factor, m.model, m.rank, m.n, m.wins, m.ties, m.losses, m.failed, m.win_rate, lo, hi,
                    m.strength, low, high, m.scale, " ".join(map(str, m.groups)),
                ))  # fmt: skip
    return Table.of(columns, rows)


def strength_chart(judge: str, factor: str, summary: PairwiseSummary) -> DotChart | None:
    """Models by strength; None where none has one."""
    dots = [
        Dot(model.model or "-", "strength", model.strength, model.strength_ci)
        for model in summary.models
        if model.strength is not None
    ]
    if not dots:
        return None
    ends = [abs(x) for dot in dots for x in (dot.value, *(dot.ci or ()))]
    most = max(1.0, float(int(max(ends)) + 1))
    return DotChart(
        f"Strength by {judge}, {factor}: log odds over the average model, with 95 % CI",
        dots, -most, most, [-most, -most / 2, 0, most / 2, most],
    )  # fmt: skip


def rendered_pairs(report: PairReport, form: str) -> str:
    """The whole report in one of its formats."""
    if form == "csv":
        return long_table(report).csv()
    if form == "json":
        return json.dumps(report.as_json(), indent=2, allow_nan=False) + "\n"
    parts = tables(report, full=True)
    title = f"Run {report.pairs.run.name}"
    if form in ("html", "fragment"):
        from editjudge.report.templating import render

        charts = list(_charts(report))
        return render(
            "figures.html", kicker="editjudge report", title=title, lead=report.lead(), charts=charts, tables=parts
        )
    return PROSE[form](title, report.lead(), parts)


def _charts(report: PairReport) -> Iterator[DotChart]:
    for judge, factors in report.summaries.items():
        for factor, summary in factors.items():
            if chart := strength_chart(judge, factor, summary):
                yield chart
