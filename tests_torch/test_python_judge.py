"""The example of a torch scorer as a judge: one load, batches, decimal scores on a rubric of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.running.made import edits, run

EXAMPLES = Path(__file__).parents[1] / "examples" / "judges"


def test_the_torch_example_scores_every_edit_as_the_model_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = edits(tmp_path, 20)
    monkeypatch.chdir(EXAMPLES)
    done = run(
        manifest,
        tmp_path / "a.db",
        judges=("python:torch_scorer:score",),
        rubrics=("appeal.yaml",),
    )
    assert done.statuses() == {"ok": 20}

    monkeypatch.syspath_prepend(str(EXAMPLES))
    import torch_scorer
    from PIL import Image

    images = {
        role: Image.open(tmp_path / f"{role}-0.png").convert("RGB")
        for role in ("input", "edited")
    }
    with torch.inference_mode():
        answer = torch_scorer.Scorer()(images=images)["appeal"]
    assert done.row("e0")["scores"]["appeal"] == pytest.approx(float(answer), abs=1e-5)
