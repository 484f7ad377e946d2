"""Checks of what a chat-format server can do, made by sending test questions for about ten seconds.

A check that could not be carried out has the result None, and the errors say why. None never means that the check
passed.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import io
import math
import os
import secrets
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from editjudge.errors import JudgeError, UsageError
from editjudge.judges import wire
from editjudge.judges.chat import outcome_of
from editjudge.judges.failures import CallFailed, cleaned
from editjudge.judges.http import HttpTransport, Response
from editjudge.judges.judge import Options
from editjudge.judges.openai import SchemaRequest
from editjudge.judges.providers import (
    PROVIDERS,
    Endpoint,
    checked_url,
    first_set,
    resolve,
)
from editjudge.judges.wire import (
    ChatRequest,
    Conversation,
    Reply,
    TokenChoice,
    count,
    mapping,
    objects,
    string,
)
from editjudge.media.image import EncodedImage
from editjudge.rubrics.prompt import ImagePart, Part, TextPart

SECONDS = 10.0
"""Time limit of all checks together."""
MAX_IMAGES = 16
"""Maximum number of images that are tried in one question; no rubric shows that many."""
_MAX_CONTEXT = 65_536
"""Largest context in tokens that is deliberately exceeded. More would take long to send and, if accepted, to read."""
_FORMATS = ("jpeg", "png", "webp", "gif")
_MAX_MODELS = 50
"""Number of models that are shown from a server's list."""

SchemaSupport = Literal["enforced", "ignored", "refused"]
LogprobSupport = Literal["masked", "unmasked", "none"]
"""Kind of token probabilities that a server returns with a schema. `masked`: only for tokens that the schema allows.
`unmasked`: the same as without a schema.
"""


@dataclass(frozen=True)
class ServerCheck:
    """Capabilities of one model at one address."""

    server: str
    model: str
    pictures: Mapping[str, Any]
    """`max`: number of images that one question may show, up to the number that was tried. `formats`: accepted image
    formats.
    """
    schema: SchemaSupport | None
    logprobs: LogprobSupport | None
    limits: Mapping[str, Any]
    errors: Mapping[str, Mapping[str, object]]
    """Error messages of the server, keyed by check, with the status that a judgement would have."""
    schema_request: SchemaRequest = "json_schema"
    """Form of the schema request that works."""
    checked: float = 0.0
    """Time of the check, in seconds since 1970."""

    @property
    def run_option(self) -> str:
        """Option of `run` that makes this server enforce a schema; empty if none is needed."""
        is_default = self.schema_request == "json_schema"
        return "" if is_default else f"-J schema_request={self.schema_request}"

    def as_json(self) -> dict[str, object]:
        """Return the document that `doctor --server --json` prints."""
        return dataclasses.asdict(self)


async def check_server(
    url: str, model: str | None = None, seconds: float = SECONDS
) -> ServerCheck:
    """Check a server and return the results. Raise `JudgeError` if the server does not answer a plain question."""
    async with HttpTransport(timeout=seconds) as transport:
        end = time.monotonic() + seconds
        endpoint, listed = await _find(url, model, transport)
        return await _Examiner(endpoint, listed, transport, seconds, end).examine()


def _provider_of(url: str) -> str:
    """Return the provider whose API key may be sent to this URL."""
    for name, provider in PROVIDERS.items():
        base_url = first_set(os.environ, provider.base_variables) or provider.base_url
        is_chat = provider.wire == "openai" and name != "azure"
        if is_chat and base_url and base_url.strip().rstrip("/") == url:
            return name
    return "openai-compatible"


async def _find(
    url: str, model: str | None, transport: HttpTransport
) -> tuple[Endpoint, list[dict[str, object]]]:
    """Return the endpoint of a model, with the base URL at which the server answers, and the server's list of models."""
    url = checked_url(url, "--server")
    bases = [url] if urllib.parse.urlsplit(url).path else [f"{url}/v1", url]
    for base in bases:
        endpoint = resolve(f"{_provider_of(base)}/{model or 'model'}", base)
        if listed := await _listed(endpoint, transport):
            return dataclasses.replace(
                endpoint, model=model or string(listed[0]["id"])
            ), listed
    if model is None:
        raise UsageError(f"{url} lists no models: name one with --model")
    return resolve(f"{_provider_of(bases[0])}/{model}", bases[0]), []


