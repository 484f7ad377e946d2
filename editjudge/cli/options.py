"""Options that several verbs share, and what they mean."""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from editjudge.cli import completion
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.judges.registry import Options
    from editjudge.store.store import Store

F = TypeVar("F", bound=Callable[..., Any])


class Finite(click.FloatRange):
    """A range that nan and inf are outside of: comparisons alone let nan through."""

    name = "number"  # click's own is "float range", in its messages too

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no number that can be meant.", param, ctx)
        return number


class ListByDefault(click.Group):
    """Verbs of which the first is `list`: what is meant where none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        typing = ctx.resilient_parsing  # a shell asks what may come next
        return super().parse_args(ctx, args if named or typing else ["list", *args])


class NewFile(click.Path):
    """A file to write, whose folder is there: said before the work is done, not after."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(super().convert(value, param, ctx))  # type: ignore[arg-type]  # as `path_type` says
        if not path.parent.is_dir():
            self.fail(f"there is no folder {path.parent}.", param, ctx)
        return path


run_argument = click.argument("run", shell_complete=completion.runs)


def default_store() -> str:
    return os.environ.get("EDITJUDGE_STORE", "editjudge.db")


def store_is_given(place: str) -> bool:
    """Whether an option names this store, be it the default one."""
    context = click.get_current_context(silent=True)
    source = context and context.get_parameter_source("store_place")
    return place != default_store() or source is ParameterSource.COMMANDLINE


store_option = click.option(
    "--store",
    "store_place",
    default=default_store,
    show_default="EDITJUDGE_STORE, else editjudge.db",
    help="Where judgements are kept: a SQLite file, or postgresql://...",
)

judge_option = functools.partial(
    click.option,
    "--judge",
    help="Who judges: measured, metrics, replay:FILE, gguf:FILE or provider/model.",
    shell_complete=completion.judges,
)


def rubrics_option(*default: str) -> Callable[[F], F]:
    """Without a default it depends on the judge."""
    return click.option(
        "--rubric",
        "rubrics",
        multiple=True,
        default=default,
        show_default=True if default else "online; for the judge metrics: its own",
        help="Rubric, set or YAML file; repeatable.",
        shell_complete=completion.rubrics,
    )


layout_option = click.option(
    "--layout",
    type=click.Choice(["images-first", "published"]),
    default="images-first",
    show_default=True,
    help="Pictures before the rubric, or in a published prompt's own order.",
)


def _concurrency(_ctx: click.Context, _param: click.Parameter, text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise click.BadParameter(f"{text}: expected auto or a number from 1 to 10,000.")
    return int(text)


concurrency_option = click.option(
    "--concurrency",
    callback=_concurrency,
    default="auto",
    show_default=True,
    help="auto, or the most requests in flight.",
)
budget_option = click.option(
    "--budget",
    type=Finite(min=0),
    metavar="USD",
    help="Stop before more than this is spent, by each start of the command.",
)
max_failures_option = click.option(
    "--max-failures",
    type=Finite(0, 1),
    default=0.0,
    show_default=True,
    help="Share of judgements that may fail before the exit code is 3.",
)
quiet_option = click.option("-q", "--quiet", is_flag=True, help="No progress; warnings are still said.")

_ASKING = (
    click.option("--base-url", help="Address of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1."),
    click.option("--temperature", type=Finite(min=0), help="Left to the server without it."),
    click.option("--seed", type=int, help="Left to the server without it."),
    click.option("--max-tokens", type=int, help="Most tokens of an answer."),
    click.option("--reasoning-effort", help="For models that think: low, medium, high."),
    click.option(
        "-J",
        "extra",
        multiple=True,
        metavar="KEY=VALUE",
        help="Passed to the server as it is; JSON or text. For metrics: clip=FOLDER, dino=FOLDER. For gguf:FILE: "
        "mmproj=FILE, context=TOKENS.",
    ),
    click.option("--schema/--no-schema", default=True, help="Request structured output where the server takes it."),
    click.option(
        "--reasks",
        type=click.IntRange(0, 10),
        default=2,
        show_default=True,
        help="Times a reply that is no answer is asked for again.",
    ),
    click.option("--timeout", type=Finite(min=0.1), default=300.0, show_default=True, help="Seconds for one request."),
    click.option(
        "--prices", type=click.Path(path_type=Path), help="Price file of your own (EDITJUDGE_PRICES): docs/running.md."
    ),
    click.option("--strict", is_flag=True, help="Refuse reasons outside their word limits instead of noting them."),
)


def bundle(
    options: Sequence[Callable[[F], F]], names: Sequence[str], into: str, make: Callable[[dict[str, Any]], Any]
) -> Callable[[F], F]:
    """Options that a verb gets as one argument, made of them."""

    def decorate(verb: F) -> F:
        @functools.wraps(verb)
        def collected(**given: Any) -> Any:
            made = make({name: given.pop(name) for name in names})
            return verb(**{into: made}, **given)

        decorated: Any = collected
        for option in reversed(options):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]  # click's decorators keep the function

    return decorate


def _options(given: dict[str, Any]) -> Options:
    from editjudge.judges.messages import Parameters
    from editjudge.judges.registry import Options

    extra = dict(_pair(text) for text in given.pop("extra"))
    asked = {name: given.pop(name) for name in ("temperature", "seed", "max_tokens", "reasoning_effort")}
    return Options(Parameters(**asked, extra=extra), **given)


asking_options = bundle(
    _ASKING,
    (
        *("base_url", "temperature", "seed", "max_tokens", "reasoning_effort", "extra"),
        *("schema", "reasks", "timeout", "prices", "strict"),
    ),
    "options",
    _options,
)
"""How judges are asked; the verb gets them as one `options`."""


def _pair(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageError(f'-J "{text}": expected KEY=VALUE')
    try:
        return key, json.loads(value, parse_constant=_text)
    except ValueError:
        return key, value


def _text(constant: str) -> str:
    """NaN and Infinity, which Python takes for JSON and no server does."""
    raise ValueError(constant)


def default_judge(named: tuple[str, ...]) -> tuple[str, ...]:
    """Those named, else the one of the environment, else the embedded one, which is said."""
    if named:
        return named
    if own := os.environ.get("EDITJUDGE_JUDGE"):
        return (own,)
    click.echo("judge: measured (embedded; name another with --judge or EDITJUDGE_JUDGE)", err=True)
    return ("measured",)


def open_store(place: str, *, readonly: bool = False, create: bool = True) -> Store:
    """The store; a verb that only reads, or needs what is in it, does not make one."""
    from editjudge.store.location import engine_of
    from editjudge.store.store import Store

    if not create:
        engine_of(place, readonly=True, timeout=0)[0].dispose()  # one that is not there is named
    return Store.open(place, readonly=readonly)
