"""Whether two things that made or judged the same edits differ: paired, clustered, corrected, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from .answer import Answer, Interval, number, said
from .bootstrap import DRAWS, group_notes, interval, mean_draws
from .columns import Column, Floats, Ints, Scores, item_means
from .spread import within_variance

FLIPS = 20_000
"""Sign flips: the smallest p is 1/20,001, small enough to survive a correction over a hundred factors."""
EXACT = 14
"""Up to 2**14 = 16,384 sign patterns are enumerated, which costs no more than drawing them."""
ALPHA, POWER = 0.05, 0.80

On = Literal["item", "pair"]


@dataclass(frozen=True)
class Difference(Answer):
    """B minus A on one factor, over the edits that both have."""

    factor: str
    a: str
    b: str
    n: int
    """Edits with a score on both sides."""
    groups: int
    only_a: int
    """Edits with a score on this side alone: they failed, or were not run, on the other."""
    only_b: int
    mean_a: float | None
    mean_b: float | None
    difference: float | None
    ci: Interval | None
    p: float | None
    """Sign flips of whole groups, two-sided."""
    p_wilcoxon: float | None
    """Wilcoxon's signed ranks of the groups' mean differences: the alternative that few outliers move less."""
    p_holm: float | None
    """`p` corrected over all that is compared together."""
    effect: float | None
    """Mean difference over the standard deviation of the differences (Cohen's d of pairs)."""
    wins: int
    ties: int
    losses: int
    """Edits on which B scored higher, the same, lower."""
    error: float | None
    """The standard error of the difference, with whole groups as the unit."""
    detectable: float | None
    """The smallest true difference that this many edits would show 80 times in 100, after the correction for all
    that is compared together: at 5 % over their number, which is what Holm asks of the first."""
    detectable_without_noise: float | None
    """The same if the judge gave the same answer every time; None without repeats."""
    verdict: str
    notes: tuple[str, ...]


def compare(
    a: Scores,
    b: Scores,
    *,
    names: tuple[str, str] = ("A", "B"),
    on: On = "pair",
    draws: int = DRAWS,
) -> list[Difference]:
    """Factor by factor, repeats averaged first. `on="pair"` for models, `"item"` for judges or runs."""
    factors = [f for f in a.factor.present() if f in b.factor.present()]
    found = [_difference(f, a.where(factor=f), b.where(factor=f), names, on, draws=draws) for f in factors]
    return corrected(found)


def corrected(found: Sequence[Difference]) -> list[Difference]:
    """With Holm's correction over all of these, and the verdict that follows from it."""
    tests = sum(d.p is not None for d in found)
    judged = (replace(_among(d, tests), p_holm=p) for d, p in zip(found, holm([d.p for d in found]), strict=True))
    return [replace(d, verdict=_verdict(d)) for d in judged]


def _among(d: Difference, tests: int) -> Difference:
    """With what can be shown by one of so many tests."""
    limit, quiet = detectable(d.error or None, d.groups, tests), d.detectable_without_noise
    if limit and d.detectable and quiet is not None:
        quiet *= limit / d.detectable
    return replace(d, detectable=limit, detectable_without_noise=quiet)


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction, which SciPy does not have; undefined p-values are not counted as tests."""
    order = sorted((p, i) for i, p in enumerate(ps) if p is not None)
    out: list[float | None] = [None] * len(ps)
    highest = 0.0
    for step, (p, i) in enumerate(order):
        highest = max(highest, min(1.0, p * (len(order) - step)))
        out[i] = highest
    return out


def sign_flip(values: Floats, groups: Ints, seed: int = 0, flips: int = FLIPS) -> float | None:
    """The p-value of a mean of zero: how often flipping the signs of whole groups gives as large a sum.

    As SciPy's `permutation_test`, which makes one pattern at a time and is five times slower at 200 groups.
    """
    sums = np.bincount(groups, weights=values)
    sums = sums[np.abs(sums) > 1e-12]
    if len(values) == 0:
        return None
    if len(sums) == 0:
        return 1.0
    observed = abs(float(sums.sum())) * (1 - 1e-9)  # equal sums must count as equal after rounding
    if len(sums) <= EXACT:
        bits = (np.arange(2 ** len(sums))[:, None] >> np.arange(len(sums))) & 1
        return float(np.mean(np.abs((1 - 2 * bits) @ sums) >= observed))
    rng, block, reached = np.random.default_rng(seed), max(1, 4_000_000 // len(sums)), 0
    for start in range(0, flips, block):
        signs = 1.0 - 2.0 * rng.integers(0, 2, size=(min(block, flips - start), len(sums)), dtype=np.int8)
        reached += int(np.sum(np.abs(signs @ sums) >= observed))
    return (reached + 1) / (flips + 1)


def wilcoxon(values: Floats, groups: Ints) -> float | None:
    """Two-sided, over groups as the independent units; groups without a difference say nothing."""
    from scipy.stats import wilcoxon as signed_ranks

    if len(values) == 0:
        return None
    means = np.bincount(groups, weights=values) / np.bincount(groups)
    means = np.round(means[np.abs(means) > 1e-12], 9)  # equal means must tie whatever the order of summing
    return float(signed_ranks(means).pvalue) if len(means) else 1.0


def cluster_error(values: Floats, groups: Ints) -> float | None:
    """Standard error of the mean with whole groups as the unit."""
    n_groups = len(np.unique(groups))
    if n_groups < 2:
        return None
    sums = np.bincount(groups, weights=values - values.mean())
    return math.sqrt(float(np.sum(sums**2)) * n_groups / (n_groups - 1)) / len(values)


def paired(a: Scores, b: Scores, on: On) -> tuple[Floats, Floats, Column, int, int]:
    """The means of both sides on the edits that both scored, their groups, and how many only one scored."""
    (key_a, mean_a, group_a), (key_b, mean_b, _) = _edit_means(a, on), _edit_means(b, on)
    index = {key: i for i, key in enumerate(key_b)}
    rows = [(i, index[key]) for i, key in enumerate(key_a) if key in index]
    left, right = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    group = Column.of(group_a[i] for i in left)
    return mean_a[left], mean_b[right], group, len(key_a) - len(rows), len(key_b) - len(rows)


def _edit_means(scores: Scores, on: On) -> tuple[list[str], Floats, list[str]]:
    part = scores.take(scores.ok)
    key: Column = getattr(part, on).compact()
    group = np.zeros(len(key.labels), np.int64)
    group[key.codes] = part.group.codes
    return list(key.labels), item_means(key, part.score), [part.group.labels[i] for i in group]


def _difference(factor: str, a: Scores, b: Scores, names: tuple[str, str], on: On, *, draws: int) -> Difference:
    x, y, group, only_a, only_b = paired(a, b, on)
    delta, codes = y - x, group.codes.astype(np.int64)
    delta[np.abs(delta) < 1e-12] = 0.0  # means of repeats may differ by rounding alone
    groups, n = len(group.labels), len(delta)
    ci = None
    if n:
        drawn = mean_draws(delta, np.zeros(n, np.int64), 1, codes, groups, draws=draws)[:, 0]
        ci = interval(drawn, groups)
    spread = float(np.std(delta, ddof=1)) if n > 1 else 0.0
    error = cluster_error(delta, codes) if n else None
    quiet = _quiet_error(error, a, b, n)
    return Difference(
        factor, *names, n=n, groups=groups, only_a=only_a, only_b=only_b,
        mean_a=float(x.mean()) if n else None,
        mean_b=float(y.mean()) if n else None,
        difference=float(delta.mean()) if n else None,
        ci=ci,
        p=sign_flip(delta, codes),
        p_wilcoxon=wilcoxon(delta, codes),
        p_holm=None,
        effect=number(float(delta.mean()) / spread) if spread > 0 else None,
        wins=int(np.sum(delta > 0)), ties=int(np.sum(delta == 0)), losses=int(np.sum(delta < 0)),
        error=error,
        detectable=detectable(error or None, groups),
        detectable_without_noise=detectable(quiet, groups),
        verdict="",
        notes=_pair_notes(n, groups, spread, only_a + only_b),
    )  # fmt: skip


def detectable(error: float | None, groups: int, tests: int = 1) -> float | None:
    """The difference that a two-sided 5 % test, one of so many, finds with 80 % power, from its standard error."""
    from scipy.special import stdtrit

    if error is None or groups < 2:
        return None
    return float(stdtrit(groups - 1, 1 - ALPHA / max(1, tests) / 2) + stdtrit(groups - 1, POWER)) * error


def _quiet_error(error: float | None, a: Scores, b: Scores, n: int) -> float | None:
    """The standard error without the judge's own noise, which repeats would average away."""
    noises = [within_variance(part.item.compact().codes, part.score) for part in (x.take(x.ok) for x in (a, b))]
    if error is None or any(variance is None for variance, _ in noises):
        return None
    noise = sum((variance or 0.0) / repeats for variance, repeats in noises) / n
    return math.sqrt(max(error**2 - noise, 0.0))


def _pair_notes(n: int, groups: int, spread: float, unpaired: int) -> tuple[str, ...]:
    if n == 0:
        return ("no edit has a score on both sides",)
    notes = list(group_notes(groups))
    if n > 1 and spread == 0:
        notes.append("every edit shows the same difference: effect size and detectable difference are undefined")
    if unpaired:
        notes.append(f"{unpaired} edits have a score on one side only and are not compared")
    return tuple(notes)


def _verdict(d: Difference) -> str:
    if d.difference is None or d.p_holm is None:
        return "cannot be compared: no edit has a score on both sides"
    if d.p_holm >= ALPHA:
        limit = f"; a true difference below {d.detectable:.2g} would often be missed" if d.detectable else ""
        return f"no evidence of a difference (p = {d.p_holm:.2g} over {d.n} edits{limit})"
    word = "higher" if d.difference > 0 else "lower"
    return f"{d.b} scores {word} than {d.a} by {said(abs(d.difference), _ahead(d))} (p = {d.p_holm:.2g})"


def _ahead(d: Difference) -> Interval | None:
    if d.ci is None or (d.difference or 0) > 0:
        return d.ci
    return Interval(-d.ci.hi, -d.ci.lo)


def provenance_changes(a: Mapping[str, object], b: Mapping[str, object]) -> tuple[str, ...]:
    """What is not the same about how two runs were made, in words: rubric hash, server model, preparation."""
    return tuple(
        f"{key}: {a.get(key, 'not recorded')} -> {b.get(key, 'not recorded')}"
        for key in sorted({*a, *b})
        if a.get(key) != b.get(key)
    )
