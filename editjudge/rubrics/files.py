"""Rubrics and rubric sets by name or file: YAML in, `Rubric` or `RubricSet` out."""

from __future__ import annotations

import dataclasses
import functools
import json
import os.path
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from editjudge.errors import RubricError, UsageError, near_miss
from editjudge.files import LeavesFolder, resolve_inside
from editjudge.rubrics.model import ASKING, Rubric, plain_content
from editjudge.rubrics.scale import FileContent
from editjudge.rubrics.sets import RubricSet, ScoreError, fuse
from editjudge.rubrics.strict_yaml import (
    Lines,
    dump_plain,
    lines_below,
    parse_yaml,
    printable,
    read_text,
    validated,
)

BUILTIN = Path(__file__).parent / "builtin"

SETS: dict[str, tuple[str, ...]] = {
    "online": ("preservation", "quality", "fidelity"),
    "offline": ("reference",),
}
"""Names that stand for several rubrics."""
PAIRWISE = ("preference",)
"""Built-in rubrics that ask which of two edits is better."""
COMPUTED = ("metrics", "metrics_truth", "metrics_clip")
"""Built-in rubrics whose factors a program computes; no judge is asked."""


class UnknownRubric(RubricError, UsageError):
    """A word that names no rubric, such as a mistyped name."""


def names() -> list[str]:
    """The built-in rubrics that judges are asked, in the order in which people meet them."""
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
    """One rubric, by its built-in name or the path of a YAML file; `FILE#NAME` is one of a set.

    Raises `RubricError`, an `InputError`, where there is none or the file breaks its schema, with its line.
    """
    loaded = load_any(word)
    if isinstance(loaded, Rubric):
        return loaded
    example = (
        SETS[word][0] if word in SETS else f"{printable(word)}#{loaded.rubrics[0].name}"
    )
    raise UnknownRubric(
        f'"{printable(word)}" is a set; here one rubric is wanted, such as {example}'
    )


def load_any(word: str) -> Rubric | RubricSet:
    """Load a rubric as `load` does, or the set that a name or a file stands for."""
    if word in SETS:
        return RubricSet(word, tuple(_builtin(name) for name in SETS[word]))
    if word in (*names(), *PAIRWISE, *COMPUTED):
        return _builtin(word)
    file, mark, member = word.rpartition("#")
    if mark and _is_file(file) and not os.path.isfile(word):
        return _member(file, member)
    if _is_file(word):
        return parse_any(read_text(Path(word)), str(Path(word)), Path(word).parent)
    known = [*names(), *SETS, *PAIRWISE, *COMPUTED]
    raise UnknownRubric(
        f'no rubric is called "{printable(word)}"{near_miss(word, known)} '
        f"Built in: {', '.join(known)}; or give the path of a YAML file."
    )


def load_set(word: str) -> RubricSet | None:
    """The set that a word names, built in or a file; None where it names a rubric."""
    loaded = load_any(word)
    return loaded if isinstance(loaded, RubricSet) else None


def load_one(word: str) -> Rubric:
    """A single contract: a set means its fused question."""
    loaded = load_any(word)
    if isinstance(loaded, Rubric):
        return loaded
    if own := [
        rubric.name
        for rubric in loaded.rubrics
        if any(getattr(rubric, name) for name in ASKING[:3])
    ]:
        raise UnknownRubric(
            f"{word}: {own[0]} is asked on conditions, so name one rubric: {word}#{own[0]}"
        )
    return fuse(word if word in SETS else Path(word).stem, loaded.rubrics)


def resolve(wanted: Sequence[str]) -> list[Rubric]:
    """Names, sets and files to rubrics; one that is named twice is asked once."""
    rubrics: dict[str, Rubric] = {}
    for loaded in map(load_any, wanted):
        for rubric in (loaded,) if isinstance(loaded, Rubric) else loaded.rubrics:
            known = rubrics.setdefault(rubric.name, rubric)
            if known.hash != rubric.hash or any(
                getattr(known, name) != getattr(rubric, name) for name in ASKING
            ):
                raise RubricError(
                    f'two different rubrics are called "{rubric.name}": rename one of them'
                )
    return list(rubrics.values())


@functools.cache
def _builtin(name: str) -> Rubric:
    path = BUILTIN / f"{name}.yaml"
    return parse(read_text(path), str(path))


def _is_file(word: str) -> bool:
    # Unlike Path.is_file(), isfile() does not raise on what is no file name.
    return Path(word).suffix in (".yaml", ".yml") or os.path.isfile(word)


def _member(file: str, name: str) -> Rubric:
    loaded = load_any(file)
    rubrics = {
        rubric.name: rubric
        for rubric in ((loaded,) if isinstance(loaded, Rubric) else loaded.rubrics)
    }
    if name in rubrics:
        return rubrics[name]
    raise UnknownRubric(
        f'{printable(file)} has no rubric "{printable(name)}"{near_miss(name, rubrics)} It has {", ".join(rubrics)}'
    )


# --- from YAML ------------------------------------------------------------------------------------------------


def parse(text: str, source: str = "rubric") -> Rubric:
    """The text of a rubric's file, checked."""
    rubric = parse_any(text, source)
    if not isinstance(rubric, Rubric):
        raise RubricError(f"{source}: is a set of rubrics; here one rubric is wanted")
    return rubric


