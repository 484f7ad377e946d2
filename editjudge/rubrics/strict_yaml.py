"""Strict YAML for rubric files, validated against a dataclass. Every error names the file, line and key.

PyYAML's composer crashes the process on deep nesting and expands aliases without limit, so events are checked first.
Its constructor accepts duplicate keys and reads `no` as false, so this module has its own constructor.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from editjudge.errors import RubricError, did_you_mean, near_miss, one_line

if TYPE_CHECKING:
    import yaml
    from _typeshed import DataclassInstance
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

T = TypeVar("T", bound="DataclassInstance")
YamlPath = tuple[str | int, ...]
Lines = Mapping[YamlPath, int]
"""Line numbers of a document's keys and items, keyed by path."""

_MAX_BYTES = 1_000_000
_MAX_DEPTH = 20
_MAX_COMPLAINTS = 20
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?[0-9]+\.[0-9]+")
_NUMBERLIKE = re.compile(r"[-+.\s\d]*\d[-+.\s\d]*")
"""Pattern of keys that look like numbers. Several spellings of one integer would be different keys here, but the same
label later.
"""
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_DECIMALS = frozenset({"range", "scores", "weights"})
"""Keys whose lists contain numbers. Under other keys 1.5 is a string, such as the number of a paragraph."""

_SURROGATE = re.compile("[\ud800-\udfff]")
# YAML reads these as line breaks and turns the first one into a newline; in quotes they are escaped.
_OTHER_BREAKS = re.compile("[\x85\u2028\u2029]")


# --- our own tables -------------------------------------------------------------------------------------------


@functools.cache
def load_table(name: str) -> Any:
    """Return the content of `tables/NAME.yaml`: words and patterns for reading prompts and replies."""
    import yaml

    path = Path(__file__).parent / "tables" / f"{name}.yaml"
    return yaml.safe_load(path.read_text("utf-8"))


@functools.cache
def pattern(name: str) -> re.Pattern[str]:
    """Return a compiled pattern from the table `prompts`."""
    table = load_table("prompts")
    text: str = table["patterns"][name]
    for part, content in table["parts"].items():
        text = text.replace(f"<{part}>", content)
    return re.compile(text)


@functools.cache
def word_list(table: str, name: str) -> frozenset[str]:
    """Return a word list from a table, as a set."""
    return frozenset(load_table(table)[name].split())


# --- reading --------------------------------------------------------------------------------------------------


def read_text(path: Path) -> str:
    """Read a file. Raise `RubricError` if it is too large or not UTF-8."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise RubricError(
                f"{path}: larger than {_MAX_BYTES:,} bytes; that is not a rubric",
                code="too_many_bytes",
            )
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise RubricError(
            f"{path}: not a rubric file: not UTF-8 at byte {error.start}",
            code="not_utf8",
        ) from None
    except OSError as error:
        raise RubricError(
            f"{one_line(str(path))}: cannot be read: {error.strerror}",
            code="unreadable_file",
        ) from None
    except ValueError as error:  # a null byte in the name
        raise RubricError(f"{one_line(str(path))}: cannot be read: {error}") from None


def parse_yaml(text: str, source: str) -> tuple[Any, Lines]:
    """Parse a YAML document. Return its plain data and the line of each key."""
    import yaml

    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    try:
        _look_over(yaml.parse(text, Loader=loader), source)
        node = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise RubricError(f"{source}:{line}: not YAML: {error.problem}") from None
    except yaml.reader.ReaderError as error:
        raise RubricError(f"{source}:1: not YAML: {error.reason}") from None
    lines: dict[YamlPath, int] = {}
    return None if node is None else _built(node, (), lines, source), lines


def lines_below(lines: Lines, *path: str | int) -> Lines:
    """Return the line numbers of part of a document, keyed by paths relative to that part."""
    depth = len(path)
    return {key[depth:]: n for key, n in lines.items() if key[:depth] == path}


def _look_over(events: Iterable[Any], source: str) -> None:
    """Raise `RubricError` for events that must not reach the composer."""
    import yaml

    tagged = yaml.ScalarEvent | yaml.CollectionStartEvent
    depth = 0
    documents = 0
    for event in events:
        problem = ""
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if isinstance(event, yaml.AliasEvent):
            problem = "aliases (*name) are not used in rubric files"
        elif isinstance(event, tagged) and event.tag:
            problem = "tags (!name) are not used in rubric files"
        elif depth > _MAX_DEPTH:
            problem = f"nested more than {_MAX_DEPTH} deep"
        elif documents > 1:
            problem = "more than one document; expected one in a file"
        if problem:
            raise RubricError(f"{source}:{event.start_mark.line + 1}: {problem}")


def _built(
    node: Any, path: YamlPath, lines: dict[YamlPath, int], source: str
) -> object:
    """Return the plain data of a node, and add the lines of its keys and items to `lines`."""
    if node.id == "scalar":
        decimals = path[-1:] == ("step",) or not _DECIMALS.isdisjoint(path)
        return node.value if node.style else _plain(node.value, decimals=decimals)
    if node.id == "sequence":
        items = []
        for number, item in enumerate(node.value):
            lines[(*path, number)] = item.start_mark.line + 1
            items.append(_built(item, (*path, number), lines, source))
        return items
    members: dict[str, object] = {}
    for name, value in node.value:
        line = name.start_mark.line + 1
        key = name.value
        problem = ""
        if name.id != "scalar":
            problem = "a key must be a word"
        elif key in members:
            problem = f'the key "{one_line(key)}" occurs twice'
        elif _NUMBERLIKE.fullmatch(key) and repr(_plain(key)) != key:
            problem = f'the key "{one_line(key)}" is not a plain integer'
        if problem:
            raise RubricError(f"{source}:{line}: {problem}")
        lines[(*path, key)] = line
        members[key] = _built(value, (*path, key), lines, source)
    return members


def _plain(text: str, decimals: object = False) -> object:
    """Return the value of an unquoted scalar: an integer, true, false, null or a string. With `decimals`, it may also
    be a decimal.
    """
    if decimals and _DECIMAL.fullmatch(text) and len(text) < 20:
        return float(text)
    if _INTEGER.fullmatch(text) and len(text) < 10:
        return int(text)
    return _WORDS.get(text, text)


# --- checking -------------------------------------------------------------------------------------------------


def field_names(owner: type[DataclassInstance]) -> list[str]:
    return [field.name for field in dataclasses.fields(owner)]


def validated(
    kind: type[T],
    data: object,
    lines: Lines,
    source: str,
    keys_of: Callable[[type[DataclassInstance]], list[str]] = field_names,
) -> T:
    """Validate data as the dataclass `kind`. `keys_of` returns the legal keys of a dataclass, for messages."""
    from pydantic import ValidationError

    try:
        # Strict JSON mode accepts a list for a tuple, but neither a string nor 6.0 for an integer.
        adapter: TypeAdapter[T] = _adapter(kind)
        return adapter.validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        complaints = []
        for fault in errors[:_MAX_COMPLAINTS]:
            owner = _class_at(kind, fault["loc"][:-1])
            keys = keys_of(owner)
            complaints.append(_complaint(fault, lines, source, keys))
        if len(errors) > _MAX_COMPLAINTS:
            complaints.append(f"{source}: and {len(errors) - _MAX_COMPLAINTS} more")
        code = getattr(errors[0].get("ctx", {}).get("error"), "code", errors[0]["type"])
        raise RubricError("\n".join(dict.fromkeys(complaints)), code=code) from None


@functools.cache
def _adapter(kind: type[DataclassInstance]) -> TypeAdapter[Any]:
    """Return the validator of a class. It is cached, since building one takes longer than validating a hundred rubrics."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _class_at(
    kind: type[DataclassInstance], path: Iterable[str | int]
) -> type[DataclassInstance]:
    """Return the innermost dataclass on a path that starts at `kind`."""
    for key in path:
        hint = typing.get_type_hints(kind).get(key) if isinstance(key, str) else None
        for part in (hint, *typing.get_args(hint)):
            if isinstance(part, type) and dataclasses.is_dataclass(part):
                kind = part
                break
    return kind


