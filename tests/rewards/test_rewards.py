"""Rewards for training: samples, mixtures, groups, fresh answers, a budget, and the protocol as it is published."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import msgpack  # type: ignore[import-untyped]
import pytest

from editjudge.edit import DegenerateImage, Edit
from editjudge.errors import UsageError
from editjudge.judges.judge import Options
from editjudge.rewards.protocol import RequestModels, SentEdit, Terms
from editjudge.rewards.protocol import schema as protocol_schema
from editjudge.rewards.requests import msgpack_values
from editjudge.rewards.trainers import RewardEdit, Rewarder
from editjudge.rubrics.files import parse
from tests.faults import raises
from tests.running.made import answered, canned, picture, stub
from tests.running.test_named_inputs import RUBRIC, server
from tests.web.served import Served, base64_of, edit, serving

COMPLIANCE = Terms(rubrics=("compliance",), more_rubrics=())


def replay(path: Path, answers: Mapping[int, Sequence[int | None]]) -> str:
    """A judge that says these values of `effect_score` (5, 3 or 1) of each edit, sample by sample; None: nonsense."""
    lines = []
    for number, values in answers.items():
        for repeat, value in enumerate(values):
            reply = (
                json.dumps({"reasoning": "as seen", "effect_score": value})
                if value
                else "I would rather not."
            )
            lines.append(
                {
                    "item": f"e{number}",
                    "rubric": "compliance",
                    "repeat": repeat,
                    "reply": reply,
                }
            )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"replay:{path}"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """e0 to e3 are worth 1, .5, 0 and nothing; each further sample of e0 is worth half."""
    judge = replay(tmp_path / "r.jsonl", {0: [5, 3, 3], 1: [3], 2: [1], 3: [None]})
    with serving(tmp_path / "s.db", judge, COMPLIANCE) as running:
        yield running


# --- samples, mixtures ----------------------------------------------------------------------------------------


def test_samples_are_averaged_and_say_how_certain_the_reward_is(served: Served) -> None:
    one = served.rewards(edit(0))[0]
    three = served.rewards(edit(0), samples=3)[0]
    assert (one["reward"], one["uncertainty"]) == (1.0, None)
    assert three["reward"] == pytest.approx(2 / 3) and three["scores"][
        "effect_score"
    ] == pytest.approx(11 / 3)
    spread = statistics.stdev([1, 0.5, 0.5]) / 3**0.5
    assert three["uncertainty"] == {
        "source": "samples",
        "samples": 3,
        "standard_error": pytest.approx(spread),
    }
    assert set(three["keys"]) == {"compliance", "compliance#1", "compliance#2"}


def test_a_sample_that_fails_leaves_no_reward(served: Served) -> None:
    (reward,) = served.rewards(edit(1), samples=2)  # there is no second answer
    assert (reward["reward"], reward["status"], reward["uncertainty"]) == (
        None,
        "unreachable",
        None,
    )


def test_a_mixture_is_the_weighted_mean_of_its_judges_and_all_must_answer(
    tmp_path: Path,
) -> None:
    a = replay(tmp_path / "a.jsonl", {0: [5], 1: [5]})
    b = replay(tmp_path / "b.jsonl", {0: [1], 1: [None]})
    terms = Terms(rubrics=("compliance",), more_rubrics=(), mixture={a: 3, b: 1})
    with serving(tmp_path / "s.db", a, terms) as served:
        answer = served.post("reward", {"edits": [edit(0), edit(1)]}).json()
        mixed, failed = answer["rewards"]
        assert mixed["reward"] == pytest.approx(0.75) and answer["judges"] == {
            a: 3,
            b: 1,
        }
        assert mixed["scores"] == {f"effect_score@{a}": 5, f"effect_score@{b}": 1}
        assert (failed["reward"], failed["status"], failed["scores"]) == (
            None,
            "invalid",
            None,
        )
        (even,) = served.rewards(edit(0), judges={a: 1, b: 1})
        assert even["reward"] == pytest.approx(0.5)
        assert served.rewards(edit(0), judge=b)[0]["reward"] == 0.0


def test_probabilities_of_the_scores_say_how_certain_the_reward_is(
    tmp_path: Path,
) -> None:
    """Each score is 5 with 60 %, 3 with 30 % and 1 with 10 %."""
    text = json.dumps({"reasoning": "as seen", "effect_score": 5})

    def say(_: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        answer = answered("/v1/chat/completions", body)
        before, after = text.split("5")
        listed = [
            {"token": t, "logprob": math.log(p)}
            for t, p in (("5", 0.6), ("3", 0.3), ("1", 0.1))
        ]
        tokens = [
            {"token": t, "logprob": 0.0, "top_logprobs": [{"token": t, "logprob": 0.0}]}
            for t in (before, after)
        ]
        tokens.insert(1, listed[0] | {"top_logprobs": listed})
        choice = answer["choices"][0]
        choice["message"]["content"] = text
        choice["logprobs"] = {"content": tokens}
        return 200, {}, json.dumps(answer).encode()

    options = Options(read="logprobs", reasks=0)
    with (
        canned(say),
        serving(tmp_path / "s.db", terms=COMPLIANCE, options=options) as served,
    ):
        (reward,) = served.rewards(edit(0))
        spread = math.sqrt(0.6 * 1 + 0.3 * 0.25 - 0.75**2)
        assert reward["reward"] == 1.0 and reward["scores"] == {"effect_score": 5}
        assert reward["uncertainty"] == {
            "source": "logprobs",
            "samples": 1,
            "expected": pytest.approx(0.75),
            "standard_error": pytest.approx(spread),
        }
        (again,) = served.rewards(edit(0))
        assert again["cached"] and again["uncertainty"] == reward["uncertainty"]
        # of one factor they are all the same
        for formula in ("min", "product", "geometric_mean"):
            (other,) = served.rewards(edit(0), formula=formula)
            assert (
                other["uncertainty"]["expected"] == pytest.approx(0.75)
                and other["uncertainty"]["standard_error"] > 0
            )


# --- groups ---------------------------------------------------------------------------------------------------


def test_each_reward_says_where_it_stands_in_its_group(served: Served) -> None:
    rewards = served.rewards(*(edit(n, group="g") for n in range(4)), edit(0, id="e0"))
    ranks = [reward["group"] and reward["group"]["rank"] for reward in rewards]
    assert ranks == [1, 2, 3, None, None] and rewards[4]["group"] is None
    group = rewards[0]["group"]
    assert (group["size"], group["scored"], group["mean"], group["low_variance"]) == (
        4,
        3,
        pytest.approx(0.5),
        False,
    )


def test_ranks_take_the_place_of_rewards_where_they_are_asked_for(
    served: Served,
) -> None:
    sent = [edit(n, group="g") for n in range(4)] + [edit(0, group="h")]
    rewards = served.rewards(*sent, ranking="scores")
    assert [reward["reward"] for reward in rewards] == [1.0, 0.5, 0.0, None, None]
    assert [reward["status"] for reward in rewards[3:]] == ["invalid", "abstained"]
    assert rewards[4]["reasons"][-1]["code"] == "alone_in_group"


def test_equal_rewards_share_a_rank_and_their_group_is_flagged(served: Served) -> None:
    rewards = served.rewards(*(edit(1, group="g") for _ in range(3)), ranking="scores")
    assert {reward["reward"] for reward in rewards} == {0.5}
    assert all(reward["group"]["low_variance"] for reward in rewards)


# --- what is asked again, and what is paid --------------------------------------------------------------------


def test_fresh_asks_again_and_keeps_the_earlier_answer(served: Served) -> None:
    first = served.rewards(edit(0))
    again = served.rewards(edit(0))
    assert (first[0]["cached"], again[0]["cached"], again[0]["reward"]) == (
        False,
        True,
        1.0,
    )
    (fresh,) = served.rewards(edit(0), fresh=True)
    assert (fresh["cached"], fresh["reward"]) == (False, 0.5)
    assert sorted(row["repeat"] for row in served.rows()) == [0, 1]
    assert served.rewards(edit(0))[0]["reward"] == 1.0


def test_a_server_of_fresh_answers_asks_each_time(tmp_path: Path) -> None:
    terms = Terms(rubrics=("compliance",), more_rubrics=(), fresh=True)
    judge = replay(tmp_path / "r.jsonl", {0: [5, 3, 1]})
    with serving(tmp_path / "s.db", judge, terms) as served:
        assert [served.rewards(edit(0))[0]["reward"] for _ in range(3)] == [
            1.0,
            0.5,
            0.0,
        ]


def test_a_budget_that_is_spent_is_said_and_nothing_is_asked(tmp_path: Path) -> None:
    with (
        stub() as judge,
        serving(tmp_path / "s.db", "openai/gpt-4.1", Terms(budget=0.0)) as served,
    ):
        (reward,) = served.rewards(edit(0))
        assert (reward["reward"], reward["status"]) == (None, "unreachable")
        assert {reason["code"] for reason in reward["reasons"]} == {
            "budget"
        } and judge.ledger.paid == 0


def test_a_budget_needs_prices(tmp_path: Path) -> None:
    with (
        raises(UsageError, "unknown_price", "--prices"),
        serving(tmp_path / "s.db", terms=Terms(budget=1.0)),
    ):
        pass


def test_the_turn_and_the_conversation_are_kept_with_the_edit(served: Served) -> None:
    (reward,) = served.rewards(edit(0, session="talk", turn=2, metadata={"step": "7"}))
    (run,) = served.store.runs()
    item = next(
        one for one in served.store.items(run) if one.item == reward["stored_as"]
    )
    assert item.metadata == {"session": "talk", "turn": 2, "step": "7"}


# --- the protocol ---------------------------------------------------------------------------------------------


def test_msgpack_carries_pictures_as_bytes_and_means_the_same(served: Served) -> None:
    raw = edit(0) | {"input": picture("input-0.png"), "edited": picture("edited-0.png")}
    headers = {"content-type": "application/msgpack"}
    packed = served.post(
        "reward", content=msgpack.packb({"edits": [raw]}), headers=headers
    )
    assert packed.json()["rewards"][0]["keys"] == served.rewards(edit(0))[0]["keys"]


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"\xc1", "not msgpack"),
        (b"\x81\xa5edits", "not msgpack"),
        (msgpack.packb({"edits": [msgpack.ExtType(1, b"x")]}), "extension"),
        (b"\x91" * 5000 + b"\xc0", "not msgpack"),
        (b"\xdd\x00\x10\x00\x00" + b"\xc0" * 2**20, "values"),
        (msgpack.packb({"edits": [{"edited": "/etc/passwd"}]}), "never a path"),
    ],
    ids=["no kind", "cut off", "an extension", "deep", "many values", "a path"],
)
def test_msgpack_that_is_not_understood_is_refused_with_words(
    served: Served, sent: bytes, words: str
) -> None:
    answer = served.post(
        "reward", content=sent, headers={"content-type": "application/x-msgpack"}
    )
    assert answer.status_code == 422 and words in answer.text


def test_values_of_msgpack_are_counted_before_they_are_made() -> None:
    value: Any = {
        "edits": [
            {
                "a": b"x" * 300,
                "b": "y" * 40,
                "c": [1, -1, 2.5, None, True, 2**40, "é" * 70000],
            }
        ]
    }
    # the map, edits, its list, the edit, three names and two values, a list and its seven
    assert msgpack_values(msgpack.packb(value), 1000) == 17
    assert msgpack_values(b"\xc0" * 10**6, 1000) == 1001


def test_the_schema_is_served_and_holds_for_answers_and_requests(
    served: Served,
) -> None:
    answer = served.client.get(f"{served.url}/v1/reward/schema")
    schema = answer.json()
    assert schema == protocol_schema()
    assert answer.headers["content-type"] == "application/schema+json"
    jsonschema.Draft202012Validator.check_schema(schema)

    def valid(value: Any, kind: str) -> bool:
        whole = schema | {"anyOf": [{"$ref": f"#/$defs/{kind}"}]}
        return jsonschema.Draft202012Validator(whole).is_valid(value)

    request = {
        "edits": [edit(n, group="g") for n in range(4)],
        "samples": 2,
        "fresh": True,
        "ranking": "scores",
    }
    assert valid(request, "Request") and not valid(request | {"color": 1}, "Request")
    rewards = served.post("reward", request).json()
    assert valid(rewards, "Rewards")
    rewards["rewards"][3]["reward"] = 0.0  # a failure that has become a number
    assert not valid(rewards, "Rewards")
    assert valid(served.post("reward", {"edits": 3}).json(), "Refusal")


def test_the_schema_has_the_fields_that_are_read() -> None:
    definitions = protocol_schema()["$defs"]
    models = RequestModels(Terms(), ["measured"], ["online"], ["alignment"])
    assert set(definitions["Request"]["properties"]) == set(models.reward.model_fields)
    pictures = {"input", "edited", "ground_truth", "mask", "references"}
    assert set(definitions["Edit"]["properties"]) == set(SentEdit.model_fields)
    assert pictures < set(SentEdit.model_fields)


def test_another_version_of_the_protocol_is_refused(served: Served) -> None:
    answer = served.post("reward", {"edits": [edit(0)], "protocol": 2})
    assert (
        answer.status_code == 422
        and answer.json()["problems"][0]["where"] == "protocol"
    )


def test_several_references_are_shown_to_a_rubric_that_names_them(
    tmp_path: Path,
) -> None:
    rubric = RUBRIC.replace("texts: [instruction, explanation]", "texts: [instruction]")
    (tmp_path / "reference.yaml").write_text(rubric)
    name = parse((tmp_path / "reference.yaml").read_text()).name
    terms = Terms(rubrics=(str(tmp_path / "reference.yaml"),), more_rubrics=())
    references = [picture(f"reference-{n}.png") for n in range(3)]
    with server() as asked, serving(tmp_path / "s.db", terms=terms) as served:
        sent = edit(0, references=[base64_of(data) for data in references])
        (plain,) = served.rewards(sent)
        texts = {"id": "e0", "instruction": sent["instruction"]}
        files = [
            ("request", (None, json.dumps({"edits": [texts]}))),
            ("edits.0.input", picture("input-0.png")),
        ]
        files += [("edits.0.edited", picture("edited-0.png"))]
        files += [
            (f"edits.0.references.{n}", data) for n, data in enumerate(references)
        ]
        (parted,) = served.post("reward", files=files).json()["rewards"]
        (fewer,) = served.rewards(sent | {"references": sent["references"][:2]})
        assert (
            set(plain["keys"]) == {name}
            and plain["keys"] == parted["keys"] != fewer["keys"]
        )
        assert plain["reward"] == 1.0 and [
            str(body).count("image_url'") for body in asked
        ] == [8, 6]
        refused = served.post(
            "reward", {"edits": [edit(0, references=["/etc/passwd"])]}
        )
        assert refused.status_code == 422 and "never a path" in refused.text


# --- a failure is never a number ------------------------------------------------------------------------------


def test_an_output_that_was_not_produced_has_no_reward_whoever_judges(
    served: Served,
) -> None:
    """Recorded replies are found without looking at an image."""
    first, missing, last = served.rewards(edit(0), edit(1, edited=None), edit(2))
    assert (missing["reward"], missing["status"], missing["scores"]) == (
        None,
        "missing_output",
        None,
    )
    assert {reason["code"] for reason in missing["reasons"]} == {"missing_output"}
    assert (first["reward"], last["reward"]) == (1.0, 0.0)
    assert served.rewards(edit(1))[0]["reward"] == 0.5


def test_an_output_that_cannot_be_checked_fails_alone_and_is_never_the_worst(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of one output ends in an exception, in an order of scores and in comparisons of pairs."""

    def check(checked: Edit) -> list[DegenerateImage]:
        if checked.edited == picture("edited-1.png"):
            raise RuntimeError("the check broke")
        return []

    monkeypatch.setattr("editjudge.vision.measured.degenerate.screen", check)
    sent = [edit(n, group="g", instruction="Paint it red.") for n in range(3)]
    with (
        stub(),
        serving(
            tmp_path / "s.db", terms=Terms(rubrics=("compliance",), degenerate="worst")
        ) as served,
    ):
        for options in ({}, {"ranking": "pairs"}):
            rewards = served.rewards(*sent, **options)
            assert [reward["status"] for reward in rewards] == ["ok", "error", "ok"]
            assert (
                rewards[1]["reward"] is None
                and rewards[1]["reasons"][0]["code"] == "unexpected_exception"
            )
        rewarder = Rewarder("openai/stub", "compliance")
        edits = [
            RewardEdit(
                picture("input-0.png"), picture(f"edited-{n}.png"), "Paint it red."
            )
            for n in range(3)
        ]
        assert [reward.status for reward in rewarder.rewards(edits)] == [
            "ok",
            "error",
            "ok",
        ]


