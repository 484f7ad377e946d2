"""Which of two edits is better, asked in both orders: verdicts, flips, win rates and strengths of models.

A judge that is shown the same two outputs in both orders and names the better one by where it stands has said nothing
about the outputs. So a verdict counts where both orders agree, and strengths come from a model of single answers:
Davidson's extension of Bradley and Terry's model, with ties (Davidson, 1970), and a bias for a place, of two kinds.
Either a share of the answers goes to one place whatever is shown there, or a place adds log odds, which decide close
pairs alone (Davidson and Beaver, 1977). Both have one parameter; the one under which the answers are more likely is
taken, in each bootstrap draw anew, so that intervals allow for not knowing which it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from editjudge.orders import CHOICES, decide
from editjudge.stats.bootstrap import DRAWS, tail, weights
from editjudge.stats.columns import Column, Floats, Ints
from editjudge.stats.inference import mean_interval
from editjudge.stats.preference import (
    FEWEST_GROUPS,
    Strength,
    bradley_terry,
    connected_scales,
    scale_notes,
    strength_limits,
)
from editjudge.stats.statistic import Interval, Limits, Statistic

BiasModel = Literal["share", "odds"]

COIN = 0.5
"""How often a judge that throws a coin in each order contradicts itself."""
LEAST_LEFT = 0.05
"""Share of answers that must depend on what is shown for strengths to be given: below, noise is divided by it."""
FARTHEST = 12.0
"""Log odds beyond which a fitted strength is infinite for all that the games say: one upset in 160,000."""


@dataclass(frozen=True)
class Share(Statistic):
    """A share of pairs with its interval, clustered on the source image."""

    n: int
    share: float | None
    ci: Interval | None
    ci_reason: str | None
    method: str | None = None


@dataclass(frozen=True)
class ModelRecord(Statistic):
    """One model against all that it was paired with."""

    model: str
    n: int
    """Pairs with a verdict."""
    wins: int
    ties: int
    losses: int
    failed: int
    """Pairs without a verdict."""
    win_rate: float | None
    """A tie is half a win."""
    ci: Interval | None
    ci_reason: str | None
    strength: float | None
    """Davidson's, net of the position bias: log odds of being preferred over the average model of its scale."""
    strength_ci: Interval | None
    strength_ci_reason: str | None
    bradley_terry: Strength | None
    """By verdicts alone, a tie as half a win for each: a judge with a position bias draws these towards zero."""
    scale: int
    rank: int
    """1 for the strongest; models that cannot be told apart have ranks of their own, and share a group."""
    groups: tuple[int, ...]
    """The numbers of the groups that it stands in."""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class PairRecord(Statistic):
    """Two models against each other."""

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
    ci_reason: str | None


