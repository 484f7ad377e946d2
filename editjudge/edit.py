"""One edit to judge: the images before and after, and the instruction.

The usual inputs (`input`, `edited`, `instruction` ...) are fields. A rubric may use any other column of a manifest as
an image, a list of images or a text. Such images are in `images`, and such texts in `metadata`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from editjudge.values import column, is_given, listed

ImageSource: TypeAlias = Path | bytes | str
"""A file, an encoded image, or an http(s) address."""

IMAGE_ROLES = ("input", "edited", "ground_truth", "mask")
"""Names of the usual images of an edit in manifests and rubrics."""

TEXT_ROLES = ("instruction", "referring_expression")
"""Names of the usual texts of an edit in manifests and rubrics."""

OUTPUT_ROLES = ("edited", "edited_a", "edited_b")
"""Images that an editing model made; a missing one means that the model produced nothing."""

PAIR_ROLES = ("edited_a", "edited_b")
"""The two outputs of a pair."""

MAX_IMAGES = 16
"""Maximum number of images in a list: more than any published protocol uses, and few enough for one request."""

_TEXT_FIELDS = frozenset(("id", *TEXT_ROLES, "model", "edit_type", "group"))
_NUMBERED = re.compile(r"\[\d+\]$")


def column_of(name: str) -> str:
    """Return the manifest column that an image comes from: `references` for `references[2]` and `references@box`."""
    return _NUMBERED.sub("", name.partition("@")[0])


def named_images(
    columns: Mapping[str, ImageSource | list[ImageSource]],
) -> dict[str, ImageSource]:
    """Return images, keyed by their names in an edit. The images in a list are named `references[1]`, `references[2]`
    ...
    """
    images: dict[str, ImageSource] = {}
    for name, sources in columns.items():
        if isinstance(sources, list):
            for number, source in enumerate(sources, 1):
                images[f"{name}[{number}]"] = source
        else:
            images[name] = sources
    return images


class DegenerateImage(NamedTuple):
    """An image that cannot be a good edit for any instruction, such as a flat colour."""

    kind: str
    role: str
    words: str
    """Predicate whose subject is the image, such as "is one flat colour"."""
    set_aside: bool = True
    """Whether the reward is decided without a judge. If not, the finding is only a flag on the answer."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit: its images, its texts, and the model that made it."""

    id: str
    input: ImageSource | None = None
    edited: ImageSource | None = None
    """The edited image; None if the model produced nothing."""
    instruction: str = ""
    ground_truth: ImageSource | None = None
    mask: ImageSource | None = None
    """Image that is white inside the region to be edited."""
    referring_expression: str = ""
    """Description of the object to edit, if the instruction alone is ambiguous."""
    model: str | None = None
    edit_type: str | None = None
    group: str | None = None
    """Name of the source image, which several edits may share. Statistics are clustered by it."""
    metadata: Mapping[str, object] = field(default_factory=dict)
    images: Mapping[str, ImageSource] = field(default_factory=dict)
    """Extra images that a rubric uses, keyed by name. The images in a list are named `references[1]`, `references[2]`
    ...
    """

    def image(self, name: str) -> ImageSource | None:
        """Return the image with this name, or None if the edit does not have it. For a crop (`input@box`), return the
        full image.
        """
        name = name.partition("@")[0]
        source: ImageSource | None = (
            getattr(self, name) if name in IMAGE_ROLES else self.images.get(name)
        )
        return source

    @property
    def outputs(self) -> tuple[str, ...]:
        """Roles of the images that a model made: `edited`, or both outputs of a pair."""
        is_pair = self.edited is None and not self.images.keys().isdisjoint(PAIR_ROLES)
        return PAIR_ROLES if is_pair else ("edited",)

    def image_names(self, role: str) -> tuple[str, ...]:
        """Return the names of the images that have a role: the role itself or, if it is a list, a name for each image."""
        role, mark, part = role.partition("@")
        if role in IMAGE_ROLES or role in self.images:
            return (f"{role}{mark}{part}",)
        names = [name for name in self.images if column_of(name) == role]
        return tuple(f"{name}{mark}{part}" for name in names or [role])

    def all_images(self) -> dict[str, ImageSource]:
        """Return every image that the edit has, keyed by name."""
        usual = {
            "input": self.input,
            "edited": self.edited,
            "ground_truth": self.ground_truth,
            "mask": self.mask,
        }
        images = {role: source for role, source in usual.items() if source is not None}
        return images | dict(self.images)

    def value(self, name: str) -> object:
        """Return the value of a column, or None if the edit does not have it. Dots refer to members of an object, as in
        `scene.light`.
        """
        if name in _TEXT_FIELDS:
            return getattr(self, name)
        return column(self.metadata, name)

    def with_outputs_swapped(self) -> Edit:
        """Return the pair with the outputs a and b exchanged."""
        a, b = PAIR_ROLES
        images = {n: s for n, s in self.images.items() if n not in PAIR_ROLES}
        swapped = {a: self.images.get(b), b: self.images.get(a)}
        images |= {name: s for name, s in swapped.items() if s is not None}
        return replace(self, images=images)

    def text(self, name: str) -> str:
        """Return the text with this name, or an empty string if the edit does not have it."""
        value = self.value(name)
        return str(value) if isinstance(value, str | int | float) else ""

    def listed(self, name: str) -> list[object] | None:
        """Return the list in a column, or None if the value is not a list. A list from a CSV cell is parsed as JSON."""
        return listed(self.value(name))

    def has(self, name: str) -> bool:
        """Whether the edit has an image or a value with this name. An empty string, an empty list and `false` do not
        count.
        """
        if any(self.image(image) is not None for image in self.image_names(name)):
            return True
        return is_given(self.value(name))
