"""Cost of asking: list prices, token estimates made before a request is sent, and a budget that holds."""

from __future__ import annotations

import asyncio
import functools
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from editjudge.errors import BudgetReached, InputError, Option, UsageError, did_you_mean
from editjudge.judgement import Usage
from editjudge.judges import read_yaml
from editjudge.judges.judge import GGUF, Options, is_local
from editjudge.rubrics.model import Rubric

BUILTIN = Path(__file__).parent / "prices.yaml"


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float
    cached: float | None = None

    def of(self, usage: Usage) -> float | None:
        """Return the cost of a reply; None if the server did not count its tokens."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        cached = min(usage.cached_tokens or 0, usage.input_tokens)
        cached_price = self.input if self.cached is None else self.cached
        return (
            (usage.input_tokens - cached) * self.input
            + cached * cached_price
            + usage.output_tokens * self.output
        ) / 1e6

    def times(self, factor: float) -> Price:
        """Return a share of the price."""
        cached = None if self.cached is None else self.cached * factor
        return Price(self.input * factor, self.output * factor, cached)


@dataclass(frozen=True)
class Prices:
    """A dated list of prices."""

    as_of: str
    models: Mapping[str, Price]
    batch: Mapping[str, float] = field(default_factory=dict)
    """Share of the price that a question in a batch costs, by provider."""

    def of(self, spec: str, *, batch: bool = False) -> Price | None:
        """Return the price of a judge, for a dated snapshot that of its model; None if it is unknown."""
        undated = re.sub(r"[-@](?:\d{4}-?\d{2}-?\d{2}|latest)$", "", spec)
        price = self.models.get(spec) or self.models.get(undated)
        if price is None or not batch:
            return price
        factor = self.batch.get(spec.partition("/")[0])
        return None if factor is None else price.times(factor)


@functools.cache
def prices(path: Path | None = None) -> Prices:
    """Read the user's price file, else the built-in one."""
    import yaml

    chosen = path or Path(os.environ.get("EDITJUDGE_PRICES") or BUILTIN)
    unreadable = (OSError, UnicodeDecodeError, yaml.YAMLError)
    try:
        data = read_yaml(chosen)
        models = {spec: Price(**numbers) for spec, numbers in data["models"].items()}
        for spec, price in models.items():
            _check_amounts(spec, price.input, price.output, price.cached or 0)
        batch = dict(data.get("batch", {}))
        _check_amounts("batch", *batch.values())
        return Prices(str(data["as_of"]), models, batch)
    except (*unreadable, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{chosen}: not a price file ({error}); expected `as_of` and `models`, each with input and output"
        ) from None


def _check_amounts(name: str, *amounts: object) -> None:
    for amount in amounts:
        if not isinstance(amount, int | float) or not amount >= 0:  # also not NaN
            raise TypeError(f"{name}: expected numbers from 0")


def price_of(spec: str, options: Options, *, batch: bool = False) -> Price | None:
    """Return the price of a judge; None if it is unknown. A judge in this process costs nothing."""
    if is_local(spec) or spec.startswith(GGUF):
        return Price(0.0, 0.0)
    return prices(options.prices).of(spec, batch=batch)


def near_price(spec: str, options: Options) -> str:
    """Return the end of a sentence about a judge whose price is unknown: a priced one that may be meant."""
    provider = f"{spec.partition('/')[0]}/"
    models = prices(options.prices).models
    return did_you_mean(spec, (name for name in models if name.startswith(provider)))


_LENGTH_SETTINGS = (
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "maxOutputTokens",
    "n",
    "candidateCount",
)
"""Settings by which an answer may become longer than a budget reckons with."""


