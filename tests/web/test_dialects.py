"""Trainers' own protocols: each client's request as its public code sends it, in order, with right numbers, and never a
number for a failure."""

from __future__ import annotations

import base64
import json
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from run.made import editjudge, picture
from test_pickled import mutated

from editjudge.errors import UsageError
from editjudge.web.dialects import builtin, chosen, native_path
from editjudge.web.site import Terms
from web.served import Served, base64_of, recorded_rewards, serving

TOKEN = "service-" * 3


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("dialects")
    names = ("flow-factory", "unirl", "edit-r1", "flow-grpo", "/d/editscore")
    terms = Terms(rubrics=("compliance",), more_rubrics=(), dialects=names, max_edits=8)
    with serving(folder / "s.db", recorded_rewards(folder / "r.jsonl"), terms, service_token=TOKEN) as running:
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


def test_flow_factory_gets_numbers_in_order_and_an_error_beside_a_null(served: Served) -> None:
    assert post(served, "/compute", flow_factory(3)).json() == {"rewards": [1.0, 0.5, 0.0]}
    failed = post(served, "/d/flow-factory/compute", flow_factory(4)).json()
    assert failed["rewards"] == [1.0, 0.5, 0.0, None]
    assert failed["error"].startswith("1 of 4 edits have no reward: edit 3: invalid")


def test_flow_factory_without_a_source_picture_is_told_which_class_sends_it(served: Served) -> None:
    answer = post(served, "/compute", flow_factory(2) | {"condition_images": None})
    assert answer.status_code == 422 and "flow_factory.EditRewardModel" in answer.json()["error"]
    assert post(served, "/compute", flow_factory(2) | {"prompt": ["one"]}).status_code == 422
    assert post(served, "/compute", flow_factory(2) | {"video": [["x"]]}).status_code == 422


def test_health_is_the_same_for_every_client(served: Served) -> None:
    for path in ("/health", "/d/flow-factory/health", "/d/unirl/health"):
        answer = served.client.get(served.url + path).json()
        assert answer["status"] == "ok" and set(answer["rewards"]) == {"editjudge", "effect_score"}


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


def test_unirl_gets_results_and_a_failure_stands_in_errors_alone(served: Served) -> None:
    answer = post(served, "/score", unirl([0, 1, 2, 3], "editjudge", "effect_score")).json()
    numbers = [(r["editjudge"]["reward"], r["effect_score"]["score"]) for r in answer["results"][:3]]
    assert numbers == [(1.0, 1.0), (0.5, 0.5), (0.0, 0.0)]
    assert answer["results"][3] == {} and answer["errors"][:3] == [{}, {}, {}]
    assert answer["errors"][3]["editjudge"].startswith("invalid")


def test_unirl_lists_its_rewards_and_refuses_others(served: Served) -> None:
    assert served.client.get(f"{served.url}/rewards").json() == {"rewards": ["editjudge", "effect_score"]}
    answer = post(served, "/score", unirl([0], "pickscore"))
    assert answer.status_code == 422 and "pickscore is not offered" in answer.json()["error"]
    request = unirl([0])
    names: list[Any] = [{"a": 1}, [], None, 5]
    for name in names:
        request["requests"][0]["required_rewards"] = [name]
        assert post(served, "/score", request).status_code == 422


@pytest.mark.parametrize("value", [None, 5, "x", {}, {"a": 1}, [], [None], [[]], [[[]]], [{}], [5], ["x"], [["x"]]])
def test_a_field_of_another_kind_is_refused_by_every_dialect(served: Served, value: Any) -> None:
    """Each field in turn holds what it should not; never an error of the server's own."""
    pickled = {"/mode/x": edit_r1(1), "/": edit_r1(1)}
    pickled["/d/editscore/"] = {"input_images": SOURCES[:1], "output_image": OUTPUTS[:1], "meta_datas": ["{}"]}
    for path, request in ({"/compute": flow_factory(1), "/score": unirl([0])} | pickled).items():
        for name in request:
            changed = request | {name: value}
            body = pickle.dumps(changed) if path in pickled else changed
            answer = post(served, path, body)
            assert answer.status_code in (200, 422), (path, name, answer.text)
    for name in ("history", "required_rewards", "metadata"):
        changed = unirl([0])
        changed["requests"][0][name] = value
        assert post(served, "/score", changed).status_code in (200, 422)


