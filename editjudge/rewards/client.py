"""The judge `http:URL`: a server of the reward protocol, or a trained scorer's own server (`-J server=editreward`)."""

from __future__ import annotations

import base64
import functools
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass as validated

from editjudge.edit import Edit
from editjudge.errors import JudgeError, Option, UsageError, did_you_mean
from editjudge.judgement import STATUSES, Exchange, Judgement, Status
from editjudge.judges import read_yaml
from editjudge.judges.chat import outcome_of
from editjudge.judges.failures import CallFailed, failure, no_answer
from editjudge.judges.http import HttpTransport, Response
from editjudge.judges.judge import Judge, JudgeServer, Load, Options, Pacing, Work
from editjudge.judges.wire import mapping, objects, string
from editjudge.judges.workers import READABLE
from editjudge.media.image import EncodedImage, decode
from editjudge.redaction import address_secrets, redacted_address, without
from editjudge.rewards.pickled import NotPlain, dumps, loads
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.verdict import Remark

TOKEN = "EDITJUDGE_REWARD_TOKEN"  # noqa: S105  (the name of a variable)
"""Variable that has the bearer token of a server, if it wants one."""
_ROLES = ("input", "edited", "ground_truth", "mask")
_LIST = "references"
_MAX_VALUES = 100_000
_MAX_TEXT = 20_000
"""Maximum number of characters of an answer that are stored."""

Answer: TypeAlias = tuple[Mapping[str, object], Mapping[str, str]]
"""Number of each factor, or None to abstain, and the reasons."""


@validated(frozen=True, config=ConfigDict(extra="forbid"))
class Scorer:
    """A row of scorers.yaml."""

    name: str
    path: str
    body: Literal["pickle", "json"]
    images: Literal["bytes", "pillow", "base64"]
    request: dict[str, Any]
    score: list[str | int]
    error: list[str | int] = field(default_factory=list)
    reason: list[str | int] = field(default_factory=list)


@functools.cache
def scorers() -> dict[str, Scorer]:
    """Return the table of scorers, keyed by name."""
    rows = read_yaml(Path(__file__).parent / "scorers.yaml")
    return {row.name: row for row in TypeAdapter(list[Scorer]).validate_python(rows)}


@dataclass(frozen=True)
class BadAnswer(Exception):
    """Raised for an answer that is not of the protocol. It never becomes a number."""

    code: str
    message: str


async def open_server(
    spec: str, options: Options, resources: AsyncExitStack, pace: Pacing
) -> HttpJudge:
    """Open a judge that is a reward server. Its connections are closed together with `resources`."""
    transport = HttpTransport(timeout=options.timeout)
    await resources.enter_async_context(transport)
    return HttpJudge(spec, options, pace, transport)


