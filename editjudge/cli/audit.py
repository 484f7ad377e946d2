"""`editjudge audit`: a manifest looked over before money is spent on it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from editjudge.cli.options import columns_option
from editjudge.cli.output import emit, json_option, safe

if TYPE_CHECKING:
    from editjudge.manifest import Columns

_SHOWN = 50
"""Findings that people are shown; `--json` has them all."""


@click.command(epilog="\b\nExample: editjudge audit edits.jsonl")
@click.argument("manifest", type=click.Path(path_type=Path))
@columns_option
@click.option("--allow-outside", is_flag=True, help="Allow pictures outside the manifest's folder.")
@json_option
def command(manifest: Path, columns: Columns, allow_outside: bool, as_json: bool) -> None:
    """Look a manifest over before it is judged.

    Finds missing and broken files, duplicate ids and pictures, changed sizes, empty instructions and contradictory
    labels, and outputs that are no edit: flat, near_flat, partly_blank, noise, upscaled, thumbnail,
    unrelated, unchanged, mirrored, tile. Exits
    with 1 if there is a finding.
    """
    from editjudge.manifest.audit import audit

    found = audit(manifest, allow_outside=allow_outside, columns=columns)
    if as_json:
        emit(found.as_json())
    else:
        for finding in found.findings[:_SHOWN]:
            place = [str(finding.line or ""), finding.id, finding.kind]
            click.echo(safe(f"{': '.join(filter(None, place))}: {f'{finding.field} {finding.message}'.lstrip()}"))
        if len(found.findings) > _SHOWN:
            click.echo(f"and {len(found.findings) - _SHOWN:,} more; --json has them all")
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(found.counts.items()))
        models = len(found.models.keys() - {""})
        told = [f"{found.edits:,} edit{'' if found.edits == 1 else 's'}"]
        told += [f"of {models:,} model{'' if models == 1 else 's'}"] if models else []
        click.echo(f"{' '.join(told)}; {counts or 'nothing found'}")
    sys.exit(1 if found.findings else 0)
