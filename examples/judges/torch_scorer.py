"""A judge that is a torch model with a head: one load, batches of eight, decimal scores.

    cd examples/judges && editjudge run ../edits.jsonl --judge python:torch_scorer:score --rubric appeal.yaml

Put your checkpoint in the place of the random weights. `appeal.yaml` is a rubric whose factor takes any number from 0 to 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

SIDE = 64


class EditScorer(nn.Module):
    """Input and output side by side, a few convolutions, and a head with one number."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(6, 8, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        )
        self.head = nn.Linear(8, 1)

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.head(self.trunk(pairs).flatten(1))).squeeze(1)


class Scorer:
    """The loaded model."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = EditScorer().eval()  # .load_state_dict(torch.load("head.pt"))

    def __call__(self, **call: Any) -> dict[str, Any]:
        return self.batch([call])[0]

    @torch.inference_mode()
    def batch(self, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        pairs = torch.stack([_pair(call["images"]) for call in calls])
        return [{"appeal": value} for value in self.model(pairs)]


def _pair(images: dict[str, Image.Image]) -> torch.Tensor:
    sides = [images[role].resize((SIDE, SIDE)) for role in ("input", "edited")]
    pixels = np.concatenate([np.asarray(side) for side in sides], axis=2)
    return torch.from_numpy(pixels).permute(2, 0, 1) / 255


class score:  # noqa: N801  (named as the judge is)
    """What editjudge finds: a version, a factory, and that calls may come in batches."""

    version = "random weights 0"
    load = Scorer
    batch = Scorer.batch
    batch_size = 8
