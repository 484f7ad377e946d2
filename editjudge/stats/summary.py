"""Summaries of a run's scores: means with intervals, failures, aggregates, pass rates, ranks."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from editjudge.errors import UsageError
from editjudge.rubrics import evaluation
from editjudge.rubrics.expression import Term, reduction
from editjudge.stats.columns import (
    ABSTAINED,
    FAILED,
    OK,
    Codes,
    Column,
    Floats,
    Interval,
    Ints,
    Limits,
    Reason,
    Scales,
    Scores,
    combinations,
    ends_of,
    joined,
    stacked,
    worst_best,
)
from editjudge.stats.compare import compare, corrected
from editjudge.stats.inference import DRAWS, mean_interval, mean_intervals

How = Literal["mean", "geometric", "minimum"]


@dataclass(frozen=True)
class Cell:
    """Summary for one judge, model, factor and slice."""

    judge: str
    model: str
    factor: str
    slice: str | None
    n: int
    """Number of judgements requested, including those that failed."""
    ok: int
    abstained: int
    failed: Mapping[str, int]
    """Number of failures, keyed by status. Abstentions are not failures."""
    mean: float | None
    median: float | None
    ci: Interval | None
    ci_reason: Reason | None
    """Reason why there is no interval."""
    method: str | None
    """Method of the interval."""
    distribution: Mapping[str, int]
    """Number of judgements with each score. If the scale is known, every value of it is listed."""
    worst_case: float | None
    """Mean if every failure had the worst score of the scale; None if the scale is unknown."""
    best_case: float | None
    groups: int
    notes: tuple[Reason, ...]
    repeat_sd: float | None = None
    """Standard deviation of a judge's repeated scores of the same edit; None without repeats."""


@dataclass(frozen=True)
class Aggregate:
    """A score computed from several factors by a published formula."""

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
    """Method of the interval. It is `exact` (Clopper-Pearson with the effective number of source images) if the
    judgements of each image either all pass or all fail."""
    design_effect: float
    """Factor by which shared source images increase the variance; 1 if no two judgements share an image."""


@dataclass(frozen=True)
class Rank:
    judge: str
    factor: str
    model: str
    mean: float
    rank: int
    """Rank; 1 is the best. Models with equal means share a rank."""
    ci: tuple[int, int] | None
    """Range of ranks that the Holm-corrected comparisons of all pairs of models leave open. For each judge and factor,
    the ranges of all models are jointly correct in 95 of 100 runs."""
    ci_reason: Reason | None


