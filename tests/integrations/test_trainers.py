"""Reward functions for trainers: right numbers in order, and never a number for a failure unless it was asked for."""

from __future__ import annotations

import asyncio
import gc
import http.server
import inspect
import io
import json
import pickle
import subprocess
import sys
import textwrap
import threading
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editjudge.errors import InputError, JudgeError, UsageError
from editjudge.integrations import editscore, flow_grpo, swift, trl, verl, verl_omni
from editjudge.judges.judge import Options
from editjudge.media.source import encode, pixels
from editjudge.rewards import trainers as reward_module
from editjudge.rewards.protocol import Terms
from editjudge.rewards.trainers import NoReward, RewardEdit, Rewarder
from editjudge.running import job as job_module
from tests.faults import raises
from tests.running.made import answered, canned, picture, stub, until
from tests.web.served import Served, recorded_rewards, serving

SOURCES = [picture(f"input-{n // 4}.png") for n in range(4)]
OUTPUTS = [picture(f"edited-{n}.png") for n in range(4)]
WORDS = [f"Paint car {n} red." for n in range(4)]
MODULES = (trl, swift, verl, verl_omni, flow_grpo)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("trainers")
    terms = Terms(
        rubrics=("compliance",), more_rubrics=(), dialects=("editscore",), max_edits=64
    )
    with serving(
        folder / "s.db", recorded_rewards(folder / "r.jsonl"), terms
    ) as running:
        yield running


@pytest.fixture(params=["in this process", "server"])
def how(
    request: pytest.FixtureRequest, tmp_path: Path, served: Served
) -> dict[str, Any]:
    if request.param == "server":
        return {"server": served.url}
    return {"judge": recorded_rewards(tmp_path / "r.jsonl"), "rubric": "compliance"}


@pytest.fixture
def masking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "1.6.0")


@pytest.fixture
def orm(monkeypatch: pytest.MonkeyPatch) -> None:
    """`swift.rewards` with the base class as ms-swift has it."""

    class AsyncORM:
        def __init__(self, args: Any = None, **_: Any) -> None:
            self.args = args

    module = types.ModuleType("swift.rewards")
    setattr(module, "AsyncORM", AsyncORM)  # noqa: B010
    monkeypatch.setitem(sys.modules, "swift", types.ModuleType("swift"))
    monkeypatch.setitem(sys.modules, "swift.rewards", module)


def columns(count: int) -> dict[str, Any]:
    return {
        "input": SOURCES[:count],
        "instruction": WORDS[:count],
        "edited": OUTPUTS[:count],
    }


def test_every_trainers_factory_has_the_same_parameters() -> None:
    for module in MODULES:
        parameters = inspect.signature(module.edit_reward).parameters
        assert list(parameters)[:5] == [
            "judge",
            "rubric",
            "score",
            "server",
            "on_failure",
        ]
        assert parameters["on_failure"].default == "native"


# --- TRL ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("masking")
def test_trl_gets_none_for_a_failure_and_the_others_in_order(
    how: dict[str, Any],
) -> None:
    reward = trl.edit_reward(**how)
    assert reward.__name__ == "edit_reward"
    assert reward(["p"] * 4, ["c"] * 4, **columns(4), trainer_state=object()) == [
        1.0,
        0.5,
        0.0,
        None,
    ]


@pytest.mark.usefixtures("masking")
def test_trl_may_raise_or_take_the_mean_of_the_group_which_is_marked(
    how: dict[str, Any],
) -> None:
    with raises(NoReward, "no_reward", "1 of 4"):
        trl.edit_reward(**how, on_failure="raise")(["p"] * 4, ["c"] * 4, **columns(4))
    mean: Any = trl.edit_reward(**how, on_failure="group_mean")
    assert mean(["p", "q", "q", "p"], ["c"] * 4, **columns(4)) == [1.0, 0.5, 0.0, 1.0]
    assert [reward.imputed for reward in mean.last] == [False, False, False, True]
    with raises(NoReward, "no_group_mean"):
        mean(["p", "q", "q", "alone"], ["c"] * 4, **columns(4))


@pytest.mark.usefixtures("masking")
def test_a_function_may_make_the_output_of_a_completion(how: dict[str, Any]) -> None:
    made = []

    def render(completion: str, row: dict[str, Any]) -> Any:
        made.append((completion, row["instruction"]))
        return OUTPUTS[int(completion)]

    rest = {name: values for name, values in columns(2).items() if name != "edited"}
    assert trl.edit_reward(**how, output=render)(["p", "p"], ["0", "1"], **rest) == [
        1.0,
        0.5,
    ]
    assert made == [("0", WORDS[0]), ("1", WORDS[1])]
    with raises(InputError, "missing_column", "edited"):
        trl.edit_reward(**how)(["p", "p"], ["0", "1"], **rest)


