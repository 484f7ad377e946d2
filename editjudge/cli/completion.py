"""`editjudge completion`: words completed on Tab, and where they come from."""

from __future__ import annotations

import os
import shlex
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

from editjudge.cli.output import json_option, tell


@click.command(epilog='\b\nExample: eval "$(editjudge completion bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
def command(shell: str, as_json: bool) -> None:
    """Print the script that completes verbs, options, rubrics, judges and runs on Tab.

    To keep it, add the line below, with your shell's name, to ~/.bashrc or ~/.zshrc; for fish write the script to
    ~/.config/fish/completions/editjudge.fish.
    """
    complete = get_completion_class(shell)
    assert complete is not None  # noqa: S101  (click knows the three)
    script = complete(click.Group(), {}, "editjudge", "_EDITJUDGE_COMPLETE").source()
    tell(as_json, {"shell": shell, "script": script}, script)


def rubrics(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Built-in names and sets; files where none fits, which bash wants to hear of first."""
    from editjudge.rubrics.files import COMPUTED, PAIRWISE, SETS, names

    return [
        CompletionItem(incomplete, type="file"),
        *_items((*names(), *SETS, *PAIRWISE, *COMPUTED), incomplete),
    ]


def judges(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The embedded one, providers, and the models whose prices are known."""
    from editjudge import plugins
    from editjudge.judges.cost import prices
    from editjudge.judges.providers import PROVIDERS

    return _items(
        (
            *plugins.providers("judges"),
            *prices().models,
            *(f"{name}/" for name in PROVIDERS),
        ),
        incomplete,
    )


def runs(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names in the store, if it is a file. Past SQLAlchemy, whose import alone takes half a second a Tab."""
    place = ctx.params.get("store_place") or os.environ.get(
        "EDITJUDGE_STORE", "editjudge.db"
    )
    if "://" in place:
        return []
    address = f"{Path(place).absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=1)) as store:
            rows = store.execute("SELECT name FROM runs ORDER BY id DESC").fetchall()
        return _items((name for (name,) in rows), incomplete)
    except (sqlite3.Error, OSError):
        return []


def _items(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Without those that a shell would take for more than a word."""
    return [
        CompletionItem(word)
        for word in words
        if word.startswith(incomplete) and shlex.quote(word) == word
    ]
