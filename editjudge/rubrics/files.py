"""Rubrics by name or file: YAML in, `Rubric` out, with line and key in every complaint."""

from __future__ import annotations

import dataclasses
import functools
import json
import os.path
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editjudge.errors import RubricError, UsageError, near_miss
from editjudge.rubrics.model import ASKING, Rubric, Template

if TYPE_CHECKING:
    from editjudge.rubrics.sets import RubricSet

BUILTIN = Path(__file__).parent / "builtin"


class UnknownRubric(RubricError, UsageError):
    """A word that names no rubric: mistyped, where a file that breaks its schema is to be mended."""


SETS: dict[str, tuple[str, ...]] = {
    "online": ("preservation", "quality", "fidelity"),
    "offline": ("reference",),
}
"""Names that stand for several rubrics."""

_MAX_BYTES = 1_000_000
_MAX_DEPTH = 20
_MAX_COMPLAINTS = 20
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?[0-9]+\.[0-9]+")
_NUMBERLIKE = re.compile(r"[-+.\s\d]*\d[-+.\s\d]*")
"""Several spellings of one integer would be several keys here and one label later."""
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}

_SURROGATE = re.compile("[\ud800-\udfff]")
# Line breaks to YAML, which reads the first of them back as a plain newline; quoted they are escaped.
_OTHER_BREAKS = re.compile("[\x85\u2028\u2029]")

_Path = tuple[str | int, ...]


def names() -> list[str]:
    """The built-in rubrics that judges are asked, in the order in which people meet them."""
    return ["preservation", "quality", "fidelity", "reference", "lighting", "compliance"]


PAIRWISE = ("preference",)
"""Built-in rubrics that ask which of two edits is better."""
COMPUTED = ("metrics", "metrics_truth", "metrics_clip")
"""Built-in rubrics that nobody is asked: a program computes what they name."""


def resolve(wanted: Sequence[str]) -> list[Rubric]:
    """Names, sets and files to rubrics; one that is named twice is asked once."""
    rubrics: dict[str, Rubric] = {}
    for rubric in (rubric for word in wanted for rubric in _members(word)):
        known = rubrics.setdefault(rubric.name, rubric)
        if known.hash != rubric.hash or any(getattr(known, name) != getattr(rubric, name) for name in ASKING):
            raise RubricError(f'two different rubrics are called "{rubric.name}": rename one of them')
    return list(rubrics.values())


def _members(word: str) -> Sequence[Rubric]:
    if word in SETS:
        return [load(name) for name in SETS[word]]
    loaded = load_any(word)
    return [loaded] if isinstance(loaded, Rubric) else loaded.rubrics


def load_one(word: str) -> Rubric:
    """A single contract: a set means its fused question."""
    if word not in SETS:
        loaded = load_any(word)
        if isinstance(loaded, Rubric):
            return loaded
        if own := [rubric.name for rubric in loaded.rubrics if any(getattr(rubric, name) for name in ASKING[:3])]:
            raise UnknownRubric(f"{word}: {own[0]} is asked on conditions, so name one rubric: {word}#{own[0]}")
    from editjudge.rubrics.fused import fuse

    return fuse(word if word in SETS else Path(word).stem, _members(word))


def load_set(word: str) -> RubricSet | None:
    """The set that a word names, built in or a file; None where it names a rubric."""
    from editjudge.rubrics.sets import RubricSet

    if word in SETS:
        return RubricSet(word, tuple(_members(word)))
    loaded = load_any(word)
    return None if isinstance(loaded, Rubric) else loaded


@functools.cache
def _builtin(name: str) -> Rubric:
    return read(BUILTIN / f"{name}.yaml")


def load(word: str) -> Rubric:
    """One rubric, by its built-in name or the path of a YAML file; `FILE#NAME` is one of a set.

    Raises `RubricError`, an `InputError`, where there is none or the file breaks its schema, with its line.
    """
    loaded = load_any(word)
    if isinstance(loaded, Rubric):
        return loaded
    raise UnknownRubric(
        f'"{_shown(word)}" is a set; here one rubric is wanted, such as {_shown(word)}#{loaded.rubrics[0].name}'
    )


