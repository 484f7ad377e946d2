"""Reply in, `Verdict` or `Failure` out.

A verdict has every score, exactly as the reply said it, or there is no verdict: nothing is repaired, rounded,
guessed or taken from one of two answers. Each remark carries a code that stays the same between releases.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

from editjudge.errors import near_miss
from editjudge.rubrics.lines import CUT, LabelledLines, TooManyLines, read_lines, value_of, without_thoughts
from editjudge.rubrics.marks import read_marks
from editjudge.rubrics.model import Consistency, Factor, Rubric
from editjudge.rubrics.scanning import MAX_DEPTH, Candidate, Scan, TooComplex, scan, without_fences
from editjudge.rubrics.schema import AnswerLeaf, answer_tree
from editjudge.rubrics.strict_json import NotStrict, OtherNumber, decode

Finish = Literal["stop", "length", "refusal"]
"""How the provider says the reply ended."""

MAX_REASONS = 40
MAX_SECTIONS = 1_000
"""Headings of the answer that are looked at; three are asked for."""


@dataclass(frozen=True)
class Remark:
    """Something to say about a reply."""

    code: str
    message: str
    factor: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {"code": self.code, "factor": self.factor, "message": self.message}


@dataclass(frozen=True)
class Verdict:
    """An accepted reply."""

    status: ClassVar[Literal["ok"]] = "ok"

    scores: Mapping[str, float]
    """Integers stay integers; empty where the rubric asks for choices."""
    justifications: Mapping[str, str]
    violations: tuple[Remark, ...] = ()
    """Where the reply broke a rule that does not touch its scores."""
    notes: tuple[Remark, ...] = ()
    choices: Mapping[str, str] = field(default_factory=dict)
    """In the place of scores, where the rubric asks for choices."""
    abstained: Mapping[str, str] = field(default_factory=dict)
    """Factors of which the reply says that they do not apply, with its word for it."""

    def as_json(self) -> dict[str, Any]:
        """As `editjudge parse --json` answers."""
        also: dict[str, Any] = {"abstained": dict(self.abstained)} if self.abstained else {}
        if self.abstained and not self.scores and not self.choices:
            return _as_json(self, None, dict(self.justifications), ()) | also | {"status": "abstained"}
        if self.choices:
            return _as_json(self, None, dict(self.justifications), ()) | {"choices": dict(self.choices)} | also
        return _as_json(self, dict(self.scores), dict(self.justifications), ()) | also


@dataclass(frozen=True)
class Failure:
    """A reply that is no answer."""

    status: Literal["refused", "invalid", "truncated"]
    """`refused`: the model declined. `invalid`: it broke the contract. `truncated`: it was cut off."""
    reasons: tuple[Remark, ...]
    violations: tuple[Remark, ...] = ()
    notes: tuple[Remark, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """As `editjudge parse --json` answers."""
        return _as_json(self, None, None, self.reasons)


def _as_json(
    said: Verdict | Failure, scores: dict[str, float] | None, why: dict[str, str] | None, reasons: Sequence[Remark]
) -> dict[str, Any]:
    return {
        "status": said.status,
        "scores": scores,
        "justifications": why,
        "violations": list(dict.fromkeys(remark.code for remark in said.violations)),
        "reasons": [remark.as_json() for remark in reasons],
        "details": [remark.as_json() for remark in said.violations],
        "notes": [remark.as_json() for remark in said.notes],
    }


def check(
    rubric: Rubric,
    reply: str,
    *,
    identifier: str | None = None,
    strict: bool = False,
    finish: Finish = "stop",
) -> Verdict | Failure:
    """Hold a reply against the rubric's contract.

    `identifier` is the one the question stated; without it any is accepted. `strict` refuses reasons outside
    their word limits instead of noting them. Raises nothing, whatever the reply: what is no answer is a `Failure`.
    """
    if ended := _ended_early(reply, finish):
        return ended
    if not rubric.answer.is_json:
        return _check_text(rubric, reply.removeprefix("\ufeff"), strict=strict)
    try:
        found = scan(reply.removeprefix("\ufeff"), envelope_keys(rubric))
    except TooComplex:
        return _invalid("too_complex", "the reply has more braces than any answer")
    if found.ends_in_thought or not found.candidates:
        return _no_candidate(found)
    chosen = _choose(found.candidates, json_last=bool(rubric.answer.sections))
    if isinstance(chosen, Failure):
        return chosen
    answer, violations, notes = chosen
    reading = _ReplyReading(rubric)
    reading.take(answer, identifier)
    sections = list(itertools.islice(_sections(rubric, found), MAX_SECTIONS + 1))
    if len(sections) > MAX_SECTIONS:
        return _invalid("too_complex", "the reply has more headings than any answer")
    last = rubric.answer.sections[-1:]
    if [section.before_json for section in sections if section.title in last][:1] == [False]:
        # What stands before that heading was a draft, whatever it says.
        return _invalid("no_answer", f'no JSON of the answer stands under "## {last[0]}"')
    if not reading.reasons and rubric.consistency and rubric.consistency.factor in reading.scores:
        contradictions, unread = _consistency(rubric.consistency, sections, reading.scores)
        reading.reasons.extend(contradictions)
        violations += unread
    if reading.reasons:
        return Failure("invalid", tuple(reading.reasons[:MAX_REASONS]))
    violations += _around(rubric, found, sections)
    return reading.verdict(violations, notes, strict=strict)


def _check_text(rubric: Rubric, reply: str, *, strict: bool) -> Verdict | Failure:
    """An answer that is no JSON: labelled lines, or the score as the whole reply."""
    text, ends_in_thought = without_thoughts(reply)
    if ends_in_thought:
        return Failure("truncated", (Remark("truncated", "the reply ends inside its own reasoning"),))
    reading = _ReplyReading(rubric)
    if rubric.answer.form == "token":
        (factor,) = rubric.factors
        value = value_of(text.strip(" \t\r\n" + CUT))
        reading.take_value(factor, value)
        if reading.reasons and isinstance(value, str) and not isinstance(value, OtherNumber):
            return _no_answer(text, f"the reply is more or other than {factor.scale.words}")
        return reading.verdict((), (), strict=strict)
    if rubric.answer.form == "marked":
        return _check_marked(reading, text, strict=strict)
    labels = {rubric.label(factor): factor for factor in rubric.factors}
    headings = [factor.heading for factor in rubric.factors if factor.heading]
    try:
        raw = [factor.label or factor.key for factor in rubric.factors]
        lines = read_lines(text, raw, rubric.answer.texts, headings)
    except TooManyLines:
        return _invalid("too_complex", "the reply has more lines than any answer")
    if not lines.values:
        return _no_answer(text, f'no line begins with "{next(iter(labels))}:" or another label of the answer')
    violations = reading.take_lines(lines, labels)
    if lines.prose and not headings:  # what stands below headings is prose that was asked for
        violations = (*violations, Remark("prose", "text stands around the lines that were asked for"))
    return reading.verdict(violations, (), strict=strict)


def _check_marked(reading: _ReplyReading, text: str, *, strict: bool) -> Verdict | Failure:
    """One of the choices, wherever it stands, and no other one; the words around it are its reason."""
    (factor,) = reading.rubric.factors
    marks = [choice for choice in factor.scale.choices if choice in text]
    if not marks:
        return _no_answer(text, f"the reply holds none of {factor.scale.words}")
    if len(marks) > 1:
        return _invalid("ambiguous", f"the reply holds {' and '.join(marks)}, and one was asked for")
    reading.take_value(factor, marks[0])
    reading.justifications[factor.key] = text.replace(CUT, "").replace(marks[0], "").strip()
    return reading.verdict((), (), strict=strict)


def _no_answer(text: str, why: str) -> Failure:
    if not text.strip(" \t\r\n" + CUT):
        return _invalid("empty", "the reply holds nothing but reasoning that was set aside")
    if _DECLINES.search(text[:_OPENING]):
        return Failure("refused", (Remark("refusal", "the model declined to answer"),))
    return _invalid("no_answer", why)


def envelope_keys(rubric: Rubric) -> list[str]:
    """Every key that an answer has at any level; an object with one of them claims to be the answer."""
    answer = rubric.answer
    if answer.form == "nested":
        return list(dict.fromkeys(_tree_keys(answer_tree(rubric))))
    keys = [*top_keys(rubric), *(factor.key for factor in rubric.factors)]
    if answer.form == "entries":
        keys += [answer.score_key, *([answer.reason_key] if answer.reason_key else [])]
    return list(dict.fromkeys(keys))


def top_keys(rubric: Rubric) -> list[str]:
    """The keys of the answer's outermost object."""
    answer = rubric.answer
    if answer.form == "nested":
        return list(answer_tree(rubric))
    inner = [answer.envelope] if answer.envelope else [factor.key for factor in rubric.factors]
    return [*([answer.id_key] if answer.id_key else []), *answer.texts, *inner]


