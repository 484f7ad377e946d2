"""Which of two edits is better, asked in both orders: verdicts, flips, win rates and strengths of models.

A judge that is shown the same two outputs in both orders and names the better one by where it stands has said nothing
about the outputs. So a verdict counts where both orders agree, and strengths come from a model of single answers:
Davidson's extension of Bradley and Terry's model, with ties (Davidson, 1970), and a bias for a place, of two kinds.
Either a share of the answers goes to one place whatever is shown there, or a place adds log odds, which decide close
pairs alone (Davidson and Beaver, 1977). Both have one parameter; the one under which the answers are more likely is
taken, in each bootstrap draw anew, so that intervals allow for not knowing which it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from editjudge.orders import CHOICES, decide
from editjudge.stats.columns import (
    Column,
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
    connected_scales,
    davidson,
    points,
    scale_notes,
    vote_codes,
)

BiasModel = Literal["share", "odds"]

COIN = 0.5
"""How often a judge that throws a coin in each order contradicts itself."""
LEAST_LEFT = 0.05
"""Share of answers that must depend on what is shown for strengths to be given: below, noise is divided by it."""


@dataclass(frozen=True)
class Share:
    """A share of pairs with its interval, clustered on the source image."""

    n: int
    share: float | None
    ci: Interval | None
    ci_reason: Reason | None
    method: str | None = None


@dataclass(frozen=True)
class ModelRecord:
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
    ci_reason: Reason | None
    strength: float | None
    """Davidson's, net of the position bias: log odds of being preferred over the average model of its scale."""
    strength_ci: Interval | None
    strength_ci_reason: Reason | None
    bradley_terry: Strength | None
    """Strength by verdicts alone, a tie as half a win for each: a judge with a position bias draws these towards zero."""
    scale: int
    rank: int
    """1 for the strongest; models that cannot be told apart have ranks of their own, and share a group."""
    groups: tuple[int, ...]
    """The numbers of the groups that it stands in."""
    notes: tuple[Reason, ...]


@dataclass(frozen=True)
class PairRecord:
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
    ci_reason: Reason | None