@dataclass(frozen=True)
class PairwiseSummary(Statistic):
    """Everything that the answers of one judge to one factor say."""

    n: int
    failed: int
    """Pairs without a verdict: some order has no answer."""
    decided: int
    """Pairs with a verdict other than a tie."""
    ties: int
    """All verdicts that are ties: what both orders call so, half ties and flips."""
    half: int
    flipped: int
    flips: Share
    """Of pairs that were answered in both orders."""
    contradicted: Share
    """Flips among pairs that neither order calls a tie; a coin in each order flips in half of them."""
    position: Share
    """By how much more often the first place is named than the second; 1 where it always is."""
    position_model: BiasModel | None
    """How the strengths allow for it: as a share of answers that go to one place, or as log odds of a place. None where
    there is no fit, or one order alone."""
    both_orders: bool
    useless: str | None
    """Why the verdicts say nothing, where they do."""
    tie_rate_of_equals: float | None
    """How often the judge calls two models of equal strength a tie."""
    models: tuple[ModelRecord, ...]
    """Strongest first."""
    pairs: tuple[PairRecord, ...]
    groups: tuple[tuple[str, ...], ...]
    """Models that cannot be told apart at 95 % (over all comparisons together), strongest group first."""
    notes: tuple[str, ...]


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
    """Of pairs, each answered with a (shown first) before b and, unless `ba` is None, b before a.

    Answers are in the item's own naming. With one order the answer is the verdict, and the position bias is part of it.
    """
    both = ba is not None
    second = ab if ba is None else ba
    decisions = [decide(x, y) for x, y in zip(ab, second, strict=True)]
    groups = Column.of(range(len(decisions)) if group is None else group)
    answers = np.stack([_codes(ab), _codes(second)], axis=1)
    verdict = _codes([d.verdict for d in decisions])
    flipped = np.array([d.flipped for d in decisions], dtype=bool)
    half = np.array([d.half for d in decisions], dtype=bool)
    answered = verdict >= 0
    contradicting = flipped | (answered & (verdict < 2))
    # Of both answers, those that name the first output shown less those that name the second.
    for_a = (answers == 0).astype(float) - (answers == 1)
    lean = (for_a[:, 0] - for_a[:, 1]) / 2
    flips = _share(flipped.astype(float), answered, groups, (0.0, 1.0), draws)
    contradicted = _share(flipped.astype(float), contradicting, groups, (0.0, 1.0), draws)
    position = _share(lean, answered, groups, (-1.0, 1.0), draws)
    useless = _useless(flips, contradicted, position, int((verdict[answered] < 2).sum())) if both else None
    records = _matrix(model_a, model_b, verdict, flipped, groups, draws)
    fit = _fitted(model_a, model_b, answers, lean, groups, both, draws, seed, useless)
    models = _models(model_a, model_b, verdict, groups, fit, draws, seed)
    notes = [] if both else ["asked in one order: a bias of the judge for one place is part of every verdict"]
    return PairwiseSummary(
        n=len(decisions), failed=int((~answered).sum()), decided=int((verdict[answered] < 2).sum()),
        ties=int((verdict == 2).sum()), half=int(half.sum()), flipped=int(flipped.sum()),
        flips=flips, contradicted=contradicted, position=position, position_model=fit.bias, both_orders=both,
        useless=useless,
        tie_rate_of_equals=fit.tie_rate, models=models, pairs=records, groups=fit.groups, notes=tuple(notes),
    )  # fmt: skip


def _codes(answers: Sequence[str | None]) -> Ints:
    return np.array([-1 if answer is None else CHOICES.index(answer) for answer in answers], dtype=np.int64)


def _share(values: Floats, keep: NDArray[np.bool_], groups: Column, ends: tuple[float, float], draws: int) -> Share:
    part = groups.take(keep).compact()
    limits = mean_interval(values[keep], part.codes, ends, draws=draws, share=ends == (0.0, 1.0))
    n = int(keep.sum())
    return Share(n, float(values[keep].mean()) if n else None, *limits)


def share_of(values: Sequence[bool], group: Iterable[object], *, draws: int = DRAWS) -> Share:
    """How many of these are true, with an interval clustered on their groups."""
    column = np.array(values, dtype=float)
    return _share(column, np.ones(len(column), bool), Column.of(group), (0.0, 1.0), draws)


def _useless(flips: Share, contradicted: Share, position: Share, decided: int) -> str | None:
    """Why nothing can be learnt from this judge; None where something can."""
    if not flips.n:
        return None
    if flips.share == 1:
        place = {1.0: "first", -1.0: "second"}.get(position.share or 0.0)
        how = f"it always names the {place} of two outputs" if place else "it always goes by the place of an output"
        return f"{how}: 0 wins, and all {flips.n:,} pairs flip with the order"
    if contradicted.n and contradicted.ci is not None and contradicted.ci.lo >= COIN:
        share = f"{contradicted.share:.0%} of {contradicted.n:,}"
        return f"it contradicts itself in {share} pairs that it decides; a coin does so in half of them"
    if not decided:
        return f"none of {flips.n:,} pairs has a winner"
    return None


