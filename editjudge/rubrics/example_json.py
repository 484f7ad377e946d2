"""The shape of the JSON example in a published prompt.

Such examples are not strict JSON: values are described (`<integer between 1-7>`, `[5, 3, or 1]`), lines have
comments, and quotation marks are single. Only prompts are read this way; replies must be strict JSON.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias

from editjudge.rubrics import replies
from editjudge.rubrics.model import AnswerFormat
from editjudge.rubrics.strict_yaml import load_table, pattern

_SYNTAX = (
    r"""(?://|\#)[^\n]*|/\*.*?\*/|{quoted}|<[^<>]*>|[{{}}\[\]:,]|[^\s"{{}}\[\]:,<>]+"""
)
_DOUBLE = re.compile(_SYNTAX.format(quoted=r'"(?:[^"\\]|\\.)*"'), re.DOTALL)
_SINGLE = re.compile(_SYNTAX.format(quoted=r"""'(?:[^'\\]|\\.)*'"""), re.DOTALL)
_MAX_DEPTH = 8


@dataclass(frozen=True)
class Leaf:
    """A value in an example: a literal or a description."""

    text: str
    quoted: bool = False
    items: tuple[str, ...] | None = None
    """Items of a bracketed list: several values, or the options for one value. None if there are no brackets."""


Example: TypeAlias = "dict[str, Example] | Leaf"

OWN_FORM = "--example 0, which adds our own JSON format below the text"


class Ask(ValueError):
    """An open question to the user about a prompt: the reason, the subject, and the option that answers it."""

    def __init__(
        self, reason: str, about: str = "answer", option: str = OWN_FORM
    ) -> None:
        super().__init__(f"{about}: {reason} ({option})")
        self.about = about
        self.reason = reason
        self.option = option


# --- reading --------------------------------------------------------------------------------------------------


def find(text: str) -> Iterator[tuple[int, int, dict[str, Example] | Ask]]:
    """Yield the start, end and shape of every block in braces that contains keys and values. If the shape is unclear,
    yield an `Ask` in its place.
    """
    end = 0
    for start, end in replies.blocks(text):
        if not re.search(r"""["'\w]\s*:""", text[start:end]):
            continue  # a placeholder, or braces in prose
        try:
            if re.search(r"\[\s*\Z", text[:start][-40:]):
                raise Ask("it is a list of objects")
            yield start, end, read(text[start:end])
        except Ask as error:
            yield start, end, error
    if (start := text.find("{", end)) >= 0:
        yield start, len(text), Ask("its brace is never closed")


def read(block: str) -> dict[str, Example]:
    """Return the keys of an example with the descriptions of their values. Raise `Ask` if the block is not an object."""
    try:
        return _read(_DOUBLE.findall(block))
    except Ask:
        if "'" not in block:
            raise
    tokens = _SINGLE.findall(block)
    return _read([re.sub(r"(?s)\A'(.*)'\Z", r'"\1"', token) for token in tokens])


def _read(tokens: Sequence[str]) -> dict[str, Example]:
    rest = [token for token in tokens[::-1] if not token.startswith(("//", "#", "/*"))]
    value = _value(rest, 0)
    if not isinstance(value, dict) or not value or rest:
        raise Ask("there is text after its last brace, or it is empty")
    return value


def _value(rest: list[str], depth: int) -> Example:
    """Remove a value from the end of `rest`, which has the tokens in reverse order, and return it."""
    if not rest or depth > _MAX_DEPTH:
        raise Ask("it breaks off")
    if rest[-1] == "{":
        return _members(rest, depth)
    tokens = []
    if rest[-1] == "[":
        rest.pop()
        while rest and rest[-1] != "]":
            if rest[-1] in "{[":
                raise Ask("it contains a list of objects")
            tokens.append(rest.pop())
        del rest[-1:]
        text = " ".join(tokens)
        items = (item.strip() for item in text.split(","))
        return Leaf(text, items=tuple(filter(None, items)))
    # A key ends the value before it, even if the comma or the value itself is missing.
    while rest and rest[-1] not in ",}" and not _is_key(rest):
        tokens.append(rest.pop())
    text = " ".join(tokens)
    if len(tokens) == 1 and _is_quoted(text):
        return Leaf(text[1:-1], quoted=True)
    return Leaf(text)


