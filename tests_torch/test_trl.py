"""TRL's own GRPOTrainer with our reward function, on the CPU, while a tenth of the judgements fail.

Run by `make test-torch`. The model is tiny and has random weights; each completion is an edit of the same photograph.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from editjudge.integrations.trl import edit_reward
from editjudge.media.source import pixels

trl = pytest.importorskip("trl")
LETTERS = "abcdefghijklmnopqrstuvwxyz "
SPECIAL = ["<pad>", "<eos>", "<unk>"]
STEPS = 4
GENERATIONS = 5
BATCH = 10


@pytest.fixture(scope="module", autouse=True)
def _offline() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: n for n, word in enumerate([*SPECIAL, *LETTERS])}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    names = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, padding_side="left", **names
    )


def model() -> Any:
    torch.manual_seed(0)
    size = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    config = transformers.LlamaConfig(
        vocab_size=len(SPECIAL) + len(LETTERS), **size, num_key_value_heads=2, max_position_embeddings=64,
        pad_token_id=0, eos_token_id=1, bos_token_id=1,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def scene() -> Any:
    noise = np.random.default_rng(0).integers(0, 256, (6, 6, 3), np.uint8)
    return np.asarray(Image.fromarray(noise).resize((96, 96), Image.Resampling.BICUBIC))


def test_a_tenth_of_failures_is_masked_and_no_number_is_made_up(tmp_path: Path) -> None:
    from datasets import Dataset

    replies = [
        json.dumps({"reasoning": "seen", "effect_score": (1, 3, 5)[n % 3]})
        for n in range(BATCH)
    ]
    replies[3] = "I would rather not."  # a tenth
    lines = [
        {"item": str(n), "rubric": "compliance", "reply": reply}
        for n, reply in enumerate(replies)
    ]
    (tmp_path / "r.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines)
    )
    expected = [
        {"1": 0.0, "3": 0.5, "5": 1.0}[str((1, 3, 5)[n % 3])] if n != 3 else None
        for n in range(BATCH)
    ]

    def render(completion: str, row: dict[str, Any]) -> Any:
        """Another tint for each completion: any change that is no blank picture."""
        assert row["instruction"]
        tensor = torch.from_numpy(scene().copy()).permute(2, 0, 1).float() / 255
        tensor[0] = (tensor[0] * (0.3 + 0.05 * (sum(map(ord, completion)) % 9))).clamp(
            0, 1
        )
        return tensor

    reward = edit_reward(
        judge=f"replay:{tmp_path / 'r.jsonl'}", rubric="compliance", output=render
    )
    given: list[list[float | None]] = []

    def watched(prompts: Any, completions: Any, **columns: Any) -> list[float | None]:
        given.append(reward(prompts, completions, **columns))
        return given[-1]

    advantages: list[Any] = []

    class Watched(trl.GRPOTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            batch = super()._generate_and_score_completions(inputs)
            advantages.append(batch["advantages"].clone())
            return batch

    Image.fromarray(scene()).save(tmp_path / "input.png")
    row = {
        "prompt": "paint it",
        "input": str(tmp_path / "input.png"),
        "instruction": "Paint it in another tint.",
    }
    arguments = trl.GRPOConfig(
        output_dir=str(tmp_path / "out"), per_device_train_batch_size=BATCH, num_generations=GENERATIONS,
        max_completion_length=6, max_steps=STEPS, logging_steps=1, report_to=[], use_cpu=True, save_strategy="no",
        disable_tqdm=True, beta=0.0, bf16=False, scale_rewards="none",
    )  # fmt: skip
    trainer = Watched(
        model=model(), reward_funcs=watched, train_dataset=Dataset.from_list([row] * 20), args=arguments,
        processing_class=tokenizer(),
    )  # fmt: skip
    trainer.train()

    assert len(given) == STEPS and all(rewards == expected for rewards in given)
    known = [value for value in expected if value is not None]
    for step, log in enumerate(
        entry for entry in trainer.state.log_history if "reward" in entry
    ):
        # a 0 in its place would show here
        assert log["reward"] == pytest.approx(sum(known) / len(known)), step
        assert math.isfinite(log["loss"])
    for batch in advantages:
        assert batch.shape == (BATCH,) and torch.isfinite(batch).all()
        assert batch[3] == 0  # no signal of the edit that has no reward
        first = [value for value in expected[:GENERATIONS] if value is not None]
        mean = sum(first) / len(first)
        for n in (0, 1, 2, 4):
            assert float(batch[n]) == pytest.approx(
                (expected[n] or 0.0) - mean, abs=1e-5
            )


def test_tensors_of_torch_are_read_as_their_arrays() -> None:
    shown = scene()
    tensor = torch.from_numpy(shown.copy()).permute(2, 0, 1)
    for given in (
        tensor,
        tensor.float() / 255,
        (tensor.float() / 255).to(torch.float16),
        tensor.permute(1, 2, 0),
    ):
        assert np.array_equal(pixels(given), shown)
    rounded = pixels((tensor.float() / 255).to(torch.bfloat16)).astype(int)
    assert np.abs(rounded - shown).max() <= 1
