"""The command line. Each verb has a module, which is imported when the verb is called."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import Any

import click
from click.shell_completion import CompletionItem

import editjudge
from editjudge.cli.output import ExitCode, emit
from editjudge.errors import EditjudgeError, UsageError, did_you_mean, printable
from editjudge.plugins import MissingExtra

VERBS = {
    "agree": "Compare judges' scores with people's ratings.",
    "audit": "Check a manifest before it is judged: missing and broken files, duplicates, no-op edits.",
    "bridge": "Map a new judge's scores to an old judge's scale, from two runs of the same edits.",
    "compare": "Test whether two models, judges, rubrics or runs differ.",
    "completion": "Print the script for Tab completion in bash, zsh or fish.",
    "docs": "Show a page of the documentation.",
    "doctor": "Show what is installed, which judges are ready and where the store is.",
    "drift": "Compare two runs of the same edits: did the judge's scores change?",
    "export": "Write a run's judgements as Parquet, JSONL or CSV, or filter its manifest by score.",
    "gate": "Pass or fail a run (exit 100) by thresholds or a baseline, for CI.",
    "import-run": "Import an exported run into a store.",
    "judge": "Judge one edit and print its scores.",
    "manifest": "Make a manifest from a benchmark's results.",
    "pairs": "Make pairs of edits, to ask a judge which of two is better.",
    "parse": "Check one raw reply against a rubric's answer format.",
    "probe": "Test a judge with edits whose right answer is known.",
    "ratings": "Import, export and delete people's ratings; invite raters.",
    "report": "Report means with intervals per model, factor and edit type, and what failed.",
    "rubric": "List, show, check and import rubrics.",
    "run": "Judge every edit of a manifest; running again resumes.",
    "runs": "List, show, remove and repeat runs.",
    "serve": "Serve review pages, rating pages and the reward API.",
    "trend": "Show scores over the steps of a training, and the best step.",
}
"""Verbs with one line of help for each. With it, `--help` need not import their modules."""


_HOMES = {
    "completion": "doctor",
    "drift": "compare",
    "import-run": "export",
    "pairs": "manifest",
}
"""Modules of verbs that do not have a module of their own."""
_EXTRA_OF_VERB = {"serve": "web", "probe": "probes"}
"""Verbs that need an entire extra, whichever of its modules is found to be missing first."""


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"editjudge.cli.{_HOMES.get(cmd_name, name)}")
        command: click.Command = getattr(
            module, name if cmd_name in _HOMES else "command"
        )
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in VERBS:
            ctx.fail(
                f'no verb is called "{args[0]}"{did_you_mean(args[0], VERBS)} Verbs: {", ".join(VERBS)}.'
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            name = ctx.invoked_subcommand or ""
            missing = MissingExtra.of(name, error, _EXTRA_OF_VERB.get(name, ""))
            if missing is None:
                raise
            raise missing from error

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[CompletionItem]:
        return [
            CompletionItem(verb, help=line)
            for verb, line in VERBS.items()
            if verb.startswith(incomplete)
        ]

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(
    cls=_Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(editjudge.__version__, prog_name="editjudge")
@click.pass_context
def app(ctx: click.Context) -> None:
    """Judge image edits factor by factor, with reasons, and tell whether a difference is real."""
    if ctx.invoked_subcommand is None:
        click.echo(_welcome())


_EDIT = 'editjudge judge --input a.png --edited b.png --instruction "make the left car blue"'


def _welcome() -> str:
    """Return three ways to begin, and whether the API keys in the environment allow each of them."""
    from editjudge.judges.providers import PROVIDERS

    needed = (provider for provider in PROVIDERS.values() if provider.needs_key)
    variables = [name for provider in needed for name in provider.key_variables]
    keys = [name for name in variables if os.environ.get(name, "").strip()]
    others = [name for name in variables if name != "OPENAI_API_KEY"]
    return f"""\
editjudge judges image edits factor by factor, with reasons.

With the embedded judge, which measures pixels, asks nobody and needs no key:
  {_EDIT}

With a model over an API ({"set: " + ", ".join(keys) if keys else "no key is set yet"}):
  export OPENAI_API_KEY=...    (or {", ".join(others)})
  {_EDIT} --judge openai/gpt-6.1-terra

With a server of your own, such as vLLM or Ollama:
  {_EDIT} \\
    --judge openai-compatible/MODEL --base-url http://127.0.0.1:8000/v1

Many edits: `editjudge run edits.jsonl`, then `editjudge report RUN` and `editjudge compare RUN`.
`editjudge doctor` says which judges are ready, `editjudge --help` lists every verb."""


def main() -> None:
    """Run the console script. An error that a user can cause is printed as one message, without a traceback."""
    # Imported modules are not garbage: with Python's threshold of 700, collections take a twentieth of the start-up time.
    thresholds = gc.get_threshold()
    gc.set_threshold(20_000)
    try:
        sys.exit(app.main(prog_name="editjudge", standalone_mode=False))
    except click.Abort:
        _leave("interrupted", ExitCode.INTERRUPTED)
    except click.ClickException as error:
        # the message repeats what was typed or pasted
        vars(error)["message"] = printable(error.message)
        error.show()
        _leave(error.format_message(), error.exit_code, printed=True)
    except EditjudgeError as error:
        is_usage = isinstance(error, UsageError)
        _leave(str(error), ExitCode.USAGE if is_usage else ExitCode.ERROR)
    except BrokenPipeError:
        # The reader of our output (head, less) has closed it, so nothing can be printed, not even at exit.
        sys.stdout = None
        sys.exit(ExitCode.ERROR)
    except OSError as error:  # a file or folder that a verb should read or write
        has_name = isinstance(error.filename, str | bytes)
        file = f"{os.fsdecode(error.filename)}: " if has_name else ""
        _leave(f"{file}{error.strerror or error}", ExitCode.ERROR)
    finally:
        # for callers that continue in the same process
        gc.set_threshold(*thresholds)


def _leave(message: str, code: int, *, printed: bool = False) -> None:
    """Exit with an error message. With `--json`, also print it as a document."""
    if not printed:
        click.echo(f"editjudge: {printable(message)}", err=True)
    if "--json" in sys.argv:
        emit({"error": message})
    sys.exit(code)
