"""The JSON example of a published prompt, read for its shape.

Such examples are not JSON: values are described (`<integer between 1-7>`, `[5, 3, or 1]`) instead of given, lines
carry comments, quotation marks are single. This reader is only for prompts; replies are held to strict JSON.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from editjudge.rubrics import replies
from editjudge.rubrics.tables import load_table, pattern

_WORD = (
    r"""(?://|\#)[^\n]*|/\*.*?\*/|{quoted}|<[^<>]*>|[{{}}\[\]:,]|[^\s"{{}}\[\]:,<>]+"""
)
_DOUBLE = re.compile(_WORD.format(quoted=r'"(?:[^"\\]|\\.)*"'), re.DOTALL)
_SINGLE = re.compile(_WORD.format(quoted=r"""'(?:[^'\\]|\\.)*'"""), re.DOTALL)


@dataclass(frozen=True)
class Leaf:
    """A value that is described or given."""

    text: str
    quoted: bool


@dataclass(frozen=True)
class ExampleChoice:
    """A bracketed list: either several values, or the choice between them."""

    items: tuple[str, ...]
    text: str


Example: TypeAlias = "dict[str, Example] | Leaf | ExampleChoice"


class NotAnExample(ValueError):
    """A block of braces that does not describe an object."""


# --- reading --------------------------------------------------------------------------------------------------


def find(text: str) -> Iterator[tuple[int, int, dict[str, Example] | NotAnExample]]:
    """Every block of braces that shows keys and values: where it stands, and its shape or why it has none."""
    end = 0
    for start, end in replies.blocks(text):
        if not re.search(r"""["'\w]\s*:""", text[start:end]):
            continue  # a placeholder, or braces in prose
        try:
            if re.search(r"\[\s*\Z", text[:start][-40:]):
                raise NotAnExample("it is a list of objects")
            yield start, end, read(text[start:end])
        except NotAnExample as error:
            yield start, end, error
    if (start := text.find("{", end)) >= 0:
        yield start, len(text), NotAnExample("its brace is never closed")


def read(block: str) -> dict[str, Example]:
    """The keys of an example and what stands for their values."""
    try:
        return _read(_DOUBLE, block)
    except NotAnExample:
        if "'" not in block:
            raise
        return _read(_SINGLE, block)


def _read(token: re.Pattern[str], block: str) -> dict[str, Example]:
    tokens = [
        word for word in token.findall(block) if not word.startswith(("//", "#", "/*"))
    ]
    if token is _SINGLE:
        tokens = [
            f'"{word[1:-1]}"' if re.fullmatch(r"'.*'", word, re.DOTALL) else word
            for word in tokens
        ]
    value, end = _value(tokens, 0, depth=0)
    if not isinstance(value, dict) or not value or end != len(tokens):
        raise NotAnExample("it does not end where its braces do")
    return value


def _value(tokens: list[str], at: int, depth: int) -> tuple[Example, int]:
    if at >= len(tokens) or depth > 8:
        raise NotAnExample("it breaks off")
    if tokens[at] == "{":
        return _members(tokens, at + 1, depth)
    if tokens[at] == "[":
        return _choice(tokens, at + 1)
    words = []
    while at < len(tokens) and tokens[at] not in ",}" and not _is_key(tokens, at):
        words.append(tokens[at])
        at += 1
    if len(words) == 1 and _is_quoted(words[0]):
        return Leaf(words[0][1:-1], quoted=True), at
    return Leaf(" ".join(words), quoted=False), at


def _is_quoted(token: str) -> bool:
    return len(token) > 1 and token[0] == token[-1] == '"'


def _is_key(tokens: list[str], at: int) -> bool:
    """Whether a key stands here. It ends the value before it, also where the comma or the whole value was left out."""
    return _is_quoted(tokens[at]) and tokens[at + 1 : at + 2] == [":"]


def _members(tokens: list[str], at: int, depth: int) -> tuple[dict[str, Example], int]:
    members: dict[str, Example] = {}
    while at < len(tokens) and tokens[at] != "}":
        key = tokens[at]
        if not _is_key(tokens, at):
            raise NotAnExample(f"{key[:40]} is not a quoted key")
        if key[1:-1] in members:
            raise NotAnExample(f"the key {key[:40]} stands twice")
        if pattern("stand_in_key").fullmatch(key[1:-1]):
            raise NotAnExample(f"the key {key[:40]} stands for others")
        members[key[1:-1]], at = _value(tokens, at + 2, depth + 1)
        if tokens[at : at + 1] == [","]:
            at += 1
    if at >= len(tokens):
        raise NotAnExample("it breaks off")
    return members, at + 1


