"""`editjudge rubric`: rubrics as data."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editjudge.cli import completion
from editjudge.cli.options import ListByDefault, NewFile, layout_option, named
from editjudge.cli.output import emit, json_option, read_text, safe
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.rubrics.model import Rubric
    from editjudge.rubrics.prompt import Layout
    from editjudge.rubrics.scale import Scale
    from editjudge.rubrics.sets import RubricSet

MAX_PROMPT = 200_000
"""A fifth of what a rubric file may have: escaped and folded, a character can take more than four times its room."""


@click.group(cls=ListByDefault)
def command() -> None:
    """List, show, check and import rubrics. Without a command: list them.

    A rubric is named by its built-in name, by a set (online, offline) or by the path of a YAML file.
    """


@command.command("list", epilog="\b\nExample: editjudge rubric list")
@json_option
def list_(as_json: bool) -> None:
    """The built-in rubrics and sets."""
    from editjudge.rubrics.files import COMPUTED, PAIRWISE, SETS, load, names

    rubrics = [load(name) for name in (*names(), *PAIRWISE, *COMPUTED)]
    if as_json:
        emit(
            {
                "rubrics": [
                    rubric.contract() | {"description": rubric.description}
                    for rubric in rubrics
                ],
                "sets": {name: list(members) for name, members in SETS.items()},
            }
        )
        return
    for rubric in rubrics:
        scales = ", ".join(
            dict.fromkeys(factor.scale.words for factor in rubric.factors)
        )
        click.echo(f"{rubric.name:<13} {rubric.description}")
        click.echo(
            f"{'':<13} {len(rubric.factors)} x {scales}; sees {', '.join(rubric.images + rubric.texts)}"
        )
    for name, members in SETS.items():
        click.echo(f"{name:<13} the set {' + '.join(members)}")


@command.command(epilog="\b\nExample: editjudge rubric show fidelity --prompt")
@click.argument("rubric", shell_complete=completion.rubrics)
@click.option("--prompt", is_flag=True, help="The exact question for an example edit.")
@layout_option
@json_option
def show(rubric: str, prompt: bool, layout: Layout, as_json: bool) -> None:
    """Show a rubric's factors, scales and answer format."""
    from editjudge.rubrics.files import SETS, load_one, load_set

    rubric_set = load_set(rubric)
    if rubric_set is not None and rubric not in SETS:
        _show_set(rubric_set, prompt, layout, as_json)
        return
    one = load_one(rubric)
    if prompt and one.computed_by:
        raise UsageError(
            f"{one.name} has no question: its figures are computed by --judge {one.computed_by}"
        )
    if prompt:
        text, content = _question(one, layout)
        emit(content) if as_json else click.echo(safe(text))
    elif as_json:
        contract = rubric_set.contract() if rubric_set else {}
        emit(
            one.contract()
            | {
                name: contract[name]
                for name in ("members", "scores")
                if name in contract
            }
        )
    else:
        _show_contract(one)


def _show_set(
    rubric_set: RubricSet, prompt: bool, layout: Layout, as_json: bool
) -> None:
    from editjudge.rubrics.sets import asking

    if prompt and as_json:
        emit(
            {
                "questions": [
                    {"rubric": rubric.name} | _question(rubric, layout)[1]
                    for rubric in rubric_set.rubrics
                ]
            }
        )
    elif prompt:
        for rubric in rubric_set.rubrics:
            click.echo(
                f"--- {safe(rubric.name)} ---\n{safe(_question(rubric, layout)[0])}\n"
            )
    elif as_json:
        emit(rubric_set.contract())
    if prompt or as_json:
        return
    click.echo(f"{safe(rubric_set.name)}: {safe(rubric_set.description)}")
    click.echo(f"hash     {rubric_set.hash}")
    for formula in rubric_set.formulas:
        click.echo(f"score    {safe(formula.words)}")
    for rubric in rubric_set.rubrics:
        click.echo("")
        for name, value in asking(rubric).items():
            click.echo(f"{name:<8} {safe(str(value))}")
        _show_contract(rubric)