def _members(rest: list[str], depth: int) -> dict[str, Example]:
    members: dict[str, Example] = {}
    rest.pop()
    while rest and rest[-1] != "}":
        is_key = _is_key(rest)
        token = rest.pop()
        key = token[1:-1]
        if not is_key:
            raise Ask(f"{token[:40]} is not a quoted key")
        if key in members:
            raise Ask(f"the key {token[:40]} occurs twice")
        if pattern("stand_in_key").fullmatch(key):
            raise Ask(f"the key {token[:40]} is a placeholder for other keys")
        rest.pop()
        members[key] = _value(rest, depth + 1)
        if rest[-1:] == [","]:
            rest.pop()
    if not rest:
        raise Ask("it breaks off")
    rest.pop()
    return members


def _is_quoted(token: str) -> bool:
    return len(token) > 1 and token[0] == token[-1] == '"'


def _is_key(rest: list[str]) -> bool:
    return _is_quoted(rest[-1]) and rest[-2:-1] == [":"]


def objects(
    example: dict[str, Example], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], dict[str, Leaf]]]:
    """Yield each object's path of keys, and its members that are not objects."""
    yield path, {k: value for k, value in example.items() if isinstance(value, Leaf)}
    for key, value in example.items():
        if isinstance(value, dict):
            yield from objects(value, (*path, key))


def leaves(example: dict[str, Example]) -> list[Leaf]:
    return [leaf for _, members in objects(example) for leaf in members.values()]


def outline(example: dict[str, Example]) -> frozenset[tuple[tuple[str, ...], str]]:
    """Return every key with its path. Examples with the same keys have equal outlines."""
    return frozenset(
        (path, key) for path, members in objects(example) for key in ("", *members)
    )


def keys_in(example: dict[str, Example]) -> list[str]:
    """Return every key at any level, in the order of the example and without duplicates."""
    keys = list(example)
    for value in example.values():
        if isinstance(value, dict):
            keys += keys_in(value)
    return list(dict.fromkeys(keys))


# --- kinds of values ----------------------------------------------------------------------------------


Kind: TypeAlias = Literal["score", "text", "unclear", "neither"]


def values_of(described: str) -> tuple[int, ...]:
    """Return the legal scores that a placeholder describes, such as '1-7', 'integer_1_to_7' or '5, 3, or 1'. Return an
    empty tuple if it describes none.
    """
    text = described.replace("_", " ")
    if span := pattern("span").search(text):
        low, high = (int(number) for number in span.groups() if number is not None)
        values = span_of(low, high)
        # '1-5, or 0 if there is no edit': the text outside the range may name another score.
        rest = text[: span.start()] + " " + text[span.end() :]
        others = re.findall(load_table("prompts")["parts"]["INTEGER"], rest)
        return values if {*map(int, others)} <= {*values} else ()
    if listed := pattern("listed").search(text):
        values = tuple(dict.fromkeys(map(int, re.findall(r"-?\d+", listed.group()))))
        # '8/10' is eight out of ten; '0/1' and '1/0' are alternatives.
        out_of = "/" in listed.group() and len(values) == 2 and {*values} != {0, 1}
        return values if len(values) > 1 and not out_of else ()
    return ()


def span_of(low: int, high: int) -> tuple[int, ...]:
    # 100: a percentage is the widest scale in published prompts.
    return tuple(range(low, high + 1)) if low < high <= low + 100 else ()


