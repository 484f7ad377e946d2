"""Rewards computed from judgements. Each edit gets a number, or the reason why there is none, and its rank in its
group."""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

from editjudge.edit import Edit
from editjudge.judgement import Judgement
from editjudge.judges.probabilities import SPREAD
from editjudge.orders import ORDERS, Decision, decide, majority
from editjudge.rewards.offer import JudgePanel
from editjudge.rewards.protocol import (
    Comparisons,
    RewardedEdit,
    RewardGroup,
    RewardReason,
    Uncertainty,
)
from editjudge.rewards.queue import Finding, QueuedEdit, QueuedReply, RequestBatch
from editjudge.rewards.reduction import (
    INSTRUCTION,
    INSTRUCTION_NOT_JUDGED,
    NOT_JUDGED,
    Reduction,
    Use,
    scores_of,
)
from editjudge.rewards.requests import Refused
from editjudge.rubrics.expression import Ref
from editjudge.rubrics.files import load
from editjudge.rubrics.scale import Scale
from editjudge.rubrics.verdict import Remark

LOW_VARIANCE = 0.01
"""Standard deviation of a group's rewards below which the group is flagged, because a normalised advantage would be
noise. A change of one step in one factor of `online` changes a reward by more than this."""

_MISSING = Remark("missing_output", "the editing model produced no image")


def reason(rubric: str, remark: Remark) -> RewardReason:
    return RewardReason(
        rubric=rubric, code=remark.code, factor=remark.factor, message=remark.message
    )


def flags(finding: Finding | None, rubrics: Iterable[str]) -> list[RewardReason]:
    """Return an edit's fault as a reason for each rubric. The list is empty if there is no fault."""
    if finding is None:
        return []
    remark = Remark(finding.code, finding.message)
    return [reason(rubric, remark) for rubric in dict.fromkeys(rubrics)]


def unchanged(
    judgements: Iterable[Judgement], reduction: Reduction, finding: Finding | None
) -> Remark | None:
    """Return a remark if a screen or a judge's evidence says that the output changed next to nothing. Return None if
    the score includes whether the instruction was followed. Otherwise, such an output would have the highest reward."""
    if INSTRUCTION in reduction.rubrics:
        return None
    if finding and finding.code == "unchanged":
        return Remark(finding.code, finding.message)
    for judgement in judgements:
        match judgement.evidence.get("degenerate"):
            case {"kind": "unchanged", "words": str(words)}:
                return Remark("unchanged", f"no edit: the output {words}")
    return None


class _MemberReward(NamedTuple):
    """The reward that an edit gets from one judge, or from several judges with different rubrics."""

    replies: Sequence[QueuedReply]
    failure: str | None
    """Status if there is no reward."""
    reasons: Sequence[RewardReason]
    rewards: Sequence[float]
    """Reward of each sample. It is empty if any is missing, since a mean of the others would not be comparable."""
    scores: Mapping[Ref, float]
    """Mean scores over the samples."""
    probable: tuple[float, float] | None
    """Mean and standard deviation of the reward under the judge's probabilities for the scores."""