def _choice(tokens: list[str], at: int) -> tuple[ExampleChoice, int]:
    words = []
    while at < len(tokens) and tokens[at] != "]":
        if tokens[at] in "{[":
            raise NotAnExample("it holds a list of objects")
        words.append(tokens[at])
        at += 1
    text = " ".join(words)
    return ExampleChoice(
        tuple(item.strip() for item in text.split(",") if item.strip()), text
    ), at + 1


def keys_in(example: Example) -> list[str]:
    """Every key at any level, once each, in the order in which the example shows them."""
    if not isinstance(example, dict):
        return []
    inner = [own for value in example.values() for own in keys_in(value)]
    return list(dict.fromkeys([*example, *inner]))


def outline(example: Example) -> str:
    """Equal for examples that have the same keys at the same places."""
    if not isinstance(example, dict):
        return ""
    members = (f"{key}{outline(value)}" for key, value in sorted(example.items()))
    return f"{{{','.join(members)}}}"


# --- what a value stands for ----------------------------------------------------------------------------------


Kind: TypeAlias = Literal["score", "text", "unclear", "neither"]


def values_of(described: str) -> tuple[int, ...]:
    """The legal scores that a placeholder names: '1-7', 'integer_1_to_7', '5, 3, or 1'; none where it is unclear."""
    words = described.replace("_", " ")
    if span := pattern("span").search(words):
        low, high = (int(number) for number in span.groups() if number is not None)
        values = span_of(low, high)
        # '1-5, or 0 if there is no edit': the rest names a score of its own.
        rest = words[: span.start()] + " " + words[span.end() :]
        others = re.findall(load_table("prompts")["parts"]["INTEGER"], rest)
        return values if {*map(int, others)} <= {*values} else ()
    if listed := pattern("listed").search(words):
        values = tuple(dict.fromkeys(map(int, re.findall(r"-?\d+", listed.group()))))
        # '8/10' is eight out of ten, '0/1' and '1/0' are one or the other.
        out_of = "/" in listed.group() and len(values) == 2 and {*values} != {0, 1}
        return values if len(values) > 1 and not out_of else ()
    return ()


def span_of(low: int, high: int) -> tuple[int, ...]:
    # 100: a percentage is the widest scale that anybody asks a judge for.
    return tuple(range(low, high + 1)) if low < high <= low + 100 else ()


def kind_of(key: str, value: Leaf | ExampleChoice) -> Kind:
    """Whether a place of the example wants a score or a text; `unclear` is asked about, `neither` cannot be held."""
    if offers_words(value):
        return "neither"
    if isinstance(value, ExampleChoice):
        if len(value.items) == 1 and re.search(r"[^\W\d]|\d\D+\d", value.text):
            return kind_of(key, Leaf(f"[{value.text}]", quoted=False))
        return "score" if re.search(r"\d\D+\bor\b|\d\s*[|/]", value.text) else "neither"
    text = value.text.replace("_", " ")
    number = re.fullmatch(r"[-+]?\d+(?:\.\d+)?(?:\s*/\s*\d+)?", text)
    if number:
        return "unclear" if value.quoted else "score"
    if (
        re.search(r"\b(?:true|false|null|yes|no)\b", text, re.IGNORECASE)
        and len(text) < 24
        and not value.quoted
    ):
        return "neither"
    if values_of(text) and re.search(r"\bnull\b", text, re.IGNORECASE):
        return "neither"
    says_score = bool(values_of(text) or pattern("says_score").search(text))
    says_text = bool(pattern("says_text").search(text))
    if says_text and not says_score:
        return "text"
    of_key = _kind_of_key(key)
    if says_score and not says_text and (not value.quoted or _is_placeholder(text)):
        if of_key != "text":
            return "score"
        return "unclear" if values_of(text) else "text"
    if value.quoted and not _is_placeholder(text):
        # an answer given by way of example
        return "unclear" if of_key == "score" else "text"
    return of_key


