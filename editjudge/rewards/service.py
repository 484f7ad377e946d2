"""HTTP API: `/v1/judge`, `/v1/reward`, `/healthz`, `/metrics`, `/openapi.json`, and the routes of trainers' dialects."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

import editjudge
from editjudge.errors import EditjudgeError, UsageError
from editjudge.judgement import DONE
from editjudge.judges.cost import check_budget
from editjudge.judges.registry import check_answers
from editjudge.rewards.canary import Canary, watching
from editjudge.rewards.dialects import REWARD, Dialect, Sent, chosen, native_path
from editjudge.rewards.metrics import RewardFigures, at_work, gauges_text
from editjudge.rewards.offer import JudgePanel, Offer
from editjudge.rewards.protocol import (
    JudgeRequest,
    OneEditRequest,
    RequestModels,
    RewardedEdit,
    RewardRequest,
    Rewards,
    Terms,
    openapi,
    schema,
)
from editjudge.rewards.queue import JudgingQueue, RequestBatch, open_queue
from editjudge.rewards.reduction import labels, scales
from editjudge.rewards.requests import TYPES, Body, Refused, RequestReader, body
from editjudge.rewards.rules import (
    FACTOR,
    FORMULA,
    PREFERENCE,
    Contest,
    RewardRules,
    check_groups,
    grouped,
)
from editjudge.rewards.steps import StepFigures
from editjudge.rubrics.model import Rubric
from editjudge.web.site import Extension, Site

_log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]

_MAX_BODY = 512 * 2**20
"""Maximum size of a request body in bytes, whatever the terms allow."""


def extension(site: Site) -> Extension:
    """Return the routes that rewards add to `serve`. Raise `UsageError` for invalid terms."""
    terms = site.settings.get("rewards") or Terms()
    service = _Service(site, terms)
    routes = service.routes()
    dialects = chosen(terms.dialects)
    for dialect, _ in dialects:
        routes += _DialectService(service, dialect).routes()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with open_queue(site.store, terms, service.offer.rubrics) as queue:
            app.state.queue = queue
            async with watching(service.canary, queue):
                yield
        service.steps.close()

    return Extension(
        routes,
        lifespan,
        partial(native_path, dialects),
        re.compile("/healthz"),
        re.compile(r"/(v1|d)/.*|/openapi\.json|/metrics", re.DOTALL),
        {"/v1/": _MAX_BODY, "/d/": _MAX_BODY},
    )


@dataclass
class _Inquiry:
    """A parsed request and its questions."""

    options: OneEditRequest | JudgeRequest
    rubrics: Sequence[Rubric]
    panel: JudgePanel
    batch: RequestBatch | None = field(default=None, init=False)
    """Questions in the request; None if there are none, because no two edits in a group can be compared."""

    def __post_init__(self) -> None:
        self.edits = [sent.edit(n) for n, sent in enumerate(self.options.edits)]
        self.by_judge = self.panel.questions(self.rubrics)
        """Rubrics about which each judge is asked."""

    async def questions(self, queue: JudgingQueue) -> RequestBatch | None:
        return RequestBatch(self.edits, self.by_judge, fresh=self.options.fresh)

    def provenance(self) -> dict[str, Any]:
        run = self.batch.run if self.batch else None
        return {
            "judge": " + ".join(self.by_judge),
            "rubrics": {rubric.name: rubric.hash for rubric in self.rubrics},
            "run": {"id": run.id, "name": run.name} if run else None,
        }


@dataclass
class _RewardInquiry(_Inquiry):
    """A request to reward edits."""

    options: RewardRequest
    rules: RewardRules
    groups: Sequence[str | None]
    """Group of each edit."""
    contest: Contest | None = field(default=None, init=False)
    """Comparisons for `ranking: pairs`."""

    async def questions(self, queue: JudgingQueue) -> RequestBatch | None:
        edits = self.edits
        if self.options.ranking == "pairs":
            self.contest = Contest(edits, self.groups, await queue.inspect(edits))
            edits = self.contest.pairs()
        if not edits:
            return None
        return RequestBatch(
            edits,
            self.by_judge,
            screened=self.contest is None,
            samples=self.options.samples,
            fresh=self.options.fresh,
        )

    def weights(self) -> dict[str, float]:
        """Return the weight of each judge that is asked."""
        return {spec: self.panel.weights.get(spec, 1.0) for spec in self.by_judge}

    def judged_by(self) -> dict[str, str] | None:
        """Return the judge of each factor, if rubrics have different judges."""
        if not self.panel.by_rubric:
            return None
        return {
            label: self.panel.judge_of(rubric)
            for (rubric, _), label in labels(self.rubrics).items()
        }

    def rewards(self) -> list[RewardedEdit]:
        if self.contest or self.batch is None:
            assert self.contest is not None  # noqa: S101  (only pairs may have no questions)
            return self.contest.rewards(self.batch, self.rules)
        rewards = [self.rules.reward(n, self.batch) for n in range(len(self.edits))]
        return grouped(self.groups, rewards, ranked=self.options.ranking == "scores")


Q = TypeVar("Q", bound=_Inquiry)


class _Service:
    def __init__(self, site: Site, terms: Terms) -> None:
        self._site = site
        self._terms = terms
        self.figures = RewardFigures()
        self.steps = StepFigures()
        self.offer = Offer.of(terms)
        self.offer.check_rubrics()
        _, rubrics = self.offer.read_score(terms.formula, terms.weights)
        called = labels(rubrics)
        self.factors = {called[ref]: scale for ref, scale in scales(rubrics).items()}
        """Scales of the default factors, keyed by their names in the response."""
        judges = dict.fromkeys((*self.offer.judges(), *terms.judges))
        # Raises if the costs of a judge are unknown, because a budget could not be enforced.
        check_budget(terms.budget, list(judges), terms.options)
        models = RequestModels(terms, judges, self.offer.askable(), self.offer.names)
        self.reader = RequestReader(models, terms.edits)
        self.canary: Canary | None = None
        if terms.canary is not None:
            self.canary = Canary(terms.canary, self.offer.default_questions())
        secured = bool(site.token or site.service_token)
        self._document = openapi(models, secured=secured)

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/healthz", self.health, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/openapi.json", self.describe, methods=["GET"]),
            Route("/docs", self.docs, methods=["GET"]),
            Route("/v1/judge", _refusing(self.judge), methods=["POST"]),
            Route("/v1/reward", _refusing(self.reward), methods=["POST"]),
            Route("/v1/reward/schema", self.schema, methods=["GET"]),
        ]

    # --- documents --------------------------------------------------------------------------------------------

    async def describe(self, _: Request) -> Response:
        return JSONResponse(self._document)

    async def docs(self, request: Request) -> Response:
        """Return a page that describes the HTTP API."""
        return HTMLResponse(
            self._site.page("docs.html", api=self._document, base=request.base_url)
        )

    async def schema(self, _: Request) -> Response:
        return JSONResponse(schema(), media_type="application/schema+json")

    async def health(self, request: Request) -> Response:
        queue: JudgingQueue = request.app.state.queue
        about: dict[str, object] = {"version": editjudge.__version__}
        about["waiting"] = queue.edits
        if self.canary:
            about["canary"] = self.canary.as_json()
            if self.canary.alarm and not queue.closing:
                about["status"] = "alarm"
        if self.steps.step is not None:
            about["steps"] = self.steps.as_json()
        return _readiness(queue, about)

    async def metrics(self, request: Request) -> Response:
        queue: JudgingQueue = request.app.state.queue
        text = self.figures.prometheus_text(
            waiting=queue.edits, held=queue.held, spent=queue.budget.spent
        )
        if self.canary:
            text += gauges_text(self.canary.gauges())
        text += gauges_text(self.steps.gauges())
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    # --- judging ----------------------------------------------------------------------------------------------

    async def judge(self, request: Request) -> Response:
        inquiry = await self._answered(request, self._understand_judging)
        batch = inquiry.batch
        assert batch is not None  # noqa: S101  (only pairs may have none)
        order = [rubric.name for rubric in inquiry.rubrics]
        rows = []
        for number in range(len(batch.edits)):
            queued = batch.queued_for(number)
            judgements = (row for edit in queued for row in edit.rows(batch.started))
            rows += sorted(judgements, key=lambda row: order.index(row["rubric"]))
        failed = any(row["status"] not in DONE for row in rows)
        status = 503 if inquiry.options.strict and failed else 200
        return JSONResponse({"judgements": rows, **inquiry.provenance()}, status)

    async def reward(self, request: Request) -> Response:
        inquiry, rewards = await self.rewards(request, self.reader.rewarding)
        answer = Rewards(
            rewards=rewards,
            formula=FORMULA if inquiry.contest else inquiry.rules.reduction.formula,
            judges=inquiry.weights(),
            judged_by=inquiry.judged_by(),
            **inquiry.provenance(),
        )
        failed = any(reward.reward is None for reward in rewards)
        status = 503 if inquiry.options.strict and failed else 200
        hidden = None if answer.judged_by else {"judged_by"}
        return JSONResponse(answer.model_dump(exclude=hidden), status)

    async def rewards(
        self,
        request: Request,
        read: Callable[[Body], RewardRequest],
        accepted: Sequence[str] = TYPES,
        protocol: str = "v1",
    ) -> tuple[_RewardInquiry, list[RewardedEdit]]:
        """Return the request, parsed by `read`, and the rewards in the order of its edits."""
        queue: JudgingQueue = request.app.state.queue
        begun = time.monotonic()
        try:
            inquiry = await self._answered(
                request, lambda data: self._understand_rewarding(read(data)), accepted
            )
        except Refused as refused:
            self.figures.refused[protocol, refused.status] += 1
            raise
        if inquiry.options.step is not None:
            self.steps.take(inquiry.options.step, inquiry.edits)
        rewards = inquiry.rewards()
        ended = time.monotonic()
        keys = inquiry.batch.keys() if inquiry.batch else set()
        spans = [queue.spans[key] for key in keys & queue.spans.keys()]
        self.figures.note(protocol, rewards)
        at_judges = at_work(spans, begun, ended)
        self.figures.note_request(protocol, ended - begun, at_judges)
        return inquiry, rewards

    async def _answered(
        self,
        request: Request,
        understand: Callable[[Body], Q],
        accepted: Sequence[str] = TYPES,
    ) -> Q:
        """Return the request with the answers that arrived before its deadline.

        `understand` parses the request in a thread, since it decodes images.
        """
        begun = time.monotonic()
        terms = self._terms
        queue: JudgingQueue = request.app.state.queue
        length = request.headers.get("content-length", "")
        size = int(length) if length.isascii() and length.isdigit() else 0
        if size > terms.max_body:
            raise Refused(
                413,
                f"{size:,} bytes: at most {terms.max_body:,} are accepted; send smaller batches",
            )
        with queue.admitted(size) as hold:
            reading = partial(
                understand, await body(request, terms, hold.add, accepted)
            )
            try:
                # The request's own deadline is unknown until it is read.
                async with asyncio.timeout(terms.deadline - (time.monotonic() - begun)):
                    inquiry = await queue.read(reading)
                    batch = await inquiry.questions(queue)
            except TimeoutError:
                raise queue.full() from None
            # Frees the memory of the body.
            del reading
            if batch:
                queue.take(batch, hold)
        if batch:
            inquiry.batch = batch
            deadline = inquiry.options.deadline or terms.deadline
            await batch.wait(deadline - (time.monotonic() - begun))
        return inquiry

    # --- requests ---------------------------------------------------------------------------------------------

    def _understand_judging(self, data: Body) -> _Inquiry:
        options = self.reader.judging(data)
        rubrics = self.offer.rubrics_of(options.rubrics or ())
        return _Inquiry(options, rubrics, self.offer.panel(options.judge))

    def _understand_rewarding(self, options: RewardRequest) -> _RewardInquiry:
        terms = self._terms
        reduction, rubrics = self.offer.score_of(options)
        panel = self.offer.panel_of(options)
        rules = RewardRules(
            reduction,
            labels(rubrics),
            scales(rubrics),
            panel,
            options.use or terms.use,
            terms.degenerate == "worst",
        )
        groups = _groups(options)
        if options.ranking == "pairs":
            rubrics = [PREFERENCE]
            _check_pairs(options, list(panel.questions(rubrics)))
        inquiry = _RewardInquiry(options, rubrics, panel, rules, groups)
        if options.ranking == "pairs":
            check_groups(inquiry.edits, groups, terms.max_waiting)
        return inquiry


class _DialectService:
    """The routes of a trainer's protocol."""

    def __init__(self, service: _Service, dialect: Dialect) -> None:
        self._service = service
        self._dialect = dialect
        for mode, options in dialect.modes().items():
            try:
                request = service.reader.valid_options(options)
                service.offer.score_of(request)
                service.offer.panel_of(request)
            except Refused as refused:
                problem = refused.problems[0]
                raise UsageError(
                    f"--dialect {dialect.name}: mode.choices.{mode}.{problem.where}: {problem.what}; "
                    "judges and rubrics are those of the server",
                    code="invalid_dialect",
                ) from None

    def routes(self) -> list[BaseRoute]:
        at = f"/d/{self._dialect.name}"
        post = _refusing(self._reward)
        return [
            Route(f"{at}{self._dialect.post}", post, methods=["POST"]),
            *(
                Route(f"{at}{path}", self._look, methods=["GET"])
                for path in self._dialect.gets
            ),
        ]

    async def _reward(self, request: Request) -> Response:
        dialect = self._dialect
        service = self._service
        received: list[Sent] = []

        def read(body: Body) -> RewardRequest:
            sent = dialect.read(body, service.reader, service.factors)
            received.append(sent)
            options = service.reader.valid_edits(sent.edits, sent.options, sent.bad)
            if options is None:
                raise _NothingTaken
            return options

        rewards: list[RewardedEdit] = []
        try:
            _, rewards = await service.rewards(
                request, read, dialect.content_types, dialect.name
            )
        except _NothingTaken:
            pass
        except Refused as refused:
            # Trainers' clients show only the status, so the problem is logged here.
            if refused.status != 429:
                _log.warning(
                    "%s refused a request (%d): %a",
                    dialect.name,
                    refused.status,
                    refused.error[:500],
                )
            raise
        (sent,) = received
        if sent.bad:
            service.figures.note(dialect.name, list(sent.bad.values()))
            first = sent.bad[min(sent.bad)].reasons[0].message
            _log.warning(
                "%s: %d edits of a request are invalid and not judged: %a",
                dialect.name,
                len(sent.bad),
                first[:500],
            )
        accepted = iter(rewards)
        answered = [sent.bad.get(n) or next(accepted) for n in range(len(sent.edits))]
        return dialect.response(dialect.write(sent, answered, service.factors))

    async def _look(self, request: Request) -> Response:
        """Report whether the server is ready, and which rewards it offers."""
        offered = [REWARD, *self._service.factors]
        if request.url.path.endswith("/rewards"):
            return JSONResponse({"rewards": offered})
        queue: JudgingQueue = request.app.state.queue
        return _readiness(queue, {"rewards": {name: ["ready"] for name in offered}})


