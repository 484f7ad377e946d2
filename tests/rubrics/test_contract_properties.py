"""Whatever a reply looks like, no score is accepted that it does not say, and every score that it says is kept."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from editjudge.rubrics.contract import check
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.replies import marks_in, thought_formats
from editjudge.rubrics.verdict import Failure, Verdict
from tests.rubrics.replies import (
    DRESSINGS,
    ID,
    PAIR,
    PROSE,
    RUBRICS,
    THOUGHTS,
    answer,
    full,
    headings,
    literals,
    raw,
)

REAL = (
    Path(__file__).parents[3] / "shared" / "data" / "judge_replies" / "manifest.jsonl"
)

every_rubric = pytest.mark.parametrize(
    "rubric", RUBRICS, ids=lambda rubric: rubric.name
)
calm = settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow]
)


# --- every valid verdict comes through ------------------------------------------------------------------------

texts = st.text(
    st.characters(exclude_categories=["Cs"]), max_size=60
) | st.sampled_from(
    [
        '"score": 3}',
        "</think>",
        "<think>",
        "```json",
        "{",
        "\\",
        '{"score": 1}',
        "bench: not allowed",
        "\u2028",
        "NaN",
    ]
)


@st.composite
def verdicts(draw: st.DrawFn) -> tuple[Rubric, dict[str, Any]]:
    """A rubric and an answer with any legal scores and any words."""
    rubric = draw(st.sampled_from(RUBRICS))
    scores = {
        factor.key: draw(st.sampled_from(factor.scale.values))
        for factor in rubric.factors
    }
    return rubric, answer(rubric, scores, draw(texts), draw(texts))


@st.composite
def written(draw: st.DrawFn, value: dict[str, Any]) -> str:
    """One of the ways to write the same object."""

    def shuffled(part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        return {key: shuffled(part[key]) for key in draw(st.permutations(list(part)))}

    indent = draw(st.sampled_from([None, 0, 2]))
    return json.dumps(shuffled(value), ensure_ascii=draw(st.booleans()), indent=indent)


def scores_and_reasons(
    rubric: Rubric, value: dict[str, Any]
) -> tuple[dict[str, int], dict[str, str]]:
    """Scores and reasons of an answer, read by the rubric's data."""
    form = rubric.answer
    inner = value[form.envelope] if form.envelope else value
    keys = [factor.key for factor in rubric.factors]
    if form.form == "entries":
        return {k: inner[k][form.score_key] for k in keys}, {
            k: inner[k][form.reason_key] for k in keys
        }
    scores = (
        dict(zip(keys, inner, strict=True))
        if form.form == "list"
        else {k: inner[k] for k in keys}
    )
    return scores, dict.fromkeys(keys, value[form.texts[0]])


@calm
@given(
    st.data(),
    verdicts(),
    st.sampled_from(list(DRESSINGS)),
    st.sampled_from(list(THOUGHTS)),
)
def test_every_verdict_comes_through_every_dressing_unchanged(
    data: st.DataObject,
    verdict: tuple[Rubric, dict[str, Any]],
    dressing: str,
    thought: str,
) -> None:
    rubric, value = verdict
    text = full(rubric, data.draw(written(value)), dressing, thought)
    outcome = check(rubric, text, identifier=value.get("image_id"))
    assert isinstance(outcome, Verdict), outcome
    assert (outcome.scores, outcome.justifications) == scores_and_reasons(rubric, value)
    assert not {remark.code for remark in outcome.violations} & {
        "prose",
        "repeated_answer",
        "missing_section",
    }


@calm
@given(
    st.data(),
    verdicts(),
    st.sampled_from(list(PROSE)),
    st.text(st.characters(exclude_characters="{#"), max_size=40),
)
def test_every_verdict_comes_through_prose_unchanged_with_a_violation(
    data: st.DataObject, verdict: tuple[Rubric, dict[str, Any]], prose: str, words: str
) -> None:
    # A mark of a thought is no prose: what happens then is the next test.
    assume(not marks_in(words).search(words))
    rubric, value = verdict
    outcome = check(
        rubric, headings(rubric) + PROSE[prose](data.draw(written(value))) + words
    )
    try:
        words.encode()
    except UnicodeEncodeError:
        assert isinstance(outcome, Failure)
        return
    assert isinstance(outcome, Verdict), outcome
    assert (outcome.scores, outcome.justifications) == scores_and_reasons(rubric, value)
    assert rubric.answer.sections or "prose" in {
        remark.code for remark in outcome.violations
    }


