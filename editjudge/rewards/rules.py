"""Rewards from judgements: one number for an edit, or none with the reason why; then what its group makes of it."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

from editjudge.edit import Edit
from editjudge.judgement import Judgement, row
from editjudge.judges.probabilities import SPREAD
from editjudge.orders import ORDERS, Decision, decide, majority
from editjudge.rewards.protocol import (
    Comparisons,
    RewardedEdit,
    RewardGroup,
    RewardReason,
    Uncertainty,
)
from editjudge.rewards.queue import PREFERENCE, InspectedEdit, QueuedEdit, RequestBatch
from editjudge.rewards.reduction import Reduction, failure
from editjudge.rewards.requests import Refused
from editjudge.rewards.screening import NoEdit
from editjudge.rubrics.model import Factor, Rubric
from editjudge.rubrics.verdict import Remark

LOW_VARIANCE = 0.01
"""Standard deviation of a group's rewards below which it is flagged: a normalised advantage would be noise. One step of
one factor of `online` moves a reward by more than this."""

_PENDING = Remark(
    "deadline", "not judged in time; it goes on, and asking again finds the answer"
)
_MISSING = Remark("missing_output", "the editing model produced no image")


class QueuedAnswer(NamedTuple):
    """A question about an edit, and what has come of it so far."""

    judgement: Judgement
    """`unreachable` while it is pending."""
    variant: str
    pending: bool
    cached: bool
    """The answer was in the store before it was asked for."""

    def row(self, queued: QueuedEdit) -> dict[str, Any]:
        """Return the judgement as programs read it."""
        edit = queued.edit
        values = row(
            self.judgement, edit.id, edit.model, queued.item.group, self.variant
        )
        values["key"] = self.judgement.key or None
        values["cached"] = self.cached
        return values | ({"status": "pending"} if self.pending else {})

    def reasons(self) -> Iterator[RewardReason]:
        for remark in self.judgement.reasons:
            yield reason(self.judgement.rubric, remark)


def replies(queued: QueuedEdit, batch: RequestBatch) -> list[QueuedAnswer]:
    """Return what became of each question about an edit."""
    answers = []
    for work, judgement in zip(queued.works, queued.judgements, strict=True):
        pending = judgement is None
        answer = judgement or work.judgement("unreachable", reasons=(_PENDING,))
        cached = not pending and answer.created < batch.started
        answers.append(QueuedAnswer(answer, work.task.variant, pending, cached))
    return answers


def reason(rubric: str, remark: Remark) -> RewardReason:
    return RewardReason(
        rubric=rubric, code=remark.code, factor=remark.factor, message=remark.message
    )


class _RewardSample(NamedTuple):
    """One answer of a judge to every rubric."""

    reward: float | None
    scores: Mapping[str, float]
    probable: tuple[float, float] | None
    """Mean and standard deviation of the reward by the probabilities that the judge gave to scores."""


@dataclass(frozen=True)
class _JudgeAnswer:
    """Everything that one judge said of an edit."""

    replies: Sequence[QueuedAnswer]
    failed: str | None
    samples: Sequence[_RewardSample]

    @property
    def rewards(self) -> list[float]:
        """Rewards of the samples; none at all if one is missing, since the mean of the others is another quantity."""
        rewards = [s.reward for s in self.samples if s.reward is not None]
        return rewards if len(rewards) == len(self.samples) else []

    def mean_scores(self) -> Mapping[str, float]:
        if len(self.samples) == 1:
            return self.samples[0].scores  # integers stay integers
        values: dict[str, list[float]] = {}
        for sample in self.samples:
            for name, score in sample.scores.items():
                values.setdefault(name, []).append(score)
        return {name: statistics.fmean(scores) for name, scores in values.items()}


@dataclass(frozen=True)
class RewardRules:
    """How the judgements of a request become rewards."""

    reduction: Reduction
    labels: Mapping[tuple[str, str], str]
    """Rubric and factor to the factor's name in the answer."""
    factors: Mapping[str, tuple[Rubric, Factor]]
    """Factors by `rubric.factor`."""
    weights: Mapping[str, float]
    """Weights of the judges."""
    worst: bool = False
    """A degenerate output has the reward 0."""

    def reward(self, number: int, batch: RequestBatch) -> RewardedEdit:
        """Return the reward of the edit with that number in its request."""
        queued = [part.edits[number] for part in batch.parts]
        first = queued[0]
        if first.degenerate and first.degenerate.set_aside:
            rubrics = [work.rubric.name for work in first.works]
            return set_aside(
                first.edit.id,
                first.degenerate,
                rubrics,
                worst=self.worst,
                stored_as=first.stored_as or None,
            )
        answers = {
            part.spec: self._answer(edit, batch)
            for part, edit in zip(batch.parts, queued, strict=True)
        }
        return self._mixed(first, answers)

    def _answer(self, queued: QueuedEdit, batch: RequestBatch) -> _JudgeAnswer:
        """Return what one judge said of an edit."""
        answers = replies(queued, batch)
        failed = failure(queued.judgements)
        if failed is None and queued.edit.edited is None:
            # A judge of recorded replies looks at no image; an output that is missing has no reward all the same.
            failed = _MISSING.code
            answers = [_with_reason(reply, _MISSING) for reply in answers]
        by_rubric: dict[str, list[Judgement]] = {}
        for reply in answers:
            judgement = reply.judgement
            by_rubric.setdefault(judgement.rubric, []).append(judgement)
        samples = zip(*by_rubric.values(), strict=True)
        return _JudgeAnswer(
            answers, failed, [self._sample(sample, failed) for sample in samples]
        )

    def _sample(
        self, judgements: Sequence[Judgement], failed: str | None
    ) -> _RewardSample:
        scores: dict[str, tuple[Factor, float]] = {}
        for judgement in judgements:
            for key, score in (judgement.scores or {}).items():
                _, factor = self.factors[f"{judgement.rubric}.{key}"]
                scores[self.labels[judgement.rubric, key]] = factor, score
        return _RewardSample(
            None if failed else self.reduction.of(scores),
            {name: score for name, (_, score) in scores.items()},
            self._probable(judgements, scores),
        )

    def _probable(
        self,
        judgements: Sequence[Judgement],
        scores: Mapping[str, tuple[Factor, float]],
    ) -> tuple[float, float] | None:
        """Return the reward of the expected scores, and its standard deviation by the judge's own probabilities; None
        unless they cover every factor that counts.

        Each factor is moved by its standard deviation both ways while the others stay: exact for a mean of factors
        that are independent of each other, and to first order for the other formulas."""
        expected: dict[str, tuple[Factor, float]] = {}
        spreads: dict[str, float] = {}
        for judgement in judgements:
            spread = judgement.evidence.get(SPREAD, {})
            for key in judgement.expected.keys() & spread.keys():
                name = self.labels[judgement.rubric, key]
                expected[name] = scores[name][0], judgement.expected[key]
                spreads[name] = spread[key]
        counted = self.reduction.weights or scores
        if not expected or not counted.keys() <= expected.keys():
            return None
        expected = {name: expected[name] for name in counted}
        mean = self.reduction.of(expected)
        if mean is None:
            return None

        def moved(name: str, change: float) -> float:
            factor, score = expected[name]
            score = self._moved(factor, score, change)
            return self.reduction.of(expected | {name: (factor, score)}) or 0.0

        widths = (
            moved(name, spreads[name]) - moved(name, -spreads[name])
            for name in spreads
            if name in expected
        )
        return mean, math.sqrt(math.fsum(width**2 / 4 for width in widths))

    def _moved(self, factor: Factor, score: float, change: float) -> float:
        """Return a changed score. A mean takes any; the other formulas have a power of what is below the worst."""
        low = factor.scale.low
        high = factor.scale.high
        if self.reduction.formula == "mean" or low is None or high is None:
            return score + change
        return min(high, max(low, score + change))

    def _mixed(
        self, queued: QueuedEdit, answers: Mapping[str, _JudgeAnswer]
    ) -> RewardedEdit:
        """Return the weighted mean of what the judges said."""
        suffixes = {spec: f"@{spec}" if len(answers) > 1 else "" for spec in answers}
        named = [
            (suffixes[spec], reply)
            for spec, answer in answers.items()
            for reply in answer.replies
        ]
        failures = (answer.failed for answer in answers.values() if answer.failed)
        flags = flagged(queued.degenerate, [work.rubric.name for work in queued.works])
        reward = RewardedEdit(
            id=queued.edit.id,
            status=next(failures, "abstained"),
            abstained={
                f"{self.labels[reply.judgement.rubric, key]}{suffix}": why
                for suffix, reply in named
                for key, why in reply.judgement.abstained.items()
            },
            reasons=[*flags, *(why for _, reply in named for why in reply.reasons())],
            keys=_keys(named),
            cached=all(reply.cached for _, reply in named),
            stored_as=queued.stored_as or None,
        )
        if not all(answer.rewards for answer in answers.values()):
            return reward
        total = math.fsum(self.weights[spec] for spec in answers)
        shares = {spec: self.weights[spec] / total for spec in answers}
        number = math.fsum(
            shares[spec] * (math.fsum(answer.rewards) / len(answer.rewards))
            for spec, answer in answers.items()
        )
        scores = {
            f"{name}{suffixes[spec]}": score
            for spec, answer in answers.items()
            for name, score in answer.mean_scores().items()
        }
        uncertainty = _uncertainty(list(shares.values()), list(answers.values()))
        return reward.with_number(number, scores, uncertainty)


