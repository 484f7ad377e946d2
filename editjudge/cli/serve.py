"""`editjudge serve`: review, rating and reward API on this machine, or with a token on others."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import secrets
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editjudge.cli.options import (
    SEE_RUN,
    Finite,
    bundle,
    hidden,
    judge_option,
    open_store,
    short_asking_options,
    store_option,
)
from editjudge.cli.output import emit, json_option, safe
from editjudge.errors import InputError, UsageError, WorldError

if TYPE_CHECKING:
    from editjudge.judges.judge import Options
    from editjudge.rewards.protocol import Terms

_SHORTEST = 16
"""Characters of a token; one of ours has 43."""
_IN_A_PATH = re.compile(r"[A-Za-z0-9._~-]+")


_TERMS = (
    # What clients of the reward API may ask for.
    click.option(
        "--allow-judge",
        "judges",
        multiple=True,
        help="Another judge that a request may name; repeatable.",
    ),
    click.option(
        "--rubric",
        "rubrics",
        multiple=True,
        help="Rubric if a request names none [online]; repeatable.",
    ),
    click.option(
        "--allow-rubric",
        "more_rubrics",
        multiple=True,
        help="Another rubric that a request may name; repeatable.",
    ),
    click.option(
        "--formula",
        help="How scores become a reward: mean, min, product, geometric_mean, or an expression of factors.",
    ),
    click.option(
        "--weight",
        "weights",
        multiple=True,
        metavar="FACTOR=W",
        help="Weight of a factor in the reward; repeatable.",
    ),
    click.option(
        "--degenerate",
        type=click.Choice(["null", "worst"]),
        help="Reward of an output that is no edit: null [default], or worst, which is 0.",
    ),
    hidden(
        click.option(
            "--mix",
            "mixture",
            multiple=True,
            metavar="JUDGE=W",
            help="Reward by the weighted mean of several judges; repeatable.",
        )
    ),
    click.option(
        "--dialect",
        "dialects",
        multiple=True,
        metavar="NAME",
        help="Also speak a trainer's protocol: flow-factory, unirl, edit-r1, flow-grpo, editscore, or a YAML file that "
        "describes another; repeatable.",
    ),
    click.option(
        "--fresh", is_flag=True, help="Ask again even if the store has the answer."
    ),
    click.option(
        "--budget",
        type=Finite(min=0),
        metavar="USD",
        help="Stop asking judges once this is spent.",
    ),
    hidden(
        click.option(
            "--max-waiting",
            type=click.IntRange(1),
            help="Maximum number of edits in the queue.",
        )
    ),
    click.option(
        "--deadline", type=Finite(min=0.1), help="Seconds that a request may wait."
    ),
    hidden(
        click.option(
            "--drain",
            type=Finite(min=0),
            help="Seconds to finish queued edits when the server stops.",
        )
    ),
    click.option(
        "--concurrency",
        type=click.IntRange(1),
        help="Maximum number of requests in flight to a judge.",
    ),
    click.option(
        "--keep-pictures",
        "pictures",
        type=click.Path(path_type=Path),
        help="Folder to keep the pictures of requests in.",
    ),
)


def _terms(given: dict[str, Any]) -> Terms:
    from editjudge.rewards.protocol import Terms

    if given["dialects"]:
        from editjudge.rewards.dialects import chosen

        # raises for one that is not known, and for two that want the same path
        chosen(given["dialects"])
    given["weights"] = _weights("--weight FACTOR", given["weights"]) or None
    given["mixture"] = _weights("--mix JUDGE", given["mixture"]) or None
    return Terms(
        **{name: value for name, value in given.items() if value not in (None, ())}
    )


def _weights(meant: str, texts: Sequence[str]) -> dict[str, float]:
    """Return the weights by name; `meant` is the option and what it names."""
    from editjudge.rewards.reduction import LEAST_WEIGHT, MOST_WEIGHT

    option, kind = meant.split()
    weights: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = 0.0
        if not name or not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
            expected = f"expected {kind}=NUMBER, with a number above 0, from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}"
            raise UsageError(f'{option} "{text}": {expected}')
        if name in weights:
            raise UsageError(f"{option} {name}: has two weights; give one")
        weights[name] = weight
    return weights


@click.command(epilog=f"{SEE_RUN}\n\n\b\nExample: editjudge serve --store editjudge.db")
@store_option
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8427,
    show_default=True,
    help="0 takes a free one.",
)
@judge_option(
    default=lambda: os.environ.get("EDITJUDGE_JUDGE", "measured"),
    show_default="EDITJUDGE_JUDGE, else measured",
)
@click.option(
    "--token",
    envvar="EDITJUDGE_TOKEN",
    help="Token of reviewers, who may do everything; required beyond this machine.",
)
@click.option(
    "--service-token",
    envvar="EDITJUDGE_SERVICE_TOKEN",
    help="Token of programs, for /v1/ and trainers' protocols only; in a header, or in the path: /t/TOKEN/v1/reward.",
)
@click.option(
    "--create",
    "create_store",
    is_flag=True,
    help="Create the store if it does not exist.",
)
@short_asking_options
@bundle(_TERMS, "terms", _terms)
@json_option
def command(
    store_place: str,
    host: str,
    port: int,
    judge: str,
    token: str | None,
    service_token: str | None,
    create_store: bool,
    options: Options,
    terms: Terms,
    as_json: bool,
) -> None:
    """Serve review pages, rating pages and the reward API.

    Beyond this machine a token is required. Set EDITJUDGE_TOKEN rather than --token, which other users see in the list
    of processes. Its holder may review and judge. Give programs --service-token instead, which opens no page, and
    raters a link of their own (`editjudge ratings invite`). With --service-token alone, the pages open on this machine
    only.
    """
    # Pictures are screened and measured in threads of the server's own, beside which those of BLAS wait for a core:
    # screening an edit took 183 ms of CPU with two of them, and 110 with one.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from editjudge.web.app import create
        from editjudge.web.connections import server
        from editjudge.web.site import LOOPBACK, Site
    except ModuleNotFoundError as error:
        raise InputError(
            f"serve needs an extra ({error.name} is missing): pip install 'editjudge[web]'"
        ) from None

    token, service_token = (
        given.strip() if given else None for given in (token, service_token)
    )
    if host not in LOOPBACK and token is None and service_token is None:
        raise UsageError(
            f"--host {host}: others can reach it, so a token is required. For example:\n"
            f"  EDITJUDGE_TOKEN={secrets.token_urlsafe(32)} editjudge serve --host {host}"
        )
    for given in filter(None, (token, service_token)):
        if len(given) < _SHORTEST:
            raise UsageError(
                f"a token has {len(given)} characters; at least {_SHORTEST} are needed to be hard to guess"
            )
    if service_token is not None and not _IN_A_PATH.fullmatch(service_token):
        raise UsageError(
            "the service token goes into addresses: expected letters, digits, -, _, . and ~ alone"
        )
    if token is not None and token == service_token:
        raise UsageError(
            "--token and --service-token are the same: programs would be reviewers"
        )
    if host not in LOOPBACK:
        # random: with a service token alone, pages are closed
        token = token or secrets.token_urlsafe(32)
    with (
        open_store(store_place, create=create_store) as store,
        _listening(host, port) as listener,
    ):
        address = f"[{host}]" if ":" in host else host
        store.keep_caches_small()
        rewards = dataclasses.replace(terms, judge=judge, options=options)
        app = create(Site(store, token, service_token, {"rewards": rewards}))
        url = f"http://{address}:{listener.getsockname()[1]}/"
        if as_json:  # now, not when it stops: a caller that asked for a free port reads it from here
            emit({"url": url, "store": store.place})
            sys.stdout.flush()
        click.echo(f"editjudge: {url}  (store {safe(store.place)})", err=True)
        click.echo("Ctrl-C stops it.", err=True)
        # raised again once everything is closed
        with contextlib.suppress(KeyboardInterrupt):
            server(app, log_level="warning").run(sockets=[listener])
    sys.exit(0)


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, kind, proto, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.socket(family, kind, proto)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(2048)  # whoever reads the address may call at once
    except OSError as error:
        hint = "stop what uses it, or name another with --port (0 takes a free one)"
        raise WorldError(
            f"{host}:{port} cannot be listened on: {error.strerror or error}; {hint}"
        ) from None
    return listener
