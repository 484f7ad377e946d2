"""`editjudge import-run`: an exported run back into a store."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from editjudge.cli.options import open_store, store_option
from editjudge.cli.output import json_option, tell
from editjudge.errors import StoreError, UsageError

if TYPE_CHECKING:
    from editjudge.store.store import Store


@click.command(epilog="\b\nExample: editjudge import-run out --store other.db")
@click.argument("folder")
@click.option(
    "--pictures",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder that pictures of the run may be shown from [the export itself].",
)
@store_option
@json_option
def command(
    folder: str, pictures: Path | None, store_place: str, as_json: bool
) -> None:
    """Import a run that `export` wrote as Parquet or JSONL to FOLDER, or to an address such as s3://BUCKET/NAME.

    Every row is checked first. A row that contradicts itself, its rubric or the store is refused with its file and
    number, and nothing is written. Importing again changes nothing. `serve` and `report` show pictures of an imported
    run only from its folder or the one that --pictures names.
    """
    from editjudge.store.export import import_folder
    from editjudge.store.import_run import check_run, import_run

    if "://" not in folder and not os.path.isdir(folder):
        raise UsageError(f"{folder}: no such folder")
    with import_folder(folder) as files:
        with _already_there(store_place) or nullcontext() as store:
            about = check_run(files, store)
        with open_store(store_place) as store:
            run, count = import_run(store, about, files, pictures)
    document = {"run": run.name, "id": run.id, "judgements": count}
    tell(as_json, document, f"imported {run.name} ({run.id}): {count:,} judgements")


def _already_there(place: str) -> Store | None:
    """The store, unless there is none yet: a folder that is refused makes none."""
    try:
        return open_store(place, create=False)
    except StoreError:
        return None  # where it is another reason, it is told when the store is opened to be written
