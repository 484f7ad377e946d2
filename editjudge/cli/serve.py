"""`editjudge serve`: review pages, rating pages and the reward API, on this machine or, with a token, for others."""

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
    FILE,
    SEE_RUN,
    Finite,
    Setting,
    asking_options,
    check_judges,
    check_settings,
    former_option,
    judge_option,
    judge_options,
    open_store,
    passport_options,
    requirements,
    store_option,
    verb,
    wants_json,
)
from editjudge.cli.output import ExitCode, emit
from editjudge.errors import UsageError, WorldError, printable
from editjudge.plugins import default_judge

if TYPE_CHECKING:
    from editjudge.report.passport import Requirement
    from editjudge.rewards.protocol import Terms

_SHORTEST = 16
"""Minimum number of characters in a token. Generated tokens have 43."""
_IN_A_PATH = re.compile(r"[A-Za-z0-9._~-]+")


_HELP = {
    "Main options": "--store --create --host --port --token --judge --rubric --budget",
    "Rewards": "--formula --weight --use --judge-for --degenerate --dialect --fresh",
    "Access": "--service-token --allow",
    "Watching the judge": "--passport --require --canary",
    "Requests to judges": "--concurrency --base-url -J",
}
"""Options by what they are about, the commonest first. `--formula` is the last spelling of `--score`."""


