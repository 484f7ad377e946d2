"""Providers of models. providers.yaml lists their addresses, keys, image limits and schema support; an `Endpoint` is one
model of a provider.

A server that uses one of the three wire formats only needs an entry in that file. For a test, the entry can be made in
code:

    PROVIDERS["mine"] = Provider(
        wire="openai",
        base_url="http://127.0.0.1:9000/v1",
        key_variables=("MINE_API_KEY",),
        limits=ImageLimits(frozenset({"jpeg", "png"}), max_side=2048),
    )
    endpoint = resolve("mine/any-model")

Another format is a module with the two functions of `Wire`. Pass the name of the module as `wire`.
"""

from __future__ import annotations

import base64
import datetime
import difflib
import ipaddress
import json
import os
import re
import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, NoReturn, Protocol, cast

from editjudge import plugins
from editjudge.errors import Option, UsageError, did_you_mean
from editjudge.judgement import SchemaMode
from editjudge.judges import read_table
from editjudge.judges.judge import Options
from editjudge.judges.models import shutdown_of
from editjudge.judges.wire import ChatRequest, Conversation, Reply
from editjudge.media.image import ImageLimits

MIN_KEY = 8
"""Minimum length of a key that is redacted in answers as well as in errors. Shorter keys are placeholders ("x",
"EMPTY", "none"), which protect nothing and occur as words in answers.
"""


class Secret:
    """An API key that only `reveal` returns. It never appears in messages, logs, tracebacks or pickles."""

    __slots__ = ("_forms", "_pattern", "_value")

    def __init__(self, value: str) -> None:
        self._value = value
        self._pattern = re.compile("".join(map(_encodings, value)))
        self._forms = [value]
        if self.guards:
            # Base64, as in a header that a gateway has encoded.
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                self._forms.append(encode(value.encode()).decode().rstrip("="))

    def reveal(self) -> str:
        """Return the key."""
        return self._value

    @property
    def guards(self) -> bool:
        """Whether the value is long enough to be a real key."""
        return len(self._value) >= MIN_KEY

    def redacted(self, text: str) -> str:
        """Return a text with the key removed. The key is found both in plain and in encoded form."""
        for form in self._forms:
            text = text.replace(form, "[key]")
        # The pattern is slow, and most texts contain nothing encoded.
        return self._pattern.sub("[key]", text) if _ENCODED.search(text) else text

    def __repr__(self) -> str:
        return "Secret(...)"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a key is never pickled; resolve the judge again in the other process"
        )

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self


_ENCODED = re.compile(r"\\[u/\\\"]|%[0-9a-fA-F]{2}|&#")


def _encodings(mark: str) -> str:
    """Return a pattern that matches one character, either plain or as encoded in JSON, URLs or HTML."""
    number = ord(mark)
    codes = (
        rf"\\+u(?i:{number:04x})",
        rf"%(?:25)*(?i:{number:02x})",
        rf"&#0*{number};",
        rf"&#x0*(?i:{number:x});",
    )
    return rf"(?:\\*{re.escape(mark)}|{'|'.join(codes)})"


class Wire(Protocol):
    """Interface of a module for a wire format, such as `judges.openai`."""

    def request(
        self,
        conversation: Conversation,
        model: str,
        parameters: Options,
        **options: object,
    ) -> ChatRequest: ...

    def reply(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply: ...


AuthStyle = Literal["bearer", "x-api-key", "x-goog-api-key", "api-key"]
"""How the key is sent. `bearer` uses the header Authorization; the others are names of headers."""


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider's defaults. In a spec, its name is the part before the slash."""

    wire: str
    """Module of the wire format. It is the full name of a module, or one of `openai`, `anthropic` and `google`, which
    are in this package.
    """
    base_url: str | None = None
    base_variables: tuple[str, ...] = ()
    key_variables: tuple[str, ...] = ()
    """Environment variables of the key; the first one that is set counts."""
    needs_key: bool = False
    auth: AuthStyle = "bearer"
    limits: ImageLimits = field(default_factory=ImageLimits)
    schema_mode: SchemaMode = "enforced"
    options: Mapping[str, object] = field(default_factory=dict)
    """Additional arguments for the wire format's `request`."""
    unsupported: tuple[str, ...] = ()
    """Parameters that the provider does not support, and that are left out of requests."""
    version_variables: tuple[str, ...] = ()
    """Environment variables of Azure's dated API version. If none is set, the undated v1 API is used."""
    context_setting: str = (
        "the context length of the server, or take a model with a longer one"
    )
    """Setting to increase if a question does not fit into the context."""


def _provider(entry: Mapping[str, Any]) -> Provider:
    """Return an entry of providers.yaml as a `Provider`."""
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in entry.items()
    }
    limits = dict(entry.get("limits", {}))
    if "formats" in limits:
        limits["formats"] = frozenset(limits["formats"])
    return Provider(**fields | {"limits": ImageLimits(**limits)})


