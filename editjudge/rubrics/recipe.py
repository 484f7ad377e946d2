"""Recipes: where in a checkout of a benchmark its prompts stand, and what makes a rubric set of them.

We carry none of other people's prompts. A recipe is a data file of facts about a repository: which texts a question is
made of, which marks in them are inputs, what the answer is, on which scale, when a question is asked, and how the
published score is computed. Reading it against the user's own checkout gives a rubric set that keeps every word::

    name: mybench
    title: MyBench
    repository: owner/mybench
    commit: 0123abc                                # on which the recipe was tried
    texts:
      rules: {file: prompts.py, constant: RULES}
      quality: {file: prompts.json, key: [quality]}
    rubrics:
      - name: quality
        prompt: [rules, quality]                   # names of texts, in order
        join: "\\n"
        slots: {"<edit>": instruction}
        images: [input, edited]
        factors: [{key: score}]
        scale: {values: [1, 2, 3, 4, 5]}
        answer: {form: scores, texts: [reason]}
    score:
      overall: share(score)

A part of a prompt is the name of a text, `{picture: edited}` or `{input: question}` where an input goes between two
texts, or `{text: "..."}` for separators. A slot with a list (`"<image>": [input, edited]`) fills the mark's occurrences
one after the other. Images are shown where they stand, in every layout. Every other key of a rubric is that of a rubric
file.

A checkout is never executed. Python files are parsed, not imported: a text is a constant, an entry of a dictionary or
what a function returns, put together only of other constants. Whatever is not as expected is an error with its line.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from editjudge.errors import RubricError, near_miss
from editjudge.files import LeavesFolder, resolve_inside
from editjudge.rubrics.model import image_part_mark, text_part_mark
from editjudge.rubrics.scale import FileContent
from editjudge.rubrics.strict_yaml import Lines, parse_yaml, read_text, validated

RECIPES = Path(__file__).parent / "recipes"


@dataclass(frozen=True)
class TextSource(FileContent):
    """The place of a text. Without more than `file` it is the whole file.

    In YAML::

        {file: bench/prompts.py, constant: EDIT_PROMPT}           # at the top level, or Class.NAME
        {file: bench/prompts.py, constant: PROMPTS, key: [edit]}  # an entry of a dictionary or list
        {file: bench/judge.py, function: edit_prompt}             # what it returns; Class.method too
        {file: bench/judge.py, function: ask, variable: tail}     # what it assigns to a variable
        {file: prompts.json, key: [edit, 0, text]}                # of JSON or YAML
        {file: README.md, after: "<prompt>", before: "</prompt>"} # between two marks, each of which stands once
    """

    file: str
    constant: str = ""
    function: str = ""
    variable: str = ""
    key: tuple[str | int, ...] = ()
    after: str = ""
    before: str = ""
    replace: Mapping[str, str] = field(default_factory=dict)
    """Texts that the repository's own code replaces before it asks; each must be there."""
    strip: bool = False
    """Whether the repository's own code drops white space at both ends."""

    def __post_init__(self) -> None:
        if self.constant and self.function:
            raise ValueError("a text is a constant or of a function, not both")
        if self.variable and not self.function:
            raise ValueError("variable: of which function?")


@dataclass(frozen=True)
class PromptPart(FileContent):
    """One part of a prompt that is no text of the checkout."""

    picture: str = ""
    input: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        if [bool(self.picture), bool(self.input), bool(self.text)].count(True) != 1:
            raise ValueError(
                "a part of a prompt is a picture, an input or a text of ours"
            )


