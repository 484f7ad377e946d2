"""Export of a run as files: its tables and run.json, in a local folder or at a remote address."""

from __future__ import annotations

import dataclasses
import itertools
import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import editjudge
from editjudge.canonical import read_json
from editjudge.errors import ManifestError
from editjudge.judgement import EMPTY_ROW, JudgementRow, factor_values
from editjudge.store import migrations
from editjudge.store.ratings import annotations_of
from editjudge.store.records import Count, Item, RunRecord
from editjudge.store.scores import item_verdicts, pair_answers, run_set_scores
from editjudge.store.store import Store
from editjudge.store.tables import (
    TABLES,
    Form,
    complete_file,
    file_digest,
    need_pyarrow,
    writing_tables,
)

_TABLES: dict[Form, tuple[str, ...]] = {
    "jsonl": ("judgements", "items"),
    "parquet": ("judgements", "scores", "items"),
    "csv": ("scores",),
}

_ABOUT = (
    "name",
    "id",
    "state",
    "created",
    "updated",
    "version",
    "spec",
    "spec_hash",
    "summary",
)
"""Fields of a run that are written to run.json."""
_OF_SCORE = ("judge", "rubric", "repeat", "order", "status")
"""Fields of a judgement that each of its scores is written with."""
_AT_ONCE = 500
"""Number of edits whose judgements are in memory at a time."""


def export_run(
    store: Store,
    run: RunRecord,
    folder: Path,
    form: Form = "jsonl",
    *,
    replies: bool = False,
    contradictions: Sequence[Count] = (),
) -> list[Path]:
    """Write a run's tables and run.json in one pass, and return the paths of the files and folders.

    A task without a judgement has a row with the status `pending`.
    """
    names = [*_TABLES[form], *(["replies"] if replies else [])]
    factors = store.questions_of(run).factors
    counts = Counter[tuple[str, str, str]]()
    hashes = {*run.spec.get("rubrics", {}).values()}
    fields = EMPTY_ROW if form == "jsonl" else ()
    with writing_tables(folder, form, names) as tables:
        for row in store.judgements(run, fields=fields):
            # Counted while writing, so that run.json counts exactly the rows of the files.
            counts[row["judge"], row["rubric"], row["status"]] += 1
            hashes.add(row["rubric_hash"])
            if "judgements" in tables:
                tables["judgements"].add(row)
            if "scores" in tables:
                for factor in _factors(row, factors.get(row["rubric"], ())):
                    values = factor_values(row, factor)
                    tables["scores"].add({**row, "factor": factor or None, **values})
        if "items" in tables:
            for edit in _items(store, run, derived=form == "jsonl"):
                tables["items"].add(edit)
        for reply in store.replies_of(run) if replies else ():
            tables["replies"].add(reply)
    rows = {name: n for table in tables.values() for name, n in table.rows.items()}
    with complete_file(folder / "run.json") as file:
        about = {
            **{name: getattr(run, name) for name in _ABOUT},
            "counts": [
                {"judge": judge, "rubric": rubric, "status": status, "count": number}
                for (judge, rubric, status), number in sorted(counts.items())
            ],
            "files": {
                name: {"rows": number, "sha256": file_digest(folder / name)}
                for name, number in rows.items()
            },
            "contradictions": [dataclasses.asdict(count) for count in contradictions],
            # Include rubrics without an answer yet, since scores may depend on them.
            "rubrics": {
                key: {"name": rubric.name, "content": rubric.content()}
                for key, rubric in store.rubrics(hashes - {None}).items()
            },
            "exported_by": {
                "editjudge": editjudge.__version__,
                "schema": migrations.VERSION,
            },
        }
        file.write(json.dumps(about, indent=2, allow_nan=False) + "\n")
    written = names if form == "parquet" else [*rows]
    return [folder / name for name in (*written, "run.json")]


def _factors(row: JudgementRow, rubric_factors: Sequence[str]) -> list[str]:
    """Return a task's factors. A failed task has a row for each of them."""
    answered = (row["scores"] or {}, row["choices"] or {}, row["abstained"])
    factors = [*rubric_factors, *(factor for values in answered for factor in values)]
    return list(dict.fromkeys(factors)) or [""]


