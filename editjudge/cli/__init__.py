"""The command line: one module a verb, imported when the verb is called."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

import editjudge
from editjudge.cli.output import safe
from editjudge.errors import EditjudgeError, UsageError, near_miss

VERBS = {
    "agree": "Hold judges against people's ratings, beside what people reach among themselves.",
    "audit": "Look a manifest over before it is judged: missing and broken files, duplicates, no-op edits.",
    "compare": "Say whether two models, judges or rubrics differ beyond noise.",
    "doctor": "Say what is installed, which judges can be reached and where the store is.",
    "drift": "Judge the judging: the same edits at another time, and what moved beyond noise.",
    "export": "Write a run's judgements as Parquet, JSONL or CSV.",
    "gate": "Pass, fail (exit 100) or not enough evidence, by thresholds and a baseline.",
    "import-run": "Bring an exported run into a store.",
    "judge": "Judge one edit and print the answer.",
    "manifest": "Make a manifest of the results of GEdit-Bench or ImgEdit-Bench.",
    "parse": "Hold one raw reply against its rubric's contract.",
    "probe": "Judge a judge: known-answer edits, and whether each factor falls with its own defect.",
    "ratings": "Bring people's ratings into the store.",
    "report": "Means with intervals per model, factor and edit type, and what failed.",
    "rubric": "List, show, check and import rubrics.",
    "run": "Judge every edit of a manifest; running again resumes.",
    "runs": "List, show, remove and repeat runs.",
    "serve": "Review, rating and reward API in the browser.",
}
"""Verb and its one line of help, so that `--help` imports none of them."""


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"editjudge.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in VERBS:
            ctx.fail(f'no verb is called "{args[0]}"{near_miss(args[0], VERBS)} Verbs: {", ".join(VERBS)}.')
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(editjudge.__version__, prog_name="editjudge")
def app() -> None:
    """Judge image edits factor by factor, with reasons, and tell whether a difference is real."""


def main() -> None:
    """The console script: errors of ours are told in words, without a traceback."""
    try:
        sys.exit(app.main(standalone_mode=False))
    except EditjudgeError as error:
        click.echo(f"editjudge: {safe(str(error))}", err=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except click.ClickException as error:
        vars(error)["message"] = safe(error.message)  # it repeats what was typed, or pasted
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output (head, less) has gone: nothing is left to say, not even at exit.
        sys.stdout = None
        sys.exit(1)
