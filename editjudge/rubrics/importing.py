"""A published prompt in, a rubric that keeps its words out.

What can be read off the text is inferred and said; what cannot is asked for by name. Nothing is guessed silently.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from editjudge.edit import IMAGE_ROLES, TEXT_ROLES
from editjudge.errors import RubricError, near_miss
from editjudge.rubrics import examples, scanning
from editjudge.rubrics.examples import Choice, Example, Leaf
from editjudge.rubrics.model import Answer, Consistency, Factor, Rubric, Scale, Slot, Template


@dataclass(frozen=True)
class Hints:
    """What the importing person says because the text does not."""

    factors: tuple[str, ...] = ()
    scale: tuple[int, ...] = ()
    images: tuple[str, ...] = ()
    slots: Mapping[str, str] = field(default_factory=dict)
    """Placeholder to role, such as {"user_prompt": "instruction"}; the role "-" leaves it as it stands."""
    words: tuple[int, int] | None = None
    example: int | None = None
    """Which of several JSON examples shows the answer, from 1."""


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
        fields = _format_fields(text)
        self.format_fields = fields or []
        self.braces: Any = "format" if fields is not None else "literal"
        self.plain = _unescaped(text) if fields is not None else text

    def run(self) -> Imported:
        if _PAIRWISE.search(self.plain):
            self._ask(
                "kind of prompt",
                "it asks which of two edits is better; a rubric scores one edit",
                "not importable",
            )
            return Imported(None, (), tuple(self.asks))
        slots = self._slots()
        images = self._images(slots)
        texts = tuple(role for role in TEXT_ROLES if any(slot.role == role for slot in slots))
        self._note("texts", ", ".join(texts) or "none", "placeholders")
        answer, factors = self._answer()
        if self.asks:
            return Imported(None, tuple(self.inferred), tuple(self.asks))
        template = Template(
            self.text,
            slots=tuple(slots),
            braces=self.braces,
            adds_answer_format=not self._example_found,
        )
        rubric = Rubric(
            self.name,
            images=images,
            texts=texts,  # type: ignore[arg-type]  # TEXT_ROLES are the literals of the field
            factors=factors,
            answer=answer,
            description="imported prompt",
            consistency=self._consistency(answer, factors),
            template=template,
        )
        return Imported(rubric, tuple(self.inferred), ())

    def _ask(self, about: str, why: str, option: str) -> None:
        self.asks.append(Ask(about, why, option))

    def _note(self, what: str, value: str, source: str) -> None:
        self.inferred.append(f"{what}: {value} (from {source})")

    # --- inputs

    def _slots(self) -> list[Slot]:
        slots: dict[str, Slot] = {}
        for mark, name in self._placeholders():
            role = self.hints.slots.get(name) or _field_role(name)
            if role is None:
                known = ", ".join((*IMAGE_ROLES[:3], *TEXT_ROLES))
                self._ask(
                    f"placeholder {mark}",
                    f"which input fills it: {known}, or - for none",
                    f"--slot {name}=ROLE",
                )
            elif role != "-":
                slots[mark] = Slot(mark, _known_role(role))
        for mark, role, keep in _marks(self.plain):
            slots.setdefault(mark, Slot(mark, role, keep))
        ordered = sorted(slots.values(), key=lambda slot: self.text.find(slot.mark))
        return _one_heading_a_role(ordered)

    def _placeholders(self) -> Iterator[tuple[str, str]]:
        if self.braces == "format":
            for name in dict.fromkeys(self.format_fields):
                yield f"{{{name}}}", name
            return
        yield from ((mark, mark.strip("{} ")) for mark in placeholders_in(self.text))

    def _images(self, slots: list[Slot]) -> tuple[Any, ...]:
        if self.hints.images:
            return tuple(_known_role(role) for role in self.hints.images)
        found = tuple(dict.fromkeys(slot.role for slot in slots if slot.role in IMAGE_ROLES))
        if not found:
            self._ask(
                "images",
                "no placeholder says which pictures are shown, in which order",
                "--image ROLE, repeated",
            )
        elif "edited" not in found:
            self._ask(
                "images",
                f"only {', '.join(found)} found; the edited picture is missing",
                "--image ROLE, repeated",
            )
        self._note("images", ", ".join(found), "placeholders")
        return found

    # --- answer

    def _answer(self) -> tuple[Answer, tuple[Factor, ...]]:
        example = self._example()
        self._example_found = example is not None
        words = self._words(example)
        if example is None:
            return self._answer_without_example(words)
        shape = _Shape.of(example)
        if shape is None:
            self._ask("factors", "the JSON example has no value that reads as a score", "--factor KEY and --scale")
            return Answer(), ()
        factors = self._factors(shape)
        sections = _sections(self.plain)
        if sections:
            self._note("sections", ", ".join(sections), "headings named in the output requirements")
        answer = Answer(
            id_key=shape.id_key,
            envelope=shape.envelope,
            form=shape.form,
            score_key=shape.score_key,
            reason_key=shape.reason_key,
            texts=shape.texts,
            words=words,
            reason=shape.reason,
            sections=sections,
        )
        self._note("envelope", shape.envelope or "(top level)", "JSON example")
        return answer, factors

    def _answer_without_example(self, words: tuple[int, int] | None) -> tuple[Answer, tuple[Factor, ...]]:
        if not self.hints.factors:
            self._ask("factors", "the prompt shows no JSON answer; name what is scored", "--factor KEY, repeated")
        values = self._scale_in_text()
        if not values:
            return Answer(words=words), ()
        self._note("answer", "a JSON form of ours is added below the text", "no JSON example in it")
        scale = Scale(values)
        factors = tuple(Factor(key, scale, key) for key in self.hints.factors)
        return Answer(id_key="image_id", envelope="factor_results", words=words), factors

    def _example(self) -> dict[str, Example] | None:
        found = list(_examples(self.plain))
        if not found:
            return None
        if self.hints.example:
            if self.hints.example > len(found):
                raise RubricError(f"--example {self.hints.example}: the prompt has {len(found)} JSON examples")
            return found[self.hints.example - 1]
        if len({_outline(example) for example in found}) > 1:
            keys = "; ".join(f"{number}: {', '.join(example)}" for number, example in enumerate(found, 1))
            self._ask("answer", f"the JSON examples differ ({keys})", "--example NUMBER")
        return found[0]

    def _factors(self, shape: _Shape) -> tuple[Factor, ...]:
        keys = self.hints.factors or shape.factors
        if shape.form == "list" and not self.hints.factors:
            self._ask("factors", f'"{shape.envelope}" is a list of scores without names', "--factor KEY, in order")
            return ()
        if self.hints.factors and shape.factors and set(keys) != set(shape.factors):
            raise RubricError(f"--factor {', '.join(keys)}: the JSON example has {', '.join(shape.factors)}")
        self._note("factors", ", ".join(keys), "JSON example" if shape.factors else "--factor")
        from_text: tuple[int, ...] | None = None
        factors = []
        for key in keys:
            values = self.hints.scale or values_of(shape.described.get(key, ""))
            if values:
                self._cross_check(key, values)
            else:
                from_text = self._scale_in_text() if from_text is None else from_text
                values = from_text
            if values:
                factors.append(Factor(key, Scale(values), key))
        scales = dict.fromkeys(factor.scale.words for factor in factors)
        self._note("scale", "; ".join(scales), "JSON example or text")
        return tuple(factors)

    def _cross_check(self, key: str, values: tuple[int, ...]) -> None:
        """A range in the text that contradicts the example is asked about, once."""
        stated = [found for found in ranges_in(self.plain) if set(found) != set(values)]
        wider = [found for found in stated if not set(found) <= set(values)]
        if wider and not self.hints.scale and not any(ask.about == "scale" for ask in self.asks):
            self._ask(
                "scale",
                f'the example gives "{key}" {_said(values)}, the text also says {_said(wider[0])}',
                "--scale",
            )

    def _scale_in_text(self) -> tuple[int, ...]:
        if self.hints.scale:
            return self.hints.scale
        ranges = set(ranges_in(self.plain))
        if enumerated := _enumerated(self.plain):
            ranges.add(enumerated)
        whole = {found for found in ranges if not any(set(found) < set(other) for other in ranges)}
        if len(whole) == 1 and not _DECIMALS.search(self.plain):
            return whole.pop()
        if _DECIMALS.search(self.plain):
            why = "the prompt allows decimals; a rubric's scale is a list of integers"
        else:
            why = "the text names " + (" and ".join(map(_said, sorted(whole))) or "no range of scores")
        if not any(ask.about == "scale" for ask in self.asks):
            self._ask("scale", why, "--scale 1-5 or --scale 5,3,1")
        return ()

    def _words(self, example: dict[str, Example] | None) -> tuple[int, int] | None:
        if self.hints.words:
            return self.hints.words
        if example is not None and (shape := _Shape.of(example)) and not (shape.reason_key or shape.texts):
            return None
        found = set(word_limits_in(self.plain))
        if len(found) > 1:
            limits = ", ".join(f"{low}-{high}" for low, high in sorted(found))
            self._ask("words", f"the text names several limits: {limits}", "--words LEAST-MOST")
        if len(found) != 1:
            return None
        limit = found.pop()
        self._note("words", f"{limit[0]} to {limit[1]}", "text")
        return limit

    def _consistency(self, answer: Answer, factors: tuple[Factor, ...]) -> Consistency | None:
        """A prompt that has differences listed as allowed or not, and one binary score, can be checked."""
        if not answer.sections or len(factors) != 1 or set(factors[0].scale.values) != {0, 1}:
            return None
        if not re.search(r"\bnot allowed\b", self.plain, re.IGNORECASE):
            return None
        self._note("consistency", "marked differences must agree with the score", "allowed / not allowed lists")
        return Consistency(answer.sections[0], ("allowed", "ignored"), ("not allowed", "unsure"), factors[0].key, 1, 0)


# --- the shape of the JSON example ----------------------------------------------------------------------------


@dataclass
class _Shape:
    id_key: str | None = None
    envelope: str = ""
    form: Any = "entries"
    score_key: str = ""
    reason_key: str = ""
    reason: str = ""
    texts: tuple[str, ...] = ()
    factors: tuple[str, ...] = ()
    described: dict[str, str] = field(default_factory=dict)
    """What the example says in place of each factor's score."""

    @classmethod
    def of(cls, example: dict[str, Example]) -> _Shape | None:
        shape = cls()
        inner: dict[str, Example] = {}
        for key, value in example.items():
            if isinstance(value, dict) and _holds_factors(value):
                shape.envelope, inner = key, value
            elif isinstance(value, dict) or _is_score(key, value):
                inner[key] = value
            elif isinstance(value, Choice):
                shape.envelope, shape.form = key, "list"
            elif _is_id(key, value):
                shape.id_key = key
            else:
                shape.texts += (key,)
        if shape.form == "list":
            return shape
        return shape if inner and shape._take(inner) else None

    def _take(self, inner: dict[str, Example]) -> bool:
        self.factors = tuple(inner)
        for key, value in inner.items():
            if not isinstance(value, dict):
                self.form = "scores"
                self.described[key] = _text(value)
                continue
            scores = [k for k, v in value.items() if _is_score(k, v)]
            reasons = [k for k in value if k not in scores]
            if len(scores) != 1 or len(reasons) > 1:
                return False
            self.score_key, self.reason_key = scores[0], (reasons or [""])[0]
            self.described[key] = _text(value[scores[0]])
            if reasons and not self.reason:
                self.reason = _reason_words(_text(value[reasons[0]]))
        return True


