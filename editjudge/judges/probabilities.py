"""Expected scores from token probabilities: the mean over the numbers that a model might have written.

The probability of a number with several tokens is the product along the reply: P(10) = P("1") P("0" after "1"). A token
that was not chosen and could begin several legal numbers is not counted, since its continuation is unknown. The mass is
the total probability of the numbers that are counted. If it is too small, the result is a reason instead of a mean.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from editjudge.judges.wire import Reply, TokenChoice
from editjudge.rubrics.contract import score_places
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.replies import NoAnswer, decode
from editjudge.rubrics.scale import Number, Scale

SPREAD = "score_standard_deviation"
"""Key in a judgement's evidence under which each factor's standard deviation under the token probabilities is stored.
"""


@dataclass
class ScoreProbabilities:
    """Results for each factor: the expected score and the probability mass that it is based on, or the reason why there
    is none.
    """

    expected: dict[str, float] = field(default_factory=dict)
    mass: dict[str, float] = field(default_factory=dict)
    spread: dict[str, float] = field(default_factory=dict)
    """Standard deviation of the score, keyed by factor."""
    abstained: dict[str, str] = field(default_factory=dict)


def score_probabilities(
    rubric: Rubric, reply: Reply, scores: Mapping[str, float], min_mass: float
) -> ScoreProbabilities:
    """Return the expected scores of the factors whose scores the contract read from the reply.

    Choices have no mean and are left out. Probabilities are read only at the position of the score.
    """
    result = ScoreProbabilities()
    start = _offset(reply)
    starts = _starts(rubric, reply.text, scores) if isinstance(start, int) else {}
    for factor in rubric.factors:
        key = factor.key
        if factor.scale.choices:
            continue
        if isinstance(start, str):
            result.abstained[key] = start
        elif not factor.scale.steps:
            reason = f"{factor.scale.words}: too many values for probabilities of each"
            result.abstained[key] = reason
        elif key not in starts:
            reason = "the position of its number in the reply is unknown"
            result.abstained[key] = reason
        else:
            at = start + len(reply.text[: starts[key]].encode())
            values = distribution(factor.scale, reply.tokens, at)
            _read(key, values, min_mass, result)
    return result


def _starts(rubric: Rubric, text: str, scores: Mapping[str, float]) -> dict[str, int]:
    """Return the position in the text at which each score's number starts. Numbers that differ from the score are left
    out.
    """
    spans = score_places(rubric, text)
    starts: dict[str, int] = {}
    for factor in rubric.factors:
        begin, end = spans.get(factor.key, (0, 0))
        number = _legal(factor.scale, text[begin:end])
        if factor.key in scores and number == scores[factor.key]:
            starts[factor.key] = begin
    return starts


def _read(
    key: str, values: dict[Number, float], min_mass: float, result: ScoreProbabilities
) -> None:
    mass = math.fsum(values.values())
    if mass > 1.001:
        result.abstained[key] = f"the probabilities of the server add up to {mass:.4g}"
    elif mass < min_mass or not mass:
        result.abstained[key] = (
            f"legal scores have a probability of {mass:.3g}, less than --min-mass {min_mass:g}"
        )
    else:
        mean = math.fsum(value * share for value, share in values.items()) / mass
        result.expected[key] = mean
        result.spread[key] = math.sqrt(
            math.fsum((v - mean) ** 2 * share for v, share in values.items()) / mass
        )
        result.mass[key] = min(mass, 1.0)


_END = re.compile(rb"(?:[\s`]|<[^<>\s]*+>|\[[^][\s]*+\])*+")
"""White space, end marks such as </s> and <|im_end|>, and the end of a code fence. llama.cpp removes them from a reply.
"""


def _offset(reply: Reply) -> int | str:
    """Return the position of the reply's text within the bytes of all tokens, or the reason why it cannot be found.
    Thoughts may come before the text, and end marks after it.
    """
    if not reply.tokens:
        return "the server returned no token probabilities"
    spelled = b"".join(token.data for token in reply.tokens)
    text = reply.text.encode()
    start = spelled.find(text)
    if start < 0:
        return "the tokens of the server do not spell the reply"
    if spelled.find(text, start + 1) >= 0:
        return "the tokens of the server spell the reply more than once"
    if not _END.fullmatch(spelled, start + len(text)):
        return "the tokens of the server continue after the reply"  # so that they may spell a thought alone
    return start


def distribution(
    scale: Scale, tokens: Sequence[TokenChoice], at: int
) -> dict[Number, float]:
    """Return the probability of each legal number that may begin at byte `at`, as far as the listed tokens determine
    it.
    """
    values: dict[Number, float] = defaultdict(float)
    written = b""
    reached = 1.0
    spellings = _spellings(scale)
    for token, lead in _from(tokens, at):
        onward = 0.0
        for data, logprob in _choices(token):
            rest = _after(data, lead)
            if rest is None:
                continue
            probability = reached * math.exp(min(logprob, 0.0))
            number, open_end = _number(scale, spellings, written + rest)
            if open_end and data == token.data:
                onward += probability
            elif number is not None and not open_end:
                values[number] += probability
        if not onward:
            break
        written = written + token.data[len(lead) :]
        reached = onward
    return dict(values)


def _from(
    tokens: Sequence[TokenChoice], at: int
) -> Iterator[tuple[TokenChoice, bytes]]:
    """Yield the tokens that end after byte `at`, each with its bytes before `at`."""
    position = 0
    for token in tokens:
        end = position + len(token.data)
        if end > at:
            yield token, token.data[: max(0, at - position)]
        position = end


def _choices(token: TokenChoice) -> list[tuple[bytes, float]]:
    if any(data == token.data for data, _ in token.alternatives):
        return list(token.alternatives)
    return [*token.alternatives, (token.data, token.logprob)]


def _after(data: bytes, lead: bytes) -> bytes | None:
    """Return the part of a token's bytes after `lead` (such as a colon). White space in `lead` is ignored. Return None
    if the token begins differently.
    """
    wanted = b"".join(lead.split())
    matched = 0
    for index in range(len(data)):
        if matched == len(wanted):
            return data[index:]
        if data[index : index + 1].isspace():
            continue
        if data[index] != wanted[matched]:
            return None
        matched += 1
    return b"" if matched == len(wanted) else None


_WRITTEN = re.compile(rb'\s*("?)([-+.\deE]*)(.*)', re.DOTALL)


def _number(
    scale: Scale, spellings: Mapping[str, Number], written: bytes
) -> tuple[Number | None, bool]:
    """Return the legal number that `written` spells (None if it spells no legal number), and whether more bytes could
    turn it into another number. White space or a quotation mark before the number is ignored.
    """
    match = _WRITTEN.match(written)
    assert match  # noqa: S101  (all of it is optional)
    quote = match[1]
    digits = match[2].decode()
    rest = match[3]
    number = _legal(scale, digits)
    if rest:
        ends = (b'"',) if quote else (b",", b"}", b"]")
        ended = rest.startswith(ends) or (not quote and rest[:1].isspace())
        return (number if ended else None), False
    longer = {
        value for spelling, value in spellings.items() if spelling.startswith(digits)
    }
    return number, bool(longer - {number})


def _legal(scale: Scale, digits: str) -> Number | None:
    try:
        return scale.read(decode(digits))
    except NoAnswer:
        return None


def _spellings(scale: Scale) -> dict[str, Number]:
    """Return all legal numbers, keyed by spelling. On a decimal scale, integers are also spelled like 3.0."""
    spellings = {str(value): value for value in scale.steps}
    if not scale.values:
        integers = (value for value in scale.steps if isinstance(value, int))
        spellings |= {f"{value}.0": value for value in integers}
    return spellings
