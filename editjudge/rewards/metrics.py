"""Metrics on the rewards since the server started, in Prometheus's text format: failures, drift of the mean reward, and
durations of requests."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from editjudge.rewards.protocol import RewardedEdit

_KEPT = 2000
"""Number of latest rewards, and of latest requests per protocol, that the metrics cover."""
_RECENT = 200
"""Number of latest rewards whose mean is compared with the mean of earlier rewards."""
_LEAST = 30
"""Minimum number of recent rewards, and of earlier rewards, for the comparison of their means."""


@dataclass
class RewardFigures:
    latest: deque[float | None] = field(default_factory=lambda: deque(maxlen=_KEPT))
    statuses: Counter[tuple[str, str | int]] = field(default_factory=Counter)
    """Counts of all rewards, keyed by protocol and status."""
    refused: Counter[tuple[str, str | int]] = field(default_factory=Counter)
    low_variance: int = 0
    """Number of groups whose rewards hardly differ."""
    seconds: dict[str, deque[float]] = field(default_factory=dict)
    """Durations of the latest requests, keyed by protocol."""
    requests: Counter[str] = field(default_factory=Counter)
    total_seconds: defaultdict[str, float] = field(
        default_factory=lambda: defaultdict(float)
    )
    server_seconds: defaultdict[str, float] = field(
        default_factory=lambda: defaultdict(float)
    )

    def note(self, protocol: str, rewards: Sequence[RewardedEdit]) -> None:
        self.statuses.update((protocol, reward.status) for reward in rewards)
        groups = (reward.group for reward in rewards)
        self.low_variance += len({g.name for g in groups if g and g.low_variance})
        self.latest.extend(reward.reward for reward in rewards)

    def note_request(self, protocol: str, seconds: float, at_judges: float) -> None:
        """Record the duration of a request, and for how much of that time a judge was working."""
        self.seconds.setdefault(protocol, deque(maxlen=_KEPT)).append(seconds)
        self.requests[protocol] += 1
        self.total_seconds[protocol] += seconds
        self.server_seconds[protocol] += max(0.0, seconds - at_judges)

    @property
    def numbers(self) -> list[float]:
        return [reward for reward in self.latest if reward is not None]

    def drift(self) -> float | None:
        """Return the mean of the recent rewards minus the mean of earlier ones, in standard errors. Return None if
        there are too few rewards. The standard error assumes independent edits."""
        before = self.numbers[:-_RECENT]
        recent = self.numbers[-_RECENT:]
        if min(len(before), len(recent)) < _LEAST:
            return None
        variances = (statistics.variance(part) / len(part) for part in (before, recent))
        error = math.sqrt(sum(variances))
        difference = statistics.fmean(recent) - statistics.fmean(before)
        if not error:
            return math.copysign(math.inf, difference) if difference else 0.0
        return difference / error

    def prometheus_text(
        self, *, waiting: int = 0, held: int = 0, spent: float = 0.0
    ) -> str:
        """Return all metrics, including those of the queue. An undefined metric is left out instead of being 0."""
        numbers = self.numbers
        total = sum(self.total_seconds.values())
        server = sum(self.server_seconds.values())
        failed = len(self.latest) - len(numbers)
        mean = statistics.fmean(numbers) if numbers else None
        gauges: dict[str, tuple[str, float | None]] = {
            "server_share": (
                "Share of the time of requests that is the server's own.",
                _ratio(server, total),
            ),
            "reward_mean": ("Mean of the last 2000 rewards.", mean),
            "reward_failed_share": (
                "Share of the last 2000 rewards without a number.",
                _ratio(failed, len(self.latest)),
            ),
            "reward_drift": (
                "Mean of the last 200 rewards minus that of earlier ones, in standard errors.",
                self.drift(),
            ),
            "waiting_edits": ("Edits accepted and not judged yet.", waiting),
            "held_bytes": ("Bytes of the waiting requests.", held),
            "spent_dollars": ("Cost of the judges since the server started.", spent),
        }
        return self._counters() + gauges_text(gauges)

    def _counters(self) -> str:
        by_protocol = {
            f'{{protocol="{protocol}"}}': seconds
            for protocol, seconds in sorted(self.server_seconds.items())
        }
        meanings: dict[str, tuple[str, Mapping[str, float]]] = {
            "rewards_total": (
                "Rewards by status; only ok has a number.",
                _by_status(self.statuses),
            ),
            "refused_total": (
                "Requests that were not accepted, by HTTP status.",
                _by_status(self.refused),
            ),
            "server_seconds_total": (
                "Time of requests while no judge worked on them.",
                by_protocol,
            ),
            "low_variance_groups_total": (
                "Groups whose rewards hardly differ.",
                {"": self.low_variance},
            ),
        }
        meaning = "Time of a request, over the last 2000."
        text = _family("request_seconds", "summary", meaning, dict(self._quantiles()))
        for name, (meaning, samples) in meanings.items():
            text += _family(name, "counter", meaning, samples)
        return text

    def _quantiles(self) -> Iterator[tuple[str, float]]:
        for protocol, seconds in sorted(self.seconds.items()):
            ordered = sorted(seconds)
            label = f'protocol="{protocol}"'
            for share in (0.5, 0.99):
                value = ordered[min(len(ordered) - 1, int(len(ordered) * share))]
                yield f'{{{label},quantile="{share:g}"}}', value
            yield f"_sum{{{label}}}", self.total_seconds[protocol]
            yield f"_count{{{label}}}", self.requests[protocol]


def gauges_text(gauges: Mapping[str, tuple[str, float | None]]) -> str:
    """Return the text of gauges, each with its description. An undefined one is left out."""
    return "".join(
        _family(name, "gauge", meaning, {"": value})
        for name, (meaning, value) in gauges.items()
        if value is not None
    )


def at_work(spans: Iterable[tuple[float, float]], begun: float, ended: float) -> float:
    """Return how many of the seconds between `begun` and `ended` are covered by at least one span."""
    total = 0.0
    reached = begun
    for start, stop in sorted(spans):
        first = max(start, reached)
        last = min(stop, ended)
        if last > first:
            total += last - first
            reached = last
    return total


def _ratio(part: float, total: float) -> float | None:
    return part / total if total else None


def _family(name: str, kind: str, meaning: str, samples: Mapping[str, float]) -> str:
    """Return the text for a metric with its samples, which are keyed by suffix and labels. It is empty if there are no
    samples."""
    if not samples:
        return ""
    name = f"editjudge_{name}"
    head = f"# HELP {name} {meaning}\n# TYPE {name} {kind}\n"
    infinite = {math.inf: "+Inf", -math.inf: "-Inf"}
    for suffix, value in samples.items():
        head += f"{name}{suffix} {infinite.get(value, f'{value:.10g}')}\n"
    return head


def _by_status(counts: Mapping[tuple[str, str | int], int]) -> dict[str, float]:
    return {
        f'{{protocol="{protocol}",status="{status}"}}': count
        for (protocol, status), count in sorted(counts.items(), key=str)
    }
