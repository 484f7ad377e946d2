"""Verbs as click commands, and the options that several of them share."""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from editjudge.cli import completion
from editjudge.cli.completion import STORE
from editjudge.cli.output import VerbReply
from editjudge.errors import Option, UsageError, near_miss, printable
from editjudge.files import default_store
from editjudge.plugins import default_judge

if TYPE_CHECKING:
    from editjudge.judges.judge import Options
    from editjudge.report.passport import Requirement
    from editjudge.report.run_data import Of, RunData
    from editjudge.store.store import Store

F = TypeVar("F", bound=Callable[..., Any])
JSON = "editjudge.json"
"""Key in the click context that holds the value of `--json`."""
FORMER = {"--as": "--map-factor", "--of": "--use", "--reasks": "--retries-invalid"}
"""Former spellings of options, which work until 1.0, with the present ones."""
SEE_RUN = "Options on how the judge is asked, such as --temperature and --timeout, are those of `editjudge run --help`."
"""Last line of help for verbs that list only some of these options."""


def _remember(key: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Return a callback that stores an option's value for all commands on the command line."""

    def remember(ctx: click.Context, _: click.Parameter, value: object) -> None:
        if value:
            ctx.meta[key] = value

    return remember


json_option = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    callback=_remember(JSON),
    help="One JSON document on standard output.",
)
store_option = click.option(
    "--store",
    expose_value=False,
    callback=_remember(STORE),
    show_default="EDITJUDGE_STORE, else editjudge.db",
    help="Where judgements are kept: a SQLite file, or postgresql://...",
)


def wants_json() -> bool:
    return JSON in click.get_current_context().meta


def store_place() -> str:
    """Return the store named on the command line, or the default one."""
    return click.get_current_context().meta.get(STORE) or default_store()


class Setting(click.Option):
    """An option that is rarely needed. It is set with `-J NAME=VALUE` or with its own spelling, which `--help` does not
    list."""

    def __init__(self, spellings: list[str], **attributes: Any) -> None:
        super().__init__(spellings, **attributes | {"hidden": True})

    @property
    def key(self) -> str:
        return self.opts[0].removeprefix("--").replace("-", "_")

    def spelled(self, value: str) -> list[str]:
        """Return the arguments that set the option to a value."""
        if not self.is_flag:
            return [f"{self.opts[0]}={value}"]
        is_set = click.BOOL.convert(value, self, None)
        return self.opts[:1] if is_set else self.secondary_opts[:1]


