"""The expected cost of a run, before anything is asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from editjudge.errors import Option, UsageError, near_miss
from editjudge.judges.cost import Price, answer_tokens, prices, question_tokens
from editjudge.judges.judge import GGUF, Options, Work, is_local

_LIMITS = (
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "maxOutputTokens",
    "n",
    "candidateCount",
)
"""Settings by which an answer may become longer than a budget reckons with."""


@dataclass
class Estimate:
    """Expected questions to one judge, and their cost."""

    judge: str
    calls: int = 0
    images: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    price: float | None = None
    """In US dollars; None: unknown."""
    batch_price: float | None = None
    """Price with `--batch`; None: unknown, or there are no batches."""
    as_of: str = ""
    """The date of the price list."""
    seconds: float | None = None
    """Duration at the given rates; None: unknown."""
    interval: dict[str, tuple[float, float]] = field(default_factory=dict)
    """95 % confidence interval of each number that comes from a sample."""

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


class Costs:
    """Prices of a run's judges, applied to its tasks."""

    def __init__(
        self,
        options: Options,
        budget: float | None,
        judges: Sequence[str],
        *,
        batch: bool = False,
    ) -> None:
        self._options = options
        self._prices = {spec: _price(spec, options, batch=batch) for spec in judges}
        self._batch_prices = {
            spec: prices(options.prices).of(spec, batch=True) for spec in judges
        }
        unknown = [spec for spec, price in self._prices.items() if price is None]
        if budget is not None and unknown:
            raise UsageError(
                f"--budget needs to know what {', '.join(unknown)} costs{meant(unknown[0], options)} "
                f"Give --prices FILE, a price file (docs/running.md) with {unknown[0]} in it, or leave out --budget",
                options=[Option("budget"), Option("prices")],
            )
        if budget is not None and (
            own := next(_limits(options.parameters.extra), None)
        ):
            raise UsageError(
                f"--budget limits how long answers may be: say --max-tokens, and leave out -J {own}",
                options=[Option("budget"), Option("max-tokens")],
            )

    def estimate(self, judge: str) -> Estimate:
        """An empty estimate, to be added to."""
        free = [
            None if price is None else 0.0
            for price in (self._prices[judge], self._batch_prices[judge])
        ]
        return Estimate(
            judge,
            price=free[0],
            batch_price=free[1],
            as_of=prices(self._options.prices).as_of,
        )

    def add(self, estimate: Estimate, works: Iterable[Work]) -> None:
        """Add the likely questions: one for each task."""
        price = self._prices[estimate.judge]
        batch = self._batch_prices[estimate.judge]
        for work in works:
            if work.problem is None and not is_local(estimate.judge):
                question = input_tokens(work)
                answer = answer_tokens(work.rubric)
                estimate.calls += 1
                estimate.images += len(work.images)
                estimate.input_tokens += question
                estimate.output_tokens += answer
                if price and estimate.price is not None:
                    estimate.price += (
                        question * price.input + answer * price.output
                    ) / 1e6
                if batch and estimate.batch_price is not None:
                    estimate.batch_price += (
                        question * batch.input + answer * batch.output
                    ) / 1e6


def input_tokens(work: Work) -> int:
    """About what the question of a task counts."""
    sizes = [work.sizes[role] for role in work.images]
    return question_tokens(
        work.task.judge.partition("/")[0], sizes, len(str(work.question()))
    )


def meant(spec: str, options: Options) -> str:
    """Ends a sentence about a judge whose price is unknown: which of its provider's priced ones may be meant."""
    provider = f"{spec.partition('/')[0]}/"
    return near_miss(
        spec,
        (
            known
            for known in prices(options.prices).models
            if known.startswith(provider)
        ),
    )


def _price(spec: str, options: Options, *, batch: bool) -> Price | None:
    return (
        Price(0.0, 0.0)
        if is_local(spec) or spec.startswith(GGUF)
        else prices(options.prices).of(spec, batch=batch)
    )


def _limits(extra: object) -> Iterator[str]:
    for name, value in extra.items() if isinstance(extra, Mapping) else ():
        if name in _LIMITS:
            yield name
        yield from _limits(value)
