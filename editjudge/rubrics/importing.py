"""A published prompt in, a rubric that keeps its words out.

What can be read off the text is inferred and said; what cannot is asked for by name. Nothing is guessed silently.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from editjudge.edit import IMAGE_ROLES, TEXT_ROLES
from editjudge.errors import RubricError, near_miss
from editjudge.rubrics import example_json as examples
from editjudge.rubrics.answer import AnswerLeaf, AnswerObject, answer_shape, answer_tree
from editjudge.rubrics.contract import check
from editjudge.rubrics.example_json import (
    Example,
    ExampleChoice,
    ExampleShape,
    Leaf,
    NotAnExample,
    Unclear,
    span_of,
    values_of,
)
from editjudge.rubrics.model import (
    AnswerFormat,
    Consistency,
    Factor,
    Rubric,
    Slot,
    Template,
)
from editjudge.rubrics.replies import TooComplex
from editjudge.rubrics.scale import Scale
from editjudge.rubrics.tables import load_table, pattern, words
from editjudge.rubrics.verdict import Failure

SHOWN = IMAGE_ROLES[:3]
"""The pictures that a rubric can show."""
_ROLES = (*SHOWN, *TEXT_ROLES)


Values = tuple[int, ...] | Scale
"""The scores of a factor: integers, or a scale of decimals, which only the importing person can say."""


@dataclass(frozen=True)
class Hints:
    """Answers of the importing person to what the text does not say."""

    factors: tuple[str, ...] = ()
    scale: Values = ()
    scales: Mapping[str, Values] = field(default_factory=dict)
    """Scales of single factors, where they differ."""
    images: tuple[str, ...] = ()
    texts: tuple[str, ...] | None = None
    """Texts that are shown although no placeholder wants them; empty for none, None where nobody said."""
    slots: Mapping[str, str] = field(default_factory=dict)
    """Placeholder to role, such as {"user_prompt": "instruction"}; the role "-" leaves it as it stands."""
    words: tuple[int, int] | None = None
    no_words: bool = False
    """The text names a number of words, but no limit for a reason."""
    example: int | None = None
    """Number of the JSON example that shows the answer, from 1; 0 for none of them."""
    lines: tuple[str, ...] = ()
    """Labels of the lines that hold a score each, where the answer is no JSON."""
    add_format: bool = False
    """The text dictates no form of answer that matters, so ours is put below it."""


@dataclass(frozen=True)
class Ask:
    """Something that the text does not say."""

    about: str
    why: str
    option: str

    def __str__(self) -> str:
        return f"{self.about}: {self.why} ({self.option})"


@dataclass(frozen=True)
class Imported:
    rubric: Rubric | None
    """None where something has to be asked for."""
    inferred: tuple[str, ...]
    """Each inference and what it was read from."""
    asks: tuple[Ask, ...]


def import_prompt(text: str, name: str, hints: Hints | None = None) -> Imported:
    """Read a prompt; the result holds a rubric only if nothing is left to ask."""
    return _Importer(text, name, hints or Hints()).run()


class _Importer:
    def __init__(self, text: str, name: str, hints: Hints) -> None:
        self.text = text
        self.name = name
        self.hints = hints
        self.inferred: list[str] = []
        self.asks: list[Ask] = []
        parts = _format_parts(text)
        self.braces: Any = "literal" if parts is None else "format"
        self.format_parts = parts or []
        self.format_fields = [name for _, name in self.format_parts if name is not None]
        self.plain = (text if parts is None else _joined(parts, "{{{}}}")).replace(
            "\r\n", "\n"
        )
        try:
            self.blocks = list(examples.find(self.plain))
        except TooComplex:
            raise RubricError(
                "the prompt has more braces and brackets than any answer needs"
            ) from None

    def run(self) -> Imported:
        if pattern("pairwise").search(self.plain):
            why = "it asks which of two edits is better; a rubric scores one edit"
            return Imported(None, (), (Ask("kind of prompt", why, "not importable"),))
        slots = self._slots()
        images = self._images(slots)
        texts = self._texts(slots)
        answer, factors = self._answer()
        if self.asks:
            return Imported(None, tuple(self.inferred), tuple(self.asks))
        template = Template(
            self.text,
            tuple(self._placed(slots)),
            self.braces,
            adds_answer_format=not self._has_example,
        )
        consistency = self._consistency(answer, factors)
        rubric = Rubric(
            self.name,
            images,
            factors,
            answer,
            texts,
            description="imported prompt",
            consistency=consistency,
            template=template,
        )
        # The order of the prompt's keys is said only if it is another one.
        keys = tuple(self._shown_keys)
        ordered = replace(rubric, answer=replace(answer, keys=keys))
        if answer_shape(ordered, "") != answer_shape(rubric, ""):
            rubric = ordered
        self._check_own_answers(rubric)
        return Imported(
            None if self.asks else rubric, tuple(self.inferred), tuple(self.asks)
        )

    def _check_own_answers(self, rubric: Rubric) -> None:
        """Ask about every answer that the prompt shows itself and that the contract would refuse."""
        for reply in (*self._json_answers(rubric), *self._line_answers(rubric)):
            outcome = check(rubric, reply)
            if isinstance(outcome, Failure):
                remark = outcome.reasons[0]
                answer = " ".join(reply.split())[:80]
                why = f"the prompt itself answers {answer}, which would be refused: {remark.message}"
                self._ask("answer", why, _OTHER_ANSWER)

    def _json_answers(self, rubric: Rubric) -> Iterator[str]:
        if rubric.answer.is_json:
            for example in self._answers:
                yield json.dumps(
                    _answer_of(answer_tree(rubric), example), ensure_ascii=False
                )

    def _line_answers(self, rubric: Rubric) -> Iterator[str]:
        """An answer for each line of the prompt that gives a score, or a score out of a total."""
        if rubric.answer.form != "lines":
            return
        legal = {
            rubric.label(factor): str(factor.scale.best) for factor in rubric.factors
        }
        texts = dict.fromkeys(rubric.answer.texts, ".")
        for label, best in legal.items():
            for content in _line_contents(self.plain, label):
                total = pattern("out_of").fullmatch(content)
                given = f"{best}{total['total']}" if total else content
                if pattern("given_score").fullmatch(given):
                    lines = texts | legal | {label: given}
                    yield "\n".join(f"{name}: {value}" for name, value in lines.items())

    def _ask(self, about: str, why: str, option: str) -> None:
        if all(ask.about != about for ask in self.asks):
            self.asks.append(Ask(about, why, option))

    def _note(self, what: str, value: str, source: str) -> None:
        self.inferred.append(f"{what}: {value} (from {source})")

    # --- inputs

    def _slots(self) -> list[Slot]:
        slots: dict[str, Slot] = {}
        names = set()
        for mark, name, guess in [*self._braced(), *self._bracketed()]:
            names.add(name)
            role = self.hints.slots.get(name) or guess
            if role is None:
                why = f"which input fills it: {', '.join(_ROLES)}, a column of the manifest, or - to leave it as it is"
                self._ask(f"placeholder {mark}", why, f'--slot "{name}=ROLE"')
            elif role != "-":
                slots[mark] = Slot(mark, _known_role(role))
        for mark, guess in _headings(self.plain):
            names.add(mark)
            if (role := self.hints.slots.get(mark, guess)) != "-":
                slots.setdefault(mark, Slot(mark, _known_role(role), keep=True))
        for name in self.hints.slots:
            if name not in names:
                raise RubricError(
                    f"--slot {name}: the prompt has no such placeholder{near_miss(name, names)}"
                )
        ordered = sorted(slots.values(), key=lambda slot: self.plain.find(slot.mark))
        return _one_a_role(ordered)

    def _braced(self) -> Iterator[tuple[str, str, str | None]]:
        """Placeholders in braces: mark, name and what they say they want."""
        if self.braces == "literal":
            marks = placeholders_in(self.text)
        else:
            # Doubled braces around a name are literal to str.format and a placeholder to other engines.
            marks = [f"{{{name}}}" for name in self.format_fields]
            marks += [
                mark
                for mark in pattern("literal_name").findall(
                    _joined(self.format_parts, "\0")
                )
                if mark not in marks
            ]
        for mark in dict.fromkeys(marks):
            name = mark.strip("${} ")
            certain = self.braces == "literal" or name in self.format_fields
            yield mark, name, _role_of(name) if certain else None

    def _bracketed(self) -> Iterator[tuple[str, str, str | None]]:
        """Placeholders in brackets, outside the JSON example, whose values stand in brackets as well."""
        for match in pattern("bracketed").finditer(self.plain):
            name = match["square"] or match["angle"]
            if any(start <= match.start() < end for start, end, _ in self.blocks):
                continue
            mark = match.group()
            if match["angle"] and f"</{name}>" in self.plain:
                mark = f"{mark}</{name}>"  # an element: its place is between the tags, if nothing stands there
                if mark not in self.plain:
                    continue
            role = _role_of(name)
            if role or name in self.hints.slots or pattern("input_noun").search(name):
                yield mark, name, role

    def _placed(self, slots: list[Slot]) -> Iterator[Slot]:
        """Slots with one place each; a heading that stands twice is left alone, and its input shown beside the text."""
        for slot in slots:
            line = rf"^[ \t]*{re.escape(slot.mark)}"
            if slot.keep and len(re.findall(line, self.plain, re.MULTILINE)) > 1:
                self._note(
                    "place",
                    f'beside the text, since "{slot.mark}" stands in it more than once',
                    "headings",
                )
            else:
                yield slot

    def _images(self, slots: list[Slot]) -> tuple[Any, ...]:
        if self.hints.images:
            images = tuple(_known_role(role) for role in self.hints.images)
            if len(set(images)) < len(images) or {*images} & {*TEXT_ROLES}:
                raise RubricError(
                    f"--image {' '.join(images)}: expected some of {', '.join(SHOWN)} or columns, once each"
                )
            return images
        roles = tuple(
            dict.fromkeys(slot.role for slot in slots if slot.role in IMAGE_ROLES)
        )
        why = ""
        if not roles:
            why = "no placeholder says which pictures are shown, in which order"
        elif "edited" not in roles:
            why = f"only {', '.join(roles)} found; the edited picture is missing"
        elif len(roles) == 1 and (mention := pattern("other_image").search(self.plain)):
            why = f'only {roles[0]} has a place, but the text says "{mention.group()}"'
        elif "ground_truth" not in roles and (
            mention := pattern("third_image").search(self.plain)
        ):
            why = f'only {" and ".join(roles)} have a place, but the text says "{mention.group()}"'
        if why:
            self._ask("images", why, "--image ROLE, repeated in their order")
        else:
            self._note("images", ", ".join(roles), _marks_for(roles, slots))
        return roles

    def _texts(self, slots: list[Slot]) -> tuple[Any, ...]:
        hinted = [_known_role(role) for role in self.hints.texts or ()]
        if wrong := [role for role in hinted if role in IMAGE_ROLES]:
            raise RubricError(
                f"--text {' '.join(wrong)}: expected {' or '.join(TEXT_ROLES)}, or none"
            )
        images = {*IMAGE_ROLES, *self.hints.images}
        roles = [*(slot.role for slot in slots), *hinted]
        wanted = [role for role in roles if role not in images]
        usual = [role for role in TEXT_ROLES if role in wanted]
        texts = tuple(dict.fromkeys([*usual, *wanted]))
        mention = pattern("instruction").search(self.plain)
        if mention and "instruction" not in texts and self.hints.texts is None:
            why = f'the text says "{mention.group()}", but no placeholder says where it stands'
            self._ask(
                "texts",
                why,
                "--text instruction to show it beside the text, or --text none",
            )
        self._note(
            "texts",
            ", ".join(texts) or "none",
            _marks_for(texts, slots) or "no placeholder",
        )
        return texts

    # --- answer

    def _answer(self) -> tuple[AnswerFormat, tuple[Factor, ...]]:
        json_examples = self._json_examples()
        self._has_example = bool(json_examples)
        self._answers = json_examples
        self._shown_keys = examples.keys_in(json_examples[0]) if json_examples else []
        if any(ask.about == "answer" for ask in self.asks):
            return _UNKNOWN
        if not json_examples:
            return self._answer_without_example()
        try:
            shape = examples.shape_of(json_examples[0], self.hints.factors)
        except Unclear as unclear:
            self._ask(unclear.about, unclear.why, unclear.option)
            return _UNKNOWN
        factors = self._factors(shape, json_examples)
        if shape.form == "list" or len(factors) == 1:
            self._compare_count(factors)
        reasons = [reason for _, reason in shape.paths.values()]
        has_reasons = any((shape.reason_key, shape.texts, *reasons))
        sections = _sections(self.plain)
        if sections:
            self._note(
                "sections",
                ", ".join(sections),
                "headings named in the output requirements",
            )
        if shape.form == "nested":
            places = ", ".join(
                f"{key} at {path}" for key, (path, _) in shape.paths.items()
            )
            self._note("answer", f"nested, {places}", "JSON example")
        else:
            self._note("envelope", shape.envelope or "(top level)", "JSON example")
        if shape.texts:
            self._note("free text", ", ".join(shape.texts), "JSON example")
        answer = AnswerFormat(
            id_key=shape.id_key,
            envelope=shape.envelope,
            form=shape.form,
            score_key=shape.score_key,
            reason_key=shape.reason_key,
            texts=shape.texts,
            words=self._words(shape.texts) if has_reasons else None,
            reason=shape.reason,
            sections=sections,
        )
        return answer, factors

    def _compare_count(self, factors: Sequence[Factor]) -> None:
        """Ask where the text lists more scores, or fewer, than there are factors: `score = [a, b]`."""
        for match in pattern("score_list").finditer(self.plain):
            count = match.group().partition("[")[2].count(",") + 1
            if factors and count != len(factors):
                why = f'the text says "{match.group().strip()}", which is {count} scores, and here is {len(factors)}'
                option = "--factor KEY for each, in order; with --example 0 where the JSON example has other keys"
                self._ask("factors", why, option)

    def _lines_answer(self) -> tuple[AnswerFormat, tuple[Factor, ...]] | None:
        """An answer in labelled lines, where the text shows them below words such as `Response format`; None where it
        shows none. What it shows and cannot be told for certain is asked for."""
        lines = _shown_lines(
            self.plain, (*self.format_fields, *placeholders_in(self.text))
        )
        labels = dict(lines)
        if missing := [
            label
            for label in self.hints.lines
            if label not in labels and f"{label}:" not in self.plain
        ]:
            raise RubricError(
                f"--line {missing[0]}: the prompt has no such line{near_miss(missing[0], labels)}"
            )
        for label in self.hints.lines:
            if self._stands_often(label):
                why = f'the line "{label}:" stands more than once, so that an answer has several scores of that name'
                self._ask(
                    "answer",
                    why,
                    "--add-format to put our JSON below it, with --factor KEY for each score",
                )
                return _UNKNOWN
        scored = self.hints.lines or [
            label
            for label, rest in lines
            if values_of(rest) or pattern("score_mark").fullmatch(rest)
        ]
        if not scored:
            return None
        texts = [
            label
            for label, rest in lines
            if label not in scored and pattern("reason_label").search(label)
        ]
        if unclear := [
            label for label, _ in lines if label not in scored and label not in texts
        ]:
            why = f'the line "{unclear[0]}:" may hold a score or a text'
            self._ask(
                "answer",
                why,
                '--line "LABEL", repeated, for each line that holds a score',
            )
            return _UNKNOWN
        scales = {label: self._scale(label, labels.get(label, "")) for label in scored}
        limits = self._words(tuple(texts)) if texts else None
        if self.asks:
            return _UNKNOWN
        self._has_example = True  # the text says itself how to answer
        self._shown_keys = [label for label, _ in lines if label in (*scored, *texts)]
        self._note(
            "answer",
            f"lines {', '.join(scored)}",
            "--line" if self.hints.lines else "the lines that it shows",
        )
        answer = AnswerFormat(form="lines", texts=tuple(texts), words=limits)
        return answer, self._on_scales(scales, "lines, text or --scale")

    def _stands_often(self, label: str) -> bool:
        """Whether the form of an answer has a label on several lines; scores given by way of example do not count."""
        formats = list(pattern("format").finditer(self.plain))
        form = self.plain[formats[-1].end() :] if formats else self.plain
        given = pattern("given_score")
        contents = _line_contents(form, label)
        return sum(not given.fullmatch(content) for content in contents) > 1

    def _answer_without_example(self) -> tuple[AnswerFormat, tuple[Factor, ...]]:
        own_form = self.hints.add_format or (
            self.hints.example == 0 and not self.hints.lines
        )
        if not own_form:
            if answer := self._lines_answer():
                return answer
            if mention := pattern("format").search(self.plain) or pattern(
                "dictated"
            ).search(self.plain):
                words = mention.group().strip()
                why = f'the text says "{words}", but shows neither JSON nor labelled lines with scores'
                options = '--line "LABEL" for each line that holds a score, or --add-format to put our JSON below it'
                self._ask("answer", why, options)
        if not self.hints.factors:
            self._ask(
                "factors",
                "the prompt shows no JSON answer; name what is scored",
                "--factor KEY, repeated",
            )
        limits = self._words()
        scales = {key: self._scale(key, "") for key in self.hints.factors or ("score",)}
        if self.asks:
            return _UNKNOWN
        self._note(
            "answer",
            "a JSON form of ours is added below the text",
            "no JSON example in it",
        )
        own = AnswerFormat(id_key="image_id", envelope="factor_results", words=limits)
        factors = self._on_scales(scales, "text or --scale")
        self._compare_count(factors)
        return own, factors

    def _on_scales(
        self,
        scales: Mapping[str, Values],
        source: str,
        paths: Mapping[str, tuple[str, str]] | None = None,
    ) -> tuple[Factor, ...]:
        """The factors with a known scale, each where its path leads."""
        factors = []
        for key, values in scales.items():
            if values:
                scale = values if isinstance(values, Scale) else Scale(values)
                path, reason_path = (paths or {}).get(key, ("", ""))
                factors.append(
                    Factor(key, scale, key, path=path, reason_path=reason_path)
                )
        names = dict.fromkeys(factor.scale.words for factor in factors)
        self._note("scale", "; ".join(names), source)
        return tuple(factors)

    def _json_examples(self) -> list[dict[str, Example]]:
        """The JSON examples of the answer, the one that describes its values best first."""
        json_examples = [
            example
            for _, _, example in self.blocks
            if not isinstance(example, NotAnExample)
        ]
        chosen = self.hints.example
        if chosen is not None:
            if not 0 <= chosen <= len(json_examples):
                raise RubricError(
                    f"--example {chosen}: the prompt has {len(json_examples)} JSON examples"
                )
            if not chosen:
                return []
            meant = json_examples.pop(chosen - 1)
            outline = examples.outline(meant)
            return [
                meant,
                *(
                    other
                    for other in json_examples
                    if examples.outline(other) == outline
                ),
            ]
        for start, end, example in self.blocks:
            if isinstance(example, NotAnExample):
                block = " ".join(self.plain[start:end].split())[:40]
                option = (
                    f"--example NUMBER, or {examples.OWN_FORM}"
                    if json_examples
                    else examples.OWN_FORM
                )
                self._ask("answer", f'"{block}" looks like JSON, but {example}', option)
        if len({examples.outline(example) for example in json_examples}) > 1:
            keys = "; ".join(
                f"{number}: {', '.join(example)}"
                for number, example in enumerate(json_examples, 1)
            )
            self._ask("answer", f"the JSON examples differ ({keys})", _WHICH_EXAMPLE)
        elif sum(not examples.gives_numbers(example) for example in json_examples) > 1:
            why = "the prompt describes a JSON object more than once, and an answer may hold one of them or all"
            self._ask("answer", why, _WHICH_EXAMPLE)
        return sorted(json_examples, key=_described, reverse=True)

    def _factors(
        self, shape: ExampleShape, json_examples: list[dict[str, Example]]
    ) -> tuple[Factor, ...]:
        keys = self._factor_keys(shape)
        self._note(
            "factors", ", ".join(keys), "JSON example" if shape.factors else "--factor"
        )
        described = (
            dict(zip(keys, shape.described.values(), strict=False))
            if shape.form == "list"
            else shape.described
        )
        named = {values_of(text) for text in described.values()}
        for other in json_examples[1:]:
            self._compare(described, other)
        scales = {key: self._scale(key, described.get(key, ""), named) for key in keys}
        return self._on_scales(scales, "JSON example, text or --scale", shape.paths)

    def _factor_keys(self, shape: ExampleShape) -> tuple[str, ...]:
        named = self.hints.factors
        if shape.form != "list":
            in_example = {
                *shape.factors,
                *(_last_key(shape, key) for key in shape.factors),
            }
            covers = all(
                key in named or _last_key(shape, key) in named for key in shape.factors
            )
            if named and not (covers and {*named} <= in_example):
                raise RubricError(
                    f"--factor {', '.join(named)}: the JSON example has {', '.join(shape.factors)}"
                )
            return shape.factors
        if not named:
            option = "--factor KEY for each, in order"
            if examples.may_be_scale(shape.described.values()):
                option += (
                    f", or --factor {shape.envelope} if one of them is to be chosen"
                )
            self._ask(
                "factors",
                f'"{shape.envelope}" is a list of scores without names',
                option,
            )
        elif shape.described and len(named) != len(shape.described):
            raise RubricError(
                f'--factor {", ".join(named)}: "{shape.envelope}" has {len(shape.described)} scores'
            )
        return named

    def _compare(self, described: Mapping[str, str], other: dict[str, Example]) -> None:
        """A second example of the same shape must not name other scores."""
        try:
            shape = examples.shape_of(other, self.hints.factors)
        except Unclear:
            return  # the first one said enough
        for key, text in shape.described.items():
            first = (
                ()
                if self.hints.scale or key in self.hints.scales
                else values_of(described.get(key, ""))
            )
            if first and (values_of(text) or first) != first:
                self._ask(
                    "scale",
                    f'two examples give "{key}" {_in_words(first)} and {_in_words(values_of(text))}',
                    _SCALE,
                )
            elif first and re.fullmatch(r"-?\d{1,4}", text) and int(text) not in first:
                self._ask(
                    "scale",
                    f'one example gives "{key}" {_in_words(first)}, another scores it {text}',
                    _SCALE,
                )

    def _scale(
        self, key: str, described: str, named: set[tuple[int, ...]] | None = None
    ) -> Values:
        """The scores of a factor; nothing, and a question, where example and text leave room for doubt."""
        if given := self.hints.scales.get(key) or self.hints.scale:
            return _with_abstention(given, described)
        stated = self._stated
        values = values_of(described)
        why = ""
        if decimals := self._decimals or re.search(
            r"float|decimal|\d\.\d", described, re.IGNORECASE
        ):
            mention = decimals if isinstance(decimals, str) else described
            why = f'the prompt speaks of decimals ("{mention}"); say which ones count'
        elif values:
            others = [
                one
                for one in stated
                if not any(set(one) == set(known) for known in named or {values})
            ]
            if others:
                why = f'the example gives "{key}" {_in_words(values)}, the text also says {_in_words(min(others))}'
        elif len(stated) != 1:
            why = "the text names " + (
                " and ".join(map(_in_words, sorted(stated))) or "no range of scores"
            )
        else:
            (values,) = stated
            if values[0] > 1:
                why = f"the text names only {_in_words(values)}, which may be a part of the scale"
            elif re.fullmatch(r"-?\d{1,4}", described) and int(described) not in values:
                why = f'the example scores "{key}" {described}, the text names {_in_words(values)}'
        own = _with_abstention(values, described)
        option = _SCALE
        if (
            not why
            and not isinstance(own, Scale)
            and (abstention := self._open_abstention())
        ):
            word = abstention.group()
            why = f'the text says "{word}", which may be an answer'
            option = (
                f'--scale "1-5 or {word}" where it is one, --scale 1-5 where it is none'
            )
        if why:
            self._ask("scale", why, option)
            return ()
        return own

    @functools.cached_property
    def _stated(self) -> frozenset[tuple[int, ...]]:
        """The scales that the text states in words, or line by line."""
        listed = _enumerated(self.plain)
        return frozenset([*ranges_in(self.plain), *([listed] if listed else [])])

    @functools.cached_property
    def _decimals(self) -> str:
        return _decimals(self.plain)

    def _open_abstention(self) -> re.Match[str] | None:
        """A word for what does not apply that the text mentions, where no JSON example says of which score."""
        in_examples = any(
            pattern("abstention").search(self.plain, start, end)
            for start, end, _ in self.blocks
        )
        return None if in_examples else pattern("abstention").search(self.plain)

    def _words(self, texts: tuple[str, ...] = ()) -> tuple[int, int] | None:
        if self.hints.words or self.hints.no_words:
            return self.hints.words
        stated = set(word_limits_in(self.plain))
        if len(stated) > 1:
            limits = ", ".join(f"{low}-{high}" for low, high in sorted(stated))
            self._ask(
                "words",
                f"the text names several limits: {limits}",
                "--words LEAST-MOST",
            )
        elif not stated and (other := pattern("other_words").search(self.plain)):
            why = (
                f'the text says "{other.group()}", which may be a limit for the reasons'
            )
            self._ask("words", why, "--words LEAST-MOST, or --words none")
        elif stated and len(texts) > 1:
            low, high = next(iter(stated))
            several = f'the answer has several texts; "{texts[0]}" counts as the reason'
            why = f"the text says {low}-{high} words, and {several}"
            self._ask("words", why, "--words LEAST-MOST, or --words none")
        if len(stated) != 1:
            return None
        limit = stated.pop()
        self._note("words", f"{limit[0]} to {limit[1]}", "text")
        return limit

    def _consistency(
        self, answer: AnswerFormat, factors: tuple[Factor, ...]
    ) -> Consistency | None:
        """Differences listed as allowed or (not allowed), and a 1 only if all are allowed, can be checked."""
        values = [{*factor.scale.values} for factor in factors]
        marks = "(not allowed)" in self.plain and pattern("all_allowed").search(
            self.plain
        )
        if not answer.sections or values != [{0, 1}] or not marks:
            return None
        self._note(
            "consistency",
            "marked differences must agree with the score",
            "allowed / not allowed lists",
        )
        return Consistency(
            answer.sections[0],
            ("allowed", "ignored"),
            ("not allowed", "unsure"),
            factors[0].key,
            1,
            0,
        )


_SCALE = "--scale 1-5 or --scale 5,3,1; --scale KEY=1-5 for one factor"
_WHICH_EXAMPLE = "--example NUMBER for the one that is a whole answer, or --example 0 for a form of ours"
_OTHER_ANSWER = f"{_SCALE}; or --example 0 for a form of ours below the text"
_UNKNOWN: tuple[AnswerFormat, tuple[Factor, ...]] = (AnswerFormat(), ())
"""Placeholder for an answer that has to be asked about."""


def _described(example: Example) -> int:
    """Count the values that an example describes, rather than gives."""
    if isinstance(example, dict):
        return sum(map(_described, example.values()))
    return bool(values_of(example.text))


def _with_abstention(values: Values, described: str) -> Values:
    """The scale of a factor, with the word by which its place in the example lets an answer abstain."""
    abstention = pattern("abstention").search(described)
    if not abstention or not values:
        return values
    scale = values if isinstance(values, Scale) else Scale(values)
    return replace(scale, abstain=scale.abstain or (abstention.group(),))


def _last_key(shape: ExampleShape, factor: str) -> str:
    """The key under which a factor's score stands, whatever leads there."""
    path, _ = shape.paths.get(factor, (factor, ""))
    return path.rpartition(".")[2]


