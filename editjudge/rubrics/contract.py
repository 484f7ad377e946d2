"""A rubric's contract: the rules that a valid reply must follow. `check` turns a reply into a `Verdict` or a `Failure`.

A verdict has every score, exactly as the reply states it. Nothing is repaired, rounded, guessed or chosen from two
different answers. The codes of remarks do not change between releases.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, assert_never

from editjudge.canonical import Json
from editjudge.errors import did_you_mean
from editjudge.rubrics import replies
from editjudge.rubrics.answer import AnswerNode, answer_keys, answer_tree
from editjudge.rubrics.marks import read_marks
from editjudge.rubrics.model import STAGE_TEXT, Consistency, Factor, Rubric
from editjudge.rubrics.replies import CUT, Candidate, NoAnswer, Scan, scan
from editjudge.rubrics.scale import WrittenNumber
from editjudge.rubrics.verdict import Failure, Finish, Remark, Verdict

MAX_REASONS = 40
MAX_SECTIONS = 1_000
"""Maximum number of headings that are read in a reply; prompts ask for three."""


def check(
    rubric: Rubric,
    reply: str,
    *,
    identifier: str | None = None,
    strict: bool = False,
    finish: Finish = "stop",
) -> Verdict | Failure:
    """Check a reply against the rubric's contract.

    `identifier` is the identifier in the question, which the reply must repeat; with None, any identifier is accepted.
    If `strict`, a reason that breaks the word limits makes the reply invalid; otherwise it only adds a remark. Never
    raises: a reply without a valid answer is a `Failure`.
    """
    reading = _ReplyReading(rubric, identifier)
    try:
        _check_end(reply, finish)
        text = reply.removeprefix("\ufeff")
        match rubric.answer.form:
            case "lines":
                reading.take_lines(_without_thoughts(rubric, text))
            case "token" | "marked":
                reading.take_word(_without_thoughts(rubric, text))
            case "text":
                reading.take_text(_without_thoughts(rubric, text))
            case "entries" | "scores" | "list" | "nested":
                reading.take_json(text)
            case _:
                assert_never(rubric.answer.form)
        return reading.verdict(strict)
    except NoAnswer as refused:
        return Failure(refused.status, (Remark(refused.code, str(refused)),))


# --- replies without an answer --------------------------------------------------------------------------------


def _check_end(reply: str, finish: Finish) -> None:
    if finish == "refusal":
        raise NoAnswer("refusal", "the model declined to answer", "refused")
    if finish == "length":
        message = "the reply was cut off at the token limit"
        raise NoAnswer("truncated", message, "truncated")
    if not reply.strip("\ufeff \t\r\n\v\f"):
        raise NoAnswer("empty", "the reply is empty")
    if not replies.is_unicode(reply):
        message = "the reply holds half of a surrogate pair, which is not text"
        raise NoAnswer("not_text", message)


# Only applied to replies without any answer, so a false match changes nothing but the status of the failure.
_DECLINES = re.compile(
    r"\b(?:i(?:['’]m| am) (?:sorry|unable|not able|afraid)"
    r"|i (?:can(?:no|['’])?t|can not|won['’]t|will not|must decline)\b"
    r"|(?:as|being) an ai\b[^.\n]{0,40}\bi (?:do not|don['’]t|am not|lack)\b"
    r"|not able to (?:assist|help|comply)|against (?:my|the|our) (?:content |usage )?polic)",
    re.IGNORECASE,
)
_ONLY_DECLINES = re.compile(
    r"\W*(?:(?:i['’]m|i am) (?:very )?sorry|sorry\b|i (?:can(?:no|['’])?t|can not|won['’]t|am unable to) "
    r"(?:help|assist|comply|do that|fulfil))",
    re.IGNORECASE,
)
"""Beginning of a short reply that is a refusal and not a description. "I cannot see a difference" is a description."""
_OPENING = 400
"""Number of characters at the start of a reply in which to look for a refusal. Later in a reply, the same words usually
describe the images.
"""


def _no_answer(rubric: Rubric, reply: Scan, message: str) -> NoAnswer:
    """Return the failure for a reply without an answer."""
    if reply.ends_in_thought:
        cut = "the reply ends inside its own reasoning"
        return NoAnswer("truncated", cut, "truncated")
    text = reply.before.replace(CUT, "").strip()
    if not text:
        empty = "the reply holds nothing but reasoning that was set aside"
        return NoAnswer("empty", empty)
    opening = text[:_OPENING]
    for factor in rubric.factors:
        for option in (*factor.scale.choices, *factor.scale.abstain):
            # An "I cannot tell" that the question offers is an answer, not a refusal.
            core = option.strip("[]()<>\"'. ")
            if _DECLINES.search(core):
                opening = re.sub(re.escape(core), "", opening, flags=re.IGNORECASE)
    if _DECLINES.search(opening):
        return NoAnswer("refusal", "the model declined to answer", "refused")
    return NoAnswer("no_answer", message)


def _without_thoughts(rubric: Rubric, text: str) -> Scan:
    """Return a reply that is not JSON, with its thoughts removed. Raise `NoAnswer` if a thought is never closed."""
    reply = scan(text, joint=CUT)
    if reply.ends_in_thought:
        raise _no_answer(rubric, reply, "")
    return reply


def canonical(candidate: Candidate) -> str | None:
    """Return a candidate as canonical JSON, in which true and 1 differ. Return None if it is not strict JSON."""
    try:
        return json.dumps(_value(candidate), sort_keys=True)
    except NoAnswer:
        return None


def _value(candidate: Candidate) -> Json:
    if candidate.depth > replies.MAX_DEPTH:
        message = f"the JSON nests more than {replies.MAX_DEPTH} deep"
        raise NoAnswer("not_json", message)
    try:
        # A text that starts with a brace decodes to an object or fails.
        value: Json = replies.decode(candidate.text)
        return value
    except NoAnswer as error:
        if error.at_end and not candidate.closed:
            cut = "the reply breaks off inside its JSON"
            raise NoAnswer("truncated", cut, "truncated") from None
        message = f"the answer is not strict JSON: {error}"
        raise NoAnswer(error.code, message) from None


# --- the content of an answer ---------------------------------------------------------------------------------


class _ReplyReading:
    """Collects the scores, reasons and faults of an answer."""

    def __init__(self, rubric: Rubric, identifier: str | None) -> None:
        self.rubric = rubric
        self.identifier = identifier
        self.scores: dict[str, float] = {}
        self.choices: dict[str, str] = {}
        self.justifications: dict[str, str] = {}
        self.abstained: dict[str, str] = {}
        self.unscored: dict[str, object] = {}
        self.shared_reason: str | None = None
        self.reasons: list[Remark] = []
        """Reasons why there is no verdict."""
        self.violations: list[Remark] = []
        self.notes: list[Remark] = []

    def verdict(self, strict: bool) -> Verdict | Failure:
        """Return a verdict if every factor has a score, else a failure."""
        if self.reasons:
            return Failure("invalid", tuple(self.reasons))
        reasons = {
            factor.key: self.justifications.get(factor.key, self.shared_reason)
            for factor in self.rubric.factors
        }
        justifications = {k: text for k, text in reasons.items() if text is not None}
        texts = justifications
        if not self.rubric.factors:
            texts = {
                k: text for k, text in self.unscored.items() if isinstance(text, str)
            }
        remarks = list(_length_remarks(self.rubric, texts))
        lengths = [remark for remark in remarks if remark.code != _UNCOUNTED]
        uncounted = [remark for remark in remarks if remark.code == _UNCOUNTED]
        violations = tuple(self.violations)
        notes = tuple(self.notes)
        if strict and lengths:
            return Failure("invalid", tuple(lengths), violations, notes)
        return Verdict(
            self.scores,
            justifications,
            (*violations, *lengths),
            (*notes, *uncounted),
            self.choices,
            self.abstained,
            self.unscored,
        )

    # the forms of an answer

    def take_json(self, text: str) -> None:
        rubric = self.rubric
        reply = scan(text, answer_keys(rubric))
        if reply.ends_in_thought or not reply.candidates:
            message = "the reply holds no JSON object with a key of the answer"
            raise _no_answer(rubric, reply, message)
        self._take_object(answer_tree(rubric), self._chosen(reply.candidates))
        sections = _sections(rubric, reply)
        last = rubric.answer.sections[-1:]
        heads = [s.before_json for s in sections if s.title in last]
        if heads and not heads[0]:
            # JSON before that heading is a draft.
            message = f'no JSON of the answer stands under "## {last[0]}"'
            raise NoAnswer("no_answer", message)
        if rubric.answer.prose:
            self._share(replies.without_fences(reply.before))
        rule = rubric.consistency
        if rule and not self.reasons and rule.factor in self.scores:
            self._compare_list(rule, sections)
        self.violations += _remarks_around(rubric, reply, sections)

    def take_lines(self, reply: Scan) -> None:
        """Read scores and reasons from labelled lines."""
        rubric = self.rubric
        factors = {rubric.label(factor): factor for factor in rubric.factors}
        headings = [factor.heading for factor in rubric.factors if factor.heading]
        labels = [factor.label or factor.key for factor in rubric.factors]
        texts = rubric.answer.texts
        lines = replies.read_lines(reply.before, labels, texts, headings)
        if not lines.values:
            message = f'no line begins with "{next(iter(factors))}:" or another label of the answer'
            raise _no_answer(rubric, reply, message)
        most = 0
        for label in (*factors, *texts):
            contents = lines.values.get(label) or lines.texts.get(label) or []
            factor = factors.get(label)
            key = factor.key if factor else None
            if not contents:
                code = "missing_factor" if factor else "missing_key"
                self._refuse(code, f'no line begins with "{label}:"', key)
            elif len({*contents}) > 1:
                message = (
                    f'{len(contents)} lines begin with "{label}:", and they differ'
                )
                self._refuse("ambiguous", message, key)
            elif factor:
                self.take_score(factor, replies.value_of(contents[0]))
            else:
                self._share(contents[0].strip())
            most = max(most, len(contents))
        if most > 1:
            self._violate("repeated_answer", f"the same line stands {most} times")
        # text below headings was asked for
        if lines.prose and not headings:
            self._violate("prose", "text stands around the lines that were asked for")

    def take_word(self, reply: Scan) -> None:
        """Read the score from a reply that consists only of the score, or that contains a single mark."""
        (factor,) = self.rubric.factors
        text = reply.before
        if self.rubric.answer.form == "token":
            value = replies.value_of(text.strip(replies.AROUND))
            self.take_score(factor, value)
            if self.reasons and _is_text(value):
                message = f"the reply is more or other than {factor.scale.words}"
                raise _no_answer(self.rubric, reply, message)
            return
        marks = [choice for choice in factor.scale.choices if choice in text]
        if not marks:
            message = f"the reply holds none of {factor.scale.words}"
            raise _no_answer(self.rubric, reply, message)
        if len(marks) > 1:
            message = f"the reply holds {' and '.join(marks)}, and one was asked for"
            raise NoAnswer("ambiguous", message)
        self.take_score(factor, marks[0])
        reason = text.replace(CUT, "").replace(marks[0], "").strip()
        self.justifications[factor.key] = reason

    def take_text(self, reply: Scan) -> None:
        """Read a reply that is a text without scores."""
        text = replies.without_fences(reply.before.replace(CUT, ""))
        if not text or (len(text) < _OPENING and _ONLY_DECLINES.match(text)):
            raise _no_answer(self.rubric, reply, "the reply declines, or holds no text")
        self.unscored[STAGE_TEXT] = text

    # JSON

    def _chosen(self, candidates: Sequence[Candidate]) -> Json:
        """Return the object that is the answer. Several different objects are an error, unless the rubric accepts the
        last one.
        """
        last_counts = bool(self.rubric.answer.sections)
        values = [_value(c) for c in candidates[-1:] if last_counts] or [
            _value(c) for c in candidates
        ]
        count = len(candidates)
        if count > 1 and len({*map(canonical, candidates)}) == 1:
            self._violate("repeated_answer", f"the same answer stands {count} times")
        elif count > 1 and not last_counts:
            message = f"the reply holds {count} answers that differ; exactly one was asked for"
            raise NoAnswer("ambiguous", message)
        elif count > 1:
            message = "an earlier object was passed over: the last one counts"
            self.notes.append(Remark("earlier_answer", message))
        return values[-1]

    def _take_object(
        self, part: AnswerNode, value: Mapping[str, object], path: str = ""
    ) -> None:
        """Read the scores and reasons of an object and of the objects inside it. `path` is the object's path in the
        answer.
        """
        if value.keys() != part.members.keys():
            self._compare_keys(part, value)
        for key, inner in part.in_order:
            if key in value:
                self._take(inner, value[key], f"{path}{key}")

    def _take(self, part: AnswerNode, value: object, path: str) -> None:
        is_nested = self.rubric.answer.form == "nested"
        match part.kind:
            case "score" if part.factor:
                self.take_score(part.factor, value)
            case "object" if isinstance(value, dict):
                # Messages name an entry by its factor, and a nested value by its path.
                prefix = f"{path}." if part.factor or is_nested else ""
                self._take_object(part, value, prefix)
            case "object" if part.factor:
                keys = " and ".join(key for key, _ in part.in_order)
                expected = f"an object with {keys}"
                self._refuse_type(path, expected, value, part.factor.key)
            case "object":
                entries = "" if is_nested else " with one entry a factor"
                self._refuse_type(path, f"an object{entries}", value)
            case "list" if isinstance(value, list) and len(value) == len(part.items):
                for number, (item, inner) in enumerate(
                    zip(part.items, value, strict=True)
                ):
                    self._take(item, inner, f"{path}[{number}]" if is_nested else path)
            case "list":
                kind = "" if is_nested else " scores"
                expected = f"a list of {len(part.items)}{kind}"
                self._refuse_type(path, expected, value)
            case "other":
                if not _is_kind(value, part.json_type):
                    expected = f"a value of the kind {part.json_type}"
                    self._refuse_type(path, expected, value)
                else:
                    self.unscored[path] = _plain(value)
            case _:
                self._take_text(part, value, path)

    def _take_text(self, part: AnswerNode, value: object, path: str) -> None:
        factor = part.factor.key if part.factor else None
        if not isinstance(value, str) or not _is_text(value):
            expected = "a string" if part.kind == "id" else "text"
            self._refuse_type(path, expected, value, factor)
        elif factor:
            self.justifications[factor] = value
        elif part.kind == "text":
            if not self.rubric.factors or self.shared_reason is not None:
                self.unscored[path] = value
            self._share(value)
        elif self.identifier not in (None, value):
            message = f'"{path}" is "{value[:80]}" but the question was about "{self.identifier}"'
            self._refuse("wrong_id", message)

    def _compare_keys(self, part: AnswerNode, value: Mapping[str, object]) -> None:
        """Record an object's missing and unknown keys."""
        factors = part.factors
        entry = part.factor.key if part.factor else None
        for key, _ in part.in_order:
            kind = "factor" if key in factors else "key"
            message = f'the {kind} "{key}" is missing'
            if entry:
                message = f'"{entry}" has no "{key}"'
            if key not in value:
                self._refuse(f"missing_{kind}", message, entry or factors.get(key))
        kind = "factor" if len(factors) == len(part.members) else "key"
        unknown = (key[:80] for key in value if key not in part.members)
        # At most MAX_REASONS, since a reply may have a million keys.
        for key in itertools.islice(unknown, MAX_REASONS):
            message = f'the {kind} "{key}"'
            if entry:
                message = f'"{entry}" has a key "{key}" that'
            hint = did_you_mean(key, part.members)
            self._refuse(f"unknown_{kind}", f"{message} was not asked for{hint}", entry)

    def _share(self, text: str) -> None:
        """Use the first free text as the reason for every factor without a reason."""
        if self.shared_reason is None:
            self.shared_reason = text

    # scores

    def take_score(self, factor: Factor, value: object) -> None:
        """Read the value of a factor: a score, a choice or an abstention."""
        scale = factor.scale
        if self.rubric.answer.quoted and isinstance(value, str):
            value = replies.number_of(value)
        is_text = _is_text(value)
        if is_text and value in scale.abstain:
            self.abstained[factor.key] = str(value)
        elif is_text and value in scale.choices:  # to the letter: "A" is not "a"
            self.choices[factor.key] = str(value)
        elif scale.choices:
            kind = "none of the words offered" if is_text else _kind_in_words(value)
            message = f'the choice of "{factor.key}" is {kind}; expected {scale.words}'
            self._refuse("choice_unknown", message, factor.key)
        elif (score := scale.read(value)) is not None:
            self.scores[factor.key] = score
        else:
            kind = _kind_in_words(value)
            # 6.5 may be quoted; 6.0 would give away a score that is accepted.
            if _is_kind(value, "number") and float(str(value)) not in scale.values:
                kind = str(value)[:40]
            if is_text and not self.rubric.answer.is_json:
                kind = _text_in_words(str(value))
            self._refuse(
                _score_code(value, decimals=scale.range is not None),
                f'the score of "{factor.key}" is {kind}; expected {scale.words}',
                factor.key,
            )

    def _compare_list(self, rule: Consistency, sections: Sequence[_Section]) -> None:
        """Record a fault if a list of differences contradicts the score or cannot be read.

        The message never names the score that would be accepted, since a judge would just repeat it.
        """
        # Without its heading, the list may be in any section.
        lists = [s for s in sections if s.title == rule.section] or sections
        marks = read_marks("\n".join(section.text for section in lists), rule)
        score = self.scores[rule.factor]
        contradiction = ""
        if marks.failing is not None and score != rule.fail_score:
            contradiction = f'a listed difference is marked "{marks.failing}"'
        elif marks.all_pass and score != rule.pass_score:
            contradiction = "every listed difference has a mark that passes"
        # Prose beside marks that pass may mention a difference that fails.
        in_doubt = marks.prose and marks.passing and marks.failing is None
        if contradiction:
            message = f"the score and the list contradict each other: {contradiction}"
            self._refuse("inconsistent", message, rule.factor)
        elif marks.unread or (in_doubt and score != rule.pass_score):
            message = f'lines under "## {rule.section}" have no mark that can be read, so the list proves nothing'
            self._violate("unread_mark", message, rule.factor)

    # remarks

    def _violate(self, code: str, message: str, factor: str | None = None) -> None:
        self.violations.append(Remark(code, message, factor))

    def _refuse_type(
        self, path: str, expected: str, value: object, factor: str | None = None
    ) -> None:
        message = f'"{path}" is {_kind_in_words(value)}; expected {expected}'
        self._refuse("wrong_type", message, factor)

    def _refuse(self, code: str, message: str, factor: str | None = None) -> None:
        if len(self.reasons) < MAX_REASONS:
            self.reasons.append(Remark(code, message, factor))