def _matrix(
    model_a: Sequence[str],
    model_b: Sequence[str],
    verdict: Ints,
    flipped: NDArray[np.bool_],
    groups: Column,
    draws: int,
) -> tuple[PairRecord, ...]:
    rows: dict[tuple[str, str], list[tuple[int, bool]]] = {}
    for i, (a, b) in enumerate(zip(model_a, model_b, strict=True)):
        if a != b:
            rows.setdefault((min(a, b), max(a, b)), []).append((i, a > b))
    records = []
    for (a, b), members in sorted(rows.items()):
        at = np.array([i for i, _ in members])
        turned = np.array([turn for _, turn in members], dtype=bool)
        votes = np.where(turned & (verdict[at] >= 0) & (verdict[at] < 2), 1 - verdict[at], verdict[at])
        keep = votes >= 0
        share = _share(_points(votes), keep, groups.take(at), (0.0, 1.0), draws)
        wins, losses, ties = (int((votes == code).sum()) for code in range(3))
        records.append(
            PairRecord(a, b, share.n, wins, losses, ties, int(flipped[at].sum()), int((~keep).sum()),
                       share.share, share.ci, share.ci_reason)
        )  # fmt: skip
    return tuple(records)


def _points(votes: Ints) -> Floats:
    """What a wins: 1, 0, or half of it."""
    points: Floats = np.array([1.0, 0.0, 0.5, np.nan])[votes]
    return points


class _Fit(NamedTuple):
    strength: dict[str, float | None]
    limits: dict[str, Limits]
    scale: dict[str, int]
    notes: dict[str, tuple[str, ...]]
    order: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    tie_rate: float | None
    bias: BiasModel | None


def _fitted(
    model_a: Sequence[str],
    model_b: Sequence[str],
    answers: Ints,
    lean: Floats,
    groups: Column,
    both: bool,
    draws: int,
    seed: int,
    useless: str | None,
) -> _Fit:
    """Davidson's strengths, scale by scale (models that have all won and lost against each other, if by way of
    others)."""
    names = Column.of([*model_a, *model_b])
    n, m = len(answers), len(names.labels)
    keep = (answers >= 0).all(axis=1) & (names.codes[:n] != names.codes[n:])
    counts = _Counts.of(names.codes[:n][keep], names.codes[n:][keep], answers[keep], lean[keep],
                        groups.take(keep).compact(), m)  # fmt: skip
    strength: dict[str, float | None] = dict.fromkeys(names.labels)
    if useless or not keep.any():
        why = f"no strengths: {useless}" if useless else "no pair of two models has a verdict"
        none = dict.fromkeys(names.labels, Limits(None, why))
        every = dict.fromkeys(names.labels, 1)
        return _Fit(strength, none, every, dict.fromkeys(names.labels, ()), names.labels, (), None, None)
    toward = counts.toward(both)
    total = counts.total(toward)
    scales = connected_scales(np.where(total.wins + total.ties / 2 > 1e-9, 1.0, 0.0))
    bias: BiasModel | None = None
    limits: dict[str, Limits] = {}
    scale: dict[str, int] = {}
    notes: dict[str, tuple[str, ...]] = {}
    order: list[str] = []
    apart = _apart_by_verdicts(
        answers[keep], names.codes[:n][keep], names.codes[n:][keep], groups.take(keep), scales, m
    )
    tie_rate = None
    for number, members in enumerate(scales, 1):
        alone = scale_notes(total.wins + total.ties / 2, members, scales, names.labels)
        values, ends, differ, nu, kind = _scale_strengths(counts, members, toward, both, draws, seed)
        bias = bias or kind
        apart[np.ix_(members, members)] = differ
        tie_rate = nu / (2 + nu) if nu is not None and tie_rate is None else tie_rate
        ranked = [members[i] for i in np.argsort(-values, kind="stable")]
        for i, model in enumerate(members):
            name = names.labels[model]
            strength[name] = float(values[i]) if len(members) > 1 and np.isfinite(values[i]) else None
            limits[name] = ends[i] if len(members) > 1 else Limits(None, alone[0] if alone else None)
            scale[name], notes[name] = number, alone
        order += [names.labels[model] for model in ranked]
    together = _groups(order, apart, [names.labels.index(name) for name in order])
    return _Fit(strength, limits, scale, notes, tuple(order), tuple(together), tie_rate, bias)


