"""Cost of judging: list prices, token estimates before a request is sent, and the budget."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import functools
import importlib.metadata
import itertools
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, SupportsFloat

from editjudge.errors import BudgetReached, InputError, Option, UsageError, did_you_mean
from editjudge.judgement import Usage
from editjudge.judges import read_yaml
from editjudge.judges.judge import GGUF, SERVERS, Options, is_local
from editjudge.judges.models import image_tokens, undated
from editjudge.rubrics.model import OTHER_KINDS, Rubric


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float
    cached: float | None = None
    as_of: str = field(default="", compare=False)
    """Date of the price, or the package that lists it."""
    long: Price | None = None
    """Price of a question with more than `long_from` tokens of input, if it differs."""
    long_from: int = 0

    def of(self, usage: Usage) -> float | None:
        """Return the cost of a reply, or None if the server did not report its tokens."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        if self.long and usage.input_tokens > self.long_from:
            return self.long.of(usage)
        cached = min(usage.cached_tokens or 0, usage.input_tokens)
        cached_price = self.input if self.cached is None else self.cached
        return (
            (usage.input_tokens - cached) * self.input
            + cached * cached_price
            + usage.output_tokens * self.output
        ) / 1e6

    def times(self, factor: float) -> Price:
        """Return this price multiplied by a factor."""
        cached = None if self.cached is None else self.cached * factor
        return Price(self.input * factor, self.output * factor, cached, self.as_of)


@dataclass(frozen=True)
class Prices:
    """A dated list of prices: the user's own file, which goes before the prices of the package `genai-prices`."""

    as_of: str = ""
    models: Mapping[str, Price] = field(default_factory=dict)
    batch: Mapping[str, float] = field(default_factory=dict)
    """Factor by which the price changes for a question in a batch, keyed by provider."""

    def of(self, spec: str, *, batch: bool = False) -> Price | None:
        """Return the price of a judge, or None if it is unknown. A dated snapshot of a model has that model's price."""
        price = self.models.get(spec) or self.models.get(undated(spec))
        if price is None:
            return listed_price(spec, batch)
        if not batch:
            return price
        factor = self.batch.get(spec.partition("/")[0])
        return None if factor is None else price.times(factor)


@functools.cache
def prices(path: Path | None = None) -> Prices:
    """Read the user's price file, if there is one."""
    import yaml

    file = path or os.environ.get("EDITJUDGE_PRICES")
    if not file:
        return Prices()
    chosen = Path(file)
    unreadable = (OSError, UnicodeDecodeError, yaml.YAMLError)
    try:
        data = read_yaml(chosen)
        as_of = str(data["as_of"])
        models = {
            spec: Price(**numbers, as_of=as_of)
            for spec, numbers in data["models"].items()
        }
        if any(
            {"long", "long_from"} & {*numbers} for numbers in data["models"].values()
        ):
            raise TypeError("expected input, output and cached")
        for spec, price in models.items():
            _check_amounts(spec, price.input, price.output, price.cached or 0)
        batch = dict(data.get("batch", {}))
        _check_amounts("batch", *batch.values())
        return Prices(as_of, models, batch)
    except (*unreadable, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{chosen}: not a price file ({error}); expected `as_of` and `models`, each with input and output",
            code="not_a_price_file",
        ) from None


def _check_amounts(name: str, *amounts: object) -> None:
    for amount in amounts:
        if not isinstance(amount, int | float) or not amount >= 0:  # also not NaN
            raise TypeError(f"{name}: expected numbers from 0")


LISTED = ("openai", "anthropic", "google", "openrouter", "azure")
"""Providers whose prices the package lists, under the same name. For others it is not imported, which takes .2 s."""


def listed_models(provider: str) -> list[str]:
    """Return the judges of a provider whose prices the package lists."""
    from genai_prices.data import providers

    models = (entry.models for entry in providers if entry.id == provider)
    return [f"{provider}/{model.id}" for model in itertools.chain(*models)]


@functools.cache
def listed_price(spec: str, batch: bool = False) -> Price | None:
    """Return the price of a judge that the package lists for today, or None if it lists none."""
    provider, _, name = spec.partition("/")
    if provider not in LISTED:
        return None
    from genai_prices.data import providers
    from genai_prices.types import TieredPrices

    entry = next(entry for entry in providers if entry.id == provider)
    model = entry.find_model(name, all_providers=providers)
    context = {"processing": "batch"} if batch else {}
    if model is None:
        return None
    if batch and context not in [v.when for v in model.price_variants or ()]:
        return None
    rates = model.get_prices(datetime.datetime.now(datetime.UTC), context)
    if rates.input_mtok is None or rates.output_mtok is None:
        return None
    columns = (rates.input_mtok, rates.output_mtok, rates.cache_read_mtok)
    tiered = [column for column in columns if isinstance(column, TieredPrices)]
    base = _price([c.base if isinstance(c, TieredPrices) else c for c in columns])
    if not tiered:
        return base
    # Beyond the first threshold the highest price is taken, because a budget must not be exceeded.
    highest = [c.tiers[-1].price if isinstance(c, TieredPrices) else c for c in columns]
    threshold = min(column.tiers[0].start for column in tiered)
    return dataclasses.replace(base, long=_price(highest), long_from=threshold)