# --- what the prompt itself answers ---------------------------------------------------------------------------


def _answer_of(part: Any, example: Example) -> Any:
    """An example as an answer: what it gives stays, and what it describes is filled with what is legal there."""
    if isinstance(part, AnswerObject) and isinstance(example, dict):
        return {
            key: _answer_of(part.members.get(key), value)
            for key, value in example.items()
        }
    if isinstance(part, list) and isinstance(example, ExampleChoice):
        are_given = any(map(examples.is_number, example.items))
        items = example.items if are_given else ("",) * len(part)
        pairs = zip(itertools.cycle(part), items, strict=False)
        return [
            _score_of(leaf.factor, Leaf(item, quoted=False)) for leaf, item in pairs
        ]
    if isinstance(part, AnswerLeaf) and part.factor and part.kind == "score":
        return _score_of(part.factor, example)
    return "." if isinstance(example, dict) else example.text or "."


def _score_of(factor: Factor, example: Example) -> Any:
    if not isinstance(example, Leaf) or not examples.is_given(example):
        return factor.scale.best
    text = example.text
    is_literal = examples.is_number(text) or text in ("true", "false", "null")
    if is_literal and not example.quoted:
        return json.loads(text.lstrip("+"))
    return text


def _line_contents(text: str, label: str) -> list[str]:
    """Return the text after a label, on every line that begins with it."""
    line = rf"^[ \t>#*-]*{re.escape(label)}[ \t*_]*:[ \t*_]*(\S.*)$"
    return [
        content.strip(" \t*_.`") for content in re.findall(line, text, re.MULTILINE)
    ]


