"""Shared by the verbs that read a run: loading it, and printing tables."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from editjudge.cli.options import open_store
from editjudge.cli.output import emit, safe
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.report.answers import Answer
    from editjudge.report.pairwise import PairRun
    from editjudge.report.run_data import Of, RunData
    from editjudge.report.tables import Table
    from editjudge.store.store import Store

as_option = click.option(
    "--as",
    "called",
    multiple=True,
    metavar="PEOPLE=FACTOR",
    help="Map a rater's factor name to a judge's, or to a rubric's mean or a set score: --as PQ=quality. Repeatable; "
    "one name may map to several.",
)


def need_statistics(extra: str = "stats") -> None:
    """Raise `UsageError` that names the extra if NumPy or SciPy is missing."""
    missing = [
        name for name in ("numpy", "scipy") if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise UsageError(
            f"{' and '.join(missing)} not installed: pip install 'editjudge[{extra}]'"
        )


guaranteed_option = click.option(
    "--guaranteed",
    is_flag=True,
    help="Use intervals that allow for any score that was not seen: wide, and right whatever the data.",
)
primary_option = click.option(
    "--primary",
    multiple=True,
    metavar="NAME",
    help="Score to decide by instead of the rubric means and overall; repeatable. The answer says if it was declared "
    "before the run.",
)

of_option = click.option(
    "--of",
    type=click.Choice(["scores", "expected"]),
    default="scores",
    show_default=True,
    help="expected: use the expected scores of a run with --read logprobs instead of the written ones.",
)


across_option = click.option(
    "--across-rubrics",
    is_flag=True,
    help="Compare factors of the same scale even if the rubrics of the two runs differ.",
)


def load_run(
    place: str,
    word: str,
    by: Sequence[str] = (),
    *,
    pairing: bool = False,
    of: Of = "scores",
    evidence: bool = False,
) -> RunData:
    """Load a run of the store."""
    need_statistics()
    from editjudge.report.run_data import load

    with open_source(place, word) as source:
        run = source.find_run(word)
        if source.questions_of(run).pair_factors:
            raise UsageError(
                f"run {safe(run.name)} asks which of two edits is better, so it has no scores; `editjudge report` "
                "shows win rates and strengths, `editjudge agree --preferences` compares it with people"
            )
        return load(source, word, by, pairing=pairing, of=of, evidence=evidence)


def load_pair_run(place: str, word: str) -> PairRun | None:
    """A run of pairs; None where the run asks for scores."""
    need_statistics()
    from editjudge.report.pairwise import load_pairs

    with open_source(place, word) as source:
        return load_pairs(source, word)


def open_source(place: str, word: str) -> Store:
    """Open the store that has a run. Raise `UsageError` if the name is the path of an export."""
    # os.path, since a Path's own method raises on a name that is too long.
    if os.path.isdir(os.path.join(word, "judgements")) and os.path.dirname(word):
        raise UsageError(
            f"{safe(word)}: an export; import it into a store with `editjudge import-run`, then name the run"
        )
    return open_store(place, readonly=True)


def present(as_json: bool, answer: Answer) -> None:
    """Print the JSON document for programs, or leading lines and tables for people."""
    if as_json:
        emit(answer.document)
    else:
        show(answer.lead, answer.tables)


def show(lead: Iterable[str], tables: Iterable[Table]) -> None:
    """Leading lines, then tables with an empty line between.

    On a terminal at most as wide as it is, and in colour unless NO_COLOR is set; in a pipe plain, with every column.
    """
    from rich.console import Console

    from editjudge.report.tables import WIDTH, Table

    console = Console(highlight=False)
    is_terminal = sys.stdout.isatty()
    # A terminal that does not tell its size counts as 80 wide, as Rich takes it, so that cells are not broken.
    fixed = max(
        60,
        min(
            WIDTH, shutil.get_terminal_size((80 if is_terminal else WIDTH, 24)).columns
        ),
    )
    is_fixed = is_terminal or "COLUMNS" in os.environ
    parts = [Table((), (), line) for line in lead]
    for n, table in enumerate([*parts, *tables]):
        if n >= max(1, len(parts)):
            click.echo()
        width = fixed if is_fixed else max(WIDTH, table.width())
        if is_terminal and not (console.no_color or console.is_dumb_terminal):
            console.print(table.renderable(width), width=width)
        else:
            click.echo(table.text(width))