def test_an_edit_of_unirl_without_a_source_is_an_error_of_that_edit(served: Served) -> None:
    request = unirl([0, 1])
    del request["requests"][1]["history"][0]
    answer = post(served, "/score", request).json()
    assert answer["results"] == [{"editjudge": {"reward": 1.0}}, {}]
    assert "no source picture" in answer["errors"][1]["editjudge"]


# --- pickled --------------------------------------------------------------------------------------------------


def edit_r1(count: int) -> dict[str, Any]:
    metadata = [{"requirement": "None"} for _ in range(count)]
    return {"ref_images": SOURCES[:count], "images": OUTPUTS[:count], "prompts": PROMPTS[:count], "metadatas": metadata}


def test_edit_r1_gets_scores_in_order_and_none_for_a_failure(served: Served) -> None:
    answer = unpickled(post(served, "/mode/logits_non_cot", pickle.dumps(edit_r1(4))))
    assert answer["scores"] == [1.0, 0.5, 0.0, None] and answer["errors"][3].startswith("invalid")
    assert unpickled(post(served, "/d/edit-r1/mode/x", pickle.dumps(edit_r1(2))))["scores"] == [1.0, 0.5]


def test_prompts_of_another_number_than_pictures_are_refused(served: Served) -> None:
    """Edit-R1's client sends all prompts with each part of its pictures: the second part would be judged by the
    prompts of the first."""
    answer = post(served, "/mode/x", pickle.dumps(edit_r1(2) | {"prompts": PROMPTS}))
    assert answer.status_code == 422 and "4 entries for 2 pictures" in answer.json()["error"]


def test_flow_grpo_gets_what_its_geneval_client_reads(served: Served) -> None:
    described = [
        {"input": source, "prompt": prompt, "tag": "edit"} for source, prompt in zip(SOURCES, PROMPTS, strict=True)
    ]
    sent = {"images": OUTPUTS, "meta_datas": described, "only_strict": True}
    answer = unpickled(post(served, "/", pickle.dumps(sent)))
    assert (
        answer["scores"] == answer["rewards"] == answer["strict_rewards"] == answer["outputs"] == [1.0, 0.5, 0.0, None]
    )
    assert answer["group_rewards"] == answer["group_strict_rewards"] == {}
    sources = {"images": OUTPUTS, "ref_images": SOURCES, "prompts": PROMPTS}
    assert unpickled(post(served, "/d/flow-grpo/", pickle.dumps(sources)))["outputs"] == answer["outputs"]


def test_flow_grpo_without_a_source_picture_is_told_how_to_send_it(served: Served) -> None:
    answer = post(served, "/", pickle.dumps({"images": OUTPUTS, "prompts": PROMPTS}))
    assert answer.status_code == 422 and "ref_images" in answer.json()["error"]


