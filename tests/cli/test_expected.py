"""Expected scores of a judge that computes: `--use expected` takes them without token probabilities."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .stores import Call, Spec, call, made, quality

__all__ = ["call"]


def halfway(model: str, n: int, judge: str, factor: str, repeat: int) -> int | None:
    """Scores of `quality` below the best, so that a quarter fits above; every seventh edit has none."""
    return None if n % 7 == 0 else min(6, quality(model, n, judge, factor, repeat))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    spec = Spec(judges=("measured",), rubrics=("quality",), rounded_by=0.25)
    return made(tmp_path / "s.db", spec, halfway)


def means(call: Call, store: Path, use: str) -> dict[tuple[str, str], float | None]:
    words = ("report", "r", "--store", store, "--format", "json", "--use", use)
    document = call(*words).document
    return {
        (cell["model"], cell["factor"]): cell["mean"]
        for cell in document["factors"]
        if cell["model"] and cell["factor"] == "seamlessness"
    }


def test_report_and_compare_take_the_unrounded_scores(call: Call, store: Path) -> None:
    written = means(call, store, "scores")
    expected = means(call, store, "expected")
    assert len(written) == 2
    for cell, mean in written.items():
        assert mean is not None and expected[cell] == pytest.approx(mean + 0.25)
    compared = call(
        "compare", "r", "--store", store, "--json", "--use", "expected"
    ).document
    assert compared["of"] == "expected"


def test_agreement_is_of_the_unrounded_scores(
    call: Call, store: Path, tmp_path: Path
) -> None:
    ratings = tmp_path / "ratings.csv"
    lines = ["item,rater,factor,score"]
    for model in ("good", "poor"):
        for n in range(24):
            score = quality(model, n, "measured", "seamlessness", 0)
            lines.append(f"{model}-{n},p,seamlessness,{min(6, score)}")
    ratings.write_text("\n".join(lines) + "\n")
    arguments = (
        "agree",
        "r",
        "--ratings",
        ratings,
        "--store",
        store,
        "--json",
        "--use",
    )
    errors = [
        call(*arguments, use).document["factors"]["seamlessness"]["measured"]["mae"]
        for use in ("scores", "expected")
    ]
    assert errors == [pytest.approx(0), pytest.approx(0.25)]


def test_an_export_with_unrounded_scores_can_be_imported(
    call: Call, store: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    assert (
        call("export", "r", "--store", store, "-o", folder, "--format", "jsonl").code
        == 0
    )
    rows = [
        json.loads(line)
        for line in (folder / "judgements.jsonl").read_text().splitlines()
    ]
    scored = next(row for row in rows if row["scores"])
    assert scored["mass"] == {} and scored["expected"] == {
        key: score + 0.25 for key, score in scored["scores"].items()
    }
    other = tmp_path / "other.db"
    assert call("import-run", folder, "--store", other).code == 0
    assert means(call, other, "expected") == means(call, store, "expected")