@dataclass(frozen=True)
class RewardRules:
    """Rules that turn the judgements of a request into rewards."""

    reduction: Reduction
    labels: Mapping[Ref, str]
    """Names of the factors in the response."""
    scales: Mapping[Ref, Scale]
    panel: JudgePanel
    use: Use = "scores"
    worst: bool = False
    """Whether a degenerate output has the reward 0."""

    def set_aside(
        self, queued: QueuedEdit, finding: Finding, rubrics: Iterable[str]
    ) -> RewardedEdit:
        """Return the reward of an edit that was not sent to a judge and has no scores."""
        reward = RewardedEdit(
            id=queued.edit.id,
            status=finding.status,
            reasons=flags(finding, rubrics),
            stored_as=queued.stored_as,
        )
        if self.worst and finding.status == "abstained":
            return reward.with_number(0.0, {})
        return reward

    def reward(self, number: int, batch: RequestBatch) -> RewardedEdit:
        """Return the reward of the edit with this number in the request. It is the weighted mean over the judges."""
        first = batch.queued_for(number)[0]
        finding = batch.findings[number]
        rubrics = [rubric.name for rubric in batch.rubrics]
        if finding and finding.set_aside:
            return self.set_aside(first, finding, rubrics)
        members = self.panel.members(batch.queued)
        answers = {
            spec: self._by_member([edits[number] for edits in queued], batch.started)
            for spec, queued in members.items()
        }
        suffixes = _suffixes(answers)
        replies: dict[str, QueuedReply] = {}
        abstained: dict[str, str] = {}
        flagged = flags(finding, rubrics)
        for spec, answer in answers.items():
            replies |= _by_name(answer.replies, suffixes[spec])
            flagged += answer.reasons
            for reply in answer.replies:
                for key, text in reply.judgement.abstained.items():
                    label = self.labels[reply.judgement.rubric, key]
                    abstained[f"{label}{suffixes[spec]}"] = text
        reward = _without_number(
            first,
            [answer.failure for answer in answers.values() if answer.failure],
            abstained,
            flagged,
            replies,
        )
        if not all(answer.rewards for answer in answers.values()):
            return reward
        judgements = [reply.judgement for reply in replies.values()]
        if remark := unchanged(judgements, self.reduction, finding):
            return self._degenerate(reward, rubrics, remark)
        shares = self.panel.shares(answers)
        means = [math.fsum(a.rewards) / len(a.rewards) for a in answers.values()]
        scores = {
            f"{self.labels[ref]}{suffixes[spec]}": score
            for spec, answer in answers.items()
            for ref, score in answer.scores.items()
        }
        return reward.with_number(
            # Rounding may exceed 1 by a last digit.
            min(1.0, _dot(shares, means)),
            scores,
            _uncertainty(shares, list(answers.values())),
        )

    def _degenerate(
        self, reward: RewardedEdit, rubrics: Iterable[str], remark: Remark
    ) -> RewardedEdit:
        """Return the reward of an output that a judge found degenerate."""
        if all(flag.code != remark.code for flag in reward.reasons):
            reasons = [reason(rubric, remark) for rubric in rubrics]
            reward = reward.changed(reasons=[*reward.reasons, *reasons])
        return reward.with_number(0.0, {}) if self.worst else reward

    def _by_member(self, queued: Sequence[QueuedEdit], since: float) -> _MemberReward:
        replies = [reply for edit in queued for reply in edit.replies(since)]
        failure = next(filter(None, (edit.failure() for edit in queued)), None)
        if failure is None and queued[0].edit.edited is None:
            # A replaying judge does not open images, but an edit without an output must not have a reward.
            failure = _MISSING.code
            for n, reply in enumerate(replies):
                remarks = (*reply.judgement.reasons, _MISSING)
                judgement = replace(reply.judgement, reasons=remarks)
                replies[n] = reply._replace(judgement=judgement)
        by_rubric: dict[str, list[Judgement]] = {}
        for reply in replies:
            by_rubric.setdefault(reply.judgement.rubric, []).append(reply.judgement)
        # Before its judge is open, a rubric has one pending reply, however many samples the others have.
        samples = list(zip(*by_rubric.values(), strict=failure is None))
        scores = [scores_of(sample, self.use) for sample in samples]
        outcomes = [] if failure else [self.reduction.reduced(s) for s in scores]
        failed = next((o for o in outcomes if o.reward is None), None)
        reasons = []
        if failed and failed.reason:
            reasons.append(reason(failed.rubric, failed.reason))
        return _MemberReward(
            replies,
            failed.status if failed else failure,
            reasons,
            [] if failed else [o.reward for o in outcomes if o.reward is not None],
            _means(scores),
            self._probable(samples[0], scores[0]),
        )

    def _probable(
        self, judgements: Iterable[Judgement], scores: Mapping[Ref, float]
    ) -> tuple[float, float] | None:
        """Return the reward of the expected scores, and its standard deviation under the judge's probabilities. Return
        None unless there are probabilities for every factor of the formula.

        To compute the deviation, each factor in turn is moved by its own standard deviation in both directions. This is
        exact for a mean of independent factors, and a first-order approximation for other formulas.
        """
        expected: dict[Ref, float] = {}
        spreads: dict[Ref, float] = {}
        for judgement in judgements:
            spread = judgement.evidence.get(SPREAD, {})
            for key in judgement.expected.keys() & spread.keys():
                expected[judgement.rubric, key] = judgement.expected[key]
                spreads[judgement.rubric, key] = spread[key]
        counted = self.reduction.refs & scores.keys()
        if not counted or not counted <= expected.keys():
            return None
        mean = self.reduction.of(expected)
        if mean is None:
            return None
        widths = [
            self._moved(expected, ref, spreads[ref])
            - self._moved(expected, ref, -spreads[ref])
            for ref in counted
        ]
        return mean, math.sqrt(math.fsum(width**2 / 4 for width in widths))

    def _moved(self, scores: Mapping[Ref, float], ref: Ref, change: float) -> float:
        """Return the reward after one score is changed. The score is clipped to its scale unless the formula
        extrapolates."""
        score = scores[ref] + change
        low = self.scales[ref].low
        high = self.scales[ref].high
        if not self.reduction.extrapolates and low is not None and high is not None:
            score = min(high, max(low, score))
        return self.reduction.of({**scores, ref: score}) or 0.0


