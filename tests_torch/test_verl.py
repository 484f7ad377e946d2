"""verl's own reward managers with our `compute_score`, loaded by verl from a file, while a tenth of judgements fail.

Run by `make test-torch` in an environment of its own (requirements/torch-verl.txt): verl and TRL want different
versions of transformers.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from editjudge.rewards.trainers import NoReward

verl = pytest.importorskip("verl")
pytestmark = pytest.mark.filterwarnings("ignore")  # of verl and Ray about each other
EDITS = 10
PLUGIN = """
from editjudge.integrations.verl import edit_reward

compute_score = edit_reward(judge="replay:{replies}", rubric="compliance", on_failure="{on_failure}")
"""


def plugin(folder: Path, on_failure: str, reply: str) -> Any:
    """Our function as verl loads it; the judge answers every edit alike, since verl sends one at a time."""
    replies = folder / f"{on_failure}.jsonl"
    replies.write_text(
        json.dumps({"item": "0", "rubric": "compliance", "reply": reply}) + "\n"
    )
    path = folder / f"{on_failure}.py"
    path.write_text(PLUGIN.format(replies=replies, on_failure=on_failure))
    from omegaconf import OmegaConf
    from verl.trainer.ppo.reward import get_custom_reward_fn

    named = {"path": str(path), "name": "compute_score", "reward_kwargs": {}}
    return get_custom_reward_fn(
        OmegaConf.create({"reward": {"custom_reward_function": named}})
    )


def rollout(folder: Path, count: int) -> Any:
    """What a rollout hands to a reward manager: responses, and of each row its extra information."""
    from verl import DataProto

    noise = np.random.default_rng(0).integers(0, 256, (6, 6, 3), np.uint8)
    scene = np.asarray(
        Image.fromarray(noise).resize((96, 96), Image.Resampling.BICUBIC)
    )
    Image.fromarray(scene).save(folder / "input.png")
    tinted = [
        np.clip(scene * [0.4 + 0.05 * n, 1, 1], 0, 255).astype(np.uint8)
        for n in range(count)
    ]
    about = [
        {
            "input": str(folder / "input.png"),
            "edited": picture,
            "instruction": "Paint it.",
            "group": "g",
        }
        for picture in tinted
    ]
    columns = {
        "data_source": ["edits"] * count,
        "reward_model": [{"ground_truth": ""}] * count,
        "extra_info": about,
    }
    arrays = {
        name: np.array([None, *values], dtype=object)[1:]
        for name, values in columns.items()
    }
    tensors = {
        "responses": torch.ones(count, 3, dtype=torch.long),
        "attention_mask": torch.ones(count, 5, dtype=torch.long),
    }
    return DataProto.from_dict(tensors=tensors, non_tensors=arrays)


def manager(compute_score: Any) -> Any:
    from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls

    tokenizer = SimpleNamespace(decode=lambda _, **__: "an answer")
    return get_reward_manager_cls("naive")(None, tokenizer, compute_score)


GOOD = json.dumps({"reasoning": "seen", "effect_score": 3})


def test_the_reward_manager_calls_our_function_and_a_failure_stops_it(
    tmp_path: Path,
) -> None:
    data = rollout(tmp_path, EDITS)

    async def rewarded() -> list[Any]:
        """Nine edits by a judge that answers, and one by a judge that does not."""
        scoring = manager(plugin(tmp_path, "native", GOOD))
        answers = [await scoring.run_single(data[n : n + 1]) for n in range(EDITS - 1)]
        with pytest.raises(NoReward, match="invalid"):
            await manager(plugin(tmp_path, "raise", "I would rather not.")).run_single(
                data[EDITS - 1 : EDITS]
            )
        return answers

    answers = asyncio.run(rewarded())
    assert [answer["reward_score"] for answer in answers] == [0.5] * (EDITS - 1)
    assert all(
        answer["reward_extra_info"] == {"score": 0.5, "imputed": 0.0}
        for answer in answers
    )


def test_the_mean_of_the_group_is_marked_and_needs_a_reward_before_it(
    tmp_path: Path,
) -> None:
    data = rollout(tmp_path, 2)

    async def rewarded() -> Any:
        scoring = manager(plugin(tmp_path, "group_mean", GOOD))
        first = await scoring.run_single(data[:1])
        about = data[1:2].non_tensor_batch["extra_info"][0]
        about["edited"] = about["input"]  # no edit, and so no reward
        return first, await scoring.run_single(data[1:2])

    first, imputed = asyncio.run(rewarded())
    assert first["reward_extra_info"]["imputed"] == 0.0
    assert (
        imputed["reward_score"] == 0.5
        and imputed["reward_extra_info"]["imputed"] == 1.0
    )


def test_our_function_takes_what_every_manager_of_verl_passes(tmp_path: Path) -> None:
    function = plugin(tmp_path, "native", GOOD)
    assert inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        function.func
    )
    from editjudge.integrations.verl import edit_reward

    given = {
        "data_source": "",
        "solution_str": "",
        "ground_truth": "",
        "extra_info": {},
    }
    router = {"reward_router_address": "", "reward_model_tokenizer": None}
    inspect.signature(edit_reward(judge="measured")).bind(**given, **router)
