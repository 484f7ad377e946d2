"""`editjudge rubric`: list, show, check and import rubrics."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editjudge.cli import completion
from editjudge.cli.options import (
    NewFile,
    VerbGroup,
    json_option,
    layout_option,
    named,
    wants_json,
)
from editjudge.cli.output import ExitCode, VerbReply, count, read_text
from editjudge.errors import UsageError, printable

if TYPE_CHECKING:
    from editjudge.rubrics.importing import Hints
    from editjudge.rubrics.model import Layout, Rubric
    from editjudge.rubrics.prompt import Question
    from editjudge.rubrics.scale import Scale
    from editjudge.rubrics.sets import RubricSet

MAX_PROMPT = 200_000
"""Maximum size of a prompt. It is a fifth of the maximum size of a rubric file, in which an escaped and folded
character can take more than four times as much space."""


@click.group("rubric", cls=VerbGroup)
@json_option
def command() -> None:
    """List, show, check and import rubrics. Without a command: list them.

    A rubric is given as a built-in name, a set (online, offline) or the path of a YAML file.
    """


@command.command("list", example="editjudge rubric list")
def list_() -> VerbReply:
    """The built-in rubrics and sets."""
    from editjudge.rubrics.files import (
        COMPUTED,
        LOOK,
        LOOKED,
        PAIRWISE,
        SETS,
        load,
        names,
    )

    contracts = []
    lines = []
    for rubric in map(load, (*names(), *PAIRWISE, LOOK, *COMPUTED)):
        contracts.append(rubric.contract() | {"description": rubric.description})
        scales = dict.fromkeys(factor.scale.words for factor in rubric.factors)
        inputs = ", ".join(rubric.images + rubric.texts)
        lines += [
            f"{rubric.name:<17} {rubric.description}",
            f"{'':<17} {len(rubric.factors)} x {', '.join(scales) or 'score'}; sees {inputs}",
        ]
    for name, members in SETS.items():
        lines.append(f"{name:<17} the set {' + '.join(members)}")
    sets = {name: list(members) for name, members in SETS.items()}
    sets[LOOKED] = [LOOK, *SETS["online"]]
    lines.append(f"{LOOKED:<17} {LOOK}, and then online with its list")
    return VerbReply({"rubrics": contracts, "sets": sets}, lines)


@command.command(example="editjudge rubric show fidelity --prompt")
@click.argument("rubric", shell_complete=completion.rubrics)
@click.option("--prompt", is_flag=True, help="The exact question for an example edit.")
@layout_option()
@click.option(
    "--edit",
    metavar="MANIFEST#ID",
    help="With --prompt: the messages about this edit, exactly as they go out.",
)
def show(
    rubric: str, prompt: bool, layout: Layout | None, edit: str | None
) -> VerbReply:
    """Show a rubric's factors, scales and answer format."""
    from editjudge.rubrics.files import SETS, load_one, load_set

    if edit is not None:
        if not prompt:
            raise UsageError("--edit: only with --prompt")
        return _messages(rubric, edit, layout)
    rubric_set = load_set(rubric)
    if rubric_set is not None and rubric not in SETS:
        if not prompt:
            return VerbReply(rubric_set.contract(), _set_lines(rubric_set))
        questions = {r.name: _question(r, layout) for r in rubric_set.rubrics}
        document = [
            {"rubric": name, **_as_json(question)}
            for name, question in questions.items()
        ]
        texts = (f"--- {name} ---\n{_text(q)}\n" for name, q in questions.items())
        return VerbReply({"questions": document}, texts)
    fused = load_one(rubric)
    if not prompt:
        contract = fused.contract()
        if rubric_set:
            further = rubric_set.contract()
            contract |= {"members": further["members"], "scores": further["scores"]}
        return VerbReply(contract, _contract_lines(fused))
    if fused.computed_by:
        raise UsageError(
            f"{fused.name} has no question: its figures are computed by --judge {fused.computed_by}"
        )
    question = _question(fused, layout)
    return VerbReply(_as_json(question), [_text(question)])


