"""Pass, fail, or not enough evidence: thresholds that only a difference beyond noise can break."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from editjudge.errors import UsageError, near_miss

from .answer import Answer, Interval
from .bootstrap import DRAWS, interval, mean_draws
from .columns import ABSTAINED, Column, Floats, Scores
from .compare import On, paired

Outcome = Literal["pass", "fail", "not enough evidence"]
FAIL: Outcome = "fail"
UNSURE: Outcome = "not enough evidence"
MET: Outcome = "pass"
MOST_TIMES = 100
"""A mean that so many times as many images would not tell from its limit lies on it, for all that can be known."""


@dataclass(frozen=True)
class Check(Answer):
    """One threshold."""

    factor: str
    rule: str
    outcome: Outcome
    estimate: float | None
    ci: Interval | None
    """At the level of the whole gate, shared out among its checks."""
    n: int
    groups: int
    failed: int
    """Judgements without a score because they failed: not in the estimate."""
    needed: int | None
    """About how many source images would decide, if the mean stayed; None where it is decided, or none would."""
    reason: str


@dataclass(frozen=True)
class Gate(Answer):
    outcome: Outcome
    """Fail where any check fails, else not enough evidence where any lacks it, else pass."""
    alpha: float
    """The promised chance that a run which exactly meets every threshold fails."""
    checks: tuple[Check, ...]
    """The worst first."""
    left_out: tuple[str, ...]
    """Factors that are not held against the baseline: no edit has a score on both sides, and none failed."""


def gate(
    scores: Scores,
    minimum: Mapping[str, float] | None = None,
    *,
    baseline: Scores | None = None,
    max_drop: float | Mapping[str, float] = 0.0,
    on: On = "item",
    scales: Mapping[str, Sequence[float]] | None = None,
    alpha: float = 0.05,
    draws: int = DRAWS,
) -> Gate:
    """Each factor's mean against `minimum`; with a baseline, its drop on the same edits against `max_drop`.

    A check fails only when its interval lies wholly on the wrong side, and passes only when it lies wholly on
    the right one. `alpha` is one-sided and split evenly over the checks, so it holds for the gate as a whole.
    """
    known = scores.factor.present()
    found = [_minimum(scores, f, least, known, (scales or {}).get(f)) for f, least in (minimum or {}).items()]
    drops: list[_Sample] = []
    if baseline is not None:
        allowed = max_drop if isinstance(max_drop, Mapping) else dict.fromkeys(known, max_drop)
        common = [f for f in known if f in baseline.factor.present() and f in allowed]
        drops = [_drop(scores, baseline, f, allowed[f], on, (scales or {}).get(f)) for f in common]
    # Silence for lack of anything to say is left out; silence because the judging failed is not.
    # And a baseline that nothing can be held against is a mistake, not a pass.
    held = [one for one in drops if len(one.values) or one.failed] or drops
    wanted = found + held
    if not wanted:
        raise UsageError("a gate needs a minimum for some factor, or a baseline that shares factors with the run")
    level = 1 - 2 * alpha / len(wanted)
    # At least 25 draws beyond each limit, or the limit itself is noise.
    draws = max(draws, math.ceil(25 * len(wanted) / alpha))
    checks = [_check(one, level=level, draws=draws) for one in wanted]
    checks.sort(key=lambda check: (FAIL, UNSURE, MET).index(check.outcome))
    return Gate(checks[0].outcome, alpha, tuple(checks), tuple(one.factor for one in drops if one not in held))


@dataclass(frozen=True, eq=False)
class _Sample:
    """What one threshold is held against: scores, or differences from the baseline."""

    factor: str
    rule: str
    limit: float
    values: Floats
    group: Column
    failed: int
    scale: Sequence[float] | None


def _minimum(scores: Scores, factor: str, least: float, known: Sequence[str], scale: Sequence[float] | None) -> _Sample:
    if factor not in known:
        raise UsageError(f"no factor {factor!r} in the run{near_miss(factor, known)}")
    if scale and not min(scale) <= least <= max(scale):
        raise UsageError(f"{factor} >= {least:g}: its scale goes from {min(scale):g} to {max(scale):g}")
    part = scores.where(factor=factor)
    ok = part.take(part.ok)
    return _Sample(factor, f"{factor} >= {least:g}", least, ok.score, ok.group.compact(), _failed(part), scale)


def _drop(scores: Scores, baseline: Scores, factor: str, most: float, on: On, scale: Sequence[float] | None) -> _Sample:
    part = scores.where(factor=factor)
    before, now, group, *_ = paired(baseline.where(factor=factor), part, on)
    span = [min(scale) - max(scale), max(scale) - min(scale)] if scale else None
    return _Sample(factor, f"{factor} drops by at most {most:g}", -most, now - before, group, _failed(part), span)


def _failed(part: Scores) -> int:
    return len(part) - int(np.sum(part.ok | part.having(ABSTAINED)))


def _check(one: _Sample, *, level: float, draws: int) -> Check:
    values, limit, n, groups = one.values, one.limit, len(one.values), len(one.group.labels)
    ci = _limits(values, one.group, one.scale, level=level, draws=draws)
    mean = float(values.mean()) if n else None
    outcome = UNSURE if ci is None else FAIL if ci.hi < limit else MET if ci.lo >= limit else UNSURE
    needed = _needed(one, ci) if ci and outcome == UNSURE else None
    reason = _reason(outcome, mean, ci, limit, n, groups, one.failed, needed)
    return Check(one.factor, one.rule, outcome, mean, ci, n, groups, one.failed, needed, reason)


def _needed(one: _Sample, ci: Interval) -> int | None:
    """An interval shrinks with the root of the number of images; one of equal scores as `_constant_limits` has it."""
    mean = float(one.values.mean())
    gap = abs(mean - one.limit)
    reach = ci.hi - mean if mean < one.limit else mean - ci.lo
    if gap < 1e-12:
        return None
    times = (reach / gap) ** 2
    if one.scale and np.ptp(one.values) < 1e-12:
        room = max(one.scale) - mean if mean < one.limit else mean - min(one.scale)
        times = math.log1p(-reach / room) / math.log1p(-gap / room)
    return math.ceil(len(one.group.labels) * times) if times <= MOST_TIMES else None


def _limits(
    values: Floats, group: Column, scale: Sequence[float] | None, *, level: float, draws: int
) -> Interval | None:
    groups = len(group.labels)
    if groups < 2:
        return None
    if np.ptp(values) < 1e-12:
        return _constant_limits(float(values[0]), groups, scale, level)
    cells = np.zeros(len(values), np.int64)
    drawn = mean_draws(values, cells, 1, group.codes, groups, draws=draws)[:, 0]
    return interval(drawn, groups, level)


def _constant_limits(value: float, groups: int, scale: Sequence[float] | None, level: float) -> Interval | None:
    """All scores equal: drawing again shows no spread, but a share of other scores may have gone unseen.

    That share is at most 1 - p**(1/G) with confidence 1 - p; in the worst case it sits at the end of the scale.
    Without a scale nothing bounds it, and there is no evidence either way.
    """
    if not scale:
        return None
    unseen = 1 - ((1 - level) / 2) ** (1 / groups)
    return Interval(value - unseen * (value - min(scale)), value + unseen * (max(scale) - value))


def _reason(
    outcome: Outcome,
    mean: float | None,
    ci: Interval | None,
    limit: float,
    /,
    n: int,
    groups: int,
    failed: int,
    needed: int | None,
) -> str:
    lost = f"; {failed} failed judgements are not in it" if failed else ""
    if mean is None:
        return f"no scores to decide on{lost}"
    if ci is None:
        why = "one source image" if groups < 2 else "all scores are equal and the scale is not given"
        return f"{mean:.3f} over {n} scores, but {why}: no interval{lost}"
    more = f"about {needed:,} source images would decide" if needed else "it is too near for any number to decide"
    where = {
        FAIL: f"wholly below {limit:g}",
        MET: f"wholly at or above {limit:g}",
        UNSURE: f"which holds {limit:g}: {more}",
    }
    return f"{mean:.3f} over {n} scores, interval [{ci.lo:.3f}, {ci.hi:.3f}], {where[outcome]}{lost}"