@dataclass(frozen=True)
class PairwiseSummary:
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
    """Share of the pairs that were answered in both orders."""
    contradicted: Share
    """Flips among pairs that neither order calls a tie; a coin in each order flips in half of them."""
    position: Share
    """Excess of answers for the first place over those for the second; 1 if it is always named."""
    position_model: BiasModel | None
    """How the strengths allow for it: as a share of answers that go to one place, or as log odds of a place. None where
    there is no fit, or one order alone."""
    both_orders: bool
    useless: Reason | None
    """Why the verdicts say nothing, where they do."""
    tie_rate_of_equals: float | None
    """How often the judge calls two models of equal strength a tie."""
    models: tuple[ModelRecord, ...]
    """Strongest first."""
    pairs: tuple[PairRecord, ...]
    groups: tuple[tuple[str, ...], ...]
    """Models that cannot be told apart at 95 % (over all comparisons together), strongest group first."""
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
    """Summarise pairs, each answered with a (shown first) before b and, unless `ba` is None, b before a.

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
    contradicted = _share(
        flipped.astype(float), contradicting, groups, (0.0, 1.0), draws
    )
    position = _share(lean, answered, groups, (-1.0, 1.0), draws)
    useless = (
        _useless(flips, contradicted, position, int((verdict[answered] < 2).sum()))
        if both
        else None
    )
    records = _matrix(model_a, model_b, verdict, flipped, groups, draws)
    fit = _fitted(model_a, model_b, answers, lean, groups, both, draws, seed, useless)
    models = _models(model_a, model_b, verdict, groups, fit, draws, seed)
    notes = () if both else (Reason("one_order"),)
    return PairwiseSummary(
        n=len(decisions), failed=int((~answered).sum()), decided=int((verdict[answered] < 2).sum()),
        ties=int((verdict == 2).sum()), half=int(half.sum()), flipped=int(flipped.sum()),
        flips=flips, contradicted=contradicted, position=position, position_model=fit.bias, both_orders=both,
        useless=useless,
        tie_rate_of_equals=fit.tie_rate, models=models, pairs=records, groups=fit.groups, notes=notes,
    )  # fmt: skip


def _codes(answers: Sequence[str | None]) -> Ints:
    return np.array(
        [-1 if answer is None else CHOICES.index(answer) for answer in answers],
        dtype=np.int64,
    )


def _share(
    values: Floats,
    keep: Mask,
    groups: Column,
    ends: tuple[float, float],
    draws: int,
) -> Share:
    part = groups.take(keep).compact()
    limits = mean_interval(values[keep], part.codes, ends, draws=draws)
    n = int(keep.sum())
    return Share(n, float(values[keep].mean()) if n else None, *limits)


def share_of(
    values: Sequence[bool], group: Iterable[object], *, draws: int = DRAWS
) -> Share:
    """How many of these are true, with an interval clustered on their groups."""
    column = np.array(values, dtype=float)
    return _share(
        column, np.ones(len(column), bool), Column.of(group), (0.0, 1.0), draws
    )


def _useless(
    flips: Share, contradicted: Share, position: Share, decided: int
) -> Reason | None:
    """Return why nothing can be learnt from this judge; None if something can."""
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


class _Record(NamedTuple):
    """How one model did in some pairs."""

    wins: int
    losses: int
    ties: int
    failed: int
    share: Share
    """Win rate; a tie is half a win."""


def _record(verdict: Ints, turned: Mask, groups: Column, draws: int) -> _Record:
    """Count the verdicts from the side of one model, which is the second of a pair where `turned`."""
    votes = np.where(turned & (verdict >= 0) & (verdict < 2), 1 - verdict, verdict)
    share = _share(points(votes), votes >= 0, groups, (0.0, 1.0), draws)
    wins, losses, ties, failed = (int((votes == code).sum()) for code in (0, 1, 2, -1))
    return _Record(wins, losses, ties, failed, share)


def _matrix(
    model_a: Sequence[str],
    model_b: Sequence[str],
    verdict: Ints,
    flipped: Mask,
    groups: Column,
    draws: int,
) -> tuple[PairRecord, ...]:
    rows: dict[tuple[str, str], list[int]] = {}
    for i, (a, b) in enumerate(zip(model_a, model_b, strict=True)):
        if a != b:
            rows.setdefault((min(a, b), max(a, b)), []).append(i)
    records = []
    for (a, b), members in sorted(rows.items()):
        turned = np.array([model_a[i] == b for i in members])
        record = _record(
            verdict[members], turned, groups.take(np.array(members)), draws
        )
        share = record.share
        records.append(
            PairRecord(
                a, b, share.n, record.wins, record.losses, record.ties, int(flipped[members].sum()), record.failed,
                share.share, share.ci, share.ci_reason,
            )
        )  # fmt: skip
    return tuple(records)


class _Fitted(NamedTuple):
    """One model's place."""

    strength: float | None
    limits: Limits
    scale: int
    notes: tuple[Reason, ...]


class _Fits(NamedTuple):
    """All models, strongest first."""

    models: dict[str, _Fitted]
    groups: tuple[tuple[str, ...], ...] = ()
    tie_rate: float | None = None
    bias: BiasModel | None = None