def edits_with_scores(
    store: Store, run: RunRecord
) -> Iterator[tuple[Item, list[dict[str, object]]]]:
    """Yield every edit with a row for each of its judgements and factors. A failure has its status and no score."""
    factors = store.questions_of(run).factors
    items = store.items(run)
    while batch := list(itertools.islice(items, _AT_ONCE)):
        rows: dict[str, list[dict[str, object]]] = {item.item: [] for item in batch}
        for row in store.judgements(run, fields=EMPTY_ROW, item=list(rows)):
            about = {name: row[name] for name in _OF_SCORE}  # type: ignore[literal-required]
            for factor in _factors(row, factors.get(row["rubric"], ())):
                values = factor_values(row, factor)
                rows[row["item"]].append({**about, "factor": factor or None, **values})
        for item in batch:
            yield item, rows[item.item]


def _items(
    store: Store, run: RunRecord, *, derived: bool
) -> Iterator[dict[str, object]]:
    """Yield each edit as a row. With `derived`, rows also have rubric set scores, verdicts on pairs, tags and note."""
    scores = None
    if derived and run.spec.get("sets"):
        scores = run_set_scores(store, run)
    verdicts = item_verdicts(pair_answers(store, run)) if derived else {}
    annotations = annotations_of(store, run) if derived else {}
    for item in store.items(run):
        row = item._asdict()
        if scores is not None:
            row["set_scores"] = scores.get(item.item, {})
        row |= verdicts.get(item.item, {})
        if item.item in annotations:
            row |= annotations[item.item].as_json()
        yield row


def taken(folder: Path, run: RunRecord) -> list[str]:
    """Return the files that an export would replace or remove. Return an empty list if they come from an earlier export
    of the same run.
    """
    names = ["run.json", "judgements.csv", *TABLES, *(f"{name}.jsonl" for name in TABLES)]  # fmt: skip
    with suppress(OSError, ValueError, RecursionError, LookupError, TypeError):
        about = read_json((folder / "run.json").read_bytes())
        if (about["name"], about["spec_hash"]) == (run.name, run.spec_hash):
            return []
    return [name for name in names if (folder / name).exists()]


# --- addresses ------------------------------------------------------------------------------------------------


@contextmanager
def export_folder(output: str) -> Iterator[Path]:
    """Yield a local folder into which to write an export.

    If the output is an address such as s3://BUCKET/NAME, the files are then uploaded from there and replace an earlier
    export. run.json is uploaded last.
    """
    if "://" not in output:
        yield Path(output)
        return
    with _remote(output) as (fs, system, root), TemporaryDirectory() as temporary:
        folder = Path(temporary)
        about = system.get_file_info(f"{root}/run.json")
        if about.is_file:  # it names the run that was exported there
            fs.copy_files(
                about.path, str(folder / "run.json"), system, fs.LocalFileSystem()
            )
        yield folder
        everything = fs.FileSelector(root, recursive=True, allow_not_found=True)
        old = [info.path for info in system.get_file_info(everything) if info.is_file]
        for path in sorted(old, key=lambda path: path != about.path):
            if _OF_EXPORT.fullmatch(path.removeprefix(f"{root}/")):
                system.delete_file(path)
        files = [path for path in folder.rglob("*") if path.is_file()]
        for path in sorted(files, key=lambda path: (path.name == "run.json", path)):
            target = f"{root}/{path.relative_to(folder).as_posix()}"
            system.create_dir(posixpath.dirname(target))
            fs.copy_files(str(path), target, fs.LocalFileSystem(), system)


@contextmanager
def import_folder(source: str) -> Iterator[Path]:
    """Yield the local folder of an export. If the export is at an address such as s3://BUCKET/NAME, it is downloaded to
    a temporary folder.
    """
    if "://" not in source:
        yield Path(source)
        return
    with _remote(source) as (fs, system, root), TemporaryDirectory() as folder:
        fs.copy_files(root, folder, system, fs.LocalFileSystem())
        yield Path(folder)


_OF_EXPORT = re.compile(
    r"run\.json|judgements\.csv|\w+\.jsonl|(judgements|scores|items|replies)/part-\d+\.parquet"
)


@contextmanager
def _remote(address: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield pyarrow's filesystem module, the filesystem for an address, and the path within it."""
    arrow = need_pyarrow("an address")
    try:
        system, root = arrow.fs.FileSystem.from_uri(address)
        yield arrow.fs, system, root.rstrip("/")
    except (arrow.ArrowException, OSError) as error:
        raise ManifestError(f"{address}: {error}") from error