def _with_reason(reply: QueuedAnswer, remark: Remark) -> QueuedAnswer:
    reasons = (*reply.judgement.reasons, remark)
    return reply._replace(
        judgement=dataclasses.replace(reply.judgement, reasons=reasons)
    )


def _keys(named: Iterable[tuple[str, QueuedAnswer]]) -> dict[str, str]:
    """Return keys by rubric; with the number of further samples, and the suffix of the judge."""
    keys: dict[str, str] = {}
    first: dict[str, int] = {}
    for suffix, reply in named:
        judgement = reply.judgement
        name = f"{judgement.rubric}{suffix}"
        if judgement.repeat != first.setdefault(name, judgement.repeat):
            name = f"{judgement.rubric}#{judgement.repeat}{suffix}"
        if judgement.key:
            keys[name] = judgement.key
    return keys


def _uncertainty(
    shares: Sequence[float], answers: Sequence[_JudgeAnswer]
) -> Uncertainty | None:
    """Return the standard error of the reward by the judge's own samples, or else by its probabilities of the scores;
    None if there is neither."""
    samples = min(len(answer.samples) for answer in answers)
    probable = [answer.samples[0].probable for answer in answers]
    known = [pair for pair in probable if pair is not None]
    if samples >= 2:
        variances = [statistics.variance(a.rewards) / len(a.rewards) for a in answers]
    elif len(known) == len(answers):
        variances = [deviation**2 for _, deviation in known]
    else:
        return None
    squares = (
        share**2 * variance for share, variance in zip(shares, variances, strict=True)
    )
    error = math.sqrt(math.fsum(squares))
    if samples >= 2:
        return Uncertainty(source="samples", samples=samples, standard_error=error)
    means = (share * mean for share, (mean, _) in zip(shares, known, strict=True))
    return Uncertainty(
        source="logprobs",
        samples=samples,
        standard_error=error,
        expected=math.fsum(means),
    )


