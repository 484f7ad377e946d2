"""Figures by training step: a policy that begins to cheat is noticed, and a steady one is not."""

from __future__ import annotations

import io
import random
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter

from editjudge.edit import Edit
from editjudge.rewards.protocol import Terms
from editjudge.rewards.steps import FIRST_STEPS, MARGINS, StepFigures, figures_of
from tests.measured.made import photograph
from tests.running.made import stub, until
from tests.web.served import base64_of, edit, serving


def encoded(pixels: np.ndarray) -> bytes:
    data = io.BytesIO()
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(data, "PNG")
    return data.getvalue()


def figures(edited: np.ndarray) -> dict[str, float]:
    before = photograph(1).astype(float)
    measured = figures_of(Edit("e", encoded(before), encoded(edited), "Do it."))
    assert measured is not None
    return measured


def test_each_figure_moves_with_its_own_hack() -> None:
    before = photograph(1).astype(float)
    same = figures(before)
    assert same["unchanged"] == 1 and same["change"] == same["saturation"] == 0
    gray = before.mean(axis=2, keepdims=True)
    assert figures(gray + 1.6 * (before - gray))["saturation"] > 0.05
    soft = Image.fromarray(before.astype(np.uint8)).filter(ImageFilter.GaussianBlur(3))
    assert figures(np.asarray(soft, float))["sharpness"] < -0.3
    grid = before.copy()
    grid[::8] += 20
    grid[:, ::8] += 20
    assert figures(grid)["grid"] > same["grid"] + 0.3
    assert figures(255 - before)["change"] > 0.1
    assert figures(255 - before)["unchanged"] == 0


@pytest.mark.parametrize("edited", [None, b"", b"no image"])
def test_an_image_that_cannot_be_read_has_no_figures(edited: bytes | None) -> None:
    assert figures_of(Edit("e", encoded(photograph(1)), edited, "Do it.")) is None


def training(seed: int, steps: int, *, drift: float = 0.0) -> StepFigures:
    chance = random.Random(seed)
    watched = StepFigures()
    for step in range(steps):
        for group in range(12):
            moved = drift if step >= FIRST_STEPS + 5 else 0.0
            for _ in range(4):
                values = {name: chance.gauss(0.2, MARGINS[name]) for name in MARGINS}
                values["saturation"] += moved
                watched.note(step, f"g{group}", values)
    return watched


def test_a_policy_that_begins_to_oversaturate_is_noticed() -> None:
    watched = training(0, 30, drift=0.2)
    assert watched.alarms.keys() == {"saturation"}
    assert watched.alarms["saturation"].step == FIRST_STEPS + 5


def test_a_steady_policy_raises_no_alarm_over_a_long_training() -> None:
    assert sum(bool(training(seed, 60).alarms) for seed in range(20)) <= 2


def test_few_groups_are_not_compared() -> None:
    watched = StepFigures()
    for step in range(10):
        for group in range(3):
            watched.note(step, f"g{group}", dict.fromkeys(MARGINS, float(step > 5)))
    assert watched.alarms == {}


def test_an_edit_of_an_earlier_step_is_counted_and_left_out() -> None:
    watched = StepFigures()
    watched.note(5, "g", dict.fromkeys(MARGINS, 0.0))
    watched.note(4, "g", dict.fromkeys(MARGINS, 9.0))
    assert watched.late == 1
    assert watched.gauges()["step_change"][1] == 0.0


def test_a_request_with_a_step_has_its_outputs_measured(tmp_path: Path) -> None:
    terms = Terms(rubrics=("compliance",), more_rubrics=())
    image = base64_of(encoded(photograph(1)))
    with stub(), serving(tmp_path / "s.db", terms=terms) as served:
        served.rewards(edit(0, input=image, edited=image))
        assert "editjudge_step" not in served.client.get(f"{served.url}/metrics").text
        served.rewards(edit(0, input=image, edited=image), step=7)

        def metrics() -> str:
            return served.client.get(f"{served.url}/metrics").text

        until(lambda: "editjudge_step_unchanged 1" in metrics())
        assert "editjudge_step 7" in metrics()
        health = served.client.get(f"{served.url}/healthz").json()
        assert health["steps"] == {"step": 7.0, "alarms": {}}
        refused = served.post("reward", {"edits": [edit(0)], "step": -1})
        assert refused.status_code == 422