PROVIDERS: dict[str, Provider] = {
    name: _provider(entry) for name, entry in read_table("providers.yaml").items()
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model at one address, with everything needed to ask it."""

    provider: str
    model: str
    url: str
    """Base URL without a slash at the end."""
    wire: str
    limits: ImageLimits
    schema_mode: SchemaMode
    key_url: str | None = None
    """Address in the keys of tasks, if it is not `url`. Servers of the user's own may move, so it is their usual one."""
    key: Secret | None = field(default=None, compare=False)
    other_keys: tuple[Secret, ...] = field(default=(), compare=False)
    """Keys of all other providers in the environment, which are also redacted in answers."""
    auth: AuthStyle = "bearer"
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers other than the one for the key."""
    query: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    unsupported: tuple[str, ...] = ()
    """Parameters that are left out of the requests."""
    warnings: tuple[str, ...] = ()
    context_setting: str = ""
    """Setting to increase if a question does not fit into the context."""

    def request(self, conversation: Conversation, parameters: Options) -> ChatRequest:
        """Return the request for a conversation."""
        return self._wire().request(
            conversation, self.model, parameters, **self.options
        )

    def reply(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        """Return the reply in a response. Raise `CallFailed` if it has none."""
        return self._wire().reply(status, headers, body)

    def redacted(self, text: str, *, error: bool = False) -> str:
        """Return a text from a server with all API keys of the environment removed, however they are encoded.

        In an `error`, the judge's own key is redacted even if it is as short as a placeholder.
        """
        if self.key and (self.key.guards or error):
            text = self.key.redacted(text)
        for secret in self.other_keys:
            if secret.guards:
                text = secret.redacted(text)
        return text

    def redacted_body(self, body: bytes, *, error: bool = False) -> bytes:
        """Return a body with all API keys removed. If it contains none, return the same bytes."""
        encoding = json.detect_encoding(body)
        text = body.decode(
            encoding, "surrogateescape" if encoding.startswith("utf-8") else "replace"
        )
        # UTF-16 that was not recognised looks like plain letters with zeros between them.
        plain = text.replace("\0", "")
        redacted = self.redacted(plain, error=error)
        return (
            body if redacted == plain else redacted.encode("utf-8", "surrogateescape")
        )

    def address(
        self, request: ChatRequest, base: str | None = None
    ) -> tuple[str, dict[str, str]]:
        """Return the URL and headers for a request, at another base URL if it is given. No other method adds the key to
        headers.
        """
        query = f"?{urllib.parse.urlencode(self.query)}" if self.query else ""
        headers = {
            "content-type": "application/json",
            **self.headers,
            **request.headers,
        }
        if self.key is not None:
            key = self.key.reveal()
            if self.auth == "bearer":
                headers["authorization"] = f"Bearer {key}"
            else:
                headers[self.auth] = key
        return f"{base or self.url}/{request.path}{query}", headers

    def _wire(self) -> Wire:
        name = self.wire if "." in self.wire else f"editjudge.judges.{self.wire}"
        return cast(Wire, import_module(name))


def resolve(
    spec: str,
    base_url: str | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    needs_key: bool = True,
) -> Endpoint:
    """Return the endpoint for a spec `provider/model`, with its key from the environment."""
    name, model = split(spec)
    provider = PROVIDERS[name]
    base = _base_url(name, provider, base_url, environ)
    key, warnings = _key(spec, provider, environ, needs_key)
    parts = urllib.parse.urlsplit(base)
    if key and parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
        warnings.append(
            f"the key of {name} goes to {parts.hostname} unencrypted; use https"
        )
    if provider.wire == "openai" and name != "azure" and not parts.path:
        warnings.append(
            f"{base} has no path; most servers that speak this format answer below {base}/v1"
        )
    if shutdown := shutdown_of(spec):
        warnings += filter(None, [shutdown.message(datetime.date.today())])
    version = first_set(environ, provider.version_variables)
    url, query = _azure(base, model, version) if name == "azure" else (base, {})
    # A vendor's guarantee about schemas applies only at the vendor's own address.
    is_moved = provider.needs_key and provider.base_url not in (None, base)
    others = {
        value
        for each in PROVIDERS.values()
        for value in _set_keys(each, environ).values()
    }
    others -= {key.reveal() if key else ""}
    return Endpoint(
        provider=name,
        model=model,
        url=url,
        wire=provider.wire,
        limits=provider.limits,
        schema_mode="requested" if is_moved else provider.schema_mode,
        key_url=None if provider.needs_key else provider.base_url or "",
        key=key,
        other_keys=tuple(map(Secret, sorted(others))),
        auth=provider.auth,
        query=query,
        options=provider.options,
        unsupported=provider.unsupported,
        warnings=tuple(warnings),
        context_setting=provider.context_setting,
    )


def first_set(environ: Mapping[str, str], names: Iterable[str]) -> str | None:
    """Return the value of the first of these environment variables that is set and not empty, or None."""
    return next((environ[name] for name in names if environ.get(name)), None)


def split(spec: str) -> tuple[str, str]:
    """Split a spec into provider and model at the first slash: `openrouter/qwen/qwen2.5-vl-72b` is a model at
    OpenRouter.
    """
    name, slash, model = spec.partition("/")
    if name not in PROVIDERS:
        names = ", ".join(PROVIDERS)
        hint = did_you_mean(name, PROVIDERS) if slash else _near_spec(name)
        raise UsageError(
            f'no provider is called "{name}"{hint} Known as provider/model: {names}; '
            f"by name: {', '.join([*plugins.providers('judges'), 'gguf', 'replay'])}"
        )
    if not slash or not model.strip():
        raise UsageError(f'"{spec}" has no model; expected {name}/MODEL')
    return name, model.strip()


def _near_spec(name: str) -> str:
    """Return a hint, as `did_you_mean` does. The name may also be a model's name without its provider."""
    from editjudge.judges.cost import listed_models

    vendors = ("google", "anthropic", "openai")
    models = [spec for vendor in vendors for spec in listed_models(vendor)]
    specs = {spec.partition("/")[2]: spec for spec in models}
    specs |= {spec: spec for spec in (*plugins.providers("judges"), *PROVIDERS)}
    close = difflib.get_close_matches(name.casefold(), specs, n=1)
    return f'; did you mean "{specs[close[0]]}"?' if close else "."


# --- addresses ------------------------------------------------------------------------------------------------


def _base_url(
    name: str, provider: Provider, option: str | None, environ: Mapping[str, str]
) -> str:
    if option:
        return checked_url(option, "--base-url")
    for variable in provider.base_variables:
        if environ.get(variable):
            return checked_url(environ[variable], variable)
    if provider.base_url:
        return provider.base_url
    raise UsageError(
        f"{name} needs an address: give --base-url or set {provider.base_variables[0]}",
        options=[Option("base-url")],
        code="no_address",
    )


def checked_url(url: str, source: str) -> str:
    """Return a base URL without the slash at its end. Raise `UsageError` if it is invalid. The message does not contain
    the URL's password.
    """
    url = url.strip()
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname  # a port that is no number shows only here
        _ = parts.port
    except ValueError as error:
        raise UsageError(f"{source} is not a URL: {error}", code="not_a_url") from None
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            f"{source} contains a user name or password; keys belong in the environment",
            code="password_in_url",
        )
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(
            f'{source} is "{url}"; expected a URL that begins with http:// or https:// and names a host',
            code="no_http_url",
        )
    if parts.query or parts.fragment:
        raise UsageError(
            f"{source} has a query or fragment; expected the part before it",
            code="query_in_url",
        )
    if re.search(r"[\s\x00-\x1f\x7f\\]", url):
        raise UsageError(
            f"{source} contains characters that are not allowed in a URL",
            code="bad_characters_in_url",
        )
    if called := re.search(r"/(?:chat/completions|v1/messages)/?$", parts.path):
        raise UsageError(
            f"{source} ends in {called[0]}, which is added to it; leave that out",
            code="path_in_url",
        )
    return url.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _azure(
    base: str, deployment: str, version: str | None
) -> tuple[str, dict[str, str]]:
    """Return the address and query of an Azure resource's v1 API. If a dated version is set, return the address and
    query of the deployment instead.
    """
    resource = base.removesuffix("/openai")
    if resource.endswith("/openai/v1"):
        return resource, {}
    if version is None:
        return f"{resource}/openai/v1", {}
    name = urllib.parse.quote(deployment, safe="")
    return f"{resource}/openai/deployments/{name}", {"api-version": version}


