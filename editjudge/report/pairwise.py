"""Pairwise runs: win rates, ties, flips and strengths of models, and agreement of judges with people's preferences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from editjudge.errors import InputError, UsageError
from editjudge.judgement import instruction_warning
from editjudge.ratings import PairRating, read_pair_ratings, read_preferences, vote_of
from editjudge.report.answers import Answer, written
from editjudge.report.charts import Dot, DotChart
from editjudge.report.run_data import RunData, again, status_line
from editjudge.report.tables import (
    Cell,
    Figure,
    Table,
    bounds_figure,
    column_decimals,
    coverage_figure,
    figure_text,
    merge_notes,
)
from editjudge.report.words import plain, reason_text
from editjudge.stats.columns import item_means
from editjudge.stats.pairwise import (
    Accuracy,
    HumanAgreement,
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
from editjudge.store.ratings import ratings_of
from editjudge.store.records import PENDING, RunRecord
from editjudge.store.scores import PairAnswers, pair_answers, ranking_factor
from editjudge.store.store import Store

if TYPE_CHECKING:
    from editjudge.report.gallery import Gallery

MATRIX = 8
"""Maximum number of models in a matrix of win rates. If there are more, their pairs are listed instead."""


class PairOrigin(NamedTuple):
    """Models of the two outputs of a pair, and their common source image."""

    model_a: str
    model_b: str
    group: str


@dataclass(frozen=True)
class PairRun:
    """A pairwise run in memory."""

    run: RunRecord
    answers: Sequence[PairAnswers]
    origins: Mapping[str, PairOrigin]
    """Origin of each pair, keyed by the pair's id."""

    @property
    def judges(self) -> list[str]:
        return list(dict.fromkeys(pair.judge for pair in self.answers))

    def factors(self, judge: str) -> list[str]:
        """Return the factors of a judge. Models are ranked by the first one."""
        pairs = [pair for pair in self.answers if pair.judge == judge]
        keys = (factor for pair in pairs for factor in pair.answers)
        return list(dict.fromkeys((ranking_factor(pairs), *keys)))

    def summary(self, judge: str, factor: str) -> PairwiseSummary:
        pairs = [
            pair
            for pair in self.answers
            if pair.judge == judge and factor in pair.answers
        ]
        origins = [self.origins[pair.item] for pair in pairs]
        both = any(len(pair.orders) > 1 for pair in pairs)
        return summarise(
            [origin.model_a for origin in origins],
            [origin.model_b for origin in origins],
            [p.answers[factor].get("ab" if both else p.orders[0]) for p in pairs],
            [p.answers[factor].get("ba") for p in pairs] if both else None,
            group=[origin.group for origin in origins],
        )

    @cached_property
    def summaries(self) -> list[tuple[str, str, PairwiseSummary]]:
        """Triples of judge, factor and summary. Each judge's ranking factor comes first."""
        return [
            (judge, factor, self.summary(judge, factor))
            for judge in self.judges
            for factor in self.factors(judge)
        ]

    def verdicts(self) -> list[str]:
        """Return a sentence for each judge: the model that its ranking factor puts first."""
        first: dict[str, str] = {}
        for judge, factor, summary in self.summaries:
            if judge not in first:
                first[judge] = f"{judge}, {factor}: {best_models(summary)}"
        return list(first.values())

    def lead(self) -> list[str]:
        """Return lines with the number of judgements for each status. They precede all statistics."""
        counts = Counter(
            status
            for pair in self.answers
            for statuses in pair.statuses.values()
            for status in statuses
        )
        lines = [status_line(self.run, counts, f"{len(self.origins):,} pairs, ")]
        if counts[PENDING]:
            lines.append(
                f"{counts[PENDING]:,} judgements are pending: their pairs have no verdict; finish with `{again(self.run)}`"
            )
        if warning := instruction_warning(self.judges):
            lines.append(warning)
        return lines


