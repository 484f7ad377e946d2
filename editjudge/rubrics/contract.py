"""Reply in, `Verdict` or `Failure` out.

A verdict has every score, exactly as the reply said it, or there is no verdict: nothing is repaired, rounded,
guessed or taken from one of two answers. Each remark carries a code that stays the same between releases.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from editjudge.errors import near_miss
from editjudge.rubrics import replies
from editjudge.rubrics.answer import AnswerLeaf, AnswerObject, answer_keys, answer_tree
from editjudge.rubrics.marks import read_marks
from editjudge.rubrics.model import Consistency, Factor, Rubric
from editjudge.rubrics.replies import (
    CUT,
    Candidate,
    LabelledLines,
    Scan,
    TooComplex,
    scan,
)
from editjudge.rubrics.scale import WrittenNumber
from editjudge.rubrics.verdict import Failure, Finish, Remark, Verdict

MAX_REASONS = 40
MAX_SECTIONS = 1_000
"""Headings of the answer that are looked at; three are asked for."""


class _NoVerdict(Exception):
    """Ends the reading of a reply that is no answer."""

    def __init__(
        self,
        code: str,
        message: str,
        status: Literal["refused", "invalid", "truncated"] = "invalid",
    ) -> None:
        super().__init__(message)
        self.failure = Failure(status, (Remark(code, message),))


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
    try:
        _check_end(reply, finish)
        text = reply.removeprefix("\ufeff")
        reading = _ReplyReading(rubric, identifier)
        return (_check_json if rubric.answer.is_json else _check_text)(
            reading, text
        ).verdict(strict)
    except _NoVerdict as refused:
        return refused.failure
    except TooComplex:
        return Failure(
            "invalid",
            (
                Remark(
                    "too_complex",
                    "the reply has more braces, lines or headings than any answer",
                ),
            ),
        )


def _check_json(reading: _ReplyReading, text: str) -> _ReplyReading:
    rubric = reading.rubric
    reply = scan(text, answer_keys(rubric))
    if reply.ends_in_thought or not reply.candidates:
        raise _no_answer(
            rubric, reply, "the reply holds no JSON object with a key of the answer"
        )
    reading.take_object(answer_tree(rubric), reading.choose(reply.candidates))
    sections = _sections(rubric, reply)
    last = rubric.answer.sections[-1:]
    if [section.before_json for section in sections if section.title in last][:1] == [
        False
    ]:
        # What stands before that heading was a draft, whatever it says.
        raise _NoVerdict(
            "no_answer", f'no JSON of the answer stands under "## {last[0]}"'
        )
    if (
        not reading.reasons
        and rubric.consistency
        and rubric.consistency.factor in reading.scores
    ):
        reading.compare_list(rubric.consistency, sections)
    reading.violations += _around(rubric, reply, sections)
    return reading


def _check_text(reading: _ReplyReading, text: str) -> _ReplyReading:
    """An answer that is no JSON: labelled lines, the score as the whole reply, or one of several marks in it."""
    rubric = reading.rubric
    reply = scan(text, joint=CUT)
    if reply.ends_in_thought:
        raise _no_answer(rubric, reply, "")
    if rubric.answer.form == "lines":
        labels = {rubric.label(factor): factor for factor in rubric.factors}
        headings = [factor.heading for factor in rubric.factors if factor.heading]
        own_labels = [factor.label or factor.key for factor in rubric.factors]
        lines = replies.read_lines(
            reply.before, own_labels, rubric.answer.texts, headings
        )
        if not lines.values:
            why = f'no line begins with "{next(iter(labels))}:" or another label of the answer'
            raise _no_answer(rubric, reply, why)
        reading.take_lines(lines, labels)
        # what stands below headings is prose that was asked for
        if lines.prose and not headings:
            reading.violations.append(
                Remark("prose", "text stands around the lines that were asked for")
            )
        return reading
    (factor,) = rubric.factors
    if rubric.answer.form == "token":
        value = replies.value_of(reply.before.strip(replies.AROUND))
        reading.take_score(factor, value)
        if reading.reasons and _is_text(value):
            raise _no_answer(
                rubric, reply, f"the reply is more or other than {factor.scale.words}"
            )
        return reading
    marks = [choice for choice in factor.scale.choices if choice in reply.before]
    if not marks:
        raise _no_answer(rubric, reply, f"the reply holds none of {factor.scale.words}")
    if len(marks) > 1:
        raise _NoVerdict(
            "ambiguous", f"the reply holds {' and '.join(marks)}, and one was asked for"
        )
    reading.take_score(factor, marks[0])
    reading.justifications[factor.key] = (
        reply.before.replace(CUT, "").replace(marks[0], "").strip()
    )
    return reading


# --- what ends before the answer is looked at -----------------------------------------------------------------


def _check_end(reply: str, finish: Finish) -> None:
    if finish == "refusal":
        raise _NoVerdict("refusal", "the model declined to answer", "refused")
    if finish == "length":
        raise _NoVerdict(
            "truncated", "the reply was cut off at the token limit", "truncated"
        )
    if not reply.strip("\ufeff \t\r\n\v\f"):
        raise _NoVerdict("empty", "the reply is empty")
    try:
        reply.encode()
    except UnicodeEncodeError:
        raise _NoVerdict(
            "not_text", "the reply holds half of a surrogate pair, which is not text"
        ) from None


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


def _no_answer(rubric: Rubric, reply: Scan, why: str) -> _NoVerdict:
    """Return why a reply has no answer."""
    if reply.ends_in_thought:
        return _NoVerdict(
            "truncated", "the reply ends inside its own reasoning", "truncated"
        )
    text = reply.before.replace(CUT, "").strip()
    if not text:
        return _NoVerdict(
            "empty", "the reply holds nothing but reasoning that was set aside"
        )
    if _DECLINES.search(_without_options(rubric, text[:_OPENING])):
        return _NoVerdict("refusal", "the model declined to answer", "refused")
    return _NoVerdict("no_answer", why)


def _without_options(rubric: Rubric, text: str) -> str:
    """A text less the words that the question offers: who answers an offered "I cannot tell" declines nothing."""
    for factor in rubric.factors:
        for option in (*factor.scale.choices, *factor.scale.abstain):
            core = option.strip("[]()<>\"'. ")
            if _DECLINES.search(core):
                text = re.sub(re.escape(core), "", text, flags=re.IGNORECASE)
    return text


def canonical(candidate: Candidate) -> str | None:
    """Equal for equal answers whatever the order of keys, None for what is none; unlike ==, it tells true from 1."""
    try:
        return json.dumps(_value(candidate), sort_keys=True)
    except _NoVerdict:
        return None


def _value(candidate: Candidate) -> dict[str, Any]:
    if candidate.value is not None:
        return candidate.value
    if candidate.depth > replies.MAX_DEPTH:
        raise _NoVerdict(
            "not_json", f"the JSON nests more than {replies.MAX_DEPTH} deep"
        )
    try:
        value = replies.decode(candidate.text)
    except replies.NotStrict as error:
        if error.at_end and not candidate.closed:
            raise _NoVerdict(
                "truncated", "the reply breaks off inside its JSON", "truncated"
            ) from None
        raise _NoVerdict(
            error.code, f"the answer is not strict JSON: {error}"
        ) from None
    assert isinstance(value, dict)  # noqa: S101  (a text that starts with a brace decodes to an object or fails)
    return value


# --- what the answer says -------------------------------------------------------------------------------------


class _ReplyReading:
    """Collects scores and reasons from an answer, and everything that is wrong with it."""

    def __init__(self, rubric: Rubric, identifier: str | None) -> None:
        self.rubric = rubric
        self.identifier = identifier
        self.scores: dict[str, float] = {}
        self.choices: dict[str, str] = {}
        self.justifications: dict[str, str] = {}
        self.abstained: dict[str, str] = {}
        self.shared_reason: str | None = None
        self.reasons: list[Remark] = []
        """Reasons for no verdict."""
        self.violations: list[Remark] = []
        self.notes: list[Remark] = []

    def verdict(self, strict: bool) -> Verdict | Failure:
        """Return the verdict on what was taken: every score, or none."""
        if self.reasons:
            return Failure("invalid", tuple(self.reasons[:MAX_REASONS]))
        reasons = (
            (f.key, self.justifications.get(f.key, self.shared_reason))
            for f in self.rubric.factors
        )
        justifications = {key: reason for key, reason in reasons if reason is not None}
        lengths, unchecked = _lengths(self.rubric, justifications)
        violations = tuple(self.violations)
        notes = tuple(self.notes)
        if strict and lengths:
            return Failure("invalid", tuple(lengths), violations, notes)
        return Verdict(
            self.scores,
            justifications,
            (*violations, *lengths),
            (*notes, *unchecked),
            self.choices,
            self.abstained,
        )

    def choose(self, candidates: Sequence[Candidate]) -> dict[str, Any]:
        """The one object that is the answer; two different ones are nobody's answer, unless the last is asked for."""
        last_counts = bool(self.rubric.answer.sections)
        values = [
            _value(candidate)
            for candidate in (candidates[-1:] if last_counts else candidates)
        ]
        if len(candidates) > 1:
            answers = {canonical(candidate) for candidate in candidates}
            if len(answers) == 1:
                self.violations.append(
                    Remark(
                        "repeated_answer",
                        f"the same answer stands {len(candidates)} times",
                    )
                )
            elif last_counts:
                self.notes.append(
                    Remark(
                        "earlier_answer",
                        "an earlier object was passed over: the last one counts",
                    )
                )
            else:
                message = f"the reply holds {len(values)} answers that differ; exactly one was asked for"
                raise _NoVerdict("ambiguous", message)
        return values[-1]

    def take_lines(self, lines: LabelledLines, labels: Mapping[str, Factor]) -> None:
        """Scores and reasons of labelled lines."""
        most = 0
        for name in (*labels, *self.rubric.answer.texts):
            values = lines.values.get(name) or lines.texts.get(name)
            factor = labels[name].key if name in labels else None
            if not values:
                self._refuse(
                    f"missing_{'factor' if factor else 'key'}",
                    f'no line begins with "{name}:"',
                    factor,
                )
            elif any(value != values[0] for value in values):
                self._refuse(
                    "ambiguous",
                    f'{len(values)} lines begin with "{name}:", and they differ',
                    factor,
                )
            elif factor:
                self.take_score(labels[name], replies.value_of(values[0]))
            else:
                self._share(values[0].strip())
            most = max(most, len(values or ()))
        if most > 1:
            self.violations.append(
                Remark("repeated_answer", f"the same line stands {most} times")
            )

    def take_object(
        self, shape: AnswerObject, value: Mapping[str, Any], place: str = ""
    ) -> None:
        """Scores and reasons of an object and of all below it; `place` are the keys that lead to it."""
        if value.keys() != shape.members.keys():
            self._compare_keys(shape, value)
        for key, part in shape.in_order:
            if key in value:
                self._take(part, value[key], f"{place}{key}")

    def _take(self, part: Any, value: Any, place: str) -> None:
        if isinstance(part, AnswerLeaf):
            self._leaf(part, value, place)
        elif isinstance(part, list):
            if not isinstance(value, list) or len(value) != len(part):
                self._wrong(place, f"a list of {len(part)} scores", value)
                return
            for leaf, item in zip(part, value, strict=True):
                self._leaf(leaf, item, place)
        elif isinstance(value, dict):
            # Messages name an entry by its factor, and what is nested by its path.
            self.take_object(
                part,
                value,
                f"{place}."
                if part.entry or self.rubric.answer.form == "nested"
                else "",
            )
        elif part.entry:
            self._wrong(
                place,
                f"an object with {' and '.join(key for key, _ in part.in_order)}",
                value,
                part.entry.key,
            )
        else:
            nested = self.rubric.answer.form == "nested"
            self._wrong(
                place,
                "an object" if nested else "an object with one entry a factor",
                value,
            )

    def _compare_keys(self, shape: AnswerObject, value: Mapping[str, Any]) -> None:
        """Record what is missing in an object, and what was not asked for."""
        factors = shape.factors
        owner = shape.entry.key if shape.entry else None
        for key in [key for key, _ in shape.in_order if key not in value]:
            kind = "factor" if key in factors else "key"
            message = (
                f'"{owner}" has no "{key}"'
                if owner
                else f'the {kind} "{key}" is missing'
            )
            self._refuse(f"missing_{kind}", message, owner or factors.get(key))
        kind = "factor" if len(factors) == len(shape.members) else "key"
        # Not all of them, since a reply may have a million.
        for key in itertools.islice(
            (key[:80] for key in value if key not in shape.members), MAX_REASONS
        ):
            message = (
                f'"{owner}" has a key "{key}" that' if owner else f'the {kind} "{key}"'
            )
            self._refuse(
                f"unknown_{kind}",
                f"{message} was not asked for{near_miss(key, shape.members)}",
                owner,
            )

    def _leaf(self, leaf: AnswerLeaf, value: object, place: str) -> None:
        factor = leaf.factor
        if leaf.kind == "score" and factor:
            self.take_score(factor, value)
        elif leaf.kind == "other":
            if not _is_kind(value, leaf.json_type):
                self._wrong(place, f"a value of the kind {leaf.json_type}", value)
        elif not isinstance(value, str) or not _is_text(value):
            self._wrong(
                place,
                "a string" if leaf.kind == "id" else "text",
                value,
                factor.key if factor else None,
            )
        elif factor:
            self.justifications[factor.key] = value
        elif leaf.kind == "text":
            self._share(value)
        elif self.identifier is not None and value != self.identifier:
            message = f'"{place}" is "{value[:80]}" but the question was about "{self.identifier}"'
            self._refuse("wrong_id", message)

    def _share(self, text: str) -> None:
        """The first free text is the reason for every factor that has none of its own."""
        if self.shared_reason is None:
            self.shared_reason = text

    def take_score(self, factor: Factor, value: object) -> None:
        """Take the value of a factor: a score, a choice, or a word for "does not apply"."""
        scale = factor.scale
        if scale.abstain and _is_text(value) and value in scale.abstain:
            self.abstained[factor.key] = str(value)
        elif scale.choices:  # to the letter: "A" is not "a"
            if _is_text(value) and value in scale.choices:
                self.choices[factor.key] = str(value)
                return
            kind = (
                "none of the words offered"
                if _is_text(value)
                else _kind_in_words(value)
            )
            message = f'the choice of "{factor.key}" is {kind}; expected {scale.words}'
            self._refuse("choice_unknown", message, factor.key)
        elif (score := scale.read(value)) is not None:
            self.scores[factor.key] = score
        else:
            code = _score_code(value, decimals=scale.range is not None)
            # 6.5 may be quoted; 6.0 names a score that would be accepted.
            quotable = (
                _is_kind(value, "number") and float(str(value)) not in scale.values
            )
            kind = str(value)[:40] if quotable else _kind_in_words(value)
            if _is_text(value) and not self.rubric.answer.is_json:
                kind = _text_in_words(str(value))
            self._refuse(
                code,
                f'the score of "{factor.key}" is {kind}; expected {scale.words}',
                factor.key,
            )

    def compare_list(self, rule: Consistency, sections: Sequence[_Section]) -> None:
        """Record how a list of differences contradicts the score, or else what keeps the list from proving anything.

        A contradiction never names the score that would be accepted: a judge that is told so obeys.
        """
        # Without its heading the list may stand anywhere.
        lists = [
            section for section in sections if section.title == rule.section
        ] or sections
        marks = read_marks("\n".join(section.text for section in lists), rule)
        score = self.scores[rule.factor]
        why = ""
        if marks.failing is not None and score != rule.fail_score:
            why = f'a listed difference is marked "{marks.failing}"'
        elif marks.all_pass and score != rule.pass_score:
            why = "every listed difference has a mark that passes"
        if why:
            self._refuse(
                "inconsistent",
                f"the score and the list contradict each other: {why}",
                rule.factor,
            )
        elif marks.unread or (
            marks.prose
            and marks.passing
            and marks.failing is None
            and score != rule.pass_score
        ):
            message = f'lines under "## {rule.section}" have no mark that can be read, so the list proves nothing'
            self.violations.append(Remark("unread_mark", message, rule.factor))

    def _wrong(
        self, where: str, expected: str, value: object, factor: str | None = None
    ) -> None:
        self._refuse(
            "wrong_type",
            f'"{where}" is {_kind_in_words(value)}; expected {expected}',
            factor,
        )

    def _refuse(self, code: str, message: str, factor: str | None = None) -> None:
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
            return (
                "score_out_of_scale"
                if decimals or re.fullmatch(r"-?\d+", value)
                else "score_decimal"
            )
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


