"""Import of a published prompt as a rubric, with the prompt's text unchanged.

The importer searches the prompt for its inputs and for the answer that it asks for. What the text states is extracted
and reported. For everything else, the importer asks the user and names the option that answers the question. Nothing is
guessed silently.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from editjudge.edit import IMAGE_ROLES, TEXT_ROLES
from editjudge.errors import RubricError, did_you_mean, near_miss
from editjudge.rubrics import example_json as examples
from editjudge.rubrics.answer import AnswerNode, answer_shape, answer_tree
from editjudge.rubrics.contract import check
from editjudge.rubrics.example_json import (
    Ask,
    Example,
    ExampleShape,
    Leaf,
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
from editjudge.rubrics.replies import NoAnswer
from editjudge.rubrics.scale import Scale
from editjudge.rubrics.strict_yaml import load_table, pattern, word_list
from editjudge.rubrics.verdict import Failure

_ROLES = (*IMAGE_ROLES[:3], *TEXT_ROLES)
"""The usual inputs of a rubric."""

Values = tuple[int, ...] | Scale
"""Legal scores of a factor: integers, or a scale of decimals, which only the user can specify."""

_SCALE = "--scale 1-5 or --scale 5,3,1; --scale KEY=1-5 for one factor"
_WHICH_EXAMPLE = "--example NUMBER for the example that is a complete answer, or --example 0 for our own format"
_WORDS = "--words LEAST-MOST, or --words none"


@dataclass(frozen=True)
class Hints:
    """The user's answers to questions that the prompt leaves open."""

    factors: tuple[str, ...] = ()
    scale: Values = ()
    scales: Mapping[str, Values] = field(default_factory=dict)
    """Scales of individual factors, if they differ."""
    images: tuple[str, ...] = ()
    texts: tuple[str, ...] | None = None
    """Input texts to show although the prompt has no placeholder for them. Empty for none; None if the user did not
    say.
    """
    slots: Mapping[str, str] = field(default_factory=dict)
    """Role of each placeholder, such as {"user_prompt": "instruction"}; the role "-" leaves a placeholder
    unchanged.
    """
    words: tuple[int, int] | None = None
    no_words: bool = False
    """Whether the user said that a number of words in the prompt is not a limit for reasons."""
    example: int | None = None
    """Number of the JSON example that shows the answer, counted from 1; 0 if none does."""
    lines: tuple[str, ...] = ()
    """Labels of the lines with a score, if the answer is not JSON."""
    add_format: bool = False
    """Whether to append our JSON format, which replaces the prompt's own answer format."""


@dataclass(frozen=True)
class Imported:
    rubric: Rubric | None
    """The rubric, or None if questions are open."""
    inferred: tuple[str, ...]
    """Inferred facts, each with its source in the prompt."""
    asks: tuple[Ask, ...]


def import_prompt(text: str, name: str, hints: Hints | None = None) -> Imported:
    """Import a prompt. The result has a rubric only if the user has no question left to answer."""
    importer = _Importer(text, hints or Hints())
    rubric = importer.rubric(name)
    asks = tuple(importer.asks.values())
    return Imported(None if asks else rubric, tuple(importer.inferred), asks)


