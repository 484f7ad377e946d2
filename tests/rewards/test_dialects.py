"""Trainers' own protocols: each client's request as its public code sends it, in order, with right numbers, and never a
number for a failure."""

from __future__ import annotations

import base64
import json
import pickle
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from editjudge.errors import UsageError
from editjudge.rewards.dialects import builtin, chosen, native_path
from editjudge.rewards.protocol import Terms
from tests import patient
from tests.faults import raises
from tests.rewards.test_pickled import mutated
from tests.running.made import editjudge, picture, stub
from tests.web.served import Served, base64_of, edit, recorded_rewards, serving

TOKEN = "service-" * 3
ALL = ("flow-factory", "unirl", "edit-r1", "flow-grpo", "/d/editscore")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("dialects")
    terms = Terms(rubrics=("compliance",), more_rubrics=(), dialects=ALL, max_edits=8)
    with serving(
        folder / "s.db",
        recorded_rewards(folder / "r.jsonl"),
        terms,
        service_token=TOKEN,
    ) as running:
        running.client.headers["authorization"] = f"Bearer {TOKEN}"
        yield running


SOURCES = [picture(f"input-{n // 4}.png") for n in range(4)]
OUTPUTS = [picture(f"edited-{n}.png") for n in range(4)]
PROMPTS = [f"Paint car {n} red." for n in range(4)]


def post(served: Served, path: str, value: Any) -> httpx.Response:
    if isinstance(value, bytes):
        return served.client.post(served.url + path, content=value)
    return served.client.post(served.url + path, json=value)


