"""Ranks within a group by comparing its edits two at a time, in both orders."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from editjudge.media.cache import ImageReader
from editjudge.rewards.protocol import Terms
from editjudge.rewards.protocol import schema as protocol_schema
from editjudge.rubrics.files import load
from tests.measured.made import encoded, jpeg, photograph, recoloured
from tests.running.made import editjudge, picture
from tests.running.test_pair_runs import line
from tests.web.served import Served, base64_of, edit, serving

TERMS = Terms(rubrics=("compliance",), more_rubrics=())
SWAPPED = {"a": "b", "b": "a", "tie": "tie"}
Answers = Mapping[tuple[int, int], tuple[str | None, str | None]]


def judge(path: Path, answers: Answers, **more: Any) -> str:
    """A judge that answers these pairs: by numbers, the better one in each order, None where it does not answer."""
    lines = [
        line(f"e{a}|e{b}", order, choice if order == "ab" else SWAPPED[choice], **more)
        for (a, b), choices in answers.items()
        for order, choice in zip(("ab", "ba"), choices, strict=True)
        if choice
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return f"replay:{path}"


def member(number: int, **more: Any) -> dict[str, Any]:
    shared = {
        "input": base64_of(picture("input")),
        "instruction": "Paint the car red.",
        "group": "g",
    }
    return edit(number, **shared | more)


def order_of(*numbers: int) -> dict[tuple[int, int], tuple[str, str]]:
    """The answers of a judge that prefers earlier ones of these."""
    return {
        (a, b): ("a", "a") if numbers.index(a) < numbers.index(b) else ("b", "b")
        for a, b in combinations(sorted(numbers), 2)
    }


def numbers(rewards: list[dict[str, Any]]) -> list[float | None]:
    return [reward["reward"] for reward in rewards]


def valid(served: Served, *edits: dict[str, Any], **options: Any) -> dict[str, Any]:
    answer = served.post(
        "reward", {"edits": list(edits), "ranking": "pairs", **options}
    )
    assert answer.status_code == 200, answer.text
    schema = protocol_schema()
    whole = {name: part for name, part in schema.items() if name != "anyOf"} | {
        "$ref": "#/$defs/Rewards"
    }
    jsonschema.Draft202012Validator(whole).validate(answer.json())
    document: dict[str, Any] = answer.json()
    return document


def test_the_reward_is_the_share_of_comparisons_that_were_won(tmp_path: Path) -> None:
    with serving(
        tmp_path / "s.db", judge(tmp_path / "r", order_of(2, 0, 3, 1)), TERMS
    ) as served:
        answer = valid(served, *(member(n, model=f"m{n}") for n in range(4)))
        rewards = answer["rewards"]
        assert numbers(rewards) == pytest.approx([2 / 3, 0, 1, 1 / 3])
        assert [reward["group"]["rank"] for reward in rewards] == [2, 4, 1, 3]
        assert rewards[0]["group"]["comparisons"] == {
            "asked": 3,
            "failed": 0,
            "ties": 0,
            "flipped": 0,
        }
        assert set(rewards[0]["keys"]) == {
            f"preference#{n}.{order}" for n in (1, 2, 3) for order in ("ab", "ba")
        }
        assert (
            answer["rubrics"] == {"preference": load("preference").hash}
            and "preference.overall" in answer["formula"]
        )
        assert [
            row["key"]
            for row in served.rows()
            if row["key"] == rewards[0]["keys"]["preference#1.ab"]
        ]
        again = valid(served, *(member(n, model=f"m{n}") for n in range(4)))["rewards"]
        assert numbers(again) == numbers(rewards) and all(
            reward["cached"] for reward in again
        )
        name = answer["run"]["name"]
    report = editjudge("report", name, "--store", tmp_path / "s.db", "--format", "json")
    assert report.code == 0, report.err
    assert "m2" in report.out


def test_ties_are_half_a_win_and_a_judge_that_goes_by_the_place_has_said_nothing(
    tmp_path: Path,
) -> None:
    answers: Answers = {
        (0, 1): ("tie", "tie"),
        (0, 2): ("a", "b"),
        (1, 2): ("a", "tie"),
    }
    with serving(tmp_path / "s.db", judge(tmp_path / "r", answers), TERMS) as served:
        rewards = valid(served, *(member(n) for n in range(3)))["rewards"]
        assert numbers(rewards) == [0.5, 0.5, 0.5]
        assert [reward["group"]["comparisons"]["flipped"] for reward in rewards] == [
            1,
            0,
            1,
        ]
        assert all(reward["group"]["low_variance"] for reward in rewards)


def test_a_comparison_that_failed_is_no_number_and_the_others_keep_theirs(
    tmp_path: Path,
) -> None:
    answers = dict(order_of(0, 1, 2, 3)) | {(0, 1): ("a", None)}
    with serving(tmp_path / "s.db", judge(tmp_path / "r", answers), TERMS) as served:
        rewards = valid(served, *(member(n) for n in range(4)))["rewards"]
        assert numbers(rewards) == [None, None, pytest.approx(1 / 3), 0]
        assert [reward["status"] for reward in rewards] == [
            "unreachable",
            "unreachable",
            "ok",
            "ok",
        ]
        assert (
            rewards[0]["group"]["comparisons"]["failed"] == 1
            and rewards[0]["scores"] is None
        )
        assert rewards[0]["reasons"][0]["code"] == "no_recorded_reply"
        assert (
            served.post(
                "reward",
                {"edits": [member(0), member(1)], "ranking": "pairs", "strict": True},
            ).status_code
            == 503
        )


def test_an_edit_that_cannot_be_shown_fails_alone_and_is_compared_with_nobody(
    tmp_path: Path,
) -> None:
    same = member(3, edited=base64_of(picture("input")))
    broken = member(4, edited=base64_of(b"no picture"))
    with serving(
        tmp_path / "s.db", judge(tmp_path / "r", order_of(1, 0)), TERMS
    ) as served:
        rewards = valid(
            served, member(0), member(1), member(2, edited=None), same, broken
        )["rewards"]
        assert numbers(rewards) == [0, 1, None, None, None]
        assert [reward["status"] for reward in rewards[2:]] == [
            "missing_output",
            "abstained",
            "bad_image",
        ]
        assert (
            rewards[3]["reasons"][0]["code"] == "unchanged" and len(served.rows()) == 2
        )


def test_an_edit_that_is_alone_has_no_rank_and_nobody_is_asked(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db", judge(tmp_path / "r", {}), TERMS) as served:
        answer = valid(served, member(0), member(1, group="h"))
        assert numbers(answer["rewards"]) == [None, None] and answer["run"] is None
        assert {reward["reasons"][0]["code"] for reward in answer["rewards"]} == {
            "alone_in_group"
        }
        assert served.rows() == []


def test_edits_without_a_group_are_compared_if_they_share_input_and_instruction(
    tmp_path: Path,
) -> None:
    with serving(
        tmp_path / "s.db", judge(tmp_path / "r", order_of(1, 0)), TERMS
    ) as served:
        rewards = valid(served, *(member(n, group=None) for n in (0, 1)), edit(2))[
            "rewards"
        ]
        assert numbers(rewards) == [0, 1, None]


def test_a_mixture_weighs_what_each_judge_says_of_the_pairs(tmp_path: Path) -> None:
    a = judge(tmp_path / "a", order_of(0, 1))
    b = judge(tmp_path / "b", order_of(1, 0))
    terms = Terms(rubrics=("compliance",), more_rubrics=(), mixture={a: 3, b: 1})
    with serving(tmp_path / "s.db", a, terms) as served:
        rewards = valid(served, member(0), member(1))["rewards"]
        assert numbers(rewards) == [0.75, 0.25]
        assert {name.partition("@")[2] for name in rewards[0]["keys"]} == {a, b}


def test_samples_of_one_order_are_settled_by_their_majority(tmp_path: Path) -> None:
    lines = [line("e0|e1", "ab", choice, repeat=n) for n, choice in enumerate("aab")]
    lines += [line("e0|e1", "ba", "b", repeat=n) for n in range(3)]
    (tmp_path / "r").write_text("".join(json.dumps(one) + "\n" for one in lines))
    with serving(tmp_path / "s.db", f"replay:{tmp_path / 'r'}", TERMS) as served:
        rewards = valid(served, member(0), member(1), samples=3)["rewards"]
        assert numbers(rewards) == [1, 0] and len(rewards[0]["keys"]) == 6


def test_a_judge_that_does_not_compare_the_instruction_decides_no_reward(
    tmp_path: Path,
) -> None:
    before = photograph()
    after = recoloured(before)
    source = base64_of(encoded(before))
    outputs = [base64_of(encoded(image)) for image in (after, jpeg(after, 20))]
    edits = [member(n, input=source, edited=outputs[n]) for n in range(2)]
    with serving(tmp_path / "s.db", "measured", Terms()) as served:
        rewards = valid(served, *edits)["rewards"]
        assert [(r["reward"], r["status"]) for r in rewards] == [
            (None, "instruction_not_judged")
        ] * 2
        for pair in served.rows():
            # The comparison itself is kept.
            assert "instruction" in pair["abstained"]
            assert "overall" in (pair["choices"] or ())


@pytest.mark.parametrize(
    ("edits", "options", "status", "words"),
    [
        (
            [member(0), member(1, instruction="Another.")],
            {},
            422,
            "edits.0 of the same group",
        ),
        (
            [member(0), member(1, input=base64_of(picture("other")))],
            {},
            422,
            "edits.0 of the same group",
        ),
        (
            [member(0), member(1)],
            {"weights": {"effect_score": 1}},
            422,
            "leave weights out",
        ),
        ([member(0), member(1)], {"rubrics": ["compliance"]}, 422, "leave rubrics out"),
        ([member(n) for n in range(17)], {}, 413, "at most 16"),
        (
            [member(n, group=f"g{n // 16}") for n in range(64)],
            {"deadline": 1},
            413,
            "at most 400",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_and_said(
    tmp_path: Path, edits: list[Any], options: dict[str, Any], status: int, words: str
) -> None:
    terms = Terms(rubrics=("compliance",), more_rubrics=(), max_waiting=400)
    with serving(tmp_path / "s.db", judge(tmp_path / "r", {}), terms) as served:
        answer = served.post("reward", {"edits": edits, "ranking": "pairs", **options})
        assert answer.status_code == status and words in answer.text, answer.text
        assert served.rows() == []


def test_what_the_deadline_leaves_is_pending_and_there_when_asked_again(
    tmp_path: Path,
) -> None:
    with serving(
        tmp_path / "s.db", judge(tmp_path / "r", order_of(0, 1)), TERMS
    ) as served:
        first = valid(served, member(0), member(1), deadline=0.001)["rewards"]
        assert all((r["reward"] is None) == (r["status"] != "ok") for r in first)
        assert numbers(valid(served, member(0), member(1))["rewards"]) == [1, 0]


def test_each_picture_of_a_request_is_hashed_once_however_many_pairs_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bytes] = []
    look = ImageReader.look

    def counted(self: ImageReader, source: Any) -> Any:
        looks.append(source)
        return look(self, source)

    monkeypatch.setattr(ImageReader, "look", counted)
    with serving(
        tmp_path / "s.db", judge(tmp_path / "r", order_of(*range(8))), TERMS
    ) as served:
        assert None not in numbers(
            valid(served, *(member(n) for n in range(8)))["rewards"]
        )
    # inspected, and planned: 28 pairs in two orders would be 168
    assert len(looks) <= 2 * 16 + 1
