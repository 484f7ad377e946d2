"""Redaction of stored and displayed data. It removes passwords and signatures from addresses, and API keys from a
judge's options.

A secret is recognised by its name (`token`, `X-Amz-Signature`, `api_key`), by its value (a key in the environment, or
the format of a provider's key), or by its position (the password of an address, the headers of a request). Data without
secrets is returned unchanged to the byte, so the keys of questions do not change.
"""

from __future__ import annotations

import functools
import os
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

HIDDEN = "***"
"""Text that replaces a secret."""
LEAST = 8
"""Minimum length of an environment variable's value that is redacted wherever it occurs."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET_WORDS = frozenset(
    {
        "sig",
        "signature",
        "secret",
        "password",
        "passwd",
        "passphrase",
        "pwd",
        "apikey",
        "credential",
        "credentials",
    }
    | {"auth", "authorization", "bearer", "jwt", "cookie", "cookies"}
)
_SECRET_ENDS = frozenset({"key", "token", "pass", "headers", "header"})
_HARMLESS_BEFORE = frozenset(
    {"cache", "primary", "sort", "foreign", "group", "public"}
    | {"eos", "bos", "pad", "unk", "stop", "special", "mask", "image", "end", "start"}
)
"""Words before `key` and `token` that make a name harmless: prompt_cache_key, eos_token."""

_SIGNED_WITH = re.compile(
    r"(?i)x-(amz|goog|oss)-.*|awsaccesskeyid|googleaccessid|ossaccesskeyid|key-pair-id|policy|expires|s[vterp]|s[pi][rp]"
    r"|sk(oid|tid|t|e|s|v)|srt?|ss"
)
"""Query parameters that change whenever an address is signed again."""

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]+")
_PROVIDER_KEY = re.compile(
    r"""(?x)
    \b(?: sk-[\w-]{16,} | AKIA[0-9A-Z]{16} | gh[pousr]_\w{20,} | hf_\w{20,} | AIza[\w-]{30,} | xox[abprs]-[\w-]{10,}
    | eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+ | (?i:bearer|basic)\s+[\w.~+/=-]{8,} )"""
)


@functools.lru_cache(1024)
def is_secret_name(name: str) -> bool:
    """Whether a parameter, header or variable with this name contains a secret."""
    parts = [part.lower() for part in _WORD.findall(name)]
    if not parts:
        return False
    if _SECRET_WORDS & {*parts}:
        return True
    return parts[-1] in _SECRET_ENDS and not _HARMLESS_BEFORE & {*parts[:-1]}


def redacted_address(address: str) -> str:
    """Return an address with its password and the secret values of its query redacted.

    If the query is signed, parameters that change with each signature are redacted too. The same file thus keeps the
    same address after it is signed again.
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
    secret = [is_secret_name(name) for name in names]
    if not any(
        value for (_, _, value), hides in zip(pairs, secret, strict=True) if hides
    ):
        return query
    written_pairs = []
    for name, hides, (written, equals, value) in zip(names, secret, pairs, strict=True):
        changes = hides or _SIGNED_WITH.fullmatch(name)
        written_pairs.append(
            f"{written}{equals}{HIDDEN if value and changes else value}"
        )
    return "".join(written_pairs)


def redacted_text(text: str) -> str:
    """Return a text in which all addresses are redacted."""
    return _ADDRESS.sub(lambda match: redacted_address(match[0]), text)


def redacted_metadata(metadata: Mapping[str, object]) -> Mapping[str, object]:
    """Return manifest values with all addresses redacted. If nothing changes, return the same object."""

    def redacted(leaf: object, _: bool) -> object:
        return redacted_text(leaf) if isinstance(leaf, str) else leaf

    changed = _changed_members(metadata, redacted)
    return metadata if changed == metadata else changed


def address_secrets(address: str) -> Iterator[str]:
    """Yield the secret parts of an address, in every form in which a server may repeat them."""
    try:
        parts = urllib.parse.urlsplit(address)
    except ValueError:
        return
    user, _, _ = parts.netloc.rpartition("@")
    yield from filter(None, (user, *user.split(":")))
    for name, value in urllib.parse.parse_qsl(parts.query):
        if is_secret_name(name):
            yield value
            yield urllib.parse.quote(value, safe="")


def without(text: str, secrets: Iterable[str]) -> str:
    """Return a text in which these secrets are hidden."""
    for secret in sorted({*secrets}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


# --- options of a judge ---------------------------------------------------------------------------------------


_Change = Callable[[object, bool], object]
"""A function that changes a leaf. Its second argument says whether the leaf is below a secret name."""


def _changed_members(
    members: Mapping[str, object], change: _Change, *, hidden: bool = False
) -> dict[str, object]:
    """Return a tree of mappings and lists with `change` applied to its leaves."""
    return {
        name: _changed(member, change, hidden=hidden or is_secret_name(str(name)))
        for name, member in members.items()
    }


def _changed(value: object, change: _Change, *, hidden: bool) -> object:
    if isinstance(value, Mapping):
        return _changed_members(value, change, hidden=hidden)
    if isinstance(value, list | tuple):
        return [_changed(element, change, hidden=hidden) for element in value]
    return change(value, hidden)


def environment_secrets(environ: Mapping[str, str] = os.environ) -> set[str]:
    """Return the values of all environment variables whose names indicate a secret."""
    values = {value.strip() for name, value in environ.items() if is_secret_name(name)}
    return {value for value in values if len(value) >= LEAST}


def redacted_options(
    extra: Mapping[str, object], environ: Mapping[str, str] = os.environ
) -> dict[str, object]:
    """Return extra request parameters in a form that is safe to store: secrets, recognised by name or by value, are
    redacted.
    """
    secrets = environment_secrets(environ)

    def redacted(leaf: object, hidden: bool) -> object:
        if hidden and leaf not in (None, "", True, False):
            return HIDDEN
        if not isinstance(leaf, str):
            return leaf
        return _PROVIDER_KEY.sub(HIDDEN, without(redacted_text(leaf), secrets))

    return _changed_members(extra, redacted)


def option_secrets(extra: Mapping[str, object]) -> list[str]:
    """Return the values that `redacted_options` hides, so they can be hidden in a server's messages too."""
    secrets: list[str] = []

    def collect(leaf: object, hidden: bool) -> None:
        if not isinstance(leaf, str):
            return
        if hidden and leaf:
            # A header's value starts with "Bearer" before the key.
            secrets.extend((leaf, *leaf.split()[1:]))
        secrets.extend(match[0] for match in _PROVIDER_KEY.finditer(leaf))
        for address in _ADDRESS.findall(leaf):
            secrets.extend(address_secrets(address))

    _changed_members(extra, collect)
    return secrets


def redacted_settings(options: Mapping[str, object]) -> dict[str, object]:
    """Return a judge's options without secrets, in the form in which a run stores them."""
    settings = dict(options)
    address = settings.get("base_url")
    if isinstance(address, str):
        settings["base_url"] = redacted_address(address)
    elif isinstance(address, Sequence):
        settings["base_url"] = [redacted_address(each) for each in address]
    parameters = settings.get("parameters")
    if isinstance(parameters, Mapping) and isinstance(parameters.get("extra"), Mapping):
        extra = redacted_options(parameters["extra"])
        settings["parameters"] = {**parameters, "extra": extra}
    return settings


def hidden_names(extra: Mapping[str, object]) -> list[str]:
    """Return the names of the parameters whose values are hidden."""
    return [name for name, value in extra.items() if HIDDEN in str(value)]
