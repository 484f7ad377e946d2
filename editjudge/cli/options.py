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

from editjudge.cli import completion
from editjudge.errors import UsageError, near_miss

if TYPE_CHECKING:
    from editjudge.judges.judge import Options
    from editjudge.store.store import Store

F = TypeVar("F", bound=Callable[..., Any])


class Finite(click.FloatRange):
    """A range without nan and inf; comparisons alone let nan through."""

    name = "number"  # click's own is "float range", in its messages too

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class ListByDefault(click.Group):
    """A group whose default command is `list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args and (
            not args[0].startswith("-") or args[0] in ctx.help_option_names
        )
        typing = ctx.resilient_parsing  # a shell asks what may come next
        return super().parse_args(ctx, args if named or typing else ["list", *args])


class NewFile(click.Path):
    """A file to write. Its folder must exist, which is checked before any work is done."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        path = Path(super().convert(value, param, ctx))  # type: ignore[arg-type]  # as `path_type` says
        if not path.parent.is_dir():
            self.fail(f"there is no folder {path.parent}.", param, ctx)
        return path


run_argument = click.argument("run", shell_complete=completion.runs)


def default_store() -> str:
    return os.environ.get("EDITJUDGE_STORE", "editjudge.db")


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
    help="Judge: measured, metrics, replay:FILE, gguf:FILE or provider/model.",
    shell_complete=completion.judges,
)


def rubrics_option(*default: str) -> Callable[[F], F]:
    """Without a default, the rubrics depend on the judge."""
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
    help="Order of a prompt: pictures before the rubric, or as published.",
)


def _columns(
    _ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    from editjudge.manifest import FIELDS

    pairs = [
        (field.strip(), column.strip())
        for field, _, column in (text.partition("=") for text in given)
    ]
    for text, (field, column) in zip(given, pairs, strict=True):
        if not field or not column:
            raise click.BadParameter(
                f"{text}: expected FIELD=COLUMN, such as input=source. Fields: {', '.join(FIELDS)}."
            )
        # A rubric may name further fields; one that is almost a usual field is a typing error.
        if (
            field not in FIELDS
            and "?" in (hint := near_miss(field, FIELDS))
            and not field.startswith(FIELDS)
        ):
            raise click.BadParameter(f'{text}: no field is called "{field}"{hint}')
    if len({field for field, _ in pairs}) < len(pairs) or len(
        {column for _, column in pairs}
    ) < len(pairs):
        raise click.BadParameter("a field or a column is named twice.")
    return tuple(pairs)


columns_option = click.option(
    "--column",
    "columns",
    multiple=True,
    callback=_columns,
    metavar="FIELD=COLUMN",
    help="The manifest's name for a field, such as input=source; repeatable.",
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
    help="Maximum number of requests in flight, or auto.",
)
budget_option = click.option(
    "--budget",
    type=Finite(min=0),
    metavar="USD",
    help="Stop before spending more than this; each start of the command has the whole budget.",
)
max_failures_option = click.option(
    "--max-failures",
    type=Finite(0, 1),
    default=0.0,
    show_default=True,
    help="Exit with 3 if a larger share of judgements failed.",
)
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="No progress; warnings are still printed."
)

_EVERYDAY = (
    click.option(
        "--base-url",
        help="Address of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1.",
    ),
    click.option(
        "-J",
        "extra",
        multiple=True,
        metavar="KEY=VALUE",
        help="Further parameter of the request, JSON or text. For metrics: clip=FOLDER, dino=FOLDER. For gguf:FILE: "
        "mmproj=FILE, context=TOKENS, threads=N, parallel=N.",
    ),
)
_FURTHER = (
    click.option("--temperature", type=Finite(min=0), help="Default: the server's."),
    click.option("--seed", type=int, help="Default: the server's."),
    click.option(
        "--max-tokens", type=int, help="Maximum number of tokens of an answer."
    ),
    click.option("--reasoning-effort", help="For reasoning models: low, medium, high."),
    click.option(
        "--schema/--no-schema",
        default=True,
        help="Request structured output where the server supports it.",
    ),
    click.option(
        "--reasks",
        type=click.IntRange(0, 10),
        default=2,
        show_default=True,
        help="Retries for invalid replies.",
    ),
    click.option(
        "--timeout",
        type=Finite(min=0.1),
        default=300.0,
        show_default=True,
        help="Seconds per request.",
    ),
    click.option(
        "--prices",
        type=click.Path(path_type=Path),
        help="Your own price file (EDITJUDGE_PRICES): docs/running.md.",
    ),
    click.option(
        "--read",
        type=click.Choice(["text", "logprobs"]),
        default="text",
        show_default=True,
        help="logprobs: also the mean over all scores that the model might have written, by their probabilities.",
    ),
    click.option(
        "--min-mass",
        type=Finite(0, 1),
        default=0.9,
        hidden=True,
        help="With --read logprobs: minimum total probability of the legal scores; a factor below it abstains.",
    ),
    click.option(
        "--strict",
        is_flag=True,
        help="Reject replies whose reasons are outside their word limits.",
    ),
)


