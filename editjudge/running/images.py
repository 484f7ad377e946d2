"""Images of a run: the image regions that rubrics show, and the image files that a stored run may show.

A rubric can show `edited@box` (the region in a box that a column of the edit gives), `edited@change` (the region that
changed) or `edited@change_map` (the image with the measured change drawn over it). A box is four numbers (left, top,
right and bottom) or an object with `x`, `y`, `width` and `height`. Numbers are pixels, or fractions of the image's
width and height if all are from 0 to 1. The part of a box outside the image is cut off.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from editjudge import plugins
from editjudge.edit import Edit
from editjudge.errors import ImageError
from editjudge.media.image import (
    EncodedImage,
    ImageLimits,
    decode,
    digest,
    prepare,
    probe,
)
from editjudge.media.source import BYTES, DATA_URL, confine, is_url, name_of, read
from editjudge.store.records import Item, RunRecord

Box = tuple[int, int, int, int]
MEASURED = ("change", "change_or_all", "change_map")
"""Regions that are found by comparing the edited image with the input."""
REGION_VERSION = 1
"""Version of the method that finds the changed region. It is part of every task key that depends on the method."""
_MARGIN = 0.1
"""Margin around a region, as a share of its longer side, so a judge sees the surroundings of a change."""
_FIELDS = (("x", "y", "width", "height"), ("x", "y", "w", "h"))


class RegionMissing(ImageError):
    """Raised when an image does not have the requested region."""


@dataclass(frozen=True)
class ImageRegion:
    """A region of an image that a rubric names."""

    role: str
    """Role of the image, such as `edited` or `references[1]`."""
    name: str
    """Column of the edit with the box, or one of `MEASURED`."""

    @classmethod
    def of(cls, role: str) -> ImageRegion:
        image, _, name = role.partition("@")
        return cls(image, name)

    def __str__(self) -> str:
        return f"{self.role}@{self.name}"

    def box(self, edit: Edit, width: int, height: int) -> Box:
        """Return the box in pixels of the displayed image. Raise `RegionMissing` if the edit has no such box."""
        value = edit.value(self.name)
        if isinstance(value, str):
            with suppress(ValueError, RecursionError):
                value = json.loads(value)
        numbers = _corners(value)
        if numbers is None:
            raise RegionMissing(
                f"{edit.id}: {self}: found {value!r:.80}, expected a box: left, top, right, bottom",
                code="bad_box",
            )
        if all(0 <= number <= 1 for number in numbers):
            sides = (width, height) * 2
            numbers = [n * side for n, side in zip(numbers, sides, strict=True)]
        left, top, right, bottom = (round(number) for number in numbers)
        box = max(0, left), max(0, top), min(width, right), min(height, bottom)
        if box[0] >= box[2] or box[1] >= box[3]:
            raise RegionMissing(
                f"{edit.id}: {self}: the box {value!r:.80} holds nothing of {width} x {height} pixels"
            )
        return box

    def cut_out(
        self, edit: Edit, image: bytes, before: bytes | None, limits: ImageLimits
    ) -> EncodedImage:
        """Return the region as an image that is prepared for a judge. `before` is the input, which is needed for
        measured regions.
        """
        name = str(self)
        if self.name == "change_map":
            data = self._change_map(image, before)
        else:
            pixels = decode(image, name=name)
            is_box = self.name not in ("change", "change_or_all")
            box = (
                self.box(edit, *pixels.size)
                if is_box
                else self._changed_box(image, before)
            )
            out = io.BytesIO()
            pixels.crop(box).save(out, "PNG", compress_level=1)
            data = out.getvalue()
        prepared = prepare(data, probe(data, name=name), limits, name=name)
        return prepared.for_judge(digest(image), limits)

    def _changed_box(self, edited: bytes, before: bytes | None) -> Box:
        if before is None:
            raise RegionMissing(f"{self}: there is no input to compare it with")
        box: Box | None = plugins.load("regions", "change", str(self))(before, edited)
        if box is None and self.name == "change_or_all":
            return (0, 0, *probe(edited, name=str(self)).display_size)
        if box is None:
            raise RegionMissing(f"{self}: no part of the image differs from the input")
        left, top, right, bottom = box
        margin = round(_MARGIN * max(right - left, bottom - top))
        width, height = probe(edited, name=str(self)).display_size
        return (
            max(0, left - margin),
            max(0, top - margin),
            min(width, right + margin),
            min(height, bottom + margin),
        )

    def _change_map(self, edited: bytes, before: bytes | None) -> bytes:
        if before is None:
            raise RegionMissing(f"{self}: there is no input to compare it with")
        draw = plugins.load("evidence", "measured", str(self))
        drawings: dict[str, bytes] = draw(before, edited)
        if "change" not in drawings:
            raise RegionMissing(f"{self}: the images are too small to be measured")
        return drawings["change"]


def _corners(value: object) -> list[float] | None:
    """Return a box as left, top, right and bottom, or None if the value is not a box."""
    if isinstance(value, Mapping):
        fields = next((names for names in _FIELDS if set(names) == set(value)), ())
        sides = [value[name] for name in fields]
        if not _are_numbers(sides):
            return None
        left, top, width, height = sides
        return [left, top, left + width, top + height]
    return value if _are_numbers(value) else None


def _are_numbers(value: object) -> TypeGuard[list[float]]:
    return (
        isinstance(value, list)
        and len(value) == 4
        and all(type(n) in (int, float) and abs(n) < 1e6 for n in value)
    )


# --- images of a stored run -----------------------------------------------------------------------------------


def root_of(run: RunRecord) -> Path | None:
    """Return the folder that must contain a run's images, or None if the run may read images anywhere. An imported run
    may read only the folder of the import, since another person wrote its spec.
    """
    if run.imported_from is not None:
        return Path(run.imported_from)
    if run.spec.get("allow_outside"):
        return None
    manifest = Path(str(run.spec.get("manifest", "")))
    return manifest if manifest.is_dir() else manifest.parent


def image_path(run: RunRecord, item: Item, role: str) -> Path:
    """Return the path of an image file. Raise `ImageError` if it is not in a folder that the run may read."""
    source = item.images.get(role, {}).get("source")
    imported = run.imported_from is not None
    if source is None:
        raise ImageError(f"the edit has no {role.replace('_', ' ')} image")
    if source in (DATA_URL, BYTES):
        raise ImageError("came inside the manifest, and is not kept in the store")
    if is_url(source):
        raise ImageError("is at an address, from which nothing is fetched")
    if not imported and not isinstance(run.spec.get("manifest"), str):
        raise ImageError("the run does not state the folder of its images")
    if not Path(source).is_absolute():
        raise ImageError(f"{name_of(source)}: the image was not kept as a file")
    root = root_of(run)
    if root is None:
        return Path(source)
    try:
        confine(source, root)
    except (OSError, ValueError) as error:
        raise ImageError(f"{name_of(source)}: cannot be read: {error}") from None
    except ImageError as error:
        if not imported:
            raise
        raise ImageError(
            f"{error}; an imported run shows only images in its own folder, or in the folder of "
            "`import-run --pictures`"
        ) from None
    return Path(source)


def image_of(run: RunRecord, item: Item, role: str) -> bytes:
    """Return the encoded bytes of an edit's image."""
    return read(image_path(run, item, role), root=root_of(run))
