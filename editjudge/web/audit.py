"""A rolling audit of rewards since the server began: how many fail, whether their mean drifts, which look suspicious,
and how long requests take. As numbers for Prometheus and as a page."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_KEPT = 2000
"""Rewards that are looked back at, and requests."""
_RECENT = 200
"""Of which the mean is compared with that of all before."""
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
    """Codes of what was seen in the output, though it was rewarded."""
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
    statuses: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Of all rewards, by protocol and status."""
    refused: Counter[tuple[str, int]] = field(default_factory=Counter)
    low_variance: int = 0
    """Groups."""
    seconds: dict[str, deque[float]] = field(default_factory=dict)
    """Of the latest requests, by protocol."""
    requests: Counter[str] = field(default_factory=Counter)
    total_seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    server_seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def note(self, protocol: str, rewards: Sequence[Mapping[str, Any]], run: int | None) -> None:
        self.statuses.update((protocol, reward["status"]) for reward in rewards)
        groups = {r["group"]["name"] for r in rewards if r["group"] is not None and r["group"]["low_variance"]}
        self.low_variance += len(groups)
        self.rewards.extend(_audited(reward, run) for reward in rewards)

    def note_request(self, protocol: str, seconds: float, at_judges: float) -> None:
        """How long a request took, and how much of that a judge was at work for it."""
        self.seconds.setdefault(protocol, deque(maxlen=_KEPT)).append(seconds)
        self.requests[protocol] += 1
        self.total_seconds[protocol] += seconds
        self.server_seconds[protocol] += max(0.0, seconds - at_judges)

    def failed_share(self) -> float | None:
        return sum(one.reward is None for one in self.rewards) / len(self.rewards) if self.rewards else None

    def numbers(self) -> list[float]:
        return [one.reward for one in self.rewards if one.reward is not None]

    def mean(self) -> float | None:
        numbers = self.numbers()
        return statistics.fmean(numbers) if numbers else None

    def drift(self) -> MeanDrift | None:
        """None where there are too few to say."""
        numbers = self.numbers()
        before, recent = numbers[:-_RECENT], numbers[-_RECENT:]
        if min(len(before), len(recent)) < _LEAST:
            return None
        means = statistics.fmean(before), statistics.fmean(recent)
        error = math.sqrt(statistics.variance(before) / len(before) + statistics.variance(recent) / len(recent))
        difference = means[1] - means[0]
        return MeanDrift(
            *means, difference / error if error else math.copysign(math.inf, difference) if difference else 0.0
        )

    def suspicious(self) -> list[Suspicion]:
        """The rewards to look at first."""
        numbers = self.numbers()
        mean, spread = statistics.fmean(numbers or [0.0]), statistics.pstdev(numbers or [0.0])
        rewarded = [(one, one.reward) for one in self.rewards if one.reward is not None]
        latest = {r.stored_as or r.id: s for r, number in rewarded if (s := _suspicion(r, number, mean, spread))}
        return sorted(latest.values(), key=lambda one: -one.weight)[:_SHOWN]

    def share_of_server(self) -> float | None:
        total = sum(self.total_seconds.values())
        return sum(self.server_seconds.values()) / total if total else None


def _audited(reward: Mapping[str, Any], run: int | None) -> AuditedReward:
    flags = tuple(dict.fromkeys(reason["code"] for reason in reward["reasons"])) if reward["reward"] is not None else ()
    error = reward["uncertainty"] and reward["uncertainty"]["standard_error"]
    return AuditedReward(reward["id"], reward["reward"], reward["status"], flags, error, run, reward["stored_as"])


def _suspicion(one: AuditedReward, number: float, mean: float, spread: float) -> Suspicion | None:
    if one.flags and number > 0:
        return Suspicion(one, f"rewarded, though the output is {' and '.join(one.flags)}", 10 + number)
    if one.standard_error is not None and one.standard_error > _UNCERTAIN:
        return Suspicion(
            one, f"the judge's own answers differ: standard error {one.standard_error:.2f}", 5 + one.standard_error
        )
    if spread and abs(number - mean) > _UNUSUAL * spread:
        return Suspicion(one, f"far from the others, whose mean is {mean:.2f}", min(4.0, abs(number - mean) / spread))
    return None


def at_work(spans: Iterable[tuple[float, float]], begun: float, ended: float) -> float:
    """Seconds between begin and end that at least one of the spans covers."""
    total, reached = 0.0, begun
    for start, stop in sorted(spans):
        first, last = max(start, reached), min(stop, ended)
        if last > first:
            total, reached = total + last - first, last
    return total


# --- Prometheus -----------------------------------------------------------------------------------------------


def metrics(audit: RewardAudit, gauges: Mapping[str, tuple[str, float]]) -> str:
    """The text format of Prometheus; `gauges` are name to what it means and its value."""
    lines: list[str] = []

    def add(name: str, kind: str, words: str, samples: Iterable[tuple[Mapping[str, Any], float | None, str]]) -> None:
        written = [
            f"{name}{suffix}{_labels(labels)} {_number(value)}"
            for labels, value, suffix in samples
            if value is not None
        ]
        if written:
            lines.extend([f"# HELP {name} {words}", f"# TYPE {name} {kind}", *written])

    of_status = [({"protocol": p, "status": s}, float(n), "") for (p, s), n in sorted(audit.statuses.items())]
    add("editjudge_rewards_total", "counter", "Rewards by status; only ok has a number.", of_status)
    refused = [({"protocol": p, "status": str(s)}, float(n), "") for (p, s), n in sorted(audit.refused.items())]
    add("editjudge_refused_total", "counter", "Requests that were not taken, by HTTP status.", refused)
    add("editjudge_request_seconds", "summary", "Time of a request, over the last 2000.", _quantiles(audit))
    seconds = [({"protocol": p}, s, "") for p, s in sorted(audit.server_seconds.items())]
    add("editjudge_server_seconds_total", "counter", "Time of requests while no judge was at work for them.", seconds)
    drift = audit.drift()
    values: dict[str, tuple[str, float | None]] = {
        "editjudge_server_share": ("Share of the time of requests that is the server's own.", audit.share_of_server()),
        "editjudge_reward_mean": ("Of the last 2000 rewards.", audit.mean()),
        "editjudge_reward_failed_share": ("Of the last 2000 rewards, those without a number.", audit.failed_share()),
        "editjudge_reward_drift": (
            "Mean of the last 200 rewards less that of those before, in standard errors.",
            drift.standard_errors if drift else None,
        ),
        **gauges,
    }
    for name, (words, value) in values.items():
        add(name, "gauge", words, [({}, value, "")])
    low = float(audit.low_variance)
    add("editjudge_low_variance_groups_total", "counter", "Groups whose rewards hardly differ.", [({}, low, "")])
    return "\n".join(lines) + "\n"


def _quantiles(audit: RewardAudit) -> Iterator[tuple[Mapping[str, Any], float | None, str]]:
    for protocol, seconds in sorted(audit.seconds.items()):
        ordered = sorted(seconds)
        for share in (0.5, 0.99):
            value = ordered[min(len(ordered) - 1, int(len(ordered) * share))]
            yield {"protocol": protocol, "quantile": f"{share:g}"}, value, ""
        yield {"protocol": protocol}, audit.total_seconds[protocol], "_sum"
        yield {"protocol": protocol}, float(audit.requests[protocol]), "_count"


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}" if labels else ""


def _number(value: float) -> str:
    return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, f"{value:.10g}")
