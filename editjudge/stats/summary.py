"""Summaries of a run's scores: means with intervals, what failed, aggregates, pass rates, ranks."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from editjudge.errors import UsageError
from editjudge.rubrics import evaluation
from editjudge.rubrics.expression import Term, reduction
from editjudge.stats.columns import (
    ABSTAINED,
    FAILED,
    OK,
    Column,
    Floats,
    Interval,
    Ints,
    Limits,
    Reason,
    Scores,
    combinations,
    ends_of,
    joined,
    worst_best,
)
from editjudge.stats.compare import compare, corrected
from editjudge.stats.inference import DRAWS, mean_interval, mean_intervals

T = TypeVar("T")
How = Literal["mean", "geometric", "minimum"]


@dataclass(frozen=True)
class Cell:
    """One judge, model, factor and slice."""

    judge: str
    model: str
    factor: str
    slice: str | None
    n: int
    """Every judgement that was asked for, whatever became of it."""
    ok: int
    abstained: int
    failed: Mapping[str, int]
    """Counts by status; abstentions are not failures."""
    mean: float | None
    median: float | None
    ci: Interval | None
    ci_reason: Reason | None
    """Why there is no interval."""
    method: str | None
    """How the interval was made."""
    distribution: Mapping[str, int]
    """How many judgements gave each score; every value of the scale where it is known."""
    worst_case: float | None
    """The mean if every failure had the worst score of the scale; None where the scale is not known."""
    best_case: float | None
    groups: int
    notes: tuple[Reason, ...]
    repeat_sd: float | None = None
    """Standard deviation of a judge's scores of the same edit, over its repeats; None without repeats."""


@dataclass(frozen=True)
class Aggregate:
    """One number from several factors, defined in the open."""

    name: str
    factors: tuple[str, ...]
    how: How = "mean"

    @property
    def term(self) -> Term:
        op = {"mean": "mean", "geometric": "geomean", "minimum": "min"}[self.how]
        return reduction(op, [("", factor) for factor in self.factors])

    @property
    def formula(self) -> str:
        terms = ", ".join(self.factors)
        if self.how == "minimum":
            return f"{self.name} = min({terms})"
        if self.how == "geometric":
            return (
                f"{self.name} = ({' * '.join(self.factors)}) ** (1/{len(self.factors)})"
            )
        return f"{self.name} = ({' + '.join(self.factors)}) / {len(self.factors)}"


@dataclass(frozen=True)
class PassRate:
    judge: str
    model: str
    factor: str
    rule: str
    n: int
    ok: int
    passed: int
    rate: float | None
    ci: Interval | None
    ci_reason: Reason | None
    method: str | None
    """`exact` (Clopper-Pearson at the effective number of source images) where each image is wholly right or wrong."""
    design_effect: float
    """How many times the variance is larger because judgements share source images; 1 where none do."""


@dataclass(frozen=True)
class Rank:
    judge: str
    factor: str
    model: str
    mean: float
    rank: int
    """1 is best; models with equal means share a rank."""
    ci: tuple[int, int] | None
    """Ranks that the comparisons of all pairs of models, Holm-corrected, leave open: all ranks of a judge and factor
    hold together in 95 of 100 runs."""
    ci_reason: Reason | None


def summarise(
    scores: Scores,
    *,
    by: str | None = None,
    scales: Mapping[str, Sequence[float]] | None = None,
    guaranteed: bool = False,
    draws: int = DRAWS,
) -> list[Cell]:
    """Summarise every judge x model x factor (x value of the slice `by`) that occurs.

    `scales` gives the legal values of a factor, or its two ends, from the worst to the best; without it there are no
    bounds, and the cell says so.
    """
    if by is not None and by not in scores.slices:
        raise UsageError(
            f"no column {by!r} to slice by; there are {sorted(scores.slices)}"
        )
    slices = [scores.slices[by]] if by is not None else []
    cells, keys = combinations(scores.judge, scores.model, scores.factor, *slices)
    ok = scores.ok
    n_groups = len(scores.group.labels)
    score = scores.score[ok]
    cell = cells[ok]
    group = scores.group.codes[ok]
    statuses = _table(cells, scores.status.codes, len(keys), len(scores.status.labels))
    values, codes = _levels(score)
    counts = _table(cell, codes, len(keys), len(values))
    ends = [ends_of((scales or {}).get(key[2])) for key in keys]
    limits = mean_intervals(
        score,
        cell,
        len(keys),
        group,
        n_groups,
        ends,
        draws=draws,
        guaranteed=guaranteed,
    )
    groups = _groups_per_cell(cell, len(keys), group, n_groups)
    repeat_sds: list[float | None] = [None] * len(keys)
    if scores.repeat.max(initial=0):
        repeat_sds = _repeat_sds(score, cell, scores.item.codes[ok], len(keys))
    levels = values.tolist()
    return [
        _cell(
            key,
            _counts(scores.status.labels, statuses[i]),
            _counts(levels, counts[i]),
            limits[i],
            int(groups[i]),
            scale=(scales or {}).get(key[2]),
            repeat_sd=repeat_sds[i],
        )
        for i, key in enumerate(keys)
    ]


