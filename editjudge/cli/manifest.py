"""`editjudge manifest`: the results of a benchmark as a manifest."""

from __future__ import annotations

import json
from pathlib import Path

import click

from editjudge.cli.options import NewFile
from editjudge.cli.output import emit, json_option, safe
from editjudge.errors import ManifestError, UsageError


@click.command(
    epilog="\b\nExample: editjudge manifest tree --benchmark gedit --instructions gedit.json -o edits.jsonl"
)
@click.argument("tree", type=click.Path(path_type=Path))
@click.option(
    "--benchmark",
    type=click.Choice(["gedit", "imgedit", "risebench", "omnicontext", "picabench"]),
    help="The benchmark whose results TREE holds; required. Plain folders, one per model, need no manifest: run them.",
)
@click.option(
    "--layout",
    "benchmark_0_1",
    type=click.Choice(["gedit", "imgedit"]),
    hidden=True,
    help="--benchmark in 0.1.",
)
@click.option(
    "--instructions",
    type=click.Path(path_type=Path),
    required=True,
    help="The benchmark's own list of edits: JSON, JSONL, CSV or Parquet.",
)
@click.option(
    "--originals",
    type=click.Path(path_type=Path),
    help="Folder of the source and reference pictures, where the benchmark keeps them apart.",
)
@click.option("-o", "--output", type=NewFile(), required=True, help="JSONL to write.")
@json_option
def command(
    tree: Path,
    benchmark: str | None,
    benchmark_0_1: str | None,
    instructions: Path,
    originals: Path | None,
    output: Path,
    as_json: bool,
) -> None:
    """Make a manifest from a benchmark's results, in the folders that its own programs write.

    Every edit of the benchmark's list is a row; a picture that does not exist is counted as missing_output.
    """
    benchmark = benchmark or benchmark_0_1
    if benchmark is None:
        raise UsageError(
            "--benchmark is missing: gedit, imgedit, risebench, omnicontext or picabench"
        )
    from editjudge.manifest.folders import LAYOUTS, read_facts, relative

    rows = []
    missing = 0
    outside = False
    for facts in LAYOUTS[benchmark](tree, read_facts(instructions), originals):
        missing += "edited" not in facts or not facts["edited"].exists()
        row, leads_out = relative(facts, output.parent)
        outside |= leads_out
        rows.append(json.dumps(row, ensure_ascii=False))
    if not rows:
        raise ManifestError(
            f"{tree}: no edit of {instructions} has a picture here; is this another benchmark?"
        )
    output.write_text("\n".join(rows) + "\n", "utf-8")
    if as_json:
        emit(
            {
                "written": str(output),
                "edits": len(rows),
                "missing_output": missing,
                "outside": outside,
            }
        )
        return
    click.echo(
        f"wrote {safe(str(output))}: {len(rows):,} edits, {missing:,} of them without a picture"
    )
    if outside:
        click.echo(
            f"some pictures are outside the folder of {safe(str(output))}: run it with --allow-outside"
        )