def load_any(word: str) -> Rubric | RubricSet:
    """As `load`, or the set that a file holds."""
    if word in names() or word in (*PAIRWISE, *COMPUTED):
        return _builtin(word)
    file, mark, member = word.rpartition("#")
    if mark and (Path(file).suffix in (".yaml", ".yml") or os.path.isfile(file)) and not os.path.isfile(word):
        return _member(file, member)
    path = Path(word)
    if path.suffix in (".yaml", ".yml") or os.path.isfile(path):  # unlike path.is_file(), it raises on no name
        return read_any(path)
    if word in SETS:
        raise UnknownRubric(f'"{word}" is a set; here one rubric is wanted, such as {SETS[word][0]}')
    known = [*names(), *SETS, *PAIRWISE, *COMPUTED]
    raise UnknownRubric(
        f'no rubric is called "{_shown(word)}"{near_miss(word, known)} '
        f"Built in: {', '.join(known)}; or give the path of a YAML file."
    )


def _member(file: str, name: str) -> Rubric:
    loaded = read_any(Path(file))
    rubrics = [loaded] if isinstance(loaded, Rubric) else loaded.rubrics
    for rubric in rubrics:
        if rubric.name == name:
            return rubric
    known = [rubric.name for rubric in rubrics]
    raise UnknownRubric(
        f'{_shown(file)} has no rubric "{_shown(name)}"{near_miss(name, known)} It has {", ".join(known)}'
    )


def read(path: Path) -> Rubric:
    """The file of one rubric, checked."""
    loaded = read_any(path)
    if isinstance(loaded, Rubric):
        return loaded
    raise RubricError(f"{path}: is a set of rubrics; here one rubric is wanted")


def read_any(path: Path) -> Rubric | RubricSet:
    """A file of a rubric or of a set, checked."""
    return parse_any(_file_text(path), str(path), path.parent)


def _file_text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise RubricError(f"{path}: larger than {_MAX_BYTES:,} bytes; that is not a rubric")
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise RubricError(f"{path}: not a rubric file: not UTF-8 at byte {error.start}") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise RubricError(f"{_shown(str(path))}: cannot be read: {why}") from None


def parse(text: str, source: str = "rubric") -> Rubric:
    """The text of a rubric's file, checked."""
    rubric = parse_any(text, source)
    if not isinstance(rubric, Rubric):
        raise RubricError(f"{source}: is a set of rubrics; here one rubric is wanted")
    return rubric


def parse_any(text: str, source: str = "rubric", folder: Path | None = None) -> Rubric | RubricSet:
    """The text of a file of a rubric or of a set, checked; a set's `use` names files of the `folder`."""
    data, lines = _yaml(text, source)
    if not isinstance(data, dict):
        raise RubricError(f"{source}:1: expected keys such as name, images, factors and answer")
    if "rubrics" in data:
        return _set(data, lines, source, folder)
    rubric = _rubric(data, lines, source)
    if rubric.after:
        raise RubricError(f"{source}:{lines.get(('after',), 1)}: after: only a rubric of a set has one before it")
    return rubric


_SET_KEYS = ("name", "description", "rubrics", "score")