def test_edits_are_judged_where_their_pictures_cannot_be_kept(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    terms = Terms(rubrics=("compliance",), more_rubrics=(), images=folder)
    with serving(
        tmp_path / "s.db", replay(tmp_path / "r.jsonl", {0: [5], 1: [3], 2: [1]}), terms
    ) as served:
        assert served.rewards(edit(0))[0]["reward"] == 1.0
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        folder.write_text("a file where the folder was")
        assert [reward["reward"] for reward in served.rewards(edit(1), edit(2))] == [
            0.5,
            0.0,
        ]
        folder.unlink()
        folder.mkdir()
        served.rewards(edit(1))
        assert len(list(folder.iterdir())) == 2


def test_statuses_of_one_batch_do_not_touch_each_other(tmp_path: Path) -> None:
    """A judge replies with an answer, nonsense, a score off its scale, an error, and an answer."""
    replies: dict[str, Any] = {
        "car 1": "no",
        "car 2": '{"reasoning": "x", "effect_score": 4}',
    }

    def say(_: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        if b"car 3" in body:
            return 400, {}, b'{"error": {"message": "this image is not supported"}}'
        answer = answered("/v1/chat/completions", body)
        for words, reply in replies.items():
            if words.encode() in body:
                answer["choices"][0]["message"]["content"] = reply
        return 200, {}, json.dumps(answer).encode()

    with (
        canned(say),
        serving(
            tmp_path / "s.db", terms=COMPLIANCE, options=Options(reasks=0)
        ) as served,
    ):
        rewards = served.rewards(*(edit(n) for n in range(5)))
    assert [reward["reward"] is not None for reward in rewards] == [
        True,
        False,
        False,
        False,
        True,
    ]
    assert [reward["status"] for reward in rewards][:3] == ["ok", "invalid", "invalid"]
