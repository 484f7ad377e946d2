"""What a request may carry, held against what the document says of it."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from editjudge.rubrics.model import Factor, Scale
from editjudge.web.reduction import Reduction
from editjudge.web.requests import BASE64, _decoded


@settings(max_examples=2000)
@given(st.sampled_from(("", "data:image/png;base64,", "data:;base64,")), st.text("Aa9+/= \n_", max_size=13))
def test_what_is_decoded_is_what_the_document_calls_base64(head: str, text: str) -> None:
    try:
        taken = isinstance(_decoded(head + text), bytes)
    except PydanticCustomError:
        taken = False
    assert taken == bool(re.fullmatch(BASE64.removesuffix("$"), head + text))


def test_a_reward_follows_the_direction_of_each_scale_and_leaves_out_what_has_no_ends() -> None:
    distance, psnr = (Factor("l1", Scale(range=(0, 1), direction="down")), Factor("psnr", Scale(range=(0, None))))
    scores = {"l1": (distance, 0.25), "psnr": (psnr, 31.5)}
    assert Reduction().of(scores) == 0.75
    assert Reduction(weights={"psnr": 1.0}).of(scores) is None
    assert Reduction().of({"psnr": (psnr, 31.5)}) is None