def check_budget(
    budget: float | None,
    judges: Sequence[str],
    options: Options,
    *,
    batch: bool = False,
) -> None:
    """Raise `UsageError` if a budget cannot be kept with these judges."""
    if budget is None:
        return
    unknown = [spec for spec in judges if price_of(spec, options, batch=batch) is None]
    if unknown:
        raise UsageError(
            f"--budget needs to know what {', '.join(unknown)} costs{near_price(unknown[0], options)} "
            f"Give --prices FILE, a price file (docs/running.md) with {unknown[0]} in it, or leave out --budget",
            options=[Option("budget"), Option("prices")],
        )
    for setting in _length_settings(options.parameters.extra):
        raise UsageError(
            f"--budget limits how long answers may be: say --max-tokens, and leave out -J {setting}",
            options=[Option("budget"), Option("max-tokens")],
        )


def _length_settings(extra: object) -> Iterator[str]:
    for name, value in extra.items() if isinstance(extra, Mapping) else ():
        if name in _LENGTH_SETTINGS:
            yield name
        yield from _length_settings(value)


# --- tokens ---------------------------------------------------------------------------------------------------


def image_tokens(provider: str, width: int, height: int) -> int:
    """Estimate the tokens of an image by the provider's published rule; the server's own count is recorded."""
    if provider == "anthropic":
        shrink = min(1.0, 1568 / max(width, height))
        return math.ceil(width * shrink * height * shrink / 750)
    if provider == "google":
        return 258 * max(1, math.ceil(width / 768) * math.ceil(height / 768))
    # OpenAI's rule for gpt-4o and gpt-4.1, which others come close to: 170 a tile of 512 pixels, and 85.
    shrink = min(1.0, 2048 / max(width, height))
    shrink *= min(1.0, 768 / (min(width, height) * shrink))
    return 85 + 170 * math.ceil(width * shrink / 512) * math.ceil(height * shrink / 512)


def max_image_tokens(spec: str, width: int, height: int) -> int:
    """Return an upper bound on the tokens of an image, by any rule that its provider has published for any model."""
    provider, _, model = spec.partition("/")
    rule = image_tokens(provider, width, height)
    # It counts 2,833 where others count 85, and 5,667 where they count 170.
    if "4o-mini" in model:
        return 34 * rule
    # 1,536 patches at 2.46 each (OpenAI), 4,784 (Anthropic), 2,240 (Gemini 3).
    if provider in ("openai", "azure", "anthropic", "google"):
        return max(rule, 4_784)
    # The user's own server may count each 28 x 28 pixels as a token, as Qwen-VL does, without a bound.
    return max(rule, 4_784, math.ceil(width / 28) * math.ceil(height / 28))


def question_tokens(
    provider: str, sizes: Iterable[tuple[int, int]], characters: int
) -> int:
    """Estimate the tokens of a question: its images, and one for each four characters of text, which is on the high
    side for rubric text."""
    return sum(image_tokens(provider, *size) for size in sizes) + math.ceil(
        characters / 4
    )


def answer_tokens(rubric: Rubric) -> int:
    """Estimate the tokens of an answer: a word is a token and a half, and each factor has keys around its score."""
    length = rubric.answer.words[1] if rubric.answer.words else 80
    sections = 150 * len(rubric.answer.sections)
    return 30 + sections + len(rubric.factors) * (20 + math.ceil(1.5 * length))


# --- budget ---------------------------------------------------------------------------------------------------

DEFAULT_MAX_OUTPUT = 16_384
"""Token limit of an answer if the user sets none. It is what the Messages format is sent in any case, room for
thinking included, and every model of the price list takes it. Sent to the others only if there is a budget."""


class MaximumCost(NamedTuple):
    """Upper bound on the bill of one request, in US dollars."""

    prompt_cost: float
    cost_per_token: float
    """Cost of each token of the answer."""
    max_tokens: int
    """Token limit of the answer."""
    min_tokens: int
    """Token limit below which an answer would be cut off: such a request is not worth sending."""

    def of(self, tokens: int) -> float:
        """Return the cost with an answer of this length."""
        return self.prompt_cost + tokens * self.cost_per_token

    def tokens_within(self, money: float) -> int:
        """Return how long an answer may be for this amount."""
        if not self.cost_per_token:
            return self.max_tokens if self.prompt_cost <= money else 0
        affordable = int((money - self.prompt_cost) / self.cost_per_token)
        return min(self.max_tokens, affordable)


