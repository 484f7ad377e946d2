"""Reports of runs of pairs: win rates, ties, flips and strengths of models."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from editjudge.judgement import instruction_warning
from editjudge.ratings import PairRating
from editjudge.report.charts import Dot, DotChart
from editjudge.report.run_data import RunData
from editjudge.report.tables import (
    Cell,
    Figure,
    Table,
    between,
    covered,
    figure_text,
    in_line,
    noted,
)
from editjudge.report.words import plain, words
from editjudge.stats.columns import item_means
from editjudge.stats.pairwise import (
    Accuracy,
    HumanAgreement,
    ModelRecord,
    PairwiseSummary,
    Preference,
    Share,
    TieCalibrated,
    accuracy,
    human_agreement,
    share_of,
    summarise,
    tie_calibrated,
)
from editjudge.stats.strengths import Strength, bradley_terry
from editjudge.store.pairs import PairAnswers, pair_answers, ranking_factor
from editjudge.store.records import PENDING, RunRecord
from editjudge.store.store import Store


@dataclass(frozen=True)
class PairOrigin:
    """Models of the two outputs of a pair, and the source image that they share."""

    model_a: str
    model_b: str
    group: str


@dataclass(frozen=True)
class PairRun:
    """A run of pairs, read once."""

    run: RunRecord
    answers: Sequence[PairAnswers]
    origins: Mapping[str, PairOrigin]
    """Origins by the id of the pair."""

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
        mine = [
            pair
            for pair in self.answers
            if pair.judge == judge and factor in pair.answers
        ]
        origins = [self.origins[pair.item] for pair in mine]
        both = any(len(pair.orders) > 1 for pair in mine)
        first = [
            pair.answers[factor].get("ab" if both else pair.orders[0]) for pair in mine
        ]
        return summarise(
            [one.model_a for one in origins],
            [one.model_b for one in origins],
            first,
            [pair.answers[factor].get("ba") for pair in mine] if both else None,
            group=[one.group for one in origins],
        )

    def lead(self) -> list[str]:
        """The run's judgements by status, before any figure."""
        counts = Counter(
            status
            for pair in self.answers
            for some in pair.statuses.values()
            for status in some
        )
        outcome = (
            ", ".join(f"{n:,} {status}" for status, n in counts.most_common()) or "none"
        )
        run = self.run
        sizes = f"{len(self.origins):,} pairs, {counts.total():,} judgements"
        lines = [f"run {run.name} ({run.id}), {run.state}: {sizes}: {outcome}"]
        if counts[PENDING]:
            again = f"editjudge runs again {shlex.quote(run.name)}"
            lines.append(
                f"{counts[PENDING]:,} judgements are pending: their pairs have no verdict; finish with `{again}`"
            )
        if words := instruction_warning(pair.judge for pair in self.answers):
            lines.append(words)
        return lines


def load_pairs(store: Store, word: str) -> PairRun | None:
    """The run of this name or id; None where it asked about no pairs."""
    run = store.find_run(word)
    answers = pair_answers(store, run)
    if not answers:
        return None
    origins = {
        item.item: PairOrigin(
            str(item.metadata.get("model_a") or ""),
            str(item.metadata.get("model_b") or ""),
            item.group or item.item,
        )
        for item in store.items(run)
    }
    return PairRun(run, answers, origins)


