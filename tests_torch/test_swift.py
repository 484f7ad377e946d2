"""ms-swift's own code with our plug-in: registered in `orms`, made by its trainer, asked by its scoring of completions,
while a tenth of the judgements fail.

Run by `make test-torch` in an environment of its own (requirements/torch-swift.txt): ms-swift wants a TRL before 1.0.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from editjudge.integrations.swift import edit_reward
from editjudge.rewards.trainers import NoReward

# of ms-swift about its own dependencies
pytestmark = pytest.mark.filterwarnings("ignore")
swift = pytest.importorskip("swift")
EDITS = 10
FAILED = 3
SCORES = (1, 3, 5)


def judge(folder: Path, failing: bool) -> str:
    replies = [
        json.dumps({"reasoning": "seen", "effect_score": SCORES[n % 3]})
        for n in range(EDITS)
    ]
    if failing:
        replies[FAILED] = "I would rather not."
    lines = [
        {"item": str(n), "rubric": "compliance", "reply": reply}
        for n, reply in enumerate(replies)
    ]
    (folder / "r.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"replay:{folder / 'r.jsonl'}"


def samples(folder: Path) -> list[Any]:
    """Ten completions of two prompts, as ms-swift's rollout hands them on."""
    from swift.rl_core.data import GRPOSample

    noise = np.random.default_rng(0).integers(0, 256, (6, 6, 3), np.uint8)
    Image.fromarray(noise).resize((96, 96), Image.Resampling.BICUBIC).save(
        folder / "input.png"
    )
    rows = [
        {
            "messages": [
                {"role": "user", "content": "paint it"},
                {"role": "assistant", "content": f"tint {n}"},
            ],
            "prompt_id": f"prompt-{n // 5}",
            "request_id": str(n),
            "input": str(folder / "input.png"),
            "instruction": "Paint it in another tint.",
        }
        for n in range(EDITS)
    ]
    return [GRPOSample.from_row(row) for row in rows]


def render(completion: str, row: dict[str, Any]) -> Any:
    picture = np.asarray(Image.open(row["input"])).astype(np.float32) / 255
    return np.clip(
        picture * [0.4 + 0.04 * int(completion.split()[1]), 1, 1], 0, 1
    ).astype(np.float32)


def scored(folder: Path, on_failure: Any, *, failing: bool) -> tuple[list[float], Any]:
    """The rewards that ms-swift's trainer works with, and the instance that it made of our class."""
    from swift.rewards import orms
    from swift.rl_core.grpo_algorithm import score_completions
    from swift.rlhf_trainers.grpo_trainer import GRPOTrainer

    orms["edit_reward"] = edit_reward(
        judge=judge(folder, failing),
        rubric="compliance",
        on_failure=on_failure,
        output=render,
    )
    trainer = SimpleNamespace(
        args=SimpleNamespace(reward_weights=None, reward_model_plugin=None),
        accelerator=SimpleNamespace(device=torch.device("cpu")),
        use_gym_env=False,
    )
    GRPOTrainer._prepare_rewards(trainer, ["edit_reward"])
    assert trainer.reward_func_names == ["EditReward"]
    plugins = trainer.reward_model_plugins
    numbers = score_completions(
        samples(folder), trainer.reward_funcs, plugins, False, torch.device("cpu")
    )
    return numbers[:, 0].tolist(), trainer.reward_funcs[0]


def expected() -> list[float]:
    return [{1: 0.0, 3: 0.5, 5: 1.0}[SCORES[n % 3]] for n in range(EDITS)]


def test_rewards_come_in_order_through_the_registered_class(tmp_path: Path) -> None:
    numbers, _ = scored(tmp_path, "native", failing=False)
    assert numbers == expected()


def test_a_failure_stops_training_since_ms_swift_would_count_it_as_0(
    tmp_path: Path,
) -> None:
    with pytest.raises(NoReward, match="1 of 10 edits have no reward"):
        scored(tmp_path, "native", failing=True)
    # what its trainer makes of None
    assert torch.tensor([[float("nan")]]).nansum(dim=1).item() == 0.0


def test_the_mean_of_the_prompts_group_is_taken_only_if_asked_for_and_is_marked(
    tmp_path: Path,
) -> None:
    numbers, reward = scored(tmp_path, "group_mean", failing=True)
    others = [value for n, value in enumerate(expected()[:5]) if n != FAILED]
    assert numbers[FAILED] == pytest.approx(sum(others) / len(others))
    assert [one.imputed for one in reward.last] == [n == FAILED for n in range(EDITS)]