def test_a_trl_that_would_count_a_failure_as_0_is_refused(
    monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "1.5.1")
    with raises(InputError, "trainer_too_old", "TRL 1.5.1"):
        trl.edit_reward(server=served.url)
    assert trl.edit_reward(server=served.url, on_failure="raise")(
        ["p"], ["c"], **columns(1)
    ) == [1.0]


# --- ms-swift, verl, verl-omni --------------------------------------------------------------------------------


@pytest.mark.usefixtures("orm")
def test_swift_gets_a_class_that_raises_unless_a_mean_is_asked_for(
    how: dict[str, Any],
) -> None:
    made: Any = swift.edit_reward(**how)(args=None)
    assert asyncio.run(made(["c"] * 3, **columns(3))) == [1.0, 0.5, 0.0]
    with pytest.raises(NoReward):
        asyncio.run(made(["c"] * 4, **columns(4)))
    mean: Any = swift.edit_reward(**how, on_failure="group_mean")()
    grouped = columns(4) | {"group": ["g"] * 4}
    assert asyncio.run(mean(["c"] * 4, **grouped)) == [1.0, 0.5, 0.0, 0.5]
    assert mean.last[3].imputed


def test_without_ms_swift_there_is_an_error_that_names_it(how: dict[str, Any]) -> None:
    with raises(InputError, "not_installed"):
        swift.edit_reward(**how)


def row(number: int, **more: Any) -> dict[str, Any]:
    return {
        "input": SOURCES[number],
        "instruction": WORDS[number],
        "edited": OUTPUTS[number],
    } | more


def test_verl_asks_about_one_edit_at_a_time(tmp_path: Path) -> None:
    score = verl.edit_reward(
        judge=recorded_rewards(tmp_path / "r.jsonl"),
        rubric="compliance",
        on_failure="group_mean",
    )
    assert inspect.iscoroutinefunction(score)
    first = asyncio.run(
        score(data_source="d", solution_str="s", ground_truth="g", extra_info=row(0))
    )
    assert first == {"score": 1.0, "imputed": 0.0}  # each is edit 0 to the judge
    with raises(InputError, "missing_field", "input"):
        asyncio.run(
            score(
                data_source="d",
                solution_str="s",
                ground_truth="g",
                extra_info={"edited": OUTPUTS[0], "instruction": "x"},
            )
        )


def test_a_failure_in_verl_is_an_error_or_the_mean_of_what_its_group_had_before(
    tmp_path: Path,
) -> None:
    path = tmp_path / "r.jsonl"
    recorded_rewards(path)
    how: dict[str, Any] = {"judge": f"replay:{path}", "rubric": "compliance"}
    missing = row(0, edited=None, group="g")
    plain = verl.edit_reward(**how, output=lambda _, extra: extra["edited"])
    with raises(NoReward, "no_reward", "missing_output"):
        asyncio.run(plain("d", "s", "g", missing))
    mean = verl.edit_reward(
        **how, on_failure="group_mean", output=lambda _, extra: extra["edited"]
    )
    with raises(NoReward, "no_group_mean"):
        asyncio.run(mean("d", "s", "g", missing))
    asyncio.run(mean("d", "s", "g", row(0, group="g")))
    assert asyncio.run(mean("d", "s", "g", missing)) == {"score": 1.0, "imputed": 1.0}


def test_verl_omni_takes_the_picture_that_the_model_made(tmp_path: Path) -> None:
    score = verl_omni.edit_reward(
        judge=recorded_rewards(tmp_path / "r.jsonl"), rubric="compliance"
    )
    made = np.asarray(Image.open(io.BytesIO(OUTPUTS[0])).convert("RGB"))
    extra = {"input": SOURCES[0]}
    for shown in (made.transpose(2, 0, 1), made.transpose(2, 0, 1)[None]):
        answer = asyncio.run(
            score(
                data_source="d",
                solution_image=shown,
                ground_truth=WORDS[0],
                extra_info=extra,
            )
        )
        assert answer == {"score": 1.0, "imputed": 0.0}


# --- flow_grpo, EditScore -------------------------------------------------------------------------------------


