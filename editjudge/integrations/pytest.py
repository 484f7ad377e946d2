"""For test suites: an assertion about an edit that noise alone does not fail."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Mapping
from typing import Any

from editjudge.api import default_judge
from editjudge.api import judge as judge_one
from editjudge.errors import UsageError
from editjudge.judges.judge import is_local
from editjudge.rubrics.files import resolve
from editjudge.rubrics.scale import Scale


def assert_edit(*, at_least: Mapping[str, float], most: int = 5, **edit: Any) -> None:
    """Fail where the evidence says that a factor is below what it should be at least.

    `edit` is what `editjudge.judge` takes. A judge that answers differently each time is asked again, up to `most`
    times, until the 95 % interval of each factor's mean lies below its threshold, or three answers reach it. A mean
    below the threshold whose interval holds it is a warning and not a failure. An edit that could not be judged, or a
    factor that was abstained from, fails: what was not seen did not pass.

        assert_edit(input="a.png", edited="b.png", instruction="make the car blue", at_least={"unchanged_regions": 6})
    """
    once = is_local(edit.get("judge") or default_judge())
    answers: dict[str, list[float]] = {factor: [] for factor in at_least}
    rubrics = edit.get("rubrics", "online")
    asked_for = resolve([rubrics] if isinstance(rubrics, str) else rubrics)
    ends = {f.key: _ends(f.scale) for rubric in asked_for for f in rubric.factors}
    for _ in range(1 if once else most):
        _ask(edit, answers)
        if once or all(
            _settled(answers[f], least, ends.get(f)) for f, least in at_least.items()
        ):
            break
    low = {
        f: least
        for f, least in at_least.items()
        if statistics.fmean(answers[f]) < least
    }
    worse = [
        f"{f}: {_words(answers[f])}, wanted at least {least:g}"
        for f, least in low.items()
        if _below(answers[f], least, ends.get(f))
    ]
    assert not worse, "; ".join(worse)  # noqa: S101  (an assertion is what is asked for)
    for factor, least in low.items():
        doubt = f"whether that is below {least:g} cannot be told from so few answers"
        warnings.warn(f"{factor}: {_words(answers[factor])}; {doubt}", stacklevel=2)


def _ask(edit: Mapping[str, Any], answers: Mapping[str, list[float]]) -> None:
    judgements = judge_one(**edit)
    scores = {
        factor: score
        for j in judgements.values()
        for factor, score in (j.scores or {}).items()
    }
    why = {
        factor: f"abstained: {reason}"
        for j in judgements.values()
        for factor, reason in j.abstained.items()
    }
    failed = [
        f"{name}: {j.status}"
        for name, j in judgements.items()
        if j.status not in ("ok", "abstained")
    ]
    for factor, given in answers.items():
        if factor in scores:
            given.append(scores[factor])
            continue
        if factor not in why and not failed:
            raise UsageError(
                f'no factor is called "{factor}"; those judged are {", ".join([*scores, *why])}'
            )
        raise AssertionError(
            f"{factor} has no score ({why.get(factor) or ', '.join(failed)})"
        )


def _ends(scale: Scale) -> tuple[float, float] | None:
    return None if scale.low is None or scale.high is None else (scale.low, scale.high)


def _settled(
    scores: list[float], least: float, ends: tuple[float, float] | None
) -> bool:
    return (len(scores) >= 3 and min(scores) >= least) or (
        len(scores) >= 2 and _below(scores, least, ends)
    )


def _below(scores: list[float], least: float, ends: tuple[float, float] | None) -> bool:
    """Whether the interval of the mean lies below the threshold.

    The bound is the guaranteed one, since a few answers that agree hide what the judge says at other times.
    """
    if len(scores) == 1:
        return scores[0] < least
    import numpy as np

    from editjudge.stats.inference import mean_interval

    ci = mean_interval(
        np.array(scores, dtype=float), np.arange(len(scores)), ends, guaranteed=True
    ).ci
    return ci is not None and ci.hi < least


def _words(scores: list[float]) -> str:
    return (
        f"{scores[0]}"
        if len(scores) == 1
        else f"mean {statistics.fmean(scores):.2f} of {len(scores)} answers"
    )
