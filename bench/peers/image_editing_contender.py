"""DeepEval's own metric for edits, `ImageEditingMetric`: run by the Python of .venvs/deepeval.

As bench/peers/deepeval_contender.py, with the metric's own words and scores in the place of ours. It asks two questions
an edit at once, so that 64 test cases are 128 requests; the stub says the same two scores to both. What the metric
read is in its verbose log. An edit is known by its edited picture, the one thing that both questions carry.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.peers import Asked, Scores, compete
from bench.peers.deepeval_contender import evaluated


def judge(asked: list[Asked], url: str, patient: bool) -> Mapping[str, Scores]:
    def metric(model: Any) -> Any:
        from deepeval.metrics import ImageEditingMetric  # type: ignore[import-not-found]  # in the peer's venv

        return ImageEditingMetric(model=model)

    return {
        name: both
        for name, data in evaluated(asked, url, patient, metric)
        if (both := scores(data.verbose_logs))
    }


def scores(log: str) -> Scores:
    """Two of each question, which are the same two where it read what was said."""
    first, second = (
        json.loads(found) for found in re.findall(r"Scores:\s*(\[.*?\])", log)
    )
    return (
        dict(zip(("first", "second"), first, strict=True))
        if first == second
        else {"first": -1}
    )


def ask(manifest: Path) -> list[Asked]:
    edits = [json.loads(line) for line in manifest.read_text().splitlines()]
    pictures = [
        (manifest.parent / edit["input"], manifest.parent / edit["edited"])
        for edit in edits
    ]
    keys = [
        hashlib.sha256(base64.b64encode(after.read_bytes())).hexdigest()
        for _, after in pictures
    ]
    return [
        Asked(key, edit["instruction"], both)
        for key, edit, both in zip(keys, edits, pictures, strict=True)
    ]


if __name__ == "__main__":
    compete(judge, ("deepeval", "deepeval.metrics", "deepeval.models", "openai"), ask)
