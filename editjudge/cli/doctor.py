"""`editjudge doctor` and `editjudge completion`: check the installation, the reachable judges and the store, and set up
the shell."""

from __future__ import annotations

import asyncio
import datetime
import importlib.metadata
import os
import platform
import re
import urllib.parse
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class

import editjudge
from editjudge.cli.options import Finite, open_store, store_option, verb
from editjudge.cli.output import VerbReply, count
from editjudge.errors import EditjudgeError, UsageError

if TYPE_CHECKING:
    from editjudge.judges.server_check import ServerCheck

_PATIENCE = 3.0
"""Timeout for a connection in seconds. Local servers take milliseconds, remote ones less than a second."""


@verb(example="editjudge doctor\neditjudge doctor --server http://127.0.0.1:8000/v1")
@click.option(
    "--server", metavar="URL", help="Test what this OpenAI-compatible server supports."
)
@click.option(
    "--model",
    help="With --server: the model to test. Default: the first that it lists.",
)
@click.option(
    "--timeout",
    type=Finite(min=1),
    default=10.0,
    show_default=True,
    help="With --server: seconds for all checks.",
)
@store_option
def command(server: str | None, model: str | None, timeout: float) -> VerbReply:
    """Show what is installed, which judges are ready and where the store is.

    A judge over HTTP is ready if its key is set and its address accepts a connection. Nothing is sent: keys are neither
    shown nor tried.

    With --server: tests an OpenAI-compatible server with about twenty short requests. Reports how many images it takes
    and in which formats, whether it enforces a JSON schema, whether it returns logprobs, its limits, and its replies to
    invalid requests. Also names the option of `run` with which it enforces a schema, if it needs one.
    """
    if server is not None:
        from editjudge.judges.server_check import check_server

        check = asyncio.run(check_server(server, model, timeout))
        return VerbReply(check.as_json(), _server_lines(check))
    if model is not None:
        raise UsageError("--model goes with --server URL")
    document: dict[str, object] = {
        "editjudge": editjudge.__version__,
        "python": platform.python_version(),
        "extras": _extras(),
        "judges": asyncio.run(_judges()),
        "store": _store(),
        "shutdowns": list(_shutdowns()),
    }
    return VerbReply(document, _lines(document))


def _extras() -> dict[str, list[str]]:
    """Return the missing distributions of each extra."""
    missing: dict[str, list[str]] = {}
    for requirement in importlib.metadata.requires("editjudge") or ():
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        if extra is None or extra[1] in ("all", "demo", "dev", "fuzz", "release"):
            continue
        absent = missing.setdefault(extra[1], [])
        # an extra that includes others
        if others := re.match(r"editjudge\[([\w,-]+)\]", requirement):
            for other in others[1].split(","):
                absent += missing.get(other, ())
        elif (name := re.match(r"[\w.-]+", requirement)) and not _installed(name[0]):
            absent.append(name[0])
    return dict(sorted(missing.items()))


def _installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


async def _judges() -> list[dict[str, object]]:
    from editjudge.judges.providers import PROVIDERS
    from editjudge.plugins import BUILT_IN, missing, providers

    in_process: list[dict[str, object]] = []
    for name, plugin in providers("judges").items():
        absent = missing(plugin.extra)
        message = _install(plugin.extra, absent) if absent else "ready"
        if name not in BUILT_IN["judges"]:
            message = f"provided by {plugin.target}"
        in_process.append({"judge": name, "ready": not absent, "says": message})
    return [*in_process, *await asyncio.gather(*map(_provider, PROVIDERS))]


def _install(extra: str, absent: list[str]) -> str:
    return f"needs {', '.join(absent)}: pip install 'editjudge[{extra}]'"


