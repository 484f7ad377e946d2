"""Where the judgements of a split go: into the store that all workers reach, or into shards of their own.

A store keeps each judgement as it comes; a shard is written when its split
is through, in the place of the one that was there, with what that had and need not be asked again.
"""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from editjudge.cluster.shard_run import is_folder, whole
from editjudge.cluster.splits import Split, filesystem
from editjudge.errors import StoreError
from editjudge.judgement import DONE, Judgement, Task, factor_values, from_row, row
from editjudge.run.plan import QuestionSettings
from editjudge.store.records import PENDING, Item, RunRecord
from editjudge.store.rows import as_json, reply_rows
from editjudge.store.sink import Sink
from editjudge.store.store import Store


class SplitSink(Sink, Protocol):
    """What the judgements of one split are written to."""

    store: Store | None
    """None where this worker alone writes."""

    def close(self) -> None: ...


def split_sinks(place: str, run: RunRecord, shape: QuestionSettings) -> Callable[[Split], SplitSink]:
    """Opens one for each split."""
    if is_folder(place):
        return lambda split: SplitPart(place, split, shape)
    store = _reached(place, run)
    return lambda split: SplitSection(store, split, shape)


def _reached(place: str, run: RunRecord) -> Store:
    """A node that cannot see the file of the others must not begin one of its own."""
    try:
        if "://" not in place:
            Store.open(place, readonly=True).close()
        # A password does not travel: a server's address that has one is in this node's own environment.
        store = Store.open(os.environ.get("EDITJUDGE_STORE", place) if "***" in place else place)
        if store.find_run(run.name).spec_hash == run.spec_hash:
            return store
        why = f'its run "{run.name}" is another one'
    except StoreError as error:
        why = str(error)
    raise StoreError(
        f"{place} is not the same store on every node of the cluster ({why}): "
        "use --store postgresql://..., or a folder or address that all of them reach, for shards"
    )


class SplitSection:
    """The part of a store that one split fills: the same store, counting from another position."""

    def __init__(self, store: Store, split: Split, shape: QuestionSettings) -> None:
        self.store: Store | None = store
        self._store, self._first = store, split.position
        self._first_task = split.position * shape.questions
        self.load_digests, self.save_digests = store.load_digests, store.save_digests
        self.done, self.judgement, self.write = store.done, store.judgement, store.write

    def add_items(self, run: int, rows: Iterable[Item], start: int = 0) -> int:
        return self._store.add_items(run, rows, self._first + start) - self._first

    def add_tasks(self, run: int, added: Iterable[Task], start: int = 0) -> int:
        return self._store.add_tasks(run, added, self._first_task + start) - self._first_task

    def close(self) -> None:
        """The others go on with it."""


