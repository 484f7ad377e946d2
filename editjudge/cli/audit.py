"""`editjudge audit`: check a manifest and its images before a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from editjudge.cli.options import FILE, columns_option, outside_option, verb
from editjudge.cli.output import ExitCode, VerbReply, count

if TYPE_CHECKING:
    from editjudge.manifest import Columns
    from editjudge.manifest.audit import Audit, AuditFinding

_MAX_LISTED = 20
"""Maximum number of findings of each kind in the text output; `--json` has them all."""


@verb(example="editjudge audit edits.jsonl")
@click.argument("manifest", type=FILE)
@columns_option
@outside_option
def command(manifest: Path, columns: Columns, allow_outside: bool) -> VerbReply:
    """Check a manifest and its images before a run.

    Finds missing and broken files, duplicate ids and images, changed sizes, empty instructions, contradictory labels,
    and degenerate outputs: flat, near_flat, partly_blank, noise, upscaled, thumbnail, unrelated, unchanged, mirrored,
    tile. Exits with 1 if there is a finding.
    """
    from editjudge.manifest.audit import audit

    with _counting(manifest) as progress:
        result = audit(
            manifest, allow_outside=allow_outside, columns=columns, progress=progress
        )
    code = ExitCode.ERROR if result.findings else ExitCode.DONE
    return VerbReply(result.as_json(), _lines(result), code=code)


@contextmanager
def _counting(manifest: Path) -> Iterator[Callable[[int], None]]:
    """Show how many edits have been checked so far. On a terminal this is a progress bar, elsewhere a line every ten
    seconds."""
    from editjudge.running import progress

    total = _count_lines(manifest)
    console = progress.bar_console()
    if console is None:
        printed = time.monotonic()

        def line(edits: int) -> None:
            nonlocal printed
            if time.monotonic() - printed >= progress.LINES:
                printed = time.monotonic()
                of_all = f" of {total:,}" if total else ""
                click.echo(f"{edits:,}{of_all} edits checked", err=True)

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


def _count_lines(manifest: Path) -> int | None:
    """Return the approximate number of edits in a manifest with one edit per line, or None for other manifests."""
    suffix = manifest.suffix.lower()
    if suffix not in (".jsonl", ".ndjson", ".csv") or not manifest.is_file():
        return None
    with manifest.open("rb") as file:
        blocks = iter(lambda: file.read(1 << 20), b"")
        return sum(block.count(b"\n") for block in blocks) - (suffix == ".csv")


def _lines(audit: Audit) -> Iterator[str]:
    """Yield a summary of the check, then each kind of finding with its remedy and its locations."""
    from editjudge.manifest.audit import BROKEN, meaning

    models = len(audit.models.keys() - {""})
    total = sum(audit.counts.values())
    of_models = f" of {count(models, 'model')}" if models else ""
    findings = count(total, "finding") if total else "nothing found"
    yield f"{count(audit.edits, 'edit')}{of_models}; {findings}"
    yield from (f"Note: {notice}" for notice in audit.notices)
    for kind in sorted(audit.counts, key=lambda kind: (kind not in BROKEN, kind)):
        title, advice = meaning(kind)
        yield f"\n{title} ({kind}, {audit.counts[kind]:,}): {advice}"
        # A renamed column is wrong in every line, and is reported once.
        groups: dict[str, list[AuditFinding]] = {}
        for finding in audit.findings:
            message = f"{finding.field} {finding.message}".lstrip()
            if finding.kind == kind and (
                message in groups or len(groups) < _MAX_LISTED
            ):
                groups.setdefault(message, []).append(finding)
        for message, group in groups.items():
            yield f"  {_location(group, audit.unit)}: {message}"
        if (more := audit.counts[kind] - sum(map(len, groups.values()))) > 0:
            yield f"  and {more:,} more; --json lists up to 1,000 of each kind"


def _location(group: Sequence[AuditFinding], unit: str) -> str:
    first = group[0]
    location = f"{unit} {first.line}" if first.line else "the folder"
    if first.id and first.id != f"{unit}-{first.line}":
        location += f" ({first.id})"
    return f"{location} and {len(group) - 1:,} more" if len(group) > 1 else location