def best_models(summary: PairwiseSummary) -> str:
    """Return a sentence that names the strongest model, and the models that do not differ from it."""
    if summary.useless:
        return f"no verdict, since this judge is useless here: {reason_text(summary.useless)}"
    if not summary.models:
        return "no pair of two models has a verdict"
    best, *others = summary.models
    rate = figure_text(best.win_rate, best.ci)
    leader = f"{best.model or '-'} ranks first, win rate {rate}"
    if not all(model.groups for model in summary.models):
        return f"{leader}; whether the others differ could not be tested"
    equal = [m.model or "-" for m in others if {*m.groups} & {*best.groups}]
    if equal:
        return f"{leader}; no evidence of a difference from {', '.join(equal)}"
    return f"{leader}; all others are behind it at 95 %"


def load_pairs(store: Store, name_or_id: str) -> PairRun | None:
    """Load the run with this name or id, or return None if it has no pairs."""
    run = store.find_run(name_or_id)
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


# --- the report of a pairwise run -----------------------------------------------------------------------------


def report_pairs(pairs: PairRun) -> Answer:
    """Return the report of a pairwise run for a terminal. It shows only each judge's ranking factor."""
    lead = []
    judges: dict[str, dict[str, object]] = {}
    tables = [_verdicts(pairs)]
    for judge, factor, summary in pairs.summaries:
        if judge not in judges:
            tables += _model_tables(judge, factor, summary)
            if summary.useless:
                reason = reason_text(summary.useless)
                lead.append(f"judge {judge} is useless here ({factor}): {reason}")
        judges.setdefault(judge, {})[factor] = plain(summary)
    lead += pairs.lead()
    document = {"run": pairs.run.name, "kind": "pairs", "lead": lead, "judges": judges}
    return Answer(document, lead, [table for table in tables if table.rows])


def win_rates(pairs: PairRun) -> list[Table]:
    """Return the table of models for each judge, by its ranking factor."""
    tables = [
        _strengths(judge, factor, pairs.summary(judge, factor))
        for judge in pairs.judges
        for factor in pairs.factors(judge)[:1]
    ]
    return [table for table in tables if table.rows]


def rendered_pairs(pairs: PairRun, form: str, store: Store) -> str:
    """Return the report of a pairwise run as text in the given format, with every factor. The store is read for the
    images in HTML."""
    answer = report_pairs(pairs)
    tables = [_verdicts(pairs)]
    charts = []
    for summary in pairs.summaries:
        tables += _model_tables(*summary)
        charts += _strength_chart(*summary)
    tables = [table for table in tables if table.rows]
    title = f"Run {pairs.run.name}"
    if form not in ("html", "fragment"):
        return written(form, title, answer.lead, tables, _long(pairs), answer.document)
    from editjudge.report.gallery import EditView, sections
    from editjudge.report.templating import render

    return render(
        "figures.html",
        kicker="editjudge report",
        title=title,
        verdicts=pairs.verdicts(),
        lead=answer.lead,
        charts=charts,
        tables=tables,
        galleries=sections(
            pairs.run, store, EditView(pairs.run, store), _galleries(pairs)
        ),
    )