@dataclass(frozen=True)
class RecipeRubric:
    """One question of the set; `rest` holds the keys that it shares with a rubric file."""

    name: str
    prompt: tuple[str | PromptPart, ...]
    join: str | None = None
    """Text that the repository's own code puts between the parts, those of the system message too. Without it: nothing
    between the parts of the prompt, and an empty line between those of the system message."""
    slots: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    """Mark to input; each mark must be in the text."""
    braces: Literal["literal", "format"] = "literal"
    system: tuple[str, ...] = ()
    """Texts of the system message."""
    removes: tuple[str, ...] = ()
    """Texts of the checkout that its own code takes out of the prompt."""
    expects: tuple[str, ...] = ()
    """Words that must stand in the text, beside the marks: labels of lines, keys of the answer."""
    adds_answer_format: bool = False
    rest: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe(FileContent):
    """The way from a checkout to a rubric set."""

    name: str
    title: str
    repository: str
    texts: Mapping[str, TextSource]
    rubrics: tuple[Mapping[str, Any], ...]
    score: Mapping[str, Any] = field(default_factory=dict)
    commit: str = ""
    description: str = ""
    notes: tuple[str, ...] = ()
    """Differences from the published program, in plain words."""

    @property
    def summary(self) -> dict[str, Any]:
        """Title in a list of recipes."""
        about = {
            "name": self.name,
            "title": self.title,
            "repository": self.repository,
            "commit": self.commit,
        }
        names = [str(one.get("name")) for one in self.rubrics]
        return about | {
            "description": self.description,
            "rubrics": names,
            "scores": list(self.score),
        }


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def load_recipe(word: str) -> Recipe:
    """A recipe by its name, or the path of a recipe file."""
    if word in recipe_names():
        return read_recipe(RECIPES / f"{word}.yaml")
    path = Path(word)
    if path.suffix in (".yaml", ".yml"):
        return read_recipe(path)
    known = recipe_names()
    raise RubricError(
        f'no recipe is called "{word}"{near_miss(word, known)} There are {", ".join(known)}; or give a file'
    )


def read_recipe(path: Path) -> Recipe:
    """A recipe file, checked."""
    data, lines = parse_yaml(read_text(path), str(path))
    if not isinstance(data, dict):
        raise RubricError(
            f"{path}:1: expected keys such as name, repository, texts and rubrics"
        )
    recipe = validated(Recipe, data, lines, str(path))
    for number, content in enumerate(recipe.rubrics):
        inside = {
            place[2:]: line
            for place, line in lines.items()
            if place[:2] == ("rubrics", number)
        }
        _recipe_rubric(content, inside, str(path))
    return recipe


def _recipe_rubric(
    content: Mapping[str, Any], lines: Lines, source: str
) -> RecipeRubric:
    own = {field.name for field in dataclasses.fields(RecipeRubric)} - {"rest"}
    known = {key: value for key, value in content.items() if key in own}
    rest = {key: value for key, value in content.items() if key not in own}
    return validated(RecipeRubric, known | {"rest": rest}, lines, source)


def import_checkout(recipe: Recipe, checkout: Path) -> dict[str, Any]:
    """The rubric set as plain data, as a set's file holds it; `RubricError` where the checkout is not as expected."""
    texts = {
        name: read_source(checkout, source) for name, source in recipe.texts.items()
    }
    rubrics = [
        _built(_recipe_rubric(content, {}, recipe.name), texts, recipe)
        for content in recipe.rubrics
    ]
    about = f"{recipe.title}, imported from {recipe.repository}"
    return {"name": recipe.name, "description": about, "rubrics": rubrics} | (
        {"score": dict(recipe.score)} if recipe.score else {}
    )


def _built(
    rubric: RecipeRubric, texts: Mapping[str, str], recipe: Recipe
) -> dict[str, Any]:
    where = f"{recipe.name}, rubric {rubric.name}"
    text, slots = _assembled(rubric, texts, where)
    files = ", ".join(
        dict.fromkeys(
            recipe.texts[part].file for part in rubric.prompt if isinstance(part, str)
        )
    )
    for word in (*rubric.slots, *rubric.expects):
        if word not in text:
            raise RubricError(
                f"{where}: {word!r} is not in the text of {files}, and was expected there"
            )
    for name in rubric.removes:
        if (unwanted := _named(texts, name, where)) not in text:
            raise RubricError(
                f"{where}: the text of `{name}` is not in that of {files}, and was expected there"
            )
        text = text.replace(unwanted, "")
    for mark, roles in rubric.slots.items():
        text, more = _with_slots(text, mark, roles, rubric, f"{where}: {files}")
        slots += more
    template: dict[str, Any] = {"text": text, "slots": slots}
    if rubric.braces != "literal":
        template["braces"] = rubric.braces
    if rubric.adds_answer_format:
        template["adds_answer_format"] = True
    joint = "\n\n" if rubric.join is None else rubric.join
    system = (
        {"system": joint.join(_named(texts, name, where) for name in rubric.system)}
        if rubric.system
        else {}
    )
    return {"name": rubric.name, **rubric.rest, **system, "template": template}


