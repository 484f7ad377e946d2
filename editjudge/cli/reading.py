"""What the verbs that read a run share: loading it, and printing tables."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from editjudge.cli.options import open_store
from editjudge.cli.output import safe
from editjudge.errors import UsageError, near_miss

if TYPE_CHECKING:
    from editjudge.report.run_data import RunData
    from editjudge.report.tables import Table
    from editjudge.stats.columns import Ratings
    from editjudge.store.shards import Shards
    from editjudge.store.store import Store

as_option = click.option(
    "--as",
    "called",
    multiple=True,
    metavar="PEOPLE=FACTOR",
    help="A factor that people call otherwise than judges do, or a sum of a RUN such as quality; repeatable, also to "
    "hold one of people's factors against several.",
)

_USUAL = {"SC": "fidelity", "PQ": "quality"}
"""What ImagenHub and those after it call semantic consistency and perceptual quality."""


def need_statistics() -> None:
    """Say which extra is missing before an import does, in other words."""
    missing = [name for name in ("numpy", "scipy") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"{' and '.join(missing)} not installed: pip install 'editjudge[stats]'")


def load_run(place: str, word: str, by: Sequence[str] = (), *, pairing: bool = False) -> RunData:
    """A run of the store, or in a folder of shards."""
    need_statistics()
    from editjudge.report.run_data import load

    with open_source(place, word) as source:
        return load(source, word, by, pairing=pairing)


def open_source(place: str, word: str) -> Store | Shards:
    """The store, or the folder of shards that the word names."""
    if not names_folder(place, word):
        return open_store(place, readonly=True)
    from editjudge.store.shards import Shards

    return Shards(Path(word))


def names_folder(place: str, word: str) -> bool:
    """Whether a RUN is a folder of shards. One that is written as a path (./NAME) is; a bare word is a run of the store
    where there is one of that name, which is said where a folder has it too."""
    # No name is too long for this, as one would be for a Path's own method.
    if not os.path.isdir(os.path.join(word, "judgements")):
        return False
    if any(mark and mark in word for mark in (os.sep, os.altsep)) or not ("://" in place or os.path.exists(place)):
        return True
    with open_store(place, readonly=True) as store:
        try:
            store.find_run(word)
        except UsageError:
            return True
    click.echo(f"{safe(word)}: read from {safe(store.place)}; for the folder write ./{safe(word)}", err=True)
    return False


def renamed(ratings: Ratings, called: Sequence[str], known: Sequence[str]) -> Ratings:
    """With the names that judges use; what people rated may be held against several of their factors."""
    from editjudge.stats.columns import Ratings

    pairs = [text.rpartition("=")[::2] for text in called]
    rated = ratings.factor.present()
    for text, (people, factor) in zip(called, pairs, strict=True):
        if not people or not factor:
            raise UsageError(f'--as "{text}": expected PEOPLE=FACTOR, such as PQ=quality')
        if people not in rated:
            raise UsageError(f'--as "{text}": nobody rated "{people}"{near_miss(people, rated)}')
        if factor not in known:
            raise UsageError(f'--as "{text}": judges have no "{factor}"{near_miss(factor, known)}')
    pairs += [(name, name) for name in rated if name not in dict(pairs)]
    if twice := [name for name, n in Counter(factor for _, factor in pairs).items() if n > 1]:
        raise UsageError(f"--as: two of people's factors cannot both be {twice[0]}")
    parts = [(ratings.where(factor=people), factor) for people, factor in pairs]
    columns = [[x for part, _ in parts for x in getattr(part, name)] for name in ("item", "rater", "score")]
    factors = [factor for part, factor in parts for _ in range(len(part))]
    return Ratings.of(columns[0], columns[1], factors, columns[2]) if called else ratings


def such_as(people: Sequence[str], known: Sequence[str]) -> str:
    """An --as that makes sense: the usual one, or what says least of what people meant."""
    usual = [(name, ours) for name, ours in _USUAL.items() if name in people and ours in known]
    theirs, ours = usual[0] if usual else (people[0], "overall" if "overall" in known else known[0])
    return f"--as {theirs}={ours}"


def show(lead: Iterable[str], tables: Iterable[Table]) -> None:
    """Leading lines, then tables with an empty line between; never wider than the terminal, nor than 100 columns."""
    from editjudge.report.tables import WIDTH, Table

    width = max(60, min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))
    parts = [Table((), (), line).text(width) for line in lead]
    click.echo("\n\n".join(["\n".join(parts), *(table.text(width) for table in tables)]).strip("\n"))