def _messages(rubric: str, edit: str, layout: Layout | None) -> VerbReply:
    """Return the messages about one edit of a manifest."""
    from editjudge.rubrics.files import resolve
    from editjudge.running.preview import previews

    rubrics = [each for each in resolve([rubric]) if not each.computed_by]
    questions = previews(rubrics, edit, layout)
    lines = [line for question in questions for line in question.lines()]
    if not questions:
        lines.append(f"{rubric} asks nothing about this edit")
    return VerbReply({"questions": [each.as_json() for each in questions]}, lines)


def _set_lines(rubric_set: RubricSet) -> Iterator[str]:
    from editjudge.rubrics.sets import asking

    yield f"{rubric_set.name}: {rubric_set.description}"
    yield f"hash     {rubric_set.hash}"
    for formula in rubric_set.formulas:
        yield f"score    {formula.words}"
    for name, each in rubric_set.run.items():
        weights = ", ".join(f"{value} {w:g}" for value, w in each.weights.items())
        yield f"run      {name} = mean of {each.score} by {each.by}: {weights or 'equal weights'}"
    for rubric in rubric_set.rubrics:
        yield ""
        for name, value in asking(rubric).items():
            yield f"{name:<8} {value}"
        yield from _contract_lines(rubric)


def _contract_lines(rubric: Rubric) -> Iterator[str]:
    from editjudge.rubrics.answer import answer_schema, answer_shape

    answer = rubric.answer
    yield f"{rubric.name}: {rubric.description}"
    yield f"hash     {rubric.hash}"
    yield f"images   {', '.join(rubric.images)}"
    yield f"texts    {', '.join(rubric.texts) or 'none'}"
    if rubric.system:
        yield f"system   {rubric.system}"
    if answer.is_json:
        yield f"envelope {answer.envelope or '(top level)'}"
    if answer.words:
        yield f"reasons  {answer.words[0]} to {answer.words[1]} words"
    if answer.sections:
        yield f"sections {', '.join(answer.sections)}"
    for factor in rubric.factors:
        path = factor.path or rubric.label(factor)
        label = f" ({path})" if path != factor.key else ""
        yield f"factor   {factor.key}{label}: {factor.scale.words}"
    if rubric.computed_by:
        yield f"computed by --judge {rubric.computed_by}: no question is asked"
    elif answer.has_schema or answer.sections:
        yield json.dumps(answer_schema(rubric), indent=2, allow_nan=False)
    else:
        yield answer_shape(rubric, None)


def _question(rubric: Rubric, layout: Layout | None) -> Question:
    """Return the question about an example edit."""
    from editjudge.edit import TEXT_ROLES, Edit
    from editjudge.rubrics.prompt import ask

    metadata: dict[str, Any] = {}
    for name in rubric.texts:
        group, dot, field = name.partition(".")
        text = f"(the {name} of the edit)"
        if dot:
            metadata.setdefault(group, {})[field] = text
        elif group not in TEXT_ROLES:
            metadata[name] = text
    edit = Edit(
        "example",
        instruction="Make the left car blue.",
        referring_expression="the car nearest the tree",
        metadata=metadata,
    )
    digests = {role: f"digest of the {role}" for role in rubric.images}
    return ask(rubric, edit, digests, layout)


def _text(question: Question) -> str:
    return str(question).replace("\r\n", "\n")


def _as_json(question: Question) -> dict[str, object]:
    from editjudge.rubrics.prompt import ImagePart

    parts = [
        {"image": part.role} if isinstance(part, ImagePart) else {"text": part.text}
        for part in question.parts
    ]
    system = {"system": question.system} if question.system else {}
    return {
        "identifier": question.identifier,
        "layout": question.layout,
        **system,
        "parts": parts,
    }


@command.command(example="editjudge rubric check mine.yaml")
@click.argument("file")
def check(file: str) -> VerbReply:
    """Check a rubric file for likely mistakes."""
    from editjudge.rubrics.files import resolve
    from editjudge.rubrics.lint import lint

    findings = [
        {"rubric": rubric.name, "code": f.code, "where": f.where, "message": f.message}
        for rubric in resolve([file])
        for f in lint(rubric)
    ]
    lines = ["{rubric}: {where}: {code}: {message}".format(**f) for f in findings]
    lines = [f"{file}: {line}" for line in lines]
    lines.append(count(len(findings), "finding") if findings else "nothing found")
    code = ExitCode.ERROR if findings else ExitCode.DONE
    return VerbReply({"findings": findings}, lines, code=code)