# --- what the words say ---------------------------------------------------------------------------------------


def ranges_in(text: str) -> Iterator[tuple[int, ...]]:
    """The ranges of scores that a text states in words."""
    for match in pattern("stated").finditer(text):
        low, high = (int(number) for number in match.groups() if number is not None)
        around = text[max(0, match.start() - 80) : match.end() + 30]
        follows = re.match(r"[ \t)\]]*([A-Za-z%]*)", text[match.end() :])
        word = follows[1].lower() if follows else ""
        values = span_of(low, high)
        if (
            values
            and (not word or word in words("prompts", "may_follow"))
            and pattern("about_scores").search(around)
        ):
            yield values


def _enumerated(text: str) -> tuple[int, ...]:
    """'Score = 1 ... Score = 0', a line each, spells a scale out; with gaps it may be anchors on a wider one."""
    values = sorted({int(number) for number in pattern("enumerated").findall(text)})
    gapless = len(values) > 1 and values == list(range(values[0], values[-1] + 1))
    return tuple(values) if gapless else ()


def _decimals(text: str) -> str:
    """Words by which a prompt allows scores that are no integers; one that refuses them does so in the sentence."""
    for match in itertools.chain(
        pattern("decimals").finditer(text), pattern("score_decimal").finditer(text)
    ):
        start = max(text.rfind(end, 0, match.start()) for end in (". ", "\n", ";")) + 1
        sentence = re.split(r"\.\s|\n|;", text[start : match.end() + 80])[0]
        if not pattern("refuses").search(sentence):
            return match.group()
    return ""