def _holds_factors(value: dict[str, Example]) -> bool:
    """An object of objects that each hold a score, or an object of several bare scores."""
    entries = [v for v in value.values() if isinstance(v, dict)]
    if entries:
        return len(entries) == len(value) and all(any(_is_score(k, v) for k, v in e.items()) for e in entries)
    return len(value) > 1 and all(_is_score(k, v) for k, v in value.items())


_NUMBER = re.compile(r"-?\d+")


def _is_score(key: str, value: Example) -> bool:
    if isinstance(value, dict):
        return False
    if isinstance(value, Choice):
        return bool(re.search(r"\d\D+\bor\b|\d\s*[|/]", value.text))
    if value.quoted:
        return bool(re.search(r"score|rating|grade", key, re.IGNORECASE) and values_of(value.text))
    return bool(_NUMBER.search(value.text) or re.search(r"int|score|number", value.text, re.IGNORECASE))


def _is_id(key: str, value: Example) -> bool:
    return isinstance(value, Leaf) and bool(re.fullmatch(r"(?:image|item|sample|edit)?_?id", key, re.IGNORECASE))


def _text(value: Example) -> str:
    return "" if isinstance(value, dict) else value.text


def _reason_words(described: str) -> str:
    match = re.search(r"\b(?:one|a single)[- ]sentence\b", described, re.IGNORECASE)
    return "one sentence" if match else ""


