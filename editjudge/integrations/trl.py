"""A reward function for TRL's trainers.

    from trl import GRPOTrainer
    from editjudge.integrations.trl import edit_reward

    reward = edit_reward(judge="openai/gpt-6.1-terra", rubric="fidelity", output=render)
    trainer = GRPOTrainer(model, reward_funcs=reward, train_dataset=edits, args=config)

The dataset has the columns `input` (the image before the edit) and `instruction`. `output` is a function that makes the
edited image from a completion, or the name of the column with edited images. The reward of a failure is None. Since
1.6.0, TRL leaves such a completion out of the advantages and the loss. Earlier versions counted it as a reward of 0,
and are refused.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Sequence
from typing import Any

from editjudge.errors import InputError
from editjudge.rewards.trainers import RewardEdit, Rewarder, column, trainer

FIRST = (1, 6, 0)
"""First version of TRL that masks None. For the rewards 1, None, 1, None, TRL 1.5.1 logs a mean of .5 and trains on
advantages of +-.87; versions 1.6.0 and 1.16.0 log 1 and train on 0."""

Output = str | Callable[..., Any]
"""Name of a column with edited images, or a function that makes an image from a completion and its row (a dict)."""


@trainer
def edit_reward(
    rewarder: Rewarder, *, output: Output = "edited"
) -> Callable[..., list[float | None]]:
    """Return a function that TRL can call with prompts, completions and columns.

    With `on_failure="native"`, the reward of a failure is None. This raises an error if the installed TRL would count
    None as 0. With `raise`, a failure raises an error. With `group_mean`, a failure gets the mean over the completions
    of the same prompt, and a warning is logged. `function.last` holds every `Reward`, with `imputed` set.
    """
    if rewarder.on_failure == "native":
        _require_masking()

    # TRL logs the function by this name.
    def edit_reward(
        prompts: Sequence[object], completions: Sequence[object], **columns: object
    ) -> list[float | None]:
        edits = edits_of(
            completions, columns, output, groups=[str(prompt) for prompt in prompts]
        )
        rewards = rewarder.settled(edits, rewarder.rewards(edits), masks=True)
        setattr(edit_reward, "last", rewards)  # noqa: B010  (mypy does not know the attribute)
        return [reward.value for reward in rewards]

    return edit_reward


def edits_of(
    completions: Sequence[object],
    columns: dict[str, object],
    output: Output,
    groups: Sequence[str] | None = None,
) -> list[RewardEdit]:
    """Return the edits in a batch from TRL or ms-swift. A batch has a list for each column."""
    count = len(completions)
    sources = column(columns, "input", count)
    instructions = column(columns, "instruction", count)
    if isinstance(output, str):
        outputs = column(columns, output, count)
    else:
        lists = {
            name: values
            for name, values in columns.items()
            if isinstance(values, list) and len(values) == count
        }
        rows = [
            {name: values[n] for name, values in lists.items()} for n in range(count)
        ]
        outputs = [
            output(completion, row)
            for completion, row in zip(completions, rows, strict=True)
        ]
    named: Sequence[str | None] = groups or [None] * count
    if "group" in columns:
        named = column(columns, "group", count)
    return [
        RewardEdit(source, edited, instruction, group)
        for source, edited, instruction, group in zip(
            sources, outputs, instructions, named, strict=True
        )
    ]


def _require_masking() -> None:
    try:
        version = importlib.metadata.version("trl")
    except importlib.metadata.PackageNotFoundError:
        raise InputError("TRL is not installed: pip install 'trl>=1.6.0'") from None
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if numbers < FIRST:
        wanted = ".".join(map(str, FIRST))
        raise InputError(
            f"TRL {version} counts a missing reward as 0. Install {wanted} or newer, which leaves it out, "
            'or pass on_failure="raise"',
            code="trainer_too_old",
        )