def not_taken(edit: str, status: str, message: str) -> RewardedEdit:
    """Return the reward of an edit that could not be taken as it was sent: no judge was asked, and nothing is kept."""
    why = reason("-", Remark("not_taken", message))
    return RewardedEdit(id=edit, status=status, reasons=[why])


def set_aside(
    edit: str,
    output: NoEdit,
    rubrics: Iterable[str],
    *,
    worst: bool,
    stored_as: str | None = None,
) -> RewardedEdit:
    """Return the reward of a degenerate output: no judge was asked, so that there are no scores."""
    reward = RewardedEdit(
        id=edit,
        status=output.status,
        reasons=flagged(output, rubrics),
        stored_as=stored_as,
    )
    if worst and output.status == "abstained":
        return reward.with_number(0.0, {})
    return reward


def flagged(output: NoEdit | None, rubrics: Iterable[str]) -> list[RewardReason]:
    """Return what is wrong with the output itself, as a reason of every rubric."""
    if output is None:
        return []
    effect = "no edit" if output.set_aside else "flagged"
    remark = Remark(output.kind, f"{effect}: the output {output.words}")
    return [reason(name, remark) for name in dict.fromkeys(rubrics)]


# --- groups ---------------------------------------------------------------------------------------------------


def grouped(
    groups: Sequence[str | None], rewards: Sequence[RewardedEdit], *, ranked: bool
) -> list[RewardedEdit]:
    """Return the rewards with where each stands in its group; `ranked` puts the rank, 0 to 1, in the place of the
    reward."""
    members: dict[str | None, list[float | None]] = {}
    for name, reward in zip(groups, rewards, strict=True):
        members.setdefault(name, []).append(reward.reward)

    def placed(name: str | None, reward: RewardedEdit) -> RewardedEdit:
        if name is None:
            return reward
        reward = reward.changed(group=_group(name, reward.reward, members[name]))
        return _ranked(reward) if ranked else reward

    return list(map(placed, groups, rewards))


