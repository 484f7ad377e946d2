"""Comparison of two edits shown in both orders: verdicts, flips, win rates, strengths of models, and people's votes.

A judge that sees the same two outputs in both orders and decides by their position says nothing about the outputs. So a
verdict requires that both orders agree, and strengths come from a model of single answers: Davidson's extension of
Bradley and Terry's model, with ties (Davidson, 1970) and a position bias. The bias has one of two forms. Either a share
of the answers goes to one position whatever is shown there, or a position adds log odds, which decide only close pairs
(Davidson and Beaver, 1977). Both have one parameter. Each bootstrap draw chooses the form with the higher likelihood,
so that intervals include the uncertainty of this choice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from editjudge.orders import decide
from editjudge.stats.columns import (
    Codes,
    Column,
    Ends,
    FailureBounds,
    Floats,
    Interval,
    Ints,
    Limits,
    Mask,
    Reason,
)
from editjudge.stats.inference import DRAWS, folds_of, mean_interval, tail
from editjudge.stats.strengths import (
    VOTES,
    Fit,
    Games,
    Strength,
    bootstrap_strengths,
    bradley_terry,
    davidson,
    points,
    strengths_by_scale,
    vote_codes,
)

BiasModel = Literal["share", "odds"]

VOTE_OF_CHOICE = {"a": "A", "b": "B", "tie": "tie", None: None}
COIN = 0.5
"""Share of pairs in which a judge that answers at random contradicts itself."""
LEAST_LEFT = 0.05
"""Minimum share of answers that depend on the outputs. Strengths are divided by this share, so below the minimum they
would be noise."""


@dataclass(frozen=True)
class Share:
    """A share of pairs with its interval, clustered on source images."""

    n: int
    share: float | None
    ci: Interval | None
    ci_reason: Reason | None
    method: str | None = None


@dataclass(frozen=True)
class ModelRecord:
    """Record of one model against all models that it was paired with."""

    model: str
    n: int
    """Pairs with a verdict."""
    wins: int
    ties: int
    losses: int
    failed: int
    """Pairs without a verdict."""
    win_rate: float | None
    """Share of wins; a tie is half a win."""
    ci: Interval | None
    ci_reason: Reason | None
    strength: float | None
    """Davidson's strength without the position bias: log odds of being preferred over the average model on its scale."""
    strength_ci: Interval | None
    strength_ci_reason: Reason | None
    bradley_terry: Strength | None
    """Strength computed from verdicts alone, with a tie as half a win for each side. A judge's position bias shrinks it
    towards zero."""
    scale: int
    rank: int
    """Rank; 1 is the strongest. Models that do not differ significantly have different ranks, but are in the same
    group."""
    groups: tuple[int, ...]
    """Numbers of the groups that the model belongs to."""
    notes: tuple[Reason, ...]


@dataclass(frozen=True)
class PairRecord:
    """Record of two models against each other."""

    a: str
    b: str
    n: int
    a_wins: int
    b_wins: int
    ties: int
    flips: int
    failed: int
    a_win_rate: float | None
    ci: Interval | None
    ci_reason: Reason | None


@dataclass(frozen=True)
class PairwiseSummary:
    """Summary of the answers of one judge about one factor."""

    n: int
    failed: int
    """Pairs without a verdict, because the answer in one order is missing."""
    decided: int
    """Pairs with a verdict other than a tie."""
    ties: int
    """Pairs whose verdict is a tie, because an order was answered with a tie or the two orders disagree (a flip)."""
    half: int
    flipped: int
    flips: Share
    """Share of flips among the pairs answered in both orders."""
    contradicted: Share
    """Share of flips among the pairs without a tie in either order. Random answers would flip half of these pairs."""
    position: Share
    """Share of answers that prefer the first position minus the share that prefer the second. It is 1 if the first is
    always preferred."""
    position_model: BiasModel | None
    """Form of the position bias in the fit: a share of answers that always go to one position, or log odds. None if
    there is no fit, or if only one order was shown."""
    both_orders: bool
    useless: Reason | None
    """Reason why the verdicts are uninformative; None if they are informative."""
    tie_rate_of_equals: float | None
    """Estimated share of ties between two models of equal strength."""
    models: tuple[ModelRecord, ...]
    """Records of the models, strongest first."""
    pairs: tuple[PairRecord, ...]
    groups: tuple[tuple[str, ...], ...]
    """Groups of models that do not differ at 95 % (jointly over all comparisons). The strongest group is first."""
    notes: tuple[Reason, ...]


