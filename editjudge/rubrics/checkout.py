"""Texts out of a checkout of someone else's repository: read where they stand, word for word, never executed.

Python files are parsed, not imported: a text is a constant, an entry of a dictionary or what a function returns, put
together only of other constants. Whatever is not as expected is an error with file and line.
"""

from __future__ import annotations

import ast
import json
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from editjudge.errors import RubricError, near_miss
from editjudge.rubrics.strict_yaml import parse_yaml

_MAX_BYTES = 5_000_000
_MAX_STEPS = 200
"""Terms of one text: a file that refers to itself ends here."""


@dataclass(frozen=True)
class TextSource:
    """Where a text stands. Without more than `file` it is the whole file.

    In YAML::

        {file: bench/prompts.py, constant: EDIT_PROMPT}           # at the top level, or Class.NAME
        {file: bench/prompts.py, constant: PROMPTS, key: [edit]}  # an entry of a dictionary or list
        {file: bench/judge.py, function: edit_prompt}             # what it returns; Class.method too
        {file: bench/judge.py, function: ask, variable: tail}     # what it assigns to a variable
        {file: prompts.json, key: [edit, 0, text]}                # of JSON or YAML
        {file: README.md, after: "<prompt>", before: "</prompt>"} # between two marks, each of which stands once
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    file: str
    constant: str = ""
    function: str = ""
    variable: str = ""
    key: tuple[str | int, ...] = ()
    after: str = ""
    before: str = ""
    replace: Mapping[str, str] = field(default_factory=dict)
    """What the repository's own code replaces before it asks; each must be there."""
    strip: bool = False
    """Whether the repository's own code drops white space at both ends."""

    def __post_init__(self) -> None:
        if self.constant and self.function:
            raise ValueError("a text is a constant or of a function, not both")
        if self.variable and not self.function:
            raise ValueError("variable: of which function?")


def read_source(checkout: Path, source: TextSource) -> str:
    """The text, word for word."""
    path, content = _content(checkout, source.file)
    if source.constant or source.function:
        text = _Python(source.file, content).text(source)
    elif source.key:
        text = _entry(source, _loaded(path, source.file, content))
    else:
        text = content
    text = _between(text, source)
    for old, new in source.replace.items():
        if old not in text:
            raise RubricError(f"{source.file}: {old!r} is not in the text, and was expected there")
        text = text.replace(old, new)
    text = text.strip() if source.strip else text
    if not text.strip():
        raise RubricError(f"{source.file}: the text is empty")
    return text


def _content(checkout: Path, name: str) -> tuple[Path, str]:
    root = checkout.resolve()
    if not root.is_dir():
        raise RubricError(f"{checkout}: no folder; expected a checkout of the repository")
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise RubricError(f"{name}: leads out of the checkout")
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise RubricError(f"{name}: larger than {_MAX_BYTES:,} bytes; no prompt is")
        return path, path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise RubricError(f"{name}: not UTF-8 at byte {error.start}") from None
    except OSError as error:
        raise RubricError(
            f"{checkout} has no {name}: {error.strerror}. Is it the right repository, and commit?"
        ) from None


def _between(text: str, source: TextSource) -> str:
    for mark, side in ((source.after, 2), (source.before, 0)):
        if mark:
            if text.count(mark) != 1:
                raise RubricError(f"{source.file}: {mark!r} stands {text.count(mark)} times, and was expected once")
            text = text.partition(mark)[side]
    return text


def _loaded(path: Path, name: str, content: str) -> Any:
    if path.suffix in (".yaml", ".yml"):
        return parse_yaml(content, name)[0]
    try:
        return json.loads(content)
    except ValueError as error:
        raise RubricError(f"{name}: not JSON: {error}") from None
    except RecursionError:
        raise RubricError(f"{name}: nested too deeply") from None


def _entry(source: TextSource, content: Any) -> str:
    value: Any = content
    part: Any
    for number, part in enumerate(source.key):
        where = ".".join(map(str, source.key[: number + 1]))
        try:
            value = value[part] if not isinstance(value, str) else {}[part]
        except (KeyError, IndexError, TypeError):
            known = [str(key) for key in value] if isinstance(value, dict) else []
            raise RubricError(f'{source.file}: no "{where}"{near_miss(str(part), known)}') from None
    if not isinstance(value, str):
        raise RubricError(f"{source.file}: {'.'.join(map(str, source.key))} is no text")
    return value