def _fitted(
    model_a: Sequence[str],
    model_b: Sequence[str],
    answers: Ints,
    lean: Floats,
    groups: Column,
    both: bool,
    draws: int,
    seed: int,
    useless: Reason | None,
) -> _Fits:
    """Fit Davidson's strengths, scale by scale (see `strengths.connected_scales`)."""
    names = Column.of([*model_a, *model_b])
    labels = names.labels
    n = len(answers)
    keep = (answers >= 0).all(axis=1) & (names.codes[:n] != names.codes[n:])
    if useless or not keep.any():
        why = (
            Reason.of("no_strengths", why=useless) if useless else Reason("no_verdict")
        )
        return _Fits(dict.fromkeys(labels, _Fitted(None, Limits(None, why), 1, ())))
    a = names.codes[:n][keep]
    b = names.codes[n:][keep]
    images = groups.take(keep).compact()
    counts = _Counts.of(a, b, answers[keep], lean[keep], images, len(labels))
    toward = counts.toward(both)
    total = counts.total(toward, np.ones((1, len(images.labels))))
    points = (total.wins + total.ties / 2)[0]
    scales = connected_scales(np.where(points > 1e-9, 1.0, 0.0))
    apart = _apart_by_verdicts(answers[keep], a, b, images, scales, len(labels))
    models: dict[str, _Fitted] = {}
    order: list[int] = []
    bias: BiasModel | None = None
    tie_rate = None
    for number, members in enumerate(scales, 1):
        notes = scale_notes(points, members, scales, labels)
        if len(members) == 1:
            alone = Limits(None, notes[0] if notes else None)
            models[labels[members[0]]] = _Fitted(None, alone, number, notes)
            order += members
            continue
        values, ends, differ, nu, kind = _scale_strengths(
            counts, members, toward, both, draws, seed
        )
        bias = bias or kind
        apart[np.ix_(members, members)] = differ
        tie_rate = nu / (2 + nu) if nu is not None and tie_rate is None else tie_rate
        for i in np.argsort(-values, kind="stable"):
            strength = float(values[i]) if np.isfinite(values[i]) else None
            model = _Fitted(strength, ends[i], number, notes)
            models[labels[members[i]]] = model
            order.append(members[i])
    together = _groups(list(models), apart, order)
    return _Fits(models, tuple(together), tie_rate, bias)


def _apart_by_verdicts(
    answers: Ints,
    a: NDArray[np.int32],
    b: NDArray[np.int32],
    groups: Column,
    scales: Sequence[Sequence[int]],
    m: int,
) -> Mask:
    """Which models of different scales differ, by the games between the two: one that never lost may have met the
    other once. The level is shared among all comparisons."""
    apart = np.zeros((m, m), bool)
    scale = {
        model: number for number, members in enumerate(scales) for model in members
    }
    points = (answers == 0).mean(axis=1) + (answers == 2).mean(axis=1) / 2
    comparisons = m * (m - 1) / 2
    for i in range(m):
        for j in range(i + 1, m):
            if scale[i] == scale[j]:
                continue
            games = ((a == i) & (b == j)) | ((a == j) & (b == i))
            won = np.where(a[games] == i, points[games], 1 - points[games])
            part = groups.take(games).compact()
            ci = mean_interval(
                won, part.codes, (0.0, 1.0), level=1 - 0.05 / comparisons
            ).ci
            apart[i, j] = apart[j, i] = ci is not None and not ci.lo <= 0.5 <= ci.hi
    return apart


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
    def of(
        cls, a: Ints, b: Ints, answers: Ints, lean: Floats, groups: Column, m: int
    ) -> _Counts:
        size = len(groups.labels)
        at = groups.codes
        wins = np.zeros((size, m, m))
        ties = np.zeros((size, m, m))
        won = (answers == 0).mean(axis=1)
        lost = (answers == 1).mean(axis=1)
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
        error = (
            np.sqrt(np.sum((self.lean - share * self.pairs) ** 2)) / self.pairs.sum()
        )
        return -1.0 if share < -2 * error else 1.0

    def of_models(self, members: Sequence[int]) -> _Counts:
        some = np.ix_(range(len(self.lean)), members, members)
        return _Counts(
            self.wins[some],
            self.ties[some],
            self.lean,
            self.pairs,
            self.leans[some],
            self.cells[some],
        )

    def fitted(self, toward: float, both: bool, drawn: Floats) -> tuple[Fit, Mask]:
        """Return the fit to each draw of images, and where the bias is in log odds."""
        shared = davidson(self.total(toward, drawn))
        if not both:
            return shared, np.zeros(len(drawn), bool)
        added = davidson(self.total(0.0, drawn), drawn @ self.leans.sum(axis=(1, 2)))
        cells = (drawn @ self.cells.reshape(len(self.lean), -1)).reshape(
            len(drawn), *self.cells.shape[1:]
        )
        bias = toward * (drawn @ self.lean) / (drawn @ self.pairs)
        share = np.clip(bias, 0.0, 1 - 1e-9)
        by_odds = _likelihood(cells, added, np.zeros(len(drawn)), toward) > _likelihood(
            cells, shared, share, toward
        )
        chosen = Fit(
            np.where(by_odds[:, None], added.strength, shared.strength),
            np.where(by_odds, added.nu, shared.nu),
            np.where(by_odds, added.first, shared.first),
        )
        return chosen, by_odds

    def total(self, toward: float, drawn: Floats) -> Games:
        """Return the games of each draw, less the answers that went by the place."""
        m = self.wins.shape[1]
        wins = (drawn @ self.wins.reshape(len(self.lean), -1)).reshape(-1, m, m)
        ties = (drawn @ self.ties.reshape(len(self.lean), -1)).reshape(-1, m, m)
        bias = toward * (drawn @ self.lean) / (drawn @ self.pairs)
        games = wins + wins.transpose(0, 2, 1) + ties
        # Answers by place fall to either model alike, since each pair was shown in both orders.
        wins = wins - bias[:, None, None] * games / 2
        return Games(wins, ties, (1 - bias)[:, None, None] * games)