def _dot(a: Iterable[float], b: Iterable[float]) -> float:
    return math.fsum(map(operator.mul, a, b))


def _suffixes(judges: Iterable[str]) -> dict[str, str]:
    """Return the suffix that distinguishes the names of each judge's scores. It is empty if there is only one judge."""
    specs = list(judges)
    return {spec: f"@{spec}" if len(specs) > 1 else "" for spec in specs}


def _without_number(
    queued: QueuedEdit,
    failures: Sequence[str],
    abstained: Mapping[str, str],
    flagged: Sequence[RewardReason],
    replies: Mapping[str, QueuedReply],
) -> RewardedEdit:
    """Return the result for an edit without a reward. `replies` holds its answers keyed by name."""
    judgements = {name: reply.judgement for name, reply in replies.items()}
    reasons = [
        reason(j.rubric, remark) for j in judgements.values() for remark in j.reasons
    ]
    return RewardedEdit(
        id=queued.edit.id,
        status=next(iter(failures), "abstained"),
        abstained=dict(abstained),
        reasons=[*flagged, *reasons],
        keys={name: j.key for name, j in judgements.items() if j.key},
        cached=all(reply.cached for reply in replies.values()),
        stored_as=queued.stored_as,
    )


def _means(samples: Sequence[Mapping[Ref, float]]) -> Mapping[Ref, float]:
    if len(samples) == 1:
        return samples[0]  # integers stay integers
    values: dict[Ref, list[float]] = {}
    for sample in samples:
        for ref, score in sample.items():
            values.setdefault(ref, []).append(score)
    return {ref: statistics.fmean(scores) for ref, scores in values.items()}


def _by_name(replies: Iterable[QueuedReply], suffix: str) -> dict[str, QueuedReply]:
    """Return replies keyed by name. A name consists of the rubric, the number of the sample unless it is the first, and
    the judge's suffix."""
    by_name: dict[str, QueuedReply] = {}
    for reply in replies:
        name = f"{reply.judgement.rubric}{suffix}"
        if name in by_name:
            name = f"{reply.judgement.rubric}#{reply.judgement.repeat}{suffix}"
        by_name[name] = reply
    return by_name


def _uncertainty(
    shares: Sequence[float], answers: Sequence[_MemberReward]
) -> Uncertainty | None:
    """Return the standard error of the reward, from repeated samples or, without them, from the judge's probabilities
    for the scores. Return None if there are neither."""
    samples = min(len(answer.rewards) for answer in answers)
    squares = [share**2 for share in shares]
    if samples >= 2:
        variances = [statistics.variance(a.rewards) / len(a.rewards) for a in answers]
        error = math.sqrt(_dot(squares, variances))
        return Uncertainty(source="samples", samples=samples, standard_error=error)
    probable = [answer.probable for answer in answers if answer.probable]
    if len(probable) < len(answers):
        return None
    variances = [deviation**2 for _, deviation in probable]
    return Uncertainty(
        source="logprobs",
        samples=samples,
        standard_error=math.sqrt(_dot(squares, variances)),
        expected=_dot(shares, [mean for mean, _ in probable]),
    )


# --- groups ---------------------------------------------------------------------------------------------------


def grouped(
    groups: Sequence[str | None], rewards: Sequence[RewardedEdit], *, ranked: bool
) -> list[RewardedEdit]:
    """Return the rewards with their ranks in their groups. With `ranked`, the rank, from 0 to 1, becomes the reward."""
    members: dict[str | None, list[float | None]] = {}
    for name, reward in zip(groups, rewards, strict=True):
        members.setdefault(name, []).append(reward.reward)
    placed = []
    for name, reward in zip(groups, rewards, strict=True):
        if name is not None:
            group = _group(name, reward.reward, members[name])
            reward = reward.changed(group=group)  # noqa: PLW2901
            if ranked and group.rank is not None:
                reward = _ranked(reward, group, group.rank)  # noqa: PLW2901
        placed.append(reward)
    return placed


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