class _Importer:
    def __init__(self, text: str, hints: Hints) -> None:
        self.text = text
        self.hints = hints
        self.inferred: list[str] = []
        self.asks: dict[str, Ask] = {}
        """Open questions, keyed by subject; only the first question on each subject is kept."""
        parts = _format_parts(text)
        self.is_format = parts is not None
        self.format_parts = parts or []
        self.format_fields = [name for _, name in self.format_parts if name is not None]
        plain = text if parts is None else _joined(parts, "{{{}}}")
        self.plain = plain.replace("\r\n", "\n")
        try:
            self.blocks = list(examples.find(self.plain))
        except NoAnswer:
            raise RubricError(
                "the prompt has more braces and brackets than any answer needs",
                code="too_complex",
            ) from None
        self.shown_answers: list[dict[str, Example]] = []
        """JSON examples of the answer; the first one describes the most values."""
        self.shown_keys: Sequence[str] = ()
        """Keys or labels of the answer in the order of the prompt."""
        self.shows_form = True

    def rubric(self, name: str) -> Rubric | None:
        if pattern("pairwise").search(self.plain):
            reason = "it asks which of two edits is better; a rubric scores one edit"
            self._ask("kind of prompt", reason, "not importable")
            return None
        slots = self._slots()
        images = self._images(slots)
        texts = self._texts(slots)
        try:
            answer, factors = self._answer(self._asked_answer())
        except Ask as ask:
            self.asks.setdefault(ask.about, ask)
        if self.asks:
            return None
        template = Template(
            self.text,
            tuple(filter(self._has_place, slots)),
            "format" if self.is_format else "literal",
            adds_answer_format=not self.shows_form,
        )
        rubric = Rubric(
            name,
            images,
            factors,
            answer,
            texts,
            description="imported prompt",
            consistency=self._consistency(answer, factors),
            template=template,
        )
        # The order of keys is stored only if it differs from the default.
        in_order = replace(answer, keys=tuple(self.shown_keys))
        ordered = replace(rubric, answer=in_order)
        if answer_shape(ordered, "") != answer_shape(rubric, ""):
            rubric = ordered
        for reply in (*self._json_answers(rubric), *self._line_answers(rubric)):
            self._check_answer(rubric, reply)
        return rubric

    def _ask(self, about: str, reason: str, option: str) -> None:
        self.asks.setdefault(about, Ask(reason, about, option))

    def _note(self, subject: str, value: str, source: str) -> None:
        self.inferred.append(f"{subject}: {value} (from {source})")

    # --- answers that the prompt itself gives

    def _check_answer(self, rubric: Rubric, reply: str) -> None:
        """Ask the user about an example answer in the prompt that the contract would refuse."""
        outcome = check(rubric, reply)
        if isinstance(outcome, Failure):
            answer = " ".join(reply.split())[:80]
            refusal = outcome.reasons[0].message
            self._ask(
                "answer",
                f"the prompt itself answers {answer}, which would be refused: {refusal}",
                f"{_SCALE}; or --example 0 for our own JSON format below the text",
            )

    def _json_answers(self, rubric: Rubric) -> Iterator[str]:
        for example in self.shown_answers if rubric.answer.is_json else ():
            answer = _filled(answer_tree(rubric), example)
            yield json.dumps(answer, ensure_ascii=False)

    def _line_answers(self, rubric: Rubric) -> Iterator[str]:
        """Yield an answer for each line of the prompt that has a score, or a score out of a total, such as 4/5."""
        is_lines = rubric.answer.form == "lines"
        best = {
            rubric.label(factor): str(factor.scale.best)
            for factor in rubric.factors
            if is_lines
        }
        texts = dict.fromkeys(rubric.answer.texts, ".")
        for label, score in best.items():
            for content in _line_contents(self.plain, label):
                total = pattern("out_of").fullmatch(content)
                score_text = f"{score}{total['total']}" if total else content
                if pattern("given_score").fullmatch(score_text):
                    lines = texts | best | {label: score_text}
                    yield "\n".join(f"{name}: {value}" for name, value in lines.items())

    # --- inputs

    def _slots(self) -> list[Slot]:
        slots: dict[str, Slot] = {}
        names = set()
        for mark, name, guess in [*self._braced(), *self._bracketed()]:
            names.add(name)
            role = self.hints.slots.get(name) or guess
            if role is None:
                reason = f"which input fills it: {', '.join(_ROLES)}, a column of the manifest, or - to leave it as it is"
                self._ask(f"placeholder {mark}", reason, f'--slot "{name}=ROLE"')
            elif role != "-":
                slots[mark] = Slot(mark, _checked_role(role))
        for mark, guess in _headings(self.plain):
            names.add(mark)
            role = self.hints.slots.get(mark, guess)
            if role != "-":
                slots.setdefault(mark, Slot(mark, _checked_role(role), keep=True))
        for name in self.hints.slots:
            if name not in names:
                raise RubricError(
                    f"--slot {name}: the prompt has no such placeholder{did_you_mean(name, names)}",
                    code="unknown_placeholder",
                )
        ordered = sorted(slots.values(), key=lambda slot: self.plain.find(slot.mark))
        return _one_a_role(ordered)

    def _braced(self) -> Iterator[tuple[str, str, str | None]]:
        """Yield the mark, name and role of each placeholder in braces."""
        if not self.is_format:
            for mark in placeholders_in(self.text):
                name = mark.strip("${} ")
                yield mark, name, _role_of(name)
            return
        fields = dict.fromkeys(f"{{{name}}}" for name in self.format_fields)
        # Doubled braces around a name are literal for str.format and a placeholder for other engines.
        literal = pattern("literal_name").findall(_joined(self.format_parts, "\0"))
        for mark in fields | dict.fromkeys(literal):
            name = mark.strip("{} ")
            yield mark, name, _role_of(name) if name in self.format_fields else None

    def _bracketed(self) -> Iterator[tuple[str, str, str | None]]:
        """Yield the mark, name and role of each placeholder in square brackets. Brackets in JSON examples are skipped."""
        for match in pattern("bracketed").finditer(self.plain):
            name = match["square"] or match["angle"]
            if any(start <= match.start() < end for start, end, _ in self.blocks):
                continue
            mark = match.group()
            if match["angle"] and f"</{name}>" in self.plain:
                # An element: the input goes between its tags if they are empty.
                mark = f"{mark}</{name}>"
                if mark not in self.plain:
                    continue
            role = _role_of(name)
            if role or name in self.hints.slots or pattern("input_noun").search(name):
                yield mark, name, role

    def _has_place(self, slot: Slot) -> bool:
        """Whether to insert an input into the prompt's text. A heading that occurs more than once does not mark a clear
        position.
        """
        line = rf"^[ \t]*{re.escape(slot.mark)}"
        if not slot.keep or len(re.findall(line, self.plain, re.MULTILINE)) < 2:
            return True
        reason = f'beside the text, since "{slot.mark}" occurs in it more than once'
        self._note("place", reason, "headings")
        return False

    def _images(self, slots: list[Slot]) -> tuple[str, ...]:
        if self.hints.images:
            images = tuple(map(_checked_role, self.hints.images))
            if len(set(images)) < len(images) or {*images} & {*TEXT_ROLES}:
                raise RubricError(
                    f"--image {' '.join(images)}: expected some of {', '.join(_ROLES[:3])} or columns, once each",
                    code="bad_images",
                )
            return images
        roles = [slot.role for slot in slots if slot.role in IMAGE_ROLES]
        images = tuple(dict.fromkeys(roles))
        other = pattern("other_image").search(self.plain)
        third = pattern("third_image").search(self.plain)
        reason = ""
        if not images:
            reason = "no placeholder says which images are shown, in which order"
        elif "edited" not in images:
            reason = f"only {', '.join(images)} found; the edited image is missing"
        elif len(images) == 1 and other:
            reason = (
                f'only {images[0]} has a place, but the text says "{other.group()}"'
            )
        elif "ground_truth" not in images and third:
            reason = f'only {" and ".join(images)} have a place, but the text says "{third.group()}"'
        if reason:
            self._ask("images", reason, "--image ROLE, repeated in their order")
        else:
            self._note("images", ", ".join(images), _marks_for(images, slots))
        return images

    def _texts(self, slots: list[Slot]) -> tuple[str, ...]:
        hinted = [_checked_role(role) for role in self.hints.texts or ()]
        if wrong := [role for role in hinted if role in IMAGE_ROLES]:
            raise RubricError(
                f"--text {' '.join(wrong)}: expected {' or '.join(TEXT_ROLES)}, or none",
                code="bad_texts",
            )
        images = {*IMAGE_ROLES, *self.hints.images}
        roles = [*(slot.role for slot in slots), *hinted]
        wanted = dict.fromkeys(role for role in roles if role not in images)
        texts = tuple(sorted(wanted, key=(*TEXT_ROLES, *wanted).index))
        mention = pattern("instruction").search(self.plain)
        if mention and "instruction" not in texts and self.hints.texts is None:
            self._ask(
                "texts",
                f'the text says "{mention.group()}", but no placeholder marks its position',
                "--text instruction to show it beside the text, or --text none",
            )
        source = _marks_for(texts, slots) or "no placeholder"
        self._note("texts", ", ".join(texts) or "none", source)
        return texts

    # --- the answer that the prompt asks for

    def _asked_answer(self) -> ExampleShape:
        """Return the answer shape from the prompt's JSON example or labelled lines. If it has neither, return our own
        JSON format. Raise `Ask` if the shape is unclear.
        """
        hints = self.hints
        self.shown_answers = self._json_examples()
        if self.shown_answers:
            return self._json_shape()
        if not hints.add_format and (hints.lines or hints.example != 0):
            if shape := self._line_shape():
                return shape
            mention = pattern("format").search(self.plain)
            if mention := mention or pattern("dictated").search(self.plain):
                self._ask(
                    "answer",
                    f'the text says "{mention.group().strip()}", but shows neither JSON nor labelled lines with scores',
                    '--line "LABEL" for each line with a score, or --add-format to put our JSON below it',
                )
        if not hints.factors:
            reason = "the prompt shows no JSON answer; name what is scored"
            self._ask("factors", reason, "--factor KEY, repeated")
        self.shows_form = False
        note = "our own JSON format is added below the text"
        self._note("answer", note, "no JSON example in it")
        answer = AnswerFormat(id_key="image_id", envelope="factor_results")
        return ExampleShape(answer, dict.fromkeys(hints.factors or ("score",), ""))

    def _json_examples(self) -> list[dict[str, Example]]:
        shapes = [shape for _, _, shape in self.blocks if not isinstance(shape, Ask)]
        chosen = self.hints.example
        if chosen == 0:
            return []
        if chosen is not None:
            if not 0 < chosen <= len(shapes):
                raise RubricError(
                    f"--example {chosen}: the prompt has {len(shapes)} JSON examples",
                    code="unknown_example",
                )
            meant = shapes.pop(chosen - 1)
            outline = examples.outline(meant)
            return [meant, *(e for e in shapes if examples.outline(e) == outline)]
        for start, end, shape in self.blocks:
            if isinstance(shape, Ask):
                block = " ".join(self.plain[start:end].split())[:40]
                own_form = examples.OWN_FORM
                option = f"--example NUMBER, or {own_form}" if shapes else own_form
                raise Ask(
                    f'"{block}" looks like JSON, but {shape.reason}', "answer", option
                )
        if len({examples.outline(example) for example in shapes}) > 1:
            keys = "; ".join(
                f"{number}: {', '.join(example)}"
                for number, example in enumerate(shapes, 1)
            )
            reason = f"the JSON examples differ ({keys})"
            raise Ask(reason, "answer", _WHICH_EXAMPLE)
        if sum(not examples.gives_numbers(example) for example in shapes) > 1:
            reason = "the prompt describes a JSON object more than once, and an answer may have one of them or all"
            raise Ask(reason, "answer", _WHICH_EXAMPLE)
        # The example that describes the most values comes first.
        return sorted(
            shapes,
            key=lambda example: sum(
                bool(values_of(leaf.text)) for leaf in examples.leaves(example)
            ),
            reverse=True,
        )

    def _json_shape(self) -> ExampleShape:
        first, *others = self.shown_answers
        self.shown_keys = examples.keys_in(first)
        shape = self._named(examples.shape_of(first, self.hints.factors))
        for other in others:
            self._compare(shape.described, other)
        answer = shape.answer
        source = "--factor" if answer.form == "list" else "JSON example"
        self._note("factors", ", ".join(shape.described), source)
        if answer.form == "nested":
            paths = ", ".join(f"{key} at {shape.paths[key][0]}" for key in shape.paths)
            self._note("answer", f"nested, {paths}", "JSON example")
        else:
            self._note("envelope", answer.envelope or "(top level)", "JSON example")
        if answer.texts:
            self._note("free text", ", ".join(answer.texts), "JSON example")
        sections = _sections(self.plain)
        if sections:
            source = "headings named in the output requirements"
            self._note("sections", ", ".join(sections), source)
        return replace(shape, answer=replace(answer, sections=sections))

    def _line_shape(self) -> ExampleShape | None:
        """Return the shape of labelled lines after a phrase such as `Response format`, or None if there are none. Raise
        `Ask` if it is unclear what the lines contain.
        """
        placeholders = (*self.format_fields, *placeholders_in(self.text))
        lines = _shown_lines(self.plain, placeholders)
        hinted = self.hints.lines
        for label in hinted:
            if label not in lines and f"{label}:" not in self.plain:
                raise RubricError(
                    f"--line {label}: the prompt has no such line{did_you_mean(label, lines)}",
                    code="unknown_line",
                )
        for label in hinted:
            if self._stands_often(label):
                reason = f'the line "{label}:" occurs more than once, so an answer has several scores of that name'
                option = "--add-format to put our JSON below it, with --factor KEY for each score"
                raise Ask(reason, "answer", option)
        scored = hinted or [
            label
            for label, content in lines.items()
            if values_of(content) or pattern("score_mark").fullmatch(content)
        ]
        if not scored:
            return None
        others = [label for label in lines if label not in scored]
        for label in others:
            if not pattern("reason_label").search(label):
                reason = f'the line "{label}:" may have a score or a text'
                option = '--line "LABEL", repeated, for each line with a score'
                raise Ask(reason, "answer", option)
        self.shown_keys = tuple(lines)
        source = "--line" if hinted else "the lines that it shows"
        self._note("answer", f"lines {', '.join(scored)}", source)
        return ExampleShape(
            AnswerFormat(form="lines", texts=tuple(others)),
            {label: lines.get(label, "") for label in scored},
        )

    def _stands_often(self, label: str) -> bool:
        """Whether several answer lines have this label. Lines with an example score are not counted."""
        *_, form = pattern("format").split(self.plain)
        given_score = pattern("given_score")
        contents = _line_contents(form, label)
        return sum(not given_score.fullmatch(content) for content in contents) > 1

    def _named(self, shape: ExampleShape) -> ExampleShape:
        """Check the user's factors against the example. If the example's scores are a list without names, name them
        after these factors.
        """
        named = self.hints.factors
        described = shape.described
        envelope = shape.answer.envelope
        if shape.answer.form != "list":
            # The user may name a factor by the last key of its path.
            last_keys = {
                key: shape.paths.get(key, (key, ""))[0].rpartition(".")[2]
                for key in described
            }
            covered = all({*pair} & {*named} for pair in last_keys.items())
            stray = {*named} - {*last_keys, *last_keys.values()}
            if named and (stray or not covered):
                raise RubricError(
                    f"--factor {', '.join(named)}: the JSON example has {', '.join(described)}",
                    code="unknown_factor",
                )
            return shape
        if not named:
            option = "--factor KEY for each, in order"
            if examples.may_be_scale(described.values()):
                option += f", or --factor {envelope} if the answer is one of them"
            reason = f'"{envelope}" is a list of scores without names'
            self._ask("factors", reason, option)
        elif described and len(named) != len(described):
            raise RubricError(
                f'--factor {", ".join(named)}: "{envelope}" has {len(described)} scores',
                code="several_scores",
            )
        texts = list(described.values()) or [""] * len(named)
        return replace(shape, described=dict(zip(named, texts, strict=False)))

    def _compare(self, described: Mapping[str, str], other: dict[str, Example]) -> None:
        """If another example of the same shape gives different scores than the first, ask the user about it."""
        if self.hints.scale:
            return
        try:
            others = examples.shape_of(other, self.hints.factors).described
        except Ask:
            return  # the first example is enough
        for key in others.keys() & (described.keys() - self.hints.scales.keys()):
            first = values_of(described[key])
            text = others[key]
            values = values_of(text)
            if first and values and values != first:
                reason = f'two examples give "{key}" {_in_words(first)} and {_in_words(values)}'
                self._ask("scale", reason, _SCALE)
            elif first and _is_off(text, first):
                reason = f'one example gives "{key}" {_in_words(first)}, another scores it {text}'
                self._ask("scale", reason, _SCALE)

    # --- its scales and limits

    def _answer(self, shape: ExampleShape) -> tuple[AnswerFormat, tuple[Factor, ...]]:
        """Return an answer's format and factors. Factors without a scale are left out, and the user is asked about
        them.
        """
        answer = shape.answer
        named = {values_of(text) for text in shape.described.values()}
        factors = []
        for key, text in shape.described.items():
            path, reason_path = shape.paths.get(key, ("", ""))
            if scale := self._scale(key, text, named):
                factors.append(
                    Factor(key, scale, key, path=path, reason_path=reason_path)
                )
        scales = dict.fromkeys(factor.scale.words for factor in factors)
        self._note("scale", "; ".join(scales), "example, text or --scale")
        is_single = len(factors) == 1 or answer.form == "list" or not self.shows_form
        if is_single and answer.is_json:
            self._compare_count(factors)
        reasons = (reason for _, reason in shape.paths.values())
        reason_key = answer.is_json and answer.reason_key
        has_reasons = any((reason_key, answer.texts, *reasons))
        limits = self._word_limits(answer.texts) if has_reasons else None
        return replace(answer, words=limits), tuple(factors)

    def _compare_count(self, factors: Sequence[Factor]) -> None:
        """If a list of scores in the text (`score = [a, b]`) does not have as many items as there are factors, ask the
        user about it.
        """
        for match in pattern("score_list").finditer(self.plain):
            count = match.group().partition("[")[2].count(",") + 1
            if factors and count != len(factors):
                reason = f'the text says "{match.group().strip()}", which is {count} scores, and here is {len(factors)}'
                option = "--factor KEY for each, in order; with --example 0 if the JSON example has other keys"
                self._ask("factors", reason, option)

    def _scale(
        self, key: str, described: str, named: set[tuple[int, ...]]
    ) -> Scale | None:
        """Return the scale of a factor. If the example and the text do not determine it, ask the user and return None."""
        hinted = self.hints.scales.get(key) or self.hints.scale
        doubt = "" if hinted else self._doubt(key, described, named)
        if doubt:
            self._ask("scale", doubt, _SCALE)
            return None
        values = hinted or values_of(described) or self._stated[0]
        scale = values if isinstance(values, Scale) else Scale(values)
        if abstention := pattern("abstention").search(described):
            return replace(scale, abstain=scale.abstain or (abstention.group(),))
        if not hinted and self._abstention:
            self._ask(
                "scale",
                f'the text says "{self._abstention}", which may be an answer',
                f'--scale "1-5 or {self._abstention}" if it is an answer, --scale 1-5 if it is not',
            )
        return scale

    def _doubt(self, key: str, described: str, named: set[tuple[int, ...]]) -> str:
        """Return the reason why the example and the text do not determine a factor's scores, or an empty string if they
        do.
        """
        decimals = self._decimals
        if not decimals and re.search(r"(?i)float|decimal|\d\.\d", described):
            decimals = described
        if decimals:
            return f'the prompt speaks of decimals ("{decimals}"); say which ones count'
        if values := values_of(described):
            sets = [set(scores) for scores in named]
            for scores in self._stated:
                if set(scores) not in sets:
                    return f'the example gives "{key}" {_in_words(values)}, the text also says {_in_words(scores)}'
            return ""
        ranges = " and ".join(map(_in_words, self._stated))
        if len(self._stated) != 1:
            return f"the text names {ranges or 'no range of scores'}"
        if self._stated[0][0] > 1:
            return f"the text names only {ranges}, which may be a part of the scale"
        if _is_off(described, self._stated[0]):
            return f'the example scores "{key}" {described}, the text names {ranges}'
        return ""

    @functools.cached_property
    def _stated(self) -> list[tuple[int, ...]]:
        """Scales that the text states, either in words or line by line."""
        scales = {*ranges_in(self.plain)}
        # 'Score = 1 ... Score = 0', one on each line, is a full scale; with gaps, these may be anchors of a wider
        # scale.
        lines = {int(number) for number in pattern("enumerated").findall(self.plain)}
        if len(lines) > 1 and max(lines) - min(lines) == len(lines) - 1:
            scales.add(tuple(sorted(lines)))
        return sorted(scales)

    @functools.cached_property
    def _decimals(self) -> str:
        """Phrase that allows decimals, unless the same sentence forbids them; empty if there is none."""
        text = self.plain
        for match in itertools.chain(
            pattern("decimals").finditer(text), pattern("score_decimal").finditer(text)
        ):
            ends = (text.rfind(end, 0, match.start()) for end in (". ", "\n", ";"))
            sentence = text[max(ends) + 1 : match.end() + 80]
            if not pattern("refuses").search(re.split(r"\.\s|\n|;", sentence)[0]):
                return match.group()
        return ""

    @functools.cached_property
    def _abstention(self) -> str:
        """Abstention (such as N/A) that the text mentions outside of JSON examples; empty if there is none."""
        abstention = pattern("abstention")
        for start, end, _ in self.blocks:
            if abstention.search(self.plain, start, end):
                return ""
        mention = abstention.search(self.plain)
        return mention.group() if mention else ""

    def _word_limits(self, texts: tuple[str, ...] = ()) -> tuple[int, int] | None:
        if self.hints.words or self.hints.no_words:
            return self.hints.words
        stated = sorted(set(word_limits_in(self.plain)))
        ranges = ", ".join(f"{low}-{high}" for low, high in stated)
        other = pattern("other_words").search(self.plain)
        if len(stated) > 1:
            reason = f"the text names several limits: {ranges}"
            self._ask("words", reason, "--words LEAST-MOST")
        elif not stated and other:
            reason = (
                f'the text says "{other.group()}", which may be a limit for the reasons'
            )
            self._ask("words", reason, _WORDS)
        elif stated and len(texts) > 1:
            reason = f'the text says {ranges} words, and the answer has several texts; "{texts[0]}" counts as the reason'
            self._ask("words", reason, _WORDS)
        if len(stated) != 1:
            return None
        self._note("words", ranges.replace("-", " to "), "text")
        return stated[0]

    def _consistency(
        self, answer: AnswerFormat, factors: tuple[Factor, ...]
    ) -> Consistency | None:
        """Return a consistency rule if the answer marks each listed difference as allowed or not, and the score is 1
        only if all are allowed. Otherwise return None.
        """
        values = [{*factor.scale.values} for factor in factors]
        has_marks = "(not allowed)" in self.plain
        if not (
            answer.sections
            and values == [{0, 1}]
            and has_marks
            and pattern("all_allowed").search(self.plain)
        ):
            return None
        rule = "marked differences must agree with the score"
        self._note("consistency", rule, "allowed / not allowed lists")
        return Consistency(
            answer.sections[0],
            passes=("allowed", "ignored"),
            fails=("not allowed", "unsure"),
            factor=factors[0].key,
            pass_score=1,
            fail_score=0,
        )


