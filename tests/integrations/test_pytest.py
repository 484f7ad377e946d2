"""`assert_edit`: fails for evidence, not for noise, and never passes what was not seen."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from editjudge.errors import UsageError
from editjudge.integrations import pytest as testing
from editjudge.integrations.pytest import assert_edit
from editjudge.judgement import Judgement
from tests.faults import raises


def judged(monkeypatch: pytest.MonkeyPatch, scores: Iterator[int | None]) -> list[None]:
    """A judge that says these of `alignment`, one each time it is asked; None is a reply that could not be read."""
    asked: list[None] = []

    def judge(**_: Any) -> dict[str, Judgement]:
        asked.append(None)
        score = next(scores)
        if score is None:
            return {
                "fidelity": Judgement("key", "invalid", "openai/x", "fidelity", "hash")
            }
        said = {"alignment": score}
        return {
            "fidelity": Judgement(
                "key",
                "ok",
                "openai/x",
                "fidelity",
                "hash",
                scores=said,
                justifications={},
            )
        }

    monkeypatch.setattr(testing, "judge", judge)
    return asked


def assert_alignment(least: float) -> None:
    assert_edit(at_least={"alignment": least}, judge="openai/x")


def test_an_edit_that_is_good_enough_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = judged(monkeypatch, itertools.repeat(6))
    assert_alignment(5)
    assert len(asked) == 3


def test_an_edit_that_is_worse_fails_with_factor_and_scores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged(monkeypatch, itertools.repeat(2))
    with pytest.raises(AssertionError, match=r"alignment: mean 2.00 of 5 answers.* 5$"):
        assert_alignment(5)


def test_a_judge_in_two_minds_is_asked_again_and_then_only_warns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = judged(monkeypatch, itertools.cycle([6, 3, 5]))
    with pytest.warns(UserWarning, match="alignment.* below 5"):
        assert_alignment(5)
    assert len(asked) == 5


def test_an_edit_that_could_not_be_judged_does_not_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged(monkeypatch, itertools.repeat(None))
    with pytest.raises(AssertionError, match="invalid"):
        assert_alignment(1)


def test_a_factor_that_does_not_exist_is_a_mistake_of_the_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged(monkeypatch, itertools.repeat(7))
    with raises(UsageError, "unknown_factor", "alignment"):
        assert_edit(at_least={"aligment": 3}, judge="openai/x")


def test_the_embedded_judge_is_asked_once_and_what_it_abstains_from_does_not_pass(
    tmp_path: Path,
) -> None:
    picture = Image.effect_mandelbrot((160, 160), (-2.0, -1.5, 1.0, 1.5), 60).convert(
        "RGB"
    )
    picture.save(tmp_path / "a.png")
    ImageDraw.Draw(picture).ellipse((50, 50, 90, 90), fill=(200, 40, 40))
    picture.save(tmp_path / "b.png")
    edit: dict[str, Any] = {
        "input": tmp_path / "a.png",
        "edited": tmp_path / "b.png",
        "instruction": "add a ball",
        "judge": "measured",
    }
    assert_edit(at_least={"unchanged_regions": 5}, **edit)
    with pytest.raises(AssertionError, match="abstained"):
        assert_edit(at_least={"scale_realism": 1}, **edit)


@pytest.mark.parametrize("low", [1, 4, 5])
def test_a_judge_on_its_threshold_hardly_ever_fails(
    monkeypatch: pytest.MonkeyPatch, low: int
) -> None:
    """The low score and 7 with even chances, held against their mean: all low is one time in 32."""
    rng = random.Random(3)
    failed = 0
    runs = 300
    for _ in range(runs):
        judged(monkeypatch, (rng.choice((low, 7)) for _ in itertools.count()))
        try:
            with warnings.catch_warnings(action="ignore"):
                assert_alignment((low + 7) / 2)
        except AssertionError:
            failed += 1
    assert failed / runs <= 0.05
