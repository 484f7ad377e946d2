"""From a judge's scale to people's: monotone maps, and people's mean estimated from few ratings and many scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from editjudge.errors import UsageError
from editjudge.stats.bootstrap import FEWEST, Ends, carrying, folds_of
from editjudge.stats.columns import Column, Floats, Ints, Mask
from editjudge.stats.inference import mean_interval
from editjudge.stats.statistic import Interval, Limits, Statistic

FEWEST_PAIRS = 10
"""Pairs below which a calibration is refused: a step function through fewer points is the points."""


@dataclass(frozen=True)
class Isotonic(Statistic):
    """A non-decreasing map from a judge's scores to people's, linear between its knots and flat beyond them."""

    x: tuple[float, ...]
    y: tuple[float, ...]

    def __call__(self, scores: Sequence[float] | Floats) -> Floats:
        """NaN stays NaN: a missing score is not calibrated into one."""
        values = np.asarray(scores, dtype=float)
        out: Floats = np.interp(values, self.x, self.y)
        return np.where(np.isnan(values), np.nan, out)


@dataclass(frozen=True)
class ScaleCalibration(Statistic):
    """A map and what it is worth on groups that it has not seen."""

    n: int
    groups: int
    map: Isotonic | None
    mae_raw: float | None
    mae_calibrated: float | None
    """Cross-validated, whole groups held out."""
    mae_constant: float | None
    """Of always saying the mean of the other groups: a calibration that does not beat it knows nothing."""
    bias_raw: float | None
    bias_calibrated: float | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class PoweredEstimate(Statistic):
    """People's mean, from the few edits that they rated and the judge's scores of all."""

    rated: int
    scored_only: int
    human_mean: float | None
    human_ci: Interval | None
    """From the rated edits alone, whether or not the judge has a score of them."""
    mean: float | None
    """Prediction-powered: the judge's mean over all edits, corrected by its error on the rated ones."""
    ci: Interval | None
    ci_reason: str | None
    weight: float | None
    """How much the judge is listened to, 0 to 1, chosen to make the interval shortest."""
    saved: float | None
    """How many more ratings people alone would have needed for an interval this short."""
    notes: tuple[str, ...]


def fit(judge: Sequence[float] | Floats, human: Sequence[float] | Floats) -> Isotonic:
    """Least squares under monotonicity, edits with equal scores pooled."""
    from scipy.optimize import isotonic_regression

    x, y = np.asarray(judge, dtype=float), np.asarray(human, dtype=float)
    good = np.isfinite(x) & np.isfinite(y)
    if not good.any():
        raise UsageError("no edit has both a score and a rating to calibrate on")
    levels, code = np.unique(x[good], return_inverse=True)
    counts = np.bincount(code)
    means = np.bincount(code, weights=y[good]) / counts
    fitted = isotonic_regression(means, weights=counts).x
    return Isotonic(tuple(map(float, levels)), tuple(map(float, fitted)))


def calibrate(
    judge: Sequence[float] | Floats,
    human: Sequence[float] | Floats,
    *,
    group: Iterable[object] | None = None,
) -> ScaleCalibration:
    """One factor: NaN on either side is left out. The map is of all pairs, its errors are cross-validated."""
    x, y = np.asarray(judge, dtype=float), np.asarray(human, dtype=float)
    good = np.isfinite(x) & np.isfinite(y)
    codes = Column.of(range(len(x)) if group is None else group).take(good).compact()
    x, y, groups = x[good], y[good], len(codes.labels)
    if len(x) < FEWEST_PAIRS or groups < 2:
        why = f"{len(x)} pairs in {groups} groups: too few to calibrate (at least {FEWEST_PAIRS} in 2)"
        return ScaleCalibration(len(x), groups, None, None, None, None, None, None, (why,))
    mapped, constant = _held_out(x, y, folds_of(codes.codes))
    notes = ("every score is the same: the map is a constant",) if np.ptp(x) == 0 else ()
    return ScaleCalibration(
        len(x), groups, fit(x, y),
        mae_raw=float(np.mean(np.abs(x - y))),
        mae_calibrated=float(np.mean(np.abs(mapped - y))),
        mae_constant=float(np.mean(np.abs(constant - y))),
        bias_raw=float(np.mean(x - y)),
        bias_calibrated=float(np.mean(mapped - y)),
        notes=notes,
    )  # fmt: skip


