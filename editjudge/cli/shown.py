"""What the verbs that read a run share: loading it, and printing tables."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from editjudge.cli.options import open_store
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.report.scored import Judged
    from editjudge.report.tables import Table


def need_statistics() -> None:
    """Say which extra is missing before an import does, in other words."""
    missing = [name for name in ("numpy", "scipy") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"{' and '.join(missing)} not installed: pip install 'editjudge[stats]'")


def load_run(place: str, word: str, by: Sequence[str] = ()) -> Judged:
    need_statistics()
    from editjudge.report.scored import load

    # A run in shards; one of the same name in the store can still be named by its id.
    if os.path.isdir(os.path.join(word, "judgements")):  # which no name is too long for, as a Path's method would find
        from editjudge.store.shards import Shards

        return load(Shards(Path(word)), word, by)
    with open_store(place, readonly=True) as store:
        return load(store, word, by)


def show(lead: Iterable[str], tables: Iterable[Table]) -> None:
    """Leading lines, then tables with an empty line between; never wider than the terminal, nor than 100 columns."""
    from editjudge.report.tables import WIDTH, Table

    width = max(60, min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))
    parts = [Table((), (), line).text(width) for line in lead]
    click.echo("\n\n".join(["\n".join(parts), *(table.text(width) for table in tables)]).strip("\n"))
