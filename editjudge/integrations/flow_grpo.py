"""A reward function for flow_grpo, and for Edit-R1, which is based on it.

    # in flow_grpo/rewards.py, beside the others
    from editjudge.integrations.flow_grpo import edit_reward

    score_functions = {..., "editjudge": lambda: edit_reward(server="http://127.0.0.1:8427")}

`images` is a tensor N x C x H x W from 0 to 1, or an array N x H x W x C of uint8; `prompts` are the instructions.
Source images are passed as `ref_images`, or as `input` in each entry of the metadata. flow_grpo cannot leave an edit
out, so a failure raises an error. With `on_failure="group_mean"`, it gets the mean over the edits with the same prompt
instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from editjudge.errors import InputError
from editjudge.media.source import split
from editjudge.rewards.trainers import RewardEdit, Rewarder, trainer


@trainer
def edit_reward(
    rewarder: Rewarder, *, sources_first: bool = False
) -> Callable[..., tuple[list[float], dict[str, object]]]:
    """Return a function that computes rewards. Its result is the scores and `{"imputed": [bool, ...]}`.

    Its signature is `_fn(images, prompts, metadata, ref_images=None)`. With `sources_first` it is `_fn(ref_images,
    images, prompts, metadata)`, as Edit-R1 calls its `mllm_...` functions.
    """

    def _fn(
        images: Any, prompts: Sequence[str], metadata: Any, ref_images: Any = None
    ) -> tuple[list[float], dict[str, object]]:
        outputs = split(images)
        instructions = list(prompts)
        sources = (
            split(ref_images)
            if ref_images is not None
            else _in_metadata(metadata, len(outputs))
        )
        for name, values in (("prompts", instructions), ("ref_images", sources)):
            if len(values) != len(outputs):
                raise InputError(
                    f"{name}: {len(values)} entries for {len(outputs)} images"
                )
        edits = [
            RewardEdit(source, output, str(instruction))
            for source, output, instruction in zip(
                sources, outputs, instructions, strict=True
            )
        ]
        rewards = rewarder.settled(edits, rewarder.rewards(edits), masks=False)
        numbers = [reward.value for reward in rewards if reward.value is not None]
        return numbers, {"imputed": [reward.imputed for reward in rewards]}

    def _fn_with_sources(
        ref_images: Any, images: Any, prompts: Sequence[str], metadata: Any
    ) -> Any:
        return _fn(images, prompts, metadata, ref_images)

    return _fn_with_sources if sources_first else _fn


def _in_metadata(metadata: Any, count: int) -> list[Any]:
    rows = list(metadata) if isinstance(metadata, list | tuple) else []
    sources = [row.get("input") for row in rows if isinstance(row, Mapping)]
    if len(sources) != count or any(source is None for source in sources):
        raise InputError(
            'there are no source images: expected ref_images, or an "input" in each entry of the metadata',
            code="no_source_images",
        )
    return sources
