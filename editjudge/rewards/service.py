"""`/v1/judge`, `/v1/reward`, `/healthz`, `/openapi.json`: verdicts and rewards for programs."""

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
from itertools import chain
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

import editjudge
from editjudge.edit import IMAGE_ROLES, TEXT_ROLES, Edit
from editjudge.errors import EditjudgeError, UsageError
from editjudge.judgement import DONE
from editjudge.judges.registry import check_answers
from editjudge.rewards.audit import RewardAudit, Suspicion, at_work, metrics
from editjudge.rewards.dialects import (
    REWARD,
    Dialect,
    Sent,
    chosen,
    native_path,
    parse_pickle,
)
from editjudge.rewards.protocol import (
    RequestModels,
    RequestOptions,
    RewardedEdit,
    RewardRequest,
    Rewards,
    RewardSite,
    SentEdit,
    Terms,
    openapi,
    schema,
)
from editjudge.rewards.queue import (
    PREFERENCE,
    JudgingQueue,
    RequestBatch,
    open_queue,
)
from editjudge.rewards.reduction import (
    Reduction,
    check_weights,
    labelled,
    labels,
    names,
)
from editjudge.rewards.requests import (
    TYPES,
    BadEdit,
    Body,
    Refused,
    RequestReader,
    body,
)
from editjudge.rewards.rules import (
    FACTOR,
    FORMULA,
    Contest,
    RewardRules,
    check_groups,
    grouped,
    not_taken,
    replies,
)
from editjudge.rubrics.files import SETS, resolve
from editjudge.rubrics.model import Factor, Rubric
from editjudge.rubrics.sets import check_unconditional
from editjudge.running.cost import Costs
from editjudge.web.site import Extension, Site

_log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


_MAX_BODY = 512 * 2**20
"""Bytes of a batch of images, whatever the terms say."""


def extension(site: Site) -> Extension:
    """Return what rewards add to `serve`."""
    rewards = site.settings.get("rewards") or RewardSite(site.store)
    dialects = chosen(rewards.terms.dialects)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with judging_queue(rewards) as queue:
            app.state.queue = queue
            yield

    service = _Service(site, rewards)
    routes = service.routes()
    for dialect, _ in dialects:
        routes += _DialectService(service, dialect).routes()
    return Extension(
        routes,
        lifespan,
        partial(native_path, dialects),
        re.compile("/healthz"),
        re.compile(r"/(v1|d)/.*|/openapi\.json|/metrics", re.DOTALL),
        {"/v1/": _MAX_BODY, "/d/": _MAX_BODY},
    )


@asynccontextmanager
async def judging_queue(site: RewardSite) -> AsyncIterator[JudgingQueue]:
    """Open the queue that the application keeps as `state.queue` for as long as it runs."""
    rubrics = resolve(_rubric_names(site.terms))
    check_unconditional(rubrics, "a server asks every rubric of every edit once")
    carried = {*IMAGE_ROLES, *TEXT_ROLES, "references"}
    for rubric in rubrics:
        for name in (*rubric.images, *rubric.texts):
            if name not in carried:
                raise UsageError(
                    f"{rubric.name}: shows {name}, which a request cannot carry: use `editjudge run`"
                )
    check_answers([site.judge, *site.terms.mixture], rubrics)
    async with open_queue(site, rubrics) as opened:
        yield opened


def _rubric_names(terms: Terms) -> list[str]:
    return list(dict.fromkeys((*terms.rubrics, *terms.more_rubrics)))


@dataclass
class _Inquiry:
    """A request to judge edits as it was understood, and what has become of it."""

    options: RequestOptions
    edits: list[Edit]
    rubrics: list[Rubric]
    judges: Mapping[str, float]
    """Weights of the judges."""
    batch: RequestBatch | None = field(default=None, init=False)
    """None if there is nothing to ask: no two edits of a group can be compared."""

    async def prepare(self, queue: JudgingQueue) -> None:
        """Do what has to be done before the first question."""

    def ask(self, queue: JudgingQueue, hold: Any) -> RequestBatch | None:
        return queue.take(
            self.edits, self.rubrics, list(self.judges), hold, fresh=self.options.fresh
        )

    def provenance(self) -> dict[str, Any]:
        run = self.batch.parts[0].run if self.batch else None
        return {
            "judge": " + ".join(self.judges),
            "rubrics": {rubric.name: rubric.hash for rubric in self.rubrics},
            "run": {"id": run.id, "name": run.name} if run else None,
        }


