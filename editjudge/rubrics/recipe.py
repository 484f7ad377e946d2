"""Recipes, which import a benchmark's prompts from a checkout of its repository as a rubric set.

The package contains no published prompts. A recipe is a data file of facts about a repository: the texts of a
question, the marks in them that are inputs, the form and scale of the answer, the condition on which a question is
asked, and the formula of the published score. Applied to the user's checkout it gives a rubric set with the exact texts::

    name: mybench
    title: MyBench
    repository: owner/mybench
    commit: 0123abc                                # with which the recipe was tested
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

A part of a prompt is the name of a text, `{picture: edited}` or `{input: question}` for an input between two texts,
`{text: "..."}` for a separator, `{part: new}` where the program begins another part of its message, or
`{given: hint, then: [text], otherwise: [text]}` for texts that depend on an optional input. A slot with a list
(`"<image>": [input, edited]`) fills the occurrences of the mark in turn. Images stay in their positions in every layout;
`unmarked_images: after` says that the others follow the text. A rubric that is `like: quality` has the keys of that one
and its own. All other keys of a rubric are those of a rubric file.

A checkout is never executed. Python files are parsed, not imported: a text is a constant, an entry of a dictionary or
the value that a function returns, built from constants only. Anything unexpected is an error with its line.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import textwrap
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from editjudge.canonical import Json
from editjudge.errors import RubricError, did_you_mean
from editjudge.files import LeavesFolder, resolve_inside
from editjudge.rubrics.likeness import with_likes
from editjudge.rubrics.model import NEW_PART, Layout, image_part_mark, text_part_mark
from editjudge.rubrics.scale import FieldError, FileContent
from editjudge.rubrics.strict_yaml import (
    Lines,
    lines_below,
    parse_yaml,
    read_text,
    validated,
)

RECIPES = Path(__file__).parent / "recipes"


@dataclass(frozen=True)
class TextSource(FileContent):
    """Location of a text in the checkout. If only `file` is given, the text is the whole file.

    In YAML::

        {file: bench/prompts.py, constant: EDIT_PROMPT}           # at the top level, or Class.NAME
        {file: bench/prompts.py, constant: PROMPTS, key: [edit]}  # an entry of a dictionary or list
        {file: bench/judge.py, function: edit_prompt}             # its return value; Class.method too
        {file: bench/judge.py, function: ask, variable: tail}     # the value of a variable
        {file: prompts.json, key: [edit, 0, text]}                # an entry of JSON or YAML
        {file: README.md, after: "<prompt>", before: "</prompt>"} # between two marks, each of which occurs once
    """

    file: str
    constant: str = ""
    function: str = ""
    variable: str = ""
    key: tuple[str | int, ...] = ()
    after: str = ""
    before: str = ""
    replace: Mapping[str, str] = field(default_factory=dict)
    """Replacements that the repository's code makes before it asks. Each old text must be present."""
    strip: bool = False
    """Whether the repository's code strips white space at both ends."""

    def __post_init__(self) -> None:
        if self.constant and self.function:
            message = "a text is a constant or of a function, not both"
            raise FieldError(message, "constant")
        if self.variable and not self.function:
            raise FieldError("variable: expected `function` beside it", "variable")


@dataclass(frozen=True)
class PromptPart(FileContent):
    """A part of a prompt that is not a text of the checkout. It has exactly one of these."""

    picture: str = ""
    input: str = ""
    text: str = ""
    part: Literal["", "new"] = ""
    """`new`: the published program begins another text part of its message here."""
    given: str = ""
    """Input on which `then` and `otherwise` depend."""
    then: tuple[str, ...] = ()
    """Names of texts that are there if the input is given."""
    otherwise: tuple[str, ...] = ()
    """Names of texts that are there if the input is not given."""

    def __post_init__(self) -> None:
        kinds = (self.picture, self.input, self.text, self.part, self.given)
        if [bool(kind) for kind in kinds].count(True) != 1:
            raise FieldError(
                "expected one of picture, input, text, part and given",
                *("picture", "input", "text", "part", "given"),
            )
        if bool(self.given) != bool(self.then or self.otherwise):
            raise FieldError("given: expected then or otherwise beside it", "given")