class _NothingTaken(Exception):
    """Raised if none of the edits in a trainer's request can be judged."""


def _groups(options: RewardRequest) -> list[str | None]:
    """Return each edit's group. With `ranking`, edits without a group are grouped by input and instruction."""
    if options.ranking == "none":
        return [edit.group for edit in options.edits]
    groups: list[str | None] = []
    for edit in options.edits:
        content = edit.instruction.encode() + b"\n" + (edit.input or b"")
        groups.append(edit.group or hashlib.sha256(content).hexdigest()[:12])
    return groups


def _check_pairs(options: RewardRequest, judges: Sequence[str]) -> None:
    """Raise `Refused` if a request with `ranking: pairs` has a formula, or a judge that cannot compare."""
    for name in ("rubrics", "score", "formula", "weights"):
        if getattr(options, name) is not None:
            what = f"pairs are compared by {PREFERENCE.name}.{FACTOR}: leave {name} out"
            raise Refused.at(name, what)
    try:
        check_answers(judges, [PREFERENCE])
    except UsageError as error:
        raise Refused.at("ranking", str(error)) from None


def _readiness(queue: JudgingQueue, about: Mapping[str, object]) -> Response:
    status = "stopping" if queue.closing else "ok"
    return JSONResponse({"status": status, **about}, 503 if queue.closing else 200)


def _refusing(handle: Handler) -> Handler:
    """Return a handler that answers a refusal with its status and message."""

    async def answered(request: Request) -> Response:
        try:
            return await handle(request)
        except Refused as refused:
            headers = {"Retry-After": str(refused.wait)} if refused.wait else None
            content = refused.refusal.model_dump()
            return JSONResponse(content, refused.status, headers)
        except EditjudgeError as error:
            # For example, if a judge cannot be opened or the store cannot be written.
            return JSONResponse({"error": str(error), "problems": []}, 503)

    return answered