@command.command(example="editjudge rubric recipes")
def recipes() -> VerbReply:
    """List the benchmarks that can be imported from a checkout."""
    from editjudge.rubrics.recipe import load_recipe, recipe_names

    summaries = []
    lines = []
    for recipe in map(load_recipe, recipe_names()):
        summaries.append(recipe.summary)
        lines += [
            f"{recipe.name:<16} {recipe.title}, from {recipe.repository} ({recipe.commit})",
            f"{'':<16} {recipe.description}",
        ]
    lines.append(
        "import one with `editjudge rubric import NAME --from CHECKOUT -o FILE`"
    )
    return VerbReply({"recipes": summaries}, lines)


@command.command(
    "import",
    example="editjudge rubric import prompt.txt -o mine.yaml\n"
    "editjudge rubric import gedit --from Step1X-Edit -o gedit.yaml",
)
@click.argument("prompt", metavar="PROMPT.txt|RECIPE")
@click.option(
    "--from",
    "checkout",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A checkout of the benchmark that the recipe is for: a name of `rubric recipes`, or a recipe file.",
)
@click.option(
    "-o",
    "--output",
    type=NewFile(),
    help="Rubric file to write. Default: standard output.",
)
@click.option("--name", help="Name of the rubric. Default: the file's name.")
@click.option(
    "--factor",
    "factors",
    multiple=True,
    help="A factor's key, where the prompt does not name it.",
)
@click.option(
    "--scale",
    "scales",
    multiple=True,
    metavar="[KEY=]SCORES",
    help='Legal scores: 1-5, or 5,3,1; decimals 0..10, in steps 0..1/0.5; with a word to abstain: "1-5 or N/A"; of one '
    "factor: KEY=1-5.",
)
@click.option(
    "--image",
    "images",
    multiple=True,
    help="An image that is shown (input, edited, ground_truth, or a column of the manifest), in order.",
)
@click.option(
    "--text",
    "texts",
    multiple=True,
    help="A text that is shown beside the prompt (instruction, referring_expression, or a column), or none.",
)
@click.option(
    "--slot",
    "slots",
    multiple=True,
    metavar="NAME=ROLE",
    help="Which input fills a placeholder.",
)
@click.option("--words", metavar="LEAST-MOST", help="Word limits of a reason, or none.")
@click.option(
    "--line",
    "lines",
    multiple=True,
    metavar="LABEL",
    help="A line of the answer that has a score: LABEL: 4.",
)
@click.option(
    "--add-format",
    is_flag=True,
    help="Append the JSON answer format if the prompt's own is not understood.",
)
@click.option(
    "--example",
    type=click.IntRange(min=0),
    help="Which JSON example shows the answer, from 1; 0 for none of them.",
)
def import_(
    prompt: str,
    checkout: Path | None,
    output: Path | None,
    name: str | None,
    **hints: object,
) -> VerbReply:
    """Turn a published prompt into a rubric file.

    The rubric keeps the prompt's wording. Prints what it inferred from the text to standard error. If something is
    missing, prints which option supplies it, writes nothing and exits with 1.

    With --from: makes a rubric set from a benchmark's own prompts, scales and formula. They are read from a checkout of
    its repository; nothing in it is executed.
    """
    if checkout is not None:
        if any(value not in (None, (), False) for value in hints.values()):
            raise UsageError(
                "--from takes -o, --name and --json only: the recipe names factors, scales and inputs"
            )
        return _import_recipe(prompt, checkout, name, output)
    from editjudge.rubrics.files import dump
    from editjudge.rubrics.importing import import_prompt

    name = name or ("prompt" if prompt == "-" else Path(prompt).stem)
    source = read_text(prompt, MAX_PROMPT).removeprefix("\ufeff")
    result = import_prompt(source, name, _hints(hints))
    document = {
        "contract": result.rubric.contract() if result.rubric else None,
        "inferred": list(result.inferred),
        "asks": [
            {"about": ask.about, "why": ask.reason, "option": ask.option}
            for ask in result.asks
        ],
    }
    notes = [f"inferred {line}" for line in result.inferred]
    notes += [f"needed   {ask}" for ask in result.asks]
    if result.rubric is None:
        notes.append("nothing was written: add the options above and import again")
    text = dump(result.rubric) if result.rubric else None
    return _imported(document, notes, text, output)