@dataclass(frozen=True)
class RecipeRubric:
    """One question of the set. `rest` has the keys that a rubric file also has."""

    name: str
    prompt: tuple[str | PromptPart, ...]
    join: str | None = None
    """Text between the texts of the prompt and of the system message, as in the repository's code; there is none beside
    an image. By default, the texts of the prompt are joined directly, and those of the system message with an empty
    line.
    """
    slots: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    """Inputs by mark. Each mark must occur in the text."""
    braces: Literal["literal", "format"] = "literal"
    system: tuple[str, ...] = ()
    """Texts of the system message."""
    removes: tuple[str, ...] = ()
    """Texts that the repository's code removes from the prompt."""
    expects: tuple[str, ...] = ()
    """Additional texts that the prompt must contain, such as labels of lines and keys of the answer."""
    adds_answer_format: bool = False
    unmarked_images: Literal["before", "after"] = "before"
    """Place to which the repository's code sends the images that have no place in the text."""
    rest: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe(FileContent):
    """Content of a recipe file."""

    name: str
    title: str
    repository: str
    texts: Mapping[str, TextSource]
    rubrics: tuple[Mapping[str, object], ...]
    score: Mapping[str, object] = field(default_factory=dict)
    layout: Layout = "exact"
    commit: str = ""
    description: str = ""
    notes: tuple[str, ...] = ()
    """Differences from the published program."""

    @property
    def summary(self) -> Json:
        """The recipe's entry in the list of recipes."""
        return {
            "name": self.name,
            "title": self.title,
            "repository": self.repository,
            "commit": self.commit,
            "description": self.description,
            "rubrics": [str(content.get("name")) for content in self.rubrics],
            "scores": list(self.score),
        }