@dataclass
class _RewardInquiry(_Inquiry):
    """A request to reward edits."""

    options: RewardRequest
    rules: RewardRules
    groups: list[str | None]
    """The group of each edit."""
    contest: Contest | None = field(default=None, init=False)
    """The comparisons of `ranking: pairs`."""

    async def prepare(self, queue: JudgingQueue) -> None:
        if self.options.ranking == "pairs":
            inspected = await queue.inspected(self.edits)
            self.contest = Contest(self.edits, self.groups, inspected)

    def ask(self, queue: JudgingQueue, hold: Any) -> RequestBatch | None:
        edits = self.contest.pairs() if self.contest else self.edits
        if not edits:
            return None
        return queue.take(
            edits,
            self.rubrics,
            list(self.judges),
            hold,
            screened=self.contest is None,
            samples=self.options.samples,
            fresh=self.options.fresh,
        )

    def rewards(self) -> list[RewardedEdit]:
        if self.contest:
            worst = self.rules.worst
            return self.contest.rewards(self.batch, self.judges, worst=worst)
        assert self.batch is not None  # noqa: S101  (only pairs may have none)
        rewards = [self.rules.reward(n, self.batch) for n in range(len(self.edits))]
        ranked = self.options.ranking == "scores"
        return grouped(self.groups, rewards, ranked=ranked)

    def formula(self) -> str:
        return FORMULA if self.contest else self.rules.reduction.words()


Q = TypeVar("Q", bound=_Inquiry)


