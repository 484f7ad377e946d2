"""Tags and a note of edits, from reviewers.

An edit is its input, output and instruction, as for ratings: a tag belongs to every run that has that very edit.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import sqlalchemy as sa

from editjudge.errors import UsageError
from editjudge.matching import Content
from editjudge.store.records import Item, RunRecord
from editjudge.store.schema import edit_annotations, items, upsert
from editjudge.store.store import Store

TAG = 40
TAGS = 12
NOTE = 4_000
"""Most letters of a tag, tags of an edit, and letters of a note."""


@dataclass(frozen=True, slots=True)
class Annotation:
    tags: tuple[str, ...] = ()
    note: str = ""

    def as_json(self) -> dict[str, object]:
        return {"tags": list(self.tags), "note": self.note}


def clean_tags(words: Iterable[str]) -> tuple[str, ...]:
    """Tags as they are kept: one line each, without commas, each once."""
    tags = (
        " ".join(
            "".join(c if c.isprintable() and c != "," else " " for c in word).split()
        )
        for word in words
    )
    unique = tuple(dict.fromkeys(tag for tag in tags if tag))
    if long := [tag for tag in unique if len(tag) > TAG]:
        raise UsageError(
            f"the tag {long[0][:TAG]!r}… has {len(long[0])} letters: the limit is {TAG}"
        )
    if len(unique) > TAGS:
        raise UsageError(f"an edit has at most {TAGS} tags; {len(unique)} were given")
    return unique


def annotate(store: Store, item: Item, tags: Iterable[str], note: str) -> Annotation:
    """Replace the tags and the note of an edit; without either, nothing is kept."""
    annotation = Annotation(clean_tags(tags), note.replace("\r\n", "\n").strip())
    if len(annotation.note) > NOTE:
        raise UsageError(
            f"the note has {len(annotation.note):,} letters: the limit is {NOTE:,}"
        )
    content = Content.of(item).key()
    row = {
        "content": content,
        "tags": annotation.tags,
        "note": annotation.note,
        "updated": time.time(),
    }

    def work(connection: sa.Connection) -> None:
        if annotation == Annotation():
            connection.execute(
                sa.delete(edit_annotations).where(edit_annotations.c.content == content)
            )
        else:
            connection.execute(
                upsert(store._dialect, edit_annotations, ("tags", "note", "updated")),
                row,
            )

    store._transact(work)
    return annotation


def annotations_of(
    store: Store, run: RunRecord, names: Collection[str] | None = None
) -> dict[str, Annotation]:
    """Return the notes of a run's edits, by item."""
    query = sa.select(
        items.c.item, edit_annotations.c.tags, edit_annotations.c.note
    ).select_from(_ANNOTATED)
    query = query.where(items.c.run_id == run.id)
    if names is not None:
        query = query.where(items.c.item.in_(list(names)))
    return {
        item: Annotation(tuple(tags), note) for item, tags, note in store._stream(query)
    }


_ANNOTATED = items.join(edit_annotations, edit_annotations.c.content == items.c.content)