def batch(count: int, side: int = 48) -> Any:
    shown = [
        Image.open(io.BytesIO(data)).convert("RGB").resize((side, side))
        for data in OUTPUTS[:count]
    ]
    return np.stack([np.asarray(one) for one in shown])


def test_flow_grpo_takes_arrays_and_sources_from_either_place(
    how: dict[str, Any],
) -> None:
    described = [{"input": data} for data in SOURCES]
    scores, marks = flow_grpo.edit_reward(**how)(batch(3), WORDS[:3], described[:3])
    assert (scores, marks) == ([1.0, 0.5, 0.0], {"imputed": [False] * 3})
    as_edit_r1 = flow_grpo.edit_reward(**how, sources_first=True)
    assert as_edit_r1(SOURCES[:2], batch(2), WORDS[:2], {})[0] == [1.0, 0.5]
    assert flow_grpo.edit_reward(**how)(
        batch(1), WORDS[:1], {}, ref_images=SOURCES[:1]
    )[0] == [1.0]
    with raises(InputError, "no_source_images", "ref_images"):
        flow_grpo.edit_reward(**how)(batch(1), WORDS[:1], {})
    with pytest.raises(NoReward):
        flow_grpo.edit_reward(**how)(batch(4), WORDS, described)


def test_editscores_function_takes_pillows_pictures_and_raises_for_a_failure(
    served: Served,
) -> None:
    pictures = [Image.open(io.BytesIO(data)) for data in OUTPUTS]
    sources = [[Image.open(io.BytesIO(data))] for data in SOURCES]
    described = [{"instruction": arguments} for arguments in WORDS]
    port = int(served.url.rpartition(":")[2])
    scores, rewards, reasons, metadata = editscore.evaluate_images(
        sources[:3], pictures[:3], described[:3], "127.0.0.1", port
    )
    assert scores == rewards == [1.0, 0.5, 0.0] and "effect_score" in reasons[0]
    assert [one["original_index"] for one in metadata] == [0, 1, 2]
    with raises(NoReward, "no_reward", "1 of 4"):
        editscore.evaluate_images(sources, pictures, described, "127.0.0.1", port)


# --- pictures, arguments --------------------------------------------------------------------------------------