class _Service:
    def __init__(self, site: Site, rewards: RewardSite) -> None:
        terms = rewards.terms
        self._site = site
        self._judge = rewards.judge
        self._terms = terms
        rubric_names = _rubric_names(terms)
        self._rubrics = {rubric.name: rubric for rubric in resolve(rubric_names)}
        """All that may be asked, by name."""
        self._sets = {
            name: [rubric.name for rubric in resolve([name])] for name in rubric_names
        }
        """The rubrics of each name that the operator gave; a file is asked by its rubric's name."""
        self._factors = names(list(self._rubrics.values()))
        check_weights(Reduction(terms.formula, terms.weights).weights, self._factors)
        judges = dict.fromkeys((rewards.judge, *terms.mixture, *terms.judges))
        # Raises if a budget cannot be kept.
        Costs(rewards.options, terms.budget, list(judges))
        askable = (*(name for name in self._sets if name in SETS), *self._rubrics)
        models = RequestModels(terms, judges, dict.fromkeys(askable), self._factors)
        self.reader = RequestReader(models, terms.edits)
        secured = bool(site.token or site.service_token)
        self._document = openapi(models, secured=secured)

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/healthz", self.health, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/audit", self.audit, methods=["GET"]),
            Route("/openapi.json", self.describe, methods=["GET"]),
            Route("/docs", self.docs, methods=["GET"]),
            Route("/v1/judge", _refusing(self.judge), methods=["POST"]),
            Route("/v1/reward", _refusing(self.reward), methods=["POST"]),
            Route("/v1/reward/schema", self.schema, methods=["GET"]),
        ]

    # --- documents --------------------------------------------------------------------------------------------

    async def describe(self, request: Request) -> Response:
        return JSONResponse(self._document)

    async def docs(self, request: Request) -> Response:
        """Show the HTTP API to people."""
        return HTMLResponse(
            self._site.page("docs.html", api=self._document, base=request.base_url)
        )

    async def schema(self, _: Request) -> Response:
        return JSONResponse(schema(), media_type="application/schema+json")

    async def health(self, request: Request) -> Response:
        queue: JudgingQueue = request.app.state.queue
        about = {"version": editjudge.__version__, "waiting": queue.edits}
        return _readiness(queue, about)

    async def metrics(self, request: Request) -> Response:
        queue: JudgingQueue = request.app.state.queue
        gauges = {
            "editjudge_waiting_edits": (
                "Edits taken in and not judged yet.",
                float(queue.edits),
            ),
            "editjudge_held_bytes": (
                "Bytes of the requests that wait.",
                float(queue.held),
            ),
            "editjudge_spent_dollars": (
                "What judges cost since the server began.",
                queue.budget.spent,
            ),
        }
        text = metrics(queue.audit, gauges)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def audit(self, request: Request) -> Response:
        audit: RewardAudit = request.app.state.queue.audit
        has_pictures = self._terms.pictures is not None
        suspicious = [
            _with_pictures(suspicion, has_pictures=has_pictures)
            for suspicion in audit.suspicious()
        ]
        return HTMLResponse(
            self._site.page("audit.html", audit=audit, suspicious=suspicious)
        )

    # --- judging ----------------------------------------------------------------------------------------------

    async def judge(self, request: Request) -> Response:
        inquiry = await self._judged(request, self._understand_judging)
        batch = inquiry.batch
        assert batch is not None  # noqa: S101  (only pairs may have none)
        rows: list[dict[str, Any]] = []
        for queued in batch.parts[0].edits:
            about = {"id": queued.edit.id, "stored_as": queued.stored_as or None}
            rows += [about | reply.row(queued) for reply in replies(queued, batch)]
        failed = any(row["status"] not in DONE for row in rows)
        status = 503 if inquiry.options.strict and failed else 200
        return JSONResponse({"judgements": rows, **inquiry.provenance()}, status)

    async def reward(self, request: Request) -> Response:
        inquiry, rewards = await self.rewards(request, self.reader.rewarding)
        answer = Rewards(
            rewards=rewards,
            formula=inquiry.formula(),
            judges=dict(inquiry.judges),
            **inquiry.provenance(),
        )
        failed = any(reward.reward is None for reward in rewards)
        status = 503 if inquiry.options.strict and failed else 200
        return JSONResponse(answer.model_dump(), status)

    async def rewards(
        self,
        request: Request,
        read: Callable[[Any], RewardRequest],
        accepted: Sequence[str] = TYPES,
        protocol: str = "v1",
    ) -> tuple[_RewardInquiry, list[RewardedEdit]]:
        """Return the request as `read` understands its body, and the rewards of its edits in their order."""
        queue: JudgingQueue = request.app.state.queue
        begun = time.monotonic()
        audit = queue.audit
        try:
            inquiry = await self._judged(
                request, lambda data: self._understand_rewarding(read(data)), accepted
            )
        except Refused as refused:
            audit.refused[protocol, refused.status] += 1
            raise
        rewards = inquiry.rewards()
        ended = time.monotonic()
        parts = inquiry.batch.parts if inquiry.batch else []
        run = parts[0].run if parts else None
        works = chain.from_iterable(
            queued.works for part in parts for queued in part.edits
        )
        keys = {work.task.key for work in works}
        spans = [queue.spans[key] for key in keys & queue.spans.keys()]
        audit.note(protocol, rewards, run.id if run else None)
        audit.note_request(protocol, ended - begun, at_work(spans, begun, ended))
        return inquiry, rewards

    async def _judged(
        self,
        request: Request,
        understand: Callable[[Body], Q],
        accepted: Sequence[str] = TYPES,
    ) -> Q:
        """Return the request with what has come of it by its deadline. It is understood in a thread, since images are
        decoded."""
        begun = time.monotonic()
        terms = self._terms
        queue: JudgingQueue = request.app.state.queue
        length = request.headers.get("content-length", "")
        size = int(length) if length.isascii() and length.isdigit() else 0
        if size > terms.max_body:
            raise Refused(
                413,
                f"{size:,} bytes: at most {terms.max_body:,} are taken; send smaller batches",
            )
        with queue.admitted(size) as hold:
            reading = partial(
                understand, await body(request, terms, hold.add, accepted)
            )
            try:
                # The deadline of the request itself is not known before it is read.
                async with asyncio.timeout(terms.deadline - (time.monotonic() - begun)):
                    inquiry = await queue.threaded(reading)
                    await inquiry.prepare(queue)
            except TimeoutError:
                raise queue.full() from None
            del reading
            inquiry.batch = inquiry.ask(queue, hold)
        if inquiry.batch:
            deadline = inquiry.options.deadline or terms.deadline
            await inquiry.batch.wait(deadline - (time.monotonic() - begun))
        return inquiry

    # --- requests ---------------------------------------------------------------------------------------------

    def _understand_judging(self, data: Body) -> _Inquiry:
        options = self.reader.judging(data)
        return _Inquiry(
            options,
            _edits(options.edits),
            self._rubrics_of(options.rubrics or (), {}),
            {options.judge or self._judge: 1.0},
        )

    def _understand_rewarding(self, options: RewardRequest) -> _RewardInquiry:
        try:
            check_weights(options.weights or {}, self._factors)
        except UsageError as error:
            raise _refused("weights", str(error)) from None
        weights = options.weights
        if weights is None:
            weights = {} if options.rubrics else dict(self._terms.weights)
        formula: Any = options.formula or self._terms.formula
        judges = options.judges or dict(self._terms.mixture) or {self._judge: 1.0}
        if options.judge and not options.judges:
            judges = {options.judge: 1.0}
        rubrics = self._rubrics_of(options.rubrics or (), weights)
        called = labels(rubrics)
        rules = RewardRules(
            Reduction(formula, labelled(weights, self._factors, called)),
            called,
            self._factors,
            judges,
            self._terms.degenerate == "worst",
        )
        edits = _edits(options.edits)
        groups = _groups(options)
        if options.ranking == "pairs":
            _check_pairs(options, judges)
            check_groups(edits, groups, self._terms.max_waiting)
            rubrics = [PREFERENCE]
        return _RewardInquiry(options, edits, rubrics, judges, rules, groups)

    def _rubrics_of(
        self, words: Sequence[str], weights: Mapping[str, float]
    ) -> list[Rubric]:
        """Return the named rubrics and those of weighted factors, else the site's own; always in its order."""
        wanted = {self._factors[name][0].name for name in weights}
        for word in words or (() if wanted else self._terms.rubrics):
            wanted.update(self._sets.get(word, [word]))
        return [rubric for name, rubric in self._rubrics.items() if name in wanted]

    def offered_factors(self) -> dict[str, Factor]:
        """Return the factors of a request that names neither rubrics nor weights, by their names in the answer."""
        rubrics = self._rubrics_of((), self._terms.weights)
        called = labels(rubrics)
        return {
            called[rubric.name, factor.key]: factor
            for rubric in rubrics
            for factor in rubric.factors
        }


