"""A reward needs every rubric of its score: which judge is asked about which, expressions of rubrics, and no number for
an edit whose instruction was not judged or that changed next to nothing."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editjudge.edit import Edit
from editjudge.errors import UsageError
from editjudge.judgement import Judgement, Task
from editjudge.judges.judge import Options, Work
from editjudge.rewards.offer import JudgePanel, Offer
from editjudge.rewards.protocol import RewardedEdit, Terms
from editjudge.rewards.queue import Finding, QueuedEdit, RequestBatch
from editjudge.rewards.reduction import labels, read_score, scales, scores_of
from editjudge.rewards.rules import RewardRules, unchanged
from editjudge.rewards.trainers import RewardEdit, Rewarder
from editjudge.rubrics.expression import Ref
from editjudge.rubrics.files import resolve
from tests.faults import raises
from tests.measured.made import encoded, photograph, recoloured
from tests.rewards.test_service import right
from tests.running.made import answered, canned, editjudge, start, stub
from tests.stub.server import Stub
from tests.web.served import STUB, Served, base64_of, edit, serving

ONLINE = resolve(["online"])
LOOKS = ("preservation", "quality")
GATED = "fidelity * (preservation + quality) / 2"


def photo_edit(seed: int = 0, **more: Any) -> dict[str, Any]:
    before = photograph(seed)
    return {
        "id": f"p{seed}",
        "input": base64_of(encoded(before)),
        "edited": base64_of(encoded(recoloured(before))),
        "instruction": "Make the thing in the middle green.",
    } | more


def shares(**by_rubric: float) -> dict[Ref, float]:
    """Scores of every factor of these rubrics, each at the same share of its scale."""
    return {
        (rubric, key): scale.worst + by_rubric[rubric] * (scale.best - scale.worst)
        for (rubric, key), scale in scales(ONLINE).items()
        if rubric in by_rubric and scale.worst is not None and scale.best is not None
    }


# --- expressions of rubrics -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fidelity", "preservation", "quality", "reward"),
    [(1, 1, 1, 1), (0, 1, 1, 0), (1, 0, 0, 0), (1, 0.5, 1, 0.75), (0.5, 1, 0.5, 0.375)],
)
def test_the_name_of_a_rubric_is_the_mean_share_of_its_factors(
    fidelity: float, preservation: float, quality: float, reward: float
) -> None:
    scores = shares(fidelity=fidelity, preservation=preservation, quality=quality)
    reduced = read_score(GATED, ONLINE).reduced(scores)
    assert reduced.reward == pytest.approx(reward) and reduced.status == "ok"


def test_factors_that_the_judge_left_out_do_not_count_in_the_mean_of_their_rubric() -> (
    None
):
    scores = shares(fidelity=1, preservation=1, quality=1)
    scores["quality", "seamlessness"] = 1
    assert read_score("quality", ONLINE).of(scores) == pytest.approx(5 / 6)
    del scores["quality", "seamlessness"]
    assert read_score("quality", ONLINE).of(scores) == 1


@pytest.mark.parametrize(
    "score",
    [
        GATED,
        "min(fidelity, preservation, quality)",
        "sqrt(fidelity * quality)",
        "fidelity - preservation",
        "0.1 * fidelity + 0.2 * preservation + 0.7 * quality",
        "if(fidelity >= 0.5, quality, 0)",
        "alignment * quality",
        "mean",
        "product",
        "geometric_mean",
    ],
)
def test_a_reward_is_from_0_to_1_whatever_the_scores(score: str) -> None:
    reduction = read_score(score, ONLINE)
    for values in itertools.product((0, 1 / 6, 0.5, 5 / 6, 1), repeat=3):
        scores = shares(
            **dict(zip(("fidelity", "preservation", "quality"), values, strict=True))
        )
        reward = reduction.reduced(scores).reward
        assert reward is not None and 0 <= reward <= 1, (score, values, reward)


@pytest.mark.parametrize(
    ("score", "code", "names"),
    [
        ("fidelty * quality", "invalid_formula", '"fidelity"'),
        ("1 / fidelity", "unbounded_score", "1 / fidelity"),
        ("quality / (fidelity - preservation)", "unbounded_score", "fidelity"),
        ("fidelity / 0", "invalid_formula", "0"),
        ("nan", "invalid_formula", '"nan"'),
        ("fidelity * 1e999", "invalid_formula", "1e"),
        ("0 * fidelity", "unbounded_score", "0 * fidelity"),
        ("lighting * quality", "invalid_formula", '"lighting"'),
    ],
)
def test_an_expression_without_a_reward_is_refused_with_the_reason(
    score: str, code: str, names: str
) -> None:
    with raises(UsageError, code, names):
        read_score(score, ONLINE)


def test_an_expression_without_a_value_is_null_with_the_reason() -> None:
    reduction = read_score("sqrt(preservation - quality)", ONLINE)
    reduced = reduction.reduced(shares(preservation=0.2, quality=0.6))
    assert (reduced.reward, reduced.status) == (None, "undefined")
    assert reduced.reason and reduced.reason.code == "undefined"
    assert reduction.reduced(shares(preservation=0.6, quality=0.2)).status == "ok"


@pytest.mark.parametrize("score", [GATED, "mean", "min", "fidelity", "alignment"])
def test_a_score_with_fidelity_needs_it_judged(score: str) -> None:
    reduced = read_score(score, ONLINE).reduced(shares(preservation=1, quality=1))
    assert (reduced.reward, reduced.status) == (None, "instruction_not_judged")
    assert reduced.rubric == "fidelity"


def test_another_rubric_that_was_not_judged_is_an_abstention_that_names_it() -> None:
    reduced = read_score("mean", ONLINE).reduced(shares(fidelity=1, preservation=1))
    assert (reduced.reward, reduced.status, reduced.rubric) == (
        None,
        "abstained",
        "quality",
    )
    assert reduced.reason and reduced.reason.code == "rubric_not_judged"
    assert read_score("mean", ONLINE).reduced({}).status == "instruction_not_judged"


# --- expected scores ------------------------------------------------------------------------------------------


def judgement(**fields: Any) -> Judgement:
    return Judgement("k", "ok", "j", "quality", "h", **fields)


def test_expected_scores_replace_the_written_ones_of_judges_that_give_them() -> None:
    measured = judgement(scores={"image_quality": 6}, expected={"image_quality": 5.6})
    assert scores_of([measured]) == {("quality", "image_quality"): 6}
    assert scores_of([measured], "expected") == {("quality", "image_quality"): 5.6}
    written = judgement(scores={"image_quality": 6})
    assert scores_of([written], "expected") == {("quality", "image_quality"): 6}
    improbable = judgement(
        scores={"image_quality": 6}, abstained={"image_quality": "a mass of 0.2"}
    )
    assert scores_of([improbable], "expected") == {}


def test_a_request_may_be_rewarded_by_expected_scores(tmp_path: Path) -> None:
    """The score is 5 with 60 %, 3 with 30 % and 1 with 10 %: 4 on the average, 3/4 of the scale."""
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

    terms = Terms(rubrics=("compliance",), more_rubrics=())
    options = Options(read="logprobs", reasks=0)
    with (
        canned(say),
        serving(tmp_path / "s.db", terms=terms, options=options) as served,
    ):
        (written,) = served.rewards(edit(0))
        (expected,) = served.rewards(edit(0), use="expected")
        assert (written["reward"], written["scores"]) == (1.0, {"effect_score": 5})
        assert expected["reward"] == pytest.approx(0.75) and expected["cached"]
        assert expected["scores"] == {"effect_score": pytest.approx(4)}
        assert (
            served.post("reward", {"edits": [edit(0)], "use": "x"}).status_code == 422
        )


# --- the embedded judge ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("measured")
    terms = Terms(dialects=("flow-factory", "unirl"))
    with serving(folder / "s.db", "measured", terms) as running:
        yield running


def test_a_judge_of_pixels_gives_no_reward_over_online(measured: Served) -> None:
    sent = {"edits": [photo_edit()]}
    answer = measured.post("reward", sent)
    (reward,) = answer.json()["rewards"]
    assert (reward["reward"], reward["status"], reward["scores"]) == (
        None,
        "instruction_not_judged",
        None,
    )
    codes = {(r["rubric"], r["code"]) for r in reward["reasons"]}
    assert ("fidelity", "instruction_not_judged") in codes
    assert {"alignment", "completeness"} <= set(reward["abstained"])
    assert measured.post("reward", {**sent, "strict": True}).status_code == 503
    (again,) = measured.rewards(photo_edit())
    assert again["cached"] and again["status"] == "instruction_not_judged"
    rows = measured.post("judge", sent).json()["judgements"]
    assert {row["rubric"]: row["status"] for row in rows} == {
        "preservation": "ok",
        "quality": "ok",
        "fidelity": "abstained",
    }


def test_it_gives_one_over_the_rubrics_that_it_judges(measured: Served) -> None:
    for options in (
        {"rubrics": list(LOOKS)},
        {"score": "(preservation + quality) / 2"},
    ):
        (reward,) = measured.rewards(photo_edit(), **options)
        assert reward["status"] == "ok" and 0 < reward["reward"] <= 1
        assert "alignment" not in reward["scores"]


def test_it_gives_its_scores_before_rounding_where_they_are_asked_for(
    measured: Served,
) -> None:
    looks = list(LOOKS)
    (written,) = measured.rewards(photo_edit(), rubrics=looks)
    (expected,) = measured.rewards(photo_edit(), rubrics=looks, use="expected")
    assert written["scores"].keys() == expected["scores"].keys()
    assert written["reward"] != expected["reward"]
    for factor, score in written["scores"].items():
        assert score == int(score) and abs(expected["scores"][factor] - score) <= 0.5


def test_a_batch_of_mixed_outcomes_has_a_status_for_each(measured: Served) -> None:
    before = photograph(1)
    again = base64_of(encoded(before, "JPEG", quality=97))
    sent = [
        photo_edit(0),
        photo_edit(1, edited=again),
        photo_edit(2, edited=None),
        photo_edit(2, id="broken", edited=base64_of(b"no image")),
    ]
    rewards = measured.rewards(*sent, rubrics=list(LOOKS))
    assert [r["status"] for r in rewards] == [
        "ok",
        "abstained",
        "missing_output",
        "bad_image",
    ]
    assert [r["reward"] is None for r in rewards] == [False, True, True, True]
    assert {r["code"] for r in rewards[1]["reasons"]} == {"unchanged"}
    statuses = [r["status"] for r in measured.rewards(*sent)]
    assert statuses == [
        "instruction_not_judged",
        "abstained",
        "missing_output",
        "bad_image",
    ]


def test_a_trainers_protocol_has_its_own_failure_for_it(measured: Served) -> None:
    sent = photo_edit()
    body = {
        "prompt": [sent["instruction"]],
        "image": [sent["edited"]],
        "condition_images": [[sent["input"]]],
    }
    answer = measured.client.post(f"{measured.url}/d/flow-factory/compute", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["rewards"] == [None]
    assert "instruction_not_judged" in answer.json()["error"]


def test_a_reward_function_of_this_process_says_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = photograph()
    sent = RewardEdit(encoded(before), encoded(recoloured(before)), "Paint it green.")
    with Rewarder("measured") as over_online:
        (reward,) = over_online.rewards([sent])
    assert (reward.value, reward.status) == (None, "instruction_not_judged")
    assert "judge_for" in caplog.text
    caplog.clear()
    with Rewarder("measured", LOOKS, score="min(preservation, quality)") as rewarder:
        (reward,) = rewarder.rewards([sent])
    assert reward.status == "ok" and reward.value is not None and not caplog.text


def test_an_output_that_a_judge_found_unchanged_has_no_reward_without_fidelity() -> (
    None
):
    evidence = {"degenerate": {"kind": "unchanged", "words": "is its input again"}}
    flagged = judgement(scores={"image_quality": 7}, evidence=evidence)
    looks = read_score("quality", ONLINE)
    plain = judgement(scores={"image_quality": 7})
    screened = Finding("abstained", "unchanged", "flagged", set_aside=False)
    for remark in (
        unchanged([plain, flagged], looks, None),
        unchanged([plain], looks, screened),
    ):
        assert remark and remark.code == "unchanged"
    assert unchanged([flagged], read_score(GATED, ONLINE), screened) is None
    mirrored = screened._replace(code="mirrored")
    assert unchanged([plain], looks, mirrored) is None
    for other in (
        {"degenerate": {"kind": "mirrored", "words": "is"}},
        {"degenerate": 1},
    ):
        assert (
            unchanged([judgement(scores={"x": 1}, evidence=other)], looks, None) is None
        )


def contrasted() -> dict[str, Any]:
    """An edit that only raised the contrast: no pixel is far from the input's."""
    before = photograph()
    after = np.clip((before.astype(float) - 128) * 1.15 + 128, 0, 255)
    output = base64_of(encoded(after.astype(np.uint8)))
    return photo_edit(0, id="near", edited=output)


