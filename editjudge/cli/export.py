"""`editjudge export` and `editjudge import-run`: write the judgements of a run to files, and read them into a store."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from editjudge import plugins
from editjudge.cli.options import (
    FILE,
    map_factor_option,
    open_store,
    run_argument,
    store_option,
    verb,
)
from editjudge.cli.output import ExitCode, VerbReply
from editjudge.errors import StoreError, UsageError
from editjudge.redaction import HIDDEN

if TYPE_CHECKING:
    from editjudge.report.promise import Promise
    from editjudge.running.where import Condition
    from editjudge.store.records import Item, RunRecord
    from editjudge.store.store import Store
    from editjudge.store.tables import Form


@verb(example="editjudge export mine -o out --format parquet")
@run_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    required=True,
    help="Folder to write, or an address that pyarrow opens, such as s3://BUCKET/NAME. With --where or --good also the "
    "name of a .jsonl file.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["parquet", "jsonl", "csv", *plugins.providers("sinks")]),
    default="jsonl",
    show_default=True,
    help="datasets: with images, for `datasets.load_from_disk`. eval-results: files for the repositories of models on the "
    "Hub. fiftyone: for `Dataset.from_json`. inspect: a log that `inspect view` opens.",
)
@click.option(
    "--dataset",
    metavar="ORG/NAME",
    help="Benchmark on the Hub that eval-results are about.",
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
    "--good",
    metavar="NAME>=VALUE",
    help="Condition on judges' scores: write a manifest of edits of which at least --precision are good by people's "
    "ratings. The numbers are moved to the most lenient cut for which the ratings show that.",
)
@click.option("--ratings", type=FILE, help="People's ratings, for --good.")
@click.option(
    "--people-good",
    metavar="NAME>=VALUE",
    help="What a good edit is by the mean ratings. Default: --good, read on the ratings.",
)
@click.option(
    "--precision",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Share of the kept edits that are good, at least.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 1, max_open=True),
    default=0.95,
    show_default=True,
    help="Probability that the promise of --good holds.",
)
@map_factor_option
@click.option(
    "--replies", is_flag=True, help="Also write every raw reply, to Parquet or JSONL."
)
@click.option(
    "--force",
    is_flag=True,
    help="Replace files in the folder even if they are of another run.",
)
@store_option
def command(
    run: str,
    output: str,
    format_: str,
    dataset: str | None,
    conditions: tuple[str, ...],
    good: str | None,
    ratings: Path | None,
    people_good: str | None,
    precision: float | None,
    confidence: float,
    mappings: tuple[str, ...],
    replies: bool,
    force: bool,
) -> VerbReply:
    """Write a run's judgements as tables or for another program, or filter its manifest by score.

    Each judgement is one row; a failure has its status and no score. `import-run` reads Parquet and JSONL back. An
    earlier export of the same run is replaced. Other files are replaced only with --force.

    With --good: writes a manifest of edits with a promise, such as "at least 90 % are good by people's ratings, with 95 %
    confidence". Candidate cuts come from the judges' scores alone, the ratings test them with source images as the
    unit, and the most lenient one that passes is used. Exit 1 if none does, with the number of further ratings that
    would suffice. The promise and the digest of the ratings are in each line of the manifest.

    With --where: writes a manifest of the edits whose scores pass. A score is the mean over repeats and judges. A
    rubric's name means the mean of its factors; `overall` means the mean of all factors on one scale. Both count only
    the repeats in which every factor has a score. An edit without a score does not pass.
    """
    if replies and format_ not in ("parquet", "jsonl"):
        raise UsageError("--replies goes with parquet and jsonl")
    if dataset and format_ != "eval-results":
        raise UsageError("--dataset goes with --format eval-results")
    promising = (good, ratings, precision)
    if any(promising) and None in promising:
        raise UsageError(
            "--good, --ratings and --precision go together: give all three"
        )
    if (people_good or mappings) and not good:
        raise UsageError("--people-good and --map-factor go with --good")
    if good and conditions:
        raise UsageError(
            "--good and --where both filter: put the conditions together into --good with `and`"
        )
    if (conditions or good) and (format_ != "jsonl" or replies):
        raise UsageError(
            "--where writes a manifest in JSONL, as --good does: neither goes with --replies or another --format"
        )
    if not (conditions or good) and os.path.isfile(output):
        raise UsageError(f"{output} is a file: name a folder")
    with open_store(readonly=True) as store:
        record = store.find_run(run)
        if conditions:
            return _filter(store, record, conditions, Path(output), force)
        if good and ratings and precision:
            from editjudge.report.promise import promise
            from editjudge.report.run_data import load

            run_data = load(store, str(record.id), pairing=True)
            made = promise(
                store,
                run_data,
                good,
                people_good,
                ratings,
                precision,
                confidence,
                mappings,
            )
            return _promised(store, record, made, Path(output), force)
        if format_ in plugins.providers("sinks"):
            if "://" in output:
                raise UsageError(
                    f"--format {format_} writes to a folder, not to an address"
                )
            write = plugins.load("sinks", format_, f"--format {format_}")
            about = {"dataset": dataset} if dataset else {}
            paths = write(store, record, Path(output), **about)
            written = [str(path) for path in paths]
        else:
            table = cast("Form", format_)
            written = _export(store, record, output, table, replies, force)
    document = {"run": record.name, "written": written}
    return VerbReply(document, [f"wrote {', '.join(written)}"])


def _export(
    store: Store, run: RunRecord, output: str, format_: Form, replies: bool, force: bool
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
            store, run, folder, format_, replies=replies, contradictions=counts
        )
        return [os.path.join(output, path.relative_to(folder)) for path in written]


def _promised(
    store: Store, run: RunRecord, made: Promise, output: Path, force: bool
) -> VerbReply:
    """Write a manifest of the edits that a filter with a promise keeps, unless the ratings do not support the promise."""
    document = {"run": run.name, **made.as_json()}
    if made.refused:
        return VerbReply(document, made.lines, code=ExitCode.ERROR)
    kept = (item for item in store.items(run) if item.item in made.kept)
    path, notes = _write_manifest(kept, output, force, {"filter": made.mark()})
    document["written"] = [str(path)]
    lines = [f"wrote {path}: {len(made.kept):,} of {made.of:,} edits", *made.lines]
    return VerbReply(document, [*lines, *_manifest_notes(path, notes)])


def _write_manifest(
    items: Iterable[Item], output: Path, force: bool, marks: Mapping[str, object]
) -> tuple[Path, Counter[str]]:
    """Write a manifest of these edits, and return its path and the numbers of images outside and of hidden addresses."""
    from editjudge.manifest.folders import relative
    from editjudge.store.tables import write_lines

    path = output if output.suffix == ".jsonl" else output / "kept.jsonl"
    if path.exists() and not force:
        raise UsageError(f"{path} exists: name another folder, or add --force")
    notes = Counter[str]()

    def rows() -> Iterator[dict[str, object]]:
        for item in items:
            row, is_outside = relative(_manifest_row(item), path.parent)
            notes["outside"] += is_outside
            notes["hidden"] += HIDDEN in json.dumps(row)
            yield {**row, **marks}

    write_lines(path, rows())
    return path, notes


def _manifest_notes(path: Path, notes: Mapping[str, int]) -> Iterator[str]:
    if hidden := notes["hidden"]:
        yield f"{hidden:,} edits have addresses whose password or signature is not stored: {HIDDEN} replaces it"
    if notes["outside"]:
        yield f"some images are outside the folder of {path}: run it with --allow-outside"


def _filter(
    store: Store, run: RunRecord, conditions: Sequence[str], output: Path, force: bool
) -> VerbReply:
    """Write a manifest of the edits that pass."""
    from editjudge.running.where import Condition

    wheres = [Condition.parse(text, run.name) for text in conditions]
    for where in wheres:
        where.run_in(store)
    passed = Counter[bool | None]()
    unscored = Counter[str]()

    def kept() -> Iterator[Item]:
        for item, passes, lacking in _sifted(store, run, wheres):
            passed[passes] += 1
            unscored.update(lacking)
            if passes:
                yield item

    path, notes = _write_manifest(kept(), output, force, {})
    total = passed.total()
    document: dict[str, object] = {"run": run.name, "written": [str(path)]}
    line = f"wrote {path}: {passed[True]:,} of {total:,} edits"
    lines = []
    if passed[None]:
        names = " or ".join(sorted(unscored))
        line += f"; left out because they have no score on {names}: {passed[None]:,}"
    if total in unscored.values() and (scored := _scored(store, run)):
        lines.append(
            f"a rubric and overall need scores of all their factors; those with scores are {', '.join(scored)}"
        )
    if hidden := notes["hidden"]:
        document["hidden"] = hidden
    lines += _manifest_notes(path, notes)
    document |= {
        "kept": passed[True],
        "edits": total,
        "unscored": passed[None],
        "outside": bool(notes["outside"]),
    }
    return VerbReply(document, [line, *lines])


def _sifted(
    store: Store, run: RunRecord, wheres: Sequence[Condition]
) -> Iterator[tuple[Item, bool | None, set[str]]]:
    """Yield every edit, whether it meets all conditions, and the names for which it has no score.

    The bool is None if the edit fails only because scores are missing.
    """
    from editjudge.running.plan import BATCH
    from editjudge.running.where import scores_of

    names = {name for where in wheres for name in where.names}
    items = store.items(run)
    while batch := list(itertools.islice(items, BATCH)):
        scores = scores_of(store, run, [item.item for item in batch])
        for item in batch:
            figures = scores.get(item.item, {})
            results = {where.holds(figures) for where in wheres}
            passes: bool | None = True
            if False in results:
                passes = False
            elif None in results:
                passes = None
            yield item, passes, {name for name in names if not figures.get(name)}


def _scored(store: Store, run: RunRecord) -> list[str]:
    """Return the factors for which the run has at least one score."""
    rows = store.judgements(run, fields=("scores",), status=["ok"])
    return list(dict.fromkeys(factor for row in rows for factor in row["scores"] or ()))


def _manifest_row(item: Item) -> dict[str, object]:
    from editjudge.media.source import is_url

    row: dict[str, object] = {"id": item.item}
    for name in ("instruction", "referring_expression", "model", "edit_type", "group"):
        if value := getattr(item, name):
            row[name] = value
    row |= item.metadata
    for role, image in item.images.items():
        source = image["source"] or ""
        if not is_url(source) and not Path(source).is_absolute():
            raise UsageError(
                f"edit {item.item}: its {role} is not a file ({source}), so a manifest cannot name it; "
                "export without --where and filter by the scores",
                code="not_a_file",
            )
        row[role] = source if is_url(source) else Path(source)
    return row


@verb(example="editjudge import-run out --store other.db")
@click.argument("folder")
@click.option(
    "--pictures",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder that images of the run may be shown from [the export itself].",
)
@store_option
def import_run(folder: str, pictures: Path | None) -> VerbReply:
    """Import a run that `export` wrote as Parquet or JSONL to FOLDER, or to an address such as s3://BUCKET/NAME.

    Every row is checked first. A row that contradicts itself, its rubric or the store is refused with its file and
    number, and nothing is written. Importing again changes nothing. `serve` and `report` show images of an imported
    run only from its folder or the one that --pictures names.
    """
    from editjudge.store import import_run as importing
    from editjudge.store.export import import_folder

    if "://" not in folder and not os.path.isdir(folder):
        raise UsageError(f"{folder}: no such folder")
    with import_folder(folder) as files:
        with _existing_store() or nullcontext() as store:
            about = importing.check_run(files, store)
        with open_store() as store:
            run, count = importing.import_run(store, about, files, pictures)
    document = {"run": run.name, "id": run.id, "judgements": count}
    return VerbReply(
        document, [f"imported {run.name} ({run.id}): {count:,} judgements"]
    )


def _existing_store() -> Store | None:
    """Return the store, or None if it does not exist. It is not created here, because the folder to import may still be
    refused."""
    try:
        return open_store(create=False)
    except StoreError:
        return None  # any other problem is raised when the store is opened for writing
