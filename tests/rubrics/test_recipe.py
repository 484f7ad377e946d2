"""Recipes: a tiny benchmark of our own words becomes a rubric set."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from editjudge.edit import Edit
from editjudge.errors import RubricError
from editjudge.rubrics import recipe
from editjudge.rubrics.contract import check
from editjudge.rubrics.files import parse_any
from editjudge.rubrics.model import LAYOUTS, Layout, Rubric
from editjudge.rubrics.prompt import ImagePart, TextPart, ask
from editjudge.rubrics.recipe import (
    import_checkout,
    load_recipe,
    read_recipe,
    recipe_names,
)
from editjudge.rubrics.sets import RubricSet
from editjudge.rubrics.strict_yaml import dump_plain
from editjudge.rubrics.verdict import Verdict
from editjudge.running.plan import key_of_question
from tests.faults import raises

RECIPE = r"""
name: mybench
title: MyBench
repository: someone/mybench
commit: 0123abc
texts:
  rules: {file: prompts.py, constant: RULES}
  looks: {file: prompts.json, key: [looks]}
  clause: {file: prompts.py, constant: CLAUSE}
  who: {file: prompts.py, constant: WHO}
rubrics:
  - name: deed
    system: [who]
    prompt: [rules, {text: "Asked for: "}, {input: instruction}, {picture: edited}]
    join: "\n"
    removes: [clause]
    slots: {<before>: input}
    expects: ['"score"']
    when: edit_type in [add, remove]
    images: [input, edited]
    texts: [instruction]
    factors: [{key: done}, {key: kept}]
    scale: {values: [0, 1, 2, 3]}
    answer: {form: list, envelope: score, texts: [why]}
  - name: looks
    prompt: [looks]
    slots: {<picture>: [input, edited]}
    images: [input, edited]
    factors: [{key: pretty}]
    scale: {values: [0, 1, 2, 3]}
    answer: {form: scores}
score:
  overall: sqrt(min(deed.*) * pretty)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "mybench"
    folder.mkdir()
    constants = [
        'RULES = "Before: <before> Sloppy. Say {\\"score\\": [a, b], \\"why\\": \\"\\"}"'
    ]
    constants += ['CLAUSE = "Sloppy. "', 'WHO = "You look closely."']
    (folder / "prompts.py").write_text("\n".join(constants), "utf-8")
    (folder / "prompts.json").write_text(
        json.dumps({"looks": 'One <picture>, two <picture>. {"pretty": 0}'}), "utf-8"
    )
    return folder


def recipe_file(tmp_path: Path, text: str = RECIPE) -> Path:
    path = tmp_path / "mybench.yaml"
    path.write_text(text, "utf-8")
    return path


def test_the_example_of_a_recipe_makes_a_set_of_a_checkout(tmp_path: Path) -> None:
    example = textwrap.dedent(
        str(recipe.__doc__).split("::\n\n", 1)[1].split("\n\nA part")[0]
    )
    (tmp_path / "prompts.py").write_text(
        'RULES = "Judge <edit> on the pictures."', "utf-8"
    )
    (tmp_path / "prompts.json").write_text(
        json.dumps({"quality": 'Say {"reason": "why", "score": 1}'}), "utf-8"
    )
    data = import_checkout(read_recipe(recipe_file(tmp_path, example)), tmp_path)
    imported = parse_any(dump_plain(data), "mybench")
    assert isinstance(imported, RubricSet)
    (quality,) = imported.rubrics
    assert quality.template and quality.template.text.startswith(
        "Judge <edit> on the pictures.\nSay "
    )
    outcome = check(quality, '{"reason": "The sky is pink.", "score": 4}')
    assert isinstance(outcome, Verdict) and outcome.scores == {"score": 4}


