"""Judges by their spec: `measured`, `replay:FILE`, `gguf:FILE`, `provider/model`."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from editjudge.errors import UsageError
from editjudge.judges.budget import BudgetProtocol
from editjudge.judges.judge import METRICS, Judge, Pacing, is_local
from editjudge.judges.messages import Parameters
from editjudge.redaction import option_secrets, redacted_settings
from editjudge.rubrics.files import COMPUTED
from editjudge.rubrics.model import Rubric


@dataclass(frozen=True)
class Options:
    """How judges are asked, beyond which ones."""

    parameters: Parameters = field(default_factory=Parameters)
    base_url: str | None = None
    schema: bool = True
    """Request structured output where the server takes it."""
    strict: bool = False
    reasks: int = 2
    timeout: float = 300.0
    prices: Path | None = None
    read: Literal["text", "logprobs"] = "text"
    """`logprobs`: also the mean over the scores that a model might have written, by their probabilities."""
    min_mass: float = 0.9
    """The least probability of all legal scores with which such a mean is formed."""

    def frozen(self) -> dict[str, Any]:
        """What is stored with a run: all that can change an answer, and nothing secret. Options that are younger than
        the runs in people's stores are left out at their defaults, so that a run is the run it was."""
        options = dataclasses.asdict(self)
        for name in ("timeout", "prices", *(("read", "min_mass") if self.read == "text" else ())):
            del options[name]
        return redacted_settings(options)

    @property
    def mass_to_read(self) -> float | None:
        """As judges take it; None where only the text is read."""
        return self.min_mass if self.read == "logprobs" else None


GGUF = "gguf:"


def default_rubrics(specs: Sequence[str], options: Options) -> tuple[str, ...]:
    """What these judges are asked where nobody says it; of CLIP and DINO only who gives a checkpoint."""
    if set(specs) != {METRICS}:
        return ("online",)
    return COMPUTED if options.parameters.extra else COMPUTED[:2]


def check_answers(specs: Sequence[str], rubrics: Sequence[Rubric]) -> None:
    """That each judge can answer each rubric. Raises `UsageError`: nobody is asked for a PSNR."""
    for spec in specs:
        for rubric in rubrics:
            if rubric.computed_by and rubric.computed_by != spec:
                raise UsageError(
                    f"the figures of {rubric.name} are computed: only --judge {rubric.computed_by} answers it, not "
                    f"{spec}. Judges of two kinds take two runs, which may share a store"
                )
            if spec == METRICS and not rubric.computed_by:
                raise UsageError(
                    f"--judge {METRICS} computes metrics and cannot answer {rubric.name}: "
                    f"name {' or '.join(COMPUTED)} with --rubric, or leave it out"
                )


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
    """The judge of a spec, at the price of its batches if `batch`; what it holds open is closed with `resources`.

    One that is never asked, as for a forecast, needs no key."""
    if batch:
        from editjudge.judges.batch import batch_client

        batch_client(spec)  # says so where there are none
    if options.read == "logprobs" and not _gives_logprobs(spec):
        raise UsageError(f"--read logprobs: {spec} gives no token probabilities; leave the option out")
    if spec.startswith("replay:"):
        from editjudge.judges.replay import Replay

        return Replay(spec.removeprefix("replay:"), strict=options.strict)
    if spec in ("measured", METRICS):
        return _embedded(spec, options.parameters.extra, resources)
    if spec.startswith(GGUF):
        from editjudge.judges.local import open_local

        return await open_local(spec, options, pacing(spec), resources, funds)
    from editjudge.judges.chat import ChatJudge
    from editjudge.judges.http import HttpTransport
    from editjudge.judges.prices import prices
    from editjudge.judges.providers import Secret, resolve
    from editjudge.judges.server_check import informed

    endpoint = informed(resolve(spec, options.base_url, needs_key=needs_key))
    sent = (Secret(value) for value in option_secrets(options.parameters.extra))
    endpoint = dataclasses.replace(endpoint, other_keys=(*endpoint.other_keys, *sent))
    transport = await resources.enter_async_context(HttpTransport(timeout=options.timeout))
    return ChatJudge(
        spec,
        endpoint,
        options.parameters,
        pacing(spec),
        transport,
        reasks=options.reasks,
        strict=options.strict,
        want_schema=options.schema,
        min_mass=options.mass_to_read,
        price=prices(options.prices).of(spec, batch=batch),
        funds=funds,
    )


def _gives_logprobs(spec: str) -> bool:
    """Whether there is a place for them in its wire format."""
    if spec.startswith(GGUF) or is_local(spec):
        return spec.startswith(GGUF)
    from editjudge.judges.providers import PROVIDERS, split

    return PROVIDERS[split(spec)[0]].wire == "openai"


def _embedded(spec: str, extra: Mapping[str, Any], resources: AsyncExitStack) -> Judge:
    try:
        measured = importlib.import_module("editjudge.measured")
        absent = measured.missing()
    except ImportError:
        absent = ["the extra `measured`"]
    if absent:
        raise UsageError(
            f"the embedded judge `{spec}` needs {', '.join(absent)}: pip install 'editjudge[measured]', "
            "or name a judge with --judge provider/model"
        )
    from editjudge.metrics import Metrics

    judge = Metrics(extra) if spec == METRICS else measured.Measured()
    resources.callback(judge.close)
    opened: Judge = judge
    return opened