# --- answers that a prompt shows ------------------------------------------------------------------------------


def _filled(part: AnswerNode | None, example: Example) -> object:
    """Turn an example into an answer: literal values are kept, and descriptions are replaced by legal values."""
    if isinstance(example, dict):
        if part is None or part.kind != "object":
            return "."
        return {
            key: _filled(part.members.get(key), value) for key, value in example.items()
        }
    if part and part.items and example.items is not None:
        are_given = any(map(examples.is_number, example.items))
        texts = example.items if are_given else ("",) * len(part.items)
        pairs = zip(itertools.cycle(part.items), texts, strict=False)
        return [_filled(item, Leaf(text)) for item, text in pairs]
    if part and part.kind == "score" and part.factor:
        return _score_of(part.factor, example)
    return example.text or "."


def _score_of(factor: Factor, leaf: Leaf) -> object:
    text = leaf.text
    if leaf.items is not None or not examples.is_given(leaf):
        return factor.scale.best
    is_literal = examples.is_number(text) or text in ("true", "false", "null")
    return json.loads(text.lstrip("+")) if is_literal and not leaf.quoted else text


def _line_contents(text: str, label: str) -> list[str]:
    """Return what follows the label on every line that begins with it."""
    line = rf"^[ \t>#*-]*{re.escape(label)}[ \t*_]*:[ \t*_]*(\S.*)$"
    return [
        content.strip(" \t*_.`") for content in re.findall(line, text, re.MULTILINE)
    ]


