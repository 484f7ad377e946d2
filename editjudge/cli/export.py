"""`editjudge export`: a run's judgements as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from editjudge.cli.options import open_store, run_argument, store_option
from editjudge.cli.output import json_option, tell
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.store.store import Run, Store


@click.command(epilog="\b\nExample: editjudge export mine -o out --format parquet")
@run_argument
@click.option(
    "-o", "--output", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder to write."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "jsonl", "csv", "inspect"]),
    default="jsonl",
    show_default=True,
    help="inspect: a log that `inspect view` opens.",
)
@click.option("--replies", is_flag=True, help="Also write every raw reply, to Parquet or JSONL.")
@click.option("--force", is_flag=True, help="Replace what is there, also where it is not of this run.")
@store_option
@json_option
def command(run: str, output: Path, form: str, replies: bool, force: bool, store_place: str, as_json: bool) -> None:
    """Write a run's judgements as Parquet, JSONL, CSV or a log for Inspect.

    A line for every task, whatever became of it: a failure has its status and no score. `import-run` brings Parquet
    and JSONL back; the verbs that read a run take a folder of Parquet in its place. An earlier export of the same run
    is replaced, other files only with --force.
    """
    from editjudge.store.export import export_csv, export_jsonl, export_parquet, taken

    if replies and form not in ("parquet", "jsonl"):
        raise UsageError("--replies goes with parquet and jsonl")
    with open_store(store_place, readonly=True) as store:
        found = store.find_run(run)
        if not force and form != "inspect" and (there := taken(output, found)):
            raise UsageError(
                f"{output} has {', '.join(there)}, and not of this run: name another folder, or give --force"
            )
        if form == "inspect":
            written = _inspect(store, found, output)
        elif form == "csv":
            written = export_csv(store, found, output)
        else:
            written = (export_parquet if form == "parquet" else export_jsonl)(store, found, output, replies)
    tell(as_json, {"run": found.name, "written": [*map(str, written)]}, f"wrote {', '.join(map(str, written))}")


def _inspect(store: Store, run: Run, output: Path) -> list[Path]:
    try:
        from editjudge.inspection import export_inspect
    except ModuleNotFoundError:
        raise UsageError("logs for Inspect need its package: pip install 'editjudge[inspect]'") from None
    return export_inspect(store, run, output)