def aggregate(scores: Scores, aggregates: Sequence[Aggregate]) -> Scores:
    """The same table with one more factor per aggregate, so that every other function can be used on it.

    An aggregate exists only where all its factors do: one failed factor makes it failed, else one that
    abstained makes it abstained. A mean over whichever factors were answered would reward silence.
    """
    parts = [scores, *(_aggregated(scores, one) for one in aggregates)]
    return stacked(parts)


def pass_rates(scores: Scores, rules: Mapping[str, float]) -> list[PassRate]:
    """The share of judgements whose factor has exactly this score, such as `{"effect_score": 5}`."""
    out = []
    for factor, wanted in rules.items():
        judged = scores.where(factor=factor)
        rows, places = combinations(judged.judge, judged.model)
        for i, (judge, model) in enumerate(places):
            part = judged.take(rows == i)
            ok = part.take(part.ok)
            passed = (ok.score == wanted).astype(float)
            effect = design_effect(passed, ok.group.codes)
            successes = int(passed.sum())
            n = len(ok)
            limits = mean_interval(passed, ok.group.compact().codes, (0.0, 1.0))
            rate = successes / n if n else None
            rule = f"{factor} == {wanted:g}"
            out.append(
                PassRate(
                    judge,
                    model,
                    factor,
                    rule,
                    len(part),
                    n,
                    successes,
                    rate,
                    *limits,
                    effect,
                )
            )
    return out


def rank(
    scores: Scores,
    *,
    falling: Collection[str] = (),
    scales: Mapping[str, Sequence[float]] | None = None,
    guaranteed: bool = False,
) -> list[Rank]:
    """Rank models from best to worst for every judge and factor, with the ranks that the evidence leaves open.

    Of the factors in `falling` lower scores are better.
    """
    out = []
    for factor in scores.factor.present():
        for judge in scores.judge.present():
            part = scores.take(
                scores.factor.where(factor) & scores.judge.where(judge) & scores.ok
            )
            if len(part):
                scale = (scales or {}).get(factor)
                out += _ranks(
                    part,
                    judge,
                    factor,
                    scale,
                    falling=factor in falling,
                    guaranteed=guaranteed,
                )
    return out


def design_effect(values: Floats, groups: NDArray[Any]) -> float:
    """Variance of the mean with whole groups drawn over that with single rows drawn; never below 1."""
    if len(values) < 2:
        return 1.0
    centred = values - values.mean()
    single = float(np.sum(centred**2))
    grouped = float(np.sum(np.bincount(groups, weights=centred) ** 2))
    return max(1.0, grouped / single) if single > 0 else 1.0


def _table(rows: Ints, columns: NDArray[Any], n_rows: int, n_columns: int) -> Ints:
    flat: Ints = np.bincount(rows * n_columns + columns, minlength=n_rows * n_columns)
    return flat.reshape(n_rows, n_columns)


def _counts(names: Sequence[T], counts: Ints) -> dict[T, int]:
    """Return how often each name occurs, without those that do not."""
    return {name: int(n) for name, n in zip(names, counts, strict=True) if n}


def _levels(score: Floats) -> tuple[Floats, Ints]:
    if len(score) and np.ptp(score) < 1_000 and np.all(score == np.rint(score)):
        # Integers need no sorting, which is the difference between 0.1 s and 1 s on twelve million scores.
        lowest = score.min()
        codes = (score - lowest).astype(np.int64)
        return np.arange(codes.max() + 1) + lowest, codes
    values, codes = np.unique(score, return_inverse=True)
    return values, codes