def _ranked(reward: RewardedEdit, group: RewardGroup, rank: float) -> RewardedEdit:
    if group.scored > 1:
        share = (group.scored - rank) / (group.scored - 1)
        # The uncertainty of the scores does not apply to a rank.
        return reward.changed(reward=share, uncertainty=None)
    rubric = next(iter(reward.keys), "-").partition("@")[0]
    message = f"no other edit of the group {group.name} has a reward, so that there is no rank"
    return reward.changed(
        reward=None,
        status="abstained",
        scores=None,
        uncertainty=None,
        reasons=[*reward.reasons, reason(rubric, Remark("alone_in_group", message))],
    )


# --- pairs ----------------------------------------------------------------------------------------------------

PREFERENCE = load("preference")
"""Rubric that compares two edits of a group."""
FACTOR = "overall"
FORMULA = "share of the comparisons within the group that were won, a tie counting half (preference.overall, both orders)"
MAX_MEMBERS = 16
"""Maximum number of edits in a group. 16 edits make 120 pairs, which are 240 questions."""


def check_groups(
    edits: Sequence[Edit], groups: Sequence[str | None], most: int
) -> None:
    """Raise `Refused` unless the edits in each group can be compared in at most `most` pairs."""
    members: dict[str | None, list[int]] = {}
    for number, name in enumerate(groups):
        members.setdefault(name, []).append(number)
    count = sum(math.comb(len(numbers), 2) for numbers in members.values())
    if count > most:
        raise Refused(
            413,
            f"{count:,} pairs: at most {most:,} are accepted in one request; send fewer groups",
        )
    for name, numbers in members.items():
        if len(numbers) > MAX_MEMBERS:
            what = f"{len(numbers)} edits in the group {str(name)[:80]}: at most {MAX_MEMBERS} are compared"
            raise Refused(413, what, [(f"edits.{numbers[MAX_MEMBERS]}.group", what)])
        first = edits[numbers[0]]
        for number in numbers:
            edit = edits[number]
            if (edit.input, edit.instruction) != (first.input, first.instruction):
                what = f"input or instruction differs from edits.{numbers[0]} of the same group: they must be the same"
                raise Refused(
                    422, "edits that cannot be compared", [(f"edits.{number}", what)]
                )


class _Game(NamedTuple):
    """A judge's answers about two edits of a group."""

    spec: str
    other: int
    """Number of the other edit."""
    pair: QueuedEdit
    decision: Decision
    won: float
    """Points: 1 for a win, 0.5 for a tie, 0 otherwise."""