def recipe_names() -> list[str]:
    """Return the names of the built-in recipes."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def load_recipe(name_or_path: str) -> Recipe:
    """Return a recipe by its name or by the path of a recipe file."""
    names = recipe_names()
    path = Path(name_or_path)
    if name_or_path in names:
        path = RECIPES / f"{name_or_path}.yaml"
    if path.suffix in (".yaml", ".yml"):
        return read_recipe(path)
    hint = did_you_mean(name_or_path, names)
    raise RubricError(
        f'no recipe is called "{name_or_path}"{hint} There are {", ".join(names)}; or give a file'
    )


def read_recipe(path: Path) -> Recipe:
    """Read and check a recipe file."""
    data, lines = parse_yaml(read_text(path), str(path))
    if not isinstance(data, dict):
        raise RubricError(
            f"{path}:1: expected keys such as name, repository, texts and rubrics"
        )
    recipe = validated(Recipe, data, lines, str(path))
    recipe = dataclasses.replace(recipe, rubrics=with_likes(recipe.rubrics, str(path)))
    for number, content in enumerate(recipe.rubrics):
        _recipe_rubric(content, lines_below(lines, "rubrics", number), str(path))
    return recipe


def _recipe_rubric(
    content: Mapping[str, object], lines: Lines, source: str
) -> RecipeRubric:
    rest = dict(content)
    fields = {
        field.name: rest.pop(field.name)
        for field in dataclasses.fields(RecipeRubric)
        if field.name in rest
    }
    return validated(RecipeRubric, fields | {"rest": rest}, lines, source)


# --- putting a set together -----------------------------------------------------------------------------------


def import_checkout(recipe: Recipe, checkout: Path) -> dict[str, object]:
    """Return the rubric set as the plain data of a set file. Raise `RubricError` if the checkout differs from what the
    recipe expects.
    """
    texts = {
        name: read_source(checkout, source) for name, source in recipe.texts.items()
    }
    rubrics = []
    for content in recipe.rubrics:
        rubric = _recipe_rubric(content, {}, recipe.name)
        rubrics.append(_built(rubric, texts, recipe))
    about = f"{recipe.title}, imported from {recipe.repository}"
    document: dict[str, object] = {"name": recipe.name, "description": about}
    document["layout"] = recipe.layout
    document["rubrics"] = rubrics
    if recipe.score:
        document["score"] = dict(recipe.score)
    return document


def _built(
    rubric: RecipeRubric, texts: Mapping[str, str], recipe: Recipe
) -> dict[str, object]:
    where = f"{recipe.name}, rubric {rubric.name}"
    names = [part for part in rubric.prompt if isinstance(part, str)]
    for part in rubric.prompt:
        names += [] if isinstance(part, str) else [*part.then, *part.otherwise]
    for name in (*names, *rubric.system, *rubric.removes):
        if name not in texts:
            hint = did_you_mean(name, texts)
            raise RubricError(f'{where}: no text is called "{name}"{hint}')
    files = ", ".join(dict.fromkeys(recipe.texts[name].file for name in names))
    text, slots = _assembled(rubric, texts)
    conditional = "".join(
        slot.get("given", "") + slot.get("missing", "") for slot in slots
    )
    for mark in (*rubric.slots, *rubric.expects):
        if mark not in text + conditional:
            raise RubricError(
                f"{where}: {mark!r} was not found in the text of {files}; check the commit of the checkout"
            )
    for name in rubric.removes:
        if texts[name] not in text:
            raise RubricError(
                f"{where}: the text of `{name}` was not found in that of {files}; check the commit of the checkout"
            )
        text = text.replace(texts[name], "")
    for mark, roles in rubric.slots.items():
        text = _with_slots(text, mark, roles, rubric, slots, f"{where}: {files}")
    template: dict[str, object] = {"text": text, "slots": slots}
    if rubric.braces != "literal":
        template["braces"] = rubric.braces
    if rubric.unmarked_images != "before":
        template["unmarked_images"] = rubric.unmarked_images
    if rubric.adds_answer_format:
        template["adds_answer_format"] = True
    content: dict[str, object] = {"name": rubric.name, **rubric.rest}
    if rubric.system:
        joint = "\n\n" if rubric.join is None else rubric.join
        content["system"] = joint.join(texts[name] for name in rubric.system)
    return content | {"template": template}


def _assembled(
    rubric: RecipeRubric, texts: Mapping[str, str]
) -> tuple[str, list[dict[str, str]]]:
    """Return the prompt as one text, with the slots of its inputs."""
    joint = rubric.join or ""
    text = ""
    slots: list[dict[str, str]] = []
    after_text = False
    for part in rubric.prompt:
        is_text = isinstance(part, str) or bool(part.text or part.input)
        # The repository joins texts; images and further parts are sent apart from them.
        text += joint if is_text and after_text else ""
        after_text = is_text
        if isinstance(part, str):
            text += texts[part]
        elif part.text:
            text += part.text
        elif part.part:
            slots.append({"mark": NEW_PART.mark, "role": NEW_PART.role})
            text += NEW_PART.mark
        elif part.given:
            mark = f"<given {len(slots) + 1}: {part.given}>"
            given = joint.join(texts[name] for name in part.then)
            missing = joint.join(texts[name] for name in part.otherwise)
            slots.append({"mark": mark, "role": part.given})
            slots[-1] |= {"given": given} if given else {}
            slots[-1] |= {"missing": missing} if missing else {}
            text += mark
        else:
            role = part.picture or part.input
            # The mark has no braces, since str.format would read it as a field.
            mark = image_part_mark(role) if part.picture else text_part_mark(role)
            slots.append({"mark": mark, "role": role})
            text += mark
    return text, slots


def _with_slots(
    text: str,
    mark: str,
    roles: str | Sequence[str],
    rubric: RecipeRubric,
    slots: list[dict[str, str]],
    where: str,
) -> str:
    """Return the text with a mark for each input, and add these marks' slots to `slots`. The mark of an image is
    replaced by an image-part mark. A mark for several inputs is replaced by one mark for each.
    """
    pattern = re.escape(mark)
    if rubric.braces == "format" and mark.startswith("{"):
        pattern = rf"(?<!\{{){pattern}(?!\}})"  # doubled braces are literal
    first, *rest = re.split(pattern, text)
    images = rubric.rest.get("images", ())
    if isinstance(roles, str):
        marks = [image_part_mark(roles) if roles in images else mark]
        slots.append({"mark": marks[0], "role": roles})
        return marks[0].join([first, *rest])
    if len(rest) != len(roles):
        raise RubricError(
            f"{where}: found {mark!r} {len(rest)} times, expected {len(roles)} times"
        )
    for role, piece in zip(roles, rest, strict=True):
        new = image_part_mark(role) if role in images else text_part_mark(role)
        slots.append({"mark": new, "role": role})
        first += new + piece
    return first


# --- reading a checkout ---------------------------------------------------------------------------------------

_MAX_BYTES = 5_000_000
_MAX_STEPS = 200
"""Maximum number of terms in one text, in case a file refers to itself."""


def read_source(checkout: Path, source: TextSource) -> str:
    """Return the exact text that a source refers to."""
    file = source.file
    text = _content(checkout, file)
    if source.constant or source.function:
        text = _PythonFile(file, text).text(source)
    elif source.key:
        text = _entry(source, text)
    for mark, side in ((source.after, 2), (source.before, 0)):
        count = text.count(mark)
        if mark and count != 1:
            raise RubricError(
                f"{file}: found {mark!r} {count} times, expected it once",
                code="text_not_once",
            )
        if mark:
            text = text.partition(mark)[side]
    for old, new in source.replace.items():
        if old not in text:
            raise RubricError(
                f"{file}: {old!r} was not found in the text; check the commit of the checkout",
                code="text_missing",
            )
        text = text.replace(old, new)
    if not text.strip():
        raise RubricError(f"{file}: the text is empty")
    return text.strip() if source.strip else text


def _content(checkout: Path, name: str) -> str:
    root = checkout.resolve()
    if not root.is_dir():
        raise RubricError(
            f"{checkout}: not a folder; expected a checkout of the repository"
        )
    try:
        path = Path(resolve_inside(root / name, root))
        if path.stat().st_size > _MAX_BYTES:
            raise RubricError(
                f"{name}: larger than {_MAX_BYTES:,} bytes, the limit for a file of prompts"
            )
        return path.read_text("utf-8")
    except LeavesFolder:
        raise RubricError(
            f"{name}: outside the checkout; expected a file inside it",
            code="outside_folder",
        ) from None
    except UnicodeDecodeError as error:
        raise RubricError(f"{name}: not UTF-8 at byte {error.start}") from None
    except OSError as error:
        raise RubricError(
            f"{checkout} has no {name}: {error.strerror}. Check the repository and its commit.",
            code="missing_file",
        ) from None


def _entry(source: TextSource, content: str) -> str:
    """Return an entry from a JSON or YAML file."""
    file = source.file
    try:
        is_yaml = file.endswith((".yaml", ".yml"))
        value: Any = parse_yaml(content, file)[0] if is_yaml else json.loads(content)
    except ValueError as error:
        raise RubricError(f"{file}: not JSON: {error}") from None
    except RecursionError:
        raise RubricError(f"{file}: nested too deeply") from None
    path = ""
    for key in source.key:
        path += f".{key}"
        try:
            if isinstance(value, str):
                raise KeyError(key)
            value = value[key]
        except (KeyError, IndexError, TypeError):
            keys = [str(name) for name in value] if isinstance(value, dict) else []
            hint = did_you_mean(str(key), keys)
            raise RubricError(
                f'{file}: no "{path[1:]}"{hint}', code="missing_key"
            ) from None
    if not isinstance(value, str):
        raise RubricError(f"{file}: {path[1:]} is not a text", code="not_text")
    return value


class _PythonFile:
    """The constants in a Python file. The file is parsed, never executed."""

    def __init__(self, name: str, content: str) -> None:
        self._name = name
        self._steps = 0
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about someone else's code
                self._tree = ast.parse(content)
        except SyntaxError as error:
            raise RubricError(
                f"{name}:{error.lineno or 1}: not Python: {error.msg}",
                code="not_python",
            ) from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise RubricError(f"{name}: not Python: {error}") from None

    def text(self, source: TextSource) -> str:
        node = (
            self._constant(source.constant)
            if source.constant
            else self._from_function(source)
        )
        for key in source.key:
            node = self._item(node, key)
        return self._text(node)

    def _error(self, node: ast.AST, message: str, code: str) -> RubricError:
        line = getattr(node, "lineno", 1)
        return RubricError(f"{self._name}:{line}: {message}", code=code)

    def _scope(self, classes: Sequence[str]) -> Sequence[ast.stmt]:
        """Return the statements at the top level of the file, or those of a class, which may be nested in other
        classes.
        """
        body: Sequence[ast.stmt] = self._tree.body
        for name in classes:
            bodies = [
                node.body
                for node in body
                if isinstance(node, ast.ClassDef) and node.name == name
            ]
            if len(bodies) != 1:
                raise RubricError(
                    f"{self._name}: {len(bodies)} classes are called {name}; expected one",
                    code="not_one_class",
                )
            body = bodies[0]
        return body

    def _constant(self, name: str) -> ast.expr:
        *classes, last = name.split(".")
        return self._assigned(self._scope(classes), last, self._name)

    def _assigned(self, body: Iterable[ast.AST], name: str, where: str) -> ast.expr:
        """Return the value of the only assignment to a name."""
        values: dict[str, list[ast.expr]] = {}
        for node in body:
            match node:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        values.setdefault(ast.unparse(target), []).append(value)
                case ast.AnnAssign(
                    target=ast.Name(id=target), value=ast.expr() as value
                ):
                    values.setdefault(target, []).append(value)
        assigned = values.get(name, [])
        if len(assigned) == 1:
            return assigned[0]
        problem = f"found no assignment{did_you_mean(name, values)}"
        if assigned:
            lines = ", ".join(str(value.lineno) for value in assigned)
            problem = f"found {len(assigned)} assignments, on lines {lines}."
        raise RubricError(
            f'{where}: expected one assignment to the constant "{name}", {problem}',
            code="not_one_assignment",
        )

    def _from_function(self, source: TextSource) -> ast.expr:
        """Return the value that a function returns or assigns to a variable."""
        *classes, name = source.function.split(".")
        functions = [
            node
            for node in self._scope(classes)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        matches = [function for function in functions if function.name == name]
        if len(matches) != 1:
            hint = did_you_mean(name, {function.name for function in functions})
            raise RubricError(
                f'{self._name}: found {len(matches)} functions "{source.function}", expected one{hint}',
                code="not_one_function",
            )
        function = matches[0]
        if source.variable:
            where = f"{self._name}:{function.lineno}"
            return self._assigned(ast.walk(function), source.variable, where)
        returns = [
            node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Return) and node.value
        ]
        if len(returns) != 1:
            raise self._error(
                function,
                f"{source.function} has {len(returns)} return statements, expected one; name a variable",
                "not_one_return",
            )
        return returns[0]

    def _item(self, node: ast.expr, key: str | int) -> ast.expr:
        match node:
            case ast.Name(id=name):
                return self._item(self._constant(name), key)
            case ast.Dict(keys=nodes, values=values):
                keys = [getattr(node, "value", None) for node in nodes]
                if key in keys:
                    return values[keys.index(key)]
                hint = did_you_mean(str(key), [str(k) for k in keys if k is not None])
                raise self._error(node, f'no key "{key}"{hint}', "missing_key")
            case ast.List(elts=items) | ast.Tuple(elts=items) if isinstance(
                key, int
            ) and key < len(items):
                return items[key]
        raise self._error(
            node, f"expected a dictionary or a list with {key!r}", "missing_key"
        )

    def _text(self, node: ast.expr) -> str:
        """Return a string that is built from constants. The fields of an f-string are kept as `{name}`."""
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise self._error(
                node, f"the text has more than {_MAX_STEPS} terms", "too_complex"
            )
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
                    value=value, attr="strip" | "lstrip" | "rstrip" as method
                ),
                args=[],
            ):
                return str(getattr(self._text(value), method)())
            case ast.Call(
                func=ast.Attribute(value=value, attr="join"),
                args=[ast.List(elts=parts) | ast.Tuple(elts=parts)],
            ):
                return self._text(value).join(map(self._text, parts))
            case ast.Call(
                func=ast.Name(id="dedent") | ast.Attribute(attr="dedent"), args=[value]
            ):
                return textwrap.dedent(self._text(value))
        code = ast.unparse(node)[:60]
        raise self._error(
            node, f"expected a text, found {code!r}, which is not evaluated", "not_text"
        )