def _in_words(values: tuple[int, ...]) -> str:
    return Scale(values).words


def word_limits_in(text: str) -> Iterator[tuple[int, int]]:
    """Least and most words of a reason, as a text states them; "60-20 words" states none."""
    for name, less in (("word_range", 0), ("word_most", 0), ("word_below", 1)):
        for match in pattern(name).finditer(text):
            *least, most = (
                int(number) for number in match.groups() if number is not None
            )
            low = least[0] if least else 1
            high = most - less
            if low <= high:
                yield low, high


def _sections(text: str) -> tuple[str, ...]:
    """Headings that the answer must have are named inside a list or in code marks; a prompt's own start a line."""
    listed = r"^[ \t]*(?:[-*•]|\d+[.)])[ \t]+`?#{1,6}[ \t]+([^`\na-z][^`\n]*)"
    named = re.findall(rf"{listed}|`#{{1,6}}[ \t]+([^`\n]+)`", text, re.M)
    return tuple(dict.fromkeys((a or b).strip() for a, b in named))


# --- where inputs go ------------------------------------------------------------------------------------------


def placeholders_in(text: str) -> list[str]:
    """Braced names such as {instruction} or {{instruction}}, as they stand."""
    matches = pattern("braced").finditer(text)
    return list(dict.fromkeys(match.group() for match in matches))


