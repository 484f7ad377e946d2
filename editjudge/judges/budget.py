"""Money: what one request can be billed at most, and a budget that is reserved from before each request is sent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from editjudge.errors import BudgetReached

MOST_OUTPUT = 16_384
"""Tokens of an answer where the user names no limit. It is what the Messages format is sent in any case, room for
thinking included, and every model of the price list takes it. Sent to the others only where a budget must hold."""


class MaximumCost(NamedTuple):
    """What one request can be billed at most, in US dollars."""

    question: float
    token: float
    """Of the answer."""
    tokens: int
    """That the answer may take."""
    least: int
    """Tokens below which an answer would be cut off: a request that is allowed fewer is not worth sending."""

    def of(self, tokens: int) -> float:
        return self.question + tokens * self.token

    def tokens_within(self, money: float) -> int:
        """How long an answer may be for so much money."""
        if not self.token:
            return self.tokens if self.question <= money else 0
        return min(self.tokens, int((money - self.question) / self.token))


class Shortfall(NamedTuple):
    """What a budget was too little for, in US dollars."""

    budget: float
    spent: float
    next: float
    """What the next request can be billed, with the shortest answer that is worth asking for."""


class Reservation(Protocol):
    """Money set aside for one request; settled once."""

    tokens: int
    """That the answer may take: as many as were wanted, or what the budget leaves."""

    def settle(self, cost: float | None) -> None:
        """What the request came to; None where nobody knows, so that the most counts as spent."""

    def lost(self) -> float:
        """No answer came, though the request may be billed: the most counts as spent. Answers how much."""


class BudgetProtocol(Protocol):
    """Who pays for requests: a budget of this process, that of a cluster, or that of a batch."""

    bounded: bool
    """Whether there is a budget: then the length of answers must be limited."""

    async def hold(self, most: MaximumCost) -> Reservation:
        """Money for one request, once there is enough; raises `BudgetReached` where there will not be."""


class Budget:
    """A budget, what was spent of it, and what is set aside for requests in flight.

    Reserving takes the same time however many are in flight.
    """

    def __init__(self, budget: float | None = None) -> None:
        self._budget = budget
        self.bounded = budget is not None
        self.spent = self.reserved = 0.0
        self.estimated = 0.0
        """Of what was spent, that for requests which brought no answer and may be billed."""
        self.open = 0
        """Requests that money is set aside for."""
        self.short: Shortfall | None = None
        """What there was not enough for; then nothing more is held."""
        self._dearer = 1.0
        self._stopped = False
        self._settled = asyncio.Event()

    async def hold(self, most: MaximumCost) -> Reservation:
        while (hold := self.try_hold(most)) is None:
            self._settled.clear()
            await self._settled.wait()
        return hold

    def try_hold(self, most: MaximumCost) -> BudgetReservation | None:
        """None where there is not enough now, and may be once what is in flight is settled. The last request that can
        be paid for is allowed a shorter answer."""
        if self._stopped or self.short:
            raise BudgetReached(self._message())
        tokens = most.tokens
        if self._budget is not None:
            left = (self._budget - self.spent - self.reserved) / self._dearer
            if most.of(tokens) > left:
                if self.open:
                    return None
                tokens = most.tokens_within(left)
                if tokens < most.least:
                    self.short = Shortfall(self._budget, self.spent, self._dearer * most.of(most.least))
                    raise BudgetReached(self._message())
        amount = self._dearer * most.of(tokens)
        self.reserved += amount
        self.open += 1
        return BudgetReservation(self, amount, tokens)

    def stop(self) -> None:
        """The run is being stopped: who waits for money leaves."""
        self._stopped = True
        self._settled.set()

    def settle(self, amount: float, cost: float | None) -> None:
        self.open -= 1
        self.reserved = self.reserved - amount if self.open else 0.0
        self.spent += amount if cost is None else cost
        if cost is not None and cost > amount > 0:  # a bound that proved too low is corrected for all that follow
            self._dearer *= cost / amount
        self._settled.set()

    def _message(self) -> str:
        if self.short is None:
            return "the run was stopped"
        return f"${self.short.spent:.4f} of the budget of ${self.short.budget:g} is spent, and the next may pass it"


@dataclass(slots=True)
class BudgetReservation:
    budget: Budget
    amount: float
    tokens: int

    def settle(self, cost: float | None) -> None:
        self.budget.settle(self.amount, cost)

    def lost(self) -> float:
        self.budget.estimated += self.amount
        self.settle(None)
        return self.amount
