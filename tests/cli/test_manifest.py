"""`editjudge manifest`: trees as GEdit-Bench and ImgEdit-Bench leave them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.running.made import editjudge, picture, rows_of


def save(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture(path.name))


def gedit_tree(root: Path) -> Path:
    for model in ("bagel", "step"):
        for task, key in (("color_alter", "k1"), ("subject-add", "k2")):
            save(root / "results" / model / "fullset" / task / "en" / f"{key}.png")
            save(
                root / "results" / model / "fullset" / task / "en" / f"{key}_SRCIMG.png"
            )
    (root / "results/step/fullset/subject-add/en/k2.png").unlink()
    facts = [
        {
            "key": "k1",
            "task_type": "color_alter",
            "instruction_language": "en",
            "instruction": "make it red",
        },
        {
            "key": "k2",
            "task_type": "subject-add",
            "instruction_language": "en",
            "instruction": "add a hat",
        },
        {
            "key": "k3",
            "task_type": "color_alter",
            "instruction_language": "cn",
            "instruction": "变红",
        },
    ]
    (root / "gedit.jsonl").write_text("\n".join(map(json.dumps, facts)), "utf-8")
    return root / "results"


def made(root: Path, *words: object) -> dict[str, dict[str, Any]]:
    told = editjudge("manifest", *words, "-o", root / "edits.jsonl")
    assert told.code == 0, told.err
    return {row["id"]: row for row in rows_of(root / "edits.jsonl")}


def test_a_gedit_tree_has_a_row_for_each_model_and_edit_in_the_languages_that_were_run(
    tmp_path: Path,
) -> None:
    rows = made(
        tmp_path,
        gedit_tree(tmp_path),
        "--benchmark",
        "gedit",
        "--instructions",
        tmp_path / "gedit.jsonl",
    )
    assert list(rows) == ["bagel/en/k1", "bagel/en/k2", "step/en/k1", "step/en/k2"]
    assert rows["bagel/en/k2"] == {
        "id": "bagel/en/k2",
        "input": "results/bagel/fullset/subject-add/en/k2_SRCIMG.png",
        "edited": "results/bagel/fullset/subject-add/en/k2.png",
        "instruction": "add a hat",
        "model": "bagel",
        "edit_type": "subject-add",
        "language": "en",
    }


def test_what_a_model_did_not_produce_stays_a_row_and_is_judged_as_missing_output(
    tmp_path: Path,
) -> None:
    made(
        tmp_path,
        gedit_tree(tmp_path),
        "--benchmark",
        "gedit",
        "--instructions",
        tmp_path / "gedit.jsonl",
    )
    run = editjudge(
        *(
            "run",
            tmp_path / "edits.jsonl",
            "--judge",
            "measured",
            "--rubric",
            "quality",
        ),
        *("--store", tmp_path / "s.db", "--max-failures", "1", "--json"),
    )
    assert run.code == 0, run.err
    assert run.json["statuses"]["missing_output"] == 1
    assert run.json["total"] == 4


def test_the_source_is_found_with_another_model_where_one_kept_no_copy(
    tmp_path: Path,
) -> None:
    tree = gedit_tree(tmp_path)
    (tree / "bagel/fullset/color_alter/en/k1_SRCIMG.png").unlink()
    rows = made(
        tmp_path,
        tree,
        "--benchmark",
        "gedit",
        "--instructions",
        tmp_path / "gedit.jsonl",
    )
    assert (
        rows["bagel/en/k1"]["input"]
        == "results/step/fullset/color_alter/en/k1_SRCIMG.png"
    )


def test_the_benchmark_s_own_parquet_will_do_for_instructions(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    tree = gedit_tree(tmp_path)
    facts = [
        json.loads(line) | {"input_image": b"x"}
        for line in (tmp_path / "gedit.jsonl").read_text().splitlines()
    ]
    pq.write_table(pa.Table.from_pylist(facts), tmp_path / "train-0.parquet")
    assert (
        len(
            made(
                tmp_path,
                tree,
                "--benchmark",
                "gedit",
                "--instructions",
                tmp_path / "train-0.parquet",
            )
        )
        == 4
    )


def test_an_imgedit_tree_takes_its_sources_from_the_folder_of_originals(
    tmp_path: Path,
) -> None:
    for key in ("7", "8"):
        save(tmp_path / "results" / "mine" / f"{key}.png")
    save(tmp_path / "singleturn" / "animal" / "a.jpg")
    facts = {
        key: {"id": "animal/a.jpg", "prompt": f"edit {key}", "edit_type": "style"}
        for key in ("7", "8", "9")
    }
    (tmp_path / "basic_edit.json").write_text(json.dumps(facts), "utf-8")
    rows = made(
        tmp_path,
        *(
            tmp_path / "results",
            "--benchmark",
            "imgedit",
            "--instructions",
            tmp_path / "basic_edit.json",
        ),
        *("--originals", tmp_path / "singleturn"),
    )
    assert list(rows) == ["mine/7", "mine/8", "mine/9"]
    assert rows["mine/8"]["input"] == "singleturn/animal/a.jpg"
    assert rows["mine/8"]["edit_type"] == "style"


def test_pictures_outside_the_manifest_s_folder_are_said_to_be(tmp_path: Path) -> None:
    tree = gedit_tree(tmp_path)
    (tmp_path / "m").mkdir()
    told = editjudge(
        *(
            "manifest",
            tree,
            "--benchmark",
            "gedit",
            "--instructions",
            tmp_path / "gedit.jsonl",
        ),
        *("-o", tmp_path / "m" / "edits.jsonl"),
    )
    assert "--allow-outside" in told.out


@pytest.mark.parametrize(
    ("facts", "complaint"),
    [
        (
            [
                {
                    "key": "../../etc",
                    "task_type": "color_alter",
                    "instruction_language": "en",
                    "instruction": "x",
                }
            ],
            "outside the tree",
        ),
        (
            [{"key": "k1", "task_type": "color_alter", "instruction_language": "en"}],
            "no `instruction`",
        ),
        ("words", "expected a list"),
    ],
)
def test_facts_that_cannot_be_meant_are_refused_by_name(
    facts: object, complaint: str, tmp_path: Path
) -> None:
    tree = gedit_tree(tmp_path)
    (tmp_path / "facts.json").write_text(json.dumps(facts), "utf-8")
    told = editjudge(
        *(
            "manifest",
            tree,
            "--benchmark",
            "gedit",
            "--instructions",
            tmp_path / "facts.json",
        ),
        *("-o", tmp_path / "edits.jsonl"),
    )
    assert told.code == 1
    assert complaint in told.err
    assert not (tmp_path / "edits.jsonl").exists()


def test_a_tree_of_another_layout_is_said_to_be_one(tmp_path: Path) -> None:
    gedit_tree(tmp_path)
    (tmp_path / "other").mkdir()
    told = editjudge(
        *(
            "manifest",
            tmp_path / "other",
            "--benchmark",
            "gedit",
            "--instructions",
            tmp_path / "gedit.jsonl",
        ),
        *("-o", tmp_path / "edits.jsonl"),
    )
    assert (told.code, "layout" in told.err) == (1, True)


def test_the_name_of_the_option_in_0_1_still_works_and_one_of_both_is_needed(
    tmp_path: Path,
) -> None:
    words = (
        "manifest",
        gedit_tree(tmp_path),
        "--instructions",
        tmp_path / "gedit.jsonl",
        "-o",
        tmp_path / "e.jsonl",
    )
    assert editjudge(*words, "--layout", "gedit").code == 0
    missing = editjudge(*words)
    assert missing.code == 2 and "--benchmark is missing" in missing.err
    assert "--layout" not in editjudge("manifest", "--help").out


def test_a_risebench_tree_names_the_reference_that_an_edit_is_held_against(
    tmp_path: Path,
) -> None:
    save(tmp_path / "outputs" / "bagel" / "images" / "spatial_reasoning" / "s1.jpg")
    facts = [
        {
            "index": "s1",
            "category": "spatial_reasoning",
            "instruction": "turn it",
            "image": "a.png",
            "reference_img": "r.png",
        },
        {
            "index": "t1",
            "category": "temporal_reasoning",
            "instruction": "age it",
            "image": "b.png",
            "reference": "old",
        },
    ]
    (tmp_path / "data.json").write_text(json.dumps(facts), "utf-8")
    words = (
        "--benchmark",
        "risebench",
        "--instructions",
        tmp_path / "data.json",
        "--originals",
        tmp_path / "data",
    )
    rows = made(tmp_path, tmp_path / "outputs", *words)
    assert rows["bagel/s1"]["edited"] == "outputs/bagel/images/spatial_reasoning/s1.jpg"
    assert rows["bagel/s1"]["ground_truth"] == "data/r.png"
    assert rows["bagel/t1"]["reference"] == "old"
    assert "ground_truth" not in rows["bagel/t1"]
    assert (
        rows["bagel/t1"]["edited"] == "outputs/bagel/images/temporal_reasoning/t1.png"
    )


def test_an_omnicontext_tree_lists_its_reference_pictures(tmp_path: Path) -> None:
    for name in ("1.png", "2.png"):
        save(tmp_path / "refs" / "k1" / name)
    save(tmp_path / "results" / "omni" / "fullset" / "scene_object" / "k1.png")
    fact = {"key": "k1", "task_type": "scene_object", "instruction": "both in the park"}
    (tmp_path / "data.jsonl").write_text(json.dumps(fact), "utf-8")
    words = (
        "--benchmark",
        "omnicontext",
        "--instructions",
        tmp_path / "data.jsonl",
        "--originals",
        tmp_path / "refs",
    )
    rows = made(tmp_path, tmp_path / "results", *words)
    assert rows["omni/k1"]["references"] == ["refs/k1/1.png", "refs/k1/2.png"]
    assert rows["omni/k1"]["task_type"] == "scene_object"


def test_picabench_s_own_file_carries_its_questions(tmp_path: Path) -> None:
    question = {
        "question": "Is it wet?",
        "answer": "Yes",
        "box": {"x": 1, "y": 2, "width": 3.5, "height": 4},
    }
    fact = {
        "index": 7,
        "input_path": "in/7.jpg",
        "output_path": "out/7.jpg",
        "edit_instruction": "wet it",
        "physics_category": "Optics",
        "physics_law": "Reflection",
        "edit_operation": "add",
        "annotated_qa_pairs": [question],
    }
    (tmp_path / "pica").mkdir()
    (tmp_path / "meta.json").write_text(
        json.dumps([fact, fact | {"index": 8, "output_path": None}]), "utf-8"
    )
    words = ("--benchmark", "picabench", "--instructions", tmp_path / "meta.json")
    rows = made(tmp_path, tmp_path / "pica", *words)
    assert rows["pica/7"]["checks"] == [
        {"question": "Is it wet?", "answer": "Yes", "box": [1, 2, 3.5, 4]}
    ]
    assert "edited" not in rows["pica/8"]
    broken = fact | {
        "annotated_qa_pairs": [{"question": "Is it wet?", "answer": "Yes"}]
    }
    (tmp_path / "meta.json").write_text(json.dumps([broken]), "utf-8")
    refusal = editjudge(
        "manifest", tmp_path / "pica", *words, "-o", tmp_path / "other.jsonl"
    )
    assert refusal.code == 1
    assert "without a box" in refusal.err