@dataclass
class SplitPart:
    """One part of each table of `editjudge.store.shards`."""

    folder: str
    split: Split
    shape: QuestionSettings
    items: dict[int, Item] = field(default_factory=dict)
    tasks: list[tuple[int, Task]] = field(default_factory=list)
    """By position in the run."""
    judgements: dict[str, Judgement] = field(default_factory=dict)
    store: Store | None = None

    def __post_init__(self) -> None:
        self._rows = self._read("judgements")
        self._before = {values["key"]: values for values in self._rows}

    def load_digests(self, paths: Sequence[str]) -> dict[str, Any]:
        return {}

    def save_digests(self, remembered: Mapping[str, Any]) -> None:
        """There is nowhere to keep them: on resuming each picture is read again, by whoever has the split then."""

    def add_items(self, run: int, rows: Iterable[Item], start: int = 0) -> int:
        added = dict(enumerate(rows, self.split.position + start))
        self.items |= added
        return start + len(added)

    def add_tasks(self, run: int, added: Iterable[Task], start: int = 0) -> int:
        first = self.split.position * self.shape.questions
        more = list(enumerate(added, first + start))
        self.tasks += more
        return start + len(more)

    def done(self, keys: Sequence[str]) -> dict[str, str]:
        statuses = {key: self._before[key]["status"] for key in keys if key in self._before}
        return {key: status for key, status in statuses.items() if status in DONE}

    def judgement(self, key: str) -> Judgement | None:
        earlier = self._before.get(key)
        return self.judgements.get(key) or (from_row(earlier) if earlier and earlier["status"] in DONE else None)

    def write(self, batch: Sequence[Judgement]) -> None:
        for judgement in batch:  # what cannot be written fails here, alone, and not at the end with its whole split
            as_json([row(judgement, "", None, None), *_replies(judgement)])
        self.judgements |= {judgement.key: judgement for judgement in batch}

    def close(self) -> None:
        """The table that says what was judged goes last: where it is, the others are."""
        items = {item.item: item for item in self.items.values()}
        rows = [self._row(position, task, items[task.item]) for position, task in sorted(self.tasks, key=_by_judge)]
        if rows == self._rows:
            return
        replies = [*self._read("replies"), *(reply for j in self.judgements.values() for reply in _replies(j))]
        self._write("items", [item._asdict() for _, item in sorted(self.items.items())])
        self._write("scores", [score for values in rows for score in self._scores(values)])
        self._write("replies", [reply for reply in replies if reply["key"] in {values["key"] for values in rows}])
        self._write("judgements", rows)

    def _row(self, position: int, task: Task, item: Item) -> dict[str, Any]:
        if judgement := self.judgements.get(task.key):
            values = _plain(row(judgement, item.item, item.model, item.group, task.variant))
        else:
            values = self._before.get(task.key) or _pending(task)
        about = {"item": item.item, "model": item.model, "group": item.group, "edit_type": item.edit_type}
        return {**values, **about, "position": position}

    def _scores(self, values: dict[str, Any]) -> Iterable[dict[str, Any]]:
        (rubric,) = (rubric for rubric in self.shape.rubrics if rubric.name == values["rubric"])
        for key in (factor.key for factor in rubric.factors):
            yield {**values, "factor": key, **factor_values(values, key)}

    # --- files ------------------------------------------------------------------------------------------------

    def _path(self, table: str) -> tuple[Any, str]:
        # Nine digits, so that names sort as numbers do.
        return filesystem(posixpath.join(self.folder, table, f"part-{self.split.number:09}.parquet"))

    def _read(self, table: str) -> list[dict[str, Any]]:
        import pyarrow.parquet as pq

        from editjudge.store import shards

        system, path = self._path(table)
        if not system.get_file_info(path).is_file:
            return []
        rows = shards.decoded(table, pq.read_table(path, filesystem=system))
        return [shards.with_added(values) for values in rows] if table == "judgements" else rows

    def _write(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from editjudge.store import shards

        system, path = self._path(table)
        system.create_dir(posixpath.dirname(path), recursive=True)
        out = pa.BufferOutputStream()
        pq.write_table(shards.encoded(table, rows), out, compression="zstd")
        whole(system, path, out.getvalue())


def _by_judge(placed: tuple[int, Task]) -> tuple[int, str]:
    return placed[0], placed[1].judge


def _pending(task: Task) -> dict[str, Any]:
    """As a store shows a task that no judgement is kept of."""
    nothing = Judgement(task.key, "invalid", task.judge, task.rubric, "", task.repeat)
    return _plain(row(nothing, task.item, None, None, task.variant)) | {
        "status": PENDING,
        "rubric_hash": None,
        "created": None,
    }


def _replies(judgement: Judgement) -> Iterable[dict[str, Any]]:
    for values, exchange in zip(reply_rows(judgement), judgement.exchanges, strict=True):
        yield _plain({**values, "text": exchange.text})


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """As it will be read: with lists for tuples, and words for numbers as names."""
    plain: dict[str, Any] = json.loads(as_json(values))
    return plain