def _named(texts: Mapping[str, str], name: str, where: str) -> str:
    if name not in texts:
        raise RubricError(
            f'{where}: no text is called "{name}"{near_miss(name, texts)}'
        )
    return texts[name]


def _assembled(
    rubric: RecipeRubric, texts: Mapping[str, str], where: str
) -> tuple[str, list[dict[str, Any]]]:
    parts = []
    slots = []
    for part in rubric.prompt:
        if isinstance(part, str):
            parts.append(_named(texts, part, where))
        elif part.text:
            parts.append(part.text)
        else:
            role = part.picture or part.input
            # No braces, lest str.format takes it for a field of the text.
            mark = image_part_mark(role) if part.picture else text_part_mark(role)
            slots.append({"mark": mark, "role": role})
            parts.append(mark)
    return (rubric.join or "").join(parts), slots


def _with_slots(
    text: str, mark: str, roles: str | Sequence[str], rubric: RecipeRubric, where: str
) -> tuple[str, list[dict[str, Any]]]:
    """The text with the places of one mark, and the slots for them: an image becomes an image part, and a mark that
    stands for several inputs becomes one mark for each."""
    images = rubric.rest.get("images", ())
    pieces = _around_mark(text, mark, rubric.braces)
    if isinstance(roles, str):
        own = image_part_mark(roles) if roles in images else mark
        return own.join(pieces), [{"mark": own, "role": roles}]
    if len(pieces) - 1 != len(roles):
        raise RubricError(
            f"{where}: {mark!r} stands {len(pieces) - 1} times, and was expected {len(roles)} times"
        )
    marks = [
        image_part_mark(role) if role in images else text_part_mark(role)
        for role in roles
    ]
    joined = pieces[0] + "".join(
        own + piece for own, piece in zip(marks, pieces[1:], strict=True)
    )
    return joined, [
        {"mark": own, "role": role} for own, role in zip(marks, roles, strict=True)
    ]


def _around_mark(text: str, mark: str, braces: str) -> list[str]:
    """Return the texts between the places of a mark; under `braces: format` doubled braces are no place of one."""
    if braces == "format" and mark.startswith("{"):
        return re.split(rf"(?<!\{{){re.escape(mark)}(?!\}})", text)
    return text.split(mark)


# --- reading a checkout ---------------------------------------------------------------------------------------

_MAX_BYTES = 5_000_000
_MAX_STEPS = 200
"""Terms of one text: a file that refers to itself ends here."""


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
            raise RubricError(
                f"{source.file}: {old!r} is not in the text, and was expected there"
            )
        text = text.replace(old, new)
    text = text.strip() if source.strip else text
    if not text.strip():
        raise RubricError(f"{source.file}: the text is empty")
    return text


def _content(checkout: Path, name: str) -> tuple[Path, str]:
    root = checkout.resolve()
    if not root.is_dir():
        raise RubricError(
            f"{checkout}: no folder; expected a checkout of the repository"
        )
    try:
        path = Path(resolve_inside(root / name, root))
        if path.stat().st_size > _MAX_BYTES:
            raise RubricError(f"{name}: larger than {_MAX_BYTES:,} bytes; no prompt is")
        return path, path.read_text("utf-8")
    except LeavesFolder:
        raise RubricError(f"{name}: leads out of the checkout") from None
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
                raise RubricError(
                    f"{source.file}: {mark!r} stands {text.count(mark)} times, and was expected once"
                )
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
            raise RubricError(
                f'{source.file}: no "{where}"{near_miss(str(part), known)}'
            ) from None
    if not isinstance(value, str):
        raise RubricError(f"{source.file}: {'.'.join(map(str, source.key))} is no text")
    return value


