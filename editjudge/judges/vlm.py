"""A judge that talks: ask, check, and ask again with the reasons, until there is an answer or no patience left."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self

from editjudge.edit import Edit
from editjudge.errors import EditjudgeError, JudgeError
from editjudge.images import Limits
from editjudge.judgement import Exchange, Judgement, SchemaMode, Status
from editjudge.judges.conversation import Conversation, Parameters, Picture, Problem, Reply, Turn
from editjudge.judges.http import Response
from editjudge.judges.prices import answer_tokens, question_tokens
from editjudge.judges.providers import Endpoint
from editjudge.judges.replay import verdict_of
from editjudge.judges.unexpected import unexpected
from editjudge.judges.work import Load, Pacing, Work
from editjudge.rubrics.contract import Failure, Remark, Verdict, check
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.prompt import Question, reask
from editjudge.rubrics.schema import answer_schema

REASKS = 2
"""How often a reply that was no answer is answered with the reasons."""
_QUOTED = 4_000
"""Characters of a useless reply that are shown to the model again; a runaway reply would cost more each time."""


class Transport(Protocol):
    """Who takes a question to the server and brings what it said."""

    async def post(self, url: str, headers: Mapping[str, str], body: tuple[bytes, ...]) -> Response: ...


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
        self.endpoint = endpoint
        self._parameters = parameters
        self._transport = transport
        self._reasks = reasks
        self._strict = strict
        self._want_schema = want_schema
        self._schema_mode: SchemaMode = endpoint.schema_mode if want_schema else "prompt only"
        self._price = price
        left_out = sorted(name for name in endpoint.unsupported if getattr(parameters, name) is not None)
        self.warnings = (*endpoint.warnings, *(f"{spec} has no {name}: it is left out" for name in left_out))
        self._identity = {
            "judge": spec,
            "url": endpoint.url,
            "parameters": dataclasses.asdict(parameters),
            "schema": want_schema,
            "strict": strict,
        }

    def through(self, transport: Transport, pace: Pacing) -> Self:
        """The same judge, asked another way: the questions, the contract and the keys are the same."""
        other = copy.copy(self)
        other._transport, other.pace = transport, pace
        return other

    def identity(self, edit: Edit, rubric: Rubric, repeat: int) -> Mapping[str, Any]:
        return self._identity

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
            try:
                outcome, mode = await self._exchange(work, question, pictures, turns, exchanges)
                if isinstance(outcome, Verdict):
                    break
                if text := exchanges[-1].text:  # an empty turn is refused by some servers, and says nothing
                    turns = (*turns, Turn(text[:_QUOTED], reask(outcome, question)))
            except Problem as problem:
                return self._no_reply(work, problem, exchanges, self._mode(work.rubric))
            except EditjudgeError:
                raise
            except Exception as error:  # as `run.single.judged` does, with the replies that were paid for
                reasons = (unexpected(error, work.name, self),)
                kept = {"exchanges": tuple(exchanges), "schema_mode": mode, "cost": self._cost(exchanges)}
                return work.judgement("error", reasons=reasons, **kept)
        return verdict_of(work, outcome, exchanges, schema_mode=mode, cost=self._cost(exchanges))

    async def _exchange(
        self,
        work: Work,
        question: Question,
        pictures: Mapping[str, Picture],
        turns: tuple[Turn, ...],
        exchanges: list[Exchange],
    ) -> tuple[Verdict | Failure, SchemaMode]:
        """Ask once more. The reply is among the `exchanges` before it is looked at: it is paid for, whatever comes."""
        reply, seconds, retries, mode = await self._send(work, question, pictures, turns)
        exchange = Exchange(
            text=reply.text,
            outcome="error",
            finish=reply.finish,
            usage=reply.usage,
            model=reply.model,
            request_id=reply.request_id,
            latency=seconds,
            retries=retries,
        )
        exchanges.append(exchange)
        outcome = check(
            work.rubric, reply.text, identifier=question.identifier, strict=self._strict, finish=reply.finish
        )
        reasons = outcome.reasons if isinstance(outcome, Failure) else ()
        exchanges[-1] = dataclasses.replace(exchange, outcome=outcome.status, reasons=reasons)
        return outcome, mode

    async def _send(
        self, work: Work, question: Question, pictures: Mapping[str, Picture], turns: tuple[Turn, ...]
    ) -> tuple[Reply, float | None, int, SchemaMode]:
        mode = self._mode(work.rubric)
        schema = answer_schema(work.rubric) if mode != "prompt only" else None
        conversation = Conversation(question.parts, pictures, turns, schema, work.rubric.name)
        request = self.endpoint.request(conversation, self._parameters)
        url, headers = self.endpoint.address(request)

        async def send() -> tuple[Reply, float | None]:
            response = await self._transport.post(url, headers, request.body)
            return self.heard(response), response.seconds

        try:
            (reply, seconds), retries = await self.pace.persist(send, self._tokens(work, question))
        except Problem as problem:
            if problem.kind == "schema" and schema is not None:
                self._schema_mode = "prompt only"  # for this judge from now on, and recorded with every answer
                return await self._send(work, question, pictures, turns)
            raise
        return reply, seconds, retries, mode

    def heard(self, response: Response) -> Reply:
        """What the server answered; raises `Problem`, without the key, where it did not."""
        try:
            return self.endpoint.reply(response.status, response.headers, response.body)
        except Problem as problem:
            raise self._without_key(problem, response) from None

    def _without_key(self, problem: Problem, response: Response) -> Problem:
        """Servers quote what they were sent, and an error is shown and kept. Messages are cut short, perhaps in the
        middle of a key: so it is taken out of what they are made from."""
        if self.endpoint.key is None:
            return problem
        said = self.endpoint.key.redacted(response.body.decode("utf-8", "replace"))
        try:
            self.endpoint.reply(response.status, response.headers, said.encode())
        except Problem as redacted:
            # Only the words: "x" is a key too, and no error is what it was without its x.
            return Problem(problem.kind, str(redacted), status=problem.status, retry_after=problem.retry_after)
        return Problem(problem.kind, "no reason given", status=problem.status, retry_after=problem.retry_after)

    def _tokens(self, work: Work, question: Question) -> int:
        """About what one ask counts, there and back."""
        sizes = [work.sizes[role] for role in work.rubric.images]
        return question_tokens(self.endpoint.provider, sizes, str(question)) + answer_tokens(work.rubric)

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