def _plain(value: object) -> object:
    """Return a value that is not scored as plain JSON. Its numbers are ordinary ones, unless they are too large."""
    match value:
        case WrittenNumber():
            number = float(value)
            return number if math.isfinite(number) else str(value)
        case dict():
            return {key: _plain(inner) for key, inner in value.items()}
        case list():
            return [_plain(inner) for inner in value]
    return value


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not isinstance(value, WrittenNumber)


def _is_kind(value: object, kind: str) -> bool:
    if kind == "list" or kind.endswith("[]"):
        item = kind.removesuffix("[]")
        return isinstance(value, list) and (
            kind == "list" or all(_is_kind(each, item) for each in value)
        )
    if kind == "object":
        return isinstance(value, dict)
    if kind == "string":
        return _is_text(value)
    if kind == "boolean":
        return isinstance(value, bool)
    return type(value) is int or (kind == "number" and isinstance(value, WrittenNumber))


def _score_code(value: object, *, decimals: bool) -> str:
    match value:
        case None:
            return "score_null"
        case bool():
            return "score_bool"
        case WrittenNumber() if not decimals and not _INTEGER.fullmatch(value):
            return "score_decimal"
        case int() | WrittenNumber():
            return "score_out_of_scale"
        case str():
            return "score_string"
    return "score_wrong_type"


