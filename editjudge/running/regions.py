"""A picture shown as a part of itself: `edited@box` by a box of the edit, `edited@change` by what changed, and
`edited@change_map`, the picture with its measured change drawn over it.

A box is four numbers, left, top, right and bottom: pixels, or shares of the picture's sides where all are from 0 to 1;
or an object with `x`, `y`, `width` and `height`. What of it lies outside the picture is cut off.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

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

Box = tuple[int, int, int, int]
MEASURED = ("change", "change_map")
"""Regions that are found by comparing the edited picture with the input."""
VERSION = 1
"""Version of how the changed region is found: part of every key that depends on it."""
_MARGIN = 0.1
"""Margin around a region, as a share of its longer side: a judge sees what a change borders on."""
_FIELDS = (("x", "y", "width", "height"), ("x", "y", "w", "h"))


class PartMissing(ImageError):
    """There is no such part of a picture."""


@dataclass(frozen=True)
class PicturePart:
    """The part of a picture that a rubric names."""

    picture: str
    name: str

    @classmethod
    def of(cls, role: str) -> PicturePart:
        picture, _, name = role.partition("@")
        return cls(picture, name)

    def box(self, edit: Edit, width: int, height: int) -> Box:
        """In pixels of the picture as it is shown. Raises `PartMissing` where the edit has no such box."""
        value = edit.value(self.name)
        if isinstance(value, str):
            with suppress(ValueError, RecursionError):
                value = json.loads(value)
        numbers = _numbers(value)
        if numbers is None:
            raise PartMissing(
                f"{edit.id}: {self.picture}@{self.name}: found {value!r:.80}, expected a box: left, top, right, bottom"
            )
        if all(0 <= number <= 1 for number in numbers):
            numbers = [
                number * side
                for number, side in zip(numbers, (width, height) * 2, strict=True)
            ]
        left, top, right, bottom = (round(number) for number in numbers)
        box = max(0, left), max(0, top), min(width, right), min(height, bottom)
        if box[0] >= box[2] or box[1] >= box[3]:
            what = f"the box {value!r:.80} holds nothing of {width} x {height} pixels"
            raise PartMissing(f"{edit.id}: {self.picture}@{self.name}: {what}")
        return box


def _numbers(value: Any) -> list[float] | None:
    """Left, top, right and bottom."""
    if isinstance(value, Mapping):
        fields = next((names for names in _FIELDS if set(names) == set(value)), None)
        value = [value[name] for name in fields] if fields else None
        if _are_numbers(value):
            value = [value[0], value[1], value[0] + value[2], value[1] + value[3]]
    return list(value) if _are_numbers(value) else None


def _are_numbers(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 4
        and all(
            isinstance(n, int | float) and not isinstance(n, bool) and abs(n) < 1e6
            for n in value
        )
    )


def cut_out(
    region: PicturePart,
    edit: Edit,
    picture: bytes,
    before: bytes | None,
    limits: ImageLimits,
) -> EncodedImage:
    """The part of a picture, prepared for a judge; `before` is the input, where the region is what changed."""
    name = f"{region.picture}@{region.name}"
    if region.name == "change_map":
        data = _change_map(picture, before, name)
    else:
        pixels = decode(picture, name=name)
        changed = (
            _changed_box(picture, before, name) if region.name == "change" else None
        )
        box = changed or region.box(edit, *pixels.size)
        out = io.BytesIO()
        pixels.crop(box).save(out, "PNG", compress_level=1)
        data = out.getvalue()
    prepared = prepare(data, probe(data, name=name), limits, name=name)
    return prepared.for_judge(digest(picture), limits)


def _changed_box(edited: bytes, before: bytes | None, name: str) -> Box:
    if before is None:
        raise PartMissing(f"{name}: there is no input to compare it with")
    box: Box | None = plugins.load("regions", "change", name)(before, edited)
    if box is None:
        raise PartMissing(f"{name}: no part of the picture differs from the input")
    margin = round(_MARGIN * max(box[2] - box[0], box[3] - box[1]))
    info = probe(edited, name=name)
    width, height = info.shown
    left = max(0, box[0] - margin)
    top = max(0, box[1] - margin)
    return left, top, min(width, box[2] + margin), min(height, box[3] + margin)


def _change_map(edited: bytes, before: bytes | None, name: str) -> bytes:
    if before is None:
        raise PartMissing(f"{name}: there is no input to compare it with")
    draw = plugins.load("evidence", "measured", name)
    images: dict[str, bytes] = draw(before, edited)
    if "change" not in images:
        raise PartMissing(f"{name}: the pictures are too small to be measured")
    return images["change"]