def test_a_client_that_sends_source_and_edited_side_by_side_is_read_too(served: Served) -> None:
    sent = {"images": {"source": SOURCES, "edited": OUTPUTS}, "prompts": PROMPTS, "metadata": {"step": 3}}
    answer = unpickled(post(served, "/", pickle.dumps(sent)))
    assert answer["scores"] == [1.0, 0.5, 0.0, None] and answer["error"].startswith("1 of 4 edits have no reward")


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
    terms = Terms(rubrics=("compliance",), more_rubrics=(), dialects=(str(tmp_path / "own.yaml"),))
    with serving(tmp_path / "s.db", recorded_rewards(tmp_path / "r.jsonl"), terms) as running:
        samples = [
            {"output": base64_of(output), "before": base64_of(source), "text": prompt}
            for output, source, prompt in zip(OUTPUTS, SOURCES, PROMPTS, strict=True)
        ]
        for path in ("/api/v2/score", "/d/own/api/v2/score"):
            answer = post(running, path, {"samples": samples}).json()
            assert answer["values"] == [1.0, 0.5, 0.0, None] and answer["problems"][3].startswith("invalid")
        assert running.client.get(f"{running.url}/api/ready").json()["status"] == "ok"
        del samples[1]["before"]
        refused = post(running, "/api/v2/score", {"samples": samples})
        assert refused.status_code == 422 and "no source picture" in refused.text


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("name: own", "name: unirl", "taken"),
        ("post: /api/v2/score", "post: /v1/reward", "path of the server itself"),
        ("gets: [/api/ready]", "gets: [/]", "path of the server itself"),
        ("samples.*.output", "samples..output", "edited.0"),
        ("values: rewards", "values: zeros", "answer.values"),
        ("metadata: samples", "colour: red", "colour"),
        (OWN, "[", "cannot be read"),
    ],
)
def test_a_file_that_is_no_dialect_is_said_before_the_server_starts(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    (tmp_path / "own.yaml").write_text(OWN.replace(old, new))
    with pytest.raises(UsageError, match=words):
        chosen([str(tmp_path / "own.yaml")])


def test_editscore_gets_rewards_reasons_and_its_metadata_back(served: Served) -> None:
    described = [json.dumps({"instruction": prompt, "tag": "t"}) for prompt in PROMPTS]
    sent = {"input_images": [[data] for data in SOURCES], "output_image": OUTPUTS, "meta_datas": described}
    answer = unpickled(post(served, "/d/editscore/", pickle.dumps(sent)))
    assert answer["rewards"] == answer["scores"] == [1.0, 0.5, 0.0, None]
    assert [one["original_index"] for one in answer["meta_data"]] == [0, 1, 2, 3]
    assert answer["meta_data"][3]["error"] == answer["reasoning"][3]
    assert served.client.get(f"{served.url}/d/editscore/ping").status_code == 200


def test_a_pickled_picture_of_pillow_is_refused_and_nothing_is_imported(served: Served) -> None:
    sent = {"input_images": [[Image.new("RGB", (8, 8))]], "output_image": [b"x"], "meta_datas": ["{}"]}
    answer = post(served, "/d/editscore/", pickle.dumps(sent))
    assert answer.status_code == 422 and "plain values" in answer.json()["error"]


def test_hostile_bodies_are_refused_by_every_dialect_and_the_server_goes_on(served: Served) -> None:
    chance = random.Random(3)
    paths = [f"/d/{name}{dialect.post.format(mode='x')}" for name, dialect in builtin().items()]
    for number in range(100):
        data = mutated(chance)
        headers = {"content-type": "application/json" if number % 2 else "application/octet-stream"}
        answer = served.client.post(served.url + chance.choice(paths), content=data, headers=headers)
        assert answer.status_code in (415, 422), (answer.status_code, answer.text, data)
    assert post(served, "/compute", flow_factory(1)).json() == {"rewards": [1.0]}


# --- paths and tokens -----------------------------------------------------------------------------------------


def test_a_client_without_a_header_puts_the_token_into_the_path(served: Served) -> None:
    with httpx.Client() as bare:
        for path in ("/compute", "/d/flow-factory/compute"):
            assert bare.post(served.url + path, json=flow_factory(1)).status_code == 401
            assert bare.post(f"{served.url}/t/{TOKEN}{path}", json=flow_factory(1)).json() == {"rewards": [1.0]}
        assert bare.get(f"{served.url}/t/{TOKEN}/d/unirl/health").status_code == 200
        assert bare.post(f"{served.url}/t/wrong-token-0123456789/compute", json=flow_factory(1)).status_code == 401


def test_without_the_option_there_is_no_dialect(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db", "measured") as served:
        for path in ("/compute", "/score", "/d/edit-r1/mode/x", "/"):
            assert served.client.post(served.url + path, content=b"x").status_code in (404, 405)


def test_two_dialects_of_one_path_are_an_error_that_says_how(tmp_path: Path) -> None:
    done = editjudge(
        "serve", "--create", "--store", tmp_path / "s.db", "--dialect", "flow-grpo", "--dialect", "editscore"
    )
    assert done.code == 2 and "/d/editscore" in done.err
    assert [(dialect.name, native) for dialect, native in chosen(["flow-grpo", "/d/editscore"])] == [
        ("flow-grpo", True),
        ("editscore", False),
    ]
    with pytest.raises(UsageError, match='did you mean "unirl"'):
        chosen(["unirel"])


def test_native_paths_lead_to_their_dialect_alone() -> None:
    names = chosen(["edit-r1", "flow-grpo", "/d/flow-factory"])
    assert native_path(names, "POST", "/mode/logits_non_cot") == "/d/edit-r1/mode/logits_non_cot"
    assert native_path(names, "POST", "/") == "/d/flow-grpo/"
    for method, path in (("GET", "/"), ("POST", "/mode/a/b"), ("POST", "/compute"), ("GET", "/health")):
        assert native_path(names, method, path) is None