def _tree_keys(tree: Mapping[str, Any]) -> Iterator[str]:
    for key, part in tree.items():
        yield key
        if isinstance(part, dict):
            yield from _tree_keys(part)


def _invalid(code: str, message: str) -> Failure:
    return Failure("invalid", (Remark(code, message),))


# --- what ends before the answer is looked at -----------------------------------------------------------------


def _ended_early(reply: str, finish: Finish) -> Failure | None:
    if finish == "refusal":
        return Failure("refused", (Remark("refusal", "the model declined to answer"),))
    if finish == "length":
        return Failure("truncated", (Remark("truncated", "the reply was cut off at the token limit"),))
    if not reply.strip("\ufeff \t\r\n\v\f"):
        return _invalid("empty", "the reply is empty")
    try:
        reply.encode()
    except UnicodeEncodeError:
        return _invalid("not_text", "the reply holds half of a surrogate pair, which is not text")
    return None


# Only asked of replies that hold no answer at all, so a wide net costs nothing but the word for the failure.
_DECLINES = re.compile(
    r"\b(?:i(?:['’]m| am) (?:sorry|unable|not able|afraid)"
    r"|i (?:can(?:no|['’])?t|can not|won['’]t|will not|must decline)\b"
    r"|(?:as|being) an ai\b[^.\n]{0,40}\bi (?:do not|don['’]t|am not|lack)\b"
    r"|not able to (?:assist|help|comply)|against (?:my|the|our) (?:content |usage )?polic)",
    re.IGNORECASE,
)
_OPENING = 400
"""A refusal says so at once; later in a text the same words describe the pictures."""