def _text_in_words(text: str) -> str:
    """The value of a score in an answer that is not JSON; like the kinds above, it holds no number."""
    if not text:
        return "left out"
    if _OUT_OF.search(text):
        return "a fraction, or a score out of a total"
    return (
        "a number with something beside it"
        if re.search(r"\d", text)
        else "text that is no number"
    )


_OUT_OF = re.compile(r"\d\s*(?:/|out of|%)", re.IGNORECASE)


# --- what stands around it ------------------------------------------------------------------------------------


class _Section(NamedTuple):
    title: str | None
    """None for what stands before the first heading."""
    text: str
    before_json: bool


@functools.lru_cache(maxsize=64)
def _heading(titles: tuple[str, ...]) -> re.Pattern[str]:
    # Possessive, and one pass for all titles: megabytes of spaces or of empty lines cost no more than reading them.
    words = "|".join(
        "({})".format(r"[ \t]++".join(map(re.escape, title.split())))
        for title in titles
    )
    return re.compile(
        rf"^[ \t]*+#{{1,6}}[ \t]*+(?:{words})[ \t]*+:?[ \t]*+\r?$",
        re.IGNORECASE | re.MULTILINE,
    )


def _sections(rubric: Rubric, reply: Scan) -> list[_Section]:
    """A reply with headings, cut at those that were asked for, each as often as it stands there."""
    rule = rubric.consistency
    titles = tuple(
        dict.fromkeys([*rubric.answer.sections, *([rule.section] if rule else [])])
    )
    if not titles:
        return []
    text = f"{reply.before}\n{reply.after}"
    sections: list[_Section] = []
    title = None
    begins = 0
    for match in _heading(titles).finditer(text):
        sections.append(
            _Section(title, text[begins : match.start()], begins <= len(reply.before))
        )
        if len(sections) >= MAX_SECTIONS:
            raise TooComplex
        title = titles[(match.lastindex or 1) - 1]
        begins = match.end()
    return [*sections, _Section(title, text[begins:], begins <= len(reply.before))]