class Contest:
    """Pairwise comparisons of the edits in each group (`ranking: pairs`).

    The judge compares every pair of edits in a group, in both orders, with the rubric `preference`. An edit's reward is
    the share of its comparisons that it won on the factor `overall`; a tie counts as half a win. If a comparison fails,
    its two edits have no reward, while the others in the group keep theirs.
    """

    def __init__(
        self,
        edits: Sequence[Edit],
        groups: Sequence[str | None],
        findings: Sequence[Finding | None],
    ) -> None:
        self._edits = edits
        self._groups = groups
        self._findings = findings
        members: dict[str | None, list[int]] = {}
        for number, (name, finding) in enumerate(zip(groups, findings, strict=True)):
            if finding is None or not finding.set_aside:
                members.setdefault(name, []).append(number)
        self._games: list[tuple[int, int]] = []
        """Numbers of the two edits in each comparison."""
        for numbers in members.values():
            self._games += combinations(numbers, 2)

    def pairs(self) -> list[Edit]:
        """Return an edit with both outputs for each comparison, in the same form as `editjudge pairs`."""
        return [_pair(self._edits[a], self._edits[b]) for a, b in self._games]

    def rewards(
        self, batch: RequestBatch | None, rules: RewardRules
    ) -> list[RewardedEdit]:
        """Return the rewards in the order of the edits. `batch` is None if there were no pairs to ask about."""
        games = [self._comparisons(n, batch) for n in range(len(self._edits))]
        rewards = [self._reward(n, games[n], batch, rules) for n in range(len(games))]
        placed = grouped(self._groups, rewards, ranked=False)
        return [
            reward.changed(group=reward.group and _compared(reward.group, comparisons))
            for reward, comparisons in zip(placed, games, strict=True)
        ]

    def _comparisons(self, number: int, batch: RequestBatch | None) -> list[_Game]:
        comparisons = []
        for spec, pairs in (batch.queued if batch else {}).items():
            for (a, b), pair in zip(self._games, pairs, strict=True):
                if number in (a, b):
                    decision = _decision(pair)
                    won = float(decision.verdict == ("a" if number == a else "b"))
                    won = 0.5 if decision.verdict == "tie" else won
                    other = b if number == a else a
                    comparisons.append(_Game(spec, other, pair, decision, won))
        return comparisons

    def _reward(
        self,
        number: int,
        comparisons: Sequence[_Game],
        batch: RequestBatch | None,
        rules: RewardRules,
    ) -> RewardedEdit:
        queued = QueuedEdit(self._edits[number], ())
        finding = self._findings[number]
        if finding and finding.set_aside:
            return rules.set_aside(queued, finding, [PREFERENCE.name])
        if batch is None or not comparisons:
            message = f"no other edit of the group {self._groups[number]} can be compared with it"
            alone = reason(PREFERENCE.name, Remark("alone_in_group", message))
            return RewardedEdit(id=queued.edit.id, reasons=[alone])
        suffixes = _suffixes(batch.queued)
        failures = list(filter(None, map(_failure, comparisons)))
        replies = {
            f"{name}{suffixes[game.spec]}": reply
            for game in comparisons
            for name, reply in _named_replies(game, batch.started)
        }
        abstained = {
            f"{name}.{FACTOR}": reply.judgement.abstained[FACTOR]
            for name, reply in replies.items()
            if FACTOR in reply.judgement.abstained
        }
        flagged = flags(finding, [PREFERENCE.name])
        if NOT_JUDGED in failures:
            flagged.append(reason(PREFERENCE.name, INSTRUCTION_NOT_JUDGED))
        reward = _without_number(queued, failures, abstained, flagged, replies)
        if failures:
            return reward
        by_judge: dict[str, list[float]] = {}
        for game in comparisons:
            by_judge.setdefault(game.spec, []).append(game.won)
        won = [math.fsum(points) / len(points) for points in by_judge.values()]
        share = _dot(rules.panel.shares(by_judge), won)
        return reward.with_number(min(1.0, share), {})


def _compared(group: RewardGroup, comparisons: Sequence[_Game]) -> RewardGroup:
    decisions = [game.decision for game in comparisons]
    counts = Comparisons(
        asked=len(decisions),
        failed=sum(decision.verdict is None for decision in decisions),
        ties=sum(decision.verdict == "tie" for decision in decisions),
        flipped=sum(decision.flipped for decision in decisions),
    )
    # With pairs, there are no rewards before the ranking.
    return group.model_copy(update={"reward": None, "comparisons": counts})


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
        images={name: image for name, image in outputs.items() if image is not None},
    )


def _decision(pair: QueuedEdit) -> Decision:
    """Combine the judge's answers in both orders into a decision. If an answer is missing, there is no verdict."""
    answers: dict[str, list[str | None]] = {order: [] for order in ORDERS}
    for work in pair.works:
        judgement = pair.answers.get(work.task.key)
        choices = judgement.choices if judgement and judgement.status == "ok" else None
        choice = choices.get(FACTOR) if choices else None
        answers[work.task.variant or ORDERS[0]].append(choice)
    verdicts = (
        majority(choices) if choices and None not in choices else None
        for choices in answers.values()
    )
    return decide(*verdicts)


def _failure(game: _Game) -> str | None:
    """Return the reason why a comparison has no verdict, or None if it has a verdict. There is no verdict if the judge
    abstained from comparing how far the instruction was followed, since the judge would then prefer the edit that did
    less."""
    judgements = game.pair.answers.values()
    if failure := game.pair.failure():
        return failure
    if any("instruction" in judgement.abstained for judgement in judgements):
        return NOT_JUDGED
    return "abstained" if game.decision.verdict is None else None


def _named_replies(game: _Game, since: float) -> Iterator[tuple[str, QueuedReply]]:
    """Yield the answers about a pair with their names, such as `preference#3.ab` for the comparison with edit 3."""
    seen: dict[str, int] = {}
    for reply in game.pair.replies(since):
        name = f"{PREFERENCE.name}#{game.other}.{reply.variant or ORDERS[0]}"
        seen[name] = seen.get(name, -1) + 1
        yield (f"{name}.{seen[name]}" if seen[name] else name), reply