def _kind_in_words(value: object) -> str:
    """Return the type of a value for a message. The judge sees the message, so it must not contain a score that the
    judge could copy.
    """
    match value:
        case bool() | None:
            return json.dumps(value)
        case dict():
            return "an object"
        case list():
            return f"a list of {len(value)}"
        case WrittenNumber() if not _INTEGER.fullmatch(value):
            return "a decimal number"
    return "a string" if _is_text(value) else "a number"


def _text_in_words(text: str) -> str:
    """Describe a score in an answer that is not JSON. Like `_kind_in_words`, it never quotes a number."""
    if not text:
        return "left out"
    if _OUT_OF.search(text):
        return "a fraction, or a score out of a total"
    if re.search(r"\d", text):
        return "a number with something beside it"
    return "text that is no number"


_INTEGER = re.compile(r"-?\d+")
_OUT_OF = re.compile(r"\d\s*(?:/|out of|%)", re.IGNORECASE)


# --- text around an answer ------------------------------------------------------------------------------------


class _Section(NamedTuple):
    title: str | None
    """Heading above the text; None for the text before the first heading."""
    text: str
    before_json: bool


@functools.lru_cache(maxsize=64)
def _heading(titles: tuple[str, ...]) -> re.Pattern[str]:
    # Possessive, and one pass for all titles, so that megabytes of spaces or empty lines take linear time.
    spaced = (r"[ \t]++".join(map(re.escape, title.split())) for title in titles)
    options = "|".join(f"({title})" for title in spaced)
    return re.compile(
        rf"^[ \t]*+#{{1,6}}[ \t]*+(?:{options})[ \t]*+:?[ \t]*+\r?$",
        re.IGNORECASE | re.MULTILINE,
    )