def _apart_by_verdicts(
    answers: Ints, a: NDArray[np.int32], b: NDArray[np.int32], groups: Column, scales: Sequence[Sequence[int]], m: int
) -> NDArray[np.bool_]:
    """Which models of different scales differ, by the games between the two: one that never lost may have met the
    other once. The level is shared among all comparisons."""
    apart = np.zeros((m, m), bool)
    scale = {model: number for number, members in enumerate(scales) for model in members}
    points = (answers == 0).mean(axis=1) + (answers == 2).mean(axis=1) / 2
    comparisons = m * (m - 1) / 2
    for i in range(m):
        for j in range(i + 1, m):
            if scale[i] == scale[j]:
                continue
            games = ((a == i) & (b == j)) | ((a == j) & (b == i))
            won = np.where(a[games] == i, points[games], 1 - points[games])
            part = groups.take(games).compact()
            ci = mean_interval(won, part.codes, (0.0, 1.0), level=1 - 0.05 / comparisons, share=True).ci
            apart[i, j] = apart[j, i] = ci is not None and not ci.lo <= 0.5 <= ci.hi
    return apart


@dataclass(frozen=True)
class _Totals:
    """Games of models x models, less those that went by the place; leading axes are draws."""

    wins: Floats
    ties: Floats
    games: Floats


@dataclass(frozen=True)
class _Counts:
    """Sums of each source image: everything that a fit needs, and linear, so that a draw is one product."""

    wins: Floats
    """groups x models x models: answers for the row over the column; a pair in both orders counts as one game."""
    ties: Floats
    lean: Floats
    """Answers for the first place less those for the second."""
    pairs: Floats
    leans: Floats
    """The same by models; each pair stands above the diagonal."""
    cells: Floats
    """groups x model shown first x model shown second x answer (first, second, tie)."""

    @classmethod
    def of(cls, a: Ints, b: Ints, answers: Ints, lean: Floats, groups: Column, m: int) -> _Counts:
        size, at = len(groups.labels), groups.codes
        wins, ties = np.zeros((size, m, m)), np.zeros((size, m, m))
        won, lost = (answers == 0).mean(axis=1), (answers == 1).mean(axis=1)
        np.add.at(wins, (at, a, b), won)
        np.add.at(wins, (at, b, a), lost)
        tied = 1 - won - lost
        np.add.at(ties, (at, a, b), tied)
        np.add.at(ties, (at, b, a), tied)
        leans = np.zeros((size, m, m))
        np.add.at(leans, (at, np.minimum(a, b), np.maximum(a, b)), lean)
        cells = np.zeros((size, m, m, 3))
        np.add.at(cells, (at, a, b, answers[:, 0]), 1.0)
        np.add.at(cells, (at, b, a, np.array([1, 0, 2])[answers[:, 1]]), 1.0)
        return cls(wins, ties, np.bincount(at, weights=lean, minlength=size).astype(float),
                   np.bincount(at, minlength=size).astype(float), leans, cells)  # fmt: skip

    def toward(self, both: bool) -> float:
        """Which place answers lean to: 1 the first, -1 the second, 0 where one order alone was asked.

        The first unless the second is clear: taking the sign as it falls would see a bias in noise.
        """
        if not both:
            return 0.0
        share = self.lean.sum() / self.pairs.sum()
        error = np.sqrt(np.sum((self.lean - share * self.pairs) ** 2)) / self.pairs.sum()
        return -1.0 if share < -2 * error else 1.0

    def of_models(self, members: Sequence[int]) -> _Counts:
        some = np.ix_(range(len(self.lean)), members, members)
        return _Counts(self.wins[some], self.ties[some], self.lean, self.pairs, self.leans[some], self.cells[some])

    def fitted(self, toward: float, both: bool, drawn: Floats | None = None) -> tuple[_Davidson, NDArray[np.bool_]]:
        """The fit to all, or to each draw; and where the bias is in log odds."""
        w = np.ones((1, len(self.lean))) if drawn is None else drawn
        shared = _davidson(self.total(toward, w))
        if not both:
            return shared, np.zeros(len(w), bool)
        added = _davidson(self.total(0.0, w), w @ self.leans.sum(axis=(1, 2)))
        cells = (w @ self.cells.reshape(len(self.lean), -1)).reshape(len(w), *self.cells.shape[1:])
        share = np.clip(toward * (w @ self.lean) / (w @ self.pairs), 0.0, 1 - 1e-9)
        by_odds = _likelihood(cells, added, np.zeros(len(w)), toward) > _likelihood(cells, shared, share, toward)
        return _Davidson(*(_where(by_odds, x, y) for x, y in zip(added, shared, strict=True))), by_odds

    def total(self, toward: float, drawn: Floats | None = None) -> _Totals:
        w = np.ones((1, len(self.lean))) if drawn is None else drawn
        m = self.wins.shape[1]
        wins = (w @ self.wins.reshape(len(self.lean), -1)).reshape(-1, m, m)
        ties = (w @ self.ties.reshape(len(self.lean), -1)).reshape(-1, m, m)
        bias = toward * (w @ self.lean) / (w @ self.pairs)
        games = wins + wins.transpose(0, 2, 1) + ties
        # Answers by place fall to either model alike, since each pair was shown in both orders.
        wins = wins - bias[:, None, None] * games / 2
        left = _Totals(wins, ties, (1 - bias)[:, None, None] * games)
        return left if drawn is not None else _Totals(left.wins[0], left.ties[0], left.games[0])


