"""A run's own pictures as a browser may have them: named by its items, confined to its folder, bounded."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from editjudge.errors import ImageError
from editjudge.media.cache import DigestCache, PictureReader
from editjudge.media.image import ImageLimits, Prepared, name_of, prepare, probe
from editjudge.run.picture_sources import picture_of, picture_path, root_of
from editjudge.store.records import Item, RunRecord
from editjudge.store.store import Store

ROLES = {
    "input": "Input",
    "edited": "Edited",
    "edited_a": "Output A",
    "edited_b": "Output B",
    "ground_truth": "Ground truth",
    "mask": "Mask",
}
_SHOWN = ImageLimits(formats=frozenset({"jpeg", "png", "webp", "gif"}))
"""What every browser shows; anything else is made one of them."""
_SIDES = (160, 480)
"""Longest sides that thumbnails have: few, so that nobody makes the server scale at will."""
_KEPT = 24
"""Evidence of so many edits is kept: it takes a second to measure, and is looked at several times."""


def tag(run: RunRecord, item: Item, role: str, side: str) -> str:
    """Changes when the file does, and is known without reading it."""
    try:
        status = picture_path(run, item, role).stat()
    except OSError as error:
        raise ImageError(f"{name_of(str(item.images[role]['source']))}: {error.strerror}") from None
    return f'"{status.st_mtime_ns:x}-{status.st_size:x}-{side if side in map(str, _SIDES) else ""}"'


def shown(run: RunRecord, item: Item, role: str, side: str) -> Prepared:
    """Untouched where browsers can show it, else encoded again; smaller where a thumbnail is asked for."""
    encoded = picture_of(run, item, role)
    name = name_of(str(item.images[role]["source"]))
    limits = ImageLimits(_SHOWN.formats, int(side)) if side in map(str, _SIDES) else _SHOWN
    return prepare(encoded, probe(encoded, name=name), limits, name=name)


def states(store: Store, run: RunRecord, item: Item) -> dict[str, dict[str, Any]]:
    """Each picture that the edit names: whether it is there, how large, and whether it is what was judged."""
    digests = DigestCache(PictureReader(root=root_of(run)))
    digests.load(store.load_digests([str(image["source"]) for image in item.images.values()]))
    usual = [role for role in ROLES if role in item.images]
    return {role: _state(digests, run, item, role) for role in (*usual, *(r for r in item.images if r not in ROLES))}


def title_of(role: str) -> str:
    """What a page calls a picture or a text of an edit."""
    return ROLES.get(role) or role.replace("_", " ").capitalize()


def _state(digests: DigestCache, run: RunRecord, item: Item, role: str) -> dict[str, Any]:
    try:
        known = digests.known(picture_path(run, item, role))
    except ImageError as error:
        return {"problem": str(error), "size": None, "changed": False}
    if known is None:
        return {"problem": "the file is not there", "size": None, "changed": False}
    return {
        "problem": known.problem,
        "size": known.info.shown if known.info else None,
        "changed": item.images[role].get("digest") not in (None, known.digest),
    }


class Evidence:
    """Pictures of what the embedded judge measures, made when they are looked at, one edit at a time."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, str], dict[str, bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, run: RunRecord, item: Item, evidence: dict[str, Any]) -> dict[str, bytes]:
        from editjudge.measured import evidence_pictures, missing

        if lacking := missing():
            raise ImageError(f"evidence needs an extra ({', '.join(lacking)}): pip install 'editjudge[measured]'")
        with self._lock:
            if (key := (run.id, item.item)) not in self._kept:
                mask = picture_of(run, item, "mask") if "mask" in item.images else None
                pictures = evidence_pictures(
                    picture_of(run, item, "input"), picture_of(run, item, "edited"), mask, evidence
                )
                self._kept[key] = pictures
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            return self._kept[key]