def _examples(text: str) -> Iterator[dict[str, Example]]:
    for start, end in scanning.blocks(text):
        try:
            yield examples.read(text[start:end])
        except examples.NotAnExample:
            continue


def _outline(example: Example) -> str:
    if isinstance(example, dict):
        return "{" + ",".join(f"{key}{_outline(value)}" for key, value in sorted(example.items())) + "}"
    return ""


# --- what the words say ---------------------------------------------------------------------------------------

_DASH = r"[-–—]"
_SPAN = re.compile(rf"(\d+)\s*(?:{_DASH}|_to_|to|and|\.\.+)\s*(\d+)")
_LISTED = re.compile(r"\d+(?:\s*(?:,\s*or|,|/|\||\bor\b)\s*\d+)+")
_STATED = re.compile(
    rf"(?:between|from|scale of|scale from|range of|range from|in)\s+(\d+)\s*(?:{_DASH}|to|and)\s*(\d+)",
    re.IGNORECASE,
)
_ENUMERATED = re.compile(r"\bscore\s*(?:=|of)?\s*(\d+)\b(?!\s*(?:-|–|to|points?|words?))", re.IGNORECASE)
_DECIMALS = re.compile(
    r"\b(?:float(?:ing)?|decimals? (?:are|is) allowed|(?:one|two) decimal|increments? of 0\.)", re.IGNORECASE
)
_PAIRWISE = re.compile(r"\[\[\s*[AB]\s*[><]\s*[AB]\s*\]\]|\[\[(?:A|B|C|tie)\]\]", re.IGNORECASE)