def _complaint(error: ErrorDetails, lines: Lines, source: str, keys: list[str]) -> str:
    path = _fault_path(tuple(error["loc"]), error, lines)
    message = error["msg"]
    with_input = f"{message}, found {error['input']!r:.80}"
    match error["type"]:
        case "missing" if path[-1] == "scale":
            message = "missing: give the rubric or this factor a scale"
        case "missing":
            message = "missing"
        case "unexpected_keyword_argument":
            key = str(path[-1])
            message = f'unknown key "{one_line(key)}"{did_you_mean(key, keys)} Expected: {", ".join(keys)}'
        case "literal_error":
            options = re.findall(r"'(\w+)'", error["ctx"]["expected"])
            close = near_miss(str(error["input"]), options)
            message = f'{with_input}; did you mean "{close}"?' if close else with_input
        case "value_error":
            message = str(error["ctx"]["error"])
        case _:
            message = with_input
    line_path = path
    while line_path and line_path not in lines:
        line_path = line_path[:-1]
    name = one_line(".".join(map(str, path))) or "rubric"
    return f"{source}:{lines.get(line_path, 1)}: {name}: {message}"


def _fault_path(path: YamlPath, error: ErrorDetails, lines: Lines) -> YamlPath:
    """Return the path at which to report a fault. It may be the scale that factors share, or a key named by a
    `FieldError`.
    """
    # Pydantic adds the types of a union to the path, which are not keys.
    kinds = ("str", "PromptPart", "tuple[str, ...]")
    path = tuple(key for key in path if key not in kinds)
    is_scale = path[:1] == ("factors",) and path[2:3] == ("scale",)
    if is_scale and path[:3] not in lines and ("scale",) in lines:
        path = path[2:]
    if error["type"] == "value_error":
        keys = ((*path, key) for key in getattr(error["ctx"]["error"], "keys", ()))
        path = next((key for key in keys if key in lines), path)
    return path


# --- writing --------------------------------------------------------------------------------------------------


def dump_plain(data: object) -> str:
    """Return plain data as readable YAML. `parse_yaml` turns it back into the same data."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes multi-line strings as block scalars, which are easy to read and edit."""

        def ignore_aliases(self, data: object) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        if _SURROGATE.search(value):
            raise RubricError(
                f'"{one_line(value[:80])}" has an unpaired surrogate, which cannot be written to a file',
                code="not_text",
            )
        style = "|" if "\n" in value else None
        if _OTHER_BREAKS.search(value):
            style = '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return yaml.dump(
        data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100
    )