def _scale_strengths(
    counts: _Counts, members: Sequence[int], toward: float, both: bool, draws: int, seed: int
) -> tuple[Floats, list[Limits], NDArray[np.bool_], float | None, BiasModel | None]:
    """Strengths about their mean, their limits, which two differ at 95 %, the tie parameter and the kind of bias."""
    m = len(members)
    if m == 1:
        return np.zeros(1), [Limits(None, None)], np.zeros((1, 1), bool), None, None
    part = counts.of_models(members)
    (values, nu, _), by_odds = part.fitted(toward, both)
    kind: BiasModel | None = ("odds" if by_odds[0] else "share") if both else None
    played = int(np.sum((part.wins + part.ties).sum(axis=(1, 2)) > 0))
    none = np.zeros((m, m), bool)
    left = 1 - toward * counts.lean.sum() / counts.pairs.sum()
    if left < LEAST_LEFT:
        why = f"all but {left:.0%} of answers go by the place of an output"
        return np.full(m, np.nan), [Limits(None, why)] * m, none, None, None
    if played < FEWEST_GROUPS:
        why = f"games on {played} source images: an interval of strengths needs {FEWEST_GROUPS}"
        return values[0], [Limits(None, why)] * m, none, float(nu[0]), kind
    drawn = np.empty((draws, m))
    row = 0
    for w in weights(len(counts.lean), draws, seed, block=400_000):
        drawn[row : row + len(w)] = part.fitted(toward, both, w.astype(float))[0].strength
        row += len(w)
    ends = [strength_limits(drawn[:, i], played) for i in range(m)]
    return values[0], ends, _apart(values[0], drawn, played), float(nu[0]), kind


def _apart(values: Floats, drawn: Floats, groups: int) -> NDArray[np.bool_]:
    """Which two models differ, at 95 % over all comparisons together: by the largest studentised difference of a draw
    or, where many draws have no finite fit, by percentiles at a level that is shared among the comparisons."""
    m = len(values)
    first, second = np.triu_indices(m, 1)
    finite = drawn[np.isfinite(drawn).all(axis=1)]
    apart = np.zeros((m, m), bool)
    if len(finite) < len(drawn) * 0.9 or not np.isfinite(values).all():
        with np.errstate(invalid="ignore"):
            differences = drawn[:, first] - drawn[:, second]
        differences[np.isnan(differences)] = 0.0  # both beyond any limit: which one is ahead is not known
        below = (differences <= 0).mean(axis=0)
        apart[first, second] = np.minimum(below, (differences >= 0).mean(axis=0)) < tail(groups) / len(first)
        return apart | apart.T
    gap, gaps = values[first] - values[second], finite[:, first] - finite[:, second]
    error = gaps.std(axis=0)
    error[error < 1e-12] = np.inf
    largest = np.quantile(np.abs((gaps - gap) / error).max(axis=1), 1 - 2 * tail(groups))
    apart[first, second] = np.abs(gap) > largest * error
    return apart | apart.T


def _groups(names: Sequence[str], apart: NDArray[np.bool_], at: Sequence[int]) -> list[tuple[str, ...]]:
    """Longest runs of neighbours in the ranking of which no two differ."""
    runs: list[tuple[int, int]] = []
    for start in range(len(names)):
        stop = start + 1
        while stop < len(names) and not apart[np.ix_(at[start : stop + 1], at[start : stop + 1])].any():
            stop += 1
        if not runs or stop > runs[-1][1]:
            runs.append((start, stop))
    return [tuple(names[start:stop]) for start, stop in runs]


