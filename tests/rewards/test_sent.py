"""What a request may carry, held against what the document says of it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from editjudge.errors import UsageError
from editjudge.rewards.protocol import BASE64, decoded
from editjudge.rewards.reduction import Reduction
from editjudge.rubrics.files import load
from editjudge.rubrics.model import Factor
from editjudge.rubrics.scale import Scale


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


def test_a_reward_follows_the_direction_of_each_scale_and_leaves_out_what_has_no_ends() -> (
    None
):
    distance = Factor("l1", Scale(range=(0, 1), direction="down"))
    psnr = Factor("psnr", Scale(range=(0, None)))
    scores = {"l1": (distance, 0.25), "psnr": (psnr, 31.5)}
    assert Reduction().of(scores) == 0.75
    assert Reduction(weights={"psnr": 1.0}).of(scores) is None
    assert Reduction().of({"psnr": (psnr, 31.5)}) is None


def test_a_reward_may_be_an_expression_of_scores() -> None:
    rubric = load("fidelity")
    of_rubric = {factor.key: factor for factor in rubric.factors}
    scores = {
        key: (of_rubric[key], score)
        for key, score in {"alignment": 7, "completeness": 4, "plausibility": 1}.items()
    }
    by_minimum = Reduction.read("min(alignment, completeness)", [rubric])
    assert by_minimum.of(scores) == 0.5
    assert by_minimum.words() == "min(alignment, completeness)"
    of_shares = Reduction.read("share(alignment) * share(completeness)", [rubric])
    assert of_shares.of(scores) == 0.5
    assert Reduction.read("mean", [rubric]).of(scores) == 0.5
    without = {name: pair for name, pair in scores.items() if name != "alignment"}
    assert by_minimum.of(without) is None
    with pytest.raises(UsageError, match="did you mean"):
        Reduction.read("min(alignmnt, completeness)", [rubric])
    with pytest.raises(UsageError, match="lowest and highest"):
        Reduction.read("1 / (alignment - 1)", [rubric])