def _around(
    rubric: Rubric, reply: Scan, sections: Sequence[_Section]
) -> Iterator[Remark]:
    after = replies.without_fences(reply.after)
    if titles := rubric.answer.sections:
        present = {section.title for section in sections if section.before_json}
        for title in titles:
            if title not in present:
                yield Remark("missing_section", f'the section "## {title}" is missing')
        if after:
            yield Remark(
                "text_after_json", "text follows the JSON, which should come last"
            )
    elif after or replies.without_fences(reply.before):
        yield Remark(
            "prose", "text stands around the JSON where only JSON was asked for"
        )


# Han, kana, Thai, Lao, Myanmar, Khmer, Tibetan: written without spaces between words.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


def _unspaced(text: str) -> bool:
    beginning = text[:1000]  # many times the longest reason that is asked for
    return not beginning.isascii() and 2 * len(_UNSPACED.findall(beginning)) > len(
        beginning
    )


def _lengths(
    rubric: Rubric, justifications: Mapping[str, str]
) -> tuple[list[Remark], list[Remark]]:
    """Reasons that are empty, too short or too long; and those that could not be counted."""
    violations = []
    notes = []
    for key, text in justifications.items():
        count = len(text.split())
        if not count:
            violations.append(
                Remark("justification_empty", f'the reason for "{key}" is empty', key)
            )
        elif rubric.answer.words is None:
            continue
        elif _unspaced(text):
            notes.append(
                Remark(
                    "words_not_counted",
                    f'the script of the reason for "{key}" has no spaces',
                    key,
                )
            )
        else:
            least, most = rubric.answer.words
            if not least <= count <= most:
                code = (
                    "justification_too_short"
                    if count < least
                    else "justification_too_long"
                )
                message = f'the reason for "{key}" has {count} words; asked were {least} to {most}'
                violations.append(Remark(code, message, key))
    return violations, notes


