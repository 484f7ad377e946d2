"""The probe set: the same for the same seed, one defect at a time, rising with the dose."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import pytest

from editjudge import manifest
from editjudge.edit import IMAGE_ROLES
from editjudge.media.image import decode
from editjudge.rubrics.files import load, names
from editjudge.vision.measured import calibration
from editjudge.vision.measured.assess import Subject, assess
from editjudge.vision.probes import drawing
from editjudge.vision.probes.defects import FAMILIES, Defect, ProbeScene
from editjudge.vision.probes.drawing import NAMES, Pixels, photograph
from editjudge.vision.probes.making import MANIFESTS, Probe, probes, write_manifests

from .made import one_photograph

PHOTOGRAPHS = range(len(NAMES))


@cache
def scene(index: int, seed: int = 0) -> ProbeScene:
    return ProbeScene(photograph(index, seed), index, seed)


def apart(a: Pixels, b: Pixels) -> float:
    """Mean colour difference in Lab."""
    return float(np.linalg.norm(drawing.to_lab(a) - drawing.to_lab(b), axis=2).mean())


def test_the_same_seed_makes_the_same_bytes() -> None:
    again = list(probes(1))
    assert [probe.edit for probe in again] == [probe.edit for probe in one_photograph()]


def test_another_seed_and_a_second_round_make_other_pictures_of_the_same_photograph() -> (
    None
):
    first = scene(0)
    seeded = scene(0, seed=3)
    later = scene(len(NAMES))
    assert first.photograph.name == seeded.photograph.name == later.photograph.name
    shapes = {drawing.png(one.image) for one in (first, seeded, later)}
    assert len(shapes) == 3


def test_every_probe_has_an_id_of_its_own_and_its_photograph_as_group() -> None:
    ids = Counter(probe.edit.id for probe in one_photograph())
    assert max(ids.values()) == 1
    assert {probe.edit.group for probe in one_photograph()} == {NAMES[0]}


@pytest.mark.parametrize("index", PHOTOGRAPHS)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_dose_changes_more_than_the_one_before(family: Defect, index: int) -> None:
    one = scene(index)
    clean = one.clean(family.base)
    far = [apart(clean, family.make(one, clean, dose)) for dose in family.doses]
    # how far away, and how many letters, says little to pixels
    if family.name in ("misplaced", "misspelt"):
        assert min(far) > 0.02
    else:
        assert far == sorted(far) and far[0] > 0 and far[-1] > 1.3 * far[0], far


@pytest.mark.parametrize("index", range(len(NAMES), 2 * len(NAMES)))
def test_every_defect_can_be_made_of_a_cropped_photograph(index: int) -> None:
    one = scene(index, seed=1)
    for family in FAMILIES:
        clean = one.clean(family.base)
        worst = family.make(one, clean, family.doses[-1])
        assert (
            worst.shape == clean.shape
            and worst.dtype == clean.dtype
            and apart(clean, worst) > 0.02
        ), family.name


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_factor_of_a_family_is_one_that_its_probes_are_asked(
    family: Defect,
) -> None:
    asked = {f.key for probe in one_photograph() if probe.family == family.name for r in probe.rubrics
             for f in load(r).factors}  # fmt: skip
    assert {*family.factors, *family.also} <= asked
    assert not set(family.factors) & set(family.also)


def test_every_factor_of_the_online_rubrics_has_a_defect() -> None:
    covered = {factor for family in FAMILIES for factor in family.factors}
    assert {
        f.key
        for r in ("preservation", "quality", "fidelity", "compliance")
        for f in load(r).factors
    } == covered


@pytest.mark.parametrize("index", PHOTOGRAPHS)
def test_a_clean_edit_changes_a_part_and_nothing_else(index: int) -> None:
    one = scene(index)
    for base in ("recolour", "add", "text"):
        clean = one.clean(base)
        changed = np.abs(clean - one.image).max(axis=2) > 1 / 255
        assert 0.002 < changed.mean() < 0.25, base
        outside = cv2.dilate(changed.astype(np.uint8), np.ones((31, 31), np.uint8)) == 0
        assert outside.mean() > 0.4 and np.array_equal(
            clean[outside], one.image[outside]
        )


@pytest.mark.parametrize("index", PHOTOGRAPHS)
def test_defects_of_the_target_leave_the_rest_alone_and_leaks_leave_the_target_alone(
    index: int,
) -> None:
    one = scene(index)
    made = {family.name: family for family in FAMILIES}
    clean = one.clean("recolour")
    inside = one.region(clean, soft=0)[..., 0] > 0
    outside = one.region(clean, 12, soft=0)[..., 0] == 0
    for name in ("smeared", "noisy", "relit", "seamed"):
        worst = made[name].make(one, clean, made[name].doses[-1])
        assert np.array_equal(worst[outside], clean[outside]), name
    leak = made["leak"].make(one, clean, 0.4)
    assert (
        np.abs(leak - clean)[inside].mean() < 0.1 * np.abs(leak - clean)[outside].mean()
    )


def test_controls_are_what_they_are_called() -> None:
    by_name = {probe.control: probe.edit for probe in one_photograph()}
    assert by_name["no-op"].edited == by_name["no-op"].input
    assert by_name["swapped"].input == by_name["clean recolour"].edited
    assert by_name["swapped"].edited == by_name["clean recolour"].input
    assert by_name["clean recolour"].edited == by_name["clean recolour"].ground_truth
    assert by_name["arrow, light only"].input != by_name["light only"].input
    assert by_name["arrow, light only"].edited == by_name["light only"].edited


NO_EDITS = {
    "black": "flat",
    "nearly black": "near_flat",
    "noise": "noise",
    "another picture": "unrelated",
    "tiles": "tile",
    "thumbnail": "upscaled",
    "partly blank": "partly_blank",
    "too small": "thumbnail",
    "mirrored": "mirrored",
    "no-op": "unchanged",
}


@pytest.mark.parametrize(("control", "kind"), NO_EDITS.items())
def test_an_output_that_is_no_edit_is_a_control_that_the_embedded_judge_passes(
    control: str, kind: str
) -> None:
    probe = next(probe for probe in one_photograph() if probe.control == control)
    pictures = {
        role: np.asarray(decode(getattr(probe.edit, role)))
        for role in ("input", "edited")
    }
    subject = Subject(pictures, probe.edit.instruction)
    assert subject.degenerate is not None and subject.degenerate.kind == kind
    checked = 0
    for rubric in ("preservation", "quality", "fidelity", "compliance"):
        for factor, score in assess(
            load(rubric), subject, calibration.load()
        ).scores.items():
            least, most = probe.expected.get(f"{rubric}.{factor}", (score, score))
            assert least <= score <= most, factor
            checked += f"{rubric}.{factor}" in probe.expected
    assert checked


def test_black_that_was_requested_costs_no_score() -> None:
    probe = next(
        probe for probe in one_photograph() if probe.control == "black as requested"
    )
    pictures = {
        role: np.asarray(decode(getattr(probe.edit, role)))
        for role in ("input", "edited")
    }
    subject = Subject(pictures, probe.edit.instruction)
    for rubric in ("preservation", "quality", "fidelity", "compliance"):
        assert not assess(load(rubric), subject, calibration.load()).scores


def test_what_is_expected_can_be_said() -> None:
    for probe in one_photograph():
        for place, (least, most) in probe.expected.items():
            rubric, _, factor = place.partition(".")
            assert rubric in probe.rubrics
            assert {least, most} <= set(load(rubric).factor(factor).scale.values)


def test_an_attempt_differs_from_its_twin_in_words_alone() -> None:
    by_id = {probe.edit.id: probe for probe in one_photograph()}
    attempts = [probe for probe in one_photograph() if probe.twin]
    assert len(attempts) == 4
    for probe in attempts:
        twin = by_id[probe.twin].edit
        if probe.control.startswith("instruction"):
            assert (
                replace(
                    probe.edit,
                    id=twin.id,
                    instruction=twin.instruction,
                    metadata=twin.metadata,
                )
                == twin
            )
        else:
            assert (
                probe.edit.instruction == twin.instruction
                and probe.edit.edited != twin.edited
            )
            assert isinstance(probe.edit.edited, bytes) and isinstance(
                twin.edited, bytes
            )
            a, b = (
                np.asarray(decode(data)) for data in (probe.edit.edited, twin.edited)
            )
            assert np.array_equal(a[: int(0.8 * len(a))], b[: int(0.8 * len(b))])


def test_rubrics_that_nobody_asks_about_cost_no_pictures() -> None:
    assert {probe.rubrics for probe in probes(1, about={"lighting"})} == {("lighting",)}
    about_effect = {probe.family for probe in probes(1, about={"compliance"})}
    assert "off_colour" in about_effect and "leak" not in about_effect


def test_a_set_on_disk_is_a_manifest_like_any_other(tmp_path: Path) -> None:
    chosen = [
        probe for probe in one_photograph() if probe.family in ("leak", "control")
    ]
    kept = write_manifests(chosen, tmp_path)
    assert all(
        getattr(probe.edit, role) is None for probe in kept for role in IMAGE_ROLES
    )
    read: dict[str, Probe] = {probe.edit.id: probe for probe in chosen}
    for plate, name in MANIFESTS.items():
        edits = list(manifest.read(tmp_path / f"{name}.jsonl"))
        assert {edit.id for edit in edits} == {
            p.edit.id for p in chosen if p.rubrics == plate
        }
        for edit in edits:
            source = read[edit.id]
            assert (
                isinstance(edit.edited, Path)
                and edit.edited.read_bytes() == source.edit.edited
            )
            assert (
                edit.metadata["family"] == source.family
                and edit.instruction == source.edit.instruction
            )
    rows = [
        json.loads(line)
        for line in (tmp_path / "probe-light.jsonl").read_text().splitlines()
    ]
    assert rows[0]["expected"] == {"lighting.Contextual_Preservation": [1, 1]}


def test_the_rubrics_that_are_asked_exist() -> None:
    assert {rubric for plate in MANIFESTS for rubric in plate} <= set(names())
