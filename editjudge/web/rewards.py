"""Rewards from judgements: one number for an edit, or none with the reason why; then what its group makes of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from editjudge.edit import Edit
from editjudge.judgement import Judgement, row
from editjudge.judges.probabilities import SPREAD
from editjudge.rubrics.model import Factor, Rubric
from editjudge.rubrics.verdict import Remark
from editjudge.web.queue import QueuedEdit, RequestBatch
from editjudge.web.reduction import Reduction, failure
from editjudge.web.screening import NoEdit

LOW_VARIANCE = 0.01
"""Standard deviation of a group's rewards below which it is flagged: a normalised advantage would be noise. One step of
one factor of `online` moves a reward by more than this."""

_PENDING = Remark("deadline", "not judged in time; it goes on, and asking again finds the answer")


@dataclass(frozen=True)
class RewardRules:
    """How the judgements of a request become rewards."""

    reduction: Reduction
    labels: Mapping[tuple[str, str], str]
    """Rubric and factor to what the factor is called in the answer."""
    factors: Mapping[str, tuple[Rubric, Factor]]
    """By `rubric.factor`."""
    weights: Mapping[str, float]
    """Of the judges."""
    worst: bool = False
    """An output that is no edit has the reward 0."""

    def reward(self, number: int, batch: RequestBatch) -> dict[str, Any]:
        """The reward of the edit with that number in its request."""
        queued = [part.edits[number] for part in batch.parts]
        first = queued[0]
        if first.degenerate and first.degenerate.set_aside:
            rubrics = [work.rubric.name for work in first.works]
            reward = set_aside(first.edit, first.degenerate, rubrics, worst=self.worst)
            return reward | {"stored_as": first.stored_as or None}
        answers = {part.spec: self._answer(one, batch) for part, one in zip(batch.parts, queued, strict=True)}
        return self._mixed(first, answers)

    def _answer(self, one: QueuedEdit, batch: RequestBatch) -> _JudgeAnswer:
        """What one judge said of an edit: the mean of its samples."""
        rows = [judgement_row(one, number, batch) for number in range(len(one.works))]
        failed = failure(one.judgements)
        if failed is None and one.edit.edited is None:
            # A judge of recorded replies looks at no image; what was not produced has no reward all the same.
            failed = "missing_output"
            reason = {"code": failed, "factor": None, "message": "the editing model produced no image"}
            rows = [values | {"reasons": [*values["reasons"], reason]} for values in rows]
        answer = _JudgeAnswer(rows, failed)
        for sample in _samples(rows):
            scores = {
                self.labels[row["rubric"], key]: (self.factors[f"{row['rubric']}.{key}"][1], score)
                for row in sample
                for key, score in (row["scores"] or {}).items()
            }
            answer.rewards.append(None if answer.failed else self.reduction.of(scores))
            answer.scores.append({name: score for name, (_, score) in scores.items()})
            answer.probable.append(self._probable(sample, scores))
        return answer

    def _probable(
        self, sample: Sequence[dict[str, Any]], scores: Mapping[str, tuple[Factor, float]]
    ) -> tuple[float, float] | None:
        """The reward of the expected scores, and its standard deviation as the judge's own probabilities have it; None
        where they do not cover every factor that counts.

        Each factor is moved by its standard deviation both ways while the others stay: exact for a mean of factors
        that are independent of each other, and to first order for the other formulas."""
        expected: dict[str, tuple[Factor, float]] = {}
        spreads: dict[str, float] = {}
        for judged in sample:
            spread = judged["evidence"].get(SPREAD, {})
            for key in judged["expected"].keys() & spread.keys():
                name = self.labels[judged["rubric"], key]
                expected[name], spreads[name] = (scores[name][0], judged["expected"][key]), spread[key]
        counted = self.reduction.weights or scores
        if not expected or any(name not in expected for name in counted):
            return None
        expected = {name: expected[name] for name in counted}
        if (mean := self.reduction.of(expected)) is None:
            return None

        def moved(name: str, change: float) -> float:
            factor, value = expected[name]
            return self.reduction.of(expected | {name: (factor, self._moved(factor, value, change))}) or 0.0

        widths = (moved(name, spread) - moved(name, -spread) for name, spread in spreads.items() if name in expected)
        return mean, math.sqrt(math.fsum(width**2 / 4 for width in widths))

    def _moved(self, factor: Factor, score: float, change: float) -> float:
        """A mean takes any score; of the other formulas, a power has none for what is below the worst."""
        moved = score + change
        low, high = factor.scale.low, factor.scale.high
        if self.reduction.formula == "mean" or low is None or high is None:
            return moved
        return min(high, max(low, moved))

    def _mixed(self, one: QueuedEdit, answers: Mapping[str, _JudgeAnswer]) -> dict[str, Any]:
        numbers = [answer.reward for answer in answers.values()]
        failed = next((answer.failed for answer in answers.values() if answer.failed), None)
        total = math.fsum(self.weights[spec] for spec in answers)
        shares = [self.weights[spec] / total for spec in answers]
        known = [number for number in numbers if number is not None]
        number = math.fsum(w * x for w, x in zip(shares, known, strict=True)) if len(known) == len(numbers) else None
        several = len(answers) > 1
        rows = [(f"@{spec}" if several else "", row) for spec, answer in answers.items() for row in answer.rows]
        first: dict[str, int] = {}
        for at, values in rows:
            first.setdefault(f"{values['rubric']}{at}", values["repeat"])
        flags = flagged(one.degenerate, [work.rubric.name for work in one.works])
        answer = blank_reward(one.edit) | {
            "status": failed or "abstained",
            "abstained": {
                f"{self.labels[r['rubric'], key]}{at}": why for at, r in rows for key, why in r["abstained"].items()
            },
            "reasons": [*flags, *({"rubric": row["rubric"], **why} for _, row in rows for why in row["reasons"])],
            "keys": {_key_name(row, at, first): row["key"] for at, row in rows if row["key"]},
            "cached": all(row["cached"] for _, row in rows),
        }
        if number is not None:
            scores = {
                f"{name}{f'@{spec}' if several else ''}": score
                for spec, answer in answers.items()
                for name, score in answer.mean_scores().items()
            }
            uncertainty = _uncertainty(shares, list(answers.values()))
            answer |= {"reward": number, "status": "ok", "scores": scores, "uncertainty": uncertainty}
        return answer | {"stored_as": one.stored_as or None}


def blank_reward(edit: Edit) -> dict[str, Any]:
    """All fields of a reward, with no number yet."""
    number: dict[str, Any] = {"reward": None, "status": "abstained", "scores": None, "uncertainty": None}
    about = {"abstained": {}, "reasons": [], "keys": {}, "cached": False, "stored_as": None, "group": None}
    return {"id": edit.id, **number, **about}


def not_taken(edit: Edit, status: str, message: str) -> dict[str, Any]:
    """The reward of an edit that could not be taken as it was sent: nobody was asked, and nothing is kept."""
    reason = {"rubric": "-", "code": "not_taken", "factor": None, "message": message}
    return blank_reward(edit) | {"status": status, "reasons": [reason]}


def set_aside(edit: Edit, output: NoEdit, rubrics: Iterable[str], *, worst: bool) -> dict[str, Any]:
    """The reward of an output that is no edit: nobody was asked, so that there are no scores."""
    reward = blank_reward(edit) | {"status": output.status, "reasons": flagged(output, rubrics)}
    if worst and output.status == "abstained":
        reward |= {"reward": 0.0, "status": "ok", "scores": {}}
    return reward


@dataclass
class _JudgeAnswer:
    rows: list[dict[str, Any]]
    failed: str | None
    rewards: list[float | None] = field(default_factory=list)
    """One for each sample."""
    scores: list[dict[str, float]] = field(default_factory=list)
    probable: list[tuple[float, float] | None] = field(default_factory=list)
    """Mean and standard deviation of the reward by the probabilities that the judge gave to scores."""

    @property
    def reward(self) -> float | None:
        """One sample without a number leaves none: the mean of the others would be another quantity."""
        known = [reward for reward in self.rewards if reward is not None]
        return math.fsum(known) / len(known) if known and len(known) == len(self.rewards) else None

    def mean_scores(self) -> dict[str, float]:
        if len(self.scores) == 1:
            return self.scores[0]  # integers stay integers
        names = dict.fromkeys(name for sample in self.scores for name in sample)
        return {name: statistics.fmean(s[name] for s in self.scores if name in s) for name in names}


def judgement_row(one: QueuedEdit, number: int, batch: RequestBatch) -> dict[str, Any]:
    """A judgement as programs read it; `pending` where there is none yet."""
    work, edit = one.works[number], one.edit
    judgement: Judgement | None = one.judgements[number]
    answered = judgement or work.judgement("unreachable", reasons=(_PENDING,))
    values = row(answered, edit.id, edit.model, one.item.group, work.task.variant)
    values["key"] = answered.key or None
    # An answer that was there before it was asked for: from the store.
    return values | ({"cached": answered.created < batch.started} if judgement else {"status": "pending"})


def _samples(rows: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The first answers of all rubrics, the second ones, and so on."""
    by_rubric: dict[str, list[dict[str, Any]]] = {}
    for one in rows:
        by_rubric.setdefault(one["rubric"], []).append(one)
    return [list(sample) for sample in zip(*by_rubric.values(), strict=True)]