def _is_placeholder(text: str) -> bool:
    return text[:1] in "<[({" or bool(values_of(text))


def _kind_of_key(key: str) -> Kind:
    """Return the kind that the last telling word of a key names: `score_reason` is a text, `reason_score` a score."""
    text_end, score_end = (
        max((match.end() for match in pattern(kind).finditer(key)), default=0)
        for kind in ("text_key", "score_key")
    )
    if text_end == score_end:
        return "unclear"
    return "text" if text_end > score_end else "score"


def offers_words(value: Leaf | ExampleChoice) -> bool:
    """Whether words to choose from stand in the place of a value, such as "pass | fail" or "yes or no"."""
    text = value.text.strip("<>[]() ")
    if pattern("yes_or_no").fullmatch(text):
        return True
    options = [option.strip("\"' ") for option in text.split("|")]
    return len(options) > 1 and all(map(pattern("offered_word").fullmatch, options))


def is_number(text: str) -> bool:
    """Whether a number is given, rather than described."""
    return bool(re.fullmatch(r"[-+]?\d+(?:\.\d+)?", text))


def is_given(value: Leaf) -> bool:
    """Whether an example gives what stands in the place of a score (4, "8/10", true, "Yes"), not a description."""
    text = value.text
    if (
        values_of(text)
        or pattern("says_score").search(text.replace("_", " "))
        or not re.search(r"\w", text)
    ):
        return False
    if pattern("given_score").fullmatch(text) or text in ("true", "false", "null"):
        return True
    return value.quoted and not _is_placeholder(text) and len(text) > 1


def gives_numbers(example: Example) -> bool:
    """Whether an example gives a score by way of example, rather than describe every value."""
    if isinstance(example, dict):
        return any(map(gives_numbers, example.values()))
    if isinstance(example, ExampleChoice):
        return any(map(is_number, example.items))
    return is_number(example.text)


# --- the shape of an answer -----------------------------------------------------------------------------------


OWN_FORM = "--example 0, which has a form of ours added below the text"


class Unclear(ValueError):
    """Something that the user must decide about an example: what it concerns, why, and the option that settles it."""

    def __init__(self, why: str, about: str = "answer", option: str = OWN_FORM) -> None:
        super().__init__(why)
        self.about = about
        self.why = why
        self.option = option


@dataclass
class ExampleShape:
    """Places of the identifier, the scores and the reasons in an answer."""

    id_key: str | None = None
    envelope: str = ""
    form: Any = "entries"
    score_key: str = ""
    reason_key: str = ""
    reason: str = ""
    texts: tuple[str, ...] = ()
    factors: tuple[str, ...] = ()
    described: dict[str, str] = field(default_factory=dict)
    """Text of the example in place of each factor's score."""
    paths: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Keys of a nested answer that lead to each factor's score, and to its reason, with dots between them."""


def shape_of(example: dict[str, Example], named: Collection[str] = ()) -> ExampleShape:
    """The shape that an example describes; `named` are the factors, where somebody said so. Raises `Unclear`."""
    try:
        return _even_shape(example, named)
    except Unclear as unclear:
        nested = _nested_shape(example, named) if unclear.about == "answer" else None
        if nested is None:
            raise
        return nested


def _nested_shape(
    example: dict[str, Example], named: Collection[str]
) -> ExampleShape | None:
    """Scores at several levels, or beside other keys, each with a path; None where a value may be something else."""
    shape = ExampleShape(form="nested")
    for path, entry in _objects(example, ()):
        if not _take_object(shape, path, entry, named):
            return None
    shape.factors = tuple(shape.paths)
    _take_parallel_reasons(shape)
    return shape if shape.factors else None


def _take_parallel_reasons(shape: ExampleShape) -> None:
    """Give scores their reasons where both stand under the same keys of two objects: `score.fit` and `why.fit`."""
    by_key = {text.rpartition(".")[2]: text for text in shape.texts}
    parallel = {
        name: by_key.get(path.rpartition(".")[2], "")
        for name, (path, _) in shape.paths.items()
    }
    texts = [text for text in parallel.values() if text]
    if len(texts) == len(shape.texts) == len(shape.paths) == len({*texts}):
        shape.paths = {
            name: (path, parallel[name]) for name, (path, _) in shape.paths.items()
        }
        shape.texts = ()


