"""`editjudge parse`: one raw reply against its contract."""

from __future__ import annotations

import sys

import click

from editjudge.cli import completion
from editjudge.cli.output import emit, json_option, one_line, read_text

MAX_REPLY = 50_000_000


@click.command(epilog="\b\nExample: editjudge parse --rubric fidelity reply.txt")
@click.argument("file", metavar="FILE|-")
@click.option(
    "--rubric",
    required=True,
    help="Name of a rubric or set, or a YAML file. A set means its fused contract.",
    shell_complete=completion.rubrics,
)
@click.option(
    "--id", "identifier", help="The identifier that the answer must echo. Default: any."
)
@click.option(
    "--strict",
    is_flag=True,
    help="Reject reasons outside their word limits instead of noting them.",
)
@json_option
def command(
    file: str, rubric: str, identifier: str | None, strict: bool, as_json: bool
) -> None:
    """Check one raw reply against a rubric's answer format.

    Exits with 0 if the reply is accepted and with 1 if it is refused. A refused reply has no scores.
    """
    from editjudge.rubrics.contract import check
    from editjudge.rubrics.files import load_one
    from editjudge.rubrics.verdict import Verdict

    contract = load_one(rubric)
    outcome = check(
        contract, read_text(file, MAX_REPLY), identifier=identifier, strict=strict
    )
    accepted = isinstance(outcome, Verdict)
    if as_json:
        emit(outcome.as_json())
    elif isinstance(outcome, Verdict):
        abstained = {
            key: f"{word} (abstains)" for key, word in outcome.abstained.items()
        }
        answers = {**outcome.scores, **outcome.choices, **abstained}
        for key in (factor.key for factor in contract.factors if factor.key in answers):
            reason = one_line(outcome.justifications.get(key, ""))
            click.echo(
                f"{one_line(key)}: {one_line(str(answers[key]))}  {reason}".rstrip()
            )
    else:
        click.echo(f"not accepted ({outcome.status})")
        for remark in outcome.reasons:
            click.echo(f"  {remark.code}: {one_line(remark.message)}")
    if not as_json:
        for kind, remarks in (
            ("violation", outcome.violations),
            ("note", outcome.notes),
        ):
            for remark in remarks:
                click.echo(f"  {kind} {remark.code}: {one_line(remark.message)}")
    sys.exit(0 if accepted else 1)
