"""`editjudge runs`: list, show, remove and repeat runs."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from editjudge.cli.options import (
    VerbGroup,
    json_option,
    max_failures_option,
    open_store,
    quiet_option,
    run_argument,
    store_option,
    wants_json,
    warn,
)
from editjudge.cli.output import ExitCode, VerbReply, confirmed
from editjudge.errors import UsageError, one_line

if TYPE_CHECKING:
    from editjudge.running.job import Job
    from editjudge.store.records import RunRecord, RunTotals

_FIELDS = (
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
"""Fields of a run that `--json` prints."""


@click.group("runs", cls=VerbGroup)
@store_option
@json_option
def command() -> None:
    """List, show, remove and repeat runs. Without a command: list them. RUN is a name or an id."""


@command.command("list", example="editjudge runs list")
@store_option
def list_() -> VerbReply:
    """List the runs with judges, models, counts and cost."""
    from editjudge.report.tables import Table
    from editjudge.store.records import RunTotals

    with open_store(readonly=True) as store:
        records = store.runs()
        totals = store.totals()
    listed = [(run, totals.get(run.id, RunTotals())) for run in records]
    documents = [_document(run) | counts.as_json() for run, counts in listed]
    if not records:
        return VerbReply({"runs": []}, ["no run yet: editjudge run MANIFEST"])
    rows = [_row(run, counts) for run, counts in listed]
    spare = ("judgements", "state", "models", "date")
    return VerbReply({"runs": documents}, (), [Table.listing(rows, spare=spare)])


def _row(run: RunRecord, totals: RunTotals) -> dict[str, str]:
    """Return a run's line in the list."""
    from editjudge.judgement import FAILED

    when = datetime.datetime.fromtimestamp(run.created).isoformat(" ", "minutes")
    models = [name for name in totals.models if name]
    failed = sum(n for name, n in totals.statuses.items() if name in FAILED)
    pending = totals.statuses["pending"]
    done = totals.statuses.total() - pending
    cost = f"${totals.cost:.2f}"
    if totals.unpriced:
        cost = f"{cost} + unknown" if totals.cost else "unknown"
    return {
        "id": str(run.id),
        "run": run.name,
        "state": run.state,
        "judges": ", ".join(run.spec.get("judges", ())),
        "models": ", ".join(models) if len(models) < 3 else f"{len(models)} models",
        "edits": f"{totals.edits:,}",
        "judgements": f"{done:,} of {done + pending:,}" if pending else f"{done:,}",
        "failed": f"{failed:,}",
        "cost": cost,
        "date": when,
    }


@command.command(example="editjudge runs show mine")
@run_argument
@store_option
def show(run: str) -> VerbReply:
    """Show a run's settings and its judgements by status."""
    with open_store(readonly=True) as store:
        record = store.find_run(run)
        counts = store.counts(record)
    rows = [
        {"judge": judge, "rubric": rubric, "status": status, "n": n}
        for (judge, rubric, status), n in counts.items()
    ]
    lines = [
        f"{record.name} ({record.id}): {record.state}, spec {record.spec_hash[:16]}"
    ]
    settings = {one_line(name): value for name, value in _settings(record.spec)}
    width = max(map(len, settings), default=0)
    for name, value in settings.items():
        lines.append(f"  {name:<{width}}  {one_line(value)}")
    lines += [
        f"  {row['n']:>7,} {row['status']:<14} {one_line(str(row['rubric']))} by {one_line(str(row['judge']))}"
        for row in rows
    ]
    return VerbReply(_document(record) | {"counts": rows}, lines)


def _settings(spec: Mapping[str, object], *path: str) -> Iterator[tuple[str, str]]:
    """Yield each setting that has a value."""
    for name, value in spec.items():
        if isinstance(value, Mapping):
            yield from _settings(value, *path, name)
        elif isinstance(value, bool):
            yield " ".join((*path, name)), "yes" if value else "no"
        elif value not in (None, "", []):
            items = value if isinstance(value, list) else [value]
            yield " ".join((*path, name)), ", ".join(map(str, items))


@command.command(example="editjudge runs rm mine")
@run_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
def rm(run: str, yes: bool) -> VerbReply:
    """Remove a run and the judgements that no other run has."""
    with open_store(create=False) as store:
        record = store.find_run(run)
        question = f"Remove run {record.name} and every reply that only it has?"
        if not (yes or wants_json() or confirmed(question)):
            warn(f"kept {record.name}")
            return VerbReply(None, code=ExitCode.ERROR)
        store.remove_run(record)
    return VerbReply({"removed": record.name}, [f"removed {record.name}"])


@command.command(example="editjudge runs again mine")
@run_argument
@max_failures_option
@quiet_option
@store_option
def again(run: str, max_failures: float, quiet: bool) -> VerbReply:
    """Resume or repeat a run with its stored settings.

    Failed judgements are asked again, finished ones are not.
    """
    from editjudge.cli.run import conduct
    from editjudge.running.job import RunOptions

    with open_store(create=False) as store:
        record = store.find_run(run)
        job = _job(record)
        options = RunOptions(name=record.name)
        return conduct(job, lambda: store, options, max_failures, quiet=quiet)


def _job(record: RunRecord) -> Job:
    """Return a job that repeats a run with its original settings. Raise `EditjudgeError` if the run cannot be repeated."""
    from editjudge.errors import RubricError
    from editjudge.running.job import Job

    spec = record.spec
    if record.imported_from is not None:
        raise UsageError(
            f"{record.name} was imported: its judges, addresses and folders were chosen elsewhere; "
            "judge its manifest with `editjudge run` and options of your own"
        )
    if "asked_for" not in spec:
        raise UsageError(
            f"{record.name} was asked over HTTP: it has no manifest to judge again"
        )
    if "best_of" in spec:
        raise UsageError(
            f"{record.name} ranks candidates: continue with `editjudge run --best-of all` and its other options"
        )
    job = Job.from_spec(spec)
    now = {rubric.name: rubric.hash for rubric in job.load_rubrics()}
    if now != spec["rubrics"]:
        changed = [n for n, digest in spec["rubrics"].items() if now.get(n) != digest]
        raise RubricError(
            f"{', '.join(changed)} changed since the run: its questions cannot be asked again",
            code="changed_rubric",
        )
    return job


def _document(run: RunRecord) -> dict[str, object]:
    return {name: getattr(run, name) for name in _FIELDS}
