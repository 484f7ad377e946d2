"""A rolling audit of rewards since the server began: how many fail, whether their mean drifts, which look suspicious,
and how long requests take. As numbers for Prometheus and as a page."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from editjudge.rewards.protocol import RewardedEdit

_KEPT = 2000
"""Rewards that are looked back at, and requests."""
_RECENT = 200
"""Latest rewards, of which the mean is compared with that of all before."""
_LEAST = 30
"""Rewards on either side of such a comparison."""
_UNUSUAL = 3.0
"""Standard deviations from the mean."""
_UNCERTAIN = 0.15
"""Standard error of a reward, about one step of a scale of seven."""
_SHOWN = 12


class AuditedReward(NamedTuple):
    id: str
    reward: float | None
    status: str
    flags: tuple[str, ...]
    """Codes of remarks on an output that was rewarded all the same."""
    standard_error: float | None
    run: int | None
    stored_as: str | None


class Suspicion(NamedTuple):
    reward: AuditedReward
    why: str
    weight: float


class MeanDrift(NamedTuple):
    """The mean of the latest rewards beside that of all before."""

    before: float
    recent: float
    standard_errors: float
    """Their difference, as if edits were independent of each other."""


@dataclass
class RewardAudit:
    rewards: deque[AuditedReward] = field(default_factory=lambda: deque(maxlen=_KEPT))
    statuses: Counter[tuple[str, str | int]] = field(default_factory=Counter)
    """Counts of all rewards, by protocol and status."""
    refused: Counter[tuple[str, str | int]] = field(default_factory=Counter)
    low_variance: int = 0
    """Groups."""
    seconds: dict[str, deque[float]] = field(default_factory=dict)
    """Durations of the latest requests, by protocol."""
    requests: Counter[str] = field(default_factory=Counter)
    total_seconds: defaultdict[str, float] = field(
        default_factory=lambda: defaultdict(float)
    )
    server_seconds: defaultdict[str, float] = field(
        default_factory=lambda: defaultdict(float)
    )

    def note(
        self, protocol: str, rewards: Sequence[RewardedEdit], run: int | None
    ) -> None:
        self.statuses.update((protocol, reward.status) for reward in rewards)
        groups = (reward.group for reward in rewards)
        self.low_variance += len({g.name for g in groups if g and g.low_variance})
        self.rewards.extend(_audited(reward, run) for reward in rewards)

    def note_request(self, protocol: str, seconds: float, at_judges: float) -> None:
        """Note how long a request took, and how much of that a judge was at work for it."""
        self.seconds.setdefault(protocol, deque(maxlen=_KEPT)).append(seconds)
        self.requests[protocol] += 1
        self.total_seconds[protocol] += seconds
        self.server_seconds[protocol] += max(0.0, seconds - at_judges)

    def failed_share(self) -> float | None:
        failed = len(self.rewards) - len(self.numbers())
        return failed / len(self.rewards) if self.rewards else None

    def numbers(self) -> list[float]:
        return [one.reward for one in self.rewards if one.reward is not None]

    def mean(self) -> float | None:
        numbers = self.numbers()
        return statistics.fmean(numbers) if numbers else None

    def drift(self) -> MeanDrift | None:
        """Return how the mean changed lately; None if there are too few rewards to say."""
        numbers = self.numbers()
        before = numbers[:-_RECENT]
        recent = numbers[-_RECENT:]
        if min(len(before), len(recent)) < _LEAST:
            return None
        means = statistics.fmean(before), statistics.fmean(recent)
        variances = (statistics.variance(part) / len(part) for part in (before, recent))
        error = math.sqrt(sum(variances))
        difference = means[1] - means[0]
        if error or not difference:
            return MeanDrift(*means, difference / (error or 1.0))
        return MeanDrift(*means, math.copysign(math.inf, difference))

    def suspicious(self) -> list[Suspicion]:
        """Return the rewards to look at first."""
        numbers = self.numbers() or [0.0]
        mean = statistics.fmean(numbers)
        spread = statistics.pstdev(numbers)
        latest: dict[str, Suspicion] = {}
        for reward in self.rewards:
            if suspicion := _suspicion(reward, mean, spread):
                latest[reward.stored_as or reward.id] = suspicion
        return sorted(latest.values(), key=lambda one: -one.weight)[:_SHOWN]

    def share_of_server(self) -> float | None:
        total = sum(self.total_seconds.values())
        return sum(self.server_seconds.values()) / total if total else None


def _audited(reward: RewardedEdit, run: int | None) -> AuditedReward:
    codes = dict.fromkeys(reason.code for reason in reward.reasons)
    return AuditedReward(
        reward.id,
        reward.reward,
        reward.status,
        tuple(codes) if reward.reward is not None else (),
        reward.uncertainty.standard_error if reward.uncertainty else None,
        run,
        reward.stored_as,
    )


def _suspicion(one: AuditedReward, mean: float, spread: float) -> Suspicion | None:
    number = one.reward
    error = one.standard_error or 0.0
    if number is None:
        return None
    if one.flags and number > 0:
        why = f"rewarded, though the output is {' and '.join(one.flags)}"
        return Suspicion(one, why, 10 + number)
    if error > _UNCERTAIN:
        why = f"the judge's own answers differ: standard error {error:.2f}"
        return Suspicion(one, why, 5 + error)
    distance = abs(number - mean)
    if spread and distance > _UNUSUAL * spread:
        why = f"far from the others, whose mean is {mean:.2f}"
        return Suspicion(one, why, min(4.0, distance / spread))
    return None


def at_work(spans: Iterable[tuple[float, float]], begun: float, ended: float) -> float:
    """Return the seconds between begin and end that at least one of the spans covers."""
    total = 0.0
    reached = begun
    for start, stop in sorted(spans):
        first = max(start, reached)
        last = min(stop, ended)
        if last > first:
            total = total + last - first
            reached = last
    return total


# --- Prometheus -----------------------------------------------------------------------------------------------


class _Metric(NamedTuple):
    name: str
    kind: str
    meaning: str
    samples: Iterable[tuple[str, float | None]]
    """Suffix and labels with the value."""

    def __str__(self) -> str:
        lines = [
            f"{self.name}{labels} {_number(value)}\n"
            for labels, value in self.samples
            if value is not None
        ]
        if not lines:
            return ""
        head = f"# HELP {self.name} {self.meaning}\n# TYPE {self.name} {self.kind}\n"
        return head + "".join(lines)


def metrics(audit: RewardAudit, gauges: Mapping[str, tuple[str, float]]) -> str:
    """Return the text format of Prometheus; `gauges` are name to meaning and value."""
    drift = audit.drift()
    values: dict[str, tuple[str, float | None]] = {
        "editjudge_server_share": (
            "Share of the time of requests that is the server's own.",
            audit.share_of_server(),
        ),
        "editjudge_reward_mean": ("Of the last 2000 rewards.", audit.mean()),
        "editjudge_reward_failed_share": (
            "Of the last 2000 rewards, those without a number.",
            audit.failed_share(),
        ),
        "editjudge_reward_drift": (
            "Mean of the last 200 rewards less that of those before, in standard errors.",
            drift.standard_errors if drift else None,
        ),
        **gauges,
    }
    families = [
        _Metric(
            "editjudge_rewards_total",
            "counter",
            "Rewards by status; only ok has a number.",
            _by_status(audit.statuses),
        ),
        _Metric(
            "editjudge_refused_total",
            "counter",
            "Requests that were not taken, by HTTP status.",
            _by_status(audit.refused),
        ),
        _Metric(
            "editjudge_request_seconds",
            "summary",
            "Time of a request, over the last 2000.",
            _quantiles(audit),
        ),
        _Metric(
            "editjudge_server_seconds_total",
            "counter",
            "Time of requests while no judge was at work for them.",
            [
                (f'{{protocol="{protocol}"}}', seconds)
                for protocol, seconds in sorted(audit.server_seconds.items())
            ],
        ),
        *(
            _Metric(name, "gauge", meaning, [("", value)])
            for name, (meaning, value) in values.items()
        ),
        _Metric(
            "editjudge_low_variance_groups_total",
            "counter",
            "Groups whose rewards hardly differ.",
            [("", audit.low_variance)],
        ),
    ]
    return "".join(map(str, families))


def _by_status(
    counts: Mapping[tuple[str, str | int], int],
) -> Iterator[tuple[str, float]]:
    for (protocol, status), count in sorted(counts.items(), key=str):
        yield f'{{protocol="{protocol}",status="{status}"}}', count


def _quantiles(audit: RewardAudit) -> Iterator[tuple[str, float]]:
    for protocol, seconds in sorted(audit.seconds.items()):
        ordered = sorted(seconds)
        label = f'protocol="{protocol}"'
        for share in (0.5, 0.99):
            value = ordered[min(len(ordered) - 1, int(len(ordered) * share))]
            yield f'{{{label},quantile="{share:g}"}}', value
        yield f"_sum{{{label}}}", audit.total_seconds[protocol]
        yield f"_count{{{label}}}", audit.requests[protocol]


def _number(value: float) -> str:
    return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, f"{value:.10g}")