class _Davidson(NamedTuple):
    """One fit a row."""

    strength: Floats
    """About their mean; infinite where there is no finite fit."""
    nu: Floats
    """What a tie weighs."""
    first: Floats
    """Log odds of the first place."""


def _davidson(total: _Totals, lean: Floats | None = None) -> _Davidson:
    """Newton's method on all draws at once; those that are done are left alone.

    The chances of i over j are exp(x/2), of j over i exp(-x/2), of a tie nu, with x the difference of strengths, plus
    or minus the log odds of the first place, fitted where `lean` is given: each pair was shown in both orders.
    Strengths beyond `FARTHEST`, and those of draws without a finite fit, are infinite.
    """
    n, m = total.games.shape[:2]
    score = (total.wins + total.ties / 2).sum(axis=2)
    tied = total.ties.sum(axis=(1, 2)) / 2
    theta, log_nu, first = np.zeros((n, m)), np.where(tied > 1e-9, 0.0, -40.0), np.zeros(n)
    last = np.zeros(n)
    at = np.arange(n)
    for _ in range(80):
        given = None if lean is None else lean[at]
        step = _newton(total.games[at], score[at], tied[at], given, theta[at], log_nu[at], first[at])
        theta[at] += step[:, :m]
        log_nu[at] = np.clip(log_nu[at] + step[:, m], -40, 15)
        first[at] = np.clip(first[at] + step[:, m + 1], -20, 20)
        size = np.abs(step[:, :m]).max(axis=1, initial=0.0)
        reach = np.ptp(theta[at], axis=1)
        last[at] = size
        at = at[(size >= 1e-8) & (reach < 4 * FARTHEST)]
        if not len(at):
            break
    centred: Floats = theta - theta.mean(axis=1, keepdims=True)
    # Points of one model cannot be infinite alone: the level of the others goes with it.
    lost = (last > 1e-3) | (np.abs(centred).max(axis=1, initial=0.0) > FARTHEST)
    centred[lost] = np.where(centred[lost] >= 0, np.inf, -np.inf)
    return _Davidson(centred, np.where(tied > 1e-9, np.exp(log_nu), 0.0), first)


def _newton(
    games: Floats, score: Floats, tied: Floats, lean: Floats | None, theta: Floats, log_nu: Floats, first: Floats
) -> Floats:
    """One step of every draw: of the strengths, the log of nu, and the log odds of the first place."""
    n, m = theta.shape
    # Fixes the level that the games leave open.
    ridge, eye, some_ties = 1e-6, np.eye(m), tied > 1e-9
    gap, nu = theta[:, :, None] - theta[:, None, :], np.exp(log_nu)[:, None, None]
    up, up_tie, up_variance, up_shared = _chances(gap + first[:, None, None], nu)
    down, down_tie, down_variance, down_shared = (
        (up, up_tie, up_variance, up_shared) if lean is None else _chances(gap - first[:, None, None], nu)
    )
    expected, tie = (up + down) / 2, (up_tie + down_tie) / 2
    variance, shared = games * (up_variance + down_variance) / 2, games * (up_shared + down_shared) / 2
    slope = np.zeros((n, m + 2))
    slope[:, :m] = score - (games * expected).sum(axis=2) - ridge * theta
    slope[:, m] = np.where(some_ties, tied - (games * tie).sum(axis=(1, 2)) / 2 - ridge * log_nu, 0.0)
    hessian = np.zeros((n, m + 2, m + 2))
    hessian[:, :m, :m] = variance.sum(axis=2)[:, :, None] * eye - variance + ridge * eye
    hessian[:, :m, m] = hessian[:, m, :m] = np.where(some_ties[:, None], shared.sum(axis=2), 0.0)
    spread = games * (up_tie * (1 - up_tie) + down_tie * (1 - down_tie)) / 2
    hessian[:, m, m] = np.where(some_ties, spread.sum(axis=(1, 2)) / 2 + ridge, 1.0)
    hessian[:, m + 1, m + 1] = 1.0
    if lean is not None:
        half = games * np.triu(np.ones((m, m)), 1)
        slope[:, m + 1] = (lean - (half * (up - down)).sum(axis=(1, 2))) / 2 - ridge * first
        hessian[:, m + 1, m + 1] = (half * (up_variance + down_variance)).sum(axis=(1, 2)) / 2 + ridge
        crossed = (games * (up_variance - down_variance) / 2).sum(axis=2)
        hessian[:, :m, m + 1] = hessian[:, m + 1, :m] = crossed
        also = (half * (up_shared - down_shared)).sum(axis=(1, 2)) / 2
        hessian[:, m, m + 1] = hessian[:, m + 1, m] = np.where(some_ties, also, 0.0)
    # A step of more than 2 log odds is where Newton overshoots on lopsided games.
    step: Floats = np.clip(np.linalg.solve(hessian, slope[:, :, None])[:, :, 0], -2, 2)
    return step