def _sections(rubric: Rubric, reply: Scan) -> list[_Section]:
    """Split a reply at the headings that the rubric asks for. The same heading may occur several times."""
    titles = dict.fromkeys(rubric.answer.sections)
    if rubric.consistency:
        titles[rubric.consistency.section] = None
    if not titles:
        return []
    names = tuple(titles)
    text = f"{reply.before}\n{reply.after}"
    sections: list[_Section] = []
    title = None
    begin = 0
    json_start = len(reply.before)
    for match in _heading(names).finditer(text):
        before = text[begin : match.start()]
        sections.append(_Section(title, before, begin <= json_start))
        if len(sections) >= MAX_SECTIONS:
            raise replies.too_complex()
        title = names[(match.lastindex or 1) - 1]
        begin = match.end()
    return [*sections, _Section(title, text[begin:], begin <= json_start)]


def _remarks_around(
    rubric: Rubric, reply: Scan, sections: Sequence[_Section]
) -> Iterator[Remark]:
    after = replies.without_fences(reply.after)
    present = {section.title for section in sections if section.before_json}
    titles = rubric.answer.sections
    for title in titles:
        if title not in present:
            yield Remark("missing_section", f'the section "## {title}" is missing')
    if titles and after:
        message = "text follows the JSON, which should come last"
        yield Remark("text_after_json", message)
    elif after or (
        not (titles or rubric.answer.prose) and replies.without_fences(reply.before)
    ):
        message = "text stands around the JSON where only JSON was asked for"
        yield Remark("prose", message)


