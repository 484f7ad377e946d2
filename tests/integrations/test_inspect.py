"""Inspect reads what we write, and its tasks are scored by ours."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import Task
from inspect_ai import eval as inspect_eval
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog, list_eval_logs, read_eval_log
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    ChatMessageUser,
    ContentImage,
    ContentText,
    ModelOutput,
)
from inspect_ai.scorer import Score
from inspect_ai.solver import Generate, Solver, TaskState, solver
from PIL import Image

from editjudge.integrations.inspect import edit_scorer
from tests.running.made import editjudge, edits, expected, stub


def exported(
    tmp_path: Path,
) -> tuple[dict[tuple[str, str], dict[str, int]], list[EvalLog]]:
    """Six edits of two models, one of which produced nothing for the first: what the judge says, and the logs."""
    manifest = edits(tmp_path, 6)
    right = expected(manifest)
    (tmp_path / "edited-0.png").unlink()
    with stub():
        words = (
            "--judge",
            "openai/stub",
            "--name",
            "r",
            "--store",
            tmp_path / "s.db",
            "--max-failures",
            "1",
        )
        assert editjudge("run", manifest, *words).code == 0
    told = editjudge(
        "export",
        "r",
        "-o",
        tmp_path / "logs",
        "--format",
        "inspect",
        "--store",
        tmp_path / "s.db",
    )
    assert told.code == 0, told.err
    return right, [
        read_eval_log(info) for info in list_eval_logs(str(tmp_path / "logs"))
    ]


def test_inspect_s_own_reader_finds_every_score_with_its_reason_and_key(
    tmp_path: Path,
) -> None:
    right, logs = exported(tmp_path)
    assert sorted(log.eval.model for log in logs) == ["m0", "m1"]
    compared = 0
    for sample in (sample for log in logs for sample in log.samples or ()):
        for name, score in (sample.scores or {}).items():
            rubric, factor = name.split(".")
            if sample.id == "e0":
                continue
            assert score.value == right[str(sample.id), rubric][factor]
            assert (
                score.explanation
                and score.metadata
                and len(score.metadata["key"]) == 64
            )
            compared += 1
    assert compared == 5 * 12


def test_a_failure_is_unscored_and_in_no_mean(tmp_path: Path) -> None:
    _, logs = exported(tmp_path)
    log = next(log for log in logs if log.eval.model == "m0")
    failed = (
        next(sample for sample in log.samples or () if sample.id == "e0").scores or {}
    )
    assert {score.reason for score in failed.values()} == {"missing_output"}
    assert all(math.isnan(score.as_float()) for score in failed.values())
    assert log.results is not None
    assert {
        (score.scored_samples, score.unscored_samples) for score in log.results.scores
    } == {(2, 1)}


@pytest.fixture
def collected() -> Iterator[None]:
    yield
    gc.collect()


def left_open(test: Callable[..., None]) -> Callable[..., None]:
    """Inspect leaves a stream of its own to the garbage collector after an evaluation. It is collected in the test that
    left it, not in whichever comes later."""
    ignored = pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning"
    )
    marked: Callable[..., None] = pytest.mark.usefixtures("collected")(ignored(test))
    return marked


@solver
def editing(picture: Path | None) -> Solver:
    """A model that answers with this picture; Inspect's own mock would count its tokens with a file from the net."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        content: Any = [ContentImage(image=str(picture))] if picture else "I cannot."
        message = ChatMessageAssistant(content=content)
        state.output = ModelOutput(
            model="mock", choices=[ChatCompletionChoice(message=message)]
        )
        return state

    return solve


def source(tmp_path: Path) -> Path:
    """Large enough to be measured."""
    Image.effect_mandelbrot((96, 96), (-2.0, -1.5, 1.0, 1.5), 60).convert("RGB").save(
        tmp_path / "a.png"
    )
    return tmp_path / "a.png"


def scored(tmp_path: Path, picture: Path | None) -> Score:
    shown: list[Any] = [
        ContentText(text="make it red"),
        ContentImage(image=str(source(tmp_path))),
    ]
    sample = Sample(input=[ChatMessageUser(content=shown)], id=1)
    task = Task(
        [sample],
        solver=editing(picture),
        scorer=edit_scorer("preservation", "measured"),
    )
    log = inspect_eval(
        task, model="mockllm/model", log_dir=str(tmp_path / "logs"), display="none"
    )[0]
    assert log.status == "success", log.error
    assert log.samples and log.samples[0].scores
    return log.samples[0].scores["edit_scorer"]


@left_open
def test_a_task_of_inspect_is_scored_factor_by_factor(tmp_path: Path) -> None:
    score = scored(tmp_path, source(tmp_path))
    assert isinstance(score.value, dict)
    assert score.value["preservation.unchanged_regions"] == 7


@left_open
def test_an_answer_without_a_picture_is_unscored(tmp_path: Path) -> None:
    assert scored(tmp_path, None).reason == "missing_output"