def kind_of(key: str, leaf: Leaf) -> Kind:
    """Classify a leaf as a score or a text. It is `unclear` if the user must be asked, and `neither` if a rubric cannot
    represent it.
    """
    if offers_words(leaf):
        return "neither"
    if leaf.items is not None:
        if len(leaf.items) == 1 and re.search(r"[^\W\d]|\d\D+\d", leaf.text):
            return kind_of(key, Leaf(f"[{leaf.text}]"))
        return "score" if re.search(r"\d\D+\bor\b|\d\s*[|/]", leaf.text) else "neither"
    text = leaf.text.replace("_", " ")
    values = values_of(text)
    if re.fullmatch(r"[-+]?\d+(?:\.\d+)?(?:\s*/\s*\d+)?", text):
        return "unclear" if leaf.quoted else "score"
    literal = re.search(r"(?i)\b(?:true|false|null|yes|no)\b", text)
    if literal and len(text) < 24 and not leaf.quoted:
        return "neither"
    if values and re.search(r"(?i)\bnull\b", text):
        return "neither"
    says_score = bool(values or pattern("says_score").search(text))
    says_text = bool(pattern("says_text").search(text))
    if says_text and not says_score:
        return "text"
    kind_by_key = _kind_by_key(key)
    is_given = leaf.quoted and not _is_placeholder(text)
    if is_given:
        return "unclear" if kind_by_key == "score" else "text"
    if says_text or not says_score:
        return kind_by_key
    if kind_by_key != "text":
        return "score"
    return "unclear" if values else "text"


def _is_placeholder(text: str) -> bool:
    return text[:1] in "<[({" or bool(values_of(text))


def _kind_by_key(key: str) -> Kind:
    """Return the kind that the last relevant word of a key suggests: `score_reason` is a text, `reason_score` is a
    score.
    """
    text_end, score_end = (
        max((match.end() for match in pattern(kind).finditer(key)), default=0)
        for kind in ("text_key", "score_key")
    )
    if text_end == score_end:
        return "unclear"
    return "text" if text_end > score_end else "score"


def offers_words(leaf: Leaf) -> bool:
    """Whether a leaf offers a choice between words, such as "pass | fail" or "yes or no"."""
    text = leaf.text.strip("<>[]() ")
    options = [option.strip("\"' ") for option in text.split("|")]
    several = len(options) > 1 and all(map(pattern("offered_word").fullmatch, options))
    return several or bool(pattern("yes_or_no").fullmatch(text))


def is_number(text: str) -> bool:
    """Whether a string is a number, as opposed to the description of one."""
    return bool(re.fullmatch(r"[-+]?\d+(?:\.\d+)?", text))


def is_given(leaf: Leaf) -> bool:
    """Whether an example contains a literal score (4, "8/10", true, "Yes") instead of a description."""
    text = leaf.text
    says_score = pattern("says_score").search(text.replace("_", " "))
    if values_of(text) or says_score or not re.search(r"\w", text):
        return False
    if pattern("given_score").fullmatch(text) or text in ("true", "false", "null"):
        return True
    return leaf.quoted and not _is_placeholder(text) and len(text) > 1


def gives_numbers(example: dict[str, Example]) -> bool:
    """Whether an example contains a literal number, as opposed to only descriptions."""
    texts: list[str] = []
    for leaf in leaves(example):
        texts += [leaf.text] if leaf.items is None else leaf.items
    return any(map(is_number, texts))


# --- the shape of an answer -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExampleShape:
    """The answer that an example describes."""

    answer: AnswerFormat
    described: Mapping[str, str]
    """Description of each factor's score in the example. The scores of a list have no names and are numbered."""
    paths: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Paths of each factor's score and reason in a nested answer, as keys joined by dots."""


class _Group(NamedTuple):
    """The leaves of one object in an example. `scores` and `texts` map keys to descriptions."""

    path: tuple[str, ...]
    scores: dict[str, str]
    texts: dict[str, str]
    unclear: str = ""
    """First key that may be either a score or a text. In an entry, which has one of each, the key's name decides."""

    def check(self) -> None:
        if self.unclear:
            reason = f'the JSON example does not say whether "{self.unclear}" is a score or a text'
            raise Ask(reason, "factors", "--factor KEY, once for each score")


_BARE = AnswerFormat(form="scores", score_key="", reason_key="")
_ID_KEY = re.compile(r"(?:image|item|sample|edit)?_?id", re.IGNORECASE)
_ONE_SENTENCE = r"(?i)\b(?:one|a single)[- ]sentence\b"