def _shown_lines(text: str, placeholders: Sequence[str]) -> dict[str, str]:
    """Return the labelled lines after the last mention of a format, as a mapping from label to content. They end at the
    first line without a label. If a label occurs twice, the result is empty.
    """
    forms = pattern("format").split(text)[1:]
    lines: dict[str, str] = {}
    for line in forms[-1].splitlines() if forms else ():
        match = pattern("labelled").fullmatch(line)
        is_input = any(name in line for name in placeholders) or "<" in line
        if match and not is_input:
            label = match["label"].strip()
            if label in lines:
                return {}
            lines[label] = match["rest"].strip(" *_.`")
        elif line.strip(" \t`") and (lines or match):
            break
    return lines


# --- numbers in the text ---------------------------------------------------------------------------------------


def ranges_in(text: str) -> Iterator[tuple[int, ...]]:
    """Yield the score ranges that a text states."""
    for match in pattern("stated").finditer(text):
        low, high = (int(number) for number in match.groups() if number is not None)
        around = text[max(0, match.start() - 80) : match.end() + 30]
        following = re.match(r"[ \t)\]]*([A-Za-z%]*)", text[match.end() :])
        next_word = following[1].lower() if following else ""
        values = span_of(low, high)
        may_follow = not next_word or next_word in word_list("prompts", "may_follow")
        if values and may_follow and pattern("about_scores").search(around):
            yield values


