"""Judgements to keep: plain ones, and all that Hypothesis can think of."""

from __future__ import annotations

import hashlib
from typing import Any

from hypothesis import strategies as st

from editjudge.judgement import STATUSES, Exchange, Judgement, Status, Task, Usage
from editjudge.rubrics.verdict import Remark

JUDGE = "openai/some-model"
RUBRIC = "fidelity"


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def sample(number: int, status: Status = "ok", **changes: Any) -> Judgement:
    ok = status == "ok"
    values: dict[str, Any] = {
        "rubric_hash": "f" * 64,
        "scores": {"alignment": 5} if ok else None,
        "justifications": {"alignment": "the car is blue"} if ok else None,
        "reasons": ()
        if ok
        else (Remark("no_answer", "the reply holds no JSON object"),),
        "exchanges": (
            Exchange(
                f"reply {number}",
                status,
                usage=Usage(10, 2),
                model="m-1",
                request_id=f"r{number}",
            ),
        ),
        "created": 1000.0 + number,
    }
    return Judgement(key(number), status, JUDGE, RUBRIC, **{**values, **changes})


def task(number: int, **changes: Any) -> Task:
    values = {
        "item": f"edit-{number}",
        "rubric": RUBRIC,
        "judge": JUDGE,
        "repeat": 0,
        "key": key(number),
    }
    return Task(**{**values, **changes})


# Every character there is: NUL, the mark that opens an escaped text, halves of surrogate pairs alone and side by side.
texts = st.text(
    st.characters() | st.sampled_from("\0\x01\\\ud83d\ude00\u2028'\""), max_size=30
)
_numbers = st.floats(allow_nan=False, allow_infinity=False)
_amounts = st.floats(0, allow_infinity=False)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | _numbers | texts,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
    ),
    max_leaves=6,
)
# A double holds every whole number up to here.
_scores = st.integers(-(2**53), 2**53) | _numbers
_counts = st.none() | st.integers(0, 2**40)
_remarks = st.lists(st.builds(Remark, texts, texts, st.none() | texts), max_size=2).map(
    tuple
)
_exchanges = st.builds(
    Exchange,
    texts | texts.map(lambda text: text * 50),
    texts,
    finish=texts,
    usage=st.builds(Usage, _counts, _counts, _counts, _counts),
    model=st.none() | texts,
    request_id=st.none() | texts,
    latency=st.none() | _amounts,
    retries=st.integers(0, 100),
    reasons=_remarks,
)


@st.composite
def judgements(draw: st.DrawFn) -> Judgement:
    status = draw(st.sampled_from(STATUSES))
    chooses = status == "ok" and draw(st.booleans())
    probabilities = (
        st.dictionaries(texts, _numbers, max_size=2) if status == "ok" else st.just({})
    )
    return Judgement(
        key(draw(st.integers())),
        status,
        draw(texts),
        draw(texts),
        key(draw(st.integers())),
        repeat=draw(st.integers(0, 1000)),
        scores=draw(st.dictionaries(texts, _scores, max_size=4))
        if status == "ok" and not chooses
        else None,
        choices=draw(st.dictionaries(texts, texts, min_size=1, max_size=4))
        if chooses
        else None,
        expected=draw(probabilities),
        mass=draw(probabilities),
        order=draw(st.sampled_from([None, "ab", "ba"])),
        justifications=draw(st.none() | st.dictionaries(texts, texts, max_size=4)),
        abstained=draw(st.dictionaries(texts, texts, max_size=3)),
        evidence=draw(st.dictionaries(texts, _json, max_size=3)),
        violations=draw(_remarks),
        notes=draw(_remarks),
        reasons=draw(_remarks),
        exchanges=tuple(draw(st.lists(_exchanges, max_size=3))),
        schema_mode=draw(
            st.none() | st.sampled_from(["enforced", "requested", "prompt only"])
        ),
        prepared=draw(st.dictionaries(texts, texts, max_size=2)),
        cost=draw(st.none() | _amounts),
        created=draw(
            st.floats(0, 253_402_300_799)
        ),  # until the year 9999, the last that a calendar has
    )
