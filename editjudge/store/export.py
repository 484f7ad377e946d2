"""A run as files: one line a task for programs, one row a factor for spreadsheets, tables, and where it came from."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

import editjudge
from editjudge.canonical import read_json
from editjudge.errors import ManifestError, UsageError
from editjudge.files import replacing, spreadsheet_safe
from editjudge.judgement import factor_values
from editjudge.store import migrations
from editjudge.store.pairs import item_verdicts, pair_answers
from editjudge.store.records import Count, RunRecord
from editjudge.store.store import ROW_FIELDS, Store

COLUMNS = (
    "item",
    "model",
    "group",
    "edit_type",
    "judge",
    "rubric",
    "repeat",
    "status",
    "factor",
    "score",
    "justification",
    "choice",
)
"""Columns of judgements.csv."""


class _Tally:
    """Counts judgements while they are written, so that run.json counts the rows of the files and no others."""

    def __init__(self) -> None:
        self._counts = Counter[tuple[str, str, str]]()
        self.rubric_hashes: set[str | None] = set()

    def through(self, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for row in rows:
            self._counts[row["judge"], row["rubric"], row["status"]] += 1
            self.rubric_hashes.add(row["rubric_hash"])
            yield row

    def as_json(self) -> list[dict[str, Any]]:
        names = ("judge", "rubric", "status")
        return [
            dict(zip(names, place, strict=True)) | {"count": n}
            for place, n in sorted(self._counts.items())
        ]


def export_jsonl(
    store: Store,
    run: RunRecord,
    folder: Path,
    replies: bool = False,
    contradictions: Sequence[Count] = (),
) -> list[Path]:
    """judgements.jsonl, one line a task, those without a judgement as `pending`; items.jsonl, run.json and, if they
    are wanted, replies.jsonl."""
    tally = _Tally()
    tables: dict[str, Iterable[dict[str, Any]]] = {
        "judgements.jsonl": tally.through(store.judgements(run, fields=ROW_FIELDS)),
        "items.jsonl": _items(store, run),
    }
    if replies:
        tables["replies.jsonl"] = store.replies_of(run)
    else:
        (folder / "replies.jsonl").unlink(missing_ok=True)  # of an earlier export
    rows = {name: write_lines(folder / name, lines) for name, lines in tables.items()}
    about = _export_run(store, run, folder, contradictions, tally, rows)
    return [*(folder / name for name in tables), about]


def _items(store: Store, run: RunRecord) -> Iterator[dict[str, Any]]:
    """Each edit, with the scores of the run's rubric sets, tags and note where it has any."""
    from editjudge.store.annotations import annotations_of

    scores = None
    if run.spec.get("sets"):
        from editjudge.store.set_scores import (
            run_set_scores,  # numpy, which only formulas need
        )

        scores = run_set_scores(store, run)
    verdicts = dict(item_verdicts(pair_answers(store, run)))
    annotated = {
        item: annotation.as_json()
        for item, annotation in annotations_of(store, run).items()
    }
    for item in store.items(run):
        published = {} if scores is None else {"set_scores": scores.get(item.item, {})}
        yield (
            item._asdict()
            | published
            | verdicts.get(item.item, {})
            | annotated.get(item.item, {})
        )


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> int:
    """Write one line a row, and return how many there are."""
    count = 0
    with _whole(path) as file:
        for row in rows:
            # ASCII: some readers take U+2028 for the end of a line, and half a surrogate pair has no UTF-8.
            file.write(json.dumps(row, allow_nan=False) + "\n")
            count += 1
    return count


def export_parquet(
    store: Store,
    run: RunRecord,
    folder: Path,
    replies: bool = False,
    contradictions: Sequence[Count] = (),
) -> list[Path]:
    """Write the tables of `editjudge.store.parquet`, in one pass and in batches; and run.json."""
    from editjudge.store.parquet import ParquetTables, row_counts

    factors = _Factors(store)
    tally = _Tally()
    names = ["judgements", "scores", "items", *(["replies"] if replies else [])]
    with ParquetTables(folder, names) as tables:
        for item in store.items(run):
            tables.add("items", item._asdict())
        for values in tally.through(store.judgements(run)):
            tables.add("judgements", values)
            for factor in factors.of(values):
                tables.add(
                    "scores",
                    {
                        **values,
                        "factor": factor or None,
                        **factor_values(values, factor),
                    },
                )
        for reply in store.replies_of(run) if replies else ():
            tables.add("replies", reply)
    about = _export_run(
        store, run, folder, contradictions, tally, row_counts(folder, names)
    )
    return [*(folder / name for name in names), about]


def export_csv(
    store: Store, run: RunRecord, folder: Path, contradictions: Sequence[Count] = ()
) -> list[Path]:
    """judgements.csv, one row a judgement and factor, the score empty where there is none; and run.json."""
    factors = _Factors(store)
    tally = _Tally()
    count = 0
    with _whole(folder / "judgements.csv") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for values in tally.through(store.judgements(run)):
            shared = [spreadsheet_safe(values[name]) for name in COLUMNS[:8]]
            for factor in factors.of(values):
                of_factor = factor_values(values, factor)
                of_factor["justification"] = (
                    of_factor["justification"] or of_factor["abstained"]
                )
                table.writerow(
                    [
                        *shared,
                        spreadsheet_safe(factor),
                        *(spreadsheet_safe(of_factor[name]) for name in COLUMNS[9:]),
                    ]
                )
                count += 1
    about = _export_run(
        store, run, folder, contradictions, tally, {"judgements.csv": count}
    )
    return [folder / "judgements.csv", about]