def _in_words(values: tuple[int, ...]) -> str:
    return Scale(values).words


def _is_off(text: str, values: tuple[int, ...]) -> bool:
    """Whether a string is an integer that is not one of the values."""
    return bool(re.fullmatch(r"-?\d{1,4}", text)) and int(text) not in values


def word_limits_in(text: str) -> Iterator[tuple[int, int]]:
    """Yield the minimum and maximum number of words that a text states for a reason. Reversed limits ("60-20 words")
    are skipped.
    """
    for name, less in (("word_range", 0), ("word_most", 0), ("word_below", 1)):
        for match in pattern(name).finditer(text):
            numbers = [int(number) for number in match.groups() if number is not None]
            low = numbers[0] if len(numbers) > 1 else 1
            high = numbers[-1] - less
            if low <= high:
                yield low, high


def _sections(text: str) -> tuple[str, ...]:
    """Return the headings that the answer must have. The prompt names them in a list or in backticks; a heading at the
    start of a line belongs to the prompt itself.
    """
    listed = r"^[ \t]*(?:[-*•]|\d+[.)])[ \t]+`?#{1,6}[ \t]+([^`\na-z][^`\n]*)"
    named = re.findall(rf"{listed}|`#{{1,6}}[ \t]+([^`\n]+)`", text, re.M)
    return tuple(dict.fromkeys((a or b).strip() for a, b in named))