@calm
@given(
    st.data(),
    verdicts(),
    st.sampled_from([mark for form in thought_formats() for mark in form.example]),
)
def test_a_mark_of_a_thought_behind_an_answer_makes_a_draft_of_it(
    data: st.DataObject, verdict: tuple[Rubric, dict[str, Any]], mark: str
) -> None:
    rubric, value = verdict
    # Granite's closing mark alone is prose
    assume(marks_in(mark).search(f"\n{mark}\n"))
    outcome = check(
        rubric, f"{headings(rubric)}{data.draw(written(value))}\n{mark}\nno"
    )
    assert isinstance(outcome, Failure) or mark == "analysis", outcome


@calm
@given(st.data(), verdicts(), verdicts())
def test_two_verdicts_in_one_reply_are_never_mixed(
    data: st.DataObject,
    first: tuple[Rubric, dict[str, Any]],
    second: tuple[Rubric, dict[str, Any]],
) -> None:
    rubric, value = first
    other = data.draw(written(second[1]))
    outcome = check(rubric, f"{headings(rubric)}{other}\n{data.draw(written(value))}")
    if isinstance(outcome, Verdict):
        assert (outcome.scores, outcome.justifications) == scores_and_reasons(
            rubric, value
        )
        assert rubric.answer.sections or second[1] == value or second[0] is not rubric


# --- no score that the text does not say ----------------------------------------------------------------------

TYPED = '017-.e"\\{}[,: '
"""What turns one number, key or bracket into another."""


def one_character_away(text: str, places: Iterable[int]) -> Iterator[str]:
    for at in places:
        yield text[:at] + text[at + 1 :]
        for mark in TYPED:
            yield text[:at] + mark + text[at:]
            yield text[:at] + mark + text[at + 1 :]


def assert_no_score_but_what_is_written(
    rubric: Rubric, body: str, places: Iterable[int]
) -> None:
    start = headings(rubric)
    accepted = 0
    for changed in one_character_away(body, places):
        outcome = check(rubric, start + changed)
        if isinstance(outcome, Verdict):
            accepted += 1
            written = literals(rubric, changed)
            for key, score in outcome.scores.items():
                assert set(written[key]) == {str(score)}, changed
    assert accepted > 100  # spaces, digits and letters in the reasons