def _groups_per_cell(
    cells: Ints, n_cells: int, groups: NDArray[Any], n_groups: int
) -> Ints:
    seen = np.zeros((n_cells, max(n_groups, 1)), dtype=bool)
    seen[cells, groups] = True
    groups_seen: Ints = seen.sum(axis=1)
    return groups_seen


def _cell(
    key: tuple[str, ...],
    statuses: dict[str, int],
    spread: dict[float, int],
    limits: Limits,
    groups: int,
    *,
    scale: Sequence[float] | None,
    repeat_sd: float | None,
) -> Cell:
    judge, model, factor, *part = key
    ok = statuses.pop(OK, 0)
    abstained = statuses.pop(ABSTAINED, 0)
    failed = statuses
    failures = sum(statuses.values())
    total = math.fsum(value * n for value, n in spread.items())
    ends = worst_best(scale)
    notes = [limits.reason] if limits.reason else []
    if failures and ends is None:
        notes.append(Reason("scale_unknown"))
    worst, best = (
        (total + failures * end) / (ok + failures)
        if end is not None and ok + failures
        else None
        for end in (ends or (None, None))
    )
    return Cell(
        judge,
        model,
        factor,
        part[0] if part else None,
        n=ok + abstained + failures,
        ok=ok,
        abstained=abstained,
        failed=failed,
        mean=total / ok if ok else None,
        median=_median(spread) if ok else None,
        ci=limits.ci,
        ci_reason=limits.reason,
        method=limits.method,
        distribution=_distribution(spread, scale or ()),
        worst_case=worst,
        best_case=best,
        groups=groups,
        notes=tuple(notes),
        repeat_sd=repeat_sd,
    )


def _distribution(
    spread: Mapping[float, int], scale: Sequence[float]
) -> dict[str, int]:
    """Decimals that are written alike, to six digits, are counted together."""
    counts = Counter[str]()
    for value in sorted({*map(float, scale), *spread}):
        counts[f"{value:g}"] += spread.get(value, 0)
    return dict(counts)


def _repeat_sds(
    score: Floats, cell: Ints, item: NDArray[Any], n_cells: int
) -> list[float | None]:
    """Return the standard deviation over repeats of each cell, pooled over edits; None if no edit has two scores."""
    edit = cell * (int(item.max(initial=0)) + 1) + item
    _, first, place, counts = np.unique(
        edit, return_index=True, return_inverse=True, return_counts=True
    )
    off = score - (np.bincount(place, weights=score) / counts)[place]
    squares = np.bincount(cell, weights=off**2, minlength=n_cells)
    freedom = np.bincount(cell[first], weights=counts - 1, minlength=n_cells)
    return [
        float(np.sqrt(s / f)) if f else None
        for s, f in zip(squares, freedom, strict=True)
    ]


