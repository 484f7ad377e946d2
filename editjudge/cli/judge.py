"""`editjudge judge`: judge one edit and print the answer."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editjudge.cli.options import (
    FILE,
    SEE_RUN,
    asking_options,
    chosen_judges,
    former_option,
    judge_option,
    judge_options,
    named,
    rubrics_option,
    verb,
)
from editjudge.cli.output import ExitCode, VerbReply
from editjudge.errors import UsageError, one_line

if TYPE_CHECKING:
    from editjudge.edit import ImageSource
    from editjudge.judgement import Judgement
    from editjudge.rubrics.model import Rubric


@verb(
    note=SEE_RUN,
    example='editjudge judge --input a.png --edited b.png --instruction "make the left car blue"',
)
@click.option("--input", type=FILE, help="The image before the edit.")
@click.option("--edited", type=FILE, required=True, help="The image after the edit.")
@click.option("--instruction", default="", help="What was asked for.")
@click.option(
    "--ground-truth", type=FILE, help="The image as a correct edit leaves it."
)
@click.option("--mask", type=FILE, help="White in the region to edit.")
@click.option(
    "--picture",
    "images",
    multiple=True,
    metavar="NAME=FILE",
    help="A further image that a rubric shows; several of one name are a list.",
)
@click.option(
    "--text",
    "texts",
    multiple=True,
    metavar="NAME=TEXT",
    help="A further text: referring_expression (which object is meant), edit_type, or one that a rubric shows.",
)
@former_option("--referring-expression", "--text referring_expression=TEXT")
@former_option("--edit-type", "--text edit_type=TYPE")
@click.option(
    "--id",
    "item",
    help="Identifier of the edit. Default: the name of the edited image.",
)
@rubrics_option()
@judge_option("judges", multiple=True)
@click.option("--envelope", is_flag=True, help="Print each rubric's own answer format.")
@asking_options()
def command(
    edited: Path,
    images: tuple[str, ...],
    texts: tuple[str, ...],
    referring_expression: str | None,
    edit_type: str | None,
    item: str | None,
    rubrics: tuple[str, ...],
    judges: tuple[str, ...],
    envelope: bool,
    **values: Any,
) -> VerbReply:
    """Judge one edit and print its scores, with reasons.

    Exits with 3 if a judgement failed; a failure has no scores.
    """
    from editjudge.edit import Edit
    from editjudge.judgement import DONE, row
    from editjudge.judges.registry import default_rubrics
    from editjudge.rubrics.files import load_set, resolve
    from editjudge.running.job import judge_edit, wait_for

    options = judge_options(values)
    judge, *others = chosen_judges(judges, options)
    if others:
        raise UsageError("one judge at a time; `editjudge run` takes several")
    further = dict(named("--text", text) for text in texts)
    edit = Edit(
        item or edited.stem,
        edited=edited,
        referring_expression=further.pop(
            "referring_expression", referring_expression or ""
        ),
        edit_type=further.pop("edit_type", edit_type),
        **values,
        metadata=further,
        images=_images(images),
    )
    rubrics = rubrics or default_rubrics([judge], options)
    questions = resolve(rubrics)
    judgements = wait_for(judge_edit(edit, questions, judge, options))
    by_name = {rubric.name: rubric for rubric in questions}
    done = all(judgement.status in DONE for judgement in judgements)
    code = ExitCode.DONE if done else ExitCode.TOO_MANY_FAILED
    if envelope:
        for judgement in judgements:
            click.echo(_own_format(by_name[judgement.rubric], judgement, edit.id))
        return VerbReply(None, code=code)
    rows = [row(judgement, edit.id, edit.model, edit.group) for judgement in judgements]
    alone = len(rubrics) == 1 and len(rows) == 1 and load_set(rubrics[0]) is None
    first = dict(rows[0]) if alone else {}
    document = first | {"judgements": rows}
    lines = (
        line
        for judgement in judgements
        for line in _lines(judgement, by_name.get(judgement.rubric))
    )
    return VerbReply(document, lines, code=code)


def _images(texts: tuple[str, ...]) -> dict[str, ImageSource]:
    from editjudge.edit import named_images

    lists: dict[str, list[ImageSource]] = {}
    for name, file in (named("--picture", text) for text in texts):
        lists.setdefault(name, []).append(Path(file))
    return named_images(
        {name: files if files[1:] else files[0] for name, files in lists.items()}
    )


def _own_format(rubric: Rubric, judgement: Judgement, item: str) -> str:
    from editjudge.errors import printable
    from editjudge.rubrics.answer import as_lines, envelope

    failed = "; ".join(f"{r.code}: {r.message}" for r in judgement.reasons)
    missing = {
        factor.key: judgement.abstained.get(factor.key, failed)
        for factor in rubric.factors
    }
    reasons = judgement.justifications or {}
    answers: dict[str, Any] = {**(judgement.scores or {}), **(judgement.choices or {})}
    if not rubric.answer.is_json:
        return printable(as_lines(rubric, answers, reasons, missing))
    document = json.dumps(envelope(rubric, item, answers, reasons, missing), indent=2)
    *before, last = rubric.answer.sections or ("",)
    if not last:
        return document
    sentences = (reasons.get(key) or reason for key, reason in missing.items())
    summary = printable(" ".join(dict.fromkeys(sentences)))
    sections = [f"## {title}\n{summary}" for title in before]
    return "\n\n".join([*sections, f"## {last}\n{document}"])


def _lines(judgement: Judgement, rubric: Rubric | None) -> Iterator[str]:
    """Yield a line for each factor, with its reason wrapped in a column: `alignment     6 of 7  The cup is blue, as
    asked.`"""
    yield f"{judgement.rubric} by {judgement.judge}: {judgement.status}"
    best = {
        factor.key: factor.scale.high
        for factor in (rubric.factors if rubric else ())
        if factor.scale.direction == "up"
    }
    reasons = judgement.justifications or {}
    rows = []
    for key, value in {**(judgement.scores or {}), **(judgement.choices or {})}.items():
        limit = best.get(key)
        of_best = "" if limit is None or isinstance(value, str) else f" of {limit:g}"
        rows.append((key, f"{value}{of_best}", reasons.get(key, "")))
    for key, reason in judgement.abstained.items():
        rows.append((key, "-", f"abstained: {reason}"))
    names = max((len(key) for key, _, _ in rows), default=0)
    values = max((len(value) for _, value, _ in rows), default=0)
    for key, value, reason in rows:
        start = f"  {key:<{names}}  {value:>{values}}  "
        yield _wrapped(one_line(reason), start, " " * len(start))
    for remark in (*judgement.reasons, *judgement.violations):
        yield _wrapped(f"{remark.code}: {one_line(remark.message)}", "  ", "    ")


def _wrapped(text: str, first: str, others: str) -> str:
    width = max(60, min(100, shutil.get_terminal_size((100, 24)).columns))
    lines = textwrap.fill(text, width, initial_indent=first, subsequent_indent=others)
    return lines or first.rstrip()