def test_a_checkout_becomes_a_set_that_keeps_its_words(
    tmp_path: Path, checkout: Path
) -> None:
    data = import_checkout(read_recipe(recipe_file(tmp_path)), checkout)
    imported = parse_any(dump_plain(data), "mybench")
    assert isinstance(imported, RubricSet)
    deed, looks = imported.rubrics
    assert deed.template
    parts = ["Asked for: ", "<input: instruction>"]
    rules = 'Before: <picture: input> Say {"score": [a, b], "why": ""}'
    assert deed.template.text == "\n".join([rules, *parts]) + "<picture: edited>"
    assert deed.system == "You look closely."
    assert {slot.mark: slot.role for slot in deed.template.slots} == {
        "<picture: input>": "input",
        "<input: instruction>": "instruction",
        "<picture: edited>": "edited",
    }
    assert looks.template
    assert (
        looks.template.text
        == 'One <picture: input>, two <picture: edited>. {"pretty": 0}'
    )
    assert imported.contract()["scores"] == ["overall"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_image_of_a_recipe_is_sent_as_an_image_where_it_stands(
    tmp_path: Path, checkout: Path, layout: Layout
) -> None:
    data = import_checkout(read_recipe(recipe_file(tmp_path)), checkout)
    imported = parse_any(dump_plain(data), "mybench")
    assert isinstance(imported, RubricSet)
    edit = Edit("7", instruction="Paint the gate green.")
    for rubric in imported.rubrics:
        question = ask(rubric, edit, {"input": "d1", "edited": "d2"}, layout)
        assert [
            part.role for part in question.parts if isinstance(part, ImagePart)
        ] == ["input", "edited"]
        assert isinstance(question.parts[0], TextPart), (
            "words stand before the first image"
        )
        assert not re.search(r"<(?:picture|input|before)", str(question))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_image_part_that_stands_twice_or_out_of_order_is_sent_as_often_and_in_that_order(
    layout: Layout,
) -> None:
    parts = ["edited", "input", "edited"]
    slots = [
        {"mark": f"<picture: {role}>", "role": role} for role in ("input", "edited")
    ]
    text = "".join(f"See <picture: {role}>. " for role in parts)
    content: dict[str, Any] = {
        "name": "x",
        "images": ["input", "edited"],
        "template": {"text": text, "slots": slots},
    }
    content |= {
        "factors": [{"key": "fit"}],
        "scale": {"values": [0, 1]},
        "answer": {"form": "scores"},
    }
    rubric = parse_any(dump_plain(content))
    assert isinstance(rubric, Rubric)
    question = ask(rubric, Edit("7"), {"input": "d1", "edited": "d2"}, layout)
    assert [
        part.role for part in question.parts if isinstance(part, ImagePart)
    ] == parts


def test_both_layouts_of_a_prompt_with_image_parts_are_one_question_with_one_key(
    tmp_path: Path, checkout: Path
) -> None:
    imported = parse_any(
        dump_plain(import_checkout(read_recipe(recipe_file(tmp_path)), checkout))
    )
    assert isinstance(imported, RubricSet)
    for rubric in imported.rubrics:
        edit = Edit("7", instruction="Paint the gate green.")
        one, other = (
            ask(rubric, edit, {"input": "d1", "edited": "d2"}, layout)
            for layout in LAYOUTS
        )
        assert one == other
        first, *others = (key_of_question(rubric, layout, {}, {}) for layout in LAYOUTS)
        assert all(other == first for other in others)


@pytest.mark.parametrize(
    ("join", "system"),
    [('""', "You look closely.Sloppy. "), ('"|"', "You look closely.|Sloppy. ")],
)
def test_what_joins_the_parts_joins_those_of_the_system_message(
    tmp_path: Path, checkout: Path, join: str, system: str
) -> None:
    text = RECIPE.replace("system: [who]", "system: [who, clause]").replace(
        r'join: "\n"', f"join: {join}"
    )
    imported = parse_any(
        dump_plain(import_checkout(read_recipe(recipe_file(tmp_path, text)), checkout))
    )
    assert isinstance(imported, RubricSet)
    assert imported.rubrics[0].system == system


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("{picture: edited}]", "{picture: mask}]"), "image_not_listed"),
        (("{input: instruction}", "{input: wish}"), "text_not_listed"),
    ],
)
def test_a_part_that_the_rubric_does_not_list_is_refused(
    tmp_path: Path, checkout: Path, change: tuple[str, str], code: str
) -> None:
    data = import_checkout(
        read_recipe(recipe_file(tmp_path, RECIPE.replace(*change))), checkout
    )
    with raises(RubricError, code):
        parse_any(dump_plain(data))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            ("<before>: input", "<after>: input"),
            "rubric deed: '<after>' ",
        ),
        (("constant: RULES", "constant: RULE"), 'constant "RULE"'),
        (
            ("[input, edited]}\n    images", "[input]}\n    images"),
            "'<picture>' 2 times",
        ),
        (
            ("""expects: ['"score"']""", """expects: ['"grade"']"""),
            '"grade"',
        ),
        (
            ("prompt: [looks]", "prompt: [look]"),
            'no text is called "look"; did you mean "looks"',
        ),
        (
            ("removes: [clause]", "removes: [who]"),
            "`who`",
        ),
    ],
)
def test_a_checkout_that_is_not_as_expected_is_refused(
    tmp_path: Path, checkout: Path, change: tuple[str, str], why: str
) -> None:
    assert change[0] in RECIPE
    recipe = read_recipe(recipe_file(tmp_path, RECIPE.replace(*change)))
    with pytest.raises(RubricError) as refusal:
        import_checkout(recipe, checkout)
    assert why in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "code", "named"),
    [
        (("title: MyBench", "tittle: MyBench"), "missing", ["mybench.yaml:"]),
        (("prompt: [looks]", "prompt: 5"), "tuple_type", ["mybench.yaml:26: prompt: "]),
        (
            ("{picture: edited}]", "{pictures: edited}]"),
            "string_type",
            ["mybench.yaml:14"],
        ),
        (
            ("{file: prompts.py, constant: WHO}", "{constant: WHO}"),
            "missing",
            ["mybench.yaml:10: texts.who"],
        ),
    ],
)
def test_a_recipe_with_a_mistake_is_refused_with_its_line(
    tmp_path: Path, change: tuple[str, str], code: str, named: list[str]
) -> None:
    assert change[0] in RECIPE
    with raises(RubricError, code, *named):
        read_recipe(recipe_file(tmp_path, RECIPE.replace(*change)))