def _set(data: dict[str, Any], lines: dict[_Path, int], source: str, folder: Path | None) -> RubricSet:
    from editjudge.rubrics.sets import RubricSet

    def wrong(path: _Path, why: str) -> RubricError:
        return RubricError(f"{source}:{lines.get(path, 1)}: {'.'.join(map(str, path))}: {why}")

    for key in data:
        if key not in _SET_KEYS:
            raise wrong(
                (key,), f'unknown key "{_shown(key)}"{near_miss(key, _SET_KEYS)} Expected: {", ".join(_SET_KEYS)}'
            )
    name, description, scores = data.get("name"), data.get("description") or "", data.get("score") or {}
    if not isinstance(name, str) or not name or not isinstance(description, str):
        raise wrong(("name",), "a set needs a name, and its description is text")
    if not isinstance(data["rubrics"], list) or not data["rubrics"]:
        raise wrong(("rubrics",), "expected a list of rubrics")
    if not isinstance(scores, dict):
        raise wrong(("score",), "expected formulas by name")
    for key, score in scores.items():
        if not isinstance(score, str) and not (isinstance(score, dict) and isinstance(score.get("formula"), str)):
            raise wrong(("score", key), "expected a formula as text, or keys such as formula and repeats")
    rubrics = []
    for number, entry in enumerate(data["rubrics"]):
        inside = {path[2:]: line for path, line in lines.items() if path[:2] == ("rubrics", number)}
        rubrics.append(_set_member(entry, inside, source, folder))
    try:
        return RubricSet(name, tuple(rubrics), scores, description)
    except RubricError as error:
        line = next((lines[("score", key)] for key in scores if f"score {key}:" in str(error)), 1)
        raise RubricError(f"{source}:{line}: {error}") from None


def _set_member(entry: Any, lines: dict[_Path, int], source: str, folder: Path | None) -> Rubric:
    """A rubric that stands in the file, or one that `use` names, with what the set says of it."""
    entry = {"use": entry} if isinstance(entry, str) else entry
    if not isinstance(entry, dict):
        raise RubricError(f"{source}:{lines.get((), 1)}: rubrics: expected the keys of a rubric, or `use: NAME`")
    if "use" not in entry:
        return _rubric(entry, lines, source)
    word, own = entry["use"], {key: value for key, value in entry.items() if key != "use"}
    known = ("name", "system", *ASKING)
    for key in own:
        if key not in known:
            why = f'beside `use` stand {", ".join(known)}, not "{_shown(key)}"'
            raise RubricError(f"{source}:{lines.get((key,), 1)}: {why}")
    if not isinstance(word, str) or (word not in (*names(), *COMPUTED) and not _lies_below(word, folder)):
        raise RubricError(
            f"{source}:{lines.get(('use',), 1)}: use: expected a built-in rubric ({', '.join(names())}) or a file in "
            "the folder of the set"
        )
    path = word if word in (*names(), *COMPUTED) else str((folder or Path()) / word)
    content = json.loads(json.dumps(load(path).content())) | own
    return _validate(content, lines, source)


def _lies_below(word: str, folder: Path | None) -> bool:
    """A set that somebody else wrote names no file outside its own folder."""
    if folder is None or not word.partition("#")[0].endswith((".yaml", ".yml")):
        return False
    return os.path.realpath(folder / word).startswith(os.path.realpath(folder) + os.sep)


def _rubric(data: dict[str, Any], lines: dict[_Path, int], source: str) -> Rubric:
    _spread_scale(data)
    rubric = _validate(data, lines, source)
    if rubric.template:
        _check_template(rubric.template, lines.get(("template", "text"), 1), source)
    return rubric


def plain_yaml(text: str, source: str) -> Any:
    """A YAML file of someone else as plain data, read as strictly as our own."""
    return _yaml(text, source)[0]


def read_plain(path: Path) -> tuple[Any, dict[_Path, int]]:
    """A file of ours that is no rubric, such as a recipe: its data, and the line of each key."""
    return _yaml(_file_text(path), str(path))


def dump_plain(data: Any) -> str:
    """Plain data as YAML that people can read; reading it back gives the same."""
    import yaml

    return yaml.dump(data, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=100)


def dump(rubric: Rubric) -> str:
    """The YAML file of a rubric; reading it back gives an equal one."""
    import yaml

    data = _told(rubric)
    data["factors"], scale = _gathered_scale(data["factors"])
    if scale:
        data = {"name": data.pop("name"), "scale": scale, **data}
    return yaml.dump(data, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=100)