# Han, kana, Thai, Lao, Myanmar, Khmer, Tibetan: written without spaces between words.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_UNCOUNTED = "words_not_counted"


def _is_unspaced(text: str) -> bool:
    beginning = text[:1000]  # many times the longest reason that a rubric asks for
    unspaced = () if beginning.isascii() else _UNSPACED.findall(beginning)
    return 2 * len(unspaced) > len(beginning)


def _length_remarks(
    rubric: Rubric, justifications: Mapping[str, str]
) -> Iterator[Remark]:
    """Yield remarks on reasons that are empty, too short or too long, or whose words cannot be counted."""
    for key, text in justifications.items():
        count = len(text.split())
        least, most = rubric.answer.words or (count, count)
        if not count:
            message = f'the reason for "{key}" is empty'
            yield Remark("justification_empty", message, key)
        elif rubric.answer.words and _is_unspaced(text):
            message = f'the script of the reason for "{key}" has no spaces'
            yield Remark(_UNCOUNTED, message, key)
        elif not least <= count <= most:
            message = f'the reason for "{key}" has {count} words; asked were {least} to {most}'
            size = "short" if count < least else "long"
            yield Remark(f"justification_too_{size}", message, key)


# --- positions of the scores ----------------------------------------------------------------------------------

# Strings are matched without a group, so that group 1 holds only the numbers, in the order of a decoder.
_NUMBER = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|(-?\d[\d.eE+-]*+)', re.DOTALL)