def _price(rates: Sequence[SupportsFloat | None]) -> Price:
    """Return a price of the package: input, output and cached input."""
    as_of = f"genai-prices {importlib.metadata.version('genai-prices')}"
    cached = None if rates[2] is None else float(rates[2])
    return Price(float(rates[0] or 0), float(rates[1] or 0), cached, as_of)


def price_of(spec: str, options: Options, *, batch: bool = False) -> Price | None:
    """Return the price of a judge, or None if it is unknown. A judge that runs in this process costs nothing, and
    neither does a reward server.
    """
    if is_local(spec) or spec.startswith((GGUF, *SERVERS)):
        return Price(0.0, 0.0)
    return prices(options.prices).of(spec, batch=batch)


def near_price(spec: str, options: Options) -> str:
    """Return the end of a sentence about a judge without a price. It suggests a similar judge that has one."""
    provider = spec.partition("/")[0]
    names = [n for n in prices(options.prices).models if n.startswith(f"{provider}/")]
    return did_you_mean(spec, [*names, *listed_models(provider)])


_LENGTH_SETTINGS = (
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "maxOutputTokens",
    "n",
    "candidateCount",
)
"""Settings that can make an answer longer than the budget assumes."""


def check_budget(
    budget: float | None,
    judges: Sequence[str],
    options: Options,
    *,
    batch: bool = False,
) -> None:
    """Raise `UsageError` if the budget cannot be enforced for these judges."""
    if budget is None:
        return
    unknown = [spec for spec in judges if price_of(spec, options, batch=batch) is None]
    if unknown:
        raise UsageError(
            f"--budget needs to know what {', '.join(unknown)} costs{near_price(unknown[0], options)} "
            f"Give --prices FILE, a price file (`editjudge docs running`) with {unknown[0]} in it, or leave out --budget",
            options=[Option("budget"), Option("prices")],
            code="unknown_price",
        )
    for setting in _length_settings(options.extra):
        raise UsageError(
            f"--budget limits how long answers may be: say --max-tokens, and leave out -J {setting}",
            options=[Option("budget"), Option("max-tokens")],
            code="unbounded_answers",
        )


def _length_settings(extra: object) -> Iterator[str]:
    for name, value in extra.items() if isinstance(extra, Mapping) else ():
        if name in _LENGTH_SETTINGS:
            yield name
        yield from _length_settings(value)


# --- tokens ---------------------------------------------------------------------------------------------------


def max_image_tokens(spec: str, width: int, height: int) -> int:
    """Return an upper bound on the number of tokens of an image, over all the rules that the provider has published."""
    provider = spec.partition("/")[0]
    rule = image_tokens(spec, width, height)
    # 1,536 patches at 2.46 each (OpenAI), 4,784 (Anthropic), 2,240 (Gemini 3).
    if provider in ("anthropic", "google"):
        return max(rule, 4_784)
    # Newer OpenAI models count 1.2 tokens for each 32 x 32 pixels, and the user's own server may count each 28 x 28
    # pixels as a token without an upper bound, as Qwen-VL does.
    return max(rule, 4_784, math.ceil(width / 28) * math.ceil(height / 28))


def question_tokens(
    spec: str, sizes: Iterable[tuple[int, int]], characters: int
) -> int:
    """Estimate the number of tokens in a question: its images, and one token for every four characters of text. That is
    rather high for rubric text.
    """
    images = sum(image_tokens(spec, *size) for size in sizes)
    return images + math.ceil(characters / 4)


def answer_tokens(rubric: Rubric) -> int:
    """Estimate the number of tokens in an answer: 1.5 for each word, plus the keys around each factor's score."""
    length = rubric.answer.words[1] if rubric.answer.words else 80
    sections = 150 * (len(rubric.answer.sections) + rubric.answer.prose)
    others = sum(
        20 if other.endswith(OTHER_KINDS) else 100 for other in rubric.answer.others
    )
    return 30 + sections + others + len(rubric.factors) * (20 + math.ceil(1.5 * length))


_DEFAULT_EFFORTS = {
    r"(openai|azure)/(o\d|gpt-5(-|$))": "medium",
    r"google/gemini-2\.5-(pro|flash)(?!-lite)": "medium",
    r"google/gemini-3(\.1)?-(pro|flash)(?!-lite)": "high",
}
"""Models that think unless told otherwise, and their default effort as the vendors document it. OpenAI's models from
gpt-5.1 on have the default none; Gemini 2.5 chooses for itself, which is taken for medium."""
_THINKING_TOKENS = {"none": 0, "minimal": 256, "low": 256, "medium": 2_048}
_MOST_THINKING = 6_144
"""Assumed tokens of thinking about a question, by effort and for any higher one: a quarter of the budgets that Google
publishes for these efforts (1,024, 8,192 and 24,576). No model was measured."""