def _no_candidate(found: Scan) -> Failure:
    text = found.before.strip()
    if found.ends_in_thought:
        return Failure("truncated", (Remark("truncated", "the reply ends inside its own reasoning"),))
    if not text:
        return _invalid("empty", "the reply holds nothing but reasoning that was set aside")
    if _DECLINES.search(text[:_OPENING]):
        return Failure("refused", (Remark("refusal", "the model declined to answer"),))
    return _invalid("no_answer", "the reply holds no JSON object with a key of the answer")


# --- which object is the answer -------------------------------------------------------------------------------

_Chosen = tuple[dict[str, Any], tuple[Remark, ...], tuple[Remark, ...]]


def _choose(candidates: tuple[Candidate, ...], json_last: bool) -> _Chosen | Failure:
    """The one object that is the answer; two different ones are nobody's answer, unless the last is asked for."""
    values = []
    for candidate in candidates[-1:] if json_last else candidates:
        value = _value(candidate)
        if isinstance(value, Failure):
            return value
        values.append(value)
    answer = values[-1]
    if any(_canonical(value) != _canonical(answer) for value in values):
        return _invalid("ambiguous", f"the reply holds {len(values)} answers that differ; exactly one was asked for")
    if len(candidates) == 1:
        return answer, (), ()
    if json_last and any(_canonical(_value(other)) != _canonical(answer) for other in candidates[:-1]):
        return answer, (), (Remark("earlier_answer", "an earlier object was passed over: the last one counts"),)
    return answer, (Remark("repeated_answer", f"the same answer stands {len(candidates)} times"),), ()


