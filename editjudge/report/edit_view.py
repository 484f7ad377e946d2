"""One edit as a page shows it: its images, from where the run had them, and the question asked about it."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from editjudge import plugins
from editjudge.edit import Edit
from editjudge.errors import EditjudgeError, ImageError
from editjudge.media.image import decode, digest
from editjudge.rubrics.prompt import ask
from editjudge.running.picture_sources import picture_of
from editjudge.store.records import Item, RunRecord
from editjudge.store.store import Store

THUMBNAIL = 320
"""Pixels on the longer side of a picture in a page: 6 to 20 kB each as WebP."""


class EditView:
    """Thumbnails and questions of the edits of a run."""

    def __init__(self, run: RunRecord, store: Store) -> None:
        self._layout: Any = run.spec.get("layout", "images-first")
        self._rubrics = store.rubrics()
        self._run = run
        self._folder = run.imported_from or str(
            Path(str(run.spec.get("manifest", "."))).parent
        )

    def picture(self, item: Item, role: str) -> bytes | str | None:
        """A thumbnail, the reason why there is none to show, or None where the edit has no such picture."""
        try:
            if role == "change":
                return self._change(item)
            if role not in item.images:
                return (
                    "the editing model produced no picture"
                    if role == "edited"
                    else None
                )
            return _thumbnail(self._read(item, role), role)
        except ImageError as error:
            # Without the folder: a report is sent to others, whom the folders of this machine do not concern.
            message = str(error).replace(f"{self._folder}{os.sep}", "")
            return message.replace(self._folder, "the manifest's folder")

    def question(self, item: Item, rubric_hash: str) -> str | None:
        """Return the question of the rubric that the store has, whatever its file says today."""
        if rubric_hash not in self._rubrics:
            return None
        rubric = self._rubrics[rubric_hash]
        edit = Edit(
            item.item,
            instruction=item.instruction,
            referring_expression=item.referring_expression,
        )
        digests = {
            role: str(entry.get("digest") or "") for role, entry in item.images.items()
        }
        return str(ask(rubric, edit, digests, self._layout))

    def _read(self, item: Item, role: str) -> bytes:
        data = picture_of(self._run, item, role)
        if item.images[role].get("digest") not in (None, digest(data)):
            name = Path(str(item.images[role]["source"])).name
            raise ImageError(f"{name}: is another picture than the one that was judged")
        return data

    def _change(self, item: Item) -> bytes | None:
        before = "input" if "input" in item.images else "ground_truth"
        if not {before, "edited"} <= set(item.images):
            return None
        try:
            draw = plugins.load("evidence", "measured", "the map of changes")
        except plugins.MissingExtra:
            return None
        mask = self._read(item, "mask") if "mask" in item.images else None
        try:
            pictures: dict[str, bytes] = draw(
                self._read(item, before), self._read(item, "edited"), mask
            )
        except EditjudgeError:
            return None  # the images themselves say why
        return (
            _thumbnail(pictures["change"], "change") if "change" in pictures else None
        )


def _thumbnail(data: bytes, name: str) -> bytes:
    image = decode(data, name=name)
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    out = io.BytesIO()
    image.save(out, "WEBP", quality=75, method=4)
    return out.getvalue()