class _Python:
    def __init__(self, name: str, content: str) -> None:
        self._name = name
        self._steps = 0
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about someone else's code
                self._tree = ast.parse(content)
        except SyntaxError as error:
            raise RubricError(
                f"{name}:{error.lineno or 1}: not Python: {error.msg}"
            ) from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise RubricError(f"{name}: not Python: {error}") from None

    def text(self, source: TextSource) -> str:
        node = (
            self._constant(source.constant)
            if source.constant
            else self._of_function(source)
        )
        for part in source.key:
            node = self._item(node, part)
        return self._text(node)

    def _wrong(self, node: ast.AST, why: str) -> RubricError:
        return RubricError(f"{self._name}:{getattr(node, 'lineno', 1)}: {why}")

    def _scope(self, path: Sequence[str]) -> Sequence[ast.stmt]:
        body: Sequence[ast.stmt] = self._tree.body
        for name in path:
            classes = [
                node
                for node in body
                if isinstance(node, ast.ClassDef) and node.name == name
            ]
            if len(classes) != 1:
                raise RubricError(
                    f"{self._name}: {len(classes)} classes are called {name}; expected one"
                )
            body = classes[0].body
        return body

    def _constant(self, name: str) -> ast.expr:
        *path, last = name.split(".")
        return self._assigned(self._scope(path), last, f"{self._name}")

    def _assigned(self, body: Sequence[ast.stmt], name: str, where: str) -> ast.expr:
        assignments = list(_assignments(body))
        values = [value for known, value in assignments if known == name]
        if len(values) != 1:
            hint = (
                near_miss(name, {known for known, _ in assignments})
                if not values
                else "."
            )
            lines = ", ".join(str(value.lineno) for value in values)
            why = (
                f"assigned {len(values)} times, on lines {lines}"
                if values
                else "not there"
            )
            raise RubricError(
                f'{where}: the constant "{name}" was expected once and is {why}{hint}'
            )
        return values[0]

    def _of_function(self, source: TextSource) -> ast.expr:
        *path, name = source.function.split(".")
        kinds = ast.FunctionDef | ast.AsyncFunctionDef
        functions = [
            node
            for node in self._scope(path)
            if isinstance(node, kinds) and node.name == name
        ]
        if len(functions) != 1:
            known = {node.name for node in self._scope(path) if isinstance(node, kinds)}
            raise RubricError(
                f'{self._name}: no single function "{source.function}"{near_miss(name, known)}'
            )
        function = functions[0]
        if source.variable:
            body = [node for node in ast.walk(function) if isinstance(node, ast.stmt)]
            return self._assigned(
                body, source.variable, f"{self._name}:{function.lineno}"
            )
        returns = [
            node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Return) and node.value
        ]
        if len(returns) != 1:
            raise self._wrong(
                function,
                f"{source.function} returns at {len(returns)} places; name a variable",
            )
        return returns[0]

    def _item(self, node: ast.expr, part: str | int) -> ast.expr:
        if isinstance(node, ast.Name):
            node = self._constant(node.id)
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == part:
                    return value
            known = [
                str(key.value) for key in node.keys if isinstance(key, ast.Constant)
            ]
            raise self._wrong(node, f'no key "{part}"{near_miss(str(part), known)}')
        if (
            isinstance(node, ast.List | ast.Tuple)
            and isinstance(part, int)
            and part < len(node.elts)
        ):
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
            case ast.Call(
                func=ast.Attribute(
                    value=value, attr="strip" | "lstrip" | "rstrip" as how
                ),
                args=[],
            ):
                return str(getattr(self._text(value), how)())
            case ast.Call(
                func=ast.Attribute(value=value, attr="join"),
                args=[ast.List(elts=parts) | ast.Tuple(elts=parts)],
            ):
                return self._text(value).join(map(self._text, parts))
            case ast.Call(
                func=ast.Name(id="dedent") | ast.Attribute(attr="dedent"), args=[value]
            ):
                return textwrap.dedent(self._text(value))
        raise self._wrong(
            node,
            f"expected a text, and it is {ast.unparse(node)[:60]!r}, which is not computed here",
        )


def _assignments(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for node in body:
        if isinstance(node, ast.Assign):
            yield from (
                (target.id, node.value)
                for target in node.targets
                if isinstance(target, ast.Name)
            )
        elif (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.value
        ):
            yield node.target.id, node.value