def summarise(
    scores: Scores,
    *,
    by: str | None = None,
    scales: Scales | None = None,
    guaranteed: bool = False,
    draws: int = DRAWS,
) -> list[Cell]:
    """Summarise every combination of judge, model and factor that occurs. With `by`, summarise each value of that slice
    separately.

    `scales` has the legal values of each factor, or the two ends of its scale, from worst to best. Without it there are
    no bounds.
    """
    if by is not None and by not in scores.slices:
        raise UsageError(
            f"there is no column {by!r} to slice by: expected one of {sorted(scores.slices)}",
            code="unknown_column",
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
    seen = np.zeros((len(keys), max(n_groups, 1)), dtype=bool)
    seen[cell, group] = True
    repeat_sds: list[float | None] = [None] * len(keys)
    if scores.repeat.max(initial=0):
        repeat_sds = _repeat_sds(score, cell, scores.item.codes[ok], len(keys))
    return [
        _cell(
            key,
            dict(zip(scores.status.labels, statuses[i].tolist(), strict=True)),
            dict(zip(values.tolist(), counts[i].tolist(), strict=True)),
            limits[i],
            int(seen[i].sum()),
            scale=(scales or {}).get(key[2]),
            repeat_sd=repeat_sds[i],
        )
        for i, key in enumerate(keys)
    ]


@dataclass(frozen=True)
class WeightedMean:
    """Weighted mean of the means over the values of a column, for one judge and model."""

    name: str
    judge: str
    model: str
    mean: float | None
    ci: Interval | None
    ci_reason: Reason | None
    """Reason why there is no interval, or no mean."""
    method: str | None
    ok: int
    n: int
    means: Mapping[str, float | None]
    """Mean for each value of the column; None if no judgement has a score."""


def weighted_means(
    name: str, scores: Scores, by: str, weights: Mapping[str, float]
) -> list[WeightedMean]:
    """Return the weighted mean over the values of a slice, for each judge and model. Without weights, all values count
    equally. There is no mean if a value has a weight and no score, or scores and no weight.
    """
    results = []
    cells, keys = combinations(scores.judge, scores.model)
    for number, (judge, model) in enumerate(keys):
        rows = scores.take(cells == number)
        ok = rows.take(rows.ok)
        column = ok.slices[by]
        present = dict.fromkeys((*weights, *rows.slices[by].present()))
        means = {
            value: float(ok.score[column.among((value,))].mean())
            if column.among((value,)).any()
            else None
            for value in present
        }
        shares = dict(weights) or dict.fromkeys(present, 1.0)
        unweighted = [value for value in present if value not in shares]
        unscored = [value for value in shares if means[value] is None]
        if unweighted or unscored or not shares:
            code = "value_without_weight" if unweighted else "value_without_score"
            value = [*unweighted, *unscored, ""][0]
            mean = None
            limits = Limits(None, Reason.of(code, value=value, column=by))
        else:
            total = sum(shares.values())
            mean = sum(shares[v] / total * (means[v] or 0.0) for v in shares)
            # Linearised: the mean of these values is the weighted mean, and so is their variance over source images.
            values = np.full(len(ok), mean)
            for value, share in shares.items():
                chosen = column.among((value,))
                factor = len(ok) * share / total / chosen.sum()
                values[chosen] += factor * (ok.score[chosen] - (means[value] or 0.0))
            limits = mean_interval(values, ok.group.compact().codes, None)
        results.append(
            WeightedMean(name, judge, model, mean, *limits, len(ok), len(rows), means)
        )
    return results


def aggregate(scores: Scores, aggregates: Sequence[Aggregate]) -> Scores:
    """Return the table with an additional factor for each aggregate, which other functions treat like any factor.

    An aggregate has a score only if all its factors have one. A failed factor makes it failed; otherwise an abstention
    makes it abstained. A mean over only the answered factors would reward missing answers.
    """
    return stacked([scores, *(_aggregated(scores, each) for each in aggregates)])


def pass_rates(scores: Scores, rules: Mapping[str, float]) -> list[PassRate]:
    """Return the share of judgements whose factor has exactly the given score, such as `{"effect_score": 5}`."""
    rates = []
    for factor, wanted in rules.items():
        rows = scores.where(factor=factor)
        cells, keys = combinations(rows.judge, rows.model)
        for i, (judge, model) in enumerate(keys):
            cell = rows.take(cells == i)
            ok = cell.take(cell.ok)
            passed = (ok.score == wanted).astype(float)
            limits = mean_interval(passed, ok.group.compact().codes, (0.0, 1.0))
            rates.append(
                PassRate(
                    judge,
                    model,
                    factor,
                    f"{factor} == {wanted:g}",
                    len(cell),
                    len(ok),
                    int(passed.sum()),
                    float(passed.mean()) if len(ok) else None,
                    *limits,
                    design_effect(passed, ok.group.codes),
                )
            )
    return rates


def rank(
    scores: Scores,
    *,
    falling: Collection[str] = (),
    scales: Scales | None = None,
    guaranteed: bool = False,
) -> list[Rank]:
    """Rank models from best to worst for every judge and factor, with the range of ranks that the evidence leaves open.

    Lower scores are better for the factors in `falling`.
    """
    ok = scores.take(scores.ok)
    cells, keys = combinations(ok.factor, ok.judge)
    return [
        rank
        for i, (factor, judge) in enumerate(keys)
        for rank in _ranks(
            ok.take(cells == i),
            judge,
            factor,
            {factor: scales[factor]} if scales and factor in scales else {},
            sign=-1.0 if factor in falling else 1.0,
            guaranteed=guaranteed,
        )
    ]


def design_effect(values: Floats, groups: Codes) -> float:
    """Return the design effect, which is at least 1. It is the variance of the mean if groups are sampled, divided by
    the variance if rows are sampled."""
    if len(values) < 2:
        return 1.0
    centred = values - values.mean()
    single = float(np.sum(centred**2))
    grouped = float(np.sum(np.bincount(groups, weights=centred) ** 2))
    return max(1.0, grouped / single) if single > 0 else 1.0


def _table(rows: Ints, columns: Codes, n_rows: int, n_columns: int) -> Ints:
    flat: Ints = np.bincount(rows * n_columns + columns, minlength=n_rows * n_columns)
    return flat.reshape(n_rows, n_columns)


def _levels(score: Floats) -> tuple[Floats, Ints]:
    """Return sorted values that include all scores, and each score's index among them."""
    if len(score) and np.ptp(score) < 1_000 and np.all(score == np.rint(score)):
        # Integers need no sorting, which takes 1.5 s for twelve million scores.
        codes = (score - score.min()).astype(np.int64)
        return np.arange(codes.max() + 1) + score.min(), codes
    values, codes = np.unique(score, return_inverse=True)
    return values, codes


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
    judge, model, factor, *slices = key
    ok = statuses.pop(OK, 0)
    abstained = statuses.pop(ABSTAINED, 0)
    failed = {status: n for status, n in statuses.items() if n}
    failures = sum(failed.values())
    spread = {value: n for value, n in spread.items() if n}
    total = math.fsum(value * n for value, n in spread.items())
    ends = worst_best(scale)
    notes = [limits.reason] if limits.reason else []
    if failures and ends is None:
        notes.append(Reason("scale_unknown"))
    bounds: list[float | None] = [None, None]
    if ends and ok + failures:
        bounds = [(total + failures * end) / (ok + failures) for end in ends]
    # Scores that are equal to six digits are counted together.
    distribution = Counter[str]()
    for value in sorted({*map(float, scale or ()), *spread}):
        distribution[f"{value:g}"] += spread.get(value, 0)
    return Cell(
        judge,
        model,
        factor,
        slices[0] if slices else None,
        n=ok + abstained + failures,
        ok=ok,
        abstained=abstained,
        failed=failed,
        mean=total / ok if ok else None,
        median=_median(spread) if ok else None,
        ci=limits.ci,
        ci_reason=limits.reason,
        method=limits.method,
        distribution=dict(distribution),
        worst_case=bounds[0],
        best_case=bounds[1],
        groups=groups,
        notes=tuple(notes),
        repeat_sd=repeat_sd,
    )


def _repeat_sds(
    score: Floats, cell: Ints, item: Codes, n_cells: int
) -> list[float | None]:
    """Return each cell's standard deviation over repeats, pooled over edits; None if no edit has two scores."""
    edit = cell * (int(item.max(initial=0)) + 1) + item
    _, first, position, counts = np.unique(
        edit, return_index=True, return_inverse=True, return_counts=True
    )
    off = score - (np.bincount(position, weights=score) / counts)[position]
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


def _aggregated(scores: Scores, aggregate: Aggregate) -> Scores:
    rows = scores.where(factor=aggregate.factors)
    unit = joined(rows.item, rows.judge, Column.of(rows.repeat))
    positions = [
        aggregate.factors.index(f) if f in aggregate.factors else 0
        for f in rows.factor.labels
    ]
    column = np.array(positions)[rows.factor.codes]
    width = len(aggregate.factors)
    first, values, statuses = side_by_side(rows, unit, column, width, FAILED)
    return replace(
        first,
        factor=Column.constant(aggregate.name, len(first)),
        score=_reduced(values, statuses, aggregate),
        status=Column.of(joint_status(statuses)),
    )


def side_by_side(
    scores: Scores, unit: Column, column: Codes, width: int, missing: str
) -> tuple[Scores, Floats, Codes]:
    """Return the first row of each unit, and the unit's scores and statuses by column. The row's answer id is the sum
    of the ids of all rows of the unit.

    If a unit has no row for a column, its status there is `missing`.
    """
    cell = (unit.codes, column)
    shape = (len(unit.labels), width)
    values = np.full(shape, np.nan)
    codes = np.full(shape, -1)
    values[cell] = scores.score
    codes[cell] = scores.status.codes
    answer = np.zeros(len(unit.labels), np.uint64)
    np.add.at(answer, unit.codes, scores.answer)
    row = scores.take(np.unique(unit.codes, return_index=True)[1])
    # Code -1 (no row) selects the last name.
    names = np.array([*scores.status.labels, missing])
    return replace(row, answer=answer), values, names[codes]


def joint_status(statuses: Codes) -> Codes:
    """Return the joint status of each row: the first failure, otherwise an abstention, otherwise ok."""
    abstained = statuses == ABSTAINED
    failed = ~abstained & (statuses != OK)
    first = statuses[np.arange(len(statuses)), failed.argmax(axis=1)]
    status = np.where(abstained.any(axis=1), ABSTAINED, OK).astype(object)
    joint: Codes = np.where(failed.any(axis=1), first, status)
    return joint


def _reduced(values: Floats, statuses: Codes, aggregate: Aggregate) -> Floats:
    """Return the aggregate of each row. A row has one value for each factor."""
    codes = np.where(statuses == OK, evaluation.OK, evaluation.FAILED)
    columns = {
        ("", factor): [evaluation.Quantity(values[:, i], codes[:, i])]
        for i, factor in enumerate(aggregate.factors)
    }
    rows = evaluation.column_rows(len(values), columns)
    # Published results used NumPy's sums and roots: a Python loop rounds the last digits differently.
    arithmetic = replace(
        rows.arithmetic,
        total=lambda parts: np.stack(parts, axis=1).sum(axis=1),
        power=lambda product, _: product ** (1 / len(aggregate.factors)),
    )
    result = evaluation.evaluate(aggregate.term, replace(rows, arithmetic=arithmetic))
    if np.any(result.code == evaluation.UNDEFINED):
        raise UsageError(
            f"{aggregate.formula}: a geometric mean needs scores that are not negative"
        )
    reduced: Floats = result.value
    return reduced


def _ranks(
    scores: Scores,
    judge: str,
    factor: str,
    scales: Scales,
    *,
    sign: float,
    guaranteed: bool,
) -> list[Rank]:
    """Rank models by the method of Mogstad, Romano, Shaikh and Wilhelm (2024), which compares all pairs."""
    models = scores.model.present()
    sides = {model: scores.where(model=model) for model in models}
    means = np.array([sign * float(side.score.mean()) for side in sides.values()])
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
    # A difference within rounding error is a tie.
    ranks = 1 + np.sum(means[None, :] > means[:, None] + 1e-9, axis=1)
    reason = None
    if len(scores.group.present()) < 2:
        reason = Reason("ranks_of_one_image")
    ranked = []
    for i in np.argsort(ranks, kind="stable"):
        ci = (
            (1 + int(better[i]), len(models) - int(worse[i]))
            if reason is None
            else None
        )
        mean = sign * float(means[i])
        ranked.append(Rank(judge, factor, models[i], mean, int(ranks[i]), ci, reason))
    return ranked
