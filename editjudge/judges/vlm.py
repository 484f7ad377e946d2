"""A judge that talks: ask, check, and ask again with the reasons, until there is an answer or no patience left."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from editjudge.edit import Edit
from editjudge.errors import JudgeError
from editjudge.images import Limits
from editjudge.judgement import Exchange, Judgement, SchemaMode, Status
from editjudge.judges.conversation import Conversation, Parameters, Picture, Problem, Reply, Turn
from editjudge.judges.http import Transport
from editjudge.judges.providers import Endpoint
from editjudge.judges.replay import verdict_of
from editjudge.judges.work import Load, Pacing, Work
from editjudge.rubrics.contract import Failure, Remark, Verdict, check
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.prompt import Question, reask
from editjudge.rubrics.schema import answer_schema

REASKS = 2
"""How often a reply that was no answer is answered with the reasons."""
_QUOTED = 4_000
"""Characters of a useless reply that are shown to the model again; a runaway reply would cost more each time."""


class Talker:
    """A vision-language model behind an API."""

    def __init__(
        self,
        spec: str,
        endpoint: Endpoint,
        parameters: Parameters,
        pace: Pacing,
        transport: Transport,
        *,
        reasks: int = REASKS,
        strict: bool = False,
        want_schema: bool = True,
        price: Callable[[Any], float | None] = lambda _: None,
    ) -> None:
        self.spec = spec
        self.limits: Limits | None = endpoint.limits
        self.pace = pace
        self._endpoint = endpoint
        self._parameters = parameters
        self._transport = transport
        self._reasks = reasks
        self._strict = strict
        self._want_schema = want_schema
        self._schema_mode: SchemaMode = endpoint.schema_mode if want_schema else "prompt only"
        self._price = price

    def identity(self, edit: Edit, rubric: Rubric, repeat: int) -> Mapping[str, Any]:
        return {
            "judge": self.spec,
            "url": self._endpoint.url,
            "parameters": dataclasses.asdict(self._parameters),
            "schema": self._want_schema,
            "strict": self._strict,
        }

    async def judge(self, work: Work, load: Load) -> Judgement:
        question = work.question()
        pictures: dict[str, Picture] = {}
        for role in work.rubric.images:
            encoded = await load(role)
            pictures[role] = Picture(encoded.media_type, encoded.base64)
        async with self.pace.slot():
            return await self._converse(work, question, pictures)

    async def _converse(self, work: Work, question: Question, pictures: Mapping[str, Picture]) -> Judgement:
        exchanges: list[Exchange] = []
        turns: tuple[Turn, ...] = ()
        outcome: Verdict | Failure | None = None
        mode = self._mode(work.rubric)
        for _ in range(1 + self._reasks):
            mode = self._mode(work.rubric)
            try:
                exchange, outcome = await self._exchange(work, question, pictures, turns)
            except Problem as problem:
                return self._no_reply(work, problem, exchanges, mode)
            exchanges.append(exchange)
            if isinstance(outcome, Verdict):
                break
            if exchange.text:  # an empty turn is refused by some servers, and says nothing
                turns = (*turns, Turn(exchange.text[:_QUOTED], reask(outcome, question)))
        return verdict_of(work, outcome, exchanges, schema_mode=mode, cost=self._cost(exchanges))

    async def _exchange(
        self, work: Work, question: Question, pictures: Mapping[str, Picture], turns: tuple[Turn, ...]
    ) -> tuple[Exchange, Verdict | Failure]:
        reply, seconds, retries = await self._send(work, question, pictures, turns)
        outcome = check(
            work.rubric, reply.text, identifier=question.identifier, strict=self._strict, finish=reply.finish
        )
        exchange = Exchange(
            text=reply.text,
            outcome=outcome.status,
            finish=reply.finish,
            usage=reply.usage,
            model=reply.model,
            request_id=reply.request_id,
            latency=seconds,
            retries=retries,
            reasons=outcome.reasons if isinstance(outcome, Failure) else (),
        )
        return exchange, outcome

    async def _send(
        self, work: Work, question: Question, pictures: Mapping[str, Picture], turns: tuple[Turn, ...]
    ) -> tuple[Reply, float, int]:
        schema = answer_schema(work.rubric) if self._mode(work.rubric) != "prompt only" else None
        conversation = Conversation(question.parts, pictures, turns, schema, work.rubric.name)
        request = self._endpoint.request(conversation, self._parameters)
        url, headers = self._endpoint.address(request)

        async def send() -> tuple[Reply, float]:
            response = await self._transport.post(url, headers, request.body)
            try:
                return self._endpoint.reply(response.status, response.headers, response.body), response.seconds
            except Problem as problem:
                raise self._without_key(problem) from None

        try:
            (reply, seconds), retries = await self.pace.persist(send)
        except Problem as problem:
            if problem.kind == "schema" and schema is not None:
                self._schema_mode = "prompt only"  # for this judge from now on, and recorded with every answer
                return await self._send(work, question, pictures, turns)
            raise
        return reply, seconds, retries

    def _without_key(self, problem: Problem) -> Problem:
        """Servers quote what they were sent; a key must not reach a message through them."""
        key = self._endpoint.key
        said = key.redacted(str(problem)) if key else str(problem)
        return Problem(problem.kind, said, status=problem.status, retry_after=problem.retry_after)

    def _mode(self, rubric: Rubric) -> SchemaMode:
        """A schema makes a server write JSON and nothing else, so it cannot be used where sections are asked for."""
        return "prompt only" if rubric.answer.sections else self._schema_mode

    def _no_reply(self, work: Work, problem: Problem, exchanges: list[Exchange], mode: SchemaMode) -> Judgement:
        if problem.kind in ("key", "model"):
            raise JudgeError(f"{self.spec}: {problem}") from None
        code = problem.kind.replace(" ", "_")
        reason = Remark(code, str(problem))
        status: Status = "refused" if problem.kind == "refusal" else "unreachable"
        failed = Exchange("", status, finish="error", reasons=(reason,))
        kept = (*exchanges, failed)
        return work.judgement(status, reasons=(reason,), exchanges=kept, schema_mode=mode, cost=self._cost(exchanges))

    def _cost(self, exchanges: list[Exchange]) -> float | None:
        costs = [self._price(exchange.usage) for exchange in exchanges]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None