@verb(
    note=SEE_RUN,
    example="editjudge serve --store editjudge.db",
    groups=_HELP,
)
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
@judge_option(default=default_judge, show_default="EDITJUDGE_JUDGE, else measured")
@click.option(
    "--judge-for",
    multiple=True,
    metavar="RUBRIC=JUDGE",
    help="Judge of one rubric in the place of --judge, such as fidelity=openai/gpt-6.1-terra beside --judge measured; "
    "repeatable.",
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
@click.option("--create", is_flag=True, help="Create the store if it does not exist.")
@asking_options()
@click.option(
    "--rubric",
    "rubrics",
    multiple=True,
    help="Rubric if a request names none [online]; repeatable.",
)
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="NAME",
    help="Another judge or rubric that a request may name; repeatable.",
)
@former_option("--allow-judge", "--allow JUDGE", "judges", multiple=True)
@former_option("--allow-rubric", "--allow RUBRIC", "more_rubrics", multiple=True)
@click.option(
    "--score",
    "--formula",
    "formula",
    help="How scores become a reward: mean, min, product, geometric_mean, or an expression of factors and rubrics, "
    'such as "fidelity * (preservation + quality) / 2".',
)
@click.option(
    "--use",
    type=click.Choice(["scores", "expected"]),
    help="expected: reward by the expected scores of judges that give them (measured; others with --read logprobs) "
    "instead of the written ones.",
)
@click.option(
    "--weight",
    "weights",
    multiple=True,
    metavar="FACTOR=W",
    help="Weight of a factor in the reward; repeatable.",
)
@click.option(
    "--degenerate",
    type=click.Choice(["null", "worst"]),
    help="Reward for a degenerate output (blank, noise, unrelated image): null [default], or worst, which is 0.",
)
@click.option(
    "--dialect",
    "dialects",
    multiple=True,
    metavar="NAME",
    help="Also speak a trainer's protocol: flow-factory, unirl, edit-r1, flow-grpo, editscore, or a YAML file that "
    "describes another; repeatable.",
)
@click.option(
    "--fresh", is_flag=True, help="Ask again even if the store has the answer."
)
@click.option(
    "--budget",
    type=Finite(min=0),
    metavar="USD",
    help="Stop asking judges once this is spent.",
)
@click.option(
    "--canary",
    type=Finite(min=0, min_open=True),
    metavar="MINUTES",
    help="Ask a known edit at this interval, and raise an alarm on /metrics and /healthz when the answer moves beyond "
    "its noise. Default: off.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    help="Maximum number of requests in flight to a judge.",
)
@passport_options()
@click.option(
    "--mix",
    "mixture",
    cls=Setting,
    multiple=True,
    help="Reward by the weighted mean of several judges: JUDGE=W; repeatable.",
)
@click.option(
    "--max-waiting",
    cls=Setting,
    type=click.IntRange(1),
    help="Maximum number of edits in the queue.",
)
@click.option(
    "--deadline",
    cls=Setting,
    type=Finite(min=0.1),
    help="Seconds that a request may wait.",
)
@click.option(
    "--drain",
    cls=Setting,
    type=Finite(min=0),
    help="Seconds to finish queued edits when the server stops.",
)
@click.option(
    "--keep-pictures",
    "images",
    cls=Setting,
    type=FILE,
    help="Folder to keep the images of requests in.",
)
def command(
    host: str,
    port: int,
    judge: str,
    token: str | None,
    service_token: str | None,
    create: bool,
    passports: tuple[Path, ...],
    require: str | None,
    **values: object,
) -> None:
    """Serve review pages, rating pages and the reward API.

    Beyond this machine a token is required. Set EDITJUDGE_TOKEN rather than --token, which other users see in the list
    of processes. Its holder may review and judge. Give programs --service-token instead, which opens no page, and
    raters a link of their own (`editjudge ratings invite`). With --service-token alone, the pages open on this machine
    only.

    The reward of an edit needs every rubric of its score. measured does not judge whether the instruction was followed
    (fidelity): name a judge for that with --judge-for, or the other rubrics with --rubric preservation --rubric quality.

    With --passport and --require, the server starts only if every named line of each judge's passport is yes; else it
    ends with exit 100.
    """
    # The server screens and measures images in its own threads, and BLAS threads would compete with them for cores:
    # screening an edit took 183 ms of CPU with two BLAS threads, and 110 ms with one.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from editjudge.web.app import create as create_app
    from editjudge.web.connections import server
    from editjudge.web.site import LOOPBACK, Site

    options = judge_options(values)
    terms = dataclasses.replace(_terms(values), judge=judge, options=options)
    note = _check_reward(terms)
    _check_judges(terms)
    _check_passports(terms, requirements(passports, require))
    token = token.strip() if token else None
    service_token = service_token.strip() if service_token else None
    _check_tokens(token, service_token)
    if host not in LOOPBACK and token is None:
        if service_token is None:
            raise UsageError(
                f"--host {host}: others can reach it, so a token is required. For example:\n"
                f"  EDITJUDGE_TOKEN={secrets.token_urlsafe(32)} editjudge serve --host {host}"
            )
        # with only a service token, nobody can sign in to the pages
        token = secrets.token_urlsafe(32)
    with open_store(create=create) as store, _listening(host, port) as listener:
        store.keep_caches_small()
        app = create_app(Site(store, token, service_token, {"rewards": terms}))
        address = f"[{host}]" if ":" in host else host
        url = f"http://{address}:{listener.getsockname()[1]}/"
        if wants_json():
            # Printed now and not at the end: a caller that asked for a free port reads it from here.
            emit({"url": url, "store": store.name})
            sys.stdout.flush()
        click.echo(f"editjudge: {url}  (store {printable(store.name)})", err=True)
        if note:
            click.echo(note, err=True)
        click.echo("Ctrl-C stops it.", err=True)
        # raised again after everything is closed
        with contextlib.suppress(KeyboardInterrupt):
            server(app, log_level="warning").run(sockets=[listener])
    sys.exit(0)


def _check_tokens(token: str | None, service_token: str | None) -> None:
    for text in filter(None, (token, service_token)):
        if len(text) < _SHORTEST:
            raise UsageError(
                f"a token has {len(text)} characters; at least {_SHORTEST} are needed to be hard to guess"
            )
    if service_token is not None and not _IN_A_PATH.fullmatch(service_token):
        raise UsageError(
            "the service token is used in addresses: expected only letters, digits, -, _, . and ~"
        )
    if token is not None and token == service_token:
        raise UsageError(
            "--token and --service-token are the same: programs would be reviewers"
        )


def _terms(values: dict[str, Any]) -> Terms:
    """Return the settings of the reward API."""
    from editjudge.rewards.dialects import chosen
    from editjudge.rewards.protocol import Terms

    if values["dialects"]:
        # raises for an unknown dialect, and for two dialects with the same path
        chosen(values["dialects"])
    for name in values.pop("allowed"):
        values["more_rubrics" if _is_rubric(name) else "judges"] += (name,)
    values["weights"] = _weights("--weight", "FACTOR", values["weights"])
    values["mixture"] = _weights("-J mix", "JUDGE", values["mixture"])
    values["judge_for"] = _judges_by_rubric(values["judge_for"])
    return Terms(
        **{name: value for name, value in values.items() if value not in (None, (), {})}
    )


