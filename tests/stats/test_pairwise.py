"""Two orders of one question: verdicts, flips, win rates and strengths."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from editjudge.errors import UsageError
from editjudge.orders import CHOICES, decide, majority
from editjudge.stats.pairwise import PairwiseSummary, summarise
from editjudge.stats.strengths import next_games
from tests.faults import raises, shows

from .made import said, valid_json

answers = st.sampled_from([*CHOICES, None])
swapped = {"a": "b", "b": "a", "tie": "tie", None: None}


def asked(
    strengths: list[float],
    sources: int,
    bias: float,
    seed: int = 0,
    *,
    tie: float = 0.5,
    draws: int = 200,
) -> PairwiseSummary:
    """All pairs on every source image; a share `bias` of the answers names what is shown first."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[str, str, str, str, int]] = []
    for source in range(sources):
        for i, j in combinations(range(len(strengths)), 2):
            a, b = (i, j) if rng.random() < 0.5 else (j, i)
            gap = strengths[a] - strengths[b]
            odds = np.array([np.exp(gap / 2), np.exp(-gap / 2), tie])
            fair = [str(rng.choice(CHOICES, p=odds / odds.sum())) for _ in range(2)]
            ab = "a" if rng.random() < bias else fair[0]
            ba = "b" if rng.random() < bias else fair[1]
            rows.append((f"m{a}", f"m{b}", ab, ba, source))
    model_a, model_b, ab_all, ba_all, group = zip(*rows, strict=True)
    return summarise(model_a, model_b, ab_all, ba_all, group=group, draws=draws)


@pytest.mark.parametrize(
    ("ab", "ba", "verdict", "flipped", "half"),
    [
        ("a", "a", "a", False, False),
        ("tie", "tie", "tie", False, False),
        ("a", "b", "tie", True, False),
        ("b", "a", "tie", True, False),
        ("a", "tie", "tie", False, True),
        ("tie", "b", "tie", False, True),
        (None, "a", None, False, False),
        ("tie", None, None, False, False),
    ],
)
def test_a_verdict_is_what_both_orders_say(
    ab: str | None, ba: str | None, verdict: str | None, flipped: bool, half: bool
) -> None:
    assert decide(ab, ba) == (verdict, flipped, half)


@given(answers, answers)
def test_naming_the_outputs_the_other_way_round_turns_the_verdict_round(
    ab: str | None, ba: str | None
) -> None:
    one = decide(ab, ba)
    other = decide(swapped[ab], swapped[ba])
    assert other == (swapped[one.verdict], one.flipped, one.half) and one == decide(
        ba, ab
    )


def test_an_answer_that_is_none_of_the_three_is_refused() -> None:
    with raises(UsageError, "unknown_choice", "'a', 'b' or 'tie'"):
        decide("A", "a")


@pytest.mark.parametrize(
    ("repeats", "one"),
    [
        (["a", "a", "b"], "a"),
        (["a", "b"], "tie"),
        (["tie", "tie", "a"], "tie"),
        ([None, "b"], "b"),
        ([None], None),
    ],
)
def test_repeats_of_one_order_are_one_answer(
    repeats: list[str | None], one: str | None
) -> None:
    assert majority(repeats) == one


def test_a_judge_that_always_names_the_first_wins_nothing_and_is_useless() -> None:
    found = asked([2, 0, -2], 30, bias=1)
    assert (found.decided, found.flips.share, found.position.share) == (0, 1.0, 1.0)
    assert all(
        one.wins == 0 and one.strength is None and one.strength_ci is None
        for one in found.models
    )
    assert "always names the first" in said(found.useless) and "0 wins" in said(
        found.useless
    )
    valid_json(found)


def test_a_judge_that_always_names_the_second_is_as_useless() -> None:
    found = summarise(["x"] * 30, ["y"] * 30, ["b"] * 30, ["a"] * 30)
    assert "second" in said(found.useless) and found.position.share == -1


def test_a_judge_that_calls_everything_a_tie_is_useless_without_a_flip() -> None:
    result = summarise(["x"] * 30, ["y"] * 30, ["tie"] * 30, ["tie"] * 30)
    assert shows(said(result.useless), "30 pairs") and result.flips.share == 0


def test_a_judge_that_mostly_goes_by_the_place_is_worse_than_a_coin() -> None:
    assert "a coin" in said(asked([0.2, 0, -0.2], 60, bias=0.9).useless)


@pytest.mark.parametrize("bias", [0, 0.3])
def test_strengths_are_recovered_whatever_the_position_bias(bias: float) -> None:
    truth = [1.0, 0.2, -1.2]
    found = asked(truth, 500, bias, draws=50)
    by_name = {one.model: one for one in found.models}
    assert [by_name[f"m{i}"].strength for i in range(3)] == pytest.approx(
        truth, abs=0.15
    )
    assert (
        found.position.share == pytest.approx(bias, abs=0.05) and found.useless is None
    )
    # Two equal models tie with nu / (2 + nu).
    assert found.tie_rate_of_equals == pytest.approx(0.2, abs=0.03)
    # A bias draws what verdicts alone say towards zero.
    strongest = found.models[0].bradley_terry
    assert (
        strongest is not None
        and strongest.strength is not None
        and strongest.strength < 0.8
    )


