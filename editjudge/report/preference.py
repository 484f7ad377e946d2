"""What `agree --preferences` says: judges against people who say which of two edits is better."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from editjudge.ratings import PairRating
from editjudge.report.pairwise import PairRun
from editjudge.report.run_data import RunData
from editjudge.report.tables import Cell, Figure, Table, between, covered, in_line, noted
from editjudge.stats.columns import item_means
from editjudge.stats.pairwise import Share, share_of
from editjudge.stats.preference import (
    Accuracy,
    HumanAgreement,
    Preference,
    Strength,
    TieCalibrated,
    accuracy,
    bradley_terry,
    human_agreement,
    tie_calibrated,
)
from editjudge.stats.statistic import figure_text, plain

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
    """Where votes are differences of scores."""
    strengths: Sequence[Strength] | None = None
    """Only by the first factor of a run's judges, which is their overall mean: a fit takes seconds."""
    flips: Share | None = None
    """Where the judge was asked about pairs."""

    def as_json(self) -> dict[str, Any]:
        flips = {"flips": plain(self.flips)} if self.flips else {}
        ties = {"tie_calibrated": plain(self.ties), "strengths": plain(self.strengths)}
        return self.accuracy.as_json() | ties | flips


@dataclass(frozen=True)
class PreferenceReport:
    """Judges against people, and models by people's votes."""

    voted: Sequence[JudgeVotes]
    strengths: Sequence[Strength]
    """Of models, by people."""
    people: HumanAgreement | None = None
    """Where a run of pairs says which pairs people had in common."""

    def as_json(self) -> dict[str, Any]:
        factors: dict[str, dict[str, Any]] = {}
        for one in self.voted:
            factors.setdefault(one.factor, {})[one.judge] = one.as_json()
        people = plain(self.people) if self.people else {}
        return {"factors": factors, "humans": people | {"strengths": plain(self.strengths)}}


def preferred_pairs(ratings: Mapping[str, Sequence[PairRating]], pairs: PairRun) -> PreferenceReport:
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
                item: one.decision(factor) for item, one in mine.items() if item in rated and factor in one.answers
            }
            called = [_as_vote(decisions[one.item].verdict) if one.item in decisions else None for one in votes]
            if votes:
                group = [groups[one.item] for one in votes]
                both = [item for item, one in decisions.items() if one.verdict is not None]
                flips = share_of([decisions[x].flipped for x in both], [groups[x] for x in both])
                correct = accuracy([one.vote for one in votes], called, group=group)
                voted.append(JudgeVotes(judge, factor, correct, flips=flips))
    lead = next((name for name in ("overall", VOTE) if name in ratings), next(iter(ratings)))
    by_pair: dict[str, list[tuple[str, str]]] = {}
    for n, one in enumerate(ratings[lead]):
        by_pair.setdefault(one.item, []).append((one.rater or f"row {n}", one.vote))
    named = [(pairs.origins[one.item], one.vote) for one in ratings[lead]]
    rows = [(o.model_a, o.model_b, vote, o.group) for o, vote in named if o.model_a and o.model_b != o.model_a]
    first, second, votes_of, image = zip(*rows, strict=True) if rows else ((), (), (), ())
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
    columns = ("judge", "factor", "answered", "accuracy", "strict", "without ties", "ties", "flip rate")
    people, first = report.people, report.voted[0].accuracy
    among = "no pair has votes of two people: what people reach among themselves is not known"
    if people and people.agreement is not None:
        apart = "-" if people.without_ties is None else f"{people.without_ties:.2f}"
        agreed = figure_text(people.agreement, people.ci)
        among = f"two people say the same in {agreed} of {people.pairs:,} pairs, without ties in {apart}"
    notes = (
        among,
        f"people call {first.human_ties:,} of {first.n:,} votes a tie; a judge's flip is a tie",
        *noted({f"{one.factor} by {one.judge}": one.accuracy.notes for one in report.voted}),
    )
    legend = {"strict": "over all votes, a pair without a verdict being wrong"}
    caption = "Verdicts over both orders against people's preferences, 95 % CI"
    table = Table.of(columns, rows, caption, notes=notes, stub=2, legend=legend, spare=("ties", "strict"))
    return [table.folded("judge"), *([_strengths(report)] if report.strengths else [])]


