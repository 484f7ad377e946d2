"""What workers leave behind: Parquet files, one for each piece of a manifest."""

from __future__ import annotations

import dataclasses
import json
import posixpath
from collections.abc import Iterator, Sequence
from typing import Any

from editjudge.judgement import Exchange, Judgement, Task, Usage
from editjudge.rubrics.contract import Remark
from editjudge.run.ray.pieces import filesystem
from editjudge.store.schema import as_json
from editjudge.store.store import Item


def place(folder: str, piece: int, session: str) -> str:
    return posixpath.join(folder, f"{piece:09d}-{session}.parquet")


def exists(path: str) -> bool:
    system, inside = filesystem(path)
    return bool(system.get_file_info(inside).is_file)


def write(
    path: str, items: Sequence[tuple[int, Item]], tasks: Sequence[tuple[int, Task]], said: Sequence[Judgement]
) -> None:
    """A shard that appears when it is complete: a store of objects shows them so, a disk when they are renamed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [("item", n, as_json(dataclasses.asdict(item))) for n, item in items]
    rows += [("task", n, as_json(dataclasses.asdict(task))) for n, task in tasks]
    rows += [("judgement", 0, as_json(dataclasses.asdict(judgement))) for judgement in said]
    columns = dict(zip(("kind", "position", "value"), map(list, zip(*rows, strict=True)), strict=True))
    system, inside = filesystem(path)
    system.create_dir(posixpath.dirname(inside), recursive=True)
    partial = f"{inside}.partial"
    with system.open_output_stream(partial) as out:
        pq.write_table(pa.table(columns), out)
    system.move(partial, inside)


def read(path: str) -> tuple[list[tuple[int, Item]], list[tuple[int, Task]], list[Judgement]]:
    import pyarrow.parquet as pq

    system, inside = filesystem(path)
    rows = pq.read_table(inside, filesystem=system).to_pylist()
    values = {kind: [(r["position"], json.loads(r["value"])) for r in rows if r["kind"] == kind] for kind in _KINDS}
    items = [(n, Item(**value)) for n, value in values["item"]]
    tasks = [(n, Task(**value)) for n, value in values["task"]]
    return items, tasks, [_judgement(value) for _, value in values["judgement"]]


_KINDS = ("item", "task", "judgement")


def _judgement(value: dict[str, Any]) -> Judgement:
    def remarks(some: list[dict[str, Any]]) -> tuple[Remark, ...]:
        return tuple(Remark(**remark) for remark in some)

    value |= {name: remarks(value[name]) for name in ("violations", "notes", "reasons")}
    value["exchanges"] = tuple(
        Exchange(**{**e, "usage": Usage(**e["usage"]), "reasons": remarks(e["reasons"])}) for e in value["exchanges"]
    )
    return Judgement(**value)


def listed(folder: str) -> Iterator[str]:
    """All that are complete."""
    from pyarrow import fs

    system, inside = filesystem(folder)
    found = system.get_file_info(fs.FileSelector(inside, allow_not_found=True))
    names = sorted(info.base_name for info in found if info.base_name.endswith(".parquet"))
    return (posixpath.join(folder, name) for name in names if name != "edits.parquet")


def remove(path: str) -> None:
    system, inside = filesystem(path)
    system.delete_file(inside)
