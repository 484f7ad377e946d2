"""One thing to judge: the pictures before and after, and what was asked for; and which edits of two runs are the same.

The usual names (`input`, `edited`, `instruction` ...) are fields. A rubric may name any further column of a manifest as
a picture, a list of pictures or a text: the pictures are in `pictures`, the texts in `metadata`.

An id says little: without one an edit is called by its line, and every manifest has a first line. So ratings and
`drift` go by input, output and instruction, and `gate --baseline` and `compare RUN_A RUN_B` by what was to be edited:
input, instruction, ground truth and mask, never the output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from editjudge.canonical import json_hash
from editjudge.values import column, is_given, listed

ImageSource: TypeAlias = Path | bytes | str
"""A file, the encoded picture itself, or an http(s) address."""

IMAGE_ROLES = ("input", "edited", "ground_truth", "mask")
"""The pictures an edit usually carries, by the names that manifests and rubrics use."""

TEXT_ROLES = ("instruction", "referring_expression")
"""The words an edit usually carries, by the same names."""

OUTPUT_ROLES = ("edited", "edited_a", "edited_b")
"""Pictures that an editing model made: where one is missing, the model produced nothing."""

PAIR_ROLES = ("edited_a", "edited_b")
"""The two outputs of a pair."""

MAX_PICTURES = 16
"""Pictures of one list: more than any published protocol shows, and few enough to fit into one request."""

_NAMED = frozenset(("id", *TEXT_ROLES, "model", "edit_type", "group"))
"""The fields that hold words."""
_NUMBERED = re.compile(r"\[\d+\]$")


def column_of(name: str) -> str:
    """The manifest's column that a picture is of: `references` for `references[2]` and for `references@box`."""
    return _NUMBERED.sub("", name.partition("@")[0])


def named_pictures(given: Mapping[str, ImageSource | list[ImageSource]]) -> dict[str, ImageSource]:
    """Pictures and lists of pictures by the names that an edit has them by."""
    pictures: dict[str, ImageSource] = {}
    for name, sources in given.items():
        if isinstance(sources, list):
            pictures |= {f"{name}[{number}]": source for number, source in enumerate(sources, 1)}
        else:
            pictures[name] = sources
    return pictures


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit: its pictures, its words, and whose it is."""

    id: str
    input: ImageSource | None = None
    edited: ImageSource | None = None
    """None: the model produced nothing."""
    instruction: str = ""
    ground_truth: ImageSource | None = None
    mask: ImageSource | None = None
    """White where the edit belongs."""
    referring_expression: str = ""
    """Which object is meant, where the instruction alone does not say."""
    model: str | None = None
    edit_type: str | None = None
    group: str | None = None
    """The source image that several edits share; statistics are clustered on it."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    pictures: Mapping[str, ImageSource] = field(default_factory=dict)
    """Further pictures that a rubric names, those of a list as `references[1]`, `references[2]` ..."""

    def picture(self, name: str) -> ImageSource | None:
        """The picture of this name, whole where the name is that of a part; None where there is none."""
        name = name.partition("@")[0]
        source: ImageSource | None = getattr(self, name) if name in IMAGE_ROLES else self.pictures.get(name)
        return source

    def picture_names(self, role: str) -> tuple[str, ...]:
        """The names of the pictures that a rubric calls `role`: itself, or one for each picture of a list."""
        role, mark, part = role.partition("@")
        if role in IMAGE_ROLES or role in self.pictures:
            return (f"{role}{mark}{part}",)
        names = [name for name in self.pictures if name != role and column_of(name) == role] or [role]
        return tuple(f"{name}{mark}{part}" for name in names)

    def all_pictures(self) -> dict[str, ImageSource]:
        """Every picture that there is, by name."""
        usual = zip(IMAGE_ROLES, (self.input, self.edited, self.ground_truth, self.mask), strict=True)
        pictures = {role: source for role, source in usual if source is not None}
        return {**pictures, **self.pictures} if self.pictures else pictures

    def value(self, name: str) -> Any:
        """What a column holds; inside an object by dots, as `scene.light`. None where there is nothing."""
        return getattr(self, name) if name in _NAMED else column(self.metadata, name)

    def with_outputs_swapped(self) -> Edit:
        """The same pair with b in the place of a."""
        a, b = PAIR_ROLES
        others = {name: source for name, source in self.pictures.items() if name not in PAIR_ROLES}
        turned = {a: self.pictures.get(b), b: self.pictures.get(a)}
        return replace(self, pictures=others | {name: source for name, source in turned.items() if source is not None})

    def text(self, name: str) -> str:
        """The text of this name; empty where there is none."""
        value = self.value(name)
        return str(value) if isinstance(value, str | int | float) else ""

    def listed(self, name: str) -> list[Any] | None:
        """The list that a column holds, in CSV as JSON; None where it holds none."""
        return listed(self.value(name))

    def has(self, name: str) -> bool:
        """Whether there is a picture or a value of this name; an empty text or list is none, and so is `false`."""
        if any(self.picture(one) is not None for one in self.picture_names(name)):
            return True
        return is_given(self.value(name))


# --- which edits are the same -------------------------------------------------------------------------------

Same = Literal["edit", "task"]
"""The very same edit; or the same thing to do, whoever did it."""

UNREAD = "unread:"
"""Opens the key of an edit of which some picture is known by its place alone."""


