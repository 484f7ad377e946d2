"""`editjudge serve`: review, rating and reward API on this machine, or with a token on others."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import sys
from typing import TYPE_CHECKING

import click

from editjudge.cli.options import asking_options, judge_option, open_store, store_option
from editjudge.cli.output import emit, json_option, safe
from editjudge.cli.service_options import terms_options
from editjudge.errors import InputError, UsageError, WorldError

if TYPE_CHECKING:
    from editjudge.judges.registry import Options
    from editjudge.web.service_options import Terms

_SHORTEST = 16
"""Characters of a token; one of ours has 43."""
_IN_A_PATH = re.compile(r"[A-Za-z0-9._~-]+")


@click.command(epilog="\b\nExample: editjudge serve --store editjudge.db")
@store_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8427, show_default=True, help="0 takes a free one.")
@judge_option(
    default=lambda: os.environ.get("EDITJUDGE_JUDGE", "measured"), show_default="EDITJUDGE_JUDGE, else measured"
)
@click.option("--token", envvar="EDITJUDGE_TOKEN", help="Of reviewers, who may do everything; needed off loopback.")
@click.option(
    "--service-token",
    envvar="EDITJUDGE_SERVICE_TOKEN",
    help="Of programs, for /v1/ and trainers' protocols alone; in a header, or in the path as /t/TOKEN/v1/reward.",
)
@click.option("--create", "create_store", is_flag=True, help="Make the store if it is not there.")
@asking_options
@terms_options
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
    """Review, rating and reward API in the browser.

    Off loopback a token is required: set EDITJUDGE_TOKEN rather than --token, which other users see in the list of
    processes. Who holds it may review and judge. Give programs --service-token instead, which opens no page, and
    raters a link of their own (`editjudge ratings invite`). With --service-token alone, nobody off loopback reviews.
    """
    # Pictures are screened and measured in threads of the server's own, beside which those of BLAS wait for a core:
    # screening an edit took 183 ms of CPU with two of them, and 110 with one.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from editjudge.store.browse import keep_caches_small

    try:
        from editjudge.web.app import create
        from editjudge.web.connections import server
        from editjudge.web.site import LOOPBACK, Site
    except ModuleNotFoundError as error:
        raise InputError(f"serve needs an extra ({error.name} is missing): pip install 'editjudge[web]'") from None

    token, service_token = (given.strip() if given else None for given in (token, service_token))
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
        raise UsageError("the service token goes into addresses: expected letters, digits, -, _, . and ~ alone")
    if token is not None and token == service_token:
        raise UsageError("--token and --service-token are the same: programs would be reviewers")
    if host not in LOOPBACK:
        token = token or secrets.token_urlsafe(32)  # that nobody knows: with a service's token alone, pages are closed
    with open_store(store_place, create=create_store) as store, _listening(host, port) as listener:
        address = f"[{host}]" if ":" in host else host
        keep_caches_small(store)
        app = create(Site(store, judge, options, token, service_token, terms))
        url = f"http://{address}:{listener.getsockname()[1]}/"
        if as_json:  # now, and not once it is stopped: who asked for a free port learns it from this
            emit({"url": url, "store": store.place})
            sys.stdout.flush()
        click.echo(f"editjudge: {url}  (store {safe(store.place)})", err=True)
        click.echo("Ctrl-C stops it.", err=True)
        with contextlib.suppress(KeyboardInterrupt):  # raised again once everything is closed
            server(app, log_level="warning").run(sockets=[listener])
    sys.exit(0)


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, kind, proto, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, proto)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(2048)  # whoever reads the address may call at once
    except OSError as error:
        hint = "stop what uses it, or name another with --port (0 takes a free one)"
        raise WorldError(f"{host}:{port} cannot be listened on: {error.strerror or error}; {hint}") from None
    return listener