def middling(rubric: Rubric) -> str:
    scores = {
        factor.key: factor.scale.values[len(factor.scale.values) // 2]
        for factor in rubric.factors
    }
    return raw(answer(rubric, scores, "Seen."))


@every_rubric
def test_one_wrong_character_never_yields_a_score_that_is_not_written(
    rubric: Rubric,
) -> None:
    # Entries repeat one shape, so of a long answer the beginning and the end stand for the middle.
    body = middling(rubric)
    places = {*range(len(body))[:200], *range(len(body))[-100:]}
    assert_no_score_but_what_is_written(rubric, body, sorted(places))


@pytest.mark.soak
@every_rubric
def test_one_wrong_character_anywhere_never_yields_a_score_that_is_not_written(
    rubric: Rubric,
) -> None:
    body = middling(rubric)
    assert_no_score_but_what_is_written(rubric, body, range(len(body)))


ANSWERS = {
    rubric.name: [
        raw(answer(rubric)),
        raw(answer(rubric, {f.key: f.scale.worst for f in rubric.factors}, "Seen.")),
    ]
    for rubric in RUBRICS
}
PIECES = [
    *[
        "{",
        "}",
        "[",
        "]",
        '"',
        "'",
        "\\",
        ":",
        ",",
        "\n",
        " ",
        "\r",
        "0",
        "1",
        "7",
        "-",
        ".5",
        "e0",
        "\ufeff",
        "\u2028",
    ],
    *[
        "<think>",
        "</think>",
        "```json\n",
        "```\n",
        "~~~",
        '"score"',
        '"score": 6',
        '"reason": "',
        "null",
        "true",
        "NaN",
    ],
    *[mark for form in thought_formats() for mark in form.example],
    *[
        "## Difference Analysis\n",
        "## CP Decision\n",
        "## JSON\n",
        "- x: allowed\n",
        "- x: not allowed\n",
        ": unsure\n",
    ],
    *[
        '{"score": 1}',
        '{"image_id": "',
        "I'm sorry, I can't",
        "影",
        "\U0001f600",
        "\\u0073core",
        "\x00",
        "Final answer: ",
    ],
]


def scramble(rubric: Rubric, rng: random.Random) -> str:
    """A reply with pieces inserted, dropped, doubled, cut off and overwritten."""
    own = ANSWERS[rubric.name]
    others = ANSWERS[rng.choice(RUBRICS).name]
    parts = [
        rng.choice(rng.choice([own, own, others, PIECES, PIECES]))
        for _ in range(rng.choice([1, 2, 4]))
    ]
    text = "".join(rng.sample([rng.choice(own), *parts[1:]], len(parts)))
    for _ in range(rng.choice([0, 1, 1, 2, 5])):
        a, b = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        text = rng.choice(
            [
                text[:a] + rng.choice(PIECES) + text[a:],
                text[:a] + text[min(b, a + rng.randrange(12)) :],
                text[:b] + text[a:],
                text[:a] + rng.choice(TYPED) + text[a + 1 :],
                text[:a] + rng.choice(TYPED) + text[a:],
                text[:b],
            ]
        )
    return text


def assert_says_its_scores(
    rubric: Rubric, text: str, outcome: Verdict | Failure
) -> None:
    if isinstance(outcome, Failure):
        assert outcome.reasons
        assert outcome.as_json()["scores"] is None
        return
    assert list(outcome.scores) == [factor.key for factor in rubric.factors]
    written = literals(rubric, text)
    for factor in rubric.factors:
        assert outcome.scores[factor.key] in factor.scale.values
        assert str(outcome.scores[factor.key]) in written[factor.key], text
    json.dumps(outcome.as_json(), allow_nan=False).encode()


def hammer(seed: int, rounds: int) -> int:
    """How many of so many scrambled replies were accepted."""
    rng = random.Random(seed)
    accepted = 0
    for _ in range(rounds):
        rubric = rng.choice(RUBRICS)
        text = scramble(rubric, rng)
        outcome = check(
            rubric, text, identifier=rng.choice([None, ID]), strict=rng.random() < 0.1
        )
        assert_says_its_scores(rubric, text, outcome)
        accepted += isinstance(outcome, Verdict)
    return accepted


@pytest.mark.parametrize("seed", range(4))
def test_scrambled_replies_crash_nothing_and_invent_nothing(seed: int) -> None:
    assert hammer(seed, 2_000) > 200


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 110))
def test_a_hundred_thousand_scrambled_replies_crash_nothing_and_invent_nothing(
    seed: int,
) -> None:
    assert hammer(seed, 10_000) > 1_000


@calm
@given(
    st.sampled_from(RUBRICS),
    st.lists(
        st.sampled_from([*PIECES, *itertools.chain(*ANSWERS.values())])
        | st.text(max_size=8),
        max_size=8,
    ).map("".join),
)
@example(RUBRICS[0], "")
def test_any_text_gets_an_outcome(rubric: Rubric, text: str) -> None:
    assert_says_its_scores(rubric, text, check(rubric, text))


# --- what judges really wrote ---------------------------------------------------------------------------------


@pytest.mark.skipif(
    not REAL.exists(), reason="the collected judge replies are not on this machine"
)
@every_rubric
def test_replies_of_real_judges_crash_nothing_and_invent_nothing(
    rubric: Rubric,
) -> None:
    for line in REAL.read_text("utf-8").splitlines():
        text = json.loads(line)["text"]
        assert_says_its_scores(rubric, text, check(rubric, text))


@pytest.mark.skipif(
    not REAL.exists(), reason="the collected judge replies are not on this machine"
)
def test_no_real_reply_that_could_not_be_parsed_gets_a_score() -> None:
    rows = [json.loads(line) for line in REAL.read_text("utf-8").splitlines()]
    unparseable = [row["text"] for row in rows if row["kind"] == "viescore_unparseable"]
    assert unparseable
    for text in unparseable:
        assert isinstance(check(PAIR, text), Failure), text
