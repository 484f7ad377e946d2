"""Take secrets out of what is kept or shown: passwords and signatures of addresses, and keys among a judge's options.

A secret is known by its name (`token`, `X-Amz-Signature`, `api_key`), by its value (that of a key in the environment,
or the form of a provider's key), or by its place (the password of an address, the headers of a request). What holds
none comes back as it was, to the byte, so that the keys of questions do not change.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

HIDDEN = "***"
"""Stands for a secret."""
LEAST = 8
"""Characters of an environment variable's value that is taken for a secret wherever it stands."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET_WORDS = frozenset(
    {"sig", "signature", "secret", "password", "passwd", "passphrase", "pwd", "apikey", "credential", "credentials"}
    | {"auth", "authorization", "bearer", "jwt", "cookie", "cookies"}
)
_SECRET_ENDS = frozenset({"key", "token", "pass", "headers", "header"})
_HARMLESS_BEFORE = frozenset(
    {"cache", "primary", "sort", "foreign", "group", "public"}
    | {"eos", "bos", "pad", "unk", "stop", "special", "mask", "image", "end", "start"}
)
"""Words before `key` and `token` that make a name of something else: prompt_cache_key, eos_token."""

_SIGNED_WITH = re.compile(
    r"(?i)x-(amz|goog|oss)-.*|awsaccesskeyid|googleaccessid|ossaccesskeyid|key-pair-id|policy|expires|s[vterp]|s[pi][rp]"
    r"|sk(oid|tid|t|e|s|v)|srt?|ss"
)
"""Parameters that change whenever an address is signed again."""

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]+")
_PROVIDER_KEY = re.compile(
    r"""(?x)
    \b(?: sk-[\w-]{16,} | AKIA[0-9A-Z]{16} | gh[pousr]_\w{20,} | hf_\w{20,} | AIza[\w-]{30,} | xox[abprs]-[\w-]{10,}
    | eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+ | (?i:bearer|basic)\s+[\w.~+/=-]{8,} )"""
)


def is_secret_name(name: str) -> bool:
    """Whether a parameter, header or variable of this name holds a secret."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words:
        return False
    if _SECRET_WORDS & {*words}:
        return True
    return words[-1] in _SECRET_ENDS and not _HARMLESS_BEFORE & {*words[:-1]}


def redacted_address(address: str) -> str:
    """Return an address without its password and without the secret values of its query.

    Where a query is signed, what changes with each signature is taken out too: the address of a file that was signed
    again is the same.
    """
    before, mark, rest = address.partition("://")
    if not mark:
        return address
    main, hash_, fragment = rest.partition("#")
    head, question, query = main.partition("?")
    netloc, slash, path = head.partition("/")
    user, at, host = netloc.rpartition("@")
    if user:
        netloc = f"{HIDDEN}{at}{host}"
    return f"{before}{mark}{netloc}{slash}{path}{question}{_redacted_query(query)}{hash_}{_redacted_query(fragment)}"


def _redacted_query(query: str) -> str:
    pairs = [part.partition("=") for part in re.split(r"([&;])", query)]
    names = [urllib.parse.unquote(name) for name, _, _ in pairs]
    if not any(is_secret_name(name) and value for name, (_, _, value) in zip(names, pairs, strict=True)):
        return query
    parts = []
    for name, (written, equals, value) in zip(names, pairs, strict=True):
        hides = value and (is_secret_name(name) or _SIGNED_WITH.fullmatch(name))
        parts.append(f"{written}{equals}{HIDDEN if hides else value}")
    return "".join(parts)


def redacted_text(text: str) -> str:
    """Return a text whose addresses are without passwords and secret parameters."""
    if "://" not in text:
        return text
    redacted = _ADDRESS.sub(lambda found: redacted_address(found[0]), text)
    return text if redacted == text else redacted


def redacted_metadata(value: Any) -> Any:
    """Return a manifest's values with the addresses among them redacted; the very object where there is none."""
    if isinstance(value, str):
        return redacted_text(value)
    if isinstance(value, Mapping):
        members = {name: redacted_metadata(member) for name, member in value.items()}
        return value if all(members[name] is value[name] for name in members) else members
    if isinstance(value, list | tuple):
        elements = [redacted_metadata(element) for element in value]
        return value if all(a is b for a, b in zip(elements, value, strict=True)) else elements
    return value


def address_secrets(address: str) -> Iterator[str]:
    """Yield the secret parts of an address, as they may be repeated by a server."""
    try:
        parts = urllib.parse.urlsplit(address)
    except ValueError:
        return
    user, _, _ = parts.netloc.rpartition("@")
    yield from (part for part in (user, *user.split(":")) if part)
    for name, value in urllib.parse.parse_qsl(parts.query):
        if is_secret_name(name) and value:
            yield value
            yield urllib.parse.quote(value, safe="")


def without(text: str, secrets: Iterator[str]) -> str:
    """Return a text without any of these, the longest first."""
    for secret in sorted({*secrets}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


# --- options of a judge ---------------------------------------------------------------------------------------


def environment_secrets(environ: Mapping[str, str] = os.environ) -> set[str]:
    """Return the values of all variables whose names are those of secrets."""
    values = {value.strip() for name, value in environ.items() if is_secret_name(name)}
    return {value for value in values if len(value) >= LEAST}


def redacted_options(extra: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return further parameters of a request as they may be kept: without secrets, by name and by value."""
    known = environment_secrets(environ)
    return {name: _redacted_option(name, value, known, hidden=False) for name, value in extra.items()}


def _redacted_option(name: str, value: Any, known: set[str], *, hidden: bool) -> Any:
    hidden = hidden or is_secret_name(name)
    if isinstance(value, Mapping):
        return {key: _redacted_option(key, member, known, hidden=hidden) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted_option(name, element, known, hidden=hidden) for element in value]
    if hidden and value not in (None, "", True, False):
        return HIDDEN
    if not isinstance(value, str):
        return value
    return _PROVIDER_KEY.sub(HIDDEN, without(redacted_text(value), iter(known)))


def option_secrets(extra: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values that `redacted_options` takes out, so that they can be taken out of a server's words too."""
    yield from _option_secrets("", extra, hidden=False)


def _option_secrets(name: str, value: Any, *, hidden: bool) -> Iterator[str]:
    hidden = hidden or is_secret_name(name)
    if isinstance(value, Mapping):
        for key, member in value.items():
            yield from _option_secrets(key, member, hidden=hidden)
    elif isinstance(value, list | tuple):
        for element in value:
            yield from _option_secrets(name, element, hidden=hidden)
    elif isinstance(value, str):
        if hidden and value:
            yield value
            yield from value.split()[1:]  # a header says "Bearer" before its key
        yield from (found[0] for found in _PROVIDER_KEY.finditer(value))
        yield from (part for address in _ADDRESS.findall(value) for part in address_secrets(address))


def redacted_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a judge as a run keeps them."""
    kept = dict(options)
    if isinstance(kept.get("base_url"), str):
        kept["base_url"] = redacted_address(kept["base_url"])
    parameters = kept.get("parameters")
    if isinstance(parameters, Mapping) and isinstance(parameters.get("extra"), Mapping):
        kept["parameters"] = {**parameters, "extra": redacted_options(parameters["extra"])}
    return kept


def hidden_names(extra: Mapping[str, Any]) -> list[str]:
    """Return the names of parameters whose values were not kept."""
    return [name for name, value in extra.items() if _holds_hidden(value)]


def _holds_hidden(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_hidden, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_hidden, value))
    return isinstance(value, str) and HIDDEN in value