def _canonical(value: dict[str, Any] | Failure) -> str | None:
    """Equal for equal answers whatever the order of keys; unlike ==, it tells true from 1."""
    return None if isinstance(value, Failure) else json.dumps(value, sort_keys=True)


def _value(candidate: Candidate) -> dict[str, Any] | Failure:
    if candidate.depth > MAX_DEPTH:
        return _invalid("not_json", f"the JSON nests more than {MAX_DEPTH} deep")
    try:
        value = decode(candidate.text)
    except NotStrict as error:
        if error.at_end and not candidate.closed:
            return Failure("truncated", (Remark("truncated", "the reply breaks off inside its JSON"),))
        return _invalid(error.code, f"the answer is not strict JSON: {error}")
    assert isinstance(value, dict)  # noqa: S101  (a text that starts with a brace decodes to an object or fails)
    return value


# --- what the object says -------------------------------------------------------------------------------------


class _ReplyReading:
    """Collects scores and reasons from an answer, and everything that is wrong with it."""

    def __init__(self, rubric: Rubric) -> None:
        self.rubric = rubric
        self.scores: dict[str, float] = {}
        self.choices: dict[str, str] = {}
        self.justifications: dict[str, str] = {}
        self.abstained: dict[str, str] = {}
        self.reasons: list[Remark] = []

    def verdict(self, violations: tuple[Remark, ...], notes: tuple[Remark, ...], *, strict: bool) -> Verdict | Failure:
        """Of what was taken: every score, or none."""
        if self.reasons:
            return Failure("invalid", tuple(self.reasons[:MAX_REASONS]))
        lengths, unchecked = _lengths(self.rubric, self.justifications)
        if strict and lengths:
            return Failure("invalid", lengths, violations=violations, notes=notes)
        return Verdict(
            self.scores, self.justifications, violations + lengths, notes + unchecked, self.choices, self.abstained
        )

    def take_value(self, factor: Factor, value: object) -> None:
        """A score that stands by itself."""
        self._score(factor, value)

    def take_lines(self, lines: LabelledLines, labels: Mapping[str, Factor]) -> tuple[Remark, ...]:
        """Scores and reasons of labelled lines; returns what they violate."""
        repeated = 0
        for name in (*labels, *self.rubric.answer.texts):
            values = lines.values.get(name) or lines.texts.get(name)
            factor = labels[name].key if name in labels else None
            if not values:
                kind = "factor" if factor else "key"
                self._say(f"missing_{kind}", f'no line begins with "{name}:"', factor)
            elif any(value != values[0] for value in values):
                self._say("ambiguous", f'{len(values)} lines begin with "{name}:", and they differ', factor)
            elif factor:
                self._score(labels[name], value_of(values[0]))
            repeated = max(repeated, len(values or ()))
        shared = next((lines.texts[name][0].strip() for name in self.rubric.answer.texts if name in lines.texts), None)
        for factor_ in self.rubric.factors:
            self._reason(factor_, shared)
        return (Remark("repeated_answer", f"the same line stands {repeated} times"),) if repeated > 1 else ()

    def _nested(self, tree: Mapping[str, Any], value: Mapping[str, Any], where: str = "") -> None:
        """As `take`, for scores and reasons at the ends of paths."""
        factors = tuple(key for key, part in tree.items() if isinstance(part, AnswerLeaf) and part.kind == "score")
        self._keys(value, list(tree), factors)
        for key, part in tree.items():
            if key not in value:
                continue
            place = f"{where}{key}"
            if isinstance(part, AnswerLeaf):
                self._leaf(part, value[key], place)
            elif isinstance(value[key], dict):
                self._nested(part, value[key], f"{place}.")
            else:
                self._wrong(place, "an object", value[key])

    def _leaf(self, leaf: AnswerLeaf, value: object, place: str) -> None:
        if leaf.kind == "score" and leaf.factor:
            self._score(leaf.factor, value)
        elif leaf.kind == "reason" and leaf.factor:
            text = self._text(place, value, factor=leaf.factor.key)
            self._reason(leaf.factor, text)
        elif leaf.kind == "other":
            if not _is_kind(value, leaf.json_type):
                self._wrong(place, f"a value of the kind {leaf.json_type}", value)
        elif leaf.kind == "text" and (text := self._text(place, value)) is not None:
            for factor in self.rubric.factors:
                if not factor.reason_path and factor.key not in self.justifications:
                    self._reason(factor, text)

    def take(self, value: dict[str, Any], identifier: str | None) -> None:
        answer = self.rubric.answer
        if answer.form == "nested":
            self._nested(answer_tree(self.rubric), value)
            if answer.id_key in value:
                self._identifier(value[answer.id_key], identifier)
            return
        factors = {factor.key: factor for factor in self.rubric.factors}
        self._keys(value, top_keys(self.rubric), () if answer.envelope else tuple(factors))
        if answer.id_key in value:
            self._identifier(value[answer.id_key], identifier)
        texts = [self._text(key, value[key]) for key in answer.texts if key in value]
        shared = next((text for text in texts if text is not None), None)
        inner: Any = value
        if answer.envelope:
            if answer.envelope not in value:
                return
            inner = value[answer.envelope]
        if answer.form == "list":
            if not isinstance(inner, list) or len(inner) != len(factors):
                self._wrong(answer.envelope, f"a list of {len(factors)} scores", inner)
                return
            inner = dict(zip(factors, inner, strict=True))
        elif not isinstance(inner, dict):
            self._wrong(answer.envelope, "an object with one entry a factor", inner)
            return
        elif answer.envelope:
            self._keys(inner, list(factors), tuple(factors))
        for key, factor in factors.items():
            if key in inner:
                self._entry(factor, inner[key], shared)

    def _keys(self, value: Mapping[str, Any], expected: list[str], factors: tuple[str, ...]) -> None:
        for key in expected:
            if key not in value:
                kind = "factor" if key in factors else "key"
                self._say(f"missing_{kind}", f'the {kind} "{key}" is missing', key if key in factors else None)
        kind = "factor" if factors and set(expected) == set(factors) else "key"
        for key, hint in self._strangers(value, expected):
            self._say(f"unknown_{kind}", f'the {kind} "{key}" was not asked for{hint}')

    def _strangers(self, value: Mapping[str, Any], expected: list[str]) -> Iterator[tuple[str, str]]:
        """Keys that were not asked for, and what may have been meant; not all, since a reply may have a million."""
        strangers = (key[:80] for key in value if key not in expected)
        for key in itertools.islice(strangers, MAX_REASONS):
            yield key, near_miss(key, expected)

    def _identifier(self, said: object, asked: str | None) -> None:
        key = str(self.rubric.answer.id_key)
        text = self._text(key, said, "a string")
        if text is not None and asked is not None and text != asked:
            self._say("wrong_id", f'"{key}" is "{text[:80]}" but the question was about "{asked}"')

    def _entry(self, factor: Factor, entry: object, shared: str | None) -> None:
        answer = self.rubric.answer
        if answer.form != "entries":
            self._score(factor, entry)
            self._reason(factor, shared)
            return
        expected = [answer.score_key, *([answer.reason_key] if answer.reason_key else [])]
        if not isinstance(entry, dict):
            self._wrong(factor.key, f"an object with {' and '.join(expected)}", entry, factor.key)
            return
        for key in expected:
            if key not in entry:
                self._say("missing_key", f'"{factor.key}" has no "{key}"', factor.key)
        for key, hint in self._strangers(entry, expected):
            self._say("unknown_key", f'"{factor.key}" has a key "{key}" that was not asked for{hint}', factor.key)
        if answer.score_key in entry:
            self._score(factor, entry[answer.score_key])
        if answer.reason_key in entry:
            shared = self._text(f"{factor.key}.{answer.reason_key}", entry[answer.reason_key], factor=factor.key)
        self._reason(factor, shared)

    def _score(self, factor: Factor, value: object) -> None:
        scale = factor.scale
        if isinstance(value, str) and not isinstance(value, OtherNumber) and value in scale.abstain:
            self.abstained[factor.key] = value
        elif scale.choices:
            self._choice(factor, value)
        elif (score := scale.read(value)) is not None:
            self.scores[factor.key] = score
        else:
            code = _score_code(value, decimals=scale.range is not None)
            number = isinstance(value, int | OtherNumber) and not isinstance(value, bool)
            # 6.5 may be quoted; 6.0 names a score that would be accepted.
            kind = str(value)[:40] if number and float(str(value)) not in scale.values else _shown(value)
            self._say(code, f'the score of "{factor.key}" is {kind}; expected {scale.words}', factor.key)

    def _choice(self, factor: Factor, value: object) -> None:
        """To the letter: "A" is not "a"."""
        if isinstance(value, str) and not isinstance(value, OtherNumber) and value in factor.scale.choices:
            self.choices[factor.key] = value
            return
        message = f'the choice of "{factor.key}" is {_shown(value)}; expected {factor.scale.words}'
        self._say("choice_unknown", message, factor.key)

    def _reason(self, factor: Factor, text: str | None) -> None:
        if text is not None:
            self.justifications[factor.key] = text

    def _text(self, where: str, said: object, expected: str = "text", factor: str | None = None) -> str | None:
        if isinstance(said, str) and not isinstance(said, OtherNumber):
            return said
        self._wrong(where, expected, said, factor)
        return None

    def _wrong(self, where: str, expected: str, found: object, factor: str | None = None) -> None:
        self._say("wrong_type", f'"{where}" is {_shown(found)}; expected {expected}', factor)

    def _say(self, code: str, message: str, factor: str | None = None) -> None:
        if len(self.reasons) < MAX_REASONS:
            self.reasons.append(Remark(code, message, factor))


