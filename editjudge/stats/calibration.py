"""Calibration of a judge to people: monotone maps, and estimates of people's mean from few ratings and many scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from editjudge.errors import UsageError
from editjudge.stats.columns import (
    Column,
    Ends,
    Floats,
    Interval,
    Ints,
    Limits,
    Mask,
    Reason,
)
from editjudge.stats.inference import FEWEST, evenly, folds_of, mean_interval

FEWEST_PAIRS = 10
"""Minimum number of pairs for a calibration: a step function through fewer points only memorises them."""


@dataclass(frozen=True)
class Isotonic:
    """A non-decreasing map from a judge's scores to people's, linear between its knots and flat beyond them."""

    x: tuple[float, ...]
    y: tuple[float, ...]

    def __call__(self, scores: Sequence[float] | Floats) -> Floats:
        """Return the calibrated scores. A missing score (NaN) stays NaN."""
        values = np.asarray(scores, dtype=float)
        out: Floats = np.interp(values, self.x, self.y)
        return np.where(np.isnan(values), np.nan, out)


@dataclass(frozen=True)
class ScaleCalibration:
    """A calibration map and its cross-validated error."""

    n: int
    groups: int
    map: Isotonic | None = None
    mae_raw: float | None = None
    mae_calibrated: float | None = None
    """Mean absolute error after calibration, cross-validated with whole groups held out."""
    mae_constant: float | None = None
    """Mean absolute error of a constant baseline, which predicts the mean of the other groups. A useful calibration has
    a smaller error."""
    bias_raw: float | None = None
    bias_calibrated: float | None = None
    notes: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class PoweredEstimate:
    """Estimate of people's mean from the few edits that they rated and the judge's scores of all edits."""

    rated: int
    scored_only: int
    human_mean: float | None
    human_ci: Interval | None
    """Interval from the rated edits alone, whether or not the judge scored them."""
    mean: float | None
    """Prediction-powered estimate: the judge's mean over all edits, corrected by its error on the rated ones."""
    ci: Interval | None
    ci_reason: Reason | None
    weight: float | None
    """Weight of the judge's scores, 0 to 1, chosen to make the interval shortest."""
    saved: float | None
    """Additional ratings that people alone would need for an interval this short."""
    notes: tuple[Reason, ...]


def fit(judge: Sequence[float] | Floats, human: Sequence[float] | Floats) -> Isotonic:
    """Fit an isotonic regression by least squares. Edits with equal scores are pooled."""
    from scipy.optimize import isotonic_regression

    x, y, _ = _complete(judge, human, None)
    if not len(x):
        raise UsageError(
            "no edit has both a score and a rating to calibrate on",
            code="no_common_edit",
        )
    levels, code = np.unique(x, return_inverse=True)
    counts = np.bincount(code)
    means = np.bincount(code, weights=y) / counts
    fitted = isotonic_regression(means, weights=counts).x
    return Isotonic(tuple(map(float, levels)), tuple(map(float, fitted)))


def calibrate(
    judge: Sequence[float] | Floats,
    human: Sequence[float] | Floats,
    *,
    group: Iterable[object] | None = None,
) -> ScaleCalibration:
    """Calibrate one factor. The map is fitted to all edits that have both a score and a rating, and its error is
    cross-validated.

    Edits with NaN in `judge` or `human` are left out.
    """
    x, y, codes = _complete(judge, human, group)
    groups = len(codes.labels)
    if len(x) < FEWEST_PAIRS or groups < 2:
        few = Reason.of("few_pairs", pairs=len(x), groups=groups, needed=FEWEST_PAIRS)
        return ScaleCalibration(len(x), groups, notes=(few,))
    mapped = np.empty(len(x))
    constant = np.empty(len(x))
    fold = folds_of(codes.codes)
    for k in range(int(fold.max()) + 1):
        test = fold == k
        mapped[test] = fit(x[~test], y[~test])(x[test])
        constant[test] = y[~test].mean()
    return ScaleCalibration(
        len(x),
        groups,
        fit(x, y),
        mae_raw=float(np.mean(np.abs(x - y))),
        mae_calibrated=float(np.mean(np.abs(mapped - y))),
        mae_constant=float(np.mean(np.abs(constant - y))),
        bias_raw=float(np.mean(x - y)),
        bias_calibrated=float(np.mean(mapped - y)),
        notes=(Reason("constant_map"),) if np.ptp(x) == 0 else (),
    )


def _complete(
    judge: Sequence[float] | Floats,
    human: Sequence[float] | Floats,
    group: Iterable[object] | None,
) -> tuple[Floats, Floats, Column]:
    """Return scores, ratings and groups of the edits that have both a score and a rating.

    Without `group`, each edit is its own group.
    """
    x = np.asarray(judge, dtype=float)
    y = np.asarray(human, dtype=float)
    good = np.isfinite(x) & np.isfinite(y)
    groups = Column.of(range(len(x)) if group is None else group)
    return x[good], y[good], groups.take(good).compact()


