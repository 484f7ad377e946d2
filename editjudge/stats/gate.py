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
    reason: str


@dataclass(frozen=True)
class Gate(Answer):
    outcome: Outcome
    """Fail where any check fails, else not enough evidence where any lacks it, else pass."""
    alpha: float
    """The promised chance that a run which exactly meets every threshold fails."""
    checks: tuple[Check, ...]
    """The worst first."""


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
    for factor in minimum or {}:
        if factor not in known:
            raise UsageError(f"no factor {factor!r} in the run{near_miss(factor, known)}")
    wanted: list[tuple[str, float, Scores | None]] = [(f, v, None) for f, v in (minimum or {}).items()]
    if baseline is not None:
        common = [f for f in known if f in baseline.factor.present()]
        wanted += [(f, max_drop[f] if isinstance(max_drop, Mapping) else max_drop, baseline)
                   for f in common if not isinstance(max_drop, Mapping) or f in max_drop]  # fmt: skip
    if not wanted:
        raise UsageError("a gate needs a minimum for some factor, or a baseline that shares factors with the run")
    level = 1 - 2 * alpha / len(wanted)
    # At least 25 draws beyond each limit, or the limit itself is noise.
    draws = max(draws, math.ceil(25 * len(wanted) / alpha))
    checks = [
        _check(scores.where(factor=f), base, f, limit, on, (scales or {}).get(f), level=level, draws=draws)
        for f, limit, base in wanted
    ]
    checks.sort(key=lambda check: (FAIL, UNSURE, MET).index(check.outcome))
    return Gate(checks[0].outcome, alpha, tuple(checks))


def _check(
    part: Scores,
    baseline: Scores | None,
    factor: str,
    limit: float,
    on: On,
    /,
    scale: Sequence[float] | None,
    *,
    level: float,
    draws: int,
) -> Check:
    failed = len(part) - int(np.sum(part.ok | part.having(ABSTAINED)))
    if baseline is None:
        ok = part.take(part.ok)
        values, group = ok.score, ok.group.compact()
        rule, span = f"{factor} >= {limit:g}", scale
    else:
        before, now, group, *_ = paired(baseline.where(factor=factor), part, on)
        values, rule = now - before, f"{factor} drops by at most {limit:g}"
        limit, span = -limit, [min(scale) - max(scale), max(scale) - min(scale)] if scale else None
    n, groups = len(values), len(group.labels)
    ci = _limits(values, group, span, level=level, draws=draws)
    mean = float(values.mean()) if n else None
    outcome = UNSURE if ci is None else FAIL if ci.hi < limit else MET if ci.lo >= limit else UNSURE
    return Check(
        factor, rule, outcome, mean, ci, n, groups, failed, _reason(outcome, mean, ci, limit, n, groups, failed)
    )


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
    outcome: Outcome, mean: float | None, ci: Interval | None, limit: float, /, n: int, groups: int, failed: int
) -> str:
    lost = f"; {failed} failed judgements are not in it" if failed else ""
    if mean is None:
        return f"no scores to decide on{lost}"
    if ci is None:
        why = "one source image" if groups < 2 else "all scores are equal and the scale is not given"
        return f"{mean:.3f} over {n} scores, but {why}: no interval{lost}"
    where = {
        FAIL: f"wholly below {limit:g}",
        MET: f"wholly at or above {limit:g}",
        UNSURE: f"which holds {limit:g}: more edits would tell",
    }
    return f"{mean:.3f} over {n} scores, interval [{ci.lo:.3f}, {ci.hi:.3f}], {where[outcome]}{lost}"
