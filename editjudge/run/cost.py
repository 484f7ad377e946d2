"""What a run will cost: the most for one task, and the estimate for all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from editjudge.errors import UsageError, near_miss
from editjudge.judgement import Judgement
from editjudge.judges.prices import Price, answer_tokens, prices, question_tokens
from editjudge.judges.registry import Options, is_local
from editjudge.judges.work import Work

_REASONS = 500
"""Tokens that tell a judge why its reply cannot be used, and what the answer must be; about, and rather too many."""


@dataclass
class Estimate:
    """What one judge is going to be asked."""

    judge: str
    calls: int = 0
    images: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    price: float | None = None
    """In US dollars; None: unknown."""
    batch_price: float | None = None
    """By `--batch`; None: unknown, or there are no batches."""
    as_of: str = ""
    """The date of the price list."""
    seconds: float | None = None
    """At the rates that were given; None: unknown."""
    interval: dict[str, tuple[float, float]] = field(default_factory=dict)
    """With 95 % confidence, of each number that comes from a sample."""

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


class Shortage(NamedTuple):
    """What a budget was too little for, in US dollars."""

    budget: float
    spent: float
    next: float
    """The most that the next task can cost."""


class Purse:
    """A budget, what was spent of it, and what is set aside for tasks in flight."""

    def __init__(self, budget: float | None = None, most: Callable[[Work], float] = lambda _: 0.0) -> None:
        self._budget, self._most, self._spent, self._dearer = budget, most, 0.0, 1.0
        self.reserved: dict[str, float] = {}
        """The most that each task in flight can cost, by key."""
        self.short: Shortage | None = None
        """Of the latest task that there was not enough for."""

    def reserve(self, work: Work, *, owed: bool = False) -> bool:
        """Set aside the most that a task can cost, if there is that much; what is `owed` already in any case."""
        return self.set_aside(work.task.key, self._most(work) if self._budget is not None else 0.0, owed)

    def set_aside(self, key: str, most: float, owed: bool = False) -> bool:
        feared = self._spent + self._dearer * (sum(self.reserved.values()) + most)
        if self._budget is None or feared <= self._budget or owed:
            self.reserved[key] = most
            return True
        self.short = Shortage(self._budget, self._spent, self._dearer * most)
        return False

    def release(self, work: Work) -> None:
        self.reserved.pop(work.task.key, None)

    def pay(self, judgement: Judgement) -> None:
        unknown = judgement.cost is None and judgement.exchanges
        self.settle(judgement.key, None if unknown else judgement.cost or 0.0)

    def settle(self, key: str, cost: float | None) -> None:
        """What a task came to; where nobody knows, the most that was feared."""
        most = self.reserved.pop(key, 0.0)
        self._spent += most if cost is None else cost
        if most and cost is not None:  # an estimate that proved too low is corrected for all that follow
            self._dearer = max(self._dearer, cost / most)


class Costs:
    """Prices of a run's judges, applied to its tasks."""

    def __init__(self, options: Options, budget: float | None, judges: Sequence[str], *, batch: bool = False) -> None:
        self._options = options
        self._prices = {spec: _price(spec, options, batch=batch) for spec in judges}
        self._batch_prices = {spec: prices(options.prices).of(spec, batch=True) for spec in judges}
        unknown = [spec for spec, price in self._prices.items() if price is None]
        if budget is not None and unknown:
            raise UsageError(
                f"--budget needs to know what {', '.join(unknown)} costs{meant(unknown[0], options)} "
                f"Give --prices FILE, a price file (docs/running.md) with {unknown[0]} in it, or leave out --budget"
            )

    def most(self, work: Work) -> float:
        """What a task costs if every ask is needed and every answer is as long as it may be."""
        price = self._prices[work.task.judge]
        if price is None or work.problem or is_local(work.task.judge):
            return 0.0
        asks = 1 + self._options.reasks
        output = self._options.parameters.max_tokens or 4 * answer_tokens(work.rubric)
        # Each further ask repeats what was said before: the useless reply, and what was wrong with it.
        repeated = asks * (asks - 1) // 2 * (output + _REASONS)
        return ((asks * input_tokens(work) + repeated) * price.input + asks * output * price.output) / 1e6

    def estimate(self, judge: str) -> Estimate:
        """An empty estimate, to be added to."""
        free = [None if price is None else 0.0 for price in (self._prices[judge], self._batch_prices[judge])]
        return Estimate(judge, price=free[0], batch_price=free[1], as_of=prices(self._options.prices).as_of)

    def add(self, estimate: Estimate, works: Iterable[Work]) -> None:
        """What is likely: one ask a task."""
        price, batch = self._prices[estimate.judge], self._batch_prices[estimate.judge]
        for work in works:
            if work.problem is None and not is_local(estimate.judge):
                asked, answered = input_tokens(work), answer_tokens(work.rubric)
                estimate.calls += 1
                estimate.images += len(work.rubric.images)
                estimate.input_tokens += asked
                estimate.output_tokens += answered
                if price and estimate.price is not None:
                    estimate.price += (asked * price.input + answered * price.output) / 1e6
                if batch and estimate.batch_price is not None:
                    estimate.batch_price += (asked * batch.input + answered * batch.output) / 1e6


def input_tokens(work: Work) -> int:
    """About what the question of a task counts."""
    sizes = [work.sizes[role] for role in work.rubric.images]
    return question_tokens(work.task.judge.partition("/")[0], sizes, str(work.question()))


def meant(spec: str, options: Options) -> str:
    """Ends a sentence about a judge whose price is unknown: which of its provider's priced ones may be meant."""
    provider = f"{spec.partition('/')[0]}/"
    return near_miss(spec, (known for known in prices(options.prices).models if known.startswith(provider)))


def _price(spec: str, options: Options, *, batch: bool) -> Price | None:
    return Price(0.0, 0.0) if is_local(spec) else prices(options.prices).of(spec, batch=batch)
