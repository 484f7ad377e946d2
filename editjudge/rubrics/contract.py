"""Reply in, `Verdict` or `Failure` out.

A verdict has every score, exactly as the reply said it, or there is no verdict: nothing is repaired, rounded,
guessed or taken from one of two answers. Each remark carries a code that stays the same between releases.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

from editjudge.errors import near_miss
from editjudge.rubrics import replies
from editjudge.rubrics.answer import AnswerLeaf, AnswerTree, answer_keys, answer_tree
from editjudge.rubrics.marks import read_marks
from editjudge.rubrics.model import Consistency, Factor, Rubric
from editjudge.rubrics.replies import CUT, Candidate, LabelledLines, Scan, TooComplex, WrittenNumber, scan

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
        nothing = self.abstained and not self.scores and not self.choices
        document = {
            "status": "abstained" if nothing else self.status,
            "scores": None if nothing or self.choices else dict(self.scores),
            "justifications": dict(self.justifications),
        } | _remarks_as_json(self)
        document |= {"choices": dict(self.choices)} if self.choices else {}
        return document | ({"abstained": dict(self.abstained)} if self.abstained else {})


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
        return {"status": self.status, "scores": None, "justifications": None} | _remarks_as_json(self, self.reasons)


def _remarks_as_json(outcome: Verdict | Failure, reasons: Sequence[Remark] = ()) -> dict[str, Any]:
    return {
        "violations": list(dict.fromkeys(remark.code for remark in outcome.violations)),
        "reasons": [remark.as_json() for remark in reasons],
        "details": [remark.as_json() for remark in outcome.violations],
        "notes": [remark.as_json() for remark in outcome.notes],
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
    if failure := _ended_early(reply, finish):
        return failure
    text = reply.removeprefix("\ufeff")
    try:
        if not rubric.answer.is_json:
            return _check_text(rubric, text, strict=strict)
        return _check_json(rubric, text, identifier, strict=strict)
    except TooComplex:
        return _invalid("too_complex", "the reply has more braces, lines or headings than any answer")


def _check_json(rubric: Rubric, text: str, identifier: str | None, *, strict: bool) -> Verdict | Failure:
    reply = scan(text, answer_keys(rubric))
    if reply.ends_in_thought or not reply.candidates:
        return _no_answer(reply, "the reply holds no JSON object with a key of the answer")
    chosen = _choose(reply.candidates, json_last=bool(rubric.answer.sections))
    if isinstance(chosen, Failure):
        return chosen
    answer, violations, notes = chosen
    reading = _ReplyReading(rubric)
    reading.take_json(answer, identifier)
    sections = _sections(rubric, reply)
    last = rubric.answer.sections[-1:]
    if [section.before_json for section in sections if section.title in last][:1] == [False]:
        # What stands before that heading was a draft, whatever it says.
        return _invalid("no_answer", f'no JSON of the answer stands under "## {last[0]}"')
    if not reading.reasons and rubric.consistency and rubric.consistency.factor in reading.scores:
        contradictions, unread = _consistency(rubric.consistency, sections, reading.scores)
        reading.reasons.extend(contradictions)
        violations += unread
    return reading.verdict(violations + _around(rubric, reply, sections), notes, strict=strict)


def _check_text(rubric: Rubric, text: str, *, strict: bool) -> Verdict | Failure:
    """An answer that is no JSON: labelled lines, the score as the whole reply, or one of several marks in it."""
    reply = scan(text, joint=CUT)
    if reply.ends_in_thought:
        return _no_answer(reply, "")
    reading = _ReplyReading(rubric)
    if rubric.answer.form == "lines":
        labels = {rubric.label(factor): factor for factor in rubric.factors}
        headings = [factor.heading for factor in rubric.factors if factor.heading]
        own_labels = [factor.label or factor.key for factor in rubric.factors]
        lines = replies.read_lines(reply.before, own_labels, rubric.answer.texts, headings)
        if not lines.values:
            return _no_answer(reply, f'no line begins with "{next(iter(labels))}:" or another label of the answer')
        violations = reading.take_lines(lines, labels)
        if lines.prose and not headings:  # what stands below headings is prose that was asked for
            violations = (*violations, Remark("prose", "text stands around the lines that were asked for"))
        return reading.verdict(violations, (), strict=strict)
    (factor,) = rubric.factors
    if rubric.answer.form == "token":
        value = replies.value_of(reply.before.strip(" \t\r\n" + CUT))
        reading.take_score(factor, value)
        if reading.reasons and _is_text(value):
            return _no_answer(reply, f"the reply is more or other than {factor.scale.words}")
        return reading.verdict((), (), strict=strict)
    marks = [choice for choice in factor.scale.choices if choice in reply.before]
    if not marks:
        return _no_answer(reply, f"the reply holds none of {factor.scale.words}")
    if len(marks) > 1:
        return _invalid("ambiguous", f"the reply holds {' and '.join(marks)}, and one was asked for")
    reading.take_score(factor, marks[0])
    reading.justifications[factor.key] = reply.before.replace(CUT, "").replace(marks[0], "").strip()
    return reading.verdict((), (), strict=strict)


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


def _no_answer(reply: Scan, why: str) -> Failure:
    """Of a reply without an answer: why there is none."""
    if reply.ends_in_thought:
        return Failure("truncated", (Remark("truncated", "the reply ends inside its own reasoning"),))
    text = reply.before.replace(CUT, "").strip()
    if not text:
        return _invalid("empty", "the reply holds nothing but reasoning that was set aside")
    if _DECLINES.search(text[:_OPENING]):
        return Failure("refused", (Remark("refusal", "the model declined to answer"),))
    return _invalid("no_answer", why)


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
    if candidate.depth > replies.MAX_DEPTH:
        return _invalid("not_json", f"the JSON nests more than {replies.MAX_DEPTH} deep")
    try:
        value = replies.decode(candidate.text)
    except replies.NotStrict as error:
        if error.at_end and not candidate.closed:
            return Failure("truncated", (Remark("truncated", "the reply breaks off inside its JSON"),))
        return _invalid(error.code, f"the answer is not strict JSON: {error}")
    assert isinstance(value, dict)  # noqa: S101  (a text that starts with a brace decodes to an object or fails)
    return value


# --- what the object says -------------------------------------------------------------------------------------


_ORDER = ("id", "text", "score", "reason")


class _ReplyReading:
    """Collects scores and reasons from an answer, and everything that is wrong with it."""

    def __init__(self, rubric: Rubric) -> None:
        self.rubric = rubric
        self.scores: dict[str, float] = {}
        self.choices: dict[str, str] = {}
        self.justifications: dict[str, str] = {}
        self.abstained: dict[str, str] = {}
        self.shared_reason: str | None = None
        self.identifier: str | None = None
        self.reasons: list[Remark] = []

    def verdict(self, violations: tuple[Remark, ...], notes: tuple[Remark, ...], *, strict: bool) -> Verdict | Failure:
        """Of what was taken: every score, or none."""
        if self.reasons:
            return Failure("invalid", tuple(self.reasons[:MAX_REASONS]))
        reasons = {
            factor.key: self.justifications.get(factor.key, self.shared_reason) for factor in self.rubric.factors
        }
        justifications = {key: reason for key, reason in reasons.items() if reason is not None}
        lengths, unchecked = _lengths(self.rubric, justifications)
        if strict and lengths:
            return Failure("invalid", lengths, violations=violations, notes=notes)
        return Verdict(
            self.scores, justifications, violations + lengths, notes + unchecked, self.choices, self.abstained
        )

    def take_lines(self, lines: LabelledLines, labels: Mapping[str, Factor]) -> tuple[Remark, ...]:
        """Scores and reasons of labelled lines; returns what they violate."""
        most = 0
        for name in (*labels, *self.rubric.answer.texts):
            values = lines.values.get(name) or lines.texts.get(name)
            factor = labels[name].key if name in labels else None
            if not values:
                kind = "factor" if factor else "key"
                self._say(f"missing_{kind}", f'no line begins with "{name}:"', factor)
            elif any(value != values[0] for value in values):
                self._say("ambiguous", f'{len(values)} lines begin with "{name}:", and they differ', factor)
            elif factor:
                self.take_score(labels[name], replies.value_of(values[0]))
            else:
                self._share(values[0].strip())
            most = max(most, len(values or ()))
        return (Remark("repeated_answer", f"the same line stands {most} times"),) if most > 1 else ()

    def take_json(self, value: dict[str, Any], identifier: str | None) -> None:
        """Scores and reasons of an object."""
        self.identifier = identifier
        self._object(answer_tree(self.rubric), value)

    def _object(self, tree: AnswerTree, value: Mapping[str, Any], place: str = "", entry: Factor | None = None) -> None:
        """An object of the answer, and all below it; `entry` is the factor that it is the entry of, and `place` the
        keys that lead to it."""
        self._keys(tree, value, entry)
        for key, part in self._members(tree):
            if key not in value:
                continue
            path = f"{place}{key}"
            if isinstance(part, AnswerLeaf):
                self._leaf(part, value[key], path)
            elif isinstance(part, list):
                self._list(part, value[key], path)
            else:
                self._inner_object(part, value[key], path)

    def _members(self, tree: AnswerTree) -> list[tuple[str, Any]]:
        """In the order in which failures are named, whatever the order in the answer; of a nested answer its own."""
        if self.rubric.answer.form == "nested":
            return list(tree.items())
        return sorted(tree.items(), key=lambda member: _ORDER.index(getattr(member[1], "kind", "score")))

    def _inner_object(self, tree: AnswerTree, value: object, place: str) -> None:
        entries, factor = self.rubric.answer.form != "nested", self._factor_of(tree)
        if isinstance(value, dict):
            # Messages name an entry by its factor, and what is nested by its path.
            self._object(tree, value, "" if entries and not factor else f"{place}.", factor)
        elif factor:
            expected = f"an object with {' and '.join(key for key, _ in self._members(tree))}"
            self._wrong(place, expected, value, factor.key)
        else:
            self._wrong(place, "an object with one entry a factor" if entries else "an object", value)

    def _factor_of(self, part: Any) -> Factor | None:
        """The factor that a member of the answer is named for: that of a score, or of an entry."""
        if isinstance(part, AnswerLeaf):
            return part.factor if part.kind == "score" else None
        if self.rubric.answer.form != "entries":
            return None
        return next((leaf.factor for leaf in part.values() if isinstance(leaf, AnswerLeaf) and leaf.factor), None)

    def _keys(self, tree: AnswerTree, value: Mapping[str, Any], entry: Factor | None) -> None:
        """What is missing in an object, and what was not asked for."""
        factors = {} if entry else {key: factor.key for key, part in tree.items() if (factor := self._factor_of(part))}
        owner = entry.key if entry else None
        for key, _ in self._members(tree):
            if key not in value:
                kind = "factor" if key in factors else "key"
                message = f'"{owner}" has no "{key}"' if entry else f'the {kind} "{key}" is missing'
                self._say(f"missing_{kind}", message, owner or factors.get(key))
        kind = "factor" if len(factors) == len(tree) else "key"
        # Not all of them, since a reply may have a million.
        for key in itertools.islice((key[:80] for key in value if key not in tree), MAX_REASONS):
            message = f'"{owner}" has a key "{key}" that' if entry else f'the {kind} "{key}"'
            self._say(f"unknown_{kind}", f"{message} was not asked for{near_miss(key, tree)}", owner)

    def _list(self, leaves: Sequence[AnswerLeaf], value: object, place: str) -> None:
        if not isinstance(value, list) or len(value) != len(leaves):
            self._wrong(place, f"a list of {len(leaves)} scores", value)
            return
        for leaf, item in zip(leaves, value, strict=True):
            self._leaf(leaf, item, place)

    def _leaf(self, leaf: AnswerLeaf, value: object, place: str) -> None:
        factor = leaf.factor
        if leaf.kind == "score" and factor:
            self.take_score(factor, value)
        elif leaf.kind == "other":
            if not _is_kind(value, leaf.json_type):
                self._wrong(place, f"a value of the kind {leaf.json_type}", value)
        elif not isinstance(value, str) or not _is_text(value):
            self._wrong(place, "a string" if leaf.kind == "id" else "text", value, factor.key if factor else None)
        elif factor:
            self.justifications[factor.key] = value
        elif leaf.kind == "text":
            self._share(value)
        elif self.identifier is not None and value != self.identifier:
            message = f'"{place}" is "{value[:80]}" but the question was about "{self.identifier}"'
            self._say("wrong_id", message)

    def _share(self, text: str) -> None:
        """The first free text is the reason for every factor that has none of its own."""
        if self.shared_reason is None:
            self.shared_reason = text

    def take_score(self, factor: Factor, value: object) -> None:
        """What stands in the place of a factor's score: a score, a choice, or a word for "does not apply"."""
        scale = factor.scale
        if _is_text(value) and value in scale.abstain:
            self.abstained[factor.key] = str(value)
        elif scale.choices:  # to the letter: "A" is not "a"
            if _is_text(value) and value in scale.choices:
                self.choices[factor.key] = str(value)
                return
            message = f'the choice of "{factor.key}" is {_kind_in_words(value)}; expected {scale.words}'
            self._say("choice_unknown", message, factor.key)
        elif (score := scale.read(value)) is not None:
            self.scores[factor.key] = score
        else:
            code = _score_code(value, decimals=scale.range is not None)
            # 6.5 may be quoted; 6.0 names a score that would be accepted.
            quotable = _is_kind(value, "number") and float(str(value)) not in scale.values
            kind = str(value)[:40] if quotable else _kind_in_words(value)
            self._say(code, f'the score of "{factor.key}" is {kind}; expected {scale.words}', factor.key)

    def _wrong(self, where: str, expected: str, value: object, factor: str | None = None) -> None:
        self._say("wrong_type", f'"{where}" is {_kind_in_words(value)}; expected {expected}', factor)

    def _say(self, code: str, message: str, factor: str | None = None) -> None:
        if len(self.reasons) < MAX_REASONS:
            self.reasons.append(Remark(code, message, factor))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not isinstance(value, WrittenNumber)