def _is_kind(value: object, kind: str) -> bool:
    number = isinstance(value, int | OtherNumber) and not isinstance(value, bool)
    match kind:
        case "integer":
            return type(value) is int
        case "number":
            return number
        case "boolean":
            return isinstance(value, bool)
    return isinstance(value, str) and not number


def _score_code(value: object, *, decimals: bool) -> str:
    match value:
        case bool():
            return "score_bool"
        case int():
            return "score_out_of_scale"
        case OtherNumber():
            return "score_out_of_scale" if decimals or re.fullmatch(r"-?\d+", value) else "score_decimal"
        case str():
            return "score_string"
        case None:
            return "score_null"
    return "score_wrong_type"


def _shown(value: object) -> str:
    """A value as a message names it: its kind. The words of a message go back to the judge, and must not hold a
    score that it could take for the one to give."""
    match value:
        case OtherNumber():
            return "a number" if re.fullmatch(r"-?\d+", value) else "a decimal number"
        case bool() | None:
            return {True: "true", False: "false", None: "null"}[value]
        case dict():
            return "an object"
        case list():
            return f"a list of {len(value)}"
        case str():
            return "a string"
    return "a number"


# --- what stands around it, and whether it holds together -----------------------------------------------------


class _Section(NamedTuple):
    title: str | None
    """None for what stands before the first heading."""
    text: str
    before_json: bool