def _scale_strengths(
    counts: _Counts,
    members: Sequence[int],
    toward: float,
    both: bool,
    draws: int,
    seed: int,
) -> tuple[Floats, list[Limits], Mask, float | None, BiasModel | None]:
    """Return strengths about their mean, their limits, which two differ at 95 %, the tie parameter, the kind of bias."""
    m = len(members)
    images = len(counts.lean)
    part = counts.of_models(members)
    (values, nu, _), by_odds = part.fitted(toward, both, np.ones((1, images)))
    apart = np.zeros((m, m), bool)
    left = 1 - toward * counts.lean.sum() / counts.pairs.sum()
    if left < LEAST_LEFT:
        why = Reason.of("answers_by_place", left=left)
        return np.full(m, np.nan), [Limits(None, why)] * m, apart, None, None
    played = int(np.sum((part.wins + part.ties).sum(axis=(1, 2)) > 0))
    drawn, ends = bootstrap_strengths(
        lambda w: part.fitted(toward, both, w)[0].strength,
        m,
        images,
        played,
        draws,
        seed,
    )
    if drawn is not None:
        apart = _apart(values[0], drawn, played)
    kind: BiasModel | None = None
    if both:
        kind = "odds" if by_odds[0] else "share"
    return values[0], ends, apart, float(nu[0]), kind


def _apart(values: Floats, drawn: Floats, groups: int) -> Mask:
    """Which two models differ, at 95 % over all comparisons together: by the largest studentised difference of a draw
    or, where many draws have no finite fit, by percentiles at a level that is shared among the comparisons."""
    m = len(values)
    first, second = np.triu_indices(m, 1)
    finite = drawn[np.isfinite(drawn).all(axis=1)]
    apart = np.zeros((m, m), bool)
    if len(finite) < len(drawn) * 0.9 or not np.isfinite(values).all():
        with np.errstate(invalid="ignore"):
            differences = drawn[:, first] - drawn[:, second]
        differences[np.isnan(differences)] = (
            0.0  # both beyond any limit: which one is ahead is not known
        )
        below = (differences <= 0).mean(axis=0)
        apart[first, second] = np.minimum(
            below, (differences >= 0).mean(axis=0)
        ) < tail(groups) / len(first)
        return apart | apart.T
    gap = values[first] - values[second]
    gaps = finite[:, first] - finite[:, second]
    error = gaps.std(axis=0)
    error[error < 1e-12] = np.inf
    largest = np.quantile(
        np.abs((gaps - gap) / error).max(axis=1), 1 - 2 * tail(groups)
    )
    apart[first, second] = np.abs(gap) > largest * error
    return apart | apart.T