def preferred(pairs: Sequence[Preference], judged: RunData | None) -> PreferenceReport:
    """By the scores of a run, whose edits the pairs then name, and by the votes that came with the pairs."""
    origin: Mapping[str, tuple[str, str]] = {}
    if judged:
        edits = judged.scores.take(np.unique(judged.scores.item.codes, return_index=True)[1])
        origin = dict(zip(edits.item, zip(edits.model, edits.group, strict=True), strict=True))
    human = [one.human for one in pairs]
    models = [tuple(origin[x][0] if judged else x for x in one.pair) for one in pairs]
    group = [one.group or (origin[one.pair[0]][1] if judged else f"row {n}") for n, one in enumerate(pairs)]

    def strengths(votes: Sequence[str | None]) -> list[Strength]:
        rows = [i for i, (a, b) in enumerate(models) if a and b and a != b]
        first, second, vote, image = ([x[i] for i in rows] for x in (*zip(*models, strict=True), votes, group))
        return bradley_terry(first, second, vote, group=image)

    voted: list[JudgeVotes] = []
    for (judge, factor), gaps in (_differences(judged, pairs) if judged else {}).items():
        votes = [None if math.isnan(d) else "tie" if d == 0 else "A" if d > 0 else "B" for d in gaps]
        leads = judge not in {one.judge for one in voted}
        one = JudgeVotes(judge, factor, accuracy(human, votes, group=group), tie_calibrated(human, gaps, group=group))
        voted.append(replace(one, strengths=strengths(votes)) if leads else one)
    voted += [
        JudgeVotes(judge, VOTE, accuracy(human, [one.votes.get(judge) for one in pairs], group=group))
        for judge in dict.fromkeys(name for one in pairs for name in one.votes)
    ]
    return PreferenceReport(voted, strengths(human))


def _differences(judged: RunData, pairs: Sequence[Preference]) -> dict[tuple[str, str], list[float]]:
    """By how much A's mean score is better than B's, by judge and factor, overall means first; NaN where either has
    none."""
    scores, added = judged.with_aggregates()
    differences: dict[tuple[str, str], list[float]] = {}
    for judge, aggregates in added.items():
        means = [one.name for one in reversed(aggregates) if one.how == "mean"]
        for factor in (*means, *judged.scores.where(judge=judge).factor.present()):
            part = scores.where(judge=judge, factor=factor)
            item = part.item.compact()
            mean = dict(zip(item.labels, item_means(item, part.score).tolist(), strict=True))
            # Rounded, because equal means over repeats of thirds need not be equal in their last digit.
            sign = -1 if factor in judged.falling else 1
            differences[judge, factor] = [
                round(sign * (mean.get(a, math.nan) - mean.get(b, math.nan)), 9) for a, b in (one.pair for one in pairs)
            ]
    return differences


# --- tables ---------------------------------------------------------------------------------------------------


def tables(report: PreferenceReport) -> list[Table]:
    ties = [one for one in report.voted if one.ties]
    strengths = [_strengths(report)] if report.strengths else []
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
    columns = ("judge", "by", "answered", "failed", "accuracy", "bounds", "strict", "without ties", "ties", "takes A")
    people = voted[0].accuracy
    share = "-" if people.human_first_share is None else f"{people.human_first_share:.2f}"
    notes = (
        "answered: by a vote that can be read, or scores of both edits; strict: over all pairs, the rest being wrong",
        f"takes A: of votes that decide; people take A in {share} of theirs, and call {people.human_ties:,} a tie",
        *noted({f"{one.factor} by {one.judge}": one.accuracy.notes for one in voted}),
        *noted({f"{o.factor} by {o.judge}": (OVERTURNS,) for o in voted if o.accuracy.overturnable}),
    )
    caption = "Accuracy against people's preferences (A, B or tie), 95 % CI"
    legend = {"bounds": "over all pairs, if all that failed were wrong, and if all were right"}
    table = Table.of(columns, rows, caption, notes=notes, stub=2, spare=("failed", "ties"), legend=legend)
    return table.folded("judge", "by").trimmed("bounds")


def _ties(voted: Sequence[JudgeVotes]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (one.judge, one.factor, t.n, one.accuracy.accuracy, t.accuracy, t.epsilon, t.held_out)
        for one in voted
        if (t := one.ties)
    ]
    columns = ("judge", "by", "n", "accuracy", "tie-calibrated", "epsilon", "held out")
    notes = (
        "differences of scores up to epsilon are called ties; -1 calls none so. Epsilon is the best for these pairs; "
        "held out: chosen on other source images, what to expect of new pairs",
    )
    return Table.of(columns, rows, "Accuracy where small differences are ties", notes=notes, stub=2).folded("judge")


def _strengths(report: PreferenceReport) -> Table:
    by = [("people", report.strengths)]
    by += [(f"{one.judge}, {one.factor}", one.strengths) for one in report.voted if one.strengths]
    rows: list[tuple[Cell, ...]] = [
        (who, one.scale, one.model, one.games, Figure(one.strength, one.ci, sign=True), _remarks(one))
        for who, strengths in by
        for one in strengths
    ]
    caption = "Strength of models (Bradley-Terry): log odds of being preferred over the average one, 95 % CI"
    notes = ("scale: only strengths of one scale can be compared; those above won against those below",)
    table = Table.of(("by", "scale", "model", "games", "strength", ""), rows, caption, stub=3).trimmed("")
    several = any(one.scale > 1 for _, strengths in by for one in strengths)
    return replace(table, notes=notes) if several else table.without("scale")


def _remarks(one: Strength) -> str:
    return "; ".join(dict.fromkeys((*one.notes, *((one.ci_reason,) if one.ci_reason else ()))))
