"""DeepEval judging edits: run by the Python of .venvs/deepeval, see bench/peers/__init__.py.

The tool's own path: `evaluate()` over `LLMTestCase`s whose texts hold two `MLLMImage` files each, with
`max_concurrent=64`; `LocalModel`, its client for a judge behind an OpenAI-compatible URL, with its retries, its reading
of JSON and its check of the schema; a metric of one's own, as its guide describes. Ours: the question, the schema of
the answer, and the metric's few lines, which pass the model's answer on.

Its `ImageEditingMetric`, which asks two questions an edit in words of its own, is a contender of its own.

Three settings differ from the defaults: nothing is displayed; `ignore_errors=True`, without which the first test case
that fails ends the run; and `write_cache=False`, without which it reads and writes the file of all test cases, pictures
included, anew for each, so that the time grows with the square of their number.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench.peers import FACTORS, Asked, Scores, answer_type, compete
from bench.throughput import CONCURRENCY


def judge(asked: list[Asked], url: str, patient: bool) -> Mapping[str, Scores]:
    return {
        name: json.loads(data.reason)
        for name, data in evaluated(asked, url, patient, metric())
    }


def evaluated(
    asked: list[Asked], url: str, patient: bool, metric: Callable[[Any], Any]
) -> Iterator[tuple[str, Any]]:
    """Of each test case that has a score, its name and what the metric left."""
    if patient:
        os.environ["DEEPEVAL_RETRY_MAX_ATTEMPTS"] = "10"
    from deepeval import evaluate  # type: ignore[import-not-found]  # in the peer's venv
    from deepeval.evaluate.configs import (  # type: ignore[import-not-found]  # in the peer's venv
        AsyncConfig,
        CacheConfig,
        DisplayConfig,
        ErrorConfig,
    )
    from deepeval.models import LocalModel  # type: ignore[import-not-found]  # in the peer's venv

    result = evaluate(
        [test_case(a) for a in asked],
        [metric(LocalModel(model="stub", base_url=url, api_key="none"))],
        async_config=AsyncConfig(max_concurrent=CONCURRENCY),
        display_config=DisplayConfig(
            show_indicator=False, print_results=False, inspect_after_run=False
        ),
        cache_config=CacheConfig(write_cache=False),
        error_config=ErrorConfig(ignore_errors=True),
    )
    for done in result.test_results:
        for data in done.metrics_data or []:
            if data.error is None and data.score is not None:
                yield done.name, data


def test_case(asked: Asked) -> Any:
    from deepeval.test_case import LLMTestCase, MLLMImage  # type: ignore[import-not-found]  # in the peer's venv

    before, after = (MLLMImage(url=str(path)) for path in asked.pictures)
    return LLMTestCase(
        name=asked.identifier,
        input=f"{asked.text} input {before}",
        actual_output=f"edited {after}",
    )


def metric() -> Any:
    """The class; a metric has one score, so the reason carries that of each factor."""
    from deepeval.metrics import BaseMetric  # type: ignore[import-not-found]  # in the peer's venv

    answer = answer_type()

    class Fidelity(BaseMetric):  # type: ignore[misc]  # a class in the peer's venv
        def __init__(self, model: Any) -> None:
            self.model = model
            self.threshold = 0.5
            self.async_mode = True
            self.include_reason = True
            self.evaluation_model = model.get_model_name()

        def measure(self, test_case: Any, *_: Any, **__: Any) -> float:
            raise NotImplementedError("asked only asynchronously")

        async def a_measure(self, test_case: Any, *_: Any, **__: Any) -> float:
            said, _cost = await self.model.a_generate(
                f"{test_case.input} {test_case.actual_output}", schema=answer
            )
            scores = {
                name: getattr(said.online_factor_results, name).score
                for name in FACTORS
            }
            mean = float(sum(scores.values()) / len(scores) / 7)
            self.score = mean
            self.reason = json.dumps(scores)
            self.success = mean >= self.threshold
            return mean

        def is_successful(self) -> bool:
            return bool(self.success)

        @property
        def __name__(self) -> str:
            return "Fidelity"

    return Fidelity


if __name__ == "__main__":
    compete(judge, ("deepeval", "deepeval.metrics", "deepeval.models", "openai"))
