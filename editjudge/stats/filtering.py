"""Filters with a promise: the most lenient cut whose precision among rated edits is shown to be high enough (learn then
test, Angelopoulos et al. 2021), with source images as the unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from editjudge.stats.columns import Codes, Floats, Mask
from editjudge.stats.inference import evenly
from editjudge.stats.sequence import log_money

_MOST_TIMES = 1_000
"""Maximum factor by which the number of ratings is increased when the number that would suffice is searched."""


@dataclass(frozen=True)
class CutTest:
    """Test of one cut."""

    rated: int
    """Rated edits that the cut keeps."""
    good: int
    images: int
    """Source images of these edits."""
    p: float
    """P-value of the hypothesis that fewer of the kept edits are good than promised."""
    level: float
    passed: bool
    times: int | None
    """Factor by which the ratings would have to grow for this share of good edits to suffice; None if it is too low."""


def tested_cuts(
    keeps: Sequence[Mask], good: Mask, group: Codes, precision: float, confidence: float
) -> list[CutTest]:
    """Test cuts in their order, which does not depend on the ratings. Each cut has an equal share of the permitted error,
    and a cut that passes leaves its share to the next one (fallback procedure), so the probability that any cut passes
    whose precision is too low is at most 1 - confidence.
    """
    alpha = 1 - confidence
    least = math.ceil(math.log(alpha) / math.log(precision))
    sums = [_image_sums(keep, good, group, precision) for keep in keeps]
    # A cut that keeps too few rated images cannot pass, whatever the ratings are.
    able = [len(values) >= least for values, _ in sums]
    share = alpha / max(1, sum(able))
    level = 0.0
    tests = []
    for keep, (values, is_binary), is_able in zip(keeps, sums, able, strict=True):
        level = level + share if is_able else level
        p = p_value(values, precision, is_binary)
        passed = is_able and p <= level
        tests.append(
            CutTest(
                int(keep.sum()),
                int((keep & good).sum()),
                len(values),
                p,
                level,
                passed,
                _times(values, precision, is_binary, share),
            )
        )
        level = level if passed else 0.0
    return tests


def _image_sums(
    keep: Mask, good: Mask, group: Codes, precision: float
) -> tuple[Floats, bool]:
    """Return a value in 0..1 for each image with kept edits, whose mean is above `precision` exactly if the precision of
    kept edits is, and whether the values are only 0 and 1.
    """
    images, code = np.unique(group[keep], return_inverse=True)
    gains = np.bincount(code, good[keep] - precision, minlength=len(images))
    sizes = np.bincount(code, minlength=len(images))
    most = int(sizes.max(initial=1))
    return precision + gains / most, most == 1


def p_value(values: Floats, mean: float, is_binary: bool) -> float:
    """Return the p-value that independent values in 0..1 have at most this mean: binomial if they are all 0 or 1, else by
    betting. Both hold for any number of values.
    """
    if not len(values):
        return 1.0
    if is_binary:
        return float(binom.sf(round(values.sum()) - 1, len(values), mean))
    return math.exp(-max(0.0, float(log_money(values, mean)[-1])))


def _times(
    values: Floats, precision: float, is_binary: bool, level: float
) -> int | None:
    if not len(values) or values.mean() <= precision:
        return None
    for times in (*range(1, 20), *np.geomspace(20, _MOST_TIMES, 30).astype(int)):
        if p_value(np.tile(values, int(times)), precision, is_binary) <= level:
            return int(times)
    return None


def shift_of_rated(
    values: Floats, rated: Mask, group: Codes
) -> tuple[float, float] | None:
    """Return by how much the mean of rated edits exceeds that of unrated edits, and that difference over its
    standard error, with source images as the unit. None if there are fewer than two images.
    """
    known = np.isfinite(values)
    sides = [known & rated, known & ~rated]
    if not all(side.any() for side in sides) or evenly(np.bincount(group)) < 2:
        return None
    means = [float(values[side].mean()) for side in sides]
    influence = np.zeros(int(group.max()) + 1)
    for side, mean, sign in zip(sides, means, (1, -1), strict=True):
        centred = np.where(side, values - mean, 0.0) / int(side.sum())
        influence += sign * np.bincount(group, centred, minlength=len(influence))
    error = math.sqrt(float(influence @ influence))
    gap = means[0] - means[1]
    return gap, gap / error if error > 0 else math.copysign(math.inf, gap)
