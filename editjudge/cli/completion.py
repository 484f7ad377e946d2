"""Shell completion for rubrics, judges and runs."""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from editjudge.files import default_store

STORE = "editjudge.store"
"""Key in the click context that holds the value of `--store`."""


def rubrics(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the built-in rubrics and sets, after an entry for files, which bash expects first."""
    from editjudge.rubrics.files import COMPUTED, LOOK, LOOKED, PAIRWISE, SETS, names

    return [
        CompletionItem(incomplete, type="file"),
        *_items((*names(), *SETS, LOOKED, *PAIRWISE, LOOK, *COMPUTED), incomplete),
    ]


def judges(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the embedded judges, the providers, and the models with known prices."""
    from editjudge import plugins
    from editjudge.judges.cost import prices
    from editjudge.judges.models import table
    from editjudge.judges.providers import PROVIDERS

    providers = (f"{name}/" for name in PROVIDERS)
    models = (*prices().models, *table()["current"])
    names = (*plugins.providers("judges"), *models, *providers)
    return _items(names, incomplete)


def runs(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the names of runs if the store is a file. It is read without SQLAlchemy, whose import takes half a second."""
    store_name = ctx.meta.get(STORE) or default_store()
    if "://" in store_name:
        return []
    address = f"{Path(store_name).absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=1)) as store:
            rows = store.execute("SELECT name FROM runs ORDER BY id DESC").fetchall()
        return _items((name for (name,) in rows), incomplete)
    except (sqlite3.Error, OSError):
        return []


def _items(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Return the names that begin with `incomplete`, leaving out names that would need quoting in a shell."""
    return [
        CompletionItem(name)
        for name in names
        if name.startswith(incomplete) and shlex.quote(name) == name
    ]