class Verb(click.Command):
    """A command that returns a `VerbReply`, accepts `--json`, and understands settings and former spellings."""

    def __init__(
        self,
        *args: Any,
        example: str = "",
        note: str = "",
        groups: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> None:
        examples = example.replace("\n", "\n         ")
        attributes["epilog"] = f"{note}\n\n\b\nExample: {examples}".lstrip("\n")
        super().__init__(*args, **attributes)
        self._groups = groups or {}
        """Headings in `--help`, each with its options. Options without a heading come last."""
        json_option(self)
        self.settings = {p.key: p for p in self.params if isinstance(p, Setting)}
        """Options that `-J NAME=VALUE` sets too."""
        for option in self.params:
            if option.name == "extra" and isinstance(option, click.Option):
                names = ", ".join(self.settings)
                option.help = (
                    f"{option.help} Settings: {names} (`editjudge docs running`)."
                )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spellings = {spelling for option in self.params for spelling in option.opts}
        arguments = iter(args)
        spelled: list[str] = []
        for argument in arguments:
            text = f"-J{next(arguments, '')}" if argument == "-J" else argument
            name, equals, value = text.partition("=")
            present = FORMER.get(name)
            setting = self.settings.get(name.removeprefix("-J").replace("-", "_"))
            if present in spellings:
                warn(f"{name} works until 1.0; write {present}")
                spelled.append(f"{present}{equals}{value}")
            elif name.startswith("-J") and setting:
                spelled += setting.spelled(value)
            else:
                spelled.append(text)
        return super().parse_args(ctx, spelled)

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        records: dict[str, tuple[str, str]] = {}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                records[parameter.opts[-1]] = record
        for heading, spellings in self._groups.items():
            with formatter.section(heading):
                formatter.write_dl([records.pop(name) for name in spellings.split()])
        with formatter.section("Other options" if self._groups else "Options"):
            formatter.write_dl(list(records.values()))

    def invoke(self, ctx: click.Context) -> None:
        reply = super().invoke(ctx)
        if isinstance(reply, VerbReply):
            reply.print(as_json=wants_json())
            if reply.code:
                ctx.exit(reply.code)


def warn(message: str) -> None:
    """Print a note to standard error."""
    click.echo(f"editjudge: {printable(message)}", err=True)


def former_option(
    spelling: str, instead: str, *names: str, **attributes: Any
) -> Callable[[F], F]:
    """Return an option from earlier versions. It works until 1.0 and prints what to write instead."""

    def note(_ctx: click.Context, _param: click.Parameter, value: object) -> Any:
        if value:
            warn(f"{spelling} works until 1.0; write {instead}")
        return value

    meaning = f"Until 1.0; write {instead}."
    return click.option(
        spelling, *names, hidden=True, callback=note, help=meaning, **attributes
    )


verb = functools.partial(click.command, cls=Verb)


class VerbGroup(click.Group):
    """A verb with commands, all of which accept the options of the group. The default command is `list` if it exists."""

    command_class = Verb

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        shared = {option.name for option in self.params}
        for option in cmd.params:
            if isinstance(option, click.Option) and option.name in shared:
                option.hidden = True
        listed = " and ".join(option.opts[0] for option in self.params)
        note = f"Takes {listed} too: `editjudge {self.name} --help`."
        cmd.epilog = f"{note}\n\n{cmd.epilog}"
        super().add_command(cmd, name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = {*args}
        is_named = typed & {*self.commands, *ctx.help_option_names}
        is_other = any(not text.startswith("-") for text in args[:1])
        # During completion the command may not be typed yet.
        named = is_named or is_other or ctx.resilient_parsing
        if "list" in self.commands and not named:
            args = [*args, "list"]
        return super().parse_args(ctx, args)


class Finite(click.FloatRange):
    """A range of finite numbers. Without this check nan would be accepted, since all comparisons with it are false."""

    name = "number"  # click's own name, which its messages show, is "float range"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class NewFile(click.Path):
    """A file to write. Its folder must exist; this is checked before any work is done."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        path = Path(super().convert(value, param, ctx))  # type: ignore[arg-type]  # as `path_type` says
        if not path.parent.is_dir():
            self.fail(f"there is no folder {path.parent}.", param, ctx)
        return path


FILE = click.Path(path_type=Path)
run_argument = click.argument("run", shell_complete=completion.runs)
run_option = functools.partial(
    click.option, metavar="RUN", shell_complete=completion.runs
)
judge_option = functools.partial(
    click.option,
    "--judge",
    help="Judge: measured, metrics, provider/model, gguf:FILE, python:MODULE:FUNCTION, http:URL or replay:FILE.",
    shell_complete=completion.judges,
)


def rubrics_option(*default: str) -> Callable[[F], F]:
    """Return the option for rubrics. If it has no default, the rubrics depend on the judge."""
    return click.option(
        "--rubric",
        "rubrics",
        multiple=True,
        default=default,
        show_default=True if default else "online; for the judge metrics: its own",
        help="Rubric, set or YAML file; repeatable.",
        shell_complete=completion.rubrics,
    )


layout_option = functools.partial(
    click.option,
    "--layout",
    type=click.Choice(["images-first", "published", "exact"]),
    show_default="the rubric's own, else images-first",
    help="Form of a question: images before the rubric, a prompt's own order, or exactly the published prompt.",
)


def _columns(
    _ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    from editjudge.manifest import FIELDS

    columns: dict[str, str] = {}
    for text in texts:
        field, _, column = (side.strip() for side in text.partition("="))
        if not field or not column:
            raise click.BadParameter(
                f"{text}: expected FIELD=COLUMN, such as input=source. Fields: {', '.join(FIELDS)}."
            )
        # A rubric may name additional fields, but a name close to a usual field is a typing error.
        close = near_miss(field, FIELDS)
        if close and not field.startswith(FIELDS):
            raise click.BadParameter(
                f'{text}: no field is called "{field}"; did you mean "{close}"?'
            )
        if field in columns or column in columns.values():
            raise click.BadParameter("a field or a column is named twice.")
        columns[field] = column
    return tuple(columns.items())


columns_option = click.option(
    "--column",
    "columns",
    multiple=True,
    callback=_columns,
    metavar="FIELD=COLUMN",
    help="The manifest's name for a field, such as input=source; repeatable.",
)
outside_option = click.option(
    "--allow-outside",
    is_flag=True,
    help="Allow images outside the manifest's folder.",
)


def _concurrency(_ctx: click.Context, _param: click.Parameter, text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise click.BadParameter(f"{text}: expected auto or a number from 1 to 10,000.")
    return int(text)


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
across_option = click.option(
    "--across-rubrics",
    is_flag=True,
    help="Compare factors of the same scale even if the rubrics of the two runs differ.",
)
guaranteed_option = click.option(
    "--guaranteed",
    is_flag=True,
    help="Use intervals that allow for unseen scores: wide, but valid whatever the data.",
)
map_factor_option = click.option(
    "--map-factor",
    "mappings",
    multiple=True,
    metavar="PEOPLE=FACTOR",
    help="Map a rater's factor name to a judge's, or to a rubric's mean or a set score: --map-factor PQ=quality. "
    "Repeatable; one name may map to several.",
)
primary_option = click.option(
    "--primary",
    multiple=True,
    metavar="NAME",
    help="Score to decide by instead of the rubric means and overall; repeatable. The answer says if it was declared "
    "before the run.",
)
use_option = click.option(
    "--use",
    type=click.Choice(["scores", "expected"]),
    default="scores",
    show_default=True,
    help="expected: use the expected scores of a run (with --read logprobs, or by measured) instead of the written ones.",
)


def stacked(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds these options in this order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


setting = functools.partial(click.option, cls=Setting)
_settings = stacked(
    setting(
        "--schema/--no-schema",
        default=True,
        help="Request structured output if the server supports it.",
    ),
    setting("--prices", type=FILE, help="Your own price file (EDITJUDGE_PRICES)."),
    setting(
        "--min-mass",
        type=Finite(0, 1),
        default=0.9,
        help="With --read logprobs: minimum total probability of the legal scores; a factor below it abstains.",
    ),
)


def asking_options(*, listed: bool = False) -> Callable[[F], F]:
    """Return the options that set how judges are asked. `judge_options` turns their values into `Options`.

    `--help` lists the common ones; only `run --help` lists and explains all of them.
    """
    further = functools.partial(click.option, hidden=not listed)
    return stacked(
        click.option(
            "--base-url",
            multiple=True,
            help="Address of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1; repeatable for several "
            "servers of the same model, of which the least busy is asked.",
        ),
        click.option(
            "-J",
            "extra",
            multiple=True,
            metavar="KEY=VALUE",
            help="Further parameter of the request, JSON or text. For metrics: clip=FOLDER, dino=FOLDER. For "
            "gguf:FILE: mmproj=FILE, context=TOKENS, threads=N, parallel=N.",
        ),
        further("--temperature", type=Finite(min=0), help="Default: the server's."),
        further("--seed", type=int, help="Default: the server's."),
        further(
            "--max-tokens", type=int, help="Maximum number of tokens of an answer."
        ),
        further("--reasoning-effort", help="For reasoning models: low, medium, high."),
        further(
            "--retries-invalid",
            "reasks",
            type=click.IntRange(0, 10),
            default=2,
            show_default=True,
            help="Retries for invalid replies.",
        ),
        further(
            "--timeout",
            type=Finite(min=0.1),
            default=300.0,
            show_default=True,
            help="Seconds per request.",
        ),
        further(
            "--read",
            type=click.Choice(["text", "logprobs"]),
            default="text",
            show_default=True,
            help="logprobs: also the mean over all scores that the model might have written, by their probabilities.",
        ),
        further(
            "--strict",
            is_flag=True,
            help="Reject replies whose reasons are outside their word limits.",
        ),
        _settings,
    )


def judge_options(values: dict[str, Any]) -> Options:
    """Remove the values of `asking_options` from a verb's arguments and return them as `Options`."""
    from editjudge.judges.judge import Options

    extra = dict(_parameter(text) for text in values.pop("extra"))
    names = [option.name or "" for option in _ASKING.params]
    options = {name: values.pop(name) for name in names if name in values}
    urls = options.pop("base_url")
    options["base_url"] = urls if urls[1:] else next(iter(urls), None)
    return Options(extra=extra, **options)


_ASKING = asking_options()(click.Command("asking"))
"""A command that is never called. It only holds the options for asking judges as parameters."""


def judging_options(*rubrics: str, several: bool = False) -> Callable[[F], F]:
    """Return the options that `run` and `probe` share: rubrics, judge, store, limits, and how judges are asked."""
    return stacked(
        rubrics_option(*rubrics),
        judge_option("judges", multiple=True) if several else judge_option(),
        store_option,
        click.option(
            "--concurrency",
            callback=_concurrency,
            default="auto",
            show_default=True,
            help="Maximum number of requests in flight, or auto.",
        ),
        click.option(
            "--budget",
            type=Finite(min=0),
            metavar="USD",
            help="Stop before spending more than this; each start of the command has the full budget.",
        ),
        max_failures_option,
        quiet_option,
        asking_options(listed=several),
    )


def passport_options(several: bool = True) -> Callable[[F], F]:
    """Return the options that demand qualities of a judge's passport."""
    repeatable = "; repeatable, one for each judge" if several else ""
    return stacked(
        click.option(
            "--passport",
            "passports",
            type=FILE,
            multiple=True,
            metavar="FILE",
            help=f"Passport of the judge, from `editjudge probe --passport`{repeatable}.",
        ),
        click.option(
            "--require",
            metavar="NAME,...",
            help="Lines of the passport that must be yes, such as sees_instruction,no_bias:saturation.",
        ),
    )


def requirements(passports: Sequence[Path], require: str | None) -> list[Requirement]:
    """Read the passports that are demanded. Raise `UsageError` if one of the two options is missing."""
    if bool(passports) != bool(require):
        raise UsageError(
            "--passport FILE and --require NAME,... belong together",
            options=[Option("passport"), Option("require")],
        )
    from editjudge.report.passport import Requirement

    return [Requirement.of(path, require or "") for path in passports]


def named(
    option: str, text: str, expected: str = "NAME=VALUE", *, empty: bool = False
) -> tuple[str, str]:
    """Split an option of the form NAME=VALUE, and return its name and value. With `empty`, the value may be empty."""
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
    """Refuse NaN and Infinity, which Python accepts as JSON but servers do not."""
    raise ValueError(constant)


def chosen_judges(judges: tuple[str, ...], options: Options) -> tuple[str, ...]:
    """Return the named judges, or the default one. If that is the embedded judge, say so on standard error.

    Raise `UsageError` for a setting that these judges do not have.
    """
    if not judges and not os.environ.get("EDITJUDGE_JUDGE"):
        click.echo(
            "judge: measured (embedded; choose another with --judge or EDITJUDGE_JUDGE)",
            err=True,
        )
    judges = judges or (default_judge(),)
    check_settings(judges, options)
    return judges


def check_settings(judges: Sequence[str], options: Options) -> None:
    """Raise `UsageError` for a setting (`-J`) that neither the judges nor the verb have."""
    from editjudge.judges import registry

    command = click.get_current_context().command
    settings = command.settings if isinstance(command, Verb) else ()
    registry.check_settings(judges, options, settings)


def check_judges(options: Mapping[str, Options], *, needs_key: bool = True) -> None:
    """Raise the error of a judge that cannot be opened, before a verb begins its work. Options are by judge."""
    import asyncio

    from editjudge.judges.registry import check_opening
    from editjudge.running.pace import Pace

    asyncio.run(check_opening(options, Pace, needs_key=needs_key))


# --- the store ------------------------------------------------------------------------------------------------


def open_store(*, readonly: bool = False, create: bool = True) -> Store:
    """Open the store named on the command line. With `create=False` or `readonly`, it must exist."""
    from editjudge.store.location import engine_of
    from editjudge.store.store import Store

    address = store_place()
    if not create:
        # raises if the store does not exist
        engine_of(address, readonly=True, timeout=0)[0].dispose()
    return Store.open(address, readonly=readonly)


def in_store(store: str | None, run: str) -> str:
    """Return the name of a run in another store, in the form STORE#RUN."""
    return f"{store}#{run}" if store else run


def open_run(name: str) -> tuple[Store, str]:
    """Open the store of a run that may be named as `STORE#RUN`. Return the store and the run's name."""
    from editjudge.store.store import Store

    address, mark, run = name.rpartition("#")
    is_file = address.endswith(".db") or os.path.isfile(address)
    if mark and ("://" in address or is_file):
        return Store.open(address, readonly=True), run
    # Not Path.is_dir, which raises if a name is too long.
    if os.path.isdir(os.path.join(name, "judgements")) and os.path.dirname(name):
        raise UsageError(
            f"{name}: an export; import it into a store with `editjudge import-run`, then name the run"
        )
    return open_store(readonly=True), name


def load_run(
    name: str,
    by: tuple[str, ...] = (),
    *,
    pairing: bool = False,
    use: Of = "scores",
    evidence: bool = False,
) -> RunData:
    """Load a run and its scores. Raise `UsageError` for a pairwise run, which has no scores."""
    from editjudge.report.run_data import load

    store, name = open_run(name)
    with store:
        run = store.find_run(name)
        if store.questions_of(run).pair_factors:
            raise UsageError(
                f"run {run.name} asks which of two edits is better, so it has no scores; `editjudge report` "
                "shows win rates and strengths, `editjudge agree --preferences` compares it with people"
            )
        return load(store, name, by, pairing=pairing, of=use, evidence=evidence)