class Tensor:
    """What is used of a torch tensor."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def float(self) -> Tensor:
        return Tensor(self._array.astype(np.float32))

    def is_floating_point(self) -> bool:
        return bool(np.issubdtype(self._array.dtype, np.floating))

    def numpy(self) -> Any:
        return self._array


def test_arrays_and_tensors_of_any_layout_are_the_same_picture() -> None:
    shown = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    planes = shown.transpose(2, 0, 1)
    same = [
        shown,
        planes,
        shown / 255,
        planes.astype(np.float16) / 255,
        Tensor(planes),
        Tensor(planes / 255),
    ]
    for given in same:
        assert np.array_equal(pixels(given), shown)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(encode(shown)))), shown)  # type: ignore[arg-type]
    square = np.zeros((3, 4, 3), np.uint8)  # both ends could be channels
    assert pixels(square).shape == (3, 4, 3) and pixels(Tensor(square)).shape == (
        4,
        3,
        3,
    )


@pytest.mark.parametrize(
    ("array", "code"),
    [
        (np.full((4, 4, 3), -1.0), "bad_range"),
        (np.full((4, 4, 3), np.nan), "bad_range"),
        (np.full((4, 4, 3), 255.0), "bad_range"),
        (np.zeros((4, 4, 3), np.int64), "bad_dtype"),
        (np.zeros((5, 6, 7)), "bad_channels"),
        (np.zeros((2, 4, 4, 3)), "bad_shape"),
        (np.zeros((0, 4, 3)), "bad_shape"),
    ],
)
def test_what_is_no_picture_is_said_and_nothing_is_guessed(
    array: Any, code: str
) -> None:
    with raises(InputError, code):
        pixels(array)


def test_wrong_arguments_are_said_before_training_begins(tmp_path: Path) -> None:
    spec = recorded_rewards(tmp_path / "r.jsonl")
    with raises(UsageError, "unknown_policy", "on_failure"):
        Rewarder(spec, "compliance", on_failure="zero")  # type: ignore[arg-type]
    with raises(UsageError, "invalid_formula", "colour"):
        Rewarder(spec, "compliance", score="colour")
    with raises(UsageError, "bad_weight", "effect_score"):
        Rewarder(spec, "compliance", {"effect_score": 1e-10})
    twice = {"effect_score": 1, "compliance.effect_score": 1}
    with raises(UsageError, "two_weights", "effect_score"):
        Rewarder(spec, "compliance", twice)
    (by_key,) = Rewarder(spec, "compliance", "effect_score").rewards(
        [RewardEdit(SOURCES[0], OUTPUTS[0], "x")]
    )
    (by_path,) = Rewarder(spec, "compliance", "compliance.effect_score").rewards(
        [RewardEdit(SOURCES[0], OUTPUTS[0], "x")]
    )
    assert by_path == by_key and by_key.value is not None
    assert Rewarder(spec, "compliance", {"effect_score": 2}).rewards(
        [RewardEdit(SOURCES[0], OUTPUTS[0], "x")]
    )


def test_an_output_that_is_its_input_or_none_has_no_reward_and_nobody_is_asked(
    how: dict[str, Any],
) -> None:
    (same,) = Rewarder(**how).rewards([RewardEdit(SOURCES[0], SOURCES[0], "x")])
    assert (same.value, same.status) == (None, "abstained") and "input" in same.message
    (none,) = Rewarder(**how).rewards([RewardEdit(SOURCES[0], None, "x")])
    assert (none.value, none.status) == (None, "missing_output")


def test_a_rewarder_can_be_sent_to_a_worker_and_used_inside_a_loop(
    served: Served,
) -> None:
    sent: Rewarder = pickle.loads(pickle.dumps(Rewarder(server=served.url)))  # noqa: S301  (our own bytes)

    async def inside() -> Any:
        return sent.rewards([RewardEdit(SOURCES[0], OUTPUTS[0], WORDS[0])])

    assert asyncio.run(inside())[0].value == 1.0


def test_a_server_that_refuses_is_said_with_its_words(served: Served) -> None:
    with raises(JudgeError, "rejected_by_server", "422"):
        Rewarder(rubric="nothing", server=served.url).rewards(
            [RewardEdit(SOURCES[0], OUTPUTS[0], WORDS[0])]
        )


def test_a_trainer_of_ones_own_is_written_as_the_docstring_says(
    how: dict[str, Any],
) -> None:
    text = (
        (reward_module.__doc__ or "")
        .partition("is None:\n\n")[2]
        .partition("\n\nUsers call")[0]
    )
    names: dict[str, Any] = {}
    exec(textwrap.dedent(text), names)  # noqa: S102  (our own docstring)
    rows = zip(SOURCES, OUTPUTS, WORDS, strict=True)
    samples = [
        {"before": before, "after": after, "prompt": words}
        for before, after, words in rows
    ]
    assert names["edit_reward"](**how)(samples) == [1.0, 0.5, 0.0, None]


def test_a_group_that_is_ranked_is_never_divided_between_requests() -> None:
    edits = [RewardEdit(None, None, "x", group=f"g{n % 5}") for n in range(100)]
    batches = reward_module._batches(dict(enumerate(edits)), whole_groups=True)
    assert sorted(number for one in batches for number in one) == list(range(100))
    places = [
        {n for n, one in enumerate(batches) for e in one.values() if e.group == f"g{g}"}
        for g in range(5)
    ]
    assert all(len(place) == 1 for place in places)


def test_ranks_come_from_a_server_in_the_order_of_the_edits(served: Served) -> None:
    function = trl.edit_reward(server=served.url, ranking="scores", on_failure="raise")
    prompts = ["p"] * 3
    assert function(prompts, prompts, **columns(3), group=["g"] * 3) == [1.0, 0.5, 0.0]
    with raises(UsageError, "no_server"):
        trl.edit_reward(judge="measured", ranking="pairs", on_failure="raise")
    with raises(UsageError, "no_groups"):
        verl.edit_reward(server=served.url, ranking="pairs")


# --- one judge for as long as a rewarder lives ----------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The specs of the judges that were opened."""
    specs: list[str] = []
    really: Any = vars(job_module)["open_judge"]

    async def counted(spec: str, *rest: Any, **more: Any) -> Any:
        specs.append(spec)
        return await really(spec, *rest, **more)

    monkeypatch.setattr(job_module, "open_judge", counted)
    return specs


def reward_edits(count: int) -> list[RewardEdit]:
    return [RewardEdit(SOURCES[n], OUTPUTS[n], WORDS[n]) for n in range(count)]


def loop_threads() -> set[threading.Thread]:
    return {
        thread for thread in threading.enumerate() if thread.name == "editjudge-rewards"
    }