async def _listed(
    endpoint: Endpoint, transport: HttpTransport
) -> list[dict[str, object]]:
    """Return the models that a server lists, or an empty list if it does not offer a list."""
    address, headers = endpoint.address(ChatRequest("models", ()))
    try:
        response = await transport.get(address, headers)
    except CallFailed as problem:
        raise JudgeError(
            f"{endpoint.url}: {endpoint.redacted(str(problem), error=True)}"
        ) from None
    if response.status in (401, 403):
        raise JudgeError(_refuses_key(endpoint, f"HTTP {response.status}"))
    if response.status != 200:
        return []
    document = wire.document(endpoint.redacted_body(response.body, error=True))
    models = objects(document.get("data"))[:_MAX_MODELS]
    return [entry for entry in models if string(entry.get("id")).strip()]


def _refuses_key(endpoint: Endpoint, message: str) -> str:
    variables = " or ".join(PROVIDERS[endpoint.provider].key_variables)
    return f"{endpoint.url} refuses questions with this key or without one ({message}): set {variables}"


_PLAIN = "Write the word yes and nothing else."


class _Examiner:
    """Runs the checks, most important first. The results of checks that exceed the time limit are unknown."""

    def __init__(
        self,
        endpoint: Endpoint,
        listed: list[dict[str, object]],
        transport: HttpTransport,
        seconds: float,
        end: float,
    ) -> None:
        self._endpoint = endpoint
        self._listed = listed
        self._transport = transport
        self._seconds = seconds
        self._end = end
        self._errors: dict[str, dict[str, object]] = {}
        # Some models of OpenAI refuse an answer limited to one token.
        self._few = 16 if PROVIDERS[endpoint.provider].needs_key else 1

    async def examine(self) -> ServerCheck:
        started = time.monotonic()
        plain = await self._plain()
        limits: dict[str, object] = {"seconds": round(time.monotonic() - started, 3)}
        schema, schema_request = await self._schema()
        logprobs, limits["top_logprobs"] = await self._logprobs(schema, schema_request)
        images, limits["picture_tokens"] = await self._images(plain)
        limits["choices"] = await self._choices()
        limits["context"] = context = self._context()
        await self._provoke(context)
        limits["models"] = [cleaned(string(entry["id"])) for entry in self._listed]
        limits["shutdown_dates"] = {
            cleaned(string(entry["id"])): cleaned(str(entry["shutdown_date"]))
            for entry in self._listed
            if entry.get("shutdown_date")
        }
        return ServerCheck(
            server=self._endpoint.url,
            model=cleaned(self._endpoint.model),
            pictures=images,
            schema=schema,
            logprobs=logprobs,
            limits=limits,
            errors=self._errors,
            schema_request=schema_request,
            checked=time.time(),
        )

    # --- asking ---

    async def _ask(
        self,
        text: str = _PLAIN,
        images: Sequence[EncodedImage] = (),
        *,
        max_tokens: int | None = None,
        schema: Mapping[str, object] | None = None,
        schema_request: SchemaRequest | None = None,
        **conversation: Any,
    ) -> Reply:
        """Send one question and return the reply. Raise `CallFailed`, with a redacted message, if the request fails."""
        roles = {f"image {n}": image for n, image in enumerate(images)}
        parts: tuple[Part, ...] = (*(ImagePart(role) for role in roles), TextPart(text))
        endpoint = self._endpoint
        if schema_request:
            options = {**endpoint.options, "schema_request": schema_request}
            endpoint = dataclasses.replace(endpoint, options=options)
        request = endpoint.request(
            Conversation(parts, roles, schema=schema, **conversation),
            Options(max_tokens=max_tokens or self._few),
        )
        response = await self._post(request)
        try:
            body = endpoint.redacted_body(response.body, error=True)
            return endpoint.reply(response.status, response.headers, body)
        except CallFailed as problem:
            message = endpoint.redacted(str(problem), error=True)
            raise problem.with_message(message) from None

    async def _post(self, request: ChatRequest) -> Response:
        left = self._end - time.monotonic()
        if left <= 0.0:
            raise CallFailed(
                "timeout", f"not asked: the limit of {self._seconds:g} s was reached"
            )
        address = *self._endpoint.address(request), request.body, left / self._seconds
        try:
            return await self._transport.post(*address)
        except CallFailed as problem:
            if not (problem.kind == "connection" and problem.cut_off):
                raise
        # The server had closed a connection that was kept open.
        return await self._transport.post(*address)

    async def _try(
        self, check: str, *arguments: Any, **more: Any
    ) -> Reply | CallFailed:
        """Send a question and return the reply or the failure. A failure is recorded among the errors."""
        try:
            return await self._ask(*arguments, **more)
        except CallFailed as problem:
            if problem.kind in ("key", "model"):
                self._note(check, str(problem), code=problem.kind)
            else:
                status, code = outcome_of(problem)
                self._note(check, str(problem), status, code)
            return problem

    def _note(
        self,
        check: str,
        message: str,
        status: str | None = None,
        code: str = "unknown",
    ) -> None:
        self._errors[check] = {"status": status, "code": code, "message": message}

    # --- the checks ---

    async def _plain(self) -> Reply:
        try:
            return await self._ask()
        except CallFailed as problem:
            if problem.kind == "key":
                raise JudgeError(_refuses_key(self._endpoint, str(problem))) from None
            raise JudgeError(
                f"{self._endpoint.url} does not answer a plain question: {problem}",
                code="no_plain_answer",
            ) from None

    async def _schema(self) -> tuple[SchemaSupport | None, SchemaRequest]:
        """Find a form of schema request that the server enforces. To test this, the schema requires a random code in
        the answer, which the question does not mention.
        """
        support: dict[str, SchemaSupport | None] = {}
        for way in get_args(SchemaRequest):
            check = f"schema as {way}" if support else "schema"
            support[way] = await self._schema_by(way, check)
            if support[way] == "enforced":
                return "enforced", way
            if support[way] is None:
                break
        return support["json_schema"], "json_schema"

    async def _schema_by(self, way: SchemaRequest, check: str) -> SchemaSupport | None:
        code = _unlikely_code()
        reply = await self._try(
            check, max_tokens=64, schema=_only(code), schema_request=way
        )
        if isinstance(reply, CallFailed):
            return "refused" if reply.kind in ("schema", "request") else None
        if code in reply.text:
            return "enforced"
        if not reply.text.strip():
            self._note(
                check,
                "the answer was empty: the model may have spent its 64 tokens on thinking",
            )
            return None
        return "ignored"

    async def _logprobs(
        self, schema: SchemaSupport | None, way: SchemaRequest
    ) -> tuple[LogprobSupport | None, int | None]:
        code = _unlikely_code()
        how: dict[str, Any] = {}
        if schema == "enforced":
            how = {"schema": _only(code), "schema_request": way}
        for most in (20, 5):
            reply = await self._try("logprobs", max_tokens=64, top_logprobs=most, **how)
            if isinstance(reply, Reply):
                self._errors.pop("logprobs", None)
                break
        if isinstance(reply, CallFailed):
            return ("none" if reply.kind in ("request", "schema") else None), None
        if not reply.tokens:
            return "none", None
        if schema is None:
            self._note(
                "logprobs",
                "they are given; whether the schema masks them is not known without a schema",
            )
            return None, most
        masked = schema == "enforced" and _is_masked(reply.tokens, code.encode())
        return "masked" if masked else "unmasked", most

    async def _images(self, plain: Reply) -> tuple[dict[str, object], int | None]:
        samples = {name: _sample(name) for name in _FORMATS}
        replies = await asyncio.gather(
            *(self._try(name, images=[image]) for name, image in samples.items())
        )
        accepted = {
            name: reply
            for name, reply in zip(samples, replies, strict=True)
            if isinstance(reply, Reply)
        }
        if not accepted:
            failed = [
                r for r in replies if isinstance(r, CallFailed) and r.is_transient
            ]
            return {"max": None if failed else 0, "formats": []}, None
        name, reply = next(iter(accepted.items()))
        before = plain.usage.input_tokens
        after = reply.usage.input_tokens
        tokens = after - before if before is not None and after is not None else None
        if tokens is not None and tokens <= 0:
            self._note(
                "pictures",
                "a question counts no more tokens with an image than without: is it looked at?",
            )
        most = await self._max_images(samples[name])
        return {"max": most, "formats": [*accepted]}, tokens

    async def _max_images(self, image: EncodedImage) -> int | None:
        """Find the maximum number of images by bisection. A question with one image has already been accepted."""
        low = 1
        high = MAX_IMAGES + 1
        trying = MAX_IMAGES
        while high - low > 1:
            reply = await self._try("many_pictures", images=[image] * trying)
            if isinstance(reply, Reply):
                low = trying
            elif reply.is_transient and reply.kind != "server":
                return low if low > 1 else None
            else:
                high = trying
            trying = (low + high) // 2
        return low

    async def _choices(self) -> int | None:
        """Return how many replies the server returns when several are requested. Return None if the check could not be
        carried out.
        """
        for number in (4, 2):
            reply = await self._try("choices", choices=number)
            if isinstance(reply, Reply):
                return 1 + len(reply.others)
            if reply.is_transient:
                return None
        return 1

    def _context(self) -> int | None:
        """Return the context length that the server's list of models states, in the fields used by vLLM and SGLang,
        llama.cpp and OpenRouter. Return None if the list does not state it.
        """
        for entry in self._listed:
            if entry["id"] == self._endpoint.model:
                n_ctx = mapping(entry.get("meta")).get("n_ctx")
                fields = (
                    entry.get("max_model_len"),
                    n_ctx,
                    entry.get("context_length"),
                )
                return next((number for f in fields if (number := count(f))), None)
        return None

    async def _provoke(self, context: int | None) -> None:
        """Send deliberately invalid questions and record the server's errors."""
        broken = EncodedImage(
            "image/png", base64.b64encode(b"\x89PNG\r\n\x1a\nthis is not an image")
        )
        wrong: dict[str, dict[str, Any]] = {"broken_picture": {"images": [broken]}}
        if context and context <= _MAX_CONTEXT:
            wrong["long_question"] = {"text": "x, " * context}
        for check, question in wrong.items():
            if isinstance(await self._try(check, **question), Reply):
                self._note(check, "it was answered all the same", "ok", "accepted")