def _is_kind(value: object, kind: str) -> bool:
    if kind == "string":
        return _is_text(value)
    if kind == "boolean":
        return isinstance(value, bool)
    return type(value) is int or (kind == "number" and isinstance(value, WrittenNumber))


def _score_code(value: object, *, decimals: bool) -> str:
    match value:
        case bool():
            return "score_bool"
        case int():
            return "score_out_of_scale"
        case WrittenNumber():
            return "score_out_of_scale" if decimals or re.fullmatch(r"-?\d+", value) else "score_decimal"
        case str():
            return "score_string"
    return "score_null" if value is None else "score_wrong_type"


def _kind_in_words(value: object) -> str:
    """A value as a message names it: its kind. The words of a message go back to the judge, and must not hold a
    score that it could take for the one to give."""
    match value:
        case bool() | None:
            return json.dumps(value)
        case dict():
            return "an object"
        case list():
            return f"a list of {len(value)}"
        case WrittenNumber() if not re.fullmatch(r"-?\d+", value):
            return "a decimal number"
    return "a string" if _is_text(value) else "a number"


# --- what stands around it, and whether it holds together -----------------------------------------------------


class _Section(NamedTuple):
    title: str | None
    """None for what stands before the first heading."""
    text: str
    before_json: bool


def _sections(rubric: Rubric, reply: Scan) -> list[_Section]:
    """A reply with headings, cut at those that were asked for, each as often as it stands there."""
    rule = rubric.consistency
    titles = list(dict.fromkeys([*rubric.answer.sections, *([rule.section] if rule else [])]))
    if not titles:
        return []
    # Possessive, and one pass for all titles: megabytes of spaces or of empty lines cost no more than reading them.
    words = "|".join("({})".format(r"[ \t]++".join(map(re.escape, title.split()))) for title in titles)
    heading = re.compile(rf"^[ \t]*+#{{1,6}}[ \t]*+(?:{words})[ \t]*+:?[ \t]*+\r?$", re.IGNORECASE | re.MULTILINE)
    text = f"{reply.before}\n{reply.after}"
    sections: list[_Section] = []
    title, begins = None, 0
    for match in heading.finditer(text):
        sections.append(_Section(title, text[begins : match.start()], begins <= len(reply.before)))
        if len(sections) >= MAX_SECTIONS:
            raise TooComplex
        title, begins = titles[(match.lastindex or 1) - 1], match.end()
    return [*sections, _Section(title, text[begins:], begins <= len(reply.before))]


def _around(rubric: Rubric, reply: Scan, sections: Sequence[_Section]) -> tuple[Remark, ...]:
    after = replies.without_fences(reply.after)
    if titles := rubric.answer.sections:
        present = {section.title for section in sections if section.before_json}
        missing = [title for title in titles if title not in present]
        remarks = [Remark("missing_section", f'the section "## {title}" is missing') for title in missing]
        if after:
            remarks.append(Remark("text_after_json", "text follows the JSON, which should come last"))
        return tuple(remarks)
    if after or replies.without_fences(reply.before):
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