def _objects(
    example: dict[str, Example], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every object with the keys that lead to it, and what it holds beside other objects."""
    yield (
        path,
        {key: value for key, value in example.items() if not isinstance(value, dict)},
    )
    for key, value in example.items():
        if isinstance(value, dict):
            yield from _objects(value, (*path, key))


def _take_object(
    shape: ExampleShape,
    path: tuple[str, ...],
    entry: dict[str, Any],
    named: Collection[str],
) -> bool:
    """Add the scores and texts of an object to a shape; False if a nested answer cannot hold one of its values."""
    if not path:
        shape.id_key = next(filter(_ID_KEY.fullmatch, entry), None)
    kinds = {
        key: kind_of(key, value)
        for key, value in entry.items()
        if path or key != shape.id_key
    }
    if "neither" in kinds.values() or any("." in key for key in (*path, *kinds)):
        return False
    for key, kind in kinds.items():
        if kind == "unclear":
            kinds[key] = _decided(key, entry[key], named)
    scores = [key for key, kind in kinds.items() if kind == "score"]
    texts = [".".join((*path, key)) for key, kind in kinds.items() if kind == "text"]
    # The only score of an object is named by what leads there, and the only text beside it is its reason.
    alone = len(scores) == 1 and path != ()
    reason = ""
    if alone and len(texts) == 1:
        reason = texts.pop()
    shape.texts += tuple(texts)
    for score in scores:
        full = (*path, score)
        name = "_".join(path if alone and pattern("score_key").search(score) else full)
        if name in shape.paths:
            return False
        shape.paths[name] = (".".join(full), reason)
        shape.described[name] = entry[score].text
    return True


_ID_KEY = re.compile(r"(?:image|item|sample|edit)?_?id", re.IGNORECASE)


def _even_shape(example: dict[str, Example], named: Collection[str]) -> ExampleShape:
    """One answer for all factors: entries, bare scores or a list, in one place."""
    shape = ExampleShape()
    scores: dict[str, Example] = {}
    envelopes: dict[str, dict[str, Example]] = {}
    lists: dict[str, ExampleChoice] = {}
    for key, value in example.items():
        if isinstance(value, dict):
            (envelopes if _holds_factors(value, named) else scores)[key] = value
        elif isinstance(value, ExampleChoice) and _is_list(key, value, named):
            lists[key] = value
        elif _ID_KEY.fullmatch(key):
            shape.id_key = key
        elif _decided(key, value, named) == "score":
            scores[key] = value
        else:
            shape.texts += (key,)
    for key, listed in lists.items():
        if re.search(r"[\"']", listed.text) or any(
            pattern("says_text").search(item) for item in listed.items
        ):
            raise Unclear(f'"{key}" is a list of texts, which a rubric cannot hold')
    if len(envelopes) + len(lists) + bool(scores) > 1:
        places = ", ".join((*envelopes, *lists, *scores))
        raise Unclear(
            f"scores stand in more than one place of the JSON example: {places}"
        )
    for key, listed in lists.items():
        shape.envelope = key
        shape.form = "list"
        if "..." not in listed.text and "…" not in listed.text:
            shape.described = {
                str(number): item for number, item in enumerate(listed.items)
            }
        return shape
    for key, inner in envelopes.items():
        shape.envelope = key
        scores = inner
    return _with_own_reasons(_with_factors(shape, scores, named))


def _with_own_reasons(shape: ExampleShape) -> ExampleShape:
    """Bare scores with a reason each, by their keys (`fit_score` and `fit_reason`), as a nested answer."""
    reasons = {_stem(text): text for text in shape.texts}
    paired = {factor: reasons.get(_stem(factor), "") for factor in shape.factors}
    bare = shape.form == "scores" and not shape.envelope
    stems_and_reasons = [*map(_stem, paired), *paired.values()]
    has_dots = "." in "".join((*shape.factors, *shape.texts))
    if not bare or len(paired) < 2 or not all(stems_and_reasons) or has_dots:
        return shape
    shape.form = "nested"
    shape.paths = {factor: (factor, reason) for factor, reason in paired.items()}
    shape.texts = tuple(text for text in shape.texts if text not in paired.values())
    return shape


def _stem(key: str) -> str:
    """A key without its words for a score or a text: `fit` of `fit_score`."""
    parts = [
        part
        for part in re.split(r"[\W_]+", key)
        if not pattern("score_key").search(part)
        and not pattern("text_key").search(part)
    ]
    return "_".join(parts).casefold()


def _is_list(key: str, value: ExampleChoice, named: Collection[str]) -> bool:
    """Whether brackets hold several scores, and not the scale of one that somebody named."""
    if kind_of(key, value) != "neither" or offers_words(value):
        return False
    return not (key in named and may_be_scale(value.items))


def may_be_scale(items: Collection[str]) -> bool:
    """Whether the items of a list are neighbouring integers (`[1, 2, 3]`), which may be the scale of one score."""
    numbers = sorted(int(item) for item in items if re.fullmatch(r"-?\d{1,4}", item))
    return len(items) == len(numbers) > 1 and numbers == list(
        range(numbers[0], numbers[-1] + 1)
    )


def _decided(key: str, value: Leaf | ExampleChoice, named: Collection[str]) -> Kind:
    kind = kind_of(key, value)
    if kind == "neither" and (key not in named or offers_words(value)):
        raise Unclear(
            f'"{key}" is {value.text[:40]}, which is neither a score nor a text'
        )
    if key in named:
        return "score"
    if kind == "unclear" and named:
        return "text"
    if kind == "unclear":
        why = f'the JSON example does not say whether "{key}" is a score or a text'
        raise Unclear(why, "factors", "--factor KEY, once for each score")
    return kind


def _holds_factors(value: dict[str, Example], named: Collection[str]) -> bool:
    """An object of objects, an object of several bare scores, or one that holds what was named."""
    if any(isinstance(inner, dict) for inner in value.values()) or any(
        key in named for key in value
    ):
        return True
    kinds = [
        kind_of(key, inner)
        for key, inner in value.items()
        if not isinstance(inner, dict)
    ]
    # an entry without a reason
    lone = len(value) == 1 and pattern("score_key").search(next(iter(value)))
    return not lone and all(kind == "score" for kind in kinds)


def _with_factors(
    shape: ExampleShape, scores: dict[str, Example], named: Collection[str]
) -> ExampleShape:
    if not scores:
        why = "the JSON example has no value that reads as a score"
        raise Unclear(why, "factors", "--factor KEY and --scale")
    entries = {key: value for key, value in scores.items() if isinstance(value, dict)}
    if entries and len(entries) < len(scores):
        raise Unclear(
            "some scores of the JSON example have an object of their own, others not"
        )
    shape.factors = tuple(scores)
    for key, value in scores.items():
        if isinstance(value, dict):
            _take_entry(shape, key, value)
        elif shape.envelope and _decided(key, value, named) != "score":
            raise Unclear(
                f'"{key}" stands among the scores of "{shape.envelope}" and is none'
            )
        else:
            shape.form = "scores"
            shape.described[key] = value.text
    return shape


def _take_entry(shape: ExampleShape, factor: str, entry: dict[str, Example]) -> None:
    leaves = {key: value for key, value in entry.items() if not isinstance(value, dict)}
    kinds = {key: kind_of(key, value) for key, value in leaves.items()}
    scores = [
        key
        for key, kind in kinds.items()
        if kind == "score" or (kind == "unclear" and pattern("score_key").search(key))
    ]
    reasons = [key for key in entry if key not in scores]
    if (
        len(scores) != 1
        or len(reasons) > 1
        or len(leaves) < len(entry)
        or "neither" in kinds.values()
    ):
        why = f'the entry of "{factor}" ({", ".join(entry)}) is not one score and at most one reason'
        raise Unclear(why)
    if not reasons and not pattern("score_key").search(scores[0]):
        raise Unclear(
            f'"{scores[0]}" in "{factor}" may be a factor or the score of one'
        )
    keys = (scores[0], (reasons or [""])[0])
    if shape.described and keys != (shape.score_key, shape.reason_key):
        raise Unclear(f'the entry of "{factor}" has other keys than those before it')
    shape.score_key, shape.reason_key = keys
    shape.described[factor] = leaves[scores[0]].text
    if reasons and re.search(
        r"\b(?:one|a single)[- ]sentence\b", leaves[reasons[0]].text, re.IGNORECASE
    ):
        shape.reason = "one sentence"
