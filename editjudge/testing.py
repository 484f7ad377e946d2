"""For test suites: an assertion about an edit that noise alone does not fail."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Mapping
from typing import Any

from editjudge.api import default_judge
from editjudge.api import judge as judge_one
from editjudge.errors import UsageError
from editjudge.judges.registry import is_local


def assert_edit(*, at_least: Mapping[str, float], most: int = 5, **edit: Any) -> None:
    """Fail where the evidence says that a factor is below what it should be at least.

    `edit` is what `editjudge.judge` takes. A judge that answers differently each time is asked again, up to `most`
    times, until the interval of each factor's mean lies on one side of its threshold; where it never does, that is a
    warning and not a failure. An edit that could not be judged, or a factor that was abstained from, fails: what was
    not seen did not pass.

        assert_edit(input="a.png", edited="b.png", instruction="make the car blue", at_least={"unchanged_regions": 6})
    """
    once = is_local(edit.get("judge") or default_judge())
    seen: dict[str, list[float]] = {factor: [] for factor in at_least}
    for asked in range(1, (1 if once else most) + 1):
        _ask(edit, seen)
        if once or (asked >= 2 and all(_side(seen[f], least) for f, least in at_least.items())):
            break
    low = {f: least for f, least in at_least.items() if statistics.fmean(seen[f]) < least}
    worse = [f"{f}: {_said(seen[f])}, wanted at least {least:g}" for f, least in low.items() if _side(seen[f], least)]
    assert not worse, "; ".join(worse)  # noqa: S101  (an assertion is what is asked for)
    for factor, least in low.items():
        told = f"{factor}: {_said(seen[factor])}; whether that is below {least:g} cannot be told from so few answers"
        warnings.warn(told, stacklevel=2)


def _ask(edit: Mapping[str, Any], seen: Mapping[str, list[float]]) -> None:
    found = judge_one(**edit)
    scores = {factor: score for j in found.values() for factor, score in (j.scores or {}).items()}
    why = {factor: f"abstained: {reason}" for j in found.values() for factor, reason in j.abstained.items()}
    failed = [f"{name}: {j.status}" for name, j in found.items() if j.status not in ("ok", "abstained")]
    for factor, scored in seen.items():
        if factor in scores:
            scored.append(scores[factor])
            continue
        if factor not in why and not failed:
            raise UsageError(f'no factor is called "{factor}"; those judged are {", ".join([*scores, *why])}')
        raise AssertionError(f"{factor} has no score ({why.get(factor) or ', '.join(failed)})")


def _side(scores: list[float], least: float) -> bool:
    """Whether the interval of the mean lies on one side of the threshold."""
    mean, half = statistics.fmean(scores), _half(scores)
    return mean - half >= least or mean + half < least


def _half(scores: list[float]) -> float:
    """Half of the 95 % interval by Student's t. Equal answers of an integer scale still hide half a step."""
    if len(scores) == 1:
        return 0.0
    from scipy.stats import t

    error: float = max(statistics.stdev(scores), 0.5 if len(scores) < 3 else 0.0) / len(scores) ** 0.5
    return float(t.ppf(0.975, len(scores) - 1)) * error


def _said(scores: list[float]) -> str:
    return f"{scores[0]}" if len(scores) == 1 else f"mean {statistics.fmean(scores):.2f} of {len(scores)} answers"