def _galleries(pairs: PairRun) -> list[Gallery]:
    """Return pairs that the first judge decided on its ranking factor, and pairs that flipped with the order."""
    from editjudge.report.gallery import CARDS, Gallery

    judge = pairs.judges[0]
    factor = pairs.factors(judge)[0]
    decided = []
    flipped = []
    for pair in pairs.answers:
        if pair.judge == judge and factor in pair.answers:
            decision = pair.decision(factor)
            if decision.flipped:
                flipped.append(pair.item)
            elif decision.verdict in ("a", "b"):
                decided.append(pair.item)
    step = max(1, len(decided) // CARDS)
    by = f"on {factor} by {judge}"
    galleries = [
        Gallery(
            "decided",
            "Decided pairs",
            f"One output is better {by}, in every order that was asked.",
            decided[::step][:CARDS],
            len(decided),
        ),
        Gallery(
            "flipped",
            "Flipped with the order",
            f"A different output is better {by} in each order, so the position decided.",
            flipped[:CARDS],
            len(flipped),
        ),
    ]
    return [gallery for gallery in galleries if gallery.items]


def _verdicts(pairs: PairRun) -> Table:
    """Return the table of verdicts. Flips come first, since they show how reliable the rest is."""
    notes = {}
    for judge, factor, summary in pairs.summaries:
        useless = (
            [f"useless: {reason_text(summary.useless)}"] if summary.useless else []
        )
        notes[f"{factor} by {judge}"] = [*map(reason_text, summary.notes), *useless]
    legend = {
        "verdicts": "pairs with an answer in every order that was asked, of all",
        "ties": "called a tie in both orders, half ties and flips together",
        "half": "a tie in one order alone",
        "flipped": "a different output in each order: a tie, since the position decided",
        "first place": "answers for the output shown first minus those for the second, as a share of all answers",
    }
    return Table.listing(
        (
            {
                "judge": judge,
                "factor": factor,
                "verdicts": coverage_figure(summary.n - summary.failed, summary.n),
                "decided": summary.decided,
                "ties": summary.ties,
                "half": summary.half,
                "flipped": summary.flipped,
                "flip rate": Figure(summary.flips.share, summary.flips.ci),
                "first place": Figure(
                    summary.position.share, summary.position.ci, sign=True
                ),
            }
            for judge, factor, summary in pairs.summaries
        ),
        "Verdicts over both orders, 95 % CI",
        notes=merge_notes(notes),
        stub=2,
        legend=legend,
        spare=("half", "ties"),
    ).folded("judge")


def _model_tables(judge: str, factor: str, summary: PairwiseSummary) -> list[Table]:
    return [_strengths(judge, factor, summary), _two_by_two(judge, factor, summary)]


def _strengths(judge: str, factor: str, summary: PairwiseSummary) -> Table:
    reasons = {}
    for model in summary.models:
        codes = dict.fromkeys((*model.notes, model.strength_ci_reason, model.ci_reason))
        reasons[model.model] = [reason_text(reason) for reason in codes if reason]
    legend = {
        "group": "models with a letter in common do not differ at 95 %, over all comparisons together",
        "win rate": "a tie is half a win; clustered on the source image",
        "strength": "log odds of being preferred over the average model, ties and position bias fitted (Davidson)",
        "scale": "strengths can be compared within one scale only",
    }
    table = Table.listing(
        (
            {
                "": model.rank,
                "model": model.model or "-",
                "group": "".join(map(_letter, model.groups)) or "-",
                "n": model.n,
                "won/tied/lost": f"{model.wins}/{model.ties}/{model.losses}",
                "win rate": Figure(model.win_rate, model.ci),
                "scale": model.scale,
                "strength": Figure(model.strength, model.strength_ci, sign=True),
            }
            for model in summary.models
        ),
        f"Models by {judge}, {factor}, 95 % CI",
        notes=merge_notes(reasons),
        stub=2,
        legend=legend,
        spare=("n", "won/tied/lost"),
    )
    several = any(model.scale > 1 for model in summary.models)
    return table if several else table.without("scale")


def _letter(group: int) -> str:
    return chr(ord("a") + group - 1) if group <= 26 else f"({group})"


def _two_by_two(judge: str, factor: str, summary: PairwiseSummary) -> Table:
    """Return the table of win rates of rows over columns. If there are many models, return a list of pairs instead."""
    names = [model.model for model in summary.models]
    if len(names) > MATRIX:
        return Table.listing(
            (
                {
                    "a": pair.a,
                    "b": pair.b,
                    "n": pair.n,
                    "a won": pair.a_wins,
                    "tied": pair.ties,
                    "b won": pair.b_wins,
                    "flips": pair.flips,
                    "win rate of a": Figure(pair.a_win_rate, pair.ci),
                }
                for pair in summary.pairs
            ),
            f"Two by two, by {judge}, {factor}, 95 % CI",
            stub=2,
        )
    rates: dict[tuple[str, str], Figure] = {}
    for pair in summary.pairs:
        if pair.a_win_rate is not None:
            for key, rate in (
                ((pair.a, pair.b), pair.a_win_rate),
                ((pair.b, pair.a), 1 - pair.a_win_rate),
            ):
                rates[key] = Figure(rate, text=f"{rate:.2f} ({pair.n})")
    return Table.of(
        ("", *(name or "-" for name in names)),
        [(row or "-", *(rates.get((row, name)) for name in names)) for row in names],
        f"Win rate of the row over the column and pairs with a verdict, by {judge}, {factor}",
        stub=1,
    )


def _long(pairs: PairRun) -> Table:
    """Return one row for each judge, factor and model, for CSV."""
    rows: list[dict[str, Cell]] = []
    for judge, factor, summary in pairs.summaries:
        for m in summary.models:
            (lo, hi) = m.ci or (None, None)
            (low, high) = m.strength_ci or (None, None)
            rows.append(
                {
                    "judge": judge,
                    "factor": factor,
                    "model": m.model,
                    "rank": m.rank,
                    "n": m.n,
                    "wins": m.wins,
                    "ties": m.ties,
                    "losses": m.losses,
                    "failed": m.failed,
                    "win_rate": m.win_rate,
                    "win_rate_lo": lo,
                    "win_rate_hi": hi,
                    "strength": m.strength,
                    "strength_lo": low,
                    "strength_hi": high,
                    "scale": m.scale,
                    "groups": " ".join(map(str, m.groups)),
                }
            )
    return Table.listing(rows)


def _strength_chart(
    judge: str, factor: str, summary: PairwiseSummary
) -> list[DotChart]:
    """Return a chart of models by strength, or an empty list if no model has a strength."""
    dots = [
        Dot(model.model or "-", "strength", model.strength, model.strength_ci)
        for model in summary.models
        if model.strength is not None
    ]
    if not dots:
        return []
    largest = max(abs(end) for dot in dots for end in (dot.value, *(dot.ci or ())))
    most = float(int(largest) + 1)
    ticks = [-most, -most / 2, 0, most / 2, most]
    title = (
        f"Strength by {judge}, {factor}: log odds over the average model, with 95 % CI"
    )
    return [DotChart(title, dots, -most, most, ticks)]


# --- judges against people's preferences ----------------------------------------------------------------------

OVERTURNS = "answers that failed could move the accuracy out of its interval"
VOTE = "vote"
"""Name under which a judge's direct votes on pairs are listed among the factors."""
_VOTES = {1: "A", 0: "tie", -1: "B"}
"""A judge's vote for each sign of the difference between its scores for A and B."""


@dataclass(frozen=True)
class JudgeVotes:
    """Agreement of one judge with people, by one factor or by direct votes."""

    judge: str
    factor: str
    accuracy: Accuracy
    ties: TieCalibrated | None = None
    """Accuracy with calibrated ties, if the votes are differences of scores."""
    strengths: Sequence[Strength] | None = None
    """Strengths of models. They are computed only for a judge's first factor, the overall mean, because a fit takes
    seconds."""
    flips: Share | None = None
    """Share of flips, if the judge compared pairs."""

    def as_json(self) -> dict[str, object]:
        flips = {"flips": plain(self.flips)} if self.flips else {}
        ties = {"tie_calibrated": plain(self.ties), "strengths": plain(self.strengths)}
        return {**plain(self.accuracy), **ties, **flips}


def agree_preferences(file: Path, run: RunData | None) -> Answer:
    """Compare people's preferences from a file with the scores of a run, or with judges' votes in the same file."""
    rows = list(read_preferences(file, of_run=run is not None))
    pairs = [preference for _, preference in rows]
    lead: list[str] = []
    if run is not None:
        items = {*run.scores.item.present()}
        pairs = [pair for pair in pairs if items.issuperset(pair.pair)]
        unknown = [
            f"{file}:{line}: found {name!r:.80}, and the run has no judgement of it"
            for line, preference in rows
            for name in preference.pair
            if name not in items
        ]
        expected = (
            "nor of both edits of any other pair; expected ids of the run's edits"
        )
        left_out = _left_out("pairs", len(rows), len(pairs), unknown, expected)
        lead = [*run.lead(), *left_out]
    elif not any(pair.votes for pair in pairs):
        raise InputError(
            f"{file}: has no votes of judges; name a RUN, or add columns vote:NAME or an object judge_votes"
        )
    elif not all(pair.group for pair in pairs):
        lead = [
            "some pairs have no group and count as source images of their own: intervals may be too narrow"
        ]
    voted, strengths = _preferred(pairs, run)
    counts = {
        "pairs": len(rows),
        "left_out": len(rows) - len(pairs),
        "pending": run.pending if run else 0,
    }
    tables = [_accuracies(voted, "Accuracy against people's preferences (A, B or tie)")]
    tables += _ties([pair for pair in voted if pair.ties])
    tables += _strength_table(voted, strengths)
    return Answer(counts | _document(voted, strengths), lead, tables)


def agree_pair_file(pairs: PairRun, file: Path) -> Answer:
    """Compare a pairwise run with a file of people's votes on the same pairs."""
    rows = list(read_pair_ratings(file))
    votes = [vote for _, vote in rows if vote.item in pairs.origins]
    unknown = [
        f"{file}:{line}: found {vote.item!r:.80}, which is not a pair of the run"
        for line, vote in rows
        if vote.item not in pairs.origins
    ]
    example = next(iter(pairs.origins))
    expected = f"nor is any other; expected ids of pairs, such as {example!r}"
    notes = _left_out("votes", len(rows), len(votes), unknown, expected)
    return _agree_pairs(pairs, {VOTE: votes}, len(rows), notes)


def agree_stored_pairs(pairs: PairRun, store: Store) -> Answer:
    """Compare a pairwise run with people's votes that were collected in the browser."""
    rows = [row for row in ratings_of(store, pairs.run) if row.choice]
    votes: dict[str, list[PairRating]] = {}
    for row in sorted(rows, key=lambda row: (row.rater, row.factor, row.choice)):
        vote = PairRating(row.item, row.rater, vote_of(row.choice) or "tie")
        votes.setdefault(row.factor, []).append(vote)
    if not votes:
        raise UsageError(
            f"there are no ratings of the pairs of run {pairs.run.name}: rate them under /rate of `editjudge serve`, or give "
            "--preferences FILE",
            code="no_ratings",
        )
    return _agree_pairs(pairs, votes, len(rows), [])


def _left_out(
    noun: str, total: int, used: int, unknown: Sequence[str], expected: str
) -> list[str]:
    """Return a note on rows whose pairs are not in the run. Raises `InputError` if no row can be used."""
    if not unknown:
        return []
    if not used:
        raise InputError(f"{unknown[0]}, {expected}")
    return [
        f"{total - used:,} of {total:,} {noun} are left out; the first at {unknown[0]}"
    ]


def _agree_pairs(
    pairs: PairRun,
    ratings: Mapping[str, Sequence[PairRating]],
    total: int,
    notes: Sequence[str],
) -> Answer:
    """Compare a pairwise run with people's votes, factor by factor. Votes under `VOTE` say which output is better, and
    are compared with every factor.

    Each person's vote is a row. A judge's vote is its verdict over both orders.
    """
    origins = pairs.origins
    voted: list[JudgeVotes] = []
    for judge in pairs.judges:
        answers = {pair.item: pair for pair in pairs.answers if pair.judge == judge}
        for factor in pairs.factors(judge):
            votes = ratings.get(factor, ratings.get(VOTE, ()))
            if votes:
                voted.append(_pair_votes(judge, factor, votes, answers, origins))
    decisive = next((name for name in ("overall", VOTE) if name in ratings), None)
    votes = ratings[decisive or next(iter(ratings))]
    by_pair: dict[str, list[tuple[str, str]]] = {}
    for n, vote in enumerate(votes):
        by_pair.setdefault(vote.item, []).append((vote.rater or f"row {n}", vote.vote))
    people = human_agreement(
        by_pair, {item: origin.group for item, origin in origins.items()}
    )
    strengths = _strengths_by(
        [origins[vote.item][:2] for vote in votes],
        [vote.vote for vote in votes],
        [origins[vote.item].group for vote in votes],
    )
    among = "no pair has votes of two people: agreement among people is unknown"
    if people.agreement is not None:
        apart = "-" if people.without_ties is None else f"{people.without_ties:.2f}"
        agreed = figure_text(people.agreement, people.ci)
        among = f"two people agree in {agreed} of {people.pairs:,} pairs, without ties in {apart}"
    caption = "Verdicts over both orders against people's preferences"
    used = sum(map(len, ratings.values()))
    return Answer(
        {
            "votes": total,
            "left_out": total - used,
            **_document(voted, strengths, people),
        },
        [*pairs.lead(), *notes],
        [
            _accuracies(voted, caption, among, "a judge's flip is a tie"),
            *_strength_table(voted, strengths),
        ],
    )


def _pair_votes(
    judge: str,
    factor: str,
    votes: Sequence[PairRating],
    answers: Mapping[str, PairAnswers],
    origins: Mapping[str, PairOrigin],
) -> JudgeVotes:
    rated = {vote.item for vote in votes}
    decisions = {}
    for item, pair in answers.items():
        if item in rated and factor in pair.answers:
            decisions[item] = pair.decision(factor)
    decided = [item for item, vote in decisions.items() if vote.verdict is not None]
    verdicts = {"a": "A", "b": "B", "tie": "tie", None: None}
    return JudgeVotes(
        judge,
        factor,
        accuracy(
            [vote.vote for vote in votes],
            [
                verdicts[decisions[vote.item].verdict]
                if vote.item in decisions
                else None
                for vote in votes
            ],
            group=[origins[vote.item].group for vote in votes],
        ),
        flips=share_of(
            [decisions[item].flipped for item in decided],
            [origins[item].group for item in decided],
        ),
    )


def _strengths_by(
    models: Sequence[tuple[str, ...]],
    votes: Sequence[str | None],
    groups: Sequence[str],
) -> list[Strength]:
    """Return the strengths of models, computed from votes on pairs of two models."""
    rows = [
        (*pair, vote, group)
        for pair, vote, group in zip(models, votes, groups, strict=True)
        if all(pair) and len({*pair}) > 1
    ]
    first, second, chosen, group = zip(*rows, strict=True) if rows else [()] * 4
    return bradley_terry(first, second, chosen, group=group)


def _preferred(
    pairs: Sequence[Preference], run: RunData | None
) -> tuple[list[JudgeVotes], list[Strength]]:
    """Compare preferences with the scores of a run that contains their edits, and with judges' votes in the same file."""
    human = [pair.human for pair in pairs]
    models: list[tuple[str, ...]] = [pair.pair for pair in pairs]
    group = [pair.group or f"row {n}" for n, pair in enumerate(pairs)]
    voted: list[JudgeVotes] = []
    if run:
        scores = run.scores
        _, first = np.unique(scores.item.codes, return_index=True)
        edits = scores.take(first)
        model_of = dict(zip(edits.item, edits.model, strict=True))
        group_of = dict(zip(edits.item, edits.group, strict=True))
        models = [tuple(model_of[item] for item in pair.pair) for pair in pairs]
        group = [pair.group or group_of[pair.pair[0]] for pair in pairs]
        for (judge, factor), gaps in _differences(run, pairs).items():
            votes = [
                None if math.isnan(gap) else _VOTES[int(np.sign(gap))] for gap in gaps
            ]
            leads = judge not in {result.judge for result in voted}
            voted.append(
                JudgeVotes(
                    judge,
                    factor,
                    accuracy(human, votes, group=group),
                    tie_calibrated(human, gaps, group=group),
                    _strengths_by(models, votes, group) if leads else None,
                )
            )
    for judge in dict.fromkeys(name for pair in pairs for name in pair.votes):
        votes = [pair.votes.get(judge) for pair in pairs]
        voted.append(JudgeVotes(judge, VOTE, accuracy(human, votes, group=group)))
    return voted, _strengths_by(models, human, group)


def _differences(
    run: RunData, pairs: Sequence[Preference]
) -> dict[tuple[str, str], list[float]]:
    """Return the mean score of A minus that of B, keyed by judge and factor. Overall means come first.

    A missing score gives NaN. The sign is reversed if lower scores are better.
    """
    scores = run.with_aggregates()
    differences: dict[tuple[str, str], list[float]] = {}
    for judge, sums in run.aggregates.items():
        means = [total.name for total in reversed(sums) if total.how == "mean"]
        for factor in (*means, *run.scores.where(judge=judge).factor.present()):
            part = scores.where(judge=judge, factor=factor)
            item = part.item.compact()
            values = item_means(item, part.score).tolist()
            mean = dict(zip(item.labels, values, strict=True))
            # Rounded, because equal means may differ in the last digit.
            sign = -1 if factor in run.falling else 1
            differences[judge, factor] = [
                round(sign * (mean.get(a, math.nan) - mean.get(b, math.nan)), 9)
                for a, b in (preference.pair for preference in pairs)
            ]
    return differences


def _document(
    voted: Sequence[JudgeVotes],
    strengths: Sequence[Strength],
    people: HumanAgreement | None = None,
) -> dict[str, object]:
    factors: dict[str, dict[str, object]] = {}
    for votes in voted:
        factors.setdefault(votes.factor, {})[votes.judge] = votes.as_json()
    humans = plain(people) if people else {}
    return {"factors": factors, "humans": humans | {"strengths": plain(strengths)}}


def _accuracies(voted: Sequence[JudgeVotes], caption: str, *notes: str) -> Table:
    about = {}
    for votes in voted:
        lines = [reason_text(note) for note in votes.accuracy.notes]
        if votes.accuracy.overturnable:
            lines.append(OVERTURNS)
        about[f"{votes.factor} by {votes.judge}"] = lines
    people = voted[0].accuracy
    share = people.human_first_share
    first = "-" if share is None else f"{share:.2f}"
    legend = {
        "answered": "pairs with a readable vote, a verdict, or scores of both edits",
        "bounds": "over all pairs, if all failed answers were wrong, and if all were right",
        "strict": "over all pairs, with missing answers counted as wrong",
        "takes A": f"among votes that are not ties; people prefer A in {first}, and call {people.human_ties:,} a tie",
    }
    table = Table.listing(
        (
            {
                "judge": votes.judge,
                "by": votes.factor,
                "answered": coverage_figure(a.answered, a.n),
                "failed": a.failed,
                "accuracy": Figure(a.accuracy, a.ci),
                "bounds": bounds_figure(a.bounds, column_decimals([a.ci]))
                if a.failed
                else None,
                "strict": a.strict,
                "without ties": Figure(a.without_ties, a.without_ties_ci),
                "ties": a.judge_ties,
                "takes A": a.first_share,
                "flip rate": Figure(votes.flips.share, votes.flips.ci)
                if votes.flips
                else None,
            }
            for votes in voted
            for a in [votes.accuracy]
        ),
        f"{caption}, 95 % CI",
        notes=[*notes, *merge_notes(about)],
        stub=2,
        spare=("failed", "ties", "strict"),
        legend=legend,
    )
    return table.folded("judge", "by").trimmed("bounds", "flip rate")


def _ties(voted: Sequence[JudgeVotes]) -> list[Table]:
    rows = [
        {
            "judge": votes.judge,
            "by": votes.factor,
            "n": ties.n,
            "accuracy": votes.accuracy.accuracy,
            "tie-calibrated": ties.accuracy,
            "epsilon": ties.epsilon,
            "held out": ties.held_out,
        }
        for votes in voted
        if (ties := votes.ties)
    ]
    note = (
        "score differences up to epsilon are called ties; with -1, none are. Epsilon is the best for these pairs; "
        "held out: epsilon chosen on other source images, which estimates the accuracy on new pairs"
    )
    table = Table.listing(
        rows, "Accuracy with small differences as ties", notes=[note], stub=2
    )
    return [table.folded("judge")] if rows else []


def _strength_table(
    voted: Sequence[JudgeVotes], strengths: Sequence[Strength]
) -> list[Table]:
    if not strengths:
        return []
    by = {"people": strengths}
    by |= {f"{votes.judge}, {votes.factor}": votes.strengths or () for votes in voted}
    rows: list[dict[str, Cell]] = []
    for name, fitted in by.items():
        for strength in fitted:
            reasons = dict.fromkeys((*strength.notes, strength.ci_reason))
            rows.append(
                {
                    "by": name,
                    "scale": strength.scale,
                    "model": strength.model,
                    "games": strength.games,
                    "strength": Figure(strength.strength, strength.ci, sign=True),
                    "": "; ".join(reason_text(reason) for reason in reasons if reason),
                }
            )
    caption = "Strength of models (Bradley-Terry): log odds of being preferred over the average one, 95 % CI"
    legend = {
        "scale": "only strengths of one scale can be compared; models above won against those below"
    }
    table = Table.listing(rows, caption, legend=legend, stub=3).trimmed("")
    several = any(strength.scale > 1 for fitted in by.values() for strength in fitted)
    return [table if several else table.without("scale")]