def unpickled(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return pickle.loads(answer.content)  # noqa: S301  (as the stock clients do)


# --- Flow-Factory ---------------------------------------------------------------------------------------------


def flow_factory(count: int) -> dict[str, Any]:
    return {
        "prompt": PROMPTS[:count],
        "image": [base64_of(data) for data in OUTPUTS[:count]],
        "video": None,
        "condition_images": [[base64_of(data)] for data in SOURCES[:count]],
        "condition_videos": None,
    }


def test_flow_factory_gets_numbers_in_order_and_an_error_beside_a_null(
    served: Served,
) -> None:
    assert post(served, "/compute", flow_factory(3)).json() == {
        "rewards": [1.0, 0.5, 0.0]
    }
    failed = post(served, "/d/flow-factory/compute", flow_factory(4)).json()
    assert failed["rewards"] == [1.0, 0.5, 0.0, None]
    assert failed["error"].startswith("1 of 4 edits have no reward: edit 3: invalid")


def test_flow_factory_without_a_source_picture_is_told_which_class_sends_it(
    served: Served,
) -> None:
    answer = post(served, "/compute", flow_factory(2) | {"condition_images": None})
    assert (
        answer.status_code == 422
        and "flow_factory.EditRewardModel" in answer.json()["error"]
    )
    assert (
        post(served, "/compute", flow_factory(2) | {"prompt": ["one"]}).status_code
        == 422
    )
    assert (
        post(served, "/compute", flow_factory(2) | {"video": [["x"]]}).status_code
        == 422
    )


def test_health_is_the_same_for_every_client(served: Served) -> None:
    for path in ("/health", "/d/flow-factory/health", "/d/unirl/health"):
        answer = served.client.get(served.url + path).json()
        assert answer["status"] == "ok" and set(answer["rewards"]) == {
            "editjudge",
            "effect_score",
        }


# --- UniRL ----------------------------------------------------------------------------------------------------


def unirl(numbers: list[int], *rewards: str) -> dict[str, Any]:
    def turn(n: int, data: bytes) -> dict[str, Any]:
        return {"text": PROMPTS[n], "image_b64": base64.b64encode(data).decode()}

    return {
        "requests": [
            {
                "history": [turn(n, SOURCES[n]), turn(n, OUTPUTS[n])],
                "required_rewards": list(rewards) or ["editjudge"],
                "metadata": {"step": n, "nested": {"a": 1}},
            }
            for n in numbers
        ]
    }


def test_unirl_gets_results_and_a_failure_stands_in_errors_alone(
    served: Served,
) -> None:
    answer = post(
        served, "/score", unirl([0, 1, 2, 3], "editjudge", "effect_score")
    ).json()
    numbers = [
        (r["editjudge"]["reward"], r["effect_score"]["score"])
        for r in answer["results"][:3]
    ]
    assert numbers == [(1.0, 1.0), (0.5, 0.5), (0.0, 0.0)]
    assert answer["results"][3] == {} and answer["errors"][:3] == [{}, {}, {}]
    assert answer["errors"][3]["editjudge"].startswith("invalid")


def test_unirl_lists_its_rewards_and_refuses_others(served: Served) -> None:
    assert served.client.get(f"{served.url}/rewards").json() == {
        "rewards": ["editjudge", "effect_score"]
    }
    answer = post(served, "/score", unirl([0], "pickscore"))
    assert answer.status_code == 422 and "pickscore" in answer.json()["error"]
    request = unirl([0])
    names: list[Any] = [{"a": 1}, [], None, 5]
    for name in names:
        request["requests"][0]["required_rewards"] = [name]
        assert post(served, "/score", request).status_code == 422


@pytest.mark.parametrize(
    "value",
    [None, 5, "x", {}, {"a": 1}, [], [None], [[]], [[[]]], [{}], [5], ["x"], [["x"]]],
)
def test_a_field_of_another_kind_is_refused_by_every_dialect(
    served: Served, value: Any
) -> None:
    """Each field in turn holds what it should not; never an error of the server's own."""
    pickled = {"/mode/x": edit_r1(1), "/": edit_r1(1)}
    pickled["/d/editscore/"] = {
        "input_images": SOURCES[:1],
        "output_image": OUTPUTS[:1],
        "meta_datas": ["{}"],
    }
    for path, request in (
        {"/compute": flow_factory(1), "/score": unirl([0])} | pickled
    ).items():
        for name in request:
            changed = request | {name: value}
            body = pickle.dumps(changed) if path in pickled else changed
            answer = post(served, path, body)
            assert answer.status_code in (200, 422), (path, name, answer.text)
    for name in ("history", "required_rewards", "metadata"):
        changed = unirl([0])
        changed["requests"][0][name] = value
        assert post(served, "/score", changed).status_code in (200, 422)


def test_an_edit_of_unirl_without_a_source_is_an_error_of_that_edit(
    served: Served,
) -> None:
    request = unirl([0, 1])
    del request["requests"][1]["history"][0]
    answer = post(served, "/score", request).json()
    assert answer["results"] == [{"editjudge": {"reward": 1.0}}, {}]
    assert "no source image" in answer["errors"][1]["editjudge"]


# --- pickled --------------------------------------------------------------------------------------------------


def edit_r1(count: int) -> dict[str, Any]:
    metadata = [{"requirement": "None"} for _ in range(count)]
    return {
        "ref_images": SOURCES[:count],
        "images": OUTPUTS[:count],
        "prompts": PROMPTS[:count],
        "metadatas": metadata,
    }


def test_edit_r1_gets_scores_in_order_and_none_for_a_failure(served: Served) -> None:
    answer = unpickled(post(served, "/mode/logits_non_cot", pickle.dumps(edit_r1(4))))
    assert answer["scores"] == [1.0, 0.5, 0.0, None] and answer["errors"][3].startswith(
        "invalid"
    )
    assert unpickled(post(served, "/d/edit-r1/mode/x", pickle.dumps(edit_r1(2))))[
        "scores"
    ] == [1.0, 0.5]


def test_prompts_of_another_number_than_pictures_are_refused(served: Served) -> None:
    """Edit-R1's client sends all prompts with each part of its pictures: the second part would be judged by the
    prompts of the first."""
    answer = post(served, "/mode/x", pickle.dumps(edit_r1(2) | {"prompts": PROMPTS}))
    assert answer.status_code == 422 and "4 entries for 2" in answer.json()["error"]


def test_flow_grpo_gets_what_its_geneval_client_reads(served: Served) -> None:
    described = [
        {"input": source, "prompt": prompt, "tag": "edit"}
        for source, prompt in zip(SOURCES, PROMPTS, strict=True)
    ]
    sent = {"images": OUTPUTS, "meta_datas": described, "only_strict": True}
    answer = unpickled(post(served, "/", pickle.dumps(sent)))
    assert (
        answer["scores"]
        == answer["rewards"]
        == answer["strict_rewards"]
        == answer["outputs"]
        == [1.0, 0.5, 0.0, None]
    )
    assert answer["group_rewards"] == answer["group_strict_rewards"] == {}
    sources = {"images": OUTPUTS, "ref_images": SOURCES, "prompts": PROMPTS}
    assert (
        unpickled(post(served, "/d/flow-grpo/", pickle.dumps(sources)))["outputs"]
        == answer["outputs"]
    )


def test_flow_grpo_without_a_source_picture_is_told_how_to_send_it(
    served: Served,
) -> None:
    answer = post(served, "/", pickle.dumps({"images": OUTPUTS, "prompts": PROMPTS}))
    assert answer.status_code == 422 and "ref_images" in answer.json()["error"]


def test_a_client_that_sends_source_and_edited_side_by_side_is_read_too(
    served: Served,
) -> None:
    sent = {
        "images": {"source": SOURCES, "edited": OUTPUTS},
        "prompts": PROMPTS,
        "metadata": {"step": 3},
    }
    answer = unpickled(post(served, "/", pickle.dumps(sent)))
    assert answer["scores"] == [1.0, 0.5, 0.0, None] and answer["error"].startswith(
        "1 of 4 edits have no reward"
    )


# --- a dialect of the operator's own --------------------------------------------------------------------------

OWN = """
name: own
post: /api/v2/score
gets: [/api/ready]
edited: [samples.*.output]
input: [samples.*.before]
instruction: [samples.*.text]
metadata: samples
answer: {values: rewards, problems: errors}
"""


def test_a_client_that_nobody_has_heard_of_is_served_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN)
    terms = Terms(
        rubrics=("compliance",), more_rubrics=(), dialects=(str(tmp_path / "own.yaml"),)
    )
    with serving(
        tmp_path / "s.db", recorded_rewards(tmp_path / "r.jsonl"), terms
    ) as running:
        samples = [
            {"output": base64_of(output), "before": base64_of(source), "text": prompt}
            for output, source, prompt in zip(OUTPUTS, SOURCES, PROMPTS, strict=True)
        ]
        for path in ("/api/v2/score", "/d/own/api/v2/score"):
            answer = post(running, path, {"samples": samples}).json()
            assert answer["values"] == [1.0, 0.5, 0.0, None] and answer["problems"][
                3
            ].startswith("invalid")
        assert running.client.get(f"{running.url}/api/ready").json()["status"] == "ok"
        del samples[1]["before"]
        answer = post(running, "/api/v2/score", {"samples": samples}).json()
        assert answer["values"] == [1.0, None, 0.0, None] and answer["problems"][
            1
        ].startswith("missing_input")
        for sample in samples:
            sample.pop("before", None)
        refused = post(running, "/api/v2/score", {"samples": samples})
        assert refused.status_code == 422 and "no source image" in refused.text