def _group(
    name: str, number: float | None, members: Sequence[float | None]
) -> RewardGroup:
    numbers = [member for member in members if member is not None]
    spread = statistics.stdev(numbers) if len(numbers) > 1 else None
    rank = None
    if number is not None:
        better = sum(other > number for other in numbers)
        rank = better + (numbers.count(number) + 1) / 2
    return RewardGroup(
        name=name,
        size=len(members),
        scored=len(numbers),
        reward=number,
        rank=rank,
        mean=statistics.fmean(numbers) if numbers else None,
        standard_deviation=spread,
        low_variance=spread is not None and spread < LOW_VARIANCE,
    )


def _ranked(reward: RewardedEdit) -> RewardedEdit:
    group = reward.group
    if group is None or group.rank is None:
        return reward
    if group.scored > 1:
        rank = (group.scored - group.rank) / (group.scored - 1)
        # The uncertainty of the scores is not that of the rank.
        return reward.changed(reward=rank, uncertainty=None)
    rubric = next(iter(reward.keys), "-").partition("@")[0]
    message = f"no other edit of the group {group.name} has a reward, so that there is no rank"
    return reward.changed(
        reward=None,
        status="abstained",
        scores=None,
        uncertainty=None,
        reasons=[*reward.reasons, _alone(rubric, message)],
    )


def _alone(rubric: str, message: str) -> RewardReason:
    return reason(rubric, Remark("alone_in_group", message))


# --- pairs ----------------------------------------------------------------------------------------------------

FACTOR = "overall"
FORMULA = "share of the comparisons within the group that were won, a tie counting half (preference.overall, both orders)"
MAX_MEMBERS = 16
"""Edits of a group: 16 edits make 120 pairs, which are 240 questions."""


class Game(NamedTuple):
    """Two edits of a request that are compared, by their numbers in it."""

    a: int
    b: int

    def other(self, number: int) -> int:
        return self.b if number == self.a else self.a

    def won(self, number: int, decision: Decision) -> float:
        """Return the share of the game that an edit won; 0 if there is no verdict."""
        if decision.verdict == "tie":
            return 0.5
        return float(decision.verdict == ("a" if number == self.a else "b"))


