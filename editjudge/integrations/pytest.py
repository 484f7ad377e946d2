"""An assertion about an edit for test suites, designed not to fail because of noise alone."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from editjudge.api import judge
from editjudge.errors import UsageError
from editjudge.judgement import DONE
from editjudge.judges.judge import is_local
from editjudge.plugins import default_judge
from editjudge.rubrics.files import resolve

Ends = tuple[float, float] | None
"""Lowest and highest score on a scale; None for an open end."""


def assert_edit(*, at_least: Mapping[str, float], most: int = 5, **edit: Any) -> None:
    """Fail if there is evidence that a factor is below its threshold.

    `edit` holds the arguments of `editjudge.judge`. If the judge's answers vary, it is asked up to `most` times. Asking
    stops early once every factor is decided: either the 95 % interval of its mean is below the threshold, or three
    answers reach the threshold. If a mean is below the threshold but its interval contains the threshold, this is a
    warning and not a failure. The assertion also fails if the edit could not be judged, or if the judge abstained from
    a factor.

        assert_edit(input="a.png", edited="b.png", instruction="make the car blue", at_least={"unchanged_regions": 6})
    """
    rubrics = edit.get("rubrics", "online")
    ends: dict[str, tuple[float, float]] = {}
    for rubric in resolve([rubrics] if isinstance(rubrics, str) else rubrics):
        for scored in rubric.factors:
            low = scored.scale.low
            high = scored.scale.high
            if low is not None and high is not None:
                ends[scored.key] = low, high
    is_repeatable = is_local(edit.get("judge") or default_judge())
    answers: dict[str, list[float]] = {factor: [] for factor in at_least}
    for _ in range(1 if is_repeatable else most):
        scores = _ask(edit, at_least)
        for factor in at_least:
            answers[factor].append(scores[factor])
        if all(_settled(answers[f], at_least[f], ends.get(f)) for f in at_least):
            break
    worse: list[str] = []
    doubtful: list[str] = []
    for factor, least in at_least.items():
        values = answers[factor]
        mean = statistics.fmean(values)
        result = f"{factor}: mean {mean:.2f} of {len(values)} answers"
        if len(values) == 1:
            result = f"{factor}: {values[0]}"
        if _is_below(values, least, ends.get(factor)):
            worse.append(f"{result}, expected at least {least:g}")
        elif mean < least:
            doubt = f"too few answers to decide whether that is below {least:g}"
            doubtful.append(f"{result}; {doubt}")
    assert not worse, "; ".join(worse)  # noqa: S101  (the purpose of this function)
    for message in doubtful:
        warnings.warn(message, stacklevel=2)


def _ask(edit: Mapping[str, Any], factors: Iterable[str]) -> dict[str, float]:
    """Judge the edit once and return its scores. Raise `AssertionError` if any of these factors has no score."""
    scores: dict[str, float] = {}
    reasons: dict[str, str] = {}
    failed: list[str] = []
    for name, judgement in judge(**edit).items():
        scores |= judgement.scores or {}
        for factor, reason in judgement.abstained.items():
            reasons[factor] = f"abstained: {reason}"
        if judgement.status not in DONE:
            failed.append(f"{name}: {judgement.status}")
    for factor in factors:
        if factor in scores:
            continue
        if factor not in reasons and not failed:
            raise UsageError(
                f'there is no factor "{factor}": expected one of {", ".join([*scores, *reasons])}',
                code="unknown_factor",
            )
        reason = reasons.get(factor) or ", ".join(failed)
        raise AssertionError(f"{factor} has no score ({reason})")
    return scores


def _settled(scores: Sequence[float], least: float, ends: Ends) -> bool:
    if len(scores) >= 3 and min(scores) >= least:
        return True
    return len(scores) >= 2 and _is_below(scores, least, ends)


def _is_below(scores: Sequence[float], least: float, ends: Ends) -> bool:
    """Whether the interval of the mean is below the threshold.

    The interval is the one with guaranteed coverage, since a few equal answers do not show how much the judge varies.
    """
    if len(scores) == 1:
        return scores[0] < least
    import numpy as np

    from editjudge.stats.inference import mean_interval

    values = np.array(scores, dtype=float)
    clusters = np.arange(len(scores))
    ci = mean_interval(values, clusters, ends, guaranteed=True).ci
    return ci is not None and ci.hi < least