def _median(spread: dict[float, int]) -> float:
    values = sorted(spread)
    below = np.cumsum([spread[v] for v in values])
    n = int(below[-1])
    low, high = (
        values[int(np.searchsorted(below, k, side="right"))]
        for k in ((n - 1) // 2, n // 2)
    )
    return (low + high) / 2


def _aggregated(scores: Scores, one: Aggregate) -> Scores:
    part = scores.where(factor=one.factors)
    unit = joined(part.item, part.judge, Column.of(part.repeat))
    place = {
        code: i
        for i, code in enumerate(part.factor.labels.index(f) for f in one.factors)
    }
    column = np.array([place.get(i, 0) for i in range(len(part.factor.labels))])[
        part.factor.codes
    ]
    shape = (len(unit.labels), len(one.factors))
    values = np.full(shape, np.nan)
    codes = np.full(shape, -1)
    values[unit.codes, column] = part.score
    codes[unit.codes, column] = part.status.codes
    answer = np.zeros(len(unit.labels), np.uint64)
    np.add.at(answer, unit.codes, part.answer)
    first = np.full(len(unit.labels), len(part))
    np.minimum.at(first, unit.codes, np.arange(len(part)))
    row = part.take(first)
    # What was never asked, code -1, is the last of the names.
    names = np.array([*part.status.labels, FAILED])
    result, status = _reduced(values, names[codes], one)
    return Scores.of(
        row.item, Column.constant(one.name, len(row)), result,
        judge=row.judge, status=status, model=row.model, group=row.group, pair=row.pair, repeat=row.repeat,
        answer=answer, slices=row.slices,
    )  # fmt: skip


def _reduced(
    values: Floats, statuses: NDArray[Any], one: Aggregate
) -> tuple[Floats, Column]:
    """Return the value of each row of factors and its status: the first failure, else an abstention, else ok."""
    n = values.shape[1]
    codes = np.full(values.shape, evaluation.FAILED)
    codes[statuses == OK] = evaluation.OK
    codes[statuses == ABSTAINED] = evaluation.ABSTAINED
    # The highest code counts: that of the first factor that failed.
    codes += np.where(codes == evaluation.FAILED, np.arange(n)[::-1], 0)
    rows = evaluation.column_rows(
        len(values),
        {
            ("", factor): [evaluation.Quantity(values[:, i], codes[:, i])]
            for i, factor in enumerate(one.factors)
        },
    )
    arithmetic = replace(
        rows.arithmetic,
        total=lambda parts: np.stack(parts, axis=1).sum(axis=1),
        power=lambda product, _: product ** (1 / n),
    )
    result = evaluation.evaluate(one.term, replace(rows, arithmetic=arithmetic))
    if np.any(result.code == evaluation.UNDEFINED):
        raise UsageError(
            f"{one.formula}: a geometric mean needs scores of zero or more"
        )
    first = np.maximum(n - 1 - (result.code - evaluation.FAILED), 0)
    failure = statuses[np.arange(len(values)), np.minimum(first, n - 1)]
    status = np.where(result.code == evaluation.OK, OK, ABSTAINED).astype(object)
    status = np.where(result.code >= evaluation.FAILED, failure, status)
    return result.value, Column.of(status)


def stacked(parts: Sequence[Scores]) -> Scores:
    """The rows of all of them, one under the other."""

    def stack(columns: Sequence[Column]) -> Column:
        index: dict[str, int] = {}
        codes = [
            np.array(
                [index.setdefault(v, len(index)) for v in c.labels] or [0], np.int32
            )[c.codes]
            for c in columns
        ]
        return Column(np.concatenate(codes), tuple(index))

    names = ("item", "factor", "status", "judge", "model", "group", "pair")
    return Scores(
        **{name: stack([getattr(p, name) for p in parts]) for name in names},
        score=np.concatenate([p.score for p in parts]),
        repeat=np.concatenate([p.repeat for p in parts]),
        answer=np.concatenate([p.answer for p in parts]),
        slices={
            name: stack([p.slices[name] for p in parts]) for name in parts[0].slices
        },
    )


def _ranks(
    part: Scores,
    judge: str,
    factor: str,
    scale: Sequence[float] | None,
    *,
    falling: bool,
    guaranteed: bool,
) -> list[Rank]:
    """Rank models as Mogstad, Romano, Shaikh and Wilhelm (2024) do: as many ranks are open as pairs of models are."""
    models = part.model.present()
    sides = {model: part.where(model=model) for model in models}
    sign = -1.0 if falling else 1.0
    means = np.array([sign * float(side.score.mean()) for side in sides.values()])
    scales = {factor: scale} if scale else {}
    pairs = list(itertools.combinations(range(len(models)), 2))
    tested = [
        compare(
            sides[models[i]], sides[models[j]], scales=scales, guaranteed=guaranteed
        )[0]
        for i, j in pairs
    ]
    better = np.zeros(len(models), int)
    worse = np.zeros(len(models), int)
    for (i, j), d in zip(pairs, corrected(tested), strict=True):
        if d.evident:
            ahead, behind = (j, i) if sign * (d.difference or 0.0) > 0 else (i, j)
            better[behind] += 1
            worse[ahead] += 1
    # A difference smaller than rounding is a tie, not an order.
    ranks = 1 + np.sum(means[None, :] > means[:, None] + 1e-9, axis=1)
    groups = len(part.group.present())
    why = None if groups > 1 else Reason("ranks_of_one_image")
    out = []
    for i in np.argsort(ranks, kind="stable"):
        open_ranks = (
            (1 + int(better[i]), len(models) - int(worse[i])) if why is None else None
        )
        out.append(
            Rank(
                judge,
                factor,
                models[i],
                sign * float(means[i]),
                int(ranks[i]),
                open_ranks,
                why,
            )
        )
    return out