def check_groups(
    edits: Sequence[Edit], groups: Sequence[str | None], most: int
) -> None:
    """Raise `Refused` unless the edits of each group can be compared, in at most so many pairs."""
    members: dict[str | None, list[int]] = {}
    for number, name in enumerate(groups):
        members.setdefault(name, []).append(number)
    count = sum(math.comb(len(numbers), 2) for numbers in members.values())
    if count > most:
        raise Refused(
            413,
            f"{count:,} pairs: at most {most:,} are taken in one request; send fewer groups",
        )
    for name, numbers in members.items():
        if len(numbers) > MAX_MEMBERS:
            what = f"{len(numbers)} edits in the group {str(name)[:80]}: at most {MAX_MEMBERS} are compared"
            raise Refused(413, what, [(f"edits.{numbers[MAX_MEMBERS]}.group", what)])
        first = edits[numbers[0]]
        for number in numbers:
            edit = edits[number]
            if (edit.input, edit.instruction) != (first.input, first.instruction):
                what = f"another input or instruction than edits.{numbers[0]} of the same group: pairs share both"
                raise Refused(
                    422, "edits that cannot be compared", [(f"edits.{number}", what)]
                )


class Contest:
    """Comparisons of the edits of each group, two at a time (`ranking: pairs`).

    Every two edits of a group are shown to the judge in both orders with the rubric `preference`. The reward of an edit
    is the share of its comparisons that it won by `overall`, a tie counting half. A comparison that failed is not a
    number: both of its edits are without a reward, the others of the group keep theirs."""

    def __init__(
        self,
        edits: Sequence[Edit],
        groups: Sequence[str | None],
        inspected: Sequence[InspectedEdit],
    ) -> None:
        self._edits = edits
        self._groups = groups
        self._inspected = inspected
        members: dict[str | None, list[int]] = {}
        for number, (name, edit) in enumerate(zip(groups, inspected, strict=True)):
            if edit.comparable:
                members.setdefault(name, []).append(number)
        self._games: list[Game] = []
        for numbers in members.values():
            self._games += [Game(*pair) for pair in combinations(numbers, 2)]

    def pairs(self) -> list[Edit]:
        """Return an edit for each game that shows both outputs, as `editjudge pairs` makes it."""
        return [_pair(self._edits[game.a], self._edits[game.b]) for game in self._games]

    def rewards(
        self, batch: RequestBatch | None, weights: Mapping[str, float], *, worst: bool
    ) -> list[RewardedEdit]:
        """Return the reward of each edit, in their order."""
        rewards = [
            self._reward(number, batch, weights, worst=worst)
            for number in range(len(self._edits))
        ]
        rewards = grouped(self._groups, rewards, ranked=False)
        return [
            self._with_comparisons(number, reward, batch)
            for number, reward in enumerate(rewards)
        ]

    def _reward(
        self,
        number: int,
        batch: RequestBatch | None,
        weights: Mapping[str, float],
        *,
        worst: bool,
    ) -> RewardedEdit:
        edit = self._edits[number]
        problem = self._inspected[number].problem
        output = self._inspected[number].output
        if problem:
            status, remark = problem
            why = reason(PREFERENCE.name, remark)
            return RewardedEdit(id=edit.id, status=status, reasons=[why])
        if output and output.set_aside:
            return set_aside(edit.id, output, [PREFERENCE.name], worst=worst)
        if batch is None or not any(number in game for game in self._games):
            message = f"no other edit of the group {self._groups[number]} can be compared with it"
            return RewardedEdit(id=edit.id, reasons=[_alone(PREFERENCE.name, message)])
        return self._compared(number, batch, weights)

    def _compared(
        self, number: int, batch: RequestBatch, weights: Mapping[str, float]
    ) -> RewardedEdit:
        """Return what the comparisons of one edit say of it."""
        answers: dict[str, QueuedAnswer] = {}
        failures: list[str] = []
        for part in batch.parts:
            suffix = f"@{part.spec}" if len(batch.parts) > 1 else ""
            for game, pair in zip(self._games, part.edits, strict=True):
                if number not in game:
                    continue
                if failed := failure(pair.judgements):
                    failures.append(failed)
                elif _decision(pair).verdict is None:
                    failures.append("abstained")
                for name, reply in _named_replies(pair, game.other(number), batch):
                    answers[f"{name}{suffix}"] = reply
        flags = flagged(self._inspected[number].output, [PREFERENCE.name])
        reward = RewardedEdit(
            id=self._edits[number].id,
            status=next(iter(failures), "abstained"),
            abstained={
                f"{name}.{FACTOR}": why
                for name, reply in answers.items()
                if (why := reply.judgement.abstained.get(FACTOR))
            },
            reasons=[
                *flags,
                *(why for reply in answers.values() for why in reply.reasons()),
            ],
            keys={
                name: reply.judgement.key
                for name, reply in answers.items()
                if reply.judgement.key
            },
            cached=all(reply.cached for reply in answers.values()),
        )
        if failures:
            return reward
        total = math.fsum(weights[part.spec] for part in batch.parts)
        won = math.fsum(
            weights[part.spec] * self._won(number, part.edits) for part in batch.parts
        )
        return reward.with_number(won / total, {})

    def _won(self, number: int, pairs: Sequence[QueuedEdit]) -> float:
        """Return the share of an edit's comparisons that it won with one judge."""
        points = [
            game.won(number, _decision(pair))
            for game, pair in zip(self._games, pairs, strict=True)
            if number in game
        ]
        return math.fsum(points) / len(points)

    def _with_comparisons(
        self, number: int, reward: RewardedEdit, batch: RequestBatch | None
    ) -> RewardedEdit:
        decisions = [
            _decision(pair)
            for part in (batch.parts if batch else [])
            for game, pair in zip(self._games, part.edits, strict=True)
            if number in game
        ]
        comparisons = Comparisons(
            asked=len(decisions),
            failed=sum(decision.verdict is None for decision in decisions),
            ties=sum(decision.verdict == "tie" for decision in decisions),
            flipped=sum(decision.flipped for decision in decisions),
        )
        # Before the comparisons there was no reward.
        changes = {"reward": None, "comparisons": comparisons}
        return reward.changed(
            group=reward.group and reward.group.model_copy(update=changes)
        )