class _DialectService:
    """The routes of a trainer's protocol."""

    def __init__(self, service: _Service, dialect: Dialect) -> None:
        self._service = service
        self._dialect = dialect
        self._factors = service.offered_factors()
        for mode, options in dialect.modes.items():
            try:
                service.reader.check_options(options)
            except Refused as refused:
                problem = refused.problems[0]
                raise UsageError(
                    f"--dialect {dialect.name}: mode.choices.{mode}.{problem.where}: {problem.what}; "
                    "judges and rubrics are those of the server"
                ) from None

    def routes(self) -> list[BaseRoute]:
        dialect = self._dialect
        at = f"/d/{dialect.name}"
        return [
            Route(f"{at}{dialect.post}", _refusing(self._reward), methods=["POST"]),
            *(
                Route(f"{at}{path}", self._look, methods=["GET"])
                for path in dialect.gets
            ),
        ]

    async def _reward(self, request: Request) -> Response:
        dialect = self._dialect
        received: list[Sent] = []
        bad: dict[int, BadEdit] = {}

        def read(data: Any) -> RewardRequest:
            sent = self._read(data)
            received.append(sent)
            bad.update(sent.bad)
            options = self._service.reader.valid_edits(sent.edits, sent.options, bad)
            if options is None:
                raise _NothingTaken
            return options

        taken: list[RewardedEdit] = []
        try:
            _, taken = await self._service.rewards(
                request, read, dialect.content_types, dialect.name
            )
        except _NothingTaken:
            pass
        except Refused as refused:
            # Their clients show the status alone: whoever runs the server can read what is wrong.
            if refused.status != 429:
                _log.warning(
                    "%s refused a request (%d): %a",
                    dialect.name,
                    refused.status,
                    refused.error[:500],
                )
            raise
        failed = {n: not_taken(str(n), *bad[n]) for n in sorted(bad)}
        if failed:
            audit: RewardAudit = request.app.state.queue.audit
            audit.note(dialect.name, list(failed.values()), None)
            _log.warning(
                "%s: %d edits of a request could not be taken: %a",
                dialect.name,
                len(bad),
                next(iter(bad.values())).message[:500],
            )
        (sent,) = received
        judged = iter(taken)
        rewards = [failed.get(n) or next(judged) for n in range(len(sent.edits))]
        return dialect.answer(dialect.write(sent, rewards, self._factors))

    def _read(self, data: Any) -> Sent:
        reader = self._service.reader
        if self._dialect.pickled:
            values = parse_pickle(data, reader.max_values)
            return self._dialect.read(values, self._factors)
        return self._dialect.read(reader.parse(data), self._factors)

    async def _look(self, request: Request) -> Response:
        """Say whether the server is ready, and what it offers."""
        names = [REWARD, *self._factors]
        if request.url.path.endswith("/rewards"):
            return JSONResponse({"rewards": names})
        queue: JudgingQueue = request.app.state.queue
        return _readiness(queue, {"rewards": {name: ["ready"] for name in names}})


