"""Several rubrics as one question: nothing of any of them is lost, and what cannot be joined is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from editjudge.errors import RubricError
from editjudge.rubrics import files
from editjudge.rubrics.contract import check
from editjudge.rubrics.model import Consistency, Rubric, Template
from editjudge.rubrics.sets import fuse
from editjudge.rubrics.verdict import Failure, Verdict
from tests.faults import raises
from tests.rubrics.replies import answer, raw

MEMBERS = files.resolve(["online"])
ONLINE = files.load_one("online")
FIDELITY = files.load("fidelity")


def test_the_online_set_has_one_envelope_and_twelve_factors() -> None:
    assert len(ONLINE.factors) == 12
    assert ONLINE.contract() == {
        **MEMBERS[0].contract(),
        "name": "online",
        "hash": ONLINE.hash,
        "factors": [
            factor for member in MEMBERS for factor in member.contract()["factors"]
        ],
    }


def test_every_factor_keeps_its_scale_and_its_words() -> None:
    assert ONLINE.factors == tuple(
        factor for member in MEMBERS for factor in member.factors
    )
    assert ONLINE.members == tuple(MEMBERS)


def test_no_step_and_no_constraint_is_lost_or_said_twice() -> None:
    for field in ("steps", "constraints"):
        fused = getattr(ONLINE, field)
        assert len(set(fused)) == len(fused)
        assert set(fused) == {
            line for member in MEMBERS for line in getattr(member, field)
        }


def test_a_fused_answer_is_held_to_the_whole_contract() -> None:
    whole = answer(ONLINE)
    assert isinstance(check(ONLINE, raw(whole)), Verdict)
    for member in MEMBERS:
        assert isinstance(check(ONLINE, raw(answer(member))), Failure)
    del whole["online_factor_results"]["alignment"]
    failure = check(ONLINE, raw(whole))
    assert isinstance(failure, Failure)
    assert [(remark.code, remark.factor) for remark in failure.reasons] == [
        ("missing_factor", "alignment")
    ]


def test_a_set_of_one_is_that_rubric_under_another_name() -> None:
    offline = files.load_one("offline")
    reference = files.load("reference")
    assert offline.hash == reference.hash
    assert offline.contract() == {**reference.contract(), "name": "offline"}
    assert dataclasses.replace(offline, name="reference") == reference


def test_what_each_member_is_shown_is_shown_once() -> None:
    other = dataclasses.replace(
        FIDELITY,
        images=("ground_truth", "edited"),
        texts=("referring_expression",),
        factors=FIDELITY.factors[:1],
    )
    fused = fuse("both", [MEMBERS[0], other])
    assert fused.images == ("input", "edited", "ground_truth")
    assert fused.texts == ("instruction", "referring_expression")


CANNOT = {
    "another envelope": ["preservation", "reference"],
    "another form": ["fidelity", "compliance"],
    "sections": ["lighting", "fidelity"],
}


@pytest.mark.parametrize("names", CANNOT.values(), ids=CANNOT)
def test_answers_of_different_form_cannot_share_a_question(names: list[str]) -> None:
    for order in (names, names[::-1]):
        with raises(RubricError, "different_forms"):
            fuse("set", [files.load(name) for name in order])


ALONE: dict[str, dict[str, Any]] = {
    "a published prompt": {"template": Template("Judge.")},
    "a rule of consistency": {
        "consistency": Consistency("Notes", ("fine",), ("bad",), "alignment", 7, 1)
    },
}


@pytest.mark.parametrize("change", ALONE.values(), ids=ALONE)
def test_a_rubric_that_must_be_asked_alone_is_refused_in_either_place(
    change: dict[str, Any],
) -> None:
    alone: Rubric = dataclasses.replace(FIDELITY, **change)
    for order in ([alone, MEMBERS[0]], [MEMBERS[0], alone]):
        with raises(RubricError, "different_forms"):
            fuse("set", order)
    assert fuse("one", [alone]).hash == alone.hash


def test_two_rubrics_with_a_factor_in_common_cannot_share_an_answer() -> None:
    with raises(
        RubricError, "scored_twice", '"set"', "alignment, completeness, plausibility"
    ):
        fuse("set", [FIDELITY, FIDELITY])


def test_the_hash_of_a_set_depends_on_its_members_and_their_order() -> None:
    assert fuse("online", MEMBERS).hash == ONLINE.hash
    assert fuse("other name", MEMBERS).hash == ONLINE.hash
    assert fuse("online", MEMBERS[::-1]).hash != ONLINE.hash
    assert fuse("online", MEMBERS[:2]).hash != ONLINE.hash
