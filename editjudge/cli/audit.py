"""`editjudge audit`: check a manifest and its pictures before a run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from editjudge.cli.options import columns_option
from editjudge.cli.output import emit, json_option, safe

if TYPE_CHECKING:
    from editjudge.manifest import Columns
    from editjudge.manifest.audit import Audit, AuditFinding

_SHOWN = 20
"""Findings of each kind that people are shown; `--json` has them all."""


@click.command(epilog="\b\nExample: editjudge audit edits.jsonl")
@click.argument("manifest", type=click.Path(path_type=Path))
@columns_option
@click.option(
    "--allow-outside",
    is_flag=True,
    help="Allow pictures outside the manifest's folder.",
)
@json_option
def command(
    manifest: Path, columns: Columns, allow_outside: bool, as_json: bool
) -> None:
    """Check a manifest and its pictures before a run.

    Finds missing and broken files, duplicate ids and pictures, changed sizes, empty instructions, contradictory labels,
    and outputs that are no edit: flat, near_flat, partly_blank, noise, upscaled, thumbnail, unrelated, unchanged,
    mirrored, tile. Exits with 1 if there is a finding.
    """
    from editjudge.manifest.audit import audit

    with _counting(manifest) as progress:
        result = audit(
            manifest, allow_outside=allow_outside, columns=columns, progress=progress
        )
    if as_json:
        emit(result.as_json())
    else:
        click.echo(safe("\n".join(_report(result))))
    sys.exit(1 if result.findings else 0)


@contextmanager
def _counting(manifest: Path) -> Iterator[Callable[[int], None]]:
    """Show how many edits were checked so far: a bar on a terminal, a line every ten seconds elsewhere."""
    from editjudge.running import progress

    total = _lines(manifest)
    if (console := progress.bar_console()) is None:
        printed = time.monotonic()

        def line(edits: int) -> None:
            nonlocal printed
            if time.monotonic() - printed >= progress.LINES:
                printed = time.monotonic()
                click.echo(
                    f"{edits:,}{f' of {total:,}' if total else ''} edits checked",
                    err=True,
                )

        yield line
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("checking"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda edits: bar.update(task, completed=edits)


def _lines(manifest: Path) -> int | None:
    """About how many edits a file of lines has; None for other manifests."""
    suffix = manifest.suffix.lower()
    if suffix not in (".jsonl", ".ndjson", ".csv") or not manifest.is_file():
        return None
    with manifest.open("rb") as file:
        return sum(
            block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b"")
        ) - (suffix == ".csv")


def _report(audit: Audit) -> Iterator[str]:
    """Yield what was checked, then each kind of finding with its remedy and its location."""
    from editjudge.manifest.audit import BROKEN, meaning

    models = len(audit.models.keys() - {""})
    total = sum(audit.counts.values())
    edits = f"{audit.edits:,} edit{'' if audit.edits == 1 else 's'}"
    edits += f" of {models:,} model{'' if models == 1 else 's'}" if models else ""
    yield f"{edits}; {f'{total:,} finding' + 's' * (total > 1) if total else 'nothing found'}"
    yield from (f"Note: {notice}" for notice in audit.notices)
    for kind in sorted(audit.counts, key=lambda kind: (kind not in BROKEN, kind)):
        title, advice = meaning(kind)
        yield f"\n{title} ({kind}, {audit.counts[kind]:,}): {advice}"
        findings = [finding for finding in audit.findings if finding.kind == kind]
        # A column under another name is wrong in every line alike, and is said once.
        groups = {
            (one.field, one.message): [
                two for two in findings if two.message == one.message
            ]
            for one in findings[:_SHOWN]
        }
        for (name, message), group in groups.items():
            yield f"  {_place(group, audit.unit)}: {f'{name} {message}'.lstrip()}"
        if (more := audit.counts[kind] - sum(map(len, groups.values()))) > 0:
            yield f"  and {more:,} more; --json lists up to 1,000 of each kind"


def _place(group: Sequence[AuditFinding], unit: str) -> str:
    first = group[0]
    place = f"{unit} {first.line}" if first.line else "the folder"
    place += f" ({first.id})" if first.id and first.id != f"{unit}-{first.line}" else ""
    return f"{place} and {len(group) - 1:,} more" if len(group) > 1 else place
