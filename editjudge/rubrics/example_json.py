"""The JSON example of a published prompt, read for its shape.

Such examples are not JSON: values are described (`<integer between 1-7>`, `[5, 3, or 1]`) instead of given, lines
carry comments, quotation marks are single. This reader is only for prompts; replies are held to strict JSON.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

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
    """A value that is described or given."""

    text: str
    quoted: bool = False
    items: tuple[str, ...] | None = None
    """Items of a bracketed list, which are several values or the choice between them; None without brackets."""


Example: TypeAlias = "dict[str, Example] | Leaf"

OWN_FORM = "--example 0, which has a form of ours added below the text"


class Unclear(ValueError):
    """Something that the user must decide about an example: the reason, the subject, and the option that settles it."""

    def __init__(self, why: str, about: str = "answer", option: str = OWN_FORM) -> None:
        super().__init__(why)
        self.about = about
        self.option = option


# --- reading --------------------------------------------------------------------------------------------------


def find(text: str) -> Iterator[tuple[int, int, dict[str, Example] | Unclear]]:
    """Yield start, end and shape of every block of braces with keys and values; for a block without a shape, why."""
    end = 0
    for start, end in replies.blocks(text):
        if not re.search(r"""["'\w]\s*:""", text[start:end]):
            continue  # a placeholder, or braces in prose
        try:
            if re.search(r"\[\s*\Z", text[:start][-40:]):
                raise Unclear("it is a list of objects")
            yield start, end, read(text[start:end])
        except Unclear as error:
            yield start, end, error
    if (start := text.find("{", end)) >= 0:
        yield start, len(text), Unclear("its brace is never closed")


def read(block: str) -> dict[str, Example]:
    """Return the keys of an example and what stands for their values; `Unclear` if it is not an object."""
    try:
        return _read(_DOUBLE.findall(block))
    except Unclear:
        if "'" not in block:
            raise
    tokens = _SINGLE.findall(block)
    return _read([re.sub(r"(?s)\A'(.*)'\Z", r'"\1"', token) for token in tokens])


def _read(tokens: Sequence[str]) -> dict[str, Example]:
    rest = [token for token in tokens[::-1] if not token.startswith(("//", "#", "/*"))]
    value = _value(rest, 0)
    if not isinstance(value, dict) or not value or rest:
        raise Unclear("it does not end where its braces do")
    return value


def _value(rest: list[str], depth: int) -> Example:
    """Take a value from the end of `rest`, which holds the tokens in reverse."""
    if not rest or depth > _MAX_DEPTH:
        raise Unclear("it breaks off")
    if rest[-1] == "{":
        return _members(rest, depth)
    tokens = []
    if rest[-1] == "[":
        rest.pop()
        while rest and rest[-1] != "]":
            if rest[-1] in "{[":
                raise Unclear("it holds a list of objects")
            tokens.append(rest.pop())
        del rest[-1:]
        text = " ".join(tokens)
        items = (item.strip() for item in text.split(","))
        return Leaf(text, items=tuple(filter(None, items)))
    # A key ends the value before it, also if the comma or the value itself was left out.
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
            raise Unclear(f"{token[:40]} is not a quoted key")
        if key in members:
            raise Unclear(f"the key {token[:40]} stands twice")
        if pattern("stand_in_key").fullmatch(key):
            raise Unclear(f"the key {token[:40]} stands for others")
        rest.pop()
        members[key] = _value(rest, depth + 1)
        if rest[-1:] == [","]:
            rest.pop()
    if not rest:
        raise Unclear("it breaks off")
    rest.pop()
    return members


def _is_quoted(token: str) -> bool:
    return len(token) > 1 and token[0] == token[-1] == '"'


def _is_key(rest: list[str]) -> bool:
    return _is_quoted(rest[-1]) and rest[-2:-1] == [":"]


def objects(
    example: dict[str, Example], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], dict[str, Leaf]]]:
    """Yield every object: the keys that lead to it, and its members that are not objects."""
    yield path, {k: value for k, value in example.items() if isinstance(value, Leaf)}
    for key, value in example.items():
        if isinstance(value, dict):
            yield from objects(value, (*path, key))


def leaves(example: dict[str, Example]) -> list[Leaf]:
    return [leaf for _, members in objects(example) for leaf in members.values()]