@pytest.mark.parametrize(
    ("old", "new", "code", "named"),
    [
        ("name: own", "name: unirl", "built_in_name", "unirl"),
        ("post: /api/v2/score", "post: /v1/reward", "reserved_path", "/v1/reward"),
        ("gets: [/api/ready]", "gets: [/]", "reserved_path", "/"),
        ("samples.*.output", "samples..output", "invalid_dialect", "edited.0"),
        ("values: rewards", "values: zeros", "invalid_dialect", "answer.values"),
        ("metadata: samples", "colour: red", "invalid_dialect", "colour"),
        ("metadata: samples", "scale: [1, 1]", "invalid_dialect", "scale"),
        ("metadata: samples", "scale: [1]", "invalid_dialect", "scale"),
        ("metadata: samples", "scale: [0, .inf]", "invalid_dialect", "scale"),
        (
            "answer: {values: rewards, problems: errors}",
            "single: true\nanswer: {value: reward}",
            "invalid_dialect",
            "single",
        ),
        ("values: rewards", "values: reward", "invalid_dialect", "answer"),
        (
            "metadata: samples",
            "mode: {field: task, choices: {}}",
            "invalid_dialect",
            "mode.choices",
        ),
        (
            "metadata: samples",
            "mode: {field: task, choices: {a: {colour: red}}}",
            "invalid_dialect",
            "mode.choices.a.colour",
        ),
        (
            "metadata: samples",
            "mode: {field: task, default: b, choices: {a: {}}}",
            "invalid_dialect",
            "mode.default",
        ),
        (
            "metadata: samples",
            "mode: {field: tasks.*.name, choices: {a: {}}}",
            "invalid_dialect",
            "mode.field",
        ),
        (OWN, "[", "unreadable_file", "own.yaml"),
    ],
)
def test_a_file_that_is_no_dialect_is_said_before_the_server_starts(
    tmp_path: Path, old: str, new: str, code: str, named: str
) -> None:
    (tmp_path / "own.yaml").write_text(OWN.replace(old, new))
    with raises(UsageError, code, named):
        chosen([str(tmp_path / "own.yaml")])


