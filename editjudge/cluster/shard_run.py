"""A run whose result is a folder of shards, on a disk or in a store of objects: what the driver asks of a store."""

from __future__ import annotations

import dataclasses
import json
import posixpath
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import editjudge
from editjudge.canonical import json_hash
from editjudge.cluster.splits import filesystem
from editjudge.errors import StoreError
from editjudge.rubrics.model import Rubric
from editjudge.store.records import PENDING, RunRecord, State


def is_folder(place: str) -> bool:
    """Whether shards are wanted, rather than a database."""
    if "://" in place:
        return place.partition(":")[0].partition("+")[0] not in ("sqlite", "postgres", "postgresql")
    return place.endswith("/") or Path(place).is_dir()


class ShardRun:
    """Laid out as `editjudge.store.shards` says; run.json is there from the beginning, and says how far the run is."""

    def __init__(self, place: str) -> None:
        self.place = place.rstrip("/")
        self._system, self._root = filesystem(self.place)
        self._about: dict[str, Any] = {}

    def __enter__(self) -> ShardRun:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing is held open."""

    def open_run(self, name: str, spec: Mapping[str, Any]) -> RunRecord:
        spec_hash, now = json_hash(spec), time.time()
        self._about = self._read()
        if self._about and (self._about["name"], self._about["spec_hash"]) != (name, spec_hash):
            raise StoreError(
                f'{self.place}: holds the run "{self._about["name"]}", with another spec or name: '
                "give this run another folder, or run with the same options to resume"
            )
        new = RunRecord(1, name, dict(spec), spec_hash, "running", now, now, None, editjudge.__version__)
        about = {**dataclasses.asdict(new), "contradictions": []} | self._about
        self._about = about | {"state": "running", "updated": now}
        return RunRecord(**{field: self._about[field] for field in RunRecord.__slots__ if field in self._about})

    def add_rubrics(self, added: Sequence[Rubric]) -> None:
        contents = {r.hash: {"name": r.name, "content": r.content()} for r in added}
        self._write({"rubrics": contents})

    def split_size(self, suitable: int) -> int:
        """Edits of a split: as before where the run resumes, so that each split finds its own shard."""
        size: int = self._about.get("piece_size", suitable)
        self._write({"piece_size": size})
        return size

    def expect(self, edits_by_model: Mapping[str, int], places: Sequence[tuple[str, int, str]]) -> None:
        """Keep how many edits are to be judged, and the rubric, repeat and variant of every question about one."""
        self._write({"expected": {"edits": dict(edits_by_model), "questions": [list(place) for place in places]}})

    def keep_parts(self, count: int) -> None:
        """Remove what belongs to splits that are no longer there: a manifest may have become shorter."""
        from pyarrow import fs

        for info in self._system.get_file_info(fs.FileSelector(self._root, allow_not_found=True, recursive=True)):
            number = info.base_name.removeprefix("part-").removesuffix(".parquet")
            if info.is_file and number.isdecimal() and int(number) >= count:
                self._system.delete_file(info.path)

    def judgements(
        self, run: RunRecord | int, *, fields: Collection[str], status: Collection[str] | None = None
    ) -> Iterator[dict[str, Any]]:
        import pyarrow.dataset as ds

        from editjudge.store import shards

        folder = posixpath.join(self._root, "judgements")
        if not self._system.get_file_info(folder).is_file:
            self._system.create_dir(folder, recursive=True)
        names = list(fields)
        data = ds.dataset(folder, shards.TABLES["judgements"], "parquet", self._system)
        wanted = None if status is None else ds.field("status").isin(list(status))
        for batch in data.to_batches(columns=names, filter=wanted, fragment_readahead=1, batch_readahead=2):
            yield from shards.decoded("judgements", batch)
        if status is None or PENDING in status:
            for row in shards.not_planned(self._about, self._models()):
                yield {name: row[name] for name in names}

    def _models(self) -> Counter[str]:
        """How many edits of each model the parts have."""
        import pyarrow.dataset as ds

        from editjudge.store import shards

        folder = posixpath.join(self._root, "items")
        self._system.create_dir(folder, recursive=True)
        models: Counter[str] = Counter()
        for batch in ds.dataset(folder, shards.TABLES["items"], "parquet", self._system).to_batches(columns=["model"]):
            models.update(row["model"] or "" for row in shards.decoded("items", batch))
        return models

    def mark(self, run: RunRecord, state: State, summary: Mapping[str, Any] | None = None) -> None:
        self._write({"state": state, "updated": time.time(), "summary": summary})

    def _read(self) -> dict[str, Any]:
        path = posixpath.join(self._root, "run.json")
        if not self._system.get_file_info(path).is_file:
            return {}
        with self._system.open_input_stream(path) as file:
            about: dict[str, Any] = json.loads(file.read())
        return about

    def _write(self, more: Mapping[str, Any]) -> None:
        self._about |= more
        self._system.create_dir(self._root, recursive=True)
        whole(self._system, posixpath.join(self._root, "run.json"), json.dumps(self._about, indent=2).encode())


def whole(system: Any, path: str, data: bytes) -> None:
    """A file that appears when it is complete: a disk shows it while it is written, a store of objects does not."""
    from pyarrow import fs

    partial = posixpath.join(posixpath.dirname(path), f".{posixpath.basename(path)}.partial")
    with system.open_output_stream(partial if isinstance(system, fs.LocalFileSystem) else path) as out:
        out.write(data)
    if isinstance(system, fs.LocalFileSystem):
        system.move(partial, path)