def outline(example: dict[str, Example]) -> frozenset[tuple[tuple[str, ...], str]]:
    """Return the keys and their places, equal for examples that have the same ones."""
    return frozenset(
        (path, key) for path, members in objects(example) for key in ("", *members)
    )


def keys_in(example: dict[str, Example]) -> list[str]:
    """Return every key at any level, once each, in the order in which the example shows them."""
    keys = list(example)
    for value in example.values():
        if isinstance(value, dict):
            keys += keys_in(value)
    return list(dict.fromkeys(keys))


# --- what a value stands for ----------------------------------------------------------------------------------


Kind: TypeAlias = Literal["score", "text", "unclear", "neither"]


def values_of(described: str) -> tuple[int, ...]:
    """Return the legal scores that a placeholder names: '1-7', 'integer_1_to_7', '5, 3, or 1'; none if it is unclear."""
    text = described.replace("_", " ")
    if span := pattern("span").search(text):
        low, high = (int(number) for number in span.groups() if number is not None)
        values = span_of(low, high)
        # '1-5, or 0 if there is no edit': the rest names a score of its own.
        rest = text[: span.start()] + " " + text[span.end() :]
        others = re.findall(load_table("prompts")["parts"]["INTEGER"], rest)
        return values if {*map(int, others)} <= {*values} else ()
    if listed := pattern("listed").search(text):
        values = tuple(dict.fromkeys(map(int, re.findall(r"-?\d+", listed.group()))))
        # '8/10' is eight out of ten, '0/1' and '1/0' are one or the other.
        out_of = "/" in listed.group() and len(values) == 2 and {*values} != {0, 1}
        return values if len(values) > 1 and not out_of else ()
    return ()


def span_of(low: int, high: int) -> tuple[int, ...]:
    # 100: a percentage is the widest scale that anybody asks a judge for.
    return tuple(range(low, high + 1)) if low < high <= low + 100 else ()


def kind_of(key: str, leaf: Leaf) -> Kind:
    """Return what a leaf wants, a score or a text; `unclear` is asked about, `neither` cannot be in a rubric."""
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
    """Return the kind that the last telling word of a key names: `score_reason` is a text, `reason_score` a score."""
    text_end, score_end = (
        max((match.end() for match in pattern(kind).finditer(key)), default=0)
        for kind in ("text_key", "score_key")
    )
    if text_end == score_end:
        return "unclear"
    return "text" if text_end > score_end else "score"


def offers_words(leaf: Leaf) -> bool:
    """Whether words to choose from stand in the place of a value, such as "pass | fail" or "yes or no"."""
    text = leaf.text.strip("<>[]() ")
    options = [option.strip("\"' ") for option in text.split("|")]
    several = len(options) > 1 and all(map(pattern("offered_word").fullmatch, options))
    return several or bool(pattern("yes_or_no").fullmatch(text))


def is_number(text: str) -> bool:
    """Whether a number is given, rather than described."""
    return bool(re.fullmatch(r"[-+]?\d+(?:\.\d+)?", text))


def is_given(leaf: Leaf) -> bool:
    """Whether an example gives what stands in the place of a score (4, "8/10", true, "Yes"), not a description."""
    text = leaf.text
    says_score = pattern("says_score").search(text.replace("_", " "))
    if values_of(text) or says_score or not re.search(r"\w", text):
        return False
    if pattern("given_score").fullmatch(text) or text in ("true", "false", "null"):
        return True
    return leaf.quoted and not _is_placeholder(text) and len(text) > 1


def gives_numbers(example: dict[str, Example]) -> bool:
    """Whether an example gives a score by way of example, rather than describe every value."""
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
    """Text in place of the score of each factor; the scores of a list, which has no names for them, have numbers."""
    paths: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Keys of a nested answer that lead to each factor's score, and to its reason, with dots between them."""


_BARE = AnswerFormat(form="scores", score_key="", reason_key="")
_ID_KEY = re.compile(r"(?:image|item|sample|edit)?_?id", re.IGNORECASE)


def shape_of(example: dict[str, Example], named: Collection[str] = ()) -> ExampleShape:
    """Return the shape that an example describes; `named` are the factors, if the user named them.

    Raises `Unclear`.
    """
    try:
        return _even_shape(example, named)
    except Unclear as unclear:
        nested = _nested_shape(example, named) if unclear.about == "answer" else None
        if nested is None:
            raise
        return nested