def bundle(
    options: Sequence[Callable[[F], F]],
    into: str,
    make: Callable[[dict[str, Any]], Any],
) -> Callable[[F], F]:
    """Options that a verb gets as one argument, `into`, which `make` makes of their values."""

    def decorate(verb: F) -> F:
        @functools.wraps(verb)
        def collected(**given: Any) -> Any:
            made = make({name: given.pop(name) for name in names})
            return verb(**{into: made}, **given)

        before = len(getattr(verb, "__click_params__", ()))
        decorated = decorated_with(options, collected)
        names = [str(option.name) for option in decorated.__click_params__[before:]]
        return decorated  # type: ignore[no-any-return]  # click's decorators keep the function

    return decorate


def decorated_with(options: Sequence[Callable[[F], F]], verb: Any) -> Any:
    """A verb with these options, in their order."""
    for option in reversed(options):
        verb = option(verb)
    return verb


def _options(given: dict[str, Any]) -> Options:
    from editjudge.judges.judge import Options

    extra = dict(_parameter(text) for text in given.pop("extra"))
    return Options.of(extra=extra, **given)


asking_options = bundle((*_EVERYDAY, *_FURTHER), "options", _options)
"""How judges are asked; the verb gets one `options`."""


def hidden(option: Callable[[F], F]) -> Callable[[F], F]:
    """Return an option that works and that `--help` does not list."""

    def decorate(verb: F) -> F:
        decorated: Any = option(verb)
        decorated.__click_params__[-1].hidden = True
        return decorated  # type: ignore[no-any-return]

    return decorate


SEE_RUN = "Options on how the judge is asked, such as --temperature and --timeout, are those of `editjudge run --help`."
"""Last line of help of the verbs whose `--help` lists only some of them."""

short_asking_options = bundle(
    (*_EVERYDAY, *(hidden(option) for option in _FURTHER)), "options", _options
)
"""The same options; `--help` lists those that are set every day and refers to `run` for the others."""


def judging_options(*rubrics: str, several: bool = False) -> Callable[[F], F]:
    """Return what `run` and `probe` share: rubrics, judge, store, limits, and how judges are asked.

    With several judges all options are in the help: `run` is where they are explained."""
    judge = judge_option("judges", multiple=True) if several else judge_option()
    options = (rubrics_option(*rubrics), judge, layout_option, store_option, concurrency_option, budget_option,
               max_failures_option, quiet_option, asking_options if several else short_asking_options)  # fmt: skip

    return functools.partial(decorated_with, options)


def named(
    option: str, text: str, expected: str = "NAME=VALUE", *, empty: bool = False
) -> tuple[str, str]:
    """The two parts of an option that is given as NAME=VALUE; `empty`: the value may be."""
    name, equals, value = text.partition("=")
    if not (name and equals and (value or empty)):
        raise UsageError(f'{option} "{text}": expected {expected}')
    return name, value


def _parameter(text: str) -> tuple[str, Any]:
    key, value = named("-J", text, "KEY=VALUE", empty=True)
    try:
        return key, json.loads(value, parse_constant=_text)
    except ValueError:
        return key, value


def _text(constant: str) -> str:
    """NaN and Infinity are JSON to Python, and to no server."""
    raise ValueError(constant)


def default_judge(named: tuple[str, ...]) -> tuple[str, ...]:
    """The given judges, else EDITJUDGE_JUDGE, else the embedded judge, with a note on standard error."""
    if named:
        return named
    if own := os.environ.get("EDITJUDGE_JUDGE"):
        return (own,)
    click.echo(
        "judge: measured (embedded; choose another with --judge or EDITJUDGE_JUDGE)",
        err=True,
    )
    return ("measured",)


def open_store(place: str, *, readonly: bool = False, create: bool = True) -> Store:
    """The store; `create=False` and `readonly` need one that exists."""
    from editjudge.store.location import engine_of
    from editjudge.store.store import Store

    if not create:
        # raises if there is none
        engine_of(place, readonly=True, timeout=0)[0].dispose()
    return Store.open(place, readonly=readonly)
