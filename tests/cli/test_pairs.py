"""`editjudge pairs`: pairs of edits that share input and instruction."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.faults import check_error, shows
from tests.running.made import editjudge, picture, rows_of

MODELS = ("ann", "bob", "cat")


def manifest(
    folder: Path, models: tuple[str, ...] = MODELS, sources: int = 4, **more: Any
) -> Path:
    """Every model's edit of every source; each model keeps a copy of the input under a name of its own."""
    rows = []
    for source in range(sources):
        for model in models:
            for name, content in (
                (f"in-{model}", ("in", source)),
                (f"out-{model}", (model, source)),
            ):
                (folder / f"{name}-{source}.png").write_bytes(picture(*content))
            rows.append({
                "id": f"{model}-{source}", "input": f"in-{model}-{source}.png", "edited": f"out-{model}-{source}.png",
                "instruction": f"do {source}", "model": model, "edit_type": "add", "note": model, **more,
            })  # fmt: skip
    path = folder / "edits.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def made(folder: Path, *words: object, code: int = 0) -> list[dict[str, Any]]:
    done = editjudge(
        "pairs", folder / "edits.jsonl", "-o", folder / "pairs.jsonl", *words
    )
    assert done.code == code, done.err
    return rows_of(folder / "pairs.jsonl")


def models_of(row: dict[str, Any]) -> tuple[str, str]:
    return row["model_a"], row["model_b"]


def test_all_pairs_share_input_by_content_and_instruction(tmp_path: Path) -> None:
    manifest(tmp_path)
    rows = made(tmp_path)
    assert len(rows) == 4 * 3 and len({row["id"] for row in rows}) == 12
    for row in rows:
        a, b = row["id"].split("|")
        assert (
            a.rpartition("-")[2]
            == b.rpartition("-")[2]
            == row["instruction"].split()[1]
        )
        assert (
            a.startswith(row["model_a"])
            and b.startswith(row["model_b"])
            and row["edit_type"] == "add"
        )
        assert row["edited_a"] == f"out-{a}.png" and row["edited_b"] == f"out-{b}.png"
        assert "model" not in row and "note" not in row and "edited" not in row


def test_no_model_is_always_a_and_the_seed_decides(tmp_path: Path) -> None:
    manifest(tmp_path, sources=6)
    rows = made(tmp_path, "--seed", 3)
    first = Counter(row["model_a"] for row in rows)
    assert all(abs(first[model] - 6) <= 1 for model in MODELS)
    for x, y in combinations(MODELS, 2):
        assert sum(models_of(row) == (x, y) for row in rows) == 3
    assert made(tmp_path, "--seed", 3) == rows and made(tmp_path, "--seed", 4) != rows


def test_a_sample_balances_models_and_sources(tmp_path: Path) -> None:
    manifest(tmp_path, sources=6)
    rows = made(tmp_path, "--sample", 9)
    assert set(Counter(tuple(sorted(models_of(row))) for row in rows).values()) == {3}
    assert sorted(Counter(row["instruction"] for row in rows).values()) == [
        1,
        1,
        1,
        2,
        2,
        2,
    ]
    assert set(Counter(row["model_a"] for row in rows).values()) <= {2, 3, 4}
    assert made(tmp_path, "--sample", 9) == rows
    assert len(made(tmp_path, "--sample", 1000)) == 18


def test_against_one_model(tmp_path: Path) -> None:
    manifest(tmp_path)
    assert len(rows := made(tmp_path, "--against", "bob")) == 8 and all(
        "bob" in models_of(row) for row in rows
    )
    wrong = editjudge(
        "pairs",
        tmp_path / "edits.jsonl",
        "-o",
        tmp_path / "p.jsonl",
        "--against",
        "bib",
    )
    assert (
        wrong.code == 2 and "bob" in wrong.err and not (tmp_path / "p.jsonl").exists()
    )


def test_a_manifest_may_call_its_fields_otherwise(tmp_path: Path) -> None:
    path = manifest(tmp_path, models=("ann", "bob"), sources=2)
    rows = [
        {"source" if key == "input" else key: value for key, value in row.items()}
        for row in rows_of(path)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made_of = made(tmp_path, "--column", "input=source")
    assert len(made_of) == 2 and all(row["input"].startswith("in-") for row in made_of)


def test_edits_of_one_model_make_no_pair(tmp_path: Path) -> None:
    path = manifest(tmp_path, models=("ann",))
    done = editjudge("pairs", path, "-o", tmp_path / "p.jsonl")
    assert done.code == 1
    check_error(done.error, "no_pairs", path.name)


def test_another_instruction_is_another_question(tmp_path: Path) -> None:
    path = manifest(tmp_path, models=("ann", "bob"), sources=2)
    rows = rows_of(path)
    rows[0]["instruction"] = "something else"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    answer = editjudge("pairs", path, "-o", tmp_path / "pairs.jsonl", "--json").json
    assert (answer["pairs"], answer["alone"], answer["models"]) == (
        1,
        2,
        ["ann", "bob"],
    )


def test_the_pairs_may_lie_elsewhere_and_a_missing_output_is_said(
    tmp_path: Path,
) -> None:
    path = manifest(tmp_path, models=("ann", "bob"), sources=2)
    (tmp_path / "out-bob-1.png").unlink()
    (tmp_path / "sub").mkdir()
    done = editjudge("pairs", path, "-o", tmp_path / "sub" / "p.jsonl")
    assert shows(done.out, "1 pairs lack") and "--allow-outside" in done.out
    assert rows_of(tmp_path / "sub" / "p.jsonl")[0]["input"].startswith("../in-")


@pytest.mark.parametrize("words", [("--factor", "overall"), ("--sample", "0")])
def test_options_that_make_no_sense_are_refused(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    path = manifest(tmp_path)
    assert editjudge("pairs", path, "-o", tmp_path / "p.jsonl", *words).code == 2
    assert editjudge("pairs", path, "-o", path).code == 2 and len(rows_of(path)) == 12