def _show_contract(rubric: Rubric) -> None:
    from editjudge.rubrics.answer import answer_schema, answer_shape

    contract = rubric.contract()
    click.echo(f"{safe(rubric.name)}: {safe(rubric.description)}")
    click.echo(f"hash     {contract['hash']}")
    click.echo(f"images   {', '.join(rubric.images)}")
    click.echo(f"texts    {', '.join(rubric.texts) or 'none'}")
    if rubric.system:
        click.echo(f"system   {safe(rubric.system)}")
    if rubric.answer.is_json:
        click.echo(f"envelope {safe(rubric.answer.envelope) or '(top level)'}")
    if rubric.answer.words:
        click.echo(
            f"reasons  {rubric.answer.words[0]} to {rubric.answer.words[1]} words"
        )
    if rubric.answer.sections:
        click.echo(f"sections {safe(', '.join(rubric.answer.sections))}")
    for factor in rubric.factors:
        place = factor.path or rubric.label(factor)
        at = f" ({safe(place)})" if place != factor.key else ""
        click.echo(f"factor   {safe(factor.key)}{at}: {factor.scale.words}")
    if rubric.computed_by:
        click.echo(f"computed by --judge {rubric.computed_by}: nobody is asked")
    elif rubric.answer.is_json:
        emit(answer_schema(rubric))
    else:
        click.echo(safe(answer_shape(rubric, None)))


def _question(rubric: Rubric, layout: Layout) -> tuple[str, dict[str, Any]]:
    """For an example edit: as text, and as data."""
    from editjudge.edit import TEXT_ROLES, Edit
    from editjudge.rubrics.prompt import ImagePart, ask

    texts = {
        name: f"(the {name} of the edit)"
        for name in rubric.texts
        if name not in TEXT_ROLES and "." not in name
    }
    each = {
        name.partition(".")[2]: f"(the {name} of the edit)"
        for name in rubric.texts
        if "." in name
    }
    edit = Edit(
        "example",
        instruction="Make the left car blue.",
        referring_expression="the car nearest the tree",
        metadata=texts | ({"each": each} if each else {}),
    )
    question = ask(
        rubric, edit, {role: f"digest of the {role}" for role in rubric.images}, layout
    )
    parts = [
        {"image": p.role} if isinstance(p, ImagePart) else {"text": p.text}
        for p in question.parts
    ]
    system = {"system": rubric.system} if rubric.system else {}
    content = {
        "identifier": question.identifier,
        "layout": question.layout,
        **system,
        "parts": parts,
    }
    return str(question).replace("\r\n", "\n"), content


@command.command(epilog="\b\nExample: editjudge rubric check mine.yaml")
@click.argument("file")
@json_option
def check(file: str, as_json: bool) -> None:
    """Check a rubric file for likely mistakes."""
    from editjudge.rubrics.files import resolve
    from editjudge.rubrics.lint import lint

    findings = [
        (rubric.name, finding) for rubric in resolve([file]) for finding in lint(rubric)
    ]
    if as_json:
        emit(
            {
                "findings": [
                    {
                        "rubric": name,
                        "code": f.code,
                        "where": f.where,
                        "message": f.message,
                    }
                    for name, f in findings
                ]
            }
        )
    else:
        for name, finding in findings:
            place = f"{safe(file)}: {safe(name)}: {safe(finding.where)}"
            click.echo(f"{place}: {finding.code}: {safe(finding.message)}")
        click.echo(
            f"{len(findings)} finding{'' if len(findings) == 1 else 's'}"
            if findings
            else "nothing found"
        )
    sys.exit(1 if findings else 0)


@command.command(epilog="\b\nExample: editjudge rubric recipes")
@json_option
def recipes(as_json: bool) -> None:
    """List the benchmarks that can be imported from a checkout."""
    from editjudge.rubrics.recipe import load_recipe, recipe_names

    known = [load_recipe(name) for name in recipe_names()]
    if as_json:
        emit({"recipes": [recipe.summary for recipe in known]})
        return
    for recipe in known:
        click.echo(
            f"{recipe.name:<16} {recipe.title}, from {recipe.repository} ({recipe.commit})"
        )
        click.echo(f"{'':<16} {recipe.description}")
    click.echo(
        "import one with `editjudge rubric import NAME --from CHECKOUT -o FILE`",
        err=True,
    )


def _import_recipe(
    word: str, checkout: Path, name: str | None, output: Path | None, as_json: bool
) -> None:
    from dataclasses import replace

    from editjudge.rubrics.files import parse_any
    from editjudge.rubrics.recipe import import_checkout, load_recipe
    from editjudge.rubrics.strict_yaml import dump_plain

    recipe = load_recipe(word)
    text = dump_plain(
        import_checkout(replace(recipe, name=name) if name else recipe, checkout)
    )
    imported = parse_any(text, recipe.name)
    if output:
        output.write_text(text, "utf-8", newline="")
    if as_json:
        emit({"contract": imported.contract(), "notes": list(recipe.notes)})
        return
    for note in recipe.notes:
        click.echo(f"note     {note}", err=True)
    if output:
        click.echo(f"wrote {output}: {', '.join(recipe.summary['rubrics'])}", err=True)
    else:
        click.echo(safe(text) if sys.stdout.isatty() else text, nl=False)