def _unlikely_code() -> str:
    return "".join(secrets.choice("bcdfghjklmnpqrstvwxz") for _ in range(10))


def _only(code: str) -> dict[str, object]:
    """Return a schema that allows only one answer."""
    properties = {"code": {"type": "string", "enum": [code]}}
    return {
        "type": "object",
        "properties": properties,
        "required": ["code"],
        "additionalProperties": False,
    }


def _is_masked(tokens: Sequence[TokenChoice], code: bytes) -> bool:
    """Whether the server masked illegal tokens. This is the case if the code's tokens have a probability of over 90 %
    wherever only the code is allowed.
    """
    start = b"".join(token.data for token in tokens).find(code)
    position = 0
    masses = []
    for token in tokens:
        if 0 <= start <= position < start + len(code):
            rest = code[position - start :]
            choices = dict(token.alternatives) | {token.data: token.logprob}
            # The next piece of the code, perhaps with the quotation mark after it.
            legal = (
                math.exp(min(logprob, 0.0))
                for data, logprob in choices.items()
                if data and (rest.startswith(data) or data.startswith(rest))
            )
            masses.append(sum(legal))
        position += len(token.data)
    return bool(masses) and min(masses) > 0.9


def _sample(name: str) -> EncodedImage:
    """Return a small image with a gradient."""
    from PIL import Image

    image = Image.linear_gradient("L").resize((64, 64)).convert("RGB")
    out = io.BytesIO()
    image.save(out, name.upper())
    return EncodedImage(f"image/{name}", base64.b64encode(out.getvalue()))