def test_what_is_nearly_the_input_has_no_reward_unless_the_instruction_is_judged(
    tmp_path: Path,
) -> None:
    near = contrasted()
    with (
        stub(),
        serving(tmp_path / "s.db", "measured", Terms(judges=(STUB,))) as served,
    ):
        for judge in ("measured", STUB):
            (reward,) = served.rewards(near, judge=judge, rubrics=list(LOOKS))
            assert (reward["reward"], reward["status"]) == (None, "abstained")
            assert {reason["code"] for reason in reward["reasons"]} == {"unchanged"}
        for options in ({"judge_for": {"fidelity": STUB}}, {"judge": STUB}):
            (reward,) = served.rewards(near, score=GATED, **options)
            assert reward["status"] == "ok" and reward["reward"] is not None
            # It is flagged.
            assert {reason["code"] for reason in reward["reasons"]} == {"unchanged"}
    with serving(tmp_path / "w.db", "measured", Terms(degenerate="worst")) as served:
        (reward,) = served.rewards(near, rubrics=list(LOOKS))
        assert (reward["reward"], reward["status"]) == (0, "ok")


# --- a judge for each rubric ----------------------------------------------------------------------------------


@pytest.fixture
def judge() -> Iterator[Stub]:
    with stub() as server:
        yield server


