"""The batteries draw what they say: lights that leave the content, changes of content, and text with known faults."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest

from bench import lettering_cases, lighting_cases
from bench.batteries import answer
from tests.measured.made import photograph


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder like the data, with eight photographs."""
    rows = []
    for number in range(8):
        name = f"sample_{number}_1.png"
        image = np.roll(photograph(number), 40 * number, axis=1)
        cv2.imwrite(str(tmp_path / name), image[:200, :260, ::-1])
        rows.append(json.dumps({"input": f"../{name}"}))
    for folder in lighting_cases.FOLDERS:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "manifest.jsonl").write_text("\n".join(rows))
    return tmp_path


def test_no_photograph_is_in_both_halves(data: Path) -> None:
    develop, report = (
        lighting_cases.photographs(data, half) for half in lighting_cases.HALVES
    )
    assert develop and report
    assert not {*develop} & {*report}
    assert len(develop) + len(report) == 8


def test_lights_leave_the_content_and_changes_of_content_are_visible(
    data: Path,
) -> None:
    kinds: Counter[bool] = Counter()
    for case in lighting_cases.cases(data, "develop", 1):
        kinds[case.preserved] += 1
        changed = np.abs(case.content.astype(int) - case.before).max()
        assert (changed == 0) == case.preserved, case.kind
        assert not np.array_equal(case.after, case.before), case.kind
    assert kinds[True] == len(lighting_cases.LIGHTS)
    assert kinds[False] > 3 * len(lighting_cases.CONTENTS)


def test_every_lettering_case_changes_the_page_and_half_the_kinds_have_a_fault(
    data: Path,
) -> None:
    good: Counter[bool] = Counter()
    for case in lettering_cases.cases(data, "report", 1):
        good[case.as_asked] += 1
        assert not np.array_equal(case.before, case.after), case.kind
        assert case.as_asked == case.kind.startswith("exact"), case.kind
    assert good.total() == len(lettering_cases.KINDS)


def test_an_abstention_is_neither_right_nor_wrong() -> None:
    assert answer(None, True) == "abstained"
    assert answer(True, True) == answer(False, False) == "right"
    assert answer(True, False) == answer(False, True) == "wrong"
