"""A drop-in replacement for EditScore's `evaluate_images` that calls `editjudge serve --dialect editscore`.

EditScore's client pickles Pillow images, which the server refuses. In OmniGen2's `train.py`, replace

    from omnigen2.grpo.reward_client_edit import evaluate_images

by

    from editjudge.integrations.editscore import evaluate_images
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from editjudge.errors import JudgeError
from editjudge.media.source import encode
from editjudge.rewards.pickled import NotPlain, dumps, loads
from editjudge.rewards.trainers import NoReward

_VALUES = 100_000
"""Maximum number of values in a response. A batch of 64 has fewer than a thousand."""


def evaluate_images(
    input_images: Sequence[object],
    output_image: Sequence[object],
    meta_datas: Sequence[object],
    proxy_host: str = "127.0.0.1",
    proxy_port: int = 8427,
    server_type: str = "vlm",
    path: str = "/d/editscore/",
    timeout: float = 600.0,
) -> tuple[list[float], list[float], list[str], list[dict[str, object]]]:
    """Return scores, rewards, reasons and metadata in the order of the edits.

    For each output, `input_images` has an image or a list whose first image is the source, and `meta_datas` has a dict
    (or its JSON) that contains the `instruction`. If the server requires a token, put it in the path:
    `/t/TOKEN/d/editscore/`. Raise `NoReward` if an edit has no reward, since the trainer would use any other value as a
    reward.
    """
    sources = [
        source[0] if isinstance(source, list | tuple) else source
        for source in input_images
    ]
    request = {
        "input_images": [
            _bytes(source, f"input_images, edit {n}")
            for n, source in enumerate(sources)
        ],
        "output_image": [
            _bytes(output, f"output_image, edit {n}")
            for n, output in enumerate(output_image)
        ],
        "meta_datas": [
            described if isinstance(described, str) else json.dumps(described)
            for described in meta_datas
        ],
        "server_type": server_type,
    }
    url = f"http://{proxy_host}:{proxy_port}{path}"
    answer = _post(url, dumps(request), timeout)
    failed = [
        reason
        for reward, reason in zip(answer["rewards"], answer["reasoning"], strict=True)
        if reward is None
    ]
    if failed:
        raise NoReward(
            f"{len(failed)} of {len(output_image)} edits have no reward: {failed[0]}",
            code="no_reward",
        )
    return answer["scores"], answer["rewards"], answer["reasoning"], answer["meta_data"]


def _bytes(image: object, where: str) -> bytes | None:
    """Return the encoded image, or None if the editing model produced nothing."""
    data = encode(image, where)
    return data.read_bytes() if isinstance(data, Path) else data


def _post(url: str, body: bytes, timeout: float) -> Any:
    request = urllib.request.Request(  # noqa: S310  (http)
        url, body, {"content-type": "application/octet-stream"}
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310
            return loads(response.read(), _VALUES)
    except urllib.error.HTTPError as error:
        text = error.read()[:500].decode(errors="replace")
        raise JudgeError(
            f"the server answered with status {error.code}: {text}"
        ) from None
    except (OSError, NotPlain) as error:
        raise JudgeError(
            f"the server at {url.partition('/t/')[0]} did not send a valid answer: {error}"
        ) from None
