"""Words that are completed on Tab, and where they come from."""

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
"""Key of the context under which `--store` is remembered."""


def rubrics(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return built-in names and sets; files if none fits, which bash wants to hear of first."""
    from editjudge.rubrics.files import COMPUTED, PAIRWISE, SETS, names

    return [
        CompletionItem(incomplete, type="file"),
        *_items((*names(), *SETS, *PAIRWISE, *COMPUTED), incomplete),
    ]


def judges(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the embedded judges, providers, and the models whose prices are known."""
    from editjudge import plugins
    from editjudge.judges.cost import prices
    from editjudge.judges.providers import PROVIDERS

    providers = (f"{name}/" for name in PROVIDERS)
    names = (*plugins.providers("judges"), *prices().models, *providers)
    return _items(names, incomplete)


def runs(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return names in the store, if it is a file. Past SQLAlchemy, whose import alone takes half a second a Tab."""
    place = ctx.meta.get(STORE) or default_store()
    if "://" in place:
        return []
    address = f"{Path(place).absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=1)) as store:
            rows = store.execute("SELECT name FROM runs ORDER BY id DESC").fetchall()
        return _items((name for (name,) in rows), incomplete)
    except (sqlite3.Error, OSError):
        return []


def _items(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Return the names that begin so, without those that a shell would take for more than a word."""
    return [
        CompletionItem(name)
        for name in names
        if name.startswith(incomplete) and shlex.quote(name) == name
    ]