# --- the files of the documents -------------------------------------------------------------------------------


def documented(tmp_path: Path, number: int) -> str:
    """The path of a file that the document shows."""
    text = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text("utf-8")
    blocks = re.findall(
        r"```yaml\n(.*?)```", text.partition("### A protocol of your own")[2], re.DOTALL
    )
    path = tmp_path / f"dialect-{number}.yaml"
    path.write_text(blocks[number])
    return str(path)


def test_the_documents_example_has_a_scale_and_a_mode_by_a_field(
    tmp_path: Path,
) -> None:
    """The mean of a server's own factors, one factor alone, and the least of another rubric, each on 0 to 5."""
    terms = Terms(dialects=(documented(tmp_path, 0),))
    sample = {
        "output": base64_of(OUTPUTS[0]),
        "before": base64_of(SOURCES[0]),
        "text": PROMPTS[0],
    }
    with stub(), serving(tmp_path / "s.db", terms=terms) as running:

        def value(options: Any) -> float:
            answer = post(running, "/api/score", {"samples": [sample], **options})
            assert answer.status_code == 200, answer.text
            number: float = answer.json()["values"][0]
            return number

        sent = edit(0)
        (own,) = running.rewards(sent)
        (alignment,) = running.rewards(sent, weights={"alignment": 1})
        (looks,) = running.rewards(sent, rubrics=["quality"], formula="min")
        assert len({own["reward"], alignment["reward"], looks["reward"]}) == 3
        assert (
            value({})
            == value({"options": {"task": "overall"}})
            == pytest.approx(5 * own["reward"])
        )
        assert value({"options": {"task": "following"}}) == pytest.approx(
            5 * alignment["reward"]
        )
        assert value({"options": {"task": "looks"}}) == pytest.approx(
            5 * looks["reward"]
        )
        wrong: list[Any] = ["colour", 3, ["looks"], {}]
        for name in wrong:
            refused = post(
                running, "/api/score", {"samples": [sample], "options": {"task": name}}
            )
            assert (
                refused.status_code == 422
                and refused.json()["problems"][0]["where"] == "options.task"
            )


