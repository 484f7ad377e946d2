"""What the verbs that read a run share: loading it, and printing tables."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editjudge.cli.options import open_store, store_is_given
from editjudge.cli.output import emit, safe
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.report.pairwise import PairRun
    from editjudge.report.run_data import Of, RunData
    from editjudge.report.tables import Table
    from editjudge.store.shards import Shards
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
    missing = [name for name in ("numpy", "scipy") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"{' and '.join(missing)} not installed: pip install 'editjudge[{extra}]'")


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
    """A run of the store, or in a folder of shards."""
    need_statistics()
    from editjudge.report.run_data import load
    from editjudge.store.pairs import pair_factors

    with open_source(place, word) as source:
        if pair_factors(source, run := source.find_run(word)):
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


def open_source(place: str, word: str) -> Store | Shards:
    """The store, or the folder of shards that the word names."""
    if not names_folder(place, word):
        return open_store(place, readonly=True)
    from editjudge.store.shards import Shards

    return Shards(Path(word))


def names_folder(place: str, word: str) -> bool:
    """Whether a RUN is a folder of shards. A path (./NAME) is one. A bare word is one only where --store is not given
    and the default store has no run of that name."""
    # os.path, since a Path's own method raises on a name that is too long.
    if not os.path.isdir(os.path.join(word, "judgements")):
        return False
    if any(separator and separator in word for separator in (os.sep, os.altsep)):
        return True
    if store_is_given(place):
        return False
    if not ("://" in place or os.path.exists(place)):
        return True
    with open_store(place, readonly=True) as store:
        try:
            store.find_run(word)
        except UsageError:
            return True
    click.echo(f"{safe(word)}: read from {safe(store.place)}; for the folder write ./{safe(word)}", err=True)
    return False


def present(
    as_json: bool, document: Callable[[], Any], lead: Iterable[str], tables: Callable[[], Iterable[Table]]
) -> None:
    """The JSON document for programs, or conclusions and tables for people; only what is printed is made."""
    if as_json:
        emit(document())
    else:
        show(lead, tables())


def show(lead: Iterable[str], tables: Iterable[Table]) -> None:
    """Leading lines, then tables with an empty line between.

    On a terminal at most as wide as it is, and in colour unless NO_COLOR is set; in a pipe plain, with every column.
    """
    from rich.console import Console

    from editjudge.report.tables import WIDTH, Table

    console = Console(highlight=False)
    is_terminal = sys.stdout.isatty()
    # A terminal that does not tell its size counts as 80 wide, as Rich takes it, so that cells are not broken.
    fixed = max(60, min(WIDTH, shutil.get_terminal_size((80 if is_terminal else WIDTH, 24)).columns))
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