def _groups(
    names: Sequence[str], apart: Mask, at: Sequence[int]
) -> list[tuple[str, ...]]:
    """Longest runs of neighbours in the ranking of which no two differ."""
    runs: list[tuple[int, int]] = []
    for start in range(len(names)):
        stop = start + 1
        while (
            stop < len(names)
            and not apart[np.ix_(at[start : stop + 1], at[start : stop + 1])].any()
        ):
            stop += 1
        if not runs or stop > runs[-1][1]:
            runs.append((start, stop))
    return [tuple(names[start:stop]) for start, stop in runs]


def _likelihood(cells: Floats, fit: Fit, share: Floats, toward: float) -> Floats:
    """Return the log likelihood of the answers in each draw; minus infinity without a finite fit."""
    known = np.asarray(np.isfinite(fit.strength).all(axis=1))
    strength = np.where(known[:, None], fit.strength, 0.0)
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
    part = share[:, None, None, None]
    chance = (1 - part) * odds / odds.sum(axis=-1, keepdims=True) + part * favoured
    total: Floats = (cells * np.log(np.maximum(chance, 1e-12))).sum(axis=(1, 2, 3))
    return np.where(known, total, -np.inf)


def _models(
    model_a: Sequence[str],
    model_b: Sequence[str],
    verdict: Ints,
    groups: Column,
    fits: _Fits,
    draws: int,
    seed: int,
) -> tuple[ModelRecord, ...]:
    first = np.array(model_a, dtype=object)
    second = np.array(model_b, dtype=object)
    apart = np.flatnonzero(first != second)
    by_verdicts = bradley_terry(
        first[apart].tolist(),
        second[apart].tolist(),
        [None if code < 0 else VOTES[code] for code in verdict[apart]],
        group=groups.codes[apart].tolist(),
        draws=draws,
        seed=seed,
    )
    plain = {one.model: one for one in by_verdicts}
    records = []
    for rank, (model, fitted) in enumerate(fits.models.items(), 1):
        rows = (first == model) ^ (second == model)
        record = _record(verdict[rows], second[rows] == model, groups.take(rows), draws)
        share = record.share
        records.append(
            ModelRecord(
                model, share.n, record.wins, record.ties, record.losses, record.failed,
                share.share, share.ci, share.ci_reason,
                fitted.strength, fitted.limits.ci, fitted.limits.reason,
                plain.get(model), fitted.scale, rank,
                tuple(number for number, names in enumerate(fits.groups, 1) if model in names), fitted.notes,
            )
        )  # fmt: skip
    return tuple(records)


@dataclass(frozen=True, slots=True)
class Preference:
    """Which of two edits one person prefers, and which of them judges do."""

    pair: tuple[str, str]
    """The ids of the edits or, where no run knows them, the models that made them."""
    human: str
    group: str
    """The source image; empty where it was not told."""
    votes: Mapping[str, str | None]


@dataclass(frozen=True)
class Accuracy:
    """A judge's votes against people's."""

    n: int
    answered: int
    failed: int
    accuracy: float | None
    """Three ways (A, B, tie) over the pairs that the judge answered."""
    ci: Interval | None
    """Clopper-Pearson's where each source image is wholly right or wrong; else that of a mean."""
    ci_reason: Reason | None
    strict: float | None
    """The same over all pairs, an answer that failed counting as wrong."""
    strict_ci: Interval | None
    without_ties: float | None
    """Over the pairs that neither people nor the judge called a tie."""
    without_ties_ci: Interval | None
    bounds: FailureBounds | None
    """The accuracy over all pairs if every answer that failed were wrong, and if every one were right."""
    overturnable: bool
    """Whether these bounds reach beyond the interval: what failed could then change what it says."""
    decided: int
    """How many pairs those are."""
    judge_ties: int
    human_ties: int
    first_share: float | None
    """How often the judge took A among its decided votes: far from people's share is a bias of position."""
    human_first_share: float | None
    notes: tuple[Reason, ...]