def test_the_documents_example_of_one_edit_as_plain_fields(tmp_path: Path) -> None:
    terms = Terms(
        rubrics=("compliance",), more_rubrics=(), dialects=(documented(tmp_path, 1),)
    )
    judge = recorded_rewards(tmp_path / "r.jsonl", scores=(3,))
    with serving(tmp_path / "s.db", judge, terms) as running:
        sent: dict[str, Any] = {
            "source_image": base64_of(SOURCES[0]),
            "edited_image": base64_of(OUTPUTS[0]),
        }
        sent["prompt"] = PROMPTS[0]
        assert post(running, "/evaluate", sent).json() == {"score": 5.5}
        for name, value, status in (
            ("edited_image", None, "missing_output"),
            ("edited_image", "no base64", "bad_image"),
            ("source_image", None, "missing_input"),
            ("prompt", None, "error"),
        ):
            answer = post(running, "/evaluate", sent | {name: value}).json()
            assert (
                answer["score"] is None
                and answer["message"].partition(":")[0] == status
            )
        for name in sent:
            rest = {key: value for key, value in sent.items() if key != name}
            assert post(running, "/evaluate", rest).status_code == 422


def test_a_mode_that_the_server_cannot_ask_is_said_before_it_starts(
    tmp_path: Path,
) -> None:
    """The mode of the document's example asks a rubric that this server does not have."""
    terms = Terms(
        rubrics=("compliance",), more_rubrics=(), dialects=(documented(tmp_path, 0),)
    )
    with (
        raises(UsageError, "invalid_dialect", "mode.choices.following"),
        serving(tmp_path / "s.db", "measured", terms),
    ):
        pass


# --- one edit that fails --------------------------------------------------------------------------------------

BAD: dict[str, tuple[str, Any]] = {
    "no output": ("edited", None),
    "an empty output": ("edited", []),
    "an output of another kind": ("edited", 5),
    "an output that is no base64": ("edited", "not base64!"),
    "an output that is no picture": ("edited", "AAAA"),
    "an output that is too large": ("edited", "A" * (2**20 + 4)),
    "no source": ("input", None),
    "a source of another kind": ("input", {"a": 1}),
    "no prompt": ("instruction", None),
    "a prompt of another kind": ("instruction", 7),
    "a prompt that is too long": ("instruction", "x" * 20_001),
}


def bodies(change: tuple[str, Any]) -> dict[str, Any]:
    """What each dialect's client sends of three edits, of which the second is changed, by its path."""
    columns: dict[str, list[Any]] = {
        "edited": OUTPUTS[:3],
        "input": SOURCES[:3],
        "instruction": PROMPTS[:3],
    }
    role, value = change
    columns[role] = [columns[role][0], value, columns[role][2]]
    outputs = columns["edited"]
    sources = columns["input"]
    prompts = columns["instruction"]

    def coded(values: list[Any]) -> list[Any]:
        return [
            base64_of(value) if isinstance(value, bytes) else value for value in values
        ]

    described = [{"instruction": prompt} for prompt in prompts]
    turns = [
        [{"text": "before", "image_b64": source}, {"text": prompt, "image_b64": output}]
        for source, output, prompt in zip(
            coded(sources), coded(outputs), prompts, strict=True
        )
    ]
    return {
        "/compute": {
            "prompt": prompts,
            "image": coded(outputs),
            "condition_images": coded(sources),
        },
        "/score": {
            "requests": [
                {"history": two, "required_rewards": ["editjudge"]} for two in turns
            ]
        },
        "/mode/x": {"ref_images": sources, "images": outputs, "prompts": prompts},
        "/": {"images": outputs, "meta_datas": described, "ref_images": sources},
        "/d/editscore/": {
            "input_images": sources,
            "output_image": outputs,
            "meta_datas": described,
        },
    }