class HttpJudge(Judge):
    """A judge that asks a server for the scores of each edit."""

    further_images = ("input", "mask", "ground_truth")

    def __init__(
        self, spec: str, options: Options, pace: Pacing, transport: HttpTransport
    ) -> None:
        self.spec = spec
        rest = spec.partition(":")[2]
        self._url = spec if rest.startswith("//") else rest
        if any(address_secrets(self._url)) or not self._url.startswith("http"):
            raise UsageError(
                f"--judge {redacted_address(spec)}: expected http:URL without a password; a token is read from {TOKEN}",
                options=[Option("judge")],
                code="bad_address",
            )
        extra = dict(options.extra)
        self._scorer = _scorer(extra.pop("server", None))
        for name in extra:
            raise UsageError(
                f"-J {name}: a reward server takes server={'|'.join(scorers())}{did_you_mean(name, ['server'])}",
                code="unknown_setting",
            )
        self.limits = replace(READABLE, base64=self._scorer is None)
        self._token = os.environ.get(TOKEN, "")
        self._timeout = options.timeout
        self._pace = pace
        self._transport = transport
        self._started = False

    def capacity(self, questions: int) -> int:
        return self._pace.window

    def redacted(self, text: str) -> str:
        return without(text, [self._token] if self._token else [])

    def stop(self) -> None:
        self._pace.stop()

    def identity(self, edit: Edit, rubric: Rubric, repeat: int) -> Mapping[str, object]:
        if self._scorer and len(rubric.factors) > 1:
            raise UsageError(
                f"{self._scorer.name} gives one number, and {rubric.name} has {len(rubric.factors)} factors: name a "
                "rubric with one factor",
                options=[Option("rubric")],
                code="one_number",
            )
        return {
            "judge": "http",
            "url": self._url.rstrip("/"),
            "server": self._scorer.name if self._scorer else "",
            "instruction": edit.instruction,
            "referring_expression": edit.referring_expression,
        }

    async def judge(self, work: Work, load: Load) -> Judgement:
        images = {name: await load(name) for name in work.images}
        for name in work.digests:
            if name in _ROLES and name not in images:
                images[name] = await load(name)
        async with self._pace.slot():
            return await self._ask(work, images)

    async def _ask(self, work: Work, images: Mapping[str, EncodedImage]) -> Judgement:
        body, media_type = self._body(work, images)
        path = self._scorer.path if self._scorer else "/v1/reward"
        headers = {"content-type": media_type, "accept": media_type}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"

        async def send(_: JudgeServer | None = None) -> Response:
            url = self._url.rstrip("/") + path
            response = await self._transport.post(url, headers, (body,))
            if not 200 <= response.status < 300:
                message = self.redacted(string(_document(response).get("error")))
                raise failure(response.status, response.headers, response.body, message)
            if not response.body:
                raise no_answer(response.body)
            return response

        try:
            response, retries = await self._pace.send_with_retries(send)
        except CallFailed as problem:
            if problem.kind in ("key", "model"):
                raise JudgeError(f"{self.spec}: {problem}") from None
            status, code = outcome_of(problem)
            return work.judgement(status, reasons=(Remark(code, str(problem)),))
        text = self.redacted(_text(response.body))[:_MAX_TEXT]
        model: str | None = None
        try:
            if self._scorer:
                judgement = self._scored(work, response, self._scorer)
            else:
                answer = _reward(work, response)
                model = string(answer.answer.get("judge")) or None
                judgement = answer.judgement(work)
        except BadAnswer as bad:
            remark = Remark(bad.code, bad.message)
            judgement = work.judgement("invalid", reasons=(remark,))
        exchange = Exchange(
            text,
            judgement.status,
            model=model,
            latency=response.seconds,
            retries=retries,
            reasons=judgement.reasons,
        )
        return replace(judgement, exchanges=(exchange,))

    def _body(
        self, work: Work, images: Mapping[str, EncodedImage]
    ) -> tuple[bytes, str]:
        """Return the request about one edit, with its type."""
        if self._scorer is None:
            return _request(work, images, self._timeout), "application/json"
        kind = self._scorer.images
        values: dict[str, object] = {
            f"${role}": _sent(images[role], kind)
            for role in ("input", "edited")
            if role in images
        }
        described = {"instruction": work.edit.instruction}
        values["$instruction"] = work.edit.instruction
        values["$described"] = json.dumps(described)
        request = _filled(self._scorer.request, values)
        if self._scorer.body == "json":
            return json.dumps(request).encode(), "application/json"
        return dumps(request), "application/octet-stream"

    def _scored(self, work: Work, response: Response, scorer: Scorer) -> Judgement:
        try:
            if scorer.body == "json":
                answer: object = json.loads(response.body)
            else:
                answer = loads(response.body, _MAX_VALUES)
        except (NotPlain, ValueError) as error:
            raise BadAnswer(
                "not_plain", f"the answer cannot be read: {error}"
            ) from None
        problem = _at(answer, scorer.error) if scorer.error else None
        if problem is not None:
            remark = Remark("scorer_failed", self.redacted(f"{problem!s:.300}"))
            return work.judgement("error", reasons=(remark,))
        value = _at(answer, scorer.score)
        if value is None:
            where = ".".join(map(str, scorer.score))
            raise BadAnswer("missing_factor", f"the answer has no number at {where}")
        reason = _at(answer, scorer.reason) if scorer.reason else None
        (factor,) = work.rubric.factors
        reasons = {factor.key: f"{reason!s:.10000}"} if reason else {}
        return work.scored({factor.key: value}, reasons)


def _scorer(name: object) -> Scorer | None:
    if name is None:
        return None
    if name not in scorers():
        raise UsageError(
            f"-J server={name}: expected {' or '.join(scorers())}{did_you_mean(str(name), scorers())}",
            code="unknown_setting",
        )
    return scorers()[str(name)]


# --- the reward protocol ------------------------------------------------------------------------------------------