def _import_recipe(
    name_or_file: str, checkout: Path, name: str | None, output: Path | None
) -> VerbReply:
    from editjudge.rubrics.files import parse_any
    from editjudge.rubrics.recipe import import_checkout, load_recipe
    from editjudge.rubrics.strict_yaml import dump_plain

    recipe = load_recipe(name_or_file)
    renamed = dataclasses.replace(recipe, name=name) if name else recipe
    text = dump_plain(import_checkout(renamed, checkout))
    contract = parse_any(text, recipe.name).contract()
    notes = [f"note     {note}" for note in recipe.notes]
    if output:
        notes.append(f"wrote {output}: {', '.join(recipe.summary['rubrics'])}")
    document = {"contract": contract, "notes": list(recipe.notes)}
    return _imported(document, notes, text, output)


def _imported(
    document: object, notes: list[str], text: str | None, output: Path | None
) -> VerbReply:
    """Write a rubric file, print the notes to standard error, and return the verb's reply."""
    if text and output:
        output.write_text(text, "utf-8", newline="")
    if not wants_json():
        for note in notes:
            click.echo(printable(note), err=True)
        if text and not output:
            # A pipe or file gets the exact bytes; a terminal gets no characters that reorder a line.
            click.echo(printable(text) if sys.stdout.isatty() else text, nl=False)
    return VerbReply(document, code=ExitCode.DONE if text else ExitCode.ERROR)


def _hints(values: dict[str, Any]) -> Hints:
    """Return the hints from the options of `import`."""
    from editjudge.rubrics.importing import Hints

    scales = values.pop("scales")
    texts = values.pop("texts")
    length = values.pop("words")
    slots = values.pop("slots")
    general = [scale for scale in scales if "=" not in scale]
    single = (named("--scale", scale) for scale in scales if "=" in scale)
    expected = "NAME=VALUE, such as user_prompt=instruction"
    return Hints(
        scale=_scores(general[-1]) if general else (),
        scales={key: _scores(text) for key, text in single},
        texts=tuple(text for text in texts if text != "none") if texts else None,
        slots=dict(named("--slot", slot, expected) for slot in slots),
        words=_limits(length) if length and length != "none" else None,
        no_words=length == "none",
        **values,
    )


def _scores(text: str) -> tuple[int, ...] | Scale:
    from editjudge.rubrics.example_json import values_of
    from editjudge.rubrics.scale import Scale

    expected = f'--scale "{text}": expected a range such as 1-5, a list such as 5,3,1, or decimals such as 0..1/0.5'
    plain, _, abstention = text.partition(" or ")
    if abstention and re.fullmatch(r"[^\W\d].*", abstention):
        scale = _scores(plain)
        scale = scale if isinstance(scale, Scale) else Scale(scale)
        return dataclasses.replace(scale, abstain=(abstention,))
    number = r"-?\d+(?:\.\d+)?"
    if match := re.fullmatch(rf"({number})\.\.({number})(?:/({number}))?", text):
        step = float(match[3]) if match[3] else None
        try:
            return Scale(range=(float(match[1]), float(match[2])), step=step)
        except ValueError as error:
            raise UsageError(f"{expected}; {error}") from None
    values = values_of(text)
    if not values:
        raise UsageError(expected)
    return values


def _limits(text: str) -> tuple[int, int]:
    low, dash, high = text.partition("-")
    if not (dash and low.isdecimal() and high.isdecimal() and int(low) <= int(high)):
        raise UsageError(
            f'--words "{text}": expected minimum and maximum, such as 15-30, or none'
        )
    return int(low), int(high)