# --- inputs in the text ---------------------------------------------------------------------------------------


def placeholders_in(text: str) -> list[str]:
    """Return the placeholders of a text, such as {instruction} or {{instruction}}, including their braces."""
    matches = pattern("braced").finditer(text)
    return list(dict.fromkeys(match.group() for match in matches))


def _headings(text: str) -> Iterator[tuple[str, str]]:
    """Yield the exact text and the role of each heading that is followed by an input."""
    for match in pattern("label").finditer(text):
        if role := _role_of(match["title"]):
            yield match["mark"], role
    for match in pattern("numbered").finditer(text):
        role = _role_of(f"{match['title'] or match['following']} image")
        if role in IMAGE_ROLES:
            yield match["mark"], role


def _role_of(name: str) -> str | None:
    """Return the role that a name describes, or None if any word of the name does not fit. The name of an image must
    contain a word such as "image", or be "ground truth".
    """
    separated = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    parts = {*re.findall(r"[a-z]+", separated.lower())}
    is_image = parts & word_list("prompts", "image_nouns") or parts == {
        "ground",
        "truth",
    }
    for kind in ("images", "texts") if is_image else ("texts",):
        # 'Instructions' may be those of the prompt, and a 'prompt' may be a caption, unless the name also has 'edit'.
        is_vague = parts & {"prompt", "instructions"} and not parts & {
            "edit",
            "editing",
        }
        if kind == "texts" and is_vague:
            return None
        meanings = load_table("prompts")[kind]
        roles = [role for role in meanings if parts & {*meanings[role].split()}]
        beside = word_list("prompts", f"beside_{kind}")
        if len(roles) == 1 and parts <= beside | {*meanings[roles[0]].split()}:
            return str(roles[0])
    return None


