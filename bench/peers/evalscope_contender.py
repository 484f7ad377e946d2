"""EvalScope judging edits: run by the Python of .venvs/evalscope, see bench/peers/__init__.py.

The tool's own path: `run_task()` with `eval_type="openai_api"` and `eval_batch_size=64`; its `general_vqa` benchmark
over a JSONL file of OpenAI messages with two picture files each; its model, its retries, its cache, reviews and
report. Ours: the question, and a subclass of the benchmark's adapter, registered as its guide describes, that reads
the JSON of the answer where `general_vqa` would compute BLEU; a sample without JSON is excluded, so whatever is made up
is not made up by this script. The judge stands where EvalScope expects the model under test.

Not run: its `gedit` benchmark with an LLM judge, which asks its own questions about its own data set.

One setting differs from the defaults: `ignore_errors=True`, without which the first sample that fails ends the run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.peers import FACTORS, Asked, Scores, compete, read_scores
from bench.throughput import CONCURRENCY

NAME = "edit_fidelity"


def judge(asked: list[Asked], url: str, patient: bool) -> Mapping[str, Scores]:
    from evalscope import TaskConfig, run_task  # type: ignore[import-not-found]  # in the peer's venv

    register()
    data = Path("data")
    data.mkdir()
    (data / "edits.jsonl").write_text(
        "".join(json.dumps(record(a)) + "\n" for a in asked)
    )
    stubborn = {"retries": 10, "retry_interval": 1} if patient else {}
    config = TaskConfig(
        model="stub",
        api_url=url,
        api_key="none",
        eval_type="openai_api",
        datasets=[NAME],
        dataset_args={NAME: {"local_path": str(data), "subset_list": ["edits"]}},
        eval_batch_size=CONCURRENCY,
        generation_config={"temperature": 0.0, **stubborn},
        ignore_errors=True,
        work_dir="outputs",
    )
    run_task(config)
    return dict(reviewed(Path("outputs")))


def record(asked: Asked) -> dict[str, Any]:
    before, after = (
        {"type": "image_url", "image_url": {"url": str(path)}}
        for path in asked.pictures
    )
    words = [{"type": "text", "text": text} for text in ("input", "edited", asked.text)]
    return {
        "messages": [
            {"role": "user", "content": [words[0], before, words[1], after, words[2]]}
        ],
        "answer": asked.identifier,
    }


def register() -> None:
    from evalscope.api.benchmark import BenchmarkMeta  # type: ignore[import-not-found]  # in the peer's venv
    from evalscope.api.metric import Score  # type: ignore[import-not-found]  # in the peer's venv
    from evalscope.api.registry import register_benchmark  # type: ignore[import-not-found]  # in the peer's venv
    from evalscope.benchmarks.general_vqa.general_vqa_adapter import (  # type: ignore[import-not-found]
        GeneralVQAAdapter,
    )
    from evalscope.constants import ScoreStatus  # type: ignore[import-not-found]  # in the peer's venv

    meta = BenchmarkMeta(
        name=NAME,
        pretty_name="Edit fidelity",
        description="Alignment, completeness and plausibility of an edit, from 1 to 7.",
        dataset_id=NAME,
        metric_list=list(FACTORS),
        few_shot_num=0,
        train_split=None,
        eval_split="test",
        prompt_template=None,
    )

    @register_benchmark(meta)
    class Fidelity(GeneralVQAAdapter):  # type: ignore[misc]  # a class in the peer's venv
        def match_score(
            self,
            original_prediction: str,
            filtered_prediction: str,
            reference: str,
            task_state: Any,
        ) -> Any:
            said = {
                "prediction": original_prediction,
                "extracted_prediction": filtered_prediction,
            }
            try:
                return Score(
                    value=read_scores(filtered_prediction),
                    metadata={"edit": reference},
                    **said,
                )
            except ValueError as error:
                return Score(
                    status=ScoreStatus.EXCLUDED, explanation=str(error), **said
                )


def reviewed(folder: Path) -> Mapping[str, Scores]:
    """What the tool wrote down of each sample that it scored."""
    found = {}
    for path in folder.glob("**/reviews/**/*.jsonl"):
        for line in path.read_text().splitlines():
            score = json.loads(line)["sample_score"]["score"]
            if score["value"]:
                found[score["metadata"]["edit"]] = score["value"]
    return found


if __name__ == "__main__":
    compete(judge, ("evalscope", "evalscope.api.registry", "openai"))
