"""A run as files: one line a task for programs, one row a factor for spreadsheets, tables, and where it came from."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import editjudge
from editjudge.errors import ManifestError
from editjudge.files import replacing
from editjudge.judgement import factor_values
from editjudge.store import schema
from editjudge.store.contradictions import Count
from editjudge.store.pairs import item_verdicts, pair_answers
from editjudge.store.records import RunRecord
from editjudge.store.store import ROW_FIELDS, Store, kept_replies

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
"""Of judgements.csv."""


def export_jsonl(
    store: Store, run: RunRecord, folder: Path, replies: bool = False, contradictions: Sequence[Count] = ()
) -> list[Path]:
    """judgements.jsonl, one line a task, those without a judgement as `pending`; items.jsonl, run.json and, if they
    are wanted, replies.jsonl."""
    write_lines(folder / "judgements.jsonl", store.judgements(run, fields=ROW_FIELDS))
    write_lines(folder / "items.jsonl", _items(store, run))
    if replies:
        write_lines(folder / "replies.jsonl", kept_replies(store, run))
    else:
        (folder / "replies.jsonl").unlink(missing_ok=True)  # of an earlier export
    tables = ["judgements", "items", *(["replies"] if replies else [])]
    return [*(folder / f"{name}.jsonl" for name in tables), _export_run(store, run, folder, contradictions)]


def _items(store: Store, run: RunRecord) -> Iterator[dict[str, Any]]:
    """Each edit, with the scores of the run's rubric sets, tags and note where it has any."""
    from editjudge.store.annotations import annotations_of
    from editjudge.store.set_scores import run_set_scores

    scores = run_set_scores(store, run)
    verdicts = dict(item_verdicts(pair_answers(store, run)))
    annotated = {item: annotation.as_json() for item, annotation in annotations_of(store, run).items()}
    for item in store.items(run):
        published = {} if scores is None else {"set_scores": scores.get(item.item, {})}
        yield item._asdict() | published | verdicts.get(item.item, {}) | annotated.get(item.item, {})


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    with _whole(path) as file:
        for row in rows:
            # ASCII: some readers take U+2028 for the end of a line, and half a surrogate pair has no UTF-8.
            file.write(json.dumps(row, allow_nan=False) + "\n")


def export_parquet(
    store: Store, run: RunRecord, folder: Path, replies: bool = False, contradictions: Sequence[Count] = ()
) -> list[Path]:
    """The tables of `editjudge.store.shards`, in one pass and in batches; and run.json."""
    from editjudge.store.shards import ShardFolder

    factors = _Factors(store)
    names = ["judgements", "scores", "items", *(["replies"] if replies else [])]
    with ShardFolder(folder, names) as tables:
        for item in store.items(run):
            tables.add("items", item._asdict())
        for values in store.judgements(run):
            tables.add("judgements", values)
            for factor in factors.of(values):
                tables.add("scores", {**values, "factor": factor or None, **factor_values(values, factor)})
        for reply in kept_replies(store, run) if replies else ():
            tables.add("replies", reply)
    return [*(folder / name for name in names), _export_run(store, run, folder, contradictions)]


def export_csv(store: Store, run: RunRecord, folder: Path, contradictions: Sequence[Count] = ()) -> list[Path]:
    """judgements.csv, one row a judgement and factor, the score empty where there is none; and run.json."""
    factors = _Factors(store)
    with _whole(folder / "judgements.csv") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for values in store.judgements(run):
            shared = [harmless(values[name]) for name in COLUMNS[:8]]
            for factor in factors.of(values):
                of_factor = factor_values(values, factor)
                of_factor["justification"] = of_factor["justification"] or of_factor["abstained"]
                table.writerow([*shared, harmless(factor), *(harmless(of_factor[name]) for name in COLUMNS[9:])])
    return [folder / "judgements.csv", _export_run(store, run, folder, contradictions)]


def _export_run(store: Store, run: RunRecord, folder: Path, contradictions: Sequence[Count]) -> Path:
    counts = [
        {"judge": judge, "rubric": rubric, "status": status, "count": count}
        for (judge, rubric, status), count in store.counts(run).items()
    ]
    used = {values["rubric_hash"] for values in store.judgements(run, fields=["rubric_hash"])}
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
        "counts": counts,
        "contradictions": [dataclasses.asdict(count) for count in contradictions],
        "rubrics": {key: value for key, value in store.rubrics().items() if key in used},
        "exported_by": {"editjudge": editjudge.__version__, "schema": schema.version()},
    }
    with _whole(folder / "run.json") as file:
        file.write(json.dumps(content, indent=2, allow_nan=False) + "\n")
    return folder / "run.json"


def taken(folder: Path, run: RunRecord) -> list[str]:
    """What an export would replace or remove there, unless the same run was exported there before."""
    tables = ("judgements", "scores", "items", "replies")
    names = ("run.json", "judgements.csv", *tables, *(f"{name}.jsonl" for name in tables if name != "scores"))
    there = [name for name in names if (folder / name).exists()]
    with suppress(ManifestError):
        about = about_run(folder)
        if (about["name"], about["spec_hash"]) == (run.name, run.spec_hash):
            return []
    return there


_ABOUT = {*RunRecord.__slots__, "rubrics", "contradictions"} - {"imported_from"}


def about_run(folder: Path) -> dict[str, Any]:
    """What run.json says."""
    path = folder / "run.json"
    try:
        about = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ManifestError(f"{path}: expected what `editjudge export` writes last: {error}") from None
    if not isinstance(about, dict) or (lacks := _ABOUT - about.keys()):
        absent = f"lacks {', '.join(sorted(lacks))}" if isinstance(about, dict) else "is no object"
        raise ManifestError(f"{path}: {absent}; expected what `editjudge export` writes")
    return about


class _Factors:
    """Which factors a task is about, also where no score says it: a failure has a row for each it left out."""

    def __init__(self, store: Store) -> None:
        self._by_hash: dict[str, list[str]] = {}
        self._by_name: dict[str, list[list[str]]] = {}
        for key, rubric in store.rubrics().items():
            self._by_hash[key] = [factor["key"] for factor in rubric["content"]["factors"]]
            self._by_name.setdefault(rubric["name"], []).append(self._by_hash[key])

    def of(self, values: dict[str, Any]) -> list[str]:
        answered = [*(values["scores"] or {}), *(values["choices"] or {}), *values["abstained"]]
        known = self._by_hash.get(values["rubric_hash"])
        named = self._by_name.get(values["rubric"], [])
        if known is None and len(named) == 1:  # not judged yet, so only the name is known
            known = named[0]
        return list(dict.fromkeys([*(known or []), *answered])) or [""]


_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?", re.ASCII)


def harmless(value: object) -> object:
    """Text that a spreadsheet does not run, and that reads the same in every program; numbers stay as they are."""
    if not isinstance(value, str):
        return "" if value is None else value
    # NUL ends the file for some readers; half a surrogate pair has no UTF-8.
    text = value.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()
    return "'" + text if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


@contextmanager
def _whole(path: Path) -> Iterator[TextIO]:
    """A file that appears when it is complete, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