def _judges_by_rubric(texts: Sequence[str]) -> dict[str, str]:
    judges: dict[str, str] = {}
    for text in texts:
        rubric, _, judge = text.partition("=")
        if not rubric or not judge:
            raise UsageError(
                f'--judge-for "{text}": expected RUBRIC=JUDGE, such as fidelity=openai/gpt-6.1-terra',
                code="invalid_judge_for",
            )
        if rubric in judges:
            raise UsageError(
                f"--judge-for {rubric}: has two judges; give one", code="two_judges"
            )
        judges[rubric] = judge
    return judges


def _check_reward(terms: Terms) -> str:
    """Return a note on what the default reward does not cover, or an empty string if there is nothing to note.

    Raise `UsageError` if the operator named a judge but no rubrics, and this judge cannot give any edit a reward.
    """
    from editjudge.rewards.offer import Offer

    offer = Offer.of(terms)
    if judge := offer.blind_judge():
        problem = (
            f"the judge {judge} cannot judge whether the instruction was followed (rubric fidelity), so that edits have "
            "no reward"
        )
        is_chosen = _is_typed("judge") or _is_typed("mixture")
        if is_chosen and not _is_typed("rubrics"):
            raise UsageError(
                f"{problem}. Either name a judge that does for that rubric: --judge-for fidelity=openai/gpt-6-luna. Or ask "
                "for what it measures by name: --rubric preservation --rubric quality; such a reward cannot know "
                "whether the instruction was followed",
                code="instruction_not_judged",
            )
        return f"rewards: {problem}; see --judge-for and --rubric"
    if offer.ignores_instruction():
        return (
            "rewards: not judged: whether the instruction was followed, so that an edit that does less of what was "
            "asked can have a higher reward; an output that is nearly its input has none"
        )
    return ""


def _check_judges(terms: Terms) -> None:
    """Raise an error if a judge named on the command line cannot be opened, before the server starts to listen. The
    default judge is not checked, since review pages work without it."""
    named = [*terms.mixture, *terms.judge_for.values(), *terms.judges]
    if _is_typed("judge"):
        named.insert(0, terms.judge)
    check_settings(named or [terms.judge], terms.options)
    check_judges({spec: terms.options_of(spec) for spec in named})


def _check_passports(terms: Terms, required: Sequence[Requirement]) -> None:
    """Exit unless the passports of all judges of the default reward meet what is required."""
    if not required:
        return
    from editjudge.rewards.offer import Offer
    from editjudge.rubrics.prompt import layout_of_run

    asked = Offer.of(terms).default_questions()
    passports = {each.passport.judge: each.passport for each in required}
    for judge, rubrics in asked.items():
        if judge not in passports:
            raise UsageError(
                f"--require: no passport of {judge}: add it with --passport, from `editjudge probe --judge {judge} "
                "--passport FILE`",
                code="no_passport",
            )
        passports[judge].check_judge(
            {
                "judges": [judge],
                "rubrics": {rubric.name: rubric.hash for rubric in rubrics},
                "layout": layout_of_run(rubrics),
                "options": terms.options_of(judge).frozen(),
            }
        )
    for each in required:
        click.echo(each.line, err=True)
    if any(each.unmet for each in required):
        sys.exit(ExitCode.GATE_FAILED)


def _is_typed(name: str) -> bool:
    """Whether an option was given on the command line."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def _is_rubric(name: str) -> bool:
    from editjudge.judges.judge import provider_of
    from editjudge.rubrics.files import UnknownRubric, load_any

    if provider_of(name):
        return False
    try:
        load_any(name)
    except UnknownRubric:
        return False
    return True


def _weights(option: str, kind: str, texts: Sequence[str]) -> dict[str, float]:
    """Return the weights keyed by name. `kind` is FACTOR or JUDGE."""
    from editjudge.rewards.reduction import LEAST_WEIGHT, MOST_WEIGHT

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


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.socket(family, kind, proto)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # listen now, since a program that reads the address may connect at once
        listener.listen(2048)
    except OSError as error:
        hint = "stop what uses it, or name another with --port (0 takes a free one)"
        raise WorldError(
            f"{host}:{port} cannot be listened on: {error.strerror or error}; {hint}"
        ) from None
    return listener