def _headings(text: str) -> Iterator[tuple[str, str]]:
    """Lines that name an input, which follows them: exact mark and role."""
    for match in pattern("label").finditer(text):
        if role := _role_of(match["title"]):
            yield match["mark"], role
    for match in pattern("numbered").finditer(text):
        role = _role_of(f"{match['title'] or match['following']} image")
        if role in IMAGE_ROLES:
            yield match["mark"], role


def _role_of(name: str) -> str | None:
    """The input that a name means, where every word of it says so; a picture must be called one."""
    table = load_table("prompts")
    separated = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    parts = {*re.findall(r"[a-z]+", separated.lower())}
    nouns = words("prompts", "image_nouns")
    if parts & nouns or parts == {"ground", "truth"}:
        meanings = {role: {*meant.split()} for role, meant in table["images"].items()}
        roles = [role for role, meant in meanings.items() if parts & meant]
        beside = nouns | words("prompts", "beside_images")
        if len(roles) == 1 and parts <= beside | meanings[roles[0]]:
            return str(roles[0])
    # 'Instructions' are those of the prompt itself, and a 'prompt' may be a caption, unless they are called edits.
    if parts & {"prompt", "instructions"} and not parts & {"edit", "editing"}:
        return None
    for role, meant in table["texts"].items():
        known = {*meant.split()}
        if parts & known and parts <= known | words("prompts", "beside_texts"):
            return str(role)
    return None