def parse_any(
    text: str, source: str = "rubric", folder: Path | None = None
) -> Rubric | RubricSet:
    """The text of a file of a rubric or of a set, checked; a set's `use` names files of the `folder`."""
    data, lines = parse_yaml(text, source)
    if not isinstance(data, dict):
        raise RubricError(
            f"{source}:1: expected keys such as name, images, factors and answer"
        )
    if "rubrics" in data:
        return _set(data, lines, source, folder)
    rubric = _rubric(data, lines, source)
    if rubric.after:
        raise RubricError(
            f"{source}:{lines.get(('after',), 1)}: after: only a rubric of a set has one before it"
        )
    return rubric


@dataclasses.dataclass(frozen=True)
class _SetFile(FileContent):
    """The keys of a set's file; what the rubrics and scores must be is checked one by one."""

    name: str
    rubrics: tuple[Any, ...]
    score: Mapping[str, Any] | None = None
    description: str | None = None

    def __post_init__(self) -> None:
        if not self.name or not self.rubrics:
            raise ValueError(
                f"{'rubrics' if self.name else 'name'}: a set needs a name and at least one rubric"
            )
        for key, score in (self.score or {}).items():
            if not isinstance(score, str) and not (
                isinstance(score, dict) and isinstance(score.get("formula"), str)
            ):
                raise ValueError(
                    f"score {key}: expected a formula as text, or keys such as formula and repeats"
                )


def _set(
    data: dict[str, Any], lines: Lines, source: str, folder: Path | None
) -> RubricSet:
    content = validated(_SetFile, data, lines, source)
    rubrics = []
    for number, entry in enumerate(content.rubrics):
        inside = lines_below(lines, "rubrics", number)
        rubrics.append(_set_member(entry, inside, source, folder))
    scores = content.score or {}
    try:
        return RubricSet(
            content.name, tuple(rubrics), scores, content.description or ""
        )
    except ScoreError as error:
        line = lines.get(("score", error.name), 1)
        raise RubricError(f"{source}:{line}: {error}") from None
    except RubricError as error:
        raise RubricError(f"{source}:1: {error}") from None


def _set_member(entry: Any, lines: Lines, source: str, folder: Path | None) -> Rubric:
    """A rubric that stands in the file, or one that `use` names, with what the set says of it."""
    entry = {"use": entry} if isinstance(entry, str) else entry
    if not isinstance(entry, dict):
        raise RubricError(
            f"{source}:{lines.get((), 1)}: rubrics: expected the keys of a rubric, or `use: NAME`"
        )
    if "use" not in entry:
        return _rubric(entry, lines, source)
    word = entry["use"]
    own = {key: value for key, value in entry.items() if key != "use"}
    known = ("name", "system", *ASKING)
    if unknown := [key for key in own if key not in known]:
        why = f'beside `use` stand {", ".join(known)}, not "{printable(unknown[0])}"'
        raise RubricError(f"{source}:{lines.get((unknown[0],), 1)}: {why}")
    builtin = word in (*names(), *COMPUTED)
    if not isinstance(word, str) or not (builtin or _is_below(word, folder)):
        raise RubricError(
            f"{source}:{lines.get(('use',), 1)}: use: expected a built-in rubric ({', '.join(names())}) or a file in "
            "the folder of the set"
        )
    used = load(word if builtin else str((folder or Path()) / word))
    return validated(
        Rubric, json.loads(json.dumps(used.content())) | own, lines, source, _keys
    )


def _is_below(word: str, folder: Path | None) -> bool:
    """Whether a name is a file in the folder: a set that somebody else wrote names no file outside its own."""
    if folder is None or not word.partition("#")[0].endswith((".yaml", ".yml")):
        return False
    try:
        resolve_inside(folder / word, folder)
    except LeavesFolder:
        return False
    return True


def _with_scales(data: dict[str, Any]) -> dict[str, Any]:
    """A rubric's scale is that of every factor that names none."""
    scale = data.pop("scale", None)
    factors = data.get("factors")
    for factor in factors if scale is not None and isinstance(factors, list) else ():
        if isinstance(factor, dict):
            factor.setdefault("scale", scale)
    return data


def _rubric(data: dict[str, Any], lines: Lines, source: str) -> Rubric:
    rubric = validated(Rubric, _with_scales(data), lines, source, _keys)
    if rubric.template:
        from editjudge.rubrics.prompt import pieces

        try:
            list(pieces(rubric.template))
        except ValueError as error:
            why = f"template.text: {error}; under `braces: format` a brace that is meant as such is doubled"
            raise RubricError(
                f"{source}:{lines.get(('template', 'text'), 1)}: {why}"
            ) from None
    return rubric


def _keys(owner: Any) -> list[str]:
    """The keys that a part of a rubric's file may have."""
    fields = [field.name for field in dataclasses.fields(owner)]
    # `members` is made by fusing, and `after` has its place in a set.
    return (
        [*(name for name in fields if name not in ("members", "after")), "scale"]
        if owner is Rubric
        else fields
    )


# --- to YAML --------------------------------------------------------------------------------------------------


def dump(rubric: Rubric) -> str:
    """The YAML file of a rubric; reading it back gives an equal one."""
    data = plain_content(rubric, _is_default)  # a file shows what is its own
    scale = data["factors"][0]["scale"]
    if all(factor["scale"] == scale for factor in data["factors"]):
        for factor in data["factors"]:
            del factor["scale"]
        data = {"name": data.pop("name"), "scale": scale, **data}
    return dump_plain(data)


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    return bool(
        value
        == (
            field.default_factory()
            if callable(field.default_factory)
            else field.default
        )
    )
