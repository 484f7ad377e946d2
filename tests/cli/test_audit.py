"""`editjudge audit`: check a manifest and its pictures before a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from editjudge.running import progress
from tests.faults import shows
from tests.measured.made import photograph, recoloured
from tests.measured.test_degenerate import CASES
from tests.running.made import editjudge, edits, rows_of, write_manifest


def test_a_sound_manifest_has_no_findings(tmp_path: Path) -> None:
    printed = editjudge("audit", edits(tmp_path, 3), "--json")
    assert (printed.code, printed.json["findings"], printed.json["edits"]) == (0, [], 3)


def test_what_is_odd_is_found_and_exits_with_1(tmp_path: Path) -> None:
    rows = rows_of(edits(tmp_path, 5))
    (tmp_path / "edited-1.png").unlink()
    (tmp_path / "edited-2.png").write_bytes(b"words")
    rows[3]["instruction"] = ""
    rows[4]["edited"] = rows[4]["input"]
    printed = editjudge("audit", write_manifest(tmp_path, [*rows, rows[0]]), "--json")
    assert printed.code == 1
    kinds = {(finding["kind"], finding["line"]) for finding in printed.json["findings"]}
    assert kinds >= {
        ("missing_output", 2),
        ("broken_file", 3),
        ("empty_instruction", 4),
        ("no_op", 5),
        ("duplicate_id", 6),
    }


def test_people_see_what_was_found_where_and_what_to_do(tmp_path: Path) -> None:
    rows = rows_of(edits(tmp_path, 2))
    rows[1]["instruction"] = ""
    printed = editjudge("audit", write_manifest(tmp_path, rows))
    assert printed.code == 1
    summary, finding = printed.out.split("\n\n")
    assert shows(summary, 2, "edits", 2, "models", 1)
    assert shows(finding, "empty_instruction, 1", "line 2 (e1)", "instruction")


def test_what_is_wrong_in_every_line_is_said_once_with_the_mapping_that_helps(
    tmp_path: Path,
) -> None:
    rows = [{"source": "a.png", "target": "b.png", "caption": "Paint it."}] * 9
    printed = editjudge("audit", write_manifest(tmp_path, rows))
    assert printed.out.count("did you mean") == 1 and shows(
        printed.out, "line 1", 8, "source"
    )
    mapping = (
        "--column input=source --column edited=target --column instruction=caption"
    )
    assert mapping in printed.out


def test_a_mistyped_field_of_column_is_refused_with_the_right_one(
    tmp_path: Path,
) -> None:
    printed = editjudge("audit", edits(tmp_path, 1), "--column", "inptu=source")
    assert printed.code == 2 and shows(printed.err, '"inptu"', '"input"')


def test_a_line_that_is_none_is_named_once(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 1, model="m")
    manifest.write_text(manifest.read_text() + "{broken\n")
    printed = editjudge("audit", manifest)
    assert printed.code == 1
    assert printed.out.startswith(
        "1 edit of 1 model; 1 finding\n\nLines that cannot be read (bad_line, 1): "
    )
    assert printed.out.count("line 2") == 1 and shows(printed.out, "line 2", "JSON")


def test_an_input_that_is_absent_is_found(tmp_path: Path) -> None:
    rows = [
        {key: value for key, value in row.items() if key != "input"}
        for row in rows_of(edits(tmp_path, 2))
    ]
    printed = editjudge("audit", write_manifest(tmp_path, rows), "--json")
    assert (printed.code, printed.json["counts"]["missing_input"]) == (1, 2)
    renamed = write_manifest(
        tmp_path, [row | {"source": "input-0.png"} for row in rows]
    )
    assert 'did you mean \\"input\\"?' in editjudge("audit", renamed, "--json").out


def test_nothing_is_written(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 2)
    before = sorted(tmp_path.iterdir())
    editjudge("audit", manifest)
    assert sorted(tmp_path.iterdir()) == before


def test_a_manifest_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    printed = editjudge("audit", tmp_path / "gone.jsonl")
    assert printed.code == 1
    assert printed.err.startswith("editjudge: ") and "gone.jsonl" in printed.err


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (name, CASES[name][0])
        for name in (
            "black",
            "gradient",
            "noise",
            "the input",
            "mirrored",
            "16 pixels",
            "two by two",
        )
    ],
)
def test_an_output_that_is_no_edit_is_found_and_counted(
    name: str, kind: str, tmp_path: Path
) -> None:
    pictures = {
        "input": photograph(),
        "edited": CASES[name][1](photograph()),
        "good": recoloured(photograph()),
    }
    for role, picture in pictures.items():
        Image.fromarray(np.ascontiguousarray(picture)).save(tmp_path / f"{role}.png")
    rows = [{"id": role, "input": "input.png", "edited": f"{role}.png", "instruction": "make the cup blue"}
            for role in ("edited", "good")]  # fmt: skip
    printed = editjudge("audit", write_manifest(tmp_path, rows), "--json")
    assert (printed.code, printed.json["counts"][kind]) == (1, 1)
    assert {finding["id"] for finding in printed.json["findings"]} == {"edited"}


def test_an_input_that_shows_nothing_is_found(tmp_path: Path) -> None:
    Image.fromarray(photograph() * 0).save(tmp_path / "input.png")
    Image.fromarray(photograph()).save(tmp_path / "edited.png")
    rows = [
        {
            "id": "a",
            "input": "input.png",
            "edited": "edited.png",
            "instruction": "draw a cup",
        }
    ]
    (finding,) = editjudge("audit", write_manifest(tmp_path, rows), "--json").json[
        "findings"
    ]
    assert (finding["kind"], finding["field"]) == ("flat", "input")


def test_pairs_are_looked_over_output_by_output(tmp_path: Path) -> None:
    from tests.cli.test_pairs import made, manifest

    manifest(tmp_path, models=("ann", "bob"), sources=3)
    rows = made(tmp_path)
    (tmp_path / rows[0]["edited_b"]).unlink()
    (tmp_path / rows[1]["edited_b"]).write_bytes(
        (tmp_path / rows[1]["edited_a"]).read_bytes()
    )
    (tmp_path / rows[2]["edited_a"]).write_bytes(
        (tmp_path / rows[2]["input"]).read_bytes()
    )
    document = editjudge("audit", tmp_path / "pairs.jsonl", "--json").json
    kinds = {(one["kind"], one["id"], one["field"]) for one in document["findings"]}
    assert ("missing_output", rows[0]["id"], "edited_b") in kinds
    assert ("same_outputs", rows[1]["id"], "edited_b") in kinds
    assert ("no_op", rows[2]["id"], "edited_a") in kinds
    assert (
        document["models"] == {"ann": 3, "bob": 3}
        and document["counts"]["missing_output"] == 1
    )
    assert not document["notices"] or "metadata" not in " ".join(document["notices"])


def test_an_audit_shows_how_many_edits_it_has_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = edits(tmp_path, 3)
    assert "checked" not in editjudge("audit", manifest).err, (
        "a short audit prints its findings alone"
    )
    monkeypatch.setattr(progress, "LINES", 0.0)
    assert "3 of 3 edits" in editjudge("audit", manifest).err
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    printed = editjudge("audit", manifest, "--json")
    assert "checking" in printed.err and printed.json["edits"] == 3
