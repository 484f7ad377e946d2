"""`editjudge export`: a run's judgements as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from editjudge.cli.options import open_store, store_option
from editjudge.cli.output import emit, json_option
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.store.store import Run, Store


@click.command()
@click.argument("run")
@click.option(
    "-o", "--output", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder to write."
)
@click.option("--format", "form", type=click.Choice(["jsonl", "csv", "inspect"]), default="jsonl", show_default=True)
@store_option
@json_option
def command(run: str, output: Path, form: str, store_place: str, as_json: bool) -> None:
    """Write a run's judgements as JSONL or CSV.

    A line for every task, whatever became of it: a failure has its status and no score.
    """
    from editjudge.store.export import export_csv, export_jsonl

    with open_store(store_place, readonly=True) as store:
        found = store.find_run(run)
        if form == "inspect":
            written = _inspect(store, found, output)
        else:
            written = (export_csv if form == "csv" else export_jsonl)(store, found, output)
    if as_json:
        emit({"run": found.name, "written": str(written)})
    else:
        click.echo(f"wrote {written}")


def _inspect(store: Store, run: Run, output: Path) -> Path:
    try:
        from editjudge.inspection import export_inspect
    except ModuleNotFoundError:
        raise UsageError("logs for Inspect need its package: pip install 'editjudge[inspect]'") from None
    export_inspect(store, run, output)
    return output
