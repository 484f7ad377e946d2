"""Pydantic Evals judging edits: run by the Python of .venvs/pydantic_evals, see bench/peers/__init__.py.

The tool's own path: `Dataset.evaluate_sync()` over `Case`s with `max_concurrency=64`; an `Evaluator` of one's own that
asks an `Agent` with two `BinaryContent` pictures and a `NativeOutput` type, as its documentation describes for scores
that its `LLMJudge` (one number, one reason) has no room for; its OpenAI client with its two retries, its check of the
answer, and its one further question where the check fails. Ours: the question and the type of the answer.

One setting differs from the defaults: nothing is displayed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.peers import FACTORS, Asked, Scores, answer_type, compete
from bench.throughput import CONCURRENCY


def judge(asked: list[Asked], url: str, patient: bool) -> Mapping[str, Scores]:
    from pydantic_evals import Case, Dataset  # type: ignore[import-not-found]  # in the peer's venv

    cases = [Case(name=a.identifier, inputs=a) for a in asked]
    evaluator = fidelity()(agent(url, patient))
    dataset = Dataset(name="edits", cases=cases, evaluators=[evaluator])
    report = dataset.evaluate_sync(edited, max_concurrency=CONCURRENCY, progress=False)
    return {
        case.name: {name: case.scores[name].value for name in FACTORS}
        for case in report.cases
        if case.scores
    }


async def edited(asked: Asked) -> str:
    """The task under test, whose work is done: the edit is on disk."""
    return str(asked.pictures[1])


def agent(url: str, patient: bool) -> Any:
    from openai import AsyncOpenAI
    from pydantic_ai import Agent, NativeOutput  # type: ignore[import-not-found]  # in the peer's venv
    from pydantic_ai.models.openai import OpenAIChatModel  # type: ignore[import-not-found]  # in the peer's venv
    from pydantic_ai.providers.openai import OpenAIProvider  # type: ignore[import-not-found]  # in the peer's venv

    os.environ["OPENAI_API_KEY"] = "none"
    provider = OpenAIProvider(base_url=url)
    if patient:
        provider = OpenAIProvider(
            openai_client=AsyncOpenAI(base_url=url, max_retries=10)
        )
    stubborn = {"retries": 10} if patient else {}
    return Agent(
        OpenAIChatModel("stub", provider=provider),
        output_type=NativeOutput(answer_type()),
        **stubborn,
    )


def fidelity() -> Any:
    from pydantic_ai import BinaryContent
    from pydantic_evals.evaluators import Evaluator, EvaluatorContext  # type: ignore[import-not-found]

    @dataclass
    class Fidelity(Evaluator):  # type: ignore[misc]  # a class in the peer's venv
        agent: Any

        async def evaluate(self, ctx: EvaluatorContext) -> dict[str, int]:
            asked: Asked = ctx.inputs
            before, after = (BinaryContent.from_path(path) for path in asked.pictures)
            said = await self.agent.run(["input", before, "edited", after, asked.text])
            return {
                name: getattr(said.output.online_factor_results, name).score
                for name in FACTORS
            }

    return Fidelity


if __name__ == "__main__":
    compete(
        judge, ("pydantic_evals", "pydantic_ai", "pydantic_ai.models.openai", "openai")
    )