# --- keys -----------------------------------------------------------------------------------------------------


_WITHOUT = "; or name a judge that needs none: measured, or one of your own as openai-compatible/MODEL with --base-url"


def _set_keys(provider: Provider, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the provider's keys that are set, keyed by variable."""
    keys = {name: environ.get(name, "").strip() for name in provider.key_variables}
    return {name: key for name, key in keys.items() if key}


def _key(
    spec: str, provider: Provider, environ: Mapping[str, str], needs_key: bool
) -> tuple[Secret | None, list[str]]:
    """Return a provider's key, or None if no key is set, and warnings about the key."""
    keys = _set_keys(provider, environ)
    if not keys:
        if provider.needs_key and needs_key:
            raise UsageError(
                f"{spec} needs a key: set {' or '.join(provider.key_variables)}{_WITHOUT}",
                code="no_key",
            )
        return None, []
    variable, key = next(iter(keys.items()))
    # This also prevents a line break from adding a header.
    if not re.fullmatch(r"[\x21-\x7e]+", key):
        raise UsageError(
            f"{variable} contains characters that are not allowed in a key; was something else pasted with it?",
            code="bad_key",
        )
    warnings = []
    if len({*keys.values()}) > 1:
        warnings.append(f"{' and '.join(keys)} differ; {variable} is used")
    return Secret(key), warnings
