"""Other programs read our exports with their own readers: `datasets`, `huggingface_hub` and FiftyOne."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import yaml
from huggingface_hub import parse_eval_result_entries

from tests.running.made import editjudge, edits, expected, stub

FIFTYONE = Path(__file__).parents[2] / ".venv-fiftyone" / "bin" / "python"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a run of six edits of two models; the first edit of m0 has no output."""
    manifest = edits(tmp_path, 6)
    (tmp_path / "right.json").write_text(
        json.dumps([[*key, scores] for key, scores in expected(manifest).items()])
    )
    (tmp_path / "edited-0.png").unlink()
    with stub():
        words = ("--judge", "openai/stub", "--name", "r", "--max-failures", "1")
        told = editjudge("run", manifest, *words, "--store", tmp_path / "s.db")
    assert told.code == 0, told.err
    return tmp_path


def export(folder: Path, form: str, *more: object) -> Any:
    out = folder / form
    words = ("-o", out, "--format", form, "--store", folder / "s.db")
    return editjudge("export", "r", *words, *more)


def right(folder: Path) -> dict[tuple[str, str], dict[str, int]]:
    listed = json.loads((folder / "right.json").read_text())
    return {(item, rubric): scores for item, rubric, scores in listed}


def dataset(folder: Path) -> Any:
    import datasets

    told = export(folder, "datasets")
    assert told.code == 0, told.err
    return datasets.load_from_disk(str(folder / "datasets"))


def test_datasets_opens_every_edit_with_its_images_decoded_and_its_scores(
    folder: Path,
) -> None:
    rows = {row["item"]: row for row in dataset(folder)}
    assert len(rows) == 6
    assert rows["e1"]["edited"].size == (8, 8) and rows["e1"]["input"].size == (8, 8)
    scores = right(folder)
    for item in ("e1", "e5"):
        for row in rows[item]["scores"]:
            assert row["score"] == scores[item, row["rubric"]][row["factor"]]


def test_a_failed_judgement_is_null_in_datasets_with_its_status(folder: Path) -> None:
    first = next(row for row in dataset(folder) if row["item"] == "e0")
    assert first["edited"] is None and len(first["scores"]) == 12
    assert {(s["status"], s["score"]) for s in first["scores"]} == {
        ("missing_output", None)
    }


def test_an_image_that_changed_since_it_was_judged_is_null_and_named(
    folder: Path,
) -> None:
    (folder / "edited-1.png").write_bytes((folder / "edited-3.png").read_bytes())
    row = next(row for row in dataset(folder) if row["item"] == "e1")
    assert row["edited"] is None and row["image_problems"][0].startswith("edited: ")


def test_the_hub_s_parser_reads_a_value_for_each_score(folder: Path) -> None:
    told = export(folder, "eval-results", "--dataset", "org/bench")
    assert told.code == 0, told.err
    (path,) = (folder / "eval-results" / "m0" / ".eval_results").iterdir()
    entries = parse_eval_result_entries(yaml.safe_load(path.read_text()))
    values = {entry.task_id: entry.value for entry in entries}
    scores = right(folder)
    wanted = fmean(scores[item, "fidelity"]["alignment"] for item in ("e2", "e4"))
    assert values["alignment"] == pytest.approx(wanted)
    assert {entry.dataset_id for entry in entries} == {"org/bench"}
    assert all("1 missing_output" in str(entry.notes) for entry in entries)


def test_a_score_that_no_edit_has_is_no_entry_and_a_comment(folder: Path) -> None:
    for path in folder.glob("edited-*.png"):
        path.unlink()
    words = ("--judge", "openai/stub", "--name", "none", "--max-failures", "1")
    with stub():
        editjudge("run", folder / "edits.jsonl", *words, "--store", folder / "s.db")
    out = ("-o", folder / "hub", "--format", "eval-results", "--dataset", "o/b")
    editjudge("export", "none", *out, "--store", folder / "s.db")
    (path,) = (folder / "hub" / "m0" / ".eval_results").iterdir()
    assert yaml.safe_load(path.read_text()) == []
    assert "# alignment: no value; 0 of 3" in path.read_text()


def test_eval_results_need_the_name_of_a_benchmark(folder: Path) -> None:
    assert export(folder, "eval-results").code == 2
    assert export(folder, "jsonl", "--dataset", "org/bench").code == 2


def test_a_sample_of_fiftyone_has_a_label_for_each_score_and_tags_of_failures(
    folder: Path,
) -> None:
    assert export(folder, "fiftyone").code == 0
    document = json.loads((folder / "fiftyone" / "samples.json").read_text())
    samples = {sample["item"]: sample for sample in document["samples"]}
    scores = right(folder)
    label = samples["e1"]["fidelity_alignment"]
    assert label["value"] == scores["e1", "fidelity"]["alignment"]
    assert samples["e1"]["filepath"] == str(folder / "edited-1.png")
    assert samples["e0"]["tags"] == ["missing_output"]
    assert samples["e0"]["fidelity_alignment"]["value"] is None
    assert not Path(samples["e0"]["filepath"]).exists()
    assert {*samples["e1"]} - {"tags", "filepath"} == {*document["sample_fields"]}


READ_BACK = """
import json, os, sys
import fiftyone as fo
import fiftyone.core.odm as odm

path = sys.argv[1]
try:
    samples, how = list(fo.Dataset.from_json(path)), "dataset"
except fo.core.config.FiftyOneConfigError:  # no MongoDB: its own parsers, without the database
    document = json.load(open(path))
    fields = {name: odm.get_field_kwargs(text) for name, text in document["sample_fields"].items()}
    assert all("ftype" in field for field in fields.values())
    samples, how = [fo.Sample.from_dict(sample) for sample in document["samples"]], "samples"
first = {sample["item"]: sample for sample in samples}
print(json.dumps({
    "how": how, "n": len(samples), "tags": first["e0"].tags, "missing": first["e0"]["fidelity_alignment"].value,
    "value": first["e1"]["fidelity_alignment"].value, "status": first["e0"]["fidelity_alignment"].status,
    "type": type(first["e1"]["fidelity_alignment"]).__name__,
}))
"""


@pytest.mark.soak
def test_fiftyone_reads_the_samples_back(folder: Path) -> None:
    assert export(folder, "fiftyone").code == 0
    path = folder / "fiftyone" / "samples.json"
    ended = subprocess.run(
        [FIFTYONE, "-c", READ_BACK, path],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    read = json.loads(ended.stdout.splitlines()[-1])
    assert read["n"] == 6 and read["type"] == "Regression"
    assert read["value"] == right(folder)["e1", "fidelity"]["alignment"]
    assert (read["missing"], read["status"]) == (None, "missing_output")
    assert read["tags"] == ["missing_output"]
