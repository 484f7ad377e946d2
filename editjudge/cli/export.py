"""`editjudge export`: a run's judgements as files."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from editjudge import plugins
from editjudge.cli.options import open_store, run_argument, store_option
from editjudge.cli.output import json_option, tell
from editjudge.errors import UsageError
from editjudge.redaction import HIDDEN

if TYPE_CHECKING:
    from editjudge.running.where import Condition
    from editjudge.store.records import Item, RunRecord
    from editjudge.store.store import Store
    from editjudge.store.tables import Form


@click.command(epilog="\b\nExample: editjudge export mine -o out --format parquet")
@run_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False),
    required=True,
    help="Folder to write, or an address that pyarrow opens, such as s3://BUCKET/NAME.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "jsonl", "csv", *plugins.providers("sinks")]),
    default="jsonl",
    show_default=True,
    help="inspect: a log that `inspect view` opens.",
)
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="NAME>=VALUE",
    help="Write a manifest, kept.jsonl, of the edits that pass instead. NAME is a factor, a rubric (the mean of its "
    "factors), overall or a set score. Repeatable: all must hold.",
)
@click.option(
    "--replies", is_flag=True, help="Also write every raw reply, to Parquet or JSONL."
)
@click.option(
    "--force",
    is_flag=True,
    help="Replace files in the folder even if they are of another run.",
)
@store_option
@json_option
def command(
    run: str,
    output: str,
    form: str,
    conditions: tuple[str, ...],
    replies: bool,
    force: bool,
    store_place: str,
    as_json: bool,
) -> None:
    """Write a run's judgements as Parquet, JSONL, CSV or an Inspect log, or filter its manifest by score.

    Each judgement is one row; a failure has its status and no score. `import-run` reads Parquet and JSONL back. An
    earlier export of the same run is replaced, other files only with --force.

    With --where: writes a manifest of the edits whose scores pass. A score is the mean over repeats and judges. A
    rubric's name is the mean of its factors; `overall` is the mean of all factors on one scale. Both count only the
    repeats in which every factor has a score. An edit without a score does not pass.
    """
    if replies and form not in ("parquet", "jsonl"):
        raise UsageError("--replies goes with parquet and jsonl")
    if conditions and (form != "jsonl" or replies):
        raise UsageError(
            "--where writes a manifest in JSONL: it goes with neither --replies nor another --format"
        )
    with open_store(store_place, readonly=True) as store:
        record = store.find_run(run)
        if conditions:
            _filter(store, record, conditions, Path(output), force, as_json)
            return
        if form in plugins.providers("sinks"):
            write = plugins.load("sinks", form, f"--format {form}")
            written = [str(path) for path in write(store, record, Path(output))]
        else:
            written = _export(store, record, output, cast("Form", form), replies, force)
    tell(
        as_json,
        {"run": record.name, "written": written},
        f"wrote {', '.join(written)}",
    )


def _export(
    store: Store, run: RunRecord, output: str, form: Form, replies: bool, force: bool
) -> list[str]:
    from editjudge.report.contradictions import contradictions_of
    from editjudge.store.export import export_folder, export_run, taken

    with export_folder(output) as folder:
        if not force and (there := taken(folder, run)):
            raise UsageError(
                f"{output} has {', '.join(there)} of another run: name another folder, or add --force"
            )
        counts = contradictions_of(store, run).counts
        written = export_run(
            store, run, folder, form, replies=replies, contradictions=counts
        )
        return [os.path.join(output, path.relative_to(folder)) for path in written]


def _filter(
    store: Store,
    run: RunRecord,
    conditions: Sequence[str],
    output: Path,
    force: bool,
    as_json: bool,
) -> None:
    from editjudge.manifest.folders import relative
    from editjudge.running.where import Condition
    from editjudge.store.tables import write_lines

    wheres = [Condition.parse(text, run.name) for text in conditions]
    for where in wheres:
        where.run_in(store)
    path = output / "kept.jsonl"
    passed = Counter[bool | None]()
    outside = False
    unscored = Counter[str]()
    hidden = 0
    if path.exists() and not force:
        raise UsageError(f"{path} exists: name another folder, or add --force")

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal outside, hidden
        for item, passes, lacking in _sifted(store, run, wheres):
            passed[passes] += 1
            unscored.update(lacking)
            if passes:
                row, leads_out = relative(_manifest_row(item), output)
                outside |= leads_out
                hidden += HIDDEN in json.dumps(row)
                yield row

    write_lines(path, rows())
    counts = {"hidden": hidden} if hidden else {}
    counts |= {
        "kept": passed[True],
        "edits": passed.total(),
        "unscored": passed[None],
        "outside": outside,
    }
    words = f"wrote {path}: {passed[True]:,} of {passed.total():,} edits"
    if passed[None]:
        words += f"; left out because they have no score on {' or '.join(sorted(unscored))}: {passed[None]:,}"
    if passed.total() in unscored.values() and (scored := _scored(store, run)):
        words += f"\na rubric and overall need scores of all their factors; those with scores are {', '.join(scored)}"
    if hidden:
        words += f"\n{hidden:,} edits have addresses whose password or signature is not kept: {HIDDEN} stands for it"
    words += (
        f"\nsome pictures are outside the folder of {path}: run it with --allow-outside"
        if outside
        else ""
    )
    tell(as_json, {"run": run.name, "written": [str(path)], **counts}, words)


def _sifted(
    store: Store, run: RunRecord, wheres: Sequence[Condition]
) -> Iterator[tuple[Item, bool | None, set[str]]]:
    """Every edit with whether all conditions hold (None if only missing scores keep it from passing), and what it has
    no score on."""
    from editjudge.running.plan import BATCH
    from editjudge.running.where import scores_of

    items = store.items(run)
    while some := list(itertools.islice(items, BATCH)):
        scores = scores_of(store, run, [item.item for item in some])
        for item in some:
            figures = scores.get(item.item, {})
            results = {where.holds(figures) for where in wheres}
            names = {name for where in wheres for name in where.names}
            lacking = {name for name in names if not figures.get(name)}
            passes = None if None in results else True
            yield item, False if False in results else passes, lacking


def _scored(store: Store, run: RunRecord) -> list[str]:
    """The factors that have a score anywhere in a run."""
    rows = store.judgements(run, fields=("scores",), status=["ok"])
    return list(dict.fromkeys(factor for row in rows for factor in row["scores"] or ()))


def _manifest_row(item: Item) -> dict[str, Any]:
    from editjudge.media.source import is_url

    names = ("instruction", "referring_expression", "model", "edit_type", "group")
    row = {
        "id": item.item,
        **{name: value for name in names if (value := getattr(item, name))},
        **item.metadata,
    }
    for role, image in item.images.items():
        source = image["source"] or ""
        if not is_url(source) and not Path(source).is_absolute():
            raise UsageError(
                f"edit {item.item}: its {role} is not a file ({source}), so a manifest cannot name it; "
                "export without --where and filter by the scores"
            )
        row[role] = source if is_url(source) else Path(source)
    return row