# --- where the scores stand -----------------------------------------------------------------------------------

# Strings are skipped, so that what is left of digits are numbers, in the order in which a decoder meets them.
_NUMBER = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|(-?\d[\d.eE+-]*+)', re.DOTALL)


def score_places(rubric: Rubric, reply: str) -> dict[str, tuple[int, int]]:
    """Return start and end of each score that is a number, by factor, in a reply that the contract accepted. Answers in
    labelled lines have none.

    Of several equal answers the first is taken: the others are copies. If answers differ, the contract has taken the
    last.
    """
    text = reply.removeprefix("\ufeff")
    mark = len(reply) - len(text)
    if rubric.answer.form == "token":
        number = replies.lone_number(text)
        if not number:
            return {}
        return {rubric.factors[0].key: (mark + number[0], mark + number[1])}
    if not rubric.answer.is_json:
        return {}
    candidates = replies.scan(text, answer_keys(rubric)).candidates
    copies = len({canonical(candidate) for candidate in candidates}) == 1
    answer = candidates[0] if copies else candidates[-1]
    text = answer.text
    start = mark + answer.start
    spans = [match.span(1) for match in _NUMBER.finditer(text) if match[1]]
    ordinals = itertools.count()
    document = json.loads(
        text, parse_int=lambda _: next(ordinals), parse_float=lambda _: next(ordinals)
    )
    ordinal_of = {
        leaf.factor.key: value
        for leaf, value in _scores(answer_tree(rubric), document)
        if leaf.factor
    }
    numbers = {
        key: spans[ordinal]
        for key, ordinal in ordinal_of.items()
        if type(ordinal) is int
    }
    return {key: (start + begin, start + end) for key, (begin, end) in numbers.items()}


def _scores(part: Any, value: Any) -> Iterator[tuple[AnswerLeaf, Any]]:
    """Yield the leaves of scores, each with what an answer holds there."""
    if isinstance(part, AnswerLeaf):
        if part.kind == "score":
            yield part, value
        return
    parts = (
        zip(part, value, strict=True)
        if isinstance(part, list)
        else ((inner, value[key]) for key, inner in part.members.items())
    )
    for inner, inner_value in parts:
        yield from _scores(inner, inner_value)