def _known_role(role: str) -> str:
    """One of the usual inputs, or the name of a column; what looks like a usual name mistyped is refused."""
    hint = near_miss(role, _ROLES)
    mistyped = "?" in hint and not role.startswith(_ROLES)
    if role not in _ROLES and (
        mistyped or not re.fullmatch(r"[^\W\d][\w.@-]{0,99}", role)
    ):
        raise RubricError(
            f'"{role}" is no input{hint} Expected: {", ".join(_ROLES)}, or a column of the manifest'
        )
    return role


def _shown_lines(text: str, fields: Sequence[str]) -> list[tuple[str, str]]:
    """Label and content of the lines that stand below the last words about a format, up to the first other line."""
    marks = list(pattern("format").finditer(text))
    lines: list[tuple[str, str]] = []
    for line in text[marks[-1].end() :].splitlines() if marks else ():
        match = pattern("labelled").fullmatch(line)
        if match and not any(field in line for field in fields) and "<" not in line:
            lines.append((match["label"].strip(), match["rest"].strip(" *_.`")))
        elif line.strip(" \t`") and (lines or match):
            break
    return lines if len({label for label, _ in lines}) == len(lines) else []


def _one_a_role(slots: list[Slot]) -> list[Slot]:
    """Braces beat brackets that name the same input, brackets beat headings, and the first heading beats later ones."""
    braced = {slot.role for slot in slots if _is_braced(slot.mark)}
    filled = {slot.role for slot in slots if not slot.keep}
    chosen: list[Slot] = []
    for slot in slots:
        better = braced if not slot.keep else filled | {other.role for other in chosen}
        if _is_braced(slot.mark) or slot.role not in better:
            chosen.append(slot)
    return chosen


def _marks_for(roles: tuple[str, ...], slots: list[Slot]) -> str:
    return ", ".join(slot.mark for slot in slots if slot.role in roles)


def _is_braced(mark: str) -> bool:
    return mark.startswith(("{", "${"))


def _format_parts(text: str) -> list[tuple[str, str | None]] | None:
    """Words and fields in turn, of a text written for str.format; None where its braces are meant as they stand."""
    if "{{" not in text:
        return None
    parts = []
    try:
        for literal, name, spec, conversion in string.Formatter().parse(text):
            if name is not None and (spec or conversion or not name.isidentifier()):
                return None
            parts.append((literal, name))
    except ValueError:
        return None
    # Names in doubled braces and no others: these are the placeholders, as Jinja and Mustache write them.
    has_fields = any(name is not None for _, name in parts)
    return parts if has_fields or not placeholders_in(text) else None


def _joined(parts: list[tuple[str, str | None]], field: str) -> str:
    """The text with literal braces as such, and each field as that form has it."""
    return "".join(
        literal + (field.format(name) if name is not None else "")
        for literal, name in parts
    )