@command.command(
    "import",
    epilog="\b\nExample: editjudge rubric import prompt.txt -o mine.yaml\n"
    "         editjudge rubric import gedit --from Step1X-Edit -o gedit.yaml",
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
    help="A picture that is shown (input, edited, ground_truth, or a column of the manifest), in order.",
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
    help="A line of the answer that holds a score: LABEL: 4.",
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
@json_option
def import_(
    prompt: str,
    checkout: Path | None,
    output: Path | None,
    name: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Turn a published prompt into a rubric file.

    The rubric keeps the prompt's wording. Prints what it inferred from the text to standard error. If something is
    missing, prints which option supplies it, writes nothing and exits with 1.

    With --from: makes a rubric set from a benchmark's own prompts, scales and formula. They are read from a checkout of
    its repository; nothing in it is executed.
    """
    if checkout is not None:
        if any(value not in (None, (), False) for value in given.values()):
            raise UsageError(
                "--from takes -o, --name and --json only: the recipe names factors, scales and inputs"
            )
        _import_recipe(prompt, checkout, name, output, as_json)
        return
    from editjudge.rubrics.files import dump
    from editjudge.rubrics.importing import Hints, import_prompt

    scales = given.pop("scales")
    texts = given.pop("texts")
    words = given.pop("words")
    slots = dict(
        named("--slot", slot, "NAME=VALUE, such as user_prompt=instruction")
        for slot in given.pop("slots")
    )
    hints = Hints(
        scale=next(
            (_scores(scale) for scale in reversed(scales) if "=" not in scale), ()
        ),
        scales={
            key: _scores(values)
            for key, values in (named("--scale", s) for s in scales if "=" in s)
        },
        texts=tuple(text for text in texts if text != "none") if texts else None,
        slots=slots,
        words=_limits(words) if words and words != "none" else None,
        no_words=words == "none",
        **given,
    )
    text = read_text(prompt, MAX_PROMPT).removeprefix("\ufeff")
    result = import_prompt(
        text, name or ("prompt" if prompt == "-" else Path(prompt).stem), hints
    )
    if result.rubric and output:
        output.write_text(dump(result.rubric), "utf-8", newline="")
    if as_json:
        asks = [
            {"about": ask.about, "why": ask.why, "option": ask.option}
            for ask in result.asks
        ]
        contract = result.rubric.contract() if result.rubric else None
        emit({"contract": contract, "inferred": list(result.inferred), "asks": asks})
    else:
        for line in result.inferred:
            click.echo(f"inferred {safe(line)}", err=True)
        for ask in result.asks:
            click.echo(f"needed   {safe(str(ask))}", err=True)
        if result.rubric and not output:
            # Into a pipe or a file go the exact bytes; on a terminal nothing that reorders a line.
            text = dump(result.rubric)
            click.echo(safe(text) if sys.stdout.isatty() else text, nl=False)
    if not result.rubric:
        click.echo(
            "nothing was written: add the options above and import again", err=True
        )
        sys.exit(1)


def _scores(text: str) -> tuple[int, ...] | Scale:
    from dataclasses import replace

    from editjudge.rubrics.example_json import values_of
    from editjudge.rubrics.scale import Scale

    expected = f'--scale "{safe(text)}": expected a range such as 1-5, a list such as 5,3,1, or decimals such as 0..1/0.5'
    plain, _, word = text.partition(" or ")
    if word and re.fullmatch(r"[^\W\d].*", word):
        scale = _scores(plain)
        return replace(
            scale if isinstance(scale, Scale) else Scale(scale), abstain=(word,)
        )
    if match := re.fullmatch(
        r"(-?\d+(?:\.\d+)?)\.\.(-?\d+(?:\.\d+)?)(?:/(\d+(?:\.\d+)?))?", text
    ):
        try:
            return Scale(
                range=(float(match[1]), float(match[2])),
                step=float(match[3]) if match[3] else None,
            )
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
            f'--words "{safe(text)}": expected least and most, such as 15-30, or none'
        )
    return int(low), int(high)