@dataclass(frozen=True)
class PairReport:
    """The figures of every judge and factor."""

    pairs: PairRun
    summaries: Mapping[str, Mapping[str, PairwiseSummary]]
    """Summaries by judge and factor, the one that ranks first."""

    def lead(self) -> list[str]:
        """A judge whose verdicts say nothing is said before anything else."""
        useless = [
            f"judge {judge} is useless here ({factor}): {words(why)}"
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
        return {
            "run": self.pairs.run.name,
            "kind": "pairs",
            "lead": self.lead(),
            "judges": judges,
        }


def measure_pairs(pairs: PairRun) -> PairReport:
    return PairReport(
        pairs,
        {
            judge: {
                factor: pairs.summary(judge, factor) for factor in pairs.factors(judge)
            }
            for judge in pairs.judges
        },
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
    notes: dict[str, Sequence[str]] = {}
    for judge, factors in report.summaries.items():
        for factor, one in factors.items():
            rows.append((
                judge, factor, covered(one.n - one.failed, one.n), one.decided, one.ties, one.half, one.flipped,
                _figure(one.flips), _figure(one.position, sign=True),
            ))  # fmt: skip
            useless = [f"useless: {words(one.useless)}"] if one.useless else []
            lines = (*map(words, one.notes), *useless)
            notes[f"{factor} by {judge}"] = lines
    columns = (
        "judge",
        "factor",
        "verdicts",
        "decided",
        "ties",
        "half",
        "flipped",
        "flip rate",
        "first place",
    )
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
    columns = (
        "",
        "model",
        "group",
        "n",
        "won/tied/lost",
        "win rate",
        "scale",
        "strength",
    )
    reasons = {
        model.model: [
            words(reason)
            for reason in dict.fromkeys(
                (*model.notes, model.strength_ci_reason, model.ci_reason)
            )
            if reason
        ]
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
    return (
        table
        if any(model.scale > 1 for model in one.models)
        else table.without("scale")
    )


def _letters(model: ModelRecord) -> str:
    return (
        "".join(
            chr(ord("a") + number - 1) if number <= 26 else f"({number})"
            for number in model.groups
        )
        or "-"
    )


def _matrix(judge: str, factor: str, one: PairwiseSummary) -> Table:
    """Win rates of the row against the column; of many models a list of pairs."""
    names = [model.model for model in one.models]
    rates: dict[tuple[str, str], Figure] = {}
    for pair in one.pairs:
        back = None if pair.a_win_rate is None else 1 - pair.a_win_rate
        rates[pair.a, pair.b] = Figure(
            pair.a_win_rate, text=_rate(pair.a_win_rate, pair.n)
        )
        rates[pair.b, pair.a] = Figure(back, text=_rate(back, pair.n))
    caption = f"Win rate of the row over the column and pairs with a verdict, by {judge}, {factor}"
    if len(names) <= 8:
        rows = [
            (name or "-", *(rates.get((name, other)) for other in names))
            for name in names
        ]
        return Table.of(("", *(name or "-" for name in names)), rows, caption, stub=1)
    listed: list[tuple[Cell, ...]] = [
        (
            pair.a,
            pair.b,
            pair.n,
            pair.a_wins,
            pair.ties,
            pair.b_wins,
            pair.flips,
            Figure(pair.a_win_rate, pair.ci),
        )
        for pair in one.pairs
    ]
    columns = ("a", "b", "n", "a won", "tied", "b won", "flips", "win rate of a")
    return Table.of(
        columns, listed, f"Two by two, by {judge}, {factor}, 95 % CI", stub=2
    )


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
                (lo, hi) = m.ci or (None, None)
                (low, high) = m.strength_ci or (None, None)
                rows.append((
                    judge, factor, m.model, m.rank, m.n, m.wins, m.ties, m.losses, m.failed, m.win_rate, lo, hi,
                    m.strength, low, high, m.scale, " ".join(map(str, m.groups)),
                ))  # fmt: skip
    return Table.of(columns, rows)


def strength_chart(
    judge: str, factor: str, summary: PairwiseSummary
) -> DotChart | None:
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


def strength_charts(report: PairReport) -> list[DotChart]:
    """Return a chart of each judge and factor that gives a strength."""
    charts = (
        strength_chart(judge, factor, summary)
        for judge, factors in report.summaries.items()
        for factor, summary in factors.items()
    )
    return [chart for chart in charts if chart]


OVERTURNS = "answers that failed could move the accuracy out of its interval"
VOTE = "vote"
"""Stands among the factors: what a judge itself said of a pair."""


@dataclass(frozen=True)
class JudgeVotes:
    """One judge against people, by one factor or by its own votes."""

    judge: str
    factor: str
    accuracy: Accuracy
    ties: TieCalibrated | None = None
    """Only if votes are differences of scores."""
    strengths: Sequence[Strength] | None = None
    """Only by the first factor of a run's judges, which is their overall mean: a fit takes seconds."""
    flips: Share | None = None
    """Only if the judge was asked about pairs."""

    def as_json(self) -> dict[str, Any]:
        flips = {"flips": plain(self.flips)} if self.flips else {}
        ties = {"tie_calibrated": plain(self.ties), "strengths": plain(self.strengths)}
        return {**plain(self.accuracy), **ties, **flips}


@dataclass(frozen=True)
class PreferenceReport:
    """Judges against people, and models by people's votes."""

    voted: Sequence[JudgeVotes]
    strengths: Sequence[Strength]
    """Strengths of models, by people."""
    people: HumanAgreement | None = None
    """Only if a run of pairs says which pairs people had in common."""

    def as_json(self) -> dict[str, Any]:
        factors: dict[str, dict[str, Any]] = {}
        for one in self.voted:
            factors.setdefault(one.factor, {})[one.judge] = one.as_json()
        people = plain(self.people) if self.people else {}
        return {
            "factors": factors,
            "humans": people | {"strengths": plain(self.strengths)},
        }


def preferred_pairs(
    ratings: Mapping[str, Sequence[PairRating]], pairs: PairRun
) -> PreferenceReport:
    """`ratings` by factor, or under `VOTE` where people only said which is better: then every factor is compared with
    that. One vote of a person is one row; the judge's is its verdict over both orders."""
    groups = {item: origin.group for item, origin in pairs.origins.items()}
    voted: list[JudgeVotes] = []
    for judge in pairs.judges:
        mine = {pair.item: pair for pair in pairs.answers if pair.judge == judge}
        for factor in pairs.factors(judge):
            votes = ratings.get(factor, ratings.get(VOTE, ()))
            rated = {one.item for one in votes}
            decisions = {
                item: one.decision(factor)
                for item, one in mine.items()
                if item in rated and factor in one.answers
            }
            called = [
                _as_vote(decisions[one.item].verdict) if one.item in decisions else None
                for one in votes
            ]
            if votes:
                group = [groups[one.item] for one in votes]
                both = [
                    item for item, one in decisions.items() if one.verdict is not None
                ]
                flips = share_of(
                    [decisions[x].flipped for x in both], [groups[x] for x in both]
                )
                correct = accuracy([one.vote for one in votes], called, group=group)
                voted.append(JudgeVotes(judge, factor, correct, flips=flips))
    lead = next(
        (name for name in ("overall", VOTE) if name in ratings), next(iter(ratings))
    )
    by_pair: dict[str, list[tuple[str, str]]] = {}
    for n, one in enumerate(ratings[lead]):
        by_pair.setdefault(one.item, []).append((one.rater or f"row {n}", one.vote))
    named = [(pairs.origins[one.item], one.vote) for one in ratings[lead]]
    rows = [
        (o.model_a, o.model_b, vote, o.group)
        for o, vote in named
        if o.model_a and o.model_b != o.model_a
    ]
    first, second, votes_of, image = (
        zip(*rows, strict=True) if rows else ((), (), (), ())
    )
    strengths = bradley_terry(first, second, votes_of, group=image)
    return PreferenceReport(voted, strengths, human_agreement(by_pair, groups))


def _as_vote(verdict: str | None) -> str | None:
    return {"a": "A", "b": "B", "tie": "tie", None: None}[verdict]


def pair_tables(report: PreferenceReport) -> list[Table]:
    rows: list[tuple[Cell, ...]] = [
        (
            one.judge, one.factor, covered(a.answered, a.n), Figure(a.accuracy, a.ci), a.strict,
            Figure(a.without_ties, a.without_ties_ci), a.judge_ties,
            Figure(one.flips.share, one.flips.ci) if one.flips else None,
        )
        for one in report.voted
        for a in [one.accuracy]
    ]  # fmt: skip
    columns = (
        "judge",
        "factor",
        "answered",
        "accuracy",
        "strict",
        "without ties",
        "ties",
        "flip rate",
    )
    people = report.people
    first = report.voted[0].accuracy
    among = "no pair has votes of two people: what people reach among themselves is not known"
    if people and people.agreement is not None:
        apart = "-" if people.without_ties is None else f"{people.without_ties:.2f}"
        agreed = figure_text(people.agreement, people.ci)
        among = f"two people say the same in {agreed} of {people.pairs:,} pairs, without ties in {apart}"
    notes = (
        among,
        f"people call {first.human_ties:,} of {first.n:,} votes a tie; a judge's flip is a tie",
        *noted(
            {
                f"{one.factor} by {one.judge}": map(words, one.accuracy.notes)
                for one in report.voted
            }
        ),
    )
    legend = {"strict": "over all votes, a pair without a verdict being wrong"}
    caption = "Verdicts over both orders against people's preferences, 95 % CI"
    table = Table.of(
        columns,
        rows,
        caption,
        notes=notes,
        stub=2,
        legend=legend,
        spare=("ties", "strict"),
    )
    return [
        table.folded("judge"),
        *([_strength_table(report)] if report.strengths else []),
    ]


def preferred(pairs: Sequence[Preference], judged: RunData | None) -> PreferenceReport:
    """Compare with the scores of a run, whose edits the pairs then name, and with the votes that came with the pairs."""
    origin: Mapping[str, tuple[str, str]] = {}
    if judged:
        edits = judged.scores.take(
            np.unique(judged.scores.item.codes, return_index=True)[1]
        )
        origin = dict(
            zip(edits.item, zip(edits.model, edits.group, strict=True), strict=True)
        )
    human = [one.human for one in pairs]
    models = [tuple(origin[x][0] if judged else x for x in one.pair) for one in pairs]
    group = [
        one.group or (origin[one.pair[0]][1] if judged else f"row {n}")
        for n, one in enumerate(pairs)
    ]

    def strengths(votes: Sequence[str | None]) -> list[Strength]:
        rows = [i for i, (a, b) in enumerate(models) if a and b and a != b]
        first, second, vote, image = (
            [x[i] for i in rows] for x in (*zip(*models, strict=True), votes, group)
        )
        return bradley_terry(first, second, vote, group=image)

    voted: list[JudgeVotes] = []
    for (judge, factor), gaps in (
        _differences(judged, pairs) if judged else {}
    ).items():
        votes = [_vote_by_gap(gap) for gap in gaps]
        leads = judge not in {one.judge for one in voted}
        one = JudgeVotes(
            judge,
            factor,
            accuracy(human, votes, group=group),
            tie_calibrated(human, gaps, group=group),
        )
        voted.append(replace(one, strengths=strengths(votes)) if leads else one)
    voted += [
        JudgeVotes(
            judge,
            VOTE,
            accuracy(human, [one.votes.get(judge) for one in pairs], group=group),
        )
        for judge in dict.fromkeys(name for one in pairs for name in one.votes)
    ]
    return PreferenceReport(voted, strengths(human))


def _vote_by_gap(gap: float) -> str | None:
    """Return the vote of a judge whose score of A is this much better than that of B."""
    if math.isnan(gap):
        return None
    if gap == 0:
        return "tie"
    return "A" if gap > 0 else "B"


def _differences(
    judged: RunData, pairs: Sequence[Preference]
) -> dict[tuple[str, str], list[float]]:
    """Return by how much A's mean score is better than B's, by judge and factor, overall means first; NaN where either has
    none."""
    scores, added = judged.with_aggregates()
    differences: dict[tuple[str, str], list[float]] = {}
    for judge, aggregates in added.items():
        means = [one.name for one in reversed(aggregates) if one.how == "mean"]
        for factor in (*means, *judged.scores.where(judge=judge).factor.present()):
            part = scores.where(judge=judge, factor=factor)
            item = part.item.compact()
            mean = dict(
                zip(item.labels, item_means(item, part.score).tolist(), strict=True)
            )
            # Rounded, because equal means over repeats of thirds need not be equal in their last digit.
            sign = -1 if factor in judged.falling else 1
            differences[judge, factor] = [
                round(sign * (mean.get(a, math.nan) - mean.get(b, math.nan)), 9)
                for a, b in (one.pair for one in pairs)
            ]
    return differences


# --- preference_tables ---------------------------------------------------------------------------------------------------


def preference_tables(report: PreferenceReport) -> list[Table]:
    ties = [one for one in report.voted if one.ties]
    strengths = [_strength_table(report)] if report.strengths else []
    return [_accuracies(report.voted), *([_ties(ties)] if ties else []), *strengths]


def _accuracies(voted: Sequence[JudgeVotes]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            one.judge, one.factor, covered(a.answered, a.n), a.failed, Figure(a.accuracy, a.ci),
            between(a.bounds, in_line([a.ci])) if a.failed else None, a.strict, a.without_ties, a.judge_ties,
            a.first_share,
        )
        for one in voted
        for a in [one.accuracy]
    ]  # fmt: skip
    columns = (
        "judge",
        "by",
        "answered",
        "failed",
        "accuracy",
        "bounds",
        "strict",
        "without ties",
        "ties",
        "takes A",
    )
    people = voted[0].accuracy
    share = (
        "-" if people.human_first_share is None else f"{people.human_first_share:.2f}"
    )
    notes = (
        "answered: by a vote that can be read, or scores of both edits; strict: over all pairs, the rest being wrong",
        f"takes A: of votes that decide; people take A in {share} of theirs, and call {people.human_ties:,} a tie",
        *noted(
            {
                f"{one.factor} by {one.judge}": map(words, one.accuracy.notes)
                for one in voted
            }
        ),
        *noted(
            {
                f"{o.factor} by {o.judge}": (OVERTURNS,)
                for o in voted
                if o.accuracy.overturnable
            }
        ),
    )
    caption = "Accuracy against people's preferences (A, B or tie), 95 % CI"
    legend = {
        "bounds": "over all pairs, if all that failed were wrong, and if all were right"
    }
    table = Table.of(
        columns,
        rows,
        caption,
        notes=notes,
        stub=2,
        spare=("failed", "ties"),
        legend=legend,
    )
    return table.folded("judge", "by").trimmed("bounds")


def _ties(voted: Sequence[JudgeVotes]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            one.judge,
            one.factor,
            t.n,
            one.accuracy.accuracy,
            t.accuracy,
            t.epsilon,
            t.held_out,
        )
        for one in voted
        if (t := one.ties)
    ]
    columns = ("judge", "by", "n", "accuracy", "tie-calibrated", "epsilon", "held out")
    notes = (
        "differences of scores up to epsilon are called ties; -1 calls none so. Epsilon is the best for these pairs; "
        "held out: chosen on other source images, what to expect of new pairs",
    )
    return Table.of(
        columns, rows, "Accuracy where small differences are ties", notes=notes, stub=2
    ).folded("judge")


def _strength_table(report: PreferenceReport) -> Table:
    by = [("people", report.strengths)]
    by += [
        (f"{one.judge}, {one.factor}", one.strengths)
        for one in report.voted
        if one.strengths
    ]
    rows: list[tuple[Cell, ...]] = [
        (
            who,
            one.scale,
            one.model,
            one.games,
            Figure(one.strength, one.ci, sign=True),
            _remarks(one),
        )
        for who, strengths in by
        for one in strengths
    ]
    caption = "Strength of models (Bradley-Terry): log odds of being preferred over the average one, 95 % CI"
    notes = (
        "scale: only strengths of one scale can be compared; those above won against those below",
    )
    table = Table.of(
        ("by", "scale", "model", "games", "strength", ""), rows, caption, stub=3
    ).trimmed("")
    several = any(one.scale > 1 for _, strengths in by for one in strengths)
    return replace(table, notes=notes) if several else table.without("scale")


def _remarks(one: Strength) -> str:
    reasons = dict.fromkeys((*one.notes, one.ci_reason))
    return "; ".join(words(reason) for reason in reasons if reason)
