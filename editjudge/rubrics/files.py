"""Loading of rubrics and rubric sets by name or from YAML files."""

from __future__ import annotations

import dataclasses
import functools
import json
import os.path
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editjudge.canonical import Json
from editjudge.errors import RubricError, UsageError, did_you_mean, one_line
from editjudge.files import LeavesFolder, resolve_inside
from editjudge.rubrics.likeness import with_likes
from editjudge.rubrics.model import ASKING, Layout, Rubric, plain_content
from editjudge.rubrics.scale import FieldError, FileContent
from editjudge.rubrics.sets import (
    MemberError,
    RubricSet,
    RunScore,
    ScoreError,
    asking,
    fuse,
)
from editjudge.rubrics.strict_yaml import (
    Lines,
    dump_plain,
    field_names,
    lines_below,
    parse_yaml,
    read_text,
    validated,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

BUILTIN = Path(__file__).parent / "builtin"

SETS: dict[str, tuple[str, ...]] = {
    "online": ("preservation", "quality", "fidelity"),
    "offline": ("reference",),
}
"""Rubrics of each built-in set."""
LOOKED = "online-looked"
"""Built-in set that asks for a list of differences before it asks the questions of `online`."""
LOOK = "differences"
"""Built-in rubric without a score, whose list later rubrics are given."""
_LOOKED_STEP = (
    "Go through the list of differences that an earlier look at the same images returned. It is help, not proof: "
    "confirm each entry in the images, and count what it missed."
)
PAIRWISE = ("preference", "preference_forced")
"""Built-in rubrics that ask which of two edits is better."""
COMPUTED = ("metrics", "metrics_truth", "metrics_clip")
"""Built-in rubrics whose factors a program computes without a judge."""


class UnknownRubric(RubricError, UsageError):
    """Raised when no rubric has the given name, for example because of a typo."""


def names() -> list[str]:
    """Return the names of the built-in rubrics that judges answer, in the order in which they are documented."""
    return [
        "preservation",
        "quality",
        "fidelity",
        "reference",
        "lighting",
        "compliance",
    ]


# --- by name --------------------------------------------------------------------------------------------------


def load(word: str) -> Rubric:
    """Return a built-in rubric by its name, or load one from the path of a YAML file. `FILE#NAME` selects one rubric
    from a set's file.

    Raises `RubricError`, an `InputError`, if there is no such rubric, or if the file breaks its schema.
    """
    loaded = load_any(word)
    if isinstance(loaded, Rubric):
        return loaded
    name = one_line(word)
    example = f"{name}#{loaded.rubrics[0].name}"
    if word in SETS:
        example = SETS[word][0]
    raise UnknownRubric(
        f'"{name}" is a set of rubrics; expected one rubric, such as {example}',
        code="is_a_set",
    )


def load_any(name_or_path: str) -> Rubric | RubricSet:
    """Return a rubric, as `load` does, or a set by its name or file."""
    if name_or_path in SETS:
        return RubricSet(name_or_path, tuple(map(_builtin, SETS[name_or_path])))
    if name_or_path == LOOKED:
        return _looked()
    builtin = [*names(), *PAIRWISE, LOOK, *COMPUTED]
    if name_or_path in builtin:
        return _builtin(name_or_path)
    file, mark, member = name_or_path.rpartition("#")
    if mark and _is_file(file) and not os.path.isfile(name_or_path):
        rubrics = {rubric.name: rubric for rubric in _rubrics(load_any(file))}
        if member in rubrics:
            return rubrics[member]
        hint = did_you_mean(member, rubrics)
        raise UnknownRubric(
            f'{one_line(file)} has no rubric "{one_line(member)}"{hint} It has {", ".join(rubrics)}',
            code="unknown_rubric",
        )
    if _is_file(name_or_path):
        path = Path(name_or_path)
        return parse_any(read_text(path), str(path), path.parent)
    all_names = [*names(), *SETS, LOOKED, *PAIRWISE, LOOK, *COMPUTED]
    hint = did_you_mean(name_or_path, all_names)
    raise UnknownRubric(
        f'no rubric is called "{one_line(name_or_path)}"{hint} '
        f"Built in: {', '.join(all_names)}; or give the path of a YAML file.",
        code="unknown_rubric",
    )


def load_set(name_or_path: str) -> RubricSet | None:
    """Return a set by its name or file, or None if the name or file refers to a single rubric."""
    loaded = load_any(name_or_path)
    return loaded if isinstance(loaded, RubricSet) else None


def load_one(name_or_path: str) -> Rubric:
    """Return a rubric. If the name refers to a set, the rubrics of the set are fused into one."""
    loaded = load_any(name_or_path)
    if isinstance(loaded, Rubric):
        return loaded
    for rubric in loaded.rubrics:
        if any(getattr(rubric, name) for name in ASKING[:3]):
            raise UnknownRubric(
                f"{name_or_path}: {rubric.name} is asked on conditions, so name one rubric: {name_or_path}#{rubric.name}"
            )
    name = name_or_path if name_or_path in SETS else Path(name_or_path).stem
    return fuse(name, loaded.rubrics)


def resolve(wanted: Sequence[str]) -> list[Rubric]:
    """Return the rubrics for these names of rubrics, sets and files, without duplicates."""
    rubrics: dict[str, Rubric] = {}
    for loaded in map(load_any, wanted):
        for rubric in _rubrics(loaded):
            first = rubrics.setdefault(rubric.name, rubric)
            if first.hash != rubric.hash or asking(first) != asking(rubric):
                raise RubricError(
                    f'two different rubrics are called "{rubric.name}": rename one of them',
                    code="two_of_one_name",
                )
    return list(rubrics.values())


def _rubrics(loaded: Rubric | RubricSet) -> tuple[Rubric, ...]:
    return (loaded,) if isinstance(loaded, Rubric) else loaded.rubrics


def _looked() -> RubricSet:
    """Return the questions of `online`, each with the list of differences and with the part that changed."""
    rubrics = [_builtin(LOOK)]
    for name in SETS["online"]:
        rubric = _builtin(name)
        rubrics.append(
            dataclasses.replace(
                rubric,
                images=(*rubric.images, "edited@change_or_all"),
                steps=(_LOOKED_STEP, *rubric.steps),
                after=LOOK,
            )
        )
    description = "The online rubrics, after a list of the differences and with the part that changed cut out."
    return RubricSet(LOOKED, tuple(rubrics), description=description)


@functools.cache
def _builtin(name: str) -> Rubric:
    path = BUILTIN / f"{name}.yaml"
    return parse(read_text(path), str(path))


def _is_file(path: str) -> bool:
    # Unlike Path.is_file(), isfile() does not raise on a text that cannot be a file name.
    return Path(path).suffix in (".yaml", ".yml") or os.path.isfile(path)


# --- from YAML ------------------------------------------------------------------------------------------------


def parse(text: str, source: str = "rubric") -> Rubric:
    """Parse and check the text of a rubric file."""
    rubric = parse_any(text, source)
    if not isinstance(rubric, Rubric):
        raise RubricError(
            f"{source}: is a set of rubrics; expected one rubric", code="is_a_set"
        )
    return rubric


def parse_any(
    text: str, source: str = "rubric", folder: Path | None = None
) -> Rubric | RubricSet:
    """Parse and check the text of a rubric file or set file. `use` in a set may name a file in `folder`."""
    data, lines = parse_yaml(text, source)
    if not isinstance(data, dict):
        raise RubricError(
            f"{source}:1: expected keys such as name, images, factors and answer",
            code="not_a_rubric",
        )
    if "rubrics" in data:
        return _set(data, lines, source, folder)
    rubric = _rubric(data, lines, source)
    if rubric.told:
        line = lines.get(("after",), 1)
        raise RubricError(
            f"{source}:{line}: after: only a rubric in a set can follow another one",
            code="after_outside_a_set",
        )
    return rubric


@dataclasses.dataclass(frozen=True)
class _SetFile(FileContent):
    """Top-level keys of a set file; its rubrics and scores are checked separately."""

    name: str
    rubrics: tuple[object, ...]
    score: Mapping[str, Any] | None = None
    run: Mapping[str, RunScore] = dataclasses.field(default_factory=dict)
    description: str | None = None
    layout: Layout | None = None
    """Layout of the rubrics that do not name their own."""

    def __post_init__(self) -> None:
        if not self.name or not self.rubrics:
            key = "rubrics" if self.name else "name"
            message = f"{key}: a set needs a name and at least one rubric"
            raise FieldError(message, key, code="empty_set")
        for key, score in (self.score or {}).items():
            if not isinstance(score, str) and not (
                isinstance(score, dict) and isinstance(score.get("formula"), str)
            ):
                raise FieldError(
                    f"score {key}: expected a formula as text, or keys such as formula and repeats",
                    "score",
                    code="not_a_formula",
                )


def _set(data: Json, lines: Lines, source: str, folder: Path | None) -> RubricSet:
    content = validated(_SetFile, data, lines, source)
    rubrics = []
    for number, entry in enumerate(with_likes(content.rubrics, source)):
        inside = lines_below(lines, "rubrics", number)
        rubric = _set_member(entry, inside, source, folder)
        rubrics.append(_with_layout(rubric, content.layout, inside, source))
    description = content.description or ""
    try:
        return RubricSet(
            content.name,
            tuple(rubrics),
            content.score or {},
            description,
            content.run,
        )
    except RubricError as error:
        name = error.name if isinstance(error, ScoreError) else ""
        line = lines.get(("score", name), lines.get(("run", name), 1))
        if isinstance(error, MemberError):
            number = [rubric.name for rubric in rubrics].index(error.rubric)
            inside = lines_below(lines, "rubrics", number)
            line = inside.get((error.key,), inside.get((), 1))
        raise RubricError(f"{source}:{line}: {error}", code=error.code) from None


def _with_layout(
    rubric: Rubric, layout: Layout | None, lines: Lines, source: str
) -> Rubric:
    """Return a rubric of a set in the layout of the set, unless it has its own."""
    if layout is None or rubric.layout:
        return rubric
    try:
        return dataclasses.replace(rubric, layout=layout)
    except FieldError as error:
        raise RubricError(
            f"{source}:{lines.get((), 1)}: {error}, or name another `layout` in the rubric",
            code=error.code,
        ) from None


def _set_member(
    entry: object, lines: Lines, source: str, folder: Path | None
) -> Rubric:
    """Return a rubric of a set: one that the set file defines, or the one that `use` names, with the set's overrides."""
    entry = {"use": entry} if isinstance(entry, str) else entry
    if not isinstance(entry, dict):
        raise RubricError(
            f"{source}:{lines.get((), 1)}: rubrics: expected the keys of a rubric, or `use: NAME`"
        )
    if "use" not in entry:
        return _rubric(entry, lines, source)
    changes = dict(entry)
    name = changes.pop("use")
    legal = ("name", "system", "layout", *ASKING)
    for key in changes:
        if key not in legal:
            line = lines.get((key,), 1)
            raise RubricError(
                f'{source}:{line}: found "{one_line(key)}" beside `use`; expected {", ".join(legal)}',
                code="unknown_key",
            )
    path = name
    if name not in (*names(), *COMPUTED):
        path = _file_below(name, folder)
    if path is None:
        line = lines.get(("use",), 1)
        raise RubricError(
            f"{source}:{line}: use: expected a built-in rubric ({', '.join(names())}) or a file in the folder of the set",
            code="not_a_member",
        )
    content = json.loads(json.dumps(load(path).content()))
    return validated(Rubric, content | changes, lines, source, _keys)


def _file_below(name: object, folder: Path | None) -> str | None:
    """Return the path of a file if it is inside the folder. Return None for any other file, since a set may be
    untrusted.
    """
    if folder is None or not isinstance(name, str):
        return None
    try:
        resolve_inside(folder / name, folder)
    except LeavesFolder:
        return None
    is_yaml = name.partition("#")[0].endswith((".yaml", ".yml"))
    return str(folder / name) if is_yaml else None


def _rubric(data: Json, lines: Lines, source: str) -> Rubric:
    # The rubric's scale applies to every factor without a scale.
    scale = data.pop("scale", None)
    answer = data.get("answer")
    if isinstance(answer, dict) and answer.get("form") == "text":
        data.setdefault("factors", [])
    factors = data.get("factors")
    for factor in factors if scale is not None and isinstance(factors, list) else ():
        if isinstance(factor, dict):
            factor.setdefault("scale", scale)
    rubric = validated(Rubric, data, lines, source, _keys)
    if rubric.template:
        from editjudge.rubrics.prompt import pieces

        try:
            list(pieces(rubric.template))
        except ValueError as error:
            line = lines.get(("template", "text"), 1)
            raise RubricError(
                f"{source}:{line}: template.text: {error}; under `braces: format` a literal brace is doubled"
            ) from None
    return rubric


def _keys(owner: type[DataclassInstance]) -> list[str]:
    """Return the legal keys of a part of a rubric file."""
    keys = field_names(owner)
    if owner is not Rubric:
        return keys
    # Only fusing sets `members`, and `after` belongs in a set.
    return [*(key for key in keys if key not in ("members", "after")), "scale"]


# --- to YAML --------------------------------------------------------------------------------------------------


def dump(rubric: Rubric) -> str:
    """Return a rubric as YAML. Parsing it gives an equal rubric."""
    data = plain_content(rubric, _is_default)
    scales = [factor["scale"] for factor in data["factors"]]
    scale = scales[0] if scales else None
    if scales and all(factor["scale"] == scale for factor in data["factors"]):
        for factor in data["factors"]:
            del factor["scale"]
        data = {"name": data.pop("name"), "scale": scale, **data}
    return dump_plain(data)


def _is_default(field: dataclasses.Field[object], value: object) -> bool:
    factory = field.default_factory
    return bool(value == (factory() if callable(factory) else field.default))