def test_a_judge_of_one_rubric_stands_beside_the_one_of_the_others(
    judge: Stub, tmp_path: Path
) -> None:
    terms = Terms(judges=(STUB,))
    panel = {"judge_for": {"fidelity": STUB}, "score": GATED}
    with serving(tmp_path / "s.db", "measured", terms) as served:
        answer = served.post("reward", {"edits": [photo_edit()], **panel}).json()
        (reward,) = answer["rewards"]
        assert reward["status"] == "ok", reward
        assert answer["judged_by"]["alignment"] == STUB
        assert answer["judged_by"]["seamlessness"] == "measured"
        assert answer["judges"] == {"measured": 1, STUB: 1}
        assert judge.ledger.paid == 1  # one question, about fidelity
        command = {(row["judge"], row["rubric"]) for row in served.rows()}
        assert command == {
            (STUB, "fidelity"),
            ("measured", "preservation"),
            ("measured", "quality"),
        }
        by_rubric = {
            rubric: [
                (reward["scores"][key] - 1) / 6
                for name, key in scales(ONLINE)
                if name == rubric and key in reward["scores"]
            ]
            for rubric in ("fidelity", "preservation", "quality")
        }
        means = {rubric: np.mean(values) for rubric, values in by_rubric.items()}
        assert reward["reward"] == pytest.approx(
            means["fidelity"] * (means["preservation"] + means["quality"]) / 2
        )
        (again,) = served.rewards(photo_edit(), **panel)
        assert again["cached"] and judge.ledger.paid == 1
        assert again["reward"] == reward["reward"]
        plain = served.post("reward", {"edits": [photo_edit()], "judge": STUB}).json()
        assert "judged_by" not in plain and plain["judges"] == {STUB: 1}


