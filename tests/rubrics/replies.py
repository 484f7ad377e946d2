"""Replies for any rubric, made from its data alone, and a reader of scores that shares no code with the contract."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from editjudge.rubrics import files
from editjudge.rubrics.model import AnswerFormat, Factor, Rubric
from editjudge.rubrics.replies import thought_formats
from editjudge.rubrics.scale import Scale

PAIR = Rubric(
    name="pair",
    images=("input", "edited"),
    factors=(
        Factor("success", Scale(tuple(range(11)))),
        Factor("restraint", Scale(tuple(range(11)))),
    ),
    answer=AnswerFormat(envelope="score", form="list", texts=("reasoning",)),
)
"""The form in which several published judges answer: {"score": [a, b], "reasoning": "..."}."""

SHARE = Rubric(
    name="share",
    images=("input", "edited"),
    factors=(
        Factor("likeness", Scale(range=(0, 1))),
        Factor("harm", Scale(range=(0, 10), step=0.5, direction="down")),
    ),
    answer=AnswerFormat(envelope="results"),
)
"""Decimals, one of them in steps and with the lowest as the best."""

DUEL = Rubric(
    name="duel",
    images=("input", "edited"),
    factors=(
        Factor("quality", Scale(choices=("a", "b", "tie"))),
        Factor("overall", Scale(choices=("a", "b", "tie"))),
    ),
    answer=AnswerFormat(score_key="choice"),
)
"""Words to choose from in the place of scores."""

ID = "edit-1"
RAW = "\ue000raw\ue000"
"""Stands in an answer where JSON is to be put that `json.dumps` does not write."""


def rubric_of(name: str) -> Rubric:
    return PAIR if name == PAIR.name else files.load_one(name)


RUBRICS = [rubric_of(name) for name in [*files.names(), "online", PAIR.name]]


def reason(rubric: Rubric) -> str:
    """Evidence of a legal length."""
    least = rubric.answer.words[0] if rubric.answer.words else 9
    words = "The red barn behind the fence has kept every board".split()
    return " ".join((words * 3)[: least + 1]) + "."


def best(rubric: Rubric) -> dict[str, float | None]:
    return {factor.key: factor.scale.best for factor in rubric.factors}


def answer(
    rubric: Rubric,
    scores: Mapping[str, Any] | None = None,
    why: str | None = None,
    identifier: str = ID,
) -> dict[str, Any]:
    """The object that the rubric asks for."""
    form = rubric.answer
    given = {**best(rubric), **(scores or {})}
    text = reason(rubric) if why is None else why
    inner: Any = given
    if form.form == "entries":
        inner = {
            key: {form.reason_key: text, form.score_key: score}
            for key, score in given.items()
        }
    elif form.form == "list":
        inner = list(given.values())
    top: dict[str, Any] = {form.id_key: identifier} if form.id_key else {}
    top |= dict.fromkeys(form.texts, text)
    return top | ({form.envelope: inner} if form.envelope else inner)


def raw(value: Any, *literals: str) -> str:
    """The JSON of an answer, with what was marked RAW replaced by these characters."""
    text = json.dumps(value)
    for literal in literals:
        text = text.replace(json.dumps(RAW), literal, 1)
    return text


def headings(rubric: Rubric) -> str:
    """The reasoning that goes before the JSON, where one is asked for, without a mark that decides anything."""
    return "".join(
        f"## {title}\nThe light has moved.\n\n" for title in rubric.answer.sections[:-1]
    ) + "".join(f"## {title}\n" for title in rubric.answer.sections[-1:])


def objects(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The place of every object in an answer, the outermost first."""
    if isinstance(value, dict):
        yield path
        for key, item in value.items():
            yield from objects(item, (*path, key))


def at(value: Any, path: tuple[str, ...]) -> dict[str, Any]:
    for key in path:
        value = value[key]
    assert isinstance(value, dict)
    return value


DRESSINGS: dict[str, Callable[[str], str]] = {
    "bare": lambda text: text,
    "fenced as json": lambda text: f"```json\n{text}\n```",
    "fenced": lambda text: f"```\n{text}\n```\n",
    "fenced with tildes": lambda text: f"~~~json\n{text}\n~~~",
    "fenced on one line": lambda text: f"```json {text} ```",
    "fence touching it": lambda text: f"```json{text}```",
    "indented fence": lambda text: f"  ```json\n  {text}\n  ```",
    "fence never closed": lambda text: f"```json\n{text}\n",
    "outer space": lambda text: f"\n\n \t{text} \t\r\n\n",
    "carriage returns": lambda text: f"```json\r\n{text}\r\n```\r\n",
}
"""What may stand around an answer that keeps to the rules."""

THOUGHTS = {
    "none": "",
    "a thought": "<think>Let me look.</think>\n",
    "a thought with a draft": '<thinking>Draft: {"score": 1} or {"score": 2}</thinking>\n\n',
    "a thought that broke off in braces": '<think>Draft: {"score": 1, "reason": "th</think>',
    "a thought without its opening tag": 'Draft: {"score": 1, } and so on </think>\n',
    "a thought in a thought": '<think>a <THINK>b</THINK> {"score": 2} </think>',
    "two thoughts": '<think>a</think> <think>{"score": 2}</think>',
    **{
        f"a thought in {form.example[0].strip()}": 'Draft: {"score": 1} '.join(
            form.example
        )
        for form in thought_formats()
    },
}
"""What may stand before a reply and is set aside."""

PROSE: dict[str, Callable[[str], str]] = {
    "prose before": lambda text: f"Here is my verdict:\n{text}",
    "prose after": lambda text: f"{text}\nI hope this helps!",
    "prose around a fence": lambda text: f"Sure.\n```json\n{text}\n```\nDone.",
    "braces in the prose": lambda text: (
        f"Both {{left}} and {{right}} were seen. {text}"
    ),
    "a list around it": lambda text: f"[{text}]",
}
"""What may stand around it at the price of a violation."""


def full(
    rubric: Rubric, body: str, dressing: str = "bare", thought: str = "none"
) -> str:
    """A whole reply: thought, reasoning where it is asked for, and the JSON in its dressing."""
    return THOUGHTS[thought] + headings(rubric) + DRESSINGS[dressing](body)


def literals(rubric: Rubric, text: str) -> dict[str, list[str]]:
    """Every number that the text writes at each factor: found by pattern, no JSON is read."""
    form = rubric.answer
    keys = [factor.key for factor in rubric.factors]
    number = r"(-?[0-9][^\s,}\]]*)\s*(?=[,}\]])"
    for key in filter(None, (*form.texts, form.reason_key)):
        text = re.sub(
            rf'"{key}"\s*:\s*"(?:[^"\\]|\\.)*"', f'"{key}": ""', text, flags=re.DOTALL
        )
    if form.form == "list":
        lists = [
            numbers.split(",")
            for numbers in re.findall(rf'"{form.envelope}"\s*:\s*\[([^\[\]]*)\]', text)
        ]
        return {
            key: [numbers[n].strip() for numbers in lists if len(numbers) == len(keys)]
            for n, key in enumerate(keys)
        }
    if form.form == "scores":
        return {key: re.findall(rf'"{key}"\s*:\s*{number}', text) for key in keys}
    numbers: dict[str, list[str]] = {key: [] for key in keys}
    for key, entry in re.findall(rf'"({"|".join(keys)})"\s*:\s*(\{{[^{{}}]*\}})', text):
        numbers[key] += re.findall(rf'"{form.score_key}"\s*:\s*{number}', entry)
    return numbers