def _even_shape(example: dict[str, Example], named: Collection[str]) -> ExampleShape:
    """Return the shape of an answer with all factors in one place: entries, bare scores or a list."""
    id_key = None
    texts = []
    scores: dict[str, Example] = {}
    envelopes: dict[str, dict[str, Example]] = {}
    lists: dict[str, Leaf] = {}
    for key, value in example.items():
        if isinstance(value, dict):
            (envelopes if _holds_factors(value, named) else scores)[key] = value
        elif _is_list(key, value, named):
            lists[key] = value
        elif _ID_KEY.fullmatch(key):
            id_key = key
        elif _decided(key, value, named) == "score":
            scores[key] = value
        else:
            texts.append(key)
    for key, leaf in lists.items():
        if re.search(r"[\"']", leaf.text) or any(
            map(pattern("says_text").search, leaf.items or ())
        ):
            raise Unclear(f'"{key}" is a list of texts, which a rubric cannot hold')
    if len(envelopes) + len(lists) + bool(scores) > 1:
        keys = ", ".join((*envelopes, *lists, *scores))
        raise Unclear(
            f"scores stand in more than one place of the JSON example: {keys}"
        )
    answer = replace(_BARE, id_key=id_key, texts=tuple(texts))
    for key, leaf in lists.items():
        is_open = "..." in leaf.text or "…" in leaf.text
        items = () if is_open else leaf.items or ()
        described = {str(number): item for number, item in enumerate(items)}
        return ExampleShape(replace(answer, envelope=key, form="list"), described)
    for envelope, members in envelopes.items():
        return _shape_of_scores(replace(answer, envelope=envelope), members, named)
    return _shape_of_scores(answer, scores, named)


def _is_list(key: str, leaf: Leaf, named: Collection[str]) -> bool:
    """Whether brackets hold several scores, and not the scale of one that the user named."""
    if leaf.items is None or offers_words(leaf) or kind_of(key, leaf) != "neither":
        return False
    return not (key in named and may_be_scale(leaf.items))


def may_be_scale(items: Collection[str]) -> bool:
    """Whether the items of a list are neighbouring integers (`[1, 2, 3]`), which may be the scale of one score."""
    numbers = sorted(int(item) for item in items if re.fullmatch(r"-?\d{1,4}", item))
    return len(items) == len(numbers) > 1 and numbers == list(
        range(numbers[0], numbers[-1] + 1)
    )


def _decided(key: str, leaf: Leaf, named: Collection[str]) -> Kind:
    kind = kind_of(key, leaf)
    if kind == "neither" and (key not in named or offers_words(leaf)):
        raise Unclear(
            f'"{key}" is {leaf.text[:40]}, which is neither a score nor a text'
        )
    if key in named:
        return "score"
    if kind == "unclear" and not named:
        why = f'the JSON example does not say whether "{key}" is a score or a text'
        raise Unclear(why, "factors", "--factor KEY, once for each score")
    return "text" if kind == "unclear" else kind


def _holds_factors(members: dict[str, Example], named: Collection[str]) -> bool:
    """Whether an object is one of objects, one of several bare scores, or holds a named factor."""
    kinds = {
        kind_of(key, value) if isinstance(value, Leaf) else "object"
        for key, value in members.items()
    }
    if "object" in kinds or not members.keys().isdisjoint(named):
        return True
    is_entry = len(members) == 1 and pattern("score_key").search("".join(members))
    return not is_entry and kinds <= {"score"}


def _shape_of_scores(
    answer: AnswerFormat, scores: dict[str, Example], named: Collection[str]
) -> ExampleShape:
    if not scores:
        why = "the JSON example has no value that reads as a score"
        raise Unclear(why, "factors", "--factor KEY and --scale")
    bare = {key: value for key, value in scores.items() if isinstance(value, Leaf)}
    if not bare:
        return _shape_of_entries(answer, scores)
    if len(bare) < len(scores):
        raise Unclear(
            "some scores of the JSON example have an object of their own, others not"
        )
    for key, leaf in bare.items() if answer.envelope else ():
        if _decided(key, leaf, named) != "score":
            raise Unclear(
                f'"{key}" stands among the scores of "{answer.envelope}" and is none'
            )
    shape = ExampleShape(answer, {key: leaf.text for key, leaf in bare.items()})
    return shape if answer.envelope else _with_own_reasons(shape)