def powered_mean(
    judge: Sequence[float] | Floats,
    human: Sequence[float] | Floats,
    *,
    group: Iterable[object] | None = None,
    ends: Ends | None = None,
) -> PoweredEstimate:
    """Over the edits of one model: `judge` NaN where it failed, `human` NaN where nobody rated; `ends` of the scale.

    Angelopoulos et al. (2023), with the weight of their PPI++; groups may hold rated and unrated edits. What the
    judge failed on is left out of its two means alone: who rates does not know that, so both miss the same kind.
    """
    f, y = np.asarray(judge, dtype=float), np.asarray(human, dtype=float)
    codes = Column.of(range(len(f)) if group is None else group).codes.astype(np.int64)
    rated, scored = np.isfinite(y), np.isfinite(f)
    both, rest = rated & scored, scored & ~rated
    groups, n = len(np.unique(codes[rated])), int(rated.sum())
    if groups < 2:
        few = "people rated edits of fewer than two groups: their mean has no interval"
        mean = float(y[rated].mean()) if n else None
        return PoweredEstimate(n, int(rest.sum()), mean, None, mean, None, few, None, None, (few,))
    human_mean = float(y[rated].mean())
    own = _influence(y, rated, codes)
    helped = rest.any() and both.any()
    judged = _influence(f, rest, codes) - _influence(f, both, codes) if helped else np.zeros(len(own))
    power = float(judged @ judged)
    weight = min(1.0, max(0.0, -float(own @ judged) / power)) if power > 1e-15 else 0.0
    mean = human_mean + (weight * float(f[rest].mean() - f[both].mean()) if helped else 0.0)
    error, alone = _error(own + weight * judged, groups), _error(own, groups)
    inside = np.unique(codes[rated], return_inverse=True)[1]
    carried = carrying(y[rated], inside)
    people = mean_interval(y[rated], inside, ends) if ends else _student(human_mean, alone, carried)
    limits = _student(mean, error, carried) if weight else people
    saved = n * ((alone / error) ** 2 - 1) if error > 0 else None
    notes = [] if rest.any() else ["every edit was rated: the judge adds nothing"]
    if missing := int((~scored).sum()):
        notes.append(f"{missing} edits without a score of the judge are in people's mean alone")
    return PoweredEstimate(
        n, int(rest.sum()), human_mean, people.ci, mean, limits.ci, limits.reason, weight, saved, tuple(notes)
    )


def _held_out(x: Floats, y: Floats, fold: Ints) -> tuple[Floats, Floats]:
    mapped, constant = np.empty(len(x)), np.empty(len(x))
    for k in range(int(fold.max()) + 1):
        test = fold == k
        mapped[test] = fit(x[~test], y[~test])(x[test])
        constant[test] = y[~test].mean()
    return mapped, constant


def _influence(values: Floats, keep: Mask, codes: Ints) -> Floats:
    """What each group contributes to the error of the mean over `keep`."""
    centred = np.where(keep, values - values[keep].mean(), 0.0)
    return np.bincount(codes, weights=centred, minlength=int(codes.max()) + 1) / int(keep.sum())


def _error(influence: Floats, groups: int) -> float:
    return math.sqrt(float(influence @ influence) * groups / (groups - 1))


def _student(mean: float, error: float, carried: float) -> Limits:
    """With the t of the rated groups that carry the spread: the term that these few decide is the larger one."""
    from scipy.special import stdtrit

    if carried < FEWEST:
        few = f"about {carried:.0f} rated groups (source images) carry the spread of ratings"
        return Limits(None, f"{few}: an interval needs {FEWEST}")
    half = float(stdtrit(carried - 1, 0.975)) * error
    return Limits(Interval(mean - half, mean + half), None)