def test_the_panel_of_a_server_answers_both_routes_and_a_named_judge_replaces_it(
    judge: Stub, tmp_path: Path
) -> None:
    terms = Terms(judge_for={"fidelity": STUB})
    with serving(tmp_path / "s.db", "measured", terms) as served:
        (reward,) = served.rewards(photo_edit())
        assert reward["status"] == "ok"
        rows = served.post("judge", photo_edit()).json()["judgements"]
        assert [(row["rubric"], row["judge"]) for row in rows] == [
            ("preservation", "measured"),
            ("quality", "measured"),
            ("fidelity", STUB),
        ]
        (alone,) = served.rewards(photo_edit(), judge="measured")
        assert alone["status"] == "instruction_not_judged"
        (pixels,) = served.rewards(photo_edit(), judge_for={"online": "measured"})
        assert pixels["status"] == "instruction_not_judged"
        mixed = {"judges": {STUB: 1}, "judge_for": {"fidelity": STUB}}
        answer = served.post("reward", {"edits": [photo_edit()], **mixed})
        assert answer.status_code == 422 and "judge_for" in answer.text
        for wrong in ({"fidelty": STUB}, {"fidelity": "openai/other"}, {}):
            body = {"edits": [photo_edit()], "judge_for": wrong}
            assert served.post("reward", body).status_code == 422