def _sections(rubric: Rubric, found: Scan) -> Iterator[_Section]:
    """A reply with headings, cut at those that were asked for, each as often as it stands there."""
    rule = rubric.consistency
    titles = list(dict.fromkeys([*rubric.answer.sections, *([rule.section] if rule else [])]))
    if not titles:
        return
    # Possessive, and one pass for all titles: megabytes of spaces or of empty lines cost no more than reading them.
    words = "|".join("({})".format(r"[ \t]++".join(map(re.escape, title.split()))) for title in titles)
    heading = re.compile(rf"^[ \t]*+#{{1,6}}[ \t]*+(?:{words})[ \t]*+:?[ \t]*+\r?$", re.IGNORECASE | re.MULTILINE)
    text = f"{found.before}\n{found.after}"
    title, begins = None, 0
    for match in heading.finditer(text):
        yield _Section(title, text[begins : match.start()], begins <= len(found.before))
        title, begins = titles[(match.lastindex or 1) - 1], match.end()
    yield _Section(title, text[begins:], begins <= len(found.before))


def _around(rubric: Rubric, found: Scan, sections: Sequence[_Section]) -> tuple[Remark, ...]:
    after = without_fences(found.after)
    if titles := rubric.answer.sections:
        present = {section.title for section in sections if section.before_json}
        missing = [title for title in titles if title not in present]
        remarks = [Remark("missing_section", f'the section "## {title}" is missing') for title in missing]
        if after:
            remarks.append(Remark("text_after_json", "text follows the JSON, which should come last"))
        return tuple(remarks)
    if after or without_fences(found.before):
        return (Remark("prose", "text stands around the JSON where only JSON was asked for"),)
    return ()