@pytest.fixture(scope="module")
def stubbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose judge looks at the pictures."""
    terms = Terms(dialects=ALL, max_image=2**18)
    with (
        stub(),
        serving(tmp_path_factory.mktemp("stubbed") / "s.db", terms=terms) as running,
    ):
        yield running


@pytest.mark.parametrize("name", BAD)
def test_an_edit_that_cannot_be_judged_fails_alone_in_every_dialect(
    stubbed: Served, name: str
) -> None:
    first, last = (reward["reward"] for reward in stubbed.rewards(edit(0), edit(2)))
    assert first != last
    for path, sent in bodies(BAD[name]).items():
        pickled = path not in ("/compute", "/score")
        answer = post(stubbed, path, pickle.dumps(sent) if pickled else sent)
        assert answer.status_code == 200, (path, answer.text)
        value = unpickled(answer) if pickled else answer.json()
        if path == "/score":
            assert value["results"] == [
                {"editjudge": {"reward": first}},
                {},
                {"editjudge": {"reward": last}},
            ]
            assert (
                value["errors"][0] == value["errors"][2] == {}
                and value["errors"][1]["editjudge"]
            )
        else:
            assert value.get("rewards", value.get("scores")) == [first, None, last], (
                path
            )


def test_a_null_output_has_the_status_that_the_reward_protocol_has_for_it(
    served: Served,
) -> None:
    sent = [edit(0, id="0"), edit(1, id="1", edited=None), edit(2, id="2")]
    assert [reward["status"] for reward in served.rewards(*sent)] == [
        "ok",
        "missing_output",
        "ok",
    ]
    answer = unpickled(
        post(served, "/mode/x", pickle.dumps(bodies(("edited", None))["/mode/x"]))
    )
    assert [error and error.partition(":")[0] for error in answer["errors"]] == [
        None,
        "missing_output",
        None,
    ]


def test_an_edit_that_could_not_be_taken_is_counted_and_kept_in_no_run(
    tmp_path: Path,
) -> None:
    terms = Terms(rubrics=("compliance",), more_rubrics=(), dialects=("edit-r1",))
    with serving(
        tmp_path / "s.db", recorded_rewards(tmp_path / "r.jsonl"), terms
    ) as running:
        for change in (("input", None), ("edited", 5)):
            post(running, "/mode/x", pickle.dumps(bodies(change)["/mode/x"]))
        nothing = {"images": [5], "ref_images": [5], "prompts": ["x"]}
        assert unpickled(post(running, "/mode/x", pickle.dumps(nothing)))["scores"] == [
            None
        ]
        (run,) = running.store.runs()
        assert {item.item.partition("-")[0] for item in running.store.items(run)} == {
            "0",
            "2",
        }
        metrics = running.client.get(f"{running.url}/metrics").text
        assert (
            'editjudge_rewards_total{protocol="edit-r1",status="bad_image"} 2'
            in metrics
        )
        assert (
            'editjudge_rewards_total{protocol="edit-r1",status="missing_input"} 1'
            in metrics
        )


def test_a_null_is_never_replaced_by_what_stands_at_another_place(
    tmp_path: Path,
) -> None:
    """A second place is for edits that lack the first, and not for those whose output is null there."""
    (tmp_path / "own.yaml").write_text(
        OWN.replace("[samples.*.output]", "[samples.*.output, images]")
    )
    terms = Terms(
        rubrics=("compliance",), more_rubrics=(), dialects=(str(tmp_path / "own.yaml"),)
    )
    with serving(
        tmp_path / "s.db", recorded_rewards(tmp_path / "r.jsonl"), terms
    ) as running:
        images = [base64_of(output) for output in OUTPUTS[:3]]
        samples: list[Any] = [
            {"before": base64_of(SOURCES[n]), "text": PROMPTS[n]} for n in range(3)
        ]
        samples[0]["output"] = images[0]
        samples[1]["output"] = None
        answer = post(
            running, "/api/v2/score", {"samples": samples, "images": images}
        ).json()
        assert answer["values"] == [1.0, None, 0.0]


# --- EditScore ------------------------------------------------------------------------------------------------


def test_editscore_gets_rewards_reasons_and_its_metadata_back(served: Served) -> None:
    described = [json.dumps({"instruction": prompt, "tag": "t"}) for prompt in PROMPTS]
    sent = {
        "input_images": [[data] for data in SOURCES],
        "output_image": OUTPUTS,
        "meta_datas": described,
    }
    answer = unpickled(post(served, "/d/editscore/", pickle.dumps(sent)))
    assert answer["rewards"] == answer["scores"] == [1.0, 0.5, 0.0, None]
    assert [one["original_index"] for one in answer["meta_data"]] == [0, 1, 2, 3]
    assert answer["meta_data"][3]["error"] == answer["reasoning"][3]
    assert served.client.get(f"{served.url}/d/editscore/ping").status_code == 200


def test_a_pickled_picture_of_pillow_is_refused_and_nothing_is_imported(
    served: Served,
) -> None:
    sent = {
        "input_images": [[Image.new("RGB", (8, 8))]],
        "output_image": [b"x"],
        "meta_datas": ["{}"],
    }
    answer = post(served, "/d/editscore/", pickle.dumps(sent))
    assert answer.status_code == 422 and "plain values" in answer.json()["error"]


def test_hostile_bodies_are_refused_by_every_dialect_and_the_server_goes_on(
    served: Served,
) -> None:
    chance = random.Random(3)
    paths = [
        f"/d/{name}{dialect.post.format(mode='x')}"
        for name, dialect in builtin().items()
    ]
    for number in range(100):
        data = mutated(chance)
        headers = {
            "content-type": "application/json"
            if number % 2
            else "application/octet-stream"
        }
        answer = served.client.post(
            served.url + chance.choice(paths), content=data, headers=headers
        )
        assert answer.status_code in (415, 422), (answer.status_code, answer.text, data)
    assert post(served, "/compute", flow_factory(1)).json() == {"rewards": [1.0]}


# --- paths and tokens -----------------------------------------------------------------------------------------


def test_a_client_without_a_header_puts_the_token_into_the_path(served: Served) -> None:
    with patient.Client() as bare:
        for path in ("/compute", "/d/flow-factory/compute"):
            assert bare.post(served.url + path, json=flow_factory(1)).status_code == 401
            assert bare.post(
                f"{served.url}/t/{TOKEN}{path}", json=flow_factory(1)
            ).json() == {"rewards": [1.0]}
        assert bare.get(f"{served.url}/t/{TOKEN}/d/unirl/health").status_code == 200
        assert (
            bare.post(
                f"{served.url}/t/wrong-token-0123456789/compute", json=flow_factory(1)
            ).status_code
            == 401
        )


def test_without_the_option_there_is_no_dialect(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db", "measured") as served:
        for path in ("/compute", "/score", "/d/edit-r1/mode/x", "/"):
            assert served.client.post(served.url + path, content=b"x").status_code in (
                404,
                405,
            )


def test_two_dialects_of_one_path_are_an_error_that_says_how(tmp_path: Path) -> None:
    done = editjudge(
        "serve",
        "--create",
        "--store",
        tmp_path / "s.db",
        "--dialect",
        "flow-grpo",
        "--dialect",
        "editscore",
    )
    assert done.code == 2 and "/d/editscore" in done.err
    assert [
        (dialect.name, native)
        for dialect, native in chosen(["flow-grpo", "/d/editscore"])
    ] == [
        ("flow-grpo", True),
        ("editscore", False),
    ]
    with raises(UsageError, "unknown_dialect", "unirl"):
        chosen(["unirel"])


def test_native_paths_lead_to_their_dialect_alone() -> None:
    names = chosen(["edit-r1", "flow-grpo", "/d/flow-factory"])
    assert (
        native_path(names, "POST", "/mode/logits_non_cot")
        == "/d/edit-r1/mode/logits_non_cot"
    )
    assert native_path(names, "POST", "/") == "/d/flow-grpo/"
    for method, path in (
        ("GET", "/"),
        ("POST", "/mode/a/b"),
        ("POST", "/compute"),
        ("GET", "/health"),
    ):
        assert native_path(names, method, path) is None