def _request(work: Work, images: Mapping[str, EncodedImage], timeout: float) -> bytes:
    edit: dict[str, object] = {"id": work.edit.id}
    references: list[str] = []
    for name, image in images.items():
        role = name.partition("[")[0]
        if role in _ROLES:
            edit[role] = image.data.decode()
        elif role == _LIST:
            references.append(image.data.decode())
        else:
            raise UsageError(
                f"{work.rubric.name} shows {role}, which the reward protocol has no field for",
                code="image_not_in_protocol",
            )
    if references:
        edit[_LIST] = references
    edit["instruction"] = work.edit.instruction
    edit["referring_expression"] = work.edit.referring_expression
    request = {
        "protocol": 1,
        "rubrics": [work.rubric.name],
        "deadline": timeout,
        "fresh": work.task.repeat > 0,
        "edits": [{k: v for k, v in edit.items() if v not in ("", None)}],
    }
    return json.dumps(request).encode()


@dataclass(frozen=True)
class _RewardAnswer:
    answer: Mapping[str, object]
    reward: Mapping[str, object]

    def judgement(self, work: Work) -> Judgement:
        status = string(self.reward.get("status"))
        reasons = _remarks(self.reward.get("reasons"))
        abstained = {
            key: str(reason)
            for key, reason in mapping(self.reward.get("abstained")).items()
        }
        scores = self.reward.get("scores")
        if status == "ok" and isinstance(scores, dict):
            return work.scored({**dict.fromkeys(abstained), **scores}, abstained)
        if status == "ok":
            raise BadAnswer("no_scores", "the status is ok, and there are no scores")
        if status in ("instruction_not_judged", "undefined", "abstained"):
            silent = {
                factor.key: abstained.get(factor.key) or _why(reasons, status)
                for factor in work.rubric.factors
            }
            return work.judgement("abstained", abstained=silent, reasons=reasons)
        if status == "pending":
            late = Remark("timeout", "the server did not judge it before the deadline")
            return work.judgement("unreachable", reasons=(late,))
        for known in STATUSES:
            if status == known:
                return work.judgement(known, reasons=reasons or _unexplained(known))
        raise BadAnswer("unknown_status", f"the status is {status!r:.60}")


def _why(reasons: Sequence[Remark], status: str) -> str:
    return reasons[0].message if reasons else f"the server's status is {status}"


def _unexplained(status: Status) -> tuple[Remark, ...]:
    return (Remark(status, "the server gave no reason"),)


def _remarks(reasons: object) -> tuple[Remark, ...]:
    return tuple(
        Remark(string(r.get("code")) or "unexplained", string(r.get("message")))
        for r in objects(reasons)
    )


def _reward(work: Work, response: Response) -> _RewardAnswer:
    """Return the reward in an answer. Raise `BadAnswer` unless it is one reward, for this rubric."""
    answer = _document(response)
    rewards = answer.get("rewards")
    if not isinstance(rewards, list) or len(rewards) != 1:
        raise BadAnswer("wrong_batch", "expected one reward for one edit")
    reward = mapping(rewards[0])
    if reward.get("id", work.edit.id) != work.edit.id:
        raise BadAnswer("wrong_id", f"the reward is for {reward.get('id')!r:.60}")
    theirs = mapping(answer.get("rubrics")).get(work.rubric.name)
    if theirs is not None and theirs != work.rubric.hash:
        message = (
            f"the server's rubric {work.rubric.name} is another one ({theirs!s:.12})"
        )
        raise BadAnswer("other_rubric", message)
    return _RewardAnswer(answer, reward)


def _document(response: Response) -> dict[str, object]:
    try:
        return mapping(json.loads(response.body))
    except (ValueError, RecursionError):
        return {}


def _text(body: bytes) -> str:
    """Return an answer as text. A pickle is shown as JSON."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        pass
    try:
        return json.dumps(loads(body, _MAX_VALUES), default=repr)
    except (NotPlain, ValueError):
        return ""


# --- templates ----------------------------------------------------------------------------------------------------


def _sent(image: EncodedImage, kind: str) -> object:
    if kind == "pillow":
        return decode(image.data)
    return base64.b64encode(image.data).decode() if kind == "base64" else image.data


def _filled(template: object, values: Mapping[str, object]) -> object:
    """Return a template with its markers replaced. A marker without a value becomes None."""
    if isinstance(template, dict):
        return {name: _filled(inner, values) for name, inner in template.items()}
    if isinstance(template, list):
        return [_filled(inner, values) for inner in template]
    if isinstance(template, str) and template.startswith("$"):
        return values.get(template)
    return template


def _at(answer: object, path: Sequence[str | int]) -> object:
    """Return the value at a path, or None if there is none."""
    for step in path:
        if isinstance(step, str) and isinstance(answer, dict):
            answer = answer.get(step)
        elif isinstance(step, int) and isinstance(answer, list) and step < len(answer):
            answer = answer[step]
        else:
            return None
    return answer