def _consistency(
    rule: Consistency, sections: Sequence[_Section], scores: Mapping[str, float]
) -> tuple[tuple[Remark, ...], tuple[Remark, ...]]:
    """How the list contradicts the score, and else what keeps the list from proving anything.

    A contradiction never names the score that would be accepted: a judge that is told so obeys.
    """
    # Without its heading the list may stand anywhere.
    lists = [section for section in sections if section.title == rule.section] or sections
    marks = read_marks("\n".join(section.text for section in lists), rule)
    score = scores[rule.factor]
    if marks.failing is not None:
        why = f'a listed difference is marked "{marks.failing}"' if score != rule.fail_score else ""
    else:
        why = "every listed difference has a mark that passes" if marks.all_pass and score != rule.pass_score else ""
    if why:
        return (Remark("inconsistent", f"the score and the list contradict each other: {why}", rule.factor),), ()
    if marks.unread or (marks.prose and marks.passing and marks.failing is None and score != rule.pass_score):
        message = f'lines under "## {rule.section}" have no mark that can be read, so the list proves nothing'
        return (), (Remark("unread_mark", message, rule.factor),)
    return (), ()


# Han, kana, Thai, Lao, Myanmar, Khmer, Tibetan: written without spaces between words.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


def _unspaced(text: str) -> bool:
    beginning = text[:1000]  # many times the longest reason that is asked for
    return 2 * len(_UNSPACED.findall(beginning)) > len(beginning)


def _lengths(rubric: Rubric, justifications: Mapping[str, str]) -> tuple[tuple[Remark, ...], tuple[Remark, ...]]:
    """Reasons that are empty, too short or too long; and those that could not be counted."""
    violations, notes = [], []
    for key, text in justifications.items():
        count = len(text.split())
        if not count:
            violations.append(Remark("justification_empty", f'the reason for "{key}" is empty', key))
        elif rubric.answer.words is None:
            continue
        elif _unspaced(text):
            notes.append(Remark("words_not_counted", f'the script of the reason for "{key}" has no spaces', key))
        else:
            least, most = rubric.answer.words
            if not least <= count <= most:
                code = "justification_too_short" if count < least else "justification_too_long"
                message = f'the reason for "{key}" has {count} words; asked were {least} to {most}'
                violations.append(Remark(code, message, key))
    return tuple(violations), tuple(notes)