def _export_run(
    store: Store,
    run: RunRecord,
    folder: Path,
    contradictions: Sequence[Count],
    tally: _Tally,
    rows: Mapping[str, int],
) -> Path:
    """Write run.json; `rows` counts those of each file that was written before it."""
    # Also the rubrics that no answer is of yet: scores are made of them.
    used = {*tally.rubric_hashes, *run.spec.get("rubrics", {}).values()}
    content = {
        "name": run.name,
        "id": run.id,
        "state": run.state,
        "created": run.created,
        "updated": run.updated,
        "version": run.version,
        "spec": run.spec,
        "spec_hash": run.spec_hash,
        "summary": run.summary,
        "counts": tally.as_json(),
        "files": {
            name: {"rows": count, "sha256": file_digest(folder / name)}
            for name, count in rows.items()
        },
        "contradictions": [dataclasses.asdict(count) for count in contradictions],
        "rubrics": {
            key: {"name": rubric.name, "content": rubric.content()}
            for key, rubric in store.rubrics().items()
            if key in used
        },
        "exported_by": {
            "editjudge": editjudge.__version__,
            "schema": migrations.VERSION,
        },
    }
    with _whole(folder / "run.json") as file:
        file.write(json.dumps(content, indent=2, allow_nan=False) + "\n")
    return folder / "run.json"


@contextmanager
def export_folder(place: str) -> Iterator[Path]:
    """Yield a local folder to export to. If the place is an address such as s3://BUCKET/NAME, its files are copied
    there afterwards, run.json last, in the place of an earlier export."""
    if "://" not in place:
        yield Path(place)
        return
    with _remote(place) as (fs, system, root), TemporaryDirectory() as temporary:
        folder = Path(temporary)
        about = system.get_file_info(f"{root}/run.json")
        if about.is_file:  # says whose export is there
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
def import_folder(place: str) -> Iterator[Path]:
    """Yield the local folder of an export; one at an address such as s3://BUCKET/NAME is copied for the time."""
    if "://" not in place:
        yield Path(place)
        return
    with _remote(place) as (fs, system, root), TemporaryDirectory() as folder:
        fs.copy_files(root, folder, system, fs.LocalFileSystem())
        yield Path(folder)


_OF_EXPORT = re.compile(
    r"run\.json|judgements\.csv|\w+\.jsonl|(judgements|scores|items|replies)/part-\d+\.parquet"
)


@contextmanager
def _remote(place: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield pyarrow's module of filesystems, the filesystem of an address, and the path there."""
    try:
        import pyarrow as pa
        from pyarrow import fs
    except ModuleNotFoundError:
        raise UsageError(
            "an address needs an extra: pip install 'editjudge[parquet]'"
        ) from None
    try:
        system, root = fs.FileSystem.from_uri(place)
        yield fs, system, root.rstrip("/")
    except (pa.ArrowException, OSError) as error:
        raise ManifestError(f"{place}: {error}") from error


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def taken(folder: Path, run: RunRecord) -> list[str]:
    """Return the files that an export would replace or remove, unless they are of the same run."""
    tables = ("judgements", "scores", "items", "replies")
    names = (
        "run.json",
        "judgements.csv",
        *tables,
        *(f"{name}.jsonl" for name in tables if name != "scores"),
    )
    there = [name for name in names if (folder / name).exists()]
    with suppress(ManifestError):
        about = about_run(folder)
        if (about["name"], about["spec_hash"]) == (run.name, run.spec_hash):
            return []
    return there


_ABOUT = {*RunRecord.__slots__, "rubrics", "contradictions"} - {"imported_from"}


def about_run(folder: Path) -> dict[str, Any]:
    """Return the content of run.json."""
    path = folder / "run.json"
    try:
        about = read_json(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ManifestError(
            f"{path}: expected what `editjudge export` writes last: {error}"
        ) from None
    if not isinstance(about, dict) or (lacks := _ABOUT - about.keys()):
        absent = (
            f"lacks {', '.join(sorted(lacks))}"
            if isinstance(about, dict)
            else "is no object"
        )
        raise ManifestError(
            f"{path}: {absent}; expected what `editjudge export` writes"
        )
    return about


class _Factors:
    """Which factors a task is about, also where no score says it: a failure has a row for each it left out."""

    def __init__(self, store: Store) -> None:
        self._by_hash: dict[str, list[str]] = {}
        self._by_name: dict[str, list[list[str]]] = {}
        for key, rubric in store.rubrics().items():
            self._by_hash[key] = [factor.key for factor in rubric.factors]
            self._by_name.setdefault(rubric.name, []).append(self._by_hash[key])

    def of(self, values: dict[str, Any]) -> list[str]:
        answered = [
            *(values["scores"] or {}),
            *(values["choices"] or {}),
            *values["abstained"],
        ]
        known = self._by_hash.get(values["rubric_hash"])
        named = self._by_name.get(values["rubric"], [])
        # not judged yet, so only the name is known
        if known is None and len(named) == 1:
            known = named[0]
        return list(dict.fromkeys([*(known or []), *answered])) or [""]


@contextmanager
def _whole(path: Path) -> Iterator[TextIO]:
    """A file that appears when it is complete, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        replacing(path) as partial,
        partial.open("w", encoding="utf-8", newline="") as file,
    ):
        yield file
        file.flush()
        os.fsync(file.fileno())
