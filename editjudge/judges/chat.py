"""Vision-language models as judges. The model is asked a question and its reply is checked. If the reply is rejected,
the model is asked again and told the reasons.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import functools
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self, cast

from editjudge.edit import Edit
from editjudge.errors import BudgetReached, EditjudgeError, JudgeError
from editjudge.judgement import Exchange, Judgement, SchemaMode, Status, Usage
from editjudge.judges.cost import (
    DEFAULT_MAX_OUTPUT,
    Budget,
    BudgetProtocol,
    MaximumCost,
    Price,
    answer_tokens,
    max_image_tokens,
    question_tokens,
)
from editjudge.judges.failures import CallFailed, context_advice
from editjudge.judges.http import Response
from editjudge.judges.judge import (
    Judge,
    JudgeServer,
    JudgingFailed,
    Load,
    Options,
    Pacing,
    Work,
)
from editjudge.judges.providers import Endpoint
from editjudge.judges.wire import ChatRequest, Conversation, RejectedTurn, Reply
from editjudge.media.image import EncodedImage
from editjudge.redaction import redacted_options
from editjudge.rubrics.answer import answer_schema
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.prompt import ImagePart, Question, reask
from editjudge.rubrics.verdict import Failure, Remark, Verdict

MORE_REASKS = 4
"""Additional re-asks beyond the number set by the user, if most of the judge's replies are valid. If 15 % of replies
are unreadable by chance, three attempts leave one question in 300 without an answer, and seven attempts one in 600,000.
"""
_MIN_VALID_SHARE = 0.6
_MIN_REPLIES = 20
"""Minimum share of valid replies for additional re-asks, and the number of replies after which it is first checked: of
20 replies, up to 8 may be invalid.
"""
TOP_LOGPROBS = 20
"""Number of alternatives to request for each token. It is OpenAI's maximum, and vLLM's default maximum."""
_MAX_QUOTED = 4_000
"""Maximum number of characters of an invalid reply that are quoted back to the model. Quoting a runaway reply in full
would cost more each time.
"""
MAX_CHOICES = 8
"""Maximum number of replies to one request. More would delay the first reply, and lose more if the request fails."""


class Transport(Protocol):
    """Interface for sending requests to a judge."""

    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: tuple[bytes, ...],
        patience: float = 1.0,
    ) -> Response:
        """Send a request. Raise `CallFailed` if no complete response arrives within the timeout multiplied by
        `patience`.
        """
        ...


class _Received(NamedTuple):
    """A reply with details about its request."""

    reply: Reply
    seconds: float | None
    retries: int
    """Number of failed requests before this one."""
    mode: SchemaMode
    replies: int = 1
    """Number of replies to the same request."""


@dataclass(eq=False)
class _PendingTask:
    """State of a task while a judge works on it: its replies, their cost, and the repeats of its question that share a
    request.
    """

    work: Work
    question: Question
    price: Price | None
    images: Mapping[str, EncodedImage] = field(default_factory=dict)
    turns: tuple[RejectedTurn, ...] = ()
    exchanges: list[Exchange] = field(default_factory=list)
    shared: asyncio.Future[_Received | None] | None = None
    """Set if another repeat also requests the reply for this one. If that fails, its result is None and this repeat
    sends its own request.
    """
    followers: list[_PendingTask] = field(default_factory=list)
    """Repeats for which this one requests replies."""
    shared_by: int = 1
    """Number of repeats that shared the first request."""
    estimated: float = 0.0
    """Cost of unanswered requests that may be billed."""
    lost: int = 0
    """Number of unanswered requests that may be billed."""
    problem: CallFailed | None = None
    """Failure of the latest unanswered request that may be billed."""
    capped: int | None = None
    """Token limit of the answer, if the budget allowed fewer tokens than requested."""
    out_of_budget: bool = False
    """Whether the budget did not allow another request."""

    @functools.cached_property
    def group(self) -> Hashable:
        """A key that all repeats of the same question have in common."""
        work = self.work
        digests = tuple(sorted(work.digests.items()))
        task = work.task
        return task.item, task.variant, work.rubric.hash, digests, self.question.parts

    def share(self, received: _Received) -> _Received:
        """Give each follower its reply and its share of the tokens, and return the reply for this task."""
        if not self.followers and received.replies == 1:
            return received
        usage = received.reply.usage
        others = received.reply.others
        later = _share(usage, received.replies, first=False)
        for follower, other in zip(self.followers, others, strict=False):
            if follower.shared and not follower.shared.done():
                reply = dataclasses.replace(other, usage=later)
                follower.shared.set_result(received._replace(reply=reply, retries=0))
        self.release()
        first = _share(usage, received.replies, first=True)
        reply = dataclasses.replace(received.reply, usage=first, others=())
        return received._replace(reply=reply)

    def release(self) -> None:
        """Release the followers. They get no reply from this task, so they send their own requests."""
        for follower in self.followers:
            if follower.shared and not follower.shared.done():
                follower.shared.set_result(None)
        self.followers = []

    def lose(self, problem: CallFailed | None, amount: float) -> None:
        """Record an unanswered request that may be billed."""
        self.estimated += amount
        self.lost += 1
        self.problem = problem or self.problem

    def cost(self) -> float | None:
        """Return the cost, or None if the price or a token count is unknown."""
        if self.price is None:
            return None if self.exchanges or self.lost else 0.0
        total = 0.0
        for exchange in self.exchanges:
            # A reply that the server refused to send has no token count.
            if exchange.finish == "error":
                continue
            cost = self.price.of(exchange.usage)
            if cost is None:
                return None
            total += cost
        return total + self.estimated

    def notes(self) -> tuple[Remark, ...]:
        """Return remarks that explain the cost."""
        notes: list[Remark] = []
        if self.lost and self.price:
            count = "1 request" if self.lost == 1 else f"{self.lost} requests"
            message = f"${self.estimated:.4f} of the cost is an estimate: {count} got no answer and may be billed"
            notes.append(Remark("cost_estimated", message))
        if self.shared_by > 1:
            message = f"one request returned {self.shared_by} repeats: tokens and cost are the share of this one"
            notes.append(Remark("shared_request", message))
        if self.capped is not None:
            message = (
                f"the budget left no more than {self.capped:,} tokens for the answer"
            )
            notes.append(Remark("capped", message))
        if self.out_of_budget:
            message = "it was not asked again: the budget may not pay for it"
            notes.append(Remark("budget_reached", message))
        return tuple(notes)


def _share(usage: Usage, replies: int, *, first: bool) -> Usage:
    """Return one reply's share of a request's tokens. Servers do not report tokens for each reply, so the output is
    divided evenly. The first reply also gets all the input and the remainder of the division.
    """

    def full(count: int | None) -> int | None:
        return count if first or count is None else 0

    def divided(count: int | None) -> int | None:
        if count is None:
            return None
        each, rest = divmod(count, replies)
        return each + rest if first else each

    return Usage(
        input_tokens=full(usage.input_tokens),
        output_tokens=divided(usage.output_tokens),
        cached_tokens=full(usage.cached_tokens),
        reasoning_tokens=divided(usage.reasoning_tokens),
    )


class RepeatGroups:
    """Groups repeats of the same question that are waiting at the same time, so that one request can serve them all.

    A request for several replies is billed only once for its input, which is mostly images. Prefix caching saves less:
    a cached token still costs a tenth to a half, and repeats that are sent at the same time miss the cache.
    """

    def __init__(self, max_choices: int) -> None:
        self.max_choices = max_choices
        """Number of replies to request at once. It becomes 1 as soon as a server refuses or ignores the number."""
        self._waiting: dict[Hashable, list[_PendingTask]] = {}

    @contextmanager
    def waiting(self, task: _PendingTask) -> Iterator[None]:
        """Let other repeats of the same question include this task in their request while the context is open."""
        group = task.group
        line = self._waiting.setdefault(group, [])
        line.append(task)
        try:
            yield
        finally:
            task.release()
            if task in line:
                line.remove(task)
            if not line and self._waiting.get(group) is line:
                del self._waiting[group]

    def begin(self, task: _PendingTask) -> None:
        """Assign followers to a task that is about to be sent, unless another task has already requested its reply."""
        if task.shared is not None:
            return
        line = self._waiting[task.group]
        line.remove(task)
        task.followers = line[: self.max_choices - 1]
        del line[: self.max_choices - 1]
        for follower in task.followers:
            follower.shared = asyncio.get_running_loop().create_future()


class ChatJudge(Judge):
    """A vision-language model behind an API. A question passes through these layers:
    judge                 groups the repeats of a question, loads the images, and adds cost and notes to the judgement
    _in_slot              waits for a free slot, or for the repeat that requests this reply
    _ask_until_valid      asks again, with the reasons, while replies break the contract
    _ask_once             checks one reply and records it
    _send_with_fallbacks  retries without a feature that the server refuses: schema, several replies, probabilities
    _send                 reserves money for each request
    send_with_retries     (`Pacing`) limits the rate, and retries requests that failed temporarily

    Six limits can delay a question, in this order: the number of open tasks (`running.asker.Window`), the slots in
    flight (`Pacing.slot`), the limits that the user set, a judge that is down, the rate that the server allows (all in
    `running.pace.Pace`), and the budget (`Budget.hold`).
    """

    def __init__(
        self,
        spec: str,
        endpoint: Endpoint,
        options: Options,
        pace: Pacing,
        transport: Transport,
        *,
        max_choices: int = MAX_CHOICES,
        price: Price | None = None,
        funds: BudgetProtocol | None = None,
        identity: Mapping[str, object] | None = None,
    ) -> None:
        """Create a judge. `identity` overrides identity fields, for a model that is not behind an API."""
        self.spec = spec
        self.limits = endpoint.limits
        self.endpoint = endpoint
        self._options = options
        self._pace = pace
        self._transport = transport
        self._reasks = options.reasks
        self._more_reasks = MORE_REASKS if options.reasks else 0
        self._replies = 0
        self._valid_replies = 0
        self._strict = options.strict
        self._min_mass = options.mass_to_read
        self._logprobs_refused: CallFailed | None = None
        self._schema_mode: SchemaMode = (
            endpoint.schema_mode if options.schema else "prompt only"
        )
        self._schema_refused: set[str] = set()
        """Keys of tasks whose question was rejected with the schema and accepted without it."""
        self._price = price
        self._funds = funds or Budget()
        # With a seed, repeats must be equal. With a budget, money is reserved for one reply at a time.
        can_share = (
            endpoint.wire == "openai"
            and options.seed is None
            and not self._funds.bounded
        )
        self._repeats = RepeatGroups(max_choices if can_share else 1)
        settings = options.parameters()
        left_out = [name for name in endpoint.unsupported if settings[name] is not None]
        self.warnings = (
            *endpoint.warnings,
            *(f"{spec} has no {name}: it is left out" for name in sorted(left_out)),
        )
        self._identity: dict[str, object] = {
            "judge": spec,
            "url": endpoint.url if endpoint.key_url is None else endpoint.key_url,
            "parameters": settings | {"extra": redacted_options(options.extra)},
            "schema": options.schema,
            "strict": options.strict,
        }
        # Left out otherwise, so that keys are the same as before probabilities were supported.
        if self._min_mass is not None:
            self._identity |= {"read": "logprobs", "min_mass": self._min_mass}
        self._identity |= identity or {}

    def with_transport(
        self,
        transport: Transport,
        pace: Pacing,
        funds: BudgetProtocol,
        *,
        reasks: int | None = None,
    ) -> Self:
        """Return the same judge, with the same questions and keys, but with another transport, and with at most
        `reasks` questions after invalid replies.
        """
        other = copy.copy(self)
        other._reasks = self._reasks if reasks is None else min(reasks, self._reasks)
        other._transport = transport
        other._pace = pace
        other._funds = funds
        other._schema_refused = set()
        other._repeats = RepeatGroups(1)
        other._more_reasks = 0  # each would be one more batch, of up to a day
        return other

    def identity(self, edit: Edit, rubric: Rubric, repeat: int) -> Mapping[str, object]:
        return self._identity

    def capacity(self, questions: int) -> int:
        return self._pace.window

    def redacted(self, text: str) -> str:
        return self.endpoint.redacted(text, error=True)

    def stop(self) -> None:
        self._pace.stop()

    async def judge(self, work: Work, load: Load) -> Judgement:
        pending = _PendingTask(work, work.question(), self._price)
        with self._repeats.waiting(pending):
            await asyncio.sleep(0)  # until its other repeats wait too
            pending.images = {role: await load(role) for role in work.images}
            try:
                judgement = await self._in_slot(pending)
            except JudgeError as error:
                error.spent = pending.cost() or 0.0
                raise
            except EditjudgeError:
                raise
            except Exception as error:
                raise JudgingFailed(
                    error,
                    schema_mode=self._mode(pending.question),
                    exchanges=tuple(pending.exchanges),
                    notes=pending.notes(),
                    cost=pending.cost(),
                ) from error
        notes = (*judgement.notes, *pending.notes())
        return dataclasses.replace(judgement, notes=notes, cost=pending.cost())

    async def _in_slot(self, pending: _PendingTask) -> Judgement:
        async with self._pace.slot():
            self._repeats.begin(pending)
            if pending.shared is None:
                return await self._ask_until_valid(pending, None)
        # Wait without a slot: the repeat that requests this reply releases its own slot before a retry, and then
        # needs one.
        shared = await pending.shared
        async with self._pace.slot(has_reply=shared is not None):
            return await self._ask_until_valid(pending, shared)

    async def _ask_until_valid(
        self, pending: _PendingTask, shared: _Received | None
    ) -> Judgement:
        work = pending.work
        outcome: Verdict | Failure | None = None
        readings: dict[str, object] = {}
        mode = self._mode(pending.question)
        mismatches = 0
        for ask in range(1 + self._reasks + self._more_reasks):
            if ask > self._reasks and not self._is_worth_more(pending):
                break
            # A model that cannot follow the schema may still follow the question.
            drops_schema = mismatches > 1 or (mismatches and ask >= self._reasks)
            mode = "prompt only" if drops_schema else self._mode(pending.question)
            try:
                outcome, received = await self._ask_once(pending, mode, shared)
            except CallFailed as problem:
                if problem.kind != "grammar":
                    return self._unanswered(pending, problem, mode)
                mismatches += 1
                reason = Remark("grammar_mismatch", str(problem))
                outcome = Failure("invalid", (reason,))
                pending.exchanges.append(_no_reply("invalid", reason))
                continue
            except BudgetReached:
                if outcome is None:
                    raise  # there is no reply, so the task stays to be judged
                # The replies are paid for; the next run asks again.
                pending.out_of_budget = True
                break
            shared = None
            mode = received.mode
            if isinstance(outcome, Verdict):
                readings = self._readings(work.rubric, received.reply, outcome)
                break
            # A published question is asked anew as it stands. Some servers refuse an empty turn, and it carries no
            # information.
            is_exact = pending.question.layout == "exact"
            if (text := received.reply.text) and not is_exact:
                feedback = reask(outcome, pending.question)
                pending.turns += (RejectedTurn(text[:_MAX_QUOTED], feedback),)
        return work.verdict(
            cast("Verdict | Failure", outcome),
            pending.exchanges,
            schema_mode=mode,
            **readings,
        )

    def _is_worth_more(self, pending: _PendingTask) -> bool:
        """Whether to ask again although all re-asks are used up, because the replies were probably invalid by chance.

        A model that declined every time will decline again, and an answer that was cut off by the budget would be cut
        off again.
        """
        if pending.capped is not None or self._replies < _MIN_REPLIES:
            return False
        declines = {exchange.outcome for exchange in pending.exchanges} == {"refused"}
        mostly_valid = self._valid_replies >= _MIN_VALID_SHARE * self._replies
        return mostly_valid and not declines

    def _readings(
        self, rubric: Rubric, reply: Reply, verdict: Verdict
    ) -> dict[str, object]:
        """Return the judgement's fields that are computed from the token probabilities of an accepted reply."""
        if self._min_mass is None:
            return {}
        from editjudge.judges.probabilities import SPREAD, score_probabilities

        read = score_probabilities(rubric, reply, verdict.scores, self._min_mass)
        if self._logprobs_refused and not reply.tokens:
            reason = f"the server refuses logprobs: {self._logprobs_refused}"
            read.abstained = dict.fromkeys(read.abstained, reason)
        return {
            "expected": read.expected,
            "mass": read.mass,
            "abstained": read.abstained,
            "evidence": {SPREAD: read.spread} if read.spread else {},
        }

    async def _ask_once(
        self, pending: _PendingTask, mode: SchemaMode, shared: _Received | None
    ) -> tuple[Verdict | Failure, _Received]:
        """Ask once and check the reply. The reply is recorded even if the check raises, since it has been paid for."""
        received = shared
        if received is None:
            received = pending.share(await self._send_with_fallbacks(pending, mode))
        pending.shared_by = max(pending.shared_by, received.replies)
        # Imported here, since its patterns take time to compile and are not needed before the first reply.
        from editjudge.rubrics.contract import check

        reply = received.reply
        outcome: Verdict | Failure | None = None
        try:
            outcome = check(
                pending.work.rubric,
                reply.text,
                identifier=pending.question.identifier,
                strict=self._strict,
                finish=reply.finish,
            )
        finally:
            exchange = Exchange(
                text=reply.text,
                outcome=outcome.status if outcome else "error",
                finish=reply.finish,
                usage=reply.usage,
                model=reply.model,
                request_id=reply.request_id,
                latency=received.seconds,
                retries=received.retries,
                reasons=outcome.reasons if isinstance(outcome, Failure) else (),
            )
            pending.exchanges.append(exchange)
        self._replies += 1
        self._valid_replies += isinstance(outcome, Verdict)
        return outcome, received

    async def _send_with_fallbacks(
        self, pending: _PendingTask, mode: SchemaMode, *, logprobs: bool = True
    ) -> _Received:
        rubric = pending.work.rubric
        wants_logprobs = (
            logprobs and self._min_mass is not None and self._logprobs_refused is None
        )
        conversation = Conversation(
            pending.question.parts,
            pending.images,
            pending.turns,
            answer_schema(rubric) if mode != "prompt only" else None,
            rubric.name,
            top_logprobs=TOP_LOGPROBS if wants_logprobs else None,
            system=pending.question.system,
            choices=1 + len(pending.followers),
        )
        again = self._send_with_fallbacks
        try:
            reply, seconds, retries = await self._send(pending, conversation)
        except CallFailed as problem:
            if problem.kind == "schema" and conversation.schema is not None:
                received = await again(pending, "prompt only", logprobs=logprobs)
                self._note_refused_schema(pending.work, problem)
                return received
            if problem.kind == "request" and pending.followers:
                self._repeats.max_choices = 1
                pending.release()
                return await again(pending, mode, logprobs=logprobs)
            if problem.kind == "request" and wants_logprobs:
                received = await again(pending, mode, logprobs=False)
                self._logprobs_refused = problem  # the same question, accepted
                return received
            raise
        except BudgetReached:
            if pending.problem:  # asked in vain, and not to be asked again
                raise pending.problem from None
            raise
        replies = 1 + len(reply.others)
        if replies < conversation.choices:  # it ignores the number
            self._repeats.max_choices = 1
        return _Received(reply, seconds, retries, mode, replies)

    async def _send(
        self, pending: _PendingTask, conversation: Conversation
    ) -> tuple[Reply, float | None, int]:
        """Return the reply, how many seconds it took, and the number of failed requests before it."""
        options = self._options
        max_tokens = options.max_tokens or DEFAULT_MAX_OUTPUT
        if self._funds.bounded:
            options = dataclasses.replace(options, max_tokens=max_tokens)
        request = self.endpoint.request(conversation, options)
        maximum = self._maximum_cost(pending, request, max_tokens)
        timeouts = 0

        async def send(server: JudgeServer | None = None) -> tuple[Reply, float | None]:
            nonlocal timeouts
            hold = await self._funds.hold(maximum) if maximum else None
            sent = request
            if hold and hold.tokens < max_tokens:
                pending.capped = hold.tokens
                shorter = dataclasses.replace(options, max_tokens=hold.tokens)
                sent = self.endpoint.request(conversation, shorter)
            url, headers = self.endpoint.address(sent, server.url if server else None)
            try:
                # A question that exceeded the timeout needs more time on the next attempt.
                response = await self._transport.post(
                    url, headers, sent.body, 2.0**timeouts
                )
                reply = self.parse_response(response, pending.work)
            except CallFailed as problem:
                timeouts += problem.kind == "timeout"
                if problem.may_be_billed:
                    pending.lose(problem, hold.lost() if hold else 0.0)
                elif hold:
                    hold.settle(0.0)
                raise
            except (Exception, asyncio.CancelledError):
                pending.lose(None, hold.lost() if hold else 0.0)
                raise
            if hold:
                hold.settle(self._price.of(reply.usage) if self._price else None)
            if server:
                server.model = reply.model
            return reply, response.seconds

        tokens = self._tokens(pending.work, request)
        (reply, seconds), retries = await self._pace.send_with_retries(send, tokens)
        return reply, seconds, retries

    def _note_refused_schema(self, work: Work, problem: CallFailed) -> None:
        """Record that a question was rejected with the schema and accepted without it.

        The judge stops requesting schemas if a named field of the error says that they are not supported. An error
        message that says so counts only if its words are not quoted from the question, and two questions must have
        received one.
        """
        if problem.ignoring_quotes_of(_quotable(work)) is problem:
            self._schema_refused.add(work.task.key)
            if not problem.words or len(self._schema_refused) > 1:
                self._schema_mode = "prompt only"

    def parse_response(self, response: Response, work: Work | None = None) -> Reply:
        """Return the reply in a response. Raise `CallFailed` if it has none.

        All replies and errors, whether live or from batches, pass through here and are redacted, so none of them
        contains an API key.
        """
        try:
            reply = self.endpoint.reply(
                response.status, response.headers, response.body
            )
        except CallFailed as problem:
            problem = problem.with_message(self._redacted_message(response))
            # For a schema error the question is repeated without the schema in any case, so a quotation does no harm.
            if work is not None and problem.kind != "schema":
                problem = problem.ignoring_quotes_of(_quotable(work))
            raise problem from None
        return self._redacted_reply(reply)

    def _redacted_reply(self, reply: Reply) -> Reply:
        redacted = self.endpoint.redacted
        return dataclasses.replace(
            reply,
            text=redacted(reply.text),
            model=reply.model and redacted(reply.model),
            request_id=reply.request_id and redacted(reply.request_id),
            others=tuple(map(self._redacted_reply, reply.others)),
        )

    def _redacted_message(self, response: Response) -> str:
        """Return the message of an error response. It is taken from the redacted body, because truncating first could
        cut an API key in half.

        The kind of the failure is read from the original body, because redacting a placeholder key such as "x" would
        distort it.
        """
        body = self.endpoint.redacted_body(response.body)
        try:
            self.endpoint.reply(response.status, response.headers, body)
        except CallFailed as problem:
            # JSON escapes are decoded only now.
            return self.redacted(str(problem))
        return "no reason given"

    def _maximum_cost(
        self, pending: _PendingTask, request: ChatRequest, max_tokens: int
    ) -> MaximumCost | None:
        """Return an upper bound on the cost of a request, or None if the price is unknown."""
        if self._price is None:
            return None
        tokens = _text_bytes(request)  # a token is a byte at least
        for part in pending.question.parts:
            if isinstance(part, ImagePart):
                size = pending.work.sizes[part.role]
                tokens += max_image_tokens(self.spec, *size)
        price = self._price
        if price.long and tokens > price.long_from:
            price = price.long
        # With the user's own settings an answer may need all its tokens, for example for thinking.
        min_tokens = max_tokens
        if not self._options.extra and self._options.reasoning_effort is None:
            min_tokens = min(max_tokens, 4 * answer_tokens(pending.work.rubric))
        return MaximumCost(
            tokens * price.input / 1e6,
            price.output / 1e6,
            max_tokens,
            min_tokens,
        )

    def _tokens(self, work: Work, request: ChatRequest) -> int:
        """Estimate the number of tokens in a question and its answer."""
        sizes = [work.sizes[role] for role in work.images]
        question = question_tokens(self.spec, sizes, _text_bytes(request))
        return question + answer_tokens(work.rubric)

    def _mode(self, question: Question) -> SchemaMode:
        """Return how to request a schema for a question. No schema is requested if none can describe the reply, or if
        the question is a published one that is asked without one.
        """
        return self._schema_mode if question.sends_schema else "prompt only"

    def _unanswered(
        self, pending: _PendingTask, problem: CallFailed, mode: SchemaMode
    ) -> Judgement:
        if problem.kind in ("key", "model"):
            raise JudgeError(f"{self.spec}: {problem}", code="call_failed") from None
        status, code = outcome_of(problem)
        message = str(problem)
        if problem.kind == "context":
            message = context_advice(self.endpoint.context_setting, message)
        reason = Remark(code, message)
        return pending.work.judgement(
            status,
            reasons=(reason,),
            exchanges=(*pending.exchanges, _no_reply(status, reason)),
            schema_mode=mode,
        )


def _no_reply(status: Status, reason: Remark) -> Exchange:
    return Exchange("", status, finish="error", reasons=(reason,))


def outcome_of(problem: CallFailed) -> tuple[Status, str]:
    """Return the status and code to record for a question without a reply."""
    match problem.kind:
        case "refusal":
            return "refused", "refusal"
        case "image":
            return "bad_image", "bad_image"
        case "context":
            return "error", "context_too_small"
        case "request" | "schema":
            return "error", "request_rejected"
        case "server" if problem.status is not None and 400 <= problem.status < 500:
            return "error", "request_rejected"
        case kind:
            return "unreachable", kind.replace(" ", "_")


def _quotable(work: Work) -> str:
    """Return the user's texts in the question, which a server's error message may quote."""
    return "\n".join(work.edit.text(role) for role in work.rubric.texts)


def _text_bytes(request: ChatRequest) -> int:
    """Return the size of everything except images: messages, schema and settings."""
    return sum(map(len, request.body[::2]))
