"""`editjudge judge`: one edit, answered on the terminal."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editjudge.cli.options import (
    SEE_RUN,
    default_judge,
    judge_option,
    named,
    rubrics_option,
    short_asking_options,
)
from editjudge.cli.output import emit, json_option, one_line, safe
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.judgement import Judgement
    from editjudge.judges.judge import Options
    from editjudge.rubrics.model import Rubric

_FILE = click.Path(path_type=Path)
FAILED = 3


@click.command(
    epilog=f'{SEE_RUN}\n\n\b\nExample: editjudge judge --input a.png --edited b.png --instruction "make the left car blue"'
)
@click.option("--input", type=_FILE, help="The picture before the edit.")
@click.option("--edited", type=_FILE, required=True, help="The picture after the edit.")
@click.option("--instruction", default="", help="What was asked for.")
@click.option(
    "--ground-truth", type=_FILE, help="The picture as a correct edit leaves it."
)
@click.option("--mask", type=_FILE, help="White where the edit belongs.")
@click.option("--referring-expression", default="", help="Which object is meant.")
@click.option(
    "--picture",
    "pictures",
    multiple=True,
    metavar="NAME=FILE",
    help="A further picture that a rubric shows; several of one name are a list.",
)
@click.option(
    "--text",
    "texts",
    multiple=True,
    metavar="NAME=TEXT",
    help="A further text that a rubric shows.",
)
@click.option(
    "--edit-type", help="The kind of edit, for rubric sets that ask by edit type."
)
@click.option(
    "--id",
    "item",
    help="Identifier of the edit. Default: the name of the edited picture.",
)
@rubrics_option()
@judge_option("judges", multiple=True)
@click.option("--envelope", is_flag=True, help="Print each rubric's own answer format.")
@short_asking_options
@json_option
def command(
    edited: Path,
    pictures: tuple[str, ...],
    texts: tuple[str, ...],
    item: str | None,
    rubrics: tuple[str, ...],
    judges: tuple[str, ...],
    envelope: bool,
    options: Options,
    as_json: bool,
    **given: Any,
) -> None:
    """Judge one edit and print its scores, with reasons.

    Exits with 3 if a judgement failed; a failure has no scores.
    """
    from editjudge.edit import Edit, ImageSource, named_pictures
    from editjudge.judgement import DONE, row
    from editjudge.judges.registry import default_rubrics
    from editjudge.rubrics.files import load_set, resolve
    from editjudge.running.job import judge_edit, wait_for

    chosen, *others = default_judge(judges)
    if others:
        raise UsageError("one judge at a time; `editjudge run` takes several")
    lists: dict[str, list[ImageSource]] = {}
    for name, file in (named("--picture", text) for text in pictures):
        lists.setdefault(name, []).append(Path(file))
    edit = Edit(
        item or edited.stem,
        edited=edited,
        **given,
        metadata=dict(named("--text", text) for text in texts),
        pictures=named_pictures(
            {name: some if some[1:] else some[0] for name, some in lists.items()}
        ),
    )
    rubrics = rubrics or default_rubrics([chosen], options)
    questions = resolve(rubrics)
    judgements = wait_for(judge_edit(edit, questions, chosen, options))
    by_name = {rubric.name: rubric for rubric in questions}
    if envelope:
        for judgement in judgements:
            click.echo(_own_format(by_name[judgement.rubric], judgement, edit.id))
    elif as_json:
        rows = [
            row(judgement, edit.id, edit.model, edit.group) for judgement in judgements
        ]
        alone = len(rubrics) == 1 and len(rows) == 1 and load_set(rubrics[0]) is None
        emit((rows[0] if alone else {}) | {"judgements": rows})
    else:
        for judgement in judgements:
            _tell(judgement, by_name.get(judgement.rubric))
    sys.exit(0 if all(judgement.status in DONE for judgement in judgements) else FAILED)


def _own_format(rubric: Rubric, judgement: Judgement, item: str) -> str:
    from editjudge.rubrics.answer import as_lines, envelope

    failed = "; ".join(
        f"{remark.code}: {remark.message}" for remark in judgement.reasons
    )
    why_not = {
        factor.key: judgement.abstained.get(factor.key, failed)
        for factor in rubric.factors
    }
    reasons = judgement.justifications or {}
    answers: dict[str, Any] = {**(judgement.scores or {}), **(judgement.choices or {})}
    if not rubric.answer.is_json:
        return safe(as_lines(rubric, answers, reasons, why_not))
    document = json.dumps(envelope(rubric, item, answers, reasons, why_not), indent=2)
    *before, last = rubric.answer.sections or ("",)
    if not last:
        return document
    summary = " ".join(
        dict.fromkeys(reasons.get(key) or why for key, why in why_not.items())
    )
    return "\n\n".join(
        [
            *(f"## {title}\n{safe(summary)}" for title in before),
            f"## {last}\n{document}",
        ]
    )


def _tell(judgement: Judgement, rubric: Rubric | None) -> None:
    """A line for each factor, wrapped under its reason: `alignment     6 of 7  The cup is blue, as asked.`"""
    click.echo(f"{judgement.rubric} by {safe(judgement.judge)}: {judgement.status}")
    factors = rubric.factors if rubric else ()
    best = {
        factor.key: factor.scale.high
        for factor in factors
        if factor.scale.direction == "up"
    }
    answers = {**(judgement.scores or {}), **(judgement.choices or {})}
    reasons = judgement.justifications or {}
    lines = [
        (key, _of_best(value, best.get(key)), reasons.get(key, ""))
        for key, value in answers.items()
    ]
    lines += [
        (key, "-", f"abstained: {why}") for key, why in judgement.abstained.items()
    ]
    names, values = (max((len(line[n]) for line in lines), default=0) for n in (0, 1))
    width = max(60, min(100, shutil.get_terminal_size((100, 24)).columns))
    for key, value, reason in lines:
        start = f"  {key:<{names}}  {value:>{values}}  "
        _wrap(one_line(reason), width, start, " " * len(start))
    for remark in (*judgement.reasons, *judgement.violations):
        _wrap(f"{remark.code}: {one_line(remark.message)}", width, "  ", "    ")


def _wrap(text: str, width: int, first: str, others: str) -> None:
    click.echo(
        textwrap.fill(text, width, initial_indent=first, subsequent_indent=others)
        or first.rstrip()
    )


def _of_best(value: Any, best: float | None) -> str:
    return (
        f"{value}" if best is None or isinstance(value, str) else f"{value} of {best:g}"
    )