async def _provider(name: str) -> dict[str, object]:
    from editjudge.judges.providers import PROVIDERS, resolve

    provider = PROVIDERS[name]
    keys = [v for v in provider.key_variables if os.environ.get(v, "").strip()]
    state: dict[str, object] = {
        "judge": f"{name}/MODEL",
        "key": keys[0] if keys else None,
        "ready": False,
    }
    addresses = filter(None, map(os.environ.get, provider.base_variables))
    if provider.base_url is None and not any(addresses):
        return state | {"says": f"needs an address: set {provider.base_variables[0]}"}
    if provider.needs_key and not keys:
        return state | {
            "says": f"needs a key: set {' or '.join(provider.key_variables)}"
        }
    try:
        endpoint = resolve(f"{name}/model")
    except UsageError as error:
        return state | {"says": str(error)}
    parts = urllib.parse.urlsplit(endpoint.url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    reached = await _connects(host, port)
    answer = "accepts connections" if reached else "does not answer"
    source = f"; key from {keys[0]}" if keys else ""
    return state | {"ready": reached, "says": f"{host}:{port} {answer}{source}"}


async def _connects(host: str, port: int) -> bool:
    connecting = asyncio.open_connection(host, port)
    try:
        _, writer = await asyncio.wait_for(connecting, _PATIENCE)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def _store() -> dict[str, object]:
    try:
        with open_store(readonly=True) as store:
            runs = len(store.runs())
    except EditjudgeError as error:
        return {"ready": False, "says": str(error)}
    return {"ready": True, "says": f"{store.name}: {count(runs, 'run')}"}


def _shutdowns() -> Iterator[str]:
    """Yield a line for each judge of the store's runs, and for the default judge, that is switched off soon."""
    from editjudge.judges.models import shutdown_of
    from editjudge.plugins import default_judge

    judges = {default_judge(): ""}
    with suppress(EditjudgeError), open_store(readonly=True) as store:
        for run in store.runs():
            for judge in run.spec.get("judges", ()):
                judges[judge] = f", which run {run.name} used"
    for judge, used in judges.items():
        shutdown = shutdown_of(judge)
        message = shutdown.message(datetime.date.today()) if shutdown else ""
        if message:
            yield f"{judge}{used}: {message}"


def _lines(document: dict[str, Any]) -> Iterator[str]:
    yield f"editjudge {document['editjudge']}, Python {document['python']}"
    yield "\nextras"
    for extra, absent in document["extras"].items():
        yield f"  {extra:<12}{_install(extra, absent) if absent else 'installed'}"
    yield "\njudges"
    for judge in document["judges"]:
        yield f"  {'ok' if judge['ready'] else '-':<4}{judge['judge']:<26}{judge['says']}"
    store = document["store"]
    yield f"\nstore\n  {'ok' if store['ready'] else '-':<4}{store['says']}"
    if document["shutdowns"]:
        yield "\nshutdowns"
        yield from (f"  {line}" for line in document["shutdowns"])


def _server_lines(check: ServerCheck) -> Iterator[str]:
    from editjudge.judges.server_check import MAX_IMAGES

    images = check.pictures["max"]
    context = check.limits["context"]
    choices = check.limits["choices"]
    rows = {
        "images": "not known",
        "schema": check.schema or "not known",
        "logprobs": check.logprobs or "not known",
        "context": "not reported" if context is None else f"{context:,} tokens",
        "choices": "not known" if choices is None else f"{choices} in a request",
    }
    if images is not None:
        more = " or more" if images == MAX_IMAGES else ""
        formats = ", ".join(check.pictures["formats"])
        rows["images"] = f"{images}{more} in a question: {formats}"
    if check.run_option:
        rows["schema"] += f" with {check.run_option}"
    yield f"{check.server}, {check.model}"
    for name, value in rows.items():
        yield f"  {name:<24}{value}"
    for name, date in check.limits.get("shutdown_dates", {}).items():
        yield f"  {'shutdown':<24}{name}: {date}"
    yield "\nerrors that it returned"
    for name, error in check.errors.items():
        yield f"  {name:<24}{error['status'] or error['code']}: {error['message']}"
    if not check.errors:
        yield "  none"


@verb(example='eval "$(editjudge completion bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> VerbReply:
    """Print the script that completes verbs, options, rubrics, judges and runs on Tab.

    To keep it, add the line below, with your shell's name, to ~/.bashrc or ~/.zshrc; for fish write the script to
    ~/.config/fish/completions/editjudge.fish.
    """
    complete = get_completion_class(shell)
    assert complete is not None  # noqa: S101  (click knows the three)
    script = complete(click.Group(), {}, "editjudge", "_EDITJUDGE_COMPLETE").source()
    return VerbReply({"shell": shell, "script": script}, [script])