def test_the_failure_of_one_judge_leaves_no_reward(tmp_path: Path) -> None:
    silent = tmp_path / "empty.jsonl"
    silent.touch()
    terms = Terms(judge_for={"fidelity": f"replay:{silent}"})
    with serving(tmp_path / "s.db", "measured", terms) as served:
        (reward,) = served.rewards(photo_edit())
        assert (reward["reward"], reward["status"]) == (None, "unreachable")
        assert set(reward["keys"]) == {"preservation", "quality", "fidelity"}


def test_a_judge_that_is_not_open_yet_leaves_the_reward_pending() -> None:
    """It has one question so far, and the other judge those of all samples."""
    sent = Edit("e", b"before", b"after", "Paint it.")
    fidelity, quality = (resolve([name])[0] for name in ("fidelity", "quality"))
    planned = [
        Work(Task("e", quality.name, "measured", n, f"k{n}"), sent, quality)
        for n in range(3)
    ]
    unplanned = [Work(Task("e", fidelity.name, STUB, 0, ""), sent, fidelity)]
    batch = {
        "measured": [QueuedEdit(sent, planned)],
        STUB: [QueuedEdit(sent, unplanned)],
    }
    panel = JudgePanel({"measured": 1}, {"fidelity": STUB})
    rules = RewardRules(
        read_score(GATED, ONLINE), labels(ONLINE), scales(ONLINE), panel
    )

    async def reward() -> RewardedEdit:
        asked = RequestBatch([sent], panel.questions([quality, fidelity]), samples=3)
        asked.queued = batch
        return rules.reward(0, asked)

    answer = asyncio.run(reward())
    assert (answer.reward, answer.status, answer.scores) == (None, "pending", None)


def test_a_reward_function_takes_a_judge_for_each_rubric_too(
    judge: Stub, tmp_path: Path
) -> None:
    before = photograph()
    after = recoloured(before)
    sent = RewardEdit(
        encoded(before), encoded(after), "Make the thing in the middle green."
    )
    panel = {"fidelity": STUB}
    terms = Terms(judges=(STUB,))
    with (
        serving(tmp_path / "s.db", "measured", terms) as served,
        Rewarder("measured", score=GATED, judge_for=panel) as rewarder,
        Rewarder(server=served.url, score=GATED, judge_for=panel) as client,
    ):
        (here,) = rewarder.rewards([sent])
        (there,) = client.rewards([sent])
    assert here.status == there.status == "ok" and here.value == there.value
    with raises(UsageError, "unknown_rubric", '"fidelity"'):
        Rewarder("measured", judge_for={"fidelty": STUB})


def test_judges_of_rubrics_are_checked_before_a_server_starts() -> None:
    with raises(UsageError, "unknown_rubric", '"fidelity"'):
        Offer.of(Terms(judge_for={"fidelty": STUB}))
    with raises(UsageError, "judges_and_judge_for"):
        Offer.of(Terms(judge_for={"fidelity": STUB}, mixture={STUB: 1, "measured": 1}))
    with pytest.raises(UsageError, match="fidelity"):
        Offer.of(Terms(judge_for={"fidelity": "metrics"}))


def test_token_probabilities_are_asked_of_judges_that_have_them() -> None:
    options = Options(read="logprobs")
    terms = Terms(judge_for={"fidelity": STUB}, options=options)
    assert terms.options_of(STUB).read == "logprobs"
    assert terms.options_of("measured").read == "text"
    allowed = Terms(STUB, options=options, judges=("measured",))
    assert allowed.options_of("measured").read == "text"
    # Alone it cannot give what is asked for, which is an error.
    assert Terms(options=options).options_of("measured").read == "logprobs"