class _Python:
    def __init__(self, name: str, content: str) -> None:
        self._name, self._steps = name, 0
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about someone else's code
                self._tree = ast.parse(content)
        except SyntaxError as error:
            raise RubricError(f"{name}:{error.lineno or 1}: not Python: {error.msg}") from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise RubricError(f"{name}: not Python: {error}") from None

    def text(self, source: TextSource) -> str:
        node = self._constant(source.constant) if source.constant else self._of_function(source)
        for part in source.key:
            node = self._item(node, part)
        return self._text(node)

    def _wrong(self, node: ast.AST, why: str) -> RubricError:
        return RubricError(f"{self._name}:{getattr(node, 'lineno', 1)}: {why}")

    def _scope(self, path: Sequence[str]) -> Sequence[ast.stmt]:
        body: Sequence[ast.stmt] = self._tree.body
        for name in path:
            classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == name]
            if len(classes) != 1:
                raise RubricError(f"{self._name}: {len(classes)} classes are called {name}; expected one")
            body = classes[0].body
        return body

    def _constant(self, name: str) -> ast.expr:
        *path, last = name.split(".")
        return self._assigned(self._scope(path), last, f"{self._name}")

    def _assigned(self, body: Sequence[ast.stmt], name: str, where: str) -> ast.expr:
        found = list(_assignments(body))
        values = [value for known, value in found if known == name]
        if len(values) != 1:
            hint = near_miss(name, {known for known, _ in found}) if not values else "."
            lines = ", ".join(str(value.lineno) for value in values)
            why = f"assigned {len(values)} times, on lines {lines}" if values else "not there"
            raise RubricError(f'{where}: the constant "{name}" was expected once and is {why}{hint}')
        return values[0]

    def _of_function(self, source: TextSource) -> ast.expr:
        *path, name = source.function.split(".")
        kinds = ast.FunctionDef | ast.AsyncFunctionDef
        functions = [node for node in self._scope(path) if isinstance(node, kinds) and node.name == name]
        if len(functions) != 1:
            known = {node.name for node in self._scope(path) if isinstance(node, kinds)}
            raise RubricError(f'{self._name}: no single function "{source.function}"{near_miss(name, known)}')
        function = functions[0]
        if source.variable:
            body = [node for node in ast.walk(function) if isinstance(node, ast.stmt)]
            return self._assigned(body, source.variable, f"{self._name}:{function.lineno}")
        returns = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value]
        if len(returns) != 1:
            raise self._wrong(function, f"{source.function} returns at {len(returns)} places; name a variable")
        return returns[0]

    def _item(self, node: ast.expr, part: str | int) -> ast.expr:
        if isinstance(node, ast.Name):
            node = self._constant(node.id)
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == part:
                    return value
            known = [str(key.value) for key in node.keys if isinstance(key, ast.Constant)]
            raise self._wrong(node, f'no key "{part}"{near_miss(str(part), known)}')
        if isinstance(node, ast.List | ast.Tuple) and isinstance(part, int) and part < len(node.elts):
            return node.elts[part]
        raise self._wrong(node, f"expected a dictionary or a list with {part!r}")

    def _text(self, node: ast.expr) -> str:
        """A text put together of constants; what an f-string fills in stays as `{name}`."""
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise self._wrong(node, "the text is put together of too many parts")
        match node:
            case ast.Constant(value=str() as text):
                return text
            case ast.JoinedStr(values=parts):
                return "".join(self._text(part) for part in parts)
            case ast.FormattedValue(value=value):
                return f"{{{ast.unparse(value)}}}"
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._text(left) + self._text(right)
            case ast.Name(id=name):
                return self._text(self._constant(name))
            case ast.Call(func=ast.Attribute(value=value, attr="strip" | "lstrip" | "rstrip" as how), args=[]):
                return str(getattr(self._text(value), how)())
            case ast.Call(
                func=ast.Attribute(value=value, attr="join"), args=[ast.List(elts=parts) | ast.Tuple(elts=parts)]
            ):
                return self._text(value).join(map(self._text, parts))
            case ast.Call(func=ast.Name(id="dedent") | ast.Attribute(attr="dedent"), args=[value]):
                return textwrap.dedent(self._text(value))
        raise self._wrong(node, f"expected a text, and it is {ast.unparse(node)[:60]!r}, which is not computed here")


def _assignments(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for node in body:
        if isinstance(node, ast.Assign):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            yield node.target.id, node.value