@pytest.mark.parametrize("name", recipe_names())
def test_each_recipe_of_the_package_is_sound(name: str, tmp_path: Path) -> None:
    """Its set is read whole, from a checkout that has every text, with the marks that the recipe expects in it."""
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.commit
    checkout = tiny_checkout(tmp_path, recipe)
    imported = parse_any(dump_plain(import_checkout(recipe, checkout)), name)
    assert isinstance(imported, RubricSet)
    assert [rubric.name for rubric in imported.rubrics] == recipe.summary["rubrics"]


def tiny_checkout(folder: Path, recipe: Any) -> Path:
    """A repository of the recipe's layout, with words of its own: each text holds what the recipe looks for."""
    words: dict[str, list[str]] = {name: [f"Our own {name}."] for name in recipe.texts}
    for rubric in recipe.rubrics:
        first = next((part for part in rubric["prompt"] if isinstance(part, str)), None)
        if first is None:
            continue
        marks = [*rubric.get("expects", ())]
        for mark, roles in rubric.get("slots", {}).items():
            marks += [mark] * (1 if isinstance(roles, str) else len(roles))
        words[first] += [
            mark for mark in marks if mark not in words[first] or mark == "<image>"
        ]
        words[first] += [
            text for name in rubric.get("removes", ()) for text in words[name]
        ]
    texts = {
        name: " ".join([*some, *recipe.texts[name].replace])
        for name, some in words.items()
    }
    files: dict[str, Any] = {}
    for name, source in recipe.texts.items():
        place = files.setdefault(source.file, {})
        if source.key:
            _put(place, source.key, texts[name])
        elif source.constant:
            place[source.constant] = f"{source.constant} = {texts[name]!r}\n"
        elif source.function:
            body = (
                f"{source.variable} = {texts[name]!r}\n    return ''"
                if source.variable
                else f"return {texts[name]!r}"
            )
            place[source.function] = f"def {source.function}():\n    {body}\n"
        elif source.after:
            marked = f"{source.after}{texts[name]}{source.before}"
            place[source.after] = f"r'''\n{marked}\n'''\n"
        else:
            files[source.file] = texts[name]
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        python = path.suffix == ".py"
        text = (
            content
            if isinstance(content, str)
            else "".join(content.values())
            if python
            else json.dumps(content)
        )
        path.write_text(text, "utf-8")
    return folder


def _put(place: Any, key: tuple[str | int, ...], text: str) -> None:
    """Into dictionaries and lists that grow as they are needed; JSON is YAML too."""
    for part, following in zip(key, (*key[1:], None), strict=True):
        if isinstance(part, int):
            place.extend({} for _ in range(len(place), part + 1))
        if following is None:
            place[part] = text
        elif isinstance(part, int):
            place = place[part]
        else:
            place = place.setdefault(part, [] if isinstance(following, int) else {})
