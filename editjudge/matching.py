"""Matching of the edits of two runs by their content.

Ids are not unique across manifests, since an edit without an id is named after its line number. Ratings and `drift`
match edits by input, output and instruction. `gate --baseline` and `compare RUN_A RUN_B` match them by task: input,
instruction, ground truth and mask, but not the output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol

from editjudge.canonical import json_hash
from editjudge.edit import PAIR_ROLES

MatchBy = Literal["edit", "task"]
"""Content that must be equal for two edits to match. `edit`: input, output and instruction. `task`: the task, whichever
model performed it.
"""

_ROLES: dict[MatchBy, tuple[str, ...]] = {
    "edit": ("input", "edited", *PAIR_ROLES),
    "task": ("input", "ground_truth", "mask"),
}

UNREAD = "unread:"
"""Prefix of the key of an edit that has an image identified only by its path."""


class StoredEdit(Protocol):
    """An edit in the form that a store returns."""

    @property
    def item(self) -> str: ...
    @property
    def model(self) -> str | None: ...
    @property
    def group(self) -> str | None: ...
    @property
    def instruction(self) -> str: ...
    @property
    def images(self) -> Mapping[str, Mapping[str, str | None]]: ...


class ImageIdentity(NamedTuple):
    """Identity of an image: its digest, or its path if it was never read. A missing image is identified by its edit's
    group or id.
    """

    how: str
    value: str
    source: str = ""
    """Path or address of the image."""

    @classmethod
    def of(cls, entry: Mapping[str, str | None]) -> ImageIdentity:
        source = entry.get("source") or ""
        if digest := entry.get("digest"):
            return cls("digest", digest, source)
        return cls("source", source, source)


@dataclass(frozen=True, slots=True)
class Content:
    """Identity of an edit across runs: image digests, instruction and model."""

    images: Mapping[str, ImageIdentity]
    """Images, keyed by role. A missing input is identified by the source image's name, and a missing output by the
    edit's id.
    """
    instruction: str
    model: str

    @classmethod
    def of(cls, item: StoredEdit) -> Content:
        images = {role: ImageIdentity.of(entry) for role, entry in item.images.items()}
        defaults = {"input": ImageIdentity("group", item.group or item.item)}
        if not images.keys() & {*PAIR_ROLES}:
            defaults["edited"] = ImageIdentity("id", item.item)
        return cls({**defaults, **images}, item.instruction, item.model or "")

    def key(self, by: MatchBy = "edit") -> str:
        """Return a hash that is the same for equal edits. It has the prefix `UNREAD` if an image was never read."""
        images = {
            role: self.images[role][:2] for role in _ROLES[by] if role in self.images
        }
        digest = json_hash([images, self.instruction])
        never_read = any(how == "source" for how, _ in images.values())
        return UNREAD + digest if never_read else digest


def is_unread(key: str) -> bool:
    """Whether a key belongs to an edit with an image that is identified only by its path."""
    return key.startswith(UNREAD)


@dataclass(frozen=True)
class RunEdits:
    """The edits of a run, keyed by id, and the folder of its manifest."""

    edits: Mapping[str, Content]
    folder: str = ""

    @classmethod
    def of(cls, items: Iterable[StoredEdit], manifest: object = None) -> RunEdits:
        folder = str(manifest).rpartition("/")[0] if manifest else ""
        return cls({item.item: Content.of(item) for item in items}, folder)

    def of_model(self, model: str) -> RunEdits:
        """Return the edits that one model made."""
        edits = {item: edit for item, edit in self.edits.items() if edit.model == model}
        return replace(self, edits=edits)

    def models(self) -> set[str]:
        return {content.model for content in self.edits.values()}

    def keys(
        self, by: MatchBy, digests: Mapping[str, str], per_model: bool
    ) -> dict[str, str]:
        """Map the id of each edit to its key. `digests` maps paths to the digests of files that either run has read."""
        keys = {}
        for item, content in self.edits.items():
            images = {
                role: self._resolve(image, digests)
                for role, image in content.images.items()
            }
            key = replace(content, images=images).key(by)
            keys[item] = f"{key} {content.model}" if per_model else key
        return keys

    def _resolve(
        self, image: ImageIdentity, digests: Mapping[str, str]
    ) -> ImageIdentity:
        """Return the identity of an image that this run never read. It is the digest that the other run found at the
        image's path. If there is none, it is the path relative to the manifest, since the manifest may have moved.
        """
        if image.how != "source":
            return image
        if image.source in digests:
            return ImageIdentity("digest", digests[image.source])
        return ImageIdentity("source", image.source.removeprefix(f"{self.folder}/"))


@dataclass(frozen=True)
class Match:
    """The edits that two runs have in common. Edits with equal content count once."""

    a: Mapping[str, str]
    """Keys of the first run's edits that are also in the other run, keyed by edit id."""
    b: Mapping[str, str]
    matched: int
    unmatched_a: int
    unmatched_b: int
    unread: int
    """Number of matched edits with an image that neither run read. Such an image is identified by its name in the
    manifest.
    """

    def counts(self) -> dict[str, int]:
        names = ("matched", "unmatched_a", "unmatched_b", "unread")
        return {name: getattr(self, name) for name in names}

    def describe(self, a: str, b: str) -> list[str]:
        """Return notices about unmatched and unread edits. The list is empty if there are none."""
        messages = []
        if self.unmatched_a or self.unmatched_b:
            alone = f"{self.unmatched_a:,} of {a} and {self.unmatched_b:,} of {b} have no counterpart and are left out"
            messages.append(
                f"{self.matched:,} edits are in both runs by content; {alone}"
            )
        if self.unread:
            messages.append(
                f"{self.unread:,} of the edits are paired by the names of images that were never read: check that the "
                "images are the same"
            )
        return messages


def match(a: RunEdits, b: RunEdits, by: MatchBy) -> Match:
    """Pair the edits of two runs by content.

    If the runs have a model in common, tasks are paired separately for each model. Otherwise they are paired across
    models. Equal edits within a run are averaged.
    """
    per_model = by == "task" and not a.models().isdisjoint(b.models())
    digests = _digests(a, b)
    keys_a = a.keys(by, digests, per_model)
    keys_b = b.keys(by, digests, per_model)
    shared = {*keys_a.values()} & {*keys_b.values()}
    return Match(
        {item: key for item, key in keys_a.items() if key in shared},
        {item: key for item, key in keys_b.items() if key in shared},
        matched=len(shared),
        unmatched_a=len({*keys_a.values()} - shared),
        unmatched_b=len({*keys_b.values()} - shared),
        unread=sum(map(is_unread, shared)),
    )


def _digests(*runs: RunEdits) -> dict[str, str]:
    """Return the digests of files that either run has read, keyed by path. Paths whose content differs between the runs
    are left out.
    """
    contents = [content for run in runs for content in run.edits.values()]
    read = {
        (image.source, image.value)
        for content in contents
        for image in content.images.values()
        if image.how == "digest"
    }
    versions = Counter(source for source, _ in read)
    return {source: digest for source, digest in read if versions[source] == 1}