class Shortfall(NamedTuple):
    """A budget that did not cover the next request, in US dollars."""

    budget: float
    spent: float
    next: float
    """Bound on the cost of the next request, with the shortest answer that is worth requesting."""


class BudgetProtocol(Protocol):
    """The budget of a run or of a batch."""

    bounded: bool
    """Whether there is a limit: then the length of answers must be limited."""

    async def hold(self, most: MaximumCost) -> Reservation:
        """Reserve money for one request, once there is enough; raise `BudgetReached` if there will not be."""


class Budget:
    """A limit, the amount spent, and the amount reserved for requests in flight."""

    def __init__(self, budget: float | None = None) -> None:
        self._budget = budget
        self.bounded = budget is not None
        self.spent = 0.0
        self.reserved = 0.0
        self.estimated = 0.0
        """Part of `spent` that is for requests which brought no answer and may be billed."""
        self.open = 0
        """Number of open reservations."""
        self.short: Shortfall | None = None
        """The first request that there was not enough for; after it nothing more is reserved."""
        self._overrun = 1.0
        """Factor by which bills exceeded their bound."""
        self._stopped = False
        self._settled = asyncio.Event()

    async def hold(self, most: MaximumCost) -> Reservation:
        """Reserve money for one request, once there is enough; raise `BudgetReached` if there will not be."""
        while (hold := self.try_hold(most)) is None:
            self._settled.clear()
            await self._settled.wait()
        return hold

    def try_hold(self, most: MaximumCost) -> Reservation | None:
        """Reserve money for one request; None if there may be enough once others are settled.

        The last request that can be paid for is allowed a shorter answer.
        """
        if self._stopped or self.short:
            raise BudgetReached(self._message())
        tokens = most.max_tokens
        if self._budget is not None:
            left = (self._budget - self.spent - self.reserved) / self._overrun
            if most.of(tokens) > left:
                if self.open:
                    return None
                tokens = most.tokens_within(left)
                if tokens < most.min_tokens:
                    needed = self._overrun * most.of(most.min_tokens)
                    self.short = Shortfall(self._budget, self.spent, needed)
                    raise BudgetReached(self._message())
        amount = self._overrun * most.of(tokens)
        self.reserved += amount
        self.open += 1
        return Reservation(self, amount, tokens)

    def stop(self) -> None:
        """End the waiting of `hold` since the run is being stopped."""
        self._stopped = True
        self._settled.set()

    def settle(self, amount: float, cost: float | None) -> None:
        """Book the cost of a request that this amount was reserved for."""
        self.open -= 1
        self.reserved = self.reserved - amount if self.open else 0.0
        self.spent += amount if cost is None else cost
        # A bound that proved too low is corrected for all that follow.
        if cost is not None and cost > amount > 0:
            self._overrun *= cost / amount
        self._settled.set()

    def _message(self) -> str:
        if self.short is None:
            return "the run was stopped"
        return f"${self.short.spent:.4f} of the budget of ${self.short.budget:g} is spent, and the next may pass it"


@dataclass(slots=True)
class Reservation:
    """Money set aside for one request; settled once."""

    budget: Budget
    amount: float
    tokens: int
    """Token limit of the answer: the one requested, or what the budget leaves."""
    refunded: bool = False
    """Whether a request that brings no answer is not billed, as in a batch."""

    def settle(self, cost: float | None) -> None:
        """Book the cost of the request; None if it is unknown, so that the whole reservation counts as spent."""
        self.budget.settle(self.amount, cost)

    def lost(self) -> float:
        """Book the whole reservation as spent, since an unanswered request may be billed; return the amount."""
        amount = 0.0 if self.refunded else self.amount
        self.budget.estimated += amount
        self.settle(amount)
        return amount