def thinking_tokens(spec: str, options: Options) -> int:
    """Return the assumed tokens of a model's thinking about a question, which are billed as output."""
    effort = options.reasoning_effort
    if effort is None:
        defaults = (e for p, e in _DEFAULT_EFFORTS.items() if re.match(p, spec))
        effort = next(defaults, "none")
    return _THINKING_TOKENS.get(effort, _MOST_THINKING)


# --- budget ---------------------------------------------------------------------------------------------------

DEFAULT_MAX_OUTPUT = 16_384
"""Token limit of an answer, unless the user sets one. It leaves room for thinking, and every model of the price list
accepts it. The Messages format always sends a limit; other formats send it only with a budget.
"""


class MaximumCost(NamedTuple):
    """Upper bound on the cost of one request, in US dollars."""

    prompt_cost: float
    cost_per_token: float
    """Cost of each token of the answer."""
    max_tokens: int
    """Token limit of the answer."""
    min_tokens: int
    """Minimum token limit. With fewer tokens the answer would be cut off, so the request is not sent."""

    def of(self, tokens: int) -> float:
        """Return the cost if the answer has this many tokens."""
        return self.prompt_cost + tokens * self.cost_per_token

    def tokens_within(self, money: float) -> int:
        """Return the maximum number of answer tokens that this amount pays for."""
        if not self.cost_per_token:
            return self.max_tokens if self.prompt_cost <= money else 0
        affordable = int((money - self.prompt_cost) / self.cost_per_token)
        return min(self.max_tokens, affordable)


class Shortfall(NamedTuple):
    """A request that the budget did not cover. Amounts are in US dollars."""

    budget: float
    spent: float
    next: float
    """Maximum cost of the next request, with the shortest useful answer."""


class BudgetProtocol(Protocol):
    """The budget of a run or of a batch."""

    bounded: bool
    """Whether there is a limit. If so, the length of answers must be limited too."""

    async def hold(self, most: MaximumCost) -> Reservation:
        """Reserve money for one request, waiting until enough is available. Raise `BudgetReached` if the budget cannot
        cover the request.
        """


class Budget:
    """A spending limit, with the amount spent and the amount reserved for requests in flight."""

    def __init__(self, budget: float | None = None) -> None:
        self._budget = budget
        self.bounded = budget is not None
        self.spent = 0.0
        self.reserved = 0.0
        self.estimated = 0.0
        """Part of `spent` for unanswered requests that may be billed."""
        self.open = 0
        """Number of open reservations."""
        self.short: Shortfall | None = None
        """First request that the budget did not cover. Nothing is reserved after it."""
        self._overrun = 1.0
        """Factor by which actual costs exceeded their upper bound."""
        self._stopped = False
        self._settled = asyncio.Event()

    async def hold(self, most: MaximumCost) -> Reservation:
        """Reserve money for one request, waiting until enough is available. Raise `BudgetReached` if the budget cannot
        cover the request.
        """
        while (hold := self.try_hold(most)) is None:
            self._settled.clear()
            await self._settled.wait()
        return hold

    def try_hold(self, most: MaximumCost) -> Reservation | None:
        """Reserve money for one request. Return None if there is not enough now, but other requests may free enough
        when they are settled.

        The answer to the last request that the budget covers may be limited to fewer tokens.
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
        """Make `hold` stop waiting, because the run is being stopped."""
        self._stopped = True
        self._settled.set()

    def settle(self, amount: float, cost: float | None) -> None:
        """Record the cost of a request for which this amount was reserved."""
        self.open -= 1
        self.reserved = self.reserved - amount if self.open else 0.0
        self.spent += amount if cost is None else cost
        # If a bound was too low, the bounds of later requests are corrected.
        if cost is not None and cost > amount > 0:
            self._overrun *= cost / amount
        self._settled.set()

    def _message(self) -> str:
        if self.short is None:
            return "the run was stopped"
        return f"${self.short.spent:.4f} of the budget of ${self.short.budget:g} is spent, and the next may pass it"


@dataclass(slots=True)
class Reservation:
    """Money reserved for one request. It is settled once."""

    budget: Budget
    amount: float
    tokens: int
    """Token limit of the answer: the requested limit, or fewer tokens if the budget allows no more."""
    refunded: bool = False
    """Whether an unanswered request is not billed, as in a batch."""

    def settle(self, cost: float | None) -> None:
        """Record the cost of the request. If it is None (unknown), the whole reservation counts as spent."""
        self.budget.settle(self.amount, cost)

    def lost(self) -> float:
        """Record the whole reservation as spent, since an unanswered request may be billed. Return the amount."""
        amount = 0.0 if self.refunded else self.amount
        self.budget.estimated += amount
        self.settle(amount)
        return amount