@dataclass(frozen=True)
class TieCalibrated:
    """Accuracy of score differences when differences up to `epsilon` are called ties (Deutsch et al., 2023)."""

    n: int
    accuracy: float | None
    """With the epsilon that is best on these very pairs, as in the paper."""
    epsilon: float | None
    held_out: float | None
    """With epsilon chosen on other groups: what to expect of new pairs."""


def accuracy(
    human: Sequence[str],
    judge: Sequence[str | None],
    *,
    group: Iterable[object] | None = None,
    draws: int = DRAWS,
) -> Accuracy:
    """Votes are A, B or tie; None is an answer that failed."""
    h = vote_codes(human)
    j = vote_codes(judge)
    groups = Column.of(range(len(h)) if group is None else group)
    answered = j >= 0
    decided = (h < 2) & (j < 2) & answered
    right = (h == j).astype(float)
    share, strict, without_ties = (
        _share(right, keep, groups, (0.0, 1.0), draws)
        for keep in (answered, h >= 0, decided)
    )
    failed = int((~answered).sum())
    bounds = None
    if len(h):
        best = float((right.sum() + failed) / len(h))
        bounds = FailureBounds(float(right.mean()), best)
    why = share.ci_reason if answered.any() else Reason("no_answer")
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
        notes=(why,) if why else (),
    )


@dataclass(frozen=True)
class HumanAgreement:
    """Agreement among people: one person's vote against another's on the same pair."""

    raters: int
    pairs: int
    """Pairs with votes of two people or more."""
    agreement: float | None
    """Three ways: the mean over pairs of the share of two people who say the same."""
    ci: Interval | None
    ci_reason: Reason | None
    without_ties: float | None
    """Over two people neither of whom calls it a tie."""


def human_agreement(
    votes: Mapping[str, Sequence[tuple[str, str]]],
    groups: Mapping[str, str],
    *,
    draws: int = DRAWS,
) -> HumanAgreement:
    """`votes` are (rater, vote) by pair; `groups` the source image of each pair."""
    shares = []
    decided = []
    images = []
    for pair, given in votes.items():
        two = [
            (x, y)
            for i, (who, x) in enumerate(given)
            for other, y in given[i + 1 :]
            if who != other
        ]
        if two:
            shares.append(float(np.mean([x == y for x, y in two])))
            images.append(groups.get(pair, pair))
            decided += [x == y for x, y in two if "tie" not in (x, y)]
    part = Column.of(images)
    limits = mean_interval(np.array(shares), part.codes, (0.0, 1.0), draws=draws)
    return HumanAgreement(
        raters=len({who for given in votes.values() for who, _ in given}),
        pairs=len(shares),
        agreement=float(np.mean(shares)) if shares else None,
        ci=limits.ci,
        ci_reason=limits.reason if shares else Reason("no_two_votes"),
        without_ties=float(np.mean(decided)) if decided else None,
    )


def tie_calibrated(
    human: Sequence[str],
    difference: Sequence[float],
    *,
    group: Iterable[object] | None = None,
    folds: int = 5,
) -> TieCalibrated:
    """`difference` is the judge's score of A minus that of B."""
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
    """Return the smallest among the best of all thresholds that call different pairs ties."""
    sizes, code = np.unique(np.abs(d), return_inverse=True)
    order_right = np.where(d > 0, 0, 1) == h
    gain = np.bincount(
        code, weights=(h == 2).astype(float) - order_right, minlength=len(sizes)
    )
    best = np.r_[0.0, np.cumsum(gain)]
    # Epsilon below the smallest difference calls no ties at all; -1 says so where a difference is zero.
    return float(np.r_[-1.0, sizes][int(np.argmax(np.round(best, 9)))])
