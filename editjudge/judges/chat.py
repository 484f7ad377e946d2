"""A judge that talks: ask, check, and ask again with the reasons, until there is an answer or no patience left."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, cast

from editjudge.edit import Edit
from editjudge.errors import BudgetReached, EditjudgeError, JudgeError
from editjudge.judgement import Exchange, Judgement, SchemaMode, Status
from editjudge.judges.budget import MOST_OUTPUT, Budget, BudgetProtocol, MaximumCost
from editjudge.judges.http import Response
from editjudge.judges.judge import JudgingFailed, Load, Pacing, Work
from editjudge.judges.messages import CallFailed, ChatRequest, Conversation, EncodedPicture, Message, Parameters, Reply
from editjudge.judges.prices import Price, answer_tokens, most_image_tokens, question_tokens
from editjudge.judges.providers import PROVIDERS, Endpoint
from editjudge.judges.repeats import MOST, RepeatGroups, SharedReply, Waiting
from editjudge.judges.server_errors import context_advice
from editjudge.media.image import ImageLimits
from editjudge.redaction import redacted_options
from editjudge.rubrics.answer import answer_schema
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.prompt import ImagePart, Question, reask
from editjudge.rubrics.verdict import Failure, Remark, Verdict

REASKS = 2
"""How often a reply that was no answer is answered with the reasons."""
MORE_REASKS = 4
"""How often beyond that, where the judge mostly answers: with 15 % of replies unreadable by chance, three asks leave
one question in 300 without an answer, and seven leave one in 600,000."""
_MOSTLY, _JUDGED_BY = 0.6, 20
"""Share of the judge's replies that must have been answers, and how many replies tell it: of 20, 8 may be none."""
TOP_LOGPROBS = 20
"""Alternatives of each token that are requested: the most that OpenAI, and vLLM unless it is told otherwise, give."""
_QUOTED = 4_000
"""Characters of a useless reply that are shown to the model again; a runaway reply would cost more each time."""


class Transport(Protocol):
    """Who takes a question to the server and brings what it said."""

    async def post(
        self, url: str, headers: Mapping[str, str], body: tuple[bytes, ...], patience: float = 1.0
    ) -> Response: ...


_Answered = tuple[Reply, float | None, int, SchemaMode]
"""A reply, the seconds it took, the requests before it that brought none, and how the schema was requested."""


@dataclass
class _Bill:
    """What the requests of one task brought, and what they cost."""

    price: Price | None
    exchanges: list[Exchange] = field(default_factory=list)
    estimated: float = 0.0
    lost: int = 0
    """Requests that brought no answer and may be billed."""
    problem: CallFailed | None = None
    """Of the latest of them."""
    capped: int | None = None
    """Tokens that an answer was allowed, where the budget left fewer than were wanted."""
    unasked: bool = False
    """Whether the budget did not pay for asking again."""
    shared_by: int = 1
    """Repeats for which the first request was."""

    def lose(self, problem: CallFailed | None, amount: float) -> None:
        self.estimated += amount
        self.lost += 1
        self.problem = problem or self.problem

    def cost(self) -> float | None:
        """None where a price, or what a server counted, is unknown."""
        if self.price is None:
            return None if self.exchanges or self.lost else 0.0
        # One that the server refused to hand out has no count of its own.
        costs = [self.price.of(exchange.usage) for exchange in self.exchanges if exchange.finish != "error"]
        return None if None in costs else sum(filter(None, costs)) + self.estimated

    def notes(self) -> tuple[Remark, ...]:
        notes = []
        if self.lost and self.price:
            count = "1 request" if self.lost == 1 else f"{self.lost} requests"
            amount = f"${self.estimated:.4f} of the cost is an estimate"
            notes.append(Remark("cost_estimated", f"{amount}: {count} brought no answer and may be billed"))
        if self.shared_by > 1:
            words = f"one request brought {self.shared_by} repeats: tokens and cost are this one's share"
            notes.append(Remark("shared_request", words))
        if self.capped is not None:
            notes.append(Remark("capped", f"the budget left no more than {self.capped:,} tokens for the answer"))
        if self.unasked:
            notes.append(Remark("budget_reached", "it was not asked again: the budget may not pay for it"))
        return tuple(notes)