def test_without_ties_and_bias_strengths_are_bradley_terrys() -> None:
    rng = np.random.default_rng(1)
    model_a = [f"m{i}" for i in rng.integers(0, 2, 400)]
    model_b = [f"m{i}" for i in rng.integers(2, 4, 400)]
    won = [str(x) for x in rng.choice(["a", "b"], 400, p=[0.6, 0.4])]
    for one in summarise(model_a, model_b, won, None, draws=20).models:
        assert one.bradley_terry is not None and one.strength == pytest.approx(
            one.bradley_terry.strength, abs=1e-6
        )


def test_intervals_hold_the_truth_and_equal_models_are_not_told_apart() -> None:
    truth = [0.8, 0.0, 0.0, -0.8]
    hits = 0
    told = 0
    for seed in range(15):
        found = asked(truth, 40, 0.1, seed, draws=150)
        by_name = {one.model: one for one in found.models}
        cis = [by_name[f"m{i}"].strength_ci for i in range(4)]
        hits += sum(
            ci is not None and ci.lo <= value <= ci.hi
            for ci, value in zip(cis, truth, strict=True)
        )
        told += not set(by_name["m1"].groups) & set(by_name["m2"].groups)
        assert not set(by_name["m0"].groups) & set(by_name["m3"].groups)
    assert hits / 60 >= 0.85 and told <= 3


def test_two_answers_of_one_source_image_do_not_count_as_two_images() -> None:
    one = asked([1, -1], 40, 0, draws=400)
    n = 40
    rng = np.random.default_rng(2)
    won = [str(x) for x in rng.choice(["a", "b"], n, p=[0.7, 0.3])]
    once = summarise(["x"] * n, ["y"] * n, won, won, group=range(n)).models[0]
    often = summarise(
        ["x"] * n * 5, ["y"] * n * 5, won * 5, won * 5, group=[*range(n)] * 5
    ).models[0]
    assert once.win_rate == pytest.approx(often.win_rate)
    assert often.ci == pytest.approx(once.ci, abs=1e-6)
    assert often.strength_ci == pytest.approx(once.strength_ci, abs=0.05)
    assert one.models[0].model == "m0"


def test_the_matrix_and_the_records_count_each_pair_once() -> None:
    found = summarise(
        ["x", "y", "x", "x"],
        ["y", "x", "z", "y"],
        ["a", "a", "a", None],
        ["a", "a", "b", "a"],
        group=range(4),
    )
    xy, xz = found.pairs
    assert (xy.a, xy.b, xy.n, xy.a_wins, xy.b_wins, xy.ties, xy.failed) == (
        "x",
        "y",
        2,
        1,
        1,
        0,
        1,
    )
    assert (xz.n, xz.ties, xz.flips) == (1, 1, 1)
    assert (found.n, found.failed, found.decided, found.ties, found.flipped) == (
        4,
        1,
        2,
        1,
        1,
    )
    by_name = {one.model: one for one in found.models}
    assert (
        by_name["x"].wins,
        by_name["x"].ties,
        by_name["x"].losses,
        by_name["x"].failed,
    ) == (1, 1, 1, 1)
    valid_json(found)


def test_one_order_alone_says_that_the_bias_is_part_of_it() -> None:
    found = summarise(["x"] * 25, ["y"] * 25, ["a"] * 20 + ["b"] * 5, None)
    assert (
        not found.both_orders
        and found.notes[0].code == "one_order"
        and found.flips.share == 0
    )
    assert found.models[0].win_rate == 0.8


def test_no_pair_is_no_error() -> None:
    assert summarise([], [], [], []).models == ()
    nothing = summarise(["x"], ["y"], [None], ["a"])
    assert nothing.failed == 1 and all(one.win_rate is None for one in nothing.models)
    valid_json(nothing)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from("xyz"), st.sampled_from("xyz"), answers, answers),
        max_size=25,
    )
)
def test_any_answers_give_valid_json_and_counts_that_add_up(
    rows: list[tuple[str, str, str | None, str | None]],
) -> None:
    columns = (
        [list(column) for column in zip(*rows, strict=True)]
        if rows
        else [[], [], [], []]
    )
    found = summarise(*columns, draws=20)
    valid_json(found)
    assert found.failed + found.decided + found.ties == found.n == len(rows)
    assert found.flipped + found.half <= found.ties
    for one in found.models:
        assert one.wins + one.ties + one.losses == one.n
    assert sum(one.wins for one in found.models) == sum(
        one.losses for one in found.models
    )


def test_the_next_games_are_of_models_whose_order_is_in_doubt() -> None:
    wins = np.array(
        [[0, 20, 39, 40], [20, 0, 39, 40], [1, 1, 0, 38], [0, 0, 2, 0]], float
    )
    plenty = np.full((4, 4), 100)
    chosen = next_games(wins, plenty, 10, rng=np.random.default_rng(0))
    assert chosen.count((0, 1)) >= 8
    plenty[0, 1] = plenty[1, 0] = 0
    assert (0, 1) not in next_games(wins, plenty, 10, rng=np.random.default_rng(0))
    assert (
        next_games(wins, np.zeros((4, 4), int), 10, rng=np.random.default_rng(0)) == []
    )


def test_without_any_game_the_first_questions_go_round_all_models() -> None:
    chosen = next_games(
        np.zeros((5, 5)), np.full((5, 5), 9), 10, rng=np.random.default_rng(0)
    )
    assert {model for pair in chosen for model in pair} == set(range(5)) and len(
        set(chosen)
    ) >= 8
