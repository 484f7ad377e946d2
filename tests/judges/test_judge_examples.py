"""The complete examples of judges of the user's own, run as their first lines say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.running.made import edits, run

EXAMPLES = Path(__file__).parents[2] / "examples" / "judges"


def test_the_pure_function_scores_every_edit_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLES)
    done = run(
        edits(tmp_path, 3),
        tmp_path / "a.db",
        judges=("python:sharpness:score",),
        rubrics=("quality",),
    )
    assert done.statuses() == {"ok": 3}
    assert "detail" in done.row("e0")["justifications"]["seamlessness"]
