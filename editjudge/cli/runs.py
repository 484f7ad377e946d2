"""`editjudge runs`: what was run, and doing it again."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from editjudge.cli.options import (
    ListByDefault,
    max_failures_option,
    open_store,
    quiet_option,
    run_argument,
    store_option,
)
from editjudge.cli.output import agreed, emit, json_option, one_line, safe, tell
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.store.records import RunRecord


@click.group(cls=ListByDefault)
def command() -> None:
    """List, show, remove and repeat runs. Without a command: list them. RUN is a name or an id."""


@command.command("list", epilog="\b\nExample: editjudge runs list")
@store_option
@json_option
def list_(store_place: str, as_json: bool) -> None:
    """List every run of the store."""
    with open_store(store_place, readonly=True) as store:
        records = store.runs()
    if as_json:
        emit({"runs": [_document(run) for run in records]})
        return
    for run in records:
        when = datetime.datetime.fromtimestamp(run.created).isoformat(" ", "minutes")
        click.echo(f"{run.id:>4}  {when}  {run.state:<11}  {safe(run.name)}")


@command.command(epilog="\b\nExample: editjudge runs show mine")
@run_argument
@store_option
@json_option
def show(run: str, store_place: str, as_json: bool) -> None:
    """Show a run's settings and its judgements by status."""
    with open_store(store_place, readonly=True) as store:
        record = store.find_run(run)
        counts = store.counts(record)
    rows = [
        {"judge": j, "rubric": r, "status": s, "n": n}
        for (j, r, s), n in counts.items()
    ]
    if as_json:
        emit(_document(record) | {"counts": rows})
        return
    click.echo(
        f"{safe(record.name)} ({record.id}): {record.state}, spec {record.spec_hash[:16]}"
    )
    lines = dict(_lines(record.spec))
    for name, value in lines.items():
        click.echo(f"  {one_line(name):<{max(map(len, lines))}}  {one_line(value)}")
    for row in rows:
        click.echo(
            f"  {row['n']:>7,} {row['status']:<14} {one_line(str(row['rubric']))} by {one_line(str(row['judge']))}"
        )


def _lines(spec: Mapping[str, Any], *path: str) -> Iterator[tuple[str, str]]:
    """Each setting with its value; a setting without a value has no line."""
    for name, value in spec.items():
        if isinstance(value, Mapping):
            yield from _lines(value, *path, name)
        elif value not in (None, "", []):
            word = (
                {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
            )
            yield (
                " ".join((*path, name)),
                ", ".join(map(str, value)) if isinstance(value, list) else str(word),
            )


@command.command(epilog="\b\nExample: editjudge runs rm mine")
@run_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@json_option
def rm(run: str, yes: bool, store_place: str, as_json: bool) -> None:
    """Remove a run and the judgements that no other run has."""
    with open_store(store_place, create=False) as store:
        record = store.find_run(run)
        if not (
            yes
            or as_json
            or agreed(
                f"Remove run {safe(record.name)} and every reply that only it has?"
            )
        ):
            click.echo(f"kept {safe(record.name)}", err=True)
            sys.exit(1)
        store.remove_run(record)
    tell(as_json, {"removed": record.name}, f"removed {record.name}")


@command.command(epilog="\b\nExample: editjudge runs again mine")
@run_argument
@max_failures_option
@quiet_option
@store_option
@json_option
def again(
    run: str, max_failures: float, quiet: bool, store_place: str, as_json: bool
) -> None:
    """Resume or repeat a run with its stored settings.

    Failed judgements are asked again, finished ones are not.
    """
    from editjudge.cli.run import conduct
    from editjudge.errors import RubricError
    from editjudge.running.job import Job, RunOptions

    with open_store(store_place, create=False) as store:
        record = store.find_run(run)
        name = safe(record.name)
        spec = record.spec
        if record.imported_from is not None:
            raise UsageError(
                f"{name} was imported: somebody else chose its judges, addresses and folders; "
                "judge its manifest with `editjudge run` and options of your own"
            )
        if "asked_for" not in spec:
            raise UsageError(
                f"{name} was asked over HTTP: it has no manifest to judge again"
            )
        if "best_of" in spec:
            raise UsageError(
                f"{name} ranks candidates: go on with `editjudge run --best-of all` and its other options"
            )
        job = Job.from_spec(spec)
        now = {rubric.name: rubric.hash for rubric in job.load_rubrics()}
        if now != spec["rubrics"]:
            changed = [
                name
                for name, hash_ in spec["rubrics"].items()
                if now.get(name) != hash_
            ]
            raise RubricError(
                f"{', '.join(changed)} changed since the run: its questions cannot be asked again"
            )
        sys.exit(
            conduct(
                job, store, RunOptions(name=record.name), max_failures, as_json, quiet
            )
        )


def _document(run: RunRecord) -> dict[str, Any]:
    names = (
        "id",
        "name",
        "state",
        "created",
        "updated",
        "spec",
        "spec_hash",
        "summary",
        "version",
    )
    return {name: getattr(run, name) for name in names}