def _pair(a: Edit, b: Edit) -> Edit:
    models = {"model_a": a.model, "model_b": b.model}
    outputs = {"edited_a": a.edited, "edited_b": b.edited}
    return Edit(
        f"{a.id}|{b.id}",
        a.input,
        None,
        a.instruction,
        group=a.group,
        metadata={name: model for name, model in models.items() if model},
        pictures={name: image for name, image in outputs.items() if image is not None},
    )


def _decision(pair: QueuedEdit) -> Decision:
    """Return what the judge's answers in both orders come to; an answer that is missing leaves no verdict."""
    answers: dict[str, list[str | None]] = {order: [] for order in ORDERS}
    for work, judgement in zip(pair.works, pair.judgements, strict=True):
        choices = judgement.choices if judgement and judgement.status == "ok" else None
        choice = choices.get(FACTOR) if choices else None
        answers[work.task.variant or ORDERS[0]].append(choice)
    verdicts = (
        majority(choices) if choices and None not in choices else None
        for choices in answers.values()
    )
    return decide(*verdicts)


def _named_replies(
    pair: QueuedEdit, other: int, batch: RequestBatch
) -> Iterator[tuple[str, QueuedAnswer]]:
    """Yield the answers about a pair by name: the rubric, the number of the other edit, the order, and further
    samples."""
    seen: dict[str, int] = {}
    for reply in replies(pair, batch):
        name = f"{PREFERENCE.name}#{other}.{reply.variant or ORDERS[0]}"
        seen[name] = seen.get(name, -1) + 1
        yield (f"{name}.{seen[name]}" if seen[name] else name), reply