class _NothingTaken(Exception):
    """No edit of a trainer's request can be judged."""


def _edits(sent: Sequence[SentEdit]) -> list[Edit]:
    return [edit.edit(number) for number, edit in enumerate(sent)]


def _groups(options: RewardRequest) -> list[str | None]:
    """Return the group of each edit; for ranks, edits without one are compared if they share input and instruction."""
    if options.ranking == "none":
        return [edit.group for edit in options.edits]
    groups: list[str | None] = []
    for edit in options.edits:
        content = edit.instruction.encode() + b"\n" + (edit.input or b"")
        groups.append(edit.group or hashlib.sha256(content).hexdigest()[:12])
    return groups


def _check_pairs(options: RewardRequest, judges: Mapping[str, float]) -> None:
    """Raise `Refused` if a request with `ranking: pairs` names how scores are combined, or a judge that cannot
    compare."""
    fields = {
        "rubrics": options.rubrics,
        "formula": options.formula,
        "weights": options.weights,
    }
    for name, value in fields.items():
        if value is not None:
            what = f"pairs are compared by {PREFERENCE.name}.{FACTOR}: leave {name} out"
            raise _refused(name, what)
    try:
        check_answers(list(judges), [PREFERENCE])
    except UsageError as error:
        raise _refused("ranking", str(error)) from None


def _refused(where: str, what: str) -> Refused:
    return Refused(422, what, [(where, what)])


def _readiness(queue: JudgingQueue, about: Mapping[str, Any]) -> Response:
    status = "stopping" if queue.closing else "ok"
    return JSONResponse({"status": status, **about}, 503 if queue.closing else 200)


def _with_pictures(suspicion: Suspicion, *, has_pictures: bool) -> dict[str, Any]:
    """Return a suspicion for the page, with the addresses of the edit and its images."""
    reward = suspicion.reward
    page = ""
    images: list[tuple[str, str]] = []
    if reward.run is not None and reward.stored_as is not None:
        item = quote(reward.stored_as, safe="")
        page = f"/runs/{reward.run}/edits/{item}"
        if has_pictures:
            at = f"/runs/{reward.run}/images"
            images = [(role, f"{at}/{role}/{item}") for role in ("input", "edited")]
    return {"reward": reward, "why": suspicion.why, "page": page, "pictures": images}


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
            # A judge that cannot be opened, a store that cannot be written.
            return JSONResponse({"error": str(error), "problems": []}, 503)

    return answered
