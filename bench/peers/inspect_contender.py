"""Inspect judging edits: run by the Python of .venvs/inspect_ai, see bench/peers/__init__.py.

The tool's own path: `eval()` of a `Task` over `Sample`s with two `ContentImage` files each, the solver `generate()`,
the `openai-api` provider with `max_connections=64`, its retries, its log in the `eval` format with pictures left out
(its default). Ours: the question and the scorer, which reads the JSON of the completion and leaves a sample unscored
where there is none, so whatever is made up is not made up by this script.

Two settings differ from the defaults: nothing is displayed, and `fail_on_error=False`, without which the first sample
that fails ends the run. The model's API retries without end, as Inspect does unless told otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from bench.peers import Asked, Scores, compete, read_scores
from bench.throughput import CONCURRENCY


def judge(asked: list[Asked], url: str, patient: bool) -> Mapping[str, Scores]:
    from inspect_ai import Task, eval  # noqa: A004  (its name)
    from inspect_ai.dataset import MemoryDataset
    from inspect_ai.solver import generate

    os.environ["STUB_API_KEY"] = "none"
    task = Task(
        MemoryDataset([sample(a) for a in asked]),
        solver=generate(),
        scorer=fidelity(patient),
    )
    [log] = eval(
        task,
        model="openai-api/stub/stub",
        model_base_url=url,
        max_connections=CONCURRENCY,
        fail_on_error=False,
        retry_on_error=2 if patient else None,
        log_dir="logs",
        display="none",
    )
    samples: list[Any] = log.samples or []
    return {str(s.id): s.scores["fidelity"].value for s in samples if scored(s)}


def sample(asked: Asked) -> Any:
    from inspect_ai.dataset import Sample
    from inspect_ai.model import (
        ChatMessageUser,
        ContentImage,
        ContentText,
    )

    before, after = (ContentImage(image=str(path)) for path in asked.pictures)
    content: list[Any] = [
        ContentText(text="input"),
        before,
        ContentText(text="edited"),
        after,
        ContentText(text=asked.text),
    ]
    return Sample(id=asked.identifier, input=[ChatMessageUser(content=content)])


def fidelity(patient: bool) -> Any:
    """A scorer as the documentation describes one of one's own: a dictionary of values, a mean of each."""
    from inspect_ai.scorer import Score, mean, scorer

    @scorer(metrics={"*": [mean()]}, name="fidelity")
    def made() -> Any:
        async def score(state: Any, target: Any) -> Any:  # noqa: ARG001  (what a scorer is called with)
            try:
                return Score(value=read_scores(state.output.completion))
            except ValueError as error:
                if patient:
                    raise
                return Score.unscored(explanation=str(error))

        return score

    return made()


def scored(sample: Any) -> bool:
    """An unscored sample has NaN where the dictionary would be."""
    return bool(sample.scores) and isinstance(sample.scores["fidelity"].value, dict)


if __name__ == "__main__":
    compete(judge, ("inspect_ai", "inspect_ai.model", "inspect_ai.scorer", "openai"))