def test_a_judge_is_opened_once_for_all_edits_calls_and_threads(
    tmp_path: Path, opened: list[str]
) -> None:
    spec = recorded_rewards(tmp_path / "r.jsonl")
    rewarder = Rewarder(spec, "compliance")
    for _ in range(3):
        assert [reward.value for reward in rewarder.rewards(reward_edits(4))] == [
            1.0,
            0.5,
            0.0,
            None,
        ]
    with ThreadPoolExecutor(4) as threads:
        results = list(
            threads.map(lambda _: rewarder.rewards(reward_edits(2)), range(8))
        )
    assert all([reward.value for reward in result] == [1.0, 0.5] for result in results)
    assert asyncio.run(rewarder.arewards(reward_edits(1)))[0].value == 1.0
    assert opened == [spec]


def test_a_connection_to_a_judge_is_used_again_by_later_calls() -> None:
    with stub() as judge, Rewarder("openai/stub", "compliance") as rewarder:
        for edit in reward_edits(4):
            assert rewarder.rewards([edit])[0].status == "ok"
        assert (judge.ledger.requests, judge.ledger.connections) == (4, 1)


def test_a_copy_in_another_worker_opens_a_judge_of_its_own(
    tmp_path: Path, opened: list[str]
) -> None:
    rewarder = Rewarder(recorded_rewards(tmp_path / "r.jsonl"), "compliance")
    rewarder.rewards(reward_edits(1))
    copy: Rewarder = pickle.loads(pickle.dumps(rewarder))  # noqa: S301  (our own bytes)
    for each in (rewarder, copy, rewarder, copy):
        assert each.rewards(reward_edits(1))[0].value == 1.0
    assert len(opened) == 2


FORKED = """
import os, sys
from editjudge.rewards.trainers import RewardEdit, Rewarder
from editjudge.running import job

opened = []
really = job.open_judge

async def counted(spec, *rest, **more):
    opened.append(spec)
    return await really(spec, *rest, **more)

job.open_judge = counted
before, after = (open(name, "rb").read() for name in sys.argv[2:])
rewarder = Rewarder(sys.argv[1], "compliance")
ask = lambda: [reward.value for reward in rewarder.rewards([RewardEdit(before, after, "x")])]
assert ask() == [1.0]
rewarder._session._lock.acquire()  # as where another thread is asking just then
child = os.fork()
if child == 0:
    answers = [ask(), ask()]
    rewarder.close()
    os._exit(0 if answers == [[1.0], [1.0]] and len(opened) == 2 else 1)
rewarder._session._lock.release()
assert os.waitpid(child, 0)[1] == 0
assert ask() == [1.0] and len(opened) == 1
"""


