"""`measured` on pairs: by the scores that each output gets alone, the same in both orders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from tests.running.made import editjudge, rows_of


def test_the_output_that_kept_more_is_preferred_in_both_orders_and_the_rest_abstains(
    tmp_path: Path,
) -> None:
    before = Image.radial_gradient("L").resize((128, 128)).convert("RGB")
    ImageDraw.Draw(before).rectangle((20, 20, 60, 60), fill=(40, 90, 160))
    kept = before.copy()
    ImageDraw.Draw(kept).rectangle((20, 20, 60, 60), fill=(160, 60, 50))
    noise = np.random.default_rng(0).integers(0, 256, (128, 128, 3), np.uint8)
    for name, picture in (
        ("in", before),
        ("kept", kept),
        ("noise", Image.fromarray(noise)),
    ):
        picture.save(tmp_path / f"{name}.png")
    rows = [
        {
            "id": "x",
            "input": "in.png",
            "edited_a": "kept.png",
            "edited_b": "noise.png",
            "instruction": "a red square",
        },
        {
            "id": "y",
            "input": "in.png",
            "edited_a": "noise.png",
            "edited_b": "kept.png",
            "instruction": "a red square",
        },
        {
            "id": "z",
            "input": "in.png",
            "edited_a": "kept.png",
            "edited_b": "kept.png",
            "instruction": "a red square",
        },
    ]
    (tmp_path / "pairs.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows)
    )
    words = (
        "--rubric",
        "preference",
        "--judge",
        "measured",
        "--store",
        tmp_path / "s.db",
        "--name",
        "m",
    )
    assert editjudge("run", tmp_path / "pairs.jsonl", *words).code == 0
    assert (
        editjudge(
            "export",
            "m",
            "--store",
            tmp_path / "s.db",
            "-o",
            tmp_path / "out",
            "--format",
            "jsonl",
        ).code
        == 0
    )
    verdicts = {
        row["item"]: row["verdict"]["measured"]
        for row in rows_of(tmp_path / "out" / "items.jsonl")
    }
    assert [verdicts[name]["preservation"] for name in "xyz"] == ["a", "b", "tie"]
    assert [verdicts[name]["overall"] for name in "xyz"] == ["a", "b", "tie"]
    judgements = rows_of(tmp_path / "out" / "judgements.jsonl")
    assert all(
        not row["choices"].keys() & row["abstained"].keys() for row in judgements
    )
    assert verdicts["z"]["instruction"] in (None, "tie")
    for row in judgements:  # in the pair's own naming, whatever the order
        scores = row["evidence"]["scores"]
        better = max(
            ("edited_a", "edited_b"),
            key=lambda name: sum(scores[name]["preservation"].values()),
        )
        assert row["item"] == "z" or row["choices"]["preservation"] == better[-1]


def test_outputs_that_measure_the_same_abstain_where_no_tie_is_offered(
    tmp_path: Path,
) -> None:
    image = Image.radial_gradient("L").resize((128, 128)).convert("RGB")
    image.save(tmp_path / "in.png")
    ImageDraw.Draw(image).rectangle((20, 20, 60, 60), fill=(160, 60, 50))
    image.save(tmp_path / "edited.png")
    row = {
        "id": "x",
        "input": "in.png",
        "edited_a": "edited.png",
        "edited_b": "edited.png",
        "instruction": "a red square",
    }
    (tmp_path / "pairs.jsonl").write_text(json.dumps(row))
    run = editjudge(
        *("run", tmp_path / "pairs.jsonl", "--rubric", "preference_forced"),
        *("--judge", "measured", "--store", tmp_path / "s.db", "--json"),
    )
    assert run.json["statuses"] == {"abstained": 2}
