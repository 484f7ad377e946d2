"""Scores from token probabilities: held against sums worked out by hand and by enumerating every path."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editjudge.judges.judge import Options
from editjudge.judges.probabilities import (
    ScoreProbabilities,
    distribution,
    score_probabilities,
)
from editjudge.judges.wire import Reply, TokenChoice
from editjudge.rubrics.contract import check, score_places
from editjudge.rubrics.files import load_one, names
from editjudge.rubrics.model import AnswerFormat, Factor, Rubric
from editjudge.rubrics.scale import Scale
from editjudge.rubrics.verdict import Verdict
from tests.running.made import answered, canned, editjudge, edits, run


def token(text: str) -> TokenChoice:
    return choice(text, {text: 1.0})


def choice(chosen: str, probabilities: Mapping[str, float]) -> TokenChoice:
    alternatives = tuple(
        (text.encode(), math.log(p)) for text, p in probabilities.items()
    )
    return TokenChoice(chosen.encode(), math.log(probabilities[chosen]), alternatives)


def rubric(scale: Scale, **answer: object) -> Rubric:
    form = AnswerFormat(form="scores", envelope="", **answer)  # type: ignore[arg-type]
    return Rubric(
        name="r",
        description="",
        task="Judge.",
        images=("edited",),
        factors=(Factor("f", scale),),
        answer=form,
    )


ONE_TO_FIVE = Scale((1, 2, 3, 4, 5))
ZERO_TO_TEN = Scale(tuple(range(11)))


def probabilities(
    asked_for: Rubric, reply: Reply, min_mass: float = 0.9
) -> ScoreProbabilities:
    """What is read at the scores that the contract takes."""
    verdict = check(asked_for, reply.text)
    assert isinstance(verdict, Verdict)
    return score_probabilities(asked_for, reply, verdict.scores, min_mass)


def spelled(*tokens: TokenChoice) -> Reply:
    return Reply(b"".join(each.data for each in tokens).decode(), tokens=tokens)


def read(
    scale: Scale, *tokens: TokenChoice, min_mass: float = 0.9, text: str | None = None
) -> Any:
    """Expected value and mass, or the reason for neither."""
    reply = Reply(
        text if text is not None else b"".join(t.data for t in tokens).decode(),
        tokens=tokens,
    )
    found = probabilities(rubric(scale), reply, min_mass)
    if found.abstained:
        assert not found.expected and not found.mass
        return found.abstained["f"]
    return found.expected["f"], found.mass["f"]


def test_the_mean_is_over_legal_tokens_and_the_mass_is_what_they_have() -> None:
    place = choice("4", {"4": 0.6, "5": 0.3, "3": 0.05, "x": 0.05})
    expected, mass = read(ONE_TO_FIVE, token('{"f": '), place, token("}"))
    assert mass == pytest.approx(0.95)
    assert expected == pytest.approx((4 * 0.6 + 5 * 0.3 + 3 * 0.05) / 0.95)


def test_tokens_that_spell_the_same_number_are_summed() -> None:
    place = choice(
        "4",
        {"4": 0.2, " 4": 0.2, ' "4': 0.1, '"4"': 0.1, "4}": 0.1, "\n4,": 0.1, "5": 0.2},
    )
    expected, mass = read(ONE_TO_FIVE, token('{"f":'), place, token("}"))
    assert (expected, mass) == (pytest.approx(4.2), pytest.approx(1.0))


def test_a_token_that_holds_the_colon_too_is_read_after_it() -> None:
    place = choice('": 4', {'": 4': 0.5, '":5': 0.3, '":': 0.1, '"4': 0.1})
    expected, mass = read(ONE_TO_FIVE, token('{"f'), place, token("}"), min_mass=0.5)
    assert (expected, mass) == (pytest.approx((2.0 + 1.5) / 0.8), pytest.approx(0.8))


def test_numbers_of_two_tokens_are_followed_along_the_reply() -> None:
    first = choice("1", {"1": 0.6, "9": 0.3, "x": 0.1})
    second = choice("0", {"0": 0.7, "}": 0.2, "5": 0.1})
    expected, mass = read(
        ZERO_TO_TEN, token('{"f": '), first, second, token("}"), min_mass=0.5
    )
    assert mass == pytest.approx(0.3 + 0.6 * 0.9)
    assert expected == pytest.approx((9 * 0.3 + 10 * 0.42 + 1 * 0.12) / 0.84)


def test_a_one_that_ends_there_is_one_and_not_ten() -> None:
    first = choice("1", {"1": 0.9, "2": 0.1})
    second = choice("}", {"}": 0.75, "0": 0.25})
    expected, mass = read(ZERO_TO_TEN, token('{"f": '), first, second)
    assert (expected, mass) == (
        pytest.approx(0.675 * 1 + 0.225 * 10 + 0.1 * 2),
        pytest.approx(1.0),
    )


def test_a_token_that_was_not_taken_and_begins_two_numbers_is_of_neither() -> None:
    place = choice("8", {"8": 0.8, "1": 0.2})
    assert "0.8, less than --min-mass 0.9" in str(
        read(ZERO_TO_TEN, token('{"f": '), place, token("}"))
    )
    assert read(ZERO_TO_TEN, token('{"f": '), place, token("}"), min_mass=0.7) == (
        pytest.approx(8),
        pytest.approx(0.8),
    )


def test_decimals_are_followed_over_the_point() -> None:
    half_steps = Scale(range=(0, 5), step=0.5)
    tokens = (
        choice("3", {"3": 0.9, "2.5": 0.1}),
        choice(".", {".": 0.8, "}": 0.2}),
        choice("5", {"5": 0.5, "0": 0.5}),
    )
    expected, mass = read(half_steps, token('{"f": '), *tokens, token("}"))
    assert mass == pytest.approx(1.0)
    assert expected == pytest.approx(
        0.1 * 2.5 + 0.9 * (0.2 * 3 + 0.8 * 0.5 * 3.5 + 0.8 * 0.5 * 3.0)
    )


def test_below_the_least_mass_there_is_a_reason_and_no_number() -> None:
    place = choice("4", {"4": 0.3, "the": 0.7})
    assert "probability of 0.3" in str(
        read(ONE_TO_FIVE, token('{"f": '), place, token("}"))
    )


def test_probabilities_beyond_one_are_not_believed() -> None:
    place = choice("4", {"4": 0.9, "5": 0.9})
    assert "add up to 1.8" in str(read(ONE_TO_FIVE, token('{"f": '), place, token("}")))


def test_tokens_that_are_not_the_reply_are_not_read() -> None:
    tokens = token('{"f": '), choice("4", {"4": 1.0}), token("}")
    assert read(ONE_TO_FIVE, *tokens, token(" "), token("</s>"), text='{"f": 4}') == (
        4,
        1,
    )
    assert read(
        ONE_TO_FIVE, token("<think>so</think>\n"), *tokens, text='{"f": 4}'
    ) == (4, 1)
    assert "do not spell" in str(read(ONE_TO_FIVE, *tokens, text='{"f": 5}'))
    assert "more than once" in str(read(ONE_TO_FIVE, *tokens, *tokens, text='{"f": 4}'))
    assert "no token probabilities" in str(read(ONE_TO_FIVE, text='{"f": 4}'))


def test_a_score_that_is_the_whole_reply_is_read_and_labelled_lines_are_not() -> None:
    place = choice("4", {"4": 0.6, "5": 0.4})
    token_rubric = dataclasses.replace(
        rubric(ONE_TO_FIVE), answer=AnswerFormat(form="token", reason_key="")
    )
    found = probabilities(token_rubric, Reply("4", tokens=(place,)))
    assert found.expected == {"f": pytest.approx(4.4)}
    lines = dataclasses.replace(
        rubric(ONE_TO_FIVE), answer=AnswerFormat(form="lines", reason_key="")
    )
    assert set(
        probabilities(lines, Reply("f: 4", tokens=(token("f: "), place))).abstained
    ) == {"f"}


TOKEN = dataclasses.replace(
    rubric(ONE_TO_FIVE), answer=AnswerFormat(form="token", reason_key="")
)
SURE_OF_FIVE = choice("5", {"5": 0.99, "4": 0.01})
SURE_OF_TWO = choice("2", {"2": 0.98, "3": 0.02})


@pytest.mark.parametrize(
    "tokens",
    [
        (token("<think>a "), SURE_OF_FIVE, token("?</think>"), SURE_OF_TWO),
        (token("It is a "), SURE_OF_FIVE, token(".</think>\n"), SURE_OF_TWO),
        (token("<think>"), SURE_OF_FIVE, token("</think>**"), SURE_OF_TWO, token("**")),
        (SURE_OF_TWO, token("\n<think>or "), SURE_OF_FIVE, token("</think>")),
        (
            token("\ufeff<think>"),
            SURE_OF_FIVE,
            token("</think> "),
            SURE_OF_TWO,
            token("\n"),
        ),
    ],
)
def test_a_score_that_is_the_whole_reply_is_read_where_it_stands_and_not_in_a_thought(
    tokens: tuple[TokenChoice, ...],
) -> None:
    found = probabilities(TOKEN, spelled(*tokens))
    assert found.expected == {"f": pytest.approx(2.02)} and not found.abstained


@pytest.mark.parametrize(
    "tokens",
    [
        (
            token('<think>{"f": '),
            SURE_OF_FIVE,
            token('}</think>{"f": '),
            SURE_OF_TWO,
            token("}"),
        ),
        (
            token('{"f": '),
            SURE_OF_TWO,
            token('}<think>{"f": '),
            choice("2", {"2": 0.5, "5": 0.5}),
            token("}</think>"),
        ),
        (
            token("Of "),
            SURE_OF_FIVE,
            token(' I say:\n```json\n{"f": '),
            SURE_OF_TWO,
            token("}\n```\nand "),
            token("5"),
        ),
        (token('\ufeff{"f": '), SURE_OF_TWO, token("}")),
    ],
)
def test_a_score_in_json_is_read_in_the_answer_and_nowhere_around_it(
    tokens: tuple[TokenChoice, ...],
) -> None:
    found = probabilities(rubric(ONE_TO_FIVE), spelled(*tokens))
    assert found.expected == {"f": pytest.approx(2.02)} and not found.abstained


def test_a_reason_with_digits_does_not_move_the_place_of_the_score() -> None:
    reasoned = dataclasses.replace(
        rubric(ONE_TO_FIVE),
        answer=AnswerFormat(form="scores", envelope="", texts=("why", "more")),
    )
    tokens = (
        token('{"why": "'),
        SURE_OF_FIVE,
        token(' of 5, \\"f\\": 5", "more": "5", "f": '),
        SURE_OF_TWO,
        token("}"),
    )
    assert probabilities(reasoned, spelled(*tokens)).expected == {
        "f": pytest.approx(2.02)
    }


def test_an_answer_that_stands_twice_is_read_where_it_was_decided() -> None:
    copy = choice("2", {"2": 1.0})
    tokens = (token('{"f": '), SURE_OF_TWO, token('}\n{"f":'), copy, token("}"))
    assert probabilities(rubric(ONE_TO_FIVE), spelled(*tokens)).expected == {
        "f": pytest.approx(2.02)
    }


def test_an_abstention_with_a_digit_in_its_word_has_no_mean() -> None:
    scale = Scale((1, 2, 3, 4, 5), abstain=("not 5",))
    silent = dataclasses.replace(
        rubric(scale), answer=AnswerFormat(form="token", reason_key="")
    )
    found = probabilities(silent, spelled(token("not "), SURE_OF_FIVE))
    assert not found.expected and not found.mass and set(found.abstained) == {"f"}


def test_tokens_of_a_thought_alone_are_not_taken_for_the_reply() -> None:
    reply = Reply("5", tokens=(token("a "), SURE_OF_FIVE, token(" it seems")))
    assert set(probabilities(TOKEN, reply).abstained) == {"f"}


def test_a_scale_without_steps_and_choices_have_no_mean() -> None:
    tokens = token('{"f": '), choice("4", {"4": 1.0}), token("}")
    assert "too many values" in str(read(Scale(range=(0, None)), *tokens))
    reply = Reply(
        '{"f": "a"}', tokens=(token('{"f": "'), choice("a", {"a": 1.0}), token('"}'))
    )
    found = probabilities(rubric(Scale(choices=("a", "b"))), reply)
    assert not found.expected and not found.abstained


SHARES = st.lists(st.integers(1, 100), min_size=6, max_size=6).map(
    lambda n: [x / sum(n) for x in n]
)


@given(SHARES, SHARES)
def test_it_is_the_sum_over_all_ways_to_write_a_number(
    first: list[float], second: list[float]
) -> None:
    texts = ["0", "1", "5", "10", "}", "x"]
    one = dict(zip(texts, first, strict=True))
    two = dict(zip(texts, second, strict=True))
    wanted = {
        0: one["0"],
        1: one["1"] * two["}"],
        5: one["5"],
        10: one["10"] + one["1"] * two["0"],
    }
    for end in ("0", "}"):
        found = distribution(
            Scale((0, 1, 5, 10)), [choice("1", one), choice(end, two)], 0
        )
        assert found == pytest.approx(wanted)


@pytest.mark.parametrize(
    "name",
    [name for name in names() if not getattr(load_one(name), "computed_by", None)],
)
def test_every_score_of_every_rubric_is_found_in_its_place(name: str) -> None:
    from editjudge.rubrics.answer import envelope

    one = load_one(name)
    assert isinstance(one, Rubric)
    numbers = {
        factor.key: factor.scale.steps[-1]
        for factor in one.factors
        if factor.scale.steps
    }
    words = dict.fromkeys(
        (factor.key for factor in one.factors), 'scores "1" to \\ {"score": 7} 0.5'
    )
    answer = json.dumps(envelope(one, "edit-7", numbers, words, {}), indent=1)
    reply = f"## Decision\n{{7}} and 5\n```json\n{answer}\n```"
    places = score_places(one, reply)
    assert {
        key: json.loads(reply[begin:end]) for key, (begin, end) in places.items()
    } == numbers


# --- judges that give none ------------------------------------------------------------------------------------


def test_a_server_that_refuses_probabilities_is_asked_without_and_the_reason_is_kept(
    tmp_path: Path,
) -> None:
    requests = []

    def say(_: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        requests.append(json.loads(body))
        if "logprobs" in requests[-1]:
            return (
                400,
                {},
                json.dumps(
                    {"error": {"message": "logprobs are not supported"}}
                ).encode(),
            )
        return 200, {}, json.dumps(answered("/v1/chat/completions", body)).encode()

    with canned(say):
        done = run(
            edits(tmp_path, 3),
            tmp_path / "s.db",
            rubrics=("quality",),
            options=Options(read="logprobs"),
        )
    assert done.statuses() == {"ok": 3}
    for row in done.rows:
        assert (
            row["scores"]
            and row["expected"] == {}
            and set(row["abstained"]) == set(row["scores"])
        )
        assert all(
            "refuses logprobs: HTTP 400" in reason
            for reason in row["abstained"].values()
        )
    assert sum("logprobs" in request for request in requests) <= 3


@pytest.mark.parametrize("judge", ["measured", "anthropic/claude", "google/gemini"])
def test_a_judge_without_probabilities_is_refused_before_it_is_asked(
    judge: str, tmp_path: Path
) -> None:
    told = editjudge(
        "run",
        edits(tmp_path, 1),
        "--judge",
        judge,
        "--read",
        "logprobs",
        "--store",
        tmp_path / "s.db",
    )
    assert (
        told.code == 2
        and "does not return token probabilities" in told.err
        and not (tmp_path / "s.db").exists()
    )


def test_a_run_without_probabilities_is_stored_as_it_was_before_there_were_any() -> (
    None
):
    assert {"read", "min_mass"}.isdisjoint(Options().frozen())
    assert Options(read="logprobs").frozen()["min_mass"] == 0.9