def summarise(
    model_a: Sequence[str],
    model_b: Sequence[str],
    ab: Sequence[str | None],
    ba: Sequence[str | None] | None,
    *,
    group: Iterable[object] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> PairwiseSummary:
    """Summarise pairs. Each was answered with output a shown first (`ab`) and, unless `ba` is None, also with b shown
    first.

    Answers name the outputs as the item does, whatever their order. With a single order, its answer is the verdict and
    includes any position bias.
    """
    second = ab if ba is None else ba
    decisions = [decide(x, y) for x, y in zip(ab, second, strict=True)]
    groups = Column.of(range(len(decisions)) if group is None else group)
    answers = np.stack([_codes(ab), _codes(second)], axis=1)
    verdict = _codes([d.verdict for d in decisions])
    flipped = np.array([d.flipped for d in decisions], dtype=bool)
    answered = verdict >= 0
    decided = answered & (verdict < 2)
    # Answers for the output shown first minus those for the second, over both orders.
    for_a = (answers == 0).astype(float) - (answers == 1)
    lean = (for_a[:, 0] - for_a[:, 1]) / 2
    flips = share_of(flipped, groups, answered, draws=draws)
    contradicted = share_of(flipped, groups, flipped | decided, draws=draws)
    position = share_of(lean, groups, answered, (-1.0, 1.0), draws=draws)
    useless = None
    if ba is not None:
        useless = _useless(flips, contradicted, position, int(decided.sum()))
    names = Column.of([*model_a, *model_b])
    first, second_model = names.codes.reshape(2, -1)
    pairs = _PairVerdicts(
        names.labels, first, second_model, verdict, flipped, groups, draws, seed
    )
    fit = pairs.fit(answers, ba is not None, useless)
    return PairwiseSummary(
        n=len(decisions),
        failed=int((~answered).sum()),
        decided=int(decided.sum()),
        ties=int((verdict == 2).sum()),
        half=sum(d.half for d in decisions),
        flipped=int(flipped.sum()),
        flips=flips,
        contradicted=contradicted,
        position=position,
        position_model=fit.bias,
        both_orders=ba is not None,
        useless=useless,
        tie_rate_of_equals=fit.tie_rate,
        models=pairs.model_records(fit),
        pairs=pairs.pair_records(),
        groups=fit.groups,
        notes=() if ba is not None else (Reason("one_order"),),
    )


def _codes(answers: Sequence[str | None]) -> Ints:
    return vote_codes([VOTE_OF_CHOICE[answer] for answer in answers])


def share_of(
    values: Sequence[float] | Codes,
    group: Iterable[object],
    keep: Mask | None = None,
    ends: Ends = (0.0, 1.0),
    *,
    draws: int = DRAWS,
) -> Share:
    """Return the mean of all values, or only of the values in the mask `keep`, with an interval clustered on groups."""
    column = np.array(values, dtype=float)
    rows = np.ones(len(column), bool) if keep is None else keep
    groups = group if isinstance(group, Column) else Column.of(group)
    chosen = column[rows]
    codes = groups.take(rows).compact().codes
    limits = mean_interval(chosen, codes, ends, draws=draws)
    return Share(len(chosen), float(chosen.mean()) if len(chosen) else None, *limits)


def _useless(
    flips: Share, contradicted: Share, position: Share, decided: int
) -> Reason | None:
    """Return the reason why the judge's verdicts are uninformative, or None if they are informative."""
    if not flips.n:
        return None
    if flips.share == 1:
        code = {1.0: "always_first", -1.0: "always_second"}.get(position.share or 0.0)
        return Reason.of(code or "always_by_place", pairs=flips.n)
    if contradicted.n and contradicted.ci is not None and contradicted.ci.lo >= COIN:
        return Reason.of(
            "contradicts_itself", share=contradicted.share, pairs=contradicted.n
        )
    return None if decided else Reason.of("no_winner", pairs=flips.n)


@dataclass(frozen=True, eq=False)
class _RankedModels:
    """Davidson's fit of all models."""

    strengths: Sequence[Strength]
    """Strengths of the models, strongest first."""
    groups: tuple[tuple[str, ...], ...] = ()
    """Groups of models that do not differ significantly."""
    tie_rate: float | None = None
    bias: BiasModel | None = None


@dataclass(frozen=True, eq=False)
class _PairVerdicts:
    """Pairs of outputs and their verdicts."""

    models: Sequence[str]
    first: Codes
    """Index of the model that made output a."""
    second: Codes
    verdict: Ints
    flipped: Mask
    groups: Column
    draws: int
    seed: int

    def between(self, x: int, y: int) -> Mask:
        """Return the mask of the pairs between these two models."""
        forth = (self.first == x) & (self.second == y)
        back = (self.first == y) & (self.second == x)
        met: Mask = forth | back
        return met

    def record(self, model: int, rows: Mask) -> tuple[int, int, int, int, Share]:
        """Return wins, losses, ties and failures of a model in these pairs, and its win rate. A tie counts as half a
        win."""
        votes = self.verdict[rows]
        turned = (self.second[rows] == model) & (votes >= 0) & (votes < 2)
        votes = np.where(turned, 1 - votes, votes)
        groups = self.groups.take(rows)
        share = share_of(points(votes), groups, votes >= 0, draws=self.draws)
        wins, losses, ties, failed = (
            int((votes == code).sum()) for code in (0, 1, 2, -1)
        )
        return wins, losses, ties, failed, share

    def pair_records(self) -> tuple[PairRecord, ...]:
        """Return a record for each pair of models that were compared."""
        by_name = sorted(range(len(self.models)), key=lambda i: self.models[i])
        records = []
        for a, b in itertools.combinations(by_name, 2):
            rows = self.between(a, b)
            if rows.any():
                a_wins, b_wins, ties, failed, share = self.record(a, rows)
                flips = int(self.flipped[rows].sum())
                records.append(
                    PairRecord(
                        self.models[a], self.models[b], share.n, a_wins, b_wins, ties, flips, failed, share.share,
                        share.ci, share.ci_reason,
                    )
                )  # fmt: skip
        return tuple(records)

    def model_records(self, fit: _RankedModels) -> tuple[ModelRecord, ...]:
        """Return the record of every model against all others, strongest first."""
        met = np.flatnonzero(self.first != self.second)
        by_verdicts = bradley_terry(
            [self.models[code] for code in self.first[met]],
            [self.models[code] for code in self.second[met]],
            [None if code < 0 else VOTES[code] for code in self.verdict[met]],
            group=self.groups.codes[met],
            draws=self.draws,
            seed=self.seed,
        )
        plain = {strength.model: strength for strength in by_verdicts}
        records = []
        for rank, strength in enumerate(fit.strengths, 1):
            name = strength.model
            model = self.models.index(name)
            rows = (self.first == model) ^ (self.second == model)
            wins, losses, ties, failed, share = self.record(model, rows)
            records.append(
                ModelRecord(
                    name, share.n, wins, ties, losses, failed, share.share, share.ci, share.ci_reason,
                    strength.strength, strength.ci, strength.ci_reason, plain.get(name), strength.scale, rank,
                    tuple(i for i, names in enumerate(fit.groups, 1) if name in names), strength.notes,
                )
            )  # fmt: skip
        return tuple(records)

    def fit(self, answers: Ints, both: bool, useless: Reason | None) -> _RankedModels:
        """Fit Davidson's strengths, scale by scale."""
        keep = (answers >= 0).all(axis=1) & (self.first != self.second)
        if useless or not keep.any():
            reason = Reason("no_verdict")
            if useless:
                reason = Reason.of("no_strengths", why=useless)
            return _RankedModels(
                [Strength(name, 0, None, None, reason, 1, ()) for name in self.models]
            )
        m = len(self.models)
        a = self.first[keep]
        b = self.second[keep]
        groups = self.groups.take(keep).compact()
        cells = np.zeros((len(groups.labels), m, m, 3))
        np.add.at(cells, (groups.codes, a, b, answers[keep, 0]), 1.0)
        swapped = np.array([1, 0, 2])[answers[keep, 1]]
        np.add.at(cells, (groups.codes, b, a, swapped), 1.0)
        games = _AnswerCounts(cells, both)
        apart = np.zeros((m, m), bool)
        ties: list[float] = []
        kinds: list[BiasModel] = []

        def fit(members: Sequence[int]) -> tuple[Floats, Sequence[Limits]]:
            if games.left < LEAST_LEFT:
                none = Limits(None, Reason.of("answers_by_place", left=games.left))
                return np.full(len(members), np.nan), [none] * len(members)
            inside = cells[np.ix_(range(len(cells)), members, members)]
            (_, nu, _), by_odds = games.fit(inside, np.ones((1, len(inside))))
            played = inside.sum(axis=(1, 2, 3)) > 0
            values, drawn, limits = bootstrap_strengths(
                lambda weights: games.fit(inside, weights)[0].strength,
                played,
                self.draws,
                self.seed,
            )
            if drawn is not None:
                differ = _apart(values, drawn, int(played.sum()))
                apart[np.ix_(members, members)] = differ
            ties.append(float(nu[0] / (2 + nu[0])))
            kinds.append("odds" if by_odds[0] else "share")
            return values, limits

        strengths = strengths_by_scale(self.models, games.points, fit)
        self._tell_scales_apart(answers, strengths, apart)
        return _RankedModels(
            strengths,
            tuple(
                _groups([strength.model for strength in strengths], apart, self.models)
            ),
            ties[0] if ties else None,
            kinds[0] if both and kinds else None,
        )

    def _tell_scales_apart(
        self, answers: Ints, strengths: Sequence[Strength], apart: Mask
    ) -> None:
        """Set in `apart` which models of different scales differ, based on the games between the two scales.

        A model on a higher scale never lost to the other, but may have met it only once, so the scale alone proves
        nothing. The level is divided among all comparisons.
        """
        answered = (answers >= 0).all(axis=1)
        won = (answers == 0).mean(axis=1) + (answers == 2).mean(axis=1) / 2
        level = 1 - 0.05 / max(1, math.comb(len(self.models), 2))
        for x, y in itertools.combinations(strengths, 2):
            if x.scale != y.scale:
                i = self.models.index(x.model)
                j = self.models.index(y.model)
                rows = self.between(i, j) & answered
                share = np.where(self.first == i, won, 1 - won)[rows]
                codes = self.groups.take(rows).compact().codes
                ci = mean_interval(share, codes, (0.0, 1.0), level=level).ci
                apart[i, j] = apart[j, i] = ci is not None and not ci.lo <= 0.5 <= ci.hi


@dataclass(frozen=True, eq=False)
class _AnswerCounts:
    """Counts of the answers about each source image. A fit needs only their sums, so a draw is a matrix product."""

    cells: Floats
    """Counts by group x model shown first x model shown second x answer (first, second, tie)."""
    both: bool
    """Whether both orders were shown. If not, each answer counts for both orders."""

    @cached_property
    def lean(self) -> Floats:
        """Number of answers that prefer the first position minus the number that prefer the second. A pair in both
        orders counts as one game."""
        return _lean(self.cells)

    @cached_property
    def pairs(self) -> Floats:
        pairs: Floats = self.cells.sum(axis=(1, 2, 3)) / 2
        return pairs

    @cached_property
    def toward(self) -> float:
        """Position that answers favour: 1 for the first, -1 for the second, 0 if only one order was shown.

        It is -1 only with clear evidence. Otherwise mere noise could change the sign, and would look like a bias.
        """
        if not self.both:
            return 0.0
        share = self.lean.sum() / self.pairs.sum()
        error = (
            np.sqrt(np.sum((self.lean - share * self.pairs) ** 2)) / self.pairs.sum()
        )
        return -1.0 if share < -2 * error else 1.0

    @property
    def left(self) -> float:
        """Share of answers that do not depend on the position."""
        return float(1 - self.toward * self.lean.sum() / self.pairs.sum())

    @property
    def points(self) -> Floats:
        """Wins of each row over each column, without the answers decided by position. A tie counts as half a win."""
        bias = self._bias(np.ones((1, len(self.cells))))
        total = _games(self.cells.sum(axis=0)[None], bias)
        won: Floats = (total.wins + total.ties / 2)[0]
        return np.where(won > 1e-9, won, 0.0)

    def fit(self, cells: Floats, drawn: Floats) -> tuple[Fit, Mask]:
        """Return the fit to these cells in each draw of images, and the mask of the draws in which the position bias
        adds log odds."""
        tally = (drawn @ cells.reshape(len(cells), -1)).reshape(-1, *cells.shape[1:])
        bias = self._bias(drawn)
        shared = davidson(_games(tally, bias))
        if not self.both:
            return shared, np.zeros(len(drawn), bool)
        nothing = np.zeros(len(drawn))
        added = davidson(_games(tally, nothing), _lean(tally))
        share = np.clip(bias, 0.0, 1 - 1e-9)
        by_odds = _likelihood(tally, added, nothing, self.toward) > _likelihood(
            tally, shared, share, self.toward
        )
        chosen = Fit(
            np.where(by_odds[:, None], added.strength, shared.strength),
            np.where(by_odds, added.nu, shared.nu),
            np.where(by_odds, added.first, shared.first),
        )
        return chosen, by_odds

    def _bias(self, drawn: Floats) -> Floats:
        """Return the share of answers decided by position in each draw."""
        bias: Floats = self.toward * (drawn @ self.lean) / (drawn @ self.pairs)
        return bias


def _lean(cells: Floats) -> Floats:
    lean: Floats = (cells[..., 0] - cells[..., 1]).sum(axis=(1, 2)) / 2
    return lean


def _games(tally: Floats, bias: Floats) -> Games:
    """Return the games of each draw, without the answers decided by position."""
    wins = (tally[..., 0] + tally[..., 1].transpose(0, 2, 1)) / 2
    ties = (tally[..., 2] + tally[..., 2].transpose(0, 2, 1)) / 2
    games = wins + wins.transpose(0, 2, 1) + ties
    by_place = bias[:, None, None]
    # Answers decided by position go to both models equally, since each pair was shown in both orders.
    return Games(wins - by_place * games / 2, ties, (1 - by_place) * games)


def _apart(values: Floats, drawn: Floats, groups: int) -> Mask:
    """Return which models differ at 95 %, jointly over all comparisons.

    The test uses the largest studentised difference in each draw. If many draws have no finite fit, it uses percentiles
    instead, at a level divided among the comparisons.
    """
    m = len(values)
    first, second = np.triu_indices(m, 1)
    finite = drawn[np.isfinite(drawn).all(axis=1)]
    if len(finite) < len(drawn) * 0.9 or not np.isfinite(values).all():
        with np.errstate(invalid="ignore"):
            differences = drawn[:, first] - drawn[:, second]
        # Two infinite strengths cannot be ordered.
        differences[np.isnan(differences)] = 0.0
        below = (differences <= 0).mean(axis=0)
        above = (differences >= 0).mean(axis=0)
        differ = np.minimum(below, above) < tail(groups) / len(first)
    else:
        gap = values[first] - values[second]
        gaps = finite[:, first] - finite[:, second]
        error = gaps.std(axis=0)
        error[error < 1e-12] = np.inf
        largest = np.abs((gaps - gap) / error).max(axis=1)
        differ = np.abs(gap) > np.quantile(largest, 1 - 2 * tail(groups)) * error
    apart = np.zeros((m, m), bool)
    apart[first, second] = differ
    return apart | apart.T


def _groups(
    ranked: Sequence[str], apart: Mask, models: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    """Yield the longest sequences of neighbours in the ranking in which no two models differ."""
    order = [models.index(name) for name in ranked]
    reached = 0
    for start in range(len(order)):
        stop = start + 1
        while stop < len(order) and not apart[order[start:stop], order[stop]].any():
            stop += 1
        if stop > reached:
            yield tuple(ranked[start:stop])
            reached = stop


def _likelihood(cells: Floats, fit: Fit, share: Floats, toward: float) -> Floats:
    """Return the log likelihood of the answers in each draw, or minus infinity if the fit is not finite."""
    finite = np.asarray(np.isfinite(fit.strength).all(axis=1))
    strength = np.where(finite[:, None], fit.strength, 0.0)
    half = np.clip(
        (strength[:, :, None] - strength[:, None, :] + fit.first[:, None, None]) / 2,
        -30,
        30,
    )
    odds = np.stack(
        [
            np.exp(half),
            np.exp(-half),
            np.broadcast_to(fit.nu[:, None, None], half.shape),
        ],
        axis=-1,
    )
    favoured = np.array([1.0, 0.0, 0.0] if toward >= 0 else [0.0, 1.0, 0.0])
    by_place = share[:, None, None, None]
    chance = (1 - by_place) * odds / odds.sum(
        axis=-1, keepdims=True
    ) + by_place * favoured
    total: Floats = (cells * np.log(np.maximum(chance, 1e-12))).sum(axis=(1, 2, 3))
    return np.where(finite, total, -np.inf)


@dataclass(frozen=True, slots=True)
class Preference:
    """A person's vote on which of two edits is better, and judges' answers about the same pair."""

    pair: tuple[str, str]
    """Ids of the two edits or, if no run contains them, names of the models that made them."""
    human: str
    group: str
    """Source image; empty if it is unknown."""
    votes: Mapping[str, str | None]


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of a judge's votes against people's."""

    n: int
    answered: int
    failed: int
    accuracy: float | None
    """Three-way accuracy (A, B, tie) over the pairs that the judge answered."""
    ci: Interval | None
    """Clopper-Pearson interval if all answers about each source image are right or all are wrong. Otherwise the
    interval of a mean."""
    ci_reason: Reason | None
    strict: float | None
    """Accuracy over all pairs, with failed answers counted as wrong."""
    strict_ci: Interval | None
    without_ties: float | None
    """Accuracy over the pairs that neither people nor the judge called a tie."""
    without_ties_ci: Interval | None
    bounds: FailureBounds | None
    """Accuracy over all pairs if every failed answer were wrong, and if every failed answer were right."""
    overturnable: bool
    """Whether `bounds` reach beyond the interval, which means that the failures could change the conclusion."""
    decided: int
    """Number of pairs behind `without_ties`."""
    judge_ties: int
    human_ties: int
    first_share: float | None
    """Share of A among the judge's votes that are not ties. A position bias makes it differ from people's share."""
    human_first_share: float | None
    notes: tuple[Reason, ...]


@dataclass(frozen=True)
class TieCalibrated:
    """Accuracy of score differences when differences up to `epsilon` are called ties (Deutsch et al., 2023)."""

    n: int
    accuracy: float | None
    """Accuracy with the epsilon that is best on the same pairs, as in the paper."""
    epsilon: float | None
    held_out: float | None
    """Accuracy with an epsilon chosen on other groups, which estimates the accuracy on new pairs."""


def accuracy(
    human: Sequence[str],
    judge: Sequence[str | None],
    *,
    group: Iterable[object] | None = None,
    draws: int = DRAWS,
) -> Accuracy:
    """Return the accuracy of a judge's votes. A vote is A, B or tie; None means that the answer failed."""
    h = vote_codes(human)
    j = vote_codes(judge)
    groups = Column.of(range(len(h)) if group is None else group)
    answered = j >= 0
    decided = (h < 2) & (j < 2) & answered
    right = (h == j).astype(float)
    share, strict, without_ties = (
        share_of(right, groups, keep, draws=draws)
        for keep in (answered, h >= 0, decided)
    )
    failed = int((~answered).sum())
    bounds = None
    if len(h):
        best = float((right.sum() + failed) / len(h))
        bounds = FailureBounds(float(right.mean()), best)
    reason = share.ci_reason if answered.any() else Reason("no_answer")
    judge_decided = j[answered & (j < 2)]
    human_decided = h[h < 2]
    return Accuracy(
        n=len(h),
        answered=share.n,
        failed=failed,
        accuracy=share.share,
        ci=share.ci,
        ci_reason=share.ci_reason,
        strict=strict.share,
        strict_ci=strict.ci,
        without_ties=without_ties.share,
        without_ties_ci=without_ties.ci,
        bounds=bounds,
        overturnable=failed > 0 and (bounds is None or bounds.beyond(share.ci)),
        decided=without_ties.n,
        judge_ties=int((j == 2).sum()),
        human_ties=int((h == 2).sum()),
        first_share=float(np.mean(judge_decided == 0)) if len(judge_decided) else None,
        human_first_share=float(np.mean(human_decided == 0))
        if len(human_decided)
        else None,
        notes=(reason,) if reason else (),
    )


@dataclass(frozen=True)
class HumanAgreement:
    """Agreement between the votes of two people on the same pair."""

    raters: int
    pairs: int
    """Number of pairs with votes from two or more people."""
    agreement: float | None
    """Three-way agreement (A, B, tie): share of equal votes of two people, averaged over pairs."""
    ci: Interval | None
    ci_reason: Reason | None
    without_ties: float | None
    """Agreement of two people's votes when neither vote is a tie."""


def human_agreement(
    votes: Mapping[str, Sequence[tuple[str, str]]],
    groups: Mapping[str, str],
    *,
    draws: int = DRAWS,
) -> HumanAgreement:
    """Return the agreement among people. `votes` maps a pair to its (rater, vote) entries, and `groups` maps it to its
    source image."""
    shares = []
    decided = []
    images = []
    for pair, cast in votes.items():
        two = [
            (x, y)
            for (rater, x), (other, y) in itertools.combinations(cast, 2)
            if rater != other
        ]
        if two:
            shares.append(float(np.mean([x == y for x, y in two])))
            images.append(groups.get(pair, pair))
            decided += [x == y for x, y in two if "tie" not in (x, y)]
    share = share_of(shares, images, draws=draws)
    return HumanAgreement(
        raters=len({rater for cast in votes.values() for rater, _ in cast}),
        pairs=share.n,
        agreement=share.share,
        ci=share.ci,
        ci_reason=share.ci_reason if shares else Reason("no_two_votes"),
        without_ties=float(np.mean(decided)) if decided else None,
    )


def tie_calibrated(
    human: Sequence[str],
    difference: Sequence[float],
    *,
    group: Iterable[object] | None = None,
    folds: int = 5,
) -> TieCalibrated:
    """Return the tie-calibrated accuracy. `difference` is the judge's score of A minus its score of B."""
    h = vote_codes(human)
    d = np.asarray(difference, dtype=float)
    keep = np.isfinite(d) & (h >= 0)
    groups = Column.of(range(len(h)) if group is None else group).codes[keep]
    h = h[keep]
    d = d[keep]
    if len(h) == 0:
        return TieCalibrated(0, None, None, None)
    epsilon = _best_epsilon(h, d)
    fold = folds_of(groups, folds)
    right = np.full(len(h), np.nan)
    for k in range(int(fold.max()) + 1):
        test = fold == k
        if not test.all():
            right[test] = _called(d[test], _best_epsilon(h[~test], d[~test])) == h[test]
    held_out = float(right.mean()) if np.isfinite(right).all() else None
    return TieCalibrated(
        len(h), float(np.mean(_called(d, epsilon) == h)), epsilon, held_out
    )


def _called(difference: Floats, epsilon: float) -> Ints:
    return np.where(np.abs(difference) <= epsilon, 2, np.where(difference > 0, 0, 1))


def _best_epsilon(h: Ints, d: Floats) -> float:
    """Return the smallest threshold that gives the highest accuracy."""
    sizes, code = np.unique(np.abs(d), return_inverse=True)
    order_right = np.where(d > 0, 0, 1) == h
    gain = np.bincount(
        code, weights=(h == 2).astype(float) - order_right, minlength=len(sizes)
    )
    best = np.r_[0.0, np.cumsum(gain)]
    # An epsilon of -1 calls no pair a tie, not even one with a difference of zero.
    return float(np.r_[-1.0, sizes][int(np.argmax(np.round(best, 9)))])
