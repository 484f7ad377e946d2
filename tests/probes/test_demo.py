"""The demo: its edits, what it prints, and that its conclusions are true."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel

import editjudge as ej
from editjudge import manifest
from editjudge.media.image import decode
from editjudge.vision.probes import drawing
from editjudge.vision.probes.demo import (
    EDITORS,
    SHAPES,
    DemoSource,
    sources,
    still_life,
)
from editjudge.vision.probes.drawing import Pixels
from tests.running.made import editjudge

ROOT = Path(__file__).parents[2]
ABSTAINED = {
    "scale_realism",
    "spatial_relationship",
    "alignment",
    "completeness",
    "plausibility",
}


@cache
def every_source() -> list[DemoSource]:
    return list(sources())


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the demo ran, with what it printed in `printed.txt`."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, str(ROOT / "examples" / "demo.py")]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (folder / "printed.txt").write_text(done.stdout, "utf-8")
    return folder


def scores(folder: Path) -> dict[str, dict[str, list[float]]]:
    """By factor and editor, one for each source image, always in the same order."""
    rows = sorted(
        ej.open("demo", store=folder / "demo" / "editjudge.db").judgements(),
        key=lambda row: str(row["group"]),
    )
    by_factor: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        for factor, score in (row["scores"] or {}).items():
            by_factor.setdefault(factor, {model: [] for model in EDITORS})[
                str(row["model"])
            ].append(score)
    return by_factor


def preservation(folder: Path) -> dict[str, list[float]]:
    factors = ("unchanged_regions", "global_consistency", "identity_preservation")
    of_factors = scores(folder)
    return {
        model: np.mean(
            [of_factors[factor][model] for factor in factors], axis=0
        ).tolist()
        for model in EDITORS
    }


def changed(before: Pixels, after: Pixels, where: Pixels) -> float:
    """Share of a place whose colour plainly changed."""
    apart = np.linalg.norm(drawing.to_lab(before) - drawing.to_lab(after), axis=2)
    return float((apart > 12)[where[..., 0] > 0.5].mean())


def test_the_demo_has_two_dozen_source_images_with_one_instruction_each_for_every_editor(
    demo: Path,
) -> None:
    edits = list(manifest.read(demo / "demo" / "edits.jsonl"))
    per_image = Counter(edit.group for edit in edits)
    assert len(per_image) == 24
    assert set(per_image.values()) == {len(EDITORS)}
    assert len({(edit.group, edit.instruction) for edit in edits}) == 24
    assert Counter(edit.model for edit in edits) == dict.fromkeys(EDITORS, 24)


def test_every_editor_does_what_was_asked_and_leaky_alone_stains_more_than_a_few_hundredths_of_the_rest(
    demo: Path,
) -> None:
    images = {source.name: source for source in every_source()}
    stained: dict[str, list[float]] = {model: [] for model in EDITORS}
    for edit in manifest.read(demo / "demo" / "edits.jsonl"):
        source = images[str(edit.group)]
        assert isinstance(edit.edited, Path)
        after = (np.asarray(decode(edit.edited.read_bytes())) / 255).astype(np.float32)
        assert (
            changed(source.image, after, (source.mask > 0.9).astype(np.float32)) > 0.6
        ), edit.id
        rest = 1 - drawing.grown(source.mask, 12)
        stained[str(edit.model)].append(changed(source.image, after, rest))
    assert max(stained["neat"] + stained["tidy"]) < 0.06
    assert np.mean(stained["leaky"]) > 4 * np.mean(stained["neat"])


def test_the_difference_between_neat_and_leaky_is_there_and_that_between_neat_and_tidy_is_not(
    demo: Path,
) -> None:
    means = preservation(demo)
    assert ttest_rel(means["neat"], means["leaky"]).pvalue < 0.001
    assert np.mean(means["neat"]) - np.mean(means["leaky"]) > 1
    assert ttest_rel(means["neat"], means["tidy"]).pvalue > 0.2


@pytest.mark.parametrize(("other", "there"), [("leaky", True), ("tidy", False)])
def test_the_comparison_finds_what_is_there_and_claims_nothing_else(
    demo: Path, other: str, there: bool
) -> None:
    sides = ("--a", "neat", "--b", other, "--factor", "preservation")
    done = editjudge(
        "compare", "demo", *sides, "--store", demo / "demo" / "editjudge.db", "--json"
    )
    (difference,) = done.json["comparisons"]
    assert (difference["p_holm"] < 0.05) is there
    assert (difference["ci"][1] < 0) is there


def test_the_embedded_judge_rates_stained_images_above_neat_ones_on_no_factor(
    demo: Path,
) -> None:
    by_factor = scores(demo)
    assert len(by_factor) == 7 and not ABSTAINED & set(by_factor)
    for factor, by_model in by_factor.items():
        assert np.mean(by_model["leaky"]) <= np.mean(by_model["neat"]), factor
        assert np.mean(by_model["leaky"]) <= np.mean(by_model["tidy"]), factor


def test_every_command_that_the_demo_suggests_works_as_typed(demo: Path) -> None:
    end = (demo / "printed.txt").read_text("utf-8").rpartition("\nNext:")[2]
    suggested = [
        shlex.split(line, comments=True)
        for line in end.splitlines()
        if line.startswith("  ")
    ]
    assert [words[1] for words in suggested] == ["compare", "compare", "judge"]
    for words in suggested:
        done = subprocess.run(
            words, cwd=demo, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_the_same_number_draws_the_same_still_life_and_another_one_draws_another() -> (
    None
):
    first = still_life(3)
    assert np.array_equal(first[0], still_life(3)[0])
    assert not np.array_equal(first[0], still_life(4)[0])
    assert not np.array_equal(first[0], still_life(3, seed=1)[0])


@pytest.mark.parametrize("number", range(4))
def test_a_still_life_shows_three_things_that_do_not_overlap(number: int) -> None:
    _, masks = still_life(number)
    assert len(masks) == 3 and set(masks) <= set(SHAPES)
    assert all(
        mask.max() > 0.9 and 0.005 < mask.mean() < 0.2 for mask in masks.values()
    )
    assert float(sum(masks.values(), np.zeros(1)).max()) < 1.05


# --- installing -----------------------------------------------------------------------------------------------

PRETEND_PYTHON = """#!/bin/sh
echo "ran $*"
if [ "$2" = venv ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; fi
"""


@pytest.mark.parametrize("lock", ["yes", "no"])
def test_make_demo_says_what_it_does_before_every_long_step(
    tmp_path: Path, lock: str
) -> None:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    python = tmp_path / "python"
    python.write_text(PRETEND_PYTHON)
    python.chmod(0o755)
    command = ["make", "demo", f"PYTHON={python}", f"LOCK={lock}"]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MAKE")
    }
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    steps = [
        number
        for number, line in enumerate(lines)
        if line.startswith(("ran -m venv", "ran -m pip"))
    ]
    assert len(steps) == (3 if lock == "yes" else 2)
    assert all(lines[number - 1].endswith(" ...") for number in steps)
    assert lines[-1] == "ran examples/demo.py"
    again = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert again.stdout.splitlines() == ["ran examples/demo.py"]
