"""`editjudge doctor`: what is installed, which judges can be reached, where the store is."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import re
import urllib.parse
from typing import TYPE_CHECKING, Any

import click

import editjudge
from editjudge.cli.options import Finite, store_option
from editjudge.cli.output import emit, json_option, safe
from editjudge.errors import EditjudgeError, UsageError

if TYPE_CHECKING:
    from editjudge.judges.server_check import ServerCheck

_PATIENCE = 3.0
"""Seconds for a connection: servers on this machine take milliseconds, those far away less than one."""


@click.command(
    epilog="\b\nExample: editjudge doctor\n         editjudge doctor --server http://127.0.0.1:8000/v1"
)
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
@json_option
def command(
    server: str | None,
    model: str | None,
    timeout: float,
    store_place: str,
    as_json: bool,
) -> None:
    """Show what is installed, which judges are ready and where the store is.

    A judge over HTTP is ready if its key is set and its address accepts a connection. Nothing is sent: keys are neither
    shown nor tried.

    With --server: tests an OpenAI-compatible server with about twenty short requests. Reports how many pictures it
    takes and in which formats, whether it enforces a JSON schema, whether it returns logprobs, its limits, and its
    replies to invalid requests, and names the option of `run` with which it enforces a schema, if it needs one.
    """
    if server is not None:
        _check_server(server, model, timeout, as_json)
        return
    if model is not None:
        raise UsageError("--model goes with --server URL")
    report = {
        "editjudge": editjudge.__version__,
        "python": platform.python_version(),
        "extras": _extras(),
        "judges": asyncio.run(_judges()),
        "store": _store(store_place),
    }
    if as_json:
        emit(report)
    else:
        _tell(report)


def _extras() -> dict[str, list[str]]:
    """Each extra, and the distributions that it would still install."""
    missing: dict[str, list[str]] = {}
    for requirement in importlib.metadata.requires("editjudge") or ():
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        name = re.match(r"[\w.-]+", requirement)
        if (
            extra is None
            or name is None
            or extra[1] in ("all", "demo", "dev", "fuzz", "release")
        ):
            continue
        absent = missing.setdefault(extra[1], [])
        if name[0] == "editjudge":  # one extra that brings others
            inner = re.match(r"editjudge\[([\w,-]+)\]", requirement)
            absent += [
                n
                for other in (inner[1].split(",") if inner else ())
                for n in missing.get(other, ())
            ]
        elif not _installed(name[0]):
            absent.append(name[0])
    return dict(sorted(missing.items()))


def _installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


async def _judges() -> list[dict[str, Any]]:
    from editjudge.judges.providers import PROVIDERS
    from editjudge.plugins import missing

    absent = missing("measured")
    own = (
        "ready"
        if not absent
        else f"needs {', '.join(absent)}: pip install 'editjudge[measured]'"
    )
    others = await asyncio.gather(*(_provider(name) for name in PROVIDERS))
    return [{"judge": "measured", "ready": not absent, "says": own}, *others]


async def _provider(name: str) -> dict[str, Any]:
    from editjudge.judges.providers import PROVIDERS, resolve

    variables = PROVIDERS[name].key_variables
    key = next(
        (variable for variable in variables if os.environ.get(variable, "").strip()),
        None,
    )
    state = {"judge": f"{name}/MODEL", "key": key}
    try:
        endpoint = resolve(f"{name}/model")
    except UsageError as error:
        needs = (
            str(error)
            .partition("; or ")[0]
            .removeprefix(f"{name}/model ")
            .removeprefix(f"{name} ")
        )
        # an option of the verbs that ask, not of this one
        needs = needs.replace("give --base-url or set", "set")
        return {**state, "ready": False, "says": needs}
    parts = urllib.parse.urlsplit(endpoint.url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    reached = await _connects(host, port)
    what = "accepts connections" if reached else "does not answer"
    return {
        **state,
        "ready": reached,
        "says": f"{host}:{port} {what}{f'; key from {key}' if key else ''}",
    }


async def _connects(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.wait_for(
            asyncio.open_connection(host, port), _PATIENCE
        )
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def _store(place: str) -> dict[str, Any]:
    from editjudge.store.store import Store

    try:
        with Store.open(place, readonly=True) as store:
            place = store.place
            runs = len(store.runs())
    except EditjudgeError as error:
        return {"ready": False, "says": str(error)}
    return {"ready": True, "says": f"{place}: {runs:,} run{'' if runs == 1 else 's'}"}


def _tell(report: dict[str, Any]) -> None:
    click.echo(f"editjudge {report['editjudge']}, Python {report['python']}")
    click.echo("\nextras")
    for extra, absent in report["extras"].items():
        how = (
            f"needs {', '.join(absent)}: pip install 'editjudge[{extra}]'"
            if absent
            else "installed"
        )
        click.echo(f"  {extra:<12}{how}")
    click.echo("\njudges")
    for judge in report["judges"]:
        click.echo(
            f"  {'ok' if judge['ready'] else '-':<4}{judge['judge']:<26}{safe(judge['says'])}"
        )
    click.echo(
        f"\nstore\n  {'ok' if report['store']['ready'] else '-':<4}{safe(report['store']['says'])}"
    )


# --- one server -----------------------------------------------------------------------------------------------


def _check_server(url: str, model: str | None, seconds: float, as_json: bool) -> None:
    from editjudge.judges.server_check import check_server

    check = asyncio.run(check_server(url, model, seconds))
    if as_json:
        emit(check.as_json())
    else:
        _tell_server(check)


def _tell_server(check: ServerCheck) -> None:
    from editjudge.judges.server_check import MAX_IMAGES

    limits = check.limits
    most = check.pictures["max"]
    tried = " or more" if most == MAX_IMAGES else ""
    schema: str = check.schema or "not known"
    if check.run_option:
        schema += f" with {check.run_option}"
    rows = {
        "pictures": "not known"
        if most is None
        else f"{most}{tried} in a question: {', '.join(check.pictures['formats'])}",
        "schema": schema,
        "logprobs": check.logprobs or "not known",
        "context": "not said"
        if limits["context"] is None
        else f"{limits['context']:,} tokens",
        "choices": "not known"
        if limits["choices"] is None
        else f"{limits['choices']} in a request",
    }
    click.echo(f"{safe(check.server)}, {safe(check.model)}")
    for name, words in rows.items():
        click.echo(f"  {name:<24}{words}")
    click.echo("\nerrors that it returned")
    for name, error in check.errors.items():
        click.echo(
            f"  {name:<24}{error['status'] or error['code']}: {safe(error['message'])}"
        )
    if not check.errors:
        click.echo("  none")