def _with_own_reasons(shape: ExampleShape) -> ExampleShape:
    """Return bare scores with a reason each, by their keys (`fit_score` and `fit_reason`), as a nested answer."""
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
    """Return a key without its words for a score or a text: `fit` of `fit_score`."""
    kinds = (pattern("score_key"), pattern("text_key"))
    parts = [
        part
        for part in re.split(r"[\W_]+", key)
        if not any(kind.search(part) for kind in kinds)
    ]
    return "_".join(parts).casefold()


def _shape_of_entries(
    answer: AnswerFormat, entries: dict[str, Example]
) -> ExampleShape:
    """Return the shape of objects with one score and at most one reason each."""
    names_score = pattern("score_key").search
    described: dict[str, str] = {}
    score_key = ""
    reason_key = ""
    reason = ""
    for factor, entry in entries.items():
        members = entry if isinstance(entry, dict) else {}
        texts = {k: leaf.text for k, leaf in members.items() if isinstance(leaf, Leaf)}
        kinds = {
            key: kind_of(key, leaf) if isinstance(leaf, Leaf) else "neither"
            for key, leaf in members.items()
        }
        scores = [
            key
            for key, kind in kinds.items()
            if kind == "score" or (kind == "unclear" and names_score(key))
        ]
        reasons = [key for key in kinds if key not in scores]
        if len(scores) != 1 or len(reasons) > 1 or "neither" in kinds.values():
            raise Unclear(
                f'the entry of "{factor}" ({", ".join(members)}) is not one score and at most one reason'
            )
        if not reasons and not names_score(scores[0]):
            raise Unclear(
                f'"{scores[0]}" in "{factor}" may be a factor or the score of one'
            )
        if described and [score_key, reason_key] != [*scores, *(reasons or [""])]:
            raise Unclear(
                f'the entry of "{factor}" has other keys than those before it'
            )
        score_key = scores[0]
        reason_key = "".join(reasons)
        described[factor] = texts[score_key]
        if re.search(_ONE_SENTENCE, texts.get(reason_key, "")):
            reason = "one sentence"
    answer = replace(
        answer,
        form="entries",
        score_key=score_key,
        reason_key=reason_key,
        reason=reason,
    )
    return ExampleShape(answer, described)


_ONE_SENTENCE = r"(?i)\b(?:one|a single)[- ]sentence\b"


def _nested_shape(
    example: dict[str, Example], named: Collection[str]
) -> ExampleShape | None:
    """Return scores at several levels, or beside other keys, each with a path; None if a value may be something else."""
    id_key = None
    all_texts: list[str] = []
    described: dict[str, str] = {}
    paths: dict[str, tuple[str, str]] = {}
    for path, members in objects(example):
        if not path:
            id_key = next(filter(_ID_KEY.fullmatch, members), None)
        kinds = {
            key: kind_of(key, leaf)
            for key, leaf in members.items()
            if path or key != id_key
        }
        if "neither" in kinds.values() or "." in "".join((*path, *kinds)):
            return None
        for key, kind in kinds.items():
            if kind == "unclear":
                kinds[key] = _decided(key, members[key], named)
        scores = [key for key, kind in kinds.items() if kind == "score"]
        texts = [
            ".".join((*path, key)) for key, kind in kinds.items() if kind == "text"
        ]
        # The only score of an object is named by what leads there, and the only text beside it is its reason.
        is_alone = len(scores) == 1 and path != ()
        reason = texts.pop() if is_alone and len(texts) == 1 else ""
        all_texts += texts
        for score in scores:
            full = (*path, score)
            is_plain = is_alone and pattern("score_key").search(score)
            name = "_".join(path if is_plain else full)
            if name in paths:
                return None
            paths[name] = (".".join(full), reason)
            described[name] = members[score].text
    if not paths:
        return None
    # Scores and reasons may stand under the same keys of two objects: `score.fit` and `why.fit`.
    by_key = {text.rpartition(".")[2]: text for text in all_texts}
    parallel = {
        name: (path, by_key.get(path.rpartition(".")[2], ""))
        for name, (path, _) in paths.items()
    }
    used = {reason for _, reason in parallel.values() if reason}
    if len(used) == len(all_texts) == len(paths):
        paths = parallel
        all_texts = []
    answer = replace(_BARE, id_key=id_key, form="nested", texts=tuple(all_texts))
    return ExampleShape(answer, described, paths)