def shape_of(example: dict[str, Example], named: Collection[str] = ()) -> ExampleShape:
    """Return the answer shape that an example describes. `named` contains the factors that the user named, if any.

    The scores are in one object, in one list, or in an entry for each factor. Any other shape is nested, with a path
    for each score. Raises `Ask` if the shape is unclear.
    """
    lists: dict[str, Leaf] = {}
    id_key = None
    groups = []
    for path, members in objects(example):
        if not path:
            id_key = next(filter(_ID_KEY.fullmatch, members), None)
            lists = {
                key: leaf
                for key, leaf in members.items()
                if key != id_key and _is_list(key, leaf, named)
            }
        taken = () if path else (id_key, *lists)
        rest = {k: v for k, v in members.items() if k not in taken}
        groups.append(_group(path, rest, named))
    top = groups[0]
    top.check()
    answer = replace(_BARE, id_key=id_key, texts=tuple(top.texts))
    scored = [group for group in groups if group.scores]
    if lists:
        return _list_shape(answer, lists, [*scored, *groups[1:]])
    if not scored:
        reason = "the JSON example has no value that reads as a score"
        raise Ask(reason, "factors", "--factor KEY and --scale")
    if len(groups) == 1:
        return _with_own_reasons(ExampleShape(answer, top.scores))
    even = None if top.scores else _even_shape(answer, groups, named)
    return even or _nested_shape(answer, groups)


def _group(
    path: tuple[str, ...], members: dict[str, Leaf], named: Collection[str]
) -> _Group:
    scores = {}
    texts = {}
    unclear = ""
    for key, leaf in members.items():
        kind = kind_of(key, leaf)
        if kind == "neither" and (key not in named or offers_words(leaf)):
            raise Ask(
                f'"{key}" is {leaf.text[:40]}, which is neither a score nor a text'
            )
        names_score = path and pattern("score_key").search(key)
        if key in named or kind == "score" or (kind == "unclear" and names_score):
            scores[key] = leaf.text
        else:
            texts[key] = leaf.text
        if kind == "unclear" and not named:
            unclear = unclear or key
    return _Group(path, scores, texts, unclear)


def _is_list(key: str, leaf: Leaf, named: Collection[str]) -> bool:
    """Whether brackets contain several scores, as opposed to the scale of a single score that the user named."""
    if leaf.items is None or offers_words(leaf) or kind_of(key, leaf) != "neither":
        return False
    return not (key in named and may_be_scale(leaf.items))


def may_be_scale(items: Collection[str]) -> bool:
    """Whether the items of a list are consecutive integers (`[1, 2, 3]`), which may be the scale of one score."""
    numbers = sorted(int(item) for item in items if re.fullmatch(r"-?\d{1,4}", item))
    return len(items) == len(numbers) > 1 and numbers == list(
        range(numbers[0], numbers[-1] + 1)
    )


def _list_shape(
    answer: AnswerFormat, lists: dict[str, Leaf], others: Sequence[_Group]
) -> ExampleShape:
    (key, leaf), *more = lists.items()
    items = leaf.items or ()
    if re.search(r"[\"']", leaf.text) or any(map(pattern("says_text").search, items)):
        raise Ask(f'"{key}" is a list of texts, which a rubric cannot have')
    if more or others:
        raise Ask(f'the JSON example has scores in several places, one of them "{key}"')
    is_open = "..." in leaf.text or "…" in leaf.text
    described = {} if is_open else {str(n): item for n, item in enumerate(items)}
    return ExampleShape(replace(answer, envelope=key, form="list"), described)


def _with_own_reasons(shape: ExampleShape) -> ExampleShape:
    """Return the shape as a nested answer if each score has a reason of the same name (`fit_score`, `fit_reason`).
    Otherwise return it unchanged.
    """
    texts = shape.answer.texts
    reasons = {_stem(text): text for text in texts}
    paths = {key: (key, reasons.get(_stem(key), "")) for key in shape.described}
    are_paired = all(_stem(key) and reason for key, reason in paths.values())
    has_dots = "." in "".join((*paths, *texts))
    if len(paths) < 2 or not are_paired or has_dots:
        return shape
    paired = [reason for _, reason in paths.values()]
    others = tuple(text for text in texts if text not in paired)
    answer = replace(shape.answer, form="nested", texts=others)
    return replace(shape, answer=answer, paths=paths)


