"""`editjudge parse`: check a raw reply against the answer format of its rubric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from editjudge.cli import completion
from editjudge.cli.options import verb
from editjudge.cli.output import ExitCode, VerbReply, read_text
from editjudge.errors import one_line

if TYPE_CHECKING:
    from editjudge.rubrics.model import Rubric
    from editjudge.rubrics.verdict import Failure, Verdict

MAX_REPLY = 50_000_000
"""Maximum size of a reply in bytes, far more than any model writes."""


@verb(example="editjudge parse --rubric fidelity reply.txt")
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
def command(file: str, rubric: str, identifier: str | None, strict: bool) -> VerbReply:
    """Check one raw reply against a rubric's answer format.

    Exits with 0 if the reply is accepted and with 1 if it is refused. A refused reply has no scores.
    """
    from editjudge.rubrics.contract import check
    from editjudge.rubrics.files import load_one
    from editjudge.rubrics.verdict import Verdict

    contract = load_one(rubric)
    text = read_text(file, MAX_REPLY)
    outcome = check(contract, text, identifier=identifier, strict=strict)
    accepted = isinstance(outcome, Verdict)
    code = ExitCode.DONE if accepted else ExitCode.ERROR
    return VerbReply(outcome.as_json(), _lines(contract, outcome), code=code)


def _lines(rubric: Rubric, outcome: Verdict | Failure) -> Iterator[str]:
    from editjudge.rubrics.verdict import Verdict

    if isinstance(outcome, Verdict):
        abstained = {key: f"{a} (abstains)" for key, a in outcome.abstained.items()}
        answers = {**outcome.scores, **outcome.choices, **abstained}
        for key in (factor.key for factor in rubric.factors if factor.key in answers):
            reason = outcome.justifications.get(key, "")
            yield (
                one_line(f"{key}: {answers[key]}  ") + f"  {one_line(reason)}".rstrip()
            )
    else:
        yield f"not accepted ({outcome.status})"
        for remark in outcome.reasons:
            yield f"  {remark.code}: {one_line(remark.message)}"
    for remark in outcome.violations:
        yield f"  violation {remark.code}: {one_line(remark.message)}"
    for remark in outcome.notes:
        yield f"  note {remark.code}: {one_line(remark.message)}"