def _checked_role(role: str) -> str:
    """Return the role if it is a standard input or could be a manifest column. Raise `RubricError` if it looks
    mistyped.
    """
    mistyped = near_miss(role, _ROLES) and not role.startswith(_ROLES)
    is_name = re.fullmatch(r"[^\W\d][\w.@-]{0,99}", role)
    if role not in _ROLES and (mistyped or not is_name):
        raise RubricError(
            f'"{role}" is not an input{did_you_mean(role, _ROLES)} Expected: {", ".join(_ROLES)}, or a column of the '
            "manifest",
            code="unknown_input",
        )
    return role


def _one_a_role(slots: list[Slot]) -> list[Slot]:
    """Return only the preferred slots of each role. Braces are preferred to brackets, brackets to headings, and the
    first heading to later ones.
    """
    braced = {slot.role for slot in slots if _is_braced(slot)}
    filled = {slot.role for slot in slots if not slot.keep}
    chosen: list[Slot] = []
    for slot in slots:
        better = filled | {other.role for other in chosen} if slot.keep else braced
        if _is_braced(slot) or slot.role not in better:
            chosen.append(slot)
    return chosen


def _marks_for(roles: tuple[str, ...], slots: list[Slot]) -> str:
    return ", ".join(slot.mark for slot in slots if slot.role in roles)


def _is_braced(slot: Slot) -> bool:
    return slot.mark.startswith(("{", "${"))


def _format_parts(text: str) -> list[tuple[str, str | None]] | None:
    """Return the literal texts and fields of a prompt that was written for str.format, or None if its braces are
    literal.
    """
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
    # If all names are in doubled braces, those are the placeholders, as in Jinja and Mustache.
    has_fields = any(name is not None for _, name in parts)
    return parts if has_fields or not placeholders_in(text) else None


def _joined(parts: list[tuple[str, str | None]], form: str) -> str:
    """Join the parts of a prompt, with each field formatted by `form`."""
    return "".join(
        literal if name is None else literal + form.format(name)
        for literal, name in parts
    )