def powered_mean(
    judge: Sequence[float] | Floats,
    human: Sequence[float] | Floats,
    *,
    group: Iterable[object] | None = None,
    ends: Ends | None = None,
    probability: Floats | None = None,
) -> PoweredEstimate:
    """Estimate people's mean rating of one model's edits. In `judge` NaN means that the judgement failed; in `human` it
    means that the edit has no rating.

    The method is that of Angelopoulos et al. (2023), with the weight of PPI++. Groups may contain rated and unrated
    edits. `probability` is that with which an edit was chosen to be rated, so that each rating counts for the edits that
    it stands for; by default all are equal. Failed edits are left out of the judge's two means only. Failures do not
    affect which edits are rated, so both means lack the same kind of edits.
    """
    f = np.asarray(judge, dtype=float)
    y = np.asarray(human, dtype=float)
    codes = Column.of(range(len(f)) if group is None else group).codes.astype(np.int64)
    rated = np.isfinite(y)
    scored = np.isfinite(f)
    both = rated & scored
    rest = scored & ~rated
    inside = np.unique(codes[rated], return_inverse=True)[1]
    groups = int(inside.max(initial=-1)) + 1
    n = int(rated.sum())
    if groups < 2:
        few = Reason("few_rated_groups")
        mean = float(y[rated].mean()) if n else None
        none = (mean, None, mean, None, few, None, None)
        return PoweredEstimate(n, int(rest.sum()), *none, (few,))
    counts = np.ones(len(f)) if probability is None else 1 / probability
    human_mean = float(np.average(y[rated], weights=counts[rated]))
    people_influence = _influence(y, rated, codes, counts)
    judge_influence = np.zeros(len(people_influence))
    shift = 0.0
    if rest.any() and both.any():
        # With unequal probabilities, unrated edits are not like all others, so the mean is over all scored edits.
        others = rest if probability is None else scored
        alike = np.ones(len(f))
        judge_influence = _influence(f, others, codes, alike)
        judge_influence -= _influence(f, both, codes, counts)
        shift = float(f[others].mean() - np.average(f[both], weights=counts[both]))
    weight = _shortest_weight(people_influence, judge_influence)
    mean = human_mean + weight * shift
    error = _error(people_influence + weight * judge_influence, groups)
    alone = _error(people_influence, groups)
    spread = np.abs(y[rated] - np.median(y[rated])) * counts[rated]
    carried = evenly(np.bincount(inside, weights=spread))
    people = _student(human_mean, alone, carried)
    if ends and probability is None:
        people = mean_interval(y[rated], inside, ends)
    limits = _student(mean, error, carried) if weight else people
    notes = [] if rest.any() else [Reason("all_rated")]
    if missing := int((~scored).sum()):
        notes.append(Reason.of("unscored_edits", n=missing))
    return PoweredEstimate(
        rated=n,
        scored_only=int(rest.sum()),
        human_mean=human_mean,
        human_ci=people.ci,
        mean=mean,
        ci=limits.ci,
        ci_reason=limits.reason,
        weight=weight,
        saved=n * ((alone / error) ** 2 - 1) if error > 0 else None,
        notes=tuple(notes),
    )


def _influence(values: Floats, keep: Mask, codes: Ints, counts: Floats) -> Floats:
    """Return each group's contribution to the error of the mean over the mask `keep`, in which a value counts as often
    as `counts` says.
    """
    weights = np.where(keep, counts, 0.0)
    mean = np.average(values[keep], weights=counts[keep])
    centred = np.where(keep, values - mean, 0.0) * weights
    sums = np.bincount(codes, centred, minlength=int(codes.max()) + 1)
    return np.asarray(sums / float(weights.sum()), dtype=np.float64)


def _shortest_weight(people: Floats, judge: Floats) -> float:
    """Return the weight of the judge, from 0 to 1, that minimises the squared error of `people` plus the weighted
    `judge`.
    """
    power = float(judge @ judge)
    if power <= 1e-15:
        return 0.0
    return min(1.0, max(0.0, -float(people @ judge) / power))


def _error(influence: Floats, groups: int) -> float:
    return math.sqrt(float(influence @ influence) * groups / (groups - 1))


def _student(mean: float, error: float, carried: float) -> Limits:
    """Return a t interval with the effective number of rated groups, since the term of the rated edits dominates the
    error."""
    from scipy.special import stdtrit

    if carried < FEWEST:
        few = Reason.of("few_rated_carry", groups=carried, needed=FEWEST)
        return Limits(None, few)
    half = float(stdtrit(carried - 1, 0.975)) * error
    return Limits(Interval(mean - half, mean + half), None)