def values_of(described: str) -> tuple[int, ...]:
    """The legal scores that a placeholder names: '1-7', 'integer_1_to_7', '5, 3, or 1'."""
    if listed := _LISTED.search(described):
        return tuple(dict.fromkeys(int(number) for number in re.findall(r"\d+", listed.group())))
    if span := _SPAN.search(described.replace("_", " ").replace("integer between", "")):
        return _span(int(span[1]), int(span[2]))
    return ()


def _span(low: int, high: int) -> tuple[int, ...]:
    # 100: a percentage is the widest scale that anybody asks a judge for.
    return tuple(range(low, high + 1)) if low < high <= low + 100 else ()


def ranges_in(text: str) -> Iterator[tuple[int, ...]]:
    for match in _STATED.finditer(text):
        after = text[match.end() : match.end() + 8].strip().lower()
        values = _span(int(match[1]), int(match[2]))
        if values and not after.startswith(("word", "sentence", "%")):
            yield values


def _enumerated(text: str) -> tuple[int, ...]:
    """'Score = 1 ... Score = 0' spells a scale out value by value."""
    values = sorted({int(number) for number in _ENUMERATED.findall(text)})
    return tuple(values) if len(values) > 1 else ()


def _said(values: tuple[int, ...]) -> str:
    return Scale(values).words


def word_limits_in(text: str) -> Iterator[tuple[int, int]]:
    for match in re.finditer(rf"(\d+)\s*(?:{_DASH}|to|and)\s*(\d+)[ -]words?\b", text, re.IGNORECASE):
        yield int(match[1]), int(match[2])
    upper = r"(?:no more than|at most|up to|within|under|maximum of|max\.?)\s+(\d+)\s+words?\b"
    for match in re.finditer(upper, text, re.IGNORECASE):
        yield 1, int(match[1])


def _sections(text: str) -> tuple[str, ...]:
    """Headings that the answer must have are named inside a list or in code marks; a prompt's own start a line."""
    named = re.findall(
        r"^[ \t]*(?:[-*•]|\d+[.)])[ \t]+`?#{1,6}[ \t]+([^`\n]+?)`?[ \t]*$|`#{1,6}[ \t]+([^`\n]+)`", text, re.M
    )
    return tuple(dict.fromkeys((a or b).strip() for a, b in named))