def _key_name(row: Mapping[str, Any], at: str, first: Mapping[str, int]) -> str:
    """The rubric, and of further samples their number, and of several judges whose it is."""
    name = f"{row['rubric']}{at}"
    return name if row["repeat"] == first[name] else f"{row['rubric']}#{row['repeat']}{at}"


def _uncertainty(shares: Sequence[float], answers: Sequence[_JudgeAnswer]) -> dict[str, Any] | None:
    """The standard error of the reward, as far as the judge's own samples show it, or else its probabilities of the
    scores; None where there is neither."""
    samples = min(len(answer.rewards) for answer in answers)
    probable = [one for answer in answers for one in answer.probable[:1] if one is not None]
    if samples >= 2:
        source = "samples"
        known = [[reward for reward in answer.rewards if reward is not None] for answer in answers]
        variances = [statistics.variance(rewards) / len(rewards) for rewards in known]
    elif len(probable) == len(answers):
        source, variances = "logprobs", [deviation**2 for _, deviation in probable]
    else:
        return None
    error = math.sqrt(math.fsum(share**2 * variance for share, variance in zip(shares, variances, strict=True)))
    uncertainty = {"source": source, "samples": samples, "standard_error": error}
    if source == "logprobs":
        uncertainty["expected"] = math.fsum(share * mean for share, (mean, _) in zip(shares, probable, strict=True))
    return uncertainty


