"""A reward plug-in for ms-swift.

    # plugin.py, for swift rlhf --external_plugins plugin.py --reward_funcs edit_reward
    from swift.rewards import orms
    from editjudge.integrations.swift import edit_reward

    orms["edit_reward"] = edit_reward(judge="openai/gpt-6.1-terra", rubric="fidelity", output=render)

The dataset has the columns `input` and `instruction`, as for `editjudge.integrations.trl`. ms-swift adds up the rewards
of a completion and counts a missing one as 0 (with `nansum`, at least up to version 4.6). Therefore a failure raises an
error unless `on_failure` is "group_mean".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from editjudge.errors import InputError
from editjudge.integrations.trl import Output, edits_of
from editjudge.rewards.trainers import Rewarder, trainer


@trainer
def edit_reward(rewarder: Rewarder, *, output: Output = "edited") -> type:
    """Return a subclass of `AsyncORM` to register in `orms`.

    `native` is the same as `raise`, since ms-swift cannot leave an edit out. With `group_mean`, the instance's
    attribute `last` holds every `Reward`, with `imputed` set.
    """
    try:
        from swift.rewards import AsyncORM  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise InputError(
            f"ms-swift is not installed ({error}): pip install 'ms-swift>=4.0'",
            code="not_installed",
        ) from None

    class EditReward(AsyncORM):  # type: ignore[misc,unused-ignore]
        async def __call__(
            self, completions: Sequence[object], **columns: Any
        ) -> list[float | None]:
            # The group of a completion in ms-swift.
            prompts = columns.get("prompt_id")
            edits = edits_of(
                completions,
                columns,
                output,
                groups=[str(prompt) for prompt in prompts] if prompts else None,
            )
            rewards = await rewarder.arewards(edits)
            self.last = rewarder.settled(edits, rewards, masks=False)
            return [reward.value for reward in self.last]

    return EditReward