# --- where inputs go ------------------------------------------------------------------------------------------

_BRACED = re.compile(r"\{\{\{?\s*[A-Za-z_]\w*\s*\}?\}\}|(?<!\{)\{[A-Za-z_]\w*\}(?!\})")
_BRACKETED = re.compile(r"\[([A-Za-z][A-Za-z _-]{2,40})\]|<([A-Za-z][A-Za-z _-]{2,40})>")
_LABEL = re.compile(
    r"^[ \t]*(?P<mark>(?:\*\*|__)?(?P<title>[A-Za-z][A-Za-z -]{2,40})(?:\*\*|__)?[ \t]*:(?:\*\*|__)?)[ \t]*$",
    re.MULTILINE,
)
_NUMBERED = re.compile(
    r"^[ \t]*(?P<mark>IMAGE\s+\d+\b(?:\s*\((?P<title>[^)\n]*)\))?[ \t]*:?)", re.MULTILINE | re.IGNORECASE
)


def placeholders_in(text: str) -> list[str]:
    """Braced names such as {instruction} or {{instruction}}, as they stand."""
    return list(dict.fromkeys(match.group() for match in _BRACED.finditer(text)))


def _marks(text: str) -> Iterator[tuple[str, str, bool]]:
    """Places that name an input in words: (exact mark, role, whether the mark stays)."""
    for match in _BRACKETED.finditer(text):
        if role := _phrase_role(match[1] or match[2]):
            yield match.group(), role, False
    for match in _LABEL.finditer(text):
        if role := _phrase_role(match["title"]):
            yield match["mark"], role, True
    for match in _NUMBERED.finditer(text):
        following = text[match.end() : match.end() + 120].strip().split("\n", 1)[0]
        role = _phrase_role(f"{match['title']} image") if match["title"] else _phrase_role(f"{following} image")
        if role in IMAGE_ROLES:
            yield match["mark"], role, True


_IMAGE_WORDS = {
    "ground_truth": r"ground[ _-]?truth|\bgt\b",
    "edited": r"edited|generated|output|result|modified|\bafter\b",
    "input": r"input|original|source|unedited|\bbefore\b",
}
_TEXT_WORDS = {
    "referring_expression": r"\bref[ _-]?exp|referring",
    "instruction": r"instruct|\b(?:edit(?:ing)?|text|user)?[ _-]?prompt\b|\bedit[ _-]?text\b",
}


def _phrase_role(phrase: str) -> str | None:
    """The input that a phrase of the prompt names; a picture must be called one."""
    words = phrase.lower().replace("_", " ")
    if re.search(r"image|picture|photo", words):
        return _match(words, _IMAGE_WORDS)
    return _match(words, _TEXT_WORDS) if len(words.split()) <= 3 else None


def _field_role(name: str) -> str | None:
    words = name.lower().replace("_", " ")
    return _match(words, _TEXT_WORDS) or _match(words, _IMAGE_WORDS)


def _match(words: str, table: Mapping[str, str]) -> str | None:
    found = [role for role, pattern in table.items() if re.search(pattern, words)]
    return found[0] if len(found) == 1 else None


def _known_role(role: str) -> str:
    known = (*IMAGE_ROLES[:3], *TEXT_ROLES)
    if role not in known:
        raise RubricError(f'"{role}" is no input{near_miss(role, known)} Expected: {", ".join(known)}')
    return role


def _one_heading_a_role(slots: list[Slot]) -> list[Slot]:
    """A placeholder beats a heading that names the same input, and the first heading beats later ones."""
    filled = {slot.role for slot in slots if not slot.keep}
    kept: list[Slot] = []
    for slot in slots:
        if not slot.keep or (slot.role not in filled and all(slot.role != other.role for other in kept)):
            kept.append(slot)
    return kept


def _format_fields(text: str) -> list[str] | None:
    """The fields of a text written for str.format; None where its braces are meant as they stand."""
    if "{{" not in text:
        return None
    try:
        fields = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except ValueError:
        return None
    return fields if all(name.isidentifier() for name in fields) else None


def _unescaped(text: str) -> str:
    parsed = string.Formatter().parse(text)
    return "".join(literal + (f"{{{name}}}" if name is not None else "") for literal, name, _, _ in parsed)