def _validate(data: dict[str, Any], lines: dict[_Path, int], source: str) -> Rubric:
    from pydantic import TypeAdapter, ValidationError

    try:
        # Strict JSON mode takes a list for a tuple but no string or 6.0 for an integer.
        return TypeAdapter(Rubric).validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        complaints = list(dict.fromkeys(_complaint(dict(e), lines, source) for e in errors[:_MAX_COMPLAINTS]))
        if len(errors) > _MAX_COMPLAINTS:
            complaints.append(f"{source}: and {len(errors) - _MAX_COMPLAINTS} more")
        raise RubricError("\n".join(complaints)) from None


def _check_template(template: Template, line: int, source: str) -> None:
    from editjudge.rubrics.prompt import pieces

    try:
        list(pieces(template))
    except ValueError as error:
        said = f"template.text: {error}; under `braces: format` a brace that is meant as such is doubled"
        raise RubricError(f"{source}:{line}: {said}") from None


def _complaint(error: dict[str, Any], lines: dict[_Path, int], source: str) -> str:
    path = _blamed(tuple(error["loc"]), error, lines)
    where = path
    while where and where not in lines:
        where = where[:-1]
    line = lines.get(where, 1)
    key = _shown(".".join(map(str, path))) or "rubric"
    match error["type"]:
        case "missing":
            said = "missing"
            if path[-1] == "scale":
                said += ": give the rubric or this factor a scale"
        case "unexpected_keyword_argument":
            known = _fields_at(path[:-1])
            found = str(path[-1])
            said = f'unknown key "{_shown(found)}"{near_miss(found, known)} Expected: {", ".join(known)}'
        case "literal_error":
            said = f"{error['msg']}, found {error['input']!r:.80}"
            said += near_miss(str(error["input"]), re.findall(r"'(\w+)'", error["msg"])).rstrip(".")
        case "value_error":
            said = error["msg"].removeprefix("Value error, ")
        case _:
            said = f"{error['msg']}, found {error['input']!r:.80}"
    return f"{source}:{line}: {key}: {said}"


def _blamed(path: _Path, error: dict[str, Any], lines: dict[_Path, int]) -> _Path:
    """Where in the file the fault lies: in the scale that the factors share, or at the key that a message names."""
    if path[:1] == ("factors",) and path[2:3] == ("scale",) and path[:3] not in lines and ("scale",) in lines:
        path = path[2:]
    if error["type"] == "value_error":
        words = re.findall(r"[a-z]+", error["msg"].removeprefix("Value error, "))
        keys = ((*path, key) for word in words for key in (word, f"{word}s"))
        path = next((key for key in keys if key in lines), path)
    return path


def _shown(text: str) -> str:
    """A stranger's text in a message, without anything that a terminal would obey."""
    return text if text.isprintable() else repr(text)[1:-1]


def _fields_at(path: _Path) -> list[str]:
    """The keys that a place of the file may have."""
    from editjudge.rubrics import model

    inside = {
        "factors": model.Factor,
        "scale": model.Scale,
        "anchors": model.Anchor,
        "answer": model.AnswerFormat,
        "consistency": model.Consistency,
        "template": model.Template,
        "slots": model.Slot,
    }
    owner = next((inside[part] for part in reversed(path) if isinstance(part, str) and part in inside), Rubric)
    hidden = {"members", "after"}  # the one is made by fusing, the other has its place in a set
    fields = [field.name for field in dataclasses.fields(owner) if field.name not in hidden]
    return [*fields, "scale"] if owner is Rubric else fields


def _spread_scale(data: dict[str, Any]) -> None:
    """A rubric's scale is that of every factor that names none."""
    if "scale" not in data:
        return
    scale = data.pop("scale")
    factors = data.get("factors")
    for factor in factors if isinstance(factors, list) else ():
        if isinstance(factor, dict):
            factor.setdefault("scale", scale)


