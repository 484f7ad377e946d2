"""A reward function for verl-omni's visual reward manager.

    # reward.py, for reward.custom_reward_function.path=reward.py reward.custom_reward_function.name=compute_score
    from editjudge.integrations.verl_omni import edit_reward

    compute_score = edit_reward(server="http://127.0.0.1:8427")

The edited image is the model's own output (`solution_image`, uint8, channels x height x width). `extra_info` of each
row has `input`, the image before the edit; the instruction is `extra_info["instruction"]` or, without it,
`ground_truth`, in which verl-omni keeps the prompt. A failure raises an error unless `on_failure` is "group_mean", as
with verl.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from editjudge.integrations.verl import edit_of, single
from editjudge.rewards.trainers import Rewarder, trainer


@trainer
def edit_reward(rewarder: Rewarder) -> Callable[..., Any]:
    """Return an async function `compute_score(data_source, solution_image, ground_truth, extra_info)` for one edit.

    Its result has the same form as that in `editjudge.integrations.verl`.
    """
    rewarded = single(rewarder)

    async def compute_score(
        data_source: str,
        solution_image: Any,
        ground_truth: object,
        extra_info: Mapping[str, object] | None = None,
        **_: object,
    ) -> dict[str, float]:
        del data_source  # verl-omni passes it by name
        if getattr(solution_image, "ndim", 3) == 4:  # a batch of one
            solution_image = solution_image[0]
        prompt = ground_truth if isinstance(ground_truth, str) else None
        result: dict[str, float] = await rewarded(
            edit_of(dict(extra_info or {}), solution_image, prompt)
        )
        return result

    return compute_score