def flagged(output: NoEdit | None, rubrics: Iterable[str]) -> list[dict[str, Any]]:
    """What is wrong with the output itself, as a reason of every rubric."""
    if output is None:
        return []
    effect = "no edit" if output.set_aside else "flagged"
    reason = {"code": output.kind, "factor": None, "message": f"{effect}: the output {output.words}"}
    return [{"rubric": name, **reason} for name in dict.fromkeys(rubrics)]


# --- groups ---------------------------------------------------------------------------------------------------


def compare_groups(groups: Sequence[str | None], rewards: Sequence[dict[str, Any]], *, ranked: bool) -> None:
    """Note in each reward where it stands in its group; `ranked` puts the rank, 0 to 1, in the place of the reward."""
    members: dict[str, list[dict[str, Any]]] = {}
    for name, reward in zip(groups, rewards, strict=True):
        if name is not None:
            members.setdefault(name, []).append(reward)
    for name, group in members.items():
        numbers = [reward["reward"] for reward in group if reward["reward"] is not None]
        spread = statistics.stdev(numbers) if len(numbers) > 1 else None
        for reward in group:
            number = reward["reward"]
            reward["group"] = {
                "name": name,
                "size": len(group),
                "scored": len(numbers),
                "reward": number,
                # 1 is the best; equal ones share the mean of their ranks.
                "rank": None if number is None else sum(n > number for n in numbers) + (numbers.count(number) + 1) / 2,
                "mean": statistics.fmean(numbers) if numbers else None,
                "standard_deviation": spread,
                "low_variance": spread is not None and spread < LOW_VARIANCE,
            }
        if ranked:
            for reward in group:
                _put_rank(reward)


def _put_rank(reward: dict[str, Any]) -> None:
    group = reward["group"]
    if group["rank"] is None:
        return
    if group["scored"] > 1:
        reward["reward"] = (group["scored"] - group["rank"]) / (group["scored"] - 1)
        reward["uncertainty"] = None  # that of the scores is not that of the rank
        return
    rubric = next(iter(reward["keys"]), "-").partition("@")[0]
    message = f"no other edit of the group {group['name']} has a reward, so that there is no rank"
    reasons = [*reward["reasons"], alone(rubric, message)]
    reward.update(reward=None, status="abstained", scores=None, uncertainty=None, reasons=reasons)


def alone(rubric: str, message: str) -> dict[str, Any]:
    return {"rubric": rubric, "code": "alone_in_group", "factor": None, "message": message}