@pytest.mark.skipif(
    not hasattr(__import__("os"), "fork"), reason="this system does not fork"
)
def test_a_process_that_was_forked_opens_its_own_judge_and_leaves_that_of_its_parent(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.png").write_bytes(SOURCES[0])
    (tmp_path / "b.png").write_bytes(OUTPUTS[0])
    words = [
        recorded_rewards(tmp_path / "r.jsonl"),
        tmp_path / "a.png",
        tmp_path / "b.png",
    ]
    subprocess.run(
        [sys.executable, "-c", FORKED, *map(str, words)], check=True, timeout=120
    )


def test_closing_ends_the_judge_and_a_later_call_opens_it_again(
    tmp_path: Path, opened: list[str]
) -> None:
    before = loop_threads()
    with Rewarder(recorded_rewards(tmp_path / "r.jsonl"), "compliance") as rewarder:
        rewarder.rewards(reward_edits(1))
        begun = loop_threads() - before
        assert len(begun) == 1
    assert not begun & loop_threads()
    rewarder.close()
    assert rewarder.rewards(reward_edits(1))[0].value == 1.0 and len(opened) == 2
    rewarder.close()


def test_a_rewarder_that_nobody_holds_any_more_ends_its_judge() -> None:
    before = loop_threads()
    with stub():
        function = flow_grpo.edit_reward(judge="openai/stub", rubric="compliance")
        assert len(function(OUTPUTS[:2], WORDS[:2], {}, ref_images=SOURCES[:2])[0]) == 2
        begun = loop_threads() - before
        assert len(begun) == 1
        del function
        gc.collect()
        until(lambda: not begun & loop_threads())


def test_a_judge_that_could_not_be_opened_is_tried_again(
    tmp_path: Path, opened: list[str]
) -> None:
    path = tmp_path / "later.jsonl"
    rewarder = Rewarder(f"replay:{path}", "compliance")
    with pytest.raises(InputError):
        rewarder.rewards(reward_edits(3))
    recorded_rewards(path)
    assert rewarder.rewards(reward_edits(1))[0].value == 1.0 and len(opened) == 2


def test_a_judge_that_wanted_to_be_left_alone_is_asked_again_by_the_next_call() -> None:
    answers = iter([(429, {"retry-after": "9000"}, b"{}")])

    def say(_: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        return next(answers, None) or (
            200,
            {},
            json.dumps(answered("/v1/chat/completions", body)).encode(),
        )

    with (
        canned(say),
        Rewarder("openai/stub", "compliance", options=Options(reasks=0)) as rewarder,
    ):
        with pytest.raises(JudgeError):
            rewarder.rewards(reward_edits(1))
        assert rewarder.rewards(reward_edits(1))[0].status == "ok"


# --- one edit that fails, and servers that answer wrongly -----------------------------------------------------


def test_an_image_that_cannot_be_read_fails_its_own_edit_alone(
    how: dict[str, Any],
) -> None:
    first, second, third = reward_edits(3)
    broken: list[Any] = [np.full((4, 4, 3), np.nan), object()]
    if "server" in how:
        broken.append("no-such-file.png")
    with Rewarder(**how) as rewarder:
        for output in broken:
            edits = [first, RewardEdit(second.input, output, "x"), third]
            rewards = rewarder.rewards(edits)
            assert [(r.value, r.status) for r in rewards] == [
                (1.0, "ok"),
                (None, "bad_image"),
                (0.0, "ok"),
            ]
        with raises(InputError, "not_an_image", "edit 0", "edited"):
            rewarder.rewards([RewardEdit(first.input, object(), "x")])


@contextmanager
def answering(
    change: Callable[[list[dict[str, Any]]], Any],
) -> Iterator[tuple[str, list[Any]]]:
    """A server of rewards whose answers are changed; its address, and the connections that were made to it."""
    connections: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            connections.append(self.client_address)

        def do_POST(self) -> None:
            import msgpack  # type: ignore[import-untyped]

            request = msgpack.unpackb(
                self.rfile.read(int(self.headers["content-length"]))
            )
            blank = {"reward": 0.25, "status": "ok", "scores": {"factor": 2}}
            rewards = [{"id": edit["id"], **blank} for edit in request["edits"]]
            data = json.dumps({"rewards": change(rewards)}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", connections
    finally:
        server.shutdown()
        server.server_close()


def test_a_connection_to_a_server_is_used_again_by_later_calls() -> None:
    with (
        answering(lambda rewards: rewards) as (url, connections),
        Rewarder(server=url) as rewarder,
    ):
        for _ in range(5):
            assert [reward.value for reward in rewarder.rewards(reward_edits(3))] == [
                0.25
            ] * 3
        assert len(connections) == 1


WRONG_ANSWERS: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "a number beside a failure": lambda rewards: [
        reward | {"reward": 0.0, "status": "pending"} for reward in rewards
    ],
    "ok without a number": lambda rewards: [
        reward | {"reward": None} for reward in rewards
    ],
    "NaN": lambda rewards: [reward | {"reward": float("nan")} for reward in rewards],
    "above 1": lambda rewards: [reward | {"reward": 5} for reward in rewards],
    "true": lambda rewards: [reward | {"reward": True} for reward in rewards],
    "a text": lambda rewards: [reward | {"reward": "0.5"} for reward in rewards],
    "another order": lambda rewards: rewards[::-1],
    "one left out": lambda rewards: rewards[1:],
    "one too many": lambda rewards: [*rewards, rewards[0]],
    "no list": lambda _: None,
    "no rewards": lambda rewards: [0.5 for _ in rewards],
}


@pytest.mark.parametrize("name", WRONG_ANSWERS)
def test_a_number_of_a_server_that_breaks_the_protocol_is_never_used(name: str) -> None:
    with (
        answering(WRONG_ANSWERS[name]) as (url, _),
        Rewarder(server=url) as rewarder,
        pytest.raises(JudgeError),
    ):
        rewarder.rewards(reward_edits(3))


def test_a_server_that_is_not_there_is_an_error_with_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reward_module, "_TRIES", 2)
    with (
        Rewarder(server="http://127.0.0.1:9") as rewarder,
        raises(JudgeError, "unreachable_server", "127.0.0.1:9"),
    ):
        rewarder.rewards(reward_edits(1))
