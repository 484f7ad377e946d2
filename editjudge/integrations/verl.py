"""A reward function for verl.

    # reward.py, for custom_reward_function.path=reward.py custom_reward_function.name=compute_score
    from editjudge.integrations.verl import edit_reward

    compute_score = edit_reward(server="http://127.0.0.1:8427", output=render)

`extra_info` of each row has `input` (the image before the edit) and `instruction`, and also `edited`, unless `output`
makes the edited image from the answer. verl cannot leave an edit out, so a failure raises an error unless `on_failure`
is "group_mean".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from editjudge.errors import InputError, UsageError
from editjudge.rewards.trainers import RewardEdit, Rewarder, trainer

_GROUPS = 4096
"""Number of groups whose rewards are remembered for `group_mean`. No training step has as many."""


@trainer
def edit_reward(
    rewarder: Rewarder,
    *,
    output: Callable[[str, Mapping[str, object]], Any] | None = None,
) -> Callable[..., Any]:
    """Return an async function `compute_score(data_source, solution_str, ground_truth, extra_info)` for one edit.

    It returns `{"score": reward, "imputed": 0 or 1}`. verl asks about one edit at a time, so `group_mean` is the mean
    of the earlier rewards in the same group (`extra_info["group"]` or, without it, the instruction). A failure raises
    an error if its group has no rewards yet.
    """
    rewarded = single(rewarder)

    async def compute_score(
        data_source: str,
        solution_str: str,
        ground_truth: object,
        extra_info: Mapping[str, object] | None = None,
        **_: object,
    ) -> dict[str, float]:
        del data_source, ground_truth  # verl passes them by name
        row = dict(extra_info or {})
        edited = output(solution_str, row) if output else required(row, "edited")
        reward: dict[str, float] = await rewarded(edit_of(row, edited))
        return reward

    return compute_score


def single(rewarder: Rewarder) -> Callable[[RewardEdit], Any]:
    """Return a function that rewards one edit at a time. Raise `UsageError` if the rewarder ranks groups."""
    if rewarder.ranking != "none":
        raise UsageError(
            f"ranking={rewarder.ranking!r}: this trainer asks about one edit at a time, without its group",
            code="no_groups",
        )
    seen: OrderedDict[str, list[float]] = OrderedDict()

    async def rewarded(edit: RewardEdit) -> dict[str, float]:
        group = edit.group_name
        (reward,) = await rewarder.arewards([edit])
        (settled,) = rewarder.settled([edit], [reward], masks=False, earlier=seen)
        if reward.value is not None:
            seen.setdefault(group, []).append(reward.value)
            seen.move_to_end(group)
            if len(seen) > _GROUPS:
                seen.popitem(last=False)
        assert settled.value is not None  # noqa: S101  (`settled` raises)
        return {"score": settled.value, "imputed": float(settled.imputed)}

    return rewarded


def edit_of(
    row: Mapping[str, object], edited: Any, instruction: str | None = None
) -> RewardEdit:
    text = row.get("instruction", instruction)
    if not isinstance(text, str):
        raise InputError('extra_info has no "instruction"')
    group = row.get("group")
    return RewardEdit(
        required(row, "input"), edited, text, None if group is None else str(group)
    )


def required(row: Mapping[str, object], name: str) -> Any:
    if row.get(name) is None:
        raise InputError(
            f'extra_info has no "{name}": expected the image; it has {sorted(map(str, row))}',
            code="missing_field",
        )
    return row[name]