class StoredEdit(Protocol):
    """What a store keeps of an edit."""

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


class PictureDigest(NamedTuple):
    """How a picture is known (`digest`, or `source` where it was never read; `group` or `id` where there is none), by
    what, and where it lay."""

    how: str
    value: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Content:
    """What an edit is known by."""

    pictures: Mapping[str, PictureDigest]
    """By role. An edit without an input has the name of its source image there, one without an output its id."""
    instruction: str
    model: str

    @classmethod
    def of(cls, item: StoredEdit) -> Content:
        pictures = {role: _picture(entry) for role, entry in item.images.items()}
        named = {"input": PictureDigest("group", item.group or item.item)}
        if not pictures.keys() & {*PAIR_ROLES}:
            named["edited"] = PictureDigest("id", item.item)
        return cls({**named, **pictures}, item.instruction, item.model or "")

    def key(self, same: Same = "edit") -> str:
        roles = ("input", "edited", *PAIR_ROLES) if same == "edit" else ("input", "ground_truth", "mask")
        pictures = {role: self.pictures[role][:2] for role in roles if role in self.pictures}
        digest = json_hash([pictures, self.instruction])
        return UNREAD + digest if any(how == "source" for how, _ in pictures.values()) else digest


def _picture(entry: Mapping[str, str | None]) -> PictureDigest:
    digest, source = entry.get("digest"), entry.get("source") or ""
    return PictureDigest("digest", digest, source) if digest else PictureDigest("source", source, source)


def is_unread(key: str) -> bool:
    """Whether a key goes by the place of some picture, since nobody read it."""
    return key.startswith(UNREAD)


@dataclass(frozen=True)
class Side:
    """The edits of a run, by id, and the folder that its manifest names pictures from."""

    edits: Mapping[str, Content]
    folder: str = ""

    @classmethod
    def of(cls, items: Iterable[StoredEdit], manifest: object = None) -> Side:
        folder = str(manifest).rpartition("/")[0] if manifest else ""
        return cls({item.item: Content.of(item) for item in items}, folder)

    def only(self, model: str) -> Side:
        return replace(self, edits={item: edit for item, edit in self.edits.items() if edit.model == model})

    def models(self) -> set[str]:
        return {content.model for content in self.edits.values()}


@dataclass(frozen=True)
class Match:
    """Which edits of two runs belong together. Counts are of contents: edits that are alike in all count once."""

    a: Mapping[str, str]
    """Key by id, of those that the other side has too."""
    b: Mapping[str, str]
    matched: int
    unmatched_a: int
    unmatched_b: int
    unread: int
    """Of the matched: known by what the manifest calls some picture, since neither run read it."""

    def counts(self) -> dict[str, int]:
        names = ("matched", "unmatched_a", "unmatched_b", "unread")
        return {name: getattr(self, name) for name in names}

    def words(self, a: str, b: str) -> list[str]:
        """What has to be said; nothing where every edit has its counterpart."""
        messages = []
        if self.unmatched_a or self.unmatched_b:
            alone = f"{self.unmatched_a:,} of {a} and {self.unmatched_b:,} of {b} have no counterpart and are left out"
            messages.append(f"{self.matched:,} edits are in both runs by content; {alone}")
        if self.unread:
            messages.append(
                f"{self.unread:,} of the edits are paired by the names of pictures that were never read: whether the "
                "pictures are the same is for you to know"
            )
        return messages


def match(a: Side, b: Side, same: Same) -> Match:
    """Pair two runs by content.

    The same task is paired within a model where both runs have edits of one, and else whoever made them; several edits
    of one side that are the same count together, as their mean.
    """
    shared_models = a.models() & b.models() if same == "task" else set()
    digests = _digests(a, b)
    keys_a, keys_b = (_keys(side, same, digests, bool(shared_models)) for side in (a, b))
    shared = {*keys_a.values()} & {*keys_b.values()}
    return Match(
        {item: key for item, key in keys_a.items() if key in shared},
        {item: key for item, key in keys_b.items() if key in shared},
        matched=len(shared),
        unmatched_a=len({*keys_a.values()} - shared),
        unmatched_b=len({*keys_b.values()} - shared),
        unread=sum(map(is_unread, shared)),
    )


def _digests(*sides: Side) -> dict[str, str]:
    """Of the files that some run read, by their place; none where two runs read different things there."""
    digests: dict[str, str] = {}
    for picture in (p for side in sides for content in side.edits.values() for p in content.pictures.values()):
        if picture.how == "digest" and digests.setdefault(picture.source, picture.value) != picture.value:
            digests[picture.source] = ""
    return {source: digest for source, digest in digests.items() if digest}


def _keys(side: Side, same: Same, digests: Mapping[str, str], by_model: bool) -> dict[str, str]:
    def known(picture: PictureDigest) -> PictureDigest:
        """With the digest that the other run read at the same place, or the manifest's own name for it: the same
        manifest may lie in another folder today."""
        if picture.how != "source":
            return picture
        if picture.source in digests:
            return PictureDigest("digest", digests[picture.source])
        return PictureDigest("source", picture.source.removeprefix(f"{side.folder}/"))

    keys = {}
    for item, content in side.edits.items():
        pictures = {role: known(picture) for role, picture in content.pictures.items()}
        key = Content(pictures, content.instruction, content.model).key(same)
        keys[item] = f"{key} {content.model}" if by_model else key
    return keys