def _gathered_scale(factors: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    scale = factors[0]["scale"]
    if any(factor["scale"] != scale for factor in factors):
        return factors, None
    return [{k: v for k, v in factor.items() if k != "scale"} for factor in factors], scale


def _told(value: Any) -> Any:
    """As plain data, without the fields that have their default, so that a file shows what is its own."""
    if dataclasses.is_dataclass(value):
        return {f.name: _told(v) for f in dataclasses.fields(value) if (v := getattr(value, f.name)) != _default(f)}
    if isinstance(value, Mapping):
        return {key: _told(item) for key, item in value.items()}
    return [_told(item) for item in value] if isinstance(value, tuple) else value


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if callable(field.default_factory) else field.default


def _dumper() -> Any:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Long and many-line texts as blocks, which people can read and edit."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        if _SURROGATE.search(value):
            raise RubricError(f'"{_shown(value[:80])}" holds half of a surrogate pair, which no file can hold')
        style = '"' if _OTHER_BREAKS.search(value) else "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return Dumper


def _yaml(text: str, source: str) -> tuple[Any, dict[_Path, int]]:
    """A YAML document as plain data, and the line of each key.

    The library's composer crashes the process on deep nesting and expands aliases without bound, so it gets what was
    looked over only; its constructor takes the last of two equal keys and reads `no` as false, so ours stands in.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _look_over(yaml.parse(text, Loader=loader), source)
        node = yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
        raise RubricError(f"{source}:{line}: not YAML: {problem}") from None
    lines: dict[_Path, int] = {}
    return None if node is None else _built(node, (), lines, source), lines


def _look_over(events: Iterable[Any], source: str) -> None:
    depth = documents = 0
    for event in events:
        kind, why = type(event).__name__, ""
        depth += kind in ("MappingStartEvent", "SequenceStartEvent")
        depth -= kind in ("MappingEndEvent", "SequenceEndEvent")
        documents += kind == "DocumentStartEvent"
        if getattr(event, "tag", None):
            why = "tags (!name) are not used in rubric files"
        elif kind == "AliasEvent":
            why = "aliases (*name) are not used in rubric files"
        elif depth > _MAX_DEPTH:
            why = f"nested more than {_MAX_DEPTH} deep"
        elif documents > 1:
            why = "one document a file"
        if why:
            raise RubricError(f"{source}:{event.start_mark.line + 1}: {why}")


def _built(node: Any, path: _Path, lines: dict[_Path, int], source: str) -> Any:
    if node.id == "scalar":
        return node.value if node.style else _plain(node.value, decimals=path[-1:] == ("step",) or _DECIMALS & {*path})
    if node.id == "sequence":
        for number, item in enumerate(node.value):
            lines[(*path, number)] = item.start_mark.line + 1
        return [_built(item, (*path, number), lines, source) for number, item in enumerate(node.value)]
    found: dict[str, Any] = {}
    for name, value in node.value:
        line, key, why = name.start_mark.line + 1, name.value, ""
        if name.id != "scalar":
            why = "a key must be a word"
        elif key in found:
            why = f'the key "{_shown(key)}" stands twice'
        elif _NUMBERLIKE.fullmatch(key) and repr(_plain(key)) != key:
            why = f'the key "{_shown(key)}" is not a plain integer'
        if why:
            raise RubricError(f"{source}:{line}: {why}")
        lines[(*path, key)] = line
        found[key] = _built(value, (*path, key), lines, source)
    return found


_DECIMALS = frozenset({"range", "scores"})
"""Keys whose lists hold numbers; anywhere else 1.5 is a text, such as the number of a paragraph."""


def _plain(text: str, decimals: object = False) -> Any:
    """An unquoted scalar: an integer, a decimal where one may stand, true, false, null, or simply text."""
    if decimals and _DECIMAL.fullmatch(text) and len(text) < 20:
        return float(text)
    if _INTEGER.fullmatch(text) and len(text) < 10:
        return int(text)
    return _WORDS.get(text, text)
