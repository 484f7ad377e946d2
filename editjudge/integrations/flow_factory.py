"""A reward model for Flow-Factory that sends the source image to `editjudge serve --dialect flow-factory`.

    rewards:
      - name: "edit"
        reward_model: "editjudge.integrations.flow_factory.EditRewardModel"
        server_url: "http://127.0.0.1:8427"

Flow-Factory passes only the fields that a reward model requires. Its own remote model does not require the condition
images, so it would not receive the source image.
"""

from __future__ import annotations

from typing import Any

from editjudge.errors import InputError


def __getattr__(name: str) -> Any:
    """Create `EditRewardModel` on first use, since its base class is part of Flow-Factory."""
    if name != "EditRewardModel":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from flow_factory.rewards.my_reward_remote import (  # type: ignore[import-not-found,unused-ignore]
            RemotePointwiseRewardModel,
        )
    except ImportError as error:
        raise InputError(
            f"Flow-Factory is not installed in this environment: {error}"
        ) from None
    fields = ("prompt", "image", "condition_images")
    return type(
        name,
        (RemotePointwiseRewardModel,),
        {"required_fields": fields, "__module__": __name__},
    )