def _stem(key: str) -> str:
    """Return a key without the words that mark it as a score or a text: `fit_score` becomes `fit`."""
    kinds = (pattern("score_key"), pattern("text_key"))
    parts = [
        part
        for part in re.split(r"[\W_]+", key)
        if not any(kind.search(part) for kind in kinds)
    ]
    return "_".join(parts).casefold()


def _even_shape(
    answer: AnswerFormat, groups: Sequence[_Group], named: Collection[str]
) -> ExampleShape | None:
    """Return the shape if the scores are in one envelope, or if each factor has an entry. Return None for any other
    layout.
    """
    entries = [group for group in groups if group.scores]
    first = entries[0]
    *parents, factor = first.path
    score_key, *more_scores = first.scores
    reason_key = "".join(first.texts)
    is_named = not first.scores.keys().isdisjoint(named)
    says_score = pattern("score_key").search(score_key) and not is_named
    if len(groups) == 2 and not first.texts and (more_scores or not says_score):
        first.check()
        return ExampleShape(replace(answer, envelope=factor), first.scores)
    layouts = {(entry.path[:-1], *entry.scores, *entry.texts) for entry in entries}
    if (
        len(layouts) > 1
        or more_scores
        or is_named
        or len(first.texts) > 1
        or not (reason_key or says_score)
        or len(parents) > 1
        # Other than the entries there may only be the top level and an envelope without leaves.
        or len(groups) != 1 + len(parents) + len(entries)
        or (parents and groups[1].texts)
    ):
        return None
    reasons = (entry.texts.get(reason_key, "") for entry in entries)
    is_sentence = any(re.search(_ONE_SENTENCE, reason) for reason in reasons)
    answer = replace(
        answer,
        envelope="".join(parents),
        form="entries",
        score_key=score_key,
        reason_key=reason_key,
        reason="one sentence" if is_sentence else "",
    )
    return ExampleShape(answer, {e.path[-1]: e.scores[score_key] for e in entries})


def _nested_shape(answer: AnswerFormat, groups: Sequence[_Group]) -> ExampleShape:
    """Return a nested shape, with a path for each score, for scores at several levels or next to other keys."""
    texts: list[str] = []
    described: dict[str, str] = {}
    paths: dict[str, tuple[str, str]] = {}
    for group in groups:
        group.check()
        path, scores, group_texts, _ = group
        if dotted := [key for key in (*path, *scores, *group_texts) if "." in key]:
            raise Ask(f'the key "{dotted[0]}" has a dot, which separates keys')
        reasons = [".".join((*path, key)) for key in group_texts]
        # If an object has one score, its path names the score, and the only text next to it is the reason.
        is_alone = len(scores) == 1 and path != ()
        reason = reasons.pop() if is_alone and len(reasons) == 1 else ""
        texts += reasons
        for score, text in scores.items():
            full = (*path, score)
            is_plain = is_alone and pattern("score_key").search(score)
            name = "_".join(path if is_plain else full)
            if name in paths:
                raise Ask(f'two scores of the JSON example would be called "{name}"')
            paths[name] = (".".join(full), reason)
            described[name] = text
    # Scores and reasons may have the same keys in two objects: `score.fit` and `why.fit`.
    by_key = {text.rpartition(".")[2]: text for text in texts}
    parallel = {
        name: (path, by_key.get(path.rpartition(".")[2], ""))
        for name, (path, _) in paths.items()
    }
    used = {reason for _, reason in parallel.values() if reason}
    if len(used) == len(texts) == len(paths):
        paths = parallel
        texts = []
    answer = replace(answer, form="nested", texts=tuple(texts))
    return ExampleShape(answer, described, paths)
