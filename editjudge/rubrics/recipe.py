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
one after the other. Every other key of a rubric is that of a rubric file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from editjudge.errors import RubricError, near_miss
from editjudge.rubrics.checkout import TextSource, read_source
from editjudge.rubrics.strict_yaml import Lines, parse_yaml, read_text, validated

RECIPES = Path(__file__).parent / "recipes"

_FORBID_EXTRA: Any = {"extra": "forbid"}


@dataclass(frozen=True)
class PromptPart:
    """One part of a prompt that is no text of the checkout."""

    __pydantic_config__: ClassVar[Any] = _FORBID_EXTRA

    picture: str = ""
    input: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        if [bool(self.picture), bool(self.input), bool(self.text)].count(True) != 1:
            raise ValueError("a part of a prompt is a picture, an input or a text of ours")


@dataclass(frozen=True)
class RecipeRubric:
    """One question of the set; `rest` holds the keys that it shares with a rubric file."""

    name: str
    prompt: tuple[str | PromptPart, ...]
    join: str = ""
    """What the repository's own code puts between the parts."""
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
class Recipe:
    """How a checkout becomes a rubric set."""

    __pydantic_config__: ClassVar[Any] = _FORBID_EXTRA

    name: str
    title: str
    repository: str
    texts: Mapping[str, TextSource]
    rubrics: tuple[Mapping[str, Any], ...]
    score: Mapping[str, Any] = field(default_factory=dict)
    commit: str = ""
    description: str = ""
    notes: tuple[str, ...] = ()
    """What differs from the published program, in plain words."""

    @property
    def summary(self) -> dict[str, Any]:
        """For a list."""
        about = {"name": self.name, "title": self.title, "repository": self.repository, "commit": self.commit}
        names = [str(one.get("name")) for one in self.rubrics]
        return about | {"description": self.description, "rubrics": names, "scores": list(self.score)}


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
        raise RubricError(f"{path}:1: expected keys such as name, repository, texts and rubrics")
    recipe = validated(Recipe, data, lines, str(path))
    for number, content in enumerate(recipe.rubrics):
        inside = {place[2:]: line for place, line in lines.items() if place[:2] == ("rubrics", number)}
        _recipe_rubric(content, inside, str(path))
    return recipe


def _recipe_rubric(content: Mapping[str, Any], lines: Lines, source: str) -> RecipeRubric:
    own = {field.name for field in dataclasses.fields(RecipeRubric)} - {"rest"}
    known = {key: value for key, value in content.items() if key in own}
    rest = {key: value for key, value in content.items() if key not in own}
    return validated(RecipeRubric, known | {"rest": rest}, lines, source)


def import_checkout(recipe: Recipe, checkout: Path) -> dict[str, Any]:
    """The rubric set as plain data, as a set's file holds it; `RubricError` where the checkout is not as expected."""
    texts = {name: read_source(checkout, source) for name, source in recipe.texts.items()}
    rubrics = [_built(_recipe_rubric(content, {}, recipe.name), texts, recipe) for content in recipe.rubrics]
    about = f"{recipe.title}, imported from {recipe.repository}"
    return {"name": recipe.name, "description": about, "rubrics": rubrics} | (
        {"score": dict(recipe.score)} if recipe.score else {}
    )


def _built(rubric: RecipeRubric, texts: Mapping[str, str], recipe: Recipe) -> dict[str, Any]:
    where = f"{recipe.name}, rubric {rubric.name}"
    text, slots = _assembled(rubric, texts, where)
    files = ", ".join(dict.fromkeys(recipe.texts[part].file for part in rubric.prompt if isinstance(part, str)))
    for word in (*rubric.slots, *rubric.expects):
        if word not in text:
            raise RubricError(f"{where}: {word!r} is not in the text of {files}, and was expected there")
    for name in rubric.removes:
        if (unwanted := _named(texts, name, where)) not in text:
            raise RubricError(f"{where}: the text of `{name}` is not in that of {files}, and was expected there")
        text = text.replace(unwanted, "")
    for mark, roles in rubric.slots.items():
        text, more = _numbered(text, mark, roles, f"{where}: {files}")
        slots += more
    template: dict[str, Any] = {"text": text, "slots": slots}
    if rubric.braces != "literal":
        template["braces"] = rubric.braces
    if rubric.adds_answer_format:
        template["adds_answer_format"] = True
    system = {"system": "\n\n".join(_named(texts, name, where) for name in rubric.system)} if rubric.system else {}
    return {"name": rubric.name, **rubric.rest, **system, "template": template}


def _named(texts: Mapping[str, str], name: str, where: str) -> str:
    if name not in texts:
        raise RubricError(f'{where}: no text is called "{name}"{near_miss(name, texts)}')
    return texts[name]


def _assembled(rubric: RecipeRubric, texts: Mapping[str, str], where: str) -> tuple[str, list[dict[str, Any]]]:
    parts, slots = [], []
    for part in rubric.prompt:
        if isinstance(part, str):
            parts.append(_named(texts, part, where))
        elif part.text:
            parts.append(part.text)
        else:
            role = part.picture or part.input
            # Braces inside, lest str.format takes it for a field of the text.
            mark = f"<{'picture' if part.picture else 'input'}: {role}>"
            slots.append({"mark": mark, "role": role})
            parts.append(mark)
    return rubric.join.join(parts), slots


def _numbered(text: str, mark: str, roles: str | Sequence[str], where: str) -> tuple[str, list[dict[str, Any]]]:
    """A mark that stands for several inputs becomes one mark for each."""
    if isinstance(roles, str):
        return text, [{"mark": mark, "role": roles}]
    pieces = text.split(mark)
    if len(pieces) - 1 != len(roles):
        raise RubricError(f"{where}: {mark!r} stands {len(pieces) - 1} times, and was expected {len(roles)} times")
    marks = [f"<picture: {role}>" for role in roles]
    joined = pieces[0] + "".join(own + piece for own, piece in zip(marks, pieces[1:], strict=True))
    return joined, [{"mark": own, "role": role} for own, role in zip(marks, roles, strict=True)]