@dataclass
class _Asking:
    """A task while it is being asked."""

    work: Work
    question: Question
    pictures: Mapping[str, EncodedPicture]
    same: Hashable
    """What its repeats have in common."""
    repeat: Waiting
    bill: _Bill
    turns: tuple[Message, ...] = ()
    """Replies that were no answers, and what the judge was told about them."""


class ChatJudge:
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
        min_mass: float | None = None,
        most_choices: int = MOST,
        price: Price | None = None,
        funds: BudgetProtocol | None = None,
    ) -> None:
        self.spec = spec
        self.limits: ImageLimits | None = endpoint.limits
        self.pace = pace
        self.endpoint = endpoint
        self._parameters = parameters
        self._transport = transport
        self._reasks = reasks
        self._more_reasks = MORE_REASKS if reasks else 0
        self._replies = self._answers = 0
        """All replies so far, and those among them that were answers."""
        self._strict = strict
        self._want_schema = want_schema
        self._min_mass = min_mass
        """Of legal scores, to read them from token probabilities; None where only the text is read."""
        self._logprobs_refused: CallFailed | None = None
        self._schema_mode: SchemaMode = endpoint.schema_mode if want_schema else "prompt only"
        self._schema_refused: set[str] = set()
        """Keys of the tasks whose question was taken without the schema, and only so."""
        self._price, self._funds = price, funds or Budget()
        # With a seed, repeats are to be equal; a budget is held against one reply at a time.
        can_share = endpoint.wire == "openai" and parameters.seed is None and not self._funds.bounded
        self._repeats = RepeatGroups(most_choices if can_share else 1)
        left_out = sorted(name for name in endpoint.unsupported if getattr(parameters, name) is not None)
        self.warnings = (*endpoint.warnings, *(f"{spec} has no {name}: it is left out" for name in left_out))
        self._identity = {
            "judge": spec,
            "url": endpoint.url,
            "parameters": dataclasses.asdict(parameters) | {"extra": redacted_options(parameters.extra)},
            "schema": want_schema,
            "strict": strict,
            # Without it a key is what it was before there were probabilities.
            **({} if min_mass is None else {"read": "logprobs", "min_mass": min_mass}),
        }

    def through(self, transport: Transport, pace: Pacing, funds: BudgetProtocol) -> Self:
        """The same judge, asked another way: the questions, the contract and the keys are the same."""
        other = copy.copy(self)
        other._transport, other.pace, other._funds = transport, pace, funds
        other._schema_refused, other._repeats = set(), RepeatGroups(1)
        other._more_reasks = 0  # each would be one more batch, of up to a day
        return other

    def identity(self, edit: Edit, rubric: Rubric, repeat: int) -> Mapping[str, Any]:
        return self._identity

    async def judge(self, work: Work, load: Load) -> Judgement:
        question = work.question()
        same = (
            work.task.item,
            work.task.variant,
            work.rubric.hash,
            tuple(sorted(work.digests.items())),
            question.parts,
        )
        with self._repeats.waiting(same) as repeat:
            await asyncio.sleep(0)  # until its other repeats wait too
            pictures: dict[str, EncodedPicture] = {}
            for role in work.images:
                encoded = await load(role)
                pictures[role] = EncodedPicture(encoded.media_type, encoded.data)
            return await self._judge(_Asking(work, question, pictures, same, repeat, _Bill(self._price)))

    async def _judge(self, asking: _Asking) -> Judgement:
        bill = asking.bill
        try:
            judgement = await self._ask(asking)
        except JudgeError as error:
            error.spent = bill.cost() or 0.0
            raise
        except EditjudgeError:
            raise
        except Exception as error:
            fields = {"exchanges": tuple(bill.exchanges), "notes": bill.notes(), "cost": bill.cost()}
            raise JudgingFailed(error, schema_mode=self._mode(asking.work.rubric), **fields) from error
        notes, cost = bill.notes(), bill.cost()
        if not notes and cost == judgement.cost:
            return judgement
        return dataclasses.replace(judgement, notes=(*judgement.notes, *notes), cost=cost)

    async def _ask(self, asking: _Asking) -> Judgement:
        repeat = asking.repeat
        async with self.pace.slot():
            self._repeats.begin(asking.same, repeat)
            if repeat.shared is None:
                return await self._converse(asking, None)
        # Without a slot: the repeat that asks for this one gives up its own before it tries again, and needs one then.
        shared = await repeat.shared
        async with self.pace.slot(has_reply=shared is not None):
            return await self._converse(asking, shared)

    async def _converse(self, asking: _Asking, shared: SharedReply | None) -> Judgement:
        work, bill = asking.work, asking.bill
        exchanges = bill.exchanges
        outcome: Verdict | Failure | None = None
        readings: dict[str, Any] = {}
        mode = self._mode(work.rubric)
        mismatches = 0
        for ask in range(1 + self._reasks + self._more_reasks):
            if ask > self._reasks and not self._worth_more(outcome, bill):
                break
            # A model that cannot keep to the schema may keep to the question.
            free = mismatches > 1 or (mismatches and ask >= self._reasks)
            mode = "prompt only" if free else self._mode(work.rubric)
            try:
                outcome, reply, mode = await self._exchange(asking, mode, shared)
                shared = None
                if isinstance(outcome, Verdict):
                    readings = self._readings(work.rubric, reply, outcome)
                    break
                if text := exchanges[-1].text:  # an empty turn is refused by some servers, and says nothing
                    asking.turns += (Message(text[:_QUOTED], reask(outcome, asking.question)),)
            except CallFailed as problem:
                if problem.kind != "grammar":
                    return self._no_reply(work, problem, exchanges, mode)
                mismatches += 1
                outcome = Failure("invalid", (Remark("grammar_mismatch", str(problem)),))
                exchanges.append(Exchange("", "invalid", finish="error", reasons=outcome.reasons))
            except BudgetReached:
                if outcome is None:
                    raise  # nothing was said, so that the task stays to be judged
                bill.unasked = True  # what was said is paid for; the next run asks again
                break
        return work.verdict(cast("Verdict | Failure", outcome), exchanges, schema_mode=mode, **readings)

    def _worth_more(self, outcome: Verdict | Failure | None, bill: _Bill) -> bool:
        """Whether a question that used up its re-asks is worth another: its replies failed by chance, by all that is
        known of the judge. A model that declines each time means it, and tokens that the budget does not pay for stay
        too few."""
        mostly_answers = self._replies >= _JUDGED_BY and self._answers >= _MOSTLY * self._replies
        declines = {exchange.outcome for exchange in bill.exchanges} == {"refused"}
        return mostly_answers and bill.capped is None and outcome is not None and not declines

    def _readings(self, rubric: Rubric, reply: Reply, verdict: Verdict) -> dict[str, Any]:
        """What the probabilities of an accepted reply say, as fields of the judgement."""
        if self._min_mass is None:
            return {}
        from editjudge.judges.probabilities import SPREAD, score_probabilities

        read = score_probabilities(rubric, reply, verdict.scores, self._min_mass)
        if self._logprobs_refused and not reply.tokens:
            read.abstained = dict.fromkeys(read.abstained, f"the server refuses logprobs: {self._logprobs_refused}")
        evidence = {SPREAD: read.spread} if read.spread else {}
        return {"expected": read.expected, "mass": read.mass, "abstained": read.abstained, "evidence": evidence}

    async def _exchange(
        self, asking: _Asking, mode: SchemaMode, shared: SharedReply | None
    ) -> tuple[Verdict | Failure, Reply, SchemaMode]:
        """Ask once more. The reply is on the bill even where checking it raises: it is paid for."""
        work, bill = asking.work, asking.bill
        if shared:
            reply, seconds, retries, mode = shared.reply, shared.seconds, 0, shared.mode
            bill.shared_by = shared.replies
        else:
            reply, seconds, retries, mode = await self._send(asking, mode)
            bill.shared_by = max(bill.shared_by, 1 + len(reply.others))
            reply = asking.repeat.hand_out(reply, seconds, mode)
        from editjudge.rubrics.contract import check  # its patterns are not needed before there is a reply

        outcome: Verdict | Failure | None = None
        try:
            identifier = asking.question.identifier
            outcome = check(work.rubric, reply.text, identifier=identifier, strict=self._strict, finish=reply.finish)
        finally:
            exchange = Exchange(
                text=reply.text,
                outcome=outcome.status if outcome else "error",
                finish=reply.finish,
                usage=reply.usage,
                model=reply.model,
                request_id=reply.request_id,
                latency=seconds,
                retries=retries,
                reasons=outcome.reasons if isinstance(outcome, Failure) else (),
            )
            bill.exchanges.append(exchange)
        self._replies += 1
        self._answers += isinstance(outcome, Verdict)
        return outcome, reply, mode

    async def _send(self, asking: _Asking, mode: SchemaMode, *, logprobs: bool = True) -> _Answered:
        work, question, bill, repeat = asking.work, asking.question, asking.bill, asking.repeat
        wants_logprobs = logprobs and self._min_mass is not None and self._logprobs_refused is None
        choices = 1 + len(repeat.mates)
        conversation = Conversation(
            question.parts,
            asking.pictures,
            asking.turns,
            answer_schema(work.rubric) if mode != "prompt only" else None,
            work.rubric.name,
            top_logprobs=TOP_LOGPROBS if wants_logprobs else None,
            system=question.system,
            choices=choices,
        )
        wanted = self._parameters.max_tokens or MOST_OUTPUT
        allowed = dataclasses.replace(self._parameters, max_tokens=wanted) if self._funds.bounded else self._parameters
        request = self.endpoint.request(conversation, allowed)
        most = self._most(work, question, request, wanted)
        timeouts = 0

        async def send() -> tuple[Reply, float | None]:
            nonlocal timeouts
            hold = await self._funds.hold(most) if most else None
            sent = request
            if hold and hold.tokens < wanted:
                bill.capped = hold.tokens
                sent = self.endpoint.request(conversation, dataclasses.replace(allowed, max_tokens=hold.tokens))
            try:
                # A question that takes longer than it may takes no less the next time.
                response = await self._transport.post(*self.endpoint.address(sent), sent.body, 2.0**timeouts)
                reply = self.heard(response, work)
            except CallFailed as problem:
                timeouts += problem.kind == "timeout"
                if problem.may_be_billed:
                    bill.lose(problem, hold.lost() if hold else 0.0)
                elif hold:
                    hold.settle(0.0)
                raise
            except (Exception, asyncio.CancelledError):
                bill.lose(None, hold.lost() if hold else 0.0)
                raise
            if hold:
                hold.settle(self._price.of(reply.usage) if self._price else None)
            return reply, response.seconds

        try:
            (reply, seconds), retries = await self.pace.persist(send, self._tokens(work, request))
        except CallFailed as problem:
            if problem.kind == "schema" and conversation.schema is not None:
                answered = await self._send(asking, "prompt only", logprobs=logprobs)
                self._refuse_schema(work, problem)
                return answered
            if problem.kind == "request" and (choices > 1 or wants_logprobs):
                return await self._send_less(asking, mode, problem, logprobs=logprobs)
            raise
        except BudgetReached:
            if bill.problem:  # asked in vain, and not to be asked again
                raise bill.problem from None
            raise
        if len(reply.others) < choices - 1:  # it takes the number, and brings fewer
            self._repeats.most = 1
        return reply, seconds, retries, mode

    async def _send_less(self, asking: _Asking, mode: SchemaMode, problem: CallFailed, *, logprobs: bool) -> _Answered:
        """The same question for one repeat alone or, if it was for one, without probabilities."""
        if asking.repeat.mates:
            self._repeats.most = 1
            asking.repeat.release()
            return await self._send(asking, mode, logprobs=logprobs)
        answered = await self._send(asking, mode, logprobs=False)
        self._logprobs_refused = problem  # the same question is taken without them
        return answered

    def _refuse_schema(self, work: Work, problem: CallFailed) -> None:
        """A question was taken without the schema that it was rejected with. For this judge that holds from now on if
        a named field said so, or the errors of two questions did in words of the server's own."""
        if problem.not_from(_own_words(work)) is problem:
            self._schema_refused.add(work.task.key)
            if not problem.words or len(self._schema_refused) > 1:
                self._schema_mode = "prompt only"

    def heard(self, response: Response, work: Work | None = None) -> Reply:
        """What the server answered; raises `CallFailed` where it did not. Neither holds a key, whatever the server says
        back: this is the one place through which replies and errors come, live and from batches."""
        body = self.endpoint.redacted_body(response.body)
        try:
            reply = self.endpoint.reply(response.status, response.headers, body)
        except CallFailed as problem:
            problem = self._without_key(problem, response)
            # Without the schema a question is asked again in any case, so that a quotation does no harm there.
            raise problem if work is None or problem.kind == "schema" else problem.not_from(_own_words(work)) from None
        return self._redacted(reply)

    def _redacted(self, reply: Reply) -> Reply:
        """Once more: only now is what JSON wrote with escapes, and what stood in headers, in plain."""
        fields = {name: value for name in ("text", "model", "request_id") if (value := getattr(reply, name))}
        redacted: dict[str, Any] = {name: self.endpoint.redacted(value) for name, value in fields.items()}
        if redacted == fields and not reply.others:
            return reply
        return dataclasses.replace(reply, others=tuple(map(self._redacted, reply.others)), **redacted)

    def _without_key(self, problem: CallFailed, response: Response) -> CallFailed:
        """Servers quote what they were sent, and an error is shown and kept. Messages are cut short, perhaps in the
        middle of a key: so it is taken out of what they are made from."""
        body = self.endpoint.redacted_body(response.body, error=True)
        try:
            self.endpoint.reply(response.status, response.headers, body)
        except CallFailed as redacted:
            # Only the words: "x" is a key too, and no error is what it was without its x. Once more, since only now
            # is what JSON wrote with escapes in plain.
            return problem.saying(self.endpoint.redacted(str(redacted), error=True))
        return problem.saying("no reason given")

    def _most(self, work: Work, question: Question, request: ChatRequest, wanted: int) -> MaximumCost | None:
        """What a request can be billed at most; None where the price is unknown."""
        if self._price is None:
            return None
        # A token is a byte at least, and all that is no picture is text: messages, schema and settings.
        text = sum(map(len, request.body[::2]))
        sizes = (work.sizes[part.role] for part in question.parts if isinstance(part, ImagePart))
        tokens = text + sum(most_image_tokens(self.spec, *size) for size in sizes)
        # With settings of the user's own an answer may need all the tokens that it was given, say to think.
        free = not self._parameters.extra and self._parameters.reasoning_effort is None
        least = min(wanted, 4 * answer_tokens(work.rubric)) if free else wanted
        return MaximumCost(tokens * self._price.input / 1e6, self._price.output / 1e6, wanted, least)

    def _tokens(self, work: Work, request: ChatRequest) -> int:
        """About what one ask counts, there and back."""
        sizes = [work.sizes[role] for role in work.images]
        text = sum(map(len, request.body[::2]))  # all that is no picture
        return question_tokens(self.endpoint.provider, sizes, text) + answer_tokens(work.rubric)

    def _mode(self, rubric: Rubric) -> SchemaMode:
        """A schema makes a server write JSON and nothing else, so it cannot be used where sections are asked for."""
        return "prompt only" if rubric.answer.sections or not rubric.answer.is_json else self._schema_mode

    @property
    def context_setting(self) -> str:
        """What a user raises where a question does not fit into the context."""
        return PROVIDERS[self.endpoint.provider].context_setting

    def _no_reply(self, work: Work, problem: CallFailed, exchanges: list[Exchange], mode: SchemaMode) -> Judgement:
        if problem.kind in ("key", "model"):
            raise JudgeError(f"{self.spec}: {problem}") from None
        status, code = outcome_of(problem)
        message = str(problem)
        if problem.kind == "context":
            message = context_advice(self.context_setting, message)
        reason = Remark(code, message)
        failed = Exchange("", status, finish="error", reasons=(reason,))
        return work.judgement(status, reasons=(reason,), exchanges=(*exchanges, failed), schema_mode=mode)


def outcome_of(problem: CallFailed) -> tuple[Status, str]:
    """The status and the code of a question that brought no reply."""
    match problem.kind:
        case "refusal":
            return "refused", "refusal"
        case "image":
            return "bad_image", "bad_image"
        case "context":
            return "error", "context_too_small"
        case "request" | "schema":
            return "error", "request_rejected"
    rejected = problem.status is not None and 400 <= problem.status < 500 and problem.kind == "server"
    return ("error", "request_rejected") if rejected else ("unreachable", problem.kind.replace(" ", "_"))


def _own_words(work: Work) -> str:
    """What a stranger wrote into the question, which a server may quote."""
    return "\n".join(work.edit.text(role) for role in work.rubric.texts)
