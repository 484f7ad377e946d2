"""What a request may carry, held against what the document says of it."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from editjudge.errors import UsageError
from editjudge.rewards.protocol import BASE64, decoded
from editjudge.rewards.reduction import FORMULAS, read_score
from editjudge.rubrics.files import load
from editjudge.rubrics.model import Factor, Rubric
from editjudge.rubrics.scale import Scale
from editjudge.rubrics.sets import formulas, member
from tests.faults import raises


@settings(max_examples=2000)
@given(
    st.sampled_from(("", "data:image/png;base64,", "data:;base64,")),
    st.text("Aa9+/= \n_", max_size=13),
)
def test_what_is_decoded_is_what_the_document_calls_base64(
    head: str, text: str
) -> None:
    try:
        taken = isinstance(decoded(head + text), bytes)
    except PydanticCustomError:
        taken = False
    assert taken == bool(re.fullmatch(BASE64.removesuffix("$"), head + text))


def rubric_of(**scales: Scale) -> Rubric:
    factors = tuple(Factor(key, scale) for key, scale in scales.items())
    return replace(load("fidelity"), name="r", factors=factors)


def test_a_reward_follows_the_direction_of_each_scale_and_leaves_out_what_has_no_ends() -> (
    None
):
    distance = Scale(range=(0, 1), direction="down")
    psnr = Scale(range=(0, None))
    both = [rubric_of(l1=distance, psnr=psnr)]
    scores = {("r", "l1"): 0.25, ("r", "psnr"): 31.5}
    assert read_score("mean", both).of(scores) == 0.75
    assert read_score("l1", both).of(scores) == 0.75
    assert read_score("mean", both, {("r", "psnr"): 1.0}).of(scores) is None
    assert read_score("mean", [rubric_of(psnr=psnr)]).of(scores) is None
    with raises(UsageError, "unbounded_score", "0..1"):
        read_score("psnr", both)


def test_a_reward_may_be_an_expression_of_scores() -> None:
    rubric = load("fidelity")
    scores = {
        ("fidelity", key): score
        for key, score in {"alignment": 7, "completeness": 4, "plausibility": 1}.items()
    }
    by_minimum = read_score("min(alignment, completeness)", [rubric])
    assert by_minimum.of(scores) == 0.5
    assert by_minimum.formula == "min(alignment, completeness)"
    of_shares = read_score("share(alignment) * share(completeness)", [rubric])
    assert of_shares.of(scores) == 0.5
    assert read_score("mean", [rubric]).of(scores) == 0.5
    assert read_score("alignment", [rubric]).of(scores) == 1.0
    without = {ref: score for ref, score in scores.items() if ref[1] != "alignment"}
    assert by_minimum.of(without) is None
    with raises(UsageError, "invalid_formula", '"alignment"'):
        read_score("min(alignmnt, completeness)", [rubric])
    with raises(UsageError, "unbounded_score", "0..1"):
        read_score("1 / (alignment - 1)", [rubric])
    with raises(UsageError, "column_in_formula", "edit_type"):
        read_score('alignment if item.edit_type == "add" else completeness', [rubric])
    with raises(UsageError, "weights_with_expression"):
        read_score("min(alignment)", [rubric], {("fidelity", "alignment"): 1.0})


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula_that_has_a_name_is_the_expression_that_the_guide_shows(
    formula: str,
) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text("utf-8")
    (expression,) = re.findall(rf"\| `{formula}` \| `([^`]+)` \|", guide)
    rubric = load("fidelity")
    keys = [factor.key for factor in rubric.factors]
    chance = random.Random(0)
    for _ in range(50):
        scores = {(rubric.name, key): chance.randint(1, 7) for key in keys}
        if chance.random() < 0.5:
            del scores[rubric.name, keys[0]]
        named = read_score(formula, [rubric]).of(scores)
        assert named == pytest.approx(read_score(expression, [rubric]).of(scores))
        alike = dict.fromkeys(scores, 1.0)
        assert named == pytest.approx(read_score(formula, [rubric], alike).of(scores))


def test_a_score_of_a_set_is_a_reward_from_its_worst_to_its_best() -> None:
    rubric = rubric_of(wrong=Scale(range=(0, 10)))
    (up,) = formulas({"overall": "wrong + 1"}, [member(rubric)])
    down = replace(up, direction="down")
    scores = {("r", "wrong"): 2}
    assert read_score("overall", [rubric], {}, {"overall": up}).of(scores) == 0.2
    assert read_score("overall", [rubric], {}, {"overall": down}).of(scores) == 0.8