def test_without_a_panel_the_mean_of_all_factors_is_as_before(
    judge: Stub, tmp_path: Path
) -> None:
    with serving(tmp_path / "s.db") as served:
        rewards = served.rewards(*(edit(n) for n in range(3)))
        assert [r["reward"] for r in rewards] == pytest.approx(right(tmp_path, 3))


# --- serve ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [(), ("--score", "min"), ("--score", GATED), ("--judge-for", "quality=measured")],
)
def test_a_server_whose_edits_would_have_no_reward_does_not_start(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    place = tmp_path / "s.db"
    result = editjudge(
        "serve", "--create", "--store", place, "--judge", "measured", *options
    )
    assert result.code == 2 and not place.exists()
    assert "--judge-for fidelity=" in result.err
    assert "--rubric preservation --rubric quality" in result.err


@pytest.mark.parametrize(
    ("options", "blind", "ignores"),
    [
        ({}, "measured", False),
        ({"judge": STUB}, None, False),
        ({"judge_for": {"fidelity": STUB}}, None, False),
        ({"rubrics": LOOKS}, None, True),
        ({"weights": {"image_quality": 1}}, None, True),
        ({"formula": GATED}, "measured", False),
        ({"mixture": {STUB: 1, "measured": 1}}, "measured", False),
        ({"rubrics": ("compliance",)}, None, False),
    ],
)
def test_the_limits_of_the_default_reward_are_known(
    options: dict[str, Any], blind: str | None, ignores: bool
) -> None:
    offer = Offer.of(Terms(**options))
    assert (offer.blind_judge(), offer.ignores_instruction()) == (blind, ignores)


def test_a_server_of_the_other_rubrics_says_what_its_reward_cannot_know(
    tmp_path: Path,
) -> None:
    looks = [word for rubric in LOOKS for word in ("--rubric", rubric)]
    arguments = ("serve", "--create", "--store", "s.db", "--port", "0")
    server = start(*arguments, "--judge", "measured", *looks, folder=tmp_path)
    try:
        assert server.stderr is not None
        lines = [server.stderr.readline() for _ in range(2)]
    finally:
        server.terminate()
        server.communicate(timeout=60)
    assert "http://" in lines[0]
    assert "not judged: whether the instruction was followed" in lines[1]


@pytest.mark.parametrize(
    ("options", "code", "named"),
    [
        (("--judge", "opnai/gpt-4.1"), 2, "openai"),
        (("--judge", "openai/gpt-4.1"), 2, "OPENAI_API_KEY"),
        (("--judge", "replay:missing.jsonl"), 1, "missing.jsonl"),
        (("--judge-for", "fidelity=opnai/gpt-4.1"), 2, "openai"),
        (("--allow", "opnai/gpt-4.1"), 2, "openai"),
        (("-J", "mix=opnai/gpt-4.1=1"), 2, "openai"),
    ],
)
def test_a_server_whose_judge_cannot_be_opened_does_not_start(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    code: int,
    named: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    result = editjudge("serve", "--create", "--store", "s.db", *options)
    assert result.code == code and named in result.err
    assert not (tmp_path / "s.db").exists()


@pytest.mark.parametrize("text", ["fidelity", "=measured", "fidelity="])
def test_a_judge_without_a_rubric_is_an_error_that_shows_the_form(
    tmp_path: Path, text: str
) -> None:
    place = tmp_path / "s.db"
    result = editjudge("serve", "--create", "--store", place, "--judge-for", text)
    assert result.code == 2 and "RUBRIC=JUDGE" in result.err


def test_a_score_that_names_an_unknown_rubric_is_refused_with_the_near_miss(
    measured: Served, tmp_path: Path
) -> None:
    body = {"edits": [photo_edit()], "score": "fidelty * quality"}
    answer = measured.post("reward", body)
    assert answer.status_code == 422 and "fidelity" in answer.text
    result = editjudge(
        "serve", "--create", "--store", tmp_path / "s.db", "--score", "fidelty"
    )
    assert result.code == 2 and "fidelity" in result.err
