"""The number and rate of requests that a judge admits. Both are learnt from the requests that it refuses with status
429.

Requests are evaluated in the order in which they were sent, so quick refusals do not outrun slow answers. A limit shows
in one of two ways:

- All requests are refused (`_block`). Single requests probe for the end of the block, and the number of requests
  admitted in one such cycle is what the server admits in that time.
- The share of refusals rises (`_slow_down`). The rate is lowered, and the new share is compared with the old one
  (`_Trial`). A rate limit no longer refuses requests at the lower rate, whereas random refusals are as frequent as
  before. Random refusals are then ignored.

Reducing concurrency after each refusal and increasing it slowly otherwise (AIMD) is not enough: with a fifth of all
requests refused at random it took 7 to 25 times as long, and with a token bucket that allows no bursts it used only a
quarter of the rate.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from editjudge.judges.failures import CallFailed

CEILING = 256
"""Maximum concurrency that is chosen automatically. 256 answers of 0.5 s exceed the 380 a second that a process can
handle at 2.6 ms of CPU each (bench/throughput.py).
"""
START = 8
"""Initial concurrency, if it is chosen automatically. It doubles every round trip, as long as that increases speed."""
_BLOCK_AFTER = 16
"""Number of consecutive refusals that cannot be due to chance. If a server refuses half of all requests at random, one
request in 65,000 begins such a series.
"""
_MIN_SAMPLE = 20
"""Minimum number of requests for estimating a share or a rate."""
_SPAN = 100
"""Number of requests for estimating a share, unless the outcome is clear earlier."""
_MAX_HISTORY = 1000
"""Maximum number of earlier requests with which a share is compared."""
_SAFETY = 0.99
"""Rate to send at, as a share of the admitted rate."""
_MAX_TRIALS = 4
"""Number of trials, each at a lower rate, before a share of refusals above a third counts as random. A rate that is
far too high has as many refusals.
"""
_MAX_RATIO = 2.25
"""Largest assumed ratio of the limit to an admitted rate."""
_FIRST_TRIAL = 0.75
_NEXT_TRIAL = 0.9
"""Rates of a trial, as shares of the target rate: for a target that bursts made look higher than it is, and for a
target that was sustained.
"""
_GENTLE_CUT = 0.985
"""Factor applied after refusals to a rate that was good a moment ago."""
_GROWTH = 0.015
_PLATEAU = 150.0
"""Parameters of rate growth, which follows TCP's CUBIC: fast up to the assumed limit, slowly around it, and faster
beyond it, since the limit may have been raised. The rate takes 150 answers to grow from 1.5 % below the limit to the
limit, and 150 more to reach 1.5 % above it.
"""
_PROBE_SECONDS = 0.1
_PROBE_SHARE = 0.1
"""Time between two probes: the minimum, and as a share of the duration of the block."""
_LLR_STOP = 4.0
"""Log likelihood ratio at which a trial ends; one decision in fifty is wrong."""
_LATE_SECONDS = 0.02
"""Maximum delay of a request that later requests may make up for."""
_SEEK_EVERY = 8
"""Number of requests after which the rate is doubled, if it was estimated from very few."""
_MIN_LATENCY_CONCURRENCY = 32
"""Minimum concurrency at which the latencies of a round trip are meaningful."""
_MAX_SLOWDOWN = 1.75
"""Latency ratio, relative to half the concurrency, beyond which doubling gained almost nothing."""


@dataclass(slots=True, eq=False)
class Permit:
    """A request, with the time it was sent, the number of requests in flight at that time, and its outcome."""

    started: float
    in_flight: int = 1
    problem: CallFailed | None = None
    seconds: float | None = None
    """Seconds until it was answered or refused; None until then."""
    counted: bool = False

    @property
    def refused(self) -> bool:
        return self.problem is not None and self.problem.kind == "rate limit"


@dataclass(slots=True)
class _Span:
    """Statistics of the requests that were sent since a certain time, under the same conditions."""

    start: float
    first: float | None = None
    """Time when the first request was sent."""
    sent: float = 0.0
    refused: float = 0.0
    failed: float = 0.0
    seconds: float = 0.0
    answers: int = 0
    most_admitted: int = 0
    """Largest number of requests in flight when one was admitted, including itself."""
    sum_admitted: float = 0.0
    squares: float = 0.0
    sum_refused: float = 0.0

    def add(self, permit: Permit) -> None:
        self.first = permit.started if self.first is None else self.first
        self.sent += 1
        if permit.refused:
            self.refused += 1
            self.sum_refused += permit.in_flight
            return
        self.sum_admitted += permit.in_flight
        self.squares += permit.in_flight**2
        self.most_admitted = max(self.most_admitted, permit.in_flight)
        self.failed += permit.problem is not None and permit.problem.is_transient
        if permit.problem is None and permit.seconds is not None:
            self.answers += 1
            self.seconds += permit.seconds

    def merge(self, other: _Span) -> None:
        """Add a later span."""
        keep = min(1.0, _MAX_HISTORY / self.sent) if self.sent else 1.0
        self.sent = keep * self.sent + other.sent
        self.refused = keep * self.refused + other.refused
        self.failed = keep * self.failed + other.failed
        self.seconds = other.seconds
        self.answers = other.answers

    @property
    def admitted(self) -> float:
        return self.sent - self.refused

    @property
    def share(self) -> float:
        return self.refused / self.sent if self.sent else 0.0

    @property
    def in_flight(self) -> float:
        return self.sum_admitted / self.admitted if self.admitted else 0.0

    @property
    def in_flight_refused(self) -> float:
        return self.sum_refused / self.refused if self.refused else 0.0

    @property
    def latency(self) -> float:
        return self.seconds / self.answers if self.answers else math.inf

    def refuses_more_than(self, other: _Span) -> bool:
        return _rises(other.share, other.sent, self.refused, self.sent, least=3)

    def fails_more_than(self, other: _Span) -> bool:
        return _rises(
            other.failed / max(1.0, other.sent),
            other.sent,
            self.failed,
            self.sent,
            least=1,
        )


def _rate(count: float, seconds: float) -> float:
    return max(1.0, count) / max(seconds, 1e-3)


def _rises(
    usual: float, known_from: float, count: float, of: float, least: int
) -> bool:
    """Whether a count is more than two standard deviations above what the usual share predicts."""
    variance = usual * (1 - usual) * of * (1 + of / max(known_from, 1.0))
    return count >= least and count > usual * of + 2 * math.sqrt(variance)


@dataclass(slots=True)
class _Trial:
    """A test of whether refusals depend on the rate. At a lower rate, Wald's sequential test compares the hypotheses
    "as many refusals as before" and "an eighth as many".
    """

    before: _Span
    usual: float
    """Share of refusals that remains if there is a limit."""
    rate: float
    limit: float
    """Concurrency to return to if there is no limit."""
    target: float
    """Rate to continue with if there is a limit."""
    mild: bool
    depth: int
    """Number of earlier trials at higher rates."""
    evidence: float = 0.0

    def add(self, *, refused: bool) -> None:
        share = min(self.before.share, 0.99)
        less = max(share / 8, min(self.usual, share / 2))
        self.evidence += math.log(share / less if refused else (1 - share) / (1 - less))

    def verdict(self, span: _Span) -> bool | None:
        """Return True if there is a limit, False if refusals are random, or None if it is undecided."""
        if span.sent < _BLOCK_AFTER or (
            abs(self.evidence) < _LLR_STOP and span.sent < _SPAN
        ):
            return None
        return self.evidence < 0


class Throttle:
    """Concurrency and rate of the requests to one judge."""

    def __init__(self, concurrency: int | None) -> None:
        self.ceiling = concurrency or CEILING
        self.limit = float(concurrency or START)
        """Maximum number of requests in flight."""
        self.rate = math.inf
        """Maximum number of requests per second."""
        self.in_flight = 0
        self._ramp = concurrency is None
        """Whether the limit doubles every round trip."""
        self._next = 0.0
        self._unevaluated: deque[Permit] = deque()
        self._unevaluated_refusals = 0
        self._refusal: float | None = None
        """Seconds that a refusal takes. A request that is not refused by then counts as admitted."""
        self._refusals_in_row = 0
        self._blocked: float | None = None
        self._cycle: float | None = None
        """Time since which `_admitted` is counted: the first request, or the end of the last block."""
        self._admitted = 0
        self._span = _Span(0.0)
        self._usual = _Span(0.0)
        """Earlier spans at a rate that was not too high."""
        self._trial: _Trial | None = None
        self._good_rate = 0.0
        """Latest rate without unusually many refusals."""
        self._target_rate = math.inf
        self._answers = 0
        self._answers_to_target = 0.0
        self._step = 1.0
        """Factor by which the rate grows after a few requests, while it is an estimate from very few requests."""

    @property
    def blocked(self) -> bool:
        """Whether all requests are currently refused."""
        return self._blocked is not None

    def blocked_for(self, now: float) -> float:
        return 0.0 if self._blocked is None else now - self._blocked

    # --- sending ----------------------------------------------------------------------------------------------

    def wait(self, now: float) -> float:
        """Return the number of seconds until the next request may be sent, or until this method should be called again."""
        self._evaluate(now)
        evaluated = math.inf
        if self._unevaluated:
            evaluated = self._unevaluated[0].started + self._patience + 1e-6
        if self._blocked is not None:
            return min(self._next, evaluated) - now
        # Refusals are quick: evaluate those so far before provoking more.
        if self._unevaluated_refusals >= max(_BLOCK_AFTER, self.limit / 2):
            return max(self._next, evaluated) - now
        return self._next - now

    def send(self, now: float) -> Permit:
        if self._cycle is None:
            self._cycle = now
            self._span = _Span(now)
        if self._blocked is not None:
            self._next = now + max(_PROBE_SECONDS, _PROBE_SHARE * (now - self._blocked))
        else:
            self._next = max(self._next, now - _LATE_SECONDS) + 1 / self.rate
        self.in_flight += 1
        permit = Permit(now, self.in_flight)
        self._unevaluated.append(permit)
        return permit

    def done(self, permit: Permit, now: float) -> None:
        self.in_flight -= 1
        permit.seconds = now - permit.started
        if permit.refused:
            self._refusal = max(permit.seconds, 0.95 * (self._refusal or 0.0))
            if permit.counted:  # as admitted, since it took so long
                self._span.refused += 1
            else:
                self._unevaluated_refusals += 1
            if (
                self._blocked is not None
                and permit.problem
                and permit.problem.retry_after
            ):
                # The server rounds up to whole seconds.
                self._next = max(self._next, now + permit.problem.retry_after - 1)
        self._evaluate(now)

    def drop(self, permit: Permit) -> None:
        """Forget a request that was never sent or was cancelled."""
        self.in_flight -= 1
        if not permit.counted:
            self._unevaluated.remove(permit)

    # --- what became of it ------------------------------------------------------------------------------------

    @property
    def _patience(self) -> float:
        return math.inf if self._refusal is None else 1.5 * self._refusal + 0.05

    def _evaluate(self, now: float) -> None:
        while self._unevaluated:
            first = self._unevaluated[0]
            if first.seconds is None and now - first.started < self._patience:
                return
            self._unevaluated.popleft()
            first.counted = True
            self._unevaluated_refusals -= first.refused
            self._count(first, now)

    def _count(self, permit: Permit, now: float) -> None:
        self._refusals_in_row = self._refusals_in_row + 1 if permit.refused else 0
        if self._blocked is not None:
            if not permit.refused:
                self._unblock(permit)
            return
        self._admitted += not permit.refused
        in_span = permit.started >= self._span.start
        if in_span:
            self._span.add(permit)
        if self._refusals_in_row >= _BLOCK_AFTER:
            self._block(now)
        elif in_span and self._trial:
            self._observe_trial(self._trial, permit, now)
        elif in_span and permit.refused:
            self._note_refusal(permit, now)
        elif in_span:
            self._grow(permit)

    def _block(self, now: float) -> None:
        self._blocked = now
        self._trial = None
        self._next = now + _PROBE_SECONDS

    def _unblock(self, permit: Permit) -> None:
        now = permit.started
        span = self._span
        # Since the last block the server has admitted as much as it can, unless few requests were sent at first.
        seconds = 1.0 if span.first is None else now - span.first
        admitted_rate = max(self._average(now), _rate(span.admitted, seconds))
        before = self.rate
        # A few admitted requests may be a burst, or single ones between probes; and the server might have admitted
        # more than was sent.
        if self._admitted < _MIN_SAMPLE:
            self._step = 2.0
        else:
            self._step = 1.0 if before < math.inf else 1.25
        # The number admitted in a short time may be low because many were admitted just before.
        if before < math.inf:
            admitted_rate = max(admitted_rate, before / 2)
        self._good_rate = self._lower(admitted_rate, before)
        self.rate = min(before, self._good_rate * self._step)
        self._blocked = None
        self._usual = _Span(now)
        self._cycle = now
        self._admitted = 1
        self._next = now + 1 / self.rate
        self._span = _Span(now)

    def _lower(self, admitted_rate: float, before: float) -> float:
        """Lower the rate to just below `admitted_rate`. Then aim between it and `before`, since the limit must be
        between the two. Return the new rate.
        """
        self.rate = min(before, _SAFETY * admitted_rate)
        self._aim(math.sqrt(self.rate * min(before, _MAX_RATIO * self.rate)))
        return self.rate

    def _average(self, now: float) -> float:
        """Return the number of requests admitted per second since the last block."""
        return _rate(self._admitted, now - (self._cycle or 0.0))

    def _cap(self, span: _Span) -> None:
        """Lower the concurrency if refusals occurred while more requests than usual were in flight."""
        if not span.admitted:
            return
        deviation = math.sqrt(
            max(0.0, span.squares / span.admitted - span.in_flight**2)
        )
        # If all answers take equally long, limiting the rate is as good, and a lower concurrency may be the effect of
        # a rate limit.
        refused_at = span.in_flight + 1.5 * deviation
        if deviation > 0.5 and span.in_flight_refused > refused_at:
            self.limit = max(1.0, min(self.limit, span.in_flight_refused - 1))
            self._ramp = False

    def _note_refusal(self, permit: Permit, now: float) -> None:
        span = self._span
        if self._step > 1:
            # Go back, and continue in smaller steps.
            self.rate = self._good_rate
            self._step = math.sqrt(self._step)
            self._step = self._step if self._step > 1.05 else 1.0
            self._aim(self.rate)
            self._next = now + 1 / self.rate
            self._span = _Span(now)
            return
        enough = _MIN_SAMPLE
        if self.rate == math.inf:
            # Requests come in waves as large as the number in flight, so a rate must be measured over whole waves.
            enough = max(enough, 2 * int(self.limit))
        if span.sent < enough or not span.refuses_more_than(self._usual):
            return
        if self._ramp and self.rate == math.inf and span.share <= 0.5:
            return  # the next doubling tells
        self._slow_down(permit, now)

    def _slow_down(self, permit: Permit, now: float) -> None:
        span = self._span
        # Send so many requests that, after random refusals, as many as before are admitted.
        usual = self._usual.share
        admitted = _rate(span.admitted, permit.started - span.start)
        admitted_rate = admitted / (1 - min(0.5, usual))
        target = min(self.rate, admitted_rate)
        good = max(
            _SAFETY * admitted_rate, 0.97 * max(self._good_rate, self._average(now))
        )
        good = min(_GENTLE_CUT * self.rate, good)
        # Try first the rate that was good a moment ago: a token bucket without burst admits half of a rate that is
        # slightly too high.
        mild = self._trial is None and good > target
        target = good if mild else target
        undone = self._trial or self
        depth = self._trial.depth + 1 if self._trial else 0
        self._trial = _Trial(
            span, usual, undone.rate, undone.limit, target, mild, depth
        )
        share = _FIRST_TRIAL if undone.rate == math.inf else _NEXT_TRIAL
        self.rate = target if mild else target * share
        self._next = now
        self._span = _Span(now)

    def _observe_trial(self, trial: _Trial, permit: Permit, now: float) -> None:
        trial.add(refused=permit.refused)
        limit = trial.verdict(self._span)
        if limit is None:
            return
        if self._span.share > trial.before.share + 0.2:
            self._block(now)  # more is refused at a lower rate: a window is used up
            return
        unsure = self._span.share > 1 / 3 and trial.depth < _MAX_TRIALS
        if not limit and (
            trial.mild or unsure or trial.before.refuses_more_than(self._span)
        ):
            self._slow_down(permit, now)
            return
        self._trial = None
        if limit:
            if trial.rate < math.inf:
                self._cap(trial.before)
            self._usual = self._usual if trial.mild else self._span
            self._lower(trial.target, trial.rate)
        else:
            self.rate = trial.rate
            self.limit = trial.limit
            self._usual = trial.before
            self._usual.merge(self._span)
            self._aim(self.rate)
        self._span = _Span(now)

    def _aim(self, rate: float) -> None:
        """Let the rate grow towards this value."""
        self._target_rate = rate
        self._answers = 0
        self._answers_to_target = (
            _PLATEAU * math.cbrt(max(0.0, 1 - self.rate / rate) / _GROWTH)
            if rate < math.inf
            else 0.0
        )

    def _grow(self, permit: Permit) -> None:
        span = self._span
        before = self._growth()
        self._answers = self._answers + 1
        growth = self._growth() / before
        if self.rate < math.inf and self._step == 1:
            self.rate = self._target_rate * self._growth()
        if permit.in_flight >= int(self.limit) and not self._ramp:
            self.limit = min(self.ceiling, self.limit * growth)
        ramps = self._ramp and (
            self.rate == math.inf or span.most_admitted >= int(self.limit)
        )
        length = int(self.limit) if ramps else _SPAN
        if span.sent >= (_SEEK_EVERY if self._step > 1 else length):
            self._end_span(span, _rate(span.sent, permit.started - span.start))
            self._span = _Span(permit.started)

    def _growth(self) -> float:
        return 1 + _GROWTH * ((self._answers - self._answers_to_target) / _PLATEAU) ** 3

    def _end_span(self, span: _Span, rate: float) -> None:
        """End a span that shows no signs of a limit. The next span may be faster."""
        if self._ramp:
            self._double(span)
        if span.refuses_more_than(self._usual) and self._usual.sent:
            return
        if self.rate == math.inf:
            self._usual.merge(span)
        self._good_rate = self.rate if rate > 0.8 * self.rate else rate
        if self.rate > 2 * rate:
            self.rate = math.inf  # it is not what holds requests back
            self._step = 1.0
        elif self._step > 1:
            self.rate *= self._step

    def _double(self, span: _Span) -> None:
        """Double the concurrency. It stays the same if the server fails more often than usual, if less than half of the
        limit was used, or if answers became so slow that doubling would gain little.
        """
        if span.fails_more_than(self._usual) or span.most_admitted < self.limit / 2:
            return
        if (
            self.limit >= _MIN_LATENCY_CONCURRENCY
            and span.answers
            and span.latency > _MAX_SLOWDOWN * self._usual.latency
        ):
            self._ramp = False
        else:
            self.limit = min(self.ceiling, 2 * self.limit)
            self._ramp = self.limit < self.ceiling