def score_places(rubric: Rubric, reply: str) -> dict[str, tuple[int, int]]:
    """Return the start and end of each numeric score in an accepted reply, keyed by factor. Labelled lines have no
    positions.

    If the same answer occurs several times, the positions are in the first one. If the answers differ, the positions
    are in the last one, which the contract accepted.
    """
    text = reply.removeprefix("\ufeff")
    start = len(reply) - len(text)
    spans: dict[str, tuple[int, int]] = {}
    if rubric.answer.form == "token":
        number = replies.lone_number(text)
        spans = {rubric.factors[0].key: number} if number else {}
    elif rubric.answer.is_json:
        candidates = scan(text, answer_keys(rubric)).candidates
        are_copies = len({*map(canonical, candidates)}) == 1
        answer = candidates[0 if are_copies else -1]
        start += answer.start
        numbers = [m.span(1) for m in _NUMBER.finditer(answer.text) if m[1]]
        ordinals = itertools.count()
        document = json.loads(
            answer.text,
            parse_int=lambda _: next(ordinals),
            parse_float=lambda _: next(ordinals),
        )
        for key, ordinal in _scores(answer_tree(rubric), document):
            if type(ordinal) is int:
                spans[key] = numbers[ordinal]
    return {key: (start + begin, start + end) for key, (begin, end) in spans.items()}


def _scores(part: AnswerNode, value: Any) -> Iterator[tuple[str, object]]:
    """Yield each factor of an answer and the value given as its score."""
    if part.kind == "score" and part.factor:
        yield part.factor.key, value
    for key, inner in part.members.items():
        yield from _scores(inner, value[key])
    for item, score in zip(part.items, value if part.items else (), strict=True):
        yield from _scores(item, score)