def _chances(x: Floats, nu: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Expected points of i over j and of a tie, the variance of points, and their covariance with a tie."""
    half = np.clip(x / 2, -30, 30)
    up, down = np.exp(half), np.exp(-half)
    win, tie = up / (up + down + nu), nu / (up + down + nu)
    points = win + tie / 2
    return points, tie, win + tie / 4 - points**2, tie * (0.5 - points)


def _likelihood(cells: Floats, fit: _Davidson, share: Floats, toward: float) -> Floats:
    """Of the answers in each draw; minus infinity where the fit is none."""
    known = np.asarray(np.isfinite(fit.strength).all(axis=1))
    strength = np.where(known[:, None], fit.strength, 0.0)
    half = np.clip((strength[:, :, None] - strength[:, None, :] + fit.first[:, None, None]) / 2, -30, 30)
    odds = np.stack([np.exp(half), np.exp(-half), np.broadcast_to(fit.nu[:, None, None], half.shape)], axis=-1)
    favoured = np.array([1.0, 0.0, 0.0] if toward >= 0 else [0.0, 1.0, 0.0])
    part = share[:, None, None, None]
    chance = (1 - part) * odds / odds.sum(axis=-1, keepdims=True) + part * favoured
    total: Floats = (cells * np.log(np.maximum(chance, 1e-12))).sum(axis=(1, 2, 3))
    return np.where(known, total, -np.inf)


def _where(mask: NDArray[np.bool_], x: Floats, y: Floats) -> Floats:
    chosen: Floats = np.where(mask.reshape(-1, *(1,) * (x.ndim - 1)), x, y)
    return chosen


def _models(
    model_a: Sequence[str],
    model_b: Sequence[str],
    verdict: Ints,
    groups: Column,
    fit: _Fit,
    draws: int,
    seed: int,
) -> tuple[ModelRecord, ...]:
    first, second = np.array(model_a, dtype=object), np.array(model_b, dtype=object)
    named = {-1: None, 0: "A", 1: "B", 2: "tie"}
    rows = [i for i in range(len(verdict)) if model_a[i] != model_b[i]]
    fitted = bradley_terry(
        [model_a[i] for i in rows],
        [model_b[i] for i in rows],
        [named[int(verdict[i])] for i in rows],
        group=[int(groups.codes[i]) for i in rows],
        draws=draws,
        seed=seed,
    )
    by_verdicts = {one.model: one for one in fitted}
    records = []
    for rank, model in enumerate(fit.order, 1):
        mine = (first == model) ^ (second == model)
        votes = np.where((second == model) & (verdict >= 0) & (verdict < 2), 1 - verdict, verdict)[mine]
        keep = votes >= 0
        share = _share(_points(votes), keep, groups.take(mine), (0.0, 1.0), draws)
        wins, losses, ties = (int((votes == code).sum()) for code in range(3))
        records.append(
            ModelRecord(
                model, share.n, wins, ties, losses, int((~keep).sum()), share.share, share.ci, share.ci_reason,
                fit.strength[model], fit.limits[model].ci, fit.limits[model].reason,
                by_verdicts.get(model), fit.scale[model], rank,
                tuple(number for number, names in enumerate(fit.groups, 1) if model in names), fit.notes[model],
            )
        )  # fmt: skip
    return tuple(records)
