"""Opening of judges by their spec: `measured`, `replay:FILE`, `gguf:FILE`, `provider/model`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, TypeAlias, get_args

from editjudge import plugins
from editjudge.errors import Option, UsageError, did_you_mean
from editjudge.judges.cost import BudgetProtocol
from editjudge.judges.judge import (
    GGUF,
    METRICS,
    SCHEMA_REQUEST,
    SERVERS,
    Judge,
    Options,
    Pacing,
    is_local,
    provider_of,
)
from editjudge.redaction import option_secrets
from editjudge.rubrics.files import COMPUTED
from editjudge.rubrics.model import Rubric

if TYPE_CHECKING:
    from editjudge.judges.providers import Endpoint

OpenJudge: TypeAlias = Callable[[str, Options, AsyncExitStack], Judge]
"""Plug-in function that opens a judge. Its arguments are the spec, the options, and a stack of resources to close at
the end.

    def open_size_judge(spec, options, resources):
        return SizeJudge()
"""


def default_rubrics(specs: Sequence[str], options: Options) -> tuple[str, ...]:
    """Return the default rubrics for these judges. CLIP and DINO metrics are included only if a checkpoint is set."""
    if set(specs) != {METRICS}:
        return ("online",)
    return COMPUTED if options.extra else COMPUTED[:2]


def check_answers(specs: Sequence[str], rubrics: Sequence[Rubric]) -> None:
    """Raise `UsageError` unless every judge can answer every rubric. For example, a language model cannot compute a
    PSNR.
    """
    for spec in specs:
        for rubric in rubrics:
            if _is_program(spec) and any(f.scale.choices for f in rubric.factors):
                raise UsageError(
                    f"--judge {spec} gives numbers, and {rubric.name} asks for choices: name a rubric with scales",
                    options=[Option("judge", spec), Option("rubric")],
                    code="choices_of_a_program",
                )
            if rubric.computed_by and rubric.computed_by != spec:
                raise UsageError(
                    f"the figures of {rubric.name} are computed: only --judge {rubric.computed_by} answers it, not "
                    f"{spec}. Judges of two kinds take two runs, which may share a store",
                    options=[Option("judge", rubric.computed_by)],
                    code="computed_rubric",
                )
            if spec == METRICS and not rubric.computed_by:
                raise UsageError(
                    f"--judge {METRICS} computes metrics and cannot answer {rubric.name}: "
                    f"name {' or '.join(COMPUTED)} with --rubric, or leave it out",
                    options=[Option("judge", METRICS), Option("rubric")],
                )


def _is_program(spec: str) -> bool:
    """Whether a judge is a function or a server of trained scorers, which answer with numbers alone."""
    return spec.partition(":")[0] in ("python", *SERVERS)


def check_settings(
    specs: Sequence[str], options: Options, others: Collection[str] = ()
) -> None:
    """Raise `UsageError` for a parameter (`-J`) that no judge would read. This is the case if all judges are `measured`
    or recorded replies, which have no parameters.

    Servers accept any parameter, and other judges in this process check their own. `others` are names that the command
    line reads itself. The message suggests one of them if it is similar.
    """
    if not all(spec == "measured" or spec.startswith("replay:") for spec in specs):
        return
    for name in options.extra:
        raise UsageError(
            f"-J {name}: {' and '.join(specs)} takes no such setting{did_you_mean(name, others)}",
            code="unknown_setting",
        )


async def check_opening(
    options: Mapping[str, Options],
    pacing: Callable[[str], Pacing],
    *,
    needs_key: bool = True,
) -> None:
    """Raise the error of the first judge that cannot be opened, for example because its provider is unknown, or because
    its API key or file is missing. `options` maps each judge to its options. No question is sent, so a server that
    cannot be reached is not noticed.
    """
    async with AsyncExitStack() as resources:
        for spec, its_options in options.items():
            await open_judge(spec, its_options, pacing, resources, needs_key=needs_key)


async def open_judge(
    spec: str,
    options: Options,
    pacing: Callable[[str], Pacing],
    resources: AsyncExitStack,
    *,
    batch: bool = False,
    needs_key: bool = True,
    funds: BudgetProtocol | None = None,
) -> Judge:
    """Open the judge that a spec names. It is closed together with `resources`. If `batch`, batch prices apply.

    No API key is needed if the judge is never called, as for a forecast.
    """
    if batch:
        from editjudge.judges.batch import batch_client

        batch_client(spec)  # raises if it has none
    if options.read == "logprobs" and not _gives_logprobs(spec):
        raise UsageError(
            f"--read logprobs: {spec} does not return token probabilities; leave the option out",
            options=[Option("read", "logprobs")],
        )
    if spec.startswith("replay:"):
        from editjudge.judges.replay import Replay

        return Replay(spec.removeprefix("replay:"), strict=options.strict)
    if name := provider_of(spec):
        try:
            provided = plugins.load("judges", name, f"the judge `{name}`")
        except plugins.MissingExtra as error:
            raise UsageError(
                f"{error}, or name a judge with --judge provider/model",
                options=[Option("judge", "provider/model")],
            ) from None
        if name in SERVERS:
            served: Judge = await provided(spec, options, resources, pacing(spec))
            return served
        opened: Judge = provided(spec, options, resources)
        return opened
    if spec.startswith(GGUF):
        from editjudge.judges.local import open_local

        return await open_local(spec, options, pacing(spec), resources, funds)
    from editjudge.judges.chat import ChatJudge
    from editjudge.judges.cost import prices
    from editjudge.judges.http import HttpTransport
    from editjudge.judges.providers import Secret, resolve

    endpoints = [resolve(spec, url, needs_key=needs_key) for url in options.base_urls]
    endpoint, options = _with_schema_request(_joined(endpoints), options)
    sent = (Secret(value) for value in option_secrets(options.extra))
    endpoint = dataclasses.replace(endpoint, other_keys=(*endpoint.other_keys, *sent))
    transport = HttpTransport(timeout=options.timeout)
    await resources.enter_async_context(transport)
    pace = pacing(spec)
    if len(endpoints) > 1:
        pace.spread([each.url for each in endpoints])
    return ChatJudge(
        spec,
        endpoint,
        options,
        pace,
        transport,
        price=prices(options.prices).of(spec, batch=batch),
        funds=funds,
    )


def _joined(endpoints: Sequence[Endpoint]) -> Endpoint:
    """Return the endpoint of several servers, whose address is not part of keys."""
    first, *others = endpoints
    if not others:
        return first
    warnings = dict.fromkeys(text for each in endpoints for text in each.warnings)
    return dataclasses.replace(
        first, warnings=tuple(warnings), key_url=first.key_url or ""
    )


def _with_schema_request(
    endpoint: Endpoint, options: Options
) -> tuple[Endpoint, Options]:
    """Return the endpoint and options with `-J schema_request` moved from the options to the endpoint, since it only
    selects the request format and must not affect task keys.
    """
    extra = dict(options.extra)
    request = extra.pop(SCHEMA_REQUEST, None)
    if request is None:
        return endpoint, options
    from editjudge.judges.openai import SchemaRequest

    forms = get_args(SchemaRequest)
    if endpoint.wire != "openai" or request not in forms:
        raise UsageError(
            f"-J {SCHEMA_REQUEST}={request}: expected {', '.join(forms)}, for a server of the chat format"
        )
    options = dataclasses.replace(options, extra=extra)
    fields = {**endpoint.options, SCHEMA_REQUEST: request}
    return dataclasses.replace(endpoint, options=fields), options


def _gives_logprobs(spec: str) -> bool:
    """Whether the judge's wire format has a field for token probabilities."""
    if spec.startswith(GGUF):
        return True
    if is_local(spec):
        return False
    from editjudge.judges.providers import PROVIDERS, split

    return PROVIDERS[split(spec)[0]].wire == "openai"
